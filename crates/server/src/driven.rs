//! What a thread drives: a whole server, or one of the threads of a server with several partitions.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use stoa_core::{
    ConnectError, Connection, ConnectionId, HomeStats, Now, Output, Server, Shard, Word as CoreWord,
};

/// The core of one thread. It stands for its partition; what clients have to do with is here, because
/// those of a thread need not be the partition's.
#[expect(clippy::large_enum_variant, reason = "a thread has one")]
pub(crate) enum Driven {
    /// A server with one partition.
    Whole(Server),
    /// One of the threads of a server with several.
    Shard(Box<Shard>),
}

impl Deref for Driven {
    type Target = Server;

    #[inline]
    fn deref(&self) -> &Server {
        match self {
            Self::Whole(server) => server,
            Self::Shard(shard) => shard.server(),
        }
    }
}

impl DerefMut for Driven {
    #[inline]
    fn deref_mut(&mut self) -> &mut Server {
        match self {
            Self::Whole(server) => server,
            Self::Shard(shard) => shard.server_mut(),
        }
    }
}

impl Driven {
    pub(crate) fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        match self {
            Self::Whole(server) => server.connect(peer, now),
            Self::Shard(shard) => shard.connect(peer, now),
        }
    }

    /// `None` where there is only one partition: then nobody needs side connections.
    pub(crate) fn connect_side(
        &mut self,
        peer: SocketAddr,
        now: Now,
    ) -> Option<Result<ConnectionId, ConnectError>> {
        match self {
            Self::Whole(_) => None,
            Self::Shard(shard) => Some(shard.connect_side(peer, now)),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
        match self {
            Self::Whole(server) => server.receive(id, bytes, now),
            Self::Shard(shard) => shard.receive(id, bytes, now),
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self, id: ConnectionId) -> bool {
        match self {
            Self::Whole(server) => server.is_paused(id),
            Self::Shard(shard) => shard.is_paused(id),
        }
    }

    pub(crate) fn disconnected(&mut self, id: ConnectionId, now: Now) {
        match self {
            Self::Whole(server) => server.disconnected(id, now),
            Self::Shard(shard) => shard.disconnected(id, now),
        }
    }

    pub(crate) fn tick(&mut self, now: Now) {
        match self {
            Self::Whole(server) => server.tick(now),
            Self::Shard(shard) => shard.tick(now),
        }
    }

    /// So long has this thread had something to do since it began, if that is known.
    pub(crate) fn occupied(&mut self, occupied: Option<Duration>, now: Now) {
        if let (Self::Shard(shard), Some(occupied)) = (self, occupied) {
            shard.server_mut().occupied(u64::try_from(occupied.as_micros()).unwrap_or(u64::MAX), now);
        }
    }

    #[inline]
    pub(crate) fn next_wake_us(&self) -> u64 {
        match self {
            Self::Whole(server) => server.next_wake_us(),
            Self::Shard(shard) => shard.next_wake_us(),
        }
    }

    #[inline]
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Whole(server) => server.poll_output(),
            Self::Shard(shard) => shard.poll_output(),
        }
    }

    #[inline]
    pub(crate) fn output(&self, id: ConnectionId) -> &[u8] {
        match self {
            Self::Whole(server) => server.output(id),
            Self::Shard(shard) => shard.output(id),
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, id: ConnectionId, bytes: usize, now: Now) {
        match self {
            Self::Whole(server) => server.sent(id, bytes),
            Self::Shard(shard) => shard.sent(id, bytes, now),
        }
    }

    /// One client of this thread.
    pub(crate) fn client(&self, id: ConnectionId) -> Option<&Connection> {
        match self {
            Self::Whole(server) => server.connection(id),
            Self::Shard(shard) => shard.connection(id),
        }
    }

    /// The clients of this thread. Those of the partition are the server's connections.
    pub(crate) fn clients(&self) -> Vec<&Connection> {
        match self {
            Self::Whole(server) => server.connections().map(|(_, client)| client).collect(),
            Self::Shard(shard) => shard.connections().map(|(_, client)| client).collect(),
        }
    }

    pub(crate) fn client_count(&self) -> usize {
        match self {
            Self::Whole(server) => server.connection_count(),
            Self::Shard(shard) => shard.connections().count(),
        }
    }

    /// Requests of this thread's clients that are under way.
    pub(crate) fn outstanding(&self) -> usize {
        match self {
            Self::Whole(server) => server.outstanding(),
            Self::Shard(shard) => shard.connections().map(|(_, client)| client.outstanding()).sum(),
        }
    }

    /// What is counted of this thread's clients.
    pub(crate) fn client_stats(&self) -> HomeStats {
        let stats = self.stats();
        match self {
            Self::Whole(_) => HomeStats {
                packets_received: stats.packets_received,
                bytes_received: stats.bytes_received,
                connections_rejected: stats.connections_rejected,
                connections_dropped: stats.connections_dropped,
                frames_too_large: stats.frames_too_large,
                ..HomeStats::default()
            },
            Self::Shard(shard) => {
                let mut home = *shard.home_stats();
                home.connections_dropped += stats.connections_dropped;
                home
            }
        }
    }

    pub(crate) fn reset_stats(&mut self) {
        match self {
            Self::Whole(server) => server.reset_stats(),
            Self::Shard(shard) => shard.reset_stats(),
        }
    }

    pub(crate) fn reset_connection_stats(&mut self) {
        match self {
            Self::Whole(server) => server.reset_connection_stats(),
            Self::Shard(shard) => shard.reset_connection_stats(),
        }
    }

    /// Another thread of this server has said something.
    pub(crate) fn hear(&mut self, from: u8, word: CoreWord, now: Now) {
        if let Self::Shard(shard) = self {
            shard.hear(from, word, now);
        }
    }

    /// The next word to another thread, once everything is settled.
    pub(crate) fn poll_word(&mut self) -> Option<(u8, CoreWord)> {
        match self {
            Self::Whole(_) => None,
            Self::Shard(shard) => shard.poll_word(),
        }
    }

    /// To be called after the partition was used: passes on what it has for its clients and for others.
    pub(crate) fn settle(&mut self, now: Now) {
        if let Self::Shard(shard) = self {
            shard.settle(now);
        }
    }
}
