//! Requests that a program carries out in place of the service.

use super::Extensions;
use super::here::HereHost;
use super::item::{Answer, Ran, Record, Watch};
use super::pause::greed;
use crate::counts::Proposals;
use crate::entry::{Items, Outcome, begin_ran, put_untaken};
use crate::partition::Partition;
use crate::time::Now;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_extension::{CallError, Failure, OperationKind, Program, Reply, Request as Operation, Used};
use stoa_timeline::Origin;
use stoa_tree::{Caller, Found, LackedTokens, Part, Refusal, Stamp, WatchMode};
use stoa_wire::{CreateMode, ErrorCode, Opcode, Reader, Request, Stat, put};

/// Why a request is not proposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProposed {
    /// It is refused.
    Refused(Refusal),
    /// Programs have needed tokens of other sites for it, so it is to be asked elsewhere, or later. Never the case without
    /// an origin, nor of the end of a session: there what programs would do with them is left out.
    LacksTokens(LackedTokens),
}

impl NotProposed {
    /// Who cannot ask elsewhere refuses it: the client may ask once more, and is heard where it can be.
    #[must_use]
    pub fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::LacksTokens(_) => ErrorCode::OperationTimeout.into(),
        }
    }
}

impl<R: Into<Refusal>> From<R> for NotProposed {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

/// What there was before something was prepared that may have to be taken back.
struct Attempt {
    part: Part,
    start: usize,
    zxid: i64,
    made: Proposals,
}

/// What a request is to programs; `None` for those that no program carries out.
fn operation<'a>(request: &Request<'a>, session: i64) -> Option<Operation<'a>> {
    let of = |kind, path, data: Option<&'a [u8]>, version| Operation {
        kind,
        path,
        data: data.unwrap_or_default(),
        version,
        session,
        ephemeral: false,
        sequential: false,
    };
    Some(match *request {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => {
            let mode = CreateMode::from_i32(create.flags);
            Operation {
                ephemeral: mode.is_some_and(CreateMode::is_ephemeral),
                sequential: mode.is_some_and(CreateMode::is_sequential),
                ..of(OperationKind::Create, create.path, create.data, -1)
            }
        }
        Request::Delete { path, version } => of(OperationKind::Delete, path, None, version),
        Request::SetData { path, data, version } => of(OperationKind::Update, path, data, version),
        Request::GetData { path, .. } => of(OperationKind::Read, path, None, -1),
        Request::GetChildren { path, .. } | Request::GetChildren2 { path, .. } => {
            of(OperationKind::SubObjects, path, None, -1)
        }
        Request::Exists { path, watch: true } => of(OperationKind::Block, path, None, -1),
        _ => return None,
    })
}

/// What a program is asked instead of the applied state, if it is asked.
fn read_kind(opcode: Opcode) -> Option<OperationKind> {
    match opcode {
        Opcode::GetData => Some(OperationKind::Read),
        Opcode::GetChildren | Opcode::GetChildren2 => Some(OperationKind::SubObjects),
        Opcode::Exists => Some(OperationKind::Block),
        _ => None,
    }
}

/// Whether a request is on the timeline only for its place there: it is answered where it came in.
fn changes_nothing(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::GetChildren2 { .. }
            | Request::Exists { .. }
            | Request::GetAcl { .. }
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::MultiRead(_)
            | Request::SetWatches(_)
            | Request::SetWatches2(_)
            | Request::AddWatch { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::WhoAmI
            | Request::Sync { .. }
    )
}

impl Extensions {
    /// Whether a program decides when a session that waits for a znode at a path has waited long enough.
    pub fn blocks(&self, session: i64, path: &str) -> bool {
        let registry = &self.registry;
        registry.concerns(session) && registry.operation_for(session, OperationKind::Block, path).is_some()
    }

    /// The steps of a call or reaction that somebody has to pay for. One that was stopped by whatever limit has taken
    /// all that it may.
    pub(super) fn steps_to_pay(&self, used: Used, error: Option<&CallError>) -> u64 {
        let allowed = self.limits.of_call.steps;
        let is_stopped = error.is_some_and(|error| matches!(error.failure, Failure::Limit { .. }));
        greed(if is_stopped { allowed } else { used.steps }, allowed)
    }
}

impl Partition {
    /// Whether a read is one that a program carries out for this session: then it goes the way of writes.
    #[inline]
    pub fn runs_for(&self, session: i64, opcode: Opcode, body: &Reader<'_>) -> bool {
        self.extensions.registry.concerns(session) && self.takes_read(session, opcode, *body)
    }

