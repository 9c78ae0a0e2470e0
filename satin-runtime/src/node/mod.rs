//! The protocol between nodes, sans I/O: no socket, no clock, no thread, no randomness of its own.
//!
//! A [`Node`] is told what happened ([`Event`]) and says what is to be done ([`Action`]). `net` drives it with QUIC and
//! real workers, `satin-sim` with an event queue and imaginary ones, a test by hand. Given the same seed and the same
//! events it does the same again.
//!
//! A folder per conversation: [`steal`] keeps everybody busy, [`membership`] knows who is there, [`root`] knows whose
//! `main` runs and when the pool ends, [`shared`] brings values and bounds to where jobs need them.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use rand::{SeedableRng, rngs::SmallRng};

use crate::job::{Answer, BoundName, Offer, Parcel, RootTag, ValueName};

#[cfg(any(test, feature = "harness"))]
pub mod cluster;
pub mod config;
pub mod identity;
mod links;
pub mod membership;
pub mod message;
pub mod root;
pub mod shared;
pub mod steal;
pub mod view;

#[cfg(test)]
mod tests;

pub use config::{Config, Policy};
pub use identity::{Identity, NodeId, Peer};
pub use message::{Message, Request, Token};
pub use view::View;

/// Names a hosted job between the node and its driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostKey(pub u64);

/// Names a departure of one of our own jobs between the node and its driver: the gate's token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Departure(pub u64);

/// A job that the driver took from the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// One that a worker here had spawned.
    Own(Departure, Parcel),
    /// One that was hosted here and had not been started: it goes on to another node.
    Hosted(HostKey, Parcel),
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    // ---- links
    /// A connection stands, after both sides accepted each other. A second one to the same peer has a higher epoch.
    Connected {
        /// The other side.
        peer: Identity,
        /// Of the connection.
        epoch: u64,
        /// The round trip, as measured so far.
        round_trip: Duration,
    },
    /// A connection is gone: evidence of death, not proof.
    Disconnected {
        /// The other side.
        peer: Peer,
        /// Of the connection.
        epoch: u64,
    },
    /// Nobody answers there, or we were refused.
    Unreachable {
        /// Where.
        addr: SocketAddr,
        /// Who was meant, if known.
        peer: Option<Peer>,
    },
    /// A message came.
    Received {
        /// Its sender.
        from: Peer,
        /// Of the connection it came on.
        epoch: u64,
        /// What it says.
        message: Message,
    },
    /// The links have a new estimate.
    RoundTrip(Peer, Duration),

    // ---- workers
    /// So many workers have nothing to do and no hosted job is waiting for them. Told whenever the number changes.
    Idle(u32),
    /// After an [`Action::Take`] that found too little: there is something now. Told once.
    Public,
    /// What an [`Action::Take`] found, in the order of age; `left` is how many more could have been taken.
    Took {
        /// Of the action.
        request: u64,
        /// Of one parent, if they are several: siblings.
        jobs: Vec<Taken>,
        /// An estimate.
        left: u32,
    },
    /// A hosted job is done.
    Done(HostKey, Answer),
    /// A job of ours that is away is not wanted any more.
    Recalled(Departure),

    // ---- shared
    /// The value is here in full, and is what its name says.
    Stored(ValueName),
    /// What came was not what its name says; it has been dropped.
    Corrupt(ValueName),
    /// A bound has become better here.
    Offered(Offer),

    // ---- main
    /// `main` has called a root job.
    RootStarted(RootTag),
    /// It has its result.
    RootFinished(RootTag),
    /// `main` is over.
    MainEnded(i32),
    /// This node is to go, now.
    Leave,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    // ---- links
    /// Connect to that address; answered by `Connected` or `Unreachable`. Messages for a peer to which no connection
    /// stands wait for it.
    Connect {
        /// Where.
        addr: SocketAddr,
        /// Who is meant, if known.
        peer: Option<Peer>,
    },
    /// Send, over the connection that stands or the next one.
    Send(Peer, Message),
    /// Close the connection, after what was sent has arrived.
    Disconnect(Peer),

    // ---- workers
    /// Take the oldest job that can leave, and up to `most - 1` siblings of it; answered by `Took`, at once.
    Take {
        /// To be given back.
        request: u64,
        /// So many at most.
        most: u32,
    },
    /// Start a hosted job; its values are at hand.
    Start(HostKey, Parcel),
    /// Abort a hosted job, started or not; answered by `Done`, which may say something else than `Aborted`.
    Abort(HostKey),
    /// Bring an answer to a job of ours.
    Deliver(Departure, Answer),
    /// The job comes back undone.
    PutBack(Departure),
    /// Does anybody in the pool look for work? (`satin::hungry`)
    Hungry(bool),

    // ---- shared
    /// Read that piece of a value from the store and send it to a peer as [`Message::Part`], or
    /// [`Message::Unavailable`].
    SendPart {
        /// To whom.
        to: Peer,
        /// Which.
        name: ValueName,
        /// From there.
        offset: u64,
        /// So many bytes at most.
        length: u64,
    },
    /// Keep that piece; once all are there, answered by `Stored` or `Corrupt`.
    Store {
        /// Which.
        name: ValueName,
        /// Where the piece begins.
        offset: u64,
        /// How long the whole is.
        total: u64,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Everything that was kept for this root job can go.
    ForgetRoot(RootTag),
    /// Improve a bound here.
    Improve(Offer),

    // ---- main
    /// We are in, as this; `master` runs `main`.
    Joined {
        /// With its stamp.
        me: Identity,
        /// Perhaps ourselves.
        master: Identity,
    },
    /// Enough nodes are in: root jobs may start.
    StartRoots,
    /// The pool has ended with this code: wind up and leave.
    End(i32),
    /// Something that people and dashboards want to know.
    Tell(Notice),
}

