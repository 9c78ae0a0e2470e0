//! The harvest: results of finished jobs that are kept, in case that those who wait for them are lost.
//!
//! A result is a fact, whoever computed it and whenever: the job of this name gives this answer. Of two facts, one below
//! the other, the upper one suffices; so a harvest holds the children of what is under way, and the last links of chains, and little else.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use super::{Answer, Fingerprint, HeldValue, JobId, JobName, Saved, ValueName};

/// A result that is kept.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The job's name.
    pub name: JobName,
    /// The job's result.
    pub answer: Answer,
    /// The time that the job took.
    pub took: Duration,
    /// The number of the fact: higher than those of all facts that the process had before.
    pub number: u64,
    /// The shared values that the result mentions.
    pub values: Vec<HeldValue>,
}

impl Fact {
    /// Bytes that it takes without its values, about.
    fn size(&self) -> usize {
        OVERHEAD + self.name.id.as_bytes().len() + self.answer.size()
    }

    /// Bytes that it takes with its values, about.
    fn whole_size(&self) -> usize {
        self.size() + self.values.iter().map(HeldValue::cost).sum::<usize>()
    }

    /// The fact as it goes to another node, about a job of the root job with that fingerprint.
    #[must_use]
    pub fn saved(self, root: Fingerprint) -> Saved {
        Saved {
            name: self.name,
            root,
            answer: self.answer,
        }
    }
}

/// The facts that a process has gathered since a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gathered {
    /// The facts are those with higher numbers than this.
    pub since: u64,
    /// All facts up to this number are there.
    pub upto: u64,
    /// The jobs under way that the facts are parts of: root jobs, and jobs of other nodes.
    pub under: Vec<JobId>,
    /// The facts, that with the lowest number first.
    pub facts: Vec<GatheredFact>,
}

/// A fact that has been gathered.
#[derive(Clone, PartialEq, Debug)]
pub struct GatheredFact {
    /// The number of the fact.
    pub number: u64,
    /// The time that the job took.
    pub took: Duration,
    /// The result.
    pub saved: Saved,
}

impl Gathered {
    /// No fact yet; those with numbers above `since`, up to `upto`, are to come.
    #[must_use]
    pub fn between(since: u64, upto: u64) -> Gathered {
        Gathered {
            since,
            upto,
            ..Gathered::default()
        }
    }

    /// Adds the facts of a job under way, of that root job.
    pub fn add(&mut self, job: JobId, harvest: &Harvest, root: Fingerprint) {
        self.under.push(job);
        let upto = self.upto;
        let facts = harvest.since(self.since).filter(|fact| fact.number <= upto);
        self.facts.extend(facts.map(|fact| GatheredFact {
            number: fact.number,
            took: fact.took,
            saved: fact.clone().saved(root),
        }));
    }

    /// All of it, in order.
    #[must_use]
    pub fn sorted(mut self) -> Gathered {
        self.under.sort_unstable();
        self.facts.sort_unstable_by_key(|fact| fact.number);
        self
    }
}

/// The facts about jobs of one root job.
#[derive(Default, Debug)]
pub struct Harvest {
    facts: BTreeMap<JobId, Fact>,
    /// The values that facts hold.
    values: BTreeMap<ValueName, Holding>,
    /// The bytes of all facts and their values, about.
    bytes: usize,
    /// Number of facts that were dropped for want of room.
    dropped: u64,
}

/// A value that facts hold.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// The number of these facts.
    facts: usize,
    /// The bytes that holding it takes.
    bytes: usize,
}

/// The bytes that a fact takes beside its id and its answer, about.
const OVERHEAD: usize = 128;

