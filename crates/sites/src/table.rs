//! What is remembered of objects and directories: a table of a fixed size.
//!
//! A hash says in which of many small sets something is kept. What is used comes first in its set, and what is last there
//! is forgotten when there is no room: so nothing ever grows, and each access takes as long as any other.

use alloc::boxed::Box;
use alloc::vec;
use core::hash::BuildHasher as _;
use foldhash::fast::FixedState;

use crate::odds::Odds;

/// Entries of a set.
const WAYS: usize = 8;
/// The hash's seed: what is forgotten is the same everywhere.
const SEED: u64 = 0x5e7_51de5;

/// What something is known as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The object itself.
    Object,
    /// The accesses of a directory, whatever in it they are of.
    Unit,
    /// What the tables of all that lies in a directory have in common.
    Pool,
}

/// What is remembered of something.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    /// Half of the hash; 0 is an entry of nothing.
    tag: u32,
    pub(crate) odds: Odds,
    /// Of an object how often its token has moved in a second, or how many requests came in a row from one site; of a
    /// directory how alike its children are.
    pub(crate) count: u16,
    /// Which second, or site, that is; of a directory how often it was taken for one whose children are alike and was not.
    pub(crate) counted: u16,
}

impl Entry {
    pub(crate) fn new(odds: Odds, count: u16) -> Self {
        Self { odds, count, ..Self::default() }
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    hash: FixedState,
}

impl Table {
    /// Room for so many, or somewhat more: a power of two.
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(WAYS, 1 << 24).next_power_of_two();
        let entries = vec![Entry::default(); entries].into_boxed_slice();
        Self { entries, hash: FixedState::with_seed(SEED) }
    }

    /// What is remembered, if anything.
    pub(crate) fn find(&self, about: About, path: &str) -> Option<&Entry> {
        let (set, tag) = self.place(about, path);
        self.entries[set..set + WAYS].iter().find(|entry| entry.tag == tag)
    }

    /// What is remembered. If that is nothing, `make` says what is to be, and what was used longest ago is forgotten.
    pub(crate) fn find_or(&mut self, about: About, path: &str, make: impl FnOnce() -> Entry) -> &mut Entry {
        let (set, tag) = self.place(about, path);
        let set = &mut self.entries[set..set + WAYS];
        let at = set.iter().position(|entry| entry.tag == tag).unwrap_or(WAYS - 1);
        set[..=at].rotate_right(1);
        if set[0].tag != tag {
            set[0] = Entry { tag, ..make() };
        }
        &mut set[0]
    }

    /// Where a set begins, and the tag of the entry.
    fn place(&self, about: About, path: &str) -> (usize, u32) {
        let hash = self.hash.hash_one((about as u8, path));
        let sets = self.entries.len() / WAYS;
        let set = hash as u32 as usize & (sets - 1);
        (set * WAYS, ((hash >> 32) as u32).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;

    #[test]
    fn an_entry_takes_32_bytes() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn what_is_used_is_kept_and_the_rest_forgotten() {
        let mut table = Table::new(64);
        for round in 0..10_000_u32 {
            table.find_or(About::Object, "/kept", Entry::default).odds.observe(Site(1), 1);
            table.find_or(About::Object, &format!("/{round}"), Entry::default);
        }
        assert!(table.find(About::Object, "/kept").unwrap().odds.evidence(Site(1)) > 0);
        assert!(table.find(About::Pool, "/kept").is_none() && table.find(About::Object, "/0").is_none());
        assert_eq!(table.entries.len(), 64);
        let kept = (0..10_000).filter(|at| table.find(About::Object, &format!("/{at}")).is_some()).count();
        assert!((40..64).contains(&kept), "{kept}");
    }
}
