//! I8: at rest both ends of every pair agree: a job that one has outstanding at the other is hosted by that one.

use std::collections::BTreeSet;

use super::{Invariant, Run};

pub(super) struct BothEnds;

impl Invariant for BothEnds {
    fn name(&self) -> &'static str {
        "I8"
    }

    fn what(&self) -> &'static str {
        "at rest both ends of every pair agree"
    }

    fn check_end(&mut self, run: &Run<'_>) -> Result<(), String> {
        let peer = |node: &u32| run.cluster.peer(*node);
        let outstanding: BTreeSet<_> = (run.books.iter())
            .flat_map(|(node, books)| {
                let away = books.outstanding.iter();
                away.map(move |away| (peer(node), away.peer, away.token))
            })
            .collect();
        let hosted: BTreeSet<_> = (run.books.iter())
            .flat_map(|(node, books)| {
                let waiters = books.hosted.iter().flat_map(|hosted| &hosted.waiters);
                waiters.map(move |deal| (deal.peer, peer(node), deal.token))
            })
            .collect();
        if let Some((origin, thief, token)) = outstanding.difference(&hosted).next() {
            return Err(format!(
                "{origin:?} waits for {token:?} of {thief:?}, which does not host it"
            ));
        }
        if let Some((origin, thief, token)) = hosted.difference(&outstanding).next() {
            return Err(format!(
                "{thief:?} hosts {token:?} of {origin:?}, which does not wait for it"
            ));
        }
        Ok(())
    }
}
