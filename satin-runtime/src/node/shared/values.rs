//! Values: fetched before the job that needs them starts, once, from the own site if a node there has them.
//!
//! A value is to be had from the node that the job came from. If that stands at another site, each value has
//! a keeper at the own one, which its name decides: the keeper is asked, and fetches the value if it has it
//! not ([`How::Fetch`]). So a value crosses a wide link to a site once, whichever nodes need it there. A
//! node that is still fetching what it is asked for passes on each piece as it comes, so that a value is at the
//! end of a long chain of nodes hardly later than at its beginning, and says how it gets on
//! ([`Message::Soon`], if a piece came since it was last said).
//!
//! A node that gives a value remembers to which others. It sends other nodes of the same site there
//! ([`Message::Elsewhere`]), at its own site if it has given the value a few times: copies spread as a tree.
//! If all that fails, the first node is asked again, and insisted upon; then others; and if no node has the
//! value any more, the jobs and answers that wait for it go back undone.
//!
//! The rules, and the run that goes wrong without each:
//!
//! * **What a job waits for is held** until the job has begun, or is gone ([`Action::Borrowed`]), however little room there is for
//!   borrowed data. Without that two values of one job make room for each other, and are fetched again and again.
//! * **A refused job stays at home** ([`Back::stays`](crate::job::Back)): a job that waits for leave to begin may lose its data after all.
//!   Without that two nodes take such a job in turn, and each refuses it.
//! * **The store is asked first**, by the node that is asked and, now and then, by the one that waits: a
//!   fetch ends when the value appears, from wherever. Without that a new master, whose `main` has made the
//!   value again, waits for it, and lets others wait.
//! * **A node that waits for itself looks elsewhere**: a node that waits for one that waits in turn is
//!   announced along the chain ([`Message::Waits`]); if the word comes back, the nodes wait in a ring,
//!   and this one asks another. Without that a ring lasts until patience ends; and for ever, if all say "soon"
//!   although nothing comes.
//! * **A node that failed to give a value says when it has it** ([`Message::Available`]), and is asked again.
//!   Without that the only node that has it may be the one that is not asked any more.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::super::{
    Action, Context, Lattices, Message, NodeId, Peer, PendingArrival, View,
    expiry::{Expiry, ran_out},
    message::{How, Prefetch},
};
use super::prefetch::{PrefetchAdvice, Prefetches};
use crate::job::{Fingerprint, RootName, ValueName};

/// Bytes of a piece; values travel in pieces of this size. Too small: more messages. Too large: a piece holds
/// up more of what comes after a loss.
pub const PIECE: u64 = 1 << 20;
/// The number of pieces of a value that are under way at a time: enough to fill 100 Mbit/s over 300 ms. Too
/// small: long links are not filled. Too large: a value holds up jobs and answers.
const UNDER_WAY: usize = 4;
/// The same of a value for which nothing waits yet, from a node of this site. Too large: what a job waits for comes behind it over the same link.
const UNDER_WAY_AHEAD: usize = 1;
/// The silence after which a holder is given up. Whether it lives is membership's business, and pieces that a
/// broken connection lost are asked for again at once: this is for the unforeseen. It must be longer than the
/// pieces under way take on a slow link.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which a node that is still fetching, and getting on, tells so those that wait for it.
const SOON_EVERY: Duration = Duration::from_secs(10);
/// The time between two looks whether a value has appeared that is being fetched, or was asked for in vain.
/// Too small: noise. Too large: a job waits longer for a value that is here.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time for which nodes that asked in vain are remembered. Too small: they are not told when the value
/// is here. Too large: memory, and an idle node that looks for nothing.
const DENIED: Duration = Duration::from_secs(30);
/// The number of values asked for in vain that are remembered; later ones are not.
const DENIED_MOST: usize = 1024;
/// The number of values of which it is remembered which nodes have them, before those are forgotten that are not here any more. Too small: a
/// node looks often, and gives values itself that others could give. Too large: memory.
const MOST_HINTS: usize = 4096;
/// The number of nodes along which a chain of waiting ones is announced. Too small: a longer ring lasts until
/// patience ends. Too large: word of a ring that is never broken goes round it.
const CHAIN: u8 = 64;
/// The number of nodes of a site that are sent to one node that has the value. Too small: a deep tree, and each piece passes through
/// more nodes (at 1 graphs with large data take 5 to 10 % longer on 20 nodes). Too large: one node serves them all (at 4 they take 2 to 10 % longer).
const CHILDREN: u32 = 2;
/// The number of other nodes that are asked, besides those that should have a value. Too small: a value that
/// is still there is given up. Too large: a value that is gone is asked for longer.
const STRANGERS: usize = 3;
/// Bytes of a value, at most: a larger one is taken for damage.
const LARGEST: u64 = 64 << 30;

