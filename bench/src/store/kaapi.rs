//! The experiment of KAAPI in small: QAP on a few processes, in two clusters, with and without faults.
//!
//! The local search of `qap` finds the optimum of the usual instances, so all runs search the same tree.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use satin_cli::{
    faults::{Fault, What, Who},
    pool::Plan,
    sites::{Site, Sites},
};
use satin_runtime::stable::StoreUrl;
use serde::{Deserialize, Serialize};

use super::{
    Bench, Panels, distinct,
    faults::Schedule,
    keeping::{GRAIN_MS, Keeping, seconds},
    show, table,
};
use crate::{
    chart,
    figures::median,
    launch::computing_at_once,
    programs::{Case, LIMIT, Program, Sizes},
};

/// A run without faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    bench: String,
    /// The instance.
    case: String,
    processes: u32,
    /// Processes that can compute at the same time: there are no more cores.
    at_once: u32,
    round: u32,
    #[serde(flatten)]
    keeping: Keeping,
    seconds: f64,
}

/// A run with faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultRow {
    bench: String,
    /// The instance.
    case: String,
    processes: u32,
    /// Processes that can compute at the same time before the faults.
    at_once: u32,
    round: u32,
    #[serde(flatten)]
    keeping: Keeping,
    fault: FaultKind,
    /// The median of the runs without a store and without faults.
    undisturbed_s: f64,
    /// That time, stretched from each fault on for the processes that are gone.
    ideal_s: f64,
    /// Time from the first call of the root job to its result, without the time between two starts.
    seconds: f64,
    /// Time beyond the ideal, in percent of the undisturbed time.
    over_percent: f64,
}

/// The faults of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FaultKind {
    /// One process is killed, at 50 %.
    One,
    /// Three processes are killed, at 30, 50 and 70 %.
    Several,
    /// One of the two clusters is asked to leave, at 50 %.
    Withdrawn,
    /// All processes are killed at 50 %, and as many are started.
    All,
}

impl FaultKind {
    fn name(self) -> &'static str {
        match self {
            FaultKind::One => "one killed",
            FaultKind::Several => "three killed",
            FaultKind::Withdrawn => "cluster withdrawn",
            FaultKind::All => "all killed",
        }
    }

    /// The faults, at parts of the undisturbed time. None for [`FaultKind::All`], after which nobody is left, and where too few
    /// would be.
    fn schedule(self, processes: u32, undisturbed: f64) -> Option<Schedule> {
        let half = processes / 2;
        let fault = |part: f64, what, gone| {
            let at = seconds(undisturbed * part);
            (Fault { at, what }, gone)
        };
        let kill = |part: f64, number: u32| {
            // From the last process of the second cluster backwards.
            let name = match number < half {
                true => format!("{SECOND}-{}", half - 1 - number),
                false => format!("{FIRST}-{}", processes - 1 - number),
            };
            fault(part, What::Kill(Who::Named(name)), 1)
        };
        Some(Schedule(match self {
            FaultKind::One => vec![kill(0.5, 0)],
            FaultKind::Several if processes > 3 => {
                vec![kill(0.3, 0), kill(0.5, 1), kill(0.7, 2)]
            }
            FaultKind::Withdrawn => {
                let what = What::Drain(Who::Named(SECOND.into()));
                vec![fault(0.5, what, half)]
            }
            FaultKind::Several | FaultKind::All => return None,
        }))
    }
}

/// The two clusters.
const FIRST: &str = "a";
const SECOND: &str = "b";

fn clusters(processes: u32) -> Sites {
    let site = |name: &str| Site {
        name: name.into(),
        nodes: processes / 2,
    };
    Sites(vec![site(FIRST), site(SECOND)])
}

/// What is measured.
struct Design {
    processes: Vec<u32>,
    /// Periods of TIC at the usual grain, in seconds.
    periods: Vec<f64>,
    /// Grains of SEL, in milliseconds.
    grains: Vec<f64>,
    /// The ways in which the runs with faults keep their work.
    with_faults: Vec<Keeping>,
}

