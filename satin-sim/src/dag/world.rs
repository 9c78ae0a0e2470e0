//! Processors and links that vary. What happens to them is drawn before a run, so that all policies meet the same.

use super::graph::{FlowGraph, TaskId};
use crate::faults::Dice;

/// A processor, by its number.
pub type ProcessorId = usize;

/// The most processors: a version's holders are the bits of a word.
pub const PROCESSORS_MAX: usize = 32;

/// A processor, or the link from one to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A processor.
    Processor(ProcessorId),
    /// A link in one direction.
    Link {
        /// The sender.
        from: ProcessorId,
        /// The receiver.
        to: ProcessorId,
    },
}

/// From now on a resource has another speed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// The time.
    pub at: f64,
    /// The resource.
    pub resource: Resource,
    /// The speed, as a share of the full one.
    pub speed: f64,
}

/// Processors, what each task costs on each, and what happens to them.
#[derive(Clone, PartialEq, Debug)]
pub struct World {
    /// The number of processors.
    pub processors: usize,
    /// The time of each task on each processor at full speed.
    costs: Vec<f64>,
    /// Changes of speed, in the order of time.
    pub changes: Vec<Change>,
}

impl World {
    /// Processors that do not vary. Costs of a task differ between processors by up to half of the mean either way, without a
    /// relation between tasks: a processor that is slow for one may be fast for another.
    ///
    /// # Panics
    /// There are no processors, or more than [`PROCESSORS_MAX`].
    #[must_use]
    pub fn still(graph: &FlowGraph, processors: usize, dice: &mut Dice) -> World {
        let mut costs = Vec::with_capacity(graph.tasks.len() * processors);
        for task in &graph.tasks {
            costs.extend((0..processors).map(|_| task.cost * (0.5 + dice.fraction())));
        }
        World::of_costs(processors, costs)
    }

    /// Processors of which each takes the same time for a task.
    #[must_use]
    pub fn uniform(graph: &FlowGraph, processors: usize) -> World {
        let costs = graph.tasks.iter();
        let costs = costs.flat_map(|task| std::iter::repeat_n(task.cost, processors));
        World::of_costs(processors, costs.collect())
    }

    /// Processors that do not vary, with the time of each task on each: task by task.
    ///
    /// # Panics
    /// There are no processors, more than [`PROCESSORS_MAX`], or a cost is missing.
    #[must_use]
    pub fn of_costs(processors: usize, costs: Vec<f64>) -> World {
        assert!(
            (1..=PROCESSORS_MAX).contains(&processors) && costs.len().is_multiple_of(processors)
        );
        World {
            processors,
            costs,
            changes: Vec::new(),
        }
    }

    /// The same processors, with changes: every 2 % of the reference time in the mean a processor or a link, with equal chances,
    /// gets a speed between 1 and 1 - `bound`.
    #[must_use]
    pub fn varying(&self, bound: f64, reference: f64, dice: &mut Dice) -> World {
        /// Mean time between two changes, as a share of the reference time.
        const PERIOD: f64 = 0.02;
        /// Reference times until which the caller's dice are thrown: hardly a model takes as long.
        const END: f64 = 12.0;
        /// Reference times until which there are changes: the shipped code may leave everything on one processor.
        const LAST_END: f64 = 60.0;
        let mut changes = Vec::new();
        let mut at = 0.0;
        let mut vary = |end: f64, dice: &mut Dice| {
            while at < end * reference {
                at += PERIOD * reference * (0.5 + dice.fraction());
                let speed = 1.0 - bound * dice.fraction();
                let resource = self.any_resource(dice);
                changes.push(Change {
                    at,
                    resource,
                    speed,
                });
            }
        };
        vary(END, dice);
        // What is thrown with these dice afterwards does not depend on how long the changes go on.
        vary(LAST_END, &mut dice.clone());
        World {
            changes,
            ..self.clone()
        }
    }

    fn any_resource(&self, dice: &mut Dice) -> Resource {
        let first = dice.below(self.processors as u64) as usize;
        if dice.below(2) == 0 || self.processors == 1 {
            return Resource::Processor(first);
        }
        let to = self.another(first, dice);
        Resource::Link { from: first, to }
    }

    /// Any processor but this one.
    ///
    /// # Panics
    /// There is no other.
    #[must_use]
    pub fn another(&self, than: ProcessorId, dice: &mut Dice) -> ProcessorId {
        let step = 1 + dice.below(self.processors as u64 - 1) as usize;
        (than + step) % self.processors
    }

    /// The time that a task takes on a processor at full speed.
    #[must_use]
    pub fn cost(&self, task: TaskId, processor: ProcessorId) -> f64 {
        self.costs[task * self.processors + processor]
    }
}
