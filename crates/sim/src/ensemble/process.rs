//! One running server: the core, its threads for the disk, and the driver between them and the world.
//!
//! Every call of the core is followed by a look at how far it has applied the timeline: what it has
//! applied, and the state that it has come to, is shown to the history.

use super::acquaintance::{Acquaintance, KnownDisks};
use super::expiry::Expiry;
use super::history::{Did, History, items};
use crate::check::Violation;
use crate::disk_thread::{LogDone, LogThread, SnapshotDone, SnapshotThread};
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use stoa_core::{Append, ConnectionId, Now, Output, PeerOutput, Shard, SnapshotOutput, StateLoader};
use stoa_group::{Entry, Restored, Store};
use stoa_tree::Options;

/// Names a connection of a client.
pub(super) type Key = u64;

/// The chunks of a snapshot on its way.
pub(super) type Chunks = Rc<Vec<Vec<u8>>>;

/// What has come in and is handed to the core in the next turn.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Connect(Key, SocketAddr),
    Bytes(Key, Vec<u8>),
    HangUp(Key),
    Peer(u8, Bytes),
    /// Another server is connected, with this disk.
    PeerConnected(u8, u64),
    PeerLost(u8),
    /// A snapshot, whole, with its message.
    Snapshot(u8, Bytes, Chunks),
    /// A snapshot that this server has sent is there, or was given up.
    SnapshotSent(u8, bool),
    Log(LogDone),
    Written(SnapshotDone),
    /// The snapshot that is taken over is durable.
    TakenOver,
    /// The lead is to be handed over: to this one, or to whom the server chooses.
    HandOver(Option<u8>),
    /// The server is told to stop.
    Stop,
}

/// What a turn lets out.
#[derive(Debug, Default)]
pub(super) struct TurnOutput {
    pub(super) sent: Vec<(Key, Vec<u8>)>,
    pub(super) closed: Vec<Key>,
    pub(super) peers: Vec<PeerOutput>,
    /// Whose snapshot has come.
    pub(super) told: Vec<u8>,
    /// A snapshot was taken over.
    pub(super) has_taken_over: bool,
    /// It has finished what it had begun, and ends.
    pub(super) has_stopped: bool,
}

/// Why a turn ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Violation(Violation),
    /// The core says that the process cannot go on.
    Refused,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// The parts of the world that a turn touches.
pub(super) struct Scene<'a> {
    pub(super) history: &'a mut History,
    pub(super) trace: &'a mut Trace,
    /// What this server has in its log, as far as it was told to store it.
    pub(super) stored: &'a mut Restored,
    /// The disks of the others, as this server has met them.
    pub(super) known: &'a mut KnownDisks,
    /// This server's clocks.
    pub(super) now: Now,
    /// The world's time.
    pub(super) now_us: u64,
    /// When a server last took in what the client of a session had sent, in the world's time.
    pub(super) spoke: &'a mut BTreeMap<i64, u64>,
    /// Since when nothing has gone wrong.
    pub(super) quiet_since_us: u64,
}

struct Socket {
    id: ConnectionId,
    inbox: Vec<u8>,
}

/// A running server.
pub(super) struct Process {
    pub(super) id: u8,
    pub(super) server: Shard,
    pub(super) acquaintance: Acquaintance,
    pub(super) log: LogThread,
    pub(super) log_busy: bool,
    pub(super) snapshot: SnapshotThread,
    pub(super) snapshot_busy: bool,
    /// Where the snapshot stands that is being written of this server's own state.
    pub(super) writing: Option<u64>,
    /// Records behind one that waits for a snapshot to be taken over, and that one.
    pub(super) held: VecDeque<Append>,
    /// The snapshot that has arrived, and from whom.
    pub(super) arrived: Option<(u8, Chunks)>,
    inputs: VecDeque<Input>,
    sockets: BTreeMap<Key, Socket>,
    keys: BTreeMap<ConnectionId, Key>,
    expiry: Expiry,
    applied: u64,
    /// It was told to stop, and does so by then at the latest.
    stops_by_us: Option<u64>,
}

type Done = Result<(), Stop>;

/// How long a server that is told to stop waits for what is under way.
const STOP_PATIENCE_US: u64 = 1_000_000;

pub(super) fn entry_at(stored: &Restored, position: u64) -> Option<&Entry> {
    let behind = position.checked_sub(stored.base.position + 1)?;
    stored.entries.get(usize::try_from(behind).ok()?)
}

