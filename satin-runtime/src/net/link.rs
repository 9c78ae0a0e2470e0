//! The sending side of one connection: frames are written at once as long as the stream takes them, and wait in a bounded
//! buffer when it does not.

use std::{
    cell::Cell,
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use quinn::{Connection, SendStream, VarInt, WriteError};
use tokio::sync::Notify;

use super::{
    limits,
    packed::{self, LinkState, Packer},
    sites::{Carried, Sites},
    wire::{self, LargeMessage},
};
use crate::node::{Identity, Message};

/// Why a connection is closed, as the other side is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Close {
    /// The run is over, and all messages have been sent.
    Bye = 0,
    /// Refused, with a reason in the text.
    Refused = 1,
    /// Another connection between the two took its place.
    Replaced = 2,
    /// Silent for long, and there are many.
    Silent = 3,
    /// The peer sent bytes that could not be understood.
    Malformed = 4,
    /// The peer did not take the bytes that waited for it.
    Slow = 5,
    /// Closed because this node has begun another life.
    Reborn = 6,
}

impl Close {
    pub(super) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

/// What a connection has carried.
#[derive(Default)]
pub(super) struct Traffic {
    /// Bytes that the connection has taken: no more than a window beyond what the other side has acknowledged.
    taken: Cell<u64>,
    /// Bytes a second of the last large message that tells them, and when that was.
    rate: Cell<Option<(f64, Instant)>>,
    /// Large messages whose turn it is.
    pub(super) under_way: Cell<usize>,
}

impl Traffic {
    fn count(&self, more: usize) {
        self.taken.update(|taken| taken + more as u64);
    }

    /// Is no other large message under way beside that of the caller?
    fn is_alone(&self) -> bool {
        self.under_way.get() <= 1
    }

    /// A large message has had so many bytes a second.
    pub(super) fn note_rate(&self, rate: f64) {
        self.rate.set(Some((rate, Instant::now())));
    }

    /// The rate, if it is not too old.
    fn rate(&self) -> Option<f64> {
        let (rate, at) = self.rate.get()?;
        (at.elapsed() < STALE).then_some(rate)
    }
}

/// An open connection to a peer.
pub(super) struct Link {
    pub(super) identity: Identity,
    pub(super) epoch: u64,
    pub(super) connection: Connection,
    stream: SendStream,
    /// Frames, of which the first `written` bytes are gone.
    out: Vec<u8>,
    written: usize,
    /// The stream takes no more; its writer waits.
    blocked: bool,
    /// Wakes the writer of this link.
    pub(super) unblock: Rc<Notify>,
    /// Large messages that wait for their turn.
    large: VecDeque<LargeMessage>,
    pub(super) traffic: Rc<Traffic>,
    /// More waits than may wait: since when nothing has been taken, and how much had been until then.
    full: Option<(u64, Instant)>,
    /// The time of the last message, in either direction.
    pub(super) used: Instant,
    /// The round trip that the node was told last, and when.
    pub(super) measured: Instant,
    /// Counts what the connection has carried when the link is dropped.
    _carried: Carried,
}

impl Link {
    pub(super) fn new(
        identity: Identity,
        epoch: u64,
        connection: Connection,
        stream: SendStream,
        now: Instant,
        sites: &Rc<Sites>,
    ) -> Link {
        let carried = Carried {
            sites: Rc::clone(sites),
            site: identity.site.to_string().into(),
            connection: connection.clone(),
        };
        Link {
            _carried: carried,
            identity,
            epoch,
            connection,
            stream,
            out: Vec::new(),
            written: 0,
            blocked: false,
            unblock: Rc::default(),
            large: VecDeque::new(),
            traffic: Rc::default(),
            full: None,
            used: now,
            measured: now,
        }
    }

    /// Puts a message on its way; it leaves at the next [`flush`](Link::flush).
    pub(super) fn send(&mut self, message: &Message) {
        if let Message::Gossip(_) = message {
            let body = wire::encode(message);
            // Too large for a datagram, or datagrams are disabled: then it takes the stream.
            if self.connection.send_datagram(body.into()).is_ok() {
                return;
            }
        }
        if let Some(large) = wire::append(message, &mut self.out) {
            self.large.push_back(large);
        }
    }

    /// Bytes that have not begun to leave. Bytes under way are not counted: large messages have their own limit.
    pub(super) fn waiting(&self) -> usize {
        let queued = self.large.iter().skip(1).map(LargeMessage::length);
        self.out.len() - self.written + queued.sum::<usize>()
    }

