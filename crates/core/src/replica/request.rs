//! Requests of a live connection: which way each goes.

use crate::replica::readers::AWAY;
use crate::replica::second_site::ends_session;
use crate::replica::{Replica, Waiter};
use alloc::vec::Vec;
use stoa_front::{
    Barred, CloseReason, Connection, ConnectionId, Frame, Phase, SaslStep, Slot, frame, is_audited,
};
use stoa_partition::{Asked, NotProposed, Now, changes_programs};
use stoa_tree::{Caller, Contact, Refusal};
use stoa_wire::{ErrorCode, MultiResults, Opcode, Reader, Request, RequestHeader, put};

/// Whether a read is of one znode, so that one site knows what is newest. What else is asked nobody may refuse because
/// another site is away: who sets its watches again does not ask twice.
pub(super) fn is_of_one_znode(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::GetData | Opcode::Exists | Opcode::GetAcl | Opcode::GetChildren | Opcode::GetChildren2
    )
}

impl Replica {
    pub(crate) fn request(&mut self, id: ConnectionId, frame: &Frame<'_>, arrived_us: u64) {
        let (header, mut reader) = (frame.header, frame.body());
        // A check is known in a multi only.
        let Some(opcode) = frame.opcode.filter(|opcode| *opcode != Opcode::Check) else {
            // As ZooKeeper: an answer, then the end.
            self.reply(id, header.xid, Opcode::Ping, ErrorCode::Unimplemented as i32, &[], arrived_us);
            self.close(id, CloseReason::UnknownOpcode);
            return;
        };
        if self.proves_or_has_to(id, opcode, frame, arrived_us) {
            return;
        }
        self.note_for_audit(id, frame);
        if self.is_for_no_leader(id, opcode, frame, arrived_us) {
            return;
        }
        let Some(connection) = self.clients.connections.get(id) else { return };
        let is_next = connection.slots().is_empty();
        let is_barred = connection.is_barred();
        let (session, is_read) = (connection.session, opcode.is_read());
        let reads_newest = connection.mode.reads_newest && is_read;
        let is_introduction = reads_newest && self.is_stranger(id);
        match opcode {
            // Heartbeats wait behind nothing; clients match the answer by its xid alone.
            Opcode::Ping => self.reply(id, header.xid, opcode, 0, &[], arrived_us),
            Opcode::Auth => self.auth(id, header, &mut reader, arrived_us),
            // A program takes a read in its turn among the writes, as what it does is one.
            _ if !is_barred
                && (!reads_newest || self.timeline.is_alone())
                && is_read
                && self.applied.partition.runs_for(session, opcode, &reader) =>
            {
                self.write(id, header, opcode, &mut reader, arrived_us);
            }
            // Of several sites the one knows what is newest that holds it. What waits behind a barrier has no number yet,
            // and would come behind this.
            _ if !is_barred
                && (is_introduction && is_next
                    || reads_newest && self.is_of_sites() && is_of_one_znode(opcode)) =>
            {
                self.ask_leader(id, header, opcode, reader.rest(), arrived_us, false);
            }
            _ if reads_newest && !is_introduction && !self.timeline.is_alone() => {
                let barrier = self.timeline.barrier(id);
                self.clients.connections.push_slot(id, Slot::Barrier { id: barrier, answer: None });
                self.keep_request(id, frame, arrived_us, true);
            }
            // What waits behind a barrier must not take effect before it falls.
            _ if is_barred || (!is_next && is_read) || self.has_to_end_later(id, opcode) => {
                self.keep_request(id, frame, arrived_us, is_barred || is_introduction);
            }
            _ if is_read => self.read(id, header, opcode, &mut reader, None),
            _ => self.ordered(id, header, opcode, &mut reader, arrived_us),
        }
    }

    /// Whether that is all that becomes of a request: it goes back, to be asked elsewhere, or nobody is asked who leads.
    #[inline]
    fn is_for_no_leader(
        &mut self,
        id: ConnectionId,
        opcode: Opcode,
        frame: &Frame<'_>,
        arrived_us: u64,
    ) -> bool {
        let placed = self.applied.placement.version();
        let Some(connection) = self.clients.connections.get_mut(id) else { return true };
        let remote = connection.remote.as_ref();
        let is_misplaced = remote.is_some_and(|remote| remote.placed < placed)
            && !matches!(opcode, Opcode::Ping | Opcode::Auth);
        connection.traffic.last_op = Some(opcode);
        connection.traffic.last_xid = frame.header.xid;
        if !is_misplaced && connection.phase != Phase::ReadOnly {
            return false;
        }
        if !connection.slots().is_empty() {
            self.keep_request(id, frame, arrived_us, false);
        } else if is_misplaced {
            self.send_back(id, frame.bytes.into());
        } else {
            self.request_read_only(id, frame.header, opcode, &mut frame.body(), arrived_us);
        }
        true
    }

