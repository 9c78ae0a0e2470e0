//! J8: data of flows that nodes keep for others, or that flows have at home, are gone when the root jobs are over.

use super::{Invariant, Run};

#[derive(Default)]
pub(super) struct DataGo {
    kept: u64,
}

impl Invariant for DataGo {
    fn name(&self) -> &'static str {
        "J8"
    }

    fn what(&self) -> &'static str {
        "data go when nobody needs them"
    }

    /// Number of data that were kept where they were made.
    fn checked(&self) -> Option<u64> {
        Some(self.kept)
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let nodes = 0..run.cluster.nodes();
        self.kept = nodes.map(|node| run.cluster.flows_seen(node).kept).sum();
        if !run.rests {
            return Ok(());
        }
        for (node, _) in run.books {
            let (for_others, at_home) = run.cluster.keeps_data(*node);
            if for_others + at_home > 0 {
                return Err(format!(
                    "node {node} still keeps {for_others} data for others, and has {at_home} of its own flows"
                ));
            }
        }
        Ok(())
    }
}
