//! A log under test: remembers what was acknowledged and checks what comes back.

use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{
    AppendError, Disk, Entry, FolderId, Log, Options, Recovery, SnapshotHeader, SnapshotWriter, StorageError,
};

pub(crate) fn options() -> Options {
    Options {
        segment_bytes: 700,
        ahead_bytes: 0,
        block_bytes: 1,
        snapshots_kept: 2,
        new_folder_id: FolderId(*b"0123456789abcdef"),
        now_ms: 1_700_000_000_000,
        ..Options::default()
    }
}

/// What is stored at a position. `attempt` tells apart batches tried again with other contents.
pub(crate) fn payload(timeline: u32, position: u64, attempt: u64) -> Vec<u8> {
    let mut bytes = format!("{timeline}/{position}/{attempt}:").into_bytes();
    let length = (position * 37 + u64::from(timeline) * 11 + attempt) % 90;
    bytes.extend((0..length).map(|at| (at * position) as u8));
    bytes
}

/// The chunks of the test's snapshots.
/// A payload as it comes from who has it in pieces.
pub(crate) fn in_two(payload: &[u8]) -> [&[u8]; 2] {
    payload.split_at(payload.len() / 3).into()
}

pub(crate) fn chunks(sequence: u64) -> Vec<Vec<u8>> {
    (0..1 + sequence % 3)
        .map(|chunk| vec![(sequence * 16 + chunk) as u8; (sequence * 7 + chunk * 30) as usize])
        .collect()
}

/// What recovery handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) snapshot: Option<SnapshotHeader>,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) complete: bool,
    pub(crate) entries: Vec<(u32, u64, Vec<u8>)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) discarded: usize,
}

impl Recovery for Recovered {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        assert!(self.snapshot.is_none(), "a second snapshot begins");
        self.snapshot = Some(header.clone());
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        assert!(self.snapshot.is_some() && !self.complete);
        self.chunks.push(bytes.to_vec());
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        assert!(self.snapshot.is_some() && !self.complete);
        self.complete = true;
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        assert!(self.snapshot.take().is_some() && !self.complete);
        self.chunks.clear();
        self.discarded += 1;
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        assert!(self.snapshot.is_none() || self.complete, "an entry before the snapshot's end");
        self.entries.push((timeline, position, payload.to_vec()));
        Ok(())
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
}

impl Recovered {
    /// The last position of a timeline.
    pub(crate) fn last(&self, timeline: u32) -> u64 {
        let entry = self.entries.iter().rev().find(|entry| entry.0 == timeline);
        entry.map_or_else(|| self.covered(timeline), |entry| entry.1)
    }

    fn covered(&self, timeline: u32) -> u64 {
        let positions = self.snapshot.iter().flat_map(|header| &header.positions);
        positions.filter(|row| row.0 == timeline).map(|row| row.1).max().unwrap_or(0)
    }
}

pub(crate) fn open(disk: &mut FaultyDisk, options: &Options) -> Result<(Log, Recovered), StorageError> {
    let mut recovered = Recovered::default();
    Log::open(disk, options, &mut recovered).map(|log| (log, recovered))
}

/// What was stored and acknowledged, and what was tried last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Per timeline, the payloads acknowledged so far.
    pub(crate) stored: Vec<(u32, Vec<Vec<u8>>)>,
    /// The batch that may or may not have reached the disk.
    pub(crate) doubtful: Vec<(u32, u64, Vec<u8>)>,
    /// Snapshots that may exist: header and chunks.
    pub(crate) snapshots: Vec<(SnapshotHeader, Vec<Vec<u8>>)>,
    /// Sequences of the snapshots that were reported as finished.
    pub(crate) finished: Vec<u64>,
    attempts: u64,
}

impl Model {
    pub(crate) fn last(&self, timeline: u32) -> u64 {
        self.payloads(timeline).len() as u64
    }

    fn payloads(&self, timeline: u32) -> &[Vec<u8>] {
        let found = self.stored.iter().find(|row| row.0 == timeline);
        found.map_or(&[], |row| &row.1)
    }

    pub(crate) fn positions(&self) -> Vec<(u32, u64)> {
        let mut rows: Vec<_> = self.stored.iter().map(|row| (row.0, row.1.len() as u64)).collect();
        rows.retain(|row| row.1 > 0);
        rows.sort_unstable();
        rows
    }

