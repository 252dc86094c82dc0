//! Children that go with sessions that are closing: how many each parent has of them.
//!
//! Closing a session touches nothing but the session ([`crate::proposed`]), however many ephemerals it owns.
//! Whether a znode will have children is known by their number, from which those that go have to be taken
//! off. So they are counted when somebody asks for the first time: once for each session, which takes no
//! longer than its end will.
//!
//! From the moment that a session is closing nothing changes what it owns, except that another znode may be
//! created in the place of one that goes. So they have to be counted before that ([`crate::Tree::count_going`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Going {
    /// Sessions that are closing, whose ephemerals are not counted.
    uncounted: BTreeSet<i64>,
    by_parent: HashMap<Arc<str>, Children, FixedState>,
    by_session: HashMap<i64, Departure, FixedState>,
}

/// Those of one parent.
#[derive(Debug, Default)]
struct Children {
    count: i64,
    /// How many go with each update.
    by_zxid: BTreeMap<i64, i64>,
}

/// Those of one session: with which update they go, and how many each parent has.
#[derive(Debug)]
struct Departure {
    zxid: i64,
    parents: Vec<(Arc<str>, i64)>,
}

impl Going {
    /// A session is closing.
    pub(crate) fn begin(&mut self, session: i64) {
        self.uncounted.insert(session);
    }

    /// It is closed, or is not closing after all.
    pub(crate) fn end(&mut self, session: i64) {
        self.uncounted.remove(&session);
        let Some(Departure { zxid, parents }) = self.by_session.remove(&session) else { return };
        for (parent, count) in parents {
            let Some(children) = self.by_parent.get_mut(&parent) else { continue };
            children.count -= count;
            if let Some(with_it) = children.by_zxid.get_mut(&zxid) {
                *with_it -= count;
                if *with_it == 0 {
                    children.by_zxid.remove(&zxid);
                }
            }
            if children.by_zxid.is_empty() {
                self.by_parent.remove(&parent);
            }
        }
    }

    /// A session that is closing and whose ephemerals are still to be counted.
    #[inline]
    pub(crate) fn next_uncounted(&mut self) -> Option<i64> {
        self.uncounted.pop_first()
    }

    /// How many children of a znode go, and the last update with which one does.
    pub(crate) fn below(&self, parent: &str) -> (i64, Option<i64>) {
        debug_assert!(self.uncounted.is_empty(), "they are counted before somebody asks");
        let children = self.by_parent.get(parent);
        children.map_or((0, None), |it| (it.count, it.by_zxid.last_key_value().map(|(zxid, _)| *zxid)))
    }

    /// What a session owns is counted.
    pub(crate) fn add(&mut self, session: i64, zxid: i64, parents: BTreeMap<String, i64>) {
        let parents: Vec<(Arc<str>, i64)> =
            parents.into_iter().map(|(parent, count)| (Arc::from(parent), count)).collect();
        for (parent, count) in &parents {
            let children = self.by_parent.entry(Arc::clone(parent)).or_default();
            children.count += count;
            *children.by_zxid.entry(zxid).or_default() += count;
        }
        self.by_session.insert(session, Departure { zxid, parents });
    }
}
