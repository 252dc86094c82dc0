//! A partition's end of the log, with everything that belongs to it.

mod asked;
mod children;
mod forested;
mod log;
mod outputs;
mod parent;
mod servers;
mod snapshots;

use crate::barriers::Barriers;
use crate::birth::{Birth, DiskId};
use crate::delegation::Relief;
use crate::forest::Forest;
use crate::message::Message;
use crate::peers::{Peers, READER, member_of, server_of, servers_of};
use crate::progress::{Lead, Progress};
use crate::readers::Readers;
use crate::requests::{Requests, Stream};
use crate::shared_log::{Delivery, EntryId, OnDisk, SharedLog};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use outputs::Outbox;
pub use outputs::{NotTaken, Outgoing, Output, PartitionMessage, PeerOutput, Received, Settled};
use snapshots::Neighbours;
pub use snapshots::{GivenSnapshot, SnapshotCounts};
use stoa_group::{Entry, Members, Output as GroupOutput, Role, Status};

/// The partition with which the log stands.
const FIRST: u8 = 0;

/// How a timeline works.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's number.
    pub server: u8,
    /// The partition, from 0.
    pub partition: u8,
    /// How many there are.
    pub partitions: u8,
    /// Time between two messages of a leader to the others, milliseconds.
    pub heartbeat_ms: u32,
    /// Who has not heard of a leader for about so many heartbeats tries to lead.
    pub election_heartbeats: u32,
    /// About so many bytes of entries are kept for members that lag; who lags more is sent a snapshot.
    pub kept_bytes: u64,
    /// Whether there should be other servers, whoever belongs to the group now.
    pub expects_others: bool,
    /// Whether the first of several partitions is told of the log as a whole, too.
    pub gives_log: bool,
    /// The id of this server's disk.
    pub disk: DiskId,
    /// Who founds a history with this server, if its disk holds nothing: those who are to vote. Nobody, if it is to
    /// join one.
    pub founders: BTreeSet<u8>,
    /// Whether the server is a reader, which belongs to no group. Its number is one that no member has.
    pub is_reader: bool,
    /// What the other servers take off a leader.
    pub relief: Relief,
    /// Random numbers that have nothing to do with each other: for election timeouts, the numbers of requests, and
    /// those of questions.
    pub seeds: [u64; 3],
}

/// An attempt to lead that does not wait for the election timeout.
#[derive(Debug, Clone, Copy)]
struct Campaign {
    at_us: u64,
    /// How long after it the next attempt is made.
    again_us: u64,
}

/// See the crate. `C` names who asks.
pub struct Timeline<C> {
    config: Config,
    /// At the first partition: the log that all of them share.
    log: Option<Box<SharedLog>>,
    /// At the first partition, as long as there is no history here.
    birth: Option<Birth>,
    progress: Progress,
    requests: Requests<C>,
    barriers: Barriers<C>,
    peers: Peers,
    /// At the first partition: the trees down which appends go.
    forest: Forest,
    /// Servers below this one that are no members, and the one that this one is below if it is none.
    readers: Readers<C>,
    /// At the leader: what it has taken of each contact server's requests.
    streams: BTreeMap<u8, Stream>,
    election: Election,
    tick_at_us: u64,
    now_us: u64,
    /// At the first partition: snapshots that servers are sent.
    neighbours: Neighbours,
    outbox: Outbox,
}

/// What becomes of leaders.
#[derive(Debug, Default)]
struct Election {
    /// The term whose leader has been given what this server had asked before.
    settled_in: u64,
    /// The term in which the first partition prepares requests here, as far as the others were told; 0 when it does
    /// not.
    prepares_in: u64,
    /// The lead is being handed over: nothing is prepared meanwhile.
    handing_over_until_us: Option<u64>,
    /// When to try to lead, because the leader is gone.
    campaign: Option<Campaign>,
    /// A leader whose connection has ended, and until when nothing is taken of it that others bring.
    lost: Option<(u64, u64)>,
}

impl Election {
    /// Whether the connection of this member, which led, has ended just now.
    fn has_lost(&self, member: u64, now_us: u64) -> bool {
        self.lost.is_some_and(|(lost, until_us)| lost == member && now_us < until_us)
    }
}

impl<C> core::fmt::Debug for Timeline<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { config, progress, peers, .. } = self;
        f.debug_struct("Timeline")
            .field("of", config)
            .field("progress", progress)
            .field("peers", peers)
            .finish()
    }
}

