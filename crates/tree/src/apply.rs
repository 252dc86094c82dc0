//! From an update to the new state, its results and its events.

use crate::digest::{self, Place};
use crate::encoding::{CreateOp, OpAcl};
use crate::observer::{Observer, OpResult};
use crate::quota::Usage;
use crate::sites::Changed;
use crate::slab::NONE;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Op, Update};
use alloc::string::String;
use stoa_wire::{EventKind, path};

impl Tree {
    /// Carries out an update. One that was applied before (its zxid is not above
    /// [`Tree::last_prepared_zxid`]) is skipped: no change, no event, no result.
    ///
    /// # Errors
    /// When the update is damaged or does not fit the state. The tree must not be used any more.
    #[inline]
    pub fn apply(&mut self, update: &Update<'_>, observer: &mut impl Observer) -> Result<(), CorruptUpdate> {
        if update.zxid <= self.zxids.last_prepared {
            return Ok(());
        }
        update.for_each_op(|op| self.apply_op(update, op, observer))?;
        if !self.sites.absent.is_empty() {
            self.end_absent(update)?;
        }
        self.zxids.last_prepared = update.zxid;
        self.zxids.last = self.zxids.last.max(update.zxid);
        let acls = &mut self.acls;
        self.overlay.applied(update.zxid, |acl| acls.release(acl));
        Ok(())
    }

    pub(crate) fn apply_op(
        &mut self,
        update: &Update<'_>,
        op: Op<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        if !self.sites.absent.is_empty() && self.is_of_absent(update, &op, observer) {
            return Ok(());
        }
        match op {
            Op::Create { create, parent_cversion } => {
                self.apply_create(update, &create, parent_cversion, observer)
            }
            Op::Delete { path } => self.apply_delete(update, path, observer),
            Op::SetData { path, data, version } => self.apply_set_data(update, path, data, version, observer),
            Op::SetAcl { path, acl, aversion } => self.apply_set_acl(update, path, acl, aversion, observer),
            Op::Check { path } => {
                let id = self.expect_at(path, update)?;
                observer.result(OpResult::Checked { stat: self.stat_of(id) });
                Ok(())
            }
            Op::CreateSession { timeout_ms, password, contact } => {
                let session = update.session;
                self.sessions.create(session, timeout_ms, password, contact);
                self.come_home(update);
                observer.result(OpResult::SessionOpened { session, timeout_ms, password, contact });
                Ok(())
            }
            Op::OpenSession { timeout_ms, contact } => {
                let session = update.session;
                let password = self.sessions.open(session, timeout_ms, contact);
                let password =
                    password.ok_or_else(|| update.corrupt("it opens a session that is not there"))?;
                self.come_home(update);
                observer.result(OpResult::SessionOpened { session, timeout_ms, password, contact });
                Ok(())
            }
            Op::CloseSession => {
                self.disown_owned(update, observer)?;
                self.close_session(update, observer);
                Ok(())
            }
            Op::Partition(op) => self.apply_partition_op(update, op, observer),
            Op::Site(op) => self.apply_site_op(update, op),
        }
    }

    fn apply_create(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        parent_cversion: i32,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        if self.sites.are_there() && self.create_of_ended(update, create, parent_cversion, observer)? {
            return Ok(());
        }
        let CreateOp { path, kind, with_stat, .. } = *create;
        let (parent_path, name) = self.expect_free(path, update)?;
        let parent = self.expect_at(parent_path, update)?;
        let node = self.new_node(update, create, name)?;

        let parent_place = Place::of(parent_path);
        self.before_change(parent, parent_place.path_digest);
        let id = self.add(parent, node, kind);
        let parent_ext = self.nodes[parent].ext;
        let parent_ext = &mut self.exts[parent_ext];
        parent_ext.cversion = parent_cversion;
        parent_ext.pzxid = parent_ext.pzxid.max(update.zxid);
        self.after_change(parent, parent_place.path_digest);
        self.note_late(parent, Changed::Children, update.zxid);

        let place = parent_place.child(name.as_bytes());
        let stat = self.count_created((path, id, place), update.zxid, observer);
        self.emit(observer, EventKind::ChildrenChanged, parent_path, update.zxid, self.nodes[parent].acl);
        observer.result(OpResult::Created { path, stat, with_stat });
        Ok(())
    }

