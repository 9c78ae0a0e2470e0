//! Boards: tasks that can run. Each worker has one, from which it takes the task that comes first in the program text: so one worker does what
//! the sequential program does, in that order, with the memory and the cache misses of that; and what comes first is, as a rule, what most
//! waits for. Workers that have nothing take the first task of others. The gate takes the last, for other nodes: nothing waits for it
//! yet.
//!
//! A task that leaves, or that is looked up among the orphans, gets a slot aside: in an area like that of a worker, whose owner is nobody.
//! When it has been settled, any worker ends it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

use crossbeam::{queue::SegQueue, utils::CachePadded};

use super::{
    AsideTask, FlowCore, Waiter,
    abroad::Abroad,
    away::DataRequests,
    task::{TaskHead, TaskRef},
};
use crate::{
    job::{
        Back, Recall, Wants,
        function::VTable,
        record::{AREA, Payload, Slot, SlotState},
    },
    worker::{
        area::Area,
        pool::Pool,
        thread::{TakenSlot, Worker, quietly},
    },
};

/// Tasks that are away of which one looks how long they will be, at most. Too few: one that could be done here is not seen. Too many: looking
/// takes as long as waiting.
const MOST_LOOKED_AT: usize = 64;

/// The number of the worker that no thread is, in whose area the slots aside lie.
const NOBODY: u32 = u32::MAX;

/// The boards of a pool.
pub(in crate::worker) struct Boards {
    pool: Weak<Pool>,
    own: Vec<CachePadded<Board>>,
    /// Tasks that no worker has made ready.
    others: Board,
    /// Tasks that the gate has looked at, and that must stay in this process.
    staying: Board,
    /// Tasks that are best run by the nodes that keep what they need.
    abroad: Abroad,
    /// Tasks aside that have been settled, to be ended.
    settled: SegQueue<SettledTask>,
    aside: Mutex<Aside>,
    /// Data that have been asked for.
    pub(super) asked: DataRequests,
    /// How many data are being written so that others may fetch them before they are needed.
    pub(super) written: AtomicUsize,
    /// How many tasks of each function have run again, as what they had made elsewhere was lost.
    again: Mutex<BTreeMap<&'static str, u64>>,
}

/// Tasks in the order of the program.
#[derive(Default)]
struct Board {
    tasks: Mutex<BTreeMap<TaskOrder, TaskRef>>,
    /// How many there are: looked at before the lock.
    len: AtomicUsize,
}

/// The place of a task among those that can run: tasks of inner flows first, as outer ones wait for them; those of a flow in the order in which they
/// were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskOrder {
    depth: Reverse<u16>,
    index: u32,
    /// Tells flows apart.
    task: *const TaskHead,
}

// SAFETY: the pointer is a number here.
unsafe impl Send for TaskOrder {}

impl TaskOrder {
    pub(super) fn of(task: TaskRef) -> TaskOrder {
        TaskOrder {
            depth: Reverse(task.core().depth),
            index: task.index(),
            task: task.0,
        }
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskOrder, TaskRef>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: TaskRef) {
        let order = TaskOrder::of(task);
        let mut tasks = self.lock();
        tasks.insert(order, task);
        self.len.store(tasks.len(), Ordering::Relaxed);
    }

    /// Takes a task by `pop`, if there is one.
    fn take(
        &self,
        pop: impl FnOnce(&mut BTreeMap<TaskOrder, TaskRef>) -> Option<(TaskOrder, TaskRef)>,
    ) -> Option<TaskRef> {
        if self.len() == 0 {
            return None;
        }
        let mut tasks = self.lock();
        let task = pop(&mut tasks);
        self.len.store(tasks.len(), Ordering::Relaxed);
        task.map(|(_, task)| task)
    }

    fn take_first(&self) -> Option<TaskRef> {
        self.take(BTreeMap::pop_first)
    }

