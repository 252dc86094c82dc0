//! What a request leads to: the body of its reply, and events.

use super::tree::Entry;
use stoa_wire::{
    Acl, AclList, DecodeError, ErrorCode, EventKind, MultiResult, MultiResults, Opcode, Reader, Stat,
};

/// A watch event on its way to one connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    /// What happened.
    pub(crate) kind: EventKind,
    /// To which znode.
    pub(crate) path: String,
    /// By which update; -1 when setWatches replays it.
    pub(crate) zxid: i64,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The error in the reply's header.
    Error(ErrorCode),
    /// A multi of `count` operations of which one failed: the errors stand in the body.
    Multi {
        /// How many operations there are.
        count: usize,
        /// Which one failed.
        failed: usize,
        /// Why.
        code: ErrorCode,
    },
}

/// The result of one operation of a multi or multiRead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol")]
pub(crate) enum OpOutcome {
    Created { path: String, stat: Option<Stat> },
    Deleted,
    DataSet(Stat),
    Checked,
    Data(Option<Vec<u8>>, Stat),
    Children(Vec<String>),
    Error(i32),
}

/// The body of a reply without error. Ephemerals come in any order and are sorted, children in theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol")]
pub(crate) enum Body {
    #[default]
    Empty,
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Data(Option<Vec<u8>>, Stat),
    Names(Vec<String>),
    Children(Vec<String>, Stat),
    Acl(Vec<Entry>, Stat),
    Number(i32),
    Identities(Vec<(String, String)>),
    Results(Vec<OpOutcome>),
}

impl Body {
    /// Reads the body of a reply to `opcode`.
    ///
    /// # Errors
    /// When it is cut short, has an unknown value, or goes on behind its end.
    pub(crate) fn decode(opcode: Opcode, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let body = match opcode {
            Opcode::Create | Opcode::Sync => Self::Path(r.str()?.into()),
            Opcode::Create2 | Opcode::CreateTtl | Opcode::CreateContainer => {
                Self::PathStat(r.str()?.into(), Stat::decode(&mut r)?)
            }
            Opcode::SetData | Opcode::SetAcl | Opcode::Exists => Self::Stat(Stat::decode(&mut r)?),
            Opcode::GetData => Self::Data(r.buffer()?.map(Into::into), Stat::decode(&mut r)?),
            Opcode::GetChildren => Self::Names(names(&mut r)?),
            Opcode::GetEphemerals => {
                let mut paths = names(&mut r)?;
                paths.sort_unstable();
                Self::Names(paths)
            }
            Opcode::GetChildren2 => Self::Children(names(&mut r)?, Stat::decode(&mut r)?),
            Opcode::GetAcl => {
                let list = AclList::decode(&mut r)?;
                let entry =
                    |acl: Acl<'_>| Entry { perms: acl.perms, scheme: acl.scheme.into(), id: acl.id.into() };
                Self::Acl(list.iter().map(entry).collect(), Stat::decode(&mut r)?)
            }
            Opcode::GetAllChildrenNumber | Opcode::AddWatch => Self::Number(r.i32()?),
            Opcode::WhoAmI => {
                let count = r.count(8)?;
                let identities = (0..count).map(|_| Ok((r.str()?.into(), r.str()?.into())));
                Self::Identities(identities.collect::<Result<_, DecodeError>>()?)
            }
            Opcode::Multi | Opcode::MultiRead => {
                Self::Results(MultiResults::decode(&mut r)?.into_iter().map(OpOutcome::from).collect())
            }
            _ => Self::Empty,
        };
        if r.rest().is_empty() { Ok(body) } else { Err(DecodeError::BadLength) }
    }

    /// The results of a multi that failed.
    pub(crate) fn failed_multi(count: usize, failed: usize, code: ErrorCode) -> Self {
        let error = |op: usize| match op.cmp(&failed) {
            std::cmp::Ordering::Less => ErrorCode::Ok,
            std::cmp::Ordering::Equal => code,
            std::cmp::Ordering::Greater => ErrorCode::RuntimeInconsistency,
        };
        Self::Results((0..count).map(|op| OpOutcome::Error(error(op) as i32)).collect())
    }
}

fn names(r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = r.count(4)?;
    (0..count).map(|_| r.str().map(String::from)).collect()
}

impl From<MultiResult<'_>> for OpOutcome {
    fn from(result: MultiResult<'_>) -> Self {
        match result {
            MultiResult::Created { path, stat } => Self::Created { path: path.into(), stat },
            MultiResult::Deleted => Self::Deleted,
            MultiResult::DataSet { stat } => Self::DataSet(stat),
            MultiResult::Checked => Self::Checked,
            MultiResult::Data { data, stat } => Self::Data(data.map(Into::into), stat),
            MultiResult::Children(names) => Self::Children(names.into_iter().map(String::from).collect()),
            MultiResult::Error(err) => Self::Error(err),
        }
    }
}
