//! `bench store`: what it costs that a run outlives all its nodes, and what is done again when they die.
//!
//! Five parts, a module each: `overhead` (nothing dies), `lost` (everything dies), `kaapi` (the experiment of KAAPI in small),
//! `flow` (a flow whose tasks are kept, and a process of which dies) and `record` (the price of one result). The words are those of KAAPI (Jafar, Krings, Gautier, "Flexible rollback recovery in
//! dynamic heterogeneous grid computing", 2009): TIC writes once in a period, SEL as soon as the last write is durable.

mod faults;
mod flow;
mod kaapi;
mod keeping;
mod lost;
mod overhead;
mod record;

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use self::keeping::Stores;
use crate::{
    chart::{self, Axes, Line},
    files::Files,
    launch::Launcher,
    programs::Case,
};

/// A store: its overhead, the work that is done again when all nodes die, QAP as KAAPI measured it, a flow, the cost of a record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Parts:
  overhead  programs on one worker and on two nodes: with nothing kept, with harvesting only (no copies, no store), and with a \
store that is written to each 10 s (TIC 10 s), each second (TIC 1 s), and as often as it can be (SEL). Minima of interleaved rounds
  lost      knary whose leaves sleep, on 1 to 4 nodes: all are killed at a random moment, and the run goes on on 1 to twice as \
many. Leaves that were done twice are counted by knary itself, in a file
  kaapi     qap on 2, 4 and 8 processes: TIC and SEL over the period and the grain; one process killed, several, one of the two \
clusters withdrawn, all killed and resumed, each at 50 % of the time of a run without a store
  flow      knary as a flow whose tasks compute, on some numbers of processes with a worker each: without a store (S0), with one \
(S1), and with one and a process killed half way (S2); the only process is started again. Each result is kept and written as often as \
it can be. Medians of the rounds' ratios S1/S0 and S2/S0, and what the store costs in us a task
  record    microseconds for a result, in the worker and in the thread that writes; the time from a start until its first new \
job when 100,000 results are in the store

A computing process needs a core. If there are more processes than cores, which share them, the figures of kaapi and flow show \
what a store costs an oversubscribed machine: how the time falls with more processes they cannot show.

Stores are directories below --dir; it should be on a disk, as a write to memory is no durable write.

Examples:
  bench store --quick                                      # all parts, 3 minutes: to see that they work
  bench store --json store.jsonl --svg store.svg           # all parts, 20 minutes
  bench store --part overhead --case fib,uts --rounds 9
  bench store --part overhead --nodes 1                    # one worker only
  bench store --part kaapi --qap nug18.dat                 # longer runs
  bench store --part lost --seed 7
  bench store --part flow                                  # a flow, a minute or two
  bench store --part flow --tasks 15000x0,75x1,1500x1,15000x1,75x100 --processes 1,2,4,8,16 --victim node,master --rounds 5  # \
the full table, 40 minutes
  bench store --from store.jsonl --svg store.svg           # draws them again")]
pub struct Args {
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Overhead, Part::Lost, Part::Kaapi, Part::Flow, Part::Record])]
    part: Vec<Part>,
    /// Programs of the part overhead [default: all]
    #[arg(long, value_enum, value_name = "CASE", value_delimiter = ',')]
    case: Vec<Case>,
    /// Numbers of nodes of the part overhead, with a worker each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u32).range(1..=2))]
    nodes: Vec<u32>,
    /// Small programs, few combinations and one round: figures that mean nothing
    #[arg(long)]
    quick: bool,
    /// Rounds of each part [default: 2, or 1 if it is to be quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Instance for qap, in the format of QAPLIB [default: nug16a, nug15 for the part overhead, nug14 if it is to be quick]
    #[arg(long, value_name = "FILE")]
    qap: Option<PathBuf>,
    /// Flows of the part flow: their tasks, and the milliseconds of each [default: 15000x0, 1500x1, 75x20; quick: 15000x0, 300x2]
    #[arg(long, value_name = "TASKSxMS,..", value_delimiter = ',')]
    tasks: Vec<flow::Shape>,
    /// Numbers of processes of the part flow, with a worker each [default: 1, 2, 4; quick: 1, 2]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    processes: Vec<u32>,
    /// Processes of the part flow that are killed, each in runs of its own, if there are several
    #[arg(long, value_enum, value_name = "WHO,..", value_delimiter = ',', default_values_t = [flow::Victim::Node])]
    victim: Vec<flow::Victim>,
    /// Number from which the moments of the part lost are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory below which the stores are made [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Build the programs in this profile [default: release]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    files: Files,
}

impl Args {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 2 })
    }

    /// The instance of qap: the one that is given, or that file of this repository; `None`: the one that is built in.
    fn qap(&self, usual: &str) -> Option<PathBuf> {
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join(usual);
        (self.qap.clone()).or_else(|| (!self.quick).then(usual))
    }
}

/// The parts of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// The cost when nothing dies
    Overhead,
    /// The work that is done again when all nodes die
    Lost,
    /// The experiment of KAAPI in small
    Kaapi,
    /// A flow whose tasks are kept, and a process of which is killed
    Flow,
    /// The cost of one result
    Record,
}

/// A line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Row {
    Overhead(overhead::Row),
    Lost(lost::Row),
    Kaapi(kaapi::Row),
    Faults(kaapi::FaultRow),
    Flow(flow::Row),
    Append(record::AppendRow),
    Worker(record::WorkerRow),
    Resume(record::ResumeRow),
}

