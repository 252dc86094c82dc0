//! What can be seen of a running server, as plain data.
//!
//! The four-letter words, admin HTTP and the metrics are rendered from these structs and from nothing
//! else. The thread that owns a partition fills them in ([`Source`]); rendering happens wherever it was
//! asked for, so that a long listing is turned into text on the asker's time and not on the partition's.

mod balance;
mod connection;
mod counts;
mod ensemble;
pub(crate) mod forest;
pub(crate) mod merge;
mod partition;
pub(crate) mod readers;
mod sites;
mod unready;

use stoa_core::ForestStatus;
use stoa_tree::Identity;
use stoa_wire::Opcode;
use tokio::sync::oneshot;

pub use balance::{Balance, Moved};
pub use connection::{Connection, ConnectionSession};
pub use counts::{Following, Quota, Service, Sizes, Watchers};
pub use ensemble::{EnsembleStatus, LAG_ENTRIES_MAX, LinkStatus, MemberStatus, Mode, Timeline};
pub use partition::{Partition, Subtree};
pub use readers::{NewcomerView, ParentView, ReaderPlace, ReaderView, ReadersView};
pub(crate) use sites::NO_SITES;
pub use sites::{
    Holder, LostAsked, LostView, PathToken, SiteOrder, SiteView, SitesView, TokenUsage, UnshippedView,
};
pub(crate) use unready::why_unready;

/// A question to the thread that owns the partition, with the place where the answer goes.
#[derive(Debug)]
pub enum Question {
    /// Every figure of the server.
    Stats(oneshot::Sender<Box<Stats>>),
    /// Every connection.
    Connections(oneshot::Sender<Vec<Connection>>),
    /// Every session with its ephemeral znodes.
    Sessions(oneshot::Sender<Vec<Session>>),
    /// The ephemeral znodes of each of these sessions.
    Ephemerals(Vec<i64>, oneshot::Sender<Vec<Vec<String>>>),
    /// The watches, counted.
    WatchSummary(oneshot::Sender<WatchSummary>),
    /// The watches, in full.
    Watches(oneshot::Sender<Vec<SessionWatches>>),
    /// The partitions, and what is asked of them.
    Partitions(oneshot::Sender<Vec<Partition>>),
    /// Where subtrees live that are not where their names say; and where this path does.
    Balance(Option<String>, oneshot::Sender<Balance>),
    /// Do something with the sites, if this server leads its own.
    Order(SiteOrder, oneshot::Sender<Result<(), String>>),
    /// Move the subtree at a path to a partition, if this server leads.
    Move(String, u8, oneshot::Sender<Result<(), String>>),
    /// Who holds the token of a path; nobody where there are no sites.
    Holder(String, oneshot::Sender<Option<Holder>>),
    /// What the partition says of the token of a path that lives there; nothing if it lives on another one.
    PathToken(String, oneshot::Sender<Option<PathToken>>),
    /// The same with all that the first partition knows.
    HolderBy(String, PathToken, oneshot::Sender<Option<Holder>>),
    /// What this site alone has, which the others have given up.
    Lost(LostAsked, oneshot::Sender<Result<LostView, String>>),
    /// Whether whoever has proved to be these has all permissions on the root.
    MayAdminister(Vec<Identity>, oneshot::Sender<bool>),
    /// The history of digests of the tree.
    Digests(oneshot::Sender<Vec<Digest>>),
    /// Begin latencies and packet counts of the server anew.
    ResetStats(oneshot::Sender<()>),
    /// Begin latencies and packet counts of every connection anew.
    ResetConnections(oneshot::Sender<()>),
    /// Take a snapshot now; answered when it is on disk.
    Snapshot(oneshot::Sender<Result<SnapshotDone, String>>),
}

