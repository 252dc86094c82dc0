//! Clients of this server's threads, at one partition.
//!
//! Where a server has several partitions, a client is connected to one of its threads, its *front*, and
//! is a remote client at every partition that it asks something: a connection as any other here, only that its
//! frames come from the front one by one and that its output goes there. So reads, writes, watches and
//! their order are the same as with one partition.

use crate::remote_client::ForClient;
use crate::replica::Replica;
use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_front::{
    Attached, Came, CloseReason, Connection, ConnectionId, Frame, Introduction, Output, Phase, RemoteClient,
    Slot, ToClient, ToPartition, by_address,
};
use stoa_partition::{Now, end_of, entry_of};
use stoa_tree::{Identity, WatcherId};
use stoa_wire::{Opcode, Reader, RequestHeader, Timestamp};

impl Replica {
    /// Something of a client that is connected to this front.
    pub(crate) fn receive_from_front(
        &mut self,
        front: u8,
        client: ConnectionId,
        message: ToPartition,
        now: Now,
    ) {
        self.now = now;
        match message {
            ToPartition::Open { who, frame } => self.open_remote(front, client, who, &frame),
            ToPartition::Join { who, session } => drop(self.join_remote(front, client, who, session)),
            ToPartition::Attach { session, password } => self.attach_side(front, client, session, &password),
            ToPartition::Detach => self.detach_side(front, client),
            message => {
                let Some(id) = self.remote(front, client) else { return };
                match message {
                    ToPartition::Identify(frame) => self.identify_remote(id, &frame),
                    ToPartition::Proven(identities) => self.identify(id, identities),
                    ToPartition::Request { seen, placed, frame, pipelined: Some(pipelined) } => {
                        self.remote_pipelined(id, seen, placed, pipelined, frame, now);
                    }
                    ToPartition::Request { seen, placed, frame, pipelined: None } => {
                        // The front has read its header.
                        let Some(frame) = Frame::read(&frame) else { return };
                        self.remote_request(id, seen.as_ref(), placed, &frame, now);
                    }
                    ToPartition::Heard => self.heard_on(id),
                    _ => self.disconnected(id, now),
                }
            }
        }
    }

