//! Root jobs: calls of spawnable functions from ordinary code, whose callers wait.
//!
//! Root jobs of `main`'s thread have more to them: `main` is run from the start by another node when this node is gone,
//! so its calls are numbered in order, their results are kept elsewhere before `main` sees them, and they can be stopped.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam::sync::{Parker, Unparker};

use super::{
    advice::{self, CallSite, RootFigures as Waiting},
    cancel::{Scopes, raise_cancelled},
    frames::RootFrame,
    gate::FrameRef,
    pool::{Pool, ROOT_WATCH, RootKey, in_job, target},
    prints::RootPrint,
    scope::Scope,
    thread::{Bottom, Worker, quietly, raise_abort},
};
use crate::job::{
    Gathered, JobId, JobName, RootName, RootRun, RootTag, Saved,
    function::{self, Args, Call, Function, Prepared, VTable},
    kinds::Kinds,
    record::{Aborted, Cx, Frame, Payload, Slot, flag},
    scoped,
};

/// Results of `main`'s root jobs that took less time are not kept: they are made again as quickly. Too short: short root
/// jobs wait for their copies. Too long: a new master computes long root jobs again.
const WORTH_KEEPING: Duration = Duration::from_millis(50);

/// A result of a root job is kept if it has no more bytes for each second that the job took. Too small: a new master computes again
/// what would have fitted through any link. Too large: `main` waits for large results to be written down, which are made again as
/// quickly.
const KEPT_A_SECOND: f64 = 2e7;

/// `main` waits until its result is in safe hands if it has no more bytes for each second that the job took; with more it goes on
/// meanwhile. Too small: a long root job is done again if the master dies in that moment. Too large: `main` waits for the link.
const WAITED_FOR_A_SECOND: f64 = 5e6;

/// The part of a root job's time for which `main` waits until its result is in safe hands. Too small: a long root job is done again if
/// the master dies in that moment. Too large: `main` waits for far nodes, and a pool is slower than one of its nodes.
const PATIENCE: f64 = 0.02;

/// Results up to that size are kept, and waited for, as if they had no bytes.
const SMALL: u64 = 256 << 10;

thread_local! {
    /// Are calls from this thread those of the program's `main`?
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs the program's `main`: root jobs that it calls on this thread are numbered in order, see
/// [`Gate::begin_main`](super::Gate::begin_main).
pub fn as_main<R>(main: impl FnOnce() -> R) -> R {
    scoped::with(&IS_MAIN, true, main)
}

/// A root job that waits to be run. Its caller waits on its stack.
pub(super) struct QueuedRoot {
    task: *const (),
    run: unsafe fn(*const (), &Worker, *const Slot),
    /// Ends the job unrun.
    refuse: unsafe fn(*const ()),
    /// For root jobs whose callers do not wait: ends the job unrun, when the pool has ended.
    drop_unrun: Option<unsafe fn(*const ())>,
    is_main: bool,
    scopes: Scopes,
    /// The function of the job; `None` if it is a closure.
    function: Option<&'static VTable>,
}

// SAFETY: it points to a `RootTask`, made to be run by another thread, whose arguments and result are `Send`.
unsafe impl Send for QueuedRoot {}

impl QueuedRoot {
    /// A root job whose caller does not wait; the task is its own.
    pub(super) fn spawned(
        task: *const (),
        run: unsafe fn(*const (), &Worker, *const Slot),
        drop_unrun: unsafe fn(*const ()),
    ) -> QueuedRoot {
        QueuedRoot {
            task,
            run,
            refuse: drop_unrun,
            drop_unrun: Some(drop_unrun),
            is_main: false,
            scopes: Scopes::default(),
            function: None,
        }
    }

    pub(super) fn function(&self) -> Option<&'static VTable> {
        self.function
    }

    /// Ends it unrun, if its caller does not wait: no worker is left.
    pub(super) fn drop_unrun(self) {
        if let Some(drop_unrun) = self.drop_unrun {
            // SAFETY: the job was queued, so it has not been run, and it is run no more.
            unsafe { drop_unrun(self.task) }
        }
    }

    pub(super) fn run(self, worker: &Worker, head: *const Slot) {
        // SAFETY: the caller of the root job waits until it has been run, once.
        unsafe { (self.run)(self.task, worker, head) }
    }
}

