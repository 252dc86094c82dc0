//! The clients that are connected to one thread of a server with several partitions.
//!
//! Each request goes to the partition where its znode lives, which may be this thread's or another's.
//! A client's requests take effect in the order in which it sent them (AGORA, section IV-D): those to one
//! partition follow one another there; before the first one to another partition everything before it is
//! answered, so that it carries what they have seen. What a client is told carries what the partition had
//! seen, and waits for the events of those partitions that the client watches (section IV-G).

use crate::auth::IDENTITIES_MAX;
use crate::config::{Config, Now};
use crate::connection::{CloseReason, Connection, ConnectionId, Connections, Phase, Slot};
use crate::gather::{Gather, is_for_all};
use crate::placement::{FIRST, Placement};
use crate::server::{ConnectError, Output};
use crate::timestamp::Timestamp;
use crate::word::{Attached, ToClient, ToPartition, Word};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use stoa_wire::{
    MultiOps, Opcode, Reader, ReplyHeader, Request, RequestHeader, begin_frame, end_frame, next_frame,
};

/// What a home knows of a client, besides its connection.
#[derive(Debug)]
pub(crate) struct Route {
    /// The partition that has all requests under way, and how many these are.
    at: u8,
    pub(crate) under_way: u32,
    /// How long they are, oldest first.
    lengths: VecDeque<u32>,
    /// What the client has seen.
    seen: Timestamp,
    /// Where it is known; where it may have watches: a bit for each partition.
    joined: u64,
    watched: u64,
    session: Option<Attached>,
    /// What it has proved to be, as it sent it, for partitions that it comes to later.
    proofs: Vec<Box<[u8]>>,
    /// What it is to be told when the events before that are here.
    late: VecDeque<Late>,
    /// What goes through all partitions just now; nothing else is under way then.
    gather: Option<Gather>,
    /// Its client was heard of since the first partition was told.
    is_heard: bool,
}

/// Frames of a partition that may have to wait for events of others.
#[derive(Debug)]
struct Late {
    from: u8,
    answers: u32,
    bytes: Vec<u8>,
    stamp: Timestamp,
}

/// The clients of one thread.
pub(crate) struct Home {
    config: Config,
    placement: Placement,
    pub(crate) connections: Connections,
    /// How far each partition has come, as far as all that it had for clients here has arrived.
    reached: Timestamp,
    /// How far it was asked to say so.
    asked: Timestamp,
    outputs: VecDeque<Output>,
    /// To be told what there is for them when a partition has come further.
    waiting: Vec<ConnectionId>,
    /// Clients that were heard of.
    heard: Vec<ConnectionId>,
    /// Since when there are some, microseconds.
    heard_us: Option<u64>,
    /// Connections that have not finished their handshake, in the order of their deadlines.
    handshakes: VecDeque<(u64, ConnectionId)>,
    /// Requests of all clients that are under way, and their bytes.
    under_way: (usize, usize),
    words: VecDeque<(u8, Word)>,
    /// For this thread's own partition.
    own: VecDeque<(ConnectionId, ToPartition)>,
    pub(crate) stats: HomeStats,
}

/// What a thread counts of its clients, besides what the partitions count of their requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct HomeStats {
    /// Frames received.
    pub packets_received: u64,
    /// Heartbeats answered.
    pub pings: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Requests for this thread's own partition.
    pub kept: u64,
    /// Requests for partitions of other threads.
    pub handed_over: u64,
    /// Connections refused by a limit.
    pub connections_rejected: u64,
    /// Connections closed because of what the client did.
    pub connections_dropped: u64,
    /// Frames over the limit.
    pub frames_too_large: u64,
}

/// Where a request has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// Nowhere: it is answered here.
    Home,
    /// The first partition answers it, the others must know it.
    Proof,
    Partition(u8),
    /// All of them, one after the other.
    All(Opcode),
}

impl Route {
    /// Whether a request may go where it has to without overtaking any.
    fn is_free_for(&self, destination: Destination) -> bool {
        match destination {
            _ if self.under_way == 0 => true,
            Destination::Partition(partition) => self.at == partition && self.gather.is_none(),
            _ => false,
        }
    }
}

