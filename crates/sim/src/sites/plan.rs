//! What kind of life several sites have.

use crate::ensemble::{CALM, Faults, MANNERS, Manners, Settings, config};
use crate::rng::Rng;
use std::fmt;
use stoa_core::{Config, PolicyKind, PolicySettings, SiteConfig};

/// No site is divided over more partitions.
pub(super) const PARTITIONS_MAX: usize = 4;
/// What a kind is called where its sites are divided; alone, it is each of them in turn.
const DIVIDED: &str = "divided";

/// How often something befalls the lines between sites, or a whole site: the mean time between two, milliseconds; 0 is
/// never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Storms {
    /// Nothing passes for a while, both ways or one.
    pub(super) cut_ms: u64,
    /// The longest of them, milliseconds.
    pub(super) cut_max_ms: u64,
    /// A connection breaks.
    pub(super) break_ms: u64,
    /// All servers of a site end, and start again later.
    pub(super) down_ms: u64,
    /// A site, or two, are away for a while, most often the hub.
    pub(super) away_ms: u64,
    /// The hub is cut off from all others, which start again.
    pub(super) hub_cut_ms: u64,
    /// The last site comes when so much time has passed.
    pub(super) late_ms: u64,
}

const FAIR: Storms =
    Storms { cut_ms: 0, cut_max_ms: 0, break_ms: 0, down_ms: 0, away_ms: 0, hub_cut_ms: 0, late_ms: 0 };

/// What the operator of all sites does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Orders {
    /// How often he has another site be the hub, about, milliseconds; 0 is never.
    pub(super) every_ms: u64,
    /// Whether sites are lost, too, and given up.
    pub(super) loses: bool,
    /// Whether he gives none, as sites take the hub's place by themselves: he has those come back that were given up.
    pub(super) automatic: bool,
}

/// A kind of life of several sites.
#[derive(Debug, Clone)]
pub struct SitePlan {
    /// What befalls the servers of each site, and how its clients are.
    pub(super) life: Settings,
    pub(super) storms: Storms,
    pub(super) orders: Orders,
    pub(super) sites: usize,
    /// Over how many partitions each site is divided; those that are not named have one.
    partitions: Vec<u8>,
    /// Clients of all sites together.
    pub(super) clients: usize,
    /// Of a hundred connections, so many are made at another site than the one before.
    pub(super) travel_percent: u32,
    /// Whether clients of all sites call a program, which counts, and is called by other writes.
    pub(super) has_program: bool,
    /// How often a server gets the next release, or somebody raises the feature level, milliseconds; 0 is never.
    pub(super) release_ms: u64,
    /// Requests of all clients together.
    pub(super) requests: u64,
    /// How long all may take, in simulated time, before everything is healed, microseconds.
    pub(super) lasts_us: u64,
    /// Microseconds from the hub to each site, one way.
    pub(super) ways_us: Vec<u64>,
}

/// They come back with their session, and do not give up before an answer has come around the world.
const RESIDENTS: Manners = Manners {
    clients: 0,
    window: 5,
    think_us: 25_000,
    drop_one_in: 80,
    close_one_in: 200,
    silent_one_in: 400,
    move_one_in: 120,
    leave_one_in: 100,
    anew_one_in: 60,
    // What is the largest zxid depends on the site.
    ahead_one_in: 0,
    greeting_us: 5_000_000,
    patience_percent: 300,
    timeout_ms: (1500, 4000),
    ..MANNERS
};

/// Half of the round trips of the three matrices: sites around a hub in Virginia, around one that is far from all, and
/// with one at the other end of the world.
const WAYS_MS: [[u64; 4]; 3] = [[31, 45, 74, 40], [74, 74, 80, 90], [31, 125, 45, 10]];

/// How often a thread of a server stands still, and what it says to another one is late, where a site is divided.
const STALL_MS: u64 = 200;
const LATE_WORDS_MS: u64 = 60;
/// How often a subtree moves to another partition there, of those that clients write.
const MOVE_MS: u64 = 300;

