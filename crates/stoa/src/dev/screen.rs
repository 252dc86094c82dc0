//! What is shown: the output of every server behind its number, and what there is to say besides.

use std::io::{self, IsTerminal as _, Write as _};

/// Colours of a terminal for the numbers of servers: cyan, yellow, green, magenta, blue, red.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Standard output.
pub(super) struct Screen {
    has_colours: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        // The convention of https://no-color.org.
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Screen { has_colours: io::stdout().is_terminal() && !no_colour }
    }

    /// A line of a server.
    pub(super) fn line(&self, id: u8, text: &str) {
        self.write(&behind_number(id, text, self.has_colours));
    }

    /// Something about the ensemble, one line or several.
    pub(super) fn say(&self, text: &str) {
        for line in text.lines() {
            self.write(&format!("* | {line}\n"));
        }
    }

    /// A block that is to be seen among everything else.
    pub(super) fn block(&self, text: &str) {
        let bold = |line: &str| match line {
            "" => "\n".to_owned(),
            _ if self.has_colours => format!("  \x1b[1m{line}\x1b[0m\n"),
            _ => format!("  {line}\n"),
        };
        let lines: String = text.lines().map(bold).collect();
        self.write(&format!("\n{lines}\n"));
    }

    fn write(&self, text: &str) {
        let mut out = io::stdout().lock();
        // An output that is closed is no reason to end servers that somebody uses.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn behind_number(id: u8, text: &str, has_colours: bool) -> String {
    if !has_colours {
        return format!("{id} | {text}\n");
    }
    let colour = COLOURS[usize::from(id.max(1) - 1) % COLOURS.len()];
    format!("\x1b[{colour}m{id} |\x1b[0m {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_behind_the_number_of_their_server() {
        assert_eq!(behind_number(2, "ready", false), "2 | ready\n");
        assert_eq!(behind_number(7, "ready", true), "\x1b[36m7 |\x1b[0m ready\n");
    }
}
