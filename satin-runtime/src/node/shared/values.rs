//! Values: fetched before the job that needs them starts, once, from the own site if somebody there has them.
//!
//! A value is to be had from the node that the job came from. If that stands at another site, each value has a keeper at
//! the own one, which its name decides: the keeper is asked, and fetches it if it has not ([`How::Fetch`]). So a value
//! crosses a wide link to a site once, whoever needs it there. Whoever is still fetching what it is asked for serves those
//! who wait when it has it, and until then says how it gets on ([`Message::Soon`]; only if pieces come, so that a circle
//! of nodes that wait for each other comes to an end).
//!
//! Whoever gives a value remembers to whom. Others of the same site it sends there ([`Message::Elsewhere`]), at its own
//! site if it has given it a few times: copies spread as a tree. If all that fails, the first node is asked again, and
//! insisted upon; then others; and if nobody has the value any more, whatever waits for it goes back undone.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::super::{Action, Context, Lattices, Message, Peer, Then, View, message::How};
use crate::job::{JobId, RootTag, ValueName};

/// Values travel in pieces of this size. Larger ones hold up more of what comes after a loss; smaller ones cost more
/// messages.
pub const PIECE: u64 = 1 << 20;
/// So many pieces of a value are under way at a time: enough to fill 100 Mbit/s over 300 ms.
const UNDER_WAY: usize = 4;
/// A holder that says nothing for so long is given up. Whether it lives is membership's business, and what a broken
/// connection lost is asked for again at once: this is for what should not happen. It must be longer than the pieces
/// under way take on a slow link.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who is still fetching, and getting on, tells those who wait for it so often.
const SOON_EVERY: Duration = Duration::from_secs(10);
/// So many nodes of a site are sent to one that has the value.
const CHILDREN: u32 = 4;
/// Besides those who should have a value, so many others are asked.
const STRANGERS: usize = 3;
/// No value is larger.
const LARGEST: u64 = 64 << 30;

/// Somebody who may have a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    peer: Peer,
    how: How,
}

/// A request for a value.
pub(crate) struct Want {
    pub(crate) name: ValueName,
    pub(crate) root: RootTag,
    pub(crate) offset: u64,
    pub(crate) how: How,
}

/// A value under way to here.
struct Fetch {
    root: RootTag,
    holder: Holder,
    /// To be asked after this one.
    others: VecDeque<Holder>,
    /// Asked in vain: they need not be asked again.
    failed: BTreeSet<Peer>,
    strangers: bool,
    /// Once the first piece is here.
    total: Option<u64>,
    /// Pieces before this have been asked for.
    asked: u64,
    /// Pieces that have been asked for and are not here.
    under_way: BTreeSet<u64>,
    gives_up: Duration,
    /// What waits for it, by number.
    waiting: BTreeSet<u64>,
    /// Nodes that wait for it, to be served from here.
    askers: BTreeSet<Peer>,
    says_soon: Duration,
    /// A piece has come since that was last said.
    gets_on: bool,
}

/// Who has a value, as far as this node knows, by site.
#[derive(Default)]
struct Hints {
    roots: BTreeSet<RootTag>,
    /// Given from here to nodes of this site, without sending them elsewhere.
    given: u32,
    /// In the order in which they asked, and how many others were sent to each.
    sites: BTreeMap<Arc<str>, Vec<(Peer, u32)>>,
}

struct Waiting {
    then: Then,
    missing: BTreeSet<ValueName>,
}

/// Which values are under way, who waits for them, and who has them.
#[derive(Default)]
pub struct Values {
    fetches: BTreeMap<ValueName, Fetch>,
    waiting: BTreeMap<u64, Waiting>,
    number: u64,
    hints: BTreeMap<ValueName, Hints>,
    ready: VecDeque<Then>,
    /// The youngest root job that was heard of: what answers bring is taken to be its.
    youngest: Option<RootTag>,
}

