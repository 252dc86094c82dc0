//! A running server as its clients see it: its partitions as one.

use super::process::Thread;
use stoa_core::{Shard, SiteId};
use stoa_tree::{Tree, Znode};

/// The partitions of a running server.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a>(&'a [Thread]);

impl<'a> Whole<'a> {
    pub(super) fn new(threads: &'a [Thread]) -> Self {
        Self(threads)
    }

    /// The first partition, which has the log, the sessions and the streams between sites.
    pub(crate) fn first(&self) -> &'a Shard {
        &self.0[0].core
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a Shard> + use<'a> {
        self.0.iter().map(|thread| &thread.core)
    }

    /// The partition where a path lives.
    pub(crate) fn of(&self, path: &str) -> &'a Shard {
        let at = self.first().placement().of(path);
        &self.0[usize::from(at)].core
    }

    /// The state of the partition where a path lives.
    pub(crate) fn tree_of(&self, path: &str) -> &'a Tree {
        self.of(path).tree()
    }

    pub(crate) fn get(&self, path: &str) -> Option<Znode<'a>> {
        self.tree_of(path).get(path)
    }

    /// Who holds the token of a path, as far as the partition knows where that lives.
    pub(crate) fn holder(&self, path: &str) -> Option<SiteId> {
        self.tree_of(path).holder(path)
    }

    /// Whether all partitions agree what lives where. While something moves they apply that one after the other.
    pub(crate) fn agree_on_places(&self) -> bool {
        let placed = self.first().placement().version();
        self.all().all(|shard| shard.placement().version() == placed)
    }

    /// Whether the partition of a path leads in the term in which the server does: the others learn that a moment later
    /// than the first one, and what they have prepared in a term before may be void.
    pub(crate) fn leads(&self, path: &str) -> bool {
        let (first, of) = (self.first(), self.of(path));
        of.leads() && of.status().term == first.status().term
    }
}
