//! The names that a job has while it is between nodes, the same from the worker that spawned it to the network.

use super::{Parcel, RootName, ValueName};

/// The name of a job of this node while it is away: given when the job leaves its worker, and never used again. An
/// answer, or the job itself, comes back under this name; if the job has come back meanwhile the name is stale and
/// changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DepartureId(pub u64);

/// Names a job of another node that is here, between the node and the workers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostedId(pub u64);

/// A job that was taken from the workers, to go to another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// A job that a worker here had spawned: away from now on.
    Own(DepartureId, Parcel),
    /// A job that is hosted here and had not been started: it goes on to another node.
    Hosted(HostedId, Parcel),
}

/// A request for a value that another node keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptElsewhere {
    /// The number of the request, which the answer gives back.
    pub ticket: u64,
    /// The value.
    pub name: ValueName,
    /// The number of the node that keeps it.
    pub at: u128,
    /// The root job that needs it.
    pub root: RootName,
}
