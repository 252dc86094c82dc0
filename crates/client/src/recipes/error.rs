//! What may go wrong.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use stoa_wire::ErrorCode;

/// Why a recipe could not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The session has ended, and what was waited for or held is gone with it. The client goes on to open a new
    /// session: ask again.
    SessionLost,
    /// Somebody else has deleted the znode with which we were waiting.
    Removed {
        /// The znode.
        path: String,
    },
    /// The session ended before the answer came, so nobody knows whether it was done. It was not done twice.
    Uncertain,
    /// The znode holds something else than the recipe puts there.
    Foreign {
        /// The znode.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The service has refused a request.
    Refused {
        /// The znode that it was about.
        path: String,
        /// Why.
        code: ErrorCode,
    },
}

impl Error {
    /// What a failed request means that is not worth repeating.
    pub(super) fn of(path: &str, code: ErrorCode) -> Self {
        match code {
            ErrorCode::SessionExpired => Self::SessionLost,
            code => Self::Refused { path: path.to_owned(), code },
        }
    }

    /// Whether the service may do it later: it has no room, or no leader.
    pub(super) fn is_for_now(&self) -> bool {
        use ErrorCode::{NotReadOnly, SystemError};
        matches!(self, Self::Refused { code: SystemError | NotReadOnly, .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionLost => f.write_str("the session has ended, and what it held is gone: ask again"),
            Self::Removed { path } => write!(f, "somebody has deleted {path}, with which we were waiting"),
            Self::Uncertain => {
                f.write_str("the session ended before the answer came: it was done once or not at all")
            }
            Self::Foreign { path, problem } => write!(f, "{path} is not of this recipe: {problem}"),
            Self::Refused { path, code } => write!(f, "a request for {path} was refused: {code}"),
        }
    }
}

impl core::error::Error for Error {}
