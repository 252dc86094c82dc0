//! Appends that come out once for many members.
//!
//! A leader that has each member sent its own append writes and answers for as many as there are. Where others take appends
//! to members (down trees, say), they come out once, as [`Output::Spread`], and what members acknowledge comes back in
//! bulk, by [`Group::acknowledge`].
//!
//! **This is Raft as it is.** An append says what the leader's log has behind a position; what its receiver does depends on
//! that and on its own state, and on nothing that the leader thinks of it. So whatever takes an append to a member, the
//! leader could have sent it itself at that moment, through a network that loses, doubles, delays and reorders. An
//! acknowledgement says that a member has the leader's log up to a position on its disk; that stays true for as long as
//! the disk does, so it may come late, more than once, lowered, or with others. Members are counted one by one, never by
//! groups: sizes of groups would be other quorums than those of elections.
//!
//! **Fed** is a member to whom others take appends. For the engine its window is closed, so it says nothing to it. A member
//! is fed when it has, or is on its way to have, all that there is; when it stands still though more was spread, says
//! nothing, or refuses something, the leader sends to it directly until it has everything again.

use crate::feeding::Feeding;
use crate::group::{Group, Output};
use crate::message::Message;
use crate::rounds::Rounds;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use raft::eraftpb::{self, MessageType};
use raft::{ProgressState, StateRole};

/// See the module. It is of one term of a leader.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    /// Those to whom others take appends.
    reached: BTreeSet<u64>,
    /// At a member that follows: in which term its log is the leader's, and up to where, durable or not.
    in_step: (u64, u64),
    /// Those who are fed.
    pub(crate) feeding: Feeding,
    /// Up to here it was spread that they are committed.
    committed: u64,
    /// Questions of reads.
    pub(crate) rounds: Rounds,
    /// That the leader is there has to be said.
    pub(crate) is_idle: bool,
    /// Ticks from one look at them to the next, and until the next one.
    look_ticks: usize,
    look_in: usize,
}

/// A member of which nothing was heard at so many looks is not fed any more: whoever takes appends to it may not know it. It is
/// less than what makes it want to lead.
const SILENT_LOOKS: usize = 5;

/// Entries go down the forest in messages of about so many bytes at most: who passes one on begins when all of it is there.
const SPREAD_BYTES: u64 = 32 << 10;

impl Spread {
    /// Whoever leads looks as often as it says that it is there.
    pub(crate) fn new(heartbeat_ticks: usize) -> Self {
        Self { look_ticks: heartbeat_ticks, ..Self::default() }
    }
}

impl Group {
    /// Appends come out once for those of these members who keep up, for others to take them to each. Nobody is among them
    /// to begin with.
    pub fn spread_to(&mut self, members: impl IntoIterator<Item = u64>) {
        self.spread.reached = members.into_iter().collect();
        let Spread { reached, feeding, .. } = &self.spread;
        let not = feeding.iter().map(|(member, _)| member).filter(|member| !reached.contains(member));
        not.collect::<Vec<u64>>().into_iter().for_each(|member| self.send_directly(member));
    }

    /// At a member that follows: the term, and up to which position its log is that of the leader of this term, durable or
    /// not.
    #[must_use]
    pub fn in_step(&self) -> (u64, u64) {
        let engine = &self.raft.raft;
        let (term, position) = self.spread.in_step;
        let here = if term == engine.term { position } else { 0 };
        (engine.term, here.max(engine.raft_log.committed))
    }

    /// An append of what stands behind a position, up to another one at most, as this term's leader would say it to all. It
    /// has as much as a message carries. `None` where nothing of it is here, or is known to be the leader's.
    #[must_use]
    pub fn append_behind(&self, position: u64, upto: u64) -> Option<Message> {
        let engine = &self.raft.raft;
        let end = if self.leads() { engine.raft_log.last_index() } else { self.in_step().1 };
        let upto = upto.min(end);
        let log_term = self.held().term_at(position)?;
        if engine.leader_id == 0 || position > upto {
            return None;
        }
        let entries = || self.held().between(position, upto);
        let entries: Vec<_> = entries().take(self.portion(entries(), u64::MAX)).cloned().collect();
        let committed = engine.raft_log.committed.min(upto);
        Some(append((engine.leader_id, engine.term), (position, log_term), entries, committed))
    }

