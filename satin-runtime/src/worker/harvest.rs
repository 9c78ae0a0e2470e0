//! The harvest: results of finished jobs that are kept, in case that their parents are lost.
//!
//! What a job has computed below its sync lies in variables of the user, and goes with the worker. So the results of jobs
//! that took a while are kept beside, as facts about the root or hosted job that they are parts of
//! ([`RootFrame::harvest`]): if that is given up, or its node dies, what is done is not done again. `worker/README.md`, "The
//! harvest", tells how that costs the fast path nothing.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam::sync::{Parker, Unparker};

use super::{
    advice,
    frames::{JobPlace, RootFrame, children_aborted, depth_of, place_of, root_of, young_above},
    gate::WholeAnswer,
    pool::Pool,
    progress::Stage,
    thread::Worker,
};
use crate::{
    job::{
        Answer, Fact, Fingerprint, HeldValue, JobName, JobSample, JobShape,
        function::{self, Caught, Covered, Sieve, VTable, WrittenResult, most_kept},
        record::{Cx, Frame, STAYS, Slot, SlotState, flag},
    },
    observe::log,
};

/// The time from one beat to the next: at a beat each worker looks up, and invocations that were under way at the beat
/// before count as long-lived. Too short: workers look up in vain. Too long: what an invocation does before it counts is
/// not kept.
const BEAT: Duration = Duration::from_millis(10);

/// The same while trees are deep, where invocations count as long-lived at their first beat: the large child of one often begins as
/// soon as the invocation does.
const QUICK_BEAT: Duration = Duration::from_millis(2);

/// A tree is deep if so many invocations have begun since the last beat, one below the other, and are still under way. Too few:
/// programs whose invocations have many children try them in vain. Too many: little is kept of deep trees.
const DEEP: usize = 64;

/// The stride up to which all children of an invocation are tried; each one more halves their number. Too small: a short child
/// hides the long one that comes after it. Too large: children of invocations that have few are tried in vain.
const PATIENCE: u32 = 4;

/// The stride at which an invocation's children are not tried at all until the next beat. Too small: some short children
/// hide long ones for a beat. Too large: a loop of short jobs looks up at too many.
const MOST_STRIDE: u32 = PATIENCE + 6;

/// One child in so many is tried at that stride.
fn one_in(stride: u32) -> u32 {
    1 << stride.saturating_sub(PATIENCE)
}

/// A child is short if it takes less than this part of the grain. Too small: children are tried in vain. Too large: few are
/// tried although they are nearly worth it.
const SHORT: u32 = 8;

/// Keeping a result may take this part of the time that its job took, and of that for which nothing had been kept when the job began. Too large:
/// harvesting shows in the run. Too small: results are lost that would have cost little.
const MOST_COST: u32 = 100;

/// One result counts for at most so many times the mean of what keeping the others has cost. The clock also tells the time for which the worker had
/// no core. Too small: what is dear is kept for long as if it were cheap. Too large: after one such time nothing is kept for a while.
const MOST_RISE: u32 = 8;

/// What keeping a result may cost in any case. Too small: it takes many results until the mean is right. Too large: as for [`MOST_RISE`].
const LEAST_COST: Duration = Duration::from_micros(10);

/// The time that a job must take for each level of its name beyond [`LEVELS`]: names have a part for each. Too short: deep
/// trees take memory for names. Too long: nothing of them is kept.
const PER_LEVEL: Duration = Duration::from_nanos(100);

/// The levels of a name that count as nothing.
const LEVELS: u16 = 64;

/// The bytes of facts that a process keeps, at most. Too small: facts are dropped. Too large: memory.
const ROOM: usize = 64 << 20;

/// A worker that has kept nothing of one job for so long says so. Too short: a warning for each long leaf. Too long: people
/// learn of it from a crash.
const QUIET: Duration = Duration::from_secs(60);

/// A worker's part in the harvest. All but the beat is the owner's.
#[derive(Default)]
pub(super) struct Reaper {
    /// Beats that have come since the worker looked up last.
    beats: AtomicU32,
    /// The time that the last job took that was tried: its siblings probably take as long.
    before: Cell<Duration>,
    /// What it costs to keep a result.
    cost: Cell<KeepingCost>,
    /// What the results stand for that were kept.
    covered: Cell<Covered>,
    /// Since when nothing has been kept of the running job.
    quiet: Cell<Option<Instant>>,
}

