//! Requests under way to the timeline: what a contact server has asked, and what the leader has taken
//! of each contact server's.
//!
//! A contact server numbers what it asks. The leader takes the requests of a server in the order of
//! their numbers, each once, and everything that it takes becomes an item of the timeline with that
//! number: so outcomes come back in order, by way of the timeline alone, and what has no outcome when
//! an entry of the next leader's term is applied will never have one by way of the old leader. Then it
//! is asked again; nothing happens twice, and nobody has to guess.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

/// A request that came in at some server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The contact server.
    pub server: u8,
    /// Its number for the request.
    pub request: u64,
    /// 0; or the site that this is a request of, when the number is that site's.
    pub site: u8,
}

/// What this server has asked and has no outcome of. `C` names who has asked.
#[derive(Debug)]
pub(crate) struct Requests<C> {
    server: u8,
    /// Number of this run's first request: random, so that no two runs use the same numbers.
    stream: u64,
    /// Number of the oldest without outcome.
    first: u64,
    pending: VecDeque<Pending<C>>,
    /// Bytes of what is kept to be asked again.
    bytes: usize,
    /// As many of them, from the oldest, have been given to the leader of this term.
    given: usize,
    pub(crate) given_at_us: u64,
    /// At a reader: what they are called by the member that asks in its place.
    names: Option<Box<Names>>,
}

/// What a reader's requests are called by the member in whose name they are asked. Both numbers grow.
#[derive(Debug, Default)]
struct Names {
    /// Number here of the oldest that is not called anything yet.
    next: u64,
    /// Oldest first.
    runs: VecDeque<Run>,
}

/// Requests that follow one another, here and there.
#[derive(Debug)]
struct Run {
    here: u64,
    there: u64,
    count: u64,
}

impl Names {
    /// The number here of what is called this there.
    fn here(&self, there: u64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.there + run.count <= there);
        let run = self.runs.get(at)?;
        Some(run.here + there.checked_sub(run.there)?)
    }

    /// Those before this number have their outcome.
    fn passed(&mut self, first: u64) {
        while self.runs.pop_front_if(|run| run.here + run.count <= first).is_some() {}
        self.next = self.next.max(first);
    }

    fn add(&mut self, there: u64, count: u64) {
        let here = self.next;
        self.next += count;
        match self.runs.back_mut() {
            Some(last) if (last.here + last.count, last.there + last.count) == (here, there) => {
                last.count += count;
            }
            _ => self.runs.push_back(Run { here, there, count }),
        }
    }
}

#[derive(Debug)]
struct Pending<C> {
    connection: C,
    /// To ask again; empty when it was prepared here, then it is asked once, and when it is void.
    asked: Bytes,
}

impl<C: Copy + Ord> Requests<C> {
    /// `random` makes the numbers of this run unlike those of any other.
    pub(crate) fn new(server: u8, random: u64) -> Self {
        // Far from where the numbers would wrap.
        let stream = random >> 1;
        Self {
            server,
            stream,
            first: stream,
            pending: VecDeque::new(),
            bytes: 0,
            given: 0,
            given_at_us: 0,
            names: None,
        }
    }

    /// At a reader: a member asks in its place, and calls what it is asked by numbers of its own.
    pub(crate) fn new_at_reader(random: u64) -> Self {
        let mut requests = Self::new(0, random);
        requests.names = Some(Box::new(Names { next: requests.first, ..Names::default() }));
        requests
    }

    /// The server whose requests these are: at a reader the member that asks in its place.
    pub(crate) fn server(&self) -> u8 {
        self.server
    }

    /// At a reader: this member asks in its place from now on. Nothing was given to another one.
    pub(crate) fn ask_through(&mut self, server: u8) {
        debug_assert!(self.given == 0, "what was given elsewhere is forgotten");
        self.server = server;
    }

    /// At a reader: so many of what was given, the oldest that are not called anything yet, are called this and what
    /// follows. Each is told to `each`, with what it is called. False when that cannot be.
    pub(crate) fn name(&mut self, there: u64, count: u64, mut each: impl FnMut(C, u64)) -> bool {
        let given = self.first + self.given as u64;
        let Some(names) = &mut self.names else { return false };
        let known = names.runs.back().map_or(0, |last| last.there + last.count);
        let fits = count <= given.saturating_sub(names.next) && there.checked_add(count).is_some();
        if count == 0 || there < known || !fits {
            return false;
        }
        let from = usize::try_from(names.next - self.first).unwrap_or(usize::MAX);
        names.add(there, count);
        for (pending, number) in self.pending.iter().skip(from).zip(there..there + count) {
            each(pending.connection, number);
        }
        true
    }

