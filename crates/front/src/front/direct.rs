//! Direct clients: Stoa's own, which have a connection to each partition and carry timestamps themselves
//! (AGORA, sections IV-A and IV-C). What is said is in `docs/client-protocol.md`.
//!
//! A client's first connection is its *main* one: to this it is a client as any other. A *side* connection
//! belongs to the thread's own partition, and to the session of the main one as long as that is there.

use super::{Front, Taken};
use crate::connection::ConnectError;
use crate::connection::{CloseReason, ConnectionId, Phase};
use crate::frame::Frame;
use crate::message::{Attached, ToPartition};
use crate::route::{Destination, Route, bits, destination_of, may_watch};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use stoa_partition::Now;
use stoa_placement::{FIRST, Placement};
use stoa_wire::{
    ELSEWHERE, ErrorCode, Offer, Opcode, ReplyHeader, SideHello, Stamped, TAG_LEN, Timestamp, answer_side,
    begin_frame, direct_op, direct_xid, end_frame, next_frame, stamp_of,
};

/// A client asks again when it was answered, so that it never has as many questions under way.
const REACH_MAX: usize = 16;

/// What a front knows of a connection of a direct client.
#[derive(Debug)]
pub(crate) struct Direct {
    is_side: bool,
    /// The handshake is answered.
    is_greeted: bool,
    /// The stamp that it was told last.
    told: Timestamp,
    /// The version of the table by which it sends requests.
    routed: u64,
    /// On a side connection: one was given back, or may be, and all that follow are until it says by which
    /// table it sends them.
    pub(crate) gives_back: bool,
    /// What it wants to be told of, oldest first.
    reach: VecDeque<Timestamp>,
    /// Frames that are given at once, each with what it rests on.
    collected: Option<Vec<(Timestamp, Vec<u8>)>>,
}

/// Proves of a stamp that a thread of this server has told it. Without that a client could claim to have
/// seen what nobody has: it would be written with its updates, and whoever reads those would wait for it.
pub(super) struct Seal(Hmac<Sha256>);

impl Seal {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    fn token(&self, stamp: &Timestamp) -> Vec<u8> {
        let mut token = Vec::new();
        stamp.encode(&mut token);
        let tag = self.0.clone().chain_update(&token).finalize().into_bytes();
        token.extend_from_slice(&tag[..TAG_LEN]);
        token
    }

    fn open(&self, token: &[u8]) -> Option<Timestamp> {
        let (stamp, end) = stamp_of(token).ok()?;
        let (said, tag) = token.split_at_checked(end)?;
        self.0.clone().chain_update(said).verify_truncated_left(tag).ok()?;
        Some(stamp)
    }
}

impl Direct {
    fn new(is_side: bool, partitions: u8) -> Self {
        let told = Timestamp::new(partitions);
        Self {
            is_side,
            is_greeted: false,
            told,
            routed: 0,
            gives_back: false,
            reach: VecDeque::new(),
            collected: None,
        }
    }

    pub(crate) fn is_side(&self) -> bool {
        self.is_side
    }

    /// Takes frames that are a part of what is given at once, if there is such.
    pub(super) fn collects(&mut self, stamp: &Timestamp, frames: &mut Vec<u8>) -> bool {
        let Some(collected) = &mut self.collected else { return false };
        match collected.last_mut().filter(|(last, _)| last == stamp) {
            Some((_, last)) => last.append(frames),
            None => collected.push((stamp.clone(), core::mem::take(frames))),
        }
        true
    }

    /// What has to be said before these frames, which rest on this. The first are the answer to the
    /// handshake, and what is offered stands in it.
    pub(super) fn before(
        &mut self,
        stamp: &Timestamp,
        frames: &mut Vec<u8>,
        seal: &Seal,
        (own, placement): (u8, &Placement),
    ) -> Vec<u8> {
        let mut news = Vec::new();
        if self.is_greeted && self.told == *stamp {
            return news;
        }
        self.told.clone_from(stamp);
        let token = seal.token(stamp);
        if self.is_greeted {
            put_stamp(&mut news, frames.len(), &token);
        } else {
            self.is_greeted = true;
            let end =
                next_frame(frames, usize::MAX >> 1).ok().flatten().map(|(_, rest)| frames.len() - rest.len());
            let behind = frames.split_off(end.unwrap_or(frames.len()));
            Offer { partitions: placement.partitions(), own, token: &token, table: placement.table() }
                .encode(frames);
            end_frame(frames, 0);
            frames.extend_from_slice(&behind);
        }
        news
    }
}

