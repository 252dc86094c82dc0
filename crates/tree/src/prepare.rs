//! From a request to an update.
//!
//! Checks come in ZooKeeper's order, because the first that fails decides the error. Nothing is
//! noted in the overlay before all checks of an operation have passed; only a multi must take
//! back what its earlier operations noted.

use crate::acl;
use crate::encoding::CreateOp;
use crate::node::{TTL_MS_MAX, ZnodeKind};
use crate::proposed::{Presence, Projected, Savepoint};
use crate::quota::Usage;
use crate::reserved;
use crate::session::{Contact, OpenSession, is_same_password};
use crate::tree::{Found, Tree};
use crate::update::{self, Op};
use crate::{Caller, Refusal, Stamp};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use stoa_wire::{AclList, Create, CreateMode, ErrorCode, MultiOps, PASSWORD_LEN, Request, path, perms};

/// Which create it is, where the flags do not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateVariant {
    Plain,
    Container,
    Ttl,
}

impl CreateVariant {
    /// What a create asks for, which one it is, and whether the client is told the Stat; `None` for
    /// any other request.
    pub(crate) fn of<'a>(request: &Request<'a>) -> Option<(Create<'a>, Self, bool)> {
        match *request {
            Request::Create(create) => Some((create, Self::Plain, false)),
            Request::Create2(create) => Some((create, Self::Plain, true)),
            Request::CreateContainer(create) => Some((create, Self::Container, true)),
            Request::CreateTtl(create) => Some((create, Self::Ttl, true)),
            _ => None,
        }
    }
}

/// An ACL, encoded as a vector; `None` is the open one.
type ResolvedAcl = Option<Vec<u8>>;

/// A create that its parent does not refuse.
pub(crate) struct Permitted<'a> {
    /// With the number, if it is sequential.
    pub(crate) path: Cow<'a, str>,
    pub(crate) hash: u32,
    pub(crate) kind: ZnodeKind,
    pub(crate) acl: ResolvedAcl,
    pub(crate) parent_path: &'a str,
    pub(crate) parent_hash: u32,
    /// The parent as it will be after the create.
    pub(crate) parent: Projected,
}

impl Tree {
    /// Turns a write into one update, appended to `batch`, or says why it is refused. The update
    /// must be applied on every server, in order of the stamps; until it is, requests are prepared
    /// as if it had been.
    ///
    /// Writes are the creates, delete, deleteContainer, setData, setACL, check, multi and
    /// closeSession. For a session that is not there (or is closing) the answer is
    /// `SessionExpired`. A deleteContainer is the server's own business, a client that sends one
    /// gets `NoAuth`; it is refused with `BadVersion` when the znode is not due (any more).
    ///
    /// # Errors
    /// The error to answer; nothing was appended then.
    pub fn prepare(
        &mut self,
        request: &Request<'_>,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.prepare_found(request, None, caller, stamp, batch)
    }

    /// The same for who may know where the znode is.
    ///
    /// # Errors
    /// The error to answer; nothing was appended then.
    pub fn prepare_found(
        &mut self,
        request: &Request<'_>,
        found: Option<&Found<'_>>,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, caller.session);
        let prepared = match request {
            Request::Multi(ops) => self.prepare_multi(ops, caller, stamp, batch),
            Request::CloseSession => {
                self.propose_close(caller.session, stamp, batch);
                Ok(())
            }
            Request::SetData { path, data, version } => {
                let set = self.prepare_set_data((path, found), *data, *version, caller, stamp, batch);
                set.map_err(Refusal::Error)
            }
            _ => self.prepare_op(request, caller, stamp, batch).map_err(Refusal::Error),
        };
        match prepared {
            Ok(()) => update::end(batch, start),
            Err(_) => batch.truncate(start),
        }
        prepared
    }

