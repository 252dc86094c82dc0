//! The server's two threads for the disk, under simulated time: one appends to the log, one writes
//! snapshots. Both work on the same faulty disk.

use crate::rng::Rng;
use std::collections::VecDeque;
use stoa_core::{Append, SnapshotOutput, TakenOver};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{
    AppendError, Disk, Entry, Log, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError,
    next_sequence,
};

/// What the log's thread has to say when a piece of work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogDone {
    /// Everything up to this position is durable.
    Durable(u64),
    /// There was no room for records of this generation.
    Refused(u64),
    /// All that had arrived was void.
    Nothing,
}

/// Why a thread ended, and with it the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The power is lost.
    PowerLoss,
    /// The disk failed; the server says so and stops.
    Failed(String),
}

/// The thread that appends to the log.
#[derive(Debug)]
pub(crate) struct LogThread {
    log: Log,
    queue: VecDeque<Append>,
    /// Records up to this generation are void.
    refused: Option<u64>,
    last_batch: Option<(String, u64)>,
}

impl LogThread {
    /// On an open log.
    pub(crate) fn new(log: Log) -> Self {
        Self { log, queue: VecDeque::new(), refused: None, last_batch: None }
    }

    /// An entry has arrived.
    pub(crate) fn push(&mut self, append: Append) {
        self.queue.push_back(append);
    }

    /// Whether there is something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Where the last batch begins: what is before it cannot be mistaken for an interrupted write.
    pub(crate) fn last_batch(&self) -> Option<&(String, u64)> {
        self.last_batch.as_ref()
    }

    /// Appends everything that has arrived, with one sync.
    ///
    /// # Errors
    /// When the disk failed.
    pub(crate) fn work(&mut self, disk: &mut FaultyDisk) -> Result<LogDone, Stopped> {
        let refused = self.refused;
        let is_void = |append: &Append| refused >= Some(append.generation);
        let batch: Vec<Append> = self.queue.drain(..).filter(|append| !is_void(append)).collect();
        let Some(Append { generation, position, .. }) = batch.last() else { return Ok(LogDone::Nothing) };
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
                Ok(LogDone::Durable(*position))
            }
            Err(AppendError::NoSpace(_)) => {
                self.refused = Some(*generation);
                Ok(LogDone::Refused(*generation))
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
    pub(crate) fn seal(&mut self, disk: &mut FaultyDisk) -> Result<(), Stopped> {
        self.log.seal(disk).map_err(|error| stopped(disk, error.to_string()))
    }

    /// Removes what is not needed any more.
    ///
    /// # Errors
    /// When the disk failed.
    pub(crate) fn purge(&mut self, disk: &mut FaultyDisk) -> Result<usize, Stopped> {
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
pub(crate) enum SnapshotDone {
    /// Nothing that the server need know: a new one was begun.
    Begun,
    /// A slice of this partition was taken.
    Taken(u8),
    /// A snapshot is durable, or could not be written.
    Finished {
        /// Its number here.
        number: u64,
        /// Its number on the disk, if it is durable.
        sequence: Option<u64>,
        /// Only this partition has to know.
        only: Option<u8>,
    },
}

impl SnapshotDone {
    /// Whether there is a new snapshot.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Self::Finished { sequence: Some(_), .. })
    }
}

/// The thread that writes snapshots, one at a time.
#[derive(Debug, Default)]
pub(crate) struct SnapshotThread {
    queue: VecDeque<(u8, SnapshotOutput)>,
    writing: Option<Writing>,
    /// What has come to nothing, and has not been said.
    failed: Option<u64>,
}

#[derive(Debug)]
struct Writing {
    number: u64,
    writer: SnapshotWriter,
    /// So many partitions have more of it.
    missing: u8,
}

impl SnapshotThread {
    /// A piece of a snapshot has arrived from a partition.
    pub(crate) fn push(&mut self, partition: u8, piece: SnapshotOutput) {
        self.queue.push_back((partition, piece));
    }

    /// Whether there is something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.failed.is_some()
    }

    /// Handles the next piece.
    ///
    /// # Errors
    /// When the power is lost. A snapshot that cannot be written is given up; the log has everything.
    pub(crate) fn work(&mut self, disk: &mut FaultyDisk, now_ms: i64) -> Result<SnapshotDone, Stopped> {
        if let Some(number) = self.failed.take() {
            return Ok(SnapshotDone::Finished { number, sequence: None, only: None });
        }
        let Some((partition, piece)) = self.queue.pop_front() else { return Ok(SnapshotDone::Begun) };
        let outcome = self.handle(partition, piece, disk, now_ms);
        if disk.is_powerless() {
            return Err(Stopped::PowerLoss);
        }
        Ok(outcome.unwrap_or_else(|number| {
            self.give_up(disk);
            self.failed = None;
            SnapshotDone::Finished { number, sequence: None, only: None }
        }))
    }

    fn give_up(&mut self, disk: &mut FaultyDisk) {
        if let Some(Writing { number, writer, .. }) = self.writing.take() {
            writer.abandon(disk);
            self.failed = Some(number);
        }
    }

    /// The error is the number of what cannot be written.
    fn handle(
        &mut self,
        partition: u8,
        piece: SnapshotOutput,
        disk: &mut FaultyDisk,
        now_ms: i64,
    ) -> Result<SnapshotDone, u64> {
        let is_of = |number: u64| move |writing: &&mut Writing| writing.number == number;
        let nothing = |number| SnapshotDone::Finished { number, sequence: None, only: Some(partition) };
        match piece {
            SnapshotOutput::Begin { number, covers, partitions, head, .. } => {
                self.give_up(disk);
                let writer = begin(disk, covers, [head.as_slice()], now_ms).map_err(|_| number)?;
                self.writing = Some(Writing { number, writer, missing: partitions });
                Ok(SnapshotDone::Begun)
            }
            SnapshotOutput::Slice { number, bytes } => {
                if let Some(writing) = self.writing.as_mut().filter(is_of(number)) {
                    writing.writer.chunk(disk, &bytes).map_err(|_| number)?;
                }
                Ok(SnapshotDone::Taken(partition))
            }
            SnapshotOutput::Abort { number } => match self.writing.as_mut().filter(is_of(number)) {
                Some(_) => Err(number),
                None => Ok(nothing(number)),
            },
            SnapshotOutput::End { number } => match self.writing.as_mut().filter(is_of(number)) {
                Some(writing) => {
                    writing.missing -= 1;
                    let Some(done) = self.writing.take_if(|writing| writing.missing == 0) else {
                        return Ok(SnapshotDone::Begun);
                    };
                    let sequence = done.writer.finish(disk).map_err(|_| number)?.header.sequence;
                    Ok(SnapshotDone::Finished { number, sequence: Some(sequence), only: None })
                }
                // It has come to nothing already.
                None => Ok(nothing(number)),
            },
        }
    }
}

/// Makes a snapshot that has arrived, without its first chunk, one of this disk's own; returns its number. The
/// thread that writes snapshots must have none under way.
///
/// # Errors
/// When the disk failed: then nothing of it is left, unless the power is lost.
pub(crate) fn take_over(
    disk: &mut FaultyDisk,
    timeline: u32,
    taken: &TakenOver,
    chunks: &[Vec<u8>],
    now_ms: i64,
) -> Result<u64, StorageError> {
    let chunks = [&taken.head].into_iter().chain(chunks).map(Vec::as_slice);
    let writer = begin(disk, vec![(timeline, taken.covered)], chunks, now_ms)?;
    Ok(writer.finish(disk)?.header.sequence)
}

/// Begins a snapshot with these chunks. When that fails, nothing of it is left, unless the power is lost.
fn begin<'a>(
    disk: &mut FaultyDisk,
    positions: Vec<(u32, u64)>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
    now_ms: i64,
) -> Result<SnapshotWriter, StorageError> {
    let sequence = next_sequence(disk, [])?;
    let header = SnapshotHeader { sequence, created_ms: now_ms, positions };
    let mut writer = SnapshotWriter::begin(disk, header)?;
    match chunks.into_iter().try_for_each(|chunk| writer.chunk(disk, chunk)) {
        Ok(()) => Ok(writer),
        Err(error) => {
            writer.abandon(disk);
            Err(error)
        }
    }
}

