//! What a connection has to do with the audit log, see [`crate::audit`].

use crate::audit::{
    Answered, AuditEvent, AuditOperation, AuditResult, AuditedRequest, AwaitedReply, Target, is_audited,
};
use crate::connection::{CloseReason, Connection, ConnectionId, Connections};
use crate::frame::Frame;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_tree::{CONFIG_PATH, Identity};
use stoa_wire::{
    ELSEWHERE, ErrorCode, MultiResult, MultiResults, Opcode, Reader, ReplyHeader, direct_op, next_frame,
};

impl Connection {
    fn audit_users(&self) -> Vec<Identity> {
        let proved = self.queue.audited.iter().flat_map(|audited| &audited.proved);
        proved.chain(&self.identities).cloned().collect()
    }

    /// Whether anything is kept of it already.
    pub(crate) fn has_audit(&self) -> bool {
        self.queue.audited.is_some()
    }

    fn audit_event(&self, users: &[Identity], target: &Target, err: i32) -> AuditEvent {
        AuditEvent {
            session: self.session,
            address: Some(self.peer.ip().to_canonical()),
            users: users.to_vec(),
            operation: target.operation,
            path: target.path.clone(),
            kind: target.kind,
            to: None,
            acl: target.acl.clone(),
            result: if err == 0 { AuditResult::Success } else { AuditResult::Failure },
            error: err,
        }
    }

    /// What became of a request is not told to its client any more.
    fn audit_unanswered(&self, asked: &AuditedRequest, events: &mut VecDeque<AuditEvent>) {
        for target in asked.operations.iter().flatten() {
            let event = self.audit_event(&asked.users, target, 0);
            events.push_back(AuditEvent { result: AuditResult::Invoked, ..event });
        }
    }

    /// A request has this reply.
    fn audit_answered(
        &self,
        mut asked: AuditedRequest,
        err: i32,
        body: &[u8],
        events: &mut VecDeque<AuditEvent>,
    ) {
        let users = core::mem::take(&mut asked.users);
        if asked.is_multi {
            let results =
                if err == 0 { MultiResults::decode(&mut Reader::new(body)) } else { Ok(Vec::new()) };
            let results = results.unwrap_or_default();
            let failed = results.iter().find_map(|result| match result {
                MultiResult::Error(code) if *code != 0 => Some(*code),
                _ => None,
            });
            if let Some(code) = failed.or((err != 0).then_some(err)) {
                let target = Target::without_path(AuditOperation::Multi);
                events.push_back(self.audit_event(&users, &target, code));
                return;
            }
            for (at, target) in asked.operations.into_iter().enumerate() {
                let Some(mut target) = target else { continue };
                if let Some(MultiResult::Created { path, .. }) = results.get(at) {
                    target.path = Some((*path).into());
                }
                events.push_back(self.audit_event(&users, &target, 0));
            }
            return;
        }
        let Some(mut target) = asked.operations.pop().flatten() else { return };
        match target.operation {
            // The number of a sequential one is known now.
            AuditOperation::Create if err == 0 => {
                if let Ok(path) = Reader::new(body).str() {
                    target.path = Some(path.into());
                }
            }
            AuditOperation::Reconfig if err == 0 => target.path = Some(CONFIG_PATH.into()),
            _ => {}
        }
        events.push_back(self.audit_event(&users, &target, err));
    }
}

impl Connections {
    /// Whether the audit log wants to know.
    pub fn set_audited(&mut self, is_on: bool) {
        self.audit.is_on = is_on;
    }

    /// A request has come whose reply will be told by [`Connections::audit_reply`]. At a front all are noted, those
    /// too of which the audit log is not told: there replies are known by their order and their xid alone. False
    /// when they could not be told apart.
    pub fn audit_request(&mut self, id: ConnectionId, frame: &Frame<'_>, is_front: bool) -> bool {
        let (xid, is_fast) = (frame.header.xid, frame.header.opcode == direct_op::FAST);
        let is_answered = match frame.opcode {
            Some(Opcode::Ping | Opcode::Auth | Opcode::Sasl) => false,
            Some(opcode) => is_front || is_audited(opcode),
            None => {
                is_front && (is_fast || !(direct_op::SEEN..=direct_op::ROUTED).contains(&frame.header.opcode))
            }
        };
        let Some(connection) = self.get_mut(id).filter(|_| is_answered) else { return true };
        let asked = AuditedRequest::of(frame, || connection.audit_users());
        if is_front && xid < 0 {
            // What the server says of its own accord has such xids. No client numbers its writes so.
            let mut events = VecDeque::new();
            asked.iter().for_each(|asked| connection.audit_unanswered(asked, &mut events));
            self.audit.events.append(&mut events);
            return true;
        }
        connection.queue.audited.get_or_insert_default().note(AwaitedReply { xid, is_fast, asked })
    }

