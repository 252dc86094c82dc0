//! From an update to the new state, its results and its events.

use crate::acl::{self, AclView};
use crate::digest::{self, Place};
use crate::node::{Node, ZnodeKind};
use crate::quota::Usage;
use crate::session::Contact;
use crate::slab::NONE;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, CreateOp, Op, OpAcl, Update};
use alloc::string::String;
use stoa_wire::{EventKind, PASSWORD_LEN, Stat, path};

/// Something that happened to a znode, for those who watch it.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Created, deleted, its data changed, or its children changed. Where the parent lives on another
    /// partition than the znode, the end or the beginning of the znode is told on the partition of the
    /// znode only, and that the children changed on that of the parent only: each where the watches
    /// are that listen to it.
    pub kind: EventKind,
    /// The znode.
    pub path: &'a str,
    /// The update that did it.
    pub zxid: i64,
    /// Who may see it: an event goes only to those who may READ the znode. For a deleted znode,
    /// the ACL it had.
    pub acl: AclView<'a>,
}

/// The result of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpResult<'a> {
    /// A znode was created.
    Created {
        /// Where: with the number, if it is sequential.
        path: &'a str,
        /// Its Stat.
        stat: Stat,
        /// Whether the reply carries the Stat: for all creates but opcode `create`.
        with_stat: bool,
    },
    /// A znode was deleted.
    Deleted,
    /// Data was set.
    DataSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// An ACL was set.
    AclSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// A version was checked.
    Checked {
        /// The Stat of the znode.
        stat: Stat,
    },
    /// A session was created, or its client came to another connection.
    SessionOpened {
        /// Its id.
        session: i64,
        /// Its timeout, milliseconds.
        timeout_ms: i32,
        /// Its password.
        password: [u8; PASSWORD_LEN],
        /// Where its client is now.
        contact: Contact,
    },
    /// A session was closed and its ephemerals are gone.
    SessionClosed {
        /// Its id.
        session: i64,
    },
}

/// A soft limit that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftQuota<'a> {
    /// The subtree with the quota.
    pub prefix: &'a str,
    /// Whether it is the bytes of data that are limited, or the number of znodes.
    pub bytes: bool,
    /// The limit.
    pub limit: i64,
    /// What is there.
    pub usage: i64,
}

/// Is told what an update does, while it is applied.
pub trait Observer {
    /// A znode changed. Calls come in the order of ZooKeeper's events, and before the result of
    /// the operation that caused them.
    fn changed(&mut self, change: &Change<'_>) {
        let _ = change;
    }

    /// An operation is done: one call for each, so several for a multi.
    fn result(&mut self, result: OpResult<'_>) {
        let _ = result;
    }

    /// The subtree at a path has come from another partition, or gone to one; without what lives elsewhere
    /// by a cut of its own. Nobody can see that in the state, so there is no change and no result.
    fn moved(&mut self, path: &str, is_here: bool) {
        let _ = (path, is_here);
    }

    /// A write brought a subtree above a soft limit, or further above it: worth a warning.
    fn quota_exceeded_softly(&mut self, quota: &SoftQuota<'_>) {
        let _ = quota;
    }
}

impl Observer for () {}

impl Tree {
    /// Carries out an update. One that was applied before (its zxid is not above
    /// [`Tree::last_zxid`]) is skipped: no change, no event, no result.
    ///
    /// # Errors
    /// When the update is damaged or does not fit the state. The tree must not be used any more.
    #[inline]
    pub fn apply(&mut self, update: &Update<'_>, observer: &mut impl Observer) -> Result<(), CorruptUpdate> {
        if update.zxid <= self.last_zxid {
            return Ok(());
        }
        update.for_each_op(|op| self.apply_op(update, op, observer))?;
        self.last_zxid = update.zxid;
        let acls = &mut self.acls;
        self.overlay.applied(update.zxid, |acl| acls.release(acl));
        Ok(())
    }

