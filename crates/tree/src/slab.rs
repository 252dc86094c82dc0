//! Storage with stable 32-bit ids, in chunks: growing never copies what is there.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// A chunk of znodes is 1.2 MB: large enough for what an allocator adds not to matter.
const CHUNK_BITS: u32 = 14;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;
const SLOT_MASK: u32 = (1 << CHUNK_BITS) - 1;

/// No slot: id 0 is never handed out.
pub(crate) const NONE: u32 = 0;

/// A value that can mark its slot as free and carry a link to the next free one.
pub(crate) trait Slot {
    /// The value of a free slot.
    fn vacant(next_free: u32) -> Self;
    /// The link that [`Slot::vacant`] was given; only asked of a free slot.
    fn next_free(&self) -> u32;
    /// Whether the slot is free.
    fn is_vacant(&self) -> bool;
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    first_free: u32,
    end: u32,
    live: usize,
}

impl<T: Slot> Slab<T> {
    pub(crate) fn new() -> Self {
        let mut slab = Self { chunks: Vec::new(), first_free: NONE, end: 0, live: 0 };
        slab.push(T::vacant(NONE));
        slab.live = 0;
        slab
    }

    fn push(&mut self, value: T) -> u32 {
        let id = self.end;
        if (id & SLOT_MASK) == 0 {
            self.chunks.push(Vec::with_capacity(CHUNK_LEN));
        }
        let chunk = self.chunks.last_mut().expect("a chunk was pushed when the last one was full");
        chunk.push(value);
        self.end = id.checked_add(1).expect("ids run out only after memory for 4 billion slots did");
        self.live += 1;
        id
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let id = self.first_free;
        if id == NONE {
            return self.push(value);
        }
        self.first_free = self[id].next_free();
        self[id] = value;
        self.live += 1;
        id
    }

    pub(crate) fn remove(&mut self, id: u32) -> T {
        debug_assert!(id != NONE && !self[id].is_vacant());
        let next_free = self.first_free;
        self.first_free = id;
        self.live -= 1;
        core::mem::replace(&mut self[id], T::vacant(next_free))
    }

    /// One past the largest id ever handed out.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Number of slots in use.
    pub(crate) fn live(&self) -> usize {
        self.live
    }
}

// An id that is not in the slab is a broken invariant of this crate: ids never come from outside.
impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.chunks[(id >> CHUNK_BITS) as usize][(id & SLOT_MASK) as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[(id >> CHUNK_BITS) as usize][(id & SLOT_MASK) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Value {
        Free(u32),
        Used(u32),
    }

    impl Slot for Value {
        fn vacant(next_free: u32) -> Self {
            Self::Free(next_free)
        }
        fn next_free(&self) -> u32 {
            match self {
                Self::Free(next) => *next,
                Self::Used(_) => panic!("asked of a used slot"),
            }
        }
        fn is_vacant(&self) -> bool {
            matches!(self, Self::Free(_))
        }
    }

    #[test]
    fn ids_are_stable_over_chunks_and_freed_ones_are_used_again() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..40_000).map(|n| slab.insert(Value::Used(n))).collect();
        assert_eq!(ids.first(), Some(&1), "id 0 stands for none");
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(slab[*id], Value::Used(n as u32));
        }
        assert_eq!(slab.remove(5), Value::Used(4));
        assert_eq!(slab.remove(16_385), Value::Used(16_384));
        assert_eq!(slab.live(), 39_998);
        assert_eq!(slab.insert(Value::Used(1)), 16_385);
        assert_eq!(slab.insert(Value::Used(2)), 5);
        assert_eq!(slab.insert(Value::Used(3)), 40_001);
        assert_eq!(slab.end(), 40_002);
    }
}
