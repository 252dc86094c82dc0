//! A member of a group, as a state machine around the engine.

use crate::check;
use crate::held::{Entry, EntryKind, Held, Mark, Vote};
use crate::history::History;
use crate::members::{self, Change, Members};
use crate::message::Message;
use crate::record::{Restored, Store};
use crate::spread::Spread;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use raft::eraftpb::MessageType;
use raft::{RawNode, Ready, SnapshotStatus, StateRole};

/// How a group works. All members should agree on it.
#[derive(Debug, Clone)]
pub struct Config {
    /// This server's number, not 0.
    pub id: u64,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// Ticks without a word from the leader after which a member asks for an election, at least;
    /// at most twice as many.
    pub election_ticks: usize,
    /// Where the choice between the two comes from. Different for each server.
    pub seed: u64,
    /// About how many bytes of entries one message carries; a longer entry has one for itself.
    pub message_bytes: u64,
    /// Messages with entries under way to one member.
    pub messages_in_flight: usize,
    /// Committed entries come out in portions of about so many bytes.
    pub portion_bytes: u64,
    /// Bytes proposed and not committed, above which further proposals are refused.
    pub uncommitted_bytes: u64,
    /// How many terms a member that votes alone skips when it starts: drawn anew each time, below [`Config::SKIPPED_MAX`].
    /// Where the disk of such a one was copied, and two go on from it, the same position and term would else name two
    /// entries, and whoever meets the other later would take its log for the same.
    pub skipped_terms: u64,
}

impl Config {
    /// Fewer terms than this are skipped.
    pub const SKIPPED_MAX: u64 = 1 << 24;

    /// Defaults for a member.
    #[must_use]
    pub fn new(id: u64, seed: u64) -> Self {
        Self {
            id,
            heartbeat_ticks: 2,
            election_ticks: 10,
            seed,
            // With so many under way a member that lags gets some 8 MiB at a time: that keeps a wide line
            // busy, and neither the leader nor the member is away from its other work for long.
            message_bytes: 128 << 10,
            messages_in_flight: 64,
            portion_bytes: 4 << 20,
            uncommitted_bytes: 64 << 20,
            skipped_terms: 0,
        }
    }
}

/// Nobody waits for more others than so many before it wants to lead.
const RANK_MAX: usize = 1000;

/// What a member is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It follows a leader, or waits for one.
    Follower,
    /// It wants to lead.
    Candidate,
    /// It leads.
    Leader,
}

/// Something to do, in the order given.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send a message. It may be lost, doubled, delayed or overtaken.
    Send(Message),
    /// Take an append to all other members, each of whom steps it [addressed](Message::addressed) to itself. It may be lost
    /// like any message. It comes only where [`Group::spread_to`] has named members.
    Spread(Message),
    /// Make something durable.
    Store(Store),
    /// Apply entries: they are on a majority's disks, and will be at these positions for ever.
    Committed(Vec<Entry>),
    /// The members are these from now on; the change was the entry before.
    Members(Box<Members>),
    /// What was asked with [`Group::read`]: whoever has applied up to this position sees everything
    /// that was acknowledged before the question.
    Read {
        /// The question.
        id: u64,
        /// The position.
        position: u64,
    },
    /// Who leads has changed, or what this member is; it comes when the term is durable.
    Leader {
        /// The term.
        term: u64,
        /// Who leads; 0 when that is not known.
        leader: u64,
        /// What this member is.
        role: Role,
    },
    /// A member is too far behind for entries: send it the snapshot beside the messages. When it
    /// has all of it, hand it this message; then call [`Group::snapshot_sent`] here.
    SendSnapshot(Message),
    /// A member is too far behind, and the snapshot on offer is older than this position. Take a
    /// new one and call [`Group::offer_snapshot`].
    SnapshotWanted(u64),
}

