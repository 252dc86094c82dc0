//! Programs that react when something happens: to znodes that an update creates, changes or deletes.
//!
//! What they do becomes part of that update, in the name of who has registered them, and is no event to programs
//! again. One that fails has done nothing, and takes nothing else with it.
//!
//! Nobody waits for a reaction that is greedy, unlike for a [call](super::call): no request is to blame. Its program is
//! [suspended](super::pause) instead, and all reactions to one update together have a bound.

use super::here::HereHost;
use super::item::{Answer, Record};
use super::pause::greed;
use super::{Extensions, is_of_programs};
use crate::partition::Partition;
use crate::time::Now;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_extension::{Event, EventKind as Kind, Program, Used};
use stoa_timeline::Origin;
use stoa_tree::{Caller, Part};
use stoa_wire::{Create, EventKind, Request, path};

/// So many reactions one update sets off, and about so long it may get by them. What is more does not happen: an
/// update must remain one that all servers can store.
const REACTIONS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;
/// As many steps as so many calls may take, and about so long everybody else waits. It is enough for those who tell
/// somebody of each znode that a large update deletes.
const CALLS_MAX: u64 = 10;

/// Why a reaction to the end of a session, or to what the server does by itself, is left out.
const HELD_ELSEWHERE: &str = "another site holds what it reads or writes";

/// Where programs are told of nothing, as they can do nothing there.
const SYSTEM: &str = "/zookeeper/";

/// What programs say of events, besides what they do.
#[derive(Debug, Default)]
pub(crate) struct Reactions {
    muted: Vec<(EventKind, String)>,
    told: Vec<(i64, String)>,
}

impl Reactions {
    /// As the record of a part; nothing if there is nothing to say.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if !self.muted.is_empty() || !self.told.is_empty() {
            let (answer, muted, told) = (Answer::Results(0), self.muted(), self.told());
            Record { answer, watch: None, muted, told }.encode(out);
        }
    }

    pub(super) fn muted(&self) -> Vec<(EventKind, &str)> {
        self.muted.iter().map(|(kind, path)| (*kind, path.as_str())).collect()
    }

    pub(super) fn told(&self) -> Vec<(i64, &str)> {
        self.told.iter().map(|(session, path)| (*session, path.as_str())).collect()
    }
}

/// A change, and a program that reacts to it.
type Due = (EventKind, String, Arc<Program>);

/// The steps that reactions to one update have taken, and whose they were.
#[derive(Debug, Default)]
struct Bill {
    steps: u64,
    shares: Vec<(Arc<Program>, u64)>,
}

impl Bill {
    fn add(&mut self, program: &Arc<Program>, steps: u64) {
        self.steps += steps;
        match self.shares.iter_mut().find(|(of, _)| Arc::ptr_eq(of, program)) {
            Some((_, share)) => *share += steps,
            None => self.shares.push((Arc::clone(program), steps)),
        }
    }
}

impl Extensions {
    /// Whether a program may react to what a request does: where that is known without looking at the update.
    #[inline]
    pub(super) fn may_react(&self, request: &Request<'_>) -> bool {
        let reacts = |kind, path| self.registry.may_react(path) && self.registry.reacts(kind, path);
        match *request {
            _ if !self.registry.has_reactions() => false,
            Request::SetData { path, .. } => reacts(Kind::Changed, path),
            Request::Delete { path, .. } => reacts(Kind::Deleted, path),
            // A number may come behind its last name, which is the first one right below the root.
            Request::Create(Create { path, .. }) | Request::Create2(Create { path, .. })
                if path::last_slash(path) != Some(0) =>
            {
                self.registry.may_react(path)
            }
            Request::SetAcl { .. } => false,
            _ => true,
        }
    }

    /// Adds the programs that react to a change, in order.
    fn add_due(&self, due: &mut Vec<Due>, kind: EventKind, path: &str) {
        let Some(of_program) = of_program(kind) else { return };
        let programs = self.registry.events_for(of_program, path);
        due.extend(
            programs.filter(|_| !is_closed(path)).map(|program| (kind, path.into(), Arc::clone(program))),
        );
    }

