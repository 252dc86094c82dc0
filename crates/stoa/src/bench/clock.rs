//! Time of a run: nanoseconds since it began.

use std::time::{Duration, Instant};

/// Nanoseconds since the start of the run.
pub(crate) type Nanos = u64;

/// A monotonic clock that starts at 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that shows 0 now.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time.
    #[inline]
    pub(crate) fn now(self) -> Nanos {
        nanos(self.start.elapsed())
    }
}

/// A duration in nanoseconds; 584 years at most.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
