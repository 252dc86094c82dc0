//! One of the two servers: its connections, sessions and numbers.

use crate::answer::{self, Field, Item};
use crate::call::{Call, Moment, Op, Resolve};
use crate::ledger::Ledger;
use crate::link::{Ended, Link};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use stoa_wire::{ConnectRequest, ConnectResponse, Opcode, PASSWORD_LEN, put, xid};

/// Where the sequential znodes are kept that were created and not deleted since.
pub type Sequentials = std::collections::VecDeque<String>;

/// A connection that answers so many pings, one after the other, is not about to end.
pub const PINGS_BEFORE_END: usize = 3;

/// What the other server has done this one does within this time.
const OTHER_PATIENCE: Duration = Duration::from_secs(5);

const END_PAUSE: Duration = Duration::from_millis(1);

/// A session as its client knows it.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    /// Its id.
    pub id: i64,
    /// Its password.
    pub password: [u8; PASSWORD_LEN],
}

/// What goes into a connect request.
#[derive(Debug, Clone, Copy)]
pub struct Greeting {
    /// The session to reopen, if any.
    pub session: Option<Session>,
    /// 0 means what the client has really seen.
    pub last_zxid_seen: i64,
    /// Wanted timeout.
    pub timeout_ms: i32,
    /// `None` for a client older than 3.4.
    pub read_only: Option<bool>,
}

/// A server.
#[derive(Debug)]
pub struct Side {
    /// How reports call it.
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its numbers.
    pub ledger: Ledger,
    links: Vec<Option<Link>>,
    sessions: Vec<Option<Session>>,
    last_seen: i64,
    /// How long its answers were waited for.
    pub waited: Duration,
}

struct Known<'a> {
    ledger: &'a Ledger,
    told: &'a Ledger,
    sequentials: &'a Sequentials,
}

impl Resolve for Known<'_> {
    fn sequential(&self, nth: usize) -> &str {
        let len = self.sequentials.len().max(1);
        self.sequentials.get(nth % len).map_or("/none", String::as_str)
    }

    fn zxid(&self, moment: Moment) -> i64 {
        match moment {
            Moment::WritesAgo(count) => {
                self.told.writes_ago(count).and_then(|write| self.ledger.zxid_of(write)).unwrap_or(0)
            }
            Moment::Fixed(zxid) => zxid,
        }
    }
}

impl Side {
    /// A server at `address` that so many sessions will talk to, with an empty ledger.
    #[must_use]
    pub fn new(name: &'static str, address: SocketAddr, slots: usize, ledger: Ledger) -> Self {
        Self {
            name,
            address,
            ledger,
            links: (0..slots).map(|_| None).collect(),
            sessions: vec![None; slots],
            last_seen: 0,
            waited: Duration::ZERO,
        }
    }

    /// The session of `slot`.
    #[must_use]
    pub fn session(&self, slot: usize) -> Option<Session> {
        self.sessions[slot]
    }

    /// Forgets the session of `slot`: it was closed.
    pub fn forget_session(&mut self, slot: usize) {
        self.sessions[slot] = None;
    }

    /// Drops the connection of `slot`.
    pub fn hang_up(&mut self, slot: usize) -> Option<Link> {
        self.links[slot].take()
    }

