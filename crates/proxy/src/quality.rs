//! How good one direction of a link is.

use std::fmt;
use std::time::Duration;

/// One direction of a link. The default is one that takes no time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quality {
    /// How long it takes, on average. A round trip takes that of both directions.
    pub delay: Duration,
    /// By how much that varies: anything up to so much more or less, each as likely as the other.
    pub jitter: Duration,
    /// The share of segments that are lost, and sent again later.
    pub loss: f64,
    /// Bits a second, of all connections together; without it there is no bound.
    pub bandwidth: Option<u64>,
}

impl Quality {
    /// Sets one of `delay`, `jitter`, `loss` and `bandwidth`, as `25ms`, `0.1%` and `10mbit` are written.
    ///
    /// # Errors
    /// What is wrong with the name or the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "delay" => self.delay = time(value)?,
            "jitter" => self.jitter = time(value)?,
            "loss" => self.loss = share(value)?,
            "bandwidth" => self.bandwidth = Some(bits(value)?),
            _ => return Err(format!("`{name}` is not known: it is delay, jitter, loss or bandwidth")),
        }
        Ok(())
    }

    /// Whether all of it can be.
    ///
    /// # Errors
    /// What cannot.
    pub fn check(&self) -> Result<(), String> {
        if self.jitter > self.delay {
            return Err("the jitter is larger than the delay".to_owned());
        }
        if !(0.0..=0.9).contains(&self.loss) {
            return Err("at most 90% are lost".to_owned());
        }
        if self.bandwidth == Some(0) {
            return Err("a bandwidth is more than 0; cut the link instead".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {:?}", self.delay)?;
        if !self.jitter.is_zero() {
            write!(f, ", jitter {:?}", self.jitter)?;
        }
        if self.loss > 0.0 {
            write!(f, ", loss {}%", self.loss * 100.0)?;
        }
        self.bandwidth.map_or(Ok(()), |bits| write!(f, ", bandwidth {bits} bit/s"))
    }
}

/// The number in front of one of some units, multiplied with what the unit stands for.
fn with_unit(text: &str, units: &[(&str, f64)], expected: &str) -> Result<f64, String> {
    let end = text.trim_end_matches(|character: char| !character.is_ascii_digit()).len();
    let (number, unit) = text.split_at(end);
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    match (number, factor) {
        (Some(number), Some(factor)) => Ok(number * factor),
        _ => Err(format!("`{text}` is no {expected}")),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let ms = with_unit(text, &[("us", 1e-3), ("ms", 1.0), ("s", 1e3)], "time, such as 25ms, 200us or 1.5s")?;
    Duration::try_from_secs_f64(ms / 1e3)
        .ok()
        .filter(|time| *time <= Duration::from_secs(3600))
        .ok_or_else(|| format!("`{text}` is longer than an hour"))
}

fn share(text: &str) -> Result<f64, String> {
    with_unit(text, &[("%", 0.01), ("", 1.0)], "share, such as 0.1% or 0.001")
}

fn bits(text: &str) -> Result<u64, String> {
    let units = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    with_unit(text, &units, "bandwidth, such as 10mbit or 1gbit").map(|bits| bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        let mut quality = Quality::default();
        for (name, value) in
            [("delay", "25ms"), ("jitter", "500us"), ("loss", "0.1%"), ("bandwidth", "10mbit")]
        {
            quality.set(name, value).unwrap();
        }
        let expected = Quality {
            delay: Duration::from_millis(25),
            jitter: Duration::from_micros(500),
            loss: 0.001,
            bandwidth: Some(10_000_000),
        };
        assert_eq!(quality, expected);
        assert_eq!(quality.check(), Ok(()));
        assert_eq!(quality.to_string(), "delay 25ms, jitter 500µs, loss 0.1%, bandwidth 10000000 bit/s");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut quality = Quality::default();
        for (name, value) in [
            ("delay", "25"),
            ("delay", "-1ms"),
            ("delay", "ms"),
            ("delay", "2000000s"),
            ("loss", "x%"),
            ("bandwidth", "10"),
            ("speed", "1ms"),
        ] {
            assert!(quality.set(name, value).is_err(), "{name} {value}");
        }
        assert!(Quality { jitter: Duration::from_millis(1), ..Quality::default() }.check().is_err());
        assert!(Quality { loss: 1.0, ..Quality::default() }.check().is_err());
        assert!(Quality { bandwidth: Some(0), ..Quality::default() }.check().is_err());
    }
}
