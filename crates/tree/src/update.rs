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
use crate::encoding::{CreateOp, DataLen, Decoder, OpAcl, Reason, put_len, put_nullable, put_path};
use crate::partitions::PartitionOp;
use crate::prepare::parent_of;
use crate::reserved::CONFIG_PATH;
use crate::session::Contact;
use crate::sites::SiteOp;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::{EventKind, PASSWORD_LEN, ZXID_MAX};

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

// Tags; those from 10 on are those of `crate::partitions::ops` and `crate::sites::ops`.
const CREATE: u8 = 1;
const DELETE: u8 = 2;
const SET_DATA: u8 = 3;
const SET_ACL: u8 = 4;
const CHECK: u8 = 5;
const CREATE_SESSION: u8 = 6;
const CLOSE_SESSION: u8 = 7;
const MULTI: u8 = 8;
const OPEN_SESSION: u8 = 9;

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Create {
        create: CreateOp<'a>,
        parent_cversion: i32,
    },
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
    /// What concerns other partitions.
    Partition(PartitionOp<'a>),
    /// What concerns other sites.
    Site(SiteOp<'a>),
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

impl Op<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Create { create, parent_cversion } => {
                create.encode(CREATE, &parent_cversion.to_le_bytes(), out);
            }
            Self::Delete { path } => put_path(out, DELETE, path),
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
            Self::Partition(op) => op.encode(out),
            Self::Site(op) => op.encode(out),
        }
    }
}

impl<'a> Op<'a> {
    /// Reads an operation.
    pub(crate) fn decode(decoder: &mut Decoder<'a>, session: i64) -> Result<Self, Reason> {
        Ok(match decoder.u8()? {
            CREATE => {
                let (create, parent_cversion) =
                    decoder.create(session, Decoder::path_of_child, Decoder::i32)?;
                Self::Create { create, parent_cversion }
            }
            DELETE => Self::Delete { path: decoder.path()? },
            SET_DATA => {
                let path = decoder.path()?;
                let version = decoder.i32()?;
                Self::SetData { path, data: decoder.nullable()?, version }
            }
            SET_ACL => {
                let path = decoder.path()?;
                let aversion = decoder.i32()?;
                let acl = match decoder.nullable()? {
                    Some(bytes) => decoder.acl(bytes)?,
                    None => None,
                };
                Self::SetAcl { path, acl, aversion }
            }
            CHECK => Self::Check { path: decoder.path()? },
            CREATE_SESSION => Self::CreateSession {
                timeout_ms: decoder.i32()?,
                password: decoder.array()?,
                contact: Contact::decode(decoder.array()?),
            },
            OPEN_SESSION => {
                Self::OpenSession { timeout_ms: decoder.i32()?, contact: Contact::decode(decoder.array()?) }
            }
            CLOSE_SESSION => Self::CloseSession,
            tag => match SiteOp::decode(tag, decoder) {
                Some(op) => Self::Site(op?),
                None => Self::Partition(PartitionOp::decode(tag, decoder, session)?),
            },
        })
    }

    /// All that the bytes are.
    pub(crate) fn decode_all(bytes: &'a [u8], session: i64) -> impl Iterator<Item = Result<Self, Reason>> {
        let mut decoder = Decoder::new(bytes);
        core::iter::from_fn(move || (!decoder.is_at_end()).then(|| Self::decode(&mut decoder, session)))
    }
}

