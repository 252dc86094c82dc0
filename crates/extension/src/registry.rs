//! Which programs there are, and whom they concern.

use crate::pattern::Pattern;
use crate::program::{EventKind, OperationKind, Program, Subscription};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The place of a program in the order of registration.
type Place = u64;

/// There is a program of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameTaken;

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is a program of this name already")
    }
}

impl core::error::Error for NameTaken {}

/// The programs that are registered, in the order in which they were, and the sessions that have
/// acknowledged them. No operation of a session runs a program that it has not acknowledged.
#[derive(Debug, Default)]
pub struct Registry {
    programs: BTreeMap<Place, Arc<Program>>,
    places: BTreeMap<Box<str>, Place>,
    next: Place,
    /// What each session has acknowledged.
    acknowledged: HashMap<i64, BTreeSet<Place>, FixedState>,
    /// The same by program: so it takes no look at all sessions to remove one that few have acknowledged.
    sessions: BTreeSet<(Place, i64)>,
    operations: Index,
    events: Index,
}

/// Places of programs by the first name of their patterns.
#[derive(Debug, Default)]
struct Index {
    by_first_name: HashMap<Box<str>, BTreeSet<Place>, FixedState>,
    /// Of all these names.
    beginnings: Beginnings,
    /// Those whose pattern begins with `*`, or is the root.
    others: BTreeSet<Place>,
}

/// The first eight bytes of some names, each as a bit that others may share: so of most paths that concern no program
/// that is known without looking at the whole name.
#[derive(Debug)]
struct Beginnings([u64; 64]);

impl Default for Beginnings {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Beginnings {
    fn insert(&mut self, name: &str) {
        let (word, bit) = Self::place(name.as_bytes());
        self.0[word] |= bit;
    }

    /// Whether the first of some names, with slashes between, may be one of them.
    #[inline]
    fn may_have(&self, names: &[u8]) -> bool {
        let (word, bit) = Self::place(names);
        self.0[word] & bit != 0
    }

    #[inline]
    fn place(names: &[u8]) -> (usize, u64) {
        const EACH: u64 = u64::MAX / 0xff;
        let bytes = match names.first_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => names.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
        };
        // The lowest byte that is a slash has its highest bit set; what is below that belongs to the name.
        let others = bytes ^ (EACH * u64::from(b'/'));
        let slashes = others.wrapping_sub(EACH) & !others & (EACH << 7);
        let own = ((slashes & slashes.wrapping_neg()) >> 7).wrapping_sub(1);
        let hash = (bytes & own).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 58) as usize, 1 << (hash >> 52 & 63))
    }
}

impl Index {
    fn insert(&mut self, pattern: &Pattern, place: Place) {
        let places = match pattern.first_name() {
            Some(name) => {
                self.beginnings.insert(name);
                self.by_first_name.entry(name.into()).or_default()
            }
            None => &mut self.others,
        };
        places.insert(place);
    }

    fn remove(&mut self, pattern: &Pattern, place: Place) {
        let Some(name) = pattern.first_name() else {
            self.others.remove(&place);
            return;
        };
        if let Some(places) = self.by_first_name.get_mut(name) {
            places.remove(&place);
            if places.is_empty() {
                self.by_first_name.remove(name);
                self.beginnings = Beginnings::default();
                self.by_first_name.keys().for_each(|name| self.beginnings.insert(name));
            }
        }
    }

    /// Whether any program may be concerned with a path: it costs next to nothing to know that none is.
    #[inline]
    fn may_have(&self, path: &str) -> bool {
        self.beginnings.may_have(path.as_bytes().get(1..).unwrap_or_default()) || !self.others.is_empty()
    }

    /// The programs that may be concerned with a path: two lists, of which there are few. Most paths have none.
    fn candidates(&self, path: &str) -> Option<[&BTreeSet<Place>; 2]> {
        static NONE: BTreeSet<Place> = BTreeSet::new();
        if !self.may_have(path) {
            return None;
        }
        let names = path.strip_prefix('/').unwrap_or_default();
        let end = names.bytes().position(|byte| byte == b'/').unwrap_or(names.len());
        match self.by_first_name.get(&names[..end]) {
            Some(named) => Some([named, &self.others]),
            None if self.others.is_empty() => None,
            None => Some([&NONE, &self.others]),
        }
    }
}

impl Registry {
    /// Registers a program, behind all others. Nobody has acknowledged it yet.
    ///
    /// # Errors
    /// When there is one of its name.
    pub fn register(&mut self, program: Arc<Program>) -> Result<(), NameTaken> {
        if self.places.contains_key(program.name()) {
            return Err(NameTaken);
        }
        let place = self.next;
        self.next += 1;
        self.places.insert(program.name().into(), place);
        for subscription in program.subscriptions() {
            match subscription {
                Subscription::Operation { pattern, .. } => self.operations.insert(pattern, place),
                Subscription::Event { pattern, .. } => self.events.insert(pattern, place),
            }
        }
        self.programs.insert(place, program);
        Ok(())
    }