fn put_stamp(out: &mut Vec<u8>, covers: usize, token: &[u8]) {
    let start = begin_frame(out);
    ReplyHeader { xid: direct_xid::STAMP, zxid: 0, err: 0 }.encode(out);
    Stamped { covers, token }.encode(out);
    end_frame(out, start);
}

impl Front {
    /// What is handed out from now on is given at once: of the parts of one operation each says that the others
    /// are there, and a client must not take that for true before it has all of them.
    pub(super) fn collect(&mut self, id: ConnectionId) {
        if let Some(direct) = self.direct(id).filter(|direct| direct.is_greeted) {
            direct.collected = Some(Vec::new());
        }
    }

    /// Gives what was collected: every stamp covers all that follows. Each frame keeps its own, because a
    /// client compares them to find out what comes before what.
    pub(super) fn give_collected(&mut self, id: ConnectionId) {
        let Some(direct) = self.direct(id) else { return };
        let collected = direct.collected.take().unwrap_or_default();
        let Some((last, _)) = collected.last() else { return };
        direct.told.clone_from(last);
        let mut covers = 0;
        let mut tokens = Vec::with_capacity(collected.len());
        for (stamp, frames) in collected.iter().rev() {
            let token = self.seal.token(stamp);
            covers += frames.len();
            let mut news = Vec::new();
            put_stamp(&mut news, covers, &token);
            covers += news.len();
            tokens.push(news);
        }
        let mut waiting = 0;
        for ((_, mut frames), mut news) in collected.into_iter().zip(tokens.into_iter().rev()) {
            self.connections.append(id, &mut news);
            waiting = self.connections.append(id, &mut frames);
        }
        self.close_slow_reader(id, waiting);
    }

