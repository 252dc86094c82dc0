//! Clients of this server's threads, at one partition.
//!
//! Where a server has several partitions, a client is connected to one of its threads, its *home*, and
//! is a guest at every partition that it asks something: a connection as any other here, only that its
//! frames come from the home one by one and that its output goes there. So reads, writes, watches and
//! their order are the same as with one partition.

use crate::auth;
use crate::catch_up::Came;
use crate::config::Now;
use crate::connection::Output;
use crate::connection::{CloseReason, Connection, ConnectionId, Phase, Slot};
use crate::frame::Frame;
use crate::guest::{ForClient, Guest};
use crate::planted::Bug;
use crate::replica::Replica;
use crate::shard_message::{Attached, ToClient, ToPartition};
use crate::step::{end_of, entry_of};
use crate::timestamp::Timestamp;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use stoa_tree::WatcherId;
use stoa_wire::{Opcode, Reader, RequestHeader};

impl Replica {
    /// Something of a client that is connected to this home.
    pub(crate) fn hear_home(&mut self, home: u8, client: ConnectionId, said: ToPartition, now: Now) {
        self.now = now;
        match said {
            ToPartition::Open { peer, frame } => self.open_guest(home, client, peer, &frame),
            ToPartition::Join { peer, session } => drop(self.join_guest(home, client, peer, session)),
            ToPartition::Attach { session, password } => self.attach_side(home, client, session, &password),
            ToPartition::Detach => self.detach_side(home, client),
            said => {
                let Some(id) = self.guest(home, client) else { return };
                match said {
                    ToPartition::Identify(frame) => self.identify_guest(id, &frame),
                    ToPartition::Request { seen, placed, frame, ahead: Some(ahead) } => {
                        self.guest_ahead(id, seen, placed, ahead, frame, now);
                    }
                    ToPartition::Request { seen, placed, frame, ahead: None } => {
                        // The home has read its header.
                        let Some(frame) = Frame::read(&frame) else { return };
                        self.guest_request(id, seen.as_ref(), placed, &frame, now);
                    }
                    ToPartition::Heard => self.heard_on(id),
                    _ => self.disconnected(id, now),
                }
            }
        }
    }

