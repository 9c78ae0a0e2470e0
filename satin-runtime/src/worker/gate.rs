//! The gate: the narrow door through which jobs leave and enter the process as bytes.
//!
//! The side outside (the network thread; in tests a thread that plays another node) takes the oldest jobs, brings
//! back their results or the jobs themselves, and lets hosted jobs in. The workers never wait for the gate, and the
//! gate never touches user memory: the gate reads arguments of a job that has left its deque, and the owner alone writes
//! results.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    time::Instant,
};

use super::{
    pool::Pool,
    repair::{Orphans, depth_of},
    thread::{Bottom, Found, RootFrame, Worker, place_of},
};
use crate::{
    job::{
        Answer, Back, DepartureId, Fingerprint, History, HostedId, JobId, Offer, OrphanNews,
        Parcel, Recall, RootName, RootRun, RootTag, Saved, Taken,
        codec::{self, CodecError, Effort},
        function::{self, Args, Function, RemoteFailure},
        record::{Cx, Frame, STAYS, Slot, SlotState, flag},
    },
    observe::repeats,
};

/// The jobs that a [`Gate::take`] found.
#[derive(Default, Debug)]
pub struct Haul {
    /// The oldest first; siblings, if they are several.
    pub jobs: Vec<Taken>,
    /// About how many more could have been taken.
    pub left: u32,
}

/// The listener outside the gate, as a rule the node's bridge. Called from any thread, also from within calls of the
/// gate; must be quick, must not block, and must not call the gate.
pub trait Outside: Send + Sync {
    /// Tells how many workers have nothing to do; workers that wait in a sync and have room for another job are included.
    /// Told when the number has changed.
    fn idle(&self, workers: u32) {
        let _ = workers;
    }
    /// A job can be taken. Told once after a [`Gate::take`] that found fewer jobs than it was to find.
    fn public(&self) {}
    /// The jobs that a [`Gate::take_for`] with the number `request` has found, when the take needed longer.
    fn took(&self, request: u64, haul: Haul) {
        let _ = (request, haul);
    }
    /// A hosted job is done.
    fn done(&self, key: HostedId, answer: Answer);
    /// A job that is away is not waited for any more; an answer would be dropped.
    fn recalled(&self, token: DepartureId, why: Recall);
    /// A marked job found itself among the orphans (see [`Gate::orphan`]): from now on it is away, waiting for the
    /// orphan's answer, or to be put back.
    fn claimed(&self, token: DepartureId, parcel: Parcel) {
        let _ = (token, parcel);
    }
    /// Tells the jobs that are held for other nodes, or many of them, when they have changed.
    fn held(&self, jobs: Vec<(JobId, Fingerprint)>) {
        let _ = jobs;
    }
    /// A job that came back undone with a mark has been run here and is done.
    fn repaired(&self, job: JobId) {
        let _ = job;
    }
    /// A hosted job was given up, as [`Gate::save_hosted`] asked; `saved` are the results that were finished below it.
    fn saved(&self, key: HostedId, saved: Vec<Saved>) {
        let _ = (key, saved);
    }
    /// A root job of `main` has its result, which its caller gets after [`Gate::root_kept`]. Told if
    /// [`Gate::keep_roots`] asked for it.
    fn root_result(&self, root: RootTag, saved: Saved) {
        let _ = (root, saved);
    }
    /// `main` has been stopped, as [`Gate::stop_main`] asked; `saved` are the results that were finished below its root
    /// job.
    fn yielded(&self, saved: Vec<Saved>) {
        let _ = saved;
    }
    /// A job here has improved a bound.
    fn offered(&self, offer: Offer) {
        let _ = offer;
    }
    /// A root job begins here.
    fn root_started(&self, root: RootRun) {
        let _ = root;
    }
    /// A root job has its result, which is in safe hands if it was to be kept; its caller does not know it yet. Not told
    /// of one that was stopped.
    fn root_finished(&self, root: RootRun) {
        let _ = root;
    }
}

/// Number of held jobs that the node is told of. Too small: a job that kills this node is not known. Too large: each
/// change tells long lists.
const TOLD_MOST: usize = 64;

/// Number of jobs in a row that may turn out to be unable to leave before a take gives up. Too small: a take misses
/// jobs that could leave. Too large: a take writes arguments in vain for long.
const MOST_THAT_STAY: usize = 64;

/// The books of the gate, and what stands on the board at its door.
#[derive(Default)]
pub(super) struct Ledger {
    next: AtomicU64,
    books: Mutex<Absent>,
    /// How many jobs in the books have come back: workers look at it before they lock.
    returned: AtomicUsize,
    hosted: Mutex<HostedJobs>,
    /// Number of hosted jobs that have not been started.
    waiting: AtomicUsize,
    /// Number of jobs that are for other nodes.
    held: AtomicUsize,
    /// Held by the thread that is telling `outside` of the held jobs, so that only one tells at a time.
    told_held: Mutex<()>,
    outside: RwLock<Option<Arc<dyn Outside>>>,
    /// Is there an `outside`?
    heard: AtomicBool,
    /// True once a gate has existed. Until then no worker measures depths.
    open: AtomicBool,
    /// A take found too little: the next worker that publishes tells.
    wanted: AtomicBool,
    /// The number of idle workers that was told last.
    told: Mutex<u32>,
    pub(super) hungry: AtomicBool,
    pub(super) term: AtomicU32,
    home: LocalRoots,
    pub(super) orphans: Orphans,
}

/// The name of this process for root jobs that no other node will ever run again: no other process uses the same.
struct LocalRoots(AtomicU64);

impl Default for LocalRoots {
    fn default() -> LocalRoots {
        LocalRoots(AtomicU64::new(
            RandomState::new().hash_one(std::process::id()),
        ))
    }
}

/// Jobs of this process that stand in no deque.
#[derive(Default)]
struct Absent {
    away: HashMap<DepartureId, AwayJob>,
    /// Jobs that came back and can be taken, the shallowest first; jobs that must stay in this process are last.
    returned: BTreeSet<(u16, SlotRef)>,
    /// Jobs that came back and are for other nodes, the shallowest first.
    held: BTreeMap<(u16, SlotRef), (JobId, Fingerprint)>,
    places: HashMap<SlotRef, AbsentPlace>,
    /// Jobs that came back with a mark and are not done. (An aborted job stays until its slot is used by the next
    /// job that comes back.)
    repairs: HashSet<SlotRef>,
    /// Number of times that all jobs were called home: jobs that were about to leave then come back too.
    called_home: u64,
}

struct AwayJob {
    slot: SlotRef,
    depth: u16,
    /// The state in which the job was before it left.
    back: Back,
    fingerprint: Fingerprint,
}

