//! Where subtrees live that are not where their names say, and what was done about the load.

/// As the first partition knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balance {
    /// Whether subtrees are moved for the sake of the load.
    pub is_on: bool,
    /// Grows with each change of the table.
    pub version: u64,
    /// Subtrees and the partitions that they live on.
    pub exceptions: Vec<(String, u64)>,
    /// What the operator has said, line by line.
    pub hints: Vec<String>,
    /// At the leader: what the busiest partition has to do, over the mean; 0 when there is nothing to do.
    pub imbalance: f64,
    /// The last moves, oldest first; at the leader.
    pub moves: Vec<Moved>,
    /// Where the path lives that was asked about.
    pub place: Option<u64>,
}

/// A move that was done or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The subtree.
    pub path: String,
    /// The partition.
    pub to: u64,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
    /// When, milliseconds since the epoch.
    pub at_ms: i64,
}

#[cfg(test)]
impl Balance {
    /// Of a server that has moved this many subtrees.
    pub(crate) fn example(path: Option<&str>, moves: u64) -> Self {
        let moved = Moved { path: "/hot".to_owned(), to: 2, refused: None, at_ms: 1_700_000_000_000 };
        Self {
            is_on: true,
            version: 5,
            exceptions: vec![("/hot".to_owned(), 2), ("/x/y".to_owned(), 1)],
            hints: vec!["pin /x/y 1".to_owned()],
            imbalance: 1.24,
            moves: if moves > 0 { vec![moved] } else { Vec::new() },
            place: path.map(|path| if path == "/hot" { 2 } else { 0 }),
        }
    }
}
