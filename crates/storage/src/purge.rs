//! Removing what no kept snapshot needs.

use alloc::vec::Vec;

use crate::disk::{Disk, remove_if_there};
use crate::error::StorageError;
use crate::folder::Folder;
use crate::format::{segment_name, snapshot_name};
use crate::log::Log;
use crate::positions::Positions;
use crate::snapshot::{SnapshotInfo, check_ends};

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
}

impl Log {
    /// Removes snapshots older than the newest good ones that [`Options::snapshots_kept`] asks
    /// for, and the segments that the oldest of these covers wholly.
    ///
    /// As long as there are fewer good snapshots than that, nothing is removed: the log itself is
    /// then the way back. A snapshot counts as good if its preamble and footer are whole.
    ///
    /// [`Options::snapshots_kept`]: crate::Options::snapshots_kept
    pub fn purge<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<PurgeReport, StorageError> {
        let mut report = PurgeReport::default();
        let wanted = self.options.snapshots_kept.max(1);
        let mut old = Vec::new();
        for &(sequence, bytes) in Folder::list(disk)?.snapshots.iter().rev() {
            if report.snapshots_kept.len() == wanted {
                old.push((sequence, bytes));
                continue;
            }
            match check_ends(disk, sequence, bytes, self.folder_id) {
                Ok(info) => report.snapshots_kept.push(info),
                Err(error) => report.snapshots_damaged.push((sequence, error)),
            }
        }
        let Some(oldest) = report.snapshots_kept.get(wanted - 1) else {
            return Ok(report);
        };
        // A snapshot of fewer positions than an older one would be a fault of whoever wrote it;
        // what every kept snapshot covers is safe to remove all the same.
        let mut covered = Positions::new(oldest.header.positions.clone());
        for kept in &report.snapshots_kept {
            covered = covered.least(&Positions::new(kept.header.positions.clone()));
        }
        for (sequence, bytes) in old.into_iter().rev() {
            remove_if_there(disk, &snapshot_name(sequence))?;
            report.snapshots_removed += 1;
            report.bytes_removed += bytes;
        }
        // A segment ends where the next one starts; the last one stays. One removal is durable
        // before the next, or a loss of power could leave a hole.
        while let [first, next, ..] = &self.segments[..]
            && next.start.within(&covered)
        {
            remove_if_there(disk, &segment_name(first.first_frame))?;
            disk.sync_folder()?;
            report.segments_removed += 1;
            report.bytes_removed += first.bytes;
            self.segments.remove(0);
        }
        if report.snapshots_removed > 0 {
            disk.sync_folder()?;
        }
        Ok(report)
    }
}
