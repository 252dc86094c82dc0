//! Requests, drawn at random over a tree small enough that they meet.

use crate::ensemble::{Caller, Judges, Manners, USERS, Workload};
use crate::rng::Rng;
use std::sync::LazyLock;
use stoa_check::Checked;
use stoa_wire::{
    Acl, ErrorCode, MultiHeader, OPEN_ACL, Opcode, READ_ACL, Reader, ReplyHeader, WatcherEvent, perms, put,
    request::encode,
};

/// A request without its header.
#[derive(Debug, Clone)]
struct Ask {
    /// What it asks for.
    opcode: i32,
    /// Its record.
    body: Vec<u8>,
}

impl Ask {
    fn new(opcode: Opcode, body: Vec<u8>) -> Self {
        Self { opcode: opcode as i32, body }
    }
}

const REMEMBERED: usize = 24;

/// Who may do everything: `user:password`.
pub(super) const SUPER_USER: &str = "super:test";

const BUILT_IN: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];
const INVALID: [&str; 9] = ["", "a", "/a/", "//", "/a//b", "/a/./b", "/..", "/a\u{1}b", "/a\0b"];

/// The ids of the users in an ACL.
static USER_IDS: LazyLock<[String; USERS.len()]> = LazyLock::new(|| USERS.map(stoa_core::digest_id));

/// What a client remembers of the answers that it got, and asks by.
#[derive(Debug, Default)]
pub(super) struct Random {
    /// Paths of znodes that it has created.
    created: Vec<String>,
    /// The last zxid that it has seen.
    zxid: i64,
}

impl Random {
    fn send(caller: &mut Caller<i32>, ask: Ask) {
        caller.ask(ask.opcode, ask.opcode, |out| out.extend(ask.body));
    }

    fn draws<'a>(&'a self, manners: &'a Manners, rng: &'a mut Rng) -> Draws<'a> {
        Draws { manners, rng, memory: self }
    }

    /// Remembers a path, and forgets an old one.
    fn note_created(&mut self, path: &str) {
        if self.created.len() == REMEMBERED {
            self.created.remove(0);
        }
        self.created.push(path.to_owned());
    }
}

impl Workload for Random {
    /// The opcode.
    type Errand = i32;

    fn seen(&self) -> i64 {
        self.zxid
    }

    fn burst(&mut self, caller: &mut Caller<i32>, _: &mut Judges, room: usize) {
        for _ in 0..caller.some(room) {
            let ask = self.draws(&caller.manners, &mut caller.rng).any();
            Self::send(caller, ask);
        }
    }

    fn close(&mut self, caller: &mut Caller<i32>, _: &mut Judges) {
        Self::send(caller, Ask::new(Opcode::CloseSession, Vec::new()));
    }

    fn last_words(&mut self, caller: &mut Caller<i32>, _: &mut Judges) {
        let mut body = Vec::new();
        encode::set_data(&mut body, "/last-words", Some(b"x"), -1);
        Self::send(caller, Ask::new(Opcode::SetData, body));
    }

    /// Mostly with a valid proof.
    fn prove(&mut self, caller: &mut Caller<i32>) {
        match caller.rng.below(12) {
            0 => caller.prove("kerberos", "x"),
            1 => caller.prove("ip", ""),
            2 => caller.prove("digest", SUPER_USER),
            _ => {
                let user = *caller.rng.pick(&USERS);
                caller.prove("digest", user);
            }
        }
    }

    fn is_proved(&self, _: i32) -> bool {
        true
    }

    fn garbage(&mut self, manners: &Manners, rng: &mut Rng) -> (i32, Vec<u8>) {
        let Ask { opcode, body } = self.draws(manners, rng).garbage();
        (opcode, body)
    }

    fn welcomed(&mut self, caller: &mut Caller<i32>, _: &mut Judges, is_new: bool) -> Checked {
        if !is_new && !caller.rng.one_in(3) {
            let ask = self.draws(&caller.manners, &mut caller.rng).set_watches();
            Self::send(caller, ask);
        }
        Ok(())
    }

    fn forget(&mut self, _: &mut Caller<i32>) {}

    fn told(&mut self, _: &Caller<i32>, _: &mut Judges, zxid: i64, _: &WatcherEvent<'_>) -> Checked {
        self.zxid = if zxid > 0 { zxid } else { self.zxid };
        Ok(())
    }

    fn shown(&mut self, _: &Caller<i32>, _: &mut Judges, zxid: i64) -> Checked {
        self.zxid = if zxid > 0 { zxid } else { self.zxid };
        Ok(())
    }

