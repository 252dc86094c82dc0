//! Local sessions (settings `localSessionsEnabled`, `localSessionsUpgradingEnabled`): those that their contact
//! server alone keeps. They cost the ensemble no write, no memory and no heartbeat, and end with that server.
//!
//! - **They begin behind a barrier**, not by an update: so their clients see, as those of other sessions do,
//!   everything that anybody was shown before they came.
//! - **To the leader their writes are nobody's** (session 0), as it has never heard of them. What an old connection
//!   has left under way cannot be refused by its contact, then; so a client that comes back to its server, the only one
//!   that knows it, waits until all that this server had asked has its outcome. Those come in order.
//! - **What needs an owner that everybody knows** (an ephemeral znode, what becomes of programs) is refused, or makes
//!   the session a global one first, where that is set: its creation is asked for in the stream of this server's
//!   requests, right before what needs it. From then on it is a session like any other. If the leader that was asked
//!   is lost with it, the connection ends, as with all writes that may be lost, and the session is what it was.
//! - **It is closed when that is asked**, and gone when the answer has left or its connection has ended: what its client
//!   asks behind the close is refused.
//!
//! With several partitions there are none: what an old connection has left behind is under way on several timelines,
//! which only an update of all of them brings to an end.

use crate::replica::Replica;
use crate::session::{LiveSession, Scope};
use alloc::vec::Vec;
use stoa_front::{CloseReason, ConnectionId, Phase, SessionKey, Slot};
use stoa_partition::changes_programs;
use stoa_placement::FIRST;
use stoa_timeline::Origin;
use stoa_tree::is_same_password;
use stoa_wire::{ConnectRequest, ConnectResponse, CreateMode, ErrorCode, Opcode, Request, RequestHeader};

/// Whether a request needs a session that all servers know.
fn needs_owner(request: &Request<'_>) -> bool {
    let is_ephemeral = |flags| CreateMode::from_i32(flags).is_some_and(CreateMode::is_ephemeral);
    match request {
        Request::Create(create) | Request::Create2(create) if is_ephemeral(create.flags) => true,
        Request::Multi(ops) => ops.iter().any(|op| needs_owner(&op)),
        _ => changes_programs(request),
    }
}

impl Replica {
    /// Whether who comes without a session is given a local one. As in ZooKeeper, a server that stands alone has none.
    pub(crate) fn makes_local_sessions(&self) -> bool {
        let may = self.config.local_sessions.are_made && !self.timeline.is_reader();
        may && self.config.partitions == 1 && self.is_ensemble()
    }

    /// Who comes without a session is given a local one when everything is applied that was acknowledged before.
    pub(crate) fn open_local(&mut self, id: ConnectionId, timeout_ms: i32, request: &ConnectRequest<'_>) {
        self.opening(id, timeout_ms, request);
        self.begin_behind_barrier(id);
    }

    fn begin_behind_barrier(&mut self, id: ConnectionId) {
        let barrier = self.timeline.barrier(id);
        self.clients.connections.push_slot(id, Slot::Barrier { id: barrier, answer: None });
    }

