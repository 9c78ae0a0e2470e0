//! What is known of earlier runs of a job, and what is left of them.

use serde::{Deserialize, Serialize};

use super::{Answer, Fingerprint, JobId, RootName};

/// What is known of earlier runs of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct History {
    /// It, or something below it, may have been run before: it and its children look themselves up before they run.
    /// Inherited by children as long as the orphan table has anything at or below them.
    pub marked: bool,
    /// So many nodes died while they ran it.
    pub crashes: u32,
}

/// How a job that was away comes back undone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Back {
    /// What is known of it by now.
    pub history: History,
    /// It runs without being looked up: its claim was withdrawn. Its children are looked up all the same.
    pub at_once: bool,
    /// It is for other nodes: nobody here runs it before the node says so. See `node/repair/README.md`, "Crashes count".
    pub held: bool,
}

impl Back {
    /// How it comes back, if it had been here as `had` before: nothing that was known is forgotten. With a default it
    /// comes back as it was, because it did not go after all.
    #[must_use]
    pub fn after(self, had: Back) -> Back {
        Back {
            history: History {
                marked: self.history.marked || had.history.marked,
                crashes: self.history.crashes.max(had.history.crashes),
            },
            at_once: self.at_once || (had.at_once && !self.history.marked),
            held: (self.held || had.held) && !self.at_once,
        }
    }
}

/// Why a job that is away is not waited for any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recall {
    /// Nobody wants its result.
    Unwanted,
    /// Its parent was given up, and will be run again elsewhere: then its result is wanted.
    Abandoned,
}

/// The result of a job that outlives the job's parent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Whose.
    pub id: JobId,
    /// What it computed.
    pub fingerprint: Fingerprint,
    /// What its root job computes, as in [`Parcel::root`](super::Parcel::root).
    pub root: Fingerprint,
    /// A result or a panic.
    pub answer: Answer,
}

impl Saved {
    /// The root job that it is, or belongs to.
    #[must_use]
    pub fn root_name(&self) -> RootName {
        RootName {
            number: self.id.root_number(),
            fingerprint: self.root,
        }
    }
}

/// What becomes of a job that may have taken down nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deadly {
    /// It has taken down none after all.
    Not,
    /// It has taken down so many: others are to run it.
    Held(u32),
    /// It has taken down so many that nobody runs it any more: it panics, with this story.
    GivenUp(String),
}

/// What the workers must know of the orphan table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrphanNews {
    /// Somebody has, or computes, the result of that job: a marked job is claimed there instead of being run.
    Here(JobId, Fingerprint),
    /// Nobody has it any more.
    Gone(JobId, Fingerprint),
    /// What is to become of a marked job of that name.
    Deadly(JobId, Fingerprint, Deadly),
    /// Did the master before this one die? Perhaps of the root job of `main` that was under way: then that is for others, so
    /// that this master lives to count.
    Careful(bool),
    /// Has every live node said what it has? Only then a marked job below which there is nothing loses its mark.
    Settled(bool),
}
