//! One thread of a server that has several partitions: a home for clients, and a partition.

use crate::config::{Config, Now};
use crate::connection::{Connection, ConnectionId};
use crate::home::{Home, HomeStats};
use crate::restore::Recovered;
use crate::server::{ConnectError, Output, Server};
use crate::word::Word;
use alloc::collections::VecDeque;
use core::net::SocketAddr;

/// A thread's clients and its partition. What it says to the server's other threads comes out of
/// [`Shard::poll_word`] and goes into their [`Shard::hear`].
pub struct Shard {
    home: Home,
    server: Server,
    words: VecDeque<(u8, Word)>,
    own: u8,
    /// Homes that want to know when a position is applied.
    tell: VecDeque<(u8, u64)>,
}

impl Shard {
    /// A thread with what the disk holds of its partition; see [`Server::new`].
    #[must_use]
    pub fn new(config: Config, recovered: Recovered, secret: [u8; 32], now: Now) -> Option<Self> {
        let home = Home::new(config.clone());
        let own = config.partition;
        let server = Server::new(config, recovered, secret, now)?;
        Some(Self { home, server, words: VecDeque::new(), own, tell: VecDeque::new() })
    }

    /// The partition.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The partition, for what clients have no part in: the log, the other servers, snapshots, time.
    /// Call [`Shard::settle`] afterwards.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// A client has connected.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        self.home.connect(peer, now)
    }

    /// Bytes of a client; see [`Server::receive`].
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
        let mut rest = bytes;
        while self.home.take_frame(id, &mut rest, now) {
            self.serve_own(now);
        }
        self.settle(now);
        let consumed = bytes.len() - rest.len();
        self.home.stats.bytes_received += consumed as u64;
        consumed
    }

    /// Whether nothing more should be read from a connection; see [`Server::is_paused`].
    #[must_use]
    pub fn is_paused(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(Connection::is_paused)
    }

    /// A client's socket is closed.
    pub fn disconnected(&mut self, id: ConnectionId, now: Now) {
        self.home.disconnected(id);
        self.settle(now);
    }

    /// Another thread of this server has said something.
    pub fn hear(&mut self, from: u8, word: Word, now: Now) {
        match word {
            Word::Client(client, what) => self.server.hear_home(from, client, what, now),
            Word::Answer(client, what) => self.home.told(from, client, what),
            Word::Tell(position) => self.tell.push_back((from, position)),
            Word::Reached(position) => self.home.reached(from, position),
            Word::Sessions { is_all, position, changed } => {
                self.server.sessions_changed(is_all, position, &changed);
            }
            word => self.server.hear_partition(from, word, now),
        }
        self.settle(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.home.tick(now);
        // Whoever was heard of is not judged before that is known.
        self.serve_own(now);
        self.server.tick(now);
        self.settle(now);
    }

    /// When [`Shard::tick`] is next needed; see [`Server::next_wake_us`].
    #[must_use]
    pub fn next_wake_us(&self) -> u64 {
        self.home.next_wake_us().unwrap_or(u64::MAX).min(self.server.next_wake_us())
    }

    /// What the partition has to say, to itself or to others.
    fn listen_to_itself(&mut self, now: Now) {
        self.server.tell_leader();
        self.words.extend(self.server.poll_sessions_changed());
        while let Some((to, word)) = self.server.words.pop_front() {
            if to == self.own {
                self.server.hear_partition(to, word, now);
            } else {
                self.words.push_back((to, word));
            }
        }
    }

    fn serve_own(&mut self, now: Now) {
        while let Some((client, what)) = self.home.poll_own() {
            self.server.hear_home(self.own, client, what, now);
        }
    }

    /// Passes on what the partition has for clients and the other way round.
    pub fn settle(&mut self, now: Now) {
        loop {
            self.serve_own(now);
            self.listen_to_itself(now);
            let Some((home, client, what)) = self.server.poll_guest() else { break };
            if home == self.own {
                self.home.told(self.own, client, what);
            } else {
                self.words.push_back((home, Word::Answer(client, what)));
            }
        }
        let applied = self.server.applied();
        self.home.reached(self.own, applied);
        self.tell.retain(|(home, position)| {
            let is_there = *position <= applied;
            if is_there {
                self.words.push_back((*home, Word::Reached(applied)));
            }
            !is_there
        });
        while let Some(word) = self.home.poll_word() {
            self.words.push_back(word);
        }
    }

    /// What this thread says to another one.
    pub fn poll_word(&mut self) -> Option<(u8, Word)> {
        self.words.pop_front()
    }

    /// What is to be done with connections; see [`Server::poll_output`].
    pub fn poll_output(&mut self) -> Option<Output> {
        self.home.poll_output()
    }

    /// Bytes for a client; see [`Server::output`].
    #[must_use]
    pub fn output(&self, id: ConnectionId) -> &[u8] {
        self.home.connections.get(id).map(Connection::unsent).unwrap_or_default()
    }

    /// So many bytes of it have been sent.
    pub fn sent(&mut self, id: ConnectionId, bytes: usize, now: Now) {
        self.home.sent(id, bytes);
        self.settle(now);
    }

    // ---- what the server's operator may ask ----

    /// The clients of this thread. Those of the partition are in [`Server::connections`].
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.home.connections.iter()
    }

    /// One client of this thread.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.home.connections.get(id)
    }

    /// Counters of this thread's clients.
    #[must_use]
    pub fn home_stats(&self) -> &HomeStats {
        &self.home.stats
    }

    /// Forgets the counts that the word `srst` forgets.
    pub fn reset_stats(&mut self) {
        self.server.reset_stats();
        self.home.stats.packets_received = 0;
        self.home.stats.pings = 0;
    }

    /// Forgets the counts of each connection (the word `crst`).
    pub fn reset_connection_stats(&mut self) {
        self.home.connections.iter_mut().for_each(Connection::reset_stats);
    }
}
