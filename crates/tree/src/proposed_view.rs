//! Reading the state as it will be, for programs that run where requests are prepared. Whoever reads has noted the
//! contents of what is outstanding before ([`Tree::note_contents`]).

use crate::acl::AclView;
use crate::node::ZnodeKind;
use crate::proposed::{Presence, Projected};
use crate::reserved;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Op, Update};
use crate::{Caller, prepare};
use alloc::format;
use alloc::string::String;
use stoa_wire::{ErrorCode, path, perms};

/// A znode as it will be once everything proposed has been applied.
#[derive(Debug, Clone, Copy)]
pub struct ProposedZnode<'a> {
    /// Its data; null is kept apart from empty.
    pub data: Option<&'a [u8]>,
    /// How often its data was set.
    pub version: i32,
    /// The update that created it.
    pub czxid: i64,
    /// The update that set its data last.
    pub mzxid: i64,
    /// The session that it goes with; 0 if it stays.
    pub ephemeral_owner: i64,
    /// Number of children.
    pub num_children: i64,
}

impl Tree {
    /// Notes the contents of an update that was prepared here: the data that it sets, and what it creates. To read
    /// the state as it will be takes those of all updates that are outstanding, in their order, and of the part that
    /// is open ([`Tree::part_note_contents`]). To prepare takes none of it; so nothing is noted before somebody reads.
    ///
    /// An update that has been applied by now does no harm.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn note_contents(&mut self, update: &Update<'_>) -> Result<(), CorruptUpdate> {
        self.count_going();
        update.for_each_op(|op| {
            self.note_op(update.zxid, op, false);
            Ok(())
        })
    }

    pub(crate) fn note_op(&mut self, zxid: i64, op: Op<'_>, can_be_undone: bool) {
        let (path, data) = match op {
            Op::Create { create, .. } => (create.path, Some(create.data)),
            Op::SetData { path, data, .. } => (path, Some(data)),
            Op::Partition(op) => match op.created() {
                Some(created) => created,
                None => return,
            },
            _ => return,
        };
        let hash = self.hasher.path(path);
        if let Some(data) = data {
            self.overlay.note_data(zxid, (path, hash), data, can_be_undone);
        }
        if let Some((parent, _)) = path::split(path).filter(|_| !matches!(op, Op::SetData { .. })) {
            let parent_hash = self.hasher.path(parent);
            self.overlay.link_child((parent, parent_hash), (path, hash));
        }
    }

    /// Whether there will be a znode at a path, here or on another partition.
    ///
    /// # Errors
    /// `SessionExpired` and `BadArguments`, as of a write.
    pub fn proposed_exists(&self, path: &str, caller: &Caller<'_>) -> Result<bool, ErrorCode> {
        self.check_session(caller)?;
        prepare::check_path(path)?;
        Ok(self.is_taken(path, self.hasher.path(path)))
    }

    /// The znode at a path as it will be, for who may READ it.
    ///
    /// # Errors
    /// `NoNode` and `NoAuth` as of a getData, `SessionExpired` and `BadArguments` as of a write, and
    /// `Unimplemented` for a znode on another partition.
    pub fn proposed_znode(&self, path: &str, caller: &Caller<'_>) -> Result<ProposedZnode<'_>, ErrorCode> {
        let (hash, state) = self.readable(path, caller)?;
        Ok(self.view(path, hash, &state))
    }

    /// The children of a znode as they will be, with their names and in no particular order, until `each`
    /// says that it is enough; for who may READ the znode and each of them.
    ///
    /// # Errors
    /// As of [`Tree::proposed_znode`], for the znode and each child.
    pub fn proposed_children(
        &self,
        path: &str,
        caller: &Caller<'_>,
        each: &mut dyn FnMut(&str, ProposedZnode<'_>) -> bool,
    ) -> Result<(), ErrorCode> {
        let (hash, _) = self.readable(path, caller)?;
        let parent = if path == reserved::ROOT { "" } else { path };
        let mut child_path = String::from(parent);
        child_path.push('/');
        let prefix_len = child_path.len();
        for (name, child_hash, state) in self.children_to_be(path, hash) {
            let Some(state) = state else {
                return Err(ErrorCode::Unimplemented);
            };
            self.check_acl(&state, perms::READ, caller)?;
            child_path.truncate(prefix_len);
            child_path.push_str(name);
            if !each(name, self.view(&child_path, child_hash, &state)) {
                break;
            }
        }
        Ok(())
    }

    /// The child of a znode that was created first, as it will be, of those of one update the first by name; for who
    /// may READ the znode and this child. `each` is asked for each child that is looked at whether to go on; if not,
    /// there is none.
    ///
    /// # Errors
    /// As of [`Tree::proposed_znode`], for the znode and the child; `Unimplemented` if any child is on another
    /// partition.
    pub fn proposed_oldest<'t>(
        &'t self,
        path: &'t str,
        caller: &Caller<'_>,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(&'t str, ProposedZnode<'t>)>, ErrorCode> {
        let (hash, _) = self.readable(path, caller)?;
        let mut oldest: Option<(&str, u32, Projected)> = None;
        for (name, child_hash, state) in self.children_to_be(path, hash) {
            if !each() {
                return Ok(None);
            }
            let state = state.ok_or(ErrorCode::Unimplemented)?;
            if oldest.as_ref().is_none_or(|(first, _, it)| (state.czxid, name) < (it.czxid, first)) {
                oldest = Some((name, child_hash, state));
            }
        }
        let Some((name, child_hash, state)) = oldest else { return Ok(None) };
        self.check_acl(&state, perms::READ, caller)?;
        let parent = if path == reserved::ROOT { "" } else { path };
        Ok(Some((name, self.view(&format!("{parent}/{name}"), child_hash, &state))))
    }

    /// The ACL that a znode will have, if it will be here.
    #[must_use]
    pub fn proposed_acl(&self, path: &str) -> Option<AclView<'_>> {
        self.project(path, self.hasher.path(path)).map(|state| self.acls.view(state.acl))
    }

    fn readable(&self, path: &str, caller: &Caller<'_>) -> Result<(u32, Projected), ErrorCode> {
        self.check_session(caller)?;
        prepare::check_path(path)?;
        let hash = self.hasher.path(path);
        match self.presence(path, hash) {
            Presence::Away => return Err(ErrorCode::Unimplemented),
            Presence::Gone => return Err(ErrorCode::NoNode),
            Presence::Here => {}
        }
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&state, perms::READ, caller)?;
        Ok((hash, state))
    }

    fn view(&self, path: &str, hash: u32, state: &Projected) -> ProposedZnode<'_> {
        let data = match self.overlay.data(path, hash, self.zxids.last_prepared) {
            Some(data) => data,
            None => self.lookup_hashed(path, hash).and_then(|id| self.nodes[id].data()),
        };
        ProposedZnode {
            data,
            version: state.version,
            czxid: state.czxid,
            mzxid: state.mzxid,
            ephemeral_owner: match state.kind {
                ZnodeKind::Ephemeral { session } => session,
                _ => 0,
            },
            num_children: self.child_count_to_be(path, hash),
        }
    }

    /// Name and hash of each child that will be there, and how it will be, unless it is away.
    fn children_to_be<'t>(
        &'t self,
        path: &'t str,
        hash: u32,
    ) -> impl Iterator<Item = (&'t str, u32, Option<Projected>)> {
        let parent = if path == reserved::ROOT { "" } else { path };
        let stays =
            |state: &Projected| state.presence != Presence::Gone && !self.overlay.is_closing(state.kind);
        let here = |state: Projected| (state.presence == Presence::Here).then_some(state);
        let applied = self.lookup_hashed(path, hash).into_iter().flat_map(|id| self.child_ids(id));
        let applied = applied.filter_map(move |id| {
            let node = &self.nodes[id];
            let state = match self.overlay.get_child(parent, node.name(), node.hash) {
                Some(state) => state,
                None if node.is_absent() => node.project_absent()?,
                None => self.project_applied(id),
            };
            stays(&state).then(|| (node.name(), node.hash, here(state)))
        });
        let created = self.overlay.created_below(path, hash).filter_map(move |(path, hash, state)| {
            let (_, name) = path::split(path)?;
            // What is in the applied state has been looked at.
            (stays(&state) && self.find_hashed(path, hash).is_none()).then(|| (name, hash, here(state)))
        });
        applied.chain(created)
    }
}
