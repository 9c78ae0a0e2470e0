//! The gate: the narrow door through which jobs leave and enter the process as bytes.
//!
//! Whoever stands outside (the network thread; in tests a thread that plays another node) takes the oldest job, brings
//! back its result or the job itself, and lets foreign jobs in. The workers never wait for the gate, and the gate
//! never touches user memory: it reads arguments of a job that has left its deque, and the owner alone writes results.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use crossbeam::queue::SegQueue;
use serde::{Deserialize, Serialize};

use super::{
    pool::Pool,
    thread::{RootFrame, Worker, path_of},
};
use crate::job::{
    Fingerprint, JobId, VTable,
    function::{self, Args, Function, RemoteFailure},
    record::{Cx, Frame, Slot, State},
};

/// Names one departure of a job. A job that is taken again gets another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(pub u64);

/// A job that left.
#[derive(Clone, Debug)]
pub struct Away {
    /// To be given back with the answer.
    pub token: Token,
    /// Its place in the execution tree.
    pub id: JobId,
    /// What to run.
    pub function: &'static VTable,
    /// The arguments, as the function's vtable reads them.
    pub arguments: Vec<u8>,
    /// What it computes.
    pub fingerprint: Fingerprint,
}

/// What comes back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Result and changed `&mut` arguments.
    Result(Vec<u8>),
    /// It panicked, with this message.
    Panicked(String),
    /// It could not be run there: here it can.
    Refused(String),
    /// It was aborted there, on request.
    Aborted,
}

impl std::fmt::Debug for VTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info.name)
    }
}

/// The books of the gate.
#[derive(Default)]
pub(super) struct Ledger {
    next: AtomicU64,
    turn: AtomicU32,
    away: Mutex<HashMap<Token, SlotRef>>,
    recalled: SegQueue<Token>,
    hosted: Mutex<HashMap<u64, FrameRef>>,
}

struct SlotRef(*const Slot);
// SAFETY: the slot lives as long as its entry: its owner removes the entry, or waits until somebody has, before it frees
// the slot.
unsafe impl Send for SlotRef {}

struct FrameRef(*const Frame);
// SAFETY: the frame lives as long as its entry: its worker removes the entry before the frame dies.
unsafe impl Send for FrameRef {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gate of one pool. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    pub(super) pool: Arc<Pool>,
}

impl Gate {
    /// Takes the oldest public job of some worker, or asks all workers to publish and returns `None`.
    #[must_use]
    pub fn take(&self) -> Option<Away> {
        let (pool, ledger) = (&*self.pool, &self.pool.ledger);
        let first = ledger.turn.fetch_add(1, Ordering::Relaxed);
        (0..pool.workers()).find_map(|step| {
            let victim = pool.worker((first % pool.workers() + step) % pool.workers());
            if victim.nested.load(Ordering::Relaxed) != 0 {
                return None; // what it has now must stay in this process; workers may steal it
            }
            let slot = victim.give()?;
            // SAFETY: we have just stolen the job: its slot is ours until it is settled or away.
            self.send_away(unsafe { &*slot })
        })
    }

    fn send_away(&self, job: &Slot) -> Option<Away> {
        let owner = Worker::of(job).index;
        let go_back = || {
            if job.enter(State::Returned) {
                self.pool.sleep.unpark(owner);
            }
        };
        let Some(id) = path_of(job.parent.get(), job.index()) else {
            go_back(); // below a nested entry: stays in this process
            return None;
        };
        job.enter(State::Leaving);
        let function = job.function.get();
        // SAFETY: the job is leaving, so its arguments are there and nobody takes them.
        let arguments = match unsafe { (function.export)(job) } {
            Ok(arguments) => arguments,
            Err(error) => {
                tracing::warn!(job = %id, function = function.info.name, error, "a job cannot leave this process");
                go_back();
                return None;
            }
        };
        let token = Token(self.pool.ledger.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.pool.ledger.away).insert(token, SlotRef(job));
        let fingerprint = Fingerprint::of(function.info.name, &arguments);
        // From here on the owner may recall it, and perhaps waits for that.
        if job.enter(State::Away) {
            self.pool.sleep.unpark(owner);
        }
        Some(Away {
            token,
            id,
            function,
            arguments,
            fingerprint,
        })
    }

    /// Brings an answer. False if the job is not away any more: it has been answered or recalled.
    pub fn deliver(&self, token: Token, answer: Answer) -> bool {
        let mut away = lock(&self.pool.ledger.away);
        let Some(SlotRef(slot)) = away.remove(&token) else {
            return false;
        };
        // SAFETY: the job was away, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*slot };
        let owner = Worker::of(slot).index;
        let state = match answer {
            Answer::Refused(_) | Answer::Aborted => State::Returned,
            answer => {
                if let (Some(judge), Answer::Result(bytes)) = (job.judge(), &answer)
                    && (judge.in_bytes)(bytes)
                {
                    self.pool.worker(owner).abort_children(job.parent.get());
                }
                job.extra
                    .store(Box::into_raw(Box::new(answer)).cast(), Ordering::Relaxed);
                State::Answered
            }
        };
        if job.enter(state) {
            self.pool.sleep.unpark(owner);
        }
        true
    }

    /// Brings a job back undone: its owner runs it.
    pub fn put_back(&self, token: Token) -> bool {
        self.deliver(token, Answer::Refused(String::new()))
    }

    /// The next job that is away and that nobody wants any more.
    #[must_use]
    pub fn next_recalled(&self) -> Option<Token> {
        self.pool.ledger.recalled.pop()
    }