/// What people and dashboards want to know.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A node came in.
    Joined(Identity),
    /// A node left on purpose.
    Left(Identity),
    /// A node died.
    Dead(Identity),
    /// A node became master.
    Master(Identity),
    /// This node cannot join, or its pool is gone; the text says why and what to do.
    Failed(String),
    /// Worth a warning.
    Warning(String),
}

/// How bounds are joined: the node knows their values as bytes only.
pub trait Lattices {
    /// The better of two values of a bound, or `None` if the first is as good as the join.
    fn join(&self, bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>>;
}

/// What every conversation may use.
pub(crate) struct Context<'n> {
    pub(crate) now: Duration,
    pub(crate) config: &'n Config,
    pub(crate) view: &'n mut View,
    pub(crate) rng: &'n mut SmallRng,
    pub(crate) actions: &'n mut VecDeque<Action>,
    pub(crate) links: &'n mut links::Links,
}

/// One node of a pool.
pub struct Node {
    config: Config,
    view: View,
    rng: SmallRng,
    actions: VecDeque<Action>,
    links: links::Links,
    now: Duration,
    membership: membership::Membership,
    root: root::Roots,
    shared: shared::Values,
    bounds: shared::Bounds,
    steal: steal::Steal,
    lattices: Box<dyn Lattices + Send>,
}

impl Node {
    /// A node that is to join a pool, or to found one, as `config` says. It begins at the first
    /// [`handle_timeout`](Node::handle_timeout).
    #[must_use]
    pub fn new(
        config: Config,
        me: Identity,
        lattices: Box<dyn Lattices + Send>,
        seed: u64,
        now: Duration,
    ) -> Node {
        Node::formed(config, View::new(me), lattices, seed, now)
    }

    /// A node of a pool that has been formed beforehand: it is in, as everybody is whom `view` shows. The member with
    /// the smallest stamp is master.
    #[must_use]
    pub fn formed(
        config: Config,
        view: View,
        lattices: Box<dyn Lattices + Send>,
        seed: u64,
        now: Duration,
    ) -> Node {
        let mut rng = SmallRng::seed_from_u64(seed);
        Node {
            membership: membership::Membership::new(&config, &view, &mut rng, now),
            root: root::Roots::new(&view),
            shared: shared::Values::default(),
            bounds: shared::Bounds::default(),
            steal: steal::Steal::new(&config),
            config,
            view,
            rng,
            actions: VecDeque::new(),
            links: links::Links::default(),
            now,
            lattices,
        }
    }