    fn apply_op(
        &mut self,
        update: &Update<'_>,
        op: Op<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        match op {
            Op::Create(create) => self.apply_create(update, &create, observer),
            Op::Delete { path } => self.apply_delete(update, path, false, observer),
            Op::DeleteAt { path } => self.apply_delete(update, path, true, observer),
            Op::Adopt { path, parent_cversion } => self.apply_adopt(update, path, parent_cversion, observer),
            Op::Disown { path } => self.apply_disown(update, path, observer),
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
                observer.result(OpResult::SessionOpened { session, timeout_ms, password, contact });
                Ok(())
            }
            Op::OpenSession { timeout_ms, contact } => {
                let session = update.session;
                let password = self.sessions.open(session, timeout_ms, contact);
                let password =
                    password.ok_or_else(|| update.corrupt("it opens a session that is not there"))?;
                observer.result(OpResult::SessionOpened { session, timeout_ms, password, contact });
                Ok(())
            }
            Op::CloseSession => {
                self.close_session(update, observer);
                Ok(())
            }
            Op::Visit { partition } => {
                let noted = self.sessions.visit(update.session, partition);
                noted.ok_or_else(|| update.corrupt("it is of a session that is not there"))
            }
            Op::Visits { partition, sessions } => {
                let sessions = sessions.iter().map(|session| i64::from_le_bytes(*session));
                for session in sessions {
                    let noted = self.sessions.visit(session, partition);
                    noted.ok_or_else(|| update.corrupt("it is of a session that is not there"))?;
                }
                Ok(())
            }
            Op::Guest => {
                self.sessions.make_guest(update.session);
                Ok(())
            }
            Op::Give { path, digest } => {
                self.apply_give(path, digest).map_err(|reason| update.corrupt(reason))?;
                observer.moved(path, false);
                Ok(())
            }
            Op::Take { path, content } => {
                self.apply_take(path, content).map_err(|reason| update.corrupt(reason))?;
                observer.moved(path, true);
                Ok(())
            }
            Op::Place { changes } => self.placed.change(changes).map_err(|reason| update.corrupt(reason)),
        }
    }

    pub(crate) fn expect_at(&self, path: &str, update: &Update<'_>) -> Result<u32, CorruptUpdate> {
        self.lookup(path).ok_or_else(|| update.corrupt("a znode that it speaks of does not exist"))
    }

    fn apply_create(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let CreateOp { path, data, acl, kind, parent_cversion, with_stat } = *create;
        let Some((parent_path, name)) = path::split(path) else {
            return Err(update.corrupt("it creates the root"));
        };
        if self.find(path).is_some() {
            return Err(update.corrupt("it creates a znode that exists"));
        }
        let parent = match parent_cversion {
            Some(_) => self.expect_at(parent_path, update)?,
            None => self
                .scaffold(parent_path)
                .ok_or_else(|| update.corrupt("it creates a znode at a cut that is none"))?,
        };
        if let ZnodeKind::Ephemeral { session } = kind
            && !self.sessions.contains(session)
        {
            return Err(update.corrupt("it creates an ephemeral of a session that does not exist"));
        }
        let acl = self.intern_op_acl(acl, update)?;

        let mut node = Node::new(name, data, update.zxid, update.time_ms);
        node.acl = acl;
        let parent_place = Place::of(parent_path);
        let id = if let Some(parent_cversion) = parent_cversion {
            self.before_change(parent, parent_place.path_digest);
            let id = self.add(parent, node, kind);
            let parent_ext = self.nodes[parent].ext;
            let parent_ext = &mut self.exts[parent_ext];
            parent_ext.cversion = parent_cversion;
            parent_ext.pzxid = update.zxid;
            self.after_change(parent, parent_place.path_digest);
            id
        } else {
            self.add(parent, node, kind)
        };
        self.account_new_at(id, parent_place.child(name.as_bytes()));
        let stat = self.stat_of(id);

        self.quota_created(path);
        let bytes = data.map_or(0, <[u8]>::len) as i64;
        self.count_for_quota(path, Usage { count: 1, bytes }, observer);

        self.emit(observer, EventKind::Created, path, update.zxid, acl);
        if parent_cversion.is_some() {
            self.emit(observer, EventKind::ChildrenChanged, parent_path, update.zxid, self.nodes[parent].acl);
        }
        observer.result(OpResult::Created { path, stat, with_stat });
        Ok(())
    }

    /// `at_cut`: the parent lives on another partition.
    fn apply_delete(
        &mut self,
        update: &Update<'_>,
        path: &str,
        at_cut: bool,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let id = self.expect_at(path, update)?;
        let parent = self.nodes[id].parent;
        if parent == NONE || self.ext_of(&self.nodes[id]).num_children != 0 {
            return Err(update.corrupt("it deletes a znode that has children, or the root"));
        }
        if self.nodes[parent].is_absent() != at_cut {
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
        observer.result(OpResult::SessionClosed { session });
    }

    /// Deletes a znode that has no children and is not the root.
    fn delete_znode(&mut self, id: u32, path: &str, zxid: i64, observer: &mut impl Observer) {
        let (parent_path, name) = path::split(path).expect("not the root");
        let parent_place = Place::of(parent_path);
        let parent = self.nodes[id].parent;
        let at_cut = self.nodes[parent].is_absent();

        self.account_gone_from(id, parent_place.child(name.as_bytes()));
        self.unlink_owned(id);
        if at_cut {
            self.unlink_child(id);
        } else {
            self.before_change(parent, parent_place.path_digest);
            self.unlink_child(id);
            let parent_ext = self.nodes[parent].ext;
            let parent_ext = &mut self.exts[parent_ext];
            parent_ext.pzxid = parent_ext.pzxid.max(zxid);
            self.after_change(parent, parent_place.path_digest);
        }
        let node = self.drop_node(id);

        self.quota_deleted(path);
        let bytes = -(node.data_len() as i64);
        self.count_for_quota(path, Usage { count: -1, bytes }, observer);

        self.emit(observer, EventKind::Deleted, path, zxid, node.acl);
        if at_cut {
            self.remove_needless(parent);
        } else {
            self.emit(observer, EventKind::ChildrenChanged, parent_path, zxid, self.nodes[parent].acl);
        }
        self.acls.release(node.acl);
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

    fn intern_op_acl(&mut self, acl: OpAcl<'_>, update: &Update<'_>) -> Result<u32, CorruptUpdate> {
        match acl {
            None => Ok(acl::OPEN),
            Some(encoded) => {
                self.acls.intern(encoded).ok_or_else(|| update.corrupt("an ACL is not well formed"))
            }
        }
    }
}
