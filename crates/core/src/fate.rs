//! What became of the parts of an operation that concerns several partitions.
//!
//! A part is named by where its leader has put it: partition, term and position. It is there once an entry
//! of that term is committed at that position, and will never be once an entry of a later term is
//! committed there or before: no two entries of one term have one position, and terms only grow along a
//! timeline. Either is seen in the partition's timeline alone, is the same on every server, and never
//! changes. So an operation needs no record that it is complete, nor one that it is not: its parts are
//! applied when all of them are there, and void when one never will be.

use crate::planted::Bug;
use crate::server::Server;
use crate::word::Word;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Where a leader has put a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The partition.
    pub partition: u8,
    /// The leader's term.
    pub term: u64,
    /// The position.
    pub position: u64,
}

/// What is known of parts, and asked.
#[derive(Default)]
pub(crate) struct Fates {
    /// Where each term begins that has committed entries, and the last committed position.
    terms: Vec<(u64, u64)>,
    committed: u64,
    /// Who wants to know of places here.
    curious: Vec<(u8, Place)>,
    /// Places elsewhere that were asked for, and the answers.
    asked: BTreeSet<Place>,
    known: BTreeMap<Place, bool>,
}

impl Fates {
    pub(crate) fn new(terms: Vec<(u64, u64)>, committed: u64) -> Self {
        Self { terms, committed, ..Self::default() }
    }

    /// The state is another one, of this position.
    pub(crate) fn replaced(&mut self, terms: Vec<(u64, u64)>, committed: u64) {
        (self.terms, self.committed) = (terms, committed);
    }

    /// Where each term begins that has entries up to a position.
    pub(crate) fn terms_up_to(&self, position: u64) -> &[(u64, u64)] {
        let count = self.terms.iter().take_while(|(first, _)| *first <= position).count();
        &self.terms[..count]
    }

    /// An entry is committed.
    pub(crate) fn committed(&mut self, position: u64, term: u64) {
        if self.terms.last().is_none_or(|(_, last)| *last < term) {
            self.terms.push((position, term));
        }
        self.committed = self.committed.max(position);
    }

    /// Whether a part is at a place here; `None` while that is not decided.
    fn of(&self, place: Place) -> Option<bool> {
        let later = self.terms.iter().find(|(_, term)| *term > place.term);
        if later.is_some_and(|(first, _)| *first <= place.position) {
            return Some(false);
        }
        let is_of_term = self.terms.iter().rev().find(|(first, _)| *first <= place.position);
        (self.committed >= place.position).then(|| is_of_term.is_some_and(|(_, term)| *term == place.term))
    }
}

impl Server {
    /// Whether all these parts are there; `None` while that is not known, and then those who know are
    /// asked.
    pub(crate) fn are_all_there(&mut self, places: &[Place]) -> Option<bool> {
        if self.planted.is(Bug::HalfIsEnough) {
            return Some(true);
        }
        let own = self.config.partition;
        let mut all = Some(true);
        for place in places.iter().filter(|place| place.partition != own) {
            match self.fates.known.get(place) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => {
                    if self.fates.asked.insert(*place) {
                        self.say(place.partition, Word::Whether(*place));
                    }
                    all = None;
                }
            }
        }
        all
    }

    /// An operation's parts have been dealt with.
    pub(crate) fn forget_fates(&mut self, places: &[Place]) {
        for place in places {
            self.fates.known.remove(place);
            self.fates.asked.remove(place);
        }
    }

    /// Another partition wants to know of a part here.
    pub(crate) fn is_asked_for(&mut self, by: u8, place: Place) {
        self.fates.curious.push((by, place));
        self.answer_the_curious();
    }

    /// Another partition has told what became of a part there.
    pub(crate) fn fate_told(&mut self, place: Place, is_there: bool) {
        if self.fates.asked.contains(&place) {
            self.fates.known.insert(place, is_there);
            self.apply_committed();
        }
    }

    /// Answers what is decided by now.
    pub(crate) fn answer_the_curious(&mut self) {
        for (by, place) in core::mem::take(&mut self.fates.curious) {
            match self.fates.of(place) {
                Some(is_there) => self.say(by, Word::Fate { place, is_there }),
                None => self.fates.curious.push((by, place)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(term: u64, position: u64) -> Place {
        Place { partition: 1, term, position }
    }

    #[test]
    fn a_part_is_there_or_never_will_be_and_that_does_not_change() {
        let mut fates = Fates::default();
        (1..=3).for_each(|position| fates.committed(position, 2));
        assert_eq!(fates.of(place(2, 3)), Some(true));
        assert_eq!(fates.of(place(2, 4)), None, "it may still come");
        assert_eq!(fates.of(place(1, 3)), Some(false), "it was replaced");
        assert_eq!(fates.of(place(1, 9)), Some(false), "its term is over");
        fates.committed(4, 5);
        assert_eq!(fates.of(place(2, 3)), Some(true));
        assert_eq!(fates.of(place(2, 4)), Some(false));
        assert_eq!(fates.of(place(3, 7)), Some(false), "nobody can commit anything of that term now");
        assert_eq!(fates.of(place(5, 4)), Some(true));
        assert_eq!(fates.of(place(5, 5)), None);
    }
}
