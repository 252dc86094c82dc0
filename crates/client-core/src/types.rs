//! What calls take and give back.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use stoa_wire::{CreateMode, ErrorCode, EventKind, Stat, perms};

/// One entry of an ACL: what the identity `scheme:id` may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl {
    /// Permission bits, see [`perms`].
    pub perms: i32,
    /// `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// The identity within the scheme.
    pub id: String,
}

impl Acl {
    /// An entry.
    #[must_use]
    pub fn new(perms: i32, scheme: &str, id: &str) -> Self {
        Self { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// Everything to everybody.
    #[must_use]
    pub fn open() -> Vec<Self> {
        vec![Self::new(perms::ALL, "world", "anyone")]
    }

    /// Everything to the identities of whoever creates the znode, nothing to others.
    #[must_use]
    pub fn creator_only() -> Vec<Self> {
        vec![Self::new(perms::ALL, "auth", "")]
    }

    /// The entry as the wire format has it.
    pub(crate) fn as_wire(&self) -> stoa_wire::Acl<'_> {
        stoa_wire::Acl { perms: self.perms, scheme: &self.scheme, id: &self.id }
    }
}

/// An identity of the connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `ip`, `digest`, ...
    pub scheme: String,
    /// The user within the scheme; secrets are left out.
    pub user: String,
}

/// Something happened to a watched znode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// To which znode.
    pub path: String,
    /// The zxid of the change; -1 from servers before 3.9.
    pub zxid: i64,
}

/// Why a watch reports nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// It reports one event, and has.
    Fired,
    /// It was removed by `remove_watches`.
    Removed,
    /// Its session has ended.
    SessionLost,
    /// Events came faster than they were read, so some are missing.
    Lagged,
}

/// How the client stands with its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No session yet: looking for a server.
    Connecting,
    /// Connected, with a session.
    Connected,
    /// Connected to a server that only answers reads for now.
    ConnectedReadOnly,
    /// The connection is lost; the session may be alive. Nothing that the session protects (a lock,
    /// a leadership) is certain until it is [`State::Connected`] again.
    Suspended,
    /// The session has ended, and its ephemerals and watches with it. The client goes on to open a
    /// new one.
    Lost,
    /// An identity was refused. The client has ended.
    AuthFailed,
    /// The client was closed.
    Closed,
}

impl State {
    /// Whether calls reach a server.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::ConnectedReadOnly)
    }

    /// Whether this is the last state of the client.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::AuthFailed | Self::Closed)
    }
}

/// One operation of a multi.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same names")]
pub enum Operation {
    Create { path: String, data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode, ttl_ms: Option<i64> },
    Delete { path: String, version: Option<i32> },
    SetData { path: String, data: Vec<u8>, version: Option<i32> },
    Check { path: String, version: Option<i32> },
}

/// What an operation of a multi answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same names")]
pub enum OperationResult {
    /// With the Stat for containers and TTL znodes only.
    Created {
        path: String,
        stat: Option<Stat>,
    },
    Deleted,
    DataSet {
        stat: Stat,
    },
    Checked,
    /// Failed ([`ErrorCode::Ok`] for those before the one that failed,
    /// [`ErrorCode::RuntimeInconsistency`] for those after it).
    Failed(ErrorCode),
}

/// One operation of a multi_read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same names")]
pub enum ReadOperation {
    GetData { path: String },
    GetChildren { path: String },
}

/// What an operation of a multi_read answers; each succeeds or fails on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same names")]
pub enum ReadResult {
    Data { data: Vec<u8>, stat: Stat },
    Children(Vec<String>),
    Failed(ErrorCode),
}
