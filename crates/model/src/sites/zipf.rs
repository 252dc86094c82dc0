//! Which of many is used how often.

use crate::Invalid;

use super::chance::Chance;

/// Numbers from 0 on of which each is as likely as a power of one more: the inverse of the cumulated weights, and so
/// exact for every exponent; 0 makes all equally likely.
#[derive(Debug, Clone, PartialEq)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// So many numbers, with weights 1 / (n + 1)^exponent.
    ///
    /// # Errors
    /// When there is none or there are more than a million, or the exponent is not from 0 to 10.
    pub fn new(count: usize, exponent: f64) -> Result<Self, Invalid> {
        Invalid::unless((1..=1_000_000).contains(&count), "there are 1 to a million records")?;
        Invalid::unless((0.0..=10.0).contains(&exponent), "an exponent is from 0 to 10")?;
        let mut sum = 0.0;
        let weight = |rank: usize| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Ok(Self { sums: (1..=count).map(weight).collect() })
    }

    /// The share of a number.
    #[must_use]
    pub fn share(&self, number: usize) -> f64 {
        let before = if number == 0 { 0.0 } else { self.sums[number - 1] };
        (self.sums[number] - before) / self.total()
    }

    fn total(&self) -> f64 {
        self.sums.last().copied().unwrap_or_default()
    }

    pub(crate) fn pick(&self, chance: &mut Chance) -> usize {
        let at = chance.share() * self.total();
        self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_weights() {
        for (exponent, first) in [(0.0, 0.25), (1.0, 12.0 / 25.0), (2.0, 144.0 / 205.0)] {
            let zipf = Zipf::new(4, exponent).unwrap();
            assert!((zipf.share(0) - first).abs() < 1e-12, "{exponent}");
            let mut chance = Chance::new(7, 0);
            let mut found = [0_u32; 4];
            (0..100_000).for_each(|_| found[zipf.pick(&mut chance)] += 1);
            for (number, count) in found.into_iter().enumerate() {
                assert!((f64::from(count) / 1e5 - zipf.share(number)).abs() < 0.006, "{exponent} {found:?}");
            }
        }
        assert!(Zipf::new(0, 1.0).is_err() && Zipf::new(4, -1.0).is_err() && Zipf::new(4, f64::NAN).is_err());
    }
}
