//! What all performers hold and have been told, and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stoa_check::{Checked, wrong};
use stoa_client::recipes::Cached;
use stoa_tree::Tree;

use super::plan::Play;

/// All of them live below it.
pub(super) const ROOT: &str = "/recipes";
pub(super) const LOCK: &str = "/recipes/lock";
pub(super) const SEMAPHORE: &str = "/recipes/semaphore";
pub(super) const ELECTION: &str = "/recipes/election";
pub(super) const COUNTER: &str = "/recipes/counter";
pub(super) const QUEUE: &str = "/recipes/queue";
pub(super) const MEETING: &str = "/recipes/meeting";
pub(super) const BARRIER: &str = "/recipes/barrier";
pub(super) const GROUP: &str = "/recipes/group";
pub(super) const DATA: &str = "/recipes/data";

/// What happened in runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Locks, leases and leaderships that were given.
    pub holds: u64,
    /// Holders whose sessions ended.
    pub lost: u64,
    /// Writes that were refused because a later holder had written.
    pub fenced: u64,
    /// Waits that were given up.
    pub given_up: u64,
    /// Updates of counters and queues that were told as done.
    pub done: u64,
    /// Those of which nobody knows.
    pub uncertain: u64,
    /// Barriers that were passed.
    pub passed: u64,
    /// Changes that a cache or a group told of.
    pub changes: u64,
    /// Processes that ended without a word.
    pub deaths: u64,
    /// Processes that stood still.
    pub pauses: u64,
}

summed! {
    Deeds { holds, lost, fenced, given_up, done, uncertain, passed, changes, deaths, pauses }
}

impl fmt::Display for Deeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holds, lost, fenced, given_up, done, uncertain, passed, changes, deaths, pauses } = self;
        write!(
            f,
            "{holds} times held, {lost} times lost, {fenced} writes fenced off, {given_up} waits given up, {done} \
             updates done, {uncertain} uncertain, {passed} barriers passed, {changes} changes told, {deaths} \
             deaths, {pauses} pauses"
        )
    }
}

/// Somebody who holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) session: i64,
    pub(super) token: i64,
    pub(super) is_exclusive: bool,
}

/// Of these sessions, no more than so many may be alive now.
#[derive(Debug)]
struct Claim {
    sessions: Vec<i64>,
    alive_max: usize,
    what: String,
}

/// Where somebody is who meets others at a barrier.
#[derive(Debug, Clone, Copy)]
struct Visit {
    began: u64,
    /// Its session, between having entered and leaving.
    inside: Option<i64>,
}

/// Somebody who was to meet others and has vanished: what it leaves behind counts until it is gone.
#[derive(Debug)]
struct Ghost {
    /// The process that takes it away, or the session that ends with it.
    of: Result<usize, i64>,
    gone: Option<u64>,
}

/// The book.
#[derive(Default)]
pub(super) struct Book {
    pub(super) is_finishing: bool,
    /// Performers who may still change something.
    pub(super) busy: BTreeSet<usize>,
    pub(super) counts: Deeds,
    unfenced: bool,
    claims: Vec<Claim>,
    violations: Vec<String>,
    holdings: BTreeMap<&'static str, Vec<Holding>>,
    /// The largest token that what is protected was shown.
    written: BTreeMap<&'static str, i64>,
    sums: BTreeSet<i64>,
    sums_uncertain: u64,
    adding: BTreeSet<usize>,
    put: BTreeSet<u64>,
    put_for_sure: BTreeSet<u64>,
    taken: BTreeSet<u64>,
    /// Takes of which nobody knows.
    takes_uncertain: u64,
    taking: BTreeSet<usize>,
    /// Takes that were given up, and are being undone.
    undoing: BTreeMap<usize, u64>,
    moment: u64,
    visits: BTreeMap<usize, Visit>,
    /// Those who have vanished from the barrier, and may count there still.
    ghosts: Vec<Ghost>,
    /// Since when the barrier is known to be set.
    set_since: Option<u64>,
    is_lifting: bool,
    /// A process has ended while it lifted the barrier: nobody knows when that takes effect.
    may_be_lifted: bool,
    /// What a cache has shown at its end.
    copy: Option<Vec<(String, Cached)>>,
}

