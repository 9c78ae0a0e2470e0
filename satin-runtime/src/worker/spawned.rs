//! Root jobs whose callers do not wait on a thread: a future stands for each.
//!
//! The program's closure runs on a worker, as the root job. Spawnable functions that it calls are its children, so their jobs have ids and
//! may leave the process, which is what tells such a call from a nested entry. That the calls are those of the closure, and not of a job
//! below, is known from the root frame ([`CallingRoot`]).

use std::{
    cell::Cell,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Poll, Waker},
};

use super::{
    frames::RootFrame,
    pool::{Pool, ROOT_WATCH, RootKey},
    root::QueuedRoot,
    thread::{Bottom, Worker},
};
use crate::job::{
    JobId, RootName,
    function::{Function, Prepared},
    record::{Cx, Frame, Payload, Slot, flag},
};

/// The result of a root job that runs meanwhile: a future that needs no particular runtime, and whose caller blocks no thread.
///
/// Dropping it does not stop the root job: its result is dropped instead.
#[must_use = "the root job runs in any case, but its result comes from the future: `.await` it"]
pub struct Spawned<R>(Arc<SpawnOutcome<R>>);

struct SpawnOutcome<R>(Mutex<SpawnStage<R>>);

enum SpawnStage<R> {
    /// The root job is not over; the last task that has asked is woken then.
    UnderWay(Option<Waker>),
    /// The result, or the payload of a panic; with the root job's name if it has begun.
    Over(Result<R, Payload>, Option<RootKey>),
    /// The result has been taken, or no one wants it.
    Taken,
}

impl<R> SpawnOutcome<R> {
    fn lock(&self) -> MutexGuard<'_, SpawnStage<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The root job is over.
    fn set(&self, result: Result<R, Payload>, root: Option<RootKey>) {
        let mut stage = self.lock();
        match &mut *stage {
            SpawnStage::UnderWay(waker) => {
                let waker = waker.take();
                *stage = SpawnStage::Over(result, root);
                drop(stage);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            SpawnStage::Over(..) | SpawnStage::Taken => {
                drop(stage);
                drop(result);
                root.inspect(returned);
            }
        }
    }
}

/// The thread goes on that has called that root job.
fn returned(root: &RootKey) {
    if let Some(watch) = ROOT_WATCH.get() {
        (watch.returned)(*root);
    }
}

impl<R> Future for Spawned<R> {
    type Output = R;

    /// # Panics
    /// Panics with the panic of the root job; if the pool has ended before the root job began; and if the future is polled again after it
    /// was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let mut stage = self.0.lock();
        match std::mem::replace(&mut *stage, SpawnStage::Taken) {
            SpawnStage::UnderWay(_) => {
                *stage = SpawnStage::UnderWay(Some(cx.waker().clone()));
                Poll::Pending
            }
            SpawnStage::Over(result, root) => {
                drop(stage);
                root.inspect(returned);
                Poll::Ready(result.unwrap_or_else(|payload| resume_unwind(payload)))
            }
            SpawnStage::Taken => panic!("the result of a spawned root job has been taken already"),
        }
    }
}

impl<R> Drop for Spawned<R> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.lock(), SpawnStage::Taken);
        if let SpawnStage::Over(_, Some(root)) = &stage {
            returned(root);
        }
    }
}

impl<R> fmt::Debug for Spawned<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &*self.0.lock() {
            SpawnStage::UnderWay(_) => "under way",
            SpawnStage::Over(..) => "over",
            SpawnStage::Taken => "taken",
        };
        f.debug_tuple("Spawned").field(&stage).finish()
    }
}

/// A root job that is not over.
struct SpawnedTask<C, R> {
    main: C,
    number: u32,
    outcome: Arc<SpawnOutcome<R>>,
}

impl Pool {
    /// Runs `main` on a worker, as a root job.
    pub(super) fn spawn_root<C, R>(&self, main: C) -> Spawned<R>
    where
        C: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.assert_running();
        let outcome = Arc::new(SpawnOutcome(Mutex::new(SpawnStage::UnderWay(None))));
        let task = SpawnedTask {
            main,
            number: RootName::OTHERS | self.other_roots.fetch_add(1, Ordering::Relaxed),
            outcome: Arc::clone(&outcome),
        };
        let task = Box::into_raw(Box::new(task));
        self.roots.push(QueuedRoot::spawned(
            task.cast(),
            run::<C, R>,
            drop_unrun::<C, R>,
        ));
        self.wake_all_for_task();
        // The pool may have ended meanwhile, and then nobody else looks into the queue any more.
        if self.has_ended() {
            self.drop_unrun_roots();
        }
        Spawned(outcome)
    }

    /// The pool has ended: root jobs whose callers do not wait end unrun.
    pub(super) fn drop_unrun_roots(&self) {
        while let Some(root) = self.roots.pop() {
            root.drop_unrun();
        }
    }
}

