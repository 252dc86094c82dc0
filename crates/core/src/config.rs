//! What the driver decides once.

use crate::membership::Membership;
use alloc::collections::BTreeSet;
use alloc::string::String;
use stoa_front::{Authentication, Limits};
use stoa_partition::{ProgramLimits, Stopwatch};
use stoa_sites::Settings as PolicySettings;
use stoa_timeline::Relief;

/// Settings of a server's logic.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its number in the ensemble, and the top byte of the session ids that it makes (ZooKeeper's
    /// `myid`); 255 only without TTL znodes, whose owners have it there in ZooKeeper.
    pub server_id: u8,
    /// The partition that this thread executes, from 0.
    pub partition: u8,
    /// How many partitions the ensemble has, from 1; fixed when it is born.
    pub partitions: u8,
    /// Resolution of session expiry, milliseconds.
    pub tick_ms: u32,
    /// Least session timeout that is granted, milliseconds.
    pub session_timeout_min_ms: i32,
    /// Largest session timeout that is granted, milliseconds.
    pub session_timeout_max_ms: i32,
    /// How clients prove who they are.
    pub authentication: Authentication,
    /// How containers and TTL znodes are deleted.
    pub reaping: Reaping,
    /// A snapshot is taken after about this many updates, if the log has grown by as many bytes as
    /// the znodes have.
    pub snapshot_updates: u64,
    /// A snapshot is taken after about this many bytes of log.
    pub snapshot_log_bytes: u64,
    /// The servers that the first leader of a new ensemble publishes in `/zookeeper/config`: lines
    /// `server.N=host:port:port[:role];port`. Empty for a server that stands alone.
    pub servers: String,
    /// What part the server has in the ensemble.
    pub part: ServerPart,
    /// The id of its data folder, drawn at random when that was made.
    pub disk: [u8; 16],
    /// Whether clients may change the list of servers (setting `reconfigEnabled`).
    pub reconfig_enabled: bool,
    /// Time between two messages of a leader to the others, milliseconds.
    pub heartbeat_ms: u32,
    /// Heartbeats without a message of the leader after which a server wants to lead, at least; at most
    /// twice as many.
    pub election_heartbeats: u32,
    /// Whether the server answers reads, of clients that have said that this will do, while it knows of no
    /// leader (setting `read-only-mode`).
    pub read_only_mode: bool,
    /// Sessions that their contact server alone keeps.
    pub local_sessions: LocalSessions,
    /// Whether subtrees are moved for the sake of the load, where there are several partitions.
    pub balance: bool,
    /// If this is a server of one of several sites: then it serves nobody before its site is one. Not at a reader, which
    /// hears from its parent whether there are any.
    pub site: Option<SiteConfig>,
    /// About so many bytes of entries are kept for members that lag; who lags more is sent a snapshot.
    pub kept_bytes: u64,
    /// What the other servers take off a leader.
    pub relief: Relief,
    /// Random, and the same for all threads of a server: proves of what clients claim to have seen that the
    /// server has told them.
    pub direct_secret: [u8; 32],
    /// Bounds on what clients can make the server hold.
    pub limits: Limits,
    /// Bounds on the programs that they can have it run.
    pub programs: ProgramLimits,
    /// Tells how long programs take.
    pub stopwatch: Stopwatch,
}

/// What part a server has in the ensemble.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerPart {
    /// It belongs to it. Where its disk holds nothing it founds it with the others, or joins it.
    #[default]
    Member,
    /// Where its disk holds nothing it waits for others whose ensemble it is to join, whatever its list says (setting
    /// `join`).
    Joins,
    /// It is a reader: it does not belong to it, and follows a member, or another reader (setting `reader-of`).
    Reader,
}

/// Sessions that their contact server alone keeps. A server that stands alone, or has several partitions, makes none.
#[derive(Debug, Default, Clone, Copy)]
pub struct LocalSessions {
    /// Whether new sessions are such ones (setting `localSessionsEnabled`).
    pub are_made: bool,
    /// Whether one becomes a global one when it asks for something that needs that (setting
    /// `localSessionsUpgradingEnabled`); otherwise that is refused.
    pub are_upgraded: bool,
}

