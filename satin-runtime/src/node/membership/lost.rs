//! Nodes that fell silent, or that a firewall says are gone, and that may be alive on the other side of a partition.
//!
//! Two parts of a pool that declared each other dead say nothing to each other any more: without this
//! file they would never find out that the network is whole again, and each part would run its own `main` to
//! the end. So each node remembers which nodes it lost to silence, newcomers are given the list with their
//! welcome, and every node that has one dials the nodes on it, one after another, without end. When a
//! connection stands, each side tells the other that it was declared dead
//! ([`Message::DeclaredDead`](super::super::Message::DeclaredDead)), and one side comes over (see [`membership`](super)). With each attempt a member of the own part is told too
//! ([`Message::Missed`](super::super::Message::Missed)): perhaps only that member can reach the lost.
//!
//! The nodes of a part take turns: each dials once in `pause * members`, at its place in the order of
//! members, give or take a little. So a part makes one attempt in a `pause`, however many nodes it has, and a
//! node that is frozen, or has no list, costs its own turn only. The pause grows from a quarter of
//! [`ProtocolConfig::redial`](super::super::ProtocolConfig::redial) to all of it.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use rand::RngExt;

use super::super::{
    Action, Context, Identity, Message, NodeId, Peer, Side,
    expiry::{Expiry, ran_out},
};

/// The number of lost nodes that are remembered. Beyond that the oldest of the site with the most entries is
/// forgotten: one node of each part that can be reached is enough, and the longest list is that of one part.
/// Too small: a part is forgotten. Too large: long welcomes.
const MOST: usize = 256;
/// The divisor of the first pause: it is so many times shorter than
/// [`ProtocolConfig::redial`](super::super::ProtocolConfig::redial). Too small: parts that were apart for a moment meet late.
/// Too large: many attempts at once after a partition.
const FIRST: u32 = 4;
/// The wait after a lost node was reached, which has begun another life by then. Too small: it is met in the
/// life that is over. Too large: the parts meet later.
const MEET_AGAIN: Duration = Duration::from_millis(200);

/// The lost nodes, the next to be dialled first.
#[derive(Default)]
pub(super) struct LostNodes {
    missed: VecDeque<Identity>,
    /// When the next one is dialled, in time awake.
    next: Duration,
    /// The time for one attempt of the whole part; each node's turn comes once in so many as there
    /// are members.
    pause: Duration,
}

