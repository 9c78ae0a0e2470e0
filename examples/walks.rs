//! Walks over data of many small parts: a tree of boxes, a list of strings, a map, a graph.
//!
//! Shows the three ways to give such data to jobs: borrowed, moved and back again, or changed in place. Each round is a call from
//! `main`. A part has next to no work, so no part is worth the way to another machine.

mod common;

use std::collections::BTreeMap;
use std::num::Wrapping;

use anyhow::ensure;
use clap::{Parser, ValueEnum};
use common::Mode;
use common::random::{Random, mix};
use satin::spawn;
use serde::{Deserialize, Serialize};

/// Walks over N small parts
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  walks\n  walks --data map --by value\n  walks 1000000 --by mut --rounds 50 --compare"
)]
struct Cli {
    /// Parts of the data
    #[arg(default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// What the parts stand in
    #[arg(long, value_enum, default_value_t = Data::Tree)]
    data: Data,
    /// How a job gets its parts
    #[arg(long, value_enum, default_value_t = By::Ref)]
    by: By,
    /// How often all parts are visited
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Where the pseudo-random sequence starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

#[derive(Clone, Copy, ValueEnum)]
enum Data {
    /// A binary tree of random shape, each node in a box of its own
    Tree,
    /// A list of strings
    Strings,
    /// A map from numbers to strings
    Map,
    /// Vertices with lists of their neighbours
    Graph,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// Borrowed: a round adds up what the parts are
    Ref,
    /// Moved into the job, and back in its result: a round makes new parts
    Value,
    /// Borrowed to be changed: a round makes new parts
    Mut,
}

type Sum = Wrapping<u64>;

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match cli.data {
        Data::Tree => measure(
            cli,
            |random| *Tree::random(cli.n, random),
            Walk::new(Tree::total, Tree::changed, Tree::change),
            Walk::new(
                |tree: &Tree| satin::seq!(tree.total()),
                |tree: Tree| satin::seq!(tree.changed()),
                |tree: &mut Tree| satin::seq!(tree.change()),
            ),
        ),
        Data::Strings => measure(
            cli,
            |random| (0..cli.n).map(|_| text(random)).collect(),
            Walk::new(
                |list: &Vec<String>| total_of_list(list),
                changed_list,
                |list: &mut Vec<String>| change_list(list),
            ),
            Walk::new(
                |list: &Vec<String>| satin::seq!(total_of_list(list)),
                |list: Vec<String>| satin::seq!(changed_list(list)),
                |list: &mut Vec<String>| satin::seq!(change_list(list)),
            ),
        ),
        Data::Map => measure(
            cli,
            |random| (0..cli.n).map(|key| (key, text(random))).collect(),
            Walk::new(
                |map: &Map| total_of_map(map, 0, cli.n),
                |map: Map| changed_map(map, 0, cli.n),
                |map: &mut Map| change_map(map, 0, cli.n),
            ),
            Walk::new(
                |map: &Map| satin::seq!(total_of_map(map, 0, cli.n)),
                |map: Map| satin::seq!(changed_map(map, 0, cli.n)),
                |map: &mut Map| satin::seq!(change_map(map, 0, cli.n)),
            ),
        ),
        Data::Graph => measure(
            cli,
            |random| (0..cli.n).map(|_| Vertex::random(cli.n, random)).collect(),
            Walk::new(
                |graph: &Vec<Vertex>| total_of_graph(graph, 0, cli.n),
                changed_graph,
                |graph: &mut Vec<Vertex>| change_graph(graph),
            ),
            Walk::new(
                |graph: &Vec<Vertex>| satin::seq!(total_of_graph(graph, 0, cli.n)),
                |graph: Vec<Vertex>| satin::seq!(changed_graph(graph)),
                |graph: &mut Vec<Vertex>| satin::seq!(change_graph(graph)),
            ),
        ),
    }
}

/// The three walks over data: borrowed, moved, changed in place.
struct Walk<A, B, C> {
    total: A,
    changed: B,
    change: C,
}

impl<A, B, C> Walk<A, B, C> {
    fn new<T>(total: A, changed: B, change: C) -> Self
    where
        A: Fn(&T) -> Sum,
        B: Fn(T) -> T,
        C: Fn(&mut T),
    {
        Walk {
            total,
            changed,
            change,
        }
    }

