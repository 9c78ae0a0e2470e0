//! The UDP socket under QUIC: counts datagrams, and those that are not QUIC at all, and drops the handshakes of a flood.
//!
//! An attacker that spoofs addresses can begin more handshakes than QUIC can even refuse. The first bytes of a datagram
//! tell whether it begins a handshake, and of those only a limited number a second get any further: open connections do
//! not queue behind them.
//!
//! QUIC drops without a word what it does not understand, which is right, but leaves people in the dark when something
//! keeps knocking. Knows nothing of connections.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use quinn::{
    AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, Runtime, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::limits;

/// Bytes that the system is asked to hold of each direction while the network thread is busy. The system may give less.
/// Too small: datagrams are lost in bursts. Too large: memory of the kernel.
const BUFFER: usize = 4 << 20;

/// The version of QUIC that is spoken.
const QUIC: u32 = 1;

/// Binds a socket; to the unspecified address of IPv6 for IPv4 as well, where the system allows.
pub(super) fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        let _ = socket.set_only_v6(false);
    }
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// The endpoint of a client that is no node, for connections to addresses of the same family as this one. Called within a tokio runtime.
pub(super) fn client_endpoint(to: SocketAddr) -> io::Result<quinn::Endpoint> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = bind(any)?;
    socket.set_nonblocking(true)?;
    let config = quinn::EndpointConfig::default();
    quinn::Endpoint::new(config, None, socket, Arc::new(TokioRuntime))
}

/// Counters of the socket's traffic.
#[derive(Debug, Default)]
pub(super) struct SocketTraffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Datagrams that were not for us, or not QUIC.
    pub(super) noise: AtomicU64,
    /// First flights that were dropped because there were too many.
    pub(super) shed: AtomicU64,
    /// Handshakes of others that are under way.
    pub(super) unfinished: AtomicUsize,
}

/// The sort of a datagram, as far as its first bytes tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    /// Of an open connection, or empty: empty datagrams are how nodes knock (see `probe`).
    Ours,
    /// The beginning of a handshake.
    FirstFlight {
        /// True if the datagram brings, or claims to bring, the token of a retry.
        has_token: bool,
    },
    /// Not QUIC, or not for us.
    Noise,
}

/// An initial packet, as far as it can be read without keys.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstFlight<'d> {
    /// The name of the connection that it is for; one that the caller has made up, if it is the first.
    to: &'d [u8],
    has_token: bool,
}

/// Reads the beginning of an initial packet. `None` if it is another, or cut off.
#[doc(hidden)]
#[must_use]
pub fn first_flight(datagram: &[u8]) -> Option<FirstFlight<'_>> {
    let (first, rest) = datagram.split_first()?;
    let (version, rest) = rest.split_first_chunk()?;
    if first & 0xf0 != 0xc0 || u32::from_be_bytes(*version) != QUIC {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (to, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first()?;
    let token = rest.get(usize::from(*length)..)?.first()?;
    Some(FirstFlight {
        to,
        has_token: *token != 0,
    })
}

/// A budget of first flights that are let through.
#[derive(Debug)]
struct Flights {
    left: f64,
    since: Instant,
}

impl Flights {
    fn new(now: Instant) -> Flights {
        Flights {
            left: limits::FLIGHTS_AT_ONCE,
            since: now,
        }
    }

    fn admit(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_secs_f64() * limits::FLIGHTS_PER_SECOND;
        self.left = (self.left + earned).min(limits::FLIGHTS_AT_ONCE);
        self.since = now;
        let admitted = self.left >= 1.0;
        if admitted {
            self.left -= 1.0;
        }
        admitted
    }
}

/// A UDP socket that counts its traffic.
#[derive(Debug)]
pub(super) struct Counted {
    inner: Arc<dyn AsyncUdpSocket>,
    traffic: Arc<SocketTraffic>,
    names: Names,
    /// First flights without a token, and with a token: a caller that has been sent away to prove its address does not
    /// stand in line with all others.
    flights: Mutex<[Flights; 2]>,
}

impl Counted {
    pub(super) fn new(
        socket: UdpSocket,
        traffic: Arc<SocketTraffic>,
        names: Names,
    ) -> io::Result<Counted> {
        Ok(Counted {
            inner: TokioRuntime.wrap_udp_socket(socket)?,
            traffic,
            names,
            flights: Mutex::new([0; 2].map(|_| Flights::new(Instant::now()))),
        })
    }

    fn sort(&self, datagram: &[u8]) -> Sort {
        let Some((&first, rest)) = datagram.split_first() else {
            return Sort::Ours;
        };
        let is_ours = |is_ours| if is_ours { Sort::Ours } else { Sort::Noise };
        if first & 0x40 == 0 {
            return Sort::Noise;
        }
        if first & 0x80 == 0 {
            return is_ours(rest.first_chunk().is_some_and(|name| self.names.know(name)));
        }
        let version = rest.first_chunk();
        if version.is_none_or(|version| u32::from_be_bytes(*version) != QUIC) {
            return Sort::Noise;
        }
        let of_a_handshake = |flight: &FirstFlight<'_>| {
            <&[u8; NAME]>::try_from(flight.to).is_ok_and(|name| self.names.know(name))
        };
        match first_flight(datagram) {
            Some(flight) if !of_a_handshake(&flight) => Sort::FirstFlight {
                has_token: flight.has_token,
            },
            // Of a handshake under way; or a datagram that QUIC drops at little cost.
            _ => Sort::Ours,
        }
    }

    /// Counts received datagrams. True if they are to be dropped.
    fn is_shed(&self, received: &[u8], stride: usize, now: Instant) -> bool {
        let mut flights = None;
        let mut noise = 0;
        let mut ours = false;
        for datagram in received.chunks(stride.max(1)) {
            match self.sort(datagram) {
                Sort::Ours => ours = true,
                Sort::Noise => noise += 1,
                Sort::FirstFlight { has_token } => flights = Some(has_token),
            }
        }
        if noise > 0 {
            self.traffic.noise.fetch_add(noise, Relaxed);
        }
        let Some(has_token) = flights.filter(|_| !ours) else {
            return false;
        };
        let mut budgets = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shed = !budgets[usize::from(has_token)].admit(now);
        if is_shed {
            self.traffic.shed.fetch_add(1, Relaxed);
        }
        is_shed
    }
}

