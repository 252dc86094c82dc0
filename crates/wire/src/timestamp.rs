//! What somebody has seen: a position on every partition's timeline (AGORA, section IV-C2). Positions here are finer
//! than those of entries; what they count is the matter of whoever makes the timelines.
//!
//! Whoever has seen a timestamp must not be shown anything older. Each partition has one that says on
//! what its state rests, each connection one that says what its client was shown; a request carries its
//! connection's, an entry of a timeline that of the partition which made it, and whoever receives one
//! merges it into his own. So what depends on each other is known without anybody ordering it.

use crate::codec::{DecodeError, Reader, put};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// So many partitions are common: positions of no more are kept in place, since each request has a timestamp or two.
const COMMON: usize = 8;

/// No zxid is larger. What is read and claims more is damaged.
pub const ZXID_MAX: i64 = i64::MAX >> 1;

/// A position for each partition, and the largest zxid behind them. That of a server with one partition
/// is empty and costs nothing: there the one timeline orders everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timestamp {
    positions: SmallVec<[u64; COMMON]>,
    zxid: i64,
}

impl Timestamp {
    /// The beginning of all timelines.
    #[must_use]
    pub fn new(partitions: u8) -> Self {
        let len = if partitions > 1 { usize::from(partitions) } else { 0 };
        Self { positions: smallvec::smallvec![0; len], zxid: 0 }
    }

    /// The position on a partition's timeline.
    #[must_use]
    #[inline]
    pub fn at(&self, partition: u8) -> u64 {
        self.positions.get(usize::from(partition)).copied().unwrap_or(0)
    }

    /// One partition has come to this position, or was there already.
    #[inline]
    pub fn raise(&mut self, partition: u8, position: u64) {
        if let Some(own) = self.positions.get_mut(usize::from(partition)) {
            *own = position.max(*own);
        }
    }

    /// The largest zxid that was seen: updates that depend on it get a larger one.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// An update with this zxid was seen.
    #[inline]
    pub fn raise_zxid(&mut self, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
    }

    /// Takes the later position of each partition.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.positions.iter_mut().zip(&other.positions) {
            *own = (*own).max(*other);
        }
        self.raise_zxid(other.zxid);
    }

    /// The same, of an encoded one.
    ///
    /// # Errors
    /// When it is cut short, or its zxid is none.
    pub fn merge_encoded(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.raise_zxid(read_zxid(reader)?);
        let len = reader.count(8)?;
        for own in self.positions.iter_mut().take(len) {
            *own = reader.i64()?.cast_unsigned().max(*own);
        }
        Ok(())
    }

    /// The same, where it is not known yet how many partitions there are.
    pub fn include(&mut self, other: &Self) {
        if self.is_empty() {
            self.positions.clone_from(&other.positions);
        }
        self.merge(other);
    }

    /// Whether whoever has seen this has seen the other one.
    #[must_use]
    #[inline]
    pub fn covers(&self, other: &Self) -> bool {
        self.positions.len() == other.positions.len()
            && self.positions.iter().zip(&other.positions).all(|(own, other)| own >= other)
    }

    /// Whether there is only one partition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i64(out, self.zxid);
        put::len(out, self.positions.len());
        for position in &self.positions {
            put::i64(out, position.cast_signed());
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is cut short, or its zxid is none.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let zxid = read_zxid(reader)?;
        let len = reader.count(8)?;
        let positions = (0..len).map(|_| Ok(reader.i64()?.cast_unsigned())).collect::<Result<_, _>>()?;
        Ok(Self { positions, zxid })
    }
}

fn read_zxid(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    match reader.i64()? {
        zxid @ 0..=ZXID_MAX => Ok(zxid),
        _ => Err(DecodeError::BadValue("zxid")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_only_grows() {
        let mut one = Timestamp::new(3);
        let mut other = Timestamp::new(3);
        one.raise(0, 5);
        one.raise(0, 4);
        other.raise(2, 7);
        assert!(!one.covers(&other) && !other.covers(&one));
        other.raise_zxid(9);
        one.merge(&other);
        assert!(one.covers(&other) && !other.covers(&one));
        assert_eq!([one.at(0), one.at(1), one.at(2), one.at(3)], [5, 0, 7, 0]);
        assert_eq!(one.zxid(), 9);
        let mut bytes = Vec::new();
        one.encode(&mut bytes);
        assert_eq!(Timestamp::decode(&mut Reader::new(&bytes)).unwrap(), one);
        let mut merged = Timestamp::new(3);
        merged.merge_encoded(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(merged, one);
        for (zxid, fits) in [(ZXID_MAX, true), (ZXID_MAX + 1, false), (-1, false)] {
            let mut bytes = bytes.clone();
            bytes[..8].copy_from_slice(&zxid.to_be_bytes());
            assert_eq!(merged.clone().merge_encoded(&mut Reader::new(&bytes)).is_ok(), fits);
            assert_eq!(Timestamp::decode(&mut Reader::new(&bytes)).is_ok(), fits);
        }
        for cut in 0..bytes.len() {
            assert!(merged.merge_encoded(&mut Reader::new(&bytes[..cut])).is_err());
            assert!(Timestamp::decode(&mut Reader::new(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn one_partition_needs_none() {
        let mut only = Timestamp::new(1);
        only.raise(0, 5);
        assert!(only.is_empty() && only.covers(&Timestamp::new(1)));
    }
}
