//! The entries of the books: the jobs that were stolen from here (outstanding), and those that were stolen
//! by here (hosted).
//!
//! A theft or a claim is named by the other side and the token that the node which waits gave it ([`Deal`]), never by a job's
//! id: a job and its second execution may both be here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::{Deal, DepartureId, HostedId, NodeId, Peer, Spent, Token},
    Books,
};
use crate::job::{
    Answer, Fingerprint, History, JobId, JobName, JobShape, Parcel, RootName, RootRun, Saved,
};

/// The place that a job that is away came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobSource {
    /// A worker of this node had spawned the job.
    Own(DepartureId),
    /// The job was hosted here and went onwards: its answer goes on to its origin.
    Hosted(HostedId),
}

/// A job without its arguments: its name, and the history of earlier runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) name: JobName,
    pub(crate) history: History,
    pub(crate) shape: JobShape,
}

impl Job {
    pub(crate) fn of(parcel: &Parcel) -> Job {
        Job {
            name: parcel.name(),
            history: parcel.history,
            shape: JobShape::of(parcel),
        }
    }
}

/// The way of a stolen job there and back, as far as it is behind it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trip {
    /// When it was sent.
    pub(crate) since: Duration,
    /// The time that it was there.
    pub(crate) spent: Option<Spent>,
}

/// The reason why another node has a job of this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OutstandingKind {
    /// The job was stolen.
    Theft,
    /// The job is an orphan there, and this node claims its result.
    Claim,
}

/// A job that is away.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) source: JobSource,
    pub(crate) kind: OutstandingKind,
    pub(crate) job: Job,
    /// The epoch of the connection it went by; `None` while it waits for one.
    pub(crate) sent: Option<u64>,
    /// The answer is here, and waits for shared values.
    pub(crate) answering: bool,
    /// True if the thief may have begun with it, as far as this node knows.
    pub(crate) begun: bool,
    /// Nodes that the hosted job around it had taken down before that came here.
    pub(crate) above: u32,
    /// Its way; `None` of a claim.
    pub(crate) trip: Option<Trip>,
}

impl Outstanding {
    /// Did the thief begin with a job that has taken down others? If it answers, it has run the job, and lives.
    pub(crate) fn has_survived(&self) -> bool {
        self.begun && self.job.history.crashes > 0
    }
}

/// How far a hosted job is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum HostedState {
    /// Shared values of the job, or its origin's leave to begin, are not here yet.
    Coming,
    /// The workers have the job.
    Started,
    /// A node took it onwards before it was started. The parcel is kept in case the job comes back.
    Onwards(Deal, Box<Parcel>),
    /// Done; the answer is kept until all who wait for it have it, and as long as it may be claimed.
    Done(Answer),
}

/// The answer is to be sent at the end of the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotSent;

/// A peer, or this node itself, that waits for the answer of a hosted job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    /// The job was stolen from it; others claim it.
    pub(crate) origin: bool,
    /// The epoch of the connection by which the job, or the claim, came.
    pub(crate) came: u64,
    /// The epoch of the connection that the answer went by: `Err` if it was not sent yet, `Ok(None)` if it waits for a
    /// connection.
    pub(crate) sent: Result<Option<u64>, NotSent>,
}

/// A hosted job.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    pub(crate) name: JobName,
    /// The root job that it belongs to.
    pub(crate) root: RootName,
    /// The term of the run of that root job of which it is a part.
    pub(crate) term: u32,
    /// What it looked like when it came; `None` if only its result did.
    pub(crate) shape: Option<JobShape>,
    pub(crate) waiters: BTreeMap<Deal, Waiter>,
    /// The job is in the orphan table of this node: a claim may come.
    pub(crate) orphan: bool,
    pub(crate) state: HostedState,
    /// The number under which it was given to the workers, in the order of such things.
    pub(crate) started: u64,
    /// When its origin sent it, in milliseconds since 1970 of that node's clock; 0 if that is not known.
    pub(crate) sent_ms: u64,
    /// When the job came.
    pub(crate) came: Duration,
    /// When the job was given to the workers.
    pub(crate) since: Duration,
    /// When a worker began with it, as far as that is known.
    pub(crate) begun: Option<Duration>,
    /// The node that owns the job, as its parcel says; none if only its result came.
    pub(crate) owner: NodeId,
    /// Someone who waited for the answer has it: what is kept of it is the owner's to let go.
    pub(crate) taken: bool,
    /// The answer is not waited for any more; the workers have not stopped yet.
    pub(crate) unwanted: bool,
    /// The workers are stopping with it; what is finished is to be kept.
    pub(crate) given_up: bool,
    /// Nodes that the job had taken down when it came.
    pub(crate) crashes: u32,
    /// The parcel, while the job waits for its origin's leave to begin.
    pub(crate) asks: Option<Box<Parcel>>,
    /// The job need not ask: its origin has given leave to begin, or no origin waits any more.
    pub(crate) may_begin: bool,
    /// True if the job is held: only others are to run it.
    pub(crate) held: bool,
}

