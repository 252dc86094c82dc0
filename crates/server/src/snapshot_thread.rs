//! The thread that writes snapshots, apart from the log's so that an update never waits for one.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use stoa_core::{Append, SnapshotOutput, TakenOver};
use stoa_storage::{Disk, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError, next_sequence};

use crate::clock;
use crate::ensemble::StoredSnapshot;
use crate::file_disk::FileDisk;
use crate::log_thread::{DiskEvent, FIRST, LogRequest, Reports};
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
    /// The next piece that a partition has of a snapshot of this server.
    Piece {
        /// Whose.
        partition: u8,
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

/// The snapshot that is being written.
struct Writing {
    number: u64,
    position: u64,
    writer: SnapshotWriter,
    began: Instant,
    zxid: i64,
    /// So many partitions have more of it.
    missing: u8,
}

impl SnapshotThread {
    /// Starts the thread; it ends when the senders of its requests are gone.
    pub(crate) fn spawn(self) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("snapshot".into()).spawn(move || self.run())
    }

    fn run(mut self) {
        step_back();
        let mut under_way = None;
        while let Ok(request) = self.requests.recv() {
            match request {
                SnapshotRequest::Piece { partition, piece } => {
                    if let Err(error) = self.piece(&mut under_way, partition, piece) {
                        tracing::error!(
                            "the snapshot could not be written: {error}; the log keeps everything"
                        );
                        self.give_up(&mut under_way, error);
                    }
                }
                SnapshotRequest::TakeOver { append, file } => {
                    if let Err(error) = self.take_over(append, &file) {
                        let why = format!("the snapshot of another server cannot be stored: {error}");
                        self.reports.tell(FIRST, DiskEvent::Failed(why));
                    }
                }
            }
        }
        if let Some(Writing { writer, .. }) = under_way {
            writer.abandon(&mut self.disk);
        }
    }

    fn piece(
        &mut self,
        under_way: &mut Option<Writing>,
        partition: u8,
        piece: SnapshotOutput,
    ) -> Result<(), String> {
        let of = |number: u64| move |writing: &&mut Writing| writing.number == number;
        match piece {
            SnapshotOutput::Begin { number, covers, position, zxid, partitions, head } => {
                self.give_up(under_way, "the next one begins".into());
                let (mut writer, began) = self.begin(covers).inspect_err(|why| self.tell_all(number, why))?;
                let begun = writer.chunk(&mut self.disk, &head);
                *under_way = Some(Writing { number, position, writer, began, zxid, missing: partitions });
                begun.map_err(|error| error.to_string())?;
            }
            SnapshotOutput::Slice { number, bytes } => {
                let result = match under_way.as_mut().filter(of(number)) {
                    Some(Writing { writer, .. }) => writer.chunk(&mut self.disk, &bytes),
                    // The rest of a snapshot that has failed already.
                    None => Ok(()),
                };
                self.reports.tell(partition, DiskEvent::SliceTaken);
                result.map_err(|error| error.to_string())?;
            }
            SnapshotOutput::Abort { number } => match under_way.as_mut().filter(of(number)) {
                Some(_) => self.give_up(under_way, "it is of no use".into()),
                None => self.tell(partition, number, "it has come to nothing already"),
            },
            SnapshotOutput::End { number } => match under_way.as_mut().filter(of(number)) {
                Some(writing) => {
                    writing.missing -= 1;
                    if let Some(done) = under_way.take_if(|writing| writing.missing == 0) {
                        let number = done.number;
                        self.finish(done).inspect_err(|why| self.tell_all(number, why))?;
                    }
                }
                None => self.tell(partition, number, "it has come to nothing already"),
            },
        }
        Ok(())
    }

    fn give_up(&mut self, under_way: &mut Option<Writing>, why: String) {
        if let Some(Writing { number, writer, .. }) = under_way.take() {
            writer.abandon(&mut self.disk);
            self.tell_all(number, &why);
        }
    }

    fn tell(&self, partition: u8, number: u64, why: &str) {
        self.reports.tell(partition, DiskEvent::SnapshotFinished { number, result: Err(why.into()) });
    }

    fn tell_all(&self, number: u64, why: &str) {
        self.reports.tell_all(|| DiskEvent::SnapshotFinished { number, result: Err(why.into()) });
    }

    fn begin(&mut self, positions: Vec<(u32, u64)>) -> Result<(SnapshotWriter, Instant), String> {
        let sequence = next_sequence(&mut self.disk, []).map_err(|error| error.to_string())?;
        let header = SnapshotHeader { sequence, created_ms: clock::wall_ms(), positions };
        let writer = SnapshotWriter::begin(&mut self.disk, header).map_err(|error| error.to_string())?;
        Ok((writer, Instant::now()))
    }

    /// The snapshot of another server, with this server's beginning.
    fn take_over(&mut self, append: Append, file: &str) -> Result<(), String> {
        let Some(TakenOver { position, covered, head }) = &append.snapshot else {
            return Err("the record builds on none".into());
        };
        let (mut writer, began) = self.begin([(append.timeline, *covered)].into())?;
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
        self.reports.tell(FIRST, DiskEvent::TakenOver(stored));
        let _ = self.log.send(LogRequest::Append(append));
        Ok(())
    }

    fn finish(&mut self, writing: Writing) -> Result<(), String> {
        let Writing { number, position, writer, began, zxid, .. } = writing;
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
        self.reports.tell_all(|| {
            let result = Ok((info.bytes, stored.clone()));
            DiskEvent::SnapshotFinished { number, result }
        });
        let _ = self.log.send(LogRequest::Purge);
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

    fn begin(number: u64) -> SnapshotOutput {
        Begin { number, covers: vec![(0, 1)], position: 1, zxid: 0, partitions: 2, head: b"head".to_vec() }
    }

    fn slice(number: u64, bytes: &[u8]) -> SnapshotOutput {
        Slice { number, bytes: bytes.to_vec() }
    }

    /// Has the thread do all this; returns what it said to whom, and what is on the disk then.
    fn run(requests: Vec<(u8, SnapshotOutput)>) -> (Vec<String>, Recovered, usize) {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        let options = Options { new_folder_id: FolderId([9; 16]), ..Options::default() };
        let mut log = Log::open(&mut disk, &options, &mut Recovered::default()).unwrap();
        log.append(&mut disk, &[Entry { timeline: 0, position: 1, payload: &[b"x"] }]).unwrap();
        let (requests_in, requests_out) = mpsc::channel();
        for (partition, piece) in requests {
            requests_in.send(SnapshotRequest::Piece { partition, piece }).unwrap();
        }
        drop(requests_in);
        let (events_in, events): (Vec<_>, Vec<_>) =
            (0..2).map(|_| tokio::sync::mpsc::unbounded_channel()).unzip();
        let (log_in, log_requests) = mpsc::channel();
        let thread = SnapshotThread {
            disk: disk.another(),
            requests: requests_out,
            reports: Reports(events_in.into()),
            log: log_in,
            meter: Arc::default(),
        };
        thread.spawn().unwrap().join().unwrap();
        let mut said = Vec::new();
        for (partition, mut events) in events.into_iter().enumerate() {
            while let Ok(event) = events.try_recv() {
                said.push(match event {
                    DiskEvent::SliceTaken => format!("{partition}: taken"),
                    DiskEvent::SnapshotFinished { number, result: Ok(_) } => {
                        format!("{partition}: {number} durable")
                    }
                    DiskEvent::SnapshotFinished { number, result: Err(_) } => {
                        format!("{partition}: {number} failed")
                    }
                    other => panic!("{other:?}"),
                });
            }
        }
        let unfinished = inspect::files(&mut disk).unwrap().leftovers.len();
        let mut recovered = Recovered::default();
        Log::open(&mut disk, &options, &mut recovered).unwrap();
        let durable = said.iter().filter(|said| said.starts_with("0") && said.ends_with("durable")).count();
        assert_eq!(log_requests.try_iter().count(), durable, "old files are removed after each");
        (said, recovered, unfinished)
    }

    #[test]
    fn a_snapshot_is_durable_when_all_partitions_have_said_all() {
        // More than is collected before it is written.
        let large = vec![7; 300_000];
        let (said, recovered, unfinished) = run(vec![
            (0, begin(1)),
            (1, slice(1, b"one")),
            (0, slice(1, &large)),
            (1, End { number: 1 }),
            (0, slice(1, b"zero")),
            (0, End { number: 1 }),
        ]);
        assert_eq!(said, ["0: taken", "0: taken", "0: 1 durable", "1: taken", "1: 1 durable"]);
        assert!(recovered.0 == [(1, 0, [b"head", &b"one"[..], &large, b"zero"].concat())]);
        assert_eq!(unfinished, 0);
    }

    #[test]
    fn what_is_of_another_snapshot_than_the_one_under_way_is_dropped() {
        let (said, recovered, unfinished) = run(vec![
            (0, begin(1)),
            (1, slice(1, b"old")),
            (0, Abort { number: 1 }),
            (0, begin(2)),
            (1, slice(1, b"late")),
            (1, End { number: 1 }),
            (1, slice(2, b"one")),
            (0, slice(2, b"zero")),
            (1, End { number: 2 }),
            (0, End { number: 2 }),
            (0, begin(3)),
            (0, slice(3, b"not all")),
        ]);
        let first = ["0: 1 failed", "0: taken", "0: 2 durable", "0: taken"];
        let second = ["1: taken", "1: 1 failed", "1: taken", "1: 1 failed", "1: taken", "1: 2 durable"];
        assert_eq!(said, [&first[..], &second[..]].concat());
        assert_eq!(recovered.0, [(1, 0, b"headonezero".to_vec())]);
        assert_eq!(unfinished, 0, "one that is under way at the end is given up");
    }

    #[test]
    fn one_that_cannot_begin_fails_for_all() {
        let too_many = Begin {
            number: 1,
            covers: (0..70_000).map(|at| (at, 1)).collect(),
            position: 1,
            zxid: 0,
            partitions: 2,
            head: Vec::new(),
        };
        let (said, recovered, _) = run(vec![(0, too_many), (1, slice(1, b"one")), (1, End { number: 1 })]);
        assert_eq!(said, ["0: 1 failed", "1: 1 failed", "1: taken", "1: 1 failed"]);
        assert!(recovered.0.is_empty());
    }
}