impl Question {
    /// Answers the question.
    pub fn answer(self, source: &mut impl Source) {
        // A send that fails means that the asker has gone away, which is no concern of the server.
        match self {
            Question::Stats(reply) => {
                let _ = reply.send(Box::new(source.stats()));
            }
            Question::Connections(reply) => {
                let _ = reply.send(source.connections());
            }
            Question::Sessions(reply) => {
                let _ = reply.send(source.sessions());
            }
            Question::Ephemerals(sessions, reply) => {
                let _ = reply.send(source.ephemerals(&sessions));
            }
            Question::WatchSummary(reply) => {
                let _ = reply.send(source.watch_summary());
            }
            Question::Watches(reply) => {
                let _ = reply.send(source.watches());
            }
            Question::Partitions(reply) => {
                let _ = reply.send(source.partitions());
            }
            Question::Balance(path, reply) => {
                let _ = reply.send(source.balance(path.as_deref()));
            }
            Question::Move(path, to, reply) => {
                let _ = reply.send(source.move_subtree(&path, to));
            }
            Question::Order(order, reply) => source.order_sites(order, reply),
            Question::Holder(path, reply) => {
                let _ = reply.send(source.holder(&path));
            }
            Question::PathToken(path, reply) => {
                let _ = reply.send(source.path_token(&path));
            }
            Question::HolderBy(path, token, reply) => {
                let _ = reply.send(source.holder_by(&path, token));
            }
            Question::Lost(asked, reply) => source.lost(asked, reply),
            Question::MayAdminister(identities, reply) => {
                let _ = reply.send(source.may_administer(&identities));
            }
            Question::Digests(reply) => {
                let _ = reply.send(source.digests());
            }
            Question::ResetStats(reply) => {
                source.reset_stats();
                let _ = reply.send(());
            }
            Question::ResetConnections(reply) => {
                source.reset_connections();
                let _ = reply.send(());
            }
            Question::Snapshot(reply) => source.snapshot(reply),
        }
    }
}

/// Who can answer: implemented by what drives the server.
pub trait Source {
    /// Every figure of the server.
    fn stats(&self) -> Stats;
    /// Every connection.
    fn connections(&self) -> Vec<Connection>;
    /// Every session with its ephemeral znodes.
    fn sessions(&self) -> Vec<Session>;
    /// The ephemeral znodes of each of these sessions.
    fn ephemerals(&self, sessions: &[i64]) -> Vec<Vec<String>>;
    /// The watches, counted.
    fn watch_summary(&self) -> WatchSummary;
    /// The watches, in full.
    fn watches(&self) -> Vec<SessionWatches>;
    /// The partitions, and what is asked of them.
    fn partitions(&self) -> Vec<Partition>;
    /// Where subtrees live that are not where their names say; and where this path does.
    fn balance(&self, path: Option<&str>) -> Balance;
    /// Begins what is ordered of the sites, and answers then; says why not when that is not begun.
    fn order_sites(&mut self, order: SiteOrder, reply: oneshot::Sender<Result<(), String>>);
    /// Has the subtree at a path moved to a partition; says why not when that is not begun.
    fn move_subtree(&mut self, path: &str, to: u8) -> Result<(), String>;
    /// Who holds the token of a path; nobody where there are no sites.
    fn holder(&self, path: &str) -> Option<Holder> {
        self.holder_by(path, self.path_token(path)?)
    }
    /// What is said of the token of a path where that lives.
    fn path_token(&self, path: &str) -> Option<PathToken>;
    /// The same with all that the first partition knows.
    fn holder_by(&self, path: &str, token: PathToken) -> Option<Holder>;
    /// Tells what this site alone has, which the others have given up, when that is read; or why it cannot be told.
    fn lost(&mut self, asked: LostAsked, reply: oneshot::Sender<Result<LostView, String>>);
    /// Whether whoever has proved to be these has all permissions on the root.
    fn may_administer(&self, identities: &[Identity]) -> bool;
    /// The history of digests of the tree, oldest first.
    fn digests(&self) -> Vec<Digest>;
    /// Begins latencies and packet counts of the server anew.
    fn reset_stats(&mut self);
    /// Begins latencies and packet counts of every connection anew.
    fn reset_connections(&mut self);
    /// Takes a snapshot now, and answers when it is on disk (or when one cannot be taken, with why).
    fn snapshot(&mut self, reply: oneshot::Sender<Result<SnapshotDone, String>>);
}

/// A snapshot that was asked for and is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDone {
    /// The last update in it.
    pub zxid: i64,
    /// How long its file is.
    pub bytes: u64,
}

/// What has been counted of TLS of clients since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Handshakes under way.
    pub under_way: u64,
    /// Handshakes that were done.
    pub done: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Of these, those in which the client's certificate was refused, or missing.
    pub refused: u64,
    /// Connections turned away because too many handshakes were under way.
    pub exceeded: u64,
    /// Changed certificates that were taken.
    pub reloads: u64,
    /// Changed certificates that could not be used.
    pub failed_reloads: u64,
}

