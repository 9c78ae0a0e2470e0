//! What is remembered of the size of jobs whose arguments have too many parts to be measured.
//!
//! A thief's request looks at the oldest jobs, and so do the next ones: a tree of boxes that is too large to leave would be walked each
//! time. Jobs of one function at one depth look alike, so what was found of one answers for the next, for as long as a hundred such walks
//! take.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::job::{Size, VTable, number_of};

/// What was found is believed for so many times the time that finding it took. Too small: walks take much of a core. Too large: the trees
/// of a program's next phase are taken for those of the one before.
const BELIEVED: u32 = 100;

/// The shortest time for which it is believed. Too short: trees are walked again although nothing has changed. Too long: see
/// [`BELIEVED`].
const LEAST: Duration = Duration::from_secs(1);

/// The longest.
const MOST: Duration = Duration::from_secs(60);

/// Deeper jobs are taken for jobs of this depth. Too small: large and small jobs are one. Too large: memory.
const DEEPEST: u16 = 256;

/// Sizes by function and depth.
#[derive(Default)]
pub(super) struct Sizes {
    /// By the function's number, and the depth.
    all: Mutex<BTreeMap<(u32, u16), Remembered>>,
    /// There are some. As long as no program has such jobs, each job that is stolen need not look them up.
    are_some: AtomicBool,
}

#[derive(Clone, Copy)]
struct Remembered {
    size: Size,
    until: Instant,
}

impl Sizes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u32, u16), Remembered>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of jobs of that function and depth, if it is known without a walk.
    pub(super) fn get(&self, function: &VTable, depth: u16) -> Option<Size> {
        if !self.are_some.load(Ordering::Relaxed) {
            return None;
        }
        self.get_at(number_of(function)?, depth, Instant::now())
    }

    /// To find that out of a job's arguments took so long.
    pub(super) fn note(&self, function: &VTable, depth: u16, size: Size, took: Duration) {
        if let Some(function) = number_of(function) {
            self.note_at(function, depth, size, took, Instant::now());
        }
    }

    fn get_at(&self, function: u32, depth: u16, now: Instant) -> Option<Size> {
        let all = self.lock();
        let remembered = all.get(&(function, depth.min(DEEPEST)))?;
        (now < remembered.until).then_some(remembered.size)
    }

    fn note_at(&self, function: u32, depth: u16, size: Size, took: Duration, now: Instant) {
        let until = now + took.saturating_mul(BELIEVED).clamp(LEAST, MOST);
        let remembered = Remembered { size, until };
        self.lock()
            .insert((function, depth.min(DEEPEST)), remembered);
        self.are_some.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_believed_for_as_long_as_many_walks_take() {
        let sizes = Sizes::default();
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let size = Size {
            bytes: 1 << 16,
            parts: 1 << 14,
            is_more: true,
        };
        assert_eq!(sizes.get_at(3, 5, now), None);
        sizes.note_at(3, 5, size, ms(30), now);
        assert_eq!(sizes.get_at(3, 5, now + ms(2900)), Some(size));
        assert_eq!(sizes.get_at(3, 5, now + ms(3000)), None);
        assert_eq!(sizes.get_at(3, 6, now), None);
        assert_eq!(sizes.get_at(4, 5, now), None);
        sizes.note_at(3, 5, size, ms(0), now);
        assert_eq!(sizes.get_at(3, 5, now + ms(900)), Some(size));
    }
}
