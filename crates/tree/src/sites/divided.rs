//! What a partition of a site knows because that is divided.

use crate::reserved::{PROGRAMS, ROOT};
use crate::sites::names::SiteId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use core::fmt;
use stoa_wire::path;

/// What lives on which partition of a site.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// The partition that asks.
    pub own: u8,
    /// How many there are.
    pub partitions: u8,
    /// On which one the znode at a path lives.
    pub of: &'a dyn Fn(&str) -> u8,
    /// Whether something below a path was moved by itself: see [`crate::sites::moved`].
    pub is_split: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} of {}", self.own, self.partitions)
    }
}

/// Whether each partition has a copy of the znode at a path: it says what that knows of programs.
pub(super) fn is_copied(path: &str) -> bool {
    path.strip_prefix(PROGRAMS).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

impl Places<'_> {
    /// A bit for each partition.
    #[must_use]
    pub fn everywhere(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.partitions.max(1)))
    }

    pub(super) fn of(&self, path: &str) -> u64 {
        if is_copied(path) { self.everywhere() } else { 1 << (self.of)(path) }
    }

    /// The partitions that know who holds the token of what is at a path.
    pub(super) fn of_mark(&self, path: &str) -> u64 {
        if path == ROOT || (self.is_split)(path) { self.everywhere() } else { self.of(path) }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.of(path) & 1 << self.own != 0
    }

    /// The partitions that a create or delete at a path concerns.
    pub(super) fn of_both_sides(&self, path: &str) -> u64 {
        self.of(path) | path::split(path).map_or(0, |(parent, _)| self.of(parent))
    }
}

/// Ephemerals right below the root that live on other partitions, and whose they are.
#[derive(Debug, Default)]
pub(crate) struct OwnedAway {
    by_path: BTreeMap<String, i64>,
    by_session: BTreeMap<i64, BTreeSet<String>>,
}

impl OwnedAway {
    /// A session has one more.
    pub(crate) fn add(&mut self, path: &str, session: i64) {
        self.by_path.insert(path.into(), session);
        self.by_session.entry(session).or_default().insert(path.into());
    }

    /// It is gone, if it is one.
    pub(crate) fn remove(&mut self, path: &str) {
        let Some(session) = self.by_path.remove(path) else { return };
        if let Some(paths) = self.by_session.get_mut(&session) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// All of a session.
    pub(super) fn of(&self, session: i64) -> impl Iterator<Item = &String> {
        self.by_session.get(&session).into_iter().flatten()
    }

    /// Each of them, and whose it is.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.by_path.iter().map(|(path, session)| (path.as_str(), *session))
    }
}

/// What a tree keeps of that.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    /// Who has the mark of the root, where that lives on another partition; 0 elsewhere.
    pub(super) root_mark: SiteId,
    /// The marks of znodes below which something was moved by itself, on each partition.
    pub(super) marks: BTreeMap<String, SiteId>,
    /// Where something lives that has a child on another partition.
    pub(crate) owned_away: OwnedAway,
}