    /// An answer that no request is noted for will come with this xid.
    pub fn audit_other(&mut self, id: ConnectionId, xid: i32) {
        if let Some(connection) = self.get_mut(id) {
            let pending = AwaitedReply { xid, is_fast: false, asked: None };
            connection.queue.audited.get_or_insert_default().note(pending);
        }
    }

    /// A client of a front has proved to be this, or will be sent away.
    pub(crate) fn audit_proof(&mut self, id: ConnectionId, identities: Vec<Identity>) {
        let Some(connection) = self.get_mut(id) else { return };
        let known = connection.audit_users();
        let new = identities.into_iter().filter(|new| !known.contains(new));
        connection.queue.audited.get_or_insert_default().proved.extend(new);
    }

    /// A reply goes to a client.
    pub fn audit_reply(&mut self, id: ConnectionId, xid: i32, err: i32, body: &[u8]) {
        let Some(connection) = self.get_mut(id) else { return };
        let Some(Answered { unanswered, asked }) =
            connection.queue.audited.as_mut().and_then(|it| it.answered(xid))
        else {
            return;
        };
        let mut events = VecDeque::new();
        unanswered.iter().for_each(|asked| connection.audit_unanswered(asked, &mut events));
        // What is sent again elsewhere is told of there.
        if let Some(asked) = asked.filter(|_| err != ELSEWHERE) {
            connection.audit_answered(*asked, err, body, &mut events);
        }
        self.audit.events.append(&mut events);
    }

    /// Frames go to a client of a front.
    pub(crate) fn audit_frames(&mut self, id: ConnectionId, mut frames: &[u8]) {
        while let Ok(Some((frame, rest))) = next_frame(frames, usize::MAX >> 1) {
            let mut reader = Reader::new(frame);
            if let Ok(ReplyHeader { xid, err, .. }) = ReplyHeader::decode(&mut reader)
                && xid >= 0
            {
                self.audit_reply(id, xid, err, reader.rest());
            }
            frames = rest;
        }
    }

    /// A connection is over.
    pub(crate) fn audit_end(&mut self, connection: &mut Connection) {
        if !self.audit.is_on || connection.remote.is_some() {
            return;
        }
        let pending = connection.queue.audited.take().map(|audited| audited.pending).unwrap_or_default();
        for asked in pending.iter().filter_map(|pending| pending.asked.as_deref()) {
            connection.audit_unanswered(asked, &mut self.audit.events);
        }
        let error = match connection.close_reason {
            Some(CloseReason::AuthFailed) => ErrorCode::AuthFailed,
            Some(CloseReason::AuthRequired) => ErrorCode::SessionClosedRequireSaslAuth,
            _ => return,
        };
        let target = Target::without_path(AuditOperation::Login);
        let event = connection.audit_event(&connection.audit_users(), &target, error as i32);
        self.audit.events.push_back(event);
    }

    /// A session has ended, and these were its ephemeral znodes.
    pub fn audit_ephemerals(&mut self, session: i64, paths: Vec<String>) {
        let ends = AuditOperation::EphemeralEnds;
        let events =
            paths.into_iter().map(|path| AuditEvent { session, ..AuditEvent::of_server(ends, path) });
        self.audit.events.extend(events);
    }

    /// A subtree has moved to a partition, or could not.
    pub fn audit_move(&mut self, path: &str, to: u8, is_done: bool) {
        if self.audit.is_on {
            let result = if is_done { AuditResult::Success } else { AuditResult::Failure };
            let event = AuditEvent::of_server(AuditOperation::Move, path.into());
            self.audit.events.push_back(AuditEvent { to: Some(to), result, ..event });
        }
    }
}
