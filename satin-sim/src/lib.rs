//! Thousands of satin's nodes in one deterministic simulation.
//!
//! The nodes are real ([`satin_runtime::node::Node`], as in production), the network and the workers are imaginary
//! ([`satin_runtime::node::cluster`]).
//!
//! * How well would a pool do? [`run`] lets one compute one tree and [reports](Report); [`sites`] is the experiment of
//!   `bench -- sites`, so that simulation and reality can stand side by side.
//! * Does it stand what may happen to it? [`trial`] makes a pool, a program and [`faults`] of a seed, and checks all
//!   [`invariants`] after every step; once everything has healed the answer must come, be right, and nothing may be left.
//!   [`seeds`] does so by the thousand, [`mutations`] leaves one rule of repair out at a time, to see that the seeds find
//!   out.
//! * What are the rules of flows worth? [`dag`] models task graphs on processors that vary and die. Nothing of the runtime runs
//!   there.
//!
//! ```
//! let settings = satin_sim::Settings {
//!     nodes: 8,
//!     sites: 2,
//!     shape: satin_sim::parse::shape("knary:4,4")?,
//!     ..satin_sim::Settings::default()
//! };
//! let report = satin_sim::run(&settings);
//! assert!(report.efficiency > 0.5);
//! # Ok::<(), String>(())
//! ```

pub mod classes;
pub mod dag;
pub mod faults;
pub mod invariants;
pub mod mutations;
mod pace;
pub mod parse;
pub mod seeds;
pub mod sites;
pub mod stories;
pub mod terminal;
pub mod trial;

use std::{collections::BTreeMap, time::Duration};

use satin_runtime::node::{
    MessageKind, Policy, ProtocolConfig,
    cluster::{Cluster, Count, Path, Program, Shape, Traffic},
};
use serde::Serialize;
use strum::VariantArray;

/// The settings of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Nodes, over all sites; as evenly as can be.
    pub nodes: u32,
    /// Number of sites.
    pub sites: u32,
    /// Number of workers of each node.
    pub threads: u32,
    /// Round-trip time between nodes of one site.
    pub near: Duration,
    /// Round-trip time between sites.
    pub round_trip: Duration,
    /// Largest extra time of a message between sites, each way.
    pub jitter: Duration,
    /// Bytes a second on each link.
    pub rate: Option<u64>,
    /// The policy by which an idle node chooses whom to ask for work.
    pub policy: Policy,
    /// The shape of the tree of jobs.
    pub shape: Shape,
    /// Time that a leaf takes.
    pub leaf: Duration,
    /// How long an inner job takes before it spawns.
    pub inner: Duration,
    /// The seed of everything random.
    pub seed: u64,
    /// Time from the start of the pool until the root job starts. Too short: nodes that still join are measured too.
    pub warm_up: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            nodes: 16,
            sites: 4,
            threads: 1,
            near: Duration::from_micros(200),
            round_trip: Duration::from_millis(30),
            jitter: Duration::ZERO,
            rate: None,
            policy: Policy::Crs,
            shape: Shape::Knary {
                width: 4,
                height: 7,
                serial: 0,
            },
            leaf: Duration::from_millis(10),
            inner: Duration::ZERO,
            seed: 1,
            warm_up: Duration::from_secs(1),
        }
    }
}

/// The figures of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Number of nodes in the pool.
    pub nodes: u32,
    /// Number of its sites.
    pub sites: u32,
    /// The policy by which an idle node chose whom to ask for work.
    pub policy: &'static str,
    /// Round-trip time between sites, in milliseconds.
    pub rtt_ms: f64,
    /// Number of jobs in the tree.
    pub jobs: u64,
    /// Number of leaves in the tree.
    pub leaves: u64,
    /// Time from the start of the root job until its result was there, in seconds.
    pub seconds: f64,
    /// The same, if all workers had computed all the time.
    pub ideal_seconds: f64,
    /// The second over the first.
    pub efficiency: f64,
    /// Time that a worker had nothing to do, on average, in seconds.
    pub idle_seconds: f64,
    /// Number of jobs stolen within sites.
    pub stolen_near: u64,
    /// Number of jobs stolen between sites.
    pub stolen_far: u64,
    /// Number of messages of each kind.
    pub messages: BTreeMap<String, u64>,
    /// All of them, for each node and second.
    pub messages_per_node_and_second: f64,
    /// Messages between sites, for each node and second.
    pub far_messages_per_node_and_second: f64,
    /// Connections made during the run.
    pub connections: u64,
    /// Number of events that the simulator handled.
    pub events: u64,
}

