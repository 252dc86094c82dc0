//! What people type to try an ensemble out.

/// A line that was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Ends a server at once, as a crash would.
    Kill(u8),
    /// Lets a server stop by itself.
    Stop(u8),
    /// Starts a server that is down.
    Start(u8),
    /// Cuts the link between a site and the hub.
    Cut(usize),
    /// Lets it work again.
    Heal(usize),
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
    "cut SITE  cuts the link between a site and the hub: nothing passes, and nobody is told
heal SITE lets it pass again, also what was held back";

/// What can be typed.
pub(super) fn help(has_sites: bool) -> String {
    if has_sites { format!("{HELP}\n{HELP_OF_SITES}") } else { HELP.to_owned() }
}

impl Typed {
    /// Reads a line; `Err` says what is wrong with it. There are servers 1 to `count`, and sites, the hub first.
    pub(super) fn parse(line: &str, count: u8, sites: &[&str]) -> Result<Typed, String> {
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { return Ok(Typed::Nothing) };
        let number = words.next();
        if words.next().is_some() {
            return Err(format!("{word} takes one number or name at most"));
        }
        match word {
            "cut" if !sites.is_empty() => return site(word, number, sites).map(Typed::Cut),
            "heal" if !sites.is_empty() => return site(word, number, sites).map(Typed::Heal),
            _ => {}
        }
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

/// The site of that name, which has a link to the hub.
fn site(word: &str, name: Option<&str>, sites: &[&str]) -> Result<usize, String> {
    match (sites.iter().position(|site| Some(*site) == name), sites) {
        (Some(index @ 1..), _) => Ok(index),
        (_, [hub, .., last]) => {
            Err(format!("{word} takes the name of a site other than {hub}, which is the hub: {word} {last}"))
        }
        _ => Err("there is no site but the hub".to_owned()),
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
        assert_eq!(parse("cut california"), Ok(Typed::Cut(1)));
        assert_eq!(parse(" heal  frankfurt"), Ok(Typed::Heal(2)));
        assert_eq!(parse("kill 3"), Ok(Typed::Kill(3)));
        for line in ["cut", "cut virginia", "heal 2", "cut nowhere"] {
            let error = parse(line).unwrap_err();
            assert!(error.contains("takes the name of a site other than virginia"), "{line}: {error}");
        }
        assert!(parse("cut california frankfurt").is_err());
        assert_eq!(Typed::parse("cut one", 1, &["one"]), Err("there is no site but the hub".to_owned()));
    }

    #[test]
    fn help_names_every_word() {
        for word in ["kill", "stop", "start", "status", "quit", "cut", "heal"] {
            assert!(help(true).lines().any(|line| line.starts_with(word)), "{word}");
        }
        assert!(!help(false).contains("heal"));
    }
}
