//! What a front consists of.

use super::pipeline::HeldBack;
use crate::connection::ConnectionId;
use crate::message::{FrontMessage, ToPartition};
use crate::route::Route;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use stoa_wire::Timestamp;

/// How far partitions have come, as seen from a front.
pub(super) struct Progress {
    /// As far as all that a partition had for clients here has arrived: positions, and zxids that all its later
    /// updates are larger than.
    pub(super) reached: Timestamp,
    pub(super) clocks: Vec<i64>,
    /// Partitions for whose sake clients were told smaller zxids than they have seen, since the last tick.
    pub(super) behind: u64,
    /// The newest zxid that any of them has seen.
    pub(super) newest: i64,
    /// What this thread's own partition rests on.
    pub(super) own: Timestamp,
    /// How far a partition must have come that clients ask by this thread's table of what lives where.
    pub(super) placed: Timestamp,
    /// How far each was asked to say so.
    pub(super) asked: Timestamp,
}

impl Progress {
    pub(super) fn new(partitions: u8) -> Self {
        let beginning = || Timestamp::new(partitions);
        Self {
            reached: beginning(),
            clocks: vec![0; usize::from(partitions)],
            behind: 0,
            newest: 0,
            own: beginning(),
            placed: beginning(),
            asked: beginning(),
        }
    }
}

/// Clients to come back to when something else has happened.
#[derive(Default)]
pub(crate) struct PendingClients {
    /// To be told what there is for them when a partition has come further.
    pub(super) waiting: Vec<ConnectionId>,
    /// Connections that have not finished their handshake, in the order of their deadlines.
    pub(super) handshakes: VecDeque<(u64, ConnectionId)>,
    /// Clients that only read.
    pub(super) read_only: Vec<ConnectionId>,
    /// Clients whose requests came back from a partition with a newer table than this thread has.
    pub(super) rerouted: Vec<ConnectionId>,
    /// Direct clients that want to know how far partitions have come.
    pub(super) reaching: Vec<ConnectionId>,
    /// Whose answers are held back for a moment.
    pub(super) held: VecDeque<HeldBack>,
}

/// Clients that were heard of, and of which the first partition has not been told.
#[derive(Default)]
pub(super) struct HeardClients {
    pub(super) clients: Vec<ConnectionId>,
    /// Since when there are some, microseconds.
    pub(super) since_us: Option<u64>,
}

/// Requests of all clients that partitions have not answered.
#[derive(Debug, Default)]
pub(crate) struct RequestsUnderWay {
    pub(super) requests: usize,
    pub(super) bytes: usize,
    /// So many bytes there may be.
    pub(super) bytes_max: usize,
}

impl RequestsUnderWay {
    /// More requests are under way.
    #[inline]
    pub(super) fn count(&mut self, route: &mut Route, requests: usize, bytes: usize) {
        route.requests.under_way += requests as u32;
        route.requests.bytes += bytes;
        self.requests += requests;
        self.bytes += bytes;
    }

    /// So many are not any more. They count as if all of them were of one length.
    #[inline]
    pub(crate) fn uncount(&mut self, route: &mut Route, answers: u32) {
        let asked = &mut route.requests;
        let answered = answers.min(asked.under_way);
        let bytes = if answered == asked.under_way {
            asked.bytes
        } else {
            (asked.bytes as u64 * u64::from(answered) / u64::from(asked.under_way)) as usize
        };
        asked.under_way -= answered;
        asked.bytes -= bytes;
        self.requests -= answered as usize;
        self.bytes -= bytes;
    }
}

/// What a front has for others.
#[derive(Default)]
pub(crate) struct Mail {
    /// What clients here have for partitions: this thread's own hears it in its order, too.
    pub(super) messages: VecDeque<(u8, FrontMessage)>,
    /// For this thread's own partition, where it could not be asked at once.
    pub(super) own: VecDeque<(ConnectionId, ToPartition)>,
}
