//! I18, the first half of K3: what a worker has finished is in the store one period and one write later, and stays there
//! until something above it is, or the result of the root job has been seen.
//!
//! I19 is the other half: what is in the store when all nodes die is not done again. Together they are the bound of section 5 of
//! the design of stable storage, job by job instead of as a sum: a job is done again only if its result, and every one above
//! it, is younger than a period and a write, or was not kept. Those that are not kept are what live frames do themselves, and
//! children that were too quick; imaginary workers need no beats, as they keep the result of each child at once.
//!
//! The sum itself, workers x (period + write) and the rest, would be a weaker check, as what is lost too much in one place hides
//! behind what others did not lose. And it is not quite what nodes promise. When a stolen job ends, its thief forgets what
//! it has kept below, and the answer begins a new period at the origin: in a chain of thefts one result can be younger
//! than a period at each of them. So what was kept below a job counts here until a while after the job's end, if it had to be in
//! the store by then; and the job's own result begins its period where the answer arrives.
//!
//! It is checked while the store answers, no write fails and no run is done: else a write may take any time. A full batch puts
//! what does not fit off by one more cycle. A node that stops, or goes on with another run, begins its periods anew. What
//! a node that is gone had not yet to have written is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use satin_runtime::{
    job::JobId,
    node::{
        HostedId,
        cluster::{Note, Noted},
    },
};

use super::{CLOCKS, FORGETS_AFTER, Invariant, SHORTEST_PERIOD, Seen, Writes};

/// The time between two looks. Too small: seeds take longer. Too large: what is late is found late.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct StoredInTime {
    /// So much of the journal has been read.
    read: usize,
    nodes: BTreeMap<u32, SegmentWriter>,
    /// Results that need not be in the store yet.
    young: BTreeMap<Place, Young>,
    /// Results that must be, or what is above them.
    due: BTreeMap<Place, Due>,
    /// Root jobs whose results, or panics, `main` has seen.
    over: BTreeSet<u32>,
    /// When it was looked last.
    looked: Duration,
    checked: u64,
}

/// Where a result is kept: the node, the job of another node that it is a part of, and its own id.
type Place = (u32, Option<HostedId>, JobId);

/// A result that need not be in the store yet.
#[derive(Clone, Copy)]
struct Young {
    since: Duration,
    /// Full batches of its node until then.
    full: u32,
}

/// A result that must be in the store.
#[derive(Clone, Copy)]
struct Due {
    since: Duration,
    /// The job that it is a part of is over: it may be forgotten from then on.
    until: Option<Duration>,
    /// It was there.
    found: bool,
}

impl Due {
    fn of(young: Young) -> Due {
        Due {
            since: young.since,
            until: None,
            found: false,
        }
    }
}

/// A node, as far as it writes.
#[derive(Clone, Copy, Default)]
struct SegmentWriter {
    /// Since when it has a log, or has gone on after a stop.
    since: Option<Duration>,
    stopped: bool,
    full: u32,
}

impl SegmentWriter {
    /// The moment from which on a result of its must be in the store.
    fn due(&self, young: &Young, writes: Writes) -> Option<Duration> {
        let since = self.since.filter(|_| !self.stopped)?.max(young.since);
        Some(since + writes.window() + writes.cycle() * (self.full - young.full))
    }
}

impl Invariant for StoredInTime {
    fn name(&self) -> &'static str {
        "I18"
    }

    fn what(&self) -> &'static str {
        "what is finished is in the store a period and a write later"
    }

    fn checked(&self) -> Option<u64> {
        Some(self.checked)
    }

    fn check_step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let Some((store, writes)) = seen.store().filter(|(store, _)| store.failing == 0) else {
            return Ok(());
        };
        let journal = seen.cluster.journal();
        let mut forgot = false;
        for note in &journal[std::mem::replace(&mut self.read, journal.len())..] {
            forgot |= note.what == Noted::Forgot;
            self.learn(seen, note, writes);
        }
        let now = seen.cluster.now();
        let looks = now >= self.looked + LOOK;
        if looks {
            self.looked = now;
            self.grow_old(now, writes, |_| true);
        }
        if forgot {
            self.due
                .retain(|_, due| due.until.is_none_or(|until| until > now));
            self.due.values_mut().for_each(|due| due.found = false);
        }
        let missing = self.due.iter_mut().filter(|(_, due)| !due.found);
        for ((node, _, job), due) in missing {
            self.checked += 1;
            due.found = store.covers(job);
            if !due.found {
                return Err(format!(
                    "the result of {job} was kept at node {node} at {:?}, and is not in the store, nor is one above it",
                    due.since
                ));
            }
        }
        Ok(())
    }
}

