//! A worker: a thread, its deque and its slots. All functions here are off the fast path.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    mem::forget,
    panic::resume_unwind,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::panicking,
    time::{Duration, Instant},
};

use super::{
    cancel::Scopes,
    deque::{Deque, Head, Publish, Seized},
    flow::{AsideTask, FlowCore, ReadyTask},
    frames::{
        JobPlace, RootFrame, below, children_aborted, depth_of, frames_walked, hands_on, place_of,
        root_of, tear, walk_to_root,
    },
    gate::{self, Finished, HostedTask},
    harvest::Reaper,
    pool::{Awaits, Pool},
    progress::{self, RunningJob, Stage, Surveyor},
    repair::{self, LookUp},
    root::QueuedRoot,
    scope::turn,
    way::{KnownWay, WalkEnd},
};
use crate::{
    job::{
        Back, Fingerprint, JobId, Recall, RootName,
        codec::{self, stack_pointer},
        function::VTable,
        occupation::{Activity, Occupation},
        record::{AREA, Aborted, Cx, Frame, Payload, STAYS, Slot, SlotState, flag},
    },
    observe::Counters,
};

/// The header of a worker's area. Slots follow it.
///
/// Thieves use the deque's shared half, `counters` and the constants; every `Cell` is the owner's alone.
#[repr(C, align(4096))]
pub(crate) struct Worker {
    deque: Deque,
    /// The first free slot: for those who do not have it in a register, and for thieves that seize what lies below.
    head: Head,
    /// An invocation below this address has too little stack left.
    pub(super) stack_limit: Cell<usize>,
    /// The beginning of the running job on this stack, and the invocation that the job belongs to.
    pub(super) bottom: Cell<Bottom>,
    /// The innermost nested entry of the running job: where its slots begin, and its frame.
    nested: Cell<Option<Entry>>,
    /// The invocation of which a child runs here whose siblings may fail; null if none does.
    pub(super) in_child_of: Cell<*const Frame>,
    stack_top: Cell<usize>,
    stack_mib: Cell<usize>,
    pace: Cell<Coarseness>,
    pub(super) reaper: Reaper,
    pub(super) surveyor: Surveyor,
    /// A job that is away runs here a second time.
    duplicating: Cell<bool>,
    /// When the last unanswered request came, in nanoseconds of the pool's life; 0 if there is none.
    asked_at: AtomicU64,
    /// The root job that the running job belongs to, once it has been asked for.
    root: Cell<Option<RootName>>,
    /// The job from which names are told.
    base: RefCell<Base>,
    /// The bottom of the running job's chain of frames, once it has been asked for; null before.
    root_frame: Cell<*const RootFrame>,
    /// Jobs of other nodes that are under way on this stack.
    hosting: RefCell<Vec<JobId>>,
    /// The area, with its provenance.
    area: *mut u8,
    pool: *const Pool,
    pub(super) index: u32,
    pub(crate) counters: Counters,
}

// SAFETY: see the struct's documentation: what is not the owner's alone is atomic.
unsafe impl Sync for Worker {}
// SAFETY: a worker is made by the thread that builds the pool, and used by its own from then on.
unsafe impl Send for Worker {}

#[derive(Clone, Copy)]
pub(super) struct Bottom {
    pub(super) head: *const Slot,
    pub(super) parent: *const Frame,
    /// The number of the job among the children of that invocation.
    pub(super) index: u32,
    /// The job may have been run before: see [`repair`](super::repair).
    pub(super) marked: bool,
    /// The job, for estimates of how far it is; `None` if it is none that counts.
    pub(super) part: Option<RunningJob>,
}

/// A nested entry: the first slot that it may use, and its frame.
type Entry = (*const Slot, *const Frame);

/// As long as it lives a nested entry runs on this worker.
pub(super) struct InNested<'w> {
    worker: &'w Worker,
    outer: Option<Entry>,
}

impl Drop for InNested<'_> {
    fn drop(&mut self) {
        self.worker.nested.set(self.outer);
    }
}

/// The last job that has begun on this stack and whose parent does not run here below an earlier one. All invocations that lie
/// further down on the stack are below it in the tree, too, or below a nested entry.
struct Base {
    parent: *const Frame,
    /// The number of the job among the children of that invocation.
    index: u32,
    /// Where the stack stood: invocations below the job have lower addresses.
    stack: usize,
    /// The job's place in the tree, once it has been asked for.
    place: RefCell<Option<JobPlace>>,
    /// The way from the job to an invocation below it.
    way: RefCell<KnownWay>,
}

impl Default for Base {
    /// No job has begun.
    fn default() -> Base {
        Base {
            parent: std::ptr::null(),
            index: 0,
            stack: 0,
            place: RefCell::default(),
            way: RefCell::default(),
        }
    }
}

/// In debug builds names of at most so many levels are compared with those that a walk to the root finds. Too few: mistakes stay
/// hidden. Too many: tests of deep trees take long.
const MOST_CHECKED: u16 = 1000;

/// A thief that has asked a worker waits so long for an answer; then it helps itself. Too short: barriers stop all threads where a poll
/// would have come. Too long: thieves wait.
pub(super) const PATIENCE: Duration = Duration::from_micros(10);

/// Are the jobs so coarse that everything must be public at once?
#[derive(Clone, Copy)]
struct Coarseness {
    coarse: bool,
    /// Polls in a row that came quickly after the one before.
    quick: u32,
    last: Option<Instant>,
}

impl Coarseness {
    /// A poll that comes later than this after the one before, or after a request, shows coarse jobs.
    const LONG: Duration = Duration::from_micros(5);
    /// Number of quick polls in a row after which the jobs count as fine again.
    const QUICK: u32 = 64;
}

/// May a waiting worker run other jobs meanwhile?
#[derive(Clone, Copy, PartialEq, Eq)]
enum While {
    /// In a sync: an abort from above unwinds.
    Helping,
    /// On the way out of the function: an abort from above is looked at afterwards.
    Leaving,
    /// The job is not wanted any more: if it is away it is recalled.
    Stopping,
    /// The same, and the thread unwinds: a job that ran now would believe that it does itself.
    Unwinding,
}

/// Unwinds a job that has been aborted.
pub(super) fn raise_abort() -> ! {
    resume_unwind(Box::new(Aborted))
}

/// Programs built with `panic = "abort"` finish aborted jobs.
pub(super) const CAN_UNWIND: bool = cfg!(panic = "unwind");

