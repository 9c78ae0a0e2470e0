//! A pool of workers in this process, and how calls from ordinary code get in.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crossbeam::{queue::SegQueue, utils::CachePadded};

use super::{
    advice::{self, CallSite},
    area::Area,
    barrier,
    cancel::{Scopes, raise_cancelled},
    clerk::Clerk,
    flow::Boards,
    gate::{Gate, Ledger},
    harvest::{Beats, Samples},
    prints::Prints,
    progress::{Estimates, Progress},
    root::{MainCalls, QueuedRoot, as_main, enter_root},
    sizes::Sizes,
    sleep::Sleep,
    spawned::{OwnCall, Spawned},
    thread::Worker,
};
use crate::{
    config::{Config, Resolved},
    exit,
    job::{
        JobId, Offer, RootName,
        function::{Function, Prepared},
        occupation::{self, Occupation, Sighting},
        record::{Aborted, Cx, Frame, flag},
    },
    observe::{Figures, arrows::Arrows, log},
};

/// The state that the threads of a pool share.
pub(crate) struct Pool {
    workers: Vec<*mut Worker>,
    /// Keeps the workers' memory alive.
    _areas: Vec<Area>,
    /// The number of the pool: no other pool of this process has it.
    pub(super) number: u64,
    pub(super) roots: SegQueue<QueuedRoot>,
    /// Held by the thread that looks for root jobs in the queue that are not to run: for a moment none is in there.
    pub(super) refusing: Mutex<()>,
    /// Root jobs are not to start yet.
    held: AtomicBool,
    pub(super) sleep: Sleep,
    /// What each worker does.
    occupations: Vec<Arc<Occupation>>,
    /// The ways of jobs of other nodes, for those who look.
    pub(super) arrows: Arc<Arrows>,
    /// Workers that have found nothing for a while.
    idle: CachePadded<AtomicU32>,
    ended: AtomicBool,
    /// True once any job has been aborted. Until then no worker looks for it.
    aborted: AtomicBool,
    pub(super) ledger: Ledger,
    /// Tasks of flows.
    pub(super) boards: Boards,
    pub(super) clerk: Clerk,
    pub(super) beats: Beats,
    /// How far its jobs are.
    pub(super) estimates: Estimates,
    /// What its workers have seen of jobs.
    pub(super) samples: Samples,
    pub(super) sizes: Sizes,
    pub(super) prints: Prints,
    /// The shortest time that a job takes whose result is kept.
    pub(super) grain: Duration,
    /// Tasks of a flow that are not over while its closure makes more of them.
    pub(super) flow_window: u64,
    /// A flow panics if a task that runs again makes something else.
    pub(super) flow_strict: bool,
    /// May workers that have nothing else to do run jobs that are away?
    pub(super) duplicates: bool,
    born: Instant,
    pub(super) main: MainCalls,
    pub(super) other_roots: AtomicU32,
}

// SAFETY: `workers` point into the areas, and `Worker` is `Sync`.
unsafe impl Sync for Pool {}
// SAFETY: as above.
unsafe impl Send for Pool {}

/// The events that a sleeping worker can be woken for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Any work.
    Work,
    /// The end of its own job, above all; the worker starts no root job meanwhile.
    Job,
}

