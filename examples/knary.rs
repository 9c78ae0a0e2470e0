//! A complete tree of given depth and width whose leaves do a given amount of work: the synthetic program by which
//! work-stealing systems have been measured since Cilk (Blumofe et al., "Cilk: an efficient multithreaded runtime system", 1995).
//!
//! Shows spawns in an iterator chain. With short leaves it asks what a spawn costs; with long ones, whether all workers find
//! something to do; with `--sleep`, how many workers a node can have without needing cores for them; with `--count`, how many
//! leaves were done twice where machines died; with `--flow`, what the same costs as a flow; with `--tasks`, what it costs that a
//! flow survives the death of its nodes.

mod common;

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use common::Mode;
use satin::{Flow, Handle, Many, flow, many, spawnable, task};
use serde::{Deserialize, Serialize};

/// A recursion that no stack is too small for.
const DEPTH_MAX: i64 = 10_000;

/// Counts the leaves of a complete tree, working a while at each
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  knary\n  knary 18 2 1 --compare\n  knary 3 10 1000 --sleep --threads 100\n  knary 4 7 1000 --flow\n  knary 6 5 1000 --tasks 1500"
)]
struct Cli {
    /// Levels below the root
    #[arg(default_value_t = 6, value_parser = clap::value_parser!(u32).range(..=DEPTH_MAX))]
    depth: u32,
    /// Children of every inner node
    #[arg(default_value_t = 6)]
    width: u32,
    /// Microseconds that a leaf takes
    #[arg(default_value_t = 40)]
    leaf: u64,
    /// Leaves only wait, and leave the processor to others
    #[arg(long, conflicts_with = "steps")]
    sleep: bool,
    /// Leaves compute so many steps, however long they take: the same jobs in every run, also where another master runs `main` again
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Append a byte to this file after each leaf, and each task of --tasks, on whatever node: its length is the number of those that were done
    #[arg(long, value_name = "FILE")]
    count: Option<PathBuf>,
    /// As a flow: the leaves are tasks, and so are the sums
    #[arg(long)]
    flow: bool,
    /// As a flow of N tasks, in a job of its own: the first N nodes of the tree, level by level, each of which works as a leaf does and
    /// reads what its children have made; DEPTH is not used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "flow")]
    tasks: Option<u32>,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(file) = &cli.count {
        open_count(file)?;
    }
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let (depth, width) = (cli.depth, cli.width);
    let (expected, counted) = match cli.tasks {
        Some(tasks) => (u64::from(tasks), "tasks"),
        None => {
            let leaves = u64::from(width).checked_pow(depth).with_context(|| {
                format!("{width}^{depth} leaves are too many: choose a smaller DEPTH or WIDTH")
            })?;
            (leaves, "leaves")
        }
    };
    ensure!(
        cli.tasks.is_none() || width > 0,
        "--tasks: a tree of several nodes has a WIDTH of 1 or more"
    );
    let leaf = match cli.steps {
        _ if cli.sleep => Leaf::Sleep { micros: cli.leaf },
        Some(rounds) => Leaf::Compute { rounds },
        None => Leaf::computing(cli.leaf),
    };
    let run = cli.mode.measure(
        || leaf,
        |leaf| match cli.tasks {
            Some(nodes) => working_tree(nodes, width, leaf),
            None if cli.flow => flow!(|g| {
                let leaves = tasks(g, depth, width, leaf);
                g.take(leaves)
            }),
            None => knary(depth, width, leaf),
        },
        |leaf| match cli.tasks {
            Some(nodes) => satin::seq!(working_tree(nodes, width, leaf)),
            None => satin::seq!(knary(depth, width, leaf)),
        },
        |&answer| {
            ensure!(
                answer == expected,
                "wrong answer: {answer} {counted}, but there are {expected}"
            );
            Ok(())
        },
    )?;
    match cli.steps {
        Some(steps) => println!(
            "knary({depth}, {width}) = {} {counted} of {steps} steps",
            run.answer
        ),
        None => println!(
            "knary({depth}, {width}) = {} {counted} of {} us",
            run.answer, cli.leaf
        ),
    }
    if let (Leaf::Compute { rounds }, None) = (leaf, cli.steps) {
        println!("the same leaves again: --steps {rounds}");
    }
    run.report();
    Ok(())
}

