//! The clocks of machines.

use crate::rng::Rng;
use stoa_core::Now;

/// When a world begins.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;

/// The clocks of a machine: none goes like another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    offset_us: u64,
    /// How much faster it goes, in millionths.
    fast_ppm: u64,
    pub(crate) wall_offset_ms: i64,
}

impl Clock {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            offset_us: rng.below(1 << 40),
            fast_ppm: rng.below(400),
            wall_offset_ms: rng.range(0, 4000) as i64 - 2000,
        }
    }

    /// It goes faster by so much, and does not start far from the other ones.
    pub(crate) fn goes(&mut self, fast_ppm: u64, offset_us: u64) {
        (self.offset_us, self.fast_ppm, self.wall_offset_ms) = (offset_us, fast_ppm, 0);
    }

    pub(crate) fn now(&self, world_us: u64) -> Now {
        let mono_us = self.offset_us + world_us + world_us * self.fast_ppm / 1_000_000;
        Now { mono_us, wall_ms: EPOCH_MS + (world_us / 1000) as i64 + self.wall_offset_ms }
    }

    /// When this clock that never goes back shows a time, or a little later.
    pub(crate) fn world_us(&self, mono_us: u64) -> u64 {
        mono_us.saturating_sub(self.offset_us) * 1_000_000 / (1_000_000 + self.fast_ppm) + 1
    }
}
