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
//! term follows, and all that these follow in turn.
//!
//! A partition that has to know tells another one how far it knows that one's timeline, and is told what has been
//! committed since, and what that follows. What is held is then the largest cut through all timelines with
//! nothing in it that follows something outside. So one question settles all that is committed by then, and nobody
//! waits for more than that others commit.

use crate::entry::after_places;
use crate::planted::Bug;
use crate::replica::Lead;
use crate::server::Server;
use crate::word::Word;
use alloc::collections::{BTreeMap, VecDeque};
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

/// What a partition tells another one of a term of its timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// The term.
    pub term: u64,
    /// Up to here the other one knew it.
    pub known: u64,
    /// Up to here entries of the term are committed.
    pub committed: u64,
    /// No more will be.
    pub is_over: bool,
    /// Up to here all of them are held.
    pub held: u64,
    /// The others, where they follow something.
    pub following: Vec<(u64, Vec<Place>)>,
}

/// A term of a partition's timeline.
#[derive(Debug, Default)]
struct Line {
    committed: u64,
    is_over: bool,
    held: u64,
    /// Entries behind that, and what they follow.
    following: VecDeque<(u64, Vec<Place>)>,
    /// Its partition was asked for more.
    is_asked: bool,
}

/// What is known of places, and asked.
#[derive(Default)]
pub(crate) struct Fates {
    own: u8,
    /// Where each term begins that has committed entries. One that ends before its last entry is followed by
    /// the next number, whether or not there is such a term.
    terms: Vec<(u64, u64)>,
    committed: u64,
    /// Of all committed entries up to here it is known whether they are void.
    decided: u64,
    /// By partition and term, where something follows it or is in it that follows others.
    lines: BTreeMap<(u8, u64), Line>,
    /// What entries follow that this partition has proposed: the last of each partition and term.
    expected: Vec<Place>,
    /// Who waits for more of a term here than is known there.
    curious: Vec<(u8, u64, u64)>,
    /// The lead is given up because of something void; where nobody else could lead, this server does so again.
    pub(crate) leads_again: bool,
}

impl Fates {
    pub(crate) fn new(own: u8, terms: Vec<(u64, u64)>, committed: u64) -> Self {
        Self { own, terms, committed, decided: committed, ..Self::default() }
    }

