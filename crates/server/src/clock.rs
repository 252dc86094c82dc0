//! The real clocks.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stoa_core::Now;

use crate::meter::micros;

/// Shows the time since the server's start and the time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono_us: micros(self.started.elapsed()), wall_ms: wall_ms() }
    }
}

/// Microseconds since it was asked first in this process.
pub(crate) fn stopwatch_us() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    micros(BEGAN.elapsed())
}

/// Milliseconds since the epoch; 0 when the clock stands before it.
pub(crate) fn wall_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
