//! The split deque: who may take which job. It knows positions only, nothing of what stands there.
//!
//! ```text
//!   base ......... tail ......... split ......... head
//!        stolen          public         private
//! ```
//!
//! The owner pushes and pops at `head`, which only it knows (it travels in a register). Everything from `split` on is
//! private: popping there costs one relaxed load. Thieves take the job at `tail` by one compare-and-swap on the word
//! that holds tail and split, without the owner's help. Who finds nothing public asks, by poisoning the two words
//! that the owner compares with anyway; the owner then publishes. `worker/README.md` tells why each race is harmless.
//!
//! After Lace (van Dijk, van de Pol 2014) and Acar, Charguéraud, Rainey (2013).

#[cfg(loom)]
use loom::{cell::Cell, sync::atomic};
#[cfg(not(loom))]
use std::{cell::Cell, sync::atomic};

use atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crossbeam::utils::CachePadded;

/// Bytes from one position to the next.
pub(crate) const STEP: usize = size_of::<crate::job::record::Slot>();

/// How much becomes public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publish {
    /// Half of the private jobs, rounded up.
    Half,
    /// All of them: it may be long until the next poll.
    All,
}

/// What the owner compares with at every spawn and sync. On one cache line, which only the owner writes as long as
/// nobody asks.
struct Poll {
    /// A spawn below it may go on without a word: the soft end of the slots, or 0 if somebody asks.
    limit: AtomicUsize,
    /// A sync at or above it finds its job private: the split, or `usize::MAX` if somebody asks.
    guard: AtomicUsize,
    /// The owner's copy of the split.
    split: Cell<usize>,
}

/// See the module's documentation.
pub(crate) struct Deque {
    poll: CachePadded<Poll>,
    /// Tail in the upper half, split in the lower, as numbers of steps from the base. Nothing is public if
    /// tail >= split.
    public: CachePadded<AtomicU64>,
    base: usize,
    /// From here on every spawn takes the slow path, which sees that the slots run out.
    soft_end: usize,
}

const ASKED_LIMIT: usize = 0;
const ASKED_GUARD: usize = usize::MAX;

fn pack(tail: u64, split: u64) -> u64 {
    tail << 32 | split
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

impl Deque {
    /// An empty deque whose first position is `base`. Nobody has asked, but the first spawn publishes.
    pub(crate) fn new(base: usize, soft_end: usize) -> Deque {
        Deque {
            poll: CachePadded::new(Poll {
                limit: AtomicUsize::new(ASKED_LIMIT),
                guard: AtomicUsize::new(base),
                split: Cell::new(base),
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

    /// After a push at `position`: must the owner call [`Deque::publish`] (or see that the slots run out)?
    #[inline(always)]
    pub(crate) fn must_look_after_push(&self, position: usize) -> bool {
        position >= self.poll.limit.load(Relaxed)
    }

    /// Before a pop at `position`, the youngest: may the owner take it without a word?
    #[inline(always)]
    pub(crate) fn may_pop(&self, position: usize) -> bool {
        position >= self.poll.guard.load(Relaxed)
    }

    /// Has somebody asked since the last publication?
    pub(crate) fn is_asked(&self) -> bool {
        self.poll.guard.load(Relaxed) == ASKED_GUARD || self.poll.limit.load(Relaxed) == ASKED_LIMIT
    }

    /// Owner: makes jobs public, `head` being the first free position, and takes note of all requests so far.
    /// Returns how many jobs became public.
    pub(crate) fn publish(&self, head: usize, how_much: Publish) -> u64 {
        // Requests are taken back before anything is published: who asks later asks again.
        self.poll.limit.store(self.soft_end, Relaxed);
        let old_split = self.steps(self.poll.split.get());
        let private = self.steps(head) - old_split;
        let more = match how_much {
            Publish::Half => private.div_ceil(2),
            Publish::All => private,
        };
        let split = old_split + more;
        let mut word = self.public.load(Relaxed);
        loop {
            let (tail, shared_split) = unpack(word);
            // Where all public jobs are gone the tail moves over the ones that were popped since.
            let tail = if tail >= shared_split { old_split } else { tail };
            // Release: a thief that sees the new split sees the jobs below it.
            match self.public.compare_exchange_weak(word, pack(tail, split), AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        self.set_split(self.position(split));
        more
    }

    /// Owner: takes the public job at `position` back, the youngest of the deque. False if it has been stolen.
    pub(crate) fn reclaim(&self, position: usize, how_much: Publish) -> bool {
        debug_assert_eq!(position + STEP, self.poll.split.get(), "only the youngest job is reclaimed");
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
            match self.public.compare_exchange_weak(word, pack(tail, keep), AcqRel, Acquire) {
                Ok(_) => {
                    self.set_split(self.position(keep));
                    return true;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Owner: everything below `head` is stolen and nothing is above: start afresh there.
    pub(crate) fn restart(&self, head: usize) {
        let (tail, split) = unpack(self.public.load(Relaxed));
        debug_assert!(tail >= split, "a restart would lose public jobs: tail {tail}, split {split}");
        self.set_split(head);
        // Where jobs have been stolen more are wanted.
        self.poll.limit.store(ASKED_LIMIT, Relaxed);
    }

    /// Owner: private jobs that nobody has asked for, between the split and `head`.
    pub(crate) fn has_private(&self, head: usize) -> bool {
        head > self.poll.split.get()
    }

    fn set_split(&self, position: usize) {
        self.poll.split.set(position);
        self.poll.guard.store(position, Relaxed);
    }

    // ---------------------------------------------------------------- everybody

    /// Thief: takes the oldest public job, or asks the owner to publish. Acquires what was written before the job
    /// was published.
    pub(crate) fn steal(&self) -> Option<usize> {
        let word = self.public.load(Acquire);
        let (tail, split) = unpack(word);
        if tail >= split {
            self.ask();
            return None;
        }
        self.public.compare_exchange(word, pack(tail + 1, split), AcqRel, Relaxed).ok()?;
        if tail + 1 == split {
            self.ask();
        }
        Some(self.position(tail))
    }

    /// Is anything public?
    pub(crate) fn has_public(&self) -> bool {
        let (tail, split) = unpack(self.public.load(Acquire));
        tail < split
    }

    /// Makes the owner look up at its next spawn and its next sync. True if nobody had asked.
    pub(crate) fn ask(&self) -> bool {
        // Loads first: a thief that finds nothing again and again must not pull the line away from the owner.
        let mut first = false;
        if self.poll.limit.load(Relaxed) != ASKED_LIMIT {
            self.poll.limit.store(ASKED_LIMIT, Relaxed);
            first = true;
        }
        if self.poll.guard.load(Relaxed) != ASKED_GUARD {
            self.poll.guard.store(ASKED_GUARD, Relaxed);
            first = true;
        }
        first
    }

    /// Owner: keeps the spawns looking up even though all requests have been answered.
    pub(crate) fn stay_asked(&self) {
        self.poll.limit.store(ASKED_LIMIT, Relaxed);
    }
}
