//! The `Stat` record.

use crate::codec::{DecodeError, Reader};
use alloc::vec::Vec;

/// What a client may know of a znode besides its data: 68 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// zxid of the creation.
    pub czxid: i64,
    /// zxid of the last change of the data.
    pub mzxid: i64,
    /// Creation time, milliseconds since the epoch.
    pub ctime: i64,
    /// Time of the last change of the data, milliseconds since the epoch.
    pub mtime: i64,
    /// Number of changes of the data.
    pub version: i32,
    /// Number of changes of the children, as a client sees it (`2 * creates - children`).
    pub cversion: i32,
    /// Number of changes of the ACL.
    pub aversion: i32,
    /// 0, the owning session, or the encoded kind (container, TTL).
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// zxid of the last creation or deletion of a child.
    pub pzxid: i64,
}

impl Stat {
    /// Size on the wire in bytes.
    pub const LEN: usize = 68;

    /// Appends the record.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::LEN];
        let mut rest: &mut [u8] = &mut bytes;
        let mut put = |field: &[u8]| {
            let (head, tail) = core::mem::take(&mut rest).split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        };
        put(&self.czxid.to_be_bytes());
        put(&self.mzxid.to_be_bytes());
        put(&self.ctime.to_be_bytes());
        put(&self.mtime.to_be_bytes());
        put(&self.version.to_be_bytes());
        put(&self.cversion.to_be_bytes());
        put(&self.aversion.to_be_bytes());
        put(&self.ephemeral_owner.to_be_bytes());
        put(&self.data_length.to_be_bytes());
        put(&self.num_children.to_be_bytes());
        put(&self.pzxid.to_be_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When fewer than 68 bytes are left.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            czxid: reader.i64()?,
            mzxid: reader.i64()?,
            ctime: reader.i64()?,
            mtime: reader.i64()?,
            version: reader.i32()?,
            cversion: reader.i32()?,
            aversion: reader.i32()?,
            ephemeral_owner: reader.i64()?,
            data_length: reader.i32()?,
            num_children: reader.i32()?,
            pzxid: reader.i64()?,
        })
    }
}
