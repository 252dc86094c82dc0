//! Where a server stands among the others, for operators.

use alloc::vec::Vec;

/// What a server is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// There are no others.
    Standalone,
    /// It leads, and prepares requests.
    Leader,
    /// It follows a leader, and votes.
    Follower,
    /// It follows a leader, and has no vote.
    Observer,
    /// It has known of no leader for a while, and only reads, for clients that have said that this will do.
    ReadOnly,
    /// It knows of no leader, waits for what a new leader found committed, or has no room for it.
    Looking,
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub id: u8,
    /// What it is.
    pub role: Role,
    /// Who leads, if that is known.
    pub leader: Option<u8>,
    /// The term.
    pub term: u64,
    /// Position of the last entry, durable or not.
    pub last: u64,
    /// Position up to which entries are known to be committed.
    pub committed: u64,
    /// Position of the last applied entry.
    pub applied: u64,
    /// Those who vote.
    pub voters: Vec<u8>,
    /// Those who follow without a vote.
    pub observers: Vec<u8>,
    /// Those who voted before the change of members that is under way: until it is complete, they are
    /// needed as well.
    pub outgoing: Vec<u8>,
    /// At the leader: up to which position each other member has the entries.
    pub matched: Vec<(u8, u64)>,
}
