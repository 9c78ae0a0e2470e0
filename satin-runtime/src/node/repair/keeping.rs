//! Results that others are to keep: those of root jobs, which must outlive the master, and what a node leaves behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rand::seq::IndexedRandom;

use super::super::{
    Action, Context, Message, Peer, Rule, View,
    expiry::{Expiry, ran_out},
};
use crate::job::{Answer, JobName, RootName, RootTag, Saved};

/// A root job's result is kept by so many others; at two sites, if there are two. Too small: it is lost with them. Too
/// large: `main` waits for more round trips.
const KEEPERS: usize = 2;

/// While more bytes are on their way to keepers `main` waits for all of its results. Too small: `main` waits for the link. Too large: results
/// that come faster than the link takes them fill the memory.
const AHEAD: usize = 64 << 20;

/// The wait until results that were not acknowledged are sent again: the keeper could not be reached. Too small: large
/// results go twice. Too large: `main` waits.
const AGAIN: Duration = Duration::from_secs(1);

/// Bytes of results in one message, at most. A larger result goes alone; a result that is larger than
/// [`RESULT_MOST`] stays. Too small: many messages for one legacy. Too large: longer than a message may be.
const MESSAGE: usize = 16 << 20;

/// Bytes of a result above which it is not handed to others. Too small: a root job with a large result is
/// done again by the next master. Too large: it cannot be sent.
const RESULT_MOST: usize = 1 << 30;

/// The reason why other nodes are to keep results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// A root job of `main` has ended, and `main` waits until its result is safe.
    Root(RootTag),
    /// A root job of `main` has ended, and `main` goes on.
    Aside(RootTag),
    /// A keeper is gone, and another takes its place.
    Again,
    /// The node leaves, and an heir keeps what it has.
    Legacy,
}

struct PendingKeep {
    /// The keeper that was asked.
    to: Peer,
    purpose: Purpose,
    /// When the results are sent once more, if the keeper has not answered.
    again: Duration,
    /// The wait before the next sending; it doubles each time.
    wait: Duration,
    saved: Vec<Saved>,
}

impl PendingKeep {
    /// Is the result of that job among them?
    fn brings(&self, name: &JobName) -> bool {
        self.saved.iter().any(|saved| saved.name == *name)
    }
}

/// Results that were sent to keepers and are not acknowledged yet.
#[derive(Default)]
pub(crate) struct Keeping {
    /// The number of the last request to keep something.
    number: u64,
    /// The requests that are not answered yet, by number.
    pending: BTreeMap<u64, PendingKeep>,
    /// Root jobs whose results one keeper has acknowledged, but not all that were asked.
    safe: BTreeSet<RootTag>,
    /// The node that is to have the legacy of this one.
    chosen: Option<Peer>,
    /// The node that has it, or a part of it.
    heir: Option<Peer>,
}

impl Keeping {
    /// A root job has its result. `main` is to see it when those keepers have it that are to be waited for; the others get it meanwhile.
    pub(crate) fn root(
        &mut self,
        cx: &mut Context<'_>,
        tag: RootTag,
        saved: Saved,
        is_waited_for: impl Fn(&View, Peer) -> bool,
    ) {
        let wanted = cx.config.obeys(Rule::Replicate) && size(&saved) < RESULT_MOST;
        let keepers = match wanted {
            true => keepers(cx, KEEPERS, &BTreeSet::new()),
            false => Vec::new(),
        };
        let on_their_way = self.pending.values().flat_map(|pending| &pending.saved);
        let is_far_ahead = on_their_way.map(size).sum::<usize>() > AHEAD;
        let purpose = |to: Peer| match is_far_ahead || is_waited_for(cx.view, to) {
            true => Purpose::Root(tag),
            false => Purpose::Aside(tag),
        };
        let keepers: Vec<_> = keepers.into_iter().map(|to| (to, purpose(to))).collect();
        for (to, purpose) in keepers {
            self.send(cx, to, purpose, vec![saved.clone()]);
        }
        self.release(cx, tag);
    }

    /// Has a root job's result kept by one more node, as too few have it.
    pub(crate) fn again(&mut self, cx: &mut Context<'_>, saved: Saved, owners: &BTreeSet<Peer>) {
        if (self.pending.values()).any(|pending| pending.brings(&saved.name)) {
            return; // it is on its way
        }
        // An owner has it already: a second copy there would be lost with the first.
        for to in keepers(cx, 1, owners) {
            self.send(cx, to, Purpose::Again, vec![saved.clone()]);
        }
    }

