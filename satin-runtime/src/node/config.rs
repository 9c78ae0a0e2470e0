//! The numbers of the protocol. Each says what goes wrong if it is too small or too large.

use std::{net::SocketAddr, time::Duration};

/// Whom an idle node asks for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Cluster-aware random stealing: the own site one after another, and beside it one request to another site.
    #[default]
    Crs,
    /// A random node of the pool, one request at a time.
    Rs,
    /// The master only.
    Mw,
}

/// The numbers of the protocol.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whom an idle node asks.
    pub policy: Policy,
    /// Where to find the pool; empty for a founder.
    pub join: Vec<SocketAddr>,
    /// Found the pool if nobody of `join` answers.
    pub may_found: bool,
    /// Root jobs wait until so many nodes are in.
    pub nodes: u32,
    /// Time between two probes of foca. Shorter finds deaths sooner and costs messages.
    pub probe_period: Duration,
    /// So long a silent node is suspected before it is declared dead, and half a second longer with each doubling of the
    /// pool. If it is too short, nodes that only paused lose their work and come back as the next generation; if it is
    /// too long, the work of the dead is done again later. (A process that was killed is found sooner, see
    /// [`Action::Probe`](super::Action::Probe).)
    pub suspicion: Duration,
    /// No failure detector: the members are given beforehand and stay. For simulations of stealing alone.
    pub fixed_members: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: Policy::Crs,
            join: Vec::new(),
            may_found: true,
            nodes: 1,
            probe_period: Duration::from_millis(500),
            suspicion: Duration::from_secs(3),
            fixed_members: false,
        }
    }
}
