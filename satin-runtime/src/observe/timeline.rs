//! The latest that the workers of a process have done, and what happened to its node: samples become spans, and each observer
//! reads on from where it was. No clock and no thread: the caller says what the time is.

use std::collections::VecDeque;

use super::{
    events::Record,
    look::{Arrow, Span},
};
use crate::job::occupation::Sighting;

/// Spans that are kept. Too few: an observer that comes late misses some. Too many: memory (24 bytes each).
const SPANS: usize = 1 << 14;

/// Events that are kept. Too few: an observer that comes late misses some. Too many: memory.
const EVENTS: usize = 1 << 10;

/// Arrows that are kept. Too few: an observer that comes late misses some. Too many: memory (some 100 bytes each).
const ARROWS: usize = 1 << 10;

/// A worker of which no sample was taken for so long, in milliseconds, has an unknown past. Too short: gaps where a busy machine took
/// no samples for a while. Too long: what was never seen is drawn.
const GAP_MS: u64 = 1000;

/// The latest spans, arrows and events, each with its place in the order in which they became known.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The place of the next span, arrow or event.
    next: u64,
    spans: VecDeque<(u64, Span)>,
    arrows: VecDeque<(u64, Arrow)>,
    events: VecDeque<(u64, Record)>,
    /// What each worker has been seen to do, since when, and when it was seen last.
    open: Vec<Option<Open>>,
    /// The names of the functions of spans, which name them by their place.
    functions: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    seen: Sighting,
    start_ms: u64,
    seen_ms: u64,
}

/// What became known after a place.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct News {
    /// Spans that ended.
    pub spans: Vec<Span>,
    /// Jobs of other nodes with which workers began.
    pub arrows: Vec<Arrow>,
    /// What happened.
    pub events: Vec<Record>,
    /// The names of the functions of spans, which name them by their place.
    pub functions: Vec<String>,
    /// The place from which to read on.
    pub next: u64,
}

impl Timeline {
    /// Notes what each worker does at `now_ms`, in milliseconds since 1970.
    pub fn sample(&mut self, now_ms: u64, workers: &[Sighting]) {
        self.open.resize(workers.len(), None);
        for (worker, seen) in workers.iter().enumerate() {
            match &mut self.open[worker] {
                Some(open) if open.seen == *seen && now_ms <= open.seen_ms + GAP_MS => {
                    open.seen_ms = now_ms.max(open.seen_ms);
                }
                _ => {
                    self.close(worker, now_ms);
                    self.open[worker] = Some(Open {
                        seen: *seen,
                        start_ms: now_ms,
                        seen_ms: now_ms,
                    });
                }
            }
        }
    }

    /// Ends what the worker was seen to do: now, unless nobody looked for long.
    fn close(&mut self, worker: usize, now_ms: u64) {
        let Some(open) = self.open[worker].take() else {
            return;
        };
        let end_ms = match now_ms <= open.seen_ms + GAP_MS {
            true => now_ms,
            false => open.seen_ms,
        };
        let length_ms = end_ms.saturating_sub(open.start_ms);
        if length_ms == 0 {
            return;
        }
        let span = Span {
            worker: worker as u32,
            start_ms: open.start_ms,
            length_ms: u32::try_from(length_ms).unwrap_or(u32::MAX),
            activity: open.seen.activity,
            function: open.seen.function.map(|name| self.place_of(name)),
        };
        if self.spans.len() == SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back((self.next, span));
        self.next += 1;
    }

    /// The place of that name among those of functions. Programs have few.
    fn place_of(&mut self, name: &'static str) -> u32 {
        let place = self.functions.iter().position(|known| *known == name);
        let place = place.unwrap_or_else(|| {
            self.functions.push(name);
            self.functions.len() - 1
        });
        place as u32
    }

    /// Number of workers at the last sample.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.open.len()
    }

    /// Notes the way of a job with which a worker has begun.
    pub fn arrow(&mut self, arrow: Arrow) {
        if self.arrows.len() == ARROWS {
            self.arrows.pop_front();
        }
        self.arrows.push_back((self.next, arrow));
        self.next += 1;
    }

    /// Notes what happened.
    pub fn happened(&mut self, record: Record) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back((self.next, record));
        self.next += 1;
    }

    /// What became known from that place on; what goes on is cut at this moment, and goes on in the next news.
    pub fn news(&mut self, since: u64, now_ms: u64) -> News {
        for worker in 0..self.open.len() {
            if let Some(open) = self.open[worker]
                && now_ms <= open.seen_ms + GAP_MS
            {
                self.close(worker, now_ms);
                self.open[worker] = Some(Open {
                    start_ms: now_ms.max(open.start_ms),
                    seen_ms: now_ms.max(open.seen_ms),
                    ..open
                });
            }
        }
        News {
            spans: from(&self.spans, since),
            arrows: from(&self.arrows, since),
            events: from(&self.events, since),
            functions: self.functions.iter().map(|name| (*name).into()).collect(),
            next: self.next,
        }
    }
}

