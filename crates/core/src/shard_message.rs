//! What the threads of one server say to each other. It arrives, whole and in order between any two, but for
//! what is urgent.

use crate::connection::{CloseReason, ConnectionId};
use crate::coordination::{Decision, Prepared, Quiesced, Step};
use crate::pipelined::Pipelined;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use stoa_partition::State;
use stoa_placement::LoadReport;
use stoa_timeline::{EntryId, PartitionMessage};
use stoa_tree::{Contact, Identity, WatchMode};
use stoa_wire::Timestamp;

/// From one thread of a server to another one. They are moved through several queues, so what is large and rare is
/// in a box.
#[derive(Debug)]
pub enum ShardMessage {
    /// A client of the sender. The receiver answers to the client's name there.
    Client(ConnectionId, ToPartition),
    /// The same of another front's client: a write that follows one of the sender's.
    Forwarded(u8, ConnectionId, ToPartition),
    /// What a partition has for a client of the receiver.
    Answer(ConnectionId, ToClient),
    /// What became of sessions, up to this position of the first partition.
    Sessions {
        /// Everything that is not named is gone.
        is_all: bool,
        /// How far the first partition had come.
        position: u64,
        /// Who speaks for each session now; `None` when it has ended.
        changed: Vec<(i64, Option<Contact>)>,
    },
    /// From the first partition: the others may prepare requests in this term, or may not.
    MayPrepare {
        /// It; 0 when they may not.
        term: u64,
    },
    /// Quiesce for an operation of the sender's.
    Quiesce {
        /// The operation.
        op: u64,
        /// With nothing that is prepared and not applied.
        is_quiet: bool,
    },
    /// It is quiesced, or cannot.
    Quiesced(u64, Option<Box<Quiesced>>),
    /// Prepare a step of an operation.
    Prepare {
        /// The operation.
        op: u64,
        /// The request.
        asked: Bytes,
        /// Where its operation begins, if it is a multi: see [`stoa_wire::MultiOps::op_at`].
        place: Option<usize>,
        /// zxid of all parts.
        zxid: i64,
        /// Their time, milliseconds since the epoch.
        time_ms: i64,
        /// The step.
        step: Box<Step>,
    },
    /// A step is prepared, or refused.
    Prepared(u64, Box<Prepared>),
    /// The operation is done or undone.
    Decision(u64, Box<Decision>),
    /// About the log that all share.
    Timeline(PartitionMessage),
    /// From the first partition: the state is another server's.
    StateReplaced {
        /// The receiver's part of it.
        state: Box<State>,
        /// Its term.
        term: u64,
    },
    /// To the first partition: a snapshot is wanted.
    SnapshotWanted,
    /// To the first partition: since the last snapshot the sender has applied so many updates, and its state is so
    /// large.
    Grown {
        /// Updates.
        updates: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Says so when it has applied its timeline up to here.
    WatermarkWanted {
        /// The position.
        position: u64,
        /// Others have come to this zxid: whoever leads its timeline, and has nothing to do, writes that
        /// what follows is larger.
        clock: i64,
    },
    /// The sender has: all that the receiver's clients are told of it is on its way.
    Watermark {
        /// The position that it has applied.
        position: u64,
        /// All later updates on its timeline have a larger zxid.
        clock: i64,
    },
    /// From the first partition: say when all is applied that anybody was shown of the receiver's timeline up to now.
    CatchUp,
    /// It is; and what the state then rests on.
    CaughtUp(Box<Timestamp>),
    /// To the first partition: this zxid was seen.
    Clock(i64),
    /// The list of servers, as it stands on the first partition.
    Servers(String),
    /// The sender waits for the watches on what it takes.
    Follow {
        /// Where the receiver gives that.
        given: EntryId,
        /// Where the sender takes it.
        taken: EntryId,
    },
    /// To each front: what was given leaves with these watches of its clients.
    Leaves {
        /// Where it is taken.
        taken: EntryId,
        /// Whose, on what, and of which kind.
        watches: Vec<LeftWatch>,
    },
    /// From each front to the partition that takes it: the same, of clients that it now knows.
    Comes {
        /// Where it is taken.
        taken: EntryId,
        /// Whose, on what, and of which kind.
        watches: Vec<LeftWatch>,
    },
    /// The sender has taken over another server's state, in which other things live elsewhere: watches may
    /// have been left behind.
    Replaced,
    /// To the first partition of the leader: what is asked of the sender's.
    Load(Box<LoadReport>),
}

impl ShardMessage {
    /// Whether it may be heard before what the sender has said earlier, which may be thousands of requests. What
    /// follows from the steps of an operation over several partitions, and from watches that do not exist, is told
    /// to clients with timestamps, which wait for whatever they rest on. Words of what became of sessions stay in
    /// their order, those that end an operation on one among them: an older one must not be the last that is heard.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Quiesce { .. } | Self::Quiesced(..) | Self::Prepare { .. } | Self::Prepared(..) => true,
            Self::Timeline(_) | Self::StateReplaced { .. } | Self::Load(_) => true,
            Self::CatchUp | Self::CaughtUp(_) => true,
            Self::Decision(_, decision) => decision.session.is_none(),
            Self::Leaves { watches, .. } | Self::Comes { watches, .. } => watches.is_empty(),
            _ => false,
        }
    }
}

