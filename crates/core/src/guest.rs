//! Clients of this server's threads, as a partition knows them. What they ask: `replica/guest.rs`.

use crate::catch_up::Came;
use crate::connection::{Connection, ConnectionId};
use crate::peer::After;
use crate::shard_message::ToClient;
use crate::timestamp::Timestamp;
use alloc::collections::BTreeSet;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// What a connection is when its client is connected to a home.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) home: u8,
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
    /// Whether the home knows that it has a session.
    pub(crate) is_told: bool,
    /// The last zxid that its client was told, here or elsewhere, when it came.
    pub(crate) last_zxid: i64,
    /// At the first partition: whether it has been caught up with.
    pub(crate) came: Came,
    /// A write that was asked ahead was given back, and all are that follow, until one is not asked ahead.
    pub(crate) gives_back: bool,
    /// What it asks just now was asked ahead.
    pub(crate) is_ahead: bool,
}

impl Guest {
    /// Its client has seen that.
    pub(crate) fn has_seen(&mut self, seen: &Timestamp) {
        self.seen.merge(seen);
        self.rests_at = None;
    }
}

/// Something for a client of a home.
pub(crate) enum ForClient {
    Said(u8, ConnectionId, ToClient),
    /// The client is one of this thread's, and this connection has output for it.
    Output {
        client: ConnectionId,
        guest: ConnectionId,
    },
}

impl Connection {
    /// What its next request rests on.
    pub(crate) fn after(&self) -> After {
        self.guest.as_ref().map_or_else(After::default, |guest| After {
            since: guest.since,
            placed: guest.placed,
            seen: guest.seen.clone(),
        })
    }
}

/// The guests.
#[derive(Default)]
pub(crate) struct Guests {
    pub(crate) by_name: HashMap<(u8, ConnectionId), ConnectionId, FixedState>,
    /// Those who came with a session, the newest of each last.
    pub(crate) by_session: BTreeSet<(i64, ConnectionId)>,
}

impl Guests {
    pub(crate) fn named(&self, home: u8, client: ConnectionId) -> Option<ConnectionId> {
        self.by_name.get(&(home, client)).copied()
    }

    /// The connections of a session, the newest last.
    pub(crate) fn of_session(&self, session: i64) -> impl DoubleEndedIterator<Item = ConnectionId> {
        let all = (session, ConnectionId(0))..=(session, ConnectionId(u64::MAX));
        self.by_session.range(all).map(|(_, id)| *id)
    }

    pub(crate) fn forget(&mut self, id: ConnectionId, connection: &Connection) {
        if let Some(guest) = &connection.guest {
            self.by_name.remove(&(guest.home, guest.client));
            self.by_session.remove(&(connection.session, id));
        }
    }
}
