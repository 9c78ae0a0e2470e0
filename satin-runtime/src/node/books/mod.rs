//! The books of a node: every job that is between this node and others, and the words that are still to be
//! said of it.
//!
//! * `entries`: which job of this node is *outstanding*, and which job of another node is *hosted* here.
//! * `hands`: how many workers have nothing to do, and how fast they finish hosted jobs.
//! * `holders`: which shared values the others hold.
//! * `kept`: which parts of results are kept here for others.
//! * `outbox`: the words for each peer, to be said at the end of the turn.
//!
//! The books decide nothing. Two conversations keep them, and [`Context`](super::Context) lends them to both:
//! [`steal`](super::steal), which decides who asks whom, and [`repair`](super::repair), which follows each
//! job from the moment when it leaves until its answer is back. Neither knows the other. [`shared`](super::shared) notes who holds
//! values, and asks them; stealing prefers those who do.

mod entries;
mod hands;
mod holders;
mod kept;
mod outbox;

pub use entries::OutstandingKind;
use entries::all_of;
pub(crate) use entries::{
    HERE, Hosted, HostedState, Job, JobSource, NotSent, Outstanding, Trip, Waiter,
};
pub(crate) use hands::{Hands, Spare};
pub(crate) use holders::{HeldNames, Holders, lacking};
pub(crate) use kept::KeptHere;
pub(crate) use outbox::{Outbox, in_pieces};

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Deal, DepartureId, HostedId, Peer, PendingArrival, Token};
use crate::job::{Answer, JobName, Kept, RootName, Tally};

/// The number of recalls of a peer, at most, that wait for jobs which come by a stream of their own. Too
/// small: such a job runs although it is not wanted. Too large: memory, for a withdrawn claim crosses its
/// answer and is waited for in vain.
const EARLY_RECALLS: usize = 256;

/// All jobs that are under way between this node and others.
#[derive(Default)]
pub(crate) struct Books {
    /// Outstanding jobs, by the peer that has the job and the token that this node gave.
    outstanding: BTreeMap<Deal, Outstanding>,
    /// The whereabouts of the own jobs that are away.
    departures: BTreeMap<DepartureId, Deal>,
    /// Hosted jobs.
    hosted: BTreeMap<HostedId, Hosted>,
    /// The hosted job that each waiter waits for.
    keys: BTreeMap<Deal, HostedId>,
    /// The hosted jobs that are in the orphan table.
    orphans: BTreeMap<JobName, HostedId>,
    /// Finished orphans that are not in stable storage yet; `None` if there is none.
    newly_kept: Option<BTreeSet<JobName>>,
    /// The claims among the outstanding entries, the oldest first.
    claims: BTreeSet<(Token, Peer)>,
    /// True once a hosted job came that had taken down nodes.
    had_crashes: bool,
    /// The last token that was given; none is given twice.
    tokens: u64,
    /// The last key of a hosted job.
    host_keys: u64,
    pub(crate) hands: Hands,
    /// Hosted jobs that the workers were given while each had something to do, and with which none has begun, as far as is known; by the
    /// numbers under which they were given.
    queued: BTreeMap<u64, HostedId>,
    /// Hosted jobs, coming or with the workers, that are tasks of flows, and the bytes that each borrows.
    tasks: BTreeMap<HostedId, u64>,
    /// The bytes that all of them borrow.
    lent: u64,
    pub(crate) holders: Holders,
    pub(crate) kept_here: KeptHere,
    /// Parts that were kept of results which nobody has taken: their keepers are to be told at the end of the turn.
    loose: Vec<Kept>,
    /// The words for each peer that are not said yet.
    pub(crate) outboxes: BTreeMap<Peer, Outbox>,
    pub(crate) tally: Tally,
    /// The repairs among it, by the numbers of the jobs' functions.
    repairs: BTreeMap<u32, u64>,
    /// Recalls that overtook the jobs they are about.
    early_recalls: BTreeSet<Deal>,
    /// A job has come back, or a worker has taken one: there may be something for those who ask.
    look_again: bool,
    /// Set once this node is about to leave: it takes no more jobs.
    pub(crate) draining: bool,
    /// Set in the turn in which this node goes: what is said then is the last.
    pub(crate) leaving: bool,
}

