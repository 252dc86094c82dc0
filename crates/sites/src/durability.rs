//! For which znodes one site is not enough: an answer that changes them waits until another site has the change.
//!
//! ```text
//! two-sites /eu          what changes it, or something below it, is answered when two sites have it
//! one-site /eu/cache     there the site that carries it out is enough again
//! ```
//! Of two lines on one place in the tree the deeper one counts, and of two on the same znode the later one.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;

use stoa_wire::path;

use crate::paths::{is_at_or_below, upward};
use crate::rules::{LINES_MAX, Rule};

/// Where changes have to be at two sites.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durability {
    /// Of each subtree that is spoken of, whether two sites have to have it.
    said: BTreeMap<String, bool>,
}

impl Durability {
    /// Reads the lines on this, and passes over all others: [`crate::Rules`] names those that cannot be used.
    #[must_use]
    pub fn parse(content: &[u8]) -> Self {
        let mut durability = Self::default();
        for line in content.split(|byte| *byte == b'\n').take(LINES_MAX) {
            let line = core::str::from_utf8(line).unwrap_or_default();
            match Rule::parse(line, |_| None) {
                Ok(Some(Rule::TwoSites(path))) => durability.say(path, true),
                Ok(Some(Rule::OneSite(path))) => durability.say(path, false),
                _ => {}
            }
        }
        durability
    }

    fn say(&mut self, path: String, is_two: bool) {
        self.said.insert(path, is_two);
    }

    /// Whether two sites are never needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.said.values().any(|is_two| *is_two)
    }

    /// Whether two sites have to have what changes a znode. What is below `/zookeeper` is the system's: part of it is
    /// each site's own, and no other site ever has that.
    #[must_use]
    pub fn needs_two(&self, path: &str) -> bool {
        if self.said.is_empty() || is_at_or_below(path, "/zookeeper") {
            return false;
        }
        let said = upward(path).chain(["/"]).find_map(|top| self.said.get(top));
        said.copied().unwrap_or(false)
    }
}

/// A path that such a line may speak of.
pub(crate) fn durable(subtree: &str) -> Result<String, &'static str> {
    if !path::is_valid(subtree) {
        return Err("a path is wrong");
    }
    if is_at_or_below(subtree, "/zookeeper") {
        return Err("what is below /zookeeper is the system's");
    }
    Ok(subtree.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn the_deeper_line_counts_and_of_the_same_znode_the_later_one() {
        let text = "site.1=a:hub;b:1\npin /eu b\n two-sites\t/eu \r\none-site /eu/cache\ntwo-sites /eu/cache/keys\n\
            two-sites /x\none-site /x\n";
        let durability = Durability::parse(text.as_bytes());
        assert!(!durability.is_empty());
        for (path, is_two) in [
            ("/eu", true),
            ("/eu/a/b", true),
            ("/eu/cache", false),
            ("/eu/cache/a", false),
            ("/eu/cache/keys/a", true),
            ("/eu/cached", true),
            ("/europe", false),
            ("/x/y", false),
            ("/", false),
            ("/zookeeper/sites", false),
        ] {
            assert_eq!(durability.needs_two(path), is_two, "{path}");
        }
    }

    #[test]
    fn the_root_is_everything_but_the_systems() {
        let durability = Durability::parse(b"two-sites /\none-site /fast");
        let needed = ["/", "/a/b", "/fast", "/fast/a", "/zookeeper", "/zookeeper/config", "/zookeepers"]
            .map(|path| durability.needs_two(path));
        assert_eq!(needed, [true, true, false, false, false, false, true]);
    }

    #[test]
    fn who_says_nothing_of_it_needs_one_site() {
        for text in ["", "pin /a hub\ntokens off\n# two-sites /a", "one-site /a", "two-sites /a\none-site /a"]
        {
            let durability = Durability::parse(text.as_bytes());
            assert!(durability.is_empty() && !durability.needs_two("/a/b"), "{text}");
        }
    }

    #[test]
    fn bad_lines_are_passed_over_and_named() {
        for line in [
            "two-sites",
            "two-sites a",
            "two-sites /a/",
            "two-sites /a /b",
            "two-sites /zookeeper",
            "two-sites /zookeeper/config",
            "one-site",
            "one-site /a frankfurt",
            "two-site /a",
            "durability /a",
        ] {
            let text = format!("two-sites /x\n{line}\none-site /x/y");
            assert_eq!(Durability::parse(text.as_bytes()), Durability::parse(b"two-sites /x\none-site /x/y"));
            let (_, bad) = Rules::parse(text.as_bytes(), |_| None);
            assert!(matches!(bad.as_slice(), [bad] if bad.starts_with("line 2 (")), "{line}: {bad:?}");
        }
    }

    #[test]
    fn hostile_content_is_bounded() {
        assert!(Durability::parse(&[0xff; 1 << 20]).is_empty());
        let lines: String =
            (0..5000).map(|number| "two-sites /".to_string() + &number.to_string() + "\n").collect();
        let durability = Durability::parse(lines.as_bytes());
        assert!(durability.needs_two("/999") && !durability.needs_two("/1000"));
    }
}
