//! Who a node is.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::job::Fingerprint;

/// 128 random bits, new at each start of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl NodeId {
    /// What root jobs of that process are called that no other node will ever run again, see
    /// [`RootName`](crate::job::RootName).
    #[must_use]
    pub fn home(self) -> Fingerprint {
        Fingerprint((self.0 >> 64) as u64 ^ self.0 as u64)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// One life of a node. Being declared dead ends a life; a node that comes back does so as the next generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// The process.
    pub id: NodeId,
    /// Which of its lives.
    pub generation: u32,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.id, self.generation)
    }
}

/// What the pool knows of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Its current life.
    pub peer: Peer,
    /// What people call it.
    pub name: Arc<str>,
    /// Where it stands: nodes of one site have fast links between them.
    pub site: Arc<str>,
    /// Where others reach it.
    pub addr: SocketAddr,
    /// Its place in the order of joining, given by the master; the founder has 0, [`Identity::NOT_YET`] who has none.
    pub stamp: u64,
    /// Its workers.
    pub threads: u32,
}

impl Identity {
    /// The stamp of a node that has not been let in yet.
    pub const NOT_YET: u64 = u64::MAX;
}
