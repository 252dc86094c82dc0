//! Snapshots: when one is due, and its slices.
//!
//! A snapshot is the state at one position. The tree is walked in slices between requests (a znode
//! about to change is written first), so no slice stops service for longer than it takes to copy
//! [`SLICE_BYTES`]. At most [`SLICES_AHEAD`] slices are with the driver at a time: a slow disk slows
//! the walk, never the memory.

use crate::planted::Bug;
use crate::server::Server;
use crate::state;
use alloc::vec::Vec;
use stoa_group::Mark;

/// About how much one slice holds.
const SLICE_BYTES: usize = 128 << 10;
/// Slices handed out and not taken to the disk yet.
const SLICES_AHEAD: usize = 4;

/// The log may grow by so much for each partition before an idle one that holds it has to take snapshots.
const LOG_HELD_BYTES: u64 = 16 << 20;

/// What to do for the snapshot under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotOutput {
    /// A snapshot begins.
    Begin {
        /// Timelines, and up to which record of the log of each it covers them.
        covers: Vec<(u32, u64)>,
        /// Where on the timeline its state stands.
        position: u64,
        /// zxid of the last update in it.
        zxid: i64,
    },
    /// The next bytes of it.
    Slice(Vec<u8>),
    /// It is of no use any more: drop it, then say so with [`Server::snapshot_finished`].
    Abort,
    /// It is complete: make it durable, then say so with [`Server::snapshot_finished`].
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Begun,
    Headed,
    Based,
    Walking,
    Aborted,
    /// The last slice has been handed out.
    Walked,
    Finishing,
}

pub(crate) struct Snapshots {
    state: State,
    /// Slices with the driver.
    ahead: usize,
    /// What the snapshot under way begins with, and its place on the timeline.
    head: Vec<u8>,
    /// What its state rests on, where there are several partitions.
    rests_on: Vec<u8>,
    mark: Mark,
    updates: u64,
    log_bytes: u64,
    due_updates: u64,
    taken: u64,
    failed: u64,
}

impl Snapshots {
    /// `jitter` keeps the servers of an ensemble from taking their snapshots together, as ZooKeeper
    /// does (between half the count and the whole of it).
    pub(crate) fn new(every_updates: u64, jitter: u8) -> Self {
        let every = every_updates.max(2);
        let due_updates = every / 2 + (every / 2) * u64::from(jitter) / 255;
        Self {
            state: State::Idle,
            ahead: 0,
            head: Vec::new(),
            rests_on: Vec::new(),
            mark: Mark::default(),
            updates: 0,
            log_bytes: 0,
            due_updates,
            taken: 0,
            failed: 0,
        }
    }

    pub(crate) fn applied(&mut self) {
        self.updates += 1;
    }

    pub(crate) fn logged(&mut self, bytes: usize) {
        self.log_bytes += bytes as u64;
    }

    /// Begins a snapshot, unless one is under way.
    fn begin(&mut self) {
        if self.state == State::Idle {
            self.state = State::Begun;
            self.updates = 0;
            self.log_bytes = 0;
        }
    }
}

impl Server {
    /// Asks for a snapshot now; one that is under way will do.
    pub fn request_snapshot(&mut self) {
        self.snapshots.begin();
    }

    /// Whether a snapshot is under way.
    #[must_use]
    pub fn is_snapshotting(&self) -> bool {
        self.snapshots.state != State::Idle
    }

    /// Snapshots taken and failed since the start.
    #[must_use]
    pub fn snapshot_counts(&self) -> (u64, u64) {
        (self.snapshots.taken, self.snapshots.failed)
    }

