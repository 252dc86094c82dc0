//! The thread that writes snapshots, apart from the log's so that an update never waits for one.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use stoa_core::SnapshotOutput;
use stoa_storage::{SnapshotHeader, SnapshotWriter, list_snapshots};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock;
use crate::file_disk::FileDisk;
use crate::log_thread::{DiskEvent, LogRequest};
use crate::meter::{LogMeter, micros, snapshot_bytes};
use crate::priority::step_back;

/// How the snapshots' thread works.
pub(crate) struct SnapshotThread {
    pub(crate) disk: FileDisk,
    pub(crate) requests: Receiver<SnapshotOutput>,
    pub(crate) events: UnboundedSender<DiskEvent>,
    /// To have old files removed when a snapshot is durable.
    pub(crate) log: mpsc::Sender<LogRequest>,
    pub(crate) meter: Arc<Mutex<LogMeter>>,
}

struct Writing {
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
            let result = match request {
                SnapshotOutput::Begin { positions, zxid } => self.begin(positions, zxid).map(|begun| {
                    writing = Some(begun);
                }),
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

    fn begin(&mut self, positions: Vec<(u32, u64)>, zxid: i64) -> Result<Writing, String> {
        let newest = list_snapshots(&mut self.disk).map_err(|error| error.to_string())?;
        let sequence = newest.iter().map(|snapshot| snapshot.sequence).max().unwrap_or(0) + 1;
        let header = SnapshotHeader { sequence, created_ms: clock::wall_ms(), positions };
        let writer = SnapshotWriter::begin(&mut self.disk, header).map_err(|error| error.to_string())?;
        Ok(Writing { writer, began: Instant::now(), zxid })
    }

    fn finish(&mut self, writing: Writing) -> Result<(), String> {
        let Writing { writer, began, zxid } = writing;
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
        let _ = self.events.send(DiskEvent::SnapshotFinished(Ok(info.bytes)));
        let _ = self.log.send(LogRequest::Purge);
        Ok(())
    }
}
