//! What the operator says about where subtrees live: the content of `/zookeeper/partitions`.
//!
//! ```text
//! pin /a 2              it lives on partition 2
//! together /b /c ...    they live on one partition, and move as one
//! stay /d               it is not moved
//! balance off           nothing is moved for the sake of the load
//! # a remark
//! ```
//! The znode is an ordinary one: whoever may create it below `/zookeeper` may, and its ACL says who changes
//! it. What cannot be read is passed over, so that one bad line does not undo the others.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::path;

/// Where hints stand.
pub const HINTS_PATH: &str = "/zookeeper/partitions";

/// More lines are not read: the leader compares all of them with what lives where.
const LINES_MAX: usize = 1000;
/// Most subtrees that live together by one line.
const TOGETHER_MAX: usize = 100;
/// So many bad lines are named.
const NAMED_MAX: usize = 5;
/// So much of each.
const NAMED_CHARS: usize = 80;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A subtree lives on this partition.
    Pin(String, u8),
    /// These live on one partition.
    Together(Vec<String>),
    /// It is not moved.
    Stay(String),
    /// Whether subtrees are moved for the sake of the load.
    Balance(bool),
}

impl Hint {
    /// Reads a line; `None` when there is nothing on it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Option<Self>, &'static str> {
        let mut words = line.split_whitespace();
        let Some(verb) = words.next().filter(|verb| !verb.starts_with('#')) else { return Ok(None) };
        let words: Vec<&str> = words.collect();
        let hint = match (verb, words.as_slice()) {
            ("pin", [subtree, to]) => {
                let to = to.parse().ok().filter(|to| *to < PARTITIONS_MAX);
                Self::Pin(movable(subtree)?, to.ok_or("a partition is a number from 0 to 63")?)
            }
            ("pin", _) => return Err("it takes a path and a partition"),
            ("stay", [subtree]) => Self::Stay(movable(subtree)?),
            ("stay", _) => return Err("it takes a path"),
            ("together", subtrees @ [_, _, ..]) if subtrees.len() <= TOGETHER_MAX => {
                let all: BTreeSet<String> =
                    subtrees.iter().map(|it| movable(it)).collect::<Result<_, _>>()?;
                let lies_in = |below: &String| all.iter().any(|it| it != below && is_at_or_below(below, it));
                if all.len() < subtrees.len() || all.iter().any(lies_in) {
                    return Err("one of the subtrees lies in another one");
                }
                Self::Together(subtrees.iter().map(|it| (*it).to_owned()).collect())
            }
            ("together", _) => return Err("it takes two paths or more, up to 100"),
            ("balance", ["on"]) => Self::Balance(true),
            ("balance", ["off"]) => Self::Balance(false),
            ("balance", _) => return Err("it is on or off"),
            _ => return Err("a line begins with pin, together, stay or balance"),
        };
        Ok(Some(hint))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(path, to) => write!(f, "pin {path} {to}"),
            Self::Together(paths) => write!(f, "together {}", paths.join(" ")),
            Self::Stay(path) => write!(f, "stay {path}"),
            Self::Balance(is_on) => write!(f, "balance {}", if *is_on { "on" } else { "off" }),
        }
    }
}

/// There are never more partitions.
const PARTITIONS_MAX: u8 = 64;

/// A path that a hint may speak of.
fn movable(subtree: &str) -> Result<String, &'static str> {
    if !path::is_valid(subtree) {
        return Err("a path is wrong");
    }
    let is_of = |top| is_at_or_below(subtree, top);
    if subtree == "/" || is_of("/zookeeper") || is_of(stoa_tree::PROGRAMS) {
        return Err("the root, /zookeeper and /em are not moved");
    }
    Ok(subtree.to_owned())
}

/// Whether a path is `top` or leads to something below it.
pub fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// All that the operator says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Where subtrees have to live.
    pub pins: BTreeMap<String, u8>,
    /// What lives together.
    pub together: Vec<Vec<String>>,
    /// What is not moved.
    pub stays: BTreeSet<String>,
    /// Nothing is moved for the sake of the load.
    pub is_off: bool,
}

