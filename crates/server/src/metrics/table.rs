//! The table of metrics.

use stoa_core::{ForestPlace, ForestServer, ForestStatus, Lateness};
use stoa_wire::Opcode;

use super::{Metric, MetricKind, Value};
use crate::process::VERSION;
use crate::view::{
    EnsembleStatus, Extension, Histogram, LinkStatus, MemberStatus, Mode, ParentView, Quota, SiteView,
    SitesView, Sizes, Stats,
};

use MetricKind::{Counter, Gauge, Quantiles, Summary};

/// Microseconds in a millisecond, ZooKeeper's unit, and in a second, Prometheus's.
const MILLISECONDS: f64 = 1e3;
const SECONDS: f64 = 1e6;
const COUNT: f64 = 1.0;

/// The label of ZooKeeper's sets of metrics.
pub(super) const KEY: &str = "key";

macro_rules! metrics {
    ($($name:literal, $kind:expr, $help:literal, $value:expr;)+) => {
        /// Every metric there is, in the order of the documentation.
        pub const METRICS: &[Metric] =
            &[$(Metric { name: $name, help: $help, kind: $kind, value: $value }),+];
    };
}

metrics! {
    // ZooKeeper's, in the order of its `mntr`: gauges, counters, summaries, summaries with quantiles.
    "avg_latency", Gauge, "Mean time from the arrival of a request to its reply, in milliseconds.",
        |f| Value::Real(average_ms(&f.stats));
    "max_latency", Gauge, "Longest time from the arrival of a request to its reply, in milliseconds.",
        |f| Value::Whole(f.stats.latency_max_us / 1000);
    "min_latency", Gauge, "Shortest time from the arrival of a request to its reply, in milliseconds.",
        |f| Value::Whole(latency_min_us(&f.stats) / 1000);
    "packets_received", Gauge, "Frames received from clients since the start or the last srst.",
        |f| Value::Whole(f.stats.packets_received);
    "packets_sent", Gauge, "Frames sent to clients since the start or the last srst.",
        |f| Value::Whole(f.stats.packets_sent);
    "num_alive_connections", Gauge, "Open connections.", |f| Value::Whole(f.stats.connections);
    "outstanding_requests", Gauge, "Requests under way.", |f| Value::Whole(f.stats.outstanding);
    "uptime", Gauge, "Milliseconds since the start.", |f| Value::Whole(f.stats.uptime_ms);
    "znode_count", Gauge, "Znodes, those of /zookeeper included.", |f| Value::Whole(f.stats.znodes);
    "watch_count", Gauge, "Watches of every kind.", |f| Value::Whole(f.stats.watches);
    "ephemerals_count", Gauge, "Ephemeral znodes.", |f| Value::Whole(f.stats.ephemerals);
    "approximate_data_size", Gauge, "About how many bytes paths and data take.",
        |f| Value::Whole(f.stats.data_bytes);
    "global_sessions", Gauge, "Sessions of the whole ensemble, connected or not.", |f| Value::Whole(f.stats.sessions);
    "local_sessions", Gauge, "Sessions that this server alone keeps.", |f| Value::Whole(f.stats.local_sessions);
    "open_file_descriptor_count", Gauge, "Open files.", |f| Value::Whole(f.files.0);
    "max_file_descriptor_count", Gauge, "How many files may be open.", |f| Value::Whole(f.files.1);
    "connection_drop_probability", Gauge, "Always 0: no connection is refused by chance.",
        |_| Value::Real(0.0);
    "last_client_response_size", Gauge, "Bytes of the last reply; -1 before the first.",
        |f| size(f.stats.reply_bytes, |bytes| bytes.last);
    "max_client_response_size", Gauge, "Bytes of the largest reply; -1 before the first.",
        |f| size(f.stats.reply_bytes, |bytes| bytes.max);
    "min_client_response_size", Gauge, "Bytes of the smallest reply; -1 before the first.",
        |f| size(f.stats.reply_bytes, |bytes| bytes.min);
    "auth_failed_count", Gauge, "Authentications that failed. ZooKeeper counts those with certificates alone.",
        |f| Value::Whole(f.stats.auth_failed + f.stats.tls.refused);
    "outstanding_tls_handshake", Gauge, "TLS handshakes of clients under way.",
        |f| Value::Whole(f.stats.tls.under_way);
    "quorum_size", Gauge, "Servers of the ensemble that have a vote; absent on a server that stands alone.",
        |f| of_ensemble(&f.stats, |ensemble| Value::Whole(ensemble.voters()));
    "learners", Gauge, "At the leader: servers that are connected to it, voters and observers.",
        |f| at_leader(&f.stats, |stats| connected(&stats.ensemble, |_| true));
    "followers", Gauge, "At the leader: voters that are connected to it. ZooKeeper had it up to 3.4.",
        |f| at_leader(&f.stats, |stats| connected(&stats.ensemble, |member| member.votes));
    "synced_followers", Gauge, "At the leader: voters that are connected to it and lack at most 1000 entries.",
        |f| at_leader(&f.stats, |stats| Value::Whole(stats.ensemble.synced(|member| member.votes)));
    "synced_non_voting_followers", Gauge, "At the leader: the same of those who are to have a vote by the list of servers, and have none yet.",
        |f| at_leader(&f.stats, |stats| Value::Whole(stats.ensemble.synced(|member| member.joins)));
    "synced_observers", Gauge, "At the leader: observers that are connected to it and lack at most 1000 entries. At a follower 0: observers follow the leader.",
        |f| synced_observers(&f.stats);
    "pending_syncs", Gauge, "At the leader: questions of all servers, for the syncs and linearizable reads of their clients, that it has not answered yet.",
        |f| at_leader(&f.stats, |stats| Value::Whole(stats.following.pending_syncs));
    "leader_uptime", Gauge, "At the leader: milliseconds since it has led.",
        |f| at_leader(&f.stats, |stats| Value::Whole(stats.service.led_ms.unwrap_or(0)));
    "last_proposal_size", Gauge, "At the leader: bytes of the last update that it has proposed; -1 before the first.",
        |f| at_leader(&f.stats, |stats| size(stats.following.proposal_bytes, |bytes| bytes.last));
    "max_proposal_size", Gauge, "At the leader: bytes of the largest update that it has proposed; -1 before the first.",
        |f| at_leader(&f.stats, |stats| size(stats.following.proposal_bytes, |bytes| bytes.max));
    "min_proposal_size", Gauge, "At the leader: bytes of the smallest update that it has proposed; -1 before the first.",
        |f| at_leader(&f.stats, |stats| size(stats.following.proposal_bytes, |bytes| bytes.min));
    "quota_count_limit_per_namespace", Gauge, "How many znodes quotas allow, those of one subtree right below the root added; -1 for no limit.",
        |f| by_namespace(&f.stats, |quota| Value::Signed(quota.count_limit));
    "quota_bytes_limit_per_namespace", Gauge, "How many bytes quotas allow, in the same way.",
        |f| by_namespace(&f.stats, |quota| Value::Signed(quota.bytes_limit));
    "quota_count_usage_per_namespace", Gauge, "Znodes that these quotas count.",
        |f| by_namespace(&f.stats, |quota| Value::Signed(quota.count));
    "quota_bytes_usage_per_namespace", Gauge, "Bytes that these quotas count.",
        |f| by_namespace(&f.stats, |quota| Value::Signed(quota.bytes));

    "connection_request_count", Counter, "Handshakes.", |f| Value::Whole(f.stats.connection_requests);
    "connection_revalidate_count", Counter, "Handshakes that brought a session.",
        |f| Value::Whole(f.stats.sessions_brought);
    "revalidate_count", Counter, "At the leader: sessions that other servers asked for, because clients had brought them.",
        |f| Value::Whole(f.stats.sessions_asked_for);
    "connection_rejected", Counter, "Connections refused by a limit.",
        |f| Value::Whole(f.stats.connections_rejected);
    "connection_drop_count", Counter, "Connections closed because of what the client did.",
        |f| Value::Whole(f.stats.connections_dropped);
    "sessionless_connections_expired", Counter, "Connections closed for not finishing their handshake in time.",
        |f| Value::Whole(f.stats.handshakes_expired);
    "stale_sessions_expired", Counter, "Sessions that expired.", |f| Value::Whole(f.stats.sessions_expired);
    "stale_replies", Counter, "Answers to requests whose connection had ended meanwhile.",
        |f| Value::Whole(f.stats.stale_replies);
    "bytes_received_count", Counter, "Bytes received from clients.",
        |f| Value::Whole(f.stats.bytes_received);
    "response_bytes", Counter, "Bytes sent to clients, watch events included.",
        |f| Value::Whole(f.stats.bytes_sent);
    "watch_bytes", Counter, "Bytes of watch events, the lengths before them left out.", |f| Value::Whole(f.stats.watch_bytes);
    "insecure_admin_count", Counter, "Connections to admin HTTP without TLS, where it has TLS.",
        |f| Value::Whole(f.stats.admin_in_the_clear);
    "tls_handshake_exceeded", Counter, "Connections turned away because too many TLS handshakes were under way.",
        |f| Value::Whole(f.stats.tls.exceeded);
    "unsuccessful_handshake", Counter, "TLS handshakes of clients that failed.",
        |f| Value::Whole(f.stats.tls.failed);
    "large_requests_rejected", Counter, "Requests longer than max-request-bytes.",
        |f| Value::Whole(f.stats.frames_too_large);
    "looking_count", Counter, "Times that the server, or one of its partitions, has begun to look for a leader.",
        |f| Value::Whole(f.stats.service.looking);
    "proposal_count", Counter, "Updates that this server has proposed as the leader of others. ZooKeeper counts requests that fail as well.",
        |f| Value::Whole(f.stats.following.proposals);
    "commit_count", Counter, "Updates that this server has applied as the leader of others.",
        |f| Value::Whole(f.stats.following.led_updates);
    "learner_commit_received_count", Counter, "Updates that this server has applied while another one led, or none yet.",
        |f| Value::Whole(f.stats.following.followed_updates);
    "snap_count", Counter, "Snapshots sent to servers that were too far behind for entries.",
        |f| Value::Whole(f.stats.ensemble.snapshots_sent);
    "snapshot_error_count", Counter, "Snapshots that could not be taken.",
        |f| Value::Whole(f.stats.snapshots.errors);
    "unrecoverable_error_count", Counter, "Always 0: a server that cannot go on ends.", |_| Value::Whole(0);
    "ensemble_auth_success", Counter, "Always 0, as the next two: clients are not asked for the ensemble's name.",
        |_| Value::Whole(0);
    "ensemble_auth_fail", Counter, "Always 0.", |_| Value::Whole(0);
    "ensemble_auth_skip", Counter, "Always 0.", |_| Value::Whole(0);
    "quota_exceeded_error_per_namespace", Counter, "Changes that hard quotas have refused at this server, of one subtree right below the root; gone with its quotas.",
        |f| by_namespace(&f.stats, |quota| Value::Whole(quota.refused));

    "fsynctime", Summary, "Time to flush the log to disk, in milliseconds.",
        |f| Value::Spread(f.stats.log.fsync.clone(), MILLISECONDS);
    "sync_processor_batch_size", Summary, "Log entries that were flushed together.",
        |f| Value::Spread(f.stats.log.batch.clone(), COUNT);
    "snapshottime", Summary, "Time to take a snapshot, in milliseconds.",
        |f| Value::Spread(f.stats.snapshots.time.clone(), MILLISECONDS);
    "dbinittime", Summary, "Time from opening the data folder to serving, in milliseconds.",
        |f| Value::Spread(Histogram::of_one(f.stats.startup.total_ms), COUNT);
    "startup_snap_load_time", Summary, "Time to load the snapshot at the start, in milliseconds.",
        |f| Value::Spread(Histogram::of_one(f.stats.startup.snapshot_ms), COUNT);
    "startup_txns_load_time", Summary, "Time to apply the log after the snapshot at the start, in milliseconds.",
        |f| Value::Spread(Histogram::of_one(f.stats.startup.replay_ms), COUNT);
    "startup_txns_loaded", Summary, "Updates of the log that were applied at the start.",
        |f| Value::Spread(Histogram::of_one(f.stats.startup.updates_replayed), COUNT);
    "election_time", Summary, "At a voter: time without a leader until one was found, in milliseconds; 0 when another one was followed at once.",
        |f| Value::Spread(f.stats.service.election.clone(), MILLISECONDS);
    "follower_sync_time", Summary, "At a follower: time from the finding of a leader until all was applied that had been committed before, in milliseconds.",
        |f| Value::Spread(f.stats.service.follower_sync.clone(), MILLISECONDS);
    "observer_sync_time", Summary, "The same at an observer.",
        |f| Value::Spread(f.stats.service.observer_sync.clone(), MILLISECONDS);
    "unavailable_time", Summary, "Time that a server of an ensemble did not serve everything, until it did again, in milliseconds.",
        |f| Value::Spread(f.stats.service.unavailable.clone(), MILLISECONDS);
    "leader_unavailable_time", Summary, "The same where it leads from then on.",
        |f| Value::Spread(f.stats.service.leader_unavailable.clone(), MILLISECONDS);
    "node_created_watch_count", Summary, "Watchers that were told of the creation of a znode, where there were any.",
        |f| Value::Spread(f.stats.watchers.created.clone(), COUNT);
    "node_deleted_watch_count", Summary, "The same of a deletion.",
        |f| Value::Spread(f.stats.watchers.deleted.clone(), COUNT);
    "node_changed_watch_count", Summary, "The same of a change of data.",
        |f| Value::Spread(f.stats.watchers.changed.clone(), COUNT);
    "node_children_watch_count", Summary, "The same of a change of a list of children.",
        |f| Value::Spread(f.stats.watchers.children.clone(), COUNT);

    "readlatency", Quantiles, "Time from the arrival of a request that changes nothing to its reply, in milliseconds.",
        |f| Value::Spread(latency(&f.stats, false), MILLISECONDS);
    "updatelatency", Quantiles, "Time from the arrival of a request that changes something to its reply, in milliseconds.",
        |f| Value::Spread(latency(&f.stats, true), MILLISECONDS);
    "propagation_latency", Quantiles, "From the preparing of an update, by the leader's clock, until it was applied here, by this server's, in milliseconds.",
        |f| Value::Spread(f.stats.following.propagation.clone(), MILLISECONDS);
    "quorum_ack_latency", Quantiles, "At the leader: from the proposal of an entry, which holds the updates of one turn, until a majority has it, in milliseconds.",
        |f| Value::Spread(f.stats.following.agreement.clone(), MILLISECONDS);
    "jvm_pause_time_ms", Quantiles, "Always empty: there is no JVM that could pause.",
        |_| Value::Spread(Histogram::default(), COUNT);

    "stoa_tls_handshakes_total", Counter, "TLS handshakes of clients that were done.",
        |f| Value::Whole(f.stats.tls.done);
    "stoa_tls_reloads_total", Counter, "Changed certificates of TLS for clients that were taken without a restart.",
        |f| Value::Whole(f.stats.tls.reloads);
    "stoa_tls_failed_reloads_total", Counter, "Changed certificates of TLS for clients that could not be used; those before went on.",
        |f| Value::Whole(f.stats.tls.failed_reloads);
    "stoa_peer_tls_reloads_total", Counter, "Changed certificates of TLS between servers that were taken without a restart.",
        |f| Value::Whole(f.stats.peer_tls.reloads);
    "stoa_peer_tls_failed_reloads_total", Counter, "Changed certificates of TLS between servers that could not be used; those before went on.",
        |f| Value::Whole(f.stats.peer_tls.failed_reloads);
    "stoa_admin_tls_reloads_total", Counter, "Changed certificates of TLS of admin HTTP that were taken without a restart.",
        |f| Value::Whole(f.stats.admin_tls.reloads);
    "stoa_admin_tls_failed_reloads_total", Counter, "Changed certificates of TLS of admin HTTP that could not be used; those before went on.",
        |f| Value::Whole(f.stats.admin_tls.failed_reloads);
    "stoa_audit_events_total", Counter, "Events that were written to the audit log.",
        |f| Value::Whole(f.stats.audit.written);
    "stoa_audit_dropped_total", Counter, "Events that are missing in the audit log: too many waited, or they could not be written.",
        |f| Value::Whole(f.stats.audit.dropped);
    "stoa_build_info", Gauge, "Always 1; the version is in the label.",
        |_| Value::Label("version", VERSION.to_owned());
    "stoa_partitions", Gauge, "Partitions, each with a thread of its own.", |f| Value::Whole(f.stats.partitions);
    "stoa_partitions_led", Gauge, "Partitions that this server leads: all or none but for a moment; absent with one partition.",
        |f| of_several(&f.stats, f.stats.ensemble.led());
    "stoa_requests_kept_total", Counter, "Requests for the partition of the client's own thread; absent with one partition.",
        |f| of_several(&f.stats, f.stats.requests_kept);
    "stoa_requests_handed_over_total", Counter, "Requests for the partitions of other threads; absent with one partition.",
        |f| of_several(&f.stats, f.stats.requests_handed_over);
    "stoa_subtree_moves_total", Counter, "Subtrees that this server has moved between partitions as the leader; absent with one partition.",
        |f| of_several(&f.stats, f.stats.moves);
    "stoa_subtree_moves_refused_total", Counter, "Such moves that were refused; absent with one partition.",
        |f| of_several(&f.stats, f.stats.moves_refused);
    "stoa_placement_exceptions", Gauge, "Subtrees that do not live where their names or parents say; absent with one partition.",
        |f| of_several(&f.stats, f.stats.exceptions);
    "stoa_load_imbalance", Gauge, "At the leader: what the busiest partition has to do, over the mean; 0 when there is nothing to do, absent with one partition.",
        |f| if f.stats.partitions > 1 { Value::Real(f.stats.imbalance) } else { Value::Absent };
    "stoa_request_seconds", MetricKind::Histogram, "Time from the arrival of a request to its reply, by operation.",
        |f| by_operation(&f.stats, |op| Value::Spread(op.latency.clone(), SECONDS));
    "stoa_request_errors_total", Counter, "Replies with an error, by operation.",
        |f| by_operation(&f.stats, |op| Value::Whole(op.errors));
    "stoa_watch_events_total", Counter, "Watch events sent.", |f| Value::Whole(f.stats.watch_events);
    "stoa_extensions", Gauge, "Extensions that are registered.", |f| Value::Whole(f.stats.extensions.len() as u64);
    "stoa_extension_acknowledgements", Gauge, "Acknowledgements of extensions.",
        |f| Value::Whole(f.stats.extension_acknowledgements);
    "stoa_extension_calls_total", Counter, "Calls of each extension at this server: requests carried out, events reacted to.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.calls));
    "stoa_extension_failures_total", Counter, "Those of them that failed, and had no effect.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.failures));
    "stoa_extension_pauses_total", Counter, "Those of them after which their session had to wait, for they took more than half of their steps.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.pauses));
    "stoa_extension_throttled_total", Counter, "Requests for each extension that were refused because their session had to wait.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.throttled));
    "stoa_extension_suspensions_total", Counter, "How often each extension reacted to nothing for a while, for its reactions had taken too many steps.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.suspensions));
    "stoa_extension_missed_events_total", Counter, "Events that it did not react to because of that, or because an update had set off as much as it may.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.missed));
    "stoa_extension_steps_total", Counter, "Steps that they took.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.steps));
    "stoa_extension_allocated_bytes_total", Counter, "Bytes that they allocated.",
        |f| by_extension(&f.stats, |extension| Value::Whole(extension.memory_bytes));
    "stoa_extension_call_seconds", MetricKind::Histogram, "How long they took, of the thread that prepares requests.",
        |f| by_extension(&f.stats, |extension| Value::Spread(extension.time.clone(), SECONDS));
    "stoa_containers_deleted_total", Counter, "Container and TTL znodes deleted when they were due.",
        |f| Value::Whole(f.stats.containers_deleted);
    "stoa_log_append_seconds", MetricKind::Histogram, "Time to write what is stored together to the log, with its flush.",
        |f| Value::Spread(f.stats.log.append.clone(), SECONDS);
    "stoa_log_fsync_seconds", MetricKind::Histogram, "Time to flush the log to disk.",
        |f| Value::Spread(f.stats.log.fsync.clone(), SECONDS);
    "stoa_log_batch_entries", MetricKind::Histogram, "Log entries that were flushed together.",
        |f| Value::Spread(f.stats.log.batch.clone(), COUNT);
    "stoa_log_slow_fsyncs_total", Counter, "Flushes of the log slower than fsync-warning.",
        |f| Value::Whole(f.stats.log.fsync_slow);
    "stoa_log_position", Gauge, "The number of the last record of the log that is on disk.",
        |f| Value::Whole(f.stats.log.position);
    "stoa_log_entries_total", Counter, "Entries handed to the log; each holds the updates of one turn.",
        |f| Value::Whole(f.stats.log.entries);
    "stoa_log_updates_total", Counter, "Updates handed to the log.", |f| Value::Whole(f.stats.log.updates);
    "stoa_log_written_bytes_total", Counter, "Bytes handed to the log.",
        |f| Value::Whole(f.stats.log.bytes_written);
    "stoa_log_bytes", Gauge, "Bytes of the log on disk.", |f| Value::Whole(f.stats.log.bytes);
    "stoa_log_queued_entries", Gauge, "Entries that wait for the disk.", |f| Value::Whole(f.stats.log.queued);
    "stoa_log_refusals_total", Counter, "Times that the log refused an entry because the disk is full.",
        |f| Value::Whole(f.stats.log.refusals);
    "stoa_snapshot_progress", Gauge, "How far the snapshot is that is being taken, 0 to 1; absent while none is.",
        |f| f.stats.snapshots.progress.map_or(Value::Absent, Value::Real);
    "stoa_snapshot_bytes", Gauge, "Bytes of the snapshots that are kept.", |f| Value::Whole(f.stats.snapshots.bytes);
    "stoa_snapshot_zxid", Gauge, "The last update in the newest snapshot; absent before the first.",
        |f| f.stats.snapshots.last_zxid.map_or(Value::Absent, |zxid| Value::Whole(zxid.cast_unsigned()));
    "stoa_snapshot_timestamp_seconds", Gauge, "When the newest snapshot was finished; absent before the first.",
        |f| match f.stats.snapshots.last_wall_ms {
            0 => Value::Absent,
            ms => Value::Real(ms as f64 / 1e3),
        };
    "stoa_zxid", Gauge, "The last update that was applied.", |f| Value::Whole(f.stats.zxid.cast_unsigned());
    "stoa_server_id", Gauge, "The server's own number.", |f| Value::Whole(f.stats.ensemble.id);
    "stoa_role", Gauge, "1 for what the server is (leader, follower, observer, standalone, read-only, looking), 0 for the rest.",
        |f| Value::Each("role", Mode::ALL.iter().map(|mode| role(*mode, f.stats.mode)).collect());
    "stoa_in_quorum", Gauge, "1 when the server takes part in its ensemble or stands alone, 0 when it looks for a leader.",
        |f| Value::Whole(f.stats.mode.is_in_quorum().into());
    "stoa_leader_id", Gauge, "Who leads; absent when that is not known, be it of one partition.",
        |f| f.stats.ensemble.leader.map_or(Value::Absent, Value::Whole);
    "stoa_leaders_found_total", Counter, "Times that a leader was found, be it the one before or the server itself; of the partition that has found most.",
        |f| Value::Whole(f.stats.ensemble.leaders_found);
    "stoa_term", Gauge, "The term of the first partition; every election that anybody calls begins a new one, and a server that decides alone skips some when it starts.",
        |f| Value::Whole(f.stats.ensemble.term);
    "stoa_timeline_last", Gauge, "Position of the last entry on the timeline here, durable or not; those of all partitions, added, as the next two.",
        |f| Value::Whole(f.stats.ensemble.last);
    "stoa_timeline_committed", Gauge, "Position up to which entries are committed, as far as the server knows: a follower learns it with the entries.",
        |f| Value::Whole(f.stats.ensemble.committed);
    "stoa_timeline_applied", Gauge, "Position of the last applied entry.",
        |f| Value::Whole(f.stats.ensemble.applied);
    "stoa_member_lag_entries", Gauge, "At the leader: entries of the log that another server is not known to have, by server; some are always on their way.",
        |f| by_member(&f.stats.ensemble, |member| member.lag);
    "stoa_peer_connected", Gauge, "1 when another server is connected with all partitions, 0 when it is not, by server.",
        |f| by_peer(&f.stats, |link| link.connected_ms.is_some().into());
    "stoa_peer_received_bytes_total", Counter, "Bytes received from another server, snapshots left out.",
        |f| by_peer(&f.stats, |link| link.bytes_received);
    "stoa_peer_sent_bytes_total", Counter, "Bytes sent to another server, snapshots left out.",
        |f| by_peer(&f.stats, |link| link.bytes_sent);
    "stoa_peer_received_messages_total", Counter, "Messages received from another server.",
        |f| by_peer(&f.stats, |link| link.messages_received);
    "stoa_peer_sent_messages_total", Counter, "Messages for another server.",
        |f| by_peer(&f.stats, |link| link.messages_sent);
    "stoa_peer_queued_bytes", Gauge, "Bytes that wait to be sent to another server.",
        |f| by_peer(&f.stats, |link| link.queued_bytes);
    "stoa_snapshots_received_total", Counter, "Snapshots that have come from other servers; absent on a server that stands alone.",
        |f| of_ensemble(&f.stats, |ensemble| Value::Whole(ensemble.snapshots_received));
    "stoa_snapshots_given_total", Counter, "Snapshots that the server has given members in the place of the leader; absent on a server that stands alone, as the next two.",
        |f| of_ensemble(&f.stats, |ensemble| Value::Whole(ensemble.given.1.given));
    "stoa_snapshots_delegated_total", Counter, "Snapshots that members have taken over from other servers that gave them in this one's place, as it led.",
        |f| of_ensemble(&f.stats, |ensemble| Value::Whole(ensemble.given.1.delegated));
    "stoa_snapshots_under_way", Gauge, "Snapshots for members that the server sends, or as the leader has others give.",
        |f| of_ensemble(&f.stats, |ensemble| Value::Whole(ensemble.given.0.len() as u64));
    "stoa_site_connected", Gauge, "At a leader: 1 when the leader of another site is connected, 0 when it is not, by site; that of the hub alone elsewhere.",
        |f| by_site(&f.stats, |site| site.connected.map(|is| Value::Whole(is.into())));
    "stoa_site_round_trip_seconds", Gauge, "At a leader: how long it takes to that leader and back; the last time that it was tried.",
        |f| by_site(&f.stats, |site| site.round_trip_us.map(|us| Value::Real(us as f64 / SECONDS)));
    "stoa_site_unshipped_entries", Gauge, "At a leader: entries of the log that concern another site, and that it has not acknowledged; some are always on their way. While it is away these are all that may concern it.",
        |f| by_site(&f.stats, |site| site.unshipped.map(|of| Value::Whole(of.entries)));
    "stoa_site_unshipped_bytes", Gauge, "Their bytes.",
        |f| by_site(&f.stats, |site| site.unshipped.map(|of| Value::Whole(of.bytes)));
    "stoa_site_unshipped_seconds", Gauge, "For how long the oldest of them waits; 0 if there is none.",
        |f| by_site(&f.stats, |site| site.unshipped.map(|of| Value::Real(of.age_us as f64 / SECONDS)));
    "stoa_site_imported_position", Gauge, "Up to which position of its own log everything of another site is here.",
        |f| by_site(&f.stats, |site| site.imported.map(Value::Whole));
    "stoa_site_lost_behind_zxid", Gauge, "Of a site that was given up: the zxid of the last of its updates that the others had then, 0 of none; what it has made behind that is lost. Of a site with several partitions the largest.",
        |f| by_site(&f.stats, |site| site.kept.as_ref().map(|kept| Value::Whole(kept.largest().cast_unsigned())));
    "stoa_site_lost_updates", Gauge, "Where the server's own site was given up: how many of its updates the others do not have; absent before that is known, and everywhere else.",
        |f| f.stats.sites.as_ref().and_then(|sites| sites.lost_updates).map_or(Value::Absent, Value::Whole);
    "stoa_forwarded_requests", Gauge, "Requests of this site's clients that wait for another site; absent where there are no sites, as all that follow up to the tokens.",
        |f| of_sites(&f.stats, |sites| sites.waiting);
    "stoa_held_answers", Gauge, "Answers of this server's clients that wait until another site has what they are about, as `two-sites` lines say.",
        |f| of_sites(&f.stats, |sites| sites.held);
    "stoa_site_reign", Gauge, "How many hubs there have been, as this site knows; 0 before it has joined.",
        |f| of_sites(&f.stats, |sites| sites.reign);
    "stoa_site_lease_seconds", Gauge, "At the hub's leader, with `site-automatic-promotion` and three sites or more: for how long it may still write if it hears of no other site any more; 0 when it may not.",
        |f| remaining(&f.stats, |sites| sites.lease_us);
    "stoa_site_bound_seconds", Gauge, "At the leader of another site, there: for how long it would not follow who takes the hub's place; 0 when it misses the hub.",
        |f| remaining(&f.stats, |sites| sites.bound_us);
    "stoa_site_feature_level", Gauge, "The feature level that the sites use; 0 before this one has joined.",
        |f| of_sites(&f.stats, |sites| sites.level.into());
    "stoa_site_feature_level_newest", Gauge, "Up to which feature level all servers of a site read, by site, as far as this server knows: of other sites at leaders.",
        |f| by_site(&f.stats, |site| site.level_newest.map(|level| Value::Whole(level.into())));
    "stoa_writes_local_total", Counter, "At a leader: requests of its site's clients that were prepared there.",
        |f| of_sites(&f.stats, |sites| sites.counts.writes_local);
    "stoa_writes_forwarded_total", Counter, "At a leader: those that have gone to the hub.",
        |f| of_sites(&f.stats, |sites| sites.counts.writes_forwarded);
    "stoa_token_grants_total", Counter, "At a leader: tokens that it has given to another site; away from the hub, those that it has given back.",
        |f| of_sites(&f.stats, |sites| sites.counts.grants);
    "stoa_token_recalls_total", Counter, "At the hub's leader: tokens that it wanted back.",
        |f| of_sites(&f.stats, |sites| sites.counts.recalls);
    "stoa_token_visits_total", Counter, "At the hub's leader: requests that it has sent to the home of the ephemeral that they are about.",
        |f| of_sites(&f.stats, |sites| sites.counts.visits);
    "stoa_forest_trees", Gauge, "Trees down which appends go, as the server knows; absent while there are none, as all about them.",
        |f| of_forest(&f.stats, |forest| Some(forest.trees.len() as u64));
    "stoa_forest_fed_servers", Gauge, "At the leader: servers that appends reach by others alone.",
        |f| of_forest(&f.stats, |forest| count_at_leader(forest, |server| server.is_fed == Some(true)));
    "stoa_forest_aside_servers", Gauge, "At the leader: servers that pass on nothing, since they are away, were silent or have just come.",
        |f| of_forest(&f.stats, |forest| count_at_leader(forest, |server| server.place == ForestPlace::Aside));
    "stoa_forest_late_seconds", Gauge, "At the leader: since when the first append was spread that another server is not known to have, by server; of the last seconds at least, and 0 if it has all.",
        |f| late(&f.stats, |late| Value::Real(late.age_us as f64 / SECONDS));
    "stoa_forest_late_bytes", Gauge, "At the leader: bytes of the appends that another server is not known to have, by server; of the last seconds at least.",
        |f| late(&f.stats, |late| Value::Whole(late.bytes));
    "stoa_forest_sent_frames_total", Counter, "Frames that the server has sent down trees: its own as the leader, or passed on.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.frames_sent));
    "stoa_forest_sent_bytes_total", Counter, "Their bytes.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.bytes_sent));
    "stoa_forest_received_frames_total", Counter, "Frames that have come down trees.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.frames_received));
    "stoa_forest_received_bytes_total", Counter, "Their bytes.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.bytes_received));
    "stoa_forest_pulls_sent_total", Counter, "Questions to other servers for appends that had not come.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.pulls_sent));
    "stoa_forest_pulls_answered_total", Counter, "Answers to such questions of others.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.pulls_answered));
    "stoa_forest_complaints_sent_total", Counter, "Times that the server has told the leader that nothing comes down a tree.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.complaints_sent));
    "stoa_forest_complaints_received_total", Counter, "Times that the server was told so as the leader.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.complaints_received));
    "stoa_forest_repairs_total", Counter, "Times that the server has changed the trees as the leader.",
        |f| of_forest(&f.stats, |forest| Some(forest.counts.repairs));
    "stoa_readers", Gauge, "Readers below this server.",
        |f| Value::Whole(f.stats.readers.readers.len() as u64);
    "stoa_all_readers", Gauge, "Readers below this server and below those.",
        |f| Value::Whole(f.stats.readers.all.len() as u64 + f.stats.readers.left_out);
    "stoa_lagging_readers", Gauge, "Those of them that are being sent a snapshot, or have not taken more than a MiB of what they were given.",
        |f| Value::Whole(f.stats.readers.lagging);
    "stoa_older_readers", Gauge, "Readers below this server whose release does not read the highest feature level that this one does.",
        |f| Value::Whole(f.stats.readers.older);
    "stoa_readers_refused_total", Counter, "Connections of readers that were not let in.",
        |f| Value::Whole(f.stats.readers.refused);
    "stoa_reader_is_attached", Gauge, "At a reader: 1 while it has a parent with a way to the ensemble, else 0. Absent elsewhere, as the next three.",
        |f| at_reader(&f.stats, |parent| parent.member.is_some().into());
    "stoa_reader_behind_entries", Gauge, "At a reader: entries of the log that are committed as far as its parent knew, and not applied here.",
        |f| at_reader(&f.stats, |parent| parent.behind);
    "stoa_reader_distance", Gauge, "At a reader: how many servers are between it and the ensemble, its parent counted; 0 while there is no way.",
        |f| at_reader(&f.stats, |parent| parent.distance);
    "stoa_reader_parents_found_total", Counter, "At a reader: how often it has come to a parent.",
        |f| at_reader(&f.stats, |parent| parent.parents_found);
    "process_resident_memory_bytes", Gauge, "Memory of the process.",
        |f| Value::Whole(f.memory.resident);
    "process_virtual_memory_bytes", Gauge, "Addresses that the process has taken.",
        |f| Value::Whole(f.memory.taken);
    "process_start_time_seconds", Gauge, "When the process was started, in seconds since 1970.",
        |f| f.started_seconds.map_or(Value::Absent, Value::Real);
    "process_cpu_seconds_total", Counter, "Processor time that the process has used.",
        |f| Value::Real(f.processor_seconds);
    "process_open_fds", Gauge, "Open files.", |f| Value::Whole(f.files.0);
    "process_max_fds", Gauge, "How many files may be open.", |f| Value::Whole(f.files.1);
}

