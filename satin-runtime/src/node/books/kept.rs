//! Parts of results that are kept here, for the nodes that own their jobs: until those can do without, or the root job is over.

use std::collections::{BTreeMap, BTreeSet};

use super::super::NodeId;
use crate::job::{Kept, RootName, Saved, ValueName};

/// What is kept here, as the process of this node has it.
#[derive(Default)]
pub(crate) struct KeptHere {
    /// The number of this node, as answers say it; none before anything is kept.
    at: Option<u128>,
    /// By the root jobs to which they belong; each value as often as a result with it was made here.
    roots: BTreeMap<RootName, BTreeMap<ValueName, u32>>,
    /// The results that are in the hands of other nodes, by these and the order in which they took them: they say when the parts can go.
    results: BTreeMap<ResultKey, TakenResult>,
    /// The same by what is kept of them.
    by_part: BTreeMap<ValueName, BTreeSet<ResultKey>>,
    /// The number of the next one.
    next: u64,
}

/// Who has taken a result, and the place of that in order.
type ResultKey = (NodeId, u64);

/// The results that this node has taken.
fn all_of(node: NodeId) -> std::ops::RangeInclusive<ResultKey> {
    (node, 0)..=(node, u64::MAX)
}

/// A result that another node has, but for what is kept of it here.
struct TakenResult {
    root: RootName,
    /// The parts that have not been dropped.
    parts: Vec<ValueName>,
    /// The result and the term in which it came; `None` once a part of it has been dropped, or if it is too large.
    whole: Option<(u32, Saved)>,
}

/// The bytes of a result that are remembered beside its parts, at most. Too small: results with many small parts are done again if their owner
/// dies. Too large: memory.
const MOST_REMEMBERED: usize = 64 << 10;

/// What a node leaves here that has taken results, and is gone.
#[derive(Default)]
pub(crate) struct LeftBehind {
    /// Results that are whole, and the terms in which they came.
    pub(crate) results: Vec<(u32, Saved)>,
    /// What is kept of others, each as often as it is kept: nobody needs it.
    pub(crate) rest: Vec<ValueName>,
}

impl KeptHere {
    /// Parts of a result that has been made here.
    pub(crate) fn keep(&mut self, root: RootName, parts: &Kept) {
        self.at = Some(parts.at);
        let kept = self.roots.entry(root).or_default();
        for value in &parts.values {
            *kept.entry(value.name).or_default() += 1;
        }
    }

    /// That node has taken a result, which came in that term; parts of it may be kept here.
    pub(crate) fn taken(&mut self, by: NodeId, term: u32, saved: Saved) {
        let kept = saved.answer.kept();
        let Some(kept) = kept.filter(|kept| Some(kept.at) == self.at) else {
            return;
        };
        let names = kept.values.iter().map(|value| value.name);
        let parts: Vec<ValueName> = names.filter(|name| self.has(*name)).collect();
        let is_whole = parts.len() == kept.values.len() && saved.size() <= MOST_REMEMBERED;
        if parts.is_empty() {
            return;
        }
        let key = (by, self.next);
        self.next += 1;
        for name in &parts {
            self.by_part.entry(*name).or_default().insert(key);
        }
        let result = TakenResult {
            root: saved.root_name(),
            parts,
            whole: is_whole.then_some((term, saved)),
        };
        self.results.insert(key, result);
    }

    /// The node is gone: it lets nothing go any more.
    pub(crate) fn taker_gone(&mut self, node: NodeId) -> LeftBehind {
        let gone: Vec<_> = self.results.extract_if(all_of(node), |_, _| true).collect();
        let mut left = LeftBehind::default();
        for (key, result) in gone {
            self.strike_parts(key, &result.parts);
            match result.whole {
                Some(whole) => left.results.push(whole),
                None => left.rest.extend(result.parts),
            }
        }
        left
    }

    /// That result does not stand under these parts any more.
    fn strike_parts(&mut self, key: ResultKey, parts: &[ValueName]) {
        for name in parts {
            if let Some(results) = self.by_part.get_mut(name) {
                results.remove(&key);
                if results.is_empty() {
                    self.by_part.remove(name);
                }
            }
        }
    }

    /// These have been dropped, each once, as that node said.
    pub(crate) fn drop(&mut self, by: NodeId, names: &[ValueName]) {
        for name in names {
            let mut all = self.roots.values_mut();
            let Some(kept) = all.find(|kept| kept.contains_key(name)) else {
                continue;
            };
            if let Some(times) = kept.get_mut(name) {
                *times -= 1;
                if *times == 0 {
                    kept.remove(name);
                }
            }
            self.drop_part(by, name);
        }
        self.roots.retain(|_, kept| !kept.is_empty());
    }

