//! What goes out: every frame, in its place.

use super::link::{Answer, Expect, Hello, Phase, name};
use super::requests::refusal;
use super::{Checker, DIGESTS_KEPT, Proposed, What};
use crate::model::{Body, ConnectionKey, Denial, Done, Event, Identity, Model, Reader as Asker};
use crate::{Checked, Violation, wrong};
use std::collections::BTreeMap;
use std::rc::Rc;
use stoa_core::{CloseReason, Now};
use stoa_tree::Tree;
use stoa_wire::{
    ConnectResponse, EventKind, KeeperState, Opcode, Reader, ReplyHeader, Request, WatcherEvent, xid,
};

/// A frame of the server, split.
struct Reply<'a> {
    header: ReplyHeader,
    body: &'a [u8],
}

fn split(frame: &[u8]) -> Result<Reply<'_>, Violation> {
    let mut reader = Reader::new(frame);
    let header = ReplyHeader::decode(&mut reader)
        .map_err(|_| Violation::new(format!("a reply of {} bytes has no header", frame.len())))?;
    Ok(Reply { header, body: reader.rest() })
}

impl Checker {
    /// The server has been called. `written` are the frames that it has appended to its connections,
    /// `closes` the connections that it closes now. Its tree is as it is after the call.
    ///
    /// # Errors
    /// When a frame is wrong, missing, or in the wrong place.
    pub fn called(
        &mut self,
        tree: &Tree,
        written: Vec<(ConnectionKey, Vec<Vec<u8>>)>,
        closes: &[(ConnectionKey, CloseReason, usize)],
        now: Now,
    ) -> Checked {
        for (key, frames) in written {
            match self.links.get_mut(&key) {
                Some(link) => link.frames.extend(frames),
                None => return wrong(format!("{} is gone, and is written to", name(key))),
            }
        }
        let cut_short = |key| {
            closes.iter().any(|&(closed, reason, _)| closed == key && reason == CloseReason::SlowReader)
        };
        self.settle()?;
        while self.applied.zxid() < tree.last_zxid() || self.is_refusal_due() {
            self.step(now, &cut_short)?;
            self.settle()?;
        }
        self.note_records()?;
        self.note_digest(tree)?;
        for &(key, reason, unsent) in closes {
            self.closes(key, reason, unsent, now)?;
        }
        for (&key, link) in &self.links {
            if let Some(frame) = link.frames.front() {
                return wrong(format!("{} was sent what it should not be: {}", name(key), show(frame)));
            }
            if let Some(reason) = link.must_close {
                return wrong(format!("{} should have been closed: {reason}", name(key)));
            }
        }
        self.check_prompt()
    }

    /// Whether a refusal comes next, and is durable.
    fn is_refusal_due(&self) -> bool {
        self.proposed.front().is_some_and(|proposed| {
            matches!(proposed.what, What::Refused { .. }) && proposed.record <= self.durable_position
        })
    }

    fn note_digest(&mut self, tree: &Tree) -> Checked {
        if tree.last_zxid() != self.applied.zxid() {
            let (found, wanted) = (tree.last_zxid(), self.applied.zxid());
            return wrong(format!("the server is at zxid {found}, it should be at {wanted}"));
        }
        if self.digests.back().is_none_or(|(zxid, _)| *zxid != tree.last_zxid()) {
            self.digests.push_back((tree.last_zxid(), tree.digest()));
            if self.digests.len() > DIGESTS_KEPT {
                self.digests.pop_front();
            }
        }
        Ok(())
    }

    /// Applies an update again at a restart, when nobody is connected.
    pub(super) fn replay_one(&mut self) {
        if let Some(proposed) = self.proposed.pop_front() {
            self.logged -= 1;
            execute(&mut self.applied, &proposed);
        }
    }

