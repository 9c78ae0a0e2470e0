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

mod action;
pub(crate) mod books;
#[cfg(any(test, feature = "harness"))]
pub mod cluster;
pub mod config;
mod context;
mod event;
pub mod expiry;
pub mod identity;
#[cfg(any(test, feature = "harness"))]
pub mod inspect;
mod links;
mod machine;
pub mod membership;
pub mod message;
mod pending_arrival;
mod relay;
pub(crate) mod repair;
pub mod root;
mod route;
pub mod shared;
pub mod stable;
pub mod steal;
mod storage_order;
pub mod view;
pub(crate) mod words;

pub use action::{Action, HarvestReader, NodeEnd, Notice};
pub use config::{Judgement, Policy, ProtocolConfig, RepairMode, Rule};
pub(crate) use context::Context;
pub use event::{Arrival, Event, TookJobs};
pub use identity::{Identity, NodeId, Peer};
pub use machine::Node;
pub use message::{
    Deal, Envelope, Message, MessageKind, Page, Prefetch, Relayed, Request, RequestKind,
    SheetChange, Side, Spent, Token, Wanted,
};
pub(crate) use pending_arrival::PendingArrival;
pub use steal::{Asking, JobCosts, Terms};
pub use storage_order::{MainStep, RunEpoch, StorageOrder};
pub use view::View;

pub use crate::job::{DepartureId, HostedId, Lattices, Taken, Tally};