    /// Makes an update that creates a session, appended to `batch`.
    ///
    /// # Errors
    /// `BadArguments` when there is a session with this id; nothing was appended then.
    pub fn prepare_create_session(
        &mut self,
        session: i64,
        timeout_ms: i32,
        password: [u8; PASSWORD_LEN],
        contact: Contact,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        if self.proposed_session(session).is_some() {
            return Err(ErrorCode::BadArguments);
        }
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
        Op::CreateSession { timeout_ms, password, contact }.encode(batch);
        update::end(batch, start);
        let open = OpenSession { password, contact, visited: 0 };
        self.overlay.touch_session(stamp.zxid, session, Some(open));
        Ok(())
    }

    /// Makes an update that takes a session to another connection, appended to `batch`.
    ///
    /// # Errors
    /// `SessionExpired` when there is no such session (any more) or the password is another one;
    /// nothing was appended then.
    pub fn prepare_open_session(
        &mut self,
        session: i64,
        timeout_ms: i32,
        password: &[u8],
        contact: Contact,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let known = self.proposed_session(session);
        let known = known.filter(|known| is_same_password(&known.password, password));
        // Its home alone judges it, and may be ending it at this moment.
        let is_at_home = self.own_site().is_none_or(|own| self.home_to_be(session) == own);
        let known = known.filter(|_| is_at_home).ok_or(ErrorCode::SessionExpired)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
        Op::OpenSession { timeout_ms, contact }.encode(batch);
        update::end(batch, start);
        self.overlay.touch_session(stamp.zxid, session, Some(OpenSession { contact, ..known }));
        Ok(())
    }

    /// Makes an update that closes a session and deletes its ephemerals, appended to `batch`. A
    /// session that is not there may be closed, to no effect.
    pub fn prepare_close_session(&mut self, session: i64, stamp: Stamp, batch: &mut Vec<u8>) {
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
        self.propose_close(session, stamp, batch);
        update::end(batch, start);
    }

