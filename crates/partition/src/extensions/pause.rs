//! How long greedy calls make those wait who asked for them. Why: `core/src/replica/pauses.rs`.

use alloc::collections::BTreeMap;
use core::borrow::Borrow;

/// A step takes about 25 ns, and may take a quarter of a percent of the thread's time.
const COST_US_PER_STEP: u64 = 10;

/// Nobody waits for longer, however many others have to.
const PAUSE_MAX_US: u64 = 5_000_000;

/// Who has to wait, and until when: sessions for their calls, programs for their reactions.
#[derive(Debug)]
pub(super) struct Pauses<Who> {
    until_us: BTreeMap<Who, u64>,
    /// When everything so far is paid for.
    paid_at_us: u64,
}

impl<Who> Default for Pauses<Who> {
    fn default() -> Self {
        Self { until_us: BTreeMap::new(), paid_at_us: 0 }
    }
}

/// So many of the steps that something has taken, of those that it may, have to be paid for: from none at the half to
/// all of them, so that nobody gains by staying just below the limit.
pub(super) fn greed(steps: u64, allowed: u64) -> u64 {
    steps.min(allowed).saturating_sub(allowed / 2).saturating_mul(2)
}

impl<Who: Ord> Pauses<Who> {
    /// How long somebody has to wait, in microseconds; 0 if it has not to.
    pub(super) fn of<Q: Ord + ?Sized>(&self, who: &Q, now_us: u64) -> u64
    where
        Who: Borrow<Q>,
    {
        self.until_us.get(who).map_or(0, |until_us| until_us.saturating_sub(now_us))
    }

    /// Somebody pays for so many steps. Returns how long it has to wait for that, in microseconds.
    pub(super) fn charge(&mut self, who: Who, steps: u64, now_us: u64) -> u32 {
        if steps == 0 {
            return 0;
        }
        self.until_us.retain(|_, until_us| *until_us > now_us);
        let paid_at_us = self.paid_at_us.max(now_us).saturating_add(steps.saturating_mul(COST_US_PER_STEP));
        self.paid_at_us = paid_at_us.min(now_us.saturating_add(PAUSE_MAX_US));
        self.until_us.insert(who, self.paid_at_us);
        u32::try_from(self.paid_at_us - now_us).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: u64 = 10_000;

    #[test]
    fn what_is_paid_begins_with_the_second_half_and_has_no_steps() {
        for (steps, pause_us) in [(0, 0), (4000, 0), (5000, 0), (5001, 20), (7500, 50_000), (10_000, 100_000)]
        {
            assert_eq!(Pauses::default().charge(1, greed(steps, ALLOWED), 7), pause_us, "{steps}");
        }
    }

    #[test]
    fn pauses_of_all_follow_one_another_and_end() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.charge(1, ALLOWED, 1000), 100_000);
        assert_eq!(pauses.charge(2, ALLOWED, 1000), 200_000);
        assert_eq!((pauses.of(&1, 1000), pauses.of(&2, 1000), pauses.of(&3, 1000)), (100_000, 200_000, 0));
        assert_eq!((pauses.of(&1, 101_000), pauses.of(&2, 101_000)), (0, 100_000));
        // Nobody has to wait for what was paid long ago, and nobody waits for ever.
        assert_eq!(pauses.charge(3, ALLOWED, 1_000_000), 100_000);
        assert_eq!(pauses.until_us.len(), 1, "the others are forgotten");
        for session in 0..1000 {
            assert!(u64::from(pauses.charge(session, ALLOWED, 1_000_000)) <= PAUSE_MAX_US);
        }
        assert_eq!(pauses.of(&999, 1_000_000), PAUSE_MAX_US);
        assert_eq!(pauses.charge(1, u64::MAX, u64::MAX - 5), 5, "at the end of time");
    }
}