/// Number of pools that this process has made.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Pool {
    fn new(config: &Resolved) -> std::io::Result<Arc<Pool>> {
        let (threads, stack) = (config.threads, config.stack_mib << 20);
        let mut areas = (0..threads)
            .map(|_| Area::reserve())
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new_cyclic(|pool| {
            let workers = areas.iter_mut().zip(0..).map(|(area, index)| {
                let base = area.base();
                let worker = base.cast::<Worker>();
                // SAFETY: the area is ours, large enough, and aligned to more than a worker needs.
                unsafe { worker.write(Worker::new(base, index, pool.as_ptr())) };
                worker
            });
            Pool {
                workers: workers.collect(),
                _areas: areas,
                number: NUMBER.fetch_add(1, Ordering::Relaxed),
                roots: SegQueue::new(),
                refusing: Mutex::default(),
                held: AtomicBool::new(false),
                sleep: Sleep::new(threads),
                occupations: (0..threads).map(|_| Arc::default()).collect(),
                arrows: Arc::default(),
                idle: CachePadded::default(),
                ended: AtomicBool::new(false),
                aborted: AtomicBool::new(false),
                ledger: Ledger::default(),
                boards: Boards::new(pool, threads),
                clerk: Clerk::new(stack),
                beats: Beats::default(),
                estimates: Estimates::default(),
                samples: Samples::default(),
                sizes: Sizes::default(),
                prints: Prints::default(),
                grain: config.store_grain,
                flow_window: config.flow_window,
                flow_strict: config.flow_strict,
                duplicates: config.duplicate,
                born: Instant::now(),
                main: MainCalls::default(),
                other_roots: AtomicU32::new(0),
            }
        }))
    }

    pub(super) fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    pub(super) fn worker(&self, index: u32) -> &Worker {
        // SAFETY: workers live as long as their areas, which the pool keeps.
        unsafe { &*self.workers[index as usize] }
    }

    pub(super) fn occupation(&self, index: u32) -> &Occupation {
        &self.occupations[index as usize]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Worker> {
        (0..self.workers()).map(|index| self.worker(index))
    }

    /// Nanoseconds since the pool was made.
    pub(super) fn age(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn has_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Stops the children of an invocation, wherever they run: raises these flags, among them [`flag::ABORT`].
    pub(super) fn stop_children(&self, frame: &Frame, flags: u32) {
        if frame.raise(flags) {
            self.announce_abort();
        }
    }

    /// A flag has been raised in a frame: makes every worker look up.
    pub(super) fn announce_abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.all().for_each(Worker::ask);
        // A worker that waits parked for a job of an aborted invocation has to unwind.
        self.sleep.wake_all();
    }

    pub(super) fn next_root(&self) -> Option<QueuedRoot> {
        if self.holds_roots() {
            return None;
        }
        self.roots.pop()
    }

    /// Are root jobs not to start yet?
    pub(super) fn holds_roots(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn has_root(&self) -> bool {
        !self.roots.is_empty() && !self.holds_roots()
    }

    pub(super) fn hold_roots(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
        if !held {
            self.wake_all_for_task();
        }
    }

    /// Jobs that workers of this pool have taken from one another.
    pub(super) fn local_thefts(&self) -> u64 {
        self.all()
            .map(|worker| worker.counters.local_thefts.get())
            .sum()
    }

    /// How many workers have found nothing for a while.
    pub(super) fn idle(&self) -> u32 {
        self.idle.load(Ordering::SeqCst)
    }

    pub(super) fn count_idle(&self, worker_is_idle: bool) {
        if worker_is_idle {
            self.idle.fetch_add(1, Ordering::SeqCst);
        } else {
            self.idle.fetch_sub(1, Ordering::SeqCst);
        }
        self.tell_idle();
    }

    /// Wakes all workers: the first sleeper may be unable to run the task, as a worker that waits for its own job can run
    /// no root job.
    pub(super) fn wake_all_for_task(&self) {
        fence(Ordering::SeqCst);
        self.sleep.wake(u64::MAX);
    }

    /// Wakes a worker: each in the list can run any task that is not a root job.
    pub(super) fn wake_for_any_task(&self) {
        fence(Ordering::SeqCst);
        self.sleep.wake(1);
    }

    /// Sleeps until something may have changed. The worker has found nothing, and looks once more here.
    ///
    /// Not longer than `at_most`, if that is given.
    pub(super) fn sleep_unless(
        &self,
        worker: &Worker,
        awaits: Awaits,
        at_most: Option<Duration>,
        ready: impl Fn() -> bool,
    ) {
        self.sleep.lie_down(worker.index);
        self.all()
            .filter(|other| other.index != worker.index)
            .for_each(Worker::ask);
        fence(Ordering::SeqCst);
        let something = || {
            ready()
                || self.has_ended()
                || (awaits == Awaits::Work && self.has_root())
                || self.has_hosted()
                || self.boards.has_some()
                || self.has_returned_for(worker)
                || self.all().any(|other| {
                    other.index != worker.index && (other.has_public() || other.may_be_seized())
                })
        };
        if !something() {
            worker.counters.sleeps.add(1);
            let late = self.boards.until_late(self);
            let at_most = match (at_most, late) {
                (Some(most), Some(late)) => Some(most.min(late)),
                (most, late) => most.or(late),
            };
            self.sleep.park(worker.index, at_most);
        }
        if !self.sleep.get_up(worker.index) && ready() {
            self.sleep.wake(1); // we were woken for a job that we leave to another
        }
    }
}

thread_local! {
    /// The worker that this thread is.
    static WORKER: Cell<*const Worker> = const { Cell::new(std::ptr::null()) };
    /// The pool that calls from this thread go to, innermost `run` last.
    static TARGET: RefCell<Option<Arc<Pool>>> = const { RefCell::new(None) };
}

/// The threads of a pool.
///
/// Dropping it waits for them; jobs of other threads that still run are finished first.
pub struct Workers {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
    stats: bool,
}

/// Reasons why workers could not be started. None runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address space for a worker's slots.
    #[error(
        "cannot reserve 4 GiB of address space per worker (is there a `ulimit -v`?): {0}; fewer threads (SATIN_THREADS) need less, or raise the limit"
    )]
    Area(std::io::Error),
    /// The system starts no thread with such a stack.
    #[error(
        "cannot start a worker with a stack of {stack_mib} MiB: {source}; fewer threads (SATIN_THREADS) or smaller stacks (SATIN_STACK) need less"
    )]
    Thread {
        /// The size that was asked for, in MiB.
        stack_mib: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// True if this process has made a pool of its own accord.
static MADE: AtomicBool = AtomicBool::new(false);

impl Workers {
    /// Starts the threads; each of them calls `begin` first.
    pub(crate) fn start(config: &Resolved, begin: fn()) -> Result<Workers, StartError> {
        MADE.store(true, Ordering::Relaxed);
        barrier::register();
        let size = config.stack_mib << 20;
        let pool = Pool::new(config).map_err(StartError::Area)?;
        let mut workers = Workers {
            pool,
            threads: Vec::new(),
            stats: config.stats,
        };
        for index in 0..config.threads {
            let pool = Arc::clone(&workers.pool);
            let thread = std::thread::Builder::new()
                .name(format!("satin-{index}"))
                .stack_size(size);
            let serve = move || {
                begin();
                occupation::begin_thread(Arc::clone(&pool.occupations[index as usize]));
                let worker = pool.worker(index);
                WORKER.set(worker);
                worker.measure_stack(size);
                worker.serve();
                WORKER.set(std::ptr::null());
            };
            let thread = log::spawn(thread, serve).map_err(|source| StartError::Thread {
                stack_mib: config.stack_mib,
                source,
            })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// The number of this pool, unique in this process.
    pub(crate) fn number(&self) -> u64 {
        self.pool.number
    }

    /// Runs `main` on the calling thread, with this pool as the one that spawnable functions run on.
    pub fn run<R>(&self, main: impl FnOnce() -> R) -> R {
        let outer = TARGET.replace(Some(Arc::clone(&self.pool)));
        let _restore = Restore(outer);
        main()
    }

    /// Runs `main` as a root job of this pool, while the caller does something else: see [`spawn`].
    pub fn spawn<R: Send + 'static>(
        &self,
        main: impl FnOnce() -> R + Send + 'static,
    ) -> Spawned<R> {
        self.pool.spawn_root(main)
    }

    /// The gate through which jobs leave and enter this pool.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate::of(&self.pool)
    }

    /// For those who want to know how far its root jobs are, and what its workers do.
    pub(crate) fn watch(&self) -> PoolWatch {
        PoolWatch::of(&self.pool)
    }

    /// Number of workers in the pool.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.workers.len()
    }

    /// The counters of each worker so far.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        self.pool
            .all()
            .map(|worker| worker.counters.read())
            .collect()
    }

    /// Runs `main` with this pool as the one that calls from all threads go to.
    pub(crate) fn run_as_main<R>(&self, main: impl FnOnce() -> R) -> R {
        let outer = lock(&MAIN).replace(Arc::clone(&self.pool));
        let _restore = RestoreMain(outer);
        as_main(|| self.run(main))
    }
}

