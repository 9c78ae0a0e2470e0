//! Processes that are gone: what is kept for root jobs that only they would have ended goes with them.
//!
//! The next master calls the root jobs of a `main` again; those that other threads called die with their process, and nobody
//! ever says that they are over.

use std::{collections::BTreeMap, time::Duration};

use super::super::{
    Context, Peer,
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

    pub(crate) fn sever(&mut self, cx: &Context<'_>, peer: Peer) {
        self.gone.insert(peer.id.home(), cx.now + COMES_BACK);
    }

    /// Those of the root jobs whose process has not come back.
    pub(crate) fn orphaned(
        &mut self,
        cx: &Context<'_>,
        roots: impl Iterator<Item = RootName>,
    ) -> Vec<RootName> {
        let late = self.gone.extract_if(.., |_, until| *until <= cx.now);
        let late: Vec<Fingerprint> = late.map(|(home, _)| home).collect();
        if late.is_empty() {
            return Vec::new();
        }
        ran_out(Limit::ComesBack);
        let back = |home| {
            cx.view
                .members()
                .any(|member| member.peer.id.home() == home)
        };
        let is_orphaned = |root: &RootName| {
            let home = root.fingerprint;
            !root.is_of_main() && late.contains(&home) && !back(home)
        };
        roots.filter(is_orphaned).collect()
    }
}
