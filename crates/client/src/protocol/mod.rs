//! The protocol core: one session over one connection after another, without any I/O.
//!
//! Whoever drives it opens a connection, calls [`Protocol::connected`], moves bytes
//! ([`Protocol::receive`], [`Protocol::take_output`]), tells the time ([`Protocol::tick`],
//! [`Protocol::next_tick_ms`]), reports the end of the connection ([`Protocol::disconnected`]), and
//! drains [`Protocol::poll`]. Calls may be submitted at any time: they wait for a connection. Calls
//! that were sent on a connection that ends fail with `ConnectionLoss`, because nobody knows whether
//! the server carried them out.

mod call;
mod chroot;
mod reply;
mod watches;

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use stoa_wire::{
    ConnectRequest, ConnectResponse, DecodeError, ErrorCode, EventKind, FrameError, Opcode, PASSWORD_LEN,
    Reader, ReplyHeader, RequestHeader, WatcherEvent, begin_frame, end_frame, next_frame, request::encode,
    xid,
};

pub use call::Call;
pub use chroot::Chroot;
pub use reply::Reply;
pub use watches::WatchId;

use crate::types::{Event, State, WatchEnd};
use reply::{Shape, error_code};
use watches::{Slot, Watches};

/// A server refuses larger frames, so watches are set again in several requests.
const SET_WATCHES_BYTES_MAX: usize = 128 * 1024;

/// Settings of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Wanted session timeout; the server may choose another one.
    pub session_timeout_ms: u32,
    /// Whether a server that only answers reads will do.
    pub read_only: bool,
    /// The znode that the client takes for the root.
    pub chroot: Chroot,
    /// Longest frame taken from a server.
    pub frame_bytes_max: usize,
}

/// Which call a completion belongs to, as whoever submitted it names it.
pub type Token = u64;

/// What the core has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A call is done.
    Completed {
        /// The call.
        token: Token,
        /// What it answers.
        result: Result<Reply, ErrorCode>,
    },
    /// A watch saw something.
    Event {
        /// The watch.
        watch: WatchId,
        /// What it saw.
        event: Event,
    },
    /// A watch will see nothing more.
    WatchEnded {
        /// The watch.
        watch: WatchId,
        /// Why.
        end: WatchEnd,
    },
    /// The client stands differently with its servers.
    State(State),
}

/// Why a connection cannot go on. The driver closes it and calls [`Protocol::disconnected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server sent a frame of an impossible length.
    Frame(FrameError),
    /// The server sent a record that cannot be read.
    Decode(DecodeError),
    /// The server sent a reply to something else than what was next.
    Unexpected {
        /// The xid that was next; `None` when nothing was.
        expected: Option<i32>,
        /// The xid of the reply.
        got: i32,
    },
    /// The server was silent for too long.
    Silent,
    /// The session has ended: connect again for a new one.
    SessionExpired,
    /// An identity was refused.
    AuthFailed,
    /// The session was closed, as asked for.
    Closed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => write!(f, "bad frame from the server: {error}"),
            Self::Decode(error) => write!(f, "bad record from the server: {error}"),
            Self::Unexpected { expected: Some(expected), got } => {
                write!(f, "the server answered xid {got} when {expected} was next")
            }
            Self::Unexpected { expected: None, got } => {
                write!(f, "the server answered xid {got}, which was not asked")
            }
            Self::Silent => f.write_str("the server does not answer"),
            Self::SessionExpired => f.write_str("the session has expired"),
            Self::AuthFailed => f.write_str("the server refused an identity"),
            Self::Closed => f.write_str("the session is closed"),
        }
    }
}

impl core::error::Error for Fault {}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Disconnected,
    /// The handshake was sent.
    Greeting,
    Ready,
    /// Nothing will ever be sent again.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    id: i64,
    password: [u8; PASSWORD_LEN],
}

/// A watch that will be set when its call succeeds.
#[derive(Debug)]
struct Registration {
    slot: Slot,
    path: String,
    watch: WatchId,
}

/// A call that was sent.
#[derive(Debug)]
struct InFlight {
    xid: i32,
    token: Token,
    opcode: Opcode,
    shape: Shape,
    registration: Option<Registration>,
    /// For removeWatches: what to remove here as well.
    removal: Option<(String, stoa_wire::WatcherKind)>,
}

/// An identity of the client, sent on every connection.
#[derive(Debug)]
struct Credential {
    scheme: String,
    auth: Vec<u8>,
}

