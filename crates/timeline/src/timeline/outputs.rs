//! What comes out of a timeline.

use crate::birth::{DiskId, Standing};
use crate::message::Message;
use crate::shared_log::{Delivery, Proposal};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{Entry, HistoryId, Pieces};

/// Something for another server.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerOutput {
    /// A message. It may be lost; the order is worth keeping, not more.
    Send {
        /// Whom it is for.
        to: u8,
        /// What is said. It becomes bytes where it is sent.
        message: Outgoing,
    },
    /// The newest snapshot, which is at this position of the log, and with it a message that goes to
    /// [`Timeline::receive_snapshot`] there. Say what became of it with [`Timeline::snapshot_sent`].
    Snapshot {
        /// Whom it is for.
        to: u8,
        /// Which snapshot.
        position: u64,
        /// The message.
        message: Vec<u8>,
    },
    /// Who belongs to the ensemble now: see [`crate::KnownDisks::members_are`]. It comes when that changes, and when a
    /// term begins: what has changed before is not told one by one.
    Members {
        /// These.
        members: Vec<u8>,
        /// Whoever was taken out, and where in the log last.
        removed: BTreeMap<u8, u64>,
    },
    /// This server leads in a new term, and what it leads with is committed here. If it has come back with
    /// another disk, a majority has elected it with that, so it has joined anew without our knowing.
    Leads(u8),
    /// This server has no history, and what it tells the others of that is this from now on: see
    /// [`Timeline::standing`].
    Founds(Standing),
    /// This server has a history from now on, and tells the others so. Those who founded it with this server have these
    /// disks: should one of them come with another, it has lost what it has promised, and is a stranger. Whoever joins
    /// knows nobody.
    Began {
        /// Its name.
        history: HistoryId,
        /// The founders, and their disks.
        founders: BTreeMap<u8, DiskId>,
    },
    /// There is another list of servers: connect to those in it, and be connected to by them.
    Servers,
    /// For the log of whoever runs the server: something about snapshots that servers give each other.
    Note(String),
}

/// What one server says to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Outgoing {
    /// About the timeline.
    Timeline(Message),
    /// About what stands on the timeline: see [`Timeline::send`].
    Service(Bytes),
}

impl Outgoing {
    /// Its bytes. Those of a Raft message share its entries.
    #[must_use]
    pub fn encode(&self) -> Pieces {
        match self {
            Self::Timeline(message) => message.encode(),
            Self::Service(message) => message.clone().into(),
        }
    }

    /// Whether it goes down the trees of the forest, or up.
    #[must_use]
    pub fn is_of_forest(&self) -> bool {
        matches!(self, Self::Timeline(Message::Forest(_)))
    }

    /// How many bytes may wait for the same server before this is dropped: what goes down trees waits for nobody who
    /// reads slowly, and is asked for by whoever lacks it. `None` for what is sent all the same.
    #[must_use]
    pub fn backlog_bytes_max(&self) -> Option<usize> {
        self.is_of_forest().then_some(stoa_forest::BACKLOG_BYTES_MAX)
    }

    /// What it says for the Raft group, if it is for that.
    #[must_use]
    pub fn of_group(&self) -> Option<&stoa_group::Message> {
        match self {
            Self::Timeline(Message::Group(message)) => Some(message),
            Self::Timeline(
                Message::Forward(_)
                | Message::Missing { .. }
                | Message::Forest(_)
                | Message::Tag { .. }
                | Message::Give(_)
                | Message::Gives(_)
                | Message::Given(_),
            )
            | Self::Service(_) => None,
        }
    }
}

/// From the timeline of one partition to that of another one of the same server. They arrive in the order in which
/// they were said.
#[derive(Debug)]
pub enum PartitionMessage {
    /// To the first partition: an entry for the log.
    Propose(Proposal),
    /// To the first partition: where does the log end?
    Ask(u64),
    /// From the first partition: something of the log.
    Deliver(Delivery),
}

/// What has come of a timeline, for whoever owns the state that it decides about.
#[derive(Debug)]
pub enum Output {
    /// These are decided: apply them, and say so with [`Timeline::applied`] and [`Timeline::compact`].
    Committed(Vec<Entry>),
    /// At the first of several partitions, see [`crate::Config::gives_log`]: the entries of the log of which its parts came
    /// before.
    Logged(Vec<Entry>),
    /// Who leads has changed, or what this server is.
    Leader,
    /// The members are others.
    Members,
    /// A question is answered: some barriers may have fallen.
    Answered,
    /// The snapshot with this number is of the state behind what came before.
    Snapshot(u64),
    /// A snapshot is wanted for a server that lags behind.
    SnapshotWanted,
    /// The log had no room for what was proposed.
    NoRoom,
    /// At a reader: somebody asks the ensemble in its place from now on, or nobody does, and what was asked before has no
    /// outcome that could be known here: see [`Timeline::forget_requests`](crate::Timeline::forget_requests).
    Attached(bool),
    /// At a reader: its parent says something about the state.
    ParentSays(Bytes),
    /// At the leader: prepare these requests, in their order. They follow one another without a gap.
    Asked {
        /// The contact server.
        server: u8,
        /// Its number for the first of them.
        first: u64,
        /// They.
        asked: Vec<Bytes>,
    },
}

/// What a message of another server has led to.
#[derive(Debug, Default)]
pub struct Received {
    /// At the leader: requests to prepare, with the number of the first.
    pub asked: Option<(u64, Vec<Bytes>)>,
    /// Why it was refused, for the log of whoever drives the server.
    pub refused: Option<String>,
}

/// Why a snapshot of another server is not taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// Its message is none.
    Bad,
    /// The group refuses it, and says why.
    Refused(String),
}

/// What follows when everything is applied that was committed before the present leader's time.
#[derive(Debug)]
pub struct Settled<C> {
    /// Who has asked what will have no outcome.
    pub lost: Vec<C>,
    /// This server is elected, and may begin to lead: see [`Timeline::begin_to_lead`].
    pub is_elected: bool,
}

/// What is to be taken out.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// For other servers.
    pub(super) peers: VecDeque<PeerOutput>,
    /// For other partitions of this one.
    pub(super) partitions: VecDeque<(u8, PartitionMessage)>,
}
