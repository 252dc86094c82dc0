//! A client of an ensemble: it knows all servers, and moves between them with its session.

use super::check::{Answered, Horizon, WatchKind, Watches};
use super::history::{History, LIFE_BITS, tag};
use super::roster::Wish;
use super::settings::{Manners, SUPER};
use super::visitor::Act;
use crate::check::Violation;
use crate::frames;
use crate::rng::Rng;
use std::collections::VecDeque;
use stoa_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, MultiHeader, OPEN_ACL, Opcode, PASSWORD_LEN, Reader,
    ReplyHeader, WatcherEvent, request::encode, xid,
};

/// Once in so many bursts a client of a server that only reads tries another one.
const LOOK_ONE_IN: u64 = 40;
/// How long a client waits for a server's answer to its handshake, microseconds.
const GREETING_US: u64 = 700_000;

/// Where sequential znodes go; it is never deleted.
const SEQUENCE: &str = "/sequence";

/// A program, and what it counts in.
pub(super) const PROGRAM: &str = "/em/counter";
pub(super) const COUNT: &str = "/count";
const SOURCE: &str = r#"
    on_operation("read", "/count-on");
    fn read(request) {
        if !local.exists("/count") { local.create("/count", 0); }
        let next = local.read("/count").data.to_int() + 1;
        local.update("/count", next);
        return next;
    }
"#;

/// A request under way.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) xid: i32,
    pub(super) what: What,
    /// The newest zxid that anybody had seen when it was sent, if its answer must not be older.
    pub(super) floor: i64,
    /// The number of the write.
    pub(super) write: u64,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Create {
        path: String,
        sequential: bool,
    },
    Set {
        path: String,
        version: i32,
    },
    Delete {
        path: String,
    },
    /// Sets two znodes, or none.
    SetBoth {
        paths: [String; 2],
    },
    Get {
        path: String,
        watch: bool,
    },
    Exists {
        path: String,
        watch: bool,
    },
    Children {
        path: String,
        watch: bool,
    },
    /// Changes the list of servers.
    Reconfig(Wish),
    Sync,
    SetWatches,
    /// Registers the program that counts.
    Register,
    /// Acknowledges it.
    Acknowledge,
    /// Has it count.
    Count,
    Close,
}

impl What {
    /// Whether it may need a session that all servers know.
    pub(super) fn needs_owner(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Register | Self::Acknowledge)
    }

    pub(super) fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Get { .. } | Self::Exists { .. } | Self::Children { .. } | Self::Sync | Self::SetWatches
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Away,
    /// The handshake has been sent, at this time.
    Greeting(u64),
    Live,
}

/// How far a client is with its last words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finale {
    /// It goes on with its life.
    No,
    Due,
    /// Its last write is under way, with this xid.
    LastWrite(i32),
    /// Its last reads are under way.
    LastReads,
    Closing,
    Done,
}

/// One client.
pub(super) struct Client {
    pub(super) index: usize,
    rng: Rng,
    manners: Manners,
    servers: usize,
    /// The only server that it goes to.
    only: Option<usize>,
    state: State,
    session: Option<(i64, [u8; PASSWORD_LEN])>,
    /// Whether a server that only reads will do, and whether it has one.
    takes_read_only: bool,
    only_reads: bool,
    /// What such a server has given it in place of a session.
    lent: Option<(i64, [u8; PASSWORD_LEN])>,
    timeout_us: u64,
    outstanding: VecDeque<Asked>,
    last_xid: i32,
    writes: u64,
    last_sent_us: u64,
    last_heard_us: u64,
    silent_until_us: u64,
    inbox: Vec<u8>,
    watches: Watches,
    /// Whether its session has acknowledged the program.
    acknowledged: bool,
    /// Whether it knows that all servers know its session.
    is_global: bool,
    /// What a sync on this connection has promised to those behind it.
    synced: i64,
    /// A session that it let go without a word: it must end.
    pub(super) left: Vec<i64>,
    finale: Finale,
    /// Its last write, if it is no other.
    last_wish: Option<Wish>,
    /// The version of the newest list of servers that it was told.
    list_version: i64,
    /// Requests that it has sent.
    pub(super) requests: u64,
    pub(super) counts: Counts,
}

