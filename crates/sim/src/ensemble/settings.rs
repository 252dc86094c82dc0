//! What kind of life a simulated ensemble has.

use super::HostId;
use std::ops::Range;

use stoa_core::{Config, ForestConfig, Givers, Limits, Relief, digest_id};

/// Mean time between faults of a kind, in simulated milliseconds; 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// A server ends: its process, or its machine with what was not synced.
    pub crash_ms: u64,
    /// A machine loses power in the middle of a call to its disk.
    pub power_loss_ms: u64,
    /// A disk is full for a while.
    pub disk_full_ms: u64,
    /// A disk is slow for a while.
    pub slow_disk_ms: u64,
    /// A wall clock jumps.
    pub clock_jump_ms: u64,
    /// A process stands still for a while.
    pub pause_ms: u64,
    /// One thread of a server with several stands still for a while.
    pub stall_ms: u64,
    /// What one thread of a server says to another is late for a while.
    pub late_words_ms: u64,
    /// A subtree is moved to another partition.
    pub move_ms: u64,
    /// The network falls apart for a while: in two, or one way only, or around the leader.
    pub cut_ms: u64,
    /// A connection between two servers breaks.
    pub break_ms: u64,
    /// The way between clients and a server is cut for a while: both ways, or one.
    pub client_cut_ms: u64,
    /// The leader is told to hand over the lead.
    pub hand_over_ms: u64,
    /// A server comes back with an empty disk.
    pub empty_ms: u64,
    /// A server comes back with an older copy of its disk.
    pub rollback_ms: u64,
    /// A bit of what a server has stored flips.
    pub rot_ms: u64,
    /// In so many of a hundred restarts of a server that stands alone, copies of its folder with a flipped bit are
    /// opened too.
    pub copies_percent: u32,
    /// A server is told to stop, as an operator does: it hands over the lead and finishes what is under way.
    pub stop_ms: u64,
    /// Of a hundred messages between servers, so many are lost.
    pub loss_percent: u32,
    /// Of a hundred, so many come twice.
    pub double_percent: u32,
    /// Of a hundred, so many are overtaken by others.
    pub late_percent: u32,
}

/// How clients behave. Once in 0 times is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// How many clients.
    pub clients: usize,
    /// The id of the first server, from which the others go on.
    pub first_id: HostId,
    /// Most requests that one client has under way.
    pub window: usize,
    /// Mean time between two bursts of a client, microseconds.
    pub think_us: u64,
    /// Of a hundred bursts, those that are sent as one; of the others each request is sent by itself.
    pub whole_percent: u32,
    /// Once in so many bursts a client drops its connection, ...
    pub drop_one_in: u64,
    /// ... closes its session,
    pub close_one_in: u64,
    /// ... is silent until its session may have expired,
    pub silent_one_in: u64,
    /// ... does not read for a while,
    pub stall_one_in: u64,
    /// ... moves its session to another connection,
    pub move_one_in: u64,
    /// ... sends what no client should.
    pub garbage_one_in: u64,
    /// Once in so many bursts one that only waits looks for another server.
    pub leave_one_in: u64,
    /// Once in so many times that one is told something while it watches something it hangs up.
    pub hang_up_one_in: u64,
    /// Once in so many bursts without anything under way one proves to be somebody.
    pub prove_one_in: u64,
    /// Once in so many times that one closes its session it asks for more behind that, ...
    pub behind_close_one_in: u64,
    /// ... or does not wait for the end, and wants its session back.
    pub returns_one_in: u64,
    /// Once in so many connections one has let its session go without a word, ...
    pub anew_one_in: u64,
    /// ... sends what is no handshake,
    pub strange_one_in: u64,
    /// ... has a wrong password,
    pub forged_one_in: u64,
    /// ... claims to have seen what there is not,
    pub ahead_one_in: u64,
    /// ... asks for a timeout that no server gives,
    pub odd_timeout_one_in: u64,
    /// ... is so old that it knows nothing of servers that only read.
    pub old_one_in: u64,
    /// Once in so many times that one could think of it, it leaves before its handshake is answered.
    pub hasty_one_in: u64,
    /// It leaves when that has taken so long, microseconds; 0 is never.
    pub greeting_us: u64,
    /// It leaves when nothing has come for so many hundredths of its session's timeout; 0 is never.
    pub patience_percent: u32,
    /// How many znodes they share; in a tree, names of each level.
    pub names: usize,
    /// Largest data where that is not the name of a write, bytes.
    pub data_bytes: usize,
    /// Writes among a hundred requests.
    pub writes_percent: u32,
    /// Once in so many writes a quota is set, changed or removed.
    pub quota_one_in: u64,
    /// Among a hundred clients, those that are content with a server that only reads.
    pub read_only_percent: u32,
    /// Session timeouts that they ask for, milliseconds.
    pub timeout_ms: (u64, u64),
    /// Once in so many requests one asks for another list of servers.
    pub reconfig_one_in: u64,
    /// Once in so many requests one has to do with a program that counts.
    pub program_one_in: u64,
    /// Whether the servers may make local sessions.
    pub local_sessions: bool,
}

