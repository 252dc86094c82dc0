//! Read-only mode: a server that has known of no leader for a while answers the reads of clients that
//! have said that this will do, from what it has applied.
//!
//! Nothing of it is in the tree. A client without a session is lent an id and a password that are worth
//! something here only, and only for reads; such an id is never that of a session. A client that brings a
//! session keeps it, if session and password are known here, and the session stays as it is: if there is a
//! leader elsewhere, it goes on judging it. So such a client is sent away now and then, to look for that leader.

use crate::read_only::{Admission, ReadOnlySession};
use crate::replica::Replica;
use crate::session::is_lent;
use crate::shard_message::ShardMessage;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use stoa_front::{CloseReason, ConnectionId, Phase};
use stoa_placement::FIRST;
use stoa_tree::is_same_password;
use stoa_wire::{ConnectRequest, ConnectResponse, ErrorCode, Opcode, Reader, RequestHeader};

/// So many of the longest election timeouts go by without a leader before the server only reads: the
/// votes of one election may be split, those of two seldom are, and clients are not to be sent away and
/// called back because a leader was replaced.
const PATIENCE_ELECTIONS: u64 = 2;

impl Replica {
    /// Whether it only reads, for clients that have said that this will do.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.sessions.read_only.active
    }

    /// Compares the mode with what is known of a leader. The first partition decides for the server; the
    /// others tell it how far they have come, by which it judges who has seen more than this server.
    pub(crate) fn follow_mode(&mut self) {
        if !self.config.read_only_mode {
            return;
        }
        if !self.has_sessions() {
            if self.sessions.read_only.newest < self.clock() {
                self.sessions.read_only.newest = self.clock();
                self.say(FIRST, ShardMessage::Clock(self.clock()));
            }
            return;
        }
        if self.timeline.leader().is_some() || self.timeline.is_alone() {
            self.sessions.read_only.leaderless_since_us = None;
            self.end_read_only();
            return;
        }
        let now_us = self.now.mono_us;
        let since_us = *self.sessions.read_only.leaderless_since_us.get_or_insert(now_us);
        let heartbeat_us = u64::from(self.config.heartbeat_ms) * 1000;
        let longest_us = heartbeat_us * u64::from(self.config.election_heartbeats) * 2;
        // A server that has nothing yet must not say that there is nothing.
        let has_state = self.applied.partition.tree().last_zxid() > 0;
        if has_state && now_us.saturating_sub(since_us) >= longest_us * PATIENCE_ELECTIONS {
            self.begin_read_only();
        }
    }

    fn begin_read_only(&mut self) {
        if self.sessions.read_only.active {
            return;
        }
        self.sessions.read_only.active = true;
        self.warn(
            "no leader is known: the server only reads, for clients that are content with that".to_string(),
        );
        // What their new connections tell them is how they learn of it. The others may still be better off
        // where they are, should a leader be found soon.
        let content = self.clients.connections.iter().filter(|(_, connection)| {
            connection.mode.takes_read_only
                && matches!(connection.phase, Phase::Live(_) | Phase::Opening { .. })
        });
        let content: Vec<_> = content.map(|(id, _)| id).collect();
        for id in content {
            self.close(id, CloseReason::OnlyReads);
        }
    }

    fn end_read_only(&mut self) {
        if !self.sessions.read_only.active {
            return;
        }
        self.sessions.read_only.active = false;
        let sessions: Vec<_> =
            self.sessions.read_only.sessions.values().map(|session| session.connection).collect();
        self.warn(format!("the server is not read-only any more; {} clients come back", sessions.len()));
        for id in sessions {
            self.close(id, CloseReason::ReadsEnd);
        }
    }

    /// Ends the connections of those that are silent, and of those that have to look for a leader.
    pub(crate) fn tend_read_only_sessions(&mut self) {
        let now_us = self.now.mono_us;
        let (connections, limits) = (&self.clients.connections, &self.config.limits);
        let due = self.sessions.read_only.sessions.values().filter_map(|session| {
            let held_up = connections.get(session.connection).is_some_and(|it| it.is_held_up(limits));
            if session.until_us.is_some_and(|until| until <= now_us) {
                Some((session.connection, CloseReason::NoQuorum))
            } else if session.heard_us + session.timeout_us <= now_us && !held_up {
                Some((session.connection, CloseReason::SessionExpired))
            } else {
                None
            }
        });
        let due: Vec<_> = due.collect();
        for (id, reason) in due {
            self.close(id, reason);
        }
    }

    /// The handshake of a client that comes while the server only reads.
    pub(crate) fn open_read_only(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        if request.read_only != Some(true) {
            self.close(id, CloseReason::OnlyReads);
            return;
        }
        self.opening(id, timeout_ms, request);
        match self.admit(timeout_ms, request) {
            Admission::TurnedAway(reason) => self.close(id, reason),
            Admission::Expired => self.send_expired(id),
            Admission::Welcome { session, password, timeout_ms, until_us } => {
                let read_only = Some(true);
                let response = ConnectResponse {
                    protocol_version: 0,
                    timeout_ms,
                    session_id: session,
                    password,
                    read_only,
                };
                self.welcome(id, until_us, &response);
            }
        }
    }

    fn admit(&mut self, timeout_ms: i32, request: &ConnectRequest<'_>) -> Admission {
        let session = request.session_id;
        if session == 0 {
            let session = self.sessions.read_only.next_id;
            self.sessions.read_only.next_id += 1;
            let password = self.sessions.live.new_password(session);
            return Admission::Welcome { session, password, timeout_ms, until_us: None };
        }
        if is_lent(session) {
            let password = self.sessions.live.new_password(session);
            // That of another server, or of an earlier run, has nothing that could be kept.
            return if is_same_password(&password, request.password) {
                Admission::Welcome { session, password, timeout_ms, until_us: None }
            } else {
                Admission::Expired
            };
        }
        let Some(known) = self.applied.partition.tree().session(session) else {
            // It may have been created where there is a majority.
            return Admission::TurnedAway(CloseReason::OnlyReads);
        };
        let (timeout_ms, password) = (known.timeout_ms, known.password);
        if !is_same_password(&password, request.password) {
            return Admission::Expired;
        }
        let was_here = match self.timeline.is_reader() {
            // Clients of others are known by the same member.
            true => self.sessions.live.is_here(session),
            false => known.contact.server == self.config.server_id,
        };
        match self.sessions.liveness.stay(was_here, timeout_ms, self.now) {
            Some(until_us) => Admission::Welcome { session, password, timeout_ms, until_us: Some(until_us) },
            None => Admission::TurnedAway(CloseReason::NoQuorum),
        }
    }

    fn welcome(&mut self, id: ConnectionId, until_us: Option<u64>, response: &ConnectResponse) {
        let session = response.session_id;
        let now_us = self.now.mono_us;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.phase = Phase::ReadOnly;
            connection.session = session;
            connection.timeout_ms = response.timeout_ms;
            connection.traffic.last_reply_us = now_us;
        }
        let timeout_us = u64::try_from(response.timeout_ms).unwrap_or(0) * 1000;
        let new = ReadOnlySession { connection: id, timeout_us, heard_us: now_us, until_us };
        let previous =
            self.sessions.read_only.sessions.insert(session, new).map(|session| session.connection);
        for previous in previous.into_iter().chain(self.sessions.live.leave(session)) {
            self.close(previous, CloseReason::SessionMoved);
        }
        self.hear_read_only_session(session);
        self.send_response(id, response);
    }

    /// A read-only client has been heard of. When a leader is found it is told so: where the session is
    /// known to be, nobody has heard of it meanwhile.
    pub(crate) fn hear_read_only_session(&mut self, session: i64) {
        self.sessions.read_only.heard(session, self.now);
        self.sessions.live.heard_here(session, self.now);
    }

    /// A request on a read-only connection: nothing is under way for which it would have to wait.
    pub(crate) fn request_read_only(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        opcode: Opcode,
        reader: &mut Reader<'_>,
        arrived_us: u64,
    ) {
        let Some(connection) = self.clients.connections.get(id) else { return };
        let (session, reads_newest) = (connection.session, connection.mode.reads_newest);
        let code = match opcode {
            Opcode::Ping => ErrorCode::Ok,
            Opcode::Auth => {
                self.auth(id, header, reader, arrived_us);
                return;
            }
            // What is newest only a majority knows.
            _ if opcode.is_read() && !reads_newest => {
                self.read(id, header, opcode, reader, None);
                return;
            }
            Opcode::CloseSession if is_lent(session) => ErrorCode::Ok,
            Opcode::Sasl | Opcode::CreateSession => ErrorCode::Unimplemented,
            _ => ErrorCode::NotReadOnly,
        };
        self.reply(id, header.xid, opcode, code as i32, &[], arrived_us);
        if opcode == Opcode::CloseSession && code == ErrorCode::Ok {
            self.close(id, CloseReason::SessionClosed);
        }
    }
}
