//! A row for each node, also for those that have gone.

use std::collections::{BTreeMap, HashMap};

use strum::{EnumCount, IntoEnumIterator};

use super::{
    Figures, Gone, NodeState,
    log::HistoryEvent,
    series::{ACTIVITIES, Change},
};
use crate::observe::{
    events::{Event, NodeFigures},
    look::{Activity, KeptFigures, NodeLook, SeenNode, SiteTraffic, WhyIdle},
};

/// The number of rows of nodes that have gone. Too small: what died an hour ago is forgotten. Too large: the page of a pool on spot machines, which
/// come and go, is slow.
pub(super) const GONE_ROWS: usize = 500;

/// A node, and what it told last.
pub(super) struct Row {
    pub(super) id: u32,
    pub(super) node: SeenNode,
    pub(super) state: NodeState,
    pub(super) joined_ms: u64,
    /// The time of the last look, or of its end.
    pub(super) seen_ms: u64,
    pub(super) last: Option<Last>,
    pub(super) rates: Rates,
    /// What must be added to times of its clock to get times of the collector's; `None` before the first look.
    clock_offset_ms: Option<i64>,
}

/// What a look said.
pub(super) struct Last {
    at_ms: u64,
    pub(super) figures: NodeFigures,
    pub(super) why_idle: Vec<Option<WhyIdle>>,
    pub(super) sites: Vec<SiteTraffic>,
    pub(super) kept: KeptFigures,
}

/// What follows from the last two looks; zeros before the second.
#[derive(Clone, Default)]
pub(super) struct Rates {
    pub(super) jobs_per_s: f64,
    pub(super) bytes_sent_per_s: f64,
    pub(super) bytes_received_per_s: f64,
    /// The part of the workers' time in which they had nothing to do, from 0 to 1.
    pub(super) idle_share: Option<f64>,
    /// The part of the workers' time for each activity, from 0 to 1, in the order of [`Activity`].
    pub(super) shares: [f32; ACTIVITIES],
}

impl Row {
    pub(super) fn figures(&self) -> Figures<'_> {
        let last = self.last.as_ref();
        Figures {
            id: self.id,
            name: &self.node.name,
            site: &self.node.site,
            threads: self.node.threads,
            state: self.state,
            is_master: self.node.is_master,
            counted: last.map(|last| &last.figures),
            why_idle: last.map_or(&[], |last| &last.why_idle),
            sites: last.map_or(&[], |last| &last.sites),
            kept: last.map_or(KeptFigures::default(), |last| last.kept),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, NodeState::Left | NodeState::Dead)
    }
}

/// All rows.
#[derive(Default)]
pub(super) struct Rows {
    rows: BTreeMap<u32, Row>,
    /// The last row of each name.
    by_name: HashMap<String, u32>,
    next_id: u32,
    /// Seconds of workers that went into each reason of idleness so far, in the order of [`WhyIdle`], as far as looks can tell.
    pub(super) idle_s: [f64; WhyIdle::COUNT],
}

impl Rows {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Row> {
        self.rows.get(&id)
    }

    pub(super) fn id_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn site_of(&self, name: &str) -> Option<String> {
        let row = self.rows.get(&self.id_of(name)?)?;
        Some(row.node.site.clone())
    }

