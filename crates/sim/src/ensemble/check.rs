//! What a client must be able to expect, checked against the committed timeline.

use super::history::{Did, Effect, History, Seen, tag};
use super::roster::{Role, Roster, Wish};
use super::workload::{COUNT, Demand, PROGRAM, Question};
use std::collections::BTreeMap;
use stoa_check::{Checked, Violation, wrong};
use stoa_wire::{ErrorCode, EventKind, MultiResult, MultiResults, Reader, ReplyHeader, Stat, WatcherEvent};

const SYSTEM_ERROR: i32 = ErrorCode::SystemError as i32;

/// The newest zxid that any client has been shown. Whoever asks for a write or a sync afterwards must
/// not be answered from before it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Horizon {
    zxid: i64,
}

impl Horizon {
    pub(super) fn zxid(&self) -> i64 {
        self.zxid
    }

    pub(super) fn seen(&mut self, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
    }
}

/// The three lists of setWatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchKind {
    /// On a znode that was there.
    Data,
    /// On one that was not.
    Exist,
    Child,
}

impl WatchKind {
    fn events(self) -> &'static [EventKind] {
        match self {
            Self::Data | Self::Exist => &[EventKind::Created, EventKind::DataChanged, EventKind::Deleted],
            Self::Child => &[EventKind::ChildrenChanged, EventKind::Deleted],
        }
    }
}

/// The watches of a client, and what it has seen: the order of events and answers.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// Since which zxid.
    set: BTreeMap<(WatchKind, String), i64>,
    /// Set on the connection before, and not yet on this one.
    unset: BTreeMap<(WatchKind, String), i64>,
    /// Replayed events, whose zxid the server does not know.
    replayed: Vec<(String, i64)>,
    event: i64,
    replied: i64,
}

impl Watching {
    /// The newest zxid that the client has been shown.
    pub(super) fn seen(&self) -> i64 {
        self.replied.max(self.event)
    }

    /// The newest zxid of an answer: all events up to it have come.
    pub(super) fn replied(&self) -> i64 {
        self.replied
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }

    /// The znodes watched in this way.
    pub(super) fn paths(&self, kind: WatchKind) -> Vec<&str> {
        let keys = self.set.keys().chain(self.unset.keys());
        keys.filter(|(it, _)| *it == kind).map(|(_, path)| path.as_str()).collect()
    }

    /// The connection has ended: no server has the watches any more.
    pub(super) fn disconnected(&mut self) {
        self.unset.append(&mut self.set);
        self.replayed.clear();
    }

    fn add(&mut self, kind: WatchKind, path: &str, zxid: i64) {
        self.set.entry((kind, path.to_owned())).or_insert(zxid);
    }

    /// An event has come.
    pub(super) fn event(&mut self, zxid: i64, event: &WatcherEvent<'_>, history: &History) -> Checked {
        let path = event.path;
        let Some(kind) = EventKind::from_i32(event.kind) else { return wrong("an event of no known kind") };
        let matching = |watches: &BTreeMap<(WatchKind, String), i64>| -> Vec<(WatchKind, String)> {
            let fits = |(it, at): &(WatchKind, String)| at == path && it.events().contains(&kind);
            watches.keys().filter(|key| fits(key)).cloned().collect()
        };
        if zxid == -1 {
            let missed = matching(&self.unset);
            let since = missed.iter().filter_map(|key| self.unset.remove(key)).min();
            let Some(since) = since else {
                // A znode that is gone is told of once for each list that names it.
                if self.replayed.iter().any(|(told, _)| told == path) {
                    return Ok(());
                }
                return wrong(format!("{kind:?} of {path} was replayed, which it does not watch"));
            };
            self.replayed.push((path.to_owned(), since));
            return Ok(());
        }
        if zxid < self.event || zxid <= self.replied {
            return wrong(format!(
                "{kind:?} of {path} at zxid {zxid} comes behind zxid {} of an event and {} of an answer",
                self.event, self.replied
            ));
        }
        self.event = zxid;
        if history.event(path, &[kind], zxid - 1, zxid).is_none() {
            return wrong(format!("{kind:?} of {path} at zxid {zxid} did not happen"));
        }
        let fired = matching(&self.set);
        if fired.is_empty() {
            return wrong(format!("{kind:?} of {path} at zxid {zxid}, which it does not watch"));
        }
        for key in fired {
            let since = self.set.remove(&key).unwrap_or(0);
            let first = history.event(path, key.0.events(), since, zxid);
            if first != Some(zxid) {
                return wrong(format!(
                    "{path} was watched since {since}, changed at {first:?}, told at {zxid}"
                ));
            }
        }
        Ok(())
    }

