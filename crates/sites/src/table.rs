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
    /// Half of the hash, and what it is about; 0 is an entry of nothing.
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

/// The bit of a tag that each has which is one, and the bit of those of directories.
const SOME: u32 = 1;
const OF_DIRECTORY: u32 = 2;

/// Where something is kept, if it is: the set, and the tag in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    set: usize,
    tag: u32,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    hash: FixedState,
    version: u64,
}

impl Table {
    /// Room for so many, or somewhat more: a power of two.
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.clamp(WAYS, 1 << 24).next_power_of_two();
        let entries = vec![Entry::default(); entries].into_boxed_slice();
        Self { entries, hash: FixedState::with_seed(SEED), version: 0 }
    }

    /// Another one whenever what is remembered of directories is something else, and sometimes when it is not.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// What is remembered of a directory is something else.
    pub(crate) fn changed(&mut self) {
        self.version += 1;
    }

    /// What is remembered, if anything.
    pub(crate) fn find(&self, about: About, path: &str) -> Option<&Entry> {
        let Place { set, tag } = self.place(about, path);
        self.entries[set..set + WAYS].iter().find(|entry| entry.tag == tag)
    }

    /// What is remembered. If that is nothing, `make` says what is to be, and what was used longest ago is forgotten.
    pub(crate) fn find_or(&mut self, about: About, path: &str, make: impl FnOnce() -> Entry) -> &mut Entry {
        let place = self.place(about, path);
        if !self.touch(place) {
            self.put(place, make());
        }
        self.first(place)
    }

    /// Has what is kept at a place be the first of its set, if it is kept. Returns whether it is.
    pub(crate) fn touch(&mut self, place: Place) -> bool {
        let set = &mut self.entries[place.set..place.set + WAYS];
        let Some(at) = set.iter().position(|entry| entry.tag == place.tag) else { return false };
        if at > 0 {
            set[..=at].rotate_right(1);
        }
        true
    }

    /// Keeps something that is not kept, as the first of its set.
    pub(crate) fn put(&mut self, place: Place, entry: Entry) {
        let set = &mut self.entries[place.set..place.set + WAYS];
        set.rotate_right(1);
        let last = core::mem::replace(&mut set[0], Entry { tag: place.tag, ..entry });
        self.version += u64::from(last.tag & OF_DIRECTORY != 0);
    }

    /// What was touched or put last at a place.
    pub(crate) fn first(&mut self, place: Place) -> &mut Entry {
        &mut self.entries[place.set]
    }

    /// Where something is kept.
    pub(crate) fn place(&self, about: About, path: &str) -> Place {
        let hash = self.hash(about, path);
        let sets = self.entries.len() / WAYS;
        let set = hash as u32 as usize & (sets - 1);
        let of = if about == About::Object { SOME } else { SOME | OF_DIRECTORY };
        Place { set: set * WAYS, tag: (hash >> 32) as u32 & !(SOME | OF_DIRECTORY) | of }
    }

    /// What it is known by.
    pub(crate) fn hash(&self, about: About, path: &str) -> u64 {
        self.hash.hash_one((about as u8, path))
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
