//! One client's connection: where it stands, what it waits for, what is to be sent to it.

use crate::audit::{Audit, AuditEvent, Audited};
use crate::auth::{CONSISTENCY, IDENTITIES_BYTES_MAX, LINEARIZABLE, SEQUENTIAL};
use crate::config::Limits;
use crate::held::Held;
use crate::message::Introduction;
use crate::remote_client::RemoteClient;
use crate::route::Route;
use crate::sasl::SaslToken;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slab::Slab;
use stoa_partition::{FAILURE_PATH, IDENTITIES_MAX, Now};
use stoa_tree::Identity;
use stoa_wire::{Opcode, Reader, RequestHeader};

/// Names a connection; never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// The name of a connection to a reader below this server, as the one with this number: a client's has none that is
    /// so large.
    #[must_use]
    pub fn of_reader(number: u64) -> Self {
        Self((number >> 31) << 32 | Self::READER | number & (Self::READER - 1))
    }

    const READER: u64 = 1 << 31;

    /// Whether it is the name of a reader.
    #[must_use]
    #[inline]
    pub fn is_of_reader(self) -> bool {
        self.0 & Self::READER != 0
    }

    fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// Why the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed its session.
    SessionClosed,
    /// The session has expired, or the client named one that does not exist (any more).
    SessionExpired,
    /// The session is now on another connection.
    SessionMoved,
    /// The client has seen a zxid that this server has not.
    ClientAhead,
    /// Authentication failed.
    AuthFailed,
    /// The client asked for something before it had proved who it is, as all have to.
    AuthRequired,
    /// The handshake took too long.
    HandshakeTimeout,
    /// A frame was announced that is far too long, or negative.
    BadFrame,
    /// Bytes that are not the protocol's.
    Malformed,
    /// An opcode that does not exist.
    UnknownOpcode,
    /// The client does not read what is sent to it.
    SlowReader,
    /// The log refused the creation of the session.
    NoRoom,
    /// Another server leads now, and what became of a request is not known.
    LeaderChanged,
    /// This server has no contact with a majority.
    NoQuorum,
    /// This server only reads, for lack of a leader: its clients have to learn that, or have not said that it
    /// will do.
    OnlyReads,
    /// A leader is known again, and the connection was read-only.
    ReadsEnd,
    /// This server was so far behind that it has taken over another one's snapshot.
    StateReplaced,
    /// This server's site has not joined the others yet.
    NotJoined,
    /// It has asked for what another site has to do, or to have as well, and that was away for too long: nobody knows what
    /// becomes of it.
    SiteAway,
    /// It was a side connection, and the main one has ended.
    MainEnded,
    /// An operator closed it, or the server shuts down.
    Operator,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionClosed => "the session was closed",
            Self::SessionExpired => "the session has expired or never existed",
            Self::SessionMoved => "the session moved to another connection",
            Self::ClientAhead => "the client has seen a later zxid than this server's",
            Self::AuthFailed => "authentication failed",
            Self::AuthRequired => {
                "the client has not proved who it is, which the settings demand (require-schemes)"
            }
            Self::HandshakeTimeout => "no handshake in time",
            Self::BadFrame => "a frame's length is out of range",
            Self::Malformed => "malformed bytes",
            Self::UnknownOpcode => "unknown opcode",
            Self::SlowReader => "the client does not read its replies",
            Self::NoRoom => "there is no room in the log",
            Self::LeaderChanged => "another server leads now, and the fate of a request is not known",
            Self::NoQuorum => "this server has no contact with a majority of the ensemble",
            Self::OnlyReads => "this server knows of no leader and only reads",
            Self::ReadsEnd => "a leader is known again, and the connection was read-only",
            Self::StateReplaced => "this server has taken over the state of another one",
            Self::NotJoined => "this site has not joined the others yet",
            Self::SiteAway => "another site that a request needs is away for too long",
            Self::MainEnded => "the client's main connection has ended",
            Self::Operator => "closed by the server's operator",
        })
    }
}

/// Index of a live session; a connection keeps it, so that a touch needs no look-up.
pub type SessionKey = usize;

