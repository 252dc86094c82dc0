//! What greedy calls cost those who ask for them: time, in which others are served.
//!
//! A call is carried out on the thread that prepares everybody's requests, so nothing can be taken from a call that
//! is under way without taking it from all. What can be bounded is how often that happens. A call that takes more
//! than half of the steps it may, or is stopped by a limit, has to be paid for with many times its own time. The
//! pauses of all sessions follow one another, so it does not help to have many. Who is told of such a call is not
//! listened to for as long, by its contact server; what it had asked already by then is refused.
//!
//! All of that is the leader's, and is gone with it: the next one begins without.

use crate::connection::{ConnectionId, Slot};
use crate::server::Server;
use alloc::collections::BTreeMap;

/// A step takes about 25 ns, and may take half a percent of the thread's time.
const COST_US_PER_STEP: u64 = 5;
/// Nobody waits for longer, however many others have to.
const PAUSE_MAX_US: u64 = 5_000_000;

/// Who has to wait, and until when.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    sessions: BTreeMap<i64, u64>,
    /// When everything so far is paid for.
    paid_at_us: u64,
}

impl Pauses {
    /// How long a session has to wait, in microseconds, before a call of it is carried out; 0 if it has not to.
    pub(super) fn of(&self, session: i64, now_us: u64) -> u64 {
        self.sessions.get(&session).map_or(0, |until_us| until_us.saturating_sub(now_us))
    }

    /// A call of a session has used so many of the steps it may. Returns how long the session has to wait for that,
    /// in microseconds.
    pub(super) fn charge(&mut self, session: i64, steps: u64, allowed: u64, now_us: u64) -> u32 {
        // From nothing at the half to the whole price, so that nobody gains by staying just below the limit.
        let greed = steps.min(allowed).saturating_sub(allowed / 2).saturating_mul(2);
        if greed == 0 {
            return 0;
        }
        self.sessions.retain(|_, until_us| *until_us > now_us);
        let paid_at_us = self.paid_at_us.max(now_us).saturating_add(greed.saturating_mul(COST_US_PER_STEP));
        self.paid_at_us = paid_at_us.min(now_us.saturating_add(PAUSE_MAX_US));
        self.sessions.insert(session, self.paid_at_us);
        u32::try_from(self.paid_at_us - now_us).unwrap_or(u32::MAX)
    }
}

impl Server {
    /// What a connection asks from now on waits for so long.
    pub(crate) fn pause(&mut self, id: ConnectionId, pause_us: u32) {
        if pause_us > 0 && self.connections.get(id).is_some() {
            let until_us = self.now.mono_us + u64::from(pause_us);
            self.connections.push_slot(id, Slot::Pause { until_us });
            self.pauses.insert((until_us, id));
        }
    }

    /// Lets those go on whose pause is over.
    pub(crate) fn end_pauses(&mut self) {
        while let Some((until_us, id)) = self.pauses.first().copied()
            && until_us <= self.now.mono_us
        {
            self.pauses.remove(&(until_us, id));
            self.drain(id);
        }
    }

    /// When the next pause is over.
    pub(crate) fn next_pause_end_us(&self) -> Option<u64> {
        self.pauses.first().map(|(until_us, _)| *until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: u64 = 10_000;

    #[test]
    fn what_is_paid_begins_with_the_second_half_and_has_no_steps() {
        for (steps, pause_us) in [(0, 0), (4000, 0), (5000, 0), (5001, 10), (7500, 25_000), (10_000, 50_000)]
        {
            assert_eq!(Pauses::default().charge(1, steps, ALLOWED, 7), pause_us, "{steps}");
        }
    }

    #[test]
    fn pauses_of_all_follow_one_another_and_end() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.charge(1, ALLOWED, ALLOWED, 1000), 50_000);
        assert_eq!(pauses.charge(2, ALLOWED, ALLOWED, 1000), 100_000);
        assert_eq!((pauses.of(1, 1000), pauses.of(2, 1000), pauses.of(3, 1000)), (50_000, 100_000, 0));
        assert_eq!((pauses.of(1, 51_000), pauses.of(2, 51_000)), (0, 50_000));
        // Nobody has to wait for what was paid long ago, and nobody waits for ever.
        assert_eq!(pauses.charge(3, ALLOWED, ALLOWED, 1_000_000), 50_000);
        assert_eq!(pauses.sessions.len(), 1, "the others are forgotten");
        for session in 0..1000 {
            assert!(u64::from(pauses.charge(session, ALLOWED, ALLOWED, 1_000_000)) <= PAUSE_MAX_US);
        }
        assert_eq!(pauses.of(999, 1_000_000), PAUSE_MAX_US);
        assert_eq!(pauses.charge(1, u64::MAX, u64::MAX, u64::MAX - 5), 5, "at the end of time");
    }
}
