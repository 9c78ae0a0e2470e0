//! Facts about earlier runs of a job, and the results that are left of them.

use serde::{Deserialize, Serialize};

use super::{Answer, Fingerprint, History, JobName, RootName};

/// How a job that was away comes back undone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Back {
    /// Facts about its earlier runs by now.
    pub history: History,
    /// True if the job runs without being looked up: its claim was withdrawn. Its children are looked up all the same.
    pub at_once: bool,
    /// True if the job is for other nodes: no worker here runs it before the node says so. See `node/repair/README.md`,
    /// "Crashes count".
    pub held: bool,
    /// True if another node could not run the job: it stays in this process, and is offered to nobody.
    pub stays: bool,
}

impl Back {
    /// The state in which a job comes back that had been here as `had` before: no fact is forgotten. With a default the
    /// job comes back as it was, because it did not go after all.
    #[must_use]
    pub fn after(self, had: Back) -> Back {
        Back {
            history: History {
                marked: self.history.marked || had.history.marked,
                crashes: self.history.crashes.max(had.history.crashes),
            },
            at_once: self.at_once || (had.at_once && !self.history.marked),
            held: (self.held || had.held) && !self.at_once,
            stays: self.stays || had.stays,
        }
    }
}

/// Why a job that is away is not waited for any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recall {
    /// The result is not wanted any more.
    Unwanted,
    /// The job has been done here meanwhile.
    Done,
    /// The parent was given up, and will be run again elsewhere: then the result is wanted.
    Abandoned,
}

/// The result of a job that outlives the job's parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// The job whose result is saved.
    pub name: JobName,
    /// The fingerprint of its root job, as in [`Parcel::root`](super::Parcel::root).
    pub root: Fingerprint,
    /// A result or a panic.
    pub answer: Answer,
}

impl Saved {
    /// Bytes of the result and its name.
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.id.as_bytes().len() + self.answer.size()
    }

    /// The root job that it is, or belongs to.
    #[must_use]
    pub fn root_name(&self) -> RootName {
        RootName {
            number: self.name.id.root_number(),
            fingerprint: self.root,
        }
    }
}

/// The decision on a job that may have taken down nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deadly {
    /// The job has taken down none after all.
    Not,
    /// The job has taken down this number of nodes: others are to run it.
    Held(u32),
    /// The job has taken down too many nodes, and is not run any more: it panics, with this story.
    GivenUp(String),
}

/// News of the orphan table for the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrphanNews {
    /// A node has, or computes, the result of that job: a marked job is claimed there instead of being run.
    Here(JobName),
    /// No node has the result any more.
    Gone(JobName),
    /// The decision on a marked job of that name.
    Deadly(JobName, Deadly),
    /// True if the master before this one died. Perhaps the root job of `main` that was under way killed it: then that
    /// job is for other nodes, so that this master lives to count.
    Careful(bool),
    /// True if every live node has announced its orphans. Only then a marked job below which there is nothing loses its
    /// mark.
    Settled(bool),
}
