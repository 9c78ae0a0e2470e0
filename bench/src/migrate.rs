//! The cost of moving a run: in the middle a fresh set of nodes joins at another site, and the first site is drained,
//! master included.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use satin::observe::events::{Event, Record};
use satin_cli::{
    pool::LocalPool,
    sites::{Site, Sites},
    units,
    wan::WanLink,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;

use crate::{
    chart,
    figures::{ideal, median},
    files::Files,
    launch::{Knary, Launcher, Repair, Work},
};

/// Move a run to other nodes: a site joins, the first is drained; extra time and leaves done again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fresh nodes are started at that moment; when all are in, the old ones get SIGTERM. While both sets are there they work \
together: the ideal counts that, the undisturbed run does not.

Examples:
  bench migrate --json migrate.jsonl --svg migrate.svg   # 7 minutes
  bench migrate --compute
  bench migrate --nodes 2 --depth 4 --runs 1             # a short one
  bench migrate --from migrate.jsonl                     # shows them again")]
pub struct Args {
    /// Nodes of each of the two sites, with one worker each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Round-trip time between the sites
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = units::duration)]
    rtt: Duration,
    /// Moment of the move, in percent of the time of the undisturbed run
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..100))]
    at: u32,
    #[command(flatten)]
    work: Work,
    /// Milliseconds that a leaf takes [default: 10, or 3 if it computes]
    #[arg(long, value_name = "MS")]
    leaf: Option<u32>,
    /// Pairs of runs, one undisturbed and one that is moved; the medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    files: Files,
}

/// A pair of runs; a line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    bench: String,
    case: String,
    #[serde(rename = "impl")]
    repair: Repair,
    nodes: u32,
    rtt_ms: f64,
    /// Run time of the undisturbed run, in seconds.
    undisturbed_s: f64,
    /// Run time of the run that is moved, in seconds.
    seconds: f64,
    /// Run time if all nodes worked while they are there, in seconds.
    ideal_s: f64,
    /// Beyond the undisturbed run, by its time.
    extra_percent: f64,
    /// Beyond the ideal, by the undisturbed time.
    over_ideal_percent: f64,
    /// When the fresh nodes were in, since the root job was called.
    joined_s: f64,
    /// Time from SIGTERM until the last of the old nodes had left, in seconds.
    left_after_s: Option<f64>,
    /// Leaves that were done more than once.
    again: u64,
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> Result<()> {
    let rows = match args.files.earlier()? {
        Some(rows) => rows,
        None => measure(args)?,
    };
    println!("{}", table(&rows));
    if !rows.is_empty() {
        let middle = |figure: fn(&Row) -> f64| median(rows.iter().map(figure));
        let extra = middle(|row| row.extra_percent);
        println!(
            "moved: {extra:.2} % more time than undisturbed, {:.2} % more than the ideal, {:.0} leaves done again (medians); required: at most 2 %: {}",
            middle(|row| row.over_ideal_percent),
            middle(|row| row.again as f64),
            if extra <= 2.0 { "met" } else { "missed" }
        );
    }
    args.files.write(&rows, draw)
}

const OLD: &str = "old";
const FRESH: &str = "fresh";

fn names(site: &str, nodes: u32) -> Vec<String> {
    (0..nodes)
        .map(|number| format!("{site}-{number}"))
        .collect()
}

fn measure(args: &Args) -> Result<Vec<Row>> {
    let launcher = args.work.launcher()?;
    let ms = args.leaf.unwrap_or(if args.work.compute { 3 } else { 10 });
    let knary = args.work.build(&launcher, ms)?;
    let mut rows = Vec::new();
    for number in 1..=args.runs {
        let plan = plan(args, &knary);
        let (story, _) = knary.run(&launcher, plan, |_| Ok(()))?;
        let undisturbed_s = story.seconds();
        let row = moved(args, &launcher, &knary, undisturbed_s)?;
        eprintln!(
            "[{number}/{}] undisturbed {undisturbed_s:.2} s, moved {:.2} s: {:.2} % more, {} leaves again",
            args.runs, row.seconds, row.extra_percent, row.again
        );
        rows.push(row);
    }
    Ok(rows)
}

fn plan(args: &Args, knary: &Knary) -> satin_cli::pool::Plan {
    let site = Site {
        name: OLD.into(),
        nodes: args.nodes,
    };
    let mut plan = knary.plan(Sites(vec![site]), Repair::Running);
    plan.wan = (!args.rtt.is_zero()).then(|| WanLink {
        rtt: args.rtt,
        ..WanLink::default()
    });
    plan
}

