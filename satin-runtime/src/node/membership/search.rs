//! The way in: whom to ask, and when to give up and ask again, or to found the pool.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use super::super::{
    Action, Context, Identity, Message, Notice, Peer,
    expiry::{Expiry, ran_out},
};

/// Between dialling one address and the next, while nobody has answered.
const STAGGER: Duration = Duration::from_millis(100);
/// A round in which nobody has let us in for so long is over. Nodes with long links need some round trips.
const ROUND: Duration = Duration::from_secs(2);
/// Between two rounds: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Who stands before us in the list and is not in either is given so long to found the pool.
const DEFERENCE: Duration = Duration::from_secs(5);
/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddressState {
    NotYet,
    Dialled,
    /// It does not answer, or it is not in either.
    InVain,
}

/// What comes of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SearchStep {
    GoOn,
    Found,
}

/// A search under way.
pub(super) struct Search {
    join: Vec<SocketAddr>,
    may_found: bool,
    tried: Vec<AddressState>,
    /// A round begins.
    fresh: bool,
    /// The next address to be dialled.
    next: usize,
    /// We asked these, and they have not answered yet.
    asked: BTreeSet<Peer>,
    /// We asked this one to let us in, for it is master.
    master: Option<Peer>,
    /// Somebody who goes before us lives, but is not in either.
    elder: bool,
    began: Option<Duration>,
    round_ends: Duration,
    step: Duration,
    pause: Duration,
    warn: Duration,
}

impl Search {
    pub(super) fn new(join: Vec<SocketAddr>, may_found: bool, now: Duration) -> Search {
        let tried = vec![AddressState::NotYet; join.len()];
        Search {
            join,
            may_found,
            tried,
            fresh: true,
            next: 0,
            asked: BTreeSet::new(),
            master: None,
            elder: false,
            began: None,
            round_ends: now + ROUND,
            step: now,
            pause: PAUSE.0,
            warn: now + ROUND,
        }
    }

    pub(super) fn next_timeout(&self) -> Duration {
        self.step
    }

    pub(super) fn candidates(&mut self, now: Duration, join: Vec<SocketAddr>, may_found: bool) {
        if (&self.join, self.may_found) != (&join, may_found) {
            self.join = join;
            self.may_found = may_found;
            self.begin_round(now);
        }
    }

    /// Begin again at once: who was to let us in is not there any more, or we are somebody else.
    pub(super) fn restart(&mut self, now: Duration) {
        self.pause = PAUSE.0;
        self.begin_round(now + PAUSE.0);
    }

    fn begin_round(&mut self, at: Duration) {
        self.tried = vec![AddressState::NotYet; self.join.len()];
        self.fresh = true;
        self.next = 0;
        self.master = None;
        self.elder = false;
        self.step = at;
        self.round_ends = at + ROUND;
    }

    /// The next step, if it is time. Those to whom connections stand are `linked`.
    pub(super) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        linked: impl Iterator<Item = Peer>,
    ) -> SearchStep {
        if now < self.step {
            return SearchStep::GoOn;
        }
        let began = *self.began.get_or_insert(now);
        if self.join.is_empty() && self.may_found {
            return SearchStep::Found; // with nobody to ask it founds at once, whoever else is on the way in already
        }
        if std::mem::take(&mut self.fresh) {
            linked.for_each(|peer| self.ask_in(cx, peer));
            if !self.asked.is_empty() {
                self.step = now + STAGGER; // their answers count
                return SearchStep::GoOn;
            }
        }
        let mine = cx.view.me().addr;
        while self.join.get(self.next) == Some(&mine) {
            self.tried[self.next] = AddressState::InVain;
            self.next += 1;
        }
        if let Some(addr) = self.join.get(self.next) {
            self.tried[self.next] = AddressState::Dialled;
            self.next += 1;
            cx.actions.push_back(Action::Connect {
                addr: *addr,
                peer: None,
            });
            self.step = now + STAGGER;
            return SearchStep::GoOn;
        }
        let in_vain = self.master.is_none()
            && self
                .tried
                .iter()
                .all(|tried| *tried == AddressState::InVain);
        if !in_vain && now < self.round_ends {
            self.step = self.round_ends;
            return SearchStep::GoOn;
        }
        let deferent = self.elder && now < began + DEFERENCE;
        let pending = self.master.is_some() || !self.asked.is_empty();
        if self.may_found && !deferent && !pending {
            return SearchStep::Found;
        }
        if now >= self.warn {
            self.warn = now + WARN_EVERY;
            ran_out(Expiry::Search);
            let places: Vec<String> = self.join.iter().map(SocketAddr::to_string).collect();
            let text = format!(
                "no node of the pool answers at {}: still trying (is one running there, with the same pool name, \
                 program and credential? If the pool has ended, Ctrl-C ends this node)",
                if places.is_empty() {
                    "any known address".to_owned()
                } else {
                    places.join(", ")
                },
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
        }
        self.begin_round(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
        SearchStep::GoOn
    }

    /// A connection stands; whether its other side is in, it will say.
    pub(super) fn connected(&mut self, cx: &mut Context<'_>, peer: Peer) {
        if self.master != Some(peer) {
            self.ask_in(cx, peer);
        }
    }

    fn ask_in(&mut self, cx: &mut Context<'_>, peer: Peer) {
        self.asked.insert(peer);
        let me = cx.view.me().clone();
        cx.actions.push_back(Action::Send(peer, Message::Join(me)));
    }

    pub(super) fn unreachable(&mut self, now: Duration, addr: SocketAddr, peer: Option<Peer>) {
        if let Some(peer) = peer {
            self.asked.remove(&peer);
        }
        if peer.is_some() && peer == self.master {
            self.restart(now);
        } else {
            self.in_vain(now, addr);
        }
    }

    pub(super) fn disconnected(&mut self, now: Duration, peer: Peer) {
        self.asked.remove(&peer);
        if self.master == Some(peer) {
            self.restart(now);
        }
    }

    fn in_vain(&mut self, now: Duration, addr: SocketAddr) {
        for (tried, candidate) in self.tried.iter_mut().zip(&self.join) {
            if *candidate == addr && *tried == AddressState::Dialled {
                *tried = AddressState::InVain;
                self.step = self.step.min(now);
            }
        }
    }

    /// An answer: who is master, or (without a stamp) that the sender is not in either.
    pub(super) fn told(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        from: Peer,
        identity: &Identity,
    ) {
        self.asked.remove(&from);
        if identity.stamp == Identity::NOT_YET {
            let me = cx.view.me();
            let place =
                |addr: SocketAddr| self.join.iter().position(|candidate| *candidate == addr);
            let before = match (place(identity.addr), place(me.addr)) {
                (Some(theirs), Some(mine)) => theirs < mine,
                _ => identity.peer < me.peer,
            };
            self.elder |= before;
            self.in_vain(now, identity.addr);
        } else if self.master != Some(identity.peer) {
            self.master = Some(identity.peer);
            self.round_ends = now + ROUND;
            cx.actions.push_back(Action::Connect {
                addr: identity.addr,
                peer: Some(identity.peer),
            });
            self.ask_in(cx, identity.peer);
        }
    }
}
