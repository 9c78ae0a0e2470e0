//! Small graphs with known ends, and all policies with all checks after every event.

use strum::VariantArray;

use super::*;
use crate::dag::graph::{Data, FlowTask, Reader, TaskGraph, Version, random, tiled};

/// A task of a graph made by hand: its cost, and the tasks whose output it reads. Outputs have the same size.
fn by_hand(tasks: &[(f64, &[TaskId])], size: f64) -> FlowGraph {
    let mut graph = FlowGraph {
        tasks: Vec::new(),
        versions: Vec::new(),
        mean_cost: 1.0,
    };
    for (task, &(cost, after)) in tasks.iter().enumerate() {
        graph.versions.push(Version {
            writer: task,
            readers: Vec::new(),
            size,
        });
        for (input, &version) in after.iter().enumerate() {
            let reader = Reader { task, input };
            graph.versions[version].readers.push(reader);
        }
        graph.tasks.push(FlowTask {
            cost,
            inputs: after.to_vec(),
            outputs: vec![task],
        });
    }
    graph
}

struct Story {
    graph: FlowGraph,
    world: World,
    detection: Detection,
    deaths: Vec<Death>,
}

impl Story {
    /// The graph on processors that are all the same.
    fn new(graph: FlowGraph, processors: usize) -> Story {
        let world = World::uniform(&graph, processors);
        Story {
            graph,
            world,
            detection: Detection::Soon,
            deaths: Vec::new(),
        }
    }

    fn dies(mut self, processor: ProcessorId, at: f64) -> Story {
        let back = None;
        self.deaths.push(Death {
            processor,
            at,
            back,
        });
        self
    }

    /// Runs with a reference time of 100: a death is known after 1, and rescheduling points are 10 apart.
    fn run(&self, policy: Policy) -> Outcome {
        let trial = Trial {
            graph: &self.graph,
            world: &self.world,
            policy,
            detection: self.detection,
            reference: 100.0,
            deaths: &self.deaths,
            seed: 1,
        };
        Sim::new(&trial, 1).run().unwrap()
    }
}

fn models() -> impl Iterator<Item = Policy> {
    let all = Policy::VARIANTS.iter().copied();
    all.filter(|policy| !policy.is_shipped())
}

/// Policies that place by what is there.
const PLACING: [Policy; 7] = [
    Policy::Gtp,
    Policy::GtpC,
    Policy::GtpR,
    Policy::GtpCR,
    Policy::Flow,
    Policy::FlowCopies,
    Policy::FlowMeans,
];

#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
}

#[test]
fn a_chain_stays_on_one_processor() {
    let chain = by_hand(&[(2.0, &[]), (3.0, &[0]), (1.0, &[1])], 0.5);
    let story = Story::new(chain, 3);
    for policy in PLACING {
        let outcome = story.run(policy);
        assert_near(outcome.makespan, 6.0);
        assert_eq!(outcome.sent, 0.0);
    }
}

#[test]
fn a_diamond_uses_two_processors() {
    // 0 and 1 on one, 2 on the other from 1.5 to 3.5; 3 there, where one input is at 3.5 and the other too.
    let diamond = by_hand(&[(1.0, &[]), (2.0, &[0]), (2.0, &[0]), (1.0, &[1, 2])], 0.5);
    let story = Story::new(diamond, 2);
    for policy in PLACING {
        assert_near(story.run(policy).makespan, 4.5);
    }
}

#[test]
fn pull_takes_what_is_ready() {
    let independent = by_hand(&[(2.0, &[]), (2.0, &[]), (2.0, &[]), (2.0, &[])], 0.5);
    let story = Story::new(independent, 2);
    for policy in [Policy::PullRandom, Policy::PullRank] {
        assert_near(story.run(policy).makespan, 4.0);
    }
}

/// A chain of 12 on processor 0, which dies at 5 in its third task.
fn chain_that_dies() -> Story {
    let chain = by_hand(&[(1.0, &[]), (1.0, &[0]), (10.0, &[1])], 0.5);
    Story::new(chain, 2).dies(0, 5.0)
}

#[test]
fn what_is_lost_and_needed_is_rewound() {
    let story = chain_that_dies();
    for policy in [Policy::GtpR, Policy::GtpCR, Policy::PullRank, Policy::Flow] {
        let outcome = story.run(policy);
        // Pull may have left the first output with the other processor.
        if policy != Policy::PullRank {
            assert_eq!(outcome.rewound, 2, "{policy:?}");
            // Known at 6, then all 12 again.
            assert_near(outcome.makespan, 18.0);
        }
    }
    let story = Story {
        detection: Detection::AtPoints,
        ..story
    };
    // Known at the rescheduling point at 10.
    assert_near(story.run(Policy::GtpR).makespan, 22.0);
}

#[test]
fn copies_spare_the_rewinding() {
    let outcome = chain_that_dies().run(Policy::FlowCopies);
    assert_eq!(outcome.rewound, 0);
    assert_near(outcome.makespan, 16.0);
}

#[test]
fn what_is_consumed_is_not_rewound() {
    // 0 on the first processor, 1 on the second, 2 on the first again, where it dies.
    let graph = by_hand(&[(1.0, &[]), (1.0, &[0]), (10.0, &[1])], 0.5);
    let mut story = Story::new(graph, 2).dies(0, 5.0);
    story.world = World::of_costs(2, vec![1.0, 90.0, 90.0, 1.0, 10.0, 40.0]);
    for policy in [Policy::GtpR, Policy::GtpCR, Policy::Flow] {
        let outcome = story.run(policy);
        assert_eq!(outcome.rewound, 0, "{policy:?}");
        // The second processor has the output of 1: known at 6, then 40.
        assert_near(outcome.makespan, 46.0);
    }
}