/// Least latency, 0 before the first request.
pub(crate) fn latency_min_us(stats: &Stats) -> u64 {
    if stats.answered == 0 { 0 } else { stats.latency_min_us }
}

/// Mean latency in milliseconds, with four places as ZooKeeper gives it.
pub(crate) fn average_ms(stats: &Stats) -> f64 {
    match stats.answered {
        0 => 0.0,
        answered => (stats.latency_sum_us as f64 / answered as f64 * 10.0).round() / 1e4,
    }
}

fn size(sizes: Option<Sizes>, which: impl Fn(Sizes) -> u64) -> Value {
    sizes.map_or(Value::Signed(-1), |sizes| Value::Whole(which(sizes)))
}

fn by_operation(stats: &Stats, value: impl Fn(&crate::view::Op) -> Value) -> Value {
    let seen = stats.ops.iter().filter(|op| op.latency.count() + op.errors > 0);
    Value::Each("op", seen.map(|op| (op.opcode.name().to_owned(), value(op))).collect())
}

fn by_extension(stats: &Stats, value: impl Fn(&Extension) -> Value) -> Value {
    let values = stats.extensions.iter().map(|it| (escaped(&it.name), value(it)));
    Value::Each("extension", values.collect())
}

/// By the name right below the root, under ZooKeeper's label.
fn by_namespace(stats: &Stats, value: impl Fn(&Quota) -> Value) -> Value {
    let values = stats.quotas.iter().map(|quota| (escaped(&quota.namespace), value(quota)));
    Value::Each(KEY, values.collect())
}

