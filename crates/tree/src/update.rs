//! Updates, as they stand in the log.
//!
//! ```text
//! batch  := (length u32, update)*
//! update := zxid i64, time_ms i64, session i64, op*          one op, or those of a multi
//! op     := tag u8, fields
//! ```
//! Integers are little-endian; lengths inside of an update are LEB128. A buffer that may be null
//! has its length plus one. Values are absolute (versions, not increments), so what an update does
//! is decided when it is prepared.
//!
//! What concerns several partitions is one update on each, with the same zxid: see [`crate::PartOp`].

use crate::Stamp;
use crate::node::{TTL_MS_MAX, ZnodeKind};
use crate::placed::Changes;
use crate::session::{Contact, PARTITIONS_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::{AclList, EventKind, PASSWORD_LEN, Reader, path};

/// Bytes that are no update, or an update that does not fit the state: the log is damaged or the
/// states of two servers have parted. The tree must not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptUpdate {
    /// The update's zxid; 0 when not even that could be read.
    pub zxid: i64,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for CorruptUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zxid, reason } = self;
        write!(
            f,
            "the update with zxid 0x{zxid:x} cannot be applied: {reason}; \
             take this server's state from a snapshot of another server"
        )
    }
}

impl core::error::Error for CorruptUpdate {}

const CREATE: u8 = 1;
const DELETE: u8 = 2;
const SET_DATA: u8 = 3;
const SET_ACL: u8 = 4;
const CHECK: u8 = 5;
const CREATE_SESSION: u8 = 6;
const CLOSE_SESSION: u8 = 7;
const MULTI: u8 = 8;
const OPEN_SESSION: u8 = 9;
const ADOPT: u8 = 10;
const DISOWN: u8 = 11;
const CREATE_AT: u8 = 12;
const DELETE_AT: u8 = 13;
const VISIT: u8 = 14;
const GUEST: u8 = 15;
const VISITS: u8 = 16;
const GIVE: u8 = 17;
const TAKE: u8 = 18;
const PLACE: u8 = 19;

// The byte that follows CREATE or CREATE_AT: a kind and two flags.
const PERSISTENT: u8 = 0;
pub(crate) const EPHEMERAL: u8 = 1;
pub(crate) const CONTAINER: u8 = 2;
pub(crate) const TTL: u8 = 3;
pub(crate) const KINDS: u8 = 3;
const WITH_STAT: u8 = 4;
const WITH_ACL: u8 = 8;

/// An ACL in an update: the vector as on the wire; `None` is the open one.
pub(crate) type OpAcl<'a> = Option<&'a [u8]>;

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Create(CreateOp<'a>),
    Delete {
        path: &'a str,
    },
    SetData {
        path: &'a str,
        data: Option<&'a [u8]>,
        version: i32,
    },
    SetAcl {
        path: &'a str,
        acl: OpAcl<'a>,
        aversion: i32,
    },
    Check {
        path: &'a str,
    },
    CreateSession {
        timeout_ms: i32,
        password: [u8; PASSWORD_LEN],
        contact: Contact,
    },
    OpenSession {
        timeout_ms: i32,
        contact: Contact,
    },
    CloseSession,
    /// The parent's side of a create at a cut.
    Adopt {
        path: &'a str,
        parent_cversion: i32,
    },
    /// The parent's side of a delete at a cut.
    Disown {
        path: &'a str,
    },
    /// A delete of a znode whose parent lives on another partition.
    DeleteAt {
        path: &'a str,
    },
    /// The update's session owns ephemerals on that partition.
    Visit {
        partition: u8,
    },
    /// The same of other sessions (their ids, little-endian).
    Visits {
        partition: u8,
        sessions: &'a [[u8; SESSION_BYTES]],
    },
    /// The update's session, which lives on the first partition, is about to own ephemerals here.
    Guest,
    /// A subtree goes to another partition. The digest is that of what goes.
    Give {
        path: &'a str,
        digest: u64,
    },
    /// A subtree comes from another partition: see [`crate::content`].
    Take {
        path: &'a str,
        content: &'a [u8],
    },
    /// The table of what lives elsewhere than the rule says is changed.
    Place {
        changes: Changes<'a>,
    },
}

pub(crate) const SESSION_BYTES: usize = size_of::<i64>();

/// What is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreateOp<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: OpAcl<'a>,
    /// An ephemeral's session is the update's.
    pub(crate) kind: ZnodeKind,
    /// `None` when the parent lives on another partition.
    pub(crate) parent_cversion: Option<i32>,
    /// Whether the client is told the Stat.
    pub(crate) with_stat: bool,
}

