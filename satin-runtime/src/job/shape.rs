//! What is known of a job before it runs, and what was seen when it ran: by that a node judges whether a job is worth the
//! way to another.

use std::{collections::BTreeSet, time::Duration};

use super::{Parcel, ValueName, ValueSize};

/// A job as it looks before it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobShape {
    /// The function, by its number.
    pub function: u32,
    /// How deep it stands in the tree.
    pub depth: u16,
    /// Bytes of its arguments, about, and of the data that it borrows by name.
    pub bytes: u64,
    /// The arguments have more bytes than that; how many is not known.
    pub is_more: bool,
    /// Bytes of these data alone, which move only where they are not.
    pub lent: u64,
    /// Its large results are kept where it runs: see [`Parcel::keeps`].
    pub keeps: bool,
}

impl JobShape {
    /// The shape of a job that travels.
    #[must_use]
    pub fn of(parcel: &Parcel) -> JobShape {
        let lent = parcel.lent.iter().copied().fold(0, u64::saturating_add);
        JobShape {
            function: parcel.function,
            depth: u16::try_from(parcel.id.depth()).unwrap_or(u16::MAX),
            bytes: lent.saturating_add(parcel.arguments.len() as u64),
            is_more: false,
            lent,
            keeps: parcel.keeps,
        }
    }

    /// The bytes that move in any case.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.lent)
    }
}

/// What would move if a job left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobLoad {
    /// What the job looks like; its arguments go in any case, but for data that it borrows by name.
    pub shape: JobShape,
    /// The parts of which the arguments consist, about, as [`Size::parts`](super::Size::parts); 0 if they are not known.
    pub parts: u64,
    /// The shared values that it mentions, and the data that it borrows by name, those inside of others too: a node that has them not fetches them.
    pub values: Vec<ValueSize>,
    /// Those of them that are not here either: they move wherever the job runs.
    pub absent: BTreeSet<ValueName>,
}

impl From<JobShape> for JobLoad {
    /// The load of a job that mentions no value, and of whose parts nothing is known.
    fn from(shape: JobShape) -> JobLoad {
        let (values, absent) = Default::default();
        JobLoad {
            shape,
            parts: 0,
            values,
            absent,
        }
    }
}

/// The way of a job that has left, as it is known when it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JobTrip {
    /// The node to which it goes, by its number.
    pub to: u128,
    /// Time for a message there and its answer.
    pub round_trip: Duration,
    /// Bytes that move there: arguments, and shared values that are not there.
    pub there: u64,
}

/// What a thief is to get, of what is worth its way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Wants {
    /// Any jobs: its workers have nothing to do.
    #[default]
    Any,
    /// Its workers have tasks of flows: further tasks, of those that nobody else begins with next.
    Surplus,
    /// The same, but only tasks that need what it keeps.
    Kept,
}

/// What a job costs, here and elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobCost {
    /// The time that it takes here.
    pub took: Duration,
    /// The time that its way takes, there and back.
    pub way: Duration,
}

/// A job that has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobSample {
    /// What it looked like.
    pub shape: JobShape,
    /// How long it took, where it ran.
    pub took: Duration,
    /// Bytes of its result and of changed `&mut` arguments.
    pub back: u64,
}
