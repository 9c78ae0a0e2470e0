//! How long thefts take: from the request until jobs are here, as the thief's network thread sees it.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::node::{Message, Peer, Request, RequestKind};

/// Number of thefts that are remembered, the latest. Too small: the figures say little. Too large: memory.
const REMEMBERED: usize = 1 << 14;

/// Number of unanswered requests at which all of them are forgotten. Too small: slow thefts are not measured. Too large:
/// memory.
const OPEN: usize = 1 << 10;

/// Requests under way, and how long the last ones took that brought something.
#[derive(Default)]
pub(super) struct Thefts {
    asked: HashMap<(Peer, Request), Duration>,
    took: VecDeque<Duration>,
}

impl Thefts {
    /// Notes a message to `to` that is about to be sent.
    pub(super) fn sent(&mut self, now: Duration, to: Peer, message: &Message) {
        // One that stands waits until there is something: that is no measure of anything.
        if let Message::Steal {
            request,
            kind: RequestKind::Now,
            ..
        } = message
        {
            if self.asked.len() == OPEN {
                self.asked.clear();
            }
            self.asked.insert((to, *request), now);
        }
    }

    /// An answer came, with jobs or without.
    pub(super) fn answered(&mut self, now: Duration, from: Peer, request: Request, jobs: usize) {
        let Some(asked) = self.asked.remove(&(from, request)) else {
            return;
        };
        if jobs > 0 {
            if self.took.len() == REMEMBERED {
                self.took.pop_front();
            }
            self.took.push_back(now.saturating_sub(asked));
        }
    }

    /// Median and 99th percentile in microseconds; zero if there were none.
    pub(super) fn percentiles(&self) -> (f64, f64) {
        let mut sorted: Vec<Duration> = self.took.iter().copied().collect();
        sorted.sort_unstable();
        let at = |share: f64| {
            let place = (sorted.len().saturating_sub(1)) as f64 * share;
            sorted
                .get(place as usize)
                .map_or(0.0, |took| took.as_secs_f64() * 1e6)
        };
        (at(0.5), at(0.99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn only_thefts_that_brought_something_count() {
        let peer = NodeId(1).first_life();
        let mut thefts = Thefts::default();
        let (now, lifeline) = (RequestKind::Now, RequestKind::Lifeline);
        for (number, kind) in [(1, now), (2, now), (3, lifeline)] {
            let steal = Message::Steal {
                request: Request(number),
                most: 1,
                kind,
            };
            thefts.sent(Duration::ZERO, peer, &steal);
        }
        thefts.answered(Duration::from_micros(5), peer, Request(1), 1);
        thefts.answered(Duration::from_micros(50), peer, Request(2), 0);
        thefts.answered(Duration::from_micros(500), peer, Request(3), 1);
        assert_eq!(thefts.percentiles(), (5.0, 5.0));
    }
}