    #[cold]
    fn takes_read(&self, session: i64, opcode: Opcode, mut body: Reader<'_>) -> bool {
        let Some(kind) = read_kind(opcode) else { return false };
        let (path, watch) = (body.path(), body.bool());
        let (Ok(path), Ok(watch)) = (path, watch) else { return false };
        let waits = kind != OperationKind::Block || watch;
        waits && self.extensions.registry.operation_for(session, kind, path).is_some()
    }

    /// Prepares a request and, if it is not refused, proposes the update: what a program does with it, if one
    /// carries it out for this session, or else what the request says; and what programs do when that happens. Where
    /// there are several sites the tokens of what the request itself says are held here; who has looked for that may have
    /// found the znode.
    ///
    /// # Errors
    /// Why nothing is proposed.
    pub fn propose(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        found: Option<&Found<'_>>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), NotProposed> {
        let is_end = matches!(request, Request::CloseSession);
        self.extensions.request.tokens.begin(is_end || origin.is_none());
        if self.extensions.registry.concerns(caller.session) {
            self.check_multi(caller.session, request)?;
            if let Some(done) = self.propose_operation(origin, request, caller, now) {
                return done;
            }
        }
        if let (true, Some(origin)) = (changes_nothing(request), origin) {
            // It was for a program when it came in elsewhere, and is for none now; or it comes from somebody of whom
            // not all may know.
            put_untaken(&mut self.entry, origin);
            return Ok(());
        }
        if let Some(done) = self.propose_registration(origin, request, caller, now) {
            return Ok(done?);
        }
        let answers_site =
            matches!(request, Request::Multi(_)) && origin.is_some_and(|origin| origin.site != 0);
        if !self.extensions.may_react(request) {
            let start = self.entry.len();
            self.propose_plain(origin, request, found, caller, now)?;
            if answers_site {
                self.answer_site(start, origin);
            }
            return Ok(());
        }
        let ending = if is_end { self.ending(caller.session) } else { Vec::new() };
        let before = self.begin_attempt(now);
        let start = self.entry.len();
        let prepared = self.propose_plain(origin, request, found, caller, now);
        if prepared.is_ok() {
            self.react_to(start, origin, &ending, now);
            if answers_site {
                self.answer_site(start, origin);
            }
        }
        self.end_attempt(before)?;
        Ok(prepared?)
    }

    /// The outcome of a multi that another site has asked for says what its client is told: that site may be divided over
    /// partitions, of which none has all of it.
    fn answer_site(&mut self, start: usize, origin: Option<Origin>) {
        let Some(Ok(item)) = Items::new(&self.entry[start..]).next() else { return };
        let (update, record, count) = match item.outcome {
            Outcome::Update(update) => (update, None, usize::MAX),
            Outcome::Ran(ran @ Ran { update: Some(update), .. }) => {
                let record = ran.record();
                let Answer::Results(count) = record.answer else { return };
                (update, Some(record), count)
            }
            _ => return,
        };
        let body = self.tree.reply_to_multi(&update, count);
        let answer = Answer::Reply { err: 0, body: &body };
        let nothing = Record { answer, watch: None, muted: Vec::new(), told: Vec::new() };
        let record = Record { answer, ..record.unwrap_or(nothing) };
        let (pause_us, mut said) = (item.pause_us, Vec::new());
        begin_ran(&mut said, origin, pause_us, |out| record.encode(out));
        update.encode(&mut said);
        self.entry.truncate(start);
        self.entry.extend_from_slice(&said);
    }

    /// Notes what there is before something is prepared that may have to be taken back.
    fn begin_attempt(&mut self, now: Now) -> Option<Attempt> {
        self.tree.own_site()?;
        let part = self.tree.part_begin(self.next_stamp(now), Caller::REACTION);
        Some(Attempt { part, start: self.entry.len(), zxid: self.proposed_zxid, made: self.made })
    }

    /// Takes back what was prepared since, if that has needed tokens that are not held here.
    fn end_attempt(&mut self, before: Option<Attempt>) -> Result<(), NotProposed> {
        let Some(Attempt { part, start, zxid, made }) = before else { return Ok(()) };
        if !self.extensions.request.tokens.are_lacking() {
            // What it holds is in the entry already.
            self.tree.part_keep(part, &mut Vec::new());
            return Ok(());
        }
        self.tree.part_undo(part);
        self.entry.truncate(start);
        (self.proposed_zxid, self.made) = (zxid, made);
        Err(NotProposed::LacksTokens(self.extensions.request.tokens.take()))
    }

