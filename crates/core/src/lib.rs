//! One server as a state machine: inputs in, outputs out.
//!
//! A [`Shard`] is one thread of a server: its clients, and the [`Replica`] of one partition. It opens no socket and
//! no file, reads no clock, starts no thread and draws no random number: whoever drives it (the server crate with
//! the real world, the simulator with its own) hands in bytes, time and completions, and takes out bytes, log
//! entries and snapshot slices:
//!
//! | in | out |
//! | --- | --- |
//! | [`Shard::connect`], [`Shard::receive`], [`Shard::disconnected`] | [`Shard::poll_output`], [`Shard::output`] |
//! | [`Shard::hear`] | [`Shard::poll_message`]: what is for the server's other threads |
//! | [`Replica::peer_message`], [`Replica::peer_connected`], [`Replica::peer_lost`] | [`Replica::poll_peer`] |
//! | [`Replica::appended`], [`Replica::append_refused`] | [`Replica::poll_append`] |
//! | [`Replica::snapshot_taken`], [`Replica::snapshot_finished`] | [`Replica::poll_snapshot`] |
//! | [`Shard::apply_more`] | [`Replica::has_more_to_apply`] |
//! | [`Shard::tick`] | [`Shard::next_wake_us`] |
//!
//! The way of a write: a frame is decoded, prepared against the state as it will be, and becomes an
//! update in the entry under construction; [`Replica::poll_append`] hands the entry to the log;
//! [`Replica::appended`] says that it is durable, and only then is it applied, are watches triggered
//! and is the reply written. A read runs at once against the applied state, unless its session has
//! a write under way: then it waits its turn (FIFO client order).
//!
//! Where the tree is divided over several partitions, the clients of a thread have a front there, which sends each
//! request where it has to go.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod backlog;
mod catch_up;
mod config;
mod controller;
mod coordination;
mod lacks;
mod lease;
mod levels;
mod liveness;
mod local;
mod lost;
mod meeting;
mod membership;
mod moves;
mod peer;
mod read_only;
mod remote_client;
mod replica;
mod second_site;
mod server_role;
mod session;
mod session_table;
mod shard;
mod shard_message;
mod side;
mod site_news;
mod site_policy;
mod site_requests;
mod sites;
mod snapshot;
mod stats;
mod status;
mod succession;
mod thread_front;

pub use backlog::{Backlog, BacklogWanted, BadBacklog};
pub use config::{Config, LocalSessions, Reaping, ServerPart, SiteConfig};
pub use controller::{MoveError, RecentMove};
pub use coordination::{Decision, Prepared, Quiesced, Step, StepKind};
pub use levels::{HeldBack, LevelRefusal, LevelStatus, SiteLevels};
pub use lost::{LostNotes, LostOperation, LostReader, LostUpdate, LostUpdates, LostWanted};
pub use meeting::{
    Greeting, SiteAnswer, answer_site, believed_hub, is_of_later_life, kept_of_site, knows_later_hub,
    upper_site,
};
pub use membership::reconfigured;
pub use moves::Moved;
pub use replica::{ReignRefusal, Replica, SITES_PATH};
pub use server_role::{Company, RoleCause, RoleChange, RoleKeeper, ServerRole};
pub use session::{LiveSession, Scope};
pub use shard::Shard;
pub use shard_message::ShardMessage;
pub use site_news::{SiteNews, TicketOutcome, TicketReply, Tried, Try, UnderWay};
pub use snapshot::SnapshotOutput;
pub use stats::{OpStats, Stats, Watchers};
pub use status::{OtherSite, Role, SiteCounts, SitesStatus, Status, TokenMark, TokenUse, Unshipped};
pub use stoa_extension::Limits as CallLimits;
pub use stoa_front::{
    Attached, AuditEvent, AuditOperation, AuditResult, Authentication, CloseReason, ConnectError, Connection,
    ConnectionId, DigestAlgorithm, FrontMessage, FrontStats, LeftWatch, Limits, Next, Output, Pipelined,
    SaslStep, SaslToken, ToClient, ToPartition, by_address, digest_id,
};
pub use stoa_group::{History, HistoryId, Mark, Pieces};
pub use stoa_partition::{
    FAILURE_PATH, GoesOn, Histogram, Item, Items, Now, Outcome, Part, ProgramLimits, ProgramStats,
    ProgramStep, Proposals, Ran, Recovered, Restore, Seen, Share, Sizes, State, StateLoader, Stopwatch,
};
pub use stoa_placement::{HINTS_PATH, Hint, Hints, LoadReport, MoveRefusal, Placement, Rates, SubtreeLoad};
pub use stoa_sites::{Kind as PolicyKind, Settings as PolicySettings};
pub use stoa_timeline::{
    Acquaintance, Append, BadBatch, BadMessage, Below, Delivery, DiskId, Disks, EntryId, ForestConfig,
    ForestCounts, ForestPlace, ForestServer, ForestShape, ForestStatus, ForestTree, GivenSnapshot, Givers,
    KnownDisk, KnownDisks, Lateness, Origin, Outgoing, ParentChoice, ParentOffer, ParentOutput, ParentTraits,
    PartitionMessage, PeerOutput, ReaderOutput, Relief, Repair, RepairCause, Slices, SnapshotCounts,
    Standing, Start, Starts, TakenOver, server_of, servers_of, timeline_of,
};
pub use stoa_tree::{
    Claim, KeptZxids, Levels, NewerLevel, SITE_MAX, SiteId, SiteSet, SiteStanding, Source, TokenRefusal,
};
pub use stoa_wire::Timestamp;
pub use succession::{SiteReach, Succession, SuccessionStep, has_nothing_to_tell, hub_is_back, is_torn_from};
