//! What another site lacks of this site's log, when nothing is known of its position in that, but of each site the last
//! update that it has.
//!
//! Updates of one site are everywhere in one order, so who has one of them has all before it. Of those of each site that
//! it lacks, what is looked at must reach back to one that it has, or to what was here when this log began, which it must
//! have: else something may be missing in between, and it must not be told any of the rest.

use alloc::collections::{BTreeMap, BTreeSet};
use bytes::Bytes;
use stoa_partition::{Items, is_of_streams, made_in};
use stoa_tree::SiteId;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Lacks {
    has: BTreeMap<SiteId, i64>,
    /// Sites of whose updates it lacks some, where it was not seen yet that none of these is missing.
    unseen: BTreeSet<SiteId>,
    /// Where this site's log began, and whether what was looked at first stands there.
    begun: u64,
    is_from_begin: Option<bool>,
    /// Whether something may be missing.
    is_torn: bool,
}

impl Lacks {
    /// Of who has these; `seen` is what is here.
    pub(crate) fn new(
        has: &[(SiteId, i64)],
        own: SiteId,
        floors: &BTreeMap<SiteId, i64>,
        seen: impl Iterator<Item = (SiteId, i64)>,
        begun: u64,
    ) -> Self {
        let mut has: BTreeMap<_, _> = has.iter().copied().collect();
        // What this site has done before is nobody's but its own.
        let first = floors.get(&own).copied().unwrap_or(0);
        let own_has = has.entry(own).or_default();
        *own_has = first.max(*own_has);
        let is_more = |(site, zxid): &(SiteId, i64)| *zxid > has.get(site).copied().unwrap_or(0);
        let unseen: BTreeSet<SiteId> = seen.filter(is_more).map(|(site, _)| site).collect();
        let floor = |site: &SiteId| floors.get(site).copied().unwrap_or(0);
        let is_torn = unseen.iter().any(|site| has.get(site).copied().unwrap_or(0) < floor(site));
        Self { has, unseen, begun, is_from_begin: None, is_torn }
    }

    /// Looks at the next entry. Returns whether it lacks any of it.
    pub(crate) fn looks_at(&mut self, position: u64, entry: &Bytes) -> bool {
        let is_from_begin = *self.is_from_begin.get_or_insert(position <= self.begun);
        let mut is_lacked = false;
        made_in(entry, &mut |site, zxid| {
            let has = self.has.get(&site).copied().unwrap_or(0);
            is_lacked |= zxid > has;
            self.is_torn |= self.unseen.remove(&site) && zxid > has && !is_from_begin;
        });
        is_lacked
    }

    /// Whether it has to be told these items of the entry that was looked at last.
    pub(crate) fn wants(is_lacked: bool, items: &[u8]) -> bool {
        is_lacked || Items::imported(items).any(|item| item.is_ok_and(|item| is_of_streams(&item)))
    }

    /// Whether it cannot be told what it lacks. Where the log's files are read, they must reach back to where that began:
    /// what is passed on is not known to be all of it before everything was looked at.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn || !self.unseen.is_empty() && self.is_from_begin == Some(false)
    }

    /// Whether everything was seen that it lacks.
    pub(crate) fn is_whole(&self) -> bool {
        self.unseen.is_empty()
    }

    /// Looks for everything that it lacks in these entries. Whether nothing of it stands before them; then they are all
    /// that has to be looked at.
    pub(crate) fn are_all_in<'a>(&mut self, entries: impl Iterator<Item = (u64, &'a Bytes)>) -> bool {
        let mut looked = self.clone();
        for (position, entry) in entries {
            looked.looks_at(position, entry);
        }
        let are_all = !looked.is_torn && looked.unseen.is_empty();
        if are_all {
            self.unseen.clear();
        }
        are_all
    }
}