/// Where a connection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing whole has arrived yet.
    Handshake,
    /// The session's creation, or its coming here, is on its way.
    Opening {
        /// The timeout that is granted, milliseconds.
        timeout_ms: i32,
        /// What a client that asked is told: whether the session can only read.
        read_only: Option<bool>,
    },
    /// Attached to a session.
    Live(SessionKey),
    /// Its session is kept by another partition of the server.
    Remote,
    /// The server only reads, and the client may.
    ReadOnly,
    /// Nothing is read any more; what is left to send may still be sent.
    Closing,
}

/// Something that must be answered in its turn.
#[derive(Debug)]
pub enum Slot {
    /// A write: answered when its outcome is applied.
    Write {
        /// The request's xid.
        xid: i32,
        /// The request's opcode.
        opcode: Opcode,
        /// When it was asked.
        arrived_us: u64,
        /// What follows depends on that.
        bars: bool,
    },
    /// The answer is known, but rests on something: it may leave when that is applied. (An error that was found
    /// against the proposed state, a frame too large.)
    Answer {
        /// It rests on everything up to this zxid.
        after: i64,
        /// The request's xid.
        xid: i32,
        /// The request's opcode.
        opcode: Opcode,
        /// The error, or 0.
        err: i32,
        /// What follows the header.
        body: Vec<u8>,
        /// When it was asked.
        arrived_us: u64,
    },
    /// What follows waits until everything is applied that was committed when it was asked.
    Barrier {
        /// The barrier's number.
        id: u64,
        /// The sync that asked for it.
        answer: Option<Barred>,
    },
    /// What follows waits because of what a program has taken for the client.
    Pause {
        /// Until then, microseconds.
        until_us: u64,
    },
    /// A read behind a write of the same session, or anything behind a barrier.
    Request {
        /// As it has come.
        frame: Box<[u8]>,
        /// When it was asked.
        arrived_us: u64,
        /// Whether a read is one that a program carries out, as a write, shows when what stands before it is applied;
        /// so writes behind it wait.
        may_write: bool,
    },
}

/// A sync that is answered when its barrier falls.
#[derive(Debug)]
pub struct Barred {
    /// The request's xid.
    pub xid: i32,
    /// The body of the answer.
    pub body: Vec<u8>,
    /// When it was asked.
    pub arrived_us: u64,
}

impl Slot {
    /// Whether writes behind it must wait for it: they would overtake it.
    fn bars(&self) -> bool {
        match self {
            Self::Barrier { .. }
            | Self::Pause { .. }
            | Self::Write { bars: true, .. }
            | Self::Request { may_write: true, .. } => true,
            Self::Request { frame, .. } => {
                let header = RequestHeader::decode(&mut Reader::new(frame));
                header.is_ok_and(|it| Opcode::from_i32(it.opcode).is_some_and(|opcode| !opcode.is_read()))
            }
            Self::Write { .. } | Self::Answer { .. } => false,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write { .. } | Self::Pause { .. } | Self::Barrier { answer: None, .. } => 0,
            Self::Barrier { answer: Some(answer), .. } => answer.body.len(),
            Self::Answer { body, .. } => body.len(),
            Self::Request { frame, .. } => frame.len(),
        }
    }
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    /// The other end.
    pub peer: SocketAddr,
    /// The session, 0 before there is one.
    pub session: i64,
    /// Negotiated timeout, milliseconds.
    pub timeout_ms: i32,
    /// Identities proved so far.
    pub identities: Vec<Identity>,
    /// What went over it.
    pub traffic: Traffic,
    /// Where it stands.
    pub phase: Phase,
    /// How its client came, and what it has asked for.
    pub mode: Mode,
    /// How it is read from.
    pub input: Input,
    pub(crate) queue: Queue,
    output: Outgoing,
    programs: OfPrograms,
    pub(crate) close_reason: Option<CloseReason>,
    /// Whose client it is, where the server has several partitions and this is one of them.
    pub remote: Option<Box<RemoteClient>>,
    /// Where its requests go, where the server has several partitions and this is its front.
    pub(crate) route: Option<Box<Route>>,
}