    /// The same without entries: it says that everything up to there is committed.
    #[must_use]
    pub fn commit_upto(&self, position: u64) -> Option<Message> {
        let (term, here) = self.in_step();
        let log_term = self.held().term_at(position)?;
        let leader = self.raft.raft.leader_id;
        let commit = || append((leader, term), (position, log_term), Vec::new(), position);
        (leader != 0 && position <= here).then(commit)
    }

    /// An append was stepped: if it was taken, the log is the leader's up to its end.
    pub(crate) fn note_step(&mut self, term: u64, (position, log_term): (u64, u64), count: u64) {
        let log = &self.raft.raft.raft_log;
        if term != self.raft.raft.term || self.leads() || !log.match_term(position, log_term) {
            return;
        }
        let (known, before) = self.spread.in_step;
        let before = if known == term { before } else { 0 };
        self.spread.in_step = (term, before.max(position + count));
    }

    /// At the leader: how many members are given appends by others.
    #[must_use]
    pub fn fed(&self) -> usize {
        self.spread.feeding.len()
    }

    /// At the leader: whether this member is given appends by others.
    #[must_use]
    pub fn is_fed(&self, member: u64) -> bool {
        self.spread.feeding.is_fed(member)
    }

    /// At the leader of a term: these members have its log on their disks up to these positions. What is of another term,
    /// or of nobody, is passed over.
    pub fn acknowledge(&mut self, term: u64, acknowledged: impl IntoIterator<Item = (u64, u64)>) {
        let engine = &mut self.raft.raft;
        if engine.state != StateRole::Leader || engine.term != term {
            return;
        }
        let (id, last) = (engine.id, engine.raft_log.last_index());
        let (mut is_news, mut next) = (false, 0);
        let mut others = Vec::new();
        for (member, position) in acknowledged {
            // In its term a leader has lost nothing: nobody has more of its log.
            if member == id || position > last {
                continue;
            }
            if let Some(more) = self.spread.feeding.heard_of(member, position, &mut next) {
                is_news |= more;
            } else if engine.prs().get(member).is_some() {
                others.push((member, position));
            }
        }
        if is_news {
            self.commit_fed();
        }
        // Whom the engine sends to it sends more when it hears from him.
        for (from, index) in others {
            let mut answer = eraftpb::Message { from, to: id, term, index, ..Default::default() };
            answer.set_msg_type(MessageType::MsgAppendResponse);
            // It is of a member, so the engine takes it.
            let _ = self.raft.step(answer);
            self.commit_fed();
        }
        self.choose_timeout();
    }

    /// Sees what is committed by what those have who are fed, and the others.
    pub(crate) fn commit_fed(&mut self) {
        let engine = &mut self.raft.raft;
        if !self.spread.feeding.is_of(engine) {
            return;
        }
        let agreed = self.spread.feeding.agreed(engine);
        if cfg!(debug_assertions) {
            self.spread.feeding.tell(engine);
            let committed = engine.raft_log.committed;
            let (by_engine, _) = engine.mut_prs().maximal_committed_index();
            assert_eq!(agreed.unwrap_or(committed), by_engine.max(committed), "counted by the same rule");
        }
        let (term, id) = (engine.term, engine.id);
        if !agreed.is_some_and(|position| engine.raft_log.maybe_commit(position, term)) {
            return;
        }
        let committed = engine.raft_log.committed;
        if let Some(own) = engine.mut_prs().get_mut(id) {
            own.update_committed(committed);
        }
        if !self.spread.feeding.is_everybody(engine) {
            engine.bcast_append();
        }
    }

