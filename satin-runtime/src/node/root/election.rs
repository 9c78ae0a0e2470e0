//! Who is the next master, and when.
//!
//! * **The first in line** is the live, electable node with the smallest (stamp, id). Each node computes that from its own
//!   view, and only the first in line acts; so an election costs no round of votes. Without the draining flags, a node
//!   that is about to leave would be elected only to leave.
//! * **At once**, if the master said goodbye, or its machine says that nobody listens there any more.
//! * **After a moment** ([`SETTLE`]), if it only fell silent: the silence of the others, if it is the network's, is noticed
//!   within that. Without that moment every partition looks like a master that died alone, because one death is always
//!   noticed first.
//! * **After [`ProtocolConfig::partition_wait`](super::super::Config::partition_wait)**, if half of the nodes, or all of another
//!   site, fell silent with it; a master that falls silent alone is both in a pool of two, and the latter if it was
//!   the only node of its site. Without that wait, a short partition makes two pools.
//! * **Who is next in line** acts too if those before it have had [`PRECEDENCE`] each and did nothing: views that differ for
//!   good would otherwise leave a pool without a master for ever. If two act, the order of masters decides (see
//!   [`super`]). Meanwhile it asks the first in line ([`ASK_FIRST`]): without that, who missed the one word of its successor
//!   that a master says before it leaves would run `main` beside it.

use std::{collections::BTreeSet, time::Duration};

use super::super::{
    Context, Identity, Peer, ProtocolConfig, View,
    expiry::{Expiry, ran_out},
    membership,
};

/// The deaths of one event are noticed within so long of each other, or those that will be noticed are suspects by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two looks at an election that is waiting for something.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Who is before us in line is given so long, after everything that there is to wait for.
const PRECEDENCE: Duration = Duration::from_secs(10);
/// Who waits for those before it in line asks the first of them so often. Shorter: in a large pool many messages to one node.
/// Longer, as long as [`PRECEDENCE`]: the answer comes too late.
const ASK_FIRST: Duration = Duration::from_secs(2);
/// A master of whom we have been told, but who is not in our view, is given so long to appear.
const APPEARS: Duration = Duration::from_secs(10);
/// What is done later than this was slept through: what others said meanwhile lies unread.
const SLEPT: Duration = Duration::from_millis(250);
/// Deaths that are remembered.
const DEATHS: usize = 65_536;

/// Those who fell silent lately.
#[derive(Default)]
pub(super) struct Silent {
    /// In the order of time.
    deaths: Vec<(Duration, Peer, std::sync::Arc<str>)>,
}

impl Silent {
    pub(super) fn note(&mut self, now: Duration, who: &Identity, vacancy: Option<&Vacancy>) {
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

    /// Those who fell silent at about that time, and have not come back in another life.
    fn at(&self, time: Duration, window: Duration, view: &View) -> Vec<(Peer, &str)> {
        let near = |at: Duration| at.abs_diff(time) <= window;
        let back: BTreeSet<_> = view.members().map(|member| member.peer.id).collect();
        let silent = self.deaths.iter().filter(|(at, ..)| near(*at));
        let silent = silent.filter(|(_, peer, _)| !back.contains(&peer.id));
        silent.map(|(_, peer, site)| (*peer, &**site)).collect()
    }
}

/// No window is longer.
const WINDOW_MOST: Duration = Duration::from_secs(60);

/// Deaths that are noticed so long before or after the master's may be of the same event.
fn window(config: &ProtocolConfig, members: usize) -> Duration {
    (membership::suspicion(config, members) + SETTLE).min(WINDOW_MOST)
}

/// There is no master.
pub(super) struct Vacancy {
    since: Duration,
    /// It may be alive, and cut off from us.
    silent: bool,
    /// It may appear until then.
    appears: Duration,
    /// When we look again.
    pub(super) look: Duration,
    /// When the first in line is asked.
    ask: Duration,
}

/// What is to be done about a vacancy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VacancyStep {
    Wait,
    /// That node, the first in line, is asked whether it knows a master.
    Ask(Peer),
    /// This node is master from now on.
    Act,
    /// There is nobody who could be.
    Nobody,
}

enum Loss {
    Few,
    PerhapsMany,
    Many,
}

