//! What is known of subtrees that move, and of the watches that go with them. How a move goes: `replica/moves.rs`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use stoa_front::LeftWatch;
use stoa_placement::MoveRefusal;
use stoa_timeline::EntryId;

/// What became of a move that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The subtree.
    pub path: String,
    /// Where it was to live.
    pub to: u8,
    /// Whether it does.
    pub result: Result<(), MoveRefusal>,
}

/// What a partition knows of moves.
#[derive(Default)]
pub(crate) struct Moves {
    /// Asked for, and under way.
    pub(crate) waiting: usize,
    /// The one that is under way, once all parts of it are prepared: where to.
    pub(crate) kept: Option<(String, u8)>,
    pub(crate) outcomes: VecDeque<Moved>,
    /// What this partition is about to take, by where: the fronts that have said whose watches come with it,
    /// and those.
    pub(crate) coming: BTreeMap<EntryId, (u64, Vec<(u8, LeftWatch)>)>,
    /// Who waits for watches on what is not given yet: where that will be, and where it is taken.
    pub(crate) followers: Vec<(EntryId, EntryId)>,
    /// What this process, or the state that it has taken over, began behind: what was given up to there left
    /// without watches.
    pub(crate) begun: u64,
}

impl Moves {
    /// For a state at this position.
    pub(crate) fn new(begun: u64) -> Self {
        Self { begun, ..Self::default() }
    }

    /// Whether there is something for [`Replica::poll_moved`].
    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }
}
