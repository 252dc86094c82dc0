//! What goes wrong, and when.

use super::{Event, World};
use stoa_storage::DiskErrorKind;
use stoa_storage::faulty::Fault;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Crash,
    PowerLoss,
    DiskFull,
    SlowDisk,
    DiskError,
    ClockJump,
    Pause,
}

const ALL: [Trouble; 7] = [
    Trouble::Crash,
    Trouble::PowerLoss,
    Trouble::DiskFull,
    Trouble::SlowDisk,
    Trouble::DiskError,
    Trouble::ClockJump,
    Trouble::Pause,
];

impl World {
    pub(super) fn schedule_all_trouble(&mut self) {
        for trouble in ALL {
            self.schedule_trouble(trouble);
        }
    }

    fn schedule_trouble(&mut self, trouble: Trouble) {
        let faults = &self.profile.faults;
        let mean_ms = match trouble {
            Trouble::Crash => faults.crash_ms,
            Trouble::PowerLoss => faults.power_loss_ms,
            Trouble::DiskFull => faults.disk_full_ms,
            Trouble::SlowDisk => faults.slow_disk_ms,
            Trouble::DiskError => faults.disk_error_ms,
            Trouble::ClockJump => faults.clock_jump_ms,
            Trouble::Pause => faults.pause_ms,
        };
        if mean_ms != 0 && !self.healing {
            let after = self.rng.range(1, mean_ms * 2000);
            self.schedule(after, Event::Trouble(trouble));
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        if self.healing {
            return;
        }
        self.trace.event(self.now_us, "trouble", format_args!("{trouble:?}"));
        match trouble {
            Trouble::Crash => {
                let power = !self.rng.one_in(4);
                self.crash("it was time", power);
            }
            Trouble::PowerLoss => self.disk.fault_after(self.rng.below(30), Fault::PowerLoss),
            Trouble::DiskError => {
                self.disk.fault_after(self.rng.below(30), Fault::Fail(DiskErrorKind::Other));
            }
            Trouble::DiskFull => {
                let room = self.rng.below(8 << 10);
                self.disk.set_capacity(self.disk.used() + room);
                self.disk_is_full = true;
                let after = self.rng.range(1000, 700_000);
                self.schedule(after, Event::Room);
            }
            Trouble::SlowDisk => {
                self.slow_until_us = self.now_us + self.rng.range(10_000, 500_000);
                // From a busy disk to one that answers after seconds.
                self.slow_factor = *self.rng.pick(&[20, 60, 200, 3000]);
            }
            Trouble::ClockJump => {
                let jump_ms = match self.rng.below(10) {
                    // A clock that was never set, and one that is off by a century.
                    0 => self.rng.range(0, 1000) as i64 - self.now().wall_ms,
                    1 => 100 * 365 * 86_400_000,
                    _ => self.rng.range(0, 20_000) as i64 - 10_000,
                };
                self.wall_offset_ms += jump_ms;
            }
            Trouble::Pause => {
                let until_us = self.now_us + self.rng.range(10_000, 3_000_000);
                self.paused_until_us = until_us;
                self.turn_at = None;
                self.schedule_turn(until_us);
            }
        }
        self.schedule_trouble(trouble);
    }
}
