//! What is committed, for whoever is no member.
//!
//! A **reader** follows a timeline without belonging to its group: it is given what is committed, and nothing else, by a
//! member or by another reader. So nothing of it is ever void, no leader counts on it, and none knows of it. For the
//! engine it is a server that the members do not know: it has no vote, wants none, and what it would answer goes nowhere.
//!
//! What it is given has a sender and a term of this module's making: whoever feeds it need not know who leads, and
//! may be behind the one that fed it before.

use crate::check;
use crate::group::{Group, StepError};
use crate::held::Mark;
use crate::message::Message;
use alloc::boxed::Box;
use alloc::vec::Vec;
use raft::Storage as _;
use raft::eraftpb::{self, MessageType};

/// Who feeds, for the engine: the number of no member, and far enough from the end of the range to travel.
const FEEDER: u64 = 1 << 40;
/// Who is fed, where a message has to say whom it is for.
const FED: u64 = FEEDER + 1;

impl Group {
    /// Position up to which everything is known to be committed.
    #[must_use]
    #[inline]
    pub fn committed(&self) -> u64 {
        self.raft.raft.raft_log.committed
    }

    /// Position before the first entry that is kept.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.held().base_position()
    }

    /// The term of the entry at this position, if that is kept.
    #[must_use]
    pub fn term_at(&self, position: u64) -> Option<u64> {
        self.held().term_at(position)
    }

    /// The newest snapshot that others can be given.
    #[must_use]
    pub fn offered(&self) -> Option<&Mark> {
        self.held().offered()
    }

    /// What is committed behind a position, as much as a message carries, for a reader whose timeline ends there, and
    /// nothing behind `upto`. `None` where there is nothing, or what follows the position is not kept any more.
    #[must_use]
    pub fn feed_behind(&self, position: u64, upto: u64) -> Option<Message> {
        let engine = &self.raft.raft;
        let committed = engine.raft_log.committed.min(upto);
        let log_term = self.held().term_at(position).filter(|_| position < committed)?;
        let context = raft::GetEntriesContext::empty(false);
        let entries = self.held().entries(position + 1, committed + 1, engine.max_msg_size, context).ok()?;
        let last = entries.last()?.index;
        let mut raft = eraftpb::Message {
            from: FEEDER,
            term: engine.term,
            index: position,
            log_term,
            commit: last,
            ..Default::default()
        };
        raft.set_msg_type(MessageType::MsgAppend);
        raft.set_entries(entries.into());
        Some(Message { raft: Box::new(raft) })
    }

    /// A message that says which snapshot it goes with, for a reader.
    #[must_use]
    pub fn feed_snapshot(&self, mark: &Mark) -> Message {
        let term = self.raft.raft.term;
        let mut raft = eraftpb::Message { from: FEEDER, to: FED, term, ..Default::default() };
        raft.set_msg_type(MessageType::MsgSnapshot);
        raft.set_snapshot(mark.to_raft());
        Message { raft: Box::new(raft) }
    }

    /// At a reader: what is committed has come, made by [`Group::feed_behind`]. What does not follow what is here changes
    /// nothing.
    ///
    /// # Errors
    /// When it is no such thing, or contradicts what is committed here: one of two disks has lost something.
    pub fn feed(&mut self, mut message: Message) -> Result<(), StepError> {
        let raft = &mut message.raft;
        let engine = &self.raft.raft;
        if raft.get_msg_type() != MessageType::MsgAppend {
            return Err(StepError::Malformed);
        }
        // What is committed is good in any term.
        (raft.from, raft.to, raft.term) = (FEEDER, engine.id, raft.term.max(engine.term));
        raft.commit = raft.index + raft.entries.len() as u64;
        check::check(engine, &message)?;
        if !self.is_taking_over() && !engine.promotable() {
            // The engine complains of nothing that has passed.
            let _ = self.raft.step(*message.raft);
            self.choose_timeout();
        }
        Ok(())
    }

    /// At a reader: all of its entries up to this position are committed, as it has the one that stands there. Returns
    /// whether it has.
    pub fn feed_commit(&mut self, position: u64, term: u64) -> bool {
        let has = self.held().term_at(position) == Some(term) && !self.raft.raft.promotable();
        if has && position > self.committed() {
            let mut raft = eraftpb::Message {
                term,
                index: position,
                log_term: term,
                commit: position,
                ..Default::default()
            };
            raft.set_msg_type(MessageType::MsgAppend);
            raft.set_entries(Vec::new().into());
            return self.feed(Message { raft: Box::new(raft) }).is_ok();
        }
        has
    }
}

impl Mark {
    /// Whether this can be where a timeline goes on from.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.position > 0 && self.term > 0 && self.members.is_sound()
    }
}
