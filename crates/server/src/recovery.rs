//! From what is on disk to what a server goes on with.

use std::time::Instant;

use stoa_core::{Recovered, Restore, timeline_of};
use stoa_storage::{Recovery, SnapshotHeader, snapshot_name};
use stoa_tree::Options;

use crate::progress::Progress;

/// Hands what the disk yields to the core, and shows how far it has come.
pub(crate) struct Recovering {
    restore: Restore,
    partitions: u8,
    progress: Progress,
    began: Instant,
    /// When the snapshot that is being loaded was begun, and its number.
    created_ms: i64,
    sequence: u64,
    report: RestoreReport,
}

/// How a recovery went.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoreReport {
    /// Time until the snapshot was loaded.
    pub(crate) snapshot_ms: u64,
    /// What the state was loaded from, if there was something.
    pub(crate) snapshot: Option<LoadedSnapshot>,
    /// Updates applied after it.
    pub(crate) updates: u64,
}

/// A snapshot that a tree was loaded from.
#[derive(Clone, Debug)]
pub(crate) struct LoadedSnapshot {
    /// Its file.
    pub(crate) file: String,
    /// The last update in it.
    pub(crate) zxid: i64,
    /// When it was begun, milliseconds since the epoch.
    pub(crate) created_ms: i64,
}

impl Recovering {
    pub(crate) fn new(options: &Options, voters: &[u8], partitions: u8) -> Self {
        Self {
            restore: Restore::new(options.clone(), voters, partitions),
            partitions,
            progress: Progress::new("recovery"),
            began: Instant::now(),
            created_ms: 0,
            sequence: 0,
            report: RestoreReport::default(),
        }
    }

    /// What each partition goes on with.
    pub(crate) fn finish(mut self, server: u8) -> Result<(Vec<Recovered>, RestoreReport), String> {
        self.progress.finish();
        let all = self.restore.finish(server)?;
        self.report.updates = all.iter().map(|recovered| recovered.updates).sum();
        Ok((all, self.report))
    }
}

/// Whether the log is that of a server with so many partitions.
fn check(timeline: u32, partitions: u8) -> Result<(), String> {
    if timeline == timeline_of(partitions) {
        return Ok(());
    }
    let found = (1..=u8::MAX).find(|count| timeline == timeline_of(*count));
    Err(match found {
        Some(found) => format!(
            "it is of a server with {found} partitions, and the data folder says that it has {partitions}: was its file \
             PARTITIONS lost?"
        ),
        None => format!("it is of timeline {timeline}, which no server with {partitions} partitions has"),
    })
}

impl Recovery for Recovering {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let [(timeline, covered)] = header.positions[..] else {
            return Err(format!("it is of {:?}, not of one timeline", header.positions));
        };
        check(timeline, self.partitions)?;
        self.restore.snapshot_begin(covered);
        self.created_ms = header.created_ms;
        self.sequence = header.sequence;
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.restore.snapshot_chunk(bytes)
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        self.restore.snapshot_end()?;
        let (file, zxid) = (snapshot_name(self.sequence), self.restore.zxid());
        self.report.snapshot = Some(LoadedSnapshot { file, zxid, created_ms: self.created_ms });
        self.report.snapshot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        self.restore.snapshot_discard();
        self.report.snapshot = None;
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        check(timeline, self.partitions)?;
        self.restore.record(position, payload)
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64, what: &str) {
        self.progress.show(done_bytes, total_bytes, what);
    }

    fn warning(&mut self, message: &str) {
        tracing::warn!("recovery: {message}");
    }
}
