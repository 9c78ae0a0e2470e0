//! How much of a root job is done, estimated from the tree.
//!
//! A job has a weight: 1 at the root, shared evenly among the children of an invocation. What is finished adds up. Nothing is counted when
//! jobs are spawned or done: at a beat (see `harvest`) each worker looks at its own stack, at most ten times a second, and notes of the job that
//! runs there which part is finished, and which jobs below it others have, with their weights ([`Outline`]). The outlines are put together when the
//! progress is asked for ([`Estimates::look`]). Jobs on other nodes are told by those, as parts of one job each ([`Gate::note_part`](super::Gate::note_part)).
//!
//! Who waits for a flow, and is about to sleep, looks too: no beat would reach it. Of a flow the tasks are counted ([`FlowCount`]): the part that is over, of those that have been made.
//!
//! An estimate: an invocation that goes on to spawn after a sync has more children than it seemed to have, and siblings are taken to be alike.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam::utils::CachePadded;

use super::{harvest::lower_ones, pool::Pool, thread::Worker};
use crate::{
    job::{
        HostedId,
        record::{Frame, Slot, SlotState, flag},
    },
    observe::lines,
};

/// The time from one look of a worker at its stack to the next. Too short: looking shows in the run. Too long: the estimate is old.
pub(super) const EVERY: Duration = Duration::from_millis(100);

/// The levels below a job that count. Too few: the estimate stands still for long. Too many: looks take longer, and nobody sees a difference.
const LEVELS: usize = 32;

/// Of deeper stacks nothing is noted. Too small: deep trees have no estimate. Too large: a look shows in the run.
const MOST_WALKED: usize = 20_000;

/// Of so many children that others have each is looked at, the youngest. Too few: of those beyond some are not done that count as done. Too
/// many: looks take longer.
const MOST_TAKEN: usize = 4096;

/// Outlines that belong to no root job any more are forgotten after that time. Too short: what a slow worker has noted last is lost. Too long: memory.
const FORGET: Duration = Duration::from_secs(10);

/// At so many outlines those are looked for that can be forgotten. Too few: that takes time. Too many: memory.
const MOST_OUTLINES: usize = 4096;

/// An estimate that would have gone back by so much is a guess. Too small: each is. Too large: none is.
const GUESS: f64 = 0.02;

/// No job that runs is done for a larger part: that is for the end.
const ALMOST: f64 = 0.999;

/// A job that runs at the bottom of a worker's stack, or is away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RunningJob {
    /// A root job, by its number in this process.
    Root(u64),
    /// A job of another node.
    Hosted(HostedId),
    /// A job that another worker or node has, by the address of its slot.
    Slot(usize),
    /// A flow, by the address of its frame.
    Flow(usize),
}

/// The tasks of a flow, counted.
#[derive(Default)]
pub(super) struct FlowCount {
    /// Those that have been made. The closure's worker alone writes it.
    made: CachePadded<AtomicU64>,
    /// Twice the number of those that are not over, and one more while the closure's worker is parked.
    pub(super) live: CachePadded<AtomicU64>,
}

/// Of [`FlowCount::live`]: the closure's worker is parked, or about to be.
pub(super) const PARKED: u64 = 1;
/// Of [`FlowCount::live`]: a task.
pub(super) const ONE: u64 = 2;

impl FlowCount {
    /// One more task, for the closure's worker.
    pub(super) fn one_more(&self) {
        let made = self.made.load(Ordering::Relaxed);
        self.made.store(made + 1, Ordering::Relaxed);
        self.live.fetch_add(ONE, Ordering::Relaxed);
    }

    /// The number of tasks that are not over.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::SeqCst) / ONE
    }

    /// The part of the tasks that is over.
    fn done(&self) -> f64 {
        let live = self.live() as f64;
        let made = self.made.load(Ordering::Relaxed).max(1) as f64;
        (1.0 - live / made).clamp(0.0, 1.0)
    }
}

/// What is known of a job: the part of it that is finished, and jobs below that others have, with their weights.
#[derive(Clone, PartialEq, Debug, Default)]
struct Outline {
    finished: f64,
    others: Vec<(RunningJob, f64)>,
}