impl StoredInTime {
    /// Those of these places must be in the store whose time has come.
    fn grow_old(&mut self, now: Duration, writes: Writes, which: impl Fn(&Place) -> bool) {
        let nodes = &self.nodes;
        let is_old = |place: &Place, young: &Young| {
            let writer = nodes.get(&place.0);
            let due = writer.and_then(|writer| writer.due(young, writes));
            which(place) && due.is_some_and(|due| due <= now)
        };
        let old = self
            .young
            .extract_if(.., |place, young| is_old(place, young));
        let old = old.map(|(place, young)| (place, Due::of(young)));
        self.due.extend(old);
    }

    fn learn(&mut self, seen: &Seen<'_>, note: &Note, writes: Writes) {
        let Note { at, node, ref what } = *note;
        let writer = self.nodes.entry(node).or_default();
        match what {
            Noted::Kept { job, under } => {
                let root = job.id.root_number();
                if !self.over.contains(&root) {
                    let full = writer.full;
                    let job = job.id.clone();
                    // Of two results the upper one suffices.
                    let is_below = |place: &Place| {
                        (place.0, place.1) == (node, *under) && job.is_ancestor_of(&place.2)
                    };
                    self.young.retain(|place, _| !is_below(place));
                    self.young
                        .insert((node, *under, job), Young { since: at, full });
                }
            }
            Noted::RootKept(job) => {
                let young = Young {
                    since: at,
                    full: writer.full,
                };
                self.young.insert((node, None, job.id.clone()), young);
            }
            Noted::Over { under } => {
                let is_part =
                    |place: &Place| (place.0, place.1) == (node, *under) && !place.2.is_root_job();
                self.grow_old(at, writes, is_part);
                self.young.retain(|place, _| !is_part(place));
                // The node does not forget it sooner.
                let every = seen
                    .config
                    .store_every
                    .unwrap_or_default()
                    .max(SHORTEST_PERIOD);
                let until = at + (every * 2 + FORGETS_AFTER).div_f64(CLOCKS);
                let parts = self.due.iter_mut().filter(|(place, _)| is_part(place));
                parts.for_each(|(_, due)| {
                    due.until.get_or_insert(until);
                });
            }
            Noted::RootSeen(root) => {
                let is_part =
                    |place: &Place| place.2.root_number() == *root && !place.2.is_root_job();
                self.young.retain(|place, _| !is_part(place));
                self.due.retain(|place, _| !is_part(place));
                self.over.insert(*root);
            }
            Noted::Ready => {
                writer.since = Some(at);
                writer.stopped = false;
            }
            Noted::WentOn => {
                writer.since = writer.since.map(|_| at);
                writer.stopped = false;
            }
            Noted::Stopped => {
                self.grow_old(at, writes, |place| place.0 == node);
                self.nodes.entry(node).or_default().stopped = true;
            }
            Noted::Gone => {
                self.grow_old(at, writes, |place| place.0 == node);
                self.young.retain(|place, _| place.0 != node);
            }
            // Those who go on may call the root jobs again whose results only `main` had.
            Noted::AllGone => self.over.clear(),
            Noted::Written { is_full } => writer.full += u32::from(*is_full),
            Noted::Computed { .. } | Noted::AtOnce(_) | Noted::Forgot => {}
        }
    }
}
