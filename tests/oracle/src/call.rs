//! Requests as the stream holds them, and their bytes.
//!
//! A call is written down without anything that only one server knows: a name that a server made up
//! stands as "the nth one made", a zxid as "so many writes ago". So a stream is fixed by its seed,
//! may be cut to pieces, and still means the same to both servers.

use stoa_wire::{MultiHeader, Opcode, put, xid};

/// A string field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// These characters.
    Text(String),
    /// The name of the nth oldest sequential znode that has not been deleted since.
    Sequential(usize),
    /// A null string.
    Null,
}

impl Name {
    /// A literal name.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A zxid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// That of the write so many writes ago.
    WritesAgo(usize),
    /// This number.
    Fixed(i64),
}

/// An entry of an ACL; null strings are possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclEntry {
    /// Permission bits, valid or not.
    pub perms: i32,
    /// The scheme.
    pub scheme: Option<&'static str>,
    /// The identity.
    pub id: Option<&'static str>,
}

/// A request without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// create, create2, createContainer, createTTL.
    Create {
        /// One of the four.
        opcode: Opcode,
        /// Where.
        path: Name,
        /// The data or null.
        data: Option<Vec<u8>>,
        /// The ACL or null.
        acl: Option<Vec<AclEntry>>,
        /// The mode.
        flags: i32,
        /// Sent with createTTL only.
        ttl_ms: i64,
    },
    /// Requests of a path alone.
    Path {
        /// deleteContainer, getACL, sync, getEphemerals, getAllChildrenNumber.
        opcode: Opcode,
        /// The path.
        path: Name,
    },
    /// Reads that can set a watch.
    Watch {
        /// exists, getData, getChildren, getChildren2.
        opcode: Opcode,
        /// The path.
        path: Name,
        /// Whether to set it.
        watch: bool,
    },
    /// Requests of a path and a number.
    Number {
        /// delete, check, addWatch, checkWatches, removeWatches.
        opcode: Opcode,
        /// The path.
        path: Name,
        /// A version, mode or kind.
        number: i32,
    },
    /// setData.
    SetData {
        /// Where.
        path: Name,
        /// The data or null.
        data: Option<Vec<u8>>,
        /// The expected version.
        version: i32,
    },
    /// setACL.
    SetAcl {
        /// Where.
        path: Name,
        /// The ACL or null.
        acl: Option<Vec<AclEntry>>,
        /// The expected version.
        version: i32,
    },
    /// multi and multiRead.
    Multi {
        /// One of the two.
        opcode: Opcode,
        /// The operations, fit for a multi or not.
        ops: Vec<Op>,
    },
    /// setWatches with the first three lists, setWatches2 with five.
    SetWatches {
        /// One of the two.
        opcode: Opcode,
        /// What the client claims to have seen.
        seen: Moment,
        /// data, exist, child, persistent, persistent recursive.
        lists: [Vec<Name>; 5],
    },
    /// auth.
    Auth {
        /// The scheme.
        scheme: &'static str,
        /// The credentials.
        auth: &'static [u8],
    },
    /// ping, whoAmI, closeSession.
    Bare(Opcode),
    /// Any opcode with any body.
    Raw {
        /// Known or not.
        opcode: i32,
        /// Its body.
        body: Vec<u8>,
    },
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is asked.
    pub op: Op,
    /// Bytes missing at the end of the body.
    pub cut: usize,
    /// Bytes too many at the end of the body.
    pub extra: usize,
}

impl From<Op> for Call {
    fn from(op: Op) -> Self {
        Self { op, cut: 0, extra: 0 }
    }
}

/// Fills in what only one server knows.
pub trait Resolve {
    /// The path of the nth oldest sequential znode.
    fn sequential(&self, nth: usize) -> &str;
    /// The zxid of that moment.
    fn zxid(&self, moment: Moment) -> i64;
}

impl Op {
    /// The number in the request header.
    #[must_use]
    pub fn opcode(&self) -> i32 {
        match self {
            Self::Create { opcode, .. }
            | Self::Path { opcode, .. }
            | Self::Watch { opcode, .. }
            | Self::Number { opcode, .. }
            | Self::Multi { opcode, .. }
            | Self::SetWatches { opcode, .. }
            | Self::Bare(opcode) => *opcode as i32,
            Self::SetData { .. } => Opcode::SetData as i32,
            Self::SetAcl { .. } => Opcode::SetAcl as i32,
            Self::Auth { .. } => Opcode::Auth as i32,
            Self::Raw { opcode, .. } => *opcode,
        }
    }

    /// The name of the opcode, for reports.
    #[must_use]
    pub fn opcode_name(&self) -> String {
        Opcode::from_i32(self.opcode())
            .map_or_else(|| format!("opcode {}", self.opcode()), |opcode| opcode.name().to_owned())
    }