/// # Safety
/// `task` is the pointer to a boxed `Task<C, R>`, and is not used again.
unsafe fn drop_unrun<C, R>(task: *const ()) {
    // SAFETY: the caller's promise.
    let task = unsafe { Box::from_raw(task.cast_mut().cast::<SpawnedTask<C, R>>()) };
    let SpawnedTask { main, outcome, .. } = *task;
    let text = "the pool has ended before a spawned root job began; await the future while the pool is there";
    outcome.set(Err(Box::new(text)), None);
    drop(main);
}

/// # Safety
/// `task` is the pointer to a boxed `Task<C, R>`, and is not used again.
unsafe fn run<C, R>(task: *const (), worker: &Worker, head: *const Slot)
where
    C: FnOnce() -> R,
{
    // SAFETY: the caller's promise.
    let task = unsafe { Box::from_raw(task.cast_mut().cast::<SpawnedTask<C, R>>()) };
    let SpawnedTask {
        main,
        number,
        outcome,
    } = *task;
    let pool = worker.pool();
    let run = pool.root_run(number, pool.home());
    let root = CallingRoot {
        root: RootFrame::new(JobId::ROOT, number, run, &pool.beats.bytes),
        next: Cell::new(0),
        is_calling: Cell::new(false),
    };
    root.root.frame.raise(flag::FLEETING | flag::CALLING);
    pool.tell(|outside| outside.root_started(run));
    let part = pool.estimates.begin(false);
    let bottom = Bottom {
        head,
        parent: (&raw const root).cast(),
        index: number,
        marked: false,
        part: Some(part),
    };
    let result = worker.on_bottom(bottom, None, || catch_unwind(AssertUnwindSafe(main)));
    pool.estimates.end_root(part, result.is_ok());
    pool.root_has_ended(run.name);
    pool.tell_finished(run);
    drop(root);
    let key = RootKey {
        pool: pool.number,
        name: run.name,
    };
    // Wakers, and destructors of results that are not wanted, are code of the user.
    if catch_unwind(AssertUnwindSafe(|| outcome.set(result, Some(key)))).is_err() {
        tracing::error!("a waker, or the destructor of a result that was not wanted, panicked");
    }
}

/// The bottom of a spawned root job: the root frame, whose flag `CALLING` says that the rest is there.
#[repr(C)]
struct CallingRoot {
    root: RootFrame,
    /// The number of the closure's next call.
    next: Cell<u32>,
    /// A call of the closure is under way: other calls are not the closure's own.
    is_calling: Cell<bool>,
}

/// True if a call from here is one of a spawned root job's closure: then `index` is its number among them, until `Call` is dropped.
pub(super) struct OwnCall<'r>(&'r CallingRoot);

impl OwnCall<'_> {
    /// The call that begins here, if it is one of a closure's own.
    pub(super) fn begin(innermost: *const Frame) -> Option<Self> {
        // SAFETY: the frame around the caller lives.
        let frame = unsafe { innermost.as_ref() }?;
        if !frame.has(flag::CALLING) || !frame.has(flag::ROOT) {
            return None;
        }
        // SAFETY: the flag says that the frame is the first field of a calling root, which lives as long as the frame. Its cells are this
        // thread's alone: no job is spawned from the frame, so on no other worker is it the innermost.
        let root = unsafe { &*innermost.cast::<CallingRoot>() };
        (!root.is_calling.replace(true)).then_some(OwnCall(root))
    }

    /// Runs the call as the closure's next child.
    pub(super) fn run<'s, P: Prepared<'s>>(self, worker: &Worker, call: P) -> P::Out {
        let root = self.0;
        let number = root.next.get();
        root.next.set(number.wrapping_add(1));
        let closure = Cx {
            head: worker.head(),
            parent: &raw const root.root.frame,
        };
        // The closure is the root job's invocation, and what it calls its children.
        let frame = Frame::new(closure, root.root.run.name.number);
        let cx = Cx {
            head: closure.head,
            parent: &raw const frame,
        };
        <P::Function as Function>::call(cx, number, call.into_args())
    }
}

impl Drop for OwnCall<'_> {
    fn drop(&mut self) {
        self.0.is_calling.set(false);
    }
}
