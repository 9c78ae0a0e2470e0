//! A task: a call of a spawnable function whose arguments are versions, which may not be there yet.
//!
//! Once they are, a task is a job like any other, a child of its flow's invocation: it is run by way of a [`Slot`], by a vtable. In the slot stands
//! the task itself: its arguments are lent when it runs, and not before, and where it leaves they are written from where they are. The slot of a task that a worker takes from a board lies on that worker's stack; one that is to leave the process, or to be looked
//! up among the orphans, gets a slot [aside](super::board).

use std::{
    any::TypeId,
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    FlowCore,
    arguments::{Maker, Parts},
    away::{DeliveredPart, MadeElsewhere, Missing, Origin, OriginTask, Risk, SecondRun, Waiter},
    prefetch::Show,
    version::Version,
    waiters::{Link, Pending, Waiters},
};
use crate::{
    job::{
        Back, History, Size, ValueName,
        codec::{self, CodecError, Effort},
        function::{
            Args, CallSeen, Function, Packed, Sieve, VTable, export_sent, measure_sent, run_with,
        },
        kinds::Kinds,
        record::{Aborted, Cx, Payload, STAYS, Slot, SlotState},
    },
    worker::{
        frames::root_of,
        gate::{self, OpenedAnswer},
        pool::Pool,
        repair::depth_of,
        thread::{Bottom, TakenSlot, Worker, quietly},
    },
};

/// A task with its types erased: the first field of [`Task`].
#[repr(C)]
pub struct TaskHead {
    pending: Pending,
    /// The number of the task among its flow's.
    index: u32,
    pub(super) core: *const FlowCore,
    form: &'static TaskForm,
    /// It has run before, elsewhere, and what it made is lost.
    is_again: AtomicBool,
}

/// What is done with a task of known types.
struct TaskForm {
    function: &'static VTable,
    /// The function is known in this process alone.
    is_local: bool,
    /// The worker that has made what the task changes.
    maker_of_changed: unsafe fn(*const TaskHead) -> Option<u32>,
    /// The node that keeps what the task changes, or else reads.
    keeper: unsafe fn(*const TaskHead) -> Option<u128>,
    /// Shows the versions that the task needs, and that other nodes keep.
    missing: unsafe fn(*const TaskHead, &mut dyn FnMut(Missing)),
    /// What it would take to make those again.
    risk: unsafe fn(*const TaskHead) -> Risk,
    end: End,
    /// Frees a task that has ended.
    free: unsafe fn(*const TaskHead),
}

/// Takes what has become of a task out of its slot, if it has run, frees the task, and shows those that have waited for it and can run now.
type End =
    unsafe fn(*const TaskHead, Option<(&Slot, SlotState)>, &Pool, Maker, &mut dyn FnMut(TaskRef));

#[repr(C)]
struct Task<F: Function, P> {
    head: TaskHead,
    parts: P,
    /// The version that the result makes; none if there is nothing in it.
    out: Option<Arc<Version<F::Out>>>,
    /// The same, once the task has ended with what is kept elsewhere.
    late: Weak<Version<F::Out>>,
}

/// A task whose inputs are there. Who has it runs it, or gives it up, once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct TaskRef(pub(super) *const TaskHead);

// SAFETY: what a task holds is `Send`, as `Parts` and results are, and one thread at a time has it.
unsafe impl Send for TaskRef {}

/// Is a result of this type nothing, which nobody waits for?
pub(super) fn is_nothing<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

