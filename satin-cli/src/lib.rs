//! What the command `satin` does, as a library: tests and benches start pools with it too.
//!
//! * [`pool`]: pools of processes on this machine.
//! * [`wan`]: slow links between their sites.

pub mod units;
pub mod wan;