    /// Sends the legacy of this node to an heir. False if there is none.
    pub(crate) fn bequeath(&mut self, cx: &mut Context<'_>, saved: Vec<Saved>) -> bool {
        let stays = |peer: &Peer| cx.view.is_alive(*peer) && !cx.view.is_draining(*peer);
        // A single heir for all parts: the origins are told of one node. An heir that is about to
        // leave itself is replaced.
        let Some(heir) = self.chosen.filter(stays).or_else(|| heir(cx)) else {
            return false;
        };
        self.chosen = Some(heir);
        let mut rest = saved;
        rest.retain(|saved| size(saved) < RESULT_MOST);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|saved| {
                bytes += size(saved);
                bytes <= MESSAGE
            });
            // A result that is larger than a message should be goes alone, rather than never.
            let some = fits.count().max(1);
            let some = rest.drain(..some).collect();
            self.send(cx, heir, Purpose::Legacy, some);
        }
        true
    }

    /// Are results of root jobs on their way for which `main` has not waited?
    pub(crate) fn is_keeping_aside(&self) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| matches!(pending.purpose, Purpose::Aside(_)))
    }

    /// The heir, once the legacy is there.
    pub(crate) fn heir(&self) -> Option<Peer> {
        self.heir
    }

    /// Is the legacy on its way?
    pub(crate) fn is_bequeathing(&self) -> bool {
        let mut pending = self.pending.values();
        // Until no part is on its way the origins are not told: they would do again what is on its way
        // into safe hands.
        pending.any(|pending| pending.purpose == Purpose::Legacy)
    }

    fn send(&mut self, cx: &mut Context<'_>, to: Peer, purpose: Purpose, saved: Vec<Saved>) {
        self.number += 1;
        let number = self.number;
        let keep = Message::Keep {
            number,
            saved: saved.clone(),
        };
        cx.actions.push_back(Action::Send(to, keep));
        // Large results take a while over a slow link: sent again too early, they would hold each
        // other up.
        let wait = AGAIN + on_the_way(&saved);
        let pending = PendingKeep {
            to,
            purpose,
            again: cx.now + wait,
            wait,
            saved,
        };
        self.pending.insert(number, pending);
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.pending.values().map(|pending| pending.again).min()
    }

    /// Sends once more to keepers that have not answered; `main` does not wait for them if another keeper has the result.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let mut late = Vec::new();
        for (number, pending) in &mut self.pending {
            if pending.again > cx.now {
                continue;
            }
            ran_out(Expiry::Keep);
            // A keeper that is slow is not buried under copies of the same results.
            pending.wait *= 2;
            pending.again = cx.now + pending.wait;
            let keep = Message::Keep {
                number: *number,
                saved: pending.saved.clone(),
            };
            cx.actions.push_back(Action::Send(pending.to, keep));
            // A keeper has it, so the result outlives the master. For the second keeper `main` does
            // not wait.
            if let Purpose::Root(tag) = pending.purpose
                && self.safe.remove(&tag)
            {
                late.push(tag);
            }
        }
        for tag in late {
            // The second keeper is still to have it, but its answer sets nothing free any more.
            for pending in self.pending.values_mut() {
                if pending.purpose == Purpose::Root(tag) {
                    pending.purpose = Purpose::Again;
                }
            }
            cx.actions.push_back(Action::RootKept(tag));
        }
    }

    /// Is the result of that root job on its way to somebody who is to keep it?
    pub(crate) fn hands_out(&self, root: RootName) -> bool {
        let name = root.job_name();
        // The bounds of the root job are kept until the keepers have them with the result.
        self.pending.values().any(|pending| pending.brings(&name))
    }

    pub(crate) fn kept(&mut self, cx: &mut Context<'_>, from: Peer, number: u64) {
        let sent = self.pending.get(&number);
        // The word of a keeper that was replaced meanwhile, or a second word for one number.
        if sent.is_none_or(|sent| sent.to != from) {
            return;
        }
        if let Some(PendingKeep { purpose, .. }) = self.pending.remove(&number) {
            match purpose {
                Purpose::Root(tag) => {
                    // Remembered before `main` may go on: if the other keepers are late, this one
                    // suffices.
                    self.safe.insert(tag);
                    self.release(cx, tag);
                }
                // If a keeper for which `main` waits is late, this one suffices.
                Purpose::Aside(tag) if self.main_waits_for(tag) => {
                    self.safe.insert(tag);
                }
                Purpose::Again | Purpose::Aside(_) => {}
                // The heir may have but a part of it: the origins are told when no part is on its
                // way.
                Purpose::Legacy => self.heir = Some(from),
            }
        }
    }

    /// Does `main` wait for a keeper of that result?
    fn main_waits_for(&self, tag: RootTag) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| pending.purpose == Purpose::Root(tag))
    }

    /// `main` goes on once all keepers for which it waits have it: at once without another node, or with a result that cannot be sent.
    fn release(&mut self, cx: &mut Context<'_>, tag: RootTag) {
        // Two copies, at two sites if possible: one site may be lost with the master.
        if !self.main_waits_for(tag) {
            self.safe.remove(&tag);
            cx.actions.push_back(Action::RootKept(tag));
        }
    }

    /// A keeper is gone before it said that it has it: somebody else is asked.
    pub(crate) fn life_ended(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let gone: Vec<u64> = (self.pending.iter())
            .filter(|(_, pending)| pending.to == peer)
            .map(|(number, _)| *number)
            .collect();
        // The results that the heir had are lost with it: the origins do those jobs again, and the
        // rest goes to another heir.
        if self.chosen == Some(peer) {
            self.chosen = None;
            self.heir = None;
        }
        for number in gone {
            let Some(PendingKeep { purpose, saved, .. }) = self.pending.remove(&number) else {
                continue;
            };
            let others = self.pending.values();
            let is_same = |pending: &&PendingKeep| match purpose {
                Purpose::Legacy => pending.purpose == purpose,
                _ => saved.iter().any(|saved| pending.brings(&saved.name)),
            };
            let others = others.filter(is_same);
            // Two copies on one node are one, so a node that is being asked is not asked twice. A node that
            // has said already that it keeps the result is not remembered here, and may be chosen again.
            let asked: BTreeSet<Peer> = others.map(|pending| pending.to).collect();
            let next = match purpose {
                Purpose::Legacy => {
                    // All parts go to one heir, the first of them chooses it.
                    self.chosen = self.chosen.or_else(|| heir(cx));
                    self.chosen
                }
                _ => keepers(cx, 1, &asked).first().copied(),
            };
            match (next, purpose) {
                (Some(next), _) => self.send(cx, next, purpose, saved),
                // No node is left that could keep it: `main` must not wait for ever.
                (None, Purpose::Root(tag)) => self.release(cx, tag),
                (None, _) => {}
            }
        }
    }
}