    /// Applies the next update: its events, then its reply.
    fn step(&mut self, now: Now, cut_short: &dyn Fn(ConnectionKey) -> bool) -> Checked {
        if self.logged == 0 {
            return wrong(format!("zxid {} was applied before the log had it", self.applied.zxid() + 1));
        }
        let Some(proposed) = self.proposed.pop_front() else {
            return wrong(format!("zxid {} was applied, but never proposed", self.applied.zxid() + 1));
        };
        self.logged -= 1;
        self.counts.updates += 1;
        let done = execute(&mut self.applied, &proposed);
        let zxid = proposed.stamp.zxid;
        self.events(&done, zxid, matches!(proposed.what, What::Close), cut_short)?;
        match proposed.what {
            What::Write { connection, .. } => self.own_reply(connection, zxid, Some(done.body), cut_short)?,
            What::Open { connection, timeout_ms } => {
                self.timers.start(proposed.session, timeout_ms, now.mono_us);
                self.opened(connection, proposed.session, timeout_ms)?;
            }
            What::Reopen { connection, timeout_ms } => {
                self.counts.returned += 1;
                let previous = self.timers.reopened(proposed.session, timeout_ms, now.mono_us);
                self.opened(connection, proposed.session, timeout_ms)?;
                previous.into_iter().for_each(|previous| self.moved(previous));
            }
            What::Close => self.closed(proposed.session, zxid, cut_short)?,
            What::Reap(_) => {}
            What::Refused { connection, failure } => self.told_refused(connection, failure)?,
        }
        Ok(())
    }

    fn events(
        &mut self,
        done: &Done,
        zxid: i64,
        unordered: bool,
        cut_short: &dyn Fn(ConnectionKey) -> bool,
    ) -> Checked {
        let links = &self.links;
        let identities = |key| links.get(&key).map(|link| Vec::clone(&link.identities)).unwrap_or_default();
        let mut by_connection: BTreeMap<ConnectionKey, Vec<Event>> = BTreeMap::new();
        for (key, event) in self.watches.events_of(done, zxid, &identities) {
            by_connection.entry(key).or_default().push(event);
        }
        for (key, mut wanted) in by_connection {
            let Some(link) = self.links.get_mut(&key) else { continue };
            let mut found = Vec::new();
            while found.len() < wanted.len()
                && let Some(event) = link.frames.front().map(|frame| event_in(frame)).transpose()?.flatten()
            {
                found.push(event);
                link.frames.pop_front();
            }
            if unordered {
                // The ephemerals of a session end in no particular order.
                wanted.sort_unstable();
                found.sort_unstable();
            }
            if found.len() < wanted.len() && cut_short(key) {
                wanted.truncate(found.len());
            }
            if found != wanted {
                let name = name(key);
                return wrong(format!("{name} should be sent {wanted:?} at zxid {zxid}, not {found:?}"));
            }
            self.counts.events += found.len() as u64;
        }
        Ok(())
    }

    /// The reply to the write that has just been applied; without a body for a session's end.
    fn own_reply(
        &mut self,
        key: ConnectionKey,
        zxid: i64,
        body: Option<Body>,
        cut_short: &dyn Fn(ConnectionKey) -> bool,
    ) -> Checked {
        let Some(link) = self.links.get_mut(&key).filter(|link| link.is_open()) else { return Ok(()) };
        let (xid, opcode) = match link.queue.pop_front() {
            Some(Expect::Write { zxid: own, xid, opcode }) if own == zxid => (xid, opcode),
            _ if cut_short(key) => return Ok(()),
            other => {
                let name = name(key);
                return wrong(format!("{name} waits for {other:?} when zxid {zxid} is applied"));
            }
        };
        let Some(frame) = link.frames.pop_front() else {
            if cut_short(key) {
                return Ok(());
            }
            return wrong(format!("{} has no reply to its write of zxid {zxid}", name(key)));
        };
        self.counts.replies += 1;
        let wanted = ReplyHeader { xid, zxid, err: 0 };
        self.compare_reply(key, &frame, wanted, opcode, &Ok(body.unwrap_or(Body::Empty)))
    }

