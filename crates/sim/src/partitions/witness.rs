//! A client that remembers what it has seen, and writes it into what it writes.

pub(super) mod programs;

use super::board::{Board, Known};
use crate::check::Violation;
use crate::ensemble::roster::Wish;
use crate::ensemble::settings::SUPER;
use crate::ensemble::{Act, Counts, Judges, Visitor};
use crate::frames::{frame, request, whole};
use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, MultiResult, MultiResults, OPEN_ACL, Opcode, PASSWORD_LEN,
    Reader, ReplyHeader, Stat, WatcherEvent, request::encode, xid,
};

const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
/// Who asks for more before it is answered does not when it awaits so many answers.
const IMPATIENT_MAX: usize = 25;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;
/// Mean time between two bursts, and how long a client waits for a server's answer to its handshake, microseconds.
const THINK_US: u64 = 12_000;
const GREETING_US: u64 = 400_000;
/// Who watches something hangs up once in so many times that it is told something.
const HANG_UP_ONE_IN: u64 = 2;
/// Once in so many bursts somebody comes to another server while its old connection is still open.
const MOVE_ONE_IN: u64 = 60;
/// Who waits for answers looks for another server once in so many bursts; perhaps that serves it.
const LEAVE_ONE_IN: u64 = 40;

/// A request under way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Errand {
    Get {
        index: usize,
        watch: bool,
    },
    /// A read behind a sync: not older than what anybody was told before.
    Synced {
        index: usize,
        floor: i32,
    },
    Set {
        index: usize,
    },
    Group,
    FailingGroup,
    /// One of those that make what everybody writes to.
    Found,
    Other,
    Watches,
    Reconfig,
    Close,
    Program(programs::Job),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Away,
    /// The handshake has been sent, at this time.
    Greeting(u64),
    Live,
}

/// How far a client is with its last words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewell {
    /// It goes on with its life.
    No,
    Due,
    /// Its last requests are under way.
    Said,
    Closing,
    Done,
}

/// A client, wherever it is connected.
pub(super) struct Witness {
    index: usize,
    board: Rc<Board>,
    servers: usize,
    place: Place,
    /// What has come of a frame that is not whole.
    inbox: Vec<u8>,
    session: i64,
    password: [u8; PASSWORD_LEN],
    next_xid: i32,
    under_way: VecDeque<(i32, Errand)>,
    known: Known,
    /// Watches: the version that the client was shown when it set them. They outlive its connections.
    watched: BTreeMap<usize, i32>,
    /// The server has to be told of them: what comes next is a new connection's first request.
    tells_watches: bool,
    /// zxid of the last answer, as real clients remember it.
    last_zxid: i64,
    /// Something of what it has tried to make in the beginning was refused.
    has_failed: bool,
    /// It asks for other lists of servers now and then.
    is_operator: bool,
    farewell: Farewell,
    requests: u64,
    counts: Counts,
    programs: programs::Programs,
    rng: Rng,
}

fn remember(known: &Known) -> Vec<u8> {
    known
        .iter()
        .flat_map(|(index, version)| [*index as u32, *version as u32])
        .flat_map(u32::to_le_bytes)
        .collect()
}

fn recall(data: &[u8]) -> Known {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    data.chunks_exact(8).map(|pair| (number(&pair[..4]) as usize, number(&pair[4..]) as i32)).collect()
}

impl Witness {
    /// One who has never been connected; an operator asks for other lists of servers, besides.
    pub(super) fn new(index: usize, rng: Rng, servers: usize, is_operator: bool, board: &Rc<Board>) -> Self {
        Self {
            index,
            board: Rc::clone(board),
            servers,
            place: Place::Away,
            inbox: Vec::new(),
            session: 0,
            password: [0; PASSWORD_LEN],
            next_xid: 1,
            under_way: VecDeque::new(),
            known: Known::new(),
            watched: BTreeMap::new(),
            tells_watches: false,
            last_zxid: 0,
            has_failed: false,
            is_operator,
            farewell: Farewell::No,
            requests: 0,
            counts: Counts::default(),
            programs: programs::Programs::default(),
            rng,
        }
    }

