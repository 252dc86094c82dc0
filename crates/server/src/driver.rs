//! The thread of a partition: moves bytes and time between sockets, the disk's threads and the core.
//!
//! One current-thread runtime, one task a connection, one shared read buffer. A turn of a connection
//! is: read all that its socket has, hand it to the core, write all that came of it with one call.
//! Entries for the log are collected while the runtime works off what is ready, and handed over by a
//! task that was queued behind it: that is the group commit on this side.

mod connections;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use stoa_core::{Append, CloseReason, ConnectionId, Now, Output, SaslToken, Shard, SnapshotOutput};
use stoa_sasl::Exchange;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::alarm::Alarm;
use crate::audit::Event;
use crate::availability::Seen;
use crate::clock::Clock;
use crate::ensemble::{Ensemble, StoredSnapshot};
use crate::log_thread::{DiskEvent, FIRST, LogRequest, Reports};
use crate::meter::LogMeter;
use crate::occupied::Occupied;
use crate::peers::PeerEvent;
use crate::process::{Process, Serves};
use crate::sasl::ClientSasl;
use crate::sites::Sites;
use crate::snapshot_thread::SnapshotRequest;
use crate::source;
use crate::threads::Neighbours;
use crate::tls::Channel;
use crate::view::{Mode, SnapshotDone, Startup};
use crate::words::{self, Word};

/// The read buffer that all connections of a thread share.
const READ_BUFFER_BYTES: usize = 256 << 10;
/// So much of a client with TLS is read at a time: two records of the largest kind.
const RECORDS_BYTES: usize = 32 << 10;
/// Up to this much of an unfinished frame is moved into the shared buffer before reading on.
const CARRY_BYTES_MAX: usize = 64 << 10;
/// With so much to store the log need not wait for more: a few hundred small writes.
const ENTRY_BYTES_ENOUGH: usize = 32 << 10;
/// How often to look how long the thread has had something to do: often enough for who compares threads.
const OCCUPIED_US: u64 = 10_000;

