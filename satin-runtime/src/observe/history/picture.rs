//! The pool at one moment, as `GET /api/status` tells it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator;

use super::{
    History,
    rows::{self, Row},
    words::{advice_of, reason_in_words},
};
use crate::{
    job::Tally,
    observe::{
        advice::Evidence,
        look::{KeptFigures, WhyIdle},
    },
};

/// A pool at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Picture {
    /// The name of the pool.
    pub pool: String,
    /// The time of what was told last, in milliseconds since 1970.
    pub now_ms: u64,
    /// How far the root job is; `None` while none runs.
    pub progress: Option<PoolProgress>,
    /// The exit code of the pool, once it has ended.
    pub ended: Option<i32>,
    /// The name of the node that runs `main`.
    pub master: Option<String>,
    /// The nodes, also those that have gone, in the order in which they came.
    pub nodes: Vec<NodePicture>,
    /// The sites, by name.
    pub sites: Vec<SitePicture>,
    /// Jobs and bytes between sites; pairs without any are left out.
    pub traffic: Vec<TrafficPicture>,
    /// The reasons why workers have nothing to run, the most frequent first.
    pub why_idle: Vec<IdleReason>,
    /// The idle share of the pool, and its main reason, in words.
    pub conclusion: String,
    /// Sums over all nodes.
    pub totals: Totals,
    /// The run so far, from its begin on: what a report says at the end, when all nodes have left.
    pub run: RunPicture,
}

/// A run from its begin on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunPicture {
    /// Seconds since the pool was first seen.
    pub seconds: f64,
    /// Number of nodes that were seen, as far as they have rows.
    pub nodes: u32,
    /// The time of all workers, in seconds.
    pub worker_seconds: f64,
    /// The part of that time, from 0 to 1, in which they had nothing to do; `None` without figures.
    pub idle_share: Option<f64>,
    /// The reasons why workers had nothing to run, those that took most time first.
    pub why_idle: Vec<IdleTime>,
    /// The idle share and its main reason, in words.
    pub conclusion: String,
}

/// The time that went into a reason of idleness.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IdleTime {
    /// The reason.
    pub reason: WhyIdle,
    /// Seconds of workers, as far as looks can tell: the reason at the moment of a look stands for the time since the look before.
    pub seconds: f64,
    /// The reason in words.
    pub words: String,
    /// What a person can do about it.
    pub advice: String,
}

/// How far the root job is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PoolProgress {
    /// The part that is done, from 0 to 1.
    pub done: f64,
    /// Seconds that the root job has run, where that was told.
    pub seconds: Option<f64>,
    /// Is the part a guess?
    pub is_guess: bool,
}

/// What is known of whether a node is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NodeState {
    /// The node is in the pool.
    Joined,
    /// The node is about to leave.
    Draining,
    /// The node left on purpose.
    Left,
    /// The node died.
    Dead,
    /// The node does not answer, and nobody has said what became of it.
    NoAnswer,
}

/// A node at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodePicture {
    /// The number of its row: another node never gets it.
    pub id: u32,
    /// The name of the node.
    pub name: String,
    /// The node's site.
    pub site: String,
    /// The address at which other nodes reach it.
    pub addr: std::net::SocketAddr,
    /// Number of its workers.
    pub threads: u32,
    /// Is the node there?
    pub state: NodeState,
    /// True if the node runs `main`.
    pub is_master: bool,
    /// When the node was first seen, in milliseconds since 1970.
    pub joined_ms: u64,
    /// When the node was last heard of, in milliseconds since 1970.
    pub seen_ms: u64,
    /// Jobs from other nodes that it runs, per second.
    pub jobs_per_s: f64,
    /// Bytes that it sends to other nodes, per second.
    pub bytes_sent_per_s: f64,
    /// Bytes that it receives from other nodes, per second.
    pub bytes_received_per_s: f64,
    /// The part of its workers' time, from 0 to 1, in which they had nothing to do; `None` before the second look.
    pub idle_share: Option<f64>,
    /// The same for all of the time that the node was there; `None` before the first look.
    pub run_idle_share: Option<f64>,
    /// The part of its workers' time, from 0 to 1, for each activity that took any.
    pub activity: BTreeMap<String, f32>,
    /// The reasons why its workers have nothing to run, the most frequent first.
    pub why_idle: Vec<IdleReason>,
    /// These reasons in words; empty if all workers run something.
    pub why: String,
    /// Jobs from other nodes that it ran so far.
    pub jobs: u64,
    /// Jobs of its own that other nodes took so far.
    pub given: u64,
    /// Bytes sent to other nodes so far.
    pub bytes_sent: u64,
    /// Bytes received from other nodes so far.
    pub bytes_received: u64,
    /// Time from a request for work until jobs were here: the median of the last thefts, in microseconds.
    pub steal_us_p50: f64,
    /// What it keeps for others.
    pub kept: KeptFigures,
}

