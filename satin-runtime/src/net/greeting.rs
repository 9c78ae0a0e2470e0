//! The first words on a connection, and what may come of an attempt to talk to another node.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use quinn::{ConnectionError, RecvStream, SendStream, TransportErrorCode};
use tokio::net::UdpSocket;

use super::{
    limits, relay,
    wire::{self, Frames, Greeting, Reason, Refusal, WireError},
};

/// Reasons why an attempt came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// No answer came.
    Silence(String),
    /// We were refused, or refuse the other; trying again is of no use.
    Permanent(String),
    /// The other side refuses as things are now; that may change.
    Refused(Reason, String),
    /// The other side prefers another connection; the highest number it knows.
    Crossed(u64),
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Failure::Silence(text) | Failure::Permanent(text) | Failure::Refused(_, text) => text,
            Failure::Crossed(_) => "both nodes called each other at the same time",
        }
    }
}

/// TLS alerts, as QUIC reports them.
const CRYPTO: std::ops::Range<u64> = 0x100..0x200;
const NO_COMMON_PROTOCOL: u64 = 0x100 + 120;

/// The machine answers, and no process has the port.
pub(super) const NO_PROCESS: &str =
    "no process listens there on UDP: the port is wrong, or the node is gone";
/// Nothing answers.
pub(super) const NO_ANSWER: &str =
    "no answer came: the host is wrong or down, or a firewall stops UDP to that port";

const CREDENTIALS: &str = "the two nodes do not hold the same credential: give all nodes a copy of the same file (SATIN_CREDENTIAL)";
const PROTOCOLS: &str =
    "it speaks another version of Satin's protocol: run the same version of Satin on all nodes";

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Failure {
        let of_code = |code: TransportErrorCode| match u64::from(code) {
            NO_COMMON_PROTOCOL => Some(Failure::Permanent(PROTOCOLS.into())),
            code if CRYPTO.contains(&code) => Some(Failure::Permanent(CREDENTIALS.into())),
            _ if code == TransportErrorCode::CONNECTION_REFUSED => Some(Failure::Refused(
                Reason::Busy,
                "too many connections at once, or the node has no room for more".into(),
            )),
            _ => None,
        };
        let known = match &error {
            ConnectionError::VersionMismatch => Some(Failure::Permanent(
                "it speaks another version of QUIC".into(),
            )),
            ConnectionError::TransportError(error) => of_code(error.code),
            ConnectionError::ConnectionClosed(close) => of_code(close.error_code),
            ConnectionError::ApplicationClosed(close) => {
                let text = wire::printable(&String::from_utf8_lossy(&close.reason));
                Some(Failure::Silence(format!(
                    "it closed the connection: {text}"
                )))
            }
            ConnectionError::TimedOut => Some(Failure::Silence(NO_ANSWER.into())),
            _ => None,
        };
        known.unwrap_or_else(|| Failure::Silence(error.to_string()))
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        match error {
            WireError::Version(_) => Failure::Permanent(format!(
                "{error}: run the same version of Satin on all nodes"
            )),
            error => Failure::Permanent(format!("its greeting cannot be understood: {error}")),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal.reason {
            Reason::Crossed => Failure::Crossed(refusal.epoch),
            reason if reason.is_permanent() => Failure::Permanent(refusal.text),
            reason => Failure::Refused(reason, refusal.text),
        }
    }
}

/// The first frame that the other side sends, and what came after it.
pub(super) async fn read_greeting(recv: &mut RecvStream) -> Result<(Greeting, Frames), Failure> {
    let mut frames = Frames::new(limits::GREETING);
    loop {
        if let Some(body) = frames.next_frame()? {
            let greeting = Greeting::decode(body)?;
            frames.set_limit(limits::FRAME);
            return Ok((greeting, frames));
        }
        match recv.read_chunk(limits::LARGE, true).await {
            Ok(Some(chunk)) => frames.push(&chunk.bytes),
            Ok(None) => return Err(Failure::Silence("no greeting came".into())),
            Err(quinn::ReadError::ConnectionLost(error)) => return Err(error.into()),
            Err(error) => return Err(Failure::Silence(error.to_string())),
        }
    }
}

pub(super) async fn write_greeting(
    send: &mut SendStream,
    greeting: &Greeting,
) -> Result<(), Failure> {
    match send.write_all(&greeting.encode()).await {
        Ok(()) => Ok(()),
        Err(quinn::WriteError::ConnectionLost(error)) => Err(error.into()),
        Err(error) => Err(Failure::Silence(error.to_string())),
    }
}

/// Returns when the machine at `addr` answers that no process listens there. What another machine says of it, such as a
/// firewall that rejects datagrams, is silence.
pub(super) async fn nobody_listens(addr: SocketAddr) {
    if !refuses_itself(addr.ip(), relay::route(addr)).await {
        std::future::pending().await
    }
}

/// Does that machine say itself that no process listens at `addr`, its own address or that of a relay to it?
async fn refuses_itself(machine: IpAddr, addr: SocketAddr) -> bool {
    let who = who_refuses(addr).await;
    who.is_ok_and(|who| who == machine.to_canonical())
}

/// The machine that says (by ICMP) that no process listens at `addr`. An empty datagram is neither QUIC nor noise: nodes
/// pass it over.
async fn who_refuses(addr: SocketAddr) -> io::Result<IpAddr> {
    // An IPv4 address within an IPv6 address is IPv4 on the wire.
    let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    refusal::ask_for_senders(&socket, addr)?;
    socket.connect(addr).await?;
    socket.send(&[]).await?;
    refusal::sender(&socket, addr).await
}

