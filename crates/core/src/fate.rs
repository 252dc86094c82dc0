//! What became of entries of other partitions, where something rests on that.
//!
//! **Parts** of an operation that concerns several partitions come to be together or not at all.
//!
//! A part is named by where its leader has put it: partition, term and position. It is there once an entry
//! of that term is committed at that position, and will never be once an entry of a later term is
//! committed there or before: no two entries of one term have one position, and terms only grow along a
//! timeline. Either is seen in the partition's timeline alone, is the same on every server, and never
//! changes. So an operation needs no record that it is complete, nor one that it is not: its parts are
//! applied when all of them are there, and void when one never will be.
//!
//! **Entries that follow others.** A client's write may be prepared before its earlier one, on another
//! partition, is written ([`crate::ahead`]). Then its entry names the place where the earlier one will be. If that
//! turns out to hold something else, the entry is void, and with it all that its leader has written behind it
//! in that term, because that was prepared on top of it: the rest of the term counts as if the next one had
//! begun there. So a place is *held* when it is committed, and so is every place that an entry up to it and of its
//! term follows, and all that these follow in turn. A partition that is asked says of a place
//! whether it is committed, and what that follows as far as it does not know it to be held; who asks goes on
//! from there. Nobody waits for more than that others commit.

use crate::entry::after_places;
use crate::planted::Bug;
use crate::replica::Lead;
use crate::server::Server;
use crate::word::Word;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use stoa_group::Entry;

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
    /// Where each term begins that has committed entries. One that ends before its last entry is followed by
    /// the next number, whether or not there is such a term.
    terms: Vec<(u64, u64)>,
    committed: u64,
    /// Of all committed entries up to here it is known whether they are void.
    decided: u64,
    /// Who wants to know of places here.
    curious: Vec<(u8, Place)>,
    /// Places elsewhere that were asked for, and the answers.
    asked: BTreeSet<Place>,
    known: BTreeMap<Place, (bool, Vec<Place>)>,
    /// The last place of each other partition that is known to be held: so are all before it of that term.
    held: BTreeMap<u8, Place>,
    /// The lead is given up because of something void; where nobody else could lead, this server does so again.
    pub(crate) leads_again: bool,
}

impl Fates {
    pub(crate) fn new(terms: Vec<(u64, u64)>, committed: u64) -> Self {
        Self { terms, committed, decided: committed, ..Self::default() }
    }

    /// The state is another one, of this position.
    pub(crate) fn replaced(&mut self, terms: Vec<(u64, u64)>, committed: u64) {
        (self.terms, self.committed, self.decided) = (terms, committed, committed);
    }

    /// Up to where it is known which entries are void.
    pub(crate) fn decided(&self) -> u64 {
        self.decided
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

    /// An entry follows something that is not there: its term ends before it.
    fn ends_before(&mut self, position: u64, term: u64) {
        let at = self.terms.partition_point(|(_, begun)| *begun <= term);
        match self.terms.get_mut(at) {
            Some((first, next)) if *next == term + 1 => *first = position,
            _ => self.terms.insert(at, (position, term + 1)),
        }
    }

    /// Whether a committed entry is void, because its term has ended before it.
    pub(crate) fn is_void(&self, position: u64, term: u64) -> bool {
        let is_later = |(first, begun): &&(u64, u64)| *begun > term && *first <= position;
        self.terms.iter().rev().take_while(|(_, begun)| *begun > term).any(|later| is_later(&later))
    }

    /// Whether an entry is committed at a place here; `None` while that may still be.
    fn of(&self, place: Place) -> Option<bool> {
        let later = self.terms.iter().find(|(_, term)| *term > place.term);
        if later.is_some_and(|(first, _)| *first <= place.position) {
            return Some(false);
        }
        let is_of_term = self.terms.iter().rev().find(|(first, _)| *first <= place.position);
        (self.committed >= place.position).then(|| is_of_term.is_some_and(|(_, term)| *term == place.term))
    }

    fn is_held(&self, place: &Place) -> bool {
        let held = self.held.get(&place.partition);
        held.is_some_and(|held| held.term == place.term && held.position >= place.position)
    }

    /// A place of another partition is held.
    fn hold(&mut self, place: Place) {
        let held = self.held.entry(place.partition).or_insert(place);
        *held = place.max(*held);
        let held = *held;
        let is_before = |known: &Place| {
            (known.partition, known.term) == (held.partition, held.term) && known.position <= held.position
        };
        self.known.retain(|known, _| !is_before(known));
    }
}

impl Server {
    /// Whether all these places of other partitions are held; `None` while that is not known, and then those who
    /// know are asked.
    pub(crate) fn are_all_there(&mut self, places: &[Place]) -> Option<bool> {
        if self.planted.is(Bug::HalfIsEnough) {
            return Some(true);
        }
        let own = self.config.partition;
        let mut all = Some(true);
        let mut looked_at = BTreeSet::new();
        let mut to_look_at: Vec<_> = places.iter().copied().filter(|place| place.partition != own).collect();
        while let Some(place) = to_look_at.pop() {
            if self.fates.is_held(&place) || !looked_at.insert(place) {
                continue;
            }
            let known = match place.partition == own {
                true => self.fates.of(place).map(|is_there| (is_there, self.followed_by(place))),
                false => self.fates.known.get(&place).cloned(),
            };
            match known {
                Some((true, follows)) => to_look_at.extend(follows),
                Some((false, _)) => {
                    self.forget_fates(&Vec::from_iter(looked_at));
                    return Some(false);
                }
                None => {
                    if place.partition != own && self.fates.asked.insert(place) {
                        self.say(place.partition, Word::Whether(place));
                    }
                    all = None;
                }
            }
        }
        if all.is_some() {
            looked_at
                .into_iter()
                .filter(|place| place.partition != own)
                .for_each(|place| self.fates.hold(place));
        }
        all
    }

