//! Versions: what one task has made of a piece of data. Whoever reads one holds it.

use std::{
    cell::UnsafeCell,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{
    away::{RemoteData, Risk},
    task::TaskHead,
    waiters::Waiters,
};
use crate::job::{
    codec::{self, CodecError, Effort},
    kinds::{Carried, CarriedRef, Travels},
    loans::{Lendable, LentName},
};

/// What one task makes of a piece of data: empty until then, and not changed any more afterwards.
pub struct Version<T> {
    pub(super) waiters: Waiters<TaskHead>,
    value: UnsafeCell<Option<VersionValue<T>>>,
    /// The worker that has made it: its data are in that worker's cache, as far as they are in one.
    maker: AtomicU32,
    /// Its name, if it is to travel.
    name: LentName,
}

/// Where a version's data are.
enum VersionValue<T> {
    /// In the version, whose one holder may change them.
    Own(T),
    /// Elsewhere, and others may look at them.
    Shared(Arc<dyn Deref<Target = T> + Send + Sync>),
    /// Another node keeps them.
    Away(Box<RemoteData<T>>),
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
            name: LentName::default(),
        })
    }

    /// A version that is there.
    pub(super) fn made(value: T) -> Arc<Version<T>> {
        Version::of(VersionValue::Own(value))
    }

    /// A version whose data are elsewhere.
    pub(super) fn shared(value: Arc<dyn Deref<Target = T> + Send + Sync>) -> Arc<Version<T>> {
        Version::of(VersionValue::Shared(value))
    }

    fn of(value: VersionValue<T>) -> Arc<Version<T>> {
        Arc::new(Version {
            waiters: Waiters::none(),
            value: UnsafeCell::new(Some(value)),
            maker: AtomicU32::new(NOBODY),
            name: LentName::default(),
        })
    }

    /// Puts the value in, which that worker has made, if it was one.
    ///
    /// # Safety
    /// The caller is the one writer, and has not closed the stack of waiters.
    pub(super) unsafe fn put(&self, value: T, maker: Option<u32>) {
        self.maker.store(maker.unwrap_or(NOBODY), Ordering::Relaxed);
        // SAFETY: nobody looks at the value before the stack is closed.
        unsafe { *self.value.get() = Some(VersionValue::Own(value)) }
    }

    /// Notes that another node keeps the value.
    ///
    /// # Safety
    /// As for `put`.
    pub(super) unsafe fn put_away(&self, away: RemoteData<T>) {
        // SAFETY: as for `put`.
        unsafe { *self.value.get() = Some(VersionValue::Away(Box::new(away))) }
    }

    /// The worker that has made the value, if it was one.
    pub(super) fn maker(&self) -> Option<u32> {
        let maker = self.maker.load(Ordering::Relaxed);
        (maker != NOBODY).then_some(maker)
    }

    fn value(&self) -> Option<&VersionValue<T>> {
        if !self.waiters.are_closed() {
            return None;
        }
        // SAFETY: the stack is closed, so nobody writes any more.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// The value, once it is there; `None` also if another node keeps it, or if its task has been given up.
    pub(super) fn look(&self) -> Option<&T> {
        match self.value()? {
            VersionValue::Own(value) => Some(value),
            VersionValue::Shared(value) => Some(value),
            VersionValue::Away(away) => away.look(),
        }
    }

    /// As `look`, but what has come as bytes is not read for that.
    pub(super) fn peek(&self) -> Option<&T> {
        match self.value()? {
            VersionValue::Away(away) => away.peek(),
            _ => self.look(),
        }
    }

    /// The value, if another node has made it and keeps it, or has kept it.
    pub(super) fn away(&self) -> Option<&RemoteData<T>> {
        match self.value()? {
            VersionValue::Away(away) => Some(away),
            _ => None,
        }
    }

    /// What it would take to make the value again, if it is not here.
    pub(super) fn risk(this: &Arc<Version<T>>) -> Risk {
        let missing = this.away().filter(|away| !away.is_here());
        missing.map_or(Risk::default(), |away| away.risk)
    }

    /// Another node keeps the value, and it is not here.
    pub(super) fn is_missing(&self) -> bool {
        self.away().is_some_and(|away| !away.is_here())
    }

    /// Takes the value out of a version that nobody else holds, or else a copy of it.
    pub(super) fn take(this: Arc<Version<T>>) -> Option<T>
    where
        T: Clone,
    {
        match Arc::try_unwrap(this) {
            Ok(version) => Some(match version.value.into_inner()? {
                VersionValue::Own(value) => value,
                VersionValue::Shared(value) => T::clone(&value),
                VersionValue::Away(away) => away.take()?,
            }),
            Err(shared) => shared.look().cloned(),
        }
    }
}

/// The parts that are looked at, once, to find out how large a version is. Too small: data of many parts are taken for parts of each task that reads
/// them. Too large: tasks with such data begin late.
const PARTS: u32 = 1 << 17;

impl<T: Travels + Send + Sync> Lendable for Version<T> {
    fn write(&self, effort: Effort) -> Result<Vec<u8>, CodecError> {
        let Some(value) = self.look() else {
            unreachable!("a task that is written has its inputs");
        };
        let what = "serializing the data of a flow";
        codec::write_for::<Carried<T>, _>(what, &CarriedRef(value), effort)
    }

    fn measure(&self) -> Option<u64> {
        codec::measure(&CarriedRef(self.look()?), PARTS)?.whole()
    }

    fn named(&self) -> &LentName {
        self.away().map_or(&self.name, RemoteData::named)
    }
}