/// What went over a connection.
#[derive(Debug)]
pub struct Traffic {
    /// When the connection was accepted.
    pub established: Now,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// The last request's opcode.
    pub last_op: Option<Opcode>,
    /// The last request's xid.
    pub last_xid: i32,
    /// The last reply's zxid.
    pub last_zxid: i64,
    /// When the last reply was written, microseconds of the driver's clock that never goes back.
    pub last_reply_us: u64,
    /// Last latency, microseconds.
    pub latency_last_us: u64,
    /// Least latency, microseconds.
    pub latency_min_us: u64,
    /// Largest latency, microseconds.
    pub latency_max_us: u64,
    /// Sum of latencies, microseconds.
    pub latency_sum_us: u64,
}

impl Traffic {
    fn new(established: Now) -> Self {
        Self {
            established,
            received: 0,
            sent: 0,
            last_op: None,
            last_xid: 0,
            last_zxid: 0,
            last_reply_us: 0,
            latency_last_us: 0,
            latency_min_us: u64::MAX,
            latency_max_us: 0,
            latency_sum_us: 0,
        }
    }

    fn replied(&mut self, latency_us: u64, now_us: u64) {
        self.latency_last_us = latency_us;
        self.latency_min_us = self.latency_min_us.min(latency_us);
        self.latency_max_us = self.latency_max_us.max(latency_us);
        self.latency_sum_us += latency_us;
        self.last_reply_us = now_us;
    }

    /// Forgets latencies and packet counts, as the word `crst` asks.
    pub fn reset(&mut self) {
        *self = Self { last_reply_us: self.last_reply_us, ..Self::new(self.established) };
    }
}

/// How a client came here, and what it has asked for as long as it is connected.
#[derive(Debug, Default)]
pub struct Mode {
    /// The request with which its session came here.
    pub opening: u64,
    /// Whether its reads must see everything that was acknowledged to anybody before them.
    pub reads_newest: bool,
    /// Whether it is content with a server that only reads.
    pub takes_read_only: bool,
    /// Whether its session has come from another site.
    pub has_come: bool,
    /// Whether its session has yet to be brought to the member that asks in this reader's place: until then it may not
    /// write.
    pub is_away: bool,
    /// Where the first partition has told that: see [`crate::Attached::came_zxid`].
    pub came_zxid: i64,
}

/// How a connection is read from.
#[derive(Debug, Default)]
pub struct Input {
    /// Bytes of a frame that is too long, still to be skipped.
    pub skip: usize,
    /// Whether reading was stopped and must be resumed by us.
    pub paused: bool,
}

/// What must be answered, in its order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) slots: VecDeque<Slot>,
    /// Bytes that they hold.
    pub(crate) bytes: usize,
    /// Barriers and pauses among what waits, and writes that waited behind one.
    pub(crate) bars: usize,
    /// What the audit log is told of them.
    pub(crate) audited: Option<Box<Audited>>,
}

/// What is to be sent to a client.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// How many of them have been sent.
    sent: usize,
    /// Whether the driver has been told that there is output.
    announced: bool,
    /// Frames among them that answer something, where a front wants to know.
    answers: u32,
    /// What comes behind them, and waits until another site has what it is about.
    held: Option<Box<Held>>,
}

/// Names of watches that clients know by other paths than what is watched: by the path, what it is known as.
type Aliases = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// What programs have to do with a client.
#[derive(Debug, Default)]
struct OfPrograms {
    /// Why the last of its calls of a program, or registrations of one, has failed.
    failure: Option<Box<str>>,
    aliases: Option<Box<Aliases>>,
}