impl AsyncUdpSocket for Counted {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        self.traffic
            .sent
            .fetch_add(transmit.contents.len() as u64, Relaxed);
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(count)) = &received {
            let now = Instant::now();
            for (meta, buffer) in meta.iter_mut().zip(bufs.iter()).take(*count) {
                self.traffic.received.fetch_add(meta.len as u64, Relaxed);
                if self.is_shed(&buffer[..meta.len], meta.stride, now) {
                    meta.len = 0; // QUIC passes it over
                }
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

const NAME: usize = 8;

/// The names of connections: eight bytes, the second half of which is a keyed hash of the first. So what was never one of
/// ours is known without a look into any table.
#[derive(Clone, Debug)]
pub(super) struct Names {
    key: [u8; 32],
}

impl Names {
    pub(super) fn new(key: [u8; 32]) -> Names {
        Names { key }
    }

    fn sign(&self, half: [u8; 4]) -> [u8; 4] {
        let hash = blake3::keyed_hash(&self.key, &half);
        let [a, b, c, d, ..] = *hash.as_bytes();
        [a, b, c, d]
    }

    fn know(&self, name: &[u8; NAME]) -> bool {
        let [a, b, c, d, signature @ ..] = *name;
        self.sign([a, b, c, d]) == signature
    }
}

impl ConnectionIdGenerator for Names {
    fn generate_cid(&mut self) -> ConnectionId {
        let half: [u8; 4] = rand::random();
        let [a, b, c, d] = half;
        let [e, f, g, h] = self.sign(half);
        ConnectionId::new(&[a, b, c, d, e, f, g, h])
    }

    fn cid_len(&self) -> usize {
        NAME
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_quic_is_told_from_what_is() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let _inside = runtime.enter();
        let mut names = Names::new([7; 32]);
        let socket = bind(([127, 0, 0, 1], 0).into()).expect("a socket");
        let counted = Counted::new(socket, Arc::default(), names.clone()).expect("a socket");
        for noise in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\0\0\0",
            b"hello, world",
            b"\xc0\0\0\0\x09....",
            b"\xff",
            &[0x40; 40],
        ] {
            assert_eq!(counted.sort(noise), Sort::Noise, "{noise:?}");
        }
        let short = [&[0x41][..], &names.generate_cid(), &[0; 30]].concat();
        let name = names.generate_cid();
        let handshake = [&b"\xc3\0\0\0\x01\x08"[..], &name, b"\0\0......"].concat();
        for quic in [&b"\xe3\0\0\0\x01......"[..], &handshake, &short, b""] {
            assert_eq!(counted.sort(quic), Sort::Ours, "{quic:?}");
        }
        for (token, has_token) in [(0u8, false), (9, true)] {
            let flight = [&b"\xc3\0\0\0\x01\x08unknown!\x02me"[..], &[token; 20]].concat();
            assert_eq!(counted.sort(&flight), Sort::FirstFlight { has_token });
            for end in 5..18 {
                assert_eq!(counted.sort(&flight[..end]), Sort::Ours, "QUIC drops it");
            }
        }
    }

    #[test]
    fn of_a_flood_only_so_much_gets_through_and_proven_addresses_have_their_own_share() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let _inside = runtime.enter();
        let socket = bind(([127, 0, 0, 1], 0).into()).expect("a socket");
        let traffic = Arc::<SocketTraffic>::default();
        let counted = Counted::new(socket, Arc::clone(&traffic), Names::new([7; 32]));
        let counted = counted.expect("a socket");
        let flight = |token: u8| [&b"\xc3\0\0\0\x01\x08unknown!\x00"[..], &[token; 20]].concat();
        let now = Instant::now();
        let passed = |now, token| {
            let flight = flight(token);
            let shed = (0..100_000).filter(|_| counted.is_shed(&flight, flight.len(), now));
            100_000 - shed.count()
        };
        assert_eq!(passed(now, 0), limits::FLIGHTS_AT_ONCE as usize);
        assert_eq!(passed(now, 9), limits::FLIGHTS_AT_ONCE as usize);
        let quarter = now + std::time::Duration::from_millis(250);
        assert_eq!(passed(quarter, 0), limits::FLIGHTS_AT_ONCE as usize);
        assert_eq!(
            traffic.shed.load(Relaxed),
            300_000 - 3 * limits::FLIGHTS_AT_ONCE as u64
        );
    }
}
