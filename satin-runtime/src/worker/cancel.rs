//! Cancelling: a call is stopped with everything below it, in whichever process that runs.
//!
//! A root job, or a nested entry, is stopped as a sibling of a failed job is: its frame gets [`flag::ABORT`], and each job below unwinds at
//! its next poll. What is new here is who raises the flag: any thread that holds the [`Cancel`] of the scope in which the call was made.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::panicking,
    time::Duration,
};

use super::{gate::FrameRef, pool::Pool, thread::CAN_UNWIND};
use crate::{
    job::record::{Frame, flag},
    observe::log,
};

thread_local! {
    /// The scopes of [`run_cancellable`] that calls from this thread are made in, the innermost last.
    static SCOPES: RefCell<Vec<Cancel>> = const { RefCell::new(Vec::new()) };
}

/// A handle by which any thread stops the calls that are made under it: see [`run_cancellable`]. Clones are the same handle.
///
/// A handle that has cancelled stays so. It may serve several calls, one after the other or at the same time: all of them are stopped.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Mutex<CancelState>>);

#[derive(Default)]
struct CancelState {
    is_cancelled: bool,
    /// The calls that run.
    running: Vec<RunningCall>,
    /// Pools with a root job of these scopes, which perhaps waits for a worker: once for each.
    pools: Vec<Arc<Pool>>,
}

/// A root job or a nested entry that runs.
struct RunningCall {
    frame: FrameRef,
    pool: *const Pool,
}

// SAFETY: the pool is `Sync`, and lives as long as the call runs; `FrameRef` says the same of the frame.
unsafe impl Send for RunningCall {}

/// The calls were stopped: what they had done is lost, but for changes behind `&mut` arguments and what was offered to bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the run was cancelled: its jobs have been stopped, and what they had done is lost; the pool goes on with the next call"
)]
pub struct Cancelled;

/// The calls were stopped, as they were not done in time: what they had done is lost, but for changes behind `&mut` arguments and what was
/// offered to bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the run was not done after {after:?}: its jobs have been stopped, and what they had done is lost; allow more time, or make the problem smaller"
)]
pub struct TimedOut {
    /// The time that was allowed.
    pub after: Duration,
}

/// The payload that unwinds from a call that was cancelled to its [`run_cancellable`]. Not a panic: no hook runs, and no message appears.
struct CancelUnwind;

/// Unwinds the caller of a cancelled call.
pub(super) fn raise_cancelled() -> ! {
    resume_unwind(Box::new(CancelUnwind))
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_cancelled = self.is_cancelled();
        f.debug_struct("Cancel")
            .field("is_cancelled", &is_cancelled)
            .finish_non_exhaustive()
    }
}

impl Cancel {
    /// A handle that has not cancelled anything yet.
    #[must_use]
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Stops the calls that are made under this handle, and those to come. Returns at once: the calls return when their jobs have stopped.
    ///
    /// Any thread may call it: a job too, or the thread of a Ctrl-C handler. Takes locks, so it must not be called by a raw signal handler.
    /// Does nothing the second time.
    pub fn cancel(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_cancelled, true) {
            return;
        }
        for RunningCall { frame, pool } in &state.running {
            // SAFETY: frame and pool live as long as the call is noted, and we hold the lock.
            let (frame, pool) = unsafe { (&*frame.0, &**pool) };
            pool.stop_children(frame, flag::ABORT);
        }
        let pools = state.pools.clone();
        drop(state);
        pools.iter().for_each(|pool| pool.refuse_cancelled_roots());
    }

    /// True once [`Cancel::cancel`] has been called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    fn lock(&self) -> MutexGuard<'_, CancelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `run`, and stops the spawnable functions that it calls once `cancel` says so, with all jobs below them, on all nodes.
///
/// A job stops at its next spawn or sync, or at [`cancellation_point`](super::cancellation_point), by unwinding: its destructors run. The
/// call returns when no job of it runs in this process any more, as jobs may borrow what belongs to the caller; jobs on other nodes are told
/// to stop and not waited for. Then `run` unwinds to here. If it returns instead, as the cancel came after its last call, its result counts.
///
/// Inside a job, calls in `run` stay in this process, as all calls that are not spawned. Calls from threads that `run` starts are not
/// stopped, and neither is a sequential program (`seq!`, the feature `serial`). A program built with `panic = "abort"` cannot unwind: there
/// nothing is stopped.
///
/// # Errors
/// If the calls were cancelled; also if that was before, when `run` is not called at all.
///
/// # Panics
/// Panics with the panic of `run`, or of a job.
pub fn run_cancellable<R>(cancel: &Cancel, run: impl FnOnce() -> R) -> Result<R, Cancelled> {
    if CAN_UNWIND && cancel.is_cancelled() {
        return Err(Cancelled);
    }
    let scope = CancelScope::enter(cancel);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    drop(scope);
    match outcome {
        Ok(result) => Ok(result),
        // Else it is on its way to a scope further out.
        Err(payload) if payload.is::<CancelUnwind>() && cancel.is_cancelled() => Err(Cancelled),
        Err(payload) => resume_unwind(payload),
    }
}

