//! A client that remembers what it has seen, and writes it into what it writes.

pub(super) mod programs;

use std::collections::{BTreeMap, VecDeque};

use stoa_core::ConnectionId;
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, MultiResult, MultiResults, OPEN_ACL, Opcode, PASSWORD_LEN,
    Reader, ReplyHeader, RequestHeader, Stat, WatcherEvent, begin_frame, end_frame, next_frame,
    request::encode, xid,
};

use crate::check::Violation;
use crate::ensemble::roster::Wish;
use crate::ensemble::settings::SUPER;
use crate::rng::Rng;

const FRAME_BYTES_MAX: usize = 16 << 20;
const NO_NODE: i32 = -101;
/// Who asks for more before it is answered does not when it awaits so many answers.
const IMPATIENT_MAX: usize = 25;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

/// The newest version of each znode that somebody knows of.
pub(super) type Known = BTreeMap<usize, i32>;

/// What there is in the world: a plain znode and one of the group for each partition. All of the group are
/// only ever written together.
pub(super) struct Map {
    pub(super) tops: Vec<String>,
    /// Programs of the service work below the plain znodes.
    pub(super) has_programs: bool,
    /// Nobody waits for answers.
    pub(super) is_impatient: bool,
    /// A write may be refused for lack of room, and the next be carried out because there is some again.
    pub(super) skips_writes: bool,
}

impl Map {
    fn count(&self) -> usize {
        self.tops.len()
    }

    /// Paths below `count` are plain, those above it the group's, and above those the counters'.
    pub(super) fn path(&self, index: usize) -> String {
        let top = &self.tops[index % self.count()];
        match index / self.count() {
            0 => top.clone(),
            1 => format!("{top}/group"),
            _ => format!("{top}/counter"),
        }
    }

    fn counter(&self, top: usize) -> usize {
        2 * self.count() + top
    }

    fn index(&self, path: &str) -> Option<usize> {
        (0..2 * self.count()).find(|index| self.path(*index) == path)
    }

    fn is_group(&self, index: usize) -> bool {
        self.group().contains(&index)
    }

    pub(super) fn group(&self) -> std::ops::Range<usize> {
        self.count()..2 * self.count()
    }
}

/// A request under way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Get {
        index: usize,
        watch: bool,
    },
    /// A read behind a sync: not older than what anybody was told before.
    Synced {
        index: usize,
        floor: i32,
    },
    /// Whether it was sent when everything was there.
    Set {
        index: usize,
        is_founded: bool,
    },
    Group {
        is_founded: bool,
    },
    FailingGroup,
    Other,
    Watches,
    Reconfig,
    Close,
    Program(programs::Asked),
}

/// A client, wherever it is connected.
pub(super) struct Client {
    pub(super) at: Option<(u8, u8, ConnectionId)>,
    session: i64,
    password: [u8; PASSWORD_LEN],
    pub(super) is_live: bool,
    next_xid: i32,
    under_way: VecDeque<(i32, What)>,
    known: Known,
    /// Watches: the version that the client was shown when it set them. They outlive its connections.
    watched: BTreeMap<usize, i32>,
    /// The server has to be told of them: what comes next is a new connection's first request.
    tells_watches: bool,
    /// zxid of the last answer, as real clients remember it.
    last_zxid: i64,
    /// The newest version of each znode that was acknowledged to it.
    pub(super) acknowledged: Known,
    pub(super) answers: u64,
    /// What everybody writes to is there.
    pub(super) is_founded: bool,
    /// How many servers there are, if it now and then asks for another list of them; as long as it does.
    servers: Option<u8>,
    pub(super) wishes: bool,
    /// How often it was changed.
    pub(super) reconfigs: u64,
    programs: programs::Programs,
    rng: Rng,
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

fn request(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(out);
        body(out);
    })
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

