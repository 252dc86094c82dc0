//! Where the znode at a path will be once everything proposed has been applied: here, on another partition, or
//! nowhere.

use crate::acl::OPEN;
use crate::node::{Node, ZnodeKind};
use crate::proposed::{Presence, Projected};
use crate::tree::Tree;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{ErrorCode, path};

impl Projected {
    /// What is known of a znode on another partition.
    pub(super) const AWAY: Self = Self {
        presence: Presence::Away,
        kind: ZnodeKind::Persistent,
        version: 0,
        cversion: 0,
        aversion: 0,
        acl: OPEN,
        data_len: 0,
        mtime: 0,
        ctime: 0,
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
    };
}

impl Node {
    /// What is known of the znode in whose place this node is that is none; `None` if there is no such znode.
    pub(crate) fn project_absent(&self) -> Option<Projected> {
        self.is_away().then_some(Projected::AWAY)
    }
}

impl Tree {
    /// Where the znode at `path` will be.
    pub(crate) fn presence(&self, path: &str, hash: u32) -> Presence {
        match self.overlay.get(path, hash) {
            Some(state) => self.presence_of(&state),
            None => self.applied_presence(self.find_hashed(path, hash)),
        }
    }

    /// Where what is at a path will be, if no outstanding update touches it.
    fn applied_presence(&self, found: Option<u32>) -> Presence {
        match found {
            None => Presence::Gone,
            Some(id) if self.nodes[id].is_away() => Presence::Away,
            Some(id) if self.nodes[id].is_scaffold() || self.overlay.is_closing(self.kind_of(id)) => {
                Presence::Gone
            }
            Some(_) => Presence::Here,
        }
    }

    /// Where the znodes at a path and at those above it will be, from the root down.
    pub(super) fn presences(&self, path: &str) -> impl DoubleEndedIterator<Item = Presence> {
        let mut found = self.find_levels(path).map(|(_, id)| id);
        let levels = self.hasher.levels(path).map(|(at, hash)| {
            let found = found.next();
            let proposed = self.overlay.get(at, hash);
            proposed.map_or_else(|| self.applied_presence(found), |state| self.presence_of(&state))
        });
        levels.collect::<Vec<_>>().into_iter()
    }

    fn presence_of(&self, state: &Projected) -> Presence {
        if self.overlay.is_closing(state.kind) { Presence::Gone } else { state.presence }
    }

    pub(super) fn check_cut(&self, path: &str) -> Result<(), ErrorCode> {
        if self.is_at_cut(path) { Ok(()) } else { Err(ErrorCode::SystemError) }
    }

    /// Whether the parent of a znode that is, or may be, here will be on another partition: whether the
    /// next above it of which something is known here is away, or nothing is known of any.
    fn is_at_cut(&self, path: &str) -> bool {
        let mut above = path::split(path).into_iter().flat_map(|(parent, _)| self.presences(parent).rev());
        above.find(|presence| *presence != Presence::Gone) != Some(Presence::Here)
    }

    /// Paths of the session's ephemerals whose parents live on other partitions, once everything
    /// proposed has been applied.
    #[must_use]
    pub fn ephemerals_at_cuts(&self, session: i64) -> Vec<String> {
        let kind = ZnodeKind::Ephemeral { session };
        if self.overlay.is_closing(kind) {
            return Vec::new();
        }
        let is_at_cut = |id: &u32| self.nodes[self.nodes[*id].parent].is_absent();
        let untouched = self.untouched_ephemerals(session).filter(is_at_cut);
        let mut paths: Vec<String> = untouched.map(|id| self.path_of(id)).collect();
        let touched = self.overlay.owned(session);
        let touched =
            touched.filter(|(path, state)| state.presence == Presence::Here && self.is_at_cut(path));
        paths.extend(touched.map(|(path, _)| String::from(path)));
        paths
    }
}
