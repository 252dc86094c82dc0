//! Requests.

use crate::acl::{Acl, AclList};
use crate::codec::{DecodeError, Reader, put};
use crate::multi::MultiOps;
use crate::opcode::Opcode;
use alloc::vec::Vec;

type Result<T> = core::result::Result<T, DecodeError>;

/// Request ids with a meaning of their own.
pub mod xid {
    /// A watch notification.
    pub const NOTIFICATION: i32 = -1;
    /// A ping and its reply.
    pub const PING: i32 = -2;
    /// An auth packet and its reply.
    pub const AUTH: i32 = -4;
    /// setWatches and its reply.
    pub const SET_WATCHES: i32 = -8;
}

/// Stands at the start of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client, returned in the reply.
    pub xid: i32,
    /// An [`Opcode`] as a number.
    pub opcode: i32,
}

impl RequestHeader {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.xid);
        put::i32(out, self.opcode);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When fewer than 8 bytes are left.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { xid: reader.i32()?, opcode: reader.i32()? })
    }
}

/// The kinds of znode that a create can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum CreateMode {
    /// Stays until deleted.
    Persistent = 0,
    /// Lives as long as its session.
    Ephemeral = 1,
    /// Persistent, with a number appended to its name.
    PersistentSequential = 2,
    /// Ephemeral, with a number appended to its name.
    EphemeralSequential = 3,
    /// Deleted by the server some time after its last child is gone.
    Container = 4,
    /// Deleted by the server when unchanged and without children for its TTL.
    PersistentTtl = 5,
    /// The same, with a number appended to its name.
    PersistentSequentialTtl = 6,
}

impl CreateMode {
    /// The mode with this number (the field `flags` of a create).
    #[must_use]
    pub fn from_i32(flags: i32) -> Option<Self> {
        Some(match flags {
            0 => Self::Persistent,
            1 => Self::Ephemeral,
            2 => Self::PersistentSequential,
            3 => Self::EphemeralSequential,
            4 => Self::Container,
            5 => Self::PersistentTtl,
            6 => Self::PersistentSequentialTtl,
            _ => return None,
        })
    }

    /// Whether a number is appended to the name.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::PersistentSequential | Self::EphemeralSequential | Self::PersistentSequentialTtl)
    }

    /// Whether the znode belongs to its session.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Whether the znode has a TTL.
    #[must_use]
    pub fn is_ttl(self) -> bool {
        matches!(self, Self::PersistentTtl | Self::PersistentSequentialTtl)
    }
}

/// A create in any of its four opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    /// Where; a sequential one may end in `/`.
    pub path: &'a str,
    /// The data; null is kept apart from empty.
    pub data: Option<&'a [u8]>,
    /// The ACL.
    pub acl: AclList<'a>,
    /// A [`CreateMode`] as a number.
    pub flags: i32,
    /// Only with opcode createTTL, else 0. Milliseconds.
    pub ttl_ms: i64,
}

/// How a persistent watch listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum AddWatchMode {
    /// To the znode and its list of children.
    Persistent = 0,
    /// To the znode and everything below it.
    PersistentRecursive = 1,
}

impl AddWatchMode {
    /// The mode with this number.
    #[must_use]
    pub fn from_i32(mode: i32) -> Option<Self> {
        match mode {
            0 => Some(Self::Persistent),
            1 => Some(Self::PersistentRecursive),
            _ => None,
        }
    }
}

/// Which watches checkWatches and removeWatches mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum WatcherKind {
    /// Set by getChildren.
    Children = 1,
    /// Set by getData or exists.
    Data = 2,
    /// All.
    Any = 3,
    /// Set by addWatch, mode 0.
    Persistent = 4,
    /// Set by addWatch, mode 1.
    PersistentRecursive = 5,
}

impl WatcherKind {
    /// The kind with this number.
    #[must_use]
    pub fn from_i32(kind: i32) -> Option<Self> {
        Some(match kind {
            1 => Self::Children,
            2 => Self::Data,
            3 => Self::Any,
            4 => Self::Persistent,
            5 => Self::PersistentRecursive,
            _ => return None,
        })
    }
}

