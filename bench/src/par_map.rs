//! `par_map!` beside rayon's `par_iter().map().collect()`, turn by turn: elements of 10 us, of 1 us and of 100 ns.

use std::{
    num::NonZeroUsize,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::ensure;
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    figures::{Ratio, median},
    jsonl,
    pools::Pools,
    spawn::flat::{spin, steps_for},
};

/// Parallel loops over the elements of a slice, beside rayon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An element is as many steps of a generator as take that time on this machine. Each round runs both libraries, in alternating order, and \
its ratio counts; the minima are shown beside.

Examples:
  bench par-map                                # 10 us, 1 us and 100 ns, half a minute
  bench par-map --element 10us --rounds 101 --json par-map.jsonl")]
pub struct Args {
    /// Elements of the loop
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    elements: u32,
    /// Time that an element takes
    #[arg(long, value_delimiter = ',', default_values = ["10us", "1us", "100ns"])]
    element: Vec<humantime::Duration>,
    /// Threads of each library
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    /// Rounds per case
    #[arg(long, default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Also write the figures to this file, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A case of the results.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    element_ns: u64,
    elements: u32,
    threads: usize,
    rounds: u32,
    satin_ms_min: f64,
    rayon_ms_min: f64,
    satin_ms_median: f64,
    rayon_ms_median: f64,
    /// Of the minima.
    ratio_min: f64,
    /// Geometric mean of the rounds' ratios, with the limits of 95 %.
    ratio: f64,
    ratio_low: f64,
    ratio_high: f64,
}

/// The work of an element.
#[satin::spawnable]
fn element(seed: &u32, steps: u64) -> u64 {
    spin(*seed, steps)
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let pools = Pools::new(args.threads)?;
    let mut table = comfy_table::Table::new();
    table.set_header(["element", "satin ms", "rayon ms", "minima", "satin / rayon"]);
    let mut rows = Vec::new();
    for time in &args.element {
        let row = case(args, &pools, **time)?;
        table.add_row([
            time.to_string(),
            format!("{:.3}", row.satin_ms_min),
            format!("{:.3}", row.rayon_ms_min),
            format!("{:.3}", row.ratio_min),
            format!(
                "{:.3} ({:.3}..{:.3})",
                row.ratio, row.ratio_low, row.ratio_high
            ),
        ]);
        rows.push(row);
    }
    println!("{table}");
    println!("required for elements of 10 us: at most 1.05");
    if let Some(path) = &args.json {
        jsonl::write(path, &rows)?;
    }
    Ok(())
}

/// All rounds with elements that take so long.
fn case(args: &Args, pools: &Pools, time: Duration) -> anyhow::Result<Row> {
    let steps = steps_for(time).max(1);
    let seeds: Vec<u32> = (0..args.elements).collect();
    let expected: Vec<u64> = seeds.iter().map(|seed| spin(*seed, steps)).collect();
    let satin = || pools.satin(|| satin::par_map!(&seeds, |seed| element(seed, steps)));
    let rayon = || pools.rayon(|| seeds.par_iter().map(|seed| spin(*seed, steps)).collect());
    let timed = |run: &dyn Fn() -> Vec<u64>| {
        let began = Instant::now();
        let results = run();
        let took = began.elapsed().as_secs_f64() * 1e3;
        ensure!(results == expected, "a loop gave wrong results");
        Ok(took)
    };
    // Threads wake, and pages are touched.
    timed(&satin)?;
    timed(&rayon)?;
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let pair = if round.is_multiple_of(2) {
            let first = timed(&satin)?;
            (first, timed(&rayon)?)
        } else {
            let first = timed(&rayon)?;
            (timed(&satin)?, first)
        };
        rounds.push(pair);
    }
    let least = |times: &mut dyn Iterator<Item = f64>| times.fold(f64::INFINITY, f64::min);
    let satin_ms_min = least(&mut rounds.iter().map(|round| round.0));
    let rayon_ms_min = least(&mut rounds.iter().map(|round| round.1));
    let ratios = rounds.iter().map(|(satin, rayon)| satin / rayon);
    let ratio = Ratio::of(ratios).expect("at least one round");
    Ok(Row {
        bench: "par-map",
        element_ns: time.as_nanos() as u64,
        elements: args.elements,
        threads: args.threads.get(),
        rounds: args.rounds,
        satin_ms_min,
        rayon_ms_min,
        satin_ms_median: median(rounds.iter().map(|round| round.0)),
        rayon_ms_median: median(rounds.iter().map(|round| round.1)),
        ratio_min: satin_ms_min / rayon_ms_min,
        ratio: ratio.mean,
        ratio_low: ratio.low,
        ratio_high: ratio.high,
    })
}
