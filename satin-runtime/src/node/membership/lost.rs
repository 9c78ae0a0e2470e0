//! Those who fell silent, and may be alive on the other side of a partition.
//!
//! Two parts of a pool that declared each other dead say nothing to each other any more: nobody would ever find out that
//! the network is whole again, and each part would run its own `main` to the end. So each node remembers whom it lost to
//! silence, and the smallest node of its view dials one of them now and then. When a connection stands, each side tells
//! the other that it was declared dead ([`Message::Buried`](super::super::Message::Buried)), both come back as the next
//! generation, and gossip brings the others together.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use super::super::{Action, Context, Identity, NodeId};

/// So many are remembered. One that can be reached is enough.
const MOST: usize = 64;
/// Between two attempts: at first, and at most. Shorter: datagrams to machines that are off. Longer: two masters for longer.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(8));
/// After somebody was reached, who has begun another life by now.
const MEET_AGAIN: Duration = Duration::from_millis(200);
/// Who was silent for so long is not looked for any more.
const FORGOTTEN: Duration = Duration::from_secs(600);

struct Missed {
    id: NodeId,
    addr: SocketAddr,
    since: Duration,
}

/// The lost, those to be dialled next first.
#[derive(Default)]
pub(super) struct Lost {
    missed: VecDeque<Missed>,
    next: Duration,
    pause: Duration,
}

impl Lost {
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        (!self.missed.is_empty()).then_some(self.next)
    }

    /// It fell silent.
    pub(super) fn add(&mut self, now: Duration, who: &Identity) {
        self.found(who.peer.id);
        if self.missed.len() == MOST {
            self.missed.pop_front();
        }
        self.missed.push_back(Missed {
            id: who.peer.id,
            addr: who.addr,
            since: now,
        });
        self.pause = PAUSE.0;
        self.next = now + PAUSE.0;
    }

    /// It is back, or dead for certain.
    pub(super) fn found(&mut self, id: NodeId) {
        self.missed.retain(|missed| missed.id != id);
    }

    /// A connection stands to one that is dead in our view: it will be somebody else soon, and so may we.
    pub(super) fn met(&mut self, now: Duration, id: NodeId) {
        if let Some(place) = self.missed.iter().position(|missed| missed.id == id) {
            self.missed.swap(0, place);
            self.pause = PAUSE.0;
            self.next = now + MEET_AGAIN;
        }
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, now: Duration) {
        if self.missed.is_empty() || now < self.next {
            return;
        }
        self.missed.retain(|missed| now < missed.since + FORGOTTEN);
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        let smallest = cx.view.members().next().map(|member| member.peer);
        if smallest == Some(cx.view.me().peer)
            && let Some(missed) = self.missed.pop_front()
        {
            let addr = missed.addr;
            self.missed.push_back(missed);
            cx.actions.push_back(Action::Connect { addr, peer: None });
        }
    }
}
