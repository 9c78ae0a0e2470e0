//! Stealing: who asks whom for work, and the books of what was stolen.

use std::time::Duration;

use super::{Config, Context, Departure, HostKey, Peer, Request, Taken, Then, Token};
use crate::job::{Answer, Parcel};

/// The books.
pub struct Steal {}

#[expect(unused_variables, clippy::unused_self, reason = "to be filled")]
impl Steal {
    pub(crate) fn new(config: &Config, now: Duration) -> Steal {
        Steal {}
    }
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        None
    }
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {}

    pub(crate) fn connected(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        epoch: u64,
        round_trip: Duration,
    ) {
    }
    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {}
    pub(crate) fn unreachable(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    /// The end of a turn: what it brought together is said.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {}
    pub(crate) fn round_trip(&mut self, peer: Peer, round_trip: Duration) {}
    pub(crate) fn joined(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    /// The peer's life is over: what it hosted is put back, what is hosted for it is aborted.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {}

    pub(crate) fn idle(&mut self, cx: &mut Context<'_>, workers: u32) {}
    pub(crate) fn public(&mut self, cx: &mut Context<'_>) {}
    pub(crate) fn took(&mut self, cx: &mut Context<'_>, request: u64, jobs: Vec<Taken>, left: u32) {
    }
    pub(crate) fn done(&mut self, cx: &mut Context<'_>, key: HostKey, answer: Answer) {}
    pub(crate) fn recalled(&mut self, cx: &mut Context<'_>, departure: Departure) {}

    pub(crate) fn asked(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        request: Request,
        most: u32,
        lifeline: bool,
    ) {
    }
    pub(crate) fn cut(&mut self, from: Peer, request: Request) {}
    /// Enters the jobs in the books as hosted; what is returned goes on once its values are here.
    pub(crate) fn arrived(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        epoch: u64,
        request: Request,
        jobs: Vec<(Token, Parcel)>,
    ) -> Vec<Then> {
        Vec::new()
    }
    /// Those of the answers that are still wanted go on once their values are here.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        epoch: u64,
        answers: Vec<(Token, Answer)>,
    ) -> Vec<Then> {
        Vec::new()
    }
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, then: Then) {}
    pub(crate) fn acknowledged(&mut self, from: Peer, tokens: &[Token]) {}
    pub(crate) fn recall(&mut self, cx: &mut Context<'_>, from: Peer, tokens: &[Token]) {}
    pub(crate) fn compare(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        outstanding: &[Token],
        hosted: &[Token],
    ) {
    }
}
