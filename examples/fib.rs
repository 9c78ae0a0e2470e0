//! Fibonacci numbers by the definition: no work but calls, so what it measures is the price of a spawn.
//!
//! Shows the plainest use of Satin: two spawns, an explicit `sync!()`, and no cut-off for small arguments.

mod common;

use anyhow::ensure;
use clap::Parser;
use common::Mode;

/// Fibonacci numbers by the definition: one spawn per call and nothing else
#[derive(Parser)]
#[command(after_help = "Examples:\n  fib\n  fib 35 --compare\n  fib 44 --threads 4")]
struct Cli {
    /// Which Fibonacci number
    #[arg(default_value_t = 42, value_parser = clap::value_parser!(u32).range(..=93))]
    n: u32,
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
    let n = cli.n;
    let expected = fib_iterative(n);
    let run = cli.mode.measure(
        || (),
        |()| fib(n),
        |()| satin::seq!(fib(n)),
        |&answer| {
            ensure!(
                answer == expected,
                "wrong answer: fib({n}) = {answer}, but it is {expected}"
            );
            Ok(())
        },
    )?;
    println!("fib({n}) = {}", run.answer);
    run.report();
    Ok(())
}

#[satin::spawnable]
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let x = fib(n - 1);
    let y = fib(n - 2);
    satin::sync!();
    x + y
}

/// The same number in `n` steps.
fn fib_iterative(n: u32) -> u64 {
    (0..n)
        .fold((0, 1), |(a, b): (u64, u64), _| (b, a.wrapping_add(b)))
        .0
}
