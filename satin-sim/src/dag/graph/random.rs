//! Random graphs made as those of the Standard Task Graph Set were, after its page "How to make STG"
//! (<https://www.kasahara.cs.waseda.ac.jp/schedule/making_e.html>) and the headers of its files of 1,000 tasks, which name
//! their generators and parameters.
//!
//! * An edge from each task to each later task exists with the same probability. `sameprob` and `layrprob` name the
//!   probability, here uniform in 0.05 to 0.2. `samepred` and `layrpred` name the mean number of predecessors, here a whole
//!   number from 1 to 20: the probability is such that this is the mean over all tasks, so that late tasks have more.
//! * `layrprob` and `layrpred` first spread the tasks at random over layers of 10 tasks in the mean. Tasks of one layer have no
//!   edge between them.
//! * Costs are whole numbers of at least 1: rounded up from a uniform distribution (twice the mean is the most), an exponential
//!   one, or a normal one; the means are 5 and 10, the standard deviations 1 and 3. In a third of the graphs each task has either
//!   mean, with equal chances ("two peaks").
//!
//! The set has 180 graphs of a size: each method with each of the three distributions ten times (five of each mean), then each
//! method with each distribution with two peaks five times. The ranges of the two parameters are not published: they were taken
//! from headers, and from the mean number of edges (36,459) of the original graphs. The random numbers are our own, so no graph is
//! one of the original ones.

use strum::{Display, VariantArray};

use super::{Task, TaskGraph, TaskId};
use crate::faults::Dice;

/// A method by which edges are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Method {
    /// A given probability of each edge.
    SameProb,
    /// Layers, and a given probability of each edge between two.
    LayrProb,
    /// A given mean number of predecessors.
    SamePred,
    /// Layers, and a given mean number of predecessors.
    LayrPred,
}

impl Method {
    fn has_layers(self) -> bool {
        matches!(self, Method::LayrProb | Method::LayrPred)
    }
}

/// A distribution of costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Costs {
    /// All costs up to twice the mean are as likely.
    Uniform,
    /// Many small costs, a few large ones.
    Exponential,
    /// Costs near the mean.
    Normal,
}

impl Costs {
    fn draw(self, mean: MeanKind, dice: &mut Dice) -> f64 {
        let cost = match self {
            Costs::Uniform => 2.0 * mean.value() * dice.fraction(),
            Costs::Exponential => -mean.value() * (1.0 - dice.fraction()).ln(),
            Costs::Normal => mean.value() + mean.deviation() * normal(dice),
        };
        cost.ceil().max(1.0)
    }
}

/// A mean cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MeanKind {
    Five,
    Ten,
}

impl MeanKind {
    fn value(self) -> f64 {
        match self {
            MeanKind::Five => 5.0,
            MeanKind::Ten => 10.0,
        }
    }

    fn deviation(self) -> f64 {
        match self {
            MeanKind::Five => 1.0,
            MeanKind::Ten => 3.0,
        }
    }
}

/// Box and Muller's method.
fn normal(dice: &mut Dice) -> f64 {
    let radius = (-2.0 * (1.0 - dice.fraction()).ln()).sqrt();
    radius * (std::f64::consts::TAU * dice.fraction()).cos()
}

/// The mean costs of the tasks of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peaks {
    One(MeanKind),
    Two,
}

/// The number of graphs of the set.
pub const GRAPHS: usize = 180;

/// Mean number of tasks of a layer.
const LAYER_WIDTH: usize = 10;
/// Largest mean number of predecessors.
const PREDECESSORS_MAX: u64 = 20;

/// The graph of that number, in the order of the set, with so many tasks.
///
/// # Panics
/// There are fewer than 2 tasks, or the set has no graph of that number.
#[must_use]
pub fn graph(number: usize, tasks: usize, seed: u64) -> TaskGraph {
    assert!(number < GRAPHS && tasks > 1);
    let (method, costs, peaks) = parameters(number);
    let mut dice = Dice::new(seed.wrapping_mul(1009).wrapping_add(number as u64));
    let layers = layers(method, tasks, &mut dice);
    let pairs = |layers: &[usize]| {
        let mut widths = vec![0_usize; tasks];
        for &layer in layers {
            widths[layer] += 1;
        }
        let inside: usize = widths.iter().map(|width| width * (width.max(&1) - 1)).sum();
        (tasks * (tasks - 1) - inside) as f64 / 2.0
    };
    let probability = match method {
        Method::SameProb | Method::LayrProb => 0.05 + 0.15 * dice.fraction(),
        Method::SamePred | Method::LayrPred => {
            let predecessors = (1 + dice.below(PREDECESSORS_MAX)) as f64;
            (predecessors * tasks as f64 / pairs(&layers)).min(1.0)
        }
    };
    let tasks = (0..tasks).map(|id| {
        let before = 0..id;
        let before = before.filter(|&other| layers[other] < layers[id]);
        let after: Vec<TaskId> = before.filter(|_| dice.fraction() < probability).collect();
        let mean = match peaks {
            Peaks::One(mean) => mean,
            Peaks::Two if dice.below(2) == 0 => MeanKind::Five,
            Peaks::Two => MeanKind::Ten,
        };
        let cost = costs.draw(mean, &mut dice);
        Task { cost, after }
    });
    TaskGraph {
        name: format!("{method}, {costs}, number {number}"),
        tasks: tasks.collect(),
    }
}