/// What has been counted of the certificates of TLS, between servers or of admin HTTP, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// Changed certificates that were taken.
    pub reloads: u64,
    /// Changed certificates that could not be used.
    pub failed_reloads: u64,
}

/// What has been counted of the audit log since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Events that are in the file.
    pub written: u64,
    /// Events that are not: the queue had no room, or they could not be written.
    pub dropped: u64,
}

/// Every figure of a server. Times are microseconds unless the name says otherwise, and counts go up
/// from the start of the server; those that `srst` begins anew are marked.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// What the server is.
    pub mode: Mode,
    /// Where it stands among the others.
    pub ensemble: EnsembleStatus,
    /// How its site stands among the others, if it belongs to one of several.
    pub sites: Option<SitesView>,
    /// The trees down which appends go; `None` where there cannot be any.
    pub forest: Option<ForestStatus>,
    /// The readers below it, and its parent if it is one.
    pub readers: ReadersView,
    /// How many partitions it has.
    pub partitions: u64,
    /// Since when it runs.
    pub uptime_ms: u64,
    /// The last update that was applied.
    pub zxid: i64,
    /// Znodes in the tree, those that every tree has included.
    pub znodes: u64,
    /// About how many bytes paths and data take.
    pub data_bytes: u64,
    /// Watches of every kind.
    pub watches: u64,
    /// Ephemeral znodes.
    pub ephemerals: u64,
    /// Sessions of the whole ensemble, connected or not.
    pub sessions: u64,
    /// Sessions that this server alone keeps.
    pub local_sessions: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests under way.
    pub outstanding: u64,
    /// Least latency (reset by `srst`).
    pub latency_min_us: u64,
    /// Largest latency (reset by `srst`).
    pub latency_max_us: u64,
    /// Sum of latencies (reset by `srst`).
    pub latency_sum_us: u64,
    /// Requests that the latencies are of (reset by `srst`).
    pub answered: u64,
    /// Frames received (reset by `srst`).
    pub packets_received: u64,
    /// Frames sent (reset by `srst`).
    pub packets_sent: u64,
    /// Bytes received from clients.
    pub bytes_received: u64,
    /// Bytes sent to clients.
    pub bytes_sent: u64,
    /// Size of the last, the largest and the smallest reply, if there was one (reset by `srst`).
    pub reply_bytes: Option<Sizes>,
    /// Where there are several partitions: requests for that of the client's own thread.
    pub requests_kept: u64,
    /// And those for partitions of other threads.
    pub requests_handed_over: u64,
    /// Subtrees that were moved between partitions by this server, as the leader.
    pub moves: u64,
    /// Moves that were refused.
    pub moves_refused: u64,
    /// Subtrees that do not live where their names or parents say.
    pub exceptions: u64,
    /// At the leader: what the busiest partition has to do, over the mean; 0 when there is nothing to do.
    pub imbalance: f64,
    /// Handshakes.
    pub connection_requests: u64,
    /// Those of them that brought a session.
    pub sessions_brought: u64,
    /// At the leader: sessions that other servers asked for.
    pub sessions_asked_for: u64,
    /// Connections refused by a limit.
    pub connections_rejected: u64,
    /// Connections closed by the server because of what the client did.
    pub connections_dropped: u64,
    /// Connections that did not finish their handshake in time.
    pub handshakes_expired: u64,
    /// Sessions expired.
    pub sessions_expired: u64,
    /// Authentications that failed.
    pub auth_failed: u64,
    /// TLS of clients, of the whole process.
    pub tls: Tls,
    /// TLS between servers.
    pub peer_tls: Reloads,
    /// TLS of admin HTTP.
    pub admin_tls: Reloads,
    /// Connections without TLS to admin HTTP where that has it.
    pub admin_in_the_clear: u64,
    /// The audit log, of the whole process.
    pub audit: Audit,
    /// Frames over the limit.
    pub frames_too_large: u64,
    /// The extensions that are registered.
    pub extensions: Vec<Extension>,
    /// How many acknowledgements of them there are.
    pub extension_acknowledgements: u64,
    /// Watch notifications sent.
    pub watch_events: u64,
    /// Bytes of them.
    pub watch_bytes: u64,
    /// How many watchers were told of each change.
    pub watchers: Watchers,
    /// Answers to requests whose connection had ended.
    pub stale_replies: u64,
    /// What it is to lead others, and to follow.
    pub following: Following,
    /// When the server has served.
    pub service: Service,
    /// What quotas allow and count, in the order of their names.
    pub quotas: Vec<Quota>,
    /// Containers and TTL znodes deleted when they were due.
    pub containers_deleted: u64,
    /// Requests by opcode; those that never came may be left out.
    pub ops: Vec<Op>,
    /// The log.
    pub log: Log,
    /// The snapshots.
    pub snapshots: Snapshots,
    /// How the server came up.
    pub startup: Startup,
}

