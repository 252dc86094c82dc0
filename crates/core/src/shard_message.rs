//! What the threads of one server say to each other. It arrives, whole and in order between any two, but for
//! what is urgent.

use crate::coordination::{Decision, Prepared, Quiesced, Step};
use crate::site_news::Said;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{ConnectionId, FrontMessage, LeftWatch, ToClient, ToPartition};
use stoa_partition::State;
use stoa_placement::LoadReport;
use stoa_timeline::{EntryId, PartitionMessage};
use stoa_tree::Contact;
use stoa_wire::Timestamp;

/// From one thread of a server to another one. They are moved through several queues, so what is large and rare is
/// in a box.
#[derive(Debug)]
pub enum ShardMessage {
    /// What a front says to a partition, or a partition as if it were one.
    Front(FrontMessage),
    /// A request of another front's client: a write that follows one of the sender's.
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
        /// What is asked, where tokens of other sites may be missing for it.
        asked: Option<Bytes>,
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
    /// The sender has taken over another server's state, in which other things live elsewhere: watches may
    /// have been left behind.
    Replaced,
    /// To the first partition of the leader: what is asked of the sender's.
    Load(Box<LoadReport>),
    /// About this site among the others.
    Site(Box<Said>),
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
            Self::Leaves { watches, .. } | Self::Front(FrontMessage::Comes { watches, .. }) => {
                watches.is_empty()
            }
            _ => false,
        }
    }
}
