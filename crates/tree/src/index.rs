//! From a path to the id of its znode.
//!
//! The index holds ids only. A path's hash is chained, component by component, from the hash of
//! its parent, and every znode keeps its own: so a create hashes one name, and a table that grows
//! asks the znodes and needs no strings. Two paths may share a hash; whoever looks up verifies.

use alloc::vec::Vec;
use hashbrown::HashTable;

/// Tables are many so that none is large: the pause of one that grows stays in the microseconds.
const TABLE_BITS: u32 = 12;

/// Hashes paths. The seed keeps a client from choosing names that collide; it is no part of the
/// replicated state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathHasher {
    seed: u64,
}

const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const FINISH: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of the root.
pub(crate) const ROOT_HASH: u32 = 0x5170_a000;

#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl PathHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The hash of the child `name` of the path with the hash `parent`.
    #[inline]
    pub(crate) fn child(self, parent: u32, name: &[u8]) -> u32 {
        let mut state = self.seed ^ (u64::from(parent) << 32 | name.len() as u64 & 0xffff_ffff);
        let (words, tail) = name.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), FOLD ^ self.seed.rotate_left(17));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        state = fold(state ^ u64::from_le_bytes(last), FINISH ^ self.seed.rotate_left(41));
        (state ^ (state >> 32)) as u32
    }

    /// The hash of an absolute path. What is not one gets the hash of something else, and fails
    /// the verification that follows every lookup.
    #[inline]
    pub(crate) fn path(self, path: &str) -> u32 {
        let Some(tail) = path.as_bytes().split_first().map(|(_, tail)| tail).filter(|tail| !tail.is_empty())
        else {
            return ROOT_HASH;
        };
        let mut hash = ROOT_HASH;
        let mut start = 0;
        for (at, byte) in tail.iter().enumerate() {
            if *byte == b'/' {
                hash = self.child(hash, &tail[start..at]);
                start = at + 1;
            }
        }
        self.child(hash, &tail[start..])
    }
}

/// Spreads 32 bits over the 64 that a table wants: it takes its bucket from the low end and its
/// tag from the high one.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(FOLD)
}

#[derive(Debug)]
pub(crate) struct PathIndex {
    tables: Vec<HashTable<u32>>,
}

impl PathIndex {
    pub(crate) fn new() -> Self {
        Self { tables: (0..1 << TABLE_BITS).map(|_| HashTable::new()).collect() }
    }

    /// Makes room for `count` ids.
    pub(crate) fn reserve(&mut self, count: usize, hash_of: impl Fn(u32) -> u32) {
        let per_table = count >> TABLE_BITS;
        for table in &mut self.tables {
            table.reserve(per_table, |id| spread(hash_of(*id)));
        }
    }

    #[inline]
    fn table_of(hash: u32) -> usize {
        (hash >> (32 - TABLE_BITS)) as usize
    }

    /// The id with this hash that `is_it` confirms.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.tables[Self::table_of(hash)].find(spread(hash), |id| is_it(*id)).copied()
    }

    /// Adds an id that is not in the index. `hash_of` is asked about ids that are.
    pub(crate) fn insert(&mut self, hash: u32, id: u32, hash_of: impl Fn(u32) -> u32) {
        self.tables[Self::table_of(hash)].insert_unique(spread(hash), id, |id| spread(hash_of(*id)));
    }

    pub(crate) fn remove(&mut self, hash: u32, id: u32) {
        let table = &mut self.tables[Self::table_of(hash)];
        match table.find_entry(spread(hash), |other| *other == id) {
            Ok(entry) => {
                entry.remove();
            }
            Err(_) => unreachable!("every znode is in the index"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_hashes_as_its_parent_extended_by_its_name() {
        let hasher = PathHasher::new(7);
        let parent = hasher.path("/some-parent/b");
        assert_eq!(hasher.path("/some-parent/b/child-of-it"), hasher.child(parent, b"child-of-it"));
        assert_eq!(hasher.path("/"), ROOT_HASH);
        assert_ne!(hasher.path("/ab"), hasher.path("/a/b"));
        assert_ne!(hasher.path("/a\0"), hasher.path("/a"));
        assert_ne!(PathHasher::new(8).path("/a"), hasher.path("/a"));
    }

    #[test]
    fn hashes_of_similar_names_are_spread() {
        let hasher = PathHasher::new(0);
        let mut hashes: Vec<u32> = (0..100_000).map(|n| hasher.path(&format!("/key-{n:06}"))).collect();
        hashes.sort_unstable();
        hashes.dedup();
        // 100,000 random 32-bit values have about 1.2 collisions.
        assert!(hashes.len() > 99_980, "{} distinct hashes of 100,000", hashes.len());
    }
}
