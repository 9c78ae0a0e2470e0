//! Master and workers: only the master is asked.

use rand::rngs::SmallRng;

use super::{
    super::super::{Peer, View},
    Around, StealPolicy,
};

/// The policy `mw`.
pub struct Mw;

impl StealPolicy for Mw {
    fn lanes(&self) -> usize {
        1
    }

    fn victim(&self, _lane: usize, around: &Around<'_>, _rng: &mut SmallRng) -> Option<Peer> {
        master(around.view)
    }

    fn round(&self, _lane: usize, _view: &View) -> u32 {
        // All others are out of the question, so one failure is a round.
        1
    }

    fn lifelines(&self, _lane: usize, view: &View, _rng: &mut SmallRng) -> Vec<(Peer, u32)> {
        let master = master(view);
        master.into_iter().map(|master| (master, 1)).collect()
    }
}

fn master(view: &View) -> Option<Peer> {
    let master = view.master();
    // The master itself has nobody to ask.
    (master != view.me().peer).then_some(master)
}
