//! What clients and the resource say to each other, a line each.

use std::fmt;
use std::str::FromStr;

use stoa_client::recipes::Token;

use crate::resource::Ending;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is the client with this number.
    Hello(usize),
    /// It has the lock.
    Enter(Token),
    Write(Token),
    /// It is done, and has seen what it holds the lock by: a leaf at its path, or a place in its queue.
    Leave(Option<bool>),
    Over(Ending),
    /// It went away without the lock, having given up or for a reason that there may be.
    Nothing,
    /// Something that must not happen.
    Problem(String),
}

/// What it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Take the lock.
    Take,
    /// Keep the session, and take it no more.
    Rest,
    /// Close the session.
    Close,
    /// It was done.
    Done,
    /// Come in, and work as long as nobody refuses that.
    Stay,
    Refused,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(number) => write!(f, "hello {number}"),
            Self::Enter(token) => write!(f, "enter {token}"),
            Self::Write(token) => write!(f, "write {token}"),
            Self::Leave(None) => f.write_str("leave"),
            Self::Leave(Some(true)) => f.write_str("leave leaf"),
            Self::Leave(Some(false)) => f.write_str("leave place"),
            Self::Over(Ending::Released) => f.write_str("over released"),
            Self::Over(Ending::Lost) => f.write_str("over lost"),
            Self::Over(Ending::Dropped) => f.write_str("over dropped"),
            Self::Nothing => f.write_str("nothing"),
            Self::Problem(what) => write!(f, "problem {what}"),
        }
    }
}

impl FromStr for Said {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let unknown = || format!("{line:?} means nothing");
        let token = || rest.parse().map(Token).map_err(|_| unknown());
        Ok(match (word, rest) {
            ("hello", number) => Self::Hello(number.parse().map_err(|_| unknown())?),
            ("enter", _) => Self::Enter(token()?),
            ("write", _) => Self::Write(token()?),
            ("leave", "") => Self::Leave(None),
            ("leave", "leaf") => Self::Leave(Some(true)),
            ("leave", "place") => Self::Leave(Some(false)),
            ("over", "released") => Self::Over(Ending::Released),
            ("over", "lost") => Self::Over(Ending::Lost),
            ("over", "dropped") => Self::Over(Ending::Dropped),
            ("nothing", _) => Self::Nothing,
            ("problem", what) => Self::Problem(what.to_owned()),
            _ => return Err(unknown()),
        })
    }
}

impl Answer {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Take, "take"),
        (Self::Rest, "rest"),
        (Self::Close, "close"),
        (Self::Done, "done"),
        (Self::Stay, "stay"),
        (Self::Refused, "refused"),
    ];
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(answer, _)| answer == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, name)| *name == line);
        known.map(|(answer, _)| *answer).ok_or_else(|| format!("{line:?} means nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let endings = [Ending::Released, Ending::Lost, Ending::Dropped].map(Said::Over);
        let leaves = [None, Some(true), Some(false)].map(Said::Leave);
        let others = [
            Said::Hello(3),
            Said::Enter(Token(7)),
            Said::Write(Token(8)),
            Said::Nothing,
            Said::Problem("a b".to_owned()),
        ];
        for said in endings.into_iter().chain(leaves).chain(others) {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
        for (answer, _) in Answer::ALL {
            assert_eq!(answer.to_string().parse(), Ok(answer));
        }
        assert!("enter x".parse::<Said>().is_err() && "".parse::<Answer>().is_err());
    }
}
