//! The cost of repair, and of the harvest for it, when no node crashes: programs on a pool of nodes, with repair on and off, turn
//! by turn.
//!
//! Machines drift, so the ratio of two runs one right after the other counts, in alternating order. With valgrind there
//! are instruction counts of a single process too, which do not depend on other work of the machine.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use satin_cli::sites::Sites;
use serde::{Deserialize, Serialize};

use crate::{
    chart,
    figures::Spread,
    files::Files,
    launch::{Launcher, Repair},
    programs::{Case, LIMIT, Program, Sizes},
};

/// A run without crashes, with repair on and off: ratios of times, and of instructions if there is valgrind.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
\"On\" is SATIN_REPAIR=running, \"off\" is naive, which harvests nothing. Of instructions there is little to see in that, as a single \
process harvests nothing either: to see what repair added to them, build fib and uts of an older commit and name their folder.

Cases: fib; uts, the tree T1L; nqueens; qap, the instance nug14; deep, the tree T3L with its 17,844 levels; knary, a tree of \
leaves of 40 us; flat, a loop of jobs of 1 us.

Examples:
  bench tax --json tax.jsonl --svg tax.svg                 # 10 minutes
  bench tax --case fib --fib 40 --runs 3 --no-callgrind    # a short one
  bench tax --nodes 1 --case fib,nqueens,uts,qap,deep,flat --fib 43 --no-callgrind   # what harvesting costs a worker
  bench tax --runs 0                                       # only instructions
  bench tax --runs 0 --baseline ../old/target/release/examples
  bench tax --from tax.jsonl                               # shows them again")]
pub struct Args {
    /// Nodes, with one worker each
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Programs to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::Fib, Case::Uts])]
    case: Vec<Case>,
    /// Index of the Fibonacci number
    #[arg(long, value_name = "N", default_value_t = 46)]
    fib: u32,
    /// Tree that uts counts
    #[arg(long, value_name = "TREE", default_value = "T1L")]
    tree: String,
    /// Pairs of runs
    #[arg(long, default_value_t = 15)]
    runs: u32,
    /// Count no instructions
    #[arg(long)]
    no_callgrind: bool,
    /// Count the instructions of the executables `fib` and `uts` in this folder too, and compare
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_callgrind")]
    baseline: Option<PathBuf>,
    /// Build the programs in this profile [default: release]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    files: Files,
}

/// Arguments for runs under valgrind, which is fifty times as slow.
fn small(case: Case) -> &'static [&'static str] {
    match case {
        Case::Fib => &["27"],
        Case::Nqueens => &["8"],
        Case::Knary => &["3", "6", "40", "--steps", "40000"],
        Case::Flow => &["2", "7", "40", "--steps", "40000", "--flow"],
        Case::Flat => &["1", "10000", "1", "--steps", "1000"],
        Case::Qap => &[],
        // The tree T1, cut at 8 levels.
        Case::Uts | Case::Deep => &[
            "-t",
            "geometric",
            "-a",
            "fixed",
            "-d",
            "8",
            "-b",
            "4",
            "-r",
            "19",
        ],
    }
}

/// A line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Row {
    /// A pair of timed runs.
    Pair {
        bench: String,
        case: Case,
        nodes: u32,
        on_s: f64,
        off_s: f64,
    },
    /// Instructions of a single process with one worker.
    Instructions {
        bench: String,
        case: Case,
        on: u64,
        off: u64,
        /// Instructions of the older executable.
        baseline: Option<u64>,
    },
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> Result<()> {
    let rows = match args.files.earlier()? {
        Some(rows) => rows,
        None => measure(args)?,
    };
    report(&rows);
    args.files.write(&rows, draw)
}

fn measure(args: &Args) -> Result<Vec<Row>> {
    let launcher = Launcher::new(args.profile.clone())?;
    let sizes = Sizes {
        fib: args.fib,
        tree: args.tree.clone(),
        ..Sizes::default()
    };
    let programs = (args.case.iter())
        .map(|case| Program::build(&launcher, *case, &sizes))
        .collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for number in 0..args.runs {
        for program in &programs {
            let case = program.case;
            // First one, then the other goes first.
            let order = match number % 2 {
                0 => [Repair::Running, Repair::Naive],
                _ => [Repair::Naive, Repair::Running],
            };
            let mut times = [0.0; 2];
            for repair in order {
                let plan = repair.plan(program.words(), Sites::alike(1, args.nodes));
                let story = launcher.run(plan, LIMIT, |_| Ok(()))?;
                times[usize::from(repair == Repair::Naive)] = story.seconds();
            }
            let [on_s, off_s] = times;
            eprintln!(
                "[{}/{}] {}: on {on_s:.3} s, off {off_s:.3} s, ratio {:.4}",
                number + 1,
                args.runs,
                case.name(),
                on_s / off_s
            );
            rows.push(Row::Pair {
                bench: "tax".into(),
                case,
                nodes: args.nodes,
                on_s,
                off_s,
            });
        }
    }
    if args.no_callgrind {
        return Ok(rows);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("no valgrind here: instructions are not counted");
        return Ok(rows);
    }
    for Program { case, path, .. } in &programs {
        let count = |program: &Path, repair: Repair| -> Result<u64> {
            launcher.go_on()?;
            eprintln!(
                "counting the instructions of {}, {repair}",
                program.display()
            );
            let counted = instructions(program, small(*case), repair);
            launcher.go_on()?;
            counted
        };
        let baseline = args
            .baseline
            .as_ref()
            .map(|folder| folder.join(case.example()));
        rows.push(Row::Instructions {
            bench: "tax".into(),
            case: *case,
            on: count(path, Repair::Running)?,
            off: count(path, Repair::Naive)?,
            baseline: baseline
                .map(|program| count(&program, Repair::Running))
                .transpose()?,
        });
    }
    Ok(rows)
}

