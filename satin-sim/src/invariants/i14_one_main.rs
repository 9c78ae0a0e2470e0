//! I14: a pool has one main. Two mains that come to their end, on nodes that are both still there, are allowed only if
//! a node was stopped or cut off: then both answers are right, which I12 checks, and there are two of them. Here a pool
//! goes on after the end of `main`; so a node that had run it may hear only then which node was named in its term, and
//! later run it once more.

use std::collections::BTreeSet;

use super::{Invariant, Run};

pub(super) struct OneMain;

impl Invariant for OneMain {
    fn name(&self) -> &'static str {
        "I14"
    }

    fn what(&self) -> &'static str {
        "main ends once, as long as nobody is taken for dead who is not"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let endings = run.cluster.endings().iter();
        let there = endings.filter(|ending| run.cluster.is_alive(ending.node));
        let nodes: BTreeSet<u32> = there.map(|ending| ending.node).collect();
        match run.apart || nodes.len() <= 1 {
            true => Ok(()),
            false => Err(format!("main came to its end at each of {nodes:?}")),
        }
    }
}