impl Hints {
    /// Reads the content of the znode, and says which lines cannot be used.
    #[must_use]
    pub fn parse(content: &[u8], partitions: u8) -> (Self, Vec<String>) {
        let (mut hints, mut bad) = (Self::default(), Vec::new());
        let mut count = 0;
        for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
            if number > LINES_MAX {
                bad.push(format!("only {LINES_MAX} lines are read"));
                break;
            }
            let hint = core::str::from_utf8(line).map_err(|_| "it is no text").and_then(Hint::parse);
            let taken = hint.and_then(|hint| hint.map_or(Ok(()), |hint| hints.take(hint, partitions)));
            if let Err(why) = taken {
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
        (hints, bad)
    }

    fn take(&mut self, hint: Hint, partitions: u8) -> Result<(), &'static str> {
        match hint {
            Hint::Pin(_, to) if to >= partitions => return Err("there is no such partition"),
            Hint::Pin(path, to) => {
                self.pins.insert(path, to);
            }
            Hint::Together(paths) => {
                let is_taken = |path: &String| self.together.iter().flatten().any(|other| other == path);
                if paths.iter().any(is_taken) {
                    return Err("one of the subtrees lives with others already");
                }
                self.together.push(paths);
            }
            Hint::Stay(path) => {
                self.stays.insert(path);
            }
            Hint::Balance(is_on) => self.is_off = !is_on,
        }
        Ok(())
    }

    /// Each of them as a line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let pins = self.pins.iter().map(|(path, to)| Hint::Pin(path.clone(), *to));
        let together = self.together.iter().cloned().map(Hint::Together);
        let stays = self.stays.iter().cloned().map(Hint::Stay);
        let off = self.is_off.then_some(Hint::Balance(false));
        pins.chain(together).chain(stays).chain(off).map(|hint| format!("{hint}")).collect()
    }

    /// Those that a subtree lives together with, itself among them, the first first.
    pub fn group(&self, path: &str) -> Option<&[String]> {
        self.together.iter().find(|group| group.iter().any(|member| member == path)).map(Vec::as_slice)
    }

    /// Whether a subtree is not to be moved by itself: because of what is said of it, of one that it lies in
    /// or of one in it.
    pub(crate) fn hold(&self, path: &str) -> bool {
        let touches = |other: &String| is_at_or_below(path, other) || is_at_or_below(other, path);
        self.pins.keys().any(touches)
            || self.stays.iter().any(touches)
            || self.together.iter().flatten().any(touches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_and_written() {
        let text = "# what is hot\npin /a 2\n\n together\t/b /c/d \nstay /e\r\nbalance off\npin /a 1\n";
        let (hints, bad) = Hints::parse(text.as_bytes(), 4);
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(hints.lines(), ["pin /a 1", "together /b /c/d", "stay /e", "balance off"]);
        let again = hints.lines().join("\n");
        assert_eq!(Hints::parse(again.as_bytes(), 4), (hints.clone(), Vec::new()));
        assert_eq!(hints.group("/c/d").map(<[String]>::len), Some(2));
        for (path, is_held) in [
            ("/a", true),
            ("/a/x", true),
            ("/ab", false),
            ("/c", true),
            ("/c/x", false),
            ("/e", true),
            ("/f", false),
        ] {
            assert_eq!(hints.hold(path), is_held, "{path}");
        }
        assert_eq!(Hints::parse(b"", 4), (Hints::default(), Vec::new()));
    }

    #[test]
    fn bad_lines_are_named_and_take_nothing_with_them() {
        for line in [
            "pin",
            "pin /a",
            "pin /a x",
            "pin /a 4",
            "pin /a -1",
            "pin /a 64",
            "pin /a 1 2",
            "pin a 1",
            "pin /a/ 1",
            "pin / 1",
            "pin /zookeeper/quota 1",
            "together /a",
            "together /a /a",
            "together /a /b /a/c",
            "together /a /y",
            "stay",
            "stay /a /b",
            "balance",
            "balance maybe",
            "move /a 1",
            "\u{7f}\u{1b}[31m",
        ] {
            let text = format!("together /x /y\n{line}\nstay /d");
            let (hints, bad) = Hints::parse(text.as_bytes(), 4);
            assert_eq!(hints.lines(), ["together /x /y", "stay /d"], "{line}");
            assert!(matches!(bad.as_slice(), [bad] if bad.starts_with("line 2 (")), "{bad:?}");
            assert!(!bad[0].contains('\u{1b}'), "nothing reaches a terminal: {bad:?}");
        }
    }

    #[test]
    fn hostile_content_is_bounded() {
        let (hints, bad) = Hints::parse(&[0xff; 1 << 20], 4);
        assert_eq!((hints, bad.len()), (Hints::default(), 1));
        assert!(bad[0].len() < 1000, "{bad:?}");
        let many = "x\n".repeat(100_000);
        assert_eq!(Hints::parse(many.as_bytes(), 4).1.len(), NAMED_MAX + 2);
        let long = format!("together {}", "/a ".repeat(100_000));
        assert_eq!(Hints::parse(long.as_bytes(), 4).1.len(), 1);
        let pins: String = (0..5000).map(|number| format!("pin /a-{number} 1\n")).collect();
        assert_eq!(Hints::parse(pins.as_bytes(), 4).0.pins.len(), LINES_MAX);
    }
}