/// Sees how far the root jobs of a pool are, and what its workers do.
pub(crate) struct PoolWatch(Weak<Pool>);

impl PoolWatch {
    pub(super) fn of(pool: &Arc<Pool>) -> PoolWatch {
        PoolWatch(Arc::downgrade(pool))
    }

    /// What each worker does at this moment; `None` once the pool is gone.
    pub(crate) fn see(&self) -> Option<Vec<Sighting>> {
        let pool = self.0.upgrade()?;
        Some(pool.occupations.iter().map(|one| one.see()).collect())
    }

    /// The ways of jobs of other nodes; `None` once the pool is gone.
    pub(crate) fn arrows(&self) -> Option<Arc<Arrows>> {
        Some(Arc::clone(&self.0.upgrade()?.arrows))
    }

    /// True once the pool has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|pool| pool.has_ended())
    }

    /// How far the root job is that began last, if one is under way.
    pub(crate) fn look_up(&self) -> Option<Progress> {
        self.0.upgrade()?.look_at_progress()
    }
}

/// How far the root job is that began last, of the pool that a call from here would go to, if one is under way.
pub(crate) fn current_progress() -> Option<Progress> {
    with_current(Pool::look_at_progress)?
}

/// The pool of `satin::run`, for threads that are under no [`Workers::run`] of their own.
static MAIN: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