/// One connection's socket and what its task must know.
pub(crate) struct Peer {
    writer: OwnedWriteHalf,
    /// Where it is not in the clear.
    channel: Option<RefCell<Channel>>,
    /// How far it is with SASL.
    exchange: RefCell<Option<Exchange>>,
    /// Bytes received that the core did not consume yet.
    carry: RefCell<Vec<u8>>,
    /// Output could not be written at once: the task waits for the socket.
    blocked: Cell<bool>,
    /// The core wants no more bytes for now.
    paused: Cell<bool>,
    /// The core can take more again.
    resume: Cell<bool>,
    /// The connection ends, for the core's sake or because the server stops.
    closing: Cell<bool>,
    /// The server is about to stop: nothing is read any more.
    leaving: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Peer {
    /// How much of the shared buffer is left for what waits already; a longer wait is collected
    /// where it is.
    fn carried(&self) -> usize {
        match self.carry.borrow().len() {
            len @ ..=CARRY_BYTES_MAX => len,
            _ => 0,
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// What a partition's thread shares with other threads.
pub(crate) struct Surroundings {
    pub(crate) log: Sender<LogRequest>,
    pub(crate) snapshot: Sender<SnapshotRequest>,
    pub(crate) meter: Arc<Mutex<LogMeter>>,
    pub(crate) startup: Startup,
    /// The last record in the log.
    pub(crate) durable: u64,
    /// To stop the server.
    pub(crate) reports: Reports,
    /// This thread's partition.
    pub(crate) partition: u8,
    /// The other threads, where there are several partitions.
    pub(crate) neighbours: Option<Neighbours>,
}

/// What the connections of a thread share.
pub(crate) struct Driver {
    pub(crate) server: RefCell<Shard>,
    pub(crate) clock: Clock,
    /// When the last input came: what follows from it happens then.
    now: Cell<Now>,
    pub(crate) process: Arc<Process>,
    pub(crate) surroundings: Surroundings,
    peers: RefCell<HashMap<ConnectionId, Rc<Peer>>>,
    /// Connections that begin or end. When thousands do at once, and each is a task that can run, whoever is served
    /// would wait behind all of them: so most of them wait here instead.
    changes: Semaphore,
    read_buffer: RefCell<Box<[u8]>>,
    /// There may be an entry for the log.
    append_due: Notify,
    /// There may be a piece of a snapshot to hand out.
    snapshot_due: Notify,
    /// More is committed than was applied in this turn.
    apply_due: Notify,
    /// Whoever asked for a snapshot.
    pub(crate) snapshot_waiters: RefCell<Vec<oneshot::Sender<Result<SnapshotDone, String>>>>,
    pub(crate) handshakes_expired: Cell<u64>,
    pub(crate) snapshot_progress: Cell<Option<(u64, u64)>>,
    /// What the partition serves, as far as that was told.
    told: Cell<Option<(Serves, Option<u8>)>>,
    /// The other servers, when there are any.
    pub(crate) ensemble: OnceCell<Ensemble>,
    /// The other sites, when there are any.
    pub(crate) sites: OnceCell<Rc<Sites>>,
    /// The file of the snapshot that is being taken over, and the record that builds on it.
    taking_over: RefCell<Option<(String, Option<Append>)>>,
    /// The log holds the records up to this one.
    durable: Cell<u64>,
    /// Rings when the core's timers have to be looked at.
    alarm: Alarm,
}

/// How many connections begin or end at a time, see [`Driver::changes`]: so few that nobody notices.
const CHANGES_AT_A_TIME: usize = 8;

/// What a connection's task was woken by.
enum Woken {
    /// Bytes, their end (0), or a failure of the socket.
    Read(io::Result<usize>),
    /// The core wants something, or the socket takes bytes again.
    Other,
}

/// What becomes of a socket when its connection is over here.
enum End {
    /// Nobody is there any more, or nothing is to be said.
    Gone,
    /// This is still to be delivered.
    Farewell(Vec<u8>),
    /// It is a side connection, for this partition.
    Side(u8),
}

impl Driver {
    pub(crate) fn new(
        server: Shard,
        clock: Clock,
        process: Arc<Process>,
        surroundings: Surroundings,
    ) -> Rc<Self> {
        Rc::new(Self {
            server: RefCell::new(server),
            now: Cell::new(clock.now()),
            clock,
            process,
            durable: Cell::new(surroundings.durable),
            surroundings,
            peers: RefCell::new(HashMap::new()),
            changes: Semaphore::new(CHANGES_AT_A_TIME),
            read_buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
            append_due: Notify::new(),
            snapshot_due: Notify::new(),
            apply_due: Notify::new(),
            snapshot_waiters: RefCell::new(Vec::new()),
            handshakes_expired: Cell::new(0),
            snapshot_progress: Cell::new(None),
            told: Cell::new(None),
            ensemble: OnceCell::new(),
            sites: OnceCell::new(),
            taking_over: RefCell::new(None),
            alarm: Alarm::default(),
        })
    }

    /// The time, now that there is another input.
    pub(crate) fn now(&self) -> Now {
        let now = self.clock.now();
        self.now.set(now);
        now
    }

    /// Hands over what clients have changed.
    fn tell_audit(&self) {
        let Some(audit) = self.process.audit() else { return };
        while let Some(event) = self.server.borrow_mut().poll_audit() {
            audit.tell(Event::Client(event));
        }
    }

    /// What a four-letter word answers.
    async fn answer(&self, word: Word, argument: Vec<u8>) -> String {
        match &self.surroundings.neighbours {
            Some(neighbours) => neighbours.together.answer(word, argument, &self.process).await,
            None => {
                let mut source: &Self = self;
                words::answer(word, &argument, &self.process, &mut source)
            }
        }
    }

    /// Hands in what was read into the shared buffer, behind `carried` bytes that wait already.
    fn take_in(&self, id: ConnectionId, peer: &Peer, carried: usize, len: usize) {
        let mut buffer = self.read_buffer.borrow_mut();
        let mut carry = peer.carry.borrow_mut();
        if carry.len() > carried {
            // The rest of a long frame: collected where its start is.
            carry.extend_from_slice(&buffer[..len]);
            let collected = std::mem::take(&mut *carry);
            drop((buffer, carry));
            self.hand_in(id, peer, &collected);
            return;
        }
        buffer[..carried].copy_from_slice(&carry);
        carry.clear();
        if carry.capacity() > CARRY_BYTES_MAX {
            *carry = Vec::new();
        }
        drop(carry);
        self.hand_in(id, peer, &buffer[..carried + len]);
    }

    fn hand_in(&self, id: ConnectionId, peer: &Peer, bytes: &[u8]) {
        {
            let mut server = self.server.borrow_mut();
            let consumed = server.receive(id, bytes, self.now());
            peer.paused.set(server.is_paused(id));
            let rest = &bytes[consumed..];
            if !rest.is_empty() {
                peer.carry.borrow_mut().extend_from_slice(rest);
            }
            server.turn_ended(self.now());
        }
        if let Some(sasl) = &self.process.sasl {
            self.answer_tokens(sasl);
        }
        self.after_input();
    }

    /// Looks at the tokens that clients have sent.
    fn answer_tokens(&self, sasl: &ClientSasl) {
        let mut server = self.server.borrow_mut();
        while let Some(SaslToken { connection, xid, token }) = server.poll_sasl() {
            let Some(peer) = self.peer(connection) else { continue };
            let (step, why) = sasl.step(&mut peer.exchange.borrow_mut(), &token);
            if let Some(why) = why {
                let address = server.connection(connection).map(|connection| connection.peer);
                let address = address.map(|address| address.to_string()).unwrap_or_default();
                self.process.complaints.say(&format!("connection from {address}: SASL failed: {why}"));
            }
            server.sasl_answered(connection, xid, step, self.now());
        }
    }

    /// Carries out what the core wants done after an input.
    pub(crate) fn after_input(&self) {
        self.carry_to_peers();
        if let Some(sites) = self.sites.get() {
            sites.carry(self);
        }
        self.take_over_when_stored();
        self.speak();
        self.follow_quorum();
        loop {
            let output = self.server.borrow_mut().poll_output();
            match output {
                Some(Output::Send(id)) => {
                    if let Some(peer) = self.peer(id)
                        && !peer.blocked.get()
                    {
                        self.send(id, &peer);
                    }
                }
                Some(Output::Resume(id)) => {
                    if let Some(peer) = self.peer(id) {
                        peer.resume.set(true);
                        peer.wake();
                    }
                }
                Some(Output::Close(id, reason)) => self.close(id, reason),
                None => break,
            }
        }
        // What was sent may have let a client go on.
        self.speak();
        self.tell_audit();
        if self.server.borrow().append_bytes() > 0 {
            self.append_due.notify_one();
        }
        if self.server.borrow().is_snapshotting() {
            self.snapshot_due.notify_one();
        }
        if self.server.borrow().has_more_to_apply() {
            self.apply_due.notify_one();
        }
        self.alarm.set(self.server.borrow().next_wake_us());
    }

    /// Says what this thread has to say to the others of this server.
    pub(crate) fn speak(&self) {
        let Some(neighbours) = &self.surroundings.neighbours else { return };
        let mut server = self.server.borrow_mut();
        self.settle(&mut server);
        neighbours.say_all(core::iter::from_fn(|| server.poll_message()));
    }

    /// Settles what there is, and carries what is for readers and for the parent: before other threads hear of anything.
    pub(crate) fn settle(&self, server: &mut Shard) {
        server.settle(self.now.get());
        let ensemble = self.ensemble.get();
        while ensemble.is_some_and(|ensemble| ensemble.carry_ties(server)) {
            server.settle(self.now.get());
        }
    }

    /// Carries what the core has for the other servers.
    fn carry_to_peers(&self) {
        loop {
            if let Some(ensemble) = self.ensemble.get() {
                ensemble.carry_ties(&mut self.server.borrow_mut());
            }
            let output = self.server.borrow_mut().poll_peer();
            match (output, self.ensemble.get()) {
                (Some(output), Some(ensemble)) => {
                    let carried = ensemble.carry(output, &mut self.server.borrow_mut(), &self.clock);
                    if let Err(why) = carried {
                        self.surroundings.reports.tell(FIRST, DiskEvent::Failed(why));
                    }
                }
                // Nobody is there yet.
                (Some(_), None) => {}
                (None, ensemble) => {
                    if let Some(ensemble) = ensemble {
                        ensemble.flush();
                    }
                    return;
                }
            }
        }
    }

    /// Tells whoever looks from outside what this partition serves, and who leads.
    fn follow_quorum(&self) {
        let server = self.server.borrow();
        let served_all = self.told.get().is_some_and(|(served, _)| served == Serves::All);
        // Whoever is alone serves reads also while its disk is full, when it cannot lead itself.
        let is_alone = || source::mode(&server.status()) == Mode::Standalone;
        let serves = if server.is_read_only() {
            Serves::Reads
        } else if server.serves() || served_all && is_alone() {
            Serves::All
        } else {
            Serves::Nothing
        };
        let leader = server.leader();
        if self.told.replace(Some((serves, leader))) != Some((serves, leader)) {
            let standing = server.status();
            let votes = standing.voters.contains(&standing.id);
            let seen = Seen { serves, leader, mode: source::mode(&standing), votes };
            self.process.follow(self.surroundings.partition, seen);
        }
    }

    fn peer(&self, id: ConnectionId) -> Option<Rc<Peer>> {
        self.peers.borrow().get(&id).cloned()
    }

    fn close(&self, id: ConnectionId, reason: CloseReason) {
        if reason == CloseReason::HandshakeTimeout {
            self.handshakes_expired.set(self.handshakes_expired.get() + 1);
        }
        let Some(peer) = self.peer(id) else { return };
        let address = self.server.borrow().connection(id).map(|connection| connection.peer);
        if let Some(address) = address {
            match reason {
                CloseReason::SessionClosed => tracing::debug!("connection from {address}: {reason}"),
                _ => tracing::info!("connection from {address} closed: {reason}"),
            }
        }
        peer.closing.set(true);
        peer.wake();
    }

    /// Writes what there is for a connection, as much as its socket takes.
    fn send(&self, id: ConnectionId, peer: &Peer) {
        if let Some(channel) = &peer.channel {
            return self.send_enciphered(id, peer, &mut channel.borrow_mut());
        }
        let mut server = self.server.borrow_mut();
        loop {
            let output = server.output(id);
            if output.is_empty() {
                peer.blocked.set(false);
                return;
            }
            match peer.writer.try_write(output) {
                Ok(sent) => server.sent(id, sent, self.now.get()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    peer.blocked.set(true);
                    peer.wake();
                    return;
                }
                Err(_) => {
                    // The read side learns of it too, and ends the connection.
                    let len = output.len();
                    server.sent(id, len, self.now.get());
                    peer.closing.set(true);
                    peer.wake();
                    return;
                }
            }
        }
    }

    /// The same for who has TLS. What is enciphered counts as sent, and is no more than the channel holds.
    fn send_enciphered(&self, id: ConnectionId, peer: &Peer, channel: &mut Channel) {
        let mut server = self.server.borrow_mut();
        loop {
            match channel.flush(&peer.writer) {
                Ok(true) => {}
                Ok(false) => {
                    peer.blocked.set(true);
                    return peer.wake();
                }
                Err(_) => {
                    let len = server.output(id).len();
                    server.sent(id, len, self.now.get());
                    peer.closing.set(true);
                    return peer.wake();
                }
            }
            let output = server.output(id);
            if output.is_empty() {
                return peer.blocked.set(false);
            }
            let taken = channel.put(output);
            server.sent(id, taken, self.now.get());
        }
    }

    /// Hands entries to the log's thread, behind everything that was ready when they were made.
    ///
    /// A sync costs as much as a hundred requests, and the answers to one batch bring the next
    /// requests within microseconds. So the sockets are looked at again for as long as each look
    /// brings some: those who write in step then share one sync, instead of two in turns.
    pub(crate) async fn feed_log(self: Rc<Self>) {
        loop {
            self.append_due.notified().await;
            let mut seen = 0;
            loop {
                let bytes = self.server.borrow().append_bytes();
                if bytes == seen || bytes >= ENTRY_BYTES_ENOUGH {
                    break;
                }
                seen = bytes;
                // Behind the sockets: a task that yields runs again when they have been asked.
                tokio::task::yield_now().await;
            }
            if !self.log_entries() {
                return;
            }
            if self.server.borrow().append_bytes() > 0 {
                // What is left waits for something that has to come in first.
                tokio::task::yield_now().await;
            }
            // What was asked meanwhile may have been taken, and answered, only now.
            self.after_input();
        }
    }

    /// Hands the log what there is for it; false when its thread is gone.
    pub(crate) fn log_entries(&self) -> bool {
        loop {
            let append = self.server.borrow_mut().poll_append();
            let Some(append) = append else { break };
            if !self.hand_to_log(append) {
                return false;
            }
        }
        // The others store it at the same time.
        self.carry_to_peers();
        self.speak();
        true
    }

    /// Hands a record to the log; false when its thread is gone.
    fn hand_to_log(&self, append: Append) -> bool {
        if append.snapshot.is_none() {
            return self.surroundings.log.send(LogRequest::Append(append)).is_ok();
        }
        if let Some((_, waiting)) = &mut *self.taking_over.borrow_mut() {
            *waiting = Some(append);
        }
        self.take_over_when_stored()
    }

    /// Whether a snapshot of another server has come, and is not this one's state yet.
    pub(crate) fn is_taking_over(&self) -> bool {
        self.taking_over.borrow().is_some()
    }

    /// The snapshot that has come covers every record before its own, so those must be in the log; then
    /// it follows those that are being written.
    fn take_over_when_stored(&self) -> bool {
        let mut taking_over = self.taking_over.borrow_mut();
        let is_due = |(_, append): &mut (String, Option<Append>)| {
            append.as_ref().is_some_and(|append| append.position <= self.durable.get() + 1)
        };
        let Some((file, Some(append))) = taking_over.take_if(is_due) else { return true };
        loop {
            let piece = self.server.borrow_mut().poll_snapshot();
            let Some(piece) = piece else { break };
            if !self.hand_to_snapshot(piece) {
                return false;
            }
        }
        self.surroundings.snapshot.send(SnapshotRequest::TakeOver { append, file }).is_ok()
    }

    /// Hands a snapshot's slices to their thread, one between other work.
    pub(crate) async fn feed_snapshot(self: Rc<Self>) {
        loop {
            self.snapshot_due.notified().await;
            loop {
                let piece = self.server.borrow_mut().poll_snapshot();
                let Some(piece) = piece else { break };
                self.follow_snapshot(&piece);
                if !self.hand_to_snapshot(piece) {
                    return;
                }
                // The other threads have pieces of it too, behind its beginning.
                self.speak();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Applies what is committed and was too much for one turn, a turn's worth between other work, for ever.
    async fn apply_rest(self: Rc<Self>) {
        loop {
            self.apply_due.notified().await;
            // Behind the sockets.
            tokio::task::yield_now().await;
            let now = self.now();
            self.server.borrow_mut().apply_more(now);
            self.after_input();
        }
    }

    /// Hands a piece to the snapshots' thread; false when that is gone.
    fn hand_to_snapshot(&self, piece: SnapshotOutput) -> bool {
        let partition = self.surroundings.partition;
        self.surroundings.snapshot.send(SnapshotRequest::Piece { partition, piece }).is_ok()
    }

    fn follow_snapshot(&self, piece: &SnapshotOutput) {
        let progress = match piece {
            SnapshotOutput::Begin { .. } => Some((0, self.server.borrow().tree().data_bytes())),
            SnapshotOutput::Slice { bytes, .. } => {
                self.snapshot_progress.get().map(|(done, all)| (done + bytes.len() as u64, all))
            }
            SnapshotOutput::End { .. } | SnapshotOutput::Abort { .. } => self.snapshot_progress.get(),
        };
        self.snapshot_progress.set(progress);
    }

    /// Takes up the work of this thread, in tasks of its own. Must be called on a `LocalSet`.
    pub(crate) fn begin(self: &Rc<Self>) {
        self.after_input();
        tokio::task::spawn_local(Rc::clone(self).feed_log());
        tokio::task::spawn_local(Rc::clone(self).feed_snapshot());
        tokio::task::spawn_local(Rc::clone(self).apply_rest());
        tokio::task::spawn_local(Rc::clone(self).keep_time());
    }

    /// Everything that the disk's threads have reported. `Err` when the server must stop.
    pub(crate) fn disk_events(
        &self,
        first: Option<DiskEvent>,
        events: &mut UnboundedReceiver<DiskEvent>,
    ) -> Result<(), String> {
        let mut event = Some(first.ok_or("the log's thread has ended")?);
        while let Some(next) = event {
            self.disk_event(next)?;
            event = events.try_recv().ok();
        }
        self.after_input();
        Ok(())
    }

    /// What the disk's threads report; call [`Driver::after_input`] then. `Err` when the server must
    /// stop.
    fn disk_event(&self, event: DiskEvent) -> Result<(), String> {
        let now = self.now();
        {
            let mut server = self.server.borrow_mut();
            match event {
                DiskEvent::Durable(position) => {
                    self.durable.set(position);
                    server.appended(position, now);
                }
                DiskEvent::Refused(generation) => {
                    if !server.append_refused(generation, now) {
                        return Err("there is no room for the state of another server".into());
                    }
                }
                DiskEvent::Failed(why) => return Err(why),
                DiskEvent::SliceTaken => server.snapshot_taken(),
                DiskEvent::TakenOver(stored) => self.remember(stored),
                DiskEvent::SnapshotLoaded { from, header, file, states } => match states {
                    Ok(states) => {
                        *self.taking_over.borrow_mut() = Some((file, None));
                        let from = u8::try_from(from).unwrap_or(0);
                        if server.take_over(from, header, states, now).is_err() {
                            tracing::warn!("server {from} has sent a snapshot without its message");
                        }
                    }
                    Err(why) if self.process.settings.is_reader() => {
                        tracing::warn!("the snapshot of the parent cannot be used: {why}");
                        server.parent_snapshot_declined(now);
                    }
                    Err(why) => tracing::warn!("the snapshot of server {from} cannot be used: {why}"),
                },
                DiskEvent::NoSnapshot { to } => server.snapshot_sent(to, None, now),
                DiskEvent::SnapshotFinished { number, result } => {
                    server.snapshot_finished(number, result.is_ok());
                    self.snapshot_progress.set(None);
                    let zxid = server.tree().last_zxid();
                    let done = result.map(|(bytes, stored)| {
                        self.remember(stored);
                        SnapshotDone { zxid, bytes }
                    });
                    for waiter in self.snapshot_waiters.borrow_mut().drain(..) {
                        let _ = waiter.send(done.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn remember(&self, snapshot: StoredSnapshot) {
        if let Some(sites) = self.sites.get() {
            sites.stored(snapshot.clone());
        }
        if let Some(ensemble) = self.ensemble.get() {
            ensemble.stored(snapshot);
        }
    }

    /// Everything that has happened between the servers. `Err` when this one must stop.
    pub(crate) fn peer_events(
        &self,
        first: PeerEvent,
        events: &mut UnboundedReceiver<PeerEvent>,
    ) -> Result<(), String> {
        self.now();
        let mut event = Some(first);
        while let (Some(next), Some(ensemble)) = (event, self.ensemble.get()) {
            ensemble.hand_in(next, &mut self.server.borrow_mut(), &self.clock)?;
            event = events.try_recv().ok();
        }
        self.after_input();
        Ok(())
    }

    /// Lets the core look at its timers, for ever.
    pub(crate) async fn keep_time(self: Rc<Self>) {
        let (occupied, mut looks_at_us) = (Occupied::of_this_thread(), 0);
        loop {
            self.alarm.rings(|| self.server.borrow().next_wake_us(), || self.now().mono_us).await;
            let now = self.now();
            if now.mono_us >= looks_at_us {
                looks_at_us = now.mono_us + OCCUPIED_US;
                if let Some(occupied) = occupied.so_far() {
                    let occupied_us = u64::try_from(occupied.as_micros()).unwrap_or(u64::MAX);
                    self.server.borrow_mut().occupied(occupied_us, now);
                }
                self.tell_level();
            }
            self.server.borrow_mut().tick(now);
            self.after_input();
        }
    }

    /// The other servers' threads of this partition are told which feature level is in use.
    pub(crate) fn tell_level(&self) {
        if let Some(ensemble) = self.ensemble.get() {
            ensemble.set_level(self.server.borrow().level_to_be());
        }
    }

    /// Hands the lead to another server, if there is one that can take it. False when there is, and it
    /// could not be done just now.
    pub(crate) fn resign(&self) -> bool {
        let now = self.now();
        self.server.borrow_mut().resign(now);
        self.after_input();
        self.is_handing_over() || !self.leads_though_others_could()
    }

    /// Whether another server is about to take the lead from this one.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.server.borrow().is_handing_over()
    }

    /// Whether this server leads the partition, and others that vote are connected.
    pub(crate) fn leads_though_others_could(&self) -> bool {
        let standing = self.server.borrow().status();
        let others =
            || self.ensemble.get().is_some_and(|others| others.is_connected_to_any(&standing.voters));
        standing.leader == Some(standing.id) && others()
    }

    /// Reads nothing more from clients, and ends the connections of those who have been answered all that they have
    /// asked; those of the others too when there is no time for that. True when nobody is left.
    pub(crate) fn dismiss(&self, at_once: bool) -> bool {
        let server = self.server.borrow();
        let peers = self.peers.borrow();
        for (id, peer) in peers.iter() {
            peer.leaving.set(true);
            let is_answered = || server.connection(*id).is_none_or(|client| client.outstanding() == 0);
            if (at_once || is_answered()) && !peer.closing.replace(true) {
                peer.wake();
            }
        }
        peers.is_empty()
    }

    /// Whether nothing proposed waits for the log.
    pub(crate) fn is_settled(&self) -> bool {
        self.server.borrow().is_logged()
    }
}

/// Reads, or waits until something else is due on the connection.
///
/// The runtime takes a read that does not fill the buffer as a sign that there is no more for now,
/// which saves the read that would say so.
fn poll_read(
    context: &mut Context<'_>,
    peer: &Peer,
    reader: &mut OwnedReadHalf,
    into: &mut [u8],
) -> Poll<Woken> {
    if peer.closing.get() || peer.resume.get() {
        return Poll::Ready(Woken::Other);
    }
    if peer.blocked.get() && peer.writer.as_ref().poll_write_ready(context).is_ready() {
        return Poll::Ready(Woken::Other);
    }
    if !peer.paused.get() && !peer.leaving.get() {
        let read = match &peer.channel {
            Some(channel) => poll_deciphered(context, peer, &mut channel.borrow_mut(), reader, into),
            None => poll_socket(context, reader, into),
        };
        if let Poll::Ready(result) = read {
            return Poll::Ready(Woken::Read(result));
        }
    }
    let mut waker = peer.waker.borrow_mut();
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *waker = Some(context.waker().clone());
    }
    Poll::Pending
}

fn poll_socket(
    context: &mut Context<'_>,
    reader: &mut OwnedReadHalf,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(into);
    Pin::new(reader).poll_read(context, &mut buffer).map_ok(|()| buffer.filled().len())
}

/// Reads what is in the records of a client with TLS. An end of the socket is taken for his end: every request and
/// answer says itself where it ends.
fn poll_deciphered(
    context: &mut Context<'_>,
    peer: &Peer,
    channel: &mut Channel,
    reader: &mut OwnedReadHalf,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut space = [MaybeUninit::uninit(); RECORDS_BYTES];
    loop {
        match channel.take(into) {
            Ok(None) => {}
            Ok(Some(len)) => return Poll::Ready(Ok(len)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
            Err(error) => return Poll::Ready(Err(error)),
        }
        let mut records = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *reader).poll_read(context, &mut records))?;
        if records.filled().is_empty() {
            return Poll::Ready(Ok(0));
        }
        let fed = channel.feed(records.filled());
        if channel.has_records() {
            // Why it ends, or an answer of TLS's own. Where the socket takes nothing the next output brings it along.
            let _ = channel.flush(&peer.writer);
        }
        fed?;
    }
}

/// The socket of a connection that is not used any more, and its TLS.
fn reunite(peer: Rc<Peer>, reader: OwnedReadHalf) -> Option<(TcpStream, Option<Channel>)> {
    let Peer { writer, channel, .. } = Rc::try_unwrap(peer).ok()?;
    Some((reader.reunite(writer).ok()?, channel.map(RefCell::into_inner)))
}
