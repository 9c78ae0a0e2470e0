//! I22: a cut between sites costs no more than what all workers do until the sides have met again, and what they were at. If the first master comes
//! over, what it had before the cut is done again, too: the side that stays cannot know it.

use std::time::Duration;

use super::{Invariant, Run, comes_over};
use crate::faults::HEALING;

/// The node that runs `main` when a pool begins.
const FIRST_MASTER: u32 = 0;

pub(super) struct CutsCost;

impl Invariant for CutsCost {
    fn name(&self) -> &'static str {
        "I22"
    }

    fn what(&self) -> &'static str {
        "a cut costs no more than what is done until the sides have met"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let Some(cuts) = run
            .cuts
            .filter(|cuts| cuts.is_fair && !cuts.links.is_empty())
        else {
            return Ok(());
        };
        let is_main_lost = comes_over(run.cluster, FIRST_MASTER) > 0;
        let until = |(begin, end): &(Duration, Duration)| {
            let since = if is_main_lost { Duration::ZERO } else { *begin };
            *end - since + HEALING + 2 * cuts.longest
        };
        let workers = run.cluster.nodes() * cuts.threads;
        let most = workers * cuts.links.iter().map(until).sum::<Duration>();
        match run.twice <= most {
            true => Ok(()),
            false => Err(format!(
                "{:?} of work was done twice, and in the time of the cuts the workers could do {most:?}",
                run.twice
            )),
        }
    }
}
