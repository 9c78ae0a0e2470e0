//! I17: of a run that is over no result is left in the store.

use satin_runtime::node::cluster::Cluster;

use super::Invariant;

pub(super) struct StoreEmpty;

impl Invariant for StoreEmpty {
    fn name(&self) -> &'static str {
        "I17"
    }

    fn what(&self) -> &'static str {
        "no result stays in the store"
    }

    fn check_over(&mut self, cluster: &Cluster) -> Result<(), String> {
        // A master that could not find its run cannot end it; a program may be over before the store has begun one.
        let store = cluster
            .store()
            .filter(|store| !store.is_silent && store.failing == 0);
        match store.map_or(0, |store| store.facts()) {
            0 => Ok(()),
            facts => Err(format!(
                "main has ended, and {facts} results are in the store"
            )),
        }
    }
}
