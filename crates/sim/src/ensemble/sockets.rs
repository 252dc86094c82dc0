//! The connections of clients to a running server: what they send is handed to the core as far as that listens, and
//! what it writes goes out as far as they read. A checker, if there is one, is shown all of it.

use super::process::{Done, Input, Key, Process, Scene, Stop, TurnOutput};
use crate::frames::whole;
use crate::trace::Trace;
use std::net::SocketAddr;
use stoa_check::{Checker, Inbound, Inlet, Moment, wrong};
use stoa_core::{CloseReason, ConnectionId, Output, Shard};

/// The server's end of one connection.
pub(super) struct Socket {
    pub(super) id: ConnectionId,
    address: SocketAddr,
    /// Arrived and not consumed.
    inbox: Vec<u8>,
    inlet: Inlet,
    /// Frames that the core has counted on it.
    received: u64,
    /// The core wants no more for now.
    paused: bool,
    /// Bytes of the core's output that the checker has seen.
    seen: usize,
    /// The client does not read until then, in the world's time.
    pub(super) stalled_until_us: u64,
    /// The core has closed it.
    closing: bool,
}

impl Process {
    /// A client connects.
    pub(super) fn connect(
        &mut self,
        of: u8,
        (key, address): (Key, SocketAddr),
        scene: &mut Scene<'_>,
        out: &mut TurnOutput,
    ) -> Done {
        let is_stopping = self.is_stopping();
        let thread = self.thread(of);
        if is_stopping {
            out.closed.push(key);
            return Ok(());
        }
        let connected = thread.core.connect(address, scene.now);
        if let Some(checker) = &mut scene.judges.checker {
            let others = thread.sockets.values().filter(|socket| socket.address == address).count();
            if connected.is_ok() != (others < checker.limits().connections_per_address) {
                return wrong(format!("{others} connections from {address}, another: {connected:?}"));
            }
            if connected.is_ok() {
                checker.connected(key, address.ip().to_string(), scene.now);
            }
        }
        let Ok(id) = connected else {
            out.closed.push(key);
            return Ok(());
        };
        thread.keys.insert(id, key);
        let socket = Socket {
            id,
            address,
            inbox: Vec::new(),
            inlet: Inlet::default(),
            received: 0,
            paused: false,
            seen: 0,
            stalled_until_us: 0,
            closing: false,
        };
        thread.sockets.insert(key, socket);
        Ok(())
    }

    /// A client has sent something, or is listened to again.
    pub(super) fn receive(&mut self, of: u8, key: Key, bytes: &[u8], scene: &mut Scene<'_>) -> Done {
        let now = scene.now;
        let (thread, expiry) = self.thread_and_expiry(of);
        let core = &mut thread.core;
        let Some(socket) = thread.sockets.get_mut(&key).filter(|socket| !socket.closing) else {
            return Ok(());
        };
        socket.inbox.extend_from_slice(bytes);
        if socket.paused {
            return Ok(());
        }
        let client = core.connection(socket.id).filter(|client| client.close_reason().is_none());
        let session = client.map_or(0, |client| client.session);
        if session != 0 {
            expiry.heard(session, now.mono_us);
            scene.spoke.insert(session, scene.now_us);
        }
        let moment = Moment { now, out_of_room: core.is_out_of_room() };
        let inbox = std::mem::take(&mut socket.inbox);
        let consumed = core.receive(socket.id, &inbox, now);
        socket.inbox = inbox[consumed..].to_vec();
        socket.paused = core.is_paused(socket.id);
        let Some(checker) = &mut scene.judges.checker else { return Ok(()) };
        let received = core.connection(socket.id).map_or(0, |connection| connection.traffic.received);
        let limits = checker.limits();
        let frames = socket.inlet.take(&inbox[..consumed], &limits);
        let handled = (received - socket.received) as usize;
        socket.received = received;
        if frames.len() < handled {
            return wrong(format!("{handled} frames were handled, {} came", frames.len()));
        }
        let frames: Vec<Inbound> = frames.into_iter().take(handled).collect();
        if scene.trace.is_printing() {
            show("in", key, checker.shown_requests(key, &frames), scene.trace, scene.now_us);
        }
        checker.received(key, frames, moment);
        if !socket.paused {
            checker.left_unread(key, &socket.inbox);
        }
        Ok(())
    }

    /// A connection has ended.
    pub(super) fn disconnected(&mut self, of: u8, key: Key, scene: &mut Scene<'_>) {
        let thread = self.thread(of);
        let Some(socket) = thread.sockets.remove(&key) else { return };
        thread.keys.remove(&socket.id);
        if let Some(checker) = &mut scene.judges.checker {
            excuse(key, &socket, &thread.core, checker, scene.now);
            checker.disconnected(key);
        }
        thread.core.disconnected(socket.id, scene.now);
    }