    /// The state is another one, of this position.
    pub(crate) fn replaced(&mut self, terms: Vec<(u64, u64)>, committed: u64) {
        (self.terms, self.committed, self.decided) = (terms, committed, committed);
        let own = self.own;
        self.lines.retain(|(partition, _), _| *partition != own);
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

    /// An entry is committed, and follows these.
    pub(crate) fn committed(&mut self, position: u64, term: u64, follows: Vec<Place>) {
        if self.terms.last().is_none_or(|(_, last)| *last < term) {
            self.terms.push((position, term));
        }
        self.committed = self.committed.max(position);
        if !follows.is_empty() && !self.is_void(position, term) {
            self.line(self.own, term).following.push_back((position, follows));
        }
    }

    /// An entry follows something that will not be: its term ends before it.
    fn ends_before(&mut self, position: u64, term: u64) {
        let at = self.terms.partition_point(|(_, begun)| *begun <= term);
        match self.terms.get_mut(at) {
            Some((first, next)) if *next == term + 1 => *first = position,
            _ => self.terms.insert(at, (position, term + 1)),
        }
        if let Some(line) = self.lines.get_mut(&(self.own, term)) {
            line.following.retain(|(at, _)| *at < position);
        }
    }

    /// Whether a committed entry is void, because its term has ended before it.
    pub(crate) fn is_void(&self, position: u64, term: u64) -> bool {
        let is_later = |(first, begun): &&(u64, u64)| *begun > term && *first <= position;
        self.terms.iter().rev().take_while(|(_, begun)| *begun > term).any(|later| is_later(&later))
    }

    /// Up to where entries of a term are committed here, and whether no more will be.
    fn extent(&self, term: u64) -> (u64, bool) {
        let at = self.terms.partition_point(|(_, begun)| *begun < term);
        let is_there = self.terms.get(at).is_some_and(|(_, begun)| *begun == term);
        let later = self.terms.get(at + usize::from(is_there));
        let end = later.map_or(self.committed, |(first, _)| first - 1);
        (if is_there { end } else { 0 }, later.is_some())
    }

    /// What another partition, which knows a term up to there, has to be told of it; `None` while there is nothing.
    fn course(&self, term: u64, known: u64) -> Option<Course> {
        let (committed, is_over) = self.extent(term);
        if committed <= known && !is_over {
            return None;
        }
        let line = self.lines.get(&(self.own, term));
        let following = line.into_iter().flat_map(|line| &line.following);
        let following = following.filter(|(position, _)| *position > known).cloned().collect();
        let held = self.decided.min(committed);
        Some(Course { term, known, committed, is_over, held, following })
    }

    /// Another partition has told what has become of a term of its timeline.
    fn told(&mut self, from: u8, course: Course) {
        let line = self.line(from, course.term);
        line.is_asked = false;
        line.is_over = course.is_over;
        // What is void there was committed all the same.
        let last = line.committed.max(course.known);
        line.committed = if course.is_over { course.committed } else { course.committed.max(line.committed) };
        line.held = line.held.max(course.held);
        line.following.extend(course.following.into_iter().filter(|(position, _)| *position > last));
        let (held, committed) = (line.held, line.committed);
        line.following.retain(|(position, _)| *position > held && *position <= committed);
    }

    /// What is known of a term; that of others before it is forgotten, where nothing rests on it.
    fn line(&mut self, partition: u8, term: u64) -> &mut Line {
        let is_old = |key: &(u8, u64)| key.0 == partition && key.1 < term;
        if !self.lines.contains_key(&(partition, term)) {
            self.lines.retain(|key, line| !is_old(key) || line.is_asked || !line.following.is_empty());
        }
        self.lines.entry((partition, term)).or_default()
    }

    /// Finds out what is held by now: the largest cut with nothing in it that follows something outside.
    fn advance(&mut self) {
        let own = self.own;
        let extents: Vec<_> = self.lines.keys().map(|(_, term)| self.extent(*term)).collect();
        for (((partition, _), line), extent) in self.lines.iter_mut().zip(extents) {
            if *partition == own {
                (line.committed, line.is_over) = extent;
            }
        }
        let mut cut: BTreeMap<_, _> = self.lines.iter().map(|(key, line)| (*key, line.committed)).collect();
        let mut is_cut = true;
        while core::mem::take(&mut is_cut) {
            for (key, line) in &self.lines {
                let end = cut.get(key).copied().unwrap_or(0);
                let is_in = |place: &Place| match cut.get(&(place.partition, place.term)) {
                    Some(end) => place.position <= *end,
                    None => place.partition == own && place.position <= self.extent(place.term).0,
                };
                let inside = line.following.iter().take_while(|(position, _)| *position <= end);
                let mut outside = inside.filter(|(_, follows)| !follows.iter().all(is_in));
                if let Some((position, _)) = outside.next() {
                    is_cut = true;
                    cut.insert(*key, position - 1);
                }
            }
        }
        for (key, line) in &mut self.lines {
            line.held = cut.get(key).copied().unwrap_or(0).max(line.held);
            while line.following.pop_front_if(|(position, _)| *position <= line.held).is_some() {}
        }
        self.decided = self.first_open().map_or(self.committed, |(position, ..)| position - 1);
    }

    /// The first entry here of which it is not known whether it is void.
    fn first_open(&self) -> Option<(u64, u64, &[Place])> {
        let lines = self.lines.range((self.own, 0)..=(self.own, u64::MAX));
        let firsts = lines.filter_map(|((_, term), line)| Some((line.following.front()?, *term)));
        firsts.map(|((position, follows), term)| (*position, term, follows.as_slice())).next()
    }

    /// Whether places of other partitions are held; `None` while that is not known.
    fn are_held(&self, places: &[Place]) -> Option<bool> {
        let is_held = |place: &Place| {
            let line = self.lines.get(&(place.partition, place.term));
            line.is_some_and(|line| place.position <= line.held)
        };
        match places.iter().all(is_held) {
            true => Some(true),
            false => self.is_one_lost(places).then_some(false),
        }
    }

    /// Whether one of these will never be held: it will not be committed, or something that it follows will not.
    fn is_one_lost(&self, places: &[Place]) -> bool {
        let is_gone = |place: &Place| {
            let (committed, is_over) = match self.lines.get(&(place.partition, place.term)) {
                _ if place.partition == self.own => self.extent(place.term),
                Some(line) => (line.committed, line.is_over),
                None => return false,
            };
            is_over && place.position > committed
        };
        // That is rare, and to find out what rests on it takes long.
        let is_any_over =
            self.lines.iter().any(
                |((partition, term), line)| {
                    if *partition == self.own { self.extent(*term).1 } else { line.is_over }
                },
            );
        if !is_any_over || !self.follows().chain(places).any(is_gone) {
            return false;
        }
        let mut seen: BTreeMap<(u8, u64), u64> = BTreeMap::new();
        let mut to_see = places.to_vec();
        while let Some(place) = to_see.pop() {
            if is_gone(&place) {
                return true;
            }
            let key = (place.partition, place.term);
            let last = seen.get(&key).copied().unwrap_or(0);
            if place.position <= last {
                continue;
            }
            seen.insert(key, place.position);
            let following = self.lines.get(&key).into_iter().flat_map(|line| &line.following);
            let is_new = |entry: &&(u64, Vec<Place>)| entry.0 > last && entry.0 <= place.position;
            to_see.extend(following.filter(is_new).flat_map(|(_, follows)| follows));
        }
        false
    }

    /// What entries follow of which it is not known that they are held.
    fn follows(&self) -> impl Iterator<Item = &Place> {
        let following = self.lines.values().flat_map(|line| &line.following);
        following.flat_map(|(_, follows)| follows)
    }

    /// An entry that follows these is proposed. What becomes of them is asked at once: then the answers do not come
    /// a round later than the entry is committed.
    fn expects(&mut self, places: &[Place]) {
        let is_open = |place: &Place, lines: &BTreeMap<(u8, u64), Line>| {
            let line = lines.get(&(place.partition, place.term));
            line.is_none_or(|line| place.position > line.committed && !line.is_over)
        };
        self.expected.retain(|place| is_open(place, &self.lines));
        put_furthest(&mut self.expected, places.iter().filter(|place| is_open(place, &self.lines)));
    }

    /// Of which terms of other partitions more has to be known, and how far they are: for these places, for what
    /// is committed and follows something, and for what is proposed.
    fn asks(&mut self, places: &[Place]) -> Vec<(u8, u64, u64)> {
        let mut furthest = self.expected.clone();
        put_furthest(&mut furthest, self.follows().chain(places).filter(|place| place.partition != self.own));
        let mut asked = Vec::new();
        for Place { partition, term, position } in furthest {
            let line = self.line(partition, term);
            if position > line.committed && !line.is_over && !line.is_asked {
                line.is_asked = true;
                asked.push((partition, term, line.committed));
            }
        }
        asked
    }
}

/// Keeps the last place of each partition and term. There are few of these, and many places.
fn put_furthest<'a>(furthest: &mut Vec<Place>, places: impl Iterator<Item = &'a Place>) {
    for place in places {
        match furthest.iter_mut().find(|it| (it.partition, it.term) == (place.partition, place.term)) {
            Some(known) => known.position = place.position.max(known.position),
            None => furthest.push(*place),
        }
    }
}

