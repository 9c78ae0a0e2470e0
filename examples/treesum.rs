//! The sum over a tree of random shape, with some work at each of its nodes.
//!
//! Shows two ways to give a tree to jobs: each subtree is moved into the job that sums it up; or, with `--shared`, the tree is one
//! `Shared` value, which each machine fetches once, and a job gets the place of its subtree.

mod common;

use std::hint::black_box;
use std::num::Wrapping;

use anyhow::ensure;
use clap::Parser;
use common::Mode;
use common::random::Random;
use satin::Shared;
use serde::{Deserialize, Serialize};

/// Sums up a random tree of N nodes
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  treesum\n  treesum --shared\n  treesum 10000 --seed 7\n  treesum 1000000 --work 100 --compare"
)]
struct Cli {
    /// Nodes of the tree
    #[arg(default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Steps of arithmetic at each node, of about a nanosecond each
    #[arg(long, default_value_t = 1500)]
    work: u32,
    /// The tree is a shared value, of which jobs get a place
    #[arg(long)]
    shared: bool,
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
    let work = cli.work;
    let tree = || Tree::random(cli.n, &mut Random::new(cli.seed));
    let expected = tree().expected(work);
    let check = |sum: &Wrapping<u64>| {
        ensure!(
            *sum == expected,
            "wrong answer: {sum}, but the sum is {expected}"
        );
        Ok(())
    };
    let run = if cli.shared {
        cli.mode.measure(
            || Shared::new(tree().in_one_piece()),
            |tree| sum_at(&tree, 0, work),
            |tree| satin::seq!(sum_at(&tree, 0, work)),
            check,
        )?
    } else {
        cli.mode.measure(
            tree,
            |tree| sum(tree, work),
            |tree| satin::seq!(sum(tree, work)),
            check,
        )?
    };
    println!("treesum({}) = {} (ok)", cli.n, run.answer);
    run.report();
    Ok(())
}

/// The sum of a tree of its own.
#[satin::spawnable]
fn sum(tree: Tree, work: u32) -> Wrapping<u64> {
    let mut total = worked(tree.value, work);
    for child in tree.children {
        total += sum(child, work);
    }
    total
}

/// The sum of the subtree at that place.
#[satin::spawnable]
fn sum_at(nodes: &Shared<Vec<Node>>, place: u32, work: u32) -> Wrapping<u64> {
    let node = &nodes[place as usize];
    let mut total = worked(node.value, work);
    for child in node.children.into_iter().flatten() {
        total += sum_at(nodes, child, work);
    }
    total
}

/// The multiplier and the increment of the work (Knuth's MMIX).
const FACTOR: u64 = 6_364_136_223_846_793_005;
const STEP: u64 = 1_442_695_040_888_963_407;

/// The value after so many steps of a linear congruential generator, each of which waits for the one before.
fn worked(value: u64, steps: u32) -> Wrapping<u64> {
    let factor = Wrapping(black_box(FACTOR));
    (0..steps).fold(Wrapping(value), |value, _| value * factor + Wrapping(STEP))
}

/// A tree whose jobs take their subtrees with them.
#[derive(Serialize, Deserialize)]
struct Tree {
    value: u64,
    children: Vec<Tree>,
}

impl Tree {
    /// The shape of a binary search tree into which numbers were put in random order: some fifty levels for a million.
    fn random(nodes: u32, random: &mut Random) -> Self {
        let below = nodes as usize - 1;
        let left = random.below(below + 1);
        let children = [left, below - left].into_iter().filter(|nodes| *nodes > 0);
        Self {
            value: random.next().expect("it is endless"),
            children: children
                .map(|nodes| Self::random(nodes as u32, random))
                .collect(),
        }
    }

    fn values(&self) -> (Wrapping<u64>, Wrapping<u64>) {
        let own = (Wrapping(1), Wrapping(self.value));
        let children = self.children.iter().map(Self::values);
        children.fold(own, |(nodes, sum), (more, sum_of_more)| {
            (nodes + more, sum + sum_of_more)
        })
    }

    /// The sum of the worked values, without the work: n steps in a row are one step with another factor and another increment,
    /// found by squaring (Brown, "Random number generation with arbitrary strides", 1994).
    fn expected(&self, mut steps: u32) -> Wrapping<u64> {
        let (mut factor, mut step) = (Wrapping(FACTOR), Wrapping(STEP));
        let (mut factor_of_all, mut step_of_all) = (Wrapping(1), Wrapping(0));
        while steps > 0 {
            if steps % 2 == 1 {
                factor_of_all *= factor;
                step_of_all = step_of_all * factor + step;
            }
            step *= factor + Wrapping(1);
            factor *= factor;
            steps /= 2;
        }
        let (nodes, sum) = self.values();
        sum * factor_of_all + nodes * step_of_all
    }

    /// The same tree as nodes that name their children by places; the root comes first.
    fn in_one_piece(self) -> Vec<Node> {
        let mut nodes = Vec::new();
        self.append_to(&mut nodes);
        nodes
    }

    fn append_to(self, nodes: &mut Vec<Node>) -> u32 {
        let place = nodes.len();
        nodes.push(Node {
            value: self.value,
            children: [None; 2],
        });
        for (number, child) in self.children.into_iter().enumerate() {
            nodes[place].children[number] = Some(child.append_to(nodes));
        }
        place as u32
    }
}

/// A node of a tree in one piece, with the places of its children.
#[derive(Serialize, Deserialize)]
struct Node {
    value: u64,
    children: [Option<u32>; 2],
}
