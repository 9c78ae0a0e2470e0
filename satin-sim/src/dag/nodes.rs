//! One run in the shipped code: the runtime's nodes, which steal, judge, find deaths and repair, in its harness
//! ([`satin_runtime::node::cluster`]) with imaginary workers. The graph is a flow on one of the nodes, and its tasks are jobs.
//!
//! A processor is a node with one worker, all at one site. The node of the flow works too, and does not die. What a task reads goes
//! with it, what it makes comes home, in as many bytes as the versions have. The model's time is stretched so that its reference
//! time is [`REFERENCE`]; all numbers of the protocol are those of the product.

use std::time::Duration;

use satin_runtime::node::{
    Judgement, Peer, ProtocolConfig,
    cluster::{Cluster, GivenTask, Program},
};

use super::{
    graph::FlowGraph,
    policy::Policy,
    sim::{Outcome, Trial, Violation},
    world::{ProcessorId, Resource},
};

/// The length of the reference time: so the nodes, which need about a second, find a death after about 1 % of it, as the model's
/// policies do.
pub const REFERENCE: Duration = Duration::from_secs(100);

/// The rate of each link at full speed, in bytes a second: 100 Mbit/s.
pub const RATE: u64 = 12_500_000;

const SITE: &str = "here";

/// The bytes that a node has for data that were borrowed, or that nothing reads any more. The store of the product has 256 MiB, which is
/// less than these graphs make: a death would begin them anew, see README.md.
const ROOM: u64 = 4 << 30;

/// Of a hundred tasks that run elsewhere, so many may keep there what they make, if it is large.
const KEEPS: u64 = 100;

/// A run that takes so many times the time that one processor would need, at its slowest and with all data moving, is stuck.
const PATIENCE: f64 = 3.0;

/// Runs a graph with the flow on the node of that processor.
///
/// # Errors
/// The result is not that of the program text, a task began too early, or the run is stuck.
///
/// # Panics
/// The policy is a model, or the processor of the flow dies.
pub fn run(trial: &Trial<'_>, home: ProcessorId) -> Result<Outcome, Violation> {
    GraphRun::new(trial, home).run()
}

/// Something that happens to a processor or a link.
#[derive(Clone, Copy, Debug)]
enum Incident {
    Speed(Resource, f64),
    Death(ProcessorId),
    Return(ProcessorId),
}

struct GraphRun<'t> {
    trial: &'t Trial<'t>,
    cluster: Cluster,
    config: ProtocolConfig,
    /// Seconds in one unit of the model's time.
    scale: f64,
    program: u32,
    /// The node of each processor, if it runs.
    nodes: Vec<Option<u32>>,
    speeds: Vec<f64>,
    /// The speed of the link from one processor to another, by the numbers of the model.
    links: Vec<f64>,
    /// The dead of whom the node of the flow has not heard, with the times of their deaths.
    missed: Vec<(Peer, Duration)>,
    outcome: Outcome,
}

/// The node of the flow.
const FLOW: u32 = 0;