    /// Asks for another list of servers.
    fn reshape(&mut self) -> Vec<u8> {
        let wish = Wish::any(&mut self.rng, self.servers, -1);
        let mut bytes =
            request(xid::AUTH, Opcode::Auth as i32, |out| encode::auth(out, "digest", SUPER.as_bytes()));
        bytes.extend(self.ask(Errand::Reconfig, Opcode::Reconfig, |out| wish.encode(out)));
        bytes
    }

    fn connect(&mut self, now_us: u64) -> Vec<Act> {
        self.lose();
        (self.place, self.tells_watches) = (Place::Greeting(now_us), false);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            timeout_ms: 2000,
            session_id: self.session,
            password: &self.password,
            read_only: Some(false),
        };
        self.counts.moves += u64::from(self.session != 0);
        vec![Act::Connect(self.rng.index(self.servers), frame(|out| request.encode(out)))]
    }

    fn leave(&mut self) -> Vec<Act> {
        self.lose();
        vec![Act::Drop]
    }

    /// Its connection has ended: what was under way may have happened or not.
    fn lose(&mut self) {
        self.place = Place::Away;
        self.inbox.clear();
        self.leave_programs();
        self.under_way.clear();
        self.farewell = match self.farewell {
            Farewell::Said => Farewell::Due,
            Farewell::Closing => Farewell::Done,
            other => other,
        };
    }

    /// What it does when it is connected and served.
    fn live(&mut self, now_us: u64) -> Vec<Act> {
        let board = Rc::clone(&self.board);
        if self.farewell != Farewell::No && board.is_founded.get() {
            return self.say_farewell();
        }
        if !board.is_founded.get() {
            let founds = self.index == 0 && self.is_idle();
            return if founds { self.say(Self::found) } else { self.wait() };
        }
        let most = if board.is_impatient { IMPATIENT_MAX } else { 1 };
        if self.under_way.len() >= most {
            return self.wait();
        }
        let mut acts = self.say(Self::act);
        if self.rng.one_in(MOVE_ONE_IN) {
            acts.extend(self.connect(now_us));
        }
        acts
    }

    /// Perhaps somebody else serves it.
    fn wait(&mut self) -> Vec<Act> {
        if self.rng.one_in(LEAVE_ONE_IN) { self.leave() } else { Vec::new() }
    }

    fn say(&mut self, what: impl FnOnce(&mut Self) -> Vec<u8>) -> Vec<Act> {
        let bytes = what(self);
        vec![Act::Send([self.watches(), bytes].concat())]
    }

    /// It writes everything once more, and closes its session.
    fn say_farewell(&mut self) -> Vec<Act> {
        match self.farewell {
            _ if !self.is_idle() => self.wait(),
            Farewell::Said => {
                self.farewell = Farewell::Closing;
                self.say(|it| it.ask(Errand::Close, Opcode::CloseSession, |_| {}))
            }
            Farewell::Due => {
                self.farewell = Farewell::Said;
                self.say(Self::last_words)
            }
            _ => Vec::new(),
        }
    }

    /// Begins anew, with what it knows or without; watches end with the session.
    fn start_over(&mut self) {
        self.session = 0;
        self.password = [0; PASSWORD_LEN];
        self.watched.clear();
        self.forget_programs();
        if self.rng.percent(50) {
            self.known.clear();
            self.last_zxid = 0;
        }
    }

    /// What stands before the first request of a new connection: the watches that it had, and a look at what
    /// they are for, which shows at once what it should have been told.
    fn watches(&mut self) -> Vec<u8> {
        if !std::mem::take(&mut self.tells_watches) || self.watched.is_empty() {
            return Vec::new();
        }
        let watched: Vec<_> = self.watched.keys().copied().collect();
        let paths: Vec<_> = watched.iter().map(|index| self.board.path(*index)).collect();
        let data: Vec<_> = paths.iter().map(String::as_str).collect();
        let since = self.last_zxid;
        let later = std::mem::take(&mut self.under_way);
        self.under_way.push_back((xid::SET_WATCHES, Errand::Watches));
        let mut bytes = request(xid::SET_WATCHES, Opcode::SetWatches as i32, |out| {
            encode::set_watches(out, since, &[&data, &[], &[]]);
        });
        for (index, path) in watched.into_iter().zip(&data) {
            bytes.extend(self.ask(Errand::Get { index, watch: false }, Opcode::GetData, |out| {
                encode::path_watch(out, path, false);
            }));
        }
        self.under_way.extend(later);
        bytes
    }

    fn watches_something(&self) -> bool {
        !self.watched.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Makes what everything else is written to.
    fn found(&mut self) -> Vec<u8> {
        let board = Rc::clone(&self.board);
        self.has_failed = false;
        let mut bytes = Vec::new();
        for index in 0..2 * board.count() {
            bytes.extend(self.ask(Errand::Found, Opcode::Create, |out| {
                encode::create(out, &board.path(index), None, OPEN_ACL, 0, None);
            }));
        }
        if board.has_programs {
            bytes.extend(self.found_programs());
        }
        bytes
    }

    /// A write to every plain znode, and one to the group.
    fn last_words(&mut self) -> Vec<u8> {
        let mut bytes = self.group(false);
        for index in 0..self.board.count() {
            bytes.extend(self.set(index));
        }
        bytes
    }

    fn ask(&mut self, errand: Errand, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.requests += 1;
        self.under_way.push_back((xid, errand));
        request(xid, opcode as i32, body)
    }

    /// What it knows will be there before whatever it writes next: its own writes that are under way too.
    fn before_next(&self) -> Known {
        let mut known = self.known.clone();
        if self.board.skips_writes {
            return known;
        }
        let mut once_more = |index| *known.entry(index).or_insert(0) += 1;
        for (_, errand) in &self.under_way {
            match errand {
                Errand::Set { index } => once_more(*index),
                Errand::Group => self.board.group().for_each(&mut once_more),
                _ => {}
            }
        }
        known
    }

    fn set(&mut self, index: usize) -> Vec<u8> {
        let (data, path) = (remember(&self.before_next()), self.board.path(index));
        self.ask(Errand::Set { index }, Opcode::SetData, |out| {
            encode::set_data(out, &path, Some(&data), -1);
        })
    }

    fn group(&mut self, fails: bool) -> Vec<u8> {
        let (data, board) = (remember(&self.before_next()), Rc::clone(&self.board));
        let errand = if fails { Errand::FailingGroup } else { Errand::Group };
        self.ask(errand, Opcode::Multi, |out| {
            for index in board.group() {
                MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
                encode::set_data(out, &board.path(index), Some(&data), -1);
            }
            if fails {
                MultiHeader { opcode: Opcode::Check as i32, done: false, err: -1 }.encode(out);
                encode::path_version(out, &board.path(0), i32::MAX);
            }
            MultiHeader::END.encode(out);
        })
    }

    fn get(&mut self, index: usize, watch: bool) -> Vec<u8> {
        let path = self.board.path(index);
        self.ask(Errand::Get { index, watch }, Opcode::GetData, |out| {
            encode::path_watch(out, &path, watch);
        })
    }

    fn create(&mut self, errand: Errand, path: &str, data: Option<&[u8]>, flags: i32) -> Vec<u8> {
        self.ask(errand, Opcode::Create, |out| encode::create(out, path, data, OPEN_ACL, flags, None))
    }

    /// A sync, and a read behind it.
    fn sync(&mut self, index: usize) -> Vec<u8> {
        let (path, floor) = (self.board.path(index), self.board.floor(index));
        let mut both = self.ask(Errand::Other, Opcode::Sync, |out| encode::path(out, &path));
        both.extend(self.ask(Errand::Synced { index, floor }, Opcode::GetData, |out| {
            encode::path_watch(out, &path, false);
        }));
        both
    }

    /// A burst of requests, sent one right after the other.
    fn act(&mut self) -> Vec<u8> {
        if self.is_operator && self.rng.one_in(3) {
            return self.reshape();
        }
        if self.board.has_programs && self.rng.percent(40) {
            return self.have_programs_work();
        }
        let count = self.board.count();
        let (kinds, sets_max) = if self.board.is_impatient { ([20, 65, 15], 20) } else { ([60, 20, 20], 9) };
        let mut bytes = Vec::new();
        match self.rng.weighted(&kinds) {
            1 => {
                for _ in 0..self.rng.range(2, sets_max) {
                    let index = self.rng.index(count);
                    bytes.extend(self.set(index));
                }
            }
            2 => {
                for _ in 0..self.rng.range(2, 9) {
                    let index = self.rng.index(2 * count);
                    bytes.extend(self.get(index, false));
                }
            }
            _ => {
                for _ in 0..self.rng.range(1, 6) {
                    if self.under_way.back().is_none_or(|(_, errand)| *errand != Errand::Close) {
                        bytes.extend(self.any());
                    }
                }
            }
        }
        bytes
    }

    /// One request, or two that belong together.
    fn any(&mut self) -> Vec<u8> {
        let count = self.board.count();
        let index = self.rng.index(2 * count);
        let top = self.board.path(index % count);
        match self.rng.weighted(&[40, 25, 12, 4, 8, 6, 4, 1, 6]) {
            0 => {
                let watch = self.rng.percent(40);
                self.get(index, watch)
            }
            1 => self.set(index % count),
            2 => self.group(false),
            3 => self.group(true),
            4 => {
                let prefix = if self.rng.percent(50) { "/e-".to_owned() } else { format!("{top}/e-") };
                self.create(Errand::Other, &prefix, None, EPHEMERAL | SEQUENTIAL)
            }
            5 => {
                let path = format!("/t-{}", self.rng.below(7));
                self.create(Errand::Other, &path, None, 0)
            }
            6 => {
                let path = format!("/t-{}", self.rng.below(5));
                self.ask(Errand::Other, Opcode::Delete, |out| encode::path_version(out, &path, -1))
            }
            8 => self.sync(index),
            _ => self.ask(Errand::Close, Opcode::CloseSession, |_| {}),
        }
    }

    /// Bytes of the server.
    fn hear(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        for frame in whole(&mut self.inbox, bytes)? {
            if self.place == Place::Live {
                self.take(&frame)?;
                continue;
            }
            let broken = |_| Violation::new("the answer to a handshake is none");
            let response = ConnectResponse::decode(&frame).map_err(broken)?;
            if response.session_id == 0 {
                self.start_over();
            } else {
                (self.session, self.password) = (response.session_id, response.password);
                (self.place, self.tells_watches) = (Place::Live, true);
            }
        }
        Ok(())
    }

    fn take(&mut self, frame: &[u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(frame);
        let broken = |_| Violation::new("a reply cannot be read");
        let header = ReplyHeader::decode(&mut reader).map_err(broken)?;
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader).map_err(broken)?;
            self.counts.events += 1;
            if let Some(index) = self.board.index(event.path) {
                self.watched.remove(&index);
            }
            return self.told_of(event.path);
        }
        if header.xid == xid::AUTH {
            // It waits for nothing, as in ZooKeeper.
            return Ok(());
        }
        let Some((xid, errand)) = self.under_way.pop_front() else {
            return Err(Violation::new(format!("an answer to nothing: xid {}", header.xid)));
        };
        if xid != header.xid {
            return Err(Violation::new(format!("the answer to {} comes before that to {xid}", header.xid)));
        }
        self.counts.answers += 1;
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        match errand {
            Errand::Program(job) => self.programs_answered(job, header.err, &mut reader),
            Errand::Found => {
                self.has_failed |= ![0, NODE_EXISTS].contains(&header.err);
                if self.is_idle() && !self.has_failed {
                    self.board.is_founded.set(true);
                }
                Ok(())
            }
            // Nobody deletes it.
            Errand::Set { .. } | Errand::Group if header.err == NO_NODE => {
                Err(Violation::new(format!("{errand:?} was answered as if what it writes were not there")))
            }
            errand if header.err == 0 => self.done(&errand, &mut reader),
            _ => Ok(()),
        }
    }

    /// What it has asked for was done.
    fn done(&mut self, errand: &Errand, reader: &mut Reader<'_>) -> Result<(), Violation> {
        let broken = |_| Violation::new("a reply cannot be read");
        match *errand {
            Errand::Get { index, .. } | Errand::Synced { index, .. } => {
                let known = recall(reader.buffer().map_err(broken)?.unwrap_or_default());
                let version = Stat::decode(reader).map_err(broken)?.version;
                if let Errand::Synced { floor, .. } = *errand
                    && version < floor
                {
                    return Err(Violation::new(format!(
                        "a read of {} behind a sync is of version {version}, after {floor} was acknowledged",
                        self.board.path(index)
                    )));
                }
                self.seen(index, version, "read")?;
                known.into_iter().try_for_each(|(index, version)| self.learn(index, version))?;
                if matches!(errand, Errand::Get { watch: true, .. }) {
                    self.watched.insert(index, version);
                }
            }
            Errand::Set { index } => {
                let version = Stat::decode(reader).map_err(broken)?.version;
                self.board.acknowledge(index, version);
                self.seen(index, version, "written")?;
            }
            Errand::Group => {
                let results = MultiResults::decode(reader).map_err(broken)?;
                for (index, result) in self.board.group().zip(results) {
                    if let MultiResult::DataSet { stat } = result {
                        self.board.acknowledge(index, stat.version);
                        self.seen(index, stat.version, "written")?;
                    }
                }
            }
            Errand::FailingGroup => {
                let results = MultiResults::decode(reader).map_err(broken)?;
                if results.iter().any(|result| matches!(result, MultiResult::DataSet { .. })) {
                    return Err(Violation::new("a multi that must fail did not"));
                }
            }
            Errand::Close => self.start_over(),
            _ => {}
        }
        Ok(())
    }

    /// The client is shown a version of a znode.
    fn seen(&mut self, index: usize, version: i32, how: &str) -> Result<(), Violation> {
        let known = self.known.get(&index).copied().unwrap_or(0);
        if version < known {
            return Err(Violation::new(format!(
                "version {version} of {} was {how} by session {:#x}, which knows of version {known}",
                self.board.path(index),
                self.session
            )));
        }
        if self.board.is_group(index) {
            for member in self.board.group() {
                self.learn(member, version)?;
            }
        }
        self.learn(index, version)
    }

    /// The client knows that a version of a znode exists, so an event must have told it if it watches.
    fn learn(&mut self, index: usize, version: i32) -> Result<(), Violation> {
        if let Some(watched) = self.watched.get(&index).filter(|watched| **watched < version) {
            return Err(Violation::new(format!(
                "session {:#x} watches znode {index} at version {watched}, and was shown what follows \
                 version {version} before any event",
                self.session
            )));
        }
        let known = self.known.entry(index).or_insert(version);
        *known = version.max(*known);
        Ok(())
    }
}

