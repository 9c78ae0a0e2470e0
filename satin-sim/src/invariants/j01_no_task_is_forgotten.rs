//! J1: a task of a flow that waits does so for a result that is missing. The one that stands first among those without a result then never
//! waits: it can run here, runs, is away or is held, which I2 checks, as for every job. So a flow goes on as long as jobs do.

use super::{Invariant, Seen};

#[derive(Default)]
pub(super) struct NoneForgotten {
    checked: u64,
}

impl Invariant for NoneForgotten {
    fn name(&self) -> &'static str {
        "J1"
    }

    fn what(&self) -> &'static str {
        "a task waits only for what is missing"
    }

    fn checked(&self) -> Option<u64> {
        Some(self.checked)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen.cluster.waiting_tasks(seen.node) {
            Ok(waiting) => self.checked += waiting,
            Err(story) => return Err(format!("node {}: {story}", seen.node)),
        }
        Ok(())
    }
}
