//! The gate: the narrow door through which jobs leave and enter the process as bytes.
//!
//! The side outside (the network thread; in tests a thread that plays another node) takes the oldest jobs, brings
//! back their results or the jobs themselves, and lets hosted jobs in. The workers never wait for the gate, and the
//! gate never touches user memory: the gate reads arguments of a job that has left its deque, and the owner alone writes
//! results.

mod duplicate;
mod hosted;
mod ledger;
mod pack;

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering, fence},
    },
    time::Duration,
};

use super::{
    each,
    frames::{harvest_above, place_of},
    pool::{Pool, PoolWatch, RootKey},
    repair::depth_of,
    thread::{self, TakenSlot, Worker},
};
use crate::{
    job::{
        Answer, Back, DepartureId, Fingerprint, Gathered, HeldValue, HostedId, JobId, JobLoad,
        JobName, JobSample, JobTrip, KeptElsewhere, Offer, OrphanNews, Parcel, Recall, RootName,
        RootRun, RootTag, Saved, Taken, Unfit, VTable, ValueName, ValueSize, Wants, function,
        record::{Frame, STAYS, Slot, SlotState, flag},
    },
    observe::repeats,
};
pub use duplicate::Costs;
use hosted::HostedJob;
pub(super) use hosted::HostedTask;
pub(crate) use hosted::came_from_afar;
pub(super) use ledger::{FrameRef, Ledger};
use ledger::{SlotRef, lock};
pub(super) use pack::{
    Finished, OpenedAnswer, WholeAnswer, finish, import, length_of, open_parts, pack, take_answer,
};
use pack::{Leaver, Leavers, Thief};

/// The jobs that a [`Gate::take`] found.
#[derive(Default, Debug)]
pub struct Haul {
    /// The oldest first; siblings, if they are several.
    pub jobs: Vec<Taken>,
    /// About how many more could have been taken.
    pub left: u32,
    /// Those that stayed, as the judge did not let them go.
    pub not_worth: Vec<JobLoad>,
    /// What the workers have seen of jobs since the last take.
    pub samples: Vec<JobSample>,
}

/// Says which jobs are to leave. Called from any thread; must be quick, must not block, and must not call the gate.
pub trait Judge: Send + Sync {
    /// May a job of that shape leave?
    fn accepts(&self, load: &JobLoad) -> bool;

    /// The number of the node that is to get them.
    fn thief(&self) -> u128 {
        0
    }

    /// What it is to get, of what is worth its way.
    fn wants(&self) -> Wants {
        Wants::Any
    }

    /// The way of such a job.
    fn trip(&self, load: &JobLoad) -> JobTrip;
}

/// The listener outside the gate, as a rule the node's bridge. Called from any thread, also from within calls of the
/// gate; must be quick, must not block, and must not call the gate.
pub trait Outside: Send + Sync {
    /// Tells how many workers have nothing to do; workers that wait in a sync and have room for another job are included.
    /// Told when the number has changed.
    fn idle(&self, workers: u32) {
        let _ = workers;
    }
    /// A job can be taken. Told once after a [`Gate::take`] that found fewer jobs than it was to find.
    fn public(&self) {}
    /// The jobs that a [`Gate::take_for`] with the number `request` has found, when the take needed longer.
    fn took(&self, request: u64, haul: Haul) {
        let _ = (request, haul);
    }
    /// A hosted job is done.
    fn done(&self, key: HostedId, answer: Answer);
    /// A job that is away is not waited for any more; an answer would be dropped.
    fn recalled(&self, departure: DepartureId, why: Recall);
    /// A marked job found itself among the orphans (see [`Gate::orphan`]): from now on it is away, waiting for the
    /// orphan's answer, or to be put back.
    fn claimed(&self, departure: DepartureId, parcel: Parcel) {
        let _ = (departure, parcel);
    }
    /// Tells the jobs that are held for other nodes, or many of them, when they have changed.
    fn held(&self, jobs: Vec<JobName>) {
        let _ = jobs;
    }
    /// A job that came back undone with a mark has been run here and is done.
    fn repaired(&self, job: JobId) {
        let _ = job;
    }
    /// A hosted job was given up, as [`Gate::save_hosted`] asked; `saved` are the results that were finished below it.
    fn saved(&self, key: HostedId, saved: Vec<Saved>) {
        let _ = (key, saved);
    }
    /// A root job of `main` has its result, which its caller gets after [`Gate::root_kept`]; for nodes that are no further away than
    /// `patience` that is to wait until they have it too. Told if [`Gate::keep_roots`] asked for it.
    fn root_result(&self, root: RootTag, saved: Saved, patience: Duration) {
        let _ = (root, saved, patience);
    }
    /// `main` has been stopped, as [`Gate::stop_main`] asked; `saved` are the results that were finished below its root
    /// job.
    fn yielded(&self, saved: Vec<Saved>) {
        let _ = saved;
    }
    /// A job here has improved a bound.
    fn offered(&self, offer: Offer) {
        let _ = offer;
    }
    /// There are tasks that need what that node keeps. Told again after a [`Gate::take_for`] for that node which found too little.
    fn kept_for(&self, keeper: u128) {
        let _ = keeper;
    }
    /// A task needs a value that another node keeps: answered by [`Gate::brought`]. False if it will not be.
    fn bring(&self, kept: KeptElsewhere) -> bool {
        let _ = kept;
        false
    }
    /// A task that is likely to run on that node will need this value, which `at` keeps, or this node: it may be fetched already.
    fn prefetch(&self, to: u128, value: ValueSize, root: RootName, at: Option<u128>) {
        let _ = (to, value, root, at);
    }
    /// No task needs these values any more, which that node keeps, unless one is to run again.
    fn unneeded(&self, at: u128, names: Vec<ValueName>) {
        let _ = (at, names);
    }
    /// A hosted job of that root job is about to be done, of whose result these parts are kept here.
    fn keeps(&self, root: RootKey, values: &[HeldValue]) {
        let _ = (root, values);
    }
    /// A root job begins here.
    fn root_started(&self, root: RootRun) {
        let _ = root;
    }
    /// A root job has its result, which is in safe hands if it was to be kept; its caller does not know it yet. Not told
    /// of one that was stopped.
    fn root_finished(&self, root: RootRun) {
        let _ = root;
    }
}