/// The bell that the caller of a root job waits for.
struct Bell {
    rung: AtomicBool,
    unparker: Unparker,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.unparker.unpark();
    }
}

/// The root jobs of `main`, one at a time.
#[derive(Default)]
pub(super) struct MainCalls(Mutex<MainCallsState>);

#[derive(Default)]
struct MainCallsState {
    /// The number of the next.
    next: u32,
    /// True if another node has run `main` before: then root jobs are marked.
    marked: bool,
    /// True if `main` may have run before all nodes were lost: root jobs are marked in each term.
    resumed: bool,
    /// True while `main` is stopped: until it begins again, all its calls unwind.
    stopped: bool,
    /// Results are to be kept elsewhere before it sees them.
    keep: bool,
    running: Option<FrameRef>,
    /// The root job that has its result, while no other node has kept that yet.
    unkept: Option<(RootRun, Arc<Bell>)>,
}

/// The end of a root job of `main`.
enum RootEnd {
    /// The caller may go on.
    Over,
    /// The caller goes on once another node has kept this result. The task is the caller's already.
    ToKeep(Saved),
    /// The job was stopped; these results of finished children are left.
    Stopped(Vec<Saved>),
}

impl MainCalls {
    fn lock(&self) -> MutexGuard<'_, MainCallsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_again(&self, marked: bool) {
        let mut state = self.lock();
        let marked = marked || state.resumed;
        (state.next, state.marked, state.stopped) = (0, marked, false);
    }

    pub(super) fn resume(&self) {
        let mut state = self.lock();
        (state.marked, state.resumed) = (true, true);
    }

    pub(super) fn keep(&self, keep: bool) {
        let mut state = self.lock();
        state.keep = keep;
        if !keep {
            state.release();
        }
    }

    pub(super) fn kept(&self, root: RootTag) {
        let mut state = self.lock();
        if state
            .unkept
            .as_ref()
            .is_some_and(|(run, _)| run.tag() == root)
        {
            state.release();
        }
    }

    fn keeps(&self) -> bool {
        self.lock().keep
    }

    /// Gathers the facts of the root job that is under way.
    pub(super) fn gather(&self, gathered: &mut Gathered) {
        let state = self.lock();
        if let Some(running) = &state.running {
            // SAFETY: the frame lives as long as it is noted, and we hold the lock.
            unsafe { running.gather(gathered) };
        }
    }

    /// Has another node perhaps run `main` before?
    fn is_marked(&self) -> bool {
        self.lock().marked
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Is the root job marked? `None` if it must not begin.
    fn begin(&self, frame: *const Frame) -> Option<bool> {
        let mut state = self.lock();
        if state.stopped {
            return None;
        }
        state.running = Some(FrameRef(frame));
        Some(state.marked)
    }

    /// The job's frame is about to die.
    fn end(
        &self,
        run: RootRun,
        root: &RootFrame,
        result: Option<Saved>,
        bell: &Arc<Bell>,
    ) -> RootEnd {
        let mut state = self.lock();
        state.running = None;
        match result {
            result if root.frame.has(flag::SAVE) => {
                RootEnd::Stopped(root.take_harvest().into_iter().chain(result).collect())
            }
            Some(result) if state.keep => {
                state.unkept = Some((run, Arc::clone(bell)));
                RootEnd::ToKeep(result)
            }
            _ => RootEnd::Over,
        }
    }
}

impl MainCallsState {
    fn release(&mut self) {
        if let Some((_, bell)) = self.unkept.take() {
            bell.ring();
        }
    }
}

/// Waits until root jobs of the pool that a call from here would go to may start: until as many nodes are in as the setting `nodes`
/// (`SATIN_NODES`) asks for. A root job that is called before that waits as well; this is for programs that measure their time, or that want to
/// know how many nodes there are before they begin. Returns at once in a process that is no node of a pool, and in jobs.
pub fn wait_for_nodes() {
    if in_job() {
        return;
    }
    let pool = target();
    pool.assert_running();
    // Once they may start a worker may be long in coming.
    if !pool.holds_roots() {
        return;
    }
    let parker = Parker::new();
    let bell = Arc::new(Bell {
        rung: AtomicBool::new(false),
        unparker: parker.unparker().clone(),
    });
    let scopes = Scopes::here();
    let _queued = scopes.queue_in(&pool);
    pool.submit(QueuedRoot {
        task: Arc::into_raw(Arc::clone(&bell)).cast(),
        // SAFETY: the bell was made a line ago, and each queued root job is taken out once.
        run: |bell, _, _| unsafe { ring_only(bell) },
        refuse: ring_only,
        drop_unrun: None,
        is_main: false,
        scopes: scopes.clone(),
        function: None,
    });
    while !bell.rung.load(Ordering::Acquire) {
        parker.park();
    }
    if scopes.are_cancelled() {
        raise_cancelled();
    }
}