    /// A session exists, or is on this connection now: its client learns of it.
    fn opened(&mut self, key: ConnectionKey, session: i64, timeout_ms: i32) -> Checked {
        let Some(link) = self.links.get_mut(&key).filter(|link| link.phase == Phase::Opening) else {
            return Ok(());
        };
        link.phase = Phase::Live;
        link.session = session;
        link.hello = Some(Hello::Opened { timeout_ms });
        if let Some(timer) = self.timers.by_session.get_mut(&session) {
            timer.connection = Some(key);
        }
        self.greet(key)
    }

    /// The session of a connection is on another one now: nothing is answered here any more.
    fn moved(&mut self, key: ConnectionKey) {
        self.shut(key, Some(CloseReason::SessionMoved));
        self.forget_watches_of(key);
        if let Some(link) = self.links.get_mut(&key) {
            link.queue.clear();
        }
    }

    /// What was asked before the server led was refused, and that is durable.
    fn told_refused(&mut self, key: ConnectionKey, failure: Denial) -> Checked {
        let after = self.applied.zxid();
        let Some(link) = self.links.get_mut(&key).filter(|link| link.is_open()) else { return Ok(()) };
        if link.phase == Phase::Opening {
            link.hello = Some(Hello::Expired);
            self.shut(key, Some(CloseReason::SessionExpired));
            return self.greet(key);
        }
        let refused = link.queue.iter_mut().find(|expect| matches!(expect, Expect::Refused { .. }));
        if let Some(expect) = refused
            && let Expect::Refused { xid, opcode } = *expect
        {
            *expect = Expect::Answer { after, xid, opcode, answer: refusal(failure) };
        }
        Ok(())
    }

    /// A session has ended: whoever held it is cut off.
    fn closed(&mut self, session: i64, zxid: i64, cut_short: &dyn Fn(ConnectionKey) -> bool) -> Checked {
        let asked = self.links.iter().find_map(|(&key, link)| {
            let own = |expect: &Expect| matches!(expect, Expect::Write { zxid: own, .. } if *own == zxid);
            link.queue.front().is_some_and(own).then_some(key)
        });
        if let Some(key) = asked {
            self.own_reply(key, zxid, None, cut_short)?;
        }
        let timer = self.timers.by_session.remove(&session);
        // Who asked is told that it is done, also when the session had moved on to somebody else.
        let by_client = asked.is_some() || timer.as_ref().is_some_and(|timer| timer.closed_by_client);
        let reason = if by_client { CloseReason::SessionClosed } else { CloseReason::SessionExpired };
        let held = timer.and_then(|timer| timer.connection);
        for key in [held, asked].into_iter().flatten() {
            if self.links.get(&key).is_some_and(|link| link.is_open()) {
                self.shut(key, Some(reason));
                // Later updates of the same call tell it nothing any more.
                self.forget_watches_of(key);
            }
        }
        Ok(())
    }

    /// Takes every frame that may stand at the zxid that is applied now.
    fn settle(&mut self) -> Checked {
        let keys: Vec<ConnectionKey> =
            self.links.iter().filter(|(_, link)| !link.frames.is_empty()).map(|(&key, _)| key).collect();
        for key in keys {
            while self.take_one(key)? {}
        }
        Ok(())
    }

