//! I11: no job is run more often than there were reasons to run it: deaths, false deaths, withdrawals, misses, abandons.

use super::{Invariant, Run};

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
        // One end can bring the same job back on several ways: at the thief of an orphan above it, and below the repair of its parent.
        let reasons = run.ends;
        match u64::from(most) <= 1 + 3 * reasons {
            true => Ok(()),
            false => Err(format!(
                "a job has run {most} times, and there were {reasons} reasons to run one again"
            )),
        }
    }
}
