//! Watches: who is told of a change. Local to a server, no part of the replicated state.
//!
//! A watch is a pair of path and watcher, with the modes in which it is set. Each path is stored
//! once. A watch hangs in two lists, of its path and of its watcher, so adding, firing, removing
//! it and forgetting a whole watcher take the same time however many there are.

use crate::apply::Change;
use crate::index::{PathHasher, fold, spread};
use crate::quota::quotas_of;
use crate::slab::{NONE, Slab, Slot};
use crate::tree::is_at_or_below;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use stoa_wire::{EventKind, WatcherKind, path};

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
    /// For a free slot: the next free one.
    first: u32,
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
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }
}

impl Slot for WatchedPath {
    fn vacant(next_free: u32) -> Self {
        Self { path: None, hash: 0, first: next_free }
    }
    fn next_free(&self) -> u32 {
        self.first
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
    /// Whom the current change is told to: kept for its allocation.
    told: Vec<u32>,
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
        let (fires, once, recursive) = match change.kind {
            EventKind::Created | EventKind::DataChanged => (DATA_TABLE, DATA, RECURSIVE),
            EventKind::Deleted => (DATA_TABLE | CHILD_TABLE, DATA | CHILD, RECURSIVE),
            EventKind::ChildrenChanged => (CHILD_TABLE, CHILD, 0),
            _ => return,
        };
        let mut told = core::mem::take(&mut self.told);
        let hash = self.hasher.path(change.path);
        if let Some(path) = self.find_path(change.path, hash) {
            let mut next = self.paths[path].first;
            while next != NONE {
                let id = next;
                let watch = &self.watches[id];
                next = watch.next_of_path;
                let modes = watch.modes;
                if modes & fires != 0 {
                    told.push(watch.watcher);
                    tell(self.watchers[watch.watcher].id, change.kind, change.path);
                    if modes & once != 0 {
                        self.keep_modes(id, modes & !once);
                    }
                }
            }
        }
        if recursive != 0 && self.recursive > 0 {
            self.trigger_above(change, &mut told, tell);
        }
        told.clear();
        self.told = told;
    }

