//! Where a leader is still one: questions of reads, answered by members to whom others take appends.
//!
//! Whoever asks where the timeline ends (Raft dissertation, 6.4) is answered with what is committed when the leader takes
//! the question, once more than half of the voters have said, after that, that this leader is theirs. The engine sends
//! each member a heartbeat with each question, and counts all answers for each answer. Where members are fed all
//! questions that have come together are a **round**: a number that goes with what is spread, and those who hear of it say
//! so together.
//!
//! **Why it is sound.** A member says of a round that its process was in the leader's term when it heard of it, so after the
//! round had begun. Then it had not voted in any later term before the round began: a vote is durable before it is given,
//! and a process begins in the term of its vote. If more than half of the voters say so, no leader of a later term was
//! elected before, as it would need the vote of one of them; so everything that was committed then was committed by this
//! leader or known to it. That stays true on its way, however late it comes, and though the process may have ended, as it
//! speaks of a moment that has passed. What must not happen is that somebody speaks for a disk whose past it does not
//! know: so it goes with the tag of a process, as acknowledgements do, and who lost its disk is not listened to. Numbers
//! of rounds are never used again in the life of a process, so what was said of one never counts for another one.

use crate::group::{Group, Output};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use raft::eraftpb::{self, MessageType};
use raft::{ReadState, StateRole};

/// So many ticks after it began a round is late: members are asked directly, too.
const LATE_TICKS: usize = 2;

/// Rounds of a leader.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The newest one.
    number: u64,
    /// The last question that is in no round yet.
    next: Option<Vec<u8>>,
    /// Rounds that are not confirmed, and the last question of each, which the engine knows it by.
    begun: VecDeque<(u64, Vec<u8>)>,
    /// The oldest of them began before so many ticks.
    ticks: usize,
}

impl Rounds {
    /// Begins a round, if there are questions. Returns whether it did.
    pub(crate) fn begin(&mut self) -> bool {
        let Some(question) = self.next.take() else { return false };
        self.number += 1;
        self.begun.push_back((self.number, question));
        true
    }

    /// Whether there are questions that are in no round yet.
    pub(crate) fn is_new(&self) -> bool {
        self.next.is_some()
    }

    pub(crate) fn tick(&mut self) {
        self.ticks = if self.begun.is_empty() { 0 } else { self.ticks + 1 };
    }

    /// Whether the engine need not ask those who are fed what it would ask with this question: a round does.
    pub(crate) fn is_asked(&self, question: &[u8]) -> bool {
        let is_it = |other: Option<&Vec<u8>>| other.is_some_and(|other| other == question);
        let is_begun = is_it(self.begun.back().map(|(_, question)| question)) && self.ticks < LATE_TICKS;
        is_it(self.next.as_ref()) || is_begun
    }

    /// The questions of all are asked by the engine from now on.
    pub(crate) fn forget(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}

impl Group {
    /// At the leader: which round it is. It has to go with what is spread from now on; who hears of it answers by
    /// [`Group::confirm`].
    #[must_use]
    pub fn round(&self) -> u64 {
        self.spread.rounds.number
    }

    /// Whether this question will be answered by way of those who are fed: they and this leader are more than half of
    /// the voters.
    pub(crate) fn asks_fed(&mut self, question: &eraftpb::Message) -> bool {
        let engine = &mut self.raft.raft;
        let is_of_now = self.spread.feeding.is_of(engine) && self.spread.feeding.is_quorum(engine.id);
        if !is_of_now || !engine.commit_to_current_term() || engine.prs().is_singleton() {
            return false;
        }
        let Some(context) = question.entries.first().map(|entry| entry.data.to_vec()) else { return false };
        let (id, committed) = (engine.id, engine.raft_log.committed);
        engine.read_only.add_request(committed, question.clone(), id);
        self.spread.rounds.next = Some(context);
        true
    }

    /// At the leader of a term: these members were in it when they heard of these rounds.
    pub fn confirm(&mut self, term: u64, heard: impl IntoIterator<Item = (u64, u64)>) {
        let engine = &self.raft.raft;
        if engine.term != term || !self.spread.feeding.is_of(engine) {
            return;
        }
        let (newest, mut next) = (self.spread.rounds.number, 0);
        for (member, round) in heard.into_iter().filter(|(_, round)| (1..=newest).contains(round)) {
            self.spread.feeding.confirmed(member, round, &mut next);
        }
        let Some((oldest, _)) = self.spread.rounds.begun.front() else { return };
        let agreed = self.spread.feeding.agreed_round(engine.id, newest, *oldest);
        let mut last = None;
        while let Some((_, question)) = self.spread.rounds.begun.pop_front_if(|(round, _)| *round <= agreed) {
            (last, self.spread.rounds.ticks) = (Some(question), 0);
        }
        last.into_iter().for_each(|question| self.answer_upto(&question));
    }

    /// This leader was one when this question came, and when all did that came before it.
    fn answer_upto(&mut self, question: &[u8]) {
        let engine = &mut self.raft.raft;
        debug_assert_eq!(engine.state, StateRole::Leader, "nobody else has rounds");
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let (id, term) = (engine.id, engine.term);
        for answered in engine.read_only.advance(question, &logger) {
            let (mut asked, index) = (answered.req, answered.index);
            let mut entries = asked.take_entries();
            if asked.from != 0 && asked.from != id {
                let mut answer =
                    eraftpb::Message { to: asked.from, from: id, term, index, ..Default::default() };
                answer.set_msg_type(MessageType::MsgReadIndexResp);
                answer.set_entries(entries);
                engine.msgs.push(answer);
            } else if let Some(entry) = entries.first_mut() {
                let request_ctx = entry.take_data().to_vec();
                engine.read_states.push(ReadState { index, request_ctx });
            }
        }
    }

    /// Questions that have come together are a round, which goes with what is spread next, or by itself.
    pub(crate) fn begin_round(&mut self) {
        if !self.spread.rounds.begin() {
            return;
        }
        self.spread.is_idle = true;
        if !self.raft.has_ready() {
            let mut out = Vec::new();
            self.spread(&[], &mut out);
            self.outputs.extend::<Vec<Output>>(out);
        }
    }
}
