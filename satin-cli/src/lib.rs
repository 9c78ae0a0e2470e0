//! The library behind the command `satin`: tests and benches start pools with it too.
//!
//! * [`pool`]: pools of processes on this machine.
//! * [`errors`]: what the book says about each code.
//! * [`kubernetes`]: pools on Kubernetes, as objects for `kubectl`.
//! * [`launch`]: pools on machines that `ssh` reaches.
//! * [`faults`]: the faults that happen to pools.
//! * [`store`]: what outlives a pool, and the credential for it.
//! * [`tables`]: tables as all commands print them.
//! * [`wan`]: slow links between their sites.
//! * [`build`]: the program that is to run, by cargo.
//! * [`coded`]: codes for errors, by which the book explains them.
//!
//! The library takes no part in a pool: nodes get their settings from their environment, and tell by their events
//! how they fared.

pub mod build;
pub mod coded;
pub mod errors;
pub mod faults;
pub mod kubernetes;
pub mod launch;
pub mod pool;
pub mod sites;
pub mod stats;
pub mod store;
pub mod tables;
pub mod units;
pub mod wan;

mod bar;
mod chronicle;
mod guard;
mod output;
mod ports;
