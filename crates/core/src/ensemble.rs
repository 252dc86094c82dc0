//! This server among the others: what comes from them, who leads, and what the timeline says.

mod heard;

use crate::barrier::Barriers;
use crate::carrier::{Delivery, Handed};
use crate::config::Now;
use crate::connection::CloseReason;
use crate::crossing::Pending;
use crate::entry::Origin;
use crate::owners::Known;
use crate::peer::{Asked, BadMessage, Forward, Heard, PeerMessage};
use crate::place::Place;
use crate::placement::FIRST;
use crate::planted::Bug;
use crate::replica::Lead;
use crate::requests::Stream;
use crate::server::{Due, Server};
use crate::session::Scope;
use crate::state::State;
use crate::step::end_of;
use crate::timestamp::Timestamp;
use crate::word::Word;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{Entry, EntryKind, Message, Output, Pieces, ProposeError, Role};
use stoa_tree::{Caller, Contact};
use stoa_wire::{ErrorCode, Opcode, Reader, Request};

/// Something for another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerOutput {
    /// A message. It may be lost; the order is worth keeping, not more.
    Send {
        /// Whom it is for.
        to: u8,
        /// Its bytes.
        message: Pieces,
    },
    /// The newest snapshot, which is at this position of the timeline, and with it a message for
    /// [`Server::take_over`]. Say what became of it with [`Server::snapshot_sent`].
    Snapshot {
        /// Whom it is for.
        to: u8,
        /// Which snapshot.
        position: u64,
        /// The message.
        message: Vec<u8>,
    },
    /// These belong to the ensemble now. Whoever else was known is a stranger, welcome with any disk. It
    /// comes when that changes, and when a term begins: what has changed before is not told one by one.
    Members(Vec<u8>),
    /// This server leads in a new term, and what it leads with is committed here. If it has come back with
    /// another disk, a majority has elected it with that, so it has joined anew without our knowing.
    Leads(u8),
    /// There is another list of servers, [`Server::servers`]: connect to those in it, and be connected
    /// to by them.
    Servers,
}

/// About how many bytes of requests one message carries.
const FORWARD_BYTES: usize = 1 << 20;
/// Requests without outcome are given again after so many heartbeats: some may have been lost.
const GIVE_AGAIN_HEARTBEATS: u64 = 5;
/// Between the servers that could replace a leader whose end was noticed, so that they do not split
/// the votes, microseconds.
const CAMPAIGN_STAGGER_US: u64 = 20_000;

/// What this server knows of the others.
pub(crate) struct Ensemble {
    heartbeat_us: u64,
    tick_at_us: u64,
    /// When to try to lead, because the leader is gone.
    campaign: Option<Campaign>,
    /// The term whose leader has been given what this server had asked before.
    pub(crate) asked_in_term: u64,
    /// At the leader: what it has taken of each contact server's requests.
    streams: BTreeMap<u8, Stream>,
    outputs: VecDeque<PeerOutput>,
    /// The lead is being handed over: nothing is prepared meanwhile.
    pub(crate) handing_over_until_us: Option<u64>,
    /// A snapshot that has come from another server.
    arrived: Option<Arrived>,
    pub(crate) barriers: Barriers,
    /// The number of the last message that told the leader whom we have heard of, and when the next
    /// one is due.
    heard_number: u64,
    heard_at_us: u64,
    /// Up to when the leader knows whom we have heard of.
    known_until_us: u64,
    /// Such messages, and when they were sent.
    in_flight_heard: VecDeque<(u64, u64)>,
    /// When it last gave up a leader that did not listen any more.
    forgotten_us: u64,
}

struct Arrived {
    /// Where it stands in the log: position and term.
    at: (u64, u64),
    /// Of each partition.
    states: Vec<State>,
}

/// An attempt to lead that does not wait for the election timeout.
#[derive(Clone, Copy)]
struct Campaign {
    at_us: u64,
    /// How long after it the next attempt is made.
    again_us: u64,
}

