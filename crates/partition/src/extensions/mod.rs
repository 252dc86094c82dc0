//! Programs that run inside the service (*Extensible Distributed Coordination*).
//!
//! All that is known of them stands in znodes, so it is replicated, recovered and part of snapshots:
//!
//! ```text
//! /em                     its children are the programs, in the order of their czxids
//! /em/NAME                the source, as it was registered
//! /em/NAME/owner          the session that has registered it; its ACL names what that had proved to be
//! /em/NAME/ANYTHING       an ephemeral: its session has acknowledged the program
//! ```
//!
//! [`Extensions`] is what each server derives from that, whenever it applies a change of it: compiled programs,
//! and who has acknowledged them. The leader prepares with it: what is registered there ([`register`]),
//! requests that a program carries out ([`call`]), and reactions to what an update does ([`react`]).
//!
//! A program is used from when its registration is applied on.

mod call;
mod here;
mod item;
mod pause;
mod react;
mod register;
mod tokens;

pub use call::NotProposed;
pub use item::{Answer, Ran, Record, Watch};
pub use register::{ProgramStep, Registration, changes_programs};

use pause::Pauses;
use tokens::NeededTokens;

use crate::counts::Histogram;
use crate::time::Stopwatch;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_extension::{Limits, Program, Registry, Used};
use stoa_placement::Placement;
use stoa_tree::{Identity, PROGRAMS, Tree};
use stoa_wire::EventKind;

/// Where a client reads why the last of its calls or registrations failed. No znode: each connection has its own.
pub const FAILURE_PATH: &str = "/em/error";

/// The child of a program that says who has registered it.
const OWNER: &str = "owner";

/// Warnings that are kept until the driver asks for them.
const WARNINGS_MAX: usize = 16;

/// Bounds on programs.
#[derive(Debug, Clone)]
pub struct ProgramLimits {
    /// Most programs in all; with 0 none can be registered.
    pub programs: usize,
    /// Most programs that one session has registered.
    pub programs_per_session: usize,
    /// What one program, and one call of it, may need.
    pub of_call: Limits,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self { programs: 100, programs_per_session: 20, of_call: Limits::default() }
    }
}

/// What a program has done at this server, since it began to run or the program was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramStats {
    /// Calls: requests carried out and events reacted to.
    pub calls: u64,
    /// Those that failed, and had no effect.
    pub failures: u64,
    /// Calls after which their session had to wait, for they took more than half of what they may.
    pub pauses: u64,
    /// Requests that were refused because their session had to wait.
    pub throttled: u64,
    /// How often it reacted to nothing for a while, for its reactions had taken more than half of what they may.
    pub suspensions: u64,
    /// Events that it has not reacted to because of that, or because an update had set off as much as it may.
    pub missed: u64,
    /// Steps of all calls.
    pub steps: u64,
    /// Bytes allocated by all calls.
    pub memory_bytes: u64,
    /// How long they took, if the driver has a stopwatch.
    pub time: Histogram,
}

/// Who has registered a program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    session: i64,
    identities: Vec<Identity>,
}

/// Something about programs that is proposed and not applied.
#[derive(Debug, Clone, Copy)]
struct Proposed {
    zxid: i64,
    session: i64,
    registers: bool,
}

/// All of that, in its order, and counted: each request asks whether its session has any.
#[derive(Debug, Default)]
struct UnderWay {
    proposed: VecDeque<Proposed>,
    by_session: BTreeMap<i64, SessionCount>,
    registering: usize,
}

#[derive(Debug, Default)]
struct SessionCount {
    all: usize,
    registering: usize,
}

impl UnderWay {
    fn push(&mut self, proposed: Proposed) {
        let count = self.by_session.entry(proposed.session).or_default();
        count.all += 1;
        count.registering += usize::from(proposed.registers);
        self.registering += usize::from(proposed.registers);
        self.proposed.push_back(proposed);
    }

    /// Takes out what is applied up to there. Returns whether there was anything.
    #[inline]
    fn applied(&mut self, zxid: i64) -> bool {
        if self.proposed.is_empty() {
            return false;
        }
        let before = self.proposed.len();
        while let Some(proposed) = self.proposed.pop_front_if(|proposed| proposed.zxid <= zxid) {
            self.registering -= usize::from(proposed.registers);
            let Some(count) = self.by_session.get_mut(&proposed.session) else { continue };
            count.all -= 1;
            count.registering -= usize::from(proposed.registers);
            if count.all == 0 {
                self.by_session.remove(&proposed.session);
            }
        }
        self.proposed.len() < before
    }