    pub(super) fn note_clock(&mut self, id: u32, offset_ms: i64) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.clock_offset_ms = Some(offset_ms);
        }
    }

    pub(super) fn clock_of(&self, id: u32) -> Option<i64> {
        self.rows.get(&id)?.clock_offset_ms
    }

    /// Returns the rows that had to make room.
    pub(super) fn note(&mut self, node: SeenNode, now_ms: u64) -> Vec<u32> {
        if node.is_master {
            for row in self.rows.values_mut() {
                row.node.is_master = false;
            }
        }
        let state = match node.is_leaving {
            true => NodeState::Draining,
            false => NodeState::Joined,
        };
        let known = self.id_of(&node.name);
        let known = known.and_then(|id| self.rows.get_mut(&id));
        if let Some(row) = known.filter(|row| !row.is_gone() || row.node.addr == node.addr) {
            if row.is_gone() {
                row.joined_ms = now_ms;
            }
            // Silence ends with an answer: others still count a silent node as a member.
            if row.state != NodeState::NoAnswer {
                row.state = state;
            }
            row.node = node;
            return Vec::new();
        }
        self.add(node, state, now_ms);
        self.make_room()
    }

    fn add(&mut self, node: SeenNode, state: NodeState, now_ms: u64) {
        let id = self.next_id;
        self.next_id += 1;
        self.by_name.insert(node.name.clone(), id);
        let row = Row {
            id,
            node,
            state,
            joined_ms: now_ms,
            seen_ms: now_ms,
            last: None,
            rates: Rates::default(),
            clock_offset_ms: None,
        };
        self.rows.insert(id, row);
    }

    fn make_room(&mut self) -> Vec<u32> {
        let gone = self.rows.values().filter(|row| row.is_gone());
        let mut gone: Vec<(u64, u32)> = gone.map(|row| (row.seen_ms, row.id)).collect();
        if gone.len() <= GONE_ROWS {
            return Vec::new();
        }
        gone.sort_unstable();
        let too_many = gone.len() - GONE_ROWS;
        let removed: Vec<u32> = gone[..too_many].iter().map(|(_, id)| *id).collect();
        for id in &removed {
            self.rows.remove(id);
            self.by_name.retain(|_, of_name| of_name != id);
        }
        removed
    }

    /// Returns what has changed since the look before, if there was one.
    pub(super) fn look(&mut self, id: u32, look: NodeLook, now_ms: u64) -> Option<Change> {
        let row = self.rows.get_mut(&id)?;
        row.state = match row.state {
            NodeState::NoAnswer if row.node.is_leaving => NodeState::Draining,
            NodeState::NoAnswer => NodeState::Joined,
            // An answer that was under way when its sender left or died.
            state => state,
        };
        row.seen_ms = row.seen_ms.max(now_ms);
        if let Some(last) = &row.last {
            let seconds = now_ms.saturating_sub(last.at_ms) as f64 / 1e3;
            for why in look.why_idle.iter().flatten() {
                self.idle_s[*why as usize] += seconds;
            }
        }
        let change = row.last.as_ref().and_then(|last| {
            // Fewer jobs than before: another process with the same name.
            let is_same = look.figures.jobs >= last.figures.jobs
                && look.figures.bytes_sent >= last.figures.bytes_sent;
            (is_same && now_ms > last.at_ms).then(|| Change {
                from_ms: last.at_ms,
                to_ms: now_ms,
                jobs: (look.figures.jobs - last.figures.jobs) as f64,
                bytes: (look.figures.bytes_sent - last.figures.bytes_sent) as f64,
            })
        });
        if let (Some(change), Some(last)) = (&change, &row.last) {
            row.rates = rates(&last.figures, &look.figures, change);
        }
        if !look.spans.is_empty() {
            row.rates.shares = shares(&look);
        }
        row.last = Some(Last {
            at_ms: now_ms,
            figures: look.figures,
            why_idle: look.why_idle,
            sites: look.sites,
            kept: look.kept,
        });
        change
    }

    /// The node has told its figures at its end.
    pub(super) fn end(&mut self, name: &str, figures: NodeFigures) {
        let row = self.id_of(name).and_then(|id| self.rows.get_mut(&id));
        if let Some(last) = row.and_then(|row| row.last.as_mut()) {
            last.figures = figures;
        }
    }

    pub(super) fn gone(&mut self, name: &str, how: Gone, now_ms: u64) {
        let Some(row) = self.id_of(name).and_then(|id| self.rows.get_mut(&id)) else {
            return;
        };
        row.state = match how {
            Gone::Left => NodeState::Left,
            Gone::Dead => NodeState::Dead,
            // What is known already says more than silence.
            Gone::Silent if row.is_gone() => return,
            Gone::Silent => NodeState::NoAnswer,
        };
        if row.is_gone() {
            row.seen_ms = now_ms;
            row.node.is_master = false;
            row.rates = Rates::default();
        }
    }

    /// The state of a node follows from what happened to it.
    pub(super) fn hear(&mut self, told: &HistoryEvent) {
        let Some(row) = self.id_of(&told.name).and_then(|id| self.rows.get_mut(&id)) else {
            return;
        };
        // Old news, of an earlier life.
        if told.at_ms < row.joined_ms {
            return;
        }
        match told.event {
            Event::Left { .. } => self.gone(&told.name, Gone::Left, told.at_ms),
            Event::Dead { .. } => self.gone(&told.name, Gone::Dead, told.at_ms),
            Event::Draining { .. } if row.state == NodeState::Joined => {
                row.state = NodeState::Draining;
                row.node.is_leaving = true;
            }
            _ => {}
        }
    }
}

fn rates(before: &NodeFigures, now: &NodeFigures, change: &Change) -> Rates {
    let seconds = (change.to_ms - change.from_ms) as f64 / 1e3;
    let received = now.bytes_received.saturating_sub(before.bytes_received);
    let worker_seconds = f64::from(now.threads.max(1)) * seconds;
    let idle_share = (now.idle_s - before.idle_s) / worker_seconds;
    Rates {
        jobs_per_s: rounded(change.jobs / seconds),
        bytes_sent_per_s: rounded(change.bytes / seconds),
        bytes_received_per_s: rounded(received as f64 / seconds),
        idle_share: Some(rounded(idle_share).clamp(0.0, 1.0)),
        shares: [0.0; ACTIVITIES],
    }
}

/// The figure to four digits behind the point: more would be bytes that say nothing.
pub(super) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

fn shares(look: &NodeLook) -> [f32; ACTIVITIES] {
    let mut sums = [0.0; ACTIVITIES];
    for span in &look.spans {
        sums[span.activity as usize] += span.length_ms as f32;
    }
    let all: f32 = sums.iter().sum();
    sums.map(|sum| if all > 0.0 { sum / all } else { 0.0 })
}

/// The activities whose share is not zero, by name.
pub(super) fn named(shares: &[f32; ACTIVITIES]) -> BTreeMap<&'static str, f32> {
    let all = Activity::iter().map(|activity| (activity.into(), shares[activity as usize]));
    all.filter(|(_, share)| *share > 0.0).collect()
}