impl Worker {
    /// The worker in whose area the slot is.
    #[inline(always)]
    pub(super) fn of<'w>(slot: *const Slot) -> &'w Worker {
        // SAFETY: slots exist only in areas, whose first bytes are the worker; the area outlives everything that
        // runs on the worker. The pointer has the provenance of the whole area.
        unsafe {
            &*slot
                .map_addr(|address| address & !(AREA - 1))
                .cast::<Worker>()
        }
    }

    pub(super) fn new(area: *mut u8, index: u32, pool: *const Pool) -> Worker {
        let base: *const Slot = area.wrapping_add(size_of::<Worker>()).cast();
        Worker {
            deque: Deque::new(base.addr(), area.addr() + AREA / 2),
            head: Head::new(base.addr()),
            stack_limit: Cell::new(0),
            bottom: Cell::new(Bottom {
                head: base,
                parent: std::ptr::null(),
                index: 0,
                marked: false,
                part: None,
            }),
            nested: Cell::new(None),
            in_child_of: Cell::new(std::ptr::null()),
            stack_top: Cell::new(0),
            stack_mib: Cell::new(0),
            pace: Cell::new(Coarseness {
                coarse: true,
                quick: 0,
                last: None,
            }),
            reaper: Reaper::default(),
            surveyor: Surveyor::default(),
            duplicating: Cell::new(false),
            asked_at: AtomicU64::new(0),
            root: Cell::new(None),
            base: RefCell::default(),
            root_frame: Cell::new(std::ptr::null()),
            hosting: RefCell::new(Vec::new()),
            area,
            pool,
            index,
            counters: Counters::default(),
        }
    }

    /// The slot at that position of the deque.
    pub(super) fn slot(&self, position: usize) -> *const Slot {
        self.area.with_addr(position).cast()
    }

    /// The first free slot.
    pub(super) fn head(&self) -> *const Slot {
        self.slot(self.head.get())
    }

    /// The slots from `head` on are free, or hold jobs that this worker has taken; those below hold unsettled ones.
    #[inline(always)]
    pub(super) fn set_head(&self, head: *const Slot) {
        self.head.set(head.addr());
    }

    /// The owner is about to take the jobs from `first` on. True if all of them are its own, and nobody has asked.
    #[inline(always)]
    pub(super) fn claim(&self, first: *const Slot) -> bool {
        self.head.claim(first.addr());
        self.deque.may_pop(first.addr())
    }

    #[inline(always)]
    pub(super) fn deque(&self) -> &Deque {
        &self.deque
    }

    /// What this worker does, for those who take samples.
    pub(super) fn occupation(&self) -> &Occupation {
        self.pool().occupation(self.index)
    }

    #[inline]
    pub(super) fn pool(&self) -> &Pool {
        // SAFETY: the pool outlives its workers: each thread holds it.
        unsafe { &*self.pool }
    }

    // ------------------------------------------------------------- looking up

    /// The slow path of a spawn: a thief asked, or the harvest watches, or the slots run out. Returns true if they do.
    ///
    /// Unwinds if the invocation has been aborted.
    #[cold]
    #[inline(never)]
    pub(super) fn look_after_push(&self, head: *const Slot, frame: *const Frame) -> bool {
        if self.is_marked(frame) {
            self.set_aside(head, frame);
        } else {
            match self.deque.is_asked() {
                true => self.answer(head),
                false => self.deque.end_watch(), // the harvest wants no job to be public
            }
            self.look_at_harvest(head, frame);
        }
        self.raise_if_aborted(frame);
        let area = std::ptr::from_ref(self).addr();
        assert!(
            head.addr() < area + AREA - AREA / 64,
            "the recursion is too deep: {} million jobs wait for their parents' sync; recurse less deeply, or check that the \
             recursion ends",
            (AREA / size_of::<Slot>()) >> 20
        );
        head.addr() >= area + AREA / 2
    }

    /// Answers requests: publishes jobs, wakes sleepers.
    fn answer(&self, head: *const Slot) {
        let (pool, pace) = (self.pool(), self.take_pace());
        let mut some_can_leave = false;
        let note = |first, count| {
            some_can_leave = pool.has_gate() && self.note_depths(first, count);
        };
        let published = self.deque.publish(head.addr(), self.how_much(pace), note);
        self.counters.publications.add(u64::from(published > 0));
        // Pairs with the fences of those who ask, sleep or abort: either they see what is public now, or we see them.
        fence(Ordering::SeqCst);
        let sleepers = pool.sleep.wake(published);
        if some_can_leave {
            pool.tell_public();
        }
        if sleepers || pace.coarse || pool.is_wanted() {
            self.deque.stay_asked();
        }
    }

    /// Notes how deep the jobs stand that are about to become public: the gate takes the shallowest of all workers. True
    /// if any of them can leave. Of many jobs the first are measured; the others count as shallow, which is right in a
    /// flat loop.
    fn note_depths(&self, first: usize, count: u64) -> bool {
        const MOST: u64 = 64;
        let first = self.slot(first);
        let mut some_can_leave = false;
        for place in 0..count.min(MOST) as usize {
            // SAFETY: the slot holds a private job, which cannot be popped now, so its parent lives.
            let job = unsafe { &*first.wrapping_add(place) };
            let depth = below(depth_of(job.parent.get()), 1);
            job.note_depth(depth);
            some_can_leave |= depth != STAYS;
        }
        some_can_leave
    }

    fn how_much(&self, pace: Coarseness) -> Publish {
        if pace.coarse {
            Publish::All
        } else {
            Publish::Half
        }
    }

    fn take_pace(&self) -> Coarseness {
        let now = Instant::now();
        let mut pace = self.pace.get();
        let long = pace
            .last
            .is_none_or(|last| now.duration_since(last) > Coarseness::LONG);
        if pace.coarse {
            pace.quick = if long { 0 } else { pace.quick + 1 };
            pace.coarse = pace.quick < Coarseness::QUICK;
        } else {
            // In fine times polls are rare, so only the age of the request says how long the job was.
            let asked = self.asked_at.load(Ordering::Relaxed);
            pace.coarse = asked != 0
                && self.pool().age().saturating_sub(asked) > Coarseness::LONG.as_nanos() as u64 * 4;
            pace.quick = 0;
        }
        pace.last = Some(now);
        self.pace.set(pace);
        self.asked_at.store(0, Ordering::Relaxed);
        pace
    }

