//! The names of the ways to take a lock.

use core::fmt;
use core::str::FromStr;

/// A way to take a [`Lock`](super::Lock): the primitives of section II-D of *The Cost of Consensus*, and the one that
/// is a program inside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// A place in a queue; then a look who is before it; then a watch on that one. One request at a time.
    SyncQueue,
    /// A place in a queue, and looks right behind it, one each interval, until it is the first.
    AsyncQueue,
    /// The same, with a watch on the one before it as soon as that is known, in place of further looks.
    AsyncQueueWatch,
    /// A znode that all create, until it succeeds. One request at a time.
    SyncTas,
    /// The same; who finds it taken watches it, and tries again when it is gone.
    TasWatch,
    /// The same, once each interval, without waiting for answers.
    AsyncTas,
    /// A place in a queue that a program inside the service keeps, and tells when it is the first.
    Extension,
}

impl Primitive {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SyncQueue,
        Self::AsyncQueue,
        Self::AsyncQueueWatch,
        Self::SyncTas,
        Self::TasWatch,
        Self::AsyncTas,
        Self::Extension,
    ];

    /// Its name, as the models have it too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SyncQueue => "sync-queue",
            Self::AsyncQueue => "async-queue",
            Self::AsyncQueueWatch => "async-queue-watch",
            Self::SyncTas => "sync-tas",
            Self::TasWatch => "tas-watch",
            Self::AsyncTas => "async-tas",
            Self::Extension => "extension",
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No primitive has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPrimitive;

impl fmt::Display for UnknownPrimitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such primitive: it is one of")?;
        Primitive::ALL.iter().try_for_each(|primitive| write!(f, " {primitive}"))
    }
}

impl core::error::Error for UnknownPrimitive {}

impl FromStr for Primitive {
    type Err = UnknownPrimitive;

    fn from_str(name: &str) -> Result<Self, UnknownPrimitive> {
        Self::ALL.into_iter().find(|primitive| primitive.name() == name).ok_or(UnknownPrimitive)
    }
}
