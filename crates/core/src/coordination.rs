//! What is kept of operations that concern several partitions, and what their coordinator and participants say to each
//! other. How they go: `replica/coordination.rs`.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use participant::Participation;
use plan::Plan;
pub use plan::{Step, StepKind};
use stoa_partition::Now;
use stoa_timeline::{EntryId, Origin};
use stoa_tree::{LackedTokens, PartResult};
use stoa_wire::{ErrorCode, Timestamp};

pub(crate) mod participant;

pub(crate) mod plan;

/// A request that was taken and waits for its turn; what a server decides by itself has no origin.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) origin: Option<Origin>,
    pub(crate) asked: Bytes,
}

/// What a partition says when it is quiesced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quiesced {
    /// Where its next entry will be.
    pub place: EntryId,
    /// zxid of the last update that it has prepared, or knows of.
    pub zxid: i64,
    /// What it rests on.
    pub rests_on: Timestamp,
    /// Which tokens of other sites the operation lacks there.
    pub lacked: LackedTokens,
}

/// What a partition has to say of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// What it comes to, or why not.
    pub result: Result<PartResult, ErrorCode>,
    /// Ephemerals of a session that is closed, whose parents live elsewhere.
    pub at_cuts: Vec<String>,
}

/// The end of an operation, for a partition that is quiesced for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Where the parts will be; none when it was undone.
    pub places: Vec<EntryId>,
    /// What all of them rest on.
    pub rests_on: Timestamp,
    /// Whether the partition stays quiesced until its part is applied.
    pub holds: bool,
    /// The session that it is about, and where the first partition's timeline says what becomes of it.
    pub session: Option<(i64, u64)>,
    /// What stands behind the part: items of streams between sites.
    pub behind: Bytes,
}

impl Decision {
    pub(crate) fn undone() -> Self {
        Self {
            places: Vec::new(),
            rests_on: Timestamp::default(),
            holds: false,
            session: None,
            behind: Bytes::new(),
        }
    }
}

/// Operations that wait for their turn, in the order in which they were asked for.
#[derive(Default)]
pub(crate) struct Operations {
    waiting: VecDeque<Pending>,
    /// How many there have been.
    count: u64,
}

impl Operations {
    pub(crate) fn push(&mut self, pending: Pending) {
        self.count += 1;
        self.waiting.push_back(pending);
    }

    pub(crate) fn next(&self) -> Option<&Pending> {
        self.waiting.front()
    }

    /// The next one has come to its end.
    pub(crate) fn pop(&mut self) -> Option<Pending> {
        self.waiting.pop_front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.waiting.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many there have been: [`Self::are_done`] tells later whether any of those is left.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether of the first ones, so many, each has come to its end.
    pub(crate) fn are_done(&self, first: u64) -> bool {
        self.count - self.waiting.len() as u64 >= first
    }
}

/// What a thread knows of such operations.
#[derive(Default)]
pub(crate) struct Coordination {
    pub(crate) next: u64,
    pub(crate) active: Option<Active>,
    /// What the site itself has to do next, before any client's request.
    pub(crate) operations: Operations,
    pub(crate) participation: Option<Participation>,
    /// Coordinators that wait until this partition can quiesce for them.
    pub(crate) waiting: VecDeque<Waiting>,
}

/// A coordinator that wants a partition to quiesce.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) coordinator: u8,
    pub(crate) op: u64,
    /// Nothing may be prepared and not applied.
    pub(crate) is_quiet: bool,
    /// What is asked, where tokens of other sites may be missing for it.
    pub(crate) asked: Option<Bytes>,
}

/// At the coordinator: the operation under way.
pub(crate) struct Active {
    pub(crate) id: u64,
    pub(crate) origin: Option<Origin>,
    pub(crate) asked: Bytes,
    /// What the client had seen.
    pub(crate) seen: Timestamp,
    pub(crate) plan: Plan,
    pub(crate) standing: Vec<Quiesced>,
    /// Whether it is of [`Coordination::operations`].
    pub(crate) is_of_site: bool,
    /// The step under way, and what those before it came to.
    pub(crate) step: usize,
    pub(crate) results: Vec<PartResult>,
    pub(crate) zxid: i64,
    pub(crate) now: Now,
}

impl Coordination {
    /// Whether a part is being prepared.
    pub(crate) fn has_open_part(&self) -> bool {
        self.participation.as_ref().is_some_and(Participation::has_open_part)
    }

    /// Whether an operation is under way that this partition coordinates.
    pub(crate) fn is_coordinating(&self) -> bool {
        self.active.is_some()
    }

    /// Whether this partition is quiesced, or is about to, as soon as all that is prepared is applied.
    pub(crate) fn is_quiesced(&self) -> bool {
        self.participation.is_some() || self.waiting.front().is_some_and(|next| next.is_quiet)
    }
}
