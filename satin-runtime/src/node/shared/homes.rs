//! Processes that are gone: what is kept for root jobs that only they would have ended goes with them.
//!
//! The next master calls the root jobs of a `main` again; those that other threads called die with their process, and nobody
//! ever says that they are over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::super::{
    Peer, View,
    expiry::{Limit, ran_out},
};
use crate::job::{Fingerprint, RootName};

/// A process that was declared dead has so long to come back as the next generation, with its threads. Too small: what is
/// claimed of a root job that lives on comes without its bounds. Too large: memory.
const COMES_BACK: Duration = Duration::from_secs(60);

/// Those that ended lately, and until when they may come back.
#[derive(Default)]
pub(crate) struct Homes {
    gone: BTreeMap<Fingerprint, Duration>,
}

impl Homes {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.gone.values().min().copied()
    }

    pub(crate) fn sever(&mut self, now: Duration, peer: Peer) {
        self.gone.insert(peer.id.home(), now + COMES_BACK);
    }

    /// Has the process gone for good that alone would have ended that root job?
    pub(crate) fn is_gone(&self, view: &View, root: RootName) -> bool {
        let home = root.fingerprint;
        !root.is_of_main() && !self.gone.contains_key(&home) && !is_in(view, home)
    }

    /// Those of the root jobs whose process has not come back.
    pub(crate) fn orphaned(
        &mut self,
        now: Duration,
        view: &View,
        roots: impl Iterator<Item = RootName>,
    ) -> BTreeSet<RootName> {
        let late = self.gone.extract_if(.., |_, until| *until <= now);
        let late: Vec<Fingerprint> = late.map(|(home, _)| home).collect();
        if late.is_empty() {
            return BTreeSet::new();
        }
        ran_out(Limit::ComesBack);
        let is_orphaned = |root: &RootName| {
            let home = root.fingerprint;
            !root.is_of_main() && late.contains(&home) && !is_in(view, home)
        };
        roots.filter(is_orphaned).collect()
    }
}

fn is_in(view: &View, home: Fingerprint) -> bool {
    let mut members = view.members();
    members.any(|member| member.peer.id.home() == home)
}
