//! The thread that writes snapshots, apart from the log's so that an update never waits for one.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use stoa_core::{Append, SnapshotOutput, TIMELINE, TakenOver};
use stoa_storage::{Disk, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError, next_sequence};

use crate::clock;
use crate::ensemble::StoredSnapshot;
use crate::file_disk::FileDisk;
use crate::log_thread::{DiskEvent, LogRequest, Reports};
use crate::meter::{LogMeter, micros, snapshot_bytes};
use crate::priority::step_back;

/// How the snapshots' thread works.
pub(crate) struct SnapshotThread {
    pub(crate) disk: FileDisk,
    pub(crate) requests: Receiver<SnapshotRequest>,
    pub(crate) reports: Reports,
    /// To have old files removed when a snapshot is durable.
    pub(crate) log: mpsc::Sender<LogRequest>,
    pub(crate) meter: Arc<Mutex<LogMeter>>,
}

/// What the snapshots' thread is asked.
#[derive(Debug)]
pub(crate) enum SnapshotRequest {
    /// The next piece of a snapshot of this server. Each timeline can have one under way.
    Piece {
        /// Whose.
        timeline: u32,
        /// The piece.
        piece: SnapshotOutput,
    },
    /// A snapshot has come from another server: make it one of this server, then let the log have
    /// the record that builds on it.
    TakeOver {
        /// The record, with what the snapshot begins with here.
        append: Append,
        /// Its file.
        file: String,
    },
}

/// The snapshots that are being written, by their timelines.
type UnderWay = BTreeMap<u32, Writing>;

struct Writing {
    position: u64,
    writer: SnapshotWriter,
    began: Instant,
    zxid: i64,
}

impl SnapshotThread {
    /// Starts the thread; it ends when the senders of its requests are gone.
    pub(crate) fn spawn(self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("snapshot".into()).spawn(move || self.run())
    }

    fn run(mut self) {
        step_back();
        let mut under_way = UnderWay::new();
        while let Ok(request) = self.requests.recv() {
            match request {
                SnapshotRequest::Piece { timeline, piece } => {
                    if let Err(error) = self.piece(&mut under_way, timeline, piece) {
                        tracing::error!(
                            "the snapshot could not be written: {error}; the log keeps everything"
                        );
                        self.give_up(&mut under_way, timeline, error);
                    }
                }
                SnapshotRequest::TakeOver { append, file } => {
                    if let Err(error) = self.take_over(&under_way, append, &file) {
                        let why = format!("the snapshot of another server cannot be stored: {error}");
                        self.reports.tell(TIMELINE, DiskEvent::Failed(why));
                    }
                }
            }
        }
        for Writing { writer, .. } in under_way.into_values() {
            writer.abandon(&mut self.disk);
        }
    }

    fn piece(
        &mut self,
        under_way: &mut UnderWay,
        timeline: u32,
        piece: SnapshotOutput,
    ) -> Result<(), String> {
        match piece {
            SnapshotOutput::Begin { covers, position, zxid } => {
                let (writer, began) = self.begin(under_way, covers)?;
                under_way.insert(timeline, Writing { position, writer, began, zxid });
            }
            SnapshotOutput::Slice(bytes) => {
                let result = match under_way.get_mut(&timeline) {
                    Some(Writing { writer, .. }) => writer.chunk(&mut self.disk, &bytes),
                    // The rest of a snapshot that has failed already.
                    None => Ok(()),
                };
                self.reports.tell(timeline, DiskEvent::SliceTaken(timeline));
                result.map_err(|error| error.to_string())?;
            }
            SnapshotOutput::Abort => self.give_up(under_way, timeline, "it is of no use".into()),
            SnapshotOutput::End => {
                if let Some(done) = under_way.remove(&timeline) {
                    self.finish(timeline, done)?;
                }
            }
        }
        Ok(())
    }

    fn give_up(&mut self, under_way: &mut UnderWay, timeline: u32, why: String) {
        if let Some(Writing { writer, .. }) = under_way.remove(&timeline) {
            writer.abandon(&mut self.disk);
        }
        self.reports.tell(timeline, DiskEvent::SnapshotFinished { timeline, result: Err(why) });
    }

