//! Counters of each worker, and the table of them; the events file; the log; what the process prints; lines for the person at the terminal;
//! warnings that repeat themselves.

#[doc(hidden)]
pub mod advice;
#[doc(hidden)]
pub mod lines;
pub(crate) mod log;
pub mod output;
pub mod repeats;
pub mod standing;

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

pub(crate) mod arrows;
pub mod events;
pub mod history;
pub mod look;
pub mod timeline;

/// A figure to which only its own worker adds, and which any thread may read.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the figure.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Reads the figure.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figures of a worker. Spawns that are not stolen are not counted: that would cost as much as they do.
#[derive(Default)]
pub struct Counters {
    pub(crate) local_thefts: CachePadded<Counter>,
    pub(crate) publications: Counter,
    pub(crate) seized: CachePadded<Counter>,
    pub(crate) sleeps: Counter,
    pub(crate) harvested: Counter,
    pub(crate) duplicates: Counter,
}

/// The figures of one worker, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Jobs that this worker took from another.
    pub local_thefts: u64,
    /// Number of times that it made private jobs public, because a thief asked.
    pub publications: u64,
    /// Its private jobs that thieves made public, because the worker did not answer.
    pub seized: u64,
    /// Number of times that the worker went to sleep.
    pub sleeps: u64,
    /// Results that the worker has kept, in case that those who wait for them are lost.
    pub harvested: u64,
    /// Jobs on other nodes that the worker ran a second time, as it had nothing else to do.
    pub duplicates: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> Figures {
        Figures {
            local_thefts: self.local_thefts.get(),
            publications: self.publications.get(),
            seized: self.seized.get(),
            sleeps: self.sleeps.get(),
            harvested: self.harvested.get(),
            duplicates: self.duplicates.get(),
        }
    }
}

/// The figures as a table for people, a line per worker.
#[must_use]
pub fn table(figures: &[Figures]) -> String {
    let mut table = format!(
        "{:>8} {:>14} {:>14} {:>10} {:>10} {:>10} {:>10}\n",
        "worker", "local thefts", "publications", "seized", "sleeps", "harvested", "duplicates"
    );
    for (
        worker,
        Figures {
            local_thefts,
            publications,
            seized,
            sleeps,
            harvested,
            duplicates,
        },
    ) in figures.iter().enumerate()
    {
        table += &format!(
            "{worker:>8} {local_thefts:>14} {publications:>14} {seized:>10} {sleeps:>10} {harvested:>10} {duplicates:>10}\n"
        );
    }
    table
}
