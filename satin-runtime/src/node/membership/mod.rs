//! Membership: which nodes are there. Joining, leaving, and finding out which nodes died.
//!
//! The detector is foca's (`detector`), with some evidence beside it (`watch`). Nodes that only fell silent
//! are looked for now and then (`lost`), because they may be the other side of a partition. The way in is our
//! own (`search`): a joiner asks any member, which names the master, which gives the joiner its stamp and the
//! list of members; gossip tells the others.
//!
//! **After a cut one side comes over.** Each side has all lives of the other as over. When two nodes meet of which each has lost the other
//! (`meet`, `declared_dead`), they compare their sides ([`Side`]): that with a master stays, then that with fewer branches, then that of the later term, then that of the
//! elder master; two sides without a master wait. So both come to the same end, whichever two nodes meet, and nobody need be asked. A node of the other
//! side tells its members ([`Message::GiveWay`]), each of which looks whether it agrees, as it may know of a master by now. Then they *come in anew*
//! (`MemberChange::Over`): as the next generation, with a fresh detector, as the old one has the lives of the side that stays as over, and would end
//! them. These nodes give their work up and keep what is finished of it, as when a node leaves, and their `main` stops. The lives of the side that stays
//! do not change. Who is not let in within the wait for a partition looks for its mates too, and founds a pool with them.
//!
//! Of a node that came in at the other side nothing is heard but its side: its gossip says that this node is dead. Of three sides that
//! meet at once, one that will come over itself does not let in who comes over to a better one ([`Message::Join`]).
//!
//! A node that alone was declared dead, as it paused, goes on as the next generation where it is, if most nodes say so (rule `Larger`). Its jobs
//! run on. When a cut ends just as nodes are found dead, some pairs of nodes have lost each other, and others have not: then nodes of both sides may
//! begin anew, once or twice.
//!
//! Time here is the time that this process was awake: when a timeout is handled much too late, the process
//! was stopped or starved, the answers that it waits for lie unread, and no other node is to blame. Such
//! pauses do not count.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use rand::rngs::SmallRng;

use super::{
    Action, Context, Identity, Message, NodeEnd, Notice, Peer, ProtocolConfig, Rule, Side, View,
    expiry::{Expiry, ran_out},
    repair::LifeEnd,
    root::Roots,
    shared::Bounds,
};
pub(crate) use detector::suspicion;
use detector::{Detector, DetectorNews, PresumedEnd};
use lost::LostNodes;
use search::{Search, SearchStep};
use watch::Watch;

mod detector;
mod lost;
mod search;
mod watch;

#[cfg(test)]
mod tests;

/// A timeout that is handled later than this was slept through. Too small: a busy machine is taken
/// for one that slept, and finds out late who died. Too large: after a short pause this node blames others
/// for its own silence.
const SLEPT: Duration = Duration::from_millis(250);
/// The size of a pool up to which a node that leaves says goodbye to all others; in a larger one it
/// tells those that it is linked to, and gossip does the rest. Too small: goodbyes come late. Too large: many
/// new connections for one word.
const GOODBYES: usize = 64;

/// The wait of a node that is to come over to the other side of a cut, for its side to be told. Too small: the others hear it later, from the
/// other side. Too large: all work that long for nothing.
const GIVE_WAY: Duration = Duration::from_millis(100);

/// A change of the members that the other conversations must know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MemberChange {
    /// The node itself is in, or has begun another life.
    Joined,
    /// The peer is in the view now.
    In(Peer),
    /// The peer is not in the view any more.
    Out(Arc<Identity>, Absence),
    /// The peer is in the view, as before. But this node has begun another life: nothing from before holds
    /// between the two.
    Anew(Peer),
    /// The node comes over to the other side of a cut: these were the members of its own. It is on its way in again, and its life there is over.
    Over(Vec<Arc<Identity>>),
}

/// A change that has not been made in the view yet, in the order of what happened.
#[derive(Debug)]
enum PendingChange {
    Joined,
    Reborn(Arc<Identity>),
    Anew(Peer),
    In(Arc<Identity>),
    Out(Peer, Absence),
    /// To come over to that side, of the node with that address.
    Over(Side, SocketAddr),
    /// Packets that must not leave before the changes ahead of them are made.
    Packets(Vec<(Peer, Vec<u8>)>),
}

/// Why a node is not in the view any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Absence {
    /// The node said goodbye.
    Left,
    /// The node is dead: its machine says that nobody listens there any more.
    Gone,
    /// The node is dead, or cut off.
    Silent,
    /// The node had been declared dead somewhere, and lives on as the next generation.
    Reborn,
}

impl From<Absence> for LifeEnd {
    fn from(why: Absence) -> LifeEnd {
        match why {
            Absence::Left | Absence::Reborn => LifeEnd::Left,
            Absence::Gone => LifeEnd::Died,
            Absence::Silent => LifeEnd::Silent,
        }
    }
}

enum MembershipState {
    Searching(Search),
    In(Box<Detector>, Watch),
    /// The members are given and stay.
    Fixed,
    /// The node itself has left.
    Gone,
}