/// Who a client is, as far as its front knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Where it connects from.
    pub(crate) address: SocketAddr,
    /// What it has proved to its front: by its certificate, or as a SASL client.
    pub(crate) identities: Vec<Identity>,
}

/// From a client's front to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToPartition {
    /// Its first frame: to the first partition, which has the sessions.
    Open {
        /// Who it is.
        who: Introduction,
        /// The frame.
        frame: Box<[u8]>,
    },
    /// It has a session, and what it proves follows.
    Join {
        /// Who it is.
        who: Introduction,
        /// The session.
        session: Attached,
    },
    /// A frame with what it proves to be, which somebody else answers.
    Identify(Box<[u8]>),
    /// What it has proved to its front.
    Proven(Vec<Identity>),
    /// A request, and what the client has seen.
    Request {
        /// What it has seen, if the partition may not know it.
        seen: Option<Timestamp>,
        /// The version of the table by which it comes here.
        placed: u64,
        /// The frame.
        frame: Box<[u8]>,
        /// It is a write before which others of its client are not answered yet.
        pipelined: Option<Box<Pipelined>>,
    },
    /// To the first partition: a side connection to this session's.
    Attach {
        /// The session.
        session: i64,
        /// Proves that it is the client's.
        password: Box<[u8]>,
    },
    /// The side connection is gone.
    Detach,
    /// It has said something, whatever it was.
    Heard,
    /// It is gone.
    Leave,
}

/// A session that has come to a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The session.
    pub session: i64,
    /// Its timeout, milliseconds.
    pub timeout_ms: i32,
    /// The request with which it came.
    pub opening: u64,
    /// Where on the first partition's timeline that stands.
    pub since: u64,
    /// It is lent, or none: the server only reads.
    pub read_only: bool,
    /// It has acknowledged programs: what it reads may be a write.
    pub programs: bool,
}

/// From a partition to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// The session is on its connection.
    Attached(Attached),
    /// Frames for it.
    Frames {
        /// How many of them answer something.
        answers: u32,
        /// The frames.
        bytes: Vec<u8>,
        /// What the partition had seen.
        stamp: Timestamp,
    },
    /// Its next answer is to an operation of which these partitions, a bit for each, have a part: it is told when
    /// all of them have come as far on this server. Else somebody who is told by the client might ask one that
    /// has not.
    Participants(u64),
    /// Where the last of some writes stands that were pipelined, unless this server loses the lead, and what goes with
    /// the next one therefore. All of them have been prepared.
    Prepared(Box<Pipelined>),
    /// A request that has to be asked again: by the table that it came by it does not belong here, or it was
    /// asked too early. All later ones come back as well.
    WrongPartition {
        /// The table's version here.
        version: u64,
        /// The request.
        frame: Box<[u8]>,
        /// What the partition had seen.
        stamp: Timestamp,
    },
    /// Its connection is to be closed.
    Closed(CloseReason),
}

/// A watch of a client, which its front knows by this name.
pub type LeftWatch = (ConnectionId, String, WatchMode);
