//! One thread of a server: clients, and a partition.

use crate::config::Config;
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use crate::thread_front::ThreadFront;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::{Deref, DerefMut};
use stoa_front::{
    AuditEvent, ConnectError, Connection, ConnectionId, FrontStats, Output, SaslStep, SaslToken,
};
use stoa_partition::{Now, Recovered};
use stoa_tree::Identity;

/// A thread's clients and its partition, and the one door to both. What it says to the server's other threads
/// comes out of [`Shard::poll_message`] and goes into their [`Shard::hear`].
///
/// It stands for its partition in all that clients have no part in: the log, the other servers, snapshots. Call
/// [`Shard::settle`] after that.
pub struct Shard {
    /// Where there are several partitions. Where there is one, all clients are the partition's own: nothing is to be
    /// routed, and nothing that they are told waits for another partition. By way of a front a pipelined read takes
    /// 1.18 times the instructions, and a single one 1.65 times.
    front: Option<Box<ThreadFront>>,
    replica: Replica,
}

impl Deref for Shard {
    type Target = Replica;

    #[inline]
    fn deref(&self) -> &Replica {
        &self.replica
    }
}

impl DerefMut for Shard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }
}

impl Shard {
    /// A thread with what the disk holds of its partition. The timers of its sessions start anew. `secret` must be
    /// random: session passwords come from it. `None` when the timeline cannot be what a disk holds: its vote speaks
    /// of entries that are missing, or its members of nobody who could vote.
    #[must_use]
    pub fn new(config: Config, recovered: Recovered, secret: [u8; 32], now: Now) -> Option<Self> {
        let mut front = (config.partitions > 1).then(|| Box::new(ThreadFront::new(&config)));
        let replica = Replica::new(config, recovered, secret, now)?;
        if let Some(front) = front.as_mut().filter(|_| replica.placement().version() > 0) {
            front.clients.place(replica.placement().clone(), replica.stamp());
        }
        Some(Self { front, replica })
    }

