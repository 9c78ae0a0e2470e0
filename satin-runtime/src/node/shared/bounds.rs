//! Bounds: offers are combined, and spread to everybody soon.
//!
//! Within a site everybody tells everybody, in a large one along a tree. To each other site goes one message, to a
//! member that passes it on. Who learns nothing new from an offer does not pass it on. To one peer goes one message in
//! a few milliseconds at most, with all that has become better since the last.
//!
//! A bound belongs to a [`RootName`], whoever is master: a result that is used again was computed under it, so **each result
//! brings the bounds of its root job as they were where it was, read after it** ([`Bounds::load`]). The rules:
//!
//! * What travels with jobs and answers does not wait: a job's offers arrive no later than its result. Without that a
//!   result arrives whose optimum, or what it was pruned by, is lost with the node that had it.
//! * What answers a claim, and what others are to keep, brings *all* bounds of its root jobs, whatever the receiver was told
//!   before. Without that a receiver for which the root job was over, and which has dropped them, has the result alone.
//! * The bounds of a root job that is over stay where its result is kept, as long as that is. Without that the next `main`
//!   gets the result, and `BEST.get()` says `None`.
//! * A part of a root job that was under way when that was over has lost its bounds with it, so it never becomes an orphan, not in
//!   a later term either. Without that the next `main` claims it, and the optimum that it found is missing.
//! * A new term begins with what is known: bounds of the root jobs under way stay, and everybody is told again. Without the
//!   first a re-run loses the optimum that nobody will find again, without the second who has dropped them never hears.
//! * Messages that others may overtake count as heard once the receiver says so ([`Message::Had`]). Without that a short
//!   answer takes for known what is still on its way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    time::Duration,
};

use super::super::{
    Action, Config, Context, Lattices, Message, Peer, View, books::Books, message::Cargo,
};
use crate::job::{Answer, BoundName, Offer, RootName, RootRun, Saved};

/// A peer of the same site is told of better bounds no more often than this.
const NEAR_GAP: Duration = Duration::from_millis(2);
/// A peer of another site is told of better bounds no more often than this.
const FAR_GAP: Duration = Duration::from_millis(10);
/// In sites of up to so many nodes everybody tells everybody; larger ones make a tree.
const SMALL_SITE: usize = 32;
/// Children in the tree of a large site.
const CHILDREN: usize = 8;
/// Who is known as dead within this time after it was to pass something on may not have done so.
const PASSING_ON: Duration = Duration::from_secs(20);
/// Root jobs of other threads than `main`'s that are remembered as over, the last ones. Too small: a late offer for one
/// enters it again. Too large: memory.
const REMEMBERED: usize = 1024;
/// Root jobs of which bounds are known, at most; beyond that the longest unimproved go. Too small: the bounds of a root job
/// under way are lost. Too large: memory, if peers offer for root jobs that nobody calls.
const ROOTS: usize = 1 << 16;

struct Best {
    value: Vec<u8>,
    /// Counts all improvements of all bounds at this node.
    version: u64,
    /// It is as good there: it came from there.
    from: Option<Peer>,
}

/// What is known for a root job.
#[derive(Default)]
struct OfRoot {
    best: BTreeMap<BoundName, Best>,
    /// It is over, and its result is kept here: only who gets that is told.
    is_kept: bool,
}

#[derive(Default)]
struct Told {
    /// Every improvement up to that one.
    version: u64,
    /// Not earlier than this.
    next: Duration,
}

/// The best known values, and who knows them.
pub struct Bounds {
    /// See [`Config::may_stray`].
    may_stray: usize,
    roots: BTreeMap<RootName, OfRoot>,
    /// The latest of which anything was heard.
    term: u32,
    version: u64,
    /// Who is to be told of something.
    pending: BTreeSet<Peer>,
    told: BTreeMap<Peer, Told>,
    over: Over,
    /// With so many entries those are looked for whose results are kept no longer.
    sweep_at: usize,
}

/// Root jobs that are over, in the latest term.
#[derive(Default)]
struct Over {
    /// Those of `main` below that number.
    below: u32,
    /// Those of other threads, in the order in which they ended: no more than [`REMEMBERED`].
    others: VecDeque<RootName>,
}