/// An answer in the record of its job, until the owner collects it.
pub(super) struct Delivered {
    pub(super) answer: Answer,
    pub(super) fingerprint: Fingerprint,
}

impl Absent {
    /// The shallowest that came back, of those that fit.
    fn first_returned(&self, fits: impl Fn(&Slot, Back) -> bool) -> Option<(u16, SlotRef)> {
        let fits = |(_, slot): &&(u16, SlotRef)| match self.places.get(slot) {
            // SAFETY: the books are locked, so no thread takes the job, and its owner waits for it.
            Some(AbsentPlace::Returned { back, .. }) => fits(unsafe { &*slot.0 }, *back),
            _ => false,
        };
        self.returned.iter().find(fits).copied()
    }
}

/// The place of a job in the books.
#[derive(Clone, Copy)]
enum AbsentPlace {
    Away(DepartureId),
    Returned { depth: u16, back: Back },
    Held { depth: u16, back: Back },
}

/// The hosted jobs of this process: jobs of other nodes, each under its key.
#[derive(Default)]
struct HostedJobs {
    jobs: HashMap<HostedId, HostedJob>,
    /// Keys of the jobs that wait; a job may be gone meanwhile.
    queue: VecDeque<HostedId>,
    /// Keys of the jobs that are for other nodes; a job may be gone meanwhile.
    held: VecDeque<HostedId>,
}

enum HostedJob {
    Waiting(Parcel),
    Held(Parcel),
    /// A worker is about to run it.
    Starting {
        /// Flags that the job's frame gets when it starts, see [`flag`].
        flags: u32,
    },
    Running(FrameRef),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SlotRef(*const Slot);
// SAFETY: the slot lives as long as its entry: its owner removes the entry, or waits until another has, before it frees
// the slot.
unsafe impl Send for SlotRef {}

pub(super) struct FrameRef(pub(super) *const Frame);
// SAFETY: the frame lives as long as its entry: its worker removes the entry before the frame dies.
unsafe impl Send for FrameRef {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gate of one pool. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    pool: Arc<Pool>,
}

/// The source of the next job that leaves.
#[derive(Clone, Copy)]
enum TakeFrom {
    Deque(u32),
    Returned,
    Held,
}

/// Jobs on their way out. They have left their deques and stay in their slots until their arguments are written.
struct Leavers {
    hosted: Vec<Taken>,
    own: Vec<Leaver>,
    /// Number of jobs that the caller wants.
    most: u32,
    /// About how many there were.
    all: usize,
    /// True if held jobs are among them: then the outside is told which are still held.
    had_held: bool,
    called_home: u64,
}

struct Leaver {
    slot: SlotRef,
    id: JobId,
    root: RootRun,
    back: Back,
    /// The job as bytes, once the arguments are written.
    parcel: Option<Parcel>,
}

impl Leaver {
    fn job(&self) -> &Slot {
        // SAFETY: the job was taken to leave: its slot and the frames above it live until it is settled.
        unsafe { &*self.slot.0 }
    }

    /// Writes the arguments, if that is known to be quick for this function. False if it is not.
    fn pack_quickly(&mut self) -> bool {
        let number = function::number_of(self.job().function.get());
        let Some(number) = number.filter(|number| function::is_quick(*number)) else {
            return false;
        };
        let packed = self.pack(Effort::QUICK);
        if packed.is_err() {
            function::note_effort(number, None);
        }
        packed.is_ok()
    }

    /// Writes the arguments, however long it takes, and notes how long that was.
    fn pack_patiently(&mut self) -> Result<(), CodecError> {
        let began = Instant::now();
        self.pack(Effort::ANY)?;
        if let Some(parcel) = &self.parcel {
            let is_short = parcel.arguments.len() <= Effort::QUICK.most();
            let took = is_short.then(|| began.elapsed());
            function::note_effort(parcel.function, took);
        }
        Ok(())
    }

    fn pack(&mut self, effort: Effort) -> Result<(), CodecError> {
        let (id, history) = (self.id.clone(), self.back.history);
        self.parcel = Some(pack(self.job(), id, self.root, history, effort)?);
        Ok(())
    }
}

impl Gate {
    pub(super) fn of(pool: &Arc<Pool>) -> Gate {
        if !pool.has_gate() {
            pool.ledger.open.store(true, Ordering::Relaxed);
        }
        Gate {
            pool: Arc::clone(pool),
        }
    }

    /// The number of the pool: no other of this process has it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.pool.number
    }

    /// The oldest job that can leave, the shallowest of all, and up to `most - 1` siblings of it; hosted jobs that have
    /// not been started go first. Never more than half of what there is. If that is not enough, workers are asked, and
    /// [`Outside::public`] tells when one has answered.
    ///
    /// Code of the user writes the arguments, on the calling thread.
    #[must_use]
    pub fn take(&self, most: u32) -> Haul {
        let mut result = Haul::default();
        self.send_off(self.choose(most), |haul| result = haul);
        result
    }

    /// As [`Gate::take`], for a thread that must not wait for code of the user. `None` if there is some that is not known
    /// to be quick: then another thread does it, and [`Outside::took`] tells, with this number.
    #[must_use]
    pub fn take_for(&self, request: u64, most: u32) -> Option<Haul> {
        let mut leavers = self.choose(most);
        let mut haul = None;
        if leavers.own.iter_mut().all(Leaver::pack_quickly) {
            self.send_off(leavers, |quick| haul = Some(quick));
        } else {
            let gate = self.clone();
            self.pool.clerk.run(move || {
                let tell = |haul| gate.pool.tell(|outside| outside.took(request, haul));
                gate.send_off(leavers, tell);
            });
        }
        haul
    }

    /// Chooses jobs that may leave, at most `most` of them.
    fn choose(&self, most: u32) -> Leavers {
        let (pool, ledger) = (&*self.pool, &self.pool.ledger);
        let called_home = lock(&ledger.books).called_home;
        // Set before the look: a worker that publishes after it tells.
        ledger.wanted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Idle workers have been woken for hosted jobs that wait: so many of these are as good as started.
        let spare = ledger
            .waiting
            .load(Ordering::Relaxed)
            .saturating_sub(pool.idle() as usize);
        let held = ledger.held.load(Ordering::Relaxed);
        let returned = ledger.returned.load(Ordering::Relaxed);
        let all = held + spare + returned + pool.public() as usize;
        let limit = (most as usize).min(all.div_ceil(2));
        let mut hosted: Vec<Taken> = match limit {
            0 => Vec::new(),
            _ => pool.unhold().into_iter().collect(),
        };
        if hosted.is_empty() && !pool.holds_own() {
            hosted = pool.unstart(spare.min(limit));
        }
        let mut own = Vec::new();
        if hosted.is_empty() {
            self.take_own(limit, &mut own);
        }
        if hosted.len() + own.len() < most as usize {
            pool.ask_those_without_public();
        } else {
            ledger.wanted.store(false, Ordering::Relaxed);
        }
        Leavers {
            hosted,
            own,
            most,
            all,
            had_held: held > 0,
            called_home,
        }
    }

