//! GTP: all tasks are planned in the order of rank, each where it would end first, in the first gap that is long enough
//! (list scheduling with insertion). The plan is made anew at each rescheduling point; a task that was given to a processor moves
//! only if it gains more than a mean task takes. After Hernandez and Cole, "Reliable DAG scheduling on grids with rewinding and
//! migration" (2007), whose formulas for the costs of migration are not at hand.

use super::{Input, ProcessorId, Sim, State, TaskId, links::Times, members, only};
use crate::dag::world::PROCESSORS_MAX;

/// A time on a processor that is taken.
#[derive(Clone, Copy, Debug)]
struct TimeSlot {
    from: f64,
    until: f64,
}

/// A place for a task in the plan.
#[derive(Clone, Copy, Debug)]
struct PlannedPlace {
    on: ProcessorId,
    from: f64,
    until: f64,
}

/// A plan while it is made.
struct Draft {
    /// The place of each task that is planned already.
    places: Vec<Option<PlannedPlace>>,
    /// The taken times of each processor, in order.
    slots: Vec<Vec<TimeSlot>>,
    live: Vec<ProcessorId>,
}

impl Draft {
    /// The first gap from `earliest` on that is long enough.
    fn gap(&self, on: ProcessorId, earliest: f64, length: f64) -> f64 {
        let slots = &self.slots[on];
        let mut begin = earliest;
        for slot in slots {
            if begin + length <= slot.from {
                break;
            }
            begin = begin.max(slot.until);
        }
        begin
    }

    fn take(&mut self, place: PlannedPlace) {
        let PlannedPlace { on, from, until } = place;
        let slots = &mut self.slots[on];
        let index = slots.partition_point(|slot| slot.from < from);
        slots.insert(index, TimeSlot { from, until });
    }
}

impl Sim<'_> {
    pub(super) fn make_plan(&mut self) {
        let live = self.believed();
        let mut order: Vec<TaskId> = (0..self.states.len()).collect();
        order.retain(|&task| self.states[task] != State::Done);
        self.sort_by_priority(&mut order);
        let mut draft = Draft {
            places: vec![None; self.states.len()],
            slots: vec![Vec::new(); self.world.processors],
            live,
        };
        for on in draft.live.clone() {
            if let Some(run) = self.processors[on].running {
                let (from, until) = (self.now, self.now + self.rest_of_run(on));
                draft.take(PlannedPlace { on, from, until });
                draft.places[run.task] = Some(PlannedPlace { on, from, until });
            }
        }
        for &task in &order {
            let place = self.best_place(task, &draft);
            let is_running_there = self.states[task] == State::Running(place.on);
            if !is_running_there {
                draft.take(place);
            }
            draft.places[task] = Some(place);
            self.planned[task] = place.on;
        }
        self.follow_plan(&order);
    }

    /// The plan becomes true: tasks move, and those of which an input exists are given to their processors.
    fn follow_plan(&mut self, order: &[TaskId]) {
        for &task in order {
            if let Some(on) = self.states[task].processor()
                && on != self.planned[task]
            {
                self.take_back(task);
                self.outcome.withdrawn += 1;
                self.grant(task, self.planned[task]);
            }
        }
        for &task in order {
            if self.states[task] == State::Waiting && self.is_worth_giving(task) {
                self.grant(task, self.planned[task]);
            }
        }
        self.ask_again();
        for on in 0..self.world.processors {
            self.start_next(on);
        }
    }

    /// Data is sent to where a task will run as soon as it exists.
    fn is_worth_giving(&self, task: TaskId) -> bool {
        let inputs = &self.graph.tasks[task].inputs;
        inputs.is_empty() || inputs.iter().any(|&version| self.holders[version] != 0)
    }

    pub(super) fn give_as_planned(&mut self, readers: Vec<TaskId>) {
        for task in readers {
            match self.states[task] {
                State::Waiting => self.grant(task, self.planned[task]),
                State::Granted(_) => self.gather(task),
                State::Running(_) | State::Done => {}
            }
        }
    }

    /// The time until the running task ends, if the speed stays what it is known to be. GTP can look at the task's progress.
    fn rest_of_run(&self, on: ProcessorId) -> f64 {
        let processor = &self.processors[on];
        processor.running.map_or(0.0, |run| {
            let done = (self.now - run.since) * processor.speed;
            (run.left - done).max(0.0) / processor.known_speed
        })
    }

    fn best_place(&self, task: TaskId, draft: &Draft) -> PlannedPlace {
        // Moving costs what was gathered, or done.
        let stays = self.graph.mean_cost;
        let now_on = self.states[task].processor();
        let earliest = self.inputs_at(task, draft);
        let mut best: Option<(f64, PlannedPlace)> = None;
        for &on in &draft.live {
            let place = match (self.states[task], draft.places[task]) {
                (State::Running(running_on), Some(place)) if running_on == on => place,
                _ => {
                    let length = self.expected_time(task, on);
                    let from = draft.gap(on, earliest[on], length);
                    let until = from + length;
                    PlannedPlace { on, from, until }
                }
            };
            let bonus = if now_on == Some(on) { stays } else { 0.0 };
            let score = place.until - bonus;
            if best.is_none_or(|(other, _)| score < other) {
                best = Some((score, place));
            }
        }
        best.expect("a processor lives").1
    }

    /// The time at which all inputs of a task would be on each processor.
    fn inputs_at(&self, task: TaskId, draft: &Draft) -> Times {
        let mut latest = [self.now; PROCESSORS_MAX];
        let granted_to = match self.states[task] {
            State::Granted(to) => Some(to),
            _ => None,
        };
        for (input, &version) in self.graph.tasks[task].inputs.iter().enumerate() {
            let holders = self.holders[version];
            let size = self.graph.versions[version].size;
            let writer = draft.places[self.graph.versions[version].writer];
            for &on in &draft.live {
                let is_there = holders & only(on) != 0;
                let arrives = match self.progress[task].inputs[input] {
                    Input::Here if granted_to == Some(on) => continue,
                    _ if is_there => continue,
                    Input::Coming if granted_to == Some(on) => {
                        self.now + self.rest_of_transfer(version, on)
                    }
                    _ if holders != 0 => self.now + self.soonest_from(holders, size, on),
                    _ => self.planned_at(writer, size, on),
                };
                latest[on] = latest[on].max(arrives);
            }
        }
        latest
    }

    fn soonest_from(&self, holders: u32, size: f64, to: ProcessorId) -> f64 {
        let times = members(holders).map(|from| self.loads[self.link(from, to)].time(size));
        times.fold(f64::INFINITY, f64::min)
    }

    /// The time at which an output that is not made yet would be on a processor.
    fn planned_at(&self, writer: Option<PlannedPlace>, size: f64, to: ProcessorId) -> f64 {
        match writer {
            // It is done, and only the task itself has its output where it is: nowhere else can the task run.
            None => f64::INFINITY,
            Some(place) if place.on == to => place.until,
            Some(place) => place.until + size * self.loads[self.link(place.on, to)].slowness,
        }
    }
}