impl<'t> GraphRun<'t> {
    fn new(trial: &'t Trial<'t>, home: ProcessorId) -> GraphRun<'t> {
        assert!(
            trial.deaths.iter().all(|death| death.processor != home),
            "the flow's node does not die"
        );
        let judgement = match trial.policy {
            Policy::Satin => Judgement::Learnt,
            Policy::SatinAlways => Judgement::Always,
            model => panic!("{} is a model", model.name()),
        };
        let config = ProtocolConfig {
            judgement,
            ..ProtocolConfig::default()
        };
        let processors = trial.world.processors;
        let scale = REFERENCE.as_secs_f64() / trial.reference;
        let mut cluster = Cluster::new(trial.seed);
        cluster.wire.near.rate = Some(RATE);
        cluster.form(&config, &[(SITE, processors as u32)], 1);
        let mut nodes = vec![None; processors];
        let others = (0..processors).filter(|processor| *processor != home);
        for (node, processor) in (0..).zip([home].into_iter().chain(others)) {
            cluster.set_place(node, processor);
            cluster.set_room(node, ROOM);
            nodes[processor] = Some(node);
        }
        let mut program = Program::of_tasks(tasks(trial, scale));
        program.keeps = KEEPS;
        GraphRun {
            trial,
            program: cluster.program(program),
            cluster,
            config,
            scale,
            nodes,
            speeds: vec![1.0; processors],
            links: vec![1.0; processors * processors],
            missed: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        let mut incidents = self.incidents().into_iter().peekable();
        let limit = self.limit();
        self.cluster.set_main(FLOW, &[self.program], 0);
        while self.cluster.endings().is_empty() {
            let next = self.cluster.next_at();
            if let Some((at, incident)) =
                incidents.next_if(|(at, _)| next.is_none_or(|next| *at <= next))
            {
                self.cluster.run_for(at.saturating_sub(self.cluster.now()));
                self.happen(incident);
                continue;
            }
            if next.is_none_or(|next| next > limit) {
                return Err(self.violation(format!(
                    "stuck: {} jobs have no result",
                    self.cluster.unsettled()
                )));
            }
            self.cluster.step();
            self.look_for_news();
        }
        self.end()
    }

    /// What happens, in the order of time.
    fn incidents(&self) -> Vec<(Duration, Incident)> {
        let at = |at: f64| Duration::from_secs_f64(at * self.scale);
        let changes = self.trial.world.changes.iter();
        let changes = changes.map(|change| {
            (
                at(change.at),
                Incident::Speed(change.resource, change.speed),
            )
        });
        let deaths = self.trial.deaths.iter();
        let deaths = deaths.flat_map(|death| {
            let back = death
                .back
                .map(|back| (at(back), Incident::Return(death.processor)));
            [(at(death.at), Incident::Death(death.processor))]
                .into_iter()
                .chain(back)
        });
        let mut incidents: Vec<(Duration, Incident)> = changes.chain(deaths).collect();
        incidents.sort_by_key(|(at, _)| *at);
        incidents
    }

    fn limit(&self) -> Duration {
        let Trial { graph, world, .. } = *self.trial;
        let speeds = world.changes.iter().map(|change| change.speed);
        let least = speeds.fold(1.0, f64::min);
        let alone: f64 = (0..graph.tasks.len())
            .map(|task| {
                let times = (0..world.processors).map(|on| world.cost(task, on));
                times.fold(0.0, f64::max) + size_in(graph, task) + size_out(graph, task)
            })
            .sum();
        let last = self.trial.deaths.iter().map(|death| death.at);
        let last = last.fold(0.0, f64::max);
        REFERENCE + Duration::from_secs_f64((last + PATIENCE * alone / least) * self.scale)
    }

    fn happen(&mut self, incident: Incident) {
        match incident {
            Incident::Speed(Resource::Processor(processor), speed) => {
                self.speeds[processor] = speed;
                if let Some(node) = self.nodes[processor] {
                    self.cluster.set_slowness(node, 1.0 / speed);
                }
            }
            Incident::Speed(Resource::Link { from, to }, speed) => {
                let link = self.link(from, to);
                self.links[link] = speed;
                if let (Some(from), Some(to)) = (self.nodes[from], self.nodes[to]) {
                    self.cluster.set_link_speed(from, to, speed);
                }
            }
            Incident::Death(processor) => {
                let node = self.nodes[processor].take();
                let node = node.expect("who dies has lived");
                let peer = self.cluster.peer(node);
                self.cluster.crash(node);
                self.missed.push((peer, self.cluster.now()));
            }
            Incident::Return(processor) => self.come_back(processor),
        }
    }

    fn link(&self, from: ProcessorId, to: ProcessorId) -> usize {
        from * self.trial.world.processors + to
    }

