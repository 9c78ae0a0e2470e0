//! A square plate, hot at its upper edge and cold at the others, in square blocks: how its heat spreads, by relaxation, until a sweep
//! changes little.
#![allow(dead_code, reason = "every example uses its own part of this module")]

pub mod kernels;

use std::cell::Cell;

use anyhow::ensure;
use satin::{Flow, Handle, Many, many, spawnable, task};

use crate::common::Mode;
use crate::common::bits::checksum;
use crate::common::graph::{self, Graph, Picture};
use crate::common::input::parts;
use crate::common::progress::{Counter, Spinner};

/// The heat of a block's points, row by row.
pub type Block = Vec<f64>;

/// What the examples take from the command line.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    picture: Picture,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

/// Tasks that are done in this process.
pub static DONE: Counter = Counter::new();

/// A method of relaxation.
pub struct Method<D> {
    pub name: &'static str,
    /// With tasks.
    pub flow: fn(Plate) -> Heat,
    /// The same without tasks.
    pub sequential: fn(Plate) -> Heat,
    /// A sweep over a plate in one piece.
    pub sweep: fn(&mut Grid) -> f64,
    /// The tasks, if all sweeps are made.
    pub graph: fn(&Plate) -> Graph<D>,
}

/// The main program of an example: spreads heat by that method.
///
/// # Errors
/// If the options make no sense, a file cannot be written, or the answer is wrong.
pub fn main<D: graph::Data>(flags: &Flags, method: &Method<D>) -> anyhow::Result<()> {
    satin::run(flags.satin.clone(), || run(flags, method))
}

fn run<D: graph::Data>(flags: &Flags, method: &Method<D>) -> anyhow::Result<()> {
    let plate = flags.options.plate()?;
    flags
        .picture
        .write(method.name, || (method.graph)(&plate))?;
    let tasks = plate.blocks * plate.blocks * plate.sweeps as usize;
    let spinner = Spinner::start(move || DONE.tasks(tasks));
    let run = flags.mode.measure(
        || DONE.reset(),
        |()| (method.flow)(plate),
        |()| (method.sequential)(plate),
        |heat| plate.check(heat, method.sweep),
    )?;
    drop(spinner);
    let heat = &run.answer;
    println!(
        "{}({}) right after {} sweeps, change {:.3e}, centre {:.4}, checksum {:016x}",
        method.name,
        plate.size(),
        heat.sweeps,
        heat.change,
        plate.centre(heat),
        checksum(heat.blocks.iter().flatten().flatten())
    );
    run.report();
    Ok(())
}

#[spawnable]
fn cold_block(tile: usize) -> Block {
    vec![0.0; tile * tile]
}

#[spawnable]
fn largest(changes: &Many<f64>) -> f64 {
    changes.iter().copied().fold(0.0, f64::max)
}

/// The plate, and when to stop.
#[derive(clap::Args, Clone, Copy)]
struct Options {
    /// Points in a row or column of the plate
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=32768))]
    size: u32,
    /// Points in a row or column of a block
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=8192))]
    tile: u32,
    /// Sweeps over the plate, at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    sweeps: u32,
    /// Stop once no point changes by more than this in a sweep
    #[arg(long, value_name = "HEAT", default_value_t = 1e-6)]
    tolerance: f64,
    /// Sweeps from one look at the changes to the next
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

impl Options {
    /// The plate that has these sizes.
    ///
    /// # Errors
    /// If it has no such blocks, or the tolerance is none.
    fn plate(self) -> anyhow::Result<Plate> {
        let [size, tile] = [self.size, self.tile].map(|number| number as usize);
        let blocks = parts(size, tile)?;
        ensure!(
            self.tolerance >= 0.0,
            "--tolerance {} is not a difference of heat: it is 0 or more",
            self.tolerance
        );
        Ok(Plate {
            tile,
            blocks,
            sweeps: self.sweeps,
            tolerance: self.tolerance,
            every: self.every,
        })
    }
}

