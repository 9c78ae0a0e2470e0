//! I9: after the root jobs, all that was hosted, outstanding, claimed or announced is gone everywhere, no message
//! about it is unsent, no value is being fetched, waited for or belongs to them, and no bound is known; all but the
//! results of the root jobs themselves, which a `main` that begins anew will ask for.
//!
//! Root jobs of `main` end by number: each ends with it those that have a smaller one. So the `main` that came to its end has
//! called, when this is looked at, a root job of the highest number that any `main` has called
//! ([`Cluster::outlast_other_mains`](satin_runtime::node::cluster::Cluster::outlast_other_mains)): nodes rightly keep what
//! belongs to one of a higher number, for they cannot know that it will not be called. A node that can never reach its master again, and sees
//! in the store that this goes on, cannot know what is over.

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
            if run.cluster.node(*node).waits_for_main() {
                continue;
            }
            let left = books.under_way() + run.cluster.away(*node);
            if left > 0 {
                let (away, hosted) = (&books.outstanding, &books.hosted);
                let entries: Vec<String> = (books.entries.iter())
                    .map(|entry| format!("{} of {:?}", entry.name.id, entry.owner))
                    .collect();
                return Err(format!(
                    "node {node} has something left: outstanding {away:?}, hosted {hosted:?}, in the orphan table {entries:?}, {} peers to be told something, {} jobs that came back, {} fetches, {} wait for values, {} root jobs with bounds, {} with shared values, {} copies for others",
                    books.unsaid,
                    books.undone,
                    books.fetches,
                    books.waiting,
                    books.bounds,
                    books.sharing,
                    books.copies
                ));
            }
        }
        Ok(())
    }
}
