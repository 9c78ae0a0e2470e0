//! The gate: the narrow door through which jobs leave and enter the process as bytes.
//!
//! Whoever stands outside (the network thread; in tests a thread that plays another node) takes the oldest job, brings
//! back its result or the job itself, and lets foreign jobs in. The workers never wait for the gate, and the gate
//! never touches user memory: it reads arguments of a job that has left its deque, and the owner alone writes results.

use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::{
    pool::Pool,
    thread::{RootFrame, Worker, path_of},
};
use crate::job::{
    Answer, Fingerprint, Offer, Parcel, RootTag,
    function::{self, Args, Function, RemoteFailure},
    record::{Cx, Frame, Slot, State},
};

/// Names one departure of a job. A job that is taken again gets another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(pub u64);

/// What a [`Gate::take`] found.
#[derive(Default, Debug)]
pub struct Haul {
    /// The oldest first; siblings, if they are several.
    pub jobs: Vec<Leaving>,
    /// About how many more could have been taken.
    pub left: u32,
}

/// A job on its way out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// A worker here had spawned it, and waits for the answer.
    Own(Token, Parcel),
    /// It was hosted here under this key and had not been started: nothing of it stays here.
    Hosted(u64, Parcel),
}

/// Whoever stands outside the gate. Called from any thread, also from within calls of the gate; must be quick, must not
/// block, and must not call the gate.
pub trait Outside: Send + Sync {
    /// So many workers have nothing to do, those included that wait in a sync and have room for another job. Told when
    /// it has changed.
    fn idle(&self, workers: u32) {
        let _ = workers;
    }
    /// There is something to take. Told once after a [`Gate::take`] that found fewer than it was to find.
    fn public(&self) {}
    /// A hosted job is done.
    fn done(&self, key: u64, answer: Answer);
    /// A job that is away is not wanted any more; an answer would be dropped.
    fn recalled(&self, token: Token);
    /// A job here has improved a bound.
    fn offered(&self, offer: Offer) {
        let _ = offer;
    }
    /// A root job begins.
    fn root_started(&self, root: RootTag) {
        let _ = root;
    }
    /// A root job has its result; its caller does not know it yet.
    fn root_finished(&self, root: RootTag) {
        let _ = root;
    }
}

/// The books of the gate.
#[derive(Default)]
pub(super) struct Ledger {
    next: AtomicU64,
    turn: AtomicU32,
    away: Mutex<HashMap<Token, SlotRef>>,
    hosted: Mutex<HashMap<u64, FrameRef>>,
    outside: RwLock<Option<Arc<dyn Outside>>>,
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
    /// The oldest job that can leave, and up to `most - 1` siblings of it. Never more than half of what there is. If
    /// that is not enough, workers are asked, and [`Outside::public`] will tell.
    #[must_use]
    pub fn take(&self, most: u32) -> Haul {
        let (pool, ledger) = (&*self.pool, &self.pool.ledger);
        let first = ledger.turn.fetch_add(1, Ordering::Relaxed);
        let mut victims = (0..if most == 0 { 0 } else { pool.workers() })
            .map(|step| pool.worker((first % pool.workers() + step) % pool.workers()));
        let job = victims.find_map(|victim| {
            if victim.nested.load(Ordering::Relaxed) != 0 {
                return None; // what it has now must stay in this process; workers may steal it
            }
            let slot = victim.give()?;
            // SAFETY: we have just stolen the job: its slot is ours until it is settled or away.
            self.send_away(unsafe { &*slot })
        });
        Haul {
            jobs: job.into_iter().collect(),
            left: 0,
        }
    }

