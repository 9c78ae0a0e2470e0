//! The split deque decides who may take which job. It knows positions only, not the jobs at them.
//!
//! ```text
//!   base ......... tail ......... split ......... head
//!        stolen          public         private
//! ```
//!
//! The owner pushes and pops at `head`, which only the owner knows (the head travels in a register). Everything from
//! `split` on is private: popping there costs one relaxed load. Thieves take the job at `tail` by one compare-and-swap
//! on the word that holds tail and split, without the owner's help. A thief that finds nothing public asks, by poisoning
//! the two words that the owner compares with anyway; the owner then publishes. `worker/README.md` tells why each race is
//! harmless.
//!
//! A thief in need does not wait for the next poll, which may be seconds away: it *seizes* private jobs. The owner writes down what it
//! is about to take ([`Head::claim`]) before it reads the guard; the thief poisons the guard, sends a barrier through all threads of the
//! process ([`barrier`](super::barrier)), and reads what the owner has written. Either the owner sees the guard, or the thief the claim.
//!
//! A *floor* in the private part makes the owner look up at each pop below it: those jobs belong to invocations whose
//! children are harvested.
//!
//! After Lace (van Dijk, van de Pol 2014) and Acar, Charguéraud, Rainey (2013).

use crossbeam::utils::CachePadded;

use super::barrier;
use crate::atomic::{
    AtomicU64, AtomicUsize, Cell,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    pause,
};

/// Bytes from one position to the next.
pub(crate) const STEP: usize = size_of::<crate::job::record::Slot>();

/// A relaxed store. Under loom a swap: loom 0.7 may show a thread values older than the one it stored itself, if another
/// thread stored in between, which no processor does.
#[inline(always)]
fn overwrite(word: &AtomicUsize, value: usize) {
    #[cfg(not(loom))]
    word.store(value, Relaxed);
    #[cfg(loom)]
    word.swap(value, Relaxed);
}

/// The number of private jobs that a publication makes public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publish {
    /// Half of the private jobs, rounded up.
    Half,
    /// All of them: it may be long until the next poll.
    All,
}

/// The words that the owner compares with at every spawn and sync. They share one cache line, which only the owner writes
/// as long as no thief asks.
struct Poll {
    /// A spawn below this position may go on without a look: the soft end of the slots, or what the owner watches from, or 0 if a
    /// thief asks.
    limit: AtomicUsize,
    /// A sync at or above this position finds its job private, and takes it without a look: the higher of split and floor,
    /// or `usize::MAX` if a thief asks.
    guard: AtomicUsize,
    /// The owner's copy of the split. Written by the thread that has the lock.
    split: AtomicUsize,
    /// The owner looks up before it pops a job below this position.
    floor: Cell<usize>,
}

/// The first position that the owner has not filled, or has taken back or is about to: what lies below may be seized.
pub(crate) struct Head(AtomicUsize);

impl Head {
    pub(crate) fn new(position: usize) -> Head {
        Head(AtomicUsize::new(position))
    }

    /// Owner: where it stands.
    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Owner: the jobs below that position are as they should be; those from there on are its own.
    #[inline(always)]
    pub(crate) fn set(&self, position: usize) {
        // Release: a thief that seizes a job sees it as it was written.
        self.0.store(position, Release);
    }

    /// Owner: is about to take the jobs from that position on, and reads the guard next.
    #[inline(always)]
    pub(crate) fn claim(&self, position: usize) {
        self.set(position);
        barrier::light();
    }
}

/// The lock of the split. The owner needs it off the fast path only, thieves when they seize jobs.
struct Lock {
    is_held: AtomicUsize,
    /// How often the owner has overwritten the guard.
    answers: AtomicUsize,
    /// 1 if nothing may be seized.
    closed: AtomicUsize,
}

/// The lock, held.
struct DequeGuard<'d>(&'d Lock);

impl Drop for DequeGuard<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(0, Release);
    }
}

impl Lock {
    fn try_hold(&self) -> Option<DequeGuard<'_>> {
        let was_free = self.is_held.compare_exchange(0, 1, Acquire, Relaxed);
        was_free.is_ok().then(|| DequeGuard(self))
    }

    fn hold(&self) -> DequeGuard<'_> {
        let mut rounds = 0;
        loop {
            if let Some(held) = self.try_hold() {
                return held;
            }
            pause(rounds); // a thief writes two words
            rounds += 1;
        }
    }
}