/// Lets a pool compute a tree. The result is checked.
///
/// # Panics
/// If the result is wrong, or does not come within a thousand times the ideal time.
#[must_use]
pub fn run(settings: &Settings) -> Report {
    let mut cluster = Cluster::new(settings.seed);
    cluster.wire.near = Path::new(settings.near);
    cluster.wire.far = Path {
        jitter: settings.jitter,
        rate: settings.rate,
        ..Path::new(settings.round_trip)
    };
    let config = ProtocolConfig {
        policy: settings.policy,
        fixed_members: true,
        ..ProtocolConfig::default()
    };
    let (each, more) = (
        settings.nodes / settings.sites,
        settings.nodes % settings.sites,
    );
    let names: Vec<String> = (0..settings.sites).map(|site| format!("s{site}")).collect();
    let sites = names.iter().zip(0..);
    let sites: Vec<(&str, u32)> = sites
        .map(|(name, site)| (&**name, each + u32::from(site < more)))
        .collect();
    cluster.form(&config, &sites, settings.threads);
    let mut program = Program::new(settings.shape, settings.leaf).seeded(settings.seed);
    program.inner = settings.inner;
    let program = cluster.program(program);
    let outcome = cluster.outcome(program);
    cluster.run_for(settings.warm_up);

    let before = cluster.traffic.clone();
    let start = cluster.now();
    let busy = |cluster: &Cluster| -> Duration {
        (0..cluster.nodes())
            .map(|node| cluster.effort(node).busy)
            .sum()
    };
    let busy_before = busy(&cluster);
    cluster.start_root(0, program);
    let workers = f64::from(settings.nodes * settings.threads);
    let ideal = outcome.time.as_secs_f64() / workers;
    let limit = Duration::from_secs_f64(1000.0 * ideal.max(1.0));
    let done = cluster.run_until(limit, |cluster| cluster.is_done(0));
    assert!(done, "the pool hangs: {settings:?}");
    cluster.check(0, &[program]);

    let seconds = (cluster.now() - start).as_secs_f64();
    let busy = (busy(&cluster) - busy_before).as_secs_f64();
    let traffic = since(&cluster.traffic, &before);
    let node_seconds = f64::from(settings.nodes) * seconds;
    let far: u64 = (traffic.messages.iter())
        .chain([&traffic.refusals])
        .map(|count| count.far)
        .sum();
    let kinds = MessageKind::VARIANTS.iter().map(MessageKind::to_string);
    let messages = kinds
        .zip(traffic.messages)
        .chain([("refusals".into(), traffic.refusals)]);
    Report {
        nodes: settings.nodes,
        sites: settings.sites,
        policy: settings.policy.into(),
        rtt_ms: settings.round_trip.as_secs_f64() * 1e3,
        jobs: outcome.jobs,
        leaves: outcome.leaves,
        seconds,
        ideal_seconds: ideal,
        efficiency: ideal / seconds,
        idle_seconds: seconds - busy / workers,
        stolen_near: traffic.jobs.near,
        stolen_far: traffic.jobs.far,
        messages: messages
            .map(|(kind, count)| (kind, count.all()))
            .filter(|(_, count)| *count > 0)
            .collect(),
        messages_per_node_and_second: traffic.all() as f64 / node_seconds,
        far_messages_per_node_and_second: far as f64 / node_seconds,
        connections: traffic.connections.all(),
        events: cluster.steps,
    }
}

fn since(now: &Traffic, before: &Traffic) -> Traffic {
    let minus = |now: Count, before: Count| Count {
        near: now.near - before.near,
        far: now.far - before.far,
    };
    let mut more = now.clone();
    for (count, before) in more.messages.iter_mut().zip(before.messages) {
        *count = minus(*count, before);
    }
    more.refusals = minus(now.refusals, before.refusals);
    more.jobs = minus(now.jobs, before.jobs);
    more.connections = minus(now.connections, before.connections);
    more
}
