//! The product of two square matrices: by seven products of quarters (Strassen, "Gaussian elimination is not optimal", 1969), or
//! with `--plain` by eight.
//!
//! Shows results that are large, and arguments of two kinds: the seven are given matrices by value, as they multiply sums
//! that nobody else needs; the eight borrow them, as each quarter is a factor of two products.

mod common;

use std::ops::{Add, Sub};

use anyhow::ensure;
use clap::Parser;
use common::Mode;
use common::random::{Random, mix};
use serde::{Deserialize, Serialize};

/// Matrices of this size, or of an odd one, are multiplied in one go.
const SMALL: usize = 64;

/// Vectors by which the product is tried.
const TRIED: usize = 4;

/// Multiplies two random matrices of size N x N
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  strassen\n  strassen --plain\n  strassen 256 --seed 7\n  strassen 2048 --compare"
)]
struct Cli {
    /// Rows and columns
    #[arg(default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
    n: u32,
    /// Multiply by eight products of quarters, which are borrowed
    #[arg(long)]
    plain: bool,
    /// Where the pseudo-random sequence starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let mut random = Random::new(cli.seed);
    let size = cli.n as usize;
    let a = Matrix::random(size, &mut random);
    let b = Matrix::random(size, &mut random);
    let setup = || (a.clone(), b.clone());
    let check = |product: &Matrix| check(&a, &b, product, &mut random.clone());
    let (name, run) = if cli.plain {
        let run = cli.mode.measure(
            setup,
            |(a, b)| product(&a, &b),
            |(a, b)| satin::seq!(product(&a, &b)),
            check,
        )?;
        ("plain", run)
    } else {
        let run = cli.mode.measure(
            setup,
            |(a, b)| strassen(a, b),
            |(a, b)| satin::seq!(strassen(a, b)),
            check,
        )?;
        ("strassen", run)
    };
    let elements = run.answer.elements.iter();
    let checksum = elements.fold(0, |checksum, element| mix(checksum ^ element.to_bits()));
    println!("{name}({size}) right, checksum {checksum:016x}");
    run.report();
    Ok(())
}

/// Of a product `c` of `a` and `b`, c * x is a * (b * x) for any vector x, and a wrong one is found out by each random x at least
/// every second time (Freivalds, "Probabilistic machines can use less running time", 1977).
fn check(a: &Matrix, b: &Matrix, c: &Matrix, random: &mut Random) -> anyhow::Result<()> {
    ensure!(
        c.size == a.size && c.elements.len() == a.elements.len(),
        "wrong answer: a matrix of size {}",
        c.size
    );
    // Rounding errors of Strassen's method grow with the size (Higham, "Accuracy and stability of numerical algorithms").
    let most = 1e-12 * (a.size * a.size) as f64;
    for _ in 0..TRIED {
        let x: Vec<f64> = (0..a.size).map(|_| random.signed()).collect();
        let (expected, found) = (a.times_vector(&b.times_vector(&x)), c.times_vector(&x));
        for (row, (expected, found)) in expected.iter().zip(&found).enumerate() {
            ensure!(
                (expected - found).abs() <= most,
                "wrong answer: row {row} of the product times a vector is {found}, not {expected}"
            );
        }
    }
    Ok(())
}

/// By seven products of sums of quarters.
#[satin::spawnable]
fn strassen(a: Matrix, b: Matrix) -> Matrix {
    if !a.has_quarters() {
        return a.times(&b);
    }
    let [a11, a12, a21, a22] = a.quarters();
    let [b11, b12, b21, b22] = b.quarters();
    let m1 = strassen(&a11 + &a22, &b11 + &b22);
    let m2 = strassen(&a21 + &a22, b11.clone());
    let m3 = strassen(a11.clone(), &b12 - &b22);
    let m4 = strassen(a22.clone(), &b21 - &b11);
    let m5 = strassen(&a11 + &a12, b22.clone());
    let m6 = strassen(&a21 - &a11, &b11 + &b12);
    let m7 = strassen(&a12 - &a22, &b21 + &b22);
    Matrix::of_quarters([
        &(&m1 + &m4) + &(&m7 - &m5),
        &m3 + &m5,
        &m2 + &m4,
        &(&m1 - &m2) + &(&m3 + &m6),
    ])
}

