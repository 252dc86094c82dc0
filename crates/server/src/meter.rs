//! What the disk's threads measure, read by whoever renders metrics.

use std::time::Duration;

use stoa_core::Histogram;
use stoa_storage::{Disk, list_snapshots};

/// Figures of the log and of the snapshots.
#[derive(Debug, Default)]
pub(crate) struct LogMeter {
    /// Write and fsync together.
    pub(crate) append: Histogram,
    /// Fsync alone.
    pub(crate) fsync: Histogram,
    /// Batches slower than the warning threshold.
    pub(crate) slow: u64,
    /// Entries that were stored together.
    pub(crate) batch: Histogram,
    /// Bytes of all segments.
    pub(crate) log_bytes: u64,
    /// Position of the last stored entry.
    pub(crate) position: u64,
    /// From the beginning of a snapshot to its being durable.
    pub(crate) snapshot: Histogram,
    /// Bytes of all snapshots.
    pub(crate) snapshot_bytes: u64,
    /// zxid of the newest snapshot.
    pub(crate) snapshot_zxid: Option<i64>,
    /// When the newest one was finished, milliseconds since the epoch.
    pub(crate) snapshot_wall_ms: i64,
}

impl LogMeter {
    pub(crate) fn stored(&mut self, entries: usize, took: Duration, synced: Duration, slow: bool) {
        self.append.record(micros(took), 1);
        self.fsync.record(micros(synced), 1);
        self.batch.record(entries as u64, 1);
        self.slow += u64::from(slow);
    }
}

/// Bytes of all whole snapshots on a disk; 0 if it cannot be told.
pub(crate) fn snapshot_bytes(disk: &mut impl Disk) -> u64 {
    let found = list_snapshots(disk).unwrap_or_default();
    found.iter().filter_map(|snapshot| snapshot.state.as_ref().ok()).map(|info| info.bytes).sum()
}

/// Whole microseconds of a duration.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