/// Linux keeps ICMP messages with their senders in the socket's queue of errors, if asked to.
#[cfg(target_os = "linux")]
mod refusal {
    use std::{
        io,
        io::ErrorKind::ConnectionRefused,
        net::{IpAddr, SocketAddr},
        os::fd::AsRawFd,
    };

    use nix::{
        cmsg_space, libc,
        sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt},
    };
    use tokio::{io::Interest, net::UdpSocket};

    pub(super) fn ask_for_senders(socket: &UdpSocket, addr: SocketAddr) -> io::Result<()> {
        match addr {
            SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true)?,
            SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true)?,
        }
        Ok(())
    }

    pub(super) async fn sender(socket: &UdpSocket, _: SocketAddr) -> io::Result<IpAddr> {
        loop {
            let next = socket.async_io(Interest::ERROR, || next_refusal(socket));
            if let Some(sender) = next.await? {
                return Ok(sender);
            }
        }
    }

    /// The sender of the next message, if that is a refusal: others, such as of a host that cannot be reached, may pass.
    fn next_refusal(socket: &UdpSocket) -> io::Result<Option<IpAddr>> {
        let mut space = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_ERRQUEUE);
        let message = recvmsg::<()>(fd, &mut [], Some(&mut space), flags)?;
        let (error, sender): (_, Option<IpAddr>) = match message.cmsgs()?.next() {
            Some(ControlMessageOwned::Ipv4RecvErr(error, sender)) => {
                let sender = sender.map(|sender| u32::from_be(sender.sin_addr.s_addr));
                (error, sender.map(|bits| IpAddr::V4(bits.into())))
            }
            Some(ControlMessageOwned::Ipv6RecvErr(error, sender)) => {
                let sender = sender.map(|sender| sender.sin6_addr.s6_addr);
                (error, sender.map(|bytes| IpAddr::V6(bytes.into())))
            }
            _ => return Ok(None),
        };
        let error = io::Error::from_raw_os_error(error.ee_errno.cast_signed());
        Ok(sender.filter(|_| error.kind() == ConnectionRefused))
    }
}

/// Elsewhere the system does not tell who says it: it counts as said by the machine itself.
#[cfg(not(target_os = "linux"))]
mod refusal {
    use std::{
        io,
        net::{IpAddr, SocketAddr},
    };

    use tokio::net::UdpSocket;

    pub(super) fn ask_for_senders(_: &UdpSocket, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    pub(super) async fn sender(socket: &UdpSocket, addr: SocketAddr) -> io::Result<IpAddr> {
        match socket.recv(&mut [0]).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(addr.ip()),
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(future)
    }

    /// An address of this machine on which no process listens; `None` if it has no such address.
    fn closed(ip: impl Into<IpAddr>) -> Option<SocketAddr> {
        let socket = std::net::UdpSocket::bind((ip.into(), 0)).ok()?;
        Some(socket.local_addr().expect("bound"))
    }

    #[test]
    fn the_machine_itself_says_that_nobody_listens() {
        run(async {
            let addr = closed([127, 0, 0, 1]).expect("a port");
            nobody_listens(addr).await;
            let IpAddr::V4(ip) = addr.ip() else {
                unreachable!()
            };
            nobody_listens((ip.to_ipv6_mapped(), addr.port()).into()).await;
            match closed(std::net::Ipv6Addr::LOCALHOST) {
                Some(addr) => nobody_listens(addr).await,
                None => eprintln!("IPv6 is skipped: this machine has none"),
            }
        });
    }

    /// A relay is closed while a firewall is emulated that rejects everything. It has another address than nodes.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_relay_says_of_a_machine_is_silence() {
        let machine = IpAddr::from([127, 0, 0, 1]);
        let relay = closed([127, 0, 0, 2]).expect("a port");
        assert!(run(refuses_itself(relay.ip(), relay)));
        assert!(!run(refuses_itself(machine, relay)));
    }

    /// ICMP's answer to an empty datagram between these.
    #[cfg(target_os = "linux")]
    fn port_unreachable(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let bytes = |addr: SocketAddr| match addr.ip() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(_) => unreachable!("an IPv4 address"),
        };
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        // The headers of the datagram: of IP (version and length, 28 bytes in all, UDP), then of UDP.
        message.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        message.extend([bytes(from), bytes(to)].concat());
        message.extend(
            [from.port(), to.port(), 8, 0]
                .map(u16::to_be_bytes)
                .concat(),
        );
        let words = message.chunks(2);
        let sum: u32 = (words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))).sum();
        let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// A firewall answers with its own address what is meant for another.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_firewall_says_of_a_machine_is_silence() {
        use socket2::{Domain, Protocol, Socket, Type};
        let Ok(firewall) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
            return println!("skipped: what_a_firewall_says_of_a_machine_is_silence needs root");
        };
        let ip: SocketAddr = ([127, 0, 0, 2], 0).into();
        firewall.bind(&ip.into()).expect("bound");
        run(async {
            let machine = UdpSocket::bind(("127.0.0.1", 0)).await.expect("bound");
            let addr = machine.local_addr().expect("bound");
            let reject = async {
                let (_, from) = machine.recv_from(&mut [0]).await.expect("a knock");
                let rejection = port_unreachable(from, addr);
                let sent = firewall.send_to(&rejection, &from.into());
                sent.expect("sent");
            };
            let (who, ()) = tokio::join!(who_refuses(addr), reject);
            assert_eq!(who.ok(), Some(ip.ip()));
        });
    }
}
