//! What is said of strangers: anybody can cause it, so only so much of it in a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much is told in a time; the rest is counted.
const COMPLAINTS_MAX: u32 = 5;
const COMPLAINTS_PERIOD: Duration = Duration::from_secs(10);

/// Warnings that are repeated, or that anybody can cause: only so many in a time.
#[derive(Debug)]
pub(crate) struct Complaints {
    /// What has happened more often than is told.
    what: &'static str,
    said: Mutex<Period>,
}

#[derive(Debug)]
struct Period {
    since: Instant,
    count: u32,
    unsaid: u64,
}

impl Complaints {
    /// `what` has happened more often than is told, in words that fit behind "7 more times".
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, said: Mutex::new(Period { since: Instant::now(), count: 0, unsaid: 0 }) }
    }

    /// Says it, unless too much was said already.
    pub(crate) fn say(&self, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.since.elapsed() >= COMPLAINTS_PERIOD {
            let unsaid = said.unsaid;
            *said = Period { since: Instant::now(), count: 0, unsaid: 0 };
            if unsaid > 0 {
                tracing::warn!("{unsaid} more times {}", self.what);
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
