//! Bounds: offers are combined, and spread to everybody soon.
//!
//! Within a site everybody tells everybody, in a large one along a tree. To each other site goes one message, to a
//! member that passes it on. Who learns nothing new from an offer does not pass it on. To one peer goes one message in
//! a few milliseconds at most, with all that has become better since the last.
//!
//! Whatever travels with jobs and answers ([`Bounds::load`]) does not wait: a job's offers arrive no later than its
//! result, and who steals a job knows the bounds that its victim knew.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::super::{Action, Context, Lattices, Message, Peer, View, message::Cargo};
use crate::job::{Answer, BoundName, Offer, RootTag};

/// A peer of the same site is told of better bounds no more often than this.
const NEAR_GAP: Duration = Duration::from_millis(2);
/// A peer of another site is told of better bounds no more often than this.
const FAR_GAP: Duration = Duration::from_millis(10);
/// In sites of up to so many nodes everybody tells everybody; larger ones make a tree.
const SMALL_SITE: usize = 32;
/// Children in the tree of a large site.
const CHILDREN: usize = 8;
/// Messages with more bytes than this may be overtaken by others, or overtake them: they carry all bounds themselves.
const MAY_STRAY: usize = 32 << 10;
/// Who is known as dead within this time after it was to pass something on may not have done so.
const PASSING_ON: Duration = Duration::from_secs(20);

type Key = (RootTag, BoundName);

struct Best {
    value: Vec<u8>,
    /// Counts all improvements of all bounds at this node.
    version: u64,
    /// It is as good there: it came from there.
    from: Option<Peer>,
}

#[derive(Default)]
struct Told {
    /// Every improvement up to that one.
    version: u64,
    /// Not earlier than this.
    next: Duration,
}

/// The best known values, and who knows them.
#[derive(Default)]
pub struct Bounds {
    best: BTreeMap<Key, Best>,
    version: u64,
    /// Who is to be told of something.
    pending: BTreeSet<Peer>,
    told: BTreeMap<Peer, Told>,
    done: Done,
}

/// Root jobs that are over.
#[derive(Default)]
struct Done {
    term: u32,
    /// All below that number.
    below: u32,
    beyond: BTreeSet<u32>,
}

impl Done {
    fn insert(&mut self, tag: RootTag) {
        if tag.term > self.term {
            *self = Done {
                term: tag.term,
                ..Done::default()
            };
        }
        if tag.term == self.term {
            self.beyond.insert(tag.number);
            while self.beyond.remove(&self.below) {
                self.below += 1;
            }
        }
    }

    fn contains(&self, tag: RootTag) -> bool {
        tag.term < self.term
            || tag.term == self.term
                && (tag.number < self.below || self.beyond.contains(&tag.number))
    }
}

