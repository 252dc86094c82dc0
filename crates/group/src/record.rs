//! What a member writes to its log, and how it finds itself again in it.
//!
//! A record is a [`Store`]. Records only ever follow one another: entries that are void are not
//! written over, a later record simply begins at the position of the first of them. So the log
//! underneath needs to know nothing of terms and votes.
//!
//! ```text
//! record  := flags u8, [vote], [mark], [history], entries
//! vote    := term u64, voted_for u64, committed u64
//! history := id 16 bytes, since u64
//! ```

use crate::codec::{self, DecodeError};
use crate::held::{Entry, Mark, Vote};
use crate::history::{History, HistoryId};
use crate::pieces::Pieces;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::fmt;

const VOTE: u8 = 1;
const HISTORY: u8 = 8;
/// What a record without mark and entries takes.
const HEAD_BYTES: usize = 1 + 3 * 8;
const FLAGS: u8 = VOTE | HISTORY | codec::MARK_FLAGS;

/// What is to be stored. Stores are done in the order of their numbers, and each wholly: then
/// [`crate::Group::stored`] is called. Several may share a sync.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Store {
    /// Its number.
    pub number: u64,
    /// The state is that of this snapshot now: what is on disk of the timeline is replaced by it.
    pub snapshot: Option<Box<Mark>>,
    /// The vote, if it has changed.
    pub vote: Option<Vote>,
    /// Which history it is, with every snapshot: it begins here, or goes on.
    pub history: Option<History>,
    /// Entries. The first may stand at a position that has been stored before: then the entries
    /// from there on are void.
    pub entries: Vec<Entry>,
}

/// What a member has on its disk when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The snapshot that its state comes from. A new group's is at position 0, with its members.
    pub base: Mark,
    /// Its vote.
    pub vote: Vote,
    /// Which history it is, if it has one.
    pub history: Option<History>,
    /// The entries behind the snapshot.
    pub entries: Vec<Entry>,
}

/// Why a record cannot be what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// It is no record.
    Decode(DecodeError),
    /// The entry at this position is missing.
    Gap(u64),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => write!(f, "it is no record: {error}"),
            Self::Gap(position) => write!(f, "the entry at position {position} is missing before it"),
        }
    }
}

impl core::error::Error for RecordError {}

impl From<DecodeError> for RecordError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Store {
    /// Where the timeline ends behind it; `None` when it ends where it did before.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let last = self.entries.last().map(|entry| entry.position);
        last.or_else(|| self.snapshot.as_ref().map(|mark| mark.position))
    }

    /// The record.
    #[must_use]
    pub fn encode(&self) -> Pieces {
        let mut out = Pieces::default();
        let mut flags = if self.vote.is_some() { VOTE } else { 0 };
        flags |= codec::mark_flags(self.snapshot.as_deref());
        flags |= if self.history.is_some() { HISTORY } else { 0 };
        out.reserve(HEAD_BYTES + codec::entries_bytes(self.entries.iter().map(|entry| &entry.payload)));
        out.put(&[flags]);
        if let Some(vote) = &self.vote {
            for number in [vote.term, vote.voted_for, vote.committed] {
                out.put(&number.to_le_bytes());
            }
        }
        if let Some(mark) = &self.snapshot {
            codec::put_mark(&mut out, mark);
        }
        if let Some(History { id, since }) = &self.history {
            out.put(&id.0);
            out.put(&since.to_le_bytes());
        }
        codec::put_entries(&mut out, self.entries.iter().cloned());
        out
    }

    /// Reads what [`Store::encode`] wrote, without its number. Payloads are not copied.
    ///
    /// # Errors
    /// When it is no record.
    pub fn decode(mut record: Bytes) -> Result<Self, DecodeError> {
        let flags = codec::get_u8(&mut record)?;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Flags(flags));
        }
        let mut store = Self::default();
        if flags & VOTE != 0 {
            store.vote = Some(Vote {
                term: codec::get_number(&mut record)?,
                voted_for: codec::get_number(&mut record)?,
                committed: codec::get_number(&mut record)?,
            });
        }
        store.snapshot = codec::get_mark(&mut record, flags)?.map(Box::new);
        if flags & HISTORY != 0 {
            let id = HistoryId(codec::get_array(&mut record)?);
            store.history = Some(History { id, since: codec::get_number(&mut record)? });
        }
        store.entries = codec::get_entries(&mut record)?;
        if record.has_remaining() { Err(DecodeError::Long) } else { Ok(store) }
    }
}

impl Restored {
    /// Takes in the record that follows. Records that the snapshot covers, in whole or in part, do
    /// no harm. Payloads are not copied.
    ///
    /// # Errors
    /// When it is no record, or not the one that follows: then the log is damaged, and what has
    /// been taken in so far must not be used.
    pub fn replay(&mut self, record: Bytes) -> Result<(), RecordError> {
        self.follow(Store::decode(record)?)
    }

    /// The same, when it has been read.
    ///
    /// # Errors
    /// When it is not the one that follows.
    pub fn follow(&mut self, store: Store) -> Result<(), RecordError> {
        let Store { vote, snapshot, history, entries, .. } = store;
        self.vote = vote.unwrap_or(self.vote);
        self.history = history.or(self.history);
        // One from before the snapshot is part of it.
        if let Some(mark) = snapshot.filter(|mark| mark.position >= self.base.position) {
            self.base = *mark;
            self.entries.clear();
        }
        self.append(entries)
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), RecordError> {
        let Some(first) = entries.first() else { return Ok(()) };
        let base = self.base.position;
        let next = base + self.entries.len() as u64 + 1;
        if first.position > next {
            return Err(RecordError::Gap(next));
        }
        self.entries.truncate(first.position.saturating_sub(base + 1) as usize);
        for (position, entry) in (first.position..).zip(entries) {
            if entry.position != position {
                return Err(RecordError::Gap(position));
            }
            if position > base {
                self.entries.push(entry);
            }
        }
        Ok(())
    }
}

