//! When the lock is wanted, and for how long.

use std::time::Duration;

use crate::bench::clock::{Nanos, nanos};
use crate::bench::random::Random;

/// How many draws the representative one is chosen from.
const DRAWS: u64 = 2000;

/// Somebody wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    /// From when on.
    pub(super) at: Nanos,
    /// How long it is needed for.
    pub(super) section: Duration,
    /// Whether it belongs to what is measured.
    pub(super) counts: bool,
}

/// A time that is always the same, or exponentially distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Time {
    pub(super) mean: Duration,
    pub(super) varies: bool,
}

impl Time {
    fn draw(self, random: &mut Random) -> Duration {
        if self.varies { self.mean.mul_f64(random.exponential()) } else { self.mean }
    }

    fn mean_ms(self) -> f64 {
        self.mean.as_secs_f64() * 1e3
    }

    fn variance(self) -> f64 {
        if self.varies { self.mean_ms().powi(2) } else { 0.0 }
    }
}

/// What is asked of the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Time between two visits.
    pub(super) between: Time,
    pub(super) section: Time,
    /// How many come before those that count.
    pub(super) warmup: usize,
    pub(super) visits: usize,
}

impl Demand {
    /// The visits that follow from a seed, whatever the lock: so locks can be compared with one another by few of
    /// them.
    pub(super) fn draw(&self, seed: u64) -> Vec<Visit> {
        let mut random = Random::new(seed);
        let mut at: Nanos = 0;
        let visit = |index| {
            at += nanos(self.between.draw(&mut random));
            Visit { at, section: self.section.draw(&mut random), counts: index >= self.warmup }
        };
        (0..self.warmup + self.visits).map(visit).collect()
    }

    /// Of many draws the one in which a lock whose turns take a critical section and `turn` is waited for as long as
    /// is to be expected in the long run, and in which sections are as long. Where the lock has not got the time for
    /// all, or visits do not come at random, nothing is expected, and it is the first draw.
    pub(super) fn representative(&self, seed: u64, turn: Duration) -> Vec<Visit> {
        let Some(expected) = self.expected_wait_ms(turn) else { return self.draw(seed) };
        let error = |visits: &[Visit]| {
            let counted = visits.iter().filter(|visit| visit.counts);
            let sections = counted.map(|visit| visit.section.as_secs_f64() * 1e3).sum::<f64>();
            let section = sections / (self.visits as f64 * self.section.mean_ms()) - 1.0;
            // What the wait adds to a turn is what matters.
            let turn_ms = turn.as_secs_f64() * 1e3 + self.section.mean_ms();
            let wait = (waited_ms(visits, turn) - expected) / (turn_ms + expected);
            section.abs() + wait.abs()
        };
        let draws = (0..DRAWS).map(|draw| self.draw(seed.wrapping_mul(DRAWS).wrapping_add(draw)));
        let best =
            draws.map(|visits| (error(&visits), visits)).min_by(|one, other| one.0.total_cmp(&other.0));
        best.map_or_else(|| self.draw(seed), |(_, visits)| visits)
    }

    /// The mean wait of an M/G/1 queue.
    fn expected_wait_ms(&self, turn: Duration) -> Option<f64> {
        let mean = turn.as_secs_f64() * 1e3 + self.section.mean_ms();
        let load = mean / self.between.mean_ms();
        let square = mean * mean + self.section.variance();
        (self.between.varies && load < 1.0 && mean > 0.0)
            .then(|| square / self.between.mean_ms() / (2.0 * (1.0 - load)))
    }
}

/// How long visits that count wait on average where each has its turn after the one before.
fn waited_ms(visits: &[Visit], turn: Duration) -> f64 {
    let (mut free_at, mut waited, mut counted) = (0, 0, 0_u64);
    for visit in visits {
        let begins = visit.at.max(free_at);
        free_at = begins + nanos(turn + visit.section);
        if visit.counts {
            waited += begins - visit.at;
            counted += 1;
        }
    }
    waited as f64 / 1e6 / counted.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn demand(between: Duration, warmup: usize, visits: usize) -> Demand {
        let section = Time { mean: 10 * MS, varies: true };
        Demand { between: Time { mean: between, varies: true }, section, warmup, visits }
    }

    #[test]
    fn visits_follow_from_the_seed() {
        let demand = demand(100 * MS, 2, 3);
        let visits = demand.draw(1);
        assert_eq!(visits, demand.draw(1));
        assert_ne!(visits, demand.draw(2));
        assert_eq!(visits.iter().filter(|visit| visit.counts).count(), 3);
        assert!(!visits[1].counts && visits[2].counts);
        assert!(visits.is_sorted_by_key(|visit| visit.at));
    }

    #[test]
    fn fixed_times_are_fixed() {
        let fixed = |ms| Time { mean: ms * MS, varies: false };
        let demand = Demand { between: fixed(200), section: fixed(150), warmup: 0, visits: 3 };
        let visits = demand.draw(7);
        assert!(visits.iter().all(|visit| visit.section == 150 * MS));
        assert_eq!(visits.iter().map(|visit| visit.at / 1_000_000).collect::<Vec<_>>(), [200, 400, 600]);
        // Each is 50 ms later than the one before: the turn takes 250 ms.
        assert_eq!(waited_ms(&visits, 100 * MS), 50.0);
        assert_eq!(demand.representative(7, 100 * MS), visits);
    }

    #[test]
    fn waits_are_those_of_the_textbook() {
        // M/M/1 with a load of one half: as long as a section.
        let many = demand(20 * MS, 1000, 200_000);
        assert_eq!(many.expected_wait_ms(Duration::ZERO), Some(10.0));
        let waited = waited_ms(&many.draw(3), Duration::ZERO);
        assert!((waited / 10.0 - 1.0).abs() < 0.05, "{waited}");
        assert_eq!(many.expected_wait_ms(10 * MS), None);
    }

    #[test]
    fn few_visits_can_stand_for_many() {
        let few = demand(20 * MS, 20, 100);
        let expected = few.expected_wait_ms(4 * MS).unwrap();
        let error = |visits: &[Visit]| (waited_ms(visits, 4 * MS) / expected - 1.0).abs();
        let by_chance = (0..20).map(|seed| error(&few.draw(seed))).sum::<f64>() / 20.0;
        let chosen = (0..20).map(|seed| error(&few.representative(seed, 4 * MS))).fold(0.0, f64::max);
        assert!(chosen < 0.05 && by_chance > 0.2, "{chosen} {by_chance}");
    }
}