/// Why nothing was proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposeError {
    /// This member does not lead.
    NotLeader,
    /// Too much waits to be committed, or the lead is being handed over. It passes.
    Busy,
    /// Another change of members is under way.
    ChangeUnderWay,
    /// The change would leave nobody to vote.
    NoVoters,
    /// It names no change, or a member with the number 0.
    NoChange,
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLeader => "this server does not lead",
            Self::Busy => "too much waits to be committed, or the lead is being handed over",
            Self::ChangeUnderWay => "another change of members is under way",
            Self::NoVoters => "nobody would be left to vote",
            Self::NoChange => "it names no change, or a member with the number 0",
        })
    }
}

impl core::error::Error for ProposeError {}

/// Why a message was refused. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepError {
    /// It is for another member.
    NotForUs,
    /// It answers what was never asked of its sender.
    Stranger,
    /// What it says cannot be said by a working member.
    Malformed,
    /// It contradicts what is committed here, or believes us to have what we have not: one of the
    /// two disks has lost something, or both have gone on from copies of one.
    Contradiction,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotForUs => "it is for another server",
            Self::Stranger => "it answers what was not asked of its sender",
            Self::Malformed => "no working server would say that",
            Self::Contradiction => {
                "it contradicts what is committed here: a disk has lost something, or two have gone on from one"
            }
        })
    }
}

impl core::error::Error for StepError {}

/// How things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The term.
    pub term: u64,
    /// Who leads; 0 when that is not known.
    pub leader: u64,
    /// What this member is.
    pub role: Role,
    /// Position of the last entry, durable or not.
    pub last: u64,
    /// Position up to which everything is committed, as far as this member knows.
    pub committed: u64,
    /// Who belongs to the group.
    pub members: Members,
    /// At the leader: up to where each other member has the entries.
    pub matched: Vec<(u64, u64)>,
}

/// A member of a group.
pub struct Group {
    pub(crate) raft: RawNode<Held>,
    history: Option<History>,
    timeouts: Timeouts,
    /// See [`Config::skipped_terms`]; 0 when that is done.
    skipped_terms: u64,
    pub(crate) outputs: VecDeque<Output>,
    /// What may come out after which store.
    after_store: VecDeque<AfterStore>,
    /// Number of the last store with another term or vote than before.
    vote_store: u64,
    /// More is committed than the last store that has a vote says.
    commit_unstored: bool,
    /// A change of members is among it.
    change_unstored: bool,
    /// The term of the last [`Output::Leader`], and the number of the last store that one waits for.
    leader_told: (u64, u64),
    /// Stores up to this number are durable.
    durable: u64,
    /// The vote that is durable.
    durable_vote: Vote,
    /// A snapshot is being taken over. Until it is durable this member is deaf: the engine, asked
    /// anything meanwhile, would look for entries that the snapshot has replaced.
    taking_over: Option<TakingOver>,
    pub(crate) spread: Spread,
}

/// How long this member waits for a leader.
struct Timeouts {
    seed: u64,
    election_ticks: usize,
    /// See [`Group::set_rank`].
    rank: Option<usize>,
}

struct TakingOver {
    ready: Ready,
    position: u64,
    after: Vec<Output>,
}

struct AfterStore {
    number: u64,
    /// Where its entries begin.
    first: Option<u64>,
    /// Position and term of the last of them.
    last: Option<(u64, u64)>,
    vote: Option<Vote>,
    /// Whether there is anything to store: else it is done when what is before it is.
    stores: bool,
    outputs: Vec<Output>,
}

impl AfterStore {
    fn new(
        number: u64,
        entries: &[raft::eraftpb::Entry],
        vote: Option<Vote>,
        stores: bool,
        outputs: Vec<Output>,
    ) -> Self {
        let first = entries.first().map(|entry| entry.index);
        let last = entries.last().map(|entry| (entry.index, entry.term));
        Self { number, first, last, vote, stores, outputs }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("id", &self.raft.raft.id).field("status", &self.status()).finish()
    }
}

