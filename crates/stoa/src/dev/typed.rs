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
    /// Says how every server is.
    Status,
    /// Says what can be typed.
    Help,
    /// Ends the ensemble.
    Quit,
    /// An empty line.
    Nothing,
}

pub(super) const HELP: &str = "kill N    ends server N at once, as a crash would
stop N    lets server N finish what is under way and stop
start N   starts server N again
status    says how every server is, and which leads
quit      stops all servers, as Ctrl-C does";

impl Typed {
    /// Reads a line; `Err` says what is wrong with it. There are servers 1 to `count`.
    pub(super) fn parse(line: &str, count: u8) -> Result<Typed, String> {
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { return Ok(Typed::Nothing) };
        let number = words.next();
        if words.next().is_some() {
            return Err(format!("{word} takes one number at most"));
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
            assert_eq!(Typed::parse(line, 3), Ok(expected), "{line}");
        }
        for line in ["kill", "kill 0", "kill 4", "kill x", "kill 1 2", "status 1", "frobnicate", "2"] {
            assert!(Typed::parse(line, 3).is_err(), "{line}");
        }
    }

    #[test]
    fn help_names_every_word() {
        for word in ["kill", "stop", "start", "status", "quit"] {
            assert!(HELP.lines().any(|line| line.starts_with(word)), "{word}");
        }
    }
}