    /// True if more bytes wait than may wait, and the other side has taken nothing for long. As long as it takes some
    /// bytes, however slowly, all messages for it arrive; if the connection were closed, all of them would be sent anew.
    pub(super) fn is_stuck(&mut self, now: Instant) -> bool {
        if self.waiting() <= limits::WAITING {
            self.full = None;
            return false;
        }
        let taken = self.traffic.taken.get();
        match self.full {
            Some((before, since)) if before == taken => now > since + limits::IDLE,
            _ => {
                self.full = Some((taken, now));
                false
            }
        }
    }

    /// The next large message, if its turn has come.
    pub(super) fn next_large(&mut self) -> Option<LargeMessage> {
        if self.traffic.under_way.get() == limits::TRANSFERS {
            return None;
        }
        let large = self.large.pop_front()?;
        self.traffic.under_way.update(|under_way| under_way + 1);
        Some(large)
    }

    /// A large message is not under way any more.
    pub(super) fn sent_large(&self) {
        self.traffic.under_way.update(|under_way| under_way - 1);
    }

    /// Writes as many bytes as the stream takes. The writer writes the rest.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        if self.blocked {
            return Ok(());
        }
        match self.poll_write(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => {
                self.blocked = true;
                self.unblock.notify_one();
                Ok(())
            }
        }
    }

    /// For the writer: done when all bytes are written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        let done = self.poll_write(cx);
        self.blocked = done.is_pending();
        done
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(written)) => {
                    self.written += written;
                    self.traffic.count(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if self.written > limits::LARGE {
                        self.out.drain(..self.written);
                        self.written = 0;
                    }
                    return Poll::Pending;
                }
            }
        }
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > limits::LARGE {
            self.out = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn close(&self, why: Close, text: &str) {
        self.connection.close(why.code(), text.as_bytes());
    }

    /// Closes the connection after everything has arrived, or after a while.
    pub(super) async fn finish(mut self) {
        let connection = self.connection.clone();
        let say_all = async {
            for body in std::mem::take(&mut self.large) {
                write_large(&connection, body, &self.traffic).await?;
            }
            std::future::poll_fn(|cx| self.poll_flush(cx)).await?;
            let _ = self.stream.finish();
            let _ = self.stream.stopped().await;
            Ok::<(), WriteError>(())
        };
        let _ = tokio::time::timeout(limits::GOODBYE, say_all).await;
        connection.close(Close::Bye.code(), b"bye");
    }
}

/// A message that took so many round trips, alone and as it is, tells the rate of a link; what took fewer tells how its window opens. Too small:
/// long links are thought slow. Too large: their rate is never known.
const TELLING: u32 = 16;

/// A rate that has not been measured for so long does not count. Too short: fast links are thought to be slow again. Too long: a link that was
/// busy once is thought slow.
const STALE: Duration = Duration::from_secs(20);

/// Sends a message on a stream of its own.
pub(super) async fn write_large(
    connection: &Connection,
    mut message: LargeMessage,
    traffic: &Traffic,
) -> Result<(), WriteError> {
    let mut stream = connection.open_uni().await?;
    // Short messages go first.
    let _ = stream.set_priority(-1);
    let path = connection.stats().path;
    let link = LinkState {
        round_trip: path.rtt,
        window: path.cwnd,
        rate: traffic.rate(),
    };
    let is_packed = packed::pays(&message, &link);
    let (begin, was_alone, length) = (Instant::now(), traffic.is_alone(), message.length());
    stream
        .write_chunk(packed::heading(is_packed, length))
        .await?;
    if is_packed {
        let mut packer = Packer::new(message);
        while let Some((block, bytes)) = packer.next() {
            stream.write_chunk(block.into()).await?;
            traffic.count(bytes);
            // Packing takes longer than a short message can wait.
            tokio::task::yield_now().await;
        }
    } else {
        let mut rest = &mut *message.pieces;
        while !rest.is_empty() {
            let written = stream.write_chunks(rest).await?;
            traffic.count(written.bytes);
            rest = &mut rest[written.chunks..];
        }
    }
    let _ = stream.finish();
    // A transfer keeps its turn until its bytes have arrived.
    let has_arrived = stream
        .stopped()
        .await
        .is_ok_and(|stopped| stopped.is_none());
    let took = begin.elapsed();
    let is_alone = was_alone && traffic.is_alone();
    if has_arrived && is_alone && !is_packed && took > TELLING * link.round_trip {
        traffic.note_rate(length as f64 / took.as_secs_f64());
    }
    Ok(())
}
