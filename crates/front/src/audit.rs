//! What the audit log is told: who has changed what, or was not let.
//!
//! The contact server tells it, of its own clients: a request is noted when it comes, and has its outcome when its
//! reply goes to the client, whichever partition has carried it out and wherever it was refused. So nothing of it
//! stands in the timeline, and nothing is kept of a request where nobody wants to know.

use crate::frame::Frame;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use stoa_tree::Identity;
use stoa_wire::{AclList, Create, CreateMode, Opcode, Request, perms};

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
    /// A subtree is moved to another partition, told by the server that leads.
    Move,
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
    /// The partition that it is moved to.
    pub to: Option<u8>,
    /// The ACL that is set, as ZooKeeper writes it: `scheme:id:perms` of each entry, with nothing between them.
    pub acl: Option<String>,
    /// What became of it.
    pub result: AuditResult,
    /// Why it was refused, one of [`stoa_wire::ErrorCode`] as a number; 0 where it was not.
    pub error: i32,
}

impl AuditEvent {
    /// What the server itself has done.
    pub(crate) fn of_server(operation: AuditOperation, path: String) -> Self {
        Self {
            session: 0,
            address: None,
            users: Vec::new(),
            operation,
            path: Some(path),
            kind: None,
            to: None,
            acl: None,
            result: AuditResult::Success,
            error: 0,
        }
    }
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
    pub(crate) proved: Vec<Identity>,
    /// What it has asked and is not answered, oldest first.
    pub(crate) pending: VecDeque<AwaitedReply>,
    /// How many of these are fast.
    fast: usize,
}

#[derive(Debug)]
pub(crate) struct AwaitedReply {
    pub(crate) xid: i32,
    /// It may be answered before what was asked before it.
    pub(crate) is_fast: bool,
    /// `None` where the audit log is not told of it.
    pub(crate) asked: Option<Box<AuditedRequest>>,
}

/// A request of which the audit log is told.
#[derive(Debug)]
pub(crate) struct AuditedRequest {
    pub(crate) users: Vec<Identity>,
    pub(crate) is_multi: bool,
    /// Those of a multi have a place for each of its operations.
    pub(crate) operations: Vec<Option<Target>>,
}

/// What one operation is about.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) operation: AuditOperation,
    pub(crate) path: Option<String>,
    pub(crate) kind: Option<CreateMode>,
    pub(crate) acl: Option<String>,
}

impl Target {
    fn new(operation: AuditOperation, path: &str) -> Self {
        Self { path: Some(path.into()), ..Self::without_path(operation) }
    }

    /// One that is about no znode, or about one that could not be read.
    pub(crate) fn without_path(operation: AuditOperation) -> Self {
        Self { operation, path: None, kind: None, acl: None }
    }

    /// `None` where the audit log is not told of such requests.
    pub(crate) fn of(request: &Request<'_>) -> Option<Self> {
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
            Request::Reconfig(_) => Self::without_path(AuditOperation::Reconfig),
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

/// What requests with this opcode do, where the audit log is told of them.
fn operation(opcode: Opcode) -> Option<AuditOperation> {
    Some(match opcode {
        Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl => {
            AuditOperation::Create
        }
        Opcode::Delete | Opcode::DeleteContainer => AuditOperation::Delete,
        Opcode::SetData => AuditOperation::SetData,
        Opcode::SetAcl => AuditOperation::SetAcl,
        Opcode::Multi => AuditOperation::Multi,
        Opcode::Reconfig => AuditOperation::Reconfig,
        _ => return None,
    })
}

/// Whether the audit log is told of requests with this opcode.
#[must_use]
pub fn is_audited(opcode: Opcode) -> bool {
    operation(opcode).is_some()
}

impl AuditedRequest {
    /// `None` where the audit log is not told of it. Of one that cannot be read it is told what that would have done.
    pub(crate) fn of(frame: &Frame<'_>, users: impl FnOnce() -> Vec<Identity>) -> Option<Box<Self>> {
        let opcode = frame.opcode?;
        let operation = operation(opcode)?;
        let (is_multi, operations) = match &Request::decode(opcode, &mut frame.body()) {
            Ok(Request::Multi(operations)) => (true, operations.iter().map(|it| Target::of(&it)).collect()),
            Ok(request) => (false, Vec::from([Some(Target::of(request)?)])),
            Err(_) => (opcode == Opcode::Multi, Vec::from([Some(Target::without_path(operation))])),
        };
        Some(Box::new(Self { users: users(), is_multi, operations }))
    }
}

/// What a reply shows.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Will not be answered any more.
    pub(crate) unanswered: Vec<AuditedRequest>,
    /// Is answered by it.
    pub(crate) asked: Option<Box<AuditedRequest>>,
}

impl Audited {
    /// Notes a request; false when its reply could not be told apart from another one's.
    pub(crate) fn note(&mut self, pending: AwaitedReply) -> bool {
        let same = |other: &AwaitedReply| other.xid == pending.xid && (pending.is_fast || other.is_fast);
        if (pending.is_fast || self.fast > 0) && self.pending.iter().any(same) {
            return false;
        }
        self.fast += usize::from(pending.is_fast);
        self.pending.push_back(pending);
        true
    }

    /// Takes out what is answered by a reply with this xid, behind those that it shows will not be answered.
    pub(crate) fn answered(&mut self, xid: i32) -> Option<Answered> {
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
                    unanswered.extend(pending.asked.map(|asked| *asked));
                }
            }
            unanswered.reverse();
        }
        Some(Answered { unanswered, asked: found.asked })
    }
}
