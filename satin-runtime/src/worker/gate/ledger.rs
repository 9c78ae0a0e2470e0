//! The ledger of the gate: the jobs of this process that stand in no deque, away or come back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::super::{
    flow::AsideTask,
    frames::RootFrame,
    frames::place_of,
    pool::Pool,
    repair::Orphans,
    thread::{TakenSlot, Worker},
};
use super::Outside;
use super::duplicate::{Duplicate, KnownCosts};
use super::hosted::{HostedJob, HostedJobs};
use super::pack::{WholeAnswer, length_of};
use crate::job::{
    Answer, Back, DepartureId, Fingerprint, Gathered, JobName, JobShape, JobTrip, Recall, Taken,
    record::{Frame, STAYS, Slot, SlotState, flag},
};

/// Number of held jobs that the node is told of. Too small: a job that kills this node is not known. Too large: each
/// change tells long lists.
pub(super) const TOLD_MOST: usize = 64;

/// The ledger of the gate, and the words that workers and the outside leave for each other there.
#[derive(Default)]
pub(in crate::worker) struct Ledger {
    pub(super) next: AtomicU64,
    pub(super) absent: Mutex<Absent>,
    /// How many jobs in the ledger have come back: workers look at it before they lock.
    pub(super) returned: AtomicUsize,
    pub(super) hosted: Mutex<HostedJobs>,
    /// Number of hosted jobs that have not been started.
    pub(super) waiting: AtomicUsize,
    /// Number of jobs that are for other nodes.
    pub(super) held: AtomicUsize,
    /// Held by the thread that is telling `outside` of the held jobs, so that only one tells at a time.
    pub(super) told_held: Mutex<()>,
    pub(super) outside: RwLock<Option<Arc<dyn Outside>>>,
    /// Is there an `outside`?
    pub(super) heard: AtomicBool,
    /// True once a gate has existed. Until then no worker measures depths.
    pub(super) open: AtomicBool,
    /// A take found too little: the next worker that publishes tells.
    pub(super) wanted: AtomicBool,
    /// A take has found too few tasks for a node whose workers have some, see [`Wants`](crate::job::Wants).
    pub(super) surplus_wanted: AtomicBool,
    /// The clerk is about to make jobs public in the place of workers that do not answer.
    pub(super) seizing: AtomicBool,
    /// The number of idle workers that was told last.
    pub(super) told: Mutex<u32>,
    /// What jobs take here.
    pub(super) costs: KnownCosts,
    pub(in crate::worker) hungry: AtomicBool,
    pub(in crate::worker) term: AtomicU32,
    pub(super) home: HomeName,
    pub(in crate::worker) orphans: Orphans,
}

/// The name of this process for root jobs that no other node will ever run again: no other process uses the same.
pub(super) struct HomeName(pub(super) AtomicU64);

impl Default for HomeName {
    fn default() -> HomeName {
        HomeName(AtomicU64::new(
            RandomState::new().hash_one(std::process::id()),
        ))
    }
}

/// Jobs of this process that stand in no deque.
#[derive(Default)]
pub(super) struct Absent {
    pub(super) away: HashMap<DepartureId, AwayJob>,
    /// Jobs that came back and can be taken, the shallowest first; jobs that must stay in this process are last.
    pub(super) returned: BTreeSet<(u16, SlotRef)>,
    /// Jobs that came back and are for other nodes, the shallowest first.
    pub(super) held: BTreeMap<(u16, SlotRef), JobName>,
    pub(super) places: HashMap<SlotRef, AbsentPlace>,
    /// Jobs that came back with a mark and are not done. (An aborted job stays until its slot is used by the next
    /// job that comes back.)
    pub(super) repairs: HashSet<SlotRef>,
    /// Number of times that all jobs were called home: jobs that were about to leave then come back too.
    pub(super) called_home: u64,
}

