//! The records of a snapshot, as they are written and read.
//!
//! ```text
//! snapshot := header, (acl | session | visits | home | znode | absent | placed | except | sites | ended |
//!             imported | waiting | recalled | seen | seen of | root mark | owned | kept | read | level)*, end
//!             in any order (but visits and home after their session, except after placed, sites before its like),
//!             cut between records
//! header   := 1, format u8, last_zxid i64, digest u64, nodes u64, sessions u64
//! acl      := 2, id u32, encoded (as on the wire)
//! session  := 3, id i64, timeout_ms i32, password [u8; 16], server u8, opening u64
//! znode    := 4, flags u8, [mark u8], place, czxid, mzxid, ctime, mtime i64, version, aversion i32,
//!             acl u32, [pzxid i64, cversion i32, owner i64], name, data
//! place    := id u32, parent u32, prev u32   prev: the sibling that was created before, 0 for the first
//! end      := 5
//! absent   := 6, kind u8 (1 away, 2 scaffolding), place, name
//! visits   := 7, session i64, partitions u64
//! placed   := 8, version u64               the table of what lives elsewhere than the rule says,
//! except   := 9, partition u8, path        unless it was never changed
//! sites    := 10, site, hub u8, since_zxid, prepared_zxid i64, forgotten, numbered,
//!             begun u64                    where there are sites; prepared_zxid: the last that was prepared here,
//!             forgotten: how many ends of sessions, numbered: how many requests that went to other sites,
//!             begun: where the log was when this became one
//! ended    := 11, session, zxid i64        a session that has ended, and with which update
//! home     := 12, session i64, site u8     where the client of a session is; twice if it has come there from another site
//! imported := 13, site u8, position u64    how far the log of a site is here
//! waiting  := 14, site, server, by u8, number u64, session i64, asked          a request that is on its way
//! recalled := 15, path                     a token that the hub wants back
//! seen     := 18, site u8, zxid, floor i64  the last update of a site that is here, and that was when this one's log
//!                                          began; of this site itself the last reign whose hub it has promised
//!                                          something, 0 of none, and the last that it has made elsewhere
//! seen of  := 23, partition u8, site u8, zxid, floor i64     the same of a partition of a site that has several
//! root mark := 24, site u8                 who has the token of the root, where that lives on another partition
//! owned    := 25, session i64, path        an ephemeral that lives on another partition, below something here
//! kept     := 20, site u8, zxid i64        the last update that others had of a site that was given up; of site 0:
//!                                          that they have of this one; where it has several partitions, a record
//!                                          for the last of each
//! level    := 22, level u8                 the feature level of the sites, right behind the header, if it is not 1
//! read     := 21, site u8, given i64, path     this site reads what is newest there; the update that lets it
//! ```
//! Integers are little-endian; `encoded`, `name`, `data` and `path` have their length (u32) before them.
//! Ids only tie the records together: whoever loads them gives new ones. A node is a znode or absent;
//! only a tree that is one of several has absent ones, sessions with visits, and such a table.
//!
//! Format 2 was the same without `prev`. Whoever loads it takes the czxids for the order of siblings; those of
//! one update are in the order of their names, names that are away before all others.

use crate::node::{Ext, Node, ROOT_ID, TTL_MS_MAX, ZnodeKind};
use crate::sites::{NewerLevel, SITE_MAX};
use crate::slab::NONE;
use alloc::vec::Vec;
use core::fmt;

/// The format that this server writes.
pub(crate) const FORMAT: u8 = 3;

/// The one before, without the order of siblings, which it reads too.
pub(crate) const FORMAT_WITHOUT_ORDER: u8 = 2;

pub(crate) mod tag {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const ACL: u8 = 2;
    pub(crate) const SESSION: u8 = 3;
    pub(crate) const ZNODE: u8 = 4;
    pub(crate) const END: u8 = 5;
    // The others are those of `crate::partitions::records` and `crate::sites::snapshot`.
}

pub(crate) mod flag {
    pub(crate) const EPHEMERAL: u8 = 1;
    pub(crate) const CONTAINER: u8 = 2;
    pub(crate) const TTL: u8 = 3;
    pub(crate) const KINDS: u8 = 3;
    pub(crate) const NULL_DATA: u8 = 4;
    pub(crate) const EXT: u8 = 8;
    pub(crate) const MARK: u8 = 16;
}

