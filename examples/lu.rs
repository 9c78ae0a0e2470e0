//! The LU factorization of a large matrix in tiles, without pivoting, as its diagonal outweighs the rest (the kernels are those of LAPACK's
//! blocked algorithms; as a graph of tasks: Buttari, Langou, Kurzak, Dongarra, "A class of parallel tiled linear algebra algorithms for multicore
//! architectures", 2009).
//!
//! Shows a flow: the loops of the textbook, whose calls are tasks. Nothing waits at the end of a step, so the next steps begin while there
//! are tiles of this one left.

mod common;
mod tiles;

use clap::Parser;
use common::graph::Graph;
use satin::{Handle, flow, r, rw, spawnable, task};
use tiles::{DONE, Factorization, Flags, Matrix, Place, Tile, kernels};

/// Factors a random matrix into a lower and an upper triangle
#[derive(Parser)]
#[command(after_help = "\
Examples:
  lu
  lu --size 4096 --tile 128
  lu --size 1024 --tile 128 --compare
  lu --size 512 --tile 128 --dot lu.dot   # then dot -Tsvg lu.dot > lu.svg")]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> anyhow::Result<()> {
    let of = Factorization {
        name: "lu",
        flow: lu,
        sequential,
        check: Matrix::check_lu,
        tasks: |n| n * n + steps(n).count(),
        graph,
        operations: 2.0 / 3.0,
    };
    tiles::main(&Cli::parse().flags, &of)
}

/// The factors, in the place of the matrix.
#[spawnable]
fn lu(matrix: Matrix) -> Vec<Vec<Tile>> {
    let n = matrix.tiles;
    flow!(|g| {
        let a: Vec<Vec<Handle<Tile>>> = (0..n)
            .map(|i| (0..n).map(|j| task!(g, make(matrix, i, j))).collect())
            .collect();
        for k in 0..n {
            task!(g, factor(rw(a[k][k])));
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

#[spawnable]
fn make(matrix: Matrix, i: usize, j: usize) -> Tile {
    DONE.add(1);
    matrix.make(i, j)
}

#[spawnable]
fn factor(tile: &mut [f64]) {
    DONE.add(1);
    kernels::lu(tile);
}

#[spawnable]
fn solve_row(tile: &mut [f64], factored: &[f64]) {
    DONE.add(1);
    kernels::solve_lower(tile, factored);
}

#[spawnable]
fn solve_column(tile: &mut [f64], factored: &[f64]) {
    DONE.add(1);
    kernels::solve_upper(tile, factored);
}

#[spawnable]
fn update(tile: &mut [f64], left: &[f64], above: &[f64]) {
    DONE.add(1);
    kernels::subtract_times(tile, left, above);
}

/// A call of a kernel, by the tiles that it uses.
#[derive(Clone, Copy)]
enum Step {
    Factor { k: usize },
    SolveRow { k: usize, j: usize },
    SolveColumn { i: usize, k: usize },
    Update { i: usize, j: usize, k: usize },
}

impl Step {
    /// The tile that the kernel changes.
    fn changes(self) -> Place {
        match self {
            Step::Factor { k } => (k, k),
            Step::SolveRow { k, j } => (k, j),
            Step::SolveColumn { i, k } => (i, k),
            Step::Update { i, j, .. } => (i, j),
        }
    }
}

/// The calls of the kernels, in the order of [`lu`].
fn steps(n: usize) -> impl Iterator<Item = Step> {
    (0..n).flat_map(move |k| {
        let rest = move || k + 1..n;
        let update = move |i| rest().map(move |j| Step::Update { i, j, k });
        std::iter::once(Step::Factor { k })
            .chain(rest().map(move |j| Step::SolveRow { k, j }))
            .chain(rest().map(move |i| Step::SolveColumn { i, k }))
            .chain(rest().flat_map(update))
    })
}

/// The same without tasks.
fn sequential(matrix: Matrix) -> Vec<Vec<Tile>> {
    let n = matrix.tiles;
    let row = |i| (0..n).map(move |j| matrix.make(i, j)).collect();
    let mut a: Vec<Vec<Tile>> = (0..n).map(row).collect();
    for step in steps(n) {
        let (i, j) = step.changes();
        let mut tile = std::mem::take(&mut a[i][j]);
        match step {
            Step::Factor { .. } => kernels::lu(&mut tile),
            Step::SolveRow { k, .. } => kernels::solve_lower(&mut tile, &a[k][k]),
            Step::SolveColumn { k, .. } => kernels::solve_upper(&mut tile, &a[k][k]),
            Step::Update { i, j, k } => kernels::subtract_times(&mut tile, &a[i][k], &a[k][j]),
        }
        a[i][j] = tile;
    }
    a
}

/// The tasks of [`lu`].
fn graph(n: usize) -> Graph<Place> {
    let mut graph = Graph::new();
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        graph.task("make", format_args!("{i},{j}"), &[(i, j)], &[]);
    }
    for step in steps(n) {
        match step {
            Step::Factor { k } => graph.task("factor", k, &[(k, k)], &[]),
            Step::SolveRow { k, j } => {
                graph.task("solve_row", format_args!("{k},{j}"), &[(k, j)], &[(k, k)]);
            }
            Step::SolveColumn { i, k } => {
                graph.task(
                    "solve_column",
                    format_args!("{i},{k}"),
                    &[(i, k)],
                    &[(k, k)],
                );
            }
            Step::Update { i, j, k } => graph.task(
                "update",
                format_args!("{i},{j} step {k}"),
                &[(i, j)],
                &[(i, k), (k, j)],
            ),
        }
    }
    graph
}
