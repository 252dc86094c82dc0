//! The server's two threads for the disk, under simulated time: one appends to the log, one writes
//! snapshots. Both work on the same faulty disk.

use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use stoa_core::{Append, SnapshotOutput, TakenOver};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{
    AppendError, Disk, Entry, Log, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError,
    next_sequence,
};

/// A number for each timeline of a batch.
pub type OfEach = BTreeMap<u32, u64>;

/// What the log's thread has to say when a piece of work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogDone {
    /// Everything up to these positions is durable.
    Durable(OfEach),
    /// There was no room for entries of these generations.
    Refused(OfEach),
    /// All that had arrived was void.
    Nothing,
}

/// Why a thread ended, and with it the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// The power is lost.
    PowerLoss,
    /// The disk failed; the server says so and stops.
    Failed(String),
}

/// The thread that appends to the log.
#[derive(Debug)]
pub struct LogThread {
    log: Log,
    queue: VecDeque<Append>,
    /// Entries up to these generations are void.
    refused: OfEach,
    last_batch: Option<(String, u64)>,
}

impl LogThread {
    /// On an open log.
    #[must_use]
    pub fn new(log: Log) -> Self {
        Self { log, queue: VecDeque::new(), refused: OfEach::new(), last_batch: None }
    }

    /// An entry has arrived.
    pub fn push(&mut self, append: Append) {
        self.queue.push_back(append);
    }

    /// Whether there is something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Where the last batch begins: what is before it cannot be mistaken for an interrupted write.
    #[must_use]
    pub fn last_batch(&self) -> Option<&(String, u64)> {
        self.last_batch.as_ref()
    }

    /// Appends everything that has arrived, with one sync.
    ///
    /// # Errors
    /// When the disk failed.
    pub fn work(&mut self, disk: &mut FaultyDisk) -> Result<LogDone, Stopped> {
        let refused = &self.refused;
        let is_void = |append: &Append| refused.get(&append.timeline) >= Some(&append.generation);
        let batch: Vec<Append> = self.queue.drain(..).filter(|append| !is_void(append)).collect();
        if batch.is_empty() {
            return Ok(LogDone::Nothing);
        }
        let of_each =
            |of: fn(&Append) -> u64| batch.iter().map(|append| (append.timeline, of(append))).collect();
        let payloads: Vec<Vec<_>> = batch.iter().map(|append| append.payload.iter().collect()).collect();
        let with_payloads = batch.iter().zip(&payloads);
        let entries: Vec<Entry<'_>> = with_payloads
            .map(|(append, payload)| Entry { timeline: append.timeline, position: append.position, payload })
            .collect();
        let before = self.end(disk);
        match self.log.append(disk, &entries) {
            Ok(()) => {
                // A batch that went into a new segment began behind its header.
                self.last_batch = match (before, self.end(disk)) {
                    (Some(before), Some(after)) if before.0 == after.0 => Some(before),
                    (_, after) => after.map(|(name, _)| (name, 0)),
                };
                Ok(LogDone::Durable(of_each(|append| append.position)))
            }
            Err(AppendError::NoSpace(_)) => {
                let refused: OfEach = of_each(|append| append.generation);
                self.refused.extend(&refused);
                Ok(LogDone::Refused(refused))
            }
            Err(error) => Err(stopped(disk, error.to_string())),
        }
    }

    /// The segment that is written to, and where its last batch ends. Zeros may follow there.
    fn end(&self, disk: &mut FaultyDisk) -> Option<(String, u64)> {
        let mut segments = disk.list().ok()?;
        segments.retain(|file| is_segment(&file.name));
        segments.sort_unstable();
        let last = segments.pop()?;
        let earlier: u64 = segments.iter().map(|file| file.bytes).sum();
        Some((last.name, self.log.stats().bytes.checked_sub(earlier)?))
    }

    /// Marks the end of the log as whole, when there is nothing to do.
    ///
    /// # Errors
    /// When the disk failed.
    pub fn seal(&mut self, disk: &mut FaultyDisk) -> Result<(), Stopped> {
        self.log.seal(disk).map_err(|error| stopped(disk, error.to_string()))
    }

