//! The clients that are connected to one thread of a server with several partitions.
//!
//! Each request goes to the partition where its znode lives, which may be this thread's or another's.
//! A client's requests take effect in the order in which it sent them (AGORA, section IV-D): those to one
//! partition follow one another there; before the first one to another partition everything before it is
//! answered, so that it carries what they have seen. What a client is told carries what the partition had
//! seen, and waits for the events of those partitions that the client watches (section IV-G).

mod audited;
mod direct;
mod due;
mod parts;
mod pipeline;
mod rerouted;
mod run;
mod time;

use crate::auth;
use crate::config::Config;
use crate::connection::{CloseReason, ConnectionId, Connections, Phase, Slot};
use crate::connection::{ConnectError, Output};
use crate::frame::Frame;
use crate::gather::Gather;
use crate::message::{FrontMessage, ToClient, ToPartition};
use crate::pipelined::Pipelined;
use crate::route::{Destination, Route, bits, lacks, may_watch};
use crate::sasl::SaslStep;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use stoa_placement::{FIRST, Placement};
use stoa_tree::Identity;
use stoa_wire::{
    Opcode, Reader, ReplyHeader, RequestHeader, Timestamp, asks_direct, begin_frame, end_frame, next_frame,
};

use direct::Seal;
pub(crate) use direct::{Direct, told_elsewhere};
use parts::{HeardClients, Mail, PendingClients, Progress, RequestsUnderWay};
pub(crate) use pipeline::Pipeline;
use pipeline::{Kind, RoutedBy, Way};
use stoa_partition::{IDENTITIES_MAX, Now};

/// The clients of one thread.
pub struct Front {
    config: Config,
    placement: Placement,
    connections: Connections,
    progress: Progress,
    pending: PendingClients,
    heard: HeardClients,
    under_way: RequestsUnderWay,
    mail: Mail,
    outputs: VecDeque<Output>,
    seal: Seal,
    now_us: u64,
    /// Whether writes may be pipelined: this thread's partition prepares them, and so do the others, most likely.
    prepares: bool,
    /// Writes that were pipelined: their numbers are never used again.
    pipelined: u64,
    stats: FrontStats,
}

/// What became of a frame.
#[derive(Debug)]
pub enum Taken<'a> {
    /// It is under way, or answered.
    Done,
    /// It is for this thread's own partition, of a connection there. What the client has seen is told
    /// with it if that may be news.
    Own {
        /// The connection.
        remote: ConnectionId,
        /// The request.
        frame: Frame<'a>,
        /// What the client has seen may be news there.
        has_news: bool,
    },
    /// It is a fast read of a connection there.
    Fast {
        /// The connection.
        remote: ConnectionId,
        /// The request's xid.
        xid: i32,
        /// It begins where an opcode stands in others, with the opcode behind.
        frame: &'a [u8],
    },
    /// It was sent to the wrong partition.
    Elsewhere {
        /// The connection.
        remote: ConnectionId,
        /// The request's xid.
        xid: i32,
    },
}

/// What a thread counts of its clients, besides what the partitions count of their requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrontStats {
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

