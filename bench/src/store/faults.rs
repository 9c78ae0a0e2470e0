//! Schedules of faults, and how long a run with them takes at best.

use anyhow::{Context, Result, ensure};
use satin_cli::{faults::Fault, pool::Plan};

use crate::{
    figures::ideal,
    launch::{Story, computing_at_once},
};

/// Faults in the order of their times, and how many processes go with each.
pub struct Schedule(pub Vec<(Fault, u32)>);

impl Schedule {
    /// Puts the faults into the plan.
    pub fn strike(&self, plan: &mut Plan) {
        plan.faults = self.0.iter().map(|(fault, _)| fault.clone()).collect();
        // A large job may be on each node that is killed: it is not the cause.
        (plan.env).push(("SATIN_MAX_CRASHES".into(), "100".into()));
    }

    /// The time at best of that run, which had so many processes and these faults: the undisturbed time, stretched from each
    /// fault on for the processes that are gone.
    ///
    /// # Errors
    /// If a fault came when the run was over, or not all processes came in.
    pub fn ideal(&self, story: &Story, processes: u32, undisturbed: f64) -> Result<f64> {
        let began_ms = story.all_in_ms(processes as usize);
        let began_ms = began_ms.context("not all processes came in")?;
        let mut left = processes;
        let mut phases = vec![(0.0, computing_at_once(processes))];
        for (Fault { at, .. }, gone) in &self.0 {
            left -= gone;
            let hit_s = story.since_start(began_ms + at.as_millis() as u64);
            ensure!(
                hit_s < story.seconds(),
                "hit {hit_s:.2} s after the start of a run of {:.2} s: it does not count",
                story.seconds()
            );
            phases.push((hit_s.max(0.0), computing_at_once(left)));
        }
        Ok(ideal(undisturbed, &phases))
    }
}
