//! Quotas: limits on the number of znodes and the bytes of data in a subtree.
//!
//! A quota on `/a/b` is a znode `/zookeeper/quota/a/b/zookeeper_limits`, made by a client; beside
//! it lies `zookeeper_stats`, whose data is kept up to date with the usage by the server, without
//! a new version, a changed mzxid or a watch event. Only the deepest quota above a znode counts, and
//! only for znodes on its own partition.

use crate::hash::{PathHasher, spread};
use crate::node::Node;
use crate::reserved;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Write;
use hashbrown::HashTable;
use stoa_wire::path;

pub(crate) const LIMITS: &str = "zookeeper_limits";
pub(crate) const STATS: &str = "zookeeper_stats";

/// The subtrees that have a quota.
#[derive(Debug)]
pub(crate) struct Quotas {
    hasher: PathHasher,
    prefixes: HashTable<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    hash: u32,
    path: Box<str>,
    /// How many changes it has refused here.
    refused: u64,
}

/// What the quotas in one subtree right below the root come to, added up as ZooKeeper's metrics do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaSums {
    /// How many znodes there may be: the hard limit where there is one, -1 for none.
    pub count_limit: i64,
    /// How many bytes there may be, in the same way.
    pub bytes_limit: i64,
    /// Znodes that are there.
    pub count: i64,
    /// Bytes that are there.
    pub bytes: i64,
    /// Changes that were refused.
    pub refused: u64,
}

impl Quotas {
    pub(crate) fn new(hasher: PathHasher) -> Self {
        Self { hasher, prefixes: HashTable::new() }
    }

    /// Each subtree with a quota, and how many changes it has refused here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.prefixes.iter().map(|prefix| (&*prefix.path, prefix.refused))
    }

    /// The deepest subtree with a quota that `path` lies in. Takes one pass over the path.
    #[inline]
    pub(crate) fn above<'p>(&self, path: &'p str) -> Option<&'p str> {
        if self.prefixes.is_empty() { None } else { self.deepest(path) }
    }

    fn deepest<'p>(&self, path: &'p str) -> Option<&'p str> {
        // Paths are compared once, where hashes say that it is the one: they hardly ever are wrong.
        let may_be = |hash| self.prefixes.find(spread(hash), |prefix| prefix.hash == hash).is_some();
        let is_one = |level: &(&str, u32)| self.find(level.1, |path| *path == *level.0).is_some();
        let likely = self.hasher.levels(path).filter(|(_, hash)| may_be(*hash)).last()?;
        let deepest = match is_one(&likely) {
            true => Some(likely),
            false => self.hasher.levels(path).filter(is_one).last(),
        };
        deepest.map(|(path, _)| path)
    }

    /// One with this hash that `is_it` confirms.
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(&str) -> bool) -> Option<&str> {
        let found = self.prefixes.find(spread(hash), |prefix| prefix.hash == hash && is_it(&prefix.path));
        found.map(|prefix| &*prefix.path)
    }

    pub(crate) fn insert(&mut self, path: &str) {
        let hash = self.hasher.path(path);
        if self.find(hash, |other| other == path).is_none() {
            let prefix = Prefix { hash, path: path.into(), refused: 0 };
            self.prefixes.insert_unique(spread(hash), prefix, |prefix| spread(prefix.hash));
        }
    }

    pub(crate) fn refused(&mut self, path: &str) {
        let found = self.prefixes.find_mut(spread(self.hasher.path(path)), |it| *it.path == *path);
        if let Some(prefix) = found {
            prefix.refused += 1;
        }
    }

    pub(crate) fn remove(&mut self, path: &str) {
        if let Ok(found) = self.prefixes.find_entry(spread(self.hasher.path(path)), |it| *it.path == *path) {
            found.remove();
        }
    }
}

/// A change, or an amount, of what a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
}

impl Usage {
    pub(crate) fn of(node: &Node) -> Self {
        Self { count: 1, bytes: i64::try_from(node.data_len()).unwrap_or(i64::MAX) }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { count: self.count.saturating_sub(other.count), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// The data of the two znodes: `key=number`, separated by `,` or `;`.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Track(BTreeMap<String, i64>);

impl Track {
    pub(crate) const COUNT: &str = "count";
    pub(crate) const BYTES: &str = "bytes";
    pub(crate) const COUNT_HARD_LIMIT: &str = "countHardLimit";
    pub(crate) const BYTE_HARD_LIMIT: &str = "byteHardLimit";

    /// Longer data is not looked at: each write below the quota would pay for it. ZooKeeper writes about a
    /// hundred bytes.
    const BYTES_READ: usize = 1024;

    /// Parts that cannot be read are left out: a client wrote them.
    pub(crate) fn parse(data: Option<&[u8]>) -> Self {
        let data = data.filter(|data| data.len() <= Self::BYTES_READ);
        let text = data.and_then(|data| core::str::from_utf8(data).ok()).unwrap_or_default();
        let pairs = text.split([',', ';']).filter_map(|pair| {
            let mut parts = pair.split('=');
            let (key, number) = (parts.next()?, parts.next()?);
            let number = if number.is_empty() { -1 } else { number.parse().ok()? };
            Some((key.to_string(), number))
        });
        Self(pairs.collect())
    }

    /// -1 when it is not there: no limit.
    fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(-1)
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { count: self.get(Self::COUNT), bytes: self.get(Self::BYTES) }
    }

    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.0.insert(Self::COUNT.into(), usage.count);
        self.0.insert(Self::BYTES.into(), usage.bytes);
    }

    /// As ZooKeeper writes it, with the odd `=` that it puts before further keys.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("count={},bytes={}", self.get(Self::COUNT), self.get(Self::BYTES));
        let mut others =
            self.0.iter().filter(|(key, _)| *key != Self::COUNT && *key != Self::BYTES).peekable();
        if others.peek().is_some() {
            text.push('=');
        }
        for (key, number) in others {
            write!(text, ";{key}={number}").expect("a String takes everything");
        }
        text
    }