/// Private jobs that a thief has in its hand: the owner neither takes nor publishes any as long as this lives.
pub(crate) struct Seized<'d> {
    deque: &'d Deque,
    /// They lie below it.
    head: usize,
    _held: DequeGuard<'d>,
}

impl Seized<'_> {
    /// Where the jobs begin that [`Seized::publish`] makes public, and how many they are.
    pub(crate) fn to_publish(&self) -> (usize, u64) {
        self.deque.to_publish(self.head, Publish::Half)
    }

    /// Makes half of them public, the oldest. Returns how many became public.
    pub(crate) fn publish(self) -> u64 {
        // Guard and limit stay as they are: for the owner this is a request that it has not answered yet.
        self.deque.raise_split(self.head, Publish::Half)
    }
}

/// The positions of one worker's deque; see the module's documentation.
pub(crate) struct Deque {
    poll: CachePadded<Poll>,
    lock: CachePadded<Lock>,
    /// Tail in the upper half, split in the lower, as numbers of steps from the base. No job is public if tail >= split.
    public: CachePadded<AtomicU64>,
    base: usize,
    /// First position of the slow path: from here on every spawn checks whether the slots run out.
    soft_end: usize,
}

const ASKED_LIMIT: usize = 0;
const ASKED_GUARD: usize = usize::MAX;

/// Owner: moves a position that thieves may overwrite with `asked`. Unlike a publication this answers no request: one that stands, or
/// comes now, must stand afterwards. If the exchange fails it has just come, and then the owner looks up in any case.
#[inline]
fn move_unless_asked(word: &AtomicUsize, asked: usize, position: usize) {
    let old = word.load(Relaxed);
    if old != asked {
        let _ = word.compare_exchange(old, position, Relaxed, Relaxed);
    }
}

