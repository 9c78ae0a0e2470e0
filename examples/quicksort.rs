//! Hoare's quicksort of random numbers.
//!
//! Shows mutable borrows: the halves are lent to the spawned calls, not copied, and given back at the end of the function,
//! where Rust sees that nothing can touch them before. Slices that fit a fast cache are left to the standard library.

mod common;

use clap::Parser;
use common::Mode;
use common::random::Random;
use common::sorted::Checksum;

/// Below this length a slice is sorted in one go: 32 KiB of numbers, what fits the first cache.
const SMALL: usize = 4096;

/// Sorts N random numbers in place
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  quicksort\n  quicksort 1000000 --seed 7\n  quicksort 50000000 --compare"
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
        || Random::new(cli.seed).take(cli.n).collect::<Vec<_>>(),
        |mut numbers| {
            quicksort(&mut numbers);
            numbers
        },
        |mut numbers| {
            satin::seq!(quicksort(&mut numbers));
            numbers
        },
        |sorted| expected.check(sorted),
    )?;
    println!(
        "quicksort({}) in order, checksum {expected:016x}",
        run.answer.len()
    );
    run.report();
    Ok(())
}

#[satin::spawnable]
fn quicksort(numbers: &mut [u64]) {
    if numbers.len() <= SMALL {
        numbers.sort_unstable();
        return;
    }
    let middle = partition(numbers);
    let (left, right) = numbers.split_at_mut(middle);
    quicksort(left);
    quicksort(right);
}

/// Moves numbers up to the pivot to the front and numbers from the pivot on to the back. Returns where the back begins; neither
/// part is empty. The pivot is the median of three, and numbers equal to it go to both sides, so neither order nor
/// repetition in the input makes it slow.
fn partition(numbers: &mut [u64]) -> usize {
    let last = numbers.len() - 1;
    let mut three = [numbers[0], numbers[last / 2], numbers[last]];
    three.sort_unstable();
    let pivot = three[1];
    let (mut front, mut back) = (0, last);
    loop {
        while numbers[front] < pivot {
            front += 1;
        }
        while numbers[back] > pivot {
            back -= 1;
        }
        if front >= back {
            return front.max(1);
        }
        numbers.swap(front, back);
        front += 1;
        back -= 1;
    }
}
