//! From the folder to the state: the newest good snapshot, then every later record.

use stoa_core::{Recovered, Restore, timeline_of};
use stoa_storage::{Disk, Log, Options, Recovery, SnapshotHeader, StorageError};

/// A log that is open, and what it led to.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Log,
    /// What a server can go on with.
    pub recovered: Recovered,
    /// The number of the snapshot that it was loaded from.
    pub snapshot: Option<u64>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// Opens the folder of a server. An empty one begins a timeline with these voters.
///
/// # Errors
/// When it is damaged, or the disk fails.
pub fn recover<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
    server: u8,
    voters: &[u64],
) -> Result<Opened, StorageError> {
    let OpenedAll { log, partitions, snapshot, warnings } =
        recover_all(disk, options, tree_options, (server, 1), voters)?;
    let recovered = partitions.into_iter().next().expect("there is one partition");
    Ok(Opened { log, recovered, snapshot, warnings })
}

/// A log that is open, and what it led to on each partition.
#[derive(Debug)]
pub struct OpenedAll {
    /// The log.
    pub log: Log,
    /// What each partition can go on with.
    pub partitions: Vec<Recovered>,
    /// The number of the snapshot that they were loaded from.
    pub snapshot: Option<u64>,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// The same for a server with so many partitions.
///
/// # Errors
/// When it is damaged, or the disk fails.
pub fn recover_all<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
    (server, partitions): (u8, u8),
    voters: &[u64],
) -> Result<OpenedAll, StorageError> {
    let restore = Restore::new(tree_options.clone(), voters, partitions);
    let mut rebuild =
        Rebuild { restore, timeline: timeline_of(partitions), snapshot: None, warnings: Vec::new() };
    let log = Log::open(disk, options, &mut rebuild)?;
    let Rebuild { restore, snapshot, warnings, .. } = rebuild;
    let refused = |what| StorageError::Refused { file: "the log's end".into(), offset: 0, what };
    Ok(OpenedAll { log, partitions: restore.finish(server).map_err(refused)?, snapshot, warnings })
}

/// Hands what is found to the core.
struct Rebuild {
    restore: Restore,
    timeline: u32,
    snapshot: Option<u64>,
    warnings: Vec<String>,
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

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}
