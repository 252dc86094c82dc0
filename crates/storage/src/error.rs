//! What can go wrong, said so that an operator can act on it.

use alloc::string::String;
use core::fmt;

use crate::disk::DiskError;

/// Why a folder cannot be opened, read or purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// The disk failed.
    Disk(DiskError),
    /// Bytes on the disk are not what was written.
    Damaged {
        /// The file.
        file: String,
        /// Where in it the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file that must be there is not.
    Missing {
        /// The file.
        file: String,
        /// How that is known.
        what: String,
    },
    /// A file was written by a program with another version of the format.
    UnknownVersion {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The version that this program knows.
        known: u32,
    },
    /// The folder holds no log although the options say that it must.
    NoLog,
    /// Whoever receives what recovery finds would not have it.
    Refused {
        /// The file it came from.
        file: String,
        /// Where in it.
        offset: u64,
        /// The reason given.
        what: String,
    },
    /// A caller asked for more than the format holds.
    Limit {
        /// What was asked.
        what: String,
    },
}

/// What an operator can do about damaged or missing files.
const ADVICE: &str = "Restore the data folder from a backup, or, in an ensemble, move it away and \
     start with an empty one; `stoa log dump` and `stoa snapshot verify` show what is readable.";

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => write!(f, "{error}."),
            Self::Damaged { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}. {ADVICE}")
            }
            Self::Missing { file, what } => write!(f, "{file} is missing: {what}. {ADVICE}"),
            Self::UnknownVersion { file, found, known } => write!(
                f,
                "{file} has format version {found}, this program knows version {known}: \
                 either a newer program wrote it (run that one), or it is damaged. {ADVICE}"
            ),
            Self::NoLog => f.write_str(
                "the data folder holds no log, although the configuration says that it must: \
                 check the folder's path and that its disk is mounted, or allow a new log.",
            ),
            Self::Refused { file, offset, what } => {
                write!(f, "what {file} holds at byte {offset} cannot be used: {what}. {ADVICE}")
            }
            Self::Limit { what } => write!(f, "{what}."),
        }
    }
}

impl core::error::Error for StorageError {}

impl From<DiskError> for StorageError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// Why a batch was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The disk is full. Nothing is stored, durably; it may be tried again.
    NoSpace(DiskError),
    /// The disk failed, now or earlier. Nobody knows what is stored: stop, and recover.
    Poisoned(DiskError),
    /// The entry does not follow the last one of its timeline. Nothing is stored.
    OutOfOrder {
        /// The timeline.
        timeline: u32,
        /// The position that comes next.
        expected: u64,
        /// The position given.
        found: u64,
    },
    /// The batch is larger than a frame may be, or brings too many timelines. Nothing is stored.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        limit: u64,
    },
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace(error) => write!(f, "the log's disk is full, nothing was stored: {error}"),
            Self::Poisoned(error) => write!(
                f,
                "the log can no longer be trusted after a failure of its disk, restart the server: {error}"
            ),
            Self::OutOfOrder { timeline, expected, found } => {
                write!(f, "position {found} given to timeline {timeline}, which is at {expected}")
            }
            Self::TooLarge { what, found, limit } => {
                write!(f, "{what} of a batch are {found}, at most {limit} are possible")
            }
        }
    }
}

impl core::error::Error for AppendError {}
