//! Heat on a plate by the method of Jacobi: each point becomes the mean of what its neighbours were in the sweep before.
//!
//! Shows a flow whose tasks exchange little: a block stays where it is, and the tasks of the blocks beside it read its edges alone, which are
//! data of their own. There are two sets of them, as a sweep reads what the last has left.
#![allow(
    clippy::too_many_arguments,
    reason = "data that others read apart from the rest is an argument of its own"
)]

mod common;
mod plate;

use clap::Parser;
use common::graph::Graph;
use plate::{DONE, Edge, Flags, Heat, Method, Plate, kernels};
use satin::{Flow, Handle, flow, r, rw, spawnable, task};

/// Spreads heat over a plate, from sweep to sweep
#[derive(Parser)]
#[command(after_help = "\
Examples:
  jacobi
  jacobi --size 2048 --tile 256 --sweeps 200
  jacobi --size 64 --tile 16 --sweeps 100000 --tolerance 1e-12
  jacobi --size 32 --tile 8 --sweeps 3 --dot it.dot   # dot -Tsvg it.dot")]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> anyhow::Result<()> {
    let method = Method {
        name: "jacobi",
        flow: jacobi,
        sequential,
        sweep: plate::Grid::jacobi,
        graph,
    };
    plate::main(&Cli::parse().flags, &method)
}

/// The edges of all blocks: of that in row `i` and column `j`, its first row, its last, its first column, its last.
type Edges<T> = Vec<Vec<[T; 4]>>;

#[spawnable]
fn jacobi(plate: Plate) -> Heat {
    flow!(|g| {
        let [hot, cold] = [1.0, 0.0].map(|heat| g.data(vec![heat; plate.tile]));
        let blocks = plate.cold_blocks(g);
        let changes: Vec<Handle<f64>> = plate.places().map(|_| g.data(0.0)).collect();
        let mut old = cold_edges(g, &plate);
        let mut new = cold_edges(g, &plate);
        let (sweeps, change) = plate.until_still_in(g, &changes, || {
            for ((i, j), change) in plate.places().zip(&changes) {
                let [above, below, left, right] = plate.edges_beside(i, j).map(|edge| match edge {
                    Edge::Hot => hot,
                    Edge::Cold => cold,
                    Edge::Of((i, j), side) => old[i][j][side],
                });
                let [top, bottom, first, last] = new[i][j];
                task!(
                    g,
                    relax(
                        rw(blocks[i][j]),
                        rw(*change),
                        r(above),
                        r(below),
                        r(left),
                        r(right),
                        rw(top),
                        rw(bottom),
                        rw(first),
                        rw(last)
                    )
                );
            }
            std::mem::swap(&mut old, &mut new);
        });
        Heat {
            sweeps,
            change,
            blocks: g.take_all(blocks),
        }
    })
}

fn cold_edges<'g>(g: &Flow<'g>, plate: &Plate) -> Edges<Handle<'g, Vec<f64>>> {
    let edges = || [(); 4].map(|()| g.data(vec![0.0; plate.tile]));
    let rows = (0..plate.blocks).map(|_| (0..plate.blocks).map(|_| edges()).collect());
    rows.collect()
}

#[spawnable]
fn relax(
    block: &mut [f64],
    change: &mut f64,
    above: &[f64],
    below: &[f64],
    left: &[f64],
    right: &[f64],
    top: &mut Vec<f64>,
    bottom: &mut Vec<f64>,
    first: &mut Vec<f64>,
    last: &mut Vec<f64>,
) {
    DONE.add(1);
    *change = kernels::relax_from_old(block, above, below, left, right);
    [*top, *bottom, *first, *last] = kernels::edges(block);
}

/// The same without tasks.
fn sequential(plate: Plate) -> Heat {
    let n = plate.blocks;
    let (hot, cold) = (vec![1.0; plate.tile], vec![0.0; plate.tile]);
    let mut blocks = vec![vec![vec![0.0; plate.tile * plate.tile]; n]; n];
    let edges = [(); 4].map(|()| cold.clone());
    let mut old: Edges<Vec<f64>> = vec![vec![edges; n]; n];
    let mut new = old.clone();
    let (sweeps, change) = plate.until_still(|| {
        let mut most: f64 = 0.0;
        for (i, j) in plate.places() {
            let [above, below, left, right] = plate.edges_beside(i, j).map(|edge| match edge {
                Edge::Hot => &hot,
                Edge::Cold => &cold,
                Edge::Of((i, j), side) => &old[i][j][side],
            });
            let block = &mut blocks[i][j];
            let change = kernels::relax_from_old(block, above, below, left, right);
            most = most.max(change);
            new[i][j] = kernels::edges(block);
        }
        std::mem::swap(&mut old, &mut new);
        most
    });
    Heat {
        blocks,
        sweeps,
        change,
    }
}

/// A piece of data of [`jacobi`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Data {
    Block(usize, usize),
    Edge {
        of: (usize, usize),
        side: usize,
        is_of_odd_sweep: bool,
    },
}

/// The sweeps of [`jacobi`], if all are made.
fn graph(plate: &Plate) -> Graph<Data> {
    let mut graph = Graph::new();
    for sweep in 1..=plate.sweeps {
        let edge = |of, side, sweep: u32| Data::Edge {
            of,
            side,
            is_of_odd_sweep: !sweep.is_multiple_of(2),
        };
        for (i, j) in plate.places() {
            let beside = plate.edges_beside(i, j).into_iter();
            let reads: Vec<Data> = beside
                .filter_map(|beside| match beside {
                    Edge::Of(block, side) => Some(edge(block, side, sweep - 1)),
                    Edge::Hot | Edge::Cold => None,
                })
                .collect();
            let own = (0..4).map(|side| edge((i, j), side, sweep));
            let changes: Vec<Data> = own.chain([Data::Block(i, j)]).collect();
            let which = format!("{i},{j} sweep {sweep}");
            graph.task("relax", which, &changes, &reads);
        }
    }
    graph
}
