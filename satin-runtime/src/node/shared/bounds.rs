//! Bounds: offers are combined, and spread to everybody soon.
//!
//! Within a site all nodes tell each other, in a large one along a tree. To each other site goes one message,
//! to a member that passes it on. A node that learns nothing new from an offer does not pass it on. To one
//! peer goes one message in a few milliseconds at most, with all that has become better since the last.
//!
//! A bound belongs to a [`RootName`], whichever node is master: a result that is used again was computed
//! under it, so **each result brings the bounds of its root job as they were where it was, read after it**
//! ([`Bounds::load`]). The rules:
//!
//! * Offers that travel with jobs and answers do not wait: a job's offers arrive no later than its result.
//!   Without that a result arrives whose optimum, or what it was pruned by, is lost with the node that had it.
//! * The answer to a claim, and results that others are to keep, bring *all* bounds of their root
//!   jobs, whatever the receiver was told before. Without that a receiver for which the root job was over,
//!   and which has dropped them, has the result alone.
//! * The bounds of a root job that is over stay where its result is kept, as long as that is. Without that
//!   the next `main` gets the result, and `BEST.get()` says `None`.
//! * The bounds of a root job that is over stay, too, where a part of it is hosted, and go with the answer: whoever waits for that
//!   may not have heard of the end. Without that the origin has a result without the optimum that was found for it, and
//!   stores it so.
//! * A part of a root job that was under way when that was over has no bounds for others than those who wait for it, so it
//!   never becomes an orphan, not in a later term either. Without that the next `main` claims it, and the optimum that it
//!   found is missing.
//! * A new term begins with the known bounds: those of the root jobs under way stay, and everybody is told
//!   again. Without the first a re-run loses the optimum that will not be found again, without the second a
//!   node that has dropped them never hears.
//! * Messages that others may overtake count as heard once the receiver says so ([`Message::Had`]).
//!   Without that a short answer takes for known what is still on its way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    time::Duration,
};

use super::super::{
    Action, Context, Deal, Lattices, Message, Peer, ProtocolConfig, Rule, View, books::Books,
    message::Cargo,
};
use crate::job::{Answer, BoundName, Offer, RootName, RootRun, Saved};

/// The shortest time between two messages of better bounds to a peer of the same site. Too small: a message
/// for each offer. Too large: others search what could be pruned.
const NEAR_GAP: Duration = Duration::from_millis(2);
/// The shortest time between two messages of better bounds to a peer of another site. The same goes wrong as
/// with [`NEAR_GAP`], over longer links.
const FAR_GAP: Duration = Duration::from_millis(10);
/// The size of a site up to which all its nodes tell each other; larger ones make a tree. Too small: bounds
/// take more hops. Too large: one node sends too many messages.
const SMALL_SITE: usize = 32;
/// The number of children of a node in the tree of a large site. Too small: a deep tree. Too large: many
/// messages from one node.
const CHILDREN: usize = 8;
/// The time after a peer was to pass something on, within which its death means that it may not have done so.
const PASSING_ON: Duration = Duration::from_secs(20);
/// The number of root jobs of other threads than `main`'s that are remembered as over, the last ones. Too
/// small: a late offer for such a root job enters it again. Too large: memory.
const REMEMBERED: usize = 1024;
/// The number of root jobs of which bounds are known, at most; beyond that the longest unimproved go. Too
/// small: the bounds of a root job under way are lost. Too large: memory, if peers offer for root jobs that
/// are never called.
const ROOTS: usize = 1 << 16;

struct Best {
    /// The value, as the lattice writes it.
    value: Vec<u8>,
    /// Counts all improvements of all bounds at this node.
    version: u64,
    /// The peer that it came from: there it is as good.
    from: Option<Peer>,
}

/// The bounds of a root job, as far as this node knows.
#[derive(Default)]
struct OfRoot {
    best: BTreeMap<BoundName, Best>,
    /// The root job is over, and its result is kept here, or a part of it hosted: only a node that gets that is told.
    is_kept: bool,
}

#[derive(Default)]
struct BoundsTold {
    /// The peer knows every improvement up to that version.
    version: u64,
    /// The peer is told again not earlier than this.
    next: Duration,
}