    /// What a committed entry here follows, and those before it in its term, as far as it is not known whether that
    /// is held.
    fn followed_by(&self, place: Place) -> Vec<Place> {
        let is_concerned = |entry: &&Entry| {
            entry.term == place.term
                && entry.position > self.fates.decided
                && entry.position <= place.position
        };
        let mut follows: Vec<_> = self
            .committed
            .iter()
            .filter(is_concerned)
            .flat_map(|entry| after_places(&entry.payload))
            .collect();
        follows.sort_unstable();
        follows.dedup();
        follows
    }

    /// They have been dealt with.
    pub(crate) fn forget_fates(&mut self, places: &[Place]) {
        for place in places {
            self.fates.known.remove(place);
            self.fates.asked.remove(place);
        }
    }

    /// Another partition wants to know of a place here.
    pub(crate) fn is_asked_for(&mut self, by: u8, place: Place) {
        self.fates.curious.push((by, place));
        self.answer_the_curious();
    }

    /// Another partition has told what became of a place there.
    pub(crate) fn fate_told(&mut self, place: Place, is_there: bool, follows: Vec<Place>) {
        if self.fates.asked.remove(&place) {
            self.fates.known.insert(place, (is_there, follows));
            self.decide_committed();
            self.apply_committed();
            self.pump();
        }
    }

    /// Finds out which of the committed entries are void.
    pub(crate) fn decide_committed(&mut self) {
        while let Some(first) = self.committed.front()
            && let Some(at) = (self.fates.decided + 1).checked_sub(first.position)
            && let Some(entry) = usize::try_from(at).ok().and_then(|at| self.committed.get(at))
        {
            let (position, term) = (entry.position, entry.term);
            let places =
                if self.fates.is_void(position, term) { Vec::new() } else { after_places(&entry.payload) };
            let Some(all) = self.are_all_there(&places) else { break };
            if !all {
                self.fates.ends_before(position, term);
                if self.replica.lead == Lead::Active && self.replica.term == term {
                    // What was prepared since rests on what will not be.
                    self.replica.group().step_down();
                    self.fates.leads_again = true;
                }
            }
            self.fates.decided = position;
        }
    }

    /// Answers what is known by now.
    pub(crate) fn answer_the_curious(&mut self) {
        for (by, place) in core::mem::take(&mut self.fates.curious) {
            match self.fates.of(place) {
                Some(is_there) => {
                    let follows = if is_there { self.followed_by(place) } else { Vec::new() };
                    self.say(by, Word::Fate { place, is_there, follows });
                }
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

    #[test]
    fn what_its_leader_has_written_behind_something_void_is_void_and_the_next_term_is_not() {
        for next in [3, 7] {
            let mut fates = Fates::default();
            (1..=6).for_each(|position| fates.committed(position, 2));
            fates.committed(7, next);
            fates.ends_before(5, 2);
            let is_void: Vec<_> = (1..=6).filter(|position| fates.is_void(*position, 2)).collect();
            assert_eq!(is_void, [5, 6]);
            assert!(!fates.is_void(7, next));
            assert_eq!(fates.of(place(2, 4)), Some(true));
            assert_eq!(fates.of(place(2, 5)), Some(false));
            assert_eq!(fates.of(place(next, 7)), Some(true));
            assert_eq!(fates.of(place(next, 8)), None);
        }
    }

    #[test]
    fn a_term_that_ends_early_and_is_the_last_so_far_is_followed_by_the_next() {
        let mut fates = Fates::default();
        (1..=6).for_each(|position| fates.committed(position, 2));
        fates.ends_before(5, 2);
        fates.committed(7, 3);
        assert!(fates.is_void(6, 2) && !fates.is_void(7, 3));
        assert_eq!(fates.terms, [(1, 2), (5, 3)]);
        assert_eq!(fates.of(place(3, 7)), Some(true));
    }
}
