//! The experiment: all policies on all graphs, in worlds that vary up to each bound, without a death and with one.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

use super::{
    graph::{Data, FlowGraph, TaskGraph},
    nodes,
    policy::{Detection, Policy},
    sim::{self, Death, Outcome, Trial, Violation},
    world::World,
};
use crate::{faults::Dice, seeds::each_number};

/// What happens to processors, beside their changes of speed. TE1 and TE2 are those of the paper on GTP (section 5.3). The first
/// processor dies when the run would be half done without a death.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
    Serialize,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// No processor dies.
    Te1,
    /// One dies and does not come back.
    Te2,
    /// One dies, and is back after a tenth of the run, with nothing.
    Te2Back,
    /// Two die, the second a twentieth of the run after the first, and do not come back.
    Te2Twice,
    /// Two die in the same way, and each is back after a tenth of the run.
    Te2TwiceBack,
}

impl Scenario {
    /// The time of the first death, as a share of the run without it.
    const FIRST: f64 = 0.5;
    /// The time from the first death to the second.
    const SECOND: f64 = 0.05;
    /// The time for which a processor is away that comes back.
    const AWAY: f64 = 0.1;

    /// The name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The least number of processors for which the scenario makes sense.
    #[must_use]
    pub fn processors_min(self) -> usize {
        match self {
            Scenario::Te1 | Scenario::Te2 | Scenario::Te2Back => 2,
            Scenario::Te2Twice | Scenario::Te2TwiceBack => 3,
        }
    }

    /// True if a processor dies.
    #[must_use]
    pub fn has_deaths(self) -> bool {
        self != Scenario::Te1
    }

    /// The deaths in a run that takes so long without them.
    fn deaths(self, makespan: f64, victims: [usize; 2]) -> Vec<Death> {
        let (number, is_back) = match self {
            Scenario::Te1 => (0, false),
            Scenario::Te2 => (1, false),
            Scenario::Te2Back => (1, true),
            Scenario::Te2Twice => (2, false),
            Scenario::Te2TwiceBack => (2, true),
        };
        let deaths = victims.into_iter().zip([0.0, Scenario::SECOND]);
        let deaths = deaths.take(number).map(|(processor, later)| {
            let at = (Scenario::FIRST + later) * makespan;
            let back = is_back.then_some(at + Scenario::AWAY * makespan);
            Death {
                processor,
                at,
                back,
            }
        });
        deaths.collect()
    }
}

/// Processors and tasks, written `5x500` or `5xall`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Size {
    /// The number of processors.
    pub processors: usize,
    /// The number of tasks: the first of each graph. `None`: all of them.
    pub tasks: Option<usize>,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.tasks {
            Some(tasks) => write!(f, "{}x{tasks}", self.processors),
            None => write!(f, "{}xall", self.processors),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// Processors and tasks.
    pub size: Size,
    /// Sizes of data.
    pub data: Data,
    /// What happens to processors.
    pub scenario: Scenario,
}

/// A column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contender {
    /// The policy.
    pub policy: Policy,
    /// When it learns of a death.
    pub detection: Detection,
}

/// What is to be run.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The graphs.
    pub graphs: Vec<TaskGraph>,
    /// The rows.
    pub cases: Vec<Case>,
    /// The columns.
    pub contenders: Vec<Contender>,
    /// The bounds: in a world of bound 0.3 a speed is never below 0.7.
    pub bounds: Vec<f64>,
    /// The seed of sizes, costs, changes and deaths.
    pub seed: u64,
    /// Number of threads. The figures do not depend on it.
    pub jobs: u32,
}

