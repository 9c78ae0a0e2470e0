//! I6: no message is sent to a life after its end was processed.

use super::{Invariant, Seen};

pub(super) struct NothingToTheDead;

impl Invariant for NothingToTheDead {
    fn name(&self) -> &'static str {
        "I6"
    }

    fn what(&self) -> &'static str {
        "nothing is sent to a life after its end was processed"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen.cluster.sent_to_the_dead() {
            None => Ok(()),
            Some(story) => Err(story.into()),
        }
    }
}
