//! The runtime of [satin](https://docs.rs/satin): all that happens when a program runs.
//!
//! Users depend on `satin`, which re-exports what they need from here. The layers, from the bottom:
//!
//! * [`job`]: the parts of a job: its id, its record in memory, the registry of spawnable functions.
//! * [`worker`]: running jobs on this machine: deque, frame, sync, the pool of threads.
//! * [`data`]: the data that all jobs need beside their arguments: shared values, bounds.
//! * [`stable`]: stores that survive all nodes, and what of a run stands in them.
//! * [`node`]: the protocol between nodes, without sockets, clocks or threads.
//! * [`satin`]: the pool that a program sees.
//! * [`progress`]: how far its root jobs are.
//! * [`config`]: where settings come from.
//! * `dashboard` (feature `dashboard`): what people see of a pool in a browser.
//!
//! `job` knows nothing of workers; `worker` knows nothing of other machines: the [`worker::Gate`] is the narrow door
//! through which jobs leave and enter a process as bytes, whatever stands outside.
#![warn(clippy::undocumented_unsafe_blocks)]
// A difference of times that would be negative panics. On the network thread that costs a turn, so differences end at zero.
#![cfg_attr(not(test), warn(clippy::unchecked_time_subtraction))]

#[cfg(not(loom))]
#[doc(hidden)]
pub mod codes;
#[cfg(not(loom))]
pub mod config;
#[cfg(all(feature = "dashboard", not(loom)))]
pub mod dashboard;
#[cfg(not(loom))]
pub mod data;
#[cfg(not(loom))]
pub mod fence;
pub mod job;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod node;
#[cfg(not(loom))]
pub mod observe;
#[cfg(not(loom))]
pub mod progress;
#[cfg(not(loom))]
pub mod satin;
#[cfg(not(loom))]
pub mod stable;
pub mod worker;

#[cfg(all(feature = "dashboard", not(loom)))]
mod seen;
#[cfg(all(not(feature = "dashboard"), not(loom)))]
#[path = "unseen.rs"]
mod seen;
#[cfg(all(feature = "dashboard", not(loom)))]
pub mod window;

mod atomic;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod exit;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod private;
#[cfg(not(loom))]
mod slurm;
