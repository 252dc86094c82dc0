//! A tree that is one of several.

use crate::Options;
use crate::digest::ROOT_PATH;
use crate::hash::ROOT_HASH;
use crate::node::{Node, ROOT_ID};
use crate::partitions::placed::Placed;
use crate::tree::Tree;

impl Tree {
    /// The tree of a partition other than the first: without any znode, for even the root lives on
    /// another one. It takes every session that it does not know for a live one, since it knows those
    /// alone that own something here: who asks has to look at the first partition.
    #[must_use]
    pub fn new_part(options: Options) -> Self {
        let mut tree = Self::bare(options);
        let root = tree.nodes.insert(Node::scaffold(""));
        tree.nodes[root].hash = ROOT_HASH;
        tree.account_absent(root, ROOT_PATH);
        debug_assert_eq!(root, ROOT_ID);
        tree
    }

    /// Whether it is the tree of the first partition, with the root and all sessions.
    pub(super) fn is_first(&self) -> bool {
        !self.nodes[ROOT_ID].is_absent()
    }

    /// What lives elsewhere than the rule says, as far as it is applied.
    #[must_use]
    pub fn placed(&self) -> &Placed {
        &self.partitions.placed
    }
}