/// # Safety
/// `bell` is from [`Arc::into_raw`] of a [`Bell`], and is not used again.
unsafe fn ring_only(bell: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { Arc::from_raw(bell.cast::<Bell>()) }.ring();
}

impl Pool {
    pub(super) fn assert_running(&self) {
        assert!(
            !self.has_ended(),
            "a spawnable function was called on a pool that has ended; call it earlier"
        );
    }

    fn submit(&self, root: QueuedRoot) {
        let scopes = root.scopes.clone();
        self.roots.push(root);
        self.wake_all_for_task();
        if scopes.are_cancelled() {
            self.refuse_cancelled_roots(); // the cancel perhaps came before the job was in the queue
        }
    }

    /// A call of `main`; `root` makes it with its number. False if `main` is to stop.
    fn submit_of_main(&self, root: impl FnOnce(u32) -> QueuedRoot) -> bool {
        let mut state = self.main.lock();
        if state.stopped {
            return false;
        }
        let root = root(state.next);
        state.next += 1;
        // Under the lock: a `stop_main` finds it.
        self.submit(root);
        true
    }

    pub(super) fn stop_main(&self) {
        let mut state = self.main.lock();
        state.stopped = true;
        if let Some(FrameRef(frame)) = &state.running {
            // SAFETY: the frame lives as long as it is noted, and we hold the lock.
            let frame = unsafe { &**frame };
            return self.stop_children(frame, flag::ABORT | flag::SAVE);
        }
        state.release();
        drop(state);
        self.refuse_roots(|root| root.is_main);
        self.tell(|outside| outside.yielded(Vec::new()));
    }

    /// Refuses the queued root jobs that have been cancelled.
    pub(super) fn refuse_cancelled_roots(&self) {
        self.refuse_roots(|root| root.scopes.are_cancelled());
    }

    /// Refuses queued root jobs.
    fn refuse_roots(&self, is_refused: impl Fn(&QueuedRoot) -> bool) {
        // Of two threads at a time one would not see what the other holds in its hands.
        let _alone = (self.refusing.lock()).unwrap_or_else(PoisonError::into_inner);
        let mut others = Vec::new();
        while let Some(root) = self.roots.pop() {
            match is_refused(&root) {
                // SAFETY: the caller of the root job waits, and no other thread has the job.
                true => unsafe { (root.refuse)(root.task) },
                false => others.push(root),
            }
        }
        if !others.is_empty() {
            others.into_iter().for_each(|root| self.roots.push(root));
            self.wake_all_for_task();
        }
    }

    /// The root job has its result, and its caller does not know it yet.
    pub(super) fn root_has_ended(&self, name: RootName) {
        if let Some(watch) = ROOT_WATCH.get() {
            let pool = self.number;
            (watch.ended)(RootKey { pool, name });
        }
    }

    pub(super) fn tell_finished(&self, run: RootRun) {
        self.tell(|outside| outside.root_finished(run));
    }
}

/// A root job on the stack of its caller, who waits.
struct RootTask<'s, F: Function> {
    args: Cell<Option<Args<'s, F>>>,
    result: Cell<Option<Result<F::Out, Payload>>>,
    number: Cell<u32>,
    is_main: bool,
    scopes: Scopes,
    /// The name under which the job was told to have begun; `None` before.
    begun: Cell<Option<RootRun>>,
    /// True if the job waited until its result was kept: then the caller tells the outside that the job has finished.
    was_kept: Cell<bool>,
    bell: Arc<Bell>,
}

