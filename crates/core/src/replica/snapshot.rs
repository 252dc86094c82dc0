//! Snapshots: when one is due, and its slices.
//!
//! A snapshot is the state of all partitions at one position of the log that they share. The first partition begins
//! it; every other one is told by the log's own stream where, and begins to walk its tree exactly there. The tree is
//! walked in slices between requests (a znode about to change is written first), so no slice stops service for longer
//! than it takes to copy [`SLICE_BYTES`]. At most [`SLICES_AHEAD`] slices of a partition are with the driver at a time:
//! a slow disk slows the walk, never the memory.

use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use crate::snapshot::{SnapshotOutput, SnapshotState};
use alloc::vec;
use alloc::vec::Vec;
use stoa_partition::encode_standing;
use stoa_placement::FIRST;
use stoa_timeline::{SnapshotHead, timeline_of};

/// About how much one slice holds.
const SLICE_BYTES: usize = 128 << 10;

/// Slices handed out and not taken to the disk yet.
const SLICES_AHEAD: usize = 4;

/// So often, on the way to the next snapshot, a partition tells the first one how many updates it has applied.
const TOLD_TIMES: u64 = 16;

impl Replica {
    /// Asks for a snapshot now; one that is under way will do.
    pub fn request_snapshot(&mut self) {
        if self.applied.partition.tree().is_joining() {
            return;
        }
        if self.timeline.has_log() {
            self.applied.snapshots.begin();
        } else {
            self.say(FIRST, ShardMessage::SnapshotWanted);
        }
    }

    /// Whether a snapshot is under way.
    #[must_use]
    pub fn is_snapshotting(&self) -> bool {
        self.applied.snapshots.state != SnapshotState::Idle
    }

    /// Snapshots taken and failed since the start.
    #[must_use]
    pub fn snapshot_counts(&self) -> (u64, u64) {
        (self.applied.snapshots.taken, self.applied.snapshots.failed)
    }

    /// The next piece of the snapshot under way, if there is room for it with the driver.
    pub fn poll_snapshot(&mut self) -> Option<SnapshotOutput> {
        let snapshots = &mut self.applied.snapshots;
        let number = snapshots.number;
        match snapshots.state {
            SnapshotState::Idle | SnapshotState::Finishing => None,
            SnapshotState::Begun => self.begin_snapshot(),
            SnapshotState::Waiting if snapshots.is_there => {
                let is_alone = snapshots.rests_on.is_empty();
                snapshots.state = if is_alone { SnapshotState::Walking } else { SnapshotState::Based };
                self.poll_snapshot()
            }
            SnapshotState::Based => {
                snapshots.state = SnapshotState::Walking;
                let rests_on = core::mem::take(&mut snapshots.rests_on);
                Some(snapshots.slice(rests_on))
            }
            SnapshotState::Aborted => {
                snapshots.state = SnapshotState::Finishing;
                Some(SnapshotOutput::Abort { number })
            }
            SnapshotState::Walking if snapshots.ahead < SLICES_AHEAD => {
                let mut slice = Vec::with_capacity(SLICE_BYTES + SLICE_BYTES / 8);
                if self.applied.placement.is_divided() {
                    slice.push(self.config.partition);
                }
                let more = self.applied.partition.tree_mut().snapshot_slice(&mut slice, SLICE_BYTES);
                if !more {
                    snapshots.state = SnapshotState::Walked;
                }
                Some(snapshots.slice(slice))
            }
            SnapshotState::Waiting | SnapshotState::Walking => None,
            SnapshotState::Walked => {
                snapshots.state = SnapshotState::Finishing;
                Some(SnapshotOutput::End { number })
            }
        }
    }

    /// At the first partition: a snapshot is taken of what the log has handed out up to now.
    fn begin_snapshot(&mut self) -> Option<SnapshotOutput> {
        if !self.applied.placement.is_divided() {
            // Where there is one partition it is walked at once.
            self.finish_applying();
        }
        let SnapshotHead { head, covered } = self.timeline.begin_snapshot()?;
        let mark = head.snapshot.clone().unwrap_or_default();
        let (position, partitions) = (mark.position, self.applied.placement.partitions());
        self.applied.snapshots.number += 1;
        let number = self.applied.snapshots.number;
        self.applied.snapshots.mark = *mark;
        self.applied.snapshots.state = SnapshotState::Waiting;
        self.applied.snapshots.is_there = false;
        if !self.applied.placement.is_divided() {
            debug_assert_eq!(position, self.timeline.applied_at().0, "a snapshot is of what is applied");
            self.walk_snapshot(number);
        } else {
            self.timeline.snapshot_is_here(number);
            self.pump();
        }
        Some(SnapshotOutput::Begin {
            number,
            covers: [(timeline_of(partitions), covered)].into(),
            position,
            zxid: self.applied.partition.tree().last_zxid(),
            partitions,
            head: head.encode().join().into(),
        })
    }