/// A plate in blocks.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Plate {
    /// Points in a row or column of a block.
    pub tile: usize,
    /// Blocks in a row or column.
    pub blocks: usize,
    /// Sweeps at most.
    pub sweeps: u32,
    /// No more than this is hardly a change.
    pub tolerance: f64,
    every: u32,
}

/// What is beside a block.
#[derive(Clone, Copy)]
pub enum Beside {
    Hot,
    Cold,
    Block(usize, usize),
}

impl Beside {
    /// The place of the block, if it is one.
    pub fn place(self) -> Option<(usize, usize)> {
        match self {
            Beside::Block(i, j) => Some((i, j)),
            Beside::Hot | Beside::Cold => None,
        }
    }
}

/// The row or column beside a block.
#[derive(Clone, Copy)]
pub enum Edge {
    Hot,
    Cold,
    /// Of that block, its edge of that number: see [`kernels::edges`].
    Of((usize, usize), usize),
}

/// What has become of the plate.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Heat {
    pub blocks: Vec<Vec<Block>>,
    /// Sweeps until the end.
    pub sweeps: u32,
    /// The largest change in the last sweep.
    pub change: f64,
}

impl Plate {
    /// Is the change of this sweep looked at?
    fn looks_at(&self, sweep: u32) -> bool {
        sweep.is_multiple_of(self.every) || sweep == self.sweeps
    }

    /// The rows and columns of all blocks.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n = self.blocks;
        (0..n).flat_map(move |i| (0..n).map(move |j| (i, j)))
    }

    /// What is above a block, below it, on its left and on its right.
    pub fn beside(&self, i: usize, j: usize) -> [Beside; 4] {
        let inside = |i: Option<usize>, j: Option<usize>| match (i, j) {
            (None, _) => Beside::Hot,
            (Some(i), Some(j)) if i < self.blocks && j < self.blocks => Beside::Block(i, j),
            _ => Beside::Cold,
        };
        [
            inside(i.checked_sub(1), Some(j)),
            inside(Some(i + 1), Some(j)),
            inside(Some(i), j.checked_sub(1)),
            inside(Some(i), Some(j + 1)),
        ]
    }

    /// The rows and columns beside a block: above it, below it, on its left and on its right.
    pub fn edges_beside(&self, i: usize, j: usize) -> [Edge; 4] {
        let beside = self.beside(i, j);
        // The edge of the block above that faces this one is its last row.
        [1, 0, 3, 2].map(|side| match beside[side ^ 1] {
            Beside::Hot => Edge::Hot,
            Beside::Cold => Edge::Cold,
            Beside::Block(i, j) => Edge::Of((i, j), side),
        })
    }

    /// Points in a row or column.
    fn size(&self) -> usize {
        self.blocks * self.tile
    }

    /// Compares with the plate in one piece, whose points `sweep` relaxes.
    ///
    /// # Errors
    /// If a bit is different.
    fn check(&self, heat: &Heat, sweep: impl Fn(&mut Grid) -> f64) -> anyhow::Result<()> {
        let mut grid = Grid::new(self.size());
        let (sweeps, change) = self.until_still(|| sweep(&mut grid));
        ensure!(
            (heat.sweeps, heat.change.to_bits()) == (sweeps, change.to_bits()),
            "wrong answer: {} sweeps and a change of {}, but the plate in one piece has {sweeps} and {change}",
            heat.sweeps,
            heat.change
        );
        let n = self.tile;
        for (i, j) in self.places() {
            for (row, y) in heat.blocks[i][j].chunks_exact(n).zip(i * n..) {
                for (found, x) in row.iter().zip(j * n..) {
                    let expected = grid.at(y, x);
                    ensure!(
                        found.to_bits() == expected.to_bits(),
                        "wrong answer: {found} in row {y}, column {x}, but the plate in one piece has {expected}"
                    );
                }
            }
        }
        Ok(())
    }

    /// Sweeps until one changes little. Returns the number of sweeps, and the largest change in the last.
    pub fn until_still(&self, mut sweep: impl FnMut() -> f64) -> (u32, f64) {
        let change = Cell::new(f64::INFINITY);
        self.sweeps(|| change.set(sweep()), || change.get(), |change| change)
    }

    /// The same of sweeps that are tasks, which leave the changes of all blocks there.
    pub fn until_still_in<'g>(
        &self,
        g: &Flow<'g>,
        changes: &[Handle<'g, f64>],
        sweep: impl FnMut(),
    ) -> (u32, f64) {
        let change = || task!(g, largest(many(changes.iter().copied())));
        self.sweeps(sweep, change, |change| *g.get(change))
    }

    /// The change of a sweep is asked for when the next is looked at: so tasks of many sweeps are under way while somebody waits for it.
    fn sweeps<C: Copy>(
        &self,
        mut sweep: impl FnMut(),
        change: impl Fn() -> C,
        value: impl Fn(C) -> f64,
    ) -> (u32, f64) {
        let mut last = None;
        for number in 1..=self.sweeps {
            sweep();
            if self.looks_at(number) {
                let change = change();
                let before = last.replace(change);
                if before.is_some_and(|before| value(before) <= self.tolerance) {
                    return (number, value(change));
                }
            }
        }
        (self.sweeps, last.map_or(f64::INFINITY, value))
    }

    /// Handles of its blocks, which are cold.
    pub fn cold_blocks<'g>(&self, g: &Flow<'g>) -> Vec<Vec<Handle<'g, Block>>> {
        let row = || {
            (0..self.blocks)
                .map(|_| task!(g, cold_block(self.tile)))
                .collect()
        };
        (0..self.blocks).map(|_| row()).collect()
    }

    /// The mean of the four points around the centre.
    fn centre(&self, heat: &Heat) -> f64 {
        let at = |y: usize, x: usize| {
            heat.blocks[y / self.tile][x / self.tile][y % self.tile * self.tile + x % self.tile]
        };
        let (low, high) = ((self.size() - 1) / 2, self.size() / 2);
        0.25 * (at(low, low) + at(low, high) + at(high, low) + at(high, high))
    }
}

