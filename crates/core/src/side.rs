//! Side connections of direct clients, as a partition knows them. What they ask: `replica/side.rs`.

use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_front::ConnectionId;

/// A side connection: its thread, and its name there.
type Side = (u8, ConnectionId);

/// At the first partition: which side connections there are.
#[derive(Default)]
pub(crate) struct Sides {
    /// By main connection, one for each partition.
    of: HashMap<ConnectionId, Vec<Side>, FixedState>,
    main: HashMap<Side, ConnectionId, FixedState>,
}

impl Sides {
    /// A side connection comes to a main one; returns the one that it replaces.
    pub(crate) fn insert(&mut self, main: ConnectionId, side: Side) -> Option<Side> {
        self.main.insert(side, main);
        let sides = self.of.entry(main).or_default();
        let replaced = sides.iter().position(|(thread, _)| *thread == side.0);
        let replaced = replaced.map(|at| sides.swap_remove(at));
        sides.push(side);
        if let Some(replaced) = &replaced {
            self.main.remove(replaced);
        }
        replaced
    }

    pub(crate) fn remove(&mut self, side: Side) {
        let Some(main) = self.main.remove(&side) else { return };
        if let Some(sides) = self.of.get_mut(&main) {
            sides.retain(|other| *other != side);
            if sides.is_empty() {
                self.of.remove(&main);
            }
        }
    }

    pub(crate) fn remove_all(&mut self, main: ConnectionId) -> Vec<Side> {
        let sides = self.of.remove(&main).unwrap_or_default();
        for side in &sides {
            self.main.remove(side);
        }
        sides
    }
}
