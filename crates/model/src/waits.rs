//! How long is waited for a lock whose turns depend on how long was waited for them.
//!
//! What comes on top of a turn mostly comes to those who have waited shortly, so it does not add up over a long queue:
//! a mean over all waits would predict far longer ones. Where requests come at random, the density of waits follows
//! from how often they cross each length, upwards when somebody comes and downwards as time goes by (Brill and
//! Posner 1977):
//!
//! ```text
//! f(x) = rate (free P(first > x) + integral of f(y) P(turn(y) > x - y) over y from 0 to x)
//! ```

use crate::contention::Moments;
use crate::primitive::Extra;

/// Steps of an average turn.
const STEPS: f64 = 32.0;
/// More of them are not looked at: the lock has hardly any time to spare.
const STEPS_MAX: usize = 20_000;
/// What is left out of a tail.
const NEGLIGIBLE: f64 = 1e-9;

/// What those find who come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// The share that waits.
    pub(crate) waiting: f64,
    /// How long those wait, on average.
    pub(crate) mean_ms: f64,
    /// What comes on top for them.
    pub(crate) extra: Extra,
}

/// A time of which mean and deviation are known, as a floor and something exponential above it.
#[derive(Debug, Clone, Copy)]
struct Tail {
    floor: f64,
    excess: f64,
}

impl Tail {
    fn new(moments: Moments) -> Self {
        let deviation = (moments.square - moments.mean * moments.mean).max(0.0).sqrt().min(moments.mean);
        Self { floor: moments.mean - deviation, excess: deviation }
    }

    /// The integral of the tail from 0, where before that it is 1.
    fn integral(self, to: f64) -> f64 {
        let above = to - self.floor;
        if above <= 0.0 {
            to
        } else if self.excess > 0.0 {
            self.floor + self.excess * -(-above / self.excess).exp_m1()
        } else {
            self.floor
        }
    }

    /// How likely the time is longer than one that is anything between two.
    fn between(self, from: f64, to: f64) -> f64 {
        (self.integral(to) - self.integral(from)) / (to - from)
    }

    /// What is longer is negligible.
    fn end(self) -> f64 {
        self.floor - self.excess * NEGLIGIBLE.ln()
    }
}

/// The waits for turns of `own` and what comes on top of them, by how long was waited, or of `first` when nothing was.
/// `None` when that does not come to an end.
pub(crate) fn waits(
    per_ms: f64,
    own: Moments,
    first: Moments,
    on_top: impl Fn(f64) -> Extra,
) -> Option<Waits> {
    let step = own.mean / STEPS;
    let first = Tail::new(first);
    // What waits of one length lead to, and the shares of all lengths, where nobody waits for a share of 1.
    let (mut turns, mut shares) = (Vec::<Tail>::new(), Vec::<f64>::new());
    let (mut waiting, mut sum, mut top) = (0.0, 0.0, Extra::default());
    let mut reach = first.end();
    while turns.len() < STEPS_MAX {
        let index = turns.len();
        let from = index as f64 * step;
        let nearest = index.saturating_sub((reach / step).ceil() as usize);
        let earlier = (nearest..index).map(|other| {
            let apart = (index - other) as f64 * step;
            shares[other] * turns[other].between(apart - step / 2.0, apart + step / 2.0)
        });
        let crossing = first.between(from, from + step) + earlier.sum::<f64>();
        // Half of those with the same wait are below it.
        let share = per_ms * step * crossing / (1.0 - per_ms * step / 2.0);
        let wait_ms = from + step / 2.0;
        let extra = on_top(wait_ms);
        let turn = Tail::new(own.plus(extra));
        reach = reach.max(turn.end());
        turns.push(turn);
        shares.push(share);
        waiting += share;
        sum += share * wait_ms;
        top.mean_ms += share * extra.mean_ms;
        top.square += share * extra.square;
        top.requests += share * extra.requests;
        if from > reach && share * (from / step) < NEGLIGIBLE * waiting {
            let each = |sum: f64| sum / waiting;
            let extra =
                Extra { mean_ms: each(top.mean_ms), square: each(top.square), requests: each(top.requests) };
            return Some(Waits { waiting: waiting / (1.0 + waiting), mean_ms: each(sum), extra });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mean: f64, variance: f64) -> Moments {
        Moments { mean, square: mean * mean + variance }
    }

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 2e-3, "{found} instead of {expected}");
    }

    #[test]
    fn without_anything_on_top_it_is_a_queue_of_the_textbook() {
        for load in [0.2, 0.5, 0.9] {
            // M/D/1 and M/M/1.
            for (variance, wait_ms) in [(0.0, 5.0), (100.0, 10.0)] {
                let own = moments(10.0, variance);
                let found = waits(load / 10.0, own, own, |_| Extra::default()).unwrap();
                near(found.waiting, load);
                near(found.mean_ms * found.waiting, load * wait_ms / (1.0 - load));
            }
        }
    }

    #[test]
    fn what_comes_to_short_waits_does_not_add_up() {
        // A simulation of the synchronous queue: round trips of 100.1 ms, commits of 0.6 ms, sections of 10 ms on
        // average, a request every 138.75 ms. 2,000,000 requests took 473.4 ms each.
        let (read_ms, write_ms) = (100.1, 100.7);
        let own = moments(write_ms + 10.0, 100.0);
        let first = moments(write_ms + 10.0 + read_ms, 100.0);
        let on_top = |wait_ms: f64| {
            let ms = if wait_ms <= read_ms { read_ms - wait_ms } else { (2.0 * read_ms - wait_ms).max(0.0) };
            Extra { mean_ms: ms, square: ms * ms, requests: 0.0 }
        };
        let found = waits(1.0 / 138.75, own, first, on_top).unwrap();
        let on_top_ms = (1.0 - found.waiting) * read_ms + found.waiting * found.extra.mean_ms;
        near(write_ms + found.waiting * found.mean_ms + on_top_ms, 473.4);
    }

    #[test]
    fn a_lock_that_is_asked_for_too_much_has_no_waits() {
        let own = moments(10.0, 0.0);
        assert!(waits(0.11, own, own, |_| Extra::default()).is_none());
    }
}
