//! One run: a graph, a world, a policy, and processors that die.
//!
//! The state and the loop over events are here. `links` sends versions, `tasks` gives tasks to processors and takes them back,
//! `death` repairs, `check` holds the invariants; `plan`, `pull` and `grant` are the policies, `copies` is F15.
//!
//! The owner of the flow is no processor: it does not die, messages without data take no time, and its estimates of costs are
//! right but for speeds, which it knows as of the last task or transfer that ended there (GTP: as of the last rescheduling point).

mod check;
mod copies;
mod death;
mod grant;
mod links;
mod plan;
mod pull;
mod tasks;
#[cfg(test)]
mod tests;

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

use super::{
    graph::{FlowGraph, TaskId, VersionId},
    policy::{Detection, Placing, Policy},
    world::{Change, ProcessorId, Resource, World},
};
use crate::faults::Dice;

pub use check::Violation;

/// A processor dies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Death {
    /// The processor.
    pub processor: ProcessorId,
    /// The time.
    pub at: f64,
    /// The time at which it is back, with nothing, if it comes back.
    pub back: Option<f64>,
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'t> {
    /// The graph.
    pub graph: &'t FlowGraph,
    /// The processors.
    pub world: &'t World,
    /// The policy.
    pub policy: Policy,
    /// When it learns of a death.
    pub detection: Detection,
    /// The time to which delays and periods are related: about that of the whole graph without changes.
    pub reference: f64,
    /// The processors that die.
    pub deaths: &'t [Death],
    /// The seed of what the policy does at random.
    pub seed: u64,
}

/// What a run has come to.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Outcome {
    /// The time at which all tasks were done.
    pub makespan: f64,
    /// Number of tasks that were rewound.
    pub rewound: usize,
    /// Data that was sent because a task needed it, in time on a link of full speed.
    pub sent: f64,
    /// Data that was copied in the background.
    pub copied: f64,
    /// Number of tasks that were taken from a processor and given to another, without a death.
    pub withdrawn: usize,
    /// Number of tasks that began elsewhere than on the node of the flow. Counted of the shipped code alone.
    pub elsewhere: usize,
    /// The longest time from a death until the node of the flow knew of it. Measured of the shipped code alone.
    pub heard_after: f64,
}

/// Runs a graph with a policy that is a model.
///
/// # Errors
/// An invariant was violated: the model or the policy is wrong. With the shipped code all is stuck.
pub fn run(trial: &Trial<'_>) -> Result<Outcome, Violation> {
    Sim::new(trial, CHECK_EVERY).run()
}

/// Number of events from one check of all invariants to the next. They are checked after each repair as well.
const CHECK_EVERY: u64 = 5000;

/// Reference times after which a run with rescheduling points counts as stuck. No policy takes ten.
const PATIENCE: f64 = 1000.0;

// ---- state

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Given to no processor.
    Waiting,
    /// Given to a processor, perhaps before its inputs exist.
    Granted(ProcessorId),
    Running(ProcessorId),
    Done,
}

impl State {
    fn processor(self) -> Option<ProcessorId> {
        match self {
            State::Granted(processor) | State::Running(processor) => Some(processor),
            State::Waiting | State::Done => None,
        }
    }
}

/// Where an input of a granted task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    Missing,
    /// Asked for.
    Coming,
    Here,
}

/// What is known of a task beside its [`State`].
#[derive(Clone, Debug)]
struct Progress {
    inputs: Vec<Input>,
    /// Number of inputs that are not here.
    missing: usize,
    /// Number of inputs that nobody holds and that are not here: their writers are to run first.
    unmade: usize,
    /// The time on the way from here to the end of the graph; or a random number, for a policy that knows no ranks.
    priority: f64,
    /// The time at which it is expected to be done.
    expected_end: f64,
    /// The processor that did it last.
    ran_on: ProcessorId,
    runs: usize,
    rewinds: usize,
    /// Time that doing it again would take with all that lies behind it on its processor alone (F15).
    redo: f64,
}

/// A task that runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    task: TaskId,
    began: f64,
    /// Work left at `since`, in time at full speed.
    left: f64,
    since: f64,
}

#[derive(Clone, Debug)]
struct Processor {
    speed: f64,
    /// The speed that the owner reckons with.
    known_speed: f64,
    is_alive: bool,
    /// The owner has not heard of its death.
    is_believed: bool,
    running: Option<Run>,
    /// Tasks that are granted and do not run.
    queue: Vec<TaskId>,
    /// Events of earlier generations are void.
    generation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// A task needs it.
    Wanted,
    /// So that a death loses nothing (F15).
    Copy,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    version: VersionId,
    purpose: Purpose,
    /// Data left at `since`.
    left: f64,
    since: f64,
}

#[derive(Clone, Debug)]
struct Link {
    speed: f64,
    current: Option<Transfer>,
    wanted: VecDeque<VersionId>,
    copies: VecDeque<VersionId>,
    generation: u32,
}

/// What the owner reckons with, of a link. Apart from [`Link`], because estimates read it a thousand times for each transfer.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Data of all that is wanted and not sent.
    backlog: f64,
    /// Time in which one unit of data is sent.
    slowness: f64,
}