impl<'a> Update<'a> {
    /// Reads one update, without its length.
    ///
    /// # Errors
    /// When the bytes are none. The operations are checked when they are applied.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, CorruptUpdate> {
        let mut decoder = Decoder::new(bytes);
        let mut header = || Ok((decoder.i64()?, decoder.i64()?, decoder.i64()?));
        let (zxid, time_ms, session) = header().map_err(|reason| CorruptUpdate { zxid: 0, reason })?;
        if !(0..=ZXID_MAX).contains(&zxid) {
            return Err(CorruptUpdate { zxid, reason: "its zxid is out of range" });
        }
        Ok(Self { zxid, time_ms, session, body: decoder.rest() })
    }

    /// One that is being prepared.
    pub(crate) fn of(stamp: Stamp, session: i64, body: &'a [u8]) -> Self {
        Self { zxid: stamp.zxid, time_ms: stamp.time_ms, session, body }
    }

    /// How many operations it has, and these.
    pub(crate) fn ops(&self) -> Result<(usize, &'a [u8]), Reason> {
        let Some(rest) = self.body.strip_prefix(&[MULTI]) else { return Ok((1, self.body)) };
        let mut decoder = Decoder::new(rest);
        Ok((decoder.len()?, decoder.rest()))
    }

    /// What it does to znodes: each creation, change of data and deletion, in order. `ephemerals` are deleted
    /// where it closes a session.
    pub fn for_each_change(&self, ephemerals: &[String], mut each: impl FnMut(EventKind, &str)) {
        let read = self.for_each_op(|op| {
            match op {
                Op::Create { create, .. } => each(EventKind::Created, create.path),
                Op::SetData { path, .. } => each(EventKind::DataChanged, path),
                Op::Delete { path } => each(EventKind::Deleted, path),
                Op::Partition(op) => op.change().into_iter().for_each(|(kind, path)| each(kind, path)),
                Op::CloseSession => ephemerals.iter().for_each(|path| each(EventKind::Deleted, path)),
                _ => {}
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here");
    }

    /// Whether it is for the site alone that has prepared it. Each update is asked once for every other site, so what is
    /// asked mostly is answered by its first bytes.
    #[must_use]
    pub fn is_of_one_site(&self) -> bool {
        match self.body {
            [CREATE | DELETE | SET_ACL | CHECK | CREATE_SESSION | OPEN_SESSION | CLOSE_SESSION, ..] => false,
            [SET_DATA, path @ ..] => {
                Decoder::new(path).bytes().is_ok_and(|path| path == CONFIG_PATH.as_bytes())
            }
            _ => {
                let mut is_of_one = false;
                let read = self.for_each_op(|op| {
                    is_of_one |= op.is_of_one_site();
                    Ok(())
                });
                is_of_one || read.is_err()
            }
        }
    }

    /// Whether it may be one that gives a token to somebody, or returns a read token. Every update is asked, and hardly any
    /// is.
    #[must_use]
    #[inline]
    pub fn may_move_tokens(&self) -> bool {
        SiteOp::may_move_tokens(self.body.first().copied())
    }

    /// Calls `each` with each znode whose token it gives to somebody, or whose read token it returns.
    pub fn for_each_token(&self, mut each: impl FnMut(&str)) {
        if !self.may_move_tokens() {
            return;
        }
        let read = self.for_each_op(|op| {
            if let Op::Site(SiteOp::Token { path, .. } | SiteOp::ReturnRead { path, .. }) = op {
                each(path);
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here, or imported");
    }

    /// Calls `each` with each znode that it creates, changes or deletes, but for those that end with their session.
    pub fn for_each_written(&self, mut each: impl FnMut(&str)) {
        let read = self.for_each_op(|op| {
            match op {
                Op::Create { create, .. } => each(create.path),
                Op::Delete { path } | Op::SetData { path, .. } | Op::SetAcl { path, .. } => each(path),
                _ => {}
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here, or imported");
    }

    /// Calls `each` with each znode whose token it has needed; [`crate::tokens_of`] is the table.
    pub fn for_each_needed(&self, mut each: impl FnMut(&str)) {
        let read = self.for_each_op(|op| {
            match op {
                Op::Create { create, .. } => parent_of(create.path).into_iter().for_each(&mut each),
                Op::Delete { path }
                | Op::SetData { path, .. }
                | Op::SetAcl { path, .. }
                | Op::Check { path } => each(path),
                _ => {}
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here, or imported");
    }

    pub(crate) fn corrupt(&self, reason: Reason) -> CorruptUpdate {
        CorruptUpdate { zxid: self.zxid, reason }
    }

    /// Appends it with its length.
    pub fn encode(&self, batch: &mut Vec<u8>) {
        let start = begin(batch, self.zxid, self.time_ms, self.session);
        batch.extend_from_slice(self.body);
        end(batch, start);
    }

    /// The same by itself, if it is a multi of one operation.
    #[must_use]
    pub fn single(self) -> Self {
        match self.ops() {
            Ok((1, body)) => Self { body, ..self },
            _ => self,
        }
    }

    /// Whether it is a multi.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.body.first() == Some(&MULTI)
    }

    /// Whether it begins with an op of this kind, alone: others of a multi are not looked at.
    #[inline]
    pub(crate) fn is_of_kind(&self, tag: u8) -> bool {
        self.body.first() == Some(&tag)
    }

    /// Calls `each` with every operation, in order, after having checked that all can be read.
    #[inline]
    pub(crate) fn for_each_op(
        &self,
        mut each: impl FnMut(Op<'a>) -> Result<(), CorruptUpdate>,
    ) -> Result<(), CorruptUpdate> {
        let corrupt = |reason| self.corrupt(reason);
        let Some(rest) = self.body.strip_prefix(&[MULTI]) else {
            let mut decoder = Decoder::new(self.body);
            let op = Op::decode(&mut decoder, self.session).map_err(corrupt)?;
            self.expect_end(&decoder)?;
            return each(op);
        };
        let mut decoder = Decoder::new(rest);
        let count = decoder.len().map_err(corrupt)?;
        let first = decoder.rest();
        for _ in 0..count {
            Op::decode(&mut decoder, self.session).map_err(corrupt)?;
        }
        self.expect_end(&decoder)?;
        let mut decoder = Decoder::new(first);
        for _ in 0..count {
            each(Op::decode(&mut decoder, self.session).map_err(corrupt)?)?;
        }
        Ok(())
    }

    fn expect_end(&self, decoder: &Decoder<'_>) -> Result<(), CorruptUpdate> {
        if decoder.is_at_end() { Ok(()) } else { Err(self.corrupt("bytes follow its last operation")) }
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
        match *self {
            Self::Create { create, .. } => write!(f, "create {create}"),
            Self::Delete { path } => write!(f, "delete {path:?}"),
            Self::SetData { path, data, version } => {
                write!(f, "set_data {path:?} {} version={version}", DataLen(data))
            }
            Self::SetAcl { path, aversion, .. } => write!(f, "set_acl {path:?} aversion={aversion}"),
            Self::Check { path } => write!(f, "check {path:?}"),
            // The password stays out of what people read.
            Self::CreateSession { timeout_ms, .. } => write!(f, "create_session timeout_ms={timeout_ms}"),
            Self::OpenSession { timeout_ms, contact } => {
                write!(f, "open_session timeout_ms={timeout_ms} server={}", contact.server)
            }
            Self::CloseSession => f.write_str("close_session"),
            Self::Partition(op) => op.fmt(f),
            Self::Site(op) => op.fmt(f),
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
        let mut decoder = Decoder::new(core::mem::take(&mut self.rest));
        let mut update = || {
            let len = u32::from_le_bytes(decoder.array()?);
            decoder.take(usize::try_from(len).map_err(|_| "its length is too large")?)
        };
        let bytes = match update() {
            Ok(bytes) => bytes,
            // Nothing after it can be found any more: `rest` stays empty.
            Err(reason) => return Some(Err(CorruptUpdate { zxid: 0, reason })),
        };
        self.rest = decoder.rest();
        Some(Update::decode(bytes))
    }
}