    /// A processor is there again: another node joins.
    fn come_back(&mut self, processor: ProcessorId) {
        let node = self.cluster.join(&self.config, SITE, 1, FLOW);
        self.nodes[processor] = Some(node);
        self.cluster.set_place(node, processor);
        self.cluster.set_room(node, ROOM);
        self.cluster
            .set_slowness(node, 1.0 / self.speeds[processor]);
        for other in 0..self.nodes.len() {
            let Some(other_node) = self.nodes[other].filter(|_| other != processor) else {
                continue;
            };
            let there = self.links[self.link(processor, other)];
            let back = self.links[self.link(other, processor)];
            self.cluster.set_link_speed(node, other_node, there);
            self.cluster.set_link_speed(other_node, node, back);
        }
    }

    /// Has the node of the flow heard of a death?
    fn look_for_news(&mut self) {
        let view = self.cluster.node(FLOW).view();
        let is_known = |(peer, _): &mut (Peer, Duration)| !view.is_alive(*peer);
        let known = self.missed.extract_if(.., is_known);
        let now = self.cluster.now();
        let longest = known.map(|(_, since)| (now - since).as_secs_f64() / self.scale);
        self.outcome.heard_after = longest.fold(self.outcome.heard_after, f64::max);
    }

    fn end(mut self) -> Result<Outcome, Violation> {
        let ending = &self.cluster.endings()[0];
        let right = self.cluster.outcome(self.program).result;
        if ending.panicked || ending.results != [right] {
            return Err(self.violation(format!(
                "the flow's result is {:x?}, and not {right:x}",
                ending.results
            )));
        }
        let seen = self.cluster.flows_seen(FLOW);
        let wrong = [&seen.too_early, &seen.missed, &seen.wrong];
        if let Some(story) = wrong.into_iter().flatten().next() {
            return Err(self.violation(story.clone()));
        }
        let begun = |node| self.cluster.effort(node).started as usize;
        let elsewhere: usize = (1..self.cluster.nodes()).map(begun).sum();
        let tasks = self.trial.graph.tasks.len();
        // The flow itself has begun there too.
        self.outcome.rewound = (begun(FLOW) - 1 + elsewhere).saturating_sub(tasks);
        self.outcome.elsewhere = elsewhere;
        let bytes = self.cluster.traffic.bytes.all();
        self.outcome.sent = bytes as f64 / RATE as f64 / self.scale;
        self.outcome.makespan = self.cluster.now().as_secs_f64() / self.scale;
        Ok(self.outcome)
    }

    fn violation(&self, sentence: String) -> Violation {
        Violation {
            policy: self.trial.policy.name(),
            at: self.cluster.now().as_secs_f64() / self.scale,
            sentence,
        }
    }
}

/// The time of sending what a task reads.
fn size_in(graph: &FlowGraph, task: usize) -> f64 {
    let inputs = graph.tasks[task].inputs.iter();
    inputs.map(|version| graph.versions[*version].size).sum()
}

/// The time of sending what a task makes.
fn size_out(graph: &FlowGraph, task: usize) -> f64 {
    let outputs = graph.tasks[task].outputs.iter();
    outputs.map(|version| graph.versions[*version].size).sum()
}

/// The tasks as the harness is told them.
fn tasks(trial: &Trial<'_>, scale: f64) -> Vec<GivenTask> {
    let Trial { graph, world, .. } = *trial;
    let bytes = |size: f64| (size * scale * RATE as f64) as usize;
    // Which of its writer's data each version is.
    let mut places = vec![0; graph.versions.len()];
    for task in &graph.tasks {
        for (place, version) in (0..).zip(&task.outputs) {
            places[*version] = place;
        }
    }
    let task = |task: usize| GivenTask {
        reads: reads(graph, task),
        times: (0..world.processors)
            .map(|on| Duration::from_secs_f64(world.cost(task, on) * scale))
            .collect(),
        arguments: 0,
        result: 0,
        outputs: (graph.tasks[task].outputs.iter())
            .map(|version| bytes(graph.versions[*version].size))
            .collect(),
        takes: (graph.tasks[task].inputs.iter())
            .map(|version| (graph.versions[*version].writer as u32, places[*version]))
            .collect(),
    };
    (0..graph.tasks.len()).map(task).collect()
}

