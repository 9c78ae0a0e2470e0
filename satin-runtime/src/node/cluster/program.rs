//! Imaginary programs: trees of jobs and graphs of tasks whose shape, durations and results follow from a seed.

use std::{sync::Arc, time::Duration};

use super::{
    bounds::BestLeaf,
    graphs::{FlowForm, Graph},
};
use crate::job::{Fingerprint, ValueName, ValueSize};

/// An invocation, small enough to travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// The number from which the result and the shape of the subtree follow.
    pub seed: u64,
    /// Levels below it, at most.
    pub height: u32,
    /// The cost of its way down so far, see [`Shape::Best`].
    pub cost: u32,
    /// The way down to it in a [`Shape::Best`]: one digit for each step, see [`Program::cost_of`]. In a [`Shape::Given`] the number of the task.
    pub way: u64,
    /// Of a task of a flow whose data differ from one execution to the next, by what; else zero. The task's result differs by as much.
    pub salt: u16,
}

/// Bytes of a [`Work`] as it travels.
const PACKED: usize = 24;

impl Work {
    /// The job as bytes, `size` of them at least.
    pub(super) fn pack(self, size: usize) -> Vec<u8> {
        debug_assert!(self.height < 1 << 16, "a tree is not that high");
        let mut packed = [0; PACKED];
        packed[..8].copy_from_slice(&self.seed.to_le_bytes());
        packed[8..12].copy_from_slice(&(self.height | u32::from(self.salt) << 16).to_le_bytes());
        packed[12..16].copy_from_slice(&self.cost.to_le_bytes());
        packed[16..].copy_from_slice(&self.way.to_le_bytes());
        padded(&packed, size)
    }

    /// Reads a job that was packed.
    pub(super) fn unpack(bytes: &[u8]) -> Work {
        let word = |from: usize| {
            let word = bytes[from..from + 4].try_into().expect("4 bytes");
            u32::from_le_bytes(word)
        };
        Work {
            seed: u64::from(word(0)) | u64::from(word(4)) << 32,
            height: word(8) & 0xffff,
            cost: word(12),
            way: u64::from(word(16)) | u64::from(word(20)) << 32,
            salt: (word(8) >> 16) as u16,
        }
    }

    /// The fingerprint, which tells this work from any other: of a task it covers the values of what it reads.
    #[must_use]
    pub fn fingerprint(self) -> Fingerprint {
        Fingerprint(mix(self.seed) ^ u64::from(self.salt))
    }
}

/// The first bytes of the names of imagined data.
const IMAGINED: [u8; 8] = *b"imagined";

/// The name of a part of what a task makes, which nobody has ever written.
pub(super) fn imagined(result: u64, number: u64, bytes: u64) -> ValueName {
    let mut name = [0; 32];
    name[..8].copy_from_slice(&IMAGINED);
    name[8..16].copy_from_slice(&result.to_le_bytes());
    name[16..24].copy_from_slice(&number.to_le_bytes());
    name[24..].copy_from_slice(&bytes.to_le_bytes());
    ValueName(name)
}

/// Is that the name of imagined data?
pub(super) fn is_imagined(name: ValueName) -> bool {
    name.0.starts_with(&IMAGINED)
}

/// Zeros of at least so many bytes are not written. Too small: calls of the system for what is quickly written. Too large: memory.
const LAZY: usize = 1 << 20;

/// The usual allocator asks the system for each block that is longer than 32 MiB, and the system clears memory when it is first looked at.
const MAPPED: usize = 33 << 20;