/// A vector of paths or names as it stands in a frame; none of them is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StrList<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> StrList<'a> {
    /// Checks the vector and borrows it.
    ///
    /// # Errors
    /// When an item is cut short, null or not UTF-8.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let count = reader.count(4)?;
        let start = reader.rest();
        for _ in 0..count {
            reader.path()?;
        }
        let used = start.len() - reader.rest().len();
        Ok(Self { count, bytes: start.get(..used).unwrap_or_default() })
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // The bytes were checked by `decode`, so no item is lost to `ok()`.
        (0..self.count).map_while(move |_| reader.path().ok())
    }
}

/// Watches that a client sets again after a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetWatches<'a> {
    /// The last zxid that the client has seen: what happened since is reported at once.
    pub relative_zxid: i64,
    /// Set by getData (or by exists on a znode that was there).
    pub data: StrList<'a>,
    /// Set by exists on a znode that was not there.
    pub exist: StrList<'a>,
    /// Set by getChildren.
    pub child: StrList<'a>,
    /// Persistent ones (setWatches2).
    pub persistent: StrList<'a>,
    /// Persistent recursive ones (setWatches2).
    pub persistent_recursive: StrList<'a>,
}

/// A change of the ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconfig<'a> {
    /// Servers to add.
    pub joining: Option<&'a str>,
    /// Servers to remove.
    pub leaving: Option<&'a str>,
    /// The full new list, instead of the two.
    pub new_members: Option<&'a str>,
    /// Only if this is the current configuration; -1 for any.
    pub current_config: i64,
}

