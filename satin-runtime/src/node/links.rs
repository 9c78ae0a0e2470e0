//! Which connections stand: so that whoever wants to say something just says it.

use std::{collections::BTreeMap, net::SocketAddr};

use super::{Action, Peer, View};

/// The connections of this node.
#[derive(Default)]
pub(crate) struct Links {
    /// With the epoch, or `None` while it is being made.
    peers: BTreeMap<Peer, Option<u64>>,
}

/// What is to be done with a message.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A connection stands or is being made.
    Open,
    /// One must be made first, to there.
    Connect(SocketAddr),
    /// Nobody knows where the peer is: it is gone.
    None,
}

impl Links {
    pub(crate) fn connected(&mut self, peer: Peer, epoch: u64) {
        let link = self.peers.entry(peer).or_default();
        *link = Some(link.map_or(epoch, |old| old.max(epoch)));
    }

    pub(crate) fn disconnected(&mut self, peer: Peer, epoch: u64) {
        if self.peers.get(&peer) == Some(&Some(epoch)) {
            self.peers.remove(&peer);
        }
    }

    pub(crate) fn unreachable(&mut self, peer: Peer) {
        if self.peers.get(&peer) == Some(&None) {
            self.peers.remove(&peer);
        }
    }

    /// Looks at what goes out.
    pub(crate) fn watch(&mut self, action: &Action) {
        match action {
            Action::Connect {
                peer: Some(peer), ..
            } => {
                self.peers.entry(*peer).or_default();
            }
            Action::Disconnect(peer) => {
                self.peers.remove(peer);
            }
            _ => {}
        }
    }

    /// The connection that stands has this epoch.
    pub(crate) fn epoch(&self, peer: Peer) -> Option<u64> {
        self.peers.get(&peer).copied().flatten()
    }

    /// Did something come by a connection that has been replaced?
    pub(crate) fn is_stale(&self, peer: Peer, epoch: u64) -> bool {
        self.epoch(peer).is_some_and(|stands| epoch < stands)
    }

    pub(crate) fn way(&self, peer: Peer, view: &View) -> Way {
        if self.peers.contains_key(&peer) {
            return Way::Open;
        }
        let identity = view.get(peer);
        identity.map_or(Way::None, |identity| Way::Connect(identity.addr))
    }
}
