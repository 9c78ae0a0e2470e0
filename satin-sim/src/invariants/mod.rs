//! The invariants: a file each, numbered as in the design.
//!
//! Those of flows are J1 to J8. A task is a job, so most of what they say an invariant of all jobs says already:
//!
//! | | of flows | where |
//! | --- | --- | --- |
//! | J1 | what is waited for is ready, runs, is away, or waits itself for something before it | `j01`, with I2 and I7 |
//! | J2 | the answer of a task is adopted once | I2 (done once), I4 (answers come only to what is away) |
//! | J3 | no task begins before what it reads is there | `j03` |
//! | J4 | no write beside a reader | not here: results do not change in a simulation. Loom tries it, `worker/flow/waiters.rs` |
//! | J5 | the values are those of the program text | I12 (the root's answer, in which every result of every task can be seen), I16 (in the store) |
//! | J6 | a flow that runs again finds its tasks, and no others | `j06`, with I19 (what is in the store is not done again) |
//! | J7 | a task runs at most once more for each death and withdrawal (a second run by who waits is none) | I11 |
//! | J8 | nothing stays when a flow ends | I2 (nothing on a board, away or running belongs to a flow that is gone), I9, I10 |

mod i01_only_the_living_have_our_jobs;
mod i02_a_child_is_in_one_place;
mod i03_a_theft_has_one_thief;
mod i04_no_answer_to_what_runs_here;
mod i05_owners_have_what_they_announce;
mod i06_nothing_is_sent_to_the_dead;
mod i07_the_root_is_done;
mod i08_both_ends_agree;
mod i09_nothing_stays;
mod i10_closed_orphans_stop;
mod i11_no_run_without_a_reason;
mod i12_the_answer_is_right;
mod i13_views_agree;
mod i14_one_main;
mod i15_tables_are_bounded;
mod i16_what_is_stored_is_right;
mod i17_nothing_stays_in_the_store;
mod i18_what_is_finished_is_stored;
mod i19_what_is_stored_is_not_done_again;
mod i20_logs_are_bounded;
mod i21_no_main_beside_another;
mod i22_cuts_cost_what_is_done_meanwhile;
mod j01_no_task_is_forgotten;
mod j03_inputs_come_first;
mod j06_tasks_are_found_again;
mod j08_data_go_when_nobody_needs_them;
mod l01_one_side_lives_on;
mod l02_one_life_a_cut;

use std::{collections::BTreeMap, time::Duration};

use satin_runtime::node::{
    ProtocolConfig,
    cluster::{Cluster, ImaginaryStore},
    inspect::Inspection,
};

pub(crate) use i05_owners_have_what_they_announce::strange_belief;
pub(crate) use i13_views_agree::differing_views;
pub(crate) use l01_one_side_lives_on::comes_over;

/// A violation of an invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The invariant: `I1` to `I22`, `J1` to `J8`, `L1`, `L2`, or `panic`.
    pub invariant: &'static str,
    /// The violation in a sentence.
    pub sentence: String,
    /// The virtual time of the violation.
    pub at: Duration,
}

/// A pool after a step.
pub struct Seen<'c> {
    /// The pool after the step.
    pub cluster: &'c Cluster,
    /// The node that the step concerned.
    pub node: u32,
    /// The books of that node.
    pub books: &'c Inspection,
    /// Does a leaf of a program panic?
    pub panics: bool,
    /// The configuration of all nodes.
    pub config: &'c ProtocolConfig,
    /// True if no fault has been brought, and no live node taken for dead, since all nodes died.
    pub undisturbed: bool,
}

impl Seen<'_> {
    /// The store, if it answers and no run is done, and how long a write may take: see [`Writes`].
    fn store(&self) -> Option<(&ImaginaryStore, Writes)> {
        let store = self.cluster.store()?;
        if store.is_silent || store.was_hidden || store.finished() > 0 {
            return None;
        }
        let every = self.config.store_every?.max(SHORTEST_PERIOD);
        let writes = Writes {
            every: every.mul_f64(CLOCKS) + MOMENT,
            latency: store.latency,
        };
        Some((store, writes))
    }
}

/// As in `node/stable`: the shortest period.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// As in `node/stable`: what is not alive any more is forgotten two periods and this after all that is has been written anew.
const FORGETS_AFTER: Duration = Duration::from_secs(1);

/// Clocks of nodes lose up to so much.
const CLOCKS: f64 = 1.06;

/// Timers are rounded.
const MOMENT: Duration = Duration::from_millis(1);

/// The times of a store that works.
#[derive(Clone, Copy, Debug)]
struct Writes {
    /// The period of a node.
    every: Duration,
    /// The time from a node to the store, and back.
    latency: Duration,
}

impl Writes {
    /// From one batch of a node to the next, at most.
    fn cycle(self) -> Duration {
        self.every + 2 * self.latency
    }

    /// From the end of a job until its result is in the store, at most: a batch may just have been filled without it.
    fn window(self) -> Duration {
        self.cycle() + self.latency
    }

    /// From the first batch of a log that is written anew, if all fits into that, until the rest is forgotten, at most.
    fn forgetting(self) -> Duration {
        2 * self.every + FORGETS_AFTER.mul_f64(CLOCKS) + 2 * self.latency
    }
}