    fn rounds<T>(&self, mut data: T, cli: &Cli) -> Sum
    where
        A: Fn(&T) -> Sum,
        B: Fn(T) -> T,
        C: Fn(&mut T),
    {
        let mut sum = Wrapping(0);
        for _ in 0..cli.rounds {
            match cli.by {
                By::Ref => sum += (self.total)(&data),
                By::Value => data = (self.changed)(data),
                By::Mut => (self.change)(&mut data),
            }
        }
        sum + (self.total)(&data)
    }
}

/// Runs the rounds in the way that was asked for. The answer must be that of plain Rust.
fn measure<T: Send>(
    cli: &Cli,
    random: impl Fn(&mut Random) -> T + Sync,
    parallel: Walk<impl Fn(&T) -> Sum, impl Fn(T) -> T, impl Fn(&mut T)>,
    sequential: Walk<
        impl Fn(&T) -> Sum + Send + Sync,
        impl Fn(T) -> T + Send + Sync,
        impl Fn(&mut T) + Send + Sync,
    >,
) -> anyhow::Result<()> {
    let data = || random(&mut Random::new(cli.seed));
    let expected = common::on_large_stack(|| sequential.rounds(data(), cli))?;
    let run = cli.mode.measure(
        data,
        |data| parallel.rounds(data, cli),
        |data| sequential.rounds(data, cli),
        |sum| {
            ensure!(
                *sum == expected,
                "wrong answer: {sum}, but the sum is {expected}"
            );
            Ok(())
        },
    )?;
    println!("walks({}) = {} (ok)", cli.n, run.answer);
    run.report();
    Ok(())
}

/// A binary tree, each of whose nodes lies in a box of its own.
#[derive(Serialize, Deserialize)]
struct Tree {
    value: u64,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

impl Tree {
    /// The shape of a binary search tree into which numbers were put in random order.
    fn random(nodes: u32, random: &mut Random) -> Box<Self> {
        let below = nodes - 1;
        let left = random.below(below as usize + 1) as u32;
        let value = random.next().expect("it is endless");
        let mut part = |nodes| (nodes > 0).then(|| Self::random(nodes, random));
        let (left, right) = (part(left), part(below - left));
        Box::new(Self { value, left, right })
    }
}

#[satin::spawnable]
impl Tree {
    #[spawn]
    fn total(&self) -> Sum {
        let mut sum = Wrapping(self.value);
        if let Some(left) = &self.left {
            sum += spawn!(left.total());
        }
        if let Some(right) = &self.right {
            sum += spawn!(right.total());
        }
        sum
    }

    #[spawn]
    fn changed(self) -> Tree {
        let (mut left, mut right) = (None, None);
        if let Some(tree) = self.left {
            left = Some(spawn!(tree.changed()));
        }
        if let Some(tree) = self.right {
            right = Some(spawn!(tree.changed()));
        }
        Tree {
            value: mix(self.value),
            left: left.map(Box::new),
            right: right.map(Box::new),
        }
    }