/// These bytes, with zeros behind them if they are fewer than `size`. Nobody looks at those, so that many megabytes can travel that are
/// counted and take no memory.
pub(super) fn padded(bytes: &[u8], size: usize) -> Vec<u8> {
    let size = size.max(bytes.len());
    let room = if size < LAZY { size } else { size.max(MAPPED) };
    let mut padded = vec![0; room];
    padded.truncate(size);
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

/// A task of a flow whose graph is told task by task.
#[derive(Clone, PartialEq, Debug)]
pub struct GivenTask {
    /// The tasks whose results it reads: all stand before it.
    pub reads: Vec<u32>,
    /// The time that it takes at each place, see [`Cluster::set_place`](super::Cluster::set_place).
    pub times: Vec<Duration>,
    /// Bytes of what it reads; [`Work`] takes 24 in any case.
    pub arguments: usize,
    /// Bytes of its result that come home in any case; 8 at least.
    pub result: usize,
    /// Bytes of the data that it makes beside.
    pub outputs: Vec<usize>,
    /// Which of these data it reads: the tasks that make them, which are among `reads`, and their places there.
    pub takes: Vec<(u32, u32)>,
}

/// The shape of a tree of jobs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// Every inner job has `width` children, `height` levels deep; the first `serial` of them one after another,
    /// the others at once.
    Knary {
        /// Children of each inner job.
        width: u32,
        /// Number of levels below the root.
        height: u32,
        /// Number of children that are waited for, each, before the others are spawned.
        serial: u32,
    },
    /// Unbalanced tree search: the number of children is geometrically distributed around `branching`, `height` levels
    /// deep at most. Subtrees differ by orders of magnitude, and their sizes are not known beforehand.
    Uts {
        /// Number of children on average.
        branching: f64,
        /// Number of levels below the root.
        height: u32,
    },
    /// A root with this number of leaves, spawned by one loop.
    Flat {
        /// Number of leaves.
        jobs: u32,
    },
    /// A random tree: up to `width` children in each of up to three phases, uneven durations, `height` levels deep at
    /// most.
    Random {
        /// Children in a phase, at most.
        width: u32,
        /// Number of levels below the root.
        height: u32,
        /// Share of inner jobs that are races, in percent: the first child that is done aborts the others.
        races: u32,
    },
    /// Branch and bound: the cheapest leaf is looked for, and many cost the same. Jobs that already cost more than the
    /// cheapest leaf known so far are cut off; so the jobs of two runs are not the same, and the result is.
    Best {
        /// Children of each inner job.
        width: u32,
        /// Number of levels below the root.
        height: u32,
    },
    /// Flows: inner jobs are flows, whose children, the tasks, wait for the results of those that they read, or spawn up to three children in
    /// each of up to two phases. Some end at once. Results depend on the order of what is read. The root is a flow three times of four, and
    /// always if there is only one level below it.
    Flow {
        /// The form of all flows; `None`: each has one of its own.
        form: Option<FlowForm>,
        /// Pieces of data of a flow that has the full height; half as many at each level below.
        width: u32,
        /// Steps of such a flow; half as many at each level below, two at least.
        steps: u32,
        /// Number of levels below the root.
        height: u32,
    },
    /// The root is a flow with these tasks, see [`Program::of_tasks`].
    Given,
}

/// What a job of a [`Shape::Flow`] does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowRole {
    Leaf,
    Spawns,
    Flow,
}

/// A tree of jobs and how long they take.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The shape of the tree.
    pub shape: Shape,
    /// Time that a leaf takes.
    pub leaf: Duration,
    /// How long each phase of an inner job takes before it spawns.
    pub inner: Duration,
    /// Bytes of arguments; a job needs 24 at least.
    pub size: usize,
    /// The seed of the program's randomness.
    pub seed: u64,
    /// True if the result of a phase goes into the children of the next, as through `&mut`.
    pub feeds: bool,
    /// A job that runs again may spawn the same children in another order; a flow may also have other data, so that its tasks have other
    /// results. The result of the job is the same.
    pub changing: bool,
    /// Number of leaves of a thousand that panic.
    pub panics: u64,
    /// True if leaves offer their cost as a bound. Leaves of a [`Shape::Best`] always do.
    pub bounded: bool,
    /// The job with this [`Work::seed`] ends the process of every node that runs it.
    pub poison: Option<u64>,
    /// The tasks of a [`Shape::Given`].
    pub given: Option<Arc<[GivenTask]>>,
    /// Of a hundred tasks of flows that are run elsewhere, so many may keep data there; zero: tasks of a [`Shape::Flow`] make no data beside
    /// their results, and those of a [`Shape::Given`] keep none. Otherwise these keep what the product would.
    pub keeps: u64,
}

