//! The other servers: who is connected, whose disk is another one, and who may join or leave next.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use stoa_group::{Change, Status};

/// A server that has something, and is behind by fewer entries than this, has caught up.
pub(crate) const CAUGHT_UP_ENTRIES: u64 = 1000;

/// What server 0 is called in the group, to which 0 is nobody. The others have their own numbers there.
const MEMBER_OF_ZERO: u64 = 256;

/// What a server is called in the group: never 0.
#[must_use]
pub fn member_of(server: u8) -> u64 {
    if server == 0 { MEMBER_OF_ZERO } else { u64::from(server) }
}

/// What a reader is called in its own copy of the group, to which it does not belong: as no server.
pub(crate) const READER: u64 = 1 << 41;

/// The server that a member of the group is, if it is one: nobody is 0, and what a disk or another server says may be
/// anything.
#[must_use]
pub fn server_of(member: u64) -> Option<u8> {
    if member == MEMBER_OF_ZERO { Some(0) } else { u8::try_from(member).ok().filter(|server| *server != 0) }
}

/// The servers that members of the group are, by their ids.
#[must_use]
pub fn servers_of<'a>(members: impl IntoIterator<Item = &'a u64>) -> Vec<u8> {
    let mut servers: Vec<u8> = members.into_iter().copied().filter_map(server_of).collect();
    servers.sort_unstable();
    servers
}

/// Who should belong to the ensemble.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those who should vote.
    pub voters: BTreeSet<u8>,
    /// Those who should follow without a vote.
    pub observers: BTreeSet<u8>,
}

impl Wanted {
    fn contains(&self, server: u8) -> bool {
        self.voters.contains(&server) || self.observers.contains(&server)
    }
}

/// What this server knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Those with whom there is a connection.
    connected: BTreeSet<u8>,
    /// Members that have come back with another disk, or with an older copy of theirs, with the term that they led with
    /// the one before, as far as was known then, or 0.
    emptied: BTreeMap<u8, u64>,
}

impl Peers {
    pub(crate) fn is_connected(&self, peer: u8) -> bool {
        self.connected.contains(&peer)
    }

    /// Whether it has come back with another disk, and has to join anew.
    pub(crate) fn is_emptied(&self, peer: u8) -> bool {
        self.emptied.contains_key(&peer)
    }

    /// All of them.
    pub(crate) fn emptied(&self) -> impl Iterator<Item = u8> {
        self.emptied.keys().copied()
    }

    /// There is a connection (again).
    pub(crate) fn connect(&mut self, peer: u8) {
        self.connected.insert(peer);
        // Whatever it was taken for: it shows the disk that it is known with, or may have any.
        self.emptied.remove(&peer);
    }

    pub(crate) fn disconnect(&mut self, peer: u8) {
        self.connected.remove(&peer);
    }

    /// A member has come back with another disk; it may do so several times, and be known to have led only at first.
    pub(crate) fn empty(&mut self, peer: u8, led: u64) {
        let known = self.emptied.entry(peer).or_default();
        *known = led.max(*known);
    }

    /// A majority has elected this server with the disk that it has, unless it has led this term with the one that is
    /// lost. Returns whether it did not.
    pub(crate) fn accept(&mut self, leader: u8, term: u64) -> bool {
        if self.emptied.get(&leader) == Some(&term) {
            return false;
        }
        if self.emptied.remove(&leader).is_some() {
            self.connected.insert(leader);
        }
        true
    }

    /// What can be changed of the members now, so that they become those that are wanted; `me` is this server, which
    /// leads.
    pub(crate) fn changes(&self, me: u8, wanted: &Wanted, status: &Status) -> Vec<Change> {
        let mut changes = Vec::new();
        // Some of those who join may not have come yet: as many stay as are a majority of what is wanted.
        let mut voters: BTreeSet<u64> = status.members.voters.iter().copied().collect();
        self.removals(me, wanted, status, &mut voters, &mut changes);
        let wanted_here = wanted.voters.iter().map(|id| (*id, false));
        let mut all: Vec<_> = wanted_here.chain(wanted.observers.iter().map(|id| (*id, true))).collect();
        all.sort_unstable();
        for (id, is_observer) in all.into_iter().filter(|(id, _)| !self.is_emptied(*id)) {
            let member = member_of(id);
            if status.members.voters.contains(&member) {
                if is_observer && id != me && self.take_vote(me, member, &mut voters) {
                    changes.push(Change::AddLearner(member));
                }
            } else if status.members.learners.contains(&member) {
                if !is_observer && has_caught_up(member, status) {
                    changes.push(Change::AddVoter(member));
                }
            } else if self.connected.contains(&id) {
                changes.push(Change::AddLearner(member));
            }
        }
        changes
    }

    /// Those who are not wanted, or have another disk.
    fn removals(
        &self,
        me: u8,
        wanted: &Wanted,
        status: &Status,
        voters: &mut BTreeSet<u64>,
        changes: &mut Vec<Change>,
    ) {
        let members = &status.members;
        let mut spare = members.voters.len().saturating_sub(wanted.voters.len() / 2 + 1);
        for member in members.learners.iter().chain(&members.voters) {
            let id = server_of(*member);
            let is_emptied = id.is_some_and(|id| self.is_emptied(id));
            if id == Some(me) || (!is_emptied && id.is_some_and(|id| wanted.contains(id))) {
                continue;
            }
            if is_emptied || members.learners.contains(member) {
                voters.remove(member);
                changes.push(Change::Remove(*member));
            } else if spare > 0 && self.take_vote(me, *member, voters) {
                spare -= 1;
                changes.push(Change::Remove(*member));
            }
        }
    }

