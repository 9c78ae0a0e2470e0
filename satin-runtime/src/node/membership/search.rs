//! The way in: which nodes to ask, and when to give up and ask again, or to found the pool.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use super::super::{
    Action, Context, Identity, Message, Notice, Peer, Rule, Side,
    expiry::{Expiry, ran_out},
};

/// The time between dialling one address and the next, while no node has answered. Too small: all addresses
/// are dialled for nothing. Too large: dead ones at the head of a list cost time.
const STAGGER: Duration = Duration::from_millis(100);
/// The length of a round: without a welcome by its end the next one begins. Too small: nodes with long
/// links, which need some round trips, never get in. Too large: a lost welcome costs that much.
const ROUND: Duration = Duration::from_secs(2);
/// The pause between two rounds: the first one, and the longest. Too small: noise while the pool is not there
/// yet. Too large: nodes come in late.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The time in which a node that comes over is let in only at the side to which it does, or a better one. Too small: another side that comes over,
/// too, lets it in for a moment. Too large: where no such side is left, nothing is done for that long.
const TOWARD: Duration = Duration::from_secs(4);
/// The time for a node before this one in the list, that is not in either, to found the pool. Too small: two
/// pools. Too large: all wait for a node that does not start.
const DEFERENCE: Duration = Duration::from_secs(5);
/// The time between two warnings that no pool answers. Too small: a log full of them. Too large: the user
/// does not know why nothing happens.
const WARN_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddressState {
    NotYet,
    Dialled,
    /// The address does not answer, or its node is not in either.
    InVain,
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SearchStep {
    GoOn,
    Found,
}

/// A search under way.
pub(super) struct Search {
    /// The addresses of nodes that may be in the pool, in order.
    join: Vec<SocketAddr>,
    /// Whether this node may found the pool, if no other is there.
    may_found: bool,
    /// From then on it may, in time awake.
    founds: Option<Duration>,
    /// Until then this node asks to be let in at that side of a cut, or a better one.
    toward: Option<(Side, Duration)>,
    /// The state of each address of `join`, in this round.
    tried: Vec<AddressState>,
    /// True at the beginning of a round: connections that stand are used first.
    fresh: bool,
    /// The next address to be dialled.
    next: usize,
    /// The nodes that were asked, and have not answered yet.
    asked: BTreeSet<Peer>,
    /// The master, once it is known: it was asked to let this node in.
    master: Option<Peer>,
    /// A node that goes before this one lives, but is not in either.
    elder: bool,
    /// When the search began, in time awake.
    began: Option<Duration>,
    /// When this round ends.
    round_ends: Duration,
    /// When the next step is due.
    step: Duration,
    /// The pause before the next round; it doubles up to its longest.
    pause: Duration,
    /// When the user is warned next.
    warn: Duration,
}

impl Search {
    pub(super) fn new(join: Vec<SocketAddr>, may_found: bool, now: Duration) -> Search {
        let tried = vec![AddressState::NotYet; join.len()];
        Search {
            join,
            may_found,
            founds: None,
            toward: None,
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

    /// The same search of a node that comes over to that side of a cut. From then on it founds a pool, if nobody has let it in.
    pub(super) fn coming_over(self, side: Side, founds: Duration) -> Search {
        Search {
            founds: Some(founds),
            toward: Some((side, self.step + TOWARD)),
            ..self
        }
    }

    /// Does this node found a pool if it is not let in for long?
    pub(super) fn founds_later(&self) -> bool {
        self.founds.is_some()
    }

    /// The `main` of the pool goes on until then at least: before that this node founds none.
    pub(super) fn main_goes_on(&mut self, until: Duration) {
        self.founds = self.founds.map(|founds| founds.max(until));
    }

    pub(super) fn next_timeout(&self) -> Duration {
        self.step
    }

    pub(super) fn candidates(&mut self, now: Duration, join: Vec<SocketAddr>, may_found: bool) {
        // A name or a file is looked up again and again: the same answer must not end the round
        // under way.
        if (&self.join, self.may_found) != (&join, may_found) {
            self.join = join;
            self.may_found = may_found;
            self.begin_round(now);
        }
    }

    /// Begins again at once: the master that was to let this node in is gone.
    pub(super) fn restart(&mut self, now: Duration) {
        self.pause = PAUSE.0;
        self.begin_round(now + PAUSE.0);
    }

    /// Begins again in another life: who was asked in the one before need not answer.
    pub(super) fn begin_life(&mut self, now: Duration) {
        self.asked.clear();
        self.restart(now);
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

    /// Takes the next step, if it is time. `linked` are the peers to which connections stand.
    pub(super) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        linked: impl Iterator<Item = Peer>,
    ) -> SearchStep {
        if now < self.step {
            return SearchStep::GoOn;
        }
        if cx.config.obeys(Rule::LetIn) && self.founds.take_if(|at| *at <= now).is_some() {
            (self.may_found, self.began) = (true, None);
            // A node that has not answered until now will not.
            self.asked.clear();
            self.begin_round(now);
        }
        // The better side may have come over itself by now.
        self.toward.take_if(|(_, until)| *until <= now);
        let began = *self.began.get_or_insert(now);
        if self.join.is_empty() && self.may_found {
            return SearchStep::Found; // with nobody to ask it founds at once, whoever else is on the way in already
        }
        // Connections that stand are asked first: their other sides may have come in meanwhile, and
        // dialling costs more than a word.
        if std::mem::take(&mut self.fresh) {
            linked.for_each(|peer| self.ask_in(cx, peer));
            if !self.asked.is_empty() {
                self.step = now + STAGGER; // their answers count
                return SearchStep::GoOn;
            }
        }
        let mine = cx.view.me().addr;
        // All nodes have the same list, so this node's own address is on it: it is no help.
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
        // All were dialled. An answer may still come, unless each of them has failed.
        if !in_vain && now < self.round_ends {
            self.step = self.round_ends;
            return SearchStep::GoOn;
        }
        // If all nodes start at the same moment with the same list, one of them is to found the
        // pool.
        let deferent = self.elder && now < began + DEFERENCE;
        // An answer that is on its way may name a pool that is there already.
        let pending = self.master.is_some() || !self.asked.is_empty();
        if self.may_found && !deferent && !pending {
            return SearchStep::Found;
        }
        if now >= self.warn {
            self.warn = now + WARN_EVERY;
            ran_out(Expiry::Search);
            let places: Vec<String> = self.join.iter().map(SocketAddr::to_string).collect();
            let text = format!(
                "no node of the pool answers at {}: this node keeps trying (does a node run there, with the same pool name, \
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
        let who = cx.view.me().clone();
        let toward = self.toward.map(|(side, _)| side);
        let join = Message::Join { who, toward };
        cx.actions.push_back(Action::Send(peer, join));
    }

    pub(super) fn unreachable(&mut self, now: Duration, addr: SocketAddr, peer: Option<Peer>) {
        if let Some(peer) = peer {
            self.asked.remove(&peer);
        }
        // The master died, or cannot be reached: another round may hear of its successor.
        if peer.is_some() && peer == self.master {
            self.restart(now);
        } else {
            self.in_vain(now, addr);
        }
    }

    pub(super) fn disconnected(&mut self, now: Duration, peer: Peer) {
        // The answer will not come any more, so the founding must not wait for it.
        self.asked.remove(&peer);
        if self.master == Some(peer) {
            self.restart(now);
        }
    }

    fn in_vain(&mut self, now: Duration, addr: SocketAddr) {
        for (tried, candidate) in self.tried.iter_mut().zip(&self.join) {
            if *candidate == addr && *tried == AddressState::Dialled {
                *tried = AddressState::InVain;
                // No answer is to be expected from this address: the next one is dialled now.
                self.step = self.step.min(now);
            }
        }
    }

    /// Takes an answer: it names the master, or says, by its lack of a stamp, that the sender is not in
    /// either.
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
            // The order of the list decides which of them founds. A node that is not on it has no
            // place: then the order of the peers does.
            let before = match (place(identity.addr), place(me.addr)) {
                (Some(theirs), Some(mine)) => theirs < mine,
                _ => identity.peer < me.peer,
            };
            self.elder |= before;
            self.in_vain(now, identity.addr);
        } else if self.master != Some(identity.peer) {
            // Several nodes may name the same master: the round is prolonged once, for its welcome.
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
