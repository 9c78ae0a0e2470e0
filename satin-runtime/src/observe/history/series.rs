//! The rates of the whole pool over time, in bins; a long run has longer bins.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use strum::EnumCount;

use super::spans::HistorySpan;
use crate::observe::look::Activity;

/// The number of kinds of activity.
pub(super) const ACTIVITIES: usize = Activity::COUNT;

/// The length of a bin at first, in milliseconds. Shorter than the time between two looks: bins without figures. Longer: what is short is not seen.
const FIRST_STEP_MS: u64 = 1_000;

/// The number of bins; at more, two become one. Too small: curves are coarse. Too large: more than a screen has points for.
pub(super) const MAX_BINS: usize = 1_800;

/// What all nodes did in an interval of time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Bin {
    /// Jobs from other nodes that were run.
    pub jobs: f64,
    /// Bytes that nodes sent to others.
    pub bytes: f64,
    /// The time of workers for each activity, in milliseconds, in the order of [`Activity`].
    pub activity_ms: [f32; ACTIVITIES],
}

impl Bin {
    fn add(&mut self, more: &Bin) {
        self.jobs += more.jobs;
        self.bytes += more.bytes;
        for (sum, more) in self.activity_ms.iter_mut().zip(more.activity_ms) {
            *sum += more;
        }
    }
}

/// What a node's figures say of the time between two looks.
pub(super) struct Change {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) jobs: f64,
    pub(super) bytes: f64,
}

/// The bins of a run. The figures of a node are spread evenly over the time between two looks.
#[derive(Debug)]
pub struct Series {
    start_ms: Option<u64>,
    step_ms: u64,
    bins: VecDeque<Bin>,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            start_ms: None,
            step_ms: FIRST_STEP_MS,
            bins: VecDeque::new(),
        }
    }
}

impl Series {
    /// The begin of the first bin, in milliseconds since 1970; 0 if there is none.
    #[must_use]
    pub fn start_ms(&self) -> u64 {
        self.start_ms.unwrap_or(0)
    }

    /// The length of each bin, in milliseconds. Grows in long runs.
    #[must_use]
    pub fn step_ms(&self) -> u64 {
        self.step_ms
    }

    /// The bins from this place on, with their places.
    pub fn bins_from(&self, place: usize) -> impl Iterator<Item = (usize, &Bin)> {
        self.bins.iter().enumerate().skip(place)
    }

    /// The number of bins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bins.len()
    }

    /// True if there is no bin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    pub(super) fn add_change(&mut self, change: &Change) {
        let (jobs, bytes) = (change.jobs, change.bytes);
        self.spread(change.from_ms, change.to_ms, |bin, part| {
            bin.jobs += jobs * part;
            bin.bytes += bytes * part;
        });
    }

    pub(super) fn add_span(&mut self, span: &HistorySpan) {
        let (place, length) = (span.activity as usize, f64::from(span.length_ms));
        self.spread(span.start_ms, span.end_ms(), |bin, part| {
            bin.activity_ms[place] += (length * part) as f32;
        });
    }

    /// Calls `add` for each bin that the interval touches, with the part of the interval that lies in the bin.
    fn spread(&mut self, from_ms: u64, to_ms: u64, mut add: impl FnMut(&mut Bin, f64)) {
        if to_ms <= from_ms {
            return;
        }
        let start_ms = *(self.start_ms).get_or_insert(from_ms - from_ms % FIRST_STEP_MS);
        // What is older than the first bin goes there.
        let (from, to) = (
            from_ms.saturating_sub(start_ms),
            to_ms.saturating_sub(start_ms).max(1),
        );
        self.make_room(to);
        let step = self.step_ms;
        let length = (to - from) as f64;
        for place in from / step..=(to - 1) / step {
            let begin = from.max(place * step);
            let end = to.min((place + 1) * step);
            add(
                &mut self.bins[place as usize],
                (end - begin) as f64 / length,
            );
        }
    }

    /// Makes the bins reach to this moment after the start.
    fn make_room(&mut self, to: u64) {
        while to.div_ceil(self.step_ms) > MAX_BINS as u64 {
            self.step_ms *= 2;
            self.bins = (0..self.bins.len().div_ceil(2))
                .map(|pair| {
                    let mut bin = self.bins[2 * pair];
                    bin.add(&self.bins.get(2 * pair + 1).copied().unwrap_or_default());
                    bin
                })
                .collect();
        }
        let needed = to.div_ceil(self.step_ms) as usize;
        if self.bins.len() < needed {
            self.bins.resize(needed, Bin::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_spread_over_the_time_between_two_looks() {
        let mut series = Series::default();
        series.add_change(&Change {
            from_ms: 10_500,
            to_ms: 12_500,
            jobs: 8.0,
            bytes: 0.0,
        });
        let jobs: Vec<f64> = series.bins_from(0).map(|(_, bin)| bin.jobs).collect();
        assert_eq!((series.start_ms(), jobs), (10_000, vec![2.0, 4.0, 2.0]));
    }

    #[test]
    fn a_long_run_has_longer_bins_with_the_same_sum() {
        let mut series = Series::default();
        for second in 0..10_000 {
            series.add_change(&Change {
                from_ms: second * 1_000,
                to_ms: second * 1_000 + 1_000,
                jobs: 3.0,
                bytes: 1.0,
            });
        }
        assert!(series.len() <= MAX_BINS);
        assert_eq!(series.step_ms(), 8_000);
        let jobs: f64 = series.bins_from(0).map(|(_, bin)| bin.jobs).sum();
        assert!((jobs - 30_000.0).abs() < 1e-6, "{jobs}");
    }

    #[test]
    fn a_clock_that_jumps_by_years_takes_no_memory() {
        let mut series = Series::default();
        let mut add = |from_ms| {
            series.add_change(&Change {
                from_ms,
                to_ms: from_ms + 1_000,
                jobs: 1.0,
                bytes: 0.0,
            });
        };
        add(1_000_000);
        add(1_000_000_000_000);
        add(0);
        assert!(series.len() <= MAX_BINS);
    }
}