    /// Whether that is all that becomes of a request: it is a token, or its client has yet to prove who it is.
    #[inline]
    fn proves_or_has_to(
        &mut self,
        id: ConnectionId,
        opcode: Opcode,
        frame: &Frame<'_>,
        arrived_us: u64,
    ) -> bool {
        let authentication = &self.config.authentication;
        if opcode == Opcode::Sasl && authentication.has_sasl {
            if !self.clients.connections.take_sasl(id, frame.header.xid, frame.body()) {
                self.close(id, CloseReason::Malformed);
            }
            return true;
        }
        let is_free = authentication.demands.is_empty() || matches!(opcode, Opcode::Ping | Opcode::Auth);
        let is_kept_out = !is_free
            && self
                .clients
                .connections
                .get(id)
                .is_some_and(|connection| !authentication.is_met_by(&connection.identities));
        if is_kept_out {
            self.keep_out(id, frame.header.xid, arrived_us);
        }
        is_kept_out
    }

    /// A client asks for something that has not proved who it is, as all have to here: an answer, then the end, as in
    /// ZooKeeper (`AuthenticationHelper.enforceAuthentication`).
    fn keep_out(&mut self, id: ConnectionId, xid: i32, arrived_us: u64) {
        let code = ErrorCode::SessionClosedRequireSaslAuth;
        self.stats.auth_failed += 1;
        self.reply(id, xid, Opcode::Ping, code as i32, &[], arrived_us);
        self.close(id, CloseReason::AuthRequired);
    }

    /// The driver has looked at a token.
    pub(crate) fn sasl_answered(&mut self, id: ConnectionId, xid: i32, step: SaslStep, now: Now) {
        self.now = now;
        match self.clients.connections.answer_sasl(&self.config.authentication, (id, xid), step) {
            Ok(identities) => self.identify(id, identities),
            Err(reason) => {
                self.stats.auth_failed += 1;
                self.close(id, reason);
            }
        }
    }

    /// Keeps a request until what is before it is answered.
    fn keep_request(&mut self, id: ConnectionId, frame: &Frame<'_>, arrived_us: u64, may_write: bool) {
        let slot = Slot::Request { frame: frame.bytes.into(), arrived_us, may_write };
        self.clients.connections.push_slot(id, slot);
    }

