//! Imaginary flows: the children of such an invocation are tasks, of which each waits for the results that it reads.
//!
//! As in `worker/flow`: tasks that can run stand on boards. A worker takes the first task of its own board, or of another's if it has nothing;
//! the gate takes the last one of the fullest board, but none that others may have, if its flow has run before: a worker looks it up. A task of whose
//! data another node keeps some waits for that node, and for anybody once it has waited long enough. A task that comes back undone is a job like any
//! other that does. What ends a task, be it a worker or an answer, makes those ready that waited for it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    AwayWork, ChildState, HeldWork, ImaginaryWorkers, Invocation, InvocationStep, Kid, Spawned,
    data::FlowData,
};
use crate::{
    job::{Back, History, JobId, Kin, Wants, orphans::may_claim},
    node::{
        Event, NodeId, Rule, Terms,
        cluster::{
            Noted,
            graphs::Graph,
            program::{Program, Work},
        },
    },
};

/// What has been seen of the flows of a node, for those who check it.
#[derive(Clone, Default, Debug)]
pub struct FlowsSeen {
    /// Number of tasks that began or left.
    pub begun: u64,
    /// Number of tasks of flows that may have run before that were claimed.
    pub found: u64,
    /// Number of answers from elsewhere that tasks got.
    pub answered: u64,
    /// A task that began before what it reads was there.
    pub too_early: Option<String>,
    /// A task that began, or left, although it could have been claimed.
    pub missed: Option<String>,
    /// An answer to a task that is not what it computes from what it reads.
    pub wrong: Option<String>,
    /// Number of parts of results that were kept where they were made.
    pub kept: u64,
    /// Number of such parts that were brought here.
    pub brought: u64,
    /// Number of such parts that nobody had any more.
    pub lost: u64,
    /// Number of tasks that were run again for such a part.
    pub again: u64,
}

/// The graph of a flow under way.
pub(super) struct FlowUnderWay {
    graph: Graph,
    /// What the data of this execution differ by, see [`Work::salt`].
    salt: u16,
    /// Who reads the result of each task.
    readers: Vec<Vec<u32>>,
    data: FlowData,
}

impl FlowUnderWay {
    pub(super) fn data(&self) -> &FlowData {
        &self.data
    }

    pub(super) fn data_mut(&mut self) -> &mut FlowData {
        &mut self.data
    }
}

/// The place of a task among those that can run: those of inner flows first, those of a flow in the order in which they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TaskOrder {
    depth: Reverse<u32>,
    index: u32,
    /// Tells flows apart.
    frame: u32,
}

impl TaskOrder {
    /// `depth` is that of the flow.
    fn of(depth: u32, job: &Spawned) -> TaskOrder {
        TaskOrder {
            depth: Reverse(depth),
            index: job.index,
            frame: job.frame,
        }
    }
}

type Board = BTreeMap<TaskOrder, Spawned>;

/// Number of tasks at the end of a board among which the gate chooses.
const LOOKED_AT: usize = 32;

/// A task waits for that node for so long at most. The product's workers know how long its data would be under way, and wait for as
/// long, between 2 and 100 ms.
const PATIENCE: Duration = Duration::from_millis(60);

/// Tasks that are best run by the node that keeps what they need.
#[derive(Default)]
struct KeptFor {
    tasks: Board,
    /// Those of them that have waited long enough.
    late: BTreeSet<TaskOrder>,
    /// The node knows that there are some.
    is_told: bool,
}

impl KeptFor {
    fn take(&mut self, order: TaskOrder) -> Option<Spawned> {
        self.late.remove(&order);
        self.tasks.remove(&order)
    }
}

/// The boards of a node.
pub(super) struct Boards {
    /// A board for each worker, and the last one for tasks that no worker has made ready.
    boards: Vec<Board>,
    /// Tasks that the gate has looked at, and that a worker is to look up.
    home: Board,
    /// By the numbers of the nodes.
    abroad: BTreeMap<u128, KeptFor>,
    /// Nodes that are gone, or about to go.
    gone: BTreeSet<u128>,
}

