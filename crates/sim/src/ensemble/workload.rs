//! What clients of an ensemble ask. Each write is tagged with its name, so that every answer can be compared with the
//! history.

use super::check::{Answered, WatchKind, Watching};
use super::client::{Caller, Workload};
use super::history::{LIFE_BITS, tag};
use super::roster::Wish;
use super::settings::SUPER;
use super::visitor::Judges;
use stoa_check::Checked;
use stoa_wire::{
    ErrorCode, MultiHeader, OPEN_ACL, Opcode, Reader, ReplyHeader, WatcherEvent, request::encode,
};

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
pub(super) struct Question {
    pub(super) what: Demand,
    /// The newest zxid that anybody had seen when it was sent, if its answer must not be older.
    pub(super) floor: i64,
    /// The number of the write.
    pub(super) write: u64,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Demand {
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

impl Demand {
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

/// What one client asks.
#[derive(Default)]
pub(super) struct Tagged {
    writes: u64,
    watches: Watching,
    /// Whether its session has acknowledged the program.
    acknowledged: bool,
    /// Whether it knows that all servers know its session.
    is_global: bool,
    /// What a sync on this connection has promised to those behind it.
    synced: i64,
    /// Its last write, if it is no other, and the xid of its last write under way.
    last_wish: Option<Wish>,
    last_write: Option<i32>,
    /// The version of the newest list of servers that it was told.
    list_version: i64,
}

impl Tagged {
    pub(super) fn new() -> Self {
        Self { list_version: 1, ..Self::default() }
    }

    /// One whose last write asks for another list of servers.
    pub(super) fn wishing(wish: Wish) -> Self {
        Self { last_wish: Some(wish), ..Self::new() }
    }

    fn path(caller: &mut Caller<Question>) -> String {
        format!("/n{}", caller.rng.index(caller.manners.names))
    }

    fn any(&self, caller: &mut Caller<Question>) -> Demand {
        let watch = caller.rng.one_in(2);
        if caller.requests() < 2 {
            return Demand::Create { path: SEQUENCE.into(), sequential: false };
        }
        if !caller.rng.percent(caller.manners.writes_percent) {
            let path = Self::path(caller);
            return match caller.rng.below(8) {
                0..=2 => Demand::Get { path, watch },
                3 | 4 => Demand::Exists { path, watch },
                5 => Demand::Children { path: SEQUENCE.into(), watch },
                6 => Demand::Children { path: "/".into(), watch },
                _ => Demand::Sync,
            };
        }
        let program_one_in = caller.manners.program_one_in;
        if program_one_in > 0 && caller.rng.one_in(program_one_in) {
            return match caller.rng.below(8) {
                0 => Demand::Register,
                1 | 2 => Demand::Acknowledge,
                _ => Demand::Count,
            };
        }
        let path = Self::path(caller);
        let reconfig_one_in = caller.manners.reconfig_one_in;
        if reconfig_one_in > 0 && caller.rng.one_in(reconfig_one_in) {
            let ids = caller.ids();
            return Demand::Reconfig(Wish::any(&mut caller.rng, &ids, self.list_version));
        }
        match caller.rng.below(10) {
            0..=2 => Demand::Create { path, sequential: false },
            3 | 4 => Demand::Create { path: format!("{SEQUENCE}/s-"), sequential: true },
            5 => Demand::Delete { path },
            6 => Demand::SetBoth { paths: [path, SEQUENCE.into()] },
            7 => Demand::Set { path, version: caller.rng.below(4) as i32 },
            _ => Demand::Set { path, version: -1 },
        }
    }

    fn send(&mut self, caller: &mut Caller<Question>, judges: &Judges, what: Demand) {
        let is_write = what.is_write();
        self.writes += u64::from(is_write);
        let mut body = Vec::new();
        let opcode = self.encode(caller, &what, &mut body);
        let newest = judges.horizon.zxid();
        let floor = if is_write || what == Demand::Sync { newest } else { self.synced };
        if what == Demand::Sync && !caller.only_reads {
            self.synced = floor;
        }
        let question = Question { what, floor, write: self.writes };
        caller.ask(opcode as i32, question, |out| out.extend(body));
    }

    fn encode(&self, caller: &mut Caller<Question>, what: &Demand, body: &mut Vec<u8>) -> Opcode {
        let data = tag(caller.index, self.writes);
        match what {
            Demand::Create { path, sequential } => {
                let ephemeral = path != SEQUENCE && caller.rng.one_in(2);
                let flags = i32::from(ephemeral) + if *sequential { 2 } else { 0 };
                encode::create(body, path, Some(&data), OPEN_ACL, flags, None);
                Opcode::Create2
            }
            Demand::Set { path, version } => {
                encode::set_data(body, path, Some(&data), *version);
                Opcode::SetData
            }
            Demand::Delete { path } => {
                encode::path_version(body, path, -1);
                Opcode::Delete
            }
            Demand::SetBoth { paths } => {
                for path in paths {
                    MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(body);
                    encode::set_data(body, path, Some(&data), -1);
                }
                MultiHeader::END.encode(body);
                Opcode::Multi
            }
            Demand::Get { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::GetData
            }
            Demand::Exists { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::Exists
            }
            Demand::Children { path, watch } => {
                encode::path_watch(body, path, *watch);
                Opcode::GetChildren2
            }
            Demand::Register => {
                encode::create(body, PROGRAM, Some(SOURCE.as_bytes()), OPEN_ACL, 0, None);
                Opcode::Create2
            }
            Demand::Acknowledge => {
                let path = format!("{PROGRAM}/a-");
                encode::create(body, &path, Some(b""), OPEN_ACL, 3, None);
                Opcode::Create2
            }
            Demand::Count => {
                encode::path_watch(body, "/count-on", false);
                Opcode::GetData
            }
            Demand::Reconfig(wish) => {
                wish.encode(body);
                Opcode::Reconfig
            }
            Demand::Sync => {
                encode::path(body, "/");
                Opcode::Sync
            }
            Demand::SetWatches => {
                let lists =
                    [WatchKind::Data, WatchKind::Exist, WatchKind::Child].map(|it| self.watches.paths(it));
                let lists: Vec<&[&str]> = lists.iter().map(Vec::as_slice).collect();
                encode::set_watches(body, self.watches.replied(), &lists);
                Opcode::SetWatches
            }
            Demand::Close => Opcode::CloseSession,
        }
    }

    /// What follows from the answer to the last write.
    fn last_write_answered(&mut self, caller: &mut Caller<Question>, judges: &Judges, err: i32) {
        self.last_write = None;
        if err == 0 {
            self.send(caller, judges, Demand::Sync);
            return self.send(caller, judges, Demand::Children { path: SEQUENCE.into(), watch: false });
        }
        // Its znode may not be there yet, or the log has no room.
        caller.says_again();
        if self.last_wish.is_none() {
            self.send(caller, judges, Demand::Create { path: SEQUENCE.into(), sequential: false });
        }
    }
}

impl Workload for Tagged {
    type Errand = Question;

    fn seen(&self) -> i64 {
        self.watches.seen()
    }

    fn watches(&self) -> bool {
        !self.watches.is_empty()
    }

    fn burst(&mut self, caller: &mut Caller<Question>, judges: &mut Judges, room: usize) {
        for _ in 0..caller.some(room) {
            let what = self.any(caller);
            self.send(caller, judges, what);
        }
    }

    fn close(&mut self, caller: &mut Caller<Question>, judges: &mut Judges) {
        self.send(caller, judges, Demand::Close);
    }

    fn last_words(&mut self, caller: &mut Caller<Question>, judges: &mut Judges) {
        let create = Demand::Create { path: format!("{SEQUENCE}/s-"), sequential: true };
        self.send(caller, judges, self.last_wish.clone().map_or(create, Demand::Reconfig));
        self.last_write = Some(caller.last_xid());
    }

    fn welcomed(&mut self, caller: &mut Caller<Question>, judges: &mut Judges, is_new: bool) -> Checked {
        if caller.manners.local_sessions && is_new {
            self.writes = ((self.writes >> LIFE_BITS) + 1) << LIFE_BITS;
        }
        if caller.manners.reconfig_one_in > 0 || self.last_wish.is_some() {
            caller.prove("digest", SUPER);
        }
        if self.watches() {
            self.send(caller, judges, Demand::SetWatches);
        }
        Ok(())
    }

    fn expired(&mut self, caller: &mut Caller<Question>, judges: &mut Judges, session: i64) -> Checked {
        // What its contact server alone keeps ends with that server, and nobody else knows it.
        let may_be_local = caller.manners.local_sessions && !self.is_global;
        if may_be_local || caller.servers == 1 || caller.manners.reconfig_one_in > 0 {
            // A server that decides alone says so when the end is proposed: it must come, then. It must too if
            // the session was about to be known to all.
            caller.left.push(session);
        } else if !judges.history.is_closed(session) {
            return Err(caller.wrong("it was told that its session has expired, and it has not"));
        }
        Ok(())
    }

    fn forget(&mut self, _: &mut Caller<Question>) {
        (self.acknowledged, self.is_global) = (false, false);
        self.watches = Watching::default();
    }

    fn lost(&mut self, _: &Caller<Question>) {
        self.watches.disconnected();
        (self.synced, self.last_write) = (0, None);
    }

    fn told(
        &mut self,
        caller: &Caller<Question>,
        judges: &mut Judges,
        zxid: i64,
        event: &WatcherEvent<'_>,
    ) -> Checked {
        judges.horizon.seen(zxid);
        let noted = self.watches.event(zxid, event, &judges.history);
        noted.map_err(|violation| caller.wrong(&violation.to_string()))
    }

    fn shown(&mut self, caller: &Caller<Question>, judges: &mut Judges, zxid: i64) -> Checked {
        judges.horizon.seen(zxid);
        let checked = self.watches.reply(zxid, &judges.history);
        checked.map_err(|violation| caller.wrong(&violation.to_string()))
    }

    fn answered(
        &mut self,
        caller: &mut Caller<Question>,
        judges: &mut Judges,
        asked: Question,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Checked {
        let (session, only_reads, history) = (caller.session(), caller.only_reads, &judges.history);
        self.is_global |= history.is_global(session, header.zxid);
        let (client, body) = (caller.index, reader.rest());
        let answered = Answered { client, session, only_reads, asked: &asked, header, body, history };
        answered.check(&mut self.watches).map_err(|violation| {
            caller.wrong(&format!(
                "{asked:?} was answered zxid {} error {}: {violation}",
                header.zxid, header.err
            ))
        })?;
        let is_not_there = header.err == ErrorCode::NoNode as i32;
        if asked.what == Demand::Count && is_not_there && self.acknowledged && !only_reads {
            return Err(caller.wrong("the program that it has acknowledged does not count for it"));
        }
        if header.err == 0 {
            self.acknowledged |= matches!(asked.what, Demand::Register | Demand::Acknowledge) && !only_reads;
            if matches!(asked.what, Demand::Reconfig(_)) {
                self.list_version = header.zxid;
            }
        }
        if self.last_write == Some(header.xid) && caller.has_said_last_words() {
            self.last_write_answered(caller, judges, header.err);
        }
        Ok(())
    }
}
