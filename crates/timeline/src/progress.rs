//! A partition's end of the log that all of them share: what is delivered to it, and what it knows of who leads.

use crate::shared_log::{Delivery, is_alone};
use alloc::collections::VecDeque;
use stoa_group::Members;

/// How far this server's lead has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// It follows, or waits for a leader.
    No,
    /// It is elected; what was proposed before may not all be applied.
    Elected,
    /// It prepares requests.
    Active,
}

#[derive(Debug)]
pub(crate) struct Progress {
    id: u64,
    /// Position and term of the last applied entry.
    pub(crate) applied: (u64, u64),
    /// Position of the last entry that is proposed here, or committed.
    last: u64,
    committed: u64,
    /// The term, and who leads; 0 when that is not known.
    pub(crate) term: u64,
    pub(crate) leader: u64,
    pub(crate) lead: Lead,
    members: Members,
    others: bool,
    alone: bool,
    delivered: VecDeque<Delivery>,
}

impl Progress {
    /// At a position and its term; `term` is the one that the disk speaks of.
    pub(crate) fn new(id: u64, applied: (u64, u64), term: u64, members: Members) -> Self {
        let mut progress = Self {
            id,
            applied,
            last: applied.0,
            committed: applied.0,
            term,
            leader: 0,
            lead: Lead::No,
            members: Members::default(),
            others: false,
            alone: false,
            delivered: VecDeque::new(),
        };
        progress.members_are(members);
        progress
    }

    /// The server's number.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether this server alone decides what is committed. (There may be others that listen.)
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether there are other members.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.others
    }

    #[inline]
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn has_member(&self, id: u64) -> bool {
        let Members { voters, outgoing, learners, .. } = &self.members;
        [voters, outgoing, learners].into_iter().any(|members| members.contains(&id))
    }

    pub(crate) fn members_are(&mut self, members: Members) {
        let all = members.voters.iter().chain(&members.outgoing).chain(&members.learners);
        self.others = all.into_iter().any(|member| *member != self.id);
        self.alone = is_alone(&members, self.id);
        self.members = members;
    }

    /// Where the next entry stands that is proposed here.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Position of the last entry, committed or not.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    #[inline]
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// An entry is proposed, and will stand there.
    #[inline]
    pub(crate) fn proposed(&mut self, position: u64) {
        self.last = position;
    }

    /// What was proposed and not committed may never be.
    pub(crate) fn abandon(&mut self) {
        self.last = self.committed;
    }

    /// Who leads has changed, or what this server is.
    pub(crate) fn leader_is(&mut self, term: u64, leader: u64, leads: bool) {
        (self.term, self.leader) = (term, leader);
        self.lead = if leads { Lead::Elected } else { Lead::No };
        self.abandon();
    }

    /// Everything up to there is committed.
    #[inline]
    pub(crate) fn is_committed(&mut self, position: u64) {
        self.committed = self.committed.max(position);
        self.last = self.last.max(position);
    }

    /// The state is another one.
    pub(crate) fn replaced(&mut self, applied: (u64, u64)) {
        self.applied = applied;
        self.committed = applied.0;
        self.last = applied.0;
        self.delivered.clear();
    }

    #[inline]
    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        self.delivered.push_back(delivery);
    }

    /// Whether everything that was delivered is taken.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.delivered.is_empty()
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }
}
