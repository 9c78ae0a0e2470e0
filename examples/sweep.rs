//! A parameter sweep that writes one file: how chaotic the logistic map x -> r x (1 - x) is, for each of many r between 3 and 4. (Its Lyapunov
//! exponent: below zero it settles, above zero it is chaotic.)
//!
//! Shows a fence: the file is written once, by the latest `main` of the run, also if a cut network or a paused machine has made two.

use std::{f64::consts::LN_2, fmt::Write, fs, path::PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use satin::NoFence;

/// Steps of the map before it is looked at: it has forgotten where it began.
const TRANSIENT: u32 = 1000;

/// Computes how chaotic the logistic map is for each of many parameters, and writes a table
#[derive(Parser)]
#[command(after_help = "Examples:
  sweep
  sweep --parameters 100000 --out lyapunov.csv
  sweep --steps 5000000  # some seconds on a pool: cut its links meanwhile")]
struct Cli {
    /// Number of parameters between 3 and 4
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=10_000_000))]
    parameters: u32,
    /// Steps of the map for each of them
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..))]
    steps: u32,
    /// The table, as CSV
    #[arg(long, value_name = "FILE", default_value = "sweep.csv")]
    out: PathBuf,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let exponents = exponents(0, cli.parameters, cli.parameters, cli.steps);
    let mut table = String::from("r,exponent\n");
    for (number, exponent) in (0..).zip(&exponents) {
        writeln!(table, "{},{exponent:.6}", parameter(number, cli.parameters))?;
    }
    let last = exponents.last().context("there are parameters")?;
    // Known: at r = 4 the map is conjugate to a tent, and doubles each distance.
    ensure!(
        (last - LN_2).abs() < 0.02,
        "wrong answer: the exponent at r = 4 is {last}, not {LN_2}"
    );
    match satin::fence() {
        Ok(fence) => fence.publish(&cli.out, &table)?,
        Err(why @ NoFence::NoStore) => {
            eprintln!(
                "written without a fence, as nothing would keep a second `main` from it: {why}"
            );
            fs::write(&cli.out, &table).with_context(|| cli.out.display().to_string())?;
        }
        Err(why) => bail!("nothing is written: {why}"),
    }
    let chaotic = exponents.iter().filter(|exponent| **exponent > 0.0).count();
    println!(
        "{}: {} parameters, {chaotic} of them chaotic (ok)",
        cli.out.display(),
        cli.parameters
    );
    Ok(())
}

/// The parameter of that number, of so many between 3 and 4.
fn parameter(number: u32, of: u32) -> f64 {
    3.0 + f64::from(number) / f64::from(of - 1)
}

/// The exponents for the parameters from `from` on and below `to`.
#[satin::spawnable]
fn exponents(from: u32, to: u32, of: u32, steps: u32) -> Vec<f64> {
    if to - from == 1 {
        return vec![exponent(parameter(from, of), steps)];
    }
    let middle = from + (to - from) / 2;
    let mut low = exponents(from, middle, of, steps);
    let high = exponents(middle, to, of, steps);
    satin::sync!();
    low.extend(high);
    low
}

/// How fast two neighbours part: the mean logarithm of the map's slope.
fn exponent(r: f64, steps: u32) -> f64 {
    let mut x = 0.3;
    for _ in 0..TRANSIENT {
        x = r * x * (1.0 - x);
    }
    let mut sum = 0.0;
    for _ in 0..steps {
        x = r * x * (1.0 - x);
        sum += (r * (1.0 - 2.0 * x)).abs().max(f64::MIN_POSITIVE).ln();
    }
    sum / f64::from(steps)
}