/// What an extension did at this server.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// Requests carried out, and events reacted to.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those after which their session had to wait.
    pub pauses: u64,
    /// Requests refused because it had to.
    pub throttled: u64,
    /// How often it reacted to nothing for a while, because its reactions had taken too much.
    pub suspensions: u64,
    /// Events that it has not reacted to because of that, or because an update had set off as much as it may.
    pub missed: u64,
    /// Steps of all.
    pub steps: u64,
    /// Bytes allocated by all.
    pub memory_bytes: u64,
    /// How long they took.
    pub time: Histogram,
}

/// Requests of one opcode.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which.
    pub opcode: Opcode,
    /// From the arrival of a request to the writing of its reply.
    pub latency: Histogram,
    /// Replies with an error.
    pub errors: u64,
}

/// The log of a server.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The number of the last record written.
    pub position: u64,
    /// Entries written.
    pub entries: u64,
    /// Updates in them.
    pub updates: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes on disk now.
    pub bytes: u64,
    /// Entries that wait for the disk.
    pub queued: u64,
    /// Times that the log refused an entry: the disk is full or broken.
    pub refusals: u64,
    /// Time to write what is flushed together.
    pub append: Histogram,
    /// Time to flush it.
    pub fsync: Histogram,
    /// Flushes that took longer than the warning threshold.
    pub fsync_slow: u64,
    /// Updates that were flushed together; the bounds are numbers of updates, not microseconds.
    pub batch: Histogram,
}

/// The snapshots of a server.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    /// How long each took.
    pub time: Histogram,
    /// Attempts that failed.
    pub errors: u64,
    /// The last update in the newest one, if there is one.
    pub last_zxid: Option<i64>,
    /// When the newest one was finished, milliseconds since the epoch.
    pub last_wall_ms: i64,
    /// Bytes of all that are kept.
    pub bytes: u64,
    /// How far the one that is being taken is, 0 to 1.
    pub progress: Option<f64>,
}

/// How a server came up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Startup {
    /// Time from opening the data folder to serving.
    pub total_ms: u64,
    /// Time to load the snapshot.
    pub snapshot_ms: u64,
    /// Time to apply the log after it.
    pub replay_ms: u64,
    /// Updates that were applied.
    pub updates_replayed: u64,
}

/// How often values fell into ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The inclusive upper bound of each range and how often a value fell between it and the one
    /// before; bounds go up, and the last may be `u64::MAX`.
    pub buckets: Vec<(u64, u64)>,
    /// All values, added.
    pub sum: u64,
}

impl Histogram {
    /// That of a single value.
    pub fn of_one(value: u64) -> Histogram {
        let below = value.checked_sub(1).map(|below| (below, 0));
        Histogram { buckets: below.into_iter().chain([(value, 1)]).collect(), sum: value }
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Their mean, 0 if there are none.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// About the value that a share of the values (0 to 1) does not exceed, 0 if there are none.
    ///
    /// Values are whole, and taken to lie evenly within their range. Of the last range, which has no
    /// upper bound, its lower bound is all that is known.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = share * self.count() as f64;
        let (mut below, mut lower) = (0, 0);
        for &(upper, count) in &self.buckets {
            if count > 0 && (below + count) as f64 >= rank {
                if upper == u64::MAX {
                    return lower as f64;
                }
                let least = upper.min(lower + 1);
                let part = ((rank - below as f64) / count as f64).clamp(0.0, 1.0);
                return least as f64 + part * (upper - least) as f64;
            }
            below += count;
            lower = upper;
        }
        0.0
    }

    /// A bound that every value reaches: that of the lowest range with a value in it.
    pub fn min(&self) -> u64 {
        let first = self.buckets.iter().position(|(_, count)| *count > 0).unwrap_or(0);
        first.checked_sub(1).map_or(0, |below| self.buckets[below].0 + 1)
    }

