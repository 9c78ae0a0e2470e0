//! The first words on a connection, and what may come of an attempt to talk to another node.

use std::net::SocketAddr;

use quinn::{ConnectionError, RecvStream, SendStream, TransportErrorCode};

use super::{
    limits,
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

/// Returns when the machine at `addr` answers that no process listens there. An empty datagram is neither QUIC nor noise:
/// nodes pass it over.
pub(super) async fn nobody_listens(addr: SocketAddr) {
    let knock = async {
        let any: SocketAddr = match addr {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let socket = tokio::net::UdpSocket::bind(any).await?;
        socket.connect(addr).await?;
        socket.send(&[]).await?;
        socket.recv(&mut [0]).await
    };
    match knock.await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
        _ => std::future::pending().await,
    }
}