/// A deterministic change of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// Its place in the order of all updates.
    pub zxid: i64,
    /// When it was prepared, milliseconds since the epoch.
    pub time_ms: i64,
    /// The session that asked for it; 0 is the server itself.
    pub session: i64,
    body: &'a [u8],
}

/// Starts an update at the end of a batch; give the result to [`end`].
#[inline]
pub(crate) fn begin(batch: &mut Vec<u8>, zxid: i64, time_ms: i64, session: i64) -> usize {
    let start = batch.len();
    batch.extend_from_slice(&[0; 4]);
    for number in [zxid, time_ms, session] {
        batch.extend_from_slice(&number.to_le_bytes());
    }
    start
}

pub(crate) fn begin_multi(batch: &mut Vec<u8>, count: usize) {
    batch.push(MULTI);
    put_len(batch, count);
}

/// Fills in the length of the update that began at `start`.
pub(crate) fn end(batch: &mut [u8], start: usize) {
    let len = u32::try_from(batch.len() - start - 4).expect("an update is not much longer than its frame");
    batch[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    let mut rest = len;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_path(out: &mut Vec<u8>, tag: u8, path: &str) {
    out.push(tag);
    put_bytes(out, path.as_bytes());
}

pub(crate) fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_len(out, bytes.len() + 1);
            out.extend_from_slice(bytes);
        }
        None => put_len(out, 0),
    }
}

/// A kind, without what belongs to it.
pub(crate) fn kind_bits(kind: ZnodeKind) -> u8 {
    match kind {
        ZnodeKind::Persistent => PERSISTENT,
        ZnodeKind::Ephemeral { .. } => EPHEMERAL,
        ZnodeKind::Container => CONTAINER,
        ZnodeKind::Ttl { .. } => TTL,
    }
}

impl Op<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Create(CreateOp { path, data, acl, kind, parent_cversion, with_stat }) => {
                let stat_bit = if with_stat { WITH_STAT } else { 0 };
                let acl_bit = if acl.is_some() { WITH_ACL } else { 0 };
                let tag = if parent_cversion.is_some() { CREATE } else { CREATE_AT };
                out.extend_from_slice(&[tag, kind_bits(kind) | stat_bit | acl_bit]);
                put_bytes(out, path.as_bytes());
                put_nullable(out, data);
                if let Some(parent_cversion) = parent_cversion {
                    out.extend_from_slice(&parent_cversion.to_le_bytes());
                }
                if let ZnodeKind::Ttl { ttl_ms } = kind {
                    out.extend_from_slice(&ttl_ms.to_le_bytes());
                }
                if let Some(acl) = acl {
                    put_bytes(out, acl);
                }
            }
            Self::Delete { path } => put_path(out, DELETE, path),
            Self::DeleteAt { path } => put_path(out, DELETE_AT, path),
            Self::Adopt { path, parent_cversion } => {
                put_path(out, ADOPT, path);
                out.extend_from_slice(&parent_cversion.to_le_bytes());
            }
            Self::Disown { path } => put_path(out, DISOWN, path),
            Self::SetData { path, data, version } => {
                put_path(out, SET_DATA, path);
                out.extend_from_slice(&version.to_le_bytes());
                put_nullable(out, data);
            }
            Self::SetAcl { path, acl, aversion } => {
                put_path(out, SET_ACL, path);
                out.extend_from_slice(&aversion.to_le_bytes());
                put_nullable(out, acl);
            }
            Self::Check { path } => put_path(out, CHECK, path),
            Self::CreateSession { timeout_ms, password, contact } => {
                out.push(CREATE_SESSION);
                out.extend_from_slice(&timeout_ms.to_le_bytes());
                out.extend_from_slice(&password);
                contact.encode(out);
            }
            Self::OpenSession { timeout_ms, contact } => {
                out.push(OPEN_SESSION);
                out.extend_from_slice(&timeout_ms.to_le_bytes());
                contact.encode(out);
            }
            Self::CloseSession => out.push(CLOSE_SESSION),
            Self::Visit { partition } => out.extend_from_slice(&[VISIT, partition]),
            Self::Visits { partition, sessions } => {
                out.extend_from_slice(&[VISITS, partition]);
                put_len(out, sessions.len());
                out.extend_from_slice(sessions.as_flattened());
            }
            Self::Guest => out.push(GUEST),
            Self::Give { path, digest } => {
                put_path(out, GIVE, path);
                out.extend_from_slice(&digest.to_le_bytes());
            }
            Self::Take { path, content } => {
                put_path(out, TAKE, path);
                put_bytes(out, content);
            }
            Self::Place { changes } => {
                out.push(PLACE);
                put_bytes(out, changes.bytes());
            }
        }
    }
}

