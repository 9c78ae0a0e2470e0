//! The protocol between nodes, sans I/O: no socket, no clock, no thread, no randomness of its own.
//!
//! A [`Node`] is told what happened ([`Event`]) and says what is to be done ([`Action`]). `net` drives it
//! with QUIC and real workers, `satin-sim` with an event queue and imaginary ones, a test by hand. Given the
//! same seed and the same events it does the same again.
//!
//! A folder per conversation: [`steal`] decides which node asks which for work, `repair` follows each job
//! until its answer is back, [`membership`] knows which nodes are there, [`root`] knows whose `main` runs and
//! when the pool ends, [`shared`] brings values and bounds to where jobs need them. All use the `books` of
//! jobs that are under way. Below them, `links` and `relay` see to it that a node that is in can be talked
//! to.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use rand::{SeedableRng, rngs::SmallRng};

use crate::job::{
    Answer, Back, Batch, Gathered, JobId, JobLoad, JobName, JobSample, KeptElsewhere, Offer,
    OrphanNews, Parcel, Recall, RootName, RootRun, RootTag, Saved, Unfit, ValueName, ValueSize,
};

pub(crate) mod books;
#[cfg(any(test, feature = "harness"))]
pub mod cluster;
pub mod config;
pub mod expiry;
pub mod identity;
#[cfg(any(test, feature = "harness"))]
pub mod inspect;
mod links;
pub mod membership;
pub mod message;
mod relay;
pub(crate) mod repair;
pub mod root;
pub mod shared;
pub mod stable;
pub mod steal;
pub mod view;

pub use config::{Judgement, Policy, ProtocolConfig, RepairMode, Rule};
pub use identity::{Identity, NodeId, Peer};
use message::Cargo;
pub use message::{
    Deal, Envelope, Message, MessageKind, Page, Relayed, Request, RequestKind, SheetChange, Side,
    Spent, Token, Wanted,
};
pub use shared::Prefetch;
pub use stable::{RunEpoch, StorageOrder};
pub use steal::{Asking, JobCosts, Terms};
pub use view::View;

pub use crate::job::{DepartureId, HostedId, Lattices, Taken, Tally};

/// How a hosted job came to this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The node that gave it.
    pub from: Peer,
    /// When that node sent it, in milliseconds since 1970 of its clock; 0 if that is not known.
    pub sent_ms: u64,
    /// When it was here, by the time that this node is told.
    pub came: Duration,
}

/// An event: the driver tells the node what happened.
#[derive(Clone, Debug)]
pub enum Event {
    // ---- links
    /// A connection stands, after both sides accepted each other. A second one to the same peer has a higher epoch.
    Connected {
        /// The other side.
        peer: Identity,
        /// The epoch of the connection.
        epoch: u64,
        /// The round trip, as measured so far.
        round_trip: Duration,
    },
    /// A connection is gone: evidence of death, not proof.
    Disconnected {
        /// The other side.
        peer: Peer,
        /// The epoch of the connection that is gone.
        epoch: u64,
    },
    /// A connection could not be made: the address does not answer, or refuses this node.
    Unreachable {
        /// The address that was dialled.
        addr: SocketAddr,
        /// The peer that was meant, if known.
        peer: Option<Peer>,
        /// The messages that had waited for that connection, in order.
        unsent: Vec<Message>,
    },
    /// A message came.
    Received {
        /// The sender.
        from: Peer,
        /// The epoch of the connection that the message came on.
        epoch: u64,
        /// The message.
        message: Message,
    },
    /// Answer of an [`Action::Probe`]: the machine answers, but nobody listens there any more. Close to a
    /// proof of death.
    Gone(Peer),
    /// Other places where the pool may be found: the driver has looked again.
    Candidates {
        /// The addresses that take the place of [`ProtocolConfig::join`].
        join: Vec<SocketAddr>,
        /// The answer that takes the place of [`ProtocolConfig::may_found`].
        may_found: bool,
    },
    /// A new estimate of the round trip to a peer, from its link.
    RoundTrip(Peer, Duration),
    /// The first caller of a node that is alone has dialled this, and not the address that the node tells others.
    Readdressed(SocketAddr),

    // ---- workers
    /// So many workers have nothing to do, and no hosted job is waiting for them. Told whenever the number
    /// changes.
    Idle(u32),
    /// After an [`Action::Take`] that found too little: there is something now. Told once.
    Public,
    /// There are tasks which need what that node keeps: it may have them, even if workers here have nothing to do. Told again after an
    /// [`Action::Take`] for that node that found too little.
    KeptFor(NodeId),
    /// The workers have answered an [`Action::Take`].
    Took(TookJobs),
    /// A hosted job is done.
    Done(HostedId, Answer),
    /// So much of these hosted jobs is done, in parts of 65,535.
    PartsDone(Vec<(HostedId, u16)>),
    /// A job of ours that is away is not waited for any more.
    Recalled(DepartureId, Recall),
    /// A marked job of ours found itself in the orphan table: it waits for the orphan's answer, or to be put back.
    Claimed(DepartureId, Parcel),
    /// A hosted job was given up, see [`Action::Save`]; with the results of the jobs below it that were
    /// finished.
    Saved(HostedId, Vec<Saved>),
    /// The jobs that are held here now, or many of them: only other nodes may run them before [`Action::Release`]. Told
    /// whenever they change.
    Held(Vec<JobName>),
    /// The workers have answered an [`Action::Harvest`].
    Harvested(HarvestReader, Gathered),
    /// A job that had come back with a mark has been run here and is done.
    Repaired(JobId),

    // ---- shared
    /// A piece of a value that is not here in full has been kept.
    PieceStored {
        /// The value's name.
        name: ValueName,
        /// Where the piece begins.
        offset: u64,
        /// No other piece of it was there: those that were have been dropped.
        is_first: bool,
    },
    /// The value is here in full, and is what its name says.
    Stored(ValueName),
    /// The bytes that came were not what the value's name says; they have been dropped.
    Corrupt(ValueName),
    /// A part of a result that was kept where it was made is needed here; answered by [`Action::Brought`].
    Bring(KeptElsewhere),
    /// A task that waits for others will read that value, and is to run on that node: it may fetch it already.
    Prefetch {
        /// The number of the node.
        to: u128,
        /// The value, and what it is for.
        value: ValueSize,
        /// The root job of which the flow is a part.
        root: RootName,
        /// The number of the node that keeps it; none if it is here.
        at: Option<u128>,
    },
    /// This node can do without what that one keeps for it.
    Unneeded {
        /// The number of the node.
        at: u128,
        /// The values.
        names: Vec<ValueName>,
    },
    /// A bound has become better here.
    Offered(Offer),

    // ---- storage
    /// Answer of a [`StorageOrder::Open`].
    RunOpened {
        /// The run that goes on.
        run: RunEpoch,
        /// What stands in the store.
        batch: Batch,
    },
    /// Answer of a [`StorageOrder::Open`]: the run cannot be begun or resumed.
    CannotOpenRun {
        /// The reason.
        text: String,
        /// The store is in order, and the run is not for this pool. False if the store failed.
        is_refused: bool,
    },
    /// Answer of a [`StorageOrder::Write`].
    Written {
        /// The number of the batch.
        number: u64,
        /// The segment of this life's log that it begins in.
        segment: u32,
        /// The bytes that it takes there.
        bytes: u64,
    },
    /// Answer of a [`StorageOrder::Write`]: it did not succeed.
    NotWritten {
        /// The number of the batch.
        number: u64,
        /// What the store says.
        text: String,
    },
    /// Answer of a [`StorageOrder::ReadLog`].
    LogRead {
        /// The life whose log it is.
        peer: Peer,
        /// What stands there; nothing if it cannot be read.
        batch: Batch,
    },
    /// Another pool has begun that epoch of the run, which is later than this one's.
    Superseded(u32),

    /// The memory of this node is nearly used up, or is not any more.
    MemoryFull(bool),

    // ---- main
    /// `main` has called a root job.
    RootStarted(RootRun),
    /// A root job of this process has its result.
    RootFinished(RootRun),
    /// A root job has its result, which `main` sees after [`Action::RootKept`]: not before those keepers have it that are no further away
    /// than this.
    RootResult(RootTag, Saved, Duration),
    /// `main` is over.
    MainEnded(i32),
    /// `main` is stopped before it is over, by a signal or a panic: with a store, another start goes on. The exit code.
    BrokenOff(i32),
    /// `main` was stopped, see [`Action::YieldMain`]; with the results of the jobs below its root job that
    /// were finished.
    Yielded(Vec<Saved>),
    /// The process is asked to leave within that time: finish what can be, hand over the rest.
    Drain(Duration),
    /// The process is asked to leave now.
    Leave,
}

/// What the workers answer to an [`Action::Take`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TookJobs {
    /// The request of the action.
    pub request: u64,
    /// The jobs that were taken, the oldest first; if they are several, siblings.
    pub jobs: Vec<Taken>,
    /// The number of jobs that could have been taken beside those, about.
    pub left: u32,
    /// The jobs that stayed, as the terms did not let them go.
    pub not_worth: Vec<JobLoad>,
    /// What the workers have seen of jobs since the last take.
    pub samples: Vec<JobSample>,
}