impl Process {
    /// A server that has just been started.
    pub(super) fn new(
        id: u8,
        alone: bool,
        server: Shard,
        acquaintance: Acquaintance,
        log: LogThread,
        now: Now,
    ) -> Self {
        Self {
            acquaintance,
            id,
            applied: server.applied(),
            server,
            log,
            log_busy: false,
            snapshot: SnapshotThread::default(),
            snapshot_busy: false,
            writing: None,
            held: VecDeque::new(),
            arrived: None,
            inputs: VecDeque::new(),
            sockets: BTreeMap::new(),
            keys: BTreeMap::new(),
            expiry: Expiry::new(alone, now),
            stops_by_us: None,
        }
    }

    /// Something has come in.
    pub(super) fn push(&mut self, input: Input) {
        self.inputs.push_back(input);
    }

    /// Whether a turn would find something to do.
    pub(super) fn is_ready(&self) -> bool {
        !self.inputs.is_empty() || self.server.append_bytes() > 0
    }

    /// Whose snapshots have arrived here, and were not looked at yet.
    pub(super) fn snapshots_under_way(&self) -> Vec<u8> {
        let waiting = self.inputs.iter().filter_map(|input| match input {
            Input::Snapshot(from, ..) => Some(*from),
            _ => None,
        });
        waiting.collect()
    }

    /// One turn: everything that has come in, then the time, then everything that goes out.
    pub(super) fn turn(&mut self, scene: &mut Scene<'_>) -> Result<TurnOutput, Stop> {
        let mut out = TurnOutput::default();
        while let Some(input) = self.inputs.pop_front() {
            self.take(input, scene, &mut out)?;
            self.observe(scene)?;
        }
        self.server.turn_ended(scene.now);
        if self.server.is_in_quorum() {
            self.expiry.stands(&self.server.status(), scene.now);
        }
        if self.server.next_wake_us() <= scene.now.mono_us {
            let before = self.server.stats().sessions_expired;
            self.server.tick(scene.now);
            if self.server.stats().sessions_expired > before {
                self.expiry.judged(self.server.tree(), scene.now);
            }
            self.observe(scene)?;
        }
        self.poll_peers(scene, &mut out)?;
        while let Some(append) = self.server.poll_append() {
            self.store(append, scene)?;
            self.observe(scene)?;
        }
        self.poll_peers(scene, &mut out)?;
        if self.held.is_empty() {
            // One that came too late to be of use.
            self.arrived = None;
        }
        while let Some(piece) = self.server.poll_snapshot() {
            if let SnapshotOutput::Begin { position, .. } = piece {
                self.writing = Some(position);
            }
            self.snapshot.push(0, piece);
        }
        self.check_readers()?;
        self.flush(scene, &mut out);
        let is_settled = self.server.append_bytes() == 0 && self.server.log_queue().0 == 0;
        out.has_stopped = self.stops_by_us.is_some_and(|by_us| {
            (is_settled && !self.server.is_handing_over()) || scene.now.mono_us >= by_us
        });
        Ok(out)
    }

