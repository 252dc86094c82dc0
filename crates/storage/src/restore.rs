//! Which snapshots a recovery begins with: of each timeline the newest good one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::disk::Disk;
use crate::error::StorageError;
use crate::folder::Folder;
use crate::format::{FolderId, segment_name, snapshot_name};
use crate::positions::Positions;
use crate::recovery::{Link, PROGRESS_BYTES, Recovery};
use crate::snapshot::{SnapshotHeader, SnapshotReader};

/// What the snapshots that were handed out cover.
pub(crate) struct Floor {
    pub(crate) positions: Positions,
    /// The snapshot of each timeline that was given one.
    sequences: Vec<(u32, u64)>,
}

impl Floor {
    /// The file that a timeline was restored from.
    pub(crate) fn file(&self, timeline: u32) -> String {
        let found = self.sequences.iter().find(|row| row.0 == timeline);
        found.map_or_else(|| "no snapshot".into(), |&(_, sequence)| snapshot_name(sequence))
    }
}

/// A snapshot of the folder, good until something else is found.
struct Candidate {
    sequence: u64,
    bytes: u64,
    /// What it is of. If that cannot be read, it may be of any timeline.
    header: Option<SnapshotHeader>,
    /// What is wrong with it.
    error: Option<StorageError>,
    /// Whether that was said.
    told: bool,
}

impl Candidate {
    fn look<D: Disk + ?Sized>(disk: &mut D, sequence: u64, bytes: u64, folder_id: FolderId) -> Self {
        let (header, error) = match SnapshotReader::spot_found(disk, sequence, bytes, folder_id) {
            Ok(reader) => (Some(reader.header().clone()), None),
            Err(error) => (None, Some(error)),
        };
        Self { sequence, bytes, header, error, told: false }
    }

    fn names(&self, timeline: u32) -> bool {
        self.header.as_ref().is_some_and(|header| header.position_if_named(timeline).is_some())
    }
}

/// The walk through the snapshots.
struct Restore<'a, R: ?Sized> {
    recovery: &'a mut R,
    folder_id: FolderId,
    /// The oldest segment.
    first: &'a Link,
    /// Newest first.
    candidates: Vec<Candidate>,
    /// Timeline, position and snapshot of what was handed out.
    restored: Vec<(u32, u64, u64)>,
}

/// Hands out the newest good snapshot of each timeline that has one.
pub(crate) fn restore_snapshots<D: Disk + ?Sized, R: Recovery + ?Sized>(
    disk: &mut D,
    folder: &Folder,
    folder_id: FolderId,
    first: &Link,
    recovery: &mut R,
) -> Result<Floor, StorageError> {
    let newest_first = folder.snapshots.iter().rev();
    let candidates: Vec<Candidate> =
        newest_first.map(|&(sequence, bytes)| Candidate::look(disk, sequence, bytes, folder_id)).collect();
    let headers = candidates.iter().filter_map(|candidate| candidate.header.as_ref());
    let named = headers.flat_map(|header| &header.positions).chain(first.preamble.positions.rows());
    let mut timelines: Vec<u32> = named.map(|row| row.0).collect();
    timelines.sort_unstable();
    timelines.dedup();
    let mut restore = Restore { recovery, folder_id, first, candidates, restored: Vec::new() };
    for timeline in timelines {
        restore.timeline(disk, timeline)?;
    }
    if restore.restored.is_empty() {
        restore.tell_before(restore.candidates.len());
    }
    let restored = restore.restored;
    Ok(Floor {
        positions: Positions::new(restored.iter().map(|row| (row.0, row.1)).collect()),
        sequences: restored.iter().map(|row| (row.0, row.2)).collect(),
    })
}

