//! What moves together because it is used together.
//!
//! Who takes a lock uses what the lock protects. When a site comes to two things within a second whose tokens it does not
//! have, they are put down as a group; who has come with others of it three times more is known to belong to it. Of
//! these together it is known who has followed whom: a site that uses each of them once, one after the other, comes again
//! to the group, though not to any of them. So the first that it comes to has the others go along, for one round trip
//! instead of one each. What is taken along for nothing has to earn that again: in the long run only that is taken along
//! which is used four times out of five.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::Site;
use crate::odds::Odds;

/// Most groups, and most members of one.
const GROUPS_MAX: usize = 256;
const MEMBERS_MAX: usize = 8;
/// Longer paths are in no group: what is remembered is bounded.
const PATH_MAX: usize = 128;
/// So many things that a site has come to are looked back at, and for so long.
const RECENT_MAX: usize = 8;
const RECENT_MS: u64 = 1000;
/// What a site has come to with others so often belongs to them.
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

/// What comes together, and who is next in it.
#[derive(Debug, Default)]
struct Group {
    members: Vec<Member>,
    odds: Odds,
}

/// What a site has come to, and when.
#[derive(Debug)]
struct Recent {
    path: String,
    site: Site,
    at_ms: u64,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// In which group each path is.
    index: BTreeMap<String, usize>,
    /// What all sites have come to lately, the oldest first.
    recent: VecDeque<Recent>,
    /// The group that is forgotten next.
    oldest: usize,
}

impl Groups {
    /// A site comes to something whose token it does not have.
    pub(crate) fn came(&mut self, path: &str, site: Site, now_ms: u64) {
        if path.len() > PATH_MAX {
            return;
        }
        self.recent.retain(|it| now_ms.saturating_sub(it.at_ms) <= RECENT_MS);
        if self.recent.iter().any(|it| it.site == site && it.path == path) {
            // What comes all the time comes with anything.
            return;
        }
        let before: Vec<String> =
            self.recent.iter().filter(|it| it.site == site).map(|it| it.path.clone()).collect();
        before.iter().for_each(|other| self.pair(path, other));
        if before.len() >= RECENT_MAX
            && let Some(first) = self.recent.iter().position(|it| it.site == site)
        {
            self.recent.remove(first);
        }
        self.recent.push_back(Recent { path: path.to_owned(), site, at_ms: now_ms });
    }

    /// Who is next in the group of something, if that is known to come with the others of it.
    pub(crate) fn odds(&self, path: &str) -> Option<Odds> {
        let group = &self.groups[*self.index.get(path)?];
        group
            .members
            .iter()
            .any(|member| member.path == path && member.trust >= TRUSTED)
            .then_some(group.odds)
    }

    /// A site uses something so many times. What is not known to come with the others says nothing of them.
    pub(crate) fn used(&mut self, path: &str, site: Site, times: u32) {
        if self.odds(path).is_some()
            && let Some(group) = self.index.get(path)
        {
            self.groups[*group].odds.observe(site, times);
        }
    }

    /// Which others go along with something, of those that may move.
    pub(crate) fn along(&mut self, path: &str, may_move: impl Fn(&str) -> bool) -> Vec<String> {
        let Some(group) = self.index.get(path) else { return Vec::new() };
        let mut along = Vec::new();
        for member in &mut self.groups[*group].members {
            if member.path != path && member.trust >= TRUSTED && may_move(&member.path) {
                member.is_along = true;
                along.push(member.path.clone());
            }
        }
        along
    }

    /// Whether nothing is in any group.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What became of a token at a site: whether it was used there before another one wanted it.
    pub(crate) fn settled(&mut self, path: &str, is_used: bool) {
        let Some(&group) = self.index.get(path) else { return };
        let members = &mut self.groups[group].members;
        let Some(member) = members.iter_mut().find(|member| member.path == path && member.is_along) else {
            return;
        };
        member.is_along = false;
        let trust = if is_used { member.trust + 1 } else { member.trust - MISSED };
        member.trust = trust.clamp(TRUST_MIN, TRUST_MAX);
    }