/// A reason why workers have nothing to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdleReason {
    /// The reason.
    pub reason: WhyIdle,
    /// Number of workers that have it.
    pub workers: u32,
    /// The reason in words.
    pub words: String,
    /// What a person can do about it.
    pub advice: String,
}

/// A site at one moment. Nodes that have gone do not count.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SitePicture {
    /// The name of the site.
    pub name: String,
    /// Number of its nodes.
    pub nodes: u32,
    /// Number of their workers.
    pub threads: u32,
    /// The part of the workers' time, from 0 to 1, in which they had nothing to do; `None` before the second look.
    pub idle_share: Option<f64>,
    /// Jobs from other nodes that its nodes run, per second.
    pub jobs_per_s: f64,
    /// Bytes that its nodes send, per second.
    pub bytes_sent_per_s: f64,
}

/// What went from the nodes of one site to those of another, or of the same, so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrafficPicture {
    /// The site of those who sent.
    pub from: String,
    /// The site of those who received.
    pub to: String,
    /// Bytes that were sent. Both ends count; as a node that died has not told its last, the larger number counts.
    pub bytes: u64,
    /// Jobs that were stolen from there.
    pub jobs: u64,
}

/// Sums over all nodes; what was counted by nodes that have gone counts, what they kept does not.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of nodes that are there.
    pub nodes: u32,
    /// Number of their workers.
    pub threads: u32,
    /// The part of the workers' time, from 0 to 1, in which they had nothing to do; `None` before the second look.
    pub idle_share: Option<f64>,
    /// Jobs from other nodes that are run, per second.
    pub jobs_per_s: f64,
    /// Bytes that are sent, per second.
    pub bytes_sent_per_s: f64,
    /// Jobs from other nodes that were run.
    pub jobs: u64,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Workers that have nothing to run because there was no work for them.
    pub hungry: u32,
    /// What is kept for others.
    pub kept: KeptFigures,
    /// Counts of what nodes did about deaths and departures.
    pub tally: Tally,
}

pub(super) fn of(history: &History) -> Picture {
    let rows: Vec<&Row> = history.rows.iter().collect();
    let mut idle = IdleReasons::default();
    for row in rows.iter().filter(|row| is_there(row)) {
        idle.count(row);
    }
    let seen = evidence(history, &rows);
    let why_idle = idle.sorted(&seen);
    let totals = totals(&rows, &why_idle);
    let master = rows.iter().find(|row| row.node.is_master);
    Picture {
        pool: history.pool.clone(),
        now_ms: history.now_ms,
        progress: progress(history, master.copied(), totals.idle_share),
        ended: history.ended,
        master: master.map(|row| row.node.name.clone()),
        conclusion: conclusion(totals.idle_share, why_idle.first().map(|why| why.reason)),
        run: run(history, &rows, &seen),
        nodes: rows.iter().map(|row| node(row, &seen)).collect(),
        sites: sites(&rows),
        traffic: traffic(&rows),
        why_idle,
        totals,
    }
}

/// What is known of the pool for advice: a node whose memory was full has a limit.
fn evidence(history: &History, rows: &[&Row]) -> Evidence {
    let mut seen = Evidence {
        memory_is_limited: history.rows.idle_s[WhyIdle::MemoryFull as usize] > 0.0,
        ..Evidence::default()
    };
    for last in rows.iter().filter_map(|row| row.last.as_ref()) {
        let figures = &last.figures;
        seen.threads += figures.threads;
        seen.jobs += figures.jobs;
        seen.came += figures.got_near + figures.got_far;
        seen.stayed += figures.tally.not_worth;
        seen.repairs += figures.tally.repairs;
    }
    seen
}

fn is_there(row: &Row) -> bool {
    matches!(row.state, NodeState::Joined | NodeState::Draining)
}

/// What the master counts is newer than what it told in an event, which says more. A master that is about to leave, or has just begun, runs no
/// root job while the workers go on with that of `main`.
fn progress(
    history: &History,
    master: Option<&Row>,
    idle_share: Option<f64>,
) -> Option<PoolProgress> {
    let told = history.progress;
    let master = master.filter(|row| is_there(row));
    let last = master.and_then(|row| row.last.as_ref());
    let is_busy = idle_share.is_some_and(|idle| idle < BUSY);
    match last.map(|last| last.figures.done) {
        Some(Some(done)) => Some(PoolProgress {
            done,
            seconds: told.and_then(|told| told.seconds),
            is_guess: told.is_some_and(|told| told.is_guess),
        }),
        Some(None) if !is_busy => None,
        _ => told.map(|told| PoolProgress {
            is_guess: true,
            ..told
        }),
    }
}