fn lock(main: &Mutex<Option<Arc<Pool>>>) -> MutexGuard<'_, Option<Arc<Pool>>> {
    main.lock().unwrap_or_else(PoisonError::into_inner)
}

struct RestoreMain(Option<Arc<Pool>>);

impl Drop for RestoreMain {
    fn drop(&mut self) {
        *lock(&MAIN) = self.0.take();
    }
}

struct Restore(Option<Arc<Pool>>);

impl Drop for Restore {
    fn drop(&mut self) {
        TARGET.set(self.0.take());
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.ended.store(true, Ordering::Release);
        self.pool.sleep.wake_all();
        self.pool.main.keep(false);
        for thread in self.threads.drain(..) {
            // A worker catches the panics of jobs; if one died all the same, its message has been printed.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        self.pool.beats.stop();
        self.pool.clerk.close();
        self.pool.refuse_hosted();
        self.pool.drop_unrun_roots();
        if self.stats {
            eprint!("{}", crate::observe::table(&self.figures()));
        }
    }
}

/// The settings ask for a node of a pool, and this process is none: without the error each node would run the program
/// alone.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} asks for a node of a pool, but this program has called a spawnable function before it became a node. Begin `main` \
     with #[satin::main], or call satin::run(satin::Config::default(), || ..) in it, and start any other runtime, such as \
     that of #[tokio::main], inside. To run the program alone, unset SATIN_JOIN and SATIN_LISTEN, also in satin.toml"
)]
pub(crate) struct NoMain(String);

