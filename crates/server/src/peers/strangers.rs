//! Connections of which it is not known yet who is at the other end: how many there may be, and how much
//! is said of those that are refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// How many connections may be about to say or prove something; the oldest makes room for another.
pub(super) const UNPROVEN_MAX: usize = 64;
/// How many refusals are told of in a time; the rest is counted.
const COMPLAINTS_MAX: u32 = 5;
const COMPLAINTS_PERIOD: Duration = Duration::from_secs(10);

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

/// Warnings that are repeated, or that anybody can cause: only so many in a time.
pub(super) struct Complaints {
    said: Mutex<Said>,
}

struct Said {
    since: Instant,
    count: u32,
    unsaid: u64,
}

impl Complaints {
    pub(super) fn new() -> Self {
        Self { said: Mutex::new(Said { since: Instant::now(), count: 0, unsaid: 0 }) }
    }

    pub(super) fn say(&self, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.since.elapsed() >= COMPLAINTS_PERIOD {
            let unsaid = said.unsaid;
            *said = Said { since: Instant::now(), count: 0, unsaid: 0 };
            if unsaid > 0 {
                tracing::warn!(
                    "{unsaid} more times connections between servers were refused or closed, or snapshots not received"
                );
            }
        }
        if said.count < COMPLAINTS_MAX {
            said.count += 1;
            tracing::warn!("{what}");
        } else {
            said.unsaid += 1;
        }
    }
}
