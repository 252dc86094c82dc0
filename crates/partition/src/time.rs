//! Time as whoever drives a server tells it.

/// A moment, as the driver's clocks show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Microseconds of a clock that never goes back; its start does not matter. Timeouts use it.
    pub mono_us: u64,
    /// Milliseconds since the epoch. Only ctime, mtime and TTLs use it; it may jump.
    pub wall_ms: i64,
}

/// Reads a clock of the driver, in microseconds from wherever it begins. What it shows is counted and shown to
/// people; nothing is decided by it. Without a driver's it is quiesced.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(pub fn() -> u64);

impl Default for Stopwatch {
    fn default() -> Self {
        Self(|| 0)
    }
}
