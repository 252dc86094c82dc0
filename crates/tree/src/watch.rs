//! Watches: who is told of a change. Local to a server, no part of the replicated state.
//!
//! A watch is a pair of path and watcher, with the modes in which it is set. Each path is stored
//! once. A watch hangs in two lists, of its path and of its watcher, so adding, firing, removing
//! it and forgetting a whole watcher take the same time however many there are. A path has a list
//! for each [class](Class) of watches: who listens to something else costs a change nothing.

use crate::hash::{PathHasher, fold, spread};
use crate::observer::Change;
use crate::slab::{NONE, Slab, Slot};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use stoa_wire::{EventKind, WatcherKind};

/// A connection, as whoever keeps the watches numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherId(pub u64);

/// How a watch listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchMode {
    /// Once, to the znode (set by getData).
    Data,
    /// The same (set by exists, also on a znode that is not there).
    Exist,
    /// Once, to the list of children and the end of the znode (set by getChildren).
    Child,
    /// To all of that, until removed.
    Persistent,
    /// To the znode and everything below it, until removed. Not to lists of children: the
    /// creation or deletion of the child says it.
    PersistentRecursive,
}

const DATA: u8 = 1;
const CHILD: u8 = 2;
const PERSISTENT: u8 = 4;
const RECURSIVE: u8 = 8;
/// What ZooKeeper keeps in its table of data watches.
const DATA_TABLE: u8 = DATA | PERSISTENT | RECURSIVE;
/// What ZooKeeper keeps in its table of child watches.
const CHILD_TABLE: u8 = CHILD | PERSISTENT;

/// To what of a path a watch listens. A path has a list of watches for each.
type Class = usize;

/// To what is below as well. It may listen to the znode or its list of children besides, or not: when that
/// list changes it is told of the child anyway.
const BELOW: Class = 0;
/// To the znode and to the list of its children.
const BOTH: Class = 1;
const ZNODE: Class = 2;
const CHILDREN: Class = 3;
const CLASSES: usize = 4;

fn class_of(modes: u8) -> Class {
    match (modes & DATA_TABLE != 0, modes & CHILD_TABLE != 0) {
        _ if modes & RECURSIVE != 0 => BELOW,
        (true, true) => BOTH,
        (true, false) => ZNODE,
        (false, _) => CHILDREN,
    }
}

impl WatchMode {
    /// One for each bit.
    const ALL: [Self; 4] = [Self::Data, Self::Child, Self::Persistent, Self::PersistentRecursive];

    fn bit(self) -> u8 {
        match self {
            Self::Data | Self::Exist => DATA,
            Self::Child => CHILD,
            Self::Persistent => PERSISTENT,
            Self::PersistentRecursive => RECURSIVE,
        }
    }
}

fn bits_of(kind: WatcherKind) -> u8 {
    match kind {
        WatcherKind::Children => CHILD,
        WatcherKind::Data => DATA,
        WatcherKind::Any => DATA_TABLE | CHILD_TABLE,
        WatcherKind::Persistent => PERSISTENT,
        WatcherKind::PersistentRecursive => RECURSIVE,
    }
}

#[derive(Debug)]
struct Watch {
    /// For a free slot: the next free one.
    path: u32,
    /// [`NONE`] when the slot is free.
    watcher: u32,
    next_of_path: u32,
    prev_of_path: u32,
    next_of_watcher: u32,
    prev_of_watcher: u32,
    modes: u8,
}

#[derive(Debug)]
struct WatchedPath {
    /// `None` when the slot is free: clients may watch any path, the empty one too.
    path: Option<Box<str>>,
    hash: u32,
    /// The list of each [`Class`]. For a free slot, the first is the next free one.
    first: [u32; CLASSES],
}

#[derive(Debug)]
struct Watcher {
    id: WatcherId,
    /// For a free slot: the next free one.
    first: u32,
    vacant: bool,
}

impl Slot for Watch {
    fn vacant(next_free: u32) -> Self {
        Self {
            path: next_free,
            watcher: NONE,
            next_of_path: NONE,
            prev_of_path: NONE,
            next_of_watcher: NONE,
            prev_of_watcher: NONE,
            modes: 0,
        }
    }
    fn next_free(&self) -> u32 {
        self.path
    }
    fn is_vacant(&self) -> bool {
        self.watcher == NONE
    }
}

