//! Values that are fetched before a job here needs them: the node of a flow says what its next tasks will read
//! ([`Message::Prefetch`](super::super::Message::Prefetch)).
//!
//! That is advice. Nothing waits for such a value until a job comes that needs it; what cannot be had is forgotten, and so is what would take more room
//! than there is.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::super::Peer;
use crate::job::{RootName, ValueName, ValueSize};

/// So many values are fetched from one node at a time before they are needed. Too few: the link stands still between two. Too many: what a job
/// waits for comes late.
const FROM_EACH: usize = 2;

/// The part of the room for borrowed data that values which will be needed may take while they wait to be fetched. Too small: what comes late is
/// fetched when it is needed. Too large: they drive out of the store what is needed before.
const SHARE: u64 = 2;

/// So many values wait to be fetched, at most. Too few: small ones are fetched when they are needed. Too many: memory.
const MOST_WAITING: usize = 1024;

/// A value that will be needed, and where it is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prefetch {
    /// The value.
    pub value: ValueSize,
    /// The root job of which its flow is a part.
    pub root: RootName,
    /// The node that has it.
    pub from: Peer,
}

/// The values that will be needed here.
#[derive(Default)]
pub(super) struct Prefetches {
    /// Those that are not fetched yet, in the order in which they were told.
    waiting: VecDeque<Prefetch>,
    /// Bytes of those.
    bytes: u64,
    /// Those that are being fetched, and from where.
    under_way: BTreeMap<ValueName, Peer>,
}

impl Prefetches {
    /// A value will be needed. If there is no room for all, those that were told first are forgotten: they are needed by now, or not at all.
    pub(super) fn push(&mut self, wanted: Prefetch, room: u64) {
        let most = room / SHARE;
        if wanted.value.bytes > most {
            return;
        }
        self.bytes += wanted.value.bytes;
        self.waiting.push_back(wanted);
        while (self.bytes > most || self.waiting.len() > MOST_WAITING)
            && let Some(first) = self.waiting.pop_front()
        {
            self.bytes -= first.value.bytes;
        }
    }

    /// The next one to be fetched, if one is to be now.
    pub(super) fn next(&mut self) -> Option<Prefetch> {
        let is_free = |from: Peer| {
            let from = self.under_way.values().filter(|other| **other == from);
            from.count() < FROM_EACH
        };
        let next = self
            .waiting
            .iter()
            .position(|wanted| is_free(wanted.from))?;
        let next = self.waiting.remove(next)?;
        self.bytes -= next.value.bytes;
        Some(next)
    }

    /// The value is being fetched from that node.
    pub(super) fn begin(&mut self, name: ValueName, from: Peer) {
        self.under_way.insert(name, from);
    }

    /// Some of those that were being fetched are here, or nobody has them.
    pub(super) fn ended(&mut self, has_ended: impl Fn(ValueName) -> bool) {
        self.under_way.retain(|name, _| !has_ended(*name));
    }

    /// Root jobs are over.
    pub(super) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.waiting.retain(|wanted| !is_over(wanted.root));
        self.bytes = self.waiting.iter().map(|wanted| wanted.value.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{job::Fingerprint, node::NodeId};

    fn wanted(number: u8, bytes: u64, from: u128, root: u32) -> Prefetch {
        Prefetch {
            value: ValueSize {
                name: ValueName([number; 32]),
                bytes,
            },
            root: RootName {
                number: root,
                fingerprint: Fingerprint(1),
            },
            from: Peer {
                id: NodeId(from),
                generation: 0,
            },
        }
    }

    /// The numbers of those that begin now.
    fn begun(prefetches: &mut Prefetches) -> Vec<u8> {
        std::iter::from_fn(|| {
            let next = prefetches.next()?;
            prefetches.begin(next.value.name, next.from);
            Some(next.value.name.0[0])
        })
        .collect()
    }

    #[test]
    fn a_few_come_from_each_node_at_a_time_in_the_order_in_which_they_were_told() {
        let mut prefetches = Prefetches::default();
        for (number, from) in (0..).zip([1, 1, 1, 2, 1, 2]) {
            prefetches.push(wanted(number, 10, from, 1), 1000);
        }
        assert_eq!(begun(&mut prefetches), [0, 1, 3, 5]);
        prefetches.ended(|name| name.0[0] == 1);
        assert_eq!(begun(&mut prefetches), [2]);
        prefetches.ended(|_| true);
        assert_eq!(begun(&mut prefetches), [4]);
        assert_eq!(prefetches.bytes, 0);
    }

    #[test]
    fn what_is_too_much_is_forgotten_the_first_told_first() {
        let mut prefetches = Prefetches::default();
        for number in 0..5 {
            prefetches.push(wanted(number, 300, number.into(), 1), 2000);
        }
        prefetches.push(wanted(9, 1001, 9, 1), 2000);
        assert_eq!(begun(&mut prefetches), [2, 3, 4]);
        for number in 0..=u16::MAX {
            prefetches.push(wanted(number as u8, 0, 1, 1), 2000);
        }
        assert_eq!(prefetches.waiting.len(), MOST_WAITING);
        prefetches.forget_roots(|root| root.number == 1);
        assert_eq!((prefetches.waiting.len(), prefetches.bytes), (0, 0));
    }
}
