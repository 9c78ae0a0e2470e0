//! The trace of a run in the format of Chrome's trace events, which [Perfetto](https://ui.perfetto.dev) opens: a process for each node, a thread for
//! each worker, a slice for each span with the name of its function, a flow for each arrow, an instant for each event, and the pool's rates as counters.
//!
//! Times are in microseconds since the first span or event; `otherData` says when that was.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use strum::IntoEnumIterator;

use crate::observe::{
    history::{History, HistoryArrow, HistoryEvent, HistorySpan, Series},
    look::Activity,
};

/// The process of what is not one node's.
const POOL: u32 = 0;

/// The time in milliseconds after the begin of a job in which a sample may first see that it runs. Too small: arrows point at what the worker did before.
/// Too large: they point at the next job.
const SEEN_LATE_MS: u64 = 25;

/// The trace as JSON.
#[must_use]
pub fn perfetto(history: &History) -> Value {
    let (spans, _) = history.spans_since(0);
    let (events, _) = history.events_since(0);
    let starts = spans.iter().map(|span| span.start_ms);
    let start_ms = starts.chain(events.iter().map(|event| event.at_ms)).min();
    let start_ms = start_ms.unwrap_or(0);
    let mut all = names(history, &spans);
    all.extend(spans.iter().map(|span| slice(history, span, start_ms)));
    all.extend(flows(history, &spans, start_ms));
    all.extend(events.iter().map(|event| instant(history, event, start_ms)));
    all.extend(counters(history.series(), start_ms));
    json!({
        "traceEvents": all,
        "displayTimeUnit": "ms",
        "otherData": { "pool": history.picture().pool, "start_ms_since_1970": start_ms },
    })
}

/// Processes are numbered from 1: 0 is the pool.
fn process(node: u32) -> u32 {
    node + 1
}

fn names(history: &History, spans: &[HistorySpan]) -> Vec<Value> {
    let name = |what: &str, pid: u32, tid: u32, name: String| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
    let mut all = vec![name("process_name", POOL, 0, "pool".into())];
    for node in history.figures() {
        let title = format!("{} ({})", node.name, node.site);
        all.push(name("process_name", process(node.id), 0, title));
    }
    let workers: BTreeSet<(u32, u32)> = spans.iter().map(|span| (span.node, span.worker)).collect();
    let workers = workers.into_iter().map(|(node, worker)| {
        let title = format!("worker {worker}");
        name("thread_name", process(node), worker + 1, title)
    });
    all.extend(workers);
    all
}

fn microseconds(at_ms: u64, start_ms: u64) -> u64 {
    at_ms.saturating_sub(start_ms) * 1_000
}

/// Its name is that of the function, as far as there is one, its category the activity.
fn slice(history: &History, span: &HistorySpan, start_ms: u64) -> Value {
    let activity: &str = span.activity.into();
    let function = (span.function).and_then(|place| history.functions().get(place as usize));
    json!({
        "ph": "X", "name": function.map_or(activity, String::as_str), "cat": activity,
        "pid": process(span.node), "tid": span.worker + 1,
        "ts": microseconds(span.start_ms, start_ms),
        "dur": u64::from(span.length_ms) * 1_000,
    })
}

/// The slices of each worker, by time.
struct Slices<'s>(BTreeMap<(u32, u32), Vec<&'s HistorySpan>>);

impl<'s> Slices<'s> {
    fn of(spans: &'s [HistorySpan]) -> Slices<'s> {
        let mut slices: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for span in spans {
            slices
                .entry((span.node, span.worker))
                .or_default()
                .push(span);
        }
        Slices(slices)
    }

    /// What the workers of a node did, the first worker first.
    fn of_node(&self, node: u32) -> impl Iterator<Item = &[&'s HistorySpan]> {
        let workers = self.0.range((node, 0)..=(node, u32::MAX));
        workers.map(|(_, slices)| &slices[..])
    }

    /// A slice of any worker of the node which gave that job, at the time at which it did.
    fn giving(&self, arrow: &HistoryArrow) -> Option<&'s HistorySpan> {
        let at_ms = arrow.sent_ms;
        let mut workers = self.of_node(arrow.from);
        workers.find_map(|slices| slice_at(slices, at_ms))
    }