/// The parameters of the graph of that number.
fn parameters(number: usize) -> (Method, Costs, Peaks) {
    const ONE_PEAK: usize = 120;
    let (each, place) = match number.checked_sub(ONE_PEAK) {
        None => (10, number),
        Some(place) => (5, place),
    };
    let kind = place / each;
    let (methods, costs) = (Method::VARIANTS, Costs::VARIANTS);
    let peaks = match (each, place % each) {
        (5, _) => Peaks::Two,
        (_, 0..5) => Peaks::One(MeanKind::Five),
        _ => Peaks::One(MeanKind::Ten),
    };
    (
        methods[kind / costs.len()],
        costs[kind % costs.len()],
        peaks,
    )
}

/// The layer of each task, in order. Without layers, each task has its own.
fn layers(method: Method, tasks: usize, dice: &mut Dice) -> Vec<usize> {
    if !method.has_layers() {
        return (0..tasks).collect();
    }
    let count = (tasks / LAYER_WIDTH).max(2) as u64;
    let mut layers: Vec<usize> = (0..tasks).map(|_| dice.below(count) as usize).collect();
    layers.sort_unstable();
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_methods_and_distributions_have_their_numbers() {
        let number = |method, costs, peaks| {
            let all = (0..GRAPHS).map(parameters);
            all.filter(|&has| has == (method, costs, peaks)).count()
        };
        for &method in Method::VARIANTS {
            for &costs in Costs::VARIANTS {
                for peaks in [
                    Peaks::One(MeanKind::Five),
                    Peaks::One(MeanKind::Ten),
                    Peaks::Two,
                ] {
                    assert_eq!(number(method, costs, peaks), 5);
                }
            }
        }
        // As the headers of the original files say.
        assert_eq!(parameters(40).0, Method::LayrProb);
        assert_eq!(parameters(70).1, Costs::Exponential);
        assert_eq!(
            parameters(130),
            (Method::SameProb, Costs::Normal, Peaks::Two)
        );
        assert_eq!(
            parameters(170),
            (Method::LayrPred, Costs::Exponential, Peaks::Two)
        );
    }

    #[test]
    fn graphs_are_as_dense_as_the_original_ones() {
        let edges = (0..GRAPHS)
            .step_by(3)
            .map(|number| graph(number, 1000, 1).edges());
        let mean = edges.sum::<usize>() as f64 / (GRAPHS / 3) as f64;
        assert!((30_000.0..43_000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn predecessors_have_the_mean_that_was_asked_for() {
        for number in [60, 95, 155, 179] {
            let graph = graph(number, 1000, 1);
            let mean = graph.edges() as f64 / 1000.0;
            assert!((mean - mean.round()).abs() < 0.6, "{}: {mean}", graph.name);
            assert!(mean < 22.0);
        }
    }

    #[test]
    fn costs_are_whole_numbers_near_their_mean() {
        for number in 0..GRAPHS {
            let graph = graph(number, 300, 1);
            assert!(
                graph
                    .tasks
                    .iter()
                    .all(|task| task.cost.fract() == 0.0 && task.cost >= 1.0)
            );
            let expected = match parameters(number).2 {
                Peaks::One(mean) => mean.value() + 0.5,
                Peaks::Two => 8.0,
            };
            let mean = graph.mean_cost();
            assert!(
                (mean / expected - 1.0).abs() < 0.35,
                "{}: {mean}",
                graph.name
            );
        }
    }

    #[test]
    fn layers_have_no_edges_inside() {
        let graph = graph(30, 200, 7);
        // 20 layers: a chain of tasks cannot be longer.
        let mut depth = vec![0; graph.tasks.len()];
        for (id, task) in graph.tasks.iter().enumerate() {
            depth[id] = 1 + task
                .after
                .iter()
                .map(|&before| depth[before])
                .max()
                .unwrap_or(0);
        }
        assert!(depth.into_iter().max() <= Some(20));
    }
}