/// The tasks whose versions a task reads.
fn reads(graph: &FlowGraph, task: usize) -> Vec<u32> {
    let inputs = graph.tasks[task].inputs.iter();
    inputs
        .map(|version| graph.versions[*version].writer as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::{
        graph::{Data, Task, TaskGraph},
        policy::Detection,
        sim::Death,
        world::{Change, World},
    };
    use crate::faults::Dice;

    /// Tasks of those costs, and what each comes after.
    fn graph(tasks: &[(f64, &[usize])]) -> TaskGraph {
        let task = |(cost, after): &(f64, &[usize])| Task {
            cost: *cost,
            after: after.to_vec(),
        };
        TaskGraph {
            name: "told".into(),
            tasks: tasks.iter().map(task).collect(),
        }
    }

    struct Story {
        flow: FlowGraph,
        world: World,
        deaths: Vec<Death>,
    }

    impl Story {
        fn new(graph: &TaskGraph, data: f64, processors: usize) -> Story {
            let flow = FlowGraph::new(graph, Data::OneOutput(data), &mut Dice::new(1));
            Story {
                world: World::uniform(&flow, processors),
                flow,
                deaths: Vec::new(),
            }
        }

        fn changes(mut self, at: f64, resource: Resource, speed: f64) -> Story {
            self.world.changes.push(Change {
                at,
                resource,
                speed,
            });
            self
        }

        fn dies(mut self, processor: ProcessorId, at: f64, back: Option<f64>) -> Story {
            self.deaths.push(Death {
                processor,
                at,
                back,
            });
            self
        }

        /// With the flow at processor 0.
        fn run(&self, policy: Policy) -> Outcome {
            self.run_at(0, policy)
        }

        /// A unit of time is a second.
        fn run_at(&self, home: ProcessorId, policy: Policy) -> Outcome {
            let trial = Trial {
                graph: &self.flow,
                world: &self.world,
                policy,
                detection: Detection::Nodes,
                reference: REFERENCE.as_secs_f64(),
                deaths: &self.deaths,
                seed: 1,
            };
            run(&trial, home).expect("the result is right")
        }
    }

    fn is_about(outcome: Outcome, expected: f64) {
        let off = outcome.makespan - expected;
        assert!((0.0..0.1).contains(&off), "{outcome:?} is not {expected}");
    }

    const TWO: [(f64, &[usize]); 2] = [(10.0, &[]), (10.0, &[])];

    #[test]
    fn processors_work_side_by_side_each_at_its_speed() {
        let two = graph(&TWO);
        is_about(Story::new(&two, 0.0, 1).run(Policy::Satin), 20.0);
        let outcome = Story::new(&two, 0.0, 2).run(Policy::Satin);
        is_about(outcome, 10.0);
        assert_eq!((outcome.elsewhere, outcome.rewound), (1, 0));
        for processor in [0, 1] {
            let processor = Resource::Processor(processor);
            let slows = Story::new(&two, 0.0, 2).changes(5.0, processor, 0.5);
            is_about(slows.run(Policy::Satin), 15.0);
        }
    }

    #[test]
    fn each_processor_takes_its_own_time_for_a_task() {
        // Two tasks, each 7 on the first processor and 3 on the second, which does nothing else.
        let chain = graph(&[(1.0, &[]), (1.0, &[0])]);
        let story = Story {
            world: World::of_costs(2, vec![7.0, 3.0, 7.0, 3.0]),
            ..Story::new(&chain, 0.0, 2)
        };
        for (home, expected) in [(0, 14.0), (1, 6.0)] {
            is_about(story.run_at(home, Policy::Satin), expected);
        }
        let two = Story {
            flow: FlowGraph::new(&graph(&TWO), Data::OneOutput(0.0), &mut Dice::new(1)),
            ..story
        };
        is_about(two.run_at(0, Policy::Satin), 7.0);
        is_about(two.run_at(1, Policy::Satin), 7.0);
    }

    #[test]
    fn a_task_of_a_dead_node_is_done_at_home_when_the_death_is_known() {
        let three = graph(&[(10.0, &[]), (10.0, &[]), (10.0, &[])]);
        let outcome = Story::new(&three, 0.0, 3)
            .dies(2, 5.0, None)
            .run(Policy::Satin);
        is_about(outcome, 20.0);
        assert_eq!(outcome.rewound, 1);
        assert!((0.5..2.0).contains(&outcome.heard_after), "{outcome:?}");
    }

    #[test]
    fn who_comes_back_works_again_as_slowly_as_before() {
        let many = [(10.0, &[][..]); 12];
        let story = || Story::new(&graph(&many), 0.0, 2);
        let back = |story: Story| story.dies(1, 5.0, Some(12.0)).run(Policy::Satin);
        let without = story().dies(1, 5.0, None).run(Policy::Satin);
        is_about(without, 120.0);
        let fast = back(story());
        assert!(fast.makespan < 75.0 && fast.elsewhere > 4, "{fast:?}");
        let slow = back(story().changes(1.0, Resource::Processor(1), 0.5));
        assert!(slow.makespan > fast.makespan + 5.0, "{slow:?} {fast:?}");
        let unsuited = back(Story {
            world: World::of_costs(2, [10.0, 20.0].repeat(12)),
            ..story()
        });
        let off = unsuited.makespan - slow.makespan;
        assert!(off.abs() < 5.0, "{unsuited:?} {slow:?}");
    }

    #[test]
    fn data_takes_its_way_there_at_the_rate_of_its_link() {
        // Both read what the first makes, which takes 3 s in the mean to send.
        let fork = graph(&[(10.0, &[]), (10.0, &[0]), (10.0, &[0])]);
        let story = || Story::new(&fork, 0.3, 2);
        // The last piece, which is small, does not wait for the others.
        let size = story().flow.versions[0].size - 0.01;
        let outcome = story().run(Policy::SatinAlways);
        is_about(outcome, 20.0 + size);
        assert!((size..size + 0.1).contains(&outcome.sent), "{outcome:?}");
        let link = Resource::Link { from: 0, to: 1 };
        let slow = story().changes(1.0, link, 0.5).run(Policy::SatinAlways);
        is_about(slow, (20.0 + 2.0 * size).min(30.0));
        let other_way = Resource::Link { from: 1, to: 0 };
        let slow = story().changes(1.0, other_way, 0.5);
        is_about(slow.run(Policy::SatinAlways), 20.0 + size);
    }

    #[test]
    fn who_is_back_has_the_links_of_before() {
        let mut tasks = vec![(1.0, &[][..])];
        tasks.extend([(10.0, &[0][..]); 8]);
        let graph = graph(&tasks);
        let run = |speed: f64| {
            let link = Resource::Link { from: 0, to: 1 };
            let story = Story::new(&graph, 0.2, 2).changes(0.5, link, speed);
            story.dies(1, 0.8, Some(2.0)).run(Policy::SatinAlways)
        };
        let (fast, slow) = (run(1.0), run(0.2));
        assert!(fast.elsewhere > 2, "{fast:?}");
        assert!(slow.makespan > fast.makespan + 1.0, "{slow:?} {fast:?}");
    }

    #[test]
    #[should_panic(expected = "the flow's node does not die")]
    fn the_flow_lives_on_a_node_that_does_not_die() {
        Story::new(&graph(&TWO), 0.0, 2)
            .dies(0, 1.0, None)
            .run(Policy::Satin);
    }

    #[test]
    #[should_panic(expected = "flow is a model")]
    fn models_are_run_elsewhere() {
        Story::new(&graph(&TWO), 0.0, 2).run(Policy::Flow);
    }
}