    /// The tokens that programs have needed for what was prepared last.
    pub fn take_needed_tokens(&mut self) -> BTreeSet<String> {
        self.extensions.request.tokens.take().needed
    }

    /// Whether programs may have a part in what becomes of a request: then it shows when it is prepared which tokens that
    /// takes.
    pub fn may_run(&self, session: i64, request: &Request<'_>) -> bool {
        self.is_taken(session, request) || self.extensions.may_react(request)
    }

    /// Whether a program carries out a request of this session.
    #[inline]
    pub fn is_taken(&self, session: i64, request: &Request<'_>) -> bool {
        let registry = &self.extensions.registry;
        registry.concerns(session)
            && operation(request, session).is_some_and(|operation| {
                registry.operation_for(session, operation.kind, operation.path).is_some()
            })
    }

    /// Refuses a multi with an operation that a program carries out for this session. Without the program it would
    /// be another operation than the one that was asked for; and what a program does and answers is not what stands in
    /// the results of a multi.
    pub fn check_multi(&self, session: i64, request: &Request<'_>) -> Result<(), Refusal> {
        let Request::Multi(ops) = request else { return Ok(()) };
        match ops.iter().position(|op| self.is_taken(session, &op)) {
            Some(failed) => Err(Refusal::Multi { count: ops.len(), failed, code: ErrorCode::Unimplemented }),
            None => Ok(()),
        }
    }