impl Server {
    /// This server has proposed an entry.
    pub(crate) fn entry_is_proposed(&mut self, entry: &[u8]) {
        let follows = after_places(entry);
        if !follows.is_empty() {
            self.fates.expects(&follows);
            self.ask_for_courses(&[]);
        }
    }

    /// A committed entry has come.
    pub(crate) fn entry_is_committed(&mut self, entry: &Entry) {
        self.fates.committed(entry.position, entry.term, after_places(&entry.payload));
    }

    /// Whether all these places of other partitions are held; `None` while that is not known, and then those who
    /// know are asked.
    pub(crate) fn are_all_there(&mut self, places: &[Place]) -> Option<bool> {
        if self.planted.is(Bug::HalfIsEnough) {
            return Some(true);
        }
        let own = self.config.partition;
        let others: Vec<_> = places.iter().copied().filter(|place| place.partition != own).collect();
        let all = self.fates.are_held(&others);
        if all.is_none() {
            self.ask_for_courses(&others);
        }
        all
    }

    fn ask_for_courses(&mut self, places: &[Place]) {
        for (partition, term, known) in self.fates.asks(places) {
            self.say(partition, Word::HowFar { term, known });
        }
    }

    /// Another partition wants to know more of a term here.
    pub(crate) fn is_asked_for(&mut self, by: u8, term: u64, known: u64) {
        self.fates.curious.push((by, term, known));
        self.answer_the_curious();
    }

