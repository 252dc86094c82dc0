//! Which partition a znode lives on.
//!
//! The unit is a subtree: a znode with everything below it. Every znode right below the root begins one, and
//! lives where the hash of its name says. The rule is a part of the protocol, because Stoa's own clients follow
//! it too: `stoa_wire::partition_of`.
//!
//! A subtree that was moved is an exception from that, with all below it that is none itself. Every
//! partition has the whole table of them in its replicated state, and an operation over all partitions
//! changes it: so a partition's own timeline says what lives where.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_tree::PROGRAMS;
use stoa_wire::{Table, partition_of, partition_of_top, path, without_number};

/// The first partition: the root, the sessions, the ensemble's configuration.
pub const FIRST: u8 = 0;

const SYSTEM: &str = "/zookeeper";
const QUOTA: &str = "/zookeeper/quota";

/// Subtrees that begin deeper than this are not moved by themselves: each request looks for its path in the
/// table as often as that has levels.
const DEPTH_MAX: usize = 8;

/// Where everything lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    partitions: u8,
    version: u64,
    exceptions: Option<Arc<Exceptions>>,
}

/// Subtrees that live elsewhere than the hash of their top says, by the path that they begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Exceptions {
    of: HashMap<Box<[u8]>, u8, FixedState>,
    /// Where those live that are below a path, as a bit for each partition.
    below: HashMap<Box<[u8]>, u64, FixedState>,
    /// How many names the longest path has.
    depth: usize,
}

impl Exceptions {
    /// Notes what is below what, when all are known.
    fn note_below(&mut self) {
        self.below.clear();
        for (path, partition) in &self.of {
            for (at, _) in path.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'/') {
                *self.below.entry(path[..at].into()).or_default() |= 1 << partition;
            }
        }
    }

    /// Where the subtree lives in which a path is, if that was moved.
    fn longest(&self, path: &[u8]) -> Option<u8> {
        let mut ends = [0; DEPTH_MAX];
        let mut count = 0;
        let mut from = 1;
        while count < self.depth && from < path.len() {
            let end = path[from..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| from + at);
            ends[count] = end;
            (count, from) = (count + 1, end + 1);
        }
        ends[..count].iter().rev().find_map(|end| self.of.get(&path[..*end]).copied())
    }
}

impl Placement {
    /// Among so many partitions, with nothing moved.
    #[must_use]
    pub fn new(partitions: u8) -> Self {
        Self { partitions: partitions.max(1), version: 0, exceptions: None }
    }

