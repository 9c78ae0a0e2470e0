//! The bytes on the wire: frames, and the greeting with which every connection begins.
//!
//! A control stream is a sequence of frames: a length of four bytes, little-endian, and so many bytes. The first frame
//! each way is a [`Greeting`]; it begins with the same eight bytes in all versions, so that versions can tell each other
//! apart. All others are a [`Message`] each, by postcard. A stream for a large message, and a datagram, hold a message
//! without a length.
//!
//! Decoding never panics, never allocates more than a small multiple of the bytes that came, and leaves no byte
//! unread, whatever comes in. Knows nothing of connections.

use bytes::Bytes;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use super::limits;
use crate::{
    job::payload,
    node::{Identity, Message, Peer},
};

/// The version of all that is said. Nodes of another are refused.
pub const VERSION: u16 = 13;

const MAGIC: [u8; 5] = *b"satin";
const HEADER: usize = 4;

/// Bytes came that are not as they should be. The connection on which they came is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A length above the limit. Nothing has been allocated for it.
    #[error("a frame of {length} bytes, where at most {limit} are allowed")]
    TooLong {
        /// The length that the frame claims, in bytes.
        length: u64,
        /// The greatest length that is allowed, in bytes.
        limit: usize,
    },
    /// The bytes end in the middle.
    #[error("the data ends in the middle")]
    Truncated,
    /// No greeting of this protocol, whatever its version.
    #[error("the data does not begin with a greeting of Satin")]
    NoGreeting,
    /// A greeting of another version.
    #[error("it speaks version {0} of the protocol, and this node version {VERSION}")]
    Version(u16),
    /// The bytes cannot be decoded.
    #[error("the data cannot be decoded ({0})")]
    Malformed(postcard::Error),
    /// Bytes are left after the end.
    #[error("there are {0} bytes too many at the end of the data")]
    Trailing(usize),
    /// A value is out of bounds.
    #[error("{0} is out of bounds")]
    Bounds(&'static str),
}

/// The part that a peer plays in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A node with workers.
    Member,
    /// A program that only looks, like the command line tool: its spawnable functions need not be the same.
    Observer,
}

/// A peer's introduction: its identity, and the program that it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The name of the pool.
    pub pool: String,
    /// The hash over all spawnable functions.
    pub program: [u8; 32],
    /// The BLAKE3 hash of the executable.
    pub executable: [u8; 32],
    /// The target platform of the executable.
    pub target: String,
    /// The identity of the node.
    pub identity: Identity,
    /// The part that the peer wants to play.
    pub role: Role,
    /// The peer's command line, without the flags that are Satin's own.
    pub command_line: Vec<String>,
    /// The number of this connection: proposed by the dialling side, decided by the dialled side.
    pub epoch: u64,
    /// The peer that the dialling side means to reach, if known.
    pub meant: Option<Peer>,
    /// The peer has a store.
    pub has_store: bool,
}

/// Why a connection was refused. The numbers are the same in all versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Another version of the protocol.
    Version,
    /// Another pool's name.
    Pool,
    /// Other spawnable functions than here.
    Program,
    /// Another build for the same target.
    Executable,
    /// Full, or too many handshakes: later perhaps.
    Busy,
    /// The node that was meant is not here (any more).
    SomebodyElse,
    /// The same node: it has dialled itself.
    Yourself,
    /// Another connection between the two goes before this one.
    Crossed,
    /// A message that cannot be understood.
    Malformed,
    /// The node is about to go.
    Leaving,
    /// One of the two has a store, and the other has none.
    Store,
    /// A reason of a later version.
    Other(u16),
}

const REASONS: [Reason; 11] = [
    Reason::Version,
    Reason::Pool,
    Reason::Program,
    Reason::Executable,
    Reason::Busy,
    Reason::SomebodyElse,
    Reason::Yourself,
    Reason::Crossed,
    Reason::Malformed,
    Reason::Leaving,
    Reason::Store,
];

impl From<u16> for Reason {
    fn from(number: u16) -> Reason {
        let known = REASONS.get(usize::from(number).wrapping_sub(1));
        known.copied().unwrap_or(Reason::Other(number))
    }
}

impl From<Reason> for u16 {
    fn from(reason: Reason) -> u16 {
        match reason {
            Reason::Other(number) => number,
            known => {
                1 + REASONS
                    .iter()
                    .position(|reason| *reason == known)
                    .unwrap_or(0) as u16
            }
        }
    }
}