impl Load {
    /// The time until that much more would be sent.
    fn time(self, size: f64) -> f64 {
        (self.backlog + size) * self.slowness
    }

    /// That much is sent, or is not wanted any more.
    fn take(&mut self, size: f64) {
        self.backlog = (self.backlog - size).max(0.0);
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    TaskEnds { on: ProcessorId, generation: u32 },
    TransferEnds { link: usize, generation: u32 },
    Changes(usize),
    ReschedulingPoint,
    Dies(usize),
    IsMissed(ProcessorId),
    IsBack(ProcessorId),
}

/// An event and its time; those of the same time come in the order in which they were made.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Timed {
    at: f64,
    number: u64,
    event: Event,
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> Ordering {
        (self.at.total_cmp(&other.at)).then(self.number.cmp(&other.number))
    }
}

struct Sim<'t> {
    trial: Trial<'t>,
    graph: &'t FlowGraph,
    world: &'t World,
    policy: Policy,
    now: f64,
    events: BinaryHeap<Reverse<Timed>>,
    scheduled: u64,
    handled: u64,
    check_every: u64,
    processors: Vec<Processor>,
    /// The link from `a` to `b` is that of number `a * processors + b`.
    links: Vec<Link>,
    /// By the same numbers.
    loads: Vec<Load>,
    states: Vec<State>,
    progress: Vec<Progress>,
    /// The processors that have a version, as bits.
    holders: Vec<u32>,
    /// The processors to which a version is under way, or was asked for from a holder that is dead and still believed in.
    under_way: Vec<u32>,
    /// Tasks without a processor whose inputs exist.
    pool: Vec<TaskId>,
    /// The processor of each task by the plan (GTP).
    planned: Vec<ProcessorId>,
    done: usize,
    /// Deaths and returns that are still to come.
    to_come: usize,
    outcome: Outcome,
}