impl Group {
    /// A member with what its disk holds. Committed entries behind the base come out again, to be
    /// applied. `None` when entries do not follow one another, the members cannot be a group's, or
    /// the vote says that entries are committed that are not there.
    #[must_use]
    pub fn new(config: &Config, restored: &Restored) -> Option<Self> {
        let Restored { base, mut vote, history, entries } = restored.clone();
        // Whoever took over a snapshot may have had no vote yet.
        vote.term = vote.term.max(base.term);
        vote.committed = vote.committed.max(base.position);
        let held = Held::new(&base, vote, &entries)?;
        // A member that is to join knows of nobody, until it is given a snapshot.
        let is_to_join = base == Mark::default();
        if !(is_to_join || base.members.is_sound()) || vote.committed > held.last() {
            return None;
        }
        let engine = raft::Config {
            id: config.id,
            election_tick: config.election_ticks,
            // Those with a rank wait for longer than the engine would.
            max_election_tick: 2 * config.election_ticks + RANK_MAX + 1,
            heartbeat_tick: config.heartbeat_ticks,
            applied: base.position,
            max_size_per_msg: config.message_bytes,
            max_inflight_msgs: config.messages_in_flight,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            max_uncommitted_size: config.uncommitted_bytes,
            max_committed_size_per_ready: config.portion_bytes,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&engine, held, &logger).ok()?;
        let mut group = Self {
            raft,
            history,
            timeouts: Timeouts { seed: config.seed, election_ticks: config.election_ticks, rank: None },
            skipped_terms: config.skipped_terms,
            outputs: VecDeque::new(),
            after_store: VecDeque::new(),
            vote_store: 0,
            commit_unstored: false,
            change_unstored: false,
            leader_told: (vote.term, 0),
            durable: 0,
            durable_vote: vote,
            taking_over: None,
            spread: Spread::new(config.heartbeat_ticks),
        };
        group.choose_timeout();
        Some(group)
    }

    /// Time goes on by one tick.
    pub fn tick(&mut self) {
        if self.must_wait() {
            return;
        }
        let engine = &self.raft.raft;
        if self.is_to_skip() && engine.election_elapsed + 1 >= engine.randomized_election_timeout() {
            return self.campaign();
        }
        self.tell_engine();
        self.spread.rounds.tick();
        self.raft.tick();
        self.tick_spread();
        self.choose_timeout();
    }

