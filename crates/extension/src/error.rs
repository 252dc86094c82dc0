//! Why a program was refused, or a call of it failed: where, what, and what to do.

use crate::limits::{Exhausted, Limit};
use alloc::string::String;
use core::fmt;
use stoa_wire::ErrorCode;

/// A place in the source, counted from one; zero where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u16,
    /// The column, in characters.
    pub column: u16,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str("the program");
        }
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a program is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// Where.
    pub at: Position,
    /// What is wrong, and what to do.
    pub what: String,
}

impl CompileError {
    pub(crate) fn new(at: Position, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

impl core::error::Error for CompileError {}

/// What ended a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It would have used more than it may.
    Limit {
        /// The bound.
        limit: Limit,
        /// How much it is.
        allowed: u64,
    },
    /// The tree refused what it asked for.
    Refused {
        /// The method of `local`.
        operation: &'static str,
        /// The znode.
        path: String,
        /// Why.
        code: ErrorCode,
    },
    /// The program does something that makes no sense, as adding a number to an array.
    Wrong(String),
    /// The program gave up, with `throw`.
    Thrown(String),
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// Where.
    pub at: Position,
    /// What ended it.
    pub failure: Failure,
}

impl CallError {
    /// The error that a client is answered with.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match &self.failure {
            Failure::Refused { code, .. } => *code,
            Failure::Limit { .. } | Failure::Wrong(_) | Failure::Thrown(_) => ErrorCode::SystemError,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.at)?;
        match &self.failure {
            Failure::Limit { limit, allowed } => {
                write!(f, "the call needs more than its limit `{limit}` of {allowed}")
            }
            Failure::Refused { operation, path, code } => {
                write!(f, "local.{operation}({:?}) was refused: {code}", Shortened(path))
            }
            Failure::Wrong(what) => f.write_str(what),
            Failure::Thrown(what) => write!(f, "thrown: {}", Shortened(what).text()),
        }
    }
}

impl core::error::Error for CallError {}

/// A text from a program, so short that it can stand in a message.
pub(crate) struct Shortened<'a>(pub(crate) &'a str);

impl Shortened<'_> {
    const CHARACTERS: usize = 200;

    pub(crate) fn text(&self) -> &str {
        let end = self.0.char_indices().nth(Self::CHARACTERS).map_or(self.0.len(), |(at, _)| at);
        &self.0[..end]
    }
}

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        write!(f, "{text:?}{}", if text.len() < self.0.len() { "..." } else { "" })
    }
}

/// An error on its way to the place that knows where in the source it is.
#[derive(Debug)]
pub(crate) enum Trouble {
    Limit(Exhausted),
    Wrong(String),
}

impl From<Exhausted> for Trouble {
    fn from(exhausted: Exhausted) -> Self {
        Self::Limit(exhausted)
    }
}

impl Trouble {
    pub(crate) fn wrong(what: impl Into<String>) -> Self {
        Self::Wrong(what.into())
    }

    pub(crate) fn at(self, at: Position) -> CallError {
        let failure = match self {
            Self::Limit(Exhausted { limit, allowed }) => Failure::Limit { limit, allowed },
            Self::Wrong(what) => Failure::Wrong(what),
        };
        CallError { at, failure }
    }
}
