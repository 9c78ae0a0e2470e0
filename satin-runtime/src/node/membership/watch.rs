//! Evidence of death that foca does not have: a neighbour that is asked regularly, lost connections, and the
//! word of a silent node's machine.
//!
//! Foca asks a random node in each period, so how long it takes until the dead are asked at all is a matter
//! of luck. Therefore each node also watches the next one of its site, in the order of [`Peer`], round the
//! end. A node that does not answer is probed ([`Action::Probe`](super::super::Action::Probe)): of a
//! process that was killed its machine says so, and the node is given a moment ([`REFUTE`]) to be heard of
//! after all. Of a silent machine nobody says anything: after a while it is suspected as foca suspects.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, rngs::SmallRng};

use super::{
    super::{
        Action, Context, Message, Peer, ProtocolConfig, View,
        expiry::{Expiry, ran_out},
    },
    detector::{Detector, PresumedEnd, suspicion},
};

/// The time in which a node whose machine says that it is gone may still be heard of. Too small: a word that
/// is on its way comes too late, and a live node is declared dead. Too large: deaths are known late.
const REFUTE: Duration = Duration::from_millis(600);
/// The number of pings in a row without an answer after which a node is suspected. Too small: suspicion after
/// a short stall. Too large: a silent machine is known late.
const SILENT_PINGS: u32 = 3;

/// The suspicion of one node.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// When it is declared dead, if it is not heard of, in time awake.
    until: Duration,
    /// The incarnation that the node has to refute, as foca counts. `None`: its machine says that it is gone.
    incarnation: Option<u16>,
}

pub(super) struct Watch {
    /// The neighbour that is watched.
    target: Option<Peer>,
    /// The number of the last ping.
    number: u64,
    /// When the oldest ping without an answer was sent.
    asked: Option<Duration>,
    /// Whether the neighbour's machine was asked since.
    probed: bool,
    /// Pings in a row without an answer.
    missed: u32,
    /// When the next ping is sent.
    next: Duration,
    /// The silence after a ping, after which the neighbour's machine is asked.
    patience: Duration,
    /// The nodes under suspicion.
    suspicions: BTreeMap<Peer, Suspicion>,
}

impl Watch {
    pub(super) fn new(config: &ProtocolConfig, now: Duration, rng: &mut SmallRng) -> Watch {
        // By chance: nodes that start at one moment do not all ping at the same one.
        let next = now + config.probe_period.mul_f64(rng.random());
        Watch {
            target: None,
            number: 0,
            asked: None,
            probed: false,
            missed: 0,
            next,
            patience: config.probe_period / 2,
            suspicions: BTreeMap::new(),
        }
    }

    pub(super) fn next_timeout(&self) -> Duration {
        // A machine is asked once for a silence: without that condition the timeout would be due
        // for ever.
        let asked = self.asked.filter(|_| !self.probed);
        let patience = asked.map(|asked| asked + self.patience);
        let suspicions = self.suspicions.values().map(|suspicion| suspicion.until);
        patience
            .into_iter()
            .chain(suspicions)
            .fold(self.next, Duration::min)
    }