/// Why bytes are not a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadError {
    /// A slice ends in the middle of a record.
    Truncated,
    /// The snapshot has a format that this version does not read.
    UnknownFormat(u8),
    /// It is of a feature level that this version does not read.
    NewerLevel(NewerLevel),
    /// A record says something that cannot be.
    Malformed(&'static str),
    /// The snapshot has no end, or not as many records as it says.
    Incomplete,
    /// The records fit together, but are not the state that was written.
    DigestMismatch {
        /// The digest that the snapshot says it has.
        expected: u64,
        /// The one it has.
        found: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot cannot be loaded: ")?;
        match self {
            Self::Truncated => f.write_str("it ends in the middle of a record")?,
            Self::UnknownFormat(format) => {
                return write!(
                    f,
                    "it has format {format} and this version reads {FORMAT_WITHOUT_ORDER} to {FORMAT}: \
                     use the version that wrote it"
                );
            }
            Self::NewerLevel(newer) => return write!(f, "{newer}"),
            Self::Malformed(what) => f.write_str(what)?,
            Self::Incomplete => f.write_str("records are missing")?,
            Self::DigestMismatch { expected, found } => {
                write!(f, "its content has the digest {found:016x} and not {expected:016x}")?;
            }
        }
        f.write_str("; use another snapshot")
    }
}

impl core::error::Error for LoadError {}

pub(crate) type Result<T> = core::result::Result<T, LoadError>;

/// The record of a znode, complete in itself.
pub(crate) struct ZnodeRecord<'a> {
    /// The site that it is marked with, or 0.
    pub(crate) mark: u8,
    pub(crate) place: PlaceRecord,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) acl: u32,
    pub(crate) ext: Option<LoadedExt>,
    pub(crate) kind: ZnodeKind,
    pub(crate) name: &'a str,
    pub(crate) data: Option<&'a [u8]>,
}

/// What a record says of its place, in ids of the snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlaceRecord {
    pub(crate) id: u32,
    pub(crate) parent: u32,
    pub(crate) prev: u32,
}

impl PlaceRecord {
    pub(crate) fn decode(reader: &mut RecordReader<'_>, format: u8) -> Result<Self> {
        let (id, parent) = (reader.u32()?, reader.u32()?);
        let prev = if format == FORMAT_WITHOUT_ORDER { NONE } else { reader.u32()? };
        Ok(Self { id, parent, prev })
    }

    pub(crate) fn check(self, name: &str) -> Result<()> {
        let is_root = self.id == ROOT_ID;
        if self.id == NONE || is_root != (self.parent == NONE) || is_root != name.is_empty() {
            return Err(LoadError::Malformed("a znode has no parent or no name, or the root has one"));
        }
        if is_root && self.prev != NONE {
            return Err(LoadError::Malformed("the root has a sibling"));
        }
        if name.contains('/') {
            return Err(LoadError::Malformed("the name of a znode has a slash"));
        }
        Ok(())
    }
}

impl<'a> ZnodeRecord<'a> {
    pub(crate) fn decode(reader: &mut RecordReader<'a>, format: u8) -> Result<Self> {
        let flags = reader.u8()?;
        if flags & !(flag::KINDS | flag::NULL_DATA | flag::EXT | flag::MARK) != 0 {
            return Err(LoadError::Malformed("a znode has an unknown flag"));
        }
        let mark = if flags & flag::MARK == 0 { 0 } else { reader.u8()? };
        if (mark == 0) != (flags & flag::MARK == 0) || mark > SITE_MAX {
            return Err(LoadError::Malformed("a znode is marked with a site that is out of range"));
        }
        let place = PlaceRecord::decode(reader, format)?;
        let (czxid, mzxid) = (reader.i64()?, reader.i64()?);
        let (ctime, mtime) = (reader.i64()?, reader.i64()?);
        let (version, aversion) = (reader.i32()?, reader.i32()?);
        let acl = reader.u32()?;
        let ext = if flags & flag::EXT == 0 {
            None
        } else {
            let (pzxid, cversion, owner) = (reader.i64()?, reader.i32()?, reader.i64()?);
            Some(LoadedExt { pzxid, cversion, owner })
        };
        let name = reader.name()?;
        let data = reader.bytes()?;
        let data = (flags & flag::NULL_DATA == 0).then_some(data);
        let kind = kind_of(flags, ext.as_ref())?;

        place.check(name)?;
        if place.id == ROOT_ID && kind != ZnodeKind::Persistent {
            return Err(LoadError::Malformed("the root is not persistent"));
        }
        Ok(Self { mark, place, czxid, mzxid, ctime, mtime, version, aversion, acl, ext, kind, name, data })
    }
}