    /// Whoever is not listened to, for reasons of the server's own, counts as heard of.
    pub(super) fn excuse_all(&mut self, of: u8, scene: &mut Scene<'_>) {
        let thread = self.thread(of);
        if let Some(checker) = &mut scene.judges.checker {
            for (key, socket) in &thread.sockets {
                excuse(*key, socket, &thread.core, checker, scene.now);
            }
        }
    }

    /// Sees what the core wants done with connections, and shows it to the checker: what a call of the core has led to.
    /// Returns those connections.
    pub(super) fn take_outputs(&mut self, of: u8, scene: &mut Scene<'_>) -> Result<Vec<Key>, Stop> {
        let has_several = self.has_several();
        let thread = self.thread(of);
        let (mut written, mut closes, mut resumed) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(output) = thread.core.poll_output() {
            match output {
                Output::Send(id) => written.extend(thread.keys.get(&id).copied()),
                Output::Close(id, reason) => closes.extend(thread.keys.get(&id).map(|key| (*key, reason))),
                Output::Resume(id) => resumed.extend(thread.keys.get(&id).copied()),
            }
        }
        let core = &thread.core;
        let touched = written.iter().copied().chain(closes.iter().map(|(key, _)| *key)).collect();
        for (key, reason) in &closes {
            scene.trace.event(scene.now_us, "close", format_args!("connection {key}: {reason}"));
            if has_several && *reason == CloseReason::ClientAhead {
                return wrong("a client was sent away who has seen nothing that is lost");
            }
            let Some(socket) = thread.sockets.get_mut(key) else { continue };
            if let Some(checker) = &mut scene.judges.checker {
                excuse(*key, socket, core, checker, scene.now);
            }
            socket.closing = true;
        }
        if let Some(checker) = &mut scene.judges.checker {
            let mut frames = Vec::new();
            for key in written {
                let Some(socket) = thread.sockets.get_mut(&key) else { continue };
                let output = core.output(socket.id);
                let mut rest = Vec::new();
                let new = whole(&mut rest, &output[socket.seen..])?;
                if !rest.is_empty() {
                    return wrong("output does not end with a whole frame");
                }
                socket.seen = output.len();
                if scene.trace.is_printing() {
                    show("out", key, checker.shown_replies(key, &new), scene.trace, scene.now_us);
                }
                frames.push((key, new));
            }
            let unsent = |key| thread.sockets.get(&key).map_or(0, |socket| core.output(socket.id).len());
            let closes: Vec<_> = closes.into_iter().map(|(key, reason)| (key, reason, unsent(key))).collect();
            checker.called(core.tree(), frames, &closes, scene.now)?;
        }
        for key in resumed {
            if let Some(checker) = &mut scene.judges.checker {
                checker.heard(key, scene.now);
            }
            if let Some(socket) = thread.sockets.get_mut(&key) {
                socket.paused = false;
                thread.inputs.push_back(Input::Bytes(key, Vec::new()));
            }
        }
        Ok(touched)
    }

    /// Moves output to the clients, as much as they read.
    pub(super) fn flush(&mut self, of: u8, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        let mut keys = self.take_outputs(of, scene)?;
        if scene.judges.checker.is_some() {
            keys = self.thread(of).sockets.keys().copied().collect();
        }
        for key in keys {
            let thread = self.thread(of);
            let Some(socket) = thread.sockets.get_mut(&key) else { continue };
            let closing = socket.closing;
            let output = thread.core.output(socket.id);
            if socket.stalled_until_us <= scene.now_us && !output.is_empty() {
                // Now and then the socket's buffer takes a part only, where a server stands alone.
                let is_part = scene.judges.checker.is_some() && !closing && scene.rng.one_in(8);
                let len = if is_part { scene.rng.index(output.len()) + 1 } else { output.len() };
                let bytes = output[..len].to_vec();
                out.has_rest |= is_part;
                scene.trace.mix(&bytes);
                out.sent.push((key, bytes));
                socket.seen = socket.seen.saturating_sub(len);
                thread.core.sent(socket.id, len, scene.now);
                self.take_outputs(of, scene)?;
            }
            if closing {
                self.disconnected(of, key, scene);
                self.take_outputs(of, scene)?;
                out.closed.push(key);
            }
        }
        Ok(())
    }
}

/// Whoever is not listened to, for reasons of the server's own, counts as heard of.
fn excuse(key: Key, socket: &Socket, core: &Shard, checker: &mut Checker, now: stoa_core::Now) {
    let own_fault = core.output(socket.id).len() >= checker.limits().output_pause_bytes;
    if socket.paused && !own_fault {
        checker.heard(key, now);
    }
}

/// Shows what comes in or goes out, to whoever reads along.
fn show(way: &str, key: Key, frames: Vec<String>, trace: &mut Trace, now_us: u64) {
    for shown in frames {
        trace.detail(now_us, way, format_args!("connection {key}: {shown}"));
    }
}
