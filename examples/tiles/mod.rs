//! Large matrices in square tiles, for the factorizations: their sizes, their random elements, and the check of what they have become.
#![allow(dead_code, reason = "every example uses its own part of this module")]

pub mod kernels;

use std::cell::Cell;

use anyhow::ensure;

use crate::common::Mode;
use crate::common::bits::{SameBits, checksum};
use crate::common::graph::{Graph, Picture};
use crate::common::input::parts;
use crate::common::progress::{Counter, Spinner};
use crate::common::random::{Random, mix};

/// The elements of a tile, row by row.
pub type Tile = Vec<f64>;

/// Vectors by which factors are tried.
const TRIED: usize = 2;

/// What the examples take from the command line.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    sizes: Sizes,
    /// Where the pseudo-random sequence starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    picture: Picture,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

/// Tasks that are done in this process.
pub static DONE: Counter = Counter::new();

/// A tile by its row and column.
pub type Place = (usize, usize);

/// A kind of factorization.
pub struct Factorization {
    pub name: &'static str,
    /// With tasks.
    pub flow: fn(Matrix) -> Vec<Vec<Tile>>,
    /// The same without tasks.
    pub sequential: fn(Matrix) -> Vec<Vec<Tile>>,
    /// How far the factors' product is from the matrix.
    pub check: fn(&Matrix, &[Vec<Tile>]) -> anyhow::Result<f64>,
    /// The number of its tasks, for so many tiles in a row.
    pub tasks: fn(usize) -> usize,
    /// These tasks.
    pub graph: fn(usize) -> Graph<Place>,
    /// Floating-point operations, in cubes of the number of rows.
    pub operations: f64,
}

/// The main program of an example: factors a random matrix.
///
/// # Errors
/// If the sizes make no sense, a file cannot be written, or the answer is wrong.
pub fn main(flags: &Flags, of: &Factorization) -> anyhow::Result<()> {
    satin::run(flags.satin.clone(), || run(flags, of))
}

fn run(flags: &Flags, of: &Factorization) -> anyhow::Result<()> {
    let matrix = flags.sizes.matrix(flags.seed)?;
    let size = matrix.size;
    flags.picture.write(of.name, || (of.graph)(matrix.tiles))?;
    let tasks = (of.tasks)(matrix.tiles);
    let spinner = Spinner::start(move || DONE.tasks(tasks));
    let (same, residual) = (SameBits::default(), Cell::new(0.0));
    let run = flags.mode.measure(
        || DONE.reset(),
        |()| (of.flow)(matrix),
        |()| (of.sequential)(matrix),
        |factors| {
            residual.set((of.check)(&matrix, factors)?);
            same.check(checksum(factors.iter().flatten().flatten()))
        },
    )?;
    drop(spinner);
    println!(
        "{}({size}) right, {tasks} tasks, residual {:.1e}, checksum {:016x}",
        of.name,
        residual.get(),
        checksum(run.answer.iter().flatten().flatten())
    );
    run.report();
    let operations = of.operations * (size as f64).powi(3);
    println!("{:.2} GFLOP/s", run.giga(operations));
    Ok(())
}

/// How large the matrix and its tiles are.
#[derive(clap::Args, Clone, Copy)]
struct Sizes {
    /// Rows and columns of the matrix
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=65536))]
    size: u32,
    /// Rows and columns of a tile
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8192))]
    tile: u32,
}

impl Sizes {
    /// The matrix that has these sizes.
    ///
    /// # Errors
    /// If the matrix has no such tiles.
    fn matrix(self, seed: u64) -> anyhow::Result<Matrix> {
        let [size, tile] = [self.size, self.tile].map(|number| number as usize);
        let tiles = parts(size, tile)?;
        Ok(Matrix {
            size,
            tile,
            tiles,
            seed,
        })
    }
}

/// A random matrix whose factors need no pivoting, as its diagonal outweighs the rest: it is named by its numbers, so each task can make
/// the tile that it needs.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Matrix {
    /// Rows and columns.
    pub size: usize,
    /// Rows and columns of a tile.
    pub tile: usize,
    /// Tiles in a row or column.
    pub tiles: usize,
    seed: u64,
}

