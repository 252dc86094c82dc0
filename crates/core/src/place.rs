//! Where something stands on the timeline of a partition.

/// Where a leader has put an entry, or will put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The partition.
    pub partition: u8,
    /// The leader's term.
    pub term: u64,
    /// The position.
    pub position: u64,
}
