//! Quotas: limits that clients write below `/zookeeper/quota`, and usage that the server keeps there.

use super::tree::Model;
use super::watches::parent_of;
use stoa_wire::ErrorCode;

const QUOTA: &str = "/zookeeper/quota";

/// The numbers in the data of a limits or stats znode; -1 is none. Only what the workload writes is
/// understood: `count=2,bytes=100;byteHardLimit=200;countHardLimit=3`.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    count: i64,
    bytes: i64,
    hard_count: i64,
    hard_bytes: i64,
}

impl Numbers {
    fn read(data: Option<&[u8]>) -> Self {
        let text = String::from_utf8_lossy(data.unwrap_or_default()).into_owned();
        let number = |key: &str| {
            let pair = text.split([',', ';']).find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            // ZooKeeper itself writes `bytes=100=;byteHardLimit=200`.
            pair.and_then(|number| number.trim_end_matches('=').parse().ok()).unwrap_or(-1)
        };
        Self {
            count: number("count"),
            bytes: number("bytes"),
            hard_count: number("countHardLimit"),
            hard_bytes: number("byteHardLimit"),
        }
    }
}

impl Model {
    /// The deepest znode with a quota, `path` itself or above it.
    fn quota_above(&self, path: &str) -> Option<String> {
        if self.nodes.get(QUOTA).is_none_or(|quota| quota.children.is_empty()) {
            return None;
        }
        let mut at = path;
        while at != "/" {
            if self.nodes.contains_key(&format!("{QUOTA}{at}/zookeeper_limits")) {
                return Some(at.to_owned());
            }
            at = parent_of(at);
        }
        None
    }

    /// Refuses what would pass a hard limit, if quotas are enforced.
    pub(super) fn check_quota(&self, path: &str, count: i64, bytes: i64) -> Result<(), ErrorCode> {
        let Some(prefix) = self.quota_above(path).filter(|_| self.enforces_quota) else { return Ok(()) };
        let numbers = |name: &str| {
            self.nodes.get(&format!("{QUOTA}{prefix}/{name}")).map(|node| Numbers::read(node.data.as_deref()))
        };
        let (Some(limits), Some(usage)) = (numbers("zookeeper_limits"), numbers("zookeeper_stats")) else {
            return Ok(());
        };
        let passes = |hard: i64, usage: i64, change: i64| hard > -1 && change != 0 && usage + change > hard;
        if passes(limits.hard_count, usage.count, count) || passes(limits.hard_bytes, usage.bytes, bytes) {
            return Err(ErrorCode::QuotaExceeded);
        }
        Ok(())
    }

    /// Keeps the usage after a change at `path`. Nobody is told of it, and no version changes.
    pub(super) fn count_for_quota(&mut self, path: &str, count: i64, bytes: i64) {
        if let Some(prefix) = path.strip_prefix(QUOTA).and_then(|tail| tail.strip_suffix("/zookeeper_stats"))
            && count > 0
            && !prefix.is_empty()
        {
            let (count, bytes) = self.usage_of(prefix);
            self.note_usage(path, count, bytes);
        }
        let Some(prefix) = self.quota_above(path) else { return };
        let stats = format!("{QUOTA}{prefix}/zookeeper_stats");
        if let Some(node) = self.nodes.get(&stats) {
            let usage = Numbers::read(node.data.as_deref());
            self.note_usage(&stats, usage.count + count, usage.bytes + bytes);
        }
    }

    fn note_usage(&mut self, stats: &str, count: i64, bytes: i64) {
        self.changing(stats).data = Some(format!("count={count},bytes={bytes}").into_bytes());
    }

    /// Znodes and bytes of a subtree.
    fn usage_of(&self, prefix: &str) -> (i64, i64) {
        let below = format!("{prefix}/");
        let inside = self.nodes.iter().filter(|(path, _)| **path == *prefix || path.starts_with(&below));
        inside.fold((0, 0), |(count, bytes), (_, node)| {
            (count + 1, bytes + node.data.as_ref().map_or(0, Vec::len) as i64)
        })
    }
}
