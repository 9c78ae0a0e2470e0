//! Values that are fetched before a job here needs them: the node of a flow says what its next tasks will read
//! ([`Message::Prefetch`](super::super::Message::Prefetch)).
//!
//! That is advice. Nothing waits for such a value until a job comes that needs it. What cannot be had is forgotten, and so is what would take more room
//! than there is; the node that said it is told so ([`Message::NotPrefetched`](super::super::Message::NotPrefetched)), as it counts on the value.

use std::collections::{BTreeMap, VecDeque};

use super::{
    super::{Peer, Prefetch},
    values::PIECE,
};
use crate::job::{RootName, ValueName};

/// Bytes that are fetched from one node at a time before they are needed, unless it is one value. Too few: the link stands still between two small ones. Too
/// many: what a job waits for comes late (with two large values at a time graphs whose tasks read much from many nodes took a tenth longer).
const FROM_EACH: u64 = PIECE;

/// The part of the room for borrowed data that values which will be needed may take while they wait to be fetched, and the same while they are being
/// fetched. (What has come is borrowed like anything else.) Too small: what comes late is fetched when it is needed. Too large: they drive out of the
/// store what is needed before.
const SHARE: u64 = 2;

/// So many values wait to be fetched, at most. Too few: small ones are fetched when they are needed. Too many: memory.
const MOST_WAITING: usize = 1024;

/// A value that will be needed here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefetchAdvice {
    pub(super) wanted: Prefetch,
    /// The node that has said so.
    pub(super) by: Peer,
}

/// The values that will be needed here.
#[derive(Default)]
pub(super) struct Prefetches {
    /// Those that are not fetched yet, in the order in which they were told.
    waiting: VecDeque<PrefetchAdvice>,
    /// Bytes of those.
    waiting_bytes: u64,
    /// Those that are being fetched.
    under_way: BTreeMap<ValueName, PrefetchAdvice>,
    /// Bytes of those.
    bytes_under_way: u64,
    /// How many of those bytes come from each node.
    from: BTreeMap<Peer, u64>,
}

impl Prefetches {
    /// A value will be needed. If there is no room for all, those that were told first are forgotten: they are needed by now, or not at all. Gives what is
    /// forgotten.
    pub(super) fn push(&mut self, told: PrefetchAdvice, room: u64) -> Vec<PrefetchAdvice> {
        let most = room / SHARE;
        if told.wanted.value.bytes > most {
            return vec![told];
        }
        self.waiting_bytes += told.wanted.value.bytes;
        self.waiting.push_back(told);
        let mut forgotten = Vec::new();
        while (self.waiting_bytes > most || self.waiting.len() > MOST_WAITING)
            && let Some(first) = self.waiting.pop_front()
        {
            self.waiting_bytes -= first.wanted.value.bytes;
            forgotten.push(first);
        }
        forgotten
    }

    /// The next one to be fetched, if one is to be now.
    pub(super) fn next(&mut self, room: u64) -> Option<PrefetchAdvice> {
        let most = room / SHARE;
        let is_free = |told: &PrefetchAdvice| {
            let bytes = self.bytes_under_way + told.wanted.value.bytes;
            let from = self.from.get(&told.wanted.from);
            let fits = from.is_none_or(|from| from + told.wanted.value.bytes <= FROM_EACH);
            bytes <= most && fits
        };
        let next = self.waiting.iter().position(is_free)?;
        let next = self.waiting.remove(next)?;
        self.waiting_bytes -= next.wanted.value.bytes;
        Some(next)
    }

    /// The value is being fetched.
    pub(super) fn begin(&mut self, told: PrefetchAdvice) {
        self.bytes_under_way += told.wanted.value.bytes;
        *self.from.entry(told.wanted.from).or_default() += told.wanted.value.bytes;
        self.under_way.insert(told.wanted.value.name, told);
    }

    /// Takes out those that are not being fetched any more: they are here, or nobody has them.
    pub(super) fn ended(&mut self, has_ended: impl Fn(ValueName) -> bool) -> Vec<PrefetchAdvice> {
        let ended = self.under_way.extract_if(.., |name, _| has_ended(*name));
        let ended: Vec<PrefetchAdvice> = ended.map(|(_, told)| told).collect();
        for PrefetchAdvice { wanted, .. } in &ended {
            self.bytes_under_way -= wanted.value.bytes;
            if let Some(bytes) = self.from.get_mut(&wanted.from) {
                *bytes -= wanted.value.bytes;
                if *bytes == 0 {
                    self.from.remove(&wanted.from);
                }
            }
        }
        ended
    }

