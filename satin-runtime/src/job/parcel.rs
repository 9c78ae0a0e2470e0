//! A job as it travels: the parcel that leaves a process, and the answer that comes back.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, JobId, JobName, Payload};

/// Facts about earlier runs of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct History {
    /// True if the job, or a job below it, may have been run before: it and its children look themselves up before they
    /// run. Inherited by children as long as the orphan table has anything at or below them.
    pub marked: bool,
    /// Number of nodes that died while they ran the job.
    pub crashes: u32,
}

/// A job that can be run anywhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parcel {
    /// The job's place in the execution tree.
    pub id: JobId,
    /// The function to run: its place among the registered functions, which every node of a pool shares (see
    /// [`super::program_hash`]).
    pub function: u32,
    /// The arguments, as the function's vtable reads them.
    pub arguments: Payload,
    /// The fingerprint of the job: its function and arguments.
    pub fingerprint: Fingerprint,
    /// Shared values that must be at hand before it starts, and data that it borrows.
    pub needs: Vec<ValueName>,
    /// The last of these are data that it borrows, of so many bytes each.
    pub lent: Vec<u64>,
    /// Large results may be kept where it runs, and be named in its answer: it is a task of a flow.
    pub keeps: bool,
    /// The number of the node whose worker has made it, also where others pass it on: the node writes it when the job leaves. What is kept of
    /// its result is kept for that node.
    pub owner: u128,
    /// The term of its root job's master: counts the masters.
    pub term: u32,
    /// The fingerprint of its root job: with the first element of the id, that root job's [`RootName`].
    pub root: Fingerprint,
    /// Facts about earlier runs.
    pub history: History,
}

impl Parcel {
    /// The name of the job.
    #[must_use]
    pub fn name(&self) -> JobName {
        JobName::new(self.id.clone(), self.fingerprint)
    }

    /// The data that it borrows by name.
    #[must_use]
    pub fn lent_names(&self) -> &[ValueName] {
        let shared = self.needs.len().saturating_sub(self.lent.len());
        &self.needs[shared..]
    }

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

/// The end of a job on another node, as it comes back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Result and changed `&mut` arguments, and the shared values that they mention.
    Result {
        /// The bytes, as the function's vtable writes them.
        bytes: Payload,
        /// Shared values that must be at hand before the owner reads the bytes.
        needs: Vec<ValueName>,
        /// Parts of it that have been kept where they were made. With such the bytes are those of an [`Outcome`](super::outcome::Outcome).
        kept: Option<Box<Kept>>,
    },
    /// The job panicked, with this message.
    Panicked(String),
    /// The job could not be run there, for this reason: here it can. It is offered to nobody else.
    Refused(String),
    /// The job was aborted there, on request.
    Aborted,
    /// Its arguments cannot be read there, or its result cannot be written.
    Unfit(Unfit),
}

/// A function whose jobs have been unfit with weights of this sum is offered to no other node. Too small: a few odd values keep all
/// jobs here. Too large: jobs go back and forth.
pub const UNFIT: u32 = 8;

/// Why a job cannot travel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unfit {
    /// The number of the function: that of the job, or the one that its loop calls.
    pub function: u32,
    /// How much that says of its other jobs, see [`UNFIT`].
    pub weight: u32,
    /// For people: what is wrong.
    pub why: String,
}

impl Answer {
    /// The job was not run, for that reason.
    #[must_use]
    pub fn refused(why: &str) -> Answer {
        Answer::Refused(why.into())
    }

    /// Is the job still to be done?
    #[must_use]
    pub fn is_undone(&self) -> bool {
        matches!(
            self,
            Answer::Refused(_) | Answer::Aborted | Answer::Unfit(_)
        )
    }

    /// A result of which nothing is kept elsewhere.
    #[must_use]
    pub fn result(bytes: Payload, needs: Vec<ValueName>) -> Answer {
        let kept = None;
        Answer::Result { bytes, needs, kept }
    }

    /// What has been kept where it was made.
    #[must_use]
    pub fn kept(&self) -> Option<&Kept> {
        match self {
            Answer::Result { kept, .. } => kept.as_deref(),
            _ => None,
        }
    }

    /// The shared values that it mentions.
    #[must_use]
    pub fn needs(&self) -> &[ValueName] {
        match self {
            Answer::Result { needs, .. } => needs,
            _ => &[],
        }
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Answer::Result { bytes, needs, kept } => {
                let kept = kept.as_ref().map_or(0, |kept| kept.values.len());
                bytes.len() + (needs.len() + kept) * size_of::<ValueName>()
            }
            Answer::Panicked(text)
            | Answer::Refused(text)
            | Answer::Unfit(Unfit { why: text, .. }) => text.len(),
            Answer::Aborted => 0,
        }
    }
}

/// Parts of a result that have been kept by the node that made them: who needs them asks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The number of that node; 0 until it has entered it.
    pub at: u128,
    /// The parts, by the hash of their bytes.
    pub values: Vec<ValueSize>,
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

/// A shared value, and how large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ValueSize {
    /// Its name.
    pub name: ValueName,
    /// The number of its bytes.
    pub bytes: u64,
}

/// The name of a bound on every node: a hash of its stable name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BoundName(pub u64);

/// A root job of one master's `main`: the first element of its jobs' ids, in that master's term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootTag {
    /// The term: counts the masters of the pool.
    pub term: u32,
    /// The number of the root job: counts the root jobs of a `main`.
    pub number: u32,
}

/// A root job, on any node and in any term: facts about it (results of its jobs, bounds) hold for the same name, and for
/// no other. A `main` that is run again and reads the same input makes the same names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootName {
    /// The number of the root job: counts the root jobs of a `main`, from 0; root jobs of other threads have numbers from
    /// [`RootName::OTHERS`] on.
    pub number: u32,
    /// Hash of the function and all of its arguments. For a root job that no other node will ever run again (of another
    /// thread, or with arguments that cannot be serialized): a number that no other process has.
    pub fingerprint: Fingerprint,
}

impl RootName {
    /// Root jobs of threads other than `main`'s have numbers from here on.
    pub const OTHERS: u32 = 1 << 31;

    /// True if `main` called the root job. Such root jobs run one after another, and are called again by the next master.
    #[must_use]
    pub fn is_of_main(self) -> bool {
        self.number < RootName::OTHERS
    }

    /// The name of the root job as a job.
    #[must_use]
    pub fn job_name(self) -> JobName {
        JobName::new(JobId::ROOT.child(self.number), self.fingerprint)
    }

    /// True if that root job is over when this one is. Root jobs of a `main` run one after another: so all
    /// before this one are, whatever they were to compute, in this term and in earlier ones.
    #[must_use]
    pub fn ends(self, other: RootName) -> bool {
        let before = self.is_of_main() && other.is_of_main() && other.number <= self.number;
        self == other || before
    }
}

/// A run of a root job: its name, and the term in which it runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RootRun {
    /// The term: counts the masters of the pool.
    pub term: u32,
    /// The name of the root job.
    pub name: RootName,
}

impl From<RootRun> for RootName {
    fn from(run: RootRun) -> RootName {
        run.name
    }
}

impl RootRun {
    /// The run without the root job's fingerprint.
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
    /// The bound that is improved.
    pub bound: BoundName,
    /// The root job for whose jobs the value holds, in whatever term they run.
    pub root: RootName,
    /// The value, as the bound's lattice writes it.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}
