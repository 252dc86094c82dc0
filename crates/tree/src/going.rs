//! Children that go with sessions that are closing: how many each parent has of them.
//!
//! Closing a session touches nothing but the session ([`crate::proposed`]), however many ephemerals it owns.
//! Whether a znode will have children is known by their number, from which those that go have to be taken
//! off. So they are counted when somebody asks for the first time: once for each session, which takes no
//! longer than its end will.
//!
//! From the moment that a session is closing nothing changes what it owns, except that another znode may be
//! created in the place of one that goes. So they have to be counted before that ([`Tree::count_going`]).

use crate::node::ZnodeKind;
use crate::proposed::Presence;
use crate::tree::Tree;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_wire::path;

#[derive(Debug, Default)]
pub(crate) struct Going {
    /// Sessions that are closing, whose ephemerals are not counted.
    uncounted: BTreeSet<i64>,
    by_parent: HashMap<Arc<str>, Children, FixedState>,
    by_session: HashMap<i64, Counted, FixedState>,
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
struct Counted {
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
        let Some(Counted { zxid, parents }) = self.by_session.remove(&session) else { return };
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

    /// How many children of a znode go, and the last update with which one does.
    pub(crate) fn below(&self, parent: &str) -> (i64, Option<i64>) {
        debug_assert!(self.uncounted.is_empty(), "they are counted before somebody asks");
        let children = self.by_parent.get(parent);
        children.map_or((0, None), |it| (it.count, it.by_zxid.last_key_value().map(|(zxid, _)| *zxid)))
    }

    fn add(&mut self, session: i64, zxid: i64, parents: BTreeMap<String, i64>) {
        let parents: Vec<(Arc<str>, i64)> =
            parents.into_iter().map(|(parent, count)| (Arc::from(parent), count)).collect();
        for (parent, count) in &parents {
            let children = self.by_parent.entry(Arc::clone(parent)).or_default();
            children.count += count;
            *children.by_zxid.entry(zxid).or_default() += count;
        }
        self.by_session.insert(session, Counted { zxid, parents });
    }
}

impl Tree {
    /// Counts what goes with sessions that are closing. Nothing if that is known, or none is.
    #[inline]
    pub(crate) fn count_going(&mut self) {
        while let Some(session) = self.overlay.going.uncounted.pop_first() {
            self.count_going_of(session);
        }
    }

    #[cold]
    fn count_going_of(&mut self, session: i64) {
        let kind = ZnodeKind::Ephemeral { session };
        let Some(zxid) = self.overlay.closing_zxid(kind) else { return };
        let mut parents = BTreeMap::new();
        let (mut parent, mut count) = (None, 0);
        for id in self.untouched_ephemerals(session) {
            // Mostly many have the same parent.
            let above = self.nodes[id].parent;
            if parent != Some(above) {
                self.add_going(&mut parents, parent, count);
                (parent, count) = (Some(above), 0);
            }
            count += 1;
        }
        self.add_going(&mut parents, parent, count);
        for (path, state) in self.overlay.owned(session) {
            if let (Presence::Here, Some((parent, _))) = (state.presence, path::split(path)) {
                *parents.entry(parent.into()).or_default() += 1;
            }
        }
        self.overlay.going.add(session, zxid, parents);
    }

    fn add_going(&self, parents: &mut BTreeMap<String, i64>, parent: Option<u32>, count: i64) {
        if let Some(parent) = parent {
            *parents.entry(self.path_of(parent)).or_default() += count;
        }
    }
}
