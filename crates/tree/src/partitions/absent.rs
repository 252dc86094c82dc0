//! Nodes that are no znodes: what is left of a path whose znode lives on another partition, see
//! [`crate::partitions::cut`].

use crate::digest;
use crate::node::Node;

/// The name of a znode that lives on another partition, among its parent's children.
const AWAY: u16 = Node::ABSENT & 64;
/// A part of the path of a znode that is here.
const SCAFFOLD: u16 = Node::ABSENT & 128;

const _: () = assert!(AWAY != 0 && SCAFFOLD != 0 && AWAY | SCAFFOLD == Node::ABSENT);

impl Node {
    /// The name of a znode that lives on another partition.
    pub(super) fn away(name: &str) -> Self {
        Self::absent(name, AWAY)
    }

    /// What holds a znode in its place whose parent lives on another partition.
    pub(super) fn scaffold(name: &str) -> Self {
        Self::absent(name, SCAFFOLD)
    }

    pub(super) fn is_away(&self) -> bool {
        self.absence() == AWAY
    }

    pub(super) fn is_scaffold(&self) -> bool {
        self.absence() == SCAFFOLD
    }

    /// The digest's term of a node that is no znode. Scaffolding has none: it follows from what is below it.
    pub(crate) fn absent_term(&self, path_digest: u64) -> u64 {
        if self.is_away() { digest::away_term(path_digest) } else { 0 }
    }
}
