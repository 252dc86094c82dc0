//! Whoever comes to the servers from outside.

use super::check::Horizon;
use super::client::Tally;
use super::history::History;
use super::timelines::Timelines;
use stoa_check::{Checker, Violation};

/// What a visitor wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Open a connection to this server (an index) and send these bytes. An old one is left as it is.
    Connect(usize, Vec<u8>),
    /// Send these bytes on the connection.
    Send(Vec<u8>),
    /// Close the connection.
    Drop,
    /// Read nothing for so many microseconds.
    Stall(u64),
}

/// What is known of the servers' timelines, and of what clients were shown: all that is judged is compared with it.
pub(crate) struct Judges {
    /// Of servers with one partition, what is committed. Of others, who led, and what stands in their logs.
    pub(crate) history: History,
    /// Of servers with several partitions.
    pub(crate) timelines: Timelines,
    pub(crate) horizon: Horizon,
    /// Of a server that stands alone, if that is what the run is for: then it stands for all the others.
    pub(crate) checker: Option<Checker>,
}

impl Judges {
    pub(super) fn new() -> Self {
        Self {
            history: History::new(),
            timelines: Timelines::default(),
            horizon: Horizon::default(),
            checker: None,
        }
    }

    /// Whether a session has ended.
    pub(crate) fn is_closed(&self, session: i64) -> bool {
        self.history.is_closed(session) || self.timelines.is_closed(session)
    }
}

/// A client of any kind. It has one connection at a time.
pub(crate) trait Visitor {
    /// Time to do something; returns what, and after how many microseconds it wants to be asked again.
    fn wake(&mut self, judges: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation>;

    /// Bytes have come on the connection.
    fn receive(&mut self, bytes: &[u8], judges: &mut Judges, now_us: u64) -> Result<Vec<Act>, Violation>;

    /// The connection is gone.
    fn gone(&mut self);

    /// From now on it only finishes what it has begun.
    fn finish(&mut self);

    /// Whether it has.
    fn is_done(&self) -> bool;

    /// What it waits for.
    fn waits_for(&self) -> String;

    /// Requests that it has sent.
    fn requests(&self) -> u64;

    /// Sessions that it let go without a word: they must end.
    fn left(&self) -> &[i64] {
        &[]
    }

    /// What it has seen.
    fn counts(&self) -> Tally {
        Tally::default()
    }
}