/// Makes a task. `Some` if it can run at once.
pub(super) fn make<F, P, const IS_LOCAL: bool>(
    core: &FlowCore,
    index: u32,
    parts: P,
    out: Option<Arc<Version<F::Out>>>,
) -> Option<TaskRef>
where
    F: Function<Out: Sync>,
    P: Parts<F::Kinds>,
{
    let task = Box::into_raw(Box::new(Task::<F, P> {
        head: TaskHead {
            pending: Pending::new(),
            index,
            core,
            form: const {
                &TaskForm {
                    function: const { &vtable::<F, P>() },
                    is_local: IS_LOCAL,
                    // SAFETY: (of the next four) the task is one of `F` and `P`, as it has this form.
                    maker_of_changed: |task| unsafe { parts_of::<F, P>(task) }.maker_of_changed(),
                    // SAFETY: as above.
                    keeper: |task| unsafe { parts_of::<F, P>(task) }.keeper(),
                    // SAFETY: as above.
                    missing: |task, show| unsafe { parts_of::<F, P>(task) }.missing(show),
                    // SAFETY: as above.
                    risk: |task| unsafe { parts_of::<F, P>(task) }.risk(),
                    end: end::<F, P>,
                    free: |task| {
                        // SAFETY: the task is the caller's, who does not use it any more.
                        drop(unsafe { Box::from_raw(task.cast_mut().cast::<Task<F, P>>()) });
                    },
                }
            },
            is_again: AtomicBool::new(false),
        },
        parts,
        out,
        late: Weak::new(),
    }));
    // SAFETY: the task is ours until its last input is there, and we count as one.
    let here = unsafe { &*task };
    let head: *const TaskHead = task.cast();
    here.parts
        .inputs(&mut |waiters: &Waiters<TaskHead>, link: &Link<TaskHead>| {
            if waiters.are_closed() {
                return;
            }
            here.head.pending.add();
            // SAFETY: the link lies in the task, which lives until it has run: not before it has been taken out of each stack.
            if !unsafe { waiters.add(link, head) } {
                here.head.pending.remove();
            }
        });
    here.head.pending.remove().then_some(TaskRef(head))
}

/// An input of the task is there, or has been given up. `Some` if it was the last.
///
/// # Safety
/// The task was entered as waiting for the input, and is shown for the first time.
pub(super) unsafe fn input_is_there(task: *const TaskHead) -> Option<TaskRef> {
    // SAFETY: a task lives as long as an input is missing.
    unsafe { (*task).pending.remove() }.then_some(TaskRef(task))
}

/// The node that keeps what a task changes, or else reads, as far as that has been made; none if the task is not to leave.
///
/// # Safety
/// A version that the task waits for has not been shown to it.
pub(super) unsafe fn keeper_of_waiting(task: *const TaskHead) -> Option<u128> {
    // SAFETY: a task lives as long as an input is missing.
    let head = unsafe { &*task };
    // SAFETY: nobody changes what the task holds as long as an input is missing. Others may look at it as we do, and its creator may
    // still enter its links, which `keeper` does not look at.
    (!head.never_leaves()).then(|| unsafe { (head.form.keeper)(task) })?
}

/// A task as a job: in its slot stands the task itself, which has its arguments.
const fn vtable<F: Function, P: Parts<F::Kinds>>() -> VTable {
    VTable {
        run: run::<F, P>,
        export: export::<F, P>,
        measure: measure::<F, P>,
        // SAFETY: in the slot is a task, which nobody runs.
        absent: |slot| unsafe { slot.peek::<TaskRef>() }.missing_names(),
        finish: |_, _| Ok(()),
        drop_args: |_| (),
        keeps: true,
        ..*F::VTABLE
    }
}

/// # Safety
/// In the slot is a task of `F` and `P`, which lives as long as the reference, and nobody runs.
unsafe fn in_slot<F: Function, P>(slot: &Slot) -> &Task<F, P> {
    // SAFETY: the caller's promise.
    let TaskRef(task) = unsafe { slot.peek::<TaskRef>() };
    // SAFETY: as above.
    unsafe { &*task.cast::<Task<F, P>>() }
}

