//! Fibonacci numbers, written as the one expression of the textbook.
//!
//! Shows that a `sync!()` need not be written: both calls of an expression are spawned, and it waits for both.

mod common;

use anyhow::ensure;
use clap::Parser;
use common::Mode;

/// Fibonacci numbers as one expression, without a word about parallelism
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  fib_expression\n  fib_expression 35 --compare\n  fib_expression 44 --threads 4"
)]
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
    fib(n - 1) + fib(n - 2)
}

/// The same number in `n` steps.
fn fib_iterative(n: u32) -> u64 {
    (0..n)
        .fold((0, 1), |(a, b): (u64, u64), _| (b, a.wrapping_add(b)))
        .0
}
