//! Which root jobs of `main` get a fingerprint.
//!
//! By the fingerprint of its arguments a root job is known to be the same in a second run of `main`: without it nothing of the job is kept,
//! and a later master does all of it again. That is always allowed ("what has no fingerprint is not reused"), so the only question is what
//! it costs. The arguments are read before the job runs, as it moves or changes them, and whether anything of the job will be kept, leaves, or
//! is looked up is known later: nodes come while a root job runs. Hence:
//!
//! * Small arguments are always read: that takes a microsecond or two.
//! * So are those of a root job that looks itself up, as its parts are looked up by its fingerprint.
//! * Of large ones those of the function's first root job are read: as a rule it is the only one, and long. Then the fingerprints of
//!   the function's root jobs may take a small part of the time that these jobs take. A tree that is walked in 10 ms, and read in 30, gets
//!   a fingerprint now and then; one that is worked on for a second always does.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::job::{
    Fingerprint, Size, VTable,
    function::{self, Args, Function},
    number_of,
};

/// The fingerprints of a function's root jobs may take one part in so many of the time of these jobs. Too small: programs with large
/// arguments are slow in pools. Too large: more root jobs are done again after the death of a master.
const SHARE: u32 = 40;

/// What root jobs with large arguments have cost, by the numbers of their functions.
#[derive(Default)]
pub(super) struct Prints(Mutex<BTreeMap<u32, RootCosts>>);

/// What the root jobs of a function with large arguments have cost.
#[derive(Clone, Copy, Default)]
struct RootCosts {
    /// The time that these jobs have taken.
    ran: Duration,
    /// The time that their fingerprints have taken.
    spent: Duration,
    /// The same of the last one alone.
    last: Duration,
}

impl RootCosts {
    /// May the next one get a fingerprint?
    fn allow(&self) -> bool {
        self.spent.is_zero() || (self.spent + self.last) * SHARE <= self.ran
    }
}

/// The fingerprint of a root job that is about to run.
pub(super) struct RootPrint {
    /// `None` if it has none.
    pub(super) print: Option<Fingerprint>,
    /// The size of its arguments, as far as that is known.
    pub(super) size: Option<Size>,
    /// Its arguments are large, so that its time counts.
    is_large: bool,
}

impl RootPrint {
    /// Of a root job that no other node will ever run again.
    pub(super) const NONE: RootPrint = RootPrint {
        print: None,
        size: None,
        is_large: false,
    };
}

impl Prints {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, RootCosts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn costs(&self, function: &VTable) -> RootCosts {
        let number = number_of(function);
        let costs = number.and_then(|number| self.lock().get(&number).copied());
        costs.unwrap_or_default()
    }

    fn note(&self, function: &VTable, note: impl FnOnce(&mut RootCosts)) {
        if let Some(number) = number_of(function) {
            note(self.lock().entry(number).or_default());
        }
    }

    /// The fingerprint of a root job with these arguments; `is_looked_up` says that it has to have one if it can.
    pub(super) fn of<F: Function>(&self, args: &Args<'_, F>, is_looked_up: bool) -> RootPrint {
        let size = function::size_of_root::<F>(args);
        // A shared value without a name cannot be measured: it gets its name now or when the job's parts leave.
        let is_large = size.is_some_and(|size| !function::is_small_root(size));
        if is_large && !is_looked_up && !self.costs(F::VTABLE).allow() {
            return RootPrint {
                print: None,
                size,
                is_large,
            };
        }
        let began = Instant::now();
        let print = function::fingerprint_of_all::<F>(args);
        if is_large {
            let took = began.elapsed();
            self.note(F::VTABLE, |costs| {
                costs.spent += took;
                costs.last = took;
            });
        }
        let read = |(_, bytes)| Size {
            bytes,
            parts: 0,
            is_more: false,
        };
        RootPrint {
            print: print.map(|(print, _)| print),
            size: print.map(read).or(size),
            is_large,
        }
    }

    /// That root job has run for so long.
    pub(super) fn ran<F: Function>(&self, print: &RootPrint, took: Duration) {
        if print.is_large {
            self.note(F::VTABLE, |costs| costs.ran += took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1000 root jobs that take so long, the number that get a fingerprint, which takes 30 ms.
    fn printed(took: Duration) -> u32 {
        let mut costs = RootCosts::default();
        let mut printed = 0;
        for _ in 0..1000 {
            if costs.allow() {
                let print = Duration::from_millis(30);
                costs.spent += print;
                costs.last = print;
                printed += 1;
            }
            costs.ran += took;
        }
        printed
    }

    #[test]
    fn fingerprints_take_a_small_part_of_the_time_of_root_jobs() {
        // All but the second, before which the first has not run for long enough.
        assert_eq!(printed(Duration::from_secs(2)), 999);
        // A quarter of the time would go there.
        let some = printed(Duration::from_millis(120));
        assert!((99..=101).contains(&some), "{some}");
        // The first alone.
        assert_eq!(printed(Duration::from_micros(10)), 1);
    }
}