impl Over {
    fn insert(&mut self, root: RootName) {
        if root.is_of_main() {
            self.below = self.below.max(root.number + 1);
        } else if !self.others.contains(&root) {
            self.others.push_back(root);
            if self.others.len() > REMEMBERED {
                self.others.pop_front();
            }
        }
    }

    fn contains(&self, root: RootName) -> bool {
        match root.is_of_main() {
            true => root.number < self.below,
            false => self.others.contains(&root),
        }
    }
}

impl Bounds {
    pub(crate) fn new(config: &Config) -> Bounds {
        Bounds {
            may_stray: config.may_stray,
            roots: BTreeMap::new(),
            term: 0,
            version: 0,
            pending: BTreeSet::new(),
            told: BTreeMap::new(),
            over: Over::default(),
            sweep_at: 0,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let next = |peer| self.told.get(peer).map_or(Duration::ZERO, |told| told.next);
        self.pending.iter().map(next).min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.tell(cx);
    }

    /// The value that an offer is to be joined with.
    pub(crate) fn known(&self, offer: &Offer) -> Option<&[u8]> {
        let best = self.roots.get(&offer.root)?.best.get(&offer.bound)?;
        Some(&best.value)
    }

    /// Those of root jobs under way.
    pub(crate) fn all(&self) -> Vec<Offer> {
        self.since(0, None)
    }

    /// What has become better since that version, of root jobs under way.
    fn since(&self, version: u64, to: Option<Peer>) -> Vec<Offer> {
        let better = |best: &Best| best.version > version && (to.is_none() || best.from != to);
        let under_way = self.roots.iter().filter(|(_, of_root)| !of_root.is_kept);
        let offers = under_way.flat_map(|(root, of_root)| of_root.offers(*root, better));
        offers.collect()
    }

    // ---- root jobs

    /// A root job has begun here: its workers know what this node knows.
    pub(crate) fn root_started(&mut self, cx: &mut Context<'_>, run: RootRun) {
        self.belongs(cx, run);
        if let Some(of_root) = self.roots.get(&run.name) {
            let offers = of_root.offers(run.name, |_| true);
            cx.actions.extend(offers.map(Action::Improve));
        }
    }

    /// Something here is a part of that root job: if its result was only kept here, it is under way again.
    pub(crate) fn belongs(&mut self, cx: &mut Context<'_>, run: RootRun) {
        self.enter(run.term);
        if !self.over.contains(run.name)
            && let Some(of_root) = self.roots.get_mut(&run.name)
            && std::mem::take(&mut of_root.is_kept)
        {
            of_root.renew(&mut self.version);
            let offers = of_root.offers(run.name, |_| true);
            cx.actions.extend(offers.map(Action::Improve));
        }
    }

    /// From now on root jobs of `main` begin again: nothing is over, and nobody knows anything.
    fn enter(&mut self, term: u32) {
        if term <= self.term {
            return;
        }
        self.term = term;
        self.begin_again();
    }

    /// Another `main` begins, in a later term or, after a partition, in the same: nothing of it is over, and nobody knows
    /// anything. Without that, what was over for the other `main` is over for this one, and its offers are dropped.
    pub(crate) fn begin_again(&mut self) {
        self.over.below = 0;
        let under_way = self.roots.values_mut().filter(|of_root| !of_root.is_kept);
        for of_root in under_way {
            of_root.renew(&mut self.version);
        }
    }

    /// That root job is over, and all that it ends. `keeps` says whether the result of one is kept here.
    pub(crate) fn root_done(&mut self, run: RootRun, keeps: impl Fn(RootName) -> bool) {
        self.enter(run.term);
        self.over.insert(run.name);
        self.roots.retain(|root, of_root| {
            if !of_root.is_kept && run.name.ends(*root) {
                of_root.is_kept = keeps(*root);
                return of_root.is_kept;
            }
            true
        });
        if self.roots.len() > self.sweep_at {
            self.roots
                .retain(|root, of_root| !of_root.is_kept || keeps(*root));
            // Twice as many: so each is looked at once or twice.
            self.sweep_at = 2 * self.roots.len() + 16;
        }
    }

    /// That root job is under way nowhere any more.
    pub(crate) fn forget(&mut self, root: RootName) {
        self.over.insert(root);
        self.roots.remove(&root);
    }

    /// Root jobs of other threads that are remembered as over.
    #[cfg(test)]
    pub(crate) fn remembers(&self) -> usize {
        self.over.others.len()
    }

    /// Root jobs that have bounds and are not over, as far as this node knows.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn under_way(&self) -> usize {
        let under_way = self.roots.values().filter(|of_root| !of_root.is_kept);
        under_way.count()
    }