/// The core. See the module's documentation.
#[derive(Debug)]
pub struct Protocol {
    settings: Settings,
    phase: Phase,
    state: State,
    session: Option<Session>,
    /// Whether that is a session. What a read-only server gives in place of one is good for its connection only.
    session_lasts: bool,
    timeout_ms: u64,
    zxid_seen: i64,
    last_xid: i32,
    /// Calls that wait for a connection.
    waiting: VecDeque<(Token, Call)>,
    in_flight: VecDeque<InFlight>,
    credentials: Vec<Credential>,
    /// Calls of auth in the order sent; `None` for those that the core repeats by itself. Servers
    /// answer them ahead of other requests.
    auth_in_flight: VecDeque<Option<Token>>,
    watches: Watches,
    input: Vec<u8>,
    output: Vec<u8>,
    outputs: VecDeque<Output>,
    sent_ms: u64,
    received_ms: u64,
}

impl Protocol {
    /// A client without a session.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            timeout_ms: u64::from(settings.session_timeout_ms),
            settings,
            phase: Phase::Disconnected,
            state: State::Connecting,
            session: None,
            session_lasts: false,
            zxid_seen: 0,
            last_xid: 0,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            credentials: Vec::new(),
            auth_in_flight: VecDeque::new(),
            watches: Watches::default(),
            input: Vec::new(),
            output: Vec::new(),
            outputs: VecDeque::new(),
            sent_ms: 0,
            received_ms: 0,
        }
    }

    /// How the client stands with its servers.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The session's id; `None` without a session.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.session.map(|session| session.id)
    }

    /// The session timeout, as negotiated.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// Calls without a result yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.in_flight.len() + self.auth_in_flight.len()
    }

    /// The next thing to tell.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Bytes for the server. The driver takes off the front what it has written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// A connection is up: greets the server.
    pub fn connected(&mut self, now_ms: u64) {
        if self.phase != Phase::Disconnected {
            return;
        }
        self.phase = Phase::Greeting;
        self.input.clear();
        self.output.clear();
        self.sent_ms = now_ms;
        self.received_ms = now_ms;
        let session = self.session.filter(|_| self.session_lasts);
        let (session_id, password) = session.map_or((0, [0; PASSWORD_LEN]), |s| (s.id, s.password));
        let start = begin_frame(&mut self.output);
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.zxid_seen,
            timeout_ms: i32::try_from(self.settings.session_timeout_ms).unwrap_or(i32::MAX),
            session_id,
            password: &password,
            read_only: Some(self.settings.read_only),
        }
        .encode(&mut self.output);
        end_frame(&mut self.output, start);
    }

    /// The connection is gone, or could not be opened.
    pub fn disconnected(&mut self) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Disconnected;
        self.output.clear();
        for call in core::mem::take(&mut self.in_flight) {
            // The session ends with its connection if the server got as far as closing it.
            let is_close = call.opcode == Opcode::CloseSession;
            let result = if is_close { Ok(Reply::Nothing) } else { Err(ErrorCode::ConnectionLoss) };
            self.outputs.push_back(Output::Completed { token: call.token, result });
            if is_close {
                self.end(State::Closed);
            }
        }
        for token in core::mem::take(&mut self.auth_in_flight).into_iter().flatten() {
            self.complete(token, Err(ErrorCode::ConnectionLoss));
        }
        if self.state.is_connected() {
            self.set_state(State::Suspended);
        }
    }

    /// Makes a call. Its result comes as [`Output::Completed`] with the same token.
    pub fn submit(&mut self, token: Token, call: Call, now_ms: u64) {
        if let Err(code) = call.check() {
            self.complete(token, Err(code));
        } else if self.phase == Phase::Ended {
            self.complete(token, Err(ErrorCode::SessionExpired));
        } else if self.phase == Phase::Ready {
            self.send(token, &call, now_ms);
        } else if call == Call::Close && self.session.is_none() {
            self.complete(token, Ok(Reply::Nothing));
            self.end(State::Closed);
        } else {
            self.waiting.push_back((token, call));
        }
    }

    /// Forgets a watch that nobody reads any more.
    pub fn forget(&mut self, watch: WatchId) {
        self.watches.forget(watch);
    }

    /// Handles bytes from the server.
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), Fault> {
        self.received_ms = now_ms;
        let mut input = core::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut handled = 0;
        let result = loop {
            match next_frame(&input[handled..], self.settings.frame_bytes_max) {
                Ok(None) => break Ok(()),
                Err(error) => break Err(Fault::Frame(error)),
                Ok(Some((frame, rest))) => {
                    handled = input.len() - rest.len();
                    if let Err(fault) = self.frame(frame, now_ms) {
                        break Err(fault);
                    }
                }
            }
        };
        input.drain(..handled);
        self.input = input;
        result
    }

    /// Sends a heartbeat when it is time for one.
    ///
    /// # Errors
    /// When the server was silent for two thirds of the session timeout: time is left to find
    /// another one.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), Fault> {
        if !matches!(self.phase, Phase::Greeting | Phase::Ready) {
            return Ok(());
        }
        if now_ms >= self.silence_ends_ms() {
            return Err(Fault::Silent);
        }
        if self.phase == Phase::Ready && now_ms >= self.ping_due_ms() {
            self.send_raw(xid::PING, Opcode::Ping, now_ms, |_| {});
        }
        Ok(())
    }

    /// When [`Protocol::tick`] wants to be called next; `None` while there is no connection.
    #[must_use]
    pub fn next_tick_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Greeting => Some(self.silence_ends_ms()),
            Phase::Ready => Some(self.silence_ends_ms().min(self.ping_due_ms())),
            Phase::Disconnected | Phase::Ended => None,
        }
    }

    fn silence_ends_ms(&self) -> u64 {
        self.received_ms + (self.timeout_ms * 2 / 3).max(1)
    }

    /// Heartbeats go on while requests flow in one direction only, so that silence means something.
    fn ping_due_ms(&self) -> u64 {
        self.sent_ms + (self.timeout_ms / 3).max(1)
    }

    fn frame(&mut self, frame: &[u8], now_ms: u64) -> Result<(), Fault> {
        match self.phase {
            Phase::Greeting => self.greeted(ConnectResponse::decode(frame)?, now_ms),
            Phase::Ready => self.reply(frame),
            Phase::Disconnected | Phase::Ended => Ok(()),
        }
    }

    /// The server answered the handshake.
    fn greeted(&mut self, response: ConnectResponse, now_ms: u64) -> Result<(), Fault> {
        if response.session_id == 0 || response.timeout_ms <= 0 {
            self.lose_session();
            return Err(Fault::SessionExpired);
        }
        self.session = Some(Session { id: response.session_id, password: response.password });
        self.timeout_ms = u64::from(response.timeout_ms.unsigned_abs());
        self.phase = Phase::Ready;
        let read_only = response.read_only.unwrap_or(false);
        self.session_lasts |= !read_only;
        self.set_state(if read_only { State::ConnectedReadOnly } else { State::Connected });
        for credential in core::mem::take(&mut self.credentials) {
            self.send_credential(None, credential, now_ms);
        }
        self.set_watches_again(now_ms);
        for (token, call) in core::mem::take(&mut self.waiting) {
            self.send(token, &call, now_ms);
        }
        Ok(())
    }

    fn reply(&mut self, frame: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)?;
        self.zxid_seen = self.zxid_seen.max(header.zxid);
        match header.xid {
            xid::NOTIFICATION => self.notified(header, WatcherEvent::decode(&mut reader)?),
            xid::PING | xid::SET_WATCHES => Ok(()),
            xid::AUTH => self.authenticated(header.err),
            got => {
                let expected = self.in_flight.front().map(|call| call.xid);
                match self.in_flight.pop_front() {
                    Some(call) if call.xid == got => self.answered(call, header.err, &mut reader),
                    Some(call) => {
                        // It was sent and will not be answered: it fails with the connection.
                        self.in_flight.push_front(call);
                        Err(Fault::Unexpected { expected, got })
                    }
                    None => Err(Fault::Unexpected { expected, got }),
                }
            }
        }
    }

    fn answered(&mut self, call: InFlight, err: i32, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let result = match err {
            0 => match call.shape.decode(reader, &self.settings.chroot) {
                Ok(reply) => Ok(reply),
                Err(error) => {
                    self.in_flight.push_front(call);
                    return Err(Fault::Decode(error));
                }
            },
            number => Err(error_code(number)),
        };
        if let Some(Registration { slot, path, watch }) = call.registration {
            match &result {
                Ok(_) => self.watches.add(slot, &path, watch),
                Err(ErrorCode::NoNode) if call.opcode == Opcode::Exists => {
                    self.watches.add(Slot::Exist, &path, watch);
                }
                Err(_) => {}
            }
        }
        if let (Some((path, kind)), Ok(_)) = (call.removal, &result) {
            for watch in self.watches.remove(&path, kind) {
                self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::Removed });
            }
        }
        self.complete(call.token, result);
        if call.opcode == Opcode::CloseSession {
            self.end(State::Closed);
            return Err(Fault::Closed);
        }
        Ok(())
    }

    fn notified(&mut self, header: ReplyHeader, event: WatcherEvent<'_>) -> Result<(), Fault> {
        let kind = EventKind::from_i32(event.kind).ok_or(DecodeError::BadValue("type of a watch event"))?;
        let path = self.settings.chroot.local(event.path);
        for (watch, over) in self.watches.fire(kind, path) {
            let event = Event { kind, path: path.to_owned(), zxid: header.zxid };
            self.outputs.push_back(Output::Event { watch, event });
            if over {
                self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::Fired });
            }
        }
        Ok(())
    }

    fn authenticated(&mut self, err: i32) -> Result<(), Fault> {
        let Some(token) = self.auth_in_flight.pop_front() else {
            return Err(Fault::Unexpected { expected: None, got: xid::AUTH });
        };
        let result = if err == 0 { Ok(Reply::Nothing) } else { Err(error_code(err)) };
        if let Some(token) = token {
            self.complete(token, result.clone());
        }
        if result.is_err() {
            // The server closes the connection, and would do so again with the same identities.
            self.end(State::AuthFailed);
            return Err(Fault::AuthFailed);
        }
        Ok(())
    }

    fn send(&mut self, token: Token, call: &Call, now_ms: u64) {
        if let Call::Auth { scheme, auth } = call {
            let credential = Credential { scheme: scheme.clone(), auth: auth.clone() };
            self.send_credential(Some(token), credential, now_ms);
            return;
        }
        // Negative xids have meanings of their own, so xids start again at 1.
        self.last_xid = if self.last_xid == i32::MAX { 1 } else { self.last_xid + 1 };
        call.encode(self.last_xid, &self.settings.chroot, &mut self.output);
        self.sent_ms = now_ms;
        self.in_flight.push_back(InFlight {
            xid: self.last_xid,
            token,
            opcode: call.opcode(),
            shape: call.shape(),
            registration: call.watch().map(|(slot, path, watch)| Registration {
                slot,
                path: path.to_owned(),
                watch,
            }),
            removal: match call {
                Call::RemoveWatches { path, kind } => Some((path.clone(), *kind)),
                _ => None,
            },
        });
    }

    fn send_raw(&mut self, xid: i32, opcode: Opcode, now_ms: u64, body: impl FnOnce(&mut Vec<u8>)) {
        let start = begin_frame(&mut self.output);
        RequestHeader { xid, opcode: opcode as i32 }.encode(&mut self.output);
        body(&mut self.output);
        end_frame(&mut self.output, start);
        self.sent_ms = now_ms;
    }

    fn send_credential(&mut self, token: Option<Token>, credential: Credential, now_ms: u64) {
        self.send_raw(xid::AUTH, Opcode::Auth, now_ms, |out| {
            encode::auth(out, &credential.scheme, &credential.auth);
        });
        self.credentials.push(credential);
        self.auth_in_flight.push_back(token);
    }

    /// Tells a server that did not set them which watches the session has. It reports at once what
    /// happened since the last zxid that we have seen.
    fn set_watches_again(&mut self, now_ms: u64) {
        let chroot = self.settings.chroot.clone();
        let watched: Vec<(Slot, String)> =
            self.watches.paths().map(|(slot, path)| (slot, chroot.full(path).into_owned())).collect();
        let mut rest = watched.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, path): &&(Slot, String)| {
                bytes += path.len() + 4;
                bytes <= SET_WATCHES_BYTES_MAX
            };
            let (batch, tail) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = tail;
            let has_persistent = batch.iter().any(|(slot, _)| slot.is_persistent());
            let slots = if has_persistent { &Slot::ALL[..] } else { &Slot::ALL[..3] };
            let lists: Vec<Vec<&str>> = slots
                .iter()
                .map(|wanted| {
                    batch.iter().filter(|(slot, _)| slot == wanted).map(|(_, path)| path.as_str()).collect()
                })
                .collect();
            let lists: Vec<&[&str]> = lists.iter().map(Vec::as_slice).collect();
            // Servers before 3.6 know only the older request, which has no persistent watches.
            let opcode = if has_persistent { Opcode::SetWatches2 } else { Opcode::SetWatches };
            let zxid = self.zxid_seen;
            self.send_raw(xid::SET_WATCHES, opcode, now_ms, |out| encode::set_watches(out, zxid, &lists));
        }
    }

    fn complete(&mut self, token: Token, result: Result<Reply, ErrorCode>) {
        self.outputs.push_back(Output::Completed { token, result });
    }

    fn set_state(&mut self, state: State) {
        if self.state != state {
            self.state = state;
            self.outputs.push_back(Output::State(state));
        }
    }

    /// The session is gone, with its ephemerals, its watches and whatever waited for it.
    fn lose_session(&mut self) {
        (self.session, self.session_lasts) = (None, false);
        self.phase = Phase::Disconnected;
        self.timeout_ms = u64::from(self.settings.session_timeout_ms);
        self.set_state(State::Lost);
        self.fail_all();
    }

    /// The last state.
    fn end(&mut self, state: State) {
        self.session = None;
        self.phase = Phase::Ended;
        self.fail_all();
        self.set_state(state);
    }

    fn fail_all(&mut self) {
        for call in core::mem::take(&mut self.in_flight) {
            self.complete(call.token, Err(ErrorCode::SessionExpired));
        }
        for (token, _) in core::mem::take(&mut self.waiting) {
            self.complete(token, Err(ErrorCode::SessionExpired));
        }
        for watch in self.watches.clear() {
            self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::SessionLost });
        }
    }
}
