//! What a tree keeps of other partitions.

use crate::partitions::placed::Placed;

#[derive(Debug, Default)]
pub(crate) struct Partitions {
    pub(super) placed: Placed,
    /// Nodes that are no znodes, see [`crate::partitions::cut`].
    absent: usize,
    /// Their part of the digest.
    digest: u64,
}

impl Partitions {
    /// What lives where is as another tree says it.
    pub(crate) fn take_placed_of(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.placed, &mut other.placed);
    }

    /// What lives elsewhere than the rule says.
    pub(crate) fn placed(&self) -> &Placed {
        &self.placed
    }

    /// How many nodes are no znodes.
    pub(crate) fn absent_count(&self) -> usize {
        self.absent
    }

    /// Its part of the tree's digest.
    pub(crate) fn digest(&self) -> u64 {
        self.placed.digest().wrapping_add(self.digest)
    }

    /// The same, computed anew, but for the terms of nodes.
    pub(crate) fn recomputed_digest(&self) -> u64 {
        self.placed.recomputed_digest()
    }

    /// Counts a node that is no znode, with its term of the digest.
    pub(super) fn add_absent(&mut self, term: u64) {
        self.absent += 1;
        self.digest = self.digest.wrapping_add(term);
    }

    /// It is gone, or becomes something else.
    pub(super) fn remove_absent(&mut self, term: u64) {
        self.absent -= 1;
        self.digest = self.digest.wrapping_sub(term);
    }
}
