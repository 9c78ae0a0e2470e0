//! Random pull, and pull by rank: the processor with fewest tasks takes the next, whatever data it has. Each has one task beside
//! the one that runs, so that its inputs come while the other runs.

use super::{ProcessorId, Sim};

/// Tasks that a processor has at most, with the one that runs.
const TASKS_MAX: usize = 2;

impl Sim<'_> {
    pub(super) fn pull(&mut self) {
        let live = self.believed();
        let mut pool = std::mem::take(&mut self.pool);
        self.sort_by_priority(&mut pool);
        let mut next = pool.iter().copied();
        while let (Some(to), Some(task)) = (self.with_fewest_tasks(&live), next.clone().next()) {
            next.next();
            self.grant(task, to);
        }
        self.pool = next.collect();
    }

    /// Of those with room for another task, the one with fewest; of several, the fastest.
    fn with_fewest_tasks(&self, live: &[ProcessorId]) -> Option<ProcessorId> {
        let tasks = |on: ProcessorId| {
            let processor = &self.processors[on];
            processor.queue.len() + usize::from(processor.running.is_some())
        };
        let with_room = live.iter().copied().filter(|&on| tasks(on) < TASKS_MAX);
        with_room.min_by(|&a, &b| {
            let (first, second) = (&self.processors[a], &self.processors[b]);
            let faster = second.known_speed.total_cmp(&first.known_speed);
            tasks(a).cmp(&tasks(b)).then(faster)
        })
    }
}