    /// At the leader of those who are fed: its own disk has its log up to an entry. The engine would sort all members for
    /// that, each time.
    pub(crate) fn own_stored(&mut self, (position, term): (u64, u64)) {
        let engine = &mut self.raft.raft;
        if !self.spread.feeding.is_of(engine) {
            return;
        }
        let id = engine.id;
        if engine.raft_log.maybe_persist(position, term)
            && let Some(own) = engine.mut_prs().get_mut(id)
            && own.maybe_update(position)
        {
            self.commit_fed();
        }
    }

    /// Tells the engine what those have who are fed.
    pub(crate) fn tell_engine(&mut self) {
        self.spread.feeding.tell(&mut self.raft.raft);
    }

    /// Time goes on: who keeps up is fed, and who does not is sent to.
    pub(crate) fn tick_spread(&mut self) {
        if self.spread.reached.is_empty() || !self.leads() {
            return;
        }
        if self.spread.look_in > 0 {
            self.spread.look_in -= 1;
            return;
        }
        self.spread.look_in = self.spread.look_ticks;
        let engine = &self.raft.raft;
        let (id, last) = (engine.id, engine.raft_log.last_index());
        // Whom the lead is handed to has to be sent the rest by the engine, which waits for that alone.
        let heir = engine.lead_transferee;
        let keeps_up =
            |member: u64| engine.prs().get(member).is_some_and(|it| it.state == ProgressState::Replicate);
        let lost = self.spread.feeding.iter().map(|(member, _)| member).filter(|member| !keeps_up(*member));
        let mut late: Vec<u64> = lost.collect();
        late.extend(self.spread.feeding.look(last, SILENT_LOOKS));
        late.iter().for_each(|member| self.send_directly(*member));
        let engine = &self.raft.raft;
        // Everything was sent to it, so it lacks nothing that is spread from now on.
        let in_step = engine.prs().iter().filter(|(member, progress)| {
            let is_new = **member != id && heir != Some(**member) && !self.spread.feeding.is_fed(**member);
            let is_there = progress.recent_active && progress.next_idx > last;
            is_new
                && is_there
                && progress.state == ProgressState::Replicate
                && self.spread.reached.contains(member)
                && !late.contains(member)
        });
        let in_step: Vec<(u64, u64)> =
            in_step.map(|(member, progress)| (*member, progress.matched)).collect();
        if in_step.is_empty() {
            return;
        }
        self.spread.feeding.begin(engine, engine.store().conf_state());
        for (member, matched) in in_step {
            self.raft.raft.adjust_max_inflight_msgs(member, 0);
            self.spread.feeding.feed(member, matched, last);
        }
    }

    /// A member is not fed any more, if it was: the leader sends to it.
    pub(crate) fn send_directly(&mut self, member: u64) {
        let engine = &mut self.raft.raft;
        if !self.spread.feeding.release(member, engine) {
            return;
        }
        let (window, leads) = (engine.max_inflight, engine.state == StateRole::Leader);
        let Some(progress) = engine.mut_prs().get_mut(member) else { return };
        if leads && progress.state == ProgressState::Replicate {
            // From behind what it is known to have.
            progress.become_replicate();
        }
        progress.ins.set_cap(window);
        if leads {
            engine.send_append(member);
        }
    }

    /// Nobody is fed: the term is over, or others are the members.
    pub(crate) fn feed_nobody(&mut self) {
        if self.spread.feeding.is_empty() {
            return;
        }
        let fed: Vec<u64> = self.spread.feeding.iter().map(|(member, _)| member).collect();
        fed.into_iter().for_each(|member| self.send_directly(member));
        let reached = core::mem::take(&mut self.spread.reached);
        let mut rounds = core::mem::take(&mut self.spread.rounds);
        rounds.forget();
        let in_step = self.spread.in_step;
        self.spread = Spread { reached, in_step, rounds, ..Spread::new(self.spread.look_ticks) };
    }

    /// A member says something itself. Who refuses something lacks what was before it: that is found out directly.
    pub(crate) fn hear(&mut self, message: &eraftpb::Message) {
        if message.term == self.raft.raft.term {
            let is_acknowledged = message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject;
            let position = if is_acknowledged { message.index } else { 0 };
            self.spread.feeding.heard_of(message.from, position, &mut 0);
        }
        if message.reject && message.get_msg_type() == MessageType::MsgAppendResponse {
            self.send_directly(message.from);
        }
    }

