//! Wakes a partition's thread when its core has a timer that is due.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;

/// Bounds of the time between two looks at the core's timers, if nothing comes in between.
const TICK_MIN: Duration = Duration::from_millis(1);
const TICK_MAX: Duration = Duration::from_secs(3600);

/// An alarm clock that may be set to an earlier time while somebody waits for it.
#[derive(Default)]
pub(crate) struct Alarm {
    /// When the timers are looked at next.
    at_us: Cell<u64>,
    /// One is due earlier than that.
    earlier: Notify,
}

impl Alarm {
    /// The next timer is due then. An input can make that earlier: who loses its leader wants to lead at once.
    pub(crate) fn set(&self, next_us: u64) {
        if next_us < self.at_us.get() {
            self.earlier.notify_one();
        }
    }

    /// Waits until a timer is due. One that has come nearer is not due yet: whoever looked at it then would do
    /// at once, and again after the next input, what is to be done seldom.
    pub(crate) async fn rings(&self, next_us: impl Fn() -> u64, now_us: impl Fn() -> u64) {
        loop {
            let next = next_us();
            let wait = Duration::from_micros(next.saturating_sub(now_us())).clamp(TICK_MIN, TICK_MAX);
            self.at_us.set(next);
            let is_earlier = tokio::time::timeout(wait, self.earlier.notified()).await.is_ok();
            if !is_earlier || next_us() <= now_us() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::pin::pin;
    use tokio::time::timeout;

    #[test]
    fn a_timer_that_comes_nearer_rings_then_and_not_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (alarm, clock) = (Alarm::default(), Clock::start());
            let now_us = || clock.now().mono_us;
            let next_us = Cell::new(u64::MAX);
            let next = || next_us.get();
            let mut rings = pin!(alarm.rings(next, now_us));
            assert!(timeout(TICK_MIN, &mut rings).await.is_err());
            for delay_us in [200_000, 0] {
                next_us.set(now_us() + delay_us);
                alarm.set(next_us.get());
                timeout(Duration::from_secs(60), &mut rings).await.expect("it is set to an earlier time");
                assert!(now_us() >= next_us.get());
                next_us.set(u64::MAX);
                rings.set(alarm.rings(next, now_us));
                assert!(timeout(TICK_MIN, &mut rings).await.is_err());
            }
        });
    }
}