    /// Among so many partitions, with these exceptions, which have been changed so often.
    #[must_use]
    pub fn with<'a>(partitions: u8, version: u64, placed: impl IntoIterator<Item = (&'a str, u8)>) -> Self {
        let mut exceptions = Exceptions::default();
        for (path, partition) in placed.into_iter().filter(|(path, _)| depth(path) <= DEPTH_MAX) {
            exceptions.depth = exceptions.depth.max(depth(path));
            exceptions.of.insert(path.as_bytes().into(), partition.min(partitions.max(1) - 1));
        }
        exceptions.note_below();
        let exceptions = (!exceptions.of.is_empty()).then(|| Arc::new(exceptions));
        Self { version, exceptions, ..Self::new(partitions) }
    }

    /// How many partitions there are.
    #[must_use]
    #[inline]
    pub fn partitions(&self) -> u8 {
        self.partitions
    }

    /// How often something has been moved.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether there are several partitions.
    #[must_use]
    #[inline]
    pub fn is_divided(&self) -> bool {
        self.partitions > 1
    }

    /// The subtrees that live elsewhere than the hash of their top says, in no order.
    pub fn exceptions(&self) -> impl Iterator<Item = (&str, u8)> {
        let all = self.exceptions.iter().flat_map(|exceptions| &exceptions.of);
        all.filter_map(|(path, partition)| Some((core::str::from_utf8(path).ok()?, *partition)))
    }

    /// The first partition's zxid of the first update of all.
    pub fn first_zxid(&self) -> i64 {
        zxid_after(self.partitions, 0, FIRST)
    }

    /// Where the znode at a path lives, or would live. A path that is none is the first partition's to
    /// refuse.
    #[must_use]
    #[inline]
    pub fn of(&self, path: &str) -> u8 {
        self.of_bytes(path.as_bytes())
    }

    /// The same of a path that may not even be text.
    #[inline]
    pub fn of_bytes(&self, path: &[u8]) -> u8 {
        if let Some(exceptions) = &self.exceptions {
            let path = path.strip_prefix(QUOTA.as_bytes()).filter(|of| of.starts_with(b"/")).unwrap_or(path);
            if let Some(moved) = exceptions.longest(path) {
                return moved;
            }
        }
        partition_of(path, self.partitions)
    }

    /// Where a znode will live that is created with this path, which for a sequential one lacks the number:
    /// that has no part in it.
    #[must_use]
    pub fn of_created(&self, path: &str, is_sequential: bool) -> u8 {
        if !is_sequential || !self.is_divided() {
            return self.of(path);
        }
        match path.strip_prefix('/').filter(|name| !name.contains('/')) {
            Some(name) => partition_of_top(name.as_bytes(), self.partitions),
            None => self.of_parent(path),
        }
    }

    /// Where a znode's parent lives: who creates and deletes it.
    pub fn of_parent(&self, path: &str) -> u8 {
        self.of(parent_of(path))
    }

    /// Where a subtree would live if it had not been moved by itself.
    #[must_use]
    pub fn default_of(&self, path: &str) -> u8 {
        match path.strip_prefix('/') {
            Some(name) if !name.contains('/') => Self::new(self.partitions).of(path),
            _ => self.of_parent(path),
        }
    }

    /// What Stoa's own clients are told.
    pub fn table(&self) -> Table {
        let exceptions = self.exceptions().map(|(path, of)| (path.to_string(), of)).collect();
        Table { version: self.version, exceptions }
    }

    /// Whether a znode lives elsewhere than its parent.
    #[must_use]
    pub fn is_cut(&self, path: &str) -> bool {
        self.partitions > 1 && self.of(path) != self.of_parent(path)
    }

    /// Whether something below a path was moved by itself.
    #[must_use]
    pub fn is_split(&self, path: &str) -> bool {
        self.exceptions.as_ref().is_some_and(|it| it.below.contains_key(path.as_bytes()))
    }

    /// Whether parts of the tree below a path may live elsewhere than it does.
    pub fn is_spread(&self, path: &str) -> bool {
        self.partitions > 1 && self.moved_below(path) != 0
    }

    /// Whether the znode at a path, or something below it, may live on a partition.
    pub fn is_on(&self, path: &str, partition: u8) -> bool {
        self.all_of(path) & 1 << partition != 0
    }

    /// Where the znode at a path, and what is below it, may live: a bit for each partition.
    pub fn all_of(&self, path: &str) -> u64 {
        self.moved_below(path) | 1 << self.of(path)
    }

    /// Where the subtrees below a path live that were moved: a bit for each partition. Of the root and what
    /// the service keeps there are parts everywhere.
    fn moved_below(&self, path: &str) -> u64 {
        let path = path.strip_prefix(QUOTA).filter(|of| of.starts_with('/')).unwrap_or(path);
        if matches!(path, "/" | SYSTEM | QUOTA) {
            return u64::MAX >> (64 - u32::from(self.partitions));
        }
        let exceptions = self.exceptions.as_ref();
        exceptions.and_then(|it| it.below.get(path.as_bytes())).copied().unwrap_or(0)
    }

    /// Why a subtree cannot be moved, if so, whatever is in it.
    pub fn check_move(&self, path: &str, to: u8) -> Result<(), MoveRefusal> {
        let name = path.rsplit('/').next().unwrap_or_default();
        if !path::is_valid(path) || to >= self.partitions {
            return Err(MoveRefusal::NoSuchPlace);
        }
        if path == "/" || [SYSTEM, PROGRAMS].iter().any(|top| path == *top || is_below(path, top)) {
            return Err(MoveRefusal::System);
        }
        if without_number(name.as_bytes()) != name.as_bytes() {
            return Err(MoveRefusal::Sequential);
        }
        if depth(path) > DEPTH_MAX {
            return Err(MoveRefusal::TooDeep);
        }
        if self.of(path) == to { Err(MoveRefusal::IsThere) } else { Ok(()) }
    }

    /// How the table changes when a subtree moves: what then says no more than the rest does is taken out.
    pub fn changes(&self, path: &str, to: u8) -> Vec<(String, Option<u8>)> {
        let mut after = self.clone();
        let mut changes = Vec::new();
        let is_needed = after.default_of(path) != to;
        after.put(path, is_needed.then_some(to), &mut changes);
        let mut below: Vec<_> = self.exceptions().filter(|(below, _)| is_below(below, path)).collect();
        below.sort_unstable();
        for (below, of) in below {
            if after.default_of(below) == of {
                after.put(below, None, &mut changes);
            }
        }
        changes
    }

    /// The same after a move.
    #[cfg(test)]
    pub(crate) fn place(&mut self, path: &str, to: u8) {
        self.version += 1;
        for (path, to) in self.changes(path, to) {
            self.put(&path, to, &mut Vec::new());
        }
        Arc::make_mut(self.exceptions.get_or_insert_default()).note_below();
    }

    fn put(&mut self, path: &str, to: Option<u8>, changes: &mut Vec<(String, Option<u8>)>) {
        let exceptions = Arc::make_mut(self.exceptions.get_or_insert_default());
        let before = match to {
            Some(to) => {
                exceptions.depth = exceptions.depth.max(depth(path));
                exceptions.of.insert(path.as_bytes().into(), to)
            }
            None => exceptions.of.remove(path.as_bytes()),
        };
        if before != to {
            changes.push((path.to_string(), to));
        }
    }
}