/// Number of instructions, counted by callgrind.
fn instructions(program: &Path, arguments: &[&str], repair: Repair) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .args(["--threads", "1"])
        .env("SATIN_REPAIR", repair.to_string())
        .output()
        .context("cannot start valgrind")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "valgrind {} failed ({}):\n{words}",
        program.display(),
        output.status
    );
    collected(&words).with_context(|| format!("callgrind told no count:\n{words}"))
}

/// The count in what callgrind says at its end.
fn collected(words: &str) -> Option<u64> {
    let (_, count) = words
        .lines()
        .find_map(|line| line.split_once("Collected : "))?;
    count.trim().parse().ok()
}

/// Ratios of on and off, one of each pair.
fn ratios(rows: &[Row], of: Case) -> Vec<f64> {
    let pairs = rows.iter().filter_map(|row| match row {
        Row::Pair {
            case, on_s, off_s, ..
        } if *case == of => Some(on_s / off_s),
        _ => None,
    });
    pairs.collect()
}

/// The shortest run with repair, in terms of the shortest without.
fn ratio_of_minima(rows: &[Row], of: Case) -> f64 {
    let (mut on, mut off) = (f64::INFINITY, f64::INFINITY);
    for row in rows {
        if let Row::Pair {
            case, on_s, off_s, ..
        } = row
            && *case == of
        {
            (on, off) = (on.min(*on_s), off.min(*off_s));
        }
    }
    on / off
}

fn report(rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "case",
        "pairs",
        "on / off",
        "quarters",
        "min..max",
        "of minima",
    ]);
    let mut said = Vec::new();
    for case in Case::value_variants().iter().copied() {
        let ratios = ratios(rows, case);
        if ratios.is_empty() {
            continue;
        }
        let count = ratios.len();
        let spread = Spread::of(ratios);
        let minima = ratio_of_minima(rows, case);
        table.add_row([
            case.name().to_owned(),
            count.to_string(),
            format!("{:.4}", spread.median),
            format!("{:.4}..{:.4}", spread.lower, spread.upper),
            format!("{:.4}..{:.4}", spread.min, spread.max),
            format!("{minima:.4}"),
        ]);
        let most = case.most();
        let verdict = if minima > most { "missed" } else { "met" };
        said.push(format!(
            "{}: {minima:.4} of the time without repair (minima of {count} runs each), target at most {most}: {verdict}",
            case.name(),
        ));
    }
    let mut counts = Table::new();
    counts.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "case",
        "instructions",
        "on / off",
        "on / baseline",
    ]);
    for row in rows {
        let Row::Instructions {
            case,
            on,
            off,
            baseline,
            ..
        } = row
        else {
            continue;
        };
        let ratio = |by: u64| format!("{:.5}", *on as f64 / by as f64);
        counts.add_row([
            case.name().to_owned(),
            on.to_string(),
            ratio(*off),
            baseline.map_or("-".into(), ratio),
        ]);
    }
    for mut table in [table, counts] {
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if table.row_count() > 0 {
            println!("{table}");
        }
    }
    for line in said {
        println!("{line}");
    }
}

fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let points = Case::value_variants().iter().copied().flat_map(|case| {
        let ratios = ratios(rows, case).into_iter().zip(1..);
        ratios.map(move |(ratio, pair)| (case.name().to_owned(), f64::from(pair), ratio))
    });
    let lines = chart::lines(points);
    ensure!(!lines.is_empty(), "no pairs of runs to draw");
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.1))
    };
    let (least, most) = (all().fold(0.98, f64::min), all().fold(1.02, f64::max));
    chart::draw(
        path,
        &chart::Axes {
            title: "time with repair over time without",
            x: "pair of runs",
            y: "on / off",
            y_range: least..most,
            legend: chart::Legend::LowerLeft,
        },
        &lines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_says() {
        let words = "==7== \n==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(collected(words), Some(123_456));
        assert_eq!(collected("valgrind: no such file"), None);
    }

    #[test]
    fn each_pair_has_a_ratio_of_its_own() {
        let pair = |case, on_s, off_s| Row::Pair {
            bench: "tax".into(),
            case,
            nodes: 2,
            on_s,
            off_s,
        };
        // The machine got slower from pair to pair.
        let rows = [
            pair(Case::Fib, 1.0, 1.0),
            pair(Case::Uts, 9.0, 3.0),
            pair(Case::Fib, 4.0, 2.0),
        ];
        assert_eq!(ratios(&rows, Case::Fib), [1.0, 2.0]);
        assert_eq!(ratios(&rows, Case::Uts), [3.0]);
        assert!((ratio_of_minima(&rows, Case::Fib) - 1.0).abs() < 1e-9);
    }
}