    fn acknowledge(&mut self, batch: Vec<(u32, u64, Vec<u8>)>) {
        for (timeline, position, payload) in batch {
            if !self.stored.iter().any(|row| row.0 == timeline) {
                self.stored.push((timeline, Vec::new()));
            }
            let row = self.stored.iter_mut().find(|row| row.0 == timeline).unwrap();
            assert_eq!(row.1.len() as u64 + 1, position);
            row.1.push(payload);
        }
    }

    /// Appends the next entries of these timelines and remembers the outcome.
    pub(crate) fn append(
        &mut self,
        log: &mut Log,
        disk: &mut impl Disk,
        timelines: &[u32],
    ) -> Result<(), AppendError> {
        self.attempts += 1;
        let mut batch: Vec<(u32, u64, Vec<u8>)> = Vec::new();
        for &timeline in timelines {
            let before = batch.iter().filter(|entry| entry.0 == timeline).count() as u64;
            let position = self.last(timeline) + before + 1;
            batch.push((timeline, position, payload(timeline, position, self.attempts)));
        }
        let pieces: Vec<_> = batch.iter().map(|(.., payload)| in_two(payload)).collect();
        let entries: Vec<Entry<'_>> = batch
            .iter()
            .zip(&pieces)
            .map(|((timeline, position, _), payload)| Entry {
                timeline: *timeline,
                position: *position,
                payload,
            })
            .collect();
        let outcome = log.append(disk, &entries);
        drop(entries);
        match &outcome {
            Ok(()) => {
                self.doubtful.clear();
                self.acknowledge(batch);
            }
            Err(AppendError::NoSpace(_)) => self.doubtful.clear(),
            // On a log that was poisoned before, nothing was tried.
            Err(AppendError::Poisoned(_)) if !self.doubtful.is_empty() => {}
            Err(AppendError::Poisoned(_)) => self.doubtful = batch,
            Err(other) => panic!("{other}"),
        }
        for &(timeline, position) in &log.stats().positions {
            assert_eq!(position, self.last(timeline), "the log counts as the model does");
        }
        outcome
    }

    /// Writes a snapshot of all that is stored.
    pub(crate) fn snapshot(&mut self, disk: &mut impl Disk, sequence: u64) -> Result<(), StorageError> {
        let header = SnapshotHeader { sequence, created_ms: -5, positions: self.positions() };
        let chunks = chunks(sequence);
        self.snapshots.push((header.clone(), chunks.clone()));
        let mut writer = SnapshotWriter::begin(disk, header)?;
        for chunk in &chunks {
            if let Err(error) = writer.chunk(disk, chunk) {
                writer.abandon(disk);
                return Err(error);
            }
        }
        writer.finish(disk)?;
        self.finished.push(sequence);
        Ok(())
    }

    /// Checks that what came back is all that was acknowledged, and nothing that was not tried.
    /// What came back counts as acknowledged from now on.
    pub(crate) fn check(&mut self, recovered: &Recovered) {
        if let Some(header) = &recovered.snapshot {
            assert!(recovered.complete, "the snapshot was handed out to its end");
            let expected = (header.clone(), recovered.chunks.clone());
            assert!(self.snapshots.contains(&expected), "a snapshot that was never written: {header:?}");
        }
        let newest = recovered.snapshot.as_ref().map_or(0, |header| header.sequence);
        assert!(self.finished.iter().all(|&sequence| sequence <= newest), "a finished snapshot is gone");
        let mut doubtful = std::mem::take(&mut self.doubtful);
        let more = doubtful.first().is_some_and(|first| recovered.entries.contains(first));
        if more {
            self.acknowledge(std::mem::take(&mut doubtful));
        }
        self.check_entries(recovered);
        for (timeline, payloads) in &self.stored {
            assert_eq!(recovered.last(*timeline), payloads.len() as u64, "of timeline {timeline}");
        }
    }

    /// Checks that the entries follow the snapshot without gaps and are what was stored.
    pub(crate) fn check_entries(&self, recovered: &Recovered) {
        let mut reached: Vec<(u32, u64)> = Vec::new();
        for (timeline, position, payload) in &recovered.entries {
            let covered = recovered.covered(*timeline);
            let last = match reached.iter_mut().find(|row| row.0 == *timeline) {
                Some(row) => row,
                None => {
                    reached.push((*timeline, covered));
                    reached.last_mut().unwrap()
                }
            };
            assert_eq!(*position, last.1 + 1, "a gap in timeline {timeline}");
            last.1 = *position;
            let stored = self.payloads(*timeline).get(*position as usize - 1);
            assert_eq!(stored, Some(payload), "position {position} of timeline {timeline}");
        }
    }
}