impl Ensemble {
    pub(crate) fn new(server: u8, heartbeat_ms: u32, random: u64, now: Now) -> Self {
        let heartbeat_us = u64::from(heartbeat_ms.max(1)) * 1000;
        // Questions of different servers must differ.
        let next = u64::from(server) << 56 | random >> 8;
        Self {
            heartbeat_us,
            tick_at_us: now.mono_us + heartbeat_us,
            campaign: None,
            asked_in_term: 0,
            streams: BTreeMap::new(),
            outputs: VecDeque::new(),
            handing_over_until_us: None,
            arrived: None,
            barriers: Barriers::new(next),
            heard_number: 0,
            heard_at_us: now.mono_us,
            known_until_us: now.mono_us,
            in_flight_heard: VecDeque::new(),
            forgotten_us: now.mono_us,
        }
    }

    pub(crate) fn tell(&mut self, output: PeerOutput) {
        self.outputs.push_back(output);
    }

    pub(crate) fn send(&mut self, to: u8, message: &PeerMessage) {
        self.outputs.push_back(PeerOutput::Send { to, message: message.encode() });
    }
}

pub(crate) fn server_id(member: u64) -> u8 {
    u8::try_from(member).unwrap_or(0)
}

impl Server {
    /// A message of another server, whose name is proved.
    ///
    /// # Errors
    /// When it is none; nothing has changed. Whoever sends that is broken, or of another release.
    pub fn peer_message(&mut self, from: u8, message: Bytes, now: Now) -> Result<(), BadMessage> {
        self.now = now;
        let message = PeerMessage::decode(message)?;
        let of_leader = message.is_of_leader() && !self.planted.is(Bug::StrangerStays);
        if self.reachable.emptied.contains_key(&from) && !of_leader {
            return Ok(());
        }
        match message {
            PeerMessage::Group(message) => {
                if message.from() != u64::from(from) || message.snapshot().is_some() {
                    return Err(BadMessage);
                }
                let Some(carrier) = &mut self.carrier else { return Err(BadMessage) };
                if let Err(error) = carrier.group().step(message) {
                    self.warn(alloc::format!("a message of server {from} was refused: {error}"));
                }
            }
            PeerMessage::Forward(forward) => self.take_forwarded(from, &forward),
            PeerMessage::Missing { term, stream, expected } => {
                if term == self.replica.term && stream == self.requests.stream() {
                    self.requests.give_again_from(expected);
                }
            }
            PeerMessage::Heard { term, number, sessions } => {
                if self.replica.lead == Lead::Active && term == self.replica.term && self.is_member(from) {
                    for Heard { session, silent_ms } in sessions {
                        self.sessions.heard_of(session, silent_ms, now);
                    }
                    self.ensemble.send(from, &PeerMessage::HeardArrived { term, number });
                }
            }
            PeerMessage::HeardArrived { term, number } => {
                if term == self.replica.term && u64::from(from) == self.replica.leader {
                    self.heard_arrived(number);
                }
            }
            PeerMessage::Reads(reads) => self.reads_told(from, reads),
        }
        Ok(())
    }

    /// A connection to another server is there (again): what was sent before may be lost.
    pub fn peer_connected(&mut self, peer: u8, now: Now) {
        self.now = now;
        self.reachable.connected.insert(peer);
        // Whatever it was taken for: it shows the disk that it is known with, or may have any.
        self.reachable.emptied.remove(&peer);
        self.campaign_when_met();
        if u64::from(peer) == self.replica.leader {
            self.requests.give_again_from(0);
        }
    }

    /// Nobody leads, as far as this server knows, and it has met enough others to be elected: there is
    /// no need to wait for the leader that may be there. If there is one, they refuse.
    fn campaign_when_met(&mut self) {
        if self.carrier.is_none() {
            return;
        }
        let members = self.replica.members();
        let met = |member: &&u64| self.reachable.connected.contains(&server_id(**member));
        let count = members.voters.iter().filter(met).count();
        if self.replica.leader == 0 && count == members.voters.len() / 2 {
            self.campaign_soon(0);
        }
    }

    /// Wants to lead, behind the voters with smaller numbers, so that they do not split the votes.
    fn campaign_soon(&mut self, lost: u64) {
        let (members, id) = (self.replica.members(), self.replica.id());
        let rank = members.voters.iter().filter(|voter| **voter != lost && **voter < id).count();
        if members.voters.contains(&id) {
            let at_us = self.now.mono_us + rank as u64 * CAMPAIGN_STAGGER_US;
            self.ensemble.campaign = Some(Campaign { at_us, again_us: self.ensemble.heartbeat_us / 2 });
        }
    }