    fn apply_delete(
        &mut self,
        update: &Update<'_>,
        path: &str,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        if self.sites.are_there() && self.is_gone_acknowledgement(path) {
            observer.result(OpResult::Deleted);
            return Ok(());
        }
        let id = self.expect_deletable(path, update)?;
        if self.nodes[self.nodes[id].parent].is_absent() {
            return Err(update.corrupt("it deletes a znode on the wrong side of a cut"));
        }
        self.delete_znode(id, path, update.zxid, observer);
        observer.result(OpResult::Deleted);
        Ok(())
    }

    fn apply_set_data(
        &mut self,
        update: &Update<'_>,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let id = self.expect_at(path, update)?;
        let path_digest = digest::of_path(path);
        let bytes_before = self.nodes[id].data_len() as i64;
        self.before_change(id, path_digest);
        self.before_data_change(id, path_digest);
        let node = &mut self.nodes[id];
        node.set_data(data);
        node.version = version;
        node.mzxid = update.zxid;
        node.set_mtime(update.time_ms);
        let acl = node.acl;
        let bytes = node.data_len() as i64 - bytes_before;
        self.after_data_change(id, path_digest);
        self.after_change(id, path_digest);
        self.note_late(id, Changed::Data, update.zxid);
        let stat = self.stat_of(id);

        self.count_for_quota(path, Usage { count: 0, bytes }, observer);
        self.emit(observer, EventKind::DataChanged, path, update.zxid, acl);
        observer.result(OpResult::DataSet { stat });
        Ok(())
    }

    fn apply_set_acl(
        &mut self,
        update: &Update<'_>,
        path: &str,
        acl: OpAcl<'_>,
        aversion: i32,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let id = self.expect_at(path, update)?;
        let acl = self.intern_op_acl(acl, update)?;
        let path_digest = digest::of_path(path);
        self.before_change(id, path_digest);
        let acl_before = core::mem::replace(&mut self.nodes[id].acl, acl);
        let ext = self.ensure_ext(id);
        self.exts[ext].aversion = aversion;
        self.after_change(id, path_digest);
        self.acls.release(acl_before);
        observer.result(OpResult::AclSet { stat: self.stat_of(id) });
        Ok(())
    }

    fn close_session(&mut self, update: &Update<'_>, observer: &mut impl Observer) {
        let session = update.session;
        let mut path = String::new();
        while let Some(id) = self.sessions.get(session).map(|session| session.first_ephemeral)
            && id != NONE
        {
            path.clear();
            self.write_path(id, &mut path);
            self.delete_znode(id, &path, update.zxid, observer);
        }
        self.sessions.remove(session);
        if self.sites.are_there() {
            self.sites.ended.note(session, update.zxid);
        }
        observer.result(OpResult::SessionClosed { session });
    }

    /// Deletes a znode that has no children and is not the root.
    fn delete_znode(&mut self, id: u32, path: &str, zxid: i64, observer: &mut impl Observer) {
        let parent = self.nodes[id].parent;
        if self.nodes[parent].is_absent() {
            self.delete_at_cut(id, path, zxid, observer);
            return;
        }
        let (parent_path, name) = path::split(path).expect("not the root");
        let parent_place = Place::of(parent_path);
        self.account_gone_from(id, parent_place.child(name.as_bytes()));
        self.unlink_owned(id);
        self.before_change(parent, parent_place.path_digest);
        self.unlink_child(id);
        let parent_ext = self.nodes[parent].ext;
        let parent_ext = &mut self.exts[parent_ext];
        parent_ext.pzxid = parent_ext.pzxid.max(zxid);
        self.after_change(parent, parent_place.path_digest);
        self.note_late(parent, Changed::Children, zxid);
        let node = self.drop_node(id);

        self.tell_deleted(path, &node, zxid, observer);
        self.emit(observer, EventKind::ChildrenChanged, parent_path, zxid, self.nodes[parent].acl);
        self.acls.release(node.acl);
    }
}
