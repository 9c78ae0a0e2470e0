//! Flows: ordinary sequential code whose calls become tasks, of which each waits for what it reads and for nothing else.
//!
//! The closure of a flow runs once, on one worker, in the order of the program. Each of its calls ([`Flow::task`], by the macro `task!`)
//! notes for every argument the version of the data that is the last one at this point of the program ([`version`]), and says which versions
//! it will make. When all that it reads is there, the task is put on a [board](board), from which workers take it; what it makes is read by
//! others at once, without a lock. A task that changes data works in place if nobody else holds the version before, and on a copy otherwise, so
//! nobody waits for a reader.
//!
//! | file | |
//! | --- | --- |
//! | `waiters` | who waits for a version: a stack that its writer closes (loom tests beside it) |
//! | `version` | what one task has made of a piece of data |
//! | `arguments` | handles and their modes; what a task holds of each argument |
//! | `sums` | handles to which tasks add |
//! | `away` | data that another node keeps, and what makes them again |
//! | `prefetch` | showing what is made to who waits for it, and telling nodes what they may fetch already |
//! | `task` | making, running and ending a task |
//! | `abroad` | tasks that are best run by the nodes that keep what they need |
//! | `board` | tasks that can run, and those that are elsewhere |
//!
//! Tasks are jobs: children of the flow's invocation, numbered in the order of the program. So they leave through the gate, come back, are
//! looked up among the orphans and found in a store, as spawned calls are.

#[cfg(not(loom))]
mod abroad;
#[cfg(not(loom))]
mod arguments;
#[cfg(not(loom))]
mod away;
#[cfg(not(loom))]
mod board;
#[cfg(not(loom))]
mod closure;
#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
mod sums;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod version;
mod waiters;

#[cfg(not(loom))]
pub use self::{
    arguments::{
        Changes, ChangesAll, Given, Many, Parts, Read, ReadMany, Reads, Write, many, r, rw,
    },
    closure::{FlowBody, flow, seq_flow},
    handles::{Flow, Handle, Made, TakeAll},
    sums::{Add, Additive, acc},
};
#[cfg(not(loom))]
pub(super) use self::{
    away::{AsideTask, Waiter},
    board::{Boards, ReadyTask},
    core::FlowCore,
};

#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod handles;