impl Vacancy {
    /// The master is gone; if it is only silent it may be a partition.
    pub(super) fn new(now: Duration, silent: bool) -> Vacancy {
        Vacancy {
            since: now,
            silent,
            appears: now,
            look: now,
            ask: now,
        }
    }

    /// There is a master, but nobody here knows it yet.
    pub(super) fn until_it_appears(cx: &Context<'_>) -> Vacancy {
        Vacancy {
            appears: cx.now + cx.config.paced(APPEARS),
            ..Vacancy::new(cx.now, true)
        }
    }

    /// This node slept: what it was to do meanwhile is done a moment later, once it has heard the others.
    pub(super) fn wake(&mut self, now: Duration) {
        if let Some(late) = now.checked_sub(self.look).filter(|late| *late > SLEPT) {
            ran_out(Expiry::Slept);
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
        if self.appears > self.since {
            ran_out(Expiry::Appears);
            self.appears = self.since;
        }
        let patience = self.since + cx.config.partition_wait;
        if self.silent && now < patience {
            let settled = self.since + SETTLE;
            let few = |loss| matches!(loss, Loss::Few);
            if now < settled || !few(self.loss(cx, silent, membership)) {
                self.look = self.look.max(settled).min(patience);
                return VacancyStep::Wait;
            }
        }
        let me = cx.view.me();
        let before = electable(cx.view).filter(|other| in_line(other) < in_line(me));
        let first = before.clone().min_by_key(|other| in_line(other));
        let (before, first) = (before.count(), first.map(|first| first.peer));
        if cx.view.is_draining(me.peer) {
            return match electable(cx.view).next() {
                Some(_) => VacancyStep::Wait,
                None => VacancyStep::Nobody,
            };
        }
        let turn = match before {
            0 => Duration::ZERO,
            _ => patience + cx.config.paced(PRECEDENCE) * before as u32,
        };
        if now < turn {
            if let Some(first) = first
                && now >= self.ask + cx.config.paced(ASK_FIRST)
            {
                self.ask = now;
                return VacancyStep::Ask(first);
            }
            return VacancyStep::Wait;
        }
        if before > 0 {
            ran_out(Expiry::Precedence);
        } else if self.silent && now >= patience {
            ran_out(Expiry::PartitionWait);
        } else if self.silent {
            ran_out(Expiry::Settle);
        }
        VacancyStep::Act
    }

    /// How many fell silent together with the master?
    fn loss(&self, cx: &Context<'_>, silent: &Silent, membership: &membership::Membership) -> Loss {
        let window = window(cx.config, cx.view.len());
        let lost = silent.at(self.since, window, cx.view);
        if is_many(cx.view, &lost, &BTreeSet::new()) {
            return Loss::Many;
        }
        if is_many(cx.view, &lost, &membership.suspects()) {
            return Loss::PerhapsMany;
        }
        Loss::Few
    }
}

/// Have half of the nodes, or all of another site, been lost? One node can be either.
fn is_many(view: &View, lost: &[(Peer, &str)], suspects: &BTreeSet<Peer>) -> bool {
    let is_suspect = |peer: &Peer| suspects.contains(peer) && view.is_alive(*peer);
    let suspected = suspects.iter().filter(|peer| is_suspect(peer)).count();
    let all = lost.len() + suspected;
    let half = all >= view.len() - suspected;
    let mine = &*view.me().site;
    let sites: BTreeSet<&str> = lost.iter().map(|(_, site)| *site).collect();
    let whole = |site: &str| site != mine && view.site(site).iter().all(is_suspect);
    half || sites.into_iter().any(whole)
}

fn in_line(who: &Identity) -> (u64, Peer) {
    (who.stamp, who.peer)
}

fn electable(view: &View) -> impl Iterator<Item = &Identity> + Clone {
    let members = view.members();
    members.filter(|who| who.stamp != Identity::NOT_YET && !view.is_draining(who.peer))
}

/// Who would be elected if this node were gone.
pub(super) fn successor(view: &View) -> Option<&Identity> {
    let me = view.me().peer;
    let others = electable(view).filter(|who| who.peer != me);
    others.min_by_key(|who| in_line(who))
}