    /// Unwinds if the invocation of `frame` has been aborted from above.
    fn raise_if_aborted(&self, frame: *const Frame) {
        self.raise_if_aborted_below(self.head(), frame);
    }

    /// The same; the jobs below `head` are unsettled then.
    fn raise_if_aborted_below(&self, head: *const Slot, frame: *const Frame) {
        // A thread that unwinds already is not asked: its chain of frames would be walked once for each invocation on it.
        if !panicking() && self.is_aborted(frame) {
            // Sticky: user code may catch the unwinding, but it will not get far.
            self.set_head(head);
            self.deque.ask();
            tear(frame);
            raise_abort();
        }
    }

    /// Unwinds if the job that runs here has been stopped, as a spawn would.
    pub(super) fn raise_if_stopped(&self) {
        let around = self.innermost();
        if !panicking() && self.is_stopped(around) {
            // Sticky, as above.
            self.deque.ask();
            tear(around);
            raise_abort();
        }
    }

    /// True if an invocation above has said that the one of `frame` is to stop.
    pub(super) fn is_aborted(&self, frame: *const Frame) -> bool {
        // SAFETY: the frame is that of an invocation that runs.
        CAN_UNWIND && self.pool().has_aborted() && children_aborted(unsafe { (*frame).parent() })
    }

    /// True if the children of `frame` are to stop, because a sibling failed or an invocation above says so.
    pub(super) fn is_stopped(&self, frame: *const Frame) -> bool {
        // SAFETY: as in `is_aborted`.
        CAN_UNWIND && self.pool().has_aborted() && children_aborted(frame)
    }

    /// Stops the children of an invocation, wherever they run.
    pub(super) fn abort_children(&self, frame: *const Frame) {
        // SAFETY: the caller is that invocation, or holds one of its unsettled children.
        self.pool().stop_children(unsafe { &*frame }, flag::ABORT);
    }

    // ------------------------------------------------------------- sync