/// The detector, and the way in.
pub struct Membership {
    state: MembershipState,
    /// The other sides of the connections that stand, and the connections' epochs.
    links: BTreeMap<Peer, (u64, Identity)>,
    pending: VecDeque<PendingChange>,
    lost: LostNodes,
    /// Nodes that are about to leave, as the pool said when it let this node in, and that are not in the view
    /// yet.
    draining: BTreeSet<Peer>,
    /// The time that was slept through, in all.
    slept: Duration,
    /// When a pool that was formed beforehand begins.
    begins: Option<Duration>,
    /// When this node comes over to the other side of a cut, that side, and the address of a node there.
    gives_way: Option<(Duration, Side, SocketAddr)>,
    /// The side of this node, which drains, has come over to another.
    is_left_behind: bool,
    /// Lives that are over, as this node knows when it comes in: of the members that it had before it came over, and of those that its new side
    /// has lost.
    over: Vec<Arc<Identity>>,
    /// Nodes to which connections stand, and which have been asked at which side they are.
    asked: BTreeSet<Peer>,
}

impl Membership {
    pub(crate) fn new(
        config: &ProtocolConfig,
        view: &View,
        rng: &mut SmallRng,
        now: Duration,
    ) -> Membership {
        let me = view.me();
        let mut membership = Membership {
            state: MembershipState::Fixed,
            links: BTreeMap::new(),
            pending: VecDeque::new(),
            lost: LostNodes::default(),
            draining: BTreeSet::new(),
            slept: Duration::ZERO,
            begins: None,
            gives_way: None,
            is_left_behind: false,
            over: Vec::new(),
            asked: BTreeSet::new(),
        };
        if me.stamp == Identity::NOT_YET && !config.fixed_members {
            let search = Search::new(config.join.clone(), config.may_found, now);
            membership.state = MembershipState::Searching(search);
            return membership;
        }
        if !config.fixed_members {
            // The node is handed out as if it were alone. That it is in is told in the first turn,
            // when there is a context to tell it with.
            membership.begins = Some(now);
            let mut detector = Detector::new(Arc::new(me.clone()), config, rng);
            let others = view.shared().filter(|member| member.peer != me.peer);
            detector.insert_known(now, others.cloned());
            // The members are in the view already: telling of them would let them join twice.
            detector.take_news();
            detector.resize(config, view.len());
            let watch = Watch::new(config, now, rng);
            membership.state = MembershipState::In(Box::new(detector), watch);
        }
        membership
    }

    /// Is this node on its way in?
    pub(crate) fn is_searching(&self) -> bool {
        matches!(self.state, MembershipState::Searching(_))
    }

    /// The members that may be dead: whether they are will be known soon.
    pub(crate) fn suspects(&self) -> BTreeSet<Peer> {
        match &self.state {
            MembershipState::In(detector, _) => detector.suspects(),
            _ => BTreeSet::new(),
        }
    }

