//! What the operator says about where tokens are.
//!
//! ```text
//! pin /eu frankfurt     its tokens are at this site
//! stay /d               they are not moved from where they are
//! together /b /c ...    their tokens move as one
//! tokens off            no token leaves the hub for the sake of who asks
//! two-sites /eu         one site is not enough to answer what changes it: see `Durability`
//! one-site /eu/cache    there it is
//! # a remark
//! ```
//! What cannot be read is passed over, so that one bad line does not undo the others. Of two lines on one place in the
//! tree the deeper one counts.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use stoa_wire::path;

use crate::Site;
use crate::durability::durable;
use crate::paths::{is_at_or_below, is_movable, upward};

/// More lines are not read.
pub(crate) const LINES_MAX: usize = 1000;
/// Most subtrees that move together by one line.
const TOGETHER_MAX: usize = 100;
/// Up to so many lines are looked through one by one.
const FEW: usize = 8;
/// So many bad lines are named, and so much of each.
const NAMED_MAX: usize = 5;
const NAMED_CHARS: usize = 80;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The tokens of a subtree are at this site.
    Pin(String, Site),
    /// They are not moved.
    Stay(String),
    /// The tokens of these subtrees move as one.
    Together(Vec<String>),
    /// No token leaves the hub for the sake of who asks.
    Off,
    /// What changes a subtree is answered when two sites have it.
    TwoSites(String),
    /// One site is enough for that.
    OneSite(String),
}

impl Rule {
    /// Reads a line; `None` when there is nothing on it. `site` knows the names of sites.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str, site: impl Fn(&str) -> Option<Site>) -> Result<Option<Self>, &'static str> {
        let mut words = line.split_whitespace();
        let Some(verb) = words.next().filter(|verb| !verb.starts_with('#')) else { return Ok(None) };
        let words: Vec<&str> = words.collect();
        let rule = match (verb, words.as_slice()) {
            ("pin", [subtree, to]) => Self::Pin(movable(subtree)?, site(to).ok_or("there is no such site")?),
            ("pin", _) => return Err("it takes a path and a site"),
            ("stay", [subtree]) => Self::Stay(movable(subtree)?),
            ("stay", _) => return Err("it takes a path"),
            ("together", subtrees @ [_, _, ..]) if subtrees.len() <= TOGETHER_MAX => {
                let all: Vec<String> = subtrees.iter().map(|it| movable(it)).collect::<Result<_, _>>()?;
                let lies_in =
                    |at: usize| (0..all.len()).any(|it| it != at && is_at_or_below(&all[at], &all[it]));
                if (0..all.len()).any(lies_in) {
                    return Err("one of the subtrees lies in another one");
                }
                Self::Together(all)
            }
            ("together", _) => return Err("it takes two paths or more, up to 100"),
            ("tokens", ["off"]) => Self::Off,
            ("tokens", _) => return Err("off is all that is said of tokens"),
            ("two-sites", [subtree]) => Self::TwoSites(durable(subtree)?),
            ("one-site", [subtree]) => Self::OneSite(durable(subtree)?),
            ("two-sites" | "one-site", _) => return Err("it takes a path"),
            _ => {
                return Err("a line begins with pin, stay, together, tokens off, two-sites or one-site");
            }
        };
        Ok(Some(rule))
    }
}

/// A path that a rule may speak of.
fn movable(subtree: &str) -> Result<String, &'static str> {
    if !path::is_valid(subtree) {
        return Err("a path is wrong");
    }
    if !is_movable(subtree) {
        return Err("the root and /zookeeper are not moved");
    }
    Ok(subtree.to_owned())
}

/// All that the operator says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pins: BTreeMap<String, Site>,
    stays: BTreeSet<String>,
    together: Vec<Vec<String>>,
    /// In which of them each subtree is.
    groups: BTreeMap<String, usize>,
    is_off: bool,
    /// The pins and stays, the deepest first, where they are few: they are looked through for each write.
    few: Vec<(String, Option<Site>)>,
}

/// What is said of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The subtree that begins here has its tokens at this site.
    Pinned(&'a str, Site),
    /// It is not moved.
    Stays,
}

