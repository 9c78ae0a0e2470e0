//! What all jobs need beside their arguments.
//!
//! * `shared`: [`Shared`], an immutable value that travels as a handle; `store`: where its bytes wait, by name.
//!
//! Stands beside `worker` and knows nothing of nodes: whoever drives a node moves the bytes in and out.

mod shared;
mod store;

pub use self::{
    shared::Shared,
    store::{LARGEST_VALUE, Progress, Store, store},
};