impl<'a> Op<'a> {
    /// Reads the operation that the bytes begin with.
    pub(crate) fn decode(bytes: &'a [u8], session: i64) -> Result<Self, &'static str> {
        Decoder { rest: bytes }.op(session)
    }
}

/// Why decoding stopped; becomes a [`CorruptUpdate`] once the zxid is known.
pub(crate) type Reason = &'static str;

const CUT_SHORT: Reason = "it is cut short";
pub(crate) const BAD_NAME: Reason = "the name of a znode is empty";

pub(crate) struct Decoder<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// All that follows is operations.
    pub(crate) fn ops(mut self, session: i64) -> impl Iterator<Item = Result<Op<'a>, Reason>> {
        core::iter::from_fn(move || (!self.rest.is_empty()).then(|| self.op(session)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Reason> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(CUT_SHORT)?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(CUT_SHORT)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Reason> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Reason> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Reason> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn len(&mut self) -> Result<usize, Reason> {
        let mut len = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.u8()?;
            len |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(len).map_err(|_| "a length is too large");
            }
        }
        Err("a length is too large")
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Reason> {
        let len = self.len()?;
        self.take(len)
    }

    pub(crate) fn nullable(&mut self) -> Result<Option<&'a [u8]>, Reason> {
        match self.len()? {
            0 => Ok(None),
            len => self.take(len - 1).map(Some),
        }
    }

    pub(crate) fn path(&mut self) -> Result<&'a str, Reason> {
        core::str::from_utf8(self.bytes()?).map_err(|_| "a path is not UTF-8")
    }

    /// The path of a znode whose parent has to be here.
    fn path_of_child(&mut self) -> Result<&'a str, Reason> {
        let path = self.path()?;
        if path::split(path).is_some_and(|(_, name)| !name.is_empty()) { Ok(path) } else { Err(BAD_NAME) }
    }

    pub(crate) fn acl(&mut self, acl: &'a [u8]) -> Result<OpAcl<'a>, Reason> {
        let mut reader = Reader::new(acl);
        match AclList::decode(&mut reader) {
            Ok(list) if !list.is_empty() && reader.rest().is_empty() => Ok(Some(acl)),
            _ => Err("an ACL is not well formed"),
        }
    }

    /// The path of a znode whose parent need not be here, so that nothing else shows that it is one.
    fn whole_path(&mut self) -> Result<&'a str, Reason> {
        let path = self.path()?;
        let names = path.strip_prefix('/').ok_or("a path does not begin at the root")?;
        if names.split('/').any(str::is_empty) {
            return Err(BAD_NAME);
        }
        Ok(path)
    }

    fn create(&mut self, session: i64, at_cut: bool) -> Result<CreateOp<'a>, Reason> {
        let flags = self.u8()?;
        if flags & !(KINDS | WITH_STAT | WITH_ACL) != 0 {
            return Err("a create has an unknown flag");
        }
        let path = if at_cut { self.whole_path()? } else { self.path_of_child()? };
        let data = self.nullable()?;
        let parent_cversion = if at_cut { None } else { Some(self.i32()?) };
        let kind = match flags & KINDS {
            EPHEMERAL => ZnodeKind::Ephemeral { session },
            CONTAINER => ZnodeKind::Container,
            TTL => {
                let ttl_ms = self.i64()?;
                if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
                    return Err("a TTL is out of range");
                }
                ZnodeKind::Ttl { ttl_ms }
            }
            _ => ZnodeKind::Persistent,
        };
        let acl = if flags & WITH_ACL == 0 {
            None
        } else {
            let bytes = self.bytes()?;
            self.acl(bytes)?
        };
        Ok(CreateOp { path, data, acl, kind, parent_cversion, with_stat: flags & WITH_STAT != 0 })
    }

    fn partition(&mut self) -> Result<u8, Reason> {
        match self.u8()? {
            partition @ ..PARTITIONS_MAX => Ok(partition),
            _ => Err("a partition is out of range"),
        }
    }

    fn op(&mut self, session: i64) -> Result<Op<'a>, Reason> {
        Ok(match self.u8()? {
            CREATE => Op::Create(self.create(session, false)?),
            CREATE_AT => Op::Create(self.create(session, true)?),
            ADOPT => Op::Adopt { path: self.path_of_child()?, parent_cversion: self.i32()? },
            DISOWN => Op::Disown { path: self.path()? },
            DELETE_AT => Op::DeleteAt { path: self.path()? },
            VISIT => Op::Visit { partition: self.partition()? },
            VISITS => {
                let partition = self.partition()?;
                let len = self.len()?.saturating_mul(SESSION_BYTES);
                let (sessions, _) = self.take(len)?.as_chunks();
                Op::Visits { partition, sessions }
            }
            GUEST => Op::Guest,
            GIVE => Op::Give { path: self.whole_path()?, digest: u64::from_le_bytes(self.array()?) },
            TAKE => Op::Take { path: self.whole_path()?, content: self.bytes()? },
            PLACE => Op::Place { changes: Changes::decode(self.bytes()?)? },
            DELETE => Op::Delete { path: self.path()? },
            SET_DATA => {
                let path = self.path()?;
                let version = self.i32()?;
                Op::SetData { path, data: self.nullable()?, version }
            }
            SET_ACL => {
                let path = self.path()?;
                let aversion = self.i32()?;
                let acl = match self.nullable()? {
                    Some(bytes) => self.acl(bytes)?,
                    None => None,
                };
                Op::SetAcl { path, acl, aversion }
            }
            CHECK => Op::Check { path: self.path()? },
            CREATE_SESSION => Op::CreateSession {
                timeout_ms: self.i32()?,
                password: self.array()?,
                contact: Contact::decode(self.array()?),
            },
            OPEN_SESSION => {
                Op::OpenSession { timeout_ms: self.i32()?, contact: Contact::decode(self.array()?) }
            }
            CLOSE_SESSION => Op::CloseSession,
            _ => return Err("it has an operation of an unknown kind"),
        })
    }
}

