//! Running jobs on this machine. `worker/README.md` explains the protocol between owner and thieves; read it first.
//!
//! * [`deque`](self): the split deque, positions only (loom tests beside it).
//! * `thread`: a worker: looking for work, running what was stolen, waiting at a sync.
//! * `scope`: an invocation and its children: spawn, sync, call; the guards that keep borrows sound.
//! * `group`: any number of children with one closure that delivers their results in spawn order.
//! * `each`: parallel loops, whose elements are jobs of any spawnable function.
//! * `flow`: calls that become tasks, of which each waits for the data that it reads.
//! * `frames`: walks along the chain of frames, from an invocation up to where its job came from.
//! * `pool`: the threads of a pool, how they sleep, how root jobs come in.
//! * `cancel`: calls that any thread may stop, with all below them.
//! * `advice`: warnings about calls that run in sequence by accident.
//! * `root`: root jobs, and what `main` has on top of them.
//! * `prints`: which root jobs of `main` get a fingerprint.
//! * `spawned`: root jobs whose callers do not wait on a thread: a future stands for each.
//! * `gate`: the narrow door through which jobs leave and enter the process as bytes.
//! * `clerk`: a thread with a worker's stack for code of the user that the network thread would have to run otherwise.
//! * `progress`: how much of a root job is done, estimated from the tree.
//! * `sizes`: what is remembered of the size of jobs that are dear to measure.
//! * `harvest`: results of finished jobs that are kept, in case that their parents are lost.
//! * `repair`: marked jobs, which look themselves up among the orphans before they run.
//!
//! Knows nothing of nodes. Together with `job/record.rs` the only unsafe code of Satin.

#[cfg(not(loom))]
mod advice;
#[cfg(not(loom))]
mod area;
mod barrier;
#[cfg(not(loom))]
mod cancel;
#[cfg(not(loom))]
mod clerk;
mod deque;
#[cfg(not(loom))]
mod each;
mod flow;
mod frames;
#[cfg(not(loom))]
mod gate;
#[cfg(not(loom))]
mod group;
#[cfg(not(loom))]
mod harvest;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod prints;
#[cfg(not(loom))]
mod progress;
#[cfg(not(loom))]
mod repair;
#[cfg(not(loom))]
mod root;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod sizes;
#[cfg(not(loom))]
mod sleep;
#[cfg(not(loom))]
mod spawned;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod way;

#[cfg(not(loom))]
pub use self::{
    cancel::{Cancel, Cancelled, TimedOut, run_cancellable, run_timeout},
    each::{
        PartOfLoop, par_chunks, par_map, par_reduce, par_reduce_chunks, seq_chunks, seq_map,
        seq_reduce, seq_reduce_chunks,
    },
    flow::{
        Add, Additive, Changes, ChangesAll, Flow, FlowBody, Given, Handle, Made, Many, Parts, Read,
        ReadMany, Reads, TakeAll, Write, acc, flow, many, r, rw, seq_flow,
    },
    frames::walked,
    gate::{Costs, Gate, Haul, Judge, Outside},
    group::{
        Accumulate, AccumulateInOrder, AnyOrder, Delivery, Either, Entry, Group, InOrder, Jobs,
        Keep, Order, Place, Spec, Stands, Ticket,
    },
    pool::{
        RootKey, RootWatch, StartError, Workers, cancellation_point, current_job, current_root,
        enter, hungry, offer, spawn, watch_roots,
    },
    progress::Progress,
    root::{as_main, wait_for_nodes},
    scope::{Child, Planned, Position, Scope},
    spawned::Spawned,
};
#[cfg(not(loom))]
pub(crate) use self::{
    gate::came_from_afar,
    pool::{NoMain, PoolWatch, current_pool, current_progress},
};
#[cfg(not(loom))]
pub use crate::job::record::{Cx, Frame};
