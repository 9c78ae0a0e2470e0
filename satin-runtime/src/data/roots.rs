//! The root job that a thread works for: a bound holds for a single root job.
//!
//! The worker knows the root job of the running job. Beside those there are sequential runs (`seq!`, the feature
//! `serial`), which are root jobs without a pool. In this process each has a number of its own, never used again.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    job::RootName,
    worker::{self, RootKey, RootWatch},
};

/// A root job. The values that bounds keep for it may go when the last holder is gone.
pub(super) struct LiveRoot {
    pub(super) number: u64,
    /// The name that other nodes know; `None` for sequential runs, of which they do not know.
    pub(super) name: Option<RootName>,
}

/// The number of no root job.
pub(super) const NONE: u64 = 0;

struct LiveRoots {
    /// Root jobs under way, from the first time that a job here has asked for them.
    running: BTreeMap<RootKey, Arc<LiveRoot>>,
    /// Root jobs that have a result, which their callers do not know yet.
    ended: BTreeMap<RootKey, Arc<LiveRoot>>,
    latest: Weak<LiveRoot>,
    /// Root jobs of threads other than `main`'s that are over: values for their late jobs are not kept. The last
    /// [`FORGOTTEN`], in the order in which they ended.
    forgotten: VecDeque<RootKey>,
}

/// Too small: jobs of a root job that ended long ago leave a cell for ever. Too large: memory.
const FORGOTTEN: usize = 1024;

static ROOTS: Mutex<LiveRoots> = Mutex::new(LiveRoots {
    running: BTreeMap::new(),
    ended: BTreeMap::new(),
    latest: Weak::new(),
    forgotten: VecDeque::new(),
});

thread_local! {
    /// The last root job that a job on this thread has asked for, and its number.
    static KNOWN: Cell<Option<(RootKey, u64)>> = const { Cell::new(None) };
    /// The number of the sequential run on this thread.
    static ALONE: Cell<u64> = const { Cell::new(NONE) };
    /// The sequential run on this thread, or else the last root job that this thread has called and seen end.
    static OWN: RefCell<Option<Arc<LiveRoot>>> = const { RefCell::new(None) };
}

/// The root job for which this thread works, or [`NONE`].
#[inline]
pub(super) fn here() -> u64 {
    match worker::current_root() {
        Some(key) => match KNOWN.get() {
            Some((known, number)) if known == key => number,
            _ => look_up(key),
        },
        None => ALONE.get(),
    }
}

#[cold]
fn look_up(key: RootKey) -> u64 {
    let number = root(key).number;
    KNOWN.set(Some((key, number)));
    number
}

/// As [`here`], or, outside of jobs, the root job whose values are shown there: the last that this thread has called, or
/// if it has called none, the latest of the process.
#[inline]
pub(super) fn shown_here() -> u64 {
    match here() {
        NONE => shown_outside(),
        number => number,
    }
}

#[cold]
fn shown_outside() -> u64 {
    let own = OWN.with_borrow(|own| own.as_ref().map(|root| root.number));
    own.or_else(|| lock().latest.upgrade().map(|root| root.number))
        .unwrap_or(NONE)
}

/// The root job for which this thread works, as [`here`], for a caller that keeps a value for it.
pub(super) fn root_here() -> Option<Arc<LiveRoot>> {
    match worker::current_root() {
        Some(key) => {
            let root = root(key);
            KNOWN.set(Some((key, root.number)));
            Some(root)
        }
        None if ALONE.get() == NONE => None,
        None => OWN.with_borrow(Option::clone),
    }
}

/// The root job of that name.
pub(super) fn root(key: RootKey) -> Arc<LiveRoot> {
    let mut roots = lock();
    if let Some(root) = roots.running.get(&key) {
        return Arc::clone(root);
    }
    worker::watch_roots(RootWatch { ended, returned });
    let root = new(Some(key.name));
    if !roots.forgotten.contains(&key) {
        roots.running.insert(key, Arc::clone(&root));
        roots.latest = Arc::downgrade(&root);
    }
    root
}

fn new(name: Option<RootName>) -> Arc<LiveRoot> {
    static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
    Arc::new(LiveRoot {
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        name,
    })
}

/// A root job of this process has its result. From here on [`forget`] leaves what was kept for it to its caller.
fn ended(key: RootKey) {
    let mut roots = lock();
    if let Some(root) = roots.running.remove(&key) {
        roots.ended.insert(key, root);
    }
}

/// The calling thread has called that root job, and goes on.
fn returned(key: RootKey) {
    let root = lock().ended.remove(&key);
    // A root job whose jobs never asked has no values: then the values of the root job before are not shown any more
    // either.
    let root = root.unwrap_or_else(|| new(None));
    if ALONE.get() == NONE {
        OWN.set(Some(root));
    }
}

/// The root job is over, wherever it ran. Root jobs of a `main` run one after another: so all before it are over too,
/// also those called in an earlier term with other arguments.
pub(super) fn forget(key: RootKey) {
    let mut roots = lock();
    roots.running.retain(|other, _| !key.ends(*other));
    if !key.name.is_of_main() {
        roots.forgotten.push_back(key);
        if roots.forgotten.len() > FORGOTTEN {
            roots.forgotten.pop_front();
        }
    }
}

/// True for a root job of another thread than `main`'s that has been over for some time.
pub(super) fn is_forgotten(key: RootKey) -> bool {
    lock().forgotten.contains(&key)
}

fn lock() -> MutexGuard<'static, LiveRoots> {
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives this thread runs a sequential program, for which bounds start afresh; unless it is in a job, or
/// in such a program, already.
#[must_use = "it begins and ends a sequential run"]
pub struct Alone(bool);

impl Alone {
    /// Begins a sequential run.
    #[inline]
    pub fn begin() -> Alone {
        let begins = ALONE.get() == NONE && worker::current_root().is_none();
        if begins {
            begin();
        }
        Alone(begins)
    }
}

fn begin() {
    let root = new(None);
    ALONE.set(root.number);
    lock().latest = Arc::downgrade(&root);
    OWN.set(Some(root));
}

impl Drop for Alone {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            ALONE.set(NONE);
        }
    }
}