    /// Writes the arguments of the jobs where that has not been done, enters all jobs in the books as away, and tells
    /// before any other thread can act on them. A job whose arguments cannot be written stays; if all stay, other jobs
    /// are chosen.
    fn send_off(&self, mut leavers: Leavers, tell: impl FnOnce(Haul)) {
        let mut stayed = 0;
        loop {
            let before = leavers.own.len();
            leavers.own.retain_mut(|leaver| self.pack_or_stay(leaver));
            stayed += before - leavers.own.len();
            let is_empty = leavers.own.is_empty() && leavers.hosted.is_empty();
            if !is_empty || before == 0 || stayed > MOST_THAT_STAY {
                break;
            }
            leavers = self.choose(leavers.most);
        }
        let found = leavers.hosted.len() + leavers.own.len();
        let had_held = leavers.had_held;
        self.enter_all(leavers, tell);
        if had_held {
            self.pool.tell_held();
        }
        if stayed > 0 && found == 0 {
            self.want_more();
        }
    }

    /// False if the job stays in this process.
    fn pack_or_stay(&self, leaver: &mut Leaver) -> bool {
        if leaver.parcel.is_some() {
            return true;
        }
        let Err(error) = leaver.pack_patiently() else {
            return true;
        };
        let function = leaver.job().function.get().info.name;
        repeats::warn("a job cannot leave this process", function, &error);
        self.pool.come_back(leaver.job(), STAYS, leaver.back);
        false
    }

    fn enter_all(&self, leavers: Leavers, tell: impl FnOnce(Haul)) {
        let Leavers { hosted, own, .. } = leavers;
        let mut jobs = hosted;
        let mut books = lock(&self.pool.ledger.books);
        if books.called_home != leavers.called_home {
            drop(books);
            for leaver in own {
                let depth = length_of(&leaver.id);
                self.pool.come_back(leaver.job(), depth, leaver.back);
            }
            return tell(Haul { jobs, left: 0 });
        }
        let mut awaited = Vec::new();
        for leaver in own {
            let Some(parcel) = &leaver.parcel else {
                unreachable!("its arguments have been written");
            };
            let (job, depth, print) = (leaver.job(), length_of(&leaver.id), parcel.fingerprint);
            let owner = Worker::of(job).index;
            let (token, is_awaited) =
                (self.pool).enter_away_under(&mut books, job, depth, leaver.back, print);
            if is_awaited {
                awaited.push(owner);
            }
            jobs.extend(leaver.parcel.map(|parcel| Taken::Own(token, parcel)));
        }
        let left = leavers.all.saturating_sub(jobs.len());
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        tell(Haul { jobs, left });
        drop(books);
        for owner in awaited {
            self.pool.sleep.unpark(owner);
        }
    }

    /// Asks the workers to tell when another job becomes public, after a take in which no chosen job could leave.
    fn want_more(&self) {
        self.pool.ledger.wanted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.pool.ask_those_without_public();
        if self.pool.public() > 0 {
            self.pool.tell_public();
        }
    }

    /// Leaves `run` to the clerk's thread, where code of the user may panic, recurse and take long.
    pub fn aside(&self, run: impl FnOnce() + Send + 'static) {
        self.pool.clerk.run(run);
    }

    /// The same for what is to be done before whatever comes [after the offers](Gate::after_offers).
    pub fn aside_in_order(&self, run: impl FnOnce() + Send + 'static) {
        self.pool.clerk.run_ordered(run);
    }

    /// Runs `run` now, or, if offers are still being read and compared, after them: a node that sees a result has then
    /// seen the offers that came before it.
    pub fn after_offers(&self, run: impl FnOnce(&Gate) + Send + 'static) {
        if self.pool.clerk.is_in_order() {
            return run(self);
        }
        let gate = self.clone();
        self.pool.clerk.run_ordered(move || run(&gate));
    }

    /// The size of a worker's stack, in bytes.
    #[must_use]
    pub fn stack_size(&self) -> usize {
        self.pool.clerk.stack()
    }

    fn take_own(&self, limit: usize, jobs: &mut Vec<Leaver>) {
        // Other threads take too, and some jobs cannot leave: then the take looks again, but not for ever.
        let mut misses = 2 * self.pool.workers() + 4;
        while jobs.is_empty() && limit > 0 && misses > 0 {
            let Some((source, depth)) = self.pool.shallowest() else {
                return;
            };
            let mut parent = None;
            while jobs.len() < limit && misses > 0 {
                let Some(Found { slot, back }) = self.take_from(source, depth, parent) else {
                    misses -= 1;
                    break;
                };
                // SAFETY: we have just taken the job: its slot and the frames above it live until it is settled.
                let job = unsafe { &*slot };
                parent = Some(job.parent.get());
                match self.prepare(job, back) {
                    Some(leaver) => jobs.push(leaver),
                    None => misses -= 1,
                }
            }
        }
    }

    /// A job of that depth, of that parent if there is one. Public jobs of one depth in one deque are siblings.
    fn take_from(
        &self,
        source: TakeFrom,
        depth: u16,
        parent: Option<*const Frame>,
    ) -> Option<Found> {
        match source {
            TakeFrom::Deque(victim) => {
                let victim = self.pool.worker(victim);
                let (level, _) = victim.public()?;
                if level != depth {
                    return None;
                }
                let slot = victim.give()?;
                let back = Back::default();
                Some(Found { slot, back })
            }
            TakeFrom::Returned => self.pool.take_returned(|books| {
                let &(level, slot) = books.returned.first()?;
                // SAFETY: under the lock no thread takes the job, so its owner waits for it.
                let here = unsafe { (*slot.0).parent.get() };
                let fits = level == depth && parent.is_none_or(|parent| parent == here);
                fits.then_some((level, slot))
            }),
            // Only one held job for each thief: if the thief dies, it is known which job was there.
            TakeFrom::Held if parent.is_none() => self.pool.take_held(),
            TakeFrom::Held => None,
        }
    }

    fn prepare(&self, job: &Slot, back: Back) -> Option<Leaver> {
        let Some((id, root)) = place_of(job.parent.get(), job.index()) else {
            // Below a nested entry.
            self.pool.come_back(job, STAYS, back);
            return None;
        };
        job.enter(SlotState::Leaving);
        Some(Leaver {
            slot: SlotRef(job),
            id,
            root,
            back,
            parcel: None,
        })
    }

