//! A loop that spawns coarse leaves: the loss where a spawn costs next to no time but leaves must still be shared.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Case;

/// Time that a leaf is calibrated to take.
const LEAF: Duration = Duration::from_millis(2);

pub struct Flat {
    leaves: u32,
    steps: u64,
    expected: u64,
}

impl Flat {
    /// Calibrates the leaf on this machine, once for all implementations.
    pub fn new(leaves: u32) -> Self {
        let steps = steps_for(LEAF);
        Self {
            leaves,
            steps,
            expected: (0..leaves).map(|seed| spin(seed, steps)).sum(),
        }
    }
}

impl Case for Flat {
    fn title(&self) -> String {
        format!("flat, {} leaves of {} ms", self.leaves, LEAF.as_millis())
    }

    fn calls(&self) -> u64 {
        self.leaves.into()
    }

    fn seq(&mut self) -> u64 {
        flat_seq(black_box(self.leaves), black_box(self.steps))
    }

    fn satin(&mut self) -> u64 {
        flat_satin(black_box(self.leaves), black_box(self.steps))
    }

    fn rayon(&mut self) -> u64 {
        flat_rayon(black_box(self.leaves), black_box(self.steps))
    }

    fn chili(&mut self, scope: &mut chili::Scope<'_>) -> u64 {
        flat_chili(scope, black_box(0..self.leaves), black_box(self.steps))
    }

    fn check(&self, answer: u64) -> bool {
        answer == self.expected
    }
}

/// How many steps [`spin`] makes in `time`; by the fastest of some tries, for the others were disturbed.
pub fn steps_for(time: Duration) -> u64 {
    const STEPS: u64 = 1 << 20;
    let fastest = (0..10)
        .map(|seed| {
            let start = Instant::now();
            black_box(spin(black_box(seed), black_box(STEPS)));
            start.elapsed()
        })
        .min()
        .expect("ten tries have a fastest");
    (STEPS as f64 * time.as_secs_f64() / fastest.as_secs_f64()) as u64
}

/// The work of a leaf: a chain of multiplications, each waiting for the one before. Never inlined, so that it is
/// the same machine code for all implementations.
#[inline(never)]
pub fn spin(seed: u32, steps: u64) -> u64 {
    let mut x = u64::from(seed);
    for _ in 0..steps {
        // Knuth's MMIX generator.
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    // 32 bits, so that sums do not overflow.
    x >> 32
}

fn flat_seq(leaves: u32, steps: u64) -> u64 {
    let mut sum = 0;
    for seed in 0..leaves {
        sum += spin(seed, steps);
    }
    sum
}

#[satin::spawnable]
fn leaf_satin(seed: u32, steps: u64) -> u64 {
    spin(seed, steps)
}

#[satin::spawnable]
fn flat_satin(leaves: u32, steps: u64) -> u64 {
    let mut sum = 0;
    for seed in 0..leaves {
        sum += satin::spawn!(leaf_satin(seed, steps));
    }
    sum
}

/// A parallel iterator, as a user of rayon would write it; without `with_max_len(1)` rayon may put several leaves
/// into one piece that cannot be shared at the end.
fn flat_rayon(leaves: u32, steps: u64) -> u64 {
    use rayon::prelude::*;
    (0..leaves)
        .into_par_iter()
        .with_max_len(1)
        .map(|seed| spin(seed, steps))
        .sum()
}

/// chili has no loops: halves the range down to single leaves.
fn flat_chili(scope: &mut chili::Scope<'_>, seeds: std::ops::Range<u32>, steps: u64) -> u64 {
    match seeds.len() {
        0 => 0,
        1 => spin(seeds.start, steps),
        len => {
            let middle = seeds.start + len as u32 / 2;
            let (a, b) = scope.join(
                |s| flat_chili(s, seeds.start..middle, steps),
                |s| flat_chili(s, middle..seeds.end, steps),
            );
            a + b
        }
    }
}
