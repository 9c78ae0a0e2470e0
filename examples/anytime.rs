//! The best that a search has found when its time is over: which of many numbers takes the most steps of Collatz's rule (half of an even
//! number, three times an odd one plus one) until it is 1.
//!
//! Shows a call with a time limit, whose best is in a bound, and that the pool goes on with the next call.

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use satin::MaxWith;

satin::bound! {
    /// The most steps, and the number that takes them.
    static LONGEST: MaxWith<u32, u64>;
}

/// Numbers that one job looks at: some ten milliseconds. Too few: the spawns cost more than the work. Too many: a job is long in noticing that
/// it is not wanted any more.
const GRAIN: u64 = 1 << 15;

/// Finds the number that takes the most steps of Collatz's rule, in the time that there is
#[derive(Parser)]
#[command(after_help = "Examples:
  anytime
  anytime --within 10s
  anytime --below-power 22  # 4 million numbers: all of them in a second or two")]
struct Cli {
    /// Time for the search
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = seconds)]
    within: Duration,
    /// Looks at the numbers below this power of two
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=48))]
    below_power: u32,
    #[command(flatten)]
    satin: satin::Args,
}

/// A number of seconds, such as `2` or `0.5s`.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches('s').parse().ok();
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.ok_or_else(|| "expected a number of seconds such as 2s".into())
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let since = Instant::now();
    let below = 1 << cli.below_power;
    let outcome = satin::run_timeout(cli.within, || longest(1, below));
    let took = since.elapsed();
    let (steps, number) = match outcome {
        Ok(best) => {
            println!("all numbers below {below}");
            best
        }
        Err(late) => {
            println!("{late}");
            println!(
                "stopped {:.0} ms after that",
                (took - late.after).as_secs_f64() * 1e3
            );
            LONGEST.get().unwrap_or((0, 1))
        }
    };
    ensure!(
        steps_of(number) == steps,
        "wrong answer: {number} takes {} steps, not {steps}",
        steps_of(number)
    );
    println!("{number} takes {steps} steps, the most so far");
    // Known: N. J. A. Sloane, the sequence A006877.
    let (steps, number) = longest(1, 100_000);
    ensure!(
        (steps, number) == (350, 77_031),
        "wrong answer: of the numbers below 100,000 it is not {number}"
    );
    println!("of those below 100000: {number}, {steps} steps (ok)");
    Ok(())
}

/// The most steps, and the smallest number that takes them, of those from `from` on and below `to`.
#[satin::spawnable]
fn longest(from: u64, to: u64) -> (u32, u64) {
    if to - from <= GRAIN {
        let best = longest_here(from, to);
        LONGEST.offer(best.0, best.1);
        return best;
    }
    let middle = from + (to - from) / 2;
    let low = longest(from, middle);
    let high = longest(middle, to);
    satin::sync!();
    if high.0 > low.0 { high } else { low }
}

fn longest_here(from: u64, to: u64) -> (u32, u64) {
    let mut best = (0, 1);
    for number in from..to {
        let steps = steps_of(number);
        if steps > best.0 {
            best = (steps, number);
        }
    }
    best
}

fn steps_of(number: u64) -> u32 {
    let (mut now, mut steps) = (u128::from(number), 0);
    while now > 1 {
        now = if now % 2 == 0 { now / 2 } else { 3 * now + 1 };
        steps += 1;
    }
    steps
}
