//! Tokens that are given away by updates which are proposed and not applied.

use crate::sites::names::SiteId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

#[derive(Debug, Default)]
pub(crate) struct OutstandingTokens {
    /// Who will be marked as the holder, and by which update; nobody where a marked znode will be gone.
    by_path: BTreeMap<String, (SiteId, i64)>,
    touches: VecDeque<(i64, String)>,
    /// Where sessions will be at home, and by which update.
    homes: BTreeMap<i64, (SiteId, i64)>,
    /// Who will have read tokens, or none any more, of which znode, and by which update.
    reads: BTreeMap<String, BTreeMap<SiteId, (bool, i64)>>,
}

/// How something was before it was touched.
#[derive(Debug)]
pub(crate) enum TokenBefore {
    Mark { path: String, before: Option<(SiteId, i64)> },
    Home { session: i64, before: Option<(SiteId, i64)> },
    Read { path: String, site: SiteId, before: Option<(bool, i64)> },
}

impl OutstandingTokens {
    pub(crate) fn is_empty(&self) -> bool {
        self.touches.is_empty() && self.homes.is_empty() && self.reads.is_empty()
    }

    /// Where a session will be at home, if an outstanding update says.
    pub(super) fn home(&self, session: i64) -> Option<SiteId> {
        self.homes.get(&session).map(|(site, _)| *site)
    }

    /// The update `zxid` makes a site the home of a session.
    pub(crate) fn touch_home(&mut self, zxid: i64, session: i64, site: SiteId) -> TokenBefore {
        let before = self.homes.insert(session, (site, zxid));
        TokenBefore::Home { session, before }
    }

    /// Whether a site will have a read token of a znode, if an outstanding update says.
    pub(super) fn reads(&self, path: &str, site: SiteId) -> Option<bool> {
        self.reads.get(path)?.get(&site).map(|(has, _)| *has)
    }

    /// The sites of which outstanding updates say so.
    pub(super) fn readers(&self, path: &str) -> impl Iterator<Item = (SiteId, bool)> {
        self.reads.get(path).into_iter().flatten().map(|(site, (has, _))| (*site, *has))
    }

    /// The update `zxid` gives a site a read token of a znode, or returns it.
    pub(crate) fn touch_read(&mut self, zxid: i64, path: &str, site: SiteId, has: bool) -> TokenBefore {
        let before = self.reads.entry(path.into()).or_default().insert(site, (has, zxid));
        TokenBefore::Read { path: path.into(), site, before }
    }

    /// What the znode at a path will be marked with, if an outstanding update says: nothing if it will be gone.
    pub(super) fn mark(&self, path: &str) -> Option<SiteId> {
        self.by_path.get(path).map(|(site, _)| *site)
    }

    /// The update `zxid` marks the znode at a path.
    pub(crate) fn touch(&mut self, zxid: i64, path: &str, site: SiteId) -> TokenBefore {
        let before = self.by_path.insert(path.into(), (site, zxid));
        self.touches.push_back((zxid, path.into()));
        TokenBefore::Mark { path: path.into(), before }
    }

    /// The last touch that was not undone yet is.
    pub(crate) fn undo(&mut self, touched: TokenBefore) {
        match touched {
            TokenBefore::Mark { path, before } => {
                self.touches.pop_back();
                put_back(&mut self.by_path, path, before);
            }
            TokenBefore::Home { session, before } => put_back(&mut self.homes, session, before),
            TokenBefore::Read { path, site, before } => {
                let Some(sites) = self.reads.get_mut(&path) else { return };
                put_back(sites, site, before);
                if sites.is_empty() {
                    self.reads.remove(&path);
                }
            }
        }
    }

    /// The update `zxid`, and those before it, are applied.
    #[inline]
    pub(crate) fn applied(&mut self, zxid: i64) {
        while let Some((touched, path)) = self.touches.pop_front_if(|touch| touch.0 <= zxid) {
            if self.by_path.get(&path).is_some_and(|(_, last)| *last == touched) {
                self.by_path.remove(&path);
            }
        }
        if !self.reads.is_empty() {
            self.reads.retain(|_, sites| {
                sites.retain(|_, (_, last)| *last > zxid);
                !sites.is_empty()
            });
        }
        if !self.homes.is_empty() {
            self.homes.retain(|_, (_, last)| *last > zxid);
        }
    }
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<V>) {
    match before {
        Some(before) => drop(map.insert(key, before)),
        None => drop(map.remove(&key)),
    }
}
