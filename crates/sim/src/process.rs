//! One simulated server process: the core, its threads for the disk, and the driver between them.
//!
//! The driver does what the real one does, in simulated time: it hands in what has arrived, asks for
//! an entry once everything is handed in, carries entries and snapshots to the disk's threads, and
//! moves output to the clients as fast as they read. Every call of the core goes through
//! [`Process::observe`], which shows the checker what came of it.

use crate::check::{Checker, Inbound, Inlet, Moment, Violation, is_bad_length};
use crate::disk_thread::{LogDone, LogThread, SnapshotDone, SnapshotThread};
use crate::model::ConnectionKey;
use crate::rng::Rng;
use crate::trace::Trace;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use stoa_core::{CloseReason, ConnectionId, Limits, Now, Output, PeerOutput, Shard};
use stoa_wire::{
    ConnectRequest, ConnectResponse, Opcode, Reader, ReplyHeader, Request, RequestHeader, WatcherEvent,
    next_frame, xid,
};

/// The server's end of one connection.
#[derive(Debug)]
struct Socket {
    id: ConnectionId,
    address: SocketAddr,
    /// Arrived and not consumed.
    inbox: Vec<u8>,
    inlet: Inlet,
    /// Frames that the core has counted on it.
    received: u64,
    /// There may be something to hand in.
    readable: bool,
    /// The core wants no more for now.
    paused: bool,
    /// Bytes of the core's output that the checker has seen.
    seen: usize,
    /// The client does not read until then, microseconds.
    stalled_until_us: u64,
    /// The core has closed it.
    closing: bool,
    /// The client has closed it.
    gone: bool,
}

/// What the disk's threads have done since the last turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// The log's thread.
    Log(LogDone),
    /// The snapshot's thread.
    Snapshot(SnapshotDone),
}

/// What a turn lets out.
#[derive(Debug, Default)]
pub struct TurnOutput {
    /// Bytes on their way to clients.
    pub sent: Vec<(ConnectionKey, Vec<u8>)>,
    /// Connections that the server has closed.
    pub closed: Vec<ConnectionKey>,
}

/// A running server.
pub struct Process {
    /// The logic.
    pub server: Shard,
    /// The log's thread.
    pub log: LogThread,
    /// Whether it is at work.
    pub log_busy: bool,
    /// The snapshot's thread.
    pub snapshot: SnapshotThread,
    /// Whether it is at work.
    pub snapshot_busy: bool,
    sockets: BTreeMap<ConnectionKey, Socket>,
    keys: BTreeMap<ConnectionId, ConnectionKey>,
    completions: VecDeque<Completion>,
}

/// The parts of the world that a call of the core touches.
pub struct Scene<'a> {
    /// Who compares.
    pub checker: &'a mut Checker,
    /// Who notes.
    pub trace: &'a mut Trace,
    /// The clocks.
    pub now: Now,
}

type Done = Result<(), Violation>;

impl Process {
    /// A server that has just been started.
    #[must_use]
    pub fn new(server: Shard, log: LogThread) -> Self {
        Self {
            server,
            log,
            log_busy: false,
            snapshot: SnapshotThread::default(),
            snapshot_busy: false,
            sockets: BTreeMap::new(),
            keys: BTreeMap::new(),
            completions: VecDeque::new(),
        }
    }

    /// A client connects; false when it is refused.
    ///
    /// # Errors
    /// When it is refused, or not, against the limit.
    pub fn accept(
        &mut self,
        key: ConnectionKey,
        address: SocketAddr,
        scene: &mut Scene<'_>,
    ) -> Result<bool, Violation> {
        let others = self.sockets.values().filter(|socket| socket.address == address).count();
        let connected = self.server.connect(address, scene.now);
        if connected.is_ok() != (others < scene.checker.limits().connections_per_address) {
            return Err(Violation::new(format!(
                "{others} connections from {address}, another: {connected:?}"
            )));
        }
        let Ok(id) = connected else { return Ok(false) };
        scene.checker.connected(key, address.ip().to_string(), scene.now);
        self.keys.insert(id, key);
        let socket = Socket {
            id,
            address,
            inbox: Vec::new(),
            inlet: Inlet::default(),
            received: 0,
            readable: false,
            paused: false,
            seen: 0,
            stalled_until_us: 0,
            closing: false,
            gone: false,
        };
        self.sockets.insert(key, socket);
        Ok(true)
    }

    /// Bytes arrive; false when there is nobody to take them.
    pub fn arrive(&mut self, key: ConnectionKey, bytes: &[u8]) -> bool {
        let Some(socket) = self.sockets.get_mut(&key).filter(|socket| !socket.closing) else { return false };
        socket.inbox.extend_from_slice(bytes);
        socket.readable = true;
        true
    }