impl Connection {
    /// Requests under way.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let under_way = self.route.as_ref().map_or(0, |route| route.requests.under_way as usize);
        self.queue.slots.len() + under_way + self.output.held.as_ref().map_or(0, |held| held.waits())
    }

    /// Whether what is written for it waits until another site has something.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.output.held.is_some()
    }

    #[inline]
    pub(crate) fn held_mut(&mut self) -> &mut Option<Box<Held>> {
        &mut self.output.held
    }

    /// What must be answered, in its order.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> &VecDeque<Slot> {
        &self.queue.slots
    }

    /// Takes all of that out, for something to stand before it: see [`Connection::put_slots_behind`].
    pub fn take_slots(&mut self) -> VecDeque<Slot> {
        core::mem::take(&mut self.queue.slots)
    }

    /// Puts it back, behind what stands there now.
    pub fn put_slots_behind(&mut self, rest: VecDeque<Slot>) {
        // What waits may be much, and what it waits for now is little.
        let first = core::mem::replace(&mut self.queue.slots, rest);
        first.into_iter().rev().for_each(|slot| self.queue.slots.push_front(slot));
    }

    /// Whether a write would overtake something.
    #[inline]
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.queue.bars > 0
    }

    /// The oldest write turns out to be a read, which is carried out when its turn comes. A read bars nothing, neither
    /// as the write that it was taken for nor as a request.
    pub fn reads_instead(&mut self, frame: Box<[u8]>) {
        let write = self.queue.slots.iter().position(|slot| matches!(slot, Slot::Write { .. }));
        if let Some(at) = write {
            self.asks_instead(at, frame);
        }
    }

    /// In place of a write, so far behind the first slot, this is asked when it is its turn.
    pub fn asks_instead(&mut self, at: usize, frame: Box<[u8]>) {
        if let Some(slot) = self.queue.slots.get_mut(at)
            && let Slot::Write { arrived_us, .. } = *slot
        {
            self.queue.bytes += frame.len();
            self.queue.bars -= usize::from(slot.bars());
            *slot = Slot::Request { frame, arrived_us, may_write: false };
            self.queue.bars += usize::from(slot.bars());
        }
    }

    /// Whether it has as much under way, or unread, as it may.
    #[inline]
    #[must_use]
    pub fn is_saturated(&self, limits: &Limits) -> bool {
        matches!(self.phase, Phase::Opening { .. })
            || self.outstanding() >= limits.outstanding_per_connection
            || self.queue.bytes >= limits.queued_bytes_per_connection
            || self.output_bytes() >= limits.output_pause_bytes
    }

    /// An answer has been written.
    #[inline]
    pub fn answered(&mut self, zxid: i64, latency_us: u64, now_us: u64) {
        self.traffic.sent += 1;
        self.output.answers += 1;
        self.traffic.last_zxid = zxid;
        self.traffic.replied(latency_us, now_us);
    }

    /// Takes what has been written for it, and how many answers are in it.
    #[inline]
    pub fn take_output(&mut self) -> (u32, Vec<u8>) {
        (core::mem::take(&mut self.output.answers), core::mem::take(&mut self.output.bytes))
    }

    /// What has been written for it is this, where [`Connections::output`] has it written.
    #[inline]
    pub fn set_output(&mut self, bytes: Vec<u8>) {
        match &mut self.output.held {
            None => self.output.bytes = bytes,
            Some(held) => *held.bytes_mut() = bytes,
        }
    }

    /// Nothing has been written for it.
    pub fn clear_output(&mut self) {
        self.output.bytes.clear();
    }

    /// The server closes it. Where it stood; `None` when it is being closed already.
    pub fn close(&mut self, reason: CloseReason) -> Option<Phase> {
        if self.phase == Phase::Closing {
            return None;
        }
        self.close_reason = Some(reason);
        Some(core::mem::replace(&mut self.phase, Phase::Closing))
    }

    /// A call of a program has failed, or a registration of one.
    pub fn failed(&mut self, why: Box<str>) {
        self.programs.failure = Some(why);
    }

    /// Why the last one failed, if that is what is asked for.
    #[must_use]
    pub fn failure_at(&self, path: &str) -> Option<&str> {
        self.programs.failure.as_deref().filter(|_| path == FAILURE_PATH)
    }

    /// A path is watched that its client knows by another name.
    pub fn knows_as(&mut self, path: &str, known_as: &str) {
        self.programs.aliases.get_or_insert_default().entry(path.into()).or_default().insert(known_as.into());
    }

    /// Notes how new what it reads must be. False when an auth packet does not speak of that.
    pub fn says_how_new(&mut self, scheme: &str, auth: &[u8]) -> bool {
        let speaks = scheme == CONSISTENCY && matches!(auth, LINEARIZABLE | SEQUENTIAL);
        if speaks {
            self.mode.reads_newest = auth == LINEARIZABLE;
        }
        speaks
    }

    /// Whether nothing is read from it until there is room again.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.input.paused
    }

    /// Whether it is not read from because of what the server has under way, not because its client
    /// does not read: then the client may have said something that nobody has heard.
    pub fn is_held_up(&self, limits: &Limits) -> bool {
        self.input.paused && self.unsent().len() < limits.output_pause_bytes
    }

    /// Whether it may only read, because the server knows of no leader.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.phase == Phase::ReadOnly
    }

    /// Who it is, for partitions that do not know it.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { address: self.peer, identities: self.identities.clone() }
    }

    /// Its client has proved to be all of this as well. False, and nothing is kept, when it is more than one
    /// connection can hold.
    pub fn prove(&mut self, identities: Vec<Identity>) -> bool {
        let new: Vec<_> = identities.into_iter().filter(|new| !self.identities.contains(new)).collect();
        let bytes = |identity: &Identity| identity.scheme.len() + identity.id.len();
        let all_bytes: usize = self.identities.iter().chain(&new).map(bytes).sum();
        let fits = self.identities.len() + new.len() <= IDENTITIES_MAX && all_bytes <= IDENTITIES_BYTES_MAX;
        if fits {
            self.identities.extend(new);
        }
        fits
    }

    /// Why the server closes it, once it does.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// What is waiting to be sent.
    pub fn unsent(&self) -> &[u8] {
        self.output.bytes.get(self.output.sent..).unwrap_or_default()
    }

    /// Bytes waiting to be sent, those among them that may not be sent yet.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let held = self.output.held.as_ref().map_or(0, |held| held.bytes().len());
        self.output.bytes.len() - self.output.sent + held
    }
}

