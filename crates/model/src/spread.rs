//! Times that vary.

use crate::{Invalid, is_time, normal};

/// Values by which a varying time is described. Its mean stays exact in sums; what is lost is how values differ
/// within one 256th of them, which takes half a percent from the variance of an exponential tail.
const POINTS: usize = 256;
/// Points of a quantile function that are averaged to one value.
const WITHIN: usize = 32;

/// A time that varies, in milliseconds: values in ascending order that are equally likely.
///
/// All variables are independent of one another.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    values: Vec<f64>,
}

impl Spread {
    /// Always the same.
    ///
    /// # Errors
    /// When it is no length of time.
    pub fn constant(ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(is_time(ms), "a time is finite and not negative")?;
        Ok(Self { values: vec![ms] })
    }

    /// Anything between two bounds, each as likely as the other: what section III-A of the paper finds closest to
    /// the round trips of Figure 5.
    ///
    /// # Errors
    /// When the bounds are not in order, or are no lengths of time.
    pub fn uniform(low_ms: f64, high_ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(
            is_time(low_ms) && is_time(high_ms) && low_ms <= high_ms,
            "bounds are times in ascending order",
        )?;
        Ok(Self::from_quantile(|p| low_ms + p * (high_ms - low_ms)))
    }

    /// Normal, but never negative: what lies below zero counts as zero, so the mean of a spread that is wide
    /// beside its mean is larger than `mean_ms`.
    ///
    /// # Errors
    /// When a parameter is no length of time.
    pub fn normal(mean_ms: f64, deviation_ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(is_time(mean_ms) && is_time(deviation_ms), "mean and deviation are times")?;
        Ok(Self::from_quantile(|p| (mean_ms + deviation_ms * normal::quantile(p)).max(0.0)))
    }

    /// Lognormal with this mean and standard deviation: never negative, with a long tail.
    ///
    /// # Errors
    /// When a parameter is no length of time, or the mean is 0.
    pub fn lognormal(mean_ms: f64, deviation_ms: f64) -> Result<Self, Invalid> {
        let holds = is_time(mean_ms) && mean_ms > 0.0 && is_time(deviation_ms);
        Invalid::unless(holds, "the mean is more than 0, and the deviation is a time")?;
        let variance = (deviation_ms / mean_ms).powi(2).ln_1p();
        let middle = mean_ms.ln() - variance / 2.0;
        Ok(Self::from_quantile(|p| (middle + variance.sqrt() * normal::quantile(p)).exp()))
    }

    /// A floor, as of a network without load, and exponential above it, with this mean excess.
    ///
    /// # Errors
    /// When a parameter is no length of time.
    pub fn exponential(floor_ms: f64, excess_ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(is_time(floor_ms) && is_time(excess_ms), "floor and excess are times")?;
        Ok(Self::from_quantile(|p| floor_ms - excess_ms * (-p).ln_1p()))
    }

    /// What was measured.
    ///
    /// # Errors
    /// When there is nothing, or something is no length of time.
    pub fn samples(measured_ms: &[f64]) -> Result<Self, Invalid> {
        Invalid::unless(!measured_ms.is_empty(), "there is at least one sample")?;
        Invalid::unless(measured_ms.iter().copied().all(is_time), "samples are finite and not negative")?;
        Ok(Self::equally_likely(measured_ms.to_vec()))
    }

    fn from_quantile(quantile: impl Fn(f64) -> f64) -> Self {
        let at = |index: usize| quantile((index as f64 + 0.5) / (POINTS * WITHIN) as f64);
        let value = |point: usize| (0..WITHIN).map(|within| at(point * WITHIN + within)).sum::<f64>();
        Self { values: (0..POINTS).map(|point| value(point) / WITHIN as f64).collect() }
    }

    /// Any number of values that are equally likely.
    fn equally_likely(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        if values.len() <= POINTS {
            return Self { values };
        }
        let mass = 1.0 / values.len() as f64;
        Self::from_masses(values.into_iter().map(|value| (value, mass)))
    }