pub(super) struct AwayJob {
    pub(super) slot: SlotRef,
    pub(super) depth: u16,
    /// The state in which the job was before it left.
    pub(super) back: Back,
    pub(super) fingerprint: Fingerprint,
    /// When the job left.
    pub(super) since: Instant,
    /// What it looked like, if it was looked at.
    pub(super) shape: Option<JobShape>,
    /// The way that it has gone.
    pub(super) trip: JobTrip,
    /// Its second run, by a worker that has nothing else to do.
    pub(super) duplicate: Duplicate,
    /// The job came back while its arguments were being written again.
    pub(super) came_back: Option<Back>,
}

impl Absent {
    /// Strikes a job off that is away, and its place.
    pub(super) fn strike_away(&mut self, departure: DepartureId) -> AwayJob {
        let away = self.away.remove(&departure);
        let away = away.expect("the caller has found it");
        self.places.remove(&away.slot);
        away
    }

    /// The shallowest that came back, of those that fit.
    pub(super) fn first_returned(
        &self,
        fits: impl Fn(&Slot, Back) -> bool,
    ) -> Option<(u16, SlotRef)> {
        let fits = |(_, slot): &&(u16, SlotRef)| match self.places.get(slot) {
            // SAFETY: the ledger are locked, so no thread takes the job, and its owner waits for it.
            Some(AbsentPlace::Returned { back, .. }) => fits(unsafe { &*slot.0 }, *back),
            _ => false,
        };
        self.returned.iter().find(fits).copied()
    }
}