    /// The first of which that is true.
    fn take_where(&self, is_it: impl Fn(&TaskRef) -> bool) -> Option<TaskRef> {
        self.take(|tasks| {
            let (order, _) = tasks.iter().find(|(_, task)| is_it(task))?;
            let order = *order;
            tasks.remove_entry(&order)
        })
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

/// A task aside: the address of its slot, and its number, as slots are used again.
pub(in crate::worker) type AwayTask = (usize, u32);

/// A settled task's slot.
#[derive(Clone, Copy)]
struct SettledTask(*const Slot);

// SAFETY: a settled task belongs to the thread that takes it.
unsafe impl Send for SettledTask {}

/// Slots of tasks that stand on no worker's stack.
#[derive(Default)]
struct Aside {
    area: Option<Area>,
    /// The slots that have been used so far.
    used: usize,
    free: Vec<usize>,
    tasks: HashMap<usize, TaskRef>,
    /// Those that a thread looks at which does not have them: they are not ended meanwhile.
    pinned: HashSet<usize>,
}

// SAFETY: the area is memory, and tasks may be on any thread.
unsafe impl Send for Aside {}

impl Boards {
    pub(in crate::worker) fn new(pool: &Weak<Pool>, workers: u32) -> Boards {
        Boards {
            pool: Weak::clone(pool),
            own: (0..workers).map(|_| CachePadded::default()).collect(),
            others: Board::default(),
            staying: Board::default(),
            abroad: Abroad::default(),
            settled: SegQueue::new(),
            aside: Mutex::default(),
            asked: DataRequests::default(),
            written: AtomicUsize::new(0),
            again: Mutex::default(),
        }
    }

    pub(super) fn pool(&self) -> Weak<Pool> {
        Weak::clone(&self.pool)
    }

    /// A task of that function runs again.
    pub(super) fn note_again(&self, function: &'static str) {
        *self.again().entry(function).or_default() += 1;
    }

    /// How many tasks of each function have run again, as what they had made elsewhere was lost.
    pub(in crate::worker) fn again(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a worker of this process run the task.
    pub(super) fn push_here(&self, pool: &Pool, task: TaskRef) {
        self.staying.push(task);
        pool.wake_for_any_task();
    }

    /// Fetches what a task needs that has come back undone. True if it waits for that: then it is not the caller's any more.
    pub(in crate::worker) fn waits(&self, pool: &Pool, task: AsideTask) -> bool {
        let here = self.aside().tasks.get(&task.slot.addr()).copied();
        here.is_some_and(|here| here.waits(pool, || Waiter::Aside(task)))
    }

    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a task that this thread has made ready on a board: on that of the worker which has made what the task changes, or else on that of
    /// `worker`, or of none. True if it is the board of `worker`; others are to be told, see [`Pool::tell_ready`].
    pub(super) fn push(&self, worker: Option<&Worker>, task: TaskRef) -> bool {
        if let Some(keeper) = task.keeper()
            && let Some(pool) = self.pool.upgrade()
            && task.may_leave(&pool).is_some()
            && let Some(is_told) = self.abroad.push(keeper, task)
        {
            if !is_told {
                pool.tell(|outside| outside.kept_for(keeper));
            }
            return false;
        }
        let own = worker.map(|worker| worker.index);
        let maker = task.maker_of_changed().or(own);
        let board = maker.and_then(|maker| self.own.get(maker as usize));
        board.map_or(&self.others, |board| &**board).push(task);
        own.is_some() && maker == own
    }

    /// The next task for this worker, of its own board or of another's, or one that is to be ended.
    pub(in crate::worker) fn next(&self, worker: &Worker) -> Option<ReadyTask> {
        let own = worker.index as usize;
        if let Some(task) = self.own[own].take_first() {
            return Some(ReadyTask::Run(task));
        }
        if let Some(SettledTask(slot)) = self.settled.pop() {
            return Some(ReadyTask::End(slot));
        }
        let of_workers = || {
            let count = self.own.len();
            let mut others = (1..count).map(|step| &self.own[(own + step) % count]);
            others.find_map(|board| board.take_first())
        };
        let task = (self.staying.take_first()).or_else(|| self.others.take_first());
        let late = || self.abroad.take_late(worker.pool());
        task.or_else(of_workers).or_else(late).map(ReadyTask::Run)
    }

    /// As [`next`](Boards::next), of the tasks of that flow alone, and those that are to be ended.
    pub(in crate::worker) fn next_of(&self, core: &FlowCore) -> Option<ReadyTask> {
        if let Some(SettledTask(slot)) = self.settled.pop() {
            return Some(ReadyTask::End(slot));
        }
        let first = |board: &Board| board.take_where(|task| std::ptr::eq(task.core(), core));
        let mut boards = self.all().chain([&self.staying]);
        let task = boards.find_map(first);
        task.or_else(|| self.abroad.take_of(core))
            .map(ReadyTask::Run)
    }

    /// How long a worker that has nothing to do is to wait before it runs a task that is best run elsewhere; none if there is none.
    pub(in crate::worker) fn until_late(&self, pool: &Pool) -> Option<Duration> {
        self.abroad.until_late(pool)
    }

    /// How many tasks are on the worker's board.
    pub(in crate::worker) fn len_of(&self, worker: &Worker) -> u64 {
        self.own[worker.index as usize].len() as u64
    }

    /// Is there anything for a worker to do?
    pub(in crate::worker) fn has_some(&self) -> bool {
        let mut boards = self.all().chain([&self.staying]);
        boards.any(|board| board.len() > 0) || !self.settled.is_empty()
    }

    /// How many tasks need what that node keeps.
    pub(in crate::worker) fn len_for(&self, keeper: u128) -> usize {
        self.abroad.len_for(keeper)
    }

    /// A node has got fewer tasks than it had asked for.
    pub(in crate::worker) fn wants_more(&self, pool: &Pool, keeper: u128) {
        if self.abroad.tell_again(keeper) {
            pool.tell(|outside| outside.kept_for(keeper));
        }
    }

    /// May that node ask for tasks?
    pub(super) fn may_ask(&self, node: u128) -> bool {
        self.abroad.may_ask(node)
    }

    /// Is that node gone, or about to leave?
    pub(super) fn is_gone(&self, keeper: u128) -> bool {
        self.abroad.is_gone(keeper)
    }

    /// How many tasks there are, about, that nobody here begins with next.
    pub(in crate::worker) fn surplus(&self) -> usize {
        let own = self.all().map(Board::len).sum::<usize>();
        own.saturating_sub(self.own.len())
    }

    /// How many tasks can run, about, of those that may leave.
    pub(in crate::worker) fn len(&self) -> usize {
        self.all().map(Board::len).sum::<usize>() + self.abroad.len()
    }

    fn all(&self) -> impl Iterator<Item = &Board> {
        let own = self.own.iter().map(|board| &**board);
        own.chain([&self.others])
    }

    /// The gate: the first task that needs what that node keeps; or else the last one of the fullest board; in a slot aside, if it may leave. And whether
    /// it is to be looked up if it stays after all, as its flow may have run before.
    pub(in crate::worker) fn take(
        &self,
        pool: &Pool,
        thief: u128,
        wants: Wants,
    ) -> Option<(TakenSlot, bool)> {
        let of_fullest = || {
            let fullest = self.all().max_by_key(|board| board.len())?;
            fullest.take(BTreeMap::pop_last)
        };
        let kept = self.abroad.take_for(thief);
        let task = match wants {
            Wants::Any => kept
                .or_else(of_fullest)
                .or_else(|| self.abroad.take_of_others()),
            Wants::Surplus => kept.or_else(of_fullest),
            Wants::Kept => kept,
        }?;
        if let Some(history) = task.may_leave(pool) {
            match self.set_aside(pool, task) {
                Ok(slot) => {
                    let back = Back {
                        history,
                        ..Back::default()
                    };
                    return Some((TakenSlot { slot, back }, task.core().is_marked));
                }
                Err(payload) => task.core().panicked(pool, payload),
            }
        }
        self.push_here(pool, task);
        None
    }

    /// Tasks of flows that may have run before which stay, as it was not known who has them.
    fn take_marked(&self) -> Vec<TaskRef> {
        let marked = || self.staying.take_where(|task| task.core().is_marked);
        std::iter::from_fn(marked).collect()
    }

    /// Puts a task in a slot aside; or the panic of its flow, if there is none.
    pub(super) fn set_aside(&self, pool: &Pool, task: TaskRef) -> Result<*const Slot, Payload> {
        let slot = self.aside().begin(pool, task)?;
        // SAFETY: the slot lies in the area, which lives as long as the pool, and is ours.
        task.fill(unsafe { &*slot });
        Ok(slot)
    }

    /// Tasks of that flow that are aside.
    fn aside_of(&self, core: &FlowCore) -> Vec<AwayTask> {
        let aside = self.aside();
        let tasks = aside.tasks.iter();
        let own = tasks.filter(|(_, task)| std::ptr::eq(task.core(), core));
        own.map(|(slot, task)| (*slot, task.index())).collect()
    }

    /// Is all here that the job in this slot needs? The caller sees to it that the job stays away meanwhile.
    pub(in crate::worker) fn is_complete(&self, slot: *const Slot) -> bool {
        let task = self.aside().tasks.get(&slot.addr()).copied();
        task.is_none_or(TaskRef::is_complete)
    }

    /// The slot at that address, if a task of that flow is there, which is not ended until it is unpinned.
    fn pin(&self, core: &FlowCore, at: usize) -> Option<*const Slot> {
        let mut aside = self.aside();
        let is_own = |task: &&TaskRef| std::ptr::eq(task.core(), core);
        aside.tasks.get(&at).filter(is_own)?;
        aside.pinned.insert(at);
        aside.slot(at)
    }

    fn unpin(&self, at: usize) {
        self.aside().pinned.remove(&at);
    }
}

impl Aside {
    /// A slot for the task; or the panic of its flow, if there is none.
    fn begin(&mut self, pool: &Pool, task: TaskRef) -> Result<*const Slot, Payload> {
        if self.area.is_none() {
            let mut area = Area::reserve().map_err(|error| -> Payload {
                Box::new(format!(
                    "there is no address space for tasks of flows that leave this process (is there a `ulimit -v`?): {error}"
                ))
            })?;
            let base = area.base();
            // SAFETY: the area is new, large enough, and aligned to more than a worker needs.
            unsafe { base.cast::<Worker>().write(Worker::new(base, NOBODY, pool)) };
            self.area = Some(area);
        }
        let Some(area) = &mut self.area else {
            unreachable!("it has just been reserved")
        };
        let base = area.base();
        let at = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            base.addr() + size_of::<Worker>() + (self.used - 1) * size_of::<Slot>()
        });
        if at + size_of::<Slot>() > base.addr() + AREA {
            return Err(Box::new("too many tasks of flows are away"));
        }
        self.tasks.insert(at, task);
        Ok(base.with_addr(at).cast())
    }

    /// The slot at that address.
    fn slot(&mut self, at: usize) -> Option<*const Slot> {
        let area = self.area.as_mut()?;
        Some(area.base().with_addr(at).cast())
    }

    /// The task in the slot, which is used further until it is [free](Aside::free).
    fn take(&mut self, slot: *const Slot) -> TaskRef {
        let task = self.tasks.remove(&slot.addr());
        task.expect("a slot aside holds a task until it has been settled")
    }
}

/// Something that a worker can do for a flow.
pub(in crate::worker) enum ReadyTask {
    Run(TaskRef),
    /// The task in this slot aside has been settled.
    End(*const Slot),
}

impl ReadyTask {
    pub(in crate::worker) fn function(&self) -> Option<&'static VTable> {
        match self {
            ReadyTask::Run(task) => Some(task.function()),
            ReadyTask::End(_) => None,
        }
    }