impl<'a> Update<'a> {
    /// Reads one update, without its length.
    ///
    /// # Errors
    /// When the bytes are none. The operations are checked when they are applied.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, CorruptUpdate> {
        let mut decoder = Decoder { rest: bytes };
        let mut header = || Ok((decoder.i64()?, decoder.i64()?, decoder.i64()?));
        let (zxid, time_ms, session) = header().map_err(|reason| CorruptUpdate { zxid: 0, reason })?;
        Ok(Self { zxid, time_ms, session, body: decoder.rest })
    }

    /// One that is being prepared.
    pub(crate) fn of(stamp: Stamp, session: i64, body: &'a [u8]) -> Self {
        Self { zxid: stamp.zxid, time_ms: stamp.time_ms, session, body }
    }

    /// How many operations it has, and these.
    pub(crate) fn ops(&self) -> Result<(usize, &'a [u8]), Reason> {
        let Some(rest) = self.body.strip_prefix(&[MULTI]) else { return Ok((1, self.body)) };
        let mut decoder = Decoder { rest };
        Ok((decoder.len()?, decoder.rest))
    }

    /// What it does to znodes: each creation, change of data and deletion, in order. `ephemerals` are deleted
    /// where it closes a session.
    pub fn for_each_change(&self, ephemerals: &[String], mut each: impl FnMut(EventKind, &str)) {
        let read = self.for_each_op(|op| {
            match op {
                Op::Create(create) => each(EventKind::Created, create.path),
                Op::SetData { path, .. } => each(EventKind::DataChanged, path),
                Op::Delete { path } | Op::DeleteAt { path } => each(EventKind::Deleted, path),
                Op::CloseSession => ephemerals.iter().for_each(|path| each(EventKind::Deleted, path)),
                _ => {}
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here");
    }

    pub(crate) fn corrupt(&self, reason: Reason) -> CorruptUpdate {
        CorruptUpdate { zxid: self.zxid, reason }
    }

    /// Whether it is a multi.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.body.first() == Some(&MULTI)
    }

    /// Calls `each` with every operation, in order, after having checked that all can be read.
    #[inline]
    pub(crate) fn for_each_op(
        &self,
        mut each: impl FnMut(Op<'a>) -> Result<(), CorruptUpdate>,
    ) -> Result<(), CorruptUpdate> {
        let corrupt = |reason| self.corrupt(reason);
        let Some(rest) = self.body.strip_prefix(&[MULTI]) else {
            let mut decoder = Decoder { rest: self.body };
            let op = decoder.op(self.session).map_err(corrupt)?;
            self.expect_end(&decoder)?;
            return each(op);
        };
        let mut decoder = Decoder { rest };
        let count = decoder.len().map_err(corrupt)?;
        let first = decoder.rest;
        for _ in 0..count {
            decoder.op(self.session).map_err(corrupt)?;
        }
        self.expect_end(&decoder)?;
        let mut decoder = Decoder { rest: first };
        for _ in 0..count {
            each(decoder.op(self.session).map_err(corrupt)?)?;
        }
        Ok(())
    }

    fn expect_end(&self, decoder: &Decoder<'_>) -> Result<(), CorruptUpdate> {
        if decoder.rest.is_empty() { Ok(()) } else { Err(self.corrupt("bytes follow its last operation")) }
    }

    /// What it does, on one line, for people.
    #[must_use]
    pub fn describe(&self) -> impl fmt::Display + use<'a> {
        Description(*self)
    }
}

struct Description<'a>(Update<'a>);

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let update = &self.0;
        write!(f, "zxid=0x{:x} time_ms={} session=0x{:x}", update.zxid, update.time_ms, update.session)?;
        if update.is_multi() {
            f.write_str(" multi")?;
        }
        let mut written = Ok(());
        let read = update.for_each_op(|op| {
            if written.is_ok() {
                written = write!(f, " {op}");
            }
            Ok(())
        });
        written?;
        match read {
            Ok(()) => Ok(()),
            Err(corrupt) => write!(f, " (unreadable: {})", corrupt.reason),
        }
    }
}

