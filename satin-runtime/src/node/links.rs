//! The connections that stand: so that a conversation that wants to say something just says it.
//!
//! A peer is reached directly, or, while that is not possible, by a *circuit* through a third node (see
//! [`relay`](super::relay)). To the conversations both are a connection with an epoch: a later one has a
//! higher epoch.

use std::{collections::BTreeMap, net::SocketAddr};

use super::{Action, Peer, View};

/// The bits of an epoch that number the circuits made since the last direct connection; the bits above are
/// the number of that connection. Too few: circuits reach the next connection's epoch. Too many: connections
/// run out of numbers.
const CIRCUITS: u32 = 24;

/// The epoch of a direct connection to which the driver gave that number.
pub(crate) fn epoch_of(connection: u64) -> u64 {
    connection << CIRCUITS
}

/// The epoch of a circuit that follows on `known`. If both sides call at the same time, the two circuits have
/// different epochs, and both sides find the same circuit to have the higher.
pub(crate) fn next_circuit(known: u64, caller: Peer, called: Peer) -> u64 {
    (known / 2 + 1) * 2 + u64::from(caller < called)
}

/// How a peer is reached that cannot be reached directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Circuit {
    /// The third node, to which a direct connection stands.
    pub(crate) via: Peer,
    pub(crate) epoch: u64,
}

/// The connections of this node.
#[derive(Default)]
pub(crate) struct Links {
    /// Direct connections with their epochs, or `None` while they are being made.
    peers: BTreeMap<Peer, Option<u64>>,
    /// Peers that could not be reached directly, with their circuits.
    astray: BTreeMap<Peer, Option<Circuit>>,
    /// The highest epoch that was known for each peer: of the members, and of those met on the way in.
    known: BTreeMap<Peer, u64>,
    /// The epochs of connections that were made in earlier lives of this node: up to that.
    ended: BTreeMap<Peer, u64>,
}

/// The way that a message takes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A connection stands or is being made.
    Open,
    /// A connection must be made first, to that address.
    Connect(SocketAddr),
    /// By a circuit.
    Via(Circuit),
    /// The peer is not reached now: what is said to it is kept.
    Hold,
    /// The peer is not in the view: it is gone.
    None,
}

impl Links {
    pub(crate) fn connected(&mut self, peer: Peer, epoch: u64) {
        // A direct connection takes the place of a circuit.
        self.astray.remove(&peer);
        let link = self.peers.entry(peer).or_default();
        // Two connections may stand for a moment, and be told of in any order: the higher epoch
        // counts.
        *link = Some(link.map_or(epoch, |old| old.max(epoch)));
        self.know(peer, epoch);
    }

    pub(crate) fn disconnected(&mut self, peer: Peer, epoch: u64) {
        // The end of an older connection may be told after the next one stands.
        if self.peers.get(&peer) == Some(&Some(epoch)) {
            self.peers.remove(&peer);
        }
    }

    pub(crate) fn unreachable(&mut self, peer: Peer) {
        // An attempt that failed says nothing against a connection that the peer has made
        // meanwhile.
        if self.is_connecting(peer) {
            self.peers.remove(&peer);
        }
    }

    /// Looks at what goes out.
    pub(crate) fn watch(&mut self, action: &Action) {
        match action {
            // Entered when the order goes out: the driver keeps messages until the connection
            // stands or fails.
            Action::Connect {
                peer: Some(peer), ..
            } => {
                // A connection that stands keeps its epoch.
                self.peers.entry(*peer).or_default();
            }
            Action::Disconnect(peer) => {
                self.peers.remove(peer);
            }
            _ => {}
        }
    }

    /// The connection that stands, direct or by a circuit, has this epoch.
    pub(crate) fn epoch(&self, peer: Peer) -> Option<u64> {
        let circuit = || self.circuit(peer).map(|circuit| circuit.epoch);
        // The direct one first: if both are known for a moment, the circuit has been replaced.
        self.direct(peer).or_else(circuit)
    }

    /// The direct connection that stands has this epoch.
    pub(crate) fn direct(&self, peer: Peer) -> Option<u64> {
        self.peers.get(&peer).copied().flatten()
    }

    /// The peers to which direct connections stand.
    pub(crate) fn all_direct(&self) -> impl Iterator<Item = Peer> {
        let stand = self.peers.iter().filter(|(_, epoch)| epoch.is_some());
        stand.map(|(peer, _)| *peer)
    }

    /// This node begins another life. Returns the peers to which direct connections stand or are being made, which are to be ended; what still
    /// comes by them does not count.
    pub(crate) fn end_all(&mut self) -> impl Iterator<Item = Peer> {
        self.ended.extend(&self.known);
        self.peers.keys().copied()
    }