    /// The time awake at which the next timeout is due.
    fn due(&self) -> Option<Duration> {
        match &self.state {
            MembershipState::Searching(search) => Some(search.next_timeout()),
            MembershipState::In(detector, watch) => {
                let others = [detector.next_timeout(), self.lost.next_timeout()];
                (others.into_iter().flatten())
                    .chain([watch.next_timeout()])
                    .chain(self.gives_way.map(|(at, ..)| at))
                    .min()
            }
            MembershipState::Fixed | MembershipState::Gone => None,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let due = self.due().map(|due| due + self.slept);
        self.begins.into_iter().chain(due).min()
    }

    /// How long this node has been awake; what it slept through just now is not counted.
    fn awake(&mut self, now: Duration) -> Duration {
        // A paused process finds all its timeouts run out, and the answers unread: without this, it
        // would declare its peers dead for its own pause.
        if let Some(late) = self.due().and_then(|due| now.checked_sub(due + self.slept))
            && late > SLEPT
        {
            ran_out(Expiry::Slept);
            self.slept += late;
        }
        now.saturating_sub(self.slept)
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>, root: &mut Roots) {
        let now = self.awake(cx.now);
        // Only once, and before anything else is told of members.
        if self.begins.take().is_some() {
            self.pending.push_back(PendingChange::Joined);
        }
        match &mut self.state {
            // A founder gives itself the first stamp, and is master of the first term.
            MembershipState::Searching(search) => {
                let linked = self.links.keys().copied();
                if search.handle_timeout(cx, now, linked) == SearchStep::Found {
                    let founder = Identity {
                        stamp: 0,
                        ..cx.view.me().clone()
                    };
                    root.founded(cx, &founder);
                    let side = root.side(cx.view);
                    self.come_in(cx, now, founder, Vec::new(), side);
                }
            }
            MembershipState::In(detector, watch) => {
                detector.handle_timeout(now);
                for (peer, ending) in watch.handle_timeout(cx, now, detector) {
                    // A peer that left the view meanwhile needs no second end.
                    if let Some(identity) = shared(cx.view, peer) {
                        detector.end(now, identity, ending);
                    }
                }
                let mine = root.side(cx.view);
                let over = self.links.keys().filter(|peer| detector.is_over(**peer));
                self.lost.handle_timeout(cx, now, mine, over.copied());
                if let Some((_, side, to)) = self.gives_way.take_if(|(at, ..)| *at <= now)
                    && gives_way(cx, &mine, &side)
                {
                    // A node that is about to leave goes: its legacy is not to be on its way between two pools.
                    match cx.view.is_draining(cx.view.me().peer) {
                        true => self.is_left_behind = true,
                        false => self.pending.push_back(PendingChange::Over(side, to)),
                    }
                }
                self.absorb(cx, now);
            }
            MembershipState::Fixed | MembershipState::Gone => {}
        }
    }

    /// From now on this node is one of the pool, beside those members.
    fn come_in(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        me: Identity,
        members: Vec<Identity>,
        side: Side,
    ) {
        cx.view.set_me(me.clone());
        let mut detector = Detector::new(Arc::new(me.clone()), cx.config, cx.rng);
        // A pool may remember an earlier life of this node: the new detector must not argue with
        // itself.
        let members = members
            .into_iter()
            .filter(|member| member.peer.id != me.peer.id);
        detector.insert_known(now, members.map(Arc::new));
        // Some of the lives that this node has left behind may be at this side.
        let mut over = std::mem::take(&mut self.over);
        over.retain(|life| !detector.is_active(life.peer));
        detector.insert_over(now, over);
        for peer in self.links.keys() {
            // The others met this node without a stamp, and do not count it as a member yet. Nodes that connected to this one
            // while it searched may be in, and missing in the list: they say so.
            say_here(cx, *peer, side, true);
        }
        let watch = Watch::new(cx.config, now, cx.rng);
        self.state = MembershipState::In(Box::new(detector), watch);
        self.pending.push_back(PendingChange::Joined);
        self.absorb(cx, now);
    }

    /// Takes over what the detector found out, and what it wants to say.
    fn absorb(&mut self, cx: &mut Context<'_>, now: Duration) {
        let MembershipState::In(detector, watch) = &mut self.state else {
            return;
        };
        let mut reborn = false;
        let mut ended = false;
        for news in detector.take_news() {
            match news {
                DetectorNews::Up(identity) => self.pending.push_back(PendingChange::In(identity)),
                DetectorNews::Down(life) => {
                    ended = true;
                    let why = match life.ending {
                        PresumedEnd::Unknown => Absence::Silent,
                        PresumedEnd::Gone => Absence::Gone,
                        PresumedEnd::OnPurpose => Absence::Left,
                    };
                    self.pending.push_back(PendingChange::Out(life.peer(), why));
                }
                DetectorNews::Renamed(old, new) => {
                    // The same life with a better known end is no change of the view.
                    if old.peer() != new.peer() {
                        // A newer generation implies the end of the older one. If the newer is dead
                        // as well, the node is gone.
                        let lives = detector.is_active(new.peer());
                        let why = if lives {
                            Absence::Reborn
                        } else {
                            Absence::Silent
                        };
                        self.pending.push_back(PendingChange::Out(old.peer(), why));
                        // Out first, in after: what the old life had is put back before the new one
                        // is spoken to.
                        if lives {
                            self.pending.push_back(PendingChange::In(new.identity));
                        }
                    }
                }
                DetectorNews::Reborn(identity) => {
                    reborn = true;
                    self.pending.push_back(PendingChange::Reborn(identity));
                }
                DetectorNews::Silent(peer) => {
                    // Foca suspects after a lost packet too. A word over a stream, which is not
                    // lost, clears that up.
                    if cx.view.is_alive(peer) {
                        watch.doubt(cx, peer);
                    }
                }
            }
        }
        // Passed on at once rather than with the next round: a death must be known everywhere
        // within seconds, and a claim or a theft may wait for it.
        if ended {
            detector.spread(now);
        }
        let packets = detector.take_packets();
        // The packets speak in the name of the new life. Sent before the old life has been
        // ended here, they would reach peers under a name that this node does not act by yet.
        if reborn {
            self.pending.push_back(PendingChange::Packets(packets));
        } else {
            send(cx, packets);
        }
    }

    /// Makes the next change in the view. The changes are made one by one, so that the other conversations
    /// deal with each before the next one shows.
    pub(crate) fn poll_change(&mut self, cx: &mut Context<'_>) -> Option<MemberChange> {
        loop {
            match self.pending.pop_front()? {
                PendingChange::Joined => return Some(MemberChange::Joined),
                PendingChange::Packets(packets) => send(cx, packets),
                PendingChange::Reborn(identity) => {
                    self.end_links(cx);
                    cx.view.set_me(Identity::clone(&identity));
                    let me = identity.peer;
                    let others = cx.view.members().map(|member| member.peer);
                    for peer in others.filter(|peer| *peer != me) {
                        // Before all other changes: nothing may be said to a peer while the books
                        // hold jobs of the old life with it.
                        self.pending.push_front(PendingChange::Anew(peer));
                    }
                    return Some(MemberChange::Joined);
                }
                PendingChange::Anew(peer) => return Some(MemberChange::Anew(peer)),
                PendingChange::Over(side, to) => {
                    if let Some(mates) = self.come_over(cx, side, to) {
                        return Some(MemberChange::Over(mates));
                    }
                }
                PendingChange::In(identity) => {
                    let peer = identity.peer;
                    // Gossip and meetings tell of one node several times; and of this node itself.
                    if cx.view.is_alive(peer) || peer.id == cx.view.me().peer.id {
                        continue;
                    }
                    let joined = Notice::Joined(Identity::clone(&identity));
                    cx.actions.push_back(Action::Tell(joined));
                    cx.view.insert(identity);
                    self.asked.remove(&peer);
                    // Found again: there is nobody to be looked for.
                    self.lost.found(peer.id);
                    // The welcome told of its drain before the node itself was in the view.
                    if self.draining.remove(&peer) {
                        cx.view.set_draining(peer);
                    }
                    self.resize(cx);
                    return Some(MemberChange::In(peer));
                }
                PendingChange::Out(peer, why) => {
                    if peer.id == cx.view.me().peer.id {
                        continue;
                    }
                    // The end was told before, perhaps with another reason: it is dealt with once.
                    let Some(identity) = cx.view.remove(peer) else {
                        continue;
                    };
                    let who = Identity::clone(&identity);
                    cx.actions.push_back(Action::Tell(match why {
                        Absence::Left => Notice::Left(who),
                        Absence::Gone | Absence::Silent | Absence::Reborn => Notice::Dead(who),
                    }));
                    // A word that still comes over it would be one from the dead.
                    cx.actions.push_back(Action::Disconnect(peer));
                    self.links.remove(&peer);
                    if let MembershipState::In(detector, watch) = &mut self.state {
                        detector.forget(peer);
                        watch.forget(peer);
                    }
                    let now = cx.now.saturating_sub(self.slept);
                    match why {
                        // Only silence may be a partition, or the word of a firewall between two sites. Of a
                        // goodbye, or of a near machine that answers for its dead process, it is certain that nobody is
                        // there.
                        Absence::Silent => self.lost.add(cx, now, &identity),
                        Absence::Gone if identity.site != cx.view.me().site => {
                            self.lost.add(cx, now, &identity);
                        }
                        Absence::Gone | Absence::Left => self.lost.found(peer.id),
                        Absence::Reborn => {}
                    }
                    self.resize(cx);
                    return Some(MemberChange::Out(identity, why));
                }
            }
        }
    }

    /// Ends all connections, and those that are being made: they belong to a life, and what is on its way to them was said by
    /// the life before.
    fn end_links(&mut self, cx: &mut Context<'_>) {
        self.asked.clear();
        self.links.clear();
        let members = cx.view.members().map(|member| member.peer);
        let peers: BTreeSet<Peer> = cx.links.end_all().chain(members).collect();
        let ends = peers.into_iter().map(Action::Disconnect);
        cx.actions.extend(ends);
    }

    fn resize(&mut self, cx: &mut Context<'_>) {
        // The time of suspicion grows with the pool, as news take longer to reach everybody.
        if let MembershipState::In(detector, _) = &mut self.state {
            detector.resize(cx.config, cx.view.len());
        }
    }

    /// A message of the peer came, whatever it says.
    pub(crate) fn heard(&mut self, cx: &Context<'_>, peer: Peer) {
        let now = cx.now.saturating_sub(self.slept);
        if let MembershipState::In(detector, watch) = &mut self.state {
            detector.heard(now, peer);
            watch.heard(peer);
        }
    }

    /// Begins to come over to the side of the node with that address: first the own side is told.
    fn give_way(&mut self, cx: &mut Context<'_>, now: Duration, side: Side, to: SocketAddr) {
        if cx.view.is_draining(cx.view.me().peer) || !self.comes_over_at(cx, now, side, to) {
            return;
        }
        let me = cx.view.me().peer;
        for member in cx.view.members().filter(|member| member.peer != me) {
            let told = Action::Send(member.peer, Message::GiveWay { side, to });
            cx.actions.push_back(told);
        }
    }

    /// Notes when this node comes over, if its side still loses then; false if it was to come over before. A node that misses nobody has hardly been
    /// cut off: the word of the master of the day is still on its way there. (Or it was stopped, and may wait.)
    fn comes_over_at(
        &mut self,
        cx: &Context<'_>,
        now: Duration,
        side: Side,
        to: SocketAddr,
    ) -> bool {
        let wait = match self.lost.is_empty() {
            true => cx.config.partition_wait,
            false => GIVE_WAY,
        };
        let is_new = self.gives_way.is_none_or(|(at, ..)| now + wait < at);
        if is_new {
            self.gives_way = Some((now + wait, side, to));
        }
        is_new
    }

    /// A member says that this side comes over.
    pub(crate) fn told_to_give_way(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        side: Side,
        to: SocketAddr,
        root: &Roots,
    ) {
        let now = self.awake(cx.now);
        let is_ours = cx.view.is_alive(from);
        // The sender may not have heard yet that this side has a master by now.
        let loses = gives_way(cx, &root.side(cx.view), &side);
        if matches!(self.state, MembershipState::In(..)) && is_ours && loses {
            self.comes_over_at(cx, now, side, to);
        }
    }

    /// Does this node come over to another side of a cut in a moment?
    pub(crate) fn is_to_come_over(&self) -> bool {
        self.gives_way.is_some()
    }

    /// Leaves this side of a cut, and looks for the way in at the other. Returns the members of this side, whose lives are over for this node, as is
    /// its own; `None` if the node is not in any more.
    fn come_over(
        &mut self,
        cx: &mut Context<'_>,
        side: Side,
        to: SocketAddr,
    ) -> Option<Vec<Arc<Identity>>> {
        let now = self.awake(cx.now);
        let MembershipState::In(detector, _) = &mut self.state else {
            return None;
        };
        if !cx.config.obeys(Rule::ComeIn) {
            detector.begin_anew(now);
            self.absorb(cx, now);
            return None;
        }
        let mut me = cx.view.me().clone();
        let old = me.peer;
        me.peer.generation = me.peer.generation.checked_add(1)?;
        me.stamp = Identity::NOT_YET;
        let mates: Vec<Arc<Identity>> = (cx.view.shared())
            .filter(|member| member.peer != old)
            .cloned()
            .collect();
        for mate in &mates {
            cx.view.remove(mate.peer);
        }
        self.end_links(cx);
        // If the node is not let in, it looks for its mates, too.
        let left = mates.iter().map(|mate| Identity::clone(mate)).collect();
        self.lost.learn(cx, now, left);
        let others = self.lost.all().map(|lost| lost.addr);
        let others: BTreeSet<SocketAddr> = others.filter(|addr| *addr != to).collect();
        let join = std::iter::once(to).chain(others).collect();
        let founds = now + cx.config.partition_wait;
        let search = Search::new(join, false, now).coming_over(side, founds);
        self.state = MembershipState::Searching(search);
        self.over.clone_from(&mates);
        cx.view.set_me(me);
        Some(mates)
    }

    /// Does this node, which has left its side of a cut, found a pool if nobody lets it in?
    pub(crate) fn founds_later(&self) -> bool {
        matches!(&self.state, MembershipState::Searching(search) if search.founds_later())
    }

    /// The store says that the `main` of the pool goes on for that time at least.
    pub(crate) fn main_goes_on(&mut self, now: Duration, time: Duration) {
        let until = self.awake(now) + time;
        if let MembershipState::Searching(search) = &mut self.state {
            search.main_goes_on(until);
        }
    }

    /// A node of another side says which that is: one of the two comes over.
    fn met_side(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        who: &Identity,
        mine: Side,
        theirs: Side,
    ) {
        if gives_way(cx, &mine, &theirs) {
            self.give_way(cx, now, theirs, who.addr);
        } else if gives_way(cx, &theirs, &mine) {
            // The other may not know that this node is of another side.
            tell_dead(cx, who.peer, mine);
        }
    }

    pub(crate) fn connected(
        &mut self,
        cx: &mut Context<'_>,
        identity: &Identity,
        epoch: u64,
        root: &Roots,
    ) {
        let now = self.awake(cx.now);
        let peer = identity.peer;
        let link = self.links.entry(peer);
        let link = link.or_insert_with(|| (epoch, identity.clone()));
        // Two connections may stand for a moment, when both sides dialled: the newer one is what
        // counts.
        link.0 = link.0.max(epoch);
        match &mut self.state {
            MembershipState::Searching(search) => search.connected(cx, peer),
            MembershipState::In(..) => self.meet(cx, now, identity, root),
            MembershipState::Fixed | MembershipState::Gone => {}
        }
    }

    /// A node's side of a connection says under which identity it lives.
    fn meet(&mut self, cx: &mut Context<'_>, now: Duration, identity: &Identity, root: &Roots) {
        let MembershipState::In(detector, watch) = &mut self.state else {
            return;
        };
        let peer = identity.peer;
        watch.heard(peer);
        self.lost.taken(identity.addr, peer.id);
        let side = root.side(cx.view);
        // The node was declared dead here, and may never hear of it by gossip.
        if detector.is_over(peer) {
            self.lost.met(cx, now, peer.id);
            tell_dead(cx, peer, side);
        } else if identity.stamp != Identity::NOT_YET && !detector.is_active(peer) {
            // A node with a stamp is in: only others may know it, or it is of the other side of a cut. A node without one becomes known by its
            // welcome.
            say_here(cx, peer, side, true);
            self.asked.insert(peer);
        }
        self.absorb(cx, now);
    }

    pub(crate) fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        let now = self.awake(cx.now);
        // The loss of an older connection comes late: a newer one stands.
        if self
            .links
            .get(&peer)
            .is_some_and(|(latest, _)| *latest > epoch)
        {
            return;
        }
        self.links.remove(&peer);
        self.asked.remove(&peer);
        match &mut self.state {
            MembershipState::Searching(search) => search.disconnected(now, peer),
            // A lost connection is evidence and no proof: the peer's machine is asked what it
            // knows.
            MembershipState::In(..) if cx.view.is_alive(peer) => watch::probe(cx, peer),
            _ => {}
        }
    }

