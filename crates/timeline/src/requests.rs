//! Requests under way to the timeline: what a contact server has asked, and what the leader has taken
//! of each contact server's.
//!
//! A contact server numbers what it asks. The leader takes the requests of a server in the order of
//! their numbers, each once, and everything that it takes becomes an item of the timeline with that
//! number: so outcomes come back in order, by way of the timeline alone, and what has no outcome when
//! an entry of the next leader's term is applied will never have one by way of the old leader. Then it
//! is asked again; nothing happens twice, and nobody has to guess.

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
        Self { server, stream, first: stream, pending: VecDeque::new(), bytes: 0, given: 0, given_at_us: 0 }
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
    pub(crate) fn ask(&mut self, connection: C, asked: Vec<u8>) {
        self.bytes += asked.len();
        self.pending.push_back(Pending { connection, asked: asked.into() });
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
        let at = origin.request.checked_sub(self.first)?;
        let at = usize::try_from(at).ok().filter(|at| self.is_own(origin) && *at < self.pending.len())?;
        for _ in 0..at {
            self.pop().into_iter().for_each(|pending| lost(pending.connection));
        }
        self.given = self.given.saturating_sub(at + 1);
        self.pop().map(|pending| (pending.connection, pending.asked))
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
        requests.ask(id, vec![id as u8; 10]);
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
