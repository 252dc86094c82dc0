//! From the folder to the state: the newest good snapshot, then every later record.

use stoa_core::{Recovered, Restore, timeline_of};
use stoa_storage::{Disk, Log, Options, Recovery, SnapshotHeader, StorageError};

/// A log that is open, and what it led to on each partition.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Log,
    /// What each partition can go on with.
    pub partitions: Vec<Recovered>,
    /// The number of the snapshot that they were loaded from.
    pub snapshot: Option<u64>,
}

/// Opens the folder of a server with so many partitions. An empty one begins a timeline with these voters.
///
/// # Errors
/// When it is damaged, or the disk fails.
pub fn recover<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
    (server, partitions): (u8, u8),
    voters: &[u8],
) -> Result<Opened, StorageError> {
    let restore = Restore::new(tree_options.clone(), voters, partitions);
    let mut rebuild = Rebuild { restore, timeline: timeline_of(partitions), snapshot: None };
    let log = Log::open(disk, options, &mut rebuild)?;
    let Rebuild { restore, snapshot, .. } = rebuild;
    let refused = |what| StorageError::Refused { file: "the log's end".into(), offset: 0, what };
    Ok(Opened { log, partitions: restore.finish(server).map_err(refused)?, snapshot })
}

/// Hands what is found to the core.
struct Rebuild {
    restore: Restore,
    timeline: u32,
    snapshot: Option<u64>,
}

impl Rebuild {
    fn check(&self, timeline: u32) -> Result<(), String> {
        if timeline == self.timeline { Ok(()) } else { Err(format!("timeline {timeline} is not known here")) }
    }
}

impl Recovery for Rebuild {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let [(timeline, covered)] = header.positions[..] else {
            return Err(format!("it is of {:?}, not of one timeline", header.positions));
        };
        self.check(timeline)?;
        self.snapshot = Some(header.sequence);
        self.restore.snapshot_begin(covered);
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.restore.snapshot_chunk(bytes)
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        self.restore.snapshot_end()
    }

    fn snapshot_discard(&mut self) {
        self.snapshot = None;
        self.restore.snapshot_discard();
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        self.check(timeline)?;
        self.restore.record(position, payload)
    }
}
