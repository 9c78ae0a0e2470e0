//! I3: a theft's token is held by one thief. (As long as a token is outstanding a node must hold it: I8 checks that
//! when nothing is under way, and I7 all the time, as a token that no node holds is never answered.)

use std::collections::BTreeMap;

use satin_runtime::node::Deal;

use super::{Invariant, Seen};

/// The node that was seen to host the job of each deal, as the thief knows it.
#[derive(Default)]
pub(super) struct OneThief {
    thieves: BTreeMap<Deal, u32>,
}

impl Invariant for OneThief {
    fn name(&self) -> &'static str {
        "I3"
    }

    fn what(&self) -> &'static str {
        "a theft's token is held by one thief"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        for hosted in &seen.books.hosted {
            for deal in &hosted.waiters {
                let thief = *self.thieves.entry(*deal).or_insert(seen.node);
                if thief != seen.node {
                    let Deal { peer, token } = deal;
                    return Err(format!(
                        "nodes {thief} and {} both host {token:?} of {peer:?}",
                        seen.node
                    ));
                }
            }
        }
        Ok(())
    }
}
