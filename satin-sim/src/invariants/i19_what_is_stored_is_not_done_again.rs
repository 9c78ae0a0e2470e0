//! I19, the second half of K3: what is in the store when all nodes die is not done again by those who go on. I18 has the first
//! half, and says why the two are the bound on what is lost.
//!
//! A job is looked at once a worker has computed a phase of it which another had computed before the loss. Jobs whose claim was
//! withdrawn are done again on purpose. It is checked as long as nothing else happens after the loss, nor can the network lose or delay
//! messages beyond measure: what becomes of single nodes is bounded otherwise. The store must answer; whether it takes writes does not
//! matter.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use satin_runtime::{
    job::{Fingerprint, JobId, JobName},
    node::cluster::Noted,
};

use super::{Invariant, Seen};

#[derive(Default)]
pub(super) struct NotAgain {
    /// So much of the journal has been read.
    read: usize,
    /// The phases that were computed, and the number of losses before the first time.
    computed: BTreeMap<(JobName, u32), u32>,
    losses: u32,
    /// The fingerprint of each job that was computed; `None` if the same place in the tree had several.
    prints: BTreeMap<JobId, Option<Fingerprint>>,
    /// The jobs whose results were in the store at the last loss.
    stored: BTreeSet<JobName>,
    /// Jobs whose claims were withdrawn since.
    at_once: BTreeSet<JobId>,
    /// Time of phases that were computed again after losses.
    again: Duration,
    checked: u64,
}

impl Invariant for NotAgain {
    fn name(&self) -> &'static str {
        "I19"
    }

    fn what(&self) -> &'static str {
        "what is in the store when all nodes die is not done again"
    }

    fn checked(&self) -> Option<u64> {
        Some(self.checked)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let journal = seen.cluster.journal();
        for note in &journal[std::mem::replace(&mut self.read, journal.len())..] {
            match &note.what {
                Noted::AllGone => {
                    self.losses += 1;
                    self.at_once.clear();
                    self.stored.clear();
                    let store = seen.cluster.store().into_iter();
                    (self.stored).extend(store.flat_map(|store| store.jobs()).cloned());
                }
                // What is still under way of it nobody wants, so it does not matter what was stored: its orphans are closed.
                Noted::RootSeen(root) => {
                    (self.stored).retain(|stored| stored.id.root_number() != *root);
                }
                Noted::AtOnce(job) => _ = self.at_once.insert(job.clone()),
                Noted::Computed { job, phase, time } => {
                    let print = self.prints.entry(job.id.clone());
                    let print = print.or_insert(Some(job.fingerprint));
                    *print = print.filter(|print| *print == job.fingerprint);
                    let first = self.computed.entry((job.clone(), *phase));
                    if *first.or_insert(self.losses) == self.losses {
                        continue;
                    }
                    self.again += *time;
                    if !seen.undisturbed || seen.store().is_none() {
                        continue;
                    }
                    self.checked += 1;
                    if let Some(above) = self.stored_at_or_above(job)
                        && at_or_above(&job.id, |at| self.at_once.contains(at)).is_none()
                    {
                        let (id, node) = (&job.id, note.node);
                        return Err(format!(
                            "node {node} has computed phase {phase} of {id} again, and the result of {above} was in the store"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl NotAgain {
    /// The topmost place at or above that job of which there was a result, if it was that of the job that is there now. Others below
    /// are dropped when they are loaded. Of places that had several jobs it is not known which is there.
    fn stored_at_or_above(&self, job: &JobName) -> Option<JobId> {
        let is_any = |at: &JobId| {
            let from = JobName::new(at.clone(), Fingerprint(0));
            let next = self.stored.range(from..).next();
            next.is_some_and(|name| name.id == *at)
        };
        let mut top = None;
        let mut from = Some(job.id.clone());
        while let Some(at) = from.and_then(|from| at_or_above(&from, is_any)) {
            let mut above = at.clone();
            from = above.pop().map(|_| above);
            top = Some(at);
        }
        let top = top?;
        let print = match top == job.id {
            true => Some(job.fingerprint),
            false => self.prints.get(&top).copied().flatten(),
        };
        let name = JobName::new(top, print?);
        self.stored.contains(&name).then_some(name.id)
    }
}

/// That job or the first one above it of which this is true.
fn at_or_above(job: &JobId, is: impl Fn(&JobId) -> bool) -> Option<JobId> {
    let mut at = job.clone();
    while !is(&at) {
        at.pop()?;
    }
    Some(at)
}