    pub(crate) fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        addr: SocketAddr,
        peer: Option<Peer>,
    ) {
        let now = self.awake(cx.now);
        match (&mut self.state, peer) {
            (MembershipState::Searching(search), peer) => search.unreachable(now, addr, peer),
            // The network may be the reason: the peer is suspected, and can refute that by any way.
            (MembershipState::In(detector, watch), Some(peer)) if cx.view.is_alive(peer) => {
                watch.unreachable(cx, now, peer, detector);
                self.absorb(cx, now);
            }
            _ => {}
        }
    }

    /// Declares a peer dead that may live, but that this node reaches in no way.
    pub(crate) fn cut_off(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let now = self.awake(cx.now);
        if let MembershipState::In(detector, _) = &mut self.state
            && let Some(identity) = shared(cx.view, peer)
        {
            // Alive means reachable: jobs that are at such a peer would be waited for without end.
            // The user is told, since this is a fault of the network, which somebody can repair.
            let text = format!(
                "{} at {} can be reached neither directly nor through other nodes: it is declared dead, and its jobs are run \
                 again. Check firewalls, and that the nodes reach each other at the addresses that they advertise \
                 (SATIN_ADVERTISE)",
                identity.name, identity.addr
            );
            cx.actions.push_back(Action::Tell(Notice::Warning(text)));
            detector.end(now, identity, PresumedEnd::Unknown);
            self.absorb(cx, now);
        }
    }

    /// The peer's machine says that nobody listens at its address any more.
    pub(crate) fn gone(&mut self, cx: &mut Context<'_>, peer: Peer) {
        let now = self.awake(cx.now);
        if let MembershipState::In(_, watch) = &mut self.state
            && cx.view.is_alive(peer)
        {
            watch.gone(cx, now, peer);
        }
    }

    pub(crate) fn candidates(
        &mut self,
        cx: &mut Context<'_>,
        join: Vec<SocketAddr>,
        may_found: bool,
    ) {
        let now = self.awake(cx.now);
        if let MembershipState::Searching(search) = &mut self.state {
            search.candidates(now, join, may_found);
        }
    }

    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) {
        let me = cx.view.me().peer;
        let linked = |peer: &Peer| self.links.contains_key(peer);
        let all = cx.view.members().map(|member| member.peer);
        let others = all.filter(|peer| *peer != me);
        let few = cx.view.len() <= GOODBYES;
        let members = others.filter(|peer| few || linked(peer));
        // Nodes that let this one in while it was about to go are linked, and not in the view yet.
        let told: BTreeSet<Peer> = members.chain(self.links.keys().copied()).collect();
        for peer in told {
            cx.actions.push_back(Action::Send(peer, Message::Goodbye));
        }
        self.state = MembershipState::Gone;
        cx.actions.push_back(Action::End(NodeEnd::Left));
    }

    pub(crate) fn gossip(&mut self, cx: &mut Context<'_>, from: Peer, packet: &[u8], root: &Roots) {
        let now = self.awake(cx.now);
        if let MembershipState::In(detector, _) = &mut self.state {
            // Foca would not hear it either, and would say so without the side: see `declared_dead`.
            if detector.is_over(from) {
                return tell_dead(cx, from, root.side(cx.view));
            }
            // A node that came in at the other side of a cut may say that this one is dead: first it says of which side it is.
            if !detector.is_known(from.id) {
                return;
            }
            detector.receive(now, packet);
            self.absorb(cx, now);
        }
    }

    /// Has the side of this node, which drains, come over to another?
    pub(crate) fn is_left_behind(&self) -> bool {
        self.is_left_behind
    }

    /// Will it be known soon whether that node is of this side? What it says until then is to be heard afterwards, or a job that it sends would be lost.
    pub(crate) fn awaits(&self, peer: Peer) -> bool {
        self.asked.contains(&peer)
    }

    /// Does a word about the master count that comes from that node? If it may be of another side, it is told or asked which that is.
    pub(crate) fn hears(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        term: u32,
        root: &Roots,
    ) -> bool {
        let MembershipState::In(detector, _) = &self.state else {
            return true;
        };
        if detector.is_active(from) {
            return true;
        }
        let side = root.side(cx.view);
        if detector.is_over(from) {
            tell_dead(cx, from, side);
        } else if !self.asked.contains(&from) {
            say_here(cx, from, side, true);
            // A node that was stopped may follow a former master.
            if term < root.term() {
                root.tell_master(cx, from);
            }
        }
        false
    }

    pub(crate) fn join(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        mut identity: Identity,
        toward: Option<Side>,
        root: &mut Roots,
        bounds: &Bounds,
    ) {
        let now = self.awake(cx.now);
        let mine = root.side(cx.view);
        // The sender comes over to another side, and so will this node. Or the sender is in elsewhere by now, and its word has been on its way for
        // long.
        let is_in_vain =
            toward.is_some_and(|toward| gives_way(cx, &mine, &toward)) || self.awaits(from);
        let answer = match &mut self.state {
            MembershipState::Gone | MembershipState::Fixed => return,
            MembershipState::In(..) if is_in_vain => return,
            // "I am not in myself": the identity has no stamp.
            MembershipState::Searching(_) => Message::Ask(cx.view.me().clone()),
            MembershipState::In(detector, _) if detector.is_over(from) => Message::DeclaredDead {
                peer: from,
                side: mine,
            },
            MembershipState::In(..) => match (root.ended_with(), root.master(cx.view).cloned()) {
                (Some(ended), _) => ended,
                // The joiner was let in, but its welcome was lost; and whoever let it in has
                // named it master, and is gone.
                (None, Some(master)) if master.peer == from && cx.view.is_alive(from) => {
                    self.welcome_of(cx, root, bounds, &master, &master)
                }
                (None, Some(master)) if master.peer == cx.view.me().peer => {
                    identity.peer = from;
                    // A joiner asks again when its welcome is late: it gets the same stamp, as the
                    // order of election rests on it.
                    identity.stamp = match cx.view.get(from) {
                        Some(known) => known.stamp,
                        None => root.issue_stamp(cx.view),
                    };
                    let welcome = self.welcome_of(cx, root, bounds, &master, &identity);
                    let MembershipState::In(detector, _) = &mut self.state else {
                        return;
                    };
                    // Told at once, to a few which tell the others: the joiner will steal as soon as it is in,
                    // and messages of strangers are dropped.
                    detector.insert(now, [Arc::new(identity)]);
                    detector.spread(now);
                    welcome
                }
                (None, Some(master)) if cx.view.is_alive(master.peer) => Message::Ask(master),
                // The joiner will ask again, and by then a master will have been elected.
                (None, _) => return,
            },
        };
        cx.actions.push_back(Action::Send(from, answer));
        self.absorb(cx, now);
    }

    /// Builds the message that lets `who` in: first the master, then all others.
    fn welcome_of(
        &self,
        cx: &Context<'_>,
        root: &Roots,
        bounds: &Bounds,
        master: &Identity,
        who: &Identity,
    ) -> Message {
        // Neither the joiner, perhaps in an earlier life, nor the master a second time.
        let others = cx.view.members().filter(|member| {
            let id = member.peer.id;
            id != who.peer.id && id != master.peer.id
        });
        Message::Welcome {
            stamp: who.stamp,
            term: root.term(),
            branches: root.branches(),
            founder: root.founder(cx.view),
            members: std::iter::once(master).chain(others).cloned().collect(),
            draining: cx.view.draining().collect(),
            offers: bounds.all(),
            lost: self.lost.all().cloned().collect(),
        }
    }

    pub(crate) fn ask(&mut self, cx: &mut Context<'_>, from: Peer, master: &Identity) {
        let now = self.awake(cx.now);
        if let MembershipState::Searching(search) = &mut self.state
            // An old word may name an earlier life of this very node: it cannot let itself in.
            && master.peer.id != cx.view.me().peer.id
        {
            search.told(cx, now, from, master);
        }
    }

    pub(crate) fn welcome(
        &mut self,
        cx: &mut Context<'_>,
        stamp: u64,
        members: Vec<Identity>,
        draining: Vec<Peer>,
        mut lost: Vec<Identity>,
        root: &Roots,
    ) {
        self.draining = draining.into_iter().collect();
        let now = self.awake(cx.now);
        let me = Identity {
            stamp,
            ..cx.view.me().clone()
        };
        let known: BTreeSet<_> = members.iter().map(|member| member.peer.id).collect();
        // Members are not looked for, and this node least of all.
        lost.retain(|who| who.peer.id != me.peer.id && !known.contains(&who.peer.id));
        // For this side their lives are over.
        (self.over).extend(lost.iter().cloned().map(Arc::new));
        self.come_in(cx, now, me, members, root.side(cx.view));
        self.lost.learn(cx, now, lost);
    }

    /// Tells others another address of this node from now on. Only a node that is alone may change it: no
    /// other knows the old one then. False if it is not alone.
    pub(crate) fn readdressed(&mut self, cx: &mut Context<'_>, addr: SocketAddr) -> bool {
        let is_alone = cx.view.len() == 1;
        let MembershipState::In(detector, _) = &mut self.state else {
            return false;
        };
        if is_alone {
            let me = Identity {
                addr,
                ..cx.view.me().clone()
            };
            cx.view.set_me(me.clone());
            // The detector knows no other node yet, so a new one knows as much.
            **detector = Detector::new(Arc::new(me), cx.config, cx.rng);
        }
        is_alone
    }

    /// A node says under which identity it is in, and at which side; perhaps it asks the same.
    pub(crate) fn here(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        identity: Identity,
        side: Side,
        asks: bool,
        root: &Roots,
    ) {
        let now = self.awake(cx.now);
        // No node may speak for another, or for another life of its own.
        if identity.peer != from {
            return;
        }
        if let Some((_, known)) = self.links.get_mut(&from) {
            *known = identity.clone();
        }
        self.asked.remove(&from);
        let (detector, watch) = match &mut self.state {
            MembershipState::In(detector, watch) => (detector, watch),
            MembershipState::Searching(search) => return search.connected(cx, from),
            MembershipState::Fixed | MembershipState::Gone => return,
        };
        watch.heard(from);
        let mine = root.side(cx.view);
        if detector.is_over(from) {
            tell_dead(cx, from, mine);
        } else if detector.is_active(from) || is_mate(cx, detector, root, from, &side) {
            if !detector.is_active(from) {
                detector.insert(now, [Arc::new(identity)]);
                detector.spread(now);
            }
            if asks {
                say_here(cx, from, mine, false);
            }
        // A newcomer that knows of the end of its master waits until this node knows of it.
        } else if !side.is_same(&mine) || side.has_master {
            self.met_side(cx, now, &identity, mine, side);
        }
        self.absorb(cx, now);
    }

    pub(crate) fn goodbye(&mut self, cx: &mut Context<'_>, from: Peer) {
        let now = self.awake(cx.now);
        match &mut self.state {
            MembershipState::In(detector, _) => {
                if let Some(identity) = shared(cx.view, from) {
                    // Spread as an end on purpose: a node that left is not taken for dead, and no
                    // job is blamed.
                    detector.end(now, identity, PresumedEnd::OnPurpose);
                }
                self.absorb(cx, now);
            }
            MembershipState::Fixed => self
                .pending
                .push_back(PendingChange::Out(from, Absence::Left)),
            MembershipState::Searching(_) | MembershipState::Gone => {}
        }
    }

    /// A member misses that node. If we see it, it is to know that it was declared dead there: between the two there may be no
    /// way, and no gossip revives a life that is over. If we have never heard of it, we look for it too: perhaps only we can
    /// reach it.
    pub(crate) fn missed(&mut self, cx: &mut Context<'_>, who: Identity, side: Side, root: &Roots) {
        let now = self.awake(cx.now);
        let MembershipState::In(detector, _) = &mut self.state else {
            return;
        };
        if cx.view.is_alive(who.peer) {
            let mine = root.side(cx.view);
            // A side with a master of its own, which comes over, is no reason for a node of the side that stays to begin anew.
            if !(side.has_master && gives_way(cx, &side, &mine)) {
                tell_dead(cx, who.peer, mine);
            }
        } else if !detector.is_known(who.peer.id) && who.peer.id != cx.view.me().peer.id {
            // Of a node that is known here, dead, the end is certain, or it is looked for already.
            detector.insert_over(now, [Arc::new(who.clone())]);
            self.lost.hear(cx, now, who);
        }
    }

    /// Does a member's word about the master of that term count? If the master is dead in this view, the member hears so: see
    /// [`missed`](Membership::missed). A newcomer may have been let in at both sides of a cut, and be in at the one that comes over.
    pub(crate) fn counts(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        (branches, term): (u32, u32),
        master: &Identity,
        root: &Roots,
    ) -> bool {
        let MembershipState::In(detector, _) = &self.state else {
            return true;
        };
        if !detector.is_over(master.peer) {
            return true;
        }
        let (who, side) = (master.clone(), root.side(cx.view));
        let theirs = Side {
            branches,
            term,
            master: Some((who.stamp, who.peer.id)),
            has_master: true,
            members: 1,
        };
        let missed = Message::Missed { who, side };
        cx.actions.push_back(Action::Send(from, missed));
        // A master of an earlier term is told of the one of the day.
        term <= side.term || !gives_way(cx, &theirs, &side)
    }

    /// The nodes that this node misses.
    pub(crate) fn misses(&self) -> impl Iterator<Item = Peer> {
        self.lost.all().map(|who| who.peer)
    }

    /// A node says that it has declared this one dead.
    pub(crate) fn declared_dead(
        &mut self,
        cx: &mut Context<'_>,
        from: Peer,
        peer: Peer,
        side: Side,
        root: &Roots,
    ) {
        let now = self.awake(cx.now);
        // A word about an earlier life: this node has begun anew since.
        if peer != cx.view.me().peer {
            return;
        }
        self.asked.remove(&from);
        match &mut self.state {
            MembershipState::In(detector, _) => {
                let mine = root.side(cx.view);
                // The two have lost each other, and not only each other: this is the end of a cut, and one side comes over.
                let is_pair = side.is_same(&mine) && side.has_master && mine.has_master;
                if !cx.view.is_alive(from) && !is_pair && cx.config.obeys(Rule::Sides) {
                    if let Some((_, who)) = self.links.get(&from) {
                        let who = who.clone();
                        self.met_side(cx, now, &who, mine, side);
                    }
                } else if let Some(sender) = shared(cx.view, from)
                    // A sender that sees the master which this node follows is right.
                    && !(side.has_master && side.is_same(&mine))
                    && (gives_way(cx, &side, &mine) && !self.lost.is_empty()
                        || 2 * side.members as usize <= cx.view.len() + self.lost.all().count())
                    && cx.config.obeys(Rule::Larger)
                {
                    // The sender is of the other side of a cut, of which this node has not heard all yet; or cut off alone.
                    detector.end(now, sender, PresumedEnd::Unknown);
                    tell_dead(cx, from, mine);
                } else if gives_way(cx, &mine, &side)
                    && !self.lost.is_empty()
                    && let Some((_, who)) = self.links.get(&from)
                {
                    // The detector of this node has the lives of others of that side for over.
                    let to = who.addr;
                    self.give_way(cx, now, side, to);
                } else {
                    detector.begin_anew(now);
                }
                self.absorb(cx, now);
            }
            MembershipState::Searching(search) => {
                let mut me = cx.view.me().clone();
                // Under the old generation every member would answer the same again: it could never
                // come in.
                me.peer.generation += 1;
                cx.view.set_me(me);
                search.begin_life(now);
                self.end_links(cx);
            }
            MembershipState::Fixed | MembershipState::Gone => {}
        }
    }

    pub(crate) fn ping(&mut self, cx: &mut Context<'_>, from: Peer, number: u64, root: &Roots) {
        let answer = match &self.state {
            // A node that is dead here would believe itself alive, if it were answered: it must
            // hear of its end.
            MembershipState::In(detector, _) if detector.is_over(from) => {
                let side = root.side(cx.view);
                Message::DeclaredDead { peer: from, side }
            }
            MembershipState::Gone => return,
            _ => Message::Pong(number),
        };
        cx.actions.push_back(Action::Send(from, answer));
    }
}

