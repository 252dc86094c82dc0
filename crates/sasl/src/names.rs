//! From the name that a client has proved to the name that ACLs know: ZooKeeper's `KerberosName`, with the rules of
//! `auth_to_local` as Hadoop writes them, and what `SaslServerCallbackHandler` makes of the result.

use regex_lite::{Captures, Regex};

/// A name is no longer than that, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Rules are no more than that.
const RULES_MAX: usize = 1000;

/// How names become ids.
pub(crate) struct Names {
    rules: Vec<Rule>,
    default_realm: String,
    remove_host: bool,
    remove_realm: bool,
}

enum Rule {
    /// The first component, when the realm is the server's own.
    Default,
    Map {
        components: usize,
        format: Vec<Piece>,
        /// What the formatted name has to match as a whole.
        matching: Option<Regex>,
        substitution: Option<Substitution>,
    },
}

struct Substitution {
    from: Regex,
    to: Vec<Piece>,
    all: bool,
}

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `$1`: a component of the name, or a group of the match.
    Part(usize),
}

/// A name taken apart: `service/host@realm`.
struct Parts<'a> {
    service: &'a str,
    host: Option<&'a str>,
    realm: Option<&'a str>,
}

impl<'a> Parts<'a> {
    /// Without an `@` the whole is the first part, as ZooKeeper has it.
    fn of(name: &'a str) -> Result<Self, String> {
        let Some((local, realm)) = name.split_once('@') else {
            return Ok(Self { service: name, host: None, realm: None });
        };
        let (service, host) = match local.split_once('/') {
            Some((service, host)) => (service, Some(host)),
            None => (local, None),
        };
        if realm.contains(['/', '@']) || host.is_some_and(|host| host.contains('/')) {
            return Err(format!("{name:?} is no Kerberos name of at most two parts and a realm"));
        }
        Ok(Self { service, host, realm: Some(realm) })
    }
}

impl Names {
    /// Reads rules.
    ///
    /// # Errors
    /// When they are not of the syntax, or an expression in them is not known here: there is no looking around and
    /// no reference back, so that a match takes time in proportion to the name.
    pub(crate) fn new(
        rules: &str,
        default_realm: String,
        remove_host: bool,
        remove_realm: bool,
    ) -> Result<Self, String> {
        Ok(Self { rules: parse(rules)?, default_realm, remove_host, remove_realm })
    }

    /// The id of a client that has proved this name.
    ///
    /// ZooKeeper takes the name that the client has asked for when no rule applies, whatever that is. Here it is the
    /// proved one as a whole, which is what its own clients ask for.
    ///
    /// # Errors
    /// When the name has more parts than two and a realm, or is too long.
    pub(crate) fn id_of(&self, name: &str) -> Result<String, String> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "the name of the client has {} bytes; 1 to {NAME_BYTES_MAX} may be",
                name.len()
            ));
        }
        let parts = Parts::of(name)?;
        let Some(mut id) = self.short(&parts) else { return Ok(name.to_owned()) };
        if let Some(host) = parts.host.filter(|_| !self.remove_host) {
            id = id + "/" + host;
        }
        if let Some(realm) = parts.realm.filter(|_| !self.remove_realm) {
            id = id + "@" + realm;
        }
        if id.is_empty() {
            return Err(format!("the rules make an empty name of {name:?}"));
        }
        Ok(id)
    }

    /// The short name by the first rule that applies.
    fn short(&self, parts: &Parts<'_>) -> Option<String> {
        let Some(realm) = parts.realm else { return Some(parts.service.to_owned()) };
        let mut params = vec![realm, parts.service];
        params.extend(parts.host);
        let short = self.rules.iter().find_map(|rule| self.apply(rule, &params))?;
        // What is not simple afterwards is no short name, and no later rule is tried.
        (!short.contains(['/', '@'])).then_some(short)
    }

    fn apply(&self, rule: &Rule, params: &[&str]) -> Option<String> {
        let (components, format, matching, substitution) = match rule {
            Rule::Default => return (params[0] == self.default_realm).then(|| params[1].to_owned()),
            Rule::Map { components, format, matching, substitution } => {
                (components, format, matching, substitution)
            }
        };
        if params.len() != components + 1 {
            return None;
        }
        let base = fill(format, |part| params.get(part).copied().unwrap_or_default());
        if matching.as_ref().is_some_and(|matching| !matching.is_match(&base)) {
            return None;
        }
        let Some(Substitution { from, to, all }) = substitution else { return Some(base) };
        let replace = |captures: &Captures<'_>| {
            fill(to, |group| captures.get(group).map(|found| found.as_str()).unwrap_or_default())
        };
        Some(from.replacen(&base, usize::from(!all), replace).into_owned())
    }
}

