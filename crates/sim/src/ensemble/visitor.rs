//! Whoever comes to the servers from outside.

use super::check::Horizon;
use super::client::{Client, Counts};
use super::history::History;
use crate::check::Violation;

/// What a visitor wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Open a connection to this server (an index) and send these bytes. An old one is left as it is.
    Connect(usize, Vec<u8>),
    /// Send these bytes on the connection.
    Send(Vec<u8>),
    /// Close the connection.
    Drop,
}

/// A client of any kind. It has one connection at a time.
pub(crate) trait Visitor {
    /// Time to do something; returns what, and after how many microseconds it wants to be asked again.
    fn wake(
        &mut self,
        now_us: u64,
        history: &History,
        horizon: &Horizon,
    ) -> Result<(Vec<Act>, u64), Violation>;

    /// Bytes have come on the connection.
    fn receive(
        &mut self,
        bytes: &[u8],
        history: &History,
        horizon: &mut Horizon,
        now_us: u64,
    ) -> Result<Vec<Act>, Violation>;

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
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

impl Visitor for Client {
    fn wake(
        &mut self,
        now_us: u64,
        _history: &History,
        horizon: &Horizon,
    ) -> Result<(Vec<Act>, u64), Violation> {
        Ok(self.wake(now_us, horizon))
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        history: &History,
        horizon: &mut Horizon,
        now_us: u64,
    ) -> Result<Vec<Act>, Violation> {
        self.receive(bytes, history, horizon, now_us)
    }

    fn gone(&mut self) {
        self.gone();
    }

    fn finish(&mut self) {
        self.finish();
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn waits_for(&self) -> String {
        format!("client {}: {}", self.index, self.waits_for())
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn left(&self) -> &[i64] {
        &self.left
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
