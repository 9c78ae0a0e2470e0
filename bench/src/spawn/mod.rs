//! `bench spawn`: the cost of a spawn, and the gain of a second worker.
//!
//! Five programs ([`Case`]), each written four times ([`Impl`]). All implementations of a case run in one process,
//! interleaved: a round runs each of them once in turn, so that a machine that changes its speed changes it for
//! all of them. Medians over the rounds are what counts; every answer is checked.

mod fib;
pub mod flat;
mod nqueens;
mod quicksort;
mod report;
mod tree;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use crate::jsonl;
use crate::pools::{Pools, STACK_BYTES};
use report::Row;

/// The cost of a spawn: programs that spawn as often as they can, on 1, 2, .. threads
///
/// Prints a table, and under it the project's requirements with pass or miss. Leave the machine alone meanwhile:
/// with a second busy process the figures for all of its cores mean nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Cases to measure [default: all]
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',')]
    cases: Vec<CaseName>,
    /// Implementations to measure; without `seq` there are no ratios [default: all]
    #[arg(long = "impl", value_name = "NAME", value_delimiter = ',')]
    impls: Vec<Impl>,
    /// Threads per pool, one measurement each (`seq` is measured once, on one thread)
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,2"
    )]
    threads: Vec<NonZeroUsize>,
    /// Rounds; each runs every implementation of a case once, in turn
    #[arg(long, value_name = "N", default_value = "9")]
    rounds: NonZeroUsize,
    /// Also write the figures to FILE, as JSON Lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    sizes: Sizes,
}

const EXAMPLES: &str = "\
Examples:
  bench spawn
  bench spawn --case fib --impl seq,satin --rounds 21
  bench spawn --threads 1,2,4,8 --json spawn.jsonl
  bench spawn --fib 25 --queens 8 --tree-layers 12 --sort-log2 12 --leaves 8";

/// How large the programs are. The requirements are meant for the defaults.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Problem sizes")]
pub struct Sizes {
    /// Index of the Fibonacci number
    #[arg(long, value_name = "N", default_value = "37", value_parser = size().range(..=50))]
    fib: u32,
    /// Queens on a board of N by N
    #[arg(long, value_name = "N", default_value = "12", value_parser = size().range(1..=16))]
    queens: u32,
    /// Layers of the complete binary tree: 2^N - 1 nodes
    #[arg(long, value_name = "N", default_value = "21", value_parser = size().range(1..=28))]
    tree_layers: u32,
    /// Sort 2^N numbers
    #[arg(long, value_name = "N", default_value = "22", value_parser = size().range(..=28))]
    sort_log2: u32,
    /// Leaves of the flat loop, 2 ms each
    #[arg(long, value_name = "N", default_value = "256", value_parser = size().range(1..))]
    leaves: u32,
}

fn size() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new()
}

/// The names of the cases, as the command line and the results have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CaseName {
    /// Fibonacci numbers, no cut-off: nothing but calls
    Fib,
    /// All solutions of N queens by bit masks, a spawn in a loop, no cut-off
    Nqueens,
    /// The sum of a tree of boxes, a spawn per node
    Tree,
    /// Quicksort in place, insertion sort for short slices
    Quicksort,
    /// Coarse leaves of 2 ms, spawned in one loop
    Flat,
}

/// The implementations of every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Impl {
    /// A plain Rust function
    Seq,
    /// The same Rust function with `#[satin::spawnable]`
    Satin,
    /// `rayon::join`, parallel iterators for loops
    Rayon,
    /// The function with `chili::Scope::join`
    Chili,
}

/// A program in four implementations of the same algorithm, on the same data.
///
/// The four return an answer that [`check`](Case::check) then judges; only they are timed. An implementation
/// hides its inputs from the optimizer with `black_box`.
pub trait Case: Send {
    /// The program and its size, for people.
    fn title(&self) -> String;

    /// How often a run calls the function that is spawned, exactly: the number of jobs of a program that spawns
    /// every call.
    fn calls(&self) -> u64;

    /// Makes fresh input, before every run and outside of its time.
    fn prepare(&mut self) {}

    /// Without any library, on this thread.
    fn seq(&mut self) -> u64;

    /// Runs it by spawnable functions; called where they go to the pool that is measured.
    fn satin(&mut self) -> u64;

    /// Runs it by rayon, called on a thread of the pool that is measured.
    fn rayon(&mut self) -> u64;

    /// Runs it by chili, called on a thread of the pool that is measured.
    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64;

    /// Whether the last run, which returned `answer`, did its work.
    fn check(&self, answer: u64) -> bool;
}

