//! Identities: the names of a node, of its lives, and what the pool knows of it.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::job::Fingerprint;

/// 128 random bits, new at each start of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl NodeId {
    /// The name of those root jobs of that process that no other node will ever run again, see
    /// [`RootName`](crate::job::RootName).
    #[must_use]
    pub fn home(self) -> Fingerprint {
        Fingerprint((self.0 >> 64) as u64 ^ self.0 as u64)
    }

    /// The first life of that process.
    pub(crate) const fn first_life(self) -> Peer {
        Peer {
            id: self,
            generation: 0,
        }
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// The life of a node. Being declared dead ends a life; a node that comes back does so as the next
/// generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// The process.
    pub id: NodeId,
    /// The number of its life; the first is 0.
    pub generation: u32,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.id, self.generation)
    }
}

/// The identity of a node, as the pool knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The current life of the node.
    pub peer: Peer,
    /// The name for people, in logs and tables.
    pub name: Arc<str>,
    /// The site at which it stands: nodes of one site have fast links between them.
    pub site: Arc<str>,
    /// The address at which others reach it.
    pub addr: SocketAddr,
    /// The place in the order of joining, given by the master. The founder has 0; a node that has none yet
    /// has [`Identity::NOT_YET`].
    pub stamp: u64,
    /// The number of its workers.
    pub threads: u32,
}

impl Identity {
    /// The stamp of a node that has not been let in yet.
    pub const NOT_YET: u64 = u64::MAX;
}
