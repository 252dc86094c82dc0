//! What people type to try an ensemble out.

use super::links::Cable;

/// A line that was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Ends a server at once, as a crash would.
    Kill(u8),
    /// Lets a server stop by itself.
    Stop(u8),
    /// Starts a server that is down.
    Start(u8),
    /// Cuts links between sites.
    Cut(Cable),
    /// Lets them work again.
    Heal(Cable),
    /// Says how every server is.
    Status,
    /// Says what can be typed.
    Help,
    /// Ends the ensemble.
    Quit,
    /// An empty line.
    Nothing,
}

const HELP: &str = "kill N    ends server N at once, as a crash would
stop N    lets server N finish what is under way and stop
start N   starts server N again
status    says how every server is, and which leads
quit      stops all servers, as Ctrl-C does";
const HELP_OF_SITES: &str =
    "cut A     cuts site A off from all other sites: nothing passes, and nobody is told
cut A B   cuts the links between these two sites
cut A > B lets nothing pass from A to B; what B sends passes
heal      lets everything pass again, also what was held back
heal A, heal A B, heal A > B    the same of these links alone";

/// What can be typed.
pub(super) fn help(has_sites: bool) -> String {
    if has_sites { format!("{HELP}\n{HELP_OF_SITES}") } else { HELP.to_owned() }
}

impl Typed {
    /// Reads a line; `Err` says what is wrong with it. There are servers 1 to `count`, and sites, the hub first.
    pub(super) fn parse(line: &str, count: u8, sites: &[&str]) -> Result<Typed, String> {
        let line = line.replace('>', " > ");
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { return Ok(Typed::Nothing) };
        let words: Vec<&str> = words.collect();
        match word {
            "cut" if !sites.is_empty() => return cable(word, &words, sites).map(Typed::Cut),
            "heal" if !sites.is_empty() && words.is_empty() => return Ok(Typed::Heal(Cable::All)),
            "heal" if !sites.is_empty() => return cable(word, &words, sites).map(Typed::Heal),
            _ => {}
        }
        if words.len() > 1 {
            return Err(format!("{word} takes one number at most"));
        }
        let number = words.first();
        let with_number: fn(u8) -> Typed = match (word, number) {
            ("kill", _) => Typed::Kill,
            ("stop", _) => Typed::Stop,
            ("start", _) => Typed::Start,
            ("status", None) => return Ok(Typed::Status),
            ("help" | "?", None) => return Ok(Typed::Help),
            ("quit" | "exit", None) => return Ok(Typed::Quit),
            ("status" | "help" | "quit" | "exit", Some(_)) => return Err(format!("{word} takes no number")),
            _ => return Err(format!("there is no word {word}; help lists them")),
        };
        let number = number.and_then(|number| number.parse().ok()).filter(|id| (1..=count).contains(id));
        number.map(with_number).ok_or_else(|| match count {
            1 => format!("{word} takes the number of a server: {word} 1"),
            _ => format!("{word} takes the number of a server, 1 to {count}: {word} {count}"),
        })
    }
}

/// The links that are named by one site, or by two of them.
fn cable(word: &str, words: &[&str], sites: &[&str]) -> Result<Cable, String> {
    let [one, .., other] = sites else { return Err("there is no other site".to_owned()) };
    let site = |name: &str| {
        let names = || sites.join(", ");
        let known = sites.iter().position(|site| *site == name);
        known.ok_or_else(|| format!("there is no site {name}; the sites are {}", names()))
    };
    let cable = match *words {
        [name] if name != ">" => Cable::Of(site(name)?),
        [one, other] if one != ">" && other != ">" => Cable::Between(site(one)?, site(other)?),
        [from, ">", to] => Cable::From(site(from)?, site(to)?),
        _ => {
            return Err(format!(
                "{word} takes the name of a site, or of two: {word} {other}, or {word} {one} {other}, or \
                 {word} {one} > {other}"
            ));
        }
    };
    match cable {
        Cable::Between(one, other) | Cable::From(one, other) if one == other => {
            Err(format!("there is no link between {0} and {0}", sites[one]))
        }
        _ => Ok(cable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_with_their_numbers() {
        let lines = [
            ("kill 2", Typed::Kill(2)),
            ("  stop   1 ", Typed::Stop(1)),
            ("start 3", Typed::Start(3)),
            ("status", Typed::Status),
            ("help", Typed::Help),
            ("quit", Typed::Quit),
            (" ", Typed::Nothing),
        ];
        for (line, expected) in lines {
            assert_eq!(Typed::parse(line, 3, &[]), Ok(expected), "{line}");
        }
        for line in ["kill", "kill 0", "kill 4", "kill x", "kill 1 2", "status 1", "frobnicate", "2", "cut a"]
        {
            assert!(Typed::parse(line, 3, &[]).is_err(), "{line}");
        }
    }

    #[test]
    fn links_have_the_names_of_sites() {
        let parse = |line| Typed::parse(line, 3, &["virginia", "california", "frankfurt"]);
        for (line, expected) in [
            ("cut california", Typed::Cut(Cable::Of(1))),
            ("cut virginia", Typed::Cut(Cable::Of(0))),
            (" heal  frankfurt", Typed::Heal(Cable::Of(2))),
            ("cut frankfurt california", Typed::Cut(Cable::Between(2, 1))),
            ("heal frankfurt > california", Typed::Heal(Cable::From(2, 1))),
            ("cut frankfurt>california", Typed::Cut(Cable::From(2, 1))),
            ("heal", Typed::Heal(Cable::All)),
            ("kill 3", Typed::Kill(3)),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
        for line in ["cut", "cut >", "cut virginia >", "cut > virginia", "cut virginia california frankfurt"]
        {
            let error = parse(line).unwrap_err();
            assert!(
                error.starts_with("cut takes the name of a site, or of two: cut frankfurt, or"),
                "{line}: {error}"
            );
        }
        for line in ["heal 2", "cut nowhere", "cut california > nowhere"] {
            let error = parse(line).unwrap_err();
            assert!(error.ends_with("; the sites are virginia, california, frankfurt"), "{line}: {error}");
        }
        let same = Err("there is no link between virginia and virginia".to_owned());
        assert_eq!(parse("cut virginia virginia"), same);
        assert_eq!(Typed::parse("cut one", 1, &["one"]), Err("there is no other site".to_owned()));
    }

    #[test]
    fn help_names_every_word() {
        for word in ["kill", "stop", "start", "status", "quit", "cut", "heal"] {
            assert!(help(true).lines().any(|line| line.starts_with(word)), "{word}");
        }
        assert!(!help(false).contains("heal"));
    }
}
