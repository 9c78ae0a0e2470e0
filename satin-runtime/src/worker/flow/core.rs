//! What the tasks of a flow have in common.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    job::{
        Fingerprint, Recall, RootName,
        record::{Cx, Frame, Payload, flag},
    },
    worker::{
        frames::{depth_of, hands_on, root_of, tear},
        pool::Pool,
        progress::{FlowCount, ONE, PARKED},
        thread::{Worker, quietly, raise_abort},
    },
};

/// A flow that is under way: its invocation, and how many of its tasks are not over. On the stack of the worker that runs the closure, which
/// waits for all tasks.
#[repr(C)]
pub(in crate::worker) struct FlowCore {
    /// The first field: a task's parent leads to the flow.
    pub(in crate::worker) frame: Frame,
    /// The worker that runs the closure.
    owner: u32,
    /// Length of the invocation's id, or that its tasks stay in this process.
    pub(super) depth: u16,
    /// The flow may have run before: its tasks are looked up.
    pub(super) is_marked: bool,
    /// No task is to begin any more.
    failed: AtomicBool,
    /// The first panic of a task.
    panic: Mutex<Option<Payload>>,
    /// The root job that it is a part of.
    pub(super) root: RootName,
    /// Some of the data are, or were, kept by other nodes.
    has_away: AtomicBool,
    /// How many tasks there are, and whether the owner is parked.
    count: Arc<FlowCount>,
}

/// The root job of a flow that has none: it stays in its process.
const NO_ROOT: RootName = RootName {
    number: 0,
    fingerprint: Fingerprint(0),
};

impl FlowCore {
    pub(super) fn new(worker: &Worker, cx: Cx, index: u32) -> FlowCore {
        let frame = Frame::new(cx, index);
        frame.raise(flag::FLOW);
        FlowCore {
            depth: depth_of(&frame),
            frame,
            owner: worker.index,
            is_marked: false,
            failed: AtomicBool::new(false),
            panic: Mutex::default(),
            root: root_of(cx.parent).map_or(NO_ROOT, |root| root.run.name),
            has_away: AtomicBool::new(false),
            count: Arc::default(),
        }
    }

    /// The flow begins, where it stays from now on.
    pub(super) fn begin(&self, worker: &Worker) {
        // Of a task that has a flow nothing is known before it is over.
        if worker.bottom.get().part.is_some() {
            (worker.pool().estimates).begin_flow(&raw const self.frame, &self.count);
        }
    }

    /// The flow is over.
    pub(super) fn end(&self, worker: &Worker) {
        worker.pool().estimates.end_flow(&raw const self.frame);
    }

    /// One more task.
    pub(super) fn one_more(&self) {
        self.count.one_more();
    }

    /// One task less: the last access of the thread that has ended it, as the flow may be gone then.
    pub(super) fn one_less(&self, pool: &Pool) {
        let owner = self.owner;
        // SeqCst: either the owner sees what the task has done before it parks, or we see that it is parked.
        if self.count.live.fetch_sub(ONE, Ordering::SeqCst) & PARKED != 0 {
            pool.sleep.unpark(owner);
        }
    }

    /// The number of tasks that are not over.
    pub(in crate::worker) fn live(&self) -> u64 {
        self.count.live()
    }

    /// Says whether the owner is parked.
    pub(in crate::worker) fn set_parked(&self, is_parked: bool) {
        match is_parked {
            true => self.count.live.fetch_or(PARKED, Ordering::SeqCst),
            false => self.count.live.fetch_and(!PARKED, Ordering::SeqCst),
        };
    }

    /// A task has panicked: the flow panics with the first of them, and no task is to begin any more.
    pub(super) fn panicked(&self, pool: &Pool, panic: Payload) {
        let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let other = match &*first {
            Some(_) => Some(panic),
            None => first.replace(panic),
        };
        drop(first);
        quietly(|| drop(other));
        self.stop(pool);
    }

    /// Unwinds the closure, as what it waits for will not be there.
    pub(super) fn raise(&self) -> ! {
        tear(&self.frame);
        raise_abort();
    }

    /// No task is to begin any more, and those under way stop.
    pub(super) fn stop(&self, pool: &Pool) {
        self.failed.store(true, Ordering::Release);
        pool.stop_children(&self.frame, flag::ABORT);
    }

    /// A task has been stopped, as those above the flow want it: what it was to make will be missing.
    pub(super) fn note_stopped(&self) {
        self.failed.store(true, Ordering::Release);
        tear(&self.frame);
    }

    /// Some of the data are kept by another node.
    pub(super) fn note_away(&self) {
        self.has_away.store(true, Ordering::Release);
    }

    /// May another node keep some of the data?
    pub(super) fn has_away(&self) -> bool {
        self.has_away.load(Ordering::Acquire)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Is no task to begin any more, because one has failed or the job around the flow is to stop?
    pub(in crate::worker) fn is_over(&self, worker: &Worker) -> bool {
        self.has_failed() || worker.is_stopped(&self.frame)
    }

    /// The first panic of a task, once.
    pub(super) fn take_panic(&self) -> Option<Payload> {
        (self.panic.lock().unwrap_or_else(PoisonError::into_inner)).take()
    }

    /// Why tasks that are away come back when the flow is over.
    pub(in crate::worker) fn why(&self) -> Recall {
        match hands_on(&self.frame) {
            true => Recall::Abandoned,
            false => Recall::Unwanted,
        }
    }
}