    /// Brings an answer. False if the job is not away any more: it has been answered or recalled.
    pub fn deliver(&self, token: DepartureId, answer: Answer) -> bool {
        let mut books = lock(&self.pool.ledger.books);
        let Some(away) = books.away.remove(&token) else {
            return false;
        };
        let AwayJob {
            slot,
            depth,
            mut back,
            fingerprint,
        } = away;
        books.places.remove(&slot);
        // SAFETY: the job was away, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*slot.0 };
        match answer {
            Answer::Refused(why) => {
                tracing::debug!(why, "a job was refused elsewhere");
                // Elsewhere it would be refused again.
                back.at_once = true;
                back.held = false;
                self.pool.come_back_under(books, job, STAYS, back);
            }
            Answer::Aborted => {
                (self.pool).come_back_or_hold(books, job, (depth, back), fingerprint);
            }
            answer => {
                drop(books);
                let delivered = Delivered {
                    answer,
                    fingerprint,
                };
                // A parked owner reads the result at once, and sees for itself whether it is a failure.
                if job.judge().is_none() || job.is_awaited() {
                    self.pool.answer(slot, delivered);
                } else {
                    let gate = self.clone();
                    self.pool
                        .clerk
                        .run(move || gate.pool.judge(slot, delivered));
                }
            }
        }
        true
    }

    /// Brings a job back undone: it can be stolen again, by workers and through the gate, until its owner takes it.
    /// False as for [`Gate::deliver`].
    pub fn put_back(&self, token: DepartureId, back: Back) -> bool {
        let mut books = lock(&self.pool.ledger.books);
        let Some(away) = books.away.remove(&token) else {
            return false;
        };
        let (slot, depth) = (away.slot, away.depth);
        // SAFETY: the job was away, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*slot.0 };
        let is = (depth, back.after(away.back));
        if back.history.marked {
            books.repairs.insert(slot);
        }
        self.pool
            .come_back_or_hold(books, job, is, away.fingerprint);
        true
    }

    /// Tells the workers what has changed among the orphans: marked jobs look themselves up there.
    pub fn orphan(&self, news: OrphanNews) {
        self.pool.ledger.orphans.learn(news);
    }

    /// No node outside answers any more: jobs that are away come back, and no orphan is claimed from now on.
    pub fn call_home(&self) {
        self.pool.ledger.orphans.forget();
        self.keep_roots(false);
        lock(&self.pool.ledger.books).called_home += 1;
        self.release();
        loop {
            let token = lock(&self.pool.ledger.books).away.keys().next().copied();
            let Some(token) = token else { return };
            self.put_back(token, Back::default());
        }
    }

    /// Gives a hosted job up: the job stops at its next spawn or sync, and the results of finished children of the
    /// frames that had not passed their sync yet are saved. Answered by [`Outside::saved`], or by [`Outside::done`] if
    /// the job ended first.
    pub fn save_hosted(&self, key: HostedId) {
        if self.stop_hosted(key, flag::ABORT | flag::SAVE) {
            self.pool.tell(|outside| outside.saved(key, Vec::new()));
        }
    }

    /// Hosted jobs that no worker has started go back: [`Outside::done`] says [`Answer::Aborted`] for each.
    pub fn give_back(&self) {
        while let Some(Taken::Hosted(key, _)) = self.pool.unhold() {
            self.pool.tell(|outside| outside.done(key, Answer::Aborted));
            self.pool.tell_held();
        }
        while let Some(task) = self.pool.next_hosted(|| true) {
            self.pool.forget_hosted(task.key);
            self.pool
                .tell(|outside| outside.done(task.key, Answer::Aborted));
        }
    }

    /// Orders that results of root jobs of `main` are told ([`Outside::root_result`]) before `main` sees them.
    ///
    /// Only of those that took a while.
    pub fn keep_roots(&self, keep: bool) {
        self.pool.main.keep(keep);
    }

    /// The result is in safe hands: `main` may see it.
    pub fn root_kept(&self, root: RootTag) {
        self.pool.main.kept(root);
    }

    /// Another node is to run `main`: its root job is given up as by [`Gate::save_hosted`], and its calls unwind, those
    /// to come too, until [`Gate::begin_main`]. Answered by [`Outside::yielded`].
    pub fn stop_main(&self) {
        self.pool.stop_main();
    }

    /// `main` is about to be called here, from the start. Its root jobs are numbered from 0, and marked unless this is
    /// the first term.
    pub fn begin_main(&self, term: u32) {
        self.set_term(term);
        self.pool.main.begin_again(term > 0);
    }

    /// Lets a hosted job in, under a key of its own. Any worker runs it, also one that waits in a sync;
    /// [`Outside::done`] has the answer. Until a worker starts it, it may leave again.
    pub fn host(&self, key: HostedId, parcel: Parcel) {
        let ledger = &self.pool.ledger;
        let mut hosted = lock(&ledger.hosted);
        hosted.jobs.insert(key, HostedJob::Waiting(parcel));
        hosted.queue.push_back(key);
        ledger.waiting.fetch_add(1, Ordering::Relaxed);
        drop(hosted);
        self.pool.wake_for_any_task();
        if self.pool.has_ended() {
            self.pool.refuse_hosted();
        }
    }

    /// Lets a hosted job in that only other nodes may run, until [`Gate::release`].
    pub fn hold(&self, key: HostedId, parcel: Parcel) {
        let ledger = &self.pool.ledger;
        let mut hosted = lock(&ledger.hosted);
        hosted.jobs.insert(key, HostedJob::Held(parcel));
        hosted.held.push_back(key);
        ledger.held.fetch_add(1, Ordering::Relaxed);
        drop(hosted);
        self.pool.tell_held();
        if self.pool.has_ended() {
            self.pool.refuse_hosted();
        }
    }

    /// The workers may run what is held for other nodes.
    pub fn release(&self) {
        while let Some(Found { slot, mut back }) = self.pool.take_held() {
            // SAFETY: we have just taken the job: its slot lives until it is settled.
            let job = unsafe { &*slot };
            back.held = false;
            let place = place_of(job.parent.get(), job.index());
            let depth = place.map_or(STAYS, |(id, _)| depth_of(job, &id));
            self.pool.come_back(job, depth, back);
        }
        while let Some(Taken::Hosted(key, parcel)) = self.pool.unhold() {
            self.host(key, parcel);
        }
        self.pool.tell_held();
    }

