//! Root jobs that other threads than main's call: they are lost when their node dies.

use super::{Cluster, Event, workers::Finished};
use crate::job::{RootName, RootRun};

/// A root job that another thread than main's has called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherRoot {
    /// The program that it runs.
    pub program: u32,
    /// The result, once the job is done; or the panic's message.
    pub outcome: Option<Result<u64, String>>,
}

impl OtherRoot {
    pub(super) fn finish(&mut self, finished: Finished) {
        self.outcome = match finished {
            Finished::Result(result, _) => Some(Ok(result)),
            Finished::Panicked(story) => Some(Err(story)),
            // Only calls of main are cancelled.
            Finished::GivenUp(_) | Finished::Cancelled => None,
        };
    }
}

impl Cluster {
    /// Another thread than main's calls a root job there.
    pub fn start_other(&mut self, node: u32, program: u32) -> RootRun {
        let work = self.programs[program as usize].root();
        let home = self.peer(node).id.home();
        let slot = self.slot_mut(node);
        let tag = RootRun {
            term: slot.term,
            name: RootName {
                number: RootName::OTHERS + slot.others.len() as u32,
                fingerprint: home,
            },
        };
        let outcome = None;
        slot.others.insert(tag, OtherRoot { program, outcome });
        slot.workers.events.push_back(Event::RootStarted(tag));
        slot.workers.start_root(tag, program, work);
        self.run_node(node);
        tag
    }

    /// The root jobs that other threads called there.
    pub fn others(&self, node: u32) -> impl Iterator<Item = (RootRun, &OtherRoot)> {
        let others = self.slot(node).others.iter();
        others.map(|(tag, other)| (*tag, other))
    }
}
