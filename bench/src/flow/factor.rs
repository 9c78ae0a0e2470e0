//! Factorizations in tiles: a flow, a loop, and rayon with a barrier after each step.

use std::mem::take;

use rayon::prelude::*;
use satin::{flow, r, rw, spawnable, task};

use super::{Args, Case, Row, Tiles, Ways, compared, handles};
use crate::pools::Pools;

#[path = "../../../examples/tiles/kernels.rs"]
mod kernels;

type Tile = Vec<f64>;

pub fn measure(args: &Args, case: Case, tile: u32, pools: &[Pools; 2]) -> anyhow::Result<Vec<Row>> {
    let n = (args.size / tile) as usize;
    let is_symmetric = case == Case::Cholesky;
    let name = if is_symmetric { "cholesky" } else { "lu" };
    let in_place = |mut a: Tiles, run: fn(&mut Tiles)| {
        run(&mut a);
        a
    };
    let tasks = |rest: usize| match is_symmetric {
        true => rest * (rest + 1) / 2,
        false => rest * rest,
    };
    let ways = Ways {
        title: format!("{name}, tiles of {tile}"),
        case,
        tile,
        tasks: (1..=n).map(tasks).sum(),
        sequential: match is_symmetric {
            true => &|a| in_place(a, cholesky::sequential),
            false => &|a| in_place(a, lu::sequential),
        },
        flow: match is_symmetric {
            true => &cholesky::factored,
            false => &lu::factored,
        },
        rayon: match is_symmetric {
            true => &|a| in_place(a, cholesky::barriers),
            false => &|a| in_place(a, lu::barriers),
        },
        beside: ("rayon, a barrier a step", 1.05),
    };
    let input = matrix(n, tile as usize, is_symmetric);
    compared(args, &input, &ways, pools)
}

/// A matrix whose diagonal outweighs the rest; of a symmetric one the lower half, in tiles.
fn matrix(n: usize, tile: usize, is_symmetric: bool) -> Tiles {
    let size = n * tile;
    let element = |row: usize, column: usize| {
        let (row, column) = match is_symmetric && column > row {
            true => (column, row),
            false => (row, column),
        };
        let element = ((row * 131 + column * 71) % 97) as f64 / 97.0;
        element + if row == column { size as f64 } else { 0.0 }
    };
    let make = |i: usize, j: usize| -> Tile {
        let rows = i * tile..(i + 1) * tile;
        rows.flat_map(|row| (j * tile..(j + 1) * tile).map(move |column| element(row, column)))
            .collect()
    };
    let end = |i: usize| if is_symmetric { i + 1 } else { n };
    (0..n)
        .map(|i| (0..end(i)).map(|j| make(i, j)).collect())
        .collect()
}

#[spawnable]
fn solve_row(tile: &mut [f64], factored: &[f64]) {
    kernels::solve_lower(tile, factored);
}

#[spawnable]
fn solve_column(tile: &mut [f64], factored: &[f64]) {
    kernels::solve_upper(tile, factored);
}

#[spawnable]
fn solve(tile: &mut [f64], factored: &[f64]) {
    kernels::solve_transposed(tile, factored);
}

#[spawnable]
fn factor_lu(tile: &mut [f64]) {
    kernels::lu(tile);
}

#[spawnable]
fn factor_cholesky(tile: &mut [f64]) {
    kernels::cholesky(tile);
}

#[spawnable]
fn update(tile: &mut [f64], left: &[f64], above: &[f64]) {
    kernels::subtract_times(tile, left, above);
}

#[spawnable]
fn update_below(tile: &mut [f64], left: &[f64], above: &[f64]) {
    kernels::subtract_times_transposed(tile, left, above);
}

#[spawnable]
fn update_diagonal(tile: &mut [f64], left: &[f64]) {
    kernels::subtract_square(tile, left);
}

/// LU.
mod lu {
    use super::*;

    pub fn sequential(a: &mut Tiles) {
        let n = a.len();
        for k in 0..n {
            kernels::lu(&mut a[k][k]);
            let (top, below) = a.split_at_mut(k + 1);
            let (factored, top) = top[k][k..].split_first_mut().expect("the diagonal");
            for tile in &mut *top {
                kernels::solve_lower(tile, factored);
            }
            for row in &mut *below {
                kernels::solve_upper(&mut row[k], factored);
            }
            for row in below {
                let (left, rest) = row[k..].split_first_mut().expect("the diagonal");
                for (tile, above) in rest.iter_mut().zip(&*top) {
                    kernels::subtract_times(tile, left, above);
                }
            }
        }
    }

