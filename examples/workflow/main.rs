//! Runs a workflow, a graph of steps of which each reads what others make, as people run with Make, Snakemake or DAGMan: commands
//! from a TOML file (`words.toml` beside this file explains what can stand in one), or the timed tasks of a graph of the Standard Task
//! Graph Set (Tobita, Kasahara, "A standard task graph set for fair evaluation of multiprocessor scheduling algorithms", 2002).
//!
//! Shows a flow: one task per step, any number of inputs by `&Many<..>`, and a bound by which a failure anywhere stops the rest. What
//! is about Satin is in `run.rs` and the attribute of `perform` in `step.rs`.
//!
//! | file | |
//! | --- | --- |
//! | `file`, `stg` | reading the two kinds of files |
//! | `graph` | the workflow: steps in an order in which each comes after what it reads |
//! | `step` | what one step does, and what comes of it |
//! | `run` | running all steps, as a flow or one after the other |
//! | `store` | outputs in a directory, named by content, found again by what they are made of |
//! | `dot` | a picture of the graph |

#[path = "../common/mod.rs"]
mod common;
mod dot;
mod file;
mod graph;
mod run;
mod step;
mod stg;
mod store;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Parser;
use common::Mode;
use common::input::parse_file;
use common::progress::Spinner;

use crate::graph::Workflow;
use crate::run::{Ended, Report};
use crate::step::{DONE, Failure, TimedWork};
use crate::store::Store;

/// Runs the steps of a workflow, each as soon as what it reads is there
#[derive(Parser)]
#[command(after_help = "Examples:
  workflow words.toml                  # a second run has nothing left to do
  workflow words.toml --outputs made --dot words.dot
  workflow rand0000.stg --compare --threads 8

A step is a command of `sh`, which runs in an empty folder with what it reads,
or takes a time. A command's output is kept in the directory of --outputs,
named by its content, as soon as it is there. Later runs find it by the
command and the contents that it reads, and skip the step. Change a command or
a file, and what depends on it is made again. A variable of the environment or
a program that changes is not noticed: remove the directory then.

examples/workflow/words.toml explains the file.")]
struct Cli {
    /// A workflow (.toml), or a graph of the Standard Task Graph Set (.stg)
    file: PathBuf,
    /// Where the outputs of commands are kept, and found by later runs
    #[arg(long, value_name = "DIR", default_value = "outputs")]
    outputs: PathBuf,
    /// Write a picture of the graph for Graphviz: green for what was found, blue for what was made, red for what failed
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Milliseconds that a unit of cost takes in a .stg file
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    unit: f64,
    /// Compute for the time of a timed step, do not sleep
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let work = match cli.busy {
        true => TimedWork::Compute,
        false => TimedWork::Sleep,
    };
    let workflow = match cli.file.extension() {
        Some(is) if is == "stg" => {
            let longest = Duration::MAX.as_secs_f64() / f64::from(u32::MAX);
            ensure!(
                (0.0..longest).contains(&cli.unit),
                "--unit {} is not a number of milliseconds",
                cli.unit
            );
            let unit = Duration::from_secs_f64(cli.unit / 1000.0);
            parse_file(&cli.file, |text| stg::parse(text, unit, work))?
        }
        _ => parse_file(&cli.file, |text| file::parse(text, &cli.file, work))?,
    };
    if workflow.has_commands() {
        ensure!(
            !cli.mode.compares(),
            "--compare runs each step twice, and the second run would find what the first has made: it is for workflows of timed steps"
        );
        // Only the node that runs `main` has the directory; what other nodes make comes here with their results.
        store::open(Store::new(&cli.outputs)?);
    }

    let total = workflow.steps.len();
    let spinner = Spinner::start(move || format!("{} of {total} steps here", DONE.count()));
    let measured = cli.mode.measure(
        || DONE.reset(),
        |()| run::in_parallel(&workflow, store::here()),
        |()| run::in_order(&workflow, store::here()),
        |report| match report {
            Ok(report) => workflow.check(report),
            Err(_) => Ok(()),
        },
    )?;
    drop(spinner);
    let report = match &measured.answer {
        Ok(report) => report,
        Err(error) => bail!("{error:#}"),
    };
    if let Some(path) = &cli.dot {
        dot::write(&workflow, report, path)?;
    }
    let found = report.count(|ended| matches!(ended, Ended::Found(_)));
    let made = report.count(|ended| matches!(ended, Ended::Made(_) | Ended::Timed(_)));
    println!(
        "{}: {total} steps, {found} found, {made} made",
        cli.file.display()
    );
    if let Some(store) = store::here() {
        // Those that failed have none, and the others keep theirs.
        for (step, ended) in workflow.steps.iter().zip(&report.ended) {
            if let Ended::Found(content) | Ended::Made(content) = ended {
                store.link(&step.name, content)?;
            }
        }
    }
    if let Some(error) = failure(&workflow, report, cli) {
        bail!(error);
    }
    if let Some(store) = store::here() {
        for step in workflow.last() {
            println!(
                "{}  {}",
                workflow.steps[step].name,
                store.named(&workflow.steps[step].name).display()
            );
        }
    }
    if let Some(length) = workflow.critical_path(report) {
        let (total, known) = (workflow.time(), workflow.known_critical_path);
        let unit = if cli.unit > 0.0 { known } else { None };
        println!(
            "critical path {:.3} s{} of {:.3} s: at most {:.1} times faster than one after the other",
            length.as_secs_f64(),
            if unit.is_some() { " (ok)" } else { "" },
            total.as_secs_f64(),
            total.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE),
        );
    }
    measured.report();
    Ok(())
}

/// What to say if a step has failed.
fn failure(workflow: &Workflow, report: &Report, cli: &Cli) -> Option<String> {
    let mut failed = (workflow.steps.iter().zip(&report.ended)).filter_map(|(step, ended)| {
        let Ended::Failed(failure) = ended else {
            return None;
        };
        Some((&step.name, failure))
    });
    let (name, Failure { reason, stderr }) = failed.next()?;
    let mut text = format!("step `{name}` failed: {reason}");
    if !stderr.is_empty() {
        text += "\nthe end of its standard error:";
        for line in stderr.lines() {
            let _ = write!(text, "\n    {line}");
        }
    }
    for (name, failure) in failed {
        let _ = write!(text, "\nstep `{name}` failed too: {}", failure.reason);
    }
    let left = report.count(|ended| matches!(ended, Ended::NotRun));
    let _ = write!(
        text,
        "\nnot run: {left} of {} steps; what was made is in {}, and the same command goes on from there",
        workflow.steps.len(),
        cli.outputs.display()
    );
    Some(text)
}
