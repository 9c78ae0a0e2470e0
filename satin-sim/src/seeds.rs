//! Many seeds, on several threads.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use satin_runtime::node::expiry::Expired;
use strum::EnumCount;

use crate::{
    faults::FaultKind,
    trial::{self, Options, Trial},
};

/// The figures of many seeds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Summary {
    /// Number of seeds.
    pub seeds: u64,
    /// Trials that violated an invariant, the smallest seed first; at most [`Summary::KEEP`] of them.
    pub violations: Vec<Trial>,
    /// Number of violations in all.
    pub violated: u64,
    /// Number of violations of each invariant.
    pub of_each: BTreeMap<&'static str, u64>,
    /// Number of faults done, by kind.
    pub faults: [u64; FaultKind::COUNT],
    /// Time computed beyond what was needed.
    pub twice: Duration,
    /// Time that the programs need.
    pub needed: Duration,
    /// Number of claims made.
    pub claims: u64,
    /// Number of claims withdrawn.
    pub withdrawn: u64,
    /// Number of jobs put back.
    pub came_back: u64,
    /// Jobs that were away and were done by who waited for them.
    pub duplicates: u64,
    /// Number of results saved.
    pub saved: u64,
    /// Nodes that went on as the next generation.
    pub reborn: u64,
    /// Number of masters that were chosen.
    pub terms: u64,
    /// Number of times that each [`Expiry`](satin_runtime::node::expiry::Expiry) ran out.
    pub expired: Expired,
    /// Seeds in which more than one main came to its end: each with the right answer, or that is a violation.
    pub several_mains: u64,
    /// Number of events simulated.
    pub events: u64,
    /// Time until the root jobs were done, in virtual time.
    pub time: Duration,
    /// Number of seeds in which an invariant had something to check, and how often: of those whose conditions do not hold in all.
    pub checked: BTreeMap<&'static str, (u64, u64)>,
    /// Time that the trials took, in real time.
    pub took: Duration,
}

impl Summary {
    /// Number of violations that are kept.
    pub const KEEP: usize = 10;

    /// Adds another trial to the figures.
    pub fn add(&mut self, trial: &Trial) {
        self.seeds += 1;
        for (all, these) in self.faults.iter_mut().zip(trial.faults) {
            *all += these;
        }
        self.twice += trial.twice;
        self.needed += trial.needed;
        self.claims += trial.claims;
        self.withdrawn += trial.withdrawn;
        self.came_back += trial.came_back;
        self.duplicates += trial.duplicates;
        self.saved += trial.saved;
        self.reborn += trial.reborn;
        self.terms += u64::from(trial.term);
        for (all, these) in self.expired.iter_mut().zip(trial.expired) {
            *all += these;
        }
        self.several_mains += u64::from(trial.mains > 1);
        self.events += trial.events;
        self.time += trial.time;
        for (invariant, times) in &trial.checked {
            let (seeds, all) = self.checked.entry(invariant).or_default();
            *seeds += u64::from(*times > 0);
            *all += times;
        }
        if let Some(violation) = &trial.violation {
            self.violated += 1;
            *self.of_each.entry(violation.invariant).or_default() += 1;
            let place = self
                .violations
                .partition_point(|other| other.seed < trial.seed);
            self.violations.insert(place, trial.clone());
            self.violations.truncate(Summary::KEEP);
        }
    }
}

/// Tries all these seeds on `jobs` threads. `progress` is told each time how far it is.
#[must_use]
pub fn run(
    seeds: Range<u64>,
    jobs: u32,
    options: &Options,
    progress: &(dyn Fn(&Summary) + Sync),
) -> Summary {
    let start = Instant::now();
    let summary = Mutex::new(Summary::default());
    each(seeds, jobs, options, &|trial| {
        let mut summary = summary.lock().expect("nobody panics with it");
        summary.add(trial);
        summary.took = start.elapsed();
        progress(&summary);
        false
    });
    let mut summary = summary.into_inner().expect("nobody panicked with it");
    summary.took = start.elapsed();
    summary
}

/// Tries all these seeds on `jobs` threads, about in their order, until one is enough.
pub fn each(
    seeds: Range<u64>,
    jobs: u32,
    options: &Options,
    is_enough: &(dyn Fn(&Trial) -> bool + Sync),
) {
    each_number(seeds, jobs, &|seed| is_enough(&trial::run(seed, options)));
}

/// Calls `is_enough` with all these numbers on `jobs` threads, about in their order, until it is.
pub fn each_number(numbers: Range<u64>, jobs: u32, is_enough: &(dyn Fn(u64) -> bool + Sync)) {
    let next = AtomicU64::new(numbers.start);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    if is_enough(number) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

/// The threads that this machine has at once.
#[must_use]
pub fn threads() -> u32 {
    let threads = std::thread::available_parallelism();
    threads.map_or(1, |threads| threads.get() as u32)
}