/// A name that clients have chosen, as the value of a label.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Something that only a server has that does not stand alone.
fn of_ensemble(stats: &Stats, value: impl Fn(&EnsembleStatus) -> Value) -> Value {
    if stats.mode == Mode::Standalone { Value::Absent } else { value(&stats.ensemble) }
}

/// Something that only a server with several partitions has.
fn of_several(stats: &Stats, count: u64) -> Value {
    if stats.partitions > 1 { Value::Whole(count) } else { Value::Absent }
}

fn at_leader(stats: &Stats, value: impl Fn(&Stats) -> Value) -> Value {
    if stats.mode == Mode::Leader { value(stats) } else { Value::Absent }
}

fn connected(ensemble: &EnsembleStatus, which: impl Fn(&MemberStatus) -> bool) -> Value {
    let connected = ensemble.members.iter().filter(|member| member.is_connected() && which(member));
    Value::Whole(connected.count() as u64)
}

fn synced_observers(stats: &Stats) -> Value {
    match stats.mode {
        Mode::Leader => Value::Whole(stats.ensemble.synced(MemberStatus::observes)),
        Mode::Follower => Value::Whole(0),
        _ => Value::Absent,
    }
}

fn role(mode: Mode, of_server: Mode) -> (String, Value) {
    (mode.name().to_owned(), Value::Whole((mode == of_server).into()))
}

