//! A log under test: remembers what was acknowledged and checks what comes back.

use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{
    AppendError, Disk, Entry, FolderId, Log, Options, Recovery, SnapshotHeader, SnapshotWriter, StorageError,
    list_snapshots,
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

/// A payload as it comes from who has it in pieces.
pub(crate) fn in_two(payload: &[u8]) -> [&[u8]; 2] {
    payload.split_at(payload.len() / 3).into()
}

/// The chunks of the test's snapshots.
pub(crate) fn chunks(sequence: u64) -> Vec<Vec<u8>> {
    (0..1 + sequence % 3)
        .map(|chunk| vec![(sequence * 16 + chunk) as u8; (sequence * 7 + chunk * 30) as usize])
        .collect()
}

/// A snapshot: what it is of, and its chunks.
pub(crate) type Snapshot = (SnapshotHeader, Vec<Vec<u8>>);

/// What recovery handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Those that were handed out to their ends.
    pub(crate) snapshots: Vec<Snapshot>,
    begun: Option<Snapshot>,
    pub(crate) entries: Vec<(u32, u64, Vec<u8>)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) discarded: usize,
}

impl Recovery for Recovered {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        assert!(self.begun.is_none(), "a snapshot begins before another one's end");
        assert!(self.entries.is_empty(), "a snapshot after entries");
        assert!(!header.positions.is_empty(), "a snapshot of nothing");
        for &(timeline, _) in &header.positions {
            assert_eq!(self.snapshot_of(timeline), None, "a second snapshot of timeline {timeline}");
        }
        self.begun = Some((header.clone(), Vec::new()));
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.begun.as_mut().unwrap().1.push(bytes.to_vec());
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        self.snapshots.push(self.begun.take().unwrap());
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        assert!(self.begun.take().is_some());
        self.discarded += 1;
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        assert!(self.begun.is_none(), "an entry before the snapshot's end");
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

    /// The sequence of the snapshot that a timeline was given, if any.
    pub(crate) fn snapshot_of(&self, timeline: u32) -> Option<u64> {
        self.of(timeline).map(|header| header.sequence)
    }

    fn of(&self, timeline: u32) -> Option<&SnapshotHeader> {
        let mut headers = self.snapshots.iter().map(|(header, _)| header);
        headers.find(|header| header.position_if_named(timeline).is_some())
    }

    fn covered(&self, timeline: u32) -> u64 {
        self.of(timeline).map_or(0, |header| header.position(timeline))
    }
}

pub(crate) fn open(disk: &mut FaultyDisk, options: &Options) -> Result<(Log, Recovered), StorageError> {
    let mut recovered = Recovered::default();
    Log::open(disk, options, &mut recovered).map(|log| (log, recovered))
}

/// A new folder on a good disk.
pub(crate) struct Folder {
    pub(crate) disk: FaultyDisk,
    pub(crate) model: Model,
    pub(crate) log: Log,
}

pub(crate) fn folder() -> Folder {
    let mut disk = FaultyDisk::new(1);
    let (log, _) = open(&mut disk, &options()).unwrap();
    Folder { disk, model: Model::default(), log }
}

impl Folder {
    /// Batches with an entry of each of these timelines.
    pub(crate) fn append(&mut self, count: usize, timelines: &[u32]) {
        for _ in 0..count {
            self.model.append(&mut self.log, &mut self.disk, timelines).unwrap();
        }
    }

    pub(crate) fn sequences(&mut self) -> Vec<u64> {
        list_snapshots(&mut self.disk).unwrap().iter().map(|found| found.sequence).collect()
    }
}

/// What was stored and acknowledged, and what was tried last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Per timeline, the payloads acknowledged so far.
    pub(crate) stored: Vec<(u32, Vec<Vec<u8>>)>,
    /// The batch that may or may not have reached the disk.
    pub(crate) doubtful: Vec<(u32, u64, Vec<u8>)>,
    /// Snapshots that may exist.
    pub(crate) snapshots: Vec<Snapshot>,
    /// Sequences and timelines of the snapshots that were reported as finished, and are whole.
    pub(crate) finished: Vec<(u64, Vec<u32>)>,
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
        let timelines: Vec<u32> = self.positions().iter().map(|row| row.0).collect();
        self.snapshot_of(disk, sequence, &timelines)
    }

    /// Writes a snapshot of some timelines.
    pub(crate) fn snapshot_of(
        &mut self,
        disk: &mut impl Disk,
        sequence: u64,
        timelines: &[u32],
    ) -> Result<(), StorageError> {
        let mut writer = self.begin_snapshot(disk, sequence, timelines)?;
        for chunk in &chunks(sequence) {
            if let Err(error) = writer.chunk(disk, chunk) {
                writer.abandon(disk);
                return Err(error);
            }
        }
        self.finish_snapshot(disk, writer)
    }

    /// Begins a snapshot of some timelines, which is to have its [`chunks`].
    pub(crate) fn begin_snapshot(
        &mut self,
        disk: &mut impl Disk,
        sequence: u64,
        timelines: &[u32],
    ) -> Result<SnapshotWriter, StorageError> {
        let mut positions: Vec<_> = timelines.iter().map(|&of| (of, self.last(of))).collect();
        match positions.iter().all(|row| row.1 == 0) {
            true => positions.truncate(1),
            false => positions.retain(|row| row.1 > 0),
        }
        let header = SnapshotHeader { sequence, created_ms: -5, positions };
        let writer = SnapshotWriter::begin(disk, header.clone())?;
        let positions = if header.positions.is_empty() { vec![(0, 0)] } else { header.positions };
        self.snapshots.push((SnapshotHeader { positions, ..header }, chunks(sequence)));
        Ok(writer)
    }

    /// Ends a snapshot that has all its chunks.
    pub(crate) fn finish_snapshot(
        &mut self,
        disk: &mut impl Disk,
        writer: SnapshotWriter,
    ) -> Result<(), StorageError> {
        let SnapshotHeader { sequence, positions, .. } = writer.finish(disk)?.header;
        self.finished.push((sequence, positions.iter().map(|row| row.0).collect()));
        Ok(())
    }

    /// Checks that what came back is all that was acknowledged, and nothing that was not tried.
    /// What came back counts as acknowledged from now on.
    pub(crate) fn check(&mut self, recovered: &Recovered) {
        for (sequence, timelines) in &self.finished {
            for &timeline in timelines {
                let newest = recovered.snapshot_of(timeline);
                assert!(newest >= Some(*sequence), "{timeline}: snapshot {sequence} is gone: {newest:?}");
            }
        }
        self.check_without_newest(recovered);
    }

    /// The same, where finished snapshots may have gone.
    pub(crate) fn check_without_newest(&mut self, recovered: &Recovered) {
        assert!(recovered.begun.is_none(), "every snapshot was handed out to its end");
        for (header, chunks) in &recovered.snapshots {
            let is_it = |(written, with): &Snapshot| {
                let mut rows = header.positions.iter();
                written.sequence == header.sequence
                    && written.created_ms == header.created_ms
                    && rows.all(|row| written.positions.contains(row))
                    && with == chunks
            };
            assert!(self.snapshots.iter().any(is_it), "a snapshot that was never written: {header:?}");
        }
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
