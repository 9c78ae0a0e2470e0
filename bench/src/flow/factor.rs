//! Factorizations in tiles: a flow, a loop, and rayon with a barrier after each step.

use std::mem::take;

use rayon::prelude::*;
use satin::{Handle, flow, r, rw, spawnable, task};

use super::{Args, Case, Pair, Program, Row, compared, interleaved, timed};
use crate::pools::Pools;

#[path = "../../../examples/tiles/kernels.rs"]
mod kernels;

type Tile = Vec<f64>;
/// Rows of tiles.
type Matrix = Vec<Vec<Tile>>;

/// A kind of factorization, in three ways.
struct Ways {
    sequential: fn(&mut Matrix),
    barriers: fn(&mut Matrix),
    flow: fn(Matrix) -> Matrix,
    tasks: usize,
}

pub fn measure(args: &Args, case: Case, tile: u32, pools: &[Pools; 2]) -> anyhow::Result<Vec<Row>> {
    let n = (args.size / tile) as usize;
    let (name, ways) = match case {
        Case::Lu => (
            "lu",
            Ways {
                sequential: lu::sequential,
                barriers: lu::barriers,
                flow: lu::in_flow,
                tasks: (1..=n).map(|rest| rest * rest).sum(),
            },
        ),
        _ => (
            "cholesky",
            Ways {
                sequential: cholesky::sequential,
                barriers: cholesky::barriers,
                flow: cholesky::in_flow,
                tasks: (1..=n).map(|rest| rest * (rest + 1) / 2).sum(),
            },
        ),
    };
    let input = matrix(n, tile as usize, case == Case::Cholesky);
    let (input, ways) = (&input, &ways);
    let in_place = |mut matrix: Matrix, run: &dyn Fn(&mut Matrix)| {
        run(&mut matrix);
        matrix
    };
    let [one, two] = pools;
    let flow = |pools| move || timed(input.clone(), |a| Pools::satin(pools, || (ways.flow)(a)));
    let programs = [
        Program {
            who: "sequential",
            workers: 1,
            run: Box::new(|| timed(input.clone(), |a| in_place(a, &ways.sequential))),
        },
        Program {
            who: "flow",
            workers: 1,
            run: Box::new(flow(one)),
        },
        Program {
            who: "flow",
            workers: 2,
            run: Box::new(flow(two)),
        },
        Program {
            who: "rayon, a barrier a step",
            workers: 2,
            run: Box::new(|| timed(input.clone(), |a| two.rayon(|| in_place(a, &ways.barriers)))),
        },
    ];
    let title = format!("{name}, tiles of {tile}");
    let times = interleaved(&title, &programs, args.rounds.get())?;
    let pairs = [
        Pair {
            flow: 1,
            other: 0,
            required: 0.97,
        },
        Pair {
            flow: 2,
            other: 3,
            required: 1.05,
        },
    ];
    let of = (case, tile, ways.tasks);
    Ok(compared(args, of, &programs, &times, &pairs))
}

/// A matrix whose diagonal outweighs the rest; of a symmetric one the lower half, in tiles.
fn matrix(n: usize, tile: usize, is_symmetric: bool) -> Matrix {
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

    pub fn sequential(a: &mut Matrix) {
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

    pub fn barriers(a: &mut Matrix) {
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

    pub fn in_flow(a: Matrix) -> Matrix {
        factored(a)
    }

    #[spawnable]
    fn factored(matrix: Matrix) -> Matrix {
        let n = matrix.len();
        flow!(|g| {
            let a: Vec<Vec<Handle<Tile>>> = matrix
                .into_iter()
                .map(|row| row.into_iter().map(|tile| g.data(tile)).collect())
                .collect();
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

    pub fn sequential(a: &mut Matrix) {
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

    pub fn barriers(a: &mut Matrix) {
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

    pub fn in_flow(a: Matrix) -> Matrix {
        factored(a)
    }

    #[spawnable]
    fn factored(matrix: Matrix) -> Matrix {
        let n = matrix.len();
        flow!(|g| {
            let a: Vec<Vec<Handle<Tile>>> = matrix
                .into_iter()
                .map(|row| row.into_iter().map(|tile| g.data(tile)).collect())
                .collect();
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
