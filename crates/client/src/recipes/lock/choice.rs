//! Which way a lock is taken that chooses by itself, and why.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use super::primitive::Primitive;

/// Shares are of a million.
const WHOLE: u32 = 1_000_000;
/// What a new observation counts for: one in so many.
const WEIGHT: u32 = 16;
/// What the leaf is expected to lose by has to come below this before it is taken to, ...
const WORTH_TRYING_US: u64 = 25;
/// ... and above this before it is given up again.
const NOT_WORTH_IT_US: u64 = 100;
/// A look each such part of a round trip, until a watch is set, makes up for turns that come in the first one.
const LOOKS_IN_TRIP: u32 = 8;
const LOOKS_EVERY_MIN: Duration = Duration::from_millis(1);

/// What was learned from acquisitions. A sample may be lost when two are made at once.
#[derive(Debug)]
pub(super) struct Estimates {
    /// How long a write takes, smoothed; 0 is nothing known.
    trip_us: AtomicU64,
    /// The share of acquisitions that found the lock taken, smoothed.
    taken: AtomicU32,
    tries_leaf: AtomicBool,
}

impl Default for Estimates {
    /// Who knows nothing queues up, which is never bad.
    fn default() -> Self {
        Self {
            trip_us: AtomicU64::new(0),
            taken: AtomicU32::new(WHOLE / 2),
            tries_leaf: AtomicBool::new(false),
        }
    }
}

/// Why a lock is taken in one way and not in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was asked for.
    Asked,
    /// Its program is there, and nothing needs fewer requests or trips.
    Program,
    /// The lock is so rarely taken that the fewest requests count.
    RarelyTaken,
    /// The lock is taken so often that waiting counts, or it is not known to be otherwise.
    OftenTaken,
}

/// What a lock chooses now, and what that rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// How it is taken.
    pub primitive: Primitive,
    /// Why.
    pub reason: Reason,
    /// How long a write takes, smoothed; zero while nothing is known.
    pub trip: Duration,
    /// How many of a million acquisitions found the lock taken, smoothed.
    pub taken_ppm: u32,
    /// What an acquisition is expected to lose when it tests and sets, and the lock is taken: the two more trips that
    /// it needs then.
    pub loss: Duration,
    /// Where that loss makes it choose otherwise than now.
    pub threshold: Duration,
}

impl Estimates {
    /// A write has taken so long.
    pub(super) fn took(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let trip_us = match self.trip_us.load(Ordering::Relaxed) {
            0 => time_us,
            trip_us => trip_us - trip_us / u64::from(WEIGHT) + time_us / u64::from(WEIGHT),
        };
        self.trip_us.store(trip_us.max(1), Ordering::Relaxed);
    }

    /// An acquisition has found the lock taken, or free.
    pub(super) fn found(&self, is_taken: bool) {
        let taken = self.taken.load(Ordering::Relaxed);
        let sample = if is_taken { WHOLE } else { 0 };
        self.taken.store(taken - taken / WEIGHT + sample / WEIGHT, Ordering::Relaxed);
    }

    /// How long a write takes; zero while nothing is known.
    pub(super) fn trip(&self) -> Duration {
        Duration::from_micros(self.trip_us.load(Ordering::Relaxed))
    }

    /// How often to look until a watch is set.
    pub(super) fn looks_every(&self) -> Duration {
        (self.trip() / LOOKS_IN_TRIP).max(LOOKS_EVERY_MIN)
    }

    fn loss_us(&self) -> u64 {
        let trip_us = self.trip_us.load(Ordering::Relaxed);
        trip_us.saturating_mul(2 * u64::from(self.taken.load(Ordering::Relaxed))) / u64::from(WHOLE)
    }