    /// A client has connected.
    ///
    /// # Errors
    /// When a limit is reached; the driver closes the socket.
    pub fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        match &mut self.front {
            None => self.replica.connect(peer, now),
            Some(front) => front.clients.connect(peer, now),
        }
    }

    /// A client has proved, before it has said anything, that it is all of this: by its certificate.
    pub fn identify(&mut self, id: ConnectionId, identities: Vec<Identity>) {
        match &mut self.front {
            None => self.replica.identify(id, identities),
            Some(front) => front.clients.identify(id, identities),
        }
    }

    /// A token of SASL that the driver has to look at, see [`Shard::sasl_answered`].
    pub fn poll_sasl(&mut self) -> Option<SaslToken> {
        match &mut self.front {
            None => self.replica.poll_sasl(),
            Some(front) => front.clients.connections_mut().poll_sasl(),
        }
    }

    /// What is to be told to the audit log, in order, where [`crate::Authentication::is_audited`] says so. Nothing of
    /// it is kept for long: take all of it after each input.
    #[inline]
    pub fn poll_audit(&mut self) -> Option<AuditEvent> {
        let of_front = self.front.as_mut().and_then(|front| front.clients.connections_mut().poll_audit());
        of_front.or_else(|| self.replica.poll_audit())
    }

    /// What became of it.
    pub fn sasl_answered(&mut self, id: ConnectionId, xid: i32, step: SaslStep, now: Now) {
        match &mut self.front {
            None => self.replica.sasl_answered(id, xid, step, now),
            Some(front) => {
                front.clients.sasl_answered(id, xid, step);
                front.settle(&mut self.replica, now);
            }
        }
    }

    /// Somebody has connected who says that this is a side connection of a direct client. `None` where there is only
    /// one partition: then nobody needs side connections.
    pub fn connect_side(&mut self, peer: SocketAddr, now: Now) -> Option<Result<ConnectionId, ConnectError>> {
        Some(self.front.as_mut()?.clients.connect_side(peer, now))
    }

    /// Bytes have arrived. Returns how many were consumed; the driver keeps the rest and hands it in
    /// again, with what follows: when more arrives, or, after [`Shard::is_paused`], on
    /// [`Output::Resume`].
    #[inline]
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
        match &mut self.front {
            None => self.replica.receive(id, bytes, now),
            Some(front) => front.receive(&mut self.replica, id, bytes, now),
        }
    }

    /// Whether nothing more should be read from a connection until [`Output::Resume`].
    #[must_use]
    #[inline]
    pub fn is_paused(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(Connection::is_paused)
    }

    /// The socket is closed, by either side. A session that was on it goes on without it.
    pub fn disconnected(&mut self, id: ConnectionId, now: Now) {
        match &mut self.front {
            None => self.replica.disconnected(id, now),
            Some(front) => {
                front.clients.disconnected(id);
                front.settle(&mut self.replica, now);
            }
        }
    }

    /// Another thread of this server has said something. Call [`Shard::settle`] when there is no more of it, before
    /// anything else: what follows from many messages takes less time than what follows from each.
    pub fn hear(&mut self, from: u8, message: ShardMessage, now: Now) {
        if let Some(front) = &mut self.front {
            front.message_of_thread(&mut self.replica, from, message, now);
        }
    }

    /// The next turn of what [`Replica::has_more_to_apply`] tells of.
    pub fn apply_more(&mut self, now: Now) {
        self.replica.apply_more(now);
        self.settle(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        if let Some(front) = &mut self.front {
            front.clients.tick(now);
            // Whoever was heard of is not judged before that is known.
            front.serve_own(&mut self.replica, now);
        }
        self.replica.tick(now);
        self.settle(now);
    }

    /// So many microseconds has this thread had something to do since it began. Load is balanced by that.
    pub fn occupied(&mut self, occupied_us: u64, now: Now) {
        if self.front.is_some() {
            self.replica.occupied(occupied_us, now);
        }
    }

    /// When [`Shard::tick`] is next needed, by the monotonic clock in microseconds.
    #[must_use]
    #[inline]
    pub fn next_wake_us(&self) -> u64 {
        let front = self.front.as_ref().and_then(|front| front.clients.next_wake_us());
        front.unwrap_or(u64::MAX).min(self.replica.next_wake_us())
    }

    /// Passes on what the partition has for clients and the other way round.
    #[inline]
    pub fn settle(&mut self, now: Now) {
        if let Some(front) = &mut self.front {
            front.settle(&mut self.replica, now);
        }
    }

    /// What this thread says to another one, once everything is settled.
    pub fn poll_message(&mut self) -> Option<(u8, ShardMessage)> {
        self.front.as_mut()?.poll_message()
    }

    /// What is to be done with clients' connections.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        match &mut self.front {
            None => self.replica.poll_output(),
            Some(front) => front.clients.poll_output(),
        }
    }

    /// Bytes for a client; say with [`Shard::sent`] what was sent of them.
    #[must_use]
    #[inline]
    pub fn output(&self, id: ConnectionId) -> &[u8] {
        self.connection(id).map(Connection::unsent).unwrap_or_default()
    }

    /// So many bytes of it have been sent.
    #[inline]
    pub fn sent(&mut self, id: ConnectionId, bytes: usize, now: Now) {
        let Some(front) = &mut self.front else { return self.replica.sent(id, bytes) };
        front.clients.sent(id, bytes);
        if !front.clients.is_quiet() {
            front.settle(&mut self.replica, now);
        }
    }

    // ---- what the server's operator may ask ----

    /// The clients of this thread.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.front.as_ref().map_or(self.replica.connections(), |front| front.clients.connections()).iter()
    }

    /// One client of this thread.
    #[must_use]
    #[inline]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.front.as_ref().map_or(self.replica.connections(), |front| front.clients.connections()).get(id)
    }

    /// How many clients this thread has.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.front.as_ref().map_or(self.replica.connections(), |front| front.clients.connections()).len()
    }

    /// Requests of this thread's clients that are under way.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        match &self.front {
            None => self.replica.outstanding(),
            Some(front) => front.clients.connections().iter().map(|(_, client)| client.outstanding()).sum(),
        }
    }

    /// What is counted of this thread's clients. What the partition counts, of requests of all threads' clients, is in
    /// [`Replica::stats`].
    #[must_use]
    pub fn client_stats(&self) -> FrontStats {
        let stats = self.replica.stats();
        match &self.front {
            None => FrontStats {
                packets_received: stats.packets_received,
                bytes_received: stats.bytes_received,
                connections_rejected: stats.connections_rejected,
                connections_dropped: stats.connections_dropped,
                frames_too_large: stats.frames_too_large,
                ..FrontStats::default()
            },
            Some(front) => {
                let mut counted = front.clients.stats();
                counted.connections_dropped += stats.connections_dropped;
                counted
            }
        }
    }

    /// Forgets the counts that the message `srst` forgets.
    pub fn reset_stats(&mut self) {
        self.replica.reset_stats();
        if let Some(front) = &mut self.front {
            front.clients.reset_stats();
        }
    }

    /// Forgets the counts of each connection (the message `crst`).
    pub fn reset_connection_stats(&mut self) {
        match &mut self.front {
            None => self.replica.reset_connection_stats(),
            Some(front) => front.clients.connections_mut().iter_mut().for_each(|it| it.traffic.reset()),
        }
    }
}