/// Runs the task in the slot, which the caller has taken.
unsafe fn run<F: Function, P: Parts<F::Kinds>>(
    slot: &Slot,
    cx: Cx,
    sieve: &mut Sieve<'_>,
) -> SlotState {
    // SAFETY: the caller has taken the task, which is one of `F` and `P`.
    let TaskRef(task) = unsafe { slot.take::<TaskRef>() };
    let lend = || {
        // SAFETY: it is the caller's alone, and lives until `end`.
        let parts = unsafe { &mut (*task.cast_mut().cast::<Task<F, P>>()).parts };
        lend::<F, P>(parts, sieve)
    };
    match catch_unwind(AssertUnwindSafe(lend)) {
        // SAFETY: the task has been taken out, so the data is empty.
        Ok((seen, args)) => unsafe { run_with::<F>(slot, cx, sieve, seen, args) },
        Err(payload) => {
            // SAFETY: as above.
            unsafe { slot.put(payload) };
            SlotState::Panicked
        }
    }
}

/// Looks at the arguments of a task that is about to run, and lends them.
fn lend<'t, F: Function, P: Parts<F::Kinds>>(
    parts: &'t mut P,
    sieve: &mut Sieve<'_>,
) -> (Option<CallSeen>, Args<'t, F>) {
    let seen = (!sieve.is_closed()).then(|| sieve.see::<F>(&parts.sent(), Effort::keeping));
    parts.prepare();
    (seen, parts.lend())
}

unsafe fn export<F: Function, P: Parts<F::Kinds>>(
    slot: &Slot,
    effort: Effort,
) -> Result<Packed, CodecError> {
    // SAFETY: the caller has moved the slot to `Leaving`: nobody runs the task.
    let task = unsafe { in_slot::<F, P>(slot) };
    export_sent::<F>(&sent::<F, P>(task)?, effort)
}

/// The arguments as they travel; an error if one of them will never be there, as its task has not been made.
fn sent<F: Function, P: Parts<F::Kinds>>(
    task: &Task<F, P>,
) -> Result<<F::Kinds as Kinds>::Sent<'_>, CodecError> {
    codec::guard("looking at the arguments", || task.parts.sent())
}

unsafe fn measure<F: Function, P: Parts<F::Kinds>>(slot: &Slot) -> Option<Size> {
    // SAFETY: as for `export`.
    let task = unsafe { in_slot::<F, P>(slot) };
    measure_sent::<F>(&sent::<F, P>(task).ok()?)
}

/// # Safety
/// The task is one of `F` and `P`, has not run, and does not begin as long as the reference lives. If it still waits, others may look at it too.
unsafe fn parts_of<'t, F: Function, P: Parts<F::Kinds>>(task: *const TaskHead) -> &'t P {
    // SAFETY: the caller's promise.
    &unsafe { &*task.cast::<Task<F, P>>() }.parts
}

/// What has become of a task.
enum TaskAnswer<T> {
    /// Its result, and what it has changed, are here.
    Here(T),
    /// It has run elsewhere, and some of that is kept there.
    Elsewhere {
        /// The node.
        at: u128,
        out: DeliveredPart<T>,
        took: Duration,
    },
}

/// Takes what a task that has run elsewhere gives.
fn take_answer<F: Function, P: Parts<F::Kinds>>(slot: &Slot, parts: &mut P) -> TaskAnswer<F::Out> {
    match gate::open_parts::<F>(slot) {
        OpenedAnswer::Whole(out, back) => {
            parts.take_back(back);
            TaskAnswer::Here(out)
        }
        OpenedAnswer::Parts(outcome, at) => {
            let took = outcome.took();
            let mut made = outcome.parts.into_iter();
            let out = made.next().expect("an outcome begins with the result");
            let out = DeliveredPart::read(out);
            parts.take_parts(&mut made);
            TaskAnswer::Elsewhere { at, out, took }
        }
    }
}

