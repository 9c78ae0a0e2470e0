//! Answers made of floating-point numbers that are to be the same to the last bit, however they were computed.

use std::cell::Cell;

use anyhow::ensure;

use super::random::mix;

/// A checksum in which every bit of every number counts, and their order.
pub fn checksum<'n>(numbers: impl IntoIterator<Item = &'n f64>) -> u64 {
    let numbers = numbers.into_iter();
    numbers.fold(0, |checksum, number| mix(checksum ^ number.to_bits()))
}

/// The checksum of the first answer, which all others must have.
#[derive(Default)]
pub struct SameBits(Cell<Option<u64>>);

impl SameBits {
    /// # Errors
    /// If there was another answer before.
    pub fn check(&self, checksum: u64) -> anyhow::Result<()> {
        let first = self.0.get().unwrap_or(checksum);
        ensure!(
            checksum == first,
            "wrong answer: the bits are not those of the sequential program, checksum {checksum:016x} instead of {first:016x}"
        );
        self.0.set(Some(first));
        Ok(())
    }
}
