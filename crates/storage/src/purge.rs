//! Removing what no kept snapshot needs.

use alloc::vec::Vec;

use crate::disk::{Disk, remove_if_there};
use crate::error::StorageError;
use crate::folder::Folder;
use crate::format::{segment_name, snapshot_name};
use crate::log::{Log, Segment};
use crate::snapshot::{SnapshotHeader, SnapshotInfo, SnapshotReader, check_end};

/// What a purge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// The good snapshots that were kept, newest first.
    pub snapshots_kept: Vec<SnapshotInfo>,
    /// Snapshots whose ends are damaged; they count as nothing and go when they are old enough.
    pub snapshots_damaged: Vec<(u64, StorageError)>,
    /// Snapshots removed.
    pub snapshots_removed: usize,
    /// Segments removed.
    pub segments_removed: usize,
    /// Bytes of all files removed.
    pub bytes_removed: u64,
    /// The timelines of which the oldest segment holds entries that are not covered by as many
    /// snapshots as are to be kept. Only further snapshots of these can let it go.
    pub held_by: Vec<u32>,
}

/// The newest good snapshots of a timeline, no more than are to be kept.
struct Kept {
    timeline: u32,
    count: usize,
    /// The oldest of them.
    sequence: u64,
    /// What each of them covers.
    covered: u64,
}

/// What is kept of every timeline that is in the log or has a snapshot.
struct AllKept {
    wanted: usize,
    /// Sorted.
    timelines: Vec<Kept>,
}

impl AllKept {
    /// Nothing yet, of the timelines of a log.
    fn new(wanted: usize, log: &Log) -> Self {
        let timelines = log.positions.rows().iter().map(|row| Kept::new(row.0)).collect();
        Self { wanted, timelines }
    }

    fn of(&self, timeline: u32) -> Option<&Kept> {
        self.timelines
            .binary_search_by_key(&timeline, |kept| kept.timeline)
            .ok()
            .map(|at| &self.timelines[at])
    }

    fn has_enough_of(&self, timeline: u32) -> bool {
        self.of(timeline).is_some_and(|kept| kept.count == self.wanted)
    }

    /// Whether there are enough newer snapshots of each timeline that one is of.
    fn is_old(&self, header: &SnapshotHeader) -> bool {
        header.positions.iter().all(|row| self.has_enough_of(row.0))
    }

    /// The same of one that may be of any timeline.
    fn is_old_for_all(&self, sequence: u64) -> bool {
        !self.timelines.is_empty()
            && self.timelines.iter().all(|kept| kept.count == self.wanted && sequence < kept.sequence)
    }

    /// Counts in a good snapshot that is older than those before.
    fn add(&mut self, header: &SnapshotHeader) {
        for &(timeline, position) in &header.positions {
            let at = match self.timelines.binary_search_by_key(&timeline, |kept| kept.timeline) {
                Ok(at) => at,
                Err(at) => {
                    self.timelines.insert(at, Kept::new(timeline));
                    at
                }
            };
            let kept = &mut self.timelines[at];
            if kept.count < self.wanted {
                kept.count += 1;
                kept.sequence = header.sequence;
                // A snapshot of fewer positions than an older one would be a fault of whoever wrote it;
                // what every kept snapshot covers is safe to remove all the same.
                kept.covered = kept.covered.min(position);
            }
        }
    }

    /// The timelines that need a segment: it holds something of them that not enough snapshots cover.
    fn needing(&self, segment: &Segment, next: &Segment) -> Vec<u32> {
        let covered = |timeline| {
            self.of(timeline).filter(|kept| kept.count == self.wanted).map_or(0, |kept| kept.covered)
        };
        let held = next.start.rows().iter().filter(|(timeline, end)| *end > segment.start.get(*timeline));
        held.filter(|(timeline, end)| *end > covered(*timeline)).map(|row| row.0).collect()
    }
}

impl Kept {
    fn new(timeline: u32) -> Self {
        Self { timeline, count: 0, sequence: u64::MAX, covered: u64::MAX }
    }
}

impl Log {
    /// Removes of each timeline the snapshots older than the newest good ones that
    /// [`Options::snapshots_kept`] asks for, and the oldest segments, as long as the oldest kept
    /// snapshot of each timeline covers what they hold of it.
    ///
    /// As long as a timeline has fewer good snapshots than that, nothing of it is removed, neither
    /// snapshots nor entries: the log itself is then the way back. A snapshot counts as good if its
    /// preamble and footer are whole. Of the segments [`Options::kept_bytes`] stay in any case.
    ///
    /// [`Options::snapshots_kept`]: crate::Options::snapshots_kept
    /// [`Options::kept_bytes`]: crate::Options::kept_bytes
    pub fn purge<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<PurgeReport, StorageError> {
        let mut report = PurgeReport::default();
        let mut kept = AllKept::new(self.options.snapshots_kept.max(1), self);
        let (mut old, mut unreadable) = (Vec::new(), Vec::new());
        let folder = Folder::list(disk)?;
        if kept.wanted == 1 {
            // The newest one may have been given its name just now, by another thread, and the loss of it
            // would leave none.
            disk.sync_folder()?;
        }
        for &(sequence, bytes) in folder.snapshots.iter().rev() {
            match SnapshotReader::spot_found(disk, sequence, bytes, self.folder_id) {
                Ok(found) if kept.is_old(found.header()) => old.push((sequence, bytes)),
                Ok(found) => match check_end(disk, found) {
                    Ok(info) => {
                        kept.add(&info.header);
                        report.snapshots_kept.push(info);
                    }
                    Err(error) => report.snapshots_damaged.push((sequence, error)),
                },
                Err(error) => unreadable.push((sequence, bytes, error)),
            }
        }
        for (sequence, bytes, error) in unreadable {
            match kept.is_old_for_all(sequence) {
                true => old.push((sequence, bytes)),
                false => report.snapshots_damaged.push((sequence, error)),
            }
        }
        old.sort_unstable();
        for (sequence, bytes) in old {
            remove_if_there(disk, &snapshot_name(sequence))?;
            report.snapshots_removed += 1;
            report.bytes_removed += bytes;
        }
        self.remove_segments(disk, &kept, &mut report)?;
        if report.snapshots_removed > 0 {
            disk.sync_folder()?;
        }
        Ok(report)
    }

    /// A segment ends where the next one starts; the last one stays. One removal is durable before the
    /// next, or a loss of power could leave a hole.
    fn remove_segments<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        kept: &AllKept,
        report: &mut PurgeReport,
    ) -> Result<(), StorageError> {
        let mut left: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        while let [first, next, ..] = &self.segments[..] {
            report.held_by = kept.needing(first, next);
            left -= first.bytes;
            if !report.held_by.is_empty() || left < self.options.kept_bytes {
                break;
            }
            remove_if_there(disk, &segment_name(first.first_frame))?;
            disk.sync_folder()?;
            report.segments_removed += 1;
            report.bytes_removed += first.bytes;
            self.segments.remove(0);
        }
        Ok(())
    }
}
