//! Versions: what one task has made of a piece of data. Whoever reads one holds it.

use std::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{task::TaskHead, waiters::Waiters};

/// What one task makes of a piece of data: empty until then, and not changed any more afterwards.
pub struct Version<T> {
    pub(super) waiters: Waiters<TaskHead>,
    value: UnsafeCell<Option<T>>,
    /// The worker that has made it: its data are in that worker's cache, as far as they are in one.
    maker: AtomicU32,
}

/// In place of a worker: none.
const NOBODY: u32 = u32::MAX;

// SAFETY: the value is written before the stack of waiters is closed, by the one writer, and only read after that. It is taken out by
// value alone.
unsafe impl<T: Send + Sync> Sync for Version<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Version<T> {}

impl<T> Version<T> {
    /// A version that a task is going to make.
    pub(super) fn empty() -> Arc<Version<T>> {
        Arc::new(Version {
            waiters: Waiters::new(),
            value: UnsafeCell::new(None),
            maker: AtomicU32::new(NOBODY),
        })
    }

    /// A version that is there.
    pub(super) fn made(value: T) -> Arc<Version<T>> {
        Arc::new(Version {
            waiters: Waiters::none(),
            value: UnsafeCell::new(Some(value)),
            maker: AtomicU32::new(NOBODY),
        })
    }

    /// Puts the value in, which that worker has made, if it was one.
    ///
    /// # Safety
    /// The caller is the one writer, and has not closed the stack of waiters.
    pub(super) unsafe fn put(&self, value: T, maker: Option<u32>) {
        self.maker.store(maker.unwrap_or(NOBODY), Ordering::Relaxed);
        // SAFETY: nobody looks at the value before the stack is closed.
        unsafe { *self.value.get() = Some(value) }
    }

    /// The worker that has made the value, if it was one.
    pub(super) fn maker(&self) -> Option<u32> {
        let maker = self.maker.load(Ordering::Relaxed);
        (maker != NOBODY).then_some(maker)
    }

    /// The value, once it is there; `None` also if its task has been given up.
    pub(super) fn look(&self) -> Option<&T> {
        if !self.waiters.are_closed() {
            return None;
        }
        // SAFETY: the stack is closed, so nobody writes any more.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Takes the value out of a version that nobody else holds, or else a copy of it.
    pub(super) fn take(this: Arc<Version<T>>) -> Option<T>
    where
        T: Clone,
    {
        match Arc::try_unwrap(this) {
            Ok(version) => version.value.into_inner(),
            Err(shared) => shared.look().cloned(),
        }
    }
}