    /// Root jobs of which anything is known.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootName> + '_ {
        self.roots.keys().copied()
    }

    // ---- offers

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
        cx: &mut Context<'_>,
        from: Option<Peer>,
        offer: Offer,
        lattices: &dyn Lattices,
    ) -> Option<Offer> {
        self.enter(cx.term);
        if self.over.contains(offer.root) {
            return None;
        }
        let (term, name) = (self.term, offer.root);
        self.belongs(cx, RootRun { term, name });
        self.make_room(name);
        let of_root = self.roots.entry(name).or_default();
        of_root.join(&mut self.version, from, offer, lattices)
    }

    /// The offers for root jobs that are over, and the others.
    pub(crate) fn divide(
        &mut self,
        cx: &Context<'_>,
        offers: Vec<Offer>,
    ) -> (Vec<Offer>, Vec<Offer>) {
        self.enter(cx.term);
        let is_over = |offer: &Offer| self.over.contains(offer.root);
        offers.into_iter().partition(is_over)
    }

    /// These root jobs are over, and their results are kept here: so are their bounds.
    pub(crate) fn keep(&mut self, offers: Vec<Offer>, lattices: &dyn Lattices) {
        for offer in offers {
            self.make_room(offer.root);
            let of_root = self.roots.entry(offer.root).or_insert_with(|| OfRoot {
                is_kept: true,
                ..OfRoot::default()
            });
            of_root.join(&mut self.version, None, offer, lattices);
        }
    }

    /// For one more, if there is no limit in sight.
    fn make_room(&mut self, root: RootName) {
        if self.roots.len() < ROOTS || self.roots.contains_key(&root) {
            return;
        }
        let last = |of_root: &OfRoot| of_root.best.values().map(|best| best.version).max();
        let oldest = self.roots.iter().min_by_key(|(_, of_root)| last(of_root));
        if let Some(oldest) = oldest.map(|(root, _)| *root) {
            self.roots.remove(&oldest);
        }
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
            let known = told.version;
            let offers = self.since(known, Some(peer));
            let version = self.version;
            let message = match weight_of(&offers) > self.may_stray {
                true => Message::LargeOffers { version, offers },
                false => {
                    self.had(peer, version);
                    if offers.is_empty() {
                        continue;
                    }
                    Message::Offers(offers)
                }
            };
            cx.actions.push_back(Action::Send(peer, message));
        }
    }

    /// A message that is to leave now: jobs and results take along what the receiver may not know yet.
    pub(crate) fn load(&mut self, to: Peer, message: Message, books: &Books) -> Message {
        if self.roots.is_empty() {
            return message;
        }
        let cargo = match cargo_of(message) {
            ControlFlow::Continue(cargo) => cargo,
            ControlFlow::Break(other) => return other,
        };
        let told = self.told.entry(to).or_default();
        let known = told.version;
        let claimed = reused_of(&cargo, to, books);
        let mut offers = self.since(known, Some(to));
        self.add_all(&mut offers, &claimed);
        if weight(&cargo) + weight_of(&offers) > self.may_stray {
            // Nobody knows what arrives before it, or after it.
            offers = self.since(0, None);
            self.add_all(&mut offers, &claimed);
        } else {
            self.had(to, self.version);
        }
        if offers.is_empty() {
            cargo.into()
        } else {
            Message::OffersWith(offers, cargo)
        }
    }

    /// All bounds of the root jobs of these numbers, those among them that are not there yet.
    fn add_all(&self, offers: &mut Vec<Offer>, numbers: &BTreeSet<u32>) {
        let there: BTreeSet<_> = offers
            .iter()
            .map(|offer| (offer.root, offer.bound))
            .collect();
        let of_them = (self.roots.iter()).filter(|(root, _)| numbers.contains(&root.number));
        let all = of_them.flat_map(|(root, of_root)| of_root.offers(*root, |_| true));
        offers.extend(all.filter(|offer| !there.contains(&(offer.root, offer.bound))));
    }

    /// That peer knows everything up to that version.
    pub(crate) fn had(&mut self, peer: Peer, version: u64) {
        let told = self.told.entry(peer).or_default();
        told.version = told.version.max(version.min(self.version));
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
            && !self.roots.is_empty()
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
}

