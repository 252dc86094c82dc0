//! What the load controller knows and has decided. What it does: `replica/controller.rs`.

use crate::peer::Reads;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_front::ConnectionId;
use stoa_placement::{Balancer, HINTS_PATH, Hints, LoadReport, Move, MoveRefusal};

/// A move that was done or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentMove {
    /// The subtree.
    pub path: String,
    /// Where it went, or should have gone.
    pub to: u8,
    /// Why it did not.
    pub refused: Option<MoveRefusal>,
    /// When, milliseconds since the epoch.
    pub at_ms: i64,
}

/// Why a move that an operator asks for is not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveError {
    /// This server does not lead, but that one, if it is known who does.
    NotLeader(Option<u8>),
    /// There are not so many partitions.
    NoSuchPartition,
    /// The root and what is below `/zookeeper` are not moved, nor is what is no path.
    NotMovable,
    /// A hint says where it lives.
    Pinned,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader(None) => f.write_str("no leader is known"),
            Self::NotLeader(Some(leader)) => write!(f, "server {leader} leads: ask it"),
            Self::NoSuchPartition => f.write_str("there is no such partition"),
            Self::NotMovable => f.write_str("the path is wrong, or is one that does not move"),
            Self::Pinned => write!(f, "{HINTS_PATH} says that it lives elsewhere, or stays"),
        }
    }
}

impl core::error::Error for MoveError {}

/// What the controller knows, and has done.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    pub(crate) balancer: Balancer,
    /// The last reports, by partition; none as long as this server does not lead.
    pub(crate) loads: Vec<LoadReport>,
    /// At whoever leads a partition: what the clients of other servers read of it.
    pub(crate) followers: BTreeMap<u8, Reads>,
    /// At the others: when it was told last.
    pub(crate) told_reads_us: u64,
    /// What the clients of readers right below this server read, or those of the busiest one below each.
    pub(crate) readers: BTreeMap<ConnectionId, Reads>,
    /// Those of the window that has just ended, as they come.
    pub(crate) arriving: Vec<(u8, LoadReport)>,
    /// As they were read last; `None` when they may have changed.
    pub(crate) hints: Option<Hints>,
    /// Moves that were asked for, and since when.
    pub(crate) under_way: Vec<(Move, u64)>,
    /// When to look at things next.
    pub(crate) look_us: u64,
    /// Something has changed that somebody should be woken for.
    pub(crate) is_due: bool,
    pub(crate) recent: VecDeque<RecentMove>,
    pub(crate) moved: u64,
    pub(crate) refused: u64,
}

impl Controller {
    /// There is something to look at from then on, and somebody is to be woken for it.
    pub(crate) fn due_at(&mut self, at_us: u64) {
        self.look_us = if self.is_due { self.look_us.min(at_us) } else { at_us };
        self.is_due = true;
    }
}
