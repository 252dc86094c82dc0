//! Read tokens (WanKeeper, section III-C: the fractions of a token): sites that read what is newest of a znode without asking
//! anybody.
//!
//! The hub gives them while it holds the znode's token, and from then on nobody writes what needs that token: neither the
//! hub, nor whoever gets it with something above the znode. Who is to write it has them all returned before. A site that
//! returns one does so with an update of its own log, so its servers read for as long as they have not applied that, and
//! the hub writes when it has it: no read begins behind the write and does not see it.
//!
//! One that is given while it is being returned is another one: each has the zxid of the update that has given it.

use crate::sites::names::{SiteId, SiteSet};
use alloc::collections::BTreeMap;
use alloc::string::String;

/// Which sites have read tokens, and which updates have given these, by the paths of znodes.
#[derive(Debug, Default)]
pub(crate) struct ReadTokens {
    by_path: BTreeMap<String, BTreeMap<SiteId, i64>>,
}

impl ReadTokens {
    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    /// The sites that have one for a znode, and the updates that have given them.
    pub(super) fn of(&self, path: &str) -> Option<&BTreeMap<SiteId, i64>> {
        self.by_path.get(path)
    }

    /// The update that has given a site one.
    pub(super) fn given(&self, path: &str, to: SiteId) -> Option<i64> {
        self.by_path.get(path)?.get(&to).copied()
    }

    /// Each of them: of which znode, to whom, and by which update.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, SiteId, i64)> {
        let each = |(path, sites)| {
            let (path, sites): (&String, &BTreeMap<SiteId, i64>) = (path, sites);
            sites.iter().map(move |(to, given)| (path.as_str(), *to, *given))
        };
        self.by_path.iter().flat_map(each)
    }

    /// A site has one.
    pub(super) fn give(&mut self, path: &str, to: SiteId, zxid: i64) {
        self.by_path.entry(path.into()).or_default().insert(to, zxid);
    }

    /// A site has returned the one that an update has given it; it may have got another one since.
    pub(super) fn take(&mut self, path: &str, from: SiteId, given: i64) {
        if self.given(path, from).is_some_and(|at| at <= given)
            && let Some(sites) = self.by_path.get_mut(path)
        {
            sites.remove(&from);
            if sites.is_empty() {
                self.by_path.remove(path);
            }
        }
    }

    /// Those of another partition come, too.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.by_path.append(&mut other.by_path);
    }

    /// Takes those out of some znodes.
    pub(super) fn taken(&mut self, is_taken: impl Fn(&str) -> bool) -> Self {
        let (taken, rest) =
            core::mem::take(&mut self.by_path).into_iter().partition(|(path, _)| is_taken(path));
        self.by_path = rest;
        Self { by_path: taken }
    }

    /// Sites are given up, with all that they have.
    pub(super) fn give_up(&mut self, lost: SiteSet) {
        self.by_path.retain(|_, sites| {
            sites.retain(|site, _| !lost.contains(*site));
            !sites.is_empty()
        });
    }
}
