//! Cluster-aware random stealing (van Nieuwpoort, Kielmann, Bal 2001): the own site, one node after another, and
//! beside it, so that its long round trip costs nothing, one request to another site.

use rand::{Rng, RngExt, rngs::SmallRng};

use super::{
    super::{
        super::{Peer, View},
        numbers::{FAR_ACQUAINTANCES, FAR_RICH, FAR_ROUND, FAR_STRANGERS, NEAR_ROUND},
    },
    Around, StealPolicy, ring,
};

/// The policy `crs`.
pub struct Crs;

const NEAR: usize = 0;

impl StealPolicy for Crs {
    fn lanes(&self) -> usize {
        2
    }

    fn victim(&self, lane: usize, around: &Around<'_>, rng: &mut SmallRng) -> Option<Peer> {
        // Within a site any node that has more is asked again. Far away only one that has many
        // more: of a recursive program one victim after another would be plundered.
        let enough = if lane == NEAR { 1 } else { FAR_RICH };
        if let Some((giver, left)) = around.giver
            && left >= enough
        {
            return Some(giver);
        }
        if lane == NEAR {
            return around.view.random_near(rng);
        }
        let known = around.far;
        // A new connection costs both sides a handshake, and the thief two round trips more. Now
        // and then it is made all the same, or no new node would ever be met.
        if known.len() >= FAR_ACQUAINTANCES && !rng.random_bool(FAR_STRANGERS) {
            return Some(known[rng.random_range(0..known.len())]);
        }
        around.view.random_far(rng)
    }

    fn round(&self, lane: usize, view: &View) -> u32 {
        let near = view.site(&view.me().site).len();
        if lane == NEAR {
            // No more than there are others: asked twice in a round, the same node has nothing
            // twice.
            NEAR_ROUND.min(near as u32 - 1)
        } else {
            FAR_ROUND.min((view.len() - near) as u32)
        }
    }

    /// The jobs that come from afar are enough for the whole site: the others steal them on.
    fn share(&self, lane: usize, view: &View) -> u32 {
        let near = view.site(&view.me().site).len() as u32;
        if lane == NEAR { 1 } else { near }
    }

    fn lifelines(&self, lane: usize, view: &View, rng: &mut SmallRng) -> Vec<(Peer, u32)> {
        let me = view.me();
        let near = view.site(&me.site);
        if lane == NEAR {
            ring(near, me.peer)
        } else {
            between_sites(view, near.binary_search(&me.peer).unwrap_or(0), rng)
        }
    }
}

/// The sites stand in a ring as the nodes of one do, and its nodes share the site's lifelines. Each has at least one.
fn between_sites(view: &View, mine: usize, rng: &mut impl Rng) -> Vec<(Peer, u32)> {
    let sites = view.sites().count();
    // Without another site the lane has no victims, and needs no lifelines.
    if sites < 2 {
        return Vec::new();
    }
    let here = (view.sites()).position(|(site, _)| *site == *view.me().site);
    let here = here.unwrap_or(0);
    let nodes = view.site(&view.me().site).len();
    let steps = (sites - 1).ilog2() as usize + 1;
    // The nodes of the site divide the steps of the ring among themselves: each lifeline is left
    // by one of them, not by all.
    let shares = (mine % steps..steps).step_by(nodes.min(steps));
    let others = shares.map(|step| (here + (1 << step)) % sites);
    let others = others.filter_map(|site| view.sites().nth(site));
    others
        // Any member of the other site will do; by chance, so that not all wait at the same one.
        .map(|(_, members)| members[rng.random_range(0..members.len())])
        .map(|peer| (peer, nodes as u32))
        .collect()
}