/// What kind of life an ensemble has.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: &'static str,
    /// How many servers found the ensemble.
    pub servers: usize,
    /// How many more there are, which may be added to it.
    pub spares: usize,
    /// Servers that belong to no ensemble, below others.
    pub readers: usize,
    /// Who is not in the list of servers is a reader, below others, until it is.
    pub switches: bool,
    /// On so many days a majority is lost for good, and what follows goes on from one folder.
    pub recoveries: u32,
    /// A bug: servers listen to one that has lost its disk as if it had its past.
    pub trusting: bool,
    /// Requests that the clients send before everything is healed.
    pub requests: u64,
    /// Simulated time after which everything is healed even so, microseconds.
    pub lasts_us: u64,
    /// The servers' settings.
    pub config: Config,
    /// Every other start of a server is one of a release from before there was a forest.
    pub upgrades: bool,
    /// Whether quotas are enforced.
    pub enforce_quota: bool,
    /// Bytes of a segment of their logs.
    pub segment_bytes: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// What the clients do.
    pub manners: Manners,
}

pub(crate) const CALM: Faults = Faults {
    crash_ms: 0,
    power_loss_ms: 0,
    disk_full_ms: 0,
    slow_disk_ms: 0,
    clock_jump_ms: 0,
    pause_ms: 0,
    stall_ms: 0,
    late_words_ms: 0,
    move_ms: 0,
    cut_ms: 0,
    break_ms: 0,
    client_cut_ms: 0,
    hand_over_ms: 0,
    empty_ms: 0,
    rollback_ms: 0,
    rot_ms: 0,
    copies_percent: 0,
    stop_ms: 0,
    loss_percent: 0,
    double_percent: 0,
    late_percent: 0,
};

/// Some of everything that servers with one partition can meet.
const MIXED: Faults = Faults {
    crash_ms: 1500,
    power_loss_ms: 3000,
    disk_full_ms: 4000,
    slow_disk_ms: 2000,
    clock_jump_ms: 3000,
    pause_ms: 2000,
    cut_ms: 2000,
    break_ms: 2000,
    client_cut_ms: 2000,
    hand_over_ms: 3000,
    empty_ms: 8000,
    rot_ms: 2000,
    stop_ms: 6000,
    loss_percent: 2,
    double_percent: 2,
    late_percent: 5,
    ..CALM
};

pub(crate) const MANNERS: Manners = Manners {
    clients: 6,
    first_id: 1,
    window: 6,
    think_us: 12_000,
    whole_percent: 20,
    drop_one_in: 60,
    close_one_in: 150,
    silent_one_in: 300,
    stall_one_in: 0,
    move_one_in: 60,
    garbage_one_in: 0,
    leave_one_in: 0,
    hang_up_one_in: 0,
    prove_one_in: 60,
    behind_close_one_in: 2,
    returns_one_in: 0,
    anew_one_in: 40,
    strange_one_in: 60,
    forged_one_in: 60,
    ahead_one_in: 60,
    odd_timeout_one_in: 12,
    old_one_in: 12,
    hasty_one_in: 0,
    greeting_us: 700_000,
    patience_percent: 66,
    names: 4,
    data_bytes: 0,
    writes_percent: 60,
    quota_one_in: 0,
    read_only_percent: 0,
    timeout_ms: (800, 3000),
    reconfig_one_in: 0,
    program_one_in: 0,
    local_sessions: false,
};

/// Who may change the list of servers.
pub(crate) const SUPER: &str = "super:man";

/// Short times, so that they are reached.
pub(crate) fn config() -> Config {
    Config {
        tick_ms: 100,
        session_timeout_min_ms: 800,
        session_timeout_max_ms: 4000,
        snapshot_updates: 40,
        snapshot_log_bytes: 1 << 20,
        heartbeat_ms: 20,
        election_heartbeats: 8,
        kept_bytes: 4 << 10,
        relief: Relief { forest: None, givers: Givers::Any },
        authentication: stoa_core::Authentication {
            super_digest: Some(digest_id(SUPER)),
            ..Default::default()
        },
        reconfig_enabled: true,
        limits: Limits { handshake_ms: 2000, connections_per_address: 0, ..Limits::default() },
        ..Config::default()
    }
}

