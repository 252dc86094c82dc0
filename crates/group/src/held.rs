//! The part of a timeline that is in memory: what the engine reads from.
//!
//! The engine's storage is a view of what *will* be on disk: entries are here as soon as they have
//! been handed out to be stored, so that the leader can send them to others meanwhile. What really
//! is durable it learns from [`crate::Group::stored`] alone.

use crate::codec;
use crate::members::{self, Members};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::Cell;
use raft::eraftpb::{ConfState, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// What was proposed. Without payload: a new leader's first entry, which stands for nothing.
    Payload,
    /// A change of members.
    Change,
}

/// One entry of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands; the first one is 1.
    pub position: u64,
    /// The term of the leader that put it there.
    pub term: u64,
    /// What it holds.
    pub kind: EntryKind,
    /// The bytes.
    pub payload: Bytes,
}

impl Entry {
    pub(crate) fn from_raft(entry: &raft::eraftpb::Entry) -> Self {
        let kind = kind_of(entry);
        let payload = match kind {
            EntryKind::Payload => entry.data.clone(),
            EntryKind::Change => members::payload_from_raft(&entry.data).into(),
        };
        Self { position: entry.index, term: entry.term, kind, payload }
    }

    /// `None` when its kind and payload do not agree.
    pub(crate) fn to_raft(&self) -> Option<raft::eraftpb::Entry> {
        let mut entry = raft::eraftpb::Entry { index: self.position, term: self.term, ..Default::default() };
        match self.kind {
            EntryKind::Payload => entry.data = self.payload.clone(),
            EntryKind::Change => {
                entry.set_entry_type(EntryType::EntryConfChangeV2);
                entry.data = members::payload_to_raft(&self.payload)?.into();
            }
        }
        Some(entry)
    }
}

pub(crate) fn kind_of(entry: &raft::eraftpb::Entry) -> EntryKind {
    match entry.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Payload,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Change,
    }
}

/// What a member must never forget about elections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vote {
    /// The latest term it has heard of.
    pub term: u64,
    /// Whom it elected in that term; 0 for nobody.
    pub voted_for: u64,
    /// Up to here everything is committed. This one may be forgotten: it is learned again.
    pub committed: u64,
}

impl Vote {
    pub(crate) fn from_raft(state: &HardState) -> Self {
        Self { term: state.term, voted_for: state.vote, committed: state.commit }
    }

    fn to_raft(self) -> HardState {
        HardState { term: self.term, vote: self.voted_for, commit: self.committed, ..HardState::default() }
    }
}

/// A point of a timeline at which there is a snapshot of the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Everything up to here is in it.
    pub position: u64,
    /// The term of the entry at that position.
    pub term: u64,
    /// Who belongs to the group there.
    pub members: Members,
}

impl Mark {
    /// The position where every group begins.
    pub(crate) const FOUNDED: u64 = 1;

    /// Where a group begins that these voters found. As if a first entry had said who they are: so nobody can take up
    /// the log from its first entry without knowing that. Without voters it is the mark of who joins a group: nothing
    /// yet.
    #[must_use]
    pub fn founding(voters: &[u64]) -> Self {
        let first = if voters.is_empty() { 0 } else { Self::FOUNDED };
        Self { position: first, term: first, members: Members::of_voters(voters) }
    }

    pub(crate) fn from_raft(snapshot: &Snapshot) -> Self {
        let metadata = snapshot.get_metadata();
        let removed = codec::get_removed(&mut snapshot.data.clone()).expect("it was encoded by this process");
        let members = Members { removed, ..Members::from_raft(metadata.get_conf_state()) };
        Self { position: metadata.index, term: metadata.term, members }
    }

    pub(crate) fn to_raft(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.position;
        metadata.term = self.term;
        metadata.set_conf_state(self.members.to_raft());
        // The engine hands this on as it is.
        snapshot.data = codec::encode_removed(&self.members.removed).into();
        snapshot
    }
}

