//! I10: orphans below a closed id stop within a bound. The end of a root job closes its id.

use super::{Invariant, Run};

pub(super) struct ClosedStop;

impl Invariant for ClosedStop {
    fn name(&self) -> &'static str {
        "I10"
    }

    fn what(&self) -> &'static str {
        "nobody works on after the end of the root jobs"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        if !run.done {
            return Ok(());
        }
        let mut nodes = run.books.iter().map(|(node, _)| node);
        match nodes.find(|node| !run.cluster.is_empty(**node)) {
            None => Ok(()),
            Some(node) => Err(format!("node {node} works on after the end")),
        }
    }
}