impl Harvest {
    /// Enters a fact; the facts below go. (If it mentions values, those below go that do so too: only a store has values, and
    /// other nodes are to have the rest.) If all take more than `most` bytes then, those go that are computed again soonest for
    /// their size.
    pub fn insert(&mut self, fact: Fact, most: usize) {
        // What is below is worth more than nothing.
        if fact.whole_size() > most / 4 * 3 {
            self.dropped += 1;
            return;
        }
        self.add(&fact);
        let id = fact.name.id.clone();
        if fact.values.is_empty() {
            for below in id.take_below(&mut self.facts) {
                self.remove(&below);
            }
        } else {
            let below = self.facts.range(id.clone()..);
            let below = below.take_while(|(below, _)| id.is_ancestor_of(below));
            let is_for_store = |fact: &Fact| !fact.values.is_empty() || fact.name.id == id;
            let gone = below.filter(|(_, fact)| is_for_store(fact));
            for below in gone.map(|(below, _)| below.clone()).collect::<Vec<_>>() {
                if let Some(below) = self.facts.remove(&below) {
                    self.remove(&below);
                }
            }
        }
        self.facts.insert(id, fact);
        if self.bytes > most {
            self.shrink(most / 4 * 3);
        }
    }

    /// Counts a fact that comes.
    fn add(&mut self, fact: &Fact) {
        self.bytes += fact.size();
        for value in &fact.values {
            let holding = self.values.entry(value.name()).or_insert_with(|| {
                let bytes = value.cost();
                self.bytes += bytes;
                Holding { facts: 0, bytes }
            });
            holding.facts += 1;
        }
    }

    /// Counts a fact that goes.
    fn remove(&mut self, fact: &Fact) {
        self.bytes -= fact.size();
        for value in &fact.values {
            let Entry::Occupied(mut holding) = self.values.entry(value.name()) else {
                continue;
            };
            holding.get_mut().facts -= 1;
            if holding.get().facts == 0 {
                self.bytes -= holding.remove().bytes;
            }
        }
    }

    /// Makes room: down to that number of bytes, so that the search pays.
    fn shrink(&mut self, most: usize) {
        let mut worth: Vec<(f64, JobId)> = (self.facts.iter())
            .map(|(id, fact)| {
                (
                    fact.took.as_secs_f64() / fact.whole_size() as f64,
                    id.clone(),
                )
            })
            .collect();
        worth.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        for (_, id) in worth {
            if self.bytes <= most {
                break;
            }
            if let Some(fact) = self.facts.remove(&id) {
                self.remove(&fact);
                self.dropped += 1;
            }
        }
    }

    /// The bytes of all facts and their values, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of facts that were dropped for want of room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes all facts, as facts about jobs of the root job with that fingerprint. Those that mention values are for a store only.
    pub fn take(&mut self, root: Fingerprint) -> Vec<Saved> {
        self.bytes = 0;
        self.values.clear();
        let facts = std::mem::take(&mut self.facts).into_values();
        let facts = facts.filter(|fact| fact.values.is_empty());
        facts.map(|fact| fact.saved(root)).collect()
    }

    /// The facts with higher numbers than that.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &Fact> {
        self.facts.values().filter(move |fact| fact.number > number)
    }
}

#[cfg(test)]
mod tests {
    use std::{any::TypeId, sync::Arc};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::job::{
        codec::CodecError,
        needs::{Decoded, Read, Value},
    };

    /// Of that name, and so many bytes.
    struct Sized(u8, usize);

    impl Value for Sized {
        fn name(&self) -> ValueName {
            ValueName([self.0; 32])
        }

        fn bytes(&self) -> &[u8] {
            &[]
        }

        fn cost(&self) -> usize {
            self.1
        }

        fn decoded(&self, _: TypeId, read: &mut Read<'_>) -> Result<Decoded, CodecError> {
            read(&[self.0])
        }
    }

    fn mentioning(id: &[u32], values: &[&Arc<Sized>]) -> Fact {
        let hold = |value: &&Arc<Sized>| HeldValue::new(Arc::<Sized>::clone(value));
        Fact {
            values: values.iter().map(hold).collect(),
            ..fact(id.iter().copied().collect(), 1, 0)
        }
    }

    #[test]
    fn a_value_counts_once_and_lives_as_long_as_what_mentions_it() {
        let value = |number, size| Arc::new(Sized(number, size));
        let (large, small) = (value(1, 10_000), value(2, 100));
        let mut harvest = Harvest::default();
        harvest.insert(mentioning(&[0, 0, 0], &[&large]), 100_000);
        harvest.insert(mentioning(&[0, 0, 1], &[&large, &small]), 100_000);
        assert!((10_100..11_000).contains(&harvest.bytes()));
        assert_eq!(Arc::strong_count(&large), 3);
        // It comes before those below go: what both mention stays.
        harvest.insert(mentioning(&[0, 0], &[&small]), 100_000);
        assert!((100..1_000).contains(&harvest.bytes()));
        assert_eq!(
            (Arc::strong_count(&large), Arc::strong_count(&small)),
            (1, 2)
        );
        // Too large for the room, with what it would hold.
        harvest.insert(mentioning(&[0, 1], &[&large]), 10_000);
        assert_eq!((harvest.dropped(), Arc::strong_count(&large)), (1, 1));
    }

