//! A journal of what becomes of finished work, for those who check that little of it is lost with all nodes.

use std::time::Duration;

use super::super::HostedId;
use super::Cluster;
use crate::job::{JobId, JobName};

/// An entry of the journal.
#[derive(Clone, PartialEq, Debug)]
pub struct Note {
    /// The virtual time.
    pub at: Duration,
    /// The node that it concerns.
    pub node: u32,
    /// What happened.
    pub what: Noted,
}

/// What happened to finished work, of jobs of `main` only.
#[derive(Clone, PartialEq, Debug)]
pub enum Noted {
    /// A worker has computed a phase of a job.
    Computed {
        /// The job.
        job: JobName,
        /// The phase.
        phase: u32,
        /// The time that it takes on a node that is not slow.
        time: Duration,
    },
    /// The workers keep a result from now on.
    Kept {
        /// The job whose result it is.
        job: JobName,
        /// The job of another node that it is a part of; `None`: the root job of this node's `main`.
        under: Option<HostedId>,
    },
    /// What the workers keep of such a job is not to be written any more: it is done, given up, or not wanted.
    Over {
        /// As above.
        under: Option<HostedId>,
    },
    /// A root job has its result, which the node is to keep.
    RootKept(JobName),
    /// `main` has seen the result of the root job of that number, or its panic.
    RootSeen(u32),
    /// A job is computed here although others may have its result: its claim was withdrawn.
    AtOnce(JobId),
    /// The node writes to a log, or to another than before.
    Ready,
    /// A batch of the node has come to the store.
    Written {
        /// It had no room for all that the node has to write: the rest goes with the next.
        is_full: bool,
    },
    /// The store has forgotten segments of the node.
    Forgot,
    /// The node stops, as by `SIGSTOP`.
    Stopped,
    /// The node goes on.
    WentOn,
    /// The node is gone.
    Gone,
    /// All nodes are.
    AllGone,
}

impl Cluster {
    /// Keeps a journal from now on. To be called before there are nodes.
    pub fn keep_journal(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// The journal so far.
    #[must_use]
    pub fn journal(&self) -> &[Note] {
        self.journal.as_deref().unwrap_or_default()
    }

    pub(super) fn note(&mut self, node: u32, what: Noted) {
        let at = self.now;
        if let Some(journal) = &mut self.journal {
            journal.push(Note { at, node, what });
        }
    }

    /// Enters what the workers of a node have noted.
    pub(super) fn copy_notes(&mut self, node: u32) {
        let notes = self.slot_mut(node).workers.notes.as_mut();
        for what in notes.map(std::mem::take).unwrap_or_default() {
            self.note(node, what);
        }
    }

    /// Enters that a node has another log, if it does.
    pub(super) fn note_run(&mut self, node: u32) {
        let slot = &mut self.slots[node as usize];
        let me = slot.node.view().me().peer;
        let writes = slot.node.run_epoch().map(|run| (me, run));
        if self.journal.is_some() && slot.writes != writes {
            slot.writes = writes;
            self.note(node, Noted::Ready);
        }
    }

    /// The number of results that the workers of a node keep of jobs under way, and the most that there can be.
    #[must_use]
    pub fn harvested(&self, node: u32) -> (usize, usize) {
        self.slot(node).workers.harvested()
    }
}
