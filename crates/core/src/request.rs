//! Requests of a live connection: which way each goes.

use crate::auth;
use crate::connection::{CloseReason, ConnectionId, Phase, Slot};
use crate::planted::Bug;
use crate::server::{Server, Waiter};
use alloc::vec::Vec;
use stoa_tree::{Caller, Refusal};
use stoa_wire::{ErrorCode, MultiResults, Opcode, Reader, Request, RequestHeader, put};

impl Server {
    pub(crate) fn request(&mut self, id: ConnectionId, frame: &[u8], arrived_us: u64) {
        let mut reader = Reader::new(frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            self.close(id, CloseReason::Malformed);
            return;
        };
        // A check is known in a multi only.
        let opcode = Opcode::from_i32(header.opcode).filter(|opcode| *opcode != Opcode::Check);
        let Some(opcode) = opcode else {
            // As ZooKeeper: an answer, then the end.
            self.reply(id, header.xid, Opcode::Ping, ErrorCode::Unimplemented as i32, &[], arrived_us);
            self.close(id, CloseReason::UnknownOpcode);
            return;
        };
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.last_op = Some(opcode);
        connection.last_xid = header.xid;
        match opcode {
            // Heartbeats wait behind nothing; clients match the answer by its xid alone.
            Opcode::Ping => self.reply(id, header.xid, opcode, 0, &[], arrived_us),
            Opcode::Auth => self.auth(id, header, &mut reader, arrived_us),
            Opcode::Sasl | Opcode::CreateSession => {
                self.refuse(id, header.xid, opcode, ErrorCode::Unimplemented, arrived_us);
            }
            Opcode::Reconfig => {
                let readable = Request::decode(opcode, &mut reader).is_ok();
                let code = if readable { ErrorCode::ReconfigDisabled } else { ErrorCode::MarshallingError };
                self.refuse(id, header.xid, opcode, code, arrived_us);
            }
            Opcode::Sync => self.sync(id, header, &mut reader, arrived_us),
            Opcode::CloseSession => self.close_session(id, header, arrived_us),
            Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::SetData
            | Opcode::SetAcl
            | Opcode::Multi => self.write(id, header, opcode, &mut reader, arrived_us),
            _ if connection.queue.is_empty() || self.planted.is(Bug::ReadOvertakesWrite) => {
                self.read(id, header, opcode, &mut reader, None);
            }
            _ => self.connections.push_slot(id, Slot::Request { frame: frame.into(), arrived_us }),
        }
    }

    fn write(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        opcode: Opcode,
        reader: &mut Reader<'_>,
        arrived_us: u64,
    ) {
        let request = match Request::decode(opcode, reader) {
            Ok(request) => request,
            Err(_) => {
                self.refuse(id, header.xid, opcode, ErrorCode::MarshallingError, arrived_us);
                return;
            }
        };
        if self.no_room_until_us.is_some() {
            self.refuse(id, header.xid, opcode, ErrorCode::SystemError, arrived_us);
            return;
        }
        let Some(connection) = self.connections.get(id) else { return };
        let caller = Caller { session: connection.session, identities: &connection.identities };
        match self.partition.propose(&request, &caller, self.now) {
            Ok(zxid) => self.await_write(id, header.xid, opcode, zxid, arrived_us),
            Err(Refusal::Error(code)) => self.refuse(id, header.xid, opcode, code, arrived_us),
            Err(Refusal::Multi { count, failed, code }) => {
                let body = failed_multi(count, failed, code);
                self.answer(id, header.xid, opcode, 0, body, arrived_us);
            }
        }
    }

    fn await_write(&mut self, id: ConnectionId, xid: i32, opcode: Opcode, zxid: i64, arrived_us: u64) {
        self.stats.log_updates += 1;
        self.connections.push_slot(id, Slot::Write { zxid, xid, opcode, arrived_us });
        self.waiters.push_back(Waiter { zxid, connection: id, own: true });
    }

    fn close_session(&mut self, id: ConnectionId, header: RequestHeader, arrived_us: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        let session = connection.session;
        if self.no_room_until_us.is_some() {
            self.refuse(id, header.xid, Opcode::CloseSession, ErrorCode::SystemError, arrived_us);
            return;
        }
        if !self.partition.tree.session_is_live(session) {
            self.refuse(id, header.xid, Opcode::CloseSession, ErrorCode::SessionExpired, arrived_us);
            return;
        }
        self.sessions.set_closing(session, true);
        let zxid = self.partition.propose_session_end(session, self.now);
        self.await_write(id, header.xid, Opcode::CloseSession, zxid, arrived_us);
    }