impl WatchedPath {
    fn is_watched(&self) -> bool {
        self.first != [NONE; CLASSES]
    }

    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }
}

impl Slot for WatchedPath {
    fn vacant(next_free: u32) -> Self {
        Self { path: None, hash: 0, first: [next_free, NONE, NONE, NONE] }
    }
    fn next_free(&self) -> u32 {
        self.first[0]
    }
    fn is_vacant(&self) -> bool {
        self.path.is_none()
    }
}

impl Slot for Watcher {
    fn vacant(next_free: u32) -> Self {
        Self { id: WatcherId(0), first: next_free, vacant: true }
    }
    fn next_free(&self) -> u32 {
        self.first
    }
    fn is_vacant(&self) -> bool {
        self.vacant
    }
}

/// What the word `wchs` shows: of the watches that ZooKeeper calls data watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchSummary {
    /// Number of watchers.
    pub watchers: usize,
    /// Number of watched paths.
    pub paths: usize,
    /// Number of pairs of the two.
    pub watches: usize,
}

/// The watches of a server's connections.
#[derive(Debug)]
pub struct Watches {
    hasher: PathHasher,
    watches: Slab<Watch>,
    paths: Slab<WatchedPath>,
    watchers: Slab<Watcher>,
    by_pair: HashTable<u32>,
    by_path: HashTable<u32>,
    by_id: HashMap<WatcherId, u32, FixedState>,
    recursive: usize,
    in_data_table: usize,
    in_child_table: usize,
    /// Whom the current change is told to, and who else listens recursively: kept for their allocations.
    told: Vec<u32>,
    above: Vec<u32>,
}

