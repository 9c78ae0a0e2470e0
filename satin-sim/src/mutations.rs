//! Does the simulator find out when a rule is left out? For each rule of repair it must: by an invariant that is violated,
//! or because more work is done twice than with all rules, seed by seed.

use std::{collections::BTreeMap, ops::Range, sync::Mutex};

use satin_runtime::node::Rule;

use crate::{
    seeds,
    trial::{Options, Trial},
};

/// Factor by which the difference in work done twice must exceed its standard error. (A seed whose schedule is changed
/// only by chance does as often less as more.) Too small: chance passes for a fault. Too large: faults need more seeds.
const SIGNIFICANT: f64 = 4.5;

/// Number of seeds that are tried before the mutation may count as found; then as many as before again, and so on. Most
/// missing rules show within tens of seeds.
const FIRST_BATCH: u64 = 125;

/// The way in which a mutation was found.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// An invariant was violated that holds in that seed with all rules.
    Violated {
        /// The seed in which the invariant was violated.
        seed: u64,
        /// The invariant.
        invariant: &'static str,
        /// The violation in a sentence.
        sentence: String,
    },
    /// Enough work was done twice: so many times as much as with all rules.
    Twice(f64),
    /// Not found: so many times as much work was done twice as with all rules.
    NotAtAll(f64),
}

/// The outcome of each seed: the seconds done twice, or `None` if an invariant was violated.
type Results = BTreeMap<u64, Option<f64>>;

/// Leaves one rule out after the other.
pub struct Mutations {
    seeds: Range<u64>,
    jobs: u32,
    options: Options,
    /// Results with the rules that are left out in any case.
    known: BTreeMap<Vec<Rule>, Results>,
}

impl Mutations {
    /// Mutations on these seeds, tried on `jobs` threads.
    #[must_use]
    pub fn new(seeds: Range<u64>, jobs: u32, options: Options) -> Mutations {
        Mutations {
            seeds,
            jobs,
            options,
            known: BTreeMap::new(),
        }
    }

    /// Leaves that rule out. Says how that was found, and after how many seeds.
    pub fn check(&mut self, rule: Rule) -> (Found, u64) {
        // A newcomer that is not given the table gets it a little later all the same.
        let base: &[Rule] = match rule {
            Rule::Welcome => &[Rule::AntiEntropy],
            _ => &[],
        };
        let mut differences = Vec::new();
        let (mut twice, mut usual) = (0.0, 0.0);
        let mut from = self.seeds.start;
        while from < self.seeds.end {
            let tried = from - self.seeds.start;
            let batch = from..self.seeds.end.min(from + tried.max(FIRST_BATCH));
            from = batch.end;
            self.learn(base, batch.clone());
            let whole = &self.known[base];
            let mut without = base.to_vec();
            without.push(rule);
            let (results, violation) = self.run(&without, batch, |trial| {
                trial.violation.is_some() && whole[&trial.seed].is_some()
            });
            if let Some(trial) = violation
                && let Some(violation) = trial.violation
            {
                let found = Found::Violated {
                    seed: trial.seed,
                    invariant: violation.invariant,
                    sentence: violation.sentence,
                };
                return (found, trial.seed + 1 - self.seeds.start);
            }
            for (seed, result) in results {
                if let (Some(here), Some(there)) = (result, whole[&seed]) {
                    differences.push(here - there);
                    twice += here;
                    usual += there;
                }
            }
            if is_significant(&differences) {
                return (
                    Found::Twice(twice / usual.max(1e-9)),
                    from - self.seeds.start,
                );
            }
        }
        let times = twice / usual.max(1e-9);
        (Found::NotAtAll(times), self.seeds.end - self.seeds.start)
    }

    /// How many of the seeds violate something with all rules, of those that were tried.
    #[must_use]
    pub fn violated(&self) -> (usize, usize) {
        let whole = self.known.get(&Vec::new());
        let violated = whole.into_iter().flatten().filter(|(_, is)| is.is_none());
        (violated.count(), whole.map_or(0, BTreeMap::len))
    }

    fn learn(&mut self, without: &[Rule], batch: Range<u64>) {
        let known = self.known.get(without);
        if known.is_some_and(|known| known.contains_key(&batch.start)) {
            return;
        }
        let (results, _) = self.run(without, batch, |_| false);
        let known = self.known.entry(without.to_vec()).or_default();
        known.extend(results);
    }

    /// Tries a batch, to its end or until a trial that is `wanted`; the first such.
    fn run(
        &self,
        without: &[Rule],
        batch: Range<u64>,
        wanted: impl Fn(&Trial) -> bool + Sync,
    ) -> (Results, Option<Trial>) {
        let mut options = self.options.clone();
        options.without.extend(without);
        let all = Mutex::new((Results::new(), None::<Trial>));
        let each = |trial: &Trial| {
            let mut all = all.lock().expect("nobody panics with it");
            let twice = trial.twice.as_secs_f64();
            let result = trial.violation.is_none().then_some(twice);
            all.0.insert(trial.seed, result);
            let first = all.1.as_ref().is_none_or(|first| trial.seed < first.seed);
            if first && wanted(trial) {
                all.1 = Some(trial.clone());
            }
            all.1.is_some()
        };
        seeds::each(batch, self.jobs, &options, &each);
        all.into_inner().expect("nobody panicked with it")
    }
}

/// Is that more than chance?
fn is_significant(differences: &[f64]) -> bool {
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares = differences.iter().map(|is| (is - mean).powi(2));
    let error = (squares.sum::<f64>() / (count * (count - 1.0).max(1.0))).sqrt();
    count > 1.0 && error > 0.0 && mean / error > SIGNIFICANT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_not_significant() {
        let chance: Vec<f64> = (0..1000).map(|place| f64::from(place % 7 - 3)).collect();
        assert!(!is_significant(&chance));
        let more: Vec<f64> = chance.iter().map(|is| is + 0.5).collect();
        assert!(is_significant(&more));
        assert!(!is_significant(&[]) && !is_significant(&[1.0]));
    }
}