/// Why a subtree is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveRefusal {
    /// The path is none, or there is no such partition.
    NoSuchPlace,
    /// It belongs to the service itself, or is the root.
    System,
    /// It looks like a sequential znode: where those live follows from their names without the numbers.
    Sequential,
    /// It begins too deep in the tree.
    TooDeep,
    /// It lives there.
    IsThere,
    /// There is no such znode, or it has been moved meanwhile.
    NoNode,
    /// It is larger than what one entry of the timeline should hold.
    TooLarge,
    /// A quota of a znode above it counts what is in it.
    Quota,
    /// The table is full.
    TableFull,
    /// This server does not lead (any more), or has no room.
    NotNow,
}

impl fmt::Display for MoveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchPlace => "there is no such path or no such partition",
            Self::System => "the root, /zookeeper and /em stay where they are",
            Self::Sequential => "it looks like a sequential znode, and these stay with their parents",
            Self::TooDeep => "it begins too deep in the tree",
            Self::IsThere => "it lives there",
            Self::NoNode => "there is no such znode",
            Self::TooLarge => "it is too large to be moved at once: move what is below it",
            Self::Quota => "a quota above it counts what is in it",
            Self::TableFull => "too many subtrees have been moved",
            Self::NotNow => "this server does not lead now, or has no room",
        })
    }
}

impl core::error::Error for MoveRefusal {}

/// The next zxid of a partition that is larger than another one: the low bits are the partition's number.
pub fn zxid_after(partitions: u8, before: i64, partition: u8) -> i64 {
    let bits = u8::BITS - (partitions - 1).leading_zeros();
    (((before >> bits) + 1) << bits) | i64::from(partition)
}

/// The next zxid of a partition of a site that is larger than another one. So that it is no other one's, whatever
/// number of partitions that has, its low bits are the site (five) and the partition (six).
#[must_use]
pub fn site_zxid_after(before: i64, site: u8, partition: u8) -> i64 {
    const SITE_BITS: u32 = 5;
    const BITS: u32 = SITE_BITS + 6;
    (((before >> BITS) + 1) << BITS) | i64::from(partition) << SITE_BITS | i64::from(site)
}

