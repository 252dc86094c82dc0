//! Quotas: limits on the number of znodes and the bytes of data in a subtree.
//!
//! A quota on `/a/b` is a znode `/zookeeper/quota/a/b/zookeeper_limits`, made by a client; beside
//! it lies `zookeeper_stats`, whose data is kept up to date with the usage by the server, without
//! a new version, a changed mzxid or a watch event. Only the deepest quota above a znode counts, and
//! only for znodes on its own partition.

use crate::apply::{Observer, SoftQuota};
use crate::digest;
use crate::index::{PathHasher, spread};
use crate::node::Node;
use crate::tree::{Tree, reserved};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use hashbrown::HashTable;
use stoa_wire::{ErrorCode, path};

pub(crate) const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

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
    fn find(&self, hash: u32, is_it: impl Fn(&str) -> bool) -> Option<&str> {
        let found = self.prefixes.find(spread(hash), |prefix| prefix.hash == hash && is_it(&prefix.path));
        found.map(|prefix| &*prefix.path)
    }

    fn insert(&mut self, path: &str) {
        let hash = self.hasher.path(path);
        if self.find(hash, |other| other == path).is_none() {
            let prefix = Prefix { hash, path: path.into(), refused: 0 };
            self.prefixes.insert_unique(spread(hash), prefix, |prefix| spread(prefix.hash));
        }
    }

    fn refused(&mut self, path: &str) {
        let found = self.prefixes.find_mut(spread(self.hasher.path(path)), |it| *it.path == *path);
        if let Some(prefix) = found {
            prefix.refused += 1;
        }
    }

    fn remove(&mut self, path: &str) {
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
    fn of(node: &Node) -> Self {
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
struct Track(BTreeMap<String, i64>);

impl Track {
    const COUNT: &str = "count";
    const BYTES: &str = "bytes";
    const COUNT_HARD_LIMIT: &str = "countHardLimit";
    const BYTE_HARD_LIMIT: &str = "byteHardLimit";

    /// Longer data is not looked at: each write below the quota would pay for it. ZooKeeper writes about a
    /// hundred bytes.
    const BYTES_READ: usize = 1024;

    /// Parts that cannot be read are left out: a client wrote them.
    fn parse(data: Option<&[u8]>) -> Self {
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

    fn usage(&self) -> Usage {
        Usage { count: self.get(Self::COUNT), bytes: self.get(Self::BYTES) }
    }

    fn set_usage(&mut self, usage: Usage) {
        self.0.insert(Self::COUNT.into(), usage.count);
        self.0.insert(Self::BYTES.into(), usage.bytes);
    }

    /// As ZooKeeper writes it, with the odd `=` that it puts before further keys.
    fn text(&self) -> String {
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

    /// The limit that is in force, and whether it is a hard one: that one wins.
    fn limit(&self, hard: &str, soft: &str) -> Option<(i64, bool)> {
        let (hard, soft) = (self.get(hard), self.get(soft));
        if hard > -1 { Some((hard, true)) } else { (soft > -1).then_some((soft, false)) }
    }
}

/// What of a quota is exceeded.
struct Excess {
    bytes: bool,
    hard: bool,
    limit: i64,
    usage: i64,
}

/// The limits that `usage`, having changed by `change`, is above.
fn excesses(limits: &Track, usage: Usage, change: Usage) -> impl Iterator<Item = Excess> {
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

/// What a quota counts at and below a path, before something moves there.
pub(crate) struct Counted {
    prefix: String,
    path: String,
    usage: Usage,
}

/// The subtree that a znode below `/zookeeper/quota` speaks of, and whether it is the limits or
/// the stats.
fn subject(path: &str) -> Option<(&str, bool)> {
    let tail = path.strip_prefix(reserved::QUOTA)?;
    let (prefix, name) = path::split(tail)?;
    (prefix.len() > 1 && prefix.starts_with('/') && (name == LIMITS || name == STATS))
        .then_some((prefix, name == LIMITS))
}

impl Tree {
    /// What the quotas come to, by the name right below the root. Takes time in proportion to their number.
    #[must_use]
    pub fn quota_sums(&self) -> BTreeMap<&str, QuotaSums> {
        let mut all: BTreeMap<&str, QuotaSums> = BTreeMap::new();
        for Prefix { path: prefix, refused, .. } in &self.quotas.prefixes {
            let Some(top) = prefix.split('/').nth(1) else { continue };
            let sums = all.entry(top).or_default();
            sums.refused += refused;
            if let Some((_, limits)) = self.track(prefix, LIMITS) {
                let limit = |hard, soft| limits.limit(hard, soft).map_or(-1, |(limit, _)| limit);
                let count = limit(Track::COUNT_HARD_LIMIT, Track::COUNT);
                let bytes = limit(Track::BYTE_HARD_LIMIT, Track::BYTES);
                sums.count_limit = sums.count_limit.saturating_add(count);
                sums.bytes_limit = sums.bytes_limit.saturating_add(bytes);
            }
            if let Some((_, stats)) = self.track(prefix, STATS) {
                let usage = Usage { count: sums.count, bytes: sums.bytes }.plus(stats.usage());
                (sums.count, sums.bytes) = (usage.count, usage.bytes);
            }
        }
        all
    }

    fn track(&self, prefix: &str, name: &str) -> Option<(u32, Track)> {
        let id = self.lookup(&format!("{}{prefix}/{name}", reserved::QUOTA))?;
        Some((id, Track::parse(self.nodes[id].data())))
    }

    /// Refuses a change that would bring the subtree around `path` above a hard limit, and notes
    /// the change otherwise. Outstanding updates count as applied.
    pub(crate) fn reserve_quota(&mut self, path: &str, change: Usage, zxid: i64) -> Result<(), ErrorCode> {
        if let Some(prefix) = self.quota_allowing(path, change)? {
            self.overlay.touch_quota(zxid, prefix, change);
        }
        Ok(())
    }

    /// The quota that a change counts for, which allows it.
    pub(crate) fn quota_allowing<'p>(
        &mut self,
        path: &'p str,
        change: Usage,
    ) -> Result<Option<&'p str>, ErrorCode> {
        if !self.options.enforce_quota {
            return Ok(None);
        }
        let Some(prefix) = self.quotas.above(path) else {
            return Ok(None);
        };
        if let (Some((_, limits)), Some((_, stats))) = (self.track(prefix, LIMITS), self.track(prefix, STATS))
        {
            let usage = stats.usage().plus(self.overlay.quota_usage(prefix)).plus(change);
            if excesses(&limits, usage, change).any(|excess| excess.hard) {
                self.quotas.refused(prefix);
                return Err(ErrorCode::QuotaExceeded);
            }
        }
        Ok(Some(prefix))
    }

    /// Keeps quotas up to date after a change at `path`.
    pub(crate) fn count_for_quota(&mut self, path: &str, change: Usage, observer: &mut impl Observer) {
        if let Some(prefix) = self.quotas.above(path) {
            self.count_at(prefix, change, observer);
        }
    }

    fn count_at(&mut self, prefix: &str, change: Usage, observer: &mut impl Observer) {
        let Some((id, mut stats)) = self.track(prefix, STATS) else {
            return;
        };
        let usage = stats.usage().plus(change);
        stats.set_usage(usage);
        self.set_stats(prefix, id, &stats);
        if let Some((_, limits)) = self.track(prefix, LIMITS) {
            for Excess { bytes, limit, usage, .. } in
                excesses(&limits, usage, change).filter(|excess| !excess.hard)
            {
                observer.quota_exceeded_softly(&SoftQuota { prefix, bytes, limit, usage });
            }
        }
    }

    /// Takes notice of a new znode: it may be a quota.
    pub(crate) fn quota_created(&mut self, path: &str) {
        let Some((prefix, is_limits)) = subject(path) else {
            return;
        };
        if is_limits {
            self.quota_loaded(path);
            return;
        }
        let usage = match self.find(prefix) {
            Some(top) => {
                self.descend(top).fold(Usage::default(), |usage, id| usage.plus(Usage::of(&self.nodes[id])))
            }
            None => Usage::default(),
        };
        let id = self.lookup(path).expect("it was just created");
        let mut stats = Track::default();
        stats.set_usage(usage);
        self.set_stats(prefix, id, &stats);
    }

    /// Takes notice of a znode of a snapshot: it may be a quota, whose usage is known.
    pub(crate) fn quota_loaded(&mut self, path: &str) {
        if let Some((prefix, true)) = subject(path) {
            self.quotas.insert(prefix);
        }
    }

    /// Takes notice of a znode that is gone: it may have been a quota.
    pub(crate) fn quota_deleted(&mut self, path: &str) {
        if let Some((prefix, true)) = subject(path) {
            self.quotas.remove(prefix);
        }
    }

    /// The quota that counts `top` and stays when the subtree at `path` goes to another partition. What is
    /// below `top` is counted there too, or by deeper quotas, which go along.
    pub(crate) fn quota_staying<'p>(&self, top: &'p str, path: &str) -> Option<&'p str> {
        self.quotas.above(top).filter(|prefix| *prefix != path)
    }

    /// What the quota on `prefix` has to count at and below `path`.
    fn usage_below(&self, prefix: &str, path: &str) -> Usage {
        let mut usage = Usage::default();
        if self.quotas.above(path) != Some(prefix) {
            return usage;
        }
        let top = self.find(path);
        let mut pending: Vec<u32> = top.into_iter().collect();
        while let Some(id) = pending.pop() {
            let node = &self.nodes[id];
            // What is below a deeper quota that one counts.
            if Some(id) != top && self.quotas.find(node.hash, |path| self.is_at(id, path)).is_some() {
                continue;
            }
            if !node.is_absent() {
                usage = usage.plus(Usage::of(node));
            }
            pending.extend(self.child_ids(id));
        }
        usage
    }

    /// What quotas from further above count at and below these paths, before something moves there.
    pub(crate) fn counted_around<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Vec<Counted> {
        let around = paths.filter_map(|path| Some((self.quotas.above(path::split(path)?.0)?, path)));
        around
            .map(|(prefix, path)| Counted {
                usage: self.usage_below(prefix, path),
                prefix: prefix.into(),
                path: path.into(),
            })
            .collect()
    }

    /// Something has moved there: brings the quotas up to date. Nobody is warned: nothing was written.
    pub(crate) fn count_moved(&mut self, counted: Vec<Counted>) {
        for Counted { prefix, path, usage } in counted {
            let change = self.usage_below(&prefix, &path).minus(usage);
            self.count_at(&prefix, change, &mut ());
        }
    }

    /// Counts anew what the quotas on `path` and below it have to count.
    pub(crate) fn recount_quotas(&mut self, path: &str) {
        let limits = self.find(&quotas_of(path)).into_iter().flat_map(|top| self.descend(top));
        let limits = limits.filter(|id| self.nodes[*id].name_bytes() == LIMITS.as_bytes());
        let prefixes =
            limits.filter_map(|id| subject(&self.path_of(id)).map(|(prefix, _)| String::from(prefix)));
        for prefix in prefixes.collect::<Vec<_>>() {
            if let Some((id, mut stats)) = self.track(&prefix, STATS) {
                stats.set_usage(self.usage_below(&prefix, &prefix));
                self.set_stats(&prefix, id, &stats);
            }
        }
    }

    fn set_stats(&mut self, prefix: &str, id: u32, stats: &Track) {
        let path_digest = digest::of_path(&format!("{}{prefix}/{STATS}", reserved::QUOTA));
        self.before_data_change(id, path_digest);
        self.nodes[id].set_data(Some(stats.text().as_bytes()));
        self.after_data_change(id, path_digest);
    }
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
