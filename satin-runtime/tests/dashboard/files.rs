//! Reports and traces.

use std::collections::{BTreeMap, BTreeSet};

use satin_runtime::{
    dashboard::{report, trace},
    observe::events::{Event, Record},
};
use serde_json::{Value, json};

use super::pool::{BEGIN_MS, MadeUp};

/// The events of a trace that are of that kind.
fn events_of<'t>(trace: &'t Value, phase: &'static str) -> impl Iterator<Item = &'t Value> {
    let events = trace["traceEvents"].as_array().expect("events");
    events.iter().filter(move |event| event["ph"] == phase)
}

/// The data in a report, as its page reads it.
fn data_of(html: &str) -> Value {
    let begin = r#"<script type="application/json" id="frozen">"#;
    let (_, data) = html.split_once(begin).expect("the element");
    let (data, _) = data.split_once("</script>").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_report_has_the_whole_history() {
    let mut pool = MadeUp::new(4, 2, 2);
    (0..5).for_each(|_| pool.step());
    pool.kill("leiden-2");
    let history = pool.history.lock().expect("held by nobody");
    let data = data_of(&report::html(&history));
    let picture = serde_json::to_string(&history.picture()).expect("JSON");
    assert_eq!(
        data["picture"],
        serde_json::from_str::<Value>(&picture).expect("JSON")
    );
    assert_eq!(data["can_drain"], false);
    let spans = data["spans"].as_array().expect("spans");
    assert_eq!(spans.len() / 6, history.spans_since(0).0.len());
    let arrows = data["arrows"].as_array().expect("arrows");
    assert!(!arrows.is_empty());
    assert_eq!(arrows.len() / 8, history.arrows_since(0).0.len());
    assert_eq!(data["functions"], json!(["queens"]));
    assert_eq!(data["events"].as_array().expect("events").len(), 5);
}

#[test]
fn names_from_the_pool_do_not_end_the_element_that_they_stand_in() {
    let pool = MadeUp::new(1, 1, 1);
    let mut history = pool.history.lock().expect("held by nobody");
    let name = "</script><script>alert(1)</script><!--";
    history.note_event(Record {
        event: Event::Joined { site: "s".into() },
        name: name.into(),
        at_ms: BEGIN_MS,
    });
    let html = report::html(&history);
    assert!(!html.contains("<script>alert"));
    assert_eq!(data_of(&html)["events"][1]["name"], name);
}

#[test]
fn a_trace_has_a_process_for_each_node_and_a_thread_for_each_worker() {
    let mut pool = MadeUp::new(3, 3, 2);
    (0..3).for_each(|_| pool.step());
    let history = pool.history.lock().expect("held by nobody");
    let trace = trace::perfetto(&history);
    assert_eq!(trace["otherData"]["start_ms_since_1970"], BEGIN_MS);
    let of = |phase| events_of(&trace, phase);
    let processes = of("M").filter(|event| event["name"] == "process_name");
    let processes: BTreeMap<u64, &str> = processes
        .map(|event| {
            (
                event["pid"].as_u64().expect("a number"),
                event["args"]["name"].as_str().expect("a name"),
            )
        })
        .collect();
    assert_eq!(processes.len(), 4);
    assert_eq!(processes[&0], "pool");
    assert_eq!(processes[&2], "leiden-1 (leiden)");
    let threads = of("M").filter(|event| event["name"] == "thread_name");
    assert_eq!(threads.count(), 6);
    let tracks: BTreeSet<(u64, u64)> = of("X")
        .map(|event| {
            (
                event["pid"].as_u64().expect("a process"),
                event["tid"].as_u64().expect("a thread"),
            )
        })
        .collect();
    assert_eq!(tracks.len(), 6);
    assert_eq!(of("X").count(), history.spans_since(0).0.len());
    // Three seconds of six workers, in microseconds.
    let length: u64 = of("X")
        .map(|event| event["dur"].as_u64().expect("a length"))
        .sum();
    assert_eq!(length, 6 * 3_000_000);
    assert_eq!(of("i").count(), 3);
    let counters: BTreeSet<&str> = of("C").filter_map(|event| event["name"].as_str()).collect();
    assert_eq!(counters.len(), 3);
}

#[test]
fn a_trace_has_a_flow_for_each_arrow_from_one_slice_to_another() {
    let mut pool = MadeUp::new(3, 3, 2);
    (0..5).for_each(|_| pool.step());
    let history = pool.history.lock().expect("held by nobody");
    let trace = trace::perfetto(&history);
    let of = |phase| events_of(&trace, phase);
    let number = |event: &Value, name: &str| event[name].as_u64().expect("a number");
    // The name of the slice around a begin or an end.
    let around = |event: &Value| {
        let at = number(event, "ts");
        let is_around = |slice: &&Value| {
            let start = number(slice, "ts");
            (slice["pid"] == event["pid"] && slice["tid"] == event["tid"])
                && (start..start + number(slice, "dur")).contains(&at)
        };
        let slice = of("X").find(is_around).expect("a slice");
        [slice["name"].clone(), slice["cat"].clone()]
    };
    let ends: BTreeMap<u64, &Value> = of("f").map(|end| (number(end, "id"), end)).collect();
    assert_eq!(ends.len(), history.arrows_since(0).0.len());
    assert_eq!(of("s").count(), ends.len());
    assert_eq!(of("f").count(), ends.len());
    for begin in of("s") {
        let end = ends[&number(begin, "id")];
        assert_eq!((&begin["name"], &begin["cat"]), (&end["name"], &end["cat"]));
        assert_ne!(begin["pid"], end["pid"]);
        assert!(number(begin, "ts") <= number(end, "ts"));
        assert_eq!(end["bp"], "e");
        around(begin);
        assert_eq!(around(end), ["queens", "run_stolen"]);
    }
}
