//! What each worker did, piece by piece; the older, the coarser.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use strum::EnumCount;

use crate::observe::look::Activity;

/// The number of spans that are kept, of 24 bytes each. Too small: little of a run is seen in detail. Too large: the node that shows the page pays with
/// its memory, and a browser that opens it gets megabytes.
pub(super) const MAX_SPANS: usize = 200_000;

/// The length of a gap, in milliseconds, over which two spans of one activity are joined. Too small: the rounding of looks cuts spans into pieces. Too
/// large: a worker seems to do what it did not.
const JOIN_MS: u64 = 5;

/// The length to which old spans are put together at first, in milliseconds. Too small: that has to be done often. Too large: detail is lost that
/// there is room for.
const FIRST_GRAIN_MS: u64 = 16;

/// The length at which putting together ends, and what is old is dropped, in milliseconds. Too small: the begin of long runs is lost. Too large: a
/// bar that means nothing stands for the begin of the run.
const LAST_GRAIN_MS: u64 = 1 << 22;

/// An interval of time in which a worker did one thing, on the collector's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistorySpan {
    /// The number of the node's row.
    pub node: u32,
    /// The worker, from 0.
    pub worker: u32,
    /// The begin, in milliseconds since 1970.
    pub start_ms: u64,
    /// The length, in milliseconds.
    pub length_ms: u32,
    /// The occupation.
    pub activity: Activity,
    /// The function of the job that ran, by its place among [`functions`](super::History::functions).
    pub function: Option<u32>,
}

impl HistorySpan {
    /// The end, in milliseconds since 1970.
    #[must_use]
    pub fn end_ms(&self) -> u64 {
        self.start_ms.saturating_add(self.length_ms.into())
    }
}

/// No function is known. Places of functions are smaller.
const NO_FUNCTION: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct KeptSpans {
    start_ms: u64,
    length_ms: u32,
    activity: Activity,
    /// The place of the function's name, or [`NO_FUNCTION`].
    function: u16,
    /// The number of its last change. Ascends along a row.
    seq: u64,
}

impl KeptSpans {
    fn end_ms(&self) -> u64 {
        self.start_ms + u64::from(self.length_ms)
    }

    /// Grows over `next`, if that is the same activity and function, without a gap.
    fn absorb(&mut self, next: &KeptSpans) -> bool {
        let is_same = next.activity == self.activity && next.function == self.function;
        if !is_same || next.start_ms > self.end_ms() + JOIN_MS {
            return false;
        }
        let Ok(length) = u32::try_from(next.end_ms() - self.start_ms) else {
            return false;
        };
        self.length_ms = length;
        self.seq = next.seq;
        true
    }
}

type Row = VecDeque<KeptSpans>;

/// The spans of all workers.
#[derive(Default)]
pub(super) struct Spans {
    rows: BTreeMap<(u32, u32), Row>,
    count: usize,
    next_seq: u64,
}

impl Spans {
    /// Returns the part of the span that nobody told of before, if there is any.
    pub(super) fn add(&mut self, span: HistorySpan) -> Option<HistorySpan> {
        let row = self.rows.entry((span.node, span.worker)).or_default();
        let told = row.back().map_or(0, KeptSpans::end_ms);
        // Offsets of clocks are known to a few milliseconds: what overlaps is cut.
        let start_ms = span.start_ms.max(told);
        let length_ms = u32::try_from(span.end_ms().checked_sub(start_ms)?).ok()?;
        if length_ms == 0 {
            return None;
        }
        let new = KeptSpans {
            start_ms,
            length_ms,
            activity: span.activity,
            function: span.function.map_or(NO_FUNCTION, |it| it as u16),
            seq: self.next_seq,
        };
        self.next_seq += 1;
        if !row.back_mut().is_some_and(|last| last.absorb(&new)) {
            row.push_back(new);
            self.count += 1;
        }
        if self.count > MAX_SPANS {
            self.make_coarser();
        }
        Some(HistorySpan {
            start_ms,
            length_ms,
            ..span
        })
    }

    pub(super) fn since(&self, cursor: u64) -> (Vec<HistorySpan>, u64) {
        let mut all = Vec::new();
        for (&(node, worker), row) in &self.rows {
            let from = row.partition_point(|kept| kept.seq < cursor);
            all.extend(row.range(from..).map(|kept| HistorySpan {
                node,
                worker,
                start_ms: kept.start_ms,
                length_ms: kept.length_ms,
                activity: kept.activity,
                function: (kept.function != NO_FUNCTION).then_some(kept.function.into()),
            }));
        }
        (all, self.next_seq)
    }

    pub(super) fn forget(&mut self, node: u32) {
        self.rows.retain(|(of_node, _), _| *of_node != node);
        self.recount();
    }

    fn recount(&mut self) {
        self.count = self.rows.values().map(VecDeque::len).sum();
    }

    /// Halves the older half: short spans are put together to longer ones, with the activity that most of that time went into. So the whole run stays
    /// in sight, the older the coarser.
    fn make_coarser(&mut self) {
        let ends = self.rows.values().flatten().map(KeptSpans::end_ms);
        let mut ends: Vec<u64> = ends.collect();
        let middle = ends.len() / 2;
        let (_, &mut until_ms, _) = ends.select_nth_unstable(middle);
        let mut grain_ms = FIRST_GRAIN_MS;
        while self.count > MAX_SPANS * 3 / 4 {
            for row in self.rows.values_mut() {
                if grain_ms <= LAST_GRAIN_MS {
                    *row = coarser(row, until_ms, grain_ms);
                } else {
                    row.retain(|kept| kept.end_ms() > until_ms);
                }
            }
            self.recount();
            if grain_ms > LAST_GRAIN_MS {
                break;
            }
            grain_ms *= 2;
        }
        self.rows.retain(|_, row| !row.is_empty());
    }
}

