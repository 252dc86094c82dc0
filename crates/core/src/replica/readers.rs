//! Readers below this server, and what this server does differently where it is one.
//!
//! For the ensemble the clients of a reader are those of the member at the top of the chain. Where another member takes its
//! place, or the same one by another connection, what the reader's clients have asked and not been answered may be
//! carried out or not: their connections end, as those of a member that has ended. The others stay, with their
//! watches: each session is brought to the new member by an update, as if its client had come back there, and whatever
//! it asks for that is no read waits for that.

use crate::peer::PeerMessage;
use crate::replica::Replica;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId, Phase, Slot, frame};
use stoa_group::HistoryId;
use stoa_partition::Now;
use stoa_timeline::{BadMessage, Below, Down, Lead, ParentOutput, ParentTraits, ReaderOutput, Up};
use stoa_tree::Levels;
use stoa_wire::RequestHeader;

/// What waits behind a barrier of this number waits until its session is brought to the member.
pub(crate) const AWAY: u64 = u64::MAX;
/// Why a reader is let go that cannot read what the sites use.
const OUTDATED: &str =
    "the sites use a higher feature level than the reader reads: give it the release of the others";

impl Replica {
    // ---- readers below this server ----

    /// A reader is connected, whose name is one of [`ConnectionId::of_reader`], never used before, and which has said at
    /// which feature levels it can work. On all partitions.
    pub fn reader_connected(&mut self, reader: ConnectionId, levels: Levels, now: Now) {
        self.at(now);
        let is_older = levels.newest < self.applied.partition.tree().levels().newest;
        if is_older {
            self.servers.levels.readers.insert(reader, levels.newest);
        }
        // So its tie has ended before it is given what it cannot read.
        self.timeline.reader_connected(reader, is_older);
        self.end_outdated_readers();
        self.note_all_applied();
    }

    /// The sites use another feature level, or a reader has come: none stays that cannot read what comes next. No rise
    /// waits for readers.
    pub(crate) fn end_outdated_readers(&mut self) {
        let level = self.applied.partition.tree().level();
        while let Some(reader) = self.servers.levels.next_outdated(level) {
            self.timeline.end_reader(reader, OUTDATED);
        }
    }

    /// Everything may be applied that this server was given.
    pub(crate) fn note_all_applied(&mut self) {
        if self.applied.committed.is_empty() {
            self.timeline.all_is_applied();
        }
    }

    /// How many of the readers below this server are of a release that cannot read all that this one could write.
    #[must_use]
    pub fn older_readers(&self) -> usize {
        self.servers.levels.readers.len()
    }

    /// Its connection has ended. On all partitions.
    pub fn reader_lost(&mut self, reader: ConnectionId, now: Now) {
        self.at(now);
        self.timeline.reader_lost(reader);
        self.servers.levels.readers.remove(&reader);
        self.sessions.below.forget(reader);
        self.reads_below_end(reader);
    }

    /// It says something to this partition.
    ///
    /// # Errors
    /// When it is nothing that a reader says. Whoever says that is broken, or of another release.
    pub fn reader_says(&mut self, reader: ConnectionId, message: Bytes, now: Now) -> Result<(), BadMessage> {
        self.at(now);
        let message = Up::decode(message)?;
        if let Some((applied, said)) = self.timeline.reader_says(reader, message)? {
            self.hear_below(reader, (applied, said), now.mono_us)?;
        }
        self.pump();
        Ok(())
    }

    /// A reader has said, at this time, whom it has heard of. Where it has applied more than this server it may speak of
    /// sessions that are not known here yet: then it is heard once more.
    fn hear_below(
        &mut self,
        reader: ConnectionId,
        (applied, said): (u64, Bytes),
        at_us: u64,
    ) -> Result<(), BadMessage> {
        let (term, number, sessions) = match PeerMessage::decode(&said)? {
            PeerMessage::Heard { term, number, sessions } => (term, number, sessions),
            PeerMessage::Reads(reads) => {
                self.reads_below(reader, reads);
                return Ok(());
            }
            _ => return Err(BadMessage),
        };
        let now = self.now;
        let late_ms = u32::try_from((now.mono_us - at_us) / 1000).unwrap_or(u32::MAX);
        for heard in sessions {
            if !self.sessions.live.contains(heard.session) {
                continue;
            }
            self.sessions.live.heard_of(heard.session, heard.silent_ms.saturating_add(late_ms), now);
            self.sessions.below.heard(heard.session, now.mono_us);
        }
        if applied > self.timeline.applied_at().0 {
            self.sessions.below.hold(reader, (applied, said), at_us);
        } else {
            self.sessions.below.came(reader, term, number, now.mono_us);
        }
        self.sessions.liveness.has_news(self.config.tick_ms, now.mono_us);
        if self.timeline.lead() == Lead::Active {
            self.sessions.liveness.leads(now);
            self.tell_readers_who_is_known();
        }
        Ok(())
    }

