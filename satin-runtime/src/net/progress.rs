//! The progress of the network thread, for other threads to look at and to wait for.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{exit, observe::events::NodeFigures};

/// Number of refusals that are kept for reports. Too small: the interesting one may be gone. Too large: memory.
const REFUSALS: usize = 16;

/// The stage of this node on its way from outside to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeStage {
    Joining,
    In { is_master: bool },
    Ended(i32),
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Now {
    pub(super) stage: NodeStage,
    /// Whether this node was master when it was last seen in the pool; `None` if it has never been in.
    pub(super) was_in_as_master: Option<bool>,
    /// The term in which `main` is to be run here, until it begins.
    pub(super) turn: Option<u32>,
    /// True while the main thread waits for its turn to run `main`.
    pub(super) expects_main: bool,
    /// Number of other nodes that are to stay.
    pub(super) heirs: usize,
    /// True if this node was asked to leave, has handed over its jobs, and has not run `main` to its end; or if its pool was stopped.
    pub(super) drained: bool,
    /// True if a person or a system has asked this process to end, or `main` has panicked: a stored run is not done then.
    pub(super) broken_off: bool,
    /// The thread has done all it will do.
    pub(super) closed: bool,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) refusals: VecDeque<String>,
    pub(super) figures: NodeFigures,
}

impl Now {
    /// The exit code of a node that has ended with `code`. One that has taken `main` over from another that left, was leaving itself, and
    /// had nobody to hand over to ends with the code of the request: the run is not done.
    pub(super) fn end_code(&self, code: i32) -> i32 {
        let is_last_master = self.was_in_as_master == Some(true) && self.heirs == 0;
        match code == 0 && self.drained && is_last_master {
            true => exit::asked_code(),
            false => code,
        }
    }

    /// How the wait to be let in ended: whether this node is the master, or why it was not let in. `None` while it goes on.
    pub(super) fn entrance(&self) -> Option<Result<bool, &str>> {
        match &self.stage {
            NodeStage::Joining => None,
            NodeStage::In { is_master } => Some(Ok(*is_master)),
            // The node ended before the question was asked.
            NodeStage::Ended(_) => Some(Ok(false)),
            // If it was in when it failed, this wait has gone well: who waits for the end is told why it came.
            NodeStage::Failed(text) => Some(self.was_in_as_master.ok_or(text)),
        }
    }
}

/// The progress of the network thread, for other threads.
#[derive(Debug)]
pub(super) struct NetworkProgress {
    now: Mutex<Now>,
    pub(super) changed: Condvar,
}

impl NetworkProgress {
    pub(super) fn new() -> NetworkProgress {
        NetworkProgress {
            now: Mutex::new(Now {
                stage: NodeStage::Joining,
                was_in_as_master: None,
                turn: None,
                expects_main: false,
                heirs: 0,
                drained: false,
                broken_off: false,
                closed: false,
                connections: 0,
                refused: 0,
                refusals: VecDeque::new(),
                figures: NodeFigures::default(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Notes that this node is in, and whether it is master.
    pub(super) fn is_in(&self, is_master: bool) {
        self.change(|now| {
            now.was_in_as_master = Some(is_master);
            if !matches!(now.stage, NodeStage::Ended(_) | NodeStage::Failed(_)) {
                now.stage = NodeStage::In { is_master };
            }
        });
    }

    /// Gives the turn to run `main` to the main thread. False if that does not wait for its turn.
    pub(super) fn run_main(&self, term: u32) -> bool {
        self.change(|now| now.turn = Some(term));
        self.lock().expects_main
    }

    /// Another node is to run `main`.
    pub(super) fn yield_main(&self) {
        self.change(|now| now.turn = None);
    }

    pub(super) fn set_heirs(&self, heirs: usize) {
        self.lock().heirs = heirs;
    }

    pub(super) fn is_master(&self) -> bool {
        matches!(self.lock().stage, NodeStage::In { is_master: true })
    }

    pub(super) fn connected(&self) {
        self.lock().connections += 1;
    }

    pub(super) fn refused(&self, text: String) {
        let mut now = self.lock();
        now.refused += 1;
        now.refusals.push_back(text);
        if now.refusals.len() > REFUSALS {
            now.refusals.pop_front();
        }
    }

    pub(super) fn wait<R>(&self, until: impl Fn(&mut Now) -> Option<R>) -> R {
        let mut now = self.lock();
        loop {
            if let Some(result) = until(&mut now) {
                return result;
            }
            now = self
                .changed
                .wait(now)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn wait_for(&self, most: Duration, until: impl Fn(&Now) -> bool) -> bool {
        let now = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(now, most, |now| !until(now));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_late_is_let_in_and_hears_of_the_failure_at_the_end() {
        let fail = |progress: &NetworkProgress| {
            progress.change(|now| now.stage = NodeStage::Failed("no such run".into()));
        };
        let outside = NetworkProgress::new();
        assert_eq!(outside.lock().entrance(), None);
        fail(&outside);
        assert_eq!(outside.lock().entrance(), Some(Err("no such run")));
        for is_master in [true, false] {
            let inside = NetworkProgress::new();
            inside.is_in(is_master);
            fail(&inside);
            assert_eq!(inside.lock().entrance(), Some(Ok(is_master)));
        }
    }
}