    /// The xid that clients send with this request, when it is not a number of their own.
    #[must_use]
    pub fn fixed_xid(&self) -> Option<i32> {
        match Opcode::from_i32(self.opcode())? {
            Opcode::Ping => Some(xid::PING),
            Opcode::Auth => Some(xid::AUTH),
            Opcode::SetWatches | Opcode::SetWatches2 => Some(xid::SET_WATCHES),
            _ => None,
        }
    }

    /// Whether the request must travel alone. Servers answer these outside the order of the other
    /// requests, close the connection, or write something that is no reply.
    #[must_use]
    pub fn travels_alone(&self) -> bool {
        match Opcode::from_i32(self.opcode()) {
            Some(opcode) => matches!(
                opcode,
                Opcode::Auth
                    | Opcode::Sasl
                    | Opcode::CloseSession
                    | Opcode::CreateSession
                    | Opcode::Check
                    | Opcode::Ping
            ),
            None => true,
        }
    }

    /// Whether the server may end the connection after its answer.
    #[must_use]
    pub fn may_end_connection(&self) -> bool {
        self.travels_alone() && self.opcode() != Opcode::Ping as i32
    }

    /// Whether nothing may follow in the same burst: ZooKeeper judges what follows by the state
    /// before or after, as it happens (see `differences`).
    #[must_use]
    pub fn ends_burst(&self) -> bool {
        match self {
            Self::SetAcl { .. } => true,
            Self::Create { opcode, flags, .. } => match opcode {
                Opcode::CreateContainer => *flags != 4,
                Opcode::CreateTtl => !matches!(flags, 5 | 6),
                _ => !matches!(flags, 0..=3),
            },
            Self::Multi { ops, .. } => ops.iter().any(Self::ends_burst),
            _ => false,
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>, known: &impl Resolve) {
        match self {
            Self::Create { opcode, path, data, acl, flags, ttl_ms } => {
                put_name(out, path, known);
                put::opt_buffer(out, data.as_deref());
                put_acl(out, acl.as_deref());
                put::i32(out, *flags);
                if *opcode == Opcode::CreateTtl {
                    put::i64(out, *ttl_ms);
                }
            }
            Self::Path { path, .. } => put_name(out, path, known),
            Self::Watch { path, watch, .. } => {
                put_name(out, path, known);
                put::bool(out, *watch);
            }
            Self::Number { path, number, .. } => {
                put_name(out, path, known);
                put::i32(out, *number);
            }
            Self::SetData { path, data, version } => {
                put_name(out, path, known);
                put::opt_buffer(out, data.as_deref());
                put::i32(out, *version);
            }
            Self::SetAcl { path, acl, version } => {
                put_name(out, path, known);
                put_acl(out, acl.as_deref());
                put::i32(out, *version);
            }
            Self::Multi { ops, .. } => {
                for op in ops {
                    MultiHeader { opcode: op.opcode(), done: false, err: -1 }.encode(out);
                    op.encode(out, known);
                }
                MultiHeader::END.encode(out);
            }
            Self::SetWatches { opcode, seen, lists } => {
                put::i64(out, known.zxid(*seen));
                let sent = if *opcode == Opcode::SetWatches2 { 5 } else { 3 };
                for list in &lists[..sent] {
                    put::len(out, list.len());
                    for path in list {
                        put_name(out, path, known);
                    }
                }
            }
            Self::Auth { scheme, auth } => {
                put::i32(out, 0);
                put::str(out, scheme);
                put::buffer(out, auth);
            }
            Self::Bare(_) => {}
            Self::Raw { body, .. } => out.extend_from_slice(body),
        }
    }
}

impl Call {
    /// Appends a whole frame.
    pub fn encode(&self, out: &mut Vec<u8>, xid: i32, known: &impl Resolve) {
        let start = stoa_wire::begin_frame(out);
        put::i32(out, xid);
        put::i32(out, self.op.opcode());
        let body = out.len();
        self.op.encode(out, known);
        let end = out.len().saturating_sub(self.cut).max(body);
        out.truncate(end);
        out.resize(end + self.extra, 0xa5);
        stoa_wire::end_frame(out, start);
    }
}

fn put_name(out: &mut Vec<u8>, name: &Name, known: &impl Resolve) {
    match name {
        Name::Text(text) => put::str(out, text),
        Name::Sequential(nth) => put::str(out, known.sequential(*nth)),
        Name::Null => put::i32(out, -1),
    }
}

fn put_acl(out: &mut Vec<u8>, acl: Option<&[AclEntry]>) {
    let Some(acl) = acl else {
        put::i32(out, -1);
        return;
    };
    put::len(out, acl.len());
    for entry in acl {
        put::i32(out, entry.perms);
        put::opt_buffer(out, entry.scheme.map(str::as_bytes));
        put::opt_buffer(out, entry.id.map(str::as_bytes));
    }
}
