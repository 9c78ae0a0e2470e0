//! The figures of a node, lent to those who write them elsewhere: metrics, traces.

use super::NodeState;
use crate::observe::{
    events::NodeFigures,
    look::{KeptFigures, SiteTraffic, WhyIdle},
};

/// The figures that a node told last.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    /// The number of its row, which no other node gets.
    pub id: u32,
    /// The name of the node.
    pub name: &'a str,
    /// The node's site.
    pub site: &'a str,
    /// Number of its workers.
    pub threads: u32,
    /// The state of the node.
    pub state: NodeState,
    /// True if the node runs `main`.
    pub is_master: bool,
    /// What it has counted; `None` before its first look.
    pub counted: Option<&'a NodeFigures>,
    /// The reason why each worker has nothing to run.
    pub why_idle: &'a [Option<WhyIdle>],
    /// The traffic with the nodes of each site.
    pub sites: &'a [SiteTraffic],
    /// What it keeps for others.
    pub kept: KeptFigures,
}
