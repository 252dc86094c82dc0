//! Which watches are set, what fires them, and how they are set again after a reconnect.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use stoa_wire::{AddWatchMode, EventKind, WatcherKind, path as znode_path};

/// A watch, as its owner names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// The kinds of watch that a server tells apart, in the order of the lists of setWatches2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Data,
    Exist,
    Child,
    Persistent,
    Recursive,
}

impl Slot {
    pub(super) const ALL: [Self; 5] =
        [Self::Data, Self::Exist, Self::Child, Self::Persistent, Self::Recursive];

    pub(super) fn of_mode(mode: AddWatchMode) -> Self {
        match mode {
            AddWatchMode::Persistent => Self::Persistent,
            AddWatchMode::PersistentRecursive => Self::Recursive,
        }
    }

    /// Whether the watch goes on after an event.
    pub(super) fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::Recursive)
    }

    fn is_meant_by(self, kind: WatcherKind) -> bool {
        match kind {
            WatcherKind::Any => true,
            WatcherKind::Children => self == Self::Child,
            WatcherKind::Data => matches!(self, Self::Data | Self::Exist),
            WatcherKind::Persistent => self == Self::Persistent,
            WatcherKind::PersistentRecursive => self == Self::Recursive,
        }
    }
}

/// The watches of a session, by the client's paths.
#[derive(Debug, Default)]
pub(super) struct Watches {
    slots: [BTreeMap<String, BTreeSet<WatchId>>; 5],
}

impl Watches {
    pub(super) fn add(&mut self, slot: Slot, path: &str, watch: WatchId) {
        self.slots[slot as usize].entry(path.to_owned()).or_default().insert(watch);
    }

    /// The watches that an event fires, and whether each is over now.
    pub(super) fn fire(&mut self, kind: EventKind, path: &str) -> Vec<(WatchId, bool)> {
        let fired_once: &[Slot] = match kind {
            EventKind::Created | EventKind::DataChanged => &[Slot::Data, Slot::Exist],
            EventKind::ChildrenChanged => &[Slot::Child],
            EventKind::Deleted => &[Slot::Data, Slot::Exist, Slot::Child],
            _ => return Vec::new(),
        };
        let mut fired = Vec::new();
        for slot in fired_once {
            let watches = self.slots[*slot as usize].remove(path).unwrap_or_default();
            fired.extend(watches.into_iter().map(|watch| (watch, true)));
        }
        let mut fire_persistent = |slot: Slot, path: &str| {
            let watches = self.slots[slot as usize].get(path).into_iter().flatten();
            fired.extend(watches.map(|watch| (*watch, false)));
        };
        fire_persistent(Slot::Persistent, path);
        // A recursive watch hears of a child's own creation and deletion instead.
        if kind != EventKind::ChildrenChanged {
            let mut at = Some(path);
            while let Some(path) = at {
                fire_persistent(Slot::Recursive, path);
                at = znode_path::split(path).map(|(parent, _)| parent);
            }
        }
        fired
    }

    /// Removes watches of a path.
    pub(super) fn remove(&mut self, path: &str, kind: WatcherKind) -> Vec<WatchId> {
        let meant = Slot::ALL.into_iter().filter(|slot| slot.is_meant_by(kind));
        meant.flat_map(|slot| self.slots[slot as usize].remove(path).unwrap_or_default()).collect()
    }

    /// Forgets a watch that nobody reads any more.
    pub(super) fn forget(&mut self, watch: WatchId) {
        for slot in &mut self.slots {
            slot.retain(|_, watches| {
                watches.remove(&watch);
                !watches.is_empty()
            });
        }
    }

    /// Removes all watches.
    pub(super) fn clear(&mut self) -> Vec<WatchId> {
        let slots = core::mem::take(&mut self.slots);
        slots.into_iter().flat_map(BTreeMap::into_values).flatten().collect()
    }

    /// The watched paths with their slots.
    pub(super) fn paths(&self) -> impl Iterator<Item = (Slot, &str)> {
        let of_slot = |slot| self.slots[slot as usize].keys().map(move |path| (slot, path.as_str()));
        Slot::ALL.into_iter().flat_map(of_slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(fired: Vec<(WatchId, bool)>) -> Vec<(u64, bool)> {
        fired.into_iter().map(|(watch, over)| (watch.0, over)).collect()
    }

    #[test]
    fn a_one_time_watch_fires_once() {
        let mut watches = Watches::default();
        watches.add(Slot::Data, "/a", WatchId(1));
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a")), [(1, true)]);
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a")), []);
    }

    #[test]
    fn a_delete_fires_data_and_child_watches() {
        let mut watches = Watches::default();
        watches.add(Slot::Data, "/a", WatchId(1));
        watches.add(Slot::Child, "/a", WatchId(2));
        watches.add(Slot::Child, "/", WatchId(3));
        assert_eq!(ids(watches.fire(EventKind::Deleted, "/a")), [(1, true), (2, true)]);
    }

    #[test]
    fn a_recursive_watch_hears_of_descendants_but_not_of_lists_of_children() {
        let mut watches = Watches::default();
        watches.add(Slot::Recursive, "/", WatchId(1));
        watches.add(Slot::Recursive, "/a", WatchId(2));
        watches.add(Slot::Persistent, "/a", WatchId(3));
        assert_eq!(ids(watches.fire(EventKind::Created, "/a/b/c")), [(2, false), (1, false)]);
        assert_eq!(ids(watches.fire(EventKind::ChildrenChanged, "/a")), [(3, false)]);
    }

    #[test]
    fn removal_and_forgetting_leave_nothing_to_set_again() {
        let mut watches = Watches::default();
        watches.add(Slot::Exist, "/a", WatchId(1));
        watches.add(Slot::Child, "/a", WatchId(2));
        watches.add(Slot::Persistent, "/b", WatchId(3));
        assert_eq!(watches.remove("/a", WatcherKind::Data), [WatchId(1)]);
        watches.forget(WatchId(3));
        assert_eq!(watches.paths().map(|(_, path)| path).collect::<Vec<_>>(), ["/a"]);
        assert_eq!(watches.clear(), [WatchId(2)]);
    }
}
