//! Proposals, records, snapshots: what goes into the log, and what this server keeps of it.

use super::{FIRST, NotTaken, PartitionMessage, Timeline};
use crate::shared_log::{Append, Batches, Delivery, EntryId, Proposal, SnapshotHead};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::ProposeError;

impl<C: Copy + Ord> Timeline<C> {
    // ---- proposals ----

    /// Proposes an entry, which follows these of other partitions. Returns where it will stand.
    ///
    /// # Errors
    /// When the log cannot take it now, or this server does not lead.
    pub fn propose(&mut self, payload: Bytes, follows: Vec<EntryId>) -> Result<u64, ProposeError> {
        if let Some(log) = self.log.as_mut().filter(|_| self.config.partitions <= 1) {
            return log.propose(payload);
        }
        let EntryId { term, position, .. } = self.next_entry();
        self.progress.proposed(position);
        let proposal = Proposal { term, position, payload, follows };
        match &mut self.log {
            Some(log) => log.hand_over(FIRST, proposal),
            None => self.outbox.partitions.push_back((FIRST, PartitionMessage::Propose(proposal))),
        }
        Ok(position)
    }

    /// At the first partition: everything that partitions have proposed goes into the log, as one entry.
    pub fn propose_batch(&mut self) {
        if let Some(log) = self.log.as_mut().filter(|_| self.config.partitions > 1) {
            log.propose_handed();
        }
    }

    /// The batches that were made here since the server began: none but at the first of several partitions.
    #[must_use]
    pub fn batches(&self) -> Batches {
        self.log.as_ref().map_or_else(Batches::default, |log| log.batches())
    }

    /// Whether something that was proposed should not wait for more to go with it.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_urgent())
    }

    /// Bytes that partitions have proposed and [`Timeline::propose_batch`] would take.
    #[must_use]
    pub fn proposed_bytes(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.handed_bytes())
    }

    // ---- the other partitions of this server ----

    /// The timeline of another partition says something.
    pub fn hear(&mut self, from: u8, message: PartitionMessage) {
        match (message, &mut self.log) {
            (PartitionMessage::Propose(proposal), Some(log)) => log.hand_over(from, proposal),
            (PartitionMessage::Ask(question), Some(log)) => log.ask(from, question),
            (PartitionMessage::Deliver(delivery), None) => self.progress.deliver(delivery),
            _ => debug_assert!(false, "the log stands with the first partition alone"),
        }
    }

    /// The next thing for another partition.
    pub fn poll_message(&mut self) -> Option<(u8, PartitionMessage)> {
        self.outbox.partitions.pop_front()
    }

    // ---- records ----

    /// The next record for the disk.
    pub fn poll_append(&mut self) -> Option<Append> {
        self.log.as_mut()?.poll_append()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_appends(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.has_appends())
    }

    /// Records with the disk, or on their way to it.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.in_flight())
    }

    /// The disk holds the records up to this one. Returns whether the state is now that of the snapshot which was
    /// being taken over: see [`Timeline::replaced`].
    pub fn stored(&mut self, record: u64) -> bool {
        self.log.as_mut().is_some_and(|log| log.appended(record))
    }

    /// The disk has refused the records of this generation. `None` when that is known already, else
    /// whether the group goes on, with what is durable.
    pub fn refused(&mut self, generation: u64) -> Option<bool> {
        let goes_on = self.log.as_mut()?.refused(generation)?;
        if let Some(parent) = self.readers.parent.as_mut().filter(|_| goes_on) {
            // Not at once: there may be no room for a while.
            parent.is_to_place = true;
        }
        for partition in 1..self.config.partitions {
            self.deliver(partition, Delivery::NoRoom);
        }
        Some(goes_on)
    }

    /// What was proposed is not in the log: this server leads no more, and follows nobody until it hears of a leader.
    pub fn has_no_room(&mut self) {
        let term = self.log.as_ref().map_or(self.progress.term, |log| log.term());
        if self.is_reader() && self.log.is_some() {
            // It hears anew who leads, and so do the others.
            self.nobody_is_known_to_lead();
        } else {
            self.leader_is(term, 0, false);
        }
    }

    /// Tries to lead, if nobody else could.
    pub fn lead_if_alone(&mut self) {
        if let Some(log) = &mut self.log {
            log.lead_if_alone();
        }
    }

    // ---- snapshots ----

    /// At the first partition: what a snapshot of all that is divided by now begins with. `None` while one from
    /// another server is being taken over.
    pub fn begin_snapshot(&mut self) -> Option<SnapshotHead> {
        self.log.as_mut().filter(|log| !log.is_taking_over()).map(|log| log.begin_snapshot())
    }

    /// Where there are several partitions: each comes to where the snapshot with this number is taken.
    pub fn snapshot_is_here(&mut self, number: u64) {
        self.deliver_to_all(&Delivery::Snapshot(number));
    }

    /// At a reader: takes over a snapshot of its parent's.
    pub(super) fn adopt(&mut self, message: &stoa_group::Message) -> Result<(u64, u64), NotTaken> {
        let mark = message.snapshot().ok_or(NotTaken::Bad)?;
        let at = (mark.position, mark.term);
        if self.log.as_mut().is_some_and(|log| log.adopt(mark)) {
            return Ok(at);
        }
        // It is of no use: something newer is here.
        self.tell_place();
        Err(NotTaken::Refused("the snapshot of this reader's parent is of no use".into()))
    }

    /// Whether a snapshot from another server is being taken over.
    #[must_use]
    pub fn is_taking_over(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_taking_over())
    }

    /// At the first partition: the log goes on from a snapshot of another server, at this position of the log, in
    /// which the partitions stand here. Tells them who the members are; what their states are then, and
    /// [`Timeline::replaced`], is for whoever has loaded them.
    pub fn log_replaced(&mut self, position: u64, positions: impl Iterator<Item = u64>) {
        let Some(log) = &mut self.log else { return };
        let members = log.members();
        log.replaced(position, positions);
        for partition in 1..self.config.partitions {
            self.deliver(partition, Delivery::Members(members.clone().into()));
        }
        self.forest_has(&members);
        self.progress.members_are(members);
        self.tell_place();
    }

    /// The state is another server's, at this position and term. What was asked before has no outcome that could be
    /// known here.
    pub fn replaced(&mut self, position: u64, term: u64) {
        self.forget_requests(|_| ());
        self.barriers.forget();
        // What they are given next would not follow what they have been given.
        self.readers.drop_children("this server has taken over another state");
        self.progress.replaced((position, term));
        self.election.settled_in = 0;
    }

    /// Up to which position of the log everything is divided among the partitions, at the first one; with one
    /// partition, is applied.
    #[must_use]
    pub fn divided(&self) -> u64 {
        match &self.log {
            Some(log) if self.config.partitions > 1 => log.divided(),
            _ => self.progress.applied.0,
        }
    }
}