    /// What an update has set off is as much as it may.
    fn misses(&mut self, program: &str, path: &str, why: &str) {
        self.count(program, Used::default(), true);
        self.missed(program);
        self.warn(format!("{program} does not react to {path}: {why}"));
    }

    fn missed(&mut self, program: &str) {
        if let Some(stats) = self.stats.get_mut(program) {
            stats.missed += 1;
        }
    }

    /// A program reacts to nothing until it has paid for so many steps.
    fn suspend(&mut self, program: &str, steps: u64, why: &str, now: Now) {
        let pause_us = self.suspended.charge(program.into(), steps, now.mono_us);
        if pause_us > 0 {
            if let Some(stats) = self.stats.get_mut(program) {
                stats.suspensions += 1;
            }
            self.warn(format!("{program} reacts to nothing for {} ms: {why}", pause_us.div_ceil(1000)));
        }
    }

    /// What all reactions to one update have taken together is paid for by those who have not paid already, each for
    /// its share.
    fn settle(&mut self, bill: &Bill, now: Now) {
        let unpaid = greed(bill.steps, CALLS_MAX.saturating_mul(self.limits.of_call.steps));
        if unpaid == 0 {
            return;
        }
        for (program, share) in &bill.shares {
            if self.suspended.of(program.name(), now.mono_us) == 0 {
                let steps = (u128::from(unpaid) * u128::from(*share) / u128::from(bill.steps)) as u64;
                self.suspend(program.name(), steps, "one update has set off very much", now);
            }
        }
    }
}

impl Partition {
    /// The ephemerals that go with a session, if anybody wants to know.
    #[must_use]
    pub fn ending(&self, session: i64) -> Vec<String> {
        match self.extensions.registry.has_reactions() {
            true => self.tree.ephemerals_to_be(session),
            false => Vec::new(),
        }
    }

    /// An update has been prepared, as the item at `start` of the entry: programs react to it.
    #[inline]
    pub(crate) fn react_to(&mut self, start: usize, origin: Option<Origin>, ending: &[String], now: Now) {
        if self.extensions.registry.has_reactions() {
            self.react_to_item(start, origin, ending, now);
        }
    }

    fn react_to_item(&mut self, start: usize, origin: Option<Origin>, ending: &[String], now: Now) {
        let Some(update_at) = crate::entry::update_at(&self.entry, start) else { return };
        let update = stoa_tree::Updates::new(&self.entry[update_at..]).next().and_then(Result::ok);
        let Some(update) = update else { return };
        let mut due = Vec::new();
        update.for_each_change(ending, |kind, path| self.extensions.add_due(&mut due, kind, path));
        if due.is_empty() {
            return;
        }
        let mut part = self.tree.part_reopen(&mut self.entry, update_at);
        self.entry.truncate(start);
        // What takes its place is counted anew.
        self.made.count -= 1;
        let own = part.count();
        let reactions = self.react(&mut part, Some(due), now);
        let (answer, muted, told) = (Answer::Results(own), reactions.muted(), reactions.told());
        self.put_ran(origin, &Record { answer, watch: None, muted, told }, part);
    }

    /// This partition's part of an operation that concerns several is about to be kept: programs react to it. It is too late
    /// to ask elsewhere: who lacks another site's tokens misses it.
    pub(crate) fn react_to_part(&mut self, part: &mut Part, now: Now) -> Reactions {
        self.extensions.begin_for_here();
        self.react(part, None, now)
    }