impl Reason {
    /// Whether another attempt has no more chances than this one.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        matches!(
            self,
            Reason::Version
                | Reason::Pool
                | Reason::Program
                | Reason::Executable
                | Reason::Store
                | Reason::Malformed
        )
    }
}

/// A "no" to a greeting, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason, for programs.
    pub reason: Reason,
    /// The reason, for people.
    pub text: String,
    /// The highest number of a connection between the two that the one who refuses knows.
    pub epoch: u64,
}

impl Refusal {
    /// A refusal that says nothing about other connections.
    pub fn new(reason: Reason, text: impl Into<String>) -> Refusal {
        Refusal {
            reason,
            text: text.into(),
            epoch: 0,
        }
    }
}

/// The first frame each way. Later versions may change the contents of a hello, but neither the eight bytes at the
/// beginning nor the form of a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// Accepted, with an introduction.
    Hello(Box<Hello>),
    /// Refused, with a reason.
    Refused(Refusal),
}

const HELLO: u8 = 0;
const REFUSED: u8 = 1;

impl Greeting {
    /// The greeting as a frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = vec![0; HEADER];
        frame.extend(MAGIC);
        frame.extend(VERSION.to_le_bytes());
        match self {
            Greeting::Hello(hello) => {
                frame.push(HELLO);
                frame =
                    postcard::to_extend(hello, frame).expect("memory takes all that is written");
            }
            Greeting::Refused(refusal) => {
                frame.push(REFUSED);
                frame.extend(u16::from(refusal.reason).to_le_bytes());
                frame.extend(refusal.epoch.to_le_bytes());
                frame.extend(refusal.text.as_bytes());
            }
        }
        let length = (frame.len() - HEADER) as u32;
        frame[..HEADER].copy_from_slice(&length.to_le_bytes());
        frame
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// If it is no greeting, or a hello of another version.
    pub fn decode(body: &[u8]) -> Result<Greeting, WireError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(WireError::NoGreeting)?;
        let (version, rest) = rest.split_first_chunk().ok_or(WireError::NoGreeting)?;
        let version = u16::from_le_bytes(*version);
        match rest.split_first() {
            Some((&REFUSED, rest)) => {
                let (reason, rest) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
                let (epoch, text) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
                Ok(Greeting::Refused(Refusal {
                    reason: u16::from_le_bytes(*reason).into(),
                    epoch: u64::from_le_bytes(*epoch),
                    text: printable(&String::from_utf8_lossy(text)),
                }))
            }
            _ if version != VERSION => Err(WireError::Version(version)),
            Some((&HELLO, rest)) => {
                let hello: Hello = exactly(rest)?;
                hello.check()?;
                Ok(Greeting::Hello(Box::new(hello)))
            }
            _ => Err(WireError::NoGreeting),
        }
    }
}

impl Hello {
    fn check(&self) -> Result<(), WireError> {
        let Identity {
            name,
            site,
            threads,
            ..
        } = &self.identity;
        for (what, text) in [
            ("the pool's name", &*self.pool),
            ("a node's name", name),
            ("a site's name", site),
        ] {
            if text.len() > limits::NAME || text.chars().any(char::is_control) {
                return Err(WireError::Bounds(what));
            }
        }
        if *threads > 1 << 16 {
            return Err(WireError::Bounds("the number of workers"));
        }
        // Numbers of connections are counted upwards: one from the far end would leave no room.
        if self.epoch > u64::MAX / 2 {
            return Err(WireError::Bounds("the number of the connection"));
        }
        Ok(())
    }
}

/// A text from elsewhere goes to people's terminals: short, and without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    const MOST: usize = 1024;
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect()
}

/// The value as a frame: its length, then its bytes.
pub(super) fn frame<T: Serialize>(what: &T) -> Vec<u8> {
    let mut frame =
        postcard::to_extend(what, vec![0; HEADER]).expect("memory takes all that is written");
    let length = (frame.len() - HEADER) as u32;
    frame[..HEADER].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Decodes a value that takes all of `bytes`.
pub(super) fn exactly<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(WireError::Trailing(rest.len())),
        Err(postcard::Error::DeserializeUnexpectedEnd) => Err(WireError::Truncated),
        Err(error) => Err(WireError::Malformed(error)),
    }
}