impl<C: Copy + Ord> Timeline<C> {
    /// With what the disk holds. `position` is where this partition stands on its own timeline, and `positions` where
    /// all do, where there are several. `None` when the disk cannot hold that: its vote speaks of entries that are
    /// missing, or its members of nobody who could vote.
    #[must_use]
    pub fn new(
        config: Config,
        disk: &OnDisk<'_>,
        position: u64,
        positions: &[u64],
        now_us: u64,
    ) -> Option<Self> {
        let [election, stream, question] = config.seeds;
        let log = match config.partition {
            FIRST => Some(Box::new(SharedLog::new(config.group(election), disk, positions)?)),
            _ => None,
        };
        let stoa_group::Restored { base, vote, .. } = disk.restored;
        let position = if config.partitions > 1 { position } else { base.position };
        let members = log.as_ref().map_or_else(|| base.members.clone(), |log| log.members());
        let birth = || Birth::new(config.server, config.disk, &config.founders);
        let is_new = log.as_ref().is_some_and(|log| log.history().is_none());
        // The number of its requests differs from process to process, too, and is drawn apart from this one's votes.
        let of_forest = config.relief.forest.clone().filter(|_| config.partition == FIRST);
        let forest = Forest::new(config.server, of_forest, stream, &members);
        let mut timeline = Self {
            birth: is_new.then(birth),
            progress: Progress::new(config.member(), (position, base.term), vote.term, members),
            requests: Self::requests_of(&config),
            barriers: Barriers::new(config.server, question),
            log,
            peers: Peers::default(),
            forest,
            readers: Readers::new(config.is_reader, now_us),
            streams: BTreeMap::new(),
            election: Election::default(),
            tick_at_us: now_us + u64::from(config.heartbeat_ms.max(1)) * 1000,
            config,
            now_us,
            neighbours: Neighbours::default(),
            outbox: Outbox::default(),
        };
        timeline.found_alone();
        Some(timeline)
    }

    #[inline]
    fn heartbeat_us(&self) -> u64 {
        u64::from(self.config.heartbeat_ms.max(1)) * 1000
    }

    fn is_only_partition(&self) -> bool {
        self.config.partitions <= 1
    }

    // ---- who leads, and where it stands ----