/// The row with spans that end until `until_ms` put together, so that few of them are shorter than `grain_ms`.
fn coarser(row: &Row, until_ms: u64, grain_ms: u64) -> Row {
    let mut new = Row::with_capacity(row.len());
    let mut group = SpanGroup::default();
    for kept in row {
        let is_open = kept.end_ms() > until_ms || u64::from(kept.length_ms) >= grain_ms;
        if is_open || !group.takes(kept, grain_ms) {
            push(&mut new, group.end());
        }
        match is_open {
            true => push(&mut new, Some(*kept)),
            false => group.add(kept),
        }
    }
    push(&mut new, group.end());
    new
}

fn push(row: &mut Row, next: Option<KeptSpans>) {
    let Some(next) = next else { return };
    if !row.back_mut().is_some_and(|last| last.absorb(&next)) {
        row.push_back(next);
    }
}

/// Short spans that become one.
#[derive(Default)]
struct SpanGroup {
    whole: Option<KeptSpans>,
    /// Milliseconds of each activity.
    sums: [u32; Activity::COUNT],
}

impl SpanGroup {
    fn takes(&self, next: &KeptSpans, grain_ms: u64) -> bool {
        self.whole.is_none_or(|whole| {
            next.end_ms() - whole.start_ms <= grain_ms && next.start_ms <= whole.end_ms() + JOIN_MS
        })
    }

    fn add(&mut self, next: &KeptSpans) {
        self.sums[next.activity as usize] += next.length_ms;
        match &mut self.whole {
            None => self.whole = Some(*next),
            Some(whole) => {
                // A group is no longer than the last grain: that fits.
                whole.length_ms = (next.end_ms() - whole.start_ms) as u32;
                whole.seq = next.seq;
                if self.sums[next.activity as usize] > self.sums[whole.activity as usize] {
                    (whole.activity, whole.function) = (next.activity, next.function);
                }
            }
        }
    }

    fn end(&mut self) -> Option<KeptSpans> {
        std::mem::take(self).whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(worker: u32, start_ms: u64, length_ms: u32, activity: Activity) -> HistorySpan {
        HistorySpan {
            node: 0,
            worker,
            start_ms,
            length_ms,
            activity,
            function: None,
        }
    }

    fn total_ms(spans: &[HistorySpan]) -> u64 {
        spans.iter().map(|span| u64::from(span.length_ms)).sum()
    }

    #[test]
    fn old_spans_become_coarser_and_no_time_is_lost() {
        let mut spans = Spans::default();
        let mut told = 0;
        // Three milliseconds of work and one of stealing, on four workers, for much longer than there is room for.
        for at in 0..(MAX_SPANS as u64) {
            for worker in 0..4 {
                spans.add(span(worker, 4 * at, 3, Activity::Run));
                spans.add(span(worker, 4 * at + 3, 1, Activity::StealNear));
                told += 4;
            }
        }
        assert!(spans.count <= MAX_SPANS);
        let (all, _) = spans.since(0);
        assert_eq!(all.len(), spans.count);
        assert_eq!(total_ms(&all), told);
        let newest = all.iter().rev().take(10);
        assert!(newest.clone().any(|span| span.length_ms == 1), "{newest:?}");
        let oldest = &all[0];
        assert_eq!((oldest.start_ms, oldest.activity), (0, Activity::Run));
    }

    #[test]
    fn spans_with_gaps_that_cannot_be_put_together_are_dropped_the_oldest_first() {
        let mut spans = Spans::default();
        let last = 3 * MAX_SPANS as u64;
        for at in 0..=last {
            spans.add(span(0, 100 * at, 1, Activity::Run));
        }
        assert!(spans.count <= MAX_SPANS);
        let (all, _) = spans.since(0);
        assert_eq!(all.last().expect("spans").start_ms, 100 * last);
    }

    #[test]
    fn jobs_of_two_functions_are_two_spans() {
        let mut spans = Spans::default();
        let of = |function, start_ms| HistorySpan {
            function: Some(function),
            ..span(0, start_ms, 10, Activity::Run)
        };
        for span in [of(3, 0), of(3, 10), of(4, 20), of(3, 30)] {
            spans.add(span);
        }
        let (all, _) = spans.since(0);
        let functions = all.iter().map(|span| (span.length_ms, span.function));
        assert!(functions.eq([(20, Some(3)), (10, Some(4)), (10, Some(3))]));
    }

    #[test]
    fn a_cursor_returns_what_is_new_or_has_grown() {
        let mut spans = Spans::default();
        spans.add(span(0, 0, 10, Activity::Run));
        spans.add(span(1, 0, 10, Activity::Idle));
        let (all, cursor) = spans.since(0);
        assert_eq!(all.len(), 2);
        assert_eq!(spans.since(cursor).0, []);
        spans.add(span(1, 12, 8, Activity::Idle));
        let (new, cursor) = spans.since(cursor);
        assert_eq!(new, [span(1, 0, 20, Activity::Idle)]);
        spans.add(span(1, 15, 10, Activity::Run));
        assert_eq!(spans.since(cursor).0, [span(1, 20, 5, Activity::Run)]);
    }
}