    /// More is applied: what readers have said of it can be heard.
    pub(crate) fn hear_held_below(&mut self) {
        let applied = self.timeline.applied_at().0;
        while let Some((reader, said, at_us)) = self.sessions.below.take_held(applied) {
            // It was heard before, so it can be read.
            let _ = self.hear_below(reader, said, at_us);
        }
    }

    /// The next thing for readers, and whom it is for. It is to be sent before anything that is for other servers or other
    /// threads, and that came later.
    pub fn poll_reader(&mut self) -> Option<(Vec<ConnectionId>, ReaderOutput)> {
        self.pump();
        self.timeline.poll_reader()
    }

    /// The snapshot that a reader was sent is there, or was given up.
    pub fn reader_snapshot_sent(&mut self, reader: ConnectionId, arrived: bool, now: Now) {
        self.at(now);
        self.timeline.reader_snapshot_sent(reader, arrived);
    }

    /// At the first partition: how many servers are between a reader below this one and the ensemble, this one counted;
    /// `None` where it would find no leader by way of here.
    #[must_use]
    pub fn distance_below(&self) -> Option<u8> {
        self.timeline.distance_below()
    }

    /// How many readers are below this server, and how many of them lag.
    #[must_use]
    pub fn readers(&self) -> (usize, usize) {
        self.timeline.readers()
    }

    /// Readers are told up to when the leader knows whom they have heard of.
    pub(crate) fn tell_readers_who_is_known(&mut self) {
        if self.sessions.below.is_empty() {
            return;
        }
        for (reader, term, number) in self.sessions.below.known(self.sessions.liveness.known_until_us) {
            self.timeline.tell_reader(reader, PeerMessage::HeardArrived { term, number }.encode());
        }
    }

    // ---- this server as a reader ----

    /// How this reader stands below its parent, if it does.
    #[must_use]
    pub fn below(&self) -> Option<&Below> {
        self.timeline.below()
    }