    /// Somebody has connected who says that this is a side connection of his.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn connect_side(&mut self, peer: SocketAddr, now: Now) -> Result<ConnectionId, ConnectError> {
        let id = self.connect(peer, now)?;
        let partitions = self.placement.partitions();
        if let Some(connection) = self.connections.get_mut(id) {
            let mut route = Route::new(&self.progress.placed);
            route.direct = Some(Box::new(Direct::new(true, partitions)));
            (route.partitions.joined, route.requests.at) = (0, self.config.partition);
            // It does not keep the session alive: the main connection does.
            route.is_heard = true;
            connection.route = Some(Box::new(route));
        }
        Ok(id)
    }

    /// The client asks for direct connections.
    pub(super) fn offer_direct(&mut self, id: ConnectionId) {
        let partitions = self.placement.partitions();
        if let Some(route) = self.route(id) {
            route.direct = Some(Box::new(Direct::new(false, partitions)));
        }
    }

    /// The first frame of a side connection. The first partition knows whose it is.
    pub(super) fn open_side(&mut self, id: ConnectionId, frame: &[u8]) {
        let Ok(SideHello { session_id, password }) = SideHello::decode(frame) else {
            self.close(id, CloseReason::Malformed);
            return;
        };
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.phase = Phase::Opening { timeout_ms: 0, read_only: None };
        self.send(FIRST, id, ToPartition::Attach { session: session_id, password: password.into() });
    }

    /// Whether this is a side connection.
    pub(crate) fn is_side(&self, id: ConnectionId) -> bool {
        let route = self.connections.get(id).and_then(|connection| connection.route.as_ref());
        route.and_then(|route| route.direct.as_ref()).is_some_and(|direct| direct.is_side)
    }

    /// A direct client's connection has its session: it comes to this thread's own partition.
    pub(super) fn attached(&mut self, id: ConnectionId, session: Attached) {
        let own = self.config.partition;
        let Some(connection) = self.connections.get_mut(id) else { return };
        let who = connection.introduction();
        let Some(route) = connection.route.as_deref_mut() else { return };
        let Some(direct) = &mut route.direct else { return };
        let is_side = direct.is_side;
        if is_side {
            direct.is_greeted = true;
        }
        if route.partitions.joined & (1 << own) == 0 {
            route.partitions.joined |= 1 << own;
            self.send(own, id, ToPartition::Join { who, session });
        }
        if is_side {
            self.answer_side(id, 0);
            self.resume(id);
        }
    }

    /// A request on a side connection has come back from the partition.
    pub(crate) fn gives_back(&mut self, id: ConnectionId) {
        if let Some(direct) = self.direct(id) {
            direct.gives_back = true;
        }
    }

    /// A side connection is about to be closed: says so where its handshake was not answered.
    pub(super) fn refuse_side(&mut self, id: ConnectionId, reason: CloseReason) {
        let is_opening = self
            .connections
            .get(id)
            .is_some_and(|connection| matches!(connection.phase, Phase::Opening { .. }));
        if is_opening && self.is_side(id) {
            let code = match reason {
                CloseReason::SessionExpired => ErrorCode::SessionExpired,
                _ => ErrorCode::SessionMoved,
            };
            self.answer_side(id, code as i32);
        }
    }

    /// Something that is watched on a direct client's connection lives elsewhere from now on.
    pub(crate) fn tell_moved(&mut self, id: ConnectionId) {
        if self.direct(id).is_none() {
            return;
        }
        let Some(output) = self.connections.output(id) else { return };
        let start = begin_frame(output);
        ReplyHeader { xid: direct_xid::MOVED, zxid: 0, err: 0 }.encode(output);
        self.placement.table().encode(output);
        end_frame(output, start);
    }

    fn answer_side(&mut self, id: ConnectionId, err: i32) {
        let Some(output) = self.connections.output(id) else { return };
        let start = begin_frame(output);
        answer_side(output, err);
        end_frame(output, start);
    }

    /// A request of a direct client; `None` when it is taken as anybody's.
    pub(super) fn direct_request<'a>(
        &mut self,
        id: ConnectionId,
        frame: &Frame<'a>,
        now: Now,
    ) -> Option<Taken<'a>> {
        let (header, mut body) = (frame.header, frame.body());
        let done = match header.opcode {
            direct_op::SEEN => self.has_seen(id, body.rest()),
            direct_op::REACH => self.wants_to_reach(id, body.rest()),
            direct_op::TABLE => self.tell_table(id),
            direct_op::ROUTED => body.i64().ok().and_then(|version| {
                let direct = self.direct(id)?;
                (direct.routed, direct.gives_back) = (version.cast_unsigned(), false);
                Some(())
            }),
            direct_op::FAST => return Some(self.fast(id, frame)),
            // What is watched may live elsewhere by now: they go through all partitions.
            _ if matches!(frame.opcode, Some(Opcode::RemoveWatches | Opcode::CheckWatches))
                && self.placement.version() > 0 =>
            {
                return None;
            }
            _ if self.is_side(id) => return Some(self.side_request(id, frame, now)),
            _ => return None,
        };
        if done.is_none() {
            self.close(id, CloseReason::Malformed);
        }
        Some(Taken::Done)
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut Direct> {
        self.route(id)?.direct.as_deref_mut()
    }

    fn has_seen(&mut self, id: ConnectionId, token: &[u8]) -> Option<()> {
        let seen = self.seal.open(token)?;
        self.sees(id, &seen);
        Some(())
    }

    /// What a client asks from now on is asked by somebody who has seen this.
    fn sees(&mut self, id: ConnectionId, seen: &Timestamp) {
        if let Some(route) = self.route(id) {
            route.seen.stamp.merge(seen);
            route.seen.informed = 0;
        }
    }

    fn wants_to_reach(&mut self, id: ConnectionId, token: &[u8]) -> Option<()> {
        let stamp = self.seal.open(token)?;
        // Where it sets a watch from now on nothing may be missing up to there either.
        self.sees(id, &stamp);
        let direct = self.direct(id)?;
        if direct.reach.len() >= REACH_MAX {
            return None;
        }
        direct.reach.push_back(stamp);
        self.say_what_is_reached(id);
        // Those before it are waited for already.
        if self.direct(id)?.reach.len() == 1 {
            self.pending.reaching.push(id);
        }
        Some(())
    }

    /// Tells a client what it wants to know as far as it is so: no event is on its way here, or waits here,
    /// that comes before what it asked for.
    pub(super) fn say_what_is_reached(&mut self, id: ConnectionId) {
        while let Some((missing, waits)) = self.lacks_to_reach(id) {
            if waits || !missing.is_empty() {
                missing.into_iter().for_each(|(of, position)| self.tell_me(of, position));
                return;
            }
            if let Some(direct) = self.direct(id) {
                direct.reach.pop_front();
            }
            let Some(output) = self.connections.output(id) else { return };
            let start = begin_frame(output);
            ReplyHeader { xid: direct_xid::REACHED, zxid: 0, err: 0 }.encode(output);
            end_frame(output, start);
        }
    }

    /// What a client wants to be told of next: how far which partitions still have to come, and whether
    /// something waits here that comes before.
    fn lacks_to_reach(&self, id: ConnectionId) -> Option<(Vec<(u8, u64)>, bool)> {
        let route = self.connections.get(id)?.route.as_ref()?;
        let stamp = route.direct.as_ref()?.reach.front()?;
        let concerned = route.partitions.watched | 1 << self.config.partition | 1 << route.requests.at;
        let missing = bits(concerned).filter(|of| stamp.at(*of) > self.progress.reached.at(*of));
        let missing = missing.map(|of| (of, stamp.at(of))).collect();
        let waits =
            route.delivery.undelivered.iter().any(|late| late.stamp.at(late.from) <= stamp.at(late.from));
        Some((missing, waits))
    }

    /// A partition has come further.
    pub(super) fn say_to_all_what_is_reached(&mut self) {
        let mut asking = core::mem::take(&mut self.pending.reaching);
        asking.retain(|id| {
            self.say_what_is_reached(*id);
            self.direct(*id).is_some_and(|direct| !direct.reach.is_empty())
        });
        asking.append(&mut self.pending.reaching);
        self.pending.reaching = asking;
    }

    /// Frames that rest on a stamp go into a client's output; returns how much is there.
    pub(super) fn put_out(&mut self, id: ConnectionId, stamp: &Timestamp, frames: &mut Vec<u8>) -> usize {
        let route = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut());
        if let Some(direct) = route.and_then(|route| route.direct.as_deref_mut())
            && !direct.collects(stamp, frames)
        {
            let mut news = direct.before(stamp, frames, &self.seal, (self.config.partition, &self.placement));
            self.connections.append(id, &mut news);
        }
        self.connections.append(id, frames)
    }

    fn tell_table(&mut self, id: ConnectionId) -> Option<()> {
        let output = self.connections.output(id)?;
        let start = begin_frame(output);
        ReplyHeader { xid: direct_xid::TABLE, zxid: 0, err: 0 }.encode(output);
        self.placement.table().encode(output);
        end_frame(output, start);
        Some(())
    }

    /// A read that waits for nothing: neither for what its client has seen nor for what it has asked before.
    fn fast<'a>(&mut self, id: ConnectionId, frame: &Frame<'a>) -> Taken<'a> {
        let own = self.config.partition;
        let bytes = frame.bytes.get(4..).unwrap_or_default();
        let inner = Frame::read(bytes);
        let opcode = inner.as_ref().and_then(|inner| inner.opcode);
        let is_here = opcode.is_some_and(|opcode| {
            let reads = matches!(
                opcode,
                Opcode::GetData
                    | Opcode::Exists
                    | Opcode::GetChildren
                    | Opcode::GetChildren2
                    | Opcode::GetAcl
            );
            reads && inner.as_ref().is_some_and(|inner| self.is_here(inner))
        });
        let watches = inner.as_ref().is_some_and(may_watch);
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else {
            return Taken::Done;
        };
        let Some(remote) = route.remote else { return Taken::Done };
        self.under_way.count(route, 1, frame.bytes.len());
        self.stats.kept += 1;
        let xid = frame.header.xid;
        if is_here {
            route.partitions.watched |= u64::from(watches) << own;
            Taken::Fast { remote, xid, frame: bytes }
        } else {
            Taken::Elsewhere { remote, xid }
        }
    }

    /// Whether a request is one for this thread's own partition.
    fn is_here(&self, frame: &Frame<'_>) -> bool {
        destination_of(&self.placement, frame) == Destination::Partition(self.config.partition)
    }

    /// A request on a side connection: it is for this thread's own partition, or was sent to the wrong one.
    fn side_request<'a>(&mut self, id: ConnectionId, frame: &Frame<'a>, now: Now) -> Taken<'a> {
        let own = self.config.partition;
        let Frame { header, opcode, .. } = *frame;
        let (is_here, watches) = match (opcode, destination_of(&self.placement, frame)) {
            (_, Destination::Front) => {
                self.answer_ping(id, header.xid, now);
                return Taken::Done;
            }
            (_, Destination::Proof) => (true, false),
            // Of the watches it sets those that are its own.
            (Some(Opcode::SetWatches | Opcode::SetWatches2), _) => (true, true),
            (Some(Opcode::CloseSession | Opcode::Reconfig | Opcode::WhoAmI) | None, _) => (false, false),
            (_, Destination::All(_)) => (false, false),
            // Whoever reads what cannot be understood refuses it.
            (_, Destination::Partition(_)) if frame.body().buffer().is_err() => (true, false),
            (_, Destination::Partition(partition)) => (partition == own, may_watch(frame)),
        };
        let placed = self.placement.version();
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else {
            return Taken::Done;
        };
        let (Some(remote), Some(direct)) = (route.remote, &mut route.direct) else { return Taken::Done };
        // All behind what goes back goes back too, or it would overtake that.
        let is_proof = opcode == Some(Opcode::Auth);
        // Of watches that belong here by a table which this thread does not have none would be set.
        let sets = matches!(opcode, Some(Opcode::SetWatches | Opcode::SetWatches2));
        let knows = if sets { direct.routed == placed } else { direct.routed >= placed };
        let is_current = is_proof || knows && !direct.gives_back;
        direct.gives_back |= !is_here || !is_current;
        self.under_way.count(route, 1, frame.bytes.len());
        self.stats.kept += 1;
        if !is_here || !is_current {
            return Taken::Elsewhere { remote, xid: header.xid };
        }
        let has_news = route.asks(own, placed, watches);
        Taken::Own { remote, frame: *frame, has_news }
    }
}

