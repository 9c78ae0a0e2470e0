//! Tasks that are best run by the nodes that keep what they need: these get them first, then other nodes that have nothing else to do, and workers here
//! once they have waited for as long as it would take to bring the data.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{FlowCore, board::TaskOrder, task::TaskRef};
use crate::{job::function, worker::pool::Pool};

/// The least time for which a task waits for the node that keeps what it needs. Too short: data travel while the node is about to ask. Too
/// long: workers here have nothing to do.
const LEAST: Duration = Duration::from_millis(2);

/// The same while it is not known how long the data would take.
const UNKNOWN: Duration = Duration::from_millis(10);

/// The most. Too short: data cross a slow link while their node is busy for a moment. Too long: nothing is done where the estimate is wrong.
const MOST: Duration = Duration::from_millis(100);

/// So many tasks of each node are looked at, whether they have waited long enough. Too few: one that has is not seen. Too many: looking takes
/// as long as waiting.
const LOOKED_AT: usize = 16;

/// Tasks that are best run elsewhere.
#[derive(Default)]
pub(super) struct Abroad {
    boards: Mutex<AbroadBoards>,
    /// How many there are: looked at before the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct AbroadBoards {
    /// By the numbers of the nodes. Each with the time when it was put there.
    tasks: HashMap<u128, BTreeMap<TaskOrder, (TaskRef, Instant)>>,
    /// Nodes that are gone, or about to go; and this node, as what it keeps itself is here.
    gone: HashSet<u128>,
    /// No node asks.
    are_closed: bool,
    /// Nodes that know that there are tasks for them.
    told: HashSet<u128>,
}

impl AbroadBoards {
    /// May that node ask for tasks?
    fn may_ask(&self, node: u128) -> bool {
        !self.are_closed && !self.gone.contains(&node)
    }

    fn len(&self) -> usize {
        self.tasks.values().map(BTreeMap::len).sum()
    }
}

impl Abroad {
    fn lock(&self) -> MutexGuard<'_, AbroadBoards> {
        self.boards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Leaves the task to that node. `None` if the node is gone; else whether it knows that there are tasks for it.
    pub(super) fn push(&self, keeper: u128, task: TaskRef) -> Option<bool> {
        let mut boards = self.lock();
        if !boards.may_ask(keeper) {
            return None;
        }
        let tasks = boards.tasks.entry(keeper).or_default();
        tasks.insert(TaskOrder::of(task), (task, Instant::now()));
        self.len.store(boards.len(), Ordering::Relaxed);
        Some(!boards.told.insert(keeper))
    }

    /// Takes a task by `pop`, if there is one.
    fn take(
        &self,
        pop: impl FnOnce(&mut AbroadBoards) -> Option<(TaskOrder, (TaskRef, Instant))>,
    ) -> Option<TaskRef> {
        if self.len() == 0 {
            return None;
        }
        let mut boards = self.lock();
        let task = pop(&mut boards);
        self.len.store(boards.len(), Ordering::Relaxed);
        task.map(|(_, (task, _))| task)
    }

    /// The first task for that node.
    pub(super) fn take_for(&self, keeper: u128) -> Option<TaskRef> {
        self.take(|boards| boards.tasks.get_mut(&keeper)?.pop_first())
    }

    /// How many tasks there are for that node.
    pub(super) fn len_for(&self, keeper: u128) -> usize {
        if self.len() == 0 {
            return 0;
        }
        self.lock().tasks.get(&keeper).map_or(0, BTreeMap::len)
    }

    /// That node has got fewer tasks than it had asked for: it is told of the next, or now, if there is one.
    pub(super) fn tell_again(&self, keeper: u128) -> bool {
        let mut boards = self.lock();
        let is_some = boards
            .tasks
            .get(&keeper)
            .is_some_and(|tasks| !tasks.is_empty());
        if !is_some {
            boards.told.remove(&keeper);
        }
        is_some
    }