/// A plate in one piece, with its edges.
pub struct Grid {
    /// Points in a row with both ends.
    length: usize,
    points: Vec<f64>,
}

impl Grid {
    fn new(size: usize) -> Self {
        let length = size + 2;
        let mut points = vec![0.0; length * length];
        points[..length].fill(1.0);
        Grid { length, points }
    }

    fn at(&self, y: usize, x: usize) -> f64 {
        self.points[(y + 1) * self.length + x + 1]
    }

    /// The places of the points that are not at an edge.
    fn inner(&self) -> impl Iterator<Item = usize> + use<> {
        let n = self.length;
        (1..n - 1).flat_map(move |y| y * n + 1..y * n + n - 1)
    }

    /// The mean of a point's neighbours.
    fn mean(points: &[f64], at: usize, n: usize) -> f64 {
        0.25 * (((points[at - n] + points[at + n]) + points[at + 1]) + points[at - 1])
    }

    /// A sweep in place.
    pub fn gauss_seidel(&mut self) -> f64 {
        let mut most: f64 = 0.0;
        for at in self.inner() {
            let heat = Self::mean(&self.points, at, self.length);
            most = most.max((heat - self.points[at]).abs());
            self.points[at] = heat;
        }
        most
    }

    /// A sweep that looks at the points as they were before it.
    pub fn jacobi(&mut self) -> f64 {
        let mut most: f64 = 0.0;
        let old = self.points.clone();
        for at in self.inner() {
            self.points[at] = Self::mean(&old, at, self.length);
            most = most.max((self.points[at] - old[at]).abs());
        }
        most
    }
}