    /// The slow path of a sync: true if the job in `slot`, the youngest, is to be run here and now; false if it has
    /// been settled elsewhere.
    ///
    /// Unwinds if the invocation has been aborted; the job is still to be settled then.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, slot: *const Slot, frame: *const Frame) -> bool {
        let mine = self.take_back(slot);
        self.stay_marked();
        // Taking back overwrites requests, so we look for what they wanted after it: see `answer`.
        fence(Ordering::SeqCst);
        self.raise_if_aborted_below(slot.wrapping_add(1), frame);
        (mine || self.wait(slot, frame, While::Helping)) && !self.harvest(slot, frame)
    }

    /// Makes the youngest job ours, if it has not been stolen; answers requests with the older ones. It counts as taken, and the
    /// head is lowered, in either case.
    pub(super) fn take_back(&self, slot: *const Slot) -> bool {
        let position = slot.addr();
        self.head.claim(position);
        self.deque.meet_thieves();
        // Unwinding answers no request: code that catches it finds the request of an abort where it was.
        if self.deque.has_private(position) && self.deque.is_asked() && !panicking() {
            self.answer(slot);
        }
        if self.deque.may_pop(position) {
            return true;
        }
        if self.deque.has_private(slot.wrapping_add(1).addr()) {
            // Private after all: the request that we saw had nothing else to be answered with.
            return true;
        }
        self.deque.reclaim(position, self.how_much(self.pace.get()))
    }

    /// Turns the jobs from `base` on round, so that the oldest is popped first. False if any of them has been stolen:
    /// then all stay as they are.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_all(&self, base: *const Slot, head: *const Slot) -> bool {
        let whole = self.retake(base) == base;
        if whole {
            // SAFETY: what was retaken is ours alone.
            unsafe { turn(base, head, |a, b| a.exchange(b)) };
        }
        self.answer_after_turn(head);
        whole
    }

    /// Makes the jobs from `base` on private again, as far as they have not been stolen. Returns the first of them.
    ///
    /// They are claimed: the head is lowered until [`Worker::answer_after_turn`].
    pub(super) fn retake(&self, base: *const Slot) -> *const Slot {
        self.head.claim(base.addr());
        self.slot(self.deque.retake(base.addr()))
    }

    /// Jobs have been retaken, and the youngest is about to be popped: the older ones go to workers that have asked,
    /// or that find no public job any more.
    pub(super) fn answer_after_turn(&self, head: *const Slot) {
        self.set_head(head);
        let youngest = head.wrapping_sub(1);
        if self.deque.has_private(youngest.addr()) && self.deque.is_asked() && !panicking() {
            self.answer(youngest);
        }
        self.stay_marked();
        // Retaking overwrites requests, as taking back does.
        fence(Ordering::SeqCst);
    }

    /// Waits until the stolen job has been settled. True if it came back and is to be run here.
    fn wait(&self, slot: *const Slot, frame: *const Frame, mode: While) -> bool {
        // SAFETY: the slot is one of ours and holds an unsettled job.
        let job = unsafe { &*slot };
        let above = slot.wrapping_add(1);
        self.deque.restart(above.addr());
        self.set_head(above);
        let may_help = || mode != While::Unwinding && self.has_room(Room::ForAnyJob);
        // While it waits it looks up for other jobs only.
        let look = || mode != While::Helping || self.survey(above, frame, Stage::Syncs);
        let mut has_looked = look();
        let mut idle = Idle::new(self, Activity::Wait);
        let mut boredom = Boredom::default();
        let state = loop {
            let state = job.state();
            if state.is_settled() {
                if mode == While::Helping {
                    // The job's answer may be worth saving while it is still in its slot.
                    self.raise_if_aborted(frame);
                }
                break state;
            }
            let unwanted =
                || !matches!(mode, While::Helping | While::Leaving) || self.is_stopped(frame);
            // However little stack is left: a sync may always run its own children that were put back.
            if state == SlotState::Returned
                && let Some(back) = self.pool().take_home(slot, None)
            {
                if back.history.marked && !unwanted() {
                    idle.over();
                    self.run_taken(TakenSlot { slot, back }, above);
                    continue;
                }
                break state;
            }
            if state == SlotState::Away && unwanted() {
                let why = if hands_on(frame) {
                    Recall::Abandoned
                } else {
                    Recall::Unwanted
                };
                if self.pool().take_home(slot, Some(why)).is_some() {
                    break SlotState::Returned;
                }
            }
            if mode == While::Helping {
                self.raise_if_aborted(frame);
            }
            if mode != While::Unwinding
                && let Some(work) = self.find_help(state)
            {
                idle.over();
                boredom = boredom.over();
                work.run(self, above);
                has_looked = look();
                continue;
            }
            if !idle.should_park(may_help()) {
                continue;
            }
            has_looked = has_looked || look();
            let is_away = state == SlotState::Away && mode == While::Helping && may_help();
            let at_most = match is_away {
                true => self.boredom_with(slot, &mut boredom),
                false => None,
            };
            if at_most.is_some_and(|time| time.is_zero()) {
                idle.over();
                boredom.is_spent = true;
                self.as_duplicate(|| self.duplicate(slot, frame, above, || ()));
                continue;
            }
            if job.announce_waiting() {
                // A change before the announcement wakes no worker: a job that has just left is to be recalled, a
                // job that came back is to be run.
                let now = job.state();
                if now != state
                    || now == SlotState::Returned
                    || now == SlotState::Away && unwanted()
                {
                    continue; // also one that the gate has taken on once more, and is not in the ledger for a moment
                }
                // No beat reaches a worker that sleeps.
                let at_most = match has_looked {
                    true => at_most,
                    false => Some(at_most.unwrap_or(progress::EVERY).min(progress::EVERY)),
                };
                if may_help() {
                    self.pool()
                        .sleep_unless(self, Awaits::Job, at_most, || job.state() != state);
                } else {
                    self.pool().sleep.park(self.index, at_most);
                }
            }
        };
        drop(idle);
        self.leave_tasks();
        let mut returned = state == SlotState::Returned;
        if returned && mode == While::Helping && self.is_stopped(frame) {
            // A sibling failed, and the job is not wanted: it ends like one that was stopped in this pool.
            // SAFETY: the job came back undone, so its arguments are there, and ours.
            quietly(|| unsafe { (job.function.get().drop_args)(job) });
            job.enter(SlotState::Aborted);
            tear(frame);
            returned = false;
        }
        // In this order: what lies between split and head may be seized.
        self.set_head(slot);
        self.deque.restart(slot.addr());
        returned
    }

    /// How long this worker, which has nothing else to do, is to wait for a job that is away before it runs the job itself; zero if it
    /// is to do that now, `None` if never.
    fn boredom_with(&self, slot: *const Slot, boredom: &mut Boredom) -> Option<Duration> {
        if boredom.is_spent || self.duplicating.get() {
            return None;
        }
        let patience = self.pool().patience(slot)?;
        Some(boredom.patience(patience))
    }

    /// Finds other work to run while the worker waits, if there is any, and enough stack for it.
    fn find_help(&self, awaited: SlotState) -> Option<FoundWork> {
        if let Some(found) = self.find_job(awaited) {
            return Some(FoundWork::Job(found));
        }
        if self.has_room(Room::ForAnyJob)
            && !panicking()
            && let Some(task) = self.pool().boards.next(self)
        {
            return Some(FoundWork::Task(task));
        }
        // The other side may wait for it before it can answer us.
        let hosted = self.pool().next_hosted(|| self.has_room(Room::ForAnyJob));
        hosted.map(FoundWork::Hosted)
    }

    /// Finds a job for a waiting worker: from the thief of its own job first (leapfrogging), then from any worker.
    fn find_job(&self, awaited: SlotState) -> Option<TakenSlot> {
        if !self.has_room(Room::ForLeapfrog) || panicking() {
            return None; // a job that ran while the thread unwinds would believe that it does itself
        }
        if let SlotState::Taken(thief) = awaited
            && let Some(found) = self.steal_from(thief)
        {
            return Some(found);
        }
        if self.has_room(Room::ForAnyJob) {
            self.steal()
        } else {
            None
        }
    }

    /// Waits until all tasks of a flow are over, or something is `ready`; runs tasks and other jobs meanwhile. If the flow is over, those that are
    /// away are recalled.
    pub(super) fn wait_for_tasks(&self, core: &FlowCore, ready: impl Fn() -> bool) {
        let is_ready = || core.live() == 0 || ready();
        let frame = &raw const core.frame;
        if !is_ready() {
            self.empty_deque();
        }
        let mut idle = Idle::new(self, Activity::Wait);
        let mut boredom = Boredom::default();
        // Tasks that are away and have been run here a second time.
        let mut spent = HashSet::new();
        while !is_ready() {
            self.look_at_flow(frame);
            let is_over = core.is_over(self);
            if let Some(work) = self.find_for_flow(core, is_over) {
                idle.over();
                boredom = boredom.over();
                work.run(self, self.head());
                continue;
            }
            if is_over {
                self.recall_tasks(core, core.why());
            }
            let may_help = !is_over && self.has_room(Room::ForAnyJob);
            if !idle.should_park(may_help) {
                continue;
            }
            // One that was about to leave is recalled once it is away.
            let mut at_most = is_over.then_some(Duration::from_millis(1));
            if may_help
                && !self.duplicating.get()
                && let Some((task, patience)) = self.bored_task(core, &spent)
            {
                let patience = boredom.patience(patience);
                if patience.is_zero() {
                    idle.over();
                    spent.insert(task);
                    self.as_duplicate(|| self.duplicate_task(core, task.0, self.head()));
                    continue;
                }
                at_most = Some(patience);
            }
            self.survey(self.head(), frame, Stage::Syncs);
            core.set_parked(true);
            self.pool()
                .sleep_unless(self, Awaits::Job, at_most, is_ready);
            core.set_parked(false);
        }
        drop(idle);
        self.leave_tasks();
    }

    /// Finds something to run for a worker that waits for a flow's tasks: a task first, then whatever helps another, unless the flow is over, then
    /// those of its tasks that came back undone.
    fn find_for_flow(&self, core: &FlowCore, is_over: bool) -> Option<FoundWork> {
        // However little stack is left, a flow may always run its own tasks.
        let task = match self.has_room(Room::ForAnyJob) {
            true => self.pool().boards.next(self),
            false => self.pool().boards.next_of(core),
        };
        let help = || match is_over {
            true => None,
            false => self.find_help(SlotState::Ready),
        };
        let returned = || {
            let is_own = |job: &Slot, _| std::ptr::eq(job.parent.get(), &raw const core.frame);
            self.pool().next_returned(is_own).map(FoundWork::Job)
        };
        task.map(FoundWork::Task).or_else(help).or_else(returned)
    }

    /// Runs a job that is away a second time; no other one meanwhile.
    fn as_duplicate(&self, run: impl FnOnce()) {
        self.duplicating.set(true);
        run();
        self.duplicating.set(false);
    }

    /// The worker goes on with something else than tasks: those on its board, of which it was to run the next one itself, are for others too.
    fn leave_tasks(&self) {
        match self.pool().boards.len_of(self) {
            0 => {}
            left => self.pool().tell_ready(left),
        }
    }

    /// Older children of the invocations that run here leave the deque, as if they had come back undone: what is about to run on top of them
    /// begins with an empty one.
    fn empty_deque(&self) {
        let (base, head) = (self.bottom.get().head, self.head());
        if head.addr() <= base.addr() {
            return;
        }
        let mut at = self.retake(base);
        self.deque.restart(head.addr());
        self.set_head(head);
        while at.addr() < head.addr() {
            // SAFETY: what was retaken is ours alone, and in no deque any more.
            let job = unsafe { &*at };
            self.pool()
                .come_back(job, repair::depth_of(job), Back::default());
            at = at.wrapping_add(1);
        }
    }

    /// Steals from any worker of the pool: a job that came back undone, or else from a deque.
    fn steal(&self) -> Option<TakenSlot> {
        let count = self.pool().workers();
        self.pool()
            .next_returned(|job, back| !self.would_deadlock(job, back))
            .or_else(|| (1..count).find_map(|step| self.steal_from((self.index + step) % count)))
    }

    fn steal_from(&self, victim: u32) -> Option<TakenSlot> {
        if victim == self.index {
            return None;
        }
        let slot = self.pool().worker(victim).give()?;
        let back = Back::default();
        Some(TakenSlot { slot, back })
    }

    /// Runs a job that was taken, from another worker or from the ledger, on top of what waits here; or claims it.
    pub(super) fn run_taken(&self, found: TakenSlot, head: *const Slot) {
        let TakenSlot { slot, back } = found;
        // SAFETY: we have just taken the job, so its slot is ours until we settle it.
        let job = unsafe { &*slot };
        let owner = Worker::of(slot).index;
        if owner != self.index {
            self.counters.local_thefts.add(1);
        }
        job.enter(SlotState::Taken(self.index));
        let parent = job.parent.get();
        let function = job.function.get();
        self.occupation().name(Some(function));
        // SAFETY: the job is not settled, so its parent lives.
        let is_task = unsafe { (*parent).is_flow() };
        let mut sieve = self.sieve_of_taken(function, parent);
        let repairs = back.history.marked;
        let state = if CAN_UNWIND && self.pool().has_aborted() && children_aborted(parent) {
            // SAFETY: the job has not run, so its arguments are there, and ours.
            quietly(|| unsafe { (function.drop_args)(job) });
            tear(parent);
            SlotState::Aborted
        } else {
            let (marked, place) = match self.examine(job, back) {
                LookUp::Elsewhere => return,
                LookUp::Run { marked, place } => (marked, place),
            };
            // Not before: others may have its result.
            if is_task && self.waits_for_data(job, back) {
                return;
            }
            let bottom = Bottom {
                head,
                parent,
                index: job.index(),
                marked,
                part: Some(RunningJob::Slot(slot.addr())),
            };
            // SAFETY: as above; `head` is above everything of ours that waits.
            self.on_bottom(bottom, place, || unsafe {
                (function.run)(job, Cx { head, parent }, &mut sieve)
            })
        };
        self.keep(job, sieve, || root_of(parent));
        if state == SlotState::Done
            && let Some(judge) = job.judge()
            // SAFETY: the result has just been put there.
            && unsafe { (judge.in_slot)(job) }
        {
            self.abort_children(parent);
        }
        if repairs && state == SlotState::Done {
            self.tell_repaired(job);
        }
        let is_awaited = job.enter(state);
        if is_task {
            self.pool().end_aside(Some(self), slot);
        } else if is_awaited {
            self.pool().sleep.unpark(owner);
        }
    }

    /// A task in a slot aside that is about to run here. True if it waits for data, and is not the caller's any more.
    pub(super) fn waits_for_data(&self, job: &Slot, back: Back) -> bool {
        let task = AsideTask {
            slot: job,
            // It stays: its data come here for it, and what must not leave yet might leave otherwise.
            depth: STAYS,
            back,
            fingerprint: Fingerprint(0), // nobody holds it
        };
        self.pool().boards.waits(self.pool(), task)
    }

    /// Runs a job of another node.
    pub(super) fn hosting<R>(&self, id: JobId, run: impl FnOnce() -> R) -> R {
        self.hosting.borrow_mut().push(id);
        let result = run();
        let mut hosting = self.hosting.borrow_mut();
        hosting.pop();
        if hosting.is_empty() {
            // A worker is never dropped: its area is unmapped.
            *hosting = Vec::new();
        }
        result
    }

    /// Looks at the jobs of other nodes that are under way on this worker's stack.
    pub(super) fn with_hosted<R>(&self, look: impl FnOnce(&[JobId]) -> R) -> R {
        look(&self.hosting.borrow())
    }

    /// Runs a job from the bottom of what it may use; `place` is where it stands in the tree, if that is known.
    pub(super) fn on_bottom<R>(
        &self,
        bottom: Bottom,
        place: Option<JobPlace>,
        run: impl FnOnce() -> R,
    ) -> R {
        let head = bottom.head;
        // The scopes of what waits below on this stack are not those of this job.
        let hidden = Scopes::hide();
        let outer = self.bottom.replace(bottom);
        self.close_if(bottom.marked, outer.marked);
        let outer_nested = self.nested.take();
        let outer_root = self.root.take();
        // Jobs below the base get their names from there. A base for each would hold as many ids as a deep tree has levels.
        let outer_base = (!self.is_below_base(bottom.parent)).then(|| {
            self.base.replace(Base {
                parent: bottom.parent,
                index: bottom.index,
                stack: stack_pointer(),
                place: RefCell::new(place),
                way: RefCell::default(),
            })
        });
        let outer_root_frame = self.root_frame.replace(std::ptr::null());
        self.reaper.begin();
        let outer_descent = self.surveyor.begin();
        self.set_head(head);
        self.stay_marked();
        let result = run();
        self.set_head(head);
        if self.surveyor.end(outer_descent, outer.part.is_some())
            && let Some(part) = bottom.part
        {
            self.pool().estimates.end(part);
        }
        self.root.set(outer_root);
        if let Some(outer) = outer_base {
            self.base.replace(outer);
        }
        self.root_frame.set(outer_root_frame);
        self.reaper.begin();
        self.bottom.set(outer);
        self.nested.set(outer_nested);
        self.close_if(outer.marked, bottom.marked);
        drop(hidden);
        result
    }

    /// The children of marked jobs leave the deque as soon as they are pushed: none may be seized before. When a job begins or ends the
    /// deque is empty.
    fn close_if(&self, is_marked: bool, was_marked: bool) {
        if is_marked != was_marked {
            self.deque.close(is_marked);
        }
    }

    /// As [`place_of`], of a child of an invocation, as a rule below the base: then only the calls since that job began are
    /// walked, and of these only those that are not known from the question before.
    pub(super) fn place_of(&self, frame: *const Frame, index: u32) -> Option<JobPlace> {
        let base = self.base.borrow();
        if !self.is_in(&base, frame) {
            return place_of(frame, index); // above the base, or on the stack of another worker
        }
        let mut known = base.way.borrow_mut();
        let mut up: Vec<&Frame> = Vec::new();
        let mut at = frame;
        let landmark = loop {
            // SAFETY: the caller holds an unsettled child of the invocation, so the chain above it lives.
            let here = unsafe { &*at };
            if at == base.parent || here.has(flag::NESTED | flag::ROOT) {
                return place_of(frame, index);
            }
            if let Some(landmark) = known.landmark(here) {
                break Some(landmark);
            }
            up.push(here);
            at = here.parent();
            if at == base.parent {
                break None;
            }
        };
        frames_walked(up.len() + 1);
        let mut place = base.place.borrow_mut();
        let end = match landmark {
            Some(landmark) => WalkEnd::Landmark(landmark),
            // Other jobs may be children of the same invocation.
            None if up.pop().map(Frame::index) != Some(base.index) => {
                return place_of(frame, index);
            }
            None => {
                if place.is_none() {
                    *place = place_of(base.parent, base.index);
                }
                WalkEnd::Job(place.as_ref()?.id.clone())
            }
        };
        let run = place.as_ref()?.run;
        let is_own = |frame: &Frame| self.is_in(&base, frame);
        let id = known.follow(end, &up, index, is_own);
        debug_assert!(
            depth_of(frame) > MOST_CHECKED
                || walk_to_root(frame, index).map(|(place, _)| place.id) == Some(id.clone()),
            "what is known of the way to {id} is wrong"
        );
        Some(JobPlace { id, run })
    }

    /// Does that invocation run below the base, on this worker's own stack?
    fn is_below_base(&self, frame: *const Frame) -> bool {
        // SAFETY: the caller has a job of the invocation, so it lives.
        let special =
            unsafe { frame.as_ref() }.is_none_or(|frame| frame.has(flag::NESTED | flag::ROOT));
        !special && self.is_in(&self.base.borrow(), frame)
    }

    fn is_in(&self, base: &Base, frame: *const Frame) -> bool {
        let lowest = (self.stack_top.get()).saturating_sub(self.stack_mib.get() << 20);
        (lowest..base.stack).contains(&frame.addr())
    }

    /// The root job that the running job belongs to. Read off the frames at the first question.
    #[inline]
    pub(super) fn root(&self) -> Option<RootName> {
        self.root.get().or_else(|| self.find_root())
    }

    #[cold]
    fn find_root(&self) -> Option<RootName> {
        let root = root_of(self.bottom.get().parent);
        self.root.set(root.map(|root| root.run.name));
        self.root.get()
    }

    /// The bottom of the running job's chain of frames. Walked to at the first question.
    pub(super) fn root_frame(&self) -> Option<&RootFrame> {
        if self.root_frame.get().is_null() {
            let root = root_of(self.bottom.get().parent);
            self.root_frame
                .set(root.map_or(std::ptr::null(), std::ptr::from_ref));
        }
        // SAFETY: the root frame lives as long as the job that runs here.
        unsafe { self.root_frame.get().as_ref() }
    }

    /// As [`hands_on`], of an invocation of the running job. Walks only if the whole job is being given up: an invocation that
    /// unwinds asks for each child that it leaves.
    fn hands_on(&self, frame: *const Frame) -> bool {
        let is_given_up = |root: &RootFrame| root.frame.has(flag::SAVE);
        self.root_frame().is_none_or(is_given_up) && hands_on(frame)
    }

    /// A nested entry with that frame begins here; its jobs stand from `head` on.
    pub(super) fn in_nested(&self, head: *const Slot, frame: *const Frame) -> InNested<'_> {
        InNested {
            worker: self,
            outer: self.nested.replace(Some((head, frame))),
        }
    }

    /// The innermost invocation that is known to have unsettled children, or else the nested entry that runs, or the invocation that
    /// this job belongs to: a nested entry inherits from it.
    pub(super) fn innermost(&self) -> *const Frame {
        let (bottom, head) = (self.bottom.get(), self.head());
        let (base_head, base) = self.nested.get().unwrap_or((bottom.head, bottom.parent));
        if head.addr() > base_head.addr() {
            // SAFETY: below the head is a slot that holds an unsettled job.
            let around = unsafe { (*head.wrapping_sub(1)).parent.get() };
            if around == self.in_child_of.get() {
                return around;
            }
            // Whether we are in that invocation or in a child of it, we cannot tell; what stops both is above it.
            // SAFETY: the parent of an unsettled job lives.
            unsafe { (*around).parent() }
        } else {
            base
        }
    }

    /// The id of the job that runs here: the innermost one that is known to have unsettled children, or else
    /// the one that this worker has begun. The running invocation may be a child that it has called.
    pub(super) fn around_here(&self) -> Option<JobId> {
        let (bottom, head) = (self.bottom.get(), self.head());
        let (parent, index) = if head.addr() > bottom.head.addr() {
            // SAFETY: below the head is a slot that holds an unsettled job, and its parent lives, with all above it.
            let around = unsafe { &*(*head.wrapping_sub(1)).parent.get() };
            if around.has(flag::ROOT | flag::NESTED) {
                return None; // no job stands there
            }
            (around.parent(), around.index())
        } else {
            (bottom.parent, bottom.index)
        };
        if parent.is_null() {
            return None;
        }
        place_of(parent, index).map(|place| place.id)
    }

    // ------------------------------------------------------------- leaving early

    /// Guards are dropped with their jobs unsettled, those from `base` on: on the way out of the function in program
    /// order, or unwinding.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_all(&self, base: *const Slot, frame: *const Frame) {
        let head = self.head();
        if !panicking() && head.addr() > base.wrapping_add(1).addr() {
            let first = self.retake(base);
            // SAFETY: what was retaken is ours alone.
            unsafe { turn(first, head, |a, b| a.exchange(b)) };
            self.answer_after_turn(head);
        }
        drop(LeaveAll {
            worker: self,
            base,
            frame,
        });
    }

    /// A guard is dropped with its job unsettled: on the way out of the function, or unwinding. The job is
    /// run or dropped; `slot` is free afterwards.
    ///
    /// Unwinds with the panic of the job, unless the thread unwinds already.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(&self, slot: *const Slot, frame: *const Frame) {
        // SAFETY: the slot is the youngest of ours and unsettled; the frame is that of the invocation that leaves.
        let (job, frame_ref) = unsafe { (&*slot, &*frame) };
        let mine = self.take_back(slot);
        self.stay_marked();
        fence(Ordering::SeqCst);
        let is_unwanted = || panicking() || frame_ref.has(flag::ABORT) || self.is_aborted(frame);
        let abort = is_unwanted();
        if abort && CAN_UNWIND {
            let save = if self.hands_on(frame) { flag::SAVE } else { 0 };
            frame_ref.raise(flag::ABORT | save);
            if !mine {
                // Only a thread that runs this child has to hear of it: a child that is still here is run by none.
                self.pool().announce_abort();
            }
        }
        let function = job.function.get();
        let mode = match (abort, panicking()) {
            (_, true) => While::Unwinding,
            (true, false) => While::Stopping,
            (false, false) => While::Leaving,
        };
        let here = mine || self.wait(slot, frame, mode);
        // The abort may have come during the wait.
        let abort = abort || is_unwanted();
        self.set_head(slot);
        let mut state = if !here {
            job.state()
        } else if abort {
            // SAFETY: the job is ours and has not run.
            quietly(|| unsafe { (function.drop_args)(job) });
            SlotState::Aborted
        } else {
            self.run_in_place(slot, frame)
        };
        if state == SlotState::Answered && !abort {
            // SAFETY: the state says that arguments and an answer are there.
            state = match unsafe { gate::finish(job) } {
                Finished::Done => SlotState::Aborted,
                Finished::Unreadable => self.run_in_place(slot, frame),
                Finished::Panicked(message) => {
                    self.abort_children(frame);
                    resume_unwind(Box::new(message));
                }
            };
        }
        match state {
            SlotState::Done => {
                // SAFETY: the state says that a result of the function is there.
                quietly(|| unsafe { (function.drop_out)(job) });
            }
            SlotState::Panicked => {
                // SAFETY: the state says that a payload is there.
                let payload = unsafe { job.take::<Payload>() };
                if !abort {
                    self.abort_children(frame);
                    resume_unwind(payload);
                }
            }
            SlotState::Answered => {
                drop(gate::take_answer(job));
                // SAFETY: an answered job keeps its arguments.
                quietly(|| unsafe { (function.drop_args)(job) });
            }
            _ => {}
        }
        self.raise_if_aborted(frame);
    }

    // ------------------------------------------------------------- stack

    pub(super) fn measure_stack(&self, size: usize) {
        let top = stack_pointer();
        codec::measure_stack(size);
        self.stack_top.set(top);
        self.stack_mib.set(size >> 20);
        let margin = (size / 8).min(1 << 20);
        self.stack_limit.set(top.saturating_sub(size - margin));
    }

    fn has_room(&self, room: Room) -> bool {
        let (top, limit) = (self.stack_top.get(), self.stack_limit.get());
        let (all, left) = (top - limit, stack_pointer().saturating_sub(limit));
        match room {
            Room::ForAnyJob => left > all / 2,
            Room::ForLeapfrog => left > all / 4,
        }
    }

    /// # Panics
    /// Always: the user sees this instead of a crash.
    #[cold]
    #[inline(never)]
    pub(super) fn too_deep(&self) -> ! {
        panic!(
            "the recursion is too deep for the stack of {} MiB: set SATIN_STACK to more MiB, or check that the recursion ends",
            self.stack_mib.get()
        );
    }

    /// The thread's main loop, until the pool ends.
    pub(super) fn serve(&self) {
        let pool = self.pool();
        let base = self.head();
        let mut idle = Idle::new(self, Activity::Idle);
        while !pool.has_ended() {
            if let Some(work) = self.find_work() {
                idle.over();
                work.run(self, base);
            } else if idle.should_park(true) {
                pool.sleep_unless(self, Awaits::Work, None, || false);
            }
        }
    }

    fn find_work(&self) -> Option<FoundWork> {
        let pool = self.pool();
        if let Some(root) = pool.next_root() {
            Some(FoundWork::Root(root))
        } else if let Some(hosted) = pool.next_hosted(|| true) {
            Some(FoundWork::Hosted(hosted))
        } else if let Some(task) = pool.boards.next(self) {
            Some(FoundWork::Task(task))
        } else {
            self.steal().map(FoundWork::Job)
        }
    }

    /// Gives the oldest public job away, to any thief. If the owner does not answer, the thief helps itself.
    pub(super) fn give(&self) -> Option<*const Slot> {
        if !self.deque.has_public() {
            self.note_request();
            self.seize();
        }
        let position = self.deque.steal()?;
        self.asked_at.store(0, Ordering::Relaxed);
        Some(self.slot(position))
    }

    fn note_request(&self) {
        if self.asked_at.load(Ordering::Relaxed) == 0 {
            self.asked_at
                .store(self.pool().age().max(1), Ordering::Relaxed);
        }
    }

    /// Makes the worker look up because a thief wants a job.
    pub(super) fn request(&self) {
        self.note_request();
        self.ask();
    }

    /// Any thread: if the owner has not answered for a while, makes jobs public in its place.
    pub(super) fn seize(&self) {
        let asked = self.asked_at.load(Ordering::Relaxed);
        if asked == 0 || self.pool().age().saturating_sub(asked) < PATIENCE.as_nanos() as u64 {
            return;
        }
        if let Some(seized) = self.deque.seize(&self.head) {
            self.publish_seized(seized);
        }
    }

    /// Has it asked-for jobs that no thief can have yet, but soon, without the owner's help?
    pub(super) fn may_be_seized(&self) -> bool {
        self.asked_at.load(Ordering::Relaxed) != 0 && self.deque.may_be_seized(&self.head)
    }

    fn publish_seized(&self, seized: Seized<'_>) {
        let pool = self.pool();
        let (first, count) = seized.to_publish();
        let some_can_leave = pool.has_gate() && self.note_depths(first, count);
        let published = seized.publish();
        self.counters.seized.add(published);
        // As in `answer`.
        fence(Ordering::SeqCst);
        pool.sleep.wake(published);
        if some_can_leave {
            pool.tell_public();
        }
    }

    /// The depth of the oldest public job, as far as it is known, and how many are public.
    pub(super) fn public(&self) -> Option<(u16, u64)> {
        let (oldest, count) = self.deque.public()?;
        // SAFETY: the slot is within the area, and the depth is atomic, whichever thread has the slot now.
        let depth = unsafe { &*self.slot(oldest) }.depth();
        Some((depth, count))
    }

    /// Makes the worker look up at its next spawn or sync.
    pub(super) fn ask(&self) {
        self.deque.ask();
    }

    /// Does it have anything that could be stolen right now?
    pub(super) fn has_public(&self) -> bool {
        self.deque.has_public()
    }
}