/// What a client has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) answers: u64,
    pub(crate) events: u64,
    pub(crate) moves: u64,
    pub(crate) read_only: u64,
    /// Programs that have done something for it.
    pub(crate) calls: u64,
}

impl Client {
    /// A client that has never been connected.
    pub(super) fn new(index: usize, mut rng: Rng, manners: Manners, servers: usize) -> Self {
        let takes_read_only = manners.read_only_percent > 0 && rng.percent(manners.read_only_percent);
        Self {
            index,
            rng,
            manners,
            servers,
            only: None,
            state: State::Away,
            session: None,
            takes_read_only,
            only_reads: false,
            lent: None,
            timeout_us: 1_000_000,
            outstanding: VecDeque::new(),
            last_xid: 0,
            writes: 0,
            last_sent_us: 0,
            last_heard_us: 0,
            silent_until_us: 0,
            inbox: Vec::new(),
            watches: Watches::default(),
            acknowledged: false,
            is_global: false,
            synced: 0,
            left: Vec::new(),
            finale: Finale::No,
            last_wish: None,
            list_version: 1,
            requests: 0,
            counts: Counts::default(),
        }
    }

    /// One that only says its last words, and only to this server.
    pub(super) fn probe(index: usize, rng: Rng, manners: Manners, server: usize) -> Self {
        let mut client = Self::new(index, rng, manners, server + 1);
        client.only = Some(server);
        client.finale = Finale::Due;
        client
    }

    /// Its last write asks for another list of servers.
    pub(super) fn wish(&mut self, wish: Wish) {
        self.last_wish = Some(wish);
    }

    /// From now on it only finishes what it has begun, says its last words and leaves.
    pub(super) fn finish(&mut self) {
        if self.finale == Finale::No {
            self.finale = Finale::Due;
        }
    }

    /// Whether it has left.
    pub(super) fn is_done(&self) -> bool {
        self.finale == Finale::Done
    }

    /// What it waits for.
    pub(super) fn waits_for(&self) -> String {
        format!("{:?}, {:?}, outstanding {:?}", self.state, self.finale, self.outstanding)
    }

    /// The session that it has.
    pub(super) fn session(&self) -> Option<i64> {
        self.session.map(|(session, _)| session)
    }

    /// Time to do something; returns what, and after how many microseconds it wants to be asked again.
    pub(super) fn wake(&mut self, now_us: u64, horizon: &Horizon) -> (Vec<Act>, u64) {
        let finale = self.finale != Finale::No;
        if now_us < self.silent_until_us && !finale {
            return (Vec::new(), self.silent_until_us - now_us);
        }
        let acts = match self.state {
            State::Away if self.is_done() => Vec::new(),
            State::Away => self.connect(now_us),
            State::Greeting(since_us) if since_us + GREETING_US < now_us => self.leave(),
            State::Greeting(_) => Vec::new(),
            State::Live if now_us > self.last_heard_us + self.timeout_us * 2 / 3 => self.leave(),
            // It looks for a server that does more.
            State::Live if self.only_reads && (finale || self.rng.one_in(LOOK_ONE_IN)) => self.leave(),
            State::Live if finale => self.last_words(now_us, horizon),
            State::Live => self.live(now_us, horizon),
        };
        if acts.iter().any(|act| matches!(act, Act::Send(_))) {
            self.last_sent_us = now_us;
        }
        (acts, self.rng.around(self.manners.think_us).max(1))
    }

    fn leave(&mut self) -> Vec<Act> {
        self.gone();
        vec![Act::Drop]
    }