    /// A client comes back with a session that is a local one here. False if there is none.
    pub(crate) fn reopen_local(
        &mut self,
        id: ConnectionId,
        timeout_ms: i32,
        request: &ConnectRequest<'_>,
    ) -> bool {
        let session = request.session_id;
        let Some(key) = self.sessions.live.local(session) else { return false };
        self.opening(id, timeout_ms, request);
        if !is_same_password(&self.sessions.live.new_password(session), request.password) {
            self.send_expired(id);
            return true;
        }
        if self.sessions.live.is_closed(key) {
            self.end_local(session, CloseReason::SessionClosed);
            self.send_expired(id);
            return true;
        }
        self.sessions.live.touch(key, self.now);
        if let Some(previous) = self.sessions.live.attach(key, Some(id)).filter(|previous| *previous != id) {
            self.close(previous, CloseReason::SessionMoved);
        }
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.session = session;
            self.sessions.local.returning.insert((connection.mode.opening, id));
        }
        self.let_local_return();
        true
    }

    /// Lets those come back for whom everything that was asked here before has its outcome.
    pub(crate) fn let_local_return(&mut self) {
        while let Some((before, id)) = self.sessions.local.returning.first().copied()
            && before <= self.timeline.first_request()
        {
            self.sessions.local.returning.pop_first();
            let Some(connection) = self.clients.connections.get_mut(id) else { continue };
            let Phase::Opening { timeout_ms, .. } = connection.phase else { continue };
            let session = connection.session;
            match self.sessions.live.local(session) {
                // Whether it was to be a global one is known by now.
                Some(key) => {
                    self.sessions.live.set_scope(key, Scope::Local);
                    self.begin_behind_barrier(id);
                }
                None => {
                    connection.session = 0;
                    connection.mode.opening = self.timeline.next_request().request;
                    let password = self.sessions.live.new_password(session);
                    self.ask_for_session(id, false, session, timeout_ms, &password);
                }
            }
        }
    }

    /// A barrier has fallen: if a local session begins behind it, its client may know now.
    pub(crate) fn local_opened(&mut self, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id) else { return };
        let Phase::Opening { timeout_ms, read_only } = connection.phase else { return };
        let (session, key) = match connection.session {
            0 => {
                let session = self.sessions.live.new_id(self.applied.partition.tree().own_site());
                (session, Some(self.sessions.live.insert_local(session, timeout_ms, self.now)))
            }
            session => (session, self.sessions.live.local(session)),
        };
        let Some(key) = key else {
            self.send_expired(id);
            return;
        };
        self.sessions.live.set_timeout(key, timeout_ms, self.now);
        let password = self.sessions.live.new_password(session);
        let protocol_version = 0;
        let session_id = session;
        self.go_live(
            id,
            key,
            ConnectResponse { protocol_version, timeout_ms, session_id, password, read_only },
        );
    }

    /// The session of a connection, if it is a local one that is not to be a global one.
    #[inline]
    fn local_of(&self, id: ConnectionId) -> Option<SessionKey> {
        if self.sessions.live.locals() == 0 {
            return None;
        }
        let Phase::Live(key) = self.clients.connections.get(id)?.phase else { return None };
        let stays = |session: &&LiveSession| matches!(session.scope(), Scope::Local | Scope::Closed);
        self.sessions.live.get(key).filter(stays).map(|_| key)
    }

    /// In whose name a connection's writes are prepared: nobody's, if only this server knows its session.
    #[inline]
    pub(crate) fn writes_as(&self, id: ConnectionId, session: i64) -> i64 {
        if self.local_of(id).is_some() { 0 } else { session }
    }

    /// What a local session asks for that concerns itself. True if that is all.
    pub(crate) fn write_of_local(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
        arrived_us: u64,
    ) -> bool {
        let Some(key) = self.local_of(id) else { return false };
        let opcode = Opcode::from_i32(header.opcode).unwrap_or(Opcode::Create);
        match request {
            // As behind the close of a global one, which is gone from the proposed state.
            _ if self.sessions.live.is_closed(key) => {
                self.refuse(id, header.xid, opcode, ErrorCode::SessionExpired, arrived_us);
                true
            }
            Request::CloseSession => {
                self.sessions.live.set_scope(key, Scope::Closed);
                self.answer(id, header.xid, Opcode::CloseSession, 0, Vec::new(), arrived_us);
                true
            }
            request if !needs_owner(request) => false,
            _ if self.config.local_sessions.are_upgraded => {
                self.upgrade(id, key);
                false
            }
            _ => {
                self.refuse(id, header.xid, opcode, ErrorCode::EphemeralOnLocalSession, arrived_us);
                true
            }
        }
    }

    /// Asks for a local session to be a global one. What is asked behind that is asked in its name.
    fn upgrade(&mut self, id: ConnectionId, key: SessionKey) {
        let Some((session, timeout_ms)) = self.sessions.live.get(key).map(|live| (live.id, live.timeout_ms))
        else {
            return;
        };
        self.sessions.live.set_scope(key, Scope::Upgrading);
        let opening = self.timeline.next_request().request;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.mode.opening = opening;
        }
        self.ask_for_new_session(id, session, timeout_ms);
    }

    /// Whether this is the outcome of what is to make the session of a connection a global one.
    pub(crate) fn is_of_upgrade(&self, id: ConnectionId, origin: Origin) -> bool {
        self.sessions.live.locals() > 0
            && self.clients.connections.get(id).is_some_and(|connection| {
                let Phase::Live(key) = connection.phase else { return false };
                let session = self.sessions.live.get(key);
                connection.mode.opening == origin.request
                    && session.is_some_and(|session| session.scope() == Scope::Upgrading)
            })
    }

    /// The leader did not make the session a global one.
    pub(crate) fn upgrade_refused(&mut self, id: ConnectionId) {
        if let Some(session) = self.clients.connections.get(id).map(|connection| connection.session) {
            self.end_local(session, CloseReason::SessionExpired);
        }
    }

    /// An answer has left; behind that to its own close a local session is gone.
    pub(crate) fn left_behind(&mut self, id: ConnectionId, opcode: Opcode, err: i32) {
        if opcode == Opcode::CloseSession && err == 0 && self.local_of(id).is_some() {
            let session = self.clients.connections.get(id).map_or(0, |connection| connection.session);
            self.end_local(session, CloseReason::SessionClosed);
        }
    }

    /// A local session ends, and its connection with it.
    pub(crate) fn end_local(&mut self, session: i64, reason: CloseReason) {
        if self.sessions.live.local(session).is_some()
            && let Some(id) = self.sessions.live.remove(session).and_then(|live| live.connection)
        {
            match self.clients.connections.get(id).map(|connection| &connection.phase) {
                Some(Phase::Opening { .. }) => self.send_expired(id),
                _ => self.close(id, reason),
            }
        }
    }

    /// Number of local sessions.
    #[must_use]
    pub fn local_session_count(&self) -> usize {
        debug_assert!(self.config.partition == FIRST || self.sessions.live.locals() == 0);
        self.sessions.live.locals()
    }
}