    /// Tells a change to those who watch recursively from above and are not yet told.
    fn trigger_above(
        &self,
        change: &Change<'_>,
        told: &mut Vec<u32>,
        tell: &mut impl FnMut(WatcherId, EventKind, &str),
    ) {
        told.sort_unstable();
        let told_already = told.len();
        let mut at = change.path;
        while let Some((parent, _)) = path::split(at) {
            at = parent;
            let Some(path) = self.find_path(at, self.hasher.path(at)) else {
                continue;
            };
            let mut next = self.paths[path].first;
            while next != NONE {
                let watch = &self.watches[next];
                next = watch.next_of_path;
                if watch.modes & RECURSIVE != 0 {
                    told.push(watch.watcher);
                }
            }
        }
        let (told_already, above) = told.split_at_mut(told_already);
        above.sort_unstable();
        let mut last = NONE;
        for watcher in above {
            if *watcher != last && told_already.binary_search(watcher).is_err() {
                tell(self.watchers[*watcher].id, change.kind, change.path);
            }
            last = *watcher;
        }
    }

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
        let slots = self.by_path.iter().copied().filter(|slot| goes(self.paths[*slot].path()));
        let mut moved = Vec::new();
        for slot in slots.collect::<Vec<u32>>() {
            // The path is gone with its last watch.
            let ids: Vec<u32> = self.ids_at(slot).collect();
            for id in ids {
                let all = self.watches[id].modes;
                self.note_moved(id, all, &mut moved);
                self.keep_modes(id, 0);
            }
        }
        moved
    }

    /// The recursive watches from further above on what goes with the subtree at `path`, those on the root
    /// among them. They stay, and have to be there too: a recursive watch is needed wherever something lives
    /// that it listens to.
    #[must_use]
    pub fn recursive_above(&self, path: &str) -> Vec<MovedWatch> {
        let tops = tops_of(path);
        let mut above: Vec<&str> = tops.iter().flat_map(|top| above(top)).collect();
        // The root is above both.
        above.sort_unstable();
        above.dedup();
        let slots = above.into_iter().filter_map(|at| self.find_path(at, self.hasher.path(at)));
        let mut found = Vec::new();
        for id in slots.flat_map(|slot| self.ids_at(slot)) {
            self.note_moved(id, RECURSIVE, &mut found);
        }
        found
    }

    /// The watches on a path.
    fn ids_at(&self, slot: u32) -> impl Iterator<Item = u32> {
        let mut next = self.paths[slot].first;
        core::iter::from_fn(move || {
            let id = (next != NONE).then_some(next)?;
            next = self.watches[id].next_of_path;
            Some(id)
        })
    }

    /// Notes a watch in those of these modes in which it is set.
    fn note_moved(&self, id: u32, bits: u8, moved: &mut Vec<MovedWatch>) {
        let watch = &self.watches[id];
        let (path, watcher) = (self.paths[watch.path].path(), self.watchers[watch.watcher].id);
        let modes = WatchMode::ALL.into_iter().filter(|mode| watch.modes & bits & mode.bit() != 0);
        moved.extend(modes.map(|mode| MovedWatch { path: path.into(), watcher, mode }));
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
            let mut next = self.paths[*slot].first;
            let mut watchers = Vec::new();
            while next != NONE {
                let watch = &self.watches[next];
                next = watch.next_of_path;
                if watch.modes & DATA_TABLE != 0 {
                    watchers.push(self.watchers[watch.watcher].id);
                }
            }
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
        let slot = self.paths.insert(WatchedPath { path: Some(path.into()), hash, first: NONE });
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

    /// Makes a watch without any mode; the caller gives it one.
    fn link(&mut self, path: u32, watcher: u32) -> u32 {
        let next_of_path = self.paths[path].first;
        let next_of_watcher = self.watchers[watcher].first;
        let id = self.watches.insert(Watch {
            path,
            watcher,
            next_of_path,
            prev_of_path: NONE,
            next_of_watcher,
            prev_of_watcher: NONE,
            modes: 0,
        });
        self.paths[path].first = id;
        self.watchers[watcher].first = id;
        if next_of_path != NONE {
            self.watches[next_of_path].prev_of_path = id;
        }
        if next_of_watcher != NONE {
            self.watches[next_of_watcher].prev_of_watcher = id;
        }
        let watches = &self.watches;
        self.by_pair.insert_unique(hash_of_pair(path, watcher), id, |id| {
            hash_of_pair(watches[*id].path, watches[*id].watcher)
        });
        id
    }

    fn set_modes(&mut self, id: u32, modes: u8) {
        let before = core::mem::replace(&mut self.watches[id].modes, modes);
        let step = |count: &mut usize, bits: u8| {
            *count += usize::from(modes & bits != 0);
            *count -= usize::from(before & bits != 0);
        };
        step(&mut self.recursive, RECURSIVE);
        step(&mut self.in_data_table, DATA_TABLE);
        step(&mut self.in_child_table, CHILD_TABLE);
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
        if watch.next_of_path != NONE {
            self.watches[watch.next_of_path].prev_of_path = watch.prev_of_path;
        }
        if watch.next_of_watcher != NONE {
            self.watches[watch.next_of_watcher].prev_of_watcher = watch.prev_of_watcher;
        }
        if watch.prev_of_path == NONE {
            self.paths[path].first = watch.next_of_path;
        } else {
            self.watches[watch.prev_of_path].next_of_path = watch.next_of_path;
        }
        if watch.prev_of_watcher == NONE {
            self.watchers[watcher].first = watch.next_of_watcher;
        } else {
            self.watches[watch.prev_of_watcher].next_of_watcher = watch.next_of_watcher;
        }
        if self.paths[path].first == NONE {
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

/// The tops of what moves with the subtree at a path: it, and the quotas in it.
fn tops_of(path: &str) -> [String; 2] {
    [String::from(path), quotas_of(path)]
}

/// The paths above a path.
fn above(path: &str) -> impl Iterator<Item = &str> {
    core::iter::successors(Some(path), |at| path::split(at).map(|(parent, _)| parent)).skip(1)
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
