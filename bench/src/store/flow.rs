//! A flow with a store: knary as a tree of tasks, without a store, with one, and with one and a process killed half way.
//!
//! Each task computes, and reads what its children have made; the flow stands in a spawnable function, so its results are found
//! again. With the store each result is kept, however short its task, and written as often as possible.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use satin_cli::{
    faults::{Fault, What, Who},
    sites::Sites,
};
use serde::{Deserialize, Serialize};

use super::{
    Bench, Panels, distinct,
    faults::Schedule,
    keeping::{Keeping, seconds},
    show, table, verdict,
};
use crate::{
    chart,
    figures::{Spread, median},
    launch::{Knary, computing_at_once},
};

/// A flow: `1500x1` are 1,500 tasks that compute for 1 ms each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    tasks: u32,
    task_ms: u32,
}

impl FromStr for Shape {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Shape> {
        let expected = || format!("expected TASKSxMS, such as 1500x1, not `{text}`");
        let (tasks, task_ms) = text.split_once('x').with_context(expected)?;
        let shape = Shape {
            tasks: tasks.parse().with_context(expected)?,
            task_ms: task_ms.parse().with_context(expected)?,
        };
        ensure!(shape.tasks > 0, "{text}: a flow without tasks");
        Ok(shape)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks of {} ms", self.tasks, self.task_ms)
    }
}

/// The process that is killed, if there are several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// The last process, which runs tasks
    Node,
    /// The process that runs `main`, and as a rule the closure of the flow
    Master,
}

/// A round: the flow with nothing kept, with a store, and with the store and a process killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    #[serde(flatten)]
    shape: Shape,
    processes: u32,
    /// Processes that can compute at the same time: there are no more cores.
    at_once: u32,
    round: u32,
    /// Time from the first call of the root job to its result, with nothing kept (S0).
    off_s: f64,
    /// The same with a store (S1).
    store_s: f64,
    /// The time that the store costs, by the number of tasks; negative if the run with a store was the shorter one.
    task_us: f64,
    /// The same with a store and a process killed (S2), for each victim; none if the run is too short to be hit.
    killed: Vec<Killed>,
}

/// A run with a process killed half way. If it is the only one, it is started again, and goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Killed {
    victim: Victim,
    /// Time from the first call of the root job to its result, without the time between two starts.
    seconds: f64,
    /// The time of this round with nothing kept, stretched from the kill on for the process that is gone.
    ideal_s: f64,
    /// Tasks that were done twice.
    again: u64,
}

impl Row {
    /// S1/S0.
    fn store_ratio(&self) -> f64 {
        self.store_s / self.off_s
    }
}

impl Killed {
    /// S2/S0.
    fn ratio(&self, row: &Row) -> f64 {
        self.seconds / row.off_s
    }

    /// The share of the undisturbed time by which the lost process alone prolongs the run.
    fn lost_share(&self, row: &Row) -> f64 {
        self.ideal_s / row.off_s - 1.0
    }

    /// S2/S0 without the lost share.
    fn rest(&self, row: &Row) -> f64 {
        self.ratio(row) - self.lost_share(row)
    }

    /// The time beyond the ideal, in seconds.
    fn over_s(&self, _: &Row) -> f64 {
        self.seconds - self.ideal_s
    }
}

/// A store that gets each result, as often as it can be written to.
const ALL: Keeping = Keeping::Store {
    every_s: 0.0,
    grain_ms: 0.0,
};

/// A process is killed in runs of at least this time without a store, in seconds. Too small: the run is over when the fault comes.
const HIT_LEAST_S: f64 = 0.5;

/// S2/S0 is judged of runs of at least this time without a store, in seconds. Too small: the time until a death is noticed, which
/// does not depend on the run, is judged instead.
const JUDGED_LEAST_S: f64 = 5.0;

/// Measures all flows on all numbers of processes, in rounds.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let args = bench.args;
    let (shapes, processes) = match args.quick {
        true => (&["15000x0", "300x2"][..], &[1, 2][..]),
        false => (&["15000x0", "1500x1", "75x20"][..], &[1, 2, 4][..]),
    };
    let usual = shapes.iter().map(|shape| shape.parse());
    let shapes = match args.tasks[..] {
        [] => usual.collect::<Result<Vec<Shape>>>()?,
        _ => args.tasks.clone(),
    };
    let processes = match args.processes[..] {
        [] => processes,
        _ => &args.processes,
    };
    let flows = (shapes.into_iter())
        .map(|shape| Flow::build(bench, shape))
        .collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for round in 1..=args.rounds() {
        for flow in &flows {
            for &processes in processes {
                rows.extend(flow.round(processes, round)?);
            }
        }
    }
    Ok(rows)
}