fn fill<'a>(template: &[Piece], part: impl Fn(usize) -> &'a str) -> String {
    template.iter().fold(String::new(), |text, piece| match piece {
        Piece::Text(more) => text + more,
        Piece::Part(number) => text + part(*number),
    })
}

/// `DEFAULT` and `RULE:[n:format](expression)s/from/to/g`, one behind the other.
fn parse(rules: &str) -> Result<Vec<Rule>, String> {
    let mut found = Vec::new();
    let mut rest = rules.trim();
    while !rest.is_empty() {
        let bad = |message: String| format!("auth_to_local: rule {} {message}", found.len() + 1);
        let (rule, tail) = match rest.strip_prefix("DEFAULT") {
            Some(tail) => (Rule::Default, tail),
            None => mapping(rest).map_err(bad)?,
        };
        found.push(rule);
        if found.len() > RULES_MAX {
            return Err(format!("auth_to_local has more than {RULES_MAX} rules"));
        }
        rest = tail.trim_start();
    }
    Ok(found)
}

fn mapping(text: &str) -> Result<(Rule, &str), String> {
    let rest = text.strip_prefix("RULE:[").ok_or("begins neither with DEFAULT nor with RULE:[")?;
    let (head, mut rest) = rest.split_once(']').ok_or("has no ] behind RULE:[")?;
    let (number, format) = head.split_once(':').ok_or("has no : between the number and the format")?;
    let components: usize =
        number.parse().map_err(|_| format!("has {number:?} for a number of components"))?;
    let format = components_of(format, components)?;
    let mut matching = None;
    if let Some((expression, tail)) = rest.strip_prefix('(').and_then(|tail| tail.split_once(')')) {
        matching = Some(regex(&format!(r"\A(?:{expression})\z"))?);
        rest = tail;
    }
    let mut substitution = None;
    if let Some(tail) = rest.strip_prefix("s/") {
        let (from, tail) = tail.split_once('/').ok_or("has no second / behind s/")?;
        let (to, tail) = tail.split_once('/').ok_or("has no third / behind s/")?;
        let (all, tail) = tail.strip_prefix('g').map_or((false, tail), |tail| (true, tail));
        let from = regex(from)?;
        let to = groups_of(to, from.captures_len())?;
        substitution = Some(Substitution { from, to, all });
        rest = tail;
    }
    Ok((Rule::Map { components, format, matching, substitution }, rest))
}

fn regex(expression: &str) -> Result<Regex, String> {
    Regex::new(expression).map_err(|error| format!("has an expression that is not taken: {error}"))
}

/// The template of a format: `$0` is the realm, `$1` and `$2` are the components.
fn components_of(format: &str, components: usize) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut parts = format.split('$');
    pieces.extend(parts.next().map(|text| Piece::Text(text.to_owned())));
    for part in parts {
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        let number = part[..end].parse().ok().filter(|number| *number <= components);
        let number = number.ok_or_else(|| format!("has ${} in a format of {components}", &part[..end]))?;
        pieces.push(Piece::Part(number));
        pieces.push(Piece::Text(part[end..].to_owned()));
    }
    Ok(pieces)
}