    fn insert_guest(&mut self, home: u8, client: ConnectionId, peer: SocketAddr) -> ConnectionId {
        let id = self.clients.connections.insert(peer, self.now);
        self.clients.guests.by_name.insert((home, client), id);
        let seen = Timestamp::new(self.applied.placement.partitions());
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.identities.push(auth::by_address(peer.ip()));
            let guest = Guest {
                home,
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
                is_ahead: false,
            };
            connection.guest = Some(Box::new(guest));
        }
        id
    }

    /// A client wants a session.
    pub(crate) fn open_guest(&mut self, home: u8, client: ConnectionId, peer: SocketAddr, frame: &[u8]) {
        let id = self.insert_guest(home, client, peer);
        self.handshake(id, frame);
    }

    /// A client that has a session comes here for the first time.
    pub(crate) fn join_guest(
        &mut self,
        home: u8,
        client: ConnectionId,
        peer: SocketAddr,
        session: Attached,
    ) -> ConnectionId {
        let id = self.insert_guest(home, client, peer);
        self.clients.guests.by_session.insert((session.session, id));
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.phase = if session.read_only { Phase::ReadOnly } else { Phase::Guest };
            connection.session = session.session;
            connection.timeout_ms = session.timeout_ms;
            connection.opening = session.opening;
            if let Some(guest) = &mut connection.guest {
                guest.since = session.since;
                guest.is_told = true;
            }
        }
        id
    }

    pub(crate) fn identify_guest(&mut self, id: ConnectionId, frame: &[u8]) {
        let mut reader = Reader::new(frame);
        if RequestHeader::decode(&mut reader).is_ok() {
            // Whoever answers it closes the connection if it proves nothing.
            let _ = self.prove(id, &mut reader);
        }
    }

    /// The connection of a home's client here.
    pub(crate) fn guest(&self, home: u8, client: ConnectionId) -> Option<ConnectionId> {
        self.clients.guests.named(home, client)
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

    /// A request of a guest. One that has seen more than is applied here waits, and it alone (AGORA,
    /// section IV-C2). That its client was heard of the home says, not with each request.
    #[inline]
    pub(crate) fn guest_request(
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
        connection.received += 1;
        let Some(guest) = &mut connection.guest else { return };
        // What is proved comes whatever is under way, and says nothing of that.
        if frame.opcode != Some(Opcode::Auth) {
            guest.placed = placed;
            guest.gives_back = false;
        }
        if let Some(seen) = seen {
            guest.has_seen(seen);
            let ahead = entry_of(guest.seen.at(own));
            if ahead > self.timeline.applied_at().0 && !self.planted.is(Bug::TimestampIgnored) {
                let barrier = self.timeline.barrier_at(id, ahead);
                self.clients.connections.push_slot(id, Slot::Barrier { id: barrier, answer: None });
            }
        }
        self.stats.packets_received += 1;
        self.leader.load.request(frame.opcode, frame.body(), now);
        self.request(id, frame, now.mono_us);
    }

    /// What is proposed next for a guest rests on what its client has seen, as all does that follows.
    #[inline]
    pub(crate) fn rests_on_guest(&mut self, id: ConnectionId) {
        let guest = self.clients.connections.get_mut(id).and_then(|connection| connection.guest.as_mut());
        let begun = Some(self.applied.partition.abandoned());
        if let Some(guest) = guest.filter(|guest| guest.rests_at != begun) {
            self.applied.partition.depends_on(&guest.seen);
            guest.rests_at = begun;
        }
    }

    /// What a guest is answered next is about what these partitions have parts of.
    pub(crate) fn answer_when_whole(&mut self, own: Option<ConnectionId>, parts: u64) {
        let guest = own.and_then(|id| self.clients.connections.get(id)?.guest.as_ref());
        if let Some(guest) = guest {
            self.clients.said.push_back((guest.home, guest.client, ToClient::Participants(parts)));
        }
    }

    /// What follows writes that are prepared here is about to leave this thread.
    pub(crate) fn promises_are_told(&mut self) {
        self.applied.partition.promises_are_told();
    }

    /// What there is for a client of some home, oldest first.
    pub(crate) fn poll_guest(&mut self) -> Option<ForClient> {
        if let Some((home, client, what)) = self.clients.said.pop_front() {
            if matches!(what, ToClient::Prepared(_)) {
                self.promises_are_told();
            }
            return Some(ForClient::Said(home, client, what));
        }
        self.next_for_client()
    }

    /// What there is for clients up to now rests on this, and not on what follows.
    pub(crate) fn stamp_what_was_said(&mut self) {
        while let Some(next) = self.next_for_client() {
            let said = match next {
                ForClient::Said(home, client, what) => Some((home, client, what)),
                ForClient::Output { client, guest } => {
                    self.frames(guest).map(|frames| (self.config.partition, client, frames))
                }
            };
            self.clients.said.extend(said);
        }
    }

    fn next_for_client(&mut self) -> Option<ForClient> {
        loop {
            match self.poll_output()? {
                Output::Send(id) => {
                    let guest =
                        self.clients.connections.get(id).and_then(|connection| connection.guest.as_ref());
                    let Some(&Guest { home, client, is_told, .. }) = guest.map(Box::as_ref) else { continue };
                    if !is_told && let Some(attached) = self.newly_attached(id) {
                        // The frames come with the next look.
                        self.clients.connections.announce_first(id);
                        return Some(ForClient::Said(home, client, ToClient::Attached(attached)));
                    }
                    if home == self.config.partition {
                        return Some(ForClient::Output { client, guest: id });
                    }
                    let Some(frames) = self.frames(id) else { continue };
                    return Some(ForClient::Said(home, client, frames));
                }
                // Their homes do not send more than they may.
                Output::Resume(_) => {}
                Output::Close(id, reason) => {
                    let guest =
                        self.clients.connections.get(id).and_then(|connection| connection.guest.as_ref());
                    if let Some((home, client)) = guest.map(|guest| (guest.home, guest.client)) {
                        return Some(ForClient::Said(home, client, ToClient::Closed(reason)));
                    }
                }
            }
        }
    }

    fn newly_attached(&mut self, id: ConnectionId) -> Option<Attached> {
        let clock = self.clock();
        let connection = self.clients.connections.get_mut(id)?;
        let Connection { session, timeout_ms, opening, .. } = *connection;
        let read_only = connection.phase == Phase::ReadOnly;
        let is_live = read_only || matches!(connection.phase, Phase::Live(_));
        let guest = connection.guest.as_mut().filter(|_| is_live)?;
        if guest.last_zxid > clock && !read_only {
            // Everything is here that anybody was shown before it came; what it has seen is nowhere.
            connection.output.clear();
            self.close(id, CloseReason::ClientAhead);
            return None;
        }
        guest.is_told = true;
        let since = guest.since;
        let programs = self.applied.partition.extensions.concerns(session);
        Some(Attached { session, timeout_ms, opening, since, read_only, programs })
    }

    /// What has been written for a guest, and how many answers are in it.
    pub(crate) fn take_output(&mut self, id: ConnectionId) -> Option<(u32, Vec<u8>)> {
        let connection = self.clients.connections.get_mut(id)?;
        let bytes = core::mem::take(&mut connection.output);
        let answers = core::mem::take(&mut connection.answers);
        Some((answers, bytes)).filter(|(_, bytes)| !bytes.is_empty())
    }

    pub(crate) fn frames(&mut self, id: ConnectionId) -> Option<ToClient> {
        let (answers, bytes) = self.take_output(id)?;
        Some(ToClient::Frames { answers, bytes, stamp: self.applied.stamp.clone() })
    }

    /// A connection has ended: its home's client is known here no more.
    pub(crate) fn forget_guest(&mut self, id: ConnectionId, connection: &Connection) {
        self.clients.guests.forget(id, connection);
    }

    /// A session has ended on this partition, and its ephemerals and acknowledgements are gone. Its guests are told
    /// nothing any more: that would be what follows the end, and they have not been told of that. The first partition
    /// ends their connections when it comes so far, with the answer before that if they have asked for it.
    pub(crate) fn silence_guests(&mut self, session: i64) {
        let guests: Vec<_> = self.clients.guests.of_session(session).collect();
        for id in guests {
            let connection = self.clients.connections.get_mut(id);
            if let Some(connection) = connection.filter(|connection| connection.phase == Phase::Guest) {
                connection.phase = Phase::Closing;
                self.applied.partition.watches.remove_watcher(WatcherId(id.0));
            }
        }
    }
}