/// An action: the node tells its driver what is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    // ---- links
    /// Connect to that address; answered by `Connected` or, after one attempt, by `Unreachable`. Messages for a peer
    /// to which no connection stands wait for it, or come back.
    Connect {
        /// The address to dial.
        addr: SocketAddr,
        /// The peer that is meant, if known.
        peer: Option<Peer>,
    },
    /// Ask whether a process listens at that address. Answered by `Gone` if the machine says no (a datagram
    /// from a connected socket comes back as "connection refused"), and by nothing otherwise. A process that
    /// was killed is found within a round trip that way; silence proves nothing.
    Probe {
        /// The address to probe.
        addr: SocketAddr,
        /// The peer that is meant.
        peer: Peer,
    },
    /// Send, over the connection that stands or the next one.
    Send(Peer, Message),
    /// Close the connection, after what was sent has arrived.
    Disconnect(Peer),

    // ---- workers
    /// Take the oldest job that can leave, and up to `most - 1` siblings of it; answered by `Took`, as a rule at once.
    Take {
        /// A number that the answer gives back.
        request: u64,
        /// The number of jobs, at most.
        most: u32,
        /// Which jobs are worth the way to the node that asks.
        terms: Terms,
    },
    /// Start a hosted job; its values are at hand.
    Start(HostedId, Parcel),
    /// A hosted job that only other nodes may run before [`Action::Release`].
    Hold(HostedId, Parcel),
    /// Let the workers here run the jobs that are held.
    Release,
    /// The same for one job of this node: it is an orphan somewhere, and will be claimed.
    ReleaseOne(JobName),
    /// Abort a hosted job, started or not; answered by `Done`, which may say something else than `Aborted`.
    Abort(HostedId),
    /// Bring an answer to a job of ours.
    Deliver(DepartureId, Answer),
    /// So much of a job that is away is done, in parts of 65,535.
    NotePart(DepartureId, u16),
    /// The job comes back undone.
    PutBack(DepartureId, Back),
    /// A job of ours comes back, as it cannot travel: its function is to be noted, and people are to hear of it.
    Unfit(Unfit),
    /// Tell the workers news of the orphan table, in which marked jobs look themselves up.
    Orphan(OrphanNews),
    /// Give a hosted job up, but save what is finished below it; answered by `Saved`, or by `Done` if it was quicker.
    Save(HostedId),
    /// Tell what the workers have harvested: answered by `Harvested`.
    Harvest {
        /// Only facts with higher numbers are wanted.
        since: u64,
        /// The conversation that the answer is for.
        reader: HarvestReader,
    },
    /// Hosted jobs that have not been started come back: answered by `Done` with [`Answer::Aborted`] for each.
    GiveBack,
    /// Tell the workers whether any node looks for work (`satin::hungry`).
    Hungry(bool),

    // ---- shared
    /// Read that piece of a value from the store and send it to a peer as [`Message::Part`], or
    /// [`Message::Unavailable`], through [`Node::send`].
    SendPart {
        /// The receiver.
        to: Peer,
        /// The value.
        name: ValueName,
        /// The first byte of the piece.
        offset: u64,
        /// Bytes of the piece, at most.
        length: u64,
    },
    /// Keep that piece; answered by `PieceStored`, and once all are there by `Stored` or `Corrupt`.
    Store {
        /// The value.
        name: ValueName,
        /// The root job that needs it: it is to be kept until then.
        root: RootName,
        /// Jobs borrow it: it is to be kept until [`Borrowed`](Action::Borrowed) names it, and then as long as there is room for it.
        lent: bool,
        /// The first byte of the piece.
        offset: u64,
        /// Bytes of the whole value.
        total: u64,
        /// The bytes of the piece.
        bytes: Vec<u8>,
    },
    /// Drop the pieces of a value that is not fetched any more.
    DropPieces(ValueName),
    /// No job waits for these data any more, which have come: the job holds them, or is gone.
    Borrowed(Vec<ValueName>),
    /// The answer to an [`Event::Bring`].
    Brought {
        /// The number of the request.
        ticket: u64,
        /// The value, which is here now; none if nobody has it any more.
        value: Option<ValueName>,
    },
    /// The owner of these values can do without them.
    DropKept(Vec<ValueName>),
    /// Another node could not have that value, which is kept elsewhere for this one: it is to be brought here, or made again.
    BringHome(ValueName),
    /// The node of that number leaves: what it keeps for this one is to be brought before it is gone.
    KeeperLeaves(u128),
    /// The root job is over, and those of a `main` before it ([`RootName::ends`]): the things that the
    /// process keeps for them can go.
    ForgetRoot(RootName),
    /// Improve a bound here.
    Improve(Offer),

    /// Something is to be done in the store.
    Storage(StorageOrder),

    // ---- main
    /// The node is in, under that identity; `master` runs `main`.
    Joined {
        /// The identity of this node, with its stamp.
        me: Identity,
        /// The master of the day; perhaps this node.
        master: Identity,
    },
    /// Enough nodes are in: root jobs may start.
    StartRoots,
    /// Tell results of root jobs (`RootResult`) before `main` sees them, or do not.
    KeepRoots(bool),
    /// The result is in safe hands.
    RootKept(RootTag),
    /// Another node runs `main` from now on: stop it here; answered by `Yielded`.
    YieldMain,
    /// Run `main` from the start: this node has become master.
    RunMain {
        /// The term: how many masters there have been before.
        term: u32,
    },
    /// The part of this node is over: wind up.
    End(NodeEnd),
    /// Tell people and dashboards.
    Tell(Notice),
}

/// How the part of a node in its pool ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeEnd {
    /// `main` has ended on this node, with this exit code.
    Main(i32),
    /// The pool has ended: `main` has ended on another node, with this exit code.
    Pool(i32),
    /// The node has left; its pool may go on.
    Left,
    /// The pool is lost, as no other node can run `main`.
    Lost,
}

impl NodeEnd {
    /// The exit code of the node itself: an end of `main` on another node is a good end here.
    #[must_use]
    pub fn own_code(self) -> i32 {
        match self {
            NodeEnd::Main(code) => code,
            NodeEnd::Pool(_) | NodeEnd::Left => 0,
            NodeEnd::Lost => 1,
        }
    }
}

/// The conversation that a harvest is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HarvestReader {
    /// Copies go to a neighbour.
    Buddy,
    /// This node leaves.
    Heir,
    /// Stable storage.
    Storage,
}

/// News for people and dashboards.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A node came in.
    Joined(Identity),
    /// A node left on purpose.
    Left(Identity),
    /// A node died.
    Dead(Identity),
    /// A node is about to leave.
    Draining(Identity),
    /// A node became master.
    Master(Identity),
    /// The node cannot join, or its pool is gone; the text says why and what to do.
    Failed(String),
    /// A warning, for the log.
    Warning(String),
}

/// The state that every conversation may use.
pub(crate) struct Context<'n> {
    pub(crate) now: Duration,
    /// The term of the master of the day.
    pub(crate) term: u32,
    pub(crate) config: &'n ProtocolConfig,
    pub(crate) view: &'n mut View,
    pub(crate) rng: &'n mut SmallRng,
    pub(crate) actions: &'n mut VecDeque<Action>,
    pub(crate) links: &'n mut links::Links,
    pub(crate) books: &'n mut books::Books,
    pub(crate) table: &'n mut repair::Table,
    pub(crate) homes: &'n mut shared::Homes,
}

impl Context<'_> {
    /// That node will need a value, which is here or kept there.
    fn tell_to_prefetch(
        &mut self,
        to: NodeId,
        value: ValueSize,
        root: RootName,
        at: Option<NodeId>,
    ) {
        let me = self.view.me().peer;
        let from = at.map_or(Some(me), |at| self.view.life_of(at));
        let to = self.view.life_of(to).filter(|to| *to != me);
        if let (Some(to), Some(from)) = (to, from)
            && to != from
            && !self.books.holders.of(value.name).any(|peer| peer == to)
        {
            self.books.holders.note(to, value.name, root);
            let wanted = Prefetch { value, root, from };
            self.actions
                .push_back(Action::Send(to, Message::Prefetch(wanted)));
        }
    }

    /// What a node keeps of results can go, as that node says: each value once.
    pub(crate) fn unneeded(&mut self, by: NodeId, keeper: NodeId, names: Vec<ValueName>) {
        if keeper == self.view.me().peer.id {
            self.books.kept_here.drop(by, &names);
            return self.actions.push_back(Action::DropKept(names));
        }
        for name in &names {
            self.books.holders.let_go(keeper, *name);
        }
        // If the keeper is gone, so is what it kept.
        if let Some(peer) = self.view.life_of(keeper) {
            let unneeded = Message::Unneeded(names);
            self.actions.push_back(Action::Send(peer, unneeded));
        }
    }
}

