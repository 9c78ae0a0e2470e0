//! Unbalanced Tree Search: counts the nodes of a tree that nobody can foresee, because the hash of a node decides how many
//! children it has (Olivier et al., "UTS: an unbalanced tree search benchmark", 2006).
//!
//! Shows what work stealing is for. Some subtrees are a million times larger than their siblings, no division of the work up
//! front can be right, and a recursion 17,844 levels deep (tree T3L) is nothing special.

mod common;

use std::f64::consts::TAU;
use std::ops::AddAssign;

use anyhow::ensure;
use clap::{Parser, ValueEnum};
use common::Mode;
use common::progress::{Counter, Spinner};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// Nodes visited, in steps of [`SAMPLE`]: a node costs a hash, and a shared counter touched at each would cost as much.
static VISITED: Counter = Counter::new();

/// One node in so many is counted for the line of progress.
const SAMPLE: u64 = 4096;

/// Geometric trees have no node with more children.
const MAX_CHILDREN: u32 = 100;

/// Counts the nodes of an unbalanced tree
#[derive(Parser)]
#[command(after_help = "Examples:
  uts                                  # the tree T1, 4 million nodes
  uts --tree T3 --compare
  uts --tree T3L                       # 111 million nodes, 17,844 levels deep
  uts -t geometric -a linear -d 12 -b 4 -r 7
  uts -t binomial -b 2000 -q 0.124 -m 8")]
struct Cli {
    /// One of the published trees, whose sizes are known
    #[arg(long)]
    tree: Option<Published>,
    #[command(flatten)]
    parameters: Parameters,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

/// A tree of one's own. The defaults are those of T1 and T3.
#[derive(clap::Args, Clone, Copy)]
struct Parameters {
    /// A tree of one's own: how many children a node has
    #[arg(short = 't', long = "type", conflicts_with = "tree")]
    kind: Option<Kind>,
    /// Geometric: how the expected number of children changes with the depth
    #[arg(short = 'a', long, requires = "kind", default_value = "fixed")]
    shape: Shape,
    /// Geometric: the depth D of the shape
    #[arg(short, long, requires = "kind", default_value_t = 10)]
    depth: u32,
    /// Children of the root; geometric: expected children
    #[arg(short, long, requires = "kind", default_value_t = 4.0)]
    branching: f64,
    /// Binomial: probability that a node has children
    #[arg(short = 'q', long, requires = "kind", default_value_t = 0.124875)]
    probability: f64,
    /// Binomial: children of a node that has any
    #[arg(short = 'm', long, requires = "kind", default_value_t = 8)]
    children: u32,
    /// Seed of the root
    #[arg(short = 'r', long, requires = "kind", default_value_t = 19)]
    seed: u32,
}

impl Parameters {
    /// # Errors
    /// A tree that would never end, or cannot be.
    fn tree(&self) -> anyhow::Result<Tree> {
        let Self {
            shape,
            depth,
            branching,
            probability,
            children,
            seed,
            kind,
        } = *self;
        ensure!(
            (0.0..=f64::from(u32::MAX)).contains(&branching),
            "--branching {branching} is not a number of children"
        );
        let kind = match kind {
            Some(Kind::Binomial) => {
                ensure!(
                    (0.0..=1.0).contains(&probability),
                    "--probability {probability} is not between 0 and 1"
                );
                ensure!(
                    probability * f64::from(children) < 1.0,
                    "the tree may be infinite: --probability times --children is {}, and must be less than 1",
                    probability * f64::from(children)
                );
                TreeKind::Binomial {
                    probability,
                    children,
                }
            }
            Some(Kind::Geometric) | None => {
                ensure!(depth > 0, "--depth must be at least 1");
                TreeKind::Geometric { shape, depth }
            }
        };
        Ok(Tree {
            seed,
            branching,
            kind,
        })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// The root has BRANCHING children, others CHILDREN with probability PROBABILITY, else none
    #[value(alias = "0")]
    Binomial,
    /// The number of children follows a geometric distribution
    #[value(alias = "1")]
    Geometric,
}

/// How the expected number of children of a geometric tree, b at the root, changes down to depth D.
#[derive(Clone, Copy, Serialize, Deserialize, ValueEnum)]
enum Shape {
    /// Falls linearly to nothing at depth D
    #[value(alias = "0")]
    Linear,
    /// Rises and falls, and ends at depth 5 D
    #[value(alias = "2")]
    Cyclic,
    /// Stays the same down to depth D
    #[value(alias = "3")]
    Fixed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "verbatim")]
enum Published {
    #[value(alias = "t1")]
    T1,
    #[value(alias = "t2")]
    T2,
    #[value(alias = "t3")]
    T3,
    #[value(alias = "t5")]
    T5,
    #[value(alias = "t1l")]
    T1L,
    #[value(alias = "t3l")]
    T3L,
}

impl Published {
    /// The tree, and what the distribution of UTS says of it.
    fn tree(self) -> (Tree, Stats) {
        let geometric = |shape, depth, branching, seed| Tree {
            seed,
            branching,
            kind: TreeKind::Geometric { shape, depth },
        };
        let binomial = |probability, children, seed| Tree {
            seed,
            branching: 2000.0,
            kind: TreeKind::Binomial {
                probability,
                children,
            },
        };
        let stats = |nodes, depth, leaves| Stats {
            nodes,
            depth,
            leaves,
        };
        match self {
            Self::T1 => (
                geometric(Shape::Fixed, 10, 4.0, 19),
                stats(4_130_071, 10, 3_305_118),
            ),
            Self::T2 => (
                geometric(Shape::Cyclic, 16, 6.0, 502),
                stats(4_117_769, 81, 2_342_762),
            ),
            Self::T3 => (binomial(0.124875, 8, 42), stats(4_112_897, 1572, 3_599_034)),
            Self::T5 => (
                geometric(Shape::Linear, 20, 4.0, 34),
                stats(4_147_582, 20, 2_181_318),
            ),
            Self::T1L => (
                geometric(Shape::Fixed, 13, 4.0, 29),
                stats(102_181_082, 13, 81_746_377),
            ),
            Self::T3L => (
                binomial(0.200014, 5, 7),
                stats(111_345_631, 17_844, 89_076_904),
            ),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let (name, tree, known) = match (cli.tree, cli.parameters.kind) {
        (None, Some(_)) => ("custom tree".to_owned(), cli.parameters.tree()?, None),
        (published, _) => {
            let published = published.unwrap_or(Published::T1);
            let (tree, known) = published.tree();
            (format!("{published:?}"), tree, Some(known))
        }
    };
    let spinner = Spinner::start(|| VISITED.nodes());
    let run = cli.mode.measure(
        || VISITED.reset(),
        |()| search(&tree, tree.root()),
        |()| satin::seq!(search(&tree, tree.root())),
        |&found| {
            ensure!(
                known.is_none_or(|known| known == found),
                "wrong answer: found {found:?} in {name}, but there are {known:?}"
            );
            Ok(())
        },
    )?;
    drop(spinner);
    let Stats {
        nodes,
        depth,
        leaves,
    } = run.answer;
    let verdict = if known.is_some() {
        "ok"
    } else {
        "not checked: no known answer"
    };
    println!("{name}: {nodes} nodes, depth {depth}, {leaves} leaves ({verdict})");
    run.report();
    Ok(())
}

/// The tree below a node, itself included.
#[satin::spawnable]
fn search(tree: &Tree, node: Node) -> Stats {
    if node.is_sample() {
        VISITED.add(SAMPLE);
    }
    let children = tree.children(&node);
    let mut stats = Stats {
        nodes: 1,
        depth: node.depth,
        leaves: u64::from(children == 0),
    };
    for i in 0..children {
        stats += search(tree, node.child(i));
    }
    stats
}

/// What is counted. The sum of two has the depth of the deeper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Stats {
    nodes: u64,
    depth: u32,
    leaves: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.depth = self.depth.max(other.depth);
        self.leaves += other.leaves;
    }
}

/// A node is its hash, from which all below follows.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Node {
    state: [u8; 20],
    depth: u32,
}

