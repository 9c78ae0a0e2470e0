//! Which shared values the other nodes hold, as far as this node has seen.
//!
//! A peer holds a value if it was sent the value from here or gave it, if it sent a job or an answer that mentions it, if it was sent a
//! job that does, or told that one will: by the time when the next job comes there, the value is there too, or under way. A wrong entry
//! costs no more than a wrong estimate.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::super::{NodeId, Peer, View};
use crate::job::{RootName, ValueName, ValueSize};

/// The number of values whose holders are remembered; those that were noted first are forgotten. Too small: nodes are thought to
/// lack what they hold, and are given less work. Too large: memory, as much for each peer.
const MOST_VALUES: usize = 4096;

/// Names of values that a node holds.
pub(crate) type HeldNames = Arc<BTreeSet<ValueName>>;

/// The values that are known to be somewhere, and where.
#[derive(Default)]
pub(crate) struct Holders {
    /// The root jobs for which each value is kept: the nodes drop it with the last of them.
    roots: BTreeMap<ValueName, BTreeSet<RootName>>,
    /// The same values, the first that was noted in front.
    order: VecDeque<ValueName>,
    /// The values that each peer holds. Shared with the terms under which jobs leave.
    held: BTreeMap<Peer, HeldNames>,
    /// The values that others keep for this node. It says when they can go, so they need no limit.
    kept: BTreeMap<ValueName, KeptBy>,
}

/// The nodes that keep a value for this one. A node that was declared dead by mistake has it still.
#[derive(Default)]
struct KeptBy {
    /// The root jobs for which it is kept: several may have made the same.
    roots: BTreeSet<RootName>,
    /// For how many results each of them does.
    nodes: BTreeMap<NodeId, u32>,
}

impl Holders {
    /// A peer holds that value, which belongs to that root job, or will soon.
    pub(crate) fn note(&mut self, peer: Peer, name: ValueName, root: RootName) {
        let roots = self.roots.entry(name).or_insert_with(|| {
            self.order.push_back(name);
            BTreeSet::new()
        });
        roots.insert(root);
        let held = self.held.entry(peer).or_default();
        // Asked first: terms that are under way share the names, which are copied for a change.
        if !held.contains(&name) {
            Arc::make_mut(held).insert(name);
        }
        if self.order.len() > MOST_VALUES {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.order.pop_front() {
            self.forget_names(first);
        }
    }

    /// A peer keeps that value, a part of a result, for this node.
    pub(crate) fn note_keeper(&mut self, peer: Peer, name: ValueName, root: RootName) {
        let kept = self.kept.entry(name).or_default();
        kept.roots.insert(root);
        *kept.nodes.entry(peer.id).or_default() += 1;
        self.note(peer, name, root);
    }

    /// The nodes that keep that value for this one.
    pub(crate) fn keepers(&self, name: ValueName) -> impl Iterator<Item = NodeId> + '_ {
        let kept = self.kept.get(&name).into_iter();
        kept.flat_map(|kept| kept.nodes.keys().copied())
    }

    /// That node need not keep the value for a result any more. If no other does, nobody needs it.
    pub(crate) fn let_go(&mut self, keeper: NodeId, name: ValueName) {
        if let Some(kept) = self.kept.get_mut(&name) {
            if let Some(times) = kept.nodes.get_mut(&keeper) {
                *times -= 1;
                if *times == 0 {
                    kept.nodes.remove(&keeper);
                }
            }
            if !kept.nodes.is_empty() {
                return;
            }
            self.kept.remove(&name);
        }
        if self.roots.contains_key(&name) {
            self.order.retain(|other| *other != name);
            self.forget_names(name);
        }
    }

    fn forget_names(&mut self, name: ValueName) {
        self.roots.remove(&name);
        self.held.retain(|_, held| {
            if held.contains(&name) {
                Arc::make_mut(held).remove(&name);
            }
            !held.is_empty()
        });
    }

    /// Takes names off all peers.
    fn remove(&mut self, is_it: impl Fn(&ValueName) -> bool) {
        self.held.retain(|_, held| {
            if held.iter().any(&is_it) {
                Arc::make_mut(held).retain(|name| !is_it(name));
            }
            !held.is_empty()
        });
    }

    /// A peer does not hold that value, or not any more.
    pub(crate) fn lacks(&mut self, peer: Peer, name: ValueName) {
        if let Some(held) = self.held.get_mut(&peer).filter(|held| held.contains(&name)) {
            Arc::make_mut(held).remove(&name);
        }
    }

    /// Forgets a peer whose life is over.
    pub(crate) fn life_ended(&mut self, peer: Peer) {
        self.held.remove(&peer);
    }

    /// Root jobs are over: values that were kept for them alone are dropped everywhere.
    pub(crate) fn forget_roots(&mut self, is_over: impl Fn(RootName) -> bool) {
        self.kept.retain(|_, kept| {
            kept.roots.retain(|root| !is_over(*root));
            !kept.roots.is_empty()
        });
        let before = self.roots.len();
        self.roots.retain(|_, roots| {
            roots.retain(|root| !is_over(*root));
            !roots.is_empty()
        });
        if self.roots.len() < before {
            let roots = std::mem::take(&mut self.roots);
            self.order.retain(|name| roots.contains_key(name));
            self.remove(|name| !roots.contains_key(name));
            self.roots = roots;
        }
    }