/// A program, with what else its runs need.
struct Flow<'b> {
    bench: &'b Bench<'b>,
    shape: Shape,
    knary: Knary,
}

impl<'b> Flow<'b> {
    fn build(bench: &'b Bench<'b>, shape: Shape) -> Result<Flow<'b>> {
        Ok(Flow {
            bench,
            shape,
            knary: Knary::flow(&bench.launcher, shape.tasks, shape.task_ms)?,
        })
    }

    /// `None` if the run with nothing kept or that with a store failed.
    fn round(&self, processes: u32, round: u32) -> Result<Option<Row>> {
        let what = format!("[flow, round {round}] {} on {processes}", self.shape);
        let undisturbed = |keeping: Keeping| {
            let what = format!("{what}, {keeping}");
            self.bench.attempt(&what, || {
                let store = self.bench.stores.fresh()?;
                let words = self.knary.words();
                let sites = Sites::alike(1, processes);
                let plan = keeping.plan_in(store, &self.bench.stores, words, sites)?;
                let (story, _) = self.knary.run(&self.bench.launcher, plan, |_| Ok(()))?;
                Ok(story.seconds())
            })
        };
        // Each round another one goes first.
        let (off_s, store_s) = match round % 2 {
            1 => (undisturbed(Keeping::Off)?, undisturbed(ALL)?),
            _ => {
                let store_s = undisturbed(ALL)?;
                (undisturbed(Keeping::Off)?, store_s)
            }
        };
        let (Some(off_s), Some(store_s)) = (off_s, store_s) else {
            return Ok(None);
        };
        eprintln!("{what}: {off_s:.3} s, with a store {store_s:.3} s");
        let mut killed = Vec::new();
        for victim in self.victims(processes, off_s) {
            let run = || self.killed(processes, victim, off_s);
            if let Some(run) = self.bench.attempt(&format!("{what}, killed"), run)? {
                eprintln!(
                    "{what}, {} killed: {:.3} s, ideal {:.3} s, {} tasks again",
                    victim.name(processes),
                    run.seconds,
                    run.ideal_s,
                    run.again
                );
                killed.push(run);
            }
        }
        Ok(Some(Row {
            bench: "store".into(),
            shape: self.shape,
            processes,
            at_once: computing_at_once(processes) as u32,
            round,
            off_s,
            store_s,
            task_us: (store_s - off_s) * 1e6 / f64::from(self.shape.tasks),
            killed,
        }))
    }

    fn victims(&self, processes: u32, off_s: f64) -> Vec<Victim> {
        match processes {
            _ if off_s < HIT_LEAST_S => Vec::new(),
            1 => vec![Victim::Master],
            _ => self.bench.args.victim.clone(),
        }
    }

    /// A run with that process killed at half of the undisturbed time.
    fn killed(&self, processes: u32, victim: Victim, undisturbed: f64) -> Result<Killed> {
        let Bench {
            launcher, stores, ..
        } = self.bench;
        let store = stores.fresh()?;
        let plan = || {
            let sites = Sites::alike(1, processes);
            ALL.plan_in(store.clone(), stores, self.knary.words(), sites)
        };
        let at = seconds(undisturbed * 0.5);
        let (seconds, ideal_s, done) = match processes {
            1 => {
                let killed_s = self.knary.lose(launcher, plan()?, at)?;
                let (resumed, done) = self.knary.go_on(launcher, plan()?)?;
                (killed_s + resumed.seconds(), undisturbed, done)
            }
            _ => {
                let who = match victim {
                    Victim::Node => Who::Named(format!("s0-{}", processes - 1)),
                    Victim::Master => Who::Master,
                };
                let what = What::Kill(who);
                let schedule = Schedule(vec![(Fault { at, what }, 1)]);
                let mut plan = plan()?;
                schedule.strike(&mut plan);
                let (story, done) = self.knary.run(launcher, plan, |_| Ok(()))?;
                let ideal_s = schedule.ideal(&story, processes, undisturbed)?;
                (story.seconds(), ideal_s, done)
            }
        };
        Ok(Killed {
            victim,
            seconds,
            ideal_s,
            again: done - self.knary.leaves(),
        })
    }
}

impl Victim {
    fn name(self, processes: u32) -> &'static str {
        match self {
            _ if processes == 1 => "the only process",
            Victim::Node => "a node",
            Victim::Master => "the master",
        }
    }
}

/// The rounds of one flow on one number of processes.
struct Rounds<'r> {
    shape: Shape,
    processes: u32,
    rows: Vec<&'r Row>,
}