    /// Removes a program, and all that was acknowledged of it. Returns whether there was one.
    pub fn deregister(&mut self, name: &str) -> bool {
        let Some(place) = self.places.remove(name) else {
            return false;
        };
        if let Some(program) = self.programs.remove(&place) {
            for subscription in program.subscriptions() {
                match subscription {
                    Subscription::Operation { pattern, .. } => self.operations.remove(pattern, place),
                    Subscription::Event { pattern, .. } => self.events.remove(pattern, place),
                }
            }
        }
        let sessions: Vec<i64> =
            self.sessions.range((place, i64::MIN)..=(place, i64::MAX)).map(|(_, session)| *session).collect();
        sessions.into_iter().for_each(|session| self.forget(session, place));
        true
    }

    /// Notes that a session wants a program to run for it. Returns whether there is one of this name.
    pub fn acknowledge(&mut self, session: i64, name: &str) -> bool {
        let Some(place) = self.places.get(name) else {
            return false;
        };
        self.acknowledged.entry(session).or_default().insert(*place);
        self.sessions.insert((*place, session));
        true
    }

    /// Whether a session has acknowledged a program.
    #[must_use]
    pub fn has_acknowledged(&self, session: i64, name: &str) -> bool {
        let place = self.places.get(name);
        place
            .is_some_and(|place| self.acknowledged.get(&session).is_some_and(|places| places.contains(place)))
    }

    /// Whether a session has acknowledged any program: where it has not, no operation of it needs to be looked
    /// at further.
    #[inline]
    #[must_use]
    pub fn concerns(&self, session: i64) -> bool {
        !self.acknowledged.is_empty() && self.acknowledged.contains_key(&session)
    }

    /// Whether any program reacts to events.
    #[inline]
    #[must_use]
    pub fn has_reactions(&self) -> bool {
        !self.events.by_first_name.is_empty() || !self.events.others.is_empty()
    }

    /// Whether there is no program.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// A program.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Program>> {
        self.programs.get(self.places.get(name)?)
    }

    /// Forgets that a session has acknowledged a program.
    pub fn withdraw(&mut self, session: i64, name: &str) {
        if let Some(place) = self.places.get(name).copied() {
            self.forget(session, place);
        }
    }

    fn forget(&mut self, session: i64, place: Place) {
        self.sessions.remove(&(place, session));
        if let Some(places) = self.acknowledged.get_mut(&session) {
            places.remove(&place);
            if places.is_empty() {
                self.acknowledged.remove(&session);
            }
        }
    }

    /// Forgets what a session has acknowledged: it has ended.
    pub fn forget_session(&mut self, session: i64) {
        for place in self.acknowledged.remove(&session).unwrap_or_default() {
            self.sessions.remove(&(place, session));
        }
    }

    /// The program that carries out an operation of a session in place of the service: the last that was
    /// registered of those that match.
    #[must_use]
    pub fn operation_for(&self, session: i64, kind: OperationKind, path: &str) -> Option<&Arc<Program>> {
        let candidates = self.operations.candidates(path)?;
        let acknowledged = self.acknowledged.get(&session)?;
        let last = candidates.into_iter().filter_map(|places| {
            places.iter().rev().find(|place| {
                acknowledged.contains(place) && self.programs[place].handles_operation(kind, path)
            })
        });
        last.max().map(|place| &self.programs[place])
    }

    /// Whether any program may react to an event at this path, or at another one with the same first name.
    #[inline]
    #[must_use]
    pub fn may_react(&self, path: &str) -> bool {
        self.events.may_have(path)
    }

    /// Whether any program reacts to an event.
    #[must_use]
    pub fn reacts(&self, kind: EventKind, path: &str) -> bool {
        let fits = |place: &Place| self.programs[place].handles_event(kind, path);
        let candidates = self.events.candidates(path);
        candidates.is_some_and(|candidates| candidates.into_iter().flatten().any(fits))
    }

    /// The programs that react to an event, in the order in which they were registered.
    pub fn events_for(&self, kind: EventKind, path: &str) -> impl Iterator<Item = &Arc<Program>> {
        let mut places: Vec<Place> = Vec::new();
        for candidates in self.events.candidates(path).into_iter().flatten() {
            places.extend(candidates.iter().filter(|place| self.programs[place].handles_event(kind, path)));
        }
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| &self.programs[&place])
    }

    /// All programs, in the order in which they were registered.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.programs.values()
    }
}
