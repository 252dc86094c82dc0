//! Why a command did not succeed, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// What goes to standard error, and how the process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command was understood but could not be carried out: exit code 1.
    Failed(String),
    /// The command line is wrong: exit code 2.
    Usage(String),
}

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of the command itself.
    pub(crate) fn failed(what: impl fmt::Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// A mistake in the command line.
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::Usage(what.to_string())
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) | Self::Usage(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Failure {}

/// Says what was being done when an error came.
pub(crate) trait Context<T> {
    /// Turns an error into a [`Failure`] that begins with `doing`.
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::Failed(format!("{doing}: {error}")))
    }
}