    /// Returns the nodes that are to be declared dead, and the knowledge about their ends.
    pub(super) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        detector: &mut Detector,
    ) -> Vec<(Peer, PresumedEnd)> {
        if let Some(asked) = self.asked
            && !self.probed
            && now >= asked + self.patience
            && let Some(target) = self.target
        {
            // Only the machine can tell a killed process from a silent one: its word comes seconds
            // earlier than suspicion runs out.
            self.probed = true;
            probe(cx, target);
        }
        if now >= self.next {
            self.next = now + cx.config.probe_period;
            self.ask_next(cx, now, detector);
        }
        let due = |(peer, suspicion): (&Peer, &Suspicion)| {
            (suspicion.until <= now).then_some((*peer, *suspicion))
        };
        let due: Vec<(Peer, Suspicion)> = self.suspicions.iter().filter_map(due).collect();
        due.into_iter()
            .filter_map(|(peer, suspicion)| {
                self.suspicions.remove(&peer);
                let (dead, ending) = match suspicion.incarnation {
                    // Refuted by gossip: the suspicion of that incarnation is void, whoever else
                    // suspects it now.
                    Some(incarnation) => (
                        detector.is_still_suspect(peer, incarnation),
                        PresumedEnd::Unknown,
                    ),
                    // A goodbye may have come after its machine said so: it left, and has not died.
                    None => (detector.is_active(peer), PresumedEnd::Gone),
                };
                if dead {
                    ran_out(match ending {
                        PresumedEnd::Gone => Expiry::Refute,
                        _ => Expiry::Suspicion,
                    });
                }
                dead.then_some((peer, ending))
            })
            .collect()
    }

    fn ask_next(&mut self, cx: &mut Context<'_>, now: Duration, detector: &mut Detector) {
        if let Some(target) = self.target
            && self.asked.is_some()
        {
            self.missed += 1;
            if self.missed >= SILENT_PINGS {
                self.suspect(cx, now, target, detector);
            }
        }
        let target = self.neighbour(cx.view);
        // The silence of the former neighbour says nothing about the new one.
        if target != self.target {
            self.target = target;
            self.asked = None;
            self.missed = 0;
        }
        if let Some(target) = target {
            self.number += 1;
            // The oldest ping that was not answered is what counts.
            if self.asked.is_none() {
                self.asked = Some(now);
                self.probed = false;
            }
            ping(cx, target, self.number);
        }
    }

    /// The next node of this site that is not under suspicion; of the pool, if there is none.
    fn neighbour(&self, view: &View) -> Option<Peer> {
        let me = view.me().peer;
        let after = |members: &[Peer]| {
            let place = members.partition_point(|peer| *peer <= me);
            let (before, after) = members.split_at(place);
            // A node under suspicion is dealt with already: the one behind it is watched meanwhile,
            // in case several died at once.
            let mut others = after.iter().chain(before).filter(|peer| **peer != me);
            others
                .find(|peer| !self.suspicions.contains_key(peer))
                .copied()
        };
        let near = view.site(&view.me().site);
        // Within the site round trips are short, so silence says more.
        if near.len() > 1 {
            after(near)
        } else {
            let all: Vec<Peer> = view.members().map(|member| member.peer).collect();
            after(&all)
        }
    }

    fn suspect(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        peer: Peer,
        detector: &mut Detector,
    ) {
        // The time runs already: more evidence must not put it off.
        if self.suspicions.contains_key(&peer) {
            return;
        }
        if let Some(incarnation) = detector.suspect(now, peer) {
            let until = now + suspicion(cx.config, cx.view.len());
            let incarnation = Some(incarnation);
            self.suspicions
                .insert(peer, Suspicion { until, incarnation });
        }
    }

    /// Asks a node over a stream, and its machine, since it did not answer a probe of foca's, or is suspected
    /// by foca.
    pub(super) fn doubt(&mut self, cx: &mut Context<'_>, peer: Peer) {
        // The machine has spoken, and the time to refute runs.
        let known =
            (self.suspicions.get(&peer)).is_some_and(|suspicion| suspicion.incarnation.is_none());
        if !known {
            self.number += 1;
            ping(cx, peer, self.number);
            probe(cx, peer);
        }
    }

    /// Takes in that a node could not be reached.
    pub(super) fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        peer: Peer,
        detector: &mut Detector,
    ) {
        // The path may be at fault: the node is asked for by all others now, and can answer any
        // of them.
        self.suspect(cx, now, peer, detector);
        probe(cx, peer);
    }

    /// Takes in that the machine of a node says that nobody listens there any more.
    pub(super) fn gone(&mut self, cx: &mut Context<'_>, now: Duration, peer: Peer) {
        let until = now + REFUTE;
        let certain = Suspicion {
            until,
            incarnation: None,
        };
        let known = self.suspicions.entry(peer).or_insert(certain);
        // A suspicion that would run longer is cut short: this evidence is better.
        if known.until > until {
            *known = certain;
        }
        self.number += 1;
        // The last chance: whatever comes from the node lifts the suspicion.
        ping(cx, peer, self.number);
    }

    /// Takes in that a message of the node came.
    pub(super) fn heard(&mut self, peer: Peer) {
        if self.target == Some(peer) {
            // Any message will do: a busy link needs no pongs.
            self.asked = None;
            self.missed = 0;
        }
        if !self.suspicions.is_empty() {
            self.suspicions.remove(&peer);
        }
    }

    pub(super) fn forget(&mut self, peer: Peer) {
        self.heard(peer);
        if self.target == Some(peer) {
            self.target = None;
        }
    }
}

fn ping(cx: &mut Context<'_>, peer: Peer, number: u64) {
    cx.actions
        .push_back(Action::Send(peer, Message::Ping(number)));
}

/// Asks the machine of a node whether a process listens at its address.
pub(super) fn probe(cx: &mut Context<'_>, peer: Peer) {
    if let Some(identity) = cx.view.get(peer) {
        let addr = identity.addr;
        cx.actions.push_back(Action::Probe { addr, peer });
    }
}