    pub(crate) fn stream(&self) -> u64 {
        self.stream
    }

    /// Number of the oldest without outcome.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// What the next request is called.
    pub(crate) fn next(&self) -> Origin {
        Origin { server: self.server, request: self.first + self.pending.len() as u64, site: 0 }
    }

    /// Whether all of them are with the leader.
    pub(crate) fn are_given(&self) -> bool {
        self.given == self.pending.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes of what is kept to be asked again.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest has its outcome, or will have none.
    fn pop(&mut self) -> Option<Pending<C>> {
        let pending = self.pending.pop_front()?;
        self.first += 1;
        self.bytes -= pending.asked.len();
        Some(pending)
    }

    /// A request that was prepared here: it is with the leader at once.
    pub(crate) fn prepared(&mut self, connection: C) {
        debug_assert!(self.are_given(), "the order of requests is that of their numbers");
        self.pending.push_back(Pending { connection, asked: Bytes::new() });
        self.given += 1;
    }

    /// A request for whoever leads.
    pub(crate) fn ask(&mut self, connection: C, asked: Bytes) {
        self.bytes += asked.len();
        self.pending.push_back(Pending { connection, asked });
    }

    /// The next ones to give to the leader, about so many bytes of them, with the number of the first.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<(u64, Vec<Bytes>)> {
        if self.are_given() {
            return None;
        }
        let first = self.first + self.given as u64;
        let mut bytes = 0;
        let mut asked = Vec::new();
        for pending in self.pending.iter().skip(self.given) {
            bytes += pending.asked.len();
            if bytes > bytes_max && !asked.is_empty() {
                break;
            }
            asked.push(pending.asked.clone());
        }
        self.given += asked.len();
        Some((first, asked))
    }

