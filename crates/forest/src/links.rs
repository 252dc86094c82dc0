//! What is known of the connections to others.

use crate::ids::Ids;
use alloc::vec;
use alloc::vec::Vec;

/// Who is not connected, and how much waits to be sent to whom.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) gone: Ids,
    outstanding: Vec<u64>,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self { gone: Ids::default(), outstanding: vec![0; 256] }
    }

    /// So many bytes wait to be sent to this server.
    pub(crate) fn set_outstanding(&mut self, to: u8, bytes: u64) {
        self.outstanding[usize::from(to)] = bytes;
    }

    /// Whether an append is sent there. Nobody waits for a child that reads too slowly: it pulls.
    pub(crate) fn takes(&self, to: u8, outstanding_max: u64) -> bool {
        !self.gone.contains(to) && self.outstanding[usize::from(to)] <= outstanding_max
    }
}
