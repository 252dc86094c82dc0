//! The Markov chain of the paper's Figure 6.

use crate::spread::{Spread, at_least};
use crate::{Invalid, is_time};

/// Longest round trip in units of time, so that a unit that is too small is an error and not a long wait.
const UNITS_MAX: usize = 1 << 20;

/// The paper's model of rounds that follow one another: a coordinator asks, waits for replies, and asks again.
///
/// Time goes in units. State (i, j, ...) means that the reply of the first participant is i units away, that of the
/// second one j, and so on. Each step takes one unit from all that are positive; from (0, 0, ...) the next round
/// begins, with round trips drawn from the distribution ψ.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The probability of a round trip of that many units: the paper's ψ.
    psi: Vec<f64>,
    unit_ms: f64,
}

impl Chain {
    /// A chain for one distribution of round trips, rounded to units.
    ///
    /// # Errors
    /// When the unit is not positive, or far smaller than the round trips.
    pub fn new(round_trip: &Spread, unit_ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(is_time(unit_ms) && unit_ms > 0.0, "the unit is more than 0")?;
        let units = |ms: &f64| (ms / unit_ms).round();
        let values = round_trip.values();
        let longest = values.iter().map(units).fold(0.0, f64::max);
        Invalid::unless(longest < UNITS_MAX as f64, "a round trip is at most a million units")?;
        let mut psi = vec![0.0; longest as usize + 1];
        for value in values {
            psi[units(value) as usize] += 1.0 / values.len() as f64;
        }
        Ok(Self { psi, unit_ms })
    }

    /// How long a round takes on average until `awaited` of the replies of `participants` are there.
    ///
    /// With all of them awaited this is the expectation of equation 1.
    ///
    /// # Panics
    /// When `awaited` is not between 1 and `participants`.
    #[must_use]
    pub fn round_ms(&self, participants: usize, awaited: usize) -> f64 {
        assert!((1..=participants).contains(&awaited), "one can wait for as many as there are");
        let late = |cumulative: f64| 1.0 - at_least(awaited, std::iter::repeat_n(cumulative, participants));
        self.cumulative().map(late).sum::<f64>() * self.unit_ms
    }

    /// The stationary probability of (0, 0, ...): the share of steps at which a round begins.
    ///
    /// Between two visits lie as many steps as the longest round trip has units, and the one in which it was drawn.
    /// So the chain as it is drawn makes each round one unit longer than the replies take: its cycle is
    /// `unit + round_ms`.
    #[must_use]
    pub fn beginning(&self, participants: usize) -> f64 {
        1.0 / (1.0 + self.round_ms(participants, participants) / self.unit_ms)
    }

    /// The probability that a round trip takes at most 0, 1, ... units.
    fn cumulative(&self) -> impl Iterator<Item = f64> + '_ {
        self.psi.iter().scan(0.0, |sum, probability| {
            *sum += probability;
            Some(f64::min(*sum, 1.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(psi: &[f64]) -> Chain {
        Chain { psi: psi.to_vec(), unit_ms: 1.0 }
    }

    /// The stationary probability of (0, 0), by walking the two-dimensional chain as the paper states it.
    fn walked(psi: &[f64]) -> f64 {
        let size = psi.len();
        let mut now = vec![vec![0.0; size]; size];
        now[0][0] = 1.0;
        // Half of the probability stays where it is, so that chains with a period settle too.
        for _ in 0..4000 {
            let mut next: Vec<Vec<f64>> =
                now.iter().map(|row| row.iter().map(|probability| probability / 2.0).collect()).collect();
            for i in 0..size {
                for j in 0..size {
                    if i + j > 0 {
                        next[i.saturating_sub(1)][j.saturating_sub(1)] += now[i][j] / 2.0;
                    } else {
                        for (k, one) in psi.iter().enumerate() {
                            for (l, other) in psi.iter().enumerate() {
                                next[k][l] += now[0][0] * one * other / 2.0;
                            }
                        }
                    }
                }
            }
            now = next;
        }
        now[0][0]
    }

    #[test]
    fn the_stationary_probability_is_that_of_the_chain_as_it_is_drawn() {
        for psi in [vec![0.0, 0.0, 1.0], vec![0.25; 4], vec![0.1, 0.0, 0.6, 0.2, 0.1]] {
            let (solved, walked) = (chain(&psi).beginning(2), walked(&psi));
            assert!((solved - walked).abs() < 1e-9, "{psi:?}: {solved}, {walked}");
        }
    }

    #[test]
    fn a_round_is_the_largest_of_its_round_trips() {
        // Two round trips of 1 or 3 units: both are 1 once in four times.
        assert!((chain(&[0.0, 0.5, 0.0, 0.5]).round_ms(2, 2) - 2.5).abs() < 1e-12);
        assert!((chain(&[0.0, 0.5, 0.0, 0.5]).round_ms(2, 1) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn with_small_units_it_comes_to_what_the_distribution_says() {
        for spread in [Spread::uniform(5.0, 15.0).unwrap(), Spread::lognormal(10.0, 4.0).unwrap()] {
            for (participants, awaited) in [(2, 2), (4, 2), (4, 4)] {
                let direct = Spread::kth(&vec![spread.clone(); participants], awaited).mean();
                let by_chain = Chain::new(&spread, 0.01).unwrap().round_ms(participants, awaited);
                assert!((by_chain / direct - 1.0).abs() < 1e-3, "{by_chain}, {direct}");
            }
        }
    }

    #[test]
    fn units_that_make_no_sense_are_refused() {
        let spread = Spread::constant(1000.0).unwrap();
        assert!(Chain::new(&spread, 0.0).is_err() && Chain::new(&spread, 1e-6).is_err());
    }
}