impl LostNodes {
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        (!self.missed.is_empty()).then_some(self.next)
    }

    /// A node fell silent.
    pub(super) fn add(&mut self, cx: &mut Context<'_>, now: Duration, who: &Identity) {
        self.remember(who.clone());
        // Most partitions are short: the first attempts come quickly.
        self.pause = cx.config.redial / FIRST;
        // By place and by chance: all nodes of a part notice the loss at about the same moment, and
        // would all dial at once.
        let turn = f64::from(turn(cx)) + cx.rng.random::<f64>();
        self.next = now + self.pause.mul_f64(turn);
    }

    /// Adds a node that another member misses, and of which this node has never heard.
    pub(super) fn hear(&mut self, cx: &mut Context<'_>, now: Duration, who: Identity) {
        if self
            .missed
            .iter()
            .any(|missed| missed.peer.id == who.peer.id)
        {
            return;
        }
        // The word comes with each attempt of that member: a turn that is set must not be put off
        // by it.
        if self.missed.is_empty() {
            self.pause = cx.config.redial;
            self.next = now + self.pause.mul_f64(cx.rng.random::<f64>());
        }
        self.remember(who);
    }

    /// Adds those whom the pool misses that this node has come into, or those whom it has left.
    pub(super) fn learn(&mut self, cx: &mut Context<'_>, now: Duration, lost: Vec<Identity>) {
        lost.into_iter().for_each(|who| self.remember(who));
        self.pause = cx.config.redial;
        // Their loss is no news: the newcomer falls in with the others at a random place.
        self.next = now
            + self
                .pause
                .mul_f64(cx.rng.random::<f64>() * cx.view.len() as f64);
    }

    /// Does this node miss nobody?
    pub(super) fn is_empty(&self) -> bool {
        self.missed.is_empty()
    }

    /// The nodes that this node misses.
    pub(super) fn all(&self) -> impl Iterator<Item = &Identity> {
        self.missed.iter()
    }

    /// Adds a node, or its newest life, behind all others. No turn is set.
    pub(super) fn remember(&mut self, who: Identity) {
        // A node that is lost again moves to the end, under its newest life.
        self.found(who.peer.id);
        if self.missed.len() == MOST {
            self.forget_one();
        }
        self.missed.push_back(who);
    }

    fn forget_one(&mut self) {
        let of_site = |site: &str| self.missed.iter().filter(|who| *who.site == *site).count();
        // Of equals the last: the order is that of the list, so every run does the same.
        let crowded = self.missed.iter().max_by_key(|who| of_site(&who.site));
        let crowded = crowded.map(|who| who.site.clone());
        let oldest = self
            .missed
            .iter()
            .position(|who| Some(&who.site) == crowded.as_ref());
        oldest.map(|oldest| self.missed.remove(oldest));
    }

    /// The node is back, or dead for certain.
    pub(super) fn found(&mut self, id: NodeId) {
        self.missed.retain(|missed| missed.peer.id != id);
    }

    /// Drops nodes at an address where another process listens by now: the process that did before is dead
    /// for certain.
    pub(super) fn taken(&mut self, addr: SocketAddr, by: NodeId) {
        (self.missed).retain(|missed| missed.addr != addr || missed.peer.id == by);
    }

    /// Puts a node first to which a connection stands although it is dead in this view: it will begin another
    /// life soon, and perhaps this node too.
    pub(super) fn met(&mut self, cx: &Context<'_>, now: Duration, id: NodeId) {
        if let Some(place) = self.missed.iter().position(|missed| missed.peer.id == id) {
            // The connection goes with the old lives, so the same address is dialled once more.
            self.missed.swap(0, place);
            self.pause = cx.config.redial / FIRST;
            self.next = now + MEET_AGAIN;
        }
    }

    /// Looks for the next one, if it is time. To the lives `over`, which are over, connections stand.
    pub(super) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        side: Side,
        over: impl Iterator<Item = Peer>,
    ) {
        if now < self.next {
            return;
        }
        let Some(missed) = self.missed.pop_front() else {
            return;
        };
        ran_out(Expiry::Redial);
        let addr = missed.addr;
        let mut met = over.filter(|peer| peer.id == missed.peer.id);
        cx.actions.push_back(match met.next() {
            // When the two met, both sides had lost their masters, say: one may have one now.
            Some(peer) => Action::Send(peer, Message::DeclaredDead { peer, side }),
            // No life is named: by now the lost node may live as another one.
            None => Action::Connect { addr, peer: None },
        });
        // Between this node and the lost one there may be no way for good, while a member has one.
        if let Some(member) = cx.view.random(cx.rng) {
            let who = missed.clone();
            cx.actions
                .push_back(Action::Send(member, Message::Missed { who, side }));
        }
        self.missed.push_back(missed);
        // A round of turns, and then turns that are longer. A little more or less: turns that fell together part again.
        let (pause, members) = (self.pause, cx.view.len() as f64);
        self.pause = (pause * 2).min(cx.config.redial);
        let chance = cx.rng.random::<f64>() - 0.5;
        self.next =
            now + pause.mul_f64(members + chance) + self.pause.saturating_sub(pause) * turn(cx);
    }
}

/// So many of the view come before this node.
fn turn(cx: &Context<'_>) -> u32 {
    let me = cx.view.me().peer;
    let before = cx.view.members().take_while(|member| member.peer < me);
    before.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(id: u128, site: &str) -> Identity {
        Identity {
            peer: NodeId(id).first_life(),
            name: "somebody".into(),
            site: site.into(),
            addr: ([127, 0, 0, 1], id as u16).into(),
            stamp: 1,
            threads: 1,
        }
    }

    #[test]
    fn many_of_one_site_do_not_push_out_the_only_one_of_another() {
        let mut lost = LostNodes::default();
        lost.remember(who(1, "far"));
        let crowd = 2..2 + 2 * MOST as u128;
        crowd.for_each(|id| lost.remember(who(id, "near")));
        assert_eq!(lost.missed.len(), MOST);
        assert_eq!(lost.missed[0].peer.id, NodeId(1));
        assert_eq!(lost.missed[1].peer.id, NodeId(3 + MOST as u128));
    }

    #[test]
    fn an_address_that_another_process_has_taken_is_not_looked_at_again() {
        let mut lost = LostNodes::default();
        lost.remember(who(1, "here"));
        lost.remember(who(2, "here"));
        lost.taken(who(1, "here").addr, NodeId(1));
        assert_eq!(lost.missed.len(), 2, "that is the one itself");
        lost.taken(who(1, "here").addr, NodeId(9));
        assert_eq!(lost.missed[0].peer.id, NodeId(2));
    }
}