    /// Is nothing to be fetched?
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Root jobs are over.
    pub(super) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.waiting.retain(|told| !is_over(told.wanted.root));
        let bytes = self.waiting.iter().map(|told| told.wanted.value.bytes);
        self.waiting_bytes = bytes.sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{Fingerprint, ValueSize},
        node::NodeId,
    };

    fn peer(number: u128) -> Peer {
        NodeId(number).first_life()
    }

    fn told(number: u8, bytes: u64, from: u128) -> PrefetchAdvice {
        let wanted = Prefetch {
            value: ValueSize {
                name: ValueName([number; 32]),
                bytes,
            },
            root: RootName {
                number: 1,
                fingerprint: Fingerprint(1),
            },
            from: peer(from),
        };
        PrefetchAdvice {
            wanted,
            by: peer(100),
        }
    }

    fn number(told: &PrefetchAdvice) -> u8 {
        told.wanted.value.name.0[0]
    }

    /// The numbers of those that begin now.
    fn begun(prefetches: &mut Prefetches, room: u64) -> Vec<u8> {
        std::iter::from_fn(|| {
            let next = prefetches.next(room)?;
            prefetches.begin(next);
            Some(number(&next))
        })
        .collect()
    }

    #[test]
    fn one_comes_from_each_node_at_a_time_in_the_order_in_which_they_were_told() {
        let room = 100 * PIECE;
        let mut prefetches = Prefetches::default();
        for (number, from) in (0..).zip([1, 1, 1, 2, 1, 2]) {
            let forgotten = prefetches.push(told(number, 2 * PIECE, from), room);
            assert!(forgotten.is_empty());
        }
        assert_eq!(begun(&mut prefetches, room), [0, 3]);
        let ended = prefetches.ended(|name| name.0[0] == 0);
        assert_eq!(ended.iter().map(number).collect::<Vec<_>>(), [0]);
        assert_eq!(begun(&mut prefetches, room), [1]);
        for (ended, next) in [(2, &[2, 5][..]), (2, &[4]), (1, &[])] {
            assert_eq!(prefetches.ended(|_| true).len(), ended);
            assert_eq!(begun(&mut prefetches, room), next);
        }
        assert!(prefetches.is_empty() && prefetches.from.is_empty());
        assert_eq!(
            (prefetches.waiting_bytes, prefetches.bytes_under_way),
            (0, 0)
        );
    }

    #[test]
    fn small_ones_come_together() {
        let room = 100 * PIECE;
        let mut prefetches = Prefetches::default();
        for (number, bytes) in (0..).zip([PIECE / 2, PIECE / 4, PIECE / 2, PIECE / 4]) {
            prefetches.push(told(number, bytes, 1), room);
        }
        assert_eq!(begun(&mut prefetches, room), [0, 1, 3]);
        prefetches.ended(|name| name.0[0] == 0);
        assert_eq!(begun(&mut prefetches, room), [2]);
    }

    #[test]
    fn no_more_is_under_way_than_there_is_room_for() {
        let mut prefetches = Prefetches::default();
        for number in [0, 1] {
            prefetches.push(told(number, 200, number.into()), 1000);
        }
        assert_eq!(begun(&mut prefetches, 1000), [0, 1]);
        for number in [2, 3] {
            prefetches.push(told(number, 200, number.into()), 1000);
        }
        assert!(begun(&mut prefetches, 1000).is_empty());
        prefetches.ended(|name| name.0[0] == 0);
        assert_eq!(begun(&mut prefetches, 1000), [2]);
    }

    #[test]
    fn what_is_too_much_is_forgotten_the_first_told_first() {
        let mut prefetches = Prefetches::default();
        let mut forgotten = Vec::new();
        for number in 0..5 {
            forgotten.extend(prefetches.push(told(number, 300, number.into()), 2000));
        }
        forgotten.extend(prefetches.push(told(9, 1001, 9), 2000));
        assert_eq!(forgotten.iter().map(number).collect::<Vec<_>>(), [0, 1, 9]);
        for number in 0..=u16::MAX {
            prefetches.push(told(number as u8, 0, 1), 2000);
        }
        assert_eq!(prefetches.waiting.len(), MOST_WAITING);
        prefetches.forget_roots(|root| root.number == 1);
        assert!(prefetches.is_empty() && prefetches.waiting_bytes == 0);
    }
}
