//! What happened to the nodes of a pool; each event once, however many nodes tell it.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::words;
use crate::observe::events::{Event, Record};

/// The number of events that are kept. Too small: the cause of what is seen is forgotten. Too large: pages and reports grow by what nobody reads.
pub(super) const MAX_EVENTS: usize = 5_000;

/// The time in milliseconds between two reports of the same event. Too small: an event that two nodes tell shows twice. Too large: a node that dies, comes
/// back and dies again seems to have died once.
const SAME_MS: u64 = 3_000;

/// An event, on the collector's clock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// The event itself.
    #[serde(flatten)]
    pub event: Event,
    /// The node that it happened to.
    pub name: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The event in words.
    pub text: String,
}

/// The events.
#[derive(Default)]
pub(super) struct Log {
    events: VecDeque<HistoryEvent>,
    /// The number of events that were noted, those that are forgotten too.
    noted: u64,
    /// The numbers of the events of each node, as all nodes may tell all of them.
    by_name: HashMap<String, VecDeque<u64>>,
}

impl Log {
    /// Returns the event if it is new.
    pub(super) fn add(&mut self, record: Record) -> Option<HistoryEvent> {
        let text = words::event_in_words(&record.event, &record.name)?;
        if self.is_known(&record) {
            return None;
        }
        let event = HistoryEvent {
            event: record.event,
            name: record.name,
            at_ms: record.at_ms,
            text,
        };
        let of_node = self.by_name.entry(event.name.clone()).or_default();
        of_node.push_back(self.noted);
        self.events.push_back(event.clone());
        self.noted += 1;
        if self.events.len() > MAX_EVENTS {
            self.forget_oldest();
        }
        Some(event)
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.events.pop_front() else {
            return;
        };
        if let Some(of_node) = self.by_name.get_mut(&oldest.name) {
            of_node.pop_front();
            if of_node.is_empty() {
                self.by_name.remove(&oldest.name);
            }
        }
    }

    /// The events of a node, the newest first.
    fn of_node(&self, name: &str) -> impl Iterator<Item = &HistoryEvent> + Clone {
        let first = self.noted - self.events.len() as u64;
        let numbers = self.by_name.get(name).into_iter().flatten().rev();
        numbers.map(move |number| &self.events[(number - first) as usize])
    }

    pub(super) fn since(&self, cursor: u64) -> (Vec<HistoryEvent>, u64) {
        let first = self.noted - self.events.len() as u64;
        let skipped = cursor.saturating_sub(first).min(self.events.len() as u64) as usize;
        (self.events.range(skipped..).cloned().collect(), self.noted)
    }

    fn is_known(&self, record: &Record) -> bool {
        let of_node = self.of_node(&record.name);
        let is_equal = |old: &HistoryEvent| is_same(&old.event, &record.event);
        if is_told_once(&record.event) {
            return of_node.clone().any(is_equal);
        }
        // A node that is dead is not dead once more, unless it came back meanwhile.
        let mut states = of_node.clone().filter(|old| is_state(&old.event));
        if is_state(&record.event) && states.next().is_some_and(is_equal) {
            return true;
        }
        let is_near = |old: &HistoryEvent| old.at_ms.abs_diff(record.at_ms) <= SAME_MS;
        of_node.filter(|old| is_near(old)).any(is_equal)
    }
}

/// Events that differ in what says nothing: a new master tells again what the old one may not have told.
fn is_same(old: &Event, new: &Event) -> bool {
    match (old, new) {
        (Event::Joined { .. }, Event::Joined { .. })
        | (Event::Draining { .. }, Event::Draining { .. })
        | (Event::Left { .. }, Event::Left { .. })
        | (Event::Dead { .. }, Event::Dead { .. }) => true,
        _ => old == new,
    }
}

fn is_told_once(event: &Event) -> bool {
    matches!(
        event,
        Event::Node { .. }
            | Event::Master { .. }
            | Event::RootStarted { .. }
            | Event::RootFinished { .. }
            | Event::PoolEnded { .. }
    )
}

fn is_state(event: &Event) -> bool {
    matches!(
        event,
        Event::Joined { .. } | Event::Draining { .. } | Event::Left { .. } | Event::Dead { .. }
    )
}
