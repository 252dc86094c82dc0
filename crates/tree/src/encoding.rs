//! The building blocks of what stands in the log: numbers, buffers, paths, ACLs and creates. What is made of them
//! is described in [`crate::update`].

use crate::node::{TTL_MS_MAX, ZnodeKind};
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::{AclList, Reader, path};

/// Why decoding stopped; becomes a [`crate::CorruptUpdate`] once the zxid is known.
pub(crate) type Reason = &'static str;

const CUT_SHORT: Reason = "it is cut short";
pub(crate) const BAD_NAME: Reason = "the name of a znode is empty";

/// An ACL: the vector as on the wire; `None` is the open one.
pub(crate) type OpAcl<'a> = Option<&'a [u8]>;

// The byte that follows the tag of a create: a kind and two flags.
const PERSISTENT: u8 = 0;
const EPHEMERAL: u8 = 1;
const CONTAINER: u8 = 2;
const TTL: u8 = 3;
/// The bits of a kind.
pub(crate) const KINDS: u8 = 3;
const WITH_STAT: u8 = 4;
const WITH_ACL: u8 = 8;

/// What is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreateOp<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: OpAcl<'a>,
    /// An ephemeral's session is the update's.
    pub(crate) kind: ZnodeKind,
    /// Whether the client is told the Stat.
    pub(crate) with_stat: bool,
}

impl CreateOp<'_> {
    /// What becomes of the parent stands in the middle.
    #[inline]
    pub(crate) fn encode(&self, tag: u8, parent: &[u8], out: &mut Vec<u8>) {
        let Self { path, data, acl, kind, with_stat } = *self;
        let stat_bit = if with_stat { WITH_STAT } else { 0 };
        let acl_bit = if acl.is_some() { WITH_ACL } else { 0 };
        out.extend_from_slice(&[tag, kind_bits(kind) | stat_bit | acl_bit]);
        put_bytes(out, path.as_bytes());
        put_nullable(out, data);
        out.extend_from_slice(parent);
        if let ZnodeKind::Ttl { ttl_ms } = kind {
            out.extend_from_slice(&ttl_ms.to_le_bytes());
        }
        if let Some(acl) = acl {
            put_bytes(out, acl);
        }
    }
}

impl fmt::Display for CreateOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, data, acl, kind, .. } = *self;
        write!(f, "{path:?} {}{}", DataLen(data), if acl.is_some() { " acl" } else { "" })?;
        match kind {
            ZnodeKind::Persistent => Ok(()),
            ZnodeKind::Ephemeral { .. } => f.write_str(" ephemeral"),
            ZnodeKind::Container => f.write_str(" container"),
            ZnodeKind::Ttl { ttl_ms } => write!(f, " ttl_ms={ttl_ms}"),
        }
    }
}

/// How much data there is, for people.
pub(crate) struct DataLen<'a>(pub(crate) Option<&'a [u8]>);

impl fmt::Display for DataLen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(data) => write!(f, "bytes={}", data.len()),
            None => f.write_str("null"),
        }
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

pub(crate) fn put_path(out: &mut Vec<u8>, tag: u8, path: &str) {
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

/// Reads bytes that may be anything.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Reason> {
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
    pub(crate) fn path_of_child(&mut self) -> Result<&'a str, Reason> {
        let path = self.path()?;
        if path::split(path).is_some_and(|(_, name)| !name.is_empty()) { Ok(path) } else { Err(BAD_NAME) }
    }

    /// The ACL that these bytes of what is read are.
    pub(crate) fn acl(&self, acl: &'a [u8]) -> Result<OpAcl<'a>, Reason> {
        let mut reader = Reader::new(acl);
        match AclList::decode(&mut reader) {
            Ok(list) if !list.is_empty() && reader.rest().is_empty() => Ok(Some(acl)),
            _ => Err("an ACL is not well formed"),
        }
    }

    /// A kind of which these are the bits, with what belongs to it; `session` owns it if it is an ephemeral.
    pub(crate) fn kind(
        &mut self,
        bits: u8,
        session: impl FnOnce(&mut Self) -> Result<i64, Reason>,
    ) -> Result<ZnodeKind, Reason> {
        Ok(match bits & KINDS {
            EPHEMERAL => ZnodeKind::Ephemeral { session: session(self)? },
            CONTAINER => ZnodeKind::Container,
            TTL => match self.i64()? {
                ttl_ms @ 1..=TTL_MS_MAX => ZnodeKind::Ttl { ttl_ms },
                _ => return Err("a TTL is out of range"),
            },
            _ => ZnodeKind::Persistent,
        })
    }

    /// A create, after its tag; who calls knows its path, and what becomes of the parent.
    #[inline]
    pub(crate) fn create<T>(
        &mut self,
        session: i64,
        path: impl FnOnce(&mut Self) -> Result<&'a str, Reason>,
        parent: impl FnOnce(&mut Self) -> Result<T, Reason>,
    ) -> Result<(CreateOp<'a>, T), Reason> {
        let flags = self.u8()?;
        if flags & !(KINDS | WITH_STAT | WITH_ACL) != 0 {
            return Err("a create has an unknown flag");
        }
        let path = path(self)?;
        let data = self.nullable()?;
        let parent = parent(self)?;
        let kind = self.kind(flags, |_| Ok(session))?;
        let acl = if flags & WITH_ACL == 0 {
            None
        } else {
            let bytes = self.bytes()?;
            self.acl(bytes)?
        };
        Ok((CreateOp { path, data, acl, kind, with_stat: flags & WITH_STAT != 0 }, parent))
    }
}