impl fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acl_name = |acl: OpAcl<'_>| if acl.is_some() { " acl" } else { "" };
        match *self {
            Self::Create(CreateOp { path, data, acl, kind, parent_cversion, .. }) => {
                let at = if parent_cversion.is_some() { "" } else { "_at" };
                write!(f, "create{at} {path:?} {}{}", Data(data), acl_name(acl))?;
                match kind {
                    ZnodeKind::Persistent => Ok(()),
                    ZnodeKind::Ephemeral { .. } => f.write_str(" ephemeral"),
                    ZnodeKind::Container => f.write_str(" container"),
                    ZnodeKind::Ttl { ttl_ms } => write!(f, " ttl_ms={ttl_ms}"),
                }
            }
            Self::Delete { path } => write!(f, "delete {path:?}"),
            Self::SetData { path, data, version } => {
                write!(f, "set_data {path:?} {} version={version}", Data(data))
            }
            Self::SetAcl { path, aversion, .. } => write!(f, "set_acl {path:?} aversion={aversion}"),
            Self::Check { path } => write!(f, "check {path:?}"),
            // The password stays out of what people read.
            Self::CreateSession { timeout_ms, .. } => write!(f, "create_session timeout_ms={timeout_ms}"),
            Self::OpenSession { timeout_ms, contact } => {
                write!(f, "open_session timeout_ms={timeout_ms} server={}", contact.server)
            }
            Self::CloseSession => f.write_str("close_session"),
            Self::Adopt { path, .. } => write!(f, "adopt {path:?}"),
            Self::Disown { path } => write!(f, "disown {path:?}"),
            Self::DeleteAt { path } => write!(f, "delete_at {path:?}"),
            Self::Visit { partition } => write!(f, "visit partition={partition}"),
            Self::Visits { partition, sessions } => {
                write!(f, "visits partition={partition} sessions={}", sessions.len())
            }
            Self::Guest => f.write_str("guest"),
            Self::Give { path, .. } => write!(f, "give {path:?}"),
            Self::Take { path, content } => write!(f, "take {path:?} bytes={}", content.len()),
            Self::Place { changes } => write!(f, "place{changes}"),
        }
    }
}

struct Data<'a>(Option<&'a [u8]>);

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(data) => write!(f, "bytes={}", data.len()),
            None => f.write_str("null"),
        }
    }
}

/// The updates of a batch: the payload of one entry of the log.
#[derive(Debug, Clone)]
pub struct Updates<'a> {
    rest: &'a [u8],
}

impl<'a> Updates<'a> {
    /// Starts at the first update of the batch.
    #[must_use]
    pub fn new(batch: &'a [u8]) -> Self {
        Self { rest: batch }
    }
}

impl<'a> Iterator for Updates<'a> {
    type Item = Result<Update<'a>, CorruptUpdate>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut decoder = Decoder { rest: core::mem::take(&mut self.rest) };
        let mut update = || {
            let len = u32::from_le_bytes(decoder.array()?);
            decoder.take(usize::try_from(len).map_err(|_| "its length is too large")?)
        };
        let bytes = match update() {
            Ok(bytes) => bytes,
            // Nothing after it can be found any more: `rest` stays empty.
            Err(reason) => return Some(Err(CorruptUpdate { zxid: 0, reason })),
        };
        self.rest = decoder.rest;
        Some(Update::decode(bytes))
    }
}
