//! Side connections of direct clients, as partitions see them: the first one lets them in, and each
//! answers what only they ask.
//!
//! A side connection belongs to a session whose client is connected to this server, and ends with that
//! connection. So whatever moves or ends the session ends it too.

use crate::replica::Replica;
use alloc::vec::Vec;
use stoa_front::{Attached, CloseReason, ConnectionId, Phase, ToClient};
use stoa_partition::Now;
use stoa_wire::{ELSEWHERE, Opcode, Reader, RequestHeader};

impl Replica {
    /// Somebody wants a side connection to this session's.
    pub(crate) fn attach_side(&mut self, front: u8, client: ConnectionId, session: i64, password: &[u8]) {
        let answer = match self.main_of(session, password) {
            Ok((main, attached)) => {
                if let Some((thread, replaced)) = self.clients.sides.insert(main, (front, client)) {
                    self.clients.outbox.push_back((
                        thread,
                        replaced,
                        ToClient::Closed(CloseReason::SessionMoved),
                    ));
                }
                ToClient::Attached(attached)
            }
            Err(reason) => {
                self.stats.connections_dropped += 1;
                ToClient::Closed(reason)
            }
        };
        self.clients.outbox.push_back((front, client, answer));
    }

    /// The connection of a session's client to this server.
    fn main_of(&self, session: i64, password: &[u8]) -> Result<(ConnectionId, Attached), CloseReason> {
        // Who does not know the password does not learn which sessions there are.
        if !self.applied.partition.tree().session_has_password(session, password) {
            return Err(CloseReason::SessionExpired);
        }
        let main = self.sessions.live.connection_of(session).ok_or(CloseReason::SessionMoved)?;
        let connection = self.clients.connections.get(main).ok_or(CloseReason::SessionMoved)?;
        match (&connection.phase, &connection.remote) {
            (Phase::Live(_), Some(remote)) => {
                let (timeout_ms, opening) = (connection.timeout_ms, connection.mode.opening);
                let since = remote.since;
                let came_zxid =
                    connection.mode.came_zxid.max(self.applied.partition.tree().told_elsewhere(session));
                let (read_only, programs) = (false, true);
                Ok((main, Attached { session, timeout_ms, opening, since, read_only, programs, came_zxid }))
            }
            _ => Err(CloseReason::SessionMoved),
        }
    }

    /// A side connection is gone.
    pub(crate) fn detach_side(&mut self, front: u8, client: ConnectionId) {
        self.clients.sides.remove((front, client));
    }

    /// A connection has ended, and its side connections with it.
    pub(crate) fn end_sides(&mut self, main: ConnectionId) {
        for (thread, side) in self.clients.sides.remove_all(main) {
            self.clients.outbox.push_back((thread, side, ToClient::Closed(CloseReason::MainEnded)));
        }
    }

    /// A fast read of a remote client: answered from what is applied, whatever its client has seen, and whatever it
    /// has asked before (AGORA, section IV-D). `frame` has the opcode where others have the xid and the
    /// opcode.
    pub(crate) fn remote_fast(&mut self, id: ConnectionId, xid: i32, frame: &[u8], now: Now) {
        self.now = now;
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        if connection.phase == Phase::Closing {
            return;
        }
        connection.traffic.received += 1;
        self.stats.packets_received += 1;
        if !self.config.authentication.is_met_by(&connection.identities) {
            return self.close(id, CloseReason::AuthRequired);
        }
        let mut reader = Reader::new(frame);
        let Ok(RequestHeader { opcode, .. }) = RequestHeader::decode(&mut reader) else { return };
        let Some(known) = Opcode::from_i32(opcode) else { return };
        self.leader.load.request(Some(known), reader, now.mono_us);
        self.read(id, RequestHeader { xid, opcode }, known, &mut reader, None);
    }

    /// Gives back a request, in its turn: it has to be sent elsewhere.
    pub(crate) fn give_back(&mut self, id: ConnectionId, xid: i32, now: Now) {
        self.now = now;
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        if connection.phase == Phase::Closing {
            return;
        }
        connection.traffic.received += 1;
        self.stats.packets_received += 1;
        self.answer(id, xid, Opcode::Ping, ELSEWHERE, Vec::new(), now.mono_us);
    }
}