/// A number for each of the others of whom there is one.
fn by_member(ensemble: &EnsembleStatus, number: impl Fn(&MemberStatus) -> Option<u64>) -> Value {
    let numbers = ensemble.members.iter().filter_map(|member| Some((member.id, number(member)?)));
    let values: Vec<_> = numbers.map(|(id, number)| (id.to_string(), Value::Whole(number))).collect();
    if values.is_empty() { Value::Absent } else { Value::Each("server", values) }
}

fn by_peer(stats: &Stats, number: impl Fn(&LinkStatus) -> u64) -> Value {
    by_member(&stats.ensemble, |member| member.link.as_ref().map(&number))
}

/// A value for each of the sites of which there is one.
fn by_site(stats: &Stats, value: impl Fn(&SiteView) -> Option<Value>) -> Value {
    let sites = stats.sites.iter().flat_map(|sites| &sites.sites);
    let values: Vec<_> = sites.filter_map(|site| Some((escaped(&site.name), value(site)?))).collect();
    if values.is_empty() { Value::Absent } else { Value::Each("site", values) }
}

/// Something that only a reader has.
fn at_reader(stats: &Stats, number: impl Fn(&ParentView) -> u64) -> Value {
    stats.readers.parent.as_ref().map_or(Value::Absent, |parent| Value::Whole(number(parent)))
}

