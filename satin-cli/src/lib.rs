//! What the command `satin` does, as a library: tests and benches start pools with it too.
//!
//! * [`pool`]: pools of processes on this machine.
//! * [`faults`]: what is to happen to them.
//! * [`wan`]: slow links between their sites.
//! * [`build`]: the program that is to run, by cargo.
//!
//! Nothing here takes part in a pool: nodes are told by their environment what to do, and tell by their events what they did.

pub mod build;
pub mod faults;
pub mod pool;
pub mod sites;
pub mod stats;
pub mod units;
pub mod wan;

mod chronicle;
mod guard;
mod output;
mod ports;