/// The figures of one contender in one case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// Processors and tasks.
    pub size: Size,
    /// Sizes of data.
    pub data: String,
    /// What happens to processors.
    pub scenario: Scenario,
    /// The policy.
    pub policy: Policy,
    /// When it learns of a death.
    pub detection: Detection,
    /// Time that a death adds, in per cent of the run without it: the mean over all graphs and bounds.
    pub extra_percent: f64,
    /// The mean over all graphs at the bound where it is largest.
    pub worst_percent: f64,
    /// The mean over all graphs at each bound.
    pub of_bounds: Vec<AtBound>,
    /// Normalized schedule length: run without a death over the critical path.
    pub nsl: f64,
    /// The same of the runs with a death.
    pub nsl_with_death: f64,
    /// Tasks rewound by a death.
    pub rewound: f64,
    /// Data copied in the background, as a share of what is sent because a task needs it; without a death.
    pub copied: f64,
    /// Data that a task moves in runs without a death: the time of sending it, in mean tasks.
    pub moved: f64,
    /// Tasks that began elsewhere than on the node of the flow, in runs without a death, as per cent of all. Of models it is not known.
    pub elsewhere_percent: Option<f64>,
    /// The time from a death until the node of the flow knew of it, as per cent of the reference. Of models it is given, and without a death
    /// there is none.
    pub heard_percent: Option<f64>,
}

/// The figures at one bound.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AtBound {
    /// The bound.
    pub bound: f64,
    /// Time that a death adds, in per cent of the run without it.
    pub extra_percent: f64,
    /// Normalized schedule length, without a death.
    pub nsl: f64,
}

/// What an experiment has come to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Number of graphs.
    pub graphs: usize,
    /// Their mean number of edges, as they are before they are cut.
    pub mean_edges: f64,
    /// The bounds.
    pub bounds: Vec<f64>,
    /// The seed.
    pub seed: u64,
    /// Number of simulated runs.
    pub runs: usize,
    /// All cells, row by row.
    pub cells: Vec<Cell>,
}

/// A violation, and the run in which it was found.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{place}: {violation}")]
pub struct Failure {
    /// The row, the bound and the graph.
    place: String,
    violation: Violation,
}

/// One run without deaths, and the same with them.
#[derive(Clone, Copy, Default, Debug)]
struct ResultPair {
    critical_path: f64,
    reference: f64,
    tasks: usize,
    /// The time of all tasks on processors of mean speed.
    work: f64,
    without: Outcome,
    with: Outcome,
}

impl ResultPair {
    fn extra_percent(&self) -> f64 {
        100.0 * (self.with.makespan / self.without.makespan - 1.0)
    }

    fn nsl(&self) -> f64 {
        self.without.makespan / self.critical_path
    }

    fn elsewhere_percent(&self) -> f64 {
        100.0 * self.without.elsewhere as f64 / self.tasks as f64
    }

    fn heard_percent(&self) -> f64 {
        100.0 * self.with.heard_after / self.reference
    }
}

/// A graph and a bound of some cases that differ in their scenarios alone.
#[derive(Clone, Copy, Debug)]
struct Unit {
    group: usize,
    graph: usize,
    bound: usize,
}

/// The pairs of a unit: contender by contender for each scenario of the group.
type Pairs = Vec<Vec<ResultPair>>;

/// Cases with the same size and data, which share runs without a death.
struct ResultGroup {
    size: Size,
    data: Data,
    scenarios: Vec<Scenario>,
}

fn groups(cases: &[Case]) -> Vec<ResultGroup> {
    let mut groups: Vec<ResultGroup> = Vec::new();
    for case in cases {
        let same = |group: &&mut ResultGroup| group.size == case.size && group.data == case.data;
        match groups.iter_mut().find(same) {
            Some(group) => group.scenarios.push(case.scenario),
            None => groups.push(ResultGroup {
                size: case.size,
                data: case.data,
                scenarios: vec![case.scenario],
            }),
        }
    }
    groups
}

/// How far an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Units done: a unit is one graph at one bound with all contenders.
    pub done: usize,
    /// Number of units.
    pub all: usize,
}

