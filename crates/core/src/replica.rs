//! The server as a whole: its parts, its inputs and its outputs.

mod admission;
mod apply;
mod catch_up;
mod controller;
mod coordination;
mod ensemble;
mod handshake;
mod lease;
mod levels;
mod liveness;
mod local;
mod membership;
mod messages;
mod moves;
mod participant;
mod parts;
mod pauses;
mod pipelined;
mod plan;
mod programs;
mod read;
mod read_only;
mod read_tokens;
mod readers;
mod reaper;
mod reign;
mod remote_client;
mod request;
mod second_site;
mod session_table;
mod side;
mod site_moves;
mod site_partitions;
mod site_policy;
mod site_sessions;
mod site_status;
mod site_streams;
mod site_tokens;
mod sites;
mod snapshot;
mod status;

pub use self::reign::ReignRefusal;
pub use self::sites::SITES_PATH;

use self::parts::{Applied, Clients, Leading, Servers, SessionKeeping};
use crate::config::Config;
use crate::second_site::SecondSite;
use crate::session::LiveSession;
use crate::shard_message::ShardMessage;
use crate::sites::SiteLinks;
use crate::stats::Stats;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use stoa_front::{
    AuditEvent, Barred, CloseReason, ConnectError, Connection, ConnectionId, Connections, Frame, Output,
    Phase, SaslToken, Slot, by_address, is_audited,
};
use stoa_group::Entry;
use stoa_partition::{Now, Recovered, State};
use stoa_timeline::{Append, Timeline};
use stoa_tree::{Tree, WatcherId, Watches};
use stoa_wire::{ErrorCode, Opcode, ReplyHeader, begin_frame, end_frame, next_frame};

/// An answer on a connection that waits for an update to be applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) after: i64,
    pub(crate) connection: ConnectionId,
}

/// Warnings that are kept until the driver asks for them.
pub(crate) const WARNINGS_MAX: usize = 16;

/// How long writes are refused without asking the log again, once it had no room.
const NO_ROOM_PAUSE_US: u64 = 500_000;

/// An entry of so many bytes goes down the forest: it waits no longer for others that are on their way, and for no more
/// to go with it. It would hardly be cheaper, and later: who passes it on to five others begins when all of it is there.
const FOREST_ENTRY_BYTES: usize = 32 << 10;

/// What is committed, in its order.
pub(crate) enum Due {
    Entry(Entry),
    /// All that partitions have of an entry of the log that they share.
    Logged(Entry),
    /// A snapshot begins here.
    Snapshot(u64),
}

/// A snapshot that has come from another server.
pub(crate) struct Arrived {
    /// Where it stands in the log: position and term.
    at: (u64, u64),
    /// Of each partition.
    states: Vec<State>,
}

/// One partition's replica on this server: its clients, its state, and what it has to do with the others.
pub struct Replica {
    config: Config,
    clients: Clients,
    sessions: SessionKeeping,
    applied: Applied,
    leader: Leading,
    servers: Servers,
    sites: SiteLinks,
    second_site: SecondSite,
    /// What is replicated.
    timeline: Timeline<ConnectionId>,
    /// For this server's threads, by partition.
    messages: VecDeque<(u8, ShardMessage)>,
    stats: Stats,
    /// When it began, by the wall clock.
    began_ms: i64,
    now: Now,
    /// For the log of whoever drives the server.
    warnings: VecDeque<String>,
}

