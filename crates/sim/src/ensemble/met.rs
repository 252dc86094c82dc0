//! How often what went wrong, for those who want to be sure that it does.

use super::trouble::Trouble;
use std::fmt;
use std::ops::Add;

/// Counts of what has gone wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Met {
    times: [u64; Trouble::COUNT],
    /// Messages between servers that were lost, ...
    pub messages_lost: u64,
    /// ... came twice, ...
    pub messages_doubled: u64,
    /// ... or were overtaken by others.
    pub messages_late: u64,
    /// Machines that lost power in the middle of a call to their disk.
    pub torn: u64,
}

impl Met {
    /// Once more.
    pub(super) fn count(&mut self, trouble: Trouble) {
        self.times[trouble as usize] += 1;
    }

    /// How often.
    #[must_use]
    pub fn times(&self, trouble: Trouble) -> u64 {
        self.times[trouble as usize]
    }
}

impl Add for Met {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            times: std::array::from_fn(|at| self.times[at] + other.times[at]),
            messages_lost: self.messages_lost + other.messages_lost,
            messages_doubled: self.messages_doubled + other.messages_doubled,
            messages_late: self.messages_late + other.messages_late,
            torn: self.torn + other.torn,
        }
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trouble in Trouble::all().filter(|trouble| self.times(*trouble) > 0) {
            write!(f, "{trouble:?} {} times, ", self.times(trouble))?;
        }
        let Self { messages_lost, messages_doubled, messages_late, torn, .. } = self;
        write!(
            f,
            "{torn} machines without power in the middle of a call to the disk, messages: {messages_lost} lost, \
             {messages_doubled} doubled, {messages_late} late"
        )
    }
}
