//! Counters of each worker, and the table of them; the events file; warnings that repeat themselves.

pub mod repeats;
pub mod standing;

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

pub mod events;

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
    pub(crate) steals: CachePadded<Counter>,
    pub(crate) publications: Counter,
    pub(crate) sleeps: Counter,
}

/// The figures of one worker, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Jobs that this worker took from another.
    pub steals: u64,
    /// Number of times that it made private jobs public, because a thief asked.
    pub publications: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> Figures {
        Figures {
            steals: self.steals.get(),
            publications: self.publications.get(),
            sleeps: self.sleeps.get(),
        }
    }
}

/// The figures as a table for people, a line per worker.
#[must_use]
pub fn table(figures: &[Figures]) -> String {
    let mut table = format!(
        "{:>8} {:>12} {:>14} {:>10}\n",
        "worker", "steals", "publications", "sleeps"
    );
    for (
        worker,
        Figures {
            steals,
            publications,
            sleeps,
        },
    ) in figures.iter().enumerate()
    {
        table += &format!("{worker:>8} {steals:>12} {publications:>14} {sleeps:>10}\n");
    }
    table
}