    #[test]
    fn what_mentions_values_is_for_the_store_and_takes_nothing_from_others() {
        let value = Arc::new(Sized(1, 100));
        let mut harvest = Harvest::default();
        harvest.insert(fact([0, 0, 0].into_iter().collect(), 1, 0), 100_000);
        harvest.insert(mentioning(&[0, 0, 1], &[&value]), 100_000);
        harvest.insert(mentioning(&[0, 0], &[&value]), 100_000);
        assert_eq!(
            (harvest.since(0).count(), Arc::strong_count(&value)),
            (2, 2)
        );
        // The same job once more, and a value that takes nothing by now.
        let free = Arc::new(Sized(1, 0));
        harvest.insert(mentioning(&[0, 0], &[&free]), 100_000);
        harvest.insert(mentioning(&[0, 0, 0], &[&value]), 100_000);
        harvest.insert(fact([0, 0, 0].into_iter().collect(), 1, 0), 100_000);
        let taken = ids(&mut harvest);
        assert_eq!(taken, [[0, 0, 0].into_iter().collect()]);
        assert_eq!((harvest.bytes(), Arc::strong_count(&value)), (0, 1));
    }

    const ROOT: Fingerprint = Fingerprint(7);

    fn fact(id: JobId, ms: u64, bytes: usize) -> Fact {
        Fact {
            name: JobName::new(id, Fingerprint(ms)),
            number: ms,
            answer: Answer::result(vec![0; bytes].into(), Vec::new()),
            took: Duration::from_millis(ms),
            values: Vec::new(),
        }
    }

    fn ids(harvest: &mut Harvest) -> Vec<JobId> {
        harvest
            .take(ROOT)
            .into_iter()
            .map(|saved| saved.name.id)
            .collect()
    }

    proptest! {
        /// Whatever is entered in whatever order: no fact is below another, and each that was entered is at or below one
        /// that is there, unless it was entered below a fact of before.
        #[test]
        fn of_two_facts_the_upper_one_stays(paths in vec(vec(0..3u32, 1..5), 0..20)) {
            let mut harvest = Harvest::default();
            let entered: Vec<JobId> = paths.into_iter().map(JobId::from_iter).collect();
            for id in &entered {
                harvest.insert(fact(id.clone(), 1, 0), usize::MAX);
            }
            let left = harvest.take(ROOT);
            for id in &entered {
                prop_assert!(left.iter().any(|saved| saved.name.id.is_ancestor_of(id)));
            }
            prop_assert_eq!(harvest.bytes, 0);
        }
    }

    #[test]
    fn a_fact_replaces_what_is_below() {
        let mut harvest = Harvest::default();
        let parent = JobId::ROOT.child(0).child(1);
        for id in [
            parent.child(0),
            parent.child(300),
            JobId::ROOT.child(0).child(2),
        ] {
            harvest.insert(fact(id, 1, 10), usize::MAX);
        }
        harvest.insert(fact(parent.clone(), 2, 10), usize::MAX);
        assert_eq!(harvest.since(1).count(), 1);
        assert_eq!(ids(&mut harvest), [parent, JobId::ROOT.child(0).child(2)]);
    }

    #[test]
    fn what_is_made_again_soonest_goes_first() {
        let mut harvest = Harvest::default();
        for (place, ms) in [(0, 1), (1, 1000), (2, 2), (3, 500)] {
            harvest.insert(fact(JobId::ROOT.child(0).child(place), ms, 1000), 4400);
        }
        assert_eq!(harvest.dropped(), 2);
        let kept = [1, 3].map(|place| JobId::ROOT.child(0).child(place));
        assert_eq!(ids(&mut harvest), kept);
    }
}