/// What it costs a worker to keep a result.
#[derive(Clone, Copy, Default)]
struct KeepingCost {
    /// A running mean.
    mean: Duration,
    /// When a result was kept last.
    last: Option<Instant>,
}

impl KeepingCost {
    /// A result has been kept, which took that time.
    fn note(self, cost: Duration, now: Instant) -> KeepingCost {
        let most = self.mean * MOST_RISE + LEAST_COST;
        KeepingCost {
            mean: (self.mean * 7 + cost.min(most)) / 8,
            last: Some(now),
        }
    }

    /// The shortest time that a job must take which begins now, or keeping its result would cost too much.
    fn least(self, now: Instant) -> Duration {
        let rested = (self.last).map_or(Duration::ZERO, |last| now.duration_since(last));
        (self.mean * MOST_COST).saturating_sub(rested)
    }
}

impl Reaper {
    /// Another job begins on this worker, or the one before goes on.
    pub(super) fn begin(&self) {
        self.quiet.set(None);
        // What came before the job says nothing about how long that has lived.
        if self.beats.load(Ordering::Relaxed) > 1 {
            self.beats.store(1, Ordering::Relaxed);
        }
    }
}

/// What the workers have seen of jobs that took a while, until somebody asks.
#[derive(Default)]
pub(super) struct Samples(Mutex<VecDeque<JobSample>>);

/// The samples that wait, at most: the newest. Too small: of several functions one is forgotten. Too large: a take brings old
/// news.
const MOST_SAMPLES: usize = 64;

impl Samples {
    fn lock(&self) -> MutexGuard<'_, VecDeque<JobSample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, sample: JobSample) {
        let mut samples = self.lock();
        if samples.len() == MOST_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Takes all that wait.
    pub(super) fn take(&self) -> Vec<JobSample> {
        self.lock().drain(..).collect()
    }
}

/// The clockwork that gives the beats: a thread, once results are to be kept.
#[derive(Default)]
pub(super) struct Beats {
    thread: Mutex<Option<(Unparker, JoinHandle<()>)>>,
    /// Results are to be kept.
    on: AtomicBool,
    /// So are those that mention shared values.
    values: AtomicBool,
    /// At the last beat a worker was in a deep tree.
    is_deep: AtomicBool,
    /// Number of facts that the pool has had.
    facts: AtomicU64,
    /// The bytes of all facts.
    pub(super) bytes: Arc<AtomicUsize>,
    /// There was not enough room, and that has been said.
    is_full: AtomicBool,
}

