//! The election: which node is the next master, and when.
//!
//! * **The first in line** is the live, electable node with the smallest (stamp, id). Each node computes that
//!   from its own view, and only the first in line acts; so an election costs no round of votes. Without the
//!   draining flags, a node that is about to leave would be elected only to leave.
//! * **At once**, if the master said goodbye, or its machine says that nobody listens there any more.
//! * **After a moment** ([`SETTLE`]), if it only fell silent: the silence of the others, if it is the
//!   network's, is noticed within that. Without that moment every partition looks like a master that died
//!   alone, because one death is always noticed first.
//! * **After [`ProtocolConfig::partition_wait`](super::super::ProtocolConfig::partition_wait)**, if half of the
//!   nodes, or all of another site, fell silent with it; a master that falls silent alone is both in a pool of
//!   two, and the latter if it was the only node of its site. Without that wait, a short partition makes two
//!   pools.
//! * **Not while the store says that `main` goes on**: it runs at another side of the cut.
//! * **Not by a node that is to come over to another side**, which has a master.
//! * **The next in line** acts too if those before it have had [`PRECEDENCE`] each and did nothing:
//!   views that differ for good would otherwise leave a pool without a master for ever. If two act, the order
//!   of masters decides (see [`super`]). Meanwhile it asks the first in line ([`ASK_FIRST`]): without that, a
//!   node that missed the one word of its successor, which a master says before it leaves, would run `main`
//!   beside it.

use std::{collections::BTreeSet, time::Duration};

use super::super::{
    Context, Identity, Peer, ProtocolConfig, View,
    expiry::{Expiry, ran_out},
    membership,
};

/// The time within which the deaths of one event are noticed, or at least suspected. Too small: a partition
/// is taken for the death of the master alone. Too large: each election waits longer.
const SETTLE: Duration = Duration::from_secs(1);
/// The time between two looks at an election that is waiting for something. Too small: wake-ups. Too large:
/// the master comes late.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The time for each node that is before this one in line, after everything that there is to wait for. Too
/// small: two masters for a while. Too large: views that differ for good leave a pool long without a master.
const PRECEDENCE: Duration = Duration::from_secs(10);
/// The time after which a node that waits for those before it in line asks the first of them. Too small: in a
/// large pool many messages to one node. Too large, as long as [`PRECEDENCE`]: the answer comes too late.
const ASK_FIRST: Duration = Duration::from_secs(2);
/// The time for a master of which this node was told, and which is not in its view, to appear. Too small: a
/// second master beside it. Too large: if it is dead, the pool is without a master.
const APPEARS: Duration = Duration::from_secs(10);
/// A look that comes later than this was slept through: the words of others lie unread. Too small: a busy
/// machine puts its own election off. Too large: a node that slept elects itself.
const SLEPT: Duration = Duration::from_millis(250);
/// The number of deaths that are remembered.
const DEATHS: usize = 65_536;

/// The nodes that fell silent lately.
#[derive(Default)]
pub(super) struct Silent {
    /// When each fell silent, in the order of time; the node, and its site.
    deaths: Vec<(Duration, Peer, std::sync::Arc<str>)>,
}

impl Silent {
    pub(super) fn note(&mut self, now: Duration, who: &Identity, vacancy: Option<&Vacancy>) {
        // While there is no master, the deaths at about the time of its own are needed however
        // long that takes.
        let from = vacancy.map_or(now, |vacancy| vacancy.since);
        let old = self
            .deaths
            .partition_point(|(at, ..)| *at + 2 * WINDOW_MOST < from);
        self.deaths.drain(..old);
        if self.deaths.len() < DEATHS {
            let site = std::sync::Arc::clone(&who.site);
            self.deaths.push((now, who.peer, site));
        }
    }

    /// The nodes that fell silent at about that time, and have not come back in another life.
    fn at(&self, time: Duration, window: Duration, view: &View) -> Vec<(Peer, &str)> {
        let near = |at: Duration| at.abs_diff(time) <= window;
        // A node that is back is no sign of a partition: it was only slow.
        let back: BTreeSet<_> = view.members().map(|member| member.peer.id).collect();
        let silent = self.deaths.iter().filter(|(at, ..)| near(*at));
        let silent = silent.filter(|(_, peer, _)| !back.contains(&peer.id));
        silent.map(|(_, peer, site)| (*peer, &**site)).collect()
    }
}