    /// The connection to another server has ended, most likely with the server.
    pub fn peer_lost(&mut self, peer: u8, now: Now) {
        self.now = now;
        let member = u64::from(peer);
        self.reachable.connected.remove(&peer);
        self.reads_end(peer);
        let Some(carrier) = &mut self.carrier else { return };
        carrier.group().unreachable(member);
        if member != self.replica.leader || self.replica.lead != Lead::No {
            return;
        }
        carrier.group().forget_leader();
        self.pump();
        self.campaign_soon(member);
    }

    /// What is to be sent to other servers, oldest first.
    pub fn poll_peer(&mut self) -> Option<PeerOutput> {
        self.pump();
        self.ensemble.outputs.pop_front()
    }

    /// The snapshot of [`PeerOutput::Snapshot`] is durable at its receiver, or was given up. That it is
    /// taken over there shows in what the receiver says next; if it is not, it is sent again.
    pub fn snapshot_sent(&mut self, to: u8, arrived: bool, now: Now) {
        self.now = now;
        if let Some(carrier) = &mut self.carrier {
            carrier.group().snapshot_sent(u64::from(to), arrived);
        }
    }

    /// Whether a snapshot that another server offers with this message is of use here.
    #[must_use]
    pub fn wants_snapshot(&self, message: Bytes) -> bool {
        let committed = self.carrier.as_ref().map_or(u64::MAX, |carrier| carrier.status().committed);
        matches!(PeerMessage::decode(message), Ok(PeerMessage::Group(message))
            if message.snapshot().is_some_and(|mark| mark.position > committed)
                && self.ensemble.arrived.is_none())
    }

    /// A snapshot has come from another server, with this message; it is whole, and the `states` of all partitions
    /// were loaded from it. It becomes this server's state when the record that comes out of
    /// [`Server::poll_append`] with it is durable, unless it is of no use any more.
    ///
    /// # Errors
    /// When the message is none.
    pub fn take_over(
        &mut self,
        from: u8,
        message: Bytes,
        states: Vec<State>,
        now: Now,
    ) -> Result<(), BadMessage> {
        self.now = now;
        let PeerMessage::Group(message) = PeerMessage::decode(message)? else { return Err(BadMessage) };
        let mark = message.snapshot().filter(|_| message.from() == u64::from(from)).ok_or(BadMessage)?;
        self.ensemble.arrived = Some(Arrived { at: (mark.position, mark.term), states });
        let Some(carrier) = &mut self.carrier else { return Err(BadMessage) };
        if let Err(error) = carrier.group().step(message) {
            self.warn(alloc::format!("the snapshot of server {from} was refused: {error}"));
            self.ensemble.arrived = None;
        }
        self.pump();
        if self.carrier.as_ref().is_some_and(|carrier| carrier.is_taking_over()) {
            // Two snapshots are not written at a time.
            self.abort_snapshot();
        } else {
            self.ensemble.arrived = None;
        }
        Ok(())
    }

    /// The state is that of the snapshot that has come.
    pub(crate) fn take_arrived(&mut self) {
        let Some(Arrived { at: (position, term), mut states }) = self.ensemble.arrived.take() else { return };
        let Some(carrier) = &mut self.carrier else { return };
        let members = carrier.members();
        carrier.replaced(position, states.iter().map(|state| state.position));
        for (partition, state) in (0..).zip(states.drain(1..)).map(|(at, state): (u8, _)| (at + 1, state)) {
            self.say(partition, Word::Delivered(Delivery::Members(members.clone())));
            let state = Box::new(state);
            self.say(partition, Word::Delivered(Delivery::Replaced { state, term }));
        }
        self.replica.members_are(members);
        if let Some(mut state) = states.pop() {
            if self.stamp.is_empty() {
                state.position = position;
            }
            self.replace_state(state, term);
        }
    }

