//! Reading what earlier epochs have left of a run.

use std::collections::{BTreeMap, HashSet};

use super::{
    Runs,
    log::SEGMENT,
    place::{LogName, RunFile, RunPlace},
};
use crate::{
    job::{Batch, BoundName, JobId, JobName, Offer, RootName, StoredFact, ValueBytes, ValueName},
    stable::{
        StableError,
        format::{Batches, LONGEST},
    },
};

/// The most that is read of a segment, in bytes: it begins its last batch before [`SEGMENT`].
const LONGEST_SEGMENT: u64 = SEGMENT + LONGEST as u64 + 12;

/// Bytes of values that nothing may mention any more. Too small: they are looked for after each log. Too large: memory.
const VALUES: usize = 64 << 20;

/// What earlier epochs have left.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadedRun {
    /// All offers, each once; the results without those below another one of the same root job, in the order of root jobs
    /// and ids; and the values that these mention.
    pub batch: Batch,
    /// The paths of segments that end early: their nodes died while they wrote, or the store has damaged them.
    pub torn: Vec<String>,
    /// The number of logs that were read.
    pub logs: usize,
    /// The bytes that were read.
    pub bytes: u64,
}

impl Runs {
    /// Reads the logs of a run that are wanted.
    ///
    /// # Errors
    /// A failure of the store. Damage is none: of a segment that ends early the batches before are read.
    pub fn load(
        &self,
        place: &RunPlace,
        wanted: &dyn Fn(&LogName) -> bool,
    ) -> Result<LoadedRun, StableError> {
        let (mut loaded, mut union) = (LoadedRun::default(), LogUnion::default());
        for (log, segments) in self.logs(place)? {
            if !wanted(&log) {
                continue;
            }
            loaded.logs += 1;
            for segment in segments.into_keys() {
                let path = place.path(RunFile::Segment(log, segment));
                self.load_segment(path, &mut loaded, &mut union)?;
            }
            union.end_log();
        }
        loaded.batch = union.into_batch();
        Ok(loaded)
    }

    fn logs(&self, place: &RunPlace) -> Result<BTreeMap<LogName, BTreeMap<u32, u64>>, StableError> {
        let files = self.files(&format!("{}log/", place.prefix()))?;
        Ok(files.into_values().next().unwrap_or_default().logs)
    }

    fn load_segment(
        &self,
        path: String,
        loaded: &mut LoadedRun,
        union: &mut LogUnion,
    ) -> Result<(), StableError> {
        let bytes = match self.stable.read(&path, 0..LONGEST_SEGMENT) {
            // Its writer has no more use for it.
            Err(StableError::Missing(_)) => return Ok(()),
            bytes => bytes?,
        };
        loaded.bytes += bytes.len() as u64;
        let mut batches = Batches::new(&self.keys, &path, &bytes);
        batches.by_ref().for_each(|batch| union.add(batch));
        if let Some(error) = batches.torn() {
            tracing::debug!("{path} ends early, at byte {}: {error}", batches.position());
            loaded.torn.push(path);
        }
        Ok(())
    }
}

/// The union of batches.
#[derive(Default)]
struct LogUnion {
    offers: Vec<Offer>,
    /// Offers that are there already.
    known: HashSet<(RootName, BoundName, Vec<u8>)>,
    facts: Vec<StoredFact>,
    values: BTreeMap<ValueName, Vec<u8>>,
    /// The bytes of the values after those were dropped that nothing mentions.
    wanted: usize,
    /// The number of facts after the last tidying.
    tidy: usize,
}

impl LogUnion {
    fn add(&mut self, batch: Batch) {
        for offer in batch.offers {
            let name = (offer.root, offer.bound, offer.value.clone());
            if self.known.insert(name) {
                self.offers.push(offer);
            }
        }
        let values = batch.values.into_iter();
        (self.values).extend(values.map(|value| (value.name, value.bytes)));
        // Values stand before what mentions them. Where they do not, a part of the log is gone, and nobody could read the result.
        let values = &self.values;
        let is_whole =
            |fact: &StoredFact| fact.needs().iter().all(|name| values.contains_key(name));
        self.facts.extend(batch.facts.into_iter().filter(is_whole));
        // Most of a long log is below later results: it is not to take the memory of all that was ever written.
        if self.facts.len() > 2 * self.tidy + 10_000 {
            self.tidy();
        }
    }

    /// Drops results below others of the same root job, and all but the first of the same name.
    fn tidy(&mut self) {
        // Stable: of the same name the first stays the first. Those below a job follow it.
        self.facts
            .sort_by(|one, other| place(one).cmp(&place(other)));
        let facts = std::mem::take(&mut self.facts);
        for fact in facts {
            if self.facts.last().is_none_or(|last| !suffices(last, &fact)) {
                self.facts.push(fact);
            }
        }
        self.tidy = self.facts.len();
    }

    /// All batches of a log are there. It has all values that its results mention.
    fn end_log(&mut self) {
        let bytes = |values: &BTreeMap<_, Vec<u8>>| values.values().map(Vec::len).sum::<usize>();
        if bytes(&self.values) > 2 * self.wanted + VALUES {
            self.tidy();
            let needs = self.facts.iter().flat_map(StoredFact::needs);
            let needs: HashSet<ValueName> = needs.copied().collect();
            self.values.retain(|name, _| needs.contains(name));
            self.wanted = bytes(&self.values);
        }
    }

    fn into_batch(mut self) -> Batch {
        self.tidy();
        let mut batch = Batch {
            values: Vec::new(),
            offers: self.offers,
            facts: self.facts,
        };
        let needs = batch.needs().into_iter();
        let values = needs.filter_map(|name| {
            let bytes = self.values.remove(&name)?;
            Some(ValueBytes { name, bytes })
        });
        batch.values = values.collect();
        batch
    }
}

fn place(fact: &StoredFact) -> (RootName, &JobName) {
    (fact.saved.root_name(), &fact.saved.name)
}

/// True if the second result is not needed beside the first, which is the last one that stays before it.
fn suffices(first: &StoredFact, second: &StoredFact) -> bool {
    let (above, below): (&JobId, &JobId) = (&first.saved.name.id, &second.saved.name.id);
    first.saved.root_name() == second.saved.root_name()
        && match above == below {
            true => first.saved.name == second.saved.name,
            false => above.is_ancestor_of(below),
        }
}
