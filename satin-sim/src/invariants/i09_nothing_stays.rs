//! I9: after the root jobs, what was hosted, outstanding, claimed or announced is gone everywhere.

use super::{Invariant, Run};

pub(super) struct NothingStays;

impl Invariant for NothingStays {
    fn name(&self) -> &'static str {
        "I9"
    }

    fn what(&self) -> &'static str {
        "after the root jobs nothing of them stays"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        if !run.done {
            return Ok(());
        }
        for (node, books) in run.books {
            let counts = [
                ("outstanding", books.outstanding.len()),
                ("hosted", books.hosted.len()),
                ("in the orphan table", books.entries.len()),
                ("away from its workers", run.cluster.away(*node)),
            ];
            if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > 0) {
                return Err(format!(
                    "node {node} has {count} jobs {what} when all is over"
                ));
            }
        }
        Ok(())
    }
}
