//! A client that remembers what it has seen, and writes it into what it writes.

pub(super) mod programs;

use super::board::{Board, Known};
use crate::ensemble::roster::Wish;
use crate::ensemble::settings::SUPER;
use crate::ensemble::{Caller, Judges, Workload};
use std::collections::BTreeMap;
use std::rc::Rc;
use stoa_check::{Checked, Violation, wrong};
use stoa_wire::{
    MultiHeader, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, ReplyHeader, Stat, WatcherEvent,
    request::encode,
};

const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

/// A request under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Errand {
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
    Program(programs::Job),
}

/// A client of partitions, wherever it is connected.
pub(super) struct Witness {
    board: Rc<Board>,
    known: Known,
    /// Watches: the version that the client was shown when it set them. They outlive its connections.
    watched: BTreeMap<usize, i32>,
    /// What comes next is a new connection's first request.
    has_come: bool,
    /// zxid of the last answer, as real clients remember it.
    last_zxid: i64,
    /// Something of what it has tried to make in the beginning was refused.
    has_failed: bool,
    /// It asks for other lists of servers now and then.
    is_operator: bool,
    programs: programs::Programs,
}

type Asker = Caller<Errand>;

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
    pub(super) fn new(is_operator: bool, board: &Rc<Board>) -> Self {
        Self {
            board: Rc::clone(board),
            known: Known::new(),
            watched: BTreeMap::new(),
            has_come: false,
            last_zxid: 0,
            has_failed: false,
            is_operator,
            programs: programs::Programs::default(),
        }
    }

    /// What stands before the first request of a new connection: the watches that it had, and a look at what
    /// they are for, which shows at once what it should have been told. Or a look at everything: what was lost with a
    /// server has to be missed before somebody writes it anew.
    fn come_in(&mut self, asker: &mut Asker) {
        if !std::mem::take(&mut self.has_come) {
            return;
        }
        if self.watched.is_empty() {
            let looks = self.board.is_founded.get() && asker.rng.one_in(2);
            return (0..self.board.count()).filter(|_| looks).for_each(|index| self.get(asker, index, false));
        }
        let watched: Vec<_> = self.watched.keys().copied().collect();
        let paths: Vec<_> = watched.iter().map(|index| self.board.path(*index)).collect();
        let data: Vec<_> = paths.iter().map(String::as_str).collect();
        asker.ask(Opcode::SetWatches as i32, Errand::Watches, |out| {
            encode::set_watches(out, self.last_zxid, &[&data, &[], &[]]);
        });
        for index in watched {
            self.get(asker, index, false);
        }
    }

    /// Makes what everything else is written to.
    fn found(&mut self, asker: &mut Asker) {
        self.has_failed = false;
        for index in 0..2 * self.board.count() {
            create(asker, Errand::Found, &self.board.path(index), None, 0);
        }
        if self.board.has_programs {
            self.found_programs(asker);
        }
    }

    /// What it knows will be there before whatever it writes next: its own writes that are under way too.
    fn before_next(&self, asker: &Asker) -> Known {
        let mut known = self.known.clone();
        if self.board.skips_writes {
            return known;
        }
        let mut once_more = |index| *known.entry(index).or_insert(0) += 1;
        for (_, errand) in &asker.under_way {
            match errand {
                Errand::Set { index } => once_more(*index),
                Errand::Group => self.board.group().for_each(&mut once_more),
                _ => {}
            }
        }
        known
    }

    fn set(&self, asker: &mut Asker, index: usize) {
        let (data, path) = (remember(&self.before_next(asker)), self.board.path(index));
        asker.ask(Opcode::SetData as i32, Errand::Set { index }, |out| {
            encode::set_data(out, &path, Some(&data), -1);
        });
    }

    fn group(&self, asker: &mut Asker, fails: bool) {
        let (data, board) = (remember(&self.before_next(asker)), &self.board);
        let errand = if fails { Errand::FailingGroup } else { Errand::Group };
        asker.ask(Opcode::Multi as i32, errand, |out| {
            for index in board.group() {
                MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
                encode::set_data(out, &board.path(index), Some(&data), -1);
            }
            if fails {
                MultiHeader { opcode: Opcode::Check as i32, done: false, err: -1 }.encode(out);
                encode::path_version(out, &board.path(0), i32::MAX);
            }
            MultiHeader::END.encode(out);
        });
    }

    fn get(&self, asker: &mut Asker, index: usize, watch: bool) {
        get(asker, Errand::Get { index, watch }, &self.board.path(index), watch);
    }

    /// A sync, and a read behind it.
    fn sync(&self, asker: &mut Asker, index: usize) {
        let (path, floor) = (self.board.path(index), self.board.floor(index));
        asker.ask(Opcode::Sync as i32, Errand::Other, |out| encode::path(out, &path));
        get(asker, Errand::Synced { index, floor }, &path, false);
    }

    /// A burst of requests, sent one right after the other.
    fn act(&mut self, asker: &mut Asker) {
        if self.is_operator && asker.rng.one_in(3) {
            let ids = asker.ids();
            let wish = Wish::any(&mut asker.rng, &ids, -1);
            asker.prove("digest", SUPER);
            return asker.ask(Opcode::Reconfig as i32, Errand::Reconfig, |out| wish.encode(out));
        }
        if self.board.has_programs && asker.rng.percent(40) {
            return self.have_programs_work(asker);
        }
        let count = self.board.count();
        let (kinds, sets_max) = if self.board.is_impatient { ([20, 65, 15], 20) } else { ([60, 20, 20], 9) };
        match asker.rng.weighted(&kinds) {
            1 => {
                for _ in 0..asker.rng.range(2, sets_max) {
                    let index = asker.rng.index(count);
                    self.set(asker, index);
                }
            }
            2 => {
                for _ in 0..asker.rng.range(2, 9) {
                    let index = asker.rng.index(2 * count);
                    self.get(asker, index, false);
                }
            }
            _ => (0..asker.rng.range(1, 6)).for_each(|_| self.any(asker)),
        }
    }

    /// One request, or two that belong together.
    fn any(&self, asker: &mut Asker) {
        let count = self.board.count();
        let index = asker.rng.index(2 * count);
        let top = self.board.path(index % count);
        match asker.rng.weighted(&[40, 25, 12, 4, 8, 6, 4, 6]) {
            0 => {
                let watch = asker.rng.percent(40);
                self.get(asker, index, watch);
            }
            1 => self.set(asker, index % count),
            2 => self.group(asker, false),
            3 => self.group(asker, true),
            4 => {
                let prefix = if asker.rng.percent(50) { "/e-".to_owned() } else { format!("{top}/e-") };
                create(asker, Errand::Other, &prefix, None, EPHEMERAL | SEQUENTIAL);
            }
            5 => {
                let path = format!("/t-{}", asker.rng.below(7));
                create(asker, Errand::Other, &path, None, 0);
            }
            6 => {
                let path = format!("/t-{}", asker.rng.below(5));
                asker.ask(Opcode::Delete as i32, Errand::Other, |out| encode::path_version(out, &path, -1));
            }
            _ => self.sync(asker, index),
        }
    }

    /// What it has asked for was done.
    fn done(&mut self, asker: &mut Asker, errand: &Errand, reader: &mut Reader<'_>) -> Checked {
        let broken = |_| Violation::new("a reply cannot be read");
        match *errand {
            Errand::Get { index, .. } | Errand::Synced { index, .. } => {
                let known = recall(reader.buffer().map_err(broken)?.unwrap_or_default());
                let version = Stat::decode(reader).map_err(broken)?.version;
                if let Errand::Synced { floor, .. } = *errand
                    && version < floor
                {
                    return wrong(format!(
                        "a read of {} behind a sync is of version {version}, after {floor} was acknowledged",
                        self.board.path(index)
                    ));
                }
                self.has_seen(asker, index, version, "read")?;
                let news = known.iter().find(|(index, version)| {
                    **index < 2 * self.board.count() && self.known.get(index).is_none_or(|it| it < version)
                });
                if let Some((index, _)) = news.filter(|_| asker.rng.one_in(2)) {
                    // Whoever hears of something looks whether it is there.
                    self.get(asker, *index, false);
                }
                known.iter().try_for_each(|(index, version)| self.learn(asker, *index, *version))?;
                if matches!(errand, Errand::Get { watch: true, .. }) {
                    self.watched.insert(index, version);
                }
            }
            Errand::Set { index } => {
                let version = Stat::decode(reader).map_err(broken)?.version;
                self.board.acknowledge(index, version);
                self.has_seen(asker, index, version, "written")?;
            }
            Errand::Group => {
                let results = MultiResults::decode(reader).map_err(broken)?;
                for (index, result) in self.board.group().zip(results) {
                    if let MultiResult::DataSet { stat } = result {
                        self.board.acknowledge(index, stat.version);
                        self.has_seen(asker, index, stat.version, "written")?;
                    }
                }
            }
            Errand::FailingGroup => {
                let results = MultiResults::decode(reader).map_err(broken)?;
                if results.iter().any(|result| matches!(result, MultiResult::DataSet { .. })) {
                    return wrong("a multi that must fail did not");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The client is shown a version of a znode.
    fn has_seen(&mut self, asker: &Asker, index: usize, version: i32, how: &str) -> Checked {
        let known = self.known.get(&index).copied().unwrap_or(0);
        if version < known {
            return wrong(format!(
                "version {version} of {} was {how} by session {:#x}, which knows of version {known}",
                self.board.path(index),
                asker.session()
            ));
        }
        if self.board.is_group(index) {
            for member in self.board.group() {
                self.learn(asker, member, version)?;
            }
        }
        self.learn(asker, index, version)
    }

    /// The client knows that a version of a znode exists, so an event must have told it if it watches.
    fn learn(&mut self, asker: &Asker, index: usize, version: i32) -> Checked {
        if let Some(watched) = self.watched.get(&index).filter(|watched| **watched < version) {
            return wrong(format!(
                "session {:#x} watches znode {index} at version {watched}, and was shown what follows \
                 version {version} before any event",
                asker.session()
            ));
        }
        let known = self.known.entry(index).or_insert(version);
        *known = version.max(*known);
        Ok(())
    }
}

fn get(asker: &mut Asker, errand: Errand, path: &str, watch: bool) {
    asker.ask(Opcode::GetData as i32, errand, |out| encode::path_watch(out, path, watch));
}

fn create(asker: &mut Asker, errand: Errand, path: &str, data: Option<&[u8]>, flags: i32) {
    asker.ask(Opcode::Create as i32, errand, |out| encode::create(out, path, data, OPEN_ACL, flags, None));
}

impl Workload for Witness {
    type Errand = Errand;

    fn seen(&self) -> i64 {
        self.last_zxid
    }

    fn watches(&self) -> bool {
        !self.watched.is_empty()
    }

    fn burst(&mut self, asker: &mut Asker, _: &mut Judges, room: usize) {
        let is_founded = self.board.is_founded.get();
        let founds = !is_founded && asker.index == self.board.founder && asker.is_idle();
        if founds || (is_founded && room > 0) {
            self.come_in(asker);
            if founds { self.found(asker) } else { self.act(asker) }
        }
    }

    fn close(&mut self, asker: &mut Asker, _: &mut Judges) {
        self.come_in(asker);
        asker.ask(Opcode::CloseSession as i32, Errand::Other, |_| {});
    }

    fn may_leave(&self) -> bool {
        self.board.is_founded.get()
    }

    /// A write to every plain znode, and one to the group.
    fn last_words(&mut self, asker: &mut Asker, _: &mut Judges) {
        self.come_in(asker);
        self.group(asker, false);
        for index in 0..self.board.count() {
            self.set(asker, index);
        }
    }

    fn welcomed(&mut self, _: &mut Asker, _: &mut Judges, _: bool) -> Checked {
        self.has_come = true;
        Ok(())
    }

    /// Begins anew, with what it knows or without; watches end with the session.
    fn forget(&mut self, asker: &mut Asker) {
        self.watched.clear();
        self.programs.forget();
        if asker.rng.percent(50) {
            self.known.clear();
            self.last_zxid = 0;
        }
    }

    fn lost(&mut self, asker: &Asker) {
        self.has_come = false;
        self.leave_programs(asker);
    }

    fn told(&mut self, asker: &Asker, _: &mut Judges, _: i64, event: &WatcherEvent<'_>) -> Checked {
        if let Some(index) = self.board.index(event.path) {
            self.watched.remove(&index);
        }
        self.told_of(asker, event.path)
    }

    fn answered(
        &mut self,
        asker: &mut Asker,
        _: &mut Judges,
        errand: Errand,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Checked {
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        match errand {
            Errand::Program(job) => self.programs_answered(asker, job, header.err, reader),
            Errand::Found => {
                self.has_failed |= ![0, NODE_EXISTS].contains(&header.err);
                if asker.is_idle() && !self.has_failed {
                    self.board.is_founded.set(true);
                }
                Ok(())
            }
            // Nobody deletes it.
            Errand::Set { .. } | Errand::Group if header.err == NO_NODE => {
                Err(asker.wrong(&format!("{errand:?} was answered as if what it writes were not there")))
            }
            errand if header.err == 0 => self.done(asker, &errand, reader),
            _ => Ok(()),
        }
    }
}
