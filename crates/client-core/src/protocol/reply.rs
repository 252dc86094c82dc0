//! Replies.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_wire::{AclList, DecodeError, ErrorCode, MultiResult, MultiResults, Reader, Stat};

use super::chroot::Chroot;
use crate::types::{Acl, Identity, OperationResult, ReadResult};

/// What a call answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol, and their types say the rest")]
pub enum Reply {
    Nothing,
    Path(String),
    Created { path: String, stat: Stat },
    Stat(Stat),
    Data { data: Vec<u8>, stat: Stat },
    Acl { acl: Vec<Acl>, stat: Stat },
    Children { names: Vec<String>, stat: Option<Stat> },
    Results(Vec<OperationResult>),
    Reads(Vec<ReadResult>),
    Count(i32),
    Paths(Vec<String>),
    Identities(Vec<Identity>),
}

/// Which [`Reply`] to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Nothing,
    Path,
    PathStat,
    Stat,
    DataStat,
    AclStat,
    Children,
    ChildrenStat,
    Results,
    Reads,
    Count,
    Paths,
    Identities,
}

impl Shape {
    /// Reads the body of a reply.
    pub(super) fn decode(self, r: &mut Reader<'_>, chroot: &Chroot) -> Result<Reply, DecodeError> {
        Ok(match self {
            Self::Nothing => Reply::Nothing,
            Self::Path => Reply::Path(chroot.local(r.str()?).to_owned()),
            Self::PathStat => {
                Reply::Created { path: chroot.local(r.str()?).to_owned(), stat: Stat::decode(r)? }
            }
            Self::Stat => Reply::Stat(Stat::decode(r)?),
            Self::DataStat => {
                Reply::Data { data: r.buffer()?.unwrap_or_default().to_owned(), stat: Stat::decode(r)? }
            }
            Self::AclStat => {
                let list = AclList::decode(r)?;
                let acl = list.iter().map(|acl| Acl::new(acl.perms, acl.scheme, acl.id)).collect();
                Reply::Acl { acl, stat: Stat::decode(r)? }
            }
            Self::Children => Reply::Children { names: strings(r)?, stat: None },
            Self::ChildrenStat => Reply::Children { names: strings(r)?, stat: Some(Stat::decode(r)?) },
            Self::Results => {
                let results = MultiResults::decode(r)?;
                Reply::Results(results.into_iter().map(|result| operation_result(result, chroot)).collect())
            }
            Self::Reads => {
                Reply::Reads(MultiResults::decode(r)?.into_iter().map(read_result).collect::<Result<_, _>>()?)
            }
            Self::Count => Reply::Count(r.i32()?),
            Self::Paths => {
                Reply::Paths(strings(r)?.iter().map(|path| chroot.local(path).to_owned()).collect())
            }
            Self::Identities => {
                let count = r.count(8)?;
                let identity = |_| Ok(Identity { scheme: r.str()?.to_owned(), user: r.str()?.to_owned() });
                Reply::Identities((0..count).map(identity).collect::<Result<_, DecodeError>>()?)
            }
        })
    }
}

fn strings(r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = r.count(4)?;
    (0..count).map(|_| r.str().map(str::to_owned)).collect()
}

/// The error with this number. A server of the future may have others.
pub(super) fn error_code(number: i32) -> ErrorCode {
    ErrorCode::from_i32(number).unwrap_or(ErrorCode::SystemError)
}

fn operation_result(result: MultiResult<'_>, chroot: &Chroot) -> OperationResult {
    match result {
        MultiResult::Created { path, stat } => {
            OperationResult::Created { path: chroot.local(path).to_owned(), stat }
        }
        MultiResult::Deleted => OperationResult::Deleted,
        MultiResult::DataSet { stat } => OperationResult::DataSet { stat },
        MultiResult::Checked => OperationResult::Checked,
        MultiResult::Error(number) => OperationResult::Failed(error_code(number)),
        // A write cannot be answered with what a read answers.
        MultiResult::Data { .. } | MultiResult::Children(_) => {
            OperationResult::Failed(ErrorCode::MarshallingError)
        }
    }
}

fn read_result(result: MultiResult<'_>) -> Result<ReadResult, DecodeError> {
    Ok(match result {
        MultiResult::Data { data, stat } => {
            ReadResult::Data { data: data.unwrap_or_default().to_owned(), stat }
        }
        MultiResult::Children(names) => ReadResult::Children(names.into_iter().map(str::to_owned).collect()),
        MultiResult::Error(number) => ReadResult::Failed(error_code(number)),
        _ => return Err(DecodeError::BadValue("type of a multiRead result")),
    })
}
