//! How long a body takes to come after what names it.

use alloc::collections::BTreeMap;

/// The most bodies that are waited for by name.
const AWAITED_MAX: usize = 256;

/// A header and its body come down different trees, and a large body takes its time at each server that passes it on: where
/// links are narrow or full, longer than it takes elsewhere to ask for what is lost. Who asks too early has it sent twice,
/// over the same links, and so makes all that follows later still. So who waits learns from what has come.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// Bodies that have been named and have not come down their trees, by their last positions, and since when.
    awaited: BTreeMap<u64, u64>,
    /// How late bodies have been of late, at most.
    late_us: u64,
}

impl Lateness {
    /// A body is named that is not here.
    pub(crate) fn named(&mut self, last: u64, now_us: u64) {
        self.awaited.entry(last).or_insert(now_us);
        if self.awaited.len() > AWAITED_MAX {
            self.awaited.pop_first();
        }
    }

    /// A body has come down its tree, whether somebody was asked for it or not.
    pub(crate) fn came(&mut self, last: u64, now_us: u64) {
        if let Some(named_us) = self.awaited.remove(&last) {
            self.was(now_us.saturating_sub(named_us));
        }
    }

    /// A body was there before its header.
    pub(crate) fn was_early(&mut self) {
        self.was(0);
    }

    /// How long to wait for a body, or for an answer, at least and at most as long as that.
    pub(crate) fn wait_us(&self, least_us: u64, most_us: u64) -> u64 {
        (2 * self.late_us).clamp(least_us, most_us.max(least_us))
    }

    /// Positions mean something else now. How fast links are has not changed.
    pub(crate) fn forget(&mut self) {
        self.awaited.clear();
    }

    fn was(&mut self, late_us: u64) {
        self.late_us = late_us.max(self.late_us - self.late_us / 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_learns_how_late_bodies_are() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.wait_us(5, 60), 5);
        lateness.named(9, 100);
        lateness.named(9, 115);
        lateness.came(8, 120);
        assert_eq!(lateness.wait_us(5, 60), 5);
        lateness.came(9, 120);
        assert_eq!(lateness.wait_us(5, 60), 40);
        assert_eq!(lateness.wait_us(5, 30), 30);
        // It was said once how late that was.
        lateness.came(9, 900);
        assert_eq!(lateness.wait_us(5, 60), 40);
        (0..30).for_each(|_| lateness.was_early());
        assert!(lateness.wait_us(5, 60) < 20);
    }

    #[test]
    fn what_never_comes_is_forgotten_and_says_nothing() {
        let mut lateness = Lateness::default();
        (0..1000).for_each(|last| lateness.named(last, 0));
        assert_eq!(lateness.awaited.len(), AWAITED_MAX);
        lateness.forget();
        lateness.came(999, 1_000_000);
        assert_eq!(lateness.wait_us(5, 60), 5);
    }
}