    /// Takes the next frame of a connection, if it belongs here.
    fn take_one(&mut self, key: ConnectionKey) -> Result<bool, Violation> {
        let applied = self.applied.zxid();
        let Some(link) = self.links.get_mut(&key) else { return Ok(false) };
        if link.frames.is_empty() {
            return Ok(false);
        }
        if link.phase == Phase::Opening {
            return Ok(false);
        }
        if link.hello.is_some() {
            self.greet(key)?;
            return Ok(true);
        }
        // Events that setWatches replays have no zxid: they stand where its reply stands.
        let reply = link.frames.iter().map(|frame| split(frame)).find(|reply| {
            reply
                .as_ref()
                .map_or(true, |reply| reply.header.xid != xid::NOTIFICATION || reply.header.zxid >= 0)
        });
        let Some(reply) = reply.transpose()? else {
            return wrong(format!("{} was sent events without the reply", name(key)));
        };
        let header = reply.header;
        if let Some(immediate) = link.immediate.front()
            && immediate.xid == header.xid
        {
            let zxid = if immediate.outside_order { 0 } else { applied };
            let wanted = ReplyHeader { xid: immediate.xid, zxid, err: immediate.err };
            if header.zxid > applied {
                return Ok(false);
            }
            link.immediate.pop_front();
            let frame = link.frames.pop_front().unwrap_or_default();
            self.compare_reply(key, &frame, wanted, Opcode::Ping, &Ok(Body::Empty))?;
            return Ok(true);
        }
        if header.zxid > applied || header.xid == xid::NOTIFICATION {
            return Ok(false);
        }
        if let Some(Expect::Refused { .. }) = link.queue.front() {
            return Ok(false);
        }
        if header.zxid < link.last_zxid {
            let (name, last) = (name(key), link.last_zxid);
            return wrong(format!("{name} was sent zxid {} after {last}", header.zxid));
        }
        link.last_zxid = header.zxid;
        self.take_queued(key)?;
        Ok(true)
    }

    /// Takes the answer to what a connection has waited for longest.
    fn take_queued(&mut self, key: ConnectionKey) -> Checked {
        let applied = self.applied.zxid();
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        let (xid, opcode, answer) = match link.queue.pop_front() {
            Some(Expect::Answer { after, xid, opcode, answer }) if after <= applied => (xid, opcode, answer),
            Some(Expect::Read { xid, opcode, frame }) => {
                let answer = self.read(key, opcode, &frame)?;
                (xid, opcode, answer)
            }
            other => {
                let frame = link.frames.front().map(|frame| show(frame)).unwrap_or_default();
                let name = name(key);
                return wrong(format!("{name} waits for {other:?} at zxid {applied}, and is sent {frame}"));
            }
        };
        let Some(frame) = self.links.get_mut(&key).and_then(|link| link.frames.pop_front()) else {
            return wrong(format!("{} has no reply to xid {xid}", name(key)));
        };
        self.counts.replies += 1;
        let wanted = ReplyHeader { xid, zxid: applied, err: answer.as_ref().err().copied().unwrap_or(0) };
        self.compare_reply(key, &frame, wanted, opcode, &answer)
    }

    /// What a read must be answered; takes the events of a setWatches, which stand before its reply.
    fn read(&mut self, key: ConnectionKey, opcode: Opcode, frame: &[u8]) -> Result<Answer, Violation> {
        let Ok(request) = Request::decode(opcode, &mut Reader::new(&frame[8..])) else {
            return Ok(Err(stoa_wire::ErrorCode::MarshallingError as i32));
        };
        let Some(link) = self.links.get_mut(&key) else { return Ok(Ok(Body::Empty)) };
        if let Request::SetWatches(request) | Request::SetWatches2(request) = request {
            for wanted in self.applied.set_watches(&request, key, &mut self.watches) {
                let found = link.frames.pop_front().map(|frame| event_in(&frame)).transpose()?.flatten();
                if found.as_ref() != Some(&wanted) {
                    let name = name(key);
                    return wrong(format!("{name} missed {wanted:?}, and is sent {found:?}"));
                }
                self.counts.events += 1;
            }
            return Ok(Ok(Body::Empty));
        }
        let identities = Rc::clone(&link.identities);
        let asker = Asker { connection: key, session: link.session, identities: &identities };
        Ok(self.applied.read(&request, asker, &mut self.watches).map_err(|code| code as i32))
    }

