//! What stable storage holds of a run: results, and the bounds that they were computed under.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    num::ParseIntError,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Offer, RootName, Saved, ValueName};

/// The name of a run: one program, from its first start to its end, however often it is resumed. No two
/// pools begin runs of the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunName(pub u64);

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunName({self})")
    }
}

impl FromStr for RunName {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<RunName, ParseIntError> {
        u64::from_str_radix(text, 16).map(RunName)
    }
}

/// One start of `main` in a run. Of two the later one is greater: each master that begins `main` has the next number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MainNumber {
    /// The epoch: counts the starts of the run.
    pub epoch: u32,
    /// Counts the starts of `main` in that epoch.
    pub main: u32,
}

/// A sign in the store that a `main` goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MainBeat {
    /// Which one.
    pub number: MainNumber,
    /// Counts the signs.
    pub beat: u32,
    /// The id of the node that runs it.
    pub by: u128,
}

/// A result in stable storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFact {
    /// The result, an [`Answer::Result`](super::Answer::Result).
    pub saved: Saved,
    /// The time that the job took; zero if that is not known.
    pub took: Duration,
}

impl StoredFact {
    /// The shared values that the result mentions.
    #[must_use]
    pub fn needs(&self) -> &[ValueName] {
        self.saved.answer.needs()
    }
}

/// A shared value in stable storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueBytes {
    /// The value's name: the hash of the bytes.
    pub name: ValueName,
    /// The value, as postcard writes it.
    pub bytes: Vec<u8>,
}

/// What is written at once: as a whole, or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Shared values that the results mention.
    pub values: Vec<ValueBytes>,
    /// Bounds of the root jobs of the results, read after these were collected.
    pub offers: Vec<Offer>,
    /// The results.
    pub facts: Vec<StoredFact>,
}

impl Batch {
    /// True if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.offers.is_empty() && self.facts.is_empty()
    }

    /// The shared values that the results mention.
    #[must_use]
    pub fn needs(&self) -> BTreeSet<ValueName> {
        let needs = self.facts.iter().flat_map(StoredFact::needs);
        needs.copied().collect()
    }

    /// The results of root jobs with the bounds of these, and the rest. No later result takes up that of a root job. Values stay
    /// with the rest.
    #[must_use]
    pub fn apart(self) -> (Batch, Batch) {
        let is_root = |fact: &StoredFact| fact.saved.name.id.is_root_job();
        let (roots, facts): (Vec<_>, Vec<_>) = self.facts.into_iter().partition(is_root);
        let names: HashSet<RootName> = roots.iter().map(|fact| fact.saved.root_name()).collect();
        let is_of_roots = |offer: &Offer| names.contains(&offer.root);
        let (of_roots, offers) = self.offers.into_iter().partition(is_of_roots);
        let of_roots = Batch {
            offers: of_roots,
            facts: roots,
            values: Vec::new(),
        };
        let values = self.values;
        let rest = Batch {
            values,
            offers,
            facts,
        };
        (of_roots, rest)
    }
}
