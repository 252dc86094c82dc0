//! Programs that react when something happens: to znodes that an update creates, changes or deletes.
//!
//! What they do becomes part of that update, in the name of who has registered them, and is no event to programs
//! again. One that fails has done nothing, and takes nothing else with it.

use super::here::HereHost;
use super::item::{Answer, Record};
use super::{Extensions, is_of_programs};
use crate::entry::Origin;
use crate::partition::Partition;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_extension::{Event, EventKind as Kind, Program, Used};
use stoa_tree::{Caller, Part};
use stoa_wire::{EventKind, Request};

/// So many reactions one update sets off, and about so long it may get by them. What is more does not happen: an
/// update must remain one that all servers can store.
const REACTIONS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

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

impl Extensions {
    /// Whether a program may react to what a request does: where that is known without looking at the update.
    #[inline]
    pub(super) fn may_react(&self, request: &Request<'_>) -> bool {
        let reacts = |kind, path| self.registry.reacts(kind, path);
        self.registry.has_reactions()
            && match *request {
                Request::SetData { path, .. } => reacts(Kind::Changed, path),
                Request::Delete { path, .. } => reacts(Kind::Deleted, path),
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
}

impl Partition {
    /// The ephemerals that go with a session, if anybody wants to know.
    pub(crate) fn ending(&self, session: i64) -> Vec<String> {
        match self.extensions.registry.has_reactions() {
            true => self.tree.ephemerals_to_be(session),
            false => Vec::new(),
        }
    }

    /// An update has been prepared, as the item at `start` of the entry: programs react to it.
    #[inline]
    pub(crate) fn react_to(&mut self, start: usize, origin: Option<Origin>, ending: &[String]) {
        if self.extensions.registry.has_reactions() {
            self.react_to_item(start, origin, ending);
        }
    }

    fn react_to_item(&mut self, start: usize, origin: Option<Origin>, ending: &[String]) {
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
        let own = part.count();
        let reactions = self.react(&mut part, Some(due));
        let (answer, muted, told) = (Answer::Results(own), reactions.muted(), reactions.told());
        self.put_ran(origin, &Record { answer, watch: None, muted, told }, part);
    }

    /// This partition's part of an operation that concerns several is about to be kept: programs react to it.
    pub(crate) fn react_to_part(&mut self, part: &mut Part) -> Reactions {
        self.react(part, None)
    }

    /// Lets programs react to what is in a part, or to what is said to be.
    pub(super) fn react(&mut self, part: &mut Part, due: Option<Vec<Due>>) -> Reactions {
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
        for (number, (kind, path, program)) in due.into_iter().enumerate() {
            if number >= REACTIONS_MAX || part.bytes() >= BYTES_MAX {
                self.extensions.count(program.name(), Used::default(), true);
                let name = program.name();
                self.extensions.warn(format!("{name} does not react to {path}: the update is too large"));
                continue;
            }
            self.react_once(part, kind, path, &program, &mut reactions);
        }
        reactions
    }

    fn react_once(
        &mut self,
        part: &mut Part,
        kind: EventKind,
        path: String,
        program: &Arc<Program>,
        reactions: &mut Reactions,
    ) {
        let Some(of_program) = of_program(kind) else { return };
        let (mut used, began_us) = (Used::default(), self.extensions.now_us());
        let owner = self.extensions.owners.get(program.name());
        let identities = owner.map(|owner| owner.identities.as_slice()).unwrap_or_default();
        let caller = Caller { session: Caller::REACTION, identities };
        let mark = self.tree.part_mark(part);
        let mut host = HereHost::new(&self.extensions.home, &mut self.tree, part, caller);
        let reacted = program.event(&mut host, &Event { kind: of_program, path: &path }, &mut used);
        self.extensions.count_timed(program.name(), used, reacted.is_err(), began_us);
        match reacted {
            Ok(notify) => {
                self.tree.part_go_on(mark);
                let registry = &self.extensions.registry;
                let told = notify.send.into_iter().map(|told| (told.session, told.path));
                let hears = |told: &(i64, String)| registry.has_acknowledged(told.0, program.name());
                reactions.told.extend(told.filter(hears));
                if notify.suppress {
                    reactions.muted.push((kind, path));
                }
            }
            Err(error) => {
                self.tree.part_back(part, mark);
                let name = program.name();
                self.extensions.warn(format!("{name} does not react to {path}: {error}"));
            }
        }
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
