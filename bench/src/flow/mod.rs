//! `bench flow`: what a task of a flow costs, and flows beside sequential code and rayon.
//!
//! An empty task with three accesses, in the graph of a Cholesky factorization; LU and Cholesky factorizations in tiles, beside the same kernels in
//! a loop, and beside rayon with a barrier after each step; and sweeps of Gauss and Seidel, beside rayon in wavefronts. A round runs all
//! programs of a case in turn; each answer is compared with the sequential one, bit for bit.

mod factor;
mod overhead;
mod sweeps;

use std::{
    num::NonZeroUsize,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::ensure;
use comfy_table::{CellAlignment, Table};
use satin::{Flow, Handle};
use serde::Serialize;

use crate::{
    figures::{Ratio, median},
    jsonl,
    pools::Pools,
};

/// Tasks that depend on data: the cost of a task, and factorizations and sweeps beside sequential code and rayon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each round runs the programs of a case in turn, and its ratios count; the ratios of the minima are shown beside.

Examples:
  bench flow                                   # some minutes
  bench flow --case overhead --rounds 15       # an empty task
  bench flow --case lu,cholesky --tile 128 --rounds 9 --json flow.jsonl
  bench flow --size 512 --tile 64 --rounds 2   # does it work?")]
pub struct Args {
    /// Cases to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::Overhead, Case::Lu, Case::Cholesky, Case::GaussSeidel])]
    case: Vec<Case>,
    /// Rows and columns of the matrix, and points of the plate
    #[arg(long, value_name = "N", default_value_t = 1536, value_parser = clap::value_parser!(u32).range(1..))]
    size: u32,
    /// Rows and columns of a tile
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values = ["64", "128", "192"], value_parser = clap::value_parser!(u32).range(1..))]
    tile: Vec<u32>,
    /// Sweeps over the plate
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    sweeps: u32,
    /// Tiles in a row of the matrix whose tasks are empty: 50 make 22,100 tasks
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    tiles: u32,
    /// Rounds per case
    #[arg(long, value_name = "N", default_value = "9")]
    rounds: NonZeroUsize,
    /// Also write the figures to FILE, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    /// Tasks that do nothing
    Overhead,
    /// LU factorization
    Lu,
    /// Cholesky factorization
    Cholesky,
    /// Relaxation in place
    GaussSeidel,
}

/// A program, beside one that it is compared with.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    case: Case,
    /// Rows and columns; of the empty tasks' matrix in tiles.
    size: u32,
    /// Rows and columns of a tile; 0 if tasks are empty.
    tile: u32,
    workers: usize,
    tasks: usize,
    rounds: usize,
    flow_ms_min: f64,
    flow_ms_median: f64,
    /// Of a task, from the creation of the first to the end of the last, by the minimum.
    task_ns: f64,
    against: Option<Against>,
}

/// What the program is compared with.
#[derive(Serialize)]
struct Against {
    who: &'static str,
    ms_min: f64,
    ms_median: f64,
    /// Time of the other over time of the flow, of the minima: above 1 the flow is faster.
    ratio_min: f64,
    /// Geometric mean of the rounds' ratios, with the limits of 95 %.
    ratio: f64,
    ratio_low: f64,
    /// Infinite after one round: null in JSON.
    ratio_high: f64,
    /// The ratio of the minima that is required.
    required: f64,
}

/// Tiles of numbers, in rows.
type Tiles = Vec<Vec<Vec<f64>>>;

/// What a case does with tiles, in three ways: in a loop, on one worker; as a flow, on one worker and on two; and with rayon, on two.
struct Ways<'w> {
    title: String,
    case: Case,
    tile: u32,
    tasks: usize,
    sequential: Way<'w>,
    flow: Way<'w>,
    rayon: Way<'w>,
    /// What rayon does, and the ratio of the minima that is required beside it.
    beside: (&'static str, f64),
}

type Way<'w> = &'w (dyn Fn(Tiles) -> Tiles + Sync);

/// The same beside sequential code.
const BESIDE_SEQUENTIAL: f64 = 0.97;

/// Brings tiles into a flow.
fn handles<'g>(g: &Flow<'g>, tiles: Tiles) -> Vec<Vec<Handle<'g, Vec<f64>>>> {
    let of_row = |row: Vec<Vec<f64>>| row.into_iter().map(|tile| g.data(tile)).collect();
    tiles.into_iter().map(of_row).collect()
}

/// A program of a case.
struct Program<'p> {
    who: &'static str,
    workers: usize,
    /// Runs it on fresh input.
    run: Box<dyn Fn(Tiles) -> Tiles + 'p>,
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    for tile in args.tile.iter().filter(|_| args.needs_tiles()) {
        ensure!(
            args.size.is_multiple_of(*tile),
            "--tile {tile} does not divide --size {}",
            args.size
        );
    }
    let pools = [1, 2].map(|threads| Pools::new(NonZeroUsize::new(threads).expect("not 0")));
    let [one, two] = pools;
    let pools = [one?, two?];
    let mut rows = Vec::new();
    for case in &args.case {
        match case {
            Case::Overhead => rows.extend(overhead::measure(args, &pools)?),
            Case::Lu | Case::Cholesky => {
                for tile in &args.tile {
                    rows.extend(factor::measure(args, *case, *tile, &pools)?);
                }
            }
            Case::GaussSeidel => {
                for tile in &args.tile {
                    rows.extend(sweeps::measure(args, *tile, &pools)?);
                }
            }
        }
    }
    println!("{}", table(&rows));
    println!(
        "required: an empty task at most 1000 ns; ratios of the minima at least as shown (time of the other over that of the flow)"
    );
    match &args.json {
        Some(path) => jsonl::write(path, &rows),
        None => Ok(()),
    }
}