    fn registering_of(&self, session: i64) -> usize {
        self.by_session.get(&session).map_or(0, |count| count.registering)
    }
}

/// What there is to say of a request.
#[derive(Debug, Default)]
struct OfRequest {
    /// Why it was refused, in words.
    failure: Option<String>,
    /// How long who asks has to wait for what it has taken, microseconds.
    pause_us: u32,
    /// Which tokens programs have needed for it.
    tokens: NeededTokens,
}

/// What a server knows of programs.
#[derive(Default)]
pub struct Extensions {
    limits: ProgramLimits,
    stopwatch: Stopwatch,
    registry: Registry,
    owners: BTreeMap<Box<str>, Owner>,
    /// The sessions of acknowledgements, by their paths: when one is deleted only that is known of it.
    acknowledgements: BTreeMap<Box<str>, i64>,
    /// How many of them each session has of each program.
    acknowledged: BTreeMap<(Box<str>, i64), u32>,
    stats: BTreeMap<Box<str>, ProgramStats>,
    under_way: UnderWay,
    /// What lives where, and which partition this is.
    home: Option<(Placement, u8)>,
    /// Some of that was applied lately.
    has_settled: bool,
    /// What there is to say of the request that is being prepared.
    request: OfRequest,
    /// Sessions that have to wait.
    pauses: Pauses<i64>,
    /// Programs that react to nothing.
    suspended: Pauses<Box<str>>,
    warnings: VecDeque<String>,
}

/// A path at or below `/em`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    Manager,
    Program(&'a str),
    /// A child of a program, or something below that.
    Within(&'a str, &'a str),
}

impl<'a> Place<'a> {
    #[inline]
    fn of(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix(PROGRAMS)?;
        let Some(names) = rest.strip_prefix('/') else { return rest.is_empty().then_some(Self::Manager) };
        Some(names.split_once('/').map_or(Self::Program(names), |(name, child)| Self::Within(name, child)))
    }
}

/// Whether a path is `/em` or below it.
#[inline]
pub fn is_of_programs(path: &str) -> bool {
    Place::of(path).is_some()
}