impl Client {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            at: None,
            session: 0,
            password: [0; PASSWORD_LEN],
            is_live: false,
            next_xid: 1,
            under_way: VecDeque::new(),
            known: Known::new(),
            watched: BTreeMap::new(),
            tells_watches: false,
            last_zxid: 0,
            acknowledged: Known::new(),
            answers: 0,
            is_founded: false,
            servers: None,
            wishes: false,
            reconfigs: 0,
            programs: programs::Programs::default(),
            rng,
        }
    }

    /// One who asks for other lists of servers, besides.
    pub(super) fn operator(rng: Rng, servers: u8) -> Self {
        Self { servers: Some(servers), wishes: true, ..Self::new(rng) }
    }

    /// Asks for another list of servers.
    fn reshape(&mut self, servers: u8) -> Vec<u8> {
        let wish = Wish::any(&mut self.rng, servers.into(), -1);
        let mut bytes = request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", SUPER.as_bytes()));
        bytes.extend(self.ask(What::Reconfig, Opcode::Reconfig, |out| wish.encode(out)));
        bytes
    }

    /// It is connected to this thread of this server from now on; returns what it says first.
    pub(super) fn connected(&mut self, at: (u8, u8, ConnectionId)) -> Vec<u8> {
        self.at = Some(at);
        self.tells_watches = false;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            timeout_ms: 2000,
            session_id: self.session,
            password: &self.password,
            read_only: Some(false),
        };
        frame(|out| request.encode(out))
    }

    /// Its connection has ended: what was under way may have happened or not.
    pub(super) fn lost(&mut self) {
        self.at = None;
        self.is_live = false;
        self.leave_programs();
        self.under_way.clear();
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
    pub(super) fn watches(&mut self, map: &Map) -> Vec<u8> {
        if !std::mem::take(&mut self.tells_watches) || self.watched.is_empty() {
            return Vec::new();
        }
        let watched: Vec<_> = self.watched.keys().copied().collect();
        let paths: Vec<_> = watched.iter().map(|index| map.path(*index)).collect();
        let data: Vec<_> = paths.iter().map(String::as_str).collect();
        let since = self.last_zxid;
        let later = std::mem::take(&mut self.under_way);
        self.under_way.push_back((xid::SET_WATCHES, What::Watches));
        let mut bytes = request(xid::SET_WATCHES, Opcode::SetWatches, |out| {
            encode::set_watches(out, since, &[&data, &[], &[]]);
        });
        for (index, path) in watched.into_iter().zip(&data) {
            bytes.extend(self.ask(What::Get { index, watch: false }, Opcode::GetData, |out| {
                encode::path_watch(out, path, false);
            }));
        }
        self.under_way.extend(later);
        bytes
    }

    pub(super) fn watches_something(&self) -> bool {
        !self.watched.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether it asks for something now, if it is its turn.
    pub(super) fn may_act(&self, map: &Map) -> bool {
        self.is_idle() || (map.is_impatient && self.is_founded && self.under_way.len() < IMPATIENT_MAX)
    }

    /// Makes what everything else is written to.
    pub(super) fn found(&mut self, map: &Map) -> Vec<u8> {
        let mut bytes = Vec::new();
        for index in 0..2 * map.count() {
            bytes.extend(self.ask(What::Other, Opcode::Create, |out| {
                encode::create(out, &map.path(index), None, OPEN_ACL, 0, None);
            }));
        }
        if map.has_programs {
            bytes.extend(self.found_programs(map));
        }
        bytes
    }

    /// A write to every plain znode, and one to the group.
    pub(super) fn last_words(&mut self, map: &Map) -> Vec<u8> {
        let mut bytes = self.group(map, false);
        for index in 0..map.count() {
            bytes.extend(self.set(map, index));
        }
        bytes
    }

    fn ask(&mut self, what: What, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.under_way.push_back((xid, what));
        request(xid, opcode, body)
    }

    /// What it knows will be there before whatever it writes next: its own writes that are under way too.
    fn before_next(&self, map: &Map) -> Known {
        let mut known = self.known.clone();
        if map.skips_writes {
            return known;
        }
        let mut once_more = |index| *known.entry(index).or_insert(0) += 1;
        for (_, what) in &self.under_way {
            match what {
                What::Set { index, is_founded: true } => once_more(*index),
                What::Group { is_founded: true } => map.group().for_each(&mut once_more),
                _ => {}
            }
        }
        known
    }

    fn set(&mut self, map: &Map, index: usize) -> Vec<u8> {
        let data = remember(&self.before_next(map));
        let is_founded = self.is_founded;
        self.ask(What::Set { index, is_founded }, Opcode::SetData, |out| {
            encode::set_data(out, &map.path(index), Some(&data), -1);
        })
    }

    fn group(&mut self, map: &Map, fails: bool) -> Vec<u8> {
        let data = remember(&self.before_next(map));
        let is_founded = self.is_founded;
        let what = if fails { What::FailingGroup } else { What::Group { is_founded } };
        self.ask(what, Opcode::Multi, |out| {
            for index in map.group() {
                MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
                encode::set_data(out, &map.path(index), Some(&data), -1);
            }
            if fails {
                MultiHeader { opcode: Opcode::Check as i32, done: false, err: -1 }.encode(out);
                encode::path_version(out, &map.path(0), i32::MAX);
            }
            MultiHeader::END.encode(out);
        })
    }

    fn get(&mut self, map: &Map, index: usize, watch: bool) -> Vec<u8> {
        self.ask(What::Get { index, watch }, Opcode::GetData, |out| {
            encode::path_watch(out, &map.path(index), watch);
        })
    }

    /// A burst of requests, sent one right after the other.
    pub(super) fn act(&mut self, map: &Map, number: u64, newest: &Known) -> Vec<u8> {
        if let Some(servers) = self.servers.filter(|_| self.wishes)
            && self.rng.one_in(3)
        {
            return self.reshape(servers);
        }
        if map.has_programs && self.is_founded && self.rng.percent(40) {
            return self.have_programs_work(map, newest);
        }
        let mut bytes = Vec::new();
        let (kinds, sets_max) = if map.is_impatient { ([20, 65, 15], 20) } else { ([60, 20, 20], 9) };
        match self.rng.weighted(&kinds) {
            1 => {
                for _ in 0..self.rng.range(2, sets_max) {
                    let index = self.rng.index(map.count());
                    bytes.extend(self.set(map, index));
                }
                return bytes;
            }
            2 => {
                for _ in 0..self.rng.range(2, 9) {
                    let index = self.rng.index(2 * map.count());
                    bytes.extend(self.get(map, index, false));
                }
                return bytes;
            }
            _ => {}
        }
        for _ in 0..self.rng.range(1, 6) {
            let index = self.rng.index(2 * map.count());
            bytes.extend(match self.rng.weighted(&[40, 25, 12, 4, 8, 6, 4, 1, 6]) {
                0 => {
                    let watch = self.rng.percent(40);
                    self.get(map, index, watch)
                }
                1 => self.set(map, index % map.count()),
                2 => self.group(map, false),
                3 => self.group(map, true),
                4 => {
                    let top = self.rng.percent(50);
                    let prefix =
                        if top { "/e-".to_owned() } else { format!("{}/e-", map.path(index % map.count())) };
                    self.ask(What::Other, Opcode::Create, |out| {
                        encode::create(out, &prefix, None, OPEN_ACL, EPHEMERAL | SEQUENTIAL, None);
                    })
                }
                5 => {
                    let path = format!("/t-{}", number % 7);
                    self.ask(What::Other, Opcode::Create, |out| {
                        encode::create(out, &path, None, OPEN_ACL, 0, None);
                    })
                }
                6 => {
                    let path = format!("/t-{}", number % 5);
                    self.ask(What::Other, Opcode::Delete, |out| encode::path_version(out, &path, -1))
                }
                8 => {
                    let path = map.path(index);
                    let mut both = self.ask(What::Other, Opcode::Sync, |out| encode::path(out, &path));
                    let floor = newest.get(&index).copied().unwrap_or(0);
                    both.extend(self.ask(What::Synced { index, floor }, Opcode::GetData, |out| {
                        encode::path_watch(out, &path, false);
                    }));
                    both
                }
                _ => {
                    bytes.extend(self.ask(What::Close, Opcode::CloseSession, |_| {}));
                    break;
                }
            });
        }
        bytes
    }

    /// Bytes of the server: whole frames.
    pub(super) fn receive(&mut self, map: &Map, bytes: &[u8]) -> Result<(), Violation> {
        let mut rest = bytes;
        while let Ok(Some((frame, tail))) = next_frame(rest, FRAME_BYTES_MAX) {
            rest = tail;
            if self.is_live {
                self.take(map, frame)?;
            } else {
                let broken = |_| Violation::new("the answer to a handshake is none");
                let response = ConnectResponse::decode(frame).map_err(broken)?;
                if response.session_id == 0 {
                    self.start_over();
                } else {
                    (self.session, self.password) = (response.session_id, response.password);
                    (self.is_live, self.tells_watches) = (true, true);
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(Violation::new("a frame is cut")) }
    }

    fn take(&mut self, map: &Map, frame: &[u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(frame);
        let broken = |_| Violation::new("a reply cannot be read");
        let header = ReplyHeader::decode(&mut reader).map_err(broken)?;
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader).map_err(broken)?;
            if let Some(index) = map.index(event.path) {
                self.watched.remove(&index);
            }
            return self.told_of(map, event.path);
        }
        if header.xid == xid::AUTH {
            // It waits for nothing, as in ZooKeeper.
            return Ok(());
        }
        let Some((xid, what)) = self.under_way.pop_front() else {
            return Err(Violation::new(format!("an answer to nothing: xid {}", header.xid)));
        };
        if xid != header.xid {
            return Err(Violation::new(format!("the answer to {} comes before that to {xid}", header.xid)));
        }
        self.answers += 1;
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        match (what, header.err) {
            (What::Program(asked), err) => return self.programs_answered(map, asked, err, &mut reader),
            (What::Get { index, watch }, 0) => {
                let data = reader.buffer().map_err(broken)?.unwrap_or_default();
                let known = recall(data);
                let version = Stat::decode(&mut reader).map_err(broken)?.version;
                self.seen(map, index, version, "read")?;
                for (index, version) in known {
                    self.learn(index, version)?;
                }
                if watch {
                    self.watched.insert(index, version);
                }
            }
            (What::Synced { index, floor }, 0) => {
                let known = recall(reader.buffer().map_err(broken)?.unwrap_or_default());
                let version = Stat::decode(&mut reader).map_err(broken)?.version;
                if version < floor {
                    return Err(Violation::new(format!(
                        "a read of {} behind a sync is of version {version}, after {floor} was acknowledged",
                        map.path(index)
                    )));
                }
                self.seen(map, index, version, "read")?;
                known.into_iter().try_for_each(|(index, version)| self.learn(index, version))?;
            }
            (What::Set { index, .. }, 0) => {
                let version = Stat::decode(&mut reader).map_err(broken)?.version;
                self.acknowledge(index, version);
                self.seen(map, index, version, "written")?;
            }
            // Nobody deletes it.
            (What::Set { index, is_founded: true }, NO_NODE) => {
                let path = map.path(index);
                return Err(Violation::new(format!(
                    "a write of {path} was answered as if that were not there"
                )));
            }
            (What::Group { is_founded: true }, NO_NODE) => {
                return Err(Violation::new("a write of the group was answered as if that were not there"));
            }
            (What::Group { .. }, 0) => {
                let results = MultiResults::decode(&mut reader).map_err(broken)?;
                for (index, result) in map.group().zip(results) {
                    if let MultiResult::DataSet { stat } = result {
                        self.acknowledge(index, stat.version);
                        self.seen(map, index, stat.version, "written")?;
                    }
                }
            }
            (What::FailingGroup, 0) => {
                let results = MultiResults::decode(&mut reader).map_err(broken)?;
                if results.iter().any(|result| matches!(result, MultiResult::DataSet { .. })) {
                    return Err(Violation::new("a multi that must fail did not"));
                }
            }
            (What::Close, 0) => self.start_over(),
            (What::Reconfig, 0) => self.reconfigs += 1,
            _ => {}
        }
        Ok(())
    }

    fn acknowledge(&mut self, index: usize, version: i32) {
        let newest = self.acknowledged.entry(index).or_insert(version);
        *newest = version.max(*newest);
    }

    /// The client is shown a version of a znode.
    fn seen(&mut self, map: &Map, index: usize, version: i32, how: &str) -> Result<(), Violation> {
        let known = self.known.get(&index).copied().unwrap_or(0);
        if version < known {
            return Err(Violation::new(format!(
                "version {version} of {} was {how} by session {:#x}, which knows of version {known}",
                map.path(index),
                self.session
            )));
        }
        if map.is_group(index) {
            for member in map.group() {
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