/// A node of a pool.
pub struct Node {
    config: ProtocolConfig,
    view: View,
    rng: SmallRng,
    actions: VecDeque<Action>,
    links: links::Links,
    relay: relay::Relay,
    now: Duration,
    membership: membership::Membership,
    root: root::Roots,
    shared: shared::Values,
    bounds: shared::Bounds,
    homes: shared::Homes,
    steal: steal::Steal,
    books: books::Books,
    repair: repair::Repair,
    table: repair::Table,
    spread: repair::Spread,
    keeping: repair::Keeping,
    leaving: repair::Leaving,
    buddies: repair::Buddies,
    storage: stable::Storage,
    keeps_roots: bool,
    /// Messages that came before this node knew that it is in, with their senders.
    early: VecDeque<(Peer, Message)>,
    lattices: Box<dyn Lattices + Send>,
}

/// The number of messages that are kept until this node knows that it is in; others are lost, as if their
/// senders had been early. Too small: a newcomer misses words. Too large: memory.
const EARLY_MOST: usize = 1024;

impl Node {
    /// A node that is to join a pool, or to found one, as `config` says. It begins at the first
    /// [`handle_timeout`](Node::handle_timeout).
    #[must_use]
    pub fn new(
        config: ProtocolConfig,
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
        config: ProtocolConfig,
        view: View,
        lattices: Box<dyn Lattices + Send>,
        seed: u64,
        now: Duration,
    ) -> Node {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut books = books::Books::default();
        if config.has_store() {
            books.note_kept();
        }
        Node {
            membership: membership::Membership::new(&config, &view, &mut rng, now),
            root: root::Roots::new(&view),
            shared: shared::Values::default(),
            bounds: shared::Bounds::new(&config),
            homes: shared::Homes::default(),
            steal: steal::Steal::new(&config),
            books,
            repair: repair::Repair::default(),
            table: repair::Table::new(view.me().peer),
            spread: repair::Spread::default(),
            keeping: repair::Keeping::default(),
            leaving: repair::Leaving::default(),
            buddies: repair::Buddies::default(),
            storage: stable::Storage::default(),
            keeps_roots: false,
            config,
            view,
            rng,
            actions: VecDeque::new(),
            early: VecDeque::new(),
            links: links::Links::default(),
            relay: relay::Relay::default(),
            now,
            lattices,
        }
    }

    /// The next action; to be asked until there is none. Drivers hand in all events that are there before they
    /// ask: what these bring together is said in one message.
    ///
    /// A [`Action::Send`] to a peer without a connection comes after an [`Action::Connect`].
    pub fn poll_action(&mut self) -> Option<Action> {
        // The turn ends here, not with each event: all that the events of a turn have to say to one
        // peer goes in one message.
        if self.actions.is_empty() {
            let (mut cx, mut parts) = self.split(self.now);
            parts.flush(&mut cx);
        }
        loop {
            // The way is chosen when a message leaves, not when it is queued: a connection may
            // stand by now, or have broken.
            if let Action::Send(to, message) = self.actions.front()? {
                // No word goes to a life whose end has been dealt with, though the message was
                // queued before: it might bring a job along.
                if !message.is_about_membership() && !self.view.is_alive(*to) {
                    self.actions.pop_front();
                    continue;
                }
                match self.links.way(*to, &self.view) {
                    links::Way::Open | links::Way::Via(_) => {}
                    links::Way::Connect(addr) => {
                        let peer = Some(*to);
                        // The message stays in the queue, behind the connection that it needs.
                        self.actions.push_front(Action::Connect { addr, peer });
                    }
                    links::Way::Hold => {
                        if let Some(Action::Send(to, message)) = self.actions.pop_front() {
                            self.relay.hold(to, message);
                        }
                        continue;
                    }
                    // The peer has left the view, or was never in it: no address is known.
                    links::Way::None => {
                        self.actions.pop_front();
                        continue;
                    }
                }
            }
            let mut action = self.actions.pop_front()?;
            self.links.watch(&action);
            // Loaded at the last moment, so that a result brings the bounds as they are now.
            if let Action::Send(peer, message) = action {
                action = self.load(peer, message);
            }
            return Some(action);
        }
    }

    /// A message as it leaves: offers of bounds arrive no later than the results that came of them.
    fn load(&mut self, to: Peer, message: Message) -> Action {
        let message = self.bounds.load(to, message, &self.books);
        match self.links.way(to, &self.view) {
            // Wrapped last: the offers must be within the envelope.
            links::Way::Via(circuit) => {
                self.relay.used(self.now, to, &message);
                relay::wrap(self.view.me().peer, to, circuit, &message)
            }
            _ => Action::Send(to, message),
        }
    }

    /// The driver has something to say to a peer: see [`Action::SendPart`].
    pub fn send(&mut self, to: Peer, message: Message) {
        self.actions.push_back(Action::Send(to, message));
    }

