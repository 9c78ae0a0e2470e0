//! A job as it travels: what leaves a process, and what comes back.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, JobId, Repair};

/// A job that can be run anywhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parcel {
    /// Its place in the execution tree.
    pub id: JobId,
    /// What to run: the function's place among the registered ones, which every node of a pool shares (see
    /// [`super::program_hash`]).
    pub function: u32,
    /// The arguments, as the function's vtable reads them.
    #[serde(with = "serde_bytes")]
    pub arguments: Vec<u8>,
    /// What it computes.
    pub fingerprint: Fingerprint,
    /// Shared values that must be at hand before it starts.
    pub needs: Vec<ValueName>,
    /// Counts the masters: that of its root job.
    pub term: u32,
    /// What is known of earlier runs.
    pub repair: Repair,
}

/// What comes back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Result and changed `&mut` arguments, and the shared values that they mention.
    Result {
        /// As the function's vtable writes them.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Must be at hand before the owner reads them.
        needs: Vec<ValueName>,
    },
    /// It panicked, with this message.
    Panicked(String),
    /// It could not be run there: here it can.
    Refused(String),
    /// It was aborted there, on request.
    Aborted,
}

impl Answer {
    /// Bytes that it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Answer::Result { bytes, needs } => bytes.len() + needs.len() * size_of::<ValueName>(),
            Answer::Panicked(text) | Answer::Refused(text) => text.len(),
            Answer::Aborted => 0,
        }
    }
}

/// The name of a shared value: the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueName(pub [u8; 32]);

impl std::fmt::Debug for ValueName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "ValueName({a:02x}{b:02x}{c:02x}{d:02x}..)")
    }
}

/// What a bound is called everywhere: its stable name, hashed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BoundName(pub u64);

/// Which root job something belongs to: the first element of its jobs' ids, in the term of a master.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootTag {
    /// Counts the masters of the pool.
    pub term: u32,
    /// Counts the root jobs of a `main`.
    pub number: u32,
}

/// A bound's value, as it travels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Whose.
    pub bound: BoundName,
    /// It holds for this root job's jobs.
    pub root: RootTag,
    /// As the bound's lattice writes it.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}
