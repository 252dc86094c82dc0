//! From the folder to the state: the newest good snapshot, then every later record.

use stoa_core::{Recovered, Restore, TIMELINE};
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
    let restore = Restore::new(tree_options.clone(), voters);
    let mut rebuild = Rebuild { restore, snapshot: None, warnings: Vec::new() };
    let log = Log::open(disk, options, &mut rebuild)?;
    let Rebuild { restore, snapshot, warnings } = rebuild;
    let refused = |what| StorageError::Refused { file: "the log's end".into(), offset: 0, what };
    let recovered = restore.finish(server).map_err(refused)?;
    Ok(Opened { log, recovered, snapshot, warnings })
}

/// Hands what is found to the core.
struct Rebuild {
    restore: Restore,
    snapshot: Option<u64>,
    warnings: Vec<String>,
}

impl Recovery for Rebuild {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let [(TIMELINE, covered)] = header.positions[..] else {
            return Err(format!("it is of {:?}, not of timeline {TIMELINE} alone", header.positions));
        };
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
        if timeline != TIMELINE {
            return Err(format!("timeline {timeline} is not known here"));
        }
        self.restore.record(position, payload)
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}
