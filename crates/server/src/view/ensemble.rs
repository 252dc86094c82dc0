//! What a server is to the others, and what it knows of them.

use stoa_core::{GivenSnapshot, SnapshotCounts};

use crate::config::Member;

/// What a server is among its kind, in ZooKeeper's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The only server there is.
    #[default]
    Standalone,
    /// It orders the updates of its ensemble.
    Leader,
    /// It follows a leader, and votes.
    Follower,
    /// It follows a leader, and has no vote.
    Observer,
    /// It has known of no leader for a while, and only reads.
    ReadOnly,
    /// It knows of no leader, has not applied what was committed before the leader's time, or has no room.
    Looking,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 6] =
        [Mode::Standalone, Mode::Leader, Mode::Follower, Mode::Observer, Mode::ReadOnly, Mode::Looking];

    /// The word that scripts look for.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Standalone => "standalone",
            Mode::Leader => "leader",
            Mode::Follower => "follower",
            Mode::Observer => "observer",
            Mode::ReadOnly => "read-only",
            Mode::Looking => "looking",
        }
    }

    /// Whether it takes part in its ensemble, or is all of it.
    pub fn is_in_quorum(self) -> bool {
        !matches!(self, Mode::ReadOnly | Mode::Looking)
    }

    /// Whether it says when sessions end; elsewhere only their timeouts are known.
    pub fn judges_sessions(self) -> bool {
        matches!(self, Mode::Standalone | Mode::Leader)
    }

    /// The same with ZooKeeper's phase behind it, of those who are in touch with others.
    pub fn peer_state(self) -> Option<&'static str> {
        match self {
            Mode::Standalone | Mode::ReadOnly => None,
            Mode::Leader => Some("leading - broadcast"),
            Mode::Follower => Some("following - broadcast"),
            Mode::Observer => Some("observing - broadcast"),
            Mode::Looking => Some("looking"),
        }
    }
}

/// Whoever lacks no more entries than this is as good as up to date: a server that is written to has
/// some on their way at any moment.
pub const LAG_ENTRIES_MAX: u64 = 1000;

/// Where a server stands among the others. Positions are those of entries on the timeline; those of several
/// partitions are added.
#[derive(Clone, Debug, Default)]
pub struct EnsembleStatus {
    /// The server's own number.
    pub id: u64,
    /// The name of the history that it has, if it has one: that of its ensemble.
    pub history: Option<String>,
    /// Of whom it has to hear before it founds one.
    pub missing: Vec<u64>,
    /// Who leads the first partition, if it is known of all who leads them.
    pub leader: Option<u64>,
    /// The term, of the first partition.
    pub term: u64,
    /// Position of the last entry, durable or not.
    pub last: u64,
    /// Position up to which entries are committed, as far as this server knows.
    pub committed: u64,
    /// Position of the last applied entry.
    pub applied: u64,
    /// How many entries are committed and not applied, on the partition that lags most.
    pub behind: u64,
    /// Whether the disk has no room for what comes from the others.
    pub out_of_room: bool,
    /// Whether a snapshot of another server is coming, or is being taken over.
    pub takes_over: bool,
    /// How often a leader was found, of the partition that has found most.
    pub leaders_found: u64,
    /// Snapshots that other servers have received from this one.
    pub snapshots_sent: u64,
    /// Snapshots that have come from other servers.
    pub snapshots_received: u64,
    /// Those on their way to members of which it knows, and how many there were that others than leaders gave.
    pub given: (Vec<GivenSnapshot>, SnapshotCounts),
    /// Everybody, this server among them, by number; also who is only named by the settings.
    pub members: Vec<MemberStatus>,
    /// Each partition by itself.
    pub timelines: Vec<Timeline>,
    /// The servers by the list in force, else those of the settings; none where there is no ensemble.
    pub servers: Vec<Member>,
}

/// Where a server stands on the timeline of one of its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// What it is there.
    pub mode: Mode,
    /// Who leads it, if that is known.
    pub leader: Option<u64>,
    /// The term.
    pub term: u64,
    /// Position of the last entry, durable or not.
    pub last: u64,
    /// Position up to which entries are committed, as far as this server knows.
    pub committed: u64,
    /// Position of the last applied entry.
    pub applied: u64,
}

/// One server of an ensemble.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its number.
    pub id: u64,
    /// Whether the servers have agreed that it belongs to them; if not, only the settings name it.
    pub belongs: bool,
    /// Whether it has a vote.
    pub votes: bool,
    /// Whether it is to have one, by the list of servers, and has none yet.
    pub joins: bool,
    /// Whether it has come back with another disk than it had, and has to join anew.
    pub has_other_disk: bool,
    /// Its host, and the port for other servers, if the list in force or the settings name it.
    pub address: Option<(String, u16)>,
    /// At the leader: up to which position it is known to have the entries.
    pub matched: Option<u64>,
    /// At the leader: how many entries of the log it is not known to have.
    pub lag: Option<u64>,
    /// The connection with it; none with the server itself.
    pub link: Option<LinkStatus>,
}

impl MemberStatus {
    /// Whether it follows without a vote, and is to stay so.
    pub fn observes(&self) -> bool {
        !self.votes && !self.joins
    }

    /// Whether it belongs to the servers, and messages can be exchanged with it.
    pub fn is_connected(&self) -> bool {
        self.belongs && self.link.as_ref().is_some_and(|link| link.connected_ms.is_some())
    }
}

/// The connection between two servers, counted from the start of this one.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// Since when it has been up, milliseconds since the epoch; `None` when it is not.
    pub connected_ms: Option<i64>,
    /// Name and version of the other's program, while it is up.
    pub software: Option<String>,
    /// The last thing that went wrong, also if it has been well since.
    pub last_error: Option<String>,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
}

impl EnsembleStatus {
    /// At the leader: how many of the others are connected, lack little, and are such.
    pub fn synced(&self, such: impl Fn(&MemberStatus) -> bool) -> u64 {
        let synced = self.members.iter().filter(|member| {
            let is_near = member.lag.is_some_and(|lag| lag <= LAG_ENTRIES_MAX);
            member.is_connected() && is_near && such(member)
        });
        synced.count() as u64
    }

    /// How many partitions this server leads.
    pub fn led(&self) -> u64 {
        self.timelines.iter().filter(|timeline| timeline.leader == Some(self.id)).count() as u64
    }

    /// How many have a vote.
    pub fn voters(&self) -> u64 {
        self.members.iter().filter(|member| member.votes).count() as u64
    }

    /// Whether this server has a vote.
    pub fn votes(&self) -> bool {
        self.members.iter().any(|member| member.id == self.id && member.votes)
    }
}