    /// The leader lacks everything from this number on.
    pub(crate) fn give_again_from(&mut self, number: u64) {
        let kept = number.saturating_sub(self.first);
        self.given = self.given.min(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    fn is_own(&self, origin: Origin) -> bool {
        origin.server == self.server && origin.site == 0
    }

    /// An outcome: for which connection, if it is one of ours, and what it had asked if that was kept. Those asked before it have none, and
    /// never will: their connections are handed to `lost`.
    #[inline]
    pub(crate) fn outcome(&mut self, origin: Origin, mut lost: impl FnMut(C)) -> Option<(C, Bytes)> {
        let number = match &self.names {
            None => origin.request,
            Some(names) => names.here(origin.request)?,
        };
        let at = number.checked_sub(self.first)?;
        let at = usize::try_from(at).ok().filter(|at| self.is_own(origin) && *at < self.pending.len())?;
        for _ in 0..at {
            self.pop().into_iter().for_each(|pending| lost(pending.connection));
        }
        self.given = self.given.saturating_sub(at + 1);
        let done = self.pop();
        if let Some(names) = &mut self.names {
            names.passed(self.first);
        }
        done.map(|pending| (pending.connection, pending.asked))
    }

    /// The next leader leads, and everything before its term has its outcome: the others are to be
    /// asked again. The connections of those that cannot be are handed to `lost`. What such a connection
    /// has asked later must not happen either, and is made void: its number is given all the same, for
    /// numbers have no gaps, and the leader refuses it.
    pub(crate) fn ask_again(&mut self, mut lost: impl FnMut(C)) {
        self.given = 0;
        let mut closed = BTreeSet::new();
        for pending in &mut self.pending {
            if pending.asked.is_empty() {
                if closed.insert(pending.connection) {
                    lost(pending.connection);
                }
            } else if closed.contains(&pending.connection) {
                self.bytes -= core::mem::take(&mut pending.asked).len();
            }
        }
        while self.pending.front().is_some_and(|pending| pending.asked.is_empty()) {
            self.pop();
        }
    }

    /// Outcomes may have been missed: nothing is known of any request.
    pub(crate) fn forget(&mut self, mut lost: impl FnMut(C)) {
        while let Some(pending) = self.pop() {
            lost(pending.connection);
        }
        self.given = 0;
        if let Some(names) = &mut self.names {
            **names = Names { next: self.first, ..Names::default() };
        }
    }
}

/// At the leader: what it has taken of one contact server's requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// Which run of the server it is.
    pub(crate) stream: u64,
    /// Number of the next request.
    pub(crate) expected: u64,
}

impl Stream {
    /// How many of the requests that begin with `first` have been taken before; `None` when some
    /// before it are missing.
    pub(crate) fn taken_of(&self, first: u64) -> Option<u64> {
        self.expected.checked_sub(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(requests: &mut Requests<u64>, id: u64) -> Origin {
        let origin = requests.next();
        requests.ask(id, vec![id as u8; 10].into());
        origin
    }

    #[test]
    fn outcomes_are_told_apart_from_those_of_others() {
        let mut requests = Requests::new(2, 100);
        let origin = asked(&mut requests, 7);
        let others = Origin { server: 1, ..origin };
        assert_eq!(requests.outcome(others, |_| panic!("nothing is lost")), None);
        let (connection, _) = requests.outcome(origin, |_| panic!("nothing is lost")).unwrap();
        assert_eq!(connection, 7);
        assert_eq!(requests.outcome(origin, |_| panic!("nothing is lost")), None, "it has one outcome");
    }

    #[test]
    fn what_has_no_outcome_is_asked_again_and_what_cannot_be_is_lost() {
        let mut requests = Requests::new(1, 0);
        requests.prepared(1);
        let second = asked(&mut requests, 2);
        asked(&mut requests, 3);
        assert_eq!(requests.give(15), Some((second.request, vec![Bytes::from(vec![2; 10])])));
        requests.give_again_from(0);
        let mut lost = Vec::new();
        requests.ask_again(|connection| lost.push(connection));
        assert_eq!(lost, [1]);
        let (first, again) = requests.give(100).unwrap();
        assert_eq!((first, again.len()), (second.request, 2));
        assert_eq!(requests.give(100), None);
        let mut skipped = Vec::new();
        let third = Origin { request: second.request + 1, ..second };
        let (connection, _) = requests.outcome(third, |lost| skipped.push(lost)).unwrap();
        assert_eq!(connection, 3);
        assert_eq!(skipped, [2]);
        assert!(requests.is_empty() && requests.are_given());
        assert_eq!(requests.bytes(), 0);
    }

    #[test]
    fn a_reader_finds_outcomes_by_what_a_member_calls_its_requests() {
        let mut requests = Requests::new_at_reader(1000);
        requests.ask_through(3);
        (1..=5).for_each(|id| _ = asked(&mut requests, id));
        assert!(!requests.name(70, 1, |_, _| ()), "nothing was given");
        requests.give(40).unwrap();
        let mut named = Vec::new();
        assert!(requests.name(70, 2, |id, number| named.push((id, number))));
        // Others have asked the member meanwhile.
        assert!(!requests.name(71, 1, |_, _| ()) && !requests.name(80, 3, |_, _| ()));
        assert!(!requests.name(u64::MAX, 1, |_, _| ()) && !requests.name(80, 0, |_, _| ()));
        assert!(requests.name(80, 2, |id, number| named.push((id, number))));
        assert_eq!(named, [(1, 70), (2, 71), (3, 80), (4, 81)]);
        let of = |request| Origin { server: 3, request, site: 0 };
        let mut lost = Vec::new();
        let mut outcome = |requests: &mut Requests<u64>, origin| {
            requests.outcome(origin, |id| lost.push(id)).map(|(id, _)| id)
        };
        assert_eq!(outcome(&mut requests, of(75)), None, "it is of somebody else");
        assert_eq!(outcome(&mut requests, Origin { server: 2, ..of(70) }), None);
        assert_eq!(outcome(&mut requests, of(70)), Some(1));
        assert_eq!(outcome(&mut requests, of(81)), Some(4));
        assert_eq!(lost, [2, 3]);
        requests.give(40).unwrap();
        assert!(requests.name(90, 1, |id, _| assert_eq!(id, 5)));
        requests.forget(|id| assert_eq!(id, 5));
        assert_eq!(requests.outcome(of(90), |_| panic!("nothing is lost")), None);
        requests.ask_through(1);
        asked(&mut requests, 6);
        requests.give(40).unwrap();
        assert!(requests.name(5, 1, |_, _| ()), "another member has other numbers");
        let origin = Origin { server: 1, request: 5, site: 0 };
        assert_eq!(requests.outcome(origin, |_| panic!("nothing is lost")).map(|(id, _)| id), Some(6));
    }

    #[test]
    fn nothing_is_asked_again_behind_what_is_lost_on_its_connection() {
        // Asked of another leader, then given to this server as the next one, which prepares and loses
        // the lead.
        let mut requests = Requests::new(1, 0);
        let first = asked(&mut requests, 1).request;
        requests.give(100).unwrap();
        requests.prepared(2);
        asked(&mut requests, 2);
        asked(&mut requests, 3);
        let mut lost = Vec::new();
        requests.ask_again(|connection| lost.push(connection));
        assert_eq!(lost, [2]);
        let again = [vec![1; 10], vec![], vec![], vec![3; 10]].map(Bytes::from);
        assert_eq!(requests.give(100), Some((first, again.to_vec())));
    }
}
