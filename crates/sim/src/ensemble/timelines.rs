//! What the timelines of servers with several partitions have come to: all servers have the same state at each
//! position that two of them were seen at, and what follows from that about sessions and the list of servers.

use super::HostId;
use super::roster::{CONFIG, Roster};
use std::collections::{BTreeMap, BTreeSet};
use stoa_check::{Checked, wrong};
use stoa_tree::Tree;

/// How far a partition has come, and through what.
#[derive(Default)]
struct Course {
    digests: BTreeMap<u64, u64>,
    /// The newest position, and the sessions that there were at it.
    last: u64,
    alive: BTreeSet<i64>,
}

/// Those of all partitions, as far as servers were seen to apply them.
#[derive(Default)]
pub(crate) struct Timelines {
    all: BTreeMap<u8, Course>,
    /// A session lives on all partitions that it has something on, and its end is one operation over all of them. So
    /// it has ended when one of them has applied that; the others will, though they may not have come so far.
    ended: BTreeSet<i64>,
    roster: Option<(Roster, i64)>,
    reconfigs: u64,
}

impl Timelines {
    /// A server has come to a position of a partition.
    pub(super) fn reached(&mut self, server: HostId, partition: u8, position: u64, tree: &Tree) -> Checked {
        let course = self.all.entry(partition).or_default();
        let digest = tree.digest();
        if *course.digests.entry(position).or_insert(digest) != digest {
            return wrong(format!(
                "server {server} has another state behind position {position} of partition {partition} than others"
            ));
        }
        if position <= course.last {
            return Ok(());
        }
        let now: BTreeSet<i64> = tree.sessions().map(|session| session.id).collect();
        self.ended.extend(course.alive.difference(&now));
        (course.last, course.alive) = (position, now);
        if partition == 0 {
            self.look_at_roster(tree);
        }
        Ok(())
    }

    fn look_at_roster(&mut self, tree: &Tree) {
        let data = tree.get(CONFIG).and_then(|znode| znode.data());
        let roster = data.and_then(|data| Roster::read(std::str::from_utf8(data).ok()?));
        if roster.is_some() && roster != self.roster {
            self.reconfigs += u64::from(self.roster.is_some());
            self.roster = roster;
        }
    }

    pub(crate) fn is_closed(&self, session: i64) -> bool {
        self.ended.contains(&session)
    }

    /// The newest list of servers.
    pub(super) fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref().map(|(roster, _)| roster)
    }

    /// How often it was changed.
    pub(super) fn reconfigs(&self) -> u64 {
        self.reconfigs
    }

    /// How far a partition has come.
    pub(super) fn last(&self, partition: u8) -> u64 {
        self.all.get(&partition).map_or(0, |course| course.last)
    }
}