    /// Lets a foreign job in; `done` is called by the worker that ran it.
    pub fn host(&self, job: Away, done: impl FnOnce(Answer) + Send + 'static) -> Hosted {
        let number = self.pool.ledger.next.fetch_add(1, Ordering::Relaxed);
        let hosted = Hosted {
            pool: Arc::clone(&self.pool),
            number,
        };
        lock(&self.pool.ledger.hosted).insert(number, FrameRef(std::ptr::null()));
        self.pool.submit_hosted(HostedTask {
            number,
            job,
            done: Box::new(done),
        });
        hosted
    }
}

/// A foreign job that waits for a worker.
pub(super) struct HostedTask {
    number: u64,
    job: Away,
    done: Box<dyn FnOnce(Answer) + Send>,
}

impl HostedTask {
    pub(super) fn run(self, worker: &Worker, head: *const Slot) {
        let answer = run_hosted(worker, head, self.number, &self.job);
        Self::finish(self.done, answer);
    }

    /// The pool has ended.
    pub(super) fn refuse(self) {
        Self::finish(self.done, Answer::Refused("the pool has ended".into()));
    }

    fn finish(done: Box<dyn FnOnce(Answer) + Send>, answer: Answer) {
        if catch_unwind(AssertUnwindSafe(|| done(answer))).is_err() {
            tracing::error!("whoever waited for a hosted job panicked when it was done");
        }
    }
}

/// A foreign job in this pool.
pub struct Hosted {
    pool: Arc<Pool>,
    number: u64,
}

impl Hosted {
    /// Stops it at its next spawn or sync; if it is done or unwinds already, nothing happens.
    pub fn abort(&self) {
        let mut hosted = lock(&self.pool.ledger.hosted);
        match hosted.get(&self.number) {
            // SAFETY: the frame lives as long as its entry, and we hold the lock.
            Some(FrameRef(frame)) if !frame.is_null() => self.pool.worker(0).abort_children(*frame),
            Some(_) => drop(hosted.remove(&self.number)),
            None => {}
        }
    }
}

fn run_hosted(worker: &Worker, head: *const Slot, number: u64, job: &Away) -> Answer {
    let path: Vec<u32> = job.id.path().collect();
    let Some((&index, above)) = path.split_last() else {
        return Answer::Refused("a job without an id".into());
    };
    let root = RootFrame::new(above.iter().copied().collect());
    let hosted = || lock(&worker.pool().ledger.hosted);
    match hosted().get_mut(&number) {
        Some(entry) => *entry = FrameRef(&raw const root.frame),
        None => return Answer::Aborted,
    }
    let outcome = worker.on_bottom(head, &raw const root.frame, || {
        (job.function.run_bytes)(
            Cx {
                head,
                parent: &raw const root.frame,
            },
            index,
            &job.arguments,
        )
    });
    hosted().remove(&number);
    match outcome {
        Ok(bytes) => Answer::Result(bytes),
        Err(RemoteFailure::Codec(error)) => Answer::Refused(error),
        Err(RemoteFailure::Aborted) => Answer::Aborted,
        Err(RemoteFailure::Panicked(payload)) => {
            Answer::Panicked(format!("{} (job {})", message(&*payload), job.id))
        }
    }
}

/// What a panic says, if it says anything.
fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a job panicked")
}

impl Pool {
    /// Owner: the job in `slot` is not wanted any more. True if it was away: its arguments are the owner's again.
    pub(super) fn recall(&self, slot: *const Slot) -> bool {
        let mut away = lock(&self.ledger.away);
        let Some(token) = away
            .iter()
            .find_map(|(token, entry)| (entry.0 == slot).then_some(*token))
        else {
            return false;
        };
        // Between the entry in the books and the state there is a moment in which the gate still touches the slot.
        // SAFETY: the slot is the caller's.
        while unsafe { (*slot).state() } == State::Leaving {
            std::hint::spin_loop();
        }
        away.remove(&token);
        self.ledger.recalled.push(token);
        true
    }
}

fn take_answer(job: &Slot) -> Answer {
    let answer: *mut Answer = job
        .extra
        .swap(std::ptr::null_mut(), Ordering::Relaxed)
        .cast();
    // SAFETY: the job is answered, so `deliver` put a box there, and each is taken once.
    *unsafe { Box::from_raw(answer) }
}

/// Owner: the result of an answered job, with its `&mut` arguments copied back.
///
/// # Safety
/// The slot holds an answered job of `F`, the caller's.
pub(super) unsafe fn import<F: Function>(job: &Slot) -> F::Out {
    // SAFETY: an answered job keeps its arguments.
    let args = unsafe { job.take::<Args<'_, F>>() };
    match take_answer(job) {
        Answer::Result(bytes) => function::import::<F>(args, &bytes).unwrap_or_else(|error| {
            panic!(
                "the result of `{}` cannot be read: {error}",
                F::VTABLE.info.name
            )
        }),
        Answer::Panicked(message) => resume_unwind(Box::new(message)),
        Answer::Aborted | Answer::Refused(_) => super::thread::raise_abort(),
    }
}

/// Owner: as [`import`], by the vtable, with the result dropped; the panic of the job is returned.
///
/// # Safety
/// The slot holds an answered job, the caller's.
pub(super) unsafe fn finish(job: &Slot) -> Result<(), String> {
    let function = job.function.get();
    let answer = take_answer(job);
    if let Answer::Result(bytes) = &answer {
        // SAFETY: an answered job keeps its arguments.
        return unsafe { (function.finish)(job, bytes) };
    }
    // SAFETY: as above.
    unsafe { (function.drop_args)(job) };
    match answer {
        Answer::Panicked(message) => Err(message),
        _ => Ok(()),
    }
}

/// Drops an answer that nobody wants.
pub(super) fn drop_answer(job: &Slot) {
    drop(take_answer(job));
}
