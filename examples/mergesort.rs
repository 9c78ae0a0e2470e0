//! Merge sort of random numbers, by value.
//!
//! Shows arguments and results that are large: each half is moved into its job, and the sorted half is moved back. On one
//! machine that costs nothing; to another machine all numbers travel, there and back. Compare `quicksort`, which lends slices.

mod common;

use clap::Parser;
use common::Mode;
use common::random::Random;
use common::sorted::Checksum;

/// Up to this length numbers are sorted in one go: 32 KiB of them, what fits the first cache.
const SMALL: usize = 4096;

/// Sorts N random numbers, which are moved from job to job
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  mergesort\n  mergesort 100000 --seed 7\n  mergesort 20000000 --compare"
)]
struct Cli {
    /// How many numbers
    #[arg(default_value_t = 2_000_000)]
    n: usize,
    /// Where the pseudo-random sequence starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    let expected = Checksum::of(Random::new(cli.seed).take(cli.n));
    let run = cli.mode.measure(
        || Random::new(cli.seed).take(cli.n).collect::<Vec<_>>(),
        |numbers| mergesort(numbers),
        |numbers| satin::seq!(mergesort(numbers)),
        |sorted| expected.check(sorted),
    )?;
    println!(
        "mergesort({}) in order, checksum {expected:016x}",
        run.answer.len()
    );
    run.report();
    Ok(())
}

#[satin::spawnable]
fn mergesort(mut numbers: Vec<u64>) -> Vec<u64> {
    if numbers.len() <= SMALL {
        numbers.sort_unstable();
        return numbers;
    }
    let back = numbers.split_off(numbers.len() / 2);
    let front = mergesort(numbers);
    let back = mergesort(back);
    merge(&front, &back)
}

/// All numbers of two sorted slices, in order.
fn merge(mut one: &[u64], mut other: &[u64]) -> Vec<u64> {
    let mut merged = Vec::with_capacity(one.len() + other.len());
    while let (Some((first, rest)), Some((first_other, rest_other))) =
        (one.split_first(), other.split_first())
    {
        if first <= first_other {
            merged.push(*first);
            one = rest;
        } else {
            merged.push(*first_other);
            other = rest_other;
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    merged
}