/// How a server of one of several sites works.
#[derive(Debug, Default, Clone, Copy)]
pub struct SiteConfig {
    /// How the hub decides where tokens are to be.
    pub policy: PolicySettings,
    /// Whether another site takes the place of a hub that is away without an operator; then the hub prepares nothing
    /// unless a majority of the sites hears it.
    pub automatic_promotion: bool,
    /// Other sites are sent what is new here no more often than this, microseconds; what comes first goes at once. Each
    /// message costs as much as some writes, here and where it is imported.
    pub ship_pause_us: u64,
}

/// How containers and TTL znodes are deleted that nobody needs any more.
#[derive(Debug, Clone, Copy)]
pub struct Reaping {
    /// Time between two looks for them, milliseconds.
    pub interval_ms: u32,
    /// Most of them that one look deletes.
    pub max: u32,
}

impl Config {
    /// Whether the server is a reader.
    #[must_use]
    pub fn is_reader(&self) -> bool {
        self.part == ServerPart::Reader
    }

    /// Who begins a history with this server, if its disk holds nothing.
    fn founders(&self) -> BTreeSet<u8> {
        if self.part != ServerPart::Member {
            return BTreeSet::new();
        }
        if self.servers.is_empty() {
            return [self.server_id].into();
        }
        // Who cannot say who the others are begins nothing without them.
        Membership::parse(&self.servers).map_or_else(|_| BTreeSet::new(), |listed| listed.voters().collect())
    }

    /// How the timeline works, with random numbers that have nothing to do with each other.
    pub(crate) fn timeline(&self, seeds: [u64; 3]) -> stoa_timeline::Config {
        stoa_timeline::Config {
            server: self.server_id,
            partition: self.partition,
            partitions: self.partitions,
            heartbeat_ms: self.heartbeat_ms,
            election_heartbeats: self.election_heartbeats,
            kept_bytes: self.kept_bytes,
            expects_others: !self.servers.is_empty() || self.is_reader(),
            is_reader: self.is_reader(),
            // An ensemble may become a site while readers follow it.
            gives_log: (self.site.is_some() || self.is_reader()) && self.partitions > 1,
            relief: self.relief.clone(),
            disk: self.disk,
            founders: self.founders(),
            seeds,
        }
    }

    /// How the front of this thread works.
    pub(crate) fn front(&self) -> stoa_front::Config {
        stoa_front::Config {
            partition: self.partition,
            partitions: self.partitions,
            tick_ms: self.tick_ms,
            session_timeout_min_ms: self.session_timeout_min_ms,
            patience_ms: u64::from(self.heartbeat_ms) * u64::from(self.election_heartbeats),
            authentication: self.authentication.clone(),
            direct_secret: self.direct_secret,
            limits: self.limits.clone(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server_id: 1,
            partition: 0,
            partitions: 1,
            tick_ms: 3000,
            session_timeout_min_ms: 6000,
            session_timeout_max_ms: 60_000,
            authentication: Authentication::default(),
            reaping: Reaping { interval_ms: 60_000, max: 10_000 },
            snapshot_updates: 100_000,
            snapshot_log_bytes: 4 << 30,
            servers: String::new(),
            part: ServerPart::Member,
            disk: [0; 16],
            reconfig_enabled: false,
            heartbeat_ms: 100,
            election_heartbeats: 10,
            read_only_mode: false,
            local_sessions: LocalSessions::default(),
            balance: true,
            site: None,
            kept_bytes: 64 << 20,
            relief: Relief::default(),
            direct_secret: [0; 32],
            limits: Limits::default(),
            programs: ProgramLimits::default(),
            stopwatch: Stopwatch::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn whoever_cannot_read_its_list_founds_nothing() {
        let founders = |servers: &str, joins| {
            let part = if joins { ServerPart::Joins } else { ServerPart::Member };
            let config = Config { server_id: 2, servers: servers.into(), part, ..Config::default() };
            config.founders().into_iter().collect::<Vec<_>>()
        };
        let list = "server.1=a:1:2:participant;3\nserver.2=b:1:2:participant;3\nserver.3=c:1:2:observer;3";
        assert_eq!(founders("", false), [2]);
        assert_eq!(founders(list, false), [1, 2]);
        assert!(founders("", true).is_empty() && founders(list, true).is_empty());
        for unreadable in ["server.2", "server.1=a:1:2:participant;3\nserver.2=b:x:2:participant;3"] {
            assert!(founders(unreadable, false).is_empty(), "{unreadable}");
        }
    }
}