/// A pool is at work if its workers had nothing to do for less than that part of their time. Too small: people read that nothing is under way
/// while it is. Too large: a job that is over seems to go on.
const BUSY: f64 = 0.5;

fn node(row: &Row, seen: &Evidence) -> NodePicture {
    let mut idle = IdleReasons::default();
    if is_there(row) {
        idle.count(row);
    }
    let why_idle = idle.sorted(seen);
    let counted = row.last.as_ref().map(|last| last.figures);
    let counted = counted.unwrap_or_default();
    let shares = rows::named(&row.rates.shares);
    NodePicture {
        id: row.id,
        name: row.node.name.clone(),
        site: row.node.site.clone(),
        addr: row.node.addr,
        threads: row.node.threads,
        state: row.state,
        is_master: row.node.is_master,
        joined_ms: row.joined_ms,
        seen_ms: row.seen_ms,
        jobs_per_s: row.rates.jobs_per_s,
        bytes_sent_per_s: row.rates.bytes_sent_per_s,
        bytes_received_per_s: row.rates.bytes_received_per_s,
        idle_share: row.rates.idle_share,
        run_idle_share: idle_of_run([row].into_iter()).share(),
        activity: (shares.into_iter())
            .map(|(name, share)| (name.to_string(), share))
            .collect(),
        why: why(&why_idle, row.node.threads),
        why_idle,
        jobs: counted.jobs,
        given: counted.given,
        bytes_sent: counted.bytes_sent,
        bytes_received: counted.bytes_received,
        steal_us_p50: counted.steal_us_p50,
        kept: row.figures().kept,
    }
}

fn why(reasons: &[IdleReason], threads: u32) -> String {
    let idle: u32 = reasons.iter().map(|reason| reason.workers).sum();
    let Some(first) = reasons.first() else {
        return String::new();
    };
    if reasons.len() == 1 {
        return format!("{idle} of {threads} workers idle: {}", first.words);
    }
    let parts = reasons
        .iter()
        .map(|reason| format!("{} ({})", reason.words, reason.workers));
    let parts: Vec<String> = parts.collect();
    format!("{idle} of {threads} workers idle: {}", parts.join("; "))
}

fn conclusion(idle_share: Option<f64>, main_reason: Option<WhyIdle>) -> String {
    let Some(idle) = idle_share else {
        return "no figures yet".into();
    };
    let percent = (100.0 * idle).round();
    match main_reason {
        Some(why) if percent >= 1.0 => {
            format!("{percent} % idle; most often {}", reason_in_words(why))
        }
        _ => format!("{percent} % idle"),
    }
}

fn run(history: &History, rows: &[&Row], seen: &Evidence) -> RunPicture {
    let idle = idle_of_run(rows.iter().copied());
    let times = WhyIdle::iter().map(|reason| IdleTime {
        reason,
        seconds: history.rows.idle_s[reason as usize],
        words: reason_in_words(reason).into(),
        advice: advice_of(reason, seen).into(),
    });
    let mut why_idle: Vec<IdleTime> = times.filter(|time| time.seconds > 0.0).collect();
    why_idle.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let start_ms = history.start_ms.unwrap_or(history.now_ms);
    RunPicture {
        seconds: history.now_ms.saturating_sub(start_ms) as f64 / 1e3,
        nodes: rows.len() as u32,
        worker_seconds: rows::rounded(idle.workers),
        idle_share: idle.share(),
        conclusion: conclusion(idle.share(), why_idle.first().map(|time| time.reason)),
        why_idle,
    }
}

/// The time of the workers of these nodes since they were started.
fn idle_of_run<'a>(rows: impl Iterator<Item = &'a Row>) -> IdleSum {
    let mut sum = IdleSum::default();
    for last in rows.filter_map(|row| row.last.as_ref()) {
        let all = f64::from(last.figures.threads) * last.figures.seconds;
        sum.workers += all;
        // Workers count their own time: rounding must not make it more than there was.
        sum.idle += last.figures.idle_s.min(all);
    }
    sum
}

/// How many workers have which reason.
#[derive(Default)]
struct IdleReasons(BTreeMap<&'static str, (Option<WhyIdle>, u32)>);

impl IdleReasons {
    fn count(&mut self, row: &Row) {
        let why_idle = row.last.iter().flat_map(|last| &last.why_idle);
        for why in why_idle.flatten() {
            let entry = self.0.entry((*why).into()).or_default();
            *entry = (Some(*why), entry.1 + 1);
        }
    }

    fn sorted(self, seen: &Evidence) -> Vec<IdleReason> {
        let reasons = WhyIdle::iter().filter_map(|reason| {
            let (_, workers) = *self.0.get(<&str>::from(reason))?;
            Some(IdleReason {
                reason,
                workers,
                words: reason_in_words(reason).into(),
                advice: advice_of(reason, seen).into(),
            })
        });
        let mut reasons: Vec<IdleReason> = reasons.collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.workers));
        reasons
    }
}

