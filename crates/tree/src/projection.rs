//! The state as it will be once everything proposed has been applied: what requests are prepared against.

use crate::node::ZnodeKind;
use crate::proposed::{Presence, Projected};
use crate::session::{Contact, OpenSession, Session};
use crate::slab::NONE;
use crate::tree::Tree;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{Stat, path};

impl Tree {
    // Znodes.

    /// The znode at `path` as it will be; `None` when it will not be there, or away.
    pub(crate) fn project(&self, path: &str, hash: u32) -> Option<Projected> {
        self.project_found(path, hash, None)
    }

    /// The same for who may know which znode is there.
    #[inline]
    pub(crate) fn project_found(&self, path: &str, hash: u32, found: Option<u32>) -> Option<Projected> {
        let state = match self.overlay.get(path, hash) {
            Some(state) => state,
            None => self.project_applied(found.or_else(|| self.lookup_hashed(path, hash))?),
        };
        (state.presence == Presence::Here && !self.overlay.is_closing(state.kind)).then_some(state)
    }

    /// Whether there will be a znode at `path`, here or away.
    pub(crate) fn is_taken(&self, path: &str, hash: u32) -> bool {
        self.presence(path, hash) != Presence::Gone
    }

    pub(crate) fn project_applied(&self, id: u32) -> Projected {
        let node = &self.nodes[id];
        let ext = self.ext_of(node);
        Projected {
            presence: Presence::Here,
            kind: node.kind(&ext),
            version: node.version,
            cversion: ext.cversion,
            aversion: ext.aversion,
            acl: node.acl,
            data_len: node.data_len(),
            mtime: node.mtime(),
            ctime: node.ctime(),
            czxid: node.czxid,
            mzxid: node.mzxid,
            pzxid: ext.pzxid,
        }
    }

    /// Whether what stands at a path goes with a session.
    pub(crate) fn is_going(&self, path: &str, hash: u32) -> bool {
        let proposed = || self.overlay.get(path, hash).map(|state| state.kind);
        let applied = || self.lookup_hashed(path, hash).map(|id| self.kind_of(id));
        self.overlay.is_any_closing()
            && proposed().or_else(applied).is_some_and(|kind| self.overlay.is_closing(kind))
    }

    pub(crate) fn will_have_children(&mut self, path: &str, hash: u32) -> bool {
        let noted = self.noted_child_count(path, hash);
        if noted == 0 || !self.overlay.is_any_closing() {
            return noted != 0;
        }
        self.count_going();
        noted != self.overlay.going.below(path).0
    }

    /// How many children a znode will have. What goes with sessions has to be counted: [`Tree::count_going`].
    pub(crate) fn child_count_to_be(&self, path: &str, hash: u32) -> i64 {
        let going = if self.overlay.is_any_closing() { self.overlay.going.below(path).0 } else { 0 };
        self.noted_child_count(path, hash) - going
    }

    /// The same, with those that go with sessions.
    fn noted_child_count(&self, path: &str, hash: u32) -> i64 {
        let id = self.lookup_hashed(path, hash);
        let applied = id.map_or(0, |id| i64::from(self.ext_of(&self.nodes[id]).num_children));
        applied + self.overlay.child_delta(path, hash)
    }

    /// The Stat of a znode as it will be; `None` if it will not be here.
    #[must_use]
    pub fn stat_to_be(&self, path: &str) -> Option<Stat> {
        self.project(path, self.hasher.path(path)).map(|_| self.proposed_stat(path))
    }

    /// The Stat of a znode as it will be. It must be there.
    pub(crate) fn proposed_stat(&self, path: &str) -> Stat {
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).expect("an operation on it was just prepared");
        let (num_children, pzxid) = self.proposed_child_count(path, hash, state.pzxid);
        Stat {
            czxid: state.czxid,
            mzxid: state.mzxid,
            ctime: state.ctime,
            mtime: state.mtime,
            version: state.version,
            cversion: state.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: state.aversion,
            ephemeral_owner: match state.kind {
                ZnodeKind::Ephemeral { session } => session,
                _ => 0,
            },
            data_length: state.data_len as i32,
            num_children,
            pzxid,
        }
    }

    /// How many children a znode will have, and its pzxid. What is noted of that knows nothing of the end of
    /// sessions.
    fn proposed_child_count(&self, path: &str, hash: u32, noted_pzxid: i64) -> (i32, i64) {
        let id = self.lookup_hashed(path, hash);
        // A session that has ended since it was noted may have raised it.
        let applied = id.map_or(0, |id| self.ext_of(&self.nodes[id]).pzxid);
        let going = if self.overlay.is_any_closing() { self.overlay.going.below(path).1 } else { None };
        let pzxid = applied.max(noted_pzxid).max(going.unwrap_or(0));
        (self.child_count_to_be(path, hash) as i32, pzxid)
    }

    // Sessions.

    /// Whether the session will be there once everything proposed has been applied: created or
    /// being created, and not closing.
    #[must_use]
    pub fn session_is_live(&self, session: i64) -> bool {
        self.overlay.session_is_live(session).unwrap_or_else(|| self.sessions.contains(session))
    }

    /// Where the session's client will be once everything proposed has been applied; `None` when
    /// the session will not be there.
    #[must_use]
    pub fn session_contact(&self, session: i64) -> Option<Contact> {
        self.proposed_session(session).map(|session| session.contact)
    }

    /// The session, once everything proposed has been applied.
    pub(crate) fn proposed_session(&self, session: i64) -> Option<OpenSession> {
        match self.overlay.session(session) {
            Some(proposed) => proposed.open,
            None => self.sessions.get(session).map(Session::to_open),
        }
    }

    /// Whether an update that is proposed and not applied concerns the session itself.
    #[must_use]
    pub fn session_is_changing(&self, session: i64) -> bool {
        self.overlay.session(session).is_some()
    }

    /// Paths of the session's ephemerals once everything proposed has been applied, in no particular order.
    #[must_use]
    pub fn ephemerals_to_be(&self, session: i64) -> Vec<String> {
        let kind = ZnodeKind::Ephemeral { session };
        if self.overlay.is_closing(kind) {
            return Vec::new();
        }
        let mut paths: Vec<String> = self.untouched_ephemerals(session).map(|id| self.path_of(id)).collect();
        let touched = self.overlay.owned(session).filter(|(_, state)| state.presence == Presence::Here);
        paths.extend(touched.map(|(path, _)| String::from(path)));
        paths
    }

    /// The session's ephemerals in the applied state that no outstanding update touches.
    pub(crate) fn untouched_ephemerals(&self, session: i64) -> impl Iterator<Item = u32> {
        let first = self.sessions.get(session).map_or(NONE, |session| session.first_ephemeral);
        self.owned_ids(first).filter(|id| {
            let hash = self.nodes[*id].hash;
            !self.overlay.may_touch(hash) || self.overlay.get(&self.path_of(*id), hash).is_none()
        })
    }

    // Children that go with sessions that are closing.

    /// Counts what goes with sessions that are closing. Nothing if that is known, or none is.
    #[inline]
    pub(crate) fn count_going(&mut self) {
        while let Some(session) = self.overlay.going.next_uncounted() {
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