impl Rules {
    /// Reads lines, and says which of them cannot be used. `site` knows the names of sites.
    #[must_use]
    pub fn parse(content: &[u8], site: impl Fn(&str) -> Option<Site>) -> (Self, Vec<String>) {
        let (mut rules, mut bad, mut count) = (Self::default(), Vec::new(), 0);
        for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
            if number > LINES_MAX {
                bad.push(format!("only {LINES_MAX} lines are read"));
                break;
            }
            let text = core::str::from_utf8(line).map_err(|_| "it is no text");
            let rule = text.and_then(|line| Rule::parse(line, &site));
            if let Err(why) = rule.and_then(|rule| rule.map_or(Ok(()), |rule| rules.take(rule))) {
                count += 1;
                if count <= NAMED_MAX {
                    let line = String::from_utf8_lossy(line);
                    let shown: String = line.chars().take(NAMED_CHARS).collect();
                    bad.push(format!("line {number} ({shown:?}): {why}"));
                }
            }
        }
        if count > NAMED_MAX {
            bad.push(format!("and {} lines more", count - NAMED_MAX));
        }
        (rules, bad)
    }

    /// Adds a rule. A later one of the same subtree takes the place of an earlier one.
    ///
    /// # Errors
    /// When a subtree is together with others already.
    pub fn take(&mut self, rule: Rule) -> Result<(), &'static str> {
        match rule {
            Rule::Pin(path, to) => {
                self.stays.remove(&path);
                self.pins.insert(path, to);
            }
            Rule::Stay(path) => {
                self.pins.remove(&path);
                self.stays.insert(path);
            }
            Rule::Together(paths) => {
                let touches = |path: &String| self.group(path).is_some() || is_above(&self.groups, path);
                if paths.iter().any(touches) {
                    return Err("one of the subtrees moves with others already");
                }
                let index = self.together.len();
                self.groups.extend(paths.iter().map(|path| (path.clone(), index)));
                self.together.push(paths);
            }
            Rule::Off => self.is_off = true,
            // They say nothing of tokens.
            Rule::TwoSites(_) | Rule::OneSite(_) => {}
        }
        self.few.clear();
        if self.pins.len() + self.stays.len() <= FEW {
            let pins = self.pins.iter().map(|(path, site)| (path.clone(), Some(*site)));
            self.few.extend(pins.chain(self.stays.iter().map(|path| (path.clone(), None))));
            self.few.sort_by_key(|(path, _)| core::cmp::Reverse(path.len()));
        }
        Ok(())
    }

    /// Whether no token leaves the hub for the sake of who asks.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Each subtree that is pinned, and where.
    pub fn pins(&self) -> impl Iterator<Item = (&str, Site)> {
        self.pins.iter().map(|(path, site)| (path.as_str(), *site))
    }

    /// What is said of a place, itself or something that it lies in.
    pub(crate) fn said<'a>(&self, path: &'a str) -> Option<Said<'a>> {
        let said = |top: &'a str, at: Option<Site>| at.map_or(Said::Stays, |site| Said::Pinned(top, site));
        if self.pins.len() + self.stays.len() <= FEW {
            // That is faster than going up the path.
            let (top, at) = self.few.iter().find(|(top, _)| is_at_or_below(path, top))?;
            return Some(said(&path[..top.len()], *at));
        }
        upward(path).find_map(|top| {
            let pinned = self.pins.get(top).map(|site| said(top, Some(*site)));
            pinned.or_else(|| self.stays.contains(top).then_some(Said::Stays))
        })
    }

    /// The subtrees that one which a place is in moves together with, and which of them that is.
    #[inline]
    pub(crate) fn group<'a>(&self, path: &'a str) -> Option<(&[String], &'a str)> {
        if self.groups.is_empty() { None } else { self.group_around(path) }
    }

    fn group_around<'a>(&self, path: &'a str) -> Option<(&[String], &'a str)> {
        upward(path).find_map(|top| Some((self.together[*self.groups.get(top)?].as_slice(), top)))
    }

    /// Whether something is said of something below a place: then that does not move as a whole.
    pub(crate) fn speak_below(&self, path: &str) -> bool {
        let stays = || {
            let from = (Bound::Excluded(path), Bound::Unbounded);
            self.stays
                .range::<str, _>(from)
                .take_while(|it| it.starts_with(path))
                .any(|it| is_at_or_below(it, path))
        };
        is_above(&self.pins, path) || is_above(&self.groups, path) || stays()
    }
}