impl Matrix {
    /// An element: from -1 to 1, and far above on the diagonal.
    fn element(&self, row: usize, column: usize) -> f64 {
        let place = (row as u64) << 32 | column as u64;
        let random = Random::new(mix(self.seed ^ mix(place))).signed();
        match row == column {
            true => random + 2.0 * self.size as f64,
            false => random,
        }
    }

    /// The tile in row `i` and column `j` of tiles.
    pub fn make(&self, i: usize, j: usize) -> Tile {
        let [rows, columns] = [i, j].map(|at| at * self.tile..(at + 1) * self.tile);
        rows.flat_map(|row| columns.clone().map(move |column| (row, column)))
            .map(|(row, column)| self.element(row, column))
            .collect()
    }

    /// The product with a vector; `is_symmetric`: the upper half is the lower one.
    fn times(&self, x: &[f64], is_symmetric: bool) -> Vec<f64> {
        let element = |row: usize, column: usize| match is_symmetric && column > row {
            true => self.element(column, row),
            false => self.element(row, column),
        };
        let times = |row| (x.iter().zip(0..)).map(move |(x, column)| x * element(row, column));
        (0..self.size).map(|row| times(row).sum()).collect()
    }

    /// How far L U is from the matrix, by the products with random vectors, in parts of the greatest element of these.
    ///
    /// # Errors
    /// If it is too far.
    pub fn check_lu(&self, factors: &[Vec<Tile>]) -> anyhow::Result<f64> {
        self.check(factors, |x| {
            let product = |row: &[f64], x: &[f64]| -> f64 {
                row.iter().zip(x).map(|(element, x)| element * x).sum()
            };
            let rows = || self.rows(factors).zip(0..);
            let upper: Vec<f64> = rows()
                .map(|(row, at)| product(&row[at..], &x[at..]))
                .collect();
            let lower = |(row, at): (Vec<f64>, usize)| upper[at] + product(&row[..at], &upper);
            (self.times(x, false), rows().map(lower).collect())
        })
    }

    /// The same for L L^T, of which there are the tiles in the lower half.
    ///
    /// # Errors
    /// If it is too far.
    pub fn check_cholesky(&self, factors: &[Vec<Tile>]) -> anyhow::Result<f64> {
        self.check(factors, |x| {
            let rows = || self.rows(factors).zip(1..);
            let mut upper = vec![0.0; self.size];
            for ((row, length), x) in rows().zip(x) {
                for (sum, element) in upper.iter_mut().zip(&row[..length]) {
                    *sum += element * x;
                }
            }
            let lower = |(row, length): (Vec<f64>, usize)| {
                let pairs = row[..length].iter().zip(&upper);
                pairs.map(|(element, x)| element * x).sum()
            };
            (self.times(x, true), rows().map(lower).collect())
        })
    }

    /// `products` are those of a vector with the matrix and with its factors.
    fn check(
        &self,
        factors: &[Vec<Tile>],
        products: impl Fn(&[f64]) -> (Vec<f64>, Vec<f64>),
    ) -> anyhow::Result<f64> {
        ensure!(
            factors.len() == self.tiles,
            "wrong answer: {} rows of tiles",
            factors.len()
        );
        let mut random = Random::new(!self.seed);
        let mut residual: f64 = 0.0;
        for _ in 0..TRIED {
            let x: Vec<f64> = (0..self.size).map(|_| random.signed()).collect();
            let (expected, found) = products(&x);
            let greatest = |most: f64, element: f64| most.max(element.abs());
            let largest = expected.iter().copied().fold(0.0, greatest);
            for (row, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let difference = (expected - found).abs() / largest;
                // Not `>`: a NaN is wrong, too.
                ensure!(
                    difference <= 10.0 * self.size as f64 * f64::EPSILON,
                    "wrong answer: row {row} of the factors' product times a vector is {found}, not {expected}"
                );
                residual = residual.max(difference);
            }
        }
        Ok(residual)
    }

    /// The rows of a matrix in tiles, as far as there are tiles.
    fn rows(&self, tiles: &[Vec<Tile>]) -> impl Iterator<Item = Vec<f64>> {
        let n = self.tile;
        let row_of = move |tiles: &Vec<Tile>, at: usize| {
            let parts: Vec<&[f64]> = tiles.iter().map(|tile| &tile[at * n..][..n]).collect();
            parts.concat()
        };
        (tiles.iter()).flat_map(move |tiles| (0..n).map(move |at| row_of(tiles, at)))
    }
}