impl Settings {
    fn variant(name: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        let mut settings = Self { name, ..Self::base() };
        change(&mut settings);
        settings
    }

    /// Every kind of life, for three servers.
    #[must_use]
    pub fn all() -> Vec<Self> {
        [vec![Self::base()], Self::of_faults(), Self::of_ensembles()].concat()
    }

    /// Those in which servers, disks and links fail, or little does, and clients come and go.
    fn of_faults() -> Vec<Self> {
        vec![
            Self::variant("calm", |it| it.faults = CALM),
            Self::variant("quiet", |it| {
                it.faults = CALM;
                it.manners = Manners { think_us: 150_000, silent_one_in: 30, ..MANNERS };
                it.requests = 400;
            }),
            Self::variant("network", |it| {
                it.manners = Manners { garbage_one_in: 200, hang_up_one_in: 20, ..MANNERS };
                it.faults = Faults {
                    cut_ms: 500,
                    break_ms: 400,
                    pause_ms: 1500,
                    loss_percent: 10,
                    double_percent: 5,
                    late_percent: 20,
                    ..CALM
                };
            }),
            Self::variant("crashes", |it| {
                it.faults = Faults { crash_ms: 350, power_loss_ms: 600, slow_disk_ms: 800, ..CALM };
            }),
            Self::variant("disks", |it| {
                let faults = Faults { disk_full_ms: 500, slow_disk_ms: 400, power_loss_ms: 1500, ..CALM };
                it.faults = Faults { crash_ms: 1500, ..faults };
            }),
            Self::variant("churn", |it| {
                let manners = Manners { drop_one_in: 12, silent_one_in: 60, move_one_in: 12, ..MANNERS };
                it.manners = Manners { clients: 9, close_one_in: 30, hasty_one_in: 60, ..manners };
                it.faults = Faults { crash_ms: 3000, break_ms: 1500, cut_ms: 3000, ..CALM };
            }),
            Self::variant("idle", |it| {
                it.manners = Manners { think_us: 150_000, silent_one_in: 15, move_one_in: 20, ..MANNERS };
                it.faults = Faults { crash_ms: 5000, pause_ms: 5000, cut_ms: 5000, ..CALM };
                it.requests = 400;
            }),
            Self::variant("read-only", |it| {
                it.config.read_only_mode = true;
                it.manners = Manners { read_only_percent: 60, ..MANNERS };
                it.faults = Faults { cut_ms: 700, break_ms: 1500, crash_ms: 2000, pause_ms: 3000, ..CALM };
            }),
        ]
    }

    /// Those in which servers, with what they have, leave the lead or the ensemble.
    fn of_ensembles() -> Vec<Self> {
        vec![
            Self::variant("handover", |it| {
                it.faults = Faults { hand_over_ms: 250, stop_ms: 1500, ..CALM };
            }),
            Self::variant("links", |it| {
                it.manners = Manners { move_one_in: 20, silent_one_in: 100, stall_one_in: 60, ..MANNERS };
                it.faults = Faults { client_cut_ms: 250, break_ms: 2000, pause_ms: 4000, ..CALM };
            }),
            Self::variant("members", |it| {
                it.spares = 3;
                it.manners = Manners { reconfig_one_in: 25, ..MANNERS };
                it.faults = Faults { crash_ms: 1500, cut_ms: 3000, break_ms: 2000, stop_ms: 4000, ..CALM };
            }),
            Self::variant("reshaped", |it| {
                it.spares = 2;
                it.manners = Manners { reconfig_one_in: 60, ..MANNERS };
                // What is lost with a disk could be what another list of servers depends on.
                it.faults = Faults { empty_ms: 0, rot_ms: 0, pause_ms: 4000, ..it.faults };
            }),
            Self::variant("losses", |it| {
                let losses = Faults { empty_ms: 700, rollback_ms: 300, ..CALM };
                it.faults = Faults { crash_ms: 1500, cut_ms: 2000, ..losses };
            }),
            Self::variant("rot", |it| {
                it.faults = Faults { rot_ms: 250, crash_ms: 500, power_loss_ms: 2000, cut_ms: 3000, ..CALM };
            }),
        ]
    }