impl Replica {
    /// A server with what its disk holds. The timers of its sessions start anew. `secret` must be
    /// random: session passwords come from it. `None` when the timeline cannot be what a disk holds:
    /// its vote speaks of entries that are missing, or its members of nobody who could vote.
    #[must_use]
    pub(crate) fn new(config: Config, recovered: Recovered, secret: [u8; 32], now: Now) -> Option<Self> {
        let [hash_seed, stream, question, election] = seeds(&secret);
        let timeline = Timeline::new(
            config.timeline([election, stream, question]),
            &recovered.log(),
            recovered.position,
            &recovered.positions(config.partitions),
            now.mono_us,
        )?;
        let at = timeline.applied_at().0;
        let in_log = if timeline.has_log() { timeline.divided() } else { at };
        let tree = recovered.tree;
        let mut server = Self {
            sessions: SessionKeeping::new(&config, &tree, secret, now),
            applied: Applied::new(&config, tree, &recovered.stamp, at, (hash_seed, secret[0])),
            leader: Leading::new(&config, hash_seed, at, now),
            clients: Clients::default(),
            servers: Servers::default(),
            sites: SiteLinks::new(in_log, recovered.for_sites, now.mono_us),
            second_site: SecondSite::default(),
            config,
            timeline,
            messages: VecDeque::new(),
            stats: Stats::default(),
            began_ms: now.wall_ms,
            now,
            warnings: VecDeque::new(),
        };
        let is_audited = server.config.authentication.is_audited;
        server.clients.connections.set_audited(is_audited);
        server.load_programs();
        server.durability_changed();
        server.tell_growth();
        server.pump();
        Some(server)
    }