    /// Takes a server out of those that will have a vote, if the others can do without: a majority of them has to be
    /// connected. Returns whether it did. A server may belong to the group of which the leader has never heard, since
    /// it missed the list that named it, and with which it would wait for ever. Who is not connected helps nobody.
    fn take_vote(&self, me: u8, voter: u64, voters: &mut BTreeSet<u64>) -> bool {
        let is_here =
            |voter: u64| server_of(voter).is_some_and(|id| id == me || self.connected.contains(&id));
        let left = voters.iter().filter(|other| **other != voter);
        let here = left.clone().filter(|other| is_here(**other)).count();
        let can_spare = !is_here(voter) || here > left.count() / 2;
        if can_spare {
            voters.remove(&voter);
        }
        can_spare
    }
}

fn has_caught_up(member: u64, status: &Status) -> bool {
    let matched = status.matched.iter().find(|(of, _)| *of == member);
    matched.is_some_and(|(_, matched)| *matched > 0 && matched + CAUGHT_UP_ENTRIES >= status.last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_led_has_led_however_often_its_server_comes_back_without_it() {
        let mut peers = Peers::default();
        peers.empty(3, 7);
        peers.empty(3, 0);
        peers.empty(2, 0);
        assert_eq!(peers.emptied, [(2, 0), (3, 7)].into());
        assert!(
            !peers.accept(3, 7) && peers.is_emptied(3),
            "it has led this term with the disk that is lost"
        );
        assert!(peers.accept(3, 8) && !peers.is_emptied(3) && peers.is_connected(3));
    }

    #[test]
    fn every_server_is_a_member_of_its_own_and_nobody_is_none() {
        let members: BTreeSet<u64> = (0..=u8::MAX).map(member_of).collect();
        assert_eq!(members, (1..=256).collect());
        assert!((0..=u8::MAX).all(|server| server_of(member_of(server)) == Some(server)));
        assert!([0, 257, 1 << 32, u64::MAX].iter().all(|member| server_of(*member).is_none()));
        assert_eq!(servers_of(&[1, 2, 256, 1000]), [0, 1, 2]);
        // As it stands on the disks that there are.
        assert!((1..=254).all(|server| member_of(server) == u64::from(server)));
    }

    #[test]
    fn server_0_joins_and_leaves_as_the_others_do() {
        let mut peers = Peers::default();
        let joins = member_of(0);
        peers.connect(0);
        assert_eq!(peers.changes(1, &wanted(&[0, 1]), &status(&[1], &[], &[])), [Change::AddLearner(joins)]);
        let there = status(&[1], &[joins], &[(joins, 4500)]);
        assert_eq!(peers.changes(1, &wanted(&[0, 1]), &there), [Change::AddVoter(joins)]);
        peers.connect(2);
        let three = status(&[1, 2, joins], &[], &[]);
        assert_eq!(peers.changes(1, &wanted(&[0, 1, 2]), &three), []);
        assert_eq!(peers.changes(1, &wanted(&[1, 2]), &three), [Change::Remove(joins)]);
    }

    fn status(voters: &[u64], learners: &[u64], matched: &[(u64, u64)]) -> Status {
        let mut members = stoa_group::Members::of_voters(voters);
        members.learners = learners.into();
        Status {
            term: 2,
            leader: 1,
            role: stoa_group::Role::Leader,
            last: 5000,
            committed: 5000,
            members,
            matched: matched.into(),
        }
    }

    fn wanted(voters: &[u8]) -> Wanted {
        Wanted { voters: voters.iter().copied().collect(), observers: BTreeSet::new() }
    }

    #[test]
    fn who_joins_follows_first_and_votes_when_it_has_caught_up() {
        let mut peers = Peers::default();
        assert_eq!(peers.changes(1, &wanted(&[1, 2]), &status(&[1], &[], &[])), [], "it is not there");
        peers.connect(2);
        assert_eq!(peers.changes(1, &wanted(&[1, 2]), &status(&[1], &[], &[])), [Change::AddLearner(2)]);
        let late = status(&[1], &[2], &[(2, 3000)]);
        assert_eq!(peers.changes(1, &wanted(&[1, 2]), &late), []);
        let there = status(&[1], &[2], &[(2, 4500)]);
        assert_eq!(peers.changes(1, &wanted(&[1, 2]), &there), [Change::AddVoter(2)]);
    }

    #[test]
    fn a_vote_is_taken_only_where_the_others_can_do_without() {
        let mut peers = Peers::default();
        peers.connect(2);
        // Without 2, of which a majority needs one, nobody reachable would be left but this server.
        let three = status(&[1, 2, 3], &[], &[]);
        assert_eq!(peers.changes(1, &wanted(&[1, 3]), &three), []);
        peers.connect(3);
        assert_eq!(peers.changes(1, &wanted(&[1, 3]), &three), [Change::Remove(2)]);
        peers.empty(3, 0);
        peers.disconnect(3);
        assert_eq!(peers.changes(1, &wanted(&[1, 2, 3]), &three), [Change::Remove(3)], "it joins anew");
    }
}
