//! A partition's share of what another site has prepared.
//!
//! Sites are divided over partitions in different ways, so what goes between them is of the tree as a whole. A site that is
//! divided itself gives each partition the updates that concern it, and that carries out of them what is its own. Where a
//! znode and its parent live on two partitions each has its side of a create or delete, as at any cut
//! ([`crate::partitions`]).
//!
//! The first partition has the sessions, so that it is told of each ephemeral that another one has. When one that lives
//! right below the root goes with its session, which is an update of another site, nobody says so to the parent: it knows
//! itself whose that was ([`crate::sites::divided`]).

use crate::encoding::CreateOp;
use crate::node::ZnodeKind;
use crate::observer::{Observer, OpResult};
use crate::reserved::ROOT;
use crate::sites::divided::Places;
use crate::sites::import::stat_of_absent;
use crate::sites::late::Changed;
use crate::sites::names::SiteId;
use crate::sites::ops::SiteOp;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Op, Update};
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::path;

impl Update<'_> {
    /// The partitions of a site that an update of another one concerns: a bit for each.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn concerns(&self, places: &Places<'_>) -> Result<u64, CorruptUpdate> {
        let mut all = 0;
        self.for_each_op(|op| {
            all |= match op {
                Op::Create { create, .. } => match create.kind {
                    // The first partition notes where sessions have something.
                    ZnodeKind::Ephemeral { .. } => places.of_both_sides(create.path) | 1,
                    _ => places.of_both_sides(create.path),
                },
                // Who holds what was there is known everywhere, where something below it was moved.
                Op::Delete { path } => places.of_both_sides(path) | places.of_mark(path),
                Op::SetData { path, .. } | Op::SetAcl { path, .. } | Op::Check { path } => places.of(path),
                Op::Site(SiteOp::Token { path, .. }) => places.of_mark(path),
                Op::Site(SiteOp::GiveRead { path, .. } | SiteOp::ReturnRead { path, .. }) => places.of(path),
                Op::CreateSession { .. } => 1,
                Op::OpenSession { .. } | Op::CloseSession | Op::Site(_) => places.everywhere(),
                Op::Partition(_) => 0,
            };
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls `each` with each session that has an ephemeral created by it, and with the partitions that have it.
    pub fn for_each_owner(&self, places: &Places<'_>, mut each: impl FnMut(i64, u64)) {
        let read = self.for_each_op(|op| {
            if let Op::Create { create, .. } = op
                && let ZnodeKind::Ephemeral { session } = create.kind
            {
                each(session, places.of(create.path));
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was read before");
    }

    /// Where its session is at home behind it, if it says so.
    #[must_use]
    pub fn home_behind(&self, maker: SiteId) -> Option<SiteId> {
        let mut home = None;
        let read = self.for_each_op(|op| {
            match op {
                Op::Site(SiteOp::Home { site, .. }) => home = Some(site),
                Op::CreateSession { .. } | Op::OpenSession { .. } => home = Some(maker),
                _ => {}
            }
            Ok(())
        });
        home.filter(|_| read.is_ok())
    }
}

impl Tree {
    /// Carries out this partition's share of an update of another site: see [`Tree::import`]. Sessions that get ephemerals
    /// here are known ([`Tree::know_owner`]).
    ///
    /// # Errors
    /// As [`Tree::import`].
    pub fn import_share(
        &mut self,
        update: &Update<'_>,
        places: &Places<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        self.import_by(update, |tree, op| tree.apply_share(update, op, places, observer))
    }

    /// At a partition that has no sessions: one of them, with this home, is about to own something here.
    pub fn know_owner(&mut self, session: i64, home: SiteId) {
        if !self.sessions.contains(session) && self.sites.ended.zxid(session).is_none() {
            self.sessions.make_remote(session, home);
        }
    }

    fn apply_share(
        &mut self,
        update: &Update<'_>,
        op: Op<'_>,
        places: &Places<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        if !self.sites.absent.is_empty() && self.is_of_absent(update, &op, observer) {
            return Ok(());
        }
        let is_first = places.own == 0;
        match op {
            Op::Create { create, parent_cversion } => {
                self.share_create(update, &create, parent_cversion, places, observer)
            }
            Op::Delete { path } => self.share_delete(update, path, places, observer),
            Op::SetData { path, .. } | Op::SetAcl { path, .. } | Op::Check { path } if !places.has(path) => {
                Ok(())
            }
            Op::Site(SiteOp::GiveRead { path, .. } | SiteOp::ReturnRead { path, .. })
                if !places.has(path) =>
            {
                Ok(())
            }
            Op::Site(SiteOp::Token { path, .. }) if places.of_mark(path) & 1 << places.own == 0 => Ok(()),
            Op::CreateSession { .. } if !is_first => Ok(()),
            Op::OpenSession { .. } if !is_first => {
                // It owns something here, or is not known.
                self.come_home(update);
                Ok(())
            }
            op => self.apply_op(update, op, observer),
        }
    }

    /// A session ends: what it has on other partitions of this site, below something here, goes with it.
    pub(crate) fn disown_owned(
        &mut self,
        update: &Update<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let owned: Vec<String> = self.sites.divided.owned_away.of(update.session).cloned().collect();
        for path in owned {
            self.apply_disown(update, &path, observer)?;
            self.note_children_late(&path, update.zxid);
        }
        Ok(())
    }

    /// The children of what is above a path were changed.
    fn note_children_late(&mut self, path: &str, zxid: i64) {
        let parent = path::split(path).and_then(|(parent, _)| self.lookup(parent));
        parent.into_iter().for_each(|parent| self.note_late(parent, Changed::Children, zxid));
    }

    fn share_create(
        &mut self,
        update: &Update<'_>,
        create: &CreateOp<'_>,
        parent_cversion: i32,
        places: &Places<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let path = create.path;
        let (parent_path, _) = path::split(path).ok_or_else(|| update.corrupt("it creates the root"))?;
        let owner = match create.kind {
            ZnodeKind::Ephemeral { session } => Some(session),
            _ => None,
        };
        let ended = owner.and_then(|session| self.sites.ended.zxid(session));
        if let Some(session) = owner.filter(|_| places.own == 0 && ended.is_none()) {
            let elsewhere = places.of(path) & !1;
            for partition in (1..places.partitions).filter(|partition| elsewhere & 1 << partition != 0) {
                let noted = self.sessions.visit(session, partition);
                noted.ok_or_else(|| update.corrupt("it creates an ephemeral of no session"))?;
            }
        }
        match (places.has(path), places.has(parent_path) || self.lookup(parent_path).is_some()) {
            (true, true) => self.apply_op(update, Op::Create { create: *create, parent_cversion }, observer),
            (true, false) if self.create_at_of_ended(update, create, observer) => Ok(()),
            (true, false) => self.apply_create_at(update, create, observer),
            (false, true) if ended.is_some() => {
                self.create_of_ended(update, create, parent_cversion, &mut ()).map(|_| ())
            }
            (false, true) => {
                self.apply_adopt(update, path, parent_cversion, observer)?;
                if let Some(session) = owner {
                    self.sites.divided.owned_away.add(path, session);
                }
                self.note_children_late(path, update.zxid);
                // Who has asked may have done so here.
                let stat = stat_of_absent(update, create.data.map_or(0, <[u8]>::len), owner.unwrap_or(0));
                observer.result(OpResult::Created { path, stat, with_stat: create.with_stat });
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }

    fn share_delete(
        &mut self,
        update: &Update<'_>,
        path: &str,
        places: &Places<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let parent = path::split(path).map_or(ROOT, |(parent, _)| parent);
        self.sites.divided.marks.remove(path);
        match (places.has(path), places.has(parent) || self.lookup(parent).is_some()) {
            (true, false) if !self.is_gone_acknowledgement(path) => {
                self.apply_delete_at(update, path, observer)
            }
            (true, _) => self.apply_op(update, Op::Delete { path }, observer),
            (false, true) => {
                self.apply_disown(update, path, observer)?;
                self.note_children_late(path, update.zxid);
                observer.result(OpResult::Deleted);
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }
}
