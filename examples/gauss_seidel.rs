//! Heat on a plate by the method of Gauss and Seidel: each point becomes the mean of its neighbours, in place, sweep after sweep.
//!
//! Shows a flow in which sweeps overlap: a block is relaxed as soon as those above and on its left are in this sweep, and those below and on
//! its right have been in the last. While the flow is under way, what a sweep has changed is looked at with `g.get`, to decide whether to go on
//! (`Plate::until_still_in`).
#![allow(
    clippy::too_many_arguments,
    reason = "each block that is read is an argument of its own"
)]

mod common;
mod plate;

use clap::Parser;
use common::graph::Graph;
use plate::{Beside, DONE, Flags, Heat, Method, Plate, kernels};
use satin::{Handle, flow, r, rw, spawnable, task};

/// Spreads heat over a plate, in place
#[derive(Parser)]
#[command(after_help = "\
Examples:
  gauss_seidel
  gauss_seidel --size 2048 --tile 256 --sweeps 200
  gauss_seidel --size 64 --tile 16 --sweeps 100000 --tolerance 1e-12
  gauss_seidel --size 32 --tile 8 --sweeps 3 --dot it.dot   # dot -Tsvg it.dot")]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> anyhow::Result<()> {
    let method = Method {
        name: "gauss_seidel",
        flow: gauss_seidel,
        sequential,
        sweep: plate::Grid::gauss_seidel,
        graph,
    };
    plate::main(&Cli::parse().flags, &method)
}

#[spawnable]
fn gauss_seidel(plate: Plate) -> Heat {
    flow!(|g| {
        let [hot, cold] = [1.0, 0.0].map(|heat| g.data(vec![heat; plate.tile * plate.tile]));
        let blocks = plate.cold_blocks(g);
        let changes: Vec<Handle<f64>> = plate.places().map(|_| g.data(0.0)).collect();
        let (sweeps, change) = plate.until_still_in(g, &changes, || {
            for ((i, j), change) in plate.places().zip(&changes) {
                let [above, below, left, right] = plate.beside(i, j).map(|beside| match beside {
                    Beside::Hot => hot,
                    Beside::Cold => cold,
                    Beside::Block(i, j) => blocks[i][j],
                });
                let block = blocks[i][j];
                task!(
                    g,
                    relax(
                        rw(block),
                        rw(*change),
                        r(above),
                        r(below),
                        r(left),
                        r(right)
                    )
                );
            }
        });
        Heat {
            sweeps,
            change,
            blocks: g.take_all(blocks),
        }
    })
}

#[spawnable]
fn relax(
    block: &mut [f64],
    change: &mut f64,
    above: &[f64],
    below: &[f64],
    left: &[f64],
    right: &[f64],
) {
    DONE.add(1);
    *change = kernels::relax_in_place(block, above, below, left, right);
}

/// The same without tasks.
fn sequential(plate: Plate) -> Heat {
    let n = plate.blocks;
    let of = |heat: f64| vec![heat; plate.tile * plate.tile];
    let (hot, cold) = (of(1.0), of(0.0));
    let mut blocks = vec![vec![of(0.0); n]; n];
    let (sweeps, change) = plate.until_still(|| {
        let mut most: f64 = 0.0;
        for (i, j) in plate.places() {
            let mut block = std::mem::take(&mut blocks[i][j]);
            let [above, below, left, right] = plate.beside(i, j).map(|beside| match beside {
                Beside::Hot => &hot,
                Beside::Cold => &cold,
                Beside::Block(i, j) => &blocks[i][j],
            });
            most = most.max(kernels::relax_in_place(
                &mut block, above, below, left, right,
            ));
            blocks[i][j] = block;
        }
        most
    });
    Heat {
        blocks,
        sweeps,
        change,
    }
}

/// The sweeps of [`gauss_seidel`], if all are made.
fn graph(plate: &Plate) -> Graph<(usize, usize)> {
    let mut graph = Graph::new();
    for sweep in 1..=plate.sweeps {
        for (i, j) in plate.places() {
            let beside = plate.beside(i, j);
            let blocks = beside.into_iter().filter_map(Beside::place);
            let reads: Vec<_> = blocks.collect();
            let which = format_args!("{i},{j} sweep {sweep}").to_string();
            graph.task("relax", which, &[(i, j)], &reads);
        }
    }
    graph
}