/// What a record says of a znode that has an [`crate::node::Ext`].
pub(crate) struct LoadedExt {
    pub(crate) pzxid: i64,
    pub(crate) cversion: i32,
    pub(crate) owner: i64,
}

/// Reads bytes that may be anything.
pub(crate) struct RecordReader<'a> {
    rest: &'a [u8],
}

impl<'a> RecordReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(LoadError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.u32()?).map_err(|_| LoadError::Truncated)?;
        let (head, tail) = self.rest.split_at_checked(len).ok_or(LoadError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn name(&mut self) -> Result<&'a str> {
        let name = core::str::from_utf8(self.bytes()?);
        name.map_err(|_| LoadError::Malformed("the name of a znode is not UTF-8"))
    }
}

fn kind_of(flags: u8, ext: Option<&LoadedExt>) -> Result<ZnodeKind> {
    match (flags & flag::KINDS, ext.map(|ext| ext.owner)) {
        (0, None | Some(0)) => Ok(ZnodeKind::Persistent),
        (flag::EPHEMERAL, Some(session)) => Ok(ZnodeKind::Ephemeral { session }),
        (flag::CONTAINER, Some(0)) => Ok(ZnodeKind::Container),
        (flag::TTL, Some(ttl_ms)) if (1..=TTL_MS_MAX).contains(&ttl_ms) => Ok(ZnodeKind::Ttl { ttl_ms }),
        _ => Err(LoadError::Malformed("a znode is of a kind that it cannot be")),
    }
}

/// Writes a znode.
pub(crate) fn write_znode(id: u32, node: &Node, ext: Option<&Ext>, out: &mut Vec<u8>) {
    out.extend_from_slice(&[tag::ZNODE, flags(node, ext)]);
    if node.mark() != 0 {
        out.push(node.mark());
    }
    put_place(id, node, out);
    for number in [node.czxid, node.mzxid, node.ctime(), node.mtime()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&node.version.to_le_bytes());
    out.extend_from_slice(&ext.map_or(0, |ext| ext.aversion).to_le_bytes());
    out.extend_from_slice(&node.acl.to_le_bytes());
    if let Some(ext) = ext {
        out.extend_from_slice(&ext.pzxid.to_le_bytes());
        out.extend_from_slice(&ext.cversion.to_le_bytes());
        out.extend_from_slice(&ext.owner.to_le_bytes());
    }
    put_bytes(out, node.name_bytes());
    put_bytes(out, node.data().unwrap_or_default());
}

fn flags(node: &Node, ext: Option<&Ext>) -> u8 {
    let null_data = if node.data().is_none() { flag::NULL_DATA } else { 0 };
    let kind = match ext.map(|ext| node.kind(ext)) {
        None | Some(ZnodeKind::Persistent) => 0,
        Some(ZnodeKind::Ephemeral { .. }) => flag::EPHEMERAL,
        Some(ZnodeKind::Container) => flag::CONTAINER,
        Some(ZnodeKind::Ttl { .. }) => flag::TTL,
    };
    let ext = if ext.is_some() { flag::EXT } else { 0 };
    let mark = if node.mark() != 0 { flag::MARK } else { 0 };
    null_data | kind | ext | mark
}

pub(crate) fn put_place(id: u32, node: &Node, out: &mut Vec<u8>) {
    for id in [id, node.parent, node.prev_sibling] {
        out.extend_from_slice(&id.to_le_bytes());
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len())
        .expect("names, data, ACLs and paths are bounded by the frame they came in");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}
