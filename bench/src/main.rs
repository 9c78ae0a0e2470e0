//! Side-by-side benches: satin against sequential code and against other fork-join libraries.
//!
//! Each bench is a subcommand and a module. A new bench is a module with an `Args` (clap) and a
//! `run(&Args) -> anyhow::Result<()>`, a variant of [`Bench`], and an arm in [`main`].

mod chart;
mod crash;
mod figures;
mod files;
mod flow;
mod jsonl;
mod launch;
mod migrate;
mod par_map;
mod pools;
mod programs;
mod raw;
mod sites;
mod spawn;
mod steal;
mod store;
mod tax;
mod thief;
mod worth;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures satin beside sequential code, rayon and chili, in one run on this machine.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

const EXAMPLES: &str = "\
Examples:
  bench spawn                                  # all of it, a minute
  bench spawn --case fib,nqueens --rounds 21   # two cases, more rounds
  bench spawn --json spawn.jsonl               # keep the figures
  bench thief                                  # how long a thief waits
  bench steal                                  # a theft between two nodes
  bench sites --svg sites.svg                  # slow links, half an hour
  bench crash --svg crash.svg                  # what a crash costs, 40 minutes
  bench flow                                   # tasks that depend on data
  bench migrate                                # what moving a run costs
  bench par-map                                # loops, half a minute
  bench store --quick                          # a store, 3 minutes
  bench tax                                    # the cost of repair
  bench worth --svg worth.svg                  # is a second machine worth it? an hour";

#[derive(Debug, Subcommand)]
enum Bench {
    Crash(crash::Args),
    Flow(flow::Args),
    Migrate(migrate::Args),
    ParMap(par_map::Args),
    Sites(sites::Args),
    Spawn(spawn::Args),
    Steal(steal::Args),
    Store(store::Args),
    Tax(tax::Args),
    Thief(thief::Args),
    Worth(worth::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().bench {
        Bench::Crash(args) => crash::run(&args),
        Bench::Flow(args) => flow::run(&args),
        Bench::Migrate(args) => migrate::run(&args),
        Bench::ParMap(args) => par_map::run(&args),
        Bench::Sites(args) => sites::run(&args),
        Bench::Spawn(args) => spawn::run(&args),
        Bench::Steal(args) => steal::run(&args),
        Bench::Store(args) => store::run(&args),
        Bench::Tax(args) => tax::run(&args),
        Bench::Thief(args) => thief::run(&args),
        Bench::Worth(args) => worth::run(&args),
    };
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    eprintln!("bench: {error:#}");
    match error.downcast_ref() {
        Some(launch::Interrupted(signal)) => ExitCode::from(128 + *signal as u8),
        None => ExitCode::FAILURE,
    }
}