/// Reads a message: the body of a frame, a stream of its own, or a datagram.
///
/// # Errors
/// The body is no message.
pub fn decode(body: &[u8]) -> Result<Message, WireError> {
    exactly(body)
}

/// A message without its length, for a stream of its own or a datagram.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    postcard::to_stdvec(message).expect("memory takes all that is written")
}

/// Reads a message that came on a stream of its own. Its payload, if it is large, stays where it is.
///
/// # Errors
/// The body is no message.
pub fn decode_large(body: &Bytes) -> Result<Message, WireError> {
    payload::reading(body, || exactly(body))
}

/// A message that goes on a stream of its own: its bytes, in pieces of which large ones are payloads, not copied.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LargeMessage {
    /// The pieces, in their order.
    pub pieces: Vec<Bytes>,
}

impl LargeMessage {
    /// The number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// Appends bytes to a frame, but keeps payloads aside.
struct Appender {
    frame: Vec<u8>,
    /// Payloads, and how long the frame was when each of them came.
    payloads: Vec<(usize, Bytes)>,
}

impl Flavor for Appender {
    type Output = Appender;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.frame.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match payload::written(bytes) {
            Some(payload) => self.payloads.push((self.frame.len(), payload)),
            None => self.frame.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Appender> {
        Ok(self)
    }
}

// What has a payload that is kept aside is large.
const _: () = assert!(payload::SHARED >= limits::LARGE);

/// Appends a message as a frame to `out`. If it is a large one, which is to go on a stream of its own, it is returned
/// instead, without a length.
pub fn append(message: &Message, out: &mut Vec<u8>) -> Option<LargeMessage> {
    let start = out.len();
    let mut frame = std::mem::take(out);
    frame.extend([0; HEADER]);
    let payloads = Vec::new();
    let appender = Appender { frame, payloads };
    let written = payload::sharing(|| postcard::serialize_with_flavor(message, appender));
    let Appender {
        mut frame,
        payloads,
    } = written.expect("memory takes all that is written");
    let length = frame.len() - start - HEADER;
    if payloads.is_empty() && length <= limits::LARGE {
        frame[start..start + HEADER].copy_from_slice(&(length as u32).to_le_bytes());
        *out = frame;
        return None;
    }
    let mut rest = Bytes::from(frame.split_off(start + HEADER));
    frame.truncate(start);
    *out = frame;
    let mut pieces = Vec::with_capacity(2 * payloads.len() + 1);
    let mut cut_off = start + HEADER;
    for (at, payload) in payloads {
        pieces.push(rest.split_to(at - cut_off));
        pieces.push(payload);
        cut_off = at;
    }
    pieces.push(rest);
    pieces.retain(|piece| !piece.is_empty());
    Some(LargeMessage { pieces })
}

/// Cuts a stream into frames.
#[derive(Debug)]
pub struct Frames {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes before this index have been handed out.
    start: usize,
}

impl Frames {
    /// Makes the frames of a stream, none of which is longer than `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Frames {
        Frames {
            limit,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Changes the greatest length of frames, from the next frame on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            if self.buffer.capacity() > limits::LARGE {
                self.buffer = Vec::new();
            }
        } else if self.start > limits::LARGE {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The body of the next frame, if it is there in full.
    ///
    /// # Errors
    /// The frame's length is above the limit; the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, WireError> {
        let rest = &self.buffer[self.start..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header);
        if length as usize > self.limit {
            return Err(WireError::TooLong {
                length: length.into(),
                limit: self.limit,
            });
        }
        let body = rest.get(..length as usize);
        if body.is_some() {
            self.start += HEADER + length as usize;
        }
        Ok(body)
    }

    /// Bytes that have come, and are not part of a frame yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::TestRunner};
    use strum::VariantArray;

    use super::*;
    use crate::{
        job::{
            Answer, BoundName, Fingerprint, History, JobId, JobName, Kept, Offer, Parcel, RootName,
            RootRun, RunName, Saved, Unfit, ValueName, ValueSize,
        },
        node::{
            Envelope, MessageKind, NodeId, Page, Prefetch, Relayed, Request, RequestKind, RunEpoch,
            SheetChange, Side, Spent, Token, Wanted,
            message::{Cargo, How},
        },
    };

    fn peer() -> impl Strategy<Value = Peer> {
        any::<(u128, u32)>().prop_map(|(id, generation)| Peer {
            id: NodeId(id),
            generation,
        })
    }