    /// Whether there is a limit that refuses changes.
    pub(crate) fn has_hard_limit(&self) -> bool {
        self.get(Self::COUNT_HARD_LIMIT) > -1 || self.get(Self::BYTE_HARD_LIMIT) > -1
    }

    /// The limit that is in force, and whether it is a hard one: that one wins.
    pub(crate) fn limit(&self, hard: &str, soft: &str) -> Option<(i64, bool)> {
        let (hard, soft) = (self.get(hard), self.get(soft));
        if hard > -1 { Some((hard, true)) } else { (soft > -1).then_some((soft, false)) }
    }
}

/// What of a quota is exceeded.
pub(crate) struct Excess {
    pub(crate) bytes: bool,
    pub(crate) hard: bool,
    pub(crate) limit: i64,
    pub(crate) usage: i64,
}

/// The limits that `usage`, having changed by `change`, is above.
pub(crate) fn excesses(limits: &Track, usage: Usage, change: Usage) -> impl Iterator<Item = Excess> {
    let count = limits
        .limit(Track::COUNT_HARD_LIMIT, Track::COUNT)
        .filter(|(limit, _)| change.count != 0 && usage.count > *limit)
        .map(|(limit, hard)| Excess { bytes: false, hard, limit, usage: usage.count });
    let bytes = limits
        .limit(Track::BYTE_HARD_LIMIT, Track::BYTES)
        .filter(|(limit, _)| change.bytes != 0 && usage.bytes > *limit)
        .map(|(limit, hard)| Excess { bytes: true, hard, limit, usage: usage.bytes });
    count.into_iter().chain(bytes)
}

/// Below this path are the quotas on `path` and on what is below it.
pub(crate) fn quotas_of(path: &str) -> String {
    format!("{}{path}", reserved::QUOTA)
}

/// The subtree that a znode below `/zookeeper/quota` speaks of, and whether it is the limits or
/// the stats.
pub(crate) fn subject(path: &str) -> Option<(&str, bool)> {
    let tail = path.strip_prefix(reserved::QUOTA)?;
    let (prefix, name) = path::split(tail)?;
    (prefix.len() > 1 && prefix.starts_with('/') && (name == LIMITS || name == STATS))
        .then_some((prefix, name == LIMITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_read_and_written_as_zookeeper_does() {
        let track = Track::parse(Some(b"count=3,bytes=-1;byteHardLimit=7"));
        assert_eq!(track.get("count"), 3);
        assert_eq!(track.limit(Track::COUNT_HARD_LIMIT, Track::COUNT), Some((3, false)));
        assert_eq!(track.limit(Track::BYTE_HARD_LIMIT, Track::BYTES), Some((7, true)));
        assert_eq!(track.text(), "count=3,bytes=-1=;byteHardLimit=7");
        assert_eq!(Track::parse(Some(track.text().as_bytes())), track);
        for text in ["", "=", "count", "count=x", "\u{0}", ",;,"] {
            assert_eq!(Track::parse(Some(text.as_bytes())).get("count"), -1, "{text:?}");
        }
        assert_eq!(Track::parse(Some(b"count=")).get("count"), -1);
        let long = format!("count=7;{}", "x=1;".repeat(300));
        assert_eq!(Track::parse(Some(long.as_bytes())).get("count"), -1);
    }

    #[test]
    fn the_deepest_quota_counts() {
        let mut quotas = Quotas::new(PathHasher::new(7));
        assert_eq!(quotas.above("/a"), None);
        for path in ["/a", "/a/b/c", "/a", "/x"] {
            quotas.insert(path);
        }
        for (path, above) in [
            ("/a", Some("/a")),
            ("/a/b", Some("/a")),
            ("/a/b/c/d", Some("/a/b/c")),
            ("/ab", None),
            ("/", None),
        ] {
            assert_eq!(quotas.above(path), above, "{path}");
        }
        quotas.remove("/a");
        assert_eq!((quotas.above("/a/b"), quotas.above("/a/b/c")), (None, Some("/a/b/c")));
        // Another path that has the hash of one below is not taken for it, and hides none above.
        let hash = PathHasher::new(7).path("/x/y");
        quotas.prefixes.insert_unique(
            spread(hash),
            Prefix { hash, path: "/other".into(), refused: 0 },
            |it| spread(it.hash),
        );
        assert_eq!(quotas.above("/x/y"), Some("/x"));
    }

    #[test]
    fn quota_znodes_are_recognised() {
        assert_eq!(subject("/zookeeper/quota/a/b/zookeeper_limits"), Some(("/a/b", true)));
        assert_eq!(subject("/zookeeper/quota/a/zookeeper_stats"), Some(("/a", false)));
        assert_eq!(subject("/zookeeper/quota/zookeeper_limits"), None);
        assert_eq!(subject("/zookeeper/quotas/a/zookeeper_limits"), None);
        assert_eq!(subject("/zookeeper/quota/a/limits"), None);
        assert_eq!(subject("/zookeeper/quota"), None);
    }
}