/// The outlines of all jobs of a pool that are under way.
#[derive(Default)]
pub(super) struct Estimates(Mutex<Known>);

#[derive(Default)]
struct Known {
    outlines: HashMap<RunningJob, (Outline, Instant)>,
    /// The flows that are under way, and whether an outline mentions them.
    flows: HashMap<RunningJob, (Arc<FlowCount>, bool)>,
    /// Root jobs that are under way, in the order in which they began.
    roots: Vec<Root>,
    /// Number of root jobs that have begun.
    begun: u64,
    /// When workers were asked to look up.
    asked: Option<Instant>,
}

/// A root job that is under way.
struct Root {
    number: u64,
    began: Instant,
    /// The part that was said last: what is said never goes back.
    said: f64,
    /// The root job had run before, on another node: its part is a guess, and its time says nothing.
    again: bool,
}

/// How far a root job is.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The part that is done: from 0 to 1. It never goes back.
    pub done: f64,
    /// The time that it has run.
    pub elapsed: Duration,
    /// Is the part a guess? The tree has turned out to be larger than it seemed, nothing is known of it yet, or the root job is run again, as the
    /// node that ran it is gone.
    pub is_guess: bool,
    /// Part of the work was done before that time.
    again: bool,
}

impl Progress {
    /// The progress as another process has told it.
    #[doc(hidden)]
    #[must_use]
    pub fn told(done: f64, elapsed: Duration, is_guess: bool) -> Progress {
        Progress {
            done,
            elapsed,
            is_guess,
            again: false,
        }
    }

    /// The time that is probably left; `None` as long as too little is done to say, and for a root job that is run again.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        const ENOUGH: f64 = 0.01;
        (self.done >= ENOUGH && !self.again)
            .then(|| self.elapsed.mul_f64((1.0 - self.done) / self.done))
    }
}

impl Estimates {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Are workers to look up again? Then the next look is due later.
    fn is_due(&self) -> bool {
        let mut known = self.lock();
        let is_due = known.asked.is_none_or(|asked| asked.elapsed() >= EVERY);
        if is_due {
            known.asked = Some(Instant::now());
        }
        is_due
    }

    /// A root job begins; `again` if another node had begun with it.
    pub(super) fn begin(&self, again: bool) -> RunningJob {
        let mut known = self.lock();
        known.begun += 1;
        let number = known.begun;
        known.roots.push(Root {
            number,
            began: Instant::now(),
            said: 0.0,
            again,
        });
        RunningJob::Root(number)
    }

    /// A flow begins: its tasks count.
    pub(super) fn begin_flow(&self, frame: *const Frame, count: &Arc<FlowCount>) {
        let flow = RunningJob::Flow(frame.addr());
        self.lock().flows.insert(flow, (Arc::clone(count), false));
    }

    /// The flow is over. Who has it in an outline may not have seen that yet.
    pub(super) fn end_flow(&self, frame: *const Frame) {
        let flow = RunningJob::Flow(frame.addr());
        let mut known = self.lock();
        if let Some((_, true)) = known.flows.remove(&flow) {
            known.note(flow, Outline::done(1.0));
        }
    }

    /// A root job is over; `is_done` if it has a result.
    pub(super) fn end_root(&self, part: RunningJob, is_done: bool) {
        let mut known = self.lock();
        let place = (known.roots.iter()).position(|root| RunningJob::Root(root.number) == part);
        if let Some(place) = place {
            let root = known.roots.remove(place);
            match (place == known.roots.len(), is_done) {
                (true, true) => lines::fill_bar(root.began.elapsed()),
                (true, false) => lines::clear_bar(),
                // The bar is that of a root job which began later.
                (false, _) => {}
            }
        }
        known.outlines.remove(&part);
    }

    /// A job is over.
    pub(super) fn end(&self, part: RunningJob) {
        let mut known = self.lock();
        match part {
            RunningJob::Root(_) | RunningJob::Hosted(_) => {}
            // The owner of the slot may not have seen that yet.
            RunningJob::Slot(_) | RunningJob::Flow(_) => {
                return known.note(part, Outline::done(1.0));
            }
        }
        known.outlines.remove(&part);
    }

