//! `/metrics`: the figures of the pool in the text format of Prometheus.
//!
//! Names end in their unit, counters in `_total`. Of nodes that have the same name the one that came last is told.

use std::{collections::HashMap, fmt::Write};

use crate::observe::history::{Figures, History, NodeState, Picture};

/// All metrics.
#[must_use]
pub fn metrics(history: &History) -> String {
    let picture = history.picture();
    let mut text = MetricsText::default();
    of_pool(&mut text, &picture);
    of_repair(&mut text, &picture);
    of_traffic(&mut text, &picture);
    let mut by_name: HashMap<&str, Figures<'_>> = HashMap::new();
    for figures in history.figures() {
        by_name.insert(figures.name, figures);
    }
    let mut nodes: Vec<Figures<'_>> = by_name.into_values().collect();
    nodes.sort_by_key(|node| node.id);
    of_nodes(&mut text, &nodes);
    text.0
}

/// The text, as far as it is written.
#[derive(Default)]
struct MetricsText(String);

#[derive(Clone, Copy)]
enum MetricKind {
    Gauge,
    Counter,
}

impl MetricsText {
    fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
        };
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = match labels.is_empty() {
            true => labels,
            false => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: MetricKind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

fn of_pool(text: &mut MetricsText, picture: &Picture) {
    let totals = &picture.totals;
    text.family(
        "satin_nodes",
        MetricKind::Gauge,
        "Nodes by state; those that have gone stay in this count for a while.",
    );
    use NodeState::{Dead, Draining, Joined, Left, NoAnswer};
    for state in [Joined, Draining, Left, Dead, NoAnswer] {
        let nodes = picture.nodes.iter().filter(|node| node.state == state);
        text.sample(
            "satin_nodes",
            &[("state", state.into())],
            nodes.count() as f64,
        );
    }
    text.one(
        "satin_workers",
        MetricKind::Gauge,
        "Workers of all nodes.",
        totals.threads.into(),
    );
    text.one(
        "satin_hungry",
        MetricKind::Gauge,
        "Workers that have nothing to run because there is no work for them. Many of them for long: fewer nodes would do.",
        totals.hungry.into(),
    );
    text.family(
        "satin_idle_workers",
        MetricKind::Gauge,
        "Workers that have nothing to run, by reason.",
    );
    for reason in &picture.why_idle {
        let name: &str = reason.reason.into();
        text.sample(
            "satin_idle_workers",
            &[("reason", name)],
            reason.workers.into(),
        );
    }
    if let Some(progress) = picture.progress {
        text.one(
            "satin_progress_ratio",
            MetricKind::Gauge,
            "The part of the root job that is done, from 0 to 1.",
            progress.done,
        );
    }
}

fn of_repair(text: &mut MetricsText, picture: &Picture) {
    for (name, count) in picture.totals.tally.rows() {
        let name = format!("satin_{name}_total");
        text.one(
            &name,
            MetricKind::Counter,
            "What nodes did about deaths, departures and thefts; GLOSSARY.md has the words.",
            count as f64,
        );
    }
    let kept = &picture.totals.kept;
    for (name, help, value) in [
        (
            "satin_orphan_table_entries",
            "Entries of the orphan table, summed over nodes.",
            kept.orphans,
        ),
        (
            "satin_records",
            "Results that are kept for those who may be lost.",
            kept.records,
        ),
        (
            "satin_record_bytes",
            "Bytes of these results.",
            kept.record_bytes,
        ),
        (
            "satin_shared_values",
            "Shared values, counted on each node that has them.",
            kept.values,
        ),
        (
            "satin_shared_value_bytes",
            "Bytes of these values.",
            kept.value_bytes,
        ),
    ] {
        text.one(name, MetricKind::Gauge, help, value as f64);
    }
    if let Some(bytes) = kept.store_bytes {
        text.one(
            "satin_store_written_bytes_total",
            MetricKind::Counter,
            "Bytes written to the store.",
            bytes as f64,
        );
    }
}

fn of_traffic(text: &mut MetricsText, picture: &Picture) {
    text.family(
        "satin_bytes_sent_total",
        MetricKind::Counter,
        "Bytes sent between nodes, by site.",
    );
    for pair in &picture.traffic {
        text.sample(
            "satin_bytes_sent_total",
            &[("from", &pair.from), ("to", &pair.to)],
            pair.bytes as f64,
        );
    }
    text.family(
        "satin_jobs_stolen_total",
        MetricKind::Counter,
        "Jobs stolen from nodes of one site by nodes of another, or of the same.",
    );
    for pair in &picture.traffic {
        text.sample(
            "satin_jobs_stolen_total",
            &[("from", &pair.from), ("to", &pair.to)],
            pair.jobs as f64,
        );
    }
}

/// A metric that each node has: name, kind, help, and how it is read.
type OfNode = (
    &'static str,
    MetricKind,
    &'static str,
    fn(&Figures<'_>) -> Option<f64>,
);

const OF_NODES: [OfNode; 11] = [
    (
        "satin_node_up",
        MetricKind::Gauge,
        "1 if the node is in the pool.",
        |node| {
            let is_up = matches!(node.state, NodeState::Joined | NodeState::Draining);
            Some(f64::from(u8::from(is_up)))
        },
    ),
    (
        "satin_node_jobs_total",
        MetricKind::Counter,
        "Jobs from other nodes that the node ran.",
        |node| Some(node.counted?.jobs as f64),
    ),
    (
        "satin_node_given_jobs_total",
        MetricKind::Counter,
        "Jobs of the node that other nodes took.",
        |node| Some(node.counted?.given as f64),
    ),
    (
        "satin_node_near_requests_total",
        MetricKind::Counter,
        "Requests for work to nodes of the same site.",
        |node| Some(node.counted?.asked_near as f64),
    ),
    (
        "satin_node_near_jobs_total",
        MetricKind::Counter,
        "Jobs that came of them.",
        |node| Some(node.counted?.got_near as f64),
    ),
    (
        "satin_node_far_requests_total",
        MetricKind::Counter,
        "Requests for work to nodes of other sites.",
        |node| Some(node.counted?.asked_far as f64),
    ),
    (
        "satin_node_far_jobs_total",
        MetricKind::Counter,
        "Jobs that came of them.",
        |node| Some(node.counted?.got_far as f64),
    ),
    (
        "satin_node_sent_bytes_total",
        MetricKind::Counter,
        "Bytes sent to other nodes, with all overheads.",
        |node| Some(node.counted?.bytes_sent as f64),
    ),
    (
        "satin_node_received_bytes_total",
        MetricKind::Counter,
        "Bytes received from other nodes, with all overheads.",
        |node| Some(node.counted?.bytes_received as f64),
    ),
    (
        "satin_node_idle_seconds_total",
        MetricKind::Counter,
        "Time that workers had nothing to do, summed over them.",
        |node| Some(node.counted?.idle_s),
    ),
    (
        "satin_node_steal_median_seconds",
        MetricKind::Gauge,
        "Time from a request for work until jobs were here: the median of the last thefts.",
        |node| Some(node.counted?.steal_us_p50 / 1e6),
    ),
];

fn of_nodes(text: &mut MetricsText, nodes: &[Figures<'_>]) {
    for (name, kind, help, read) in OF_NODES {
        text.family(name, kind, help);
        for node in nodes {
            if let Some(value) = read(node) {
                text.sample(name, &[("node", node.name), ("site", node.site)], value);
            }
        }
    }
}
