//! What moves together because it has moved together.
//!
//! Who takes a lock uses what the lock protects. When two tokens have moved to one site within a second, they are put down
//! as a group; who has moved with others of it three times more is taken along by the one that moves first, for one round
//! trip instead of one each. Who is taken along for nothing has to earn that again: in the long run only those are
//! taken along that are used four times out of five.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::Site;

/// Most groups, and most members of one.
const GROUPS_MAX: usize = 256;
const MEMBERS_MAX: usize = 8;
/// Longer paths are in no group: what is remembered is bounded.
const PATH_MAX: usize = 128;
/// So many moves to a site are looked back at, and for so long.
const RECENT_MAX: usize = 8;
const RECENT_MS: u64 = 1000;
/// Who has moved with others so often is taken along.
const TRUSTED: i8 = 3;
const TRUST_MAX: i8 = 4;
const TRUST_MIN: i8 = -100;
/// What it costs to have been taken along for nothing.
const MISSED: i8 = 4;

#[derive(Debug)]
struct Member {
    path: String,
    trust: i8,
    /// It was taken along, and nobody knows yet what for.
    is_along: bool,
}

/// A token that has moved, to whom and when.
#[derive(Debug)]
struct Recent {
    path: String,
    site: Site,
    at_ms: u64,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Vec<Member>>,
    /// In which group each path is.
    index: BTreeMap<String, usize>,
    /// The last moves of all sites, the oldest first.
    recent: VecDeque<Recent>,
    /// The group that is forgotten next.
    oldest: usize,
}

impl Groups {
    /// The token of a subtree moves to a site: says which others go with it.
    pub(crate) fn moved(&mut self, path: &str, site: Site, now_ms: u64) -> Vec<String> {
        if path.len() > PATH_MAX {
            return Vec::new();
        }
        let mut along = Vec::new();
        if let Some(group) = self.index.get(path) {
            for member in self.groups[*group].iter_mut().filter(|member| member.path != path) {
                if member.trust >= TRUSTED {
                    member.is_along = true;
                    along.push(member.path.clone());
                }
            }
        }
        self.recent.retain(|it| now_ms.saturating_sub(it.at_ms) <= RECENT_MS);
        let before: Vec<String> = self
            .recent
            .iter()
            .filter(|it| it.site == site && it.path != path)
            .map(|it| it.path.clone())
            .collect();
        before.iter().for_each(|other| self.pair(path, other));
        self.recent.retain(|it| it.path != path);
        if before.len() >= RECENT_MAX
            && let Some(first) = self.recent.iter().position(|it| it.site == site)
        {
            self.recent.remove(first);
        }
        self.recent.push_back(Recent { path: path.to_owned(), site, at_ms: now_ms });
        along
    }

    /// Whether nothing is in any group.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What became of a token at a site: whether it was used there before another one wanted it.
    pub(crate) fn settled(&mut self, path: &str, is_used: bool) {
        let Some(&group) = self.index.get(path) else { return };
        let members = &mut self.groups[group];
        let Some(member) = members.iter_mut().find(|member| member.path == path && member.is_along) else {
            return;
        };
        member.is_along = false;
        let trust = if is_used { member.trust + 1 } else { member.trust - MISSED };
        member.trust = trust.clamp(TRUST_MIN, TRUST_MAX);
    }

    /// Two have moved to one site shortly after one another.
    fn pair(&mut self, one: &str, other: &str) {
        match (self.index.get(one).copied(), self.index.get(other).copied()) {
            (Some(group), Some(same)) if group == same => {
                let both = |member: &&mut Member| member.path == one || member.path == other;
                self.groups[group]
                    .iter_mut()
                    .filter(both)
                    .for_each(|it| it.trust = (it.trust + 1).min(TRUST_MAX));
            }
            (Some(_), Some(_)) => {}
            (Some(group), None) => self.join(group, other),
            (None, Some(group)) => self.join(group, one),
            (None, None) => {
                let group = self.room();
                self.join(group, one);
                self.join(group, other);
            }
        }
    }

    fn join(&mut self, group: usize, path: &str) {
        if self.groups[group].len() < MEMBERS_MAX {
            self.groups[group].push(Member { path: path.to_owned(), trust: 0, is_along: false });
            self.index.insert(path.to_owned(), group);
        }
    }

    /// A group without members: a new one, or that which is as old as none.
    fn room(&mut self) -> usize {
        if self.groups.len() < GROUPS_MAX {
            self.groups.push(Vec::new());
            return self.groups.len() - 1;
        }
        let group = self.oldest;
        self.oldest = (group + 1) % GROUPS_MAX;
        for member in core::mem::take(&mut self.groups[group]) {
            self.index.remove(&member.path);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One turn of a writer: what it moves one after the other.
    fn turn(groups: &mut Groups, site: u8, at_ms: u64) -> Vec<Vec<String>> {
        let along = |(index, path)| groups.moved(path, Site(site), at_ms + 100 * index as u64);
        ["/lock", "/meta", "/log"].into_iter().enumerate().map(along).collect()
    }

    #[test]
    fn what_has_moved_together_moves_as_one() {
        let mut groups = Groups::default();
        assert_eq!(turn(&mut groups, 1, 0), [[""; 0]; 3]);
        assert_eq!(groups.moved("/lock", Site(2), 10_000), [""; 0]);
        (2..5).for_each(|round| drop(turn(&mut groups, 1, round * 10_000)));
        assert_eq!(groups.moved("/lock", Site(2), 90_000), ["/meta", "/log"]);
        assert_eq!(groups.moved("/other", Site(2), 90_100), [""; 0]);
    }

    #[test]
    fn what_is_taken_along_for_nothing_is_left_out() {
        let mut groups = Groups::default();
        (0..10).for_each(|round| drop(turn(&mut groups, 1, round * 10_000)));
        for left in [2, 1, 1] {
            assert_eq!(groups.moved("/lock", Site(2), 1_000_000).len(), left);
            groups.settled("/log", false);
            groups.settled("/meta", true);
        }
        // Nobody is blamed who was not taken along.
        groups.settled("/lock", false);
        assert!(groups.index.contains_key("/lock") && !groups.index.contains_key("/nothing"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut groups = Groups::default();
        for round in 0..20_000_u64 {
            groups.moved(&format!("/{}", round % 7001), Site((round % 32) as u8), round * 20);
            groups.moved(&"/long".repeat(100), Site(1), round);
        }
        assert!(groups.groups.len() <= GROUPS_MAX && groups.recent.len() <= RECENT_MAX * 32 + 32);
        assert!(groups.groups.iter().all(|members| members.len() <= MEMBERS_MAX));
        let members: usize = groups.groups.iter().map(Vec::len).sum();
        assert_eq!(groups.index.len(), members);
    }
}