impl Beats {
    pub(super) fn start(&self, pool: &Arc<Pool>) {
        let mut running = self.lock();
        if running.is_some() {
            return;
        }
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let pool = Arc::downgrade(pool);
        let thread = std::thread::Builder::new().name("satin-beat".into());
        match log::spawn(thread, move || beat(&parker, &pool)) {
            Ok(thread) => {
                *running = Some((unparker, thread));
                self.on.store(true, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(
                "finished work of this node is lost if the node is: no thread for its beats: {error}"
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Unparker, JoinHandle<()>)>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_values(&self) {
        self.values.store(true, Ordering::Relaxed);
    }

    fn are_values_kept(&self) -> bool {
        self.values.load(Ordering::Relaxed)
    }

    /// The number of the last fact so far.
    pub(super) fn last(&self) -> u64 {
        self.facts.load(Ordering::Relaxed)
    }

    pub(super) fn are_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The pool has ended.
    pub(super) fn stop(&self) {
        let running = self.lock().take();
        if let Some((unparker, thread)) = running {
            unparker.unpark();
            if thread.join().is_err() {
                tracing::error!("the thread of the beats panicked");
            }
        }
    }
}

fn beat(parker: &Parker, pool: &Weak<Pool>) {
    let mut pause = BEAT;
    loop {
        parker.park_timeout(pause);
        let Some(pool) = pool.upgrade().filter(|pool| !pool.has_ended()) else {
            return;
        };
        pause = match pool.beats.is_deep.swap(false, Ordering::Relaxed) {
            true => QUICK_BEAT,
            false => BEAT,
        };
        // Idle workers have nothing to look up for.
        if pool.idle() < pool.workers() {
            pool.beat();
        }
    }
}

impl Worker {
    fn beat(&self) {
        self.reaper.beats.fetch_add(1, Ordering::Relaxed);
        self.ask();
    }

    /// The job in the invocation's youngest slot has been pushed, or an older one is looked at: invocations that have lived
    /// for two beats (in a deep tree: for one) are harvested from now on, and the floor is where their jobs end.
    pub(super) fn look_at_harvest(&self, head: *const Slot, frame: *const Frame) {
        self.look_at_beat(head, frame, Stage::Spawns);
        // SAFETY: the frame is that of an invocation that runs.
        let parent = unsafe { &*frame };
        if parent.has(flag::HARVEST) && parent.stride() < MOST_STRIDE {
            self.deque().set_floor(head.addr());
            self.deque().watch_from(head.addr());
        }
    }

    /// The worker waits for the tasks of the flow of that frame.
    pub(super) fn look_at_flow(&self, frame: *const Frame) {
        if self.reaper.beats.load(Ordering::Relaxed) > 0 {
            self.reaper.beats.store(0, Ordering::Relaxed);
            self.survey(self.head(), frame, Stage::Syncs);
        }
    }

    fn look_at_beat(&self, head: *const Slot, frame: *const Frame, stage: Stage) {
        let beats = self.reaper.beats.load(Ordering::Relaxed);
        if beats == 0 {
            return;
        }
        self.reaper.beats.store(0, Ordering::Relaxed);
        self.survey(head, frame, stage);
        if (self.root_frame()).is_none_or(|root| root.frame.has(flag::FLEETING)) {
            return; // no node would ever ask for it
        }
        self.warn_if_quiet(frame);
        let (young, harvested) = young_above(frame);
        let new = young.iter().filter(|young| !young.has(flag::SEEN)).count();
        let is_deep = new >= DEEP;
        if is_deep {
            self.pool().beats.is_deep.store(true, Ordering::Relaxed);
        }
        // With long leaves several beats come between two looks: the invocation that looks has lived as long.
        let has_lived = beats > 1;
        for invocation in young {
            invocation.raise(match is_deep || has_lived || invocation.has(flag::SEEN) {
                true => flag::HARVEST,
                false => flag::SEEN,
            });
        }
        if let Some(above) = harvested {
            // The child that runs has lasted until a beat: its siblings may be long.
            above.set_stride(above.stride().saturating_sub(1));
        }
        self.deque().set_floor(self.harvested_below(head));
    }

    /// Warns if nothing has been kept of the running job for long: all that it does is lost with the node.
    fn warn_if_quiet(&self, frame: *const Frame) {
        let now = Instant::now();
        let Some(since) = self.reaper.quiet.get() else {
            return self.reaper.quiet.set(Some(now));
        };
        if now.duration_since(since) < QUIET {
            return;
        }
        self.reaper.quiet.set(Some(now));
        // SAFETY: the frame is that of an invocation that runs.
        let here = unsafe { &*frame };
        let id = match here.has(flag::ROOT | flag::NESTED) {
            true => None,
            false => self.place_of(here.parent(), here.index()),
        };
        tracing::warn!(
            job = %id.map_or_else(String::new, |place| place.id.to_string()),
            "no result could be kept for {QUIET:?}: what this job does is done again if the node crashes; results are kept of spawned \
             jobs that take at least {:?} (SATIN_STORE_GRAIN) and have small arguments: let jobs do more, or pass a `Shared`",
            self.pool().grain
        );
    }

    /// The position below `head` where the jobs of harvested invocations end, among those of the running job.
    fn harvested_below(&self, head: *const Slot) -> usize {
        let is_harvested = |job: &Slot| {
            // SAFETY: the job is unsettled, so its parent lives.
            unsafe { (*job.parent.get()).has(flag::HARVEST) }
        };
        self.first_below(head, is_harvested)
    }

    /// The position of the running job's first slot below `head` whose job is not `lower`. Lower ones come first.
    fn first_below(&self, head: *const Slot, lower: impl Fn(&Slot) -> bool) -> usize {
        let base = self.bottom.get().head;
        let all = head.addr().saturating_sub(base.addr()) / size_of::<Slot>();
        // SAFETY: the slots from the running job's first one to the head hold unsettled jobs.
        base.wrapping_add(unsafe { lower_ones(base, all, lower) })
            .addr()
    }

    /// The job in `slot`, the youngest, is to be run here. If its result may be worth keeping the job is run now, and has
    /// been settled: true.
    pub(super) fn harvest(&self, slot: *const Slot, frame: *const Frame) -> bool {
        self.look_at_beat(slot.wrapping_add(1), frame, Stage::Syncs);
        if slot.addr() >= self.deque().floor() {
            return false;
        }
        // SAFETY: the frame is that of the invocation that syncs; the slot holds a job of its own.
        let (parent, job) = unsafe { (&*frame, &*slot) };
        // The floor may be left over from a job that ran on top of this one.
        if !parent.has(flag::HARVEST) || parent.has(flag::ABORT) {
            self.deque().set_floor(self.harvested_below(slot));
            return false;
        }
        let stride = parent.stride();
        if stride >= MOST_STRIDE {
            let is_of_others = |job: &Slot| job.parent.get() != frame;
            self.deque().set_floor(self.first_below(slot, is_of_others));
            return false;
        }
        let every = one_in(stride);
        if !job.index().is_multiple_of(every) {
            self.deque().set_floor(self.next_tried(slot, frame, every));
            // The invocation may push the next one in the place of this.
            self.deque().watch_from(slot.addr());
            return false;
        }
        job.enter(self.run_in_place(slot, frame));
        self.stay_marked();
        // The invocation's next jobs are to be tried as well.
        self.deque().set_floor(slot.addr());
        self.deque().watch_from(slot.addr());
        true
    }

    /// The floor above the next job of that invocation, below `slot`, whose index is divisible by `every`: those between need
    /// not look up. Siblings stand in order, upwards or downwards.
    fn next_tried(&self, slot: *const Slot, frame: *const Frame, every: u32) -> usize {
        let base = self.bottom.get().head.addr();
        let index_at = |below: u32| {
            let at = slot.wrapping_sub(below as usize);
            // SAFETY: the slots from the running job's first one to this hold unsettled jobs.
            let job = (at.addr() >= base).then(|| unsafe { &*at })?;
            (job.parent.get() == frame).then(|| job.index())
        };
        let Some(index) = index_at(0) else {
            return slot.addr();
        };
        let beyond = index % every;
        let found = [beyond, every - beyond].into_iter().find(|below| {
            index_at(*below)
                .is_some_and(|at| at.abs_diff(index) == *below && at.is_multiple_of(every))
        });
        let below = found.unwrap_or(1) as usize;
        slot.wrapping_sub(below).wrapping_add(1).addr()
    }

    /// Runs the youngest job, which is ours, in place of its slot as ever, and leaves its result there. The result is kept, if it
    /// is worth that.
    pub(super) fn run_in_place(&self, slot: *const Slot, frame: *const Frame) -> SlotState {
        // SAFETY: the frame is that of the invocation that syncs; the slot holds a job of its own, which is ours.
        let (parent, job) = unsafe { (&*frame, &*slot) };
        let (function, index, judge) = (job.function.get(), job.index(), job.judge());
        self.set_head(slot);
        let outer = self.in_child_of.replace(frame);
        let mut sieve = Sieve::closed();
        let is_harvested = parent.has(flag::HARVEST);
        if is_harvested {
            sieve = self.sieve(function, frame);
            self.deque().set_floor(slot.addr());
        }
        let cx = Cx {
            head: slot,
            parent: frame,
        };
        // SAFETY: as above; the job has not run.
        let state = unsafe { (function.run)(job, cx, &mut sieve) };
        self.in_child_of.set(outer);
        // What the job has spawned has stood in its slot.
        job.fill(function, frame, index, judge);
        self.set_head(slot);
        if !is_harvested {
            return state;
        }
        let (stride, grain) = (parent.stride(), self.grain());
        let in_vain = sieve.took < grain && sieve.cost * MOST_COST > sieve.took;
        if sieve.took * SHORT < grain || in_vain || matches!(sieve.caught, Caught::TooLarge) {
            parent.set_stride(MOST_STRIDE.min(stride + 1));
        } else if sieve.took >= grain {
            parent.set_stride(stride.saturating_sub(2));
        }
        self.keep(job, sieve, || self.root_frame());
        state
    }

    /// The sieve for a job that another worker has spawned. There are few of these, so each is tried.
    pub(super) fn sieve_of_taken(
        &self,
        function: &'static VTable,
        parent: *const Frame,
    ) -> Sieve<'_> {
        // Below a nested entry no job has a name.
        match self.pool().beats.are_on() && depth_of(parent) != STAYS {
            true => self.sieve(function, parent),
            false => Sieve::closed(),
        }
    }

    /// The sieve for a job of that function and that parent.
    fn sieve(&self, function: &'static VTable, parent: *const Frame) -> Sieve<'_> {
        let Reaper {
            before, covered, ..
        } = &self.reaper;
        let sieve = Sieve::new(self.grain(), before.get(), Some(covered));
        let sieve = sieve.with_values(self.pool().beats.are_values_kept());
        sieve.with_known(self.pool().sizes.get(function, depth_below(parent)))
    }

    /// The shortest time that a job takes whose result is kept.
    fn grain(&self) -> Duration {
        let grain = self.pool().grain;
        match grain.is_zero() {
            true => grain, // all are wanted, whatever that costs
            false => grain.max(self.reaper.cost.get().least(Instant::now())),
        }
    }

    /// Notes what a job took, for those who judge whether jobs like it are worth the way to another node.
    fn note_sample(&self, job: &Slot, sieve: &Sieve<'_>) {
        let (vtable, depth) = (job.function.get(), depth_below(job.parent.get()));
        if let Some((size, cost)) = sieve.measured.filter(|(size, _)| size.is_more) {
            self.pool().sizes.note(vtable, depth, size, cost);
        }
        if let Some((size, back)) = sieve.sizes
            && let Some(function) = function::number_of(vtable)
        {
            let shape = JobShape {
                function,
                depth,
                bytes: size.bytes,
                is_more: size.is_more,
                lent: sieve.lent,
                keeps: vtable.keeps,
            };
            let took = sieve.took;
            (self.pool().samples).note(JobSample { shape, took, back });
        }
    }

    /// Keeps the result of a job that this worker has run, if the sieve has caught it. The job's parent still waits; `root` finds
    /// the bottom of its chain.
    pub(super) fn keep<'f>(
        &self,
        job: &Slot,
        sieve: Sieve<'_>,
        root: impl FnOnce() -> Option<&'f RootFrame>,
    ) {
        if sieve.is_closed() {
            return;
        }
        self.reaper.before.set(sieve.took);
        self.note_sample(job, &sieve);
        if let Caught::Unfit(error) = &sieve.caught {
            let is_hosting = self.with_hosted(|hosted| !hosted.is_empty());
            (self.pool()).give_up_unfit(job.function.get(), error, is_hosting);
        }
        let Caught::Fact(print, WrittenResult { bytes, values }) = sieve.caught else {
            if let Caught::TooLarge = sieve.caught
                && sieve.is_all_lost()
            {
                advice::not_kept(job.function.get().info.name, sieve.took);
            }
            return;
        };
        let began = Instant::now();
        let parent = job.parent.get();
        // A job whose children were stopped may have returned anything.
        let is_whole = !self.pool().has_aborted() || !children_aborted(parent);
        let depth = depth_of(parent);
        let has_name =
            depth != STAYS && sieve.took >= PER_LEVEL * u32::from(depth.saturating_sub(LEVELS));
        if is_whole
            && has_name
            && let Some(root) = root()
            && !root.frame.has(flag::FLEETING)
            && let Some(JobPlace { id, run }) = self.place_of(parent, job.index())
            // The result of a root job is kept elsewhere.
            && !id.is_root_job()
        {
            let name = JobName::new(id, print.within(run.name.fingerprint));
            let needs = values.iter().map(HeldValue::name).collect();
            let answer = Answer::result(bytes.into(), needs);
            let covered = Covered {
                time: sieve.before.time + sieve.took,
                facts: sieve.before.facts + 1,
                bytes: sieve.before.bytes + answer.size(),
            };
            // A neighbour gets no result that mentions values, but perhaps that of a job around it.
            let covers = values.is_empty();
            let is_in = self.pool().keep(root, name, answer, values, sieve.took);
            if covers && is_in {
                self.reaper.covered.set(covered);
            }
            self.counters.harvested.add(1);
            self.reaper.quiet.set(None);
        }
        let now = Instant::now();
        let cost = sieve.cost + now.duration_since(began);
        self.reaper.cost.set(self.reaper.cost.get().note(cost, now));
    }
}

/// How deep the children of an invocation stand.
fn depth_below(parent: *const Frame) -> u16 {
    depth_of(parent).saturating_add(1)
}

/// Of so many slots from `first` on the number of those whose job is `lower`. Lower ones come first.
///
/// # Safety
/// The slots hold unsettled jobs.
pub(super) unsafe fn lower_ones(
    first: *const Slot,
    all: usize,
    lower: impl Fn(&Slot) -> bool,
) -> usize {
    let (mut low, mut high) = (0, all);
    while low < high {
        let middle = low.midpoint(high);
        // SAFETY: the caller's promise.
        match lower(unsafe { &*first.wrapping_add(middle) }) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

impl Pool {
    pub(super) fn beat(&self) {
        self.all().for_each(Worker::beat);
    }

    /// Keeps the answer that a job of this process has got from another node, which took that time.
    pub(super) fn keep_answer(
        &self,
        job: &Slot,
        fingerprint: Fingerprint,
        whole: &WholeAnswer,
        took: Duration,
    ) {
        let WholeAnswer { answer, values } = whole;
        if !self.beats.are_on() || took < self.grain || answer.size() > most_kept(took) {
            return;
        }
        let parent = job.parent.get();
        if let Answer::Result {
            needs, kept: None, ..
        } = answer
            && (needs.is_empty() || (self.beats.are_values_kept() && needs.len() == values.len()))
            && let Some(root) = root_of(parent)
            && !root.frame.has(flag::FLEETING)
            && let Some(JobPlace { id, .. }) = place_of(parent, job.index())
            && !id.is_root_job()
        {
            let name = JobName::new(id, fingerprint);
            self.keep(root, name, answer.clone(), values.clone(), took);
        }
    }

    /// Keeps a result. False if there was not enough room for all.
    fn keep(
        &self,
        root: &RootFrame,
        name: JobName,
        answer: Answer,
        values: Vec<HeldValue>,
        took: Duration,
    ) -> bool {
        let mut harvest = root.harvest();
        let (before, dropped) = (harvest.bytes(), harvest.dropped());
        let fact = Fact {
            name,
            answer,
            took,
            // Under the lock of the harvest: who has read the count finds all facts up to there.
            number: self.beats.facts.fetch_add(1, Ordering::Relaxed) + 1,
            values,
        };
        let elsewhere = (self.beats.bytes.load(Ordering::Relaxed)).saturating_sub(before);
        harvest.insert(fact, ROOM.saturating_sub(elsewhere));
        self.beats
            .bytes
            .fetch_add(harvest.bytes(), Ordering::Relaxed);
        self.beats.bytes.fetch_sub(before, Ordering::Relaxed);
        if harvest.dropped() > dropped && !self.beats.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "finished results take more than {} MiB: those that are made again soonest for their size are not kept, and are \
                 lost if this node crashes",
                ROOM >> 20
            );
        }
        harvest.dropped() == dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// The jobs of that length of which results are kept, of 1,000: keeping costs as much as that says.
    fn kept(took: Duration, cost: impl Fn(u32) -> Duration) -> (u32, Duration) {
        let (mut now, mut spent, mut kept) = (Instant::now(), Duration::ZERO, 0);
        let mut keeping = KeepingCost::default();
        for job in 0..1000 {
            let least = keeping.least(now);
            now += took;
            if took >= least {
                kept += 1;
                spent += cost(job);
                now += cost(job);
                keeping = keeping.note(cost(job), now);
            }
        }
        (kept, spent)
    }

    /// Two of a hundred times the worker has no core for 20 ms while it keeps a result.
    #[test]
    fn on_a_busy_machine_all_is_kept_that_is_worth_it() {
        for took in [5.0, 10.0, 25.0] {
            let cost = |job: u32| match job.is_multiple_of(50) {
                true => ms(20.0),
                false => ms(0.01),
            };
            assert_eq!(kept(ms(took), cost).0, 1000, "jobs of {took} ms");
        }
    }

    /// What is dear is kept as often as it may be, and nothing is kept or not for ever.
    #[test]
    fn keeping_takes_a_hundredth_however_dear_it_is() {
        for cost in [0.2, 1.0, 5.0, 20.0] {
            let (kept, spent) = kept(ms(10.0), |_| ms(cost));
            let allowed = ms(10.0) * 1000 / MOST_COST;
            // Until the mean is right.
            let more = ms(cost) * 20;
            assert!(
                spent <= allowed + more,
                "{cost} ms: {spent:?} of {allowed:?}"
            );
            let rightly = allowed.div_duration_f64(ms(cost)) as u32;
            assert!(
                kept >= rightly.min(1000) / 2,
                "{cost} ms: {kept} of {rightly}"
            );
        }
    }
}