impl Hosted {
    pub(crate) fn is_waited_for_by(&self, peer: Peer) -> bool {
        self.waiters.range(all_of(peer)).next().is_some()
    }

    /// Has the job not begun, as something is missing here?
    pub(crate) fn is_coming(&self) -> bool {
        self.state == HostedState::Coming
    }

    /// The node that the job came from, if one of those that wait for it is.
    pub(crate) fn origin(&self) -> Option<Peer> {
        let mut waiters = self.waiters.iter();
        let (deal, _) = waiters.find(|(_, waiter)| waiter.origin)?;
        Some(deal.peer)
    }

    /// The answer, once the job is done.
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match &self.state {
            HostedState::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns an answer under the job's name, as others keep it.
    pub(crate) fn saved(&self, answer: Answer) -> Saved {
        Saved {
            name: self.name.clone(),
            root: self.root.fingerprint,
            answer,
        }
    }
}

/// In place of a peer: this node itself, whichever life it is in. No node has that name.
pub(crate) const HERE: Peer = Peer {
    id: NodeId(u128::MAX),
    generation: u32::MAX,
};

/// The deals with that peer.
pub(super) const fn all_of(peer: Peer) -> std::ops::RangeInclusive<Deal> {
    Deal::new(peer, Token(0))..=Deal::new(peer, Token(u64::MAX))
}

impl Books {
    // ---- away

    /// A job of that function is put back, as the node that had it is gone or has given it up.
    pub(crate) fn count_repair(&mut self, function: u32) {
        self.tally.repairs += 1;
        *self.repairs.entry(function).or_default() += 1;
    }

    /// How often that was, by the numbers of the functions.
    pub(crate) fn repairs(&self) -> &BTreeMap<u32, u64> {
        &self.repairs
    }

    /// A job goes to a peer, or its result is claimed there.
    pub(crate) fn away(
        &mut self,
        peer: Peer,
        source: JobSource,
        kind: OutstandingKind,
        job: Job,
        sent: Option<u64>,
    ) -> Deal {
        self.tokens += 1;
        let deal = Deal::new(peer, Token(self.tokens));
        // A hosted job that goes onwards has its whereabouts in its own entry.
        if let JobSource::Own(departure) = source {
            self.departures.insert(departure, deal);
        }
        // The thief of a job that has taken down nodes says `Begin`; of any other job the theft counts as the beginning.
        let job_is_new = job.history.crashes == 0;
        let outstanding = Outstanding {
            source,
            kind,
            job,
            sent,
            answering: false,
            begun: job_is_new,
            above: 0,
            trip: None,
        };
        self.outstanding.insert(deal, outstanding);
        // Claims stand apart too, in the order of their tokens: a node that is stuck withdraws the
        // youngest.
        if kind == OutstandingKind::Claim {
            self.claims.insert((deal.token, deal.peer));
        }
        deal
    }

    /// The number of nodes that the hosted jobs around that one took down before they came.
    pub(crate) fn crashes_above(&self, id: &JobId) -> u32 {
        // Asked for every job that leaves: without such a job nothing is searched.
        if !self.had_crashes {
            return 0;
        }
        let above = |hosted: &&Hosted| hosted.crashes > 0 && hosted.name.id.is_ancestor_of(id);
        let above = self.hosted.values().filter(above);
        // The job itself counts through the table. One that has not started cannot have
        // spawned this one.
        let above =
            above.filter(|hosted| hosted.name.id != *id && hosted.state == HostedState::Started);
        above.map(|hosted| hosted.crashes).max().unwrap_or(0)
    }

    /// Notes how many nodes the jobs around an outstanding one have taken down.
    pub(crate) fn count_above(&mut self, deal: Deal, above: u32) {
        if let Some(away) = self.outstanding.get_mut(&deal) {
            away.above = above;
        }
    }