    /// A client has connected.
    ///
    /// # Errors
    /// When a limit is reached; the driver closes the socket.
    pub(crate) fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        self.now = now;
        let admitted = self.clients.connections.admit(&self.config.limits, peer, now);
        let id = admitted.inspect_err(|_| self.stats.connections_rejected += 1)?;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.identities.push(by_address(peer.ip()));
        }
        self.clients
            .handshakes
            .push_back((now.mono_us + u64::from(self.config.limits.handshake_ms) * 1000, id));
        Ok(id)
    }

    /// Bytes have arrived. Returns how many were consumed; the driver keeps the rest and hands it in
    /// again, with what follows: when more arrives, or, after [`Replica::is_paused`], on
    /// [`Output::Resume`].
    pub(crate) fn receive(&mut self, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
        self.now = now;
        let mut rest = bytes;
        self.heard_on(id);
        loop {
            let congested = self.is_congested();
            let Some(connection) = self.clients.connections.get_mut(id) else {
                return bytes.len();
            };
            if connection.input.skip > 0 {
                let skipped = connection.input.skip.min(rest.len());
                connection.input.skip -= skipped;
                rest = rest.get(skipped..).unwrap_or_default();
            }
            if connection.phase == Phase::Closing {
                return bytes.len();
            }
            if rest.is_empty() {
                break;
            }
            if congested || connection.is_saturated(&self.config.limits) {
                connection.input.paused = true;
                if congested {
                    self.clients.connections.push_congested(id);
                }
                break;
            }
            match next_frame(rest, self.config.limits.frame_bytes) {
                Ok(Some((frame, tail))) => {
                    connection.traffic.received += 1;
                    self.stats.packets_received += 1;
                    rest = tail;
                    if matches!(connection.phase, Phase::Live(_) | Phase::ReadOnly) {
                        match Frame::read(frame) {
                            Some(frame) => self.request(id, &frame, now.mono_us),
                            None => self.close(id, CloseReason::Malformed),
                        }
                        self.close_large_entry();
                    } else {
                        self.handshake(id, frame);
                    }
                }
                Ok(None) => break,
                Err(error) => match self.oversized(id, rest, error.announced) {
                    Some(consumed) => rest = rest.get(consumed..).unwrap_or_default(),
                    None => break,
                },
            }
        }
        let consumed = bytes.len() - rest.len();
        self.stats.bytes_received += consumed as u64;
        consumed
    }

    /// What was received in this turn has been handled: reads answered in it get their latency.
    pub fn turn_ended(&mut self, now: Now) {
        let latency_us = now.mono_us.saturating_sub(self.now.mono_us);
        self.clients.turn.close(latency_us, &mut self.stats);
        self.now = now;
    }

    /// The socket is closed, by either side. A session that was on it goes on without it.
    pub(crate) fn disconnected(&mut self, id: ConnectionId, now: Now) {
        self.now = now;
        self.applied.partition.watches_mut().remove_watcher(WatcherId(id.0));
        let Some(connection) = self.clients.connections.remove(id) else { return };
        self.forget_remote(id, &connection);
        self.sessions.local.forget(connection.mode.opening, id);
        let held_up = connection.is_held_up(&self.config.limits);
        self.detach(id, connection.session, &connection.phase, held_up);
        self.resume_congested();
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        self.now = now;
        if self.leader.no_room_until_us.is_some_and(|until| until <= now.mono_us) {
            self.leader.no_room_until_us = None;
            self.timeline.lead_if_alone();
        }
        while let Some(&(deadline, id)) = self.clients.handshakes.front()
            && deadline <= now.mono_us
        {
            self.clients.handshakes.pop_front();
            let waiting = self
                .clients
                .connections
                .get(id)
                .is_some_and(|connection| connection.phase == Phase::Handshake);
            if waiting {
                self.close(id, CloseReason::HandshakeTimeout);
            }
        }
        self.end_silent_sessions();
        if self.prepares() {
            self.tend_joining();
            if self.leader.reap_at_us <= now.mono_us {
                self.leader.reap_at_us = now.mono_us + u64::from(self.config.reaping.interval_ms) * 1000;
                self.reap();
            }
        } else {
            self.leader.reap_at_us = self.leader.reap_at_us.max(now.mono_us + 1_000_000);
        }
        self.look_after_tokens();
        self.tend_lease();
        self.give_up_waiting();
        self.tend_held();
        self.end_pauses();
        self.tick_ensemble();
        self.tell_load();
        self.tend_balance();
        self.resume_congested();
    }

    /// Ends the sessions that have been silent for too long: those that only this server knows, and all others where
    /// it leads.
    fn end_silent_sessions(&mut self) {
        let judging = self.prepares();
        if !judging && self.sessions.live.locals() == 0 {
            return;
        }
        let (connections, limits, tree) =
            (&self.clients.connections, &self.config.limits, self.applied.partition.tree());
        // One that is coming back waits for the log, and can say nothing meanwhile.
        let held_up = |session: &LiveSession| {
            let connection = session.connection.and_then(|id| connections.get(id));
            connection.is_some_and(|connection| connection.is_held_up(limits))
                || tree.session_is_changing(session.id)
        };
        for session in self.sessions.live.expired(self.now, judging, held_up) {
            self.stats.sessions_expired += 1;
            if self.sessions.live.local(session).is_some() {
                self.end_local(session, CloseReason::SessionExpired);
            } else {
                self.end_session(session);
            }
        }
    }

    /// When [`Replica::tick`] is next needed, in microseconds of the clock that never goes back.
    #[must_use]
    pub(crate) fn next_wake_us(&self) -> u64 {
        let handshake = self.clients.handshakes.front().map(|(deadline, _)| *deadline);
        let ensemble = self.timeline.next_wake_us();
        let load = [self.leader.load.next_wake_us(), self.next_balance_wake_us()];
        let timers = [handshake, self.sessions.live.next_wake_us(), self.leader.no_room_until_us, ensemble];
        let ends = [self.next_pause_end_us(), self.next_held_end_us()];
        let sites = [self.sites.policy.next_look_us(), self.next_lease_us(), self.sites.kept.resumes_us()];
        timers
            .into_iter()
            .chain(load)
            .chain(ends)
            .chain(sites)
            .flatten()
            .fold(self.leader.reap_at_us, u64::min)
    }

    /// What is to be done with connections, oldest first.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.clients.connections.poll_announced().or_else(|| self.clients.outputs.pop_front())
    }

    pub(crate) fn poll_audit(&mut self) -> Option<AuditEvent> {
        self.clients.connections.poll_audit()
    }

    pub(crate) fn poll_sasl(&mut self) -> Option<SaslToken> {
        self.clients.connections.poll_sasl()
    }

    /// Something that an operator should know: a soft quota that is exceeded, a call of a program that failed.
    pub fn poll_warning(&mut self) -> Option<String> {
        self.warnings.pop_front().or_else(|| self.applied.partition.extensions_mut().poll_warning())
    }

    /// `bytes` of [`crate::Shard::output`] have been sent.
    pub(crate) fn sent(&mut self, id: ConnectionId, bytes: usize) {
        self.clients.connections.advance(id, bytes);
        self.resume(id);
    }

    /// The next record for the log. Asking closes the entry under construction, so the driver asks
    /// once it has handed in everything that had arrived: that is the group commit.
    pub fn poll_append(&mut self) -> Option<Append> {
        if !self.timeline.has_appends() {
            if !self.waits_for_others() {
                self.propose_entry();
                self.timeline.propose_batch();
            }
            self.pump();
        }
        let append = self.timeline.poll_append()?;
        self.stats.log_entries += 1;
        self.stats.log_bytes += append.payload.len() as u64;
        self.applied.snapshots.logged(append.payload.len());
        Some(append)
    }

    /// Bytes of the entry that [`Replica::poll_append`] would close, or 1 when there is something else
    /// to store; 0 when there is nothing, and when what there is has to wait: who is told that there is something asks at
    /// once, and would ask for ever.
    #[must_use]
    pub fn append_bytes(&self) -> usize {
        let proposed = if self.waits_for_others() { 0 } else { self.unproposed_bytes() };
        proposed.max(usize::from(self.timeline.has_appends()))
    }

    /// Whether nothing is on its way to the log, or waits for that.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.unproposed_bytes() == 0 && !self.timeline.has_appends() && self.timeline.in_flight() == 0
    }

    /// Between two requests: proposes the entry under construction where it is as large as one may be that goes down a
    /// forest.
    pub(crate) fn close_large_entry(&mut self) {
        if self.applied.partition.entry_bytes() >= FOREST_ENTRY_BYTES && self.timeline.spreads() {
            self.propose_entry();
        }
    }

    /// Whether the next entry waits, and grows, until some of those that are on their way down the forest are committed.
    #[must_use]
    pub fn waits_for_others(&self) -> bool {
        self.timeline.is_congested() && self.unproposed_bytes() < FOREST_ENTRY_BYTES
    }

    fn unproposed_bytes(&self) -> usize {
        self.applied.partition.entry_bytes() + self.timeline.proposed_bytes()
    }

    /// The log holds everything up to the record at `position`.
    pub fn appended(&mut self, position: u64, now: Now) {
        self.now = now;
        if self.timeline.stored(position) {
            self.take_arrived();
        }
        self.pump();
        self.resume_congested();
    }

    /// The log had no room for records of `generation`, and holds none of them. Where this server
    /// decides alone their writes are answered with an error, and for a moment further ones are
    /// refused without asking the log; elsewhere the others go on without it, and its clients are sent to
    /// them. Returns false when this server cannot go on without what was refused: it must stop.
    pub fn append_refused(&mut self, generation: u64, now: Now) -> bool {
        self.now = now;
        let Some(goes_on) = self.timeline.refused(generation) else { return true };
        self.stats.log_refusals += 1;
        self.has_no_room();
        goes_on
    }

    /// What was proposed is not in the log.
    pub(crate) fn has_no_room(&mut self) {
        let now = self.now;
        // What is committed has another answer than what is refused.
        self.finish_applying();
        self.timeline.has_no_room();
        self.leader.no_room_until_us = Some(now.mono_us + NO_ROOM_PAUSE_US);
        self.sessions.live.reopen_closing(now);
        let alone = self.timeline.is_alone();
        let waiters = core::mem::take(&mut self.clients.waiters);
        if alone {
            self.leader.pending.clear();
            // What stands behind a refused import would leave a gap.
            self.leader.coordination.operations.clear();
            self.sites.divided.news.clear();
            self.forget_moves();
            self.stop_quiescing();
            self.applied.partition.abandon(&self.applied.stamp);
            let mut refused: Vec<_> = waiters.into_iter().map(|waiter| waiter.connection).collect();
            self.timeline.forget_requests(|id| refused.push(id));
            self.sessions.live.stop_upgrading();
            for id in refused {
                // What has left has an outcome elsewhere, and nothing may be answered in its place.
                match self.has_forwarded(id) {
                    true => self.close(id, CloseReason::NoRoom),
                    false => self.refuse_waiting(id),
                }
            }
            self.let_local_return();
        } else {
            self.stop_leading();
            self.close_all(CloseReason::NoRoom);
        }
        // What waited for a part that was open, and is undone now.
        self.apply_committed();
        self.resume_congested();
    }

    /// Answers everything at the head of a connection's queue that rested on refused entries.
    fn refuse_waiting(&mut self, id: ConnectionId) {
        if self.is_misplaced(id) && self.has_asked(id) {
            // What was asked before it may have come back to its front already, and what is behind it would. An answer
            // here and now would overtake both.
            return self.close(id, CloseReason::NoRoom);
        }
        match self.clients.connections.get(id).map(|connection| &connection.phase) {
            Some(Phase::Opening { .. }) => return self.close(id, CloseReason::NoRoom),
            // Writes are not answered there any more (the client may not have read what it was sent just
            // now), so no later read may be either.
            Some(Phase::Closing) => return,
            _ => {}
        }
        let waiting: Vec<_> = core::iter::from_fn(|| self.clients.connections.pop_slot(id)).collect();
        let refused = |xid, opcode, arrived_us| {
            let err = ErrorCode::SystemError as i32;
            Slot::Answer { after: 0, xid, opcode, err, body: Vec::new(), arrived_us }
        };
        for slot in waiting {
            let slot = match slot {
                // An answer that was found against the abandoned state may no longer be true.
                Slot::Write { xid, opcode, arrived_us, .. }
                | Slot::Answer { xid, opcode, arrived_us, .. } => refused(xid, opcode, arrived_us),
                Slot::Barrier { answer: Some(Barred { xid, arrived_us, .. }), .. } => {
                    refused(xid, Opcode::Sync, arrived_us)
                }
                Slot::Barrier { .. } | Slot::Pause { .. } => continue,
                // It has its turn, and may ask for something anew. What is refused behind it waits for that.
                Slot::Request { .. } => slot,
            };
            self.clients.connections.push_slot(id, slot);
        }
        self.drain(id);
    }

    /// Whether a connection waits for the timeline.
    fn has_asked(&self, id: ConnectionId) -> bool {
        let queue = self.clients.connections.get(id).map(Connection::slots);
        let is_asked = |slot: &Slot| matches!(slot, Slot::Write { .. } | Slot::Answer { .. });
        queue.is_some_and(|queue| queue.iter().any(is_asked))
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push_back(warning);
        }
    }

    // ---- shared by the other modules ----

    /// Writes a reply; `latency` is counted from `arrived_us`.
    pub(crate) fn reply(
        &mut self,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        err: i32,
        body: &[u8],
        arrived_us: u64,
    ) {
        if err != 0 {
            self.stats.error(opcode);
        }
        if self.clients.connections.is_audited() && is_audited(opcode) {
            self.clients.connections.audit_reply(id, xid, err, body);
        }
        let connection = self.clients.connections.get(id).filter(|it| it.phase != Phase::Closing);
        let Some(connection) = connection else {
            self.stats.latency(opcode, self.now.mono_us.saturating_sub(arrived_us), 1);
            self.stats.stale_replies += 1;
            return;
        };
        // Heartbeats and auth packets wait behind nothing.
        let (is_held, passes) = (connection.is_held(), matches!(opcode, Opcode::Ping | Opcode::Auth));
        let zxid = match opcode {
            // ZooKeeper answers an auth packet outside the order of zxids, with 0.
            Opcode::Auth => 0,
            // Who was told a zxid is not told again of events before it.
            Opcode::Ping if is_held => connection.traffic.last_zxid,
            _ => self.applied.partition.tree().last_zxid(),
        };
        let connections = &mut self.clients.connections;
        let output = if passes { connections.output_at_once(id) } else { connections.output(id) };
        let Some(output) = output else { return };
        let start = begin_frame(output);
        ReplyHeader { xid, zxid, err }.encode(output);
        output.extend_from_slice(body);
        end_frame(output, start);
        let bytes = output.len() - start;
        self.stats.sent(bytes);
        if is_held && !passes {
            self.clients.connections.note_held(id, opcode, arrived_us, zxid);
        } else {
            self.count_reply(id, opcode, zxid, arrived_us);
        }
        self.check_output(id);
    }

    /// An answer may be sent from now on.
    #[inline]
    fn count_reply(&mut self, id: ConnectionId, opcode: Opcode, zxid: i64, arrived_us: u64) {
        let now_us = self.now.mono_us;
        let latency_us = now_us.saturating_sub(arrived_us);
        self.stats.latency(opcode, latency_us, 1);
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.answered(zxid, latency_us, now_us);
        }
    }

    /// Closes a connection whose client does not read.
    pub(crate) fn check_output(&mut self, id: ConnectionId) {
        let limit = self.config.limits.output_close_bytes;
        if self.clients.connections.get(id).is_some_and(|connection| connection.output_bytes() > limit) {
            self.close(id, CloseReason::SlowReader);
        }
    }

    /// Ends a connection; what has been written so far may still be sent.
    pub(crate) fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        let held_up = connection.is_held_up(&self.config.limits);
        let Some(phase) = connection.close(reason) else { return };
        let session = connection.session;
        self.sessions.local.forget(connection.mode.opening, id);
        if !matches!(reason, CloseReason::SessionClosed | CloseReason::Operator) {
            self.stats.connections_dropped += 1;
        }
        self.detach(id, session, &phase, held_up);
        self.applied.partition.watches_mut().remove_watcher(WatcherId(id.0));
        self.clients.outputs.push_back(Output::Close(id, reason));
    }

    /// The client of a connection has been heard of, or could not be for our sake.
    pub(crate) fn heard_on(&mut self, id: ConnectionId) {
        match self.clients.connections.get(id).map(|connection| (&connection.phase, connection.session)) {
            Some((&Phase::Live(key), _)) => self.sessions.live.touch(key, self.now),
            Some((Phase::ReadOnly, session)) => self.hear_read_only_session(session),
            _ => {}
        }
    }

    /// A session loses its connection, if this is it. It has its whole timeout to come back when it may
    /// have been speaking to a server that did not listen.
    fn detach(&mut self, id: ConnectionId, session: i64, phase: &Phase, held_up: bool) {
        let Phase::Live(key) = *phase else {
            self.sessions.read_only.leave(session, id);
            return;
        };
        self.end_sides(id);
        if self.sessions.live.get(key).is_some_and(|session| session.connection == Some(id)) {
            if held_up {
                self.sessions.live.touch(key, self.now);
            }
            if self.sessions.live.is_closed(key) {
                self.sessions.live.remove(session);
            } else {
                self.sessions.live.attach(key, None);
            }
        }
    }

    /// Whether the server as a whole has as much under way as it may.
    fn is_congested(&self) -> bool {
        let limits = &self.config.limits;
        self.clients.connections.outstanding() >= limits.outstanding
            || self.applied.partition.queued_bytes() + self.timeline.asked_bytes() >= limits.log_queue_bytes
    }

    /// Lets a paused connection go on if it has room again. Congestion is the server's doing, so its
    /// session counts as heard of.
    pub(crate) fn resume(&mut self, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id).filter(|connection| connection.input.paused)
        else {
            return;
        };
        if connection.is_saturated(&self.config.limits) {
            return;
        }
        if self.is_congested() {
            self.clients.connections.push_congested(id);
            return;
        }
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        connection.input.paused = false;
        self.heard_on(id);
        self.clients.outputs.push_back(Output::Resume(id));
    }

    /// Lets the connections go on that were stopped when the server had too much under way.
    pub(crate) fn resume_congested(&mut self) {
        while self.clients.connections.has_congested() && !self.is_congested() {
            if let Some(id) = self.clients.connections.pop_congested() {
                self.resume(id);
            }
        }
    }

    fn oversized(&mut self, id: ConnectionId, rest: &[u8], announced: i32) -> Option<usize> {
        let len = usize::try_from(announced).ok().filter(|len| *len <= self.config.limits.frame_skip_bytes);
        let live = matches!(self.clients.connections.get(id)?.phase, Phase::Live(_) | Phase::ReadOnly);
        let Some(len) = len.filter(|_| live) else {
            self.stats.frames_too_large += 1;
            self.close(id, CloseReason::BadFrame);
            return None;
        };
        // Wait for the request's header: its xid is needed for the answer.
        let header = rest.get(4..12)?;
        self.stats.frames_too_large += 1;
        self.stats.packets_received += 1;
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.traffic.received += 1;
            connection.input.skip = len + 4;
        }
        self.too_large(id, header);
        Some(0)
    }

    /// The connections: of clients, or of those of any front, where there are several partitions.
    pub(crate) fn connections(&self) -> &Connections {
        &self.clients.connections
    }

    /// A buffer is empty that can be used again.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.clients.connections.recycle(buffer);
    }

    // ---- what the server's operator may ask ----

    /// Counters and histograms.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Forgets latencies and packet counts (the word `srst`).
    pub(crate) fn reset_stats(&mut self) {
        self.stats.reset();
    }

    /// Forgets the counts of each connection (the word `crst`).
    pub(crate) fn reset_connection_stats(&mut self) {
        self.clients.connections.iter_mut().for_each(|connection| connection.traffic.reset());
    }

    /// The live sessions.
    pub fn live_sessions(&self) -> impl Iterator<Item = &LiveSession> {
        self.sessions.live.iter()
    }

    /// Number of live sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.live.len()
    }

    /// Requests under way.
    #[must_use]
    pub(crate) fn outstanding(&self) -> usize {
        self.clients.connections.outstanding()
    }

    /// The state.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        self.applied.partition.tree()
    }

    /// What each session watches.
    pub fn watched_paths(&self) -> impl Iterator<Item = (i64, impl Iterator<Item = &str>)> {
        let of_sessions = self.clients.connections.iter().filter(|(_, connection)| connection.session != 0);
        of_sessions.map(|(id, connection)| {
            (connection.session, self.applied.partition.watches().paths_of(WatcherId(id.0)))
        })
    }

    /// The watches.
    #[must_use]
    pub fn watches(&self) -> &Watches {
        self.applied.partition.watches()
    }

    /// Up to which position of the log everything is applied here, at the first partition.
    #[must_use]
    pub fn log_applied(&self) -> u64 {
        self.timeline.divided() - u64::from(!self.applied.committed.is_empty())
    }

    /// Position of the last applied entry.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.timeline.applied_at().0
    }

    /// Entries with the log, and bytes proposed and not applied.
    #[must_use]
    pub fn log_queue(&self) -> (usize, usize) {
        (self.timeline.in_flight(), self.applied.partition.queued_bytes())
    }

    /// Bytes of requests that are kept until they have an outcome, because they may have to be asked
    /// again.
    #[must_use]
    pub fn asked_bytes(&self) -> usize {
        self.timeline.asked_bytes()
    }

    /// Whether writes are being refused because the log has no room.
    #[must_use]
    pub fn is_out_of_room(&self) -> bool {
        self.leader.no_room_until_us.is_some()
    }

    /// Closes all connections; their sessions go on without them.
    pub(crate) fn close_all(&mut self, reason: CloseReason) {
        let open: Vec<_> = self.clients.connections.iter().map(|(id, _)| id).collect();
        for id in open {
            self.close(id, reason);
        }
    }

    /// Closes a connection; its session goes on without it.
    pub fn drop_connection(&mut self, id: ConnectionId) {
        self.close(id, CloseReason::Operator);
    }
}

/// Random numbers that have nothing to do with each other.
fn seeds(secret: &[u8; 32]) -> [u64; 4] {
    let (words, _) = secret.as_chunks::<8>();
    let mut seeds = [0; 4];
    for (seed, word) in seeds.iter_mut().zip(words) {
        // The secret itself stays secret.
        *seed = foldhash::fast::FixedState::with_seed(u64::from_le_bytes(*word)).hash_one(0xb5_u8);
    }
    seeds
}