    /// A bound that no value exceeds, as far as there is one.
    pub fn max(&self) -> u64 {
        let bounded = self.buckets.iter().rev().skip_while(|(_, count)| *count == 0);
        let bound = bounded.map(|(bound, _)| *bound).find(|bound| *bound != u64::MAX);
        bound.unwrap_or(0).max(self.min())
    }

    /// Adds the values of another histogram with the same ranges.
    pub fn add(&mut self, other: &Histogram) {
        if self.buckets.is_empty() {
            *self = other.clone();
            return;
        }
        assert!(
            other.buckets.is_empty() || self.buckets.len() == other.buckets.len(),
            "histograms that are added have the same ranges"
        );
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            mine.1 += theirs.1;
        }
        self.sum += other.sum;
    }
}

/// One session.
#[derive(Clone, Debug)]
pub struct Session {
    /// The session.
    pub id: i64,
    /// Its timeout.
    pub timeout_ms: u32,
    /// When it expires unless its client is heard of, milliseconds since the epoch, on the grain at
    /// which sessions expire; as far as this server knows, which need not be the one that judges.
    pub expires_ms: i64,
    /// Its ephemeral znodes.
    pub ephemerals: Vec<String>,
    /// Whether this server alone keeps it.
    pub is_local: bool,
}

/// The watches, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSummary {
    /// Sessions that watch something.
    pub sessions: u64,
    /// Paths that are watched.
    pub paths: u64,
    /// Watches: pairs of a session and a path.
    pub watches: u64,
}

/// The paths that one session watches.
#[derive(Clone, Debug)]
pub struct SessionWatches {
    /// The session.
    pub session: i64,
    /// The paths.
    pub paths: Vec<String>,
}

