//! Why a configuration cannot be used: what is wrong, where, and what would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A place in a configuration: a line of a file, an environment variable, or a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A key on a line of a file.
    Line { file: PathBuf, line: usize, key: String },
    /// An environment variable.
    Environment(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
    /// How the system calls this host.
    Host,
    /// Nowhere: the default.
    Default(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line, key } => write!(f, "{}, line {line}: {key}", file.display()),
            Place::Environment(name) => write!(f, "environment variable {name}"),
            Place::Flag(key) => write!(f, "flag --{key}"),
            Place::Host => f.write_str("the name of this host"),
            Place::Default(key) => write!(f, "the default of {key}"),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug)]
pub struct ConfigError(Box<Problem>);

#[derive(Debug)]
pub(super) enum Problem {
    Read { file: PathBuf, source: io::Error },
    Syntax { file: PathBuf, line: usize, message: String },
    UnknownKey { place: Place, nearest: Option<&'static str> },
    Value { place: Place, found: String, expected: String },
    Refused { place: Place, why: String },
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        ConfigError(Box::new(problem))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Problem::Read { file, source } => {
                write!(f, "cannot read the configuration file {}: {source}", file.display())
            }
            Problem::Syntax { file, line, message } => {
                write!(f, "{}, line {line}: {message}", file.display())
            }
            Problem::UnknownKey { place, nearest: Some(nearest) } => {
                write!(f, "{place}: there is no such setting; did you mean {nearest}?")
            }
            Problem::UnknownKey { place, nearest: None } => {
                write!(f, "{place}: there is no such setting; `stoa serve --help` lists them all")
            }
            Problem::Value { place, found, expected } => {
                write!(f, "{place}: expected {expected}, found {found:?}")
            }
            Problem::Refused { place, why } => write!(f, "{place}: {why}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Problem::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}