impl SitePlan {
    fn all() -> Vec<Self> {
        let small = || Config { kept_bytes: 1 << 10, snapshot_updates: 30, ..paced() };
        let storms = Storms { cut_ms: 1500, cut_max_ms: 2500, break_ms: 1200, ..FAIR };
        let long =
            Storms { cut_ms: 2500, cut_max_ms: 9000, break_ms: 2500, down_ms: 6000, late_ms: 6000, ..FAIR };
        let crashes = Faults { crash_ms: 700, power_loss_ms: 1500, ..CALM };
        let disks = Faults { disk_full_ms: 900, slow_disk_ms: 1200, power_loss_ms: 2500, ..CALM };
        // Few leaders stop: one that fails to hand over, as the other pauses, has to go on as before.
        let handover = Faults { hand_over_ms: 400, pause_ms: 1500, stop_ms: 6000, ..CALM };
        let network = Faults { cut_ms: 1200, break_ms: 900, pause_ms: 2500, ..CALM };
        let network = Faults { loss_percent: 4, double_percent: 3, late_percent: 8, ..network };
        let mixed = Faults { crash_ms: 2500, disk_full_ms: 4000, hand_over_ms: 4000, cut_ms: 4000, ..CALM };
        let few = Faults { crash_ms: 5000, hand_over_ms: 6000, disk_full_ms: 8000, ..CALM };
        let rare = Storms { cut_ms: 5000, cut_max_ms: 2500, break_ms: 3000, ..FAIR };
        let kind = |name, config, faults, storms| Self::kind(name, config, faults, storms);
        let operated = |name, loses| {
            let orders = Orders { every_ms: 2500, loses, automatic: false };
            Self { orders, requests: 900, ..Self::kind(name, base(), few, rare) }
        };
        vec![
            kind("default", base(), mixed, storms),
            kind("calm", paced(), CALM, FAIR),
            kind("lines", paced(), CALM, Storms { cut_ms: 500, cut_max_ms: 1500, break_ms: 350, ..FAIR }),
            kind("crashes", paced(), crashes, Storms { break_ms: 2500, ..FAIR }),
            kind("away", small(), Faults { crash_ms: 4000, ..CALM }, long),
            kind("disks", small(), disks, storms),
            kind("handover", paced(), handover, Storms { break_ms: 3000, late_ms: 3000, ..FAIR }),
            kind("network", small(), network, Storms { late_ms: 2000, ..storms }),
            Self { travel_percent: 60, ..kind("travel", base(), mixed, storms) },
            Self { has_program: true, ..kind("programs", paced(), mixed, storms) },
            operated("hubs", false),
            operated("losses", true),
            Self { release_ms: 600, ..operated("releases", true).paced() },
            Self::automatic(),
        ]
    }

    /// Others take the hub's place by themselves.
    fn automatic() -> Self {
        let base = base();
        let site = base.site.map(|site| SiteConfig { automatic_promotion: true, ..site });
        let config = Config { site, heartbeat_ms: 100, ..base };
        let storms = Storms { break_ms: 12_000, away_ms: 14_000, ..FAIR };
        let mut plan = Self::kind("automatic", config, Faults { hand_over_ms: 20_000, ..CALM }, storms);
        plan.life.manners.think_us = 250_000;
        plan.orders.automatic = true;
        Self { requests: u64::MAX, lasts_us: 110_000_000, ..plan }
    }

    /// The same, and what seldom comes together does so all the time: the hub is cut off from all others while it has its
    /// lease, and those start again at once.
    fn cut_off() -> Self {
        let mut plan = Self::automatic();
        plan.life.name = "cut-off";
        plan.storms = Storms { hub_cut_ms: 14_000, ..FAIR };
        plan
    }

    /// The same, as [`paced`].
    fn paced(mut self) -> Self {
        self.life.config.site = paced().site;
        self
    }

    fn kind(name: &'static str, config: Config, faults: Faults, storms: Storms) -> Self {
        let life = Settings { name, config, faults, manners: RESIDENTS, ..Settings::base() };
        let (sites, clients, orders) = (3, 6, Orders::default());
        Self {
            life,
            storms,
            orders,
            sites,
            partitions: Vec::new(),
            clients,
            travel_percent: 15,
            has_program: false,
            release_ms: 0,
            requests: 500,
            lasts_us: 60_000_000,
            ways_us: Vec::new(),
        }
    }

