//! What was committed long ago, read from the records of the log: for a site that was away for longer than that is kept
//! in memory.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use stoa_group::{Entry, EntryKind, Store};
use stoa_tree::SiteId;

/// What another site lacks and is not in memory any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogWanted {
    /// The site.
    pub site: SiteId,
    /// It has what stands up to this position of the log,
    pub since: u64,
    /// and lacks what stands behind it up to this one.
    pub upto: u64,
    /// It is not known yet what it has: as much as there is has to be looked at.
    pub is_looking: bool,
}

/// Takes the records of a log, oldest first, and gives the entries that were committed between two positions. An entry
/// of which that is not known yet may be void, and is held.
#[derive(Debug)]
pub struct Backlog {
    /// The next one to be given, and the last.
    next: u64,
    upto: u64,
    committed: u64,
    /// Whether it may begin behind where it was to.
    is_looking: bool,
    /// From `next` on, as far as it has been read.
    held: VecDeque<Entry>,
}

/// Why it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadBacklog {
    /// A record is none.
    Unreadable,
    /// The log does not have the entry at this position any more, or never had it.
    Missing(u64),
}

impl fmt::Display for BadBacklog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("a record of the log cannot be read"),
            Self::Missing(position) => write!(f, "the log does not have position {position} any more"),
        }
    }
}

impl core::error::Error for BadBacklog {}

impl Backlog {
    /// Of what is committed and wanted.
    #[must_use]
    pub fn new(wanted: BacklogWanted) -> Self {
        let BacklogWanted { since, upto, is_looking, .. } = wanted;
        Self { next: since + 1, upto, committed: 0, is_looking, held: VecDeque::new() }
    }

    /// Takes the next record, and appends what is known to be committed by it.
    ///
    /// # Errors
    /// When something between is missing.
    pub fn record(&mut self, record: Bytes, out: &mut Vec<(u64, Bytes)>) -> Result<(), BadBacklog> {
        let Store { vote, snapshot, entries, .. } =
            Store::decode(record).map_err(|_| BadBacklog::Unreadable)?;
        if let Some(mark) = snapshot {
            // The state came from elsewhere, and everything up to there is committed. What is held need not be that: it
            // may be void since another one leads. It is if the last of it is.
            let last = mark.position.checked_sub(self.next).and_then(|at| usize::try_from(at).ok());
            if last.and_then(|at| self.held.get(at)).is_some_and(|held| held.term == mark.term) {
                self.committed = self.committed.max(mark.position);
            }
            self.give(out);
            self.committed = self.committed.max(mark.position);
            if mark.position >= self.next && self.next <= self.upto {
                return Err(BadBacklog::Missing(self.next));
            }
        }
        self.hold(entries)?;
        self.committed = self.committed.max(vote.map_or(0, |vote| vote.committed));
        self.give(out);
        Ok(())
    }

    /// There are no more records, and everything up to the last position wanted is committed.
    ///
    /// # Errors
    /// When something is missing.
    pub fn end(mut self, out: &mut Vec<(u64, Bytes)>) -> Result<(), BadBacklog> {
        self.committed = self.upto;
        self.give(out);
        if self.is_done() { Ok(()) } else { Err(BadBacklog::Missing(self.next)) }
    }

    /// There are no more records, and what is not known to be committed is wanted all the same: it may be.
    #[must_use]
    pub fn rest(self) -> Vec<(u64, Bytes)> {
        let is_payload = |entry: &Entry| entry.kind == EntryKind::Payload;
        self.held.into_iter().filter(is_payload).map(|entry| (entry.position, entry.payload)).collect()
    }

