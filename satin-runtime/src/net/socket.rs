//! The UDP socket under QUIC: counts what passes, and what is not QUIC at all.
//!
//! QUIC drops without a word what it does not understand, which is right, but leaves people in the dark when something
//! keeps knocking. Knows nothing of connections.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, Runtime, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use socket2::{Domain, Protocol, Socket, Type};

/// What the system is asked to hold of each direction while the network thread is busy. It gives what it will.
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

/// What passed.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Datagrams that were not for us, or not QUIC.
    pub(super) noise: AtomicU64,
}

/// A socket that counts.
#[derive(Debug)]
pub(super) struct Counted {
    inner: Arc<dyn AsyncUdpSocket>,
    traffic: Arc<Traffic>,
    names: Names,
}

impl Counted {
    pub(super) fn new(
        socket: UdpSocket,
        traffic: Arc<Traffic>,
        names: Names,
    ) -> io::Result<Counted> {
        Ok(Counted {
            inner: TokioRuntime.wrap_udp_socket(socket)?,
            traffic,
            names,
        })
    }

    fn is_noise(&self, datagram: &[u8]) -> bool {
        let Some((&first, rest)) = datagram.split_first() else {
            return false; // nothing at all: that is how nodes knock (see `probe`)
        };
        if first & 0x40 == 0 {
            return true;
        }
        if first & 0x80 != 0 {
            let version = rest
                .first_chunk()
                .map(|version| u32::from_be_bytes(*version));
            return version != Some(QUIC);
        }
        !rest.first_chunk().is_some_and(|name| self.names.know(name))
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
            for (meta, buffer) in meta.iter().zip(bufs.iter()).take(*count) {
                self.traffic.received.fetch_add(meta.len as u64, Relaxed);
                let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                let noise = datagrams.filter(|datagram| self.is_noise(datagram)).count();
                if noise > 0 {
                    self.traffic.noise.fetch_add(noise as u64, Relaxed);
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
            assert!(counted.is_noise(noise), "{noise:?}");
        }
        let short = [&[0x41][..], &names.generate_cid(), &[0; 30]].concat();
        for quic in [&b"\xc3\0\0\0\x01......"[..], &short, b""] {
            assert!(!counted.is_noise(quic), "{quic:?}");
        }
    }
}
