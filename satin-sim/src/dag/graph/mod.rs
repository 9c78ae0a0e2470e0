//! Task graphs: what each task costs, which tasks it comes after, and the pieces of data that go from one to the other. Knows
//! neither processors nor time.

pub mod random;
pub mod stg;
pub mod tiled;

use crate::faults::Dice;

/// A task: its place in program order. All that it reads was written by tasks with smaller numbers.
pub type TaskId = usize;
/// A version: a piece of data as one task made it.
pub type VersionId = usize;

/// A graph as a file or a generator gives it.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskGraph {
    /// The name of the file, or of the generator with its numbers.
    pub name: String,
    /// The tasks, in program order.
    pub tasks: Vec<Task>,
}

/// A task of a [`TaskGraph`].
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// The time that the task takes on a processor of mean speed. At least [`TaskGraph::LEAST_COST`].
    pub cost: f64,
    /// The tasks whose outputs it reads: each once, with smaller numbers.
    pub after: Vec<TaskId>,
}

impl TaskGraph {
    /// The least cost of a task. Tasks of no cost would have no share in the mean to which data is related.
    pub const LEAST_COST: f64 = 0.1;

    /// The graph of the first tasks in program order.
    #[must_use]
    pub fn first(mut self, tasks: usize) -> TaskGraph {
        self.tasks.truncate(tasks);
        self
    }

    /// The number of pairs of tasks of which one reads what the other wrote.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.tasks.iter().map(|task| task.after.len()).sum()
    }

    /// The mean cost of a task.
    #[must_use]
    pub fn mean_cost(&self) -> f64 {
        self.tasks.iter().map(|task| task.cost).sum::<f64>() / self.tasks.len().max(1) as f64
    }
}

/// How data is related to time. A link of full speed sends 1 unit of data in 1 unit of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Data {
    /// Every edge has a piece of data of its own, whose sending takes this share of a mean task.
    PerEdge(f64),
    /// Every task has one output, whose sending takes this share of a mean task. All its readers read the same.
    OneOutput(f64),
}

impl std::fmt::Display for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Data::PerEdge(share) => write!(f, "{share} per edge"),
            Data::OneOutput(share) => write!(f, "one output, {share}"),
        }
    }
}

/// A task graph with its data: what the simulation runs.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowGraph {
    /// The tasks, in program order.
    pub tasks: Vec<FlowTask>,
    /// The versions.
    pub versions: Vec<Version>,
    /// The mean cost of a task.
    pub mean_cost: f64,
}

/// A task of a [`FlowGraph`].
#[derive(Clone, PartialEq, Debug)]
pub struct FlowTask {
    /// The time that the task takes on a processor of mean speed.
    pub cost: f64,
    /// The versions that it reads.
    pub inputs: Vec<VersionId>,
    /// The versions that it writes.
    pub outputs: Vec<VersionId>,
}

/// A piece of data as one task made it.
#[derive(Clone, PartialEq, Debug)]
pub struct Version {
    /// The task that makes it.
    pub writer: TaskId,
    /// The tasks that read it.
    pub readers: Vec<Reader>,
    /// The time that sending it takes on a link of full speed.
    pub size: f64,
}

/// A task that reads a version.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reader {
    /// The task.
    pub task: TaskId,
    /// The place of the version among its inputs.
    pub input: usize,
}

impl FlowGraph {
    /// Adds data to a graph. Sizes vary by half around their mean.
    ///
    /// What no task reads is no version: such a result goes to the owner of the flow with the answer, and the owner does not
    /// die in this model.
    #[must_use]
    pub fn new(graph: &TaskGraph, data: Data, dice: &mut Dice) -> FlowGraph {
        let mean_cost = graph.mean_cost();
        let (share, is_one) = match data {
            Data::PerEdge(share) => (share, false),
            Data::OneOutput(share) => (share, true),
        };
        let mut size = || share * mean_cost * (0.5 + dice.fraction());
        let mut flow = FlowGraph {
            tasks: Vec::with_capacity(graph.tasks.len()),
            versions: Vec::new(),
            mean_cost,
        };
        for (id, task) in graph.tasks.iter().enumerate() {
            let mut inputs = Vec::with_capacity(task.after.len());
            for &writer in &task.after {
                let version = match flow.tasks[writer].outputs.first() {
                    Some(&only) if is_one => only,
                    _ => flow.add_version(writer, size()),
                };
                let input = inputs.len();
                let reader = Reader { task: id, input };
                flow.versions[version].readers.push(reader);
                inputs.push(version);
            }
            flow.tasks.push(FlowTask {
                cost: task.cost,
                inputs,
                outputs: Vec::new(),
            });
        }
        flow
    }

    fn add_version(&mut self, writer: TaskId, size: f64) -> VersionId {
        let version = self.versions.len();
        self.versions.push(Version {
            writer,
            readers: Vec::new(),
            size,
        });
        self.tasks[writer].outputs.push(version);
        version
    }

    /// The longest chain of tasks, at mean costs and without data: no schedule is shorter on processors of mean speed.
    #[must_use]
    pub fn critical_path(&self) -> f64 {
        let mut ends: Vec<f64> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let before = task.inputs.iter();
            let before = before.map(|&version| ends[self.versions[version].writer]);
            ends.push(before.fold(0.0, f64::max) + task.cost);
        }
        ends.into_iter().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> TaskGraph {
        let task = |cost, after: &[TaskId]| Task {
            cost,
            after: after.to_vec(),
        };
        TaskGraph {
            name: "diamond".into(),
            tasks: vec![
                task(1.0, &[]),
                task(2.0, &[0]),
                task(3.0, &[0]),
                task(1.0, &[1, 2]),
            ],
        }
    }

    #[test]
    fn every_edge_has_its_version_or_every_writer() {
        let per_edge = FlowGraph::new(&diamond(), Data::PerEdge(0.1), &mut Dice::new(1));
        assert_eq!(per_edge.versions.len(), 4);
        let one = FlowGraph::new(&diamond(), Data::OneOutput(0.1), &mut Dice::new(1));
        assert_eq!(one.versions.len(), 3);
        assert_eq!(one.versions[0].readers.len(), 2);
        assert_eq!(one.tasks[3].inputs, [1, 2]);
    }

    #[test]
    fn the_critical_path_is_the_longest_chain() {
        let flow = FlowGraph::new(&diamond(), Data::PerEdge(0.1), &mut Dice::new(1));
        assert_eq!(flow.critical_path(), 5.0);
        assert_eq!(diamond().first(2).edges(), 1);
    }
}
