//! From the folder to the state: the newest good snapshot, then every later record.

use stoa_core::{Recovered, Restore, Share, TIMELINE};
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
    let OpenedAll { log, partitions, warnings } =
        recover_all(disk, options, tree_options, (server, 1), voters)?;
    let (recovered, snapshot) = partitions.into_iter().next().expect("there is one partition");
    Ok(Opened { log, recovered, snapshot, warnings })
}

/// A log that is open, and what it led to on each partition.
#[derive(Debug)]
pub struct OpenedAll {
    /// The log.
    pub log: Log,
    /// What each partition can go on with, and the number of the snapshot that it was loaded from.
    pub partitions: Vec<(Recovered, Option<u64>)>,
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
    let restore =
        |partition| Restore::of_partition(tree_options.clone(), voters, Share { partition, partitions });
    let loading = (0..partitions).map(|partition| (restore(partition), None)).collect();
    let mut rebuild = Rebuild { loading, current: 0, warnings: Vec::new() };
    let log = Log::open(disk, options, &mut rebuild)?;
    let Rebuild { loading, warnings, .. } = rebuild;
    let refused = |what| StorageError::Refused { file: "the log's end".into(), offset: 0, what };
    let mut partitions = Vec::new();
    for (restore, snapshot) in loading {
        partitions.push((restore.finish(server).map_err(refused)?, snapshot));
    }
    Ok(OpenedAll { log, partitions, warnings })
}

/// Hands what is found to the core, to each partition what is on its timeline.
struct Rebuild {
    loading: Vec<(Restore, Option<u64>)>,
    /// Whose snapshot is being loaded.
    current: usize,
    warnings: Vec<String>,
}

impl Rebuild {
    fn of(&mut self, timeline: u32) -> Result<&mut (Restore, Option<u64>), String> {
        let at = timeline.checked_sub(TIMELINE).map(|at| at as usize);
        let unknown = || format!("timeline {timeline} is not known here");
        at.and_then(|at| self.loading.get_mut(at)).ok_or_else(unknown)
    }
}

impl Recovery for Rebuild {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let [(timeline, covered)] = header.positions[..] else {
            return Err(format!("it is of {:?}, not of one timeline", header.positions));
        };
        let (restore, snapshot) = self.of(timeline)?;
        *snapshot = Some(header.sequence);
        restore.snapshot_begin(covered);
        self.current = (timeline - TIMELINE) as usize;
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.loading[self.current].0.snapshot_chunk(bytes)
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        self.loading[self.current].0.snapshot_end()
    }

    fn snapshot_discard(&mut self) {
        let (restore, snapshot) = &mut self.loading[self.current];
        *snapshot = None;
        restore.snapshot_discard();
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        self.of(timeline)?.0.record(position, payload)
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}