/// The longest window: deaths before it are forgotten.
const WINDOW_MOST: Duration = Duration::from_secs(60);

/// The time before or after the master's death within which other deaths may be of the same event.
fn window(config: &ProtocolConfig, members: usize) -> Duration {
    // The deaths of one event may be noticed as far apart as a suspicion lasts.
    (membership::suspicion(config, members) + SETTLE).min(WINDOW_MOST)
}

/// The state of a pool without a master, as this node sees it.
pub(super) struct Vacancy {
    /// When the master was found to be gone.
    since: Duration,
    /// The master may be alive, and cut off from this node.
    silent: bool,
    /// The store says that `main` goes on until then at least.
    goes_on: Duration,
    /// Until then the master, which is not in the view yet, may appear.
    appears: Duration,
    /// The user knows that this node is cut off.
    is_told: bool,
    /// When the next look is due.
    pub(super) look: Duration,
    /// When the first in line is asked.
    ask: Duration,
}

/// The step to be taken about a vacancy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VacancyStep {
    Wait,
    /// As that; the user is told that the master, and much of the pool, cannot be reached.
    TellCutOff,
    /// The node, first in line, that is asked whether it knows a master.
    Ask(Peer),
    /// The node itself is master from now on.
    Act {
        /// No more than half of the nodes are here that were before the loss: the others may have gone on.
        is_branch: bool,
    },
    /// No node could be master.
    Nobody,
}

enum MasterLoss {
    Few,
    PerhapsMany,
    Many,
}

impl Vacancy {
    /// A vacancy because the master is gone; if it is only silent it may be a partition.
    pub(super) fn new(now: Duration, silent: bool) -> Vacancy {
        Vacancy {
            since: now,
            silent,
            goes_on: now,
            appears: now,
            is_told: false,
            look: now,
            ask: now,
        }
    }

    /// A vacancy although there is a master: this node was told of it, and does not see it yet.
    pub(super) fn until_it_appears(cx: &Context<'_>) -> Vacancy {
        Vacancy {
            appears: cx.now + cx.config.paced(APPEARS),
            ..Vacancy::new(cx.now, true)
        }
    }

    pub(super) fn main_goes_on(&mut self, until: Duration) {
        self.goes_on = self.goes_on.max(until);
    }

    /// Puts off the election if this node slept: it acts a moment later, once it has heard the others.
    pub(super) fn wake(&mut self, now: Duration) {
        if let Some(late) = now.checked_sub(self.look).filter(|late| *late > SLEPT) {
            ran_out(Expiry::Slept);
            // The silence of the master while this node slept says nothing about the master.
            self.since += late;
            self.appears = self.appears.max(now + SETTLE);
            self.look = now + SETTLE;
        }
    }

