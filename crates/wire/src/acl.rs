//! Access control lists.

use crate::codec::{DecodeError, Reader, put};
use alloc::vec::Vec;

/// Permission bits of an [`Acl`].
pub mod perms {
    /// Read data, list children.
    pub const READ: i32 = 1;
    /// Set data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Set the ACL.
    pub const ADMIN: i32 = 16;
    /// All of them.
    pub const ALL: i32 = 31;
}

/// One entry of an ACL: what the identity `scheme:id` may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl<'a> {
    /// Permission bits, see [`perms`].
    pub perms: i32,
    /// `world`, `auth`, `digest`, `ip`, ...
    pub scheme: &'a str,
    /// The identity within the scheme.
    pub id: &'a str,
}

/// The ACL `world:anyone` with all permissions (`OPEN_ACL_UNSAFE`).
pub const OPEN_ACL: &[Acl<'static>] = &[Acl { perms: perms::ALL, scheme: "world", id: "anyone" }];

/// The ACL `world:anyone` with read permission (`READ_ACL_UNSAFE`).
pub const READ_ACL: &[Acl<'static>] = &[Acl { perms: perms::READ, scheme: "world", id: "anyone" }];

/// An ACL as it stands in a frame: checked when decoded, read by iterating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclList<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> AclList<'a> {
    /// Checks the vector and borrows it.
    ///
    /// # Errors
    /// When an entry is cut short or not UTF-8.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.count(12)?;
        let start = reader.rest();
        for _ in 0..count {
            decode_entry(reader)?;
        }
        let used = start.len() - reader.rest().len();
        Ok(Self { count, bytes: start.get(..used).unwrap_or_default() })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries as they stand on the wire, without the count: equal bytes are equal lists.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = Acl<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // The bytes were checked by `decode`, so no entry is lost to `ok()`.
        (0..self.count).map_while(move |_| decode_entry(&mut reader).ok())
    }
}

fn decode_entry<'a>(reader: &mut Reader<'a>) -> Result<Acl<'a>, DecodeError> {
    Ok(Acl { perms: reader.i32()?, scheme: reader.str()?, id: reader.str()? })
}

impl Acl<'_> {
    /// Appends a vector of entries.
    pub fn encode_list<'b>(out: &mut Vec<u8>, list: impl ExactSizeIterator<Item = Acl<'b>>) {
        put::len(out, list.len());
        for entry in list {
            entry.encode(out);
        }
    }

    /// Appends one entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.perms);
        put::str(out, self.scheme);
        put::str(out, self.id);
    }
}
