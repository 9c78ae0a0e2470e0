//! How much of a root job is done, estimated from the tree.
//!
//! A job has a weight: 1 at the root, shared evenly among the children of an invocation. What is finished adds up. Nothing is counted when
//! jobs are spawned or done: at a beat (see `harvest`) each worker looks at its own stack, at most ten times a second, and notes of the job that
//! runs there which part is finished, and which jobs below it others have, with their weights ([`Form`]). Whoever wants to know the whole puts the forms
//! together ([`Estimates::look`]). Jobs on other nodes are told by those, as parts of one job each ([`Gate::note_part`](super::Gate::note_part)).
//!
//! An estimate: an invocation that goes on to spawn after a sync has more children than it seemed to have, and siblings are taken to be alike.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{pool::Pool, thread::Worker};
use crate::job::{
    HostedId,
    record::{Frame, Slot, SlotState, flag},
};

/// The time from one look of a worker at its stack to the next. Too short: looking shows in the run. Too long: the estimate is old.
const EVERY: Duration = Duration::from_millis(100);

/// The levels below a job that count. Too few: the estimate stands still for long. Too many: looks take longer, and nobody sees a difference.
const LEVELS: usize = 32;

/// Of deeper stacks nothing is noted. Too small: deep trees have no estimate. Too large: a look shows in the run.
const MOST_WALKED: usize = 20_000;

/// Of so many children that others have each is looked at. Too few: those beyond count as not begun. Too many: looks take longer.
const MOST_TAKEN: usize = 256;

/// What is no part of a root job any more is forgotten after that time. Too short: what a slow worker has noted last is lost. Too long: memory.
const FORGET: Duration = Duration::from_secs(10);

/// An estimate that would have gone back by so much is a guess. Too small: each is. Too large: none is.
const GUESS: f64 = 0.02;

/// No job that runs is done for a larger part: that is for the end.
const ALMOST: f64 = 0.999;

/// A job that runs at the bottom of a worker's stack, or is away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    /// A root job, by its number in this process.
    Root(u64),
    /// A job of another node.
    Hosted(HostedId),
    /// A job that another worker or node has, by the address of its slot.
    Slot(usize),
}

/// What is known of a job: the part of it that is finished, and jobs below that others have, with their weights.
#[derive(Clone, PartialEq, Debug, Default)]
struct Form {
    finished: f64,
    others: Vec<(Part, f64)>,
}

/// The forms of all jobs of a pool that are under way.
#[derive(Default)]
pub(super) struct Estimates(Mutex<Known>);

#[derive(Default)]
struct Known {
    forms: HashMap<Part, (Form, Instant)>,
    /// Root jobs that are under way, in the order in which they began.
    roots: Vec<Root>,
    /// Number of root jobs that have begun.
    begun: u64,
}

/// A root job that is under way.
struct Root {
    number: u64,
    began: Instant,
    /// What was said last: it never goes back.
    said: f64,
}

/// How far a root job is.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The part that is done: from 0 to 1. It never goes back.
    pub done: f64,
    /// The time that it has run.
    pub elapsed: Duration,
    /// Is the part a guess? The tree has turned out to be larger than it seemed, or nothing is known of it yet.
    pub is_guess: bool,
}

impl Progress {
    /// As somebody else has told it.
    #[doc(hidden)]
    #[must_use]
    pub fn told(done: f64, elapsed: Duration, is_guess: bool) -> Progress {
        Progress {
            done,
            elapsed,
            is_guess,
        }
    }

    /// The time that is probably left; `None` as long as too little is done to say.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        const ENOUGH: f64 = 0.01;
        (self.done >= ENOUGH).then(|| self.elapsed.mul_f64((1.0 - self.done) / self.done))
    }
}

impl Estimates {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A root job begins.
    pub(super) fn begin(&self) -> Part {
        let mut known = self.lock();
        known.begun += 1;
        let number = known.begun;
        known.roots.push(Root {
            number,
            began: Instant::now(),
            said: 0.0,
        });
        Part::Root(number)
    }