    /// Root jobs of which a value is known to be somewhere.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootName> + '_ {
        let kept = self.kept.values().flat_map(|kept| &kept.roots);
        self.roots.values().flatten().chain(kept).copied()
    }

    /// The peers that hold that value.
    pub(crate) fn of(&self, name: ValueName) -> impl Iterator<Item = Peer> + '_ {
        let held = self.held.iter();
        held.filter_map(move |(peer, held)| held.contains(&name).then_some(*peer))
    }

    /// The values that need not move to that peer from here: those that it holds; if it stands at another site, also those that
    /// a node of that site holds, as the site fetches from itself what it has.
    pub(crate) fn at_hand(&self, view: &View, peer: Peer) -> Vec<HeldNames> {
        let is_far = !view.is_near(peer);
        let site = view.get(peer).map(|identity| &identity.site);
        let is_of_site = |other: Peer| {
            other == peer
                || is_far && site.is_some() && view.get(other).map(|other| &other.site) == site
        };
        let held = self.held.iter().filter(|(other, _)| is_of_site(**other));
        held.map(|(_, held)| Arc::clone(held)).collect()
    }

    /// Is nothing known?
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let knows = !self.roots.is_empty() || !self.order.is_empty() || !self.held.is_empty();
        !knows && self.kept.is_empty()
    }
}

/// The bytes of these values that are not at hand.
pub(crate) fn lacking(values: &[ValueSize], at_hand: &[HeldNames]) -> u64 {
    let is_here = |value: &&ValueSize| at_hand.iter().any(|held| held.contains(&value.name));
    let lacking = values.iter().filter(|value| !is_here(value));
    lacking.map(|value| value.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{job::Fingerprint, node::NodeId};

    fn peer(number: u128) -> Peer {
        NodeId(number).first_life()
    }

    fn root(number: u32) -> RootName {
        RootName {
            number,
            fingerprint: Fingerprint(1),
        }
    }

    fn name(number: usize) -> ValueName {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        ValueName(name)
    }

    #[test]
    fn a_value_is_known_until_the_last_root_job_that_needs_it_is_over() {
        let mut holders = Holders::default();
        holders.note(peer(1), name(1), root(1));
        holders.note(peer(2), name(1), root(2));
        holders.note(peer(2), name(2), root(1));
        holders.forget_roots(|over| over == root(1));
        assert_eq!(holders.of(name(1)).collect::<Vec<_>>(), [peer(1), peer(2)]);
        assert_eq!(holders.of(name(2)).count(), 0);
        holders.forget_roots(|over| over == root(2));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_value_is_needed_as_long_as_a_node_keeps_it_for_a_result() {
        let mut holders = Holders::default();
        let keepers = |holders: &Holders| -> Vec<NodeId> { holders.keepers(name(1)).collect() };
        for keeper in [1, 1, 2] {
            holders.note_keeper(peer(keeper), name(1), root(1));
        }
        holders.note(peer(3), name(1), root(1));
        holders.life_ended(peer(2));
        assert_eq!(keepers(&holders), [NodeId(1), NodeId(2)], "it may be back");
        for (keeper, left) in [(1, 2), (1, 1), (2, 0)] {
            holders.let_go(NodeId(keeper), name(1));
            assert_eq!(keepers(&holders).len(), left);
            assert_eq!(holders.of(name(1)).next().is_some(), left > 0);
        }
        holders.note_keeper(peer(1), name(1), root(1));
        holders.forget_roots(|over| over == root(1));
        assert!(holders.is_empty());
    }

    /// Two threads call the same function, so their root jobs make the same; the end of one does not take away what is kept for the other.
    #[test]
    fn what_is_kept_for_two_root_jobs_is_known_until_both_are_over() {
        let mut holders = Holders::default();
        holders.note_keeper(peer(1), name(1), root(1));
        holders.note_keeper(peer(2), name(1), root(2));
        holders.forget_roots(|over| over == root(1));
        let keepers: Vec<NodeId> = holders.keepers(name(1)).collect();
        assert!(keepers.contains(&NodeId(2)));
        assert_eq!(holders.roots().collect::<BTreeSet<_>>().len(), 1);
        holders.forget_roots(|over| over == root(2));
        assert!(holders.is_empty());
    }

    #[test]
    fn what_a_peer_lacks_and_who_is_gone_is_forgotten() {
        let mut holders = Holders::default();
        for number in [1, 2] {
            holders.note(peer(number), name(1), root(1));
        }
        holders.lacks(peer(1), name(1));
        assert_eq!(holders.of(name(1)).collect::<Vec<_>>(), [peer(2)]);
        holders.life_ended(peer(2));
        assert_eq!(holders.of(name(1)).count(), 0);
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let mut holders = Holders::default();
        for number in 0..MOST_VALUES + 10 {
            holders.note(peer(1), name(number), root(1));
        }
        assert_eq!(holders.held[&peer(1)].len(), MOST_VALUES);
        assert_eq!(holders.of(name(9)).count(), 0);
        assert_eq!(holders.of(name(10)).count(), 1);
    }
}