    /// A site has come to two of them shortly after one another.
    fn pair(&mut self, one: &str, other: &str) {
        match (self.index.get(one).copied(), self.index.get(other).copied()) {
            (Some(group), Some(same)) if group == same => {
                let both = |member: &&mut Member| member.path == one || member.path == other;
                self.groups[group]
                    .members
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

    /// One more in a group; in a full one in place of one that has not been there again with the others.
    fn join(&mut self, group: usize, path: &str) {
        let members = &mut self.groups[group].members;
        if members.len() == MEMBERS_MAX
            && let Some(least) = members.iter().position(|member| member.trust <= 0)
        {
            self.index.remove(&members.remove(least).path);
        }
        if members.len() < MEMBERS_MAX {
            members.push(Member { path: path.to_owned(), trust: 0, is_along: false });
            self.index.insert(path.to_owned(), group);
        }
    }

    /// A group without members: a new one, or that which is as old as none.
    fn room(&mut self) -> usize {
        if self.groups.len() < GROUPS_MAX {
            self.groups.push(Group::default());
            return self.groups.len() - 1;
        }
        let group = self.oldest;
        self.oldest = (group + 1) % GROUPS_MAX;
        for member in core::mem::take(&mut self.groups[group]).members {
            self.index.remove(&member.path);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One turn of a writer: what it comes to one after the other.
    fn turn(groups: &mut Groups, site: u8, at_ms: u64) {
        for (index, path) in ["/lock", "/meta", "/log"].into_iter().enumerate() {
            groups.came(path, Site(site), at_ms + 100 * index as u64);
            groups.used(path, Site(site), 1);
        }
    }

    #[test]
    fn what_is_used_together_moves_as_one() {
        let mut groups = Groups::default();
        turn(&mut groups, 1, 0);
        assert!(groups.along("/lock", |_| true).is_empty() && groups.odds("/lock").is_none());
        (2..5).for_each(|round| turn(&mut groups, 1, round * 10_000));
        assert_eq!(groups.along("/lock", |_| true), ["/meta", "/log"]);
        groups.came("/other", Site(2), 90_000);
        assert!(groups.along("/other", |_| true).is_empty() && groups.odds("/other").is_none());
    }

    #[test]
    fn who_uses_each_of_several_once_comes_again_to_all_of_them() {
        let mut groups = Groups::default();
        (0..40).for_each(|round| turn(&mut groups, 1 + (round % 2) as u8, round * 10_000));
        let odds = groups.odds("/meta").unwrap();
        let again = odds.next(Site(1), Site(1)) * 100 / crate::odds::ONE;
        assert!((60..72).contains(&again), "two of three times: {again}");
    }

    #[test]
    fn what_does_not_come_again_leaves_room() {
        let mut groups = Groups::default();
        (0..5).for_each(|round| turn(&mut groups, 1, round * 10_000));
        for number in 0..100 {
            groups.came("/lock", Site(1), 100_000 + 5000 * number);
            groups.came(&format!("/once/{number}"), Site(1), 100_001 + 5000 * number);
        }
        assert_eq!(groups.along("/lock", |_| true), ["/meta", "/log"]);
        turn(&mut groups, 1, 1_000_000);
        groups.came("/late", Site(1), 1_000_300);
        assert!(groups.index.contains_key("/late"));
    }

    #[test]
    fn what_is_taken_along_for_nothing_is_left_out() {
        let mut groups = Groups::default();
        (0..10).for_each(|round| turn(&mut groups, 1, round * 10_000));
        for left in [2, 1, 1] {
            assert_eq!(groups.along("/lock", |_| true).len(), left);
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
            groups.came(&format!("/{}", round % 7001), Site((round % 32) as u8), round * 20);
            groups.came(&"/long".repeat(100), Site(1), round);
        }
        assert!(groups.groups.len() <= GROUPS_MAX && groups.recent.len() <= RECENT_MAX * 32 + 32);
        assert!(groups.groups.iter().all(|group| group.members.len() <= MEMBERS_MAX));
        let members: usize = groups.groups.iter().map(|group| group.members.len()).sum();
        assert_eq!(groups.index.len(), members);
    }
}
