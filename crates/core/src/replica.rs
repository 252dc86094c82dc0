//! This server's copy of the timeline: the member of the group, and what of it is with the log.
//!
//! The group says what is to be stored; each store becomes a record, and records have the positions
//! of the log. What the log refuses for lack of room is undone as if the process had ended and begun
//! again: that is always safe.

use crate::restore::Recovered;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{Config, Coverage, Group, Mark, Members, Output, Pieces, ProposeError, Role, Status, Store};

/// The timeline of the first partition; those of the others follow.
pub const TIMELINE: u32 = 0;

/// A record for the log.
#[derive(Debug, Clone)]
pub struct Append {
    /// Grows each time that the log has refused records: those of an earlier generation are void,
    /// and whoever carries them to the log drops them.
    pub generation: u64,
    /// Whose record it is.
    pub timeline: u32,
    /// Its place in the log.
    pub position: u64,
    /// Its bytes.
    pub payload: Pieces,
    /// The record builds on a snapshot that has come from another server: before it is appended,
    /// the snapshot must be durable among this server's own.
    pub snapshot: Option<TakenOver>,
}

/// How a snapshot from another server becomes one of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Where on the timeline it stands.
    pub position: u64,
    /// The last record that it covers.
    pub covered: u64,
    /// Its first chunk here, in place of the sender's.
    pub head: Vec<u8>,
}

struct InFlight {
    record: u64,
    /// The group's number for it; `None` for what the group did not ask for.
    number: Option<u64>,
    /// Where the timeline ends behind it.
    end: Option<u64>,
    takes_over: bool,
}

/// How far this server's lead has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// It follows, or waits for a leader.
    No,
    /// It is elected; what was proposed before may not all be applied.
    Elected,
    /// It prepares requests.
    Active,
}

pub(crate) struct Replica {
    id: u64,
    timeline: u32,
    config: Config,
    group: Group,
    queue: VecDeque<Append>,
    in_flight: VecDeque<InFlight>,
    generation: u64,
    next_record: u64,
    coverage: Coverage,
    /// Position and term of the last applied entry.
    pub(crate) applied: (u64, u64),
    /// The term that the group is in, and who leads it; 0 when that is not known.
    pub(crate) term: u64,
    pub(crate) leader: u64,
    pub(crate) lead: Lead,
    /// Whether this server votes alone.
    alone: bool,
    others: bool,
}

impl Replica {
    pub(crate) fn new(config: Config, partition: u8, recovered: &Recovered) -> Option<Self> {
        let Recovered { restored, snapshot, record, covered, .. } = recovered;
        let mut group = Group::new(&config, restored)?;
        if let Some(mark) = snapshot {
            group.offer_snapshot(mark.clone());
        }
        let mut replica = Self {
            id: config.id,
            timeline: TIMELINE + u32::from(partition),
            config,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            generation: 0,
            next_record: record + 1,
            coverage: Coverage::new(*covered, *record, restored.last()),
            applied: (restored.base.position, restored.base.term),
            term: restored.vote.term,
            leader: 0,
            lead: Lead::No,
            alone: false,
            others: false,
            group,
        };
        replica.find_out_whether_alone();
        if *record == 0 && snapshot.is_none() && restored.base.position > 0 {
            // Who the members are stands at the beginning of the log.
            let birth = replica.group.snapshot_head();
            replica.store(&birth, None);
        }
        replica.begin();
        Some(replica)
    }

    /// Nobody else could be elected: there is nothing to wait for.
    fn begin(&mut self) {
        if self.alone {
            self.group.campaign();
        }
    }

    fn find_out_whether_alone(&mut self) {
        let members = self.members();
        let all = members.voters.iter().chain(&members.outgoing).chain(&members.learners);
        self.others = all.into_iter().any(|member| *member != self.id);
        self.alone = members.voters == [self.id] && members.outgoing.is_empty();
    }

    /// Whether this server alone decides what is committed. (There may be others that listen.)
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether there are other members.
    pub(crate) fn has_others(&self) -> bool {
        self.others
    }

    pub(crate) fn is_taking_over(&self) -> bool {
        self.group.is_taking_over()
    }

