//! Which disk each of the other servers has, as this one knows it.
//!
//! A server that has lost its disk must not vote as if it had its past: what it has acknowledged is gone. So every server
//! remembers the disk with which it has met each of the others (the id of the data folder, drawn when the folder was
//! made), durably and before it listens to the other. One that comes with another disk is a stranger, and not listened
//! to, unless it leads: then a majority knows that disk.
//!
//! The same goes for a server whose disk has been replaced by an older copy of itself: besides the disk, the last start
//! of the other is remembered that was heard of ([`Starts`]). Who lacks it joins anew, with what it has: that is the
//! beginning of what the others have, as it is with a server that was taken out while it was away. Until it is taken
//! out, nothing that it says counts for those who know of a later start. And when it is listened to again, whoever does
//! so has its removal in the log, which is behind everything in the copy: so the copy, to which it is news that it was
//! taken out, is elected by nobody.
//!
//! **What was remembered counts until the server is taken out of the ensemble**: with that it owes nobody what it had
//! acknowledged, and whoever comes in its name joins anew. So with each disk stands where in the log its server was taken
//! out last when the disk was met, and the members say where each was ([`stoa_group::Members::removed`]). Therefore it
//! does not matter whether this server has seen the removal in the log, or was away and was given a snapshot from behind
//! it. (A server that is taken out and joins again by one connection, and loses its disk after that, is taken for who it
//! was; but nobody is elected by whoever has nothing.)
//!
//! All that is of one history: what was known of the disks of another one says nothing about this.

use crate::birth::DiskId;
use crate::starts::{Start, Starts};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What a server knows of another one's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquaintance {
    /// It is the one that it always had.
    Known,
    /// It had another one.
    Stranger,
    /// It is an older copy of the one that it had.
    Older,
}

/// The disk of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownDisk {
    /// Which one.
    pub id: DiskId,
    /// The last start with it that was heard of.
    pub start: Option<Start>,
    /// The position of the entry that had taken the server out of the ensemble last when it was met with this disk; 0 for
    /// none.
    pub removed: u64,
}

impl KnownDisk {
    /// As a server shows it, of which nothing else is known.
    #[must_use]
    pub fn shown(id: DiskId, starts: &Starts) -> Self {
        Self { id, start: starts.last(), removed: 0 }
    }
}

/// The disks of other servers, by their ids.
pub type Disks = BTreeMap<u8, KnownDisk>;

/// What a server knows of the disks of the others.
#[derive(Clone, Debug, Default)]
pub struct KnownDisks {
    disks: Disks,
    /// Those that are not listened to, with the disks that they have shown.
    strangers: Disks,
    /// Who belongs to the ensemble; `None` as long as that is not known.
    members: Option<Vec<u8>>,
    /// Where whoever was taken out was taken out last.
    removed: BTreeMap<u8, u64>,
}

impl KnownDisks {
    /// What was remembered. What is remembered must be durable before anything rests on it.
    #[must_use]
    pub fn new(disks: Disks) -> Self {
        Self { disks, ..Self::default() }
    }

    /// What is to be remembered.
    #[must_use]
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// This server is of another history from now on, which these have founded, or joins one.
    pub fn begin(&mut self, founders: BTreeMap<u8, DiskId>) {
        let known = |(server, id)| (server, KnownDisk { id, start: None, removed: 0 });
        *self = Self::new(founders.into_iter().map(known).collect());
    }

    /// Another server has shown its disk, and its starts with it.
    pub fn meet(&mut self, server: u8, disk: DiskId, starts: &Starts) -> Acquaintance {
        let shown = KnownDisk { removed: self.removed(server), ..KnownDisk::shown(disk, starts) };
        let acquaintance = match self.disks.get(&server) {
            None => Acquaintance::Known,
            Some(_) if self.owes_nothing(server) => Acquaintance::Known,
            Some(known) if known.id != disk => Acquaintance::Stranger,
            Some(KnownDisk { start: Some(start), .. }) if starts.lack(*start) => Acquaintance::Older,
            Some(_) => Acquaintance::Known,
        };
        if acquaintance == Acquaintance::Known {
            self.disks.insert(server, shown);
            self.strangers.remove(&server);
        } else {
            self.strangers.insert(server, shown);
        }
        acquaintance
    }

    /// A server leads. Returns whether it was a stranger: it has joined anew with the disk that it has now.
    pub fn leads(&mut self, server: u8) -> bool {
        self.take_in(server)
    }

    /// These belong to the ensemble, and those were taken out of it last at these positions. Returns the strangers that
    /// are welcome therefore.
    pub fn members_are(&mut self, members: Vec<u8>, removed: BTreeMap<u8, u64>) -> Vec<u8> {
        (self.members, self.removed) = (Some(members), removed);
        let welcome: Vec<u8> = self.strangers.keys().copied().filter(|id| self.owes_nothing(*id)).collect();
        for server in &welcome {
            self.take_in(*server);
        }
        welcome
    }

    /// A stranger has joined anew with the disk that it has shown. Returns whether it was one.
    fn take_in(&mut self, server: u8) -> bool {
        let removed = self.removed(server);
        let shown = self.strangers.remove(&server);
        self.disks.extend(shown.map(|shown| (server, KnownDisk { removed, ..shown })));
        shown.is_some()
    }

    fn removed(&self, server: u8) -> u64 {
        self.removed.get(&server).copied().unwrap_or(0)
    }

