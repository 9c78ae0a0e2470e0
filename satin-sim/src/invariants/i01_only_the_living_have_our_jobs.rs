//! I1: a job that is outstanding or claimed at a peer implies that the peer's life goes on in the node's view.

use super::{Invariant, Seen};

pub(super) struct OnlyTheLiving;

impl Invariant for OnlyTheLiving {
    fn name(&self) -> &'static str {
        "I1"
    }

    fn what(&self) -> &'static str {
        "what is outstanding or claimed is so at a node that is alive in my view"
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let view = seen.cluster.node(seen.node).view();
        let mut outstanding = seen.books.outstanding.iter();
        match outstanding.find(|away| !view.is_alive(away.peer)) {
            None => Ok(()),
            Some(away) => Err(format!(
                "node {} has a {:?} at {:?}, whose life is over",
                seen.node, away.kind, away.peer
            )),
        }
    }
}