fn rounds<'r>(rows: &[&'r Row]) -> Vec<Rounds<'r>> {
    let all = distinct(rows, |row| (row.shape, row.processes));
    let rounds = all.into_iter().map(|(shape, processes)| {
        let is_it = |row: &&&Row| (row.shape, row.processes) == (shape, processes);
        Rounds {
            shape,
            processes,
            rows: rows.iter().filter(is_it).copied().collect(),
        }
    });
    rounds.collect()
}

impl Rounds<'_> {
    /// S1/S0 of the shortest runs.
    fn shortest_ratio(&self) -> f64 {
        let shortest = |of: fn(&Row) -> f64| Spread::of(self.rows.iter().map(|row| of(row))).min;
        shortest(|row| row.store_s) / shortest(|row| row.off_s)
    }

    /// The median of all rounds.
    fn middle(&self, of: impl Fn(&Row) -> f64) -> f64 {
        median(self.rows.iter().map(|row| of(row)))
    }

    /// That figure of all runs with this victim; `None` if there are none.
    fn killed(&self, victim: Victim, of: impl Fn(&Killed, &Row) -> f64) -> Option<Spread> {
        let runs = self.rows.iter().flat_map(|row| {
            let runs = row.killed.iter().filter(|run| run.victim == victim);
            runs.map(|run| of(run, row))
        });
        let figures: Vec<f64> = runs.collect();
        (!figures.is_empty()).then(|| Spread::of(figures))
    }

    /// What the store costs in one process, beside what is required.
    fn judge_store(&self, said: &mut Vec<String>) {
        const TASK_US: f64 = 5.0;
        if self.processes > 1 {
            return;
        }
        let task_us = self.middle(|row| row.task_us);
        let percent = (self.middle(Row::store_ratio) - 1.0) * 100.0;
        // Of longer tasks the store's part is smaller than the noise of their times.
        if self.shape.task_ms == 0 {
            let what = format!(
                "flow, {}, one process: the store costs {task_us:.2} us a task, required at most {TASK_US}",
                self.shape
            );
            verdict(said, what, task_us <= TASK_US);
        }
        let most = match self.shape.task_ms {
            0 => return,
            1..100 => 1.0,
            _ => 0.1,
        };
        let what = format!(
            "flow, {}, one process: the store costs {percent:.2} %, required at most {most} %",
            self.shape
        );
        verdict(said, what, percent <= most);
    }

    /// What a death costs, beside what is required.
    fn judge_killed(&self, said: &mut Vec<String>) {
        const MOST: f64 = 1.05;
        if self.middle(|row| row.off_s) < JUDGED_LEAST_S {
            return;
        }
        for &victim in Victim::value_variants() {
            let (Some(rest), Some(over_s)) = (
                self.killed(victim, Killed::rest),
                self.killed(victim, Killed::over_s),
            ) else {
                continue;
            };
            let what = format!(
                "flow, {} on {}, {} killed: S2/S0 less the lost share is {:.3} ({:.2} s over the ideal), required at most {MOST}",
                self.shape,
                self.processes,
                victim.name(self.processes),
                rest.median,
                over_s.median
            );
            verdict(said, what, rest.median <= MOST);
        }
    }
}

/// Prints the ratios, and what was required.
pub fn report(rows: &[&Row], said: &mut Vec<String>) {
    let mut figures = table(&[
        "tasks",
        "task ms",
        "processes",
        "at once",
        "rounds",
        "S0 s",
        "S0, ms a task",
        "S1/S0",
        "store, us a task",
        "killed",
        "S2/S0",
        "lost share",
        "over the ideal, s",
        "tasks again",
    ]);
    let all = rounds(rows);
    for of in &all {
        let off_s = of.middle(|row| row.off_s);
        let first = [
            of.shape.tasks.to_string(),
            of.shape.task_ms.to_string(),
            of.processes.to_string(),
            of.rows[0].at_once.to_string(),
            of.rows.len().to_string(),
            format!("{off_s:.3}"),
            format!("{:.4}", off_s * 1e3 / f64::from(of.shape.tasks)),
            format!(
                "{:.4} ({:.4})",
                of.middle(Row::store_ratio),
                of.shortest_ratio()
            ),
            format!("{:.2}", of.middle(|row| row.task_us)),
        ];
        let victims = Victim::value_variants().iter().filter_map(|&victim| {
            Some([
                victim.name(of.processes).to_owned(),
                format!("{:.3}", of.killed(victim, Killed::ratio)?.median),
                format!("{:.3}", of.killed(victim, Killed::lost_share)?.median),
                format!("{:.2}", of.killed(victim, Killed::over_s)?.median),
                format!("{:.0}", of.killed(victim, |run, _| run.again as f64)?.max),
            ])
        });
        let victims: Vec<[String; 5]> = victims.collect();
        let none = [["-"; 5].map(String::from)];
        let victims = if victims.is_empty() {
            &none[..]
        } else {
            &victims
        };
        for victim in victims {
            figures.add_row(first.iter().chain(victim));
        }
        of.judge_store(said);
        of.judge_killed(said);
    }
    show(
        "flow: knary as a flow, medians of the rounds' ratios (S1/S0 of the shortest runs); S0 without a store, S1 with one, S2 with one and a process killed half way",
        figures,
        0,
    );
}

