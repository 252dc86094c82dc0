//! How ZooKeeper reads the value of each key, and what of that is a setting here.
//!
//! A key that `QuorumPeerConfig` parses itself stops the server when its value is wrong. All others become
//! Java system properties, which are read where they are used, most of them so that a wrong value is as good
//! as none. Which of them is which is said by the rows of the tables, with the kinds of this module.

use std::ops::RangeInclusive;

use super::java;
use super::kind::{Credential, Kind};
use crate::words::Word;

/// How the value of a key is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// `true` or `false` in any case; anything else is an error.
    Strict,
    /// `true` in any case is true, and everything else is false (`Boolean.getBoolean`).
    True,
    /// One word, letter by letter, says `means`; everything else is as good as nothing.
    Word {
        /// The word that counts.
        word: &'static str,
        /// What it sets.
        means: &'static str,
        /// The word that is meant to say the opposite, and needs no warning.
        opposite: &'static str,
    },
    /// A whole number.
    Number(Number),
    /// A path; it is not looked at.
    Path,
    /// An address, or a name that is looked up.
    Address,
    /// Four-letter words with commas between them, of which unknown ones do no harm.
    Words,
    /// Text that is compared, so that what cannot be equal to anything is as good as nothing.
    Digest,
    /// The name of a hash function; another one is an error.
    Hash,
    /// A `server.N` line.
    Server,
    /// As the setting itself: the key is not one of ZooKeeper's.
    Own,
    /// `none`, `want` or `need` in any case; nothing is as good as not set, and another word an error.
    ClientAuth,
}

/// A number, and what becomes of those that do not stand for themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    parser: Parser,
    /// What the number counts, when it is not what a bare number has here.
    unit: &'static str,
    /// The first range that the number is in says what counts.
    instead: &'static [(RangeInclusive<i64>, Instead)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parser {
    /// `Integer.parseInt`; anything but a number is an error.
    ParseInt,
    /// `Integer.getInteger`; anything but a number is as good as nothing.
    GetInteger,
    /// `Long.getLong`; the same.
    GetLong,
}

