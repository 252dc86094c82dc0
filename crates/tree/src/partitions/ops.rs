//! The kinds of updates that are there because a tree is one of several.

use crate::encoding::{BAD_NAME, CreateOp, Decoder, Reason, put_bytes, put_len, put_path};
use crate::partitions::placed::Changes;
use crate::session::PARTITIONS_MAX;
use crate::sites::{NO_SITE, SITE_MAX, SiteId};
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::EventKind;

// Tags; the others are those of `crate::update`.
const ADOPT: u8 = 10;
const DISOWN: u8 = 11;
const CREATE_AT: u8 = 12;
const DELETE_AT: u8 = 13;
const VISIT: u8 = 14;
const REMOTE_SESSION: u8 = 15;
const VISITS: u8 = 16;
const GIVE: u8 = 17;
const TAKE: u8 = 18;
const PLACE: u8 = 19;
const ADOPT_OF: u8 = 20;
const REMOTE_SESSION_AT: u8 = 21;
const MARK: u8 = 22;
const UNMARK: u8 = 23;

const SESSION_BYTES: usize = size_of::<i64>();

/// One change that a tree by itself does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionOp<'a> {
    /// The parent's side of a create at a cut.
    Adopt { path: &'a str, parent_cversion: i32 },
    /// The same of an ephemeral, with its session, where there are sites.
    AdoptOf { path: &'a str, parent_cversion: i32, owner: i64 },
    /// The parent's side of a delete at a cut.
    Disown { path: &'a str },
    /// A create of a znode whose parent lives on another partition.
    CreateAt(CreateOp<'a>),
    /// A delete of a znode whose parent lives on another partition.
    DeleteAt { path: &'a str },
    /// The update's session owns ephemerals on that partition.
    Visit { partition: u8 },
    /// The same of other sessions (their ids, little-endian).
    Visits { partition: u8, sessions: &'a [[u8; SESSION_BYTES]] },
    /// The update's session, which lives on the first partition, is about to own ephemerals here; with its home, if there
    /// are sites.
    RemoteSession { home: SiteId },
    /// A subtree goes to another partition. The digest is that of what goes.
    Give { path: &'a str, digest: u64 },
    /// A subtree comes from another partition: see [`crate::partitions::content`].
    Take { path: &'a str, content: &'a [u8] },
    /// The table of what lives elsewhere than the rule says is changed.
    Place { changes: Changes<'a> },
    /// Where there are sites: a site holds a znode below which something was moved by itself, and which may live elsewhere.
    Mark { path: &'a str, holder: SiteId },
    /// Such a znode is deleted.
    Unmark { path: &'a str },
}

impl<'a> PartitionOp<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Adopt { path, parent_cversion } => {
                put_path(out, ADOPT, path);
                out.extend_from_slice(&parent_cversion.to_le_bytes());
            }
            Self::AdoptOf { path, parent_cversion, owner } => {
                put_path(out, ADOPT_OF, path);
                out.extend_from_slice(&parent_cversion.to_le_bytes());
                out.extend_from_slice(&owner.to_le_bytes());
            }
            Self::Disown { path } => put_path(out, DISOWN, path),
            Self::CreateAt(create) => create.encode(CREATE_AT, &[], out),
            Self::DeleteAt { path } => put_path(out, DELETE_AT, path),
            Self::Visit { partition } => out.extend_from_slice(&[VISIT, partition]),
            Self::Visits { partition, sessions } => {
                out.extend_from_slice(&[VISITS, partition]);
                put_len(out, sessions.len());
                out.extend_from_slice(sessions.as_flattened());
            }
            Self::RemoteSession { home: NO_SITE } => out.push(REMOTE_SESSION),
            Self::RemoteSession { home } => out.extend_from_slice(&[REMOTE_SESSION_AT, home]),
            Self::Give { path, digest } => {
                put_path(out, GIVE, path);
                out.extend_from_slice(&digest.to_le_bytes());
            }
            Self::Take { path, content } => {
                put_path(out, TAKE, path);
                put_bytes(out, content);
            }
            Self::Place { changes } => {
                out.push(PLACE);
                put_bytes(out, changes.bytes());
            }
            Self::Mark { path, holder } => {
                put_path(out, MARK, path);
                out.push(holder);
            }
            Self::Unmark { path } => put_path(out, UNMARK, path),
        }
    }

    /// Reads one whose tag has been read.
    pub(crate) fn decode(tag: u8, decoder: &mut Decoder<'a>, session: i64) -> Result<Self, Reason> {
        Ok(match tag {
            ADOPT => Self::Adopt { path: decoder.path_of_child()?, parent_cversion: decoder.i32()? },
            ADOPT_OF => Self::AdoptOf {
                path: decoder.path_of_child()?,
                parent_cversion: decoder.i32()?,
                owner: decoder.i64()?,
            },
            DISOWN => Self::Disown { path: decoder.path()? },
            CREATE_AT => Self::CreateAt(decoder.create(session, whole_path, |_| Ok(()))?.0),
            DELETE_AT => Self::DeleteAt { path: decoder.path()? },
            VISIT => Self::Visit { partition: partition(decoder)? },
            VISITS => {
                let partition = partition(decoder)?;
                let len = decoder.len()?.saturating_mul(SESSION_BYTES);
                let (sessions, _) = decoder.take(len)?.as_chunks();
                Self::Visits { partition, sessions }
            }
            REMOTE_SESSION => Self::RemoteSession { home: NO_SITE },
            REMOTE_SESSION_AT => Self::RemoteSession { home: site(decoder)? },
            GIVE => Self::Give { path: whole_path(decoder)?, digest: u64::from_le_bytes(decoder.array()?) },
            TAKE => Self::Take { path: whole_path(decoder)?, content: decoder.bytes()? },
            PLACE => Self::Place { changes: Changes::decode(decoder.bytes()?)? },
            MARK => Self::Mark { path: whole_path(decoder)?, holder: site(decoder)? },
            UNMARK => Self::Unmark { path: whole_path(decoder)? },
            _ => return Err("it has an operation of an unknown kind"),
        })
    }

    /// What it does to a znode that lives here.
    pub(crate) fn change(&self) -> Option<(EventKind, &'a str)> {
        match *self {
            Self::CreateAt(create) => Some((EventKind::Created, create.path)),
            Self::DeleteAt { path } => Some((EventKind::Deleted, path)),
            _ => None,
        }
    }

    /// The znode that it creates, with its data if it lives here.
    pub(crate) fn created(&self) -> Option<(&'a str, Option<Option<&'a [u8]>>)> {
        match *self {
            Self::Adopt { path, .. } | Self::AdoptOf { path, .. } => Some((path, None)),
            Self::CreateAt(create) => Some((create.path, Some(create.data))),
            _ => None,
        }
    }
}

/// The path of a znode whose parent need not be here, so that nothing else shows that it is one.
fn whole_path<'a>(decoder: &mut Decoder<'a>) -> Result<&'a str, Reason> {
    let path = decoder.path()?;
    let names = path.strip_prefix('/').ok_or("a path does not begin at the root")?;
    if names.split('/').any(str::is_empty) { Err(BAD_NAME) } else { Ok(path) }
}

fn site(decoder: &mut Decoder<'_>) -> Result<SiteId, Reason> {
    match decoder.u8()? {
        site @ 1..=SITE_MAX => Ok(site),
        _ => Err("a site is out of range"),
    }
}

fn partition(decoder: &mut Decoder<'_>) -> Result<u8, Reason> {
    match decoder.u8()? {
        partition @ ..PARTITIONS_MAX => Ok(partition),
        _ => Err("a partition is out of range"),
    }
}

impl fmt::Display for PartitionOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Adopt { path, .. } => write!(f, "adopt {path:?}"),
            Self::AdoptOf { path, owner, .. } => write!(f, "adopt {path:?} owner=0x{owner:x}"),
            Self::Disown { path } => write!(f, "disown {path:?}"),
            Self::CreateAt(create) => write!(f, "create_at {create}"),
            Self::DeleteAt { path } => write!(f, "delete_at {path:?}"),
            Self::Visit { partition } => write!(f, "visit partition={partition}"),
            Self::Visits { partition, sessions } => {
                write!(f, "visits partition={partition} sessions={}", sessions.len())
            }
            Self::RemoteSession { .. } => f.write_str("remote_session"),
            Self::Give { path, .. } => write!(f, "give {path:?}"),
            Self::Take { path, content } => write!(f, "take {path:?} bytes={}", content.len()),
            Self::Place { changes } => write!(f, "place{changes}"),
            Self::Mark { path, holder } => write!(f, "mark {path:?} holder={holder}"),
            Self::Unmark { path } => write!(f, "unmark {path:?}"),
        }
    }
}
