//! Orders to the driver about the store.

use serde::{Deserialize, Serialize};

use super::{NodeId, Peer};
use crate::job::{Batch, RunName};

/// A run, and the start of it that goes on now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunEpoch {
    /// The epoch: counts the starts of the run.
    pub epoch: u32,
    /// The run's name.
    pub run: RunName,
}

/// An order to the driver about the store.
#[derive(Clone, PartialEq, Debug)]
pub enum StorageOrder {
    /// This node is master: find the run, or begin one, and load what stands there. Answered by
    /// [`RunOpened`](super::Event::RunOpened) or [`CannotOpenRun`](super::Event::CannotOpenRun).
    Open {
        /// The run that goes on, if a former master has told.
        known: Option<RunEpoch>,
        /// The node that founded this pool: one of its masters may have begun an epoch, and not told.
        founder: NodeId,
        /// The lives that still have what they have written in this epoch.
        alive: Vec<Peer>,
    },
    /// Append to this life's log. Answered by [`Written`](super::Event::Written) or
    /// [`NotWritten`](super::Event::NotWritten).
    Write {
        /// A number that the answer gives back.
        number: u64,
        /// The run whose log it is.
        run: RunEpoch,
        /// What is to be written.
        batch: Batch,
        /// The batch begins a segment.
        begins: bool,
    },
    /// Look which `main` of the run is the latest. Answered by [`MainSeen`](super::Event::MainSeen) or
    /// [`RunIsOver`](super::Event::RunIsOver), or not at all if the store does not say.
    LookAtMain {
        /// The run.
        run: RunEpoch,
        /// What is done besides.
        and: MainStep,
    },
    /// The segments of this life's log before that one can go.
    Forget(u32),
    /// Read what a life has written in this epoch. Answered by [`LogRead`](super::Event::LogRead).
    ReadLog {
        /// The run.
        run: RunEpoch,
        /// The life that is over.
        peer: Peer,
    },
}

/// The step that follows when the node looks which `main` is the latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MainStep {
    /// Nothing: it has lost its master.
    Wait,
    /// The `main` of this node goes on, if it is the latest.
    GoOn,
    /// The `main` of this node is the latest from now on.
    BeLatest,
}