impl Restored {
    /// Position of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.base.position + self.entries.len() as u64
    }
}

/// Which records can go when there is a snapshot.
///
/// Records have numbers that grow. A snapshot at a position covers every record up to the last one
/// behind which the timeline ended at that position or before: what stands in them is in the
/// snapshot or void. (Votes are not; so the newest vote belongs into the snapshot.)
#[derive(Debug, Clone)]
pub struct Coverage {
    /// Record, and where the timeline ended behind it; behind the last one covered.
    ends: VecDeque<(u64, u64)>,
    covered: u64,
}

impl Coverage {
    /// After a start: `covered` is the last record that the snapshot covers, `last` the last one that
    /// was read, `end` where the timeline ends.
    #[must_use]
    pub fn new(covered: u64, last: u64, end: u64) -> Self {
        Self { ends: VecDeque::from([(last, end)]), covered }
    }

    /// The timeline ends at `end` behind this record, or where it did before.
    pub fn written(&mut self, record: u64, end: Option<u64>) {
        let before = self.ends.back().map_or(0, |(_, end)| *end);
        let end = end.unwrap_or(before);
        if let Some(last) = self.ends.back_mut().filter(|(_, before)| *before == end) {
            last.0 = record;
        } else {
            self.ends.push_back((record, end));
        }
    }

    /// The last record that a snapshot at `position` covers.
    pub fn covered(&mut self, position: u64) -> u64 {
        if let Some(at) = self.ends.iter().rposition(|(_, end)| *end <= position) {
            self.covered = self.ends[at].0;
            // Where the timeline ends must stay known.
            self.ends.drain(..at);
        }
        self.covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::EntryKind;
    use crate::members::Members;

    fn entries(positions: core::ops::RangeInclusive<u64>, term: u64) -> Vec<Entry> {
        let entry =
            |position| Entry { position, term, kind: EntryKind::Payload, payload: Bytes::from_static(b"x") };
        positions.map(entry).collect()
    }

    fn record(store: &Store) -> Bytes {
        store.encode().join()
    }

    fn of_entries(entries: Vec<Entry>) -> Bytes {
        record(&Store { entries, ..Store::default() })
    }

    fn terms(restored: &Restored) -> Vec<(u64, u64)> {
        restored.entries.iter().map(|entry| (entry.position, entry.term)).collect()
    }

    #[test]
    fn a_later_record_voids_what_it_begins_over() {
        let mut restored = Restored::default();
        restored.replay(of_entries(entries(1..=5, 1))).unwrap();
        restored.replay(of_entries(entries(3..=4, 2))).unwrap();
        assert_eq!(terms(&restored), [(1, 1), (2, 1), (3, 2), (4, 2)]);
        assert_eq!(restored.replay(of_entries(entries(6..=6, 2))), Err(RecordError::Gap(5)));
    }

    #[test]
    fn what_the_snapshot_covers_does_no_harm() {
        let mut restored =
            Restored { base: Mark { position: 4, term: 2, ..Mark::default() }, ..Restored::default() };
        // The snapshot was taken when the second record was committed.
        restored.replay(of_entries(entries(2..=6, 1))).unwrap();
        assert_eq!(terms(&restored), [(5, 1), (6, 1)]);
        restored.replay(of_entries(entries(3..=4, 2))).unwrap();
        assert_eq!(terms(&restored), []);
        restored.replay(of_entries(entries(5..=5, 2))).unwrap();
        assert_eq!(terms(&restored), [(5, 2)]);
    }

    #[test]
    fn a_snapshot_covers_records_up_to_the_last_that_ended_with_it() {
        let mut coverage = Coverage::new(3, 7, 0);
        coverage.written(8, Some(10));
        coverage.written(9, Some(6));
        coverage.written(10, None);
        coverage.written(11, Some(12));
        // The entries from 7 on in record 8 are void.
        assert_eq!(coverage.covered(8), 10);
        assert_eq!(coverage.covered(8), 10);
        assert_eq!(coverage.covered(11), 10);
        assert_eq!(coverage.covered(12), 11);
        assert_eq!(Coverage::new(3, 7, 9).covered(8), 3, "what was read at the start goes on to 9");
    }

    #[test]
    fn everything_in_a_record_comes_back() {
        let members = Members {
            auto_leave: true,
            outgoing: vec![1, 2],
            removed: [(1, 4), (5, 3)].into(),
            ..Members::of_voters(&[1, 3])
        };
        let mark = Mark { position: 9, term: 3, members };
        let vote = Vote { term: 4, voted_for: 2, committed: 9 };
        let history = History { id: HistoryId([5; 16]), since: 77 };
        let store = Store {
            number: 1,
            snapshot: Some(mark.clone().into()),
            vote: Some(vote),
            history: Some(history),
            entries: entries(10..=11, 4),
        };
        let mut restored = Restored::default();
        restored.replay(of_entries(entries(1..=1, 1))).unwrap();
        restored.replay(record(&store)).unwrap();
        assert_eq!(
            restored,
            Restored { base: mark, vote, history: Some(history), entries: store.entries.clone() }
        );

        let bytes = record(&store);
        for len in 0..bytes.len() {
            assert!(Restored::default().replay(bytes.slice(..len)).is_err(), "cut at {len}");
        }
    }
}
