//! Watches where subtrees move.

use crate::quota::quotas_of;
use crate::reserved::is_at_or_below;
use crate::watch::{WatchMode, WatcherId, Watches};
use alloc::string::String;
use alloc::vec::Vec;

/// A watch that goes where its znode goes, or where a znode goes that it listens to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedWatch {
    /// What it listens to.
    pub path: String,
    /// Who is told.
    pub watcher: WatcherId,
    /// How it listens.
    pub mode: WatchMode,
}

impl Watches {
    /// Takes out the watches on what goes to another partition with the subtree at `path` (see
    /// [`crate::PartOp::Give`]); they are to be added to the watches there, as are those of
    /// [`Watches::recursive_above`]. Of what is below the path, `stays` says what does not go because it lives
    /// elsewhere, or here, by a cut of its own.
    ///
    /// Recursive watches go like all others: one that listens to something here besides, because that stays,
    /// has to be added here again.
    ///
    /// Takes time in proportion to the number of watched paths, wherever they are.
    pub fn take_below(&mut self, path: &str, stays: impl Fn(&str) -> bool) -> Vec<MovedWatch> {
        let tops = tops_of(path);
        let goes = |at: &str| tops.iter().any(|top| is_at_or_below(at, top)) && !stays(at);
        let mut moved = Vec::new();
        self.take_on(goes, |path, watcher, mode| moved.push(MovedWatch { path: path.into(), watcher, mode }));
        moved
    }

    /// The recursive watches from further above on what goes with the subtree at `path`, those on the root
    /// among them. They stay, and have to be there too: a recursive watch is needed wherever something lives
    /// that it listens to.
    #[must_use]
    pub fn recursive_above(&self, path: &str) -> Vec<MovedWatch> {
        let tops = tops_of(path);
        let above = tops.iter().flat_map(|top| self.levels(top).filter(move |(at, _)| at != top));
        let mode = WatchMode::PersistentRecursive;
        let found = self.recursive_on(above).into_iter();
        found.map(|(path, watcher)| MovedWatch { path: path.into(), watcher, mode }).collect()
    }
}

/// The tops of what moves with the subtree at a path: it, and the quotas in it.
fn tops_of(path: &str) -> [String; 2] {
    [String::from(path), quotas_of(path)]
}
