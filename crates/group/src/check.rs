//! What is refused of a message: what the engine takes for granted and ends the process over, and what it takes in though it
//! cannot be.

use crate::group::StepError;
use crate::held::{Held, Mark};
use crate::message::Message;
use raft::eraftpb::MessageType;
use raft::{Raft, StateRole};

/// What the engine takes for granted, and ends the process over.
pub(crate) fn check(engine: &Raft<Held>, message: &Message) -> Result<(), StepError> {
    let raft = &message.raft;
    if raft.to != engine.id {
        return Err(StepError::NotForUs);
    }
    if !is_well_formed(raft) {
        return Err(StepError::Malformed);
    }
    let log = &engine.raft_log;
    let contradicts = match raft.get_msg_type() {
        // Whoever leads this term or a later one knows what we have.
        MessageType::MsgHeartbeat => raft.term >= engine.term && raft.commit > log.last_index(),
        // A leader has everything that is committed, and its terms do not go back behind that.
        MessageType::MsgAppend => {
            raft.term >= engine.term
                && (raft.index >= log.committed && raft.log_term < log.term(log.committed).unwrap_or(0)
                    || contradicts_committed(engine, raft))
        }
        MessageType::MsgSnapshot => {
            let metadata = raft.get_snapshot().get_metadata();
            metadata.index <= log.committed && is_another(engine, metadata.index, metadata.term)
        }
        // A leader's term ends with its process: in it, it has lost nothing.
        MessageType::MsgAppendResponse => {
            engine.state == StateRole::Leader
                && raft.term == engine.term
                && !raft.reject
                && raft.index > log.last_index()
        }
        _ => false,
    };
    if contradicts { Err(StepError::Contradiction) } else { Ok(()) }
}

/// Whether a leader has other entries than this member where these are committed. What the engine answers to that is
/// that it has them.
fn contradicts_committed(engine: &Raft<Held>, append: &raft::eraftpb::Message) -> bool {
    let committed = engine.raft_log.committed;
    if append.index > committed {
        return false;
    }
    is_another(engine, append.index, append.log_term)
        || append
            .get_entries()
            .iter()
            .take_while(|entry| entry.index <= committed)
            .any(|entry| is_another(engine, entry.index, entry.term))
}

/// Whether an entry of another term stands at a position here. What is there no more may be the same.
fn is_another(engine: &Raft<Held>, position: u64, term: u64) -> bool {
    engine.store().term_at(position).is_some_and(|known| known != term)
}

/// Whether a working member could say this to somebody.
fn is_well_formed(raft: &raft::eraftpb::Message) -> bool {
    let kind = raft.get_msg_type();
    // Without a term the engine takes a message for one of its own.
    if (raft.term == 0) != (kind == MessageType::MsgReadIndex) {
        return false;
    }
    // A position has a term; only the one before the first has not. What the engine does not have
    // is without a term to it too, so it would find that the two agree.
    let has_term = |position: u64, term: u64| (position == 0) == (term == 0);
    match kind {
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => raft.entries.len() == 1,
        MessageType::MsgSnapshot => {
            let mark = Mark::from_raft(raft.get_snapshot());
            mark.position > 0 && mark.term > 0 && mark.members.is_sound()
        }
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
            has_term(raft.index, raft.log_term) && has_term(raft.commit, raft.commit_term)
        }
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            has_term(raft.commit, raft.commit_term)
        }
        MessageType::MsgAppend => {
            let mut before = (raft.index, raft.log_term);
            has_term(before.0, before.1)
                && raft.get_entries().iter().all(|entry| {
                    let follows = entry.index == before.0 + 1 && entry.term >= before.1.max(1);
                    before = (entry.index, entry.term);
                    follows && entry.term <= raft.term
                })
        }
        _ => true,
    }
}