    /// A task for another node than the one that keeps what it needs: the last one of those that keep most. For a node that has nothing to do and
    /// finds nothing else: with four tasks left to each that is busy 20 nodes ran random graphs a tenth to a third longer, and a death cost several times as
    /// much (`satin-sim dag`).
    pub(super) fn take_of_others(&self) -> Option<TaskRef> {
        self.take(|boards| {
            let fullest = boards.tasks.values_mut().max_by_key(|tasks| tasks.len())?;
            fullest.pop_last()
        })
    }

    /// A task of that flow.
    pub(super) fn take_of(&self, core: &FlowCore) -> Option<TaskRef> {
        self.take(|boards| {
            boards.tasks.values_mut().find_map(|tasks| {
                let is_own = |(task, _): &(TaskRef, Instant)| std::ptr::eq(task.core(), core);
                let (order, _) = tasks.iter().find(|(_, task)| is_own(task))?;
                let order = *order;
                tasks.remove_entry(&order)
            })
        })
    }

    /// A task that has waited long enough, of those that are to be run last. None while as many as there are workers wait for data.
    pub(super) fn take_late(&self, pool: &Pool) -> Option<TaskRef> {
        if self.len() == 0 || pool.boards.asked.coming() >= pool.workers() as usize {
            return None;
        }
        let late = self.take(|boards| {
            let late = boards.tasks.values_mut().find_map(|tasks| {
                let mut last = tasks.iter().rev().take(LOOKED_AT);
                let is_late =
                    |task: &TaskRef, since: &Instant| since.elapsed() >= patience(*task, pool);
                let (order, _) = last.find(|(_, (task, since))| is_late(task, since))?;
                Some((*order, tasks))
            });
            let (order, tasks) = late?;
            tasks.remove_entry(&order)
        });
        if late.is_some() && self.len() > 0 {
            pool.wake_for_any_task(); // others may be late, too
        }
        late
    }

    /// How long until one has waited long enough.
    pub(super) fn until_late(&self, pool: &Pool) -> Option<Duration> {
        if self.len() == 0 || pool.boards.asked.coming() >= pool.workers() as usize {
            return None;
        }
        let boards = self.lock();
        let last = boards
            .tasks
            .values()
            .flat_map(|tasks| tasks.values().rev().take(LOOKED_AT));
        let left = last.map(|(task, since)| patience(*task, pool).saturating_sub(since.elapsed()));
        // Who is woken may find that it has no room for it.
        left.min().map(|left| left.max(LEAST))
    }

    /// May that node ask for tasks?
    pub(super) fn may_ask(&self, node: u128) -> bool {
        self.lock().may_ask(node)
    }

    /// Is that node gone?
    pub(super) fn is_gone(&self, keeper: u128) -> bool {
        self.lock().gone.contains(&keeper)
    }

    /// No node asks for tasks any more: all of them.
    pub(super) fn close(&self) -> Vec<TaskRef> {
        let mut boards = self.lock();
        boards.are_closed = true;
        let tasks = std::mem::take(&mut boards.tasks);
        self.len.store(0, Ordering::Relaxed);
        let all = tasks.into_values().flat_map(BTreeMap::into_values);
        all.map(|(task, _)| task).collect()
    }

    /// Nodes may ask for tasks.
    pub(super) fn open(&self) {
        self.lock().are_closed = false;
    }

    /// That node is gone: the tasks that were left to it.
    pub(super) fn gone(&self, keeper: u128) -> Vec<TaskRef> {
        let mut boards = self.lock();
        boards.gone.insert(keeper);
        let tasks = boards.tasks.remove(&keeper).unwrap_or_default();
        self.len.store(boards.len(), Ordering::Relaxed);
        tasks.into_values().map(|(task, _)| task).collect()
    }
}

/// How long a task waits for the node that keeps what it needs: as long as the way of that here takes. Then at most twice as much is lost as
/// by who knew when the node will ask.
fn patience(task: TaskRef, pool: &Pool) -> Duration {
    let missing = task.missing_bytes();
    if missing == 0 {
        return Duration::ZERO;
    }
    let function = function::number_of(task.function());
    let keeper = task.keeper().unwrap_or(0);
    let way = function.and_then(|function| pool.way_of(function, missing, keeper));
    way.map_or(UNKNOWN, |way| way.clamp(LEAST, MOST))
}