/// How long results are thought to be on their way, over a slow link.
fn on_the_way(saved: &[Saved]) -> Duration {
    const BYTES_PER_SECOND: f64 = 1e6;
    let bytes: usize = saved.iter().map(size).sum();
    Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND)
}

fn size(saved: &Saved) -> usize {
    match &saved.answer {
        Answer::Result { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

/// Up to so many other nodes, at as many sites as possible, that are not about to leave.
fn keepers(cx: &mut Context<'_>, most: usize, without: &BTreeSet<Peer>) -> Vec<Peer> {
    let me = cx.view.me().peer;
    let mut chosen: Vec<Peer> = Vec::new();
    let mut sites = BTreeSet::new();
    for _ in 0..most {
        let all = cx.view.members().filter(|member| {
            let peer = member.peer;
            let free = peer != me && !chosen.contains(&peer) && !without.contains(&peer);
            free && !cx.view.is_draining(peer)
        });
        let all: Vec<_> = all.collect();
        let elsewhere = all.iter().filter(|member| !sites.contains(&*member.site));
        let elsewhere: Vec<_> = elsewhere.copied().collect();
        // A site may be lost as a whole, so each further keeper is at a site that has none yet.
        let from = if elsewhere.is_empty() {
            &all
        } else {
            &elsewhere
        };
        let Some(member) = from.choose(cx.rng) else {
            break;
        };
        chosen.push(member.peer);
        sites.insert(member.site.clone());
    }
    chosen
}

/// A node that gets the legacy of this one: of its site, if there is one.
fn heir(cx: &mut Context<'_>) -> Option<Peer> {
    let me = cx.view.me().peer;
    let stays = |peer: &Peer| *peer != me && !cx.view.is_draining(*peer);
    let all = cx.view.members().map(|member| member.peer);
    let all: Vec<Peer> = all.filter(stays).collect();
    let near = all.iter().copied().filter(|peer| cx.view.is_near(*peer));
    let near: Vec<Peer> = near.collect();
    // Results are large, and links between sites slow: the grace of a drain is short.
    let from = if near.is_empty() { all } else { near };
    from.choose(cx.rng).copied()
}
