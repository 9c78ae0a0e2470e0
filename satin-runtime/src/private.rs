//! Items that expansions of the macros use. Not public API: no promise holds here between releases.

pub use crate::data::{Alone, Bound, BoundRegistration};
pub use crate::job::function::{
    Args, Call, Function, Info, Prepared, Registration, Speculative, U0, U1, U2, Unroll, VTable,
};
pub use crate::job::kinds::{Argument, BorrowedArgument, Kinds, Mut, MutSlice, Ref, Value};
pub use crate::look_for_plain;
pub use crate::satin::main;
pub use crate::worker::{
    Accumulate, AccumulateInOrder, Changes, ChangesAll, Child, Cx, Delivery, Either, Entry, Flow,
    Frame, Given, Group, Handle, Keep, Place, Planned, Position, Reads, Scope, Spec, Ticket, enter,
    flow, par_chunks, par_map, par_reduce, par_reduce_chunks, seq_chunks, seq_flow, seq_map,
    seq_reduce, seq_reduce_chunks,
};
pub use inventory;
