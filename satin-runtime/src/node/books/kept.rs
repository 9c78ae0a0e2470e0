//! Parts of results that are kept here, for the nodes that own their jobs: until those can do without, or the root job is over.

use std::collections::BTreeMap;

use crate::job::{RootName, ValueName, ValueSize};

/// What is kept here, as the process of this node has it.
#[derive(Default)]
pub(crate) struct KeptHere {
    /// By the root jobs to which they belong; each value as often as a result with it was made here.
    roots: BTreeMap<RootName, BTreeMap<ValueName, u32>>,
}

impl KeptHere {
    /// Parts of a result that has been made here.
    pub(crate) fn keep(&mut self, root: RootName, values: &[ValueSize]) {
        let kept = self.roots.entry(root).or_default();
        for value in values {
            *kept.entry(value.name).or_default() += 1;
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
        }
        self.roots.retain(|_, kept| !kept.is_empty());
    }

    /// Root jobs are over, and what was kept for them has been dropped.
    pub(crate) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.roots.retain(|root, _| !is_over(*root));
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

    /// The number of values.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn len(&self) -> usize {
        self.roots.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Fingerprint;

    #[test]
    fn a_value_is_kept_as_often_as_it_was_made_and_no_longer_than_its_root_job() {
        let mut kept = KeptHere::default();
        let name = |number| ValueName([number; 32]);
        let value = |number| ValueSize {
            name: name(number),
            bytes: 9,
        };
        let root = |number| RootName {
            number,
            fingerprint: Fingerprint(1),
        };
        kept.keep(root(1), &[value(1), value(2)]);
        kept.keep(root(1), &[value(1)]);
        kept.keep(root(2), &[value(3)]);
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
}
