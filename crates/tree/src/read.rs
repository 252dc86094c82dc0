//! What can be read: of the applied state only.

use crate::Caller;
use crate::acl::{AclView, OPEN};
use crate::node::{Node, ROOT_ID, ZnodeKind};
use crate::session::{SessionInfo, is_same_password};
use crate::slab::NONE;
use crate::tree::Tree;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::Stat;

impl Tree {
    /// The znode at `path`, if it lives here.
    #[inline]
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Znode<'_>> {
        self.lookup(path).map(|id| Znode { tree: self, id })
    }

    /// Names of what is known right below a path, also where the znode at the path lives on another partition.
    /// Where it lives here, they are in the order of their creation.
    pub fn names_below(&self, path: &str) -> impl Iterator<Item = &str> {
        let below = self.find(path).into_iter().flat_map(|id| self.child_ids(id));
        below.map(|id| self.nodes[id].name())
    }

    /// Whether the caller has at least one of the permissions `perms` on the znode.
    #[inline]
    #[must_use]
    pub fn permits(&self, znode: Znode<'_>, perms: i32, caller: &Caller<'_>) -> bool {
        znode.acl().permits(perms, caller)
    }

    /// The zxid of the last update applied; 0 when there was none.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.zxids.last
    }

    /// Number of znodes that are here, the root included. (ZooKeeper counts its root twice.)
    #[must_use]
    pub fn znode_count(&self) -> usize {
        self.nodes.live() - self.partitions.absent_count()
    }

    /// Number of ephemeral znodes.
    #[must_use]
    pub fn ephemeral_count(&self) -> usize {
        self.counts().ephemerals
    }

    /// Number of container znodes.
    #[must_use]
    pub fn container_count(&self) -> usize {
        self.counts().containers
    }

    /// Number of TTL znodes.
    #[must_use]
    pub fn ttl_count(&self) -> usize {
        self.counts().ttls
    }

    /// Bytes of all paths and data (ZooKeeper's `approximate_data_size`).
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.counts().data_bytes
    }

    /// Number of distinct ACLs.
    #[must_use]
    pub fn acl_count(&self) -> usize {
        self.acls.len()
    }

    /// Number of znodes below `path`, at any depth, that are here, wherever the one at the path lives. So the sum
    /// over all partitions is that of the whole tree: a name that is away is counted where it lives.
    ///
    /// `None` when there is nothing at that path, and so nothing here below it: neither a znode that is here,
    /// nor one that is away, nor the way to one that is here. (Whether there is one at all, its own partition
    /// knows.) Takes time in proportion to what is below the path, but for the root.
    #[must_use]
    pub fn count_below(&self, path: &str) -> Option<usize> {
        let id = self.find(path)?;
        let own = usize::from(!self.nodes[id].is_absent());
        let with_own = if id == ROOT_ID { self.znode_count() } else { self.descend(id).count() };
        Some(with_own - own)
    }

    /// Paths of containers and TTL znodes that are due to be deleted, at most `limit`: those
    /// without children, where a container once had one (or was created longer than
    /// `unused_container_ms` ago) and a TTL znode was not changed for longer than its TTL.
    #[must_use]
    pub fn reapable(&self, now_ms: i64, limit: usize) -> Vec<String> {
        self.reapable_ids()
            .filter(|id| self.is_reapable(*id, now_ms))
            .take(limit)
            .map(|id| self.path_of(id))
            .collect()
    }

    fn is_reapable(&self, id: u32, now_ms: i64) -> bool {
        let node = &self.nodes[id];
        let ext = self.ext_of(node);
        let elapsed_ms = now_ms.saturating_sub(node.mtime());
        ext.num_children == 0
            && match node.kind(&ext) {
                ZnodeKind::Container => {
                    let limit_ms = self.options.unused_container_ms;
                    ext.cversion > 0 || (limit_ms != 0 && elapsed_ms > limit_ms)
                }
                ZnodeKind::Ttl { ttl_ms } => elapsed_ms > ttl_ms,
                ZnodeKind::Persistent | ZnodeKind::Ephemeral { .. } => false,
            }
    }

    // Sessions.

    /// A session of the applied state.
    #[must_use]
    pub fn session(&self, id: i64) -> Option<SessionInfo> {
        self.sessions.get(id).map(|session| session.info(id))
    }

    /// Whether the applied state has this session, with this password.
    #[must_use]
    pub fn session_has_password(&self, id: i64, password: &[u8]) -> bool {
        self.sessions.get(id).is_some_and(|session| is_same_password(&session.password, password))
    }

    /// The sessions of the applied state, in no particular order. On a partition other than the first these
    /// are those that own something there, without a timeout and a password.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.sessions.iter().map(|(id, session)| session.info(id))
    }

    /// Number of sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Paths of the session's ephemerals, the newest first.
    pub fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = String> {
        let first = self.sessions.get(session).map_or(NONE, |session| session.first_ephemeral);
        self.owned_ids(first).map(|id| self.path_of(id))
    }
}

/// A znode, for reading.
#[derive(Debug, Clone, Copy)]
pub struct Znode<'a> {
    tree: &'a Tree,
    id: u32,
}

impl<'a> Znode<'a> {
    fn node(&self) -> &'a Node {
        &self.tree.nodes[self.id]
    }

    /// The data; null is kept apart from empty.
    #[inline]
    #[must_use]
    pub fn data(&self) -> Option<&'a [u8]> {
        self.node().data()
    }

    /// What a client may know besides.
    #[inline]
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.tree.stat_of(self.id)
    }

    /// Who may do what.
    #[inline]
    #[must_use]
    pub fn acl(&self) -> AclView<'a> {
        self.tree.acls.view(self.node().acl)
    }

    /// Whether everybody may do everything.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.node().acl == OPEN
    }

    /// The last component of the path; empty for the root.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node().name()
    }

    /// When it goes away.
    #[must_use]
    pub fn kind(&self) -> ZnodeKind {
        self.tree.kind_of(self.id)
    }

    /// Number of children.
    #[inline]
    #[must_use]
    pub fn child_count(&self) -> usize {
        self.tree.ext_of(self.node()).num_children as usize
    }

    /// Names of the children, in the order in which they were created; also of those that live on other
    /// partitions.
    pub fn children(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let tree = self.tree;
        tree.child_ids(self.id).map(move |id| tree.nodes[id].name())
    }
}