    pub(in crate::worker) fn run(self, worker: &Worker, head: *const Slot) {
        match self {
            ReadyTask::Run(task) => task.run(worker, head),
            ReadyTask::End(slot) => worker.pool().end_aside(Some(worker), slot),
        }
    }
}

impl Pool {
    /// That node is gone, or about to: others run the tasks that need what it keeps.
    pub(in crate::worker) fn keeper_gone(&self, at: u128) {
        self.push_all(self.boards.abroad.gone(at));
    }

    /// No node outside asks for tasks any more.
    pub(in crate::worker) fn nobody_asks(&self) {
        self.push_all(self.boards.abroad.close());
    }

    /// All nodes have announced what they have of jobs that may have run before.
    pub(in crate::worker) fn all_announced(&self) {
        self.push_all(self.boards.take_marked());
    }

    /// Nodes outside may ask for tasks.
    pub(in crate::worker) fn nodes_ask(&self) {
        self.boards.abroad.open();
    }

    fn push_all(&self, tasks: Vec<TaskRef>) {
        let count = tasks.len() as u64;
        for task in tasks {
            self.boards.push(None, task);
        }
        if count > 0 {
            self.tell_ready(count);
        }
    }

    /// A task aside has been settled by a thread that does not end it. A worker that has nothing to do does that, or the clerk: what waits for the
    /// task would otherwise wait for a worker.
    pub(in crate::worker) fn settle_task(&self, slot: *const Slot) {
        self.boards.settled.push(SettledTask(slot));
        self.wake_for_any_task();
        let pool = Weak::clone(&self.boards.pool);
        self.clerk.run(move || {
            if let Some(pool) = pool.upgrade() {
                pool.end_settled();
            }
        });
    }

