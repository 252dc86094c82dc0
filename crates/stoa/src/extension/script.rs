//! The lines of a script.

use stoa_extension::OperationKind;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Empty, or a comment.
    Nothing,
    /// A znode that is there, made by the server itself.
    Given { path: &'a str, data: &'a str },
    /// A request of a session, which begins with its first.
    Request { who: &'a str, asked: Asked<'a> },
    /// The end of a session.
    Close { who: &'a str },
    /// Shows a znode.
    Show { path: &'a str },
    /// The last request has to have come to this.
    Expect(&'a str),
}

/// What a session asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub(super) kind: OperationKind,
    pub(super) path: &'a str,
    pub(super) data: &'a str,
    pub(super) ephemeral: bool,
    pub(super) sequential: bool,
}

/// The first word, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

impl<'a> Line<'a> {
    /// Reads a line, or says what it should be.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let (first, rest) = word(text);
        if first.is_empty() || first.starts_with('#') {
            return Ok(Self::Nothing);
        }
        if let Some(who) = first.strip_suffix(':') {
            return Self::of_session(who, rest);
        }
        let (path, data) = word(rest);
        match first {
            "given" if path.starts_with('/') => Ok(Self::Given { path, data }),
            "show" if path.starts_with('/') && data.is_empty() => Ok(Self::Show { path }),
            "expect" if !rest.is_empty() => Ok(Self::Expect(rest)),
            _ => Err("a line is `given PATH [DATA]`, `NAME: REQUEST`, `show PATH`, `expect RESULT` or a `# comment`".into()),
        }
    }

    fn of_session(who: &'a str, rest: &'a str) -> Result<Self, String> {
        let (name, mut rest) = word(rest);
        if name == "close" && rest.is_empty() {
            return Ok(Self::Close { who });
        }
        let kind = OperationKind::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = OperationKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("there is no request `{name}`; there are {} and close", known.join(", "))
        })?;
        let (mut ephemeral, mut sequential) = (false, false);
        while let (flag @ ("-e" | "-s"), tail) = word(rest) {
            if kind != OperationKind::Create {
                return Err(format!("only a create can have the flag {flag}"));
            }
            ephemeral |= flag == "-e";
            sequential |= flag == "-s";
            rest = tail;
        }
        let (path, data) = word(rest);
        if !path.starts_with('/') {
            return Err(format!("`{name}` needs the path of a znode"));
        }
        if !data.is_empty() && !matches!(kind, OperationKind::Create | OperationKind::Update) {
            return Err(format!("`{name}` takes no data"));
        }
        Ok(Self::Request { who, asked: Asked { kind, path, data, ephemeral, sequential } })
    }
}

/// Whether a line is what was expected: `...` at the end of what is expected stands for anything.
pub(super) fn is_met(wanted: &str, line: &str) -> bool {
    match wanted.strip_suffix("...") {
        Some(beginning) => line.starts_with(beginning.trim_end()),
        None => line == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let asked =
            |kind, path, data, ephemeral, sequential| Asked { kind, path, data, ephemeral, sequential };
        for (text, wanted) in [
            ("", Line::Nothing),
            ("  # a: b", Line::Nothing),
            ("given /a  two words ", Line::Given { path: "/a", data: "two words" }),
            ("show /a", Line::Show { path: "/a" }),
            ("expect reply 4 2", Line::Expect("reply 4 2")),
            ("a: close", Line::Close { who: "a" }),
            (
                "a: read /x",
                Line::Request { who: "a", asked: asked(OperationKind::Read, "/x", "", false, false) },
            ),
            (
                "a: create -s -e /x y z",
                Line::Request { who: "a", asked: asked(OperationKind::Create, "/x", "y z", true, true) },
            ),
        ] {
            assert_eq!(Line::parse(text), Ok(wanted), "{text:?}");
        }
        for text in [
            "read /x",
            "a: get /x",
            "a: read",
            "a: read x",
            "a: read /x y",
            "a: read -e /x",
            "expect",
            "show",
            "given x",
        ] {
            assert!(Line::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn expectations_are_met_in_full_or_from_the_beginning() {
        assert!(is_met("reply 4", "reply 4") && is_met("error NoNode ...", "error NoNode: x"));
        assert!(!is_met("reply 4", "reply 42") && !is_met("error ...", "reply"));
    }
}
