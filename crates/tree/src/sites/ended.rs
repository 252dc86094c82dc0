//! Sessions that have ended.
//!
//! A session's client asks at its home, and what needs a token that is elsewhere is prepared elsewhere: an ephemeral
//! of the session may be created there when the home has ended the session already and that is still on its way. The
//! end comes to whoever creates it, or to the hub, behind the create, and deletes the znode. At the home, and wherever
//! the end came first, the create comes behind the end, and must leave what both leave elsewhere: no znode, but a
//! parent that has had one more child, and was changed by the later of the two.
//!
//! An end is forgotten when no such create can come any more: [`Tree::forget_ended`] says up to where.

use crate::tree::Tree;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

/// Sessions, and the updates that have ended them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ended {
    by_session: BTreeMap<i64, i64>,
    /// In the order in which they were applied here.
    in_order: VecDeque<i64>,
    /// How many were forgotten.
    forgotten: u64,
}

/// An ephemeral that an update creates, and that is none, since its session has ended.
#[derive(Debug)]
pub(crate) struct Absent {
    pub(crate) path: String,
    /// The update that has ended its session.
    pub(crate) ended: i64,
    /// Whether its parent's side is on this partition, which says so by itself: something of that path may be here either way.
    pub(crate) has_parent: bool,
}

impl Ended {
    /// The update that has ended a session.
    pub(crate) fn zxid(&self, session: i64) -> Option<i64> {
        self.by_session.get(&session).copied()
    }

    /// The update `zxid` has ended a session; the first of several does.
    pub(crate) fn note(&mut self, session: i64, zxid: i64) {
        if let Entry::Vacant(vacant) = self.by_session.entry(session) {
            vacant.insert(zxid);
            self.in_order.push_back(session);
        }
    }

    /// Each of them, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64)> {
        self.in_order.iter().filter_map(|session| Some((*session, self.zxid(*session)?)))
    }

    /// How many were forgotten: what a snapshot begins with.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// So many were forgotten before those that follow in a snapshot.
    pub(super) fn load_forgotten(&mut self, forgotten: u64) {
        self.forgotten = forgotten;
    }
}

impl Tree {
    /// Whether a session is known to have ended, where there are sites.
    pub(crate) fn has_ended(&self, session: i64) -> bool {
        self.sites.ended.zxid(session).is_some()
    }

    /// How many sessions have ended here, since there are sites. Given to [`Tree::forget_ended`] when every other site
    /// has taken these ends, and this one everything that those had done before.
    #[must_use]
    pub fn ended_count(&self) -> u64 {
        let ended = &self.sites.ended;
        ended.forgotten + ended.in_order.len() as u64
    }

    /// Of the sessions that have ended here, so many since there are sites can own nothing new.
    pub fn forget_ended(&mut self, count: u64) {
        let ended = &mut self.sites.ended;
        while ended.forgotten < count
            && let Some(session) = ended.in_order.pop_front()
        {
            ended.by_session.remove(&session);
            ended.forgotten += 1;
        }
    }
}
