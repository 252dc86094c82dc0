//! Barriers: what follows waits until a timeline has been applied up to some position.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Questions where the timeline ends, for those who must not see anything older than that. `C` names who waits.
#[derive(Debug)]
pub(crate) struct Barriers<C> {
    /// Number of the last one.
    last: u64,
    /// The one that was not asked yet.
    unasked: Option<u64>,
    /// In the order of their numbers.
    waiting: VecDeque<Barrier<C>>,
}

/// One barrier.
#[derive(Debug)]
pub struct Barrier<C> {
    id: u64,
    /// When it was last asked.
    asked_us: u64,
    /// The answer.
    position: Option<u64>,
    /// Who waits for it.
    pub waiting: Vec<C>,
    /// The server's first partition waits, too.
    pub is_for_first: bool,
}

impl<C> Barriers<C> {
    /// Questions of different servers must differ, and so must those of two runs of one: `random` sees to that.
    pub(crate) fn new(server: u8, random: u64) -> Self {
        Self { last: u64::from(server) << 56 | random >> 8, unasked: None, waiting: VecDeque::new() }
    }

    /// Whether nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the answer to this question has not come, or not been reached.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&id, |barrier| barrier.id).ok()
    }

    /// Nobody waits any more, but for the first partition.
    pub(crate) fn forget(&mut self) {
        self.waiting.retain_mut(|barrier| {
            barrier.waiting.clear();
            barrier.is_for_first
        });
    }

    /// The question that is asked next.
    pub(crate) fn next(&mut self, now_us: u64) -> &mut Barrier<C> {
        let unasked = self.unasked.and_then(|id| self.find(id));
        let at = unasked.unwrap_or_else(|| {
            self.push(None, now_us, Vec::new());
            self.unasked = Some(self.last);
            self.waiting.len() - 1
        });
        &mut self.waiting[at]
    }

    /// A barrier that falls when this position has been applied.
    pub(crate) fn at(&mut self, position: u64, who: C, now_us: u64) -> u64 {
        self.push(Some(position), now_us, [who].into());
        self.last
    }

    fn push(&mut self, position: Option<u64>, asked_us: u64, waiting: Vec<C>) {
        self.last += 1;
        self.waiting.push_back(Barrier { id: self.last, asked_us, position, waiting, is_for_first: false });
    }

    /// Whether all questions were asked.
    pub(crate) fn are_asked(&self) -> bool {
        self.unasked.is_none()
    }

    /// The question that was not asked yet, which is asked now.
    pub(crate) fn take_unasked(&mut self, now_us: u64) -> Option<u64> {
        let id = self.unasked.take()?;
        let at = self.find(id)?;
        self.waiting[at].asked_us = now_us;
        Some(id)
    }

    /// Questions that were asked so long ago that they or their answers may have been lost.
    pub(crate) fn ask_again(&mut self, patience_us: u64, now_us: u64, mut ask: impl FnMut(u64)) {
        for barrier in &mut self.waiting {
            if barrier.position.is_none() && barrier.asked_us + patience_us <= now_us {
                barrier.asked_us = now_us;
                ask(barrier.id);
            }
        }
    }

    /// The answer to a question; false when nobody has asked it.
    pub(crate) fn answered(&mut self, id: u64, position: u64) -> bool {
        let at = self.find(id);
        if let Some(barrier) = at.and_then(|at| self.waiting.get_mut(at)) {
            barrier.position = Some(position);
        }
        at.is_some()
    }

    /// The next one, from `at` on, that falls with this position; `at` is where to look for further ones.
    pub(crate) fn fallen(&mut self, applied: u64, at: &mut usize) -> Option<Barrier<C>> {
        let has_fallen = |barrier: &Barrier<C>| barrier.position.is_some_and(|position| position <= applied);
        *at += self.waiting.iter().skip(*at).take_while(|barrier| !has_fallen(barrier)).count();
        self.waiting.remove(*at)
    }
}

impl<C> Barrier<C> {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_before_a_question_is_asked_shares_it() {
        let mut barriers = Barriers::new(1, 0);
        barriers.next(0).waiting.push('a');
        let id = barriers.next(0).id();
        let other = barriers.at(7, 'b', 0);
        barriers.next(0).waiting.push('c');
        assert_eq!((barriers.take_unasked(5), barriers.take_unasked(5)), (Some(id), None));
        let later = barriers.next(6).id();
        assert!(later > other && [id, other, later].iter().all(|id| barriers.is_waiting(*id)));
        assert_eq!(barriers.take_unasked(6), Some(later));
        let mut again = Vec::new();
        barriers.ask_again(10, 15, |id| again.push(id));
        assert_eq!(again, [id]);
    }

    #[test]
    fn a_barrier_falls_when_its_position_is_applied_whatever_stands_before_it() {
        let mut barriers = Barriers::new(1, 0);
        let first = barriers.next(0).id();
        let second = barriers.at(7, 'b', 0);
        assert!(barriers.fallen(6, &mut 0).is_none());
        let mut at = 0;
        assert_eq!(barriers.fallen(7, &mut at).map(|barrier| barrier.waiting), Some(vec!['b']));
        assert!(barriers.fallen(7, &mut at).is_none());
        assert!(barriers.is_waiting(first) && !barriers.is_waiting(second));
        assert!(barriers.answered(first, 3) && !barriers.answered(second, 3));
        assert!(barriers.fallen(7, &mut 0).is_some_and(|barrier| barrier.id() == first));
    }
}
