//! Actions: what the node tells its driver to do.

use std::net::SocketAddr;

use super::{Identity, Message, Peer, StorageOrder, Terms};
use crate::job::{
    Answer, Back, DepartureId, HostedId, JobName, Offer, OrphanNews, Parcel, RootName, RootTag,
    Unfit, ValueName,
};

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
    /// Ask whether a process listens at that address. Answered by `Gone` if the machine says no (by ICMP, and
    /// not a firewall in its place), and by nothing otherwise. A process that
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
    /// [`Message::Unavailable`], through [`Node::send`](super::Node::send).
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
    /// The answer to an [`Event::Bring`](super::Event::Bring).
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
    /// This node is cut off from its master, and waits for it.
    CutOff,
    /// This node becomes master of a side of a cut that may not be the only one.
    Branch,
    /// This node comes over to the other side of a cut.
    ComesOver,
    /// The node cannot join, or its pool is gone; the text says why and what to do.
    Failed(String),
    /// A warning, for the log.
    Warning(String),
}
