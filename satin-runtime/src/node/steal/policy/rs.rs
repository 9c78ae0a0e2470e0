//! Random stealing: any node of the pool, one request at a time.

use rand::rngs::SmallRng;

use super::{
    super::{
        super::{Peer, View},
        numbers::NEAR_ROUND,
    },
    Around, StealPolicy, ring,
};

/// The policy `rs`.
pub struct Rs;

impl StealPolicy for Rs {
    fn lanes(&self) -> usize {
        1
    }

    fn victim(&self, _lane: usize, around: &Around<'_>, rng: &mut SmallRng) -> Option<Peer> {
        around.view.random(rng)
    }

    fn round(&self, _lane: usize, view: &View) -> u32 {
        // No more than there are others: asked twice in a round, the same node has nothing twice.
        NEAR_ROUND.min(view.len() as u32 - 1)
    }

    fn lifelines(&self, _lane: usize, view: &View, _rng: &mut SmallRng) -> Vec<(Peer, u32)> {
        let members: Vec<Peer> = view.members().map(|identity| identity.peer).collect();
        ring(&members, view.me().peer)
    }
}
