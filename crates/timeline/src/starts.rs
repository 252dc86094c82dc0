//! How a server that has come back with an older copy of its data folder is told from one that has what it had.
//!
//! A folder that was replaced by an older copy of itself has forgotten what its server has acknowledged and whom it has
//! voted for since the copy was made, as a lost one has; but its id is the right one. So each folder also has a list of
//! the starts of its server in an ensemble: at each, one more is drawn, and is durable before anything is said to
//! others. They are told the list ([`Starts`]) before anything else, and remember the last one that they have heard of
//! ([`Start`]), durably, before they listen to the server. Who says a list without that one has an older copy.
//!
//! The copy may also be another server's: the folder of one that stood alone, put onto those who are to take part with it.
//! So it is noted with each start whether the server decides alone by it ([`Start::id`]): one of these that the original
//! does not have is of a copy that went on by itself.
//!
//! What was copied while the last start went on that others have heard of is not told apart: the copy has that start.
//! Nor is it by those who have heard of no start behind the copy.

use alloc::vec::Vec;

/// One start of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// How many there have been with its data folder, this one included: from 1.
    pub number: u64,
    /// Drawn for it: see [`Start::id`].
    pub id: u64,
}

impl Start {
    /// The id of a start, of a random number. It is odd where the server decides alone as it starts.
    #[must_use]
    pub fn id(random: u64, decides_alone: bool) -> u64 {
        random & !1 | u64::from(decides_alone)
    }
}

/// The starts of a server, as its data folder has them: how many, and the ids of the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Starts {
    count: u64,
    /// Oldest first.
    ids: Vec<u64>,
}

impl Starts {
    /// So many are known by their ids. A server that has started more often without being heard by somebody is taken
    /// at its word by that one.
    pub const IDS_MAX: usize = 64;

    /// So many starts, and the ids of the last of them, oldest first. `None` unless there are as many ids as there must
    /// be: all, and [`Starts::IDS_MAX`] at most.
    #[must_use]
    pub fn of(count: u64, ids: Vec<u64>) -> Option<Self> {
        let expected = usize::try_from(count).unwrap_or(usize::MAX).min(Self::IDS_MAX);
        (ids.len() == expected).then_some(Self { count, ids })
    }

    /// These, and one more with this id.
    #[must_use]
    pub fn and(mut self, id: u64) -> Self {
        self.count = self.count.saturating_add(1);
        self.ids.push(id);
        if self.ids.len() > Self::IDS_MAX {
            self.ids.remove(0);
        }
        self
    }

    /// How many there have been.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The ids of the last ones, oldest first.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The present one. `None` where there was none: a server that has never met another one.
    #[must_use]
    pub fn last(&self) -> Option<Start> {
        self.ids.last().map(|id| Start { number: self.count, id: *id })
    }

    /// The last one of those that are known by their ids with which the server decided alone.
    #[must_use]
    pub fn last_alone(&self) -> Option<Start> {
        let number = |at: usize| self.count - (self.ids.len() - 1 - at) as u64;
        let at = self.ids.iter().rposition(|id| id % 2 == 1)?;
        Some(Start { number: number(at), id: self.ids[at] })
    }

    /// Whether a start that was heard of is none of these: then they are of an older copy of the folder. One that is
    /// longer ago than the first that is known counts as one of them.
    #[must_use]
    pub fn lack(&self, heard: Start) -> bool {
        let Some(ago) = self.count.checked_sub(heard.number) else { return true };
        let at = usize::try_from(ago).ok().and_then(|ago| self.ids.len().checked_sub(ago + 1));
        at.is_some_and(|at| self.ids[at] != heard.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(starts: u64) -> Starts {
        (1..=starts).fold(Starts::default(), |starts, number| starts.and(number * 10))
    }

    #[test]
    fn an_older_copy_lacks_the_start_that_was_heard_of_last() {
        let heard = after(7).last().unwrap();
        assert_eq!(heard, Start { number: 7, id: 70 });
        assert!(!after(7).lack(heard) && !after(8).lack(heard), "it goes on with what it has");
        // The copy is from before, and has started as often since, or less, or more often.
        for more in 0..20 {
            let copy = (0..more).fold(after(5), |starts, number| starts.and(1000 + number));
            assert!(copy.lack(heard), "{copy:?}");
        }
        assert!(Starts::default().lack(heard), "it has never met anybody");
    }

    #[test]
    fn what_is_longer_ago_than_the_list_is_taken_at_its_word() {
        let heard = Start { number: 3, id: 30 };
        let max = Starts::IDS_MAX as u64;
        assert!(!after(2 + max).lack(heard) && after(2 + max).lack(Start { number: 3, id: 31 }));
        assert_eq!(after(3 + max).ids().len(), Starts::IDS_MAX);
        assert!(!after(3 + max).lack(Start { number: 3, id: 31 }), "it is not known any more");
        assert!(!after(3 + max).lack(Start { number: 0, id: 31 }));
    }

    #[test]
    fn the_last_start_alone_is_found() {
        assert_eq!(after(7).last_alone(), None);
        let id = Start::id(70, true);
        assert!(id == 71 && Start::id(71, false) == 70);
        let copied = after(7).and(id).and(80).and(90);
        assert_eq!(copied.last_alone(), Some(Start { number: 8, id }));
        assert!(!after(7).and(id).and(85).lack(copied.last_alone().unwrap()));
        assert!(after(7).and(Start::id(74, true)).lack(copied.last_alone().unwrap()));
        let many = (0..70).fold(after(7), Starts::and);
        assert_eq!(many.last_alone(), Some(Start { number: 77, id: 69 }));
    }

    #[test]
    fn a_list_has_as_many_ids_as_there_must_be() {
        assert_eq!(Starts::of(0, Vec::new()), Some(Starts::default()));
        assert_eq!(Starts::of(2, [10, 20].into()), Some(after(2)));
        assert_eq!(Starts::of(70, (7..=70).map(|number| number * 10).collect()), Some(after(70)));
        assert!([0, 1, 3, u64::MAX].iter().all(|count| Starts::of(*count, [10, 20].into()).is_none()));
        assert_eq!(Starts::of(u64::MAX, [1; 64].into()).unwrap().and(2).count(), u64::MAX);
    }
}