    /// Makes an update that writes the ensemble's configuration into `/zookeeper/config`, appended
    /// to `batch`. The caller needs the permission WRITE on that znode.
    ///
    /// # Errors
    /// The error to answer; nothing was appended then.
    pub fn prepare_config(
        &mut self,
        config: &[u8],
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        // ZooKeeper gives this znode the version -1 whenever its content changes.
        const CONFIG_VERSION: i32 = -1;
        self.check_session(caller)?;
        let path = reserved::CONFIG_PATH;
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&state, perms::WRITE, caller)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, caller.session);
        Op::SetData { path, data: Some(config), version: CONFIG_VERSION }.encode(batch);
        update::end(batch, start);
        let state = Projected { version: CONFIG_VERSION, data_len: config.len(), ..state }.set_at(stamp);
        self.overlay.touch(stamp.zxid, path, hash, state, 0, None);
        Ok(())
    }

    /// Forgets what has been proposed and not applied: the log refused it, and none of it will
    /// ever be applied by way of this server's proposals.
    pub fn abandon_proposed(&mut self) {
        let acls = &mut self.acls;
        self.overlay.abandon(|acl| acls.release(acl));
    }

    /// Whether something has been proposed and neither applied nor abandoned.
    #[must_use]
    pub fn has_proposed(&self) -> bool {
        !self.overlay.is_empty()
    }

    pub(crate) fn propose_close(&mut self, session: i64, stamp: Stamp, batch: &mut Vec<u8>) {
        Op::CloseSession.encode(batch);
        self.overlay.touch_session(stamp.zxid, session, None);
    }

    fn prepare_multi(
        &mut self,
        ops: &MultiOps<'_>,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        if ops.iter().any(|op| multi_op(op).is_none()) {
            return Err(Refusal::Error(ErrorCode::MarshallingError));
        }
        update::begin_multi(batch, ops.len());
        let savepoint = self.overlay.savepoint();
        for (index, op) in ops.iter().filter_map(multi_op).enumerate() {
            let prepared = match writes_programs(&op) {
                true => Err(ErrorCode::Unimplemented),
                false => self.prepare_op(&op, caller, stamp, batch),
            };
            if let Err(code) = prepared {
                self.undo_to(savepoint);
                return Err(Refusal::Multi { count: ops.len(), failed: index, code });
            }
        }
        self.overlay.keep(savepoint);
        Ok(())
    }

    pub(crate) fn undo_to(&mut self, savepoint: Savepoint) {
        let acls = &mut self.acls;
        self.overlay.undo(savepoint, |acl| acls.release(acl));
    }

    pub(crate) fn prepare_op(
        &mut self,
        request: &Request<'_>,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        if let Some((create, variant, with_stat)) = CreateVariant::of(request) {
            return self.prepare_create(&create, variant, with_stat, caller, stamp, batch);
        }
        match *request {
            Request::Delete { path, version } => self.prepare_delete(path, version, caller, stamp, batch),
            Request::DeleteContainer { path } => self.prepare_reap(path, caller, stamp, batch),
            Request::SetData { path, data, version } => {
                self.prepare_set_data((path, None), data, version, caller, stamp, batch)
            }
            Request::SetAcl { path, acl, version } => {
                self.prepare_set_acl(path, acl, version, caller, stamp, batch)
            }
            Request::Check { path, version } => self.prepare_check(path, version, caller, batch),
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    fn prepare_create(
        &mut self,
        create: &Create<'_>,
        variant: CreateVariant,
        with_stat: bool,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let permitted = self.permit_create(create, variant, caller, stamp)?;
        let Permitted { path, hash, kind, acl, parent_path, parent_hash, parent } = permitted;
        let path = &*path;
        self.check_owner(kind)?;
        let data_len = create.data.map_or(0, <[u8]>::len);
        self.reserve_quota(path, Usage { count: 1, bytes: data_len as i64 }, stamp.zxid)?;

        let (data, acl) = (create.data, acl.as_deref());
        let create = CreateOp { path, data, acl, kind, with_stat };
        Op::Create { create, parent_cversion: parent.cversion }.encode(batch);
        self.overlay.touch(stamp.zxid, parent_path, parent_hash, parent, 1, None);
        self.propose_znode((path, hash), kind, acl, data_len, stamp);
        Ok(())
    }

    /// Checks everything about a create that concerns the parent, and what would be found wrong before.
    pub(crate) fn permit_create<'a>(
        &self,
        create: &Create<'a>,
        variant: CreateVariant,
        caller: &Caller<'_>,
        stamp: Stamp,
    ) -> Result<Permitted<'a>, ErrorCode> {
        let (mode, kind) = self.create_kind(create, variant, caller)?;
        let parent_path = parent_of(create.path)?;
        let acl = self.resolve_acl(create.acl, caller)?;
        let parent_hash = self.hasher.path(parent_path);
        let parent = self.project(parent_path, parent_hash).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&parent, perms::CREATE, caller)?;
        let path =
            if mode.is_sequential() { numbered(create.path, &parent) } else { Cow::Borrowed(create.path) };
        check_path(&path)?;
        let Some((_, name)) = path::split(&path) else {
            return Err(ErrorCode::NodeExists);
        };
        let hash = self.hasher.child(parent_hash, name.as_bytes());
        if self.is_taken(&path, hash) {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent.kind, ZnodeKind::Ephemeral { .. }) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let cversion = parent.cversion.wrapping_add(1);
        let parent = Projected { cversion, pzxid: stamp.zxid, ..parent };
        Ok(Permitted { path, hash, kind, acl, parent_path, parent_hash, parent })
    }

    /// The path that a create will have: with the number, if it is sequential and the parent will be here.
    /// So who knows the cuts can tell whether it is at one.
    #[must_use]
    pub fn path_to_create<'a>(&self, create: &Create<'a>) -> Cow<'a, str> {
        let is_sequential = CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_sequential);
        let parent = parent_of(create.path).ok().filter(|_| is_sequential);
        match parent.and_then(|parent| self.project(parent, self.hasher.path(parent))) {
            Some(parent) => numbered(create.path, &parent),
            None => Cow::Borrowed(create.path),
        }
    }

    /// Notes a new znode.
    pub(crate) fn propose_znode(
        &mut self,
        (path, hash): (&str, u32),
        kind: ZnodeKind,
        acl: Option<&[u8]>,
        data_len: usize,
        stamp: Stamp,
    ) {
        if self.is_going(path, hash) {
            // After this nobody could tell.
            self.count_going();
        }
        let acl = self.intern_resolved(acl);
        let state = Projected {
            presence: Presence::Here,
            kind,
            version: 0,
            cversion: 0,
            aversion: 0,
            acl,
            data_len,
            mtime: stamp.time_ms,
            ctime: stamp.time_ms,
            czxid: stamp.zxid,
            mzxid: stamp.zxid,
            pzxid: stamp.zxid,
        };
        self.overlay.touch(stamp.zxid, path, hash, state, 0, Some(acl));
    }

    /// What to create. For the opcodes of containers and TTL znodes, the opcode decides and not
    /// the flags.
    pub(crate) fn create_kind(
        &self,
        create: &Create<'_>,
        variant: CreateVariant,
        caller: &Caller<'_>,
    ) -> Result<(CreateMode, ZnodeKind), ErrorCode> {
        let mode = CreateMode::from_i32(create.flags).ok_or(ErrorCode::BadArguments)?;
        if mode.is_ttl() && !self.options.extended_types {
            return Err(ErrorCode::Unimplemented);
        }
        let ttl_fits = (1..=TTL_MS_MAX).contains(&create.ttl_ms);
        if mode.is_ttl() != (variant == CreateVariant::Ttl) || (mode.is_ttl() && !ttl_fits) {
            return Err(ErrorCode::BadArguments);
        }
        self.check_session(caller)?;
        let kind = match variant {
            CreateVariant::Container => ZnodeKind::Container,
            CreateVariant::Ttl => ZnodeKind::Ttl { ttl_ms: create.ttl_ms },
            CreateVariant::Plain if !mode.is_ephemeral() => ZnodeKind::Persistent,
            CreateVariant::Plain if matches!(caller.session, 0 | Caller::REACTION) => {
                return Err(ErrorCode::SessionExpired);
            }
            CreateVariant::Plain => ZnodeKind::Ephemeral { session: caller.session },
        };
        Ok((mode, kind))
    }

    fn prepare_delete(
        &mut self,
        path: &str,
        version: i32,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let (parent_path, parent_hash, parent) = self.permit_delete(path, caller)?;
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        check_version(state.version, version)?;
        if self.will_have_children(path, hash) {
            return Err(ErrorCode::NotEmpty);
        }
        self.propose_delete((path, hash, state), (parent_path, parent_hash, parent), stamp, batch);
        Ok(())
    }

    /// Checks everything about a delete that concerns the parent, which is returned.
    pub(crate) fn permit_delete<'a>(
        &self,
        path: &'a str,
        caller: &Caller<'_>,
    ) -> Result<(&'a str, u32, Projected), ErrorCode> {
        self.check_session(caller)?;
        let parent_path = deletable_parent_of(path)?;
        let parent_hash = self.hasher.path(parent_path);
        let parent = self.project(parent_path, parent_hash).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&parent, perms::DELETE, caller)?;
        Ok((parent_path, parent_hash, parent))
    }

    fn prepare_reap(
        &mut self,
        path: &str,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let (parent_path, hash, state) = self.permit_reap(path, caller, stamp)?;
        let parent_hash = self.hasher.path(parent_path);
        let parent = self.project(parent_path, parent_hash).ok_or(ErrorCode::NoNode)?;
        self.propose_delete((path, hash, state), (parent_path, parent_hash, parent), stamp, batch);
        Ok(())
    }

    /// Checks whether a container or TTL znode is due. Returns its parent's path, its own hash and how
    /// it will be.
    pub(crate) fn permit_reap<'a>(
        &mut self,
        path: &'a str,
        caller: &Caller<'_>,
        stamp: Stamp,
    ) -> Result<(&'a str, u32, Projected), ErrorCode> {
        if caller.session != 0 {
            return Err(ErrorCode::NoAuth);
        }
        let parent_path = deletable_parent_of(path)?;
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        if self.will_have_children(path, hash) {
            return Err(ErrorCode::NotEmpty);
        }
        let is_due = match state.kind {
            ZnodeKind::Container => true,
            ZnodeKind::Ttl { ttl_ms } => stamp.time_ms.saturating_sub(state.mtime) > ttl_ms,
            ZnodeKind::Persistent | ZnodeKind::Ephemeral { .. } => false,
        };
        if !is_due {
            return Err(ErrorCode::BadVersion);
        }
        Ok((parent_path, hash, state))
    }

    fn propose_delete(
        &mut self,
        znode: (&str, u32, Projected),
        parent: (&str, u32, Projected),
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) {
        Op::Delete { path: znode.0 }.encode(batch);
        self.propose_child_gone(parent, stamp);
        self.propose_gone(znode, stamp);
    }

    /// Notes that a znode loses a child.
    pub(crate) fn propose_child_gone(&mut self, (path, hash, state): (&str, u32, Projected), stamp: Stamp) {
        let state = Projected { pzxid: state.pzxid.max(stamp.zxid), ..state };
        self.overlay.touch(stamp.zxid, path, hash, state, -1, None);
    }

    /// Notes that a znode that is here will be no more, and that a quota gets back what it takes.
    pub(crate) fn propose_gone(&mut self, (path, hash, state): (&str, u32, Projected), stamp: Stamp) {
        self.release_quota(path, Usage { count: -1, bytes: -(state.data_len as i64) }, stamp.zxid);
        let state = Projected { presence: Presence::Gone, ..state };
        self.overlay.touch(stamp.zxid, path, hash, state, 0, None);
        self.mark_will_be_gone(path, stamp.zxid);
    }

    fn prepare_set_data(
        &mut self,
        (path, found): (&str, Option<&Found<'_>>),
        data: Option<&[u8]>,
        version: i32,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        self.check_session(caller)?;
        let (hash, id) = match found.and_then(|found| self.is_there_still(found, path)) {
            Some((hash, id)) => (hash, Some(id)),
            None => (self.hasher.path(path), None),
        };
        let state = self.project_found(path, hash, id).ok_or_else(|| why_nothing_is_at(path))?;
        self.check_acl(&state, perms::WRITE, caller)?;
        let data_len = data.map_or(0, <[u8]>::len);
        let change = Usage { count: 0, bytes: data_len as i64 - state.data_len as i64 };
        let quota = self.quota_allowing(path, change)?;
        check_version(state.version, version)?;
        if let Some(prefix) = quota {
            self.overlay.touch_quota(stamp.zxid, prefix, change);
        }

        let version = state.version.wrapping_add(1);
        Op::SetData { path, data, version }.encode(batch);
        let state = Projected { version, data_len, ..state }.set_at(stamp);
        self.overlay.touch(stamp.zxid, path, hash, state, 0, None);
        Ok(())
    }

    fn prepare_set_acl(
        &mut self,
        path: &str,
        acl: AclList<'_>,
        version: i32,
        caller: &Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        self.check_session(caller)?;
        check_path(path)?;
        let acl = self.resolve_acl(acl, caller)?;
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&state, perms::ADMIN, caller)?;
        check_version(state.aversion, version)?;

        let aversion = state.aversion.wrapping_add(1);
        Op::SetAcl { path, acl: acl.as_deref(), aversion }.encode(batch);
        let acl = self.intern_resolved(acl.as_deref());
        let state = Projected { aversion, acl, ..state };
        self.overlay.touch(stamp.zxid, path, hash, state, 0, Some(acl));
        Ok(())
    }

    fn prepare_check(
        &mut self,
        path: &str,
        version: i32,
        caller: &Caller<'_>,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        self.check_session(caller)?;
        check_path(path)?;
        let state = self.project(path, self.hasher.path(path)).ok_or(ErrorCode::NoNode)?;
        self.check_acl(&state, perms::READ, caller)?;
        check_version(state.version, version)?;
        Op::Check { path }.encode(batch);
        Ok(())
    }

    // Checks.

    pub(crate) fn check_session(&self, caller: &Caller<'_>) -> Result<(), ErrorCode> {
        let is_none = matches!(caller.session, 0 | Caller::REACTION);
        if is_none || self.session_is_live(caller.session) || self.may_live(caller.session) {
            Ok(())
        } else {
            Err(ErrorCode::SessionExpired)
        }
    }

    pub(crate) fn check_acl(
        &self,
        state: &Projected,
        perms: i32,
        caller: &Caller<'_>,
    ) -> Result<(), ErrorCode> {
        if self.acls.view(state.acl).permits(perms, caller) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    pub(crate) fn resolve_acl(
        &self,
        requested: AclList<'_>,
        caller: &Caller<'_>,
    ) -> Result<ResolvedAcl, ErrorCode> {
        if requested.bytes() == acl::entries_of(self.acls.encoded(acl::OPEN)) {
            return Ok(None);
        }
        let mut encoded = Vec::new();
        acl::resolve(requested, caller, &self.options, &mut encoded)?;
        Ok(Some(encoded).filter(|encoded| **encoded != *self.acls.encoded(acl::OPEN)))
    }

    fn intern_resolved(&mut self, acl: Option<&[u8]>) -> u32 {
        acl.map_or(acl::OPEN, |encoded| self.acls.intern(encoded).expect("it was resolved to an ACL"))
    }
}