    /// Whether the log stands here: whether it is the first partition's.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// The term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.progress.term
    }

    /// Who leads, if that is known.
    #[must_use]
    pub fn leader(&self) -> Option<u8> {
        server_of(self.progress.leader)
    }

    /// How far this server's lead has come.
    #[must_use]
    pub fn lead(&self) -> Lead {
        self.progress.lead
    }

    /// Whether this server leads, and may prepare requests: whether the first partition does so, and the lead is not
    /// being handed over.
    #[must_use]
    pub fn leads(&self) -> bool {
        let may_prepare = self.config.partition == FIRST || self.election.prepares_in == self.progress.term;
        self.progress.lead == Lead::Active && self.election.handing_over_until_us.is_none() && may_prepare
    }

    /// Whether a leader is known, and everything is applied that was committed before its time: then
    /// this server takes part in the ensemble.
    #[must_use]
    pub fn is_in_quorum(&self) -> bool {
        self.progress.term > 0 && self.progress.leader != 0 && self.is_settled()
    }

    /// Whether everything is applied that was committed before the present leader's time.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let Progress { term, applied, .. } = self.progress;
        // A reader may have been told of a later term by an earlier parent.
        self.election.settled_in == term || (self.is_reader() && applied.1 >= term && term > 0)
    }

    /// Whether another server is about to take the lead from this one.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.election.handing_over_until_us.is_some()
    }

    /// Whether this server alone decides what is committed. (There may be others that listen.)
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.progress.is_alone()
    }

    /// Whether there are other members.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.progress.has_others()
    }

    /// Whether there are other servers, or should be.
    #[must_use]
    pub fn is_ensemble(&self) -> bool {
        self.progress.has_others() || self.config.expects_others
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &Members {
        self.progress.members()
    }

    /// The numbers of all who belong to the group, those among them whose votes a change still needs.
    #[must_use]
    pub fn member_ids(&self) -> Vec<u8> {
        let members = self.progress.members();
        let all = [&members.voters, &members.learners, &members.outgoing];
        let servers: BTreeSet<u8> = servers_of(all.into_iter().flatten()).into_iter().collect();
        servers.into_iter().collect()
    }

    /// Whether a server belongs to the ensemble. One that was taken out may not have heard of that, and
    /// never hears what becomes of its requests.
    #[must_use]
    pub fn is_member(&self, server: u8) -> bool {
        self.progress.has_member(member_of(server))
    }

    /// Position and term of the last applied entry.
    #[must_use]
    pub fn applied_at(&self) -> (u64, u64) {
        self.progress.applied
    }

    /// Position of the last entry that is proposed here, or committed.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.progress.last()
    }

    /// Position up to which entries are known to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.progress.committed()
    }

    /// Which entry the next one is that is proposed here.
    #[must_use]
    pub fn next_entry(&self) -> EntryId {
        let Progress { term, .. } = self.progress;
        EntryId { partition: self.config.partition, term, position: self.progress.next() }
    }

    /// At the first partition: what the group says of itself, in positions of the log.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.log.as_ref().map(|log| log.status())
    }

    /// At the leader: questions of all servers where the log ends that are not answered yet.
    #[must_use]
    pub fn pending_reads(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.pending_reads())
    }

    // ---- what is decided, and what is to be done ----

    /// The next thing that has come of it. `prepares` says whether what is asked can be prepared now.
    #[inline]
    pub fn poll(&mut self, prepares: bool) -> Option<Output> {
        let is_idle = self.barriers.are_asked()
            && self.requests.are_given()
            && self.progress.is_idle()
            && !self.readers.wants_snapshot
            && !self.neighbours.givings.wants_snapshot;
        if is_idle && self.log.as_mut().is_none_or(|log| log.is_idle()) {
            return None;
        }
        self.poll_busy(prepares)
    }

    fn poll_busy(&mut self, prepares: bool) -> Option<Output> {
        self.ask_barriers();
        let of_givings = core::mem::take(&mut self.neighbours.givings.wants_snapshot);
        if core::mem::take(&mut self.readers.wants_snapshot) || of_givings {
            return Some(Output::SnapshotWanted);
        }
        loop {
            if let Some(asked) = self.give_requests(prepares) {
                return Some(asked);
            }
            let output = if let Some(delivery) = self.progress.poll() {
                self.take_delivery(delivery)
            } else {
                let output = self.log.as_mut()?.poll()?;
                self.carry_out(output)
            };
            if output.is_some() {
                return output;
            }
        }
    }

    /// At the first partition: what the group wants done, or has for the partitions.
    fn carry_out(&mut self, output: GroupOutput) -> Option<Output> {
        match output {
            GroupOutput::Send(message) => {
                let to = server_of(message.to())?;
                if message.grants() {
                    self.is_for_another();
                }
                if !self.goes_up(to, &message) {
                    self.say(to, Message::Group(message));
                }
            }
            GroupOutput::Spread(message) => {
                let round = self.log.as_mut()?.group().round();
                self.forest.spread(self.now_us, &message, round);
            }
            GroupOutput::SendSnapshot(message) => {
                let to = server_of(message.to())?;
                self.sends_snapshot(to, message);
            }
            GroupOutput::Committed(entries) if self.is_only_partition() => {
                self.forest.committed(entries.last().map_or(0, |last| last.position));
                self.have_committed();
                return self.take_delivery(Delivery::Committed(entries));
            }
            GroupOutput::Committed(entries) => {
                self.forest.committed(entries.last().map_or(0, |last| last.position));
                self.have_committed();
                self.deliver_divided(&entries);
                self.deliver_answers();
                self.compact_log(entries.last().map_or(0, |last| last.position));
            }
            GroupOutput::Read { id, position } if self.is_only_partition() => {
                return self.barriers.answered(id, position).then_some(Output::Answered);
            }
            GroupOutput::Read { id, position } => {
                self.log.as_mut()?.answered(id, position);
                self.deliver_answers();
            }
            // Who feeds a reader does not lead.
            GroupOutput::Leader { .. } if self.is_reader() => {}
            GroupOutput::Leader { term, leader, role } => {
                self.neighbours.is_led(role);
                self.forest_is_led(term, leader, role);
                self.deliver_to_all(&Delivery::Leader { term, leader, leads: role == Role::Leader });
            }
            GroupOutput::SnapshotWanted(_) => return Some(Output::SnapshotWanted),
            GroupOutput::Members(members) => self.deliver_to_all(&Delivery::Members(members)),
            // It has become a record.
            GroupOutput::Store(_) => {}
        }
        None
    }

    /// Each partition is given its parts of committed entries.
    fn deliver_divided(&mut self, entries: &[Entry]) {
        // What is said of an entry as a whole comes before the parts of the next one, which may follow from it.
        let at_a_time = if self.config.gives_log { 1 } else { entries.len().max(1) };
        let mut of_others = vec![Vec::new(); usize::from(self.config.partitions)];
        for some in entries.chunks(at_a_time) {
            let Some(log) = &mut self.log else { return };
            for (partition, parts) in (0..).zip(log.divide(some)).filter(|(_, parts)| !parts.is_empty()) {
                if partition == self.config.partition {
                    self.progress.deliver(Delivery::Committed(parts));
                } else {
                    of_others[usize::from(partition)].extend(parts);
                }
            }
            if self.config.gives_log {
                self.progress.deliver(Delivery::Logged(some.to_vec()));
            }
        }
        for (partition, parts) in (0..).zip(of_others).filter(|(_, parts)| !parts.is_empty()) {
            self.deliver(partition, Delivery::Committed(parts));
        }
    }

    fn deliver_answers(&mut self) {
        let answers = self.log.as_mut().map(|log| log.take_answers()).unwrap_or_default();
        for (partition, question) in answers {
            self.deliver(partition, Delivery::Read(question));
        }
    }

    fn deliver_to_all(&mut self, delivery: &Delivery) {
        for partition in 0..self.config.partitions.max(1) {
            self.deliver(partition, delivery.clone());
        }
    }

    /// At the first partition: something of the log for a partition.
    fn deliver(&mut self, partition: u8, delivery: Delivery) {
        if partition == self.config.partition {
            self.progress.deliver(delivery);
        } else {
            self.outbox.partitions.push_back((partition, PartitionMessage::Deliver(delivery)));
        }
    }

    /// More is committed: those below are to have it, and who is a reader may have to say so.
    fn have_committed(&mut self) {
        if !self.readers.is_none() {
            self.feed_all();
            self.has_committed();
        }
    }

    fn take_delivery(&mut self, delivery: Delivery) -> Option<Output> {
        Some(match delivery {
            Delivery::Committed(entries) => {
                if let Some(last) = entries.last() {
                    self.progress.is_committed(last.position);
                }
                Output::Committed(entries)
            }
            Delivery::Logged(entries) => Output::Logged(entries),
            Delivery::Leader { term, leader, leads } => {
                self.leader_is(term, leader, leads);
                self.tell_readers();
                Output::Leader
            }
            Delivery::Read(question) => {
                self.barriers.answered(question, self.progress.committed());
                Output::Answered
            }
            Delivery::Members(members) => {
                self.forest_has(&members);
                self.progress.members_are(*members);
                Output::Members
            }
            Delivery::Snapshot(number) => Output::Snapshot(number),
            Delivery::NoRoom => Output::NoRoom,
            Delivery::Attached(by) => {
                self.is_attached(by);
                Output::Attached(by.is_some())
            }
            Delivery::Service(message) => Output::ParentSays(message),
            Delivery::Numbered { number, count } => {
                self.are_numbered(number, count);
                return None;
            }
            Delivery::Position { question, position } => {
                self.barriers.answered(question, position);
                Output::Answered
            }
        })
    }

    fn leader_is(&mut self, term: u64, leader: u64, leads: bool) {
        self.progress.leader_is(term, leader, leads);
        // That the leader is lost is no reason not to follow it up.
        if leader != 0 {
            self.election.campaign = None;
        }
        if !leads {
            self.stop_leading();
        }
    }

    fn stop_leading(&mut self) {
        self.election.handing_over_until_us = None;
        self.streams.clear();
    }

    /// This entry is applied. What follows from that is in [`Timeline::settle`].
    #[inline]
    pub fn applied(&mut self, position: u64, term: u64) {
        self.progress.applied = (position, term);
    }

    /// An entry of the term that the group is in has been applied, by whose leader everything
    /// committed before is before it: what has no outcome yet has none. `None` where nothing follows.
    #[inline]
    pub fn settle(&mut self) -> Option<Settled<C>> {
        let Progress { term, applied, leader, lead, .. } = self.progress;
        let is_news = self.election.settled_in != term || lead == Lead::Elected;
        let is_there = applied.1 == term || (applied.1 > term && self.is_reader());
        (is_news && is_there && leader != 0).then(|| self.settle_term())
    }

    fn settle_term(&mut self) -> Settled<C> {
        let term = self.progress.term;
        let mut lost = Vec::new();
        if self.election.settled_in != term {
            self.election.settled_in = term;
            self.accept_leader();
            self.tell_members();
            if !self.is_reader() {
                // Of a reader's requests its parent sees to that.
                self.requests.ask_again(|who| lost.push(who));
            }
        }
        let is_elected = self.progress.lead == Lead::Elected && self.progress.applied.1 == term;
        Settled { lost, is_elected }
    }

    /// Another server or this one leads, and what it leads with is committed here: if it is one that has
    /// come back with another disk, it was taken out and has joined anew, and this server has missed that.
    fn accept_leader(&mut self) {
        let Some(leader) = self.leader() else { return };
        if !self.peers.accept(leader, self.progress.term) {
            return;
        }
        if self.progress.has_others() {
            self.tell(PeerOutput::Leads(leader));
        }
    }

    /// Tells who belongs to the ensemble, as far as this server knows. Who does not, or was taken out meanwhile, and has
    /// come back with another disk, is welcome: that is for whoever knows the disks to say, since it may come at any moment.
    pub fn tell_members(&mut self) {
        let members = self.member_ids();
        let removed = &self.progress.members().removed;
        let removed =
            removed.iter().filter_map(|(id, position)| Some((server_of(*id)?, *position))).collect();
        self.tell(PeerOutput::Members { members, removed });
    }

    /// It prepares requests from now on.
    pub fn begin_to_lead(&mut self) {
        self.progress.lead = Lead::Active;
        self.streams.clear();
    }

    /// At the first partition: in which term the others may prepare requests, or 0 when they may not; `None` when
    /// they know.
    pub fn prepares_in(&mut self) -> Option<u64> {
        let prepares = self.progress.lead == Lead::Active && !self.is_handing_over();
        let term = if prepares { self.progress.term } else { 0 };
        (core::mem::replace(&mut self.election.prepares_in, term) != term).then_some(term)
    }

    /// At the other partitions: what the first one says of that.
    pub fn may_prepare_in(&mut self, term: u64) {
        self.election.prepares_in = term;
    }

    /// The log need not be kept in memory up to what is applied, but for those who lag behind.
    pub fn compact(&mut self) {
        if self.is_only_partition() {
            self.compact_log(self.progress.applied.0);
        }
    }

    fn compact_log(&mut self, position: u64) {
        let others = self.progress.has_others() || !self.readers.children.is_empty();
        let keep = if others { self.config.kept_bytes } else { 0 };
        if let Some(log) = &mut self.log {
            log.group().compact(position, keep);
        }
    }
}