    /// Removes what is not needed any more.
    ///
    /// # Errors
    /// When the disk failed.
    pub fn purge(&mut self, disk: &mut FaultyDisk) -> Result<usize, Stopped> {
        match self.log.purge(disk) {
            Ok(report) => Ok(report.segments_removed + report.snapshots_removed),
            Err(error) => Err(stopped(disk, error.to_string())),
        }
    }
}

fn stopped(disk: &FaultyDisk, message: String) -> Stopped {
    if disk.is_powerless() { Stopped::PowerLoss } else { Stopped::Failed(message) }
}

/// Whether a file is a whole segment of the log, by its name.
pub(crate) fn is_segment(name: &str) -> bool {
    name.starts_with("log-") && !name.ends_with(".tmp")
}

/// A bit whose loss must be noticed. What begins with the last batch is left alone: if that is damaged,
/// it cannot be told from an interrupted write.
pub(crate) fn choose_bit(
    rng: &mut Rng,
    disk: &mut FaultyDisk,
    last_batch: Option<&(String, u64)>,
) -> Option<(String, u64)> {
    let files = disk.list().ok()?;
    let newest = files.iter().map(|file| file.name.clone()).filter(|name| is_segment(name)).max()?;
    let (limit_file, limit) = last_batch.cloned().unwrap_or((newest, 0));
    let bytes_of = |name: &str, bytes: u64| match is_segment(name) {
        true if *name == *limit_file => limit.min(bytes),
        true if *name > *limit_file => 0,
        _ => bytes,
    };
    let candidates: Vec<(String, u64)> = files
        .into_iter()
        .map(|file| (file.name.clone(), bytes_of(&file.name, file.bytes)))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    if candidates.is_empty() {
        return None;
    }
    let (file, bytes) = rng.pick(&candidates).clone();
    Some((file, rng.below(bytes * 8)))
}

/// What the snapshots' thread has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotDone {
    /// Nothing that the server need know: a new one was begun.
    Begun,
    /// A slice of the snapshot of this timeline was taken.
    Taken(u32),
    /// The snapshot of a timeline is durable, or could not be written.
    Finished {
        /// Whose.
        timeline: u32,
        /// Its number, if it is durable.
        sequence: Option<u64>,
    },
}

impl SnapshotDone {
    /// Whether there is a new snapshot.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        matches!(self, Self::Finished { sequence: Some(_), .. })
    }
}

/// The thread that writes snapshots, at most one of each timeline at a time.
#[derive(Debug, Default)]
pub struct SnapshotThread {
    queue: VecDeque<(u32, SnapshotOutput)>,
    writers: BTreeMap<u32, SnapshotWriter>,
}

impl SnapshotThread {
    /// A piece of a timeline's snapshot has arrived.
    pub fn push(&mut self, timeline: u32, piece: SnapshotOutput) {
        self.queue.push_back((timeline, piece));
    }

    /// Whether there is something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Handles the next piece.
    ///
    /// # Errors
    /// When the power is lost. A snapshot that cannot be written is given up; the log has everything.
    pub fn work(&mut self, disk: &mut FaultyDisk, now_ms: i64) -> Result<SnapshotDone, Stopped> {
        let Some((timeline, piece)) = self.queue.pop_front() else { return Ok(SnapshotDone::Begun) };
        let outcome = self.handle(timeline, piece, disk, now_ms);
        if disk.is_powerless() {
            return Err(Stopped::PowerLoss);
        }
        Ok(outcome.unwrap_or_else(|_| {
            self.queue.retain(|(of, _)| *of != timeline);
            if let Some(writer) = self.writers.remove(&timeline) {
                writer.abandon(disk);
            }
            SnapshotDone::Finished { timeline, sequence: None }
        }))
    }