impl<'t> Sim<'t> {
    fn new(trial: &Trial<'t>, check_every: u64) -> Sim<'t> {
        let Trial { graph, world, .. } = *trial;
        let processor = Processor {
            speed: 1.0,
            known_speed: 1.0,
            is_alive: true,
            is_believed: true,
            running: None,
            queue: Vec::new(),
            generation: 0,
        };
        let link = Link {
            speed: 1.0,
            current: None,
            wanted: VecDeque::new(),
            copies: VecDeque::new(),
            generation: 0,
        };
        let load = Load {
            backlog: 0.0,
            slowness: 1.0,
        };
        let mut dice = Dice::new(trial.seed);
        let progress = graph.tasks.iter().map(|task| Progress {
            inputs: vec![Input::Missing; task.inputs.len()],
            missing: task.inputs.len(),
            unmade: task.inputs.len(),
            priority: dice.fraction(),
            expected_end: 0.0,
            ran_on: 0,
            runs: 0,
            rewinds: 0,
            redo: 0.0,
        });
        let mut sim = Sim {
            trial: *trial,
            graph,
            world,
            policy: trial.policy,
            now: 0.0,
            events: BinaryHeap::new(),
            scheduled: 0,
            handled: 0,
            check_every,
            processors: vec![processor; world.processors],
            links: vec![link; world.processors * world.processors],
            loads: vec![load; world.processors * world.processors],
            states: vec![State::Waiting; graph.tasks.len()],
            progress: progress.collect(),
            holders: vec![0; graph.versions.len()],
            under_way: vec![0; graph.versions.len()],
            pool: Vec::new(),
            planned: vec![0; graph.tasks.len()],
            done: 0,
            to_come: 0,
            outcome: Outcome::default(),
        };
        for (index, change) in world.changes.iter().enumerate() {
            sim.schedule(change.at, Event::Changes(index));
        }
        for (index, death) in trial.deaths.iter().enumerate() {
            sim.schedule(death.at, Event::Dies(index));
            sim.to_come += 1;
        }
        sim.set_ranks();
        sim
    }

    fn schedule(&mut self, at: f64, event: Event) {
        let number = self.scheduled;
        self.scheduled += 1;
        self.events.push(Reverse(Timed { at, number, event }));
    }

    fn is_planned(&self) -> bool {
        self.policy.placing() == Placing::Plan
    }

    fn period(&self) -> f64 {
        Detection::PERIOD * self.trial.reference
    }

    // ---- loop

    fn run(mut self) -> Result<Outcome, Violation> {
        if self.is_planned() {
            self.make_plan();
            self.schedule(self.period(), Event::ReschedulingPoint);
        } else {
            self.fill_pool();
            self.give_out();
        }
        while self.done < self.graph.tasks.len() {
            let Some(Reverse(next)) = self.events.pop() else {
                return Err(self.stuck());
            };
            self.now = next.at;
            self.handle(next.event)?;
            self.handled += 1;
            if self.handled.is_multiple_of(self.check_every) {
                self.check()?;
            }
        }
        self.outcome.makespan = self.now;
        Ok(self.outcome)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::TaskEnds { on, generation } => {
                if self.processors[on].generation == generation {
                    self.task_ends(on)?;
                }
            }
            Event::TransferEnds { link, generation } => {
                if self.links[link].generation == generation {
                    self.transfer_ends(link)?;
                }
            }
            Event::Changes(index) => self.change(self.world.changes[index]),
            Event::ReschedulingPoint => self.rescheduling_point()?,
            Event::Dies(index) => self.die(self.trial.deaths[index]),
            Event::IsMissed(processor) => {
                // It may be back already: then its return has told of its death.
                if !self.processors[processor].is_alive && self.processors[processor].is_believed {
                    self.repair(processor)?;
                }
            }
            Event::IsBack(processor) => self.come_back(processor)?,
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        match change.resource {
            Resource::Processor(processor) => {
                self.settle_run(processor);
                self.processors[processor].speed = change.speed;
                self.time_run(processor);
            }
            Resource::Link { from, to } => {
                let link = self.link(from, to);
                self.settle_transfer(link);
                self.links[link].speed = change.speed;
                self.time_transfer(link);
            }
        }
    }

    fn rescheduling_point(&mut self) -> Result<(), Violation> {
        if self.trial.detection == Detection::AtPoints {
            let missed = |processor: &Processor| !processor.is_alive && processor.is_believed;
            while let Some(processor) = self.processors.iter().position(missed) {
                self.repair(processor)?;
            }
        }
        for processor in &mut self.processors {
            processor.known_speed = processor.speed;
        }
        for (load, link) in self.loads.iter_mut().zip(&self.links) {
            load.slowness = 1.0 / link.speed;
        }
        self.set_ranks();
        self.make_plan();
        // There is always a next rescheduling point, so that the events do not come to an end.
        if self.is_at_rest() || self.now > PATIENCE * self.trial.reference {
            return Err(self.stuck());
        }
        self.schedule(self.now + self.period(), Event::ReschedulingPoint);
        Ok(())
    }

    // ---- views

    fn link(&self, from: ProcessorId, to: ProcessorId) -> usize {
        from * self.world.processors + to
    }

    fn believed(&self) -> Vec<ProcessorId> {
        let all = 0..self.world.processors;
        all.filter(|&processor| self.processors[processor].is_believed)
            .collect()
    }

    /// The time that a task is expected to take on a processor.
    fn expected_time(&self, task: TaskId, on: ProcessorId) -> f64 {
        let cost = match self.policy.knows_costs() {
            true => self.world.cost(task, on),
            false => self.graph.mean_cost,
        };
        cost / self.processors[on].known_speed
    }

    /// The time that the running task of a processor is expected to take from now.
    fn expected_rest(&self, on: ProcessorId) -> f64 {
        // A task that takes longer than was expected does not end at this moment either.
        const LEAST_SHARE: f64 = 0.02;
        self.processors[on].running.map_or(0.0, |run| {
            let time = self.expected_time(run.task, on);
            (time - (self.now - run.began)).max(LEAST_SHARE * time)
        })
    }

    /// The time at which a processor is expected to have done all that it was given.
    fn free_at(&self, on: ProcessorId) -> f64 {
        let queue = self.processors[on].queue.iter();
        let queued: f64 = queue.map(|&task| self.expected_time(task, on)).sum();
        self.now + self.expected_rest(on) + queued
    }

    /// Ranks: the mean time of a task and of all on the longest way from it to the end, with sending. The higher, the sooner.
    fn set_ranks(&mut self) {
        if self.policy == Policy::PullRandom {
            return;
        }
        let live = self.believed();
        let mut speeds = 0.0;
        for &from in &live {
            for &to in live.iter().filter(|&&to| to != from) {
                speeds += 1.0 / self.loads[self.link(from, to)].slowness;
            }
        }
        let links = live.len() * live.len().saturating_sub(1);
        let slowness = if links > 0 {
            links as f64 / speeds
        } else {
            0.0
        };
        for task in (0..self.graph.tasks.len()).rev() {
            let times = live.iter().map(|&on| self.expected_time(task, on));
            let mean = times.sum::<f64>() / live.len().max(1) as f64;
            let mut behind: f64 = 0.0;
            for &version in &self.graph.tasks[task].outputs {
                let version = &self.graph.versions[version];
                for reader in &version.readers {
                    let rank = self.progress[reader.task].priority;
                    behind = behind.max(rank + version.size * slowness);
                }
            }
            self.progress[task].priority = mean + behind;
        }
    }

    /// Tasks in the order of their priority; those of the same in program order.
    fn sort_by_priority(&self, tasks: &mut [TaskId]) {
        tasks.sort_by(|&a, &b| {
            let (first, second) = (self.progress[a].priority, self.progress[b].priority);
            second.total_cmp(&first).then(a.cmp(&b))
        });
    }
}

/// The processors of a set.
fn members(mut set: u32) -> impl Iterator<Item = ProcessorId> {
    std::iter::from_fn(move || {
        let next = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (next < u32::BITS).then_some(next as ProcessorId)
    })
}

/// The set of one processor.
const fn only(processor: ProcessorId) -> u32 {
    1 << processor
}
