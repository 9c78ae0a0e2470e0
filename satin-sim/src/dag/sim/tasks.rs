//! Tasks on processors: granted, started, done, taken back.

use super::{Event, Input, Placing, ProcessorId, Run, Sim, State, TaskId, Violation, only};

impl Sim<'_> {
    /// Gives a task to a processor, which asks for the inputs that exist.
    pub(super) fn grant(&mut self, task: TaskId, to: ProcessorId) {
        debug_assert_eq!(self.states[task], State::Waiting);
        self.states[task] = State::Granted(to);
        self.processors[to].queue.push(task);
        self.gather(task);
    }

    /// A granted task asks for all inputs that exist and have not been asked for.
    pub(super) fn gather(&mut self, task: TaskId) {
        let State::Granted(to) = self.states[task] else {
            return;
        };
        let graph = self.graph;
        for (input, &version) in graph.tasks[task].inputs.iter().enumerate() {
            if self.holders[version] != 0 {
                self.ask(task, input, to);
            }
        }
        // It has no inputs, or all were here.
        if self.progress[task].missing == 0 {
            self.start_next(to);
        }
    }

    /// Takes a task from the processor to which it was given. What it did there is lost.
    pub(super) fn take_back(&mut self, task: TaskId) {
        match self.states[task] {
            State::Granted(from) => self.processors[from].queue.retain(|&other| other != task),
            State::Running(from) => {
                self.processors[from].running = None;
                self.processors[from].generation += 1;
            }
            State::Waiting | State::Done => return,
        }
        self.states[task] = State::Waiting;
        self.forget_inputs(task);
    }

    /// What a task has gathered is not its own any more. A policy whose receivers are holders finds it where it is.
    pub(super) fn forget_inputs(&mut self, task: TaskId) {
        let progress = &mut self.progress[task];
        progress.inputs.fill(Input::Missing);
        progress.missing = progress.inputs.len();
        self.count_unmade(task);
    }

    /// Counts the inputs of a task for which a writer must run first.
    pub(super) fn count_unmade(&mut self, task: TaskId) {
        let inputs = self.graph.tasks[task].inputs.iter();
        let here = self.progress[task].inputs.iter();
        let unmade = inputs
            .zip(here)
            .filter(|&(&version, &input)| self.holders[version] == 0 && input != Input::Here);
        self.progress[task].unmade = unmade.count();
    }

    /// An idle processor starts the task of the highest priority whose inputs are here.
    pub(super) fn start_next(&mut self, on: ProcessorId) {
        let processor = &self.processors[on];
        if processor.running.is_some() || !processor.is_alive {
            return;
        }
        let can_start = processor.queue.iter().copied();
        let can_start = can_start.filter(|&task| self.progress[task].missing == 0);
        let next = can_start.max_by(|&a, &b| {
            let (first, second) = (self.progress[a].priority, self.progress[b].priority);
            first.total_cmp(&second).then(b.cmp(&a))
        });
        let Some(task) = next else { return };
        self.processors[on].queue.retain(|&other| other != task);
        self.states[task] = State::Running(on);
        self.processors[on].running = Some(Run {
            task,
            began: self.now,
            left: self.world.cost(task, on),
            since: self.now,
        });
        self.time_run(on);
    }

    /// Notes what the processor has done until now.
    pub(super) fn settle_run(&mut self, on: ProcessorId) {
        let (now, processor) = (self.now, &mut self.processors[on]);
        if let Some(run) = &mut processor.running {
            run.left = (run.left - (now - run.since) * processor.speed).max(0.0);
            run.since = now;
        }
    }

    /// Says anew when the running task ends.
    pub(super) fn time_run(&mut self, on: ProcessorId) {
        let processor = &mut self.processors[on];
        processor.generation += 1;
        let generation = processor.generation;
        if let (Some(run), true) = (processor.running, processor.is_alive) {
            let at = self.now + run.left / processor.speed;
            self.schedule(at, Event::TaskEnds { on, generation });
        }
    }

    pub(super) fn task_ends(&mut self, on: ProcessorId) -> Result<(), Violation> {
        let run = self.processors[on].running.take();
        let Run { task, began, .. } = run.expect("the event is of this generation");
        self.learn_speed(task, on, self.now - began);
        let progress = &mut self.progress[task];
        progress.runs += 1;
        progress.ran_on = on;
        self.states[task] = State::Done;
        self.done += 1;
        self.check_runs(task)?;
        let readers = self.publish(task, on);
        if self.policy.copies() {
            self.copy_outputs(task, on);
        }
        match self.policy.placing() {
            Placing::Plan => self.give_as_planned(readers),
            Placing::Pull { .. } | Placing::Grant | Placing::Steal => {
                self.ask_for(task);
                for reader in readers {
                    let is_ready = self.progress[reader].unmade == 0;
                    if is_ready
                        && self.states[reader] == State::Waiting
                        && !self.pool.contains(&reader)
                    {
                        self.pool.push(reader);
                    }
                }
            }
        }
        self.start_next(on);
        if !self.is_planned() {
            self.give_out();
        }
        Ok(())
    }

    /// The owner measures. The least speed keeps an estimate finite.
    fn learn_speed(&mut self, task: TaskId, on: ProcessorId, took: f64) {
        if !self.is_planned() && took > 0.0 {
            let known = &mut self.processors[on].known_speed;
            *known = match self.policy.knows_costs() {
                true => self.world.cost(task, on) / took,
                false => 0.8 * *known + 0.2 * self.graph.mean_cost / took,
            };
            *known = known.clamp(0.01, 1.0);
        }
    }

    /// The outputs of a task exist from now on. Gives the tasks that read them and are not done, in program order.
    fn publish(&mut self, task: TaskId, on: ProcessorId) -> Vec<TaskId> {
        let graph = self.graph;
        let mut readers = Vec::new();
        for &version in &graph.tasks[task].outputs {
            let is_new = self.holders[version] == 0;
            self.holders[version] |= only(on);
            for reader in &graph.versions[version].readers {
                if self.states[reader.task] == State::Done {
                    continue;
                }
                let progress = &mut self.progress[reader.task];
                if is_new && progress.inputs[reader.input] != Input::Here {
                    progress.unmade -= 1;
                }
                readers.push(reader.task);
            }
        }
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// Granted tasks that wait for outputs of that task ask for them.
    fn ask_for(&mut self, task: TaskId) {
        let graph = self.graph;
        for &version in &graph.tasks[task].outputs {
            for reader in &graph.versions[version].readers {
                if let State::Granted(to) = self.states[reader.task] {
                    self.ask(reader.task, reader.input, to);
                }
            }
        }
    }

    /// The pool anew: all tasks without a processor whose inputs exist.
    pub(super) fn fill_pool(&mut self) {
        let all = 0..self.graph.tasks.len();
        let ready = all
            .filter(|&task| self.states[task] == State::Waiting && self.progress[task].unmade == 0);
        self.pool = ready.collect();
    }

    /// Gives tasks of the pool to processors.
    pub(super) fn give_out(&mut self) {
        match self.policy.placing() {
            Placing::Plan | Placing::Steal => {}
            Placing::Pull { .. } => self.pull(),
            Placing::Grant => self.grant_ready_and_ahead(),
        }
    }
}
