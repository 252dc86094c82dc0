//! From what is on disk to what a server goes on with.

use std::time::Instant;

use stoa_core::{Recovered, Restore, Share, TIMELINE};
use stoa_storage::{Recovery, SnapshotHeader, snapshot_name};
use stoa_tree::Options;

use crate::progress::Progress;

/// Hands what the disk yields to the core, to each partition what is on its timeline, and shows how far it
/// has come.
pub(crate) struct Recovering {
    partitions: Vec<Loading>,
    progress: Progress,
    began: Instant,
    /// Whose snapshot is being loaded, when it was begun, and its number.
    current: usize,
    created_ms: i64,
    sequence: u64,
    report: RestoreReport,
}

struct Loading {
    restore: Restore,
    snapshot: Option<LoadedSnapshot>,
}

/// How a recovery went.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoreReport {
    /// Time until the snapshots were loaded.
    pub(crate) snapshot_ms: u64,
    /// What each partition was loaded from, if there was something.
    pub(crate) snapshots: Vec<Option<LoadedSnapshot>>,
    /// Updates applied after it.
    pub(crate) updates: u64,
}

impl RestoreReport {
    /// The newest of all.
    pub(crate) fn newest(&self) -> Option<&LoadedSnapshot> {
        self.snapshots.iter().flatten().max_by_key(|snapshot| snapshot.zxid)
    }
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
    pub(crate) fn new(options: &Options, voters: &[u64], partitions: u8) -> Self {
        let loading = |partition| {
            let share = Share { partition, partitions };
            Loading { restore: Restore::of_partition(options.clone(), voters, share), snapshot: None }
        };
        Self {
            partitions: (0..partitions).map(loading).collect(),
            progress: Progress::new("recovery"),
            began: Instant::now(),
            current: 0,
            created_ms: 0,
            sequence: 0,
            report: RestoreReport::default(),
        }
    }

    /// What each partition goes on with.
    pub(crate) fn finish(mut self, server: u8) -> Result<(Vec<Recovered>, RestoreReport), String> {
        self.progress.finish();
        let mut all = Vec::new();
        for Loading { restore, snapshot } in self.partitions {
            let recovered = restore.finish(server)?;
            self.report.updates += recovered.updates;
            self.report.snapshots.push(snapshot);
            all.push(recovered);
        }
        Ok((all, self.report))
    }

    fn of(&mut self, timeline: u32) -> Result<&mut Loading, String> {
        let partitions = self.partitions.len();
        let missing = || {
            format!(
                "there is something of partition {timeline}, and the data folder says that it has {partitions}, \
                 from 0 on: was its file PARTITIONS lost?"
            )
        };
        let at = timeline.checked_sub(TIMELINE).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.partitions.get_mut(at)).ok_or_else(missing)
    }
}

impl Recovery for Recovering {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let [(timeline, covered)] = header.positions[..] else {
            return Err(format!("it is of {:?}, not of one timeline", header.positions));
        };
        self.of(timeline)?.restore.snapshot_begin(covered);
        self.current = timeline as usize;
        self.created_ms = header.created_ms;
        self.sequence = header.sequence;
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.partitions[self.current].restore.snapshot_chunk(bytes)
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        let Loading { restore, snapshot } = &mut self.partitions[self.current];
        restore.snapshot_end()?;
        let file = snapshot_name(self.sequence);
        *snapshot = Some(LoadedSnapshot { file, zxid: restore.zxid(), created_ms: self.created_ms });
        self.report.snapshot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        let Loading { restore, snapshot } = &mut self.partitions[self.current];
        restore.snapshot_discard();
        *snapshot = None;
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        self.of(timeline)?.restore.record(position, payload)
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64, what: &str) {
        self.progress.show(done_bytes, total_bytes, what);
    }

    fn warning(&mut self, message: &str) {
        tracing::warn!("recovery: {message}");
    }
}
