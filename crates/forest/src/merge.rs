//! Acknowledgements on their way to the leader.
//!
//! An acknowledgement says: in this term, so before it voted in any later one, this server had the leader's log on this
//! disk up to a position. That stays true as long as it keeps the disk. So acknowledgements may come late, twice, out
//! of order, or lowered, and those of many may come together: what the leader knows is never more than what is. Whoever
//! passes them on may drop, lower and unite them; it must not invent any. So a [`Merge`] has the largest position of
//! each server and disk, and waits for nobody. What is said of rounds is of that kind, too: that a process heard of one
//! while it was in the leader's term stays true, whatever it votes for later.
//!
//! **There is no rule here by which something is committed**, and there must be none. The consensus engine counts
//! servers: a position is committed when more than half of the voters have it. The paper (section III B) has the root
//! of each tree report the *whole size* of its group when more than half of the group has accepted, and commits when
//! the sizes that were reported are more than half of all. That is another quorum system, and two of its quorums need
//! not meet one of Raft's: of nine servers in the groups 1-2-3, 4-5-6 and 7-8-9, let 1, 2, 4 and 5 accept. Two groups
//! report 3 + 3 of 9: committed, with four copies. Raft then lets 3, 6, 7, 8 and 9 elect a leader, and none of them has
//! it. It would be sound if elections counted by group as well and each change of the groups were agreed on; the shape
//! of the forest is agreed on by nobody. Counting by server, the groups drop out of the sum, and servers may disagree
//! about the shape as they like.

use crate::frame::{Acknowledge, Acknowledgement};
use alloc::collections::BTreeMap;

/// The most pairs of a server and a disk that wait to be sent; what is more is dropped, and said again later.
const ITEMS_MAX: usize = 1024;

/// What has come in of one term and was not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// The largest position and the newest round.
    largest: BTreeMap<(u8, u64), (u64, u64)>,
}

impl Merge {
    /// Takes one in.
    pub(crate) fn add(&mut self, item: Acknowledgement) {
        let key = (item.server, item.disk);
        if let Some((position, round)) = self.largest.get_mut(&key) {
            (*position, *round) = (item.position.max(*position), item.round.max(*round));
        } else if self.largest.len() < ITEMS_MAX {
            self.largest.insert(key, (item.position, item.round));
        }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.largest.is_empty()
    }

    /// All of it, to be sent; `None` when there is nothing.
    pub(crate) fn take(&mut self, term: u64) -> Option<Acknowledge> {
        let largest = core::mem::take(&mut self.largest);
        let item = |((server, disk), (position, round))| Acknowledgement { server, disk, position, round };
        (!largest.is_empty()).then(|| Acknowledge { term, items: largest.into_iter().map(item).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(server: u8, disk: u64, position: u64) -> Acknowledgement {
        Acknowledgement { server, disk, position, round: 0 }
    }

    #[test]
    fn the_largest_position_of_each_disk_is_passed_on() {
        let mut merge = Merge::default();
        for item in [item(2, 7, 5), item(1, 1, 9), item(2, 7, 4), item(2, 8, 3), item(1, 1, 10)] {
            merge.add(item);
        }
        let items = vec![item(1, 1, 10), item(2, 7, 5), item(2, 8, 3)];
        assert_eq!(merge.take(4), Some(Acknowledge { term: 4, items }));
        assert_eq!(merge.take(4), None);
    }

    #[test]
    fn positions_and_rounds_do_not_have_to_come_together() {
        let mut merge = Merge::default();
        merge.add(Acknowledgement { round: 4, ..item(2, 7, 5) });
        merge.add(Acknowledgement { round: 3, ..item(2, 7, 6) });
        let both = Acknowledgement { round: 4, ..item(2, 7, 6) };
        assert_eq!(merge.take(4).unwrap().items, [both]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut merge = Merge::default();
        for disk in 0..5000 {
            merge.add(item(1, disk, 1));
        }
        assert_eq!(merge.take(1).unwrap().items.len(), ITEMS_MAX);
    }

    /// Why nothing is committed by the size of groups.
    #[test]
    fn sizes_of_groups_commit_what_an_election_loses() {
        let groups = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];
        let accepted = [1, 2, 4, 5];
        let has = |server: &&i32| accepted.contains(*server);
        // The paper's rule: groups of which more than half has accepted count whole.
        let reported = groups.iter().filter(|group| group.iter().filter(has).count() * 2 > group.len());
        let sizes: usize = reported.map(|group| group.len()).sum();
        assert!(sizes * 2 > 9, "committed by the paper's rule");
        // Raft's: not committed, and rightly so.
        assert!(groups.iter().flatten().filter(has).count() * 2 <= 9);
        // As the others are enough to elect one of them.
        let electors: Vec<&i32> = groups.iter().flatten().filter(|server| !has(server)).collect();
        assert!(electors.len() * 2 > 9 && !electors.iter().any(has), "nobody who votes has it");
    }
}
