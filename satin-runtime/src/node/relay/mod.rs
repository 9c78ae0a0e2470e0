//! Relaying: two nodes that cannot reach each other talk through a third that reaches both.
//!
//! Membership is one for the whole pool: two nodes that never hear each other again, but are both heard by a
//! third, are both alive, and everything that is between them (thefts, answers, claims, results to be kept,
//! values, bounds, the name of the master, the way in) has to go on. So a peer that is alive and cannot be
//! connected to is reached by a *circuit*:
//!
//! * The node that could not connect asks one of those to which it is connected, the *relay*, to pass on a
//!   [`Call`](Relayed::Call). The called one answers by the same way ([`Accept`](Relayed::Accept)) and
//!   decides the epoch, which is higher than that of any connection either side has known. From then on a
//!   circuit is a connection like any other: both sides compare their lists, and so on. It ends when either
//!   side says so, or when the relay has lost one of them; then both are told ([`Broken`](Relayed::Broken)),
//!   as they would notice a broken connection, and call anew.
//! * A relay passes on messages that come from the sender itself, and none that was passed on to it; and a
//!   circuit begins with a direct connection. So no message runs in circles. A relay that has no direct
//!   connection to the called one uses a circuit of its own, if it has one: so nodes in a row reach each other.
//! * A relay knows which pairs talk through it, and tells the one when it loses the other. Messages of a pair
//!   stay in order, each once, because both hops keep it so, and because nothing is accepted on a circuit that
//!   has ended.
//! * Meanwhile both sides try to connect directly, more and more seldom. A direct connection takes the place
//!   of the circuit.
//! * A circuit that is not used is closed.
//! * A peer with which something is under way, and that is reached in neither way for
//!   [`ProtocolConfig::cut_off`](super::ProtocolConfig::cut_off), is declared dead: what is under way comes back
//!   on both sides, and the peer, which hears of it by gossip, goes on as the next generation.
//!
//! A one-way cut is a cut: no connection is made, and none lasts, if one direction is silent.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use rand::RngExt;

use super::{
    Action, Context, Identity, Message, Peer, ProtocolConfig,
    expiry::{Expiry, ran_out},
    links::{self, Circuit},
    message::{Envelope, Relayed},
};

#[cfg(test)]
mod tests;

/// The time for the called one to answer; then another relay is asked. Too small: on long links no peer is
/// ever reached. Too large: a relay that hangs costs so much.
const CALL_PATIENCE: Duration = Duration::from_secs(2);
/// The number of relays that are asked in a round, before there is a rest. Too small: the one that reaches
/// the peer is asked late. Too large: noise, if no node reaches it.
const CALLS: usize = 8;
/// The time between two rounds. Too small: many small messages while no node reaches the peer. Too large: a
/// way is found late.
const ROUND: Duration = Duration::from_secs(1);
/// The wait after a first attempt to connect directly has failed. Doubled each time up to
/// [`ProtocolConfig::redial`](super::ProtocolConfig::redial). Too small: noise. Too large: the detour lasts longer
/// than it must.
const REDIAL: Duration = Duration::from_millis(500);
/// The time after which a circuit over which nothing was said is closed. (Gossip does not count.) Too small:
/// the next word pays for a call. Too large: relays remember pairs that do not talk.
const IDLE: Duration = Duration::from_secs(20);
/// The number of messages held for a peer. Beyond that the oldest are dropped, as if a connection had broken.
const HELD: usize = 65_536;
/// The number of pairs that talk through this node, at most. Further calls are refused: the callers
/// ask another.
const PAIRS: usize = 4096;
/// A timeout that is handled later than this was slept through: the peers are not to blame. Too small: a busy
/// machine never finds a peer cut off. Too large: after a short pause this node declares peers dead.
const SLEPT: Duration = Duration::from_millis(250);

/// A call that has not been answered.
struct RelayedCall {
    /// The relay that was asked.
    via: Peer,
    /// The highest epoch that the caller knew.
    known: u64,
    /// When the call left.
    since: Duration,
}