    #[spawn]
    fn change(&mut self) {
        self.value = mix(self.value);
        if let Some(left) = &mut self.left {
            spawn!(left.change());
        }
        if let Some(right) = &mut self.right {
            spawn!(right.change());
        }
    }
}

/// Parts of a list, a map or a graph that one job visits by itself.
const FEW: usize = 16;

/// A random word.
fn text(random: &mut Random) -> String {
    let length = 4 + random.below(12);
    (0..length)
        .map(|_| char::from(b'a' + random.below(26) as u8))
        .collect()
}

fn value_of(text: &str) -> Sum {
    (text.bytes()).fold(Wrapping(text.len() as u64), |sum, byte| {
        sum * Wrapping(31) + Wrapping(u64::from(byte))
    })
}

/// Puts the next letter in the place of each.
fn change_text(text: &mut String) {
    let next = |letter: char| match letter {
        'z' => 'a',
        letter => char::from(letter as u8 + 1),
    };
    *text = text.chars().map(next).collect();
}

#[satin::spawnable]
fn total_of_list(list: &[String]) -> Sum {
    if list.len() <= FEW {
        return list.iter().map(|text| value_of(text)).sum();
    }
    let (low, high) = list.split_at(list.len() / 2);
    total_of_list(low) + total_of_list(high)
}

#[satin::spawnable]
fn changed_list(mut list: Vec<String>) -> Vec<String> {
    if list.len() <= FEW {
        list.iter_mut().for_each(change_text);
        return list;
    }
    let high = list.split_off(list.len() / 2);
    let mut low = changed_list(list);
    let mut high = changed_list(high);
    low.append(&mut high);
    low
}

#[satin::spawnable]
fn change_list(list: &mut [String]) {
    if list.len() <= FEW {
        return list.iter_mut().for_each(change_text);
    }
    let (low, high) = list.split_at_mut(list.len() / 2);
    change_list(low);
    change_list(high);
}

type Map = BTreeMap<u32, String>;

/// The sum over the keys of that range.
#[satin::spawnable]
fn total_of_map(map: &BTreeMap<u32, String>, from: u32, to: u32) -> Sum {
    if to - from <= FEW as u32 {
        let texts = map.range(from..to);
        return texts
            .map(|(key, text)| Wrapping(u64::from(*key)) + value_of(text))
            .sum();
    }
    let middle = from.midpoint(to);
    total_of_map(map, from, middle) + total_of_map(map, middle, to)
}

/// A map all of whose keys are in that range.
#[satin::spawnable]
fn changed_map(mut map: BTreeMap<u32, String>, from: u32, to: u32) -> BTreeMap<u32, String> {
    if to - from <= FEW as u32 {
        map.values_mut().for_each(change_text);
        return map;
    }
    let middle = from.midpoint(to);
    let high = map.split_off(&middle);
    let mut low = changed_map(map, from, middle);
    let mut high = changed_map(high, middle, to);
    low.append(&mut high);
    low
}

#[satin::spawnable]
fn change_map(map: &mut BTreeMap<u32, String>, from: u32, to: u32) {
    if to - from <= FEW as u32 {
        return map.values_mut().for_each(change_text);
    }
    let middle = from.midpoint(to);
    let mut high = map.split_off(&middle);
    change_map(map, from, middle);
    change_map(&mut high, middle, to);
    satin::sync!();
    map.append(&mut high);
}

/// A vertex of a graph.
#[derive(Serialize, Deserialize)]
struct Vertex {
    mark: u64,
    /// Its neighbours, by their places.
    neighbours: Vec<u32>,
}

impl Vertex {
    fn random(vertices: u32, random: &mut Random) -> Self {
        let degree = random.below(4);
        Self {
            mark: random.next().expect("it is endless"),
            neighbours: (0..degree)
                .map(|_| random.below(vertices as usize) as u32)
                .collect(),
        }
    }

    fn change(&mut self) {
        let edges: u64 = self.neighbours.iter().map(|place| u64::from(*place)).sum();
        self.mark = mix(self.mark ^ edges);
        self.neighbours.reverse();
    }
}

/// What the vertices of that range see of their neighbours.
#[satin::spawnable]
fn total_of_graph(graph: &[Vertex], from: u32, to: u32) -> Sum {
    if to - from <= FEW as u32 {
        let vertices = &graph[from as usize..to as usize];
        let seen = (vertices.iter()).flat_map(|vertex| &vertex.neighbours);
        return seen
            .map(|place| Wrapping(graph[*place as usize].mark))
            .sum();
    }
    let middle = from.midpoint(to);
    total_of_graph(graph, from, middle) + total_of_graph(graph, middle, to)
}

#[satin::spawnable]
fn changed_graph(mut graph: Vec<Vertex>) -> Vec<Vertex> {
    if graph.len() <= FEW {
        graph.iter_mut().for_each(Vertex::change);
        return graph;
    }
    let high = graph.split_off(graph.len() / 2);
    let mut low = changed_graph(graph);
    let mut high = changed_graph(high);
    low.append(&mut high);
    low
}

#[satin::spawnable]
fn change_graph(graph: &mut [Vertex]) {
    if graph.len() <= FEW {
        return graph.iter_mut().for_each(Vertex::change);
    }
    let (low, high) = graph.split_at_mut(graph.len() / 2);
    change_graph(low);
    change_graph(high);
}
