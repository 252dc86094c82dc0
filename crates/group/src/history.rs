//! Which history a log is of.
//!
//! Positions and terms of two groups say nothing about each other, so each group has a name that no other one has. It
//! is part of what is stored from the first record on. Who has it, has it for good; a group whose majority was lost
//! and that goes on from one member's disk goes on as another history.

use alloc::collections::BTreeMap;
use core::fmt;

/// The name of a history.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryId(pub [u8; 16]);

impl HistoryId {
    /// That of a group which these found, each with the id of its disk. All of them come to the same, and nobody else
    /// does: such ids are drawn at random.
    #[must_use]
    pub fn of_founders(founders: &BTreeMap<u8, [u8; 16]>) -> Self {
        // FNV-1a. Nobody gains by two that are alike: who could choose ids could as well say any name.
        let bytes = founders.iter().flat_map(|(server, disk)| core::iter::once(server).chain(disk));
        let hash = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Self(hash.to_be_bytes())
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A history, and where it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Its name. That of a log from before there were names is all zeros.
    pub id: HistoryId,
    /// What is up to here is from the history before it, in the words of whoever owns the state; 0 for one that was
    /// founded.
    pub since: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn founders_come_to_the_same_name_and_others_to_another() {
        let founders = BTreeMap::from([(1, [7; 16]), (2, [8; 16]), (3, [9; 16])]);
        let id = HistoryId::of_founders(&founders);
        assert_eq!(HistoryId::of_founders(&founders.clone()), id);
        assert_eq!(format!("{id}").len(), 32);
        for other in [
            BTreeMap::from([(1, [7; 16]), (2, [8; 16])]),
            BTreeMap::from([(1, [7; 16]), (2, [9; 16]), (3, [8; 16])]),
            BTreeMap::from([(1, [7; 16]), (2, [8; 16]), (4, [9; 16])]),
        ] {
            assert_ne!(HistoryId::of_founders(&other), id, "{other:?}");
        }
        assert_ne!(id, HistoryId::default());
    }
}