    /// Looks at the situation as it is now.
    pub(super) fn step(
        &mut self,
        cx: &Context<'_>,
        silent: &Silent,
        membership: &membership::Membership,
    ) -> VacancyStep {
        let now = cx.now;
        self.look = now + LOOK_AGAIN;
        if now < self.appears {
            return VacancyStep::Wait;
        }
        // Told of and never seen: from here on it is a master that is gone.
        if self.appears > self.since {
            ran_out(Expiry::Appears);
            self.appears = self.since;
        }
        if now < self.goes_on {
            self.look = self.goes_on;
            return VacancyStep::Wait;
        }
        // Members have come over, or do so in a moment: a master of those that are left would have them all come back.
        if membership.is_to_come_over() {
            return VacancyStep::Wait;
        }
        let patience = self.since + cx.config.partition_wait;
        if self.silent && now < patience {
            // A single death is always noticed first: whether others follow shows within that
            // moment.
            let settled = self.since + SETTLE;
            let loss = (now >= settled).then(|| self.loss(cx, silent, membership));
            // Acting now could make a second pool, if this side is the one that was cut off.
            if !matches!(loss, Some(MasterLoss::Few)) {
                self.look = self.look.max(settled).min(patience);
                let is_sure = matches!(loss, Some(MasterLoss::Many));
                return match is_sure && !std::mem::replace(&mut self.is_told, true) {
                    true => VacancyStep::TellCutOff,
                    false => VacancyStep::Wait,
                };
            }
        }
        let me = cx.view.me();
        // Each node computes the same line from its own view, so no votes are needed.
        let before = electable(cx.view).filter(|other| in_line(other) < in_line(me));
        let first = before.clone().min_by_key(|other| in_line(other));
        let (before, first) = (before.count(), first.map(|first| first.peer));
        // A node that is about to leave would be master only to hand over.
        if cx.view.is_draining(me.peer) {
            return match electable(cx.view).next() {
                Some(_) => VacancyStep::Wait,
                None => VacancyStep::Nobody,
            };
        }
        let turn = match before {
            0 => Duration::ZERO,
            // After the wait for a partition, one by one: those before may only be slower, or
            // see another view.
            _ => patience + cx.config.paced(PRECEDENCE) * before as u32,
        };
        if now < turn {
            // The first in line may know a master of which this node missed the one word.
            if let Some(first) = first
                && now >= self.ask + cx.config.paced(ASK_FIRST)
            {
                self.ask = now;
                return VacancyStep::Ask(first);
            }
            return VacancyStep::Wait;
        }
        // Noted for simulations: which of the waits it was that ended.
        if before > 0 {
            ran_out(Expiry::Precedence);
        } else if self.silent && now >= patience {
            ran_out(Expiry::PartitionWait);
        } else if self.silent {
            ran_out(Expiry::Settle);
        }
        let lost = silent.at(self.since, window(cx.config, cx.view.len()), cx.view);
        let is_branch = cx.view.len() <= lost.len();
        VacancyStep::Act { is_branch }
    }

    /// The share of the pool that fell silent together with the master.
    fn loss(
        &self,
        cx: &Context<'_>,
        silent: &Silent,
        membership: &membership::Membership,
    ) -> MasterLoss {
        let window = window(cx.config, cx.view.len());
        let lost = silent.at(self.since, window, cx.view);
        if is_many(cx.view, &lost, &BTreeSet::new()) {
            return MasterLoss::Many;
        }
        // Suspects may be dead in a moment, and turn few into many: that is worth waiting for.
        if is_many(cx.view, &lost, &membership.suspects()) {
            return MasterLoss::PerhapsMany;
        }
        MasterLoss::Few
    }
}

/// Have half of the nodes, or all of another site, been lost? One node alone can be either.
fn is_many(view: &View, lost: &[(Peer, &str)], suspects: &BTreeSet<Peer>) -> bool {
    let is_suspect = |peer: &Peer| suspects.contains(peer) && view.is_alive(*peer);
    let suspected = suspects.iter().filter(|peer| is_suspect(peer)).count();
    let all = lost.len() + suspected;
    // The lost are out of the view, the suspects still in it.
    let half = all >= view.len() - suspected;
    let mine = &*view.me().site;
    let sites: BTreeSet<&str> = lost.iter().map(|(_, site)| *site).collect();
    // The own site cannot be lost as a whole: this node is there.
    let whole = |site: &str| site != mine && view.site(site).iter().all(is_suspect);
    half || sites.into_iter().any(whole)
}

fn in_line(who: &Identity) -> (u64, Peer) {
    (who.stamp, who.peer)
}

fn electable(view: &View) -> impl Iterator<Item = &Identity> + Clone {
    let members = view.members();
    // Without a stamp a node is still on its way in, and has no place in line.
    members.filter(|who| who.stamp != Identity::NOT_YET && !view.is_draining(who.peer))
}

/// The node that would be elected if this one were gone.
pub(super) fn successor(view: &View) -> Option<&Identity> {
    let me = view.me().peer;
    let others = electable(view).filter(|who| who.peer != me);
    others.min_by_key(|who| in_line(who))
}