    /// Chooses, with hysteresis.
    pub(super) fn choose(&self, asked: Option<Primitive>, has_program: bool) -> Choice {
        let loss_us = self.loss_us();
        let is_known = self.trip_us.load(Ordering::Relaxed) > 0;
        let tried = self.tries_leaf.load(Ordering::Relaxed);
        let tries = is_known && loss_us < if tried { NOT_WORTH_IT_US } else { WORTH_TRYING_US };
        self.tries_leaf.store(tries, Ordering::Relaxed);
        let (primitive, reason) = match (asked, has_program, tries) {
            (Some(primitive), ..) => (primitive, Reason::Asked),
            (None, true, _) => (Primitive::Extension, Reason::Program),
            (None, false, true) => (Primitive::TasWatch, Reason::RarelyTaken),
            (None, false, false) => (Primitive::AsyncQueueWatch, Reason::OftenTaken),
        };
        Choice {
            primitive,
            reason,
            trip: self.trip(),
            taken_ppm: self.taken.load(Ordering::Relaxed),
            loss: Duration::from_micros(loss_us),
            threshold: Duration::from_micros(if tries { NOT_WORTH_IT_US } else { WORTH_TRYING_US }),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { primitive, reason, trip, taken_ppm, loss, threshold } = self;
        let why = match reason {
            Reason::Asked => return write!(f, "{primitive}, as asked for"),
            Reason::Program => return write!(f, "{primitive}, for its program is there"),
            Reason::RarelyTaken => "rarely",
            Reason::OftenTaken => "not rarely",
        };
        let (whole, rest) = (taken_ppm / 10_000, taken_ppm % 10_000 / 100);
        write!(
            f,
            "{primitive}, for the lock is {why} taken: {whole}.{rest:02}% of acquisitions found it so, writes take \
             {trip:?}, which would lose {loss:?} each, and the choice changes at {threshold:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(estimates: &Estimates) -> Primitive {
        estimates.choose(None, false).primitive
    }

    /// How many acquisitions that find it so it takes to choose otherwise.
    fn until_changed(estimates: &Estimates, trip: Duration, is_taken: bool) -> usize {
        let before = choice(estimates);
        let mut count = 0;
        while choice(estimates) == before {
            estimates.took(trip);
            estimates.found(is_taken);
            count += 1;
            assert!(count < 1000, "it never changes: {}", estimates.choose(None, false));
        }
        count
    }

    #[test]
    fn a_lock_that_is_free_is_tested_and_set_and_one_that_is_taken_is_queued_for() {
        for (trip_ms, free, taken) in [(1, 40..70, 1..3), (10, 70..110, 1..2), (250, 100..180, 1..2)] {
            let (estimates, trip) = (Estimates::default(), Duration::from_millis(trip_ms));
            assert_eq!(choice(&estimates), Primitive::AsyncQueueWatch);
            let count = until_changed(&estimates, trip, false);
            assert!(free.contains(&count), "{trip_ms} ms: {count}");
            assert_eq!(choice(&estimates), Primitive::TasWatch);
            let count = until_changed(&estimates, trip, true);
            assert!(taken.contains(&count), "{trip_ms} ms: {count}");
        }
    }

    /// Between the thresholds it stays with what it has.
    #[test]
    fn the_choice_does_not_swing() {
        let (estimates, trip) = (Estimates::default(), Duration::from_micros(300));
        until_changed(&estimates, trip, false);
        estimates.found(true);
        let choice = estimates.choose(None, false);
        assert_eq!((choice.primitive, choice.reason), (Primitive::TasWatch, Reason::RarelyTaken));
        assert!(choice.loss > Duration::from_micros(WORTH_TRYING_US) && choice.loss < choice.threshold);
    }

    #[test]
    fn what_is_asked_for_or_has_a_program_needs_no_estimate() {
        let estimates = Estimates::default();
        assert_eq!(estimates.choose(None, true).primitive, Primitive::Extension);
        let asked = estimates.choose(Some(Primitive::SyncTas), true);
        assert_eq!((asked.primitive, asked.reason), (Primitive::SyncTas, Reason::Asked));
    }
}
