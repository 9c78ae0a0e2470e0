//! I21: no side of a cut begins `main` while the store, which it sees, says that another side's goes on. Most of the nodes
//! may: they take the master for dead. So may a node that was cut off before it heard of the run, and two sides that begin one at the same moment,
//! as their master died in the cut: of these the later one is the latest.

use super::{Invariant, Seen};

pub(super) struct NoneBeside;

impl Invariant for NoneBeside {
    fn name(&self) -> &'static str {
        "I21"
    }

    fn what(&self) -> &'static str {
        "no side of a cut begins `main` beside one that goes on"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let store = seen.cluster.store();
        match store.and_then(|store| store.begun_beside()) {
            None => Ok(()),
            Some(story) => Err(story.into()),
        }
    }
}
