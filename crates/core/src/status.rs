//! Where a server stands among the others, for operators.

use crate::replica::Replica;
use alloc::vec::Vec;
use stoa_timeline::{Lead, server_id};

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
    /// Who leads; 0 when that is not known.
    pub leader: u8,
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

impl Replica {
    /// Whether clients are served what the ensemble agrees on. One of several without room for it has no
    /// more than it had.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.is_in_quorum() && (!self.is_out_of_room() || self.timeline.is_alone())
    }

    /// Who leads, as far as this server knows; 0 when that is not known.
    #[must_use]
    pub fn leader(&self) -> u8 {
        self.timeline.leader()
    }

    /// At the leader: questions of all servers where the timeline ends, for the syncs and the linearizable reads of
    /// their clients, that are not answered yet.
    #[must_use]
    pub fn pending_syncs(&self) -> usize {
        self.timeline.pending_reads()
    }

    /// Those who are to vote by the list of servers, and do not yet.
    #[must_use]
    pub fn joining(&self) -> Vec<u8> {
        let wanted = self.membership().unwrap_or_default();
        let without = self.timeline.members().learners.iter().copied().map(server_id);
        without.filter(|member| wanted.votes(*member)).collect()
    }

    /// Where this server stands among the others.
    #[must_use]
    pub fn status(&self) -> Status {
        let id = self.config.server_id;
        let ids = |members: &[u64]| members.iter().map(|member| server_id(*member)).collect::<Vec<_>>();
        let members = self.timeline.members();
        let (voters, observers) = (ids(&members.voters), ids(&members.learners));
        let role = match self.timeline.lead() {
            _ if self.is_read_only() => Role::ReadOnly,
            _ if !self.serves() => Role::Looking,
            Lead::Active if !self.timeline.has_others() => Role::Standalone,
            Lead::Active => Role::Leader,
            _ if observers.contains(&id) => Role::Observer,
            _ => Role::Follower,
        };
        let applied = self.timeline.applied_at().0;
        let (mut term, mut leader) = (self.timeline.term(), self.timeline.leader());
        let (mut last, mut committed, mut matched) =
            (self.timeline.last(), self.timeline.committed(), Vec::new());
        if let Some(status) = self.timeline.status() {
            // Where there are several partitions the log counts otherwise than each of them.
            let here = |position: u64| (applied + position).saturating_sub(self.log_applied());
            (term, leader) = (status.term, server_id(status.leader));
            (last, committed) = (here(status.last), here(status.committed));
            matched = status.matched.iter().map(|(member, at)| (server_id(*member), here(*at))).collect();
        }
        Status {
            id,
            role,
            leader,
            term,
            last,
            committed,
            applied,
            voters,
            observers,
            outgoing: ids(&members.outgoing),
            matched,
        }
    }
}
