//! The outcome of a task as it comes back if large parts of it are kept where they were made.
//!
//! A part is kept if the whole is larger than what a store would keep of such a task: what took long for its size comes home in any case, so
//! that it is not lost with the node that has made it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    HeldValue, ValueSize,
    codec::{self, CodecError},
    function::Packed,
    kinds::Output,
    loans, needs,
};

/// What a task gives: its result, then each changed `&mut` argument.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Microseconds that the task took.
    micros: u64,
    /// In their order.
    pub parts: Vec<OutcomePart>,
}

/// A part of an outcome.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OutcomePart {
    /// Its bytes.
    Here(#[serde(with = "serde_bytes")] Vec<u8>),
    /// It is kept where it was made.
    Kept(ValueSize),
}

/// Writes the parts of an outcome, on the node where they were made.
#[derive(Default)]
pub(crate) struct OutcomeWriter {
    parts: Vec<OutcomePart>,
    /// The values that are kept here.
    kept: Vec<HeldValue>,
    /// The shared values that the other parts mention.
    mentions: Vec<ValueSize>,
    error: Option<CodecError>,
}

impl OutcomeWriter {
    /// Writes one more part, and keeps it if it is large.
    pub(crate) fn add(&mut self, output: &dyn Output) {
        let (bytes, mentions) = needs::gather_sizes(|| output.write());
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        // Who has a part by its name alone does not know what it mentions.
        let is_kept = bytes.len() > loans::SMALL && mentions.is_empty() && needs::is_kept();
        self.parts.push(if is_kept {
            match needs::enter(bytes, &[]) {
                Some(value) => {
                    let named = value.name_and_size();
                    self.kept.push(value);
                    OutcomePart::Kept(named)
                }
                None => unreachable!("somebody keeps values"),
            }
        } else {
            for value in mentions {
                if self.mentions.iter().all(|known| known.name != value.name) {
                    self.mentions.push(value);
                }
            }
            OutcomePart::Here(bytes)
        });
    }

    /// The outcome as bytes, with the shared values that they mention, and the values that are kept.
    pub(crate) fn finish(self, took: Duration) -> Result<Packed, CodecError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let outcome = Outcome {
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            parts: self.parts,
        };
        let bytes = codec::write("serializing the outcome", &outcome, codec::Effort::ANY)?;
        Ok(Packed {
            bytes,
            needs: self.mentions,
            kept: self.kept,
        })
    }
}

impl Outcome {
    /// Reads an outcome.
    ///
    /// # Errors
    /// The bytes are none.
    pub(crate) fn read(bytes: &[u8]) -> Result<Outcome, CodecError> {
        codec::read("deserializing the outcome", bytes)
    }

    /// The time that the task took.
    #[must_use]
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

#[cfg(not(loom))] // which leaves the store out
#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::kinds::Carried;

    fn outcome(numbers: usize) -> (Outcome, usize) {
        crate::data::store();
        let mut writer = OutcomeWriter::default();
        writer.add(&Carried(7u64));
        writer.add(&Carried(vec![1.5f64; numbers]));
        let packed = writer.finish(Duration::from_micros(9)).expect("bytes");
        assert!(packed.needs.is_empty());
        let outcome = Outcome::read(&packed.bytes).expect("an outcome");
        assert_eq!(outcome.took(), Duration::from_micros(9));
        (outcome, packed.kept.len())
    }

    #[test]
    fn large_parts_are_kept_and_small_ones_come() {
        let (small, kept) = outcome(10);
        assert_eq!(kept, 0);
        assert!(matches!(
            &small.parts[..],
            [OutcomePart::Here(_), OutcomePart::Here(_)]
        ));
        let (large, kept) = outcome(10_000);
        assert_eq!(kept, 1);
        let [OutcomePart::Here(_), OutcomePart::Kept(value)] = &large.parts[..] else {
            panic!("{large:?}");
        };
        assert!(value.bytes > 80_000);
    }

    #[test]
    fn what_mentions_shared_values_comes() {
        crate::data::store();
        let mut writer = OutcomeWriter::default();
        let shared = crate::data::Shared::new(vec![3u8; 100_000]);
        writer.add(&Carried((shared, vec![1.5f64; 10_000])));
        let packed = writer.finish(Duration::ZERO).expect("bytes");
        assert_eq!((packed.needs.len(), packed.kept.len()), (1, 0));
    }
}