    /// The client has closed its end.
    pub fn hang_up(&mut self, key: ConnectionKey) {
        if let Some(socket) = self.sockets.get_mut(&key) {
            socket.gone = true;
        }
    }

    /// The client reads nothing until then.
    pub fn stall(&mut self, key: ConnectionKey, until_us: u64) {
        if let Some(socket) = self.sockets.get_mut(&key) {
            socket.stalled_until_us = until_us;
        }
    }

    /// One of the disk's threads is done.
    pub fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Log(_) => self.log_busy = false,
            Completion::Snapshot(_) => self.snapshot_busy = false,
        }
        self.completions.push_back(completion);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.sockets.len()
    }

    /// One turn: everything that has come in, then the time, then everything that goes out.
    ///
    /// # Errors
    /// When the checker finds something wrong.
    pub fn turn(&mut self, rng: &mut Rng, scene: &mut Scene<'_>) -> Result<TurnOutput, Violation> {
        let mut ready: Vec<ConnectionKey> = self
            .sockets
            .iter()
            .filter(|(_, socket)| socket.gone || (socket.readable && !socket.paused))
            .map(|(&key, _)| key)
            .collect();
        for at in (1..ready.len()).rev() {
            ready.swap(at, rng.index(at + 1));
        }
        let completions_at = rng.index(ready.len() + 1);
        for (at, key) in ready.into_iter().enumerate() {
            if at == completions_at {
                self.take_completions(scene)?;
            }
            self.take_input(key, scene)?;
        }
        self.take_completions(scene)?;
        self.server.turn_ended(scene.now);
        let ticks = self.server.next_wake_us() <= scene.now.mono_us;
        // Mostly there is nothing else to do first; now and then another turn is.
        if ticks || !rng.one_in(4) {
            self.hand_to_log(None, scene)?;
        }
        if ticks {
            for (&key, socket) in &self.sockets {
                self.excuse(key, socket, scene);
            }
            self.server.tick(scene.now);
            self.observe(scene)?;
            // Apart from what clients have asked for, so that it can be told apart.
            self.hand_to_log(Some(scene.now), scene)?;
            scene.checker.ticked(scene.now)?;
        }
        while let Some(piece) = self.server.poll_snapshot() {
            self.snapshot.push(0, piece);
        }
        self.check_bounds(&scene.checker.limits())?;
        self.flush(rng, scene)
    }

    fn moment(&self, now: Now) -> Moment {
        Moment { now, out_of_room: self.server.is_out_of_room() }
    }

    fn take_input(&mut self, key: ConnectionKey, scene: &mut Scene<'_>) -> Done {
        let moment = self.moment(scene.now);
        let Some(socket) = self.sockets.get_mut(&key) else { return Ok(()) };
        let id = socket.id;
        if socket.readable && !socket.paused && !socket.closing {
            let inbox = std::mem::take(&mut socket.inbox);
            let consumed = self.server.receive(id, &inbox, scene.now);
            let received = self.server.connection(id).map_or(0, |connection| connection.received);
            let frames = socket.inlet.take(&inbox[..consumed], &scene.checker.limits());
            let handled = (received - socket.received) as usize;
            socket.received = received;
            if frames.len() < handled {
                return Err(Violation::new(format!("{handled} frames were handled, {} came", frames.len())));
            }
            let frames: Vec<Inbound> = frames.into_iter().take(handled).collect();
            show_requests(key, &frames, scene);
            scene.checker.received(key, frames, moment);
            socket.inbox = inbox[consumed..].to_vec();
            socket.paused = self.server.is_paused(id);
            let live = scene.checker.is_live(key);
            if !socket.paused && is_bad_length(&socket.inbox, live, &scene.checker.limits()) {
                scene.checker.met_bad_length(key);
            }
            socket.readable = false;
            self.observe(scene)?;
        }
        if self.sockets.get(&key).is_some_and(|socket| socket.gone) {
            self.drop_socket(key, scene)?;
        }
        Ok(())
    }

    /// Whoever is not listened to, for reasons of the server's own, counts as heard of.
    fn excuse(&self, key: ConnectionKey, socket: &Socket, scene: &mut Scene<'_>) {
        let own_fault = self.server.output(socket.id).len() >= scene.checker.limits().output_pause_bytes;
        if socket.paused && !own_fault {
            scene.checker.heard(key, scene.now);
        }
    }

    fn drop_socket(&mut self, key: ConnectionKey, scene: &mut Scene<'_>) -> Done {
        if let Some(socket) = self.sockets.remove(&key) {
            self.excuse(key, &socket, scene);
            self.keys.remove(&socket.id);
            self.server.disconnected(socket.id, scene.now);
            scene.checker.disconnected(key);
            self.observe(scene)?;
        }
        Ok(())
    }

    fn take_completions(&mut self, scene: &mut Scene<'_>) -> Done {
        while let Some(completion) = self.completions.pop_front() {
            match completion {
                Completion::Log(LogDone::Durable(position)) => {
                    scene.checker.durable(position, scene.now);
                    self.server.appended(position, scene.now);
                }
                Completion::Log(LogDone::Refused(generation)) => {
                    let before = self.server.stats().log_refusals;
                    if !self.server.append_refused(generation, scene.now) {
                        return Err(Violation::new("a server alone cannot go on without room in its log"));
                    }
                    if self.server.stats().log_refusals > before {
                        scene.checker.refused();
                    }
                }
                Completion::Snapshot(SnapshotDone::Taken(_)) => self.server.snapshot_taken(),
                Completion::Snapshot(done @ SnapshotDone::Finished { number, .. }) => {
                    self.server.snapshot_finished(number, done.is_durable());
                }
                Completion::Log(LogDone::Nothing) | Completion::Snapshot(SnapshotDone::Begun) => {}
            }
            self.observe(scene)?;
        }
        Ok(())
    }

    fn hand_to_log(&mut self, ticked: Option<Now>, scene: &mut Scene<'_>) -> Done {
        while let Some(append) = self.server.poll_append() {
            let payload = append.payload.clone().join();
            scene.checker.handed_to_log(append.position, &payload, ticked)?;
            scene.trace.mix(&payload);
            self.log.push(append);
        }
        scene.checker.handed_all_to_log()
    }

    /// Shows the checker what a call of the core has led to.
    fn observe(&mut self, scene: &mut Scene<'_>) -> Done {
        while let Some(output) = self.server.poll_peer() {
            // It is the only member, and a client may write into the list of servers; nobody is in that.
            let own = self.server.status().id;
            if output == PeerOutput::Servers || output == PeerOutput::Members(vec![own]) {
                continue;
            }
            return Err(Violation::new(format!("a server alone has something for others: {output:?}")));
        }
        let mut written = Vec::new();
        let mut closes = Vec::new();
        let mut resumed = Vec::new();
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Send(id) => written.extend(self.keys.get(&id).copied()),
                Output::Close(id, reason) => closes.extend(self.keys.get(&id).map(|&key| (key, reason))),
                Output::Resume(id) => resumed.extend(self.keys.get(&id).copied()),
            }
        }
        let mut frames = Vec::new();
        for key in written {
            let Some(socket) = self.sockets.get_mut(&key) else { continue };
            let output = self.server.output(socket.id);
            let new = &output[socket.seen..];
            socket.seen = output.len();
            scene.trace.mix(new);
            let new = split(new)?;
            show_replies(key, &new, scene);
            frames.push((key, new));
        }
        for (key, _) in &closes {
            if let Some(socket) = self.sockets.get(key) {
                self.excuse(*key, socket, scene);
            }
        }
        let closes: Vec<(ConnectionKey, CloseReason, usize)> = closes
            .into_iter()
            .map(|(key, reason)| {
                let socket = self.sockets.get_mut(&key);
                let unsent = socket.map_or(0, |socket| {
                    socket.closing = true;
                    self.server.output(socket.id).len()
                });
                (key, reason, unsent)
            })
            .collect();
        scene.checker.called(self.server.tree(), frames, &closes, scene.now)?;
        for (key, reason, _) in &closes {
            scene.trace.event(scene.now.mono_us, "close", format_args!("connection {key}: {reason}"));
        }
        for key in resumed {
            scene.checker.heard(key, scene.now);
            if let Some(socket) = self.sockets.get_mut(&key) {
                socket.paused = false;
                socket.readable = true;
            }
        }
        Ok(())
    }

    /// Whether some socket has something to hand in, or to end, that no event announces.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.completions.is_empty()
            || self.server.append_bytes() > 0
            || self.sockets.values().any(|socket| socket.gone || (socket.readable && !socket.paused))
    }

    /// Moves output to the clients, as much as they read.
    fn flush(&mut self, rng: &mut Rng, scene: &mut Scene<'_>) -> Result<TurnOutput, Violation> {
        let mut out = TurnOutput::default();
        let keys: Vec<ConnectionKey> = self.sockets.keys().copied().collect();
        for key in keys {
            let Some(socket) = self.sockets.get_mut(&key) else { continue };
            let reads = socket.stalled_until_us <= scene.now.mono_us;
            let (id, closing) = (socket.id, socket.closing);
            let output = self.server.output(id);
            if reads && !output.is_empty() {
                // Now and then the socket's buffer takes a part only.
                let len = if rng.one_in(8) && !closing { rng.index(output.len()) + 1 } else { output.len() };
                out.sent.push((key, output[..len].to_vec()));
                socket.seen -= len;
                self.server.sent(id, len, scene.now);
                self.observe(scene)?;
            }
            if closing {
                self.drop_socket(key, scene)?;
                out.closed.push(key);
            }
        }
        Ok(out)
    }

    /// What clients can make the server hold is bounded.
    fn check_bounds(&self, limits: &Limits) -> Done {
        for (&key, socket) in &self.sockets {
            let Some(connection) = self.server.connection(socket.id) else { continue };
            // One more answer may stand on top of the limit.
            let most = limits.output_close_bytes + ANSWER_BYTES_MAX;
            if connection.output_bytes() > most {
                let bytes = connection.output_bytes();
                return Err(Violation::new(format!(
                    "{bytes} bytes wait on connection {key}, at most {most} may"
                )));
            }
            if connection.outstanding() > limits.outstanding_per_connection {
                let count = connection.outstanding();
                return Err(Violation::new(format!("{count} requests wait on connection {key}")));
            }
        }
        let (_, proposed) = self.server.log_queue();
        let bytes = proposed.max(self.server.asked_bytes());
        // A turn's last frame may pass the limit; an update is not much longer than its frame.
        let most = limits.log_queue_bytes + 2 * limits.frame_bytes + OWN_UPDATES_BYTES_MAX;
        if bytes > most {
            return Err(Violation::new(format!("{bytes} bytes wait for the log, at most {most} may")));
        }
        let waiting: usize = self.server.connections().map(|(_, connection)| connection.outstanding()).sum();
        if self.server.outstanding() != waiting {
            let count = self.server.outstanding();
            return Err(Violation::new(format!("{count} requests are counted, {waiting} wait")));
        }
        if self.server.outstanding() > limits.outstanding {
            let count = self.server.outstanding();
            return Err(Violation::new(format!("{count} requests wait, at most {} may", limits.outstanding)));
        }
        Ok(())
    }
}