    /// A job is over.
    pub(super) fn end(&self, part: Part) {
        let mut known = self.lock();
        match part {
            Part::Root(number) => known.roots.retain(|root| root.number != number),
            Part::Hosted(_) => {}
            // Its owner may not have seen that yet.
            Part::Slot(_) => return known.note(part, Form::done(1.0)),
        }
        known.forms.remove(&part);
    }

    /// The part of a job on another node that is done, as that has told.
    pub(super) fn note_part(&self, slot: *const Slot, done: f64) {
        self.lock()
            .note(Part::Slot(slot.addr()), Form::done(done.clamp(0.0, 1.0)));
    }

    /// The answer of a job on another node has come: its owner may not have seen that yet.
    pub(super) fn answered(&self, slot: *const Slot) {
        let part = Part::Slot(slot.addr());
        let mut known = self.lock();
        if known.forms.contains_key(&part) {
            known.note(part, Form::done(1.0));
        }
    }

    /// The hosted jobs of which something is known, and the parts that are done.
    pub(super) fn hosted(&self) -> Vec<(HostedId, f64)> {
        let known = self.lock();
        let hosted = known.forms.keys().filter_map(|part| match part {
            Part::Hosted(id) => Some((*id, known.value(*part, LEVELS))),
            _ => None,
        });
        hosted.collect()
    }

    /// How far the root job is that began last, if one is under way.
    pub(super) fn look(&self) -> Option<Progress> {
        let mut known = self.lock();
        known.forget();
        let Root { number, .. } = *known.roots.last()?;
        let part = Part::Root(number);
        let is_known = known.forms.contains_key(&part);
        let value = known.value(part, LEVELS).min(ALMOST);
        let root = known.roots.last_mut()?;
        let is_guess = !is_known || value < root.said - GUESS;
        root.said = root.said.max(value);
        Some(Progress {
            done: root.said,
            elapsed: root.began.elapsed(),
            is_guess,
        })
    }
}

impl Form {
    fn done(finished: f64) -> Form {
        Form {
            finished,
            others: Vec::new(),
        }
    }
}

impl Known {
    fn note(&mut self, part: Part, form: Form) {
        self.forms.insert(part, (form, Instant::now()));
    }

    /// The part of a job that is done. Looks so many jobs deep: a slot that is used again may seem to lie below itself.
    fn value(&self, part: Part, depth: usize) -> f64 {
        let Some((form, _)) = self.forms.get(&part).filter(|_| depth > 0) else {
            return 0.0;
        };
        let others = form.others.iter();
        let sum = others.map(|(part, weight)| weight * self.value(*part, depth - 1));
        (form.finished + sum.sum::<f64>()).clamp(0.0, 1.0)
    }

    /// Forgets what belongs to no job that is under way.
    fn forget(&mut self) {
        let is_top = |part: &Part| matches!(part, Part::Root(_) | Part::Hosted(_));
        let mut reached: HashSet<Part> = self
            .forms
            .keys()
            .filter(|part| is_top(part))
            .copied()
            .collect();
        let mut next: Vec<Part> = reached.iter().copied().collect();
        while let Some(part) = next.pop() {
            let Some((form, _)) = self.forms.get(&part) else {
                continue;
            };
            let below = form.others.iter().map(|(part, _)| *part);
            next.extend(below.filter(|part| reached.insert(*part)));
        }
        (self.forms).retain(|part, (_, since)| reached.contains(part) || since.elapsed() < FORGET);
    }
}

/// What a worker knows of the way from the bottom of its stack to where it runs.
#[derive(Default)]
pub(super) struct Way {
    levels: Vec<Level>,
    /// The job at the bottom has a form.
    is_noted: bool,
}

/// An invocation on that way.
#[derive(Clone, Copy)]
struct Level {
    /// The child that runs, by its index.
    child: Option<u32>,
    /// Number of children that the invocation has had at least.
    children: u32,
}