    fn answered(
        &mut self,
        caller: &mut Caller<i32>,
        _: &mut Judges,
        opcode: i32,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Checked {
        if header.err == 0 && matches!(opcode, 1 | 15 | 19 | 21) {
            self.note_created(reader.str().unwrap_or_default());
        }
        let no_room = header.err == ErrorCode::SystemError as i32;
        if no_room && caller.has_said_last_words() && opcode == Opcode::SetData as i32 {
            caller.says_again();
        }
        Ok(())
    }
}

/// Draws requests.
struct Draws<'a> {
    manners: &'a Manners,
    rng: &'a mut Rng,
    memory: &'a Random,
}

impl Draws<'_> {
    /// Any request.
    fn any(&mut self) -> Ask {
        if self.rng.percent(self.manners.writes_percent) { self.write() } else { self.read() }
    }

    fn write(&mut self) -> Ask {
        if self.rng.one_in(self.manners.quota_one_in) {
            return self.quota();
        }
        let mut out = Vec::new();
        let opcode = match self.rng.weighted(&[30, 12, 3, 3, 18, 24, 3, 12, 1]) {
            0 => self.create(&mut out, Opcode::Create),
            1 => self.create(&mut out, Opcode::Create2),
            2 => self.create(&mut out, Opcode::CreateContainer),
            3 => self.create(&mut out, Opcode::CreateTtl),
            4 => self.delete(&mut out),
            5 => self.set_data(&mut out),
            6 => {
                let path = self.guarded_path();
                let acl = self.acl(&path);
                let version = self.version();
                encode::set_acl(&mut out, &path, &acl, version);
                Opcode::SetAcl
            }
            7 => return self.multi(),
            _ => {
                encode::path(&mut out, &self.path());
                Opcode::DeleteContainer
            }
        };
        Ask::new(opcode, out)
    }

    fn read(&mut self) -> Ask {
        let mut out = Vec::new();
        let watch = self.rng.percent(30);
        let path = self.path();
        let opcode = match self.rng.weighted(&[30, 20, 10, 10, 6, 6, 4, 3, 3, 4, 4, 4, 3, 2]) {
            0 => Opcode::GetData,
            1 => Opcode::Exists,
            2 => Opcode::GetChildren,
            3 => Opcode::GetChildren2,
            4 => Opcode::GetAcl,
            5 => Opcode::Sync,
            6 => Opcode::GetAllChildrenNumber,
            7 => Opcode::GetEphemerals,
            8 => Opcode::WhoAmI,
            9 => Opcode::AddWatch,
            10 => Opcode::CheckWatches,
            11 => Opcode::RemoveWatches,
            12 => return self.multi_read(),
            _ => return self.set_watches(),
        };
        match opcode {
            Opcode::GetData | Opcode::Exists | Opcode::GetChildren | Opcode::GetChildren2 => {
                encode::path_watch(&mut out, &path, watch);
            }
            Opcode::GetEphemerals => {
                let prefix = if self.rng.percent(40) { "/" } else { path.as_str() };
                encode::path(&mut out, prefix);
            }
            Opcode::WhoAmI => {}
            Opcode::AddWatch => {
                let path = if self.rng.percent(25) { "/" } else { path.as_str() };
                // Now and then a mode that does not exist.
                encode::path_number(&mut out, path, self.rng.weighted(&[6, 6, 1]) as i32);
            }
            Opcode::CheckWatches | Opcode::RemoveWatches => {
                encode::path_number(&mut out, &path, self.rng.range(0, 6) as i32);
            }
            _ => encode::path(&mut out, &path),
        }
        Ask::new(opcode, out)
    }

    /// A path that may or may not be there.
    fn path(&mut self) -> String {
        match self.rng.below(100) {
            0..=9 if !self.memory.created.is_empty() => self.rng.pick(&self.memory.created).clone(),
            10..=14 => (*self.rng.pick(&BUILT_IN)).to_owned(),
            15..=16 => (*self.rng.pick(&INVALID)).to_owned(),
            _ => self.plain_path(),
        }
    }

    fn plain_path(&mut self) -> String {
        let depth = 1 + self.rng.weighted(&[8, 4, 1]);
        let mut path = String::new();
        for _ in 0..depth {
            path.push('/');
            path.push_str(&self.component());
        }
        path
    }

    fn component(&mut self) -> String {
        let number = self.rng.index(self.manners.names);
        match number {
            0..=2 => ["a", "b", "c"][number].to_owned(),
            // A long name, and one that is not ASCII.
            3 => "\u{e9}t\u{e9}-\u{4e2d}".to_owned(),
            4 => "long".repeat(60),
            _ => format!("n{number}"),
        }
    }

    /// A path below the one subtree in which ACLs are not open, so that they do not close everything.
    fn guarded_path(&mut self) -> String {
        let plain = self.plain_path();
        if self.rng.percent(90) { format!("/c{plain}") } else { plain }
    }

    fn version(&mut self) -> i32 {
        match self.rng.below(10) {
            0..=6 => -1,
            7 => 0,
            8 => self.rng.range(1, 5) as i32,
            _ => -2,
        }
    }

    fn data(&mut self) -> Option<Vec<u8>> {
        let len = match self.rng.below(100) {
            0..=2 => return None,
            3..=7 => 0,
            8..=9 => self.rng.range(0, self.manners.data_bytes as u64 * 8),
            _ => self.rng.range(1, self.manners.data_bytes as u64),
        };
        let fill = self.rng.next_u64() as u8;
        Some((0..len).map(|at| fill.wrapping_add(at as u8)).collect())
    }

    fn acl(&mut self, path: &str) -> Vec<Acl<'static>> {
        if !path.starts_with("/c/") || self.rng.percent(50) {
            return OPEN_ACL.to_vec();
        }
        let perms = if self.rng.percent(70) { perms::ALL } else { self.rng.below(32) as i32 };
        let entry = |scheme, id| Acl { perms, scheme, id };
        let user = self.rng.pick(&*USER_IDS).as_str();
        match self.rng.below(12) {
            0..=2 => vec![entry("digest", user)],
            3 => vec![entry("auth", "")],
            4 => vec![entry("world", "anyone"), entry("world", "anyone")],
            5 => vec![entry("ip", "10.0.0.1")],
            6 => vec![entry("ip", "10.0.0.0/30"), entry("digest", user)],
            7 => READ_ACL.to_vec(),
            8 => vec![entry("world", "nobody")],
            9 => vec![entry("digest", "no-colon")],
            10 => Vec::new(),
            _ => vec![entry("unheard-of", "x")],
        }
    }

    fn create(&mut self, out: &mut Vec<u8>, opcode: Opcode) -> Opcode {
        let mut path = match self.rng.below(10) {
            0 => self.path(),
            1 => self.guarded_path(),
            _ => self.plain_path(),
        };
        let (flags, ttl_ms) = match opcode {
            Opcode::CreateContainer => (4, None),
            Opcode::CreateTtl => self.ttl(),
            _ => (self.rng.weighted(&[50, 20, 15, 13, 0, 1, 0, 1]) as i32, None),
        };
        if matches!(flags, 2 | 3 | 6) && self.rng.percent(20) {
            path.push('/');
        }
        let data = self.data();
        let acl = self.acl(&path);
        encode::create(out, &path, data.as_deref(), &acl, flags, ttl_ms);
        opcode
    }

    fn ttl(&mut self) -> (i32, Option<i64>) {
        let flags = if self.rng.percent(80) { 5 } else { 6 };
        match self.rng.below(20) {
            0 => (flags, Some(0)),
            1 => (flags, Some(-1)),
            2 => (flags, Some(1 << 40)),
            3 => (0, Some(5)),
            _ => (flags, Some(self.rng.range(1, 3000) as i64)),
        }
    }

    fn delete(&mut self, out: &mut Vec<u8>) -> Opcode {
        let (path, version) = (self.path(), self.version());
        encode::path_version(out, &path, version);
        Opcode::Delete
    }

    fn set_data(&mut self, out: &mut Vec<u8>) -> Opcode {
        let (path, data, version) = (self.path(), self.data(), self.version());
        encode::set_data(out, &path, data.as_deref(), version);
        Opcode::SetData
    }

    fn check(&mut self, out: &mut Vec<u8>) -> Opcode {
        let (path, version) = (self.path(), self.version());
        encode::path_version(out, &path, version);
        Opcode::Check
    }

    fn multi(&mut self) -> Ask {
        let mut out = Vec::new();
        for _ in 0..self.rng.weighted(&[1, 10, 20, 15, 8, 4, 2]) {
            let mut op = Vec::new();
            let opcode = match self.rng.weighted(&[30, 15, 2, 2, 20, 20, 10, 1]) {
                0 => self.create(&mut op, Opcode::Create),
                1 => self.create(&mut op, Opcode::Create2),
                2 => self.create(&mut op, Opcode::CreateContainer),
                3 => self.create(&mut op, Opcode::CreateTtl),
                4 => self.delete(&mut op),
                5 => self.set_data(&mut op),
                6 => self.check(&mut op),
                _ => {
                    encode::path_watch(&mut op, &self.plain_path(), false);
                    Opcode::GetData
                }
            };
            MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(&mut out);
            out.extend(op);
        }
        MultiHeader::END.encode(&mut out);
        Ask::new(Opcode::Multi, out)
    }

    /// Sets a quota, changes it, or takes it away.
    fn quota(&mut self) -> Ask {
        let subject = *self.rng.pick(&["/a", "/b", "/b/a"]);
        let place = format!("/zookeeper/quota{subject}");
        let (limits, stats) = (format!("{place}/zookeeper_limits"), format!("{place}/zookeeper_stats"));
        let mut number = |most: u64| self.rng.below(most + 1) as i64 - 1;
        let data = format!(
            "count={},bytes={}=;byteHardLimit={};countHardLimit={}",
            number(6),
            number(300),
            number(600),
            number(12)
        );
        let mut out = Vec::new();
        if self.rng.percent(30) {
            encode::set_data(&mut out, &limits, Some(data.as_bytes()), -1);
            return Ask::new(Opcode::SetData, out);
        }
        let op = |out: &mut Vec<u8>, opcode: Opcode| {
            MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(out);
        };
        if self.rng.percent(40) {
            for path in [&limits, &stats, &place] {
                op(&mut out, Opcode::Delete);
                encode::path_version(&mut out, path, -1);
            }
        } else {
            if subject == "/b/a" && self.rng.percent(50) {
                op(&mut out, Opcode::Create);
                encode::create(&mut out, "/zookeeper/quota/b", None, OPEN_ACL, 0, None);
            }
            let fresh: [(&str, Option<&[u8]>); 3] =
                [(&place, None), (&limits, Some(data.as_bytes())), (&stats, Some(b"count=0,bytes=0"))];
            for (path, data) in fresh {
                op(&mut out, Opcode::Create);
                encode::create(&mut out, path, data, OPEN_ACL, 0, None);
            }
        }
        MultiHeader::END.encode(&mut out);
        Ask::new(Opcode::Multi, out)
    }

    fn multi_read(&mut self) -> Ask {
        let mut out = Vec::new();
        for _ in 0..self.rng.below(5) {
            let opcode = if self.rng.percent(60) { Opcode::GetData } else { Opcode::GetChildren };
            MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(&mut out);
            let (path, watch) = (self.path(), self.rng.percent(20));
            encode::path_watch(&mut out, &path, watch);
        }
        MultiHeader::END.encode(&mut out);
        Ask::new(Opcode::MultiRead, out)
    }

    /// Watches set again, as after a reconnect.
    fn set_watches(&mut self) -> Ask {
        let mut lists: Vec<Vec<String>> = Vec::new();
        let persistent = self.rng.percent(50);
        for _ in 0..if persistent { 5 } else { 3 } {
            lists.push((0..self.rng.below(4)).map(|_| self.plain_path()).collect());
        }
        let borrowed: Vec<Vec<&str>> =
            lists.iter().map(|list| list.iter().map(String::as_str).collect()).collect();
        let slices: Vec<&[&str]> = borrowed.iter().map(Vec::as_slice).collect();
        let seen = self.memory.zxid - self.rng.below(6) as i64;
        let mut out = Vec::new();
        encode::set_watches(&mut out, seen, &slices);
        Ask::new(if persistent { Opcode::SetWatches2 } else { Opcode::SetWatches }, out)
    }

    /// What no client should send: a request with something wrong in it.
    fn garbage(&mut self) -> Ask {
        let mut ask = self.any();
        match self.rng.below(6) {
            0 => ask.opcode = *self.rng.pick(&[-1, 10, 23, 99, 108, 1000, i32::MIN]),
            1 => ask.opcode = *self.rng.pick(&[16, 102, -10]),
            2 => ask.body.truncate(self.rng.index(ask.body.len() + 1)),
            3 if !ask.body.is_empty() => {
                let at = self.rng.index(ask.body.len());
                ask.body[at] ^= 1 << self.rng.below(8);
            }
            4 => put::i64(&mut ask.body, -1),
            _ => ask.opcode = *self.rng.pick(&[1, 4, 14, 21, 22, 101, 105, 106]),
        }
        ask
    }
}