    /// An answer with this zxid has come: nothing goes back, and no event is missing before it.
    pub(super) fn reply(&mut self, zxid: i64, history: &History) -> Checked {
        if zxid < self.seen() {
            return wrong(format!("it is shown zxid {zxid} after {}", self.seen()));
        }
        self.replied = zxid;
        for ((kind, path), since) in &self.set {
            if let Some(missed) = history.event(path, kind.events(), *since, zxid) {
                return wrong(format!(
                    "an answer shows zxid {zxid}, and the change of {path} at {missed} was not told; \
                     it has been watched since {since}"
                ));
            }
        }
        Ok(())
    }

    /// setWatches was answered: every watch is set again or has been told of what it missed.
    fn set_again(&mut self, zxid: i64, history: &History) -> Checked {
        for (path, since) in std::mem::take(&mut self.replayed) {
            let kinds = [WatchKind::Data, WatchKind::Child].map(WatchKind::events).concat();
            if history.event(&path, &kinds, since, zxid).is_none() {
                return wrong(format!("{path} has not changed since {since}, and an event was replayed"));
            }
        }
        for ((kind, path), since) in std::mem::take(&mut self.unset) {
            let missed = match kind {
                WatchKind::Data | WatchKind::Child => history.event(&path, kind.events(), since, zxid),
                WatchKind::Exist => history.znode(&path, zxid).map(|seen| seen.stat.czxid),
            };
            if let Some(missed) = missed {
                return wrong(format!("the change of {path} at {missed} was not replayed, seen {since}"));
            }
            self.add(kind, &path, zxid);
        }
        Ok(())
    }
}

/// An answer, with what is needed to judge it.
pub(super) struct Answered<'a> {
    pub(super) client: usize,
    /// 0 when it has none.
    pub(super) session: i64,
    pub(super) only_reads: bool,
    pub(super) asked: &'a Question,
    pub(super) header: ReplyHeader,
    pub(super) body: &'a [u8],
    pub(super) history: &'a History,
}