    /// Lets programs react to what is in a part, or to what is said to be.
    pub(super) fn react(&mut self, part: &mut Part, due: Option<Vec<Due>>, now: Now) -> Reactions {
        let mut reactions = Reactions::default();
        if !self.extensions.registry.has_reactions() {
            return reactions;
        }
        let due = due.unwrap_or_else(|| {
            let mut due = Vec::new();
            part.for_each_change(|kind, path| self.extensions.add_due(&mut due, kind, path));
            due
        });
        if !due.is_empty() {
            self.note_contents();
        }
        let (mut bill, steps_max) =
            (Bill::default(), CALLS_MAX.saturating_mul(self.extensions.limits.of_call.steps));
        for (number, (kind, path, program)) in due.into_iter().enumerate() {
            let name = program.name();
            if self.extensions.suspended.of(name, now.mono_us) > 0 {
                self.extensions.missed(name);
            } else if number >= REACTIONS_MAX || part.bytes() >= BYTES_MAX {
                self.extensions.misses(name, &path, "the update is too large");
            } else if bill.steps >= steps_max {
                self.extensions.misses(name, &path, "the update has set off too much");
            } else {
                let steps = self.react_once(part, (kind, path, &program), &mut reactions, now);
                bill.add(&program, steps);
            }
        }
        self.extensions.settle(&bill, now);
        reactions
    }

    /// Returns the steps that it has taken.
    fn react_once(
        &mut self,
        part: &mut Part,
        (kind, path, program): (EventKind, String, &Arc<Program>),
        reactions: &mut Reactions,
        now: Now,
    ) -> u64 {
        let Some(of_program) = of_program(kind) else { return 0 };
        let (mut used, began_us) = (Used::default(), self.extensions.now_us());
        let name = program.name();
        // Noted before, it stays noted when this one fails; else each one that fails would have all of it
        // noted anew.
        self.tree.part_note_contents(part);
        let mark = self.tree.part_mark(part);
        let Extensions { home, request, owners, .. } = &mut self.extensions;
        let owner = owners.get(name);
        let identities = owner.map(|owner| owner.identities.as_slice()).unwrap_or_default();
        let caller = Caller { session: Caller::REACTION, identities };
        let mut host = HereHost::new(home, &mut request.tokens, &mut self.tree, part, caller);
        let reacted = program.event(&mut host, &Event { kind: of_program, path: &path }, &mut used);
        if self.extensions.request.tokens.are_lacking() {
            // All of the update is about to be taken back, and asked elsewhere.
            self.tree.part_back(part, mark);
            return used.steps;
        }
        let reacted = match self.extensions.request.tokens.forbid() {
            true => Err(None),
            false => reacted.map_err(Some),
        };
        self.extensions.count_timed(name, used, reacted.is_err(), began_us);
        let stopped_by = reacted.as_ref().err().and_then(Option::as_ref);
        let steps = self.extensions.steps_to_pay(used, stopped_by);
        if steps > 0 {
            let why = format!("reacting to {path} took more than half of its steps, or was stopped");
            self.extensions.suspend(name, steps, &why, now);
        }
        match reacted {
            Ok(notify) => {
                self.tree.part_go_on(mark);
                let registry = &self.extensions.registry;
                let told = notify.send.into_iter().map(|told| (told.session, told.path));
                let hears = |told: &(i64, String)| registry.has_acknowledged(told.0, name);
                reactions.told.extend(told.filter(hears));
                if notify.suppress {
                    reactions.muted.push((kind, path));
                }
            }
            Err(error) => {
                self.tree.part_back(part, mark);
                let why = error.map_or_else(|| String::from(HELD_ELSEWHERE), |error| format!("{error}"));
                self.extensions.warn(format!("{name} does not react to {path}: {why}"));
            }
        }
        used.steps
    }
}

fn of_program(kind: EventKind) -> Option<Kind> {
    match kind {
        EventKind::Created => Some(Kind::Created),
        EventKind::DataChanged => Some(Kind::Changed),
        EventKind::Deleted => Some(Kind::Deleted),
        _ => None,
    }
}

fn is_closed(path: &str) -> bool {
    is_of_programs(path) || path.starts_with(SYSTEM)
}