/// Whether a place is above one of these.
fn is_above<T>(paths: &BTreeMap<String, T>, path: &str) -> bool {
    let below = paths.range::<str, _>((Bound::Excluded(path), Bound::Unbounded));
    below.take_while(|(it, _)| it.starts_with(path)).any(|(it, _)| is_at_or_below(it, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> Option<Site> {
        ["hub", "california", "frankfurt"].iter().position(|known| *known == name).map(|at| Site(at as u8))
    }

    #[test]
    fn rules_are_read_and_the_deeper_one_counts() {
        let text = "# ours\npin /eu frankfurt\n\n together\t/b /c/d \nstay /eu/x\r\ntokens off\npin /eu california\n";
        let (rules, bad) = Rules::parse(text.as_bytes(), site);
        assert!(bad.is_empty() && rules.is_off(), "{bad:?}");
        assert_eq!(rules.said("/eu/a/b"), Some(Said::Pinned("/eu", Site(1))));
        assert_eq!((rules.said("/eu/x/y"), rules.said("/eux")), (Some(Said::Stays), None));
        assert_eq!(rules.group("/c/d/e").map(|(all, top)| (all.len(), top)), Some((2, "/c/d")));
        assert_eq!(rules.group("/c"), None);
        let below = ["/eu", "/c", "/b", "/e", "/eu/x"].map(|path| rules.speak_below(path));
        assert_eq!(below, [true, true, false, false, false]);
        assert_eq!(Rules::parse(b"", site), (Rules::default(), Vec::new()));
    }

    #[test]
    fn few_lines_say_what_they_do_among_many() {
        let few = "pin /a hub\nstay /a/b\npin /a/b/c frankfurt\nstay /x\npin /x hub\n";
        let more: String = (0..FEW).map(|number| format!("stay /other/{number}\n")).collect();
        let (few, many) =
            (Rules::parse(few.as_bytes(), site).0, Rules::parse((more + few).as_bytes(), site).0);
        for path in ["/a", "/ab", "/a/b", "/a/bb", "/a/b/c", "/a/b/c/d", "/a/x/y", "/x", "/x/y", "/y"] {
            assert_eq!(few.said(path), many.said(path), "{path}");
        }
        assert!(few.few.len() == 4 && many.few.is_empty());
    }

    #[test]
    fn bad_lines_are_named_and_take_nothing_with_them() {
        for line in [
            "pin",
            "pin /a",
            "pin /a tokyo",
            "pin a hub",
            "pin /a/ hub",
            "pin / hub",
            "pin /zookeeper/x hub",
            "together /a",
            "together /a /a",
            "together /a /b /a/c",
            "together /a /y",
            "together /a /y/z",
            "together / /b",
            "stay",
            "stay /a /b",
            "off",
            "tokens",
            "tokens on",
            "move /a hub",
            "\u{7f}\u{1b}[31m",
        ] {
            let text = format!("together /x /y\n{line}\nstay /d");
            let (rules, bad) = Rules::parse(text.as_bytes(), site);
            assert_eq!(rules, Rules::parse(b"together /x /y\nstay /d", site).0, "{line}");
            assert!(matches!(bad.as_slice(), [bad] if bad.starts_with("line 2 (")), "{bad:?}");
            assert!(!bad[0].contains('\u{1b}'), "nothing reaches a terminal: {bad:?}");
        }
    }

    #[test]
    fn hostile_content_is_bounded() {
        let (rules, bad) = Rules::parse(&[0xff; 1 << 20], site);
        assert!(rules == Rules::default() && bad.len() == 1 && bad[0].len() < 1000, "{bad:?}");
        assert_eq!(Rules::parse("x\n".repeat(100_000).as_bytes(), site).1.len(), NAMED_MAX + 2);
        let pins: String = (0..5000).map(|number| format!("pin /a-{number} hub\n")).collect();
        assert_eq!(Rules::parse(pins.as_bytes(), site).0.pins.len(), LINES_MAX);
    }
}