impl Answered<'_> {
    /// Compares the answer with the timeline.
    pub(super) fn check(&self, watches: &mut Watching) -> Checked {
        let Self { asked, header, history, .. } = self;
        if asked.what == Demand::SetWatches {
            return watches.set_again(header.zxid, history);
        }
        if asked.what == Demand::Count {
            return self.counted();
        }
        if self.only_reads && (asked.what.is_write() || asked.what == Demand::Sync) {
            return self.refused_by_reader();
        }
        let refused_here =
            [ErrorCode::SystemError, ErrorCode::MarshallingError, ErrorCode::EphemeralOnLocalSession];
        let is_refused_here = refused_here.iter().any(|code| *code as i32 == header.err);
        let closes_local =
            asked.what == Demand::Close && header.err == 0 && !history.is_global(self.session, header.zxid);
        if closes_local {
            return Ok(());
        }
        if header.zxid < asked.floor && !is_refused_here {
            return wrong(format!("zxid {} had been seen before it was asked", asked.floor));
        }
        if !asked.what.is_write() {
            return self.read(watches);
        }
        if header.err == 0 { self.done() } else { self.refused() }
    }

    fn find(&self) -> Result<&Effect, Violation> {
        let zxid = self.header.zxid;
        let Some(done) = self.history.update(zxid) else { return wrong("it is not in the timeline") };
        // The timeline does not know those that their contact server alone keeps.
        let is_local = done.session == 0 && !self.history.is_global(self.session, zxid);
        if done.session != self.session && !is_local {
            return wrong(format!("the update with its zxid is one of session {:#x}", done.session));
        }
        if zxid <= self.asked.floor {
            return wrong(format!("zxid {} had been seen before it was asked", self.asked.floor));
        }
        Ok(done)
    }

    /// An acknowledged write is in the timeline, with this result.
    fn done(&self) -> Checked {
        let mut reader = Reader::new(self.body);
        let unreadable = |error| Violation::new(format!("a result cannot be read: {error}"));
        if let Demand::SetBoth { .. } = self.asked.what {
            let results = MultiResults::decode(&mut reader).map_err(unreadable)?;
            return self.multi(&results);
        }
        let done = self.find()?;
        let mut stat = || Stat::decode(&mut reader).map_err(unreadable);
        match (&self.asked.what, &done.did[..]) {
            (Demand::Set { path, version }, [Did::DataSet { stat: set }]) => {
                if stat()? != *set || (*version >= 0 && set.version != version + 1) {
                    return wrong(format!("the timeline says {set:?}"));
                }
                self.wrote(path)
            }
            (Demand::Delete { path }, [Did::Deleted]) => {
                let deleted = (EventKind::Deleted, path.clone());
                if done.changes.contains(&deleted) { Ok(()) } else { wrong("another znode was deleted") }
            }
            (Demand::Reconfig(wish), [Did::DataSet { stat: set }]) => {
                let list = reader.str().map_err(unreadable)?;
                let stat = Stat::decode(&mut reader).map_err(unreadable)?;
                if stat != *set {
                    return wrong(format!("the timeline says {set:?}"));
                }
                self.reconfigured(wish, list)
            }
            (Demand::Register, [.., Did::Created { path, .. }]) if path.starts_with(PROGRAM) => Ok(()),
            (Demand::Acknowledge, [Did::Created { path, .. }]) if path.starts_with(PROGRAM) => Ok(()),
            (Demand::Close, [Did::Closed { session }]) if *session == self.session => Ok(()),
            (Demand::Create { path, sequential }, [Did::Created { path: created, stat: at_birth }]) => {
                let told = reader.str().map_err(unreadable)?;
                let stat = Stat::decode(&mut reader).map_err(unreadable)?;
                let fits = if *sequential { created.starts_with(path) } else { created == path };
                if told != created || !fits || stat != *at_birth {
                    return wrong(format!("the timeline says that {created} was created"));
                }
                self.wrote(created)
            }
            (_, did) => wrong(format!("the timeline says {did:?}")),
        }
    }

    /// The list of servers is what was asked for, and what was answered.
    fn reconfigured(&self, wish: &Wish, told: &str) -> Checked {
        let zxid = self.header.zxid;
        let Some((before, version)) = self.history.roster(zxid - 1) else {
            return wrong("there was no list of servers to be changed");
        };
        if wish.version != -1 && wish.version != version {
            return wrong(format!("the list of servers was another one, of version {version}"));
        }
        let expected = (before.changed(wish), zxid);
        let answers = [Roster::read(told), self.history.roster(zxid)];
        if answers.iter().all(|list| list.as_ref() == Some(&expected)) {
            return Ok(());
        }
        wrong(format!("not {expected:?}, but {answers:?}"))
    }

    fn is_reconfig_refused(&self, wish: &Wish, code: ErrorCode) -> bool {
        let roster = self.history.roster(self.header.zxid);
        match (code, roster) {
            (ErrorCode::Unimplemented, None) => true,
            (ErrorCode::ReconfigInProgress | ErrorCode::NewConfigNoQuorum, Some(_)) => true,
            (ErrorCode::BadVersion, Some((_, version))) => ![-1, version].contains(&wish.version),
            (ErrorCode::BadArguments, Some((roster, _))) => {
                roster.changed(wish).with(Role::Participant).is_empty()
            }
            _ => false,
        }
    }

    fn multi(&self, results: &[MultiResult<'_>]) -> Checked {
        let failed = |result: &MultiResult<'_>| matches!(result, MultiResult::Error(_));
        if results.iter().any(failed) {
            return if results.iter().all(failed) { self.refused() } else { wrong("half a multi was done") };
        }
        let done = self.find()?;
        let stats: Vec<Did> = results
            .iter()
            .filter_map(|result| match result {
                MultiResult::DataSet { stat } => Some(Did::DataSet { stat: *stat }),
                _ => None,
            })
            .collect();
        if stats != done.did || stats.len() != results.len() {
            return wrong(format!("the timeline says {:?}", done.did));
        }
        let Demand::SetBoth { paths } = &self.asked.what else { return wrong("a multi was not asked for") };
        paths.iter().try_for_each(|path| self.wrote(path))
    }

    fn wrote(&self, path: &str) -> Checked {
        let expected = tag(self.client, self.asked.write);
        let seen = self.history.znode(path, self.header.zxid);
        if seen.is_some_and(|seen| seen.data.as_deref() == Some(&expected)) {
            return Ok(());
        }
        wrong(format!("{path} has not got what it wrote, but {seen:?}"))
    }

    /// A server that only reads refuses everything else, and what was refused is not done. What it gave
    /// its client in place of a session can be closed.
    fn refused_by_reader(&self) -> Checked {
        let Self { asked, header, .. } = self;
        if asked.what.is_write() && self.history.has_written(self.client, asked.write) {
            return wrong("it was refused, and done");
        }
        let closes_nothing = asked.what == Demand::Close && self.session == 0;
        let expected = if closes_nothing { ErrorCode::Ok } else { ErrorCode::NotReadOnly };
        if header.err == expected as i32 { Ok(()) } else { wrong("the server only reads") }
    }

    /// A program that counts has done so once for this answer: the update with its zxid is one of this session, and
    /// what it has left is what was answered.
    fn counted(&self) -> Checked {
        let no_node = ErrorCode::NoNode as i32;
        let refused = [ErrorCode::SystemError, ErrorCode::SessionMoved, ErrorCode::SessionExpired];
        match self.header.err {
            // The program is not for this session, or the server only reads: there is no such znode.
            err if err == no_node || refused.iter().any(|code| *code as i32 == err) => Ok(()),
            0 if self.only_reads => wrong("a server that only reads has counted"),
            0 => {
                self.find()?;
                let count = self.history.znode(COUNT, self.header.zxid);
                let told = Reader::new(self.body).buffer().ok().flatten();
                if told.is_some() && count.and_then(|seen| seen.data.as_deref()) == told {
                    return Ok(());
                }
                wrong(format!("it was told {told:?}, the timeline says {count:?}"))
            }
            _ => wrong("it did not count"),
        }
    }

    /// A refusal is true where it stands, and what was refused is not done.
    fn refused(&self) -> Checked {
        if self.history.has_written(self.client, self.asked.write) {
            return wrong("it was refused, and done");
        }
        let Some(code) = ErrorCode::from_i32(self.header.err) else { return wrong("an unknown error") };
        let at = |path: &str| self.history.znode(path, self.header.zxid);
        let is_true = match (&self.asked.what, code) {
            (_, ErrorCode::SystemError | ErrorCode::SessionMoved | ErrorCode::SessionExpired) => true,
            (what, ErrorCode::EphemeralOnLocalSession) => {
                what.needs_owner() && !self.history.is_global(self.session, self.header.zxid)
            }
            (Demand::Reconfig(wish), code) => self.is_reconfig_refused(wish, code),
            (Demand::Register, ErrorCode::NodeExists) => at(PROGRAM).is_some(),
            (Demand::Acknowledge, ErrorCode::NoNode) => at(PROGRAM).is_none(),
            (Demand::Create { path, sequential: false }, ErrorCode::NodeExists) => at(path).is_some(),
            (Demand::Create { sequential: true, .. }, ErrorCode::NoNode) => at("/sequence").is_none(),
            (Demand::Set { path, .. } | Demand::Delete { path }, ErrorCode::NoNode) => at(path).is_none(),
            (Demand::Set { path, version }, ErrorCode::BadVersion) => {
                at(path).is_some_and(|seen| seen.stat.version != *version)
            }
            (Demand::SetBoth { paths }, ErrorCode::Ok) => paths.iter().any(|path| at(path).is_none()),
            _ => false,
        };
        if is_true { Ok(()) } else { wrong("that was not so") }
    }

    /// A read shows exactly what is true at its zxid.
    fn read(&self, watches: &mut Watching) -> Checked {
        let Self { asked, header, history, .. } = self;
        let (path, watch, kind) = match &asked.what {
            Demand::Get { path, watch } | Demand::Exists { path, watch } => (path, *watch, WatchKind::Data),
            Demand::Children { path, watch } => (path, *watch, WatchKind::Child),
            // A server that is alone refuses one that waits for writes which its log refuses.
            _ if matches!(header.err, 0 | SYSTEM_ERROR) => return Ok(()),
            _ => return wrong("a sync failed"),
        };
        let expected = history.znode(path, header.zxid);
        let exists = matches!(asked.what, Demand::Exists { .. });
        let Some(expected) = expected else {
            if watch && exists {
                watches.add(WatchKind::Exist, path, header.zxid);
            }
            // The root is never written: it is there, as it was born.
            let is_root = path == "/" && header.err == 0;
            if watch && is_root {
                watches.add(kind, path, header.zxid);
            }
            let is_true = header.err == ErrorCode::NoNode as i32 || is_root;
            return if is_true { Ok(()) } else { wrong("there is no such znode") };
        };
        if watch {
            watches.add(kind, path, header.zxid);
        }
        if header.err != 0 {
            return wrong(format!("the znode was there: {expected:?}"));
        }
        self.shows(expected)
    }

    fn shows(&self, expected: &Seen) -> Checked {
        let mut reader = Reader::new(self.body);
        let unreadable = |error| Violation::new(format!("a result cannot be read: {error}"));
        match &self.asked.what {
            Demand::Get { .. } => {
                let data = reader.buffer().map_err(unreadable)?;
                if data != expected.data.as_deref() {
                    return wrong(format!("the timeline says {expected:?}, not {data:?}"));
                }
            }
            Demand::Children { path, .. } => {
                let count = reader.count(4).map_err(unreadable)?;
                let names: Result<Vec<&str>, _> = (0..count).map(|_| reader.str()).collect();
                let names = names.map_err(unreadable)?;
                let wanted = self.history.children(path, self.header.zxid);
                if names != wanted {
                    return wrong(format!("the children {names:?}, the timeline says {wanted:?}"));
                }
            }
            _ => {}
        }
        let stat = Stat::decode(&mut reader).map_err(unreadable)?;
        if stat == expected.stat { Ok(()) } else { wrong(format!("{stat:?}, not {:?}", expected.stat)) }
    }
}
