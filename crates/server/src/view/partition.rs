//! What each partition of a server has, and what is asked of it.

use super::Timeline;

/// One partition of a server: a slice of the tree, and the thread that it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// From 0; the first one has the root and the sessions.
    pub number: u64,
    /// Where the server stands on its timeline.
    pub timeline: Timeline,
    /// Znodes that live on it.
    pub znodes: u64,
    /// About how many bytes their paths and data take.
    pub data_bytes: u64,
    /// Clients that are connected to its thread.
    pub connections: u64,
    /// Of the requests of these clients those for this partition.
    pub requests_kept: u64,
    /// And those for others.
    pub requests_handed_over: u64,
    /// Where there are several: what it is asked, reads a second; this and what follows is sampled, and of the
    /// last second or so.
    pub reads: u64,
    /// Writes a second.
    pub writes: u64,
    /// About how much of its thread that takes, without sockets and log; 1 is all of it.
    pub busy: f64,
    /// And what is asked of its subtrees, the busiest first.
    pub subtrees: Vec<Subtree>,
}

/// What is asked of a subtree.
#[derive(Clone, Debug, PartialEq)]
pub struct Subtree {
    /// The znode that it begins with.
    pub path: String,
    /// Reads a second.
    pub reads: u64,
    /// Writes a second.
    pub writes: u64,
    /// Bytes of both a second.
    pub bytes: u64,
    /// As that of the partition.
    pub busy: f64,
}
