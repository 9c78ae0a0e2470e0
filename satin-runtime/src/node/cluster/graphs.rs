//! Graphs of imaginary flows. A graph is what a program text of a few lines says: each task changes one piece of data and reads others, and so
//! waits for those that wrote them last (rules F1 and F2 of the design of flows).

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::program::mix;

/// The program text that a flow has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum FlowForm {
    /// Each step changes each piece of data; pieces have nothing to do with each other.
    Chains,
    /// Gauss-Seidel: a step goes over the pieces in their order, and each reads its neighbours.
    Wavefront,
    /// LU decomposition of `width` times `width` tiles, `steps` steps of it at most.
    Lu,
    /// Each task changes a piece, and reads up to two others, as dice fall.
    Dice,
}

/// A graph of tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Graph {
    /// Of each task, the tasks whose results it reads: all stand before it.
    inputs: Vec<Vec<u32>>,
    /// The number of each task in the text as it usually is.
    natural: Vec<u32>,
}

/// A program text that is being read.
struct GraphText {
    /// The task that wrote each piece of data last.
    last: Vec<Option<u32>>,
    inputs: Vec<Vec<u32>>,
}

impl GraphText {
    fn new(pieces: usize) -> GraphText {
        GraphText {
            last: vec![None; pieces],
            inputs: Vec::new(),
        }
    }

    /// A task that changes a piece of data, and reads others.
    fn task(&mut self, changes: usize, reads: &[usize]) {
        let mut inputs = Vec::new();
        for piece in [changes].iter().chain(reads) {
            if let Some(writer) = self.last[*piece]
                && !inputs.contains(&writer)
            {
                inputs.push(writer);
            }
        }
        self.last[changes] = Some(self.inputs.len() as u32);
        self.inputs.push(inputs);
    }
}

impl Graph {
    pub(super) fn of(form: FlowForm, width: u32, steps: u32, seed: u64) -> Graph {
        let (width, steps) = (width as usize, steps as usize);
        let mut text = GraphText::new(match form {
            FlowForm::Lu => width * width,
            _ => width,
        });
        match form {
            FlowForm::Chains => {
                for _ in 0..steps {
                    (0..width).for_each(|piece| text.task(piece, &[]));
                }
            }
            FlowForm::Wavefront => {
                for _ in 0..steps {
                    for piece in 0..width {
                        let left = piece.checked_sub(1);
                        let right = Some(piece + 1).filter(|right| *right < width);
                        let reads: Vec<usize> = left.into_iter().chain(right).collect();
                        text.task(piece, &reads);
                    }
                }
            }
            FlowForm::Lu => {
                let tile = |row, column| row * width + column;
                for k in 0..steps.min(width) {
                    text.task(tile(k, k), &[]);
                    for column in k + 1..width {
                        text.task(tile(k, column), &[tile(k, k)]);
                    }
                    for row in k + 1..width {
                        text.task(tile(row, k), &[tile(k, k)]);
                    }
                    for row in k + 1..width {
                        for column in k + 1..width {
                            text.task(tile(row, column), &[tile(row, k), tile(k, column)]);
                        }
                    }
                }
            }
            FlowForm::Dice => {
                for task in 0..(width * steps) as u64 {
                    let dice = mix(seed ^ mix(task));
                    let piece = |throw: u64| (mix(dice ^ throw) % width as u64) as usize;
                    let reads: Vec<usize> = (0..dice % 3).map(|read| piece(read + 1)).collect();
                    text.task(piece(0), &reads);
                }
            }
        }
        Graph {
            natural: (0..text.inputs.len() as u32).collect(),
            inputs: text.inputs,
        }
    }

    /// The graph of a text whose tasks read the results of these.
    pub(super) fn of_reads(inputs: Vec<Vec<u32>>) -> Graph {
        Graph {
            natural: (0..inputs.len() as u32).collect(),
            inputs,
        }
    }

    /// The same tasks, by a program text that makes them in another order: one of those in which each stands behind what it reads.
    pub(super) fn shuffled(&self, seed: u64) -> Graph {
        let count = self.len() as usize;
        let mut places: Vec<Option<u32>> = vec![None; count];
        let (mut inputs, mut natural) = (Vec::new(), Vec::new());
        for place in 0..count as u32 {
            let can_stand = |task: &usize| {
                let mut reads = self.inputs[*task].iter();
                places[*task].is_none() && reads.all(|read| places[*read as usize].is_some())
            };
            let few: Vec<usize> = (0..count).filter(can_stand).collect();
            let task = few[(mix(seed ^ u64::from(place)) % few.len() as u64) as usize];
            let reads = self.inputs[task].iter();
            inputs.push(
                reads
                    .filter_map(|read| places[*read as usize])
                    .collect::<Vec<u32>>(),
            );
            places[task] = Some(place);
            natural.push(self.natural[task]);
        }
        Graph { inputs, natural }
    }

    /// Number of tasks.
    pub(super) fn len(&self) -> u32 {
        self.inputs.len() as u32
    }

    /// The tasks whose results a task reads, in the order in which it does.
    pub(super) fn inputs(&self, task: u32) -> &[u32] {
        &self.inputs[task as usize]
    }

    /// The number of a task in the text as it usually is.
    pub(super) fn natural(&self, task: u32) -> u32 {
        self.natural[task as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(graph: &Graph) -> Vec<&[u32]> {
        (0..graph.len()).map(|task| graph.inputs(task)).collect()
    }

    #[test]
    fn the_graph_of_lu_has_the_edges_of_its_text() {
        let graph = Graph::of(FlowForm::Lu, 2, 9, 0);
        let edges: [&[u32]; 5] = [&[], &[0], &[0], &[2, 1], &[3]];
        assert_eq!(inputs(&graph), edges);
        assert_eq!(Graph::of(FlowForm::Lu, 4, 9, 0).len(), 30);
        assert_eq!(Graph::of(FlowForm::Lu, 4, 1, 0).len(), 16);
    }

    #[test]
    fn a_wavefront_reads_the_new_left_neighbour_and_the_old_right_one() {
        let graph = Graph::of(FlowForm::Wavefront, 3, 2, 0);
        let edges: [&[u32]; 6] = [&[], &[0], &[1], &[0, 1], &[1, 3, 2], &[2, 4]];
        assert_eq!(inputs(&graph), edges);
    }

    #[test]
    fn another_order_has_the_same_tasks_behind_what_they_read() {
        for form in FlowForm::VARIANTS {
            for seed in 0..50 {
                let graph = Graph::of(*form, 4, 3, seed);
                let other = graph.shuffled(seed);
                let mut all = other.natural.clone();
                all.sort_unstable();
                assert_eq!(all, graph.natural);
                for place in 0..other.len() {
                    let reads = other.inputs(place).iter();
                    assert!(reads.clone().all(|read| *read < place));
                    let reads: Vec<u32> = reads.map(|read| other.natural(*read)).collect();
                    assert_eq!(reads, graph.inputs(other.natural(place)));
                }
            }
            let other = |seed| Graph::of(*form, 4, 3, 1).shuffled(seed).natural;
            assert!(
                (0..9).any(|seed| other(seed) != other(seed + 1)),
                "{form:?}"
            );
        }
    }
}