/// The chunks of a snapshot, if it is there and whole.
pub(crate) fn read_snapshot(disk: &mut FaultyDisk, sequence: u64) -> Option<Vec<Vec<u8>>> {
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
    fn a_snapshot_is_durable_when_all_partitions_have_said_all_and_fails_for_all() {
        use SnapshotDone::{Begun, Finished, Taken};
        use SnapshotOutput::{Begin, End, Slice};
        let mut disk = FaultyDisk::new(1);
        Log::open(&mut disk, &Options::default(), &mut Nobody).unwrap();
        let mut thread = SnapshotThread::default();
        let begin = |number| Begin {
            number,
            covers: vec![(0, 0)],
            position: 0,
            zxid: 0,
            partitions: 2,
            head: b"head".to_vec(),
        };
        let slice = |number, bytes: &[u8]| Slice { number, bytes: bytes.to_vec() };
        for (partition, piece) in [
            (0, begin(1)),
            (1, slice(1, b"one")),
            (0, slice(1, b"zero")),
            (1, End { number: 1 }),
            (0, End { number: 1 }),
            (0, begin(2)),
            (1, slice(1, b"late")),
            (1, End { number: 2 }),
        ] {
            thread.push(partition, piece);
        }
        let done: Vec<_> = (0..7).map(|_| thread.work(&mut disk, 0).unwrap()).collect();
        let whole = Finished { number: 1, sequence: Some(1), only: None };
        assert_eq!(done, [Begun, Taken(1), Taken(0), Begun, whole, Begun, Taken(1)]);
        disk.fault_after(0, Fault::Fail(DiskErrorKind::NoSpace));
        thread.push(0, End { number: 2 });
        assert_eq!(thread.work(&mut disk, 0), Ok(Begun));
        assert_eq!(thread.work(&mut disk, 0), Ok(Finished { number: 2, sequence: None, only: None }));
        thread.push(1, End { number: 2 });
        assert_eq!(thread.work(&mut disk, 0), Ok(Finished { number: 2, sequence: None, only: Some(1) }));
        assert!(!thread.has_work());
        let mut reader = SnapshotReader::open(&mut disk, 1).unwrap();
        assert_eq!(reader.next(&mut disk).unwrap(), Some(&b"head"[..]));
        assert_eq!(reader.next(&mut disk).unwrap(), Some(&b"one"[..]));
        assert_eq!(reader.next(&mut disk).unwrap(), Some(&b"zero"[..]));
    }
}
