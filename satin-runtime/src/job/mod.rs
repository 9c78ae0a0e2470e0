//! What a job is: one invocation of a spawnable function, with its arguments and a place for its result.
//!
//! * [`codec`]: where values of the user become bytes, and bytes values.
//! * [`id`]: the path from the root to the job, and the fingerprint that says what it computes.
//! * [`kinds`]: how each kind of argument is lent, sent and copied back.
//! * [`function`]: spawnable functions as the runtime sees them, their vtables and their registry.
//! * [`needs`]: which shared values a job mentions.
//! * [`orphans`]: what workers know of the orphan table, and by which rules a marked job looks itself up.
//! * [`parcel`]: a job as it travels.
//! * [`repair`]: what is known of earlier runs of a job.
//! * [`record`]: the 64 bytes in which a job waits to be run.
//! * [`travel`]: the names that a job has while it is between nodes.
//!
//! Knows nothing of threads, deques or other nodes.

pub mod codec;
pub mod function;
pub mod id;
pub mod kinds;
pub mod needs;
pub mod orphans;
pub mod parcel;
pub mod record;
pub mod repair;
pub mod travel;

pub use function::{Function, Info, VTable, by_number, number_of, program_hash, registered};
pub use id::{Fingerprint, JobId};
pub use orphans::{Kin, OrphanIndex};
pub use parcel::{Answer, BoundName, Offer, Parcel, RootName, RootRun, RootTag, ValueName};
pub use repair::{Back, Deadly, History, OrphanNews, Recall, Saved};
pub use travel::{DepartureId, HostedId, Taken};
