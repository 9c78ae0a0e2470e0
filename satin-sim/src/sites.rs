//! The experiment of `bench -- sites`: the cost of slow links, and the policies that hide it.

use std::time::Duration;

use satin_runtime::node::Policy;
use serde::Serialize;

use strum::VariantArray;

use crate::{Settings, run};

/// A cell of the table, as `bench -- sites` writes it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The name of the program.
    pub case: &'static str,
    /// The name of the policy.
    #[serde(rename = "impl")]
    pub policy: &'static str,
    /// Round-trip time between sites, in milliseconds.
    pub rtt_ms: f64,
    /// Run time, in seconds.
    pub seconds: f64,
    /// The ideal time over it.
    pub efficiency: f64,
    /// The time of one site with as many nodes over it.
    pub vs_one_site: f64,
}

/// Round trips of the experiment.
pub const ROUND_TRIPS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
];

/// Runs the experiment: each policy at each round trip, on average over so many seeds. The settings in `base` tell how
/// many nodes and sites there are and what they compute.
#[must_use]
pub fn rows(base: &Settings, seeds: u64) -> Vec<Row> {
    let average = |settings: &Settings| {
        let runs = (0..seeds).map(|seed| {
            let seed = settings.seed + seed;
            run(&Settings { seed, ..*settings })
        });
        let runs: Vec<_> = runs.collect();
        let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
        let ideal: f64 = runs.iter().map(|run| run.ideal_seconds).sum();
        (seconds / seeds as f64, ideal / seeds as f64)
    };
    let (one_site, _) = average(&Settings { sites: 1, ..*base });
    let mut rows = Vec::new();
    for policy in Policy::VARIANTS.iter().copied() {
        for round_trip in ROUND_TRIPS {
            let settings = Settings {
                policy,
                // Without emulation, other sites are as near as one's own.
                round_trip: round_trip.max(base.near),
                ..*base
            };
            let (seconds, ideal) = average(&settings);
            rows.push(Row {
                case: "knary",
                policy: policy.into(),
                rtt_ms: round_trip.as_secs_f64() * 1e3,
                seconds,
                efficiency: ideal / seconds,
                vs_one_site: one_site / seconds,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crs_hides_slow_links_and_rs_does_not() {
        let rows = rows(&Settings::default(), 1);
        let of = |policy: &str, rtt_ms: f64| {
            let row = (rows.iter()).find(|row| row.policy == policy && row.rtt_ms == rtt_ms);
            row.expect("every cell is there").vs_one_site
        };
        assert!(of("crs", 10.0) > 0.97, "{rows:#?}");
        assert!(of("crs", 100.0) > 0.90, "{rows:#?}");
        assert!(of("rs", 100.0) < of("crs", 100.0) - 0.05, "{rows:#?}");
    }
}
