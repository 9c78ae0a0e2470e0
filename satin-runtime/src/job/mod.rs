//! The parts of a job: an invocation of a spawnable function, with its arguments and a place for its result.
//!
//! * [`codec`]: where values of the user become bytes, and bytes values.
//! * `trial`, `fault`: whether a type's values can travel, and what is wrong if they cannot.
//! * [`id`]: the path from the root to the job, and the fingerprint that says what it computes.
//! * [`kinds`]: how each kind of argument is lent, sent and copied back.
//! * [`function`]: spawnable functions as the runtime sees them, their vtables and their registry.
//! * [`harvest`]: results of finished jobs that are kept, in case that those who wait for them are lost.
//! * [`lattices`]: questions of the layers that carry values as bytes to the layer that knows their types.
//! * [`loans`]: data that several jobs borrow, which travel by name.
//! * [`needs`]: the shared values that a job mentions.
//! * [`orphans`]: the orphan table as far as workers know it, and the rules by which a marked job looks itself up.
//! * [`parcel`]: a job as it travels.
//! * [`payload`]: the bytes of arguments and results, shared by all who hold them.
//! * [`repair`]: facts about earlier runs of a job.
//! * [`record`]: the 64 bytes in which a job waits to be run.
//! * [`shape`]: what is known of a job before it runs, and was seen when it ran.
//! * [`stored`]: what stable storage holds of a run.
//! * [`tally`]: what a node counts of deaths and departures.
//! * [`travel`]: the names that a job has while it is between nodes.
//!
//! Knows nothing of threads, deques or other nodes.

pub mod codec;
mod fault;
pub mod function;
pub mod harvest;
pub mod id;
pub mod kinds;
pub mod lattices;
pub mod loans;
pub mod needs;
mod numbers;
pub mod occupation;
pub mod orphans;
pub mod outcome;
pub mod parcel;
pub mod payload;
pub mod record;
pub mod repair;
pub(crate) mod room;
pub(crate) mod scoped;
pub mod shape;
mod size;
pub mod stored;
pub mod tally;
pub mod travel;
mod trial;

pub use function::{Function, Info, VTable, by_number, number_of, program_hash, registered};
pub use harvest::{Fact, Gathered, GatheredFact, Harvest};
pub use id::{Fingerprint, JobId, JobName};
pub use lattices::Lattices;
pub use needs::HeldValue;
pub use numbers::plain;
pub use orphans::{Kin, OrphanIndex};
pub use parcel::{
    Answer, BoundName, History, Kept, Offer, Parcel, RootName, RootRun, RootTag, Unfit, ValueName,
    ValueSize,
};
pub use payload::Payload;
pub use repair::{Back, Deadly, OrphanNews, Recall, Saved};
pub use shape::{JobCost, JobLoad, JobSample, JobShape, JobTrip, Wants};
pub use size::Size;
pub use stored::{Batch, MainBeat, MainNumber, RunName, StoredFact, ValueBytes};
pub use tally::Tally;
pub use travel::{DepartureId, HostedId, KeptElsewhere, Taken};
