//! F15: what takes longer to do again than to send is copied in the background.

use super::{ProcessorId, Sim, TaskId};

impl Sim<'_> {
    /// The processor that did a task copies its outputs to another, if doing it again, with all that lies behind it on this
    /// processor alone, takes longer.
    pub(super) fn copy_outputs(&mut self, task: TaskId, on: ProcessorId) {
        let graph = self.graph;
        let redo = self.world.cost(task, on) + self.redo_of_inputs(task, on);
        self.progress[task].redo = redo;
        let others = self.believed();
        let others: Vec<ProcessorId> = others.into_iter().filter(|&other| other != on).collect();
        if others.is_empty() {
            return;
        }
        // Each task to another one, so that no link gets all copies.
        let to = others[(on + task) % others.len()];
        let link = self.link(on, to);
        for &version in &graph.tasks[task].outputs {
            let sending = graph.versions[version].size * self.loads[link].slowness;
            if redo > sending {
                // Lineage ends here as soon as the copy is there, which is reckoned as now.
                self.progress[task].redo = 0.0;
                self.links[link].copies.push_back(version);
            }
        }
        self.next_transfer(link);
    }

    fn redo_of_inputs(&self, task: TaskId, on: ProcessorId) -> f64 {
        let inputs = self.graph.tasks[task].inputs.iter();
        let lost_with_it = inputs.filter(|&&version| {
            let writer = self.graph.versions[version].writer;
            self.progress[writer].ran_on == on && self.holders[version].count_ones() < 2
        });
        let times = lost_with_it.map(|&version| {
            let writer = self.graph.versions[version].writer;
            self.progress[writer].redo
        });
        times.sum()
    }
}