    pub(crate) fn outstanding(&mut self, deal: Deal) -> Option<&mut Outstanding> {
        self.outstanding.get_mut(&deal)
    }

    pub(crate) fn look_away(&self, deal: Deal) -> Option<&Outstanding> {
        self.outstanding.get(&deal)
    }

    /// Have workers of this node spawned that job which is away?
    pub(crate) fn is_of_workers(&self, deal: Deal) -> bool {
        let away = self.look_away(deal);
        away.is_some_and(|away| matches!(away.source, JobSource::Own(_)))
    }

    /// Strikes out an outstanding job: it is not away any more.
    pub(crate) fn back(&mut self, deal: Deal) -> Option<Outstanding> {
        let outstanding = self.outstanding.remove(&deal)?;
        // From here on the token is void: an answer that still comes changes nothing.
        self.claims.remove(&(deal.token, deal.peer));
        if let JobSource::Own(departure) = outstanding.source {
            self.departures.remove(&departure);
        }
        Some(outstanding)
    }

    /// Undoes [`Books::back`]: simulations show what goes wrong if a token stays valid.
    pub(crate) fn restore(&mut self, deal: Deal, away: Outstanding) {
        self.claims.insert((deal.token, deal.peer));
        self.outstanding.insert(deal, away);
    }

    /// The youngest claim without an answer; claims at this very node come first.
    pub(crate) fn youngest_claim(&self) -> Option<Deal> {
        let claims = self.claims.iter();
        let claims = claims.map(|(token, peer)| Deal::new(*peer, *token));
        // An answer that is here, and only waits for its values, will end the claim by itself.
        let waits = |deal: &Deal| !self.outstanding[deal].answering;
        claims
            .filter(waits)
            .max_by_key(|deal| (deal.peer == HERE, deal.token))
    }

    pub(crate) fn whereabouts(&self, departure: DepartureId) -> Option<Deal> {
        self.departures.get(&departure).copied()
    }

    /// The outstanding jobs that a peer has.
    pub(crate) fn at(&self, peer: Peer) -> impl Iterator<Item = (Deal, &Outstanding)> {
        let range = self.outstanding.range(all_of(peer));
        range.map(|(deal, outstanding)| (*deal, outstanding))
    }

    // ---- hosted

    /// A job came from a peer; `None` if it is here already.
    pub(crate) fn host(
        &mut self,
        now: Duration,
        deal: Deal,
        came: u64,
        sent_ms: u64,
        parcel: &Parcel,
    ) -> Option<HostedId> {
        // A token is given once: the same job was said twice.
        if self.keys.contains_key(&deal) {
            return None;
        }
        let key = self.enter(parcel.name(), parcel.root_run(), HostedState::Coming);
        self.wait(key, deal, came, true);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.came = now;
            hosted.sent_ms = sent_ms;
            hosted.crashes = parcel.history.crashes;
            hosted.shape = Some(JobShape::of(parcel));
            hosted.owner = NodeId(parcel.owner);
            self.had_crashes |= hosted.crashes > 0;
        }
        Some(key)
    }

    fn enter(&mut self, name: JobName, run: RootRun, state: HostedState) -> HostedId {
        self.host_keys += 1;
        let key = HostedId(self.host_keys);
        let hosted = Hosted {
            name,
            root: run.name,
            term: run.term,
            shape: None,
            waiters: BTreeMap::new(),
            orphan: false,
            state,
            started: 0,
            sent_ms: 0,
            came: Duration::ZERO,
            since: Duration::ZERO,
            begun: None,
            owner: NodeId(0),
            taken: false,
            unwanted: false,
            given_up: false,
            crashes: 0,
            asks: None,
            may_begin: false,
            held: false,
        };
        self.hosted.insert(key, hosted);
        key
    }

    /// A result that is to be kept here from that term on; `None` if there is one, or it is on its way.
    pub(crate) fn keep(&mut self, term: u32, saved: &Saved) -> Option<HostedId> {
        // An orphan that still runs does not count: the result that is there is better.
        if let Some(key) = self.orphans.get(&saved.name)
            && matches!(self.hosted[key].state, HostedState::Done(_))
        {
            return None;
        }
        let state = HostedState::Done(saved.answer.clone());
        let run = RootRun {
            term,
            name: saved.root_name(),
        };
        Some(self.enter(saved.name.clone(), run, state))
    }

