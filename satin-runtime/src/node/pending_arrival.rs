//! Arrivals that wait for shared values.

use super::Deal;
use crate::job::{Answer, HostedId, Parcel, ValueName};

/// An arrival that goes on once its shared values are here.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PendingArrival {
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

impl PendingArrival {
    /// The values that must be at hand before.
    pub(crate) fn needs(&self) -> &[ValueName] {
        match self {
            PendingArrival::Start(_, parcel) => &parcel.needs,
            PendingArrival::Answer(_, Answer::Result { needs, .. }) => needs,
            PendingArrival::Local(_, name) => std::slice::from_ref(name),
            _ => &[],
        }
    }

    /// Those of them that are kept only as long as there is room, once the arrival has gone on.
    pub(crate) fn borrowed(&self) -> &[ValueName] {
        match self {
            PendingArrival::Start(_, parcel) => parcel.lent_names(),
            PendingArrival::Local(_, name) => std::slice::from_ref(name),
            _ => &[],
        }
    }
}
