//! What is kept of the snapshot under way, and when the next one is due. How it is taken: `replica/snapshot.rs`.

use alloc::vec;
use alloc::vec::Vec;
use stoa_group::Mark;

/// What to do for a snapshot. Each piece is of the one with its number; what is of another one than that under way is
/// of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotOutput {
    /// From the first partition: a snapshot begins.
    Begin {
        /// Its number.
        number: u64,
        /// The log's timeline, and up to which record it covers that.
        covers: Vec<(u32, u64)>,
        /// Where in the log its state stands.
        position: u64,
        /// zxid of the last update of the first partition in it.
        zxid: i64,
        /// So many partitions have pieces of it, and say when they have no more.
        partitions: u8,
        /// Its first bytes. Other partitions have pieces of it as soon as this is handed out.
        head: Vec<u8>,
    },
    /// The next bytes of it.
    Slice {
        /// Its number.
        number: u64,
        /// They.
        bytes: Vec<u8>,
    },
    /// It is of no use any more: drop it, then say so with [`Replica::snapshot_finished`] to every partition.
    Abort {
        /// Its number.
        number: u64,
    },
    /// This partition has no more. When none has, make it durable, then say so with [`Replica::snapshot_finished`] to
    /// every partition.
    End {
        /// Its number.
        number: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotState {
    Idle,
    /// One is wanted.
    Begun,
    /// What comes next follows when the state has come to where it is taken.
    Waiting,
    /// What the state rests on comes next.
    Based,
    Walking,
    Aborted,
    /// The last slice has been handed out.
    Walked,
    Finishing,
}

pub(crate) struct Snapshots {
    pub(crate) state: SnapshotState,
    /// Of the one under way, or of the last one.
    pub(crate) number: u64,
    /// Slices with the driver.
    pub(crate) ahead: usize,
    /// The state has come to where the one under way is taken.
    pub(crate) is_there: bool,
    /// What its state rests on, where there are several partitions.
    pub(crate) rests_on: Vec<u8>,
    pub(crate) mark: Mark,
    pub(crate) updates: u64,
    /// Of those, the first partition was told of so many.
    pub(crate) told_updates: u64,
    /// At the first partition: the same of the others, and how large their states are.
    pub(crate) others: Vec<(u64, u64)>,
    pub(crate) log_bytes: u64,
    pub(crate) due_updates: u64,
    pub(crate) taken: u64,
    pub(crate) failed: u64,
}

impl Snapshots {
    /// `jitter` keeps the servers of an ensemble from taking their snapshots together, as ZooKeeper
    /// does (between half the count and the whole of it).
    pub(crate) fn new(every_updates: u64, jitter: u8, partitions: u8) -> Self {
        let every = every_updates.max(2);
        let due_updates = every / 2 + (every / 2) * u64::from(jitter) / 255;
        Self {
            state: SnapshotState::Idle,
            number: 0,
            ahead: 0,
            is_there: false,
            rests_on: Vec::new(),
            mark: Mark::default(),
            updates: 0,
            told_updates: 0,
            others: vec![(0, 0); partitions.into()],
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
    pub(crate) fn begin(&mut self) {
        if self.state == SnapshotState::Idle {
            self.state = SnapshotState::Begun;
            self.updates = 0;
            self.others.iter_mut().for_each(|(updates, _)| *updates = 0);
            self.log_bytes = 0;
        }
    }

    pub(crate) fn is_walking(&self) -> bool {
        self.is_there
            && matches!(self.state, SnapshotState::Waiting | SnapshotState::Based | SnapshotState::Walking)
    }

    pub(crate) fn slice(&mut self, bytes: Vec<u8>) -> SnapshotOutput {
        self.ahead += 1;
        SnapshotOutput::Slice { number: self.number, bytes }
    }
}
