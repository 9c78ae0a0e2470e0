//! Evidence of death that foca does not have: a neighbour that is asked regularly, lost connections, and what the
//! machine of a silent node says.
//!
//! Foca asks a random node in each period, so how long it takes until the dead are asked at all is a matter of luck.
//! Therefore each node also watches the next one of its site, in the order of [`Peer`], round the end. Who does not
//! answer is probed ([`Action::Probe`](super::super::Action::Probe)): of a process that was killed its machine says
//! so, and it is given a moment ([`REFUTE`]) to be heard of after all. Of a silent machine nobody says anything: after
//! a while it is suspected as foca suspects.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, rngs::SmallRng};

use super::{
    super::{
        Action, Context, Message, Peer, ProtocolConfig, View,
        expiry::{Expiry, ran_out},
    },
    detector::{Detector, PresumedEnd, suspicion},
};

/// A node whose machine says that it is gone may still be heard of so long.
const REFUTE: Duration = Duration::from_millis(600);
/// Of so many pings in a row not one was answered: the node is suspected.
const SILENT_PINGS: u32 = 3;

/// Of one node.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    until: Duration,
    /// Foca's: what the node has to refute. `None`: its machine says that it is gone.
    incarnation: Option<u16>,
}

pub(super) struct Watch {
    target: Option<Peer>,
    number: u64,
    /// The ping under way.
    asked: Option<Duration>,
    probed: bool,
    missed: u32,
    next: Duration,
    /// A neighbour is probed when it has not answered for so long.
    patience: Duration,
    suspicions: BTreeMap<Peer, Suspicion>,
}

impl Watch {
    pub(super) fn new(config: &ProtocolConfig, now: Duration, rng: &mut SmallRng) -> Watch {
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
        let asked = self.asked.filter(|_| !self.probed);
        let patience = asked.map(|asked| asked + self.patience);
        let suspicions = self.suspicions.values().map(|suspicion| suspicion.until);
        patience
            .into_iter()
            .chain(suspicions)
            .fold(self.next, Duration::min)
    }

    /// Returns who is to be declared dead, and what is known of it.
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
                    Some(incarnation) => (
                        detector.is_still_suspect(peer, incarnation),
                        PresumedEnd::Unknown,
                    ),
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
            let mut others = after.iter().chain(before).filter(|peer| **peer != me);
            others
                .find(|peer| !self.suspicions.contains_key(peer))
                .copied()
        };
        let near = view.site(&view.me().site);
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

    /// A probe of foca's was not answered, or it is suspected: is it to be heard of over a stream?
    pub(super) fn doubt(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let known =
            (self.suspicions.get(&peer)).is_some_and(|suspicion| suspicion.incarnation.is_none());
        if !known {
            self.number += 1;
            ping(cx, peer, self.number);
            probe(cx, peer);
        }
    }

    /// It could not be reached.
    pub(super) fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        peer: Peer,
        detector: &mut Detector,
    ) {
        self.suspect(cx, now, peer, detector);
        probe(cx, peer);
    }

    /// Its machine says that nobody listens there any more.
    pub(super) fn gone(&mut self, cx: &mut Context<'_>, now: Duration, peer: Peer) {
        let until = now + REFUTE;
        let certain = Suspicion {
            until,
            incarnation: None,
        };
        let known = self.suspicions.entry(peer).or_insert(certain);
        if known.until > until {
            *known = certain;
        }
        self.number += 1;
        ping(cx, peer, self.number);
    }

    /// A message of it came.
    pub(super) fn heard(&mut self, peer: Peer) {
        if self.target == Some(peer) {
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

/// What does its machine say?
pub(super) fn probe(cx: &mut Context<'_>, peer: Peer) {
    if let Some(identity) = cx.view.get(peer) {
        let addr = identity.addr;
        cx.actions.push_back(Action::Probe { addr, peer });
    }
}
