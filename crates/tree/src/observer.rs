//! What is told of an update while it is applied.

use crate::acl::AclView;
use crate::session::Contact;
use stoa_wire::{EventKind, PASSWORD_LEN, Stat};

/// Something that happened to a znode, for those who watch it.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Created, deleted, its data changed, or its children changed. Where the parent lives on another
    /// partition than the znode, the end or the beginning of the znode is told on the partition of the
    /// znode only, and that the children changed on that of the parent only: each where the watches
    /// are that listen to it.
    pub kind: EventKind,
    /// The znode.
    pub path: &'a str,
    /// The update that did it.
    pub zxid: i64,
    /// Who may see it: an event goes only to those who may READ the znode. For a deleted znode,
    /// the ACL it had.
    pub acl: AclView<'a>,
}

/// The result of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpResult<'a> {
    /// A znode was created.
    Created {
        /// Where: with the number, if it is sequential.
        path: &'a str,
        /// Its Stat.
        stat: Stat,
        /// Whether the reply carries the Stat: for all creates but opcode `create`.
        with_stat: bool,
    },
    /// A znode was deleted.
    Deleted,
    /// Data was set.
    DataSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// An ACL was set.
    AclSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// A version was checked.
    Checked {
        /// The Stat of the znode.
        stat: Stat,
    },
    /// A session was created, or its client came to another connection.
    SessionOpened {
        /// Its id.
        session: i64,
        /// Its timeout, milliseconds.
        timeout_ms: i32,
        /// Its password.
        password: [u8; PASSWORD_LEN],
        /// Where its client is now.
        contact: Contact,
    },
    /// A session was closed and its ephemerals are gone.
    SessionClosed {
        /// Its id.
        session: i64,
    },
}

/// A soft limit that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftQuota<'a> {
    /// The subtree with the quota.
    pub prefix: &'a str,
    /// Whether it is the bytes of data that are limited, or the number of znodes.
    pub bytes: bool,
    /// The limit.
    pub limit: i64,
    /// What is there.
    pub usage: i64,
}

/// Is told what an update does, while it is applied.
pub trait Observer {
    /// A znode changed. Calls come in the order of ZooKeeper's events, and before the result of
    /// the operation that caused them.
    fn changed(&mut self, change: &Change<'_>) {
        let _ = change;
    }

    /// An operation is done: one call for each, so several for a multi.
    fn result(&mut self, result: OpResult<'_>) {
        let _ = result;
    }

    /// The subtree at a path has come from another partition, or gone to one; without what lives elsewhere
    /// by a cut of its own. Nobody can see that in the state, so there is no change and no result.
    fn moved(&mut self, path: &str, is_here: bool) {
        let _ = (path, is_here);
    }

    /// A write brought a subtree above a soft limit, or further above it: worth a warning.
    fn quota_exceeded_softly(&mut self, quota: &SoftQuota<'_>) {
        let _ = quota;
    }
}

impl Observer for () {}