/// A node that may have a value, and how it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    peer: Peer,
    how: How,
}

/// The word that a node waits for one that waits in turn: [`Message::Waits`].
pub(crate) struct Waits {
    pub(crate) name: ValueName,
    pub(crate) who: Peer,
    pub(crate) whom: Peer,
    pub(crate) hops: u8,
}

/// A request for a value.
pub(crate) struct Want {
    pub(crate) name: ValueName,
    pub(crate) root: RootName,
    pub(crate) offset: u64,
    pub(crate) how: How,
    pub(crate) lent: bool,
}

/// A value under way to here.
struct Fetch {
    root: RootName,
    /// Jobs borrow it, and nothing mentions it as a shared value.
    lent: bool,
    holder: Holder,
    /// The bytes that came were not the value, and this holder was asked again, from the beginning.
    is_second_try: bool,
    /// The holders to be asked after this one, in order.
    others: VecDeque<Holder>,
    /// Holders that were asked in vain: they are asked again only if they say that they have it.
    failed: BTreeSet<Peer>,
    /// Whether the others that may have it by chance are among `others` already.
    strangers: bool,
    /// The length of the value, once its first piece is here.
    total: Option<u64>,
    /// Pieces before this have been asked for.
    asked: u64,
    /// Pieces that have been asked for and are not here.
    under_way: BTreeSet<u64>,
    /// Pieces that the store has. They are not asked for again if the holder fails.
    here: BTreeSet<u64>,
    /// When the holder is given up, if no more comes.
    gives_up: Duration,
    /// The jobs and answers that wait for it, by number.
    waiting: BTreeSet<u64>,
    /// Nodes that wait for it, to be served from here, and the pieces that each has asked for and not been sent.
    askers: BTreeMap<Peer, BTreeSet<u64>>,
    /// When those that wait are told that this node is getting on.
    says_soon: Duration,
    /// A piece has come since that was last said.
    gets_on: bool,
}

/// The nodes that have a value, as far as this node knows, by site.
#[derive(Default)]
struct Hints {
    /// The root jobs that needed it: the hints go with the last of them.
    roots: BTreeSet<RootName>,
    /// Given from here to nodes of this site, without sending them elsewhere.
    given: u32,
    /// The nodes that were given it, in the order in which they asked, and how many others were sent to each.
    sites: BTreeMap<Arc<str>, Vec<(Peer, u32)>>,
}

struct WaitingForValues {
    then: PendingArrival,
    missing: BTreeSet<ValueName>,
}

/// The values that are under way, the nodes that wait for them, and those that have them.
#[derive(Default)]
pub struct Values {
    fetches: BTreeMap<ValueName, Fetch>,
    waiting: BTreeMap<u64, WaitingForValues>,
    number: u64,
    hints: BTreeMap<ValueName, Hints>,
    /// With so many hints it is time to look which are of use.
    most_hints: usize,
    ready: VecDeque<PendingArrival>,
    /// The nodes that asked for a value that was not here, and until when they are to be told if it comes.
    denied: BTreeMap<ValueName, (BTreeSet<Peer>, Duration)>,
    /// When the next look into the store is due, if anything is waited for.
    look: Duration,
    /// The root jobs under way, as far as anything of them was heard here, by number.
    roots: BTreeMap<u32, RootName>,
    /// Values that will be needed.
    prefetches: Prefetches,
}

impl Fetch {
    /// Does nothing wait for it yet?
    fn is_ahead(&self) -> bool {
        self.waiting.is_empty() && self.askers.is_empty()
    }

    /// Asks the holder for the first piece, which says how long the value is there, and that the holder has it. Later pieces that are here
    /// are not asked for again.
    fn ask_from_the_beginning(&mut self, cx: &mut Context<'_>, name: ValueName) {
        self.total = None;
        self.gives_up = cx.now + PATIENCE;
        self.asked = PIECE;
        self.under_way = BTreeSet::from([0]);
        want(cx, name, self, 0);
    }

    /// Asks the holder for the next pieces, once it is known how many there are.
    fn ask_for_pieces(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let most = match self.is_ahead() && cx.view.is_near(self.holder.peer) {
            true => UNDER_WAY_AHEAD,
            false => UNDER_WAY,
        };
        while self.under_way.len() < most && self.total.is_some_and(|total| self.asked < total) {
            let offset = self.asked;
            self.asked += PIECE;
            if !self.here.contains(&offset) && !self.under_way.contains(&offset) {
                want(cx, name, self, offset);
                self.under_way.insert(offset);
            }
        }
    }
}

impl Values {
    /// The number of values that are being fetched.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Is the value on its way to here?
    pub(crate) fn is_fetching(&self, name: ValueName) -> bool {
        self.fetches.contains_key(&name)
    }

