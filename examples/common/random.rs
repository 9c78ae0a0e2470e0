//! Pseudo-random numbers, the same for a seed on every machine and in every release.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), an endless iterator.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Evenly distributed in `0..limit`, as nearly as 64 bits allow.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.draw()) * limit as u128) >> 64) as usize
    }

    /// Evenly distributed from -1 up to 1, with 53 bits.
    pub fn signed(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

impl Iterator for Random {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.draw())
    }
}

/// A permutation of the 64-bit numbers in which no pattern survives.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