    /// A barrier: answered when everything ordered before it has been applied.
    fn sync(&mut self, id: ConnectionId, header: RequestHeader, reader: &mut Reader<'_>, arrived_us: u64) {
        match Request::decode(Opcode::Sync, reader) {
            Ok(Request::Sync { path }) => {
                let mut body = Vec::new();
                put::str(&mut body, path);
                self.answer(id, header.xid, Opcode::Sync, 0, body, arrived_us);
            }
            Ok(_) => {}
            Err(_) => self.refuse(id, header.xid, Opcode::Sync, ErrorCode::MarshallingError, arrived_us),
        }
    }

    fn auth(&mut self, id: ConnectionId, header: RequestHeader, reader: &mut Reader<'_>, arrived_us: u64) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Ok(Request::Auth { scheme, auth }) = Request::decode(Opcode::Auth, reader) else {
            self.close(id, CloseReason::Malformed);
            return;
        };
        let super_digest = self.config.super_digest.as_deref();
        let proved = auth::authenticate(scheme, auth, connection.peer.ip(), self.config.digest, super_digest);
        let Some((rank, identity)) = proved else {
            self.stats.auth_failed += 1;
            self.reply(id, header.xid, Opcode::Auth, ErrorCode::AuthFailed as i32, &[], arrived_us);
            self.close(id, CloseReason::AuthFailed);
            return;
        };
        for identity in rank.into_iter().chain([identity]) {
            if !connection.identities.contains(&identity) && connection.identities.len() < IDENTITIES_MAX {
                connection.identities.push(identity);
            }
        }
        self.reply(id, header.xid, Opcode::Auth, 0, &[], arrived_us);
    }

    /// A frame over the limit, of which only the start was read.
    pub(crate) fn too_large(&mut self, id: ConnectionId, header: &[u8]) {
        let Ok(header) = RequestHeader::decode(&mut Reader::new(header)) else { return };
        let opcode = Opcode::from_i32(header.opcode).unwrap_or(Opcode::Ping);
        self.refuse(id, header.xid, opcode, ErrorCode::MarshallingError, self.now.mono_us);
    }

    fn refuse(&mut self, id: ConnectionId, xid: i32, opcode: Opcode, code: ErrorCode, arrived_us: u64) {
        self.answer(id, xid, opcode, code as i32, Vec::new(), arrived_us);
    }

    /// An answer that is known now. It may rest on updates that are proposed and not durable yet
    /// (another client's create makes ours fail with NodeExists), so it leaves when they are applied,
    /// and behind what the session asked before.
    fn answer(
        &mut self,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        err: i32,
        body: Vec<u8>,
        arrived_us: u64,
    ) {
        let Some(connection) = self.connections.get(id) else { return };
        let nothing_before = connection.queue.is_empty() && self.partition.is_settled();
        if nothing_before || self.planted.is(Bug::RefusalOvertakesWrite) {
            self.reply(id, xid, opcode, err, &body, arrived_us);
            return;
        }
        let after = self.partition.proposed_zxid();
        self.connections.push_slot(id, Slot::Answer { after, xid, opcode, err, body, arrived_us });
        self.waiters.push_back(Waiter { zxid: after, connection: id, own: false });
    }

    /// Lets go what stands at the head of a connection's queue and has nothing to wait for.
    pub(crate) fn drain(&mut self, id: ConnectionId) {
        let applied = self.partition.tree.last_zxid();
        while let Some(connection) = self.connections.get(id) {
            let ready = match connection.queue.front() {
                Some(Slot::Answer { after, .. }) => *after <= applied,
                Some(Slot::Request { .. }) => true,
                Some(Slot::Write { .. }) | None => false,
            };
            if !ready || connection.phase == Phase::Closing {
                break;
            }
            match self.connections.pop_slot(id) {
                Some(Slot::Answer { xid, opcode, err, body, arrived_us, .. }) => {
                    self.reply(id, xid, opcode, err, &body, arrived_us);
                }
                Some(Slot::Request { frame, arrived_us }) => self.read_queued(id, &frame, arrived_us),
                _ => break,
            }
        }
        self.resume(id);
    }

    /// A read whose turn has come.
    pub(crate) fn read_queued(&mut self, id: ConnectionId, frame: &[u8], arrived_us: u64) {
        let mut reader = Reader::new(frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else { return };
        let Some(opcode) = Opcode::from_i32(header.opcode) else { return };
        self.read(id, header, opcode, &mut reader, Some(arrived_us));
    }
}

/// Identities that one connection can hold: each costs a comparison per ACL check.
const IDENTITIES_MAX: usize = 64;

fn failed_multi(count: usize, failed: usize, code: ErrorCode) -> Vec<u8> {
    let mut body = Vec::new();
    for op in 0..count {
        let err = match op.cmp(&failed) {
            core::cmp::Ordering::Less => ErrorCode::Ok,
            core::cmp::Ordering::Equal => code,
            core::cmp::Ordering::Greater => ErrorCode::RuntimeInconsistency,
        };
        MultiResults::error(&mut body, err as i32);
    }
    MultiResults::end(&mut body);
    body
}