/// The largest answer that the workload can ask for.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What the server adds by itself in a tick: the ends of sessions and of znodes.
const OWN_UPDATES_BYTES_MAX: usize = 16 << 10;

/// So much of a request is shown.
const SHOWN_CHARS: usize = 120;

fn show_requests(key: ConnectionKey, frames: &[Inbound], scene: &mut Scene<'_>) {
    if !scene.trace.is_printing() {
        return;
    }
    let mut live = scene.checker.is_live(key);
    for frame in frames {
        let bytes = match frame {
            Inbound::Frame(frame) => frame.as_slice(),
            Inbound::Oversized { header } => header.as_slice(),
        };
        let mut shown = match ConnectRequest::decode(bytes) {
            Ok(request) if !live => format!("{request:?}"),
            _ => shown_request(bytes),
        };
        live = true;
        if let Some((cut, _)) = shown.char_indices().nth(SHOWN_CHARS) {
            shown.truncate(cut);
        }
        scene.trace.detail(scene.now.mono_us, "in", format_args!("connection {key}: {shown}"));
    }
}

fn shown_request(bytes: &[u8]) -> String {
    let mut reader = Reader::new(bytes);
    let Ok(RequestHeader { xid, opcode }) = RequestHeader::decode(&mut reader) else {
        return format!("{} bytes", bytes.len());
    };
    match Opcode::from_i32(opcode).map(|opcode| Request::decode(opcode, &mut reader)) {
        Some(Ok(request)) => format!("xid {xid} {request:?}"),
        _ => format!("xid {xid} opcode {opcode}, {} bytes", bytes.len()),
    }
}

fn show_replies(key: ConnectionKey, frames: &[Vec<u8>], scene: &mut Scene<'_>) {
    if !scene.trace.is_printing() {
        return;
    }
    let mut greeted = !scene.checker.is_to_be_greeted(key);
    for frame in frames {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader);
        let shown = match (ConnectResponse::decode(frame), header, WatcherEvent::decode(&mut reader)) {
            (Ok(response), ..) if !greeted => format!("{response:?}"),
            (_, Ok(header), Ok(event)) if header.xid == xid::NOTIFICATION => {
                format!("zxid {} {event:?}", header.zxid)
            }
            (_, Ok(ReplyHeader { xid, zxid, err }), _) => {
                format!("xid {xid} zxid {zxid} err {err}, {} bytes", frame.len())
            }
            _ => format!("{} bytes", frame.len()),
        };
        greeted = true;
        scene.trace.detail(scene.now.mono_us, "out", format_args!("connection {key}: {shown}"));
    }
}

fn split(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Violation> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        match next_frame(rest, usize::MAX) {
            Ok(Some((frame, tail))) => {
                frames.push(frame.to_vec());
                rest = tail;
            }
            _ => return Err(Violation::new("output does not end with a whole frame")),
        }
    }
    Ok(frames)
}
