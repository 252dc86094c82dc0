//! Which partition a znode lives on.
//!
//! The unit is a subtree: a znode with everything below it. Every znode right below the root begins one,
//! and lives where the hash of its name says, so a table of a thousand directories is no table at all;
//! the root itself and `/zookeeper` live on the first partition. Quotas stand below
//! `/zookeeper/quota` under the path that they are for, and live where that does, because each write to
//! it looks there.

/// The first partition: the root, the sessions, the ensemble's configuration.
pub(crate) const FIRST: u8 = 0;

const SYSTEM: &str = "zookeeper";
const QUOTA: &str = "/zookeeper/quota/";

/// Where everything lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    partitions: u8,
}

impl Placement {
    /// Among so many partitions.
    #[must_use]
    pub fn new(partitions: u8) -> Self {
        Self { partitions: partitions.max(1) }
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(self) -> u8 {
        self.partitions
    }

    /// The next zxid of a partition that is larger than another one: the low bits are the partition's number.
    pub(crate) fn zxid_after(self, before: i64, partition: u8) -> i64 {
        let bits = u8::BITS - (self.partitions - 1).leading_zeros();
        (((before >> bits) + 1) << bits) | i64::from(partition)
    }

    /// The zxid of the first update of all, which is the first partition's.
    pub(crate) fn first_zxid(self) -> i64 {
        self.zxid_after(0, FIRST)
    }

    /// Where the znode at a path lives, or would live. A path that is none is the first partition's to
    /// refuse.
    #[must_use]
    #[inline]
    pub fn of(self, path: &str) -> u8 {
        self.of_bytes(path.as_bytes())
    }

    /// The same of a path that may not even be text.
    #[inline]
    pub(crate) fn of_bytes(self, path: &[u8]) -> u8 {
        if self.partitions == 1 {
            return FIRST;
        }
        let quota = path.strip_prefix(QUOTA.as_bytes());
        let path = quota.or_else(|| path.strip_prefix(b"/")).unwrap_or_default();
        let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        if top.is_empty() || top == SYSTEM.as_bytes() {
            return FIRST;
        }
        self.of_top(without_number(top))
    }

    /// Where a sequential znode will live: its number has no part in that.
    #[must_use]
    pub fn of_sequential(self, path: &str) -> u8 {
        match path.strip_prefix('/') {
            Some(top) if !top.contains('/') && self.partitions > 1 => self.of_top(top.as_bytes()),
            _ => self.of(path),
        }
    }

    fn of_top(self, top: &[u8]) -> u8 {
        (hash(top) % u64::from(self.partitions)) as u8
    }

    /// Whether a znode stands right below the root, or will when its number is known: there a parent and its
    /// children may live on different partitions.
    #[must_use]
    pub fn is_top(self, path: &str) -> bool {
        self.partitions > 1 && path.rfind('/') == Some(0)
    }

    /// Whether a znode lives elsewhere than its parent.
    #[must_use]
    pub fn is_cut(self, path: &str) -> bool {
        let parent = path.rfind('/').map_or("", |at| &path[..at]);
        self.of(path) != self.of(parent)
    }
}

/// The znode right below the root, or the root, in whose subtree a path is.
pub(crate) fn top_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix('/')?;
    let end = below.find('/').map_or(path.len(), |at| at + 1);
    Some(&path[..end])
}

/// A name without the number that a sequential create has put behind it, if it looks like that: those
/// that were made with the same name live together, and it is known where before the number is.
fn without_number(name: &[u8]) -> &[u8] {
    const NUMBER_BYTES: usize = 10;
    match name.len().checked_sub(NUMBER_BYTES).and_then(|at| name.split_at_checked(at)) {
        Some((prefix, number))
            if number.strip_prefix(b"-").unwrap_or(number).iter().all(u8::is_ascii_digit) =>
        {
            prefix
        }
        _ => name,
    }
}

/// FNV-1a, with its bits mixed so that the remainder depends on all of them. What lives where follows from
/// it, so it must never change.
fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state ^= state >> 32;
    state = state.wrapping_mul(0xd6e8_feb8_6659_fd93);
    state ^ (state >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_subtree_lives_in_one_place_and_tops_are_spread() {
        let placement = Placement::new(4);
        let mut counts = [0; 4];
        for number in 0..4000 {
            let top = format!("/node-{number}");
            let partition = placement.of(&top);
            counts[usize::from(partition)] += 1;
            assert_eq!(placement.of(&format!("{top}/a/b")), partition);
            assert_eq!(placement.of(&format!("/zookeeper/quota{top}/zookeeper_limits")), partition);
            assert!(!placement.is_cut(&format!("{top}/a")));
            assert_eq!(placement.is_cut(&top), partition != FIRST);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        for path in ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "", "no path", "//x"] {
            assert_eq!(placement.of(path), FIRST, "{path}");
        }
    }

    #[test]
    fn where_things_live_never_changes() {
        let of = |path| Placement::new(8).of(path);
        assert_eq!([of("/brokers"), of("/clickhouse"), of("/hbase"), of("/solr")], [7, 5, 0, 2]);
    }

    #[test]
    fn where_a_sequential_znode_will_live_is_known_before_its_number() {
        let placement = Placement::new(8);
        for prefix in ["/", "/lock-", "/a", "/job-123456789", "/x0000000001", "/ü"] {
            for number in ["0000000000", "0000000017", "2147483647", "-000000005"] {
                assert_eq!(placement.of(&format!("{prefix}{number}")), placement.of_sequential(prefix));
            }
        }
        assert_eq!(placement.of_sequential("/a/b"), placement.of("/a"));
    }

    #[test]
    fn one_partition_has_everything() {
        assert_eq!(Placement::new(1).of("/anything"), FIRST);
        assert!(!Placement::new(1).is_cut("/anything"));
    }
}
