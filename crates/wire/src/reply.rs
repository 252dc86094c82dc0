//! What a server sends after the handshake.

use crate::codec::{DecodeError, Reader, put};
use alloc::vec::Vec;

/// Stands at the start of each reply and watch notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The request's xid, or a special one (see [`crate::xid`]).
    pub xid: i32,
    /// The last zxid that the answer reflects.
    pub zxid: i64,
    /// An [`crate::ErrorCode`] as a number; a body follows only when it is 0.
    pub err: i32,
}

impl ReplyHeader {
    /// Size on the wire in bytes.
    pub const LEN: usize = 16;

    /// Appends the record.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.xid.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.zxid.to_be_bytes());
        bytes[12..].copy_from_slice(&self.err.to_be_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When fewer than 16 bytes are left.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { xid: reader.i32()?, zxid: reader.i64()?, err: reader.i32()? })
    }
}

/// What happened to a watched znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum EventKind {
    /// Only the connection's state changed.
    None = -1,
    /// The znode was created.
    Created = 1,
    /// The znode was deleted.
    Deleted = 2,
    /// The znode's data was set.
    DataChanged = 3,
    /// A child was created or deleted.
    ChildrenChanged = 4,
    /// A data watch was removed on request.
    DataWatchRemoved = 5,
    /// A child watch was removed on request.
    ChildWatchRemoved = 6,
    /// A persistent watch was removed on request.
    PersistentWatchRemoved = 7,
}

impl EventKind {
    /// The kind with this number.
    #[must_use]
    pub fn from_i32(kind: i32) -> Option<Self> {
        Some(match kind {
            -1 => Self::None,
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            5 => Self::DataWatchRemoved,
            6 => Self::ChildWatchRemoved,
            7 => Self::PersistentWatchRemoved,
            _ => return None,
        })
    }
}

/// The connection's state as a watch notification carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum KeeperState {
    /// Not connected.
    Disconnected = 0,
    /// Connected.
    SyncConnected = 3,
    /// Authentication failed.
    AuthFailed = 4,
    /// Connected to a read-only server.
    ConnectedReadOnly = 5,
    /// Authenticated by SASL.
    SaslAuthenticated = 6,
    /// The session has expired.
    Expired = -112,
    /// The client was closed.
    Closed = 7,
}

/// The body of a watch notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatcherEvent<'a> {
    /// An [`EventKind`] as a number.
    pub kind: i32,
    /// A [`KeeperState`] as a number.
    pub state: i32,
    /// The watched znode.
    pub path: &'a str,
}

impl<'a> WatcherEvent<'a> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.kind);
        put::i32(out, self.state);
        put::str(out, self.path);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When a field is missing or the path is not UTF-8.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { kind: reader.i32()?, state: reader.i32()?, path: reader.str()? })
    }
}
