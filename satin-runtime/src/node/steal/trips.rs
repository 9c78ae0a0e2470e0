//! How far away the others are, and whether one of them has a wrong site name.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{Action, Context, Notice, Peer, View},
    numbers::{FAR_ROUND_TRIP, NEAR_ROUND_TRIP, SUSPECT, SUSPECT_SHARE},
};

/// Round trips, as measured.
#[derive(Default)]
pub(super) struct Trips {
    peers: BTreeMap<Peer, Duration>,
    nearest_far: Option<Duration>,
    warned: bool,
}

impl Trips {
    pub(super) fn note(&mut self, cx: &mut Context<'_>, peer: Peer, round_trip: Duration) {
        self.peers.insert(peer, round_trip);
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
            && round_trip > SUSPECT
            && round_trip > far.mul_f64(SUSPECT_SHARE)
        {
            self.warned = true;
            let text = format!(
                "{} is said to stand at this site ({}), but is as far away ({round_trip:.1?}) as another site \
                 ({far:.1?}): is its SATIN_SITE right, and ours?",
                identity.name, identity.site
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        }
    }

    /// To that peer and back.
    pub(super) fn to(&self, view: &View, peer: Peer) -> Duration {
        let usual = if view.is_near(peer) {
            NEAR_ROUND_TRIP
        } else {
            self.nearest_far.unwrap_or(FAR_ROUND_TRIP)
        };
        self.peers.get(&peer).copied().unwrap_or(usual)
    }

    pub(super) fn sever(&mut self, peer: Peer) {
        self.peers.remove(&peer);
    }
}
