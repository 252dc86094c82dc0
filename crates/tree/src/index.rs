//! From a path to the id of its znode.
//!
//! The index holds ids only. Every znode keeps the hash of its path: so an index that grows asks the znodes and
//! needs no strings. Two paths may share a hash; whoever looks up verifies.

use crate::node::Node;
use crate::slab::{NONE, Slab};
use alloc::vec::Vec;

/// Buckets in a chunk of the bucket array.
const CHUNK_BITS: u32 = 14;

/// Chains of znodes by hash (linear hashing): the number of buckets grows by one at a time, so
/// an insert never pays for more than its own bucket, and what is there is never copied.
///
/// With `base` a power of two and `base + split` buckets, the buckets below `split` have been
/// split in two: there, one more bit of the hash decides.
#[derive(Debug)]
pub(crate) struct PathIndex {
    /// Heads of the chains, [`Node::next_in_bucket`] goes on.
    chunks: Vec<Vec<u32>>,
    base: u32,
    split: u32,
    len: usize,
}

impl PathIndex {
    pub(crate) fn new() -> Self {
        let mut chunk = Vec::with_capacity(1 << CHUNK_BITS);
        chunk.push(NONE);
        Self { chunks: Vec::from([chunk]), base: 1, split: 0, len: 0 }
    }

    #[inline]
    fn bucket_of(&self, hash: u32) -> u32 {
        let bucket = hash & (self.base - 1);
        if bucket < self.split { hash & (2 * self.base - 1) } else { bucket }
    }

    #[inline]
    fn head(&self, bucket: u32) -> u32 {
        self.chunks[(bucket >> CHUNK_BITS) as usize][(bucket & ((1 << CHUNK_BITS) - 1)) as usize]
    }

    #[inline]
    fn head_mut(&mut self, bucket: u32) -> &mut u32 {
        &mut self.chunks[(bucket >> CHUNK_BITS) as usize][(bucket & ((1 << CHUNK_BITS) - 1)) as usize]
    }

    /// The id of the znode with this hash that `is_it` confirms.
    #[inline]
    pub(crate) fn find(&self, nodes: &Slab<Node>, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut id = self.head(self.bucket_of(hash));
        while id != NONE {
            let node = &nodes[id];
            if node.hash == hash && is_it(id) {
                return Some(id);
            }
            id = node.next_in_bucket;
        }
        None
    }

    /// Adds a znode that is not in the index.
    pub(crate) fn insert(&mut self, nodes: &mut Slab<Node>, id: u32) {
        self.len += 1;
        // Up to three znodes in four buckets.
        if self.len > (self.base + self.split) as usize / 4 * 3 {
            self.grow(nodes);
        }
        let bucket = self.bucket_of(nodes[id].hash);
        nodes[id].next_in_bucket = core::mem::replace(self.head_mut(bucket), id);
    }

    pub(crate) fn remove(&mut self, nodes: &mut Slab<Node>, id: u32) {
        let bucket = self.bucket_of(nodes[id].hash);
        let next = nodes[id].next_in_bucket;
        let mut at = self.head(bucket);
        if at == id {
            *self.head_mut(bucket) = next;
        } else {
            while nodes[at].next_in_bucket != id {
                at = nodes[at].next_in_bucket;
            }
            nodes[at].next_in_bucket = next;
        }
        self.len -= 1;
    }

    /// Makes buckets for `count` znodes. Cheap while the index is empty.
    pub(crate) fn reserve(&mut self, nodes: &mut Slab<Node>, count: usize) {
        while count > (self.base + self.split) as usize / 4 * 3 && self.base <= u32::MAX / 2 {
            self.grow(nodes);
        }
    }

    /// Splits one bucket.
    fn grow(&mut self, nodes: &mut Slab<Node>) {
        // Beyond 2^31 buckets the chains just get longer.
        if self.base > u32::MAX / 2 {
            return;
        }
        let (low, high) = (self.split, self.base + self.split);
        if (high & ((1 << CHUNK_BITS) - 1)) == 0 {
            self.chunks.push(Vec::with_capacity(1 << CHUNK_BITS));
        }
        self.chunks.last_mut().expect("there is at least one chunk").push(NONE);
        let mut id = core::mem::replace(self.head_mut(low), NONE);
        while id != NONE {
            let next = nodes[id].next_in_bucket;
            let bucket = if nodes[id].hash & self.base == 0 { low } else { high };
            nodes[id].next_in_bucket = core::mem::replace(self.head_mut(bucket), id);
            id = next;
        }
        self.split += 1;
        if self.split == self.base {
            self.base *= 2;
            self.split = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::PathHasher;

    #[test]
    fn chains_are_split_and_emptied() {
        let mut nodes = Slab::new();
        let mut index = PathIndex::new();
        let hasher = PathHasher::new(3);
        let mut ids = Vec::new();
        for n in 0..50_000_u32 {
            let mut node = Node::new("n", None, 0, 0);
            // Every tenth shares its hash with the one before.
            node.hash = hasher.path(&format!("/{}", if n % 10 == 0 { n.saturating_sub(1) } else { n }));
            let id = nodes.insert(node);
            index.insert(&mut nodes, id);
            ids.push(id);
        }
        for id in &ids {
            let hash = nodes[*id].hash;
            assert_eq!(index.find(&nodes, hash, |other| other == *id), Some(*id));
        }
        for id in &ids[..25_000] {
            index.remove(&mut nodes, *id);
        }
        for (n, id) in ids.iter().enumerate() {
            let found = index.find(&nodes, nodes[*id].hash, |other| other == *id);
            assert_eq!(found.is_some(), n >= 25_000);
        }
        let mut longest = 0;
        for bucket in 0..index.base + index.split {
            let mut len = 0;
            let mut id = index.head(bucket);
            while id != NONE {
                len += 1;
                id = nodes[id].next_in_bucket;
            }
            longest = longest.max(len);
        }
        assert!(longest < 12, "a chain of {longest}");
    }
}
