//! What the performers play, and what kind of life their servers have.

use crate::ensemble::{self, Manners};
use crate::partitions::Plan;

/// Which recipe is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Play {
    /// A lock, which guards a resource.
    Lock,
    /// A lock for readers and writers.
    ReadWrite,
    /// A semaphore.
    Semaphore,
    /// The election of a leader, and those who want to know of it.
    Election,
    /// A counter.
    Counter,
    /// A queue.
    Queue,
    /// A barrier that opens when enough have come.
    Meeting,
    /// A barrier that one sets and lifts.
    Barrier,
    /// A group.
    Group,
    /// A copy of a subtree that others write to.
    Cache,
}

impl Play {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Lock,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Election,
        Self::Counter,
        Self::Queue,
        Self::Meeting,
        Self::Barrier,
        Self::Group,
        Self::Cache,
    ];

    /// Its name, as it stands on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Election => "election",
            Self::Counter => "counter",
            Self::Queue => "queue",
            Self::Meeting => "meeting",
            Self::Barrier => "barrier",
            Self::Group => "group",
            Self::Cache => "cache",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|play| play.name() == name)
    }
}

/// A run.
#[derive(Debug, Clone)]
pub struct RecipePlan {
    /// What is played.
    pub play: Play,
    /// What their servers live through, and how many processes play it.
    pub life: ensemble::Settings,
    /// A bug: what is protected takes writes whatever token they carry.
    pub unfenced: bool,
}

/// The kinds of life of servers with several partitions in which all of them stay, and what goes before their names.
const DIVIDED: [&str; 4] = ["default", "moving", "snapshots", "disks"];
const DIVIDED_PREFIX: &str = "divided-";

/// The kinds of life that say something about clients.
const LIVES: [&str; 7] = ["default", "calm", "network", "crashes", "disks", "handover", "links"];

impl RecipePlan {
    /// What kind of life it is, as it is asked for.
    #[must_use]
    pub fn kind(&self) -> String {
        let is_divided = self.life.config.partitions > 1;
        format!("{}{}", if is_divided { DIVIDED_PREFIX } else { "" }, self.life.name)
    }

    /// What a seed stands for, unless one or the other is asked for.
    #[must_use]
    pub fn of(seed: u64, play: Option<Play>, life: Option<&str>) -> Option<Self> {
        let plays = Play::ALL.len() as u64;
        let play = play.unwrap_or(Play::ALL[(seed % plays) as usize]);
        let name = life.unwrap_or(LIVES[(seed / plays % LIVES.len() as u64) as usize]);
        let divided = match life {
            Some(_) => name.strip_prefix(DIVIDED_PREFIX),
            // A lock's guarantee rests on zxids, and on what becomes of directories that are moved.
            None if play == Play::Lock && seed / plays % 3 == 2 => {
                Some(DIVIDED[(seed / plays / 3 % DIVIDED.len() as u64) as usize])
            }
            None => None,
        };
        let mut life = match divided {
            Some(name) => {
                let partitions = [2, 3, 4, 8][(seed / plays % 4) as usize];
                let plan = Plan::named(name).filter(|_| DIVIDED.contains(&name))?;
                plan.with_partitions(partitions).life
            }
            None => ensemble::Settings::named(name)?,
        };
        // Sessions that end soon, so that holders are there to see it.
        life.manners = Manners { clients: 4, timeout_ms: (800, 1500), ..life.manners };
        life.requests = 3000;
        life.lasts_us = 20_000_000;
        Some(Self { play, life, unfenced: false })
    }
}