#[test]
fn a_receiver_is_a_holder_with_copies_alone() {
    // As before, but 2 reads the output of 0 as well. The second processor received it when it did 1.
    let graph = by_hand(&[(1.0, &[]), (1.0, &[0]), (10.0, &[0, 1])], 0.5);
    let mut story = Story::new(graph, 2).dies(0, 5.0);
    story.world = World::of_costs(2, vec![1.0, 90.0, 90.0, 1.0, 10.0, 40.0]);
    assert_eq!(story.run(Policy::GtpR).rewound, 1);
    assert_near(story.run(Policy::GtpR).makespan, 6.0 + 90.0 + 40.0);
    for policy in [Policy::GtpCR, Policy::Flow] {
        assert_eq!(story.run(policy).rewound, 0, "{policy:?}");
        assert_near(story.run(policy).makespan, 46.0);
    }
}

#[test]
fn without_rewinding_all_is_done_again() {
    let story = chain_that_dies();
    let outcome = story.run(Policy::Gtp);
    assert_eq!(outcome.rewound, 2);
    assert_near(outcome.makespan, 18.0);
}

#[test]
fn a_processor_that_is_back_is_used() {
    let tasks: Vec<(f64, &[TaskId])> = vec![(1.0, &[]); 100];
    let mut story = Story::new(by_hand(&tasks, 0.5), 2);
    story.deaths.push(Death {
        processor: 1,
        at: 10.5,
        back: Some(20.5),
    });
    for policy in [Policy::GtpCR, Policy::PullRank, Policy::Flow] {
        let makespan = story.run(policy).makespan;
        // 50, half of the 10 that it was away, and what was begun and not done; GTP uses it from its next point on.
        assert!((55.0..64.0).contains(&makespan), "{policy:?}: {makespan}");
    }
}

#[test]
fn all_policies_stand_deaths_with_all_checks() {
    let mut graphs: Vec<TaskGraph> = [0, 35, 75, 99, 150, 179]
        .map(|number| random::graph(number, 60, 3))
        .to_vec();
    graphs.extend([tiled::lu(4), tiled::cholesky(5), tiled::gauss_seidel(4, 3)]);
    for (index, graph) in graphs.iter().enumerate() {
        for data in [Data::PerEdge(0.1), Data::OneOutput(0.5)] {
            stand_deaths(graph, data, index as u64);
        }
    }
}

fn stand_deaths(graph: &TaskGraph, data: Data, seed: u64) {
    let mut dice = Dice::new(seed);
    let flow = FlowGraph::new(graph, data, &mut dice);
    let world = World::still(&flow, 4, &mut dice);
    let reference = flow.tasks.iter().map(|task| task.cost).sum::<f64>() / 3.0;
    let world = world.varying(0.8, reference, &mut dice);
    let [first, second] = [0.2, 0.5].map(|share| share * reference);
    for (away, gap) in [
        (None, 0.0),
        (None, 0.004),
        (Some(0.005), 0.2),
        (Some(0.1), 0.05),
    ] {
        let back = |at: f64| away.map(|away| at + away * reference);
        let (at, later) = (first.min(second), first.min(second) + gap * reference);
        let deaths = [(1, at), (2, later)].map(|(processor, at)| Death {
            processor,
            at,
            back: back(at),
        });
        for policy in models() {
            for detection in [Detection::AtPoints, Detection::Soon] {
                let trial = Trial {
                    graph: &flow,
                    world: &world,
                    policy,
                    detection,
                    reference,
                    deaths: &deaths,
                    seed,
                };
                let outcome = Sim::new(&trial, 1).run();
                let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", graph.name));
                assert!(outcome.makespan > 0.0);
            }
        }
    }
}

#[test]
fn what_nobody_has_and_nobody_makes_is_found() {
    let story = chain_that_dies();
    let trial = Trial {
        graph: &story.graph,
        world: &story.world,
        policy: Policy::Flow,
        detection: Detection::Soon,
        reference: 100.0,
        deaths: &[],
        seed: 1,
    };
    let mut sim = Sim::new(&trial, 1);
    assert_eq!(sim.check(), Ok(()));
    sim.states[0] = State::Done;
    let found = sim.check().unwrap_err().to_string();
    assert!(
        found.contains("task 1 wants version 0, which nobody has"),
        "{found}"
    );
    sim.states[0] = State::Waiting;
    sim.under_way[0] = only(1);
    let found = sim.check().unwrap_err().to_string();
    assert!(found.contains("is on no link"), "{found}");
    sim.under_way[0] = 0;
    sim.progress[0].runs = 2;
    let found = sim.check_runs(0).unwrap_err().to_string();
    assert!(
        found.contains("has run 2 times, and was rewound 0 times"),
        "{found}"
    );
}

#[test]
fn a_run_that_cannot_go_on_is_stuck() {
    let story = chain_that_dies();
    for policy in [Policy::GtpCR, Policy::PullRank, Policy::Flow] {
        let trial = Trial {
            graph: &story.graph,
            world: &story.world,
            policy,
            detection: Detection::Soon,
            reference: 1.0,
            deaths: &[],
            seed: 1,
        };
        let mut sim = Sim::new(&trial, 1);
        for processor in &mut sim.processors {
            // Dead, and nobody will ever know.
            processor.is_alive = false;
        }
        let found = sim.run().unwrap_err().to_string();
        let expected = "stuck with 3 tasks left, of which the first is 0: Granted(0)";
        assert!(found.contains(expected), "{found}");
    }
}