impl Values {
    /// So many values are being fetched.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.len()
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let due = |fetch: &Fetch| {
            if fetch.askers.is_empty() {
                fetch.gives_up
            } else {
                fetch.gives_up.min(fetch.says_soon)
            }
        };
        self.fetches.values().map(due).min()
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let mut late = Vec::new();
        for (name, fetch) in &mut self.fetches {
            if fetch.gives_up <= cx.now {
                late.push(*name);
            } else if fetch.says_soon <= cx.now && !fetch.askers.is_empty() {
                fetch.says_soon = cx.now + SOON_EVERY;
                for asker in &fetch.askers {
                    cx.actions
                        .push_back(Action::Send(*asker, Message::Soon(*name)));
                }
            }
        }
        for name in late {
            self.next_holder(cx, name);
        }
    }

    /// Nothing is under way, waited for, or remembered.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.fetches.is_empty() && self.waiting.is_empty() && self.hints.is_empty()
    }

    /// What may go on, or must go back, by now.
    pub(crate) fn poll_ready(&mut self) -> Option<Then> {
        self.ready.pop_front()
    }

    pub(crate) fn root_started(&mut self, tag: RootTag) {
        self.youngest = self.youngest.max(Some(tag));
    }

    /// Returns what may go on at once; otherwise fetches what is missing, beginning with `from`.
    pub(crate) fn bring(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        then: Then,
        lattices: &dyn Lattices,
    ) -> Option<Then> {
        if let Then::Start(_, parcel) = &then {
            let root = root_of(cx, &parcel.id);
            self.youngest = self.youngest.max(Some(root));
        }
        if then.needs().is_empty() {
            return Some(then);
        }
        let needs = then.needs().iter().copied();
        let missing: BTreeSet<ValueName> = needs.filter(|name| !lattices.holds(*name)).collect();
        if missing.is_empty() {
            return Some(then);
        }
        let root = match &then {
            Then::Start(_, parcel) => root_of(cx, &parcel.id),
            _ => self.youngest.unwrap_or(RootTag {
                term: cx.term,
                number: 0,
            }),
        };
        let number = self.number;
        self.number += 1;
        for name in &missing {
            if let Some(fetch) = self.fetches.get_mut(name) {
                let holder = Holder {
                    peer: from,
                    how: How::Anyhow,
                };
                if fetch.holder.peer != from && !fetch.failed.contains(&from) {
                    fetch.others.push_back(holder);
                }
            } else {
                let keeper = keeper(cx.view, *name);
                if keeper == cx.view.me().peer || cx.view.is_near(from) {
                    self.begin(cx, *name, root, from, None);
                } else {
                    self.begin(cx, *name, root, from, Some(keeper));
                }
            }
            let fetch = self.fetches.get_mut(name).expect("it has begun");
            fetch.waiting.insert(number);
        }
        self.waiting.insert(number, Waiting { then, missing });
        None
    }

    /// A value is wanted here, and `from` should have it; the keeper, if there is one, is to fetch it first.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        name: ValueName,
        root: RootTag,
        from: Peer,
        keeper: Option<Peer>,
    ) {
        let itself = Holder {
            peer: from,
            how: How::Anyhow,
        };
        let keeper = keeper.map(|peer| Holder {
            peer,
            how: How::Fetch(from),
        });
        let others = keeper.map(|_| itself);
        let holder = keeper.unwrap_or(itself);
        let fetch = Fetch {
            root,
            holder,
            others: others.into_iter().collect(),
            failed: BTreeSet::new(),
            strangers: false,
            total: None,
            asked: PIECE,
            under_way: BTreeSet::from([0]),
            gives_up: cx.now + PATIENCE,
            waiting: BTreeSet::new(),
            askers: BTreeSet::new(),
            says_soon: cx.now + SOON_EVERY,
            gets_on: false,
        };
        want(cx, name, &fetch, 0);
        self.fetches.insert(name, fetch);
    }

    /// A value is here: what waited for it, and for nothing else, goes on.
    pub(crate) fn stored(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let Some(fetch) = self.fetches.remove(&name) else {
            return;
        };
        for asker in fetch.askers {
            send_piece(cx, asker, name, 0);
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

    /// What came is not what it should be: another holder is asked for all of it.
    pub(crate) fn corrupt(&mut self, cx: &mut Context<'_>, name: ValueName) {
        self.next_holder(cx, name);
    }

    /// What was under way from there may be lost.
    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for (name, fetch) in &self.fetches {
            if fetch.holder.peer == peer && cx.view.is_alive(peer) {
                for offset in &fetch.under_way {
                    want(cx, *name, fetch, *offset);
                }
            }
        }
    }

    /// A peer is gone.
    pub(crate) fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for hints in self.hints.values_mut() {
            for nodes in hints.sites.values_mut() {
                nodes.retain(|(node, _)| *node != peer);
            }
        }
        let mut lost = Vec::new();
        for (name, fetch) in &mut self.fetches {
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

    pub(crate) fn root_done(&mut self, tag: RootTag) {
        self.hints.retain(|_, hints| {
            hints.roots.remove(&tag);
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
        } = want;
        if let How::Fetch(holder) = how
            && offset == 0
            && holder != from
            && !self.fetches.contains_key(&name)
            && !lattices.holds(name)
            && cx.view.is_alive(holder)
            && holder != cx.view.me().peer
        {
            self.begin(cx, name, root, holder, None);
        }
        if let Some(fetch) = self.fetches.get_mut(&name) {
            if fetch.holder.peer == from || offset > 0 {
                let unavailable = Message::Unavailable(name);
                cx.actions.push_back(Action::Send(from, unavailable));
            } else {
                fetch.askers.insert(from);
            }
            return;
        }
        if offset == 0 {
            let Some(site) = cx.view.get(from).map(|identity| Arc::clone(&identity.site)) else {
                return;
            };
            let near = site == cx.view.me().site;
            let hints = self.hints.entry(name).or_default();
            hints.roots.insert(root);
            let nodes = hints.sites.entry(site).or_default();
            let here = near && hints.given < CHILDREN;
            if how != How::Insist
                && !here
                && let Some((peer, sent)) =
                    (nodes.iter_mut()).find(|(peer, sent)| *peer != from && *sent < CHILDREN)
            {
                *sent += 1;
                let elsewhere = Message::Elsewhere(name, *peer);
                cx.actions.push_back(Action::Send(from, elsewhere));
                if nodes.iter().all(|(peer, _)| *peer != from) {
                    nodes.push((from, 0));
                }
                return;
            }
            hints.given += u32::from(near);
            if nodes.iter().all(|(peer, _)| *peer != from) {
                nodes.push((from, 0));
            }
        }
        send_piece(cx, from, name, offset);
    }

    /// A piece came.
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
        if fetch.holder.peer != from || !fetch.under_way.contains(&offset) {
            return;
        }
        let length = total.saturating_sub(offset).min(PIECE);
        let sound = bytes.len() as u64 == length
            && total <= LARGEST
            && fetch.total.is_none_or(|known| known == total);
        if !sound {
            self.next_holder(cx, name);
            return;
        }
        fetch.under_way.remove(&offset);
        fetch.total = Some(total);
        fetch.gets_on = true;
        fetch.gives_up = cx.now + PATIENCE;
        while fetch.under_way.len() < UNDER_WAY && fetch.asked < total {
            let offset = fetch.asked;
            want(cx, name, fetch, offset);
            fetch.asked += PIECE;
            fetch.under_way.insert(offset);
        }
        cx.actions.push_back(Action::Store {
            name,
            root: fetch.root,
            offset,
            total,
            bytes,
        });
    }

    /// Somebody nearer may have it.
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
        if fetch.holder.peer != from || fetch.holder.how == How::Insist {
            return;
        }
        // If that comes to nothing, the sender has to do it.
        fetch.others.push_front(Holder {
            peer: from,
            how: How::Insist,
        });
        if cx.view.is_alive(peer) && peer != cx.view.me().peer && !fetch.failed.contains(&peer) {
            fetch.others.push_front(Holder {
                peer,
                how: How::Anyhow,
            });
        }
        self.ask_next(cx, name);
    }

    /// The holder is still fetching it.
    pub(crate) fn soon(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {
        if let Some(fetch) = self.fetches.get_mut(&name)
            && fetch.holder.peer == from
        {
            fetch.gives_up = cx.now + PATIENCE;
        }
    }

    pub(crate) fn unavailable(&mut self, cx: &mut Context<'_>, from: Peer, name: ValueName) {
        if self
            .fetches
            .get(&name)
            .is_some_and(|fetch| fetch.holder.peer == from)
        {
            self.next_holder(cx, name);
        }
        // It has forgotten it: nobody is to be sent there.
        if let Some(hints) = self.hints.get_mut(&name) {
            for nodes in hints.sites.values_mut() {
                nodes.retain(|(node, _)| *node != from);
            }
        }
    }

    /// The holder has failed.
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
                Some(holder) if fetch.failed.contains(&holder.peer) => {}
                Some(holder) if cx.view.is_alive(holder.peer) => break Some(holder),
                Some(_) => {}
                None if fetch.strangers => break None,
                None => {
                    fetch.strangers = true;
                    let (view, failed) = (&*cx.view, &fetch.failed);
                    let others = others(view).filter(|peer| !failed.contains(peer));
                    let how = How::Insist;
                    let others = others.map(|peer| Holder { peer, how });
                    fetch.others.extend(others);
                }
            }
        };
        match next {
            Some(holder) => {
                fetch.holder = holder;
                fetch.total = None;
                fetch.gives_up = cx.now + PATIENCE;
                fetch.asked = PIECE;
                fetch.under_way = BTreeSet::from([0]);
                want(cx, name, fetch, 0);
            }
            None => self.give_up(cx, name),
        }
    }

    /// Nobody has it any more.
    fn give_up(&mut self, cx: &mut Context<'_>, name: ValueName) {
        let Some(fetch) = self.fetches.remove(&name) else {
            return;
        };
        for asker in fetch.askers {
            cx.actions
                .push_back(Action::Send(asker, Message::Unavailable(name)));
        }
        for number in fetch.waiting {
            let Some(waiting) = self.waiting.remove(&number) else {
                continue;
            };
            for other in &waiting.missing {
                if let Some(fetch) = self.fetches.get_mut(other) {
                    fetch.waiting.remove(&number);
                }
            }
            self.ready.push_back(match waiting.then {
                Then::Start(key, _) => Then::Refuse(key, name),
                Then::Answer(peer, token, _) => Then::Redo(peer, token, name),
                then @ (Then::Refuse(..) | Then::Redo(..)) => then,
            });
        }
    }
}

