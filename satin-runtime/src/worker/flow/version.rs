//! Versions: what one task has made of a piece of data. Whoever reads one holds it.

use std::{cell::UnsafeCell, sync::Arc};

use super::{task::TaskHead, waiters::Waiters};

/// What one task makes of a piece of data: empty until then, and not changed any more afterwards.
pub struct Version<T> {
    pub(super) waiters: Waiters<TaskHead>,
    value: UnsafeCell<Option<T>>,
}

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
        })
    }

    /// A version that is there.
    pub(super) fn made(value: T) -> Arc<Version<T>> {
        Arc::new(Version {
            waiters: Waiters::none(),
            value: UnsafeCell::new(Some(value)),
        })
    }

    /// Puts the value in.
    ///
    /// # Safety
    /// The caller is the one writer, and has not closed the stack of waiters.
    pub(super) unsafe fn put(&self, value: T) {
        // SAFETY: nobody looks at the value before the stack is closed.
        unsafe { *self.value.get() = Some(value) }
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
