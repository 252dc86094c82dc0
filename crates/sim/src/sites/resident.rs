//! What clients of several sites ask, and what the answers mean.

use super::ledger::{Floor, Ledger, Mark, sign};
use crate::ensemble::{Caller, Judges, Workload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use stoa_check::{Checked, Violation, wrong};
use stoa_wire::{
    ErrorCode, EventKind, MultiHeader, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, ReplyHeader,
    Stat, WatcherEvent, ZXID_MAX, request::encode,
};

const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;
const NO_NODE: i32 = ErrorCode::NoNode as i32;

/// Where sequential znodes go; it is never deleted.
const ROW: &str = "/row";
/// Znodes that are never deleted.
const FIRM: [&str; 4] = ["/firm0", "/firm1", "/firm2", ROW];
/// Those that come and go, also as ephemerals.
const LOOSE: [&str; 5] = ["/a", "/b", "/a/x", "/a/y", "/firm0/x"];
/// Once in so many creates it is the client's own ephemeral, which nobody deletes.
const OWN_ONE_IN: u64 = 5;

/// A program, and the znodes in which it counts. They are the same at any time, and no number is told twice.
const PROGRAM: &str = "/em/count";
const COUNTED: [&str; 2] = ["/one", "/two"];
const COUNTER: &str = r#"
on_operation("read", "/count-both");

fn read(request) {
    let one = local.read("/one").data.to_int() + 1;
    let two = local.read("/two").data.to_int() + 1;
    if one != two { return 0; }
    local.update("/one", one);
    local.update("/two", two);
    return one;
}
"#;

/// All znodes that clients write, but for those with numbers.
pub(super) fn paths(clients: usize) -> Vec<String> {
    let shared = FIRM.iter().chain(&LOOSE).map(|path| (*path).to_owned());
    shared.chain((0..clients).map(own)).collect()
}

fn own(client: usize) -> String {
    format!("/own{client}")
}

/// A request under way.
#[derive(Debug, Clone)]
pub(super) struct Plea {
    what: Deed,
    path: String,
    /// What was known of the znode when it was asked.
    floor: Floor,
    mark: Mark,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Deed {
    Create {
        flags: i32,
    },
    Set {
        version: i32,
    },
    Delete,
    /// Sets it and another one.
    SetBoth(String, Floor),
    /// Sets it, if another one has this version.
    SetIf(String, i32, Floor),
    Get {
        watch: bool,
        is_newest: bool,
    },
    Sync,
    Watches,
    Close,
    /// Registers the program, makes what it counts in, acknowledges it, and calls it.
    Register,
    MakeCount,
    Acknowledge,
    Count,
}

/// One client's part.
pub(super) struct Resident {
    ledger: Rc<RefCell<Ledger>>,
    life: u64,
    writes: u64,
    /// Of each znode that it was shown in this session, the last change of it, and its version.
    shown: BTreeMap<String, (i64, i32)>,
    /// The zxid of its last write in this session.
    last_write: i64,
    /// What it watches: the last change that it knows.
    watched: BTreeMap<String, i64>,
    /// The zxid of the last answer, which clients take to be what they have seen: that of an event does not count.
    told: i64,
    /// With which zxid its own ephemeral was created in this session; or 0.
    owns: i64,
    /// All its reads are linearizable.
    is_strict: bool,
    /// It calls the program that counts.
    counts: bool,
    /// Its last sync was refused.
    has_not_synced: bool,
    /// The last write of all is under way.
    last_xid: Option<i32>,
}

type Petitioner = Caller<Plea>;

impl Resident {
    pub(super) fn new(ledger: &Rc<RefCell<Ledger>>, is_strict: bool, counts: bool) -> Self {
        Self {
            ledger: Rc::clone(ledger),
            life: 0,
            writes: 0,
            shown: BTreeMap::new(),
            last_write: 0,
            watched: BTreeMap::new(),
            told: 0,
            owns: 0,
            is_strict,
            counts,
            has_not_synced: false,
            last_xid: None,
        }
    }

    fn plea(&mut self, caller: &Petitioner, what: Deed, path: &str) -> Plea {
        let floor = self.ledger.borrow().floor(path);
        self.writes += 1;
        Plea { what, path: path.to_owned(), floor, mark: (caller.index, self.life, self.writes) }
    }

    fn send(&mut self, caller: &mut Petitioner, what: Deed, path: &str) {
        let plea = self.plea(caller, what, path);
        let (data, mut body) = (sign(plea.mark), Vec::new());
        let opcode = match &plea.what {
            Deed::Create { flags } => {
                encode::create(&mut body, path, Some(&data), OPEN_ACL, *flags, None);
                Opcode::Create2
            }
            Deed::Set { version } => {
                encode::set_data(&mut body, path, Some(&data), *version);
                Opcode::SetData
            }
            Deed::Delete => {
                encode::path_version(&mut body, path, -1);
                Opcode::Delete
            }
            Deed::SetBoth(other, _) => {
                let both = [path, other.as_str()];
                for path in both {
                    MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(&mut body);
                    encode::set_data(&mut body, path, Some(&data), -1);
                }
                MultiHeader::END.encode(&mut body);
                Opcode::Multi
            }
            Deed::SetIf(other, version, _) => {
                MultiHeader { opcode: Opcode::Check as i32, done: false, err: -1 }.encode(&mut body);
                encode::path_version(&mut body, other, *version);
                MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(&mut body);
                encode::set_data(&mut body, path, Some(&data), -1);
                MultiHeader::END.encode(&mut body);
                Opcode::Multi
            }
            Deed::Get { watch, .. } => {
                encode::path_watch(&mut body, path, *watch);
                Opcode::GetData
            }
            Deed::Sync => {
                encode::path(&mut body, path);
                Opcode::Sync
            }
            Deed::Watches => {
                let paths: Vec<&str> = self.watched.keys().map(String::as_str).collect();
                encode::set_watches(&mut body, self.seen(), &[&paths, &[], &[]]);
                Opcode::SetWatches
            }
            Deed::Close => Opcode::CloseSession,
            Deed::Register | Deed::MakeCount | Deed::Acknowledge => {
                let (data, flags) = match plea.what {
                    Deed::Register => (COUNTER, 0),
                    Deed::Acknowledge => ("", EPHEMERAL),
                    _ => ("0", 0),
                };
                encode::create(&mut body, path, Some(data.as_bytes()), OPEN_ACL, flags, None);
                Opcode::Create
            }
            Deed::Count => {
                encode::path_watch(&mut body, path, false);
                Opcode::GetData
            }
        };
        caller.ask(opcode as i32, plea, |out| out.extend(body));
    }

    /// Something of the program. What is there already is refused, and who has not acknowledged it finds no znode.
    fn any_of_program(&mut self, caller: &mut Petitioner) {
        let counted = *caller.rng.pick(&COUNTED);
        match caller.rng.below(8) {
            0 => self.send(caller, Deed::Register, PROGRAM),
            1 => self.send(caller, Deed::MakeCount, counted),
            2 => {
                let path = format!("{PROGRAM}/{}-{}", caller.index, self.life);
                self.send(caller, Deed::Acknowledge, &path);
            }
            _ => self.send(caller, Deed::Count, "/count-both"),
        }
    }

    fn any(&mut self, caller: &mut Petitioner) {
        if self.counts && caller.rng.one_in(3) {
            return self.any_of_program(caller);
        }
        let firm = *caller.rng.pick(&FIRM);
        let loose = *caller.rng.pick(&LOOSE);
        let any = if caller.rng.one_in(2) { firm } else { loose };
        let own = own(caller.index);
        match caller.rng.below(20) {
            0 => self.send(caller, Deed::Create { flags: 0 }, firm),
            1 if caller.rng.one_in(OWN_ONE_IN) || self.owns == 0 => {
                self.send(caller, Deed::Create { flags: EPHEMERAL }, &own);
            }
            1 | 2 => {
                let flags = i32::from(caller.rng.one_in(2));
                self.send(caller, Deed::Create { flags }, loose);
            }
            3 | 4 => {
                let flags = SEQUENTIAL + i32::from(caller.rng.one_in(4));
                self.send(caller, Deed::Create { flags }, &format!("{ROW}/s-"));
            }
            5 => self.send(caller, Deed::Delete, loose),
            6 => {
                let other = *caller.rng.pick(&FIRM);
                let floor = self.ledger.borrow().floor(other);
                self.send(caller, Deed::SetBoth(other.to_owned(), floor), any);
            }
            7 | 8 => {
                let Some((_, version)) = self.shown.get(firm).copied() else { return };
                let floor = self.ledger.borrow().floor(firm);
                let path = if any == firm { loose } else { any };
                self.send(caller, Deed::SetIf(firm.to_owned(), version, floor), path);
            }
            9 => {
                let version = self.shown.get(any).map_or(-1, |(_, version)| *version);
                self.send(caller, Deed::Set { version }, any);
            }
            10..=13 => self.send(caller, Deed::Set { version: -1 }, any),
            14 => {
                let of_it = self.ledger.borrow().floor(any);
                self.send(caller, Deed::Sync, any);
                let mut plea = self.plea(caller, Deed::Get { watch: false, is_newest: true }, any);
                plea.floor = of_it;
                caller.ask(Opcode::GetData as i32, plea, |out| encode::path_watch(out, any, false));
            }
            15 => self.get(caller, &own, false),
            _ => {
                let watch = caller.rng.one_in(3);
                self.get(caller, any, watch);
            }
        }
    }

    fn get(&mut self, caller: &mut Petitioner, path: &str, watch: bool) {
        let is_newest = self.is_strict;
        self.send(caller, Deed::Get { watch, is_newest }, path);
    }

    /// It has been shown a znode.
    fn look(&mut self, plea: &Plea, path: &str, stat: &Stat) -> Checked {
        // The answer to something else, read as this one, looks like nothing that there is.
        if !(stat.czxid..=ZXID_MAX >> 12).contains(&stat.mzxid) {
            return wrong(format!("{path} is {stat:?}"));
        }
        let shown = self.shown.entry(path.to_owned()).or_insert((stat.mzxid, stat.version));
        let is_lost = |zxid: i64| self.ledger.borrow().is_lost(zxid);
        if stat.mzxid < shown.0 && !is_lost(shown.0) {
            return wrong(format!("{path} goes back from zxid {} to {stat:?}", shown.0));
        }
        *shown = (stat.mzxid, stat.version);
        if let Deed::Get { watch, is_newest } = plea.what {
            let has_not_synced = std::mem::take(&mut self.has_not_synced) && !self.is_strict;
            let is_behind = stat.mzxid < plea.floor.zxid && !is_lost(plea.floor.zxid);
            if is_newest && !has_not_synced && is_behind {
                return wrong(format!("{path} is {stat:?}"));
            }
            let watched = self.watched.get(path).filter(|known| **known != stat.mzxid);
            if let Some(known) = watched.filter(|known| !is_lost(**known)) {
                return wrong(format!(
                    "{path} is {stat:?} and was watched at zxid {known}; no event has come"
                ));
            }
            if watch {
                self.watched.insert(path.to_owned(), stat.mzxid);
            }
        }
        Ok(())
    }

    /// A write of it is acknowledged.
    fn wrote(&mut self, plea: &Plea, (path, floor): (&str, Floor), stat: &Stat) -> Checked {
        let is_lost = |zxid: i64| self.ledger.borrow().is_lost(zxid);
        if stat.mzxid <= floor.zxid && !is_lost(floor.zxid) {
            return wrong(format!("{path} becomes {stat:?}"));
        }
        if stat.mzxid < self.last_write && !is_lost(self.last_write) {
            return wrong(format!("{path} becomes {stat:?}, and zxid {} was before", self.last_write));
        }
        self.last_write = stat.mzxid;
        self.look(plea, path, stat)?;
        self.ledger.borrow_mut().written(path, stat, &sign(plea.mark))
    }

    fn created(&mut self, plea: &Plea, flags: i32, reader: &mut Reader<'_>) -> Checked {
        let path = reader.str().map_err(unreadable)?.to_owned();
        let stat = Stat::decode(reader).map_err(unreadable)?;
        if flags & SEQUENTIAL != 0 {
            let lasts = flags == SEQUENTIAL;
            self.ledger.borrow_mut().numbered(&path, stat.czxid, plea.floor.number, lasts)?;
        }
        if FIRM.contains(&path.as_str()) {
            if self.is_kept(plea.floor.firm) {
                return wrong(format!("{path} is created once more"));
            }
            self.ledger.borrow_mut().stands(&path, stat.czxid);
        }
        if path == own(plea.mark.0) {
            self.owns = stat.czxid;
        }
        self.wrote(plea, (&path, plea.floor), &stat)
    }

    fn carried_out(&mut self, plea: &Plea, reader: &mut Reader<'_>) -> Checked {
        match &plea.what {
            Deed::Create { flags } => self.created(plea, *flags, reader),
            Deed::Set { version } => {
                let stat = Stat::decode(reader).map_err(unreadable)?;
                if *version >= 0 && stat.version != *version + 1 {
                    return wrong(format!("it becomes {stat:?}"));
                }
                self.wrote(plea, (&plea.path, plea.floor), &stat)
            }
            Deed::SetBoth(other, floor) => {
                let results = MultiResults::decode(reader).map_err(unreadable)?;
                for (set, result) in [(plea.path.as_str(), plea.floor), (other, *floor)].iter().zip(results) {
                    if let MultiResult::DataSet { stat } = result
                        && *other != plea.path
                    {
                        self.wrote(plea, *set, &stat)?;
                    }
                }
                Ok(())
            }
            Deed::SetIf(other, version, floor) => {
                let results = MultiResults::decode(reader).map_err(unreadable)?;
                let [MultiResult::Checked, MultiResult::DataSet { stat }] = &results[..] else {
                    return Ok(());
                };
                if floor.version > *version && self.is_kept(floor.zxid) {
                    return wrong(format!("{other} had version {} before", floor.version));
                }
                self.wrote(plea, (&plea.path, plea.floor), stat)
            }
            Deed::Get { .. } => {
                let data = reader.buffer().map_err(unreadable)?.unwrap_or_default().to_vec();
                let stat = Stat::decode(reader).map_err(unreadable)?;
                self.look(plea, &plea.path, &stat)?;
                self.ledger.borrow_mut().seen(&plea.path, &stat, &data)
            }
            Deed::Count => {
                let data = reader.buffer().map_err(unreadable)?.unwrap_or_default();
                let number = std::str::from_utf8(data).ok().and_then(|number| number.parse().ok());
                self.ledger.borrow_mut().counted(number)
            }
            Deed::Delete | Deed::Sync | Deed::Watches | Deed::Close => Ok(()),
            Deed::Register | Deed::MakeCount | Deed::Acknowledge => Ok(()),
        }
    }

    /// Whether there is something with this zxid that is not lost.
    fn is_kept(&self, zxid: i64) -> bool {
        zxid != 0 && !self.ledger.borrow().is_lost(zxid)
    }

    /// What is refused has to be.
    fn refused(&mut self, caller: &Petitioner, plea: &Plea, err: i32) -> Checked {
        let is_firm = FIRM.contains(&plea.path.as_str());
        let has_seen = self.shown.get(&plea.path).is_some_and(|(zxid, _)| self.is_kept(*zxid));
        let is_known = self.is_kept(plea.floor.firm);
        let looks = matches!(plea.what, Deed::Get { .. });
        let is_newest = matches!(plea.what, Deed::Get { is_newest: true, .. });
        self.has_not_synced |= plea.what == Deed::Sync;
        let is_newest = is_newest && !std::mem::take(&mut self.has_not_synced);
        let asks = matches!(plea.what, Deed::Set { .. });
        if err == NO_NODE && is_firm && (has_seen && looks || is_known && (is_newest || asks)) {
            return wrong(format!("{} is there", plea.path));
        }
        if err == NO_NODE && looks && self.is_kept(self.owns) && plea.path == own(caller.index) {
            return wrong(format!("{} is there as long as its session", plea.path));
        }
        let is_watched = self.watched.get(&plea.path).is_some_and(|zxid| self.is_kept(*zxid));
        if err == NO_NODE && looks && is_watched {
            return wrong(format!("{} was watched, and no event has come", plea.path));
        }
        Ok(())
    }

    /// What follows from the answer to the last write.
    fn last_write_answered(&mut self, caller: &mut Petitioner, err: i32) {
        self.last_xid = None;
        if err != 0 {
            caller.says_again();
            self.send(caller, Deed::Create { flags: 0 }, ROW);
        }
    }
}

fn unreadable(error: stoa_wire::DecodeError) -> Violation {
    Violation::new(format!("it cannot be read: {error}"))
}

impl Workload for Resident {
    type Errand = Plea;

    fn seen(&self) -> i64 {
        self.told
    }

    fn watches(&self) -> bool {
        !self.watched.is_empty()
    }

    fn burst(&mut self, caller: &mut Petitioner, _: &mut Judges, room: usize) {
        if caller.requests() < 4 {
            return FIRM.iter().for_each(|path| self.send(caller, Deed::Create { flags: 0 }, path));
        }
        for _ in 0..caller.some(room) {
            self.any(caller);
        }
    }

    fn close(&mut self, caller: &mut Petitioner, _: &mut Judges) {
        self.owns = 0;
        self.send(caller, Deed::Close, "");
    }

    fn last_words(&mut self, caller: &mut Petitioner, _: &mut Judges) {
        self.send(caller, Deed::Create { flags: SEQUENTIAL }, &format!("{ROW}/s-"));
        self.last_xid = Some(caller.last_xid());
    }

    fn welcomed(&mut self, caller: &mut Petitioner, _: &mut Judges, is_new: bool) -> Checked {
        if is_new {
            self.life += 1;
        }
        if self.is_strict {
            caller.prove("consistency", "linearizable");
        }
        if self.watches() {
            self.send(caller, Deed::Watches, "");
            let watched: Vec<String> = self.watched.keys().cloned().collect();
            watched.iter().for_each(|path| self.get(caller, path, false));
        }
        Ok(())
    }

    fn expired(&mut self, _: &mut Petitioner, _: &mut Judges, session: i64) -> Checked {
        self.ledger.borrow_mut().expired.push(session);
        Ok(())
    }

    fn forget(&mut self, _: &mut Petitioner) {
        self.shown.clear();
        self.watched.clear();
        (self.owns, self.last_write, self.told) = (0, 0, 0);
    }

    fn lost(&mut self, _: &Petitioner) {
        self.last_xid = None;
    }

    fn told(&mut self, _: &Petitioner, _: &mut Judges, _: i64, event: &WatcherEvent<'_>) -> Checked {
        self.ledger.borrow_mut().events += 1;
        if event.kind != EventKind::ChildrenChanged as i32 {
            self.watched.remove(event.path);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        caller: &mut Petitioner,
        _: &mut Judges,
        plea: Plea,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Checked {
        // The answer to a ping may come before its watches are set again, and so does not count.
        if header.zxid > 0 {
            self.told = header.zxid;
        }
        self.ledger.borrow_mut().answers += 1;
        let checked = if header.err == 0 {
            self.carried_out(&plea, reader)
        } else {
            self.refused(caller, &plea, header.err)
        };
        checked.map_err(|violation| {
            caller.wrong(&format!(
                "{plea:?} was answered zxid {} error {}: {violation}",
                header.zxid, header.err
            ))
        })?;
        if self.last_xid == Some(header.xid) && caller.has_said_last_words() {
            self.last_write_answered(caller, header.err);
        }
        Ok(())
    }
}