pub(crate) struct Held {
    pub(crate) vote: HardState,
    /// As of the last entry handed out as committed.
    members: ConfState,
    /// And who was taken out until then.
    removed: BTreeMap<u64, u64>,
    /// Position and term before the first entry.
    base: (u64, u64),
    entries: VecDeque<raft::eraftpb::Entry>,
    /// What they take, about.
    entry_bytes: u64,
    /// Where among them members change.
    changes: VecDeque<u64>,
    /// The newest snapshot that can be sent.
    offered: Option<Mark>,
    /// A member needs a snapshot that is at least as new as this.
    wanted: Cell<Option<u64>>,
}

/// What an entry costs besides its payload, in the limits of messages.
const ENTRY_OVERHEAD_BYTES: u64 = 32;

fn bytes_of(entry: &raft::eraftpb::Entry) -> u64 {
    entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES
}

impl Held {
    /// `base` is the snapshot that the state was read from. The entries must follow one another,
    /// the first of them the base; `None` if they do not.
    pub(crate) fn new(base: &Mark, vote: Vote, entries: &[Entry]) -> Option<Self> {
        let mut held = Self {
            vote: vote.to_raft(),
            members: base.members.to_raft(),
            removed: base.members.removed.clone(),
            base: (base.position, base.term),
            entries: VecDeque::with_capacity(entries.len()),
            changes: VecDeque::new(),
            offered: None,
            entry_bytes: 0,
            wanted: Cell::new(None),
        };
        let mut before = held.base;
        for entry in entries {
            if entry.position != before.0 + 1 || entry.term < before.1 {
                return None;
            }
            before = (entry.position, entry.term);
            held.push(entry.to_raft()?);
        }
        held.vote.commit = held.vote.commit.max(held.proven());
        Some(held)
    }

    /// The members, and who was one.
    pub(crate) fn members(&self) -> Members {
        Members { removed: self.removed.clone(), ..Members::from_raft(&self.members) }
    }

    /// Where a member was taken out last, if it was.
    pub(crate) fn removed_at(&self, member: u64) -> Option<u64> {
        self.removed.get(&member).copied()
    }

    /// The members as the engine has them.
    pub(crate) fn conf_state(&self) -> &ConfState {
        &self.members
    }

    /// The entry at this position has made these the members.
    pub(crate) fn members_are(&mut self, position: u64, state: ConfState) -> Members {
        let members = self.members().changed(position, &state);
        self.members = state;
        self.removed.clone_from(&members.removed);
        members
    }

    /// Where the entries begin, less one.
    pub(crate) fn base_position(&self) -> u64 {
        self.base.0
    }

    fn first(&self) -> u64 {
        self.base.0 + 1
    }

    pub(crate) fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    pub(crate) fn term_at(&self, position: u64) -> Option<u64> {
        if position == self.base.0 {
            return Some(self.base.1);
        }
        let index = usize::try_from(position.checked_sub(self.first())?).ok()?;
        self.entries.get(index).map(|entry| entry.term)
    }

    /// Takes in what is to be stored. Returns whether it votes otherwise than before.
    pub(crate) fn take(
        &mut self,
        vote: Option<&HardState>,
        snapshot: Option<&Mark>,
        entries: &[raft::eraftpb::Entry],
    ) -> bool {
        let votes_anew = vote.is_some_and(|vote| (vote.term, vote.vote) != (self.vote.term, self.vote.vote));
        if let Some(vote) = vote {
            self.vote = vote.clone();
        }
        if let Some(mark) = snapshot {
            self.restore(mark);
        }
        self.append(entries);
        votes_anew
    }