/// The place of a job in the ledger.
#[derive(Clone, Copy)]
pub(super) enum AbsentPlace {
    Away(DepartureId),
    Returned { depth: u16, back: Back },
    Held { depth: u16, back: Back },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotRef(pub(super) *const Slot);
// SAFETY: the slot lives as long as its entry: its owner removes the entry, or waits until another has, before it frees
// the slot.
unsafe impl Send for SlotRef {}

pub(in crate::worker) struct FrameRef(pub(in crate::worker) *const Frame);
// SAFETY: the frame lives as long as its entry: its worker removes the entry before the frame dies.
unsafe impl Send for FrameRef {}

impl FrameRef {
    /// Gathers the facts that are kept at the frame.
    ///
    /// # Safety
    /// The frame is the first field of a root frame, and lives.
    pub(in crate::worker) unsafe fn gather(&self, gathered: &mut Gathered) {
        // SAFETY: the caller's promise.
        let root = unsafe { &*self.0.cast::<RootFrame>() };
        let is_unwanted = root.frame.has(flag::ABORT) && !root.frame.has(flag::SAVE);
        // What no other node will run is of no use there. Of what is unwanted the root job may be over, and its bounds forgotten.
        if !root.frame.has(flag::FLEETING) && !is_unwanted {
            let print = root.run.name.fingerprint;
            gathered.add(root.job.clone(), &root.harvest(), print);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(in crate::worker) fn has_returned(&self) -> bool {
        self.ledger.returned.load(Ordering::Relaxed) > 0
    }

    /// Worker: a job that has come back undone, to be run.
    pub(in crate::worker) fn next_returned(
        &self,
        fits: impl Fn(&Slot, Back) -> bool,
    ) -> Option<TakenSlot> {
        if !self.has_returned() {
            return None;
        }
        self.take_returned(|absent| absent.first_returned(fits))
    }

    /// Is there one of those for that worker?
    pub(in crate::worker) fn has_returned_for(&self, worker: &Worker) -> bool {
        let fits = |job: &Slot, back| !worker.would_deadlock(job, back);
        self.has_returned() && lock(&self.ledger.absent).first_returned(fits).is_some()
    }

    /// Is there a job of this node that is for others?
    pub(super) fn holds_own(&self) -> bool {
        self.ledger.held.load(Ordering::Relaxed) > 0 && !lock(&self.ledger.absent).held.is_empty()
    }

    pub(super) fn take_held(&self) -> Option<TakenSlot> {
        let mut absent = lock(&self.ledger.absent);
        let first = *absent.held.first_key_value()?.0;
        Some(self.strike_held(&mut absent, first))
    }

    /// Strikes the held job at `place` off the ledger: from now on the caller has it.
    pub(super) fn strike_held(&self, absent: &mut Absent, place: (u16, SlotRef)) -> TakenSlot {
        absent.held.remove(&place);
        self.ledger.held.fetch_sub(1, Ordering::Relaxed);
        let (_, slot) = place;
        let Some(AbsentPlace::Held { back, .. }) = absent.places.remove(&slot) else {
            unreachable!("the ledger contradicts itself");
        };
        TakenSlot { slot: slot.0, back }
    }

    /// The job, which the caller has taken, is for other nodes, which know it by that name.
    pub(in crate::worker) fn hold(&self, job: &Slot, depth: u16, back: Back, name: JobName) {
        let absent = lock(&self.ledger.absent);
        if absent.called_home > 0 {
            return self.come_back_under(absent, job, depth, back); // nobody else is there any more
        }
        self.hold_under(absent, job, depth, back, name);
    }

    /// The job, which the caller has taken, panics with that story.
    pub(in crate::worker) fn give_up(&self, job: &Slot, story: String) {
        self.answer(SlotRef(job), Answer::Panicked(story).into());
    }

    pub(super) fn hold_under(
        &self,
        mut absent: MutexGuard<'_, Absent>,
        job: &Slot,
        depth: u16,
        back: Back,
        name: JobName,
    ) {
        let owner = Worker::of(job).index;
        let slot = SlotRef(job);
        absent.held.insert((depth, slot), name);
        absent
            .places
            .insert(slot, AbsentPlace::Held { depth, back });
        self.ledger.held.fetch_add(1, Ordering::Relaxed);
        // The last access, as when it comes back. For its owner it is away.
        let awaited = job.enter(SlotState::Away);
        drop(absent);
        if awaited {
            self.sleep.unpark(owner);
        }
        self.tell_held();
    }

    pub(super) fn come_back_or_hold(
        &self,
        absent: MutexGuard<'_, Absent>,
        job: &Slot,
        depth: u16,
        back: Back,
        fingerprint: Fingerprint,
    ) {
        if back.held && absent.called_home == 0 {
            // The job has been away, so it stands in the tree; and it can leave, a root job too.
            if let Some(place) = place_of(job.parent.get(), job.index()) {
                let depth = length_of(&place.id);
                let name = JobName::new(place.id, fingerprint);
                return self.hold_under(absent, job, depth, back, name);
            }
        }
        self.come_back_under(absent, job, depth, back);
    }

    /// Tells the outside which jobs are held, one call after the other, so that the last list told is the newest.
    pub(super) fn tell_held(&self) {
        if !self.is_heard() {
            return;
        }
        let _last = lock(&self.ledger.told_held);
        let absent = lock(&self.ledger.absent);
        let mut names: Vec<_> = absent.held.values().take(TOLD_MOST).cloned().collect();
        drop(absent);
        let hosted = lock(&self.ledger.hosted);
        let held = hosted
            .held
            .iter()
            .filter_map(|key| match hosted.jobs.get(key) {
                Some(HostedJob::Held(parcel)) => Some(parcel.name()),
                _ => None,
            });
        names.extend(held.take(TOLD_MOST));
        drop(hosted);
        self.tell(|outside| outside.held(names));
    }

    /// A hosted job that is for other nodes: it leaves.
    pub(super) fn unhold(&self) -> Option<Taken> {
        if self.ledger.held.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut hosted = lock(&self.ledger.hosted);
        while let Some(key) = hosted.held.pop_front() {
            if let Some(HostedJob::Held(_)) = hosted.jobs.get(&key)
                && let Some(HostedJob::Held(parcel)) = hosted.remove(key)
            {
                self.ledger.held.fetch_sub(1, Ordering::Relaxed);
                return Some(Taken::Hosted(key, parcel));
            }
        }
        None
    }

    pub(super) fn take_returned(
        &self,
        choose: impl FnOnce(&Absent) -> Option<(u16, SlotRef)>,
    ) -> Option<TakenSlot> {
        let mut absent = lock(&self.ledger.absent);
        let (depth, slot) = choose(&absent)?;
        absent.returned.remove(&(depth, slot));
        let place = absent.places.remove(&slot);
        self.ledger.returned.fetch_sub(1, Ordering::Relaxed);
        let Some(AbsentPlace::Returned { back, .. }) = place else {
            unreachable!("the ledger contradicts itself");
        };
        Some(TakenSlot { slot: slot.0, back })
    }

    /// True if that job came back with a mark. The job is done now, and its mark is struck off.
    pub(in crate::worker) fn is_repaired(&self, job: &Slot) -> bool {
        lock(&self.ledger.absent).repairs.remove(&SlotRef(job))
    }

    /// The job, which the caller has taken, is to be had again.
    pub(in crate::worker) fn come_back(&self, job: &Slot, depth: u16, back: Back) {
        self.come_back_under(lock(&self.ledger.absent), job, depth, back);
    }

    pub(super) fn come_back_under(
        &self,
        mut absent: MutexGuard<'_, Absent>,
        job: &Slot,
        depth: u16,
        back: Back,
    ) {
        let depth = if back.stays { STAYS } else { depth };
        let owner = Worker::of(job).index;
        absent.returned.insert((depth, SlotRef(job)));
        absent
            .places
            .insert(SlotRef(job), AbsentPlace::Returned { depth, back });
        self.ledger.returned.fetch_add(1, Ordering::Relaxed);
        // The last access: once the lock is gone, so may be the job.
        let awaited = job.enter(SlotState::Returned);
        drop(absent);
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

    /// Enters a job, which the caller has taken, as away. `tell` gets its departure before any other thread can
    /// act on it.
    pub(in crate::worker) fn enter_away(
        &self,
        job: &Slot,
        depth: u16,
        back: Back,
        fingerprint: Fingerprint,
        tell: impl FnOnce(DepartureId),
    ) -> DepartureId {
        let owner = Worker::of(job).index;
        let mut absent = lock(&self.ledger.absent);
        let (departure, awaited) =
            self.enter_away_under(&mut absent, job, depth, back, fingerprint);
        tell(departure);
        drop(absent);
        if awaited {
            self.sleep.unpark(owner);
        }
        departure
    }

    /// The departure, and whether the owner waits for the job: it is to be woken once the ledger is unlocked.
    pub(super) fn enter_away_under(
        &self,
        absent: &mut Absent,
        job: &Slot,
        depth: u16,
        back: Back,
        fingerprint: Fingerprint,
    ) -> (DepartureId, bool) {
        let departure = DepartureId(self.ledger.next.fetch_add(1, Ordering::Relaxed));
        let slot = SlotRef(job);
        absent.away.insert(
            departure,
            AwayJob {
                slot,
                depth,
                back,
                fingerprint,
                since: Instant::now(),
                shape: None,
                trip: JobTrip::default(),
                duplicate: Duplicate::None,
                came_back: None,
            },
        );
        absent.places.insert(slot, AbsentPlace::Away(departure));
        // Under the lock, so that a thread that finds the entry finds the job away. Its owner perhaps waits for it.
        (departure, job.enter(SlotState::Away))
    }

    /// A job that was away comes back undone.
    pub(super) fn back_from(
        &self,
        mut absent: MutexGuard<'_, Absent>,
        departure: DepartureId,
        back: Back,
    ) {
        let Some(away) = absent.away.get_mut(&departure) else {
            return;
        };
        if let Duplicate::Writing = away.duplicate {
            away.came_back = Some(back);
            return;
        }
        let away = absent.strike_away(departure);
        away.duplicate.stop(self);
        // SAFETY: the job was away, and under the lock its owner cannot recall it: the slot waits for us.
        let job = unsafe { &*away.slot.0 };
        let back_after = back.after(away.back);
        if back.history.marked {
            absent.repairs.insert(away.slot);
        }
        if back_after.held {
            // Others cannot run it without the data that it needs, and nobody here would ever look whether they are still to be had.
            drop(absent);
            let waits = AsideTask {
                slot: away.slot.0,
                depth: away.depth,
                back: back_after,
                fingerprint: away.fingerprint,
            };
            if self.boards.waits(self, waits) {
                return;
            }
            return self.go_on_aside(waits);
        }
        self.come_back_or_hold(absent, job, away.depth, back_after, away.fingerprint);
    }

    /// A task aside in nobody's hands has waited for data, and goes on.
    pub(in crate::worker) fn go_on_aside(&self, task: AsideTask) {
        // SAFETY: the slot lies in the area aside, and is ours.
        let job = unsafe { &*task.slot };
        let absent = lock(&self.ledger.absent);
        self.come_back_or_hold(absent, job, task.depth, task.back, task.fingerprint);
    }

    /// Brings the answer to a job that has been taken off the ledger.
    pub(super) fn answer(&self, slot: SlotRef, whole: WholeAnswer) {
        // SAFETY: the caller has the job, which is in no ledger: its owner waits until it is answered, or is this very thread.
        let job = unsafe { &*slot.0 };
        let owner = Worker::of(slot.0).index;
        // SAFETY: as above, and so its parent lives.
        let is_task = unsafe { (*job.parent.get()).is_flow() };
        let whole = Box::into_raw(Box::new(whole));
        // In the record of the job until the owner collects it.
        job.extra.store(whole.cast(), Ordering::Relaxed);
        let is_awaited = job.enter(SlotState::Answered);
        if is_task {
            self.settle_task(slot.0);
        } else if is_awaited {
            self.sleep.unpark(owner);
        }
    }

    /// The same for a speculative job: a failure stops its siblings.
    pub(super) fn judge(&self, slot: SlotRef, whole: WholeAnswer) {
        // SAFETY: as for `answer`.
        let job = unsafe { &*slot.0 };
        if let (Some(judge), Answer::Result { bytes, .. }) = (job.judge(), &whole.answer)
            && (judge.in_bytes)(bytes)
        {
            let owner = Worker::of(slot.0).index;
            self.worker(owner).abort_children(job.parent.get());
        }
        self.answer(slot, whole);
    }

    /// Owner: takes a job off the ledger, if it has come back, or is away or held and recalled for this reason. Gives its
    /// state if it was there: the job and its arguments are the owner's again.
    pub(in crate::worker) fn take_home(
        &self,
        slot: *const Slot,
        recall: Option<Recall>,
    ) -> Option<Back> {
        let slot = SlotRef(slot);
        let mut absent = lock(&self.ledger.absent);
        match (absent.places.get(&slot).copied()?, recall) {
            (AbsentPlace::Returned { depth, back }, _) => {
                absent.places.remove(&slot);
                absent.returned.remove(&(depth, slot));
                self.ledger.returned.fetch_sub(1, Ordering::Relaxed);
                Some(back)
            }
            (AbsentPlace::Held { depth, .. }, Some(_)) => {
                let TakenSlot { back, .. } = self.strike_held(&mut absent, (depth, slot));
                drop(absent);
                self.tell_held();
                Some(back)
            }
            (AbsentPlace::Away(departure), Some(why)) => {
                absent.places.remove(&slot);
                absent.away.remove(&departure);
                drop(absent);
                self.tell(|outside| outside.recalled(departure, why));
                Some(Back::default())
            }
            (AbsentPlace::Away(_) | AbsentPlace::Held { .. }, None) => None,
        }
    }
}
