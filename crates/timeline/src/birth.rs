//! How a server whose disk holds nothing comes to a history.
//!
//! Nobody decides alone. Two emptied servers of three would be a majority, and would begin anew beside the third, which
//! has everything: so a history is founded only when **all** who are to vote in it have been heard of, none of them has
//! one, and all of them have heard the same of all others. Who hears of a history joins that one: with no members and
//! no entries, as a server that reconfig adds does, until its leader gives it a snapshot. Until then it elects
//! nobody who knows that something is committed.
//!
//! What a server would found is named by the disks that it has heard of ([`HistoryId::of_founders`]), and it tells the
//! others that name. It founds when all of them say the same. So it may be that only some have founded when a server
//! loses its disk, but never that two histories are founded: for each of them everybody has said that it would, and
//! nobody says of a disk that is gone that it is there again.

use alloc::collections::{BTreeMap, BTreeSet};
use stoa_group::HistoryId;

/// The id of a disk, drawn when its data folder was made.
pub type DiskId = [u8; 16];

/// What a server says of its history before anything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// It has none, and has not heard of everybody.
    #[default]
    New,
    /// It has none, and would found this one.
    Founds(HistoryId),
    /// It has this one.
    Has(HistoryId),
}

impl Standing {
    /// Which history it has.
    #[must_use]
    pub fn history(self) -> Option<HistoryId> {
        match self {
            Self::Has(history) => Some(history),
            Self::New | Self::Founds(_) => None,
        }
    }
}

/// What becomes of a server without a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It founds one, with these voters and their disks.
    Found(HistoryId, BTreeMap<u8, DiskId>),
    /// It joins one.
    Join(HistoryId),
}

#[derive(Debug)]
pub(crate) struct Birth {
    me: u8,
    disk: DiskId,
    /// Who is to vote, this server among them. Nobody, when it is to join.
    founders: BTreeSet<u8>,
    /// What the others have said last.
    heard: BTreeMap<u8, (DiskId, Standing)>,
}

impl Birth {
    pub(crate) fn new(me: u8, disk: DiskId, founders: &BTreeSet<u8>) -> Self {
        let founders = if founders.contains(&me) { founders.clone() } else { BTreeSet::new() };
        Self { me, disk, founders, heard: BTreeMap::new() }
    }

