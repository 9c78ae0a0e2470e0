//! I2: each child of a live frame is in exactly one of queued, running, away (outstanding or claimed) and done, and
//! becomes done once.

use super::{Invariant, Seen};

pub(super) struct OnePlace;

impl Invariant for OnePlace {
    fn name(&self) -> &'static str {
        "I2"
    }

    fn what(&self) -> &'static str {
        "each child is in one place, and done once"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let audit = seen.cluster.audit(seen.node);
        audit.map_err(|story| format!("node {}: {story}", seen.node))
    }
}