impl Design {
    fn new(is_quick: bool) -> Design {
        match is_quick {
            true => Design {
                processes: vec![2, 4],
                periods: vec![0.1],
                grains: vec![GRAIN_MS],
                with_faults: vec![Keeping::every(0.1)],
            },
            false => Design {
                processes: vec![2, 4, 8],
                periods: vec![10.0, 1.0],
                grains: vec![10.0, GRAIN_MS, 0.1],
                with_faults: vec![Keeping::every(1.0), Keeping::every(0.0)],
            },
        }
    }

    /// All ways of the runs without faults, [`Keeping::Off`] first.
    fn ways(&self) -> Vec<Keeping> {
        let tic = self.periods.iter().map(|period| Keeping::every(*period));
        let sel = self.grains.iter().map(|&grain_ms| Keeping::Store {
            every_s: 0.0,
            grain_ms,
        });
        std::iter::once(Keeping::Off)
            .chain(tic)
            .chain(sel)
            .collect()
    }
}

/// The program on the instance, with what else all runs need.
struct Qap<'b> {
    bench: &'b Bench<'b>,
    program: Program,
    case: String,
}

/// Measures runs without faults, then with them.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<super::Row>> {
    let instance: Option<PathBuf> = bench.args.qap("data/nug16a.dat");
    let stem = instance.as_deref().and_then(|file| file.file_stem());
    let case = stem.map_or("nug14".into(), |stem| stem.to_string_lossy().into_owned());
    let sizes = Sizes {
        qap: instance,
        ..Sizes::default()
    };
    let qap = Qap {
        bench,
        program: Program::build(&bench.launcher, Case::Qap, &sizes)?,
        case,
    };
    let design = Design::new(bench.args.quick);
    let rows = qap.without_faults(&design)?;
    let faults = qap.with_faults(&design, &rows)?;
    let rows = rows.into_iter().map(super::Row::Kaapi);
    Ok(rows
        .chain(faults.into_iter().map(super::Row::Faults))
        .collect())
}

impl Qap<'_> {
    fn plan(&self, keeping: Keeping, store: StoreUrl, processes: u32) -> Result<Plan> {
        let words = self.program.words();
        keeping.plan_in(store, &self.bench.stores, words, clusters(processes))
    }

    fn without_faults(&self, design: &Design) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for round in 1..=self.bench.args.rounds() {
            for &processes in &design.processes {
                for keeping in design.ways() {
                    let what = format!("[kaapi, round {round}] {processes} processes, {keeping}");
                    let timed = self.bench.attempt(&what, || {
                        let plan = self.plan(keeping, self.bench.stores.fresh()?, processes)?;
                        Ok(self.bench.launcher.run(plan, LIMIT, |_| Ok(()))?.seconds())
                    })?;
                    let Some(seconds) = timed else { continue };
                    eprintln!("{what}: {seconds:.2} s");
                    rows.push(Row {
                        bench: "store".into(),
                        case: self.case.clone(),
                        processes,
                        at_once: computing_at_once(processes) as u32,
                        round,
                        keeping,
                        seconds,
                    });
                }
            }
        }
        Ok(rows)
    }

    fn with_faults(&self, design: &Design, undisturbed: &[Row]) -> Result<Vec<FaultRow>> {
        let undisturbed: Vec<&Row> = undisturbed.iter().collect();
        let mut rows = Vec::new();
        // These runs are long, and each figure has its own ideal: half of the rounds will do.
        for round in 1..=self.bench.args.rounds().div_ceil(2) {
            for &processes in &design.processes {
                let Some(undisturbed_s) = middle(&undisturbed, processes, Keeping::Off) else {
                    continue;
                };
                for &keeping in &design.with_faults {
                    for &fault in FaultKind::value_variants() {
                        if fault == FaultKind::Several && processes <= 3 {
                            continue;
                        }
                        let what = format!(
                            "[kaapi, round {round}] {processes} processes, {keeping}, {}",
                            fault.name()
                        );
                        let run = || self.disturbed(keeping, processes, fault, undisturbed_s);
                        let Some((seconds, ideal_s)) = self.bench.attempt(&what, run)? else {
                            continue;
                        };
                        eprintln!("{what}: {seconds:.2} s, ideal {ideal_s:.2} s");
                        rows.push(FaultRow {
                            bench: "store".into(),
                            case: self.case.clone(),
                            processes,
                            at_once: computing_at_once(processes) as u32,
                            round,
                            keeping,
                            fault,
                            undisturbed_s,
                            ideal_s,
                            seconds,
                            over_percent: (seconds - ideal_s) / undisturbed_s * 100.0,
                        });
                    }
                }
            }
        }
        Ok(rows)
    }

    /// A run with that fault: its time, and the ideal.
    fn disturbed(
        &self,
        keeping: Keeping,
        processes: u32,
        fault: FaultKind,
        undisturbed: f64,
    ) -> Result<(f64, f64)> {
        let store = self.bench.stores.fresh()?;
        let mut plan = self.plan(keeping, store.clone(), processes)?;
        let launcher = &self.bench.launcher;
        let Some(schedule) = fault.schedule(processes, undisturbed) else {
            let at = seconds(undisturbed * 0.5);
            let killed_s = launcher.lose(plan, at, LIMIT)?;
            let again = self.plan(keeping, store, processes)?;
            let resumed = launcher.run(again, LIMIT, |_| Ok(()))?;
            return Ok((killed_s + resumed.seconds(), undisturbed));
        };
        schedule.strike(&mut plan);
        let story = launcher.run(plan, LIMIT, |_| Ok(()))?;
        let ideal_s = schedule.ideal(&story, processes, undisturbed)?;
        Ok((story.seconds(), ideal_s))
    }
}

