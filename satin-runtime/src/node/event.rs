//! Events: what the driver tells the node.

use std::{net::SocketAddr, time::Duration};

use super::{HarvestReader, Identity, Message, NodeId, Peer, RunEpoch};
use crate::job::{
    Answer, Batch, DepartureId, Gathered, HostedId, JobId, JobLoad, JobName, JobSample,
    KeptElsewhere, MainBeat, Offer, Parcel, Recall, RootName, RootRun, RootTag, Saved, Taken,
    ValueName, ValueSize,
};

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
    /// Answer of an [`Action::Probe`](super::Action::Probe): the machine answers, but nobody listens there any more. Close to a
    /// proof of death.
    Gone(Peer),
    /// Other places where the pool may be found: the driver has looked again.
    Candidates {
        /// The addresses that take the place of [`ProtocolConfig::join`](super::ProtocolConfig::join).
        join: Vec<SocketAddr>,
        /// The answer that takes the place of [`ProtocolConfig::may_found`](super::ProtocolConfig::may_found).
        may_found: bool,
    },
    /// A new estimate of the round trip to a peer, from its link.
    RoundTrip(Peer, Duration),
    /// The first caller of a node that is alone has dialled this, and not the address that the node tells others.
    Readdressed(SocketAddr),

    // ---- workers
    /// The number of idle workers; no hosted job waits for one. Told whenever the number changes.
    Idle(u32),
    /// After an [`Action::Take`](super::Action::Take) that found too little: there is something now. Told once.
    Public,
    /// There are tasks which need what that node keeps: it may have them, even if workers here have nothing to do. Told again after an
    /// [`Action::Take`](super::Action::Take) for that node that found too little.
    KeptFor(NodeId),
    /// The workers have answered an [`Action::Take`](super::Action::Take).
    Took(TookJobs),
    /// A hosted job is done.
    Done(HostedId, Answer),
    /// So much of these hosted jobs is done, in parts of 65,535.
    PartsDone(Vec<(HostedId, u16)>),
    /// A job of ours that is away is not waited for any more.
    Recalled(DepartureId, Recall),
    /// A marked job of ours found itself in the orphan table: it waits for the orphan's answer, or to be put back.
    Claimed(DepartureId, Parcel),
    /// A hosted job was given up, see [`Action::Save`](super::Action::Save); with the results of the jobs below it that were
    /// finished.
    Saved(HostedId, Vec<Saved>),
    /// The jobs that are held here now, or many of them: only other nodes may run them before [`Action::Release`](super::Action::Release). Told
    /// whenever they change.
    Held(Vec<JobName>),
    /// The workers have answered an [`Action::Harvest`](super::Action::Harvest).
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
    /// A part of a result that was kept where it was made is needed here; answered by [`Action::Brought`](super::Action::Brought).
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
    /// The workers need these values no more, which that node keeps for this one.
    Unneeded {
        /// The number of the node.
        at: u128,
        /// The values.
        names: Vec<ValueName>,
    },
    /// A bound has become better here.
    Offered(Offer),

    // ---- storage
    /// Answer of a [`StorageOrder::Open`](super::StorageOrder::Open).
    RunOpened {
        /// The run that goes on.
        run: RunEpoch,
        /// The content of the store.
        batch: Batch,
    },
    /// Answer of a [`StorageOrder::Open`](super::StorageOrder::Open): the run cannot be begun or resumed.
    CannotOpenRun {
        /// The reason.
        text: String,
        /// The store is in order, and the run is not for this pool. False if the store failed.
        is_refused: bool,
    },
    /// Answer of a [`StorageOrder::Write`](super::StorageOrder::Write).
    Written {
        /// The number of the batch.
        number: u64,
        /// The segment of this life's log that it begins in.
        segment: u32,
        /// The bytes that it takes there.
        bytes: u64,
    },
    /// Answer of a [`StorageOrder::Write`](super::StorageOrder::Write): it did not succeed.
    NotWritten {
        /// The number of the batch.
        number: u64,
        /// The reason, in the words of the store.
        text: String,
    },
    /// Answer of a [`StorageOrder::ReadLog`](super::StorageOrder::ReadLog).
    LogRead {
        /// The life whose log it is.
        peer: Peer,
        /// The content of the log; nothing if it cannot be read.
        batch: Batch,
    },
    /// Another pool has begun that epoch of the run, which is later than this one's.
    Superseded(u32),
    /// Answer of a [`StorageOrder::LookAtMain`](super::StorageOrder::LookAtMain).
    MainSeen {
        /// The last sign of life of the latest `main`.
        latest: Option<MainBeat>,
        /// It is the one of this node.
        is_own: bool,
    },
    /// Answer of a [`StorageOrder::LookAtMain`](super::StorageOrder::LookAtMain): the store did not say.
    NoLook,
    /// The run has come to its end with that exit code, at another side of a cut.
    RunIsOver(i32),

    /// The memory of this node is nearly used up, or is not any more.
    MemoryFull(bool),

    // ---- main
    /// `main` has called a root job.
    RootStarted(RootRun),
    /// A root job of this process has its result.
    RootFinished(RootRun),
    /// A root job has its result, which `main` sees after [`Action::RootKept`](super::Action::RootKept): not before those keepers have it that are no further away
    /// than this.
    RootResult(RootTag, Saved, Duration),
    /// `main` is over.
    MainEnded(i32),
    /// `main` is stopped before it is over, by a signal or a panic: with a store, another start goes on. The exit code.
    BrokenOff(i32),
    /// `main` was stopped, see [`Action::YieldMain`](super::Action::YieldMain); with the results of the jobs below its root job that
    /// were finished.
    Yielded(Vec<Saved>),
    /// The process is asked to leave within that time: finish what can be, hand over the rest.
    Drain(Duration),
    /// The process is asked to leave now.
    Leave,
}

/// What the workers answer to an [`Action::Take`](super::Action::Take).
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
