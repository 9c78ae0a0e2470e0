//! Faults of links and nodes beyond crashes and partitions between sites.

use std::time::Duration;

use rand::RngExt;

use super::{Cluster, Happening, Identity, Notice, Path, ValueName};
use crate::job::ValueSize;

/// Share of the gossip that comes late, of the gossip that may.
const LATE_SHARE: f64 = 0.1;

impl Cluster {
    /// Ids are not in the order of coming: a node's number and this, by bits exclusive or. Before there are nodes.
    ///
    /// # Panics
    /// A node exists already.
    pub fn scramble(&mut self, mask: u32) {
        assert!(self.slots.is_empty(), "ids do not change");
        self.scrambled = mask;
    }

    /// Cuts the way from one node to another, until all heals.
    pub fn cut_way(&mut self, from: u32, to: u32) {
        self.cut_ways([(from, to)]);
    }

    /// The same of many nodes at once.
    pub fn cut_ways(&mut self, ways: impl IntoIterator<Item = (u32, u32)>) {
        for (from, to) in ways {
            self.wire.cut_way(from, to);
        }
        self.watch_silence();
    }

    /// Cuts two nodes off from each other; that does not heal.
    pub fn cut_for_good(&mut self, a: u32, b: u32) {
        self.wire.cut_for_good(a, b);
        self.wire.cut_for_good(b, a);
        self.watch_silence();
    }

    /// True if between all sites all messages pass, none is lost and none comes late.
    #[must_use]
    pub fn is_network_whole(&self) -> bool {
        let paths = [self.wire.near, self.wire.far];
        let is_good = |path: &Path| path.loss == 0.0 && path.jitter.is_zero();
        !self.wire.cuts_sites() && paths.iter().all(is_good)
    }

    /// Does anything pass from the first node to the second?
    pub(super) fn is_cut_way(&self, from: u32, to: u32) -> bool {
        let [site, other_site] = [from, to].map(|node| self.slot(node).site);
        self.wire.is_cut(from, to) || self.wire.are_sites_cut(site, other_site)
    }

    /// Can a link stand between two nodes?
    #[must_use]
    pub fn reaches(&self, a: u32, b: u32) -> bool {
        !self.is_cut(a, b)
    }

    /// True if the first node has ever heard of the second: has seen it, or been told that others miss it.
    #[must_use]
    pub fn has_heard_of(&self, node: u32, other: u32) -> bool {
        let is_other = |who: &Identity| self.index(who.peer) == other;
        let slot = self.slot(node);
        let told = slot.notices.iter().any(|notice| match notice {
            Notice::Joined(who) | Notice::Left(who) | Notice::Dead(who) => is_other(who),
            _ => false,
        });
        let mut missed = slot.node.misses();
        told || slot.node.view().members().any(is_other)
            || missed.any(|who| self.index(who) == other)
    }

    /// A link needs both ways.
    pub(super) fn is_cut(&self, a: u32, b: u32) -> bool {
        self.is_cut_way(a, b) || self.is_cut_way(b, a)
    }

    /// Extra time for a message that is not bound to the order of the others.
    pub(super) fn astray(&mut self, gossip: bool, large: bool) -> Duration {
        let most = match (gossip, large) {
            (true, _) => self.wire.gossip_late,
            (false, true) => self.wire.stray,
            (false, false) => Duration::ZERO,
        };
        let astray = !most.is_zero() && (!gossip || self.rng.random_bool(LATE_SHARE));
        match astray {
            true => most.mul_f64(self.rng.random()),
            false => Duration::ZERO,
        }
    }

    /// The delay after which a datagram comes a second time, if it does.
    pub(super) fn again(&mut self) -> Option<Duration> {
        let twice = self.wire.gossip_twice > 0.0 && self.rng.random_bool(self.wire.gossip_twice);
        twice.then(|| self.wire.gossip_late.mul_f64(self.rng.random()))
    }

    /// Makes computing on that node take `times` as long from now on, also what is under way.
    pub fn set_slowness(&mut self, node: u32, times: f64) {
        let now = self.now;
        let slot = self.slot_mut(node);
        let change = times / std::mem::replace(&mut slot.slowness, times);
        for (lane, number, ends) in slot.workers.slow_down(now, change) {
            self.schedule(ends, Happening::BurstOver(node, lane, number));
        }
    }

    /// Puts a node at a place: tasks need not take the same time everywhere, see [`GivenTask`](super::GivenTask). All are at place 0 otherwise.
    pub fn set_place(&mut self, node: u32, place: usize) {
        self.slot_mut(node).workers.place = place;
    }

    /// Messages that one node sends to another from now on move at this share of the rate of their path.
    pub fn set_link_speed(&mut self, from: u32, to: u32, share: f64) {
        self.wire.set_speed(from, to, share);
    }

    /// Sets the time that the network thread of that node needs for every message: messages that come meanwhile
    /// wait their turn.
    pub fn set_handling(&mut self, node: u32, time: Duration) {
        self.slot_mut(node).handling = time;
    }

    /// A message that arrives now is handled only then; `None`: at once.
    pub(super) fn queues_until(&mut self, node: u32) -> Option<Duration> {
        let now = self.now;
        let slot = self.slot_mut(node);
        if slot.handled > now {
            return Some(slot.handled);
        }
        slot.handled = now + slot.handling;
        None
    }

    /// Every main makes this value, and all jobs need it. Also of nodes to come.
    pub fn share(&mut self, bytes: Vec<u8>) {
        let name = ValueName(*blake3::hash(&bytes).as_bytes());
        self.shared = Some((name, bytes));
        for node in 0..self.nodes() {
            self.mention_shared(node);
            if self.slot(node).may_start {
                self.make_shared(node);
            }
        }
    }

    /// Has the node the value that every main makes, although no main has made it there?
    pub fn has_fetched_shared(&self, node: u32) -> bool {
        let name = self.shared.as_ref().map(|(name, _)| *name);
        let slot = self.slot(node);
        !slot.may_start && name.is_some_and(|name| self.has_value(node, name))
    }

    /// The node drops the value that every main makes.
    pub fn forget_shared(&mut self, node: u32) {
        if let Some((name, _)) = self.shared {
            self.slot_mut(node).forgets = true;
            self.drop_value(node, name);
        }
    }

    /// Jobs there mention the value that every main makes.
    pub(super) fn mention_shared(&mut self, node: u32) {
        if let Some((name, bytes)) = &self.shared {
            let (name, bytes) = (*name, bytes.len() as u64);
            self.slot_mut(node).workers.needs = vec![ValueSize { name, bytes }];
        }
    }

    /// Main begins there, and makes what it shares.
    pub(super) fn make_shared(&mut self, node: u32) {
        if let Some((_, bytes)) = &self.shared {
            self.make_value(node, bytes.clone());
        }
    }
}
