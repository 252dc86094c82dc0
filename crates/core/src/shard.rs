//! One thread of a server that has several partitions: a home for clients, and a partition.

use crate::config::{Config, Now};
use crate::connection::{CloseReason, Connection, ConnectionId};
use crate::guest::ForClient;
use crate::home::{Home, HomeStats, Taken};
use crate::placement::FIRST;
use crate::planted::Bug;
use crate::restore::Recovered;
use crate::server::{ConnectError, Output, Server};
use crate::step::end_of;
use crate::word::{ToClient, ToPartition, Word};
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use stoa_timeline::PartitionMessage;

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
        let mut home = Home::new(config.clone());
        let own = config.partition;
        let server = Server::new(config, recovered, secret, now)?;
        if server.placement().version() > 0 {
            home.place(server.placement().clone(), server.stamp());
        }
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

    /// Somebody has connected who says that this is a side connection of a direct client.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn connect_side(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        self.home.connect_side(peer, now)
    }

    /// Bytes of a client; see [`Server::receive`].
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
        let mut rest = bytes;
        loop {
            let Self { home, server, .. } = self;
            let placed = home.placed();
            home.hand_over_own(id, &mut rest, |guest, frame| {
                server.guest_request(guest, None, placed, frame, now);
            });
            match self.home.take_frame(id, &mut rest, now) {
                Some(Taken::Own { guest, frame, has_news }) => {
                    let seen = if has_news { self.home.seen(id) } else { None };
                    self.server.guest_request(guest, seen, placed, &frame, now);
                }
                Some(Taken::Fast { guest, xid, frame }) => self.server.guest_fast(guest, xid, frame, now),
                Some(Taken::Elsewhere { guest, xid }) => self.server.give_back(guest, xid, now),
                Some(Taken::Done) => self.serve_own(now),
                None => break,
            }
        }
        self.home.go_on(id);
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

    /// Another thread of this server has said something. Call [`Shard::settle`] when there is no more of it, before
    /// anything else: what follows from many words takes less time than what follows from each.
    pub fn hear(&mut self, from: u8, word: Word, now: Now) {
        let is_put = matches!(word, Word::Answer(_, ToClient::Put(_)));
        if is_put
            || matches!(
                word,
                Word::Client(..) | Word::HandedOn(..) | Word::Timeline(PartitionMessage::Propose(_))
            )
        {
            self.home.heard_at(now);
            return self.listen(from, word, now);
        }
        // What clients are told is followed by what they ask next, before the next answer is looked at. And only others
        // have entries applied: nobody is heard of whose session has ended with one before its home is told.
        if !matches!(word, Word::Answer(..)) {
            // These are rare, and find done what was said before them.
            self.settle(now);
        }
        self.listen(from, word, now);
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

    fn listen(&mut self, from: u8, word: Word, now: Now) {
        match word {
            Word::Client(client, what) => self.server.hear_home(from, client, what, now),
            Word::HandedOn(home, client, what) => self.server.hear_home(home, client, what, now),
            Word::Answer(client, what) => {
                self.home.told(from, client, what);
                self.pass_buffer_on();
            }
            Word::Tell { position, clock } => {
                let comes = self.server.come_to(clock);
                self.tell.push_back((from, comes.max(position)));
            }
            Word::Reached { position, clock } => {
                if from == FIRST {
                    self.server.sessions_are_told(position);
                }
                self.home.reached(from, position, clock);
            }
            Word::Sessions { is_all, position, changed } => {
                self.server.sessions_changed(is_all, position, &changed);
            }
            Word::Leaves { taken, watches } => {
                self.place_home();
                self.home.watches_leave(taken, watches);
            }
            Word::Replaced => self.home.close_all(CloseReason::StateReplaced),
            word => self.server.hear_partition(from, word, now),
        }
    }

    /// The home knows what lives where as soon as the partition does.
    fn place_home(&mut self) {
        self.home.prepares = self.server.prepares();
        let is_news = self.home.placed() != self.server.placement().version();
        if is_news && !self.home.planted.is(Bug::OldTableIsUsed) {
            self.home.place(self.server.placement().clone(), self.server.stamp());
        }
    }

    /// What the partition has to say, to itself or to others.
    fn listen_to_itself(&mut self, now: Now) {
        self.server.tell_leader();
        self.server.tell_servers();
        if self.server.has_news_of_sessions() {
            self.words.extend(self.server.poll_sessions_changed());
        }
        while let Some((to, word)) = self.server.poll_word() {
            if matches!(word, Word::HandedOn(..)) {
                self.server.promises_are_told();
            }
            if to == self.own {
                self.listen(to, word, now);
            } else {
                self.words.push_back((to, word));
            }
        }
    }

    fn serve_own(&mut self, now: Now) {
        while let Some((client, what)) = self.home.poll_own() {
            let comes = matches!(what, ToPartition::Open { .. } | ToPartition::Join { .. });
            self.server.hear_home(self.own, client, what, now);
            if comes {
                self.home.is_guest(client, self.server.guest(self.own, client));
            }
        }
    }

    /// Passes on what the partition has for clients and the other way round.
    pub fn settle(&mut self, now: Now) {
        self.home.let_go(now);
        loop {
            self.serve_own(now);
            self.listen_to_itself(now);
            self.place_home();
            self.pass_on();
            if self.is_quiet() {
                let (position, clock) = (end_of(self.server.applied()), self.server.clock());
                // Clients that have waited for that may go on, and what they ask next comes before whatever
                // is received from now on.
                self.home.reached(self.own, position, clock);
            }
            if self.is_quiet() {
                break;
            }
            self.pass_on_words(now);
        }
        let (position, clock) = (end_of(self.server.applied()), self.server.clock());
        self.tell.retain(|(home, until)| {
            let is_there = *until <= position;
            if is_there && *home != self.own {
                self.words.push_back((*home, Word::Reached { position, clock }));
            }
            !is_there
        });
    }

    fn is_quiet(&mut self) -> bool {
        self.home.is_quiet() && !self.server.has_words()
    }

    /// What the partition has for clients.
    fn pass_on(&mut self) {
        while let Some(next) = self.server.poll_guest() {
            match next {
                ForClient::Output { client, guest } => self.give(client, guest),
                ForClient::Said(home, client, what) if home == self.own => {
                    self.home.told(home, client, what);
                }
                ForClient::Said(home, client, what) => {
                    self.words.push_back((home, Word::Answer(client, what)));
                }
            }
        }
    }

    /// What clients here have for the partitions.
    fn pass_on_words(&mut self, now: Now) {
        while let Some((to, word)) = self.home.poll_word() {
            if to == self.own {
                self.listen(to, word, now);
            } else {
                self.words.push_back((to, word));
            }
        }
    }

    /// Gives a client of this thread what the partition has written for it.
    fn give(&mut self, client: ConnectionId, guest: ConnectionId) {
        let Some((answers, mut bytes)) = self.server.take_output(guest) else { return };
        if self.home.give(self.own, client, self.server.stamp(), answers, &mut bytes) {
            self.home.connections.recycle(bytes);
        } else {
            let stamp = self.server.stamp().clone();
            self.home.told(self.own, client, ToClient::Frames { answers, bytes, stamp });
        }
        self.pass_buffer_on();
    }

    /// Buffers come from partitions and are emptied at homes: as many go from here to other threads as come from
    /// there.
    fn pass_buffer_on(&mut self) {
        if let Some(buffer) = self.home.connections.spare() {
            self.server.connections.recycle(buffer);
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
        if !self.home.is_quiet() {
            self.settle(now);
        }
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

    /// Plants a bug, in the partition and among its clients.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.server.plant(bug);
        self.home.planted = self.server.planted;
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
