//! What kind of life servers with several partitions have, and what their clients do.

use crate::ensemble::{CALM, Faults, MANNERS, Manners, Settings, config};
use std::fmt;
use stoa_core::Config;

/// A kind of life, and what clients do in it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The servers', and what goes wrong with them.
    pub life: Settings,
    /// Clients use programs of the service.
    pub programs: bool,
    /// Clients ask for more before they are answered, most of it writes.
    pub impatient: bool,
}

/// What goes wrong in each of them, at least: threads go on in any order, and nothing on the way is safe. Most bugs
/// between the partitions of a server show when the servers have time for their clients.
const PLAIN: Faults = Faults {
    crash_ms: 1200,
    cut_ms: 800,
    break_ms: 800,
    stall_ms: 80,
    late_words_ms: 25,
    move_ms: 150,
    loss_percent: 1,
    double_percent: 1,
    late_percent: 3,
    ..CALM
};

/// The same, and servers that come and go more often.
const ROUGH: Faults = Faults { crash_ms: 600, cut_ms: 400, break_ms: 400, late_words_ms: 50, ..PLAIN };

/// They are quick to hang up, and wait for what they have asked for before they ask for more.
const WITNESSES: Manners = Manners {
    clients: 6,
    window: 1,
    whole_percent: 100,
    drop_one_in: 0,
    close_one_in: 80,
    silent_one_in: 0,
    leave_one_in: 40,
    hang_up_one_in: 2,
    anew_one_in: 0,
    // Nobody may be sent away as one who has seen what is lost.
    ahead_one_in: 0,
    greeting_us: 400_000,
    patience_percent: 0,
    timeout_ms: (2000, 2000),
    ..MANNERS
};

impl Plan {
    /// Every kind. The first one is the most frequent.
    fn all() -> Vec<Self> {
        let lags = |updates, kept| Config { snapshot_updates: updates, kept_bytes: kept, ..config() };
        let kind = |name, spares, config, faults| Self {
            life: Settings { name, spares, config, faults, ..base() },
            programs: false,
            impatient: false,
        };
        let whole = || lags(1 << 40, 1 << 30);
        let disks = Faults { power_loss_ms: 700, disk_full_ms: 900, slow_disk_ms: 700, ..ROUGH };
        let disks = Faults { clock_jump_ms: 800, ..disks };
        vec![
            kind("default", 0, whole(), PLAIN),
            kind("moving", 0, lags(200, 8 << 10), Faults { move_ms: 20, ..PLAIN }),
            kind("members", 2, whole(), Faults { clock_jump_ms: 2000, stop_ms: 3000, ..ROUGH }),
            kind("snapshots", 0, lags(16, 1 << 10), Faults { cut_ms: 250, ..ROUGH }),
            kind("disks", 0, lags(60, 4 << 10), disks),
            kind("losses", 0, lags(40, 2 << 10), Faults { empty_ms: 250, rollback_ms: 150, ..ROUGH }),
            kind(
                "rot",
                0,
                lags(40, 2 << 10),
                Faults { rot_ms: 150, crash_ms: 350, power_loss_ms: 1500, ..ROUGH },
            ),
            kind(
                "reshaped",
                2,
                lags(30, 2 << 10),
                Faults { power_loss_ms: 1500, disk_full_ms: 2500, ..disks },
            ),
            kind(
                "network",
                0,
                lags(200, 8 << 10),
                Faults {
                    cut_ms: 300,
                    break_ms: 200,
                    pause_ms: 1000,
                    loss_percent: 10,
                    double_percent: 5,
                    late_percent: 20,
                    ..ROUGH
                },
            ),
            kind(
                "links",
                0,
                whole(),
                Faults { client_cut_ms: 250, hand_over_ms: 500, stop_ms: 2000, pause_ms: 2000, ..ROUGH },
            ),
        ]
    }

    /// A server that stands alone, whose disk fails.
    fn alone() -> Self {
        let faults = Faults { power_loss_ms: 500, disk_full_ms: 500, slow_disk_ms: 800, ..ROUGH };
        let config = Config { snapshot_updates: 40, kept_bytes: 1 << 30, ..config() };
        let life = Settings { name: "alone", servers: 1, config, faults, ..base() };
        let life = Settings { faults: Faults { clock_jump_ms: 1500, cut_ms: 0, ..faults }, ..life };
        Self { life, programs: false, impatient: false }
    }

    /// The same, with programs of the service.
    #[must_use]
    pub fn with_programs(self) -> Self {
        Self { programs: true, ..self }
    }

    /// The same, with clients that do not wait for answers.
    #[must_use]
    pub fn with_impatience(self) -> Self {
        Self { impatient: true, ..self }
    }

    /// The same, with so many readers.
    #[must_use]
    pub fn with_readers(self, readers: usize) -> Self {
        Self { life: self.life.with_readers(readers), ..self }
    }

    /// The same, with so many partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: u8) -> Self {
        self.life.config.partitions = partitions;
        self
    }

    /// What a seed stands for.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut all = Self::all();
        let kind = match seed / 4 % 14 {
            0..3 => all.swap_remove(0),
            3 => Self::alone(),
            other => all.swap_remove(other as usize - 4),
        };
        let programs = seed / 56 % 2 == 1;
        Self { programs, ..kind }.with_partitions([2, 3, 4, 8][(seed % 4) as usize]).numbered(seed)
    }

    /// The same, with what follows from a seed whatever the kind: the servers' ids, and on how many days a majority is lost.
    #[must_use]
    pub fn numbered(mut self, seed: u64) -> Self {
        self.life.manners.first_id = Settings::first_id(seed);
        self.life.recoveries = Settings::recoveries(seed / 4);
        self
    }

    /// The kind with this name, with two partitions.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::all().into_iter().chain([Self::alone()]).find(|plan| plan.life.name == name);
        found.map(|plan| plan.with_partitions(2))
    }
}

/// As the command line has it.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { name, config, .. } = &self.life;
        let programs = if self.programs { " --programs" } else { "" };
        let impatient = if self.impatient { " --impatient" } else { "" };
        write!(f, "--partitions {} --kind {name}{programs}{impatient}", config.partitions)?;
        match self.life.readers {
            0 => Ok(()),
            readers => write!(f, " --readers {readers}"),
        }
    }
}

fn base() -> Settings {
    Settings { requests: 1000, lasts_us: 8_000_000, faults: PLAIN, manners: WITNESSES, ..Settings::base() }
}