    /// Whether everything was given.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next > self.upto
    }

    /// What stands at a position that was read before is void from there on.
    fn hold(&mut self, entries: Vec<Entry>) -> Result<(), BadBacklog> {
        let Some(first) = entries.first().map(|entry| entry.position) else { return Ok(()) };
        if self.is_looking && self.held.is_empty() && first > self.next {
            self.next = first;
        }
        self.is_looking = false;
        if first > self.next + self.held.len() as u64 {
            return Err(BadBacklog::Missing(self.next + self.held.len() as u64));
        }
        self.held.truncate(usize::try_from(first.saturating_sub(self.next)).unwrap_or(usize::MAX));
        let next = self.next;
        self.held.extend(entries.into_iter().filter(|entry| entry.position >= next));
        Ok(())
    }

    fn give(&mut self, out: &mut Vec<(u64, Bytes)>) {
        while self.next <= self.upto.min(self.committed)
            && let Some(entry) = self.held.pop_front()
        {
            self.next += 1;
            if entry.kind == EntryKind::Payload {
                out.push((entry.position, entry.payload));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use stoa_group::{Mark, Vote};

    fn entry(position: u64, term: u64) -> Entry {
        let payload = format!("{position} of {term}").into_bytes().into();
        Entry { position, term, kind: EntryKind::Payload, payload }
    }

    fn record(entries: Vec<Entry>, committed: u64) -> Bytes {
        let vote = (committed > 0).then_some(Vote { term: 9, voted_for: 1, committed });
        Store { vote, entries, ..Store::default() }.encode().join()
    }

    fn read(since: u64, upto: u64, records: &[Bytes]) -> Result<Vec<(u64, Bytes)>, BadBacklog> {
        let wanted = BacklogWanted { site: 2, since, upto, is_looking: false };
        let (mut backlog, mut out) = (Backlog::new(wanted), Vec::new());
        for of in records {
            backlog.record(of.clone(), &mut out)?;
        }
        backlog.end(&mut out).map(|()| out)
    }

    #[test]
    fn what_was_committed_comes_in_order_and_nothing_else() {
        let records = [
            record(vec![entry(1, 1), entry(2, 1), entry(3, 1)], 0),
            // 2 and 3 were never committed.
            record(vec![entry(2, 2)], 0),
            record(vec![entry(3, 2), Entry { kind: EntryKind::Change, ..entry(4, 2) }], 2),
            record(vec![entry(5, 2), entry(6, 3)], 5),
        ];
        let positions = |since, upto| {
            let entries = read(since, upto, &records).unwrap();
            entries.iter().map(|(at, it)| (*at, String::from_utf8_lossy(it).into_owned())).collect::<Vec<_>>()
        };
        let of = |position: u64, term: u64| (position, format!("{position} of {term}"));
        assert_eq!(positions(0, 6), [of(1, 1), of(2, 2), of(3, 2), of(5, 2), of(6, 3)]);
        assert_eq!(positions(2, 5), [of(3, 2), of(5, 2)]);
        assert_eq!(positions(4, 4), []);
        assert_eq!(read(2, 7, &records), Err(BadBacklog::Missing(7)));
        // Who wants all that may be committed is given the rest, too.
        let wanted = BacklogWanted { site: 2, since: 0, upto: u64::MAX, is_looking: true };
        let (mut backlog, mut out) = (Backlog::new(wanted), Vec::new());
        records.iter().for_each(|of| backlog.record(of.clone(), &mut out).unwrap());
        assert_eq!(out.last().map(|(position, _)| *position), Some(5));
        assert_eq!(backlog.rest(), [(6, "6 of 3".into())]);
    }

    #[test]
    fn what_was_void_before_a_state_came_is_missing() {
        let taken = |term| {
            let mark = Mark { position: 3, term, ..Mark::default() };
            Store { snapshot: Some(mark.into()), ..Store::default() }.encode().join()
        };
        let stored = record(vec![entry(1, 1), entry(2, 1), entry(3, 1)], 1);
        let behind = record(vec![entry(4, 2)], 4);
        // Others had something else at 2 and 3 by then, or they had the same.
        let records = [stored.clone(), taken(2), behind.clone()];
        assert_eq!(read(0, 4, &records), Err(BadBacklog::Missing(2)));
        assert_eq!(read(0, 4, &[stored, taken(1), behind]).unwrap().len(), 4);
    }

    #[test]
    fn what_the_log_has_not_any_more_is_missing() {
        let late = [record(vec![entry(5, 1), entry(6, 1)], 6)];
        assert_eq!(read(3, 6, &late), Err(BadBacklog::Missing(4)));
        assert_eq!(read(4, 6, &late).unwrap().len(), 2);
        // The state came from another server.
        let mark = Mark { position: 8, ..Mark::default() };
        let taken = Store { snapshot: Some(mark.into()), ..Store::default() }.encode().join();
        let records = [record(vec![entry(1, 1), entry(2, 1)], 2), taken, record(vec![entry(9, 2)], 9)];
        assert_eq!(read(0, 9, &records), Err(BadBacklog::Missing(3)));
        assert_eq!(read(8, 9, &records).unwrap().len(), 1);
        let zero = Bytes::from_static(&[0xff]);
        assert_eq!(read(0, 1, &[zero]), Err(BadBacklog::Unreadable));
    }
}