/// # Safety
/// The task is one of `F` and `P`, and the caller's, who does not use it any more. In the slot is what the state says.
unsafe fn end<F: Function<Out: Sync>, P: Parts<F::Kinds>>(
    task: *const TaskHead,
    ended: Option<(&Slot, SlotState)>,
    pool: &Pool,
    maker: Maker,
    show: &mut dyn FnMut(TaskRef),
) {
    // SAFETY: the caller's promise; nothing in the slot borrows from the task any more.
    let mut task = unsafe { Box::from_raw(task.cast_mut().cast::<Task<F, P>>()) };
    let outcome: Result<TaskAnswer<F::Out>, Option<Payload>> = match ended {
        // SAFETY: the state says that the result is there.
        Some((slot, SlotState::Done)) => Ok(TaskAnswer::Here(unsafe { slot.take() })),
        // SAFETY: the state says that a payload is there.
        Some((slot, SlotState::Panicked)) => Err(Some(unsafe { slot.take::<Payload>() })),
        Some((slot, SlotState::Answered)) => {
            let take = || take_answer::<F, P>(slot, &mut task.parts);
            catch_unwind(AssertUnwindSafe(take)).map_err(Some)
        }
        _ => Err(None),
    };
    // SAFETY: the flow lives as long as one of its tasks.
    let core = unsafe { &*task.head.core };
    let mut show = Show::of(pool, core, show);
    let out = match outcome {
        Ok(TaskAnswer::Elsewhere { at, out, took }) => {
            return end_elsewhere(task, at, out, took, pool, &mut show);
        }
        Ok(TaskAnswer::Here(out)) => Some(out),
        // Before anybody can look for what the task has not made.
        Err(Some(payload)) if !payload.is::<Aborted>() => {
            core.panicked(pool, payload);
            None
        }
        Err(_) => {
            core.note_stopped();
            None
        }
    };
    if task.head.is_again.load(Ordering::Relaxed) {
        return end_again(task, out, pool);
    }
    let made = out.is_some().then_some(maker);
    match (out, &task.out) {
        // SAFETY: the task is the one writer, and ends once.
        (Some(out), Some(version)) => unsafe { version.put(out, maker) },
        (out, _) => quietly(|| drop(out)),
    }
    let parts = &mut task.parts;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        parts.release();
        parts.end(made, &mut show);
    }));
    if let Err(payload) = ended {
        core.panicked(pool, payload); // of a destructor of the user
        quietly(|| parts.end(None, &mut show));
    }
    if let Some(out) = task.out.take() {
        show.made(out);
    }
    quietly(|| drop(task));
}

/// Ends a task that has run elsewhere, where some of what it has made is kept. It stays, to run again if that is lost.
fn end_elsewhere<F: Function<Out: Sync>, P: Parts<F::Kinds>>(
    mut task: Box<Task<F, P>>,
    at: u128,
    out: DeliveredPart<F::Out>,
    took: Duration,
    pool: &Pool,
    show: &mut Show<'_>,
) {
    // SAFETY: the flow lives as long as one of its tasks.
    let core = unsafe { &*task.head.core };
    core.note_away();
    let (version, risk) = (task.out.take(), task.parts.risk().after(took));
    if let Some(version) = &version {
        task.late = Arc::downgrade(version);
    }
    let task = Box::into_raw(task);
    let origin = Origin {
        at,
        root: core.root,
        pool,
        risk,
        task: Arc::new(OriginTask::new(TaskRef(task.cast()))),
    };
    let mut made = Vec::new();
    // SAFETY: nobody can let the task run again before one of its versions is shown.
    let parts = unsafe { &mut (*task).parts };
    parts.put_elsewhere(&origin, &mut |version| made.push(version));
    if let Some(version) = version {
        // SAFETY: the task is the one writer, and ends once.
        made.push(unsafe { MadeElsewhere::put(version, out, &origin) });
    }
    // From the first one on the task may run again on other threads.
    for version in made {
        version.show(pool, show);
    }
    quietly(|| drop(origin));
}

/// Ends a task that has run a second time, as what it made elsewhere is lost.
fn end_again<F: Function<Out: Sync>, P: Parts<F::Kinds>>(
    mut task: Box<Task<F, P>>,
    out: Option<F::Out>,
    pool: &Pool,
) {
    // SAFETY: the flow lives as long as one of its tasks, and this is one.
    let core = unsafe { &*task.head.core };
    let again = SecondRun {
        pool,
        core,
        function: task.head.form.function.info.name,
        made: out.is_some(),
    };
    again.put(&task.late, out);
    task.parts.end_again(&again);
    quietly(|| drop(task));
}