    /// When [`handle_timeout`](Node::handle_timeout) is to be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let all = [
            self.membership.next_timeout(),
            self.relay.next_timeout(&self.links, &self.config),
            self.root.next_timeout(),
            self.shared.next_timeout(),
            self.bounds.next_timeout(),
            self.homes.next_timeout(),
            self.books.next_timeout(),
            self.steal.next_timeout(),
            self.repair.next_timeout(),
            self.table.next_timeout(),
            self.spread.next_timeout(),
            self.leaving.next_timeout(),
            self.keeping.next_timeout(),
            self.buddies.next_timeout(),
            self.storage.next_timeout(),
        ];
        all.into_iter().flatten().min()
    }

    /// The workers have seen how long jobs take.
    pub(crate) fn seen(&mut self, samples: &[JobSample]) {
        self.steal.seen(samples);
    }

    /// What jobs cost here and elsewhere, as far as that is known.
    pub(crate) fn costs(&self) -> JobCosts {
        self.steal.costs()
    }

    /// Which requests for work are under way.
    #[must_use]
    pub fn asking(&self) -> Asking {
        self.steal.asking(&self.view)
    }

    /// Is the memory full, so that no jobs of others are taken?
    #[must_use]
    pub fn has_full_memory(&self) -> bool {
        self.steal.has_full_memory()
    }

    /// Do jobs or answers that are here wait for shared values?
    #[must_use]
    pub fn waits_for_values(&self) -> bool {
        self.shared.waiting() > 0
    }

    /// How a hosted job came here from the node that gave it; `None` if that does not wait for it, or it is not here.
    #[must_use]
    pub fn arrival(&self, key: HostedId) -> Option<Arrival> {
        let hosted = self.books.look(key)?;
        Some(Arrival {
            from: hosted.origin()?,
            sent_ms: hosted.sent_ms,
            came: hosted.came,
        })
    }

    /// The number of further results that need not be told at once: a timeout is set, at which the node looks for them.
    #[must_use]
    pub fn may_wait(&self) -> u32 {
        self.steal.may_wait(&self.books)
    }

    /// Number of orphans that this node knows, its own included.
    #[must_use]
    pub fn orphans(&self) -> usize {
        self.table.orphan_count()
    }

    /// Number of results of other nodes that are kept here.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.buddies.len()
    }

    /// Counts of what this node did about deaths and departures.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.books.tally
    }

    /// Jobs put back because the node that had them was gone, or gave them up: how many of each function, by its number.
    #[must_use]
    pub fn repairs(&self) -> &BTreeMap<u32, u64> {
        self.books.repairs()
    }

    /// The value that an offer would be [joined](Lattices::join) with now.
    #[must_use]
    pub fn known(&self, offer: &Offer) -> Option<&[u8]> {
        self.bounds.known(offer)
    }

    /// The live nodes, as this node sees them.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    fn split(&mut self, now: Duration) -> (Context<'_>, Parts<'_>) {
        self.now = now;
        let context = Context {
            now,
            term: self.root.term(),
            config: &self.config,
            view: &mut self.view,
            rng: &mut self.rng,
            actions: &mut self.actions,
            links: &mut self.links,
            books: &mut self.books,
            table: &mut self.table,
            homes: &mut self.homes,
        };
        let parts = Parts {
            membership: &mut self.membership,
            relay: &mut self.relay,
            root: &mut self.root,
            shared: &mut self.shared,
            bounds: &mut self.bounds,
            steal: &mut self.steal,
            repair: &mut self.repair,
            spread: &mut self.spread,
            keeping: &mut self.keeping,
            leaving: &mut self.leaving,
            buddies: &mut self.buddies,
            storage: &mut self.storage,
            keeps_roots: &mut self.keeps_roots,
            early: &mut self.early,
            lattices: &*self.lattices,
        };
        (context, parts)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        let (mut cx, mut parts) = self.split(now);
        // Membership first: an election that is due looks at its suspects.
        parts.membership.handle_timeout(&mut cx, parts.root);
        let term = cx.term;
        parts.root.handle_timeout(&mut cx, parts.membership);
        // A wait that ends may make this node master.
        if cx.term != term {
            parts.keep_roots(&mut cx);
        }
        parts.shared.handle_timeout(&mut cx, parts.lattices);
        parts.bounds.handle_timeout(&mut cx);
        parts.forget_homes(&mut cx);
        parts.ask_again(&mut cx);
        parts.repair.handle_timeout(&mut cx);
        parts.look_for_ways(&mut cx);
        cx.table.handle_timeout(cx.actions, now);
        parts.spread.handle_timeout(&mut cx);
        parts.keeping.handle_timeout(&mut cx);
        parts.buddies.handle_timeout(&mut cx);
        if parts.storage.handle_timeout(&mut cx) {
            parts.root.loaded(&mut cx);
        }
        self.pass_on(now);
    }

    /// Takes in an event. The actions that follow are polled afterwards.
    pub fn handle(&mut self, now: Duration, event: Event) {
        let (mut cx, mut parts) = self.split(now);
        let cx = &mut cx;
        match event {
            Event::Connected {
                peer,
                epoch,
                round_trip,
            } => {
                let (who, epoch) = (peer.peer, links::epoch_of(epoch));
                // Before the new one is entered: words on the old one may be lost, and are to be
                // said again.
                parts.replaced(cx, who);
                cx.links.connected(who, epoch);
                parts.relay.connected(cx, who);
                parts.connected(cx, &peer, epoch, Some(round_trip));
            }
            Event::Disconnected { peer, epoch } => {
                let epoch = links::epoch_of(epoch);
                cx.links.disconnected(peer, epoch);
                // The end of a connection that another has replaced is no news.
                if !cx.links.is_stale(peer, epoch) {
                    parts.disconnected(cx, peer, epoch);
                }
            }
            Event::Unreachable { addr, peer, unsent } => {
                parts.unreachable(cx, addr, peer, unsent);
            }
            Event::Gone(peer) => parts.membership.gone(cx, peer),
            Event::Candidates { join, may_found } => {
                parts.membership.candidates(cx, join, may_found);
            }
            Event::RoundTrip(peer, round_trip) => parts.steal.round_trip(cx, peer, round_trip),
            Event::Received {
                from,
                epoch,
                message,
            } => {
                // A connection that has been replaced is not to be trusted any more: both sides
                // have compared their lists, and a late message would bring a job that has been put
                // back.
                if !cx.links.is_stale(from, links::epoch_of(epoch)) {
                    parts.unwrap(cx, from, message);
                }
            }
            Event::Idle(workers) => cx.books.idle(workers),
            Event::Public => parts.steal.public(),
            Event::KeptFor(keeper) => parts.steal.kept_for(keeper),
            Event::MemoryFull(is_full) => parts.steal.memory_full(cx, is_full),
            Event::Took(took) => parts.took(cx, took),
            Event::Done(key, mut answer) => {
                if let Answer::Result {
                    kept: Some(kept), ..
                } = &mut answer
                {
                    kept.at = cx.view.me().peer.id.0;
                    if let Some(hosted) = cx.books.look(key) {
                        let root = hosted.root;
                        cx.books.kept_here.keep(root, kept);
                    }
                }
                parts.steal.done(cx, key, &answer);
                let saved = parts.repair.done(cx, key, answer);
                parts.save(cx, saved.into_iter().collect());
            }
            Event::PartsDone(parts_done) => steal::Steal::tell_parts(cx, &parts_done),
            Event::Recalled(departure, why) => parts.repair.recalled(cx, departure, why),
            Event::Claimed(departure, parcel) => {
                // The orphan's bounds count from now on: the answer will have been computed
                // under them.
                parts.bounds.belongs(cx, parcel.root_run());
                parts.repair.claimed(cx, departure, parcel);
            }
            Event::Saved(key, saved) => {
                parts.repair.saved(cx, key);
                parts.save(cx, saved);
            }
            Event::Held(names) => parts.repair.held(cx, names),
            Event::Harvested(reader, gathered) => parts.gathered(cx, reader, gathered),
            Event::Repaired(id) => parts.repair.repaired(cx, &id),
            Event::RunOpened { run, batch } => {
                parts.load(cx, batch);
                parts.storage.opened(cx, run);
                parts.root.loaded(cx);
            }
            Event::CannotOpenRun { text, is_refused } if parts.root.must_end(is_refused) => {
                parts.root.cannot_begin(cx, text);
            }
            Event::CannotOpenRun { text, .. } => {
                parts.storage.cannot_open(cx, &text);
                parts.root.loaded(cx);
            }
            Event::Written {
                number,
                segment,
                bytes,
            } => parts.storage.written(cx, number, segment, bytes),
            Event::NotWritten { number, text } => parts.storage.not_written(cx, number, text),
            Event::LogRead { peer, batch } => {
                parts.load(cx, batch);
                cx.table.log_read(cx.now, peer);
            }
            Event::Superseded(epoch) => {
                if parts.root.is_master(cx.view) && cx.config.obeys(Rule::Epoch) {
                    let text = format!(
                        "another start of this program goes on with this run, as epoch {epoch}: this one ends"
                    );
                    cx.actions.push_back(Action::Tell(Notice::Warning(text)));
                    parts.root.superseded(cx);
                }
            }
            Event::RootResult(tag, saved, patience) => {
                parts.storage.root(cx, &saved, parts.bounds);
                let steal = &*parts.steal;
                let is_waited_for = |view: &View, keeper| steal.distance(view, keeper) <= patience;
                parts.keeping.root(cx, tag, saved, is_waited_for);
            }
            Event::Yielded(saved) => {
                // A node that leaves waits for this word. Until it goes they are to be had here; then they go to its heir with
                // all others.
                if !parts.leaving.is_leaving() {
                    parts.save(cx, saved);
                } else if let Some(saved) = parts.leaving.yielded(saved) {
                    parts.repair.keep(cx, cx.term, saved);
                }
            }
            Event::Drain(grace) => {
                let then = stable::AfterLast::Leave(cx.now + grace);
                match parts.leaving.is_leaving() {
                    true => parts.go_after_last(cx, then),
                    false => parts.write_last_and_go(cx, then),
                }
            }
            Event::BrokenOff(code) => {
                parts.write_last_and_go(cx, stable::AfterLast::End(code));
            }
            Event::Readdressed(addr) => {
                if parts.membership.readdressed(cx, addr) {
                    parts.root.readdressed(cx);
                }
            }
            Event::PieceStored {
                name,
                offset,
                is_first,
            } => parts.shared.piece_stored(cx, name, offset, is_first),
            Event::Stored(name) => parts.shared.stored(cx, name),
            Event::Corrupt(name) => parts.shared.corrupt(cx, name),
            Event::Bring(kept) => parts.bring_kept(cx, &kept),
            Event::Prefetch {
                to,
                value,
                root,
                at,
            } => cx.tell_to_prefetch(NodeId(to), value, root, at.map(NodeId)),
            Event::Unneeded { at, names } => {
                cx.unneeded(cx.view.me().peer.id, NodeId(at), names);
            }
            Event::Offered(offer) => parts.bounds.offered(cx, offer, parts.lattices),
            Event::RootStarted(run) => {
                cx.homes.root_started(run.name);
                parts.shared.root_started(run.name);
                parts.repair.forget_other_root(cx, run.name);
                parts.bounds.root_started(cx, run);
                parts.root_begins(cx, run.name);
            }
            Event::RootFinished(run) => {
                cx.homes.root_finished(run.name);
                parts.root.finished(cx, run);
                // Orphans of a root job that the next master calls again are wanted.
                if !is_called_again(cx, run) {
                    parts.repair.close_root(cx, run.name);
                }
                parts.root_done(cx, run);
            }
            Event::MainEnded(code) => parts.main_ended(cx, code),
            Event::Leave => parts.go(cx),
        }
        self.pass_on(now);
    }

    /// Passes on what one conversation found out and others must know, until there is nothing left.
    fn pass_on(&mut self, now: Duration) {
        loop {
            let (mut cx, mut parts) = self.split(now);
            let cx = &mut cx;
            // Changes of the view first, one at a time: what follows is said and done in the new
            // view.
            if let Some(change) = parts.membership.poll_change(cx) {
                parts.change(cx, change);
                cx.table.look_at_deadly_again();
            } else if let Some(then) = parts.shared.poll_ready() {
                parts.go_on(cx, then);
            } else if let Some((from, message)) = parts.take_early() {
                // A message at a time, after all changes of the view: the sender must be in it to
                // be heard.
                parts.receive(cx, from, message);
            } else if let Some(then) = parts.storage.has_written_last(cx) {
                parts.go_after_last(cx, then);
            } else if parts.leaving.go_on(cx, parts.repair, parts.keeping) {
                // Only when there is nothing else to pass on: what this turn brought is saved too.
                parts.go(cx);
            } else {
                // Last, when the view and the sheets are what they will be in this turn.
                (cx.table).tell_deadly(cx.actions, cx.view, cx.config.max_crashes);
                return;
            }
        }
    }

    /// The run that goes on, if the node knows it.
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn run_epoch(&self) -> Option<RunEpoch> {
        self.storage.run()
    }

    /// Does the batch that is on its way to the store lack room for what else the node has to write?
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn writes_full_batch(&self) -> bool {
        self.storage.writes_full_batch()
    }

    /// The side of a cut at which this node is, as it sees that.
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn side(&self) -> Side {
        self.root.side(&self.view)
    }

    /// The lives that fell silent, and that this node looks for.
    #[cfg(any(test, feature = "harness"))]
    pub fn misses(&self) -> impl Iterator<Item = Peer> {
        self.membership.misses()
    }

    /// Is nothing under way between this node and others?
    #[cfg(any(test, feature = "harness"))]
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.books.is_settled()
    }

    /// Declares a peer dead, as a story tells, where no failure detector runs.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn declare_dead(&mut self, now: Duration, peer: Peer) {
        let gone = self.view.remove(peer);
        let (mut cx, mut parts) = self.split(now);
        if let Some(gone) = gone {
            parts.life_ended(&mut cx, &gone, repair::LifeEnd::Died);
        }
        self.pass_on(now);
    }
}

