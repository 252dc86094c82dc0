//! The thread that writes the log: whatever has queued up while the disk was busy goes into one
//! write and one fsync (group commit).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stoa_core::{Append, State};
use stoa_storage::{AppendError, Disk, DiskError, Entry, FileInfo, Log};
use tokio::sync::mpsc::UnboundedSender;

use crate::ensemble::StoredSnapshot;
use crate::file_disk::FileDisk;
use crate::meter::{LogMeter, snapshot_bytes};
use crate::priority::step_back;

/// Most bytes that one write and fsync carry; more waits for the next. It is worth its sync, and whoever
/// else uses the disk is not kept waiting.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// So much of a removed file is given back in one call: about two milliseconds.
const FREED_AT_ONCE_BYTES: u64 = 4 << 20;

/// After this long without an entry the log's end is sealed, so that later damage to its last batch
/// is not taken for a torn write.
const IDLE: Duration = Duration::from_millis(500);

/// The partition with whose thread the log is.
pub(crate) const FIRST: u8 = 0;

/// What the log's thread is asked.
#[derive(Debug)]
pub(crate) enum LogRequest {
    /// Store an entry.
    Append(Append),
    /// A snapshot has been taken: remove what is no longer needed.
    Purge,
}

/// What the disk's threads tell the partition.
#[derive(Debug)]
pub(crate) enum DiskEvent {
    /// Everything up to this position is durable.
    Durable(u64),
    /// The disk is full; entries of this generation are not stored.
    Refused(u64),
    /// The disk has failed: the server must stop.
    Failed(String),
    /// A slice of this partition's snapshot has been taken.
    SliceTaken,
    /// A snapshot has come to an end.
    SnapshotFinished {
        /// Its number.
        number: u64,
        /// It is durable (its bytes, and what it is), or could not be written (why).
        result: Result<(u64, StoredSnapshot), String>,
    },
    /// A snapshot that came from another server is durable.
    TakenOver(StoredSnapshot),
    /// A snapshot that has come from another server was read.
    SnapshotLoaded {
        /// The other server.
        from: u64,
        /// What it said with it.
        header: Bytes,
        /// Its file here.
        file: String,
        /// What it holds, or what is wrong with it.
        states: Result<Vec<State>, String>,
    },
    /// The snapshot that another server should be sent is not there any more.
    NoSnapshot {
        /// The other server.
        to: u8,
    },
}

/// Where the disk's threads report: to the thread of each partition. The first one's has the log.
#[derive(Clone, Debug)]
pub(crate) struct Reports(pub(crate) Arc<[UnboundedSender<DiskEvent>]>);

impl Reports {
    /// Tells the thread of a partition. The first one's ends the server when it is told of a failure.
    pub(crate) fn tell(&self, partition: u8, event: DiskEvent) {
        if let Some(thread) = self.0.get(usize::from(partition)) {
            // If it has ended, so has the server.
            let _ = thread.send(event);
        }
    }
}

impl Reports {
    /// Tells the threads of all partitions.
    pub(crate) fn tell_all(&self, event: impl Fn() -> DiskEvent) {
        for thread in &*self.0 {
            let _ = thread.send(event());
        }
    }
}

/// A disk that the log is kept on.
pub(crate) trait LogDisk: Disk + Send + 'static {
    /// What is written is worth no room in the system's cache.
    fn write_past_cache(&mut self);

    /// Opens a file that is about to be removed, so that its space need not be given back at once.
    fn hold(&self, file: &str) -> Option<File>;
}

impl LogDisk for FileDisk {
    fn write_past_cache(&mut self) {
        Self::write_past_cache(self);
    }

    fn hold(&self, file: &str) -> Option<File> {
        OpenOptions::new().write(true).open(self.folder().join(file)).ok()
    }
}

/// How the log's thread works.
pub(crate) struct LogThread<D> {
    pub(crate) log: Log,
    pub(crate) disk: D,
    /// Whether entries are synced to disk before they count as durable.
    pub(crate) fsync: bool,
    pub(crate) slow: Duration,
    pub(crate) requests: Receiver<LogRequest>,
    pub(crate) reports: Reports,
    pub(crate) meter: Arc<Mutex<LogMeter>>,
}

impl<D: LogDisk> LogThread<D> {
    /// Starts the thread; it ends when the senders of its requests are gone.
    pub(crate) fn spawn(self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("log".into()).spawn(move || self.run())
    }