    fn address() -> impl Strategy<Value = SocketAddr> {
        any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
    }

    fn identity() -> impl Strategy<Value = Identity> {
        (
            peer(),
            "[a-z0-9-]{0,20}",
            "[a-z]{0,9}",
            address(),
            any::<u64>(),
            0u32..1000,
        )
            .prop_map(|(peer, name, site, addr, stamp, threads)| Identity {
                peer,
                name: name.into(),
                site: site.into(),
                addr,
                stamp,
                threads,
            })
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 0..200)
    }

    fn tokens() -> impl Strategy<Value = Vec<Token>> {
        vec(any::<u64>().prop_map(Token), 0..9)
    }

    fn name() -> impl Strategy<Value = ValueName> {
        any::<[u8; 32]>().prop_map(ValueName)
    }

    fn root() -> impl Strategy<Value = RootName> {
        any::<(u32, u64)>().prop_map(|(number, bits)| RootName {
            number,
            fingerprint: Fingerprint(bits),
        })
    }

    fn root_run() -> impl Strategy<Value = RootRun> {
        (any::<u32>(), root()).prop_map(|(term, name)| RootRun { term, name })
    }

    fn parcel() -> impl Strategy<Value = Parcel> {
        (
            vec(any::<u32>(), 0..40),
            any::<u32>(),
            bytes(),
            vec(name(), 0..3),
        )
            .prop_map(|(path, function, arguments, needs)| Parcel {
                id: path.into_iter().collect::<JobId>(),
                function,
                fingerprint: Fingerprint::of("f", &arguments),
                arguments: arguments.into(),
                lent: needs.iter().skip(1).map(|_| u64::from(function)).collect(),
                keeps: function % 7 == 0,
                owner: u128::from(function),
                needs,
                term: function % 3,
                root: Fingerprint(u64::from(function)),
                history: History {
                    marked: function % 2 == 0,
                    crashes: function % 5,
                },
            })
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            (bytes(), vec(name(), 0..3)).prop_map(|(bytes, needs)| {
                let value = |name: &ValueName| ValueSize {
                    name: *name,
                    bytes: 1 << 20,
                };
                let kept = needs.len() % 2 == 1;
                let kept = kept.then(|| {
                    Box::new(Kept {
                        at: 7 << 100,
                        values: needs.iter().map(value).collect(),
                    })
                });
                let bytes = bytes.into();
                Answer::Result { bytes, needs, kept }
            }),
            ".*".prop_map(Answer::Panicked),
            ".*".prop_map(Answer::Refused),
            Just(Answer::Aborted),
            (any::<u32>(), any::<u32>(), ".*").prop_map(|(function, weight, why)| {
                Answer::Unfit(Unfit {
                    function,
                    weight,
                    why,
                })
            }),
        ]
    }

    fn offers() -> impl Strategy<Value = Vec<Offer>> {
        let offer = (any::<u64>(), root(), bytes()).prop_map(|(bound, root, value)| Offer {
            bound: BoundName(bound),
            root,
            value,
        });
        vec(offer, 0..4)
    }

    fn spent() -> impl Strategy<Value = Spent> {
        any::<(u64, u64)>().prop_map(|(waited, took)| Spent { waited, took })
    }

    fn request_kind() -> impl Strategy<Value = RequestKind> {
        prop_oneof![
            Just(RequestKind::Now),
            Just(RequestKind::Lifeline),
            Just(RequestKind::Ahead)
        ]
    }

    fn job_id() -> impl Strategy<Value = JobId> {
        vec(any::<u32>(), 0..40).prop_map(JobId::from_iter)
    }

    fn job_name() -> impl Strategy<Value = JobName> {
        let fingerprint = any::<u64>().prop_map(Fingerprint);
        (job_id(), fingerprint).prop_map(|(id, fingerprint)| JobName::new(id, fingerprint))
    }

    fn saved() -> impl Strategy<Value = Vec<Saved>> {
        let root = any::<u64>().prop_map(Fingerprint);
        let saved = (job_name(), root, answer());
        vec(
            saved.prop_map(|(name, root, answer)| Saved { name, root, answer }),
            0..3,
        )
    }

    fn token() -> impl Strategy<Value = Token> {
        any::<u64>().prop_map(Token)
    }