impl Config {
    /// What the server is called in the group.
    fn member(&self) -> u64 {
        if self.is_reader { READER } else { member_of(self.server) }
    }

    fn group(&self, seed: u64) -> stoa_group::Config {
        stoa_group::Config {
            heartbeat_ticks: 1,
            // The engine asks for more than one heartbeat.
            election_ticks: self.election_heartbeats.max(2) as usize,
            skipped_terms: seed % stoa_group::Config::SKIPPED_MAX,
            ..stoa_group::Config::new(self.member(), seed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_log::Proposal;
    use bytes::Bytes;
    use stoa_group::{Mark, Restored};

    /// What comes out while everything is stored.
    fn settle(timeline: &mut Timeline<u8>) -> Vec<(&'static str, u64)> {
        let mut told = Vec::new();
        loop {
            let Some(output) = timeline.poll(true) else {
                match timeline.poll_append() {
                    Some(append) => _ = timeline.stored(append.position),
                    None => return told,
                }
                continue;
            };
            let (what, entries) = match output {
                Output::Committed(entries) => ("part", entries),
                Output::Logged(entries) => ("whole", entries),
                _ => continue,
            };
            let entries = entries.iter().filter(|entry| !entry.payload.is_empty());
            told.extend(entries.map(|entry| (what, entry.position)));
        }
    }

    /// A part of the second may follow from what the first says to another partition.
    #[test]
    fn an_entry_is_told_as_a_whole_before_the_next_one_where_both_are_committed_at_once() {
        let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1]) };
        let restored = Restored { base, ..Restored::default() };
        let disk = OnDisk { restored: &restored, snapshot: None, covered: 0, record: 0 };
        let config = Config {
            server: 1,
            partition: FIRST,
            partitions: 2,
            heartbeat_ms: 100,
            election_heartbeats: 5,
            kept_bytes: 1 << 20,
            expects_others: false,
            gives_log: true,
            disk: DiskId::default(),
            founders: BTreeSet::new(),
            is_reader: false,
            relief: Relief::default(),
            seeds: [1, 2, 3],
        };
        let mut timeline = Timeline::new(config, &disk, 0, &[0, 0], 0).unwrap();
        timeline.lead_if_alone();
        settle(&mut timeline);
        let term = timeline.term();
        for position in 1..=2 {
            let payload = Bytes::from_static(b"something");
            let proposal = Proposal { term, position, payload: payload.clone(), follows: Vec::new() };
            timeline.hear(1, PartitionMessage::Propose(proposal));
            assert_eq!(timeline.propose(payload, Vec::new()), Ok(position));
            timeline.propose_batch();
        }
        let told = settle(&mut timeline);
        let (first, second) = (told[1].1, told[3].1);
        assert_eq!(told, [("part", 1), ("whole", first), ("part", 2), ("whole", second)]);
        assert_eq!(second, first + 1);
    }
}