#[spawnable]
fn knary(depth: u32, width: u32, leaf: Leaf) -> u64 {
    if depth == 0 {
        leaf.work();
        count();
        return 1;
    }
    (0..width).map(|_| knary(depth - 1, width, leaf)).sum()
}

/// The same tree of tasks: the handle names its number of leaves.
fn tasks<'g>(g: &Flow<'g>, depth: u32, width: u32, leaf: Leaf) -> Handle<'g, u64> {
    if depth == 0 {
        return task!(g, knary(0, width, leaf));
    }
    let parts: Vec<_> = (0..width)
        .map(|_| tasks(g, depth - 1, width, leaf))
        .collect();
    task!(g, sum(many(parts)))
}

#[spawnable]
fn sum(parts: &Many<u64>) -> u64 {
    parts.iter().sum()
}

/// The first nodes of a tree, level by level, as tasks: the children of node `n` are node `n * width + 1` and the following. A job
/// with an id of its own, so the results of its tasks are found again when its node has died.
#[spawnable]
fn working_tree(nodes: u32, width: u32, leaf: Leaf) -> u64 {
    let (nodes, width) = (nodes as usize, width as usize);
    flow!(|g| {
        // From the last node back, so children come first.
        let mut made = Vec::with_capacity(nodes);
        for node in (0..nodes).rev() {
            let first = (node * width + 1).min(nodes);
            let end = (first + width).min(nodes);
            let children: Vec<_> = made[nodes - end..nodes - first].to_vec();
            made.push(task!(g, node_of_tree(many(children), leaf)));
        }
        g.take(made[nodes - 1])
    })
}

/// A task that works: the number of nodes below it, and itself.
#[spawnable]
fn node_of_tree(children: &Many<u64>, leaf: Leaf) -> u64 {
    leaf.work();
    count();
    1 + children.iter().sum::<u64>()
}

/// The file of `--count`, in every process of the pool.
static COUNT: OnceLock<File> = OnceLock::new();

fn open_count(path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    COUNT.get_or_init(|| file);
    Ok(())
}

/// A leaf or a task of `--tasks` is done. Bytes of several processes add up, as the file is open for appending; the bytes of a process stay when it is killed.
fn count() {
    if let Some(mut file) = COUNT.get()
        && let Err(error) = file.write_all(b".")
    {
        panic!("cannot write to the file of --count: {error}");
    }
}

/// What a leaf does. An amount of arithmetic rather than a time, so that it is the same work on every machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Leaf {
    Compute { rounds: u64 },
    Sleep { micros: u64 },
}

impl Leaf {
    /// Arithmetic that takes this machine about so many microseconds.
    fn computing(micros: u64) -> Self {
        const SAMPLE: u64 = 1 << 20;
        const TRIES: usize = 5;
        let fastest = (0..TRIES)
            .map(|_| {
                let start = Instant::now();
                compute(SAMPLE);
                start.elapsed()
            })
            .min()
            .unwrap_or_default();
        let rounds = micros as f64 * SAMPLE as f64 / (fastest.as_secs_f64() * 1e6);
        Self::Compute {
            rounds: rounds as u64,
        }
    }

    fn work(self) {
        match self {
            Self::Compute { rounds } => compute(rounds),
            Self::Sleep { micros } => thread::sleep(Duration::from_micros(micros)),
        }
    }
}

/// So many steps of Marsaglia's xorshift, each of which waits for the one before.
fn compute(rounds: u64) {
    let mut x: u64 = black_box(0x2545_f491_4f6c_dd1d);
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}