    /// One in which members lack what the logs hold all the time, and are given snapshots by each other. It has no turn of
    /// its own among the seeds of all kinds. The list of servers stays: what is lost with a disk could be what another one
    /// depends on.
    fn of_laggards() -> Self {
        Self::variant("lags", |it| {
            it.config.snapshot_updates = 20;
            it.config.kept_bytes = 1 << 10;
            let ends = Faults { crash_ms: 900, power_loss_ms: 2500, empty_ms: 2500, ..CALM };
            let links = Faults { cut_ms: 700, break_ms: 900, pause_ms: 1500, hand_over_ms: 2000, ..ends };
            it.faults = Faults { disk_full_ms: 2500, slow_disk_ms: 1500, loss_percent: 2, ..links };
        })
    }

    pub(crate) fn base() -> Self {
        Self {
            name: "default",
            servers: 3,
            spares: 0,
            readers: 0,
            switches: false,
            recoveries: 0,
            trusting: false,
            requests: 700,
            lasts_us: 30_000_000,
            config: config(),
            upgrades: false,
            enforce_quota: false,
            segment_bytes: 16 << 10,
            faults: MIXED,
            manners: MANNERS,
        }
    }

    /// The same, and appends go down trees: they have interiors below the roots from five servers on.
    #[must_use]
    pub fn with_forest(mut self) -> Self {
        let mut forest = ForestConfig::new(3, 2, 2).expect("as many children as trees");
        // As short as all other times.
        forest.limits.repeat_us = 40_000;
        self.config.relief.forest = Some(forest);
        self
    }

    /// The same, while servers have the release with a forest or the one before, and go from the one to the other and
    /// back.
    #[must_use]
    pub fn with_upgrades(self) -> Self {
        Self { upgrades: true, ..self.with_forest() }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().chain([Self::of_laggards()]).find(|settings| settings.name == name)
    }

    /// What a seed stands for; `servers` as many as are asked for, or mostly three, and the kind that is asked for,
    /// or each in turn. `None` when there is no such kind.
    #[must_use]
    pub fn of(seed: u64, servers: Option<usize>, kind: Option<&str>) -> Option<Self> {
        let all = Self::all();
        let mut settings = match kind {
            Some(kind) => Self::named(kind)?,
            None => all[(seed % all.len() as u64) as usize].clone(),
        };
        let mostly = match seed % 10 {
            2 | 7 => 5,
            4 => 4,
            9 => 1,
            _ => 3,
        };
        settings.servers = servers.unwrap_or(mostly);
        if seed % 4 == 3 {
            settings.manners.program_one_in = 4;
        }
        if seed % 4 == 1 {
            settings.config.local_sessions.are_made = true;
            settings.manners.local_sessions = true;
            settings.config.local_sessions.are_upgraded = seed % 8 == 1;
        }
        settings.manners.first_id = Self::first_id(seed);
        if seed % 4 == 2 {
            settings.config.relief.givers = Givers::Spare;
        }
        // Folders of a lost ensemble turn up again, and would show clients that only read what nobody else has.
        if settings.manners.read_only_percent == 0 {
            settings.recoveries = Self::recoveries(seed);
        }
        Some(settings)
    }

    /// How often a majority is lost in the life of a seed that is one among many kinds.
    pub(crate) fn recoveries(seed: u64) -> u32 {
        if seed % 8 == 6 { 1 + u32::from(seed.is_multiple_of(3)) } else { 0 }
    }

    /// What the servers' ids begin with in the life of a seed that is one among many kinds.
    pub(crate) fn first_id(seed: u64) -> HostId {
        HostId::from(seed % 7 != 5)
    }

    /// How many may belong to the ensemble.
    pub(crate) fn members(&self) -> usize {
        self.servers + self.spares
    }

    /// The same, with so many readers, which come and go below members and below each other. No other servers come, and
    /// no majority is lost for good: readers would have what nobody has.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        (self.spares, self.recoveries) = (0, 0);
        self.manners.reconfig_one_in = 0;
        self
    }

    /// The same, with so many servers more, and each is what the list of servers says: a reader while it is not in it. No
    /// majority is lost for good: readers would have what nobody has.
    #[must_use]
    pub fn with_roles(mut self, more: usize) -> Self {
        (self.spares, self.readers, self.switches, self.recoveries) = (more, 0, true, 0);
        if self.manners.reconfig_one_in == 0 {
            self.manners.reconfig_one_in = 40;
        }
        self
    }

    /// The ids of the first servers, so many of them.
    pub(crate) fn ids(&self, count: usize) -> Range<HostId> {
        let first = self.manners.first_id;
        first..first + count as HostId
    }
}
