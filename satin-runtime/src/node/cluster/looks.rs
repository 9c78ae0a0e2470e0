//! What a story, or the simulator, may ask of a pool.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use super::super::{
    DepartureId, HostedId, Identity, Node, Notice, Peer,
    inspect::{InspectedHosted, InspectedStage},
};
use super::{Cluster, FlowsSeen, ImaginaryNode, Smallest, WorkDone, lock};
use crate::job::{BoundName, RootName, ValueName};

impl Cluster {
    /// The virtual time, from the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Number of nodes there have been.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The node of that number.
    #[must_use]
    pub fn node(&self, node: u32) -> &Node {
        &self.slot(node).node
    }

    /// A node, for tests that look inside.
    #[cfg(test)]
    pub(crate) fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.slot_mut(node).node
    }

    /// The id and life of a node at this moment.
    #[must_use]
    pub fn peer(&self, node: u32) -> Peer {
        self.node(node).view().me().peer
    }

    /// The address at which a node can be reached.
    #[must_use]
    pub fn addr(&self, node: u32) -> SocketAddr {
        self.slot(node).addr
    }

    /// The number of a node.
    #[must_use]
    pub fn index(&self, peer: Peer) -> u32 {
        (peer.id.0 >> 96) as u32 ^ self.scrambled
    }

    /// True if the node runs.
    #[must_use]
    pub fn is_alive(&self, node: u32) -> bool {
        self.slot(node).alive
    }

    /// The identity under which the node came in, if it did.
    #[must_use]
    pub fn joined(&self, node: u32) -> Option<&Identity> {
        self.slot(node).joined.as_ref()
    }

    /// The code with which the pool ended for it.
    #[must_use]
    pub fn ended(&self, node: u32) -> Option<i32> {
        self.slot(node).ended
    }

    /// The notices that the node has given.
    #[must_use]
    pub fn notices(&self, node: u32) -> &[Notice] {
        &self.slot(node).notices
    }

    /// The terms for which it was to run `main` from the start: a founder's is not among them.
    #[must_use]
    pub fn mains(&self, node: u32) -> &[u32] {
        &self.slot(node).mains
    }

    /// How often it was to stop `main`, because another runs it.
    #[must_use]
    pub fn yields(&self, node: u32) -> u32 {
        self.slot(node).yielded
    }

    /// True if the node has said last that others are hungry.
    #[must_use]
    pub fn is_hungry(&self, node: u32) -> bool {
        self.slot(node).hungry
    }

    /// True if the node has been stopped, see [`freeze`](Cluster::freeze).
    #[must_use]
    pub fn is_frozen(&self, node: u32) -> bool {
        self.slot(node).frozen
    }

    /// How often it dialled an address without a peer in mind: to come in, or to find the lost.
    #[must_use]
    pub fn dials(&self, node: u32) -> u64 {
        self.slot(node).dials
    }

    /// The panics of root jobs on a node.
    #[must_use]
    pub fn panics(&self, node: u32) -> &[String] {
        &self.slot(node).panics
    }

    /// Is each child of each frame there in exactly one place: queued, running, away or done?
    ///
    /// # Errors
    /// A child is in none of these places, or in several; the error says which.
    pub fn audit(&self, node: u32) -> Result<(), String> {
        self.slot(node).workers.audit()
    }

    /// An answer that came to a job there which was not away.
    #[must_use]
    pub fn stray_answer(&self, node: u32) -> Option<&str> {
        self.slot(node).workers.stray()
    }

    /// What has been seen of flows there.
    #[must_use]
    pub fn flows_seen(&self, node: u32) -> &FlowsSeen {
        &self.slot(node).workers.flows
    }

    /// Number of tasks of flows there that wait for results.
    ///
    /// # Errors
    /// A task waits although all is there that it reads; the error says which.
    pub fn waiting_tasks(&self, node: u32) -> Result<u64, String> {
        self.slot(node).workers.waiting_tasks()
    }

    /// A message that was sent to a life whose end the sender knew.
    #[must_use]
    pub fn sent_to_the_dead(&self) -> Option<&str> {
        self.to_the_dead.as_deref()
    }

    /// The hosted jobs that its workers have.
    pub fn at_work(&self, node: u32) -> impl Iterator<Item = HostedId> {
        self.slot(node).workers.hosted()
    }

    /// How much of its jobs that are away is done, as others have told it.
    #[must_use]
    pub fn parts_done(&self, node: u32) -> &BTreeMap<DepartureId, u16> {
        &self.slot(node).parts_done
    }

    /// How often jobs were begun, by a hash of their ids; since [`count_runs`](Cluster::count_runs).
    #[must_use]
    pub fn runs(&self) -> Option<&BTreeMap<u64, u32>> {
        self.runs.as_ref()
    }

    /// The work that the node's workers have done.
    #[must_use]
    pub fn effort(&self, node: u32) -> WorkDone {
        self.slot(node).workers.done
    }

    /// The time its workers had nothing to compute, added up.
    #[must_use]
    pub fn idle_time(&self, node: u32) -> Duration {
        let slot = self.slot(node);
        let all = self.now.saturating_sub(slot.born) * slot.workers.threads();
        all.saturating_sub(slot.workers.done.busy)
    }

    /// Jobs of live nodes that have been spawned and have no result.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let nodes = (0..self.nodes()).filter(|node| self.is_alive(*node));
        nodes.map(|node| self.slot(node).workers.unsettled()).sum()
    }

    /// Number of results of finished orphans that live nodes keep for later claims.
    #[must_use]
    pub fn kept(&self) -> usize {
        let nodes = (0..self.nodes()).filter(|node| self.is_alive(*node));
        let kept = nodes.map(|node| {
            let hosted = self.node(node).inspect().hosted;
            let is_kept = |job: &&InspectedHosted| job.orphan && job.stage == InspectedStage::Done;
            hosted.iter().filter(is_kept).count()
        });
        kept.sum()
    }

    /// Are its workers without anything, and is none of its jobs away?
    #[must_use]
    pub fn is_empty(&self, node: u32) -> bool {
        self.slot(node).workers.is_empty()
    }

    /// Number of the node's jobs that are away.
    #[must_use]
    pub fn away(&self, node: u32) -> usize {
        self.slot(node).workers.away()
    }

    /// True if the node has run all root jobs of its main.
    #[must_use]
    pub fn is_done(&self, node: u32) -> bool {
        let slot = self.slot(node);
        let of_term = slot.results.keys().filter(|tag| tag.term == slot.term);
        slot.roots > 0 && slot.running.is_none() && of_term.count() == slot.roots as usize
    }

    /// The value of a bound there.
    #[must_use]
    pub fn bound(&self, node: u32, bound: BoundName, root: impl Into<RootName>) -> Option<u64> {
        let value = self.slot(node).bounds.get(&(bound, root.into()));
        value.map(|bytes| Smallest::read(bytes))
    }

    /// Does it hold that value in full?
    #[must_use]
    pub fn has_value(&self, node: u32, name: ValueName) -> bool {
        lock(&self.slot(node).values).contains_key(&name)
    }

    /// The answers that it has given to requests for what others keep: their numbers, and the values that are here.
    #[must_use]
    pub fn brought(&self, node: u32) -> &[(u64, Option<ValueName>)] {
        &self.slot(node).brought
    }

    /// The values that it was to bring home, as another node could not have them.
    #[must_use]
    pub fn to_bring_home(&self, node: u32) -> &[ValueName] {
        &self.slot(node).to_bring_home
    }

    /// The numbers of data of flows that it keeps for others, and that its own flows have at home.
    #[must_use]
    pub fn keeps_data(&self, node: u32) -> (usize, usize) {
        self.slot(node).workers.data.len()
    }

    /// The number of data that it kept for others until their root job was over.
    #[must_use]
    pub fn kept_to_the_end(&self, node: u32) -> u64 {
        self.slot(node).workers.data.kept_to_the_end
    }

    /// Has it data that tasks have borrowed?
    #[must_use]
    pub fn has_borrowed(&self, node: u32) -> bool {
        self.slot(node).workers.data.has_borrowed()
    }

    /// The numbers of nodes of which it has heard that they leave, with what they keep.
    #[must_use]
    pub fn keepers_leaving(&self, node: u32) -> &[u128] {
        &self.slot(node).keepers_leaving
    }

    /// Number of values of which only some pieces have come.
    #[must_use]
    pub fn values_in_pieces(&self, node: u32) -> usize {
        self.slot(node).parts.len()
    }

    pub(super) fn slot(&self, node: u32) -> &ImaginaryNode {
        &self.slots[node as usize]
    }

    pub(super) fn slot_mut(&mut self, node: u32) -> &mut ImaginaryNode {
        &mut self.slots[node as usize]
    }
}
