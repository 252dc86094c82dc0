//! Bytes in pieces.

use alloc::vec::Vec;
use bytes::{BufMut, Bytes, BytesMut};

/// From this length on bytes are not copied: less costs more to send apart.
const SHARED_BYTES_MIN: usize = 4 << 10;

/// A message or a record. Long payloads are in it by reference, so that what goes to the log and to
/// every other member is in memory once.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    list: Vec<Bytes>,
    /// Short parts since the last piece.
    tail: BytesMut,
    len: usize,
}

impl Pieces {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for so many bytes that are copied.
    pub fn reserve(&mut self, bytes: usize) {
        self.tail.reserve(bytes);
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.tail.put_slice(bytes);
    }

    /// Appends bytes, by reference if they are many.
    pub fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            self.put(bytes);
            return;
        }
        self.len += bytes.len();
        self.seal();
        self.list.push(bytes.clone());
    }

    /// How many of these bytes [`Pieces::put_shared`] copies.
    pub(crate) fn copied(bytes: &Bytes) -> usize {
        if bytes.len() < SHARED_BYTES_MIN { bytes.len() } else { 0 }
    }

    /// Ends the short parts: what is cloned from now on is shared to the last byte.
    pub fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.list.push(self.tail.split().freeze());
        }
    }

    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let tail = Some(&*self.tail).filter(|tail| !tail.is_empty());
        self.list.iter().map(|piece| &**piece).chain(tail)
    }

    /// Puts them together.
    #[must_use]
    pub fn join(mut self) -> Bytes {
        match self.list.pop_if(|only| only.len() == self.len) {
            Some(only) => return only,
            None if self.list.is_empty() => return self.tail.freeze(),
            None => {}
        }
        let mut joined = BytesMut::with_capacity(self.len);
        self.list.drain(..).for_each(|piece| joined.put(piece));
        joined.put(self.tail);
        joined.freeze()
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = core::iter::Chain<alloc::vec::IntoIter<Bytes>, core::option::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        let tail = (!self.tail.is_empty()).then(|| self.tail.freeze());
        self.list.into_iter().chain(tail)
    }
}

/// The same bytes, however they are cut.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        self.iter().flatten().eq(other.iter().flatten())
    }
}

impl Eq for Pieces {}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        let len = bytes.len();
        Self { list: alloc::vec![bytes], tail: BytesMut::new(), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bytes_are_shared_and_the_order_is_kept() {
        let long = Bytes::from(vec![7; SHARED_BYTES_MIN]);
        let mut pieces = Pieces::default();
        assert!(pieces.is_empty());
        pieces.put(b"a");
        pieces.put_shared(&long.slice(1..));
        assert_eq!(pieces.iter().count(), 1);
        pieces.put_shared(&long);
        pieces.put(b"b");
        let expected = [b"a", &long[1..], &long, b"b"].concat();
        assert_eq!(pieces.len(), expected.len());
        let shared = pieces.iter().nth(1).map(<[u8]>::as_ptr);
        assert_eq!(shared, Some(long.as_ptr()));
        assert_eq!(pieces.clone().into_iter().flatten().collect::<Vec<_>>(), expected);
        assert_eq!(pieces, Pieces::from(Bytes::from(expected.clone())));
        pieces.seal();
        let ends = |of: &Pieces| of.iter().last().map(<[u8]>::as_ptr);
        assert_eq!((ends(&pieces.clone()), pieces.iter().count()), (ends(&pieces), 3));
        assert_eq!(pieces.join(), expected);
    }
}