    /// The slice of the worker that runs the job, and the time in it at which the arrow ends.
    fn running(&self, arrow: &HistoryArrow) -> Option<(&'s HistorySpan, u64)> {
        let slices = self.0.get(&(arrow.node, arrow.worker))?;
        let begun_ms = arrow.begun_ms;
        let at_begin = slice_at(slices, begun_ms)?;
        if at_begin.activity == Activity::RunStolen {
            return Some((at_begin, begun_ms));
        }
        // Samples see a job a little after its begin.
        let next = slices.partition_point(|slice| slice.start_ms < begun_ms);
        let soon = (slices[next..].iter())
            .take_while(|slice| slice.start_ms <= begun_ms + SEEN_LATE_MS)
            .find(|slice| slice.activity == Activity::RunStolen);
        Some(soon.map_or((at_begin, begun_ms), |slice| (*slice, slice.start_ms)))
    }
}

fn slice_at<'s>(slices: &[&'s HistorySpan], at_ms: u64) -> Option<&'s HistorySpan> {
    let place = slices.partition_point(|slice| slice.end_ms() <= at_ms);
    let slice = *slices.get(place)?;
    (slice.start_ms <= at_ms).then_some(slice)
}

/// A begin and an end for each arrow, in slices: Perfetto draws none that begins or ends outside of all slices, so these are left out.
fn flows(history: &History, spans: &[HistorySpan], start_ms: u64) -> Vec<Value> {
    let slices = Slices::of(spans);
    let (arrows, _) = history.arrows_since(0);
    let mut all = Vec::new();
    for (id, arrow) in arrows.iter().enumerate() {
        let (Some(giving), Some((running, end_ms))) = (slices.giving(arrow), slices.running(arrow))
        else {
            continue;
        };
        let flow = |phase: &str, slice: &HistorySpan, at_ms: u64| {
            json!({
                "ph": phase, "id": id, "cat": "job",
                "name": history.functions()[arrow.function as usize],
                "pid": process(slice.node), "tid": slice.worker + 1,
                "ts": microseconds(at_ms, start_ms),
            })
        };
        let begin = flow("s", giving, arrow.sent_ms);
        let mut end = flow("f", running, end_ms);
        // "e": the end belongs to the slice around it, not to the next one.
        end["bp"] = json!("e");
        all.extend([begin, end]);
    }
    all
}

fn instant(history: &History, event: &HistoryEvent, start_ms: u64) -> Value {
    let node = history
        .figures()
        .filter(|node| node.name == event.name)
        .last();
    // "p": the instant is drawn across a process; "g": across all.
    let (pid, scope) = node.map_or((POOL, "g"), |node| (process(node.id), "p"));
    json!({
        "ph": "i", "s": scope, "name": event.text, "cat": "pool",
        "pid": pid, "tid": 0, "ts": microseconds(event.at_ms, start_ms),
    })
}

fn counters(series: &Series, start_ms: u64) -> Vec<Value> {
    let seconds = series.step_ms() as f64 / 1e3;
    let mut all = Vec::new();
    for (place, bin) in series.bins_from(0) {
        let at_ms = series.start_ms() + place as u64 * series.step_ms();
        let mut counter = |name: &str, args: Value| {
            all.push(json!({
                "ph": "C", "name": name, "pid": POOL, "ts": microseconds(at_ms, start_ms), "args": args,
            }));
        };
        counter(
            "jobs between nodes per second",
            json!({ "jobs": bin.jobs / seconds }),
        );
        counter(
            "bytes between nodes per second",
            json!({ "bytes": bin.bytes / seconds }),
        );
        let workers = Activity::iter().map(|activity| {
            let name: &str = activity.into();
            let ms = f64::from(bin.activity_ms[activity as usize]);
            (name.to_string(), json!(ms / series.step_ms() as f64))
        });
        counter("workers", Value::Object(workers.collect()));
    }
    all
}
