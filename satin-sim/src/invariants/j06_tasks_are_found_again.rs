//! J6: a flow that may have run before, because its node has died or was left, finds its tasks again, by their ids and by fingerprints that
//! cover what they read. A task of which its node knows that another has it, or its result, is claimed and not run, unless a claim of it
//! was withdrawn; and what a task is answered with from elsewhere is what it computes from what it reads, not what one in its place
//! computed from something else.

use super::{Invariant, Run, Seen};

#[derive(Default)]
pub(super) struct FoundAgain {
    claimed: u64,
}

impl Invariant for FoundAgain {
    fn name(&self) -> &'static str {
        "J6"
    }

    fn what(&self) -> &'static str {
        "a flow that runs again finds its tasks, and no others"
    }

    /// Number of tasks that were found.
    fn checked(&self) -> Option<u64> {
        Some(self.claimed)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let flows = seen.cluster.flows_seen(seen.node);
        match flows.missed.as_ref().or(flows.wrong.as_ref()) {
            None => Ok(()),
            Some(story) => Err(format!("node {}: {story}", seen.node)),
        }
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let nodes = 0..run.cluster.nodes();
        self.claimed = nodes.map(|node| run.cluster.flows_seen(node).found).sum();
        Ok(())
    }
}
