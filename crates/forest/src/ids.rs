//! A set of servers.

use core::fmt;

/// A set of ids of servers, each 1 to 254. Others are never in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Ids {
    bits: [u64; 4],
}

impl Ids {
    /// The most bytes that [`Ids::bytes`] may give.
    pub(crate) const BYTES_MAX: usize = 32;

    /// Whether a server may have this id.
    #[must_use]
    pub fn is_id(id: u8) -> bool {
        id != 0 && id != u8::MAX
    }

    /// Adds one; what is no id is left out.
    pub fn insert(&mut self, id: u8) {
        if Self::is_id(id) {
            self.bits[usize::from(id / 64)] |= 1 << (id % 64);
        }
    }

    /// Takes one out, if it is there.
    pub fn remove(&mut self, id: u8) {
        self.bits[usize::from(id / 64)] &= !(1 << (id % 64));
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn contains(&self, id: u8) -> bool {
        self.bits[usize::from(id / 64)] & 1 << (id % 64) != 0
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits == [0; 4]
    }

    /// All of them, the smallest first.
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let set = *self;
        (1..u8::MAX).filter(move |id| set.contains(*id))
    }

    /// One bit an id, the lowest first.
    pub(crate) fn bytes(&self) -> [u8; Self::BYTES_MAX] {
        let mut bytes = [0; Self::BYTES_MAX];
        for (part, bits) in bytes.chunks_exact_mut(8).zip(self.bits) {
            part.copy_from_slice(&bits.to_le_bytes());
        }
        bytes
    }

    /// What [`Ids::bytes`] gave; `None` when it has bits that are no ids.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES_MAX]) -> Option<Self> {
        let mut ids = Self::default();
        for (bits, part) in ids.bits.iter_mut().zip(bytes.chunks_exact(8)) {
            *bits = part.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        }
        (!ids.contains(0) && !ids.contains(u8::MAX)).then_some(ids)
    }
}

impl FromIterator<u8> for Ids {
    fn from_iter<I: IntoIterator<Item = u8>>(ids: I) -> Self {
        let mut set = Self::default();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let mut set: Ids = [0, 1, 63, 64, 254, 255].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 63, 64, 254]);
        assert_eq!(Ids::from_bytes(&set.bytes()), Some(set));
        set.remove(63);
        assert!(set.contains(64) && !set.contains(63));
        assert_eq!((set.len(), set.is_empty()), (3, false));
        assert_eq!(Ids::from_bytes(&[1; 32]), None);
        assert_eq!(Ids::from_bytes(&[0x80; 32]), None);
    }
}
