//! What kind of life servers with several partitions have.

/// How often things go wrong, one against the other; they come right in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Troubles {
    /// A server's process ends, or its machine with what was not synced.
    pub(super) kill: u32,
    /// Those that have ended start again.
    pub(super) rise: u32,
    /// The link between one partition of two servers is cut.
    pub(super) cut: u32,
    /// All links are whole again.
    pub(super) mend: u32,
    /// A thread stands still for a while, or does not hear another one.
    pub(super) slow: u32,
    /// All of them go on.
    pub(super) hurry: u32,
    /// The power goes in the middle of a call to a disk, or that fails.
    pub(super) power_loss: u32,
    /// A disk is full.
    pub(super) full: u32,
    /// All disks have room again.
    pub(super) room: u32,
    /// A wall clock jumps.
    pub(super) jump: u32,
    /// A server comes back with an empty disk.
    pub(super) lose: u32,
}

const PLAIN: Troubles = Troubles {
    kill: 3,
    rise: 8,
    cut: 6,
    mend: 8,
    slow: 6,
    hurry: 6,
    power_loss: 0,
    full: 0,
    room: 0,
    jump: 0,
    lose: 0,
};

/// A kind of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its name.
    pub name: &'static str,
    /// How many servers found the ensemble.
    pub(super) founders: u8,
    /// How many more there are, which may be added to it; then clients ask for that.
    pub(super) spares: u8,
    /// About how many updates there are between two snapshots, and bytes kept for members that lag.
    pub(super) snapshot_updates: u64,
    pub(super) kept_bytes: u64,
    /// Subtrees are moved: once in so many steps somebody asks for that.
    pub(super) moves_one_in: u64,
    /// Clients use programs of the service.
    pub programs: bool,
    /// Clients ask for more before they are answered, most of it writes.
    pub impatient: bool,
    pub(super) troubles: Troubles,
}

/// Every kind. The first one is the most frequent.
const ALL: [Settings; 7] = [
    PLAIN_LIFE,
    Settings { name: "moving", moves_one_in: 25, snapshot_updates: 200, kept_bytes: 8 << 10, ..PLAIN_LIFE },
    Settings {
        name: "members",
        spares: 2,
        troubles: Troubles { kill: 2, cut: 4, slow: 3, jump: 1, ..PLAIN },
        ..PLAIN_LIFE
    },
    Settings {
        name: "snapshots",
        snapshot_updates: 16,
        kept_bytes: 1 << 10,
        troubles: Troubles { rise: 2, mend: 3, ..PLAIN },
        ..PLAIN_LIFE
    },
    Settings {
        name: "disks",
        snapshot_updates: 60,
        kept_bytes: 4 << 10,
        troubles: Troubles { power_loss: 6, full: 4, room: 8, jump: 3, cut: 2, ..PLAIN },
        ..PLAIN_LIFE
    },
    Settings {
        name: "losses",
        snapshot_updates: 40,
        kept_bytes: 2 << 10,
        troubles: Troubles { lose: 8, cut: 3, slow: 3, ..PLAIN },
        ..PLAIN_LIFE
    },
    Settings {
        name: "reshaped",
        spares: 2,
        snapshot_updates: 30,
        kept_bytes: 2 << 10,
        troubles: Troubles { power_loss: 2, full: 2, room: 6, jump: 2, ..PLAIN },
        ..PLAIN_LIFE
    },
];

const PLAIN_LIFE: Settings = Settings {
    name: "default",
    founders: 3,
    spares: 0,
    snapshot_updates: 1 << 40,
    kept_bytes: 1 << 30,
    moves_one_in: 300,
    programs: false,
    impatient: false,
    troubles: PLAIN,
};

/// A server that stands alone, whose disk fails.
const ALONE: Settings = Settings {
    name: "alone",
    founders: 1,
    snapshot_updates: 40,
    troubles: Troubles { cut: 0, power_loss: 6, full: 6, room: 12, jump: 2, ..PLAIN },
    ..PLAIN_LIFE
};

impl Settings {
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

    /// What a seed stands for: the kind, whether there are programs, and how many partitions.
    #[must_use]
    pub fn of(seed: u64) -> (Self, u8) {
        let kind = match seed / 4 % 10 {
            0..3 => ALL[0],
            3 => ALONE,
            other => ALL[other as usize - 3],
        };
        (Self { programs: seed / 40 % 2 == 1, ..kind }, [2, 3, 4, 8][(seed % 4) as usize])
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().chain([ALONE]).find(|settings| settings.name == name)
    }

    pub(super) fn servers(&self) -> u8 {
        self.founders + self.spares
    }
}
