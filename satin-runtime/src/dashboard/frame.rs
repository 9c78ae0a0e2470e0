//! What a page is told at once: a picture of the pool, and what is new since the frame before.

use serde::Serialize;
use strum::IntoEnumIterator;

use crate::observe::{
    history::{Bin, History, HistoryArrow, HistoryEvent, HistorySpan, Picture, Series},
    look::Activity,
};

/// The number of bins of a curve that are told again in each frame. Fewer than there are looks under way: late looks do not show. More: bytes.
const LATE_BINS: usize = 5;

/// What a page has been told so far.
#[derive(Default)]
pub(super) struct FrameState {
    spans: u64,
    arrows: u64,
    events: u64,
    bins: usize,
    /// The length of bins in the frame before: if that changes, all of them do.
    step_ms: u64,
}

/// The content of a frame; the page's `data.js` reads it.
#[derive(Serialize)]
pub(super) struct Frame {
    picture: Picture,
    /// True if the page may ask nodes to leave.
    can_drain: bool,
    /// The names of the activities, in the order of their numbers.
    activities: Vec<&'static str>,
    /// The time from which spans and arrows count, in milliseconds since 1970.
    base_ms: u64,
    /// For each span six numbers: node, worker, start, length, activity, and the function, or -1.
    spans: Vec<i64>,
    /// For each arrow eight numbers: the node that gave the job, the one that runs it, its worker, the function, when it began there; how long before that
    /// it was sent, came, and had what it needs.
    arrows: Vec<i64>,
    /// The names of functions, which spans and arrows name by their place.
    functions: Vec<String>,
    events: Vec<HistoryEvent>,
    series: Curves,
}

#[derive(Serialize)]
struct Curves {
    start_ms: u64,
    step_ms: u64,
    /// The place of the first of these bins; those from there on are new.
    from: usize,
    /// For each bin jobs, bytes, and the milliseconds of each activity.
    bins: Vec<Vec<f64>>,
}

impl Frame {
    /// What is new since `told`, which is brought up to date; for a page that only shows.
    pub(super) fn next(history: &History, told: &mut FrameState) -> Frame {
        let (spans, spans_told) = history.spans_since(told.spans);
        let (arrows, arrows_told) = history.arrows_since(told.arrows);
        let (events, events_told) = history.events_since(told.events);
        let starts = spans.iter().map(|span| span.start_ms);
        let begins = arrows.iter().map(|arrow| arrow.begun_ms);
        let base_ms = starts.chain(begins).min().unwrap_or(0);
        let series = curves(history.series(), told);
        *told = FrameState {
            spans: spans_told,
            arrows: arrows_told,
            events: events_told,
            bins: history.series().len(),
            step_ms: history.series().step_ms(),
        };
        Frame {
            picture: history.picture(),
            can_drain: false,
            activities: Activity::iter().map(Into::into).collect(),
            base_ms,
            spans: spans
                .iter()
                .flat_map(|span| numbers(span, base_ms))
                .collect(),
            arrows: (arrows.iter())
                .flat_map(|arrow| numbers_of_arrow(arrow, base_ms))
                .collect(),
            functions: history.functions().to_vec(),
            events,
            series,
        }
    }

    /// For a page that may ask nodes to leave, if `can_drain`.
    pub(super) fn with_steering(self, can_drain: bool) -> Frame {
        Frame { can_drain, ..self }
    }
}

fn numbers(span: &HistorySpan, base_ms: u64) -> [i64; 6] {
    [
        i64::from(span.node),
        i64::from(span.worker),
        (span.start_ms - base_ms) as i64,
        i64::from(span.length_ms),
        span.activity as i64,
        span.function.map_or(-1, i64::from),
    ]
}

fn numbers_of_arrow(arrow: &HistoryArrow, base_ms: u64) -> [i64; 8] {
    let before = |at_ms: u64| arrow.begun_ms.saturating_sub(at_ms) as i64;
    [
        i64::from(arrow.from),
        i64::from(arrow.node),
        i64::from(arrow.worker),
        i64::from(arrow.function),
        (arrow.begun_ms - base_ms) as i64,
        before(arrow.sent_ms),
        before(arrow.came_ms),
        before(arrow.ready_ms),
    ]
}

fn curves(series: &Series, told: &FrameState) -> Curves {
    let from = match told.step_ms == series.step_ms() {
        true => told.bins.saturating_sub(LATE_BINS),
        false => 0,
    };
    Curves {
        start_ms: series.start_ms(),
        step_ms: series.step_ms(),
        from,
        bins: series.bins_from(from).map(|(_, bin)| row(bin)).collect(),
    }
}

fn row(bin: &Bin) -> Vec<f64> {
    let activity = bin.activity_ms.iter().map(|ms| f64::from(*ms));
    let all = [bin.jobs, bin.bytes].into_iter().chain(activity);
    // Tenths: digits are bytes.
    all.map(|figure| (figure * 10.0).round() / 10.0).collect()
}