impl Bounds {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let next = |peer| self.told.get(peer).map_or(Duration::ZERO, |told| told.next);
        self.pending.iter().map(next).min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.tell(cx);
    }

    /// The value that an offer is to be joined with.
    pub(crate) fn known(&self, offer: &Offer) -> Option<&[u8]> {
        let best = self.best.get(&(offer.root, offer.bound))?;
        Some(&best.value)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Offer> {
        self.since(0, None)
    }

    fn since(&self, version: u64, to: Option<Peer>) -> Vec<Offer> {
        let better = |best: &Best| best.version > version && (to.is_none() || best.from != to);
        let better = self.best.iter().filter(|(_, best)| better(best));
        let offer = |(&(root, bound), best): (&Key, &Best)| Offer {
            bound,
            root,
            value: best.value.clone(),
        };
        better.map(offer).collect()
    }

    /// A worker here has found something better.
    pub(crate) fn offered(&mut self, cx: &mut Context<'_>, offer: Offer, lattices: &dyn Lattices) {
        if self.join(cx, None, offer, lattices).is_some() {
            let mut targets = near_targets(cx.view, None);
            targets.extend(gateways(cx.view));
            self.pending.extend(targets);
            self.tell(cx);
        }
    }

    /// Another node says so: it is passed on to those whom the sender does not tell.
    pub(crate) fn improve(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        offers: Vec<Offer>,
        lattices: &dyn Lattices,
    ) {
        if self.learn(cx, from, offers, lattices) {
            let small = cx.view.site(&cx.view.me().site).len() <= SMALL_SITE;
            if !(small && cx.view.is_near(from)) {
                self.pending.extend(near_targets(cx.view, Some(from)));
                self.tell(cx);
            }
        }
    }

    /// Another node says so, and told others itself.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        offers: Vec<Offer>,
        lattices: &dyn Lattices,
    ) -> bool {
        let mut better = false;
        for offer in offers {
            if let Some(offer) = self.join(cx, Some(from), offer, lattices) {
                better = true;
                cx.actions.push_back(Action::Improve(offer));
            }
        }
        better
    }

    /// Returns the join, if it is better than what was known.
    fn join(
        &mut self,
        cx: &Context<'_>,
        from: Option<Peer>,
        mut offer: Offer,
        lattices: &dyn Lattices,
    ) -> Option<Offer> {
        if offer.root.term < cx.term || self.done.contains(offer.root) {
            return None;
        }
        let mut from = from;
        let key = (offer.root, offer.bound);
        if let Some(best) = self.best.get(&key) {
            let joined = lattices.join(offer.bound, &best.value, &offer.value)?;
            if joined != offer.value {
                // Better than either: the sender does not know it.
                from = None;
                offer.value = joined;
            }
        }
        self.version += 1;
        let best = Best {
            value: offer.value.clone(),
            version: self.version,
            from,
        };
        self.best.insert(key, best);
        Some(offer)
    }

    /// Tells those who are to be told, if it is not too soon.
    fn tell(&mut self, cx: &mut Context<'_>) {
        let due = |peer: &Peer| self.told.get(peer).is_none_or(|told| told.next <= cx.now);
        let due: Vec<Peer> = self.pending.iter().copied().filter(due).collect();
        for peer in due {
            self.pending.remove(&peer);
            if !cx.view.is_alive(peer) {
                continue;
            }
            let told = self.told.entry(peer).or_default();
            let gap = if cx.view.is_near(peer) {
                NEAR_GAP
            } else {
                FAR_GAP
            };
            told.next = cx.now + gap;
            let version = std::mem::replace(&mut told.version, self.version);
            let offers = self.since(version, Some(peer));
            if !offers.is_empty() {
                cx.actions
                    .push_back(Action::Send(peer, Message::Offers(offers)));
            }
        }
    }

    /// A message that is to leave now: jobs and answers take along what the receiver may not know yet.
    pub(crate) fn load(&mut self, to: Peer, message: Message) -> Message {
        let (cargo, size) = match message {
            _ if self.best.is_empty() => return message,
            Message::Jobs {
                request,
                jobs,
                left,
            } if !jobs.is_empty() => {
                let size = jobs
                    .iter()
                    .map(|(_, job)| job.arguments.len())
                    .sum::<usize>();
                (
                    Cargo::Jobs {
                        request,
                        jobs,
                        left,
                    },
                    size,
                )
            }
            Message::Answers(answers) => {
                let size = |answer: &Answer| match answer {
                    Answer::Result { bytes, .. } => bytes.len(),
                    _ => 0,
                };
                let size = answers.iter().map(|(_, answer)| size(answer)).sum();
                (Cargo::Answers(answers), size)
            }
            other => return other,
        };
        let told = self.told.entry(to).or_default();
        let known = std::mem::replace(&mut told.version, self.version);
        let offers = if size > MAY_STRAY {
            self.since(0, None)
        } else {
            self.since(known, Some(to))
        };
        if offers.is_empty() {
            cargo.into()
        } else {
            Message::OffersWith(offers, cargo)
        }
    }

    /// What was under way on the connection may be lost: the next message repeats it.
    pub(crate) fn disconnected(&mut self, peer: Peer) {
        if let Some(told) = self.told.get_mut(&peer) {
            told.version = 0;
        }
    }

    /// A peer is gone. What it was to pass on is passed on by another.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {
        self.pending.remove(&peer);
        if let Some(told) = self.told.remove(&peer)
            && cx.now < told.next + PASSING_ON
            && !self.best.is_empty()
        {
            // Its role falls to somebody, who hears what it may have missed with all the rest.
            let mut heirs = gateways(cx.view);
            if cx.view.site(&cx.view.me().site).len() > SMALL_SITE {
                heirs.extend(near_targets(cx.view, None));
            }
            self.pending.extend(heirs);
            self.tell(cx);
        }
    }

    pub(crate) fn root_done(&mut self, tag: RootTag) {
        self.done.insert(tag);
        self.best.retain(|(root, _), _| *root != tag);
    }
}

/// Whom this node tells at its own site: everybody, or its neighbours in the tree.
fn near_targets(view: &View, from: Option<Peer>) -> Vec<Peer> {
    let me = view.me().peer;
    let members = view.site(&view.me().site);
    let others = |peer: &&Peer| **peer != me && Some(**peer) != from;
    if members.len() <= SMALL_SITE {
        return members.iter().filter(others).copied().collect();
    }
    let Ok(place) = members.binary_search(&me) else {
        return Vec::new();
    };
    let parent = place.checked_sub(1).map(|place| place / CHILDREN);
    let children = place * CHILDREN + 1..=place * CHILDREN + CHILDREN;
    let places = parent.into_iter().chain(children);
    let neighbours = places.filter_map(|place| members.get(place));
    neighbours.filter(others).copied().collect()
}

/// One member of each other site, not the same for all of us.
fn gateways(view: &View) -> Vec<Peer> {
    let me = view.me();
    let sites = view.sites().filter(|(site, _)| **site != *me.site);
    let chosen = |(_, members): (&str, &[Peer])| {
        let place = me.peer.id.0 % members.len() as u128;
        members[place as usize]
    };
    sites.map(chosen).collect()
}