    /// Adds entries; those that stood at their positions and behind are gone.
    fn append(&mut self, entries: &[raft::eraftpb::Entry]) {
        let Some(first) = entries.first() else { return };
        let kept =
            first.index.checked_sub(self.first()).expect("what a snapshot covers is never written over");
        assert!(kept <= self.entries.len() as u64, "entries follow one another");
        for dropped in self.entries.drain(kept as usize..) {
            self.entry_bytes -= bytes_of(&dropped);
        }
        self.changes.retain(|position| *position < first.index);
        for entry in entries {
            self.push(entry.clone());
        }
    }

    fn push(&mut self, entry: raft::eraftpb::Entry) {
        if kind_of(&entry) == EntryKind::Change {
            self.changes.push_back(entry.index);
        }
        self.entry_bytes += bytes_of(&entry);
        self.entries.push_back(entry);
    }

    /// Up to here the entries are committed, whatever else is known: a leader takes up a change of
    /// members when it has applied the one before, so a change in the log proves that the one
    /// before it is committed.
    ///
    /// Without this a member that is two changes behind what its log says would count the votes
    /// and copies of the members before both. It could commit the end of a joint change with the
    /// old majority alone; then those who have the entries are no voters any more, the voters have
    /// not the entries, and nobody can ever lead again.
    pub(crate) fn proven(&self) -> u64 {
        self.changes.iter().rev().nth(1).copied().unwrap_or(0)
    }

    /// Starts anew from another member's snapshot.
    pub(crate) fn restore(&mut self, mark: &Mark) {
        self.base = (mark.position, mark.term);
        self.entries.clear();
        self.entry_bytes = 0;
        self.changes.clear();
        self.members = mark.members.to_raft();
        self.removed.clone_from(&mark.members.removed);
        self.vote.commit = self.vote.commit.max(mark.position);
        self.offered = Some(mark.clone());
    }

    pub(crate) fn offer(&mut self, mark: Mark) {
        if self.offered.as_ref().is_none_or(|offered| offered.position < mark.position) {
            self.offered = Some(mark);
        }
    }

    /// The newest snapshot that can be sent.
    pub(crate) fn offered(&self) -> Option<&Mark> {
        self.offered.as_ref()
    }

    pub(crate) fn take_wanted(&self) -> Option<u64> {
        self.wanted.take()
    }

    /// Lets go of the oldest entries up to `position`, until those that are left take `keep_bytes` or less.
    pub(crate) fn compact(&mut self, position: u64, keep_bytes: u64) {
        while self.entry_bytes > keep_bytes
            && let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= position)
        {
            self.entry_bytes -= bytes_of(&entry);
            self.base = (entry.index, entry.term);
            if self.changes.front() == Some(&entry.index) {
                self.changes.pop_front();
            }
        }
    }

    /// The entries behind `position`, up to and with `last`, as the engine has them.
    pub(crate) fn between(&self, position: u64, last: u64) -> impl Iterator<Item = &raft::eraftpb::Entry> {
        let from = (position.saturating_sub(self.base.0) as usize).min(self.entries.len());
        let count = last.saturating_sub(position) as usize;
        self.entries.range(from..).take(count)
    }
}

impl raft::Storage for Held {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.vote.clone(), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<raft::eraftpb::Entry>> {
        let Some(start) = low.checked_sub(self.first()) else {
            return Err(raft::Error::Store(StorageError::Compacted));
        };
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let count = high.saturating_sub(low) as usize;
        let mut found = Vec::new();
        for entry in self.entries.iter().skip(start as usize).take(count) {
            bytes += bytes_of(entry);
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, position: u64) -> raft::Result<u64> {
        let error = if position < self.base.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(position).ok_or(raft::Error::Store(error))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, at_least: u64, to: u64) -> raft::Result<Snapshot> {
        // One that ends before the entries begin would leave a hole.
        let mut needed = at_least.max(self.base.0);
        if let Some(mark) = &self.offered
            && mark.position >= needed
        {
            // A member ignores a snapshot from before it was one, for ever.
            if mark.members.contains(to) {
                return Ok(mark.to_raft());
            }
            needed = mark.position + 1;
        }
        self.wanted.set(Some(needed));
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
