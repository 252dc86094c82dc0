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

/// Which watches an event fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    /// Those that are told at once.
    Fast,
    /// Those that are told after everything that comes before.
    Ordered,
}

/// The watches of a connection, by the client's paths.
#[derive(Debug, Default)]
pub(super) struct Watches {
    slots: [BTreeMap<String, BTreeSet<(Pace, WatchId)>>; 5],
    /// How many there are of [`Pace::Ordered`].
    ordered: usize,
}

impl Watches {
    pub(super) fn add(&mut self, slot: Slot, path: &str, pace: Pace, watch: WatchId) {
        let is_new = self.slots[slot as usize].entry(path.to_owned()).or_default().insert((pace, watch));
        self.ordered += usize::from(is_new && pace == Pace::Ordered);
    }

    /// Whether there is any whose events come in an order.
    pub(super) fn have_order(&self) -> bool {
        self.ordered > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(BTreeMap::is_empty)
    }

    /// Whether there is one of a kind on a path.
    pub(super) fn contain(&self, path: &str, kind: WatcherKind) -> bool {
        let mut meant = Slot::ALL.into_iter().filter(|slot| slot.is_meant_by(kind));
        meant.any(|slot| self.slots[slot as usize].contains_key(path))
    }

    /// The watches of one pace that an event fires, and whether each is over now.
    pub(super) fn fire(&mut self, kind: EventKind, path: &str, pace: Pace) -> Vec<(WatchId, bool)> {
        let fired_once: &[Slot] = match kind {
            EventKind::Created | EventKind::DataChanged => &[Slot::Data, Slot::Exist],
            EventKind::ChildrenChanged => &[Slot::Child],
            EventKind::Deleted => &[Slot::Data, Slot::Exist, Slot::Child],
            _ => return Vec::new(),
        };
        let mut fired = Vec::new();
        for slot in fired_once {
            fired.extend(self.take(*slot, path, pace).into_iter().map(|watch| (watch, true)));
        }
        let mut fire_persistent = |slot: Slot, path: &str| {
            let watches = self.slots[slot as usize].get(path).into_iter().flatten();
            fired.extend(watches.filter(|(of, _)| *of == pace).map(|(_, watch)| (*watch, false)));
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

    fn take(&mut self, slot: Slot, path: &str, pace: Pace) -> Vec<WatchId> {
        let Some(watches) = self.slots[slot as usize].get_mut(path) else { return Vec::new() };
        let mut taken = Vec::new();
        watches.retain(|(of, watch)| {
            if *of == pace {
                taken.push(*watch);
            }
            *of != pace
        });
        if watches.is_empty() {
            self.slots[slot as usize].remove(path);
        }
        if pace == Pace::Ordered {
            self.ordered -= taken.len();
        }
        taken
    }

    /// Removes watches of a path.
    pub(super) fn remove(&mut self, path: &str, kind: WatcherKind) -> Vec<WatchId> {
        let meant = Slot::ALL.into_iter().filter(|slot| slot.is_meant_by(kind));
        let paces = [Pace::Fast, Pace::Ordered];
        meant.flat_map(|slot| paces.map(|pace| self.take(slot, path, pace))).flatten().collect()
    }

    /// Forgets a watch that nobody reads any more.
    pub(super) fn forget(&mut self, watch: WatchId) {
        for slot in &mut self.slots {
            slot.retain(|_, watches| {
                watches.remove(&(Pace::Fast, watch));
                self.ordered -= usize::from(watches.remove(&(Pace::Ordered, watch)));
                !watches.is_empty()
            });
        }
    }

    /// Removes all watches.
    pub(super) fn clear(&mut self) -> Vec<WatchId> {
        let slots = core::mem::take(self).slots;
        slots.into_iter().flat_map(BTreeMap::into_values).flatten().map(|(_, watch)| watch).collect()
    }

    /// All watches, by their paths and slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &str, &BTreeSet<(Pace, WatchId)>)> {
        let of_slot =
            |slot| self.slots[slot as usize].iter().map(move |(path, ids)| (slot, path.as_str(), ids));
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
        watches.add(Slot::Data, "/a", Pace::Ordered, WatchId(1));
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a", Pace::Ordered)), [(1, true)]);
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a", Pace::Ordered)), []);
    }

    #[test]
    fn a_delete_fires_data_and_child_watches() {
        let mut watches = Watches::default();
        watches.add(Slot::Data, "/a", Pace::Ordered, WatchId(1));
        watches.add(Slot::Child, "/a", Pace::Ordered, WatchId(2));
        watches.add(Slot::Child, "/", Pace::Ordered, WatchId(3));
        assert_eq!(ids(watches.fire(EventKind::Deleted, "/a", Pace::Ordered)), [(1, true), (2, true)]);
    }

    #[test]
    fn a_recursive_watch_hears_of_descendants_but_not_of_lists_of_children() {
        let mut watches = Watches::default();
        watches.add(Slot::Recursive, "/", Pace::Ordered, WatchId(1));
        watches.add(Slot::Recursive, "/a", Pace::Ordered, WatchId(2));
        watches.add(Slot::Persistent, "/a", Pace::Ordered, WatchId(3));
        assert_eq!(ids(watches.fire(EventKind::Created, "/a/b/c", Pace::Ordered)), [(2, false), (1, false)]);
        assert_eq!(ids(watches.fire(EventKind::ChildrenChanged, "/a", Pace::Ordered)), [(3, false)]);
    }

    #[test]
    fn removal_and_forgetting_leave_nothing_to_set_again() {
        let mut watches = Watches::default();
        watches.add(Slot::Exist, "/a", Pace::Ordered, WatchId(1));
        watches.add(Slot::Child, "/a", Pace::Ordered, WatchId(2));
        watches.add(Slot::Persistent, "/b", Pace::Ordered, WatchId(3));
        assert_eq!(watches.remove("/a", WatcherKind::Data), [WatchId(1)]);
        watches.forget(WatchId(3));
        assert_eq!(watches.iter().map(|(_, path, _)| path).collect::<Vec<_>>(), ["/a"]);
        assert_eq!(watches.clear(), [WatchId(2)]);
    }

    #[test]
    fn fast_watches_are_fired_apart_from_the_others() {
        let mut watches = Watches::default();
        watches.add(Slot::Data, "/a", Pace::Fast, WatchId(1));
        watches.add(Slot::Persistent, "/a", Pace::Fast, WatchId(2));
        assert!(!watches.have_order());
        watches.add(Slot::Data, "/a", Pace::Ordered, WatchId(3));
        watches.add(Slot::Data, "/a", Pace::Ordered, WatchId(3));
        assert!(watches.have_order() && watches.contain("/a", WatcherKind::Data));
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a", Pace::Fast)), [(1, true), (2, false)]);
        assert!(watches.have_order());
        assert_eq!(ids(watches.fire(EventKind::DataChanged, "/a", Pace::Ordered)), [(3, true)]);
        assert!(!watches.have_order() && !watches.contain("/a", WatcherKind::Data) && !watches.is_empty());
        watches.add(Slot::Child, "/a", Pace::Ordered, WatchId(4));
        watches.forget(WatchId(4));
        assert!(!watches.have_order());
    }
}