    /// Ascending values with their probabilities. The mean stays what it is.
    fn from_masses(masses: impl Iterator<Item = (f64, f64)>) -> Self {
        let share = 1.0 / POINTS as f64;
        let (mut values, mut sum, mut room) = (Vec::with_capacity(POINTS), 0.0, share);
        let mut last = 0.0;
        for (value, mut mass) in masses {
            last = value;
            while mass >= room && values.len() < POINTS {
                values.push((sum + value * room) / share);
                (mass, sum, room) = (mass - room, 0.0, share);
            }
            sum += value * mass;
            room -= mass;
        }
        // The probabilities add up to 1 but for rounding: the last value may have been cut short by that.
        if values.len() < POINTS {
            values.push((sum + last * room) / share);
        }
        Self { values }
    }

    /// The values, in ascending order.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// The variance, in square milliseconds.
    #[must_use]
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        self.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / self.values.len() as f64
    }

    /// The value that is not exceeded with probability `p`.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let index = (p * self.values.len() as f64).ceil() as usize;
        self.values[index.clamp(1, self.values.len()) - 1]
    }

    /// One after the other.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let sums = |own: &f64| other.values.iter().map(move |value| own + value).collect::<Vec<_>>();
        Self::equally_likely(self.values.iter().flat_map(sums).collect())
    }

    /// Until all have come: equation 1 of the paper.
    ///
    /// # Panics
    /// When there is nothing to wait for.
    #[must_use]
    pub fn latest(all: &[Self]) -> Self {
        Self::kth(all, all.len())
    }

    /// Until `awaited` of them have come: the order statistic of variables that may differ.
    ///
    /// # Panics
    /// When `awaited` is not between 1 and the number of them.
    #[must_use]
    pub fn kth(all: &[Self], awaited: usize) -> Self {
        assert!((1..=all.len()).contains(&awaited), "one can wait for as many as there are");
        let mut steps: Vec<(f64, usize)> = Vec::new();
        for (index, spread) in all.iter().enumerate() {
            steps.extend(spread.values.iter().map(|value| (*value, index)));
        }
        steps.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let mut come = vec![0_usize; all.len()];
        let mut before = 0.0;
        let mut masses = Vec::with_capacity(steps.len());
        for (value, index) in steps {
            come[index] += 1;
            let shares = come.iter().zip(all).map(|(come, spread)| *come as f64 / spread.values.len() as f64);
            let now = at_least(awaited, shares);
            masses.push((value, now - before));
            before = now;
        }
        let values = Self::from_masses(masses.into_iter());
        if all.iter().all(|spread| spread.values.len() == 1) {
            return Self { values: vec![values.values[0]] };
        }
        values
    }
}