    /// Answers what is known by now.
    pub(crate) fn answer_the_curious(&mut self) {
        for (by, term, known) in core::mem::take(&mut self.fates.curious) {
            match self.fates.course(term, known) {
                Some(course) => self.say(by, Word::Course(course.into())),
                None => self.fates.curious.push((by, term, known)),
            }
        }
    }

    /// Another partition has told what has become of a term there.
    pub(crate) fn course_told(&mut self, from: u8, course: Course) {
        self.fates.told(from, course);
        self.decide_committed();
        self.apply_committed();
        self.pump();
    }

    /// Finds out which of the committed entries are void.
    pub(crate) fn decide_committed(&mut self) {
        if self.planted.is(Bug::HalfIsEnough) {
            self.fates.decided = self.fates.committed;
            return;
        }
        loop {
            self.fates.advance();
            let Some((position, term, follows)) = self.fates.first_open() else { break };
            if !self.fates.is_one_lost(follows) {
                break;
            }
            self.fates.ends_before(position, term);
            if self.replica.lead == Lead::Active && self.replica.term == term {
                // What was prepared since rests on what will not be.
                self.replica.group().step_down();
                self.fates.leads_again = true;
            }
        }
        self.ask_for_courses(&[]);
        self.answer_the_curious();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn place(partition: u8, term: u64, position: u64) -> Place {
        Place { partition, term, position }
    }

    /// Partition 0, with so many committed entries of term 2.
    fn of_term_two(entries: u64) -> Fates {
        let mut fates = Fates::new(0, Vec::new(), 0);
        (1..=entries).for_each(|position| fates.committed(position, 2, Vec::new()));
        fates
    }

    fn course(known: u64, committed: u64, following: &[(u64, Place)]) -> Course {
        let following = following.iter().map(|(position, follows)| (*position, vec![*follows])).collect();
        Course { term: 5, known, committed, is_over: false, held: 0, following }
    }

    #[test]
    fn an_entry_is_there_or_never_will_be_and_that_does_not_change() {
        let mut fates = of_term_two(3);
        assert_eq!(fates.extent(2), (3, false), "more may still come");
        assert_eq!(fates.extent(1), (0, true), "its term is over");
        assert_eq!(fates.extent(3), (0, false));
        fates.committed(4, 5, Vec::new());
        assert_eq!(fates.extent(2), (3, true));
        assert_eq!(fates.extent(3), (0, true), "nobody can commit anything of that term now");
        assert_eq!(fates.extent(5), (4, false));
    }

    #[test]
    fn what_its_leader_has_written_behind_something_void_is_void_and_the_next_term_is_not() {
        for next in [3, 7] {
            let mut fates = of_term_two(6);
            fates.committed(7, next, Vec::new());
            fates.ends_before(5, 2);
            let is_void: Vec<_> = (1..=6).filter(|position| fates.is_void(*position, 2)).collect();
            assert_eq!(is_void, [5, 6]);
            assert!(!fates.is_void(7, next));
            assert_eq!(fates.extent(2), (4, true));
            assert_eq!(fates.extent(next), (7, false));
        }
    }

    #[test]
    fn a_term_that_ends_early_and_is_the_last_so_far_is_followed_by_the_next() {
        let mut fates = of_term_two(6);
        fates.ends_before(5, 2);
        fates.committed(7, 3, Vec::new());
        assert!(fates.is_void(6, 2) && !fates.is_void(7, 3));
        assert_eq!(fates.terms, [(1, 2), (5, 3)]);
        assert_eq!(fates.extent(3), (7, false));
    }

    #[test]
    fn what_follows_an_entry_is_held_with_it_and_one_question_settles_many() {
        let mut fates = of_term_two(3);
        for position in 4..=9 {
            fates.committed(position, 2, vec![place(1, 5, position * 10)]);
        }
        fates.advance();
        assert_eq!(fates.decided(), 3);
        assert_eq!(fates.asks(&[]), [(1, 5, 0)]);
        assert_eq!(fates.asks(&[]), [], "it is asked already");
        // What the answer tells of rests on others in turn: on this partition, and on a third one.
        fates.told(1, course(0, 75, &[(45, place(0, 2, 6)), (65, place(2, 1, 7))]));
        fates.advance();
        assert_eq!(fates.decided(), 6, "the seventh follows what follows something that is not known");
        assert_eq!(fates.are_held(&[place(1, 5, 64)]), Some(true));
        assert_eq!(fates.are_held(&[place(1, 5, 65)]), None);
        assert_eq!(fates.asks(&[]), [(1, 5, 75), (2, 1, 0)]);
        let third =
            Course { term: 1, known: 0, committed: 7, is_over: false, held: 7, following: Vec::new() };
        fates.told(2, third);
        fates.told(1, course(75, 100, &[]));
        fates.advance();
        assert_eq!((fates.decided(), fates.first_open()), (9, None));
    }

    #[test]
    fn what_a_proposed_entry_follows_is_asked_before_the_entry_is_committed() {
        let mut fates = of_term_two(3);
        fates.expects(&[place(1, 5, 70), place(1, 5, 60)]);
        assert_eq!(fates.asks(&[]), [(1, 5, 0)]);
        assert_eq!(fates.asks(&[]), [], "it is asked already");
        fates.told(1, course(0, 65, &[]));
        assert_eq!(fates.asks(&[]), [(1, 5, 65)], "that was not all");
        fates.told(1, course(65, 75, &[]));
        fates.expects(&[place(1, 5, 75)]);
        assert_eq!(fates.asks(&[]), [], "all is known");
        fates.committed(4, 2, vec![place(1, 5, 60), place(1, 5, 70)]);
        fates.advance();
        assert_eq!((fates.decided(), fates.asks(&[])), (4, vec![]));
    }

    #[test]
    fn entries_that_follow_each_other_in_a_circle_are_held_when_all_are_committed() {
        let mut fates = of_term_two(3);
        fates.committed(4, 2, vec![place(1, 5, 8)]);
        fates.told(1, course(0, 7, &[]));
        fates.advance();
        assert_eq!(fates.decided(), 3);
        fates.told(1, course(7, 8, &[(8, place(0, 2, 4))]));
        fates.advance();
        assert_eq!(fates.decided(), 4);
    }

    #[test]
    fn an_entry_is_lost_with_whatever_it_follows_by_way_of_others() {
        let mut fates = of_term_two(3);
        fates.committed(4, 2, vec![place(1, 5, 8)]);
        fates.told(1, course(0, 9, &[(6, place(2, 1, 3))]));
        assert!(!fates.is_one_lost(&[place(1, 5, 8)]));
        let third = Course { term: 1, known: 0, committed: 2, is_over: true, held: 2, following: Vec::new() };
        fates.told(2, third);
        fates.advance();
        assert!(fates.is_one_lost(&[place(1, 5, 8)]));
        assert!(!fates.is_one_lost(&[place(1, 5, 5)]));
        assert_eq!(fates.are_held(&[place(1, 5, 5)]), Some(true));
    }
}