/// The conversations, apart, so that they can be used side by side.
struct Parts<'n> {
    membership: &'n mut membership::Membership,
    relay: &'n mut relay::Relay,
    root: &'n mut root::Roots,
    shared: &'n mut shared::Values,
    bounds: &'n mut shared::Bounds,
    steal: &'n mut steal::Steal,
    repair: &'n mut repair::Repair,
    spread: &'n mut repair::Spread,
    keeping: &'n mut repair::Keeping,
    leaving: &'n mut repair::Leaving,
    buddies: &'n mut repair::Buddies,
    storage: &'n mut stable::Storage,
    keeps_roots: &'n mut bool,
    early: &'n mut VecDeque<(Peer, Message)>,
    lattices: &'n dyn Lattices,
}

impl Parts<'_> {
    /// The end of a turn: what it brought together is said, and work is sought or given.
    fn flush(&mut self, cx: &mut Context<'_>) {
        for (from, then) in self.storage.take_put_off(cx) {
            // The job may have been recalled meanwhile.
            if let Then::Start(key, _) = &then
                && cx.books.look(*key).is_some_and(books::Hosted::is_coming)
            {
                self.bring(cx, from, then);
            }
        }
        for kept in cx.books.take_loose() {
            let names = kept.values.iter().map(|value| value.name).collect();
            cx.unneeded(cx.view.me().peer.id, NodeId(kept.at), names);
        }
        // First the answers and recalls of this turn: peers wait for them.
        self.steal.say(cx);
        // In the last turn nothing new is begun.
        if !cx.books.leaving {
            self.shared.go_on_prefetching(cx, self.lattices);
            self.repair.flush(cx);
            let only_for_others = self.repair.offers_held(cx);
            self.steal.flush(cx, only_for_others);
            self.repair.look_if_stuck(cx);
            self.buddies.look(cx, self.root.is_master(cx.view));
            let mastery = self.root.is_master(cx.view).then(|| stable::Mastery {
                founder: self.root.founder(cx.view),
                main_waits: self.root.waits_for_store(),
            });
            self.storage.look(cx, mastery);
        }
        // Last: all of this turn's orphans go in one piece of news.
        self.spread.look(cx);
    }

    /// The workers have given these jobs away, or nothing: they go to the thief that asked, or stay after all.
    fn took(&mut self, cx: &mut Context<'_>, took: TookJobs) {
        // An answer to a question that is not under way: there is no asker to take the jobs for.
        let Some(asker) = self.steal.took(cx, &took, self.lattices) else {
            return repair::Repair::stay(cx, took.jobs);
        };
        let TookJobs {
            jobs,
            left,
            not_worth,
            ..
        } = took;
        // The asker may have died since. A job that is sent to the dead is put back by nobody.
        let is_gone = !cx.view.is_alive(asker.peer) || cx.books.leaving;
        let Some(first) = jobs.first() else {
            return match not_worth.is_empty() || is_gone {
                true => self.steal.wait(asker),
                false => self.steal.refuse(cx, asker),
            };
        };
        if !is_gone && !self.steal.are_worth(cx, &asker, &jobs, self.lattices) {
            repair::Repair::stay(cx, jobs);
            return self.steal.refuse(cx, asker);
        }
        let is_too_fresh = self.steal.is_too_fresh(cx, &asker, first);
        let must_wait = self.repair.must_wait(cx, asker.peer, &jobs);
        if is_gone || is_too_fresh || must_wait {
            repair::Repair::stay(cx, jobs);
            if !is_gone {
                self.steal.pass_over(cx, asker, must_wait);
            }
            return;
        }
        let jobs = self.repair.depart(cx, asker.peer, jobs);
        self.steal.send(cx, &asker, jobs, left);
    }

    // ---- links

    /// A connection stands, direct or by a circuit.
    fn connected(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Identity,
        epoch: u64,
        round_trip: Option<Duration>,
    ) {
        self.steal.connected(cx, peer.peer, epoch, round_trip);
        self.repair.connected(cx, peer.peer, epoch);
        self.membership.connected(cx, peer, epoch, self.root);
        self.root.connected(cx, peer.peer);
        // What was said on a connection that broke may be lost, and a node that knows no run writes nothing.
        if self.root.is_master(cx.view) && cx.view.is_alive(peer.peer) {
            self.storage.welcome(cx, peer.peer);
        }
    }

    /// Another connection is about to take the place of the one that stands, if one does.
    fn replaced(&mut self, cx: &mut Context<'_>, peer: Peer) {
        if cx.links.epoch(peer).is_some() {
            self.bounds.disconnected(peer);
            self.shared.disconnected(cx, peer);
            self.broken(cx, peer);
        }
    }

    fn disconnected(&mut self, cx: &mut Context<'_>, peer: Peer, epoch: u64) {
        self.bounds.disconnected(peer);
        self.shared.disconnected(cx, peer);
        self.steal.disconnected(cx, peer, epoch);
        self.repair.disconnected(cx, peer);
        self.membership.disconnected(cx, peer, epoch);
        self.broken(cx, peer);
        // A peer that is being called through others keeps its epochs: a circuit must have a
        // higher one.
        if !cx.view.is_alive(peer) && !cx.links.is_astray(peer) {
            cx.links.forget(peer);
        }
    }

    /// Ends the circuits that went through that peer.
    fn broken(&mut self, cx: &mut Context<'_>, peer: Peer) {
        for (other, epoch) in self.relay.disconnected(cx, peer) {
            self.disconnected(cx, other, epoch);
        }
    }

    fn unreachable(
        &mut self,
        cx: &mut Context<'_>,
        addr: SocketAddr,
        peer: Option<Peer>,
        unsent: Vec<Message>,
    ) {
        // On the way in addresses are dialled before it is known who is there.
        let Some(peer) = peer else {
            return self.membership.unreachable(cx, addr, None);
        };
        cx.links.unreachable(peer);
        // Messages that waited for the connection come back, and may not be said at all.
        self.bounds.disconnected(peer);
        // On the way in the view is empty: any node that this one was told of is to be reached.
        let wanted = cx.view.is_alive(peer) || self.membership.is_searching();
        let by_circuit = cx.links.circuit(peer).is_some();
        // Over a circuit the peer is reached: that no direct connection can be made is no news.
        if !by_circuit {
            self.steal.unreachable(peer);
            self.repair.unreachable(cx, peer);
            self.membership.unreachable(cx, addr, Some(peer));
        }
        if wanted && cx.links.direct(peer).is_none() {
            self.relay.lose(cx, peer, addr, unsent);
        }
    }

    /// Ends the circuits, and gives up the peers, whose time has come.
    fn look_for_ways(&mut self, cx: &mut Context<'_>) {
        let due = self.relay.handle_timeout(cx);
        for (peer, epoch) in due.ended {
            self.disconnected(cx, peer, epoch);
        }
        for peer in due.cut_off {
            self.membership.cut_off(cx, peer);
        }
    }

    /// Takes in a message; if another node has passed it on, under its real sender's name.
    fn unwrap(&mut self, cx: &mut Context<'_>, mut from: Peer, mut message: Message) {
        use relay::Heard;
        while let Message::Relay(envelope) = message {
            // The relay lives, whatever it passes on.
            self.membership.heard(cx, from);
            match self.relay.heard(cx, from, envelope) {
                Heard::Nothing => return,
                Heard::Stands(other, circuit, round_trip) => {
                    // A new circuit is a new connection: circuits through the old one have ended,
                    // and words may be lost.
                    self.broken(cx, other.peer);
                    self.bounds.disconnected(other.peer);
                    self.connected(cx, &other, circuit.epoch, round_trip);
                    return self.shared.disconnected(cx, other.peer);
                }
                Heard::Ended(peer, epoch) => return self.disconnected(cx, peer, epoch),
                Heard::Message(other, inside) => (from, message) = (other, inside),
            }
        }
        self.receive_or_keep(cx, from, message);
    }

    // ---- who is there

    fn change(&mut self, cx: &mut Context<'_>, change: membership::MemberChange) {
        use membership::MemberChange;
        match change {
            MemberChange::Joined => {
                let me = cx.view.me().peer;
                // The first life has the name that the table was made with. In a later one the
                // sheet goes on under the new name, and circuits do not.
                if cx.table.me() != me {
                    cx.table.rename(cx.actions, cx.now, me);
                    self.spread.rename();
                    self.relay.clear(cx);
                }
                self.storage.come_in(cx);
                self.root.come_in(cx);
                self.keep_roots(cx);
            }
            MemberChange::In(peer) => {
                // A node that is back was not taken down by any job.
                cx.table.came_back(cx.now, peer);
                self.steal.joined(cx);
                self.root.joined(cx, peer);
                self.look_after_roots(cx);
                // Rule `Welcome`: without the table a joiner's stolen jobs look themselves up in
                // vain. The master alone gives it, or every node would.
                if self.root.is_master(cx.view) {
                    self.spread.welcome(cx, peer);
                    self.storage.welcome(cx, peer);
                }
            }
            MemberChange::Out(gone, why) => {
                // Repair before election: a new master that begins at once must find the orphans in
                // the table.
                self.life_ended(cx, &gone, why.into());
                self.root.life_ended(cx, &gone, why, self.membership);
                self.look_after_roots(cx);
            }
            MemberChange::Over(mates) => {
                // The other `main` may never call the root jobs that this side's has begun.
                self.shared.forget_roots(cx, |root| root.is_of_main());
                for mate in &mates {
                    self.life_ended(cx, mate, repair::LifeEnd::Left);
                }
                self.repair.come_over(cx);
                self.root.come_over(cx);
                self.storage.come_over();
                self.keep_roots(cx);
            }
            MemberChange::Anew(peer) => {
                // Other nodes have dealt with the end of this node's old life: on this side it must
                // end too, or what this node runs would be no orphan, and its origins would do all
                // of it again.
                if cx.config.obeys(Rule::Rebirth)
                    && let Some(other) = cx.view.get(peer).cloned()
                {
                    self.life_ended(cx, &other, repair::LifeEnd::Ours);
                }
                cx.table.came_back(cx.now, peer);
                self.steal.joined(cx);
                self.root.anew(cx, peer);
            }
        }
    }

    fn life_ended(&mut self, cx: &mut Context<'_>, gone: &Identity, end: repair::LifeEnd) {
        // Circuits through the dead first: what follows is said to others by ways that still exist.
        for (other, epoch) in self.relay.forget(cx, gone.peer) {
            self.disconnected(cx, other, epoch);
        }
        cx.books.holders.life_ended(gone.peer);
        self.shared.life_ended(cx, gone.peer);
        self.bounds.life_ended(cx, gone.peer);
        cx.homes.life_ended(cx.now, gone.peer);
        // Copies of what the dead one had are announced with the orphans, before anybody looks for them.
        let died = end == repair::LifeEnd::Died;
        for (term, saved) in self.buddies.life_ended(gone.peer, died) {
            self.repair.keep(cx, term, saved);
        }
        let is_master = self.root.is_master(cx.view);
        if died && (self.storage).reads_log(cx, gone.peer, is_master) {
            cx.table.await_log(gone.peer);
        }
        // Results that the dead one had taken, and of which this node keeps a part, are announced then, too. If only this node's old life is
        // over, the peer goes on with them.
        if end != repair::LifeEnd::Ours {
            let left = cx.books.kept_here.taker_gone(gone.peer.id);
            self.repair.keep_left_behind(cx, left.results);
            if !left.rest.is_empty() {
                cx.unneeded(gone.peer.id, cx.view.me().peer.id, left.rest);
            }
        }
        self.repair.life_ended(cx, gone, end);
        self.steal.life_ended(gone.peer);
        self.keeping.life_ended(cx, gone.peer);
    }

    /// Keeps what stands in the store, as if another node had left it.
    fn load(&mut self, cx: &mut Context<'_>, batch: Batch) {
        let (late, offers) = self.bounds.divide(cx, batch.offers);
        // Bounds first: the results were computed under them.
        self.bounds.loaded(cx, offers, self.lattices);
        let facts = batch.facts.into_iter().map(|fact| fact.saved);
        self.repair.keep_stored(cx, cx.term, facts.collect());
        self.keep_bounds(cx, late);
    }

    /// Keeps bounds of root jobs that are over beside their results, which have come with them and go first.
    fn keep_bounds(&mut self, cx: &Context<'_>, late: Vec<Offer>) {
        let late = late.into_iter().filter(|offer| cx.books.keeps(offer.root));
        self.bounds.keep(late.collect(), self.lattices);
    }

    /// The workers have told what they have gathered.
    fn gathered(&mut self, cx: &mut Context<'_>, reader: HarvestReader, mut gathered: Gathered) {
        if reader != HarvestReader::Storage {
            // The values may be gone with this node. What is below such a result is there too.
            (gathered.facts).retain(|fact| fact.saved.answer.needs().is_empty());
        }
        // The bounds of root jobs that are over are forgotten, but those beside the results of the root jobs themselves: what a
        // worker or a `main` that yielded still has of them is not worth keeping.
        let is_over = |id: &JobId| self.repair.is_over(cx.term, id);
        gathered.facts.retain(|fact| !is_over(&fact.saved.name.id));
        match reader {
            HarvestReader::Buddy => self.buddies.gathered(cx, gathered),
            HarvestReader::Heir => self.gathered_of_main(cx, gathered),
            HarvestReader::Storage => {
                (cx.books).retain_newly_kept(|name| name.id.is_root_job() || !is_over(&name.id));
                self.storage.gathered(cx, gathered, self.bounds);
            }
        }
    }

    /// What this node, which leaves, has of `main`'s root job is to be had here until it goes.
    fn gathered_of_main(&mut self, cx: &mut Context<'_>, gathered: Gathered) {
        let Some((term, asked)) = self.leaving.gathered() else {
            return;
        };
        // Hosted jobs go on here as long as there is time: what is below them is not for others yet.
        let hosted: Vec<_> = (gathered.under.iter())
            .filter(|job| !job.is_root_job())
            .collect();
        let facts = gathered.facts.into_iter().map(|fact| fact.saved);
        let of_main =
            facts.filter(|fact| !hosted.iter().any(|job| job.is_ancestor_of(&fact.name.id)));
        self.repair.keep(cx, term, of_main.collect());
        for peer in asked {
            self.spread.versions(cx, peer, &[]);
        }
    }

    /// Goes when what is finished here is in the store; at once if there is none.
    fn write_last_and_go(&mut self, cx: &mut Context<'_>, then: stable::AfterLast) {
        if !self.storage.writes_last(cx, then) {
            self.go_after_last(cx, then);
        }
    }

    fn go_after_last(&mut self, cx: &mut Context<'_>, then: stable::AfterLast) {
        match then {
            stable::AfterLast::Leave(end) => self.drain(cx, end.saturating_sub(cx.now)),
            stable::AfterLast::End(code) => self.main_ended(cx, code),
        }
    }

    /// The end of the pool; or, if another node runs `main` by now, of this node's part.
    fn main_ended(&mut self, cx: &mut Context<'_>, code: i32) {
        if !self.root.main_ended(cx, code) {
            self.go(cx);
        }
    }

    /// This node leaves within that time.
    fn drain(&mut self, cx: &mut Context<'_>, grace: Duration) {
        match self.leaving.begin(cx, self.root, grace) {
            repair::Begun::Now => {
                self.steal.drain(cx);
                repair::Repair::drain(cx);
                if self.leaving.is_yielding() {
                    repair::Repair::disown_main(cx);
                }
            }
            repair::Begun::Before => {}
            // No node could take over anything.
            repair::Begun::Alone => self.go(cx),
        }
    }

    /// Says goodbye, whatever is left undone.
    fn go(&mut self, cx: &mut Context<'_>) {
        self.steal.leave(cx);
        self.repair.leave(cx);
        // The outboxes go out before the goodbye: after it nobody listens.
        self.steal.say(cx);
        self.membership.leave(cx);
    }

    /// Results that outlive their jobs' parents stay here, or go to the heir of this node.
    fn save(&mut self, cx: &mut Context<'_>, saved: Vec<Saved>) {
        if saved.is_empty() {
            return;
        }
        if let Some(saved) = self.leaving.takes(saved) {
            self.repair.keep(cx, cx.term, saved);
        }
    }

    /// After a change of the view: are results of root jobs to be kept by others, and do enough nodes keep them?
    fn look_after_roots(&mut self, cx: &mut Context<'_>) {
        self.keep_roots(cx);
        // Without a death or a kept result there is nothing to look after.
        if !cx.config.obeys(Rule::Replicate) || cx.table.is_blank() {
            return;
        }
        for name in cx.books.root_results() {
            let owners = cx.table.owners(&name);
            // A result with one owner dies with it. The only owner sees to a second one, so that
            // not all nodes do.
            if owners.len() == 1
                && let Some(saved) = repair::Repair::kept(cx, &name)
            {
                self.keeping.again(cx, saved, &owners);
            }
        }
    }

    /// The master keeps the results of root jobs, if there is anybody to keep them with.
    fn keep_roots(&mut self, cx: &mut Context<'_>) {
        let keep = self.root.is_master(cx.view) && (cx.view.len() > 1 || cx.config.has_store());
        // Alone, `main` need not wait for keepers, and the workers need not write results down.
        if keep != *self.keeps_roots {
            *self.keeps_roots = keep;
            cx.actions.push_back(Action::KeepRoots(keep));
        }
    }

    fn root_begins(&mut self, cx: &mut Context<'_>, root: RootName) {
        let is_kept = cx.table.owner(&root.job_name(), cx.view).is_some();
        // A root job whose result is kept is claimed, not run: it takes nobody down.
        if root.is_of_main() && !is_kept {
            self.root.begins(root);
        }
    }

    fn root_done(&mut self, cx: &mut Context<'_>, run: RootRun) {
        // The word of a `main` that is being stopped: the next one calls the same root job, and
        // wants what is kept below.
        if is_called_again(cx, run) {
            return;
        }
        self.repair.root_over(cx, run.tag());
        self.buddies.root_over(run.name);
        self.root.is_over(run.name);
        let Parts {
            bounds, keeping, ..
        } = self;
        bounds.root_done(run, &|root| needs_bounds(cx.books, keeping, root));
        self.shared.root_done(cx, run.name);
        (cx.books.holders).forget_roots(|other| run.name.ends(other));
        (cx.books.kept_here).forget_roots(|other| run.name.ends(other));
        cx.actions.push_back(Action::ForgetRoot(run.name));
    }

    /// The root jobs of which anything is here.
    fn known_roots(&self, books: &books::Books) -> impl Iterator<Item = RootName> {
        (self.bounds.roots())
            .chain(self.shared.roots())
            .chain(self.buddies.roots())
            .chain(books.roots_of_orphans())
            .chain(books.holders.roots())
            .chain(books.kept_here.roots())
    }

    /// Asks for words that were lost: who is master, which root jobs are over.
    fn ask_again(&mut self, cx: &mut Context<'_>) {
        if !self.root.asks_again(cx) {
            return;
        }
        let known: BTreeSet<_> = self.known_roots(cx.books).collect();
        // Other nodes may have asked for a value, or offered a bound, of a root job that is
        // over here, and no message will say so.
        let over = cx.homes.own_over(cx.view, &known);
        for run in over.into_iter().chain(self.root.last_over(cx.view)) {
            self.root_done(cx, run);
        }
        let asked = cx.homes.ask(cx.now, cx.view, &known);
        cx.actions.extend(asked);
        let Parts {
            bounds, keeping, ..
        } = self;
        let gone = bounds.sweep(&|root| needs_bounds(cx.books, keeping, root));
        // Not those of `main`, with which all before them end: a new `main` may be at those again. They go with the next
        // one of their number, or a higher one, that ends.
        let gone = gone.into_iter().filter(|root| !root.is_of_main());
        cx.actions.extend(gone.map(Action::ForgetRoot));
    }

    /// Forgets root jobs of processes that did not come back: no word will ever end them.
    fn forget_homes(&mut self, cx: &mut Context<'_>) {
        let orphaned = (cx.homes).orphaned(cx.now, cx.view, self.known_roots(cx.books));
        for root in orphaned {
            self.repair.forget_root(cx, root);
            self.buddies.root_over(root);
            self.bounds.forget(root);
            self.shared.forget_roots(cx, |other| other == root);
            cx.books.holders.forget_roots(|other| other == root);
            cx.books.kept_here.forget_roots(|other| other == root);
            cx.actions.push_back(Action::ForgetRoot(root));
        }
    }

    /// Lets an arrival go on once its shared values are here; they may be already.
    fn bring(&mut self, cx: &mut Context<'_>, from: Peer, then: Then) {
        if matches!(then, Then::Start(..)) && cx.table.is_loading(cx.view) {
            return self.storage.put_off(from, then);
        }
        let root_number = cx.books.root_number_of(&then);
        let ready = (self.shared).bring(cx, from, root_number, then, self.lattices);
        if let Some(then) = ready {
            self.repair.go_on(cx, then);
        }
    }

    /// Brings a value that another node keeps for this one.
    fn bring_kept(&mut self, cx: &mut Context<'_>, kept: &KeptElsewhere) {
        let KeptElsewhere { name, root, .. } = *kept;
        self.shared.root_started(root);
        // What this node keeps is here, or nowhere; and nodes that have borrowed a value outlive its keeper.
        let is_other = |peer: &Peer| *peer != cx.view.me().peer;
        let keeper = cx.view.life_of(NodeId(kept.at)).filter(is_other);
        let borrowers = cx.books.holders.of(name).filter(is_other);
        let then = Then::Local(kept.ticket, name);
        let ready = match keeper.or_else(|| borrowers.min()) {
            _ if self.lattices.holds(name) => Some(then),
            Some(holder) => (self.shared).bring(cx, holder, root.number, then, self.lattices),
            None => Some(Then::Lost(kept.ticket, name)),
        };
        if let Some(then) = ready {
            self.repair.go_on(cx, then);
        }
    }

    /// An arrival goes on, as its values are here. One that was here before the others came may have had to make room.
    fn go_on(&mut self, cx: &mut Context<'_>, then: Then) {
        let is_here = |name: &ValueName| self.lattices.holds(*name);
        if let Then::Start(key, parcel) = &then
            && !parcel.lent.is_empty()
            && !parcel.needs.iter().all(is_here)
            && let Some(origin) = cx.books.look(*key).and_then(books::Hosted::origin)
        {
            return self.bring(cx, origin, then);
        }
        let borrowed = then.borrowed().to_vec();
        self.repair.go_on(cx, then);
        if !borrowed.is_empty() {
            cx.actions.push_back(Action::Borrowed(borrowed));
        }
    }

    /// The next message that was put aside, if it can be heard now.
    fn take_early(&mut self) -> Option<(Peer, Message)> {
        if self.early.is_empty() || self.membership.is_searching() {
            return None;
        }
        let mut early = self.early.iter();
        let next = early.position(|(from, _)| !self.membership.awaits(*from))?;
        self.early.remove(next)
    }

    /// Puts a message aside until this node knows that it is in, and that the sender is. Words about membership are heard before.
    fn receive_or_keep(&mut self, cx: &mut Context<'_>, from: Peer, message: Message) {
        // The welcome may be overtaken: nodes that heard of this one by gossip speak to it already.
        let waits = self.membership.is_searching() || self.membership.awaits(from);
        if message.is_about_membership() || !waits {
            self.receive(cx, from, message);
        } else if self.early.len() < EARLY_MOST {
            self.early.push_back((from, message));
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, from: Peer, message: Message) {
        use Message as M;
        self.membership.heard(cx, from);
        // Rule `Liveness`: jobs from a life that is over here would stay in the books, as its end has been dealt with.
        let alive = cx.view.is_alive(from) || !cx.config.obeys(Rule::Liveness);
        if !message.is_about_membership() && !alive {
            return;
        }
        match message {
            M::Steal {
                request,
                most,
                kind,
            } => self.steal.asked(cx, from, request, most, kind),
            M::Jobs {
                request,
                jobs,
                left,
                sent_ms,
            } => {
                for (_, parcel) in &jobs {
                    // Before the job starts: its workers must know the bounds of its root job.
                    self.bounds.belongs(cx, parcel.root_run());
                }
                (self.steal).answered(cx, from, request, left, &jobs);
                for arrival in self.repair.arrived(cx, from, sent_ms, jobs) {
                    self.bring(cx, from, arrival);
                }
            }
            M::NotWorth(request) => self.steal.refused(cx, from, request),
            M::Cut(request) => self.steal.cut(from, request),
            M::Spent(spent) => steal::Steal::spent(cx, from, &spent),
            M::PartsDone(parts) => steal::Steal::parts_done(cx, from, &parts),
            M::Trial(bytes) => {
                let arrived = Message::TrialArrived(bytes.len() as u64);
                cx.actions.push_back(Action::Send(from, arrived));
            }
            M::TrialArrived(bytes) => self.steal.tried(cx, from, bytes),
            M::Answers(answers) => {
                self.steal.returned(cx, from, &answers);
                for arrival in self.repair.answered(cx, from, answers) {
                    self.bring(cx, from, arrival);
                }
            }
            M::Acknowledge(tokens) => repair::Repair::acknowledged(cx, from, &tokens),
            M::Recall(tokens) => self.repair.recall(cx, from, &tokens),
            M::Lists {
                outstanding,
                hosted,
            } => self.repair.compare(cx, from, outstanding, hosted),
            M::Gossip(packet) => self.membership.gossip(cx, from, &packet, self.root),
            M::Join(identity) => self
                .membership
                .join(cx, from, identity, self.root, self.bounds),
            M::Ask(master) => self.membership.ask(cx, from, &master),
            M::Welcome {
                stamp,
                term,
                branches,
                founder,
                members,
                draining,
                offers,
                lost,
            } => {
                // A second welcome, after the first was taken for lost, changes nothing.
                if self.membership.is_searching() {
                    let me = cx.view.me().peer.id;
                    (self.root).welcome(me, (branches, term), founder, &members);
                    cx.term = term;
                    (self.membership).welcome(cx, stamp, members, draining, lost, self.root);
                    cx.books.come_in(term);
                    self.bounds.come_in();
                    self.bounds.learn(cx, from, offers, self.lattices);
                }
            }
            M::Here { who, side, asks } => {
                self.membership.here(cx, from, who, side, asks, self.root);
            }
            M::DeclaredDead { peer, side } => {
                self.membership
                    .declared_dead(cx, from, peer, side, self.root);
            }
            M::GiveWay { side, to } => {
                self.membership
                    .told_to_give_way(cx, from, side, to, self.root);
            }
            M::Missed(who) => self.membership.missed(cx, who, self.root),
            M::Ping(number) => self.membership.ping(cx, from, number, self.root),
            // A pong says only that its sender lives, which has been noted. A relayed message has
            // been taken out of its envelope before.
            M::Pong(_) | M::Relay(_) => {}
            M::Goodbye => self.membership.goodbye(cx, from),
            // A master of the other side of a cut is none here.
            M::Master { .. } if self.membership.is_over(from) || self.membership.awaits(from) => {}
            M::Master {
                term,
                branches,
                master,
            } => {
                // The welcome names the master, and comes with the view that such a word is judged
                // by.
                if !self.membership.is_searching() {
                    let before = self.root.master(cx.view).map(|master| master.peer.id);
                    self.membership.named(cx, from, &master);
                    self.root.told(cx, from, (branches, term), master);
                    // Another `main` counts its root jobs anew, in a later term or, after a
                    // partition, in the same.
                    if self.root.master(cx.view).map(|master| master.peer.id) != before {
                        self.bounds.begin_again();
                    }
                    self.keep_roots(cx);
                }
            }
            M::Draining => {
                self.root.draining(cx, from, self.membership);
                // A node that leaves keeps nothing any more: another is asked.
                self.keeping.life_ended(cx, from);
                cx.actions.push_back(Action::KeeperLeaves(from.id.0));
            }
            M::Ended { term, master, code } => self.root.ended(cx, from, term, master, code),
            M::Run { run, version } => self.storage.told(cx, from, run, version),
            M::RootsDone(runs) => {
                // After a partition there may be two mains in one term: a root job that is over for
                // the other one is not over for this one.
                let master = self.root.master(cx.view).map(|master| master.peer);
                for run in runs {
                    if !run.name.is_of_main() || master == Some(from) {
                        self.root_done(cx, run);
                    }
                }
            }
            M::AreOver(roots) => {
                if let Some(over) = cx.homes.asked(cx.view, &roots) {
                    cx.actions.push_back(Action::Send(from, over));
                }
            }
            M::Want {
                name,
                root,
                offset,
                how,
                lent,
            } => {
                let want = shared::Want {
                    name,
                    root,
                    offset,
                    how,
                    lent,
                };
                self.shared.wanted(cx, from, want, self.lattices);
            }
            M::Part {
                name,
                offset,
                total,
                bytes,
            } => self.shared.part(cx, from, name, offset, total, bytes),
            M::Elsewhere(name, peer) => self.shared.elsewhere(cx, from, name, peer),
            M::Soon(name) => self.shared.soon(cx, from, name),
            M::Unavailable(name) => {
                // If this node has not asked for it, a thief says so that gives its job back, and may get that again as long as no worker here
                // runs it. (It may be a value whose keeper is not known any more.)
                let is_of_thief = !self.shared.is_fetching(name)
                    || cx.books.holders.keepers(name).next().is_some();
                self.shared.unavailable(cx, from, name);
                if is_of_thief && !self.lattices.holds(name) {
                    cx.actions.push_back(Action::BringHome(name));
                }
            }
            M::Available(name) => self.shared.available(cx, from, name),
            M::Waits {
                name,
                who,
                whom,
                hops,
            } => {
                let waits = shared::Waits {
                    name,
                    who,
                    whom,
                    hops,
                };
                self.shared.waits(cx, from, waits);
            }
            M::Prefetch(wanted) => self.shared.prefetch(cx, from, wanted),
            M::NotPrefetched(name) => cx.books.holders.lacks(from, name),
            M::Unneeded(names) => cx.unneeded(from.id, cx.view.me().peer.id, names),
            M::Have(tokens) => repair::Repair::have(cx, from, &tokens),
            M::Begin(tokens) => repair::Repair::begin(cx, from, &tokens),
            M::Go(tokens) => self.repair.go(cx, from, &tokens),
            M::Disown(tokens) => self.repair.disowned(cx, from, &tokens),
            M::Claim(wanted) => self.repair.claim(cx, from, wanted),
            M::Miss(tokens) => self.repair.missed(cx, from, &tokens),
            M::Table(pages) => {
                self.spread.table(cx, from, pages);
                // Closings before announcements: what is closed need not be compared with what was
                // announced.
                for id in cx.table.take_closed() {
                    self.repair.closed(cx, &id);
                }
                let announced = cx.table.take_announced();
                self.repair.heard_of(cx, &announced);
                let is_master = self.root.is_master(cx.view);
                self.repair.close_past(cx, &announced, is_master);
                // Last: `main` may begin now, and is to find what these pages said.
                self.root.heard_table(cx, from);
            }
            // A new master asks like that.
            M::Versions(theirs) if theirs.is_empty() && self.leaving.must_wait(from) => {}
            M::Versions(theirs) => self.spread.versions(cx, from, &theirs),
            // A node that leaves keeps nothing: the sender, which has missed that, is to ask another.
            M::Keep { .. } | M::Copies { .. } if self.leaving.is_leaving() => {
                cx.actions.push_back(Action::Send(from, M::Draining));
            }
            M::Keep { number, saved } => {
                // Kept first, said then: `Kept` is a promise.
                self.save(cx, saved);
                cx.actions.push_back(Action::Send(from, M::Kept(number)));
            }
            M::Kept(number) => self.keeping.kept(cx, from, number),
            M::Copies {
                number,
                under,
                mut saved,
            } => {
                // The word may have been on its way when the root job ended.
                saved.retain(|fact| !self.repair.is_over(cx.term, &fact.name.id));
                self.buddies.copies(cx, from, number, &under, saved);
            }
            M::Copied(number) => self.buddies.copied(from, number),
            M::Abandon { token, heir, below } => {
                let deal = Deal::new(from, token);
                self.repair.abandoned(cx, deal, heir, &below);
            }
            M::Offers(offers) => self.bounds.improve(cx, from, offers, self.lattices),
            M::OffersWith(offers, cargo @ Cargo::Keep { .. }) => {
                self.receive(cx, from, cargo.into());
                let (late, offers) = self.bounds.divide(cx, offers);
                self.keep_bounds(cx, late);
                self.bounds.improve(cx, from, offers, self.lattices);
            }
            M::OffersWith(offers, cargo) => {
                // Bounds first: the job prunes by them, and the result was computed under them.
                self.bounds.improve(cx, from, offers, self.lattices);
                self.receive(cx, from, cargo.into());
            }
            M::LargeOffers { version, offers } => {
                self.bounds.improve(cx, from, offers, self.lattices);
                cx.actions.push_back(Action::Send(from, M::Had(version)));
            }
            M::Had(version) => self.bounds.had(from, version),
        }
    }
}