    fn run(self) {
        let Self { mut log, mut disk, fsync, slow, requests, reports, meter } = self;
        if fsync {
            // Without syncs the cache is what makes it fast.
            disk.write_past_cache();
        }
        let mut disk = TimedDisk { disk, fsync, synced: Duration::ZERO, removed: Vec::new() };
        let mut batch: Vec<Append> = Vec::new();
        let mut room = Room { reports, refused: None, is_full: false };
        loop {
            let mut purge = match gather(&requests, &mut batch) {
                Ok(purge) => purge,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = log.seal(&mut disk) {
                        room.reports.tell(FIRST, DiskEvent::Failed(error.to_string()));
                        return;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // A clean end: what was stored is known to be whole.
                    let _ = log.seal(&mut disk);
                    return;
                }
            };
            batch.retain(|append| room.refused != Some(append.generation));
            match store(&mut log, &mut disk, &batch, slow, &meter) {
                Ok(()) => room.stored(&batch),
                Err(AppendError::NoSpace(error)) => {
                    room.refuse(&batch, &error);
                    purge = true;
                }
                Err(error) => {
                    room.reports.tell(FIRST, DiskEvent::Failed(error.to_string()));
                    return;
                }
            }
            batch.clear();
            if purge {
                remove_old(&mut log, &mut disk);
                let bytes = snapshot_bytes(&mut disk.disk);
                if let Ok(mut meter) = meter.lock() {
                    meter.snapshot_bytes = bytes;
                }
            }
            let stats = log.stats();
            if let Ok(mut meter) = meter.lock() {
                meter.log_bytes = stats.bytes;
                meter.position = stats.positions.iter().map(|(_, position)| position).sum();
            }
        }
    }
}

/// Waits for a request, and takes what has queued up behind it as far as one write carries it. Says whether old files
/// are to be removed.
fn gather(requests: &Receiver<LogRequest>, batch: &mut Vec<Append>) -> Result<bool, RecvTimeoutError> {
    let (mut bytes, mut purge) = (0, false);
    let mut next = Some(requests.recv_timeout(IDLE)?);
    while let Some(request) = next {
        match request {
            LogRequest::Append(append) => {
                bytes += append.payload.len();
                batch.push(append);
            }
            LogRequest::Purge => purge = true,
        }
        next = if bytes < BATCH_BYTES_MAX { requests.try_recv().ok() } else { None };
    }
    Ok(purge)
}

/// Whether the disk has room for what is to be stored, as far as is known.
struct Room {
    reports: Reports,
    /// The generation that was refused last. What is stored is of a later one, and nothing of this one follows that.
    refused: Option<u64>,
    is_full: bool,
}

impl Room {
    /// There was room for this, and it is stored.
    fn stored(&mut self, batch: &[Append]) {
        let Some(last) = batch.last() else { return };
        if std::mem::take(&mut self.is_full) {
            tracing::info!("there is room again: writes are stored");
        }
        self.refused = None;
        self.reports.tell(FIRST, DiskEvent::Durable(last.position));
    }

    /// There was no room for this.
    fn refuse(&mut self, batch: &[Append], error: &DiskError) {
        // Said once, however often the others make it try.
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::error!("writes are refused: {error}; free some room, they resume by themselves");
        }
        if let Some(last) = batch.last() {
            self.refused = Some(last.generation);
            self.reports.tell(FIRST, DiskEvent::Refused(last.generation));
        }
    }
}

fn store(
    log: &mut Log,
    disk: &mut TimedDisk<impl LogDisk>,
    batch: &[Append],
    slow: Duration,
    meter: &Mutex<LogMeter>,
) -> Result<(), AppendError> {
    if batch.is_empty() {
        return Ok(());
    }
    let payloads: Vec<Vec<_>> = batch.iter().map(|append| append.payload.iter().collect()).collect();
    let with_payloads = batch.iter().zip(&payloads);
    let entries: Vec<_> = with_payloads
        .map(|(append, payload)| Entry { timeline: append.timeline, position: append.position, payload })
        .collect();
    let began = Instant::now();
    disk.synced = Duration::ZERO;
    log.append(disk, &entries)?;
    let took = began.elapsed();
    if took > slow {
        tracing::warn!(
            "storing {} entries took {} ms: the disk is slow, writes wait for it",
            entries.len(),
            took.as_millis()
        );
    }
    if let Ok(mut meter) = meter.lock() {
        meter.stored(entries.len(), took, disk.synced, took > slow);
    }
    Ok(())
}

/// Removes what no kept snapshot needs.
fn remove_old(log: &mut Log, disk: &mut TimedDisk<impl LogDisk>) {
    let purged = log.purge(disk);
    let removed = std::mem::take(&mut disk.removed);
    if !removed.is_empty() {
        // Without a thread they are freed here.
        let _ = std::thread::Builder::new().name("purge".into()).spawn(move || free(&removed));
    }
    match purged {
        Ok(report) => {
            if report.snapshots_removed + report.segments_removed > 0 {
                tracing::info!(
                    "removed {} snapshots and {} log segments, {} bytes",
                    report.snapshots_removed,
                    report.segments_removed,
                    report.bytes_removed
                );
            }
        }
        Err(error) => {
            // Nothing depends on it; the next snapshot tries again.
            tracing::warn!("old files could not be removed: {error}");
        }
    }
}