    /// The same for one job of this node: it is an orphan somewhere, and will be claimed.
    pub fn release_one(&self, name: &(JobId, Fingerprint)) {
        let mut books = lock(&self.pool.ledger.books);
        let place = books.held.iter().find(|(_, is)| *is == name);
        let Some(place) = place.map(|(place, _)| *place) else {
            return;
        };
        let Found { slot, mut back } = self.pool.strike_held(&mut books, place);
        back.held = false;
        // SAFETY: the job was held, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*slot };
        self.pool.come_back_under(books, job, place.0, back);
        self.pool.tell_held();
    }

    /// Stops a hosted job: at its next spawn or sync, if it has started. The job is answered all the same, with its
    /// result if it ended first.
    pub fn abort_hosted(&self, key: HostedId) {
        if self.stop_hosted(key, flag::ABORT) {
            self.pool.tell(|outside| outside.done(key, Answer::Aborted));
        }
    }

    /// True if the job had not been started, and never will be.
    fn stop_hosted(&self, key: HostedId, how: u32) -> bool {
        let mut hosted = lock(&self.pool.ledger.hosted);
        match hosted.jobs.get_mut(&key) {
            Some(HostedJob::Running(FrameRef(frame))) => {
                // SAFETY: the frame lives as long as its entry, and we hold the lock.
                let frame = unsafe { &**frame };
                self.pool.stop_children(frame, how);
            }
            Some(HostedJob::Starting { flags }) => *flags |= how,
            Some(HostedJob::Waiting(_)) => {
                hosted.jobs.remove(&key);
                self.pool.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
            Some(HostedJob::Held(_)) => {
                hosted.jobs.remove(&key);
                self.pool.ledger.held.fetch_sub(1, Ordering::Relaxed);
                drop(hosted);
                self.pool.tell_held();
                return true;
            }
            None => {}
        }
        false
    }

    /// Sets the listener that is told what happens from now on; first of all how many workers are idle.
    pub fn listen(&self, outside: Arc<dyn Outside>) {
        let ledger = &self.pool.ledger;
        *ledger
            .outside
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(outside);
        ledger.heard.store(true, Ordering::SeqCst);
        *lock(&ledger.told) = 0;
        self.pool.tell_idle();
    }

    /// Do other nodes look for work? (`satin::hungry`)
    pub fn set_hungry(&self, hungry: bool) {
        self.pool.ledger.hungry.store(hungry, Ordering::Relaxed);
    }

    /// Root jobs wait until [`Gate::release_roots`].
    pub fn hold_roots(&self) {
        self.pool.hold_roots(true);
    }

    /// Root jobs start, also those to come.
    pub fn release_roots(&self) {
        self.pool.hold_roots(false);
    }

    /// Sets the name under which this process runs root jobs that no other node will ever run again. When this node is
    /// gone, the other nodes tell by that name whose root jobs they were.
    pub fn set_home(&self, home: Fingerprint) {
        let Fingerprint(bits) = home;
        self.pool.ledger.home.0.store(bits, Ordering::Relaxed);
    }

    /// How many masters there have been before this one: part of a root job's tag.
    pub fn set_term(&self, term: u32) {
        self.pool.ledger.term.store(term, Ordering::Relaxed);
    }
}

/// A hosted job that a worker is about to run.
pub(super) struct HostedTask {
    key: HostedId,
    parcel: Parcel,
}

impl HostedTask {
    pub(super) fn run(self, worker: &Worker, head: *const Slot) {
        let key = self.key;
        match self.end(worker, head) {
            HostedEnd::Answered(answer) => worker.pool().tell(|outside| outside.done(key, answer)),
            HostedEnd::GivenUp(saved) => worker.pool().tell(|outside| outside.saved(key, saved)),
        }
    }

    fn end(self, worker: &Worker, head: *const Slot) -> HostedEnd {
        let pool = worker.pool();
        let HostedTask { key, parcel } = self;
        let refused = |why| {
            pool.forget_hosted(key);
            HostedEnd::Answered(Answer::Refused(why))
        };
        let root_run = parcel.root_run();
        let mut above = parcel.id;
        let Some(index) = above.pop() else {
            return refused("a job without an id".into());
        };
        let Some(function) = function::by_number(parcel.function) else {
            return refused(format!("no function has the number {}", parcel.function));
        };
        // Whether it is an orphan itself the node has seen to.
        let marked = parcel.history.marked && !pool.ledger.orphans.clears(&above.child(index));
        let id = above.child(index);
        let root = RootFrame::new(above, root_run);
        let parent = &raw const root.frame;
        if let Some(stage) = lock(&pool.ledger.hosted).jobs.get_mut(&key) {
            if let HostedJob::Starting { flags } = *stage
                && flags != 0
            {
                pool.stop_children(&root.frame, flags);
            }
            *stage = HostedJob::Running(FrameRef(parent));
        }
        let run = || {
            if worker.is_stopped(parent) {
                return Err(RemoteFailure::Aborted);
            }
            (function.run_bytes)(Cx { head, parent }, index, &parcel.arguments)
        };
        let bottom = Bottom {
            head,
            parent,
            index,
            marked,
        };
        let outcome = worker.hosting(id, || worker.on_bottom(bottom, None, run));
        pool.forget_hosted(key);
        let aborted = matches!(outcome, Err(RemoteFailure::Aborted));
        if root.frame.has(flag::SAVE) && (aborted || root.frame.has(flag::TORN)) {
            return HostedEnd::GivenUp(root.take_saved());
        }
        HostedEnd::Answered(match outcome {
            Ok(packed) => Answer::Result {
                bytes: packed.bytes,
                needs: packed.needs,
            },
            Err(RemoteFailure::Codec(error)) => Answer::Refused(error.to_string()),
            Err(RemoteFailure::Aborted) => Answer::Aborted,
            Err(RemoteFailure::Panicked(payload)) => {
                let id = root.prefix().child(index);
                Answer::Panicked(named(message(&*payload), &id))
            }
        })
    }
}

/// The end of a hosted job.
enum HostedEnd {
    Answered(Answer),
    GivenUp(Vec<Saved>),
}

/// The text of a panic's payload, or a general sentence if the payload has no text.
fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    codec::message(payload).unwrap_or("a job panicked")
}

/// A panic that has crossed from one node to another ends with the job that it began in.
const OF_JOB: &str = " (job ";

/// The text with the name of the job, unless the text comes from a job further down, which has a name already.
fn named(text: &str, id: &JobId) -> String {
    match came_from_afar(text) {
        true => text.into(),
        false => format!("{text}{OF_JOB}{id})"),
    }
}

/// True if that panic has come from another node.
pub(crate) fn came_from_afar(text: &str) -> bool {
    text.contains(OF_JOB)
}