    /// Ends the tasks aside that have been settled and that no worker has ended.
    fn end_settled(&self) {
        while let Some(SettledTask(slot)) = self.boards.settled.pop() {
            self.end_aside(None, slot);
        }
    }

    /// Ends the task in this slot aside, which has been settled.
    pub(in crate::worker) fn end_aside(&self, worker: Option<&Worker>, slot: *const Slot) {
        // SAFETY: the slot lies in the area aside, and is ours.
        let job = unsafe { &*slot };
        let task = loop {
            let mut aside = self.boards.aside();
            if !aside.pinned.contains(&slot.addr()) {
                break aside.take(slot);
            }
            drop(aside);
            std::thread::yield_now();
        };
        task.end(self, worker, Some((job, job.state())));
        self.boards.aside().free.push(slot.addr());
    }
}

impl Worker {
    /// Of the tasks of the flow that are away, the one that this worker, which has nothing else to do, is to run itself soonest, and how long it is to
    /// wait before that. Those in `spent` it has run.
    pub(in crate::worker) fn bored_task(
        &self,
        core: &FlowCore,
        spent: &HashSet<AwayTask>,
    ) -> Option<(AwayTask, Duration)> {
        let pool = self.pool();
        let away = pool.boards.aside_of(core);
        let new = away.into_iter().filter(|task| !spent.contains(task));
        let known = new.take(MOST_LOOKED_AT).filter_map(|task| {
            let slot = pool.boards.aside().slot(task.0)?;
            Some((task, pool.patience(slot)?))
        });
        known.min_by_key(|(_, patience)| *patience)
    }

