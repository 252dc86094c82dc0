//! A member's disk: the log and the snapshots of a server, on a disk that loses what is not synced.

use super::State;
use std::collections::VecDeque;
use stoa_group::{Coverage, Mark, Members, Restored, Store, Vote};
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{Entry, Log, Options, Recovery, SnapshotHeader, SnapshotWriter, StorageError};

const TIMELINE: u32 = 1;

pub(crate) struct Disk {
    disk: FaultyDisk,
    /// Who belongs to a group that has no snapshot yet.
    members: Members,
    open: Option<Open>,
    /// Written and not synced; with the state of a snapshot that is taken over.
    pending: VecDeque<(Store, Option<State>)>,
    pub(crate) segments_removed: u64,
}

/// What is known while the server runs.
struct Open {
    log: Log,
    coverage: Coverage,
    /// The newest one that is durable.
    vote: Vote,
    snapshots: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64, members: Members) -> Self {
        Self {
            disk: FaultyDisk::new(seed),
            members,
            open: None,
            pending: VecDeque::new(),
            segments_removed: 0,
        }
    }

    /// Reads what there is.
    pub(crate) fn start(&mut self) -> (Restored, State) {
        let options = Options {
            segment_bytes: 512,
            ahead_bytes: 128,
            block_bytes: 64,
            snapshots_kept: 2,
            ..Options::default()
        };
        let mut found = Found { members: self.members.clone(), ..Found::default() };
        found.forget();
        let log = Log::open(&mut self.disk, &options, &mut found).expect("a loss of power is no damage");
        let coverage = Coverage::new(found.covered, log.position(TIMELINE), found.restored.last());
        let vote = found.restored.vote;
        self.open = Some(Open { log, coverage, vote, snapshots: found.sequence });
        (found.restored, found.state)
    }

    pub(crate) fn write(&mut self, store: Store, state: Option<State>) {
        self.pending.push_back((store, state));
    }

    /// Makes durable what was written; returns the number of the last store.
    pub(crate) fn sync(&mut self) -> Result<Option<u64>, StorageError> {
        let mut number = None;
        while let Some((store, state)) = self.pending.pop_front() {
            // First the snapshot, then the record that builds on it.
            if let (Some(mark), Some(state)) = (&store.snapshot, state) {
                let covered = self.open().log.position(TIMELINE);
                self.write_snapshot(mark, state, covered)?;
            }
            let Self { disk, open, .. } = self;
            let open = open.as_mut().expect("the server runs");
            let position = open.log.position(TIMELINE) + 1;
            let record = store.encode().join();
            let entry = Entry { timeline: TIMELINE, position, payload: &[&record] };
            let appended = open.log.append(disk, &[entry]);
            if appended.is_err() {
                return Err(StorageError::NoLog);
            }
            open.coverage.written(position, store.end());
            open.vote = store.vote.unwrap_or(open.vote);
            number = Some(store.number);
        }
        if number.is_none() {
            let Self { disk, open, .. } = self;
            let _ = open.as_mut().expect("the server runs").log.seal(disk);
        }
        Ok(number)
    }

    fn open(&mut self) -> &mut Open {
        self.open.as_mut().expect("the server runs")
    }

    /// Loses power, with luck only after some of what is pending got through.
    pub(crate) fn crash(&mut self, calls: u64) {
        self.disk.fault_after(calls, Fault::PowerLoss);
        let _ = self.sync();
        self.disk.crash();
        self.open = None;
        self.pending.clear();
    }

    /// Stores a snapshot of the state, and removes what is not needed any more.
    pub(crate) fn take_snapshot(&mut self, mark: &Mark, state: State, with_vote: bool) {
        if !with_vote {
            self.open().vote.voted_for = 0;
        }
        let covered = self.open().coverage.covered(mark.position);
        self.write_snapshot(mark, state, covered).expect("the disk works");
        let Self { disk, open, .. } = self;
        let log = &mut open.as_mut().expect("the server runs").log;
        self.segments_removed += log.purge(disk).expect("the disk works").segments_removed as u64;
    }

    fn write_snapshot(&mut self, mark: &Mark, state: State, covered: u64) -> Result<(), StorageError> {
        let open = self.open();
        open.snapshots += 1;
        let header =
            SnapshotHeader { sequence: open.snapshots, created_ms: 0, positions: vec![(TIMELINE, covered)] };
        // The beginning of a member's life from here on is a record too.
        let begin = Store {
            number: 0,
            snapshot: Some(mark.clone().into()),
            vote: Some(open.vote),
            history: None,
            entries: Vec::new(),
        };
        let chunk = begin.encode().join();
        let mut writer = SnapshotWriter::begin(&mut self.disk, header)?;
        writer.chunk(&mut self.disk, &chunk)?;
        writer.chunk(&mut self.disk, &state.digest.to_le_bytes())?;
        writer.finish(&mut self.disk)?;
        Ok(())
    }
}

/// What recovery finds.
#[derive(Default)]
struct Found {
    members: Members,
    restored: Restored,
    state: State,
    chunks: u64,
    sequence: u64,
    /// The last record that the snapshot covers.
    covered: u64,
}

impl Found {
    fn forget(&mut self) {
        let base = Mark { members: self.members.clone(), ..Mark::default() };
        self.covered = 0;
        (self.restored, self.state) = (Restored { base, ..Restored::default() }, State::default());
    }

    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        self.restored.replay(record.to_vec().into()).map_err(|error| error.to_string())
    }
}

impl Recovery for Found {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        self.sequence = self.sequence.max(header.sequence);
        self.covered = header.positions.first().map_or(0, |(_, record)| *record);
        self.chunks = 0;
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.chunks += 1;
        if self.chunks == 1 {
            return self.replay(bytes);
        }
        let digest = bytes.try_into().map_err(|_| "a state has eight bytes")?;
        self.state = State { position: self.restored.base.position, digest: u64::from_le_bytes(digest) };
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        self.forget();
    }

    fn entry(&mut self, _: u32, _: u64, payload: &[u8]) -> Result<(), String> {
        self.replay(payload)
    }
}
