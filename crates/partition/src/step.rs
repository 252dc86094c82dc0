//! Where something stands on a partition's timeline, more finely than by entries.
//!
//! Timestamps say how much of each timeline somebody has seen, and thereby in which order clients are told. Entries
//! are too coarse for that: of two that are under construction at once, each may hold what follows something in the
//! other one. So what others may follow ends a *step* of its entry, and the next step may follow something again.
//! Between the steps of two entries nothing goes round in a circle, while between the entries it may.

/// So many low bits number the steps of an entry.
const BITS: u32 = 16;

/// No entry has more steps than this; the number that is left stands for what is behind all of them.
pub(crate) const STEPS_MAX: u16 = u16::MAX;

/// A step of the entry at a position.
#[must_use]
#[inline]
pub const fn step_of(position: u64, step: u16) -> u64 {
    position << BITS | step as u64
}

/// Behind all steps of the entry at a position.
#[must_use]
#[inline]
pub const fn end_of(position: u64) -> u64 {
    step_of(position, u16::MAX)
}

/// The position of the entry that a step is in.
#[must_use]
#[inline]
pub const fn entry_of(step: u64) -> u64 {
    step >> BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_the_order_of_entries_and_within_them() {
        let steps =
            [end_of(6), step_of(7, 0), step_of(7, 1), step_of(7, STEPS_MAX - 1), end_of(7), step_of(8, 0)];
        assert!(steps.is_sorted_by(|one, next| one < next));
        assert_eq!(steps.map(entry_of), [6, 7, 7, 7, 7, 8]);
    }
}