/// A peer that could not be connected to.
struct Astray {
    addr: SocketAddr,
    /// Since when it is reached in no way.
    since: Duration,
    /// The messages for it, to be said when it is reached.
    held: VecDeque<Message>,
    /// The call that has not been answered yet.
    call: Option<RelayedCall>,
    /// The relays that were asked in this round.
    asked: BTreeSet<Peer>,
    /// When the next relay is asked.
    next_call: Duration,
    /// When a direct connection is tried again.
    redial: Duration,
    /// The pause before the attempt after that.
    pause: Duration,
    /// When the circuit was last used.
    used: Duration,
}

impl Astray {
    fn new(addr: SocketAddr, cx: &Context<'_>) -> Astray {
        let (now, first_redial) = (cx.now, cx.config.paced(REDIAL));
        Astray {
            addr,
            since: now,
            held: VecDeque::new(),
            call: None,
            asked: BTreeSet::new(),
            next_call: now,
            redial: now + first_redial,
            pause: first_redial,
            used: now,
        }
    }

    fn hold(&mut self, message: Message) {
        if is_worth_holding(&message) {
            self.held.push_back(message);
        }
        // The oldest go: the lists that are compared once a circuit stands make up for lost words.
        if self.held.len() > HELD {
            self.held.pop_front();
        }
    }
}

/// Is the message still of use when it can be sent? Gossip, and requests that have failed by then, are not
/// held.
fn is_worth_holding(message: &Message) -> bool {
    use Message as M;
    let passing = matches!(message, M::Gossip(_) | M::Ping(_) | M::Pong(_));
    !passing && !matches!(message, M::Steal { .. } | M::Cut(_))
}

/// The outcome of an envelope, or of time.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    /// A circuit stands. The round trip is known to the caller.
    Stands(Identity, Circuit, Option<Duration>),
    /// The circuit with that epoch has ended.
    Ended(Peer, u64),
    /// A message of that peer.
    Message(Peer, Message),
}

/// The circuits and peers for which a time has run out.
#[derive(Default)]
pub(crate) struct Due {
    /// Circuits that have been closed, with their epochs.
    pub(crate) ended: Vec<(Peer, u64)>,
    /// Peers that have been out of reach for too long.
    pub(crate) cut_off: Vec<Peer>,
}

/// The peers that are out of reach, and the pairs that talk through this node.
#[derive(Default)]
pub(crate) struct Relay {
    astray: BTreeMap<Peer, Astray>,
    /// The pairs that talk through this node, with the epoch of their latest envelope.
    pairs: BTreeMap<(Peer, Peer), u64>,
}

fn pair(a: Peer, b: Peer) -> (Peer, Peer) {
    (a.min(b), a.max(b))
}

fn send(cx: &mut Context<'_>, via: Peer, envelope: Envelope) {
    let relay = Message::Relay(envelope);
    cx.actions.push_back(Action::Send(via, relay));
}

/// The message as it goes by a circuit.
pub(crate) fn wrap(from: Peer, to: Peer, circuit: Circuit, message: &Message) -> Action {
    let bytes = postcard::to_stdvec(message).expect("memory takes all that is written");
    let envelope = Envelope {
        from,
        to,
        epoch: circuit.epoch,
        what: Relayed::Message(bytes),
    };
    Action::Send(circuit.via, Message::Relay(envelope))
}

impl Relay {
    pub(crate) fn next_timeout(
        &self,
        links: &links::Links,
        config: &ProtocolConfig,
    ) -> Option<Duration> {
        let idle = config.paced(IDLE);
        let due = |(peer, astray): (&Peer, &Astray)| match links.circuit(*peer) {
            Some(_) => astray.redial.min(astray.used + idle),
            None => astray.redial.min(astray.next_call),
        };
        self.astray.iter().map(due).min()
    }

