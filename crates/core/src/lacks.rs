//! What another site lacks of this site's log, when nothing is known of its position in that, but of each source the last
//! update that it has.
//!
//! Updates of one source are everywhere in one order, so who has one of them has all before it. What is looked at must begin
//! where it has everything before: what is kept in memory, if it has all that is not kept any more; or the whole log, if
//! it has what was here when that began. Else something may be missing in between, and it must not be told any of the
//! rest. (That something which it has stands in the log shows nothing: it may have come once more, by way of another
//! site, behind what it lacks.)

use alloc::collections::{BTreeMap, BTreeSet};
use bytes::Bytes;
use stoa_partition::{Items, is_of_streams, made_in};
use stoa_tree::{SiteId, Source};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Lacks {
    has: BTreeMap<Source, i64>,
    /// Sites of whose updates it lacks some, where it was not seen yet that none of these is missing.
    unseen: BTreeSet<Source>,
    /// Where this site's log began, and whether anything was looked at.
    begun: u64,
    has_looked: bool,
    /// Whether something may be missing.
    is_torn: bool,
}

impl Lacks {
    /// Of who has these; `seen` is what is here.
    pub(crate) fn new(
        has: &[(Source, i64)],
        own: SiteId,
        floors: &BTreeMap<Source, i64>,
        seen: impl Iterator<Item = (Source, i64)>,
        begun: u64,
    ) -> Self {
        let mut has: BTreeMap<_, _> = has.iter().copied().collect();
        // What this site has done before is nobody's but its own.
        for (source, first) in floors.iter().filter(|(source, _)| source.site == own) {
            let own_has = has.entry(*source).or_default();
            *own_has = (*own_has).max(*first);
        }
        let is_more = |(source, zxid): &(Source, i64)| *zxid > has.get(source).copied().unwrap_or(0);
        let unseen: BTreeSet<Source> = seen.filter(is_more).map(|(source, _)| source).collect();
        let floor = |source: &Source| floors.get(source).copied().unwrap_or(0);
        let is_torn = unseen.iter().any(|source| has.get(source).copied().unwrap_or(0) < floor(source));
        Self { has, unseen, begun, has_looked: false, is_torn }
    }

    /// Looks at the next entry. Returns whether it lacks any of it.
    pub(crate) fn looks_at(&mut self, position: u64, entry: &Bytes) -> bool {
        // Where the log's files are read, they must reach back to where that began.
        let is_first = !core::mem::replace(&mut self.has_looked, true);
        self.is_torn |= is_first && position > self.begun && !self.unseen.is_empty();
        let mut is_lacked = false;
        made_in(entry, &mut |source, zxid| {
            let has = self.has.get(&source).copied().unwrap_or(0);
            is_lacked |= zxid > has;
            self.unseen.remove(&source);
        });
        is_lacked
    }

    /// Whether it has to be told these items of the entry that was looked at last.
    pub(crate) fn wants(is_lacked: bool, items: &[u8]) -> bool {
        is_lacked || Items::imported(items).any(|item| item.is_ok_and(|item| is_of_streams(&item)))
    }

    /// Whether it cannot be told what it lacks.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Whether everything was seen that it lacks.
    pub(crate) fn is_whole(&self) -> bool {
        self.unseen.is_empty()
    }

    /// Whether it has everything that is not kept in memory any more: then what is kept is all that has to be looked at.
    pub(crate) fn is_all_kept(&mut self, gone: Option<&BTreeMap<Source, i64>>) -> bool {
        let Some(gone) = gone else { return self.unseen.is_empty() };
        let has = |source: &Source| self.has.get(source).copied().unwrap_or(0);
        let is_all = self.unseen.iter().all(|source| has(source) >= gone.get(source).copied().unwrap_or(0));
        if is_all {
            self.unseen.clear();
        }
        is_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const OWN: SiteId = 2;

    fn lacks(has: &[(SiteId, i64)], seen: &[(SiteId, i64)], floors: &[(SiteId, i64)]) -> Lacks {
        let of = |(site, zxid): &(SiteId, i64)| (Source::first_of(*site), *zxid);
        let has: Vec<_> = has.iter().map(of).collect();
        Lacks::new(&has, OWN, &floors.iter().map(of).collect(), seen.iter().map(of), 10)
    }

    #[test]
    fn who_lacks_what_was_here_before_this_log_is_told_nothing() {
        assert!(!lacks(&[(1, 50)], &[(1, 90)], &[(1, 40)]).is_torn());
        assert!(lacks(&[(1, 30)], &[(1, 90)], &[(1, 40)]).is_torn());
        // What this site has done before concerns nobody.
        assert!(!lacks(&[], &[(OWN, 90)], &[(OWN, 40)]).is_torn());
        assert!(!lacks(&[(1, 30)], &[(1, 30)], &[(1, 40)]).is_torn(), "it lacks nothing of it");
    }

    #[test]
    fn what_is_kept_is_all_when_it_has_everything_else() {
        let gone: BTreeMap<Source, i64> = [(Source::first_of(1), 50), (Source::first_of(3), 70)].into();
        let of = |has: &[(SiteId, i64)]| lacks(has, &[(1, 90), (3, 70)], &[]);
        assert!(of(&[(1, 50), (3, 70)]).is_all_kept(Some(&gone)));
        assert!(!of(&[(1, 49), (3, 70)]).is_all_kept(Some(&gone)));
        assert!(!of(&[(1, 50)]).is_all_kept(Some(&gone)));
        // Nothing is known of what is not kept: then only who lacks nothing need not be looked for.
        assert!(!of(&[(1, 50), (3, 70)]).is_all_kept(None) && of(&[(1, 90), (3, 70)]).is_all_kept(None));
    }

    #[test]
    fn a_log_that_does_not_reach_back_tells_nothing() {
        let mut all = lacks(&[(1, 50)], &[(1, 90)], &[]);
        all.looks_at(10, &Bytes::new());
        assert!(!all.is_torn() && !all.is_whole());
        let mut cut = lacks(&[(1, 50)], &[(1, 90)], &[]);
        cut.looks_at(11, &Bytes::new());
        assert!(cut.is_torn());
    }
}