    pub(crate) fn timeline(&self) -> u32 {
        self.timeline
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn members(&self) -> Members {
        self.group.status().members
    }

    pub(crate) fn has_member(&self, id: u64) -> bool {
        self.group.has_member(id)
    }

    pub(crate) fn status(&self) -> Status {
        self.group.status()
    }

    /// Questions of all servers where the timeline ends, which this one has not answered as their leader.
    pub(crate) fn pending_reads(&self) -> usize {
        if self.lead == Lead::No { 0 } else { self.group.pending_reads() }
    }

    pub(crate) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    /// The next thing that the group wants done besides storing.
    pub(crate) fn poll_group(&mut self) -> Option<Output> {
        loop {
            match self.group.poll()? {
                Output::Store(store) => self.store(&store, Some(store.number)),
                Output::Members(members) => {
                    self.find_out_whether_alone();
                    return Some(Output::Members(members));
                }
                Output::Leader { term, leader, role } => {
                    (self.term, self.leader) = (term, leader);
                    self.lead = if role == Role::Leader { Lead::Elected } else { Lead::No };
                    return Some(Output::Leader { term, leader, role });
                }
                output => return Some(output),
            }
        }
    }

    fn store(&mut self, store: &Store, number: Option<u64>) {
        let record = self.next_record;
        self.next_record += 1;
        let snapshot = store.snapshot.as_ref().filter(|_| number.is_some()).map(|mark| {
            let vote = store.vote.unwrap_or(self.group.vote());
            let head =
                Store { number: 0, snapshot: Some(mark.clone()), vote: Some(vote), entries: Vec::new() };
            TakenOver { position: mark.position, covered: record - 1, head: head.encode().join().into() }
        });
        let takes_over = snapshot.is_some();
        let payload = store.encode();
        let (generation, timeline) = (self.generation, self.timeline);
        self.queue.push_back(Append { generation, timeline, position: record, payload, snapshot });
        self.in_flight.push_back(InFlight { record, number, end: store.end(), takes_over });
    }

    pub(crate) fn propose(&mut self, payload: Bytes) -> Result<u64, ProposeError> {
        self.group.propose(payload)
    }

    pub(crate) fn poll_append(&mut self) -> Option<Append> {
        self.queue.pop_front()
    }

    pub(crate) fn has_appends(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Records with the log, or on their way to it.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The log holds the records up to `position`. Returns whether the state is now that of the
    /// snapshot which was being taken over.
    pub(crate) fn appended(&mut self, position: u64) -> bool {
        let mut number = None;
        let mut taken_over = false;
        while let Some(done) = self.in_flight.pop_front_if(|in_flight| in_flight.record <= position) {
            self.coverage.written(done.record, done.end);
            number = done.number.or(number);
            taken_over |= done.takes_over;
        }
        if let Some(number) = number {
            self.group.stored(number);
        }
        if taken_over {
            self.find_out_whether_alone();
        }
        taken_over
    }

    /// The log has refused the records of this generation. `None` when that is known already, else
    /// whether the group goes on, with what is durable.
    pub(crate) fn refused(&mut self, generation: u64) -> Option<bool> {
        if generation != self.generation {
            return None;
        }
        self.generation += 1;
        self.next_record -= self.in_flight.len() as u64;
        let birth = self.in_flight.iter().any(|in_flight| in_flight.number.is_none());
        self.in_flight.clear();
        self.queue.clear();
        let restored = self.group.durable();
        let rebuilt = restored.and_then(|restored| {
            // Another run of the group: its timeouts must not be those of the one before.
            self.config.seed = self.config.seed.wrapping_add(1);
            Some((Group::new(&self.config, &restored)?, restored.vote.term))
        });
        let Some((group, term)) = rebuilt else { return Some(false) };
        self.group = group;
        (self.term, self.leader, self.lead) = (term, 0, Lead::No);
        if birth {
            let birth = self.group.snapshot_head();
            self.store(&birth, None);
        }
        Some(true)
    }

    /// Tries to lead, if nobody else could.
    pub(crate) fn lead_if_alone(&mut self) {
        if self.alone && self.lead == Lead::No {
            self.begin();
        }
    }

    /// What a snapshot of the state as it is now begins with, its mark, and the last record that it
    /// covers. `learners_count` is a planted bug.
    pub(crate) fn begin_snapshot(&mut self, learners_count: bool) -> (Vec<u8>, Mark, u64) {
        let mut head = self.group.snapshot_head();
        if let Some(Mark { members, .. }) = head.snapshot.as_mut().filter(|_| learners_count) {
            members.voters.append(&mut members.learners);
        }
        let mark = head.snapshot.clone().unwrap_or_default();
        let covered = self.coverage.covered(mark.position);
        (head.encode().join().into(), mark, covered)
    }
}
