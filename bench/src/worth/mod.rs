//! `bench worth`: is a second machine worth it? Programs of every kind, on one process and on pools of processes, over links of
//! every length and width; and a large slice that is lent to another node, beside raw QUIC.
//!
//! Two parts, a module each: `programs` and `bulk`.

mod bulk;
mod programs;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use satin_cli::units;
use serde::{Deserialize, Serialize};

use self::programs::Case;
use crate::{files::Files, launch::Launcher};

/// Is a second machine worth it: pools over one process for each link, and a large slice beside raw QUIC.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Parts:
  programs  the time of each program in one process, and in pools: at one site, and at two sites with each of the emulated links \
between them (half of the nodes at either). Each time is what the program tells: from the moment when all nodes are in and the input is there. \
A machine that shares its cores may be slow for some seconds: so a pool is compared with one process just before and after it. Figures of a few rounds say \
little of one pool; those over all links say more. A run that takes more than 20 times that of one process, and half a minute, is ended and has no time
  bulk      a slice of u64 that is lent to a job of another node by `&mut`, and comes back; beside raw QUIC that carries as many bytes \
there and back, and beside copies in memory. The best of the rounds counts. Then how long a thief waits for its next job beside results of 256 MiB that \
come one after the other, and without them: the medians count

Each node needs a core. More nodes than cores share them: then the figures show what a pool costs, not what it gains. The emulated \
links are threads of this bench: they take processor time from the nodes, and one core carries a few Gbit/s at most.

Examples:
  bench worth --quick --part programs                        # small sizes: to see that it works
  bench worth --json worth.jsonl --svg worth.svg             # all of it: an hour
  bench worth --case mergesort,fft --nodes 2 --rtt 10ms --rate 1gbit
  bench worth --part bulk
  bench worth --from worth.jsonl --svg worth.svg             # draws them again")]
pub struct Args {
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Programs, Part::Bulk])]
    part: Vec<Part>,
    /// Programs to run [default: all]
    #[arg(long, value_enum, value_name = "CASE", value_delimiter = ',')]
    case: Vec<Case>,
    /// Sizes of the pools
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [2, 4], value_parser = clap::value_parser!(u32).range(2..=64))]
    nodes: Vec<u32>,
    /// Worker threads of each node, and of the one process
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Round trips between the two sites, each with each rate
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "0,10ms,100ms", value_parser = units::duration)]
    rtt: Vec<Duration>,
    /// Rates of the link between the two sites, in each direction
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', default_value = "100mbit,1gbit,10gbit", value_parser = units::rate)]
    rate: Vec<u64>,
    /// Rounds, each with everything [default: 3, or 1 if it is to be quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Small programs and a small slice, one round: figures that mean nothing
    #[arg(long)]
    quick: bool,
    /// Size of the slice of the part bulk [default: 256, or 16 if it is to be quick]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=512))]
    mib: Option<u32>,
    /// Build the programs in this profile [default: release]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    files: Files,
}

impl Args {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

/// The parts of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Programs on pools over one process
    Programs,
    /// A large slice that is lent, beside raw QUIC
    Bulk,
}

/// A line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Row {
    Program(programs::Row),
    Bulk(bulk::Row),
    Beside(bulk::SteadyRow),
}

/// Measures, and reports the results.
pub fn run(args: &Args) -> Result<()> {
    let rows = match args.files.earlier()? {
        Some(rows) => rows,
        None => measure(args)?,
    };
    let programs = programs_of(&rows);
    programs::report(&programs);
    bulk::report(rows.iter().filter_map(|row| match row {
        Row::Bulk(row) => Some(row),
        _ => None,
    }));
    bulk::report_beside(rows.iter().filter_map(|row| match row {
        Row::Beside(row) => Some(row),
        _ => None,
    }));
    args.files
        .write(&rows, |path, rows| programs::draw(path, &programs_of(rows)))
}

fn programs_of(rows: &[Row]) -> Vec<programs::Row> {
    let programs = rows.iter().filter_map(|row| match row {
        Row::Program(row) => Some(row.clone()),
        _ => None,
    });
    programs.collect()
}

fn measure(args: &Args) -> Result<Vec<Row>> {
    let launcher = Launcher::new(args.profile.clone())?;
    let mut rows = Vec::new();
    if args.part.contains(&Part::Programs) {
        let programs = programs::measure(args, &launcher)?;
        rows.extend(programs.into_iter().map(Row::Program));
    }
    if args.part.contains(&Part::Bulk) {
        let mib = args.mib.unwrap_or(if args.quick { 16 } else { 256 });
        let bulk = bulk::measure(&launcher, mib, args.rounds())?;
        rows.extend(bulk.into_iter().map(Row::Bulk));
        let beside = bulk::measure_beside(&launcher, args.rounds())?;
        rows.extend(beside.into_iter().map(Row::Beside));
    }
    Ok(rows)
}
