//! Connections of which it is not known yet who is at the other end: how many there may be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use tokio::task::AbortHandle;

use crate::complaints::Complaints;

/// How many connections may be about to say or prove something; the oldest makes room for another.
pub(super) const UNPROVEN_MAX: usize = 64;

/// Connections that have not said or proven yet what they must.
#[derive(Default)]
pub(super) struct Unproven {
    /// The oldest first.
    waiting: RefCell<BTreeMap<u64, AbortHandle>>,
    next: Cell<u64>,
}

impl Unproven {
    /// Takes one more. `start` begins to look after it, and is told its number, for
    /// [`done`](Self::done).
    pub(super) fn take(&self, complaints: &Complaints, start: impl FnOnce(u64) -> AbortHandle) {
        let number = self.next.get();
        self.next.set(number + 1);
        let task = start(number);
        let mut waiting = self.waiting.borrow_mut();
        waiting.insert(number, task);
        // Whoever means it is done within milliseconds: a flood only ends itself.
        if waiting.len() > UNPROVEN_MAX
            && let Some((_, oldest)) = waiting.pop_first()
        {
            oldest.abort();
            let why = format!("more than {UNPROVEN_MAX} that have not proven who they are");
            complaints.say(&format!("a connection between servers closed: {why}"));
        }
    }

    /// It has, or never will.
    pub(super) fn done(&self, number: u64) {
        self.waiting.borrow_mut().remove(&number);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.waiting.borrow().len()
    }
}