/// As [`run_cancellable`], cancelled when `time` is over. Returns somewhat later than that: when the jobs have stopped.
///
/// # Errors
/// If the calls were not done in time.
///
/// # Panics
/// Panics with the panic of `run`, or of a job; and if the system starts no thread for the clock.
pub fn run_timeout<R>(time: Duration, run: impl FnOnce() -> R) -> Result<R, TimedOut> {
    let cancel = Cancel::new();
    let (done, is_done) = mpsc::channel::<()>();
    let clock = {
        let cancel = cancel.clone();
        move || {
            if is_done.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                cancel.cancel();
            }
        }
    };
    let thread = std::thread::Builder::new().name("satin-timeout".into());
    if let Err(error) = log::spawn(thread, clock) {
        panic!(
            "cannot start a thread for the time limit of a call: {error}; fewer threads (SATIN_THREADS) need less"
        );
    }
    let result = run_cancellable(&cancel, run);
    drop(done);
    result.map_err(|Cancelled| TimedOut { after: time })
}

/// As long as it lives calls from this thread are made under a handle.
struct CancelScope;

impl CancelScope {
    fn enter(cancel: &Cancel) -> CancelScope {
        SCOPES.with_borrow_mut(|scopes| scopes.push(cancel.clone()));
        CancelScope
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        SCOPES.with_borrow_mut(Vec::pop);
    }
}

/// The handles under which a call is made, the innermost last.
#[derive(Clone, Default)]
pub(super) struct Scopes(Vec<Cancel>);

/// Scopes that do not count for calls from this thread, until it is dropped.
pub(super) struct Hidden(Scopes);

impl Drop for Hidden {
    fn drop(&mut self) {
        let Scopes(scopes) = std::mem::take(&mut self.0);
        SCOPES.set(scopes);
    }
}

impl Hidden {
    pub(super) fn scopes(&self) -> &Scopes {
        &self.0
    }
}

impl Scopes {
    /// Those of this thread. None while it unwinds: a destructor's call could not be stopped by unwinding.
    pub(super) fn here() -> Scopes {
        match CAN_UNWIND && !panicking() {
            true => Scopes(SCOPES.with_borrow(Vec::clone)),
            false => Scopes::default(),
        }
    }

    /// Takes those of this thread, for what runs on it but was not called in them, or is stopped already with what was.
    pub(super) fn hide() -> Hidden {
        Hidden(Scopes(SCOPES.take()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn are_cancelled(&self) -> bool {
        self.0.iter().any(Cancel::is_cancelled)
    }

    /// A root job is about to wait for a worker of that pool, as long as the guard lives.
    pub(super) fn queue_in(&self, pool: &Arc<Pool>) -> Queued {
        for cancel in &self.0 {
            cancel.lock().pools.push(Arc::clone(pool));
        }
        Queued {
            scopes: self.clone(),
            pool: Arc::clone(pool),
        }
    }

    /// A call begins: from now on its children can be stopped. `None` if it must not begin.
    ///
    /// # Safety
    /// The frame, and the pool, live as long as the guard.
    pub(super) unsafe fn begin(&self, frame: *const Frame, pool: &Pool) -> Option<CallGuard<'_>> {
        let mut begun = CallGuard { scopes: &[], frame };
        for (count, cancel) in self.0.iter().enumerate() {
            let mut state = cancel.lock();
            if state.is_cancelled {
                return None; // the guard strikes the call off in the others
            }
            let frame = FrameRef(frame);
            state.running.push(RunningCall { frame, pool });
            begun.scopes = &self.0[..=count];
        }
        Some(begun)
    }
}

/// A root job that perhaps waits for a worker.
pub(super) struct Queued {
    scopes: Scopes,
    pool: Arc<Pool>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        for cancel in &self.scopes.0 {
            let mut state = cancel.lock();
            let is_ours = |pool: &Arc<Pool>| Arc::ptr_eq(pool, &self.pool);
            if let Some(place) = state.pools.iter().position(is_ours) {
                state.pools.swap_remove(place);
            }
        }
    }
}

/// A call that runs.
pub(super) struct CallGuard<'s> {
    /// Those that know of it.
    scopes: &'s [Cancel],
    frame: *const Frame,
}

impl CallGuard<'_> {
    /// The call is over. True if it was cancelled before: then its result means nothing.
    pub(super) fn end(mut self) -> bool {
        self.strike_off()
    }

    fn strike_off(&mut self) -> bool {
        let mut is_cancelled = false;
        for cancel in std::mem::take(&mut self.scopes) {
            let mut state = cancel.lock();
            is_cancelled |= state.is_cancelled;
            state.running.retain(|call| call.frame.0 != self.frame);
        }
        is_cancelled
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.strike_off();
    }
}