/// The pool for calls from ordinary threads that are under no [`Workers::run`].
fn default_pool() -> &'static Arc<Pool> {
    static DEFAULT: OnceLock<Workers> = OnceLock::new();
    let workers = DEFAULT.get_or_init(|| {
        let start = || -> Result<Workers, Box<dyn std::error::Error>> {
            let config = Config::load()?;
            config.start_log()?;
            if let Some(setting) = config.network()
                && !MADE.load(Ordering::Relaxed)
            {
                exit::with_error(2, &NoMain(setting));
            }
            Ok(Workers::start(&config.resolve()?, || ())?)
        };
        start().unwrap_or_else(|error| panic!("satin cannot start: {}", exit::explained(&*error)))
    });
    &workers.pool
}

pub(super) fn target() -> Arc<Pool> {
    let under_run = TARGET.with_borrow(Option::clone);
    under_run
        .or_else(|| lock(&MAIN).clone())
        .unwrap_or_else(|| Arc::clone(default_pool()))
}

/// The pool that a call from here would go to: its number and its workers.
pub(crate) fn current_pool() -> (u64, usize) {
    let of = |pool: &Pool| (pool.number, pool.workers.len());
    here().map_or_else(|| of(&target()), |worker| of(worker.pool()))
}

/// Names a root job in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RootKey {
    /// The number of the pool, unique in this process.
    pub pool: u64,
    /// The name of the root job, among those of that pool and of other nodes.
    pub name: RootName,
}

impl RootKey {
    /// Is that root job over when this one is? Those of a `main` run one after another, also if it is run again, so all
    /// before it are.
    #[must_use]
    pub fn ends(self, other: RootKey) -> bool {
        self.pool == other.pool && self.name.ends(other.name)
    }
}

#[inline]
fn here<'w>() -> Option<&'w Worker> {
    // SAFETY: a worker outlives its thread.
    unsafe { WORKER.get().as_ref() }
}

/// Asks the pool that a call from here would go to; `None` if there is none yet.
fn with_current<R>(ask: impl Fn(&Pool) -> R) -> Option<R> {
    match here() {
        Some(worker) => Some(ask(worker.pool())),
        None => TARGET
            .with_borrow(Option::clone)
            .or_else(|| lock(&MAIN).clone())
            .map(|pool| ask(&pool)),
    }
}

/// Is this thread a worker, so that a call from here would be one of a job?
pub(super) fn in_job() -> bool {
    here().is_some()
}

/// The root job that the job on this thread belongs to, wherever that was spawned; `None` outside of jobs.
#[inline]
#[must_use]
pub fn current_root() -> Option<RootKey> {
    let worker = here()?;
    Some(RootKey {
        pool: worker.pool().number,
        name: worker.root()?,
    })
}

/// The job that runs on this thread, or one that has called it.
pub fn current_job() -> Option<JobId> {
    here()?.around_here()
}

/// Passes on that the job on this thread has improved a bound, if the gate has a listener: else `offer` is not called.
pub fn offer(offer: impl FnOnce() -> Option<Offer>) {
    if let Some(worker) = here()
        && worker.pool().is_heard()
        && let Some(offer) = offer()
    {
        worker.pool().tell(|outside| outside.offered(offer));
    }
}

/// Functions to call when root jobs end.
#[derive(Clone, Copy)]
pub struct RootWatch {
    /// The root job has its result; outside of the pool it is not known yet.
    pub ended: fn(RootKey),
    /// The caller of the root job, on the calling thread, is about to go on.
    pub returned: fn(RootKey),
}

pub(super) static ROOT_WATCH: OnceLock<RootWatch> = OnceLock::new();

/// Sets the only watcher of this process, which is told of all its root jobs from now on.
pub fn watch_roots(watch: RootWatch) {
    ROOT_WATCH.get_or_init(|| watch);
}

/// True while there is a demand for work: a worker of this pool that has nothing to do, or another node. Then it pays to
/// split further; otherwise a job may as well go sequential.
///
/// Costs little more than two loads. Outside of jobs the question goes to the pool that a call would go to; false
/// if there is none yet.
#[must_use]
pub fn hungry() -> bool {
    let asked = |pool: &Pool| {
        pool.idle.load(Ordering::Relaxed) > 0 || pool.ledger.hungry.load(Ordering::Relaxed)
    };
    with_current(asked).unwrap_or(false)
}