    /// Enters a waiter for the answer of a hosted job.
    pub(crate) fn wait(&mut self, key: HostedId, deal: Deal, came: u64, origin: bool) {
        if let Some(hosted) = self.hosted.get_mut(&key) {
            let sent = Err(NotSent);
            let waiter = Waiter { origin, came, sent };
            hosted.waiters.insert(deal, waiter);
            self.keys.insert(deal, key);
        }
    }

    /// Strikes out a waiter.
    pub(crate) fn unwait(&mut self, deal: Deal) -> Option<HostedId> {
        let key = self.keys.remove(&deal)?;
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.waiters.remove(&deal);
        }
        Some(key)
    }

    /// Makes a hosted job an orphan. False if there is another orphan of that name, which is as good.
    pub(crate) fn orphan(&mut self, key: HostedId) -> bool {
        let Some(hosted) = self.hosted.get_mut(&key) else {
            return false;
        };
        // A claim names the job alone, so the table and the books have one orphan of a name.
        let first = *self.orphans.entry(hosted.name.clone()).or_insert(key) == key;
        hosted.orphan |= first;
        first
    }

    /// Takes a hosted job out of the orphans.
    pub(crate) fn no_orphan(&mut self, key: HostedId) {
        if let Some(hosted) = self.hosted.get_mut(&key)
            // Only the orphan of that name is struck out, not another job with the same name.
            && std::mem::take(&mut hosted.orphan)
        {
            self.orphans.remove(&hosted.name);
            if let Some(newly_kept) = &mut self.newly_kept {
                newly_kept.remove(&hosted.name);
            }
        }
    }

    // ---- stable storage

    /// From now on it is noted which finished orphans are not in stable storage yet.
    pub(crate) fn note_kept(&mut self) {
        self.newly_kept = Some(BTreeSet::new());
    }

    /// Takes the finished orphans that are to be written.
    pub(crate) fn take_newly_kept(&mut self) -> BTreeSet<JobName> {
        let newly_kept = self.newly_kept.as_mut();
        newly_kept.map(std::mem::take).unwrap_or_default()
    }

    /// Of the finished orphans that are to be written, only these are.
    pub(crate) fn retain_newly_kept(&mut self, retained: impl FnMut(&JobName) -> bool) {
        if let Some(newly_kept) = &mut self.newly_kept {
            newly_kept.retain(retained);
        }
    }

    /// These orphans are finished, and to be written.
    pub(crate) fn keep_anew(&mut self, names: impl IntoIterator<Item = JobName>) {
        let names: Vec<JobName> = (names.into_iter())
            .filter(|name| self.orphans.contains_key(name))
            .collect();
        if let Some(newly_kept) = &mut self.newly_kept {
            newly_kept.extend(names);
        }
    }

    /// The orphan of that name.
    pub(crate) fn orphan_of(&self, name: &JobName) -> Option<HostedId> {
        self.orphans.get(name).copied()
    }

    /// Is that an answer of which a part was kept here, and is not any more? Nobody can use it.
    pub(crate) fn is_hollow(&self, key: HostedId, me: NodeId) -> bool {
        let answer = self.look(key).and_then(Hosted::answer);
        let kept = answer.and_then(Answer::kept);
        kept.filter(|kept| kept.at == me.0).is_some_and(|kept| {
            let mut values = kept.values.iter();
            values.any(|value| !self.kept_here.has(value.name))
        })
    }

    /// Orphans at or below that job.
    pub(crate) fn orphans_below(&self, id: &JobId) -> Vec<HostedId> {
        let from = JobName::new(id.clone(), Fingerprint(0));
        let below = self.orphans.range(from..);
        let below = below.take_while(|(name, _)| id.is_ancestor_of(&name.id));
        below.map(|(_, key)| *key).collect()
    }

    /// Finds a job of that name that is here, orphan or not, and whose answer may be waited for. A job that
    /// was refused is not found: its new waiter would be refused too, and try again, as often as words
    /// go there and back.
    pub(crate) fn find(&self, name: &JobName) -> Option<HostedId> {
        let undone = |hosted: &Hosted| {
            let answer = hosted.answer();
            answer.is_some_and(Answer::is_undone)
        };
        let here = |hosted: &Hosted| hosted.name == *name && !hosted.unwanted && !undone(hosted);
        // The orphan first, which is one look-up, and may be finished.
        self.orphan_of(name).or_else(|| {
            let mut all = self.hosted.iter();
            all.find(|(_, hosted)| here(hosted)).map(|(key, _)| *key)
        })
    }

    pub(crate) fn look(&self, key: HostedId) -> Option<&Hosted> {
        self.hosted.get(&key)
    }

    pub(crate) fn hosted(&mut self, key: HostedId) -> Option<&mut Hosted> {
        self.hosted.get_mut(&key)
    }

    /// The hosted job that is the subject of that deal.
    pub(crate) fn key(&self, deal: Deal) -> Option<HostedId> {
        self.keys.get(&deal).copied()
    }

    /// Makes a theft a claim, as the thief has the job already. True if that is news.
    pub(crate) fn make_claim(&mut self, deal: Deal) -> bool {
        let Some(away) = self.outstanding.get_mut(&deal) else {
            return false;
        };
        away.kind = OutstandingKind::Claim;
        self.claims.insert((deal.token, deal.peer))
    }

    /// Lets this node run the hosted jobs that were held for others.
    pub(crate) fn release(&mut self) {
        for hosted in self.hosted.values_mut() {
            hosted.held = false;
        }
    }

    /// Strikes out all waiters of a hosted job that the workers have not stopped with yet.
    pub(crate) fn disown(&mut self, key: HostedId) {
        // No claim may find a job that is being stopped.
        self.no_orphan(key);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.unwanted = true;
            for waiter in std::mem::take(&mut hosted.waiters).keys() {
                self.keys.remove(waiter);
            }
        }
    }

    pub(crate) fn give_up(&mut self, key: HostedId) {
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.given_up = true;
        }
    }

    pub(crate) fn is_giving_up(&self) -> bool {
        self.hosted.values().any(|hosted| hosted.given_up)
    }

    /// Is no job away, and every hosted job done?
    pub(crate) fn is_at_rest(&self) -> bool {
        let done = |hosted: &Hosted| matches!(hosted.state, HostedState::Done(_));
        self.outstanding.is_empty() && self.hosted.values().all(done)
    }

    /// Does one node wait for all hosted jobs?
    pub(crate) fn hosts_for_one(&self) -> bool {
        let (first, last) = (self.keys.first_key_value(), self.keys.last_key_value());
        first.map(|(deal, _)| deal.peer) == last.map(|(deal, _)| deal.peer)
    }

    /// Is any job here that came from another node, or any result that is kept?
    pub(crate) fn hosts_any(&self) -> bool {
        !self.hosted.is_empty()
    }

    /// Does this node wait for a job at another?
    pub(crate) fn waits(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Has every finished answer been acknowledged?
    pub(super) fn is_all_answered(&self) -> bool {
        let mut all = self.hosted.values();
        all.all(|hosted| hosted.waiters.is_empty() || !matches!(hosted.state, HostedState::Done(_)))
    }

    /// The finished orphans.
    pub(crate) fn legacy(&self) -> Vec<Saved> {
        let orphans = self.orphans.values().map(|key| &self.hosted[key]);
        let finished = orphans.filter_map(|hosted| Some(hosted.saved(hosted.answer()?.clone())));
        finished.collect()
    }

    /// The root jobs of which orphans are here.
    pub(crate) fn roots_of_orphans(&self) -> impl Iterator<Item = RootName> + '_ {
        self.orphans.values().map(|key| self.hosted[key].root)
    }

    /// The finished orphans that are root jobs.
    pub(crate) fn root_results(&self) -> Vec<JobName> {
        let orphans = self.orphans.iter();
        let roots = orphans.filter(|(name, key)| {
            name.id.is_root_job() && matches!(self.hosted[key].state, HostedState::Done(_))
        });
        roots.map(|(name, _)| name.clone()).collect()
    }

    /// The finished orphans that are root jobs, the oldest first, and how large their results are.
    pub(crate) fn root_results_by_size(&self) -> Vec<(HostedId, usize)> {
        // In the order of ids, which is that of the root jobs' numbers.
        let roots = (self.orphans.iter()).filter(|(name, _)| name.id.is_root_job());
        let sizes = roots.filter_map(|(_, key)| match &self.hosted[key].state {
            HostedState::Done(answer) => Some((*key, answer.size())),
            _ => None,
        });
        sizes.collect()
    }

    /// Strikes out a hosted job.
    pub(crate) fn forget(&mut self, key: HostedId) -> Option<Hosted> {
        self.no_orphan(key);
        let hosted = self.hosted.remove(&key)?;
        for waiter in hosted.waiters.keys() {
            self.keys.remove(waiter);
        }
        if let HostedState::Done(answer) = &hosted.state
            && !hosted.taken
        {
            self.let_go(answer);
        }
        Some(hosted)
    }

    /// A peer that waits for the answer has it. What is kept of it is for the owner of the job, or for whoever has claimed it.
    pub(crate) fn take(&mut self, key: HostedId, deal: Deal) {
        let Some(hosted) = self.hosted.get_mut(&key) else {
            return;
        };
        if std::mem::replace(&mut hosted.taken, true) || deal.peer == HERE {
            return;
        }
        let is_origin = (hosted.waiters.get(&deal)).is_some_and(|waiter| waiter.origin);
        let by = match is_origin {
            true => hosted.owner,
            false => deal.peer.id,
        };
        if let HostedState::Done(answer) = &hosted.state
            && answer.kept().is_some()
        {
            let saved = hosted.saved(answer.clone());
            self.kept_here.taken(by, hosted.term, saved);
        }
    }

    /// The orphan of that name had been taken by a node that is gone: it is nobody's again. False if it is not here.
    pub(crate) fn untake(&mut self, name: &JobName) -> bool {
        let key = self.orphan_of(name);
        let hosted = key.and_then(|key| self.hosted.get_mut(&key));
        let done = hosted.filter(|hosted| hosted.answer().is_some());
        done.is_some_and(|hosted| std::mem::replace(&mut hosted.taken, false))
    }

    /// The hosted jobs that a peer waits for.
    pub(crate) fn of(&self, origin: Peer) -> impl Iterator<Item = (Deal, HostedId)> {
        let range = self.keys.range(all_of(origin));
        range.map(|(deal, key)| (*deal, *key))
    }

    /// The hosted jobs that a peer waits for, and that came by connections before this epoch.
    pub(crate) fn of_before(
        &self,
        origin: Peer,
        epoch: u64,
    ) -> impl Iterator<Item = (Deal, HostedId)> {
        let came = move |deal: &Deal, key: &HostedId| self.hosted[key].waiters[deal].came;
        self.of(origin)
            .filter(move |(deal, key)| came(deal, key) < epoch)
    }

    /// This node comes in, and the pool is in that term: results that are kept here from another side of a cut count as kept since then.
    pub(crate) fn come_in(&mut self, term: u32) {
        for hosted in self.hosted.values_mut() {
            hosted.term = term;
        }
    }

    pub(crate) fn hosted_keys(&self) -> impl Iterator<Item = HostedId> {
        self.hosted.keys().copied()
    }

    /// The deals of all outstanding jobs.
    pub(crate) fn all_away(&self) -> impl Iterator<Item = Deal> {
        self.outstanding.keys().copied()
    }

    // ---- both

    /// Is anything under way between here and there?
    pub(crate) fn concern(&self, peer: Peer) -> bool {
        self.at(peer).next().is_some() || self.of(peer).next().is_some()
    }

    /// Notes the epoch of a new connection: jobs and answers that waited for one went by it.
    pub(crate) fn connected(&mut self, peer: Peer, epoch: u64) {
        for (_, outstanding) in self.outstanding.range_mut(all_of(peer)) {
            // An older epoch stays: words that went by that connection may be lost.
            outstanding.sent.get_or_insert(epoch);
        }
        for (deal, key) in self.keys.range(all_of(peer)) {
            if let Some(hosted) = self.hosted.get_mut(key)
                && let Some(Waiter { sent: Ok(sent), .. }) = hosted.waiters.get_mut(deal)
            {
                sent.get_or_insert(epoch);
            }
        }
    }

    /// The entries of all outstanding jobs, without those that this node waits for at itself.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn all_outstanding(&self) -> impl Iterator<Item = (Deal, &Outstanding)> {
        let away = self.outstanding.iter().map(|(deal, away)| (*deal, away));
        away.filter(|(deal, _)| deal.peer != HERE)
    }

    /// The entries of all hosted jobs.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn all_hosted(&self) -> impl Iterator<Item = (HostedId, &Hosted)> {
        self.hosted.iter().map(|(key, hosted)| (*key, hosted))
    }

    /// Is no job under way? Results that are kept for later claims do not count.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn is_empty(&self) -> bool {
        let kept = |hosted: &Hosted| {
            hosted.orphan
                && hosted.waiters.is_empty()
                && matches!(hosted.state, HostedState::Done(_))
        };
        self.outstanding.is_empty() && self.hosted.values().all(kept)
    }
}