/// How many names a path has.
fn depth(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

fn is_below(path: &str, above: &str) -> bool {
    above == "/" && path != "/" || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn parent_of(path: &str) -> &str {
    match path::last_slash(path) {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// Where a client has asked last: it mostly stays there for a while, and to compare names is cheaper than to
/// find out anew where one lives.
#[derive(Debug)]
pub struct Recent {
    /// The znode right below the root, or the root.
    top: [u8; Self::TOP_BYTES_MAX],
    len: u8,
    partition: u8,
}

impl Default for Recent {
    fn default() -> Self {
        Self { top: [b'/'; Self::TOP_BYTES_MAX], len: 1, partition: FIRST }
    }
}

impl Recent {
    /// A longer one is not remembered.
    const TOP_BYTES_MAX: usize = 30;

    /// [`Placement::of_bytes`], if the path is in the subtree that was asked last.
    #[inline]
    pub fn knows(&self, placement: &Placement, path: &[u8]) -> Option<u8> {
        let top = self.top.get(..usize::from(self.len)).unwrap_or_default();
        // What is remembered is where the hash says: so it is as long as nothing says otherwise.
        let is_in = matches!(path.strip_prefix(top), Some([] | [b'/', ..]));
        (is_in && placement.exceptions.is_none()).then_some(self.partition)
    }

    /// [`Placement::of_bytes`].
    #[inline]
    pub fn of(&mut self, placement: &Placement, path: &[u8]) -> u8 {
        self.knows(placement, path).unwrap_or_else(|| self.look_up(placement, path))
    }

    fn look_up(&mut self, placement: &Placement, path: &[u8]) -> u8 {
        let partition = placement.of_bytes(path);
        let top = path.iter().skip(1).position(|byte| *byte == b'/').map_or(path, |at| &path[..=at]);
        // What stands below `/zookeeper` does not all live where it does, and who asks for what is below `/em` may
        // mean an answer that is elsewhere.
        let is_whole = top.starts_with(b"/") && [SYSTEM, PROGRAMS].iter().all(|of| top != of.as_bytes());
        // What is remembered is where the hash says.
        let is_whole = is_whole && placement.exceptions.is_none();
        if let Some(room) = self.top.get_mut(..top.len()).filter(|_| is_whole) {
            room.copy_from_slice(top);
            (self.len, self.partition) = (top.len() as u8, partition);
        }
        partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn a_subtree_lives_in_one_place_and_tops_are_spread() {
        let placement = Placement::new(4);
        let mut counts = [0; 4];
        for number in 0..4000 {
            let top = format!("/node-{number}");
            let partition = placement.of(&top);
            counts[usize::from(partition)] += 1;
            assert_eq!(placement.of(&format!("{top}/a/b")), partition);
            assert_eq!(placement.of(&format!("/zookeeper/quota{top}/zookeeper_limits")), partition);
            assert!(!placement.is_cut(&format!("{top}/a")));
            assert_eq!(placement.is_cut(&top), partition != FIRST);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        for path in ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "", "no path", "//x"] {
            assert_eq!(placement.of(path), FIRST, "{path}");
        }
    }

    #[test]
    fn where_things_live_never_changes() {
        let of = |path| Placement::new(8).of(path);
        assert_eq!([of("/brokers"), of("/clickhouse"), of("/hbase"), of("/solr")], [7, 5, 0, 2]);
    }

    #[test]
    fn where_a_sequential_znode_will_live_is_known_before_its_number() {
        let placement = Placement::new(8);
        for prefix in ["/", "/lock-", "/a", "/job-123456789", "/x0000000001", "/ü"] {
            for number in ["0000000000", "0000000017", "2147483647", "-000000005"] {
                assert_eq!(placement.of(&format!("{prefix}{number}")), placement.of_created(prefix, true));
            }
        }
        assert_eq!(placement.of_created("/a/b", true), placement.of("/a"));
    }

    #[test]
    fn who_remembers_where_it_asked_last_asks_no_other_partition() {
        let names = [
            "a",
            "ab",
            "a-0000000001",
            "zookeeper",
            "zookeeper/quota",
            "",
            "ü",
            "0123456789012345678901234567890123456789",
        ];
        let mut paths: Vec<_> =
            names.iter().flat_map(|top| [format!("/{top}"), format!("/{top}/b")]).collect();
        paths.extend(["", "no path", "no/path", "//a", "/zookeeper/quota/ab/c"].map(String::from));
        for partitions in [2, 3, 8] {
            let (placement, mut recent) = (Placement::new(partitions), Recent::default());
            for (one, other) in paths.iter().flat_map(|one| paths.iter().map(move |other| (one, other))) {
                for path in [one, one, other] {
                    assert_eq!(recent.of(&placement, path.as_bytes()), placement.of(path), "{path}");
                }
            }
            // Whoever was asked last says why a program has failed.
            assert_eq!(recent.of(&placement, b"/em/counter"), placement.of("/em"));
            assert_eq!(recent.knows(&placement, b"/em/error"), None);
        }
    }

    #[test]
    fn one_partition_has_everything() {
        assert_eq!(Placement::new(1).of("/anything"), FIRST);
        assert!(!Placement::new(1).is_cut("/anything"));
    }
}
