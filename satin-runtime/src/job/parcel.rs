//! A job as it travels: what leaves a process, and what comes back.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, History, JobId};

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
    /// What its root job computes: with the first element of the id, that root job's [`RootName`].
    pub root: Fingerprint,
    /// What is known of earlier runs.
    pub history: History,
}

impl Parcel {
    /// The run of a root job that it belongs to.
    #[must_use]
    pub fn root_run(&self) -> RootRun {
        let (term, fingerprint) = (self.term, self.root);
        let name = RootName {
            number: self.id.root_number(),
            fingerprint,
        };
        RootRun { term, name }
    }
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
    /// The job was not run, for that reason.
    #[must_use]
    pub fn refused(why: &str) -> Answer {
        Answer::Refused(why.into())
    }

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

/// A root job of one master's `main`: the first element of its jobs' ids, in that master's term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootTag {
    /// Counts the masters of the pool.
    pub term: u32,
    /// Counts the root jobs of a `main`.
    pub number: u32,
}

/// A root job, whoever runs it, in whatever term: facts about it (results of its jobs, bounds) hold for the same name, and
/// for no other. A `main` that is run again and reads the same input makes the same names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootName {
    /// Counts the root jobs of a `main`, from 0; those of other threads have numbers from [`RootName::OTHERS`] on.
    pub number: u32,
    /// What it computes: its function and all of its arguments. Of a root job that no other node will ever run again (one of
    /// another thread, or one whose arguments cannot be serialized): something that no other process has.
    pub fingerprint: Fingerprint,
}

impl RootName {
    /// Root jobs of threads other than `main`'s have numbers from here on.
    pub const OTHERS: u32 = 1 << 31;

    /// Did `main` call it? Such root jobs run one after another, and are called again by the next master.
    #[must_use]
    pub fn is_of_main(self) -> bool {
        self.number < RootName::OTHERS
    }

    /// Is that root job over when this one is? Those of a `main` run one after another: so all before this one are,
    /// whatever they were to compute, in this term and in earlier ones.
    #[must_use]
    pub fn ends(self, other: RootName) -> bool {
        let before = self.is_of_main() && other.is_of_main() && other.number <= self.number;
        self == other || before
    }
}

/// One run of a root job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootRun {
    /// Counts the masters of the pool.
    pub term: u32,
    /// Which root job.
    pub name: RootName,
}

impl From<RootRun> for RootName {
    fn from(run: RootRun) -> RootName {
        run.name
    }
}

impl RootRun {
    /// Without what it computes.
    #[must_use]
    pub fn tag(self) -> RootTag {
        RootTag {
            term: self.term,
            number: self.name.number,
        }
    }
}

/// A bound's value, as it travels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Whose.
    pub bound: BoundName,
    /// It holds for this root job's jobs, in whatever term they run.
    pub root: RootName,
    /// As the bound's lattice writes it.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}
