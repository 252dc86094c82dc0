//! How much others have of what a site that was given up has made.
//!
//! Others have the beginning of its log, and zxids of each of its partitions grow along that: so the last zxid of each
//! says which updates they have. A zxid names the partition itself, and of a site with one partition this is one zxid.

use crate::sites::source::source_of_zxid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::ZXID_MAX;

/// Of each partition of a site that has made anything which others have, the zxid of the last of that.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KeptZxids(BTreeMap<u8, i64>);

impl KeptZxids {
    /// One more is there; 0 is none.
    pub fn note(&mut self, zxid: i64) {
        if zxid > 0 {
            let last = self.0.entry(source_of_zxid(zxid).partition).or_default();
            *last = zxid.max(*last);
        }
    }

    /// Whether they have the update of this zxid.
    #[must_use]
    pub fn has(&self, zxid: i64) -> bool {
        self.0.get(&source_of_zxid(zxid).partition).is_some_and(|last| zxid <= *last)
    }

    /// Whether they have nothing that the site has made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest zxid; 0 of none.
    #[must_use]
    pub fn largest(&self) -> i64 {
        self.0.values().copied().max().unwrap_or(0)
    }

    /// Each of them, that of the first partition first.
    pub fn iter(&self) -> impl Iterator<Item = i64> {
        self.0.values().copied()
    }

    /// As they are written down: each one in eight bytes, little-endian; 0 where there is none.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let none = self.is_empty().then_some(0);
        self.iter().chain(none).flat_map(i64::to_le_bytes).collect()
    }

    /// Reads what was written so.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (zxids, rest) = bytes.as_chunks();
        let is_one = |zxid: &i64| (0..=ZXID_MAX).contains(zxid);
        let zxids = zxids.iter().map(|zxid| Some(i64::from_le_bytes(*zxid)).filter(is_one));
        let kept = zxids.collect::<Option<Self>>()?;
        (!bytes.is_empty() && rest.is_empty()).then_some(kept)
    }
}

impl FromIterator<i64> for KeptZxids {
    fn from_iter<I: IntoIterator<Item = i64>>(zxids: I) -> Self {
        let mut kept = Self::default();
        zxids.into_iter().for_each(|zxid| kept.note(zxid));
        kept
    }
}

/// As in `0x5003,0x7023`.
impl fmt::Display for KeptZxids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("0x0");
        }
        for (at, zxid) in self.iter().enumerate() {
            write!(f, "{}0x{zxid:x}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_each_partition_has_made_counts_for_itself() {
        let of = |count: i64, partition: i64| count << 11 | partition << 5 | 3;
        let kept: KeptZxids = [of(9, 0), of(5, 2), of(4, 2), 0].into_iter().collect();
        assert!(kept.has(of(9, 0)) && kept.has(of(5, 2)) && kept.has(of(1, 2)));
        assert!(!kept.has(of(10, 0)) && !kept.has(of(6, 2)) && !kept.has(of(1, 1)));
        assert_eq!((kept.to_string().as_str(), kept.largest()), ("0x4803,0x2843", of(9, 0)));
        assert_eq!(KeptZxids::decode(&kept.encode()), Some(kept));
    }

    #[test]
    fn one_zxid_is_written_as_it_always_was_and_what_is_none_is_not_read() {
        let one: KeptZxids = [9 << 11].into_iter().collect();
        assert_eq!(one.encode(), (9_i64 << 11).to_le_bytes());
        let none = KeptZxids::default();
        assert_eq!((none.encode(), none.to_string().as_str()), (vec![0; 8], "0x0"));
        assert_eq!(KeptZxids::decode(&[0; 8]), Some(none));
        let bad = [&[][..], &[0; 7], &[0; 9], &[0xff; 8]];
        assert!(bad.iter().all(|bytes| KeptZxids::decode(bytes).is_none()));
    }
}
