//! Quotas where subtrees move: they go along with what they are for, and count what is here alone.

use crate::quota::{LIMITS, STATS, Usage, quotas_of, subject};
use crate::tree::Tree;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::path;

/// What a quota counts at and below a path, before something moves there.
pub(super) struct UsageBefore {
    prefix: String,
    path: String,
    usage: Usage,
}

impl Tree {
    /// The quota that counts `top` and stays when the subtree at `path` goes to another partition. What is
    /// below `top` is counted there too, or by deeper quotas, which go along.
    pub(super) fn quota_staying<'p>(&self, top: &'p str, path: &str) -> Option<&'p str> {
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
    pub(super) fn counted_around<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Vec<UsageBefore> {
        let around = paths.filter_map(|path| Some((self.quotas.above(path::split(path)?.0)?, path)));
        around
            .map(|(prefix, path)| UsageBefore {
                usage: self.usage_below(prefix, path),
                prefix: prefix.into(),
                path: path.into(),
            })
            .collect()
    }

    /// Something has moved there: brings the quotas up to date. Nobody is warned: nothing was written.
    pub(super) fn count_moved(&mut self, counted: Vec<UsageBefore>) {
        for UsageBefore { prefix, path, usage } in counted {
            let change = self.usage_below(&prefix, &path).minus(usage);
            self.count_at(&prefix, change, &mut ());
        }
    }

    /// Counts anew what the quotas on `path` and below it have to count.
    pub(super) fn recount_quotas(&mut self, path: &str) {
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
}
