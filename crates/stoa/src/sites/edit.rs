//! Changes to what the operator says of tokens and of durability, in the text of `/zookeeper/sites`. What is not concerned
//! stays as it is, the list of sites, remarks and mistakes too.

use stoa_sites::{Rule, Site};

/// The names of the sites that the text lists, each with its number.
fn names(text: &str) -> impl Iterator<Item = (&str, Site)> {
    text.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("site.")?.split_once('=')?;
        let (name, _) = rest.split_once(';')?;
        Some((name.strip_suffix(":hub").unwrap_or(name), Site(number.parse().ok()?)))
    })
}

/// Reads a line; lines of sites, remarks and mistakes say nothing.
fn rule(text: &str, line: &str) -> Result<Option<Rule>, &'static str> {
    Rule::parse(line, |name| names(text).find(|known| known.0 == name).map(|known| known.1))
}

/// The text with one more line, in place of those that it contradicts.
///
/// # Errors
/// Why that line could not be used.
pub(super) fn with(text: &str, line: &str) -> Result<String, String> {
    let said = rule(text, line).map_err(|why| {
        let known: Vec<&str> = names(text).map(|known| known.0).collect();
        format!("{line}: {why} (the sites are {})", known.join(", "))
    })?;
    let paths = match &said {
        Some(Rule::Together(paths)) => paths.as_slice(),
        _ => &[],
    };
    let lines = text.lines().filter(|old| match (rule(text, old), &said) {
        (Ok(Some(old)), Some(said)) => !takes_the_place_of(said, &old),
        _ => true,
    });
    let lines = lines.filter_map(|old| paths.iter().try_fold(old.to_owned(), |old, path| apart(&old, path)));
    Ok(joined(lines.chain([line.to_owned()])))
}

/// Whether only one of two rules can be: both say where the tokens of one subtree are, or at how many sites it is.
fn takes_the_place_of(new: &Rule, old: &Rule) -> bool {
    match (new, old) {
        (Rule::Pin(new, _) | Rule::Stay(new), Rule::Pin(old, _) | Rule::Stay(old))
        | (Rule::TwoSites(new) | Rule::OneSite(new), Rule::TwoSites(old) | Rule::OneSite(old)) => new == old,
        (Rule::Off, Rule::Off) => true,
        _ => false,
    }
}

/// The text with nothing said of a subtree.
pub(super) fn without(text: &str, path: &str) -> String {
    let lines = text.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        !matches!(words[..], ["pin", of, _] | ["stay" | "two-sites" | "one-site", of] if of == path)
    });
    joined(lines.filter_map(|line| apart(line, path)))
}

/// The text without the line that keeps all tokens at the hub.
pub(super) fn with_tokens(text: &str) -> String {
    let is_off = |line: &&str| matches!(rule(text, line), Ok(Some(Rule::Off)));
    joined(text.lines().filter(|line| !is_off(line)).map(str::to_owned))
}

/// A line without a subtree that moves with others by it; those who are left stay together.
fn apart(line: &str, path: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.first() != Some(&"together") || !words.contains(&path) {
        return Some(line.to_owned());
    }
    let left: Vec<&str> = words.into_iter().filter(|word| *word != path).collect();
    (left.len() > 2).then(|| left.join(" "))
}

fn joined(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "site.1=virginia:hub;a:1\nsite.2=frankfurt;b:2\n# mine\npin /eu frankfurt\nnonsense\ntogether /b \
        /c /d\nstay /e\n";

    #[test]
    fn a_line_takes_the_place_of_what_it_contradicts() {
        let with = |line: &str| with(TEXT, line).unwrap();
        let without_pin = TEXT.replace("pin /eu frankfurt\n", "");
        assert_eq!(with("pin /eu virginia"), without_pin.clone() + "pin /eu virginia\n");
        assert_eq!(with("stay /eu"), without_pin + "stay /eu\n");
        assert_eq!(with("pin /b frankfurt"), TEXT.to_owned() + "pin /b frankfurt\n");
        assert_eq!(with("together /b /x"), TEXT.replace("/b /c", "/c") + "together /b /x\n");
        assert_eq!(with("together /b /c"), TEXT.replace("together /b /c /d\n", "") + "together /b /c\n");
        let off = with("tokens off");
        assert_eq!(off, TEXT.to_owned() + "tokens off\n");
        assert_eq!(super::with(&off, "tokens off").unwrap(), off);
        assert_eq!(with_tokens(&off), TEXT);
    }

    #[test]
    fn how_many_sites_have_to_have_it_and_where_tokens_are_are_said_beside_each_other() {
        let two = with(TEXT, "two-sites /eu").unwrap();
        assert_eq!(two, TEXT.to_owned() + "two-sites /eu\n");
        assert_eq!(with(&two, "two-sites /eu").unwrap(), two);
        assert_eq!(with(&two, "one-site /eu").unwrap(), TEXT.to_owned() + "one-site /eu\n");
        assert_eq!(with(&two, "one-site /eu/cache").unwrap(), two.clone() + "one-site /eu/cache\n");
        let moved = with(&two, "pin /eu virginia").unwrap();
        assert_eq!(moved, two.replace("pin /eu frankfurt\n", "") + "pin /eu virginia\n");
        assert_eq!(without(&two, "/eu"), TEXT.replace("pin /eu frankfurt\n", ""));
        assert_eq!(without("one-site /a\ntwo-sites /b\n", "/a"), "two-sites /b\n");
        assert_eq!(with("", "two-sites /").unwrap(), "two-sites /\n");
        for line in ["two-sites /zookeeper/sites", "one-site a", "two-sites /a /b"] {
            assert!(with(TEXT, line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_could_not_be_read_is_not_written() {
        let why = with(TEXT, "pin /a tokyo").unwrap_err();
        assert_eq!(why, "pin /a tokyo: there is no such site (the sites are virginia, frankfurt)");
        for line in ["pin / frankfurt", "pin /a b frankfurt", "stay /zookeeper/sites", "together /a /a"] {
            assert!(with(TEXT, line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_said_of_a_subtree_is_taken_back() {
        assert_eq!(without(TEXT, "/eu"), TEXT.replace("pin /eu frankfurt\n", ""));
        assert_eq!(without(TEXT, "/e"), TEXT.replace("stay /e\n", ""));
        assert_eq!(without(TEXT, "/c"), TEXT.replace("/b /c", "/b"));
        assert_eq!(without(TEXT, "/f"), TEXT);
        assert_eq!(without("together /x /y\npin /x gone\n", "/x"), "");
    }
}
