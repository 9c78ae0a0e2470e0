//! J3: a task begins, here or elsewhere, when the results are there that it reads.

use super::{Invariant, Run, Seen};

#[derive(Default)]
pub(super) struct InputsFirst {
    checked: u64,
}

impl Invariant for InputsFirst {
    fn name(&self) -> &'static str {
        "J3"
    }

    fn what(&self) -> &'static str {
        "no task begins before what it reads is there"
    }

    fn checked(&self) -> Option<u64> {
        Some(self.checked)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match &seen.cluster.flows_seen(seen.node).too_early {
            None => Ok(()),
            Some(story) => Err(format!("node {}: {story}", seen.node)),
        }
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let nodes = 0..run.cluster.nodes();
        self.checked = nodes.map(|node| run.cluster.flows_seen(node).begun).sum();
        Ok(())
    }
}