    /// The part of a job on another node that is done, as that has told.
    pub(super) fn note_part(&self, slot: *const Slot, done: f64) {
        self.lock().note(
            RunningJob::Slot(slot.addr()),
            Outline::done(done.clamp(0.0, ALMOST)),
        );
    }

    /// The answer of a job on another node has come: its owner may not have seen that yet.
    pub(super) fn answered(&self, slot: *const Slot) {
        let part = RunningJob::Slot(slot.addr());
        let mut known = self.lock();
        if known.outlines.contains_key(&part) {
            known.note(part, Outline::done(1.0));
        }
    }

    /// A job leaves this process: what was known of an earlier one in its slot is void.
    pub(super) fn leaves(&self, slot: *const Slot) {
        self.lock().outlines.remove(&RunningJob::Slot(slot.addr()));
    }

    /// The hosted jobs of which something is known, and the parts that are done.
    pub(super) fn hosted(&self) -> Vec<(HostedId, f64)> {
        let known = self.lock();
        let hosted = known.outlines.keys().filter_map(|part| match part {
            RunningJob::Hosted(id) => Some((*id, known.value(*part))),
            _ => None,
        });
        hosted.collect()
    }

    /// How far the root job is that began last, if one is under way.
    pub(super) fn look(&self) -> Option<Progress> {
        let mut known = self.lock();
        known.forget();
        let Root { number, .. } = *known.roots.last()?;
        let part = RunningJob::Root(number);
        let is_known = known.outlines.contains_key(&part);
        let value = known.value(part).min(ALMOST);
        let root = known.roots.last_mut()?;
        let is_guess = root.again || !is_known || value < root.said - GUESS;
        root.said = root.said.max(value);
        Some(Progress {
            done: root.said,
            elapsed: root.began.elapsed(),
            is_guess,
            again: root.again,
        })
    }
}

impl Outline {
    fn done(finished: f64) -> Outline {
        Outline {
            finished,
            others: Vec::new(),
        }
    }
}

impl Known {
    fn note(&mut self, part: RunningJob, outline: Outline) {
        if self.outlines.len() >= MOST_OUTLINES {
            self.forget(); // where progress is not watched nothing else does
        }
        for (part, _) in &outline.others {
            if let Some((_, is_mentioned)) = self.flows.get_mut(part) {
                *is_mentioned = true;
            }
        }
        self.outlines.insert(part, (outline, Instant::now()));
    }

    /// The part of a job that is done.
    fn value(&self, part: RunningJob) -> f64 {
        self.value_for(part, None, LEVELS)
    }

    /// The part of a job that is done, for an outline of that moment that mentions it. Looks so many jobs deep: a slot that is used again
    /// may seem to lie below itself.
    fn value_for(&self, part: RunningJob, seen: Option<Instant>, depth: usize) -> f64 {
        if let Some((count, _)) = self.flows.get(&part) {
            return count.done();
        }
        let Some((outline, since)) = self.outlines.get(&part).filter(|_| depth > 0) else {
            return 0.0;
        };
        // A job that was done before was another one in the same slot: this one had not ended when it was seen.
        if outline.finished >= 1.0 && seen.is_some_and(|seen| *since < seen) {
            return 0.0;
        }
        let others = outline.others.iter();
        let sum =
            others.map(|(part, weight)| weight * self.value_for(*part, Some(*since), depth - 1));
        (outline.finished + sum.sum::<f64>()).clamp(0.0, 1.0)
    }

    /// Forgets what belongs to no job that is under way.
    fn forget(&mut self) {
        let is_top =
            |part: &RunningJob| matches!(part, RunningJob::Root(_) | RunningJob::Hosted(_));
        let mut reached: HashSet<RunningJob> = self
            .outlines
            .keys()
            .filter(|part| is_top(part))
            .copied()
            .collect();
        let mut next: Vec<RunningJob> = reached.iter().copied().collect();
        while let Some(part) = next.pop() {
            let Some((outline, _)) = self.outlines.get(&part) else {
                continue;
            };
            let below = outline.others.iter().map(|(part, _)| *part);
            next.extend(below.filter(|part| reached.insert(*part)));
        }
        (self.outlines)
            .retain(|part, (_, since)| reached.contains(part) || since.elapsed() < FORGET);
    }
}

