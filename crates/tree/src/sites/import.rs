//! Applying what another site has prepared.

use crate::digest;
use crate::encoding::CreateOp;
use crate::node::ZnodeKind;
use crate::observer::{Observer, OpResult};
use crate::partitions::PartitionOp;
use crate::reserved::program_of;
use crate::sites::ended::Absent;
use crate::sites::names::{NO_SITE, source_of_zxid};
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Op, Update};
use stoa_wire::{Stat, path};

impl Tree {
    /// Carries out an update of another site. They must come in the order in which that site has made them, behind all
    /// that they rest on: nothing here finds out. One that has come before is skipped.
    ///
    /// # Errors
    /// When the update is damaged or does not fit the state: the sites have parted, which cannot be as long as one
    /// site alone holds each token. The tree must not be used any more.
    pub fn import(&mut self, update: &Update<'_>, observer: &mut impl Observer) -> Result<(), CorruptUpdate> {
        self.import_by(update, |tree, op| tree.apply_op(update, op, observer))
    }

    /// Carries out the operations of an update of another site, each by `apply`, unless it has come before.
    pub(super) fn import_by(
        &mut self,
        update: &Update<'_>,
        mut apply: impl FnMut(&mut Self, Op<'_>) -> Result<(), CorruptUpdate>,
    ) -> Result<(), CorruptUpdate> {
        self.expect_of_other_site(update)?;
        if self.has_come(update) {
            return Ok(());
        }
        update.for_each_op(|op| {
            if op.is_of_one_site() {
                return Err(update.corrupt("it was for another site alone"));
            }
            apply(self, op)
        })?;
        self.renew_projections(update)?;
        self.end_absent(update)?;
        self.sites.seen.insert(source_of_zxid(update.zxid), update.zxid);
        self.zxids.last = self.zxids.last.max(update.zxid);
        Ok(())
    }

    /// What this update has changed may be projected here, though its token is elsewhere: whoever deletes a znode touches
    /// its parent, and needs no token of that. Nothing but the number of children and the pzxid is proposed of it then,
    /// and all else is as it is now. Otherwise its version, or the number of the next sequential child, would be given
    /// twice when its token comes here.
    fn renew_projections(&mut self, update: &Update<'_>) -> Result<(), CorruptUpdate> {
        if self.overlay.is_empty() {
            return Ok(());
        }
        update.for_each_op(|op| {
            let changed = match op {
                Op::SetData { path, .. } | Op::SetAcl { path, .. } => Some(path),
                Op::Create { create, .. } => path::split(create.path).map(|(parent, _)| parent),
                Op::Partition(PartitionOp::Adopt { path, .. } | PartitionOp::AdoptOf { path, .. }) => {
                    path::split(path).map(|(parent, _)| parent)
                }
                _ => None,
            };
            if let Some(path) = changed {
                let hash = self.hasher.path(path);
                if self.overlay.may_touch(hash)
                    && let Some(id) = self.lookup_hashed(path, hash)
                {
                    self.overlay.renew(path, hash, self.project_applied(id));
                }
            }
            Ok(())
        })
    }

    fn expect_of_other_site(&self, update: &Update<'_>) -> Result<(), CorruptUpdate> {
        let maker = self.sites.maker_of(update.zxid);
        if maker == NO_SITE || maker == self.sites.own {
            return Err(update.corrupt("it was not made at another site"));
        }
        Ok(())
    }

    /// Whether an update of another site was carried out here before: it may come by way of two sites, when one of them
    /// becomes the hub.
    #[must_use]
    pub fn has_come(&self, update: &Update<'_>) -> bool {
        let maker = self.sites.maker_of(update.zxid);
        let seen = self.sites.seen.get(&source_of_zxid(update.zxid));
        maker != self.sites.own && seen.is_some_and(|seen| update.zxid <= *seen)
    }

    /// The zxid of the last update applied that was prepared here, and not at another site; without sites that of the
    /// last one.
    #[must_use]
    pub fn last_prepared_zxid(&self) -> i64 {
        self.zxids.last_prepared
    }

    /// A session's client has come to the site that has made the update.
    pub(crate) fn come_home(&mut self, update: &Update<'_>) {
        if self.sites.are_there() {
            self.sessions.set_home(update.session, self.sites.maker_of(update.zxid));
        }
    }

    /// An ephemeral of a session that has ended already: there is none, but its parent is as if there had been one.
    /// Whether it is one.
    pub(crate) fn create_of_ended(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        parent_cversion: i32,
        observer: &mut impl Observer,
    ) -> Result<bool, CorruptUpdate> {
        let ZnodeKind::Ephemeral { session } = create.kind else { return Ok(false) };
        if !self.has_ended(session) {
            return Ok(false);
        }
        self.adopt_of_ended(update, create.path, parent_cversion, session)?;
        self.tell_absent(update, create, session, observer);
        Ok(true)
    }

    /// The parent's side of that.
    pub(crate) fn adopt_of_ended(
        &mut self,
        update: &Update<'_>,
        path: &str,
        parent_cversion: i32,
        session: i64,
    ) -> Result<(), CorruptUpdate> {
        let (parent_path, _) = path::split(path).ok_or_else(|| update.corrupt("it creates the root"))?;
        let parent = self.expect_at(parent_path, update)?;
        let path_digest = digest::of_path(parent_path);
        self.before_change(parent, path_digest);
        let ext = self.ensure_ext(parent);
        let ext = &mut self.exts[ext];
        ext.cversion = parent_cversion;
        ext.pzxid = ext.pzxid.max(update.zxid);
        self.after_change(parent, path_digest);
        self.note_absent(path, session, true);
        Ok(())
    }

    /// The znode's side, on another partition than the parent's. Whether it is one.
    pub(crate) fn create_at_of_ended(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        observer: &mut impl Observer,
    ) -> bool {
        let ZnodeKind::Ephemeral { session } = create.kind else { return false };
        if !self.has_ended(session) {
            return false;
        }
        self.note_absent(create.path, session, false);
        self.tell_absent(update, create, session, observer);
        true
    }

    fn note_absent(&mut self, path: &str, session: i64, has_parent: bool) {
        let ended = self.sites.ended.zxid(session);
        self.sites.absent.extend(ended.map(|ended| Absent { path: path.into(), ended, has_parent }));
    }

    fn tell_absent(
        &self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        session: i64,
        observer: &mut impl Observer,
    ) {
        let data_len = create.data.map_or(0, <[u8]>::len);
        let stat = stat_of_absent(update, data_len, session);
        observer.result(OpResult::Created { path: create.path, stat, with_stat: create.with_stat });
    }

    /// Whether a session's acknowledgement of a program has gone with its session before it goes with the program: that
    /// is deregistered where its own token is, and the session ends at its home, so each of them may come first. What is
    /// left is the same, since the program goes, too, with whatever its znode says of its children.
    pub(crate) fn is_gone_acknowledgement(&self, path: &str) -> bool {
        program_of(path).is_some() && self.lookup(path).is_none()
    }

    /// The end of its session has deleted what is left of such ephemerals.
    pub(crate) fn end_absent(&mut self, update: &Update<'_>) -> Result<(), CorruptUpdate> {
        while let Some(Absent { path, ended, has_parent }) = self.sites.absent.pop() {
            if !has_parent {
                // That lives on another partition, which does the same.
                continue;
            }
            let (parent_path, _) = path::split(&path).expect("it was created below something");
            let parent = self.expect_at(parent_path, update)?;
            let path_digest = digest::of_path(parent_path);
            self.before_change(parent, path_digest);
            let ext = self.ensure_ext(parent);
            self.exts[ext].pzxid = self.exts[ext].pzxid.max(ended);
            self.after_change(parent, path_digest);
        }
        Ok(())
    }

    /// What the same multi does to an ephemeral that is none. Whether it is one.
    pub(crate) fn is_of_absent(
        &mut self,
        update: &Update<'_>,
        op: &Op<'_>,
        observer: &mut impl Observer,
    ) -> bool {
        let absent = |path: &str| self.sites.absent.iter().position(|absent| absent.path == path);
        let stat = |len| stat_of_absent(update, len, update.session);
        match *op {
            Op::Delete { path } | Op::Partition(PartitionOp::DeleteAt { path }) => {
                let Some(at) = absent(path) else { return false };
                self.sites.absent.swap_remove(at);
                observer.result(OpResult::Deleted);
            }
            // The parent's side answers nothing.
            Op::Partition(PartitionOp::Disown { path }) => {
                let Some(at) = absent(path) else { return false };
                self.sites.absent.swap_remove(at);
            }
            Op::SetData { path, data, .. } if absent(path).is_some() => {
                observer.result(OpResult::DataSet { stat: stat(data.map_or(0, <[u8]>::len)) });
            }
            Op::Check { path } if absent(path).is_some() => {
                observer.result(OpResult::Checked { stat: stat(0) });
            }
            _ => return false,
        }
        true
    }
}

/// The Stat that an ephemeral would have. Whoever asked for it has no session to be told with.
pub(super) fn stat_of_absent(update: &Update<'_>, data_len: usize, session: i64) -> Stat {
    Stat {
        czxid: update.zxid,
        mzxid: update.zxid,
        ctime: update.time_ms,
        mtime: update.time_ms,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: session,
        data_length: data_len as i32,
        num_children: 0,
        pzxid: update.zxid,
    }
}