    /// A peer could not be connected to; these messages had waited for it.
    pub(crate) fn lose(
        &mut self,
        cx: &mut Context<'_>,
        peer: Peer,
        addr: SocketAddr,
        unsent: Vec<Message>,
    ) {
        // The direct attempt failed while a circuit stands: the words go by that.
        if cx.links.circuit(peer).is_some() {
            let sends = unsent
                .into_iter()
                .map(|message| Action::Send(peer, message));
            return cx.actions.extend(sends);
        }
        // A second failure must not begin the time anew after which the peer is cut off.
        if !self.astray.contains_key(&peer) {
            cx.links.go_astray(peer);
        }
        let astray = self.astray.entry(peer);
        let astray = astray.or_insert_with(|| Astray::new(addr, cx));
        unsent.into_iter().for_each(|message| astray.hold(message));
        self.call_if_due(cx, peer);
    }

    /// Keeps a message for a peer that is not reached now: it is said when the peer is.
    pub(crate) fn hold(&mut self, peer: Peer, message: Message) {
        if let Some(astray) = self.astray.get_mut(&peer) {
            astray.hold(message);
        }
    }

    /// Notes that a message goes by a circuit.
    pub(crate) fn used(&mut self, now: Duration, peer: Peer, message: &Message) {
        if let Some(astray) = self.astray.get_mut(&peer)
            // Gossip would keep every circuit in use: membership speaks to all members without end.
            && !matches!(message, Message::Gossip(_))
        {
            astray.used = now;
        }
    }

    /// A direct connection stands: what was held goes before everything else.
    pub(crate) fn connected(&mut self, cx: &mut Context<'_>, peer: Peer) {
        if let Some(astray) = self.astray.remove(&peer) {
            release(cx, peer, astray.held);
        }
    }

