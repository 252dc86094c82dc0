//! The replicated state of a partition, and the watches that a server keeps on it.
//!
//! A request becomes an [`Update`] in [`Tree::prepare`], at the leader, against the state as it
//! will be once everything proposed before has been applied. [`Tree::apply`] turns an update into
//! state, results and watch events, on every server. What a request may do, which error wins when
//! several apply, and what is counted follow Apache ZooKeeper 3.9.
//!
//! ```text
//! request --prepare--> update (bytes) --log--> apply --> state, OpResult, Change --> Watches
//!            |  ^                                |
//!            v  | what is proposed               v
//!          Overlay <----- what was applied ------+
//! ```
//!
//! A tree may be one of several that are one together, each of a partition, with a log of its own. What
//! concerns several of them at once is prepared with [`Tree::part_begin`] and what follows there: also
//! that a subtree moves from one to another.
//!
//! Pure: no clock, no randomness, no I/O, no threads. Equal updates give equal states, which
//! [`Tree::digest`] proves.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod acl;
mod address;
mod apply;
mod blob;
mod digest;
mod effects;
mod encoding;
mod going;
mod hash;
mod index;
mod load;
mod node;
mod observer;
mod operation;
mod part;
mod partitions;
mod prepare;
mod projection;
mod proposed;
mod proposed_view;
mod quota;
mod quota_count;
mod read;
mod records;
mod reserved;
mod session;
mod sites;
mod slab;
mod snapshot;
mod tree;
mod update;
mod walk;
mod watch;

pub use acl::AclView;
pub use load::Loader;
pub use node::{TTL_MS_MAX, ZnodeKind};
pub use observer::{Change, Observer, OpResult, SoftQuota};
pub use operation::Operation;
pub use part::{Mark, Part};
pub use partitions::{MovedWatch, Moving, PLACED_MAX, PLACED_PATH_BYTES_MAX, PartOp, PartResult, Placed};
pub use prepare::{multi_op, writes_programs};
pub use proposed_view::ProposedZnode;
pub use quota::QuotaSums;
pub use read::Znode;
pub use records::LoadError;
pub use reserved::{CONFIG_PATH, PROGRAMS};
pub use session::{Contact, SessionInfo, is_same_password};
pub use sites::{
    CarriedOut, Claim, KeptZxids, LackedTokens, Levels, NewerLevel, Places, SITE_MAX, SiteId, SiteSet,
    SiteStanding, SiteStep, Source, Streams, Ticket, TokenRefusal, Waiting, site_of_zxid, source_of_zxid,
    tokens_of, whole_update,
};
pub use tree::{Found, Tree};
pub use update::{CorruptUpdate, Update, Updates};
pub use watch::{WatchMode, WatchSummary, WatcherId, Watches};

use alloc::string::String;
use core::fmt;
use stoa_wire::ErrorCode;

/// How a tree behaves. All servers of an ensemble should agree on everything but
/// `levels` and `hash_seed`;
/// only preparing depends on it, so that a change takes effect with the next leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Refuse writes that would exceed a hard limit (setting `enforceQuota`).
    pub enforce_quota: bool,
    /// Permit everything to everybody (setting `skipACL`).
    pub skip_acl: bool,
    /// Allow TTL znodes (setting `extendedTypesEnabled`).
    pub extended_types: bool,
    /// Allow the scheme `sasl` in ACLs: whether such identities can be had here.
    pub sasl_scheme: bool,
    /// Allow the scheme `x509` in ACLs: whether such identities can be had here.
    pub x509_scheme: bool,
    /// Containers that never had a child are deleted after this; 0 keeps them (setting
    /// `znode.container.maxNeverUsedIntervalMs`).
    pub unused_container_ms: i64,
    /// Which feature levels of several sites this server can work at; servers of different releases have others.
    pub levels: Levels,
    /// Keeps clients from choosing paths that collide in the index. Random on a real server; it
    /// changes nothing that can be seen.
    pub hash_seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enforce_quota: false,
            skip_acl: false,
            extended_types: true,
            sasl_scheme: false,
            x509_scheme: false,
            unused_container_ms: 0,
            levels: Levels::OWN,
            hash_seed: 0,
        }
    }
}

/// What somebody has proved to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `ip`, `digest`, `sasl`, `x509`, or `super`, which may do everything.
    pub scheme: String,
    /// The identity within the scheme.
    pub id: String,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The session; 0 is the server itself.
    pub session: i64,
    /// What the session's connection has proved to be, its address included.
    pub identities: &'a [Identity],
}

impl Caller<'_> {
    /// The server itself, which may do everything.
    pub const SERVER: Caller<'static> = Caller { session: 0, identities: &[] };

    /// The session of who reacts to an event, in the name of somebody who may be gone: it is none, so it can
    /// own nothing, and unlike the server's it may do no more than its identities.
    pub const REACTION: i64 = -1;
}

/// When and as what an update takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Larger than that of every update proposed before.
    pub zxid: i64,
    /// Milliseconds since the epoch.
    pub time_ms: i64,
}

/// Why a request became no update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The answer is this error.
    Error(ErrorCode),
    /// The answer is `count` error results: `Ok` for those before `failed`, `code` for that one,
    /// `RuntimeInconsistency` for those after it.
    Multi {
        /// Number of operations in the multi.
        count: usize,
        /// Index of the one that failed.
        failed: usize,
        /// How it failed.
        code: ErrorCode,
    },
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::Error(code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(code) => code.fmt(f),
            Self::Multi { count, failed, code } => {
                write!(f, "operation {} of {count} in the multi failed: {code}", failed + 1)
            }
        }
    }
}

impl core::error::Error for Refusal {}