/// A worker's part in the estimates.
#[derive(Default)]
pub(super) struct Surveyor {
    way: RefCell<Way>,
    last: Cell<Option<Instant>>,
}

impl Surveyor {
    /// Another job begins on the worker. The way of the one before is to be given to [`Surveyor::end`].
    pub(super) fn begin(&self) -> Way {
        self.way.take()
    }

    /// The job is over, and the one before goes on. True if something was noted of it: then it is long since the one before was looked at.
    pub(super) fn end(&self, before: Way) -> bool {
        let is_noted = self.way.replace(before).is_noted;
        if is_noted {
            self.last.set(None);
        }
        is_noted
    }
}

/// What the innermost invocation is about to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It spawns: the children that it is known to have may not be there yet.
    Spawns,
    /// It waits for its children: those that are not there are done.
    Syncs,
}

/// The children of an invocation that are in their slots: one after the other.
struct Group {
    first: *const Slot,
    count: usize,
}

impl Worker {
    /// At a beat: notes how far the job is that runs here. The slots below `head` hold its unsettled jobs; `frame` is the innermost invocation
    /// that has spawned.
    pub(super) fn survey(&self, head: *const Slot, frame: *const Frame, stage: Stage) {
        let now = Instant::now();
        let last = self.surveyor.last.get();
        let bottom = self.bottom.get();
        let Some(part) = bottom.part else { return };
        if last.is_some_and(|last| now.duration_since(last) < EVERY) {
            return;
        }
        self.surveyor.last.set(Some(now));
        let Some(frames) = self.frames_from_bottom(frame) else {
            return;
        };
        let mut way = self.surveyor.way.borrow_mut();
        let mut levels = Vec::with_capacity(frames.len());
        let mut is_same = true;
        let (mut form, mut weight, mut at) = (Form::default(), 1.0, bottom.head);
        for (level, here) in frames.iter().enumerate() {
            let group = Self::group_of(at, head, *here);
            at = group.first.wrapping_add(group.count);
            // SAFETY: the frames are those of invocations that run here.
            let child = frames
                .get(level + 1)
                .map(|below| unsafe { (**below).index() });
            let known = way.levels.get(level).filter(|_| is_same);
            let children = (group.children())
                .max(child.map_or(0, |child| child.saturating_add(1)))
                .max(known.map_or(0, |known| known.children));
            is_same &= known.is_some_and(|known| known.child == child);
            levels.push(Level { child, children });
            let share = weight / f64::from(children.max(1));
            let settled = group.look_at_taken(|slot| form.others.push((slot, share)));
            let is_whole = child.is_some() || stage == Stage::Syncs;
            if is_whole {
                let waiting = (group.count - settled) as f64 + f64::from(u8::from(child.is_some()));
                form.finished += share * (f64::from(children) - waiting).max(0.0);
            }
            weight = share;
        }
        way.levels = levels;
        way.is_noted = true;
        drop(way);
        self.pool().estimates.lock().note(part, form);
    }

    /// The invocations of the job that runs here, from the outermost one that has spawned to `frame`, as many as count. `None` if there are too
    /// many. Those outside of a nested entry stand for those inside.
    fn frames_from_bottom(&self, frame: *const Frame) -> Option<Vec<*const Frame>> {
        let end = self.bottom.get().parent;
        let (mut frames, mut at, mut walked) = (Vec::new(), frame, 0);
        while at != end {
            // SAFETY: frames live as long as an invocation below them runs, and one of those asks.
            let here = unsafe { at.as_ref() }?;
            walked += 1;
            if here.has(flag::ROOT) || walked > MOST_WALKED {
                return None;
            }
            match here.has(flag::NESTED) {
                true => frames.clear(),
                false => frames.push(at),
            }
            at = here.parent();
        }
        frames.reverse();
        frames.truncate(LEVELS);
        Some(frames)
    }

