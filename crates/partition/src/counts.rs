//! Counts of durations, of sizes and of updates.

const BUCKETS: usize = 26;

/// Counts of durations in buckets whose upper bounds double: 1 us, 2 us, 4 us, ... 2^24 us, and
/// everything above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_us: u64,
}

impl Histogram {
    /// Counts `count` durations of `us` microseconds.
    pub fn record(&mut self, us: u64, count: u64) {
        let bucket = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        let bucket = if us <= 1 { 0 } else { bucket.min(BUCKETS - 1) };
        self.counts[bucket] += count;
        self.sum_us += us * count;
    }

    /// Pairs of an inclusive upper bound in microseconds and the count in that bucket alone; the
    /// last bound is `u64::MAX`.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let last = BUCKETS - 1;
        self.counts
            .iter()
            .enumerate()
            .map(move |(i, &count)| (if i == last { u64::MAX } else { 1 << i }, count))
    }

    /// Sum of all durations, microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Sizes, in bytes; all 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// The smallest.
    pub least: usize,
    /// The last.
    pub last: usize,
    /// The largest.
    pub largest: usize,
}

impl Sizes {
    /// Notes one more.
    pub fn note(&mut self, bytes: usize) {
        self.least = if self.largest == 0 { bytes } else { self.least.min(bytes) };
        self.last = bytes;
        self.largest = self.largest.max(bytes);
    }

    /// Takes over what was noted elsewhere, later.
    fn follow(&mut self, later: Sizes) {
        if later.largest > 0 {
            self.note(later.least);
            self.note(later.largest);
            self.last = later.last;
        }
    }
}

/// Updates that were proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proposals {
    /// How many.
    pub count: u64,
    /// How much of an entry each takes.
    pub bytes: Sizes,
}

impl Proposals {
    pub(crate) fn note(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes.note(bytes);
    }

    /// Takes over what was noted elsewhere, later.
    pub fn follow(&mut self, later: Proposals) {
        self.count += later.count;
        self.bytes.follow(later.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_under_its_upper_bound() {
        for us in [0, 1, 2, 3, 4, 5, 1000, 1024, 1025, 1 << 24, (1 << 24) + 1, u64::from(u32::MAX)] {
            let mut histogram = Histogram::default();
            histogram.record(us, 1);
            let (bound, _) = histogram.buckets().find(|(_, count)| *count == 1).unwrap();
            assert!(us <= bound, "{us} <= {bound}");
            assert!(bound <= 1 || bound == u64::MAX || us > bound / 2, "{us} > {bound} / 2");
        }
    }
}