/// What all parts need.
struct Bench<'a> {
    args: &'a Args,
    launcher: Launcher,
    stores: Stores,
    /// Number of runs that failed.
    failed: Cell<u32>,
}

impl Bench<'_> {
    /// Does that; `None` if it fails, which is told and counted.
    ///
    /// # Errors
    /// If a signal came.
    fn attempt<T>(&self, what: &str, run: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let done = run();
        self.launcher.go_on()?;
        Ok(match done {
            Ok(done) => Some(done),
            Err(error) => {
                eprintln!("{what}: {error:#}");
                self.failed.set(self.failed.get() + 1);
                None
            }
        })
    }
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> Result<()> {
    let (rows, failed) = match args.files.earlier()? {
        Some(rows) => (rows, 0),
        None => measure(args)?,
    };
    report(&rows);
    args.files.write(&rows, draw)?;
    ensure!(failed == 0, "{failed} runs failed, and are not counted");
    Ok(())
}

/// The rows, and how many runs failed.
fn measure(args: &Args) -> Result<(Vec<Row>, u32)> {
    let bench = Bench {
        args,
        launcher: Launcher::new(args.profile.clone())?,
        stores: Stores::new(args.dir.as_deref())?,
        failed: Cell::new(0),
    };
    let mut rows = Vec::new();
    for part in [
        Part::Record,
        Part::Overhead,
        Part::Kaapi,
        Part::Flow,
        Part::Lost,
    ] {
        if !args.part.contains(&part) {
            continue;
        }
        match part {
            Part::Overhead => {
                rows.extend(overhead::measure(&bench)?.into_iter().map(Row::Overhead))
            }
            Part::Lost => rows.extend(lost::measure(&bench)?.into_iter().map(Row::Lost)),
            Part::Kaapi => rows.extend(kaapi::measure(&bench)?),
            Part::Flow => rows.extend(flow::measure(&bench)?.into_iter().map(Row::Flow)),
            Part::Record => rows.extend(record::measure(&bench)?),
        }
    }
    Ok((rows, bench.failed.get()))
}

/// The rows of one kind.
fn of_kind<'r, T: 'r>(rows: &'r [Row], kind: impl Fn(&'r Row) -> Option<&'r T>) -> Vec<&'r T> {
    rows.iter().filter_map(kind).collect()
}

fn overhead_of(row: &Row) -> Option<&overhead::Row> {
    match row {
        Row::Overhead(row) => Some(row),
        _ => None,
    }
}

fn lost_of(row: &Row) -> Option<&lost::Row> {
    match row {
        Row::Lost(row) => Some(row),
        _ => None,
    }
}

fn kaapi_of(row: &Row) -> Option<&kaapi::Row> {
    match row {
        Row::Kaapi(row) => Some(row),
        _ => None,
    }
}

fn fault_of(row: &Row) -> Option<&kaapi::FaultRow> {
    match row {
        Row::Faults(row) => Some(row),
        _ => None,
    }
}

fn flow_of(row: &Row) -> Option<&flow::Row> {
    match row {
        Row::Flow(row) => Some(row),
        _ => None,
    }
}

/// Each value once, in the order of the rows.
fn distinct<R, T: PartialEq>(rows: &[&R], of: impl Fn(&R) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in rows.iter().map(|row| of(row)) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn report(rows: &[Row]) {
    let mut said = Vec::new();
    overhead::report(&of_kind(rows, overhead_of), &mut said);
    kaapi::report(&of_kind(rows, kaapi_of), &of_kind(rows, fault_of));
    flow::report(&of_kind(rows, flow_of), &mut said);
    lost::report(&of_kind(rows, lost_of), &mut said);
    record::report(rows, &mut said);
    for line in said {
        println!("{line}");
    }
}

/// A table with that head, empty so far.
fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_header(head);
    table
}

/// Prints the table, with a title above and the numbers at the right; nothing if it is empty.
fn show(title: &str, mut table: Table, words: usize) {
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if table.row_count() > 0 {
        println!("{title}\n{table}");
    }
}

/// A requirement, and whether it is met.
fn verdict(said: &mut Vec<String>, what: String, is_met: bool) {
    said.push(format!("{what}: {}", if is_met { "met" } else { "missed" }));
}

/// The panels of the picture.
#[derive(Default)]
struct Panels(Vec<(Axes<'static>, Vec<Line>)>);

impl Panels {
    /// Adds one with that title and those words at its x and y axes, if there are lines for it. Its y axis has that range at least.
    fn add(
        &mut self,
        [title, x, y]: [&'static str; 3],
        y_least: std::ops::Range<f64>,
        lines: Vec<Line>,
    ) {
        if lines.is_empty() {
            return;
        }
        let axes = Axes {
            title,
            x,
            y,
            y_range: chart::range_of(&lines, y_least),
            legend: chart::Legend::UpperLeft,
        };
        self.0.push((axes, lines));
    }
}

fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let mut panels = Panels::default();
    overhead::draw(&of_kind(rows, overhead_of), &mut panels);
    kaapi::draw(
        &of_kind(rows, kaapi_of),
        &of_kind(rows, fault_of),
        &mut panels,
    );
    flow::draw(&of_kind(rows, flow_of), &mut panels);
    lost::draw(&of_kind(rows, lost_of), &mut panels);
    ensure!(
        !panels.0.is_empty(),
        "nothing to draw: the part record has figures only"
    );
    chart::draw_grid(path, "what a store costs", panels.0.len().min(2), &panels.0)
}
