//! A place for the result of each element of a loop.

use std::cell::UnsafeCell;

/// The places of a loop's results. Workers write to them at the same time, each to those of its own elements.
pub(super) struct Places<R>(Vec<UnsafeCell<Option<R>>>);

// SAFETY: a place is looked at by the one thread that has its element, see the methods; what is in it may be on any thread.
unsafe impl<R: Send> Sync for Places<R> {}

impl<R> Places<R> {
    /// So many empty places.
    pub(super) fn new(count: usize) -> Places<R> {
        Places((0..count).map(|_| UnsafeCell::new(None)).collect())
    }

    /// Puts a result in its place.
    ///
    /// # Safety
    /// The caller has the element, and no reference to its result is alive.
    #[inline]
    pub(super) unsafe fn put(&self, at: usize, result: R) {
        // SAFETY: the caller's promise.
        unsafe { *self.0[at].get() = Some(result) }
    }

    /// Takes a result out of its place.
    ///
    /// # Safety
    /// As for [`Places::put`].
    pub(super) unsafe fn take(&self, at: usize) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { (*self.0[at].get()).take() }
    }

    /// The result in a place.
    ///
    /// # Safety
    /// The caller has the element as long as the reference lives.
    pub(super) unsafe fn look(&self, at: usize) -> Option<&R> {
        // SAFETY: the caller's promise.
        unsafe { (*self.0[at].get()).as_ref() }
    }

    /// All results, once the loop is over.
    pub(super) fn into_results(self) -> impl Iterator<Item = Option<R>> {
        self.0.into_iter().map(UnsafeCell::into_inner)
    }
}