/// How much stack a waiting worker needs in order to run something else meanwhile.
#[derive(Clone, Copy)]
enum Room {
    ForAnyJob,
    ForLeapfrog,
}

/// Stops or finishes the jobs from `base` on, by their vtables alone.
pub(super) struct LeaveAll<'w> {
    pub(super) worker: &'w Worker,
    pub(super) base: *const Slot,
    pub(super) frame: *const Frame,
}

impl Drop for LeaveAll<'_> {
    fn drop(&mut self) {
        let LeaveAll {
            worker,
            base,
            frame,
        } = *self;
        while worker.head() != base {
            // If the job's panic comes through, the older ones are still left.
            let rest = LeaveAll {
                worker,
                base,
                frame,
            };
            worker.leave(worker.head().wrapping_sub(1), frame);
            forget(rest);
        }
    }
}

/// A piece of work that a worker has found.
enum FoundWork {
    Root(QueuedRoot),
    Hosted(HostedTask),
    /// A task of a flow.
    Task(ReadyTask),
    Job(TakenSlot),
}

/// A job that has been taken, to be run.
#[derive(Clone, Copy)]
pub(super) struct TakenSlot {
    pub(super) slot: *const Slot,
    /// The state in which the job came back, if it did.
    pub(super) back: Back,
}