    /// The state is another server's. Nobody knows what the clients here have missed: they come back and are told.
    fn replace_state(&mut self, state: State, term: u64) {
        self.close_all(CloseReason::StateReplaced);
        self.requests.forget(|_| ());
        self.waiters.clear();
        self.ensemble.barriers.forget_connections();
        let State { tree, stamp, position } = state;
        self.partition.tree = tree;
        self.load_programs();
        self.stamp = Timestamp::new(self.placement.partitions());
        self.stamp.merge(&stamp);
        self.stamp.raise(self.config.partition, end_of(position));
        self.partition.abandon(&self.stamp);
        self.replica.replaced((position, term));
        self.placement_replaced();
        self.sessions.clear();
        let has_sessions = self.has_sessions();
        for session in self.partition.tree.sessions().filter(|_| has_sessions) {
            let key = self.sessions.insert(session.id, session.timeout_ms, self.now);
            self.sessions.set_scope(key, Scope::Global);
        }
        self.owners.replaced();
        self.committed.clear();
        self.abort_snapshot();
        self.tell_growth();
        self.ensemble.asked_in_term = 0;
        self.servers_changed();
        self.hints_changed();
        // The snapshot may be of the term that the group is in, and nothing may follow for long.
        self.settle_term();
    }

    /// Carries out what the group wants done.
    pub(crate) fn pump(&mut self) {
        self.ask_barriers();
        self.give_requests();
        loop {
            if let Some(delivery) = self.replica.poll() {
                self.take_delivery(delivery);
            } else if let Some(output) = self.carrier.as_mut().and_then(|carrier| carrier.poll()) {
                self.carry_out(output);
            } else {
                return;
            }
            self.give_requests();
        }
    }