    /// The children of an invocation in their slots, which begin at `first` if there are any.
    fn group_of(first: *const Slot, head: *const Slot, frame: *const Frame) -> Group {
        let all = head.addr().saturating_sub(first.addr()) / size_of::<Slot>();
        let (mut low, mut high) = (0, all);
        while low < high {
            let middle = low.midpoint(high);
            // SAFETY: the slots from the running job's first one to the head hold unsettled jobs.
            let job = unsafe { &*first.wrapping_add(middle) };
            match job.parent.get() == frame {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Group { first, count: low }
    }
}

impl Group {
    /// Number of children that the invocation has had at least, as far as these know.
    fn children(&self) -> u32 {
        let index = |at: usize| {
            // SAFETY: these slots hold unsettled jobs.
            let job = unsafe { &*self.first.wrapping_add(at) };
            job.index().saturating_add(1)
        };
        // They stand in order, upwards or downwards.
        match self.count {
            0 => 0,
            count => index(0).max(index(count - 1)),
        }
    }

    /// Tells which of them others have, and counts those that are finished. They are the oldest.
    fn look_at_taken(&self, mut taken: impl FnMut(Part)) -> usize {
        let mut settled = 0;
        for at in 0..self.count.min(MOST_TAKEN) {
            let slot = self.first.wrapping_add(at);
            // SAFETY: these slots hold unsettled jobs.
            match unsafe { (*slot).state() } {
                SlotState::Ready => break,
                state if state.is_settled() => settled += 1,
                _ => taken(Part::Slot(slot.addr())),
            }
        }
        settled
    }
}

impl Pool {
    /// Makes all workers look up, if nothing else does so now and then.
    pub(super) fn beat_for_progress(&self) {
        if !self.beats.are_on() && self.idle() < self.workers() {
            self.beat();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(finished: f64, others: &[(Part, f64)]) -> Form {
        Form {
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
        let root = estimates.begin();
        assert!(
            estimates
                .look()
                .is_some_and(|now| now.is_guess && now.done == 0.0)
        );
        let (here, away) = (Part::Slot(0x40), Part::Slot(0x80));
        let note = |part, form| estimates.lock().note(part, form);
        note(root, form(0.25, &[(here, 0.25), (away, 0.5)]));
        assert_eq!(done(&estimates), 0.25);
        note(here, form(0.5, &[]));
        assert_eq!(done(&estimates), 0.375);
        estimates.note_part(std::ptr::without_provenance(0x80), 0.5);
        assert_eq!(done(&estimates), 0.625);
        estimates.end(here);
        assert_eq!(done(&estimates), 0.75);
        estimates.end(root);
        assert_eq!(estimates.look(), None);
    }

    #[test]
    fn what_was_said_does_not_go_back() {
        let estimates = Estimates::default();
        let root = estimates.begin();
        estimates.lock().note(root, form(0.5, &[]));
        assert!(estimates.look().is_some_and(|now| !now.is_guess));
        // It has more children than it seemed to have.
        estimates.lock().note(root, form(0.3, &[]));
        let now = estimates.look().expect("a root job");
        assert!(now.is_guess);
        assert_eq!(now.done, 0.5);
        // And what runs is not done.
        estimates.lock().note(root, form(1.0, &[]));
        assert_eq!(done(&estimates), ALMOST);
    }

    #[test]
    fn a_slot_that_is_used_again_below_itself_ends_no_thread() {
        let estimates = Estimates::default();
        let root = estimates.begin();
        let slot = Part::Slot(0x40);
        estimates.lock().note(root, form(0.0, &[(slot, 1.0)]));
        estimates.lock().note(slot, form(0.1, &[(slot, 0.5)]));
        let done = done(&estimates);
        assert!((0.1..0.21).contains(&done), "{done}");
    }

    #[test]
    fn of_the_time_left_is_said_what_the_time_so_far_says() {
        let progress = |done| Progress {
            done,
            elapsed: Duration::from_secs(30),
            is_guess: false,
        };
        assert_eq!(progress(0.001).left(), None);
        assert_eq!(progress(0.25).left(), Some(Duration::from_secs(90)));
    }
}