/// The template of a replacement, as Java's `Matcher` reads it: `$n` is a group, with as many digits as there are
/// groups for, and a backslash takes the meaning from what follows.
fn groups_of(to: &str, groups: usize) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = to.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\\' => text.push(rest.next().ok_or("ends with a backslash in what it puts in")?),
            '$' => {
                let digit = rest.next().and_then(|digit| digit.to_digit(10));
                let mut group = digit.map_or(groups, |digit| digit as usize);
                if group >= groups {
                    return Err(format!("puts in a group that its expression does not have: {to:?}"));
                }
                while let Some(digit) = rest.peek().and_then(|digit| digit.to_digit(10)) {
                    let longer = group * 10 + digit as usize;
                    if longer >= groups {
                        break;
                    }
                    group = longer;
                    rest.next();
                }
                pieces.push(Piece::Text(core::mem::take(&mut text)));
                pieces.push(Piece::Part(group));
            }
            other => text.push(other),
        }
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(rules: &str, name: &str) -> String {
        Names::new(rules, "EXAMPLE.COM".to_owned(), true, true).unwrap().id_of(name).unwrap()
    }

    #[test]
    fn the_default_is_the_first_component_of_the_own_realm() {
        assert_eq!(id("DEFAULT", "bob@EXAMPLE.COM"), "bob");
        assert_eq!(id("DEFAULT", "zk/host.example.com@EXAMPLE.COM"), "zk");
        assert_eq!(id("DEFAULT", "bob@OTHER.COM"), "bob@OTHER.COM", "no rule applies");
        assert_eq!(id("", "bob@EXAMPLE.COM"), "bob@EXAMPLE.COM");
    }

    #[test]
    fn host_and_realm_stay_unless_they_are_removed() {
        let of = |remove_host, remove_realm| {
            let names = Names::new("DEFAULT", "R".to_owned(), remove_host, remove_realm).unwrap();
            ["a/h@R", "a@R", "a", "a/h"].map(|name| names.id_of(name).unwrap())
        };
        assert_eq!(of(false, false), ["a/h@R", "a@R", "a", "a/h"]);
        assert_eq!(of(true, false), ["a@R", "a@R", "a", "a/h"]);
        assert_eq!(of(false, true), ["a/h", "a", "a", "a/h"]);
        assert_eq!(of(true, true), ["a", "a", "a", "a/h"]);
    }

    #[test]
    fn rules_of_hadoop_are_applied_in_order() {
        let rules = r"RULE:[2:$1@$0](.*@OTHER\.COM)s/@.*// RULE:[1:$1;$0](bob;.*)s/(b)o(.*);.*/$2-$1\$$10/
            RULE:[1:$1@$0](.*@MANY)s/[aeiou]/_/gRULE:[1:plain]DEFAULT";
        assert_eq!(id(rules, "nn/host@OTHER.COM"), "nn");
        assert_eq!(id(rules, "bob@ANY"), "b-b$b0");
        assert_eq!(id(rules, "queue@MANY"), "queue@MANY", "not simple: @ stays in it");
        assert_eq!(id(rules, "queue@EXAMPLE.COM"), "plain");
        assert_eq!(id(rules, "nn/host@EXAMPLE.COM"), "nn");
        assert_eq!(id("RULE:[1:$1]s/a/b/", "aaa@R"), "baa");
        assert_eq!(id("RULE:[1:$1]s/a/b/g", "aaa@R"), "bbb");
        assert_eq!(id("RULE:[1:$1](a)RULE:[1:all]", "aa@R"), "all", "a match is of the whole");
    }

    #[test]
    fn names_of_more_parts_are_refused() {
        let names = Names::new("DEFAULT", "R".to_owned(), false, false).unwrap();
        for name in ["a/b/c@R", "a@b@R", "a@R/x", "a/b@R/x", ""] {
            assert!(names.id_of(name).is_err(), "{name}");
        }
        assert!(names.id_of(&"x".repeat(1025)).is_err());
        let names = Names::new("RULE:[1:]", "R".to_owned(), true, true).unwrap();
        assert!(names.id_of("a@R").is_err(), "an empty name");
    }

    #[test]
    fn bad_rules_are_refused() {
        for (rules, expected) in [
            ("DEFAULT SOMETHING", "rule 2 begins neither"),
            ("RULE:[1:$1", "has no ]"),
            ("RULE:[1]", "has no :"),
            ("RULE:[:$1]", "has \"\" for a number"),
            ("RULE:[1:$2]", "has $2 in a format of 1"),
            ("RULE:[1:$x]", "has $ in a format of 1"),
            ("RULE:[1:$1](()", "an expression that is not taken"),
            ("RULE:[1:$1](a(?=b))", "an expression that is not taken"),
            ("RULE:[1:$1]s/a/b", "has no third /"),
            ("RULE:[1:$1]s/(a)/$2/", "a group that its expression does not have"),
            (r"RULE:[1:$1]s/a/\/", "ends with a backslash"),
            ("RULE:[1:$1]s/a/b/L", "rule 2 begins neither"),
        ] {
            let error = parse(rules).err().unwrap();
            assert!(error.contains(expected), "{rules}: {error}");
        }
    }
}