impl Pool {
    // ------------------------------------------------------------- telling

    /// Calls the listener outside, if there is any.
    pub(super) fn tell(&self, what: impl FnOnce(&dyn Outside)) {
        if !self.is_heard() {
            return;
        }
        let outside = self.ledger.outside.read();
        if let Some(outside) = &*outside.unwrap_or_else(PoisonError::into_inner) {
            what(&**outside);
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.ledger.heard.load(Ordering::SeqCst)
    }

    /// The number of idle workers has changed. One after the other, so that the last that is told is the last.
    pub(super) fn tell_idle(&self) {
        if !self.is_heard() {
            return;
        }
        let mut told = lock(&self.ledger.told);
        let idle = self.idle();
        if *told != idle {
            *told = idle;
            self.tell(|outside| outside.idle(idle));
        }
    }

    /// A job has become public, and a fence has passed since: tells the outside if a take waits for that.
    pub(super) fn tell_public(&self) {
        if self.is_wanted() && self.ledger.wanted.swap(false, Ordering::Relaxed) {
            self.tell(|outside| outside.public());
        }
    }

    /// True if a take has found too little, and no job has become public since.
    pub(super) fn is_wanted(&self) -> bool {
        self.ledger.wanted.load(Ordering::Relaxed)
    }

    /// True if depths must be noted.
    pub(super) fn has_gate(&self) -> bool {
        self.ledger.open.load(Ordering::Relaxed)
    }

    /// The run of a root job that begins here.
    pub(super) fn root_run(&self, number: u32, fingerprint: Fingerprint) -> RootRun {
        RootRun {
            term: self.ledger.term.load(Ordering::Relaxed),
            name: RootName {
                number,
                fingerprint,
            },
        }
    }

    /// The name of this process for root jobs that no other process runs, see [`Gate::set_home`].
    pub(super) fn home(&self) -> Fingerprint {
        Fingerprint(self.ledger.home.0.load(Ordering::Relaxed))
    }

    /// A fingerprint that no job has ever had: for a root job of `main` whose arguments cannot be serialized.
    pub(super) fn unrepeatable(&self) -> Fingerprint {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Fingerprint(home) = self.home();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Fingerprint::of("", &[home.to_le_bytes(), number.to_le_bytes()].concat())
    }

    // ------------------------------------------------------------- what there is to take

    /// The source and the depth of the shallowest job that can leave; jobs that are for other nodes go first.
    fn shallowest(&self) -> Option<(TakeFrom, u16)> {
        if self.holds_own() {
            return Some((TakeFrom::Held, 0));
        }
        let deques = (0..self.workers()).filter_map(|victim| {
            let (depth, _) = self.worker(victim).public()?;
            Some((TakeFrom::Deque(victim), depth))
        });
        let returned = self.has_returned().then(|| {
            let depth = lock(&self.ledger.books).returned.first()?.0;
            Some((TakeFrom::Returned, depth))
        });
        let all = deques.chain(returned.flatten());
        all.filter(|(_, depth)| *depth != STAYS)
            .min_by_key(|(_, depth)| *depth)
    }

    /// How many jobs are public, those left out that must stay.
    fn public(&self) -> u64 {
        let deques = (0..self.workers()).filter_map(|victim| self.worker(victim).public());
        deques
            .map(|(depth, count)| if depth == STAYS { 0 } else { count })
            .sum()
    }

    fn ask_those_without_public(&self) {
        let deques = (0..self.workers()).map(|victim| self.worker(victim));
        deques
            .filter(|victim| !victim.has_public())
            .for_each(Worker::request);
    }

    // ------------------------------------------------------------- jobs that came back

    pub(super) fn has_returned(&self) -> bool {
        self.ledger.returned.load(Ordering::Relaxed) > 0
    }

    /// Worker: a job that has come back undone, to be run.
    pub(super) fn next_returned(&self, fits: impl Fn(&Slot, Back) -> bool) -> Option<Found> {
        if !self.has_returned() {
            return None;
        }
        self.take_returned(|books| books.first_returned(fits))
    }

    /// Is there one of those for that worker?
    pub(super) fn has_returned_for(&self, worker: &Worker) -> bool {
        let fits = |job: &Slot, back| !worker.would_deadlock(job, back);
        self.has_returned() && lock(&self.ledger.books).first_returned(fits).is_some()
    }

    /// Is there a job of this node that is for others?
    fn holds_own(&self) -> bool {
        self.ledger.held.load(Ordering::Relaxed) > 0 && !lock(&self.ledger.books).held.is_empty()
    }

    fn take_held(&self) -> Option<Found> {
        let mut books = lock(&self.ledger.books);
        let first = *books.held.first_key_value()?.0;
        Some(self.strike_held(&mut books, first))
    }

    /// Strikes the held job at `place` off the books: from now on the caller has it.
    fn strike_held(&self, books: &mut Absent, place: (u16, SlotRef)) -> Found {
        books.held.remove(&place);
        self.ledger.held.fetch_sub(1, Ordering::Relaxed);
        let (_, slot) = place;
        let Some(AbsentPlace::Held { back, .. }) = books.places.remove(&slot) else {
            unreachable!("the books contradict themselves");
        };
        Found { slot: slot.0, back }
    }

    /// The job, which the caller has taken, is for other nodes, which know it by that name.
    pub(super) fn hold(&self, job: &Slot, depth: u16, back: Back, name: (JobId, Fingerprint)) {
        let books = lock(&self.ledger.books);
        if books.called_home > 0 {
            return self.come_back_under(books, job, depth, back); // nobody else is there any more
        }
        self.hold_under(books, job, (depth, back), name);
    }

    /// The job, which the caller has taken, panics with that story.
    pub(super) fn give_up(&self, job: &Slot, story: String, fingerprint: Fingerprint) {
        let answer = Answer::Panicked(story);
        let delivered = Delivered {
            answer,
            fingerprint,
        };
        self.answer(SlotRef(job), delivered);
    }

    fn hold_under(
        &self,
        mut books: MutexGuard<'_, Absent>,
        job: &Slot,
        (depth, back): (u16, Back),
        name: (JobId, Fingerprint),
    ) {
        let owner = Worker::of(job).index;
        let slot = SlotRef(job);
        books.held.insert((depth, slot), name);
        books.places.insert(slot, AbsentPlace::Held { depth, back });
        self.ledger.held.fetch_add(1, Ordering::Relaxed);
        // The last access, as when it comes back. For its owner it is away.
        let awaited = job.enter(SlotState::Away);
        drop(books);
        if awaited {
            self.sleep.unpark(owner);
        }
        self.tell_held();
    }

    fn come_back_or_hold(
        &self,
        books: MutexGuard<'_, Absent>,
        job: &Slot,
        (depth, back): (u16, Back),
        fingerprint: Fingerprint,
    ) {
        if back.held && books.called_home == 0 {
            // The job has been away, so it stands in the tree; and it can leave, a root job too.
            if let Some((id, _)) = place_of(job.parent.get(), job.index()) {
                let depth = length_of(&id);
                return self.hold_under(books, job, (depth, back), (id, fingerprint));
            }
        }
        self.come_back_under(books, job, depth, back);
    }

    /// Tells the outside which jobs are held, one call after the other, so that the last list told is the newest.
    fn tell_held(&self) {
        if !self.is_heard() {
            return;
        }
        let _last = lock(&self.ledger.told_held);
        let books = lock(&self.ledger.books);
        let mut names: Vec<_> = books.held.values().take(TOLD_MOST).cloned().collect();
        drop(books);
        let hosted = lock(&self.ledger.hosted);
        let held = hosted
            .held
            .iter()
            .filter_map(|key| match hosted.jobs.get(key) {
                Some(HostedJob::Held(parcel)) => Some((parcel.id.clone(), parcel.fingerprint)),
                _ => None,
            });
        names.extend(held.take(TOLD_MOST));
        drop(hosted);
        self.tell(|outside| outside.held(names));
    }

    /// A hosted job that is for other nodes: it leaves.
    fn unhold(&self) -> Option<Taken> {
        if self.ledger.held.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut hosted = lock(&self.ledger.hosted);
        while let Some(key) = hosted.held.pop_front() {
            if let Some(HostedJob::Held(_)) = hosted.jobs.get(&key)
                && let Some(HostedJob::Held(parcel)) = hosted.jobs.remove(&key)
            {
                self.ledger.held.fetch_sub(1, Ordering::Relaxed);
                return Some(Taken::Hosted(key, parcel));
            }
        }
        None
    }

    fn take_returned(
        &self,
        choose: impl FnOnce(&Absent) -> Option<(u16, SlotRef)>,
    ) -> Option<Found> {
        let mut books = lock(&self.ledger.books);
        let (depth, slot) = choose(&books)?;
        books.returned.remove(&(depth, slot));
        let place = books.places.remove(&slot);
        self.ledger.returned.fetch_sub(1, Ordering::Relaxed);
        let Some(AbsentPlace::Returned { back, .. }) = place else {
            unreachable!("the books contradict themselves");
        };
        Some(Found { slot: slot.0, back })
    }

    /// True if that job came back with a mark. The job is done now, and its mark is struck off.
    pub(super) fn is_repaired(&self, job: &Slot) -> bool {
        lock(&self.ledger.books).repairs.remove(&SlotRef(job))
    }

    /// The job, which the caller has taken, is to be had again.
    pub(super) fn come_back(&self, job: &Slot, depth: u16, back: Back) {
        self.come_back_under(lock(&self.ledger.books), job, depth, back);
    }

    fn come_back_under(
        &self,
        mut books: MutexGuard<'_, Absent>,
        job: &Slot,
        depth: u16,
        back: Back,
    ) {
        let owner = Worker::of(job).index;
        books.returned.insert((depth, SlotRef(job)));
        books
            .places
            .insert(SlotRef(job), AbsentPlace::Returned { depth, back });
        self.ledger.returned.fetch_add(1, Ordering::Relaxed);
        // The last access: once the lock is gone, so may be the job.
        let awaited = job.enter(SlotState::Returned);
        drop(books);
        if awaited {
            self.sleep.unpark(owner);
        }
        if back.history.marked {
            self.wake_all_for_task(); // not everybody can run it, see `would_deadlock`
        } else {
            self.wake_for_any_task();
        }
        if depth != STAYS {
            self.tell_public();
        }
    }

    /// Enters a job, which the caller has taken, as away. `tell` gets the token of the job before any other thread can
    /// act on it.
    pub(super) fn enter_away(
        &self,
        job: &Slot,
        depth: u16,
        back: Back,
        fingerprint: Fingerprint,
        tell: impl FnOnce(DepartureId),
    ) -> DepartureId {
        let owner = Worker::of(job).index;
        let mut books = lock(&self.ledger.books);
        let (token, awaited) = self.enter_away_under(&mut books, job, depth, back, fingerprint);
        tell(token);
        drop(books);
        if awaited {
            self.sleep.unpark(owner);
        }
        token
    }

    /// The token, and whether the owner waits for the job: it is to be woken once the books are unlocked.
    fn enter_away_under(
        &self,
        books: &mut Absent,
        job: &Slot,
        depth: u16,
        back: Back,
        fingerprint: Fingerprint,
    ) -> (DepartureId, bool) {
        let token = DepartureId(self.ledger.next.fetch_add(1, Ordering::Relaxed));
        let slot = SlotRef(job);
        books.away.insert(
            token,
            AwayJob {
                slot,
                depth,
                back,
                fingerprint,
            },
        );
        books.places.insert(slot, AbsentPlace::Away(token));
        // Under the lock, so that a thread that finds the entry finds the job away. Its owner perhaps waits for it.
        (token, job.enter(SlotState::Away))
    }

    /// Brings the answer to a job that has been taken off the books.
    fn answer(&self, slot: SlotRef, delivered: Delivered) {
        // SAFETY: the caller has the job, which is on no books: its owner waits until it is answered, or is this very thread.
        let job = unsafe { &*slot.0 };
        let owner = Worker::of(slot.0).index;
        let delivered = Box::into_raw(Box::new(delivered));
        job.extra.store(delivered.cast(), Ordering::Relaxed);
        if job.enter(SlotState::Answered) {
            self.sleep.unpark(owner);
        }
    }

    /// The same for a speculative job: a failure stops its siblings.
    fn judge(&self, slot: SlotRef, delivered: Delivered) {
        // SAFETY: as for `answer`.
        let job = unsafe { &*slot.0 };
        if let (Some(judge), Answer::Result { bytes, .. }) = (job.judge(), &delivered.answer)
            && (judge.in_bytes)(bytes)
        {
            let owner = Worker::of(slot.0).index;
            self.worker(owner).abort_children(job.parent.get());
        }
        self.answer(slot, delivered);
    }

    /// Owner: takes a job off the books, if it has come back, or is away or held and recalled for this reason. Gives its
    /// state if it was there: the job and its arguments are the owner's again.
    pub(super) fn take_home(&self, slot: *const Slot, recall: Option<Recall>) -> Option<Back> {
        let slot = SlotRef(slot);
        let mut books = lock(&self.ledger.books);
        match (books.places.get(&slot).copied()?, recall) {
            (AbsentPlace::Returned { depth, back }, _) => {
                books.places.remove(&slot);
                books.returned.remove(&(depth, slot));
                self.ledger.returned.fetch_sub(1, Ordering::Relaxed);
                Some(back)
            }
            (AbsentPlace::Held { depth, .. }, Some(_)) => {
                let Found { back, .. } = self.strike_held(&mut books, (depth, slot));
                drop(books);
                self.tell_held();
                Some(back)
            }
            (AbsentPlace::Away(token), Some(why)) => {
                books.places.remove(&slot);
                books.away.remove(&token);
                drop(books);
                self.tell(|outside| outside.recalled(token, why));
                Some(Back::default())
            }
            (AbsentPlace::Away(_) | AbsentPlace::Held { .. }, None) => None,
        }
    }

    // ------------------------------------------------------------- hosted jobs

    pub(super) fn has_hosted(&self) -> bool {
        self.ledger.waiting.load(Ordering::Relaxed) > 0
    }

    /// A hosted job, for a worker that can run one.
    pub(super) fn next_hosted(&self, can_run: impl Fn() -> bool) -> Option<HostedTask> {
        if !self.has_hosted() || !can_run() {
            return None;
        }
        let mut hosted = lock(&self.ledger.hosted);
        while let Some(key) = hosted.queue.pop_front() {
            let Some(stage) = hosted.jobs.get_mut(&key) else {
                continue;
            };
            if let HostedJob::Waiting(_) = stage {
                let start = HostedJob::Starting { flags: 0 };
                let HostedJob::Waiting(parcel) = std::mem::replace(stage, start) else {
                    unreachable!("it waited a line ago");
                };
                self.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                return Some(HostedTask { key, parcel });
            }
        }
        None
    }

    /// Takes back up to `most` hosted jobs that have not been started: the last one, and siblings of it.
    fn unstart(&self, most: usize) -> Vec<Taken> {
        let mut jobs: Vec<Taken> = Vec::new();
        if most == 0 {
            return jobs;
        }
        let mut hosted = lock(&self.ledger.hosted);
        let mut parent: Option<JobId> = None;
        while jobs.len() < most
            && let Some(&key) = hosted.queue.back()
        {
            if let Some(HostedJob::Waiting(parcel)) = hosted.jobs.get(&key) {
                if parent
                    .as_ref()
                    .is_some_and(|id| !id.is_sibling_of(&parcel.id))
                {
                    break;
                }
                let Some(HostedJob::Waiting(parcel)) = hosted.jobs.remove(&key) else {
                    unreachable!("it waited a line ago");
                };
                self.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
                parent.get_or_insert_with(|| parcel.id.clone());
                jobs.push(Taken::Hosted(key, parcel));
            }
            hosted.queue.pop_back();
        }
        jobs
    }

    /// The job's frame is about to die.
    fn forget_hosted(&self, key: HostedId) {
        lock(&self.ledger.hosted).jobs.remove(&key);
    }

    /// The pool has ended: refuses the hosted jobs that are held, and those that wait to be started.
    pub(super) fn refuse_hosted(&self) {
        while let Some(Taken::Hosted(key, _)) = self.unhold() {
            let answer = Answer::Refused("the pool has ended".into());
            self.tell(|outside| outside.done(key, answer));
        }
        while let Some(task) = self.next_hosted(|| true) {
            self.forget_hosted(task.key);
            let answer = Answer::Refused("the pool has ended".into());
            self.tell(|outside| outside.done(task.key, answer));
        }
    }
}

/// The length of an id, which is how deep its job stands.
pub(super) fn length_of(id: &JobId) -> u16 {
    id.path().count().min(usize::from(STAYS) - 1) as u16
}

/// A job as it travels. The caller has taken it; its arguments stay.
pub(super) fn pack(
    job: &Slot,
    id: JobId,
    root: RootRun,
    history: History,
    effort: Effort,
) -> Result<Parcel, CodecError> {
    let vtable = job.function.get();
    let function = function::number_of(vtable).ok_or(CodecError::Unregistered)?;
    // SAFETY: the caller has taken the job and not run it, so its arguments are there and no other thread takes them.
    let packed = unsafe { (vtable.export)(job, effort) }?;
    let own = Fingerprint::of(vtable.info.name, &packed.bytes);
    Ok(Parcel {
        fingerprint: match id.is_root_job() {
            true => own,
            false => own.within(root.name.fingerprint),
        },
        id,
        function,
        arguments: packed.bytes,
        needs: packed.needs,
        term: root.term,
        root: root.name.fingerprint,
        history,
    })
}

/// Owner: takes the answer off an answered job.
pub(super) fn take_answer(job: &Slot) -> Delivered {
    let delivered: *mut Delivered = job
        .extra
        .swap(std::ptr::null_mut(), Ordering::Relaxed)
        .cast();
    // SAFETY: the job is answered, so `deliver` put a box there, and each is taken once.
    *unsafe { Box::from_raw(delivered) }
}

/// Owner: the result of an answered job, with its `&mut` arguments copied back.
///
/// # Safety
/// The slot holds an answered job of `F`, the caller's.
pub(super) unsafe fn import<F: Function>(job: &Slot) -> F::Out {
    // SAFETY: an answered job keeps its arguments.
    let args = unsafe { job.take::<Args<'_, F>>() };
    match take_answer(job).answer {
        Answer::Result { bytes, .. } => function::import::<F>(args, &bytes)
            .unwrap_or_else(|error| panic!("{}", unreadable(F::VTABLE.info.name, &error))),
        Answer::Panicked(message) => resume_unwind(Box::new(message)),
        Answer::Aborted | Answer::Refused(_) => super::thread::raise_abort(),
    }
}

fn unreadable(function: &str, error: &CodecError) -> String {
    format!("the result of `{function}`, which another node has sent, cannot be read: {error}")
}

/// Owner: as [`import`], by the vtable, with the result dropped; the panic of the job is returned.
///
/// # Safety
/// The slot holds an answered job, the caller's.
pub(super) unsafe fn finish(job: &Slot) -> Result<(), String> {
    let function = job.function.get();
    let answer = take_answer(job).answer;
    if let Answer::Result { bytes, .. } = &answer {
        // SAFETY: an answered job keeps its arguments.
        let finished = unsafe { (function.finish)(job, bytes) };
        return finished.map_err(|error| unreadable(function.info.name, &error));
    }
    // SAFETY: as above.
    unsafe { (function.drop_args)(job) };
    match answer {
        Answer::Panicked(message) => Err(message),
        _ => Ok(()),
    }
}
