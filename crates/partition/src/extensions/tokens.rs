//! Where there are several sites: which tokens programs need.
//!
//! Which these are shows when a program runs: those of all that it reads and writes. What it reads of an ephemeral is what
//! is known here, as its token stays at the home of its session. Where one is missing the program runs to its end all the
//! same, so that as many as possible are found at once; then nothing of it has happened, and the request is asked where
//! the tokens are, or when they have come.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use stoa_tree::{LackedTokens, Tree};

/// What programs have needed for the request that is being prepared.
#[derive(Debug, Default)]
pub(super) struct NeededTokens {
    tokens: LackedTokens,
    /// The znodes that they have made for it: those have no other token than what they were made with.
    made: BTreeSet<String>,
    /// Nobody can ask elsewhere: what takes a token that is missing is not done.
    is_for_here: bool,
}

impl NeededTokens {
    /// A request is about to be prepared.
    pub(super) fn begin(&mut self, is_for_here: bool) {
        *self = Self { is_for_here, ..Self::default() };
    }

    /// A program writes what has this znode's token.
    pub(super) fn need(&mut self, tree: &Tree, path: &str) {
        self.need_one(tree, path, false);
    }

    fn need_one(&mut self, tree: &Tree, path: &str, only_reads: bool) {
        if !self.made.contains(path) {
            self.tokens.need(tree, path, only_reads);
        }
    }

    /// A program changes a znode, or takes from what a quota on what it lies in leaves.
    pub(super) fn need_with_quota(&mut self, tree: &Tree, path: &str, grows: &str) {
        self.need(tree, path);
        tree.hard_quota_above(grows).into_iter().for_each(|top| self.need(tree, top));
    }

    /// A program has made a znode.
    pub(super) fn make(&mut self, tree: &Tree, path: &str) {
        if tree.own_site().is_some() {
            self.made.insert(String::from(path));
        }
    }

    /// A program reads a znode.
    pub(super) fn need_to_read(&mut self, tree: &Tree, path: &str) {
        if tree.own_site().is_some() && !tree.is_ephemeral_to_be(path) {
            self.need_one(tree, path, true);
        }
    }

    /// A program reads the children of a znode whose token is noted; they have it, too, unless they have one of their own.
    pub(super) fn need_children(&mut self, tree: &Tree, parent: &str, names: &[String]) {
        let of_parent = tree.holder_to_be(parent);
        for name in names {
            let path = if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") };
            if tree.holder_to_be(&path) != of_parent {
                self.need_to_read(tree, &path);
            }
        }
    }

    /// Whether the request is to be asked elsewhere.
    pub(super) fn are_lacking(&self) -> bool {
        !self.is_for_here && !self.tokens.is_none()
    }

    /// Whether what a program was about to do is not to be done. It is asked once for each.
    pub(super) fn forbid(&mut self) -> bool {
        self.is_for_here && !core::mem::take(&mut self.tokens).is_none()
    }

    pub(super) fn take(&mut self) -> LackedTokens {
        core::mem::take(&mut self.tokens)
    }
}