    /// A part is not kept any more of a result that this node has taken, or else of any that has the same.
    fn drop_part(&mut self, by: NodeId, name: &ValueName) {
        let Some(results) = self.by_part.get(name) else {
            return;
        };
        let own = results.range(all_of(by)).next();
        let Some(key) = own.or_else(|| results.first()).copied() else {
            return;
        };
        let Some(result) = self.results.get_mut(&key) else {
            return;
        };
        result.whole = None;
        if let Some(at) = result.parts.iter().position(|part| part == name) {
            result.parts.swap_remove(at);
        }
        let (is_over, is_struck) = (result.parts.is_empty(), !result.parts.contains(name));
        if is_struck {
            self.strike_parts(key, &[*name]);
        }
        if is_over {
            self.results.remove(&key);
        }
    }

    /// Root jobs are over, and what was kept for them has been dropped.
    pub(crate) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.roots.retain(|root, _| !is_over(*root));
        let over = self
            .results
            .extract_if(.., |_, result| is_over(result.root));
        for (key, result) in over.collect::<Vec<_>>() {
            self.strike_parts(key, &result.parts);
        }
    }

    pub(crate) fn has(&self, name: ValueName) -> bool {
        self.roots.values().any(|kept| kept.contains_key(&name))
    }

    /// The root jobs for which anything is kept.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootName> + '_ {
        self.roots.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The values.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = ValueName> + '_ {
        self.roots.values().flat_map(BTreeMap::keys).copied()
    }

    /// The number of values.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn len(&self) -> usize {
        self.roots.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Answer, Fingerprint, JobId, JobName, ValueSize};

    fn value(number: u8) -> ValueSize {
        ValueSize {
            name: ValueName([number; 32]),
            bytes: 9,
        }
    }

    fn parts(numbers: &[u8]) -> Kept {
        Kept {
            at: 7,
            values: numbers.iter().copied().map(value).collect(),
        }
    }

    #[test]
    fn a_value_is_kept_as_often_as_it_was_made_and_no_longer_than_its_root_job() {
        let mut kept = KeptHere::default();
        let name = |number| value(number).name;
        let root = |number| RootName {
            number,
            fingerprint: Fingerprint(1),
        };
        kept.keep(root(1), &parts(&[1, 2]));
        kept.keep(root(1), &parts(&[1]));
        kept.keep(root(2), &parts(&[3]));
        kept.drop(NodeId(1), &[name(1), name(2), name(4)]);
        assert_eq!(
            [1, 2, 3].map(|number| kept.has(name(number))),
            [true, false, true]
        );
        kept.drop(NodeId(1), &[name(1)]);
        assert_eq!(kept.roots().collect::<Vec<_>>(), [root(2)]);
        kept.forget_roots(|over| over == root(2));
        assert!(kept.is_empty());
    }

    #[test]
    fn what_a_node_has_taken_is_left_behind_as_far_as_it_is_whole() {
        let mut kept = KeptHere::default();
        let result = |child, values: &[u8]| Saved {
            name: JobName::new(JobId::ROOT.child(1).child(child), Fingerprint(2)),
            root: Fingerprint(1),
            answer: Answer::Result {
                bytes: vec![1].into(),
                needs: Vec::new(),
                kept: Some(Box::new(parts(values))),
            },
        };
        let results = [
            (1, result(0, &[1])),
            (1, result(1, &[2, 3])),
            (2, result(2, &[1, 4])),
        ];
        let two = &results[2].1;
        for (by, result) in &results {
            let parts = result.answer.kept().expect("some are kept");
            kept.keep(result.root_name(), parts);
            kept.taken(NodeId(*by), 5, result.clone());
        }
        // Of two that have the same part it is not the one of the other node.
        kept.drop(NodeId(1), &[value(2).name]);
        kept.drop(NodeId(2), &[value(1).name]);
        let left = kept.taker_gone(NodeId(1));
        assert_eq!(left.results, [(5, results[0].1.clone())]);
        assert_eq!(left.rest, [value(3).name]);
        assert!(kept.taker_gone(NodeId(1)).results.is_empty());
        // Taken once more when a part has gone.
        kept.drop(NodeId(1), &[value(1).name]);
        kept.taken(NodeId(2), 5, two.clone());
        let left = kept.taker_gone(NodeId(2));
        assert!(left.results.is_empty());
        assert_eq!(left.rest, [value(4).name; 2]);
        // What went through this node is kept by another.
        let mut through = result(3, &[1]);
        if let Answer::Result {
            kept: Some(kept), ..
        } = &mut through.answer
        {
            kept.at = 8;
        }
        kept.keep(through.root_name(), &parts(&[1]));
        kept.taken(NodeId(1), 5, through);
        assert!(kept.taker_gone(NodeId(1)).results.is_empty());
        kept.forget_roots(|_| true);
        assert!(kept.is_empty() && kept.results.is_empty() && kept.by_part.is_empty());
    }
}
