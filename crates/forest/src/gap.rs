//! What is missing, and who waits for it.

use crate::frame::{Place, Pull};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many times the wait for an answer doubles when nobody of all who were asked has answered.
const DOUBLINGS_MAX: usize = 5;

/// The most pieces that are missing by name. Of others it is noticed when these have come.
const MISSING_MAX: usize = 1024;

/// The most that are asked for at once.
pub(crate) const QUESTIONS_MAX: usize = 64;

/// A piece of the log.
#[derive(Debug)]
struct Missing {
    previous: u64,
    /// Who has told of it, and so most likely has it or will.
    by: u8,
    due_us: u64,
    /// How many were asked.
    tries: usize,
}

/// A piece that is to be asked for now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) place: Place,
    /// Who has told of it.
    pub(crate) by: u8,
    /// How many were asked for it.
    pub(crate) tries: usize,
}

/// Which pieces of the log are missing. Each has its own time: those of a tree that is silent come one after the other,
/// and would be ever later if each waited for the one before it.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// The last position that anybody has told of in this term, and who did.
    told: (u64, u8),
    /// By their last positions.
    missing: BTreeMap<u64, Missing>,
    /// Who has asked for what is missing here as well, and when: each is told as soon as it is here. Telling them that it
    /// is not would bring them all to the leader.
    waiting: BTreeMap<u8, (Pull, u64)>,
}

impl Gap {
    /// Somebody has something up to this position, or is about to.
    pub(crate) fn told(&mut self, last: u64, by: u8) {
        if last >= self.told.0 {
            self.told = (last, by);
        }
    }

    /// Where the piece ends that is missing right behind `end`, if one is.
    pub(crate) fn first(&self, end: u64) -> Option<u64> {
        let (last, _) = self.missing.first_key_value().filter(|(_, missing)| missing.previous <= end)?;
        Some(*last)
    }

    /// Somebody has named a piece that is not here. It is on its way, most likely.
    pub(crate) fn name(&mut self, place: Place, by: u8, due_us: u64) {
        if self.missing.len() < MISSING_MAX {
            let missing = Missing { previous: place.previous, by, due_us, tries: 0 };
            self.missing.entry(place.last).or_insert(missing);
        }
    }

    /// A piece is here.
    pub(crate) fn came(&mut self, place: Place) {
        if self.missing.get(&place.last).is_some_and(|missing| missing.previous >= place.previous) {
            self.missing.remove(&place.last);
        }
    }

    /// The log goes up to `end`, and behind that there is nothing before `held`. So what is between is missing, by name or
    /// not.
    pub(crate) fn review(&mut self, end: u64, held: Option<u64>, due_us: u64) {
        while let Some(first) = self.missing.first_entry().filter(|first| *first.key() <= end) {
            first.remove();
        }
        let upto = held.map_or(self.told.0, |held| held.min(self.told.0));
        if end < upto && self.first(end).is_none() {
            self.name(Place { previous: end, last: upto }, self.told.1, due_us);
        }
    }

    /// When somebody has to be asked.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.missing.values().map(|missing| missing.due_us).min()
    }

    /// What to ask for now. Next time is later when all of so many were asked.
    pub(crate) fn questions(&mut self, among: usize, now_us: u64, wait_us: u64) -> Vec<Question> {
        let due = self.missing.iter_mut().filter(|(_, missing)| missing.due_us <= now_us);
        let question = |(last, missing): (&u64, &mut Missing)| {
            let place = Place { previous: missing.previous, last: *last };
            let tries = missing.tries;
            missing.due_us = now_us + (wait_us << (tries / among.max(1)).min(DOUBLINGS_MAX));
            missing.tries += 1;
            Question { place, by: missing.by, tries }
        };
        due.take(QUESTIONS_MAX).map(question).collect()
    }

    /// Somebody asks for what is not here.
    pub(crate) fn wait(&mut self, by: u8, pull: Pull, now_us: u64) {
        self.waiting.insert(by, (pull, now_us));
    }

    /// Who has asked for what is behind a position before `end`.
    pub(crate) fn answered(&mut self, end: u64) -> Vec<(u8, Pull)> {
        let answered = |(by, (pull, _)): (&u8, &(Pull, u64))| (pull.after < end).then_some((*by, *pull));
        let answered: Vec<_> = self.waiting.iter().filter_map(answered).collect();
        for (by, _) in &answered {
            self.waiting.remove(by);
        }
        answered
    }

    /// Forgets who has asked too long ago: it has asked others since.
    pub(crate) fn forget(&mut self, since_us: u64) {
        self.waiting.retain(|_, (_, at_us)| *at_us >= since_us);
    }

    /// Another term has begun: what was told is of no use any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(previous: u64, last: u64) -> Place {
        Place { previous, last }
    }

    #[test]
    fn all_are_asked_in_turn_and_then_more_slowly() {
        let mut gap = Gap::default();
        gap.told(9, 4);
        gap.review(3, None, 105);
        let mut asked = Vec::new();
        for now in 100..180 {
            let questions = gap.questions(2, now, 5);
            assert!(questions.iter().all(|question| (question.place, question.by) == (place(3, 9), 4)));
            asked.extend(questions.iter().map(|question| (now, question.tries)));
        }
        assert_eq!(asked, [(105, 0), (110, 1), (115, 2), (125, 3), (135, 4), (155, 5), (175, 6)]);
        gap.review(9, None, 0);
        assert_eq!((gap.due_us(), gap.first(9)), (None, None));
    }

    #[test]
    fn each_piece_has_its_own_time() {
        let mut gap = Gap::default();
        gap.told(20, 7);
        gap.name(place(3, 9), 1, 10);
        gap.name(place(12, 15), 2, 12);
        gap.name(place(12, 15), 3, 99);
        // Up to 9 it has a name already; then what comes before the piece that is held has none.
        gap.review(3, Some(9), 50);
        assert_eq!((gap.first(2), gap.first(3)), (None, Some(9)));
        gap.came(place(3, 9));
        gap.review(9, Some(10), 50);
        let all = gap.questions(5, 100, 5);
        let places: Vec<_> = all.iter().map(|question| (question.place, question.by)).collect();
        assert_eq!(places, [(place(9, 10), 7), (place(12, 15), 2)]);
        assert_eq!(gap.due_us(), Some(105));
        gap.came(place(12, 14));
        gap.came(place(9, 15));
        gap.review(10, Some(10), 50);
        assert_eq!(gap.due_us(), None);
    }

    #[test]
    fn what_is_known_to_be_missing_is_bounded() {
        let mut gap = Gap::default();
        for at in 0..5000 {
            gap.name(place(2 * at, 2 * at + 1), 1, 0);
        }
        assert_eq!(gap.missing.len(), MISSING_MAX);
        assert_eq!(gap.questions(5, 0, 5).len(), QUESTIONS_MAX);
    }

    #[test]
    fn who_waits_is_told_once() {
        let mut gap = Gap::default();
        for (by, after, at) in [(1, 5, 10), (2, 7, 20), (1, 4, 30)] {
            gap.wait(by, Pull { term: 1, after, upto: 9 }, at);
        }
        assert_eq!(gap.answered(4), []);
        assert_eq!(gap.answered(6), [(1, Pull { term: 1, after: 4, upto: 9 })]);
        gap.forget(21);
        assert_eq!(gap.answered(100), []);
    }
}
