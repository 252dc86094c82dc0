//! Calls and their place on the wire.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_wire::request::encode;
use stoa_wire::{
    AddWatchMode, CreateMode, ErrorCode, MultiHeader, Opcode, RequestHeader, WatcherKind, begin_frame,
    direct_op, end_frame, path as znode_path, put,
};

use super::chroot::Chroot;
use super::reply::Shape;
use super::watches::{Pace, Slot, WatchId};
use crate::types::{Acl, Operation, ReadOperation};

/// A request as the client makes it. Paths are the client's, below its chroot. A version of `None`
/// stands for any version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol, and their types say the rest")]
pub enum Call {
    Create {
        path: String,
        data: Vec<u8>,
        acl: Vec<Acl>,
        mode: CreateMode,
        ttl_ms: Option<i64>,
        with_stat: bool,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Exists {
        path: String,
        watch: Option<WatchId>,
    },
    GetData {
        path: String,
        watch: Option<WatchId>,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: Option<i32>,
    },
    GetChildren {
        path: String,
        watch: Option<WatchId>,
        with_stat: bool,
    },
    Sync {
        path: String,
    },
    Check {
        path: String,
        version: Option<i32>,
    },
    Multi(Vec<Operation>),
    MultiRead(Vec<ReadOperation>),
    Reconfig {
        joining: Option<String>,
        leaving: Option<String>,
        new_members: Option<String>,
        current_config: i64,
    },
    CheckWatches {
        path: String,
        kind: WatcherKind,
    },
    RemoveWatches {
        path: String,
        kind: WatcherKind,
    },
    Auth {
        scheme: String,
        auth: Vec<u8>,
    },
    GetEphemerals {
        prefix: String,
    },
    GetAllChildrenNumber {
        path: String,
    },
    AddWatch {
        path: String,
        mode: AddWatchMode,
        watch: WatchId,
    },
    WhoAmI,
    Close,
    /// A read that waits for nothing else, or a watch whose events do not: those of AGORA (sections IV-D and
    /// IV-G). Servers and connections that know no fast reads take it for the call that it is.
    Fast(Box<Call>),
    /// A call that is meant for one session alone: in another one it fails with
    /// [`ErrorCode::SessionExpired`], and is not sent.
    Within {
        session: i64,
        call: Box<Call>,
    },
    /// A call for a program of the service, which says more of it later: that something has changed at a path. The
    /// watch is for that, and no server knows of it until it is set again after a reconnect.
    Telling {
        path: String,
        watch: WatchId,
        call: Box<Call>,
    },
}

const ANY_VERSION: i32 = -1;

fn number(version: Option<i32>) -> i32 {
    version.unwrap_or(ANY_VERSION)
}

impl Call {
    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Create { mode, with_stat, .. } => create_opcode(*mode, *with_stat),
            Self::Delete { .. } => Opcode::Delete,
            Self::Exists { .. } => Opcode::Exists,
            Self::GetData { .. } => Opcode::GetData,
            Self::SetData { .. } => Opcode::SetData,
            Self::GetAcl { .. } => Opcode::GetAcl,
            Self::SetAcl { .. } => Opcode::SetAcl,
            Self::GetChildren { with_stat: false, .. } => Opcode::GetChildren,
            Self::GetChildren { with_stat: true, .. } => Opcode::GetChildren2,
            Self::Sync { .. } => Opcode::Sync,
            Self::Check { .. } => Opcode::Check,
            Self::Multi(_) => Opcode::Multi,
            Self::MultiRead(_) => Opcode::MultiRead,
            Self::Reconfig { .. } => Opcode::Reconfig,
            Self::CheckWatches { .. } => Opcode::CheckWatches,
            Self::RemoveWatches { .. } => Opcode::RemoveWatches,
            Self::Auth { .. } => Opcode::Auth,
            Self::GetEphemerals { .. } => Opcode::GetEphemerals,
            Self::GetAllChildrenNumber { .. } => Opcode::GetAllChildrenNumber,
            Self::AddWatch { .. } => Opcode::AddWatch,
            Self::WhoAmI => Opcode::WhoAmI,
            Self::Close => Opcode::CloseSession,
            Self::Fast(call) | Self::Within { call, .. } | Self::Telling { call, .. } => call.opcode(),
        }
    }

    /// What the reply will look like.
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Create { .. } if self.opcode() == Opcode::Create => Shape::Path,
            Self::Create { .. } => Shape::PathStat,
            Self::Exists { .. } | Self::SetData { .. } | Self::SetAcl { .. } | Self::Check { .. } => {
                Shape::Stat
            }
            Self::GetData { .. } | Self::Reconfig { .. } => Shape::DataStat,
            Self::GetAcl { .. } => Shape::AclStat,
            Self::GetChildren { with_stat: false, .. } => Shape::Children,
            Self::GetChildren { with_stat: true, .. } => Shape::ChildrenStat,
            Self::Sync { .. } => Shape::Path,
            Self::Multi(_) => Shape::Results,
            Self::MultiRead(_) => Shape::Reads,
            Self::GetEphemerals { .. } => Shape::Paths,
            Self::GetAllChildrenNumber { .. } => Shape::Count,
            Self::WhoAmI => Shape::Identities,
            Self::Fast(call) | Self::Within { call, .. } | Self::Telling { call, .. } => call.shape(),
            Self::Delete { .. }
            | Self::CheckWatches { .. }
            | Self::RemoveWatches { .. }
            | Self::Auth { .. }
            | Self::AddWatch { .. }
            | Self::Close => Shape::Nothing,
        }
    }

    /// The watch that the call sets if it succeeds.
    pub(super) fn watch(&self) -> Option<(Slot, &str, WatchId)> {
        match self {
            Self::Exists { path, watch: Some(watch) } | Self::GetData { path, watch: Some(watch) } => {
                Some((Slot::Data, path, *watch))
            }
            Self::GetChildren { path, watch: Some(watch), .. } => Some((Slot::Child, path, *watch)),
            Self::AddWatch { path, mode, watch } => Some((Slot::of_mode(*mode), path, *watch)),
            Self::Telling { path, watch, .. } => Some((Slot::Data, path, *watch)),
            Self::Fast(call) | Self::Within { call, .. } => call.watch(),
            _ => None,
        }
    }

    /// The watch that the call has set, by the error code of its reply.
    pub(super) fn sets_watch(&self, err: i32) -> Option<(Slot, &str, WatchId)> {
        let (slot, path, watch) = self.watch()?;
        match err {
            0 => Some((slot, path, watch)),
            // It waits for the znode to be made.
            err if err == ErrorCode::NoNode as i32 && self.opcode() == Opcode::Exists => {
                Some((Slot::Exist, path, watch))
            }
            _ => None,
        }
    }

    /// How events of the watch are told that the call sets.
    pub(super) fn pace(&self) -> Pace {
        if matches!(self, Self::Fast(_)) { Pace::Fast } else { Pace::Ordered }
    }

    /// Whether it is not meant for this session.
    pub(super) fn is_for_other(&self, own: Option<i64>) -> bool {
        matches!(self, Self::Within { session, .. } if own != Some(*session))
    }

    /// The read, if it is a fast one.
    pub(super) fn fast_read(&self) -> Option<&Self> {
        let Self::Fast(call) = self else { return None };
        let reads = matches!(
            **call,
            Self::GetData { .. } | Self::Exists { .. } | Self::GetChildren { .. } | Self::GetAcl { .. }
        );
        reads.then_some(call)
    }

    /// Appends the whole frame.
    pub(super) fn encode(&self, xid: i32, chroot: &Chroot, out: &mut Vec<u8>) {
        let start = begin_frame(out);
        RequestHeader { xid, opcode: self.opcode() as i32 }.encode(out);
        self.encode_body(chroot, out);
        end_frame(out, start);
    }

    /// Appends the whole frame of a fast read.
    pub(super) fn encode_fast(&self, xid: i32, chroot: &Chroot, out: &mut Vec<u8>) {
        let start = begin_frame(out);
        RequestHeader { xid, opcode: direct_op::FAST }.encode(out);
        put::i32(out, self.opcode() as i32);
        self.encode_body(chroot, out);
        end_frame(out, start);
    }

    fn encode_body(&self, chroot: &Chroot, out: &mut Vec<u8>) {
        match self {
            Self::Create { path, data, acl, mode, ttl_ms, .. } => {
                encode_create(out, &chroot.full(path), data, acl, *mode, *ttl_ms);
            }
            Self::Delete { path, version } | Self::Check { path, version } => {
                encode::path_version(out, &chroot.full(path), number(*version));
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => {
                encode::path_watch(out, &chroot.full(path), watch.is_some());
            }
            Self::SetData { path, data, version } => {
                encode::set_data(out, &chroot.full(path), Some(data), number(*version));
            }
            Self::SetAcl { path, acl, version } => {
                let acl: Vec<_> = acl.iter().map(Acl::as_wire).collect();
                encode::set_acl(out, &chroot.full(path), &acl, number(*version));
            }
            Self::GetAcl { path }
            | Self::Sync { path }
            | Self::GetAllChildrenNumber { path }
            | Self::GetEphemerals { prefix: path } => encode::path(out, &chroot.full(path)),
            Self::Multi(operations) => {
                for operation in operations {
                    encode_operation(operation, chroot, out);
                }
                MultiHeader::END.encode(out);
            }
            Self::MultiRead(operations) => {
                for operation in operations {
                    encode_read(operation, chroot, out);
                }
                MultiHeader::END.encode(out);
            }
            Self::Reconfig { joining, leaving, new_members, current_config } => {
                for text in [joining, leaving, new_members] {
                    put::opt_buffer(out, text.as_ref().map(String::as_bytes));
                }
                put::i64(out, *current_config);
            }
            Self::CheckWatches { path, kind } | Self::RemoveWatches { path, kind } => {
                encode::path_number(out, &chroot.full(path), *kind as i32);
            }
            Self::AddWatch { path, mode, .. } => {
                encode::path_number(out, &chroot.full(path), *mode as i32);
            }
            Self::Auth { scheme, auth } => encode::auth(out, scheme, auth),
            Self::WhoAmI | Self::Close => {}
            Self::Fast(call) | Self::Within { call, .. } | Self::Telling { call, .. } => {
                call.encode_body(chroot, out);
            }
        }
    }

    /// Refuses what no server would take, or would answer by closing the connection.
    pub(super) fn check(&self) -> Result<(), ErrorCode> {
        let valid = match self {
            Self::Create { path, mode, ttl_ms, .. } => is_creatable(path, *mode, *ttl_ms),
            Self::Multi(operations) => operations.iter().all(|operation| match operation {
                Operation::Create { path, mode, ttl_ms, .. } => is_creatable(path, *mode, *ttl_ms),
                Operation::Delete { path, .. }
                | Operation::SetData { path, .. }
                | Operation::Check { path, .. } => znode_path::is_valid(path),
            }),
            Self::MultiRead(operations) => operations.iter().all(|operation| match operation {
                ReadOperation::GetData { path } | ReadOperation::GetChildren { path } => {
                    znode_path::is_valid(path)
                }
            }),
            Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::GetChildren { path, .. }
            | Self::Sync { path }
            | Self::Check { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. }
            | Self::GetEphemerals { prefix: path }
            | Self::GetAllChildrenNumber { path }
            | Self::AddWatch { path, .. } => znode_path::is_valid(path),
            Self::Reconfig { .. } | Self::Auth { .. } | Self::WhoAmI | Self::Close => true,
            Self::Fast(call) => {
                let is_watch = matches!(**call, Self::AddWatch { .. });
                (is_watch || self.fast_read().is_some()) && call.check().is_ok()
            }
            // The client itself has a part in the others.
            Self::Within { call, .. } => {
                let is_for_server = !matches!(
                    **call,
                    Self::Auth { .. }
                        | Self::Close
                        | Self::Fast(_)
                        | Self::RemoveWatches { .. }
                        | Self::Within { .. }
                        | Self::Telling { .. }
                );
                is_for_server && call.check().is_ok()
            }
            Self::Telling { path, call, .. } => {
                let is_create = matches!(**call, Self::Create { .. });
                is_create && znode_path::is_valid(path) && call.check().is_ok()
            }
        };
        if valid { Ok(()) } else { Err(ErrorCode::BadArguments) }
    }
}

