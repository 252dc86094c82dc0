//! What the audit log is told: who has changed what, or was not let.
//!
//! The contact server tells it, of its own clients: a request is noted when it comes, and has its outcome when its
//! reply goes to the client, whichever partition has carried it out and wherever it was refused. So nothing of it
//! stands in the timeline, and nothing is kept of a request where nobody wants to know.

use crate::connection::{CloseReason, Connection, ConnectionId, Connections};
use crate::frame::Frame;
use crate::membership::CONFIG_PATH;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use stoa_tree::Identity;
use stoa_wire::{
    AclList, Create, CreateMode, ELSEWHERE, ErrorCode, MultiResult, MultiResults, Opcode, Reader,
    ReplyHeader, Request, direct_op, next_frame, perms,
};

/// What somebody did, or tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOperation {
    /// A znode is created.
    Create,
    /// A znode is deleted.
    Delete,
    /// The data of a znode is set.
    SetData,
    /// The ACL of a znode is set.
    SetAcl,
    /// A multi of which nothing was done. One that was done is told by its operations.
    Multi,
    /// The list of servers is changed.
    Reconfig,
    /// An ephemeral znode is deleted because its session has ended.
    EphemeralEnds,
    /// A client wants to prove who it is, or has to.
    Login,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditResult {
    /// It was done.
    Success,
    /// It was refused.
    Failure,
    /// It was asked, and the client was gone before it could be told what became of it.
    Invoked,
}

/// One event for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// The client's session; 0 where it has none.
    pub session: i64,
    /// Where the client is; `None` where the server itself has done it.
    pub address: Option<IpAddr>,
    /// Who the client had proved to be when it asked, in the order of the proofs.
    pub users: Vec<Identity>,
    /// What it asked.
    pub operation: AuditOperation,
    /// The znode.
    pub path: Option<String>,
    /// Its kind, where one is created.
    pub kind: Option<CreateMode>,
    /// The ACL that is set, as ZooKeeper writes it: `scheme:id:perms` of each entry, with nothing between them.
    pub acl: Option<String>,
    /// What became of it.
    pub result: AuditResult,
    /// Why it was refused, one of [`ErrorCode`] as a number; 0 where it was not.
    pub error: i32,
}

/// What the audit log is to be told of the clients of a thread.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// Whether anybody wants to know.
    pub(crate) is_on: bool,
    pub(crate) events: VecDeque<AuditEvent>,
}

/// What is kept of a client for the sake of the audit log.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    /// At a front: who it has proved to be, as far as the connection does not know it.
    proved: Vec<Identity>,
    /// What it has asked and is not answered, oldest first.
    pending: VecDeque<Pending>,
    /// How many of these are fast.
    fast: usize,
}

#[derive(Debug)]
struct Pending {
    xid: i32,
    /// It may be answered before what was asked before it.
    is_fast: bool,
    /// `None` where the audit log is not told of it.
    asked: Option<Box<Asked>>,
}

/// A request of which the audit log is told.
#[derive(Debug)]
struct Asked {
    users: Vec<Identity>,
    is_multi: bool,
    /// Those of a multi have a place for each of its operations.
    operations: Vec<Option<Target>>,
}

/// What one operation is about.
#[derive(Debug)]
struct Target {
    operation: AuditOperation,
    path: Option<String>,
    kind: Option<CreateMode>,
    acl: Option<String>,
}

impl Target {
    fn new(operation: AuditOperation, path: &str) -> Self {
        Self { operation, path: Some(path.into()), kind: None, acl: None }
    }

    /// `None` where the audit log is not told of such requests.
    fn of(request: &Request<'_>) -> Option<Self> {
        Some(match *request {
            Request::Create(Create { path, flags, .. })
            | Request::Create2(Create { path, flags, .. })
            | Request::CreateContainer(Create { path, flags, .. })
            | Request::CreateTtl(Create { path, flags, .. }) => {
                Self { kind: CreateMode::from_i32(flags), ..Self::new(AuditOperation::Create, path) }
            }
            Request::Delete { path, .. } | Request::DeleteContainer { path } => {
                Self::new(AuditOperation::Delete, path)
            }
            Request::SetData { path, .. } => Self::new(AuditOperation::SetData, path),
            Request::SetAcl { path, acl, .. } => {
                Self { acl: Some(acl_text(&acl)), ..Self::new(AuditOperation::SetAcl, path) }
            }
            Request::Reconfig(_) => {
                Self { operation: AuditOperation::Reconfig, path: None, kind: None, acl: None }
            }
            _ => return None,
        })
    }
}

/// An ACL as `ZKUtil.aclToString` writes it.
fn acl_text(acl: &AclList<'_>) -> String {
    let mut text = String::new();
    for entry in acl.iter() {
        text.extend([entry.scheme, ":", entry.id, ":"]);
        let names = [
            (perms::CREATE, 'c'),
            (perms::DELETE, 'd'),
            (perms::READ, 'r'),
            (perms::WRITE, 'w'),
            (perms::ADMIN, 'a'),
        ];
        text.extend(names.iter().filter(|(bit, _)| entry.perms & bit != 0).map(|(_, name)| *name));
    }
    text
}

/// Whether the audit log is told of requests with this opcode.
pub(crate) fn is_audited(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::SetData
            | Opcode::SetAcl
            | Opcode::Multi
            | Opcode::Reconfig
    )
}