    fn handle(
        &mut self,
        timeline: u32,
        piece: SnapshotOutput,
        disk: &mut FaultyDisk,
        now_ms: i64,
    ) -> Result<SnapshotDone, StorageError> {
        match piece {
            SnapshotOutput::Begin { covers, .. } => {
                let sequence = next_sequence(disk, self.writers.values())?;
                let header = SnapshotHeader { sequence, created_ms: now_ms, positions: covers };
                self.writers.insert(timeline, SnapshotWriter::begin(disk, header)?);
                Ok(SnapshotDone::Begun)
            }
            SnapshotOutput::Slice(bytes) => {
                if let Some(writer) = self.writers.get_mut(&timeline) {
                    writer.chunk(disk, &bytes)?;
                }
                Ok(SnapshotDone::Taken(timeline))
            }
            SnapshotOutput::Abort => match self.writers.remove(&timeline) {
                Some(writer) => {
                    writer.abandon(disk);
                    Ok(SnapshotDone::Finished { timeline, sequence: None })
                }
                None => Ok(SnapshotDone::Taken(timeline)),
            },
            SnapshotOutput::End => match self.writers.remove(&timeline) {
                Some(writer) => {
                    let sequence = Some(writer.finish(disk)?.header.sequence);
                    Ok(SnapshotDone::Finished { timeline, sequence })
                }
                // It has failed already, and the server knows.
                None => Ok(SnapshotDone::Taken(timeline)),
            },
        }
    }
}

/// Makes a snapshot that has arrived, without its first chunk, one of this disk's own; returns its number. The
/// thread that writes snapshots must have none under way of this timeline.
///
/// # Errors
/// When the disk failed: then nothing of it is left, unless the power is lost.
pub fn take_over(
    disk: &mut FaultyDisk,
    timeline: u32,
    taken: &TakenOver,
    chunks: &[Vec<u8>],
    writers: &SnapshotThread,
    now_ms: i64,
) -> Result<u64, StorageError> {
    let sequence = next_sequence(disk, writers.writers.values())?;
    let positions = vec![(timeline, taken.covered)];
    let header = SnapshotHeader { sequence, created_ms: now_ms, positions };
    let mut writer = SnapshotWriter::begin(disk, header)?;
    let mut written = writer.chunk(disk, &taken.head);
    for chunk in chunks {
        written = written.and_then(|()| writer.chunk(disk, chunk));
    }
    if let Err(error) = written {
        writer.abandon(disk);
        return Err(error);
    }
    writer.finish(disk)?;
    Ok(sequence)
}

/// The chunks of a snapshot, if it is there and whole.
pub fn read_snapshot(disk: &mut FaultyDisk, sequence: u64) -> Option<Vec<Vec<u8>>> {
    let mut reader = SnapshotReader::open(disk, sequence).ok()?;
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next(disk).ok()? {
        chunks.push(chunk.to_vec());
    }
    Some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_storage::faulty::Fault;
    use stoa_storage::{DiskErrorKind, Options, Recovery};

    struct Nobody;

    impl Recovery for Nobody {
        fn snapshot_begin(&mut self, _: &SnapshotHeader) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_chunk(&mut self, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_end(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_discard(&mut self) {}
        fn entry(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn each_timeline_has_a_snapshot_under_way_and_fails_alone() {
        use SnapshotDone::{Begun, Finished, Taken};
        use SnapshotOutput::{Begin, End, Slice};
        let mut disk = FaultyDisk::new(1);
        Log::open(&mut disk, &Options::default(), &mut Nobody).unwrap();
        let mut thread = SnapshotThread::default();
        let begin = |timeline| Begin { covers: vec![(timeline, 0)], position: 0, zxid: 0 };
        for (timeline, piece) in [
            (1, begin(1)),
            (0, begin(0)),
            (1, Slice(b"one".to_vec())),
            (0, Slice(b"zero".to_vec())),
            (1, End),
            (1, begin(1)),
            (0, End),
        ] {
            thread.push(timeline, piece);
        }
        let done: Vec<_> = (0..4).map(|_| thread.work(&mut disk, 0).unwrap()).collect();
        assert_eq!(done, [Begun, Begun, Taken(1), Taken(0)]);
        disk.fault_after(0, Fault::Fail(DiskErrorKind::NoSpace));
        assert_eq!(thread.work(&mut disk, 0), Ok(Finished { timeline: 1, sequence: None }));
        assert_eq!(thread.work(&mut disk, 0), Ok(Finished { timeline: 0, sequence: Some(2) }));
        assert!(!thread.has_work(), "what failed has taken its other pieces with it");
        let mut reader = SnapshotReader::open(&mut disk, 2).unwrap();
        assert_eq!(reader.header().positions, [(0, 0)]);
        assert_eq!(reader.next(&mut disk).unwrap(), Some(&b"zero"[..]));
    }
}