/// Runs the bench on a thread with a stack as large as that of the pools' threads.
pub fn run(args: &Args) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("bench".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || measure_all(args))
            .context("cannot start the thread that measures")?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn measure_all(args: &Args) -> anyhow::Result<()> {
    let pools = args
        .threads
        .iter()
        .map(|&threads| Pools::new(threads))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let variants = variants(&selected(&args.impls), &pools);

    let mut rows = Vec::new();
    for name in selected(&args.cases) {
        let mut case = name.build(&args.sizes);
        eprintln!(
            "{}: {} rounds of {} runs",
            case.title(),
            args.rounds,
            variants.len()
        );
        let times = measure(&mut *case, &variants, args.rounds.get())?;
        rows.extend(report::rows(name, &*case, &variants, &times));
    }

    println!("{}", report::table(&rows));
    print!("{}", report::requirements(&rows));
    args.json
        .as_deref()
        .map_or(Ok(()), |path| jsonl::write::<Row>(path, &rows))
}

/// The values that were asked for, all if none was, in the order of declaration and without repetitions.
fn selected<T: ValueEnum + PartialEq>(asked: &[T]) -> Vec<T> {
    T::value_variants()
        .iter()
        .filter(|value| asked.is_empty() || asked.contains(value))
        .cloned()
        .collect()
}

impl CaseName {
    fn build(self, sizes: &Sizes) -> Box<dyn Case> {
        match self {
            Self::Fib => Box::new(fib::Fib::new(sizes.fib)),
            Self::Nqueens => Box::new(nqueens::Nqueens::new(sizes.queens)),
            Self::Tree => Box::new(tree::TreeSum::new(sizes.tree_layers)),
            Self::Quicksort => Box::new(quicksort::Quicksort::new(sizes.sort_log2)),
            Self::Flat => Box::new(flat::Flat::new(sizes.leaves)),
        }
    }
}

/// An implementation, and where it runs: one line of the table per case.
pub struct Variant<'p> {
    implementation: Impl,
    /// The pools of the libraries; `None` for [`Impl::Seq`] alone.
    pools: Option<&'p Pools>,
}

/// Every implementation with every pool size; the sequential one is first, and there once.
fn variants<'p>(impls: &[Impl], pools: &'p [Pools]) -> Vec<Variant<'p>> {
    let mut variants = Vec::new();
    for &implementation in impls {
        if implementation == Impl::Seq {
            variants.push(Variant {
                implementation,
                pools: None,
            });
        } else {
            variants.extend(pools.iter().map(|pools| Variant {
                implementation,
                pools: Some(pools),
            }));
        }
    }
    variants
}

impl Variant<'_> {
    fn threads(&self) -> usize {
        self.pools.map_or(1, Pools::threads)
    }

    fn run(&self, case: &mut dyn Case) -> u64 {
        let Some(pools) = self.pools else {
            return case.seq();
        };
        match self.implementation {
            Impl::Seq => case.seq(),
            Impl::Satin => pools.satin(|| case.satin()),
            Impl::Rayon => pools.rayon(|| case.rayon()),
            Impl::Chili => pools.chili(|scope| case.chili(scope)),
        }
    }
}

/// The times of every round, per variant; fails at the first wrong answer.
fn measure(
    case: &mut dyn Case,
    variants: &[Variant<'_>],
    rounds: usize,
) -> anyhow::Result<Vec<Vec<Duration>>> {
    let mut times = vec![Vec::with_capacity(rounds); variants.len()];
    for _ in 0..rounds {
        for (variant, times) in variants.iter().zip(&mut times) {
            case.prepare();
            let start = Instant::now();
            let answer = variant.run(case);
            times.push(start.elapsed());
            ensure!(
                case.check(answer),
                "{} by {:?} on {} thread(s) is wrong (it returned {answer}): its times mean nothing",
                case.title(),
                variant.implementation,
                variant.threads(),
            );
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `measure` fails where an answer is wrong.
    fn every_answer_is_right(sizes: &Sizes) {
        let pools = [1, 2].map(|n| Pools::new(NonZeroUsize::new(n).unwrap()).unwrap());
        let variants = variants(Impl::value_variants(), &pools);
        for name in CaseName::value_variants() {
            let mut case = name.build(sizes);
            let times = measure(&mut *case, &variants, 2).unwrap();
            let rows = report::rows(*name, &*case, &variants, &times);
            assert_eq!(
                rows.len(),
                7,
                "seq once, the others on one and on two threads"
            );
        }
    }

    #[test]
    fn small_programs() {
        every_answer_is_right(&Sizes {
            fib: 20,
            queens: 8,
            tree_layers: 10,
            sort_log2: 12,
            leaves: 5,
        });
    }

    #[test]
    fn smallest_programs() {
        every_answer_is_right(&Sizes {
            fib: 0,
            queens: 1,
            tree_layers: 1,
            sort_log2: 0,
            leaves: 1,
        });
    }

    #[test]
    fn calls_are_counted_exactly() {
        assert_eq!(fib::Fib::new(5).calls(), 15);
        assert_eq!(nqueens::Nqueens::new(4).calls(), 17);
        assert_eq!(tree::TreeSum::new(3).calls(), 7);
        assert_eq!(quicksort::Quicksort::new(4).calls(), 1);
    }
}