/// What counts in place of a number.
#[derive(Clone, Copy, Debug)]
enum Instead {
    /// The number is a way to say this.
    Means(&'static str),
    /// The number is a way to ask for the default.
    MeansDefault,
    /// The number cannot be used; this does in its place.
    Counts(&'static str),
    /// The number cannot be used; the default does in its place.
    Default,
    /// The server cannot run with it, as ZooKeeper cannot.
    Refused(&'static str),
}

/// What a value says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The setting, as it would be written here.
    Text(String),
    /// This counts, or the default if it is nothing; and why that is not what was written.
    Instead(Option<String>, &'static str),
    /// The default.
    Nothing,
    /// The server must not start: what was expected.
    Expected(String),
}

const BELOW_ZERO: RangeInclusive<i64> = i64::MIN..=-1;
const UP_TO_ZERO: RangeInclusive<i64> = i64::MIN..=0;
/// A session timeout and a tick are no longer than an i32 of milliseconds; no other time needs more.
const BEYOND_TIME: RangeInclusive<i64> = 3_153_600_000_001..=i64::MAX;
/// So many kibibytes cannot be counted in bytes.
const BEYOND_KIB: RangeInclusive<i64> = (1 << 53)..=i64::MAX;

impl Reading {
    pub(super) const SKIP_ACL: Reading = Reading::Word { word: "yes", means: "true", opposite: "no" };
    pub(super) const FORCE_SYNC: Reading = Reading::Word { word: "no", means: "false", opposite: "yes" };
    /// A port that is out of range cannot be listened on: that is found out when the setting is set.
    pub(super) const PORT: Reading = Reading::parse_int(&[]);
    pub(super) const PORT_PROPERTY: Reading = Reading::get_integer("", &[]);
    /// Only `true` says that clients with TLS are taken beside others.
    pub(super) const ALSO: Reading = Reading::Word { word: "true", means: "also", opposite: "false" };
    pub(super) const HANDSHAKES: Reading = Reading::get_integer("", &[(BELOW_ZERO, Instead::Means("0"))]);
    /// Says yes where a store is in the format that cannot be read.
    pub(super) const BCFKS: Reading = Reading::Word { word: "BCFKS", means: "true", opposite: "" };
    pub(super) const BACKLOG: Reading = Reading::parse_int(&[(UP_TO_ZERO, Instead::MeansDefault)]);
    pub(super) const TICK: Reading =
        Reading::parse_int(&[(0..=0, Instead::Refused("a time above zero")), (BELOW_ZERO, Instead::Default)]);
    pub(super) const SESSION_TIMEOUT: Reading =
        Reading::parse_int(&[(-1..=-1, Instead::MeansDefault), (UP_TO_ZERO, Instead::Counts("1"))]);
    pub(super) const CONNECTIONS_PER_ADDRESS: Reading =
        Reading::parse_int(&[(UP_TO_ZERO, Instead::Means("0"))]);
    pub(super) const CONNECTIONS: Reading = Reading::get_integer("", &[(BELOW_ZERO, Instead::Counts("0"))]);
    /// Frames longer than a GiB cannot be logged.
    pub(super) const FRAME: Reading = Reading::get_integer(
        "",
        &[(BELOW_ZERO, Instead::Counts("0")), ((1 << 30) + 1..=i64::MAX, Instead::Counts("1GiB"))],
    );
    pub(super) const OUTSTANDING: Reading = Reading::get_integer("", &[(UP_TO_ZERO, Instead::Counts("1"))]);
    pub(super) const HANDSHAKE: Reading = Reading::get_integer(
        "ms",
        &[(0..=0, Instead::Refused("a time above zero")), (BELOW_ZERO, Instead::Default)],
    );
    pub(super) const SNAPSHOT_UPDATES: Reading =
        Reading::get_integer("", &[(i64::MIN..=1, Instead::Counts("2"))]);
    pub(super) const SNAPSHOT_SIZE: Reading =
        Reading::get_long("KiB", &[(UP_TO_ZERO, Instead::Means("0")), (BEYOND_KIB, Instead::Counts("0"))]);
    pub(super) const SNAPSHOTS_KEPT: Reading = Reading::parse_int(&[(i64::MIN..=2, Instead::Counts("3"))]);
    pub(super) const LOG_SIZE: Reading =
        Reading::get_long("KiB", &[(UP_TO_ZERO, Instead::MeansDefault), (BEYOND_KIB, Instead::Default)]);
    pub(super) const FSYNC_WARNING: Reading = Reading::get_long(
        "ms",
        &[(BELOW_ZERO, Instead::Means("0")), (BEYOND_TIME, Instead::Means("876000h"))],
    );
    pub(super) const CONTAINER_CHECK: Reading =
        Reading::get_integer("ms", &[(UP_TO_ZERO, Instead::Refused("a time above zero"))]);
    pub(super) const CONTAINERS_PER_MINUTE: Reading =
        Reading::get_integer("", &[(BELOW_ZERO, Instead::Means("4294967295"))]);
    /// A container that was made a moment ago is unused for longer than a time below zero.
    pub(super) const CONTAINER_UNUSED: Reading = Reading::get_long(
        "ms",
        &[(BELOW_ZERO, Instead::Means("1")), (BEYOND_TIME, Instead::Means("876000h"))],
    );

    const fn parse_int(instead: &'static [(RangeInclusive<i64>, Instead)]) -> Reading {
        Reading::Number(Number { parser: Parser::ParseInt, unit: "", instead })
    }

    const fn get_integer(unit: &'static str, instead: &'static [(RangeInclusive<i64>, Instead)]) -> Reading {
        Reading::Number(Number { parser: Parser::GetInteger, unit, instead })
    }

    const fn get_long(unit: &'static str, instead: &'static [(RangeInclusive<i64>, Instead)]) -> Reading {
        Reading::Number(Number { parser: Parser::GetLong, unit, instead })
    }

    /// What a value says.
    pub(super) fn read(self, value: &str) -> Meaning {
        match self {
            Reading::Strict => match boolean(value) {
                Some(value) => Meaning::Text(value.to_string()),
                None => Meaning::Expected("true or false".to_owned()),
            },
            Reading::True => match boolean(value) {
                Some(value) => Meaning::Text(value.to_string()),
                None => Meaning::Instead(Some("false".to_owned()), "only true is true"),
            },
            Reading::Word { word, means, .. } if value == word => Meaning::Text(means.to_owned()),
            Reading::Word { opposite, .. } if value == opposite => Meaning::Nothing,
            Reading::Word { word: "yes", .. } => Meaning::Instead(None, "only yes, in small letters, is yes"),
            Reading::Word { .. } => Meaning::Instead(None, "only no, in small letters, is no"),
            Reading::Number(number) => number.read(value),
            Reading::Address => match java::address(value) {
                Some(address) => Meaning::Text(address.to_string()),
                None => Meaning::Expected("an address, or a name that can be looked up".to_owned()),
            },
            Reading::Words => words(value),
            Reading::Digest if Credential::parse(value).is_none() => {
                Meaning::Instead(None, "it is not user:base64(hash(user:password)), so that it is nobody's")
            }
            Reading::ClientAuth => match value.to_ascii_lowercase().as_str() {
                "" => Meaning::Nothing,
                asked @ ("none" | "want" | "need") => Meaning::Text(asked.to_owned()),
                _ => Meaning::Expected("none, want or need".to_owned()),
            },
            Reading::Path | Reading::Digest | Reading::Hash | Reading::Server | Reading::Own => {
                Meaning::Text(value.to_owned())
            }
        }
    }

    /// For the documentation.
    pub(super) fn describe(self) -> String {
        match self {
            Reading::Strict => "`true` or `false`, else an error".to_owned(),
            Reading::True => "`true`, else false".to_owned(),
            Reading::Word { word, .. } => format!("`{word}`, else as if not set"),
            Reading::Number(number) => number.describe().to_owned(),
            Reading::Path => "a path".to_owned(),
            Reading::Address => "an address or a name".to_owned(),
            Reading::Words => "words, unknown ones do no harm".to_owned(),
            Reading::Digest => "text".to_owned(),
            Reading::Hash => "a name, another one is an error".to_owned(),
            Reading::Server => "a server".to_owned(),
            Reading::Own => "as the setting".to_owned(),
            Reading::ClientAuth => "`none`, `want` or `need`, another one is an error".to_owned(),
        }
    }
}

impl Number {
    fn read(self, value: &str) -> Meaning {
        let number = match self.parser {
            Parser::ParseInt => java::parse_int(value),
            Parser::GetInteger => java::decode_int(value),
            Parser::GetLong => java::decode_long(value),
        };
        let Some(number) = number else {
            return match self.parser {
                Parser::ParseInt => Meaning::Expected("a whole number, in decimal".to_owned()),
                Parser::GetInteger | Parser::GetLong => Meaning::Instead(None, "it is not a whole number"),
            };
        };
        let instead =
            self.instead.iter().find(|(range, _)| range.contains(&number)).map(|(_, instead)| *instead);
        match instead {
            None => Meaning::Text(format!("{number}{}", self.unit)),
            Some(Instead::Means(text)) => Meaning::Text(text.to_owned()),
            Some(Instead::MeansDefault) => Meaning::Nothing,
            Some(Instead::Counts(text)) => Meaning::Instead(Some(text.to_owned()), OUT_OF_RANGE),
            Some(Instead::Default) => Meaning::Instead(None, OUT_OF_RANGE),
            Some(Instead::Refused(expected)) => Meaning::Expected(expected.to_owned()),
        }
    }

    fn describe(self) -> &'static str {
        match self.parser {
            Parser::ParseInt => "a decimal number, else an error",
            Parser::GetInteger | Parser::GetLong => {
                "a number, also `0x1f`, `#1f` or `017`, else as if not set"
            }
        }
    }
}

const OUT_OF_RANGE: &str = "it is out of range";

/// `true` and `false` in any case.
pub(super) fn boolean(value: &str) -> Option<bool> {
    match () {
        () if value.eq_ignore_ascii_case("true") => Some(true),
        () if value.eq_ignore_ascii_case("false") => Some(false),
        () => None,
    }
}

/// The words that there are; ZooKeeper allows others too, and never answers them.
fn words(value: &str) -> Meaning {
    let mut known = Vec::new();
    let mut unknown = false;
    for name in value.split(',').map(java::trim).filter(|name| !name.is_empty()) {
        match Word::from_name(name) {
            _ if name == "*" => return Meaning::Text("*".to_owned()),
            Some(word) => known.push(word.name()),
            None => unknown = true,
        }
    }
    let text = known.join(",");
    if unknown {
        Meaning::Instead(Some(text), "not all of them are four-letter words")
    } else {
        Meaning::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Meaning {
        Meaning::Text(text.to_owned())
    }

    fn counts(text: Option<&str>) -> impl Fn(&Meaning) -> bool {
        move |said| matches!(said, Meaning::Instead(found, _) if found.as_deref() == text)
    }

    #[test]
    fn words_for_yes_and_no_are_those_of_the_key() {
        assert_eq!(Reading::SKIP_ACL.read("yes"), text("true"));
        assert_eq!(Reading::SKIP_ACL.read("no"), Meaning::Nothing);
        assert_eq!(Reading::FORCE_SYNC.read("no"), text("false"));
        assert_eq!(Reading::FORCE_SYNC.read("yes"), Meaning::Nothing);
        for other in ["true", "Yes", "on", "", "1", "NO", "false", "yes\u{a0}"] {
            assert!(counts(None)(&Reading::SKIP_ACL.read(other)), "{other}");
            assert!(counts(None)(&Reading::FORCE_SYNC.read(other)), "{other}");
            assert!(other == "true" || other == "false" || counts(Some("false"))(&Reading::True.read(other)));
            let strict = Reading::Strict.read(other);
            assert_eq!(matches!(strict, Meaning::Expected(_)), boolean(other).is_none(), "{other}");
        }
        for reading in [Reading::Strict, Reading::True] {
            assert_eq!(reading.read("TRUE"), text("true"));
            assert_eq!(reading.read("False"), text("false"));
        }
    }

    #[test]
    fn numbers_out_of_range_say_what_zookeeper_makes_of_them() {
        assert_eq!(Reading::CONNECTIONS_PER_ADDRESS.read("-1"), text("0"));
        assert_eq!(Reading::SESSION_TIMEOUT.read("-1"), Meaning::Nothing);
        assert!(counts(Some("1"))(&Reading::SESSION_TIMEOUT.read("0")));
        assert!(counts(Some("3"))(&Reading::SNAPSHOTS_KEPT.read("1")));
        assert!(counts(Some("2"))(&Reading::SNAPSHOT_UPDATES.read("0x0")));
        assert_eq!(Reading::FRAME.read("0x10"), text("16"));
        assert!(counts(None)(&Reading::FRAME.read("1 MB")));
        assert!(matches!(Reading::TICK.read("0x10"), Meaning::Expected(_)));
        assert!(matches!(Reading::CONTAINER_CHECK.read("0"), Meaning::Expected(_)));
    }

    #[test]
    fn unknown_words_do_no_harm() {
        assert_eq!(Reading::Words.read("mntr, ruok ,,"), text("mntr,ruok"));
        assert_eq!(Reading::Words.read("mntr,reqs,*"), text("*"));
        assert_eq!(Reading::Words.read(""), text(""));
        assert!(counts(Some("mntr"))(&Reading::Words.read("MNTR,mntr,reqs,mntr ruok")));
    }
}