/// What a worker knows of the way from the bottom of its stack to where it runs.
#[derive(Default)]
pub(super) struct Descent {
    levels: Vec<ProgressLevel>,
    /// The worker has looked at the job at the bottom.
    was_looked_at: bool,
    /// The job at the bottom has an outline.
    is_noted: bool,
}

/// An invocation on that way.
#[derive(Clone, Copy)]
struct ProgressLevel {
    /// The child that runs, by its index.
    child: Option<u32>,
    /// Number of children that the invocation has had at least.
    children: u32,
}

/// A worker's part in the estimates.
#[derive(Default)]
pub(super) struct Surveyor {
    descent: RefCell<Descent>,
    last: Cell<Option<Instant>>,
}

impl Surveyor {
    /// Another job begins on the worker. The way of the one before is to be given to [`Surveyor::end`].
    pub(super) fn begin(&self) -> Descent {
        self.descent.take()
    }

    /// Has this worker never looked at the job that it has begun? While the worker waits it may run other jobs for long, and until it has looked
    /// nothing is known of what others do for the job.
    fn is_new(&self, part: RunningJob) -> bool {
        let is_whole = matches!(part, RunningJob::Root(_) | RunningJob::Hosted(_));
        is_whole && !self.descent.borrow().was_looked_at
    }

    /// The job is over, and the one before goes on, if there is one. True if something was noted of the job: then it is long since the one
    /// before was looked at.
    pub(super) fn end(&self, before: Descent, goes_on: bool) -> bool {
        let is_noted = self.descent.replace(before).is_noted;
        if is_noted && goes_on {
            self.last.set(None);
        }
        is_noted
    }
}

/// What the innermost invocation is about to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The invocation spawns: children that it is known to have may not be there yet.
    Spawns,
    /// The invocation waits for its children: those that are not there are done.
    Syncs,
}

/// The invocations from the bottom of a stack.
struct Chain {
    /// The outermost first.
    frames: Vec<*const Frame>,
    /// Invocations inside of a nested entry are left out: the last frame does more than is known.
    is_cut: bool,
}

/// What was seen of siblings.
#[derive(Default)]
struct SeenSiblings {
    /// Number of children that the invocation has had at least, by their indices.
    children: u32,
    /// Those that are done, and not yet known to be.
    settled: u32,
}

/// The children of an invocation that are in their slots: one after the other.
struct Siblings {
    first: *const Slot,
    count: usize,
}

impl Worker {
    /// At a beat: notes how far the job is that runs here. The slots below `head` hold its unsettled jobs; `frame` is the innermost invocation
    /// that has spawned. Returns false if the worker has looked so recently that it does not look again.
    pub(super) fn survey(&self, head: *const Slot, frame: *const Frame, stage: Stage) -> bool {
        let bottom = self.bottom.get();
        let Some(part) = bottom.part else { return true };
        let (now, last) = (Instant::now(), self.surveyor.last.get());
        if last.is_some_and(|last| now.duration_since(last) < EVERY) && !self.surveyor.is_new(part)
        {
            return false;
        }
        self.surveyor.last.set(Some(now));
        self.surveyor.descent.borrow_mut().was_looked_at = true;
        let Some(chain) = self.chain_from_bottom(frame) else {
            return true;
        };
        let stage = if chain.is_cut { Stage::Spawns } else { stage };
        let mut descent = self.surveyor.descent.borrow_mut();
        let (mut outline, mut weight, mut at) = (Outline::default(), 1.0, bottom.head);
        if chain.frames.is_empty() {
            // The job itself has been set aside as a child of its own root frame.
            let own = Self::siblings_from(at, head, bottom.parent);
            own.look(|slot| outline.others.push((slot, 1.0)));
        }
        let mut levels = Vec::with_capacity(LEVELS);
        let mut is_same = true;
        for (level, here) in chain.frames.iter().take(LEVELS).enumerate() {
            // SAFETY: the frames are those of invocations that run here.
            if unsafe { (**here).has(flag::FLOW) } {
                // Its tasks are no children in slots.
                outline.others.push((RunningJob::Flow(here.addr()), weight));
                break;
            }
            let siblings = Self::siblings_from(at, head, *here);
            at = siblings.first.wrapping_add(siblings.count);
            let child = chain.frames.get(level + 1).map(|below| {
                // SAFETY: the frames are those of invocations that run here.
                unsafe { (**below).index() }
            });
            let known = descent.levels.get(level).filter(|_| is_same);
            let mut taken = Vec::new();
            let seen = siblings.look(|slot| taken.push(slot));
            let running = u32::from(child.is_some());
            let in_slots = u32::try_from(siblings.count).unwrap_or(u32::MAX);
            let children = (seen.children)
                .max(in_slots.saturating_add(running))
                .max(child.map_or(0, |child| child.saturating_add(1)))
                .max(known.map_or(0, |known| known.children));
            is_same &= known.is_some_and(|known| known.child == child);
            levels.push(ProgressLevel { child, children });
            let share = weight / f64::from(children.max(1));
            outline
                .others
                .extend(taken.into_iter().map(|slot| (slot, share)));
            if child.is_some() || stage == Stage::Syncs {
                let waiting = in_slots
                    .saturating_sub(seen.settled)
                    .saturating_add(running);
                outline.finished += share * f64::from(children.saturating_sub(waiting));
            }
            weight = share;
        }
        descent.levels = levels;
        descent.is_noted = true;
        drop(descent);
        self.pool().estimates.lock().note(part, outline);
        true
    }

