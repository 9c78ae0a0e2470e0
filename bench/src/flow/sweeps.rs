//! Sweeps of Gauss and Seidel over a plate in blocks: a flow, a loop, and rayon in wavefronts.
//!
//! The wavefronts of rayon go through all sweeps: block (i, j) in sweep s is in front i + j + 2 s, so those of many sweeps run side by side, as
//! those of a flow do. What is left to gain is the barrier after each front.

use std::mem::take;

use rayon::prelude::*;
use satin::{flow, r, rw, spawnable, task};

use super::{Args, Case, Row, Tiles, Ways, compared, handles};
use crate::pools::Pools;

#[path = "../../../examples/plate/kernels.rs"]
mod kernels;

type Block = Vec<f64>;

/// Blocks with a frame of blocks around them that never change: hot above, cold elsewhere.
type Plate = Tiles;

pub fn measure(args: &Args, tile: u32, pools: &[Pools; 2]) -> anyhow::Result<Vec<Row>> {
    let n = (args.size / tile) as usize;
    let sweeps = args.sweeps as usize;
    let make = |i: usize| vec![f64::from(u8::from(i == 0)); (tile * tile) as usize];
    let plate: Plate = (0..n + 2).map(|i| vec![make(i); n + 2]).collect();
    let ways = Ways {
        title: format!("gauss-seidel, blocks of {tile}"),
        case: Case::GaussSeidel,
        tile,
        tasks: n * n * sweeps,
        sequential: &|plate| sequential(plate, sweeps),
        flow: &|plate| relaxed(plate, sweeps),
        rayon: &|plate| wavefronts(plate, sweeps),
        beside: ("rayon, wavefronts", 1.0),
    };
    compared(args, &plate, &ways, pools)
}

/// Relaxes a block that has been taken out of the plate.
fn relax_in(plate: &Plate, i: usize, j: usize, block: &mut Block) {
    kernels::relax_in_place(
        block,
        &plate[i - 1][j],
        &plate[i + 1][j],
        &plate[i][j - 1],
        &plate[i][j + 1],
    );
}

fn sequential(mut plate: Plate, sweeps: usize) -> Plate {
    let n = plate.len() - 2;
    for _ in 0..sweeps {
        for (i, j) in (1..=n).flat_map(|i| (1..=n).map(move |j| (i, j))) {
            let mut block = take(&mut plate[i][j]);
            relax_in(&plate, i, j, &mut block);
            plate[i][j] = block;
        }
    }
    plate
}

fn wavefronts(mut plate: Plate, sweeps: usize) -> Plate {
    let n = plate.len() - 2;
    for front in 2..=2 * n + 2 * (sweeps - 1) {
        // The sums i + j of the blocks that are in this front, each in another sweep.
        let sums = (0..sweeps)
            .filter_map(|sweep| front.checked_sub(2 * sweep))
            .filter(|sum| (2..=2 * n).contains(sum));
        let places = sums.flat_map(|sum| {
            let rows = sum.saturating_sub(n).max(1)..=n.min(sum - 1);
            rows.map(move |i| (i, sum - i))
        });
        let mut blocks: Vec<((usize, usize), Block)> = places
            .map(|(i, j)| ((i, j), take(&mut plate[i][j])))
            .collect();
        let each = blocks.par_iter_mut();
        each.for_each(|((i, j), block)| relax_in(&plate, *i, *j, block));
        for ((i, j), block) in blocks {
            plate[i][j] = block;
        }
    }
    plate
}

#[spawnable]
fn relax(block: &mut [f64], above: &[f64], below: &[f64], left: &[f64], right: &[f64]) {
    kernels::relax_in_place(block, above, below, left, right);
}

#[spawnable]
fn relaxed(plate: Plate, sweeps: usize) -> Plate {
    let n = plate.len() - 2;
    flow!(|g| {
        let blocks = handles(g, plate);
        for _ in 0..sweeps {
            for (i, j) in (1..=n).flat_map(|i| (1..=n).map(move |j| (i, j))) {
                task!(
                    g,
                    relax(
                        rw(blocks[i][j]),
                        r(blocks[i - 1][j]),
                        r(blocks[i + 1][j]),
                        r(blocks[i][j - 1]),
                        r(blocks[i][j + 1])
                    )
                );
            }
        }
        g.take_all(blocks)
    })
}
