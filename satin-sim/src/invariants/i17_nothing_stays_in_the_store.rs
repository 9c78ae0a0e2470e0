//! I17: of a run that is over no result is left in the store. A side of a cut leaves a run to the node that has begun the latest `main` of it, until
//! it has seen no sign of life from there for a while; meanwhile that node may have been told to go, before its `main` came to an end.

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
        // A master that could not find its run cannot end it; a program may be over before the store has begun one, or before it is known that the
        // `main` of those who reached the store does not go on.
        let store = cluster.store();
        let store =
            store.filter(|store| !store.is_silent && store.failing == 0 && !store.was_hidden);
        let latest = store.and_then(|store| store.latest_main());
        let mut ended = cluster.endings().iter();
        let store = store.filter(|_| {
            ended.any(|ending| latest.is_none_or(|by| by == cluster.peer(ending.node).id))
        });
        match store.map_or(0, |store| store.facts()) {
            0 => Ok(()),
            facts => Err(format!(
                "main has ended, and {facts} results are in the store"
            )),
        }
    }
}
