//! Those who fell silent, and may be alive on the other side of a partition.
//!
//! Two parts of a pool that declared each other dead say nothing to each other any more: nobody would ever find out that
//! the network is whole again, and each part would run its own `main` to the end. So each node remembers whom it lost to
//! silence, newcomers are given the list with their welcome, and every node that has one dials those on it, one after
//! another, without end. When a connection stands, each side tells the other that it was declared dead
//! ([`Message::DeclaredDead`](super::super::Message::DeclaredDead)), both come back as the next generation, and gossip brings the
//! others together. With each attempt a member of the own part is told too ([`Message::Missed`](super::super::Message::Missed)):
//! it may be the only one who can reach the lost.
//!
//! The nodes of a part take turns: each dials once in `pause * members`, at its place in the order of members, give or take
//! a little. So a part makes one attempt in a `pause`, however many nodes it has, and
//! a node that is frozen, or has no list, costs its own turn only. The pause grows from a quarter of
//! [`Config::redial`](super::super::Config::redial) to all of it.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use rand::RngExt;

use super::super::{
    Action, Context, Identity, Message, NodeId,
    expiry::{Expiry, ran_out},
};

/// So many are remembered. Beyond that the oldest of the site with the most entries is forgotten: one of each part that
/// can be reached is enough, and the longest list is that of one part.
const MOST: usize = 256;
/// The first pause is that part of [`Config::redial`](super::super::Config::redial).
const FIRST: u32 = 4;
/// After somebody was reached, who has begun another life by now.
const MEET_AGAIN: Duration = Duration::from_millis(200);

/// The lost, those to be dialled next first.
#[derive(Default)]
pub(super) struct Lost {
    missed: VecDeque<Identity>,
    next: Duration,
    pause: Duration,
}

impl Lost {
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        (!self.missed.is_empty()).then_some(self.next)
    }

    /// A node fell silent.
    pub(super) fn add(&mut self, cx: &mut Context<'_>, now: Duration, who: &Identity) {
        self.remember(who.clone());
        self.pause = cx.config.redial / FIRST;
        let turn = f64::from(turn(cx)) + cx.rng.random::<f64>();
        self.next = now + self.pause.mul_f64(turn);
    }

    /// Another member misses it, and this node has never heard of it.
    pub(super) fn hear(&mut self, cx: &mut Context<'_>, now: Duration, who: Identity) {
        if self
            .missed
            .iter()
            .any(|missed| missed.peer.id == who.peer.id)
        {
            return;
        }
        if self.missed.is_empty() {
            self.pause = cx.config.redial;
            self.next = now + self.pause.mul_f64(cx.rng.random::<f64>());
        }
        self.remember(who);
    }

    /// This node has come in: the pool misses these.
    pub(super) fn welcome(&mut self, cx: &mut Context<'_>, now: Duration, lost: Vec<Identity>) {
        lost.into_iter().for_each(|who| self.remember(who));
        self.pause = cx.config.redial;
        self.next = now
            + self
                .pause
                .mul_f64(cx.rng.random::<f64>() * cx.view.len() as f64);
    }

    /// Those whom this node misses.
    pub(super) fn all(&self) -> impl Iterator<Item = &Identity> {
        self.missed.iter()
    }

    fn remember(&mut self, who: Identity) {
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

    /// Another process listens at that address: the one that did before is dead for certain.
    pub(super) fn taken(&mut self, addr: SocketAddr, by: NodeId) {
        (self.missed).retain(|missed| missed.addr != addr || missed.peer.id == by);
    }

    /// A connection stands to one that is dead in our view: it will be somebody else soon, and so may we.
    pub(super) fn met(&mut self, cx: &Context<'_>, now: Duration, id: NodeId) {
        if let Some(place) = self.missed.iter().position(|missed| missed.peer.id == id) {
            self.missed.swap(0, place);
            self.pause = cx.config.redial / FIRST;
            self.next = now + MEET_AGAIN;
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, now: Duration) {
        if now < self.next {
            return;
        }
        let Some(missed) = self.missed.pop_front() else {
            return;
        };
        ran_out(Expiry::Redial);
        let addr = missed.addr;
        cx.actions.push_back(Action::Connect { addr, peer: None });
        if let Some(member) = cx.view.random(cx.rng) {
            let missed = Message::Missed(missed.clone());
            cx.actions.push_back(Action::Send(member, missed));
        }
        self.missed.push_back(missed);
        // A round of turns, and then turns that are longer. A little more or less: turns that fell together part again.
        let (pause, members) = (self.pause, cx.view.len() as f64);
        self.pause = (pause * 2).min(cx.config.redial);
        let chance = cx.rng.random::<f64>() - 0.5;
        self.next = now + pause.mul_f64(members + chance) + (self.pause - pause) * turn(cx);
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
    use crate::node::Peer;

    fn who(id: u128, site: &str) -> Identity {
        Identity {
            peer: Peer {
                id: NodeId(id),
                generation: 0,
            },
            name: "somebody".into(),
            site: site.into(),
            addr: ([127, 0, 0, 1], id as u16).into(),
            stamp: 1,
            threads: 1,
        }
    }

    #[test]
    fn many_of_one_site_do_not_push_out_the_only_one_of_another() {
        let mut lost = Lost::default();
        lost.remember(who(1, "far"));
        let crowd = 2..2 + 2 * MOST as u128;
        crowd.for_each(|id| lost.remember(who(id, "near")));
        assert_eq!(lost.missed.len(), MOST);
        assert_eq!(lost.missed[0].peer.id, NodeId(1));
        assert_eq!(lost.missed[1].peer.id, NodeId(3 + MOST as u128));
    }

    #[test]
    fn an_address_that_another_process_has_taken_is_not_looked_at_again() {
        let mut lost = Lost::default();
        lost.remember(who(1, "here"));
        lost.remember(who(2, "here"));
        lost.taken(who(1, "here").addr, NodeId(1));
        assert_eq!(lost.missed.len(), 2, "that is the one itself");
        lost.taken(who(1, "here").addr, NodeId(9));
        assert_eq!(lost.missed[0].peer.id, NodeId(2));
    }
}