/// Runs an experiment. `progress` is told each time how far it is.
///
/// # Errors
/// An invariant was violated.
pub fn run(settings: &Settings, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, Failure> {
    let groups = groups(&settings.cases);
    let mut units = Vec::new();
    for group in 0..groups.len() {
        for graph in 0..settings.graphs.len() {
            let bounds = 0..settings.bounds.len();
            units.extend(bounds.map(|bound| Unit {
                group,
                graph,
                bound,
            }));
        }
    }
    let results = run_units(settings, &groups, &units, progress)?;
    let mut cells = Vec::new();
    for case in &settings.cases {
        for contender in 0..settings.contenders.len() {
            cells.push(cell(settings, &groups, &units, &results, *case, contender));
        }
    }
    let edges: usize = settings.graphs.iter().map(TaskGraph::edges).sum();
    let scenarios: usize = groups.iter().map(|group| 1 + group.scenarios.len()).sum();
    let worlds = settings.graphs.len() * settings.bounds.len();
    Ok(Report {
        graphs: settings.graphs.len(),
        mean_edges: edges as f64 / settings.graphs.len().max(1) as f64,
        bounds: settings.bounds.clone(),
        seed: settings.seed,
        runs: worlds * settings.contenders.len() * scenarios,
        cells,
    })
}

fn run_units(
    settings: &Settings,
    groups: &[ResultGroup],
    units: &[Unit],
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Pairs>, Failure> {
    let results = Mutex::new(vec![Pairs::new(); units.len()]);
    let failure = Mutex::new(None);
    let done = AtomicUsize::new(0);
    each_number(0..units.len() as u64, settings.jobs, &|index| {
        let index = index as usize;
        let unit = units[index];
        let outcome = run_unit(settings, &groups[unit.group], unit);
        let has_failed = outcome.is_err();
        match outcome {
            Ok(pairs) => results.lock().expect("nobody panics with it")[index] = pairs,
            Err(error) => *failure.lock().expect("nobody panics with it") = Some(error),
        }
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        let all = units.len();
        progress(Progress { done, all });
        has_failed
    });
    match failure.into_inner().expect("nobody panicked with it") {
        Some(failure) => Err(failure),
        None => Ok(results.into_inner().expect("nobody panicked with it")),
    }
}

fn run_unit(settings: &Settings, group: &ResultGroup, unit: Unit) -> Result<Pairs, Failure> {
    let ResultGroup { size, data, .. } = *group;
    let bound = settings.bounds[unit.bound];
    let graph = &settings.graphs[unit.graph];
    // Sizes and costs depend on the seed and the graph; changes and victims on the bound too.
    let seed = settings.seed.wrapping_mul(7919) + unit.graph as u64;
    let mut dice = Dice::new(seed);
    let tasks = size.tasks.unwrap_or(graph.tasks.len());
    let flow = FlowGraph::new(&graph.clone().first(tasks), data, &mut dice);
    let still = World::still(&flow, size.processors, &mut dice);
    let critical_path = flow.critical_path();
    let failure = |scenario: &'static str| {
        let place = format!(
            "{size}, {data}, {scenario}, bound {bound}, graph {}",
            graph.name
        );
        move |violation| Failure { place, violation }
    };
    let reference = reference(&flow, &still).map_err(failure("no death"))?;
    let mut dice = Dice::new(seed.wrapping_mul(31) + (bound * 1000.0) as u64);
    let world = still.varying(bound, reference, &mut dice);
    let first = dice.below(size.processors as u64) as usize;
    let victims = [first, world.another(first, &mut dice)];
    let home = home(size.processors, victims);
    let run = |trial: &Trial<'_>| match trial.policy.is_shipped() {
        true => nodes::run(trial, home),
        false => sim::run(trial),
    };
    let mut pairs = vec![Vec::new(); group.scenarios.len()];
    for contender in &settings.contenders {
        let trial = Trial {
            graph: &flow,
            world: &world,
            policy: contender.policy,
            detection: contender.detection,
            reference,
            deaths: &[],
            seed,
        };
        let without = run(&trial).map_err(failure("no death"))?;
        for (scenario, pairs) in group.scenarios.iter().zip(&mut pairs) {
            let deaths = scenario.deaths(without.makespan, victims);
            let deaths = &deaths;
            let with = match scenario.has_deaths() {
                true => run(&Trial { deaths, ..trial }),
                false => Ok(without),
            };
            pairs.push(ResultPair {
                critical_path,
                reference,
                tasks: flow.tasks.len(),
                work: flow.mean_cost * flow.tasks.len() as f64,
                without,
                with: with.map_err(failure(scenario.name()))?,
            });
        }
    }
    Ok(pairs)
}