/// Panels over the number of processes: S1/S0, and S2/S0 without the lost share.
pub fn draw(rows: &[&Row], panels: &mut Panels) {
    let all = rounds(rows);
    let stores = all.iter().map(|of| {
        let name = of.shape.to_string();
        (name, f64::from(of.processes), of.middle(Row::store_ratio))
    });
    let deaths = all.iter().flat_map(|of| {
        let victims = Victim::value_variants().iter().filter(|_| of.processes > 1);
        victims.filter_map(move |&victim| {
            let name = format!("{}, {}", of.shape, victim.name(of.processes));
            let rest = of.killed(victim, Killed::rest)?.median;
            Some((name, f64::from(of.processes), rest))
        })
    });
    let charts = [
        ("flow: a store", "S1/S0", chart::lines(stores)),
        (
            "flow: one process killed",
            "S2/S0 less the lost share",
            chart::lines(deaths),
        ),
    ];
    for (title, y, lines) in charts {
        panels.add([title, "processes", y], 0.98..1.06, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_said_by_its_tasks_and_their_time() {
        let shape: Shape = "15000x100".parse().expect("a flow");
        assert_eq!(shape.to_string(), "15000 tasks of 100 ms");
        for text in ["", "75", "x1", "75x", "0x1", "75x1.5", "75x1x1"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    /// A round of a flow of 1,000 tasks: the ratios S1/S0 and, of each run with a node killed that loses half of S0, S2/S0.
    fn row(task_ms: u32, processes: u32, off_s: f64, store: f64, killed: &[f64]) -> Row {
        let killed = killed.iter().map(|ratio| Killed {
            victim: Victim::Node,
            seconds: ratio * off_s,
            ideal_s: 1.5 * off_s,
            again: 1,
        });
        Row {
            bench: "store".into(),
            shape: Shape {
                tasks: 1000,
                task_ms,
            },
            processes,
            at_once: processes,
            round: 1,
            off_s,
            store_s: store * off_s,
            task_us: (store - 1.0) * off_s * 1e6 / 1000.0,
            killed: killed.collect(),
        }
    }

    fn verdicts(rows: &[Row]) -> Vec<bool> {
        let rows: Vec<&Row> = rows.iter().collect();
        let mut said = Vec::new();
        report(&rows, &mut said);
        said.iter().map(|line| line.ends_with(": met")).collect()
    }

    #[test]
    fn the_longer_a_task_the_less_a_store_may_cost_of_its_time() {
        let rows = [
            row(0, 1, 0.02, 1.2, &[]),
            row(0, 1, 0.02, 1.3, &[]),
            row(1, 1, 1.0, 1.005, &[]),
            row(100, 1, 100.0, 1.005, &[]),
        ];
        assert_eq!(verdicts(&rows[..1]), [true]);
        assert_eq!(verdicts(&rows[1..]), [false, true, false]);
    }

    #[test]
    fn a_death_may_cost_its_lost_share_and_a_little_more() {
        let rows = [
            row(1, 2, 10.0, 1.2, &[1.54]),
            row(100, 2, 10.0, 1.2, &[1.56]),
            row(1, 4, 1.0, 1.2, &[3.0]), // too short for a verdict
        ];
        assert_eq!(verdicts(&rows), [true, false]);
    }

    #[test]
    fn the_middle_of_the_rounds_ratios_counts() {
        let rows = [1.0, 9.0, 1.25].map(|ratio| row(1, 1, 2.0, ratio, &[]));
        let rows: Vec<&Row> = rows.iter().collect();
        let all = rounds(&rows);
        assert_eq!((all.len(), all[0].middle(Row::store_ratio)), (1, 1.25));
        assert_eq!(all[0].shortest_ratio(), 1.0);
        assert!(all[0].killed(Victim::Node, Killed::ratio).is_none());
    }
}
