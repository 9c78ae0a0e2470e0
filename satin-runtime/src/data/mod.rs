//! The data that all jobs need beside their arguments.
//!
//! * `shared`: [`Shared`], an immutable value that travels as a handle; `store`: where its bytes wait, by name.
//! * `bound`: [`Bound`], a value that only improves; `lattice`: the meaning of "improves"; `roots`: the root job that a
//!   value is for.
//!
//! Stands beside `worker` and knows nothing of sockets: the driver of a node moves bytes and offers in and out.

mod bound;
mod lattice;
mod roots;
mod shared;
mod store;

#[doc(hidden)]
pub use self::{
    bound::{AnyBound, BoundRegistration},
    roots::Alone,
};
pub use self::{
    bound::{Bound, forget_bounds, forget_root, forget_values, improve, join, lattices, manners},
    lattice::{Lattice, Manners, Max, MaxWith, Min, MinWith, Or, Portable, Set, Union},
    shared::Shared,
    store::{LARGEST_VALUE, PieceOutcome, Store, store},
};
