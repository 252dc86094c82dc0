//! Links as they are written: `LISTEN=TO,delay=25ms,up.loss=0.1%`.

use std::str::FromStr;

use crate::{Direction, Quality};

/// A link to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Where it listens.
    pub listen: String,
    /// Where it connects to.
    pub to: String,
    /// From who connects, to whom.
    pub up: Quality,
    /// Back.
    pub down: Quality,
}

impl Spec {
    /// A link that takes no time.
    #[must_use]
    pub fn new(listen: &str, to: &str) -> Self {
        let (up, down) = (Quality::default(), Quality::default());
        Self { listen: listen.to_owned(), to: to.to_owned(), up, down }
    }

    /// Sets a quality of both directions, or of one: `delay`, `up.delay`, `down.delay`.
    ///
    /// # Errors
    /// What is wrong with the name or the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name.split_once('.') {
            Some(("up", name)) => self.up.set(name, value),
            Some(("down", name)) => self.down.set(name, value),
            Some((direction, _)) => Err(format!("`{direction}` is no direction: it is up or down")),
            None => self.up.set(name, value).and_then(|()| self.down.set(name, value)),
        }
    }

    /// The quality of a direction.
    #[must_use]
    pub fn quality(&self, direction: Direction) -> Quality {
        match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let addresses = parts.next().and_then(|part| part.split_once('='));
        let (listen, to) = addresses.ok_or_else(|| format!("`{text}` does not begin with LISTEN=TO"))?;
        let mut spec = Self::new(listen, to);
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` has no value"))?;
            spec.set(name, value)?;
        }
        spec.up.check().and_then(|()| spec.down.check()).map_err(|problem| format!("`{text}`: {problem}"))?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_link_has_two_addresses_and_what_it_is_like() {
        let spec: Spec = "127.0.0.1:0=[::1]:2181, delay=25ms, down.delay=5ms, up.loss=1%".parse().unwrap();
        assert_eq!((spec.listen.as_str(), spec.to.as_str()), ("127.0.0.1:0", "[::1]:2181"));
        assert_eq!(spec.quality(Direction::Up).delay, Duration::from_millis(25));
        assert_eq!(spec.quality(Direction::Up).loss, 0.01);
        assert_eq!(
            spec.quality(Direction::Down),
            Quality { delay: Duration::from_millis(5), ..Quality::default() }
        );
    }

    #[test]
    fn mistakes_are_said() {
        for (text, said) in [
            ("127.0.0.1:1", "does not begin with LISTEN=TO"),
            ("a:1=b:2,delay", "`delay` has no value"),
            ("a:1=b:2,left.delay=1ms", "`left` is no direction"),
            ("a:1=b:2,delay=1ms,jitter=2ms", "the jitter is larger"),
        ] {
            let problem = text.parse::<Spec>().unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