impl Home {
    pub(crate) fn new(config: Config) -> Self {
        let placement = Placement::new(config.partitions);
        Self {
            placement,
            connections: Connections::default(),
            reached: Timestamp::new(config.partitions),
            asked: Timestamp::new(config.partitions),
            outputs: VecDeque::new(),
            waiting: Vec::new(),
            heard: Vec::new(),
            heard_us: None,
            handshakes: VecDeque::new(),
            under_way: (0, 0),
            words: VecDeque::new(),
            own: VecDeque::new(),
            stats: HomeStats::default(),
            config,
        }
    }

    /// A client has connected.
    pub(crate) fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        let admitted = self.connections.admit(&self.config.limits, peer, now);
        let id = admitted.inspect_err(|_| self.stats.connections_rejected += 1)?;
        self.handshakes.push_back((now.mono_us + u64::from(self.config.limits.handshake_ms) * 1000, id));
        Ok(id)
    }

    /// Takes the next frame of what has arrived and sends it where it has to go; `None` when there is none
    /// that could be taken now. What was taken is cut off `rest`.
    pub(crate) fn take_frame(&mut self, id: ConnectionId, rest: &mut &[u8], now: Now) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            *rest = &[];
            return false;
        };
        if connection.skip > 0 {
            let skipped = connection.skip.min(rest.len());
            connection.skip -= skipped;
            *rest = rest.get(skipped..).unwrap_or_default();
        }
        if connection.phase == Phase::Closing {
            *rest = &[];
        }
        if rest.is_empty() {
            return false;
        }
        let is_congested = is_congested(self.under_way, self.connections.outstanding, &self.config);
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if is_congested || is_saturated(connection, &self.config) {
            connection.paused = true;
            if is_congested {
                self.connections.congested.push_back(id);
            }
            self.hear(id, now);
            return false;
        }
        match next_frame(rest, self.config.limits.frame_bytes) {
            Ok(Some((frame, tail))) => {
                connection.received += 1;
                self.stats.packets_received += 1;
                *rest = tail;
                if connection.phase == Phase::Handshake {
                    self.open(id, frame);
                } else {
                    self.hear(id, now);
                    self.request(id, frame, now);
                }
                true
            }
            Ok(None) => false,
            Err(error) => self.oversized(id, rest, error.announced, now),
        }
    }

    /// A frame over the limit is passed over if that can be, and answered with an error. False when nothing
    /// more can be taken now.
    fn oversized(&mut self, id: ConnectionId, rest: &mut &[u8], announced: i32, now: Now) -> bool {
        let len = usize::try_from(announced).ok().filter(|len| *len <= self.config.limits.frame_skip_bytes);
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let Some(len) = len.filter(|_| connection.phase == Phase::Guest) else {
            *rest = &[];
            self.stats.frames_too_large += 1;
            self.close(id, CloseReason::BadFrame);
            return false;
        };
        // Its xid is needed for the answer.
        let Some(header) = rest.get(4..12) else { return false };
        let Ok(RequestHeader { xid, .. }) = RequestHeader::decode(&mut Reader::new(header)) else {
            return false;
        };
        connection.skip = len + 4;
        connection.received += 1;
        self.stats.packets_received += 1;
        self.stats.frames_too_large += 1;
        // In its turn, and as if it were empty, which is answered with the same error.
        let mut frame = Vec::new();
        RequestHeader { xid, opcode: Opcode::SetData as i32 }.encode(&mut frame);
        self.hear(id, now);
        self.request(id, &frame, now);
        true
    }

    fn open(&mut self, id: ConnectionId, frame: &[u8]) {
        let seen = Timestamp::new(self.placement.partitions());
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.phase = Phase::Opening { timeout_ms: 0, read_only: None };
        connection.route = Some(Box::new(Route {
            at: FIRST,
            under_way: 0,
            lengths: VecDeque::new(),
            seen,
            joined: 1 << FIRST,
            watched: 0,
            session: None,
            proofs: Vec::new(),
            late: VecDeque::new(),
            gather: None,
            is_heard: false,
        }));
        let peer = connection.peer;
        self.send(FIRST, id, ToPartition::Open { peer, frame: frame.into() });
    }

    /// The first partition judges sessions by what it hears of them.
    fn hear(&mut self, id: ConnectionId, now: Now) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(route) = connection.route.as_mut().filter(|route| !route.is_heard) {
            route.is_heard = true;
            self.heard.push(id);
            self.heard_us.get_or_insert(now.mono_us);
        }
    }

    fn request(&mut self, id: ConnectionId, frame: &[u8], now: Now) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let mut reader = Reader::new(frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            return self.close(id, CloseReason::Malformed);
        };
        let opcode = Opcode::from_i32(header.opcode);
        connection.last_op = opcode;
        connection.last_xid = header.xid;
        let destination = destination(self.placement, opcode, reader);
        let Some(route) = &mut connection.route else { return };
        match destination {
            Destination::Home => self.answer_ping(id, header.xid, now),
            Destination::Proof => {
                // More of them prove nothing anywhere.
                if route.proofs.len() < IDENTITIES_MAX {
                    route.proofs.push(frame.into());
                }
                let joined = route.joined & !(1 << FIRST);
                for partition in bits(joined) {
                    self.send(partition, id, ToPartition::Identify(frame.into()));
                }
                self.count(id, frame);
                self.send(FIRST, id, ToPartition::Request { seen: None, frame: frame.into() });
            }
            _ if !connection.queue.is_empty() || !route.is_free_for(destination) => {
                let slot = Slot::Request { frame: frame.into(), arrived_us: now.mono_us };
                self.connections.push_slot(id, slot);
            }
            Destination::Partition(partition) => self.ask(id, partition, frame, opcode),
            Destination::All(opcode) => self.ask_all(id, Gather::new(frame.into(), opcode, header.xid)),
        }
    }

    /// Asks the next partition of all, or answers when all have.
    fn ask_all(&mut self, id: ConnectionId, gather: Gather) {
        let next = gather.next();
        if next < self.placement.partitions() {
            self.ask(id, next, &gather.frame, Some(gather.opcode));
            if let Some(route) = self.route(id) {
                route.gather = Some(gather);
            }
        } else if let Some(output) = self.connections.output(id) {
            gather.merge(self.placement, output);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.sent += 1;
            }
        }
    }

    /// Gives a request whose turn has come to its partition.
    fn ask(&mut self, id: ConnectionId, partition: u8, frame: &[u8], opcode: Option<Opcode>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let peer = connection.peer;
        let Some(route) = &mut connection.route else { return };
        route.at = partition;
        if opcode.is_some_and(may_watch) {
            route.watched |= 1 << partition;
        }
        let seen = Some(route.seen.clone());
        let joins = route.session.filter(|_| route.joined & (1 << partition) == 0);
        if let Some(session) = joins {
            route.joined |= 1 << partition;
            let proofs = route.proofs.clone();
            self.send(partition, id, ToPartition::Join { peer, session });
            for proof in proofs {
                self.send(partition, id, ToPartition::Identify(proof));
            }
        }
        self.count(id, frame);
        self.send(partition, id, ToPartition::Request { seen, frame: frame.into() });
    }

    /// One more request is under way.
    fn count(&mut self, id: ConnectionId, frame: &[u8]) {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let Some(route) = self.route(id) else { return };
        route.under_way += 1;
        route.lengths.push_back(length);
        self.under_way.0 += 1;
        self.under_way.1 += length as usize;
    }

    /// So many are not any more.
    fn uncount(under_way: &mut (usize, usize), route: &mut Route, answers: u32) {
        route.under_way = route.under_way.saturating_sub(answers);
        for length in route.lengths.drain(..(answers as usize).min(route.lengths.len())) {
            under_way.0 -= 1;
            under_way.1 -= length as usize;
        }
    }

    fn send(&mut self, partition: u8, id: ConnectionId, what: ToPartition) {
        let is_own = partition == self.config.partition;
        if matches!(what, ToPartition::Request { .. }) {
            self.stats.kept += u64::from(is_own);
            self.stats.handed_over += u64::from(!is_own);
        }
        if is_own {
            self.own.push_back((id, what));
        } else {
            self.words.push_back((partition, Word::Client(id, what)));
        }
    }

    fn answer_ping(&mut self, id: ConnectionId, xid: i32, now: Now) {
        let Some(output) = self.connections.output(id) else { return };
        let start = begin_frame(output);
        ReplyHeader { xid, zxid: 0, err: 0 }.encode(output);
        end_frame(output, start);
        self.stats.pings += 1;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.sent += 1;
            connection.last_reply_us = now.mono_us;
        }
    }

    /// What a partition has for a client.
    pub(crate) fn told(&mut self, from: u8, id: ConnectionId, what: ToClient) {
        match what {
            ToClient::Attached(session) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.phase = Phase::Guest;
                    connection.session = session.session;
                    connection.timeout_ms = session.timeout_ms;
                    if let Some(route) = &mut connection.route {
                        route.session = Some(session);
                    }
                }
            }
            ToClient::Frames { answers, bytes, stamp } => {
                let position = stamp.at(from);
                if let Some(route) = self.route(id) {
                    route.late.push_back(Late { from, answers, bytes, stamp });
                    self.deliver(id);
                }
                // What others are told of that position may follow.
                self.reached(from, position.saturating_sub(1));
            }
            // The partition has counted it.
            ToClient::Closed(reason) => drop(self.end(id, reason)),
        }
    }

    fn route(&mut self, id: ConnectionId) -> Option<&mut Route> {
        self.connections.get_mut(id)?.route.as_deref_mut()
    }

    /// Everything is here that a partition had for clients of this thread up to that position.
    pub(crate) fn reached(&mut self, partition: u8, position: u64) {
        if self.reached.at(partition) >= position {
            return;
        }
        self.reached.raise(partition, position);
        for id in core::mem::take(&mut self.waiting) {
            self.deliver(id);
        }
    }

    /// Gives a client what it need not wait for.
    fn deliver(&mut self, id: ConnectionId) {
        while let Some(next) = self.next_due(id) {
            let Some(connection) = self.connections.get_mut(id) else { return };
            let Some(route) = &mut connection.route else { return };
            let Some(mut late) = route.late.remove(next) else { return };
            Self::uncount(&mut self.under_way, route, late.answers);
            route.seen.merge(&late.stamp);
            let gather = route.gather.take_if(|gather| {
                let before = gather.next();
                late.bytes = gather.take(&late.bytes);
                gather.next() > before
            });
            late.answers -= u32::from(gather.is_some());
            connection.sent += u64::from(late.answers);
            if let Some(output) = self.connections.output(id) {
                if output.is_empty() {
                    *output = late.bytes;
                } else {
                    output.extend_from_slice(&late.bytes);
                }
            }
            if let Some(gather) = gather {
                self.ask_all(id, gather);
            }
            let limit = self.config.limits.output_close_bytes;
            if self.connections.get(id).is_some_and(|connection| connection.output_bytes() > limit) {
                self.close(id, CloseReason::SlowReader);
            }
        }
        self.go_on(id);
    }

    /// Which of what a client waits for is next: the first of its partition, with no event before it that
    /// has not come, or has not been given yet. (Parts of one operation are each before the others: then
    /// events come before the reply.)
    fn next_due(&mut self, id: ConnectionId) -> Option<usize> {
        let route = self.connections.get(id)?.route.as_ref()?;
        let mut missing = None;
        let mut firsts: Vec<usize> = Vec::new();
        for (at, late) in route.late.iter().enumerate() {
            if firsts.iter().any(|first| route.late[*first].from == late.from) {
                continue;
            }
            firsts.push(at);
            let watched = route.watched & !(1 << late.from);
            let lacks = bits(watched).find(|of| late.stamp.at(*of) > self.reached.at(*of));
            missing = missing.or(lacks.map(|of| (of, late.stamp.at(of))));
        }
        let is_before = |one: &Late, other: &Late| {
            one.from != other.from && one.stamp.at(one.from) <= other.stamp.at(one.from)
        };
        let is_due = |at: &&usize| {
            let late = &route.late[**at];
            let watched = route.watched & !(1 << late.from);
            bits(watched).all(|of| late.stamp.at(of) <= self.reached.at(of))
                && !firsts.iter().any(|first| is_before(&route.late[*first], late))
        };
        let due = firsts.iter().find(is_due).copied();
        if let (None, Some((partition, position))) = (due, missing) {
            self.tell_me(partition, position);
            self.waiting.push(id);
            return None;
        }
        let event = || firsts.iter().find(|first| route.late[**first].answers == 0).copied();
        due.or_else(event).or(firsts.first().copied())
    }

    /// Asks what had to wait for the answers before it.
    fn go_on(&mut self, id: ConnectionId) {
        while let Some(connection) = self.connections.get_mut(id) {
            let Some(Slot::Request { frame, .. }) = connection.queue.front() else { break };
            let mut reader = Reader::new(frame);
            let opcode = RequestHeader::decode(&mut reader).ok().and_then(|it| Opcode::from_i32(it.opcode));
            let destination = destination(self.placement, opcode, reader);
            if !connection.route.as_ref().is_some_and(|route| route.is_free_for(destination)) {
                break;
            }
            let xid = RequestHeader::decode(&mut Reader::new(frame)).map_or(0, |header| header.xid);
            let Some(Slot::Request { frame, .. }) = self.connections.pop_slot(id) else { break };
            match destination {
                Destination::Partition(partition) => self.ask(id, partition, &frame, opcode),
                Destination::All(opcode) => self.ask_all(id, Gather::new(frame, opcode, xid)),
                Destination::Home | Destination::Proof => {}
            }
        }
        self.resume(id);
        while !is_congested(self.under_way, self.connections.outstanding, &self.config)
            && let Some(next) = self.connections.congested.pop_front()
        {
            self.resume(next);
        }
    }

    /// Lets a connection that is not read from go on, if there is room again.
    fn resume(&mut self, id: ConnectionId) {
        let is_congested = is_congested(self.under_way, self.connections.outstanding, &self.config);
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.paused || is_saturated(connection, &self.config) {
            return;
        }
        if is_congested {
            self.connections.congested.push_back(id);
        } else {
            connection.paused = false;
            self.outputs.push_back(Output::Resume(id));
        }
    }

    fn tell_me(&mut self, partition: u8, position: u64) {
        if self.asked.at(partition) < position && partition != self.config.partition {
            self.asked.raise(partition, position);
            self.words.push_back((partition, Word::Tell(position)));
        }
    }

    /// Ends a connection because of what its client did.
    fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        self.stats.connections_dropped += u64::from(self.end(id, reason));
    }

    /// Ends a connection; false when it has ended already.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.phase == Phase::Closing {
            return false;
        }
        connection.phase = Phase::Closing;
        connection.close_reason = Some(reason);
        self.outputs.push_back(Output::Close(id, reason));
        self.leave(id);
        true
    }

    /// Its socket is closed.
    pub(crate) fn disconnected(&mut self, id: ConnectionId) {
        self.leave(id);
        self.connections.remove(id);
    }

    fn leave(&mut self, id: ConnectionId) {
        let Some(mut route) = self.connections.get_mut(id).and_then(|connection| connection.route.take())
        else {
            return;
        };
        let left = route.under_way;
        Self::uncount(&mut self.under_way, &mut route, left);
        for partition in bits(route.joined) {
            self.send(partition, id, ToPartition::Leave);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        while let Some(&(deadline, id)) = self.handshakes.front()
            && deadline <= now.mono_us
        {
            self.handshakes.pop_front();
            if self.connections.get(id).is_some_and(|connection| connection.phase == Phase::Handshake) {
                self.close(id, CloseReason::HandshakeTimeout);
            }
        }
        self.tell_whom_we_heard(now);
    }

    /// When [`Home::tick`] is next needed, microseconds. Whom this thread hears of, the first partition
    /// hears of well within the shortest timeout of a session.
    pub(crate) fn next_wake_us(&self) -> Option<u64> {
        let Config { tick_ms, session_timeout_min_ms, .. } = self.config;
        let tell_ms = tick_ms.min(session_timeout_min_ms.unsigned_abs() / 2) / 2;
        let tell = self.heard_us.map(|since| since + u64::from(tell_ms) * 1000);
        let handshake = self.handshakes.front().map(|(deadline, _)| *deadline);
        [tell, handshake].into_iter().flatten().min()
    }

    /// Tells the first partition whom this thread has heard of since the last time. A client that is not
    /// read from for the server's sake may have said something.
    fn tell_whom_we_heard(&mut self, now: Now) {
        self.heard_us = None;
        for id in core::mem::take(&mut self.heard) {
            if let Some(route) = self.route(id) {
                route.is_heard = false;
                self.send(FIRST, id, ToPartition::Heard);
            }
            let connection = self.connections.get(id);
            if connection.is_some_and(|connection| connection.is_held_up(&self.config.limits)) {
                self.hear(id, now);
            }
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.connections.poll_announced().or_else(|| self.outputs.pop_front())
    }

    pub(crate) fn poll_word(&mut self) -> Option<(u8, Word)> {
        self.words.pop_front()
    }

    /// What is for this thread's own partition.
    pub(crate) fn poll_own(&mut self) -> Option<(ConnectionId, ToPartition)> {
        self.own.pop_front()
    }

    /// `bytes` of the output have been sent.
    pub(crate) fn sent(&mut self, id: ConnectionId, bytes: usize) {
        self.connections.advance(id, bytes);
        self.go_on(id);
    }
}

fn destination(placement: Placement, opcode: Option<Opcode>, mut body: Reader<'_>) -> Destination {
    let Some(opcode) = opcode else { return Destination::Partition(FIRST) };
    match opcode {
        _ if is_for_all(placement, opcode, body) => Destination::All(opcode),
        Opcode::Ping => Destination::Home,
        Opcode::Auth => Destination::Proof,
        Opcode::CloseSession | Opcode::Reconfig | Opcode::WhoAmI => Destination::Partition(FIRST),
        Opcode::Multi | Opcode::MultiRead => {
            // Where the first one lives, which then asks the others; mostly there are none.
            let ops = MultiOps::decode(&mut body).ok();
            let first = ops.and_then(|ops| ops.iter().next());
            Destination::Partition(
                first.and_then(|op| path_of(&op).map(|path| placement.of(path))).unwrap_or(FIRST),
            )
        }
        // The parent's partition.
        Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl | Opcode::Delete => {
            let path = body.path().unwrap_or("/");
            Destination::Partition(if placement.is_top(path) { FIRST } else { placement.of(path) })
        }
        _ => Destination::Partition(body.path().map_or(FIRST, |path| placement.of(path))),
    }
}

pub(crate) fn path_of<'a>(op: &Request<'a>) -> Option<&'a str> {
    match *op {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => Some(create.path),
        Request::Delete { path, .. }
        | Request::SetData { path, .. }
        | Request::Check { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. } => Some(path),
        _ => None,
    }
}