    fn page() -> impl Strategy<Value = Page> {
        let change = prop_oneof![
            (job_name(), any::<bool>())
                .prop_map(|(name, finished)| SheetChange::Orphan { name, finished }),
            job_name().prop_map(SheetChange::Withdrawn),
            peer().prop_map(SheetChange::Flushed),
            job_id().prop_map(SheetChange::Closed),
            (job_name(), peer()).prop_map(|(name, peer)| SheetChange::Deadly(name, peer)),
            job_name().prop_map(SheetChange::Harmless),
        ];
        let versions = any::<(u64, u64)>();
        (peer(), versions, vec(change, 0..5)).prop_map(|(owner, (after, version), changes)| Page {
            owner,
            after,
            version,
            changes,
        })
    }

    fn envelope() -> impl Strategy<Value = Envelope> {
        let what = prop_oneof![
            identity().prop_map(Relayed::Call),
            identity().prop_map(Relayed::Accept),
            bytes().prop_map(Relayed::Message),
            Just(Relayed::Broken),
            Just(Relayed::Done),
        ];
        (peer(), peer(), any::<u64>(), what).prop_map(|(from, to, epoch, what)| Envelope {
            from,
            to,
            epoch,
            what,
        })
    }

    fn cargo_of_jobs() -> impl Strategy<Value = Cargo> {
        let jobs = vec((token(), parcel()), 0..5);
        (any::<u64>(), jobs, any::<u32>(), any::<u64>()).prop_map(
            |(request, jobs, left, sent_ms)| Cargo::Jobs {
                request: Request(request),
                jobs,
                left,
                sent_ms,
            },
        )
    }

    fn cargo_of_answers() -> impl Strategy<Value = Cargo> {
        vec((token(), answer()), 0..5).prop_map(Cargo::Answers)
    }

    fn cargo_to_keep() -> impl Strategy<Value = Cargo> {
        (any::<u64>(), saved()).prop_map(|(number, saved)| Cargo::Keep { number, saved })
    }

    fn cargo_of_copies() -> impl Strategy<Value = Cargo> {
        (any::<u64>(), vec(job_id(), 0..3), saved()).prop_map(|(number, under, saved)| {
            Cargo::Copies {
                number,
                under,
                saved,
            }
        })
    }

    fn cargo() -> impl Strategy<Value = Cargo> {
        prop_oneof![
            cargo_of_jobs(),
            cargo_of_answers(),
            cargo_to_keep(),
            cargo_of_copies()
        ]
    }