/// All connections of a thread's clients, or of a partition's.
#[derive(Default)]
pub struct Connections {
    slots: Slab<(u32, Connection)>,
    generation: u32,
    by_address: HashMap<IpAddr, usize, FixedState>,
    /// Connections with output or with an end to announce, in order.
    announced: VecDeque<ConnectionId>,
    /// Empty buffers to use again: most connections have nothing to send most of the time.
    spare: Vec<Vec<u8>>,
    /// Requests in all queues, and answers that wait for another site.
    pub(crate) outstanding: usize,
    /// Connections that are not read from because the server has too much under way, in order.
    congested: VecDeque<ConnectionId>,
    /// Tokens that the driver has to look at.
    pub(crate) sasl: VecDeque<SaslToken>,
    /// For the audit log.
    pub(crate) audit: Audit,
}

const SPARE_BUFFERS: usize = 64;
const SPARE_BUFFER_BYTES: usize = 64 << 10;

impl Connections {
    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for that")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Requests in all queues.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// How many the driver has yet to be told of.
    #[inline]
    #[must_use]
    pub fn announced_count(&self) -> usize {
        self.announced.len()
    }

    /// One is not read from because the server has too much under way.
    pub fn push_congested(&mut self, id: ConnectionId) {
        self.congested.push_back(id);
    }

    /// The first of them that may go on, when there is room again.
    pub fn pop_congested(&mut self) -> Option<ConnectionId> {
        self.congested.pop_front()
    }

    /// Whether there are such.
    #[inline]
    #[must_use]
    pub fn has_congested(&self) -> bool {
        !self.congested.is_empty()
    }

    /// The next token of SASL that the driver has to look at.
    pub fn poll_sasl(&mut self) -> Option<SaslToken> {
        self.sasl.pop_front()
    }

    /// The next event for the audit log.
    #[inline]
    pub fn poll_audit(&mut self) -> Option<AuditEvent> {
        self.audit.events.pop_front()
    }

    /// Whether the audit log wants to know.
    #[inline]
    #[must_use]
    pub fn is_audited(&self) -> bool {
        self.audit.is_on
    }

