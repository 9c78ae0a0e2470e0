//! Are numbers in order, and are they those that were to be sorted?

use anyhow::ensure;

use super::random::mix;

/// The same for two sequences if they hold the same numbers, in whatever order.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Checksum {
    count: usize,
    sum: u64,
    sum_of_mixed: u64,
}

impl Checksum {
    pub fn of(numbers: impl Iterator<Item = u64>) -> Self {
        numbers.fold(Self::default(), |checksum, number| Self {
            count: checksum.count + 1,
            sum: checksum.sum.wrapping_add(number),
            sum_of_mixed: checksum.sum_of_mixed.wrapping_add(mix(number)),
        })
    }

    /// # Errors
    /// If `sorted` is not in order, or does not hold the numbers that this is the checksum of.
    pub fn check(self, sorted: &[u64]) -> anyhow::Result<()> {
        ensure!(
            sorted.is_sorted(),
            "wrong answer: the numbers are not in order"
        );
        ensure!(
            Self::of(sorted.iter().copied()) == self,
            "wrong answer: in order, but these are not the numbers that were to be sorted"
        );
        Ok(())
    }
}

impl std::fmt::LowerHex for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sum.fmt(f)
    }
}
