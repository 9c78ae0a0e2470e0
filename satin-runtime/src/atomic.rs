//! Atomics and cells of the protocols between workers, which loom can take over.

#[cfg(loom)]
pub(crate) use loom::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};
