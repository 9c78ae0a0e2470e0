//! The Cholesky factorization of a large symmetric matrix in tiles (the kernels are those of LAPACK's blocked algorithms; as a graph of
//! tasks: Buttari, Langou, Kurzak, Dongarra, "A class of parallel tiled linear algebra algorithms for multicore architectures", 2009).
//!
//! Shows a flow over part of a matrix: there are handles of the tiles in the lower half alone.

mod common;
mod tiles;

use clap::Parser;
use common::graph::Graph;
use satin::{Handle, flow, r, rw, spawnable, task};
use tiles::{DONE, Factorization, Flags, Matrix, Place, Tile, kernels};

/// Factors a random symmetric matrix into a lower triangle and its mirror image
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cholesky
  cholesky --size 4096 --tile 128
  cholesky --size 1024 --tile 128 --compare
  cholesky --size 512 --tile 128 --dot it.dot   # then dot -Tsvg it.dot > it.svg")]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> anyhow::Result<()> {
    let of = Factorization {
        name: "cholesky",
        flow: cholesky,
        sequential,
        check: Matrix::check_cholesky,
        tasks: |n| n * (n + 1) / 2 + steps(n).count(),
        graph,
        operations: 1.0 / 3.0,
    };
    tiles::main(&Cli::parse().flags, &of)
}

/// The factor: row `i` has the tiles 0 to `i`.
#[spawnable]
fn cholesky(matrix: Matrix) -> Vec<Vec<Tile>> {
    let n = matrix.tiles;
    flow!(|g| {
        let a: Vec<Vec<Handle<Tile>>> = (0..n)
            .map(|i| (0..=i).map(|j| task!(g, make(matrix, i, j))).collect())
            .collect();
        for k in 0..n {
            task!(g, factor(rw(a[k][k])));
            for i in k + 1..n {
                task!(g, solve(rw(a[i][k]), r(a[k][k])));
            }
            for i in k + 1..n {
                for j in k + 1..i {
                    task!(g, update(rw(a[i][j]), r(a[i][k]), r(a[j][k])));
                }
                task!(g, update_diagonal(rw(a[i][i]), r(a[i][k])));
            }
        }
        g.take_all(a)
    })
}

#[spawnable]
fn make(matrix: Matrix, i: usize, j: usize) -> Tile {
    DONE.add(1);
    matrix.make(i, j)
}

#[spawnable]
fn factor(tile: &mut [f64]) {
    DONE.add(1);
    kernels::cholesky(tile);
}

#[spawnable]
fn solve(tile: &mut [f64], factored: &[f64]) {
    DONE.add(1);
    kernels::solve_transposed(tile, factored);
}

#[spawnable]
fn update(tile: &mut [f64], left: &[f64], above: &[f64]) {
    DONE.add(1);
    kernels::subtract_times_transposed(tile, left, above);
}

#[spawnable]
fn update_diagonal(tile: &mut [f64], left: &[f64]) {
    DONE.add(1);
    kernels::subtract_square(tile, left);
}

/// A call of a kernel, by the tiles that it uses.
#[derive(Clone, Copy)]
enum Step {
    Factor { k: usize },
    Solve { i: usize, k: usize },
    Update { i: usize, j: usize, k: usize },
    UpdateDiagonal { i: usize, k: usize },
}

impl Step {
    /// The tile that the kernel changes.
    fn changes(self) -> Place {
        match self {
            Step::Factor { k } => (k, k),
            Step::Solve { i, k } => (i, k),
            Step::Update { i, j, .. } => (i, j),
            Step::UpdateDiagonal { i, .. } => (i, i),
        }
    }
}

/// The calls of the kernels, in the order of [`cholesky`].
fn steps(n: usize) -> impl Iterator<Item = Step> {
    (0..n).flat_map(move |k| {
        let update = move |i| {
            (k + 1..i)
                .map(move |j| Step::Update { i, j, k })
                .chain([Step::UpdateDiagonal { i, k }])
        };
        std::iter::once(Step::Factor { k })
            .chain((k + 1..n).map(move |i| Step::Solve { i, k }))
            .chain((k + 1..n).flat_map(update))
    })
}

/// The same without tasks.
fn sequential(matrix: Matrix) -> Vec<Vec<Tile>> {
    let n = matrix.tiles;
    let row = |i| (0..=i).map(move |j| matrix.make(i, j)).collect();
    let mut a: Vec<Vec<Tile>> = (0..n).map(row).collect();
    for step in steps(n) {
        let (i, j) = step.changes();
        let mut tile = std::mem::take(&mut a[i][j]);
        match step {
            Step::Factor { .. } => kernels::cholesky(&mut tile),
            Step::Solve { k, .. } => kernels::solve_transposed(&mut tile, &a[k][k]),
            Step::Update { i, j, k } => {
                kernels::subtract_times_transposed(&mut tile, &a[i][k], &a[j][k])
            }
            Step::UpdateDiagonal { i, k } => kernels::subtract_square(&mut tile, &a[i][k]),
        }
        a[i][j] = tile;
    }
    a
}

/// The tasks of [`cholesky`].
fn graph(n: usize) -> Graph<Place> {
    let mut graph = Graph::new();
    for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
        graph.task("make", format_args!("{i},{j}"), &[(i, j)], &[]);
    }
    for step in steps(n) {
        match step {
            Step::Factor { k } => graph.task("factor", k, &[(k, k)], &[]),
            Step::Solve { i, k } => {
                graph.task("solve", format_args!("{i},{k}"), &[(i, k)], &[(k, k)]);
            }
            Step::Update { i, j, k } => graph.task(
                "update",
                format_args!("{i},{j} step {k}"),
                &[(i, j)],
                &[(i, k), (j, k)],
            ),
            Step::UpdateDiagonal { i, k } => graph.task(
                "update_diagonal",
                format_args!("{i} step {k}"),
                &[(i, i)],
                &[(i, k)],
            ),
        }
    }
    graph
}
