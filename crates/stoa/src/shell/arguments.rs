//! From a line to a word with its flags and arguments.

use std::collections::BTreeMap;

use crate::failure::{Failure, Result};

/// Splits a line as zkCli does: at white space, except inside a pair of single or double quotes.
/// Quotes count only at the start of a part.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let quoted = matches!(first, '"' | '\'').then(|| rest[1..].split_once(first)).flatten();
        let (part, tail) = match quoted {
            Some(split) => split,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        parts.push(part.to_owned());
        rest = tail.trim_start();
    }
    parts
}

/// Which flags and how many arguments a word takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Syntax {
    /// What follows the word, for people.
    pub(super) usage: &'static str,
    /// Letters of flags without a value.
    pub(super) switches: &'static str,
    /// Letters of flags with a value.
    pub(super) options: &'static str,
    /// Fewest and most arguments.
    pub(super) arguments: (usize, usize),
}

impl Syntax {
    /// The flags with a value whose usage has a whole word for them: `-add` is none of `-a -d -d`.
    fn words(&self) -> impl Iterator<Item = &str> {
        let parts = self.usage.split([' ', '[', ']', '|']).filter_map(|part| part.strip_prefix('-'));
        parts.filter(|flag| flag.len() > 1 && flag.starts_with(|letter| self.options.contains(letter)))
    }

    fn has_letter(&self, option: char) -> bool {
        self.options.contains(option) && !self.words().any(|word| word.starts_with(option))
    }
}

/// The flags and arguments of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    switches: Vec<char>,
    options: BTreeMap<char, String>,
    positional: Vec<String>,
}

impl Arguments {
    /// Sorts the parts after `word`. Flags may stand anywhere, and together (`-se`); what comes
    /// after `--` is no flag.
    pub(super) fn parse(word: &str, syntax: &Syntax, parts: &[String]) -> Result<Self> {
        let usage = |problem: &str| {
            let line = format!("{word} {}", syntax.usage);
            Failure::usage(format!("{problem}; usage: {}", line.trim_end()))
        };
        let mut arguments = Self::default();
        let mut parts = parts.iter();
        while let Some(part) = parts.next() {
            let letters = match part.strip_prefix('-') {
                Some("-") => {
                    arguments.positional.extend(parts.cloned());
                    break;
                }
                Some(letters) if !letters.is_empty() => letters,
                _ => {
                    arguments.positional.push(part.clone());
                    continue;
                }
            };
            if syntax.words().any(|word| word == letters) {
                let value = parts.next().ok_or_else(|| usage(&format!("{part} needs a value")))?;
                let letter = letters.chars().next().unwrap_or_default();
                if arguments.options.insert(letter, value.to_owned()).is_some() {
                    return Err(usage(&format!("{part} is there twice; commas go between several")));
                }
                continue;
            }
            for (at, letter) in letters.char_indices() {
                if syntax.switches.contains(letter) {
                    arguments.switches.push(letter);
                } else if syntax.has_letter(letter) {
                    let attached = &letters[at + letter.len_utf8()..];
                    let value = if attached.is_empty() {
                        parts.next().ok_or_else(|| usage(&format!("-{letter} needs a value")))?
                    } else {
                        attached
                    };
                    arguments.options.insert(letter, value.to_owned());
                    break;
                } else {
                    return Err(usage(&format!("unknown flag {part}")));
                }
            }
        }
        let (fewest, most) = syntax.arguments;
        match arguments.positional.len() {
            count if count < fewest => Err(usage("an argument is missing")),
            count if count > most => Err(usage("there are too many arguments")),
            _ => Ok(arguments),
        }
    }

    /// Whether a flag was given.
    pub(super) fn has(&self, letter: char) -> bool {
        self.switches.contains(&letter) || self.options.contains_key(&letter)
    }

    /// The value of a flag as a number.
    pub(super) fn number<T: std::str::FromStr>(&self, letter: char) -> Result<Option<T>> {
        self.option(letter)
            .map(|text| {
                text.parse().map_err(|_| Failure::usage(format!("-{letter} {text}: not a number that fits")))
            })
            .transpose()
    }

    /// The value of a flag.
    pub(super) fn option(&self, letter: char) -> Option<&str> {
        self.options.get(&letter).map(String::as_str)
    }

    /// An argument; empty if it was left out.
    pub(super) fn at(&self, index: usize) -> &str {
        self.get(index).unwrap_or_default()
    }

    /// An argument.
    pub(super) fn get(&self, index: usize) -> Option<&str> {
        self.positional.get(index).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: Syntax = Syntax {
        usage: "[-s] [-e] [-v version] path [data]",
        switches: "se",
        options: "v",
        arguments: (1, 2),
    };

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse("word", &SYNTAX, &split(line))
    }

    #[test]
    fn a_line_is_split_at_spaces_outside_quotes() {
        assert_eq!(split("  set /a 'b c'  \"d 'e'\" f\"g"), ["set", "/a", "b c", "d 'e'", "f\"g"]);
        assert_eq!(split("set /a ''"), ["set", "/a", ""]);
        assert_eq!(split("set /a 'b c"), ["set", "/a", "'b", "c"]);
        assert!(split(" \t").is_empty());
    }

    #[test]
    fn flags_stand_anywhere_and_together() {
        for line in ["-se -v 3 /a x", "/a -v3 -s x -e", "-s /a x -ev 3"] {
            let arguments = parse(line).unwrap();
            assert!(arguments.has('s') && arguments.has('e'), "{line}");
            assert_eq!(arguments.number('v'), Ok(Some(3)), "{line}");
            assert_eq!((arguments.at(0), arguments.get(1)), ("/a", Some("x")), "{line}");
        }
    }

    #[test]
    fn nothing_is_a_flag_after_two_dashes() {
        let arguments = parse("/a -- -s").unwrap();
        assert!(!arguments.has('s'));
        assert_eq!(arguments.get(1), Some("-s"));
        assert_eq!(parse("/a -").unwrap().get(1), Some("-"));
    }

    #[test]
    fn mistakes_name_the_usage() {
        for line in ["", "/a b c", "-x /a", "/a -v"] {
            let Err(Failure::Usage(message)) = parse(line) else { panic!("{line}") };
            assert!(message.ends_with("usage: word [-s] [-e] [-v version] path [data]"), "{message}");
        }
        assert!(parse("/a -v x").unwrap().number::<i32>('v').is_err());
    }
}