    /// Takes out what the engine would say to each of those who are fed: that the leader is there. A question rides on some
    /// of it; it stays where no round asks it, or none has been answered for long.
    pub(crate) fn drop_heartbeats(&mut self, messages: &mut Vec<eraftpb::Message>) {
        if self.spread.feeding.is_empty() {
            return;
        }
        let before = messages.len();
        let spread = &self.spread;
        messages.retain(|message| {
            message.get_msg_type() != MessageType::MsgHeartbeat
                || !(message.context.is_empty() || spread.rounds.is_asked(&message.context))
                || !spread.feeding.is_fed(message.to)
        });
        self.spread.is_idle |= messages.len() < before;
    }

    /// What is new comes out for all who are fed: entries, that more of them are committed, or that the leader is there.
    pub(crate) fn spread(&mut self, entries: &[eraftpb::Entry], out: &mut Vec<Output>) {
        if !self.spread.feeding.is_of(&self.raft.raft) {
            return self.feed_nobody();
        }
        let engine = &self.raft.raft;
        let (term, id) = (engine.term, engine.id);
        let (last, committed) = (engine.raft_log.last_index(), engine.raft_log.committed);
        let is_news = !entries.is_empty() || committed > self.spread.committed || self.spread.is_idle;
        if !is_news {
            return;
        }
        let mut previous = entries.first().map_or(last, |first| first.index - 1);
        let mut rest = entries;
        loop {
            let (now, later) = rest.split_at(self.portion(rest, SPREAD_BYTES));
            let log_term = self.held().term_at(previous).unwrap_or(0);
            out.push(Output::Spread(append((id, term), (previous, log_term), now.to_vec(), committed)));
            previous += now.len() as u64;
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        (self.spread.committed, self.spread.is_idle) = (committed, false);
    }

    /// How many of these entries go into one message of about so many bytes at most.
    fn portion<'a>(&self, entries: impl IntoIterator<Item = &'a eraftpb::Entry>, most: u64) -> usize {
        let most = most.min(self.raft.raft.max_msg_size);
        let mut bytes = 0;
        let fits = |entry: &&eraftpb::Entry| {
            let is_first = bytes == 0;
            bytes += entry.data.len() as u64 + 1;
            is_first || bytes <= most
        };
        entries.into_iter().take_while(fits).count()
    }
}

/// What a leader of a term says to all of what its log has behind a position of a term.
fn append(
    (from, term): (u64, u64),
    (index, log_term): (u64, u64),
    entries: Vec<eraftpb::Entry>,
    commit: u64,
) -> Message {
    let mut raft = eraftpb::Message { from, term, index, log_term, commit, ..Default::default() };
    raft.set_msg_type(MessageType::MsgAppend);
    raft.set_entries(entries.into());
    Message { raft: Box::new(raft) }
}

impl Message {
    /// What it says the log has: behind which position, and up to which; `None` for what is no append.
    #[must_use]
    pub fn place(&self) -> Option<(u64, u64)> {
        let raft = &self.raft;
        (raft.get_msg_type() == MessageType::MsgAppend)
            .then(|| (raft.index, raft.index + raft.entries.len() as u64))
    }

    /// The same for one of those that it was spread to.
    #[must_use]
    pub fn addressed(&self, to: u64) -> Self {
        let mut raft = self.raft.clone();
        raft.to = to;
        Self { raft }
    }

    /// Whether it gives entries to a member, or asks up to where it has the log.
    #[must_use]
    pub fn appends(&self) -> bool {
        self.raft.get_msg_type() == MessageType::MsgAppend
    }

    /// Up to where its sender has the leader's log on its disk, if it says that and nothing else.
    #[must_use]
    pub fn acknowledges(&self) -> Option<u64> {
        let is_one = self.raft.get_msg_type() == MessageType::MsgAppendResponse && !self.raft.reject;
        is_one.then_some(self.raft.index)
    }
}