impl Visitor for Witness {
    fn wake(&mut self, _: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation> {
        let acts = match self.place {
            Place::Away if self.farewell == Farewell::Done => Vec::new(),
            Place::Away => self.connect(now_us),
            Place::Greeting(since_us) if since_us + GREETING_US < now_us => self.leave(),
            Place::Greeting(_) => Vec::new(),
            Place::Live => self.live(now_us),
        };
        Ok((acts, self.rng.around(THINK_US).max(1)))
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Judges, _: u64) -> Result<Vec<Act>, Violation> {
        self.hear(bytes)?;
        if self.farewell == Farewell::Closing && self.is_idle() {
            self.farewell = Farewell::Done;
            return Ok(self.leave());
        }
        // Most of all when it has just been told something, and may not know of all that it watches.
        let leaves =
            self.farewell == Farewell::No && self.watches_something() && self.rng.one_in(HANG_UP_ONE_IN);
        Ok(if leaves { self.leave() } else { Vec::new() })
    }

    fn gone(&mut self) {
        self.lose();
    }

    fn finish(&mut self) {
        if self.farewell == Farewell::No {
            self.farewell = Farewell::Due;
        }
    }

    fn is_done(&self) -> bool {
        self.farewell == Farewell::Done
    }

    fn waits_for(&self) -> String {
        let Self { index, place, farewell, under_way, .. } = self;
        format!("client {index}: {place:?}, {farewell:?}, under way {under_way:?}")
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn counts(&self) -> Counts {
        Counts { calls: self.programs.calls, ..self.counts }
    }
}