/// The median time of those runs.
fn middle(rows: &[&Row], processes: u32, keeping: Keeping) -> Option<f64> {
    let is_it = |row: &&&Row| row.processes == processes && row.keeping == keeping;
    let times: Vec<f64> = rows.iter().filter(is_it).map(|row| row.seconds).collect();
    (!times.is_empty()).then(|| median(times))
}

/// The overhead of that way, in percent of the time without a store.
fn overhead(rows: &[&Row], processes: u32, keeping: Keeping) -> Option<f64> {
    let off = middle(rows, processes, Keeping::Off)?;
    Some((middle(rows, processes, keeping)? / off - 1.0) * 100.0)
}

/// The median of the time beyond the ideal, in percent.
fn over(faults: &[&FaultRow], processes: u32, keeping: Keeping, fault: FaultKind) -> Option<f64> {
    let is_it =
        |row: &&&FaultRow| (row.processes, row.keeping, row.fault) == (processes, keeping, fault);
    let all: Vec<f64> = (faults.iter().filter(is_it))
        .map(|row| row.over_percent)
        .collect();
    (!all.is_empty()).then(|| median(all))
}

/// Prints what each way costs, and each fault.
pub fn report(rows: &[&Row], faults: &[&FaultRow]) {
    let mut times = table(&[
        "qap",
        "processes",
        "at once",
        "kept",
        "seconds",
        "overhead %",
    ]);
    let ways = distinct(rows, |row| row.keeping);
    for processes in distinct(rows, |row| row.processes) {
        for &keeping in &ways {
            let (Some(row), Some(seconds)) = (
                rows.iter().find(|row| row.processes == processes),
                middle(rows, processes, keeping),
            ) else {
                continue;
            };
            let percent = overhead(rows, processes, keeping);
            times.add_row([
                row.case.clone(),
                processes.to_string(),
                row.at_once.to_string(),
                keeping.to_string(),
                format!("{seconds:.3}"),
                percent.map_or("-".into(), |percent| format!("{percent:.2}")),
            ]);
        }
    }
    show("kaapi: qap without faults, medians", times, 1);
    let mut times = table(&[
        "qap",
        "processes",
        "at once",
        "kept",
        "fault",
        "undisturbed s",
        "ideal s",
        "seconds",
        "over the ideal %",
    ]);
    for row in faults {
        times.add_row([
            row.case.clone(),
            row.processes.to_string(),
            row.at_once.to_string(),
            row.keeping.to_string(),
            row.fault.name().into(),
            format!("{:.2}", row.undisturbed_s),
            format!("{:.2}", row.ideal_s),
            format!("{:.2}", row.seconds),
            format!("{:.1}", row.over_percent),
        ]);
    }
    show("kaapi: qap with faults", times, 1);
    let oversubscribed = rows.iter().find(|row| row.processes > row.at_once);
    if let Some(row) = oversubscribed {
        println!(
            "this machine runs {} processes at once: more share its cores, and their figures show what a store costs then, not how \
             the time falls with more processes",
            row.at_once
        );
    }
}