impl Asked {
    /// `None` where the audit log is not told of it, also because it cannot be understood: ZooKeeper has no line
    /// of such a request either.
    fn of(frame: &Frame<'_>, users: impl FnOnce() -> Vec<Identity>) -> Option<Box<Self>> {
        let opcode = frame.opcode.filter(|opcode| is_audited(*opcode))?;
        let request = Request::decode(opcode, &mut frame.body()).ok()?;
        let (is_multi, operations) = match &request {
            Request::Multi(operations) => (true, operations.iter().map(|it| Target::of(&it)).collect()),
            request => (false, Vec::from([Some(Target::of(request)?)])),
        };
        Some(Box::new(Self { users: users(), is_multi, operations }))
    }
}

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
            acl: target.acl.clone(),
            result: if err == 0 { AuditResult::Success } else { AuditResult::Failure },
            error: err,
        }
    }

    /// What became of a request is not told to its client any more.
    fn audit_unanswered(&self, asked: &Asked, events: &mut VecDeque<AuditEvent>) {
        for target in asked.operations.iter().flatten() {
            let event = self.audit_event(&asked.users, target, 0);
            events.push_back(AuditEvent { result: AuditResult::Invoked, ..event });
        }
    }

    /// A request has this reply.
    fn audit_answered(&self, mut asked: Asked, err: i32, body: &[u8], events: &mut VecDeque<AuditEvent>) {
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
                let target = Target { operation: AuditOperation::Multi, path: None, kind: None, acl: None };
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

impl Audited {
    /// Notes a request; false when its reply could not be told apart from another one's.
    fn note(&mut self, pending: Pending) -> bool {
        let same = |other: &Pending| other.xid == pending.xid && (pending.is_fast || other.is_fast);
        if (pending.is_fast || self.fast > 0) && self.pending.iter().any(same) {
            return false;
        }
        self.fast += usize::from(pending.is_fast);
        self.pending.push_back(pending);
        true
    }

    /// Takes out what is answered by a reply with this xid, behind those that it shows will not be answered.
    fn answered(&mut self, xid: i32) -> Option<(Vec<Box<Asked>>, Option<Box<Asked>>)> {
        let at = self.pending.iter().position(|pending| pending.xid == xid)?;
        let found = self.pending.remove(at)?;
        self.fast -= usize::from(found.is_fast);
        let mut unanswered = Vec::new();
        if !found.is_fast && at > self.fast {
            let rest = self.pending.split_off(at);
            for pending in core::mem::replace(&mut self.pending, rest).into_iter().rev() {
                if pending.is_fast {
                    self.pending.push_front(pending);
                } else {
                    unanswered.extend(pending.asked);
                }
            }
            unanswered.reverse();
        }
        Some((unanswered, found.asked))
    }
}

impl Connections {
    /// A request has come whose reply will be told by [`Connections::audit_reply`]. At a front all are noted, those
    /// too of which the audit log is not told: there replies are known by their order and their xid alone. False
    /// when they could not be told apart.
    pub(crate) fn audit_request(&mut self, id: ConnectionId, frame: &Frame<'_>, is_front: bool) -> bool {
        let (xid, is_fast) = (frame.header.xid, frame.header.opcode == direct_op::FAST);
        let is_answered = match frame.opcode {
            Some(Opcode::Ping | Opcode::Auth | Opcode::Sasl) => false,
            Some(opcode) => is_front || is_audited(opcode),
            None => {
                is_front && (is_fast || !(direct_op::SEEN..=direct_op::ROUTED).contains(&frame.header.opcode))
            }
        };
        let Some(connection) = self.get_mut(id).filter(|_| is_answered) else { return true };
        let asked = Asked::of(frame, || connection.audit_users());
        if is_front && xid < 0 {
            // What the server says of its own accord has such xids. No client numbers its writes so.
            let mut events = VecDeque::new();
            asked.iter().for_each(|asked| connection.audit_unanswered(asked, &mut events));
            self.audit.events.append(&mut events);
            return true;
        }
        connection.queue.audited.get_or_insert_default().note(Pending { xid, is_fast, asked })
    }

    /// An answer that no request is noted for will come with this xid.
    pub(crate) fn audit_other(&mut self, id: ConnectionId, xid: i32) {
        if let Some(connection) = self.get_mut(id) {
            let pending = Pending { xid, is_fast: false, asked: None };
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
    pub(crate) fn audit_reply(&mut self, id: ConnectionId, xid: i32, err: i32, body: &[u8]) {
        let Some(connection) = self.get_mut(id) else { return };
        let Some((unanswered, asked)) = connection.queue.audited.as_mut().and_then(|it| it.answered(xid))
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
        let target = Target { operation: AuditOperation::Login, path: None, kind: None, acl: None };
        let event = connection.audit_event(&connection.audit_users(), &target, error as i32);
        self.audit.events.push_back(event);
    }

    /// A session has ended, and these were its ephemeral znodes.
    pub(crate) fn audit_ephemerals(&mut self, session: i64, paths: Vec<String>) {
        self.audit.events.extend(paths.into_iter().map(|path| AuditEvent {
            session,
            address: None,
            users: Vec::new(),
            operation: AuditOperation::EphemeralEnds,
            path: Some(path),
            kind: None,
            acl: None,
            result: AuditResult::Success,
            error: 0,
        }));
    }
}