pub(super) fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    pub(super) fn new(unfenced: bool) -> Self {
        Self { unfenced, ..Self::default() }
    }

    pub(super) fn wrong(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Looks whether what was written into the book is true of the history as it is now.
    pub(super) fn check(&mut self, is_closed: impl Fn(i64) -> bool) -> Checked {
        for Claim { sessions, alive_max, what } in std::mem::take(&mut self.claims) {
            let alive: Vec<_> = sessions.iter().filter(|session| !is_closed(**session)).collect();
            if alive.len() > alive_max {
                return wrong(format!("{what}: sessions {alive:x?}"));
            }
        }
        for holdings in self.holdings.values_mut() {
            holdings.retain(|holding| !is_closed(holding.session));
        }
        self.ghosts_go(|of| of.is_err_and(&is_closed));
        self.violations.pop().map_or(Ok(()), wrong)
    }

    /// Somebody was told that it holds something, of which so many may.
    pub(super) fn hold(&mut self, what: &'static str, holding: Holding, limit: usize) {
        self.counts.holds += 1;
        let holdings = self.holdings.entry(what).or_default();
        let conflicting = holdings.iter().filter(|it| it.is_exclusive || holding.is_exclusive);
        let mut sessions: Vec<_> = conflicting.map(|it| it.session).collect();
        sessions.push(holding.session);
        holdings.push(holding);
        self.claims.push(Claim { sessions, alive_max: limit, what: format!("too many hold {what}") });
    }

    /// It gives it back, or knows that it is lost.
    pub(super) fn let_go(&mut self, what: &'static str, token: i64) {
        self.holdings.entry(what).or_default().retain(|it| it.token != token);
    }

    /// Whether somebody with this session holds anything.
    pub(super) fn holds(&self, session: i64) -> bool {
        self.holdings.values().flatten().any(|it| it.session == session)
    }

    /// Somebody writes to what is protected.
    pub(super) fn write(&mut self, what: &'static str, token: i64) {
        let last = self.written.entry(what).or_insert(token);
        if token >= *last {
            *last = token;
        } else if self.unfenced {
            let problem = format!("{what}: a write with token {token} was taken after one with {last}");
            self.wrong(problem);
        } else {
            self.counts.fenced += 1;
        }
    }

    pub(super) fn adds(&mut self, who: usize) {
        self.adding.insert(who);
    }

    /// An attempt to add has come to its end; with the sum, if it was told one.
    pub(super) fn has_added(&mut self, who: usize, sum: Option<i64>) {
        self.adding.remove(&who);
        let Some(sum) = sum else { return };
        self.counts.done += 1;
        if !self.sums.insert(sum) {
            self.wrong(format!("two were told that they made the counter {sum}"));
        }
    }

    pub(super) fn has_added_perhaps(&mut self, who: usize) {
        self.adding.remove(&who);
        self.counts.uncertain += 1;
        self.sums_uncertain += 1;
    }

    pub(super) fn puts(&mut self, element: u64) {
        self.put.insert(element);
    }

    pub(super) fn has_put(&mut self, element: u64) {
        self.counts.done += 1;
        self.put_for_sure.insert(element);
    }

    pub(super) fn takes(&mut self, who: usize) {
        self.taking.insert(who);
    }

    pub(super) fn has_taken(&mut self, who: usize, element: Option<u64>) {
        self.taking.remove(&who);
        let Some(element) = element else { return };
        self.counts.done += 1;
        if !self.put.contains(&element) {
            self.wrong(format!("element {element} was taken, which nobody has put"));
        }
        if !self.taken.insert(element) {
            self.wrong(format!("element {element} was taken twice"));
        }
    }

    pub(super) fn has_taken_perhaps(&mut self, who: usize) {
        self.taking.remove(&who);
        self.counts.uncertain += 1;
        self.takes_uncertain += 1;
    }

    pub(super) fn gives_up_taking(&mut self, who: usize) {
        self.taking.remove(&who);
        *self.undoing.entry(who).or_default() += 1;
    }

    /// Nothing is under way in the background of a process.
    pub(super) fn is_idle(&mut self, who: usize) {
        self.undoing.remove(&who);
        self.ghosts_go(|of| of == Ok(who));
    }

    fn ghosts_go(&mut self, which: impl Fn(Result<usize, i64>) -> bool) {
        let now = self.moment;
        let going = self.ghosts.iter_mut().filter(|ghost| ghost.gone.is_none() && which(ghost.of));
        going.for_each(|ghost| ghost.gone = Some(now));
    }

    /// The session of a process is over: what it was about to undo it cannot.
    pub(super) fn session_ended(&mut self, who: usize) {
        self.takes_uncertain += self.undoing.remove(&who).unwrap_or(0);
    }

    /// A process has ended without a word.
    pub(super) fn died(&mut self, who: usize, session: Option<i64>) {
        self.counts.deaths += 1;
        self.session_ended(who);
        self.takes_uncertain += u64::from(self.taking.remove(&who));
        self.sums_uncertain += u64::from(self.adding.remove(&who));
        self.may_be_lifted |= who == 0 && self.is_lifting;
        let of = session.ok_or(who).map_or_else(Ok, Err);
        self.ghosts.iter_mut().filter(|ghost| ghost.of == Ok(who)).for_each(|ghost| ghost.of = of);
        self.vanishes(who, of);
    }

    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn enters(&mut self, who: usize) {
        let began = self.next_moment();
        self.visits.insert(who, Visit { began, inside: None });
    }

    /// Somebody was let in with so many others.
    pub(super) fn has_entered(&mut self, who: usize, session: i64, size: usize) {
        self.counts.passed += 1;
        let Some(visit) = self.visits.get_mut(&who) else { return };
        visit.inside = Some(session);
        let began = visit.began;
        // Whoever went at the same moment went after this one began, which was a moment of its own.
        let ghosts = self.ghosts.iter().filter(|ghost| ghost.gone.is_none_or(|gone| gone >= began)).count();
        if self.visits.len() + ghosts < size {
            self.wrong(format!("{who} was let in, and only {} have come", self.visits.len() + ghosts));
        }
    }

    /// Somebody leaves; returns those who are inside, and since when they are here.
    pub(super) fn leaves(&mut self, who: usize) -> Vec<(usize, u64)> {
        if let Some(visit) = self.visits.get_mut(&who) {
            visit.inside = None;
        }
        let inside = self.visits.iter().filter(|(_, visit)| visit.inside.is_some());
        inside.map(|(who, visit)| (*who, visit.began)).collect()
    }

    /// Somebody has left, and was told that all who had been inside have.
    pub(super) fn has_left(&mut self, who: usize, others: &[(usize, u64)]) {
        self.visits.remove(&who);
        let still = others.iter().filter_map(|(other, began)| {
            let visit = self.visits.get(other).filter(|visit| visit.began == *began)?;
            visit.inside
        });
        let sessions = still.collect();
        self.claims.push(Claim { sessions, alive_max: 0, what: format!("{who} has left before others") });
    }

    /// Somebody who was to meet the others does not.
    pub(super) fn vanishes(&mut self, who: usize, of: Result<usize, i64>) {
        if self.visits.remove(&who).is_some() {
            self.next_moment();
            self.ghosts.push(Ghost { of, gone: None });
        }
    }

    /// The barrier is known to be set, or may be lifted from now on.
    pub(super) fn barrier_is_set(&mut self, is_set: bool) {
        let now = self.next_moment();
        self.set_since = (is_set && !self.may_be_lifted).then_some(now);
        self.is_lifting = !is_set;
    }

    pub(super) fn waits_at_barrier(&mut self) -> u64 {
        self.next_moment()
    }

    pub(super) fn passes_barrier(&mut self, since: u64) {
        self.counts.passed += 1;
        if self.set_since.is_some_and(|set| set < since) {
            self.wrong("somebody has passed a barrier that was set all the time");
        }
    }

    pub(super) fn copied(&mut self, copy: Vec<(String, Cached)>) {
        self.copy = Some(copy);
    }

    /// The end: nothing is under way, and sessions that nobody speaks for are over.
    pub(super) fn audit(&mut self, play: Play, tree: &Tree) -> Checked {
        for directory in [LOCK, ELECTION, MEETING, GROUP, COUNTER] {
            nobody_in(tree, directory)?;
        }
        for (above, below) in
            [(SEMAPHORE, "gate"), (SEMAPHORE, "leases"), (QUEUE, "gate"), (QUEUE, "clients")]
        {
            nobody_in(tree, &format!("{above}/{below}"))?;
        }
        match play {
            Play::Counter => self.audit_counter(tree),
            Play::Queue => self.audit_queue(tree),
            Play::Cache => self.audit_copy(tree),
            _ => Ok(()),
        }
    }

    fn audit_counter(&self, tree: &Tree) -> Checked {
        let data = tree.get(COUNTER).and_then(|znode| znode.data()).unwrap_or(b"0");
        let number: u64 =
            std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        let sure = self.sums.len() as u64;
        if (sure..=sure + self.sums_uncertain).contains(&number) {
            return Ok(());
        }
        let uncertain = self.sums_uncertain;
        wrong(format!("{sure} were added, and {uncertain} perhaps: the counter is {number}"))
    }

    fn audit_queue(&self, tree: &Tree) -> Checked {
        let items = format!("{QUEUE}/items");
        let names: Vec<_> = tree.get(&items).into_iter().flat_map(|znode| znode.children()).collect();
        let mut left = BTreeSet::new();
        for name in names {
            let znode = tree.get(&format!("{items}/{name}"));
            let element = znode.and_then(|znode| read_element(znode.data()?));
            let Some(element) = element else { return wrong("there is an element of nobody") };
            if self.taken.contains(&element) || !left.insert(element) {
                return wrong(format!("element {element} is in the queue, and was taken, or is twice"));
            }
        }
        let missing: Vec<_> =
            self.put_for_sure.iter().filter(|it| !self.taken.contains(it) && !left.contains(it)).collect();
        if missing.len() as u64 > self.takes_uncertain {
            let uncertain = self.takes_uncertain;
            return wrong(format!("elements {missing:?} are lost; {uncertain} takes are uncertain"));
        }
        Ok(())
    }

    fn audit_copy(&self, tree: &Tree) -> Checked {
        let Some(copy) = &self.copy else { return wrong("there is no copy") };
        let mut expected = BTreeSet::new();
        let mut due: Vec<String> = tree.get(DATA).map(|_| DATA.to_owned()).into_iter().collect();
        while let Some(path) = due.pop() {
            due.extend(tree.names_below(&path).map(|name| format!("{path}/{name}")));
            expected.insert(path);
        }
        let paths: BTreeSet<_> = copy.iter().map(|(path, _)| path.clone()).collect();
        if paths != expected {
            return wrong(format!("the copy has {paths:?}, the service {expected:?}"));
        }
        let differs = copy.iter().find(|(path, cached)| {
            let znode = tree.get(path);
            znode.is_none_or(|it| {
                let (stat, data) = (it.stat(), it.data().unwrap_or_default());
                (stat.czxid, stat.mzxid, data) != (cached.stat.czxid, cached.stat.mzxid, &cached.data)
            })
        });
        differs.map_or(Ok(()), |(path, _)| wrong(format!("the copy has another {path}")))
    }
}

/// All who wait or hold something have given it back, or were deleted with their sessions.
fn nobody_in(tree: &Tree, directory: &str) -> Checked {
    match tree.get(directory).and_then(|znode| znode.children().next().map(str::to_owned)) {
        None => Ok(()),
        Some(name) => wrong(format!("nobody holds {directory} or waits, and {name} is there")),
    }
}

pub(super) fn element(number: u64) -> Vec<u8> {
    format!("element {number}").into_bytes()
}

pub(super) fn read_element(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.strip_prefix("element ")?.parse().ok()
}