/// Calls a spawnable function from ordinary code and waits for its result: a root job, or, within a job, a nested
/// entry, which stays in this process.
///
/// A warning names the place of the call, once, if such calls make the program sequential: see `advice`.
///
/// # Panics
/// Panics with the panic of the job.
#[track_caller]
pub fn enter<'s, P: Prepared<'s>>(call: P) -> P::Out {
    let place = Location::caller();
    let target = TARGET.with_borrow(|target| target.as_ref().map(Arc::as_ptr));
    match here() {
        Some(worker) if target.is_none_or(|pool| std::ptr::eq(pool, worker.pool())) => {
            enter_nested(worker, call, place)
        }
        _ => enter_root(call, place),
    }
}

/// Runs `main` as a root job of the pool that a call from here would go to, while the caller does something else.
///
/// # Panics
/// If the pool has ended.
pub fn spawn<R: Send + 'static>(main: impl FnOnce() -> R + Send + 'static) -> Spawned<R> {
    match here() {
        Some(worker) => worker.pool().spawn_root(main),
        None => target().spawn_root(main),
    }
}

fn enter_nested<'s, P: Prepared<'s>>(worker: &Worker, call: P, place: CallSite) -> P::Out {
    if std::thread::panicking() {
        // A destructor calls while the thread unwinds: here the job would believe that it unwinds itself.
        let config = Resolved {
            threads: 1,
            ..Resolved::default()
        };
        let aside = Workers::start(&config, || ())
            .unwrap_or_else(|error| panic!("satin cannot start: {error}"));
        return aside.run(|| enter_root(call, place));
    }
    // A call that can be cancelled stays in this process, as in any job.
    if Scopes::here().is_empty()
        && let Some(own) = OwnCall::begin(worker.innermost())
    {
        return own.run(worker, call);
    }
    advice::plain_call(<P::Function as Function>::VTABLE.info.name, place);
    let nested = Frame::special(worker.innermost(), flag::NESTED);
    let cx = Cx {
        head: worker.head(),
        parent: &raw const nested,
    };
    let _in_nested = worker.in_nested(cx.head, cx.parent);
    let run = || <P::Function as Function>::call(cx, 0, call.into_args());
    let hidden = Scopes::hide();
    match hidden.scopes().is_empty() {
        true => run(),
        false => run_nested_in(hidden.scopes(), worker, &nested, run),
    }
}

/// Runs a nested entry that can be cancelled.
fn run_nested_in<R>(
    scopes: &Scopes,
    worker: &Worker,
    nested: &Frame,
    run: impl FnOnce() -> R,
) -> R {
    // SAFETY: the frame outlives the call, and with it the guard; the pool outlives its workers.
    let Some(begun) = (unsafe { scopes.begin(nested, worker.pool()) }) else {
        raise_cancelled()
    };
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let is_cancelled = begun.end();
    match outcome {
        // User code may have caught the unwinding of a child, and returned anything.
        Ok(_) if is_cancelled => raise_cancelled(),
        Ok(result) => result,
        // If the job around is stopped too, that unwinds on.
        Err(payload)
            if payload.is::<Aborted>() && is_cancelled && !worker.is_stopped(nested.parent()) =>
        {
            raise_cancelled()
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Unwinds if the job on this thread is not wanted any more: the call above it was cancelled, or a sibling has failed, or its node is
/// leaving and another node will run the job. For jobs that compute for long without a spawn, as only there a job looks up of its own accord.
///
/// Costs little more than two loads as long as nothing has been stopped in this process. Does nothing outside of jobs, in sequential
/// programs, and in a program that is built with `panic = "abort"`.
pub fn cancellation_point() {
    if let Some(worker) = here() {
        worker.raise_if_stopped();
    }
}
