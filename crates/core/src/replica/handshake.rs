//! The first frame of a connection: a new session, or an old one that comes back.

use crate::replica::Replica;
use crate::replica::apply::Opened;
use crate::session::Scope;
use alloc::vec::Vec;
use stoa_front::{CloseReason, ConnectionId, Phase};
use stoa_partition::{Asked, Now};
use stoa_tree::{Refusal, WatcherId};
use stoa_wire::{ConnectRequest, ConnectResponse, ErrorCode, Timestamp, begin_frame, end_frame};

impl Replica {
    pub(crate) fn handshake(&mut self, id: ConnectionId, frame: &[u8]) {
        self.stats.connection_requests += 1;
        self.open_connection(id, frame);
    }

    /// What the first frame asks for; that of who has to catch up is looked at once more when that has happened.
    pub(crate) fn open_connection(&mut self, id: ConnectionId, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            self.close(id, CloseReason::Malformed);
            return;
        };
        if !self.has_joined() {
            self.close(id, CloseReason::NotJoined);
            return;
        }
        if self.is_pipelined(id, request.last_zxid_seen) {
            // Without an answer: the client tries another server, one that has caught up.
            self.close(id, CloseReason::ClientAhead);
            return;
        }
        let range = (self.config.session_timeout_min_ms, self.config.session_timeout_max_ms);
        let timeout_ms = request.timeout_ms.max(range.0).min(range.1);
        if self.is_read_only() {
            self.open_read_only(id, timeout_ms, &request);
        } else if self.has_to_catch_up(id, &request) {
            self.opening(id, timeout_ms, &request);
            self.catch_up(id, frame);
        } else if request.session_id == 0 {
            self.create_session(id, timeout_ms, &request);
        } else {
            self.reopen_session(id, timeout_ms, &request);
        }
    }

    /// Whether a client has seen more than this server. With several partitions another one may have seen it,
    /// and is waited for: see [`crate::catch_up`].
    fn is_pipelined(&mut self, id: ConnectionId, zxid: i64) -> bool {
        match self.clients.connections.get_mut(id).and_then(|connection| connection.remote.as_mut()) {
            Some(remote) => {
                remote.last_zxid = zxid;
                self.is_read_only() && zxid > self.sessions.read_only.newest().max(self.clock())
            }
            None => zxid > self.applied.partition.tree().last_zxid(),
        }
    }

    fn create_session(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        if self.leader.no_room_until_us.is_some() {
            self.close(id, CloseReason::NoRoom);
            return;
        }
        if self.makes_local_sessions() {
            self.open_local(id, timeout_ms, request);
            return;
        }
        let session = self.sessions.live.new_id(self.applied.partition.tree().own_site());
        self.opening(id, timeout_ms, request);
        self.ask_for_new_session(id, session, timeout_ms);
    }

    /// Has a session created, by whoever leads.
    pub(crate) fn ask_for_new_session(&mut self, id: ConnectionId, session: i64, timeout_ms: i32) {
        let password = self.sessions.live.new_password(session);
        if self.can_prepare() {
            let origin = self.timeline.next_request();
            self.rests_on_remote(id);
            let created =
                self.applied.partition.propose_session(origin, session, timeout_ms, password, self.now);
            if let Err(refusal) = created {
                self.applied.partition.propose_refusal(origin, refusal);
            }
            self.timeline.prepared(id);
        } else {
            self.ask_for_session(id, true, session, timeout_ms, &password);
        }
    }

    fn reopen_session(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        self.stats.sessions_brought += 1;
        if self.leader.no_room_until_us.is_some() {
            self.close(id, CloseReason::NoRoom);
            return;
        }
        if self.reopen_local(id, timeout_ms, request) {
            return;
        }
        let (session, password) = (request.session_id, request.password);
        self.opening(id, timeout_ms, request);
        if !self.can_prepare() || self.applied.placement.is_divided() || self.is_at_home_elsewhere(session) {
            self.ask_for_session(id, false, session, timeout_ms, password);
            return;
        }
        let is_alone = self.timeline.is_alone();
        let ending = self.applied.partition.tree().session_has_password(session, password);
        let origin = self.timeline.next_request();
        match self.applied.partition.propose_session_open(origin, session, timeout_ms, password, self.now) {
            Ok(()) => {
                // It has been heard of now, not only when that is applied.
                self.sessions.live.heard_of(session, 0, self.now);
                self.timeline.prepared(id);
            }
            // It is so already, and not only if an end that is proposed will be durable.
            Err(_) if is_alone && !ending => {
                self.send_expired(id);
            }
            Err(refusal) => {
                self.applied.partition.propose_refusal(origin, refusal);
                self.timeline.prepared(id);
            }
        }
    }

    /// Whoever leads is to create a session, or to bring it here.
    pub(crate) fn ask_for_session(
        &mut self,
        id: ConnectionId,
        is_new: bool,
        session: i64,
        timeout_ms: i32,
        password: &[u8],
    ) {
        let remote = self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
        let nothing = Timestamp::default();
        let seen = remote.map_or(&nothing, |remote| &remote.seen);
        let mut asked = Vec::new();
        Asked::put_session(&mut asked, is_new, seen, session, timeout_ms, password);
        self.timeline.ask(id, asked);
    }

    pub(crate) fn opening(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        let opening = self.timeline.next_request().request;
        let told = request.read_only.map(|_| self.is_read_only());
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        connection.phase = Phase::Opening { timeout_ms, read_only: told };
        connection.mode.takes_read_only = request.read_only == Some(true);
        connection.mode.opening = opening;
    }

    /// A session was created, or came to another connection, here or at another server: that is
    /// committed, so the client may know. `own` is the connection that asked for it.
    pub(crate) fn session_opened(&mut self, opened: &Opened, own: Option<ConnectionId>) {
        self.tell_of_session(opened.session, self.applied.partition.tree().session_contact(opened.session));
        let tree = self.applied.partition.tree();
        if tree.own_site().is_some_and(|own| tree.home_of(opened.session) != own) {
            // It is on its way elsewhere, or has never been here: that site judges it.
            return;
        }
        let since = self.applied.applying;
        if let Some(remote) = own.and_then(|id| self.clients.connections.get_mut(id)?.remote.as_mut()) {
            remote.since = since;
        }
        // Also when its connection is gone already: then it expires like any silent session.
        let key = self.sessions.live.insert(opened.session, opened.timeout_ms, self.now);
        self.sessions.live.set_timeout(key, opened.timeout_ms, self.now);
        if self.sessions.live.set_scope(key, Scope::Global) {
            // It was known here alone, on the connection that it is on.
            return;
        }
        if own.is_some_and(|id| self.is_brought(id, opened.session)) {
            return;
        }
        let opening = own.and_then(|id| match &self.clients.connections.get(id)?.phase {
            Phase::Opening { read_only, .. } => Some((id, *read_only)),
            _ => None,
        });
        let Some((id, read_only)) = opening else {
            if let Some(previous) = self.sessions.live.leave(opened.session) {
                self.close(previous, CloseReason::SessionMoved);
            }
            return;
        };
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: opened.timeout_ms,
            session_id: opened.session,
            password: opened.password,
            read_only,
        };
        self.came_by_member(id, opened.session);
        self.go_live(id, key, response);
        self.resume(id);
    }

    /// Whoever leads has refused what a connection has asked for with its first frame.
    ///
    /// A new session is refused for its id alone: another one has it. That is not its client's business, who would
    /// take it for the end of a session that it never had; so it is asked for once more, with the next id. This run
    /// has given an id that an earlier one had given before its clock was set back, and that was on the timeline,
    /// but not applied here yet. Now it is, and [`crate::session::Sessions::insert`] has passed over it and those
    /// that may have been given with it.
    pub(crate) fn opening_refused(&mut self, id: ConnectionId, refusal: Refusal) {
        let phase = self.clients.connections.get(id).map(|connection| &connection.phase);
        let Some(&Phase::Opening { timeout_ms, .. }) = phase else { return };
        match refusal {
            Refusal::Error(ErrorCode::BadArguments) => {}
            // Its home is away, and knows it: its client goes on looking for a server.
            Refusal::Error(ErrorCode::OperationTimeout) => return self.close(id, CloseReason::SiteAway),
            _ => return self.send_expired(id),
        }
        let session = self.sessions.live.new_id(self.applied.partition.tree().own_site());
        let password = self.sessions.live.new_password(session);
        let opening = self.timeline.next_request().request;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.mode.opening = opening;
        }
        self.ask_for_session(id, true, session, timeout_ms, &password);
    }

    /// There is no such session, or the password is another one.
    pub(crate) fn send_expired(&mut self, id: ConnectionId) {
        let Some(Phase::Opening { read_only, .. }) = self.clients.connections.get(id).map(|it| &it.phase)
        else {
            return;
        };
        let read_only = *read_only;
        self.send_response(id, &ConnectResponse { read_only, ..ConnectResponse::EXPIRED });
        self.close(id, CloseReason::SessionExpired);
    }

    pub(crate) fn go_live(&mut self, id: ConnectionId, key: usize, response: ConnectResponse) {
        let Now { mono_us, .. } = self.now;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.phase = Phase::Live(key);
            connection.session = response.session_id;
            connection.timeout_ms = response.timeout_ms;
            connection.traffic.last_reply_us = mono_us;
        }
        if let Some(previous) = self.sessions.live.attach(key, Some(id))
            && previous != id
        {
            self.applied.partition.watches_mut().remove_watcher(WatcherId(previous.0));
            self.close(previous, CloseReason::SessionMoved);
        }
        self.send_response(id, &response);
    }

    pub(crate) fn send_response(&mut self, id: ConnectionId, response: &ConnectResponse) {
        let Some(output) = self.clients.connections.output(id) else { return };
        let start = begin_frame(output);
        response.encode(output);
        end_frame(output, start);
        let bytes = output.len() - start;
        self.stats.sent(bytes);
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.traffic.sent += 1;
        }
    }
}