    /// The number of jobs and answers that wait for values. (The nodes that have a value that was asked for
    /// late are known until the next root job is over.)
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let due = |fetch: &Fetch| {
            if fetch.askers.is_empty() {
                fetch.gives_up
            } else {
                fetch.gives_up.min(fetch.says_soon)
            }
        };
        let waits = !self.fetches.is_empty() || !self.denied.is_empty();
        let look = waits.then_some(self.look);
        self.fetches.values().map(due).chain(look).min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>, lattices: &dyn Lattices) {
        if self.look <= cx.now {
            self.look = cx.now + LOOK_EVERY;
            // First: a value that is here by now need not be given up below.
            self.look_into_store(cx, lattices);
        }
        let mut late = Vec::new();
        for (name, fetch) in &mut self.fetches {
            if fetch.gives_up <= cx.now {
                late.push(*name);
            } else if fetch.says_soon <= cx.now && !fetch.askers.is_empty() {
                fetch.says_soon = cx.now + cx.config.paced(SOON_EVERY);
                // Said without any piece, "soon" would keep a ring of waiting nodes waiting for
                // ever.
                if !std::mem::take(&mut fetch.gets_on) {
                    continue;
                }
                ran_out(Expiry::Soon);
                for asker in fetch.askers.keys() {
                    cx.actions
                        .push_back(Action::Send(*asker, Message::Soon(*name)));
                }
            }
        }
        for name in late {
            ran_out(Expiry::Fetch);
            self.next_holder(cx, name);
        }
    }

    /// Looks for values that were made here, or came another way.
    fn look_into_store(&mut self, cx: &mut Context<'_>, lattices: &dyn Lattices) {
        let wanted = self.fetches.keys().chain(self.denied.keys());
        let here: BTreeSet<ValueName> = wanted
            .copied()
            .filter(|name| lattices.holds(*name))
            .collect();
        for name in here {
            // It did not come in pieces, or those that came are not needed.
            cx.actions.push_back(Action::DropPieces(name));
            self.stored(cx, name);
        }
        let denied = self.denied.len();
        self.denied.retain(|_, (_, until)| *until > cx.now);
        if self.denied.len() < denied {
            ran_out(Expiry::Denied);
        }
    }

    /// Is nothing under way, waited for, or remembered?
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.fetches.is_empty() && self.waiting.is_empty() && self.hints.is_empty()
    }

    /// The next job or answer that may go on, or must go back.
    pub(crate) fn poll_ready(&mut self) -> Option<PendingArrival> {
        self.ready.pop_front()
    }

    pub(crate) fn root_started(&mut self, root: RootName) {
        self.roots.insert(root.number, root);
    }

    /// Returns `then` if it may go on at once; otherwise fetches the missing values, beginning with `from`.
    pub(crate) fn bring(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        root_number: u32,
        then: PendingArrival,
        lattices: &dyn Lattices,
    ) -> Option<PendingArrival> {
        // An answer knows only the number of its root job: the name is taken down from jobs.
        if let PendingArrival::Start(_, parcel) = &then {
            self.root_started(parcel.root_run().name);
        }
        let unknown = RootName {
            number: root_number,
            fingerprint: Fingerprint(0),
        };
        let root = self.roots.get(&root_number).copied().unwrap_or(unknown);
        // Jobs that need a part of the result are worth more there than elsewhere.
        if let PendingArrival::Answer(deal, answer) = &then
            && let Some(kept) = answer.kept()
            && let Some(keeper) = cx.view.life_of(NodeId(kept.at))
            && keeper != cx.view.me().peer
        {
            let is_own = cx.books.is_of_workers(*deal);
            for value in &kept.values {
                match is_own {
                    true => cx.books.holders.note_keeper(keeper, value.name, root),
                    // It goes on to the node that waits for it, which says what can go.
                    false => cx.books.holders.note(keeper, value.name, root),
                }
            }
        }
        if then.needs().is_empty() {
            return Some(then);
        }
        let mut missing = BTreeSet::new();
        for name in then.needs() {
            // The sender has what it mentions, or is getting it.
            cx.books.holders.note(from, *name, root);
            if !lattices.holds(*name) {
                missing.insert(*name);
            }
        }
        if missing.is_empty() {
            return Some(then);
        }
        let number = self.number;
        self.number += 1;
        let lent = then.borrowed();
        for name in &missing {
            if let Some(fetch) = self.fetches.get_mut(name) {
                let holder = Holder {
                    peer: from,
                    how: How::Anyhow,
                };
                // The sender has something that needs the value: whatever it said before, by now it
                // can get it.
                fetch.failed.remove(&from);
                let known = fetch.others.iter().any(|other| other.peer == from);
                if fetch.holder.peer != from && !known {
                    fetch.others.push_back(holder);
                }
            } else {
                let holders = holders(cx, *name, from);
                self.begin(cx, *name, root, holders);
            }
            let fetch = self.fetches.get_mut(name).expect("it has begun");
            fetch.lent &= lent.contains(name);
            fetch.waiting.insert(number);
            // It may have been fetched at leisure so far.
            fetch.ask_for_pieces(cx, *name);
        }
        self.waiting
            .insert(number, WaitingForValues { then, missing });
        None
    }

    /// A value will be needed here, as that node says.
    pub(crate) fn prefetch(&mut self, cx: &mut Context<'_>, by: Peer, wanted: Prefetch) {
        self.root_started(wanted.root);
        let told = PrefetchAdvice { wanted, by };
        // No job will come to a node that leaves.
        let forgotten = match cx.books.leaving {
            true => vec![told],
            false => self.prefetches.push(told, cx.config.flow_data),
        };
        for told in forgotten {
            say_not_prefetched(cx, told);
        }
    }

    /// The end of a turn: begins to fetch what will be needed, as far as that is to be now.
    pub(crate) fn go_on_prefetching(&mut self, cx: &mut Context<'_>, lattices: &dyn Lattices) {
        if self.prefetches.is_empty() {
            return;
        }
        let fetches = &self.fetches;
        for told in self.prefetches.ended(|name| !fetches.contains_key(&name)) {
            if !lattices.holds(told.wanted.value.name) {
                say_not_prefetched(cx, told);
            }
        }
        while let Some(told) = self.prefetches.next(cx.config.flow_data) {
            let Prefetch { value, root, from } = told.wanted;
            if lattices.holds(value.name) || self.fetches.contains_key(&value.name) {
                continue;
            }
            if from == cx.view.me().peer || !cx.view.is_alive(from) {
                say_not_prefetched(cx, told);
                continue;
            }
            self.prefetches.begin(told);
            let holders = holders(cx, value.name, from);
            self.begin(cx, value.name, root, holders);
        }
    }

    /// A value is wanted here, and these are asked for it, in their order.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        name: ValueName,
        root: RootName,
        mut holders: VecDeque<Holder>,
    ) {
        let holder = holders.pop_front().expect("somebody mentioned it");
        let mut fetch = Fetch {
            root,
            lent: true,
            holder,
            is_second_try: false,
            others: holders,
            failed: BTreeSet::new(),
            strangers: false,
            total: None,
            asked: 0,
            under_way: BTreeSet::new(),
            gives_up: cx.now,
            here: BTreeSet::new(),
            waiting: BTreeSet::new(),
            askers: BTreeMap::new(),
            says_soon: cx.now + cx.config.paced(SOON_EVERY),
            gets_on: false,
        };
        fetch.ask_from_the_beginning(cx, name);
        self.fetches.insert(name, fetch);
    }

    /// Lets everything go on that waited for this value, and for no other.
    pub(crate) fn stored(&mut self, cx: &mut Context<'_>, name: ValueName) {
        // Nodes that asked in vain may have nobody else to ask.
        if let Some((denied, _)) = self.denied.remove(&name) {
            for peer in denied {
                let available = Message::Available(name);
                cx.actions.push_back(Action::Send(peer, available));
            }
        }
        let Some(fetch) = self.fetches.remove(&name) else {
            return;
        };
        for (asker, asked) in fetch.askers {
            for offset in asked {
                send_piece(cx, asker, name, offset);
            }
        }
        if fetch.lent && fetch.waiting.is_empty() {
            cx.actions.push_back(Action::Borrowed(vec![name]));
        }
        for number in fetch.waiting {
            if let Some(waiting) = self.waiting.get_mut(&number) {
                waiting.missing.remove(&name);
                if waiting.missing.is_empty() {
                    let then = self.waiting.remove(&number).map(|waiting| waiting.then);
                    self.ready.extend(then);
                }
            }
        }
    }

    /// The store has a piece of a value: nodes that wait for it get it.
    pub(crate) fn piece_stored(
        &mut self,
        cx: &mut Context<'_>,
        name: ValueName,
        offset: u64,
        is_first: bool,
    ) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        // Another pool of this process has given it up, say: those before this one are asked for again.
        if is_first && !fetch.here.is_empty() {
            fetch.here.clear();
            fetch.asked = 0;
        }
        fetch.here.insert(offset);
        fetch.ask_for_pieces(cx, name);
        for (asker, asked) in &mut fetch.askers {
            if asked.remove(&offset) {
                send_piece(cx, *asker, name, offset);
            }
        }
    }

    /// Asks for all of a value again: its bytes do not have its name.
    pub(crate) fn corrupt(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        fetch.here.clear();
        // The holder may be honest, and have passed on what another sent, or have sent only what was missing.
        if std::mem::replace(&mut fetch.is_second_try, true) {
            self.next_holder(cx, name);
        } else {
            fetch.ask_from_the_beginning(cx, name);
        }
    }

    /// Asks again for the pieces that were under way from a peer: they may be lost.
    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for (name, fetch) in &self.fetches {
            if fetch.holder.peer == peer && cx.view.is_alive(peer) {
                for offset in &fetch.under_way {
                    want(cx, *name, fetch, *offset);
                }
                for asker in fetch.askers.keys() {
                    say_who_waits(cx, *name, *asker, peer);
                }
            }
        }
    }

    /// Forgets a peer whose life is over, and asks others for what it was to give.
    pub(crate) fn life_ended(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for hints in self.hints.values_mut() {
            for nodes in hints.sites.values_mut() {
                // No node may be sent to the dead.
                nodes.retain(|(node, _)| *node != peer);
            }
        }
        self.denied.retain(|_, (denied, _)| {
            denied.remove(&peer);
            !denied.is_empty()
        });
        let mut lost = Vec::new();
        for (name, fetch) in &mut self.fetches {
            // The fetch goes on for the others, and for this node: the value may be half here.
            fetch.askers.remove(&peer);
            fetch.others.retain(|holder| holder.peer != peer);
            if fetch.holder.peer == peer {
                lost.push(*name);
            }
        }
        for name in lost {
            self.next_holder(cx, name);
        }
    }

    /// Forgets the hints of a root job that is over, and of those that end with it.
    pub(crate) fn root_done(&mut self, cx: &mut Context<'_>, root: RootName) {
        self.forget_roots(cx, |other| root.ends(other));
    }

    /// Root jobs of which anything was heard.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootName> + '_ {
        let hinted = self.hints.values().flat_map(|hints| &hints.roots);
        self.roots.values().chain(hinted).copied()
    }

    /// Forgets the hints of root jobs that are under way nowhere.
    pub(crate) fn forget_roots(
        &mut self,
        cx: &mut Context<'_>,
        is_over: impl Fn(RootName) -> bool,
    ) {
        self.roots.retain(|_, root| !is_over(*root));
        self.prefetches.forget_roots(&is_over);
        let gone = |_: &ValueName, fetch: &mut Fetch| fetch.is_ahead() && is_over(fetch.root);
        for (name, _) in self.fetches.extract_if(.., gone) {
            cx.actions.push_back(Action::DropPieces(name));
        }
        self.hints.retain(|_, hints| {
            hints.roots.retain(|root| !is_over(*root));
            !hints.roots.is_empty()
        });
    }

    /// Another node asks for a piece.
    pub(crate) fn wanted(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        want: Want,
        lattices: &dyn Lattices,
    ) {
        let Want {
            name,
            root,
            offset,
            how,
            lent,
        } = want;
        let is_here = lattices.holds(name);
        if is_here {
            // The value may have appeared since it was fetched.
            self.stored(cx, name);
        } else if let How::Fetch(holder) = how
            // A later piece is asked for by a node that had the first from here: then the value has
            // gone since.
            && offset == 0
            // Asked to fetch it from the asker, or from itself, a node would wait for whoever waits
            // for it.
            && holder != from
            && !self.fetches.contains_key(&name)
            && cx.view.is_alive(holder)
            && holder != cx.view.me().peer
        {
            let how = How::Anyhow;
            self.begin(
                cx,
                name,
                root,
                VecDeque::from([Holder { peer: holder, how }]),
            );
        }
        if let Some(fetch) = self.fetches.get_mut(&name) {
            fetch.lent &= lent;
            let is_piece = offset % PIECE == 0 && fetch.total.is_none_or(|total| offset < total);
            // Two nodes that fetch from each other wait for ever: the asker hears that it must look
            // elsewhere. (Who asks for a later piece had the first from here, and tells this node the same.)
            if (offset == 0 && fetch.holder.peer == from) || !is_piece {
                return self.deny(cx, from, name);
            }
            let asked = fetch.askers.entry(from).or_default();
            if offset == 0 {
                // It begins anew.
                asked.clear();
            } else if asked.len() >= UNDER_WAY {
                return; // it never asks for so many
            }
            if fetch.here.contains(&offset) {
                send_piece(cx, from, name, offset);
            } else {
                asked.insert(offset);
            }
            fetch.ask_for_pieces(cx, name);
            if offset == 0 {
                // The holder may wait in turn, and its holder for this node: if the word comes
                // back, it is a ring.
                say_who_waits(cx, name, from, fetch.holder.peer);
            }
            return;
        }
        // The way to the value is decided once: later pieces come from where the first came from.
        if offset == 0 {
            let Some(site) = cx.view.get(from).map(|identity| Arc::clone(&identity.site)) else {
                return;
            };
            let near = site == cx.view.me().site;
            if self.hints.len() >= self.most_hints.max(MOST_HINTS) {
                // Data that tasks have borrowed go long before their root job is over.
                self.hints.retain(|name, _| lattices.holds(*name));
                self.most_hints = 2 * self.hints.len();
            }
            let hints = self.hints.entry(name).or_default();
            hints.roots.insert(root);
            let nodes = hints.sites.entry(site).or_default();
            // The own site has short links: the first few are served from here. A far site is given
            // the value once.
            let here = near && hints.given < CHILDREN;
            if how != How::Insist
                && !here
                // A node to which too many were sent already would be slow.
                && let Some((peer, sent)) =
                    (nodes.iter_mut()).find(|(peer, sent)| *peer != from && *sent < CHILDREN)
            {
                *sent += 1;
                cx.books.holders.note(from, name, root);
                let elsewhere = Message::Elsewhere(name, *peer);
                cx.actions.push_back(Action::Send(from, elsewhere));
                // Sent there, the asker will have the value soon, and can serve others.
                if nodes.iter().all(|(peer, _)| *peer != from) {
                    nodes.push((from, 0));
                }
                return;
            }
            // None of its site has it, and neither has this node: perhaps it is kept for this one elsewhere.
            if !is_here {
                // Who insists has been sent elsewhere before.
                let keeper = keeper_for(cx, name, from).filter(|_| how != How::Insist);
                return match keeper {
                    Some(keeper) => {
                        let elsewhere = Message::Elsewhere(name, keeper);
                        cx.actions.push_back(Action::Send(from, elsewhere));
                    }
                    None => self.deny(cx, from, name),
                };
            }
            hints.given += u32::from(near);
            cx.books.holders.note(from, name, root);
            if nodes.iter().all(|(peer, _)| *peer != from) {
                nodes.push((from, 0));
            }
        }
        if !is_here {
            return self.deny(cx, from, name);
        }
        send_piece(cx, from, name, offset);
    }

    /// Tells a node that the value is not to be had here, for now.
    fn deny(&mut self, cx: &mut Context<'_>, to: Peer, name: ValueName) {
        cx.actions
            .push_back(Action::Send(to, Message::Unavailable(name)));
        // Peers may ask for names that nobody made: the memory of them has a limit.
        if self.denied.len() < DENIED_MOST || self.denied.contains_key(&name) {
            let (denied, until) = (self.denied.entry(name)).or_insert((BTreeSet::new(), cx.now));
            denied.insert(to);
            *until = cx.now + cx.config.paced(DENIED);
        }
    }

    /// Passes on that `who` waits for a node that waits for this one. If `who` is this node, it waits for
    /// itself.
    pub(crate) fn waits(&mut self, cx: &mut Context<'_>, from: Peer, waits: Waits) {
        let Waits {
            name,
            who,
            whom,
            hops,
        } = waits;
        let Some(fetch) = self.fetches.get(&name) else {
            return; // it is here
        };
        let holder = fetch.holder.peer;
        if who == cx.view.me().peer {
            // Word of a holder that has been given up since would end the fetch from another.
            if whom == holder && fetch.askers.contains_key(&from) {
                self.next_holder(cx, name);
            }
        } else if hops < CHAIN {
            let waits = Message::Waits {
                name,
                who,
                whom,
                hops: hops + 1,
            };
            cx.actions.push_back(Action::Send(holder, waits));
        }
    }

    /// Takes in that a node which had failed to give a value has it now.
    pub(crate) fn available(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        cx.books.holders.note(from, name, fetch.root);
        fetch.failed.remove(&from);
        if fetch.holder.peer == from {
            return;
        }
        fetch.others.retain(|holder| holder.peer != from);
        // The node may not send this one elsewhere: it has just got the value itself.
        let how = How::Insist;
        fetch.others.push_front(Holder { peer: from, how });
        if fetch.total.is_none() {
            // The present holder has given nothing yet: it comes last.
            fetch.others.push_back(fetch.holder);
            self.ask_next(cx, name);
        }
    }

    /// Takes in a piece.
    pub(crate) fn part(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        name: ValueName,
        offset: u64,
        total: u64,
        bytes: Vec<u8>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        // A piece of a holder that was given up, or one that was asked for twice: the store has it,
        // or is to have the value from another.
        if fetch.holder.peer != from || !fetch.under_way.contains(&offset) {
            return;
        }
        let length = total.saturating_sub(offset).min(PIECE);
        // A holder that sends something else is no holder: another one is asked.
        let sound = bytes.len() as u64 == length
            && total <= LARGEST
            && fetch.total.is_none_or(|known| known == total);
        if !sound {
            cx.actions.push_back(Action::DropPieces(name));
            return self.corrupt(cx, name);
        }
        if fetch.total.is_none() {
            cx.books.holders.note(from, name, fetch.root);
        }
        fetch.under_way.remove(&offset);
        fetch.total = Some(total);
        fetch.gets_on = true;
        // Patience is with the silence, not with the length of the value.
        fetch.gives_up = cx.now + PATIENCE;
        fetch.ask_for_pieces(cx, name);
        cx.actions.push_back(Action::Store {
            name,
            root: fetch.root,
            lent: fetch.lent,
            offset,
            total,
            bytes,
        });
    }

    /// Takes in that another node, nearer to this one, may have it.
    pub(crate) fn elsewhere(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        name: ValueName,
        peer: Peer,
    ) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        // Insisted upon, a holder must give the value itself: sent elsewhere again, the asker would
        // go in circles.
        if fetch.holder.peer != from || fetch.holder.how == How::Insist {
            return;
        }
        // If that comes to nothing, the sender has to do it.
        fetch.others.push_front(Holder {
            peer: from,
            how: How::Insist,
        });
        // Two nodes that have it not, and think that the other has, would send the asker to and fro.
        let mut before = fetch.others.iter();
        let was_there = before.any(|other| other.peer == peer && other.how == How::Insist);
        let is_other = cx.view.is_alive(peer) && peer != cx.view.me().peer;
        if is_other && !was_there && !fetch.failed.contains(&peer) {
            fetch.others.push_front(Holder {
                peer,
                how: How::Anyhow,
            });
        }
        self.ask_next(cx, name);
    }

    /// Notes that the holder is still fetching it, and getting on.
    pub(crate) fn soon(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {
        if let Some(fetch) = self.fetches.get_mut(&name)
            && fetch.holder.peer == from
        {
            fetch.gives_up = cx.now + PATIENCE;
        }
    }

    pub(crate) fn unavailable(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {
        cx.books.holders.lacks(from, name);
        // A late word of a holder that was given up must not end the fetch from another.
        if self
            .fetches
            .get(&name)
            .is_some_and(|fetch| fetch.holder.peer == from)
        {
            self.next_holder(cx, name);
        }
        // The sender has forgotten it: no other node is to be sent there.
        if let Some(hints) = self.hints.get_mut(&name) {
            for nodes in hints.sites.values_mut() {
                nodes.retain(|(node, _)| *node != from);
            }
        }
    }

    /// Goes over to the next holder, as this one has failed.
    fn next_holder(&mut self, cx: &mut Context<'_>, name: ValueName) {
        if let Some(fetch) = self.fetches.get_mut(&name) {
            fetch.failed.insert(fetch.holder.peer);
            self.ask_next(cx, name);
        }
    }

    fn ask_next(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let Some(fetch) = self.fetches.get_mut(&name) else {
            return;
        };
        let next = loop {
            match fetch.others.pop_front() {
                // Asked in vain before, and it has not said that it has the value since.
                Some(holder) if fetch.failed.contains(&holder.peer) => {}
                Some(holder) if cx.view.is_alive(holder.peer) => break Some(holder),
                Some(_) => {}
                // Nobody would miss it.
                None if fetch.strangers || fetch.is_ahead() => break None,
                None => {
                    // Only now, and once: these nodes know of the value by chance at best.
                    fetch.strangers = true;
                    let (view, failed) = (&*cx.view, &fetch.failed);
                    let has_failed = |peer: &Peer| failed.contains(peer);
                    let known = known(cx, name).into_iter();
                    let known = known.filter(|peer| !has_failed(peer)).take(STRANGERS);
                    let others = known.chain(others(view).filter(|peer| !has_failed(peer)));
                    let how = How::Insist;
                    let others = others.map(|peer| Holder { peer, how });
                    fetch.others.extend(others);
                }
            }
        };
        match next {
            Some(holder) => {
                fetch.holder = holder;
                fetch.is_second_try = false;
                fetch.ask_from_the_beginning(cx, name);
            }
            None => self.give_up(cx, name),
        }
    }

    /// Gives a value up, as no node has it any more.
    fn give_up(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let Some(fetch) = self.fetches.remove(&name) else {
            return;
        };
        cx.actions.push_back(Action::DropPieces(name));
        for asker in fetch.askers.into_keys() {
            self.deny(cx, asker, name);
        }
        for number in fetch.waiting {
            let Some(waiting) = self.waiting.remove(&number) else {
                continue;
            };
            // A job that goes back undone does not wait for its other values either.
            for other in &waiting.missing {
                if let Some(fetch) = self.fetches.get_mut(other) {
                    fetch.waiting.remove(&number);
                }
            }
            let borrowed = waiting.then.borrowed();
            if !borrowed.is_empty() {
                cx.actions.push_back(Action::Borrowed(borrowed.to_vec()));
            }
            self.ready.push_back(match waiting.then {
                // A job goes back to its origin, which has the value, or makes it again. An answer
                // is worth nothing without the value: its job is done again here.
                PendingArrival::Start(key, _) => PendingArrival::Refuse(key, name),
                PendingArrival::Answer(deal, answer) => {
                    cx.books.let_go(&answer);
                    PendingArrival::Redo(deal, name)
                }
                PendingArrival::Local(ticket, name) => PendingArrival::Lost(ticket, name),
                then @ (PendingArrival::Refuse(..)
                | PendingArrival::Redo(..)
                | PendingArrival::Lost(..)) => then,
            });
        }
    }
}

/// Whom to ask for a value that `from` mentions, in order.
fn holders(cx: &Context<'_>, name: ValueName, from: Peer) -> VecDeque<Holder> {
    let mut holders = VecDeque::new();
    // A near sender is as good as any other. From afar a value crosses once, to this site, where a node may have it already; else
    // the keeper fetches it. If these fail, the node that should have it is asked itself.
    if !cx.view.is_near(from) {
        let near = known(cx, name).into_iter();
        let near = near.filter(|peer| cx.view.is_near(*peer)).take(1);
        let how = How::Anyhow;
        holders.extend(near.map(|peer| Holder { peer, how }));
        let (keeper, how) = (keeper(cx.view, name), How::Fetch(from));
        if keeper != cx.view.me().peer {
            holders.push_back(Holder { peer: keeper, how });
        }
    }
    let how = How::Anyhow;
    holders.push_back(Holder { peer: from, how });
    holders
}

/// The other nodes that are known to hold a value, those of this site first.
fn known(cx: &Context<'_>, name: ValueName) -> Vec<Peer> {
    let me = cx.view.me().peer;
    let mut known: Vec<Peer> = cx.books.holders.of(name).collect();
    known.retain(|peer| *peer != me);
    known.sort_by_key(|peer| !cx.view.is_near(*peer));
    known
}

/// The node to which one is sent that asks for a value which is not here: a node that keeps it for this one, or else one of those
/// that hold it, of which some have only been given a job that needs it.
fn keeper_for(cx: &Context<'_>, name: ValueName, asker: Peer) -> Option<Peer> {
    let keepers = cx.books.holders.keepers(name);
    let keepers = keepers.filter_map(|id| cx.view.life_of(id));
    let me = cx.view.me().peer;
    let mut all = keepers.chain(known(cx, name));
    all.find(|peer| *peer != asker && *peer != me && cx.view.is_alive(*peer))
}

/// The node of this site that keeps a value for the others. If `main` runs at this site, it is that node: it
/// has made most of them.
fn keeper(view: &View, name: ValueName) -> Peer {
    let maker = maker(view);
    if view.is_near(maker) {
        return maker;
    }
    let members = view.site(&view.me().site);
    let [a, b, c, d, ..] = name.0;
    // All nodes of the site must find the same keeper without asking: the name decides.
    let place = u32::from_le_bytes([a, b, c, d]) as usize % members.len();
    members[place]
}

/// The other nodes that may have a value: the one where `main` made it, most likely, and the next ones
/// of this site.
fn others(view: &View) -> impl Iterator<Item = Peer> {
    let me = view.me().peer;
    let members = view.site(&view.me().site);
    let place = members.partition_point(|peer| *peer <= me);
    let (before, after) = members.split_at(place);
    let maker = maker(view);
    let near = after.iter().chain(before).copied();
    let near = near.filter(move |peer| *peer != maker).take(STRANGERS);
    std::iter::once(maker)
        .chain(near)
        .filter(move |peer| *peer != me)
}

/// The node where `main` runs: the oldest member.
fn maker(view: &View) -> Peer {
    let oldest = view
        .members()
        .min_by_key(|member| (member.stamp, member.peer));
    oldest.expect("this node is a member").peer
}

/// A node counts on a value to be here, and is wrong.
fn say_not_prefetched(cx: &mut Context<'_>, told: PrefetchAdvice) {
    let message = Message::NotPrefetched(told.wanted.value.name);
    cx.actions.push_back(Action::Send(told.by, message));
}

fn want(cx: &mut Context<'_>, name: ValueName, fetch: &Fetch, offset: u64) {
    let message = Message::Want {
        name,
        root: fetch.root,
        offset,
        how: fetch.holder.how,
        lent: fetch.lent,
    };
    cx.actions
        .push_back(Action::Send(fetch.holder.peer, message));
}

/// Tells the holder of a value which this node still fetches that another waits for it: if the word comes back to that one, it waits for itself.
fn say_who_waits(cx: &mut Context<'_>, name: ValueName, who: Peer, holder: Peer) {
    let waits = Message::Waits {
        name,
        who,
        whom: cx.view.me().peer,
        hops: 0,
    };
    cx.actions.push_back(Action::Send(holder, waits));
}

fn send_piece(cx: &mut Context<'_>, to: Peer, name: ValueName, offset: u64) {
    cx.actions.push_back(Action::SendPart {
        to,
        name,
        offset,
        length: PIECE,
    });
}