    fn take(&mut self, input: Input, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        let now = scene.now;
        match input {
            Input::Connect(key, _) if self.stops_by_us.is_some() => out.closed.push(key),
            Input::Connect(key, address) => match self.server.connect(address, now) {
                Ok(id) => {
                    self.keys.insert(id, key);
                    self.sockets.insert(key, Socket { id, inbox: Vec::new() });
                }
                Err(_) => out.closed.push(key),
            },
            Input::Bytes(key, bytes) => self.receive(key, &bytes, scene),
            Input::HangUp(key) => {
                if let Some(socket) = self.sockets.remove(&key) {
                    self.keys.remove(&socket.id);
                    self.server.disconnected(socket.id, now);
                }
            }
            Input::Peer(from, message) => {
                if self.server.is_member(from) {
                    self.expiry.told(&message, now);
                }
                scene.trace.detail(
                    scene.now_us,
                    "peer",
                    format_args!("{from} to {}: {:?}", self.id, &message[..message.len().min(60)]),
                );
                if self.server.peer_message(from, message, now).is_err() {
                    return Err(Violation::new(format!("server {} cannot read {from}", self.id)).into());
                }
            }
            Input::PeerConnected(peer, disk) => {
                self.acquaintance.meet(&mut self.server, scene.known, peer, disk, now);
            }
            Input::PeerLost(peer) => self.server.peer_lost(peer, now),
            Input::Snapshot(from, message, chunks) => self.offered(from, message, chunks, scene, out)?,
            Input::SnapshotSent(to, arrived) => self.server.snapshot_sent(to, arrived, now),
            Input::Log(done) => {
                self.log_busy = false;
                match done {
                    LogDone::Durable(position) => self.server.appended(position, now),
                    LogDone::Refused(generation) => {
                        self.held.retain(|append| append.generation > generation);
                        if !self.server.append_refused(generation, now) {
                            return Err(Stop::Refused);
                        }
                    }
                    LogDone::Nothing => {}
                }
            }
            Input::Written(done) => {
                self.snapshot_busy = false;
                match done {
                    SnapshotDone::Taken(_) => self.server.snapshot_taken(),
                    SnapshotDone::Finished { number, .. } => {
                        self.writing = None;
                        self.server.snapshot_finished(number, done.is_durable());
                    }
                    SnapshotDone::Begun => {}
                }
            }
            Input::TakenOver => {
                self.snapshot_busy = false;
                self.arrived = None;
                out.has_taken_over = true;
                let mut waiting = std::mem::take(&mut self.held);
                if let Some(append) = waiting.pop_front() {
                    self.log.push(append);
                }
                waiting.into_iter().for_each(|append| self.hold_or_log(append));
            }
            Input::HandOver(Some(to)) => self.server.hand_over(to, now),
            Input::HandOver(None) => self.server.resign(now),
            Input::Stop => {
                self.stops_by_us = self.stops_by_us.or(Some(now.mono_us + STOP_PATIENCE_US));
                self.server.resign(now);
            }
        }
        Ok(())
    }

    fn receive(&mut self, key: Key, bytes: &[u8], scene: &mut Scene<'_>) {
        let Some(socket) = self.sockets.get_mut(&key) else { return };
        socket.inbox.extend_from_slice(bytes);
        let session = self.server.connection(socket.id).map_or(0, |connection| connection.session);
        if session != 0 && self.server.connection(socket.id).is_some_and(|it| it.close_reason().is_none()) {
            self.expiry.heard(session, scene.now.mono_us);
            scene.spoke.insert(session, scene.now_us);
        }
        let inbox = std::mem::take(&mut socket.inbox);
        let consumed = self.server.receive(socket.id, &inbox, scene.now);
        socket.inbox = inbox[consumed..].to_vec();
    }

    fn offered(
        &mut self,
        from: u8,
        message: Bytes,
        chunks: Chunks,
        scene: &mut Scene<'_>,
        out: &mut TurnOutput,
    ) -> Done {
        out.told.push(from);
        if self.arrived.is_some() || !self.server.wants_snapshot(message.clone()) {
            return Ok(());
        }
        let broken = |what: String| Violation::new(format!("a snapshot of server {from}: {what}"));
        let mut loader = StateLoader::new(&Options::default(), 1);
        for chunk in chunks.iter().skip(1) {
            loader.chunk(chunk).map_err(broken)?;
        }
        let states = loader.finish().map_err(broken)?;
        self.arrived = Some((from, chunks));
        let taken = self.server.take_over(from, message, states, scene.now);
        taken.map_err(|_| broken("its message cannot be read".into()))?;
        Ok(())
    }

    fn poll_peers(&mut self, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        while let Some(output) = self.server.poll_peer() {
            if let PeerOutput::Send { message, .. } = &output
                && let Some(term) = leads_term(&message.clone().join())
            {
                if scene.history.leads(term, self.id)? {
                    scene.trace.event(
                        scene.now_us,
                        "leader",
                        format_args!("server {} of term {term}", self.id),
                    );
                }
                self.expiry.leads(term, scene.now);
            }
            match output {
                PeerOutput::Servers => self.acquaintance.look_around(&self.server),
                PeerOutput::Leads(peer) => self.acquaintance.accept(scene.known, peer),
                PeerOutput::Members(members) => {
                    let what = format_args!("to server {}: {members:?}", self.id);
                    scene.trace.event(scene.now_us, "members", what);
                    self.acquaintance.members_are(&members, &mut self.server, scene.known, scene.now);
                }
                output => out.peers.push(output),
            }
        }
        self.observe(scene)
    }