    fn begin(
        &mut self,
        under_way: &UnderWay,
        positions: Vec<(u32, u64)>,
    ) -> Result<(SnapshotWriter, Instant), String> {
        let writers = under_way.values().map(|writing| &writing.writer);
        let sequence = next_sequence(&mut self.disk, writers).map_err(|error| error.to_string())?;
        let header = SnapshotHeader { sequence, created_ms: clock::wall_ms(), positions };
        let writer = SnapshotWriter::begin(&mut self.disk, header).map_err(|error| error.to_string())?;
        Ok((writer, Instant::now()))
    }

    /// The snapshot of another server, with this server's beginning.
    fn take_over(&mut self, under_way: &UnderWay, append: Append, file: &str) -> Result<(), String> {
        let Some(TakenOver { position, covered, head }) = &append.snapshot else {
            return Err("the record builds on none".into());
        };
        let (mut writer, began) = self.begin(under_way, [(append.timeline, *covered)].into())?;
        let mut copy = || -> Result<(), StorageError> {
            writer.chunk(&mut self.disk, head)?;
            let mut reader = SnapshotReader::open_foreign(&mut self.disk, file)?;
            let mut is_head = true;
            while let Some(chunk) = reader.next(&mut self.disk)? {
                if !std::mem::take(&mut is_head) {
                    writer.chunk(&mut self.disk, chunk)?;
                }
            }
            Ok(())
        };
        let copied = copy().map_err(|error| error.to_string());
        if let Err(error) = copied {
            writer.abandon(&mut self.disk);
            return Err(error);
        }
        let info = writer.finish(&mut self.disk).map_err(|error| error.to_string())?;
        tracing::info!(
            "the state of another server is {} here: {} bytes in {} ms",
            info.file,
            info.bytes,
            began.elapsed().as_millis()
        );
        // Only the space that it takes is lost if that fails; the next one overwrites it.
        let _ = self.disk.remove(file);
        let stored = StoredSnapshot { position: *position, file: info.file };
        self.reports.tell(append.timeline, DiskEvent::TakenOver(stored));
        let _ = self.log.send(LogRequest::Append(append));
        Ok(())
    }

