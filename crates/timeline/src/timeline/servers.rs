//! The other servers: their messages, elections, who belongs to the ensemble, and time.

use super::{Campaign, Outgoing, PeerOutput, Received, Timeline};
use crate::birth::{Begin, Birth, DiskId, Standing};
use crate::message::{BadMessage, Message};
use crate::peers::{Wanted, member_of, server_of};
use crate::progress::Lead;
use crate::shared_log::Delivery;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{Change, History, HistoryId, Mark};

/// Requests without outcome are given again after so many heartbeats: some may have been lost.
const GIVE_AGAIN_HEARTBEATS: u64 = 5;
/// Between the servers that could replace a leader whose end was noticed, so that they do not split
/// the votes, microseconds.
const CAMPAIGN_STAGGER_US: u64 = 20_000;
/// How long electing somebody may take where there are many servers, microseconds.
const ELECTION_US: u64 = 100_000;
/// How long appends of a leader may be on their way by others after its connection has ended, microseconds. If it lives,
/// and only that connection is lost, it is heard again after that.
const LOST_US: u64 = 300_000;

impl<C: Copy + Ord> Timeline<C> {
    // ---- which history it is ----

    /// At the first partition: which history this is, if it is one.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.log.as_ref()?.history()
    }

    /// At the first partition: what the other servers are told before anything else.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match (&self.birth, self.history()) {
            (Some(birth), _) => birth.standing(),
            (None, Some(history)) => Standing::Has(history.id),
            (None, None) => Standing::New,
        }
    }

    /// Of whom nothing has been heard, who is to found a history with this server. Nobody, if it has one.
    #[must_use]
    pub fn founders_missing(&self) -> Vec<u8> {
        self.birth.iter().flat_map(Birth::missing).collect()
    }

    /// Another server has said which history it has. Servers of the same one are connected then: see
    /// [`Timeline::peer_connected`]; nothing else passes between others.
    pub fn peer_met(&mut self, peer: u8, disk: DiskId, theirs: Standing) {
        let Some(birth) = &mut self.birth else { return };
        let before = birth.standing();
        match birth.hear(peer, disk, theirs) {
            Some(Begin::Found(history, founders)) => self.begin_history(history, founders),
            Some(Begin::Join(history)) => self.begin_history(history, BTreeMap::new()),
            None if birth.standing() == before => {}
            None => self.tell(PeerOutput::Founds(self.standing())),
        }
    }

    /// Nobody else is to be heard of.
    pub(super) fn found_alone(&mut self) {
        let me = self.config.server;
        if self.birth.is_some() && self.config.founders.iter().eq([&me]) {
            let founders = BTreeMap::from([(me, self.config.disk)]);
            self.begin_history(HistoryId::of_founders(&founders), founders);
        }
    }

    pub(super) fn begin_history(&mut self, history: HistoryId, founders: BTreeMap<u8, DiskId>) {
        let Some(log) = &mut self.log else { return };
        let voters: Vec<u64> = founders.keys().copied().map(member_of).collect();
        if !log.begin_history(history, &voters) {
            return;
        }
        self.birth = None;
        let (members, mark) = (log.members(), Mark::founding(&voters));
        if self.config.partitions <= 1 {
            self.progress.replaced((mark.position, mark.term));
        }
        self.deliver_to_all(&Delivery::Members(members.into()));
        if self.is_ensemble() {
            self.tell(PeerOutput::Began { history, founders });
        }
    }

    // ---- the other servers ----

    /// Whether anything is taken from another server: not from one that has come back with another disk or with an
    /// older copy of its own, but what a leader says, for a majority has elected it with the disk that it has.
    #[must_use]
    pub fn listens_to(&self, from: u8, is_of_leader: bool) -> bool {
        !self.peers.is_emptied(from) || is_of_leader
    }

    /// A message of another server, whose name is proved.
    ///
    /// # Errors
    /// When it is none of that server's. Whoever sends that is broken, or of another release.
    pub fn receive(&mut self, from: u8, message: Message) -> Result<Received, BadMessage> {
        let mut received = Received::default();
        match message {
            Message::Group(message) => {
                if message.from() != member_of(from) || message.snapshot().is_some() {
                    return Err(BadMessage);
                }
                if message.appends() {
                    self.forest.appends(true);
                }
                if let Err(error) = self.log.as_mut().ok_or(BadMessage)?.group().step(message) {
                    received.refused =
                        Some(alloc::format!("a message of server {from} was refused: {error}"));
                }
            }
            Message::Forest(frame) => {
                if !self.forest.receive(self.now_us, from, frame) {
                    return Err(BadMessage);
                }
            }
            Message::Tag { tag, asks } => self.take_tag(from, tag, asks),
            Message::Give(order) => self.take_order(from, order),
            Message::Gives(report) => self.take_report(from, report),
            // It goes with a snapshot, and is no message by itself.
            Message::Given(_) => return Err(BadMessage),
            Message::Forward(forward) => received.asked = self.take_forwarded(from, forward),
            Message::Missing { term, stream, expected } => {
                if term == self.progress.term && stream == self.requests.stream() {
                    self.requests.give_again_from(expected);
                }
            }
        }
        Ok(received)
    }

    /// A message for another server that is none of the timeline's: [`Message::is_kind`] tells them apart there.
    pub fn send(&mut self, to: u8, message: Bytes) {
        debug_assert!(message.first().is_some_and(|kind| !Message::is_kind(*kind)), "it is the timeline's");
        self.tell(PeerOutput::Send { to, message: Outgoing::Service(message) });
    }

    pub(super) fn say(&mut self, to: u8, message: Message) {
        self.tell(PeerOutput::Send { to, message: Outgoing::Timeline(message) });
    }

    /// Something else for the other servers.
    pub fn tell(&mut self, output: PeerOutput) {
        // No server knows a reader, but its parent.
        if !self.is_reader() {
            self.outbox.peers.push_back(output);
        }
    }

    /// What is to be sent to other servers, oldest first.
    pub fn poll_peer(&mut self) -> Option<PeerOutput> {
        self.outbox.peers.pop_front()
    }

    /// Whether there is a connection to another server.
    #[must_use]
    pub fn is_connected(&self, peer: u8) -> bool {
        self.peers.is_connected(peer)
    }

    /// A connection to another server is there (again): what was sent before may be lost.
    pub fn peer_connected(&mut self, peer: u8) {
        self.peers.connect(peer);
        self.election.lost.take_if(|(lost, _)| *lost == member_of(peer));
        self.meet_in_forest(peer);
        self.campaign_when_met();
        if member_of(peer) == self.progress.leader {
            self.requests.give_again_from(0);
        }
    }

    /// A member has come back with another disk than it had, or with an older copy of that: it has to join anew. Until
    /// then it is only listened to if it leads.
    pub fn peer_emptied(&mut self, peer: u8) {
        debug_assert!(self.log.is_some(), "the first partition has the log, and knows the disks");
        self.peers.disconnect(peer);
        self.lose_in_forest(peer);
        self.lose_neighbour(peer);
        let leads = self.progress.leader == member_of(peer);
        self.peers.empty(peer, if leads { self.progress.term } else { 0 });
    }

    /// Those members.
    #[must_use]
    pub fn emptied(&self) -> Vec<u8> {
        self.peers.emptied().collect()
    }

    /// The connection to another server has ended, most likely with the server. Returns whether it has led: then
    /// [`Timeline::follow_up`] comes when that is dealt with.
    pub fn peer_lost(&mut self, peer: u8) -> bool {
        let member = member_of(peer);
        self.peers.disconnect(peer);
        self.lose_in_forest(peer);
        self.lose_neighbour(peer);
        let Some(log) = &mut self.log else { return false };
        log.group().unreachable(member);
        if member != self.progress.leader || self.progress.lead != Lead::No {
            return false;
        }
        log.group().forget_leader();
        self.election.lost = Some((member, self.now_us + LOST_US));
        true
    }

    /// Forgets a leader that does not listen any more.
    pub fn forget_leader(&mut self) {
        if let Some(log) = &mut self.log {
            log.group().forget_leader();
        }
    }

    // ---- elections that do not wait for a timeout ----

    /// Nobody leads, as far as this server knows, and it has met enough others to be elected: there is
    /// no need to wait for the leader that may be there. If there is one, they refuse.
    fn campaign_when_met(&mut self) {
        let voters = &self.progress.members().voters;
        let met = |member: &&u64| server_of(**member).is_some_and(|server| self.peers.is_connected(server));
        let is_enough = voters.iter().filter(met).count() == voters.len() / 2;
        if self.log.is_some() && self.progress.leader == 0 && is_enough {
            self.follow_up(None);
        }
    }

    /// Wants to lead, in place of a server that is lost if there was one, behind the voters with smaller numbers, so
    /// that they do not split the votes. In a forest it is behind the roots of the trees.
    pub fn follow_up(&mut self, lost: Option<u8>) {
        let rank = self.rank_in_forest(lost);
        let (members, id, lost) = (self.progress.members(), self.progress.id(), lost.map(member_of));
        let is_before = |voter: &&u64| Some(**voter) != lost && **voter < id;
        let again_us = if rank.is_some() { ELECTION_US } else { self.heartbeat_us() / 2 };
        let rank = rank.unwrap_or_else(|| members.voters.iter().filter(is_before).count());
        if members.voters.contains(&id) {
            let at_us = self.now_us + rank as u64 * CAMPAIGN_STAGGER_US;
            self.election.campaign = Some(Campaign { at_us, again_us });
        }
    }

    /// The others refuse a candidate as long as they have not noticed that the leader is gone, and
    /// one whose timeline ends before theirs; then it may be that nobody else tries who could win.
    /// So an attempt is repeated, more and more seldom until the election timeout has its turn.
    fn campaign(&mut self) {
        let now_us = self.now_us;
        let Some(Campaign { at_us, again_us }) = self.election.campaign.filter(|due| due.at_us <= now_us)
        else {
            return;
        };
        let again = Campaign { at_us: at_us.max(now_us) + again_us, again_us: again_us * 2 };
        self.election.campaign =
            Some(again).filter(|_| again_us < self.election_us() && self.progress.leader == 0);
        if let Some(log) = self.log.as_mut().filter(|_| self.progress.leader == 0) {
            log.group().campaign();
        }
    }

    /// Where this server stands among the voters of a forest that could follow up the leader: those it is connected with.
    fn rank_in_forest(&self, lost: Option<u8>) -> Option<usize> {
        let me = self.config.server;
        let voters = self.progress.members().voters.iter().copied().filter_map(server_of);
        let is_able = |id: &u8| Some(*id) != lost && (*id == me || self.peers.is_connected(*id));
        self.forest.rank(&voters.filter(is_able).collect())
    }

    /// In a forest one wants to lead after the other, also where nobody notices that the leader's connections have ended:
    /// the group is told how long to wait beyond what all wait.
    pub(super) fn wait_in_turn(&mut self) {
        let leader = self.leader();
        let rank = self.rank_in_forest(leader);
        if let Some(log) = &mut self.log {
            log.group().set_rank(rank);
        }
    }

    /// This server is for somebody else's lead. In a forest it waits for what comes of that before it tries itself: with
    /// many servers it takes longer to elect one than they wait for each other.
    pub(super) fn is_for_another(&mut self) {
        let is_forest = self.rank_in_forest(None).is_some();
        if let Some(campaign) = self.election.campaign.as_mut().filter(|_| is_forest) {
            campaign.at_us += ELECTION_US;
        }
    }

    pub(super) fn election_us(&self) -> u64 {
        self.heartbeat_us() * u64::from(self.config.election_heartbeats)
    }

    // ---- members ----

    /// At the leader: who may join, leave or vote next, so that the members become those that are wanted. `None`
    /// where a change is under way, or the log stands elsewhere.
    #[must_use]
    pub fn next_changes(&self, wanted: &Wanted) -> Option<Vec<Change>> {
        let status = self.status().filter(|status| status.members.outgoing.is_empty())?;
        Some(self.peers.changes(self.config.server, wanted, &status))
    }

    /// Proposes changes of the members. What cannot be done now is tried again at the next heartbeat.
    pub fn propose_changes(&mut self, changes: &[Change]) {
        if let Some(log) = &mut self.log {
            // Refused where the leader changes meanwhile: then the next one looks what is to be changed.
            let _ = log.group().propose_changes(changes);
        }
    }

    /// At the leader: who has the most of those that could take the lead; rather one of `voters`, who are to stay.
    #[must_use]
    pub fn successor(&self, wanted: &Wanted) -> Option<u8> {
        let status = self.status()?;
        let voters = status.matched.iter().filter(|(member, _)| status.members.voters.contains(member));
        let could = voters.filter_map(|(member, matched)| Some((server_of(*member)?, *matched)));
        let could = could.filter(|(id, _)| self.is_connected(*id));
        could.max_by_key(|(id, matched)| (wanted.voters.contains(id), *matched)).map(|(id, _)| id)
    }

    /// Hands the lead to another server, as soon as it has everything that is proposed. Nothing is prepared meanwhile.
    pub fn hand_over(&mut self, to: u8) {
        self.propose_batch();
        let Some(log) = &mut self.log else { return };
        log.group().transfer(member_of(to));
        self.election.handing_over_until_us = Some(self.now_us + self.election_us());
    }

    // ---- time ----

    /// The time, microseconds of a clock that never goes back. Whatever is handed in afterwards happens then.
    #[inline]
    pub fn at(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// What is due by now: an attempt to lead, a heartbeat. Returns whether there was a heartbeat.
    pub fn tick(&mut self) -> bool {
        let now_us = self.now_us;
        self.campaign();
        self.forest.tick(now_us);
        self.election.handing_over_until_us =
            self.election.handing_over_until_us.filter(|until| *until > now_us);
        self.tend_readers();
        if !self.is_ensemble() || self.tick_at_us > now_us {
            return false;
        }
        self.ask_tags();
        self.wait_in_turn();
        // After a pause one tick is enough: the others' messages come first.
        self.tick_at_us = now_us + self.heartbeat_us();
        if let Some(log) = &mut self.log {
            log.group().tick();
        }
        self.tend_delegations();
        true
    }

    /// Gives and asks again what may have been lost.
    pub fn repeat(&mut self) {
        let now_us = self.now_us;
        let again_us = self.heartbeat_us() * GIVE_AGAIN_HEARTBEATS;
        // What a leader has given to itself is not lost.
        let follows = self.is_ensemble() && self.progress.lead == Lead::No && !self.is_reader();
        if follows && !self.requests.is_empty() && self.requests.given_at_us + again_us <= now_us {
            self.requests.give_again_from(0);
        }
        let mut again = Vec::new();
        self.barriers.ask_again(self.heartbeat_us() * 2, now_us, |question| again.push(question));
        again.into_iter().for_each(|question| self.ask_log(question));
    }

    /// When [`Timeline::tick`] is next needed.
    #[must_use]
    pub fn next_wake_us(&self) -> Option<u64> {
        let tick = self.is_ensemble().then_some(self.tick_at_us);
        let readers = (!self.readers.is_none() && self.log.is_some()).then_some(self.readers.tend_at_us);
        [tick, readers, self.election.campaign.map(|due| due.at_us), self.forest.next_wake_us()]
            .into_iter()
            .flatten()
            .min()
    }
}