/// Those from that place on.
fn from<T: Clone>(kept: &VecDeque<(u64, T)>, since: u64) -> Vec<T> {
    let first = kept.partition_point(|(place, _)| *place < since);
    kept.range(first..).map(|(_, one)| one.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{events::Event, look::Activity};

    fn span(worker: u32, start_ms: u64, length_ms: u32, activity: Activity) -> Span {
        Span {
            worker,
            start_ms,
            length_ms,
            activity,
            function: None,
        }
    }

    fn seen(activity: Activity) -> Sighting {
        Sighting {
            activity,
            function: None,
        }
    }

    #[test]
    fn equal_samples_are_one_span_and_what_goes_on_is_cut_at_each_look() {
        use Activity::{Idle, Run};
        let mut timeline = Timeline::default();
        timeline.sample(100, &[Run, Idle].map(seen));
        timeline.sample(110, &[Run, Idle].map(seen));
        timeline.sample(120, &[Idle, Idle].map(seen));
        let first = timeline.news(0, 125);
        assert_eq!(
            first.spans,
            [
                span(0, 100, 20, Run),
                span(0, 120, 5, Idle),
                span(1, 100, 25, Idle)
            ]
        );
        timeline.sample(130, &[Idle, Run].map(seen));
        let second = timeline.news(first.next, 140);
        assert_eq!(
            second.spans,
            [
                span(1, 125, 5, Idle),
                span(0, 125, 15, Idle),
                span(1, 130, 10, Run)
            ]
        );
        // Another observer reads all of it.
        assert_eq!(timeline.news(0, 140).spans.len(), 6);
    }

    #[test]
    fn a_span_ends_where_another_function_begins() {
        let runs = |function| {
            [Sighting {
                activity: Activity::Run,
                function: Some(function),
            }]
        };
        let mut timeline = Timeline::default();
        for (at_ms, function) in [(0, "gemm"), (10, "gemm"), (20, "getrf"), (30, "gemm")] {
            timeline.sample(at_ms, &runs(function));
        }
        let news = timeline.news(0, 40);
        assert_eq!(news.functions, ["gemm", "getrf"]);
        let spans = (news.spans.iter()).map(|span| (span.start_ms, span.length_ms, span.function));
        assert!(spans.eq([(0, 20, Some(0)), (20, 10, Some(1)), (30, 10, Some(0))]));
    }

    #[test]
    fn nothing_is_said_of_a_time_in_which_nobody_looked() {
        let mut timeline = Timeline::default();
        timeline.sample(0, &[seen(Activity::Run)]);
        timeline.sample(50, &[seen(Activity::Run)]);
        timeline.sample(90_000, &[seen(Activity::Run)]);
        let news = timeline.news(0, 90_010);
        assert_eq!(
            news.spans,
            [
                span(0, 0, 50, Activity::Run),
                span(0, 90_000, 10, Activity::Run)
            ]
        );
    }

    #[test]
    fn memory_is_bounded_and_events_are_read_once() {
        let mut timeline = Timeline::default();
        for at_ms in 0..2 * SPANS as u64 {
            let activity = match at_ms % 2 {
                0 => Activity::Run,
                _ => Activity::Idle,
            };
            timeline.sample(at_ms, &[seen(activity)]);
        }
        timeline.happened(Record {
            event: Event::PoolEnded { code: 0 },
            name: "a".into(),
            at_ms: 7,
        });
        for begun_ms in 0..2 * ARROWS as u64 {
            timeline.arrow(Arrow {
                from: "b".into(),
                worker: 0,
                function: "fib".into(),
                sent_ms: 0,
                came_ms: 0,
                ready_ms: 0,
                begun_ms,
            });
        }
        let news = timeline.news(0, 2 * SPANS as u64);
        assert_eq!((news.spans.len(), news.events.len()), (SPANS, 1));
        assert_eq!(news.arrows.len(), ARROWS);
        let later = timeline.news(news.next, 2 * SPANS as u64);
        assert_eq!((later.spans.len(), later.events.len()), (0, 0));
        assert_eq!(later.arrows, []);
    }
}