/// A request without its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol, and their types say the rest")]
pub enum Request<'a> {
    Create(Create<'a>),
    Create2(Create<'a>),
    CreateContainer(Create<'a>),
    CreateTtl(Create<'a>),
    Delete { path: &'a str, version: i32 },
    DeleteContainer { path: &'a str },
    Exists { path: &'a str, watch: bool },
    GetData { path: &'a str, watch: bool },
    SetData { path: &'a str, data: Option<&'a [u8]>, version: i32 },
    GetAcl { path: &'a str },
    SetAcl { path: &'a str, acl: AclList<'a>, version: i32 },
    GetChildren { path: &'a str, watch: bool },
    GetChildren2 { path: &'a str, watch: bool },
    Sync { path: &'a str },
    Ping,
    Check { path: &'a str, version: i32 },
    Multi(MultiOps<'a>),
    MultiRead(MultiOps<'a>),
    Reconfig(Reconfig<'a>),
    CheckWatches { path: &'a str, kind: i32 },
    RemoveWatches { path: &'a str, kind: i32 },
    Auth { scheme: &'a str, auth: &'a [u8] },
    Sasl { token: &'a [u8] },
    SetWatches(SetWatches<'a>),
    SetWatches2(SetWatches<'a>),
    GetEphemerals { prefix: Option<&'a str> },
    GetAllChildrenNumber { path: &'a str },
    AddWatch { path: &'a str, mode: i32 },
    WhoAmI,
    CreateSession { timeout_ms: i32 },
    CloseSession,
}

impl<'a> Request<'a> {
    /// Reads the body that belongs to `opcode`. Bytes that follow it are left alone, as ZooKeeper
    /// does, so that later clients may send more.
    ///
    /// # Errors
    /// When the body is not what the opcode promises.
    #[inline]
    pub fn decode(opcode: Opcode, r: &mut Reader<'a>) -> Result<Self> {
        Ok(match opcode {
            Opcode::GetData => Self::GetData { path: r.path()?, watch: r.bool()? },
            Opcode::Exists => Self::Exists { path: r.path()?, watch: r.bool()? },
            Opcode::SetData => Self::SetData { path: r.path()?, data: r.buffer()?, version: r.i32()? },
            Opcode::Create => Self::Create(Create::decode(r, false)?),
            Opcode::Create2 => Self::Create2(Create::decode(r, false)?),
            Opcode::CreateContainer => Self::CreateContainer(Create::decode(r, false)?),
            Opcode::CreateTtl => Self::CreateTtl(Create::decode(r, true)?),
            Opcode::Delete => Self::Delete { path: r.path()?, version: r.i32()? },
            Opcode::DeleteContainer => Self::DeleteContainer { path: r.path()? },
            Opcode::GetAcl => Self::GetAcl { path: r.path()? },
            Opcode::SetAcl => Self::SetAcl { path: r.path()?, acl: AclList::decode(r)?, version: r.i32()? },
            Opcode::GetChildren => Self::GetChildren { path: r.path()?, watch: r.bool()? },
            Opcode::GetChildren2 => Self::GetChildren2 { path: r.path()?, watch: r.bool()? },
            Opcode::Sync => Self::Sync { path: r.path()? },
            Opcode::Ping => Self::Ping,
            Opcode::Check => Self::Check { path: r.path()?, version: r.i32()? },
            Opcode::Multi => Self::Multi(MultiOps::decode(r)?),
            Opcode::MultiRead => Self::MultiRead(MultiOps::decode(r)?),
            Opcode::Reconfig => Self::Reconfig(Reconfig {
                joining: r.opt_str()?,
                leaving: r.opt_str()?,
                new_members: r.opt_str()?,
                current_config: r.i64()?,
            }),
            Opcode::CheckWatches => Self::CheckWatches { path: r.path()?, kind: r.i32()? },
            Opcode::RemoveWatches => Self::RemoveWatches { path: r.path()?, kind: r.i32()? },
            Opcode::Auth => {
                r.i32()?; // The field `type`: always 0, never looked at.
                Self::Auth { scheme: r.str()?, auth: r.buffer()?.unwrap_or_default() }
            }
            Opcode::Sasl => Self::Sasl { token: r.buffer()?.unwrap_or_default() },
            Opcode::SetWatches => Self::SetWatches(SetWatches::decode(r, false)?),
            Opcode::SetWatches2 => Self::SetWatches2(SetWatches::decode(r, true)?),
            Opcode::GetEphemerals => Self::GetEphemerals { prefix: r.opt_str()? },
            Opcode::GetAllChildrenNumber => Self::GetAllChildrenNumber { path: r.path()? },
            Opcode::AddWatch => Self::AddWatch { path: r.path()?, mode: r.i32()? },
            Opcode::WhoAmI => Self::WhoAmI,
            Opcode::CreateSession => Self::CreateSession { timeout_ms: r.i32()? },
            Opcode::CloseSession => Self::CloseSession,
        })
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Create(_) => Opcode::Create,
            Self::Create2(_) => Opcode::Create2,
            Self::CreateContainer(_) => Opcode::CreateContainer,
            Self::CreateTtl(_) => Opcode::CreateTtl,
            Self::Delete { .. } => Opcode::Delete,
            Self::DeleteContainer { .. } => Opcode::DeleteContainer,
            Self::Exists { .. } => Opcode::Exists,
            Self::GetData { .. } => Opcode::GetData,
            Self::SetData { .. } => Opcode::SetData,
            Self::GetAcl { .. } => Opcode::GetAcl,
            Self::SetAcl { .. } => Opcode::SetAcl,
            Self::GetChildren { .. } => Opcode::GetChildren,
            Self::GetChildren2 { .. } => Opcode::GetChildren2,
            Self::Sync { .. } => Opcode::Sync,
            Self::Ping => Opcode::Ping,
            Self::Check { .. } => Opcode::Check,
            Self::Multi(_) => Opcode::Multi,
            Self::MultiRead(_) => Opcode::MultiRead,
            Self::Reconfig(_) => Opcode::Reconfig,
            Self::CheckWatches { .. } => Opcode::CheckWatches,
            Self::RemoveWatches { .. } => Opcode::RemoveWatches,
            Self::Auth { .. } => Opcode::Auth,
            Self::Sasl { .. } => Opcode::Sasl,
            Self::SetWatches(_) => Opcode::SetWatches,
            Self::SetWatches2(_) => Opcode::SetWatches2,
            Self::GetEphemerals { .. } => Opcode::GetEphemerals,
            Self::GetAllChildrenNumber { .. } => Opcode::GetAllChildrenNumber,
            Self::AddWatch { .. } => Opcode::AddWatch,
            Self::WhoAmI => Opcode::WhoAmI,
            Self::CreateSession { .. } => Opcode::CreateSession,
            Self::CloseSession => Opcode::CloseSession,
        }
    }
}

impl<'a> Create<'a> {
    fn decode(r: &mut Reader<'a>, with_ttl: bool) -> Result<Self> {
        Ok(Self {
            path: r.path()?,
            data: r.buffer()?,
            acl: AclList::decode(r)?,
            flags: r.i32()?,
            ttl_ms: if with_ttl { r.i64()? } else { 0 },
        })
    }
}

impl<'a> SetWatches<'a> {
    fn decode(r: &mut Reader<'a>, with_persistent: bool) -> Result<Self> {
        Ok(Self {
            relative_zxid: r.i64()?,
            data: StrList::decode(r)?,
            exist: StrList::decode(r)?,
            child: StrList::decode(r)?,
            persistent: if with_persistent { StrList::decode(r)? } else { StrList::default() },
            persistent_recursive: if with_persistent { StrList::decode(r)? } else { StrList::default() },
        })
    }
}

/// Bodies of requests, for whoever sends them. One function a record of the protocol.
pub mod encode {
    use super::{Acl, Vec, put};

    /// exists, getData, getChildren, getChildren2.
    pub fn path_watch(out: &mut Vec<u8>, path: &str, watch: bool) {
        put::str(out, path);
        put::bool(out, watch);
    }

    /// getACL, sync, getAllChildrenNumber, getEphemerals, deleteContainer.
    pub fn path(out: &mut Vec<u8>, path: &str) {
        put::str(out, path);
    }

    /// delete, check.
    pub fn path_version(out: &mut Vec<u8>, path: &str, version: i32) {
        put::str(out, path);
        put::i32(out, version);
    }

    /// addWatch (mode), checkWatches and removeWatches (kind).
    pub fn path_number(out: &mut Vec<u8>, path: &str, number: i32) {
        path_version(out, path, number);
    }

    /// setData.
    pub fn set_data(out: &mut Vec<u8>, path: &str, data: Option<&[u8]>, version: i32) {
        put::str(out, path);
        put::opt_buffer(out, data);
        put::i32(out, version);
    }

    /// setACL.
    pub fn set_acl(out: &mut Vec<u8>, path: &str, acl: &[Acl<'_>], version: i32) {
        put::str(out, path);
        Acl::encode_list(out, acl.iter().copied());
        put::i32(out, version);
    }

    /// create, create2, createContainer; createTTL when `ttl_ms` is given.
    pub fn create(
        out: &mut Vec<u8>,
        path: &str,
        data: Option<&[u8]>,
        acl: &[Acl<'_>],
        flags: i32,
        ttl_ms: Option<i64>,
    ) {
        put::str(out, path);
        put::opt_buffer(out, data);
        Acl::encode_list(out, acl.iter().copied());
        put::i32(out, flags);
        if let Some(ttl_ms) = ttl_ms {
            put::i64(out, ttl_ms);
        }
    }

    /// auth.
    pub fn auth(out: &mut Vec<u8>, scheme: &str, auth: &[u8]) {
        put::i32(out, 0);
        put::str(out, scheme);
        put::buffer(out, auth);
    }

    /// setWatches with three lists (data, exist, child), setWatches2 with five.
    pub fn set_watches(out: &mut Vec<u8>, relative_zxid: i64, lists: &[&[&str]]) {
        put::i64(out, relative_zxid);
        for list in lists {
            put::len(out, list.len());
            for path in *list {
                put::str(out, path);
            }
        }
    }
}