/// Something that only a server has that belongs to one of several sites.
fn of_sites(stats: &Stats, number: impl Fn(&SitesView) -> u64) -> Value {
    stats.sites.as_ref().map_or(Value::Absent, |sites| Value::Whole(number(sites)))
}

/// Something that there is only where appends go down trees.
fn of_forest(stats: &Stats, number: impl Fn(&ForestStatus) -> Option<u64>) -> Value {
    let forest = stats.forest.as_ref().filter(|forest| forest.shape.is_some());
    forest.and_then(number).map_or(Value::Absent, Value::Whole)
}

/// At the leader: how many of the servers are such.
fn count_at_leader(forest: &ForestStatus, is_such: impl Fn(&ForestServer) -> bool) -> Option<u64> {
    let leads = forest.servers.iter().any(|server| server.is_fed.is_some());
    leads.then(|| forest.servers.iter().filter(|server| is_such(server)).count() as u64)
}

/// At the leader: how late each of the others is.
fn late(stats: &Stats, value: impl Fn(&Lateness) -> Value) -> Value {
    let servers = stats.forest.iter().filter(|forest| forest.shape.is_some()).flat_map(|it| &it.servers);
    let late = servers.filter_map(|server| Some((server.id.to_string(), value(&server.late?))));
    let values: Vec<_> = late.collect();
    if values.is_empty() { Value::Absent } else { Value::Each("server", values) }
}

