//! Says in the log that clients are not served, why, and when they are again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::process::{Phase, Process};
use crate::view::{Question, why_unready};

/// How often to look. An election is over in less.
const LOOK: Duration = Duration::from_secs(1);
/// A server that is not ready says so when that has lasted so long, and then at intervals that double.
const FIRST: Duration = Duration::from_secs(5);
const INTERVAL_MAX: Duration = Duration::from_secs(600);
/// How long the partitions may take to say how it stands with them.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Watches until the server stops.
pub(crate) async fn watch(process: Arc<Process>, questions: UnboundedSender<Question>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut standstill = Standstill::default();
    while process.phase() != Phase::Stopping {
        looks.tick().await;
        if standstill.is_due(process.serves_all(), Instant::now()) {
            let (reply, answer) = oneshot::channel();
            let asked = questions.send(Question::Stats(reply));
            let stats = match timeout(ANSWER_TIME, answer).await {
                Ok(Ok(stats)) if asked.is_ok() => Some(stats),
                _ => None,
            };
            // It may serve by now.
            if let Some(why) = why_unready(process.phase(), stats.as_deref()) {
                standstill.say(&why, Instant::now());
            }
        }
    }
}

/// A time in which clients are not served, and what was said of it.
#[derive(Debug, Default)]
struct Standstill {
    since: Option<Instant>,
    said: Option<Reminder>,
}

#[derive(Debug)]
struct Reminder {
    next_at: Instant,
    interval: Duration,
}

impl Standstill {
    /// Whether something is to be said now.
    fn is_due(&mut self, serves: bool, now: Instant) -> bool {
        if serves {
            if let (Some(since), Some(_)) = (self.since.take(), self.said.take()) {
                tracing::info!("this server is ready for clients again, after {} s", (now - since).as_secs());
            }
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now >= self.said.as_ref().map_or(since + FIRST, |said| said.next_at)
    }

    fn say(&mut self, why: &str, now: Instant) {
        let lasts = now - self.since.unwrap_or(now);
        tracing::warn!("this server has not been ready for clients for {} s: {why}", lasts.as_secs());
        let interval = self.said.as_ref().map_or(FIRST, |said| (said.interval * 2).min(INTERVAL_MAX));
        self.said = Some(Reminder { next_at: now + interval, interval });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which something is said of a server that serves when `serves` says so.
    fn said_at(seconds: u64, serves: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut standstill, began) = (Standstill::default(), Instant::now());
        let is_said = |second: &u64| {
            let now = began + Duration::from_secs(*second);
            let is_due = standstill.is_due(serves(*second), now);
            if is_due {
                standstill.say("a reason", now);
            }
            is_due
        };
        (0..seconds).filter(is_said).collect()
    }

    #[test]
    fn a_standstill_is_told_of_ever_more_seldom_and_an_election_not_at_all() {
        assert_eq!(said_at(200, |_| false), [5, 10, 20, 40, 80, 160]);
        let late = said_at(10_000, |_| false);
        assert_eq!(late[late.len() - 1] - late[late.len() - 2], 600);
        assert!(said_at(200, |second| second % 5 == 0).is_empty());
        assert_eq!(said_at(40, |second| second == 12), [5, 10, 18, 23, 33]);
    }
}
