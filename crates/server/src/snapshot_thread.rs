//! The thread that writes snapshots, apart from the log's so that an update never waits for one.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use stoa_core::{Append, SnapshotOutput, TakenOver};
use stoa_storage::{Disk, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError, list_snapshots};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock;
use crate::ensemble::StoredSnapshot;
use crate::file_disk::FileDisk;
use crate::log_thread::{DiskEvent, LogRequest};
use crate::meter::{LogMeter, micros, snapshot_bytes};
use crate::priority::step_back;

/// How the snapshots' thread works.
pub(crate) struct SnapshotThread {
    pub(crate) disk: FileDisk,
    pub(crate) requests: Receiver<SnapshotRequest>,
    pub(crate) events: UnboundedSender<DiskEvent>,
    /// To have old files removed when a snapshot is durable.
    pub(crate) log: mpsc::Sender<LogRequest>,
    pub(crate) meter: Arc<Mutex<LogMeter>>,
}

/// What the snapshots' thread is asked.
#[derive(Debug)]
pub(crate) enum SnapshotRequest {
    /// The next piece of a snapshot of this server.
    Piece(SnapshotOutput),
    /// A snapshot has come from another server: make it one of this server, then let the log have
    /// the record that builds on it.
    TakeOver {
        /// The record, with what the snapshot begins with here.
        append: Append,
        /// Its file.
        file: String,
    },
}

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
        let mut writing = None;
        while let Ok(request) = self.requests.recv() {
            let request = match request {
                SnapshotRequest::Piece(piece) => piece,
                SnapshotRequest::TakeOver { append, file } => {
                    if let Err(error) = self.take_over(append, &file) {
                        let why = format!("the snapshot of another server cannot be stored: {error}");
                        let _ = self.events.send(DiskEvent::Failed(why));
                    }
                    continue;
                }
            };
            let result = match request {
                SnapshotOutput::Begin { covers, position, zxid } => {
                    self.begin(covers).map(|(writer, began)| {
                        writing = Some(Writing { position, writer, began, zxid });
                    })
                }
                SnapshotOutput::Slice(bytes) => {
                    let result = match &mut writing {
                        Some(Writing { writer, .. }) => {
                            writer.chunk(&mut self.disk, &bytes).map_err(|error| error.to_string())
                        }
                        // The rest of a snapshot that has failed already.
                        None => Ok(()),
                    };
                    let _ = self.events.send(DiskEvent::SliceTaken);
                    result
                }
                SnapshotOutput::Abort => {
                    if let Some(Writing { writer, .. }) = writing.take() {
                        writer.abandon(&mut self.disk);
                    }
                    let _ = self.events.send(DiskEvent::SnapshotFinished(Err("it is of no use".into())));
                    Ok(())
                }
                SnapshotOutput::End => match writing.take() {
                    Some(done) => self.finish(done),
                    None => Ok(()),
                },
            };
            if let Err(error) = result {
                tracing::error!("the snapshot could not be written: {error}; the log keeps everything");
                if let Some(Writing { writer, .. }) = writing.take() {
                    writer.abandon(&mut self.disk);
                }
                let _ = self.events.send(DiskEvent::SnapshotFinished(Err(error)));
            }
        }
        if let Some(Writing { writer, .. }) = writing {
            writer.abandon(&mut self.disk);
        }
    }

    fn begin(&mut self, positions: Vec<(u32, u64)>) -> Result<(SnapshotWriter, Instant), String> {
        let newest = list_snapshots(&mut self.disk).map_err(|error| error.to_string())?;
        let sequence = newest.iter().map(|snapshot| snapshot.sequence).max().unwrap_or(0) + 1;
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
        let _ =
            self.events.send(DiskEvent::TakenOver(StoredSnapshot { position: *position, file: info.file }));
        let _ = self.log.send(LogRequest::Append(append));
        Ok(())
    }

    fn finish(&mut self, writing: Writing) -> Result<(), String> {
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
        let _ = self.events.send(DiskEvent::SnapshotFinished(Ok((info.bytes, stored))));
        let _ = self.log.send(LogRequest::Purge);
        Ok(())
    }
}
