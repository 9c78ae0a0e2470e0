//! What people see of a pool: a page that a node serves, the same page as a file (`report`), and a trace for Perfetto.
//!
//! All of it is made of a [`History`](crate::observe::history::History): who fills that, and how often, is decided elsewhere. Nothing here asks
//! nodes, and what changes the pool goes through [`Steering`].

mod access;
mod frame;
mod live;
mod metrics;
mod page;
pub mod report;
mod server;
mod steering;
pub mod trace;

pub use metrics::metrics;
pub use server::Dashboard;
pub use steering::Steering;
