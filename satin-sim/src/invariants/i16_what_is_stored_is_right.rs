//! I16: what stands in the store is what the programs compute, and beside it stands the best that its leaves have offered:
//! whoever goes on with the result needs both.

use satin_runtime::node::cluster::Cluster;

use super::{Invariant, Seen};

pub(super) struct StoredRight;

impl Invariant for StoredRight {
    fn name(&self) -> &'static str {
        "I16"
    }

    fn what(&self) -> &'static str {
        "what is stored is right, and has its bounds"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        self.check_over(seen.cluster)
    }

    fn check_over(&mut self, cluster: &Cluster) -> Result<(), String> {
        match cluster.stored_wrong() {
            None => Ok(()),
            Some(story) => Err(story.into()),
        }
    }
}
