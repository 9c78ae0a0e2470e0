//! The entries of the books: what was stolen from here (outstanding), and what was stolen by here (hosted).
//!
//! A theft is named by the other side and the token that the victim gave it, never by a job's id: a job and its second
//! execution may both be here.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{Departure, HostKey, NodeId, Peer, Token},
    Books,
};
use crate::job::{Answer, Fingerprint, JobId, Parcel, Repair, RootName, RootRun, Saved};

/// Where a job that is away came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A worker of this node had spawned the job.
    Own(Departure),
    /// The job was hosted here and went onwards: its answer goes on to its origin.
    Hosted(HostKey),
}

/// A job without its arguments: its name, and what is known of earlier runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) repair: Repair,
}

impl Job {
    pub(crate) fn of(parcel: &Parcel) -> Job {
        Job {
            id: parcel.id.clone(),
            fingerprint: parcel.fingerprint,
            repair: parcel.repair,
        }
    }
}

/// Why somebody else has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The job was stolen.
    Theft,
    /// The job is an orphan there, and this node claims its result.
    Claim,
}

/// A job that is away.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) source: Source,
    pub(crate) kind: Kind,
    pub(crate) job: Job,
    /// The epoch of the connection it went by; `None` while it waits for one.
    pub(crate) sent: Option<u64>,
    /// The answer is here, and waits for shared values.
    pub(crate) answering: bool,
    /// As far as this node knows the thief may have begun with it.
    pub(crate) begun: bool,
    /// Nodes that the hosted job around it had taken down before that came here.
    pub(crate) above: u32,
}

/// How far a hosted job is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum State {
    /// Shared values of the job, or its origin's leave to begin, are not here yet.
    Coming,
    /// The workers have it.
    Started,
    /// Another node took it before it was started. The parcel is kept in case it comes back.
    Onwards(Peer, Token, Box<Parcel>),
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
    pub(crate) id: JobId,
    pub(crate) fingerprint: Fingerprint,
    /// The root job that it belongs to.
    pub(crate) root: RootName,
    /// The term of the run of that root job of which it is a part.
    pub(crate) term: u32,
    pub(crate) waiters: BTreeMap<(Peer, Token), Waiter>,
    /// The job is in the orphan table of this node: a claim may come.
    pub(crate) orphan: bool,
    pub(crate) state: State,
    /// When it was given to the workers, in the order of such things.
    pub(crate) started: u64,
    /// When that was.
    pub(crate) since: Duration,
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
    /// Only others are to run it.
    pub(crate) held: bool,
}

impl Hosted {
    pub(crate) fn is_waited_for_by(&self, peer: Peer) -> bool {
        self.waiters.range(all_of(peer)).next().is_some()
    }

