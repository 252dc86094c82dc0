//! Profiles: what kind of life a simulated server has.

use super::workload::SUPER_USER;
use crate::ensemble::{self, CALM, Faults, Manners, Settings};
use stoa_core::{Config, Limits};

/// What kind of life a simulated server has.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What it is for.
    pub about: &'static str,
    /// The server's, its name on the command line, what goes wrong with it, and what the clients do.
    pub life: Settings,
}

const MANNERS: Manners = Manners {
    clients: 6,
    window: 8,
    think_us: 3000,
    drop_one_in: 120,
    close_one_in: 200,
    silent_one_in: 2000,
    stall_one_in: 200,
    move_one_in: 250,
    garbage_one_in: 300,
    prove_one_in: 30,
    behind_close_one_in: 1,
    returns_one_in: 3,
    anew_one_in: 0,
    forged_one_in: 80,
    ahead_one_in: 80,
    odd_timeout_one_in: 6,
    old_one_in: 6,
    hasty_one_in: 60,
    // Whoever waits for a server that stands still is there to see that it is not forgotten.
    greeting_us: 0,
    patience_percent: 0,
    data_bytes: 64,
    writes_percent: 55,
    quota_one_in: 100,
    read_only_percent: 25,
    timeout_ms: (100, 5000),
    ..ensemble::MANNERS
};

/// Small limits and short times, so that they are reached.
fn config() -> Config {
    Config {
        tick_ms: 100,
        session_timeout_min_ms: 400,
        session_timeout_max_ms: 4000,
        authentication: stoa_core::Authentication {
            super_digest: Some(stoa_core::digest_id(SUPER_USER)),
            ..Default::default()
        },
        reaping: stoa_core::Reaping { interval_ms: 700, max: 8 },
        snapshot_updates: 150,
        snapshot_log_bytes: 1 << 20,
        limits: Limits {
            frame_bytes: 16 << 10,
            frame_skip_bytes: 64 << 10,
            connections_per_address: 4,
            outstanding: 512,
            outstanding_per_connection: 64,
            queued_bytes_per_connection: 32 << 10,
            log_queue_bytes: 256 << 10,
            output_pause_bytes: 16 << 10,
            output_close_bytes: 96 << 10,
            handshake_ms: 500,
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl Profile {
    fn base() -> Self {
        let life = Settings {
            servers: 1,
            requests: 3000,
            lasts_us: 1 << 50,
            config: config(),
            segment_bytes: 12 << 10,
            faults: Faults {
                crash_ms: 150,
                power_loss_ms: 155,
                disk_full_ms: 350,
                slow_disk_ms: 400,
                clock_jump_ms: 350,
                pause_ms: 900,
                copies_percent: 15,
                ..CALM
            },
            manners: MANNERS,
            ..Settings::base()
        };
        Self { about: "a bit of everything", life }
    }

    fn variant(name: &'static str, about: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        let mut profile = Self { about, ..Self::base() };
        profile.life.name = name;
        change(&mut profile);
        profile
    }

    /// Every profile.
    #[must_use]
    pub fn all() -> Vec<Self> {
        [vec![Self::base()], Self::of_faults(), Self::of_manners()].concat()
    }

    /// Those in which other things go wrong.
    fn of_faults() -> Vec<Self> {
        vec![
            Self::variant("calm", "no faults: everything must be answered at once", |p| p.life.faults = CALM),
            Self::variant("disk-full", "the log's disk is full again and again", |p| {
                p.life.faults = Faults { crash_ms: 300, power_loss_ms: 500, disk_full_ms: 100, ..CALM };
                p.life.manners.writes_percent = 75;
                p.life.manners.move_one_in = 25;
            }),
            Self::variant("bit-rot", "restarts, each with damaged copies of the folder", |p| {
                p.life.faults = Faults { crash_ms: 50, power_loss_ms: 60, copies_percent: 100, ..CALM };
                p.life.requests = 2000;
            }),
            Self::variant("slow-disk", "a disk that stalls, and a server that stands still", |p| {
                p.life.faults = Faults { crash_ms: 400, slow_disk_ms: 120, pause_ms: 300, ..CALM };
                // Sessions that end sooner than the disk has done what it is asked.
                p.life.manners.timeout_ms = (100, 1500);
                p.life.manners.window = 24;
                p.life.config.limits.outstanding_per_connection = 12;
                p.life.config.limits.outstanding = 48;
            }),
            Self::variant(
                "elections",
                "a slow disk that is full now and then: much is asked before the server leads",
                |p| {
                    p.life.faults = Faults { crash_ms: 300, disk_full_ms: 120, slow_disk_ms: 60, ..CALM };
                    p.life.manners = Manners { window: 24, think_us: 800, move_one_in: 15, ..MANNERS };
                },
            ),
        ]
    }

    /// Those in which the clients, and mostly the limits, are others.
    fn of_manners() -> Vec<Self> {
        vec![
            Self::variant("churn", "sessions that come, go, move and expire", |p| {
                p.life.manners = Manners {
                    clients: 12,
                    drop_one_in: 15,
                    close_one_in: 25,
                    silent_one_in: 150,
                    move_one_in: 20,
                    ..MANNERS
                };
                p.life.requests = 2500;
            }),
            // One request at a time: as in ZooKeeper, a limit that is itself under way does not count yet.
            Self::variant("quota", "quotas that are enforced", |p| {
                p.life.enforce_quota = true;
                p.life.manners = Manners {
                    clients: 1,
                    window: 1,
                    think_us: 500,
                    drop_one_in: 0,
                    close_one_in: 0,
                    move_one_in: 0,
                    garbage_one_in: 0,
                    names: 3,
                    writes_percent: 75,
                    quota_one_in: 12,
                    ..MANNERS
                };
                p.life.faults = Faults { crash_ms: 800, power_loss_ms: 1500, disk_full_ms: 2000, ..CALM };
                p.life.requests = 1500;
            }),
            Self::variant("idle", "clients with little to say, sessions close to their timeouts", |p| {
                p.life.manners = Manners { think_us: 80_000, silent_one_in: 40, window: 3, ..MANNERS };
                p.life.faults = Faults { crash_ms: 4000, clock_jump_ms: 3000, pause_ms: 6000, ..CALM };
                p.life.requests = 1500;
            }),
            Self::variant("big", "more znodes, more data, snapshots all the time", |p| {
                p.life.config.snapshot_updates = 80;
                p.life.segment_bytes = 64 << 10;
                p.life.manners.names = 40;
                p.life.manners.data_bytes = 8 << 10;
                p.life.manners.writes_percent = 70;
                p.life.faults = Faults { crash_ms: 200, power_loss_ms: 150, ..CALM };
            }),
            Self::variant("pipelined", "long pipelines against small limits", |p| {
                p.life.manners.window = 100;
                p.life.manners.stall_one_in = 40;
                p.life.config.limits.outstanding = 96;
                p.life.config.limits.outstanding_per_connection = 24;
                p.life.config.limits.queued_bytes_per_connection = 4 << 10;
                p.life.config.limits.log_queue_bytes = 16 << 10;
                p.life.config.limits.output_pause_bytes = 3 << 10;
                p.life.config.limits.output_close_bytes = 5 << 10;
                p.life.requests = 5000;
            }),
        ]
    }

    /// The profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.life.name == name)
    }
}
