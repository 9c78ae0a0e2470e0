//! I12: the answer is right, wherever `main` came to its end.

use super::{Invariant, Run, Seen};

pub(super) struct Right;

impl Invariant for Right {
    fn name(&self) -> &'static str {
        "I12"
    }

    fn what(&self) -> &'static str {
        "the answer is right"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen.cluster.panics(seen.node).first() {
            None => Ok(()),
            Some(story) => Err(format!(
                "a root job at node {} panicked: {story}",
                seen.node
            )),
        }
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let mut endings = run.cluster.endings().iter();
        match endings.find(|ending| ending.results != run.right) {
            None => Ok(()),
            Some(ending) => Err(format!(
                "main at node {} in term {} got {:x?}, which should be {:x?}",
                ending.node, ending.term, ending.results, run.right
            )),
        }
    }
}