pub(super) fn enter_root<'s, P: Prepared<'s>>(call: P, place: CallSite) -> P::Out {
    let pool = target();
    let vtable = <P::Function as Function>::VTABLE;
    function::assert_registered(vtable);
    pool.assert_running();
    let (began, steals) = (Instant::now(), pool.local_thefts());
    let parker = Parker::new();
    let is_main = IS_MAIN.get();
    let scopes = Scopes::here();
    let _queued = scopes.queue_in(&pool);
    let task = RootTask::<P::Function> {
        args: Cell::new(Some(call.into_args())),
        result: Cell::new(None),
        number: Cell::new(0),
        is_main,
        scopes: scopes.clone(),
        begun: Cell::new(None),
        was_kept: Cell::new(false),
        bell: Arc::new(Bell {
            rung: AtomicBool::new(false),
            unparker: parker.unparker().clone(),
        }),
    };
    let root = |number| {
        task.number.set(number);
        QueuedRoot {
            task: (&raw const task).cast(),
            run: run_root::<P::Function>,
            refuse: refuse_root::<P::Function>,
            drop_unrun: None,
            is_main,
            scopes: scopes.clone(),
            function: Some(vtable),
        }
    };
    if !is_main {
        let number = RootName::OTHERS | pool.other_roots.fetch_add(1, Ordering::Relaxed);
        pool.submit(root(number));
    } else if !pool.submit_of_main(root) {
        raise_abort();
    }
    while !task.bell.rung.load(Ordering::Acquire) {
        parker.park();
    }
    let is_stopped = is_main && pool.main.is_stopped();
    if let Some(run) = task.begun.get() {
        let name = run.name;
        if task.was_kept.get() {
            pool.root_has_ended(name);
            if !is_stopped {
                pool.tell_finished(run);
            }
        }
        if let Some(watch) = ROOT_WATCH.get() {
            let pool = pool.number;
            (watch.returned)(RootKey { pool, name });
        }
    }
    if is_stopped {
        raise_abort();
    }
    let result = task
        .result
        .take()
        .expect("a root job that is done has a result");
    if let Err(payload) = &result
        && payload.is::<Aborted>()
        && scopes.are_cancelled()
    {
        raise_cancelled();
    }
    // If this is a node in a pool of several, other nodes may have taken jobs: those are not counted here.
    let run = Waiting {
        took: began.elapsed(),
        had_helpers: pool.workers() > 1 && !pool.is_heard(),
        was_shared: pool.local_thefts() != steals,
    };
    advice::root_call(vtable.info.name, place, &run);
    match result {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}

/// The end of a root job that was cancelled: its panic if it has panicked, but no result, as user code may have caught the unwinding of a
/// child and returned anything.
fn without_result<R>(outcome: Result<R, Payload>) -> Result<R, Payload> {
    let result = outcome?;
    quietly(|| drop(result));
    Err(Box::new(Aborted))
}

/// # Safety
/// `task` points to a `RootTask<F>` whose owner waits, and which no thread runs.
unsafe fn refuse_root<F: Function>(task: *const ()) {
    // SAFETY: the caller's promise.
    let task = unsafe { &*task.cast::<RootTask<'_, F>>() };
    task.result.set(Some(Err(Box::new(Aborted))));
    let bell = Arc::clone(&task.bell);
    // The last access: the caller's stack may be gone after it.
    bell.ring();
}

/// # Safety
/// `task` points to a `RootTask<F>` whose owner waits, and which no other thread runs.
unsafe fn run_root<F: Function>(task: *const (), worker: &Worker, head: *const Slot) {
    let at = task;
    // SAFETY: the caller's promise.
    let task = unsafe { &*task.cast::<RootTask<'_, F>>() };
    let (pool, number) = (worker.pool(), task.number.get());
    let args = task.args.take().expect("a root job runs once");
    let id = JobId::ROOT.child(number);
    let orphans = &pool.ledger.orphans;
    let is_looked_up = || !orphans.clears(&id) || orphans.is_suspect(&id);
    let is_repeatable = task.is_main && pool.is_heard();
    let root_print = match is_repeatable {
        true => (pool.prints).of::<F>(&args, pool.main.is_marked() && is_looked_up()),
        false => RootPrint::NONE,
    };
    let print = root_print.print;
    let root_run = match print {
        None if is_repeatable => pool.root_run(number, pool.unrepeatable()),
        print => pool.root_run(number, print.unwrap_or_else(|| pool.home())),
    };
    let root = RootFrame::new(JobId::ROOT, number, root_run, &pool.beats.bytes);
    if print.is_none() {
        root.frame.raise(flag::FLEETING);
    }
    let (frame, parent) = (&root.frame, &raw const root.frame);
    let mut marked = false;
    // SAFETY: the guard is gone before the frame is, and this worker's pool outlives both.
    let Some(cancellable) = (unsafe { task.scopes.begin(parent, pool) }) else {
        task.args.set(Some(args)); // the caller drops them, on its own stack
        // SAFETY: as for us.
        return unsafe { refuse_root::<F>(at) };
    };
    if task.is_main {
        match pool.main.begin(parent) {
            Some(again) => marked = again && is_looked_up(),
            None => {
                drop(cancellable); // it looks at the task
                task.args.set(Some(args));
                // SAFETY: as for us.
                return unsafe { refuse_root::<F>(at) };
            }
        }
    }
    task.begun.set(Some(root_run));
    pool.tell(|outside| outside.root_started(root_run));
    let began = Instant::now();
    let mut held = F::Kinds::held(args);
    let run = || {
        let args = F::Kinds::relend(&mut held);
        if marked {
            // A child of its own root frame, so that the job looks itself up like any other job that is spawned again.
            let call = Call::<F>::new(args);
            let place = Scope::of_root(head, frame, number);
            place.spawn(place.plan(call)).sync()
        } else {
            F::call(Cx { head, parent }, number, args)
        }
    };
    let part = pool.estimates.begin(marked);
    let outcome = {
        let index = number;
        let bottom = Bottom {
            head,
            parent,
            index,
            marked,
            part: Some(part),
        };
        worker.on_bottom(bottom, None, || catch_unwind(AssertUnwindSafe(run)))
    };
    let outcome = match cancellable.end() {
        true => without_result(outcome),
        false => outcome,
    };
    // Also if it was over too soon to be looked at.
    let is_done = outcome.is_ok() && !frame.has(flag::TORN);
    pool.estimates.end_root(part, is_done);
    let took = began.elapsed();
    (pool.prints).ran::<F>(&root_print, took);
    // Of what has no fingerprint nothing is harvested, and no job below tells anything.
    if let (Ok(out), Some(size)) = (&outcome, root_print.size)
        && let Some(sample) = function::sample_of_root::<F>(size, out, &held, took)
    {
        pool.samples.note(sample);
    }
    let is_wanted = || {
        took > WORTH_KEEPING
            && !frame.has(flag::TORN)
            && (frame.has(flag::SAVE) || pool.main.keeps())
    };
    let most = SMALL.max((took.as_secs_f64() * KEPT_A_SECOND) as u64);
    let result = match (&outcome, print) {
        (Ok(out), Some(fingerprint)) if is_wanted() => {
            let packed = function::answer_to_keep::<F>(out, &held, took, most as usize);
            packed.map(|packed| Saved {
                name: JobName::new(id, fingerprint),
                root: fingerprint,
                answer: packed.into(),
            })
        }
        _ => None,
    };
    drop(held);
    task.result.set(Some(outcome));
    task.was_kept.set(result.is_some());
    let end = if task.is_main {
        pool.main.end(root_run, &root, result, &task.bell)
    } else {
        RootEnd::Over
    };
    match end {
        RootEnd::ToKeep(saved) => {
            let most = SMALL.max((took.as_secs_f64() * WAITED_FOR_A_SECOND) as u64);
            let patience = match saved.answer.size() as u64 <= most {
                true => took.mul_f64(PATIENCE),
                false => Duration::ZERO,
            };
            return pool.tell(|outside| outside.root_result(root_run.tag(), saved, patience));
        }
        RootEnd::Over => {
            task.was_kept.set(false);
            pool.root_has_ended(root_run.name);
            pool.tell_finished(root_run);
        }
        RootEnd::Stopped(saved) => {
            task.was_kept.set(false);
            task.result.set(Some(Err(Box::new(Aborted))));
            pool.root_has_ended(root_run.name);
            pool.tell(|outside| outside.yielded(saved));
        }
    }
    let bell = Arc::clone(&task.bell);
    // The last access: the caller's stack may be gone after it.
    bell.ring();
}