    /// Has a program carry out a request, if one does.
    #[cold]
    fn propose_operation(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Option<Result<(), NotProposed>> {
        let operation = operation(request, caller.session)?;
        let program = self.extensions.registry.operation_for(caller.session, operation.kind, operation.path);
        let program = program.cloned()?;
        Some(self.call(origin, &program, request, &operation, caller, now))
    }

    fn call(
        &mut self,
        origin: Option<Origin>,
        program: &Arc<Program>,
        request: &Request<'_>,
        operation: &Operation<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), NotProposed> {
        self.check_pause(program.name(), caller.session, now)?;
        let (stamp, mut used) = (self.next_stamp(now), Used::default());
        let began_us = self.extensions.now_us();
        self.note_contents();
        let mut part = self.tree.part_begin(stamp, caller.session);
        let Extensions { home, request: state, .. } = &mut self.extensions;
        let mut host = HereHost::new(home, &mut state.tokens, &mut self.tree, &mut part, *caller);
        let called = program.operation(&mut host, operation, &mut used);
        if self.extensions.request.tokens.are_lacking() {
            // It counts where it is carried out, and what it came to with what may be old here says nothing.
            return self.lacks_tokens(part);
        }
        self.extensions.count_timed(program.name(), used, called.is_err(), began_us);
        self.charge(program.name(), caller.session, used, called.as_ref().err(), now);
        let reply = match called {
            Ok(reply) => reply,
            Err(error) => {
                self.tree.part_undo(part);
                let text = format!("{}: {error}", program.name());
                self.extensions.warn(format!("a call of {text}"));
                self.extensions.request.failure = Some(text);
                return Err(error.code().into());
            }
        };
        let (err, body, watch) = self.answer(request, &reply, caller, stamp);
        let reactions = self.react(&mut part, None, now);
        if self.extensions.request.tokens.are_lacking() {
            self.extensions.request.pause_us = 0;
            return self.lacks_tokens(part);
        }
        let record = Record {
            answer: Answer::Reply { err, body: &body },
            watch,
            muted: reactions.muted(),
            told: reactions.told(),
        };
        self.put_ran(origin, &record, part);
        Ok(())
    }

    /// Takes back what a call has done, as it has needed tokens that are not held here.
    fn lacks_tokens(&mut self, part: Part) -> Result<(), NotProposed> {
        self.tree.part_undo(part);
        Err(NotProposed::LacksTokens(self.extensions.request.tokens.take()))
    }

    /// Refuses a call of a session that has to wait: it had asked for it before it knew.
    fn check_pause(&mut self, program: &str, session: i64, now: Now) -> Result<(), Refusal> {
        let pause_us = self.extensions.pauses.of(&session, now.mono_us);
        if pause_us == 0 {
            return Ok(());
        }
        if let Some(stats) = self.extensions.stats.get_mut(program) {
            stats.throttled += 1;
        }
        let text = format!(
            "{program}: not carried out: an earlier call took more than half of its steps or was stopped by a \
             limit, so the session has to wait, for {} ms from now",
            pause_us.div_ceil(1000)
        );
        self.extensions.request.failure = Some(text);
        Err(ErrorCode::ThrottledOp.into())
    }

    /// Has a session wait for what a call of it has taken.
    fn charge(&mut self, program: &str, session: i64, used: Used, error: Option<&CallError>, now: Now) {
        let extensions = &mut self.extensions;
        let steps = extensions.steps_to_pay(used, error);
        extensions.request.pause_us = extensions.pauses.charge(session, steps, now.mono_us);
        if extensions.request.pause_us > 0
            && let Some(stats) = extensions.stats.get_mut(program)
        {
            stats.pauses += 1;
        }
    }

    /// The client's reply, and the watch that its request leaves behind.
    fn answer<'a>(
        &self,
        request: &Request<'a>,
        reply: &'a Reply,
        caller: &Caller<'_>,
        stamp: Stamp,
    ) -> (i32, Vec<u8>, Option<Watch<'a>>) {
        let mut body = Vec::new();
        let data: &[u8] = if let Reply::Data(data) = reply { data } else { &[] };
        let mut watched = None;
        match *request {
            Request::GetData { path, watch } => {
                put::buffer(&mut body, data);
                self.stat(path, caller, stamp, data.len(), 0).encode(&mut body);
                watched = watch.then_some((path, WatchMode::Data));
            }
            Request::GetChildren { path, watch } | Request::GetChildren2 { path, watch } => {
                let names: &[String] = if let Reply::Names(names) = reply { names } else { &[] };
                put::len(&mut body, names.len());
                names.iter().for_each(|name| put::str(&mut body, name));
                if matches!(request, Request::GetChildren2 { .. }) {
                    self.stat(path, caller, stamp, 0, names.len()).encode(&mut body);
                }
                watched = watch.then_some((path, WatchMode::Child));
            }
            Request::Exists { path, .. } => {
                let waits_for = if let Reply::Blocked(path) = reply { path.as_str() } else { path };
                let is_there = self.tree.proposed_exists(waits_for, caller) == Ok(true);
                if matches!(reply, Reply::Blocked(_)) && !is_there {
                    let watch = Watch { path: waits_for, known_as: path, mode: WatchMode::Data };
                    return (ErrorCode::NoNode as i32, body, Some(watch));
                }
                self.stat(waits_for, caller, stamp, data.len(), 0).encode(&mut body);
            }
            Request::SetData { path, .. } => {
                self.stat(path, caller, stamp, data.len(), 0).encode(&mut body);
            }
            Request::Create(create) => put::str(&mut body, created(data, create.path)),
            Request::Create2(create) | Request::CreateContainer(create) | Request::CreateTtl(create) => {
                let path = created(data, create.path);
                put::str(&mut body, path);
                self.stat(path, caller, stamp, 0, 0).encode(&mut body);
            }
            _ => {}
        }
        let watch = watched.map(|(path, mode)| Watch { path, known_as: path, mode });
        (ErrorCode::Ok as i32, body, watch)
    }

    /// The Stat of a znode as it will be, if the caller may see it. Where there is none, it is that of a znode
    /// which was made just now.
    fn stat(
        &self,
        path: &str,
        caller: &Caller<'_>,
        stamp: Stamp,
        data_length: usize,
        children: usize,
    ) -> Stat {
        let may_see = self.tree.proposed_znode(path, caller).is_ok();
        let known = may_see.then(|| self.tree.stat_to_be(path)).flatten();
        known.unwrap_or(Stat {
            czxid: stamp.zxid,
            mzxid: stamp.zxid,
            pzxid: stamp.zxid,
            ctime: stamp.time_ms,
            mtime: stamp.time_ms,
            data_length: i32::try_from(data_length).unwrap_or(i32::MAX),
            num_children: i32::try_from(children).unwrap_or(i32::MAX),
            ..Stat::default()
        })
    }
}

/// The path that a create is answered with: what the program says it has made, or what it was asked for.
fn created<'a>(said: &'a [u8], asked: &'a str) -> &'a str {
    core::str::from_utf8(said).ok().filter(|path| path.starts_with('/')).unwrap_or(asked)
}
