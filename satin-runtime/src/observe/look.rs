//! A look at a node: what it has counted, what its workers have done, what happened. Nodes answer observers with it; dashboard,
//! report, trace and `satin top` are made of the looks at all nodes of a pool.
//!
//! This module knows the form of a look alone: who takes it, and when, is decided elsewhere.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::events::{NodeFigures, Record};
pub use crate::job::occupation::Activity;

/// The reason why a worker has nothing to run.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    strum::EnumCount,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WhyIdle {
    /// No root job is under way.
    NoRootJob,
    /// The nodes that were asked have no jobs to give.
    NoWork,
    /// The nodes that were asked have jobs, and none of them is worth the way to this node.
    NotWorthIt,
    /// A stolen job is here, and waits for a shared value.
    WaitsForValue,
    /// A child that another node has is waited for.
    WaitsForChild,
    /// This node is about to leave.
    Leaving,
    /// The node's memory is full (`SATIN_MEMORY`): no further job is taken.
    MemoryFull,
}

/// A node, as another sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeenNode {
    /// The name of the node, for people.
    pub name: String,
    /// The node's site.
    pub site: String,
    /// The address at which the node can be reached.
    pub addr: SocketAddr,
    /// Number of the node's workers.
    pub threads: u32,
    /// True if the node runs `main`.
    pub is_master: bool,
    /// True if the node is about to leave.
    pub is_leaving: bool,
}

/// An interval of time in which a worker did one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Span {
    /// The worker, from 0.
    pub worker: u32,
    /// The begin, in milliseconds since 1970.
    pub start_ms: u64,
    /// The length, in milliseconds.
    pub length_ms: u32,
    /// The occupation.
    pub activity: Activity,
    /// The function of the job that ran, by its place among the [`functions`](NodeLook::functions) of the look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<u32>,
}

/// The way of a job from the node that gave it to the worker that runs it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrow {
    /// The name of the node that gave it.
    pub from: String,
    /// The worker that runs it, from 0.
    pub worker: u32,
    /// The name of its function.
    pub function: String,
    /// When the other node sent it, in milliseconds since 1970 of that node's clock; 0 if that is not known.
    pub sent_ms: u64,
    /// When it was here, in milliseconds since 1970.
    pub came_ms: u64,
    /// When the shared values and the data that it needs were here too, in milliseconds since 1970.
    pub ready_ms: u64,
    /// When the worker began with it, in milliseconds since 1970.
    pub begun_ms: u64,
}

/// The traffic between a node and the nodes of one site, since the node was started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SiteTraffic {
    /// The site of the others.
    pub site: String,
    /// Bytes sent to nodes there.
    pub bytes_sent: u64,
    /// Bytes received from nodes there.
    pub bytes_received: u64,
    /// Jobs taken from nodes there.
    pub taken: u64,
    /// Jobs given to nodes there.
    pub given: u64,
}

/// What a node keeps for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptFigures {
    /// Entries of the orphan table.
    pub orphans: u64,
    /// Results of other nodes that are kept here, in case that those nodes are lost.
    pub records: u64,
    /// Bytes of the results of finished jobs that the workers keep, in case that those who wait for them are lost.
    pub record_bytes: u64,
    /// Shared values that are here.
    pub values: u64,
    /// Bytes of these values.
    pub value_bytes: u64,
    /// Bytes that this node has written to the store; `None` without a store.
    pub store_bytes: Option<u64>,
}

/// A look at a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeLook {
    /// The time of the node's clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// What the node has counted since its start.
    pub figures: NodeFigures,
    /// Spans that ended since the look before, and those that go on, cut at this moment.
    pub spans: Vec<Span>,
    /// Jobs of other nodes with which workers began since the look before; not all, if they were many.
    #[serde(default)]
    pub arrows: Vec<Arrow>,
    /// The names of the functions of spans.
    #[serde(default)]
    pub functions: Vec<String>,
    /// The reason why each worker has nothing to run; `None` for one that runs something.
    pub why_idle: Vec<Option<WhyIdle>>,
    /// The traffic with the nodes of each site.
    pub sites: Vec<SiteTraffic>,
    /// What the node keeps for others.
    pub kept: KeptFigures,
    /// What happened since the look before, as this node knows it; `at_ms` in milliseconds since 1970 of its clock.
    pub events: Vec<Record>,
    /// The place from which the next look is to go on.
    pub next: u64,
}
