//! Where a server stands among the others, for operators.

use crate::replica::Replica;
use crate::status::{Role, Status};
use alloc::vec::Vec;
use stoa_timeline::{ForestStatus, GivenSnapshot, Lead, SnapshotCounts, server_of, servers_of};

impl Replica {
    /// Whether clients are served what the ensemble agrees on. One of several without room for it has no
    /// more than it had.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.is_in_quorum() && self.has_joined() && (!self.is_out_of_room() || self.timeline.is_alone())
    }

    /// Whether this server leads, and everything is applied that was committed before its time.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.timeline.leads()
    }

    /// Who leads, as far as this server knows.
    #[must_use]
    pub fn leader(&self) -> Option<u8> {
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
        let without = servers_of(&self.timeline.members().learners);
        without.into_iter().filter(|server| wanted.votes(*server)).collect()
    }

    /// How it stands with the trees down which appends go; `None` where there cannot be any, and at other partitions than
    /// the first one.
    #[must_use]
    pub fn forest_status(&self) -> Option<ForestStatus> {
        self.timeline.forest_status()
    }

    /// Snapshots of which this server knows that they are on their way to members, and how many there were.
    #[must_use]
    pub fn given_snapshots(&self) -> (Vec<GivenSnapshot>, SnapshotCounts) {
        (self.timeline.given_snapshots(), self.timeline.snapshots_between())
    }

    /// Where this server stands among the others.
    #[must_use]
    pub fn status(&self) -> Status {
        let id = self.config.server_id;
        let members = self.timeline.members();
        let (voters, observers) = (servers_of(&members.voters), servers_of(&members.learners));
        let role = match self.timeline.lead() {
            _ if self.is_read_only() => Role::ReadOnly,
            _ if !self.serves() => Role::Looking,
            Lead::Active if !self.timeline.has_others() => Role::Standalone,
            Lead::Active => Role::Leader,
            _ if observers.contains(&id) || self.timeline.is_reader() => Role::Observer,
            _ => Role::Follower,
        };
        let applied = self.timeline.applied_at().0;
        let (mut term, mut leader) = (self.timeline.term(), self.timeline.leader());
        let (mut last, mut committed, mut matched) =
            (self.timeline.last(), self.timeline.committed(), Vec::new());
        if let Some(status) = self.timeline.status() {
            // Where there are several partitions the log counts otherwise than each of them.
            let here = |position: u64| (applied + position).saturating_sub(self.log_applied());
            (term, leader) = (status.term, server_of(status.leader));
            (last, committed) = (here(status.last), here(status.committed));
            let matches = status.matched.iter();
            matched = matches.filter_map(|(member, at)| Some((server_of(*member)?, here(*at)))).collect();
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
            outgoing: servers_of(&members.outgoing),
            matched,
        }
    }
}