/// The idle time of several nodes, each weighed by its workers.
#[derive(Default)]
struct IdleSum {
    /// Workers, or seconds of workers.
    workers: f64,
    idle: f64,
}

impl IdleSum {
    fn add(&mut self, row: &Row) {
        if let Some(share) = row.rates.idle_share {
            self.workers += f64::from(row.node.threads);
            self.idle += share * f64::from(row.node.threads);
        }
    }

    fn share(&self) -> Option<f64> {
        (self.workers > 0.0).then(|| rows::rounded(self.idle / self.workers))
    }
}

fn sites(rows: &[&Row]) -> Vec<SitePicture> {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.node.site.as_str()).collect();
    let mut sites: BTreeMap<&str, (SitePicture, IdleSum)> = BTreeMap::new();
    for name in names {
        let site = sites.entry(name).or_default();
        site.0.name = name.into();
    }
    for row in rows.iter().filter(|row| is_there(row)) {
        let (site, idle) = sites.entry(&row.node.site).or_default();
        site.nodes += 1;
        site.threads += row.node.threads;
        site.jobs_per_s += row.rates.jobs_per_s;
        site.bytes_sent_per_s += row.rates.bytes_sent_per_s;
        idle.add(row);
    }
    let with_idle = sites.into_values().map(|(site, idle)| SitePicture {
        idle_share: idle.share(),
        ..site
    });
    with_idle.collect()
}

/// What both ends of one direction have counted.
#[derive(Clone, Copy, Default)]
struct CountedRow {
    sent: u64,
    received: u64,
    taken: u64,
    given: u64,
}

fn traffic(rows: &[&Row]) -> Vec<TrafficPicture> {
    let mut pairs: BTreeMap<(&str, &str), CountedRow> = BTreeMap::new();
    for row in rows {
        let here = row.node.site.as_str();
        for traffic in row.last.iter().flat_map(|last| &last.sites) {
            let there = traffic.site.as_str();
            let out = pairs.entry((here, there)).or_default();
            out.sent += traffic.bytes_sent;
            out.given += traffic.given;
            let back = pairs.entry((there, here)).or_default();
            back.received += traffic.bytes_received;
            back.taken += traffic.taken;
        }
    }
    let all = pairs
        .into_iter()
        .map(|((from, to), counted)| TrafficPicture {
            from: from.into(),
            to: to.into(),
            bytes: counted.sent.max(counted.received),
            jobs: counted.given.max(counted.taken),
        });
    all.filter(|pair| pair.bytes > 0 || pair.jobs > 0).collect()
}

fn totals(rows: &[&Row], reasons: &[IdleReason]) -> Totals {
    let (mut totals, mut idle) = (Totals::default(), IdleSum::default());
    for row in rows.iter().filter(|row| is_there(row)) {
        totals.nodes += 1;
        totals.threads += row.node.threads;
        totals.jobs_per_s += row.rates.jobs_per_s;
        totals.bytes_sent_per_s += row.rates.bytes_sent_per_s;
        idle.add(row);
        add_kept(&mut totals.kept, &row.figures().kept);
    }
    for last in rows.iter().filter_map(|row| row.last.as_ref()) {
        totals.jobs += last.figures.jobs;
        totals.bytes_sent += last.figures.bytes_sent;
        totals.tally.add(&last.figures.tally);
    }
    totals.idle_share = idle.share();
    let hungry = reasons.iter().filter(|reason| is_hungry(reason.reason));
    totals.hungry = hungry.map(|reason| reason.workers).sum();
    // What is in the store outlives those who wrote it.
    let stored = rows.iter().map(|row| row.figures().kept.store_bytes);
    totals.kept.store_bytes = stored.flatten().reduce(|sum, bytes| sum + bytes);
    totals
}

/// Has a worker with this reason nothing to run because there was no work for it? Others will go on, or are about to go.
fn is_hungry(why: WhyIdle) -> bool {
    matches!(
        why,
        WhyIdle::NoRootJob | WhyIdle::NoWork | WhyIdle::NotWorthIt
    )
}

fn add_kept(sum: &mut KeptFigures, more: &KeptFigures) {
    sum.orphans += more.orphans;
    sum.records += more.records;
    sum.record_bytes += more.record_bytes;
    sum.values += more.values;
    sum.value_bytes += more.value_bytes;
}