    /// The answer, once the job is done.
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match &self.state {
            State::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// That answer under the job's name, as others keep it.
    pub(crate) fn saved(&self, answer: Answer) -> Saved {
        Saved {
            id: self.id.clone(),
            fingerprint: self.fingerprint,
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

const fn all_of(peer: Peer) -> std::ops::RangeInclusive<(Peer, Token)> {
    (peer, Token(0))..=(peer, Token(u64::MAX))
}

impl Books {
    // ---- away

    /// A job goes to a peer, or its result is claimed there.
    pub(crate) fn away(
        &mut self,
        peer: Peer,
        (source, kind): (Source, Kind),
        job: Job,
        sent: Option<u64>,
    ) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        if let Source::Own(departure) = source {
            self.departures.insert(departure, (peer, token));
        }
        // The thief of a job that has taken down nodes says `Begin`; of any other job the theft counts as the beginning.
        let job_is_new = job.repair.crashes == 0;
        let outstanding = Outstanding {
            source,
            kind,
            job,
            sent,
            answering: false,
            begun: job_is_new,
            above: 0,
        };
        self.outstanding.insert((peer, token), outstanding);
        if kind == Kind::Claim {
            self.claims.insert((token, peer));
        }
        token
    }

    /// How many nodes the hosted jobs that it is a part of took down before they came.
    pub(crate) fn crashes_above(&self, id: &JobId) -> u32 {
        if !self.had_crashes {
            return 0;
        }
        let above = |hosted: &&Hosted| hosted.crashes > 0 && hosted.id.is_ancestor_of(id);
        let above = self.hosted.values().filter(above);
        let above = above.filter(|hosted| hosted.id != *id && hosted.state == State::Started);
        above.map(|hosted| hosted.crashes).max().unwrap_or(0)
    }

    /// Notes how many nodes the jobs around an outstanding one have taken down.
    pub(crate) fn count_above(&mut self, peer: Peer, token: Token, above: u32) {
        if let Some(away) = self.outstanding.get_mut(&(peer, token)) {
            away.above = above;
        }
    }

    pub(crate) fn outstanding(&mut self, peer: Peer, token: Token) -> Option<&mut Outstanding> {
        self.outstanding.get_mut(&(peer, token))
    }

    pub(crate) fn look_away(&self, peer: Peer, token: Token) -> Option<&Outstanding> {
        self.outstanding.get(&(peer, token))
    }

    /// Strikes out an outstanding job: it is not away any more.
    pub(crate) fn back(&mut self, peer: Peer, token: Token) -> Option<Outstanding> {
        let outstanding = self.outstanding.remove(&(peer, token))?;
        self.claims.remove(&(token, peer));
        if let Source::Own(departure) = outstanding.source {
            self.departures.remove(&departure);
        }
        Some(outstanding)
    }

    /// As if [`Books::back`] had not been called: what goes wrong then, simulations show.
    pub(crate) fn restore(&mut self, peer: Peer, token: Token, away: Outstanding) {
        self.claims.insert((token, peer));
        self.outstanding.insert((peer, token), away);
    }

    /// The youngest claim for which nobody has an answer yet, one of this node's own first.
    pub(crate) fn youngest_claim(&self) -> Option<(Peer, Token)> {
        let claims = self.claims.iter().map(|(token, peer)| (*peer, *token));
        let waits = |key: &(Peer, Token)| !self.outstanding[key].answering;
        claims
            .filter(waits)
            .max_by_key(|(peer, token)| (*peer == HERE, *token))
    }

    pub(crate) fn whereabouts(&self, departure: Departure) -> Option<(Peer, Token)> {
        self.departures.get(&departure).copied()
    }

    /// The outstanding jobs that a peer has.
    pub(crate) fn at(&self, peer: Peer) -> impl Iterator<Item = (Token, &Outstanding)> {
        let range = self.outstanding.range(all_of(peer));
        range.map(|((_, token), outstanding)| (*token, outstanding))
    }

    // ---- hosted

    /// A job came from a peer; `None` if it is here already.
    pub(crate) fn host(
        &mut self,
        origin: Peer,
        token: Token,
        came: u64,
        parcel: &Parcel,
    ) -> Option<HostKey> {
        if self.keys.contains_key(&(origin, token)) {
            return None;
        }
        let key = self.enter(
            parcel.id.clone(),
            parcel.fingerprint,
            parcel.root_run(),
            State::Coming,
        );
        self.wait(key, (origin, token), came, true);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.crashes = parcel.repair.crashes;
            self.had_crashes |= hosted.crashes > 0;
        }
        Some(key)
    }

    fn enter(
        &mut self,
        id: JobId,
        fingerprint: Fingerprint,
        run: RootRun,
        state: State,
    ) -> HostKey {
        self.host_keys += 1;
        let key = HostKey(self.host_keys);
        let hosted = Hosted {
            id,
            fingerprint,
            root: run.name,
            term: run.term,
            waiters: BTreeMap::new(),
            orphan: false,
            state,
            started: 0,
            since: Duration::ZERO,
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
    pub(crate) fn keep(&mut self, term: u32, saved: &Saved) -> Option<HostKey> {
        let name = (saved.id.clone(), saved.fingerprint);
        if let Some(key) = self.orphans.get(&name)
            && matches!(self.hosted[key].state, State::Done(_))
        {
            return None;
        }
        let state = State::Done(saved.answer.clone());
        let run = RootRun {
            term,
            name: saved.root_name(),
        };
        Some(self.enter(name.0, name.1, run, state))
    }

    /// Enters a waiter for the answer of a hosted job.
    pub(crate) fn wait(&mut self, key: HostKey, waiter: (Peer, Token), came: u64, origin: bool) {
        if let Some(hosted) = self.hosted.get_mut(&key) {
            let sent = Err(NotSent);
            let is = Waiter { origin, came, sent };
            hosted.waiters.insert(waiter, is);
            self.keys.insert(waiter, key);
        }
    }

    /// Strikes out a waiter.
    pub(crate) fn unwait(&mut self, peer: Peer, token: Token) -> Option<HostKey> {
        let key = self.keys.remove(&(peer, token))?;
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.waiters.remove(&(peer, token));
        }
        Some(key)
    }

    /// Makes a hosted job an orphan. False if there is another orphan of that name, which is as good.
    pub(crate) fn orphan(&mut self, key: HostKey) -> bool {
        let Some(hosted) = self.hosted.get_mut(&key) else {
            return false;
        };
        let name = (hosted.id.clone(), hosted.fingerprint);
        let first = *self.orphans.entry(name).or_insert(key) == key;
        hosted.orphan |= first;
        first
    }

    /// Takes a hosted job out of the orphans.
    pub(crate) fn no_orphan(&mut self, key: HostKey) {
        if let Some(hosted) = self.hosted.get_mut(&key)
            && std::mem::take(&mut hosted.orphan)
        {
            self.orphans
                .remove(&(hosted.id.clone(), hosted.fingerprint));
        }
    }

    /// The orphan of that name.
    pub(crate) fn orphan_of(&self, id: &JobId, fingerprint: Fingerprint) -> Option<HostKey> {
        self.orphans.get(&(id.clone(), fingerprint)).copied()
    }

    /// Orphans at or below that job.
    pub(crate) fn orphans_below(&self, id: &JobId) -> Vec<HostKey> {
        let from = (id.clone(), Fingerprint(0));
        let below = self.orphans.range(from..);
        let below = below.take_while(|((at, _), _)| id.is_ancestor_of(at));
        below.map(|(_, key)| *key).collect()
    }

    /// A job of that name that is here, orphan or not, and whose answer somebody waits for. Not one that was refused: whoever
    /// waited for that would be refused too, and try again, as often as words go there and back.
    pub(crate) fn find(&self, id: &JobId, fingerprint: Fingerprint) -> Option<HostKey> {
        let undone = |hosted: &Hosted| {
            let answer = &hosted.state;
            matches!(answer, State::Done(Answer::Refused(_) | Answer::Aborted))
        };
        let here = |hosted: &Hosted| {
            let named = hosted.fingerprint == fingerprint && hosted.id == *id;
            named && !hosted.unwanted && !undone(hosted)
        };
        self.orphan_of(id, fingerprint).or_else(|| {
            let mut all = self.hosted.iter();
            all.find(|(_, hosted)| here(hosted)).map(|(key, _)| *key)
        })
    }

    pub(crate) fn look(&self, key: HostKey) -> Option<&Hosted> {
        self.hosted.get(&key)
    }

    pub(crate) fn hosted(&mut self, key: HostKey) -> Option<&mut Hosted> {
        self.hosted.get_mut(&key)
    }

    pub(crate) fn key(&self, origin: Peer, token: Token) -> Option<HostKey> {
        self.keys.get(&(origin, token)).copied()
    }

    /// The thief has it already: it is a claim there. True if that is news.
    pub(crate) fn is_claim(&mut self, peer: Peer, token: Token) -> bool {
        let Some(away) = self.outstanding.get_mut(&(peer, token)) else {
            return false;
        };
        away.kind = Kind::Claim;
        self.claims.insert((token, peer))
    }

    /// Lets this node run the hosted jobs that were held for others.
    pub(crate) fn release(&mut self) {
        for hosted in self.hosted.values_mut() {
            hosted.held = false;
        }
    }

    /// Strikes out all waiters of a hosted job that the workers have not stopped with yet.
    pub(crate) fn disown(&mut self, key: HostKey) {
        self.no_orphan(key);
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.unwanted = true;
            for waiter in std::mem::take(&mut hosted.waiters).keys() {
                self.keys.remove(waiter);
            }
        }
    }

    pub(crate) fn give_up(&mut self, key: HostKey) {
        if let Some(hosted) = self.hosted.get_mut(&key) {
            hosted.given_up = true;
        }
    }

    pub(crate) fn is_giving_up(&self) -> bool {
        self.hosted.values().any(|hosted| hosted.given_up)
    }

    /// Is nothing away, and nothing of others here that is not done?
    pub(crate) fn is_at_rest(&self) -> bool {
        let done = |hosted: &Hosted| matches!(hosted.state, State::Done(_));
        self.outstanding.is_empty() && self.hosted.values().all(done)
    }

    /// Does this node wait for a job at another?
    pub(crate) fn waits(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Does nobody wait for an answer that is here?
    pub(super) fn is_all_answered(&self) -> bool {
        let mut all = self.hosted.values();
        all.all(|hosted| hosted.waiters.is_empty() || !matches!(hosted.state, State::Done(_)))
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
    pub(crate) fn root_results(&self) -> Vec<(JobId, Fingerprint)> {
        let orphans = self.orphans.iter();
        let roots = orphans.filter(|((id, _), key)| {
            id.is_root_job() && matches!(self.hosted[key].state, State::Done(_))
        });
        roots.map(|(name, _)| name.clone()).collect()
    }

    /// The finished orphans that are root jobs, the oldest first, and how large their results are.
    pub(crate) fn root_results_by_size(&self) -> Vec<(HostKey, usize)> {
        let roots = (self.orphans.iter()).filter(|((id, _), _)| id.is_root_job());
        let sizes = roots.filter_map(|(_, key)| match &self.hosted[key].state {
            State::Done(answer) => Some((*key, answer.size())),
            _ => None,
        });
        sizes.collect()
    }

    /// Strikes out a hosted job.
    pub(crate) fn forget(&mut self, key: HostKey) -> Option<Hosted> {
        self.no_orphan(key);
        let hosted = self.hosted.remove(&key)?;
        for waiter in hosted.waiters.keys() {
            self.keys.remove(waiter);
        }
        Some(hosted)
    }

    /// The hosted jobs that a peer waits for.
    pub(crate) fn of(&self, origin: Peer) -> impl Iterator<Item = (Token, HostKey)> {
        let range = self.keys.range(all_of(origin));
        range.map(|((_, token), key)| (*token, *key))
    }

    /// Of what a peer waits for, what came by connections before this epoch.
    pub(crate) fn of_before(
        &self,
        origin: Peer,
        epoch: u64,
    ) -> impl Iterator<Item = (Token, HostKey)> {
        let came =
            move |token: Token, key: HostKey| self.hosted[&key].waiters[&(origin, token)].came;
        self.of(origin)
            .filter(move |(token, key)| came(*token, *key) < epoch)
    }

    pub(crate) fn hosted_keys(&self) -> impl Iterator<Item = HostKey> {
        self.hosted.keys().copied()
    }

    /// The names of all outstanding jobs.
    pub(crate) fn all_away(&self) -> impl Iterator<Item = (Peer, Token)> {
        self.outstanding.keys().copied()
    }

    // ---- both

    /// Is anything under way between here and there?
    pub(crate) fn concern(&self, peer: Peer) -> bool {
        self.at(peer).next().is_some() || self.of(peer).next().is_some()
    }

    /// A connection stands, so what waited for one went by it.
    pub(crate) fn connected(&mut self, peer: Peer, epoch: u64) {
        for (_, outstanding) in self.outstanding.range_mut(all_of(peer)) {
            outstanding.sent.get_or_insert(epoch);
        }
        for (waiter, key) in self.keys.range(all_of(peer)) {
            if let Some(hosted) = self.hosted.get_mut(key)
                && let Some(Waiter { sent: Ok(sent), .. }) = hosted.waiters.get_mut(waiter)
            {
                sent.get_or_insert(epoch);
            }
        }
    }

    /// Enters what is outstanding and what is hosted.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn inspect_entries(&self, inspection: &mut super::super::inspect::Inspection) {
        use super::super::inspect;
        let away = self
            .outstanding
            .iter()
            .filter(|((peer, _), _)| *peer != HERE);
        let away = away.map(|((peer, token), away)| inspect::Outstanding {
            peer: *peer,
            token: *token,
            kind: match away.kind {
                Kind::Theft => inspect::Kind::Theft,
                Kind::Claim => inspect::Kind::Claim,
            },
        });
        inspection.outstanding.extend(away);
        let hosted = self.hosted.iter().map(|(key, hosted)| inspect::Hosted {
            key: *key,
            id: hosted.id.clone(),
            fingerprint: hosted.fingerprint,
            waiters: hosted
                .waiters
                .keys()
                .copied()
                .filter(|(peer, _)| *peer != HERE)
                .collect(),
            stage: match hosted.state {
                State::Coming => inspect::Stage::Coming,
                State::Started => inspect::Stage::Started,
                State::Onwards(..) => inspect::Stage::Onwards,
                State::Done(..) => inspect::Stage::Done,
            },
            orphan: hosted.orphan,
            unwanted: hosted.unwanted,
        });
        inspection.hosted.extend(hosted);
    }

    /// Is nothing under way? What is kept for whoever claims it does not count.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn is_empty(&self) -> bool {
        let kept = |hosted: &Hosted| {
            hosted.orphan && hosted.waiters.is_empty() && matches!(hosted.state, State::Done(_))
        };
        self.outstanding.is_empty() && self.hosted.values().all(kept)
    }
}
