//! Keeping quotas: what changes are refused, and what is counted.

use crate::digest;
use crate::observer::{Observer, SoftQuota};
use crate::quota::{Excess, LIMITS, QuotaSums, STATS, Track, Usage, excesses, subject};
use crate::reserved;
use crate::tree::Tree;
use alloc::collections::BTreeMap;
use alloc::format;
use stoa_wire::ErrorCode;

impl Tree {
    /// What the quotas come to, by the name right below the root. Takes time in proportion to their number.
    #[must_use]
    pub fn quota_sums(&self) -> BTreeMap<&str, QuotaSums> {
        let mut all: BTreeMap<&str, QuotaSums> = BTreeMap::new();
        for (prefix, refused) in self.quotas.iter() {
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

    pub(crate) fn track(&self, prefix: &str, name: &str) -> Option<(u32, Track)> {
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

    /// Notes a change that no quota refuses.
    pub(crate) fn release_quota(&mut self, path: &str, change: Usage, zxid: i64) {
        if self.options.enforce_quota
            && let Some(prefix) = self.quotas.above(path)
        {
            self.overlay.touch_quota(zxid, prefix, change);
        }
    }

    /// The top of the subtree around a path whose quota may refuse what is added there.
    #[must_use]
    pub fn hard_quota_above<'p>(&self, path: &'p str) -> Option<&'p str> {
        let prefix = self.quotas.above(path).filter(|_| self.options.enforce_quota)?;
        let (_, limits) = self.track(prefix, LIMITS)?;
        limits.has_hard_limit().then_some(prefix)
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

    pub(crate) fn count_at(&mut self, prefix: &str, change: Usage, observer: &mut impl Observer) {
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

    pub(crate) fn set_stats(&mut self, prefix: &str, id: u32, stats: &Track) {
        let path_digest = digest::of_path(&format!("{}{prefix}/{STATS}", reserved::QUOTA));
        self.before_data_change(id, path_digest);
        self.nodes[id].set_data(Some(stats.text().as_bytes()));
        self.after_data_change(id, path_digest);
    }
}
