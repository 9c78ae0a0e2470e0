//! Bounds of imaginary programs: a number, the smaller the better, and a witness of it.

use super::{Cluster, Lattices};
use crate::job::{BoundName, RootRun};

/// The bound that imaginary programs improve, see [`Program::offers`](super::Program::offers).
pub const BEST: BoundName = BoundName(0xbe57);

/// The best leaf that is known of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestLeaf {
    /// The cost of the leaf.
    pub cost: u64,
    /// The name of the leaf, from which its cost can be computed, see [`Program::cost_of`](super::Program::cost_of).
    pub witness: u64,
}

impl BestLeaf {
    /// The leaf as bytes.
    pub(super) fn write(self) -> Vec<u8> {
        [self.cost, self.witness].map(u64::to_le_bytes).concat()
    }

    /// Reads a leaf from its bytes. A number alone is a bound that no leaf has.
    pub(super) fn read(bytes: &[u8]) -> BestLeaf {
        let witness = bytes.get(8..).and_then(|rest| rest.first_chunk());
        BestLeaf {
            cost: Smallest::read(bytes),
            witness: witness.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)),
        }
    }
}

/// The bounds of imaginary programs: numbers, little-endian, the smaller the better; the bytes behind a number come
/// with it.
#[derive(Clone, Copy, Debug)]
pub struct Smallest;

impl Smallest {
    /// The number as bytes.
    #[must_use]
    pub fn write(value: u64) -> Vec<u8> {
        value.to_le_bytes().to_vec()
    }

    /// The number that was written.
    ///
    /// # Panics
    /// The bytes are too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))
    }
}

impl Lattices for Smallest {
    fn join(&self, _bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        (Smallest::read(new) < Smallest::read(have)).then(|| new.to_vec())
    }
}

/// A result of a program as main saw it, with what its bound said at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// The node where main runs.
    pub node: u32,
    /// The run of the root job.
    pub tag: RootRun,
    /// The program that it runs.
    pub program: u32,
    /// The result of the root job.
    pub result: u64,
    /// The bound; `None` if no offer had arrived there.
    pub bound: Option<BestLeaf>,
}

impl Sighting {
    /// Is the bound the best there is, and its witness worth that?
    #[must_use]
    pub fn is_right(&self, cluster: &Cluster) -> bool {
        let program = &cluster.programs[self.program as usize];
        let is_worth = |found: BestLeaf| program.cost_of(found.witness) == Some(found.cost);
        self.bound.map(|found| found.cost) == cluster.outcome(self.program).bound
            && self.bound.is_none_or(is_worth)
    }
}

impl Cluster {
    /// The bounds that every main saw so far, of its root jobs that offer bounds.
    #[must_use]
    pub fn sightings(&self) -> &[Sighting] {
        &self.sightings
    }

    /// Main reads the bound of a root job as soon as it has the result.
    pub(super) fn look_at_bound(&mut self, node: u32, tag: RootRun, result: u64) {
        let slot = self.slot(node);
        let Some(running) = slot.running else {
            return;
        };
        if self.outcome(running.program).bound.is_none() {
            return;
        }
        let arrived = slot.bounds.get(&(BEST, tag.name));
        let arrived = arrived.map(|bytes| BestLeaf::read(bytes)).into_iter();
        let known = arrived.chain(slot.workers.best_of(tag.name));
        let bound = known.min_by_key(|found| found.cost);
        self.sightings.push(Sighting {
            node,
            tag,
            program: running.program,
            result,
            bound,
        });
    }
}
