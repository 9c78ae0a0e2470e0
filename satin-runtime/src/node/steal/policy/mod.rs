//! The choice of victims: the trait of a policy, and the facts that it may look at.

mod crs;
mod mw;
mod rs;

use rand::rngs::SmallRng;

use super::super::{Peer, Policy, View};

/// The facts that a policy may look at.
pub struct Around<'a> {
    /// The live nodes.
    pub view: &'a View,
    /// Nodes of other sites to which a connection stands, in order.
    pub far: &'a [Peer],
    /// The node that gave jobs last in that lane, and how many more it had.
    pub giver: Option<(Peer, u32)>,
}

/// Decides whom an idle node asks for work.
///
/// A policy has one or two lanes. In each, one request at a time is under way; both are under way side by side. When a
/// round of requests in a lane has failed, the lane rests on its lifelines.
pub trait StealPolicy: Send {
    /// How many lanes there are.
    fn lanes(&self) -> usize;

    /// The node to ask next in that lane; `None` if there is none.
    fn victim(&self, lane: usize, around: &Around<'_>, rng: &mut SmallRng) -> Option<Peer>;

    /// How many failed requests make a round.
    fn round(&self, lane: usize, view: &View) -> u32;

    /// How many jobs a request in that lane may bring, beside one for each idle worker here.
    fn share(&self, _lane: usize, _view: &View) -> u32 {
        1
    }

    /// The nodes with which to leave standing requests once a round has failed, and how many jobs each may
    /// bring: for this node, and for the nodes that wait for it.
    fn lifelines(&self, lane: usize, view: &View, rng: &mut SmallRng) -> Vec<(Peer, u32)>;
}

/// The implementation of a policy.
pub(super) fn of(policy: Policy) -> Box<dyn StealPolicy> {
    match policy {
        Policy::Crs => Box::new(crs::Crs),
        Policy::Rs => Box::new(rs::Rs),
        Policy::Mw => Box::new(mw::Mw),
    }
}

/// The members at distances 1, 2, 4, .. from `me` in a ring, and how many nodes a wave of work reaches through `me`
/// from there: everybody holds as many lifelines as it leaves, and a wave passes the whole ring in a logarithmic number
/// of steps.
pub(super) fn ring(members: &[Peer], me: Peer) -> Vec<(Peer, u32)> {
    // A node that is on its way out may not be in the list: any place will do then.
    let place = members.binary_search(&me).unwrap_or(0);
    let mut all = Vec::new();
    let mut distance = 1;
    while distance < members.len() {
        all.push((members[(place + distance) % members.len()], distance as u32));
        // Doubled, so that a wave of work reaches all nodes in a logarithmic number of steps.
        distance *= 2;
    }
    all
}
