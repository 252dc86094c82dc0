//! The first frame of a connection: a new session, or an old one that comes back.

use crate::config::Now;
use crate::connection::{CloseReason, ConnectionId, Phase};
use crate::server::{Server, Waiter};
use crate::session::passwords_match;
use stoa_tree::WatcherId;
use stoa_wire::{ConnectRequest, ConnectResponse, begin_frame, end_frame};

impl Server {
    pub(crate) fn handshake(&mut self, id: ConnectionId, frame: &[u8]) {
        self.stats.connection_requests += 1;
        let Ok(request) = ConnectRequest::decode(frame) else {
            self.close(id, CloseReason::Malformed);
            return;
        };
        if request.last_zxid_seen > self.partition.tree.last_zxid() {
            // Without an answer: the client tries another server, one that has caught up.
            self.close(id, CloseReason::ClientAhead);
            return;
        }
        let range = (self.config.session_timeout_min_ms, self.config.session_timeout_max_ms);
        let timeout_ms = request.timeout_ms.max(range.0).min(range.1);
        if request.session_id == 0 {
            self.create_session(id, timeout_ms, &request);
        } else {
            self.reopen_session(id, timeout_ms, &request);
        }
    }

    fn create_session(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        if self.no_room_until_us.is_some() {
            self.close(id, CloseReason::NoRoom);
            return;
        }
        let session_id = self.sessions.new_id();
        let password = self.sessions.new_password(session_id);
        let zxid = self.partition.propose_session(session_id, timeout_ms, password, self.now);
        let read_only = request.read_only.map(|_| false);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.phase = Phase::Creating(ConnectResponse {
                protocol_version: 0,
                timeout_ms,
                session_id,
                password,
                read_only,
            });
        }
        self.waiters.push_back(Waiter { zxid, connection: id, own: true });
    }

    /// The creation is durable and applied: the client may know.
    pub(crate) fn session_created(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Phase::Creating(response) = connection.phase.clone() else { return };
        let Some(key) = self.sessions.key(response.session_id) else { return };
        self.go_live(id, key, response);
        self.resume(id);
    }

    fn reopen_session(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        let tree = &self.partition.tree;
        let known = tree
            .session(request.session_id)
            .filter(|session| tree.session_is_live(session.id))
            .filter(|session| passwords_match(&session.password, request.password));
        let (Some(session), Some(key)) = (known, self.sessions.key(request.session_id)) else {
            let read_only = request.read_only.map(|_| false);
            self.send_response(id, &ConnectResponse { read_only, ..ConnectResponse::EXPIRED });
            self.close(id, CloseReason::SessionExpired);
            return;
        };
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id: session.id,
            password: session.password,
            read_only: request.read_only.map(|_| false),
        };
        self.sessions.set_timeout(key, timeout_ms, self.now);
        self.go_live(id, key, response);
    }

    fn go_live(&mut self, id: ConnectionId, key: usize, response: ConnectResponse) {
        let Now { mono_us, .. } = self.now;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.phase = Phase::Live(key);
            connection.session = response.session_id;
            connection.timeout_ms = response.timeout_ms;
            connection.last_reply_us = mono_us;
        }
        if let Some(previous) = self.sessions.attach(key, Some(id))
            && previous != id
        {
            self.partition.watches.remove_watcher(WatcherId(previous.0));
            self.close(previous, CloseReason::SessionMoved);
        }
        self.send_response(id, &response);
    }

    fn send_response(&mut self, id: ConnectionId, response: &ConnectResponse) {
        let Some(output) = self.connections.output(id) else { return };
        let start = begin_frame(output);
        response.encode(output);
        end_frame(output, start);
        let bytes = output.len() - start;
        self.stats.sent(bytes);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.sent += 1;
        }
    }
}
