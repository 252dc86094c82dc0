//! What changes have in common: what they expect of the state, what they count, and what is told of them.

use crate::acl;
use crate::digest::Place;
use crate::encoding::{CreateOp, OpAcl};
use crate::node::{Node, ZnodeKind};
use crate::observer::{Change, Observer};
use crate::quota::Usage;
use crate::slab::NONE;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Update};
use stoa_wire::{EventKind, Stat, path};

impl Tree {
    /// The znode at a path, which has to be here.
    pub(crate) fn expect_at(&self, path: &str, update: &Update<'_>) -> Result<u32, CorruptUpdate> {
        self.lookup(path).ok_or_else(|| update.corrupt("a znode that it speaks of does not exist"))
    }

    /// The znode at a path, which has to be here, without children, and not the root.
    pub(crate) fn expect_deletable(&self, path: &str, update: &Update<'_>) -> Result<u32, CorruptUpdate> {
        let id = self.expect_at(path, update)?;
        let node = &self.nodes[id];
        if node.parent == NONE || self.ext_of(node).num_children != 0 {
            return Err(update.corrupt("it deletes a znode that has children, or the root"));
        }
        Ok(id)
    }

    /// The parent's path and the name of a znode that is about to be created.
    pub(crate) fn expect_free<'p>(
        &self,
        path: &'p str,
        update: &Update<'_>,
    ) -> Result<(&'p str, &'p str), CorruptUpdate> {
        let split = path::split(path).ok_or_else(|| update.corrupt("it creates the root"))?;
        match self.find(path) {
            Some(_) => Err(update.corrupt("it creates a znode that exists")),
            None => Ok(split),
        }
    }

    /// What is created, to be put in its place with [`Tree::add`].
    #[inline]
    pub(crate) fn new_node(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        name: &str,
    ) -> Result<Node, CorruptUpdate> {
        if let ZnodeKind::Ephemeral { session } = create.kind
            && !self.sessions.contains(session)
        {
            return Err(update.corrupt("it creates an ephemeral of a session that does not exist"));
        }
        let acl = self.intern_op_acl(create.acl, update)?;
        let mut node = Node::new(name, create.data, update.zxid, update.time_ms);
        node.acl = acl;
        Ok(node)
    }

    /// Counts a znode that is in its place now, and tells of it.
    #[inline]
    pub(crate) fn count_created(
        &mut self,
        (path, id, place): (&str, u32, Place),
        zxid: i64,
        observer: &mut impl Observer,
    ) -> Stat {
        self.account_new_at(id, place);
        let stat = self.stat_of(id);
        let node = &self.nodes[id];
        let (bytes, acl) = (node.data_len() as i64, node.acl);
        self.quota_created(path);
        self.count_for_quota(path, Usage { count: 1, bytes }, observer);
        self.emit(observer, EventKind::Created, path, zxid, acl);
        stat
    }

    /// Takes a znode that is gone out of the quota above it, and tells of it.
    #[inline]
    pub(crate) fn tell_deleted(&mut self, path: &str, node: &Node, zxid: i64, observer: &mut impl Observer) {
        self.quota_deleted(path);
        let bytes = -(node.data_len() as i64);
        self.count_for_quota(path, Usage { count: -1, bytes }, observer);
        self.emit(observer, EventKind::Deleted, path, zxid, node.acl);
    }

    pub(crate) fn emit(
        &self,
        observer: &mut impl Observer,
        kind: EventKind,
        path: &str,
        zxid: i64,
        acl: u32,
    ) {
        observer.changed(&Change { kind, path, zxid, acl: self.acls.view(acl) });
    }

    pub(crate) fn intern_op_acl(
        &mut self,
        acl: OpAcl<'_>,
        update: &Update<'_>,
    ) -> Result<u32, CorruptUpdate> {
        match acl {
            None => Ok(acl::OPEN),
            Some(encoded) => {
                self.acls.intern(encoded).ok_or_else(|| update.corrupt("an ACL is not well formed"))
            }
        }
    }
}
