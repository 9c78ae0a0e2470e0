//! Membership: who is there. Joining, leaving, and finding out who died.

use std::{net::SocketAddr, time::Duration};

use rand::rngs::SmallRng;

use super::{Config, Context, Identity, Peer, View, root::Roots, shared::Bounds};

/// What others must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It is in the view now.
    In(Peer),
    /// It is not in the view any more: dead, gone, or in another life.
    Out(Peer),
}

/// The detector, and the way in.
pub struct Membership {}

#[expect(unused_variables, clippy::unused_self, reason = "to be filled")]
impl Membership {
    pub(crate) fn new(
        config: &Config,
        view: &View,
        rng: &mut SmallRng,
        now: Duration,
    ) -> Membership {
        Membership {}
    }
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        None
    }
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {}
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        None
    }

    pub(crate) fn connected(&mut self, cx: &mut Context<'_>, peer: &Identity) {}
    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer) {}
    pub(crate) fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        addr: SocketAddr,
        peer: Option<Peer>,
    ) {
    }
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {}

    pub(crate) fn gossip(&mut self, cx: &mut Context<'_>, from: Peer, packet: &[u8]) {}
    pub(crate) fn join(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        identity: Identity,
        root: &mut Roots,
        bounds: &Bounds,
    ) {
    }
    pub(crate) fn ask(&mut self, cx: &mut Context<'_>, master: &Identity) {}
    pub(crate) fn welcome(&mut self, cx: &mut Context<'_>, stamp: u64, members: Vec<Identity>) {}
    pub(crate) fn goodbye(&mut self, cx: &mut Context<'_>, from: Peer) {}
}
