//! The state of this node, as its program sees it: written by the side that runs the network, read by `satin::node()`.

use std::sync::{PoisonError, RwLock};

/// The state of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// 128 random bits, new at each start; 0 for a process without a network.
    pub id: u128,
    /// The name of this node, for people.
    pub name: String,
    /// The site of this node: nodes of one site have fast links between them.
    pub site: String,
    /// Does this node run `main`?
    pub is_master: bool,
    /// The name of the node that runs `main`.
    pub master: String,
    /// How many nodes are in the pool, this one included.
    pub nodes: usize,
    /// Workers of this process' pool.
    pub threads: usize,
}

impl NodeInfo {
    /// A process without a network.
    #[must_use]
    pub fn alone(name: String, site: String, threads: usize) -> NodeInfo {
        NodeInfo {
            id: 0,
            master: name.clone(),
            name,
            site,
            is_master: true,
            nodes: 1,
            threads,
        }
    }
}

/// A [`NodeInfo`] that changes while others read it.
#[derive(Debug)]
pub struct Standing(RwLock<NodeInfo>);

impl Standing {
    /// Begins with this state.
    #[must_use]
    pub fn new(info: NodeInfo) -> Standing {
        Standing(RwLock::new(info))
    }

    /// The state at this moment.
    #[must_use]
    pub fn now(&self) -> NodeInfo {
        let info = self.0.read().unwrap_or_else(PoisonError::into_inner);
        info.clone()
    }

    /// Changes the state.
    pub fn update(&self, change: impl FnOnce(&mut NodeInfo)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}