    /// A message of that kind. A new kind does not compile until it is made here.
    fn of_kind(kind: MessageKind) -> BoxedStrategy<Message> {
        use Message as M;
        let number = any::<u64>;
        let how = prop_oneof![
            Just(How::Anyhow),
            Just(How::Insist),
            peer().prop_map(How::Fetch)
        ];
        match kind {
            MessageKind::Steal => (number(), any::<u32>(), request_kind())
                .prop_map(|(request, most, kind)| M::Steal {
                    request: Request(request),
                    most,
                    kind,
                })
                .boxed(),
            MessageKind::Jobs => cargo_of_jobs().prop_map(M::from).boxed(),
            MessageKind::NotWorth => number().prop_map(|it| M::NotWorth(Request(it))).boxed(),
            MessageKind::Cut => number().prop_map(|it| M::Cut(Request(it))).boxed(),
            MessageKind::Spent => vec((token(), spent()), 0..5).prop_map(M::Spent).boxed(),
            MessageKind::Trial => bytes().prop_map(M::Trial).boxed(),
            MessageKind::TrialArrived => number().prop_map(M::TrialArrived).boxed(),
            MessageKind::PartsDone => vec((token(), any::<u16>()), 0..5)
                .prop_map(M::PartsDone)
                .boxed(),
            MessageKind::Answers => cargo_of_answers().prop_map(M::from).boxed(),
            MessageKind::Acknowledge => tokens().prop_map(M::Acknowledge).boxed(),
            MessageKind::Recall => tokens().prop_map(M::Recall).boxed(),
            MessageKind::Lists => (tokens(), tokens())
                .prop_map(|(outstanding, hosted)| M::Lists {
                    outstanding,
                    hosted,
                })
                .boxed(),
            MessageKind::Have => tokens().prop_map(M::Have).boxed(),
            MessageKind::Disown => tokens().prop_map(M::Disown).boxed(),
            MessageKind::Claim => {
                let wanted = (token(), job_name());
                let wanted = wanted.prop_map(|(token, name)| Wanted { token, name });
                vec(wanted, 0..5).prop_map(M::Claim).boxed()
            }
            MessageKind::Miss => tokens().prop_map(M::Miss).boxed(),
            MessageKind::Table => vec(page(), 0..3).prop_map(M::Table).boxed(),
            MessageKind::Versions => vec((peer(), number()), 0..5).prop_map(M::Versions).boxed(),
            MessageKind::Keep => cargo_to_keep().prop_map(M::from).boxed(),
            MessageKind::Kept => number().prop_map(M::Kept).boxed(),
            MessageKind::Copies => cargo_of_copies().prop_map(M::from).boxed(),
            MessageKind::Copied => number().prop_map(M::Copied).boxed(),
            MessageKind::Abandon => (token(), option::of(peer()), vec(job_name(), 0..3))
                .prop_map(|(token, heir, below)| M::Abandon { token, heir, below })
                .boxed(),
            MessageKind::Begin => tokens().prop_map(M::Begin).boxed(),
            MessageKind::Go => tokens().prop_map(M::Go).boxed(),
            MessageKind::Draining => Just(M::Draining).boxed(),
            MessageKind::Gossip => bytes().prop_map(M::Gossip).boxed(),
            MessageKind::Join => (identity(), option::of(side()))
                .prop_map(|(who, toward)| M::Join { who, toward })
                .boxed(),
            MessageKind::Ask => identity().prop_map(M::Ask).boxed(),
            MessageKind::Welcome => {
                let numbers = (number(), any::<u32>(), any::<u32>(), peer());
                let lists = (
                    vec(identity(), 0..4),
                    vec(peer(), 0..3),
                    offers(),
                    vec(identity(), 0..3),
                );
                let welcome = (numbers, lists).prop_map(|(numbers, lists)| {
                    let (stamp, term, branches, founder) = numbers;
                    let (members, draining, offers, lost) = lists;
                    M::Welcome {
                        stamp,
                        term,
                        branches,
                        founder: founder.id,
                        members,
                        draining,
                        offers,
                        lost,
                    }
                });
                welcome.boxed()
            }
            MessageKind::Here => (identity(), side(), any::<bool>())
                .prop_map(|(who, side, asks)| M::Here { who, side, asks })
                .boxed(),
            MessageKind::Goodbye => Just(M::Goodbye).boxed(),
            MessageKind::DeclaredDead => (peer(), side())
                .prop_map(|(peer, side)| M::DeclaredDead { peer, side })
                .boxed(),
            MessageKind::GiveWay => (side(), address())
                .prop_map(|(side, to)| M::GiveWay { side, to })
                .boxed(),
            MessageKind::Missed => (identity(), side())
                .prop_map(|(who, side)| M::Missed { who, side })
                .boxed(),
            MessageKind::Ping => number().prop_map(M::Ping).boxed(),
            MessageKind::Pong => number().prop_map(M::Pong).boxed(),
            MessageKind::Relay => envelope().prop_map(M::Relay).boxed(),
            MessageKind::Master => (any::<(u32, u32)>(), identity())
                .prop_map(|((term, branches), master)| M::Master {
                    term,
                    branches,
                    master,
                })
                .boxed(),
            MessageKind::Ended => (any::<u32>(), peer(), any::<i32>())
                .prop_map(|(term, peer, code)| M::Ended {
                    term,
                    master: peer.id,
                    code,
                })
                .boxed(),
            MessageKind::Run => (option::of(any::<(u32, u64)>()), number())
                .prop_map(|(run, version)| M::Run {
                    run: run.map(|(epoch, run)| RunEpoch {
                        epoch,
                        run: RunName(run),
                    }),
                    version,
                })
                .boxed(),
            MessageKind::RootsDone => vec(root_run(), 0..4).prop_map(M::RootsDone).boxed(),
            MessageKind::AreOver => vec(root(), 0..4).prop_map(M::AreOver).boxed(),
            MessageKind::Want => (name(), root(), number(), how, any::<bool>())
                .prop_map(|(name, root, offset, how, lent)| M::Want {
                    name,
                    root,
                    offset,
                    how,
                    lent,
                })
                .boxed(),
            MessageKind::Part => (name(), number(), number(), bytes())
                .prop_map(|(name, offset, total, bytes)| M::Part {
                    name,
                    offset,
                    total,
                    bytes,
                })
                .boxed(),
            MessageKind::Elsewhere => (name(), peer())
                .prop_map(|(name, peer)| M::Elsewhere(name, peer))
                .boxed(),
            MessageKind::Soon => name().prop_map(M::Soon).boxed(),
            MessageKind::Prefetch => (name(), number(), root(), peer())
                .prop_map(|(name, bytes, root, from)| {
                    let value = ValueSize { name, bytes };
                    M::Prefetch(Prefetch { value, root, from })
                })
                .boxed(),
            MessageKind::NotPrefetched => name().prop_map(M::NotPrefetched).boxed(),
            MessageKind::Unneeded => vec(name(), 0..4).prop_map(M::Unneeded).boxed(),
            MessageKind::Unavailable => name().prop_map(M::Unavailable).boxed(),
            MessageKind::Available => name().prop_map(M::Available).boxed(),
            MessageKind::Waits => (name(), peer(), peer(), any::<u8>())
                .prop_map(|(name, who, whom, hops)| M::Waits {
                    name,
                    who,
                    whom,
                    hops,
                })
                .boxed(),
            MessageKind::Offers => offers().prop_map(M::Offers).boxed(),
            MessageKind::OffersWith => (offers(), cargo())
                .prop_map(|(offers, cargo)| M::OffersWith(offers, cargo))
                .boxed(),
            MessageKind::LargeOffers => (number(), offers())
                .prop_map(|(version, offers)| M::LargeOffers { version, offers })
                .boxed(),
            MessageKind::Had => number().prop_map(M::Had).boxed(),
        }
    }