    /// The state has come to where the snapshot with this number is taken.
    pub(crate) fn walk_snapshot(&mut self, number: u64) {
        if self.applied.snapshots.is_walking() {
            // Of an earlier one, of which it is not known here yet that it has come to nothing.
            self.applied.partition.tree_mut().snapshot_abort();
        }
        if self.timeline.has_log() {
            if self.applied.snapshots.number != number
                || self.applied.snapshots.state != SnapshotState::Waiting
            {
                return;
            }
        } else {
            self.applied.snapshots.number = number;
            self.applied.snapshots.state = SnapshotState::Waiting;
            self.applied.snapshots.updates = 0;
            self.tell_growth();
        }
        self.applied.snapshots.is_there = true;
        self.applied.partition.tree_mut().snapshot_begin();
        if self.applied.placement.is_divided() {
            self.applied.snapshots.rests_on = vec![self.config.partition];
            self.applied
                .snapshots
                .rests_on
                .extend(encode_standing(&self.applied.stamp, self.timeline.applied_at().0));
        }
    }

    /// A slice has been taken to the disk.
    pub fn snapshot_taken(&mut self) {
        self.applied.snapshots.ahead = self.applied.snapshots.ahead.saturating_sub(1);
    }

    /// The snapshot with this number is durable, or could not be written (then the next one is taken when it is due
    /// again; the log still holds everything).
    pub fn snapshot_finished(&mut self, number: u64, durable: bool) {
        if self.applied.snapshots.state == SnapshotState::Idle || self.applied.snapshots.number != number {
            return;
        }
        if self.applied.snapshots.is_walking() {
            self.applied.partition.tree_mut().snapshot_abort();
        }
        self.applied.snapshots.state = SnapshotState::Idle;
        self.applied.snapshots.is_there = false;
        self.applied.snapshots.ahead = 0;
        if durable {
            let mark = core::mem::take(&mut self.applied.snapshots.mark);
            self.snapshot_for_sites(mark.position);
            self.timeline.offer_snapshot(mark);
            self.applied.snapshots.taken += 1;
        } else {
            self.applied.snapshots.failed += 1;
            self.timeline.snapshot_failed();
        }
    }

    /// The state is another one now: what was written of it is of no use.
    pub(crate) fn abort_snapshot(&mut self) {
        if self.applied.snapshots.is_walking() {
            self.applied.partition.tree_mut().snapshot_abort();
        }
        self.applied.snapshots.state = match self.applied.snapshots.state {
            SnapshotState::Begun => SnapshotState::Idle,
            SnapshotState::Waiting | SnapshotState::Based | SnapshotState::Walking => SnapshotState::Aborted,
            // What is written already is right as of then.
            other => other,
        };
    }

    /// Tells the first partition, which begins snapshots, how much this one has applied, and how large it is.
    pub(crate) fn tell_growth(&mut self) {
        if !self.timeline.has_log() {
            let (updates, bytes) =
                (self.applied.snapshots.updates, self.applied.partition.tree().data_bytes());
            self.applied.snapshots.told_updates = updates;
            self.say(FIRST, ShardMessage::Grown { updates, bytes });
        }
    }

    /// At the first partition: another one has applied so many updates since the last snapshot, and is so large.
    pub(crate) fn partition_has_grown(&mut self, partition: u8, updates: u64, bytes: u64) {
        if let Some(known) = self.applied.snapshots.others.get_mut(usize::from(partition)) {
            *known = (updates, bytes);
        }
        self.poll_snapshot_due();
    }

    /// Begins a snapshot when one is due. Many small updates of a large state are no reason: not
    /// before the log has grown by as much as the state has, so that snapshots at most double what
    /// is written, and reading the log at most doubles a start.
    pub(crate) fn poll_snapshot_due(&mut self) {
        let snapshots = &mut self.applied.snapshots;
        if !self.timeline.has_log() {
            if snapshots.updates - snapshots.told_updates > snapshots.due_updates / TOLD_TIMES {
                self.tell_growth();
            }
            return;
        }
        let bytes = self.applied.partition.tree().data_bytes();
        let (updates, bytes) =
            snapshots.others.iter().fold((snapshots.updates, bytes), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        if self.applied.partition.tree().is_joining() {
            return;
        }
        let many = updates >= snapshots.due_updates && snapshots.log_bytes >= bytes;
        if many || snapshots.log_bytes >= self.config.snapshot_log_bytes {
            snapshots.begin();
        }
    }
}