impl Front {
    /// That of a thread whose clients are yet to come.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let placement = Placement::new(config.partitions);
        // What a partition can be given to store comes from the clients of all threads.
        let share = config.limits.log_queue_bytes / usize::from(config.partitions.max(1));
        let bytes_max = share.max(config.limits.frame_bytes);
        let mut connections = Connections::default();
        connections.set_audited(config.authentication.is_audited);
        Self {
            placement,
            connections,
            progress: Progress::new(config.partitions),
            pending: PendingClients::default(),
            heard: HeardClients::default(),
            under_way: RequestsUnderWay { bytes_max, ..RequestsUnderWay::default() },
            mail: Mail::default(),
            outputs: VecDeque::new(),
            seal: Seal::new(&config.direct_secret),
            now_us: 0,
            prepares: false,
            pipelined: 0,
            stats: FrontStats::default(),
            config,
        }
    }

    /// A client has connected.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn connect(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        let admitted = self.connections.admit(&self.config.limits, peer, now);
        let id = admitted.inspect_err(|_| self.stats.connections_rejected += 1)?;
        self.pending
            .handshakes
            .push_back((now.mono_us + u64::from(self.config.limits.handshake_ms) * 1000, id));
        Ok(id)
    }

    /// A client has proved to be all of this. The partitions that know it learn it now, others when it comes there.
    pub fn identify(&mut self, id: ConnectionId, identities: Vec<Identity>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let joined = connection.route.as_ref().map_or(0, |route| route.partitions.joined);
        if !connection.prove(identities.clone()) {
            return self.close(id, CloseReason::AuthFailed);
        }
        for partition in bits(joined) {
            self.send(partition, id, ToPartition::Proven(identities.clone()));
        }
    }

    /// Takes the next frame of what has arrived and sends it where it has to go; `None` when there is none
    /// that could be taken now. What was taken is cut off `rest`.
    #[inline]
    pub fn take_frame<'a>(&mut self, id: ConnectionId, rest: &mut &'a [u8], now: Now) -> Option<Taken<'a>> {
        let is_congested = self.is_congested();
        let Some(connection) = self.connections.get_mut(id) else {
            *rest = &[];
            return None;
        };
        if connection.input.skip > 0 {
            let skipped = connection.input.skip.min(rest.len());
            connection.input.skip -= skipped;
            *rest = rest.get(skipped..).unwrap_or_default();
        }
        if connection.phase == Phase::Closing {
            *rest = &[];
        }
        if rest.is_empty() {
            return None;
        }
        let is_news = connection.route.as_ref().is_some_and(|route| !route.is_heard);
        if is_congested || connection.is_saturated(&self.config.limits) {
            connection.input.paused = true;
            if is_congested {
                self.connections.push_congested(id);
            }
            self.hear(id, now);
            return None;
        }
        match next_frame(rest, self.config.limits.frame_bytes) {
            Ok(Some((frame, tail))) => {
                connection.traffic.received += 1;
                self.stats.packets_received += 1;
                *rest = tail;
                if connection.phase == Phase::Handshake {
                    self.open(id, frame);
                    return Some(Taken::Done);
                }
                if is_news {
                    self.hear(id, now);
                }
                Some(self.request(id, frame, now))
            }
            Ok(None) => None,
            Err(error) => self.oversized(id, rest, error.announced, now).then_some(Taken::Done),
        }
    }

    /// A frame over the limit is passed over if that can be, and answered with an error. False when nothing
    /// more can be taken now.
    fn oversized(&mut self, id: ConnectionId, rest: &mut &[u8], announced: i32, now: Now) -> bool {
        let len = usize::try_from(announced).ok().filter(|len| *len <= self.config.limits.frame_skip_bytes);
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let Some(len) = len.filter(|_| connection.phase == Phase::Remote) else {
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
        connection.input.skip = len + 4;
        connection.traffic.received += 1;
        self.stats.packets_received += 1;
        self.stats.frames_too_large += 1;
        // In its turn, and as if it were empty, which is answered with the same error.
        let mut frame = Vec::new();
        RequestHeader { xid, opcode: Opcode::SetData as i32 }.encode(&mut frame);
        self.hear(id, now);
        if let Taken::Own { has_news, .. } = self.request(id, &frame, now) {
            let seen = self.seen(id).filter(|_| has_news).cloned();
            let placed = self.placement.version();
            let request = ToPartition::Request { seen, placed, frame: frame.into(), pipelined: None };
            self.mail.own.push_back((id, request));
        }
        true
    }

    fn open(&mut self, id: ConnectionId, frame: &[u8]) {
        if self.is_side(id) {
            return self.open_side(id, frame);
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.phase = Phase::Opening { timeout_ms: 0, read_only: None };
        connection.route = Some(Box::new(Route::new(&self.progress.placed)));
        let who = connection.introduction();
        if asks_direct(frame) {
            self.offer_direct(id);
        }
        self.send(FIRST, id, ToPartition::Open { who, frame: frame.into() });
    }

    /// The first partition judges sessions by what it hears of them.
    fn hear(&mut self, id: ConnectionId, now: Now) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(route) = connection.route.as_mut().filter(|route| !route.is_heard) {
            route.is_heard = true;
            self.heard.clients.push(id);
            self.heard.since_us.get_or_insert(now.mono_us);
        }
    }

    #[inline]
    fn request<'a>(&mut self, id: ConnectionId, bytes: &'a [u8], now: Now) -> Taken<'a> {
        let Some(connection) = self.connections.get_mut(id) else { return Taken::Done };
        let Some(frame) = Frame::read(bytes) else {
            self.close(id, CloseReason::Malformed);
            return Taken::Done;
        };
        let xid = frame.header.xid;
        connection.traffic.last_op = frame.opcode;
        connection.traffic.last_xid = xid;
        if frame.opcode == Some(Opcode::Sasl) && self.config.authentication.has_sasl {
            if !self.connections.take_sasl(id, xid, frame.body()) {
                self.close(id, CloseReason::Malformed);
            }
            return Taken::Done;
        }
        if self.connections.is_audited() && !self.audit_request(id, &frame) {
            self.close(id, CloseReason::Malformed);
            return Taken::Done;
        }
        let Some(connection) = self.connections.get_mut(id) else { return Taken::Done };
        let placed = self.placement.version();
        let is_direct = connection.route.as_ref().is_some_and(|route| route.direct.is_some());
        if is_direct && let Some(taken) = self.direct_request(id, &frame, now) {
            return taken;
        }
        let Some(connection) = self.connections.get_mut(id) else { return Taken::Done };
        let Some(route) = connection.route.as_deref_mut() else { return Taken::Done };
        let destination = match frame.opcode {
            // Where there is no SASL the first partition says so.
            Some(Opcode::Sasl) => Destination::Partition(FIRST),
            _ => route.destination(&self.placement, &frame),
        };
        let way = match destination {
            Destination::Front | Destination::Proof => Way::InTurn,
            _ if !connection.queue.slots.is_empty() => Way::Waits,
            _ => route.way(destination, &frame, &RoutedBy { placed, prepares: self.prepares }),
        };
        match destination {
            Destination::Front => self.answer_ping(id, xid, now),
            Destination::Proof => self.prove(id, bytes),
            // Writes go ahead with those that are received with them.
            _ if matches!(way, Way::Waits | Way::Pipelined(Kind::Write)) => {
                let slot = Slot::Request { frame: bytes.into(), arrived_us: now.mono_us, may_write: false };
                self.connections.push_slot(id, slot);
            }
            Destination::Partition(partition) => {
                if let Way::Pipelined(Kind::Read) = way {
                    self.pipeline(id, partition, bytes.into(), Kind::Read);
                    return Taken::Done;
                }
                let watches = may_watch(&frame);
                if let Some(remote) = route.remote.filter(|_| partition == self.config.partition) {
                    let has_news = route.asks(partition, placed, watches);
                    self.under_way.count(route, 1, bytes.len());
                    self.stats.kept += 1;
                    return Taken::Own { remote, frame, has_news };
                }
                self.ask(id, partition, bytes, watches);
            }
            Destination::All(opcode) => {
                let gather = Gather::new(bytes.into(), opcode, xid, self.placement.clone());
                self.ask_all(id, gather);
            }
        }
        Taken::Done
    }

    /// The driver has looked at a token.
    pub fn sasl_answered(&mut self, id: ConnectionId, xid: i32, step: SaslStep) {
        match self.connections.answer_sasl(&self.config.authentication, (id, xid), step) {
            Ok(identities) => self.identify(id, identities),
            Err(reason) => self.close(id, reason),
        }
    }

    /// The clients of this thread.
    #[inline]
    #[must_use]
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The clients of this thread, to be changed.
    #[inline]
    pub fn connections_mut(&mut self) -> &mut Connections {
        &mut self.connections
    }

    /// What is counted of them.
    #[must_use]
    pub fn stats(&self) -> FrontStats {
        self.stats
    }

    /// Forgets the counts that the message `srst` forgets.
    pub fn reset_stats(&mut self) {
        self.stats.packets_received = 0;
        self.stats.pings = 0;
    }

    /// So many bytes of a client were taken.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.stats.bytes_received += bytes as u64;
    }

    /// Whether this thread's partition prepares writes, and so do the others, most likely.
    #[inline]
    pub fn set_prepares(&mut self, prepares: bool) {
        self.prepares = prepares;
    }

    /// What there is for this thread's own partition, where it could not be asked at once.
    #[inline]
    pub fn poll_own(&mut self) -> Option<(ConnectionId, ToPartition)> {
        self.mail.own.pop_front()
    }

    /// What there is for partitions; this thread's own hears it in its order, too.
    #[inline]
    pub fn poll_message(&mut self) -> Option<(u8, FrontMessage)> {
        self.mail.messages.pop_front()
    }

    /// What a client has seen, for its connection at this thread's own partition.
    #[inline]
    #[must_use]
    pub fn seen(&self, id: ConnectionId) -> Option<&Timestamp> {
        Some(&self.connections.get(id)?.route.as_ref()?.seen.stamp)
    }

    /// The first partition answers what a client proves to be, the others must know it.
    fn prove(&mut self, id: ConnectionId, frame: &[u8]) {
        let Some(route) = self.route(id) else { return };
        if let Some(proof) = auth::proof(frame) {
            // Once each, the newest last. More of them the first partition refuses.
            route.proofs.retain(|known| auth::proof(known) != Some(proof));
            if route.proofs.len() < IDENTITIES_MAX {
                route.proofs.push(frame.into());
            }
        }
        for partition in bits(route.partitions.joined & !(1 << FIRST)) {
            self.send(partition, id, ToPartition::Identify(frame.into()));
        }
        if let Some(route) = self.route(id) {
            route.proves();
        }
        self.hand_in(FIRST, id, None, frame.into(), None);
    }

    /// Asks the next partition of all, or answers when all have.
    fn ask_all(&mut self, id: ConnectionId, mut gather: Gather) {
        // All are asked by one table, or what moves meanwhile is nobody's.
        if gather.placed() != self.placement.version() {
            gather = gather.again(self.placement.clone());
        }
        let next = gather.next();
        if next < self.placement.partitions() {
            self.ask(id, next, &gather.frame, gather.watches & (1 << next) != 0);
            if let Some(route) = self.route(id) {
                route.gather = Some(gather);
            }
        } else if let Some(connection) = self.connections.get_mut(id) {
            connection.traffic.sent += 1;
            let mut answer = Vec::new();
            gather.merge(&mut answer);
            if let Some(route) = connection.route.as_mut() {
                self.progress.behind |= route.mark(FIRST, &self.progress.clocks, &mut answer);
            }
            if self.connections.is_audited() {
                self.connections.audit_frames(id, &answer);
            }
            let waiting = self.put_out(id, gather.stamp(), &mut answer);
            self.close_slow_reader(id, waiting);
        }
    }

    /// Gives a request whose turn has come to its partition.
    fn ask(&mut self, id: ConnectionId, partition: u8, frame: &[u8], watches: bool) {
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else { return };
        if core::mem::take(&mut route.seen.own) {
            route.seen.stamp.merge(&self.progress.own);
        }
        let seen = route.asks(partition, self.placement.version(), watches).then(|| route.seen.stamp.clone());
        self.join(id, partition);
        self.hand_in(partition, id, seen, frame.into(), None);
    }

    /// Makes a client known to a partition, if it is not.
    fn join(&mut self, id: ConnectionId, partition: u8) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let who = connection.introduction();
        let Some(route) = &mut connection.route else { return };
        let Some(session) = route.session.filter(|_| route.partitions.joined & (1 << partition) == 0) else {
            return;
        };
        route.partitions.joined |= 1 << partition;
        let proofs = route.proofs.clone();
        self.send(partition, id, ToPartition::Join { who, session });
        for proof in proofs {
            self.send(partition, id, ToPartition::Identify(proof));
        }
    }

    /// One more request is under way.
    fn hand_in(
        &mut self,
        partition: u8,
        id: ConnectionId,
        seen: Option<Timestamp>,
        frame: Box<[u8]>,
        pipelined: Option<Box<Pipelined>>,
    ) {
        self.count_one(partition);
        if let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) {
            self.under_way.count(route, 1, frame.len());
        }
        let placed = self.placement.version();
        self.send(partition, id, ToPartition::Request { seen, placed, frame, pipelined });
    }

    /// A request is for this partition, by whatever way it comes there.
    fn count_one(&mut self, partition: u8) {
        let is_own = partition == self.config.partition;
        self.stats.kept += u64::from(is_own);
        self.stats.handed_over += u64::from(!is_own);
    }

    fn send(&mut self, partition: u8, id: ConnectionId, what: ToPartition) {
        if partition == self.config.partition {
            self.mail.own.push_back((id, what));
        } else {
            self.mail.messages.push_back((partition, FrontMessage::Client(id, what)));
        }
    }

    /// A client is known to this thread's own partition as this connection.
    pub fn is_remote(&mut self, id: ConnectionId, remote: Option<ConnectionId>) {
        if let Some(route) = self.route(id) {
            route.remote = remote;
        }
    }

    fn answer_ping(&mut self, id: ConnectionId, xid: i32, now: Now) {
        let Some(output) = self.connections.output(id) else { return };
        let start = begin_frame(output);
        ReplyHeader { xid, zxid: 0, err: 0 }.encode(output);
        end_frame(output, start);
        self.stats.pings += 1;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.traffic.sent += 1;
            connection.traffic.last_reply_us = now.mono_us;
        }
    }

    /// What a partition has for a client.
    pub fn told(&mut self, from: u8, id: ConnectionId, what: ToClient) {
        match what {
            ToClient::Attached(session) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.phase = Phase::Remote;
                    connection.session = session.session;
                    connection.timeout_ms = session.timeout_ms;
                    if let Some(route) = &mut connection.route {
                        route.session = Some(session);
                    }
                    if session.read_only {
                        self.pending.read_only.push(id);
                    }
                }
                self.attached(id, session);
            }
            ToClient::Frames { answers, mut bytes, stamp } => {
                let position = stamp.at(from);
                if self.give(from, id, &stamp, answers, &mut bytes) {
                    self.connections.recycle(bytes);
                } else {
                    if self.keep_for_later(from, id, answers, bytes, stamp) {
                        self.deliver(id);
                    }
                }
                // What others are told of that position may follow.
                self.reached(from, position.saturating_sub(1), 0);
            }
            ToClient::Participants(parts) => {
                if let Some(route) = self.route(id) {
                    route.delivery.parts |= parts;
                }
            }
            ToClient::Prepared(put) => self.is_put(id, &put),
            ToClient::WrongPartition { version, frame, stamp } => {
                self.comes_back(from, id, version, frame, &stamp);
            }
            ToClient::Closed(reason) => {
                self.refuse_side(id, reason);
                // These answer something, which may have to wait.
                let answers = matches!(reason, CloseReason::AuthFailed | CloseReason::SessionClosed);
                match self.route(id).filter(|route| answers && !route.delivery.undelivered.is_empty()) {
                    Some(route) => route.delivery.ends = Some(reason),
                    // The partition has counted it.
                    None => drop(self.end(id, reason)),
                }
            }
        }
    }

    /// Gives a client at once what a partition has for it, if nothing has to come before that; takes it out
    /// of `bytes` then.
    pub fn give(
        &mut self,
        from: u8,
        id: ConnectionId,
        stamp: &Timestamp,
        answers: u32,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else {
            return false;
        };
        let is_due = route.delivery.undelivered.is_empty()
            && route.gather.is_none()
            && route.is_next(from, answers, stamp);
        let concerned = route.concerned(from, stamp, answers, route.delivery.parts);
        if !is_due || lacks(concerned, from, stamp, &self.progress.reached).is_some() {
            return false;
        }
        if answers > 0 {
            route.delivery.parts = 0;
        }
        self.hand_out(from, id, stamp, answers, bytes);
        self.go_on(id);
        true
    }

    /// What a partition has for a client goes into its output.
    fn hand_out(&mut self, from: u8, id: ConnectionId, stamp: &Timestamp, answers: u32, bytes: &mut Vec<u8>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(route) = connection.route.as_deref_mut() else { return };
        self.under_way.uncount(route, answers);
        route.waits_us = None;
        // The partition itself knows what it rests on.
        route.seen.informed &= 1 << from;
        route.partitions.met |= 1 << from;
        if from == self.config.partition {
            // It only grows, and is taken over when another partition is asked.
            route.seen.own = true;
            if self.progress.own.at(from) < stamp.at(from) {
                self.progress.own.clone_from(stamp);
            }
        } else {
            route.seen.stamp.merge(stamp);
        }
        route.told_pipelined(answers, stamp);
        self.progress.newest = self.progress.newest.max(stamp.zxid());
        self.progress.behind |= route.mark(from, &self.progress.clocks, bytes);
        connection.traffic.sent += u64::from(answers);
        let gather = route.gather.take_if(|gather| gather.take(bytes, stamp));
        if gather.is_some() {
            connection.traffic.sent -= 1;
        }
        if self.connections.is_audited() {
            self.connections.audit_frames(id, bytes);
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(route) = connection.route.as_deref_mut() else { return };
        let (is_direct, left) =
            (route.direct.is_some(), route.requests.under_way as usize + connection.queue.slots.len());
        let holds = route.pipeline.as_mut().is_some_and(|pipeline| pipeline.holds(answers, left));
        let waiting = match is_direct {
            true => self.put_out(id, stamp, bytes),
            false if holds => self.hold(id, bytes),
            false => self.connections.append(id, bytes),
        };
        if let Some(gather) = gather {
            self.ask_all(id, gather);
        }
        self.close_slow_reader(id, waiting);
    }

    /// Ends a connection whose client leaves too much unread.
    fn close_slow_reader(&mut self, id: ConnectionId, waiting: usize) {
        if waiting > self.config.limits.output_close_bytes {
            self.close(id, CloseReason::SlowReader);
        }
    }

    fn route(&mut self, id: ConnectionId) -> Option<&mut Route> {
        self.connections.get_mut(id)?.route.as_deref_mut()
    }

    /// Everything is here that a partition had for clients of this thread up to that position; all its later
    /// updates are larger than `clock`.
    pub fn reached(&mut self, partition: u8, position: u64, clock: i64) {
        if let Some(known) = self.progress.clocks.get_mut(usize::from(partition)) {
            *known = clock.max(*known);
        }
        if self.progress.reached.at(partition) >= position {
            return;
        }
        self.progress.reached.raise(partition, position);
        for id in core::mem::take(&mut self.pending.waiting) {
            self.deliver(id);
        }
        if !self.pending.reaching.is_empty() {
            self.say_to_all_what_is_reached();
        }
    }

    /// Asks what had to wait for the answers before it.
    #[inline]
    pub fn go_on(&mut self, id: ConnectionId) {
        let goes_on = self.connections.get(id).is_some_and(|it| {
            it.queue.slots.is_empty()
                && !it.input.paused
                && it.route.as_ref().is_none_or(|route| route.requests.back.is_empty())
        });
        if !goes_on || self.connections.has_congested() {
            self.ask_what_waited(id);
        }
    }

    fn ask_what_waited(&mut self, id: ConnectionId) {
        self.queue_what_came_back(id);
        while let Some(connection) = self.connections.get_mut(id) {
            let Some(Slot::Request { frame, .. }) = connection.queue.slots.front() else { break };
            // It was read before it had to wait.
            let (Some(frame), Some(route)) = (Frame::read(frame), &mut connection.route) else { break };
            let destination = route.destination(&self.placement, &frame);
            let by = RoutedBy { placed: self.placement.version(), prepares: self.prepares };
            let way = route.way(destination, &frame, &by);
            if way == Way::Waits {
                break;
            }
            let (xid, watches) = (frame.header.xid, may_watch(&frame));
            let Some(Slot::Request { frame, .. }) = self.connections.pop_slot(id) else { break };
            match destination {
                Destination::Partition(partition) if let Way::Pipelined(kind) = way => {
                    self.pipeline(id, partition, frame, kind);
                }
                Destination::Partition(partition) => self.ask(id, partition, &frame, watches),
                Destination::All(opcode) => {
                    self.ask_all(id, Gather::new(frame, opcode, xid, self.placement.clone()));
                }
                Destination::Front | Destination::Proof => {}
            }
        }
        self.resume(id);
        while !self.is_congested()
            && let Some(next) = self.connections.pop_congested()
        {
            self.resume(next);
        }
    }

    /// Whether all clients together have as much under way as they may: requests, and bytes of them.
    fn is_congested(&self) -> bool {
        let RequestsUnderWay { requests, bytes, bytes_max } = self.under_way;
        requests + self.connections.outstanding() >= self.config.limits.outstanding || bytes >= bytes_max
    }

    /// Lets a connection that is not read from go on, if there is room again.
    fn resume(&mut self, id: ConnectionId) {
        let is_congested = self.is_congested();
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.input.paused || connection.is_saturated(&self.config.limits) {
            return;
        }
        if is_congested {
            self.connections.push_congested(id);
        } else {
            connection.input.paused = false;
            self.outputs.push_back(Output::Resume(id));
        }
    }

    fn tell_me(&mut self, partition: u8, position: u64) {
        if self.progress.asked.at(partition) < position && partition != self.config.partition {
            self.progress.asked.raise(partition, position);
            self.mail.messages.push_back((partition, FrontMessage::WatermarkWanted { position, clock: 0 }));
        }
    }

    /// Ends a connection because of what its client did.
    fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        self.stats.connections_dropped += u64::from(self.end(id, reason));
    }

    /// Ends a connection; false when it has ended already.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.close(reason).is_none() {
            return false;
        }
        self.outputs.push_back(Output::Close(id, reason));
        self.leave(id);
        true
    }

    /// Its socket is closed.
    pub fn disconnected(&mut self, id: ConnectionId) {
        self.leave(id);
        self.connections.remove(id);
    }

    fn leave(&mut self, id: ConnectionId) {
        let Some(mut route) = self.connections.get_mut(id).and_then(|connection| connection.route.take())
        else {
            return;
        };
        let left = route.requests.under_way;
        self.under_way.uncount(&mut route, left);
        for partition in bits(route.partitions.joined) {
            self.send(partition, id, ToPartition::Leave);
        }
        if route.direct.is_some_and(|direct| direct.is_side()) {
            self.send(FIRST, id, ToPartition::Detach);
        }
    }

    /// What the driver must do with connections, oldest first.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.connections.poll_announced().or_else(|| self.outputs.pop_front())
    }

    /// Whether there is nothing for this thread's own partition, nor for others.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.mail.own.is_empty() && self.mail.messages.is_empty()
    }

    /// `bytes` of the output have been sent.
    pub fn sent(&mut self, id: ConnectionId, bytes: usize) {
        self.connections.advance(id, bytes);
        self.go_on(id);
    }
}