/// What ZooKeeper takes an operation of a multi for; `None` where it refuses the whole multi, with
/// `MarshallingError`. Unlike outside of a multi, the flags say which create it is, and a TTL needs its
/// own opcode.
#[must_use]
pub fn multi_op(op: Request<'_>) -> Option<Request<'_>> {
    match op {
        // A multiRead in the guise of a multi.
        Request::GetData { .. } | Request::GetChildren { .. } => None,
        Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
            match CreateMode::from_i32(create.flags)? {
                CreateMode::Container => Some(Request::CreateContainer(create)),
                CreateMode::PersistentTtl | CreateMode::PersistentSequentialTtl => None,
                _ => Some(op),
            }
        }
        // Flags that do not exist are an error of this operation alone.
        Request::CreateTtl(create) => Some(match CreateMode::from_i32(create.flags) {
            Some(CreateMode::PersistentTtl | CreateMode::PersistentSequentialTtl) => op,
            Some(CreateMode::Container) => Request::CreateContainer(create),
            _ => Request::Create(create),
        }),
        _ => Some(op),
    }
}

/// Whether it changes something where programs are registered, each by an operation of its own, which is more
/// than it seems to be.
#[must_use]
pub fn writes_programs(op: &Request<'_>) -> bool {
    match *op {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => reserved::is_of_programs(create.path),
        Request::Delete { path, .. } | Request::SetData { path, .. } => reserved::is_of_programs(path),
        _ => false,
    }
}

