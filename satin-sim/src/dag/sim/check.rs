//! The invariants. They hold in this model if its policies are right; the model itself is what is checked, not the runtime.

use std::collections::HashSet;

use super::{Input, Placing, Sim, State, TaskId, members, only};
use crate::dag::policy::Policy;

/// An invariant does not hold.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("policy {policy}, at {at:.3}: {sentence}")]
pub struct Violation {
    /// The policy.
    pub policy: &'static str,
    /// The time in the run.
    pub at: f64,
    /// What is wrong.
    pub sentence: String,
}

impl Sim<'_> {
    pub(super) fn violation(&self, sentence: String) -> Violation {
        Violation {
            policy: Policy::name(self.policy),
            at: self.now,
            sentence,
        }
    }

    /// Nothing happens any more, and tasks are not done.
    pub(super) fn stuck(&self) -> Violation {
        let left = self.states.len() - self.done;
        let first = self.states.iter().position(|&state| state != State::Done);
        let first = first.unwrap_or_default();
        let (state, unmade) = (self.states[first], self.progress[first].unmade);
        self.violation(format!(
            "stuck with {left} tasks left, of which the first is {first}: {state:?}, {unmade} inputs not made"
        ))
    }

    /// Does nothing run, move, or change by itself?
    pub(super) fn is_at_rest(&self) -> bool {
        let mut processors = self.processors.iter();
        let is_idle = processors.all(|processor| {
            let is_missed = processor.is_alive == processor.is_believed;
            is_missed && (processor.running.is_none() || !processor.is_alive)
        });
        is_idle && self.to_come == 0 && self.links.iter().all(|link| link.current.is_none())
    }

    /// A task runs once, and once more for each time that it was rewound.
    pub(super) fn check_runs(&self, task: TaskId) -> Result<(), Violation> {
        let progress = &self.progress[task];
        if progress.runs == 1 + progress.rewinds {
            return Ok(());
        }
        let (runs, rewinds) = (progress.runs, progress.rewinds);
        Err(self.violation(format!(
            "task {task} has run {runs} times, and was rewound {rewinds} times"
        )))
    }

    /// All invariants that hold between two events.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.check_holders()?;
        self.check_transfers()?;
        for task in 0..self.states.len() {
            if self.states[task] != State::Done {
                self.check_inputs(task)?;
            }
        }
        Ok(())
    }

    /// Holders are processors that the owner believes in.
    fn check_holders(&self) -> Result<(), Violation> {
        let unbelieved = (0..self.world.processors).filter(|&on| !self.processors[on].is_believed);
        let unbelieved = unbelieved.fold(0, |set, on| set | only(on));
        match self
            .holders
            .iter()
            .position(|holders| holders & unbelieved != 0)
        {
            None => Ok(()),
            Some(version) => {
                let sentence = format!("a processor that is dead is a holder of version {version}");
                Err(self.violation(sentence))
            }
        }
    }

    /// What is said to be under way is on a link.
    fn check_transfers(&self) -> Result<(), Violation> {
        let mut on_links = HashSet::new();
        for (index, link) in self.links.iter().enumerate() {
            let to = index % self.world.processors;
            let current = link.current.map(|transfer| transfer.version);
            on_links.extend(
                current
                    .iter()
                    .chain(&link.wanted)
                    .map(|&version| (version, to)),
            );
        }
        for (version, &set) in self.under_way.iter().enumerate() {
            if let Some(to) = members(set).find(|&to| !on_links.contains(&(version, to))) {
                let sentence =
                    format!("version {version} is said to be under way to {to}, and is on no link");
                return Err(self.violation(sentence));
            }
        }
        Ok(())
    }

    fn check_inputs(&self, task: TaskId) -> Result<(), Violation> {
        let progress = &self.progress[task];
        let (mut missing, mut unmade) = (0, 0);
        for (&version, &input) in self.graph.tasks[task].inputs.iter().zip(&progress.inputs) {
            if input == Input::Here {
                continue;
            }
            missing += 1;
            let has_holder = self.holders[version] != 0;
            unmade += usize::from(!has_holder);
            let writer = self.graph.versions[version].writer;
            if !has_holder && self.states[writer] == State::Done {
                return Err(self.violation(format!(
                    "task {task} wants version {version}, which nobody has, and task {writer}, which wrote it, is not to run again"
                )));
            }
            self.check_grant(task, writer, has_holder)?;
            if let (Input::Coming, State::Granted(to)) = (input, self.states[task])
                && self.under_way[version] & only(to) == 0
            {
                return Err(self.violation(format!(
                    "task {task} waits for version {version}, which nobody sends"
                )));
            }
        }
        if (missing, unmade) != (progress.missing, progress.unmade) {
            return Err(self.violation(format!("the inputs of task {task} are counted wrongly")));
        }
        Ok(())
    }

    /// A grant ahead waits for a task that runs or is granted (F7, F11). A plan may give tasks long before.
    fn check_grant(&self, task: TaskId, writer: TaskId, has_holder: bool) -> Result<(), Violation> {
        let is_ahead = matches!(self.states[task], State::Granted(_)) && !has_holder;
        let waits = self.policy.placing() != Placing::Plan
            && is_ahead
            && self.states[writer].processor().is_none();
        match waits {
            false => Ok(()),
            true => Err(self.violation(format!(
                "task {task} was granted and waits for task {writer}, which was not"
            ))),
        }
    }
}