fn root_of(cx: &Context<'_>, id: &JobId) -> RootTag {
    RootTag {
        term: cx.term,
        number: id.path().next().unwrap_or(0),
    }
}

/// The node of this site that keeps a value for the others. Where `main` runs it is that node: it has made most of them.
fn keeper(view: &View, name: ValueName) -> Peer {
    let maker = maker(view);
    if view.is_near(maker) {
        return maker;
    }
    let members = view.site(&view.me().site);
    let [a, b, c, d, ..] = name.0;
    let place = u32::from_le_bytes([a, b, c, d]) as usize % members.len();
    members[place]
}

/// Who else may have a value: where `main` made it, most likely, and the next of this site.
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

/// Where `main` runs: the oldest member.
fn maker(view: &View) -> Peer {
    let oldest = view
        .members()
        .min_by_key(|member| (member.stamp, member.peer));
    oldest.expect("this node is a member").peer
}

fn want(cx: &mut Context<'_>, name: ValueName, fetch: &Fetch, offset: u64) {
    let message = Message::Want {
        name,
        root: fetch.root,
        offset,
        how: fetch.holder.how,
    };
    cx.actions
        .push_back(Action::Send(fetch.holder.peer, message));
}

fn send_piece(cx: &mut Context<'_>, to: Peer, name: ValueName, offset: u64) {
    cx.actions.push_back(Action::SendPart {
        to,
        name,
        offset,
        length: PIECE,
    });
}