/// The run that is moved.
fn moved(args: &Args, launcher: &Launcher, knary: &Knary, undisturbed_s: f64) -> Result<Row> {
    let at = Duration::from_secs_f64(undisturbed_s * f64::from(args.at) / 100.0);
    let (old, fresh) = (names(OLD, args.nodes), names(FRESH, args.nodes));
    let (story, done) = knary.run(launcher, plan(args, knary), |pool| {
        move_to(pool, at, &old, &fresh)
    })?;
    let joined_ms = story.last_of_firsts(&fresh, |event| matches!(event, Event::Joined { .. }));
    let joined_s = story.since_start(joined_ms.context("the fresh nodes did not come in")?);
    // All are told in the same moment; that is when the old set stops taking new work.
    let told_ms = story.first_of(&old, |event| matches!(event, Event::Draining { .. }));
    let told_s = story.since_start(told_ms.context("no old node said that it is draining")?);
    let left_ms = story.last_of_firsts(&old, |event| matches!(event, Event::Left { .. }));
    let seconds = story.seconds();
    ensure!(
        told_s < seconds,
        "drained {told_s:.2} s after the start of a run of {seconds:.2} s: it does not count"
    );
    let one = knary.at_once(args.nodes);
    let both = knary.at_once(2 * args.nodes);
    let ideal_s = ideal(
        undisturbed_s,
        &[(0.0, one), (joined_s, both), (told_s, one)],
    );
    let case = match args.work.compute {
        true => "knary computing",
        false => "knary sleeping",
    };
    Ok(Row {
        bench: "migrate".into(),
        case: case.into(),
        repair: Repair::Running,
        nodes: args.nodes,
        rtt_ms: args.rtt.as_secs_f64() * 1000.0,
        undisturbed_s,
        seconds,
        ideal_s,
        extra_percent: (seconds / undisturbed_s - 1.0) * 100.0,
        over_ideal_percent: (seconds - ideal_s) / undisturbed_s * 100.0,
        joined_s,
        left_after_s: left_ms.map(|left_ms| story.since_start(left_ms) - told_s),
        again: done - knary.leaves(),
    })
}

/// Waits for the moment, starts the fresh nodes, and asks the old ones to leave when they are all in.
fn move_to(pool: &mut LocalPool, at: Duration, old: &[String], fresh: &[String]) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let has_begun = |records: &[Record]| {
        let begun = |record: &Record| matches!(record.event, Event::RootStarted { .. });
        records.iter().any(begun)
    };
    ensure!(pool.wait_for(PATIENCE, has_begun)?, "the run did not begin");
    pool.wait_for(at, |_| false)?;
    for name in fresh {
        let added = pool.add(FRESH)?;
        ensure!(added == *name, "{added} was started, not {name}");
    }
    let are_in = |records: &[Record]| {
        fresh.iter().all(|name| {
            let joined = |record: &Record| {
                record.name == *name && matches!(record.event, Event::Joined { .. })
            };
            records.iter().any(joined)
        })
    };
    ensure!(
        pool.wait_for(PATIENCE, are_in)?,
        "the fresh nodes did not come in before the end: is the run long enough?"
    );
    for name in old {
        pool.signal(name, SIGTERM);
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "undisturbed s",
        "moved s",
        "ideal s",
        "more %",
        "over ideal %",
        "fresh in at s",
        "old out after s",
        "leaves again",
    ]);
    for row in rows {
        table.add_row([
            format!("{:.2}", row.undisturbed_s),
            format!("{:.2}", row.seconds),
            format!("{:.2}", row.ideal_s),
            format!("{:.2}", row.extra_percent),
            format!("{:.2}", row.over_ideal_percent),
            format!("{:.2}", row.joined_s),
            row.left_after_s
                .map_or("-".into(), |seconds| format!("{seconds:.2}")),
            row.again.to_string(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The times of the pairs.
fn draw(path: &std::path::Path, rows: &[Row]) -> Result<()> {
    let first = rows.first().context("no figures to draw")?;
    let points = rows.iter().zip(1..).flat_map(|(row, pair)| {
        let pair = f64::from(pair);
        [
            ("undisturbed".to_owned(), pair, row.undisturbed_s),
            ("moved".into(), pair, row.seconds),
            ("ideal".into(), pair, row.ideal_s),
        ]
    });
    let lines = chart::lines(points);
    let most = (rows.iter()).fold(0.0, |most, row| {
        f64::max(most, row.seconds.max(row.undisturbed_s))
    });
    chart::draw(
        path,
        &chart::Axes {
            title: &format!(
                "{}: moved from {1} nodes to {1} others",
                first.case, first.nodes
            ),
            x: "pair of runs",
            y: "seconds",
            y_range: 0.0..most * 1.1,
            legend: chart::Legend::LowerLeft,
        },
        &lines,
    )
}