impl FoundWork {
    fn run(self, worker: &Worker, head: *const Slot) {
        let occupation = worker.occupation();
        let named = occupation.name(self.function());
        let before = occupation.replace(self.activity());
        match self {
            FoundWork::Root(root) => root.run(worker, head),
            FoundWork::Hosted(hosted) => hosted.run(worker, head),
            FoundWork::Task(task) => task.run(worker, head),
            FoundWork::Job(found) => worker.run_taken(found, head),
        }
        occupation.replace(before);
        occupation.name(named);
    }

    /// The function of the job; `None` if it is a closure, and for jobs of this process, whose functions are known when they are taken.
    fn function(&self) -> Option<&'static VTable> {
        match self {
            FoundWork::Root(root) => root.function(),
            FoundWork::Hosted(hosted) => hosted.function(),
            FoundWork::Task(task) => task.function(),
            FoundWork::Job(_) => None,
        }
    }

    fn activity(&self) -> Activity {
        match self {
            FoundWork::Job(found) if found.back.history.marked => Activity::Repair,
            FoundWork::Root(_) | FoundWork::Task(_) | FoundWork::Job(_) => Activity::Run,
            FoundWork::Hosted(_) => Activity::RunStolen,
        }
    }
}

/// Destructors of user values that run while the thread unwinds, or outside of any job, must not panic any further.
pub(super) fn quietly(run: impl FnOnce()) {
    // A destructor's panic has been reported by the hook; its value is gone either way.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
}