/// By eight products of quarters.
#[satin::spawnable]
fn product(a: &Matrix, b: &Matrix) -> Matrix {
    if !a.has_quarters() {
        return a.times(b);
    }
    let [a11, a12, a21, a22] = a.quarters();
    let [b11, b12, b21, b22] = b.quarters();
    let (m1, m2) = (product(&a11, &b11), product(&a12, &b21));
    let (m3, m4) = (product(&a11, &b12), product(&a12, &b22));
    let (m5, m6) = (product(&a21, &b11), product(&a22, &b21));
    let (m7, m8) = (product(&a21, &b12), product(&a22, &b22));
    Matrix::of_quarters([&m1 + &m2, &m3 + &m4, &m5 + &m6, &m7 + &m8])
}

/// A square matrix, row by row.
#[derive(Clone, Serialize, Deserialize)]
struct Matrix {
    size: usize,
    elements: Vec<f64>,
}

impl Matrix {
    /// With elements from -1 to 1.
    fn random(size: usize, random: &mut Random) -> Self {
        let elements = (0..size * size).map(|_| random.signed()).collect();
        Self { size, elements }
    }

    fn zero(size: usize) -> Self {
        let elements = vec![0.0; size * size];
        Self { size, elements }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.elements.chunks_exact(self.size)
    }

    /// Is the matrix worth dividing, and can it be?
    fn has_quarters(&self) -> bool {
        self.size > SMALL && self.size.is_multiple_of(2)
    }

    /// Upper left, upper right, lower left, lower right.
    fn quarters(&self) -> [Self; 4] {
        let size = self.size / 2;
        [(0, 0), (0, size), (size, 0), (size, size)].map(|(top, left)| {
            let rows = self.rows().skip(top).take(size);
            let rows: Vec<&[f64]> = rows.map(|row| &row[left..left + size]).collect();
            let elements = rows.concat();
            Self { size, elements }
        })
    }

    fn of_quarters([upper_left, upper_right, lower_left, lower_right]: [Self; 4]) -> Self {
        let size = 2 * upper_left.size;
        let upper = upper_left.rows().zip(upper_right.rows());
        let lower = lower_left.rows().zip(lower_right.rows());
        let rows = upper.chain(lower).flat_map(|(left, right)| [left, right]);
        let elements = rows.collect::<Vec<_>>().concat();
        Self { size, elements }
    }

    /// The product, in one go.
    fn times(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.size);
        let rows = product.elements.chunks_exact_mut(self.size);
        for (row, own) in rows.zip(self.rows()) {
            for (factor, others) in own.iter().zip(other.rows()) {
                for (sum, element) in row.iter_mut().zip(others) {
                    *sum += factor * element;
                }
            }
        }
        product
    }

    fn times_vector(&self, vector: &[f64]) -> Vec<f64> {
        let product = |row: &[f64]| row.iter().zip(vector).map(|(a, b)| a * b).sum();
        self.rows().map(product).collect()
    }

    fn with(&self, other: &Self, operation: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.elements.iter().zip(&other.elements);
        Self {
            size: self.size,
            elements: pairs.map(|(a, b)| operation(*a, *b)).collect(),
        }
    }
}

impl Add for &Matrix {
    type Output = Matrix;

    fn add(self, other: Self) -> Matrix {
        self.with(other, f64::add)
    }
}

impl Sub for &Matrix {
    type Output = Matrix;

    fn sub(self, other: Self) -> Matrix {
        self.with(other, f64::sub)
    }
}