    /// Does something count that came by that connection? Not if the connection has been replaced, or belongs to an earlier life.
    pub(crate) fn counts(&self, peer: Peer, epoch: u64) -> bool {
        let is_ended = self.ended.get(&peer).is_some_and(|ended| epoch <= *ended);
        !is_ended && !self.is_stale(peer, epoch)
    }

    /// Is a direct connection being made?
    pub(crate) fn is_connecting(&self, peer: Peer) -> bool {
        self.peers.get(&peer) == Some(&None)
    }

    /// Did something come by a connection that has been replaced?
    pub(crate) fn is_stale(&self, peer: Peer, epoch: u64) -> bool {
        // After the end of all connections nothing is stale: their last messages may still be read.
        self.epoch(peer).is_some_and(|stands| epoch < stands)
    }

    pub(crate) fn way(&self, peer: Peer, view: &View) -> Way {
        match self.peers.get(&peer) {
            Some(Some(_)) => return Way::Open,
            // The usual case, in a pool without any circuit: one look-up.
            Some(None) if self.astray.is_empty() => return Way::Open,
            _ => {}
        }
        match self.astray.get(&peer) {
            // While a direct connection is tried once more, the circuit goes on.
            Some(Some(circuit)) => return Way::Via(*circuit),
            Some(None) => return Way::Hold,
            // A connection is being made: the driver keeps the message until it stands.
            None if self.peers.contains_key(&peer) => return Way::Open,
            None => {}
        }
        let identity = view.get(peer);
        identity.map_or(Way::None, |identity| Way::Connect(identity.addr))
    }

    // ---- circuits

    /// The peer cannot be reached directly: until it can, or a circuit stands, what is said to it is held.
    pub(crate) fn go_astray(&mut self, peer: Peer) {
        self.astray.insert(peer, None);
    }

    pub(crate) fn is_astray(&self, peer: Peer) -> bool {
        self.astray.contains_key(&peer)
    }

    /// A circuit stands. A direct connection that may seem to stand is none any more.
    pub(crate) fn reach_by(&mut self, peer: Peer, circuit: Circuit) {
        if self.direct(peer).is_some() {
            self.peers.remove(&peer);
        }
        self.astray.insert(peer, Some(circuit));
        self.know(peer, circuit.epoch);
    }

    pub(crate) fn circuit(&self, peer: Peer) -> Option<Circuit> {
        self.astray.get(&peer).copied().flatten()
    }

    /// The peers reached through that one.
    pub(crate) fn reached_via(&self, via: Peer) -> impl Iterator<Item = (Peer, Circuit)> {
        let circuits = (self.astray.iter()).filter_map(|(peer, is)| Some((*peer, (*is)?)));
        circuits.filter(move |(_, circuit)| circuit.via == via)
    }

    /// Ends the holding back of messages for that peer.
    pub(crate) fn forget_astray(&mut self, peer: Peer) {
        self.astray.remove(&peer);
    }

    /// The highest epoch known for the peer.
    pub(crate) fn known(&self, peer: Peer) -> u64 {
        let known = [&self.known, &self.ended].map(|epochs| epochs.get(&peer).copied());
        known.into_iter().flatten().max().unwrap_or(0)
    }

    /// Forgets a peer whose life is over.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.astray.remove(&peer);
        // The next life begins with connections of its own.
        self.known.remove(&peer);
    }

    fn know(&mut self, peer: Peer, epoch: u64) {
        let known = self.known.entry(peer).or_default();
        *known = epoch.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn what_comes_by_a_connection_of_an_earlier_life_does_not_count() {
        let peer = NodeId(1).first_life();
        let mut links = Links::default();
        links.connected(peer, epoch_of(3));
        assert_eq!(links.end_all().collect::<Vec<_>>(), [peer]);
        links.disconnected(peer, epoch_of(3));
        links.forget(peer);
        assert!(!links.counts(peer, epoch_of(3)));
        // A circuit, or another connection, to the same life of the peer.
        assert!(links.counts(peer, links.known(peer) + 1));
        links.connected(peer, epoch_of(4));
        assert!(links.counts(peer, epoch_of(4)));
    }

    #[test]
    fn two_calls_at_once_have_different_epochs_above_all_that_were_known() {
        let peer = |id| NodeId(id).first_life();
        for known in [0, 1, epoch_of(7), epoch_of(7) + 3] {
            let one = next_circuit(known, peer(1), peer(2));
            let other = next_circuit(known, peer(2), peer(1));
            assert!(one != other && one.min(other) > known);
        }
        let circuit = next_circuit(epoch_of(7), peer(1), peer(2));
        assert!(
            circuit < epoch_of(8),
            "and below the next direct connection"
        );
    }
}