/// How long a worker has had nothing to do but to wait for one job.
#[derive(Default)]
struct Boredom {
    since: Option<Instant>,
    /// The worker has run the job itself, in vain.
    is_spent: bool,
}

impl Boredom {
    /// Time in which other work may be found. Too short: jobs are run twice while others could have been run. Too long: time in
    /// which nothing is done.
    const AT_LEAST: Duration = Duration::from_micros(200);

    /// How long to wait for a job that is worth so much patience: other work may be found meanwhile.
    fn patience(&mut self, of_job: Duration) -> Duration {
        let idle = self.since.get_or_insert_with(Instant::now).elapsed();
        of_job.max(Boredom::AT_LEAST.saturating_sub(idle))
    }

    /// The worker has found something to do.
    fn over(self) -> Boredom {
        let since = None;
        Boredom { since, ..self }
    }
}

/// A worker that finds nothing: it spins briefly, then yields, then parks. After a while it counts as idle.
struct Idle<'w> {
    worker: &'w Worker,
    /// What it counts as doing meanwhile.
    activity: Activity,
    /// What it did before.
    before: Activity,
    rounds: u32,
    counted: bool,
}

impl<'w> Idle<'w> {
    /// Rounds after which others are told: some microseconds.
    const TELL: u32 = 12;
    /// Rounds after which a worker parks once others have been told outside.
    const HEARD: u32 = 16;
    const SPINS: u32 = 128;
    const YIELDS: u32 = 64;