    /// A client has connected, if there may be one more.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn admit(
        &mut self,
        limits: &Limits,
        peer: SocketAddr,
        now: Now,
    ) -> Result<ConnectionId, ConnectError> {
        if limits.connections != 0 && self.len() >= limits.connections {
            return Err(ConnectError::TooMany { limit: limits.connections });
        }
        let limit = limits.connections_per_address;
        if limit != 0 && self.count_from(peer.ip()) >= limit {
            return Err(ConnectError::TooManyFromAddress { limit });
        }
        Ok(self.insert(peer, now))
    }

    fn count_from(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// One more, whatever the limits are.
    pub fn insert(&mut self, peer: SocketAddr, now: Now) -> ConnectionId {
        *self.by_address.entry(peer.ip()).or_insert(0) += 1;
        self.generation = self.generation.wrapping_add(1);
        let index = self.slots.insert((
            self.generation,
            Connection {
                peer,
                session: 0,
                timeout_ms: 0,
                identities: Vec::new(),
                traffic: Traffic::new(now),
                phase: Phase::Handshake,
                mode: Mode::default(),
                input: Input::default(),
                queue: Queue::default(),
                output: Outgoing::default(),
                programs: OfPrograms::default(),
                close_reason: None,
                remote: None,
                route: None,
            },
        ));
        ConnectionId((u64::from(self.generation) << 32) | index as u64)
    }

    /// One of them, if it is there.
    #[inline]
    #[must_use]
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots
            .get(id.index())
            .filter(|(generation, _)| u64::from(*generation) == id.0 >> 32)
            .map(|(_, connection)| connection)
    }

    /// One of them, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots
            .get_mut(id.index())
            .filter(|(generation, _)| u64::from(*generation) == id.0 >> 32)
            .map(|(_, connection)| connection)
    }

    /// One is over.
    pub fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.get(id)?;
        let (_, mut connection) = self.slots.remove(id.index());
        self.audit_end(&mut connection);
        self.outstanding -= connection.queue.slots.len();
        self.outstanding -= connection.output.held.as_ref().map_or(0, |held| held.waits());
        let address = connection.peer.ip();
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(connection)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.slots.iter().map(|(index, (generation, connection))| {
            (ConnectionId((u64::from(*generation) << 32) | index as u64), connection)
        })
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().map(|(_, (_, connection))| connection)
    }

    /// The buffer to append to; the driver will be told, unless that has to wait until another site has something.
    #[inline]
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.output_for(id, false)
    }

    /// The same for what passes everything that has to wait.
    #[inline]
    pub fn output_at_once(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.output_for(id, true)
    }

    #[inline]
    fn output_for(&mut self, id: ConnectionId, at_once: bool) -> Option<&mut Vec<u8>> {
        // Written out instead of `get_mut`, so that the other fields stay reachable.
        let (generation, connection) = self.slots.get_mut(id.index())?;
        if u64::from(*generation) != id.0 >> 32 {
            return None;
        }
        if connection.output.held.is_some() && !at_once {
            return connection.output.held.as_mut().map(|held| held.bytes_mut());
        }
        if !connection.output.announced {
            connection.output.announced = true;
            self.announced.push_back(id);
        }
        if connection.output.bytes.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            connection.output.bytes = spare;
        }
        Some(&mut connection.output.bytes)
    }

    /// Appends to a connection's output, without a copy where nothing waits there, and leaves `bytes` empty.
    /// Returns how many bytes wait then.
    pub(crate) fn append(&mut self, id: ConnectionId, bytes: &mut Vec<u8>) -> usize {
        if !bytes.is_empty() {
            self.announce(id);
        }
        self.append_quietly(id, bytes)
    }

    /// The same, and nobody need send it yet.
    pub(crate) fn append_quietly(&mut self, id: ConnectionId, bytes: &mut Vec<u8>) -> usize {
        let found = self.slots.get_mut(id.index());
        let Some((_, connection)) = found.filter(|(generation, _)| u64::from(*generation) == id.0 >> 32)
        else {
            return 0;
        };
        if connection.output.bytes.is_empty() {
            core::mem::swap(&mut connection.output.bytes, bytes);
        } else {
            connection.output.bytes.extend_from_slice(bytes);
            bytes.clear();
        }
        connection.output_bytes()
    }

    /// An empty buffer that is not needed here.
    pub fn spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Keeps a buffer to use it again; what is in it is not needed any more.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if self.spare.len() < SPARE_BUFFERS && capacity > 0 && capacity <= SPARE_BUFFER_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// The next connection that the driver is to be told of.
    pub fn poll_announced(&mut self) -> Option<Output> {
        let id = self.announced.pop_front()?;
        if let Some(connection) = self.get_mut(id) {
            connection.output.announced = false;
        }
        Some(Output::Send(id))
    }

    /// Has the driver told again that there is output.
    pub(crate) fn announce(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id).filter(|connection| !connection.output.announced) {
            connection.output.announced = true;
            self.announced.push_back(id);
        }
    }

    /// The same, before all others.
    pub fn announce_first(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id).filter(|connection| !connection.output.announced) {
            connection.output.announced = true;
            self.announced.push_front(id);
        }
    }

    /// `sent` bytes have left; an emptied buffer goes back to the spare ones.
    #[inline]
    pub fn advance(&mut self, id: ConnectionId, sent: usize) {
        let Some(connection) = self.get_mut(id) else { return };
        connection.output.sent += sent;
        if connection.output.sent >= connection.output.bytes.len() {
            connection.output.sent = 0;
            connection.output.bytes.clear();
            let buffer = core::mem::take(&mut connection.output.bytes);
            self.recycle(buffer);
        }
    }

    /// By which names a connection knows a path that it watches for the sake of programs. They are forgotten.
    pub fn take_aliases(&mut self, id: ConnectionId, path: &str) -> BTreeSet<Box<str>> {
        let Some(connection) = self.get_mut(id) else { return BTreeSet::new() };
        let Some(aliases) = &mut connection.programs.aliases else { return BTreeSet::new() };
        let taken = aliases.remove(path).unwrap_or_default();
        if aliases.is_empty() {
            connection.programs.aliases = None;
        }
        taken
    }

    /// Something must be answered after all that must be already.
    pub fn push_slot(&mut self, id: ConnectionId, slot: Slot) {
        if let Some(connection) = self.get_mut(id) {
            connection.queue.bytes += slot.bytes();
            connection.queue.bars += usize::from(slot.bars());
            connection.queue.slots.push_back(slot);
            self.outstanding += 1;
        }
    }

    /// Takes out what must be answered next.
    pub fn pop_slot(&mut self, id: ConnectionId) -> Option<Slot> {
        let connection = self.get_mut(id)?;
        let slot = connection.queue.slots.pop_front()?;
        connection.queue.bytes -= slot.bytes();
        connection.queue.bars -= usize::from(slot.bars());
        self.outstanding -= 1;
        Some(slot)
    }

    /// Before all that waits already.
    pub(crate) fn push_slot_first(&mut self, id: ConnectionId, slot: Slot) {
        self.push_slot(id, slot);
        if let Some(connection) = self.get_mut(id) {
            connection.queue.slots.rotate_right(1);
        }
    }

    /// Takes out the slot in this place.
    pub fn remove_slot(&mut self, id: ConnectionId, at: usize) -> Option<Slot> {
        let connection = self.get_mut(id)?;
        connection.queue.slots.get(at)?;
        connection.queue.slots.rotate_left(at);
        let slot = self.pop_slot(id);
        self.get_mut(id)?.queue.slots.rotate_right(at);
        slot
    }

    /// The oldest write of a connection has this answer, which waits for what stands before it.
    pub fn answer_write(&mut self, id: ConnectionId, err: i32, body: &[u8]) {
        let Some(connection) = self.get_mut(id) else { return };
        let write = connection.queue.slots.iter_mut().find(|slot| matches!(slot, Slot::Write { .. }));
        if let Some(slot) = write
            && let Slot::Write { xid, opcode, arrived_us, bars } = *slot
        {
            connection.queue.bars -= usize::from(bars);
            *slot = Slot::Answer { after: 0, xid, opcode, err, body: body.into(), arrived_us };
            connection.queue.bytes += body.len();
        }
    }
}

/// What the driver must do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// There are bytes to send.
    Send(ConnectionId),
    /// Reading may go on: hand in again what was not consumed, and what has arrived since.
    Resume(ConnectionId),
    /// Send what is left if that can be done soon, close, and say so.
    Close(ConnectionId, CloseReason),
}

/// Why a connection is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// As many connections as there may be in all.
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// As many connections as one address may have.
    TooManyFromAddress {
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { limit } => {
                write!(f, "too many connections: the limit is {limit} (setting maxCnxns)")
            }
            Self::TooManyFromAddress { limit } => {
                write!(
                    f,
                    "too many connections from this address: the limit is {limit} (setting maxClientCnxns)"
                )
            }
        }
    }
}

impl core::error::Error for ConnectError {}
