//! From the folder to the state: the newest good snapshot, then every later record.

use stoa_core::{HistoryId, Recovered, Restore, timeline_of};
use stoa_storage::{Disk, Entry, Log, Options, Recovery, SnapshotHeader, StorageError};

/// A log that is open, and what it led to on each partition.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The log.
    pub(crate) log: Log,
    /// What each partition can go on with.
    pub(crate) partitions: Vec<Recovered>,
    /// The number of the snapshot that they were loaded from.
    pub(crate) snapshot: Option<u64>,
}

/// Opens the folder of a server with so many partitions.
///
/// # Errors
/// When it is damaged, or the disk fails.
pub(crate) fn recover<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
    (server, partitions): (u8, u8),
) -> Result<Opened, StorageError> {
    let mut rebuild = Rebuild::new(tree_options, partitions);
    let log = Log::open(disk, options, &mut rebuild)?;
    let Rebuild { restore, snapshot, .. } = rebuild;
    Ok(Opened { log, partitions: restore.finish(server).map_err(refused)?, snapshot })
}

/// Makes the folder of a server that of another history, in which it goes on alone.
///
/// # Errors
/// When there is nothing to go on from, it is damaged, or the disk fails.
pub(crate) fn go_on_alone<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
    (server, partitions): (u8, u8),
    id: HistoryId,
) -> Result<(), String> {
    let mut rebuild = Rebuild::new(tree_options, partitions);
    let mut log = Log::open(disk, options, &mut rebuild).map_err(|error| error.to_string())?;
    let goes_on = rebuild.restore.go_on_alone(server, id)?;
    let (timeline, payload) = (timeline_of(partitions), &goes_on.record[..]);
    let entry = Entry { timeline, position: goes_on.position, payload: &[payload] };
    log.append(disk, &[entry]).map_err(|error| error.to_string())
}

fn refused(what: String) -> StorageError {
    StorageError::Refused { file: "the log's end".into(), offset: 0, what }
}

/// Hands what is found to the core.
struct Rebuild {
    restore: Restore,
    timeline: u32,
    snapshot: Option<u64>,
}

impl Rebuild {
    fn new(tree_options: &stoa_tree::Options, partitions: u8) -> Self {
        let restore = Restore::new(tree_options.clone(), &[], partitions);
        Self { restore, timeline: timeline_of(partitions), snapshot: None }
    }

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
