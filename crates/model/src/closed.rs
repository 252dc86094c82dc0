//! Locks that a given number of clients want again and again.
//!
//! M/G/1 with a finite source, solved at the moments when the lock is given back: how many wait then is a Markov
//! chain. Each time may depend on how many that are, which is why it is solved that way.

use crate::contention::{Crowd, Lock, Moments, Prediction, gamma};
use crate::primitive::Extra;

/// Points by which the time that the lock is occupied is described.
const TIMES: usize = 16;
/// Nobody is away for less: rates stay finite.
const AWAY_MIN_MS: f64 = 1e-6;
/// Rounds of the fixed point of how long one waits, and what that costs.
const ROUNDS: usize = 12;

/// What follows from occupations that are known.
struct Balance {
    /// The probability that nobody waits when the lock is given back, then that one does, and so on.
    left: Vec<f64>,
    /// The mean time from when it is given back until it is given back again.
    between_ms: f64,
}

impl Lock {
    pub(crate) fn closed(&self, clients: u32, think_ms: f64) -> Prediction {
        let count = clients as usize;
        let away_ms = (think_ms + self.write_ms()).max(AWAY_MIN_MS);
        let first = self.own.plus(self.free);
        let mut wait_ms = first.mean;
        let mut found = self.prediction(0.0, 0.0, self.free, 0.0, first.mean);
        for _ in 0..ROUNDS {
            let extra = |waiting: usize| {
                self.extra(&Crowd {
                    wait_ms,
                    wait_variation: 1.0 / waiting as f64,
                    contenders: waiting as f64,
                    contenders_vary: false,
                    newcomers_per_ms: (count - waiting) as f64 / away_ms,
                })
            };
            let extras: Vec<Extra> = (1..count).map(extra).collect();
            let next: Vec<Moments> = extras.iter().map(|extra| self.own.plus(*extra)).collect();
            let balance = Balance::of(first, &next, away_ms);
            let waiting = 1.0 - balance.left[0];
            let mean = |part: fn(&Extra) -> f64| {
                let sum: f64 =
                    extras.iter().zip(&balance.left[1..]).map(|(extra, share)| part(extra) * share).sum();
                sum / waiting.max(f64::MIN_POSITIVE)
            };
            let extra =
                Extra { mean_ms: mean(|it| it.mean_ms), square: 0.0, requests: mean(|it| it.requests) };
            // Everybody takes part once in as many turns as there are clients.
            let latency_ms = count as f64 * balance.between_ms - self.rest_ms(think_ms);
            let without_wait = self.prediction(0.0, waiting, extra, 1.0 / balance.between_ms, 0.0);
            found = Prediction { latency_ms, ..without_wait };
            let all_wait_ms = (latency_ms - without_wait.latency_ms).max(0.0);
            wait_ms = (wait_ms + all_wait_ms / waiting.max(1e-9)) / 2.0;
        }
        Prediction { busy_ms: self.saturated_ms(0.0), ..found }
    }
}

impl Balance {
    /// `first` is how long the lock is occupied by who finds it free, `next[n - 1]` by one of n who wait, and
    /// `away_ms` how long a client stays away from it.
    fn of(first: Moments, next: &[Moments], away_ms: f64) -> Self {
        let clients = next.len() + 1;
        // How many come back meanwhile, from each state.
        let mut come = vec![come_back(first, clients - 1, away_ms)];
        come.extend(
            next.iter().enumerate().map(|(index, time)| come_back(*time, clients - 1 - index, away_ms)),
        );
        // Who is served from a state goes, so as many more have to come as are left above.
        let above =
            |from: usize, least: usize| -> f64 { come[from][least - from.saturating_sub(1)..].iter().sum() };
        let mut left = vec![1.0];
        while left.len() < clients {
            let state = left.len();
            // As often up across a boundary between states as down, which goes by one at a time.
            let up: f64 = left.iter().enumerate().map(|(from, share)| share * above(from, state)).sum();
            let down = come[state][0].max(f64::MIN_POSITIVE);
            let share = up / down;
            if share > 1e100 {
                left.iter_mut().for_each(|share_below| *share_below /= share);
                left.push(1.0);
            } else {
                left.push(share);
            }
        }
        let sum: f64 = left.iter().sum();
        left.iter_mut().for_each(|share| *share /= sum);
        let occupied: f64 = left[1..].iter().zip(next).map(|(share, time)| share * time.mean).sum();
        let free = left[0] * (away_ms / clients as f64 + first.mean);
        Self { left, between_ms: occupied + free }
    }
}

/// The probabilities that of `away` clients none, one, ... come back within a time.
fn come_back(time: Moments, away: usize, away_ms: f64) -> Vec<f64> {
    let mut sums = vec![0.0; away + 1];
    for ms in gamma(time.mean, time.variation(), TIMES) {
        let stays = (-ms / away_ms).exp();
        // From the side where probabilities do not vanish.
        let (rare, is_turned) = if stays < 0.5 { (stays, true) } else { (1.0 - stays, false) };
        let mut probability = (1.0 - rare).powi(away as i32);
        for happen in 0..=away {
            let come = if is_turned { away - happen } else { happen };
            sums[come] += probability / TIMES as f64;
            probability *= (away - happen) as f64 / (happen + 1) as f64 * rare / (1.0 - rare);
        }
    }
    sums
}
