//! What is missing, and who waits for it.

use crate::frame::Pull;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many times the wait for an answer doubles when nobody of all who were asked has answered.
const DOUBLINGS_MAX: usize = 5;

/// How far others say that the log goes, and whether somebody has to be asked for the rest.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// The last position that anybody has told of in this term.
    pub(crate) end: u64,
    /// Who did; 0 for nobody.
    pub(crate) told_by: u8,
    /// When the next one is asked, while something is missing.
    due_us: Option<u64>,
    /// How many were asked since there was anything new.
    tries: usize,
    /// Who has asked for what is missing here as well, and when: each is told as soon as it is here. Telling them that it
    /// is not would bring them all to the leader.
    waiting: BTreeMap<u8, (Pull, u64)>,
}

impl Gap {
    /// Somebody has something up to this position.
    pub(crate) fn told(&mut self, last: u64, by: u8) {
        if last >= self.end {
            (self.end, self.told_by) = (last, by);
        }
    }

    /// The log goes up to `end`, which is further than before or not.
    pub(crate) fn review(&mut self, end: u64, has_advanced: bool, now_us: u64, wait_us: u64) {
        if self.end <= end {
            (self.due_us, self.tries) = (None, 0);
        } else if self.due_us.is_none() || has_advanced {
            (self.due_us, self.tries) = (Some(now_us + wait_us), 0);
        }
    }

    /// When somebody has to be asked.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Whom of so many to ask now, if anybody has to be asked.
    pub(crate) fn next(&mut self, among: usize, now_us: u64, wait_us: u64) -> Option<usize> {
        self.due_us.filter(|due| *due <= now_us && among > 0)?;
        let round = self.tries / among;
        let chosen = self.tries % among;
        self.due_us = Some(now_us + (wait_us << round.min(DOUBLINGS_MAX)));
        self.tries += 1;
        Some(chosen)
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

    #[test]
    fn all_are_asked_in_turn_and_then_more_slowly() {
        let mut gap = Gap::default();
        gap.told(9, 4);
        gap.review(3, false, 100, 5);
        let mut asked = Vec::new();
        for now in 100..180 {
            asked.extend(gap.next(2, now, 5).map(|chosen| (now, chosen)));
        }
        assert_eq!(asked, [(105, 0), (110, 1), (115, 0), (125, 1), (135, 0), (155, 1), (175, 0)]);
        gap.review(5, true, 180, 5);
        assert_eq!((gap.next(2, 184, 5), gap.next(2, 185, 5)), (None, Some(0)));
        gap.review(9, true, 190, 5);
        assert_eq!(gap.next(2, 1000, 5), None);
        assert_eq!(gap.next(0, 1000, 5), None);
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