fn pack(tail: u64, split: u64) -> u64 {
    tail << 32 | split
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

impl Deque {
    /// An empty deque whose first position is `base`. No thief has asked, but the first spawn publishes.
    pub(crate) fn new(base: usize, soft_end: usize) -> Deque {
        Deque {
            poll: CachePadded::new(Poll {
                limit: AtomicUsize::new(ASKED_LIMIT),
                guard: AtomicUsize::new(base),
                split: AtomicUsize::new(base),
                floor: Cell::new(base),
            }),
            lock: CachePadded::new(Lock {
                is_held: AtomicUsize::new(0),
                answers: AtomicUsize::new(0),
                closed: AtomicUsize::new(0),
            }),
            public: CachePadded::new(AtomicU64::new(0)),
            base,
            soft_end,
        }
    }

    fn steps(&self, position: usize) -> u64 {
        ((position - self.base) / STEP) as u64
    }

    fn position(&self, steps: u64) -> usize {
        self.base + steps as usize * STEP
    }

    // ---------------------------------------------------------------- owner

    /// True if the owner, after a push at `position`, must look up: a thread has asked, the owner
    /// watches, or the slots run out.
    #[inline(always)]
    pub(crate) fn must_look_after_push(&self, position: usize) -> bool {
        position >= self.poll.limit.load(Relaxed)
    }

    /// Before a pop at `position`, the youngest, which has been [claimed](Head::claim): may the owner take it without a word?
    #[inline(always)]
    pub(crate) fn may_pop(&self, position: usize) -> bool {
        position >= self.poll.guard.load(Relaxed)
    }

    /// Owner: what has been claimed before stays private, if it is: a thief that seizes jobs has done so, or sees the claim.
    pub(crate) fn meet_thieves(&self) {
        drop(self.lock.hold());
    }

    /// Owner: from now on its private jobs may not be seized, or may.
    pub(crate) fn close(&self, is_closed: bool) {
        let _held = self.lock.hold();
        overwrite(&self.lock.closed, usize::from(is_closed));
    }

    /// True if a thief has asked since the last publication.
    pub(crate) fn is_asked(&self) -> bool {
        self.poll.guard.load(Relaxed) == ASKED_GUARD || self.poll.limit.load(Relaxed) == ASKED_LIMIT
    }

    /// Where the jobs begin that a publication makes public, and how many they are.
    fn to_publish(&self, head: usize, how_much: Publish) -> (usize, u64) {
        (self.split(), self.due(head, how_much))
    }

    fn split(&self) -> usize {
        self.poll.split.load(Relaxed)
    }

    fn due(&self, head: usize, how_much: Publish) -> u64 {
        // None if a thief has just seized more than the owner is about to offer.
        let private = self.steps(head).saturating_sub(self.steps(self.split()));
        match how_much {
            Publish::Half => private.div_ceil(2),
            Publish::All => private,
        }
    }

    /// Owner: makes jobs public, `head` being the first free position, and takes note of all requests so far. `note` looks at
    /// them before: it gets the first position and how many they are. Returns how many jobs became public.
    pub(crate) fn publish(
        &self,
        head: usize,
        how_much: Publish,
        note: impl FnOnce(usize, u64),
    ) -> u64 {
        // Requests are taken back before any job is published: a thief that asks later asks again.
        overwrite(&self.poll.limit, self.soft_end);
        let _held = self.lock.hold();
        let (first, count) = self.to_publish(head, how_much);
        note(first, count);
        let more = self.raise_split(head, how_much);
        self.set_split(self.split());
        more
    }

    /// Makes jobs public. The caller has the lock.
    fn raise_split(&self, head: usize, how_much: Publish) -> u64 {
        let old_split = self.steps(self.split());
        let more = self.due(head, how_much);
        let split = old_split + more;
        let mut word = self.public.load(Relaxed);
        loop {
            let (tail, shared_split) = unpack(word);
            // If all public jobs are gone, the tail moves over the positions that were popped since.
            let tail = if tail >= shared_split {
                old_split
            } else {
                tail
            };
            // Release: a thief that sees the new split sees the jobs below it.
            match self
                .public
                .compare_exchange_weak(word, pack(tail, split), AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        overwrite(&self.poll.split, self.position(split));
        more
    }

    /// Owner: takes the public job at `position` back, the youngest of the deque. False if it has been stolen.
    pub(crate) fn reclaim(&self, position: usize, how_much: Publish) -> bool {
        let _held = self.lock.hold();
        debug_assert_eq!(
            position + STEP,
            self.split(),
            "only the youngest job is reclaimed"
        );
        let mut word = self.public.load(Relaxed);
        loop {
            let (tail, split) = unpack(word);
            if tail >= split {
                self.set_split(position + STEP);
                return false;
            }
            let keep = match how_much {
                // Half of the public jobs become private again.
                Publish::Half => tail.midpoint(split),
                Publish::All => split - 1,
            };
            // Acquire on failure: a tail that has moved says that the job is the thief's.
            match self
                .public
                .compare_exchange_weak(word, pack(tail, keep), AcqRel, Acquire)
            {
                Ok(_) => {
                    self.set_split(self.position(keep));
                    return true;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Owner: makes private again what has not been stolen of the jobs from `base` on. Returns where they begin.
    pub(crate) fn retake(&self, base: usize) -> usize {
        let _held = self.lock.hold();
        let mut word = self.public.load(Relaxed);
        loop {
            let (tail, split) = unpack(word);
            if tail >= split {
                // No job is public, so every job below the owner's own split has been stolen.
                return self.split().max(base);
            }
            if self.position(split) <= base {
                return base; // older jobs are public, all of ours are private
            }
            let keep = self.steps(base).max(tail);
            // As in `reclaim`: the first of owner and thieves to swap has the jobs.
            match self
                .public
                .compare_exchange_weak(word, pack(tail, keep), AcqRel, Acquire)
            {
                Ok(_) => {
                    self.set_split(self.position(keep));
                    return self.position(keep);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Owner: all jobs below `head` are stolen and there are none above: starts afresh there.
    pub(crate) fn restart(&self, head: usize) {
        let _held = self.lock.hold();
        let (tail, split) = unpack(self.public.load(Relaxed));
        debug_assert!(
            tail >= split,
            "a restart would lose public jobs: tail {tail}, split {split}"
        );
        self.set_split(head);
        // After thefts, more jobs are wanted.
        overwrite(&self.poll.limit, ASKED_LIMIT);
    }

    /// Owner: true if there are private jobs between the split and `head`.
    pub(crate) fn has_private(&self, head: usize) -> bool {
        head > self.split()
    }

    /// Owner: the caller has the lock.
    fn set_split(&self, position: usize) {
        overwrite(&self.poll.split, position);
        overwrite(&self.poll.guard, position.max(self.poll.floor.get()));
        // Release, and last: a thief that reads this number poisons the guard after that.
        let answers = self.lock.answers.load(Relaxed);
        (self.lock.answers).store(answers.wrapping_add(1), Release);
    }

    /// Owner: where the jobs end whose pops must look up.
    pub(crate) fn floor(&self) -> usize {
        self.poll.floor.get()
    }

    /// Owner: from now on pops below this position must look up, and no others for that reason.
    pub(crate) fn set_floor(&self, position: usize) {
        self.poll.floor.set(position);
        let guard = self.split().max(position);
        move_unless_asked(&self.poll.guard, ASKED_GUARD, guard);
    }

    /// Owner: the spawns at and above that position look up from now on, until [`Deque::end_watch`].
    pub(crate) fn watch_from(&self, position: usize) {
        let position = position.min(self.soft_end);
        move_unless_asked(&self.poll.limit, ASKED_LIMIT, position);
    }

    /// Owner: no spawn looks up any more, but for requests and for the end of the slots.
    pub(crate) fn end_watch(&self) {
        move_unless_asked(&self.poll.limit, ASKED_LIMIT, self.soft_end);
    }

    // ---------------------------------------------------------------- all threads

    /// Thief: takes the oldest public job, or asks the owner to publish. Acquires what was written before the job
    /// was published.
    pub(crate) fn steal(&self) -> Option<usize> {
        let word = self.public.load(Acquire);
        let (tail, split) = unpack(word);
        if tail >= split {
            self.ask();
            return None;
        }
        self.public
            .compare_exchange(word, pack(tail + 1, split), AcqRel, Relaxed)
            .ok()?;
        if tail + 1 == split {
            self.ask();
        }
        Some(self.position(tail))
    }

    /// Thief: are there private jobs, and none that is public? May be wrong a moment later.
    pub(crate) fn may_be_seized(&self, head: &Head) -> bool {
        let closed = self.lock.closed.load(Relaxed) != 0;
        barrier::register() && !closed && head.get() > self.split() && !self.has_public()
    }

    /// Thief: takes the private jobs into its hand, if there are any and nothing is public. `head` is the owner's. `None` also if
    /// the owner is just about to answer, or if the system has no such barriers.
    pub(crate) fn seize(&self, head: &Head) -> Option<Seized<'_>> {
        let answers = self.lock.answers.load(Acquire);
        if self.has_public() || head.get() <= self.split() {
            return None;
        }
        self.ask();
        if !barrier::heavy() {
            return None;
        }
        let held = self.lock.try_hold()?;
        // If the guard has been overwritten since, the owner may have taken jobs that it has claimed without our knowledge.
        let is_poisoned = self.poll.guard.load(Relaxed) == ASKED_GUARD
            && self.lock.answers.load(Relaxed) == answers;
        let head = head.0.load(Acquire);
        let may = is_poisoned && self.lock.closed.load(Relaxed) == 0 && head > self.split();
        may.then_some(Seized {
            deque: self,
            head,
            _held: held,
        })
    }

    /// True if any job is public.
    pub(crate) fn has_public(&self) -> bool {
        self.public().is_some()
    }

    /// The position of the oldest public job, and how many jobs are public.
    pub(crate) fn public(&self) -> Option<(usize, u64)> {
        let (tail, split) = unpack(self.public.load(Acquire));
        (tail < split).then(|| (self.position(tail), split - tail))
    }

    /// Makes the owner look up at its next spawn and its next sync. True if there was no request before.
    pub(crate) fn ask(&self) -> bool {
        // Loads first: a thief that finds nothing again and again must not pull the line away from the owner.
        let mut first = false;
        if self.poll.limit.load(Relaxed) != ASKED_LIMIT {
            overwrite(&self.poll.limit, ASKED_LIMIT);
            first = true;
        }
        if self.poll.guard.load(Relaxed) != ASKED_GUARD {
            overwrite(&self.poll.guard, ASKED_GUARD);
            first = true;
        }
        first
    }

    /// Owner: keeps the spawns looking up even though all requests have been answered.
    pub(crate) fn stay_asked(&self) {
        overwrite(&self.poll.limit, ASKED_LIMIT);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! `RUSTFLAGS="--cfg loom" cargo test --release -p satin-runtime --lib loom`

    use loom::{
        cell::UnsafeCell,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst, fence},
        },
        thread,
    };

    use super::*;

    const BASE: usize = 1024 * STEP;

    /// Three preemptions find what was planted, in seconds.
    fn model(story: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(story);
    }

    /// A deque with the jobs that would stand in its slots: each is taken at most once, and seen as it was written.
    struct Jobs {
        deque: Deque,
        head: Head,
        slots: [UnsafeCell<u32>; 3],
    }

    // SAFETY: `slots` are accessed as the deque allows: that is what is tested, by loom's cells.
    unsafe impl Sync for Jobs {}
    // SAFETY: as above.
    unsafe impl Send for Jobs {}

    impl Jobs {
        fn new() -> Arc<Jobs> {
            let deque = Deque::new(BASE, BASE + 64 * STEP);
            Arc::new(Jobs {
                deque,
                head: Head::new(BASE),
                slots: std::array::from_fn(|_| UnsafeCell::new(0)),
            })
        }

        fn push(&self, number: usize) {
            // SAFETY: the owner pushes where the slot is free.
            self.slots[number].with_mut(|slot| unsafe { *slot = number as u32 + 1 });
            self.head.set(BASE + (number + 1) * STEP);
            if self.deque.must_look_after_push(BASE + number * STEP) {
                match self.deque.is_asked() {
                    true => {
                        _ = (self.deque).publish(
                            BASE + (number + 1) * STEP,
                            Publish::Half,
                            |_, _| (),
                        )
                    }
                    false => self.deque.end_watch(),
                }
            }
        }

        /// True if the job has not been stolen.
        fn pop(&self, number: usize) -> bool {
            let job = self.take(number);
            assert!(
                job.is_none_or(|job| job == number as u32 + 1),
                "a job is as it was written"
            );
            job.is_some()
        }

        fn run(&self, number: usize) -> u32 {
            // SAFETY: who has taken the job has its slot.
            let job = self.slots[number].with_mut(|slot| unsafe { std::mem::take(&mut *slot) });
            assert_ne!(job, 0, "a job is run once");
            job
        }

        /// As `Group::sync` does with jobs from `first` on: what is not stolen is turned round, and the older jobs are
        /// offered again. The jobs that the owner runs, in this order.
        fn turn_and_pop(&self, first: usize, count: usize) -> Vec<u32> {
            let base = BASE + first * STEP;
            self.head.claim(base);
            let mut from = (self.deque.retake(base) - BASE) / STEP;
            let mut past = count;
            while from + 1 < past {
                past -= 1;
                // SAFETY: the owner has retaken both.
                self.slots[from].with_mut(|a| unsafe {
                    self.slots[past].with_mut(|b| std::ptr::swap(a, b));
                });
                from += 1;
            }
            self.head.set(BASE + count * STEP);
            let youngest = BASE + (count - 1) * STEP;
            if self.deque.has_private(youngest) && self.deque.is_asked() {
                self.deque.publish(youngest, Publish::Half, |_, _| ());
            }
            let own = (first..count).rev().map(|number| self.take(number));
            own.flatten().collect()
        }

        /// Takes the job back as `Worker::take_back` does; none if it has been stolen.
        fn take(&self, number: usize) -> Option<u32> {
            let position = BASE + number * STEP;
            self.head.claim(position);
            let mine = self.deque.may_pop(position) || {
                self.deque.meet_thieves();
                if self.deque.has_private(position) && self.deque.is_asked() {
                    self.deque.publish(position, Publish::Half, |_, _| ());
                }
                self.deque.may_pop(position)
                    || self.deque.has_private(position + STEP)
                    || self.deque.reclaim(position, Publish::Half)
            };
            if !mine {
                self.deque.restart(position);
            }
            mine.then(|| self.run(number))
        }

        fn steal(&self) -> u32 {
            u32::from(self.steal_one().is_some())
        }

        /// A thread that tries to steal so often, and tells how many jobs it got.
        fn thief(jobs: &Arc<Jobs>, times: u32) -> thread::JoinHandle<u32> {
            let jobs = Arc::clone(jobs);
            thread::spawn(move || (0..times).map(|_| jobs.steal()).sum())
        }

        /// Pops the first `count` jobs; tells how many were not stolen.
        fn pop_all(&self, count: usize) -> u32 {
            let popped = (0..count).rev().map(|number| u32::from(self.pop(number)));
            popped.sum()
        }

        /// Steals without waiting for the owner, and tells which job it got.
        fn rob(&self) -> Option<u32> {
            if let Some(seized) = self.deque.seize(&self.head) {
                seized.publish();
            }
            self.steal_one()
        }

        /// A thread in need, which robs once.
        fn robber(jobs: &Arc<Jobs>) -> thread::JoinHandle<Option<u32>> {
            let jobs = Arc::clone(jobs);
            thread::spawn(move || jobs.rob())
        }

        /// How many jobs it got.
        fn stolen(robber: thread::JoinHandle<Option<u32>>) -> u32 {
            u32::from(robber.join().expect("the thief ends").is_some())
        }

        fn steal_one(&self) -> Option<u32> {
            let position = self.deque.steal()?;
            Some(self.run((position - BASE) / STEP))
        }
    }

    #[test]
    fn loom_every_job_is_run_once() {
        model(|| {
            let jobs = Jobs::new();
            let thief = Jobs::thief(&jobs, 2);
            (0..3).for_each(|number| jobs.push(number));
            let own: u32 = (0..3).rev().map(|number| u32::from(jobs.pop(number))).sum();
            assert_eq!(own + thief.join().expect("the thief ends"), 3);
        });
    }

    /// The owner turns its jobs round while a thief takes some: each is run once, the owner's in the order in which they were
    /// pushed, and those from before `first` stay where they are.
    fn turned(first: usize) {
        model(move || {
            let jobs = Jobs::new();
            let thief = {
                let jobs = Arc::clone(&jobs);
                thread::spawn(move || [jobs.steal_one(), jobs.steal_one()])
            };
            (0..3).for_each(|number| jobs.push(number));
            let own = jobs.turn_and_pop(first, 3);
            assert!(own.is_sorted(), "in program order: {own:?}");
            let older = (0..first).rev().filter_map(|number| jobs.take(number));
            let mut all: Vec<u32> = own.into_iter().chain(older).collect();
            all.extend(thief.join().expect("the thief ends").into_iter().flatten());
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3], "each once");
        });
    }

    #[test]
    fn loom_jobs_are_turned_while_a_thief_looks() {
        turned(0);
    }

    #[test]
    fn loom_older_jobs_stay_where_they_are() {
        turned(1);
    }

    /// No jobs yet; those that are pushed are private, as the request that every deque starts with has been answered.
    fn private() -> Arc<Jobs> {
        let jobs = Jobs::new();
        jobs.push(0);
        assert!(jobs.pop(0));
        assert!(!jobs.deque.is_asked());
        jobs
    }

    #[test]
    fn loom_private_jobs_are_seized_and_run_once() {
        model(|| {
            let jobs = private();
            (0..2).for_each(|number| jobs.push(number));
            let thief = Jobs::robber(&jobs);
            assert_eq!(jobs.pop_all(2) + Jobs::stolen(thief), 2);
        });
    }

    #[test]
    fn loom_a_slot_that_is_filled_again_is_seized_as_it_is() {
        model(|| {
            let jobs = private();
            jobs.push(0);
            let thief = Jobs::robber(&jobs);
            let mut own = 0;
            let mut pushed = 1;
            if jobs.pop(0) {
                own += 1;
                jobs.push(0);
                pushed += 1;
                own += u32::from(jobs.pop(0));
            }
            assert_eq!(own + Jobs::stolen(thief), pushed);
        });
    }

    #[test]
    fn loom_two_thieves_seize() {
        model(|| {
            let jobs = private();
            (0..2).for_each(|number| jobs.push(number));
            let thieves = [Jobs::robber(&jobs), Jobs::robber(&jobs)];
            let own = jobs.pop_all(2);
            assert_eq!(own + thieves.map(Jobs::stolen).into_iter().sum::<u32>(), 2);
        });
    }

    #[test]
    fn loom_jobs_are_turned_while_a_thief_seizes() {
        model(|| {
            let jobs = private();
            (0..3).for_each(|number| jobs.push(number));
            let thief = Jobs::robber(&jobs);
            let own = jobs.turn_and_pop(0, 3);
            assert!(own.is_sorted(), "in program order: {own:?}");
            let mut all: Vec<u32> = own.into_iter().collect();
            all.extend(thief.join().expect("the thief ends"));
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3], "each once");
        });
    }

    /// The owner has seen that there are older private jobs than the one that it is about to pop, and offers them: by then a thief
    /// may have seized all of them, and that one too.
    #[test]
    fn loom_the_youngest_is_seized_while_the_others_are_offered() {
        model(|| {
            let jobs = private();
            (0..2).for_each(|number| jobs.push(number));
            let thief = {
                let jobs = Arc::clone(&jobs);
                thread::spawn(move || [jobs.rob(), jobs.rob()])
            };
            let mut all = jobs.turn_and_pop(0, 2);
            all.extend(thief.join().expect("the thief ends").into_iter().flatten());
            all.sort_unstable();
            assert_eq!(all, [1, 2], "each once");
        });
    }

    /// The harvest's floor moves the guard while a thief poisons it.
    #[test]
    fn loom_a_floor_lets_no_seized_job_be_popped() {
        model(|| {
            let jobs = private();
            (0..2).for_each(|number| jobs.push(number));
            jobs.deque.set_floor(BASE + 2 * STEP);
            let thief = Jobs::robber(&jobs);
            let mut own = 0;
            for number in (0..2).rev() {
                own += u32::from(jobs.pop(number));
                jobs.deque.set_floor(BASE + number * STEP);
            }
            assert_eq!(own + Jobs::stolen(thief), 2);
        });
    }

    #[test]
    fn loom_two_thieves_never_get_the_same_job() {
        model(|| {
            let jobs = Jobs::new();
            (0..2).for_each(|number| jobs.push(number));
            let thieves: Vec<_> = (0..2).map(|_| Jobs::thief(&jobs, 1)).collect();
            let own: u32 = (0..2).rev().map(|number| u32::from(jobs.pop(number))).sum();
            let stolen: u32 = thieves
                .into_iter()
                .map(|thief| thief.join().expect("the thief ends"))
                .sum();
            assert_eq!(own + stolen, 2);
        });
    }

    #[test]
    fn loom_slots_are_reused_after_a_theft() {
        model(|| {
            let jobs = Jobs::new();
            let thief = Jobs::thief(&jobs, 1);
            let mut own = 0;
            for _ in 0..2 {
                jobs.push(0);
                if !jobs.pop(0) {
                    // The thief has it. Its slot is free once the thief is done with it, which the job's state tells.
                    break;
                }
                own += 1;
            }
            let stolen = thief.join().expect("the thief ends");
            assert!(own + stolen >= 1 && own <= 2);
        });
    }

    /// `Worker::answer` against `Pool::announce_abort` (and against a worker that goes to sleep, which is the same).
    #[test]
    fn loom_a_request_is_seen_or_still_stands() {
        model(|| {
            let jobs = Jobs::new();
            let flag = Arc::new(AtomicBool::new(false));
            jobs.push(0); // answers the request that every deque starts with
            let asker = {
                let (jobs, flag) = (Arc::clone(&jobs), Arc::clone(&flag));
                thread::spawn(move || {
                    flag.store(true, Relaxed);
                    fence(SeqCst);
                    jobs.deque.ask();
                })
            };
            jobs.deque.publish(BASE + STEP, Publish::Half, |_, _| ());
            fence(SeqCst);
            let seen = flag.load(Relaxed);
            asker.join().expect("the asker ends");
            assert!(
                seen || jobs.deque.is_asked(),
                "the request was overwritten unseen"
            );
        });
    }

    /// `Worker::harvest`: jobs below the floor are looked at one by one, while a thief takes some.
    #[test]
    fn loom_jobs_below_a_floor_are_run_once() {
        model(|| {
            let jobs = Jobs::new();
            let thief = Jobs::thief(&jobs, 2);
            (0..3).for_each(|number| jobs.push(number));
            jobs.deque.set_floor(BASE + 2 * STEP);
            let mut own = 0;
            for number in (0..3).rev() {
                let position = BASE + number * STEP;
                let looks = !jobs.deque.may_pop(position);
                assert!(
                    looks || position >= jobs.deque.floor(),
                    "a pop below the floor"
                );
                own += u32::from(jobs.pop(number));
                if jobs.deque.floor() > position {
                    jobs.deque.set_floor(position);
                }
            }
            assert_eq!(own + thief.join().expect("the thief ends"), 3);
        });
    }

    /// Raising and lowering the floor overwrites the word that a request poisons.
    #[test]
    fn loom_a_floor_hides_no_request() {
        model(|| {
            let jobs = Jobs::new();
            jobs.push(0); // answers the request that every deque starts with
            let asker = {
                let jobs = Arc::clone(&jobs);
                thread::spawn(move || jobs.deque.ask())
            };
            jobs.deque.set_floor(BASE + STEP);
            jobs.deque.set_floor(BASE);
            asker.join().expect("the asker ends");
            assert!(
                !jobs.deque.may_pop(BASE + 9 * STEP),
                "the next pop looks up"
            );
            assert!(jobs.deque.is_asked(), "the request stands");
        });
    }

    /// Watching the spawns overwrites the other word that a request poisons.
    #[test]
    fn loom_a_watch_hides_no_request() {
        model(|| {
            let jobs = Jobs::new();
            jobs.push(0); // answers the request that every deque starts with
            let asker = {
                let jobs = Arc::clone(&jobs);
                thread::spawn(move || jobs.deque.ask())
            };
            jobs.deque.watch_from(BASE + STEP);
            jobs.deque.end_watch();
            asker.join().expect("the asker ends");
            assert!(
                jobs.deque.must_look_after_push(BASE),
                "the next push looks up"
            );
            assert!(jobs.deque.is_asked(), "the request stands");
        });
    }

    /// A spawn that looks up only because it is watched publishes nothing, and misses no request.
    #[test]
    fn loom_watched_spawns_answer_requests() {
        model(|| {
            let jobs = Jobs::new();
            jobs.push(0);
            jobs.deque.watch_from(BASE + STEP);
            let thief = Jobs::thief(&jobs, 2);
            jobs.deque.end_watch();
            jobs.push(1);
            jobs.deque.watch_from(BASE + 2 * STEP);
            jobs.push(2);
            let own: u32 = (0..3).rev().map(|number| u32::from(jobs.pop(number))).sum();
            assert_eq!(own + thief.join().expect("the thief ends"), 3);
        });
    }

    /// `Worker::answer` against `Gate::take`, which finds nothing, or the worker tells.
    #[test]
    fn loom_what_is_public_is_found_or_told() {
        model(|| {
            let jobs = Jobs::new();
            let wanted = Arc::new(AtomicBool::new(false));
            let gate = {
                let (jobs, wanted) = (Arc::clone(&jobs), Arc::clone(&wanted));
                thread::spawn(move || {
                    wanted.store(true, Relaxed);
                    fence(SeqCst);
                    let found = jobs.deque.has_public();
                    if !found {
                        jobs.deque.ask();
                    }
                    found
                })
            };
            jobs.deque.publish(BASE + STEP, Publish::Half, |_, _| ());
            fence(SeqCst);
            let told = wanted.load(Relaxed) && wanted.swap(false, Relaxed);
            let found = gate.join().expect("the gate ends");
            assert!(found || told, "a job was missed");
            assert!(
                found || !wanted.load(Relaxed),
                "what was missing has been told"
            );
        });
    }
}
