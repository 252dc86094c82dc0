//! Cuts: where the subtree of a znode lives on another partition than its parent does.
//!
//! At a cut, both partitions have a node that is no znode (*absent*), so that what hangs together can be
//! found by its path:
//!
//! ```text
//! first partition   second partition       the cuts are /a and /a/b/c
//! /                 /~
//! +- a'             +- a                   '  away: the name of a child that lives on another partition
//!    +- b~             +- b                ~  scaffolding: no more than the way to what is below
//!       +- c              +- c'
//! ```
//!
//! A name that is away is state: it has a term in the digest, its parent counts it as a child. Scaffolding
//! follows from what is below it: it is made with the first znode there and removed with the last. So the
//! order of a znode's children is known where it lives; what is below scaffolding is in no order.
//!
//! What always holds: the parent of a name that is away is a znode, that of scaffolding is absent (or it
//! is the root), and scaffolding other than the root has something below it. A name that is away may
//! have too: a subtree that comes back to this partition, which holds as long as the znode in between
//! exists elsewhere.

use crate::digest::{self, Place};
use crate::encoding::CreateOp;
use crate::node::{Node, ROOT_ID, ZnodeKind};
use crate::observer::{Observer, OpResult};
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Update};
use stoa_wire::{EventKind, path};

impl Tree {
    pub(super) fn add_absent(&mut self, parent: u32, node: Node, path_digest: u64) -> u32 {
        let id = self.add(parent, node, ZnodeKind::Persistent);
        self.account_absent(id, path_digest);
        id
    }

    /// Counts an absent node that has just been added.
    pub(crate) fn account_absent(&mut self, id: u32, path_digest: u64) {
        self.partitions.add_absent(self.nodes[id].absent_term(path_digest));
    }

    /// Takes an absent node out of all counts.
    pub(super) fn account_absent_gone(&mut self, id: u32, path_digest: u64) {
        self.save_for_walk(id);
        self.partitions.remove_absent(self.nodes[id].absent_term(path_digest));
    }

    /// Removes an absent node that has nothing below it.
    fn remove_absent(&mut self, id: u32, path_digest: u64) {
        self.account_absent_gone(id, path_digest);
        self.unlink_child(id);
        self.drop_node(id);
    }

    /// The deepest node at `path` or above it, with its path, if it is absent.
    pub(super) fn absent_above<'p>(&self, path: &'p str) -> Option<(u32, &'p str)> {
        let (there, id) = self.find_levels(path).last()?;
        self.nodes[id].is_absent().then_some((id, there))
    }

    /// The absent node at `path`, made as scaffolding if it is not there. `None` when it would be below
    /// a znode that is here, or is one.
    pub(super) fn scaffold(&mut self, path: &str) -> Option<u32> {
        let (mut id, there) = self.absent_above(path)?;
        for name in path[there.len()..].split('/').filter(|name| !name.is_empty()) {
            id = self.add_absent(id, Node::scaffold(name), 0);
        }
        Some(id)
    }

    /// Removes scaffolding that holds nothing any more, from `id` upwards.
    pub(super) fn remove_needless(&mut self, mut id: u32) {
        while id != ROOT_ID && self.nodes[id].is_scaffold() && self.ext_of(&self.nodes[id]).num_children == 0
        {
            let parent = self.nodes[id].parent;
            self.remove_absent(id, 0);
            id = parent;
        }
    }

    /// The parent's side of a create.
    pub(crate) fn apply_adopt(
        &mut self,
        update: &Update<'_>,
        path: &str,
        parent_cversion: i32,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let (parent_path, name) = self.expect_free(path, update)?;
        let parent = self.expect_at(parent_path, update)?;
        let parent_digest = digest::of_path(parent_path);
        self.before_change(parent, parent_digest);
        self.add_absent(parent, Node::away(name), digest::child_path(parent_digest, name.as_bytes()));
        let parent_ext = self.nodes[parent].ext;
        let parent_ext = &mut self.exts[parent_ext];
        parent_ext.cversion = parent_cversion;
        parent_ext.pzxid = parent_ext.pzxid.max(update.zxid);
        self.after_change(parent, parent_digest);
        self.emit(observer, EventKind::ChildrenChanged, parent_path, update.zxid, self.nodes[parent].acl);
        Ok(())
    }

    /// The parent's side of a delete.
    pub(crate) fn apply_disown(
        &mut self,
        update: &Update<'_>,
        path: &str,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let id = self.find(path).filter(|id| self.nodes[*id].is_away());
        let id = id.ok_or_else(|| update.corrupt("it disowns a znode that is not away"))?;
        if self.ext_of(&self.nodes[id]).num_children != 0 {
            return Err(update.corrupt("it disowns a znode that has something below it"));
        }
        let (parent_path, _) = path::split(path).expect("not the root, which is never away");
        let parent = self.nodes[id].parent;
        let parent_digest = digest::of_path(parent_path);
        self.before_change(parent, parent_digest);
        self.remove_absent(id, digest::of_path(path));
        self.sites.divided.owned_away.remove(path);
        let parent_ext = self.nodes[parent].ext;
        let parent_ext = &mut self.exts[parent_ext];
        parent_ext.pzxid = parent_ext.pzxid.max(update.zxid);
        self.after_change(parent, parent_digest);
        self.emit(observer, EventKind::ChildrenChanged, parent_path, update.zxid, self.nodes[parent].acl);
        Ok(())
    }

    /// The znode's side of a create.
    pub(crate) fn apply_create_at(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let CreateOp { path, kind, with_stat, .. } = *create;
        let (parent_path, name) = self.expect_free(path, update)?;
        let parent = self.scaffold(parent_path);
        let parent = parent.ok_or_else(|| update.corrupt("it creates a znode at a cut that is none"))?;
        let node = self.new_node(update, create, name)?;
        let id = self.add(parent, node, kind);
        let stat = self.count_created((path, id, Place::of(path)), update.zxid, observer);
        observer.result(OpResult::Created { path, stat, with_stat });
        Ok(())
    }

    /// The znode's side of a delete.
    pub(crate) fn apply_delete_at(
        &mut self,
        update: &Update<'_>,
        path: &str,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let id = self.expect_deletable(path, update)?;
        if !self.nodes[self.nodes[id].parent].is_absent() {
            return Err(update.corrupt("it deletes a znode on the wrong side of a cut"));
        }
        self.delete_at_cut(id, path, update.zxid, observer);
        observer.result(OpResult::Deleted);
        Ok(())
    }

    /// Deletes a znode that has no children, and whose parent lives on another partition.
    pub(crate) fn delete_at_cut(&mut self, id: u32, path: &str, zxid: i64, observer: &mut impl Observer) {
        let parent = self.nodes[id].parent;
        self.account_gone_from(id, Place::of(path));
        self.unlink_owned(id);
        self.unlink_child(id);
        let node = self.drop_node(id);
        self.tell_deleted(path, &node, zxid, observer);
        self.remove_needless(parent);
        self.acls.release(node.acl);
    }
}