pub(crate) fn check_version(current: i32, expected: i32) -> Result<(), ErrorCode> {
    if expected == -1 || expected == current { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

pub(crate) fn check_path(path: &str) -> Result<(), ErrorCode> {
    if path::is_valid(path) { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

/// Where nothing is. What something is at is a path, and need not be looked at.
#[cold]
fn why_nothing_is_at(path: &str) -> ErrorCode {
    check_path(path).err().unwrap_or(ErrorCode::NoNode)
}

/// The path of a sequential znode.
pub(crate) fn numbered(path: &str, parent: &Projected) -> Cow<'static, str> {
    Cow::Owned(format!("{path}{:010}", parent.cversion))
}

/// Everything before the last slash. Whether that is a path shows when it is looked up.
pub(crate) fn parent_of(path: &str) -> Result<&str, ErrorCode> {
    match path::last_slash(path) {
        None => Err(ErrorCode::BadArguments),
        Some(_) if path.contains('\0') => Err(ErrorCode::BadArguments),
        Some(0) => Ok(reserved::ROOT),
        Some(slash) => Ok(&path[..slash]),
    }
}

pub(crate) fn deletable_parent_of(path: &str) -> Result<&str, ErrorCode> {
    if reserved::contains(path) { Err(ErrorCode::BadArguments) } else { parent_of(path) }
}