    /// Anything but a read, in its turn.
    fn ordered(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        opcode: Opcode,
        reader: &mut Reader<'_>,
        arrived_us: u64,
    ) {
        match opcode {
            Opcode::Sasl | Opcode::CreateSession
                if !self.has_to_wait(id, header, reader.rest(), arrived_us) =>
            {
                self.refuse(id, header.xid, opcode, ErrorCode::Unimplemented, arrived_us);
            }
            Opcode::Sasl | Opcode::CreateSession => {}
            Opcode::Sync => self.sync(id, header, reader, arrived_us),
            _ => self.write(id, header, opcode, reader, arrived_us),
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
        let body = reader.rest();
        if self.is_away(id) {
            return self.wait_for_member(id, header, body, arrived_us);
        }
        let request = match (Request::decode(opcode, reader), self.leader.no_room_until_us) {
            (Ok(request), None) => request,
            (decoded, _) => {
                let is_known = decoded.is_ok();
                let code = if is_known { ErrorCode::SystemError } else { ErrorCode::MarshallingError };
                if !self.has_to_wait(id, header, body, arrived_us) {
                    self.refuse(id, header.xid, opcode, code, arrived_us);
                }
                return;
            }
        };
        if self.write_of_local(id, header, &request, arrived_us) {
            return;
        }
        let Some(connection) = self.clients.connections.get(id) else { return };
        let (session, opening) = (self.writes_as(id, connection.session), connection.mode.opening);
        let bars = changes_programs(&request);
        let found = self.applied.partition.tree().find_held(&request);
        if !self.admits_at_once(id, session, &request, found.is_some()) {
            self.ask_leader(id, header, opcode, body, arrived_us, bars);
            return;
        }
        self.rests_on_remote(id);
        let Some(connection) = self.clients.connections.get(id) else { return };
        // A server alone need not store what changes nothing.
        let is_pipelined = connection.remote.as_ref().is_some_and(|remote| remote.is_pipelined);
        let is_beside = self.timeline.is_alone() && !is_pipelined;
        let origin = self.timeline.next_request();
        let refused = match (self.moved(session, origin.server, opening), &request) {
            (Some(code), _) => Err(Refusal::Error(code)),
            (None, Request::Reconfig(reconfig)) => {
                let identities = connection.identities.clone();
                self.propose_reconfig(origin, reconfig, &Caller { session, identities: &identities })
            }
            (None, request) => {
                let caller = Caller { session, identities: &connection.identities };
                let proposed =
                    self.applied.partition.propose(Some(origin), request, found.as_ref(), &caller, self.now);
                proposed.map_err(NotProposed::into_refusal)
            }
        };
        self.accessed_here(&request, found.as_ref());
        match refused {
            Ok(()) => {
                if opcode == Opcode::CloseSession {
                    self.sessions.live.set_closing(session, true);
                }
            }
            Err(refusal) if is_beside => {
                self.answer_refusal(id, header.xid, opcode, refusal, arrived_us);
                return;
            }
            Err(refusal) => self.applied.partition.propose_refusal(origin, refusal),
        }
        self.timeline.prepared(id);
        self.clients.connections.push_slot(id, Slot::Write { xid: header.xid, opcode, arrived_us, bars });
    }

    /// Whoever leads is to prepare this, in its turn.
    fn ask_leader(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        opcode: Opcode,
        body: &[u8],
        arrived_us: u64,
        bars: bool,
    ) {
        if self.is_away(id) {
            // What is answered next on this connection is that its session was brought.
            return self.wait_for_member(id, header, body, arrived_us);
        }
        let Some(connection) = self.clients.connections.get(id) else { return };
        let (session, opening) = (self.writes_as(id, connection.session), connection.mode.opening);
        let mut asked = Vec::with_capacity(body.len() + 64);
        let after = connection.after();
        Asked::put_write(&mut asked, (session, opening), &after, opcode, &connection.identities, body);
        self.timeline.ask(id, asked);
        self.clients.connections.push_slot(id, Slot::Write { xid: header.xid, opcode, arrived_us, bars });
    }

    /// What is answered here and now, and not by way of the timeline, may stand behind something that comes
    /// back to its front: then so must it. It waits as a request.
    fn has_to_wait(&mut self, id: ConnectionId, header: RequestHeader, body: &[u8], arrived_us: u64) -> bool {
        let waits = |connection: &Connection| connection.remote.is_some() && !connection.slots().is_empty();
        let has_to_wait = self.clients.connections.get(id).is_some_and(waits);
        if has_to_wait {
            let frame = frame(header, body);
            self.clients.connections.push_slot(id, Slot::Request { frame, arrived_us, may_write: true });
        }
        has_to_wait
    }

    /// Whether this server prepares requests itself, and nothing that was asked before waits for that.
    pub(crate) fn can_prepare(&self) -> bool {
        self.prepares() && self.timeline.are_given() && self.leader.pending.is_empty()
    }

    /// A session that is on its way to another connection takes nothing from this one.
    fn moved(&self, session: i64, server: u8, opening: u64) -> Option<ErrorCode> {
        if !self.applied.partition.tree().session_is_changing(session) {
            return None;
        }
        self.applied.partition.check_contact(session, Contact { server, opening }).err()
    }

    fn answer_refusal(
        &mut self,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        refusal: Refusal,
        arrived_us: u64,
    ) {
        match refusal {
            Refusal::Error(code) => {
                if let Some(why) = self.applied.partition.extensions_mut().take_failure() {
                    self.tell_failure(id, why);
                }
                self.refuse(id, xid, opcode, code, arrived_us);
                let pause_us = self.applied.partition.extensions_mut().take_pause();
                self.pause(id, pause_us);
            }
            Refusal::Multi { count, failed, code } => {
                let body = failed_multi(count, failed, code);
                self.answer(id, xid, opcode, 0, body, arrived_us);
            }
        }
    }

    /// A barrier: answered when everything ordered before it has been applied. Where there are sites it has its turn at
    /// the one that holds the znode.
    fn sync(&mut self, id: ConnectionId, header: RequestHeader, reader: &mut Reader<'_>, arrived_us: u64) {
        let asked = reader.rest();
        match Request::decode(Opcode::Sync, reader) {
            Ok(Request::Sync { path }) => {
                let mut body = Vec::new();
                put::str(&mut body, path);
                if self.is_stranger(id) || self.is_of_sites() {
                    // What is asked comes back as the answer, so nothing is asked that may stand behind the path.
                    self.ask_leader(id, header, Opcode::Sync, &body, arrived_us, false);
                    return;
                }
                if self.timeline.is_alone() {
                    if !self.has_to_wait(id, header, asked, arrived_us) {
                        self.answer(id, header.xid, Opcode::Sync, 0, body, arrived_us);
                    }
                    return;
                }
                let barrier = self.timeline.barrier(id);
                let answer = Some(Barred { xid: header.xid, body, arrived_us });
                self.clients.connections.push_slot(id, Slot::Barrier { id: barrier, answer });
            }
            Err(_) if !self.has_to_wait(id, header, asked, arrived_us) => {
                self.refuse(id, header.xid, Opcode::Sync, ErrorCode::MarshallingError, arrived_us);
            }
            _ => {}
        }
    }

    pub(crate) fn auth(
        &mut self,
        id: ConnectionId,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        arrived_us: u64,
    ) {
        match self.prove(id, reader) {
            Some(true) => self.reply(id, header.xid, Opcode::Auth, 0, &[], arrived_us),
            Some(false) => {
                self.stats.auth_failed += 1;
                self.reply(id, header.xid, Opcode::Auth, ErrorCode::AuthFailed as i32, &[], arrived_us);
                self.close(id, CloseReason::AuthFailed);
            }
            None => self.close(id, CloseReason::Malformed),
        }
    }

    /// Whether a client proves what it says it is; then it is that from now on. `None` when it says
    /// nothing that could be understood.
    pub(crate) fn prove(&mut self, id: ConnectionId, reader: &mut Reader<'_>) -> Option<bool> {
        let Ok(Request::Auth { scheme, auth }) = Request::decode(Opcode::Auth, reader) else { return None };
        let connection = self.clients.connections.get_mut(id)?;
        if connection.says_how_new(scheme, auth) {
            return Some(true);
        }
        let proved = self.config.authentication.check(scheme, auth, connection.peer.ip());
        Some(proved.is_some_and(|identities| connection.prove(identities)))
    }

    /// A frame over the limit, of which only the start was read.
    pub(crate) fn too_large(&mut self, id: ConnectionId, header: &[u8]) {
        let Ok(header) = RequestHeader::decode(&mut Reader::new(header)) else { return };
        let opcode = Opcode::from_i32(header.opcode).unwrap_or(Opcode::Ping);
        if self.clients.connections.is_audited() && is_audited(opcode) && !self.is_remote(id) {
            self.clients.connections.audit_other(id, header.xid);
        }
        self.refuse(id, header.xid, opcode, ErrorCode::MarshallingError, self.now.mono_us);
    }

    #[inline]
    fn note_for_audit(&mut self, id: ConnectionId, frame: &Frame<'_>) {
        if self.clients.connections.is_audited() && !self.is_remote(id) {
            self.clients.connections.audit_request(id, frame, false);
        }
    }

    fn is_remote(&self, id: ConnectionId) -> bool {
        self.clients.connections.get(id).is_some_and(|connection| connection.remote.is_some())
    }

    pub(crate) fn refuse(
        &mut self,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        code: ErrorCode,
        arrived_us: u64,
    ) {
        self.answer(id, xid, opcode, code as i32, Vec::new(), arrived_us);
    }

    /// An answer that is known now. It may rest on updates that are proposed and not durable yet
    /// (another client's create makes ours fail with NodeExists), so it leaves when they are applied,
    /// and behind what the session asked before.
    pub(crate) fn answer(
        &mut self,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        err: i32,
        body: Vec<u8>,
        arrived_us: u64,
    ) {
        let Some(connection) = self.clients.connections.get(id) else { return };
        let after = if self.timeline.is_alone() { self.applied.partition.proposed_zxid() } else { 0 };
        let nothing_before =
            connection.slots().is_empty() && after <= self.applied.partition.tree().last_prepared_zxid();
        if nothing_before {
            self.reply(id, xid, opcode, err, &body, arrived_us);
            self.left_behind(id, opcode, err);
            return;
        }
        self.clients.connections.push_slot(id, Slot::Answer { after, xid, opcode, err, body, arrived_us });
        if after > 0 {
            self.clients.waiters.push_back(Waiter { after, connection: id });
        }
    }

    /// Lets go what stands at the head of a connection's queue and has nothing to wait for.
    pub(crate) fn drain(&mut self, id: ConnectionId) {
        let applied = self.applied.partition.tree().last_prepared_zxid();
        while let Some(connection) = self.clients.connections.get(id) {
            let ready = match connection.slots().front() {
                Some(Slot::Answer { after, .. }) => *after <= applied,
                Some(Slot::Barrier { id: AWAY, .. }) => !connection.mode.is_away,
                Some(Slot::Barrier { id, .. }) => !self.timeline.is_waiting(*id),
                Some(Slot::Pause { until_us }) => *until_us <= self.now.mono_us,
                Some(Slot::Request { frame, .. }) => !(connection.is_held() && ends_session(frame)),
                Some(Slot::Write { .. }) | None => false,
            };
            if !ready || connection.phase == Phase::Closing {
                break;
            }
            match self.clients.connections.pop_slot(id) {
                Some(Slot::Answer { xid, opcode, err, body, arrived_us, .. }) => {
                    self.reply(id, xid, opcode, err, &body, arrived_us);
                    self.left_behind(id, opcode, err);
                }
                Some(Slot::Barrier { answer: None, .. }) => self.local_opened(id),
                Some(Slot::Barrier { answer, .. }) => {
                    if let Some(Barred { xid, body, arrived_us }) = answer {
                        if self.is_misplaced(id) {
                            self.sync_comes_back(id, xid, &body);
                        } else {
                            self.reply(id, xid, Opcode::Sync, 0, &body, arrived_us);
                        }
                    }
                }
                Some(Slot::Request { frame, arrived_us, may_write }) => {
                    self.queued(id, &frame, arrived_us, may_write);
                }
                Some(Slot::Pause { .. }) => {}
                Some(Slot::Write { .. }) | None => break,
            }
        }
        self.resume(id);
    }

    /// A request whose turn has come. A read that no write had to wait for is answered as one, whatever would be done
    /// with it if it came now: writes behind it are under way already, and it must not be asked behind them.
    pub(crate) fn queued(&mut self, id: ConnectionId, frame: &[u8], arrived_us: u64, may_write: bool) {
        if self.is_misplaced(id) && !self.is_asked_here(id, frame) {
            return;
        }
        let mut reader = Reader::new(frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else { return };
        let Some(opcode) = Opcode::from_i32(header.opcode) else { return };
        if self.clients.connections.get(id).is_some_and(Connection::is_read_only) {
            self.request_read_only(id, header, opcode, &mut reader, arrived_us);
            return;
        }
        let Some(connection) = self.clients.connections.get(id) else { return };
        let (session, is_read) = (connection.session, opcode.is_read());
        let may_write = is_read && may_write;
        let reads_newest = may_write && connection.mode.reads_newest;
        let is_of_holder = reads_newest && self.is_of_sites() && is_of_one_znode(opcode);
        let is_introduction = is_of_holder || reads_newest && self.is_stranger(id);
        let is_for_program = may_write && self.applied.partition.runs_for(session, opcode, &reader);
        if is_read && !is_for_program && !is_introduction {
            self.read(id, header, opcode, &mut reader, Some(arrived_us));
            return;
        }
        // A barrier has held it back; what it waits for now stands before all that waits already.
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        let rest = connection.take_slots();
        // Outcomes come in the order in which they are asked for.
        debug_assert!(
            !rest.iter().any(|slot| matches!(slot, Slot::Write { .. })),
            "writes have waited for it"
        );
        match (is_for_program, is_introduction) {
            (true, _) => self.write(id, header, opcode, &mut reader, arrived_us),
            (_, true) => self.ask_leader(id, header, opcode, reader.rest(), arrived_us, false),
            _ => self.ordered(id, header, opcode, &mut reader, arrived_us),
        }
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.put_slots_behind(rest);
        }
    }
}

pub(crate) fn failed_multi(count: usize, failed: usize, code: ErrorCode) -> Vec<u8> {
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