/// What the tree hashed to when an update had been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The update.
    pub zxid: i64,
    /// The hash.
    pub digest: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::{self, MemberRole, Settings};
    use stoa_core::{GivenSnapshot, SnapshotCounts};

    /// A server that has done a little of everything.
    pub(crate) fn stats() -> Stats {
        let latency = Histogram { buckets: vec![(250, 50), (1000, 50), (u64::MAX, 0)], sum: 30_000 };
        Stats {
            partitions: 1,
            uptime_ms: 60_000,
            zxid: 0x2a,
            znodes: 7,
            data_bytes: 512,
            watches: 3,
            ephemerals: 2,
            sessions: 2,
            connections: 2,
            outstanding: 3,
            latency_min_us: 40,
            latency_max_us: 7_900,
            latency_sum_us: 125_000,
            answered: 1_000,
            packets_received: 1_000,
            packets_sent: 1_010,
            reply_bytes: Some(Sizes { last: 20, max: 400, min: 16 }),
            connection_requests: 5,
            ops: vec![Op { opcode: Opcode::GetData, latency, errors: 4 }],
            log: Log { position: 90, bytes: 4_096, ..Log::default() },
            snapshots: Snapshots { bytes: 2_048, ..Snapshots::default() },
            ..Stats::default()
        }
    }

    const TIMELINE: Timeline = Timeline {
        mode: Mode::Leader,
        leader: Some(1),
        term: 7,
        last: 5_001,
        committed: 4_999,
        applied: 4_998,
    };

    /// The leader of three voters and an observer: the second follows it, the third lags, and the
    /// observer is away.
    pub(crate) fn leader() -> Stats {
        let up = |connected_ms, queued_bytes| LinkStatus {
            connected_ms: Some(connected_ms),
            software: Some("stoa 1.0".to_owned()),
            bytes_received: 200,
            bytes_sent: 9_000,
            messages_received: 20,
            messages_sent: 90,
            queued_bytes,
            ..LinkStatus::default()
        };
        let away = LinkStatus { last_error: Some("refused".to_owned()), ..LinkStatus::default() };
        let member = |id, votes, matched: Option<u64>, link| {
            let host = format!("zoo{id}.example");
            let lag = matched.map(|matched| 5_001 - matched);
            MemberStatus {
                id,
                belongs: true,
                votes,
                joins: false,
                has_other_disk: false,
                address: Some((host, 2888)),
                matched,
                lag,
                link,
            }
        };
        let members = vec![
            member(1, true, None, None),
            member(2, true, Some(4_999), Some(up(1_700_000_000_000, 0))),
            member(3, true, Some(1_000), Some(up(1_700_000_001_000, 4_096))),
            member(4, false, Some(0), Some(away)),
        ];
        let ensemble = EnsembleStatus {
            id: 1,
            history: Some("0123456789abcdef0123456789abcdef".to_owned()),
            missing: Vec::new(),
            leader: Some(1),
            term: 7,
            last: 5_001,
            committed: 4_999,
            applied: 4_998,
            behind: 1,
            out_of_room: false,
            takes_over: false,
            leaders_found: 3,
            snapshots_sent: 1,
            snapshots_received: 0,
            given: (
                vec![
                    GivenSnapshot {
                        to: 4,
                        by: Some(3),
                        position: Some(4_000),
                        is_there: false,
                        age_us: 1_500_000,
                    },
                    GivenSnapshot { to: 5, by: None, position: None, is_there: false, age_us: 2_000 },
                ],
                SnapshotCounts { given: 2, delegated: 5, direct: 1 },
            ),
            servers: members.iter().map(listed).collect(),
            members,
            timelines: vec![TIMELINE],
        };
        let proposal_bytes = Some(Sizes { last: 44, max: 90, min: 40 });
        let following = Following { proposals: 9, proposal_bytes, ..Following::default() };
        Stats { mode: Mode::Leader, ensemble, following, ..stats() }
    }

    fn listed(member: &MemberStatus) -> config::Member {
        let (host, peer_port) = member.address.clone().unwrap();
        let role = if member.votes { MemberRole::Participant } else { MemberRole::Observer };
        let client = Some((None, 2181));
        let id = u8::try_from(member.id).unwrap();
        config::Member { id, host, peer_port, role, client, election_port: Some(3888) }
    }

    /// The settings of one of them.
    pub(crate) fn ensemble_settings(id: u64) -> Settings {
        let server_id = Some(u8::try_from(id).unwrap());
        Settings { servers: leader().ensemble.servers, server_id, ..Settings::default() }
    }

    /// The second of the same servers, when it has lost the leader.
    pub(crate) fn looking() -> Stats {
        let Stats { mut ensemble, .. } = leader();
        (ensemble.id, ensemble.leader) = (2, None);
        ensemble.members[0].link = ensemble.members[1].link.take();
        for member in &mut ensemble.members {
            (member.matched, member.lag) = (None, None);
        }
        (ensemble.timelines[0].mode, ensemble.timelines[0].leader) = (Mode::Looking, None);
        Stats { mode: Mode::Looking, ensemble, ..stats() }
    }

    /// The leader of a site with two others.
    pub(crate) fn hub() -> Stats {
        Stats { sites: Some(SitesView::example()), ..leader() }
    }

    /// The leader of a forest.
    pub(crate) fn feeder() -> Stats {
        Stats { forest: Some(forest::example()), ..leader() }
    }

    /// And when that has lasted for a while, and it may read.
    pub(crate) fn read_only() -> Stats {
        Stats { mode: Mode::ReadOnly, ..looking() }
    }

    /// And when it follows.
    pub(crate) fn follower() -> Stats {
        let Stats { mut ensemble, .. } = looking();
        ensemble.leader = Some(1);
        (ensemble.timelines[0].mode, ensemble.timelines[0].leader) = (Mode::Follower, Some(1));
        Stats { mode: Mode::Follower, ensemble, ..stats() }
    }

    /// Answers with a server of two connections, and counts what it is asked to do.
    pub(crate) struct Example {
        pub(crate) stats: fn() -> Stats,
        pub(crate) stats_resets: usize,
        pub(crate) connection_resets: usize,
        pub(crate) snapshots: usize,
        pub(crate) moves: u64,
        /// Whether everybody has all permissions on the root.
        pub(crate) is_open: bool,
        /// The subject of the certificate whose owner has them.
        pub(crate) admins: Option<String>,
    }

    impl Default for Example {
        fn default() -> Self {
            Self {
                stats,
                stats_resets: 0,
                connection_resets: 0,
                snapshots: 0,
                moves: 0,
                is_open: true,
                admins: None,
            }
        }
    }

    pub(crate) const FIRST: i64 = 0x100_0000_0000_0001;
    pub(crate) const SECOND: i64 = 0x100_0000_0000_0002;

    impl Source for Example {
        fn order_sites(&mut self, order: SiteOrder, reply: oneshot::Sender<Result<(), String>>) {
            let is_refused = order == SiteOrder::Rejoin;
            let _ = reply.send(if is_refused { Err("not given up".to_owned()) } else { Ok(()) });
        }

        fn stats(&self) -> Stats {
            (self.stats)()
        }

        fn connections(&self) -> Vec<Connection> {
            let session = ConnectionSession {
                id: FIRST,
                timeout_ms: 30_000,
                last_op: Some(Opcode::GetData),
                last_xid: Some(9),
                last_zxid: 0x2a,
                last_reply_ms: 5_000,
                latency_last_us: 1_200,
                latency_min_us: 300,
                latency_avg_us: 1_000,
                latency_max_us: 2_500,
            };
            let connected = Connection {
                peer: "[::ffff:127.0.0.1]:4242".parse().unwrap(),
                partition: (self.stats().partitions > 1).then_some(2),
                reading: true,
                writing: false,
                outstanding: 1,
                packets_received: 10,
                packets_sent: 11,
                established_ms: 1_700_000_000_000,
                session: Some(session),
            };
            let fresh = Connection {
                peer: "[::1]:4243".parse().unwrap(),
                partition: None,
                reading: true,
                writing: true,
                outstanding: 0,
                packets_received: 1,
                packets_sent: 0,
                established_ms: 1_700_000_000_000,
                session: None,
            };
            vec![connected, fresh]
        }

        fn sessions(&self) -> Vec<Session> {
            let session = |id, expires_ms, ephemerals| {
                let (timeout_ms, is_local) = (30_000, false);
                Session { id, timeout_ms, expires_ms, ephemerals, is_local }
            };
            vec![
                session(FIRST, 1_700_000_020_000, vec!["/a".to_owned(), "/b".to_owned()]),
                session(SECOND, 1_700_000_030_000, Vec::new()),
            ]
        }

        fn ephemerals(&self, sessions: &[i64]) -> Vec<Vec<String>> {
            let all = self.sessions();
            let of = |id| all.iter().find(|session| session.id == id);
            sessions.iter().map(|id| of(*id).map_or(Vec::new(), |of| of.ephemerals.clone())).collect()
        }

        fn watch_summary(&self) -> WatchSummary {
            WatchSummary { sessions: 2, paths: 2, watches: 3 }
        }

        fn watches(&self) -> Vec<SessionWatches> {
            let watches = |session, paths: &[&str]| SessionWatches {
                session,
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            };
            vec![watches(FIRST, &["/a", "/b"]), watches(SECOND, &["/a"])]
        }

        fn partitions(&self) -> Vec<Partition> {
            let subtree =
                Subtree { path: "/hot".to_owned(), reads: 1500, writes: 200, bytes: 45_000, busy: 0.0575 };
            vec![Partition {
                number: 1,
                timeline: TIMELINE,
                znodes: 7,
                data_bytes: 99,
                connections: 2,
                requests_kept: 600,
                requests_handed_over: 400,
                reads: 1600,
                writes: 200,
                busy: 0.06,
                subtrees: vec![subtree],
            }]
        }

        fn balance(&self, path: Option<&str>) -> Balance {
            Balance::example(path, self.moves)
        }

        fn move_subtree(&mut self, path: &str, to: u8) -> Result<(), String> {
            self.moves += 1;
            if (path, to) == ("/hot", 2) { Ok(()) } else { Err("server 3 leads: ask it".to_owned()) }
        }

        fn path_token(&self, path: &str) -> Option<PathToken> {
            use stoa_core::TokenMark;
            let is_there = path == "/hot";
            let mark = TokenMark { holder: 2, at: Some("/hot".to_owned()) };
            self.stats().sites.map(|_| PathToken { mark, is_there, readers: vec![1; usize::from(is_there)] })
        }

        fn holder_by(&self, _: &str, token: PathToken) -> Option<Holder> {
            let sites = self.stats().sites?.sites;
            let name = sites.get(1).map(|site| site.name.clone());
            let usage = TokenUsage {
                since_ms: Some(1_700_000_000_000),
                uses: Some(40),
                used_ms: Some(1_700_000_060_000),
                shares: vec![(2, name.clone(), 93), (9, None, 7)],
                has_others: false,
                last: Some(9),
            };
            let is_there = token.is_there;
            let first = sites.first().map(|site| site.name.clone());
            let readers = token.readers.into_iter().map(|site| (site.into(), first.clone())).collect();
            Some(Holder {
                site: token.mark.holder.into(),
                name,
                is_there,
                readers,
                usage: is_there.then_some(usage),
            })
        }

        fn lost(&mut self, asked: LostAsked, reply: oneshot::Sender<Result<LostView, String>>) {
            let _ = reply.send(LostView::example(self.stats().sites.is_some(), asked));
        }

        fn may_administer(&self, identities: &[Identity]) -> bool {
            let is_one = |identity: &Identity| match &identity.scheme[..] {
                "super" => true,
                "x509" => self.admins.as_deref() == Some(&identity.id),
                _ => false,
            };
            self.is_open || identities.iter().any(is_one)
        }

        fn digests(&self) -> Vec<Digest> {
            vec![Digest { zxid: 0x80, digest: u64::MAX - 1 }, Digest { zxid: 0x100, digest: 12 }]
        }

        fn reset_stats(&mut self) {
            self.stats_resets += 1;
        }

        fn reset_connections(&mut self) {
            self.connection_resets += 1;
        }

        fn snapshot(&mut self, reply: oneshot::Sender<Result<SnapshotDone, String>>) {
            self.snapshots += 1;
            let _ = reply.send(Ok(SnapshotDone { zxid: 0x2a, bytes: 2_048 }));
        }
    }

    #[test]
    fn who_is_up_to_date_follows_from_lag_and_connection() {
        let EnsembleStatus { members, .. } = &leader().ensemble;
        let ensemble = leader().ensemble;
        let lags: Vec<_> = members.iter().map(|member| member.lag).collect();
        assert_eq!(lags, [None, Some(2), Some(4_001), Some(5_001)]);
        let voters = |ensemble: &EnsembleStatus| ensemble.synced(|member| member.votes);
        let observers = |ensemble: &EnsembleStatus| ensemble.synced(MemberStatus::observes);
        assert_eq!((voters(&ensemble), observers(&ensemble), ensemble.voters()), (1, 0, 3));
        // One that has everything, but is away, is not counted on.
        let mut ensemble = leader().ensemble;
        ensemble.members[3].lag = Some(0);
        assert_eq!(observers(&ensemble), 0);
        ensemble.members[3].link = ensemble.members[1].link.clone();
        assert_eq!(observers(&ensemble), 1);
        // One that is to vote is no observer.
        ensemble.members[3].joins = true;
        assert_eq!((observers(&ensemble), ensemble.synced(|member| member.joins)), (0, 1));
        ensemble.members[3].joins = false;
        // Nor is one that only the settings name.
        ensemble.members[3].belongs = false;
        assert_eq!(observers(&ensemble), 0);
    }

    #[test]
    fn quantiles_lie_within_the_range_that_holds_them() {
        let histogram =
            Histogram { buckets: vec![(1, 0), (2, 50), (4, 40), (8, 10), (u64::MAX, 0)], sum: 300 };
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.mean(), 3.0);
        assert_eq!(histogram.quantile(0.5), 2.0);
        assert_eq!(histogram.quantile(0.7), 3.5);
        assert_eq!(histogram.quantile(0.9), 4.0);
        assert_eq!(histogram.quantile(1.0), 8.0);
        assert_eq!((histogram.min(), histogram.max()), (2, 8));
    }

    #[test]
    fn a_range_without_an_upper_bound_counts_as_its_lower_one() {
        let histogram = Histogram { buckets: vec![(10, 0), (u64::MAX, 1)], sum: 99 };
        assert_eq!(histogram.quantile(0.99), 10.0);
        assert_eq!((histogram.min(), histogram.max()), (11, 11));
    }

    #[test]
    fn a_single_value_is_itself() {
        for value in [0, 1, 2, 1000] {
            let histogram = Histogram::of_one(value);
            assert_eq!((histogram.min(), histogram.max(), histogram.sum), (value, value, value));
            assert_eq!((histogram.quantile(0.5), histogram.quantile(0.999)), (value as f64, value as f64));
        }
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.min(), histogram.max()), (0, 0, 0));
        assert_eq!((histogram.mean(), histogram.quantile(0.99)), (0.0, 0.0));
    }
}