/// Is a node that says so of the side of this one, though no word of it has come here yet? A node that has lost the master of this side is of another. But
/// a master that was only stopped, or that this node has not seen yet, is not lost. A newcomer whose master left before it named the newcomer
/// is a mate once this node knows of that master's end.
fn is_mate(cx: &Context<'_>, detector: &Detector, root: &Roots, from: Peer, theirs: &Side) -> bool {
    let mine = root.side(cx.view);
    let is_master_here = || {
        root.master(cx.view)
            .is_some_and(|master| master.peer.id == from.id || !detector.is_over(master.peer))
    };
    theirs.is_same(&mine)
        && match theirs.has_master {
            true => is_master_here(),
            false => !mine.has_master,
        }
}

/// Of two sides that meet, does this one come over?
fn gives_way(cx: &Context<'_>, mine: &Side, theirs: &Side) -> bool {
    match cx.config.obeys(Rule::Order) {
        true => mine.gives_way_to(theirs),
        false => theirs.has_master,
    }
}

/// Tells a node that this one, which is at that side, has declared it dead.
fn tell_dead(cx: &mut Context<'_>, peer: Peer, side: Side) {
    let dead = Message::DeclaredDead { peer, side };
    cx.actions.push_back(Action::Send(peer, dead));
}

/// Tells a node that this one is in, at that side, and perhaps asks the same.
fn say_here(cx: &mut Context<'_>, to: Peer, side: Side, asks: bool) {
    let who = cx.view.me().clone();
    let here = Message::Here { who, side, asks };
    cx.actions.push_back(Action::Send(to, here));
}

fn send(cx: &mut Context<'_>, packets: Vec<(Peer, Vec<u8>)>) {
    let gossip = |(peer, packet)| Action::Send(peer, Message::Gossip(packet));
    cx.actions.extend(packets.into_iter().map(gossip));
}

fn shared(view: &View, peer: Peer) -> Option<Arc<Identity>> {
    view.get(peer).cloned().map(Arc::new)
}