impl<R: Recovery + ?Sized> Restore<'_, R> {
    /// Restores a timeline, unless that was done with one before it, or it has no good snapshot.
    fn timeline<D: Disk + ?Sized>(&mut self, disk: &mut D, timeline: u32) -> Result<(), StorageError> {
        while !self.is_restored(timeline) {
            let Some(at) = self.newest_good(timeline) else {
                let all = self.candidates.len();
                self.tell_before(all);
                return self.check_reach(&[(timeline, 0)], all);
            };
            self.candidate(disk, at)?;
        }
        Ok(())
    }

    fn is_restored(&self, timeline: u32) -> bool {
        self.restored.iter().any(|row| row.0 == timeline)
    }

    /// The newest snapshot of a timeline with which nothing is wrong as far as is known.
    fn newest_good(&self, timeline: u32) -> Option<usize> {
        self.candidates.iter().position(|candidate| candidate.error.is_none() && candidate.names(timeline))
    }

    /// Hands out a snapshot for those of its timelines whose newest it is, or finds out that it is damaged.
    fn candidate<D: Disk + ?Sized>(&mut self, disk: &mut D, at: usize) -> Result<(), StorageError> {
        let Candidate { sequence, bytes, ref header, .. } = self.candidates[at];
        let Some(mut header) = header.clone() else { return Ok(()) };
        header.positions.retain(|&(of, _)| !self.is_restored(of) && self.newest_good(of) == Some(at));
        self.tell_before(at);
        self.check_reach(&header.positions, at)?;
        let found = SnapshotReader::open_found(disk, sequence, bytes, Some(self.folder_id));
        match found.and_then(|mut reader| stream(disk, &mut reader, &header, self.recovery)) {
            Ok(()) => {
                self.restored.extend(header.positions.iter().map(|&(of, position)| (of, position, sequence)));
                Ok(())
            }
            Err(error @ StorageError::Refused { .. }) => Err(error),
            Err(error) => {
                self.candidates[at].error = Some(error);
                Ok(())
            }
        }
    }

    /// Says what is wrong with the snapshots that would have been taken before one of them.
    fn tell_before(&mut self, at: usize) {
        for candidate in &mut self.candidates[..at] {
            if let Some(error) = candidate.error.as_ref().filter(|_| !candidate.told) {
                let file = snapshot_name(candidate.sequence);
                self.recovery.warning(&format!("{file} cannot be used, trying an older one: {error}"));
                candidate.told = true;
            }
        }
    }

    /// Checks that the log goes on where a snapshot ends; without one, where the timeline begins.
    fn check_reach(&self, covered: &[(u32, u64)], at: usize) -> Result<(), StorageError> {
        let starts = &self.first.preamble.positions;
        let short = covered.iter().find(|&&(timeline, position)| starts.get(timeline) > position);
        let Some(&(timeline, position)) = short else { return Ok(()) };
        let snapshot = self.candidates.get(at).map(|candidate| snapshot_name(candidate.sequence));
        let snapshot = snapshot.unwrap_or_else(|| "no snapshot".into());
        let gap = format!(
            "the oldest segment, {}, begins after position {} of timeline {timeline}, \
             and before it {snapshot} reaches further than {position}",
            self.first.file,
            starts.get(timeline)
        );
        let newer = self.candidates[..at].iter();
        let mut of_it = newer.filter(|candidate| candidate.header.is_none() || candidate.names(timeline));
        Err(match of_it.find_map(|candidate| candidate.error.clone()) {
            Some(StorageError::Damaged { file, offset, what }) => {
                StorageError::Damaged { file, offset, what: format!("{what}; {gap}") }
            }
            Some(error) => error,
            None => StorageError::Missing { file: segment_name(self.first.preamble.words[1]), what: gap },
        })
    }
}

fn stream<D: Disk + ?Sized, R: Recovery + ?Sized>(
    disk: &mut D,
    reader: &mut SnapshotReader,
    header: &SnapshotHeader,
    recovery: &mut R,
) -> Result<(), StorageError> {
    let file = snapshot_name(header.sequence);
    let refused = |offset| {
        let file = file.clone();
        move |what| StorageError::Refused { file, offset, what }
    };
    recovery.snapshot_begin(header).map_err(refused(0))?;
    let (total, mut told) = (reader.file_bytes(), 0);
    loop {
        let at = reader.offset();
        match reader.next(disk) {
            Ok(Some(chunk)) => recovery.snapshot_chunk(chunk).map_err(refused(at))?,
            Ok(None) => {
                recovery.progress(total, total, &file);
                return recovery.snapshot_end().map_err(refused(at));
            }
            Err(error) => {
                recovery.snapshot_discard();
                return Err(error);
            }
        }
        if at - told >= PROGRESS_BYTES {
            told = at;
            recovery.progress(at, total, &file);
        }
    }
}
