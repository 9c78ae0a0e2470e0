//! I11: no job is run more often than there were reasons to run it: deaths, false deaths, withdrawals, misses, abandons.

use super::{Invariant, Run};

/// The end of one life can bring the same job back on two ways: at the thief of an orphan above it, which goes on, and
/// below the repair of an ancestor of both, where that orphan cannot be claimed because it lies further down on the very
/// stack that runs the repair. Without this allowance, a seed in some thousands says 3 runs and 1 reason.
const TWO_WAYS: u64 = 2;

pub(super) struct Reasons;

impl Invariant for Reasons {
    fn name(&self) -> &'static str {
        "I11"
    }

    fn what(&self) -> &'static str {
        "a job runs at most once more for each end of a life, withdrawal and miss"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let Some(runs) = run.cluster.runs() else {
            return Ok(());
        };
        let most = runs.values().copied().max().unwrap_or(0);
        let reasons = run.ends;
        match u64::from(most) <= 1 + reasons + TWO_WAYS {
            true => Ok(()),
            false => Err(format!(
                "a job has run {most} times, and there were {reasons} reasons to run one again"
            )),
        }
    }
}