impl Books {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.outboxes.values().filter_map(|outbox| outbox.due).min()
    }

    /// The workers say how many of them have nothing to do.
    pub(crate) fn idle(&mut self, workers: u32) {
        // Fewer idle workers: some have found work, and may have more than they need.
        self.look_again |= self.hands.tell(workers);
    }

    /// A hosted job comes, and waits for its values.
    pub(crate) fn coming(&mut self, key: HostedId) {
        self.hands.expect();
        let shape = self.look(key).and_then(|hosted| hosted.shape);
        if let Some(shape) = shape.filter(|shape| shape.keeps) {
            self.tasks.insert(key, shape.lent);
            self.lent += shape.lent;
        }
    }

    /// A hosted job that was coming will not go to the workers.
    pub(crate) fn no_more_coming(&mut self, key: HostedId) {
        self.hands.no_more_coming();
        self.no_task(key);
    }

    fn no_task(&mut self, key: HostedId) {
        self.lent -= self.tasks.remove(&key).unwrap_or(0);
    }

    /// The workers have that hosted job from now on.
    pub(crate) fn given(&mut self, now: Duration, key: HostedId) {
        let begins = self.hands.begins_at_once();
        let started = self.hands.give(now);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            // One that was held, or has been elsewhere meanwhile, was not waiting for its values.
            if hosted.started == 0 && !hosted.held {
                self.hands.note_way(now.saturating_sub(hosted.came));
            }
            hosted.state = HostedState::Started;
            hosted.started = started;
            hosted.since = now;
            hosted.begun = begins.then_some(now);
        }
        if !begins {
            self.queued.insert(started, key);
        }
        // The workers have a job more: a node that asked in vain may be served now.
        self.look_again = true;
    }

    /// The workers have that hosted job, to hold it for others.
    pub(crate) fn given_to_hold(&mut self, key: HostedId) {
        self.hands.give_to_hold();
        if let Some(hosted) = self.hosted.get_mut(&key) {
            // For the books the workers have it: a thief that asks may be given this job too.
            hosted.state = HostedState::Started;
            // No worker that was idle is busy with it.
            hosted.started = 0;
            hosted.begun = None;
            hosted.held = true;
        }
    }

    /// Hosted jobs that no worker has begun with, as far as is known, beside those for which one waits.
    pub(crate) fn for_later(&self) -> u32 {
        self.hands.coming_for_later() + self.queued.len() as u32
    }

    /// Are there hosted jobs, coming or with the workers, and all of them tasks of flows?
    pub(crate) fn hosts_tasks_alone(&self) -> bool {
        let hosted = self.hands.running() + self.hands.coming();
        hosted > 0 && self.tasks.len() == hosted as usize
    }

    /// The bytes that hosted tasks borrow.
    pub(crate) fn lent(&self) -> u64 {
        self.lent
    }

    /// A worker has done the hosted job, or has stopped with it: it takes the next one that waits, if any does.
    pub(crate) fn ended(&mut self, now: Duration, key: HostedId) {
        let had_begun = self.look(key).is_some_and(|hosted| hosted.begun.is_some());
        self.gone(key);
        if had_begun
            && let Some((_, next)) = self.queued.pop_first()
            && let Some(hosted) = self.hosted.get_mut(&next)
        {
            hosted.begun = Some(now);
        }
    }

    /// The workers do not have that hosted job any more.
    pub(crate) fn gone(&mut self, key: HostedId) {
        if let Some(hosted) = self.look(key)
            // A job that waits for its values, or went onwards, is not with the workers.
            && hosted.state == HostedState::Started
        {
            // 0 for a held job: no idle worker had been counted for it.
            let started = hosted.started;
            self.hands.end(started);
            self.queued.remove(&started);
            self.no_task(key);
        }
    }

    /// Asks for the workers to be asked once more for jobs to give away, though they had none the last time.
    pub(crate) fn look_again(&mut self) {
        self.look_again = true;
    }

    /// Nobody takes that answer: what is kept of it can go.
    pub(crate) fn let_go(&mut self, answer: &Answer) {
        self.loose.extend(answer.kept().cloned());
    }

    /// Takes what can go.
    pub(crate) fn take_loose(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.loose)
    }

    /// Since this was asked last, has anything happened that makes it worth asking the workers again?
    pub(crate) fn take_look_again(&mut self) -> bool {
        std::mem::take(&mut self.look_again)
    }

    /// The outbox of that peer.
    pub(crate) fn outbox(&mut self, peer: Peer) -> &mut Outbox {
        self.outboxes.entry(peer).or_default()
    }

    /// A job that is not wanted any more will come, or has been answered already.
    pub(crate) fn expect(&mut self, deal: Deal) {
        self.early_recalls.insert(deal);
        let of_peer = all_of(deal.peer);
        // A claim that was withdrawn as its answer left never comes again: its recall would stay
        // for ever.
        if self.early_recalls.range(of_peer.clone()).count() > EARLY_RECALLS {
            let oldest = self.early_recalls.range(of_peer).next().copied();
            oldest.map(|oldest| self.early_recalls.remove(&oldest));
        }
    }

    /// Was what comes now recalled before it came?
    pub(crate) fn was_recalled(&mut self, deal: Deal) -> bool {
        self.early_recalls.remove(&deal)
    }

    pub(crate) fn forget_early_recalls(&mut self, peer: Peer) {
        self.early_recalls.retain(|deal| deal.peer != peer);
    }

    /// Has every peer whose answer is here said that it has it?
    pub(crate) fn is_all_said(&self) -> bool {
        self.outboxes.is_empty() && self.is_all_answered()
    }

    /// The number of the root job that this arrival is a part of.
    pub(crate) fn root_number_of(&self, then: &PendingArrival) -> u32 {
        match then {
            PendingArrival::Start(_, parcel) => parcel.id.root_number(),
            PendingArrival::Refuse(key, _) => {
                self.look(*key).map_or(0, |job| job.name.id.root_number())
            }
            PendingArrival::Answer(deal, _) | PendingArrival::Redo(deal, _) => {
                let away = self.look_away(*deal);
                away.map_or(0, |away| away.job.name.id.root_number())
            }
            PendingArrival::Local(..) | PendingArrival::Lost(..) => 0, // the request has its name
        }
    }

    /// The waiter of that theft or claim, and the root job of which the hosted job is a part.
    pub(crate) fn waiting(&self, deal: Deal) -> Option<(RootName, Waiter)> {
        let hosted = self.look(self.key(deal)?)?;
        Some((hosted.root, *hosted.waiters.get(&deal)?))
    }

    /// Is that root job hosted here, or a part of it?
    pub(crate) fn hosts(&self, root: RootName) -> bool {
        self.hosted.values().any(|hosted| hosted.root == root)
    }

    /// Is the result of that root job kept here? Or may it be, because the job was run here for a master that
    /// has not said yet that it has the result?
    pub(crate) fn keeps(&self, root: RootName) -> bool {
        self.find(&root.job_name()).is_some()
    }

    /// Is nothing of others here, and nothing of this node away?
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty() && self.outboxes.is_empty()
    }
}
