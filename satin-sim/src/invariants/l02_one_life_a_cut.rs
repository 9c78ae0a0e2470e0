//! L2: a node comes over at most twice a cut into two sides: to a side that a moment later hears of the election of a master at the other. Of three
//! sides that meet at once, it may come over to one that comes over itself.

use super::{Invariant, Run, comes_over};

pub(super) struct OneLife;

impl Invariant for OneLife {
    fn name(&self) -> &'static str {
        "L2"
    }

    fn what(&self) -> &'static str {
        "a node comes over at most twice a cut"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let Some(cuts) = run.cuts else {
            return Ok(());
        };
        let healed = cuts.healed();
        // Three links heal at once where three sides were cut off from each other, of three sites.
        let most: usize = healed.values().map(|links| 2 + links / 3).sum();
        let mut nodes = (0..run.cluster.nodes()).map(|node| (node, comes_over(run.cluster, node)));
        match nodes.find(|(_, times)| *times > most) {
            None => Ok(()),
            Some((node, times)) => Err(format!(
                "node {node} has come over {times} times, not {most}"
            )),
        }
    }
}