/// The best known values, and which peers know them.
pub struct Bounds {
    /// See [`ProtocolConfig::may_stray`].
    may_stray: usize,
    roots: BTreeMap<RootName, OfRoot>,
    /// The latest term of which anything was heard.
    term: u32,
    /// The version of the last improvement of any bound here.
    version: u64,
    /// The peers that are to be told of something.
    pending: BTreeSet<Peer>,
    /// How much each peer knows.
    told: BTreeMap<Peer, BoundsTold>,
    /// Root jobs that are over, so that a late offer does not enter them again.
    over: EndedRoots,
    /// The number of entries from which on those are dropped of whose root jobs nothing is here any more.
    sweep_at: usize,
}

/// Root jobs that are over, for the question whether a late word may enter one again. When another `main` begins, in a later
/// term or in the same, none of its root jobs is over; root jobs of other threads are known by number and fingerprint, as
/// bounds are. `FinishedRoots` in `node/repair/closed.rs` answers for orphans: of every term, and by number alone.
#[derive(Default)]
struct EndedRoots {
    /// Root jobs of `main` with a smaller number are over.
    below: u32,
    /// Root jobs of other threads that are over, in the order in which they ended: no more than
    /// [`REMEMBERED`].
    others: VecDeque<RootName>,
}

impl EndedRoots {
    fn insert(&mut self, root: RootName) {
        // Root jobs of `main` come one after another, so one number says all. Those of other
        // threads overlap.
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
    pub(crate) fn new(config: &ProtocolConfig) -> Bounds {
        Bounds {
            may_stray: config.may_stray,
            roots: BTreeMap::new(),
            term: 0,
            version: 0,
            pending: BTreeSet::new(),
            told: BTreeMap::new(),
            over: EndedRoots::default(),
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

    /// The bounds of all root jobs under way.
    pub(crate) fn all(&self) -> Vec<Offer> {
        self.since(0, None)
    }

    /// All bounds of root jobs of `main`: of those under way, and of those whose results are kept here.
    pub(crate) fn of_main(&self) -> Vec<Offer> {
        let of_main = self.roots.iter().filter(|(root, _)| root.is_of_main());
        let offers = of_main.flat_map(|(root, of_root)| of_root.offers(*root, |_| true));
        offers.collect()
    }

    /// All bounds of that root job.
    pub(crate) fn of(&self, root: RootName) -> Vec<Offer> {
        let of_root = self.roots.get(&root).into_iter();
        of_root
            .flat_map(|of_root| of_root.offers(root, |_| true))
            .collect()
    }

    /// The bounds of root jobs under way that have become better since that version.
    fn since(&self, version: u64, to: Option<Peer>) -> Vec<Offer> {
        // The peer that a bound came from knows it.
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
            // A root job that is called again, by the next master, must not search without what its
            // first run had found.
            cx.actions.extend(offers.map(Action::Improve));
        }
    }

    /// Notes that a job or answer here is a part of that root job: if only its result was kept here, it is
    /// under way again.
    pub(crate) fn belongs(&mut self, cx: &mut Context<'_>, run: RootRun) {
        self.enter(run.term);
        // A late word about a root job that is over does not begin it again.
        if let Some(of_root) = self.roots.get_mut(&run.name)
            && of_root.is_kept
            && !self.over.contains(run.name)
        {
            of_root.is_kept = false;
            // While it was over the others have dropped its bounds: they are told again.
            of_root.renew(&mut self.version);
            let offers = of_root.offers(run.name, |_| true);
            cx.actions.extend(offers.map(Action::Improve));
        }
    }

    /// Enters a later term. From now on root jobs of `main` begin again: none is over, and no peer
    /// knows anything.
    fn enter(&mut self, term: u32) {
        // A late message of an earlier term must not make everything known anew.
        if term <= self.term {
            return;
        }
        self.term = term;
        self.begin_again();
    }

    /// Begins with another `main`, in a later term or, after a partition, in the same: none of its root jobs
    /// is over, and no peer knows anything. Without that, a root job that was over for the other `main` is
    /// over for this one, and its offers are dropped.
    pub(crate) fn begin_again(&mut self) {
        self.over.below = 0;
        let under_way = self.roots.values_mut().filter(|of_root| !of_root.is_kept);
        for of_root in under_way {
            of_root.renew(&mut self.version);
        }
    }

    /// This node comes in, perhaps from another side of a cut: the terms and the ends of root jobs there do not count here.
    pub(crate) fn come_in(&mut self) {
        self.term = 0;
        self.over = EndedRoots::default();
        self.begin_again();
    }

    /// Ends a root job, and those that end with it. `keeps` says whether the result of a root job is
    /// kept here, or a part of it hosted.
    pub(crate) fn root_done(&mut self, run: RootRun, keeps: &dyn Fn(RootName) -> bool) {
        self.enter(run.term);
        self.over.insert(run.name);
        self.roots.retain(|root, of_root| {
            if !of_root.is_kept && run.name.ends(*root) {
                // A result that is used again needs the bounds that it was computed under.
                of_root.is_kept = keeps(*root);
                return of_root.is_kept;
            }
            true
        });
        // Not at every end: many root jobs may end in a moment.
        if self.roots.len() > self.sweep_at {
            self.sweep(keeps);
            // Twice as many: so each entry is looked at once or twice.
            self.sweep_at = 2 * self.roots.len() + 16;
        }
    }

    /// Drops the bounds of root jobs that are over, and of which what was here has gone since. They are returned: the workers
    /// may have heard of bounds since the end.
    pub(crate) fn sweep(&mut self, keeps: &dyn Fn(RootName) -> bool) -> Vec<RootName> {
        let is_gone = |(root, of_root): (&RootName, &OfRoot)| {
            (of_root.is_kept && !keeps(*root)).then_some(*root)
        };
        let gone: Vec<RootName> = self.roots.iter().filter_map(is_gone).collect();
        for root in &gone {
            self.roots.remove(root);
        }
        gone
    }

    /// Forgets a root job that is under way nowhere any more.
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

    /// Takes in that a worker here has found something better.
    pub(crate) fn offered(&mut self, cx: &mut Context<'_>, offer: Offer, lattices: &dyn Lattices) {
        // An offer that is no better is not passed on: in a search most are not.
        if self.join(cx, None, offer, lattices).is_some() {
            self.tell_everybody(cx);
        }
    }

    /// Something found here is to be known everywhere.
    fn tell_everybody(&mut self, cx: &mut Context<'_>) {
        self.pending.extend(near_targets(cx.view, None));
        self.pending.extend(gateways(cx.view));
        self.tell(cx);
    }

    /// Takes in offers that stand in the store; everybody is told.
    pub(crate) fn loaded(
        &mut self,
        cx: &mut Context<'_>,
        offers: Vec<Offer>,
        lattices: &dyn Lattices,
    ) {
        for offer in offers {
            if let Some(offer) = self.join(cx, None, offer, lattices) {
                cx.actions.push_back(Action::Improve(offer));
            }
        }
        self.tell_everybody(cx);
    }

    /// Takes in offers of another node, and passes them on to those that the sender does not tell.
    pub(crate) fn improve(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        offers: Vec<Offer>,
        lattices: &dyn Lattices,
    ) {
        if self.learn(cx, from, offers, lattices) {
            let small = cx.view.site(&cx.view.me().site).len() <= SMALL_SITE;
            // In a small site the sender tells all others itself. In a tree, or from afar, this
            // node is the one that passes on.
            if !(small && cx.view.is_near(from)) {
                self.pending.extend(near_targets(cx.view, Some(from)));
                self.tell(cx);
            }
        }
    }

    /// Takes in offers of a node that told others itself. Returns whether any was better.
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
                // The workers prune by it from now on.
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
        // An offer that comes late would enter a root job that is over, and nobody would end it
        // again. Only with what is still here of that root job it goes to other nodes.
        if self.over.contains(offer.root) {
            if self.roots.contains_key(&offer.root) || cx.books.hosts(offer.root) {
                self.keep(vec![offer], lattices);
            }
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

    /// Takes in bounds of root jobs that are over, and whose results are kept here, or parts of them hosted.
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

    /// Drops the root job whose bounds were improved longest ago, if there is no room for that one.
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

    /// Tells the peers that are to be told, if it is not too soon.
    fn tell(&mut self, cx: &mut Context<'_>) {
        // Offers come in bursts: what comes within the gap goes in one message.
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
            // A message that is so large may be overtaken: it counts as heard when the peer says
            // so, and until then jobs and answers carry the bounds too.
            let message = match weight_of(&offers) > self.may_stray {
                true => Message::LargeOffers { version, offers },
                false => {
                    self.had(peer, version);
                    // The news came from this very peer, or it has been told with a job.
                    if offers.is_empty() {
                        continue;
                    }
                    Message::Offers(offers)
                }
            };
            cx.actions.push_back(Action::Send(peer, message));
        }
    }

    /// Adds to a message that is to leave now the bounds that the receiver may not know yet.
    pub(crate) fn load(
        &mut self,
        to: Peer,
        message: Message,
        books: &Books,
        config: &ProtocolConfig,
    ) -> Message {
        // Programs without bounds pay nothing here.
        if self.roots.is_empty() {
            return message;
        }
        let cargo = match cargo_of(message) {
            ControlFlow::Continue(cargo) => cargo,
            ControlFlow::Break(other) => return other,
        };
        let told = self.told.entry(to).or_default();
        let known = told.version;
        // The receiver may have dropped the bounds of a root job that was over for it: it gets all
        // of them.
        let claimed = match config.obeys(Rule::BringBounds) {
            true => self.in_full(&cargo, to, books),
            false => BTreeSet::new(),
        };
        let mut offers = self.since(known, Some(to));
        self.add_all(&mut offers, &claimed);
        if weight(&cargo) + weight_of(&offers) > self.may_stray {
            // No order is certain between this message and others, so it carries everything.
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

    /// The root jobs of which all bounds go with that: those whose results, in it, are used again, and those that are over here.
    fn in_full(&self, cargo: &Cargo, to: Peer, books: &Books) -> BTreeSet<RootName> {
        match cargo {
            // A job that is handed on is computed under the bounds that come later, too: news suffice.
            Cargo::Jobs { .. } => BTreeSet::new(),
            Cargo::Answers(answers) => {
                let deals = answers.iter().map(|(token, _)| Deal::new(to, *token));
                let root = |deal| {
                    // An origin has waited all the time, so it has the bounds, and is told what becomes better, up to the end.
                    let (root, waiter) = books.waiting(deal)?;
                    let is_over = self.roots.get(&root).is_some_and(|of_root| of_root.is_kept);
                    (!waiter.origin || is_over).then_some(root)
                };
                deals.filter_map(root).collect()
            }
            Cargo::Keep { saved, .. } | Cargo::Copies { saved, .. } => {
                saved.iter().map(Saved::root_name).collect()
            }
        }
    }

    /// Adds all bounds of these root jobs, unless they are among the offers already.
    fn add_all(&self, offers: &mut Vec<Offer>, roots: &BTreeSet<RootName>) {
        let there: BTreeSet<_> = offers
            .iter()
            .map(|offer| (offer.root, offer.bound))
            .collect();
        let of_them = self.roots.iter().filter(|(root, _)| roots.contains(root));
        let all = of_them.flat_map(|(root, of_root)| of_root.offers(*root, |_| true));
        offers.extend(all.filter(|offer| !there.contains(&(offer.root, offer.bound))));
    }

    /// Notes that a peer knows everything up to that version.
    pub(crate) fn had(&mut self, peer: Peer, version: u64) {
        let told = self.told.entry(peer).or_default();
        // A peer can confirm nothing that this node has not reached: its word may be wrong.
        told.version = told.version.max(version.min(self.version));
    }

    /// Forgets how much a peer knows: messages on the old connection may be lost, and the next one
    /// repeats them.
    pub(crate) fn disconnected(&mut self, peer: Peer) {
        if let Some(told) = self.told.get_mut(&peer) {
            told.version = 0;
        }
    }

    /// Forgets a peer whose life is over. Another passes on what it was to pass on.
    pub(crate) fn life_ended(&mut self, cx: &mut Context<'_>, peer: Peer) {
        self.pending.remove(&peer);
        if let Some(told) = self.told.remove(&peer)
            && cx.now < told.next + PASSING_ON
            && !self.roots.is_empty()
        {
            // The role of the peer falls to another one, which hears with all the rest what it may
            // have missed.
            let mut heirs = gateways(cx.view);
            // In a small site nobody passes on: each node tells all others itself.
            if cx.view.site(&cx.view.me().site).len() > SMALL_SITE {
                heirs.extend(near_targets(cx.view, None));
            }
            self.pending.extend(heirs);
            self.tell(cx);
        }
    }
}

impl OfRoot {
    /// The bounds that `which` picks, as they travel.
    fn offers(&self, root: RootName, which: impl Fn(&Best) -> bool) -> impl Iterator<Item = Offer> {
        let these = self.best.iter().filter(move |(_, best)| which(best));
        these.map(move |(bound, best)| Offer {
            bound: *bound,
            root,
            value: best.value.clone(),
        })
    }

    /// Makes all bounds new again: no peer is known to know them.
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

/// Returns the message as one that bounds travel with; or, if they do not, as it is.
fn cargo_of(message: Message) -> ControlFlow<Message, Cargo> {
    match message {
        Message::Jobs {
            request,
            jobs,
            left,
            sent_ms,
            // An empty answer brings no job that could prune.
        } if !jobs.is_empty() => ControlFlow::Continue(Cargo::Jobs {
            request,
            jobs,
            left,
            sent_ms,
        }),
        Message::Answers(answers) => ControlFlow::Continue(Cargo::Answers(answers)),
        Message::Keep { number, saved } => ControlFlow::Continue(Cargo::Keep { number, saved }),
        Message::Copies {
            number,
            under,
            saved,
        } => ControlFlow::Continue(Cargo::Copies {
            number,
            under,
            saved,
        }),
        other => ControlFlow::Break(other),
    }
}

/// Bytes around each job, answer or offer, at most.
const AROUND: usize = 128;

/// Bytes of a message on the wire, or a few more.
fn weight(cargo: &Cargo) -> usize {
    let answer = |answer: &Answer| match answer {
        Answer::Result { bytes, needs, kept } => {
            let kept = kept.as_ref().map_or(0, |kept| 40 + 48 * kept.values.len());
            bytes.len() + 40 * needs.len() + kept
        }
        answer => answer.size(),
    };
    let all: usize = match cargo {
        Cargo::Jobs { jobs, .. } => {
            let jobs = jobs.iter().map(|(_, job)| {
                AROUND + job.id.as_bytes().len() + job.arguments.len() + 40 * job.needs.len()
            });
            jobs.sum()
        }
        Cargo::Answers(answers) => answers.iter().map(|(_, is)| AROUND + answer(is)).sum(),
        Cargo::Keep { saved, .. } | Cargo::Copies { saved, .. } => {
            let one =
                |saved: &Saved| AROUND + saved.name.id.as_bytes().len() + answer(&saved.answer);
            saved.iter().map(one).sum()
        }
    };
    AROUND + all
}

fn weight_of(offers: &[Offer]) -> usize {
    let each = offers.iter().map(|offer| AROUND + offer.value.len());
    AROUND + each.sum::<usize>()
}

/// The peers that this node tells at its own site: all of them, or its neighbours in the tree.
fn near_targets(view: &View, from: Option<Peer>) -> Vec<Peer> {
    let me = view.me().peer;
    let members = view.site(&view.me().site);
    // The sender knows the offer.
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

/// A member of each other site, not the same for all nodes of this one.
fn gateways(view: &View) -> Vec<Peer> {
    let me = view.me();
    let sites = view.sites().filter(|(site, _)| **site != *me.site);
    let chosen = |(_, members): (&str, &[Peer])| {
        let place = me.peer.id.0 % members.len() as u128;
        members[place as usize]
    };
    sites.map(chosen).collect()
}