    /// The invocations of the job that runs here, from the outermost one that has spawned to `frame`. `None` if there are too many.
    fn chain_from_bottom(&self, frame: *const Frame) -> Option<Chain> {
        let end = self.bottom.get().parent;
        let (mut frames, mut at, mut walked, mut is_cut) = (Vec::new(), frame, 0, false);
        while at != end {
            // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
            let here = unsafe { at.as_ref() }?;
            walked += 1;
            if here.has(flag::ROOT) || walked > MOST_WALKED {
                return None;
            }
            if here.has(flag::NESTED) {
                frames.clear();
                is_cut = true;
            } else {
                frames.push(at);
            }
            at = here.parent();
        }
        frames.reverse();
        // One more tells which child runs on the last level that counts.
        frames.truncate(LEVELS + 1);
        Some(Chain { frames, is_cut })
    }

    /// The children of an invocation in their slots, which begin at `first` if there are any.
    fn siblings_from(first: *const Slot, head: *const Slot, frame: *const Frame) -> Siblings {
        let all = head.addr().saturating_sub(first.addr()) / size_of::<Slot>();
        // SAFETY: the slots from the running job's first one to the head hold unsettled jobs.
        let count = unsafe { lower_ones(first, all, |job| job.parent.get() == frame) };
        Siblings { first, count }
    }
}

impl Siblings {
    /// Tells which of them others have: the oldest.
    fn look(&self, mut taken: impl FnMut(RunningJob)) -> SeenSiblings {
        let job = |at: usize| {
            // SAFETY: these slots hold unsettled jobs.
            unsafe { &*self.first.wrapping_add(at) }
        };
        let is_taken = |job: &Slot| job.state() != SlotState::Ready;
        // SAFETY: as above.
        let first_ready = unsafe { lower_ones(self.first, self.count, is_taken) };
        let mut seen = SeenSiblings::default();
        // If some were taken before the sync, the others may stand in the opposite order: the first of those counts as well.
        for at in [0, first_ready, self.count.saturating_sub(1)] {
            if at < self.count {
                seen.children = seen.children.max(job(at).index().saturating_add(1));
            }
        }
        let looked_at = first_ready.saturating_sub(MOST_TAKEN);
        // The older ones are done, as a rule.
        seen.settled = u32::try_from(looked_at).unwrap_or(u32::MAX);
        for at in looked_at..first_ready {
            match job(at).state() {
                SlotState::Ready => {} // taken just now
                state if state.is_settled() => seen.settled += 1,
                _ => taken(RunningJob::Slot(self.first.wrapping_add(at).addr())),
            }
        }
        seen
    }
}

impl Pool {
    /// How far the root job is that began last, if one is under way. The workers look up for the next question.
    pub(super) fn look_at_progress(&self) -> Option<Progress> {
        if self.has_ended() {
            return None;
        }
        let progress = self.estimates.look()?;
        self.beat_for_progress();
        Some(progress)
    }

