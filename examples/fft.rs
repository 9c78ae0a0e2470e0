//! The fast Fourier transform of random samples (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
//! series", 1965), by value.
//!
//! Shows a type of one's own in arguments and results, which is plain data and so travels as it lies in memory, and `sequential_if`:
//! below some length the function is plain Rust.

mod common;

use std::f64::consts::TAU;
use std::ops::{Add, Mul, Sub};

use anyhow::ensure;
use bytemuck::{Pod, Zeroable};
use clap::Parser;
use common::Mode;
use common::random::{Random, mix};
use serde::{Deserialize, Serialize};

/// Frequencies that are computed by the definition, too.
const TRIED: usize = 8;

/// Transforms 2^N random samples
#[derive(Parser)]
#[command(after_help = "Examples:\n  fft\n  fft 16 --seed 7\n  fft 23 --compare")]
struct Cli {
    /// The number of samples, as a power of two
    #[arg(default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=28))]
    n: u32,
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
    let samples: Vec<Complex> = (0..1u64 << cli.n)
        .map(|_| Complex::new(random.signed(), random.signed()))
        .collect();
    let run = cli.mode.measure(
        || samples.clone(),
        |samples| fft(samples),
        |samples| satin::seq!(fft(samples)),
        |spectrum| check(&samples, spectrum, &mut random.clone()),
    )?;
    let checksum = run.answer.iter().fold(0, |checksum, value| {
        mix(mix(checksum ^ value.re.to_bits()) ^ value.im.to_bits())
    });
    println!("fft(2^{}) right, checksum {checksum:016x}", cli.n);
    run.report();
    Ok(())
}

/// The energy must be that of the samples (Parseval), and some values those of the definition.
fn check(samples: &[Complex], spectrum: &[Complex], random: &mut Random) -> anyhow::Result<()> {
    ensure!(
        spectrum.len() == samples.len(),
        "wrong answer: {} values",
        spectrum.len()
    );
    let n = samples.len();
    let energy = |values: &[Complex]| values.iter().map(|value| value.norm()).sum::<f64>();
    let (expected, found) = (energy(samples), energy(spectrum) / n as f64);
    ensure!(
        (found / expected - 1.0).abs() < 1e-9,
        "wrong answer: the spectrum has an energy of {found}, the samples of {expected}"
    );
    for frequency in (0..TRIED).map(|_| random.below(n)) {
        let defined = (samples.iter().zip(0..))
            .map(|(sample, place)| *sample * Complex::root(frequency * place % n, n))
            .fold(Complex::new(0.0, 0.0), Complex::add);
        let difference = (defined - spectrum[frequency]).norm().sqrt();
        ensure!(
            difference < 1e-9 * expected.sqrt(),
            "wrong answer: at frequency {frequency} {:?}, by definition {defined:?}",
            spectrum[frequency]
        );
    }
    Ok(())
}

/// The spectrum of the samples, whose number is a power of two. Few of them, 64 KiB, are not divided into jobs: they take less
/// than a millisecond.
#[satin::spawnable(sequential_if = samples.len() <= 4096)]
fn fft(samples: Vec<Complex>) -> Vec<Complex> {
    if samples.len() == 1 {
        return samples;
    }
    let even = fft(samples.iter().step_by(2).copied().collect());
    let odd = fft(samples.iter().skip(1).step_by(2).copied().collect());
    combine(&even, &odd)
}

/// The spectrum of samples, from the spectra of those at even and at odd places.
fn combine(even: &[Complex], odd: &[Complex]) -> Vec<Complex> {
    let n = 2 * even.len();
    let turned: Vec<Complex> = (odd.iter().zip(0..))
        .map(|(value, frequency)| *value * Complex::root(frequency, n))
        .collect();
    let pairs = || even.iter().zip(&turned);
    let lower = pairs().map(|(even, odd)| *even + *odd);
    let upper = pairs().map(|(even, odd)| *even - *odd);
    lower.chain(upper).collect()
}

/// Plain data: vectors of it travel in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn new(re: f64, im: f64) -> Self {
        Self { re, im }
    }

    /// That power of the first root of unity of order `n`, clockwise.
    fn root(power: usize, n: usize) -> Self {
        let (sin, cos) = (-TAU * power as f64 / n as f64).sin_cos();
        Self::new(cos, sin)
    }

    /// The square of the distance from 0.
    fn norm(self) -> f64 {
        self.re * self.re + self.im * self.im
    }
}

impl Add for Complex {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }
}

impl Sub for Complex {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.re - other.re, self.im - other.im)
    }
}

impl Mul for Complex {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::new(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )
    }
}