    /// Of this process, among those between a reader and the ensemble.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.timeline.tag()
    }

    /// At the first partition of a reader: somebody who would be its parent has this history. False when the two have
    /// nothing to do with each other.
    pub fn parent_met(&mut self, history: HistoryId, now: Now) -> bool {
        self.at(now);
        let is_ours = self.timeline.parent_met(history);
        self.pump();
        is_ours
    }

    /// At the first partition of a reader: there is a connection to a parent, with this number, never used before.
    pub fn parent_connected(&mut self, link: u64, traits: ParentTraits, now: Now) {
        self.at(now);
        self.timeline.parent_connected(link, traits);
        self.pump();
    }

    /// At the first partition of a reader: another parent than the one on this connection is better. It is left if no client
    /// loses anything by that, which this returns. With several partitions all clients would have to come back.
    pub fn leaves_quietly(&mut self, link: u64, now: Now) -> bool {
        self.at(now);
        // What has gone to another site has its outcome by way of the log, but who waits for it would be let go.
        let may_leave = !self.applied.placement.is_divided() && self.sites.requests.forwarded.is_empty();
        let leaves = may_leave && self.timeline.leaves_quietly(link);
        self.pump();
        leaves
    }

    /// It has ended.
    pub fn parent_lost(&mut self, link: u64, now: Now) {
        self.at(now);
        self.timeline.parent_lost(link);
        self.pump();
    }

    /// At the first partition of a reader: this partition of its parent says something.
    ///
    /// # Errors
    /// When it is nothing that a parent says. Whoever says that is broken, or of another release.
    pub fn parent_says(
        &mut self,
        link: u64,
        partition: u8,
        message: Bytes,
        now: Now,
    ) -> Result<(), BadMessage> {
        self.at(now);
        let said = self.timeline.parent_says(link, partition, Down::decode(message)?);
        self.pump();
        said
    }

    /// The parent says something about the state.
    pub(crate) fn parent_says_of_state(&mut self, message: &[u8]) {
        match PeerMessage::decode(message) {
            Ok(PeerMessage::HeardArrived { term, number }) => {
                if term == self.timeline.term() {
                    self.sessions.liveness.arrived(number);
                    self.tell_readers_who_is_known();
                }
            }
            // Of this log, whoever leads.
            Ok(PeerMessage::Shared { shared, .. }) => self.is_shared_up_to(shared),
            _ => self.timeline.refuse_parent(),
        }
    }

    /// A snapshot of the parent's was not taken over, or is not wanted: it is told what is here.
    pub fn parent_snapshot_declined(&mut self, now: Now) {
        self.at(now);
        self.timeline.tell_place();
    }

    /// The next thing for the parent.
    pub fn poll_parent(&mut self) -> Option<ParentOutput> {
        self.pump();
        self.timeline.poll_parent()
    }

    /// Somebody asks in this reader's place from now on, or nobody does.
    pub(crate) fn attachment_changed(&mut self, is_attached: bool) {
        if is_attached {
            return self.bring_sessions();
        }
        let mut lost = Vec::new();
        self.timeline.forget_requests(|id| lost.push(id));
        lost.extend(self.sites.requests.forwarded.values().map(|waiting| waiting.connection));
        for id in lost {
            self.close(id, CloseReason::LeaderChanged);
        }
        if self.applied.placement.is_divided() {
            // Each thread would learn in its own time who asks in whose name.
            return self.close_all(CloseReason::LeaderChanged);
        }
        let live = self.clients.connections.iter().filter(|(_, it)| matches!(it.phase, Phase::Live(_)));
        let live: Vec<_> = live.map(|(id, _)| id).collect();
        for id in live {
            if let Some(connection) = self.clients.connections.get_mut(id) {
                connection.mode.is_away = true;
            }
        }
    }

    /// Brings the sessions of all clients to the member that asks in this reader's place.
    fn bring_sessions(&mut self) {
        let away = self.clients.connections.iter().filter(|(_, it)| it.mode.is_away);
        let away: Vec<_> = away.filter(|(_, it)| matches!(it.phase, Phase::Live(_))).collect();
        let away: Vec<_> = away.into_iter().map(|(id, it)| (id, it.session)).collect();
        for (id, session) in away {
            match self.applied.partition.tree().session(session) {
                Some(known) => {
                    let (timeout_ms, password) = (known.timeout_ms, known.password);
                    self.ask_for_session(id, false, session, timeout_ms, &password);
                }
                None => self.close(id, CloseReason::SessionExpired),
            }
        }
    }

    /// Whether a client's session has yet to be brought to the member that asks in this reader's place.
    #[inline]
    pub(crate) fn is_away(&self, id: ConnectionId) -> bool {
        self.clients.connections.get(id).is_some_and(|connection| connection.mode.is_away)
    }

    /// What is no read waits for that, and all that comes behind it.
    pub(crate) fn wait_for_member(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        body: &[u8],
        arrived_us: u64,
    ) {
        self.clients.connections.push_slot(id, Slot::Barrier { id: AWAY, answer: None });
        let frame = frame(header, body);
        self.clients.connections.push_slot(id, Slot::Request { frame, arrived_us, may_write: true });
    }

    /// A session was opened. Whether that was to bring it to the member, for this connection, on which it goes on.
    pub(crate) fn is_brought(&mut self, id: ConnectionId, session: i64) -> bool {
        let connection = self.clients.connections.get_mut(id);
        let Some(connection) = connection.filter(|it| it.mode.is_away && it.session == session) else {
            return false;
        };
        if !matches!(connection.phase, Phase::Live(_)) {
            return false;
        }
        connection.mode.is_away = false;
        self.came_by_member(id, session);
        self.drain(id);
        true
    }

    /// A session has come to a connection of this reader: what the member calls the request with which it did.
    pub(crate) fn came_by_member(&mut self, id: ConnectionId, session: i64) {
        if !self.timeline.is_reader() {
            return;
        }
        let contact = self.applied.partition.tree().session_contact(session);
        if let (Some(contact), Some(connection)) = (contact, self.clients.connections.get_mut(id)) {
            connection.mode.opening = contact.opening;
        }
    }
}