impl TaskHead {
    /// Must the task stay in this process, whatever it reads?
    fn never_leaves(&self) -> bool {
        // SAFETY: the flow lives as long as one of its tasks.
        let core = unsafe { &*self.core };
        self.form.is_local || core.depth == STAYS || core.has_failed()
    }
}

impl TaskRef {
    pub(super) fn core<'c>(self) -> &'c FlowCore {
        // SAFETY: the flow lives as long as one of its tasks, and the caller has this one.
        unsafe { &*(*self.0).core }
    }

    /// The number of the task among its flow's.
    pub(super) fn index(self) -> u32 {
        self.head().index
    }

    fn head<'t>(self) -> &'t TaskHead {
        // SAFETY: the caller has the task.
        unsafe { &*self.0 }
    }

    /// Must the task stay in this process?
    fn stays(self) -> bool {
        // SAFETY: the caller has the task.
        let risk = || unsafe { (self.head().form.risk)(self.0) };
        self.head().never_leaves()
            || self.is_again()
            || self.core().has_away() && risk().is_too_much()
    }

    /// The history with which the task leaves, if it may. One of a flow that may have run before is looked up by a worker if others may have it.
    pub(super) fn may_leave(self, pool: &Pool) -> Option<History> {
        match self.stays() {
            true => None,
            false if self.core().is_marked => self.history(pool),
            false => Some(History::default()),
        }
    }

    /// The history of the task, whose flow may have run before, if it is known that nobody has it.
    fn history(self, pool: &Pool) -> Option<History> {
        pool.may_leave(&raw const self.core().frame, self.index())
    }

    /// Does it run a second time, as what it made elsewhere is lost?
    fn is_again(self) -> bool {
        self.head().is_again.load(Ordering::Relaxed)
    }

    /// What the task has made elsewhere is lost, and needed: it runs again, in this process.
    pub(super) fn run_again(self, pool: &Pool) {
        self.head().is_again.store(true, Ordering::Relaxed);
        self.core().one_more();
        pool.boards.note_again(self.head().form.function.info.name);
        pool.boards.push_here(pool, self);
    }

    /// Frees a task that has ended, and is not to run again.
    pub(super) fn free(self) {
        // SAFETY: the caller is the only one who has it.
        quietly(|| unsafe { (self.head().form.free)(self.0) });
    }

    /// The node that keeps what the task changes, or else reads, if one does.
    pub(super) fn keeper(self) -> Option<u128> {
        if !self.core().has_away() {
            return None;
        }
        // SAFETY: the caller has the task.
        unsafe { (self.head().form.keeper)(self.0) }
    }