impl Boards {
    pub(super) fn new(threads: u32) -> Boards {
        Boards {
            boards: (0..=threads).map(|_| Board::new()).collect(),
            home: Board::new(),
            abroad: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Leaves the task to that node. `None` if the node is gone; else whether it knows that there are tasks for it.
    fn leave_to(&mut self, keeper: u128, depth: u32, job: Spawned) -> Option<bool> {
        if self.gone.contains(&keeper) {
            return None;
        }
        let kept = self.abroad.entry(keeper).or_default();
        kept.tasks.insert(TaskOrder::of(depth, &job), job);
        Some(std::mem::replace(&mut kept.is_told, true))
    }

    /// That node has got fewer tasks than it had asked for. Are there more for it?
    fn wants_more(&mut self, keeper: u128) -> bool {
        let Some(kept) = self.abroad.get_mut(&keeper) else {
            return false;
        };
        kept.is_told = !kept.tasks.is_empty();
        kept.is_told
    }

    fn len_for(&self, keeper: u128) -> usize {
        (self.abroad.get(&keeper)).map_or(0, |kept| kept.tasks.len())
    }

    /// The first task for that node.
    fn take_kept(&mut self, keeper: u128) -> Option<Spawned> {
        let kept = self.abroad.get_mut(&keeper)?;
        let order = *kept.tasks.first_key_value()?.0;
        kept.take(order)
    }

    /// A task for another node than the one that keeps what it needs: the last one of those that keep most.
    fn take_of_others(&mut self) -> Option<Spawned> {
        let abroad = self.abroad.values_mut();
        let fullest = abroad.max_by_key(|kept| kept.tasks.len())?;
        let order = *fullest.tasks.last_key_value()?.0;
        fullest.take(order)
    }

    /// A task that has waited long enough for its node, the last one.
    fn take_late(&mut self) -> Option<Spawned> {
        let mut kept = self.abroad.values_mut();
        kept.find_map(|kept| {
            let order = *kept.late.last()?;
            kept.take(order)
        })
    }

    /// A time of waiting is over. True if there are tasks that still wait.
    fn wait_no_longer(&mut self) -> bool {
        let mut still = false;
        for kept in self.abroad.values_mut() {
            still |= kept.late.len() < kept.tasks.len();
            kept.late = kept.tasks.keys().copied().collect();
        }
        still
    }

    fn keeper_gone(&mut self, keeper: u128) {
        self.gone.insert(keeper);
        if let (Some(kept), Some(none)) = (self.abroad.remove(&keeper), self.boards.last_mut()) {
            none.extend(kept.tasks);
        }
    }

    /// Number of tasks on the boards of the workers.
    pub(super) fn own(&self) -> usize {
        self.boards.iter().map(Board::len).sum()
    }

    pub(super) fn push(&mut self, lane: Option<u32>, depth: u32, job: Spawned) {
        let none = self.boards.len() - 1;
        let board = lane.map_or(none, |lane| lane as usize);
        self.boards[board].insert(TaskOrder::of(depth, &job), job);
    }

    /// Takes that task away.
    pub(super) fn remove(&mut self, depth: u32, frame: u32, index: u32) {
        let order = TaskOrder {
            depth: Reverse(depth),
            index,
            frame,
        };
        for board in self.boards.iter_mut().chain([&mut self.home]) {
            board.remove(&order);
        }
        for kept in self.abroad.values_mut() {
            kept.take(order);
        }
    }

    /// The next task for that worker.
    pub(super) fn next(&mut self, lane: u32) -> Option<Spawned> {
        let (own, workers) = (lane as usize, self.boards.len() - 1);
        if let Some((_, job)) = self.boards[own].pop_first() {
            return Some(job);
        }
        if let Some((_, job)) = self.home.pop_first() {
            return Some(job);
        }
        let others = (1..workers).map(|step| (own + step) % workers);
        let mut others = [workers].into_iter().chain(others);
        others.find_map(|board| self.boards[board].pop_first().map(|(_, job)| job))
    }

    /// The next task of that flow.
    fn next_of(&mut self, frame: u32) -> Option<Spawned> {
        let mut boards = self.boards.iter_mut().chain([&mut self.home]);
        let here = boards.find_map(|board| {
            let order = *board.iter().find(|(_, job)| job.frame == frame)?.0;
            board.remove(&order)
        });
        here.or_else(|| {
            let mut abroad = self.abroad.values_mut();
            abroad.find_map(|kept| {
                let order = *kept.tasks.iter().find(|(_, job)| job.frame == frame)?.0;
                kept.take(order)
            })
        })
    }

    /// Of the last tasks of the fullest board the one for which the least would have to move to the thief.
    fn take_for(&mut self, to_move: impl Fn(&Spawned) -> u64) -> Option<Spawned> {
        let fullest = self.boards.iter_mut().max_by_key(|board| board.len())?;
        let last = fullest.iter().rev().take(LOOKED_AT);
        let (order, _) = last.min_by_key(|(_, job)| to_move(job))?;
        let order = *order;
        fullest.remove(&order)
    }

    /// All nodes have announced what they have: tasks that had to stay until then are for all nodes.
    pub(super) fn let_leave(&mut self) {
        if let Some(none) = self.boards.last_mut() {
            none.append(&mut self.home);
        }
    }

    /// Number of tasks that may leave.
    pub(super) fn len(&self) -> usize {
        let abroad = self.abroad.values().map(|kept| kept.tasks.len());
        self.own() + abroad.sum::<usize>()
    }

    /// All tasks that can run.
    pub(super) fn all(&self) -> impl Iterator<Item = &Spawned> {
        let boards = self.boards.iter().flat_map(BTreeMap::values);
        let abroad = self.abroad.values().flat_map(|kept| kept.tasks.values());
        boards.chain(self.home.values()).chain(abroad)
    }

    /// Takes those of that flow away, as it has stopped.
    pub(super) fn clear(&mut self, frame: u32) -> Vec<u32> {
        let gone = self.all().filter(|job| job.frame == frame);
        let gone = gone.map(|job| job.index).collect();
        for board in self.boards.iter_mut().chain([&mut self.home]) {
            board.retain(|_, job| job.frame != frame);
        }
        for kept in self.abroad.values_mut() {
            kept.tasks.retain(|_, job| job.frame != frame);
            kept.late.retain(|order| order.frame != frame);
        }
        gone
    }
}

impl Invocation {
    /// The result of a flow whose tasks are all done.
    pub(super) fn flow_result(&self, program: &Program) -> Option<u64> {
        let flow = self.flow.as_ref().filter(|_| !self.children.is_empty())?;
        let mut results = vec![0; self.children.len()];
        for (index, child) in (0..).zip(&self.children) {
            if let ChildState::Done(Some(result)) = child.is {
                results[flow.graph.natural(index) as usize] = Program::salted(child.work, result);
            }
        }
        Some(program.after_tasks(self.work, results.into_iter()))
    }

    /// The task as the results that it reads make it; `None` as long as one is missing.
    fn task(&self, program: &Program, index: u32) -> Option<Work> {
        let flow = self.flow.as_ref()?;
        let mut reads = Vec::new();
        for read in flow.graph.inputs(index) {
            let read = self.children[*read as usize];
            let ChildState::Done(Some(result)) = read.is else {
                return None;
            };
            reads.push(Program::salted(read.work, result));
        }
        let natural = flow.graph.natural(index);
        Some(program.task(self.work, natural, flow.salt, reads.into_iter()))
    }

    /// Are all results there, or to be had, that the task reads?
    pub(super) fn has_inputs(&self, index: u32) -> bool {
        let flow = self.flow.as_ref();
        self.has_results(index) && flow.is_none_or(|flow| !flow.data.lacks(index))
    }

    /// Are the tasks done whose results the task reads?
    fn has_results(&self, index: u32) -> bool {
        let flow = self.flow.as_ref();
        flow.is_none_or(|flow| {
            let mut reads = flow.graph.inputs(index).iter();
            reads.all(|read| matches!(self.children[*read as usize].is, ChildState::Done(Some(_))))
        })
    }
}

impl ImaginaryWorkers {
    /// The invocation makes all its tasks.
    pub(super) fn make_tasks(&mut self, programs: &[Program], top: u32, graph: Graph) {
        let frame = self.frame(top);
        let program = &programs[frame.program as usize];
        let (graph, salt) = match frame.nonce % 4 {
            2 if program.changing => (graph.shuffled(frame.nonce), 0),
            3 if program.changing => (graph, (frame.nonce >> 16) as u16 | 1),
            _ => (graph, 0),
        };
        let count = graph.len();
        let tasks = (0..count).map(|index| Kid {
            work: frame.work,
            natural: graph.natural(index),
            is: ChildState::Waiting,
        });
        frame.children = tasks.collect();
        frame.pending += count;
        frame.step = InvocationStep::Wait;
        let inputs: Vec<&[u32]> = (0..count).map(|index| graph.inputs(index)).collect();
        let data = FlowData::new(program, frame.work, &inputs);
        let mut readers = vec![Vec::new(); count as usize];
        for (reader, inputs) in (0..).zip(inputs) {
            for read in inputs {
                readers[*read as usize].push(reader);
            }
        }
        frame.flow = Some(Box::new(FlowUnderWay {
            graph,
            salt,
            readers,
            data,
        }));
        let lane = frame.lane;
        for index in 0..count {
            let waits = !self.without.contains(&Rule::Inputs);
            let frame = self.frame(top);
            if !waits || frame.has_inputs(index) {
                self.make_ready(programs, top, index, Some(lane));
            }
        }
    }

    /// The task goes to the board of that worker, or of none.
    pub(super) fn make_ready(
        &mut self,
        programs: &[Program],
        parent: u32,
        index: u32,
        lane: Option<u32>,
    ) {
        let frame = self.frame(parent);
        let program = &programs[frame.program as usize];
        let task = frame.task(program, index);
        // Without the rule of inputs, what is missing is as if nothing were read.
        let natural = frame.children[index as usize].natural;
        let work = task.unwrap_or_else(|| program.task(frame.work, natural, 0, std::iter::empty()));
        frame.children[index as usize].work = work;
        let depth = frame.depth;
        // Looked up, it would be answered with what is lost.
        let at_once = (frame.flow.as_ref()).is_some_and(|flow| flow.data.is_again(index));
        self.set_child(parent, index, ChildState::Queued);
        let back = Back {
            at_once,
            ..Back::default()
        };
        if at_once {
            self.note(parent, |workers| {
                Noted::AtOnce(workers.id(parent).child(index))
            });
        }
        let job = Spawned {
            frame: parent,
            index,
            work,
            back,
            repairs: false,
        };
        self.fresh = true;
        if self.leave_to_keeper(depth, job).is_none() {
            self.boards.push(lane, depth, job);
        }
    }

    /// Leaves the task to the node that keeps what it needs, if one does.
    fn leave_to_keeper(&mut self, depth: u32, job: Spawned) -> Option<()> {
        let frame = self.frames[job.frame as usize].as_ref();
        let keeper = frame?.flow.as_ref()?.data.keeper(job.index, self.me)?;
        if job.back.at_once || self.may_leave(&job).is_none() {
            return None;
        }
        let is_told = self.boards.leave_to(keeper, depth, job)?;
        if !is_told {
            self.events.push_back(Event::KeptFor(NodeId(keeper)));
        }
        if !self.is_patient {
            self.is_patient = true;
            self.patience = Some(PATIENCE);
        }
        Some(())
    }

    /// Tasks have waited for the nodes that keep what they need.
    pub(in crate::node::cluster) fn patience_ends(&mut self) {
        self.is_patient = self.boards.wait_no_longer();
        self.patience = self.is_patient.then_some(PATIENCE);
    }

    /// That node is gone, or about to go: others run what was left to it.
    pub(in crate::node::cluster) fn keeper_gone(&mut self, keeper: u128) {
        self.boards.keeper_gone(keeper);
        self.fresh = true;
    }

    /// A task is done: those that can run now are ready. `lane` is the worker that ran the task, if one here did.
    pub(super) fn show_waiting(
        &mut self,
        programs: &[Program],
        parent: u32,
        index: u32,
        lane: Option<u32>,
    ) {
        if lane.is_none() && self.without.contains(&Rule::ShowWaiting) {
            return;
        }
        let frame = self.frame(parent);
        let Some(flow) = &frame.flow else {
            return;
        };
        let mut ready = flow.readers[index as usize].clone();
        ready.retain(|other| {
            let waits = frame.children[*other as usize].is == ChildState::Waiting;
            waits && frame.has_inputs(*other)
        });
        for other in ready {
            self.make_ready(programs, parent, other, lane);
        }
    }

    /// Must the job wait, if it is a task, as what it reads is being made again?
    pub(super) fn waits_again(&mut self, job: &Spawned) -> bool {
        !self.without.contains(&Rule::Inputs) && !self.frame(job.frame).has_inputs(job.index)
    }

    /// Tasks that are held for other nodes, and cannot run now.
    pub(super) fn drop_held_that_wait(&mut self) {
        let own = self.held.iter().filter_map(|held| match held {
            HeldWork::Own(job) => Some(*job),
            HeldWork::Root(_) | HeldWork::Hosted(..) => None,
        });
        let own: Vec<Spawned> = own.collect();
        for job in own
            .into_iter()
            .filter(|job| self.waits_again(job))
            .collect::<Vec<_>>()
        {
            let is_it = |held: &HeldWork| matches!(held, HeldWork::Own(other) if (other.frame, other.index) == (job.frame, job.index));
            self.held.retain(|held| !is_it(held));
            self.set_child(job.frame, job.index, ChildState::Waiting);
            self.tell_held();
        }
    }

    /// The next task for a worker that waits for a flow: of any flow, or, if there is no room on its stack, of that one.
    pub(super) fn next_task(&mut self, lane: u32, room: bool) -> Option<Spawned> {
        let top = *self.lanes[lane as usize].stack.last()?;
        let frame = self.frame(top);
        let waits = frame.flow.is_some() && frame.step == InvocationStep::Wait;
        if !waits || frame.stop.is_some() {
            return None;
        }
        match room {
            true => self.boards.next(lane).or_else(|| self.late_task()),
            false if self.without.contains(&Rule::OwnTasks) => None,
            false => self.boards.next_of(top),
        }
    }

    /// A task that has waited long enough for the node that keeps what it needs. None while as many as there are workers wait for data.
    pub(super) fn late_task(&mut self) -> Option<Spawned> {
        (self.fetching.len() < self.lanes.len()).then(|| self.boards.take_late())?
    }

    /// A worker has taken a task from a board: it begins, or is looked up first.
    pub(super) fn begin_task(&mut self, programs: &[Program], lane: u32, mut job: Spawned) {
        if self.looks_up_tasks(job.frame) {
            job.back.history.marked = true;
        }
        match self.would_deadlock(lane, &job) {
            true => self.queue_again(job),
            false => self.begin(programs, lane, job),
        }
    }

    /// A task that was to leave stays. By the time at which a worker runs it others may have announced that they have it.
    pub(super) fn stays_after_all(&mut self, mut job: Spawned) {
        let flow = self.frames[job.frame as usize].as_ref();
        let is_task = flow.is_some_and(|flow| flow.flow.is_some());
        job.back.history.marked |= is_task && self.looks_up_tasks(job.frame);
        self.queue_again(job);
    }

    /// A task that another node could not run is for the workers here.
    pub(super) fn keep_task(&mut self, job: Spawned) {
        if self.waits_again(&job) {
            return self.set_child(job.frame, job.index, ChildState::Waiting);
        }
        self.set_child(job.frame, job.index, ChildState::Queued);
        let depth = self.frame(job.frame).depth;
        self.boards.home.insert(TaskOrder::of(depth, &job), job);
        self.fresh = true;
    }

    fn looks_up_tasks(&self, flow: u32) -> bool {
        let mut rules = [Rule::Inherit, Rule::LookUpTasks].iter();
        let flow = self.frames[flow as usize].as_ref();
        rules.all(|rule| !self.without.contains(rule)) && flow.is_some_and(|flow| flow.marked)
    }

    /// The gate: the tasks that need what the thief keeps; then of the last tasks of the boards those whose data are with it; `most` of them at most, and no
    /// more than half of all jobs; or, for one that asks ahead, than what the workers here and others do not begin before.
    pub(super) fn take_tasks(
        &mut self,
        programs: &[Program],
        most: u32,
        terms: &Terms,
    ) -> Vec<Spawned> {
        let (thief, wants) = (terms.thief(), terms.wants());
        let kept = self.boards.len_for(thief);
        let limit = match wants {
            Wants::Any => self.takeable().div_ceil(2).max(kept),
            Wants::Surplus => kept + self.boards.own().saturating_sub(self.lanes.len()),
            Wants::Kept => kept,
        };
        let limit = limit.min(most as usize);
        let mut boards = std::mem::replace(&mut self.boards, Boards::new(0));
        let to_move = |job: &Spawned| {
            let (shape, named) = self.shape_of(programs, job.frame, job.index, job.work);
            shape.own_bytes() + terms.lacking(&named)
        };
        let mut taken = Vec::new();
        let mut next = || {
            let kept = boards.take_kept(thief);
            match wants {
                Wants::Any => {
                    (kept.or_else(|| boards.take_for(to_move))).or_else(|| boards.take_of_others())
                }
                Wants::Surplus => kept.or_else(|| boards.take_for(to_move)),
                Wants::Kept => kept,
            }
        };
        let mut stay = Vec::new();
        while taken.len() < limit
            && let Some(mut job) = next()
        {
            let flow = self.frames[job.frame as usize].as_ref();
            let depth = flow.map_or(0, |flow| flow.depth);
            match self.may_leave(&job) {
                None => {
                    stay.push((TaskOrder::of(depth, &job), job));
                }
                Some(history) => {
                    job.back.history = history;
                    taken.push(job);
                }
            }
        }
        boards.home.extend(stay);
        let wants_more = taken.len() < most as usize && boards.wants_more(thief);
        self.boards = boards;
        if wants_more {
            self.events.push_back(Event::KeptFor(NodeId(thief)));
        }
        taken
    }

    /// The history with which the task leaves, if it may.
    fn may_leave(&self, job: &Spawned) -> Option<History> {
        if job.back.stays {
            return None;
        }
        if !self.looks_up_tasks(job.frame) || self.without.contains(&Rule::TasksStay) {
            return Some(History::default());
        }
        let id = self.id(job.frame).child(job.index);
        self.index.may_leave(&id)
    }

    // ---- for those who check it

    /// A child is about to begin, or to leave: if it is a task, what it reads must be there.
    pub(super) fn see_begin(&mut self, parent: u32, index: u32) {
        let frame = self.frame(parent);
        if frame.flow.is_none() {
            return;
        }
        let has_inputs = frame.has_inputs(index);
        self.flows.begun += 1;
        if !has_inputs {
            let id = self.id(parent).child(index);
            let story = format!("task {id} begins, and a result that it reads is missing");
            self.flows.too_early.get_or_insert(story);
        }
    }

    /// The job begins at that worker, or leaves: if it is a task of a flow that may have run before, it must not be known to be elsewhere.
    pub(super) fn see_unclaimed(&mut self, lane: Option<u32>, job: &Spawned) {
        let frame = self.frame(job.frame);
        if frame.flow.is_none() || !frame.marked || job.back.at_once {
            return;
        }
        let id = self.id(job.frame).child(job.index);
        let is_known = self.index.kin(&id) == Kin::Here
            && self.index.is_known(&id, self.fingerprint(job.work));
        let may_claim = lane.map_or(!job.back.history.marked, |lane| {
            may_claim(&id, self.hosts_on(lane))
        });
        if is_known && may_claim {
            let story = format!("task {id} is run, although others have it or its result");
            self.flows.missed.get_or_insert(story);
        }
    }

    /// A job that is away is claimed.
    pub(super) fn see_claim(&mut self, job: &AwayWork) {
        if let AwayWork::Spawned(job) = job {
            let is_task = self.frame(job.frame).flow.is_some();
            self.flows.found += u64::from(is_task);
        }
    }

    /// An answer comes for a job: if it is a task, the answer must be what the task computes from what it reads.
    pub(super) fn see_answer(&mut self, programs: &[Program], job: &Spawned, result: u64) {
        let frame = self.frame(job.frame);
        if frame.flow.is_none() {
            return;
        }
        let right = programs[frame.program as usize].below(job.work).result;
        self.flows.answered += 1;
        if result != right {
            let id: JobId = self.id(job.frame).child(job.index);
            let story = format!("task {id} is answered with {result:x}, and computes {right:x}");
            self.flows.wrong.get_or_insert(story);
        }
    }

    /// The number of tasks that wait for results; or, in words, one that waits for none.
    pub(in crate::node::cluster) fn waiting_tasks(&self) -> Result<u64, String> {
        if let Some(story) = self.forgotten_data() {
            return Err(story);
        }
        let mut waiting = 0;
        for (place, frame) in (0..).zip(&self.frames) {
            let flow = frame.as_ref().filter(|frame| frame.flow.is_some());
            let Some(frame) = flow.filter(|frame| frame.stop.is_none()) else {
                continue;
            };
            let tasks = (0..).zip(&frame.children);
            for (index, _) in tasks.filter(|(_, task)| task.is == ChildState::Waiting) {
                waiting += 1;
                let id = || self.id(place).child(index);
                if frame.has_inputs(index) {
                    return Err(format!(
                        "task {} waits, and all is there that it reads",
                        id()
                    ));
                }
                let is_brought =
                    (frame.flow.as_ref()).is_some_and(|flow| flow.data.is_brought(index));
                if frame.has_results(index) && !is_brought {
                    let id = id();
                    return Err(format!(
                        "what task {id} reads is lost, and is not made again"
                    ));
                }
            }
        }
        Ok(waiting)
    }
}
