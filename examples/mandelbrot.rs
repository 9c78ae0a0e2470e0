//! The Mandelbrot set as a square of numbers: after how many steps the point of each pixel is known to be outside.
//!
//! Shows a quadtree whose results are large: a job returns all numbers of its tile, and its parent joins four of them. How long a
//! tile takes depends on where it lies: inside the set a pixel takes all steps, far outside a few.

mod common;

use anyhow::ensure;
use clap::Parser;
use common::Mode;
use common::random::Random;
use serde::{Deserialize, Serialize};

/// A tile of this side is computed in one go.
const SMALL: u32 = 64;

/// The picture shows the real parts from `LEFT` and the imaginary parts from `TOP`, `WIDTH` of each. All are sums of few powers of
/// two, and so is the distance of pixels: points above and below the real axis are exact mirror images.
const LEFT: f64 = -2.0;
const TOP: f64 = -1.25;
const WIDTH: f64 = 2.5;

/// The area of the set, by counting pixels (Foerstemann, 2012); the picture has more, as it gives up after some steps.
const AREA: f64 = 1.5066;

/// Pixels that are computed again.
const TRIED: usize = 1000;

/// Computes a picture of the Mandelbrot set, 2^N pixels high and wide
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  mandelbrot\n  mandelbrot 9 --steps 100\n  mandelbrot 13 --compare"
)]
struct Cli {
    /// Height and width of the picture, as a power of two
    #[arg(default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=15))]
    n: u32,
    /// Steps after which a point counts as inside
    #[arg(long, default_value_t = 250)]
    steps: u16,
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
    let picture = Picture {
        side: 1 << cli.n,
        steps: cli.steps,
    };
    let all = Tile {
        left: 0,
        top: 0,
        side: picture.side,
    };
    let run = cli.mode.measure(
        || (),
        |()| mandelbrot(picture, all),
        |()| satin::seq!(mandelbrot(picture, all)),
        |counts| picture.check(counts),
    )?;
    let area = picture.area(&run.answer);
    let sum: u64 = run.answer.iter().map(|count| u64::from(*count)).sum();
    println!(
        "mandelbrot({0} x {0}) right, {sum} steps, area {area:.4}",
        picture.side
    );
    run.report();
    Ok(())
}

/// The numbers of a tile, row by row.
#[satin::spawnable]
fn mandelbrot(picture: Picture, tile: Tile) -> Vec<u16> {
    if tile.side <= SMALL {
        return picture.counts(tile);
    }
    let [a, b, c, d] = tile.quarters();
    let upper_left = mandelbrot(picture, a);
    let upper_right = mandelbrot(picture, b);
    let lower_left = mandelbrot(picture, c);
    let lower_right = mandelbrot(picture, d);
    let half = tile.side as usize / 2;
    let mut counts = beside(&upper_left, &upper_right, half);
    counts.extend(beside(&lower_left, &lower_right, half));
    counts
}

/// Two squares of that side, one beside the other.
fn beside(left: &[u16], right: &[u16], side: usize) -> Vec<u16> {
    let rows = left.chunks_exact(side).zip(right.chunks_exact(side));
    let rows = rows.flat_map(|(left, right)| [left, right]);
    rows.collect::<Vec<_>>().concat()
}

/// A square of pixels.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Tile {
    left: u32,
    top: u32,
    side: u32,
}

impl Tile {
    /// Upper left, upper right, lower left, lower right.
    fn quarters(self) -> [Self; 4] {
        let side = self.side / 2;
        [(0, 0), (side, 0), (0, side), (side, side)].map(|(right, down)| Self {
            left: self.left + right,
            top: self.top + down,
            side,
        })
    }
}

/// What is to be computed.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Picture {
    side: u32,
    steps: u16,
}

impl Picture {
    fn counts(self, tile: Tile) -> Vec<u16> {
        let (columns, rows) = (
            tile.left..tile.left + tile.side,
            tile.top..tile.top + tile.side,
        );
        rows.flat_map(|y| columns.clone().map(move |x| self.count(x, y)))
            .collect()
    }

    /// Steps until the point of that pixel is known to be outside, or all of them.
    fn count(self, x: u32, y: u32) -> u16 {
        let pixel = WIDTH / f64::from(self.side);
        let c_re = LEFT + (f64::from(x) + 0.5) * pixel;
        let c_im = TOP + (f64::from(y) + 0.5) * pixel;
        let (mut re, mut im) = (0.0, 0.0);
        for step in 0..self.steps {
            let (re_squared, im_squared) = (re * re, im * im);
            if re_squared + im_squared > 4.0 {
                return step;
            }
            im = 2.0 * re * im + c_im;
            re = re_squared - im_squared + c_re;
        }
        self.steps
    }

    /// The area of the pixels that count as inside.
    fn area(self, counts: &[u16]) -> f64 {
        let inside = counts.iter().filter(|count| **count == self.steps).count();
        inside as f64 * (WIDTH / f64::from(self.side)).powi(2)
    }

    /// The set is its own mirror image; its area is known; and some pixels are computed again.
    fn check(self, counts: &[u16]) -> anyhow::Result<()> {
        let side = self.side as usize;
        ensure!(
            counts.len() == side * side,
            "wrong answer: {} pixels instead of {side} x {side}",
            counts.len()
        );
        let rows = || counts.chunks_exact(side);
        ensure!(
            rows().eq(rows().rev()),
            "wrong answer: the upper half is no mirror image of the lower one"
        );
        let area = self.area(counts);
        ensure!(
            self.side < 256 || self.steps < 100 || (area / AREA - 1.0).abs() < 0.05,
            "wrong answer: an area of {area:.4}, but that of the set is {AREA}"
        );
        let mut random = Random::new(1);
        for _ in 0..TRIED {
            let (x, y) = (random.below(side), random.below(side));
            let (found, count) = (counts[y * side + x], self.count(x as u32, y as u32));
            ensure!(
                found == count,
                "wrong answer: {found} instead of {count} steps at column {x} of row {y}"
            );
        }
        Ok(())
    }
}