    /// The connection to that peer, direct or not, has ended: so have the circuits through it, which are returned, and
    /// the pairs that talked through here are told.
    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer) -> Vec<(Peer, u64)> {
        let of_peer = |(pair, _): &(&(Peer, Peer), &u64)| pair.0 == peer || pair.1 == peer;
        let broken = self.pairs.iter().filter(of_peer);
        let broken: Vec<((Peer, Peer), u64)> =
            broken.map(|(pair, epoch)| (*pair, *epoch)).collect();
        for (pair, epoch) in broken {
            self.pairs.remove(&pair);
            let other = if pair.0 == peer { pair.1 } else { pair.0 };
            // An end that cannot be told either has lost the relay itself, and notices by that.
            if cx.links.epoch(other).is_some() {
                let (from, to, what) = (peer, other, Relayed::Broken);
                let envelope = Envelope {
                    from,
                    to,
                    epoch,
                    what,
                };
                send(cx, other, envelope);
            }
        }
        let circuits: Vec<(Peer, Circuit)> = cx.links.reached_via(peer).collect();
        for (other, _) in &circuits {
            // Another way is sought at once, through another relay than the one that is lost.
            self.begin_anew(cx, *other, peer);
        }
        let ended = circuits.into_iter();
        ended
            .map(|(other, circuit)| (other, circuit.epoch))
            .collect()
    }

    /// Forgets a peer whose life is over. Returns the circuits that end with it.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>, peer: Peer) -> Vec<(Peer, u64)> {
        self.astray.remove(&peer);
        cx.links.forget(peer);
        self.disconnected(cx, peer)
    }

    /// Forgets everything, as this node has begun another life: circuits stand between lives.
    pub(crate) fn clear(&mut self, cx: &mut Context<'_>) {
        for (peer, _) in std::mem::take(&mut self.astray) {
            cx.links.forget_astray(peer);
        }
        self.pairs.clear();
    }

    // ---- calling

    /// The circuit to the peer has ended, or a call has: the next relay is asked, another one first.
    fn begin_anew(&mut self, cx: &mut Context<'_>, peer: Peer, but: Peer) {
        let Some(astray) = self.astray.get_mut(&peer) else {
            return;
        };
        // The peer was reached until now: the time until it counts as cut off begins here.
        if cx.links.circuit(peer).is_some() {
            astray.since = cx.now;
            astray.asked.clear();
            cx.links.go_astray(peer);
        }
        // The relay that failed comes last: it is asked again in the next round.
        astray.asked.insert(but);
        astray.call = None;
        astray.next_call = cx.now;
        self.call_if_due(cx, peer);
    }

    fn call_if_due(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let Some(astray) = self.astray.get_mut(&peer) else {
            return;
        };
        // A call is under way, or a round has just ended in vain.
        if cx.now < astray.next_call || cx.links.circuit(peer).is_some() {
            return;
        }
        // The called one has not answered in time: the relay hangs, or the way behind it is cut.
        if astray.call.is_some() {
            ran_out(Expiry::Call);
        }
        // Only direct connections: a circuit through a circuit could lead back to this node.
        let direct = cx.links.all_direct();
        let others: Vec<Peer> = direct
            .filter(|other| *other != peer && !astray.asked.contains(other))
            .collect();
        // Every neighbour has been asked, or enough of them: a rest, and then all over again.
        if others.is_empty() || astray.asked.len() >= CALLS {
            astray.asked.clear();
            astray.next_call = cx.now + cx.config.paced(ROUND);
            return;
        }
        let via = others[cx.rng.random_range(0..others.len())];
        astray.asked.insert(via);
        astray.next_call = cx.now + cx.config.paced(CALL_PATIENCE);
        // The called one must choose an epoch above all that either side has known, or frames of an
        // old connection would pass for new ones.
        let known = cx.links.known(peer);
        astray.call = Some(RelayedCall {
            via,
            known,
            since: cx.now,
        });
        let envelope = Envelope {
            from: cx.view.me().peer,
            to: peer,
            epoch: known,
            what: Relayed::Call(cx.view.me().clone()),
        };
        send(cx, via, envelope);
    }

    /// The circuits that end now, and the peers that are cut off.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) -> Due {
        // The answers to the calls of a process that was stopped lie unread: its peers are not cut
        // off.
        let slept = self.next_timeout(cx.links, cx.config);
        let slept = slept.and_then(|due| cx.now.checked_sub(due).filter(|late| *late > SLEPT));
        if slept.is_some() {
            ran_out(Expiry::Slept);
        }
        let mut due = Due::default();
        for peer in self.astray.keys().copied().collect::<Vec<_>>() {
            if let (Some(slept), Some(astray)) = (slept, self.astray.get_mut(&peer)) {
                astray.since += slept;
            }
            self.redial(cx, peer);
            if cx.links.circuit(peer).is_some() {
                // A circuit is needed as long as a job is under way, even if a long job keeps both
                // ends silent.
                if cx.books.concern(peer)
                    && let Some(astray) = self.astray.get_mut(&peer)
                {
                    astray.used = cx.now;
                }
                due.ended.extend(self.close_if_idle(cx, peer));
            } else if self.is_cut_off(cx, peer) {
                let (held, alive) = (!self.astray[&peer].held.is_empty(), cx.view.is_alive(peer));
                self.astray.remove(&peer);
                cx.links.forget_astray(peer);
                // A peer to which nothing is to be said may be out of reach without harm
                // to anybody.
                if alive && (held || cx.books.concern(peer)) {
                    ran_out(Expiry::CutOff);
                    due.cut_off.push(peer);
                }
            } else {
                self.call_if_due(cx, peer);
            }
        }
        due
    }

    fn is_cut_off(&self, cx: &Context<'_>, peer: Peer) -> bool {
        cx.now >= self.astray[&peer].since + cx.config.cut_off
    }

    fn redial(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let Some(astray) = self.astray.get_mut(&peer) else {
            return;
        };
        if cx.now < astray.redial {
            return;
        }
        // By chance, so that both sides do not dial at the same moment, and hundreds not after one
        // broken switch.
        let chance = 0.5 + cx.rng.random::<f64>();
        astray.redial = cx.now + astray.pause.mul_f64(chance);
        astray.pause = (astray.pause * 2).min(cx.config.redial);
        // An attempt that hangs is not joined by another one.
        if !cx.links.is_connecting(peer) {
            let (addr, peer) = (astray.addr, Some(peer));
            let connect = Action::Connect { addr, peer };
            cx.links.watch(&connect);
            cx.actions.push_back(connect);
        }
    }

    /// Returns the epoch of the circuit that was closed.
    fn close_if_idle(&mut self, cx: &mut Context<'_>, peer: Peer) -> Option<(Peer, u64)> {
        let circuit = cx.links.circuit(peer)?;
        if cx.now < self.astray.get(&peer)?.used + cx.config.paced(IDLE) {
            return None;
        }
        ran_out(Expiry::CircuitIdle);
        let envelope = Envelope {
            from: cx.view.me().peer,
            to: peer,
            epoch: circuit.epoch,
            what: Relayed::Done,
        };
        send(cx, circuit.via, envelope);
        // The next word begins with an attempt to connect directly: the way may be whole by then.
        self.astray.remove(&peer);
        cx.links.forget_astray(peer);
        Some((peer, circuit.epoch))
    }

    // ---- what others say

    /// An envelope came from `sender`: it is for this node, or to be passed on.
    pub(crate) fn heard(
        &mut self,
        cx: &mut Context<'_>,
        sender: Peer,
        envelope: Envelope,
    ) -> Heard {
        let Envelope {
            from,
            to,
            epoch,
            what,
        } = envelope;
        if to != cx.view.me().peer {
            // An envelope that was passed on to this node, and is not for it, is for one of its
            // former lives.
            if from == sender {
                self.pass_on(cx, from, to, epoch, what);
            }
            return Heard::Nothing;
        }
        let circuit = Circuit { via: sender, epoch };
        match what {
            Relayed::Call(identity) if identity.peer == from => self.called(cx, circuit, identity),
            Relayed::Accept(identity) if identity.peer == from => {
                self.accepted(cx, circuit, identity)
            }
            // The identity is not that of the sender: whoever made it is wrong.
            Relayed::Call(_) | Relayed::Accept(_) => Heard::Nothing,
            Relayed::Message(bytes) => self.opened(cx, from, circuit, &bytes),
            // A word about an older circuit must not end the one that stands.
            Relayed::Broken | Relayed::Done if cx.links.circuit(from) == Some(circuit) => {
                // The other end has nothing to say: no new way is sought. A broken circuit was
                // needed.
                if what == Relayed::Done {
                    self.astray.remove(&from);
                    cx.links.forget_astray(from);
                } else {
                    self.begin_anew(cx, from, sender);
                }
                Heard::Ended(from, epoch)
            }
            Relayed::Broken | Relayed::Done => {
                let astray = self.astray.get(&from);
                let call = astray.and_then(|astray| astray.call.as_ref());
                // The relay does not reach the peer: the next one is asked without waiting for
                // patience to end.
                if call.is_some_and(|call| (call.via, call.known) == (sender, epoch)) {
                    self.begin_anew(cx, from, sender);
                }
                Heard::Nothing
            }
        }
    }

    /// Passes an envelope on, as the relay between two others.
    fn pass_on(&mut self, cx: &mut Context<'_>, from: Peer, to: Peer, epoch: u64, what: Relayed) {
        let pair = pair(from, to);
        // A circuit to the receiver that goes through the sender leads back: the sender would relay
        // to itself.
        let backwards = cx
            .links
            .circuit(to)
            .is_some_and(|circuit| circuit.via == from);
        let stands = cx.links.epoch(to).is_some() && !backwards;
        // The end of a circuit is told even if there is no room for another pair.
        let ends = matches!(what, Relayed::Broken | Relayed::Done);
        // A member to which this node has not tried to connect yet may be reached.
        let fresh = cx.view.is_alive(to) && !cx.links.is_astray(to);
        // Only a call may wait for a connection to be made: everything else belongs to a
        // circuit that stands.
        let may = stands || fresh && matches!(what, Relayed::Call(_));
        let room = self.pairs.len() < PAIRS || self.pairs.contains_key(&pair);
        if ends {
            self.pairs.remove(&pair);
        } else if may && room {
            self.pairs.insert(pair, epoch);
        }
        let (envelope, next) = if may && (ends || room) {
            let envelope = Envelope {
                from,
                to,
                epoch,
                what,
            };
            (envelope, to)
        } else if ends {
            // No answer to the end of a circuit: two nodes would tell each other without end.
            return;
        } else {
            let envelope = Envelope {
                from: to,
                to: from,
                epoch,
                what: Relayed::Broken,
            };
            (envelope, from)
        };
        send(cx, next, envelope);
    }

    /// Answers a call of a peer that cannot reach this node and wants to talk to it.
    fn called(&mut self, cx: &mut Context<'_>, call: Circuit, caller: Identity) -> Heard {
        let me = cx.view.me().clone();
        let from = caller.peer;
        // The caller does not know of the direct connection: it will in a moment, or that
        // connection ends.
        let newer = (cx.links.direct(from)).is_some_and(|direct| direct > call.epoch);
        if newer || from.id == me.peer.id {
            return Heard::Nothing;
        }
        // The other side has lost what seems to stand here. Left open, words would go where nobody
        // hears them.
        if cx.links.direct(from).is_some() {
            cx.actions.push_back(Action::Disconnect(from));
        }
        let known = cx.links.known(from).max(call.epoch);
        let circuit = Circuit {
            via: call.via,
            epoch: links::next_circuit(known, from, me.peer),
        };
        let accept = Envelope {
            from: me.peer,
            to: from,
            epoch: circuit.epoch,
            what: Relayed::Accept(me),
        };
        self.stand(cx, &caller, circuit);
        // Before anything that goes by the circuit.
        let accept = Action::Send(call.via, Message::Relay(accept));
        cx.actions.push_front(accept);
        Heard::Stands(caller, circuit, None)
    }

    fn accepted(&mut self, cx: &mut Context<'_>, circuit: Circuit, called: Identity) -> Heard {
        let peer = called.peer;
        // A direct connection stands meanwhile, or nothing is to be said any more: the other side
        // is told, or it would hold on to a circuit of one end.
        if !self.astray.contains_key(&peer) {
            self.refuse(cx, peer, circuit);
            return Heard::Nothing;
        }
        // The two have called each other, and the other's call came first: the higher epoch stands
        // on both sides.
        if (cx.links.epoch(peer)).is_some_and(|stands| stands >= circuit.epoch) {
            return Heard::Nothing;
        }
        // The call and its answer went there and back: the first measure of how far the peer is.
        let call = self
            .astray
            .get_mut(&peer)
            .and_then(|astray| astray.call.take());
        let round_trip = call.map(|call| cx.now.saturating_sub(call.since));
        self.stand(cx, &called, circuit);
        Heard::Stands(called, circuit, round_trip)
    }

    fn stand(&mut self, cx: &mut Context<'_>, other: &Identity, circuit: Circuit) {
        let astray = self.astray.entry(other.peer);
        let astray = astray.or_insert_with(|| Astray::new(other.addr, cx));
        astray.call = None;
        astray.asked.clear();
        astray.used = cx.now;
        let held = std::mem::take(&mut astray.held);
        cx.links.reach_by(other.peer, circuit);
        // Before all that comes after it: messages between two nodes arrive in order.
        release(cx, other.peer, held);
    }

    /// Takes in a message of a circuit. A message that does not come by the circuit that stands may come
    /// after something that got lost.
    fn opened(&mut self, cx: &mut Context<'_>, from: Peer, by: Circuit, bytes: &[u8]) -> Heard {
        if cx.links.circuit(from) == Some(by)
            // Exactly one message: bytes behind it are the work of another version, or of chance.
            && let Ok((message, [])) = postcard::take_from_bytes::<Message>(bytes)
        {
            self.used(cx.now, from, &message);
            return Heard::Message(from, message);
        }
        self.refuse(cx, from, by);
        Heard::Nothing
    }

    /// Tells the other end that there is no such circuit here.
    fn refuse(&mut self, cx: &mut Context<'_>, peer: Peer, circuit: Circuit) {
        let envelope = Envelope {
            from: cx.view.me().peer,
            to: peer,
            epoch: circuit.epoch,
            what: Relayed::Broken,
        };
        send(cx, circuit.via, envelope);
    }
}

/// Says what was held, before everything that is to be said to the peer already.
fn release(cx: &mut Context<'_>, peer: Peer, held: VecDeque<Message>) {
    for message in held.into_iter().rev() {
        cx.actions.push_front(Action::Send(peer, message));
    }
}