/// Whether a request may leave a watch behind.
fn may_watch(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::GetData
            | Opcode::Exists
            | Opcode::GetChildren
            | Opcode::GetChildren2
            | Opcode::AddWatch
            | Opcode::SetWatches
            | Opcode::SetWatches2
    )
}

/// The numbers of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let next = u8::try_from(set.trailing_zeros()).ok().filter(|next| *next < 64)?;
        set &= set - 1;
        Some(next)
    })
}

/// Whether a client has as much under way, or unread, as it may.
fn is_saturated(connection: &Connection, config: &Config) -> bool {
    let limits = &config.limits;
    let under_way = connection.route.as_ref().map_or(0, |route| route.under_way as usize);
    matches!(connection.phase, Phase::Opening { .. })
        || under_way + connection.queue.len() >= limits.outstanding_per_connection
        || connection.queued_bytes >= limits.queued_bytes_per_connection
        || connection.output_bytes() >= limits.output_pause_bytes
}

/// Whether all clients together have as much under way as they may: requests, and bytes of them. What a
/// partition can be given to store comes from the clients of all threads.
fn is_congested((requests, bytes): (usize, usize), waiting: usize, config: &Config) -> bool {
    let limits = &config.limits;
    let share = limits.log_queue_bytes / usize::from(config.partitions).max(1);
    requests + waiting >= limits.outstanding || bytes >= share.max(limits.frame_bytes)
}
