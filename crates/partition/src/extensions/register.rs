//! Registering, acknowledging and deregistering: ordinary creates and deletes below `/em`, which do a bit more.

use super::item::{Answer, Record};
use super::{FAILURE_PATH, OWNER, Place, Proposed, owner_path, program_path};
use crate::entry::begin_ran;
use crate::partition::Partition;
use crate::time::Now;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use stoa_extension::Program;
use stoa_timeline::Origin;
use stoa_tree::{AclView, Caller, Identity, PROGRAMS, Part, PartOp, PartResult, Refusal};
use stoa_wire::{
    Acl, AclList, Create, CreateMode, ErrorCode, EventKind, MultiResults, OPEN_ACL, Reader, Request, perms,
    put,
};

/// More identities of who registers a program are not kept.
const IDENTITIES_MAX: usize = 16;

/// Whether a write may change which programs there are, or who has acknowledged them: what its session asks
/// next waits for that.
pub fn changes_programs(request: &Request<'_>) -> bool {
    let path = match request {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => create.path,
        Request::Delete { path, .. } => path,
        _ => return false,
    };
    matches!(Place::of(path), Some(Place::Program(_) | Place::Within(..)))
}

/// A request that takes a program away, with all that stands below it.
struct Removal<'a> {
    name: &'a str,
    version: i32,
    op: usize,
    /// How many operations there are, if it is a multi.
    multi: Option<usize>,
}

impl<'a> Removal<'a> {
    /// Who takes a znode away with all that is below deletes what is below first, in requests of their own or in a
    /// multi. So the znode that says who has registered a program stands for the program, and a multi in which
    /// that is deleted too may delete whatever else stands below it.
    fn of(request: &Request<'a>) -> Option<Self> {
        match request {
            Request::Delete { path, version } => match Place::of(path)? {
                Place::Program(name) => Some(Self { name, version: *version, op: 0, multi: None }),
                Place::Within(name, OWNER) => Some(Self { name, version: -1, op: 0, multi: None }),
                _ => None,
            },
            Request::Multi(ops) => {
                let (op, whole) = ops.iter().enumerate().last()?;
                let Request::Delete { path, version } = whole else { return None };
                let Some(Place::Program(name)) = Place::of(path) else { return None };
                let is_below = |op: Request<'_>| match op {
                    Request::Delete { path, version: -1 } => {
                        matches!(Place::of(path), Some(Place::Within(of, child)) if of == name && !child.contains('/'))
                    }
                    _ => false,
                };
                ops.iter().take(op).all(is_below).then_some(Self { name, version, op, multi: Some(op + 1) })
            }
            _ => None,
        }
    }
}

impl super::Owner {
    pub(super) fn read(data: Option<&[u8]>, acl: AclView<'_>) -> Self {
        let text = data.and_then(|data| core::str::from_utf8(data).ok()).unwrap_or_default();
        let session = text.lines().find_map(|line| line.strip_prefix("session 0x"));
        let session = session.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let named = acl.list().iter().filter(|entry| entry.scheme != "world");
        let identities =
            named.map(|entry| Identity { scheme: entry.scheme.to_string(), id: entry.id.to_string() });
        Self { session: session.unwrap_or(0).cast_signed(), identities: identities.collect() }
    }
}

/// Why something at `/em` is refused.
struct Why(ErrorCode, String);

impl From<ErrorCode> for Why {
    fn from(code: ErrorCode) -> Self {
        Self(code, String::new())
    }
}

fn why(code: ErrorCode, text: impl Into<String>) -> Why {
    Why(code, text.into())
}

/// What comes of a step.
type Prepared = Result<PartResult, ErrorCode>;

/// A step of what concerns programs, on one of several partitions. Clients see what stands at `/em` at its home;
/// on the others the same znodes say what they know of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramStep {
    /// `/em` begins to be: the side of the root.
    AdoptManager,
    /// The side of `/em`.
    MakeManager {
        /// Whether the root lives elsewhere.
        at_cut: bool,
    },
    /// A program is registered.
    Register {
        /// Whether this is where clients see it.
        at_home: bool,
    },
    /// A program is deregistered.
    Deregister {
        /// Whether this is where clients see it.
        at_home: bool,
    },
}

