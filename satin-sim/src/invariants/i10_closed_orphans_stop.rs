//! I10: a node that hears that a job is closed has no orphan at or below it any more, at once; but for the results of
//! root jobs. The end of a root job closes its id: no node works on after the end of all.

use std::collections::{BTreeMap, BTreeSet};

use satin_runtime::{
    job::JobId,
    node::{
        HostedId,
        inspect::{InspectedHosted, InspectedStage},
    },
};

use super::{Invariant, Run, Seen};

/// The jobs that each node has heard to be closed, in any of its lives: a job that becomes its orphan when it is reborn
/// does so in that knowledge.
#[derive(Default)]
pub(super) struct ClosedStop {
    heard: BTreeMap<u32, BTreeSet<JobId>>,
    /// The orphans that each node had a step before: several things happen in one step, and what is kept after it was
    /// closed was kept knowing that.
    had: BTreeMap<u32, BTreeSet<HostedId>>,
}

impl Invariant for ClosedStop {
    fn name(&self) -> &'static str {
        "I10"
    }

    fn what(&self) -> &'static str {
        "orphans stop when their id is closed, and all work at the end of the root jobs"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let own = || seen.books.hosted.iter().filter(|hosted| hosted.orphan);
        let has = own().map(|hosted| hosted.key).collect();
        let had = self.had.insert(seen.node, has).unwrap_or_default();
        if seen.books.closed.is_empty() {
            self.heard.remove(&seen.node);
            return Ok(());
        }
        let heard = self.heard.entry(seen.node).or_default();
        let news = seen.books.closed.iter().filter(|id| !heard.contains(id));
        for closed in news {
            let mut below = own().filter(|hosted| {
                closed.is_ancestor_of(&hosted.name.id) && had.contains(&hosted.key)
            });
            let is_done = |hosted: &InspectedHosted| hosted.stage == InspectedStage::Done;
            if let Some(left) = below.find(|left| !(left.name.id.is_root_job() && is_done(left))) {
                let (node, id) = (seen.node, &left.name.id);
                return Err(format!(
                    "node {node} hears that {closed} is closed, and has the orphan {id} on"
                ));
            }
        }
        heard.clear();
        heard.extend(seen.books.closed.iter().cloned());
        Ok(())
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