impl Program {
    /// Leaves take `leaf`, inner jobs a microsecond.
    #[must_use]
    pub fn new(shape: Shape, leaf: Duration) -> Program {
        let inner = Duration::from_micros(1);
        Program {
            shape,
            leaf,
            inner: inner.min(leaf),
            size: PACKED,
            seed: 0,
            feeds: false,
            changing: false,
            panics: 0,
            bounded: false,
            poison: None,
            given: None,
            keeps: 0,
        }
    }

    /// A flow of these tasks, which are leaves.
    ///
    /// # Panics
    /// A task reads one that does not stand before it, or has no time.
    #[must_use]
    pub fn of_tasks(tasks: Vec<GivenTask>) -> Program {
        for (index, task) in (0..).zip(&tasks) {
            assert!(
                task.reads.iter().all(|read| *read < index) && !task.times.is_empty(),
                "task {index} reads what stands before it, and takes some time"
            );
            let is_read = |(maker, _): &(u32, u32)| task.reads.contains(maker);
            assert!(
                task.takes.iter().all(is_read),
                "task {index} takes data of tasks that it reads"
            );
        }
        Program {
            given: Some(tasks.into()),
            ..Program::new(Shape::Given, Duration::from_micros(1))
        }
    }

    /// The same program with other random numbers.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Program {
        Program { seed, ..self }
    }

    /// The work of the root.
    #[must_use]
    pub fn root(&self) -> Work {
        let height = match self.shape {
            Shape::Knary { height, .. }
            | Shape::Uts { height, .. }
            | Shape::Random { height, .. }
            | Shape::Best { height, .. }
            | Shape::Flow { height, .. } => height,
            Shape::Flat { .. } | Shape::Given => 1,
        };
        Work {
            seed: mix(self.seed),
            height,
            cost: 0,
            way: 0,
            salt: 0,
        }
    }

    /// Child number `index` of a job, one of a phase before which this had come out.
    #[must_use]
    pub fn child(&self, work: Work, index: u32, before: u64) -> Work {
        let fed = if self.feeds { mix(before) } else { 0 };
        let seed = mix(work.seed ^ mix(u64::from(index) + 1) ^ fed);
        let (more, way) = match self.shape {
            Shape::Best { width, .. } => {
                let way = work.way * u64::from(width) + u64::from(index);
                ((mix(seed ^ 0xc057) % 4) as u32, way)
            }
            _ => (0, 0),
        };
        Work {
            seed,
            height: work.height - 1,
            cost: work.cost + more,
            way,
            salt: 0,
        }
    }

    /// The graph of the flow that a job is, if it is one.
    pub(super) fn flow(&self, work: Work) -> Option<Graph> {
        if let Some(tasks) = &self.given {
            let reads = tasks.iter().map(|task| task.reads.clone());
            return (work.height > 0).then(|| Graph::of_reads(reads.collect()));
        }
        let Shape::Flow {
            form,
            width,
            steps,
            height,
        } = self.shape
        else {
            return None;
        };
        if self.flow_role(work) != FlowRole::Flow {
            return None;
        }
        let level = height - work.height;
        let half =
            |most: u32, least: u32| most.checked_shr(level).unwrap_or(0).max(least.min(most));
        let dice = mix(work.seed ^ 0xf04);
        let forms = <FlowForm as strum::VariantArray>::VARIANTS;
        let form = form.unwrap_or(forms[(dice % forms.len() as u64) as usize]);
        Some(Graph::of(form, half(width, 1), half(steps, 2), dice))
    }

    fn flow_role(&self, work: Work) -> FlowRole {
        let Shape::Flow { height, .. } = self.shape else {
            return FlowRole::Spawns;
        };
        let dice = mix(work.seed ^ 0xf10) % 8;
        match (work.height, dice) {
            (0, _) => FlowRole::Leaf,
            (1, _) if height == 1 => FlowRole::Flow,
            (level, 0..6) if level == height => FlowRole::Flow,
            (level, _) if level == height => FlowRole::Spawns,
            (_, 0..3) => FlowRole::Flow,
            (_, 3..5) => FlowRole::Spawns,
            _ => FlowRole::Leaf,
        }
    }

    /// Task number `natural` of a flow, which reads these results, without the salt that they may have.
    pub(super) fn task(
        &self,
        flow: Work,
        natural: u32,
        salt: u16,
        reads: impl Iterator<Item = u64>,
    ) -> Work {
        let own = self.child(flow, natural, 0);
        Work {
            seed: reads.fold(own.seed, |seed, read| mix(seed ^ read)),
            way: self.given.as_ref().map_or(own.way, |_| natural.into()),
            salt,
            ..own
        }
    }

    /// The task, if the job is one of a [`Shape::Given`].
    pub(super) fn given(&self, work: Work) -> Option<&GivenTask> {
        let tasks = self.given.as_ref().filter(|_| work.height == 0)?;
        tasks.get(work.way as usize)
    }

    /// The data that a task of a flow makes, beside that result.
    pub(super) fn parts(&self, work: Work, result: u64) -> Vec<ValueSize> {
        /// Bytes of a part: as small as arguments, borrowed, and in several pieces.
        const BYTES: [u64; 4] = [100, 100, 20_000, 5 << 19];
        let dice = mix(result ^ 0xda7a);
        let sizes: Vec<u64> = match self.given(work) {
            Some(task) => task.outputs.iter().map(|bytes| *bytes as u64).collect(),
            None if self.keeps == 0 => Vec::new(),
            None => (0..=dice % 2)
                .map(|number| BYTES[(mix(dice ^ number) % 4) as usize])
                .collect(),
        };
        let part = |(number, bytes): (u64, u64)| ValueSize {
            name: imagined(result, number, bytes),
            bytes,
        };
        (0..).zip(sizes).map(part).collect()
    }

    /// Is the job a task of a flow? `keeps` is what its parcel says.
    pub(super) fn is_task(&self, work: Work, keeps: bool) -> bool {
        keeps || self.given(work).is_some()
    }

    /// Which data a task reads, if that is told.
    pub(super) fn takes(&self, flow: Work, index: u32) -> Option<&[(u32, u32)]> {
        let tasks = self.given.as_ref().filter(|_| flow.height > 0)?;
        Some(&tasks[index as usize].takes)
    }

    /// Bytes of the job's arguments.
    pub(super) fn argument_bytes(&self, work: Work) -> usize {
        let task = self.given(work);
        task.map_or(self.size, |task| task.arguments).max(PACKED)
    }

    /// Bytes of the job's result.
    pub(super) fn result_bytes(&self, work: Work) -> usize {
        self.given(work).map_or(0, |task| task.result).max(8)
    }

    /// The time that a phase of the job takes at that place, if it takes `usual` where places are alike.
    pub(super) fn time_at(&self, place: usize, work: Work, usual: Duration) -> Duration {
        let time = self.given(work).and_then(|task| task.times.get(place));
        time.copied().unwrap_or(usual)
    }

    /// The result of a flow whose tasks have these results, in the usual order and without salt.
    pub(super) fn after_tasks(&self, flow: Work, results: impl Iterator<Item = u64>) -> u64 {
        results.fold(self.own(flow), |so_far, result| mix(so_far ^ result))
    }

    /// Adds the salt of a job to its result, or takes it away.
    pub(super) fn salted(work: Work, result: u64) -> u64 {
        match work.salt {
            0 => result,
            salt => result ^ mix(u64::from(salt)),
        }
    }

    /// How long the job computes before it spawns the children of that phase, and how many they are; `None` after the
    /// last phase.
    #[must_use]
    pub fn phase(&self, work: Work, phase: u32) -> Option<(Duration, u32)> {
        if work.height == 0 {
            return (phase == 0).then(|| (self.leaf_time(work), 0));
        }
        match self.shape {
            Shape::Knary { width, serial, .. } => match phase {
                p if p < serial => Some((self.inner, 1)),
                p if p == serial => Some((self.inner, width - serial)),
                _ => None,
            },
            Shape::Flat { jobs } => (phase == 0).then_some((self.inner, jobs)),
            Shape::Best { width, .. } => (phase == 0).then_some((self.inner, width)),
            Shape::Uts { branching, .. } => (phase == 0).then(|| {
                // Geometric with that mean.
                let chance = branching / (1.0 + branching);
                let children = (1.0 - unit(work.seed)).ln() / chance.ln();
                let children = children.floor().min(100.0) as u32;
                let time = if children == 0 { self.leaf } else { self.inner };
                (time, children)
            }),
            Shape::Random { width, races, .. } => {
                let dice = mix(work.seed ^ 0x5eed);
                let phases = if self.is_race(work, races) {
                    1
                } else {
                    1 + dice % 3
                };
                (u64::from(phase) < phases).then(|| {
                    let children = mix(dice ^ u64::from(phase)) % u64::from(width + 1);
                    (self.inner, children as u32)
                })
            }
            Shape::Given => {
                let tasks = self.given.as_ref().filter(|_| phase == 0)?;
                Some((self.inner, tasks.len() as u32))
            }
            Shape::Flow { .. } => {
                let dice = mix(work.seed ^ 0x5eed);
                match self.flow_role(work) {
                    FlowRole::Leaf => (phase == 0).then(|| (self.leaf_time(work), 0)),
                    FlowRole::Flow => {
                        let graph = self.flow(work).filter(|_| phase == 0)?;
                        Some((self.inner, graph.len()))
                    }
                    FlowRole::Spawns => (u64::from(phase) < 1 + dice % 2).then(|| {
                        let children = 1 + mix(dice ^ u64::from(phase)) % 3;
                        (self.inner, children as u32)
                    }),
                }
            }
        }
    }

    /// Does this leaf panic?
    pub(super) fn panics_at(&self, work: Work) -> bool {
        self.panics > 0 && work.height == 0 && mix(work.seed ^ 0xbad) % 1000 < self.panics
    }

    /// Does any leaf of the whole tree panic?
    #[must_use]
    pub fn has_panic(&self) -> bool {
        if let Shape::Flow { .. } = self.shape {
            // What a task is follows from the results that it reads.
            let mut has_panic = false;
            self.each_below(self.root(), &mut |work, _| {
                has_panic |= self.panics_at(work);
            });
            return has_panic;
        }
        self.panic_below(self.root())
    }

    fn panic_below(&self, work: Work) -> bool {
        if self.panics_at(work) {
            return true;
        }
        let (mut phase, mut index) = (0, 0);
        while let Some((_, children)) = self.phase(work, phase) {
            for _ in 0..children {
                if self.panic_below(self.child(work, index, 0)) {
                    return true;
                }
                index += 1;
            }
            phase += 1;
        }
        false
    }

    fn leaf_time(&self, work: Work) -> Duration {
        if let Some(task) = self.given(work) {
            return task.times[0];
        }
        match self.shape {
            Shape::Random { .. } | Shape::Best { .. } | Shape::Flow { .. } => {
                self.leaf.mul_f64(2.0 * unit(mix(work.seed ^ 0x1eaf)))
            }
            _ => self.leaf,
        }
    }

    /// The part of a result so far that the children of that phase must know.
    pub(super) fn before(&self, result: u64, phase: u32) -> u64 {
        if phase == 0 { 0 } else { result }
    }

    /// Does the first child that is done abort the others?
    #[must_use]
    pub fn races(&self, work: Work) -> bool {
        matches!(self.shape, Shape::Random { races, .. } if self.is_race(work, races))
    }

    fn is_race(&self, work: Work, races: u32) -> bool {
        work.height > 0 && mix(work.seed ^ 0x4ace) % 100 < u64::from(races)
    }

    /// A job's result before any child's has been added.
    #[must_use]
    pub fn own(&self, work: Work) -> u64 {
        match self.shape {
            Shape::Best { .. } if work.height > 0 => Program::NOTHING,
            Shape::Best { .. } => u64::from(work.cost),
            _ => mix(work.seed ^ 0x0e5),
        }
    }

    /// The result of a job that was cut off.
    pub const NOTHING: u64 = u64::MAX;

    /// The bound that a leaf offers.
    #[must_use]
    pub fn offers(&self, work: Work) -> Option<BestLeaf> {
        let witness = match self.shape {
            _ if work.height > 0 => return None,
            Shape::Best { .. } => work.way,
            _ if self.bounded => work.seed,
            _ => return None,
        };
        let cost = self.cost_of(witness)?;
        Some(BestLeaf { cost, witness })
    }

    /// The cost of the leaf that a witness names: in a [`Shape::Best`] the way down to it, elsewhere its [`Work::seed`].
    /// `None` if no leaf has that name.
    #[must_use]
    pub fn cost_of(&self, witness: u64) -> Option<u64> {
        let Shape::Best { width, height } = self.shape else {
            return Some(mix(witness ^ 0xb0d) % 1000);
        };
        let width = u64::from(width);
        let steps = (0..height).rev().map(|place| witness / width.pow(place));
        let leaf = steps.fold(self.root(), |work, way| {
            self.child(work, (way % width) as u32, 0)
        });
        (leaf.way == witness).then_some(u64::from(leaf.cost))
    }

    /// Is a job cut off if that is known already?
    #[must_use]
    pub fn prunes(&self, work: Work, best: u64) -> bool {
        matches!(self.shape, Shape::Best { .. }) && u64::from(work.cost) > best
    }

    /// A job's result once that of child number `index` has been added. The order does not matter.
    #[must_use]
    pub fn add(&self, so_far: u64, index: u32, result: u64) -> u64 {
        match self.shape {
            Shape::Best { .. } => so_far.min(result),
            _ => so_far.wrapping_add(mix(result ^ (u64::from(index) << 32))),
        }
    }

    /// Result, number of jobs and time of the whole tree, on one worker. Races count as if nothing were aborted.
    #[must_use]
    pub fn sequential(&self) -> Outcome {
        self.below(self.root())
    }

    pub(super) fn below(&self, work: Work) -> Outcome {
        self.each_below(work, &mut |_, _| ())
    }

    /// The outcome of a job; `see` gets that of each job at and below it.
    pub(super) fn each_below(&self, work: Work, see: &mut impl FnMut(Work, &Outcome)) -> Outcome {
        let mut all = Outcome {
            result: self.own(work),
            jobs: 1,
            leaves: 0,
            time: Duration::ZERO,
            bound: self.offers(work).map(|found| found.cost),
        };
        if let Some(graph) = self.flow(work) {
            self.each_task(work, &graph, &mut all, see);
            see(work, &all);
            return all;
        }
        let race = self.races(work);
        let (mut phase, mut index) = (0, 0);
        while let Some((time, children)) = self.phase(work, phase) {
            all.time += time;
            let before = self.before(all.result, phase);
            for _ in 0..children {
                let child = self.each_below(self.child(work, index, before), see);
                if !race {
                    all.result = self.add(all.result, index, child.result);
                }
                all.include(&child);
                index += 1;
            }
            phase += 1;
        }
        all.leaves += u64::from(index == 0);
        all.result = Program::salted(work, all.result);
        see(work, &all);
        all
    }

    /// Adds the tasks of a flow to its outcome: one after another, as the program text says.
    fn each_task(
        &self,
        work: Work,
        graph: &Graph,
        all: &mut Outcome,
        see: &mut impl FnMut(Work, &Outcome),
    ) {
        all.time += self.inner;
        let mut results: Vec<u64> = Vec::new();
        for index in 0..graph.len() {
            let reads = graph.inputs(index).iter();
            let reads = reads.map(|read| results[*read as usize]);
            let child = self.each_below(self.task(work, index, 0, reads), see);
            all.include(&child);
            results.push(child.result);
        }
        all.result = self.after_tasks(work, results.into_iter());
        all.result = Program::salted(work, all.result);
    }
}