/// What a write at `/em` is to all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// A program is registered.
    Registers {
        /// Whether `/em` is there.
        has_manager: bool,
    },
    /// A program is deregistered.
    Deregisters {
        /// The operation that says so.
        op: usize,
        /// Of so many, if it is a multi.
        multi: Option<usize>,
    },
    /// A session acknowledges a program, or takes that back.
    Acknowledges,
}

/// What a write at or below `/em` comes to.
enum Registered {
    /// What it would be anywhere.
    Plain,
    /// An acknowledgement, given or taken back: the same, but it concerns the programs.
    Acknowledged,
    Done,
}

impl Partition {
    /// Prepares a write if it is one of programs themselves.
    #[inline]
    pub(super) fn propose_registration(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let path = match request {
            Request::Create(create)
            | Request::Create2(create)
            | Request::CreateContainer(create)
            | Request::CreateTtl(create) => create.path,
            Request::Delete { path, .. } | Request::SetData { path, .. } | Request::SetAcl { path, .. } => {
                path
            }
            Request::Multi(_) => return self.propose_removal(origin, request, caller, now),
            _ => return None,
        };
        let place = Place::of(path)?;
        match self.register(origin, request, place, caller, now) {
            Ok(Registered::Plain) => None,
            Ok(Registered::Acknowledged) => {
                let done = self.propose_plain(origin, request, None, caller, now);
                if done.is_ok() {
                    self.programs_proposed(caller.session, false);
                }
                Some(done)
            }
            Ok(Registered::Done) => Some(Ok(())),
            Err(refused) => Some(Err(self.note_why(path, refused).into())),
        }
    }

    /// Prepares a multi if it takes a program away.
    fn propose_removal(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let removal = self.removal(request)?;
        let done = self.remove_program(origin, &removal, caller, now);
        Some(done.map_err(|Why(code, _)| match removal.multi {
            Some(count) => Refusal::Multi { count, failed: removal.op, code },
            None => code.into(),
        }))
    }