impl Args {
    fn needs_tiles(&self) -> bool {
        self.case.iter().any(|case| *case != Case::Overhead)
    }
}

/// Runs all programs in turn, round by round, each round from another one on. Returns the times in milliseconds, by program and round.
fn interleaved(
    title: &str,
    input: &Tiles,
    programs: &[Program<'_>],
    rounds: usize,
) -> anyhow::Result<Vec<Vec<f64>>> {
    eprintln!("{title}: {rounds} rounds of {} runs", programs.len());
    // Threads wake, and pages are touched.
    let (expected, _) = programs[0].timed(input);
    let mut times = vec![Vec::new(); programs.len()];
    for round in 0..rounds {
        for at in 0..programs.len() {
            let at = (at + round) % programs.len();
            let (answer, time) = programs[at].timed(input);
            let Program { who, workers, .. } = &programs[at];
            ensure!(
                answer == expected,
                "{title}: the answer of {who} on {workers} is not that of {}",
                programs[0].who
            );
            times[at].push(time.as_secs_f64() * 1e3);
        }
    }
    Ok(times)
}

impl Program<'_> {
    /// The answer, and the time without the making of the input.
    fn timed(&self, input: &Tiles) -> (Tiles, Duration) {
        let input = input.clone();
        let began = Instant::now();
        let answer = (self.run)(input);
        (answer, began.elapsed())
    }
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Measures what is done with that input, in all ways: the rows of the flow on one worker and on two.
fn compared(
    args: &Args,
    input: &Tiles,
    ways: &Ways<'_>,
    [one, two]: &[Pools; 2],
) -> anyhow::Result<Vec<Row>> {
    let program = |who, pools: &Pools, run| Program {
        who,
        workers: pools.threads(),
        run,
    };
    let (beside_rayon, required) = ways.beside;
    let programs = [
        program("sequential", one, Box::new(ways.sequential)),
        program(
            "flow",
            one,
            Box::new(|tiles| one.satin(|| (ways.flow)(tiles))),
        ),
        program(
            "flow",
            two,
            Box::new(|tiles| two.satin(|| (ways.flow)(tiles))),
        ),
        program(
            beside_rayon,
            two,
            Box::new(|tiles| two.rayon(|| (ways.rayon)(tiles))),
        ),
    ];
    let times = interleaved(&ways.title, input, &programs, args.rounds.get())?;
    let row = |flow: usize, other: usize, required: f64| {
        let who = programs[other].who;
        let workers = programs[flow].workers;
        let (flow, other) = (&times[flow], &times[other]);
        let ratios = other.iter().zip(flow).map(|(other, flow)| other / flow);
        let ratio = Ratio::of(ratios).expect("there is a round");
        Row {
            bench: "flow",
            case: ways.case,
            size: args.size,
            tile: ways.tile,
            workers,
            tasks: ways.tasks,
            rounds: args.rounds.get(),
            flow_ms_min: least(flow),
            flow_ms_median: median(flow.iter().copied()),
            task_ns: least(flow) * 1e6 / ways.tasks as f64,
            against: Some(Against {
                who,
                ms_min: least(other),
                ms_median: median(other.iter().copied()),
                ratio_min: least(other) / least(flow),
                ratio: ratio.mean,
                ratio_low: ratio.low,
                ratio_high: ratio.high,
                required,
            }),
        }
    };
    Ok(vec![row(1, 0, BESIDE_SEQUENTIAL), row(2, 3, required)])
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "case",
        "size",
        "tile",
        "workers",
        "tasks",
        "flow ms",
        "ns / task",
        "beside",
        "its ms",
        "minima",
        "its ms / flow's",
        "required",
    ]);
    for row in rows {
        let case = clap::ValueEnum::to_possible_value(&row.case).expect("no case is hidden");
        let against = row.against.as_ref();
        let told = |tell: &dyn Fn(&Against) -> String| against.map(tell).unwrap_or_default();
        table.add_row([
            case.get_name().to_owned(),
            row.size.to_string(),
            row.tile.to_string(),
            row.workers.to_string(),
            row.tasks.to_string(),
            format!("{:.2}", row.flow_ms_min),
            format!("{:.0}", row.task_ns),
            told(&|against| against.who.to_owned()),
            told(&|against| format!("{:.2}", against.ms_min)),
            told(&|against| format!("{:.3}", against.ratio_min)),
            told(&|against| {
                let Against {
                    ratio: mean,
                    ratio_low: low,
                    ratio_high: high,
                    ..
                } = *against;
                Ratio { mean, low, high }.to_string()
            }),
            told(&|against| format!("{:.2}", against.required)),
        ]);
    }
    for column in [1, 2, 3, 4, 5, 6, 8, 9, 10, 11] {
        let column = table.column_mut(column).expect("it is there");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
