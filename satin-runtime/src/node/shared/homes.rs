//! Processes that are gone: values and bounds that are kept for root jobs that only they would have ended go
//! with them.
//!
//! The next master calls the root jobs of a `main` again; those that other threads called die with their
//! process, and no word ever says that they are over. As long as the process is there it is asked: it has
//! said so once, and the word may be lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::super::{
    Action, Message, Peer, View,
    expiry::{Expiry, ran_out},
};
use crate::job::{Fingerprint, RootName, RootRun};

/// A process that was declared dead has so long to come back as the next generation, with its threads. Too small: what is
/// claimed of a root job that lives on comes without its bounds. Too large: memory.
const COMES_BACK: Duration = Duration::from_secs(60);

/// The processes that ended lately, each with the end of the time in which it may come back.
#[derive(Default)]
pub(crate) struct Homes {
    /// By the process's name; after that time it is gone for good.
    gone: BTreeMap<Fingerprint, Duration>,
    own: OwnRoots,
}

/// The root jobs of other threads of this process, which have numbers in the order in which they begin.
#[derive(Default)]
struct OwnRoots {
    /// The root jobs that are not over.
    under_way: BTreeSet<u32>,
    /// The number of the next root job: all that have begun have smaller ones.
    next: u32,
}

impl Homes {
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.gone.values().min().copied()
    }

    pub(crate) fn life_ended(&mut self, now: Duration, peer: Peer) {
        // The end of a life, not of the process, as far as this node knows: it may have been
        // declared dead by mistake.
        self.gone.insert(peer.id.home(), now + COMES_BACK);
    }

    /// A root job has begun here.
    pub(crate) fn root_started(&mut self, root: RootName) {
        if !root.is_of_main() {
            self.own.under_way.insert(root.number);
            self.own.next = self.own.next.max(root.number.saturating_add(1));
        }
    }

    /// Notes that a root job of this process is over.
    pub(crate) fn root_finished(&mut self, root: RootName) {
        self.own.under_way.remove(&root.number);
    }

    /// Is that root job one of this process, and over?
    fn is_over(&self, view: &View, root: RootName) -> bool {
        let of_here = root.fingerprint == view.me().peer.id.home();
        // A number that has not been given yet is that of a root job to come.
        let begun = of_here && !root.is_of_main() && root.number < self.own.next;
        begun && !self.own.under_way.contains(&root.number)
    }

    /// The root jobs among these that are of this process, and over.
    pub(crate) fn own_over<'r>(
        &self,
        view: &View,
        roots: impl IntoIterator<Item = &'r RootName>,
    ) -> Vec<RootRun> {
        let over = roots.into_iter().filter(|root| self.is_over(view, **root));
        // Such root jobs belong to no master's term.
        let over = over.map(|name| RootRun {
            term: 0,
            name: *name,
        });
        over.collect()
    }

    /// Answers another node that asks which of these root jobs are over.
    pub(crate) fn asked(&self, view: &View, roots: &[RootName]) -> Option<Message> {
        let over = self.own_over(view, roots);
        // Without an answer the asker asks again, later: that none is over need not be said.
        (!over.is_empty()).then_some(Message::RootsDone(over))
    }

    /// Asks the processes of these root jobs whether they are over. A process that is not there, and whose
    /// end this node has not seen, has ended before this node came in: it may come back as if that were now.
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        view: &View,
        roots: &BTreeSet<RootName>,
    ) -> Vec<Action> {
        let mut roots = roots.iter().filter(|root| !root.is_of_main()).peekable();
        if roots.peek().is_none() {
            return Vec::new();
        }
        let there: BTreeMap<Fingerprint, Peer> = (view.members())
            .map(|member| (member.peer.id.home(), member.peer))
            .collect();
        let mut asked: BTreeMap<Peer, Vec<RootName>> = BTreeMap::new();
        for root in roots {
            let home = root.fingerprint;
            match there.get(&home) {
                // Of its own root jobs a node needs no word.
                Some(peer) if *peer == view.me().peer => {}
                Some(peer) => asked.entry(*peer).or_default().push(*root),
                None => {
                    self.gone.entry(home).or_insert(now + COMES_BACK);
                }
            }
        }
        let asked = asked.into_iter();
        let asked = asked.map(|(peer, roots)| Action::Send(peer, Message::AreOver(roots)));
        asked.collect()
    }

    /// Has the process gone for good that alone would have ended that root job?
    pub(crate) fn is_gone(&self, view: &View, root: RootName) -> bool {
        let home = root.fingerprint;
        !root.is_of_main() && !self.gone.contains_key(&home) && !is_in(view, home)
    }

    /// The root jobs among these whose process has not come back.
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
        ran_out(Expiry::ComesBack);
        // In the view again, the process lives, and its threads with it.
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
