//! What a server replicates, as opaque bytes: no znodes, no sessions, no sockets, no clocks.
//!
//! A [`Timeline`] is one partition's end of the replicated log that all partitions of a server share. With the
//! first partition stands the log itself ([`shared_log`]): the Raft group, its records, and what the partitions
//! propose. Whoever drives a timeline hands in time, messages, proposals and what was stored, and takes out:
//!
//! | in | out |
//! | --- | --- |
//! | [`Timeline::tick`], [`Timeline::receive`], [`Timeline::peer_connected`], [`Timeline::peer_lost`] | [`Timeline::poll_peer`]: what is for other servers, whole: it becomes bytes where it is sent |
//! | [`Timeline::propose`], [`Timeline::hear`] | [`Timeline::poll_message`]: what is for other partitions of this server |
//! | [`Timeline::stored`], [`Timeline::refused`] | [`Timeline::poll_append`]: records for the disk |
//! | [`Timeline::ask`], [`Timeline::barrier`], [`Timeline::applied`] | [`Timeline::poll`]: what is decided, who leads, what the leader is to prepare |
//!
//! Readers are servers that belong to no group, and follow one of those that do ([`readers`]):
//!
//! | in | out |
//! | --- | --- |
//! | [`Timeline::reader_connected`], [`Timeline::reader_says`] | [`Timeline::poll_reader`] |
//! | [`Timeline::parent_connected`], [`Timeline::parent_says`] | [`Timeline::poll_parent`] |
//!
//! **Requests find their outcomes by way of the timeline alone** ([`requests`]): a contact server numbers what it
//! asks, the leader takes each number once, and what is decided carries it.
//!
//! What is ordered here are updates that a leader has prepared. A service that orders requests and prepares them
//! afterwards, on every server, proposes requests instead: nothing here looks into what is proposed.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod barriers;
mod birth;
mod delegation;
mod forest;
mod forest_status;
mod give_message;
mod giving;
mod known_disks;
mod message;
mod parents;
mod peers;
mod progress;
mod reader_message;
mod readers;
mod requests;
mod shared_log;
mod starts;
mod timeline;

pub use barriers::Barrier;
pub use birth::{DiskId, Standing};
pub use delegation::{Givers, Relief};
pub use forest::ForestConfig;
pub use forest_status::{
    ForestCounts, ForestPlace, ForestServer, ForestShape, ForestStatus, ForestTree, Lateness, Repair,
    RepairCause,
};
pub use give_message::{GiveOrder, GiveReport, GiverState, Obstacle};
pub use known_disks::{Acquaintance, Disks, KnownDisk, KnownDisks};
pub use message::{BadMessage, Forward, Message};
pub use parents::{ParentChoice, ParentOffer};
pub use peers::{Wanted, member_of, server_of, servers_of};
pub use progress::Lead;
pub use reader_message::{CHAIN_MAX, Down, Up};
pub use readers::{Below, ParentOutput, ReaderOutput};
pub use requests::Origin;
pub use shared_log::{
    Append, Attachment, BadBatch, Batches, Delivery, EntryId, OnDisk, ParentTraits, Proposal, Slices,
    SnapshotHead, TakenOver, timeline_of,
};
pub use starts::{Start, Starts};
pub use timeline::{
    Config, GivenSnapshot, NotTaken, Outgoing, Output, PartitionMessage, PeerOutput, Received, Settled,
    SnapshotCounts, Timeline,
};