impl Watches {
    /// No watches. The seed keeps clients from choosing paths that collide; it changes nothing
    /// that can be seen.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        Self {
            hasher: PathHasher::new(hash_seed),
            watches: Slab::new(),
            paths: Slab::new(),
            watchers: Slab::new(),
            by_pair: HashTable::new(),
            by_path: HashTable::new(),
            by_id: HashMap::default(),
            recursive: 0,
            in_data_table: 0,
            in_child_table: 0,
            told: Vec::new(),
            above: Vec::new(),
        }
    }

    /// Sets a watch. Returns whether it was not set before in this mode.
    pub fn add(&mut self, path: &str, watcher: WatcherId, mode: WatchMode) -> bool {
        let path = self.path_slot(path);
        let watcher = self.watcher_slot(watcher);
        let id = match self.find(path, watcher) {
            Some(id) => id,
            None => self.link(path, watcher),
        };
        let before = self.watches[id].modes;
        self.set_modes(id, before | mode.bit());
        before & mode.bit() == 0
    }

    /// Removes what `kind` means of a watcher's watches on `path`. Returns whether there was any.
    pub fn remove(&mut self, watcher: WatcherId, path: &str, kind: WatcherKind) -> bool {
        let Some(id) = self.find_by_name(watcher, path) else {
            return false;
        };
        let modes = self.watches[id].modes;
        let bits = bits_of(kind);
        if modes & bits == 0 {
            return false;
        }
        self.keep_modes(id, modes & !bits);
        true
    }

    /// Whether the watcher has a watch of this kind on `path`.
    #[must_use]
    pub fn contains(&self, watcher: WatcherId, path: &str, kind: WatcherKind) -> bool {
        self.find_by_name(watcher, path).is_some_and(|id| self.watches[id].modes & bits_of(kind) != 0)
    }

    /// Forgets a watcher and all its watches.
    pub fn remove_watcher(&mut self, watcher: WatcherId) {
        while let Some(slot) = self.by_id.get(&watcher) {
            let first = self.watchers[*slot].first;
            self.keep_modes(first, 0);
        }
    }

    /// Tells a change to everybody who watches for it, each once, and drops the watches that
    /// listen only once.
    ///
    /// The caller decides who may know (see [`Change::acl`]): a watch that listens once is gone in
    /// either case.
    pub fn trigger(&mut self, change: &Change<'_>, tell: &mut impl FnMut(WatcherId, EventKind, &str)) {
        if self.watches.live() == 0 {
            return;
        }
        let (fires, once, classes) = match change.kind {
            EventKind::Created | EventKind::DataChanged => (DATA_TABLE, DATA, &[BELOW, BOTH, ZNODE][..]),
            EventKind::Deleted => {
                (DATA_TABLE | CHILD_TABLE, DATA | CHILD, &[BELOW, BOTH, ZNODE, CHILDREN][..])
            }
            EventKind::ChildrenChanged => (CHILD_TABLE, CHILD, &[BELOW, BOTH, CHILDREN][..]),
            _ => return,
        };
        let is_told_above = self.recursive > 0 && fires & RECURSIVE != 0;
        let (mut told, mut above) = (core::mem::take(&mut self.told), core::mem::take(&mut self.above));
        let hash = match is_told_above {
            true => self.listening_above(change.path, &mut above),
            false => self.hasher.path(change.path),
        };
        if let Some(path) = self.find_path(change.path, hash) {
            // With its last watch the path is gone, and has no list any more.
            let lists = self.paths[path].first;
            for class in classes {
                let mut next = lists[*class];
                while next != NONE {
                    let id = next;
                    let watch = &self.watches[id];
                    next = watch.next_of_path;
                    let modes = watch.modes;
                    if modes & fires != 0 {
                        told.push(watch.watcher);
                        tell(self.watchers[watch.watcher].id, change.kind, change.path);
                        if modes & once != 0 {
                            // If it goes to another list, then to one that does not fire.
                            self.keep_modes(id, modes & !once);
                        }
                    }
                }
            }
        }
        if !above.is_empty() {
            self.tell_above(change, &mut told, &mut above, tell);
        }
        told.clear();
        above.clear();
        (self.told, self.above) = (told, above);
    }

    /// Adds those who listen recursively from above a path, and returns its hash.
    fn listening_above(&self, path: &str, above: &mut Vec<u32>) -> u32 {
        let mut levels = self.hasher.levels(path).peekable();
        let mut last = 0;
        while let Some((at, hash)) = levels.next() {
            last = hash;
            if levels.peek().is_some()
                && let Some(slot) = self.find_path(at, hash)
            {
                above.extend(self.ids_in(slot, BELOW).map(|id| self.watches[id].watcher));
            }
        }
        last
    }

    /// Tells a change to those who listen from above and are not yet told, each once.
    fn tell_above(
        &self,
        change: &Change<'_>,
        told: &mut [u32],
        above: &mut [u32],
        tell: &mut impl FnMut(WatcherId, EventKind, &str),
    ) {
        told.sort_unstable();
        above.sort_unstable();
        let mut last = NONE;
        for watcher in above {
            if *watcher != last && told.binary_search(watcher).is_err() {
                tell(self.watchers[*watcher].id, change.kind, change.path);
            }
            last = *watcher;
        }
    }

    /// Takes out the watches on all paths that `is_taken` says, and gives each to `each`, once for each mode in
    /// which it is set. Takes time in proportion to the number of watched paths.
    pub(crate) fn take_on(
        &mut self,
        is_taken: impl Fn(&str) -> bool,
        mut each: impl FnMut(&str, WatcherId, WatchMode),
    ) {
        let slots = self.by_path.iter().copied().filter(|slot| is_taken(self.paths[*slot].path()));
        for slot in slots.collect::<Vec<u32>>() {
            // The path is gone with its last watch.
            let ids: Vec<u32> = self.ids_at(slot).collect();
            for id in ids {
                let watch = &self.watches[id];
                let (path, watcher) = (self.paths[watch.path].path(), self.watchers[watch.watcher].id);
                let modes = WatchMode::ALL.into_iter().filter(|mode| watch.modes & mode.bit() != 0);
                modes.for_each(|mode| each(path, watcher, mode));
                self.keep_modes(id, 0);
            }
        }
    }

    /// A path and those above it, with their hashes.
    pub(crate) fn levels<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'p str, u32)> {
        self.hasher.levels(path)
    }

    /// Who listens recursively on one of these paths, given with their hashes: each path and watcher once.
    pub(crate) fn recursive_on<'p>(
        &self,
        paths: impl Iterator<Item = (&'p str, u32)>,
    ) -> Vec<(&str, WatcherId)> {
        let slots: BTreeSet<u32> = paths.filter_map(|(path, hash)| self.find_path(path, hash)).collect();
        let ids = slots.into_iter().flat_map(|slot| self.ids_in(slot, BELOW));
        let watches = ids.map(|id| &self.watches[id]);
        watches.map(|it| (self.paths[it.path].path(), self.watchers[it.watcher].id)).collect()
    }

    /// The watches on a path.
    fn ids_at(&self, slot: u32) -> impl Iterator<Item = u32> {
        (0..CLASSES).flat_map(move |class| self.ids_in(slot, class))
    }

    fn ids_in(&self, slot: u32, class: Class) -> impl Iterator<Item = u32> {
        let mut next = self.paths[slot].first[class];
        core::iter::from_fn(move || {
            let id = (next != NONE).then_some(next)?;
            next = self.watches[id].next_of_path;
            Some(id)
        })
    }

    // Counts and listings.

    /// Number of watches as ZooKeeper counts them: a persistent one counts as a data watch and a
    /// child watch.
    #[must_use]
    pub fn count(&self) -> usize {
        self.in_data_table + self.in_child_table
    }

    /// Number of pairs of path and watcher.
    #[must_use]
    pub fn pair_count(&self) -> usize {
        self.watches.live()
    }

    /// Number of watched paths.
    #[must_use]
    pub fn path_count(&self) -> usize {
        self.paths.live()
    }

    /// Number of watchers.
    #[must_use]
    pub fn watcher_count(&self) -> usize {
        self.by_id.len()
    }

    /// What the word `wchs` shows. Takes time in proportion to the number of watches.
    #[must_use]
    pub fn summary(&self) -> WatchSummary {
        WatchSummary {
            watchers: self.watchers().filter(|watcher| self.paths_of(*watcher).next().is_some()).count(),
            paths: self.by_path().count(),
            watches: self.in_data_table,
        }
    }

    /// The watchers, in no particular order.
    pub fn watchers(&self) -> impl Iterator<Item = WatcherId> {
        self.by_id.keys().copied()
    }

    /// The paths that a watcher has data watches on (`wchc`).
    pub fn paths_of(&self, watcher: WatcherId) -> impl Iterator<Item = &str> {
        let mut next = self.by_id.get(&watcher).map_or(NONE, |slot| self.watchers[*slot].first);
        core::iter::from_fn(move || {
            while next != NONE {
                let watch = &self.watches[next];
                next = watch.next_of_watcher;
                if watch.modes & DATA_TABLE != 0 {
                    return Some(self.paths[watch.path].path());
                }
            }
            None
        })
    }

    /// The paths with data watches, and who watches them (`wchp`), in no particular order.
    pub fn by_path(&self) -> impl Iterator<Item = (&str, Vec<WatcherId>)> {
        self.by_path.iter().filter_map(|slot| {
            let watches = self.ids_at(*slot).map(|id| &self.watches[id]);
            let watches = watches.filter(|watch| watch.modes & DATA_TABLE != 0);
            let watchers: Vec<WatcherId> = watches.map(|watch| self.watchers[watch.watcher].id).collect();
            (!watchers.is_empty()).then(|| (self.paths[*slot].path(), watchers))
        })
    }

    // Slots.

    fn find_path(&self, path: &str, hash: u32) -> Option<u32> {
        let is_it = |slot: &u32| {
            let watched = &self.paths[*slot];
            watched.hash == hash && watched.path() == path
        };
        self.by_path.find(spread(hash), is_it).copied()
    }

    fn path_slot(&mut self, path: &str) -> u32 {
        let hash = self.hasher.path(path);
        if let Some(slot) = self.find_path(path, hash) {
            return slot;
        }
        let slot = self.paths.insert(WatchedPath { path: Some(path.into()), hash, first: [NONE; CLASSES] });
        let paths = &self.paths;
        self.by_path.insert_unique(spread(hash), slot, |slot| spread(paths[*slot].hash));
        slot
    }

    fn watcher_slot(&mut self, id: WatcherId) -> u32 {
        let watchers = &mut self.watchers;
        *self.by_id.entry(id).or_insert_with(|| watchers.insert(Watcher { id, first: NONE, vacant: false }))
    }

    fn find(&self, path: u32, watcher: u32) -> Option<u32> {
        let is_it = |id: &u32| {
            let watch = &self.watches[*id];
            watch.path == path && watch.watcher == watcher
        };
        self.by_pair.find(hash_of_pair(path, watcher), is_it).copied()
    }

    fn find_by_name(&self, watcher: WatcherId, path: &str) -> Option<u32> {
        let watcher = *self.by_id.get(&watcher)?;
        self.find(self.find_path(path, self.hasher.path(path))?, watcher)
    }

    /// Makes a watch without any mode, which is in no list of its path; the caller gives it one.
    fn link(&mut self, path: u32, watcher: u32) -> u32 {
        let next_of_watcher = self.watchers[watcher].first;
        let id = self.watches.insert(Watch {
            path,
            watcher,
            next_of_path: NONE,
            prev_of_path: NONE,
            next_of_watcher,
            prev_of_watcher: NONE,
            modes: 0,
        });
        self.watchers[watcher].first = id;
        if next_of_watcher != NONE {
            self.watches[next_of_watcher].prev_of_watcher = id;
        }
        let watches = &self.watches;
        self.by_pair.insert_unique(hash_of_pair(path, watcher), id, |id| {
            hash_of_pair(watches[*id].path, watches[*id].watcher)
        });
        id
    }

    /// Puts a watch into the list of its path that its modes belong into.
    fn set_modes(&mut self, id: u32, modes: u8) {
        let before = core::mem::replace(&mut self.watches[id].modes, modes);
        let step = |count: &mut usize, bits: u8| {
            *count += usize::from(modes & bits != 0);
            *count -= usize::from(before & bits != 0);
        };
        step(&mut self.recursive, RECURSIVE);
        step(&mut self.in_data_table, DATA_TABLE);
        step(&mut self.in_child_table, CHILD_TABLE);
        let class = |modes| (modes != 0).then(|| class_of(modes));
        let (from, to) = (class(before), class(modes));
        if from != to {
            from.into_iter().for_each(|class| self.unlink_from_path(id, class));
            to.into_iter().for_each(|class| self.link_to_path(id, class));
        }
    }

    fn link_to_path(&mut self, id: u32, class: Class) {
        let path = self.watches[id].path;
        let next = core::mem::replace(&mut self.paths[path].first[class], id);
        let watch = &mut self.watches[id];
        (watch.next_of_path, watch.prev_of_path) = (next, NONE);
        if next != NONE {
            self.watches[next].prev_of_path = id;
        }
    }

    fn unlink_from_path(&mut self, id: u32, class: Class) {
        let Watch { path, next_of_path: next, prev_of_path: prev, .. } = self.watches[id];
        if next != NONE {
            self.watches[next].prev_of_path = prev;
        }
        if prev == NONE {
            self.paths[path].first[class] = next;
        } else {
            self.watches[prev].next_of_path = next;
        }
    }

    /// Leaves a watch only these modes; without any it is gone, and so are a path and a watcher
    /// that have no other.
    fn keep_modes(&mut self, id: u32, modes: u8) {
        if modes != 0 {
            self.set_modes(id, modes);
            return;
        }
        let (path, watcher) = (self.watches[id].path, self.watches[id].watcher);
        if let Ok(found) = self.by_pair.find_entry(hash_of_pair(path, watcher), |other| *other == id) {
            found.remove();
        }
        self.set_modes(id, 0);
        let watch = self.watches.remove(id);
        if watch.next_of_watcher != NONE {
            self.watches[watch.next_of_watcher].prev_of_watcher = watch.prev_of_watcher;
        }
        if watch.prev_of_watcher == NONE {
            self.watchers[watcher].first = watch.next_of_watcher;
        } else {
            self.watches[watch.prev_of_watcher].next_of_watcher = watch.next_of_watcher;
        }
        if !self.paths[path].is_watched() {
            let gone = self.paths.remove(path);
            if let Ok(found) = self.by_path.find_entry(spread(gone.hash), |other| *other == path) {
                found.remove();
            }
        }
        if self.watchers[watcher].first == NONE {
            let gone = self.watchers.remove(watcher);
            self.by_id.remove(&gone.id);
        }
    }
}

fn hash_of_pair(path: u32, watcher: u32) -> u64 {
    fold(u64::from(path) << 32 | u64::from(watcher), 0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_be_watched_the_empty_one_too() {
        let mut watches = Watches::new(0);
        watches.add("", WatcherId(1), WatchMode::Data);
        assert_eq!(watches.by_path().collect::<Vec<_>>(), [("", vec![WatcherId(1)])]);
        watches.remove_watcher(WatcherId(1));
        assert_eq!(watches.path_count(), 0);
    }
}