    /// Makes all workers look up, if nothing else does so now and then.
    fn beat_for_progress(&self) {
        if !self.beats.are_on() && self.idle() < self.workers() && self.estimates.is_due() {
            self.beat();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(finished: f64, others: &[(RunningJob, f64)]) -> Outline {
        Outline {
            finished,
            others: others.to_vec(),
        }
    }

    fn done(estimates: &Estimates) -> f64 {
        estimates.look().expect("a root job").done
    }

    #[test]
    fn parts_that_others_have_count_with_their_weights() {
        let estimates = Estimates::default();
        assert_eq!(estimates.look(), None, "no job is under way");
        let root = estimates.begin(false);
        assert!(
            estimates
                .look()
                .is_some_and(|now| now.is_guess && now.done == 0.0)
        );
        let (here, away) = (RunningJob::Slot(0x40), RunningJob::Slot(0x80));
        let note = |part, outline| estimates.lock().note(part, outline);
        note(root, outline(0.25, &[(here, 0.25), (away, 0.5)]));
        assert_eq!(done(&estimates), 0.25);
        note(here, outline(0.5, &[]));
        assert_eq!(done(&estimates), 0.375);
        estimates.note_part(std::ptr::without_provenance(0x80), 0.5);
        assert_eq!(done(&estimates), 0.625);
        estimates.end(here);
        assert_eq!(done(&estimates), 0.75);
        estimates.end_root(root, true);
        assert_eq!(estimates.look(), None);
    }

    #[test]
    fn of_a_root_job_that_runs_again_the_part_is_a_guess_and_the_time_is_not_said() {
        let estimates = Estimates::default();
        let root = estimates.begin(true);
        estimates.lock().note(root, outline(0.5, &[]));
        let now = estimates.look().expect("a root job");
        assert!(now.is_guess && now.done == 0.5);
        assert_eq!(now.left(), None);
    }

    #[test]
    fn what_was_said_does_not_go_back() {
        let estimates = Estimates::default();
        let root = estimates.begin(false);
        estimates.lock().note(root, outline(0.5, &[]));
        assert!(estimates.look().is_some_and(|now| !now.is_guess));
        // It has more children than it seemed to have.
        estimates.lock().note(root, outline(0.3, &[]));
        let now = estimates.look().expect("a root job");
        assert!(now.is_guess);
        assert_eq!(now.done, 0.5);
        // And what runs is not done.
        estimates.lock().note(root, outline(1.0, &[]));
        assert_eq!(done(&estimates), ALMOST);
    }

    #[test]
    fn the_job_that_was_in_a_slot_before_does_not_count() {
        let estimates = Estimates::default();
        let (root, slot) = (estimates.begin(false), RunningJob::Slot(0x40));
        estimates.end(slot);
        // Later its owner sees another job there.
        estimates.lock().note(root, outline(0.25, &[(slot, 0.5)]));
        let second = estimates.lock().outlines[&root].1 + Duration::from_nanos(1);
        estimates.lock().outlines.get_mut(&root).expect("noted").1 = second;
        assert_eq!(done(&estimates), 0.25);
        std::thread::sleep(Duration::from_micros(1));
        estimates.end(slot);
        assert_eq!(done(&estimates), 0.75);
    }

    #[test]
    fn a_slot_that_is_used_again_below_itself_ends_no_thread() {
        let estimates = Estimates::default();
        let root = estimates.begin(false);
        let slot = RunningJob::Slot(0x40);
        estimates.lock().note(root, outline(0.0, &[(slot, 1.0)]));
        estimates.lock().note(slot, outline(0.1, &[(slot, 0.5)]));
        let done = done(&estimates);
        assert!((0.1..0.21).contains(&done), "{done}");
    }

    #[test]
    fn of_the_time_left_is_said_what_the_time_so_far_says() {
        let progress = |done| Progress {
            done,
            elapsed: Duration::from_secs(30),
            is_guess: false,
            again: false,
        };
        assert_eq!(progress(0.001).left(), None);
        assert_eq!(progress(0.25).left(), Some(Duration::from_secs(90)));
    }
}