    fn new(worker: &'w Worker, activity: Activity) -> Idle<'w> {
        Idle {
            worker,
            activity,
            before: activity,
            rounds: 0,
            counted: false,
        }
    }

    /// Lets a little time pass; true once it is time to park. `for_more`: the worker has room for another job.
    fn should_park(&mut self, for_more: bool) -> bool {
        if self.rounds == 0 {
            self.before = self.worker.occupation().replace(self.activity);
        }
        self.rounds += 1;
        if self.rounds >= Self::TELL && for_more && !self.counted {
            self.counted = true;
            self.worker.pool().count_idle(true);
        }
        if self.counted && self.rounds > Self::HEARD && self.worker.pool().is_heard() {
            return true; // whoever brings work now needs the core: the network thread, and those of other nodes here
        }
        if self.rounds <= Self::SPINS {
            (0..16).for_each(|_| std::hint::spin_loop());
        } else if self.rounds <= Self::SPINS + Self::YIELDS {
            std::thread::yield_now();
        } else {
            return true;
        }
        false
    }

    /// Ends the idle phase: the worker has found work.
    fn over(&mut self) {
        if std::mem::take(&mut self.rounds) > 0 {
            self.worker.occupation().replace(self.before);
        }
        if std::mem::take(&mut self.counted) {
            self.worker.pool().count_idle(false);
        }
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.over();
    }
}