    /// Opens a connection for `slot` and sends `bytes` as they are. Answers the first frame, if any.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn dial_raw(&mut self, slot: usize, bytes: &[u8]) -> std::io::Result<Result<Vec<u8>, Ended>> {
        let mut link = Link::open(self.address)?;
        link.send(bytes);
        let answer = link.receive();
        self.links[slot] = Some(link);
        Ok(answer)
    }

    /// Opens a connection for `slot` and greets.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn dial(&mut self, slot: usize, greeting: &Greeting) -> std::io::Result<Result<Vec<u8>, Ended>> {
        let (session_id, password) =
            greeting.session.map_or((0, [0; PASSWORD_LEN]), |session| (session.id, session.password));
        let mut bytes = Vec::new();
        let start = stoa_wire::begin_frame(&mut bytes);
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: if greeting.last_zxid_seen == 0 {
                self.last_seen
            } else {
                greeting.last_zxid_seen
            },
            timeout_ms: greeting.timeout_ms,
            session_id,
            password: &password,
            read_only: greeting.read_only,
        }
        .encode(&mut bytes);
        stoa_wire::end_frame(&mut bytes, start);
        self.dial_raw(slot, &bytes)
    }

    /// Takes the session over that a greeting was answered with; `nth` is its number when it is new.
    pub fn adopt(&mut self, slot: usize, frame: &[u8], nth: usize) {
        let Ok(response) = ConnectResponse::decode(frame) else {
            return;
        };
        if response.session_id == 0 {
            return;
        }
        if self.sessions[slot].is_none_or(|session| session.id != response.session_id) {
            self.ledger.opened(response.session_id, nth);
        }
        self.sessions[slot] = Some(Session { id: response.session_id, password: response.password });
    }

    /// The bytes of calls that are sent together. Their xids count up from `first_xid`, save for those
    /// that have their own. `told` knows which writes requests may refer to: those whose zxids both
    /// servers have shown.
    #[must_use]
    pub fn encode(
        &self,
        calls: &[Call],
        first_xid: i32,
        sequentials: &Sequentials,
        told: &Ledger,
    ) -> Vec<u8> {
        let known = Known { ledger: &self.ledger, told, sequentials };
        let mut bytes = Vec::with_capacity(calls.len() * 64);
        for (next_xid, call) in (first_xid..).zip(calls) {
            call.encode(&mut bytes, call.op.fixed_xid().unwrap_or(next_xid), &known);
        }
        bytes
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, slot: usize, bytes: &[u8]) {
        if let Some(link) = &mut self.links[slot] {
            link.send(bytes);
        }
    }

    /// Sends a ping, the cheapest request that comes after all others.
    pub fn send_ping(&mut self, slot: usize) {
        let mut bytes = Vec::with_capacity(12);
        put::i32(&mut bytes, 8);
        put::i32(&mut bytes, xid::PING);
        put::i32(&mut bytes, Opcode::Ping as i32);
        self.send_raw(slot, &bytes);
    }

    /// Pings, one after the other, until one is not answered or it is clear that all will be.
    pub fn ping_until_end(&mut self, slot: usize) -> Received {
        let mut all = Received { frames: Vec::new(), ended: None };
        for _ in 0..PINGS_BEFORE_END {
            self.send_ping(slot);
            let received = self.receive(slot, 1);
            all.frames.extend(received.frames);
            all.ended = received.ended;
            if all.ended.is_some() {
                break;
            }
        }
        all
    }

    /// Pings a connection that the other server has ended, until it ends as well, but not for ever.
    pub fn await_end(&mut self, slot: usize, received: &mut Received) {
        let begun = Instant::now();
        while received.ended.is_none() && begun.elapsed() < OTHER_PATIENCE {
            std::thread::sleep(END_PAUSE);
            self.send_ping(slot);
            received.ended = self.receive(slot, 1).ended;
        }
    }

    /// Reads until so many replies have come, or the connection has ended.
    pub fn receive(&mut self, slot: usize, replies: usize) -> Received {
        let begun = Instant::now();
        let received = self.receive_now(slot, replies);
        self.waited += begun.elapsed();
        received
    }

    /// Waits until there are so many watch notifications among what was received, but not for ever. They
    /// go before the replies.
    pub fn await_events(&mut self, slot: usize, received: &mut Received, wanted: usize) {
        let begun = Instant::now();
        let Some(link) = &mut self.links[slot] else { return };
        while received.ended.is_none() && received.events() < wanted {
            let Some(left) = OTHER_PATIENCE.checked_sub(begun.elapsed()) else { break };
            match link.receive_within(left) {
                Ok(frame) => received.frames.push(frame),
                Err(Ended::Silent) => break,
                Err(ended) => received.ended = Some(ended),
            }
        }
        received.frames.sort_by_key(|frame| !answer::is_event(frame));
        self.waited += begun.elapsed();
    }

    fn receive_now(&mut self, slot: usize, replies: usize) -> Received {
        let mut received = Received { frames: Vec::with_capacity(replies), ended: None };
        let Some(link) = &mut self.links[slot] else {
            received.ended = Some(Ended::Closed);
            return received;
        };
        let mut left = replies;
        while left > 0 {
            match link.receive() {
                Ok(frame) => {
                    if !answer::is_event(&frame) {
                        left -= 1;
                        // The xid 0 is never used: such a frame is a greeting, not a reply.
                        if let Some(header) = answer::header(&frame).filter(|header| header.xid != 0) {
                            self.last_seen = self.last_seen.max(header.zxid);
                        }
                    }
                    received.frames.push(frame);
                }
                Err(ended) => {
                    received.ended = Some(ended);
                    break;
                }
            }
        }
        received
    }
}

/// What a connection brought, as it came.
#[derive(Debug)]
pub struct Received {
    /// Replies and watch notifications in order.
    pub frames: Vec<Vec<u8>>,
    /// Set when the connection ended before the last reply.
    pub ended: Option<Ended>,
}

impl Received {
    /// The replies alone, in order.
    pub fn replies(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(Vec::as_slice).filter(|frame| !answer::is_event(frame))
    }

    /// How many watch notifications there are.
    #[must_use]
    pub fn events(&self) -> usize {
        self.frames.iter().filter(|frame| answer::is_event(frame)).count()
    }

    /// What is compared. The nth reply answers the nth of `ops`; there may be fewer of either.
    pub fn items<'o>(&self, mut ops: impl Iterator<Item = &'o Op>, ledger: &mut Ledger) -> Vec<Item> {
        let mut items = Vec::with_capacity(self.frames.len() + 1);
        let mut replies = 0;
        for frame in &self.frames {
            if answer::is_event(frame) {
                items.push(Item::Event(answer::event(frame, ledger)));
            } else {
                let fields: Vec<Field> =
                    ops.next().map_or_else(Vec::new, |op| answer::reply(op, frame, ledger));
                items.push(Item::Reply(replies, fields));
                replies += 1;
            }
        }
        items.extend(self.ended.map(Item::Ended));
        items
    }
}