/// The facts about a run when it is over.
pub struct Run<'c> {
    /// The pool at the end.
    pub cluster: &'c Cluster,
    /// The right results of `main`'s root jobs.
    pub right: &'c [u64],
    /// Does a leaf of a program panic? Then every main must see that.
    pub panics: bool,
    /// Nodes that were told to go.
    pub drained: &'c [u32],
    /// True if the root jobs ended in time.
    pub done: bool,
    /// Is everything at rest since?
    pub rests: bool,
    /// Books of all nodes that run.
    pub books: &'c [(u32, Inspection)],
    /// Lives that ended in a node's view: deaths, false ones too, and departures; withdrawals, misses, and mains that
    /// began anew.
    pub ends: u64,
    /// True if a node was stopped or cut off, so that a live node may have been taken for dead, or if one came over.
    pub apart: bool,
    /// If nothing went wrong but the way between sites: the cuts.
    pub cuts: Option<Cuts<'c>>,
    /// Time computed beyond what the programs need.
    pub twice: Duration,
}

/// The cuts of a run in which nothing went wrong but the way between sites, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Cuts<'c> {
    /// The beginning and the end of each cut of a link.
    pub links: &'c [(Duration, Duration)],
    /// The number of nodes from the beginning on; others have joined them.
    pub founders: u32,
    /// The number of workers of each node.
    pub threads: u32,
    /// The longest time that a job computes without a pause.
    pub longest: Duration,
    /// Sides that meet this long before or after an election may not know of it.
    pub moment: Duration,
    /// Does the same work take the same time in each run, and is that of others used?
    pub is_fair: bool,
}

impl Cuts<'_> {
    /// When links were whole again, and how many at each of these times.
    fn healed(&self) -> BTreeMap<Duration, usize> {
        let mut healed = BTreeMap::new();
        for (_, end) in self.links {
            *healed.entry(*end).or_default() += 1;
        }
        healed
    }

    /// When the sides met again, if there was one cut, into two sides.
    fn two_sides_met(&self) -> Option<Duration> {
        let healed = self.healed();
        let (at, links) = healed.first_key_value()?;
        (healed.len() == 1 && *links < 3).then_some(*at)
    }
}

/// A property that must hold.
pub trait Invariant: Send {
    /// The name: `I1` to `I22`, `J1` to `J8`, `L1`, `L2`.
    fn name(&self) -> &'static str;

    /// The property, in a sentence.
    fn what(&self) -> &'static str;

    /// How often there was something to check, for those that say so: their conditions hold in some seeds only.
    fn checked(&self) -> Option<u64> {
        None
    }

    /// Checks the property after a step.
    ///
    /// # Errors
    /// The property is violated; the text says how.
    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let _ = seen;
        Ok(())
    }

    /// When the root jobs are done and what follows has come to rest, or when either took too long; all nodes still run.
    ///
    /// # Errors
    /// The property is violated; the text says how.
    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let _ = run;
        Ok(())
    }

    /// When main has come to its end, and all nodes have.
    ///
    /// # Errors
    /// The property is violated; the text says how.
    fn check_over(&mut self, cluster: &Cluster) -> Result<(), String> {
        let _ = cluster;
        Ok(())
    }
}

/// The first of them that does not hold, and how it is violated.
pub(crate) fn first_violated(
    invariants: &mut [Box<dyn Invariant>],
    check: impl Fn(&mut dyn Invariant) -> Result<(), String>,
) -> Option<(&'static str, String)> {
    invariants.iter_mut().find_map(|invariant| {
        let sentence = check(invariant.as_mut()).err()?;
        Some((invariant.name(), sentence))
    })
}

/// All of them, in their order.
#[must_use]
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(i01_only_the_living_have_our_jobs::OnlyTheLiving),
        Box::new(i02_a_child_is_in_one_place::OnePlace),
        Box::new(i03_a_theft_has_one_thief::OneThief::default()),
        Box::new(i04_no_answer_to_what_runs_here::NoStrayAnswer),
        Box::new(i05_owners_have_what_they_announce::OwnersHave),
        Box::new(i06_nothing_is_sent_to_the_dead::NothingToTheDead),
        Box::new(i07_the_root_is_done::RootDone),
        Box::new(i08_both_ends_agree::BothEnds),
        Box::new(i09_nothing_stays::NothingStays),
        Box::new(i10_closed_orphans_stop::ClosedStop::default()),
        Box::new(i11_no_run_without_a_reason::Reasons),
        Box::new(i12_the_answer_is_right::Right),
        Box::new(i13_views_agree::ViewsAgree),
        Box::new(i14_one_main::OneMain),
        Box::new(i15_tables_are_bounded::Bounded),
        Box::new(i16_what_is_stored_is_right::StoredRight),
        Box::new(i17_nothing_stays_in_the_store::StoreEmpty),
        Box::new(i18_what_is_finished_is_stored::StoredInTime::default()),
        Box::new(i19_what_is_stored_is_not_done_again::NotAgain::default()),
        Box::new(i20_logs_are_bounded::LogsBounded::default()),
        Box::new(i21_no_main_beside_another::NoneBeside),
        Box::new(i22_cuts_cost_what_is_done_meanwhile::CutsCost),
        Box::new(j01_no_task_is_forgotten::NoneForgotten::default()),
        Box::new(j03_inputs_come_first::InputsFirst::default()),
        Box::new(j06_tasks_are_found_again::FoundAgain::default()),
        Box::new(j08_data_go_when_nobody_needs_them::DataGo::default()),
        Box::new(l01_one_side_lives_on::OneLivesOn::default()),
        Box::new(l02_one_life_a_cut::OneLife),
    ]
}
