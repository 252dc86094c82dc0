//! What a partition knows of a connection whose client is connected to a front.

use crate::connection::{Connection, ConnectionId};
use alloc::boxed::Box;
use stoa_partition::After;
use stoa_wire::Timestamp;

/// What a connection is when its client is connected to a front.
#[derive(Debug)]
pub struct RemoteClient {
    /// The thread of its front.
    pub front: u8,
    /// Its name there.
    pub client: ConnectionId,
    /// What its client has seen.
    pub seen: Timestamp,
    /// Where on the first partition's timeline its session came to it.
    pub since: u64,
    /// By what is known of sessions after so many changes, it speaks for its own.
    pub known_at: Option<u64>,
    /// What it has seen was added to what the partition's entries rest on, the last time that this was begun anew.
    pub rests_at: Option<u64>,
    /// Whoever leads this partition knows that, now and later.
    pub is_known: bool,
    /// The version of the table by which its requests come here.
    pub placed: u64,
    /// Whether the front knows that it has a session.
    pub is_told: bool,
    /// The last zxid that its client was told, here or elsewhere, when it came.
    pub last_zxid: i64,
    /// At the first partition: whether it has been caught up with.
    pub came: Came,
    /// A write that was pipelined was given back, and all are that follow, until one is not pipelined.
    pub gives_back: bool,
    /// What it asks just now was pipelined.
    pub is_pipelined: bool,
}

impl RemoteClient {
    /// Its client has seen that.
    pub fn has_seen(&mut self, seen: &Timestamp) {
        self.seen.merge(seen);
        self.rests_at = None;
    }
}

/// Whether all partitions here have what a client was shown before it came, as the first one knows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Came {
    /// Nobody has asked.
    #[default]
    New,
    /// It waits for that, with its first frame.
    Waits(Box<[u8]>),
    /// They have.
    CaughtUp,
}

impl Connection {
    /// What its next request rests on.
    #[must_use]
    pub fn after(&self) -> After {
        self.remote.as_ref().map_or_else(After::default, |remote| After {
            since: remote.since,
            placed: remote.placed,
            seen: remote.seen.clone(),
        })
    }
}