    /// Whoever takes part in the ensemble does not put off clients with reads.
    fn check_readers(&self) -> Done {
        let reads = self.server.connections().any(|(_, connection)| connection.is_read_only());
        if reads && self.server.is_in_quorum() {
            let what = format!("server {} is in the quorum, and its clients may only read", self.id);
            return Err(Violation::new(what).into());
        }
        Ok(())
    }

    fn hold_or_log(&mut self, append: Append) {
        if self.held.is_empty() && append.snapshot.is_none() {
            self.log.push(append);
        } else {
            self.held.push_back(append);
        }
    }

    fn store(&mut self, append: Append, scene: &mut Scene<'_>) -> Done {
        let id = self.id;
        let broken = |what: String| Violation::new(format!("a record of server {id}: {what}"));
        let record = append.payload.clone().join();
        let store = Store::decode(record.clone()).map_err(|error| broken(error.to_string()))?;
        for entry in &store.entries {
            scene.history.holds(id, entry)?;
            self.expiry.check(entry, scene)?;
        }
        scene.trace.mix(&record);
        scene.stored.replay(record).map_err(|error| broken(error.to_string()))?;
        self.hold_or_log(append);
        Ok(())
    }

    /// Shows the history how far the server is.
    fn observe(&mut self, scene: &mut Scene<'_>) -> Done {
        let applied = self.server.applied();
        let id = self.id;
        let wrong = |what: String| Err(Violation::new(format!("server {id} {what}")).into());
        if applied < self.applied {
            return wrong(format!("went from position {} to {applied}", self.applied));
        }
        for position in self.applied + 1..=applied {
            if position <= scene.stored.base.position {
                if position > scene.history.position() {
                    return wrong(format!("took over position {position}, which nobody had applied"));
                }
                continue;
            }
            let Some(entry) = entry_at(scene.stored, position) else {
                return wrong(format!("applied position {position}, which it does not have"));
            };
            if scene.trace.is_printing() && position > scene.history.position() {
                for item in items(entry).flatten() {
                    let what =
                        format_args!("{position} of term {}, first by server {id}: {item}", entry.term);
                    scene.trace.detail(scene.now_us, "applied", what);
                }
            }
            scene.history.applied(id, entry)?;
            for did in scene.history.sessions_at(position) {
                if let Did::Opened { session, .. } = did {
                    self.expiry.heard(*session, scene.now.mono_us);
                }
            }
        }
        if applied != self.applied {
            scene.history.compare(id, applied, self.server.tree())?;
            self.applied = applied;
        }
        Ok(())
    }

    /// Moves output to the clients.
    fn flush(&mut self, scene: &mut Scene<'_>, out: &mut TurnOutput) {
        let mut closes = Vec::new();
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Send(id) => {
                    let bytes = self.server.output(id).to_vec();
                    self.server.sent(id, bytes.len(), scene.now);
                    scene.trace.mix(&bytes);
                    out.sent.extend(self.keys.get(&id).map(|key| (*key, bytes)));
                }
                Output::Resume(id) => {
                    if let Some(&key) = self.keys.get(&id) {
                        self.inputs.push_back(Input::Bytes(key, Vec::new()));
                    }
                }
                Output::Close(id, reason) => closes.push((id, reason)),
            }
        }
        for (id, reason) in closes {
            let rest = self.server.output(id).to_vec();
            self.server.sent(id, rest.len(), scene.now);
            self.server.disconnected(id, scene.now);
            let Some(key) = self.keys.remove(&id) else { continue };
            self.sockets.remove(&key);
            scene.trace.event(scene.now_us, "close", format_args!("connection {key}: {reason}"));
            out.sent.push((key, rest));
            out.closed.push(key);
        }
    }
}

/// The term that the sender of this message leads: only leaders append and send heartbeats.
fn leads_term(message: &[u8]) -> Option<u64> {
    const GROUP: u8 = 1;
    const APPEND: u8 = 1;
    const HEARTBEAT: u8 = 6;
    // The kind of message, the group's kind, flags, to and from.
    let (head, rest) = message.split_first_chunk::<19>()?;
    let speaks = head[0] == GROUP && matches!(head[1], APPEND | HEARTBEAT);
    speaks.then(|| rest.first_chunk().map(|term| u64::from_le_bytes(*term)))?
}