    /// What a request is that takes a program away which there is.
    fn removal<'a>(&self, request: &Request<'a>) -> Option<Removal<'a>> {
        Removal::of(request).filter(|removal| self.is_program(removal.name))
    }

    fn programs_proposed(&mut self, session: i64, registers: bool) {
        let zxid = self.proposed_zxid();
        self.extensions.under_way.push(Proposed { zxid, session, registers });
    }

    fn is_program(&self, name: &str) -> bool {
        self.tree.proposed_exists(&owner_path(name), &Caller::SERVER) == Ok(true)
    }

    fn register(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        place: Place<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<Registered, Why> {
        if let Some(removal) = self.removal(request) {
            self.remove_program(origin, &removal, caller, now)?;
            return Ok(Registered::Done);
        }
        let is_program = |name| self.is_program(name);
        match (request, place) {
            (Request::Create(create) | Request::Create2(create), Place::Program(name)) => {
                let with_stat = matches!(request, Request::Create2(_));
                self.add_program(origin, name, create, with_stat, caller, now)?;
                Ok(Registered::Done)
            }
            (Request::CreateContainer(_) | Request::CreateTtl(_), Place::Program(_)) => {
                Err(why(ErrorCode::BadArguments, "a program is registered as a persistent znode"))
            }
            (Request::SetData { .. }, Place::Manager) => {
                Err(why(ErrorCode::BadArguments, "it holds no data: its children are the programs"))
            }
            (Request::SetData { .. }, Place::Program(name)) if is_program(name) => {
                let text = "a program is not changed: delete it and register the new one";
                Err(why(ErrorCode::BadArguments, text))
            }
            (request, Place::Within(name, child)) if is_program(name) => within(request, child),
            _ => Ok(Registered::Plain),
        }
    }

    /// Registers a program: its znode, who has registered it, and that this session has acknowledged it.
    fn add_program(
        &mut self,
        origin: Option<Origin>,
        name: &str,
        create: &Create<'_>,
        with_stat: bool,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), Why> {
        self.check_program(name, create, caller.session)?;
        self.update_programs(origin, caller, now, true, |partition, part| {
            if partition.tree.proposed_exists(PROGRAMS, &Caller::SERVER) == Ok(false) {
                partition.make_manager(part, caller, ProgramStep::MakeManager { at_cut: false })?;
            }
            let mut body = Vec::new();
            if let PartResult::Created { path, stat, with_stat } =
                partition.register_here(part, name, create, with_stat, caller, true)?
            {
                put::str(&mut body, &path);
                if with_stat {
                    stat.encode(&mut body);
                }
            }
            Ok(body)
        })
    }

    /// Why a program is not registered, whatever else there is.
    fn check_program(&self, name: &str, create: &Create<'_>, session: i64) -> Result<(), Why> {
        if CreateMode::from_i32(create.flags) != Some(CreateMode::Persistent) {
            return Err(why(ErrorCode::BadArguments, "a program is registered as a persistent znode"));
        }
        if create.path == FAILURE_PATH {
            return Err(why(ErrorCode::BadArguments, "this is where clients read why a call has failed"));
        }
        self.check_room(session)?;
        let source = core::str::from_utf8(create.data.unwrap_or_default());
        let source = source.map_err(|_| why(ErrorCode::BadArguments, "the source is no text (UTF-8)"))?;
        Program::compile(name, source, &self.extensions.limits.of_call)
            .map_err(|error| why(ErrorCode::BadArguments, error.to_string()))?;
        Ok(())
    }

    /// Makes `/em`, with the first program.
    fn make_manager(&mut self, part: &mut Part, caller: &Caller<'_>, step: ProgramStep) -> Prepared {
        let mut open = Vec::new();
        Acl::encode_list(&mut open, OPEN_ACL.iter().copied());
        let manager = Create { path: PROGRAMS, data: None, acl: acl_list(&open)?, flags: 0, ttl_ms: 0 };
        let request = Request::Create(manager);
        let op = match step {
            ProgramStep::AdoptManager => PartOp::Adopt(&request),
            ProgramStep::MakeManager { at_cut: true } => {
                PartOp::CreateAt { request: &request, path: PROGRAMS }
            }
            _ => PartOp::Whole(&request),
        };
        self.tree.part_op(part, op, caller)
    }

    /// Makes the znodes of a program. `at_home`: where they are seen by clients; elsewhere they stand for what
    /// this partition knows of it, and the ACL of `/em` has been looked at.
    fn register_here(
        &mut self,
        part: &mut Part,
        name: &str,
        create: &Create<'_>,
        with_stat: bool,
        caller: &Caller<'_>,
        at_home: bool,
    ) -> Prepared {
        let tree = &mut self.tree;
        let request = if with_stat { Request::Create2(*create) } else { Request::Create(*create) };
        let created = match at_home {
            true => tree.part_op(part, PartOp::Whole(&request), caller)?,
            false => tree.part_op(part, PartOp::CreateAt { request: &request, path: create.path }, caller)?,
        };
        let (owner, by) = (owner_path(name), format!("session {:#x}\n", caller.session));
        let identities = encoded_identities(caller);
        let (acl, data) = (acl_list(&identities)?, Some(by.as_bytes()));
        let owner = Create { path: &owner, data, acl, flags: CreateMode::Persistent as i32, ttl_ms: 0 };
        tree.part_op(part, PartOp::Whole(&Request::Create(owner)), &Caller::SERVER)?;
        // Whatever the ACL of its znode allows: who registers a program may use it.
        let may_all = [Identity { scheme: "super".to_string(), id: String::new() }];
        let session = Caller { session: caller.session, identities: &may_all };
        let path = format!("{PROGRAMS}/{name}/session-{:x}", caller.session);
        let mut open = Vec::new();
        Acl::encode_list(&mut open, OPEN_ACL.iter().copied());
        let (acl, flags) = (acl_list(&open)?, CreateMode::Ephemeral as i32);
        let acknowledgement = Create { path: &path, data: None, acl, flags, ttl_ms: 0 };
        tree.part_op(part, PartOp::Whole(&Request::Create(acknowledgement)), &session)?;
        Ok(match created {
            // As it is with what was made below it.
            PartResult::Created { path, with_stat, .. } => {
                let stat = tree.stat_to_be(&path).unwrap_or_default();
                PartResult::Created { path, stat, with_stat }
            }
            other => other,
        })
    }

    /// Deletes the znodes of a program, and whatever stands below them.
    fn deregister_here(
        &mut self,
        part: &mut Part,
        name: &str,
        version: i32,
        caller: &Caller<'_>,
        at_home: bool,
    ) -> Prepared {
        let path = program_path(name);
        self.note_contents();
        let tree = &mut self.tree;
        tree.part_note_contents(part);
        let mut children = Vec::new();
        tree.proposed_children(&path, &Caller::SERVER, &mut |child, _| {
            children.push(format!("{path}/{child}"));
            true
        })?;
        for child in &children {
            let delete = Request::Delete { path: child, version: -1 };
            tree.part_op(part, PartOp::Whole(&delete), &Caller::SERVER)?;
        }
        match at_home {
            true => tree.part_op(part, PartOp::Whole(&Request::Delete { path: &path, version }), caller),
            false => tree.part_op(part, PartOp::DeleteAt { path: &path, version: -1 }, caller),
        }
    }

    /// A step of what concerns programs, which every partition knows.
    pub fn program_step(
        &mut self,
        part: &mut Part,
        request: &Request<'_>,
        caller: &Caller<'_>,
        step: ProgramStep,
    ) -> Prepared {
        match (step, request) {
            (ProgramStep::AdoptManager | ProgramStep::MakeManager { .. }, _) => {
                self.make_manager(part, caller, step)
            }
            (ProgramStep::Register { at_home }, Request::Create(create) | Request::Create2(create)) => {
                let Some(Place::Program(name)) = Place::of(create.path) else {
                    return Err(ErrorCode::BadArguments);
                };
                let with_stat = matches!(request, Request::Create2(_));
                self.register_here(part, name, create, with_stat, caller, at_home)
            }
            (ProgramStep::Deregister { at_home }, request) => {
                let removal = Removal::of(request).ok_or(ErrorCode::BadArguments)?;
                self.deregister_here(part, removal.name, removal.version, caller, at_home)
            }
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    /// What a write at `/em` is to all partitions, where there are several.
    pub fn registration(&self, request: &Request<'_>) -> Option<Registration> {
        if let Some(Removal { op, multi, .. }) = self.removal(request) {
            return Some(Registration::Deregisters { op, multi });
        }
        let path = match request {
            Request::Create(create) | Request::Create2(create) => create.path,
            Request::Delete { path, .. } => path,
            _ => return None,
        };
        let is_delete = matches!(request, Request::Delete { .. });
        match Place::of(path)? {
            Place::Program(_) if !is_delete => {
                let has_manager = self.tree.proposed_exists(PROGRAMS, &Caller::SERVER) == Ok(true);
                Some(Registration::Registers { has_manager })
            }
            Place::Within(name, _) if self.is_program(name) => Some(Registration::Acknowledges),
            _ => None,
        }
    }

    /// Why such a write is refused, as far as that can be said before all partitions are asked.
    pub fn check_registration(&mut self, request: &Request<'_>, session: i64) -> Result<(), ErrorCode> {
        let (path, create) = match request {
            Request::Create(create) | Request::Create2(create) => (create.path, Some(create)),
            Request::Delete { path, .. } => (*path, None),
            _ => return Ok(()),
        };
        let checked = match (Place::of(path), create) {
            (Some(Place::Program(name)), Some(create)) => self.check_program(name, create, session),
            (Some(Place::Within(name, child)), _)
                if self.is_program(name) && Removal::of(request).is_none() =>
            {
                within(request, child).map(drop)
            }
            _ => Ok(()),
        };
        checked.map_err(|refused| self.note_why(path, refused))
    }

    fn note_why(&mut self, path: &str, Why(code, text): Why) -> ErrorCode {
        if !text.is_empty() {
            self.extensions.request.failure = Some(format!("{path}: {text}"));
        }
        code
    }

    fn check_room(&self, session: i64) -> Result<(), Why> {
        let extensions = &self.extensions;
        let (all, own) = (extensions.limits.programs, extensions.limits.programs_per_session);
        let count = extensions.owners.len() + extensions.under_way.registering;
        if count >= all {
            let text =
                format!("there are {count} programs, as many as there may be (setting max-extensions)");
            return Err(why(ErrorCode::QuotaExceeded, text));
        }
        let owned = extensions.owners.values().filter(|owner| owner.session == session).count()
            + extensions.under_way.registering_of(session);
        if owned >= own {
            let mut text = String::new();
            let _ = write!(
                text,
                "this session has registered {owned} programs, as many as it may \
                 (setting max-extensions-per-session)"
            );
            return Err(why(ErrorCode::QuotaExceeded, text));
        }
        Ok(())
    }

    /// Deregisters a program, and with it goes whatever stands below it.
    fn remove_program(
        &mut self,
        origin: Option<Origin>,
        removal: &Removal<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), Why> {
        self.update_programs(origin, caller, now, false, |partition, part| {
            partition.deregister_here(part, removal.name, removal.version, caller, true)?;
            let mut body = Vec::new();
            if let Some(count) = removal.multi {
                (0..count).for_each(|_| MultiResults::deleted(&mut body));
                MultiResults::end(&mut body);
            }
            Ok(body)
        })
    }

    /// Makes an update of what stands at `/em`, which is answered with what `steps` returns.
    fn update_programs(
        &mut self,
        origin: Option<Origin>,
        caller: &Caller<'_>,
        now: Now,
        registers: bool,
        steps: impl FnOnce(&mut Self, &mut Part) -> Result<Vec<u8>, ErrorCode>,
    ) -> Result<(), Why> {
        let stamp = self.next_stamp(now);
        let mut part = self.tree.part_begin(stamp, caller.session);
        let body = match steps(self, &mut part) {
            Ok(body) => body,
            Err(code) => {
                self.tree.part_undo(part);
                return Err(code.into());
            }
        };
        let answer = Answer::Reply { err: 0, body: &body };
        self.put_ran(origin, &Record { answer, watch: None, muted: Vec::new(), told: Vec::new() }, part);
        self.programs_proposed(caller.session, registers);
        Ok(())
    }

    /// Adds what a program did, or what was done with one, to the entry.
    pub(super) fn put_ran(&mut self, origin: Option<Origin>, record: &Record<'_>, part: Part) {
        let (zxid, pause_us) = (part.stamp().zxid, self.extensions.take_pause());
        begin_ran(&mut self.entry, origin, pause_us, |out| record.encode(out));
        let before = self.entry.len();
        self.tree.part_keep(part, &mut self.entry);
        if self.entry.len() > before {
            self.proposed_zxid = zxid;
            self.made.note(self.entry.len() - before);
        } else {
            self.entry.extend_from_slice(&[0; 4]);
        }
    }

    /// What was proposed of programs is applied, up to here.
    #[inline]
    pub fn programs_applied(&mut self, zxid: i64) {
        self.extensions.has_settled |= self.extensions.under_way.applied(zxid);
    }

    /// Some of what stands at or below `/em` has changed.
    pub fn programs_changed(&mut self, changes: &[(EventKind, String)]) {
        for (kind, path) in changes {
            self.extensions.changed(&self.tree, *kind, path);
        }
    }
}

/// A write below a program.
fn within(request: &Request<'_>, child: &str) -> Result<Registered, Why> {
    let refused = |text| Err(why(ErrorCode::BadArguments, text));
    match request {
        Request::Create(create) | Request::Create2(create) if !child.contains('/') && child != OWNER => {
            match CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_ephemeral) {
                true => Ok(Registered::Acknowledged),
                false => refused("a program is acknowledged with an ephemeral, which goes with its session"),
            }
        }
        Request::Delete { .. } if child != OWNER => Ok(Registered::Acknowledged),
        Request::SetData { .. } | Request::SetAcl { .. } if child != OWNER => Ok(Registered::Plain),
        _ if child == OWNER => refused("it says who has registered the program, and cannot be changed"),
        _ => refused("below a program are only ephemerals of those who have acknowledged it"),
    }
}

fn acl_list(encoded: &[u8]) -> Result<AclList<'_>, ErrorCode> {
    AclList::decode(&mut Reader::new(encoded)).map_err(|_| ErrorCode::InvalidAcl)
}

/// An ACL that names who asks. That of the super user is no identity: programs have no more rights than others.
fn encoded_identities(caller: &Caller<'_>) -> Vec<u8> {
    let named = caller.identities.iter().filter(|identity| identity.scheme != "super").take(IDENTITIES_MAX);
    let named = named.map(|identity| (&*identity.scheme, &*identity.id));
    // Everybody may see it, and nobody the hashes of passwords in it.
    let entries: Vec<Acl<'_>> = named
        .chain([("world", "anyone")])
        .map(|(scheme, id)| Acl { perms: perms::READ, scheme, id })
        .collect();
    let mut encoded = Vec::new();
    Acl::encode_list(&mut encoded, entries.into_iter());
    encoded
}
