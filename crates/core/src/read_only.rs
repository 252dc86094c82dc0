//! What a server keeps of clients that it only reads for. What it does for them: `replica/read_only.rs`.

use alloc::collections::BTreeMap;
use stoa_front::{CloseReason, ConnectionId};
use stoa_partition::Now;
use stoa_wire::PASSWORD_LEN;

/// What a server knows of its read-only clients.
pub(crate) struct ReadOnly {
    /// Since when no leader is known; `None` while one is.
    pub(crate) leaderless_since_us: Option<u64>,
    pub(crate) active: bool,
    /// By session.
    pub(crate) sessions: BTreeMap<i64, ReadOnlySession>,
    /// The next id that is no session's.
    pub(crate) next_id: i64,
    /// The largest zxid that a partition of this server has told.
    pub(crate) newest: i64,
}

/// A session of a client that may only read.
pub(crate) struct ReadOnlySession {
    pub(crate) connection: ConnectionId,
    pub(crate) timeout_us: u64,
    pub(crate) heard_us: u64,
    /// When it is sent to look for a leader, if its session is one.
    pub(crate) until_us: Option<u64>,
}

impl ReadOnly {
    pub(crate) fn new(server: u8, now: Now) -> Self {
        // The clock tells the ids of two runs apart; passwords do so in any case. Nothing is said above the server,
        // as in no id of a session, and a bit is left below it, so that counting never comes to it. None is 0.
        let next_id = i64::from(server) << 47 | (now.wall_ms & ((1 << 46) - 1)).max(1);
        Self { leaderless_since_us: None, active: false, sessions: BTreeMap::new(), next_id, newest: 0 }
    }

    /// Another partition of this server has come to this zxid.
    pub(crate) fn seen(&mut self, zxid: i64) {
        self.newest = self.newest.max(zxid);
    }

    pub(crate) fn newest(&self) -> i64 {
        self.newest
    }

    /// The client of this session has been heard of.
    pub(crate) fn heard(&mut self, session: i64, now: Now) {
        if let Some(it) = self.sessions.get_mut(&session) {
            it.heard_us = now.mono_us;
        }
    }

    /// A connection is no read-only one any more.
    pub(crate) fn leave(&mut self, session: i64, connection: ConnectionId) {
        if self.sessions.get(&session).is_some_and(|session| session.connection == connection) {
            self.sessions.remove(&session);
        }
    }
}

/// Whether a client may stay.
pub(crate) enum Admission {
    Welcome {
        session: i64,
        password: [u8; PASSWORD_LEN],
        timeout_ms: i32,
        until_us: Option<u64>,
    },
    /// The session is over.
    Expired,
    /// Others may know more.
    TurnedAway(CloseReason),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Sessions, is_lent};

    #[test]
    fn an_id_of_read_only_mode_is_never_that_of_a_session() {
        let mut all = BTreeMap::new();
        for server in 0..=u8::MAX {
            for wall_ms in [0, 1_700_000_000_000, 1 << 40, (1 << 41) - 1, i64::MAX, -1] {
                let now = Now { mono_us: 0, wall_ms };
                let id = ReadOnly::new(server, now).next_id;
                assert!(is_lent(id) && is_lent(id + 1_000_000) && id != 0, "{id:#x}");
                let mut sessions = Sessions::new(server, 100, [7; 32], now);
                // Two that follow one another, with the last count of a millisecond between them.
                let first = sessions.new_id(None);
                sessions.insert(first | 0xfffe, 1000, now);
                for session in [first, sessions.new_id(None)] {
                    assert!(!is_lent(session), "{session:#x}");
                    assert_eq!((session >> 56) as u8, server, "{session:#x}");
                    // What ZooKeeper takes for a container, a TTL znode, or nobody.
                    assert!(![0, i64::MIN].contains(&session) && session >> 40 != -0x1_0000, "{session:#x}");
                    assert!(all.insert(session, server).is_none_or(|other| other == server), "{session:#x}");
                }
                assert!(all.insert(id, server).is_none_or(|other| other == server), "{id:#x}");
            }
        }
    }
}
