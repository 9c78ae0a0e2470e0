//! How far away the others are, and whether one of them has a wrong site name.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{Action, Context, Notice, Peer, View},
    numbers::{APART, FAR_ROUND_TRIP, MEASURED, NEAR_ROUND_TRIP, SUSPECT, SUSPECT_SHARE},
};

/// Round trips, as measured.
#[derive(Default)]
pub(super) struct Trips {
    /// The round trip that was measured last, for each peer.
    peers: BTreeMap<Peer, Duration>,
    /// The shortest ones, and of how many: load makes them longer, and nothing shorter.
    shortest: BTreeMap<Peer, (Duration, u32)>,
    /// The shortest round trip to any node of another site.
    nearest_far: Option<Duration>,
    /// Nodes of other sites to which a connection stands, in order.
    far: Vec<Peer>,
    /// Whether the user was told of a suspicious site name.
    warned: bool,
}

impl Trips {
    pub(super) fn note(&mut self, cx: &mut Context<'_>, peer: Peer, round_trip: Duration) {
        self.peers.insert(peer, round_trip);
        let (shortest, measured) = self.shortest.entry(peer).or_insert((round_trip, 0));
        *shortest = round_trip.min(*shortest);
        *measured += 1;
        // Load makes a round trip longer: only the shortest says how far away a node is.
        let (round_trip, measured) = (*shortest, *measured);
        let Some(identity) = cx.view.get(peer) else {
            return;
        };
        if !cx.view.is_near(peer) {
            let nearest = self
                .nearest_far
                .map_or(round_trip, |far| far.min(round_trip));
            self.nearest_far = Some(nearest);
        } else if let Some(far) = self.nearest_far
            && !self.warned
            && measured >= MEASURED
            && far > APART
            && round_trip > SUSPECT
            && round_trip > far.mul_f64(SUSPECT_SHARE)
        {
            // Said once: a wrong name is wrong for every job that comes from there.
            self.warned = true;
            let text = format!(
                "the node {} has the same site name as this node ({}), but is as far away ({round_trip:.1?}) as another site \
                 ({far:.1?}): check SATIN_SITE of both nodes",
                identity.name, identity.site
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        }
    }

    /// The round trip to that peer: as measured, or else the usual one.
    pub(super) fn to(&self, view: &View, peer: Peer) -> Duration {
        let usual = if view.is_near(peer) {
            NEAR_ROUND_TRIP
        } else {
            // The nearest other site that is known is a better guess than a number.
            self.nearest_far.unwrap_or(FAR_ROUND_TRIP)
        };
        self.peers.get(&peer).copied().unwrap_or(usual)
    }

    /// Nodes of other sites to which a connection stands, in order.
    pub(super) fn far(&self) -> &[Peer] {
        &self.far
    }

    pub(super) fn connected(&mut self, view: &View, peer: Peer) {
        if view.is_alive(peer)
            && !view.is_near(peer)
            && let Err(place) = self.far.binary_search(&peer)
        {
            self.far.insert(place, peer);
        }
    }

    pub(super) fn disconnected(&mut self, peer: Peer) {
        if let Ok(place) = self.far.binary_search(&peer) {
            self.far.remove(place);
        }
    }

    pub(super) fn life_ended(&mut self, peer: Peer) {
        self.peers.remove(&peer);
        // But `nearest_far` stays: how far the other sites are does not depend on one node.
        self.shortest.remove(&peer);
        self.disconnected(peer);
    }
}
