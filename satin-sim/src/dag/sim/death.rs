//! Deaths, and what is done again: GTP/r's rewinding, which is rule F12 of flows.

use super::{Death, Event, Input, ProcessorId, Sim, State, TaskId, Violation, only};
use crate::dag::policy::{Detection, Recovery};

impl Sim<'_> {
    /// The processor is gone. Nobody knows yet: it is still given tasks, and asked for versions.
    pub(super) fn die(&mut self, death: Death) {
        let dead = death.processor;
        self.to_come -= 1;
        self.processors[dead].is_alive = false;
        self.processors[dead].generation += 1;
        for other in 0..self.world.processors {
            for link in [self.link(dead, other), self.link(other, dead)] {
                self.links[link].generation += 1;
            }
        }
        if let Some(back) = death.back {
            self.to_come += 1;
            self.schedule(back, Event::IsBack(dead));
        }
        let missed = match self.trial.detection {
            Detection::Soon | Detection::Nodes => self.now + Detection::SOON * self.trial.reference,
            // GTP's own points find out by themselves.
            Detection::AtPoints if self.is_planned() => return,
            Detection::AtPoints => (self.now / self.period()).ceil() * self.period(),
        };
        self.schedule(missed, Event::IsMissed(dead));
    }

    /// A processor that was dead is there again, with nothing.
    pub(super) fn come_back(&mut self, processor: ProcessorId) -> Result<(), Violation> {
        self.to_come -= 1;
        if self.processors[processor].is_believed {
            self.repair(processor)?;
        }
        let back = &mut self.processors[processor];
        back.is_alive = true;
        back.is_believed = true;
        back.known_speed = back.speed;
        self.set_ranks();
        self.give_out();
        Ok(())
    }

    /// The owner has learnt that a processor is dead.
    pub(super) fn repair(&mut self, dead: ProcessorId) -> Result<(), Violation> {
        self.processors[dead].is_believed = false;
        self.clear_links(dead);
        for holders in &mut self.holders {
            *holders &= !only(dead);
        }
        for task in 0..self.states.len() {
            if self.states[task].processor() == Some(dead) {
                self.take_back(task);
            }
        }
        match self.policy.recovery() {
            Recovery::StartAgain => self.start_again(),
            Recovery::Rewind => self.rewind(),
        }
        for task in 0..self.states.len() {
            self.count_unmade(task);
        }
        self.set_ranks();
        if self.is_planned() {
            self.make_plan();
        } else {
            self.give_back_stalled();
            self.fill_pool();
            self.ask_again();
            self.give_out();
        }
        self.check()
    }

    /// What was under way from or to the dead is lost, and can be asked for elsewhere.
    fn clear_links(&mut self, dead: ProcessorId) {
        for other in 0..self.world.processors {
            self.clear_link(dead, other);
            self.clear_link(other, dead);
        }
    }

    fn clear_link(&mut self, from: ProcessorId, to: ProcessorId) {
        let graph = self.graph;
        let link = self.link(from, to);
        self.loads[link].backlog = 0.0;
        let link = &mut self.links[link];
        link.generation += 1;
        link.copies.clear();
        let current = link.current.take().map(|transfer| transfer.version);
        let lost: Vec<_> = current.into_iter().chain(link.wanted.drain(..)).collect();
        for version in lost {
            self.under_way[version] &= !only(to);
            for reader in &graph.versions[version].readers {
                let input = &mut self.progress[reader.task].inputs[reader.input];
                if self.states[reader.task] == State::Granted(to) && *input == Input::Coming {
                    *input = Input::Missing;
                }
            }
        }
    }

    /// F12. In reverse program order: a done task is rewound if an output that nobody holds is wanted by a task that is not done
    /// or is rewound itself. In this order the tasks that read an output have been looked at before its writer.
    fn rewind(&mut self) {
        for task in (0..self.states.len()).rev() {
            if self.states[task] != State::Done {
                continue;
            }
            let outputs = &self.graph.tasks[task].outputs;
            if outputs
                .iter()
                .any(|&version| self.holders[version] == 0 && self.lacks(version))
            {
                self.rewind_task(task);
            }
        }
    }

    /// Is there a task that is to run and has not gathered that version?
    fn lacks(&self, version: super::VersionId) -> bool {
        let mut readers = self.graph.versions[version].readers.iter();
        readers.any(|reader| {
            self.states[reader.task] != State::Done && !self.has_input(reader.task, reader.input)
        })
    }

    fn has_input(&self, task: TaskId, input: usize) -> bool {
        self.progress[task].inputs[input] == Input::Here
    }

    fn rewind_task(&mut self, task: TaskId) {
        debug_assert_eq!(self.states[task], State::Done);
        self.states[task] = State::Waiting;
        self.done -= 1;
        self.outcome.rewound += 1;
        self.progress[task].rewinds += 1;
        self.forget_inputs(task);
    }

    /// Without rewinding nobody knows what is lost: everything is done again.
    fn start_again(&mut self) {
        for from in 0..self.world.processors {
            for to in 0..self.world.processors {
                self.clear_link(from, to);
            }
        }
        self.holders.fill(0);
        for task in 0..self.states.len() {
            match self.states[task] {
                State::Done => self.rewind_task(task),
                _ => self.take_back(task),
            }
        }
    }

    /// F11: a grant that waits for an input which is to be made again goes back. It could fill the place of the task that makes
    /// the input.
    fn give_back_stalled(&mut self) {
        for task in 0..self.states.len() {
            let is_granted = matches!(self.states[task], State::Granted(_));
            if is_granted && self.progress[task].unmade > 0 {
                self.take_back(task);
            }
        }
    }

    /// F13: those who waited for the dead ask other holders.
    pub(super) fn ask_again(&mut self) {
        for task in 0..self.states.len() {
            self.gather(task);
        }
    }
}