    /// A message has come.
    ///
    /// # Errors
    /// When no working member would send it here: then nothing has changed.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        check::check(&self.raft.raft, &message)?;
        if self.must_wait() || (asks_for_more_than_a_beginning(&message) && self.is_to_join()) {
            // As if it had been lost on its way.
            return Ok(());
        }
        if message.raft.get_msg_type() == MessageType::MsgReadIndex && !self.leads() {
            // The engine would pass it on in the name of who asked, and nobody takes that from us.
            return Ok(());
        }
        if message.raft.get_msg_type() == MessageType::MsgReadIndex && self.asks_fed(&message.raft) {
            return Ok(());
        }
        self.hear(&message.raft);
        let (is_append, term) = (message.place().is_some(), message.raft.term);
        let (behind, count) =
            ((message.raft.index, message.raft.log_term), message.raft.entries.len() as u64);
        let stepped = self.raft.step(*message.raft);
        if is_append {
            self.note_step(term, behind, count);
        }
        self.commit_fed();
        self.choose_timeout();
        match stepped {
            Err(raft::Error::StepPeerNotFound) => Err(StepError::Stranger),
            // The rest tells proposers what became of their proposals; none comes this way.
            _ => Ok(()),
        }
    }

    /// Whether the disk has to be waited for before anything else may happen: for a snapshot that
    /// is being taken over; and for what a sole voter that does not lead was given when it was not
    /// alone, because it would elect itself at once, with entries that are not durable. Who listens to a sole voter
    /// never elects itself.
    pub(crate) fn must_wait(&self) -> bool {
        let engine = &self.raft.raft;
        let log = &engine.raft_log;
        self.taking_over.is_some()
            || (engine.prs().is_singleton()
                && engine.promotable()
                && engine.state != StateRole::Leader
                && log.last_index() != log.persisted)
    }

    /// Whether it has not been given anything yet. Then it elects nobody who knows that something is committed: it may
    /// have been a voter, whose disk was lost with what it had promised, and whoever asks may not know that. Nobody
    /// needs its vote: what is committed is with a majority that was given everything before, and a newcomer is given
    /// everything before it votes. But of those who are to found a group one may have founded it, and end before the
    /// others have; they hear of the group and join it. Such a one has nothing committed, and its voters are the
    /// founders, whose disks it knows.
    fn is_to_join(&self) -> bool {
        self.raft.raft.prs().conf().voters().ids().is_empty()
    }

    pub(crate) fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Proposes an entry; it will stand at the position returned, if it is ever committed. Whether
    /// it is shows when another leader is known, or when it comes out as [`Output::Committed`]
    /// with the term of this leader. A payload has less than 4 GiB.
    ///
    /// # Errors
    /// When this member does not lead, or cannot take it now.
    pub fn propose(&mut self, payload: Bytes) -> Result<u64, ProposeError> {
        if self.raft.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader);
        }
        let entry = raft::eraftpb::Entry { data: payload, ..Default::default() };
        let engine = &mut self.raft.raft;
        // The engine would ask each member whether it has to be sent something.
        if engine.lead_transferee.is_none() && self.spread.feeding.is_everybody(engine) {
            let is_taken = engine.append_entry(&mut [entry]);
            return is_taken.then(|| engine.raft_log.last_index()).ok_or(ProposeError::Busy);
        }
        let mut message = raft::eraftpb::Message { from: self.raft.raft.id, ..Default::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.mut_entries().push(entry);
        self.raft.raft.step(message).map_err(|_| ProposeError::Busy)?;
        Ok(self.raft.raft.raft_log.last_index())
    }

    /// Proposes a change of members: one step, or several that happen as one (joint consensus).
    /// Returns its position; what became of it shows in [`Output::Members`].
    ///
    /// # Errors
    /// When this member does not lead, or the change cannot be made now.
    pub fn propose_changes(&mut self, changes: &[Change]) -> Result<u64, ProposeError> {
        let engine = &self.raft.raft;
        if engine.state != StateRole::Leader {
            return Err(ProposeError::NotLeader);
        }
        // Others would refuse the entry for ever.
        if changes.is_empty() || changes.iter().any(|change| change.id() == 0) {
            return Err(ProposeError::NoChange);
        }
        if self.is_changing() {
            return Err(ProposeError::ChangeUnderWay);
        }
        if !self.members().leaves_voters(changes) {
            return Err(ProposeError::NoVoters);
        }
        let change = members::to_raft(changes);
        self.raft.propose_conf_change(Vec::new(), change).map_err(|_| ProposeError::Busy)?;
        Ok(self.raft.raft.raft_log.last_index())
    }

    /// Whether a change of members is under way. While none is, nothing is appended at a leader but what is
    /// proposed: the engine appends the end of a joint change by itself.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.raft.raft.has_pending_conf() || !self.held().conf_state().voters_outgoing.is_empty()
    }

    /// Position of the last entry, durable or not.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.raft.raft.raft_log.last_index()
    }

    /// Asks from which position on reads see everything acknowledged so far. The answer is
    /// [`Output::Read`]; it may never come (no leader, a new leader, a lost message): ask again.
    pub fn read(&mut self, id: u64) {
        if self.must_wait() {
            return;
        }
        let context = id.to_le_bytes().to_vec();
        let entry = raft::eraftpb::Entry { data: context.clone().into(), ..Default::default() };
        let mut question = raft::eraftpb::Message::default();
        question.set_msg_type(MessageType::MsgReadIndex);
        question.set_entries(alloc::vec![entry].into());
        if !self.asks_fed(&question) {
            self.raft.read_index(context);
        }
    }

    /// At the leader: how many of these questions, of all members, it has not answered yet.
    #[must_use]
    pub fn pending_reads(&self) -> usize {
        self.raft.raft.pending_read_count()
    }

    /// Wants to lead now. The others may refuse. Nothing happens while votes are being counted, which
    /// would be void.
    pub fn campaign(&mut self) {
        let engine = &self.raft.raft;
        // The engine ends the process over a leader that is no voter.
        let may = !self.must_wait() && engine.promotable() && engine.state != StateRole::Candidate;
        if may && self.is_to_skip() {
            // It is stored with the vote that this member gives itself.
            let term = engine.term + core::mem::take(&mut self.skipped_terms);
            self.raft.raft.become_follower(term, 0);
        }
        if may && self.raft.campaign().is_ok() {
            self.choose_timeout();
        }
    }

    /// Whether it votes alone, and has not led since it has started.
    fn is_to_skip(&self) -> bool {
        let engine = &self.raft.raft;
        self.skipped_terms > 0
            && engine.state == StateRole::Follower
            && engine.promotable()
            && engine.prs().is_singleton()
    }

    /// Hands the lead over to another member, as soon as it has all entries. Nothing can be
    /// proposed meanwhile. Whether it worked shows in [`Output::Leader`]; it may silently not, so
    /// ask again. A member that does not lead has nothing to hand over.
    pub fn transfer(&mut self, to: u64) {
        if self.raft.raft.state == StateRole::Leader {
            self.send_directly(to);
            self.raft.transfer_leader(to);
        }
    }

    /// All stores up to this number are durable.
    pub fn stored(&mut self, number: u64) {
        self.durable = self.durable.max(number);
        let (mut done, mut last) = (0, None);
        while let Some(after) = self.after_store.front()
            && (after.number <= number || !after.stores)
        {
            done = after.number;
            let after = self.after_store.pop_front().expect("it is the front");
            self.durable_vote = after.vote.unwrap_or(self.durable_vote);
            last = after.last.or(last);
            self.give(after.outputs);
        }
        if let Some(taking_over) =
            self.taking_over.take_if(|taking_over| taking_over.ready.number() <= number)
        {
            self.taken_over(taking_over);
        } else if done > 0 && self.taking_over.is_none() {
            last.into_iter().for_each(|last| self.own_stored(last));
            self.raft.on_persist_ready(done);
            self.choose_timeout();
        }
    }

    /// The point up to which everything committed has come out of [`Group::poll`]: that of a
    /// snapshot of the state as it is now.
    #[must_use]
    pub fn mark(&self) -> Mark {
        // A snapshot that is being taken over counts as applied when it is durable.
        let position = self.raft.raft.raft_log.applied.max(self.held().base_position());
        let term =
            self.held().term_at(position).expect("what was applied is kept until a snapshot covers it");
        Mark { position, term, members: self.members() }
    }

    /// The newest vote, durable or not.
    #[must_use]
    pub fn vote(&self) -> Vote {
        Vote::from_raft(&self.held().vote)
    }

    /// What a snapshot of the state as it is now begins with, in place of the records that it covers.
    #[must_use]
    pub fn snapshot_head(&self) -> Store {
        let mark = self.mark();
        // That more is committed is no use without the entries.
        let vote = Vote { committed: mark.position, ..self.vote() };
        let history = self.history;
        Store { number: 0, snapshot: Some(mark.into()), vote: Some(vote), history, entries: Vec::new() }
    }

    /// Which history this is, if it has one.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.history
    }

    /// What a start would find, if the process ended now: everything that has come out, and of the
    /// rest what is durable. `None` while a snapshot is being taken over.
    #[must_use]
    pub fn durable(&self) -> Option<Restored> {
        if self.taking_over.is_some() {
            return None;
        }
        let base = self.mark();
        let first_lost = self.after_store.iter().filter_map(|after| after.first).min();
        let last = first_lost.map_or(u64::MAX, |first| first.saturating_sub(1));
        let entries = self.held().between(base.position, last).map(Entry::from_raft).collect();
        let vote = Vote { committed: base.position, ..self.durable_vote };
        Some(Restored { base, vote, history: self.history, entries })
    }

    /// Whether a snapshot is being taken over: it is when its store is durable.
    #[must_use]
    pub fn is_taking_over(&self) -> bool {
        self.taking_over.is_some()
    }

    /// The leader is known to be gone: others may be elected at once.
    pub fn forget_leader(&mut self) {
        let engine = &mut self.raft.raft;
        if engine.state == StateRole::Follower && engine.leader_id != 0 {
            engine.become_follower(engine.term, 0);
            self.choose_timeout();
        }
    }

    fn taken_over(&mut self, taking_over: TakingOver) {
        let TakingOver { ready, position, after } = taking_over;
        self.give(after);
        // This says that everything before is stored too.
        let mut rest = self.raft.advance_append(ready);
        self.raft.advance_apply_to(position);
        self.outputs.extend(rest.take_messages().into_iter().map(send));
        self.commit(&rest.take_committed_entries());
        self.choose_timeout();
    }

    /// There is a durable snapshot of the state at this mark; it may be sent to members that are
    /// far behind.
    pub fn offer_snapshot(&mut self, mark: Mark) {
        self.held_mut().offer(mark);
    }

    /// Forgets the oldest of the entries that have come out as committed, up to a position, until the
    /// rest takes `keep_bytes` or less. Members that lack one of them will need a snapshot.
    pub fn compact(&mut self, position: u64, keep_bytes: u64) {
        let position = position.min(self.raft.raft.raft_log.applied);
        self.held_mut().compact(position, keep_bytes);
    }

    /// The snapshot of [`Output::SendSnapshot`] is with its receiver, or was given up.
    pub fn snapshot_sent(&mut self, to: u64, arrived: bool) {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.raft.report_snapshot(to, status);
    }

    /// Messages to this member do not arrive for now. What it has is found out anew when they do: should it have lost
    /// some of it meanwhile, a heartbeat must not tell it that what stands there in its log is committed.
    pub fn unreachable(&mut self, member: u64) {
        self.send_directly(member);
        self.raft.report_unreachable(member);
        if self.leads()
            && let Some(progress) = self.raft.raft.mut_prs().get_mut(member)
        {
            progress.matched = 0;
        }
    }

    /// How things are.
    #[must_use]
    pub fn status(&self) -> Status {
        let engine = &self.raft.raft;
        let mut matched = Vec::new();
        if engine.state == StateRole::Leader {
            let others = engine.prs().iter().filter(|(id, _)| !self.spread.feeding.is_fed(**id));
            matched.extend(others.map(|(id, progress)| (*id, progress.matched)));
            matched.extend(self.spread.feeding.iter());
            matched.retain(|(id, _)| *id != engine.id);
            matched.sort_unstable();
        }
        Status {
            term: engine.term,
            leader: engine.leader_id,
            role: role(engine.state),
            last: engine.raft_log.last_index(),
            committed: engine.raft_log.committed,
            members: self.members(),
            matched,
        }
    }

    /// This member's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raft.raft.id
    }

    /// Whether this server belongs to the group in any way.
    #[must_use]
    pub fn has_member(&self, id: u64) -> bool {
        let all = self.held().conf_state();
        [&all.voters, &all.learners, &all.voters_outgoing].iter().any(|ids| ids.contains(&id))
    }

    fn members(&self) -> Members {
        self.held().members()
    }

    /// Whether there is nothing to do.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        let is_asked = self.spread.rounds.is_new();
        self.outputs.is_empty() && !is_asked && (self.taking_over.is_some() || !self.raft.has_ready())
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.begin_round();
        }
        while self.outputs.is_empty() && self.taking_over.is_none() && self.raft.has_ready() {
            self.take_ready();
        }
        self.outputs.pop_front()
    }

    fn take_ready(&mut self) {
        let mut ready = self.raft.ready();
        let engine = &self.raft.raft;
        let (term, leader) = (engine.term, engine.leader_id);
        // The engine says nothing when the same member leads the next term.
        let changes = ready.ss().is_some() || (leader != 0 && term != self.leader_told.0);
        let changed = changes.then(|| Output::Leader { term, leader, role: role(engine.state) });
        for read in ready.take_read_states() {
            if let Ok(id) = <[u8; 8]>::try_from(read.request_ctx.as_slice()) {
                self.outputs.push_back(Output::Read { id: u64::from_le_bytes(id), position: read.index });
            }
        }
        let snapshot = (!ready.snapshot().is_empty()).then(|| Box::new(Mark::from_raft(ready.snapshot())));
        let entries = ready.take_entries();
        let mut vote = ready.hs().cloned();
        let votes_anew = self.held_mut().take(vote.as_ref(), snapshot.as_deref(), &entries);
        let number = ready.number();
        // That more is committed is learned again after a crash; it is stored with the next entries.
        let stores = ready.must_sync();
        if stores && core::mem::take(&mut self.commit_unstored) {
            vote = Some(self.held().vote.clone());
        }
        self.commit_unstored |= !stores && vote.is_some();
        let mut messages = ready.take_messages();
        self.drop_heartbeats(&mut messages);
        let mut now = sends(messages);
        self.spread(&entries, &mut now);
        let mut after = sends(ready.take_persisted_messages());
        let committed = ready.take_committed_entries();
        if votes_anew {
            self.vote_store = number;
        }
        // The engine lets a leader speak before its disk has spoken. But a sole voter leads as soon
        // as it wants to: if it forgot that it did, it would lead the same term twice.
        let waits = self.vote_store > self.durable;
        if waits {
            after.splice(..0, now.drain(..));
        }
        if let Some(changed) = changed {
            self.leader_told.0 = term;
            self.tell_leader(changed, waits, number, &mut after);
        }
        self.give(now);
        let position = snapshot.as_ref().map(|mark| mark.position);
        if stores {
            let entries = entries.iter().map(Entry::from_raft).collect();
            let vote = vote.as_ref().map(Vote::from_raft);
            let history = self.history.filter(|_| snapshot.is_some());
            self.outputs.push_back(Output::Store(Store { number, snapshot, vote, history, entries }));
        }
        if let Some(position) = position {
            self.taking_over = Some(TakingOver { ready, position, after });
            return;
        }
        self.raft.advance_append_async(ready);
        let proven = self.held().proven();
        if proven > self.raft.raft.raft_log.committed {
            self.raft.raft.raft_log.commit_to(proven);
        }
        let vote = vote.as_ref().map(Vote::from_raft).filter(|_| stores);
        self.after_store.push_back(AfterStore::new(number, &entries, vote, stores, after));
        self.commit(&committed);
        self.store_change(number);
        // What had nothing to wait for is done.
        self.stored(0);
        if let Some(at_least) = self.held().take_wanted() {
            self.outputs.push_back(Output::SnapshotWanted(at_least));
        }
    }

    /// Most often there is nothing, and then it costs nothing.
    fn give(&mut self, outputs: Vec<Output>) {
        if !outputs.is_empty() {
            self.outputs.extend(outputs);
        }
    }

    /// Tells who leads, with what comes out after this store if it has to wait, or if something of the
    /// kind waits already: told in the wrong order, it would be believed for the whole term.
    fn tell_leader(&mut self, changed: Output, waits: bool, number: u64, after: &mut Vec<Output>) {
        let is_behind = self.after_store.front().is_some_and(|front| front.number <= self.leader_told.1);
        if waits || is_behind {
            self.leader_told.1 = number;
            after.insert(0, changed);
        } else {
            self.outputs.push_back(changed);
        }
    }

    fn commit(&mut self, committed: &[raft::eraftpb::Entry]) {
        let Some(last) = committed.last() else { return };
        let mut rest = Vec::with_capacity(committed.len());
        for entry in committed {
            let ours = Entry::from_raft(entry);
            let is_change = ours.kind == EntryKind::Change;
            rest.push(ours);
            if is_change {
                self.change_unstored = true;
                self.outputs.push_back(Output::Committed(core::mem::take(&mut rest)));
                let change = members::parse(&entry.data);
                // The engine looks what is committed by the new members, and begins to send to them.
                self.tell_engine();
                // Proposers have looked whether it can be made, and nothing came between.
                if let Ok(state) = self.raft.apply_conf_change(&change) {
                    // The engine begins anew with those who are new to it.
                    self.feed_nobody();
                    let members = self.held_mut().members_are(entry.index, state);
                    self.outputs.push_back(Output::Members(Box::new(members)));
                    self.step_down_if_no_voter();
                }
            }
        }
        if !rest.is_empty() {
            self.outputs.push_back(Output::Committed(rest));
        }
        self.raft.advance_apply_to(last.index);
        self.choose_timeout();
    }

    /// After a crash the members are those of what is stored as committed. If it were not stored who belongs to the
    /// group, the ones before would decide, and may be lost by then: who is there could do without them, and would
    /// not know it.
    fn store_change(&mut self, number: u64) {
        if core::mem::take(&mut self.change_unstored) && core::mem::take(&mut self.commit_unstored) {
            let vote = Some(self.vote());
            self.outputs.push_back(Output::Store(Store { number, vote, ..Store::default() }));
        }
    }

    /// A member that is no voter any more neither leads nor is elected by votes that are on their
    /// way: the engine ends the process over a leader that does not belong to its group.
    fn step_down_if_no_voter(&mut self) {
        let engine = &mut self.raft.raft;
        if !engine.promotable() && engine.state != StateRole::Follower {
            engine.become_follower(engine.term, 0);
        }
    }

    /// Where this member stands among those that could lead next, from 0, if that is known: it waits so many ticks longer for
    /// a word of the leader than the first one. Among many members, timeouts by chance would be the same for some: they
    /// would want to lead at once, and split the votes. The first one waits a tick longer than members hold fast to a
    /// leader, so that all who have heard the same are for it. Everybody's turn comes. Without a rank the timeout is
    /// drawn from the seed.
    pub fn set_rank(&mut self, rank: Option<usize>) {
        if self.timeouts.rank != rank {
            self.timeouts.rank = rank;
            self.choose_timeout();
        }
    }

    /// The engine draws a timeout at random whenever its term or role changes; this one is a
    /// function of the seed and the term, or of the rank. Set after every call: a comparison with what was there
    /// before would miss a draw that happened to give the same.
    pub(crate) fn choose_timeout(&mut self) {
        let Timeouts { seed, election_ticks, rank } = self.timeouts;
        let mut state = seed ^ self.raft.raft.term.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
        let drawn = (state % election_ticks as u64) as usize;
        let more = rank.map_or(drawn, |rank| rank.min(RANK_MAX) + 1);
        self.raft.raft.set_randomized_election_timeout(election_ticks + more);
    }

    pub(crate) fn held(&self) -> &Held {
        self.raft.store()
    }

    fn held_mut(&mut self) -> &mut Held {
        self.raft.mut_store()
    }
}

/// Whether somebody wants to be elected who knows that more is committed than the beginning of the group.
fn asks_for_more_than_a_beginning(message: &Message) -> bool {
    let kind = message.raft.get_msg_type();
    matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
        && message.raft.commit > Mark::FOUNDED
}

/// Most often there is nothing, and then it costs nothing.
fn sends(messages: Vec<raft::eraftpb::Message>) -> Vec<Output> {
    if messages.is_empty() { Vec::new() } else { messages.into_iter().map(send).collect() }
}

fn send(raft: raft::eraftpb::Message) -> Output {
    let is_snapshot = raft.get_msg_type() == MessageType::MsgSnapshot;
    let message = Message { raft: raft.into() };
    if is_snapshot { Output::SendSnapshot(message) } else { Output::Send(message) }
}

fn role(state: StateRole) -> Role {
    match state {
        StateRole::Follower => Role::Follower,
        StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
        StateRole::Leader => Role::Leader,
    }
}