/// A request on a side connection belongs to another partition by now: its client sends it there.
pub(crate) fn told_elsewhere(frame: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let start = begin_frame(&mut answer);
    let xid = Frame::read(frame).map_or(0, |frame| frame.header.xid);
    ReplyHeader { xid, zxid: 0, err: ELSEWHERE }.encode(&mut answer);
    end_frame(&mut answer, start);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Authentication;
    use crate::config::{Config, Limits};
    use crate::gather::Gather;
    use crate::message::ToClient;
    use alloc::format;
    use alloc::string::String;
    use stoa_wire::{Reader, RequestHeader, request::encode};

    #[test]
    fn only_what_was_said_here_can_be_claimed() {
        let (seal, other) = (Seal::new(&[1; 32]), Seal::new(&[2; 32]));
        let mut stamp = Timestamp::new(3);
        stamp.raise(1, 7);
        stamp.raise_zxid(9);
        let token = seal.token(&stamp);
        assert_eq!(seal.open(&token), Some(stamp));
        assert_eq!(other.open(&token), None);
        for at in 0..token.len() {
            let mut forged = token.clone();
            forged[at] ^= 1;
            assert_eq!(seal.open(&forged), None);
            assert_eq!(seal.open(&token[..at]), None);
        }
    }

    /// A side connection of a thread that has the second of two partitions, and a path there.
    fn side() -> (Front, ConnectionId, String) {
        let mut front = Front::new(Config {
            partition: 1,
            partitions: 2,
            tick_ms: 3000,
            session_timeout_min_ms: 6000,
            patience_ms: 1000,
            authentication: Authentication::default(),
            direct_secret: [0; 32],
            limits: Limits::default(),
        });
        let peer = SocketAddr::from(([10, 0, 0, 1], 4000));
        let id = front.connect_side(peer, Now::default()).unwrap();
        let connection = front.connections.get_mut(id).unwrap();
        connection.phase = Phase::Remote;
        connection.route.as_mut().unwrap().remote = Some(ConnectionId(7));
        let here = |number: &u32| front.placement.of(&format!("/top-{number}")) == 1;
        let path = format!("/top-{}", (0..).find(here).unwrap());
        (front, id, path)
    }

    fn frame(opcode: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin_frame(&mut out);
        RequestHeader { xid: 1, opcode }.encode(&mut out);
        body(&mut out);
        end_frame(&mut out, start);
        out
    }

    #[test]
    fn what_was_sent_by_an_old_table_goes_back_until_the_client_has_the_new_one() {
        let (mut front, id, path) = side();
        let get = frame(Opcode::GetData as i32, |out| encode::path_watch(out, &path, false));
        let routed = |version: i64| frame(direct_op::ROUTED, |out| out.extend(version.to_be_bytes()));
        let take = |front: &mut Front, mut bytes: &[u8]| {
            let taken = front.take_frame(id, &mut bytes, Now::default());
            matches!(taken, Some(Taken::Own { .. }))
        };
        assert!(take(&mut front, &get));
        let moves = |front: &mut Front| {
            let moved = [("/elsewhere", 1 - front.placement.of("/elsewhere"))];
            front.placement = Placement::with(2, front.placement.version() + 1, moved);
        };
        (0..5).for_each(|_| moves(&mut front));
        assert!(!take(&mut front, &get));
        take(&mut front, &routed(4));
        assert!(!take(&mut front, &get));
        take(&mut front, &routed(5));
        assert!(take(&mut front, &get));
        take(&mut front, &routed(6));
        assert!(take(&mut front, &get), "the client may know more than this thread");
        let proof = frame(Opcode::Auth as i32, |out| encode::auth(out, "digest", b"me:secret"));
        (0..2).for_each(|_| moves(&mut front));
        assert!(take(&mut front, &proof), "identities have no place");
    }

    #[test]
    fn what_is_given_at_once_counts_as_unread_at_once() {
        let (mut front, id, _) = side();
        let size = front.config.limits.output_close_bytes;
        for (given, reason) in [(size / 2, None), (size, Some(CloseReason::SlowReader))] {
            front.collect(id);
            front.hand_out(1, id, &Timestamp::new(2), 0, &mut vec![0; given]);
            assert_eq!(front.connections.get(id).unwrap().close_reason, None);
            front.give_collected(id);
            assert_eq!(front.connections.get(id).unwrap().close_reason, reason);
        }
    }

    #[test]
    fn questions_have_a_limit_and_leave_nothing_behind() {
        let (mut front, id, _) = side();
        let mut stamp = Timestamp::new(2);
        stamp.raise(1, 1);
        let token = front.seal.token(&stamp);
        let reach = frame(direct_op::REACH, |out| out.extend_from_slice(&token));
        for _ in 0..REACH_MAX {
            front.take_frame(id, &mut reach.as_slice(), Now::default());
        }
        assert_eq!(front.pending.reaching, [id]);
        front.reached(1, 1, 0);
        assert_eq!(front.pending.reaching, []);
        let answers = front.connections.get(id).unwrap().unsent().len();
        assert_eq!(answers, REACH_MAX * (4 + ReplyHeader::LEN));
        // What is so already needs no waiting.
        front.take_frame(id, &mut reach.as_slice(), Now::default());
        assert_eq!(front.pending.reaching, []);
        stamp.raise(1, 2);
        let token = front.seal.token(&stamp);
        let reach = frame(direct_op::REACH, |out| out.extend_from_slice(&token));
        for _ in 0..=REACH_MAX {
            front.take_frame(id, &mut reach.as_slice(), Now::default());
        }
        assert_eq!(front.connections.get(id).unwrap().close_reason, Some(CloseReason::Malformed));
    }

    /// What was put out: xids, and of stamps what they cover and say.
    fn put_out(front: &Front, id: ConnectionId) -> Vec<(i32, Option<(usize, Timestamp)>)> {
        let mut rest = front.connections.get(id).unwrap().unsent();
        let mut frames = Vec::new();
        while let Some((frame, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let mut reader = Reader::new(frame);
            let ReplyHeader { xid, .. } = ReplyHeader::decode(&mut reader).unwrap();
            let is_stamp = xid == direct_xid::STAMP;
            let stamped = is_stamp.then(|| Stamped::decode(&mut reader).unwrap());
            frames.push((xid, stamped.map(|it| (it.covers, stamp_of(it.token).unwrap().0))));
            rest = tail;
        }
        frames
    }

    fn said(xid: i32) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin_frame(&mut out);
        ReplyHeader { xid, zxid: 5, err: 0 }.encode(&mut out);
        end_frame(&mut out, start);
        out
    }

    fn stamp(positions: [u64; 2]) -> Timestamp {
        let mut stamp = Timestamp::new(2);
        (0..).zip(positions).for_each(|(of, position)| stamp.raise(of, position));
        stamp
    }

    #[test]
    fn what_is_given_at_once_keeps_its_stamps_and_is_covered_as_a_whole() {
        let (mut front, id, _) = side();
        front.direct(id).unwrap().is_greeted = true;
        front.collect(id);
        let frame = said(1).len();
        for (xid, positions) in [(1, [4, 1]), (2, [4, 1]), (3, [1, 3])] {
            front.put_out(id, &stamp(positions), &mut said(xid));
        }
        assert!(front.connections.get(id).unwrap().unsent().is_empty());
        front.give_collected(id);
        let second = front.connections.get(id).unwrap().unsent().len() / 2 - frame / 2;
        let given = put_out(&front, id);
        let told = [(1, None), (2, None), (direct_xid::STAMP, Some((frame, stamp([1, 3])))), (3, None)];
        assert_eq!(given[1..], told);
        assert_eq!(given[0], (direct_xid::STAMP, Some((second + 2 * frame, stamp([4, 1])))));
    }

    #[test]
    fn an_answer_that_was_put_together_is_the_last_and_rests_on_its_parts() {
        let (mut front, id, _) = side();
        front.direct(id).unwrap().is_greeted = true;
        let sets = frame(Opcode::SetWatches as i32, |out| encode::set_watches(out, 0, &[&[], &[], &[]]));
        front.ask_all(id, Gather::new(sets[4..].into(), Opcode::SetWatches, 1, front.placement.clone()));
        // What the client has seen elsewhere meanwhile says nothing of what it was told here.
        front.sees(id, &stamp([9, 9]));
        for (from, positions) in [(0, [4, 1]), (1, [1, 3])] {
            let bytes = [said(stoa_wire::xid::NOTIFICATION), said(1)].concat();
            front.told(from, id, ToClient::Frames { answers: 1, bytes, stamp: stamp(positions) });
        }
        let given = put_out(&front, id);
        assert_eq!(given.iter().filter(|(xid, _)| *xid == stoa_wire::xid::NOTIFICATION).count(), 2);
        assert_eq!(given.last(), Some(&(1, None)), "events of the last one come before it");
        let stamps: Vec<_> = given.iter().filter_map(|(_, stamped)| Some(&stamped.as_ref()?.1)).collect();
        assert_eq!(stamps, [&stamp([4, 1]), &stamp([1, 3]), &stamp([4, 3])]);
    }

    #[test]
    fn who_asks_to_reach_something_has_seen_it() {
        let (mut front, id, _) = side();
        let ahead = stamp([7, 1]);
        let token = front.seal.token(&ahead);
        let reach = frame(direct_op::REACH, |out| out.extend_from_slice(&token));
        front.take_frame(id, &mut reach.as_slice(), Now::default());
        assert!(front.seen(id).unwrap().covers(&ahead));
        assert_eq!(front.route(id).unwrap().seen.informed, 0);
    }
}
