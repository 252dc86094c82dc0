//! What passes between the clients of a thread, its own partition, and the other threads of its server.

use crate::config::Config;
use crate::remote_client::ForClient;
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::collections::VecDeque;
use stoa_front::{CloseReason, ConnectionId, Front, FrontMessage, Taken, ToClient, ToPartition};
use stoa_partition::{Now, end_of};
use stoa_placement::FIRST;
use stoa_timeline::PartitionMessage;

/// The front of a thread, and what it has for others.
pub(crate) struct ThreadFront {
    pub(crate) clients: Front,
    /// The thread's own partition.
    own: u8,
    /// For other threads.
    outbox: VecDeque<(u8, ShardMessage)>,
    /// Fronts that want to know when a position is applied.
    tell: VecDeque<(u8, u64)>,
}

impl ThreadFront {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            clients: Front::new(config.front()),
            own: config.partition,
            outbox: VecDeque::new(),
            tell: VecDeque::new(),
        }
    }

    /// What this thread says to another one.
    pub(crate) fn poll_message(&mut self) -> Option<(u8, ShardMessage)> {
        self.outbox.pop_front()
    }

    /// Bytes of a client. Returns how many were taken.
    pub(crate) fn receive(
        &mut self,
        replica: &mut Replica,
        id: ConnectionId,
        bytes: &[u8],
        now: Now,
    ) -> usize {
        let mut rest = bytes;
        loop {
            let placed = self.clients.placed();
            self.clients.hand_over_own(id, &mut rest, |remote, frame| {
                replica.remote_request(remote, None, placed, frame, now);
            });
            match self.clients.take_frame(id, &mut rest, now) {
                Some(Taken::Own { remote, frame, has_news }) => {
                    let seen = if has_news { self.clients.seen(id) } else { None };
                    replica.remote_request(remote, seen, placed, &frame, now);
                }
                Some(Taken::Fast { remote, xid, frame }) => replica.remote_fast(remote, xid, frame, now),
                Some(Taken::Elsewhere { remote, xid }) => replica.give_back(remote, xid, now),
                Some(Taken::Done) => self.serve_own(replica, now),
                None => break,
            }
        }
        self.clients.go_on(id);
        self.settle(replica, now);
        let consumed = bytes.len() - rest.len();
        self.clients.received(consumed);
        consumed
    }

    /// Another thread of this server has said something; see [`crate::Shard::hear`].
    pub(crate) fn message_of_thread(
        &mut self,
        replica: &mut Replica,
        from: u8,
        message: ShardMessage,
        now: Now,
    ) {
        let is_put = matches!(message, ShardMessage::Answer(_, ToClient::Prepared(_)));
        if is_put
            || matches!(
                message,
                ShardMessage::Front(FrontMessage::Client(..))
                    | ShardMessage::Forwarded(..)
                    | ShardMessage::Timeline(PartitionMessage::Propose(_))
            )
        {
            self.clients.heard_at(now);
            return self.listen(replica, from, message, now);
        }
        // What clients are told is followed by what they ask next, before the next answer is looked at. And only others
        // have entries applied: nobody is heard of whose session has ended with one before its front is told.
        if !matches!(message, ShardMessage::Answer(..)) {
            // These are rare, and find done what was said before them.
            self.settle(replica, now);
        }
        self.listen(replica, from, message, now);
        self.settle(replica, now);
    }

    fn listen(&mut self, replica: &mut Replica, from: u8, message: ShardMessage, now: Now) {
        match message {
            ShardMessage::Front(FrontMessage::Client(client, what)) => {
                replica.receive_from_front(from, client, what, now);
            }
            ShardMessage::Forwarded(front, client, what) => {
                replica.receive_from_front(front, client, what, now);
            }
            ShardMessage::Answer(client, what) => {
                self.clients.told(from, client, what);
                self.pass_buffer_on(replica);
            }
            ShardMessage::Front(FrontMessage::WatermarkWanted { position, clock }) => {
                let comes = replica.come_to(clock);
                self.tell.push_back((from, comes.max(position)));
            }
            ShardMessage::Watermark { position, clock } => {
                if from == FIRST {
                    replica.sessions_are_told(position);
                }
                self.clients.reached(from, position, clock);
            }
            ShardMessage::Sessions { is_all, position, changed } => {
                replica.sessions_changed(is_all, position, &changed);
            }
            ShardMessage::Leaves { taken, watches } => {
                self.look_at_placement(replica);
                self.clients.watches_leave(taken, watches);
            }
            ShardMessage::Replaced => self.clients.close_all(CloseReason::StateReplaced),
            message => replica.receive_from_partition(from, message, now),
        }
    }

    /// The front knows what lives where as soon as the partition does.
    pub(crate) fn look_at_placement(&mut self, replica: &Replica) {
        // What goes to other sites is in the order of entries, and not of the steps in them (`stoa_partition::whole_entry`).
        self.clients.set_prepares(replica.prepares() && !replica.is_of_sites());
        let is_news = self.clients.placed() != replica.placement().version();
        if is_news {
            self.clients.place(replica.placement().clone(), replica.stamp());
        }
    }

    /// What the partition has to say, to itself or to others.
    fn listen_to_replica(&mut self, replica: &mut Replica, now: Now) {
        replica.tell_leader();
        replica.tell_servers();
        if replica.has_news_of_sessions() {
            self.outbox.extend(replica.poll_sessions_changed());
        }
        while let Some((to, message)) = replica.poll_message() {
            if matches!(message, ShardMessage::Forwarded(..)) {
                replica.promises_are_told();
            }
            self.pass_message_on(replica, to, message, now);
        }
    }

    fn pass_message_on(&mut self, replica: &mut Replica, to: u8, message: ShardMessage, now: Now) {
        if to == self.own {
            self.listen(replica, to, message, now);
        } else {
            self.outbox.push_back((to, message));
        }
    }

    /// Gives the own partition what there is for it.
    pub(crate) fn serve_own(&mut self, replica: &mut Replica, now: Now) {
        let own = self.own;
        while let Some((client, what)) = self.clients.poll_own() {
            let comes = matches!(what, ToPartition::Open { .. } | ToPartition::Join { .. });
            replica.receive_from_front(own, client, what, now);
            if comes {
                self.clients.is_remote(client, replica.remote(own, client));
            }
        }
    }

    /// Passes on what the partition has for clients and the other way round.
    pub(crate) fn settle(&mut self, replica: &mut Replica, now: Now) {
        self.clients.let_go(now);
        let own = self.own;
        loop {
            self.serve_own(replica, now);
            self.listen_to_replica(replica, now);
            self.look_at_placement(replica);
            self.pass_on(replica);
            if self.is_settled(replica) {
                // Clients that have waited for that may go on, and what they ask next comes before whatever
                // is received from now on.
                self.clients.reached(own, end_of(replica.applied()), replica.clock());
            }
            if self.is_settled(replica) {
                break;
            }
            while let Some((to, message)) = self.clients.poll_message() {
                self.pass_message_on(replica, to, ShardMessage::Front(message), now);
            }
        }
        let (position, clock) = (end_of(replica.applied()), replica.clock());
        self.tell.retain(|(front, until)| {
            let is_there = *until <= position;
            if is_there && *front != own {
                self.outbox.push_back((*front, ShardMessage::Watermark { position, clock }));
            }
            !is_there
        });
    }

    fn is_settled(&self, replica: &mut Replica) -> bool {
        self.clients.is_quiet() && !replica.has_messages()
    }

    /// What the partition has for clients.
    fn pass_on(&mut self, replica: &mut Replica) {
        while let Some(next) = replica.poll_remote() {
            match next {
                ForClient::Output { client, remote } => self.give_output(replica, client, remote),
                ForClient::Message(front, client, what) if front == self.own => {
                    self.clients.told(front, client, what);
                }
                ForClient::Message(front, client, what) => {
                    self.outbox.push_back((front, ShardMessage::Answer(client, what)));
                }
            }
        }
    }

    /// Gives a client of this thread what the partition has written for it.
    fn give_output(&mut self, replica: &mut Replica, client: ConnectionId, remote: ConnectionId) {
        let own = self.own;
        let Some((answers, mut bytes)) = replica.take_output(remote) else { return };
        if self.clients.give(own, client, replica.stamp(), answers, &mut bytes) {
            self.clients.connections_mut().recycle(bytes);
        } else {
            let stamp = replica.stamp().clone();
            self.clients.told(own, client, ToClient::Frames { answers, bytes, stamp });
        }
        self.pass_buffer_on(replica);
    }

    /// Buffers come from partitions and are emptied at fronts: as many go from here to other threads as come from
    /// there.
    fn pass_buffer_on(&mut self, replica: &mut Replica) {
        if let Some(buffer) = self.clients.connections_mut().spare() {
            replica.recycle(buffer);
        }
    }
}
