//! Repair: what becomes of each job between two nodes, from the moment when it leaves until its answer is back; also when nodes
//! die or leave meanwhile. See `README.md` for the rules, and what goes wrong without each.
//!
//! The jobs, in the [books](super::books):
//! * `hosted`: the life of a job of others that is here; `away`: that of a job that is elsewhere.
//! * `orphans`: jobs whose origin is gone, and results that are kept; `claims`: who asks for them;
//!   `closed`: which of them nobody needs any more.
//! * `links`: what a broken connection may have lost.
//! * `crashes`: jobs that take down whoever runs them.
//! * `late`: jobs that another site may be doing, and that are done last.
//! * `stuck`: a node that can do nothing but wait gives something back.
//! * `drain`: what is given up when this node leaves.
//!
//! The knowledge about all nodes:
//! * `table`: every node's map of job id -> who has that orphan's result, or is still computing it.
//! * `spread`: how the tables come to everybody.
//! * `keeping`: results that others keep: those of root jobs, and what a node leaves behind.
//! * `leaving`: how a node leaves on purpose, step by step.
//! * `buddies`: neighbours that have copies of what a node has harvested.

mod away;
mod buddies;
mod claims;
mod closed;
mod crashes;
mod drain;
mod hosted;
mod keeping;
mod late;
mod leaving;
mod links;
mod orphans;
mod spread;
mod stuck;
mod table;

#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;

pub(crate) use buddies::Buddies;
pub(crate) use keeping::Keeping;
pub(crate) use leaving::{DepartureStep, Leaving};
pub(crate) use spread::Spread;
pub(crate) use table::{GIVEN_UP, Table, given_up};

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Context, Peer};
use crate::job::{JobId, JobName};
use closed::FinishedRoots;
use crashes::Release;
use late::Late;

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LifeEnd {
    /// The node died: a job that it ran may be the reason.
    Died,
    /// The node fell silent: it died, or it is cut off.
    Silent,
    /// The node left on purpose, or goes on as the next generation.
    Left,
    /// The peer lives on: this node goes on as the next generation.
    Ours,
}

impl LifeEnd {
    /// Did the node die, as far as is known?
    pub(crate) fn is_death(self) -> bool {
        matches!(self, LifeEnd::Died | LifeEnd::Silent)
    }
}

/// Why a job comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReturnReason {
    /// The life of the peer that had the job is over.
    Ended(LifeEnd),
    /// The job never arrived.
    Lost,
    /// The job was not run there.
    Undone,
    /// The job could not be run there: what it needs was not to be had, say.
    Refused,
    /// The answer mentions a shared value that no node has any more.
    Unreadable,
    /// The peer gave the job up; results of finished children are kept.
    Abandoned,
    /// The orphan is not there any more.
    Missed,
    /// The claim is taken back, as this node has nothing else to run.
    Withdrawn,
}

/// The memory of this node of jobs that came back, or are to.
#[derive(Default)]
pub(crate) struct Repair {
    /// Jobs that came back because a node is gone, and that are not done again yet.
    repairs: BTreeSet<JobId>,
    /// Jobs whose claim was withdrawn, and from whom: they do not go back there.
    withdrawn: BTreeMap<JobId, Peer>,
    /// Root jobs that are over: nobody wants orphans of theirs.
    over: FinishedRoots,
    /// When a claim is withdrawn, if the workers can do nothing but wait until then.
    withdraw_at: Option<Duration>,
    /// Jobs here that have taken down nodes: others are to run them.
    held: Vec<JobName>,
    /// A job that was about to leave, and stayed, is told by the workers once more as held: its time
    /// goes on from here, or it would wait for others without end.
    held_since: BTreeMap<JobName, Duration>,
    release_at: Option<Release>,
    /// Jobs that are done last.
    late: Late,
    /// The connection by which our lists went last.
    listed: BTreeMap<Peer, u64>,
    /// Peers to which a connection is tried again, and when.
    reconnect: BTreeMap<Peer, Duration>,
}

impl Repair {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let reconnect = self.reconnect.values().min().copied();
        let release = self.release_at.map(Release::at);
        let late = self.late.next_timeout();
        let all = [reconnect, self.withdraw_at, release, late];
        all.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.reconnect_if_due(cx);
        self.withdraw_if_stuck(cx);
        self.release_if_due(cx);
    }

    /// The end of a turn: what is held may be claimed, or released, before the workers are asked for jobs.
    /// `in_vain`: this node has asked all others for work.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, in_vain: bool) {
        // Claims come first: a held job that is an orphan somewhere need not be run anywhere again,
        // so it must not be released to the workers of this node, nor given to a thief.
        self.claim_held(cx);
        self.release_if_due(cx);
        self.look_at_late(cx, in_vain);
    }

    /// How much this node remembers of jobs that came back.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn undone(&self) -> usize {
        self.repairs.len() + self.withdrawn.len() + self.late.len()
    }
}
