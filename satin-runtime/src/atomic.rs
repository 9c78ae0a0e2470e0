//! Atomics and cells that loom can take over: what the protocols between workers are made of.

#[cfg(loom)]
pub(crate) use loom::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
