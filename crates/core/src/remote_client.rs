//! Clients of this server's threads, as a partition knows them. What they ask: `replica/remote_client.rs`.

use crate::catch_up::Came;
use crate::connection::{Connection, ConnectionId};
use crate::shard_message::ToClient;
use alloc::collections::BTreeSet;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_partition::After;
use stoa_wire::Timestamp;

/// What a connection is when its client is connected to a front.
#[derive(Debug)]
pub(crate) struct RemoteClient {
    pub(crate) front: u8,
    /// Its name there.
    pub(crate) client: ConnectionId,
    /// What its client has seen.
    pub(crate) seen: Timestamp,
    /// Where on the first partition's timeline its session came to it.
    pub(crate) since: u64,
    /// By what is known of sessions after so many changes, it speaks for its own.
    pub(crate) known_at: Option<u64>,
    /// What it has seen was added to what the partition's entries rest on, the last time that this was begun anew.
    pub(crate) rests_at: Option<u64>,
    /// Whoever leads this partition knows that, now and later.
    pub(crate) is_known: bool,
    /// The version of the table by which its requests come here.
    pub(crate) placed: u64,
    /// Whether the front knows that it has a session.
    pub(crate) is_told: bool,
    /// The last zxid that its client was told, here or elsewhere, when it came.
    pub(crate) last_zxid: i64,
    /// At the first partition: whether it has been caught up with.
    pub(crate) came: Came,
    /// A write that was pipelined was given back, and all are that follow, until one is not pipelined.
    pub(crate) gives_back: bool,
    /// What it asks just now was pipelined.
    pub(crate) is_pipelined: bool,
}

impl RemoteClient {
    /// Its client has seen that.
    pub(crate) fn has_seen(&mut self, seen: &Timestamp) {
        self.seen.merge(seen);
        self.rests_at = None;
    }
}

/// Something for a client of a front.
pub(crate) enum ForClient {
    Message(u8, ConnectionId, ToClient),
    /// The client is one of this thread's, and this connection has output for it.
    Output {
        client: ConnectionId,
        remote: ConnectionId,
    },
}

impl Connection {
    /// What its next request rests on.
    pub(crate) fn after(&self) -> After {
        self.remote.as_ref().map_or_else(After::default, |remote| After {
            since: remote.since,
            placed: remote.placed,
            seen: remote.seen.clone(),
        })
    }
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