fn program_path(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

fn owner_path(name: &str) -> String {
    format!("{PROGRAMS}/{name}/{OWNER}")
}

impl Extensions {
    /// Those of a state.
    pub(crate) fn new(limits: ProgramLimits, stopwatch: Stopwatch, tree: &Tree) -> Self {
        let mut extensions = Self { limits, stopwatch, ..Self::default() };
        let znode = |path: &str| tree.get(path);
        let mut programs: Vec<(i64, &str)> = tree
            .names_below(PROGRAMS)
            .filter_map(|name| Some((znode(&program_path(name))?.stat().czxid, name)))
            .collect();
        programs.sort_unstable();
        for (_, name) in programs {
            extensions.changed(tree, EventKind::Created, &owner_path(name));
            let children = znode(&program_path(name)).into_iter().flat_map(|program| program.children());
            for child in children.filter(|child| *child != OWNER) {
                extensions.changed(tree, EventKind::Created, &format!("{PROGRAMS}/{name}/{child}"));
            }
        }
        extensions
    }

    /// Something at or below `/em` was created or deleted in the applied state.
    fn changed(&mut self, tree: &Tree, kind: EventKind, path: &str) {
        let Some(Place::Within(name, child)) = Place::of(path) else { return };
        match (kind, child) {
            (EventKind::Created, OWNER) => self.registered(tree, name),
            (EventKind::Deleted, OWNER) => self.deregistered(name),
            (EventKind::Created, _) => {
                let owner = tree.get(path).map_or(0, |znode| znode.stat().ephemeral_owner);
                if owner != 0 && self.registry.acknowledge(owner, name) {
                    self.acknowledgements.insert(path.into(), owner);
                    *self.acknowledged.entry((name.into(), owner)).or_default() += 1;
                }
            }
            (EventKind::Deleted, _) => {
                let Some(session) = self.acknowledgements.remove(path) else { return };
                let key = (Box::from(name), session);
                if let Some(count) = self.acknowledged.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        self.acknowledged.remove(&key);
                        self.registry.withdraw(session, name);
                    }
                }
            }
            _ => {}
        }
    }

    fn registered(&mut self, tree: &Tree, name: &str) {
        let (path, owner) = (program_path(name), owner_path(name));
        let (Some(program), Some(owner)) = (tree.get(&path), tree.get(&owner)) else { return };
        let source = core::str::from_utf8(program.data().unwrap_or_default());
        let limits = registered_limits(&self.limits.of_call);
        let compiled = source.ok().map(|source| Program::compile(name, source, &limits));
        self.owners.insert(name.into(), Owner::read(owner.data(), owner.acl()));
        match compiled {
            Some(Ok(program)) => {
                // Whoever has registered it has seen to it that there is no other of its name.
                if self.registry.register(Arc::new(program)).is_ok() {
                    self.stats.insert(name.into(), ProgramStats::default());
                }
            }
            Some(Err(error)) => self.warn(format!("{path} cannot be used by this release: {error}")),
            None => self.warn(format!("{path} is no text")),
        }
    }

    fn deregistered(&mut self, name: &str) {
        self.registry.deregister(name);
        self.owners.remove(name);
        self.stats.remove(name);
        let below = format!("{PROGRAMS}/{name}/");
        let acknowledgements = self.acknowledgements.range(Box::from(below.as_str())..).map(|(path, _)| path);
        let acknowledgements = acknowledgements.take_while(|path| path.starts_with(&below)).cloned();
        for path in acknowledgements.collect::<Vec<_>>() {
            self.acknowledgements.remove(&path);
        }
        let (first, last) = ((Box::from(name), i64::MIN), (Box::from(name), i64::MAX));
        let acknowledged = self.acknowledged.range(first..=last).map(|(key, _)| key.clone());
        for key in acknowledged.collect::<Vec<_>>() {
            self.acknowledged.remove(&key);
        }
    }

    /// Whether a session has acknowledged any program.
    #[inline]
    pub fn concerns(&self, session: i64) -> bool {
        self.registry.concerns(session)
    }

    /// What lives where now.
    pub fn is_at_home(&mut self, placement: Placement, own: u8) {
        self.home = placement.is_divided().then_some((placement, own));
    }

    /// Whether a session has something under way that decides what becomes of its next request.
    #[inline]
    pub fn is_changing(&self, session: i64) -> bool {
        self.under_way.by_session.contains_key(&session)
    }

    /// Whether something that was proposed has been applied since this was asked last.
    #[inline]
    pub fn has_settled(&mut self) -> bool {
        core::mem::take(&mut self.has_settled)
    }

    /// What was proposed and not applied may never be.
    pub(crate) fn abandoned(&mut self) {
        self.under_way = UnderWay::default();
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push_back(warning);
        }
    }

    /// The next warning for the operator.
    pub fn poll_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// Something is about to be prepared that nobody can ask elsewhere.
    pub(crate) fn begin_for_here(&mut self) {
        self.request.tokens.begin(true);
    }

    /// Why the request that was refused last was.
    #[inline]
    pub fn take_failure(&mut self) -> Option<String> {
        self.request.failure.take()
    }

    /// How long who asks has to wait for what its request has taken, microseconds.
    #[inline]
    pub fn take_pause(&mut self) -> u32 {
        core::mem::take(&mut self.request.pause_us)
    }

    /// What the stopwatch shows.
    fn now_us(&self) -> u64 {
        (self.stopwatch.0)()
    }

    /// Counts a call that began then.
    fn count_timed(&mut self, name: &str, used: Used, failed: bool, began_us: u64) {
        let took_us = self.now_us().saturating_sub(began_us);
        self.count(name, used, failed);
        if let Some(stats) = self.stats.get_mut(name) {
            stats.time.record(took_us, 1);
        }
    }

    fn count(&mut self, name: &str, used: Used, failed: bool) {
        if let Some(stats) = self.stats.get_mut(name) {
            stats.calls += 1;
            stats.failures += u64::from(failed);
            stats.steps += used.steps;
            stats.memory_bytes += used.memory_bytes;
        }
    }

    /// The programs, in the order of their names, with what they did here.
    pub fn stats(&self) -> impl Iterator<Item = (&str, ProgramStats)> {
        self.stats.iter().map(|(name, stats)| (&**name, *stats))
    }

    /// How many sessions have acknowledged a program.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledgements.len()
    }
}

/// What is registered was within the limits of whoever led then: here it is bounded in what it does only.
fn registered_limits(own: &Limits) -> Limits {
    Limits { source_bytes: usize::MAX, subscriptions: usize::MAX, functions: usize::MAX, ..*own }
}
