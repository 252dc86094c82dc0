//! Clients of this server's threads, as a partition knows them. What they ask: `replica/remote_client.rs`.

use alloc::collections::BTreeSet;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_front::{Connection, ConnectionId, ToClient};

/// Something for a client of a front.
pub(crate) enum ForClient {
    Message(u8, ConnectionId, ToClient),
    /// The client is one of this thread's, and this connection has output for it.
    Output {
        client: ConnectionId,
        remote: ConnectionId,
    },
}

/// The remote clients.
#[derive(Default)]
pub(crate) struct RemoteClients {
    pub(crate) by_name: HashMap<(u8, ConnectionId), ConnectionId, FixedState>,
    /// Those who came with a session, the newest of each last.
    pub(crate) by_session: BTreeSet<(i64, ConnectionId)>,
}

impl RemoteClients {
    pub(crate) fn named(&self, front: u8, client: ConnectionId) -> Option<ConnectionId> {
        self.by_name.get(&(front, client)).copied()
    }

    /// The connections of a session, the newest last.
    pub(crate) fn of_session(&self, session: i64) -> impl DoubleEndedIterator<Item = ConnectionId> {
        let all = (session, ConnectionId(0))..=(session, ConnectionId(u64::MAX));
        self.by_session.range(all).map(|(_, id)| *id)
    }

    pub(crate) fn forget(&mut self, id: ConnectionId, connection: &Connection) {
        if let Some(remote) = &connection.remote {
            self.by_name.remove(&(remote.front, remote.client));
            self.by_session.remove(&(connection.session, id));
        }
    }
}