/// The probability that at least `awaited` of some independent events happen.
pub(crate) fn at_least(awaited: usize, probabilities: impl Iterator<Item = f64>) -> f64 {
    // How many have happened; the last place is for `awaited` and more.
    let mut counts = vec![0.0; awaited + 1];
    counts[0] = 1.0;
    for probability in probabilities {
        counts[awaited] += counts[awaited - 1] * probability;
        for count in (1..awaited).rev() {
            counts[count] = counts[count] * (1.0 - probability) + counts[count - 1] * probability;
        }
        counts[0] *= 1.0 - probability;
    }
    counts[awaited]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, error: f64) {
        assert!((found / expected - 1.0).abs() <= error, "{found} instead of {expected}");
    }

    fn several(spread: &Spread, count: usize) -> Vec<Spread> {
        vec![spread.clone(); count]
    }

    #[test]
    fn means_and_variances_are_those_of_the_textbook() {
        let uniform = Spread::uniform(2.0, 8.0).unwrap();
        near(uniform.mean(), 5.0, 1e-9);
        near(uniform.variance(), 3.0, 1e-4);
        let normal = Spread::normal(100.0, 10.0).unwrap();
        near(normal.mean(), 100.0, 1e-9);
        near(normal.variance(), 100.0, 0.01);
        let lognormal = Spread::lognormal(50.0, 25.0).unwrap();
        near(lognormal.mean(), 50.0, 1e-4);
        near(lognormal.variance(), 625.0, 0.02);
        let exponential = Spread::exponential(20.0, 5.0).unwrap();
        near(exponential.mean(), 25.0, 1e-4);
        near(exponential.variance(), 25.0, 0.01);
        near(exponential.quantile(0.5), 20.0 + 5.0 * 2.0_f64.ln(), 1e-3);
    }

    #[test]
    fn the_latest_of_several_is_that_of_the_closed_form() {
        for count in [2, 3, 5, 9] {
            let n = count as f64;
            let uniform = Spread::uniform(0.0, 1.0).unwrap();
            near(Spread::latest(&several(&uniform, count)).mean(), n / (n + 1.0), 1e-4);
            let exponential = Spread::exponential(0.0, 7.0).unwrap();
            let harmonic: f64 = (1..=count).map(|i| 1.0 / i as f64).sum();
            near(Spread::latest(&several(&exponential, count)).mean(), 7.0 * harmonic, 1e-3);
        }
        let normal = Spread::normal(10.0, 1.0).unwrap();
        near(Spread::latest(&several(&normal, 2)).mean(), 10.0 + 1.0 / std::f64::consts::PI.sqrt(), 1e-4);
    }

    #[test]
    fn the_kth_of_several_is_that_of_the_closed_form() {
        let (uniform, exponential) =
            (Spread::uniform(0.0, 1.0).unwrap(), Spread::exponential(0.0, 1.0).unwrap());
        for awaited in 1..=5 {
            near(Spread::kth(&several(&uniform, 5), awaited).mean(), awaited as f64 / 6.0, 1e-3);
            let expected: f64 = (0..awaited).map(|i| 1.0 / (5 - i) as f64).sum();
            near(Spread::kth(&several(&exponential, 5), awaited).mean(), expected, 2e-3);
        }
        // The first of two exponential times with different rates.
        let both = [Spread::exponential(0.0, 2.0).unwrap(), Spread::exponential(0.0, 3.0).unwrap()];
        near(Spread::kth(&both, 1).mean(), 1.0 / (1.0 / 2.0 + 1.0 / 3.0), 1e-3);
    }

    #[test]
    fn constants_stay_exact() {
        let all = [1.5, 9.0, 4.0].map(|ms| Spread::constant(ms).unwrap());
        assert_eq!(Spread::kth(&all, 2), Spread::constant(4.0).unwrap());
        assert_eq!(Spread::latest(&all), Spread::constant(9.0).unwrap());
        assert_eq!(all[0].plus(&all[2]), Spread::constant(5.5).unwrap());
        let mixed = [Spread::constant(5.0).unwrap(), Spread::uniform(0.0, 4.0).unwrap()];
        near(Spread::latest(&mixed).mean(), 5.0, 1e-9);
    }

    #[test]
    fn sums_keep_mean_and_nearly_the_variance() {
        let (one, other) = (Spread::lognormal(3.0, 2.0).unwrap(), Spread::uniform(1.0, 2.0).unwrap());
        let sum = one.plus(&other);
        near(sum.mean(), one.mean() + other.mean(), 1e-9);
        near(sum.variance(), one.variance() + other.variance(), 0.02);
    }

    #[test]
    fn samples_are_what_was_measured() {
        let few = Spread::samples(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((few.quantile(0.0), few.quantile(0.5), few.quantile(1.0)), (1.0, 2.0, 3.0));
        let many: Vec<f64> = (0..1000).map(|i| f64::from(i % 100)).collect();
        let spread = Spread::samples(&many).unwrap();
        assert_eq!(spread.values.len(), POINTS);
        near(spread.mean(), 49.5, 1e-9);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        assert!(Spread::constant(-1.0).is_err() && Spread::constant(f64::NAN).is_err());
        assert!(Spread::uniform(2.0, 1.0).is_err() && Spread::lognormal(0.0, 1.0).is_err());
        assert!(Spread::samples(&[]).is_err() && Spread::samples(&[1.0, f64::INFINITY]).is_err());
    }
}
