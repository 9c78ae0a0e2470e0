//! I15: no node keeps the result of a job below one whose result it keeps too: no node can ask for that. So the
//! results that a node keeps do not grow with the past of the run, but only with the jobs under way.

use std::collections::BTreeSet;

use satin_runtime::job::JobId;

use super::{Invariant, Seen};

#[derive(Default)]
pub(super) struct Bounded;

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "I15"
    }

    fn what(&self) -> &'static str {
        "nobody keeps a result below another one"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let me = seen.cluster.peer(seen.node);
        let own = seen.books.entries.iter().filter(|entry| entry.owner == me);
        let own: BTreeSet<&JobId> = (own.filter(|entry| entry.finished))
            .map(|entry| &entry.name.id)
            .collect();
        // In the order of ids a job stands right before all that is below it.
        let mut pairs = own.iter().zip(own.iter().skip(1));
        match pairs.find(|(id, next)| id.is_ancestor_of(next)) {
            None => Ok(()),
            Some((id, below)) => Err(format!(
                "node {} keeps the results of {id} and, below it, of {below}",
                seen.node
            )),
        }
    }
}
