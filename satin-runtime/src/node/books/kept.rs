//! Parts of results that are kept here, for the nodes that own their jobs: until those can do without, or the root job is over.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Peer;
use crate::job::{Kept, RootName, Saved, ValueName};

/// What is kept here, as the process of this node has it.
#[derive(Default)]
pub(crate) struct KeptHere {
    /// The number of this node, as answers say it; none before anything is kept.
    at: Option<u128>,
    /// By the root jobs to which they belong; each value as often as a result with it was made here.
    roots: BTreeMap<RootName, BTreeMap<ValueName, u32>>,
    /// The results of which other nodes have taken the rest, by these and the order in which they did: they say when the parts can go.
    taken: BTreeMap<(Peer, u64), TakenResult>,
    /// The same by what is kept of them.
    by_name: BTreeMap<ValueName, BTreeSet<(Peer, u64)>>,
    /// The number of the next one.
    next: u64,
}

/// A result that another node has, but for what is kept of it here.
struct TakenResult {
    root: RootName,
    /// The parts that have not been dropped.
    values: Vec<ValueName>,
    /// The result and the term in which it came; `None` once a part of it has been dropped.
    whole: Option<(u32, Saved)>,
}

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

    /// That peer has taken a result, which came in that term; a part of it may be kept here.
    pub(crate) fn taken(&mut self, by: Peer, term: u32, saved: Saved) {
        let kept = saved.answer.kept().into_iter();
        let kept = kept.filter(|kept| Some(kept.at) == self.at);
        let values: Vec<ValueName> = kept
            .flat_map(|kept| kept.values.iter().map(|value| value.name))
            .filter(|name| self.has(*name))
            .collect();
        let key = (by, self.next);
        self.next += 1;
        for name in &values {
            self.by_name.entry(*name).or_default().insert(key);
        }
        let root = saved.root_name();
        let whole = Some((term, saved));
        if !values.is_empty() {
            let result = TakenResult {
                root,
                values,
                whole,
            };
            self.taken.insert(key, result);
        }
    }

    /// The peer's life is over: it lets nothing go any more.
    pub(crate) fn taker_gone(&mut self, peer: Peer) -> LeftBehind {
        let of_peer = (peer, 0)..=(peer, u64::MAX);
        let gone: Vec<_> = self.taken.extract_if(of_peer, |_, _| true).collect();
        let mut left = LeftBehind::default();
        for (key, result) in gone {
            self.no_place(key, &result.values);
            match result.whole {
                Some(whole) => left.results.push(whole),
                None => left.rest.extend(result.values),
            }
        }
        left
    }

    fn no_place(&mut self, key: (Peer, u64), values: &[ValueName]) {
        for name in values {
            if let Some(places) = self.by_name.get_mut(name) {
                places.remove(&key);
                if places.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }

    /// These have been dropped, each once.
    pub(crate) fn drop(&mut self, names: &[ValueName]) {
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
            self.no_more_whole(name);
        }
        self.roots.retain(|_, kept| !kept.is_empty());
    }

    /// That part of a result that was taken is not kept any more. Of several that have the same part it is the first one's: who takes a result
    /// may have passed it on, so it is not known who has dropped it.
    fn no_more_whole(&mut self, name: &ValueName) {
        let places = self.by_name.get(name);
        let Some(key) = places.and_then(|places| places.first().copied()) else {
            return;
        };
        let Some(result) = self.taken.get_mut(&key) else {
            return;
        };
        result.whole = None;
        if let Some(at) = result.values.iter().position(|value| value == name) {
            result.values.swap_remove(at);
        }
        let is_over = result.values.is_empty();
        if !result.values.contains(name) {
            self.no_place(key, &[*name]);
        }
        if is_over {
            self.taken.remove(&key);
        }
    }

    /// Root jobs are over, and what was kept for them has been dropped.
    pub(crate) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.roots.retain(|root, _| !is_over(*root));
        let over = self.taken.extract_if(.., |_, result| is_over(result.root));
        for (key, result) in over.collect::<Vec<_>>() {
            self.no_place(key, &result.values);
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
    use crate::{
        job::{Answer, Fingerprint, JobId, JobName, ValueSize},
        node::NodeId,
    };

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
        kept.drop(&[name(1), name(2), name(4)]);
        assert_eq!(
            [1, 2, 3].map(|number| kept.has(name(number))),
            [true, false, true]
        );
        kept.drop(&[name(1)]);
        assert_eq!(kept.roots().collect::<Vec<_>>(), [root(2)]);
        kept.forget_roots(|over| over == root(2));
        assert!(kept.is_empty());
    }

    #[test]
    fn what_a_peer_has_taken_is_left_behind_as_far_as_it_is_whole() {
        let mut kept = KeptHere::default();
        let peer = |number| Peer {
            id: NodeId(number),
            generation: 0,
        };
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
        for (by, result) in &results {
            let parts = result.answer.kept().expect("some are kept");
            kept.keep(result.root_name(), parts);
            kept.taken(peer(*by), 5, result.clone());
        }
        kept.drop(&[value(2).name]);
        let left = kept.taker_gone(peer(1));
        assert_eq!(left.results, [(5, results[0].1.clone())]);
        assert_eq!(left.rest, [value(3).name]);
        assert!(kept.taker_gone(peer(1)).results.is_empty());
        kept.drop(&[value(1).name, value(4).name]);
        let left = kept.taker_gone(peer(2));
        assert!(left.results.is_empty() && left.rest.is_empty());
        // What went through this node is kept by another.
        let mut through = result(3, &[1]);
        if let Answer::Result {
            kept: Some(kept), ..
        } = &mut through.answer
        {
            kept.at = 8;
        }
        kept.keep(through.root_name(), &parts(&[1]));
        kept.taken(peer(1), 5, through);
        assert!(kept.taker_gone(peer(1)).results.is_empty());
        kept.forget_roots(|_| true);
        assert!(kept.is_empty() && kept.taken.is_empty() && kept.by_name.is_empty());
    }
}
