//! The state machine itself.

mod call;
mod chroot;
mod lane;
mod order;
mod place;
mod reply;
mod sides;
mod watches;

#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use stoa_wire::{
    ConnectRequest, ConnectResponse, DecodeError, ELSEWHERE, ErrorCode, EventKind, FrameError, Offer,
    PASSWORD_LEN, Reader, ReplyHeader, WatcherEvent, ask_direct, begin_frame, direct_xid, end_frame,
    next_frame, xid,
};

pub use call::Call;
pub use chroot::Chroot;
pub use reply::Reply;
pub use sides::SideWish;
pub use watches::WatchId;

use crate::types::{Event, State, WatchEnd};
use lane::{InFlight, Lane, MAIN, Stage};
use order::Held;
use place::Places;
use reply::error_code;
use watches::{Pace, Slot, Watches};

/// zxid of events that are told when watches are set again.
const ZXID_MISSED: i64 = -1;

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
    /// Whether to have a connection to each partition of a server that offers it.
    pub direct: bool,
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
    /// Something is to be done about a side connection.
    Side(SideWish),
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
    /// A side connection is lost, and could not be opened again.
    SideLost,
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
            Self::SideLost => f.write_str("the connection to a partition is lost"),
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
    /// There is a session, and side connections are being opened.
    Attaching,
    Ready,
    /// Nothing will ever be sent again.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    id: i64,
    password: [u8; PASSWORD_LEN],
}

/// An identity of the client, sent on every connection.
#[derive(Debug, Clone)]
struct Credential {
    scheme: String,
    auth: Vec<u8>,
}

/// A call that was not sent, or was given back.
#[derive(Debug)]
struct Waiting {
    token: Token,
    call: Call,
    returns: u8,
}