/// Gives back the space of removed files, bit by bit and apart from the log: for the snapshot of a
/// million znodes the file system takes 60 ms, in which nothing would be stored.
fn free(removed: &[File]) {
    step_back();
    for file in removed {
        // With another name it is somebody's backup (a hard link): its bytes stay.
        let mut bytes = match file.metadata() {
            Ok(metadata) if metadata.nlink() == 0 => metadata.len(),
            _ => 0,
        };
        while bytes > FREED_AT_ONCE_BYTES {
            bytes -= FREED_AT_ONCE_BYTES;
            if file.set_len(bytes).is_err() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// The disk, with the time that its syncs take, or without syncs. What is removed from it stays
/// open, so that its space need not be given back at once.
struct TimedDisk<D> {
    disk: D,
    fsync: bool,
    synced: Duration,
    removed: Vec<File>,
}

impl<D: LogDisk> Disk for TimedDisk<D> {
    fn list(&mut self) -> Result<Vec<FileInfo>, DiskError> {
        self.disk.list()
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.disk.read(file, offset, into)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write(file, offset, bytes)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        if !self.fsync {
            return Ok(());
        }
        let began = Instant::now();
        let result = self.disk.sync(file);
        self.synced += began.elapsed();
        result
    }

    fn set_len(&mut self, file: &str, len: u64) -> Result<(), DiskError> {
        self.disk.set_len(file, len)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        let open = self.disk.hold(file);
        self.disk.remove(file)?;
        self.removed.extend(open);
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.disk.sync_folder()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::channel;
    use stoa_storage::faulty::FaultyDisk;
    use stoa_storage::{Options, Recovery, SnapshotHeader, SnapshotWriter};
    use tokio::sync::mpsc::unbounded_channel;

    impl LogDisk for FaultyDisk {
        fn write_past_cache(&mut self) {}

        fn hold(&self, _: &str) -> Option<File> {
            None
        }
    }

    /// For a folder that is new.
    struct Nothing;

    impl Recovery for Nothing {
        fn snapshot_begin(&mut self, _: &SnapshotHeader) -> Result<(), String> {
            Err("there is none".into())
        }

        fn snapshot_chunk(&mut self, _: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn snapshot_end(&mut self) -> Result<(), String> {
            Ok(())
        }

        fn snapshot_discard(&mut self) {}

        fn entry(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), String> {
            Err("there is none".into())
        }
    }

    const TIMELINE: u32 = 0;

    /// What the first partition's thread is told when there are two more records, and a snapshot covers all before them.
    fn told(is_full: bool) -> Vec<DiskEvent> {
        const RECORD: &[u8] = &[7; 2000];
        let mut disk = FaultyDisk::new(1);
        let options = Options {
            segment_bytes: 8 << 10,
            ahead_bytes: 0,
            block_bytes: 1,
            snapshots_kept: 1,
            ..Options::default()
        };
        let mut log = Log::open(&mut disk, &options, &mut Nothing).unwrap();
        for position in 1..=20 {
            log.append(&mut disk, &[Entry { timeline: TIMELINE, position, payload: &[RECORD] }]).unwrap();
        }
        let header = SnapshotHeader { sequence: 1, created_ms: 0, positions: vec![(TIMELINE, 20)] };
        SnapshotWriter::begin(&mut disk, header).unwrap().finish(&mut disk).unwrap();
        if is_full {
            disk.set_capacity(disk.used());
        }
        let (requests_in, requests) = channel();
        for position in [21, 22] {
            let payload = Bytes::from_static(RECORD).into();
            let append = Append { generation: 1, timeline: TIMELINE, position, payload, snapshot: None };
            requests_in.send(LogRequest::Append(append)).unwrap();
        }
        requests_in.send(LogRequest::Purge).unwrap();
        drop(requests_in);
        let (reports, mut events) = unbounded_channel();
        let reports = Reports([reports].into());
        let (fsync, slow, meter) = (true, Duration::MAX, Arc::default());
        LogThread { log, disk, fsync, slow, requests, reports, meter }.run();
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }

    #[test]
    fn the_last_record_of_a_batch_is_told_of_or_its_generation() {
        let events = told(false);
        assert!(matches!(events[..], [DiskEvent::Durable(22)]), "{events:?}");
        let events = told(true);
        assert!(matches!(events[..], [DiskEvent::Refused(1)]), "{events:?}");
    }

    #[test]
    fn a_removed_file_gives_its_space_back_unless_it_has_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let removed = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, vec![7; 3 * FREED_AT_ONCE_BYTES as usize]).unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            if name == "linked" {
                fs::hard_link(&path, folder.path().join("backup")).unwrap();
            }
            fs::remove_file(&path).unwrap();
            file
        };
        let files = [removed("alone"), removed("linked")];
        free(&files);
        assert_eq!(files[0].metadata().unwrap().len(), FREED_AT_ONCE_BYTES);
        assert_eq!(
            fs::read(folder.path().join("backup")).unwrap(),
            vec![7; 3 * FREED_AT_ONCE_BYTES as usize]
        );
    }
}
