//! What commands answer, as JSON with the field names of ZooKeeper's admin server.

use serde_json::{Map, Value, json};
use stoa_core::{GivenSnapshot, LostOperation, LostUpdate};

use super::command::fields;
use crate::config::{SETTINGS, Settings};
use crate::metrics::{Figures, average_ms, latency_min_us, monitor_texts, monitor_values};
use crate::process::{Process, VERSION};
use crate::view::{
    Balance, Connection, Digest, EnsembleStatus, Holder, LostView, MemberStatus, Mode, Moved, NO_SITES,
    Partition, ReaderPlace, ReaderView, ReadersView, Session, SessionWatches, SiteView, SitesView, Sizes,
    Stats, Subtree, WatchSummary,
};
use crate::words::{by_path, interest_ops, java_address, server_id};

/// ZooKeeper's digests have the versions 1 and 2. Ours are of another kind, not to be compared with them.
const DIGEST_VERSION: u32 = 100;

pub(super) fn server_stats(stats: &Stats) -> Map<String, Value> {
    let replies = buffer_sizes(stats.reply_bytes);
    let mut data = fields(json!({
        "version": VERSION,
        "read_only": stats.mode == Mode::ReadOnly,
        "server_stats": {
            "packets_sent": stats.packets_sent,
            "packets_received": stats.packets_received,
            "fsync_threshold_exceed_count": stats.log.fsync_slow,
            "client_response_stats": replies,
            "uptime": stats.uptime_ms,
            "data_dir_size": stats.snapshots.bytes,
            "log_dir_size": stats.log.bytes,
            "last_processed_zxid": stats.zxid,
            "outstanding_requests": stats.outstanding,
            "server_state": stats.mode.name(),
            "avg_latency": average_ms(stats),
            "max_latency": stats.latency_max_us / 1000,
            "min_latency": latency_min_us(stats) / 1000,
            "num_alive_client_connections": stats.connections,
            "auth_failed_count": stats.auth_failed,
            // Counted by a server with TLS only.
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
            "provider_null": false,
        },
        "client_response": replies,
        "node_count": stats.znodes,
    }));
    if stats.mode == Mode::Leader {
        data.insert("proposal_stats".to_owned(), buffer_sizes(stats.following.proposal_bytes));
    }
    data
}

/// Before the first ZooKeeper says -1.
fn buffer_sizes(sizes: Option<Sizes>) -> Value {
    let size = |which: fn(Sizes) -> u64| sizes.map_or(Value::from(-1), |sizes| which(sizes).into());
    json!({
        "last_buffer_size": size(|sizes| sizes.last),
        "min_buffer_size": size(|sizes| sizes.min),
        "max_buffer_size": size(|sizes| sizes.max),
    })
}

pub(super) fn monitor(figures: &Figures) -> Map<String, Value> {
    let texts = monitor_texts(&figures.stats).into_iter();
    let mut data: Map<String, Value> = texts.map(|(name, text)| (name.to_owned(), text.into())).collect();
    data.extend(monitor_values(figures).into_iter().map(|(name, value)| (name, Value::Number(value))));
    data
}

pub(super) fn dirs(stats: &Stats) -> Map<String, Value> {
    fields(json!({ "datadir_size": stats.snapshots.bytes, "logdir_size": stats.log.bytes }))
}

pub(super) fn last_snapshot(stats: &Stats) -> Map<String, Value> {
    let zxid = stats.snapshots.last_zxid;
    // Hexadecimal without 0x, and a timestamp in seconds; -1 when there is none.
    fields(json!({
        "zxid": format!("{:x}", zxid.unwrap_or(-1)),
        "timestamp": zxid.map_or(-1, |_| stats.snapshots.last_wall_ms.div_euclid(1000)),
    }))
}