    /// The versions that the task needs and that are not here.
    fn missing(self) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.core().has_away() {
            // SAFETY: the caller has the task.
            unsafe { (self.head().form.missing)(self.0, &mut |version| missing.push(version)) };
        }
        missing
    }

    /// Bytes that the task needs and that are not here.
    pub(super) fn missing_bytes(self) -> u64 {
        self.missing().iter().map(Missing::bytes).sum()
    }

    /// What the task needs and is not here.
    fn missing_names(self) -> BTreeSet<ValueName> {
        self.missing().iter().filter_map(Missing::name).collect()
    }

    pub(super) fn function(self) -> &'static VTable {
        self.head().form.function
    }

    /// Is all here that the task needs?
    pub(super) fn is_complete(self) -> bool {
        self.missing().is_empty()
    }

    /// Fetches what the task needs and is not here. True if it waits for that: then it is not the caller's any more.
    pub(super) fn waits(self, pool: &Pool, waiter: impl Fn() -> Waiter) -> bool {
        let missing = self.missing();
        for version in &missing {
            version.want(pool, None);
        }
        // It waits for one of them, and asks again.
        (missing.iter()).any(|version| version.want(pool, Some(waiter())))
    }

    /// Is its function known in this process alone?
    fn is_local(self) -> bool {
        self.head().form.is_local
    }

    /// The worker that has made what the task changes, if it was one of this process.
    pub(super) fn maker_of_changed(self) -> Option<u32> {
        // SAFETY: the caller has the task, which has not run.
        unsafe { (self.head().form.maker_of_changed)(self.0) }
    }

    /// Puts the task in a slot.
    pub(super) fn fill(self, slot: &Slot) {
        let TaskHead { index, form, .. } = self.head();
        slot.fill(form.function, &raw const self.core().frame, *index, None);
        // SAFETY: the slot is the caller's, and empty.
        unsafe { slot.put(self) };
    }

    /// Runs the task, on top of what waits on this worker from `head` downwards.
    pub(in crate::worker) fn run(self, worker: &Worker, head: *const Slot) {
        let core = self.core();
        if core.is_over(worker) {
            return self.end(worker.pool(), Some(worker), None);
        }
        // Before what it needs is fetched: others may have its result.
        let is_to_look_up = core.is_marked && !self.is_local() && !self.is_again();
        if is_to_look_up && self.history(worker.pool()) != Some(History::default()) {
            return self.look_up(worker, head);
        }
        if core.has_away() {
            if self.waits(worker.pool(), || Waiter::Task(self)) {
                return;
            }
            // What it waited for may have been given up.
            if core.is_over(worker) {
                return self.end(worker.pool(), Some(worker), None);
            }
        }
        let &TaskHead { index, form, .. } = self.head();
        let parent = &raw const core.frame;
        let slot = Slot::vacant(form.function);
        self.fill(&slot);
        let bottom = Bottom {
            head,
            parent,
            index,
            marked: false,
            part: None,
        };
        let mut sieve = match form.is_local {
            true => Sieve::closed(),
            false => worker.sieve_of_taken(form.function, parent),
        };
        // SAFETY: the slot has just been filled, and is ours; `head` is above everything of ours that waits.
        let state = worker.on_bottom(bottom, None, || unsafe {
            (form.function.run)(&slot, Cx { head, parent }, &mut sieve)
        });
        worker.keep(&slot, sieve, || root_of(parent));
        self.end(worker.pool(), Some(worker), Some((&slot, state)));
    }

    /// The flow may have run before: the task is looked up among the orphans before it runs.
    fn look_up(self, worker: &Worker, head: *const Slot) {
        let slot = match worker.pool().boards.set_aside(worker.pool(), self) {
            Ok(slot) => slot,
            Err(payload) => {
                self.core().panicked(worker.pool(), payload);
                return self.end(worker.pool(), Some(worker), None);
            }
        };
        let back = Back {
            history: History {
                marked: true,
                crashes: 0,
            },
            ..Back::default()
        };
        // SAFETY: the slot has just been filled, and is ours.
        let job = unsafe { &*slot };
        if worker.would_deadlock(job, back) {
            let depth = depth_of(job);
            return worker.pool().come_back(job, depth, back);
        }
        worker.run_taken(TakenSlot { slot, back }, head);
    }

    /// Ends the task: with what the state says of its slot, or given up without having run. Those that can run now are put on the board of
    /// the worker, if one does it.
    pub(super) fn end(
        self,
        pool: &Pool,
        worker: Option<&Worker>,
        ended: Option<(&Slot, SlotState)>,
    ) {
        let core = self.core();
        let end = self.head().form.end;
        let (mut here, mut elsewhere) = (0_u64, 0);
        let mut show = |ready| match pool.boards.push(worker, ready) {
            true => here += 1,
            false => elsewhere += 1,
        };
        let maker = match ended {
            Some((_, SlotState::Done)) => worker.map(|worker| worker.index),
            _ => None,
        };
        // SAFETY: the caller has the task, and the state is that of its slot.
        unsafe { end(self.0, ended, pool, maker, &mut show) };
        // The worker itself runs one of its own next.
        let others = elsewhere + here.saturating_sub(1);
        if others > 0 {
            pool.tell_ready(others);
        }
        core.one_less(pool);
    }
}
