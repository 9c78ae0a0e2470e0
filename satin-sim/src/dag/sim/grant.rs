//! Flows: the owner places tasks by what is there, grants them ahead of their inputs, and takes back what would end earlier
//! elsewhere (F6 to F9).

use super::{ProcessorId, Sim, State, TaskId};

/// F6: tasks of a processor that can start, beside the one that runs; and, apart, tasks whose inputs are being made.
const CREDIT: usize = 2;

/// F9: the share of a task's time by which it is to end earlier elsewhere.
const LEAST_GAIN: f64 = 0.2;

impl Sim<'_> {
    pub(super) fn grant_ready_and_ahead(&mut self) {
        let live = self.believed();
        self.grant_ready(&live);
        self.withdraw(&live);
        self.grant_ahead(&live);
    }

    /// Tasks given to a processor that can start or run.
    fn startable(&self, on: ProcessorId) -> usize {
        let queue = self.processors[on].queue.iter();
        queue
            .filter(|&&task| self.progress[task].unmade == 0)
            .count()
    }

    /// Tasks given to a processor that wait for a writer.
    fn ahead(&self, on: ProcessorId) -> usize {
        self.processors[on].queue.len() - self.startable(on)
    }

    /// F8: a task goes where it would end first, the highest rank first. If that processor has no credit left, the task waits
    /// for it; others may have to wait for it in turn.
    fn grant_ready(&mut self, live: &[ProcessorId]) {
        let mut free: Vec<f64> = (0..self.world.processors)
            .map(|on| self.free_at(on))
            .collect();
        let mut credit: Vec<usize> = (0..self.world.processors)
            .map(|on| CREDIT.saturating_sub(self.startable(on)))
            .collect();
        let mut pool = std::mem::take(&mut self.pool);
        self.sort_by_priority(&mut pool);
        let mut left = Vec::new();
        for task in pool {
            if live.iter().all(|&on| credit[on] == 0) {
                left.push(task);
                continue;
            }
            let (on, end) = self.soonest(task, live, &free);
            if credit[on] == 0 {
                left.push(task);
                continue;
            }
            credit[on] -= 1;
            free[on] = free[on].max(end);
            self.progress[task].expected_end = end;
            self.grant(task, on);
        }
        self.pool = left;
    }

    /// The processor where a task would end first, and when.
    fn soonest(&self, task: TaskId, live: &[ProcessorId], free: &[f64]) -> (ProcessorId, f64) {
        let gathered = self.times_to_gather(task, live);
        let ends = live.iter().map(|&on| {
            let begin = free[on].max(self.now + gathered[on]);
            (on, begin + self.expected_time(task, on))
        });
        ends.min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("a processor lives")
    }

    /// F7: tasks whose missing inputs are running, or granted and able to start, are granted ahead. Their inputs are fetched when
    /// they are made.
    fn grant_ahead(&mut self, live: &[ProcessorId]) {
        let mut credit: Vec<usize> = (0..self.world.processors)
            .map(|on| CREDIT.saturating_sub(self.ahead(on)))
            .collect();
        if live.iter().all(|&on| credit[on] == 0) {
            return;
        }
        for &on in live {
            if let Some(run) = self.processors[on].running {
                self.progress[run.task].expected_end = self.now + self.expected_rest(on);
            }
        }
        let mut free: Vec<f64> = (0..self.world.processors)
            .map(|on| self.free_at(on))
            .collect();
        for task in self.near_tasks() {
            if live.iter().all(|&on| credit[on] == 0) {
                break;
            }
            let (on, end) = self.soonest(task, live, &free);
            if credit[on] == 0 {
                continue;
            }
            credit[on] -= 1;
            free[on] = end;
            self.progress[task].expected_end = end;
            self.grant(task, on);
        }
    }

    /// The tasks that could be granted ahead, the highest rank first.
    fn near_tasks(&self) -> Vec<TaskId> {
        let mut seen = vec![false; self.states.len()];
        let mut near = Vec::new();
        for processor in &self.processors {
            let running = processor.running.map(|run| run.task);
            for &writer in running.iter().chain(&processor.queue) {
                for &version in &self.graph.tasks[writer].outputs {
                    for reader in &self.graph.versions[version].readers {
                        let task = reader.task;
                        if !std::mem::replace(&mut seen[task], true) && self.is_near(task) {
                            near.push(task);
                        }
                    }
                }
            }
        }
        self.sort_by_priority(&mut near);
        near
    }

    fn is_near(&self, task: TaskId) -> bool {
        if self.states[task] != State::Waiting || self.progress[task].unmade == 0 {
            return false;
        }
        // The last inputs are the least likely to exist.
        let mut inputs = self.graph.tasks[task].inputs.iter().rev();
        inputs.all(|&version| {
            let writer = self.graph.versions[version].writer;
            self.holders[version] != 0
                || match self.states[writer] {
                    State::Running(_) => true,
                    State::Granted(_) => self.progress[writer].unmade == 0,
                    State::Waiting | State::Done => false,
                }
        })
    }

    /// F9: a processor with nothing to do gets the task, of those not begun, that gains most by it, if it gains enough.
    fn withdraw(&mut self, live: &[ProcessorId]) {
        for &to in live {
            if self.processors[to].running.is_some() || self.startable(to) > 0 {
                continue;
            }
            let mut best: Option<(f64, TaskId)> = None;
            for (task, end) in live.iter().flat_map(|&from| self.expected_ends(from)) {
                let time = self.expected_time(task, to);
                let here = self.now + self.times_to_gather(task, &[to])[to] + time;
                let gain = end - here;
                if gain > LEAST_GAIN * time && best.is_none_or(|(other, _)| gain > other) {
                    best = Some((gain, task));
                }
            }
            if let Some((_, task)) = best {
                self.take_back(task);
                self.outcome.withdrawn += 1;
                self.grant(task, to);
            }
        }
    }

    /// The tasks of a processor's queue that can start, and when each is expected to end.
    fn expected_ends(&self, on: ProcessorId) -> Vec<(TaskId, f64)> {
        let queue = self.processors[on].queue.iter().copied();
        let mut queue: Vec<TaskId> = queue
            .filter(|&task| self.progress[task].unmade == 0)
            .collect();
        self.sort_by_priority(&mut queue);
        let mut end = self.now + self.expected_rest(on);
        let ends = queue.into_iter().map(|task| {
            end += self.expected_time(task, on);
            (task, end)
        });
        ends.collect()
    }
}