    /// Of whom nothing has been heard, or, when all have been heard of, who has not heard of all.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u8> {
        let founds = self.founds();
        let is_missing = move |server: &u8| match self.heard.get(server) {
            Some((_, Standing::New)) => founds.is_some(),
            Some(_) => false,
            None => *server != self.me,
        };
        self.founders.iter().copied().filter(is_missing)
    }

    /// The disks of those who are to vote, as far as they have been heard of.
    fn disks(&self) -> BTreeMap<u8, DiskId> {
        let others = self.heard.iter().filter(|(server, _)| self.founders.contains(server));
        let mut disks: BTreeMap<u8, DiskId> = others.map(|(server, (disk, _))| (*server, *disk)).collect();
        disks.insert(self.me, self.disk);
        disks
    }

    /// What it would found.
    fn founds(&self) -> Option<HistoryId> {
        let disks = self.disks();
        let is_heard = !self.founders.is_empty() && disks.len() == self.founders.len();
        is_heard.then(|| HistoryId::of_founders(&disks))
    }

    pub(crate) fn standing(&self) -> Standing {
        self.founds().map_or(Standing::New, Standing::Founds)
    }

    /// Another server says what it is. What follows from that, if anything does.
    pub(crate) fn hear(&mut self, server: u8, disk: DiskId, standing: Standing) -> Option<Begin> {
        self.heard.insert(server, (disk, standing));
        let founds = self.founds();
        if let Standing::Has(history) = standing {
            // If it is what this server would found, all have said so to the other one, this server among them: then
            // nobody need be waited for who is away now.
            return Some(match founds {
                Some(founds) if founds == history => Begin::Found(history, self.disks()),
                _ => Begin::Join(history),
            });
        }
        let founds = founds?;
        let agrees = |server: &u8| match self.heard.get(server) {
            Some((_, theirs)) => *theirs == Standing::Founds(founds),
            None => *server == self.me,
        };
        self.founders.iter().all(agrees).then(|| Begin::Found(founds, self.disks()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn birth(me: u8, disk: u8, founders: &[u8]) -> Birth {
        Birth::new(me, [disk; 16], &founders.iter().copied().collect())
    }

    fn name(disks: &[(u8, u8)]) -> HistoryId {
        HistoryId::of_founders(&disks.iter().map(|(server, disk)| (*server, [*disk; 16])).collect())
    }

    #[test]
    fn all_must_be_heard_and_must_have_heard_the_same() {
        let mut one = birth(1, 11, &[1, 2, 3]);
        assert_eq!(one.standing(), Standing::New);
        assert_eq!(one.hear(2, [12; 16], Standing::New), None);
        assert_eq!(one.missing().collect::<Vec<_>>(), [3]);
        assert_eq!(one.hear(3, [13; 16], Standing::New), None);
        let all = name(&[(1, 11), (2, 12), (3, 13)]);
        assert_eq!(one.standing(), Standing::Founds(all));
        assert_eq!(one.hear(2, [12; 16], Standing::Founds(all)), None, "of 3 it is not known");
        assert_eq!(one.missing().collect::<Vec<_>>(), [3], "it has not heard of all");
        let found = Begin::Found(all, [(1, [11; 16]), (2, [12; 16]), (3, [13; 16])].into());
        assert_eq!(one.hear(3, [13; 16], Standing::Founds(all)), Some(found));
    }

    #[test]
    fn who_is_slower_than_another_one_waits_for_nobody() {
        let all = name(&[(1, 11), (2, 12), (3, 13)]);
        let mut one = birth(1, 11, &[1, 2, 3]);
        one.hear(2, [12; 16], Standing::New);
        one.hear(3, [13; 16], Standing::Founds(all));
        // Server 2 has told server 3, and has ended since.
        let found = Begin::Found(all, [(1, [11; 16]), (2, [12; 16]), (3, [13; 16])].into());
        assert_eq!(one.hear(3, [13; 16], Standing::Has(all)), Some(found));
    }

    #[test]
    fn a_disk_that_is_gone_founds_nothing() {
        let mut one = birth(1, 11, &[1, 2, 3]);
        let old = name(&[(1, 11), (2, 12), (3, 13)]);
        one.hear(2, [12; 16], Standing::Founds(old));
        one.hear(3, [13; 16], Standing::New);
        // Server 2 comes back with another disk.
        assert_eq!(one.hear(2, [22; 16], Standing::New), None);
        assert_eq!(one.hear(3, [13; 16], Standing::Founds(old)), None, "it has not heard of that");
        let new = name(&[(1, 11), (2, 22), (3, 13)]);
        assert_eq!(one.standing(), Standing::Founds(new));
        assert_eq!(one.hear(3, [13; 16], Standing::Founds(new)), None);
        let found = Some(Begin::Found(new, [(1, [11; 16]), (2, [22; 16]), (3, [13; 16])].into()));
        assert_eq!(one.hear(2, [22; 16], Standing::Founds(new)), found);
    }

    #[test]
    fn who_hears_of_a_history_joins_it() {
        let theirs = HistoryId([9; 16]);
        let mut one = birth(1, 11, &[1, 2, 3]);
        one.hear(2, [12; 16], Standing::New);
        assert_eq!(one.hear(3, [13; 16], Standing::Has(theirs)), Some(Begin::Join(theirs)));
        // One that is to join, and an observer, found nothing whoever is there.
        for mut other in [birth(4, 14, &[]), birth(4, 14, &[1, 2])] {
            other.hear(1, [11; 16], Standing::New);
            assert_eq!(other.hear(2, [12; 16], Standing::New), None);
            assert_eq!(other.standing(), Standing::New);
            assert_eq!(other.hear(1, [11; 16], Standing::Has(theirs)), Some(Begin::Join(theirs)));
        }
    }
}