    /// At the first partition: what the log wants done, or has for the partitions.
    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(message) => self.send_group(message),
            Output::SendSnapshot(message) => self.send_snapshot(message),
            Output::Committed(entries) if self.stamp.is_empty() => {
                for entry in &entries {
                    self.apply_entry(entry);
                }
                self.after_entries();
                self.compact(self.replica.applied.0);
            }
            Output::Committed(entries) => {
                let Some(carrier) = &mut self.carrier else { return };
                let divided = carrier.divide(&entries);
                for (partition, entries) in (0..).zip(divided).filter(|(_, entries)| !entries.is_empty()) {
                    self.deliver(partition, Delivery::Committed(entries));
                }
                self.deliver_answers();
                self.compact(entries.last().map_or(0, |last| last.position));
            }
            Output::Read { id, position } if self.stamp.is_empty() => self.barrier_answered(id, position),
            Output::Read { id, position } => {
                if let Some(carrier) = &mut self.carrier {
                    carrier.answered(id, position);
                }
                self.deliver_answers();
            }
            Output::Leader { term, leader, role } => {
                for partition in 0..self.placement.partitions() {
                    let leads = role == Role::Leader;
                    self.deliver(partition, Delivery::Leader { term, leader, leads });
                }
            }
            Output::SnapshotWanted(_) => self.request_snapshot(),
            Output::Members(members) => {
                for partition in 0..self.placement.partitions() {
                    self.deliver(partition, Delivery::Members(members.clone()));
                }
            }
            Output::Store(_) => {}
        }
    }

    fn deliver_answers(&mut self) {
        let answers = self.carrier.as_mut().map(|carrier| carrier.take_answers()).unwrap_or_default();
        for (partition, question) in answers {
            self.deliver(partition, Delivery::Read(question));
        }
    }

    /// At the first partition: something of the log for a partition.
    pub(crate) fn deliver(&mut self, partition: u8, delivery: Delivery) {
        if partition == self.config.partition {
            self.replica.deliver(delivery);
        } else {
            self.say(partition, Word::Delivered(delivery));
        }
    }

    /// The log need not be kept in memory up to there, but for those who lag behind.
    fn compact(&mut self, position: u64) {
        let keep = if self.replica.has_others() { self.config.kept_bytes } else { 0 };
        if let Some(carrier) = &mut self.carrier {
            carrier.group().compact(position, keep);
        }
    }

    /// Something of the log has come.
    pub(crate) fn delivered(&mut self, delivery: Delivery) {
        self.replica.deliver(delivery);
        self.pump();
    }

    fn take_delivery(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Committed(entries) => {
                if let Some(last) = entries.last() {
                    self.replica.is_committed(last.position);
                }
                self.committed.extend(entries.into_iter().map(Due::Entry));
                self.apply_committed();
            }
            Delivery::Leader { term, leader, leads } => {
                self.replica.leader_is(term, leader, leads);
                self.leader_changed();
            }
            Delivery::Read(question) => self.barrier_answered(question, self.replica.committed()),
            Delivery::Members(members) => {
                self.replica.members_are(members);
                self.members_changed();
            }
            Delivery::Snapshot(number) => {
                if self.planted.is(Bug::SnapshotBeforeParts) {
                    return self.walk_snapshot(number);
                }
                self.committed.push_back(Due::Snapshot(number));
                self.apply_committed();
            }
            Delivery::NoRoom => self.has_no_room(),
            Delivery::Replaced { state, term } => self.replace_state(*state, term),
        }
    }

    fn send_group(&mut self, message: Message) {
        let to = server_id(message.to());
        self.ensemble.send(to, &PeerMessage::Group(message));
    }

    fn send_snapshot(&mut self, message: Message) {
        let position = message.snapshot().map_or(0, |mark| mark.position);
        let to = server_id(message.to());
        let message = PeerMessage::Group(message).encode().join().into();
        self.ensemble.outputs.push_back(PeerOutput::Snapshot { to, position, message });
    }

    /// Hands the entry under construction to the group.
    pub(crate) fn propose_entry(&mut self) {
        if self.replica.lead != Lead::Active {
            return;
        }
        while let Some((entry, follows)) = self.partition.take_entry() {
            match self.give_to_log(entry.clone(), follows) {
                Ok(position) => {
                    let made = self.partition.proposed(position, entry.clone(), self.now);
                    self.stats.log_updates += made.count;
                    if self.replica.has_others() {
                        self.stats.proposals.follow(made);
                    }
                    if self.planted.is(Bug::AppliedBeforeCommitted) {
                        let (term, kind) = (self.replica.term, EntryKind::Payload);
                        self.apply_entry(&Entry { position, term, kind, payload: entry });
                    }
                }
                Err(ProposeError::Busy) => {
                    self.partition.hold_up(entry);
                    return;
                }
                // It has lost the lead, which is about to come out of the group.
                Err(_) => return,
            }
        }
    }

    /// Gives an entry to the log; returns where it will stand.
    fn give_to_log(&mut self, payload: Bytes, follows: Vec<Place>) -> Result<u64, ProposeError> {
        if let Some(carrier) = self.carrier.as_mut().filter(|_| self.stamp.is_empty()) {
            return carrier.propose(payload);
        }
        let (term, position) = (self.replica.term, self.replica.next());
        self.replica.proposed(position);
        let handed = Handed { term, position, payload, follows };
        match &mut self.carrier {
            Some(carrier) => carrier.hand_over(FIRST, handed),
            None => self.say(FIRST, Word::Handed(handed)),
        }
        Ok(position)
    }

    // ---- leading ----

    fn leader_changed(&mut self) {
        let follows = self.replica.lead == Lead::No;
        self.stats.leaders_found += u64::from(self.replica.leader != 0);
        // That the leader is lost is no reason not to follow it up.
        if self.replica.leader != 0 {
            self.ensemble.campaign = None;
        }
        if follows {
            self.stop_leading();
        }
        self.ensemble.in_flight_heard.clear();
        self.follow_mode();
        self.settle_term();
    }

    pub(crate) fn stop_leading(&mut self) {
        self.members_settled();
        self.ensemble.handing_over_until_us = None;
        self.ensemble.streams.clear();
        self.pending.clear();
        self.stop_standing();
        self.forget_moves();
        self.partition.abandon(&self.stamp);
        self.sessions.stop_judging();
        // What was prepared here and not applied may still be: its fate shows when an entry of the
        // next leader's term is applied.
        let applied = self.partition.tree.last_zxid();
        let waiters = core::mem::take(&mut self.waiters);
        for waiter in waiters.into_iter().filter(|waiter| waiter.after > applied) {
            self.close(waiter.connection, CloseReason::LeaderChanged);
        }
    }

    /// An entry of the term that the group is in has been applied, by whose leader everything
    /// committed before is before it: what has no outcome yet has none.
    pub(crate) fn settle_term(&mut self) {
        let term = self.replica.term;
        let is_settled = self.replica.applied.1 == term || self.planted.is(Bug::AskedAgainAtOnce);
        if !is_settled || self.replica.leader == 0 {
            return;
        }
        if self.ensemble.asked_in_term != term {
            self.ensemble.asked_in_term = term;
            self.accept(server_id(self.replica.leader));
            self.tell_members();
            let mut lost = Vec::new();
            self.requests.ask_again(|connection| lost.push(connection));
            for connection in lost {
                self.close(connection, CloseReason::LeaderChanged);
            }
        }
        if self.replica.lead == Lead::Elected && self.replica.applied.1 == term {
            self.begin_to_lead();
        }
    }

    fn begin_to_lead(&mut self) {
        self.members_settled();
        self.replica.lead = Lead::Active;
        self.ensemble.streams.clear();
        // Updates are larger than what was promised before.
        self.partition.abandon(&self.stamp);
        let silent_since = Now { mono_us: 0, ..self.now };
        let is_planted = self.planted.is(Bug::SilentBeforeLead);
        self.sessions.judge(if is_planted { silent_since } else { self.now });
        self.publish_members();
        self.learn_of_sessions();
        self.ensemble.known_until_us = self.now.mono_us;
        self.reap_at_us = self.now.mono_us + u64::from(self.config.reap_interval_ms) * 1000;
    }

    /// Whether a leader is known, and everything is applied that was committed before its time: then
    /// this server takes part in the ensemble.
    #[must_use]
    pub fn is_in_quorum(&self) -> bool {
        let term = self.replica.term;
        term > 0 && self.replica.leader != 0 && self.ensemble.asked_in_term == term
    }

    /// Whether another server is about to take the lead from this one.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.ensemble.handing_over_until_us.is_some()
    }

    /// Whether this server prepares what it is asked.
    pub(crate) fn prepares(&self) -> bool {
        self.leads() && !self.crossing.is_standing()
    }

    /// Whether this server leads the timeline and may prepare requests, if nothing is in the way.
    pub(crate) fn leads(&self) -> bool {
        let may_prepare = self.has_sessions() || self.prepares_in == self.replica.term;
        self.replica.lead == Lead::Active && self.ensemble.handing_over_until_us.is_none() && may_prepare
    }

    /// Gives what was asked here to whoever leads.
    fn give_requests(&mut self) {
        if self.requests.are_given() || self.ensemble.asked_in_term != self.replica.term {
            return;
        }
        if self.prepares() {
            while let Some((first, asked)) = self.requests.give(FORWARD_BYTES) {
                self.take_asked(server_id(self.replica.id()), first, &asked);
            }
            return;
        }
        let (leader, term) = (self.replica.leader, self.replica.term);
        if leader == 0 || self.replica.lead != Lead::No {
            return;
        }
        self.requests.given_at_us = self.now.mono_us;
        while let Some((first, asked)) = self.requests.give(FORWARD_BYTES) {
            let (stream, base) = (self.requests.stream(), self.requests.first());
            let forward = PeerMessage::Forward(Forward { term, stream, base, first, asked });
            self.ensemble.send(server_id(leader), &forward);
        }
    }

    fn take_asked(&mut self, server: u8, first: u64, asked: &[Bytes]) {
        for (request, asked) in (first..).zip(asked) {
            let origin = Origin { server, request };
            if !self.pending.is_empty() || !self.take_one(Some(origin), asked) {
                self.pending.push_back(Pending { origin: Some(origin), asked: asked.clone() });
            }
        }
    }

    /// Takes what had to wait, as far as it need not any more.
    pub(crate) fn take_pending(&mut self) {
        while self.leads()
            && let Some(Pending { origin, asked }) = self.pending.front().cloned()
        {
            if !self.take_one(origin, &asked) {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// Takes a request, unless it has to wait.
    fn take_one(&mut self, origin: Option<Origin>, bytes: &Bytes) -> bool {
        // What is asked of an operation that is being coordinated here is asked when this partition stands still for it:
        // see [`Server::stands`].
        if self.crossing.is_standing() || self.crossing.is_coordinating() {
            return false;
        }
        let Ok(asked) = Asked::decode(bytes) else {
            // There must be an outcome, or the stream would end here.
            if let Some(origin) = origin {
                self.partition.propose_refusal(origin, ErrorCode::MarshallingError.into());
            }
            return true;
        };
        match origin.map_or(Known::Yes, |origin| self.knows(origin, &asked)) {
            Known::NotYet => {
                self.wait_for_session(&asked);
                return false;
            }
            Known::No(code) => {
                if let Some(origin) = origin {
                    self.partition.propose_refusal(origin, code.into());
                }
                return true;
            }
            Known::Yes => {}
        }
        if let (Some(origin), Asked::Write { after, .. }) = (origin, &asked)
            && after.placed != self.placement.version()
        {
            self.partition.propose_elsewhere(origin);
            return true;
        }
        // What a session asks behind a registration or acknowledgement of its own is prepared with it.
        if let Asked::Write { session, .. } = &asked
            && self.partition.extensions.is_changing(*session)
        {
            return false;
        }
        if self.is_refused_move(&asked) {
            return true;
        }
        if let (Some(origin), Some(taken)) = (origin, self.take_of_programs(&asked)) {
            match taken {
                Ok(()) => self.partition.propose_asked(origin, &asked, self.now),
                Err(refusal) => self.partition.propose_refusal(origin, refusal),
            }
            return true;
        }
        if self.coordinates(origin, bytes, &asked) {
            return false;
        }
        let Some(origin) = origin else { return true };
        match &asked {
            Asked::Write { opcode: Opcode::Reconfig, .. } => self.take_reconfig(origin, &asked),
            asked => self.partition.propose_asked(origin, asked, self.now),
        }
        if let Asked::OpenSession { session, .. } = &asked {
            self.stats.sessions_asked_for += u64::from(origin.server != self.config.server_id);
            // Whoever comes back has been heard of, long before that is applied.
            if self.partition.tree.session_is_changing(*session) {
                self.sessions.heard_of(*session, 0, self.now);
            }
        }
        // It may have been refused: then the session goes on, elsewhere.
        if let Asked::Write { session, opcode: Opcode::CloseSession, .. } = &asked
            && !self.partition.tree.session_is_live(*session)
        {
            self.sessions.set_closing(*session, true);
        }
        true
    }

    fn take_reconfig(&mut self, origin: Origin, asked: &Asked<'_>) {
        let Asked::Write { session, opening, identities, body, .. } = asked else { return };
        let contact = Contact { server: origin.server, opening: *opening };
        let caller = Caller { session: *session, identities };
        let refused = match Request::decode(Opcode::Reconfig, &mut Reader::new(body)) {
            Ok(Request::Reconfig(reconfig)) => match self.partition.check_contact(*session, contact) {
                Ok(()) => self.propose_reconfig(origin, &reconfig, &caller),
                Err(code) => Err(code.into()),
            },
            _ => Err(ErrorCode::MarshallingError.into()),
        };
        if let Err(refusal) = refused {
            self.partition.propose_refusal(origin, refusal);
        }
    }

    fn take_forwarded(&mut self, from: u8, forward: &Forward) {
        let Forward { term, stream, base, first, asked } = forward;
        if !self.leads() || *term != self.replica.term || !self.is_member(from) {
            // The sender gives them again, to whoever leads then.
            return;
        }
        let taken = self.ensemble.streams.entry(from).or_insert(Stream { stream: *stream, expected: *base });
        if taken.stream != *stream {
            *taken = Stream { stream: *stream, expected: *base };
        }
        taken.expected = taken.expected.max(*base);
        let Some(known) = taken.taken_of(*first) else {
            let (stream, expected) = (taken.stream, taken.expected);
            self.ensemble.send(from, &PeerMessage::Missing { term: *term, stream, expected });
            return;
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(asked.len());
        let known = if self.planted.is(Bug::TakenTwice) { 0 } else { known };
        let first_new = first + known as u64;
        let new = &asked[known..];
        taken.expected = taken.expected.max(first_new + new.len() as u64);
        self.count_forwarded(new);
        self.take_asked(from, first_new, new);
    }

    /// Hands the lead to the server that has the most, if this one leads; rather to one that is to stay.
    pub fn resign(&mut self, now: Now) {
        let Some(status) = self.carrier.as_ref().map(|carrier| carrier.status()) else { return };
        let best = status.matched.iter().filter(|(member, _)| {
            status.members.voters.contains(member) && self.reachable.connected.contains(&server_id(*member))
        });
        let wanted = self.membership().unwrap_or_default();
        let key = |(member, matched): &&(u64, u64)| (wanted.votes(server_id(*member)), *matched);
        if let Some((member, _)) = best.max_by_key(key)
            && self.leads()
        {
            self.hand_over(server_id(*member), now);
        }
    }

    /// Hands the lead to another server, as soon as it has everything. Requests wait meanwhile.
    pub fn hand_over(&mut self, to: u8, now: Now) {
        self.now = now;
        if self.replica.lead != Lead::Active || u64::from(to) == self.replica.id() {
            return;
        }
        self.propose_entry();
        let Some(carrier) = &mut self.carrier else { return };
        carrier.propose_handed();
        carrier.group().transfer(u64::from(to));
        let patience_us = self.ensemble.heartbeat_us * u64::from(self.config.election_heartbeats);
        self.ensemble.handing_over_until_us = Some(now.mono_us + patience_us);
    }

    // ---- time ----

    /// Ticks of the group, and what is due among servers.
    pub(crate) fn tick_ensemble(&mut self) {
        let now_us = self.now.mono_us;
        self.campaign();
        self.try_to_stand();
        self.take_pending();
        if self.ensemble.handing_over_until_us.is_some_and(|until| until <= now_us) {
            self.ensemble.handing_over_until_us = None;
        }
        if self.is_ensemble() {
            if self.ensemble.tick_at_us <= now_us {
                // After a pause one tick is enough: the others' messages come first.
                self.ensemble.tick_at_us = now_us + self.ensemble.heartbeat_us;
                if let Some(carrier) = &mut self.carrier {
                    carrier.group().tick();
                    self.tend_members();
                }
            }
            let again_us = self.ensemble.heartbeat_us * GIVE_AGAIN_HEARTBEATS;
            // What a leader has given to itself is not lost.
            let follows = self.replica.lead == Lead::No;
            if follows && !self.requests.is_empty() && self.requests.given_at_us + again_us <= now_us {
                self.requests.give_again_from(0);
            }
            self.tell_whom_we_heard();
            self.close_cut_off();
            self.follow_mode();
            self.tend_guests();
        }
        self.ask_barriers_again();
        self.pump();
    }

    /// The others refuse a candidate as long as they have not noticed that the leader is gone, and
    /// one whose timeline ends before theirs; then it may be that nobody else tries who could win.
    /// So an attempt is repeated, more and more seldom until the election timeout has its turn.
    fn campaign(&mut self) {
        let now_us = self.now.mono_us;
        let Some(Campaign { at_us, again_us }) = self.ensemble.campaign.filter(|due| due.at_us <= now_us)
        else {
            return;
        };
        let election_us = self.ensemble.heartbeat_us * u64::from(self.config.election_heartbeats);
        let again = Campaign { at_us: at_us.max(now_us) + again_us, again_us: again_us * 2 };
        self.ensemble.campaign = Some(again).filter(|_| again_us < election_us && self.replica.leader == 0);
        if let Some(carrier) = self.carrier.as_mut().filter(|_| self.replica.leader == 0) {
            carrier.group().campaign();
        }
    }

    /// Whether there are other servers, or should be.
    pub(crate) fn is_ensemble(&self) -> bool {
        self.replica.has_others() || !self.config.servers.is_empty()
    }

    /// There is another list of servers.
    pub(crate) fn servers_changed(&mut self) {
        self.members_settled();
        self.reachable.is_told = false;
        self.ensemble.outputs.push_back(PeerOutput::Servers);
    }

    pub(crate) fn next_ensemble_wake_us(&self) -> Option<u64> {
        let tick = self.is_ensemble().then_some(self.ensemble.tick_at_us);
        [tick, self.ensemble.campaign.map(|due| due.at_us)].into_iter().flatten().min()
    }
}