    /// What a seed stands for; the kind, and the numbers of sites and of servers of each, that are asked for, or those
    /// of the seed. `None` when there is no such kind. Sites of the kinds `divided` and `divided-NAME` are divided as
    /// the seed says.
    #[must_use]
    pub fn of(seed: u64, kind: Option<&str>, sites: Option<usize>, servers: Option<usize>) -> Option<Self> {
        let mut all = Self::all();
        let is_divided = kind.is_some_and(|kind| kind.starts_with(DIVIDED));
        let kinds = all.len() as u64;
        let kind = kind.map(|kind| kind.strip_prefix(DIVIDED).unwrap_or(kind).trim_start_matches('-'));
        // Seeds take turns through the other kinds alone.
        let rare = Self::cut_off();
        if is_divided {
            // Programs cannot do it yet.
            all.retain(|plan| !plan.has_program);
        }
        let mut plan = match kind.filter(|kind| !kind.is_empty()) {
            Some(kind) => all.into_iter().chain([rare]).find(|plan| plan.life.name == kind)?,
            None => all[(seed % all.len() as u64) as usize].clone(),
        };
        plan.sites = sites.unwrap_or([3, 2, 3, 4, 3, 5][(seed / 9 % 6) as usize]);
        if plan.is_automatic() {
            // Of fewer none takes the place of another one.
            plan.sites = plan.sites.max(3);
        }
        // One server each is quick, and has as many orders of what happens between sites.
        plan.life.servers = servers.unwrap_or(if seed.is_multiple_of(5) || seed % 5 == 3 { 3 } else { 1 });
        plan.clients = plan.sites * 2;
        if seed / kinds % 3 == 1 {
            plan = plan.with_readers(1 + (seed % 3) as usize);
        }
        let ways = WAYS_MS[(seed / 2 % 3) as usize];
        plan.ways_us = ways.iter().map(|ms| ms * 1000).collect();
        if is_divided {
            let mut rng = Rng::new(seed ^ 0xd171);
            let mut partitions: Vec<u8> =
                (0..plan.sites).map(|_| 1 + rng.index(PARTITIONS_MAX) as u8).collect();
            let one = rng.index(plan.sites);
            partitions[one] = partitions[one].max(2);
            plan.partitions = partitions;
        }
        Some(plan)
    }

    /// The same, with so many readers at each site, which come and go below its servers and below each other.
    #[must_use]
    pub fn with_readers(self, readers: usize) -> Self {
        Self { life: self.life.with_readers(readers), ..self }
    }

    /// The same, with sites that are divided over so many partitions.
    #[must_use]
    pub fn with_partitions(self, partitions: &[u8]) -> Self {
        Self { partitions: partitions.to_vec(), ..self }
    }

    /// What befalls the servers of a site.
    pub(super) fn life_of(&self, at: usize) -> Settings {
        let mut life = self.life.clone();
        let partitions = self.partitions.get(at).copied().unwrap_or(1);
        if partitions > 1 {
            life.config.partitions = partitions;
            // Faults say what moves, not what is read most.
            life.config.balance = false;
            life.faults.move_ms = MOVE_MS;
            if life.name != "calm" {
                life.faults = Faults { stall_ms: STALL_MS, late_words_ms: LATE_WORDS_MS, ..life.faults };
            }
        }
        life
    }

    /// Whether the hub moves.
    pub(super) fn is_operated(&self) -> bool {
        self.orders.every_ms > 0 || self.orders.automatic
    }

    /// Whether others take the hub's place by themselves.
    pub(super) fn is_automatic(&self) -> bool {
        self.orders.automatic
    }

    /// How many sites stand in the list.
    pub(super) fn listed(&self) -> usize {
        if self.is_automatic() { self.sites } else { 0 }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.life.name
    }
}

impl fmt::Display for SitePlan {
    /// As a command line has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { life, sites, partitions, .. } = self;
        write!(f, "--kind {} --sites {sites} --servers {}", life.name, life.servers)?;
        if life.readers > 0 {
            write!(f, " --readers {}", life.readers)?;
        }
        let mut before = " --partitions ";
        for count in partitions {
            write!(f, "{before}{count}")?;
            before = ",";
        }
        Ok(())
    }
}

/// As servers are: what is new is sent to other sites once in a millisecond. Where that is not so more can happen between
/// two updates.
fn paced() -> Config {
    let base = base();
    Config { site: base.site.map(|site| SiteConfig { ship_pause_us: 1000, ..site }), ..base }
}

fn base() -> Config {
    Config {
        // The paper's policy: tokens come and go most with it.
        site: Some(SiteConfig {
            policy: PolicySettings { kind: PolicyKind::Consecutive(2), ..PolicySettings::default() },
            ..SiteConfig::default()
        }),
        heartbeat_ms: 40,
        session_timeout_min_ms: 1500,
        session_timeout_max_ms: 4000,
        kept_bytes: 64 << 20,
        ..config()
    }
}