    /// What is to be done next; to be asked until there is nothing. Drivers hand in all events that are there before they
    /// ask: what these bring together is said in one message.
    ///
    /// A [`Action::Send`] to a peer without a connection comes after an [`Action::Connect`].
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            let (mut cx, parts) = self.split(self.now);
            parts.steal.flush(&mut cx);
        }
        loop {
            if let Action::Send(to, _) = self.actions.front()? {
                match self.links.way(*to, &self.view) {
                    links::Way::Open => {}
                    links::Way::Connect(addr) => {
                        let peer = Some(*to);
                        self.actions.push_front(Action::Connect { addr, peer });
                    }
                    links::Way::None => {
                        self.actions.pop_front();
                        continue;
                    }
                }
            }
            let action = self.actions.pop_front();
            action.iter().for_each(|action| self.links.watch(action));
            return action;
        }
    }

    /// When [`handle_timeout`](Node::handle_timeout) is to be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let all = [
            self.membership.next_timeout(),
            self.root.next_timeout(),
            self.shared.next_timeout(),
            self.bounds.next_timeout(),
            self.steal.next_timeout(),
        ];
        all.into_iter().flatten().min()
    }

    /// Who is in.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    fn split(&mut self, now: Duration) -> (Context<'_>, Parts<'_>) {
        self.now = now;
        let context = Context {
            now,
            config: &self.config,
            view: &mut self.view,
            rng: &mut self.rng,
            actions: &mut self.actions,
            links: &mut self.links,
        };
        let parts = Parts {
            membership: &mut self.membership,
            root: &mut self.root,
            shared: &mut self.shared,
            bounds: &mut self.bounds,
            steal: &mut self.steal,
            lattices: &*self.lattices,
        };
        (context, parts)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        let (mut cx, parts) = self.split(now);
        parts.membership.handle_timeout(&mut cx);
        parts.root.handle_timeout(&mut cx);
        parts.shared.handle_timeout(&mut cx);
        parts.bounds.handle_timeout(&mut cx);
        parts.steal.handle_timeout(&mut cx);
        self.settle(now);
    }

    /// Something happened.
    pub fn handle(&mut self, now: Duration, event: Event) {
        let (mut cx, mut parts) = self.split(now);
        let cx = &mut cx;
        match event {
            Event::Connected {
                peer,
                epoch,
                round_trip,
            } => {
                cx.links.connected(peer.peer, epoch);
                parts.steal.connected(cx, peer.peer, epoch, round_trip);
                parts.membership.connected(cx, &peer);
            }
            Event::Disconnected { peer, epoch } => {
                cx.links.disconnected(peer, epoch);
                parts.steal.disconnected(cx, peer, epoch);
                parts.membership.disconnected(cx, peer);
            }
            Event::Unreachable { addr, peer } => {
                if let Some(peer) = peer {
                    cx.links.unreachable(peer);
                    parts.steal.unreachable(cx, peer);
                }
                parts.membership.unreachable(cx, addr, peer);
            }
            Event::RoundTrip(peer, round_trip) => parts.steal.round_trip(cx, peer, round_trip),
            Event::Received {
                from,
                epoch,
                message,
            } => {
                // What is left of a connection that has been replaced is not to be trusted any more: both sides have
                // compared their lists.
                if !cx.links.is_stale(from, epoch) {
                    parts.receive(cx, from, message);
                }
            }
            Event::Idle(workers) => parts.steal.idle(workers),
            Event::Public => parts.steal.public(),
            Event::Took {
                request,
                jobs,
                left,
            } => parts.steal.took(cx, request, jobs, left),
            Event::Done(key, answer) => parts.steal.done(key, answer),
            Event::Recalled(departure) => parts.steal.recalled(departure),
            Event::Stored(name) => {
                for then in parts.shared.stored(cx, name) {
                    parts.steal.go_on(cx, then);
                }
            }
            Event::Corrupt(name) => parts.shared.corrupt(cx, name),
            Event::Offered(offer) => parts.bounds.offered(cx, offer, parts.lattices),
            Event::RootStarted(tag) => parts.root.started(cx, tag),
            Event::RootFinished(tag) => {
                parts.root.finished(cx, tag);
                parts.shared.root_done(cx, tag);
                parts.bounds.root_done(tag);
            }
            Event::MainEnded(code) => parts.root.main_ended(cx, code),
            Event::Leave => {
                parts.steal.leave(cx);
                parts.membership.leave(cx);
            }
        }
        self.settle(now);
    }

    /// What one conversation found out that others must know.
    fn settle(&mut self, now: Duration) {
        while let Some(change) = self.membership.poll_change() {
            let (mut cx, mut parts) = self.split(now);
            let cx = &mut cx;
            match change {
                membership::Change::In(peer) => {
                    parts.steal.joined(cx, peer);
                    parts.root.joined(cx, peer);
                }
                membership::Change::Out(peer) => parts.sever(cx, peer),
            }
        }
    }

    /// Is nothing under way between this node and others?
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steal.is_settled()
    }

    /// A story says that a peer is dead, where no failure detector runs.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn bury(&mut self, now: Duration, peer: Peer) {
        self.view.remove(peer);
        let (mut cx, mut parts) = self.split(now);
        parts.sever(&mut cx, peer);
    }
}