    pub fn barriers(a: &mut Tiles) {
        let n = a.len();
        for k in 0..n {
            kernels::lu(&mut a[k][k]);
            let (top, below) = a.split_at_mut(k + 1);
            let (factored, top) = top[k][k..].split_first_mut().expect("the diagonal");
            let factored = &*factored;
            let of_row = || {
                let tiles = top.par_iter_mut();
                tiles.for_each(|tile| kernels::solve_lower(tile, factored));
            };
            let of_column = || {
                let rows = below.par_iter_mut();
                rows.for_each(|row| kernels::solve_upper(&mut row[k], factored));
            };
            rayon::join(of_row, of_column);
            let top = &*top;
            below.par_iter_mut().for_each(|row| {
                let (left, rest) = row[k..].split_first_mut().expect("the diagonal");
                let left = &*left;
                let tiles = rest.par_iter_mut().zip(top);
                tiles.for_each(|(tile, above)| kernels::subtract_times(tile, left, above));
            });
        }
    }

    #[spawnable]
    pub fn factored(matrix: Tiles) -> Tiles {
        let n = matrix.len();
        flow!(|g| {
            let a = handles(g, matrix);
            for k in 0..n {
                task!(g, factor_lu(rw(a[k][k])));
                for j in k + 1..n {
                    task!(g, solve_row(rw(a[k][j]), r(a[k][k])));
                }
                for i in k + 1..n {
                    task!(g, solve_column(rw(a[i][k]), r(a[k][k])));
                }
                for i in k + 1..n {
                    for j in k + 1..n {
                        task!(g, update(rw(a[i][j]), r(a[i][k]), r(a[k][j])));
                    }
                }
            }
            g.take_all(a)
        })
    }
}

/// Cholesky.
mod cholesky {
    use super::*;

    pub fn sequential(a: &mut Tiles) {
        let n = a.len();
        for k in 0..n {
            kernels::cholesky(&mut a[k][k]);
            for i in k + 1..n {
                let mut tile = take(&mut a[i][k]);
                kernels::solve_transposed(&mut tile, &a[k][k]);
                a[i][k] = tile;
            }
            for i in k + 1..n {
                let (above, rest) = a.split_at_mut(i);
                let (left, rest) = rest[0][k..].split_first_mut().expect("the column");
                let (diagonal, rest) = rest.split_last_mut().expect("the diagonal");
                for (tile, row) in rest.iter_mut().zip(&above[k + 1..]) {
                    kernels::subtract_times_transposed(tile, left, &row[k]);
                }
                kernels::subtract_square(diagonal, left);
            }
        }
    }

    pub fn barriers(a: &mut Tiles) {
        let n = a.len();
        for k in 0..n {
            kernels::cholesky(&mut a[k][k]);
            let (top, below) = a.split_at_mut(k + 1);
            let factored = &top[k][k];
            let rows = below.par_iter_mut();
            rows.for_each(|row| kernels::solve_transposed(&mut row[k], factored));
            // The column is read by all rows, which change meanwhile.
            let column: Vec<Tile> = below.iter_mut().map(|row| take(&mut row[k])).collect();
            let rows = below.par_iter_mut().zip(&column);
            rows.for_each(|(row, left)| {
                let (diagonal, rest) = row[k + 1..].split_last_mut().expect("the diagonal");
                let tiles = rest.par_iter_mut().zip(&column);
                let update = |(tile, above): (&mut Tile, &Tile)| {
                    kernels::subtract_times_transposed(tile, left, above);
                };
                rayon::join(
                    || tiles.for_each(update),
                    || kernels::subtract_square(diagonal, left),
                );
            });
            for (row, tile) in below.iter_mut().zip(column) {
                row[k] = tile;
            }
        }
    }

    #[spawnable]
    pub fn factored(matrix: Tiles) -> Tiles {
        let n = matrix.len();
        flow!(|g| {
            let a = handles(g, matrix);
            for k in 0..n {
                task!(g, factor_cholesky(rw(a[k][k])));
                for i in k + 1..n {
                    task!(g, solve(rw(a[i][k]), r(a[k][k])));
                }
                for i in k + 1..n {
                    for j in k + 1..i {
                        task!(g, update_below(rw(a[i][j]), r(a[i][k]), r(a[j][k])));
                    }
                    task!(g, update_diagonal(rw(a[i][i]), r(a[i][k])));
                }
            }
            g.take_all(a)
        })
    }
}
