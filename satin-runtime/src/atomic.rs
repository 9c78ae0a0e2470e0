//! Atomics and cells of the protocols between workers, which loom can take over.

#[cfg(loom)]
pub(crate) use loom::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// Lets a little time pass while another thread does a few instructions; a whole turn if it seems to have no processor.
pub(crate) fn pause(rounds: u32) {
    #[cfg(loom)]
    {
        let _ = rounds;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if rounds < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