    fn message() -> impl Strategy<Value = Message> {
        select(MessageKind::VARIANTS).prop_flat_map(of_kind)
    }

    fn side() -> impl Strategy<Value = Side> {
        let numbers = any::<(u32, u32, u32)>();
        let master = option::of((any::<u64>(), peer()));
        (numbers, master, any::<bool>()).prop_map(|(numbers, master, has_master)| Side {
            branches: numbers.0,
            term: numbers.1,
            master: master.map(|(stamp, peer)| (stamp, peer.id)),
            has_master,
            members: numbers.2,
        })
    }

    fn hello() -> impl Strategy<Value = Hello> {
        let hashes = any::<([u8; 32], [u8; 32])>();
        let texts = ("[a-z]{0,20}", "[a-z0-9-]{0,20}", vec(".*", 0..4));
        (
            hashes,
            texts,
            identity(),
            any::<(bool, bool)>(),
            0..u64::MAX / 2,
            option::of(peer()),
        )
            .prop_map(
                |(
                    (program, executable),
                    (pool, target, command_line),
                    identity,
                    (observes, has_store),
                    epoch,
                    meant,
                )| Hello {
                    pool,
                    program,
                    executable,
                    target,
                    identity,
                    role: if observes {
                        Role::Observer
                    } else {
                        Role::Member
                    },
                    command_line,
                    epoch,
                    meant,
                    has_store,
                },
            )
    }

    fn body(frame: &[u8]) -> Vec<u8> {
        let mut frames = Frames::new(limits::FRAME);
        frames.push(frame);
        let body = frames
            .next_frame()
            .expect("a frame")
            .expect("a whole one")
            .to_vec();
        assert_eq!(frames.waiting(), 0);
        body
    }