/// The protocol core. See the crate's documentation.
#[derive(Debug)]
pub struct Protocol {
    settings: Settings,
    phase: Phase,
    state: State,
    session: Option<Session>,
    /// Whether that is a session. What a read-only server gives in place of one is good for its connection only.
    session_lasts: bool,
    /// The server only reads.
    reads_only: bool,
    timeout_ms: u64,
    zxid_seen: i64,
    last_xid: i32,
    /// Calls that wait for a connection, or for answers of other partitions.
    waiting: VecDeque<Waiting>,
    credentials: Vec<Credential>,
    /// Watches of connections that are lost, and up to where each was told everything.
    unset: Vec<(i64, Watches)>,
    /// The main connection, then a place for the side connection of each partition.
    lanes: Vec<Lane>,
    /// Where the server has offered side connections.
    places: Option<Places>,
    /// What was received and may not be told yet.
    held: VecDeque<Held>,
    /// How many stamps were received.
    moments: u64,
    /// The server was asked where everything lives.
    asks_table: bool,
    /// Calls that were sent to the wrong partition, in their order.
    returned: Vec<Waiting>,
    outputs: VecDeque<Output>,
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
            reads_only: false,
            zxid_seen: 0,
            last_xid: 0,
            waiting: VecDeque::new(),
            credentials: Vec::new(),
            unset: Vec::new(),
            lanes: [Lane::new(Stage::Closed, 1)].into(),
            places: None,
            held: VecDeque::new(),
            moments: 0,
            asks_table: false,
            returned: Vec::new(),
            outputs: VecDeque::new(),
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
        self.waiting.len() + self.returned.len() + self.lanes.iter().map(Lane::pending).sum::<usize>()
    }

    /// The next thing to tell.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Bytes for the server. The driver takes off the front what it has written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.lanes[MAIN].output
    }

    /// A connection is up: greets the server.
    pub fn connected(&mut self, now_ms: u64) {
        if self.phase != Phase::Disconnected {
            return;
        }
        self.phase = Phase::Greeting;
        let session = self.session.filter(|_| self.session_lasts);
        let (session_id, password) = session.map_or((0, [0; PASSWORD_LEN]), |s| (s.id, s.password));
        let lane = &mut self.lanes[MAIN];
        lane.begin(now_ms);
        let start = begin_frame(&mut lane.output);
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.zxid_seen,
            timeout_ms: i32::try_from(self.settings.session_timeout_ms).unwrap_or(i32::MAX),
            session_id,
            password: &password,
            read_only: Some(self.settings.read_only),
        }
        .encode(&mut lane.output);
        if self.settings.direct {
            ask_direct(&mut lane.output);
        }
        end_frame(&mut lane.output, start);
    }

    /// The connection is gone, or could not be opened; side connections go with it.
    pub fn disconnected(&mut self) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Disconnected;
        let lanes = core::mem::replace(&mut self.lanes, [Lane::new(Stage::Closed, 1)].into());
        for lane in lanes {
            self.lose(lane);
        }
        // These were not carried out.
        for call in core::mem::take(&mut self.returned).into_iter().rev() {
            self.waiting.push_front(Waiting { returns: 0, ..call });
        }
        self.held.clear();
        (self.places, self.asks_table) = (None, false);
        if self.state.is_connected() {
            self.set_state(State::Suspended);
        }
    }

    /// A connection is lost: what was sent on it fails, and its watches are to be set again.
    fn lose(&mut self, mut lane: Lane) {
        for call in lane.in_flight.into_iter().chain(lane.fast) {
            // The session ends with its connection if the server got as far as closing it.
            let is_close = call.call == Call::Close;
            let result = if is_close { Ok(Reply::Nothing) } else { Err(ErrorCode::ConnectionLoss) };
            self.outputs.push_back(Output::Completed { token: call.token, result });
            if is_close {
                lane.watches.clear();
                self.end(State::Closed);
            }
        }
        for token in lane.auth_in_flight.into_iter().flatten() {
            self.complete(token, Err(ErrorCode::ConnectionLoss));
        }
        if !lane.watches.is_empty() {
            self.unset.push((lane.zxid, lane.watches));
        }
    }

    /// Makes a call. Its result comes as [`Output::Completed`] with the same token.
    pub fn submit(&mut self, token: Token, call: Call, now_ms: u64) {
        if let Err(code) = call.check() {
            self.complete(token, Err(code));
        } else if self.phase == Phase::Ended {
            self.complete(token, Err(ErrorCode::SessionExpired));
        } else if call == Call::Close && self.session.is_none() {
            self.complete(token, Ok(Reply::Nothing));
            self.end(State::Closed);
        } else {
            let waiting = Waiting { token, call, returns: 0 };
            if self.phase == Phase::Ready && Self::is_fast(&waiting) {
                self.send_fast(waiting, now_ms);
            } else {
                self.waiting.push_back(waiting);
            }
            self.flush(now_ms);
        }
    }

    /// Forgets a watch that nobody reads any more.
    pub fn forget(&mut self, watch: WatchId) {
        let unset = self.unset.iter_mut().map(|(_, watches)| watches);
        let set = self.lanes.iter_mut().map(|lane| &mut lane.watches);
        set.chain(unset).for_each(|watches| watches.forget(watch));
    }

    /// Handles bytes from the server.
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), Fault> {
        self.receive_on(MAIN, bytes, now_ms)
    }

    fn receive_on(&mut self, at: usize, bytes: &[u8], now_ms: u64) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        lane.received_ms = now_ms;
        let mut input = core::mem::take(&mut lane.input);
        input.extend_from_slice(bytes);
        let mut handled = 0;
        let result = loop {
            match next_frame(&input[handled..], self.settings.frame_bytes_max) {
                Ok(None) => break Ok(()),
                Err(error) => break Err(Fault::Frame(error)),
                Ok(Some((frame, rest))) => {
                    handled = input.len() - rest.len();
                    if let Err(fault) = self.frame(at, frame, now_ms) {
                        break Err(fault);
                    }
                }
            }
        };
        input.drain(..handled);
        self.lanes[at].input = input;
        // Answers may have let calls go on.
        self.flush(now_ms);
        result
    }

    /// Sends a heartbeat when it is time for one.
    ///
    /// # Errors
    /// When the server was silent for two thirds of the session timeout: time is left to find
    /// another one.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), Fault> {
        if !self.is_up() {
            return Ok(());
        }
        let lane = &mut self.lanes[MAIN];
        if now_ms >= lane.silence_ends_ms(self.timeout_ms) {
            return Err(Fault::Silent);
        }
        if lane.stage == Stage::Ready && now_ms >= lane.ping_due_ms(self.timeout_ms) {
            lane.send_ping(now_ms);
        }
        self.tick_sides(now_ms)
    }

    /// When [`Protocol::tick`] wants to be called next; `None` while there is no connection.
    #[must_use]
    pub fn next_tick_ms(&self) -> Option<u64> {
        if !self.is_up() {
            return None;
        }
        let next = self.lanes.iter().filter_map(|lane| match lane.stage {
            Stage::Greeting => Some(lane.silence_ends_ms(self.timeout_ms)),
            Stage::Ready => {
                Some(lane.silence_ends_ms(self.timeout_ms).min(lane.ping_due_ms(self.timeout_ms)))
            }
            Stage::Closed | Stage::Opening => None,
        });
        next.chain(self.next_side_tick_ms()).min()
    }

    fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Greeting | Phase::Attaching | Phase::Ready)
    }

    fn frame(&mut self, at: usize, frame: &[u8], now_ms: u64) -> Result<(), Fault> {
        match (self.phase, self.lanes[at].stage) {
            (Phase::Disconnected | Phase::Ended, _) => Ok(()),
            (Phase::Greeting, _) => self.greeted(frame, now_ms),
            (_, Stage::Greeting) => self.side_greeted(at, frame, now_ms),
            _ => self.said(at, frame),
        }
    }

    /// The server answered the handshake.
    fn greeted(&mut self, frame: &[u8], now_ms: u64) -> Result<(), Fault> {
        let response = ConnectResponse::decode(frame)?;
        if response.session_id == 0 || response.timeout_ms <= 0 {
            self.lose_session();
            return Err(Fault::SessionExpired);
        }
        self.session = Some(Session { id: response.session_id, password: response.password });
        self.timeout_ms = u64::from(response.timeout_ms.unsigned_abs());
        self.reads_only = response.read_only.unwrap_or(false);
        self.session_lasts |= !self.reads_only;
        self.lanes[MAIN].stage = Stage::Ready;
        let offer = if self.settings.direct && !self.reads_only { Offer::find(frame)? } else { None };
        match offer.filter(|offer| offer.partitions > 1) {
            Some(offer) => self.attach_sides(offer, now_ms),
            None => {
                self.get_ready(now_ms);
                Ok(())
            }
        }
    }

    /// All connections that there will be are there.
    fn get_ready(&mut self, now_ms: u64) {
        self.phase = Phase::Ready;
        self.set_state(if self.reads_only { State::ConnectedReadOnly } else { State::Connected });
        for lane in self.lanes.iter_mut().filter(|lane| lane.stage == Stage::Ready) {
            for credential in &self.credentials {
                lane.send_credential(None, credential, now_ms);
            }
        }
        self.set_watches_again(now_ms);
        self.flush(now_ms);
    }

    /// A frame on a connection that has its session.
    fn said(&mut self, at: usize, frame: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)?;
        self.zxid_seen = self.zxid_seen.max(header.zxid);
        let lane = &mut self.lanes[at];
        match header.xid {
            direct_xid::STAMP if self.places.is_some() => return self.stamped(at, &mut reader),
            direct_xid::REACHED if self.places.is_some() => return self.has_reached(at),
            direct_xid::TABLE if self.places.is_some() => return self.table_told(&mut reader),
            direct_xid::MOVED if self.places.is_some() => return self.watches_moved(at, &mut reader),
            // Something has moved while they were nowhere: what happened to it is told to who starts anew.
            xid::SET_WATCHES if header.err == ELSEWHERE && at != MAIN => return Err(Fault::SideLost),
            xid::NOTIFICATION => self.notified(at, frame, header, WatcherEvent::decode(&mut reader)?)?,
            xid::PING => {}
            xid::SET_WATCHES => {
                lane.sets_in_flight = lane.sets_in_flight.saturating_sub(1);
                if !self.held.iter().any(|held| held.lane == at) {
                    lane.has_told(header.zxid);
                }
                self.release()?;
            }
            xid::AUTH => self.authenticated(at, header.err)?,
            xid => match lane.fast.iter().position(|call| call.xid == xid) {
                Some(position) => {
                    let call = lane.fast.swap_remove(position);
                    self.answered(at, call, header, &mut reader)?;
                }
                None => self.in_order(at, frame)?,
            },
        }
        self.taken(at, frame.len() + 4)
    }

    /// Tells a reply or an event whose turn has come.
    fn tell(&mut self, at: usize, frame: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)?;
        if header.xid == xid::NOTIFICATION {
            return self.fire(at, header, &WatcherEvent::decode(&mut reader)?, Pace::Ordered);
        }
        let lane = &mut self.lanes[at];
        lane.has_told(header.zxid);
        let expected = lane.in_flight.front().map(|call| call.xid);
        match lane.in_flight.pop_front_if(|call| call.xid == header.xid) {
            Some(call) => self.answered(at, call, header, &mut reader),
            // What was sent and will not be answered fails with the connection.
            None => Err(Fault::Unexpected { expected, got: header.xid }),
        }
    }

    fn answered(
        &mut self,
        at: usize,
        sent: InFlight,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Result<(), Fault> {
        let result = match header.err {
            0 => match sent.call.shape().decode(reader, &self.settings.chroot) {
                Ok(reply) => Ok(reply),
                Err(error) => {
                    self.lanes[at].in_flight.push_front(sent);
                    return Err(Fault::Decode(error));
                }
            },
            ELSEWHERE if self.places.is_some() => {
                self.given_back(at, sent);
                return Ok(());
            }
            number => Err(error_code(number)),
        };
        let InFlight { token, call, watches, .. } = sent;
        if !watches && let Some((slot, path, watch)) = call.sets_watch(header.err) {
            self.watch(at, slot, path, &[(call.pace(), watch)], header.zxid);
        }
        // Of some no server knows.
        if let (Call::RemoveWatches { path, kind }, Ok(_) | Err(ErrorCode::NoWatcher)) = (&call, &result) {
            for watch in self.lanes[at].watches.remove(path, *kind) {
                self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::Removed });
            }
        }
        self.complete(token, result);
        if call == Call::Close {
            self.end(State::Closed);
            return Err(Fault::Closed);
        }
        Ok(())
    }

    /// There is a watch on a connection, of which everything was told up to `zxid`.
    fn watch<'a>(
        &mut self,
        at: usize,
        slot: Slot,
        path: &str,
        watches: impl IntoIterator<Item = &'a (Pace, WatchId)>,
        zxid: i64,
    ) {
        let lane = &mut self.lanes[at];
        lane.watches_since(zxid);
        // A side connection tells of its own partition, the main one of whichever has it: the server knows.
        lane.watched |= if at == MAIN { u64::MAX } else { 1 << (at - 1) };
        for (pace, watch) in watches {
            lane.watches.add(slot, path, *pace, *watch);
        }
    }

    /// A notification has come: fast watches are told at once, others in order.
    fn notified(
        &mut self,
        at: usize,
        frame: &[u8],
        header: ReplyHeader,
        event: WatcherEvent<'_>,
    ) -> Result<(), Fault> {
        self.fire(at, header, &event, Pace::Fast)?;
        // One that is set by a reply that waits is not known yet.
        let waits = self.held.iter().any(|held| held.lane == at);
        if header.zxid == ZXID_MISSED {
            // It has happened before the stamp that it comes with, nobody knows when: so it cannot be put in
            // order with what waits. The answer to the request that set the watch again has not come, and
            // what comes on other connections waits for that.
            self.tell(at, frame)
        } else if self.places.is_none() || waits || self.lanes[at].watches.have_order() {
            self.in_order(at, frame)
        } else {
            Ok(())
        }
    }

    fn fire(
        &mut self,
        at: usize,
        header: ReplyHeader,
        event: &WatcherEvent<'_>,
        pace: Pace,
    ) -> Result<(), Fault> {
        let kind = EventKind::from_i32(event.kind).ok_or(DecodeError::BadValue("type of a watch event"))?;
        let path = self.settings.chroot.local(event.path);
        for (watch, over) in self.lanes[at].watches.fire(kind, path, pace) {
            let event = Event { kind, path: path.to_owned(), zxid: header.zxid };
            self.outputs.push_back(Output::Event { watch, event });
            if over {
                self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::Fired });
            }
        }
        Ok(())
    }

    fn authenticated(&mut self, at: usize, err: i32) -> Result<(), Fault> {
        let Some(token) = self.lanes[at].auth_in_flight.pop_front() else {
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

    /// Sends what need not wait, in its order.
    fn flush(&mut self, now_ms: u64) {
        self.take_back();
        while self.phase == Phase::Ready && self.returned.is_empty() && !self.asks_table {
            let Some(first) = self.waiting.front() else { return };
            if first.call.is_for_other(self.session_id()) {
                let token = first.token;
                self.waiting.pop_front();
                self.complete(token, Err(ErrorCode::SessionExpired));
                continue;
            }
            let at = self.lane_of(&first.call, first.returns);
            let is_fast = Self::is_fast(first);
            if !is_fast && !self.is_free_for(at) {
                return;
            }
            let Some(call) = self.waiting.pop_front() else { return };
            if is_fast {
                self.send_fast(call, now_ms);
            } else {
                self.send(at, call, now_ms);
            }
        }
    }

    fn send(&mut self, at: usize, Waiting { token, call, returns }: Waiting, now_ms: u64) {
        if let Call::Auth { scheme, auth } = call {
            self.prove(token, Credential { scheme, auth }, now_ms);
            return;
        }
        self.tell_news(at, now_ms);
        self.last_xid = next_xid(self.last_xid);
        let xid = self.last_xid;
        let lane = &mut self.lanes[at];
        call.encode(xid, &self.settings.chroot, &mut lane.output);
        lane.sent_ms = now_ms;
        lane.in_flight.push_back(InFlight { xid, token, call, returns, watches: false });
    }

    /// An identity is proved on each connection. The main one's answer counts; one that refuses ends all.
    fn prove(&mut self, token: Token, credential: Credential, now_ms: u64) {
        for (at, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.stage == Stage::Ready) {
            lane.send_credential((at == MAIN).then_some(token), &credential, now_ms);
        }
        self.credentials.push(credential);
    }

    /// Sets the watches again that lost connections had.
    pub(super) fn set_watches_again(&mut self, now_ms: u64) {
        for (since, watches) in core::mem::take(&mut self.unset) {
            let mut of_lane: Vec<Vec<(Slot, String)>> = Vec::new();
            of_lane.resize_with(self.lanes.len(), Vec::new);
            for (slot, path, ids) in watches.iter() {
                let at = self.lane_of_watch(slot, path);
                of_lane[at].push((slot, path.to_owned()));
                self.watch(at, slot, path, ids, since);
            }
            for (at, watched) in of_lane.into_iter().enumerate().filter(|(_, watched)| !watched.is_empty()) {
                self.tell_news(at, now_ms);
                self.lanes[at].set_watches(since, &watched, &self.settings.chroot, now_ms);
            }
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
        for lane in &mut self.lanes {
            let sent = lane.in_flight.drain(..).chain(lane.fast.drain(..)).map(|call| call.token);
            let tokens: Vec<_> = sent.collect();
            for token in tokens {
                let result = Err(ErrorCode::SessionExpired);
                self.outputs.push_back(Output::Completed { token, result });
            }
        }
        self.held.clear();
        for call in core::mem::take(&mut self.returned).into_iter().chain(core::mem::take(&mut self.waiting))
        {
            self.complete(call.token, Err(ErrorCode::SessionExpired));
        }
        let mut ended: Vec<_> = self.lanes.iter_mut().flat_map(|lane| lane.watches.clear()).collect();
        for (_, mut watches) in core::mem::take(&mut self.unset) {
            ended.extend(watches.clear());
        }
        for watch in ended {
            self.outputs.push_back(Output::WatchEnded { watch, end: WatchEnd::SessionLost });
        }
    }
}

/// Negative xids have meanings of their own, so xids start again at 1.
fn next_xid(last: i32) -> i32 {
    if last == i32::MAX { 1 } else { last + 1 }
}
