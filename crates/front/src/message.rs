//! What a front and partitions say to each other.

use crate::connection::{CloseReason, ConnectionId};
use crate::pipelined::Pipelined;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use stoa_timeline::EntryId;
use stoa_tree::{Identity, WatchMode};
use stoa_wire::Timestamp;

/// From a front to a partition.
#[derive(Debug)]
pub enum FrontMessage {
    /// What a client of the sender has for the receiver, which answers to the client's name there.
    Client(ConnectionId, ToPartition),
    /// The receiver says so when it has applied its timeline up to here.
    WatermarkWanted {
        /// The position.
        position: u64,
        /// Others have come to this zxid: whoever leads its timeline, and has nothing to do, writes that
        /// what follows is larger.
        clock: i64,
    },
    /// What the receiver takes from another partition is watched by clients of the sender, which it now knows.
    Comes {
        /// Where it is taken.
        taken: EntryId,
        /// Whose, on what, and of which kind.
        watches: Vec<LeftWatch>,
    },
}

/// Who a client is, as far as its front knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Where it connects from.
    pub address: SocketAddr,
    /// What it has proved to its front: by its certificate, or as a SASL client.
    pub identities: Vec<Identity>,
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
    /// What it was told up to this zxid may have been told by another site: that says nothing of what it has seen here.
    pub came_zxid: i64,
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
