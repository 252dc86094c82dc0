//! The locks of section II-D: what each of them adds to the time that the lock itself takes.
//!
//! All of them are one server in the sense of queueing theory. It is occupied from when the leader has prepared the
//! request that takes the lock until it has prepared the one that gives it back: a commit, a trip to the client, the
//! critical section, a trip back. That much is common to all. What differs is the `Extra`: how much later than it
//! could somebody learns, or see to it, that it has the lock.

use crate::{Invalid, is_time};

/// Steps of an integral; even.
const STEPS: usize = 16;

/// A lock, as section II-D of the paper describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    /// Creates a sequential znode, looks at the children, watches the one before (Figures 2 and 3).
    SyncQueue,
    /// Looks at the children at an interval from the start, beside the create, until it is the first (Figure 4).
    AsyncQueue,
    /// The same, with a watch instead when a round trip has passed.
    AsyncQueueWatch,
    /// Creates a znode that all create, again and again, one request at a time.
    SyncTas,
    /// Watches that znode instead while somebody else has it, and creates it when it is gone.
    TasWatch,
    /// Creates that znode at an interval, without waiting for answers.
    AsyncTas,
    /// A program inside the service keeps the queue, and answers when it is one's turn.
    Extension,
}

impl Primitive {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SyncQueue,
        Self::AsyncQueue,
        Self::AsyncQueueWatch,
        Self::SyncTas,
        Self::TasWatch,
        Self::AsyncTas,
        Self::Extension,
    ];

    /// Its name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SyncQueue => "sync-queue",
            Self::AsyncQueue => "async-queue",
            Self::AsyncQueueWatch => "async-queue-watch",
            Self::SyncTas => "sync-tas",
            Self::TasWatch => "tas-watch",
            Self::AsyncTas => "async-tas",
            Self::Extension => "extension",
        }
    }
}

/// How a primitive is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    pub(crate) poll_ms: f64,
    pub(crate) looks_again: bool,
}

impl Tuning {
    /// Asynchronous primitives ask every `poll_ms`. With `looks_again` the synchronous queue looks at the children
    /// again when its watch fires; without, it believes the event, as Figure 2 says and Stoa's own lock can.
    ///
    /// # Errors
    /// When the interval is not more than 0.
    pub fn new(poll_ms: f64, looks_again: bool) -> Result<Self, Invalid> {
        Invalid::unless(is_time(poll_ms) && poll_ms > 0.0, "the interval is more than 0")?;
        Ok(Self { poll_ms, looks_again })
    }
}

/// Means of the trips that locks are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trips {
    /// A read, at the contact server.
    pub(crate) read_ms: f64,
    /// From the client to the leader and back.
    pub(crate) round_ms: f64,
    pub(crate) commit_ms: f64,
    pub(crate) refusal_ms: f64,
}

impl Trips {
    pub(crate) fn write_ms(self) -> f64 {
        self.round_ms + self.commit_ms
    }
}

/// What comes on top of the lock's own time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Extra {
    pub(crate) mean_ms: f64,
    /// The mean of its square.
    pub(crate) square: f64,
    /// Requests that are sent until the lock is had.
    pub(crate) requests: f64,
}

impl Extra {
    fn fixed(ms: f64, requests: f64) -> Self {
        Self { mean_ms: ms, square: ms * ms, requests }
    }

    /// Anything up to that.
    fn up_to(ms: f64, requests: f64) -> Self {
        Self { mean_ms: ms / 2.0, square: ms * ms / 3.0, requests }
    }

    /// The first of: what comes in `own_ms` for sure, one of `others` that come at any moment within `period_ms`,
    /// and what comes at a rate from elsewhere.
    fn earliest(own_ms: f64, others: f64, period_ms: f64, per_ms: f64) -> Self {
        if own_ms <= 0.0 {
            return Self::default();
        }
        let later = |ms: f64| (1.0 - ms / period_ms).max(0.0).powf(others) * (-ms * per_ms).exp();
        // The means are integrals of that, here over where most of it is, by Simpson's rule.
        let end_ms = own_ms.min(period_ms * 8.0 / (others + 1.0)).min(8.0 / per_ms);
        let step_ms = end_ms / STEPS as f64;
        let (mut mean, mut square) = (0.0, 0.0);
        for step in 0..=STEPS {
            let weight = if step == 0 || step == STEPS { 1.0 } else { 2.0 + 2.0 * (step % 2) as f64 };
            let ms = step as f64 * step_ms;
            mean += weight * later(ms);
            square += weight * later(ms) * 2.0 * ms;
        }
        Self { mean_ms: mean * step_ms / 3.0, square: square * step_ms / 3.0, requests: 0.0 }
    }