/// Panels over the number of processes: the periods of TIC, the grains of SEL, the faults.
pub fn draw(rows: &[&Row], faults: &[&FaultRow], panels: &mut Panels) {
    let processes = distinct(rows, |row| row.processes);
    let ways = distinct(rows, |row| row.keeping);
    let is_period = |keeping: &Keeping| matches!(keeping, Keeping::Store { grain_ms, .. } if *grain_ms == GRAIN_MS);
    let is_grain =
        |keeping: &Keeping| matches!(keeping, Keeping::Store { every_s, .. } if *every_s == 0.0);
    let overheads = |is_shown: &dyn Fn(&Keeping) -> bool| {
        let shown = ways.iter().filter(|keeping| is_shown(keeping));
        let points = shown.flat_map(|keeping| {
            processes.iter().filter_map(move |count| {
                let percent = overhead(rows, *count, *keeping)?;
                Some((keeping.to_string(), f64::from(*count), percent))
            })
        });
        chart::lines(points.collect::<Vec<_>>())
    };
    let of_faults = |keeping: Keeping| {
        let points = FaultKind::value_variants().iter().flat_map(|fault| {
            processes.iter().filter_map(move |count| {
                let percent = over(faults, *count, keeping, *fault)?;
                Some((fault.name().to_owned(), f64::from(*count), percent))
            })
        });
        chart::lines(points)
    };
    let beyond = "overhead, % of the time without a store";
    let mut charts = vec![
        ("qap: period", beyond, overheads(&is_period)),
        ("qap: grain of SEL", beyond, overheads(&is_grain)),
    ];
    for keeping in distinct(faults, |row| row.keeping) {
        let title = match keeping {
            Keeping::Store { every_s: 0.0, .. } => "qap: faults, SEL",
            _ => "qap: faults, TIC",
        };
        let y = "over the ideal, % of the undisturbed time";
        charts.push((title, y, of_faults(keeping)));
    }
    for (title, y, lines) in charts {
        panels.add([title, "processes", y], -1.0..5.0, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_leave_somebody_and_hit_nobody_twice() {
        for processes in [2, 4, 8] {
            for fault in FaultKind::value_variants() {
                let Some(Schedule(schedule)) = fault.schedule(processes, 10.0) else {
                    continue;
                };
                let gone: u32 = schedule.iter().map(|(_, gone)| gone).sum();
                assert!(gone < processes, "{fault:?} of {processes}");
                let faults: Vec<Fault> = schedule.into_iter().map(|(fault, _)| fault).collect();
                satin_cli::faults::check(&faults, &clusters(processes)).expect("these nodes exist");
                for (index, fault) in faults.iter().enumerate() {
                    let others = &faults[index + 1..];
                    assert!(others.iter().all(|other| other.what != fault.what));
                }
            }
        }
    }

    #[test]
    fn every_combination_is_a_way_of_its_own() {
        let ways = Design::new(false).ways();
        assert_eq!(ways.len(), 6);
        let names: Vec<String> = ways.iter().map(ToString::to_string).collect();
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), 6, "{names:?}");
    }
}