/// The conversations, apart, so that they can be used side by side.
struct Parts<'n> {
    membership: &'n mut membership::Membership,
    root: &'n mut root::Roots,
    shared: &'n mut shared::Values,
    bounds: &'n mut shared::Bounds,
    steal: &'n mut steal::Steal,
    lattices: &'n dyn Lattices,
}

impl Parts<'_> {
    /// A peer's life is over; the view knows already.
    fn sever(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for then in self.shared.sever(cx, peer) {
            self.steal.go_on(cx, then);
        }
        self.bounds.sever(peer);
        self.steal.sever(cx, peer);
        self.root.sever(cx, peer);
    }

    fn receive(&mut self, cx: &mut Context<'_>, from: Peer, message: Message) {
        use Message as M;
        match message {
            M::Steal {
                request,
                most,
                lifeline,
            } => self.steal.asked(cx, from, request, most, lifeline),
            M::Jobs {
                request,
                jobs,
                left,
            } => {
                for arrival in self.steal.arrived(cx, from, (request, left), jobs) {
                    // Its values first; they may be here already.
                    if let Some(then) = self.shared.bring(cx, from, arrival) {
                        self.steal.go_on(cx, then);
                    }
                }
            }
            M::Cut(request) => self.steal.cut(from, request),
            M::Answers(answers) => {
                for arrival in self.steal.answered(cx, from, answers) {
                    if let Some(then) = self.shared.bring(cx, from, arrival) {
                        self.steal.go_on(cx, then);
                    }
                }
            }
            M::Acknowledge(tokens) => self.steal.acknowledged(from, &tokens),
            M::Recall(tokens) => self.steal.recall(cx, from, &tokens),
            M::Lists {
                outstanding,
                hosted,
            } => self.steal.compare(cx, from, (outstanding, hosted)),
            M::Gossip(packet) => self.membership.gossip(cx, from, &packet),
            M::Join(identity) => self
                .membership
                .join(cx, from, identity, self.root, self.bounds),
            M::Ask(master) => self.membership.ask(cx, &master),
            M::Welcome {
                stamp,
                term,
                members,
                offers,
            } => {
                self.bounds.improve(cx, from, offers, self.lattices);
                self.root.welcome(cx, term, &members);
                self.membership.welcome(cx, stamp, members);
            }
            M::Goodbye => self.membership.goodbye(cx, from),
            M::Ended(code) => self.root.ended(cx, from, code),
            M::RootsDone(tags) => {
                for tag in tags {
                    self.shared.root_done(cx, tag);
                    self.bounds.root_done(tag);
                }
            }
            M::Want {
                name,
                offset,
                insist,
            } => self.shared.wanted(cx, from, name, offset, insist),
            M::Part {
                name,
                offset,
                total,
                bytes,
            } => self.shared.part(cx, from, name, offset, total, bytes),
            M::Elsewhere(name, peer) => self.shared.elsewhere(cx, name, peer),
            M::Unavailable(name) => self.shared.unavailable(cx, from, name),
            M::Offers(offers) => self.bounds.improve(cx, from, offers, self.lattices),
        }
    }
}

/// What goes on once its values are here.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Then {
    /// A hosted job starts.
    Start(HostKey, Parcel),
    /// An answer is delivered.
    Answer(Peer, Token, Answer),
    /// One of its values cannot be had any more: the hosted job is refused.
    Refuse(HostKey, ValueName),
    /// The answer mentions a value that cannot be had any more: the job is done again here.
    Redo(Peer, Token, ValueName),
}

impl Then {
    /// What must be at hand before.
    pub(crate) fn needs(&self) -> &[ValueName] {
        match self {
            Then::Start(_, parcel) => &parcel.needs,
            Then::Answer(_, _, Answer::Result { needs, .. }) => needs,
            _ => &[],
        }
    }
}