    fn insert_remote(&mut self, front: u8, client: ConnectionId, who: Introduction) -> ConnectionId {
        let Introduction { address: peer, identities } = who;
        let id = self.clients.connections.insert(peer, self.now);
        self.clients.remote.by_name.insert((front, client), id);
        let seen = Timestamp::new(self.applied.placement.partitions());
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.identities.push(by_address(peer.ip()));
            connection.identities.extend(identities);
            let remote = RemoteClient {
                front,
                client,
                seen,
                since: 0,
                known_at: None,
                rests_at: None,
                is_known: false,
                placed: 0,
                is_told: false,
                last_zxid: 0,
                came: Came::default(),
                gives_back: false,
                is_pipelined: false,
            };
            connection.remote = Some(Box::new(remote));
        }
        id
    }

    /// A client wants a session.
    pub(crate) fn open_remote(&mut self, front: u8, client: ConnectionId, who: Introduction, frame: &[u8]) {
        let id = self.insert_remote(front, client, who);
        self.handshake(id, frame);
    }

    /// A client that has a session comes here for the first time.
    pub(crate) fn join_remote(
        &mut self,
        front: u8,
        client: ConnectionId,
        who: Introduction,
        session: Attached,
    ) -> ConnectionId {
        let id = self.insert_remote(front, client, who);
        self.clients.remote.by_session.insert((session.session, id));
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.phase = if session.read_only { Phase::ReadOnly } else { Phase::Remote };
            connection.session = session.session;
            connection.timeout_ms = session.timeout_ms;
            connection.mode.opening = session.opening;
            connection.mode.came_zxid = session.came_zxid;
            if let Some(remote) = &mut connection.remote {
                remote.since = session.since;
                remote.is_told = true;
            }
        }
        id
    }

    /// A client has proved to be all of this as well.
    pub(crate) fn identify(&mut self, id: ConnectionId, identities: Vec<Identity>) {
        if let Some(connection) = self.clients.connections.get_mut(id)
            && !connection.prove(identities)
        {
            self.stats.auth_failed += 1;
            self.close(id, CloseReason::AuthFailed);
        }
    }

    pub(crate) fn identify_remote(&mut self, id: ConnectionId, frame: &[u8]) {
        let mut reader = Reader::new(frame);
        if RequestHeader::decode(&mut reader).is_ok() {
            // Whoever answers it closes the connection if it proves nothing.
            let _ = self.prove(id, &mut reader);
        }
    }

    /// The connection of a front's client here.
    pub(crate) fn remote(&self, front: u8, client: ConnectionId) -> Option<ConnectionId> {
        self.clients.remote.named(front, client)
    }

    /// What the state here rests on.
    pub(crate) fn stamp(&self) -> &Timestamp {
        &self.applied.stamp
    }

    /// All updates that are yet to be applied here are larger than this zxid: each entry says what its
    /// leader had seen, what he proposes later is larger than that, and so is what the next leader does.
    pub(crate) fn clock(&self) -> i64 {
        self.applied.stamp.zxid()
    }

    /// Others have come to this zxid: what is proposed here from now on is larger, if this server leads.
    /// Returns from where on its timeline that is known.
    pub(crate) fn come_to(&mut self, zxid: i64) -> u64 {
        if !self.prepares() || !self.applied.partition.promise(zxid) {
            return 0;
        }
        self.propose_entry();
        end_of(self.timeline.last())
    }

    /// A request of a remote client. One that has seen more than is applied here waits, and it alone (AGORA,
    /// section IV-C2). That its client was heard of the front says, not with each request.
    #[inline]
    pub(crate) fn remote_request(
        &mut self,
        id: ConnectionId,
        seen: Option<&Timestamp>,
        placed: u64,
        frame: &Frame<'_>,
        now: Now,
    ) {
        self.now = now;
        let own = self.config.partition;
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        if connection.phase == Phase::Closing {
            return;
        }
        connection.traffic.received += 1;
        let Some(remote) = &mut connection.remote else { return };
        // What is proved comes whatever is under way, and says nothing of that.
        if frame.opcode != Some(Opcode::Auth) {
            remote.placed = placed;
            remote.gives_back = false;
        }
        if let Some(seen) = seen {
            remote.has_seen(seen);
            let newest = entry_of(remote.seen.at(own));
            if newest > self.timeline.applied_at().0 {
                let barrier = self.timeline.barrier_at(id, newest);
                self.clients.connections.push_slot(id, Slot::Barrier { id: barrier, answer: None });
            }
        }
        self.stats.packets_received += 1;
        self.leader.load.request(frame.opcode, frame.body(), now.mono_us);
        self.request(id, frame, now.mono_us);
    }

    /// What is proposed next for a remote client rests on what its client has seen, as all does that follows.
    #[inline]
    pub(crate) fn rests_on_remote(&mut self, id: ConnectionId) {
        let remote = self.clients.connections.get_mut(id).and_then(|connection| connection.remote.as_mut());
        let begun = Some(self.applied.partition.abandoned());
        if let Some(remote) = remote.filter(|remote| remote.rests_at != begun) {
            self.applied.partition.depends_on(&remote.seen);
            remote.rests_at = begun;
        }
    }

    /// What a remote client is answered next is about what these partitions have parts of.
    pub(crate) fn answer_when_whole(&mut self, own: Option<ConnectionId>, parts: u64) {
        let remote = own.and_then(|id| self.clients.connections.get(id)?.remote.as_ref());
        if let Some(remote) = remote {
            self.clients.outbox.push_back((remote.front, remote.client, ToClient::Participants(parts)));
        }
    }

    /// What follows writes that are prepared here is about to leave this thread.
    pub(crate) fn promises_are_told(&mut self) {
        self.applied.partition.promises_are_told();
    }

    /// What there is for a client of some front, oldest first.
    pub(crate) fn poll_remote(&mut self) -> Option<ForClient> {
        if let Some((front, client, what)) = self.clients.outbox.pop_front() {
            if matches!(what, ToClient::Prepared(_)) {
                self.promises_are_told();
            }
            return Some(ForClient::Message(front, client, what));
        }
        self.next_for_client()
    }

    /// What there is for clients up to now rests on this, and not on what follows.
    pub(crate) fn stamp_outbox(&mut self) {
        while let Some(next) = self.next_for_client() {
            let message = match next {
                ForClient::Message(front, client, what) => Some((front, client, what)),
                ForClient::Output { client, remote } => {
                    self.frames(remote).map(|frames| (self.config.partition, client, frames))
                }
            };
            self.clients.outbox.extend(message);
        }
    }

    fn next_for_client(&mut self) -> Option<ForClient> {
        loop {
            match self.poll_output()? {
                Output::Send(id) => {
                    let remote =
                        self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
                    let Some(&RemoteClient { front, client, is_told, .. }) = remote.map(Box::as_ref) else {
                        continue;
                    };
                    if !is_told && let Some(attached) = self.newly_attached(id) {
                        // The frames come with the next look.
                        self.clients.connections.announce_first(id);
                        return Some(ForClient::Message(front, client, ToClient::Attached(attached)));
                    }
                    if front == self.config.partition {
                        return Some(ForClient::Output { client, remote: id });
                    }
                    let Some(frames) = self.frames(id) else { continue };
                    return Some(ForClient::Message(front, client, frames));
                }
                // Their fronts do not send more than they may.
                Output::Resume(_) => {}
                Output::Close(id, reason) => {
                    let remote =
                        self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
                    if let Some((front, client)) = remote.map(|remote| (remote.front, remote.client)) {
                        return Some(ForClient::Message(front, client, ToClient::Closed(reason)));
                    }
                }
            }
        }
    }

    fn newly_attached(&mut self, id: ConnectionId) -> Option<Attached> {
        let clock = self.clock();
        let connection = self.clients.connections.get_mut(id)?;
        let Connection { session, timeout_ms, .. } = *connection;
        let (opening, has_come) = (connection.mode.opening, connection.mode.has_come);
        let read_only = connection.phase == Phase::ReadOnly;
        let is_live = read_only || matches!(connection.phase, Phase::Live(_));
        let remote = connection.remote.as_mut().filter(|_| is_live)?;
        if remote.last_zxid > clock && !read_only {
            // Everything is here that anybody was shown before it came; what it has seen is nowhere.
            connection.clear_output();
            self.close(id, CloseReason::ClientAhead);
            return None;
        }
        remote.is_told = true;
        let since = remote.since;
        let programs = self.applied.partition.extensions().concerns(session);
        let came_zxid =
            if has_come { i64::MAX } else { self.applied.partition.tree().told_elsewhere(session) };
        Some(Attached { session, timeout_ms, opening, since, read_only, programs, came_zxid })
    }

    /// What has been written for a remote client, and how many answers are in it.
    pub(crate) fn take_output(&mut self, id: ConnectionId) -> Option<(u32, Vec<u8>)> {
        let connection = self.clients.connections.get_mut(id)?;
        Some(connection.take_output()).filter(|(_, bytes)| !bytes.is_empty())
    }

    pub(crate) fn frames(&mut self, id: ConnectionId) -> Option<ToClient> {
        let (answers, bytes) = self.take_output(id)?;
        Some(ToClient::Frames { answers, bytes, stamp: self.applied.stamp.clone() })
    }

    /// What this partition rests on in the middle of an entry, too: what a client is to ask elsewhere gets a larger zxid than
    /// what that entry has done before.
    pub(super) fn stamp_by_now(&self) -> Timestamp {
        let mut stamp = self.applied.stamp.clone();
        stamp.raise_zxid(self.applied.partition.tree().last_zxid());
        stamp
    }

    /// A connection has ended: its front's client is known here no more.
    pub(crate) fn forget_remote(&mut self, id: ConnectionId, connection: &Connection) {
        self.clients.remote.forget(id, connection);
    }

    /// A session has ended on this partition, and its ephemerals and acknowledgements are gone. Its remote clients are told
    /// nothing any more: that would be what follows the end, and they have not been told of that. The first partition
    /// ends their connections when it comes so far, with the answer before that if they have asked for it.
    pub(crate) fn silence_remote_clients(&mut self, session: i64) {
        let remote: Vec<_> = self.clients.remote.of_session(session).collect();
        for id in remote {
            let connection = self.clients.connections.get_mut(id);
            if let Some(connection) = connection.filter(|connection| connection.phase == Phase::Remote) {
                connection.phase = Phase::Closing;
                self.applied.partition.watches_mut().remove_watcher(WatcherId(id.0));
            }
        }
    }
}