/// Does the master of the day call that root job again? Then what is kept below it is wanted, though a `main` of an
/// earlier term, which has not been stopped yet, has its result.
fn is_called_again(cx: &Context<'_>, run: RootRun) -> bool {
    run.name.is_of_main() && run.term < cx.term
}

/// Are the bounds of that root job, which is over, still to be had here?
fn needs_bounds(books: &books::Books, keeping: &repair::Keeping, root: RootName) -> bool {
    // The node that was to keep the result may not have it: if it is sent once more, so are the bounds. And whoever waits
    // for a part of that root job may not have heard of the end. (A result that is kept here is hosted.)
    keeping.hands_out(root) || books.hosts(root)
}

/// An arrival that goes on once its shared values are here.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Then {
    /// A hosted job starts.
    Start(HostedId, Parcel),
    /// An answer is delivered.
    Answer(Deal, Answer),
    /// The hosted job is refused, as one of its values cannot be had any more.
    Refuse(HostedId, ValueName),
    /// The answer mentions a value that cannot be had any more: the job is done again here.
    Redo(Deal, ValueName),
    /// A value that another node kept for this one is here, under the number of the request.
    Local(u64, ValueName),
    /// Nobody has it any more.
    Lost(u64, ValueName),
}

impl Then {
    /// The values that must be at hand before.
    pub(crate) fn needs(&self) -> &[ValueName] {
        match self {
            Then::Start(_, parcel) => &parcel.needs,
            Then::Answer(_, Answer::Result { needs, .. }) => needs,
            Then::Local(_, name) => std::slice::from_ref(name),
            _ => &[],
        }
    }

    /// Those of them that are kept only as long as there is room, once the arrival has gone on.
    pub(crate) fn borrowed(&self) -> &[ValueName] {
        match self {
            Then::Start(_, parcel) => parcel.lent_names(),
            Then::Local(_, name) => std::slice::from_ref(name),
            _ => &[],
        }
    }
}
