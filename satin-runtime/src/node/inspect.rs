//! The contents of a node's books, for those who check that all nodes together keep their promises: see
//! `satin-sim`.

pub use super::books::OutstandingKind;
use super::books::{HERE, Hosted, HostedState};
use super::{Deal, HostedId, Node, Peer, Tally, Token};
use crate::job::{JobId, JobName, Saved};

/// A job that is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InspectedOutstanding {
    /// The peer that has the job.
    pub peer: Peer,
    /// The token of the theft or claim.
    pub token: Token,
    /// The reason why it is there.
    pub kind: OutstandingKind,
}

/// How far a hosted job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InspectedStage {
    /// Shared values of the job, or its origin's leave to begin, are not here yet.
    Coming,
    /// The workers have the job.
    Started,
    /// A node took it onwards, before any worker here began with it.
    Onwards,
    /// The answer is here.
    Done,
}

/// A hosted job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectedHosted {
    /// The job's id between the node and the workers.
    pub key: HostedId,
    /// The name of the job.
    pub name: JobName,
    /// The deals with the other nodes that wait for its answer.
    pub waiters: Vec<Deal>,
    /// The stage that the job has reached.
    pub stage: InspectedStage,
    /// Is it in the orphan table of this node?
    pub orphan: bool,
    /// Is it not wanted any more, and being aborted?
    pub unwanted: bool,
}

/// An entry of an orphan table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InspectedEntry {
    /// The owner of the sheet.
    pub owner: Peer,
    /// The name of the job.
    pub name: JobName,
    /// Is its result there?
    pub finished: bool,
}

/// The contents of a node's books.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Inspection {
    /// Outstanding jobs.
    pub outstanding: Vec<InspectedOutstanding>,
    /// Hosted jobs.
    pub hosted: Vec<InspectedHosted>,
    /// The orphan tables as it knows them, its own included.
    pub entries: Vec<InspectedEntry>,
    /// Peers to whom something of the books has to be said.
    pub unsaid: usize,
    /// Shared values that are being fetched.
    pub fetches: usize,
    /// Jobs and answers that wait for shared values.
    pub waiting: usize,
    /// Root jobs with bounds, but for those whose results are kept here.
    pub bounds: usize,
    /// Root jobs with shared values.
    pub sharing: usize,
    /// Parts of results that are kept here for others.
    pub kept: usize,
    /// Jobs that came back undone, or whose claims were withdrawn, and that are not known to be done.
    pub undone: usize,
    /// Copies of results of other nodes, in case that these die.
    pub copies: usize,
    /// Jobs that a node has said lately to be closed: neither they nor any job below them are wanted any
    /// more.
    pub closed: Vec<JobId>,
    /// Counts of what was done about deaths and departures so far.
    pub tally: Tally,
}

impl Inspection {
    /// How much there is that belongs to a job under way: all but results of root jobs, which are kept for a `main` that
    /// has to begin anew.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let hosted = self.hosted.iter();
        let hosted =
            hosted.filter(|hosted| !(hosted.waiters.is_empty() && hosted.name.id.is_root_job()));
        let entries = self
            .entries
            .iter()
            .filter(|entry| !entry.name.id.is_root_job());
        let books = self.outstanding.len() + hosted.count() + entries.count();
        books
            + self.unsaid
            + self.undone
            + self.fetches
            + self.waiting
            + self.bounds
            + self.sharing
            + self.kept
            + self.copies
    }
}

impl InspectedHosted {
    fn new(key: HostedId, hosted: &Hosted) -> InspectedHosted {
        let waiters = hosted.waiters.keys().copied();
        InspectedHosted {
            key,
            name: hosted.name.clone(),
            waiters: waiters.filter(|deal| deal.peer != HERE).collect(),
            stage: match hosted.state {
                HostedState::Coming => InspectedStage::Coming,
                HostedState::Started => InspectedStage::Started,
                HostedState::Onwards(..) => InspectedStage::Onwards,
                HostedState::Done(..) => InspectedStage::Done,
            },
            orphan: hosted.orphan,
            unwanted: hosted.unwanted,
        }
    }
}

impl Node {
    /// The results that this node keeps for others.
    #[must_use]
    pub fn kept_results(&self) -> Vec<Saved> {
        self.books.legacy()
    }

    /// Copies the contents of the books.
    #[must_use]
    pub fn inspect(&self) -> Inspection {
        let mut inspection = Inspection::default();
        self.inspect_into(&mut inspection);
        inspection
    }

    /// The same, instead of what `inspection` said.
    pub fn inspect_into(&self, inspection: &mut Inspection) {
        inspection.outstanding.clear();
        inspection.hosted.clear();
        inspection.entries.clear();
        let away = self.books.all_outstanding();
        let away = away.map(|(Deal { peer, token }, away)| InspectedOutstanding {
            peer,
            token,
            kind: away.kind,
        });
        inspection.outstanding.extend(away);
        let hosted = self.books.all_hosted();
        inspection
            .hosted
            .extend(hosted.map(|(key, hosted)| InspectedHosted::new(key, hosted)));
        inspection.unsaid = self.books.outboxes.len();
        inspection.tally = self.books.tally;
        inspection.undone = self.repair.undone();
        inspection.fetches = self.shared.fetches();
        inspection.waiting = self.shared.waiting();
        inspection.bounds = self.bounds.under_way();
        inspection.sharing = self.shared.roots().count();
        inspection.kept = self.books.kept_here.len();
        inspection.copies = self.buddies.len();
        inspection.closed.clear();
        inspection.closed.extend(self.table.all_closed().cloned());
        let entries = self.table.orphans();
        let entries = entries.map(|(name, owner, finished)| InspectedEntry {
            owner,
            name,
            finished,
        });
        inspection.entries.extend(entries);
    }
}
