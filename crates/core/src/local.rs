//! What is kept of local sessions. How they begin, become global ones and end: `replica/local.rs`.

use alloc::collections::BTreeSet;
use stoa_front::ConnectionId;

/// What a server knows of its local sessions besides [`crate::session::Sessions`].
#[derive(Default)]
pub(crate) struct Local {
    /// Connections with which sessions come back, by the request before which everything must have its outcome.
    pub(crate) returning: BTreeSet<(u64, ConnectionId)>,
}

impl Local {
    /// A connection ends; it may have been one of these.
    pub(crate) fn forget(&mut self, opening: u64, id: ConnectionId) {
        self.returning.remove(&(opening, id));
    }
}