/// The gate of one pool. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    pool: Arc<Pool>,
}

/// The source of the next job that leaves.
#[derive(Clone, Copy)]
enum TakeFrom {
    Deque(u32),
    /// A task of a flow.
    Board,
    Returned,
    Held,
}

/// Number of jobs in a row that may turn out to be unable to leave before a take gives up. Too small: a take misses
/// jobs that could leave. Too large: a take writes arguments in vain for long.
const MOST_THAT_STAY: usize = 64;

impl Gate {
    pub(super) fn of(pool: &Arc<Pool>) -> Gate {
        if !pool.has_gate() {
            pool.ledger.open.store(true, Ordering::Relaxed);
        }
        Gate {
            pool: Arc::clone(pool),
        }
    }

    /// The number of the pool: no other of this process has it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.pool.number
    }

    /// Bytes of the results of finished jobs that the workers keep.
    pub(crate) fn harvested_bytes(&self) -> u64 {
        self.pool.beats.bytes.load(Ordering::Relaxed) as u64
    }

    /// Sees what the workers do, without keeping them.
    pub(crate) fn watch(&self) -> PoolWatch {
        PoolWatch::of(&self.pool)
    }

    /// How many workers have found nothing to do for a while.
    #[must_use]
    pub fn idle(&self) -> u32 {
        self.pool.idle()
    }

    /// How far the root job is that began last, if one is under way.
    #[must_use]
    pub fn progress(&self) -> Option<super::Progress> {
        self.pool.estimates.look()
    }

    /// The hosted jobs under way of which that is known, and the parts of them that are done.
    #[must_use]
    pub fn parts_done(&self) -> Vec<(HostedId, f64)> {
        self.pool.estimates.hosted()
    }

    /// The part of a job that is away that is done, as its host has told.
    pub fn note_part(&self, departure: DepartureId, done: f64) {
        let slot = lock(&self.pool.ledger.absent)
            .away
            .get(&departure)
            .map(|away| away.slot);
        if let Some(SlotRef(slot)) = slot {
            self.pool.estimates.note_part(slot, done);
        }
    }

    /// The oldest job that can leave, the shallowest of all, and up to `most - 1` siblings of it; hosted jobs that have
    /// not been started go first. Never more than half of what there is. If that is not enough, workers are asked, and
    /// [`Outside::public`] tells when one has answered.
    ///
    /// Code of the user writes the arguments, on the calling thread.
    #[must_use]
    pub fn take(&self, most: u32) -> Haul {
        let mut result = Haul::default();
        self.send_off(self.choose(most, Thief::default()), None, |haul| {
            result = haul
        });
        result
    }

    /// As [`Gate::take`], of the jobs that the judge lets go, for a thread that must not wait for code of the user. `None` if
    /// there is some that is not known to be quick: then another thread does it, and [`Outside::took`] tells, with this number.
    #[must_use]
    pub fn take_for(&self, request: u64, most: u32, judge: &Arc<dyn Judge>) -> Option<Haul> {
        let mut leavers = self.choose(most, Thief::of(&**judge));
        let mut haul = None;
        let is_quick =
            |leaver: &mut Leaver| leaver.pack_quickly() && leaver.may_leave(&**judge).is_ok();
        if leavers.own.iter_mut().all(is_quick) {
            self.send_off(leavers, None, |quick| haul = Some(quick));
        } else {
            let (gate, judge) = (self.clone(), Arc::clone(judge));
            self.pool.clerk.run(move || {
                let tell = |haul| gate.pool.tell(|outside| outside.took(request, haul));
                gate.send_off(leavers, Some(&*judge), tell);
            });
        }
        haul
    }

    /// Chooses jobs that may leave to that node, at most `most` of them.
    fn choose(&self, most: u32, thief: Thief) -> Leavers {
        let (pool, ledger) = (&*self.pool, &self.pool.ledger);
        let called_home = lock(&ledger.absent).called_home;
        let is_idle = thief.wants == Wants::Any;
        // Set before the look: a worker that publishes after it tells.
        match is_idle {
            true => ledger.wanted.store(true, Ordering::Relaxed),
            false => ledger.surplus_wanted.store(true, Ordering::Relaxed),
        }
        fence(Ordering::SeqCst);
        // Idle workers have been woken for hosted jobs that wait: so many of these are as good as started.
        let spare = ledger
            .waiting
            .load(Ordering::Relaxed)
            .saturating_sub(pool.idle() as usize);
        let held = ledger.held.load(Ordering::Relaxed);
        let returned = ledger.returned.load(Ordering::Relaxed);
        if is_idle {
            pool.all().for_each(Worker::seize);
        }
        let all = held + spare + returned + pool.public() as usize;
        // What is best run there need not stay for the workers here.
        let kept = pool.boards.len_for(thief.node);
        let limit = match thief.wants {
            Wants::Any => all.div_ceil(2).max(kept),
            Wants::Surplus => kept + pool.boards.surplus(),
            Wants::Kept => kept,
        };
        let limit = (most as usize).min(limit);
        let (mut hosted, mut own): (Vec<Taken>, _) = (Vec::new(), Vec::new());
        if limit > 0 && is_idle {
            hosted.extend(pool.unhold());
            if hosted.is_empty() && !pool.holds_own() {
                hosted = pool.unstart(spare.min(limit));
            }
        }
        if hosted.is_empty() {
            self.take_own(limit, thief, &mut own);
        }
        if hosted.len() + own.len() < most as usize {
            if is_idle {
                pool.ask_those_without_public();
                self.seize_soon();
            }
            pool.boards.wants_more(pool, thief.node);
        } else if is_idle {
            ledger.wanted.store(false, Ordering::Relaxed);
        }
        Leavers {
            hosted,
            own,
            most,
            thief,
            all,
            had_held: held > 0,
            called_home,
        }
    }

    /// Workers have been asked. If one computes for long between two polls, its jobs are made public in its place, and
    /// [`Outside::public`] tells.
    fn seize_soon(&self) {
        let pool = &self.pool;
        if pool.all().any(Worker::may_be_seized)
            && !pool.ledger.seizing.swap(true, Ordering::Relaxed)
        {
            let gate = self.clone();
            pool.clerk.run(move || {
                std::thread::sleep(thread::PATIENCE);
                gate.pool.ledger.seizing.store(false, Ordering::Relaxed);
                gate.pool.all().for_each(Worker::seize);
            });
        }
    }

    /// Writes the arguments of the jobs where that has not been done, enters all jobs in the ledger as away, and tells
    /// before any other thread can act on them. A job whose arguments cannot be written stays, and so does what the judge does
    /// not let go; if all stay, other jobs are chosen.
    fn send_off(&self, mut leavers: Leavers, judge: Option<&dyn Judge>, tell: impl FnOnce(Haul)) {
        let (mut stayed, mut refused, mut not_worth) = (0, Vec::new(), Vec::new());
        loop {
            let before = leavers.own.len();
            let mut may_leave = Vec::with_capacity(before);
            for mut leaver in std::mem::take(&mut leavers.own) {
                let sizes = &self.pool.sizes;
                match judge.map_or(Ok(()), |judge| leaver.measure_for(judge, sizes)) {
                    Ok(()) => may_leave.push(leaver),
                    // It comes back when others have been looked at: if at once, it would be chosen again.
                    Err(load) => {
                        refused.push(leaver);
                        not_worth.push(load);
                    }
                }
            }
            for mut leaver in may_leave {
                let Some(packed) = self.pack_or_stay(&mut leaver, judge) else {
                    continue;
                };
                // What could not be measured has been written: now its size is known.
                let judge = judge.filter(|_| !leaver.is_measured);
                let judged = packed.and_then(|()| match judge {
                    Some(judge) => leaver.may_leave(judge),
                    None => Ok(()),
                });
                match judged {
                    Ok(()) => leavers.own.push(leaver),
                    Err(load) => {
                        refused.push(leaver);
                        not_worth.push(load);
                    }
                }
            }
            stayed += before - leavers.own.len();
            let is_empty = leavers.own.is_empty() && leavers.hosted.is_empty();
            if !is_empty || before == 0 || stayed > MOST_THAT_STAY {
                break;
            }
            leavers = self.choose(leavers.most, leavers.thief);
        }
        let found = leavers.hosted.len() + leavers.own.len();
        let had_held = leavers.had_held;
        for leaver in refused {
            let depth = length_of(&leaver.place.id);
            self.pool
                .come_back(leaver.job(), depth, leaver.back_to_stay());
        }
        self.enter_all(leavers, not_worth, tell);
        if had_held {
            self.pool.tell_held();
        }
        if stayed > 0 && found == 0 {
            self.want_more();
        }
    }

    /// Writes the arguments. `None` if the job stays in this process, as that cannot be done; its load if it stays as that takes too
    /// many bytes.
    fn pack_or_stay(
        &self,
        leaver: &mut Leaver,
        judge: Option<&dyn Judge>,
    ) -> Option<Result<(), JobLoad>> {
        if leaver.parcel.is_some() {
            return Some(Ok(()));
        }
        let error = match leaver.pack_patiently(judge, &self.pool.sizes) {
            Ok(None) => return Some(Ok(())),
            Ok(Some(load)) => return Some(Err(load)),
            Err(error) => error,
        };
        note_unfit(leaver.job().function.get(), error.weight(), &error, true);
        self.pool
            .come_back(leaver.job(), STAYS, leaver.back_to_stay());
        None
    }

    fn enter_all(&self, leavers: Leavers, not_worth: Vec<JobLoad>, tell: impl FnOnce(Haul)) {
        let Leavers { hosted, own, .. } = leavers;
        let mut jobs = hosted;
        let mut absent = lock(&self.pool.ledger.absent);
        if absent.called_home != leavers.called_home {
            drop(absent);
            for leaver in own {
                let depth = length_of(&leaver.place.id);
                self.pool.come_back(leaver.job(), depth, leaver.back);
            }
            let samples = self.pool.samples.take();
            return tell(Haul {
                jobs,
                samples,
                ..Haul::default()
            });
        }
        let mut awaited = Vec::new();
        for leaver in own {
            let Some(parcel) = &leaver.parcel else {
                unreachable!("its arguments have been written");
            };
            let (job, depth) = (leaver.job(), length_of(&leaver.place.id));
            let owner = Worker::of(job).index;
            let (departure, is_awaited) = (self.pool).enter_away_under(
                &mut absent,
                job,
                depth,
                leaver.back,
                parcel.fingerprint,
            );
            if let Some(away) = absent.away.get_mut(&departure) {
                (away.shape, away.trip) = (leaver.shape, leaver.trip);
            }
            if is_awaited {
                awaited.push(owner);
            }
            jobs.extend(leaver.parcel.map(|parcel| Taken::Own(departure, parcel)));
        }
        let left = leavers.all.saturating_sub(jobs.len() + not_worth.len());
        tell(Haul {
            jobs,
            left: u32::try_from(left).unwrap_or(u32::MAX),
            not_worth,
            samples: self.pool.samples.take(),
        });
        drop(absent);
        for owner in awaited {
            self.pool.sleep.unpark(owner);
        }
    }

    /// Asks the workers to tell when another job becomes public, after a take in which no chosen job could leave.
    fn want_more(&self) {
        self.pool.ledger.wanted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.pool.ask_those_without_public();
        if self.pool.public() > 0 {
            self.pool.tell_public();
        }
    }

    /// Leaves `run` to the clerk's thread, where code of the user may panic, recurse and take long.
    pub fn aside(&self, run: impl FnOnce() + Send + 'static) {
        self.pool.clerk.run(run);
    }

    /// Has all been done that was left to the clerk's thread?
    #[must_use]
    pub fn is_clerk_idle(&self) -> bool {
        self.pool.clerk.is_idle()
    }

    /// As [`Gate::aside`], for what is to be done before whatever comes [after the offers](Gate::after_offers).
    pub fn aside_in_order(&self, run: impl FnOnce() + Send + 'static) {
        self.pool.clerk.run_ordered(run);
    }

    /// Runs `run` now, or, if offers are still being read and compared, after them: a node that sees a result has then
    /// seen the offers that came before it.
    pub fn after_offers(&self, run: impl FnOnce(&Gate) + Send + 'static) {
        if self.pool.clerk.is_in_order() {
            return run(self);
        }
        let gate = self.clone();
        self.pool.clerk.run_ordered(move || run(&gate));
    }

    /// The size of a worker's stack, in bytes.
    #[must_use]
    pub fn stack_size(&self) -> usize {
        self.pool.clerk.stack()
    }

    fn take_own(&self, limit: usize, thief: Thief, jobs: &mut Vec<Leaver>) {
        // Other threads take too, and some jobs cannot leave: then the take looks again, but not for ever.
        let mut misses = 2 * self.pool.workers() + 4;
        while jobs.is_empty() && limit > 0 && misses > 0 {
            let shallowest = match thief.wants {
                Wants::Any => self.pool.shallowest(),
                Wants::Surplus | Wants::Kept => Some((TakeFrom::Board, STAYS)),
            };
            let Some((source, depth)) = shallowest else {
                return;
            };
            let mut parent = None;
            while jobs.len() < limit && misses > 0 {
                let taken = self.take_from(source, depth, parent, thief);
                let Some((TakenSlot { slot, back }, is_looked_up)) = taken else {
                    misses -= 1;
                    break;
                };
                // SAFETY: we have just taken the job: its slot and the frames above it live until it is settled.
                let job = unsafe { &*slot };
                parent = Some(job.parent.get());
                match self.prepare(job, back, is_looked_up) {
                    Some(leaver) => jobs.push(leaver),
                    None => misses -= 1,
                }
            }
        }
    }

    /// A job of that depth, of that parent if there is one; and whether it is to be looked up if it stays. Public jobs of one depth in one deque are siblings.
    fn take_from(
        &self,
        source: TakeFrom,
        depth: u16,
        parent: Option<*const Frame>,
        thief: Thief,
    ) -> Option<(TakenSlot, bool)> {
        let found = match source {
            TakeFrom::Deque(victim) => {
                let victim = self.pool.worker(victim);
                let (level, _) = victim.public()?;
                if level != depth {
                    return None;
                }
                let slot = victim.give()?;
                let back = Back::default();
                Some(TakenSlot { slot, back })
            }
            TakeFrom::Board => {
                return (self.pool.boards).take(&self.pool, thief.node, thief.wants);
            }
            TakeFrom::Returned => self.pool.take_returned(|absent| {
                let &(level, slot) = absent.returned.first()?;
                // SAFETY: under the lock no thread takes the job, so its owner waits for it.
                let here = unsafe { (*slot.0).parent.get() };
                let fits = level == depth && parent.is_none_or(|parent| parent == here);
                fits.then_some((level, slot))
            }),
            // Only one held job for each thief: if the thief dies, it is known which job was there.
            TakeFrom::Held if parent.is_none() => self.pool.take_held(),
            TakeFrom::Held => None,
        };
        found.map(|found| (found, false))
    }

    fn prepare(&self, job: &Slot, back: Back, is_looked_up: bool) -> Option<Leaver> {
        let is_unfit = function::is_unfit(job.function.get());
        // None: below a nested entry.
        let place = place_of(job.parent.get(), job.index());
        let Some(place) = place.filter(|_| !is_unfit) else {
            self.pool.come_back(job, STAYS, back);
            return None;
        };
        harvest_above(job.parent.get());
        self.pool.estimates.leaves(job);
        job.enter(SlotState::Leaving);
        Some(Leaver {
            slot: SlotRef(job),
            place,
            back,
            parcel: None,
            values: Vec::new(),
            lent: 0,
            is_measured: false,
            is_looked_up,
            shape: None,
            trip: JobTrip::default(),
        })
    }

    /// Brings an answer. False if the job is not away any more: it has been answered or recalled.
    pub fn deliver(&self, departure: DepartureId, answer: Answer) -> bool {
        self.deliver_with(departure, answer, Vec::new())
    }

    /// As [`Gate::deliver`], with the shared values that the answer mentions: they stay until it has been read.
    pub fn deliver_with(
        &self,
        departure: DepartureId,
        answer: Answer,
        values: Vec<HeldValue>,
    ) -> bool {
        if let Answer::Unfit(unfit) = &answer {
            self.note_unfit(unfit);
        }
        let mut absent = lock(&self.pool.ledger.absent);
        if !absent.away.contains_key(&departure) {
            return false;
        }
        match answer {
            Answer::Refused(why) => {
                tracing::debug!(why, "a job was refused elsewhere");
                let back = Back {
                    at_once: true,
                    // Elsewhere it would be refused again.
                    stays: true,
                    ..Back::default()
                };
                self.pool.back_from(absent, departure, back);
            }
            Answer::Unfit(_) => {
                let back = Back {
                    stays: true,
                    ..Back::default()
                };
                self.pool.back_from(absent, departure, back);
            }
            Answer::Aborted => self.pool.back_from(absent, departure, Back::default()),
            answer => {
                let away = absent.strike_away(departure);
                away.duplicate.stop(&self.pool);
                drop(absent);
                let slot = away.slot;
                self.pool.estimates.answered(slot.0);
                // SAFETY: the job was away, and nobody else has it now: its slot waits for us.
                let job = unsafe { &*slot.0 };
                let whole = WholeAnswer { answer, values };
                (self.pool).keep_answer(job, away.fingerprint, &whole, away.since.elapsed());
                // A parked owner reads the result at once, and sees for itself whether it is a failure.
                if job.judge().is_none() || job.is_awaited() {
                    self.pool.answer(slot, whole);
                } else {
                    let gate = self.clone();
                    self.pool.clerk.run(move || gate.pool.judge(slot, whole));
                }
            }
        }
        true
    }

    /// A job of this process has turned out to be unfit to travel, on another node.
    pub fn note_unfit(&self, unfit: &Unfit) {
        if let Some(function) = function::by_number(unfit.function) {
            note_unfit(function, unfit.weight, &unfit.why, true);
        }
    }

    /// Brings a job back undone: it can be stolen again, by workers and through the gate, until its owner takes it.
    /// False as for [`Gate::deliver`].
    pub fn put_back(&self, departure: DepartureId, back: Back) -> bool {
        let absent = lock(&self.pool.ledger.absent);
        if !absent.away.contains_key(&departure) {
            return false;
        }
        self.pool.back_from(absent, departure, back);
        true
    }

    /// Tells the workers what has changed among the orphans: marked jobs look themselves up there.
    pub fn orphan(&self, news: OrphanNews) {
        let is_settled = matches!(news, OrphanNews::Settled(true));
        self.pool.ledger.orphans.learn(news);
        if is_settled {
            self.pool.all_announced();
        }
    }

    /// The answer to [`Outside::bring`]: the value, or none if nobody has it any more.
    pub fn brought(&self, ticket: u64, value: Option<HeldValue>) {
        self.pool.brought(ticket, value);
    }

    /// Another node could not have that value, which is kept elsewhere for this one.
    pub(crate) fn bring_home(&self, name: ValueName) {
        self.pool.bring_home(name);
    }

    /// That node is about to leave: what it keeps is brought home.
    pub(crate) fn keeper_leaves(&self, at: u128) {
        self.pool.keeper_gone(at);
        self.pool.bring_all_from(at);
    }

    /// That node is gone, and with it what it kept.
    pub(crate) fn keeper_gone(&self, at: u128) {
        self.pool.keeper_gone(at);
        self.pool.forget_kept_at(at);
    }

    /// The number of this node: what it keeps itself is here, and tasks that need it wait for no other.
    pub(crate) fn set_number(&self, at: u128) {
        self.pool.keeper_gone(at);
    }

    /// How many tasks of each function have run here again, as what they had made elsewhere was lost.
    pub(crate) fn tasks_again(&self) -> BTreeMap<&'static str, u64> {
        self.pool.boards.again().clone()
    }

    /// No node outside answers any more: jobs that are away come back, and no orphan is claimed from now on.
    pub fn call_home(&self) {
        self.pool.ledger.orphans.forget();
        self.keep_roots(false);
        lock(&self.pool.ledger.absent).called_home += 1;
        self.pool.brings_nothing();
        self.pool.nobody_asks();
        self.release();
        loop {
            let departure = lock(&self.pool.ledger.absent).away.keys().next().copied();
            let Some(departure) = departure else { return };
            self.put_back(departure, Back::default());
        }
    }

    /// Gives a hosted job up: the job stops at its next spawn or sync, and the results of finished children of the
    /// frames that had not passed their sync yet are saved. Answered by [`Outside::saved`], or by [`Outside::done`] if
    /// the job ended first.
    pub fn save_hosted(&self, key: HostedId) {
        if self.stop_hosted(key, flag::ABORT | flag::SAVE) {
            self.pool.tell(|outside| outside.saved(key, Vec::new()));
        }
    }

    /// Hosted jobs that no worker has started go back: [`Outside::done`] says [`Answer::Aborted`] for each.
    pub fn give_back(&self) {
        while let Some(Taken::Hosted(key, _)) = self.pool.unhold() {
            self.pool.tell(|outside| outside.done(key, Answer::Aborted));
            self.pool.tell_held();
        }
        while let Some(task) = self.pool.next_hosted(|| true) {
            self.pool.forget_hosted(task.key);
            self.pool
                .tell(|outside| outside.done(task.key, Answer::Aborted));
        }
    }

    /// Orders that results of root jobs of `main` are told ([`Outside::root_result`]) before `main` sees them.
    ///
    /// Only of those that took a while.
    pub fn keep_roots(&self, keep: bool) {
        self.pool.main.keep(keep);
    }

    /// The result is in safe hands: `main` may see it.
    pub fn root_kept(&self, root: RootTag) {
        self.pool.main.kept(root);
    }

    /// Another node is to run `main`: its root job is given up as by [`Gate::save_hosted`], and its calls unwind, those
    /// to come too, until [`Gate::begin_main`]. Answered by [`Outside::yielded`].
    pub fn stop_main(&self) {
        self.pool.stop_main();
    }

    /// `main` is about to be called here, from the start. Its root jobs are numbered from 0, and marked unless this is
    /// the first term.
    pub fn begin_main(&self, term: u32) {
        self.set_term(term);
        self.pool.main.begin_again(term > 0);
    }

    /// `main` may have run before all nodes were lost: its root jobs are marked in the first term too.
    pub fn resume_main(&self) {
        self.pool.main.resume();
    }

    /// Lets a hosted job in, under a key of its own. Any worker runs it, also one that waits in a sync;
    /// [`Outside::done`] has the answer. Until a worker starts it, it may leave again.
    pub fn host(&self, key: HostedId, parcel: Parcel) {
        let ledger = &self.pool.ledger;
        let mut hosted = lock(&ledger.hosted);
        hosted.borrow(key, &parcel);
        hosted.jobs.insert(key, HostedJob::Waiting(parcel));
        hosted.queue.push_back(key);
        ledger.waiting.fetch_add(1, Ordering::Relaxed);
        drop(hosted);
        self.pool.wake_for_any_task();
        if self.pool.has_ended() {
            self.pool.refuse_hosted();
        }
    }

    /// Lets a hosted job in that only other nodes may run, until [`Gate::release`].
    pub fn hold(&self, key: HostedId, parcel: Parcel) {
        let ledger = &self.pool.ledger;
        let mut hosted = lock(&ledger.hosted);
        hosted.borrow(key, &parcel);
        hosted.jobs.insert(key, HostedJob::Held(parcel));
        hosted.held.push_back(key);
        ledger.held.fetch_add(1, Ordering::Relaxed);
        drop(hosted);
        self.pool.tell_held();
        if self.pool.has_ended() {
            self.pool.refuse_hosted();
        }
    }

    /// The workers may run what is held for other nodes.
    pub fn release(&self) {
        while let Some(TakenSlot { slot, mut back }) = self.pool.take_held() {
            // SAFETY: we have just taken the job: its slot lives until it is settled.
            let job = unsafe { &*slot };
            back.held = false;
            self.pool.come_back(job, depth_of(job), back);
        }
        while let Some(Taken::Hosted(key, parcel)) = self.pool.unhold() {
            self.host(key, parcel);
        }
        self.pool.tell_held();
    }

    /// The same for one job of this node: it is an orphan somewhere, and will be claimed.
    pub fn release_one(&self, name: &JobName) {
        let mut absent = lock(&self.pool.ledger.absent);
        let place = absent.held.iter().find(|(_, is)| *is == name);
        let Some(place) = place.map(|(place, _)| *place) else {
            return;
        };
        let TakenSlot { slot, mut back } = self.pool.strike_held(&mut absent, place);
        back.held = false;
        // SAFETY: the job was held, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*slot };
        self.pool.come_back_under(absent, job, place.0, back);
        self.pool.tell_held();
    }

    /// Stops a hosted job: at its next spawn or sync, if it has started. The job is answered all the same, with its
    /// result if it ended first.
    pub fn abort_hosted(&self, key: HostedId) {
        if self.stop_hosted(key, flag::ABORT) {
            self.pool.tell(|outside| outside.done(key, Answer::Aborted));
        }
    }

    /// True if the job had not been started, and never will be.
    fn stop_hosted(&self, key: HostedId, how: u32) -> bool {
        let mut hosted = lock(&self.pool.ledger.hosted);
        match hosted.jobs.get_mut(&key) {
            Some(HostedJob::Running {
                frame: FrameRef(frame),
                ..
            }) => {
                // SAFETY: the frame lives as long as its entry, and we hold the lock.
                let frame = unsafe { &**frame };
                self.pool.stop_children(frame, how);
            }
            Some(HostedJob::Starting { flags }) => *flags |= how,
            Some(HostedJob::Waiting(_)) => {
                hosted.remove(key);
                self.pool.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
            Some(HostedJob::Held(_)) => {
                hosted.remove(key);
                self.pool.ledger.held.fetch_sub(1, Ordering::Relaxed);
                drop(hosted);
                self.pool.tell_held();
                return true;
            }
            None => {}
        }
        false
    }

    /// Sets the listener that is told what happens from now on; first of all how many workers are idle.
    pub fn listen(&self, outside: Arc<dyn Outside>) {
        let ledger = &self.pool.ledger;
        *ledger
            .outside
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(outside);
        ledger.heard.store(true, Ordering::SeqCst);
        self.pool.brings_again();
        self.pool.nodes_ask();
        *lock(&ledger.told) = 0;
        self.pool.tell_idle();
    }

    /// From now on results of jobs that took a while are kept, so that they can be handed on when the job around them is
    /// given up (see [`Gate::save_hosted`], [`Gate::stop_main`]).
    pub fn harvest(&self) {
        self.pool.beats.start(&self.pool);
    }

    /// Also results that mention shared values are kept from now on: they go to a store, which has the values too.
    pub fn harvest_values(&self) {
        self.pool.beats.keep_values();
    }

    /// The results of jobs under way here, with higher numbers than `since`.
    #[must_use]
    pub fn gather(&self, since: u64) -> Gathered {
        let mut gathered = Gathered::between(since, self.pool.beats.last());
        self.pool.main.gather(&mut gathered);
        self.pool.gather_hosted(&mut gathered);
        gathered.sorted()
    }

    /// Gives a beat, as the clockwork does each 10 ms: invocations that live for two are harvested. For tests.
    #[doc(hidden)]
    pub fn beat(&self) {
        self.pool.beat();
    }

    /// What the workers have seen of jobs since they were asked last.
    #[must_use]
    pub fn samples(&self) -> Vec<JobSample> {
        self.pool.samples.take()
    }

    /// From now on a worker that waits for a job on another node does it itself if these costs say that this is sooner.
    pub fn know_costs(&self, costs: Costs) {
        self.pool.ledger.costs.learn(costs);
    }

    /// For that time no worker does a job itself that is on another node.
    pub fn be_cautious(&self, time: Duration) {
        self.pool.ledger.costs.be_cautious(time);
    }

    /// Do other nodes look for work? (`satin::hungry`)
    pub fn set_hungry(&self, hungry: bool) {
        self.pool.ledger.hungry.store(hungry, Ordering::Relaxed);
    }

    /// Root jobs wait until [`Gate::release_roots`].
    pub fn hold_roots(&self) {
        self.pool.hold_roots(true);
    }

    /// Root jobs start, also those to come.
    pub fn release_roots(&self) {
        self.pool.hold_roots(false);
    }

    /// Sets the name under which this process runs root jobs that no other node will ever run again. When this node is
    /// gone, the other nodes tell by that name whose root jobs they were.
    pub fn set_home(&self, home: Fingerprint) {
        let Fingerprint(bits) = home;
        self.pool.ledger.home.0.store(bits, Ordering::Relaxed);
    }

    /// How many masters there have been before this one: part of a root job's tag.
    pub fn set_term(&self, term: u32) {
        self.pool.ledger.term.store(term, Ordering::Relaxed);
    }
}