    /// The answer to a handshake.
    fn greet(&mut self, key: ConnectionKey) -> Checked {
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        let (Some(hello), Some(frame)) = (link.hello.take(), link.frames.pop_front()) else {
            return wrong(format!("{} has no answer to its handshake", name(key)));
        };
        let Ok(found) = ConnectResponse::decode(&frame) else {
            return wrong(format!("{} was sent a handshake that cannot be read", name(key)));
        };
        let wanted = match hello {
            Hello::Opened { timeout_ms } => {
                let session_id = link.session;
                let known = self.applied.session(session_id).and_then(|known| known.password);
                let password = known.unwrap_or(found.password);
                self.applied.learn_password(session_id, password);
                self.head.learn_password(session_id, password);
                ConnectResponse { timeout_ms, session_id, password, ..found }
            }
            Hello::Expired => ConnectResponse { read_only: found.read_only, ..ConnectResponse::EXPIRED },
        };
        let wanted = ConnectResponse { protocol_version: 0, ..wanted };
        if found == wanted {
            Ok(())
        } else {
            wrong(format!("{} was greeted with {found:?}, not {wanted:?}", name(key)))
        }
    }

    fn compare_reply(
        &self,
        key: ConnectionKey,
        frame: &[u8],
        wanted: ReplyHeader,
        opcode: Opcode,
        answer: &Answer,
    ) -> Checked {
        let reply = split(frame)?;
        let opcode_name = opcode.name();
        let differs = |found: String, wanted: String| {
            wrong(format!("{}: {opcode_name} was answered {found}, not {wanted}", name(key)))
        };
        if reply.header != wanted {
            return differs(format!("{:?}", reply.header), format!("{wanted:?}"));
        }
        match answer {
            Err(_) if reply.body.is_empty() => Ok(()),
            Err(_) => differs(format!("an error with {} more bytes", reply.body.len()), "none".to_owned()),
            Ok(body) => {
                let found = Body::decode(opcode, reply.body).map_err(|error| {
                    Violation::new(format!("{}: the answer to {opcode_name}: {error}", name(key)))
                })?;
                if found == *body { Ok(()) } else { differs(format!("{found:?}"), format!("{body:?}")) }
            }
        }
    }
}

/// Executes an update on the applied state. It was executed once before, on the same state, by the head.
fn execute(model: &mut Model, proposed: &Proposed) -> Done {
    let zxid = proposed.stamp.zxid;
    match &proposed.what {
        What::Write { frame, identities, .. } => {
            let opcode = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
            let opcode = Opcode::from_i32(opcode).expect("the head has read it");
            let request =
                Request::decode(opcode, &mut Reader::new(&frame[8..])).expect("the head has read it");
            let identities: &Vec<Identity> = identities;
            model
                .write(&request, proposed.session, identities, proposed.stamp)
                .expect("the head has executed it on the same state")
        }
        What::Open { connection, timeout_ms } => {
            model.create_session(proposed.session, *timeout_ms, (*connection, proposed.request), zxid);
            Done::default()
        }
        What::Reopen { connection, timeout_ms } => {
            model.open_session(proposed.session, *timeout_ms, (*connection, proposed.request), zxid);
            Done::default()
        }
        What::Close => model.close_session(proposed.session, zxid),
        What::Reap(path) => model.reap(path, zxid),
        What::Refused { .. } => Done::default(),
    }
}

/// The watch event in a frame, if it is one.
fn event_in(frame: &[u8]) -> Result<Option<Event>, Violation> {
    let reply = split(frame)?;
    if reply.header.xid != xid::NOTIFICATION {
        return Ok(None);
    }
    let mut reader = Reader::new(reply.body);
    let event = WatcherEvent::decode(&mut reader)
        .ok()
        .filter(|event| event.state == KeeperState::SyncConnected as i32 && reader.rest().is_empty());
    let kind = event.and_then(|event| EventKind::from_i32(event.kind));
    match (event, kind) {
        (Some(event), Some(kind)) if reply.header.err == 0 => {
            Ok(Some(Event { kind, path: event.path.into(), zxid: reply.header.zxid }))
        }
        _ => wrong(format!("a watch event cannot be read: {}", show(frame))),
    }
}

/// A frame in words.
fn show(frame: &[u8]) -> String {
    match split(frame) {
        Ok(reply) if reply.header.xid == xid::NOTIFICATION => format!("the event {:?}", event_in(frame)),
        Ok(reply) => format!("{:?} and {} bytes", reply.header, reply.body.len()),
        Err(_) => format!("{} bytes without a header", frame.len()),
    }
}
