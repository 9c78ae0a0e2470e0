//! The sort that came with Cilk: merge sort in place with a buffer, whose merges are parallel too (Akl and Santoro, "Optimal
//! parallel merging and sorting without memory conflicts", 1987; Blumofe et al., "Cilk", 1995).
//!
//! Shows a job that lends disjoint parts of two slices to its children, waits for them by `sync!()`, and lends the same memory
//! again in other parts. To another machine a job takes its part of both slices, and brings it back.

mod common;

use clap::Parser;
use common::Mode;
use common::random::Random;
use common::sorted::Checksum;

/// Up to this length numbers are sorted, or merged, in one go: 32 KiB of them, what fits the first cache.
const SMALL: usize = 4096;

/// Sorts N random numbers in place by parallel merges
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  cilksort\n  cilksort 1000000 --seed 7\n  cilksort 50000000 --compare"
)]
struct Cli {
    /// How many numbers
    #[arg(default_value_t = 20_000_000)]
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
        || {
            let numbers: Vec<u64> = Random::new(cli.seed).take(cli.n).collect();
            (numbers, vec![0; cli.n])
        },
        |(mut numbers, mut buffer)| {
            cilksort(&mut numbers, &mut buffer);
            numbers
        },
        |(mut numbers, mut buffer)| {
            satin::seq!(cilksort(&mut numbers, &mut buffer));
            numbers
        },
        |sorted| expected.check(sorted),
    )?;
    println!(
        "cilksort({}) in order, checksum {expected:016x}",
        run.answer.len()
    );
    run.report();
    Ok(())
}

/// Sorts the numbers. The buffer is as long; nobody cares about what is in it, before or after.
#[satin::spawnable]
fn cilksort(numbers: &mut [u64], buffer: &mut [u64]) {
    if numbers.len() <= SMALL {
        numbers.sort_unstable();
        return;
    }
    let (half, quarter) = (numbers.len() / 2, numbers.len() / 4);

    let (front, back) = numbers.split_at_mut(half);
    let (a, b) = front.split_at_mut(quarter);
    let (c, d) = back.split_at_mut(quarter);
    let (front_buffer, back_buffer) = buffer.split_at_mut(half);
    let (a_buffer, b_buffer) = front_buffer.split_at_mut(quarter);
    let (c_buffer, d_buffer) = back_buffer.split_at_mut(quarter);
    cilksort(a, a_buffer);
    cilksort(b, b_buffer);
    cilksort(c, c_buffer);
    cilksort(d, d_buffer);
    satin::sync!();

    satin::spawn!(merge(a, b, front_buffer));
    satin::spawn!(merge(c, d, back_buffer));
    satin::sync!();

    satin::spawn!(merge(front_buffer, back_buffer, numbers));
}

/// Merges two sorted slices into a third, which is as long as both together.
#[satin::spawnable]
fn merge(one: &[u64], other: &[u64], merged: &mut [u64]) {
    if merged.len() <= SMALL {
        merge_at_once(one, other, merged);
        return;
    }
    let (long, short) = if one.len() < other.len() {
        (other, one)
    } else {
        (one, other)
    };
    // The middle of the longer slice divides the shorter one.
    let middle = long.len() / 2;
    let place = short.partition_point(|number| *number < long[middle]);
    let (lower, upper) = merged.split_at_mut(middle + place);
    merge(&long[..middle], &short[..place], lower);
    merge(&long[middle..], &short[place..], upper);
}

fn merge_at_once<'a>(mut one: &'a [u64], mut other: &'a [u64], merged: &mut [u64]) {
    for place in merged {
        let from = match (one.first(), other.first()) {
            (Some(number), Some(number_of_other)) if number > number_of_other => &mut other,
            (Some(_), _) => &mut one,
            (None, _) => &mut other,
        };
        *place = from[0];
        *from = &from[1..];
    }
}