/// A sequential znode gets a number appended, so its path may end in `/`. A TTL belongs to the TTL
/// modes and only to them.
fn is_creatable(path: &str, mode: CreateMode, ttl_ms: Option<i64>) -> bool {
    let parent_only = mode.is_sequential().then(|| path.strip_suffix('/')).flatten();
    let valid = match parent_only {
        Some(parent) => parent.is_empty() || znode_path::is_valid(parent),
        None => znode_path::is_valid(path),
    };
    valid && mode.is_ttl() == ttl_ms.is_some()
}

fn create_opcode(mode: CreateMode, with_stat: bool) -> Opcode {
    match mode {
        CreateMode::Container => Opcode::CreateContainer,
        CreateMode::PersistentTtl | CreateMode::PersistentSequentialTtl => Opcode::CreateTtl,
        _ if with_stat => Opcode::Create2,
        _ => Opcode::Create,
    }
}

fn encode_create(
    out: &mut Vec<u8>,
    path: &str,
    data: &[u8],
    acl: &[Acl],
    mode: CreateMode,
    ttl_ms: Option<i64>,
) {
    let acl: Vec<_> = acl.iter().map(Acl::as_wire).collect();
    encode::create(out, path, Some(data), &acl, mode as i32, ttl_ms);
}

fn operation_header(opcode: Opcode, out: &mut Vec<u8>) {
    MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(out);
}

fn encode_operation(operation: &Operation, chroot: &Chroot, out: &mut Vec<u8>) {
    match operation {
        Operation::Create { path, data, acl, mode, ttl_ms } => {
            operation_header(create_opcode(*mode, false), out);
            encode_create(out, &chroot.full(path), data, acl, *mode, *ttl_ms);
        }
        Operation::Delete { path, version } => {
            operation_header(Opcode::Delete, out);
            encode::path_version(out, &chroot.full(path), number(*version));
        }
        Operation::SetData { path, data, version } => {
            operation_header(Opcode::SetData, out);
            encode::set_data(out, &chroot.full(path), Some(data), number(*version));
        }
        Operation::Check { path, version } => {
            operation_header(Opcode::Check, out);
            encode::path_version(out, &chroot.full(path), number(*version));
        }
    }
}

fn encode_read(operation: &ReadOperation, chroot: &Chroot, out: &mut Vec<u8>) {
    let (opcode, path) = match operation {
        ReadOperation::GetData { path } => (Opcode::GetData, path),
        ReadOperation::GetChildren { path } => (Opcode::GetChildren, path),
    };
    operation_header(opcode, out);
    encode::path_watch(out, &chroot.full(path), false);
}