    fn asking(self, requests: f64) -> Self {
        Self { requests, ..self }
    }
}

/// Who else wants the lock at the moment when it is given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rivals {
    /// How many wait for it, oneself included.
    pub(crate) contenders: f64,
    /// How often somebody comes who has not waited.
    pub(crate) newcomers_per_ms: f64,
}

impl Primitive {
    /// What comes on top for who finds the lock free.
    pub(crate) fn found_free(self, trips: Trips, tuning: Tuning) -> Extra {
        let polls = (trips.write_ms() / tuning.poll_ms).ceil().max(1.0);
        match self {
            Self::SyncQueue => Extra::fixed(trips.read_ms, 2.0),
            // Requests of a session are carried out in order: the children that were asked for right behind the
            // create are those after it.
            Self::AsyncQueue | Self::AsyncQueueWatch => Extra::fixed(0.0, 1.0 + polls),
            Self::AsyncTas => Extra::fixed(0.0, polls),
            Self::SyncTas | Self::TasWatch | Self::Extension => Extra::fixed(0.0, 1.0),
        }
    }

    /// How long after a request the next one follows of who asks for the lock itself again and again, one request at a
    /// time.
    pub(crate) fn asks_again_after_ms(self, trips: Trips) -> Option<f64> {
        (self == Self::SyncTas).then_some(trips.round_ms + trips.refusal_ms).filter(|ms| *ms > 0.0)
    }

    /// What comes on top for who has waited for `turn_ms` when the lock is given back, from the leader's point of
    /// view.
    pub(crate) fn waited(self, turn_ms: f64, rivals: Rivals, trips: Trips, tuning: Tuning) -> Extra {
        let Trips { read_ms, round_ms, commit_ms, refusal_ms } = trips;
        let Tuning { poll_ms, .. } = tuning;
        let polls = |until_ms: f64| 1.0 + until_ms / poll_ms;
        match self {
            Self::SyncQueue => {
                let (again_ms, again) = if tuning.looks_again { (read_ms, 1.0) } else { (0.0, 0.0) };
                if turn_ms <= read_ms {
                    // The children show it already.
                    Extra::fixed(read_ms - turn_ms, 2.0)
                } else if turn_ms <= 2.0 * read_ms {
                    // It comes before the watch, which is told that there is nothing to watch.
                    Extra::fixed(2.0 * read_ms - turn_ms + again_ms, 3.0 + again)
                } else {
                    Extra::fixed(again_ms, 3.0 + again)
                }
            }
            Self::AsyncQueue => Extra::up_to(poll_ms, 1.0 + polls(trips.write_ms() + turn_ms)),
            Self::AsyncQueueWatch if turn_ms <= read_ms => {
                Extra::up_to(poll_ms, 2.0 + polls(trips.write_ms() + turn_ms))
            }
            Self::AsyncQueueWatch => Extra::fixed(0.0, 2.0 + polls(trips.write_ms() + read_ms)),
            Self::SyncTas => {
                let period_ms = round_ms + refusal_ms;
                let own_ms = until_next(turn_ms, period_ms);
                let extra =
                    Extra::earliest(own_ms, rivals.contenders - 1.0, period_ms, rivals.newcomers_per_ms);
                extra.asking(if period_ms > 0.0 { 1.0 + turn_ms / period_ms } else { f64::INFINITY })
            }
            Self::AsyncTas => {
                let own_ms = until_next(turn_ms, poll_ms);
                let extra =
                    Extra::earliest(own_ms, rivals.contenders - 1.0, poll_ms, rivals.newcomers_per_ms);
                extra.asking(polls(trips.write_ms() + turn_ms))
            }
            Self::TasWatch => {
                // The watch is set too late for a lock that is given back before that, which shows at once.
                let own_ms = if turn_ms <= refusal_ms + read_ms - commit_ms {
                    refusal_ms + round_ms + read_ms - turn_ms
                } else {
                    commit_ms + round_ms
                };
                // Each time all try, and one succeeds.
                let extra = Extra::earliest(own_ms, 0.0, own_ms, rivals.newcomers_per_ms);
                extra.asking(1.0 + 2.0 * rivals.contenders)
            }
            Self::Extension => Extra::fixed(0.0, 1.0),
        }
    }
}

/// How long after `now_ms` the next whole period ends.
fn until_next(now_ms: f64, period_ms: f64) -> f64 {
    if period_ms <= 0.0 { 0.0 } else { (now_ms / period_ms).ceil() * period_ms - now_ms }
}
