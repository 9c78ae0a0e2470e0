//! Side-by-side benches: satin against sequential code and against other fork-join libraries.
//!
//! One subcommand per bench, one module per subcommand. A new bench is a module with an `Args` (clap) and a
//! `run(&Args) -> anyhow::Result<()>`, a variant of [`Bench`], and an arm in [`main`].

mod chart;
mod jsonl;
mod pools;
mod sites;
mod spawn;
mod steal;
mod thief;

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
  bench spawn                                  every case and implementation, about a minute
  bench spawn --case fib,nqueens --rounds 21   two cases, more rounds
  bench spawn --json spawn.jsonl               keep the figures as JSON Lines too
  bench thief                                  how long a thief from outside waits for a job
  bench steal                                  a theft between two nodes beside a raw QUIC round trip
  bench sites --svg sites.svg                  what slow links between sites cost, about half an hour";

#[derive(Debug, Subcommand)]
enum Bench {
    Sites(sites::Args),
    Spawn(spawn::Args),
    Steal(steal::Args),
    Thief(thief::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().bench {
        Bench::Sites(args) => sites::run(&args),
        Bench::Spawn(args) => spawn::run(&args),
        Bench::Steal(args) => steal::run(&args),
        Bench::Thief(args) => thief::run(&args),
    }
}