    fn connect(&mut self, now_us: u64) -> Vec<Act> {
        if self.finale == Finale::No && self.session.is_some() && self.rng.one_in(40) {
            // It begins anew, and its session must end by itself.
            self.let_go();
        }
        if self.lent.is_some() && self.rng.one_in(2) {
            self.lent = None;
        }
        let (session_id, password) = self.session.or(self.lent).unwrap_or_default();
        let server = self.only.unwrap_or_else(|| self.rng.index(self.servers));
        let timeout_ms = self.rng.range(self.manners.timeout_ms.0, self.manners.timeout_ms.1) as i32;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.watches.seen(),
            timeout_ms,
            session_id,
            password: &password,
            read_only: Some(self.takes_read_only),
        };
        let bytes = frames::frame(|out| request.encode(out));
        self.gone();
        self.state = State::Greeting(now_us);
        self.counts.moves += u64::from(self.session.is_some());
        vec![Act::Connect(server, bytes)]
    }

    fn let_go(&mut self) {
        self.left.extend(self.session.take().map(|(session, _)| session));
        (self.acknowledged, self.is_global) = (false, false);
        self.lent = None;
        self.watches = Watches::default();
    }

    fn live(&mut self, now_us: u64, horizon: &Horizon) -> Vec<Act> {
        let manners = self.manners;
        if self.outstanding.iter().any(|asked| asked.what == What::Close) {
            return self.burst(now_us, horizon);
        }
        if self.rng.one_in(manners.drop_one_in) {
            return self.leave();
        }
        if self.rng.one_in(manners.silent_one_in) {
            let for_us = self.rng.range(self.timeout_us / 2, self.timeout_us * 2);
            self.silent_until_us = now_us + for_us;
            return Vec::new();
        }
        if self.rng.one_in(manners.close_one_in) {
            let mut acts = self.burst(now_us, horizon);
            acts.push(self.send(What::Close, horizon));
            return acts;
        }
        let mut acts = self.burst(now_us, horizon);
        if self.rng.one_in(manners.move_one_in) {
            // The old connection stays open, with all that is under way on it.
            acts.extend(self.connect(now_us));
        }
        acts
    }

    fn burst(&mut self, now_us: u64, horizon: &Horizon) -> Vec<Act> {
        let mut acts = Vec::new();
        let room = self.manners.window.saturating_sub(self.outstanding.len());
        let closing = self.outstanding.iter().any(|asked| asked.what == What::Close);
        let count = if closing { 0 } else { self.rng.index(room + 1).min(self.rng.index(room + 1) + 1) };
        for _ in 0..count {
            let what = self.any();
            acts.push(self.send(what, horizon));
        }
        if acts.is_empty() && now_us > self.last_sent_us + self.timeout_us / 4 {
            acts.push(Act::Send(frame(xid::PING, Opcode::Ping, &[])));
        }
        acts
    }

    fn path(&mut self) -> String {
        format!("/n{}", self.rng.index(self.manners.names))
    }

    fn any(&mut self) -> What {
        let watch = self.rng.one_in(2);
        if self.requests < 2 {
            return What::Create { path: SEQUENCE.into(), sequential: false };
        }
        if !self.rng.percent(self.manners.writes_percent) {
            let path = self.path();
            return match self.rng.below(8) {
                0..=2 => What::Get { path, watch },
                3 | 4 => What::Exists { path, watch },
                5 => What::Children { path: SEQUENCE.into(), watch },
                6 => What::Children { path: "/".into(), watch },
                _ => What::Sync,
            };
        }
        let program_one_in = self.manners.program_one_in;
        if program_one_in > 0 && self.rng.one_in(program_one_in) {
            return match self.rng.below(8) {
                0 => What::Register,
                1 | 2 => What::Acknowledge,
                _ => What::Count,
            };
        }
        let path = self.path();
        let reconfig_one_in = self.manners.reconfig_one_in;
        if reconfig_one_in > 0 && self.rng.one_in(reconfig_one_in) {
            return What::Reconfig(Wish::any(&mut self.rng, self.servers, self.list_version));
        }
        match self.rng.below(10) {
            0..=2 => What::Create { path, sequential: false },
            3 | 4 => What::Create { path: format!("{SEQUENCE}/s-"), sequential: true },
            5 => What::Delete { path },
            6 => What::SetBoth { paths: [path, SEQUENCE.into()] },
            7 => What::Set { path, version: self.rng.below(4) as i32 },
            _ => What::Set { path, version: -1 },
        }
    }

    fn send(&mut self, what: What, horizon: &Horizon) -> Act {
        let is_write = what.is_write();
        self.writes += u64::from(is_write);
        let mut body = Vec::new();
        let opcode = self.encode(&what, &mut body);
        let xid = if what == What::SetWatches {
            xid::SET_WATCHES
        } else {
            self.last_xid += 1;
            self.last_xid
        };
        let floor = if is_write || what == What::Sync { horizon.zxid() } else { self.synced };
        if what == What::Sync && !self.only_reads {
            self.synced = floor;
        }
        self.requests += 1;
        self.outstanding.push_back(Asked { xid, what, floor, write: self.writes });
        Act::Send(frame(xid, opcode, &body))
    }

    fn encode(&mut self, what: &What, body: &mut Vec<u8>) -> Opcode {
        let data = tag(self.index, self.writes);
        match what {
            What::Create { path, sequential } => {
                let ephemeral = path != SEQUENCE && self.rng.one_in(2);
                let flags = i32::from(ephemeral) + if *sequential { 2 } else { 0 };
                encode::create(body, path, Some(&data), OPEN_ACL, flags, None);
                Opcode::Create2
            }
            What::Set { path, version } => {
                encode::set_data(body, path, Some(&data), *version);
                Opcode::SetData
            }
            What::Delete { path } => {
                encode::path_version(body, path, -1);
                Opcode::Delete
            }
            What::SetBoth { paths } => {
                for path in paths {
                    MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(body);
                    encode::set_data(body, path, Some(&data), -1);
                }
                MultiHeader::END.encode(body);
                Opcode::Multi
            }
            What::Get { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::GetData
            }
            What::Exists { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::Exists
            }
            What::Children { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::GetChildren2
            }
            What::Register => {
                encode::create(body, PROGRAM, Some(SOURCE.as_bytes()), OPEN_ACL, 0, None);
                Opcode::Create2
            }
            What::Acknowledge => {
                let path = format!("{PROGRAM}/a-");
                encode::create(body, &path, Some(b""), OPEN_ACL, 3, None);
                Opcode::Create2
            }
            What::Count => {
                encode::path_watch(body, "/count-on", false);
                Opcode::GetData
            }
            What::Reconfig(wish) => {
                wish.encode(body);
                Opcode::Reconfig
            }
            What::Sync => {
                encode::path(body, "/");
                Opcode::Sync
            }
            What::SetWatches => {
                let lists =
                    [WatchKind::Data, WatchKind::Exist, WatchKind::Child].map(|it| self.watches.paths(it));
                let lists: Vec<&[&str]> = lists.iter().map(Vec::as_slice).collect();
                encode::set_watches(body, self.watches.replied(), &lists);
                Opcode::SetWatches
            }
            What::Close => Opcode::CloseSession,
        }
    }

    /// Finishes what is under way, writes and reads once more, and closes its session.
    fn last_words(&mut self, now_us: u64, horizon: &Horizon) -> Vec<Act> {
        if !self.outstanding.is_empty() {
            let waiting_for_long = now_us > self.last_sent_us + self.timeout_us / 4;
            let ping = Act::Send(frame(xid::PING, Opcode::Ping, &[]));
            return if waiting_for_long { vec![ping] } else { Vec::new() };
        }
        match self.finale {
            Finale::Due => {
                let create = What::Create { path: format!("{SEQUENCE}/s-"), sequential: true };
                let act = self.send(self.last_wish.clone().map_or(create, What::Reconfig), horizon);
                self.finale = Finale::LastWrite(self.last_xid);
                vec![act]
            }
            Finale::LastReads => {
                self.finale = Finale::Closing;
                vec![self.send(What::Close, horizon)]
            }
            _ => Vec::new(),
        }
    }

    /// The connection is gone.
    pub(super) fn gone(&mut self) {
        let closing = self.outstanding.iter().any(|asked| asked.what == What::Close);
        if closing {
            // Whether it was closed is not known; either way it must end.
            self.let_go();
        }
        self.state = State::Away;
        self.only_reads = false;
        self.outstanding.clear();
        self.inbox.clear();
        self.watches.disconnected();
        self.synced = 0;
        self.finale = match self.finale {
            Finale::Closing => Finale::Done,
            Finale::LastWrite(_) | Finale::LastReads => Finale::Due,
            other => other,
        };
    }

    /// Bytes of the server. Returns what the client answers at once.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        history: &History,
        horizon: &mut Horizon,
        now_us: u64,
    ) -> Result<Vec<Act>, Violation> {
        self.last_heard_us = now_us;
        let mut acts = Vec::new();
        for frame in frames::whole(&mut self.inbox, bytes)? {
            match self.state {
                State::Greeting(_) => acts.extend(self.greeted(&frame, history, horizon)?),
                State::Live => acts.extend(self.answered(&frame, history, horizon)?),
                State::Away => {}
            }
        }
        Ok(acts)
    }

    fn wrong(&self, what: &str) -> Violation {
        let session = self.session().unwrap_or(0);
        Violation::new(format!("client {} (session {session:#x}): {what}", self.index))
    }

    fn greeted(
        &mut self,
        greeting: &[u8],
        history: &History,
        horizon: &Horizon,
    ) -> Result<Vec<Act>, Violation> {
        let response = ConnectResponse::decode(greeting)
            .map_err(|error| self.wrong(&format!("it cannot read its handshake: {error}")))?;
        if response.timeout_ms <= 0 {
            let Some(session) = self.session() else {
                if self.lent.take().is_some() {
                    return Ok(Vec::new());
                }
                return Err(self.wrong("a new session was refused as expired"));
            };
            // What its contact server alone keeps ends with that server, and nobody else knows it.
            let may_be_local = self.manners.local_sessions && !self.is_global;
            if may_be_local || self.servers == 1 || self.manners.reconfig_one_in > 0 {
                // A server that decides alone says so when the end is proposed: it must come, then. It must too if
                // the session was about to be known to all.
                self.left.push(session);
            } else if !history.is_closed(session) {
                return Err(self.wrong("it was told that its session has expired, and it has not"));
            }
            self.session = None;
            (self.acknowledged, self.is_global) = (false, false);
            self.watches = Watches::default();
            return Ok(Vec::new());
        }
        self.only_reads = response.read_only == Some(true);
        if self.only_reads && !self.takes_read_only {
            return Err(self.wrong("it was given a server that only reads"));
        }
        self.counts.read_only += u64::from(self.only_reads);
        let given = (response.session_id, response.password);
        if self.session.or(self.lent).is_some_and(|mine| mine != given) {
            return Err(self.wrong("it was given another session than its own"));
        }
        let is_lent = self.session.is_none() && self.only_reads;
        if is_lent != (response.session_id >> 56 == 0) {
            return Err(self.wrong("the id that it was given does not say whether that is a session"));
        }
        if is_lent {
            self.lent = Some(given);
        } else {
            if self.manners.local_sessions && self.session.is_none() {
                self.writes = ((self.writes >> LIFE_BITS) + 1) << LIFE_BITS;
            }
            (self.session, self.lent) = (Some(given), None);
        }
        self.timeout_us = response.timeout_ms as u64 * 1000;
        self.state = State::Live;
        let mut acts = Vec::new();
        if self.manners.reconfig_one_in > 0 || self.last_wish.is_some() {
            let mut body = Vec::new();
            encode::auth(&mut body, "digest", SUPER.as_bytes());
            acts.push(Act::Send(frame(xid::AUTH, Opcode::Auth, &body)));
        }
        if !self.watches.is_empty() {
            acts.push(self.send(What::SetWatches, horizon));
        }
        Ok(acts)
    }

    fn answered(
        &mut self,
        frame: &[u8],
        history: &History,
        horizon: &mut Horizon,
    ) -> Result<Option<Act>, Violation> {
        let mut reader = Reader::new(frame);
        let unreadable = |error| Violation::new(format!("a client cannot read a reply: {error}"));
        let header = ReplyHeader::decode(&mut reader).map_err(unreadable)?;
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader).map_err(unreadable)?;
            self.counts.events += 1;
            horizon.seen(header.zxid);
            let noted = self.watches.event(header.zxid, &event, history);
            return noted.map(|()| None).map_err(|violation| self.wrong(&violation.to_string()));
        }
        if header.xid == xid::AUTH {
            return if header.err == 0 { Ok(None) } else { Err(self.wrong("it is not who it is")) };
        }
        horizon.seen(header.zxid);
        let checked = self.watches.reply(header.zxid, history);
        checked.map_err(|violation| self.wrong(&violation.to_string()))?;
        if header.xid == xid::PING {
            return Ok(None);
        }
        let Some(asked) = self.outstanding.pop_front().filter(|asked| asked.xid == header.xid) else {
            return Err(self.wrong(&format!("it was answered what it did not ask next: {header:?}")));
        };
        self.counts.answers += 1;
        let body = reader.rest();
        let session = self.session().unwrap_or(0);
        let only_reads = self.only_reads;
        self.is_global |= history.is_global(session, header.zxid);
        let answered =
            Answered { client: self.index, session, only_reads, asked: &asked, header, body, history };
        answered.check(&mut self.watches).map_err(|violation| {
            self.wrong(&format!(
                "{:?} was answered zxid {} error {}: {violation}",
                asked, header.zxid, header.err
            ))
        })?;
        let is_not_there = header.err == ErrorCode::NoNode as i32;
        if asked.what == What::Count && is_not_there && self.acknowledged && !self.only_reads {
            return Err(self.wrong("the program that it has acknowledged does not count for it"));
        }
        self.acknowledged |=
            header.err == 0 && matches!(asked.what, What::Register | What::Acknowledge) && !self.only_reads;
        Ok(self.after_answer(&asked, header, horizon))
    }

    fn after_answer(&mut self, asked: &Asked, header: ReplyHeader, horizon: &Horizon) -> Option<Act> {
        if matches!(asked.what, What::Reconfig(_)) && header.err == 0 {
            self.list_version = header.zxid;
        }
        if asked.what == What::Close && header.err != 0 {
            // The log has no room, or the server only reads.
            if self.finale == Finale::Closing {
                self.finale = Finale::LastReads;
            }
            return None;
        }
        if asked.what == What::Close {
            // The answer is the end of the session; its connection ends by itself.
            (self.session, self.lent) = (None, None);
            (self.acknowledged, self.is_global) = (false, false);
            self.watches = Watches::default();
            return None;
        }
        if self.finale != Finale::LastWrite(header.xid) {
            return None;
        }
        if header.err != 0 {
            // Its znode may not be there yet, or the log has no room.
            self.finale = Finale::Due;
            if self.last_wish.is_some() {
                return None;
            }
            return Some(self.send(What::Create { path: SEQUENCE.into(), sequential: false }, horizon));
        }
        self.finale = Finale::LastReads;
        let sync = self.send(What::Sync, horizon);
        let Act::Send(mut bytes) = sync else { return None };
        if let Act::Send(read) = self.send(What::Children { path: SEQUENCE.into(), watch: false }, horizon) {
            bytes.extend(read);
        }
        Some(Act::Send(bytes))
    }
}

fn frame(xid: i32, opcode: Opcode, body: &[u8]) -> Vec<u8> {
    frames::request(xid, opcode as i32, |out| out.extend_from_slice(body))
}