impl OfRoot {
    /// Those that `which` says, as they travel.
    fn offers(&self, root: RootName, which: impl Fn(&Best) -> bool) -> impl Iterator<Item = Offer> {
        let these = self.best.iter().filter(move |(_, best)| which(best));
        these.map(move |(bound, best)| Offer {
            bound: *bound,
            root,
            value: best.value.clone(),
        })
    }

    /// Nobody is known to know them.
    fn renew(&mut self, version: &mut u64) {
        for best in self.best.values_mut() {
            *version += 1;
            best.version = *version;
            best.from = None;
        }
    }

    /// Returns the join, if it is better than what was known.
    fn join(
        &mut self,
        version: &mut u64,
        mut from: Option<Peer>,
        mut offer: Offer,
        lattices: &dyn Lattices,
    ) -> Option<Offer> {
        if let Some(best) = self.best.get(&offer.bound) {
            let joined = lattices.join(offer.bound, &best.value, &offer.value)?;
            if joined != offer.value {
                // Better than either: the sender does not know it.
                from = None;
                offer.value = joined;
            }
        }
        *version += 1;
        let best = Best {
            value: offer.value.clone(),
            version: *version,
            from,
        };
        self.best.insert(offer.bound, best);
        Some(offer)
    }
}

/// What bounds travel with; or the message, if they do not.
fn cargo_of(message: Message) -> ControlFlow<Message, Cargo> {
    match message {
        Message::Jobs {
            request,
            jobs,
            left,
        } if !jobs.is_empty() => ControlFlow::Continue(Cargo::Jobs {
            request,
            jobs,
            left,
        }),
        Message::Answers(answers) => ControlFlow::Continue(Cargo::Answers(answers)),
        Message::Keep { number, saved } => ControlFlow::Continue(Cargo::Keep { number, saved }),
        other => ControlFlow::Break(other),
    }
}

/// The numbers of the root jobs of which it brings results that are used again.
fn reused_of(cargo: &Cargo, to: Peer, books: &Books) -> BTreeSet<u32> {
    match cargo {
        Cargo::Jobs { .. } => BTreeSet::new(),
        Cargo::Answers(answers) => {
            let claimed = |(token, _): &(_, Answer)| books.claimed_of(to, *token);
            answers.iter().filter_map(claimed).collect()
        }
        Cargo::Keep { saved, .. } => {
            let roots = saved.iter().map(|saved| saved.id.root_number());
            roots.collect()
        }
    }
}

/// What stands around each job, answer or offer, at most.
const AROUND: usize = 128;

/// Its bytes on the wire, or a few more.
fn weight(cargo: &Cargo) -> usize {
    let answer = |answer: &Answer| match answer {
        Answer::Result { bytes, needs } => bytes.len() + 40 * needs.len(),
        Answer::Panicked(text) | Answer::Refused(text) => text.len(),
        Answer::Aborted => 0,
    };
    let all: usize = match cargo {
        Cargo::Jobs { jobs, .. } => {
            let jobs = jobs.iter().map(|(_, job)| {
                AROUND + job.id.as_bytes().len() + job.arguments.len() + 40 * job.needs.len()
            });
            jobs.sum()
        }
        Cargo::Answers(answers) => answers.iter().map(|(_, is)| AROUND + answer(is)).sum(),
        Cargo::Keep { saved, .. } => {
            let one = |saved: &Saved| AROUND + saved.id.as_bytes().len() + answer(&saved.answer);
            saved.iter().map(one).sum()
        }
    };
    AROUND + all
}

fn weight_of(offers: &[Offer]) -> usize {
    let each = offers.iter().map(|offer| AROUND + offer.value.len());
    AROUND + each.sum::<usize>()
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