    /// Whether a server has no place that it could have with the disk that was met alone: it is no member, or was taken
    /// out since.
    fn owes_nothing(&self, server: u8) -> bool {
        let was_taken_out = |known: &KnownDisk| known.removed < self.removed(server);
        self.members.as_ref().is_some_and(|members| !members.contains(&server))
            || self.disks.get(&server).is_some_and(was_taken_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn starts(ids: impl IntoIterator<Item = u64>) -> Starts {
        ids.into_iter().fold(Starts::default(), Starts::and)
    }

    /// 2 and 3 are members besides this one.
    fn acquainted() -> KnownDisks {
        let mut known = KnownDisks::default();
        known.members_are(vec![1, 2, 3], BTreeMap::new());
        assert_eq!(known.meet(2, [7; 16], &starts(1..=3)), Acquaintance::Known);
        assert_eq!(known.meet(3, [9; 16], &starts([1])), Acquaintance::Known);
        known
    }

    /// As after a restart: what is remembered is all that there is.
    fn again(known: &KnownDisks) -> KnownDisks {
        KnownDisks::new(known.disks().clone())
    }

    #[test]
    fn a_server_with_another_disk_is_a_stranger_until_it_is_taken_out() {
        let mut known = again(&acquainted());
        assert_eq!(known.meet(2, [8; 16], &starts([1])), Acquaintance::Stranger);
        assert_eq!(known.meet(3, [9; 16], &starts([1])), Acquaintance::Known);
        assert!(known.members_are(vec![1, 2, 3], BTreeMap::new()).is_empty());
        assert_eq!(known.members_are(vec![1, 3], [(2, 7)].into()), [2]);
        // It joins anew with that, and owes from then on what it acknowledges with it.
        assert!(known.members_are(vec![1, 2, 3], [(2, 7)].into()).is_empty());
        assert_eq!(known.meet(2, [8; 16], &starts([1])), Acquaintance::Known);
        for mut known in [again(&known), known] {
            assert_eq!(known.meet(2, [5; 16], &starts([1])), Acquaintance::Stranger);
            assert!(known.members_are(vec![1, 2, 3], [(2, 7)].into()).is_empty());
        }
    }

    /// It was given a snapshot from behind the removal.
    #[test]
    fn whoever_was_away_when_a_server_was_taken_out_learns_of_it() {
        for is_met_before in [false, true] {
            let mut known = again(&acquainted());
            if is_met_before {
                assert_eq!(known.meet(2, [8; 16], &starts([1])), Acquaintance::Stranger);
            }
            let welcome = known.members_are(vec![1, 2, 3], [(2, 7)].into());
            assert_eq!(welcome, if is_met_before { vec![2] } else { vec![] });
            assert_eq!(known.meet(2, [8; 16], &starts([1])), Acquaintance::Known);
            assert_eq!(known.meet(2, [7; 16], &starts(1..=4)), Acquaintance::Stranger, "it had that before");
            assert_eq!(known.meet(3, [1; 16], &starts([1])), Acquaintance::Stranger);
        }
    }

    #[test]
    fn a_server_that_lacks_its_last_start_has_an_older_copy_until_it_is_taken_out() {
        let mut known = acquainted();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=5)), Acquaintance::Known);
        let copy = starts([1, 2, 3, 14]);
        for mut known in [again(&known), known] {
            assert_eq!(known.meet(2, [7; 16], &copy), Acquaintance::Older);
            assert_eq!(known.disks()[&2].start, Some(Start { number: 5, id: 5 }));
            assert_eq!(known.meet(2, [7; 16], &copy.clone().and(15).and(16)), Acquaintance::Older);
            assert_eq!(known.meet(2, [7; 16], &starts(1..=6)), Acquaintance::Known);
            assert_eq!(known.meet(2, [7; 16], &starts(1..=90)), Acquaintance::Known, "unheard for long");
            assert_eq!(known.meet(2, [7; 16], &copy), Acquaintance::Older);
            assert_eq!(known.members_are(vec![1, 2, 3], [(2, 8)].into()), [2]);
            assert_eq!(known.meet(2, [7; 16], &copy.clone().and(15)), Acquaintance::Known);
            assert_eq!(known.meet(2, [7; 16], &starts(1..=6)), Acquaintance::Older);
        }
    }

    #[test]
    fn whoever_leads_has_joined_anew() {
        let mut known = acquainted();
        assert!(!known.leads(2));
        assert_eq!(known.meet(2, [8; 16], &starts([1])), Acquaintance::Stranger);
        assert!(known.leads(2) && !known.leads(2));
        assert_eq!(known.meet(2, [8; 16], &starts([1, 2])), Acquaintance::Known);
        assert_eq!(known.meet(2, [7; 16], &starts(1..=4)), Acquaintance::Stranger);
    }

    /// It may come with another folder as often as it likes, and joins with the last one.
    #[test]
    fn whoever_does_not_belong_to_the_ensemble_owes_nothing() {
        let mut known = acquainted();
        assert_eq!(known.meet(4, [1; 16], &starts([1])), Acquaintance::Known);
        assert_eq!(known.meet(4, [2; 16], &starts([1])), Acquaintance::Known);
        known.members_are(vec![1, 2, 3, 4], BTreeMap::new());
        assert_eq!(known.meet(4, [1; 16], &starts([1])), Acquaintance::Stranger, "it joined with the other");
        // As long as it is not known who belongs to it, nobody is taken for a stranger to it.
        let mut known = again(&known);
        assert_eq!(known.meet(4, [1; 16], &starts([1])), Acquaintance::Stranger);
        assert_eq!(known.members_are(vec![1, 2, 3], [(4, 9)].into()), [4]);
    }

    #[test]
    fn who_founds_a_history_knows_the_other_founders_alone() {
        let mut known = acquainted();
        known.begin([(3, [1; 16])].into());
        assert_eq!(known.meet(3, [9; 16], &starts([1])), Acquaintance::Stranger);
        assert_eq!(known.meet(2, [5; 16], &starts([1])), Acquaintance::Known);
    }
}