/// The outcome of a program that runs without faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The result of the root.
    pub result: u64,
    /// Number of jobs.
    pub jobs: u64,
    /// Number of jobs without children.
    pub leaves: u64,
    /// The sum of their durations.
    pub time: Duration,
    /// The best that its leaves offer. In a race, which of them run is chance.
    pub bound: Option<u64>,
}

impl Outcome {
    /// Adds what a child does.
    fn include(&mut self, child: &Outcome) {
        self.jobs += child.jobs;
        self.leaves += child.leaves;
        self.time += child.time;
        self.bound = self.bound.into_iter().chain(child.bound).min();
    }
}

/// Scatters the bits of a number (splitmix64).
#[must_use]
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn unit(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_a_search_is_its_result_and_a_witness_is_checked() {
        let shape = Shape::Best {
            width: 3,
            height: 4,
        };
        for seed in 0..20 {
            let program = Program::new(shape, Duration::from_millis(1)).seeded(seed);
            let outcome = program.sequential();
            assert_eq!(outcome.bound, Some(outcome.result));
            let costs: Vec<u64> = (0..81).filter_map(|way| program.cost_of(way)).collect();
            assert_eq!(costs.len(), 81);
            assert_eq!(costs.iter().min(), outcome.bound.as_ref());
            assert_eq!(program.cost_of(81), None, "no leaf has that name");
        }
    }

    fn flow(seed: u64) -> Program {
        let shape = Shape::Flow {
            form: None,
            width: 3,
            steps: 3,
            height: 2,
        };
        Program::new(shape, Duration::from_millis(1)).seeded(seed)
    }

    #[test]
    fn the_result_of_a_flow_depends_on_the_order_of_what_is_read() {
        let program = flow(1);
        let task = |reads: &[u64]| program.task(program.root(), 3, 0, reads.iter().copied());
        assert_ne!(task(&[1, 2]), task(&[2, 1]));
        assert_ne!(task(&[1, 2]).fingerprint(), task(&[1, 3]).fingerprint());
        let result = |results: [u64; 2]| program.after_tasks(program.root(), results.into_iter());
        assert_ne!(result([1, 2]), result([2, 1]));
    }

    #[test]
    fn a_task_with_other_data_is_another_job_with_another_result_for_the_same_flow() {
        let program = flow(1);
        let [usual, other] =
            [0, 7].map(|salt| program.task(program.root(), 0, salt, [].into_iter()));
        assert_ne!(usual.fingerprint(), other.fingerprint());
        let [right, salted] = [usual, other].map(|work| program.below(work).result);
        assert_ne!(right, salted);
        assert_eq!(right, Program::salted(other, salted));
        assert_eq!(Work::unpack(&other.pack(24)), other, "it travels");
    }

    #[test]
    fn flows_have_inner_flows_trees_and_leaves() {
        let (mut flows, mut trees, mut leaves) = (0, 0, 0);
        for seed in 0..50 {
            let program = flow(seed);
            program.each_below(
                program.root(),
                &mut |work, _| match program.flow_role(work) {
                    FlowRole::Flow if work.height == 1 => flows += 1,
                    FlowRole::Spawns if work.height == 1 => trees += 1,
                    FlowRole::Leaf if work.height == 1 => leaves += 1,
                    _ => {}
                },
            );
        }
        assert!(
            flows > 20 && trees > 20 && leaves > 20,
            "{flows} {trees} {leaves}"
        );
    }

    #[test]
    fn knary_has_the_leaves_it_should() {
        let shape = Shape::Knary {
            width: 4,
            height: 7,
            serial: 0,
        };
        let outcome = Program::new(shape, Duration::from_millis(10)).sequential();
        assert_eq!(outcome.leaves, 16_384);
        assert_eq!(outcome.time.as_millis(), 163_845);
    }
}