pub(super) fn configuration(process: &Process) -> Map<String, Value> {
    let settings = &process.settings;
    let (min, max) = settings.session_timeouts();
    let folder = process.data_dir.display().to_string();
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut data = fields(json!({
        "client_port": process.port(),
        "data_dir": folder,
        "data_log_dir": folder,
        "tick_time": ms(settings.tick_time),
        "max_client_cnxns": settings.max_connections_per_address,
        "min_session_timeout": ms(min),
        "max_session_timeout": ms(max),
        "server_id": server_id(settings),
        "client_port_listen_backlog": settings.listen_backlog,
    }));
    if settings.partition_count() > 1 {
        data.insert("partitions".to_owned(), settings.partition_count().into());
    }
    data
}

/// Where a Java server has the properties of its machine, the settings of this one.
pub(super) fn properties(settings: &Settings) -> Map<String, Value> {
    SETTINGS.iter().map(|setting| (setting.key.to_owned(), setting.get(settings).into())).collect()
}

/// The settings as a configuration file; credentials and what has no value are left out.
pub(super) fn as_toml(settings: &Settings) -> String {
    SETTINGS
        .iter()
        .filter(|setting| !setting.is_secret())
        .map(|setting| (setting.key, setting.get(settings)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key} = {}\n", Value::from(value)))
        .collect()
}

pub(super) fn connections(connections: &[Connection]) -> Map<String, Value> {
    connection_list(connections, false)
}

pub(super) fn connections_in_short(connections: &[Connection]) -> Map<String, Value> {
    connection_list(connections, true)
}

fn connection_list(connections: &[Connection], brief: bool) -> Map<String, Value> {
    let list: Vec<Value> = connections.iter().map(|connection| one_connection(connection, brief)).collect();
    fields(json!({ "connections": list, "secure_connections": [] }))
}

fn one_connection(connection: &Connection, brief: bool) -> Value {
    let mut info = fields(json!({
        "remote_socket_address": java_address(connection.peer).trim_start_matches('/'),
        "interest_ops": interest_ops(connection),
        "outstanding_requests": connection.outstanding,
        "packets_received": connection.packets_received,
        "packets_sent": connection.packets_sent,
    }));
    if !brief {
        // A connection without a session has the values that Java's fields begin with.
        let session = connection.session.as_ref();
        let number = |value: Option<u64>| value.unwrap_or(0);
        info.extend(fields(json!({
            "session_id": session.map_or(0, |session| session.id),
            "last_operation":
                session.and_then(|session| session.last_op).map_or("NA", |opcode| opcode.short_name()),
            "established": connection.established_ms,
            "session_timeout": session.map_or(0, |session| session.timeout_ms),
            // Heartbeats and the like have an xid below zero, which is not told.
            "last_cxid": session.and_then(|session| session.last_xid).filter(|xid| *xid >= 0).unwrap_or(-1),
            "last_zxid": session.map_or(-1, |session| session.last_zxid),
            "last_response_time": number(session.map(|session| session.last_reply_ms)),
            "last_latency": number(session.map(|session| session.latency_last_us / 1000)),
            "min_latency": number(session.map(|session| session.latency_min_us / 1000)),
            "avg_latency": number(session.map(|session| session.latency_avg_us / 1000)),
            "max_latency": number(session.map(|session| session.latency_max_us / 1000)),
        })));
        info.extend(connection.partition.map(|partition| ("partition".to_owned(), partition.into())));
    }
    Value::Object(info)
}

pub(super) fn dump(sessions: &[Session], mode: Mode) -> Map<String, Value> {
    let mut by_expiry: std::collections::BTreeMap<i64, Vec<i64>> = std::collections::BTreeMap::new();
    // Only who judges knows when a session ends.
    for session in sessions.iter().filter(|_| mode.judges_sessions()) {
        by_expiry.entry(session.expires_ms).or_default().push(session.id);
    }
    let expiry: Map<String, Value> =
        by_expiry.into_iter().map(|(time, ids)| (time.to_string(), ids.into())).collect();
    let ephemerals: Map<String, Value> = sessions
        .iter()
        .filter(|session| !session.ephemerals.is_empty())
        .map(|session| (session.id.to_string(), session.ephemerals.clone().into()))
        .collect();
    fields(json!({ "expiry_time_to_session_ids": expiry, "session_id_to_ephemeral_paths": ephemerals }))
}

pub(super) fn digests(digests: &[Digest]) -> Map<String, Value> {
    let list: Vec<Value> = digests
        .iter()
        .map(|point| {
            json!({ "zxid": point.zxid, "digest_version": DIGEST_VERSION, "digest": point.digest.cast_signed() })
        })
        .collect();
    fields(json!({ "digests": list }))
}

pub(super) fn watches(watches: &[SessionWatches]) -> Map<String, Value> {
    let sessions: Map<String, Value> =
        watches.iter().map(|watch| (watch.session.to_string(), watch.paths.clone().into())).collect();
    fields(json!({ "session_id_to_watched_paths": sessions }))
}

pub(super) fn watches_by_path(watches: &[SessionWatches]) -> Map<String, Value> {
    let paths: Map<String, Value> =
        by_path(watches).into_iter().map(|(path, sessions)| (path.to_owned(), sessions.into())).collect();
    fields(json!({ "path_to_session_ids": paths }))
}

pub(super) fn watch_summary(summary: &WatchSummary) -> Map<String, Value> {
    fields(json!({
        "num_connections": summary.sessions,
        "num_paths": summary.paths,
        "num_total_watches": summary.watches,
    }))
}

/// Host and port, an IPv6 address in brackets.
fn address((host, port): (&str, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn peer_address(member: &MemberStatus) -> Option<String> {
    member.address.as_ref().map(|(host, port)| address((host, *port)))
}

pub(super) fn leader(stats: &Stats) -> Map<String, Value> {
    let EnsembleStatus { leader, members, .. } = &stats.ensemble;
    if stats.mode == Mode::Standalone {
        return fields(json!({ "error": "server is not initialized" }));
    }
    let found = members.iter().find(|member| Some(member.id) == *leader);
    let host = found.and_then(|member| member.address.as_ref()).map_or("", |(host, _)| host);
    fields(json!({
        "is_leader": stats.mode == Mode::Leader,
        "leader_id": leader,
        "leader_ip": host,
    }))
}

pub(super) fn voting_view(stats: &Stats) -> Map<String, Value> {
    let voters = stats.ensemble.members.iter().filter(|member| member.votes);
    let views: Map<String, Value> = voters
        .filter(|_| stats.mode != Mode::Standalone)
        .map(|voter| {
            let named = stats.ensemble.servers.iter().find(|member| u64::from(member.id) == voter.id);
            let client = named.and_then(|member| member.client.as_ref());
            let client = client.map(|(host, port)| address((host.as_deref().unwrap_or("0.0.0.0"), *port)));
            let view = json!({
                "server_addresses": peer_address(voter).into_iter().collect::<Vec<_>>(),
                // Nobody listens for elections.
                "election_addresses": [],
                "client_address": client.unwrap_or_default(),
                "learner_type": "participant",
            });
            (voter.id.to_string(), view)
        })
        .collect();
    fields(json!({ "current_config": views }))
}

pub(super) fn observers(stats: &Stats) -> Map<String, Value> {
    let ensemble = &stats.ensemble;
    let connected = ensemble.members.iter().filter(|member| !member.votes && member.is_connected());
    let list: Vec<Value> = connected
        .filter(|_| stats.mode == Mode::Leader)
        .filter_map(|member| {
            let link = member.link.as_ref()?;
            Some(json!({
                "remote_socket_address": peer_address(member),
                "sid": member.id,
                "established": link.connected_ms,
                "queued_packets_size": link.queued_bytes,
                "packets_received": link.messages_received,
                "packets_sent": link.messages_sent,
            }))
        })
        .collect();
    fields(json!({ "synced_observers": ensemble.synced(MemberStatus::observes), "observers": list }))
}

pub(super) fn zab_state(stats: &Stats) -> Map<String, Value> {
    let state = match (stats.mode, stats.ensemble.leader) {
        (Mode::Standalone, _) => return no_zab_state(),
        (Mode::Looking, None) | (Mode::ReadOnly, _) => "election",
        (Mode::Looking, Some(_)) => "synchronization",
        _ => "broadcast",
    };
    fields(json!({
        "myid": stats.ensemble.id,
        "is_leader": stats.mode == Mode::Leader,
        "voting": stats.ensemble.votes(),
        "last_zxid": format!("0x{:x}", stats.zxid),
        "zabstate": state,
    }))
}

/// What a server says that stands alone, or is not up.
pub(super) fn no_zab_state() -> Map<String, Value> {
    fields(json!({ "voting": false, "zabstate": "" }))
}

pub(super) fn ensemble(stats: &Stats) -> Map<String, Value> {
    let EnsembleStatus { id, leader, term, last, committed, applied, leaders_found, .. } = stats.ensemble;
    let members: Vec<Value> =
        stats.ensemble.members.iter().map(|member| of_member(&stats.ensemble, member)).collect();
    fields(json!({
        "server_id": id,
        "ensemble_id": stats.ensemble.history,
        "role": stats.mode.name(),
        "leader_id": leader,
        "term": term,
        "last_position": last,
        "committed_position": committed,
        "applied_position": applied,
        "last_zxid": format!("0x{:x}", stats.zxid),
        "leaders_found": leaders_found,
        "snapshots_sent": stats.ensemble.snapshots_sent,
        "snapshots_received": stats.ensemble.snapshots_received,
        "snapshots_given": stats.ensemble.given.1.given,
        "snapshots_delegated": stats.ensemble.given.1.delegated,
        "snapshots_under_way": stats.ensemble.given.0.iter().map(of_snapshot).collect::<Vec<_>>(),
        "members": members,
    }))
}

/// A snapshot on its way to a member.
pub(super) fn of_snapshot(snapshot: &GivenSnapshot) -> Value {
    json!({
        "to_server_id": snapshot.to,
        "by_server_id": snapshot.by,
        "position": snapshot.position,
        "is_there": snapshot.is_there,
        "age_ms": snapshot.age_us as f64 / 1e3,
    })
}

/// Who is below the server, and whom it is below.
pub(super) fn readers(view: &ReadersView) -> Map<String, Value> {
    let reader = |of: &ReaderView| {
        json!({
            "remote_socket_address": of.address.to_string(),
            "software": of.software,
            "connected_since": of.connected_ms,
            "bytes_received": of.bytes_received,
            "bytes_sent": of.bytes_sent,
            "queued_bytes": of.queued_bytes,
        })
    };
    let parent = view.parent.as_ref().map(|of| {
        json!({
            "address": of.address,
            "connected_since": of.connected_ms,
            "name": of.name,
            "software": of.software,
            "member_id": of.member,
            "distance": of.distance,
            "behind_entries": of.behind,
            "entries": of.entries,
            "last_error": of.last_error,
            "parents_found": of.parents_found,
        })
    });
    fields(json!({
        "is_reader": view.parent.is_some(),
        "parent": parent,
        "joins_as": view.newcomer.as_ref().map(|newcomer| &newcomer.line),
        "readers_max": view.max,
        "readers": view.readers.iter().map(reader).collect::<Vec<_>>(),
        "all_readers": view.all.len() as u64 + view.left_out,
        "left_out_readers": view.left_out,
        "tree": reader_tree(&view.all),
        "lagging_readers": view.lagging,
        "older_readers": view.older,
        "readers_refused": view.refused,
    }))
}

/// Each with those below it. A parent stands before its readers, so they are put below it from the end on.
fn reader_tree(all: &[ReaderPlace]) -> Vec<Value> {
    let mut below: Vec<Vec<Value>> = vec![Vec::new(); all.len()];
    let mut tree = Vec::new();
    for (place, of) in all.iter().enumerate().rev() {
        let mut own = std::mem::take(&mut below[place]);
        own.reverse();
        let value = json!({
            "client_address": of.address.to_string(),
            "software": of.software,
            "connected_since": of.connected_ms,
            "readers": own,
        });
        match of.parent.and_then(|parent| below.get_mut(parent)) {
            Some(readers) => readers.push(value),
            None => tree.push(value),
        }
    }
    tree.reverse();
    tree
}

/// To three places: there is no more to a sampled figure.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

pub(super) fn partitions(partitions: &[Partition], balance: &Balance) -> Map<String, Value> {
    let of_subtree = |of: &Subtree| {
        json!({
            "path": of.path,
            "reads_per_second": of.reads,
            "writes_per_second": of.writes,
            "bytes_per_second": of.bytes,
            "busy": rounded(of.busy),
        })
    };
    let of_partition = |of: &Partition| {
        json!({
            "partition": of.number,
            "role": of.timeline.mode.name(),
            "leader_id": of.timeline.leader,
            "term": of.timeline.term,
            "last_position": of.timeline.last,
            "committed_position": of.timeline.committed,
            "applied_position": of.timeline.applied,
            "znodes": of.znodes,
            "data_bytes": of.data_bytes,
            "connections": of.connections,
            "requests_kept": of.requests_kept,
            "requests_handed_over": of.requests_handed_over,
            "reads_per_second": of.reads,
            "writes_per_second": of.writes,
            "busy": rounded(of.busy),
            "subtrees": of.subtrees.iter().map(of_subtree).collect::<Vec<_>>(),
        })
    };
    let exception = |(path, partition): &(String, u64)| json!({ "path": path, "partition": partition });
    let mut data = fields(json!({
        "partitions": partitions.iter().map(of_partition).collect::<Vec<_>>(),
        "balance": balance.is_on,
        "imbalance": rounded(balance.imbalance),
        "version": balance.version,
        "exceptions": balance.exceptions.iter().map(exception).collect::<Vec<_>>(),
        "hints": balance.hints,
        "moves": balance.moves.iter().map(moved).collect::<Vec<_>>(),
    }));
    data.extend(balance.place.map(|place| ("place".to_owned(), place.into())));
    data
}

pub(super) fn moved(of: &Moved) -> Value {
    json!({ "path": of.path, "to": of.to, "refused": of.refused, "time": of.at_ms })
}

pub(super) fn sites(sites: Option<&SitesView>) -> Map<String, Value> {
    let Some(sites) = sites else { return fields(json!({ "error": NO_SITES })) };
    fields(json!({
        "site": sites.name,
        "number": sites.number,
        "hub": sites.hub,
        "reign": sites.reign,
        "next_hub": sites.next_hub,
        "waits_for": sites.waits_for,
        "is_given_up": sites.is_lost,
        "kept_zxid": sites.kept.as_ref().map(ToString::to_string),
        "lost_updates": sites.lost_updates,
        "leads": sites.leads,
        "committed_position": sites.committed,
        "applied_position": sites.applied,
        "waiting_requests": sites.waiting,
        "held_answers": sites.held,
        "lease_ms": sites.lease_us.map(|us| us as f64 / 1e3),
        "bound_to_hub_ms": sites.bound_us.map(|us| us as f64 / 1e3),
        "feature_level": sites.number.map(|_| sites.level),
        "feature_level_waits_for": sites.level_waits_for,
        "writes_local": sites.counts.writes_local,
        "writes_forwarded": sites.counts.writes_forwarded,
        "token_grants": sites.counts.grants,
        "token_recalls": sites.counts.recalls,
        "token_visits": sites.counts.visits,
        "sites": sites.sites.iter().map(of_site).collect::<Vec<_>>(),
    }))
}

fn of_site(site: &SiteView) -> Value {
    let unshipped = site.unshipped;
    json!({
        "site": site.name,
        "number": site.number,
        "is_hub": site.is_hub,
        "is_self": site.is_own,
        "is_given_up": site.is_lost,
        "kept_zxid": site.kept.as_ref().map(ToString::to_string),
        "servers": site.servers,
        "connected": site.connected,
        "connected_since": site.connected_ms,
        "round_trip_ms": site.round_trip_us.map(|us| us as f64 / 1e3),
        "imported_position": site.imported,
        "acknowledged_position": site.acknowledged,
        "unshipped_entries": unshipped.map(|of| of.entries),
        "unshipped_bytes": unshipped.map(|of| of.bytes),
        "unshipped_ms": unshipped.map(|of| of.age_us as f64 / 1e3),
        "unshipped_is_all": unshipped.map(|of| of.is_all),
        "feature_level_newest": site.level_newest,
    })
}

fn hex(of: i64) -> String {
    format!("0x{of:x}")
}

/// What a site that was given up alone has.
pub(super) fn lost(LostView { site, kept, lost }: &LostView) -> Map<String, Value> {
    fields(json!({
        "site": site,
        "kept_zxid": kept.to_string(),
        "lost_updates": lost.count,
        "is_all": lost.is_all,
        "are_more": lost.are_more,
        "updates": lost.updates.iter().map(of_lost).collect::<Vec<_>>(),
    }))
}

fn of_lost(update: &LostUpdate) -> Value {
    let in_hex = |data: &[u8]| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let operation = |of: &LostOperation| {
        let mut told = json!({ "operation": of.name, "path": of.path, "bytes": of.bytes });
        if let Some(data) = &of.data {
            told["data"] = in_hex(data).into();
        }
        told
    };
    json!({
        "zxid": hex(update.zxid),
        "time": update.time_ms,
        "session": hex(update.session),
        "position": update.position,
        "is_multi": update.is_multi,
        "operations": update.operations.iter().map(operation).collect::<Vec<_>>(),
    })
}

pub(super) fn token(path: &str, holder: Option<&Holder>) -> Map<String, Value> {
    let Some(Holder { site, name, is_there, readers, usage }) = holder else {
        return fields(json!({ "error": NO_SITES }));
    };
    let of_site = |(number, name, share): &(u64, Option<String>, u8)| json!({ "site": name, "number": number, "share_percent": share });
    // Nobody that is known to have used it is not the same as nobody.
    let used = usage.as_ref().filter(|usage| !usage.shares.is_empty());
    fields(json!({
        "path": path,
        "holder": name,
        "holder_number": site,
        "exists": is_there,
        "readers": readers.iter().map(|(number, name)| json!({ "site": name, "number": number })).collect::<Vec<_>>(),
        "is_at_hubs_leader": usage.is_some(),
        "since": usage.as_ref().and_then(|usage| usage.since_ms),
        "uses_by_holder": usage.as_ref().and_then(|usage| usage.uses),
        "last_use_by_holder": usage.as_ref().and_then(|usage| usage.used_ms),
        "used_by": used.map(|usage| usage.shares.iter().map(of_site).collect::<Vec<_>>()),
        "used_by_more": used.map(|usage| usage.has_others),
        "used_last_by": used.and_then(|usage| usage.last),
    }))
}

fn of_member(ensemble: &EnsembleStatus, member: &MemberStatus) -> Value {
    let link = member.link.as_ref();
    let kind = member.belongs.then_some(if member.votes { "participant" } else { "observer" });
    let number = |pick: fn(&crate::view::LinkStatus) -> u64| link.map(pick);
    json!({
        "server_id": member.id,
        "is_self": member.id == ensemble.id,
        "learner_type": kind,
        "address": peer_address(member),
        "matched_position": member.matched,
        "lag_entries": member.lag,
        "connected": link.map(|link| link.connected_ms.is_some()),
        "connected_since": link.and_then(|link| link.connected_ms),
        "software": link.and_then(|link| link.software.as_ref()),
        "last_error": link.and_then(|link| link.last_error.as_ref()),
        "bytes_received": number(|link| link.bytes_received),
        "bytes_sent": number(|link| link.bytes_sent),
        "messages_received": number(|link| link.messages_received),
        "messages_sent": number(|link| link.messages_sent),
        "queued_bytes": number(|link| link.queued_bytes),
    })
}
