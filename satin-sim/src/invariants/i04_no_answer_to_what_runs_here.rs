//! I4: a job that runs here, or is done, is never settled by an answer from elsewhere: with `&mut` it would be written
//! while it runs.

use super::{Invariant, Seen};

pub(super) struct NoStrayAnswer;

impl Invariant for NoStrayAnswer {
    fn name(&self) -> &'static str {
        "I4"
    }

    fn what(&self) -> &'static str {
        "answers come only to jobs that are away"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen.cluster.stray_answer(seen.node) {
            None => Ok(()),
            Some(story) => Err(format!("node {}: {story}", seen.node)),
        }
    }
}
