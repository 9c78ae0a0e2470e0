//! I7: once all faults have healed, the root jobs are done within a bound; and the nodes that were told to go are gone.

use super::{Invariant, Run};

pub(super) struct RootDone;

impl Invariant for RootDone {
    fn name(&self) -> &'static str {
        "I7"
    }

    fn what(&self) -> &'static str {
        "the root jobs are done, and who was told to go is gone"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        if !run.done {
            let who: Vec<String> = (run.books.iter())
                .map(|(node, books)| {
                    let main = run.cluster.main_of(*node);
                    let (away, hosted) = (books.outstanding.len(), books.hosted.len());
                    format!("{node}: main {main:?}, {away} away, {hosted} hosted")
                })
                .collect();
            let who = who.join("; ");
            return Err(format!("no main came to its end ({who})"));
        }
        let mut drained = run.drained.iter();
        match drained.find(|node| run.cluster.is_alive(**node)) {
            None => Ok(()),
            Some(node) => Err(format!("node {node} was told to go, and is still there")),
        }
    }
}