    #[test]
    fn messages_of_each_kind_come_back_whole() {
        let mut runner = TestRunner::new(ProptestConfig::with_cases(32));
        for kind in MessageKind::VARIANTS {
            let comes_back = runner.run(&of_kind(*kind), |message| {
                let mut frame = Vec::new();
                prop_assert_eq!(append(&message, &mut frame), None);
                prop_assert_eq!(decode(&body(&frame)).expect("a message"), message.clone());
                prop_assert_eq!(decode(&encode(&message)).expect("a message"), message);
                Ok(())
            });
            assert_eq!(comes_back, Ok(()), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn greetings_come_back_whole(hello in hello()) {
            let greeting = Greeting::Hello(Box::new(hello));
            prop_assert_eq!(Greeting::decode(&body(&greeting.encode())).expect("a greeting"), greeting);
        }

        #[test]
        fn a_message_that_is_cut_or_goes_on_is_refused(message in message(), more in vec(any::<u8>(), 1..9), cut in any::<prop::sample::Index>()) {
            let whole = encode(&message);
            let cut = cut.index(whole.len());
            prop_assert!(decode(&whole[..cut]).is_err());
            prop_assert_eq!(decode(&[whole, more.clone()].concat()), Err(WireError::Trailing(more.len())));
        }

        #[test]
        fn noise_does_no_harm(noise in vec(any::<u8>(), 0..400)) {
            let _ = decode(&noise);
            let _ = Greeting::decode(&noise);
            let _ = Greeting::decode(&[b"satin\x01\0\0", &*noise].concat());
            let mut frames = Frames::new(100);
            frames.push(&noise);
            while let Ok(Some(_)) = frames.next_frame() {}
        }

        #[test]
        fn frames_are_found_however_the_stream_is_cut(messages in vec(message(), 1..9), piece in 1usize..50) {
            let mut stream = Vec::new();
            for message in &messages {
                append(message, &mut stream);
            }
            let (mut frames, mut got) = (Frames::new(limits::FRAME), Vec::new());
            for piece in stream.chunks(piece) {
                frames.push(piece);
                while let Some(body) = frames.next_frame().expect("within the limit") {
                    got.push(decode(body).expect("a message"));
                }
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(frames.waiting(), 0);
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_is_allocated() {
        let mut frames = Frames::new(limits::FRAME);
        frames.push(&(1u32 << 30).to_le_bytes());
        let error = frames.next_frame().expect_err("too long");
        assert_eq!(
            error.to_string(),
            "a frame of 1073741824 bytes, where at most 16777216 are allowed"
        );
    }

    #[test]
    fn large_messages_go_elsewhere() {
        let message = Message::Gossip(vec![7; limits::LARGE + 1]);
        let mut out = vec![1, 2, 3];
        let body = append(&message, &mut out).expect("large");
        assert_eq!(out, [1, 2, 3]);
        assert_eq!(decode(&body.pieces.concat()), Ok(message));
    }

    #[test]
    fn a_large_payload_is_not_copied_on_its_way() {
        let payloads = [100, 3 * limits::LARGE, 5, 2 * limits::LARGE].map(|length| vec![7; length]);
        let answer =
            |bytes: &Vec<u8>| Answer::result(bytes.clone().into(), vec![ValueName([3; 32])]);
        let answers = payloads.iter().map(|bytes| (Token(1), answer(bytes)));
        let message = Message::Answers(answers.collect());
        let mut out = vec![1, 2, 3];
        let large = append(&message, &mut out).expect("large");
        assert_eq!(out, [1, 2, 3]);
        let body = Bytes::from(large.pieces.concat());
        assert_eq!((large.length(), &*encode(&message)), (body.len(), &*body));
        let Message::Answers(sent) = &message else {
            unreachable!("these are answers");
        };
        for ((_, answer), piece) in [(&sent[1], &large.pieces[1]), (&sent[3], &large.pieces[3])] {
            let Answer::Result { bytes, .. } = answer else {
                unreachable!("these are results");
            };
            assert_eq!(bytes.as_ptr(), piece.as_ptr());
        }
        assert_eq!(decode_large(&body).as_ref(), Ok(&message));
    }

    #[test]
    fn another_version_is_told_from_noise_and_its_refusal_is_understood() {
        let refusal = Refusal {
            reason: Reason::Pool,
            text: "no\x1b[31m".into(),
            epoch: 7,
        };
        let mut frame = body(&Greeting::Refused(refusal).encode());
        frame[5] = 238;
        let Ok(Greeting::Refused(refusal)) = Greeting::decode(&frame) else {
            panic!("a refusal");
        };
        assert_eq!(
            (refusal.reason, &*refusal.text, refusal.epoch),
            (Reason::Pool, "no [31m", 7)
        );
        assert_eq!(
            Greeting::decode(b"satin\xee\x00\x00whatever"),
            Err(WireError::Version(238))
        );
        assert_eq!(
            Greeting::decode(b"GET / HTTP/1.1"),
            Err(WireError::NoGreeting)
        );
    }

    #[test]
    fn reasons_keep_their_numbers() {
        for number in 0..99 {
            assert_eq!(u16::from(Reason::from(number)), number);
        }
        assert_eq!(u16::from(Reason::Version), 1);
        assert_eq!(u16::from(Reason::Leaving), 10);
    }
}
