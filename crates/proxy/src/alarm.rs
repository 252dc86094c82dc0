//! Timers that are finer than a runtime's milliseconds.

use std::io;
use std::time::Duration;

use crate::Nanos;

/// An alarm clock. Where the system has none that the runtime can wait for, it is as fine as the runtime's.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct Alarm {
    timer: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
    /// When it rings, if it has not rung yet.
    set_to: Option<Nanos>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// One that is not set. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When the system has no more of them.
    pub fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // What is unsound are files that say something else when they are asked again which they are.
        #[expect(
            deprecated,
            reason = "an `OwnedFd` is one file as long as it lives; the other way is unsafe"
        )]
        let timer = tokio::io::unix::AsyncFd::new(timer)?;
        Ok(Self { timer, set_to: None })
    }

    /// Waits from `now` until then, in nanoseconds of any clock. It may be given up, and begun anew for the same
    /// time or another one.
    ///
    /// # Errors
    /// When the system refuses it.
    pub async fn until(&mut self, at: Nanos, now: Nanos) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.set_to != Some(at) {
            // A time of zero would switch it off.
            let wait = Duration::from_nanos(at.saturating_sub(now).max(1));
            let (seconds, nanos) = (wait.as_secs().cast_signed(), wait.subsec_nanos());
            let it_value = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
            self.set_to = Some(at);
        }
        loop {
            let mut guard = self.timer.readable().await?;
            // Setting it anew has taken back what rang before.
            let read = guard.try_io(|timer| Ok(rustix::io::read(timer, &mut [0_u8; 8])?));
            if let Ok(rung) = read {
                self.set_to = None;
                return rung.map(|_| ());
            }
        }
    }
}

/// An alarm clock. Where the system has none that the runtime can wait for, it is as fine as the runtime's.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// One that is not set. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When the system has no more of them.
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits from `now` until then, in nanoseconds of any clock. It may be given up, and begun anew.
    ///
    /// # Errors
    /// None here.
    pub async fn until(&mut self, at: Nanos, now: Nanos) -> io::Result<()> {
        tokio::time::sleep(Duration::from_nanos(at.saturating_sub(now))).await;
        Ok(())
    }
}