    fn finish(&mut self, timeline: u32, writing: Writing) -> Result<(), String> {
        let Writing { position, writer, began, zxid } = writing;
        let info = writer.finish(&mut self.disk).map_err(|error| error.to_string())?;
        let took = began.elapsed();
        tracing::info!("snapshot {} taken: {} bytes in {} ms", info.file, info.bytes, took.as_millis());
        let bytes = snapshot_bytes(&mut self.disk);
        if let Ok(mut meter) = self.meter.lock() {
            meter.snapshot.record(micros(took), 1);
            meter.snapshot_bytes = bytes;
            meter.snapshot_zxid = Some(zxid);
            meter.snapshot_wall_ms = clock::wall_ms();
        }
        let stored = StoredSnapshot { position, file: info.file };
        let result = Ok((info.bytes, stored));
        self.reports.tell(timeline, DiskEvent::SnapshotFinished { timeline, result });
        let _ = self.log.send(LogRequest::Purge(timeline));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SnapshotOutput::{Abort, Begin, End, Slice};
    use stoa_storage::{Entry, FolderId, Log, Options, Recovery, inspect};

    /// Which snapshots, of which timelines, and what each of them holds.
    #[derive(Default)]
    struct Recovered(Vec<(u64, u32, Vec<u8>)>);

    impl Recovery for Recovered {
        fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
            let [(timeline, 1)] = header.positions[..] else { return Err(format!("{header:?}")) };
            self.0.push((header.sequence, timeline, Vec::new()));
            Ok(())
        }
        fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
            self.0.last_mut().unwrap().2.extend_from_slice(bytes);
            Ok(())
        }
        fn snapshot_end(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_discard(&mut self) {
            self.0.pop();
        }
        fn entry(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    fn begin(timeline: u32) -> SnapshotOutput {
        Begin { covers: vec![(timeline, 1)], position: 1, zxid: 0 }
    }

    /// Has the thread do all this; returns what it said, and what is on the disk then.
    fn run(requests: Vec<(u32, SnapshotOutput)>) -> (Vec<String>, Recovered, usize) {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        let options = Options { new_folder_id: FolderId([9; 16]), ..Options::default() };
        let mut log = Log::open(&mut disk, &options, &mut Recovered::default()).unwrap();
        let entries = [0, 1, 2].map(|timeline| Entry { timeline, position: 1, payload: &[b"x"] });
        log.append(&mut disk, &entries).unwrap();
        let (requests_in, requests_out) = mpsc::channel();
        for (timeline, piece) in requests {
            requests_in.send(SnapshotRequest::Piece { timeline, piece }).unwrap();
        }
        drop(requests_in);
        let (events_in, mut events) = tokio::sync::mpsc::unbounded_channel();
        let reports = Reports(vec![events_in; 3].into());
        let (log_in, log_requests) = mpsc::channel();
        let thread = SnapshotThread {
            disk: disk.another(),
            requests: requests_out,
            reports,
            log: log_in,
            meter: Arc::default(),
        };
        thread.spawn().unwrap().join().unwrap();
        let mut said = Vec::new();
        while let Ok(event) = events.try_recv() {
            said.push(match event {
                DiskEvent::SliceTaken(timeline) => format!("{timeline} taken"),
                DiskEvent::SnapshotFinished { timeline, result: Ok(_) } => format!("{timeline} durable"),
                DiskEvent::SnapshotFinished { timeline, result: Err(_) } => format!("{timeline} failed"),
                other => panic!("{other:?}"),
            });
        }
        let unfinished = inspect::files(&mut disk).unwrap().leftovers.len();
        let mut recovered = Recovered::default();
        Log::open(&mut disk, &options, &mut recovered).unwrap();
        let durable = said.iter().filter(|said| said.ends_with("durable")).count();
        assert_eq!(log_requests.try_iter().count(), durable, "old files are removed after each");
        (said, recovered, unfinished)
    }

    #[test]
    fn each_timeline_has_a_snapshot_under_way() {
        // More than is collected before it is written.
        let large = vec![7; 300_000];
        let (said, recovered, unfinished) = run(vec![
            (1, begin(1)),
            (0, begin(0)),
            (1, Slice(b"one".to_vec())),
            (0, Slice(large.clone())),
            (1, Slice(large.clone())),
            (0, Slice(b"zero".to_vec())),
            (0, End),
            (1, End),
        ]);
        assert_eq!(said, ["1 taken", "0 taken", "1 taken", "0 taken", "0 durable", "1 durable"]);
        let zero = [&large[..], b"zero"].concat();
        let one = [b"one", &large[..]].concat();
        assert!(recovered.0 == [(2, 0, zero), (1, 1, one)]);
        assert_eq!(unfinished, 0);
    }

    #[test]
    fn what_befalls_a_snapshot_leaves_those_of_other_timelines_alone() {
        let too_many = Begin { covers: (0..70_000).map(|at| (at, 1)).collect(), position: 1, zxid: 0 };
        let (said, recovered, unfinished) = run(vec![
            (0, begin(0)),
            (1, begin(1)),
            (2, too_many),
            (1, Slice(vec![1; 300_000])),
            (0, Slice(b"zero".to_vec())),
            (1, Abort),
            (2, Slice(b"late".to_vec())),
            (2, End),
            (0, End),
            (1, begin(1)),
            (1, Slice(vec![1; 300_000])),
        ]);
        let expected = ["2 failed", "1 taken", "0 taken", "1 failed", "2 taken", "0 durable", "1 taken"];
        assert_eq!(said, expected);
        assert_eq!(recovered.0, [(1, 0, b"zero".to_vec())]);
        assert_eq!(unfinished, 0, "one that is under way at the end is given up");
    }
}