    /// The next piece of the snapshot under way, if there is room for it with the driver.
    pub fn poll_snapshot(&mut self) -> Option<SnapshotOutput> {
        match self.snapshots.state {
            State::Idle | State::Finishing => None,
            State::Begun if self.is_behind_its_mark() => None,
            State::Begun => {
                self.partition.tree.snapshot_begin();
                self.snapshots.state = State::Headed;
                let (head, mark, covered) = self.replica.begin_snapshot(self.planted.is(Bug::LearnerCounts));
                let one_more = u64::from(self.planted.is(Bug::SnapshotClaimsTooMuch));
                let position = mark.position;
                debug_assert!(
                    position == self.replica.applied.0 || self.planted.is(Bug::SnapshotBeforeParts),
                    "a snapshot of {:?} says that it is of {position}",
                    self.replica.applied
                );
                self.snapshots.head = head;
                self.snapshots.rests_on = match self.stamp.is_empty() {
                    true => Vec::new(),
                    false => state::encode(&self.stamp, self.fates.terms_up_to(position)),
                };
                self.snapshots.mark = mark;
                Some(SnapshotOutput::Begin {
                    covers: [(self.replica.timeline(), covered + one_more)].into(),
                    position,
                    zxid: self.partition.tree.last_zxid(),
                })
            }
            State::Headed => {
                let is_alone = self.snapshots.rests_on.is_empty();
                self.snapshots.state = if is_alone { State::Walking } else { State::Based };
                self.snapshots.ahead += 1;
                Some(SnapshotOutput::Slice(core::mem::take(&mut self.snapshots.head)))
            }
            State::Based => {
                self.snapshots.state = State::Walking;
                self.snapshots.ahead += 1;
                Some(SnapshotOutput::Slice(core::mem::take(&mut self.snapshots.rests_on)))
            }
            State::Aborted => {
                self.snapshots.state = State::Finishing;
                Some(SnapshotOutput::Abort)
            }
            State::Walking if self.snapshots.ahead < SLICES_AHEAD => {
                let mut slice = Vec::with_capacity(SLICE_BYTES + SLICE_BYTES / 8);
                let more = self.partition.tree.snapshot_slice(&mut slice, SLICE_BYTES);
                if !more {
                    self.snapshots.state = State::Walked;
                }
                self.snapshots.ahead += 1;
                Some(SnapshotOutput::Slice(slice))
            }
            State::Walking => None,
            State::Walked => {
                self.snapshots.state = State::Finishing;
                Some(SnapshotOutput::End)
            }
        }
    }

    /// A slice has been taken to the disk.
    pub fn snapshot_taken(&mut self) {
        self.snapshots.ahead = self.snapshots.ahead.saturating_sub(1);
    }

    /// The snapshot is durable, or could not be written (then the next one is taken when it is due
    /// again; the log still holds everything).
    pub fn snapshot_finished(&mut self, durable: bool) {
        if self.snapshots.state == State::Idle {
            return;
        }
        if matches!(self.snapshots.state, State::Headed | State::Based | State::Walking) {
            self.partition.tree.snapshot_abort();
        }
        self.snapshots.state = State::Idle;
        self.snapshots.ahead = 0;
        if durable {
            let mark = core::mem::take(&mut self.snapshots.mark);
            self.replica.group().offer_snapshot(mark);
            self.snapshots.taken += 1;
        } else {
            self.snapshots.failed += 1;
        }
    }

    /// The state is another one now: what was written of it is of no use.
    pub(crate) fn abort_snapshot(&mut self) {
        self.snapshots.state = match self.snapshots.state {
            State::Begun => State::Idle,
            State::Headed | State::Based | State::Walking => {
                self.partition.tree.snapshot_abort();
                State::Aborted
            }
            // What is written already is right as of then.
            other => other,
        };
    }

    /// The server's log cannot let go of what this timeline has in it without further snapshots, and all
    /// timelines together have stored so many bytes since the last one. One that has its share of that takes
    /// its next one by itself; an idle one must not let the log grow without end, nor write a large state
    /// again for every snapshot of the others: what all take because of this at most doubles what is written.
    pub fn log_is_held(&mut self, bytes: u64) {
        let share = bytes / u64::from(self.placement.partitions());
        if self.placement.partitions() > 1 && share >= self.partition.tree.data_bytes().max(LOG_HELD_BYTES) {
            self.snapshots.begin();
        }
    }

    /// Whether the group counts as applied what the state here does not have: entries wait for other partitions, or
    /// another server's state is about to take the place of this one.
    fn is_behind_its_mark(&self) -> bool {
        let is_behind = !self.committed.is_empty() || self.replica.is_taking_over();
        is_behind && !self.planted.is(Bug::SnapshotBeforeParts)
    }

    /// Begins a snapshot when one is due. Many small updates of a large state are no reason: not
    /// before the log has grown by as much as the state has, so that snapshots at most double what
    /// is written, and reading the log at most doubles a start.
    pub(crate) fn poll_snapshot_due(&mut self) {
        let snapshots = &mut self.snapshots;
        let many = snapshots.updates >= snapshots.due_updates
            && snapshots.log_bytes >= self.partition.tree.data_bytes();
        if many || snapshots.log_bytes >= self.config.snapshot_log_bytes {
            snapshots.begin();
        }
    }
}