/// The processor of the flow's node, for the shipped code: one that does not die.
fn home(processors: usize, victims: [usize; 2]) -> usize {
    let mut others = (0..processors).filter(|processor| !victims.contains(processor));
    // Of two processors one dies.
    others.next().unwrap_or(victims[1])
}

/// The time to which delays and periods are related: the first plan of GTP, when nothing changes.
///
/// # Errors
/// An invariant was violated.
pub fn reference(graph: &FlowGraph, still: &World) -> Result<f64, Violation> {
    let trial = Trial {
        graph,
        world: still,
        policy: Policy::Gtp,
        detection: Detection::AtPoints,
        // No rescheduling point comes in time.
        reference: 1e12,
        deaths: &[],
        seed: 0,
    };
    Ok(sim::run(&trial)?.makespan)
}

fn cell(
    settings: &Settings,
    groups: &[ResultGroup],
    units: &[Unit],
    results: &[Pairs],
    case: Case,
    contender: usize,
) -> Cell {
    let group = groups
        .iter()
        .position(|group| group.size == case.size && group.data == case.data)
        .expect("groups are made of cases");
    let scenarios = &groups[group].scenarios;
    let scenario = scenarios
        .iter()
        .position(|&scenario| scenario == case.scenario);
    let scenario = scenario.expect("groups are made of cases");
    let of = |bound: Option<usize>| -> Vec<ResultPair> {
        let units = units.iter().zip(results);
        let units = units.filter(|(unit, _)| {
            unit.group == group && bound.is_none_or(|bound| unit.bound == bound)
        });
        units.map(|(_, pairs)| pairs[scenario][contender]).collect()
    };
    let all = of(None);
    let of_bounds: Vec<AtBound> = (0..settings.bounds.len())
        .map(|bound| {
            let pairs = of(Some(bound));
            AtBound {
                bound: settings.bounds[bound],
                extra_percent: mean(&pairs, ResultPair::extra_percent),
                nsl: mean(&pairs, ResultPair::nsl),
            }
        })
        .collect();
    let worst = of_bounds.iter().map(|at| at.extra_percent);
    let sent = mean(&all, |pair| pair.without.sent);
    let policy = settings.contenders[contender].policy;
    let of_nodes = |of: fn(&ResultPair) -> f64| policy.is_shipped().then(|| mean(&all, of));
    let of_deaths = |of| of_nodes(of).filter(|_| case.scenario.has_deaths());
    Cell {
        size: case.size,
        data: case.data.to_string(),
        scenario: case.scenario,
        policy,
        detection: settings.contenders[contender].detection,
        extra_percent: mean(&all, ResultPair::extra_percent),
        worst_percent: worst.fold(f64::NEG_INFINITY, f64::max),
        of_bounds,
        nsl: mean(&all, ResultPair::nsl),
        nsl_with_death: mean(&all, |pair| pair.with.makespan / pair.critical_path),
        rewound: mean(&all, |pair| pair.with.rewound as f64),
        copied: mean(&all, |pair| pair.without.copied) / sent.max(f64::MIN_POSITIVE),
        moved: mean(&all, |pair| pair.without.sent / pair.work),
        elsewhere_percent: of_nodes(ResultPair::elsewhere_percent),
        heard_percent: of_deaths(ResultPair::heard_percent),
    }
}

fn mean(pairs: &[ResultPair], of: impl Fn(&ResultPair) -> f64) -> f64 {
    pairs.iter().map(of).sum::<f64>() / pairs.len().max(1) as f64
}