impl Node {
    fn child(&self, i: u32) -> Self {
        let state = Sha1::new()
            .chain_update(self.state)
            .chain_update(i.to_be_bytes())
            .finalize()
            .into();
        Self {
            state,
            depth: self.depth + 1,
        }
    }

    /// The last word of the hash.
    fn word(&self) -> u32 {
        let [.., a, b, c, d] = self.state;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Uniformly distributed in `0.0..1.0`.
    fn draw(&self) -> f64 {
        f64::from(self.word() & 0x7fff_ffff) / f64::from(1_u32 << 31)
    }

    /// True for one node in [`SAMPLE`], by bits of the hash that decide nothing else.
    fn is_sample(&self) -> bool {
        let [a, b, ..] = self.state;
        u64::from(u16::from_be_bytes([a, b])).is_multiple_of(SAMPLE)
    }
}

/// The parameters of a tree, all there is to know about it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Tree {
    seed: u32,
    /// Children of the root, in a geometric tree expected children.
    branching: f64,
    kind: TreeKind,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum TreeKind {
    Binomial { probability: f64, children: u32 },
    Geometric { shape: Shape, depth: u32 },
}

impl Tree {
    fn root(&self) -> Node {
        let state = Sha1::new()
            .chain_update([0; 16])
            .chain_update(self.seed.to_be_bytes())
            .finalize()
            .into();
        Node { state, depth: 0 }
    }

    /// How many children the node has.
    fn children(&self, node: &Node) -> u32 {
        match self.kind {
            TreeKind::Binomial { .. } if node.depth == 0 => self.branching as u32,
            TreeKind::Binomial {
                probability,
                children,
            } => {
                if node.draw() < probability {
                    children
                } else {
                    0
                }
            }
            TreeKind::Geometric { shape, depth } => {
                let expected = shape.expected_children(self.branching, node.depth, depth);
                let p = 1.0 / (1.0 + expected);
                // Where nothing is expected this is 0 / -infinity or less: no children.
                let children = ((1.0 - node.draw()).ln() / (1.0 - p).ln()).floor() as u32;
                children.min(MAX_CHILDREN)
            }
        }
    }
}

impl Shape {
    /// b_d, where `root` is b, `depth` is d and `limit` is D.
    fn expected_children(self, root: f64, depth: u32, limit: u32) -> f64 {
        let (d, limit) = (f64::from(depth), f64::from(limit));
        match self {
            _ if depth == 0 => root,
            Self::Linear => root * (1.0 - d / limit),
            Self::Cyclic if d > 5.0 * limit => 0.0,
            Self::Cyclic => root.powf((TAU * d / limit).sin()),
            Self::Fixed if d < limit => root,
            Self::Fixed => 0.0,
        }
    }
}