/// A time that only some sites have, in seconds.
fn remaining(stats: &Stats, time_us: impl Fn(&SitesView) -> Option<u64>) -> Value {
    let time_us = stats.sites.as_ref().and_then(time_us);
    time_us.map_or(Value::Absent, |us| Value::Real(us as f64 / SECONDS))
}

fn latency(stats: &Stats, changes: bool) -> Histogram {
    let mut all = Histogram::default();
    for op in stats.ops.iter().filter(|op| changes_something(op.opcode) == changes) {
        all.add(&op.latency);
    }
    all
}

/// Whether a request of this kind goes through the log.
fn changes_something(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::SetData
            | Opcode::SetAcl
            | Opcode::Check
            | Opcode::Multi
            | Opcode::Reconfig
            | Opcode::CreateSession
            | Opcode::CloseSession
    )
}

/// The table of metrics in Markdown, one row a metric.
pub fn metrics_table() -> String {
    let mut table = String::from("| metric | kind | what it is |\n| --- | --- | --- |\n");
    for metric in METRICS {
        table += &format!("| `{}` | {} | {} |\n", metric.name, metric.kind.name(), metric.help);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{ABSENT, Figures};
    use crate::view::LAG_ENTRIES_MAX;
    use crate::view::tests::{follower, leader, stats};

    #[test]
    fn names_are_there_once_and_say_what_they_count() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let ours = metric.name.starts_with("stoa_") || metric.name.starts_with("process_");
            let total = metric.name.ends_with("_total");
            assert!(!ours || total == (metric.kind == Counter), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }

    #[test]
    fn what_clients_call_their_extensions_stays_one_label() {
        assert_eq!(escaped("a\"} 1\n\\"), "a\\\"} 1\\n\\\\");
    }

    #[test]
    fn reads_and_writes_are_told_apart() {
        let writes = Opcode::ALL.iter().filter(|opcode| changes_something(**opcode)).count();
        assert_eq!(writes, 13);
        assert!(!changes_something(Opcode::GetData) && !changes_something(Opcode::Ping));
    }

    #[test]
    fn what_counts_as_little_is_what_the_table_says() {
        for name in ["synced_followers", "synced_observers"] {
            let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
            assert!(metric.help.contains(&format!("at most {LAG_ENTRIES_MAX} entries")), "{name}");
        }
    }

    /// What Apache ZooKeeper exports: name, kind, roles. The suite `ensemble` compares it with ZooKeeper.
    const ZOOKEEPER: &str = include_str!("../../../../tests/ensemble/zookeeper-metrics.txt");

    fn of_zookeeper() -> impl Iterator<Item = (&'static str, &'static str, Vec<&'static str>)> {
        ZOOKEEPER.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut words = line.split(' ');
            (words.next().unwrap(), words.next().unwrap(), words.collect())
        })
    }

    fn find(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    #[test]
    fn every_metric_of_zookeeper_is_here_or_is_left_out_for_a_reason() {
        let left_out: Vec<&str> = ABSENT.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let is = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => pattern == name,
        };
        let mut count = 0;
        for (name, ..) in of_zookeeper() {
            count += 1;
            let reasons = left_out.iter().filter(|pattern| is(pattern, name)).count();
            let is_here = find(name).is_some();
            // What is here may look like what is left out.
            assert!(reasons == 1 && !is_here || is_here && reasons <= 1, "{name}: {reasons} reasons");
        }
        assert!(count > 150, "{count} names");
        for pattern in left_out {
            assert!(of_zookeeper().any(|(name, ..)| is(pattern, name)), "ZooKeeper has no {pattern}");
            assert!(find(pattern).is_none(), "{pattern} is here");
        }
    }

    #[test]
    fn what_is_named_as_in_zookeeper_is_of_its_kind_and_there_in_its_roles() {
        let observer = || Stats { mode: Mode::Observer, ..follower() };
        let examples = [
            ("standalone", stats()),
            ("leader", leader()),
            ("follower", follower()),
            ("observer", observer()),
        ];
        let examples = examples.map(|(role, stats)| (role, Figures::now(stats)));
        for metric in METRICS {
            let is_own = ["stoa_", "process_"].iter().any(|own| metric.name.starts_with(own));
            // It has its name from ZooKeeper 3.4.
            let Some((_, kind, roles)) = of_zookeeper().find(|(name, ..)| *name == metric.name) else {
                assert!(is_own || metric.name == "followers", "{} is not ZooKeeper's", metric.name);
                continue;
            };
            let of_kind = if metric.kind == Quantiles { "quantiles" } else { metric.kind.name() };
            assert_eq!(of_kind, kind, "{}", metric.name);
            let there = examples.iter().filter(|(_, figures)| metric.value(figures) != Value::Absent);
            let there: Vec<&str> = there.map(|(role, _)| *role).collect();
            assert_eq!(there, roles, "{}", metric.name);
        }
    }

    #[test]
    fn kinds_come_in_the_order_of_mntr() {
        let zookeepers = METRICS.iter().take_while(|metric| !metric.name.starts_with("stoa_"));
        let kinds = zookeepers
            .map(|metric| [Gauge, Counter, Summary, Quantiles].iter().position(|it| *it == metric.kind));
        assert!(kinds.is_sorted());
    }

    #[test]
    fn values_have_the_shape_of_their_kind() {
        let figures = Figures::now(Stats::default());
        for metric in METRICS {
            let spread = matches!(metric.value(&figures), Value::Spread(..));
            let by_label = matches!(metric.value(&figures), Value::Each(..));
            let wide = matches!(metric.kind, Summary | Quantiles | MetricKind::Histogram);
            assert!(spread == wide || by_label, "{}", metric.name);
        }
    }
}