    fn send_away(&self, job: &Slot) -> Option<Leaving> {
        let owner = Worker::of(job).index;
        let go_back = || {
            if job.enter(State::Returned) {
                self.pool.sleep.unpark(owner);
            }
        };
        let function = job.function.get();
        let numbers = (
            path_of(job.parent.get(), job.index()),
            function::number_of(function),
        );
        let (Some(id), Some(number)) = numbers else {
            go_back(); // below a nested entry: stays in this process
            return None;
        };
        job.enter(State::Leaving);
        // SAFETY: the job is leaving, so its arguments are there and nobody takes them.
        let packed = match unsafe { (function.export)(job) } {
            Ok(packed) => packed,
            Err(error) => {
                tracing::warn!(job = %id, function = function.info.name, error, "a job cannot leave this process");
                go_back();
                return None;
            }
        };
        let token = Token(self.pool.ledger.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.pool.ledger.away).insert(token, SlotRef(job));
        let fingerprint = Fingerprint::of(function.info.name, &packed.bytes);
        // From here on the owner may recall it, and perhaps waits for that.
        if job.enter(State::Away) {
            self.pool.sleep.unpark(owner);
        }
        let parcel = Parcel {
            id,
            function: number,
            arguments: packed.bytes,
            fingerprint,
            needs: packed.needs,
        };
        Some(Leaving::Own(token, parcel))
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
                if let (Some(judge), Answer::Result { bytes, .. }) = (job.judge(), &answer)
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

    /// Lets a foreign job in, under a key of its own. Any worker runs it, also one that waits in a sync;
    /// [`Outside::done`] has the answer.
    pub fn host(&self, key: u64, parcel: Parcel) {
        lock(&self.pool.ledger.hosted).insert(key, FrameRef(std::ptr::null()));
        self.pool.submit_hosted(HostedTask { key, parcel });
    }

    /// Stops a hosted job: at its next spawn or sync, if it has started. It is answered all the same, perhaps with what
    /// it was quicker with.
    pub fn abort_hosted(&self, key: u64) {
        let mut hosted = lock(&self.pool.ledger.hosted);
        match hosted.get(&key) {
            // SAFETY: the frame lives as long as its entry, and we hold the lock.
            Some(FrameRef(frame)) if !frame.is_null() => self.pool.worker(0).abort_children(*frame),
            Some(_) => drop(hosted.remove(&key)),
            None => {}
        }
    }

    /// From now on `outside` is told what happens.
    pub fn listen(&self, outside: Arc<dyn Outside>) {
        *self
            .pool
            .ledger
            .outside
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(outside);
    }

    /// Do other nodes look for work?
    pub fn set_hungry(&self, hungry: bool) {
        let _ = hungry;
    }

    /// Root jobs wait until [`Gate::release_roots`].
    pub fn hold_roots(&self) {}

    /// Root jobs start, also those to come.
    pub fn release_roots(&self) {}

    /// How many masters there have been before this one: part of a root job's tag.
    pub fn set_term(&self, term: u32) {
        let _ = term;
    }
}

/// A foreign job that waits for a worker.
pub(super) struct HostedTask {
    key: u64,
    parcel: Parcel,
}

impl HostedTask {
    pub(super) fn run(self, worker: &Worker, head: *const Slot) {
        let answer = run_hosted(worker, head, self.key, &self.parcel);
        worker.pool().tell(|outside| outside.done(self.key, answer));
    }

    /// The pool has ended.
    pub(super) fn refuse(self, pool: &Pool) {
        pool.tell(|outside| outside.done(self.key, Answer::Refused("the pool has ended".into())));
    }
}

fn run_hosted(worker: &Worker, head: *const Slot, key: u64, parcel: &Parcel) -> Answer {
    let path: Vec<u32> = parcel.id.path().collect();
    let Some((&index, above)) = path.split_last() else {
        return Answer::Refused("a job without an id".into());
    };
    let Some(function) = function::by_number(parcel.function) else {
        return Answer::Refused(format!("no function has the number {}", parcel.function));
    };
    let root = RootFrame::new(above.iter().copied().collect());
    let hosted = || lock(&worker.pool().ledger.hosted);
    match hosted().get_mut(&key) {
        Some(entry) => *entry = FrameRef(&raw const root.frame),
        None => return Answer::Aborted,
    }
    let outcome = worker.on_bottom(head, &raw const root.frame, || {
        (function.run_bytes)(
            Cx {
                head,
                parent: &raw const root.frame,
            },
            index,
            &parcel.arguments,
        )
    });
    hosted().remove(&key);
    match outcome {
        Ok(packed) => Answer::Result {
            bytes: packed.bytes,
            needs: packed.needs,
        },
        Err(RemoteFailure::Codec(error)) => Answer::Refused(error),
        Err(RemoteFailure::Aborted) => Answer::Aborted,
        Err(RemoteFailure::Panicked(payload)) => {
            Answer::Panicked(format!("{} (job {})", message(&*payload), parcel.id))
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
    /// Tells whoever stands outside.
    pub(super) fn tell(&self, what: impl FnOnce(&dyn Outside)) {
        let outside = self.ledger.outside.read();
        if let Some(outside) = &*outside.unwrap_or_else(PoisonError::into_inner) {
            what(&**outside);
        }
    }

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
        drop(away);
        self.tell(|outside| outside.recalled(token));
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
        Answer::Result { bytes, .. } => {
            function::import::<F>(args, &bytes).unwrap_or_else(|error| {
                panic!(
                    "the result of `{}` cannot be read: {error}",
                    F::VTABLE.info.name
                )
            })
        }
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
    if let Answer::Result { bytes, .. } = &answer {
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