    /// Runs a task that is away a second time, on top of what waits from `head` downwards.
    pub(in crate::worker) fn duplicate_task(&self, core: &FlowCore, at: usize, head: *const Slot) {
        let boards = &self.pool().boards;
        if let Some(slot) = boards.pin(core, at) {
            self.duplicate(slot, &raw const core.frame, head, || boards.unpin(at));
        }
    }

    /// The flow is over: its tasks that are away are recalled, and end.
    pub(in crate::worker) fn recall_tasks(&self, core: &FlowCore, why: Recall) {
        let pool = self.pool();
        for (at, _) in pool.boards.aside_of(core) {
            let Some(slot) = pool.boards.pin(core, at) else {
                continue; // it has ended meanwhile
            };
            let is_home = pool.take_home(slot, Some(why)).is_some();
            pool.boards.unpin(at);
            if is_home {
                // SAFETY: the job is ours again, with its arguments.
                let job = unsafe { &*slot };
                // SAFETY: as above.
                quietly(|| unsafe { (job.function.get().drop_args)(job) });
                job.enter(SlotState::Aborted);
                pool.end_aside(Some(self), slot);
            }
        }
    }
}

impl Pool {
    /// So many tasks have been put on a board that its worker does not run next.
    pub(in crate::worker) fn tell_ready(&self, count: u64) {
        // Pairs with the fence of those who go to sleep: either they see the tasks, or we see them.
        fence(Ordering::SeqCst);
        self.sleep.wake(count);
        self.tell_surplus();
        self.tell_public();
    }
}