/// Notes that a job of that function cannot travel, and tells people if they are to hear of it, and have not.
pub(super) fn note_unfit(function: &'static VTable, weight: u32, why: impl Display, tell: bool) {
    // An error in a part of a loop is an error of the function that the loop calls.
    if each::is_loop(function) {
        return;
    }
    let is_known = function::is_unfit(function);
    function::note_unfit(function, weight, &why);
    if tell && !is_known {
        let kind = "a job cannot travel, and is run where it is";
        repeats::warn(kind, function.info.name, why);
    }
}

impl Pool {
    /// Calls the listener outside, if there is any.
    pub(super) fn tell(&self, what: impl FnOnce(&dyn Outside)) {
        if !self.is_heard() {
            return;
        }
        let outside = self.ledger.outside.read();
        if let Some(outside) = &*outside.unwrap_or_else(PoisonError::into_inner) {
            what(&**outside);
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.ledger.heard.load(Ordering::SeqCst)
    }

    /// The number of idle workers has changed. One after the other, so that the last that is told is the last.
    pub(super) fn tell_idle(&self) {
        if !self.is_heard() {
            return;
        }
        let mut told = lock(&self.ledger.told);
        let idle = self.idle();
        if *told != idle {
            *told = idle;
            self.tell(|outside| outside.idle(idle));
        }
    }

    /// Tasks can run, and a fence has passed since: tells the outside if a take waits for more of them than others begin with next.
    pub(super) fn tell_surplus(&self) {
        let wanted = &self.ledger.surplus_wanted;
        if wanted.load(Ordering::Relaxed)
            && self.boards.surplus() > 0
            && wanted.swap(false, Ordering::Relaxed)
        {
            self.tell(|outside| outside.public());
        }
    }

    /// A job has become public, and a fence has passed since: tells the outside if a take waits for that.
    pub(super) fn tell_public(&self) {
        if self.is_wanted() && self.ledger.wanted.swap(false, Ordering::Relaxed) {
            self.tell(|outside| outside.public());
        }
    }

    /// True if a take has found too little, and no job has become public since.
    pub(super) fn is_wanted(&self) -> bool {
        self.ledger.wanted.load(Ordering::Relaxed)
    }

    /// True if depths must be noted.
    pub(super) fn has_gate(&self) -> bool {
        self.ledger.open.load(Ordering::Relaxed)
    }

    /// The run of a root job that begins here.
    pub(super) fn root_run(&self, number: u32, fingerprint: Fingerprint) -> RootRun {
        RootRun {
            term: self.ledger.term.load(Ordering::Relaxed),
            name: RootName {
                number,
                fingerprint,
            },
        }
    }

    /// The name of this process for root jobs that no other process runs, see [`Gate::set_home`].
    pub(super) fn home(&self) -> Fingerprint {
        Fingerprint(self.ledger.home.0.load(Ordering::Relaxed))
    }

    /// A fingerprint that no job has ever had: for a root job of `main` whose arguments cannot be serialized.
    pub(super) fn unrepeatable(&self) -> Fingerprint {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Fingerprint(home) = self.home();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Fingerprint::of("", &[home.to_le_bytes(), number.to_le_bytes()].concat())
    }

    /// The source and the depth of the shallowest job that can leave; jobs that are for other nodes go first.
    fn shallowest(&self) -> Option<(TakeFrom, u16)> {
        if self.holds_own() {
            return Some((TakeFrom::Held, 0));
        }
        let deques = (0..self.workers()).filter_map(|victim| {
            let (depth, _) = self.worker(victim).public()?;
            Some((TakeFrom::Deque(victim), depth))
        });
        let returned = self.has_returned().then(|| {
            let depth = lock(&self.ledger.absent).returned.first()?.0;
            Some((TakeFrom::Returned, depth))
        });
        // Tasks are worth more to others than what lies below them.
        let tasks = (self.boards.len() > 0).then_some((TakeFrom::Board, 0));
        let all = deques.chain(returned.flatten()).chain(tasks);
        all.filter(|(_, depth)| *depth != STAYS)
            .min_by_key(|(_, depth)| *depth)
    }

    /// How many jobs are public, those left out that must stay.
    fn public(&self) -> u64 {
        let deques = (0..self.workers()).filter_map(|victim| self.worker(victim).public());
        let jobs: u64 = deques
            .map(|(depth, count)| if depth == STAYS { 0 } else { count })
            .sum();
        jobs + self.boards.len() as u64
    }

    fn ask_those_without_public(&self) {
        let deques = (0..self.workers()).map(|victim| self.worker(victim));
        deques
            .filter(|victim| !victim.has_public())
            .for_each(Worker::request);
    }
}
