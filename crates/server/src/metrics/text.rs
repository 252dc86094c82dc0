//! Metrics as text: for Prometheus, and for the word `mntr`.

use std::fmt::Write;

use super::table::KEY;
use super::{Figures, METRICS, Metric, MetricKind, Value};
use crate::process::VERSION;
use crate::view::{Histogram, Mode, Stats};

/// Every metric in Prometheus's text format, version 0.0.4.
pub fn prometheus(figures: &Figures) -> String {
    let mut text = String::with_capacity(16 << 10);
    for metric in METRICS {
        let value = metric.value(figures);
        if value == Value::Absent {
            continue;
        }
        let _ = writeln!(text, "# HELP {} {}", metric.name, metric.help);
        let _ = writeln!(text, "# TYPE {} {}", metric.name, metric.kind.name());
        write_value(&mut text, metric.name, metric.kind, "", &value);
    }
    text
}

/// Writes one value. `label` is a label with its value, or empty. Writing to a string cannot fail.
fn write_value(text: &mut String, name: &str, kind: MetricKind, label: &str, value: &Value) {
    let braced = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let _ = match value {
        Value::Whole(number) => writeln!(text, "{name}{braced} {number}"),
        Value::Signed(number) => writeln!(text, "{name}{braced} {number}"),
        Value::Real(number) => writeln!(text, "{name}{braced} {number}"),
        Value::Label(key, content) => writeln!(text, "{name}{{{key}=\"{content}\"}} 1"),
        Value::Spread(spread, unit) => {
            let before = if label.is_empty() { String::new() } else { format!("{label},") };
            if kind == MetricKind::Histogram {
                write_buckets(text, name, &before, spread, *unit);
            }
            for (share, quantile) in quantiles(kind) {
                // That of no values is no number.
                let at = if spread.count() == 0 { f64::NAN } else { spread.quantile(*quantile) / unit };
                let _ = writeln!(text, "{name}{{{before}quantile=\"{share}\"}} {at}");
            }
            let _ = writeln!(text, "{name}_sum{braced} {}", spread.sum as f64 / unit);
            writeln!(text, "{name}_count{braced} {}", spread.count())
        }
        Value::Each(key, values) => {
            for (content, value) in values {
                write_value(text, name, kind, &format!("{key}=\"{content}\""), value);
            }
            Ok(())
        }
        Value::Absent => Ok(()),
    };
}

/// The quantiles that ZooKeeper gives to Prometheus.
fn quantiles(kind: MetricKind) -> &'static [(&'static str, f64)] {
    const ALL: &[(&str, f64)] = &[("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99)];
    match kind {
        MetricKind::Summary => &ALL[..1],
        MetricKind::Quantiles => ALL,
        _ => &[],
    }
}

fn write_buckets(text: &mut String, name: &str, before: &str, spread: &Histogram, unit: f64) {
    let mut below = 0;
    for (bound, count) in spread.buckets.iter().filter(|(bound, _)| *bound != u64::MAX) {
        below += count;
        let _ = writeln!(text, "{name}_bucket{{{before}le=\"{}\"}} {below}", *bound as f64 / unit);
    }
    let _ = writeln!(text, "{name}_bucket{{{before}le=\"+Inf\"}} {}", spread.count());
}

/// What `mntr` answers: a line a value, `zk_` before its name and a tab before the value.
pub fn monitor_lines(figures: &Figures) -> String {
    let mut text = String::new();
    for (name, value) in monitor_texts(&figures.stats) {
        let _ = writeln!(text, "zk_{name}\t{value}");
    }
    for (name, value) in monitor_values(figures) {
        let _ = writeln!(text, "zk_{name}\t{value}");
    }
    text
}

/// What `mntr` tells besides metrics.
pub fn monitor_texts(stats: &Stats) -> Vec<(&'static str, String)> {
    let mut texts = vec![("version", VERSION.to_owned()), ("server_state", stats.mode.name().to_owned())];
    if let Some(state) = stats.mode.peer_state() {
        texts.push(("peer_state", state.to_owned()));
    }
    // Whom an observer has its entries from.
    if let (Mode::Observer, Some(leader)) = (stats.mode, stats.ensemble.leader) {
        texts.push(("observer_master_id", leader.to_string()));
    }
    if let Some(history) = &stats.ensemble.history {
        texts.push(("stoa_ensemble_id", history.clone()));
    }
    texts
}

/// Every metric as single numbers: a spread becomes the five or nine that ZooKeeper makes of one, and of a set each
/// name has the key in front. Counts by range and by operation are left to Prometheus.
pub fn monitor_values(figures: &Figures) -> Vec<(String, serde_json::Number)> {
    let mut values = Vec::new();
    for metric in METRICS {
        match metric.value(figures) {
            Value::Spread(spread, unit) if metric.kind != MetricKind::Histogram => {
                push_summary(&mut values, metric, &spread, unit);
            }
            Value::Each(KEY, each) => {
                for (key, value) in each {
                    let name = format!("{}_{}", one_word(&key), metric.name);
                    values.extend(number(&value).map(|number| (name, number)));
                }
            }
            value => values.extend(number(&value).map(|number| (metric.name.to_owned(), number))),
        }
    }
    values
}

fn number(value: &Value) -> Option<serde_json::Number> {
    match *value {
        Value::Whole(number) => Some(number.into()),
        Value::Signed(number) => Some(number.into()),
        Value::Real(number) => Some(real(number)),
        _ => None,
    }
}

/// A name that clients have chosen, as part of the first word of a line.
fn one_word(name: &str) -> String {
    name.replace(|it: char| it.is_whitespace() || it.is_control(), "_")
}

fn push_summary(
    values: &mut Vec<(String, serde_json::Number)>,
    metric: &Metric,
    spread: &Histogram,
    unit: f64,
) {
    let name = metric.name;
    let whole = |counted: f64| serde_json::Number::from((counted / unit).round() as u64);
    values.push((format!("avg_{name}"), real((spread.mean() / unit * 1e4).round() / 1e4)));
    values.push((format!("min_{name}"), whole(spread.min() as f64)));
    values.push((format!("max_{name}"), whole(spread.max() as f64)));
    values.push((format!("cnt_{name}"), spread.count().into()));
    values.push((format!("sum_{name}"), whole(spread.sum as f64)));
    if metric.kind != MetricKind::Quantiles {
        return;
    }
    for (rank, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
        values.push((format!("{rank}_{name}"), whole(spread.quantile(share))));
    }
}

fn real(number: f64) -> serde_json::Number {
    serde_json::Number::from_f64(number).unwrap_or_else(|| 0.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::readers::below;
    use crate::view::tests::{feeder, follower, hub, leader, looking, stats};
    use crate::view::{Following, MemberStatus, Quota, Service, Sizes, Watchers};

    fn figures() -> Figures {
        Figures { stats: stats(), files: (12, 1024), ..Figures::default() }
    }

    #[test]
    fn mntr_begins_as_zookeeper_does_and_has_its_names() {
        let text = monitor_lines(&figures());
        let begin = format!(
            "zk_version\t{VERSION}\nzk_server_state\tstandalone\nzk_avg_latency\t0.125\nzk_max_latency\t7\n\
             zk_min_latency\t0\nzk_packets_received\t1000\nzk_packets_sent\t1010\n\
             zk_num_alive_connections\t2\nzk_outstanding_requests\t3\nzk_uptime\t60000\nzk_znode_count\t7\n"
        );
        assert!(text.starts_with(&begin), "{text}");
        for line in [
            "zk_last_client_response_size\t20",
            "zk_avg_readlatency\t0.3",
            "zk_cnt_readlatency\t100",
            "zk_p99_readlatency\t1",
            "zk_cnt_updatelatency\t0",
            "zk_cnt_dbinittime\t1",
            "zk_stoa_log_position\t90",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.lines().all(|line| line.split('\t').count() == 2));
        assert!(!text.contains("quorum_size") && !text.contains("peer_state"), "{text}");
    }

    fn spread(value: u64) -> Histogram {
        Histogram::of_one(value)
    }

    /// Numbers that are all different, for what is not in the other examples.
    fn counted(stats: Stats) -> Figures {
        let following = Following {
            proposals: 101,
            proposal_bytes: Some(Sizes { last: 102, max: 103, min: 100 }),
            led_updates: 104,
            followed_updates: 105,
            propagation: spread(106_000),
            agreement: spread(107_000),
            pending_syncs: 108,
        };
        let service = Service {
            looking: 109,
            election: spread(110_000),
            unavailable: spread(111_000),
            leader_unavailable: spread(112_000),
            follower_sync: spread(113_000),
            observer_sync: spread(114_000),
            led_ms: Some(115),
        };
        let watchers = Watchers {
            created: spread(116),
            deleted: spread(117),
            changed: spread(118),
            children: spread(119),
        };
        let quota = Quota {
            namespace: "a \"b".to_owned(),
            count_limit: 120,
            bytes_limit: -1,
            count: 121,
            bytes: 122,
            refused: 123,
        };
        let memory = crate::process::Memory { taken: 124, ..Default::default() };
        let stats = Stats {
            following,
            service,
            watchers,
            quotas: vec![quota],
            sessions_brought: 125,
            sessions_asked_for: 126,
            stale_replies: 127,
            watch_bytes: 128,
            ..stats
        };
        Figures { stats, memory, started_seconds: Some(129.5), ..Figures::default() }
    }

    /// What a server says whatever it is to others.
    const COUNTED: &str = "\
connection_drop_probability 0
quota_count_limit_per_namespace{key=\"a \\\"b\"} 120
quota_bytes_limit_per_namespace{key=\"a \\\"b\"} -1
quota_count_usage_per_namespace{key=\"a \\\"b\"} 121
quota_bytes_usage_per_namespace{key=\"a \\\"b\"} 122
connection_revalidate_count 125
revalidate_count 126
stale_replies 127
watch_bytes 128
looking_count 109
proposal_count 101
commit_count 104
learner_commit_received_count 105
unrecoverable_error_count 0
ensemble_auth_success 0
ensemble_auth_fail 0
ensemble_auth_skip 0
quota_exceeded_error_per_namespace{key=\"a \\\"b\"} 123
election_time{quantile=\"0.5\"} 110
election_time_sum 110
election_time_count 1
follower_sync_time_sum 113
observer_sync_time_sum 114
unavailable_time_sum 111
leader_unavailable_time_sum 112
node_created_watch_count_sum 116
node_deleted_watch_count_sum 117
node_changed_watch_count_sum 118
node_children_watch_count_sum 119
propagation_latency{quantile=\"0.99\"} 106
propagation_latency_sum 106
quorum_ack_latency_sum 107
jvm_pause_time_ms{quantile=\"0.5\"} NaN
jvm_pause_time_ms_count 0
process_virtual_memory_bytes 124
process_start_time_seconds 129.5
";

    const AT_LEADER: &str = "\
synced_observers 0
synced_non_voting_followers 0
pending_syncs 108
leader_uptime 115
last_proposal_size 102
max_proposal_size 103
min_proposal_size 100
";

    #[test]
    fn each_figure_has_its_name() {
        for stats in [stats(), leader(), follower()] {
            let is_leader = stats.mode == Mode::Leader;
            let text = prometheus(&counted(stats));
            let has = |line: &str| text.lines().any(|found| found == line);
            for line in COUNTED.lines() {
                assert!(has(line), "{line} in {text}");
            }
            for line in AT_LEADER.lines().filter(|line| !line.starts_with("synced_observers")) {
                assert_eq!(has(line), is_leader, "{line} in {text}");
            }
        }
        assert!(prometheus(&counted(follower())).contains("\nsynced_observers 0\n"));
        let mut joining = leader();
        joining.ensemble.members[3] =
            MemberStatus { votes: false, joins: true, ..joining.ensemble.members[1].clone() };
        assert!(prometheus(&counted(joining)).contains("\nsynced_non_voting_followers 1\n"));
        let nothing = Stats { mode: Mode::Leader, ..Stats::default() };
        let text = prometheus(&Figures { stats: nothing, ..Figures::default() });
        assert!(text.contains("\nlast_proposal_size -1\n") && text.contains("\nleader_uptime 0\n"));
    }

    #[test]
    fn mntr_has_summaries_and_sets_in_zookeepers_form() {
        let text = monitor_lines(&counted(leader()));
        for line in [
            "zk_connection_drop_probability\t0.0",
            "zk_a_\\\"b_quota_bytes_limit_per_namespace\t-1",
            "zk_a_\\\"b_quota_exceeded_error_per_namespace\t123",
            "zk_avg_election_time\t110.0",
            "zk_max_node_changed_watch_count\t118",
            "zk_p999_propagation_latency\t106",
            "zk_avg_jvm_pause_time_ms\t0.0",
            "zk_p99_jvm_pause_time_ms\t0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("_p50_election_time") && !text.contains("zk_p99_fsynctime"), "{text}");
        // The key has no blank in it, whatever it was made of.
        assert!(text.lines().all(|line| line.split_once('\t').is_some_and(|(key, _)| !key.contains(' '))));
    }

    /// What is said of the server itself and of the others, cut down to that.
    fn of_ensemble(text: &str, is_of_it: impl Fn(&str) -> bool) -> String {
        text.lines().filter(|line| is_of_it(line)).fold(String::new(), |all, line| all + line + "\n")
    }

    #[test]
    fn mntr_tells_what_a_server_is_to_the_others() {
        let told = |stats| {
            let is_of_it = |line: &str| {
                let name = line.split('\t').next().unwrap_or_default();
                [
                    "_state",
                    "quorum_size",
                    "learners",
                    "followers",
                    "observers",
                    "observer_master",
                    "ensemble_id",
                    "snap_count",
                ]
                .iter()
                .any(|part| name.contains(part))
            };
            of_ensemble(&monitor_lines(&Figures { stats, ..Figures::default() }), is_of_it)
        };
        assert_eq!(
            told(leader()),
            "zk_server_state\tleader\nzk_peer_state\tleading - broadcast\n\
             zk_stoa_ensemble_id\t0123456789abcdef0123456789abcdef\nzk_quorum_size\t3\nzk_learners\t2\n\
             zk_followers\t2\nzk_synced_followers\t1\nzk_synced_non_voting_followers\t0\n\
             zk_synced_observers\t0\nzk_snap_count\t1\n"
        );
        assert_eq!(
            told(follower()),
            "zk_server_state\tfollower\nzk_peer_state\tfollowing - broadcast\n\
             zk_stoa_ensemble_id\t0123456789abcdef0123456789abcdef\nzk_quorum_size\t3\n\
             zk_synced_observers\t0\nzk_snap_count\t1\n"
        );
        let observer = Stats { mode: Mode::Observer, ..follower() };
        assert!(told(observer).contains("observing - broadcast\nzk_observer_master_id\t1\n"));
    }

    /// The figures of the leader of the example that are about itself and the others.
    const LEADER: &str = "\
stoa_server_id 1
stoa_role{role=\"standalone\"} 0
stoa_role{role=\"leader\"} 1
stoa_role{role=\"follower\"} 0
stoa_role{role=\"observer\"} 0
stoa_role{role=\"read-only\"} 0
stoa_role{role=\"looking\"} 0
stoa_in_quorum 1
stoa_leader_id 1
stoa_leaders_found_total 3
stoa_term 7
stoa_timeline_last 5001
stoa_timeline_committed 4999
stoa_timeline_applied 4998
stoa_member_lag_entries{server=\"2\"} 2
stoa_member_lag_entries{server=\"3\"} 4001
stoa_member_lag_entries{server=\"4\"} 5001
stoa_peer_connected{server=\"2\"} 1
stoa_peer_connected{server=\"3\"} 1
stoa_peer_connected{server=\"4\"} 0
stoa_peer_received_bytes_total{server=\"2\"} 200
stoa_peer_received_bytes_total{server=\"3\"} 200
stoa_peer_received_bytes_total{server=\"4\"} 0
stoa_peer_sent_bytes_total{server=\"2\"} 9000
stoa_peer_sent_bytes_total{server=\"3\"} 9000
stoa_peer_sent_bytes_total{server=\"4\"} 0
stoa_peer_received_messages_total{server=\"2\"} 20
stoa_peer_received_messages_total{server=\"3\"} 20
stoa_peer_received_messages_total{server=\"4\"} 0
stoa_peer_sent_messages_total{server=\"2\"} 90
stoa_peer_sent_messages_total{server=\"3\"} 90
stoa_peer_sent_messages_total{server=\"4\"} 0
stoa_peer_queued_bytes{server=\"2\"} 0
stoa_peer_queued_bytes{server=\"3\"} 4096
stoa_peer_queued_bytes{server=\"4\"} 0
";

    #[test]
    fn prometheus_tells_of_every_other_server() {
        let text = |stats| prometheus(&Figures { stats, ..Figures::default() });
        let is_of_it = |line: &str| {
            let names = ["stoa_role", "stoa_in_quorum", "stoa_leader", "stoa_server_id", "stoa_term"];
            let series = ["stoa_timeline", "stoa_member", "stoa_peer"];
            let is_one = names.iter().chain(&series).any(|name| line.starts_with(name));
            is_one && !line.starts_with("stoa_peer_tls")
        };
        assert_eq!(of_ensemble(&text(leader()), is_of_it), LEADER);
        let looking = text(looking());
        for line in [
            "stoa_role{role=\"leader\"} 0",
            "stoa_role{role=\"looking\"} 1",
            "stoa_in_quorum 0",
            "stoa_peer_connected{server=\"4\"} 0",
        ] {
            assert!(looking.lines().any(|found| found == line), "{line} in {looking}");
        }
        for absent in
            ["stoa_leader_id ", "stoa_member_lag_entries", "\nlearners ", "stoa_peer_connected{server=\"2\"}"]
        {
            assert!(!looking.contains(absent), "{absent} in {looking}");
        }
        let alone = text(stats());
        assert!(!alone.contains("stoa_peer_connected") && !alone.contains("quorum_size"), "{alone}");
    }

    /// The figures of the hub's leader of the example that are about the sites.
    const HUB: &str = "\
stoa_site_connected{site=\"california\"} 1
stoa_site_connected{site=\"frankfurt\"} 0
stoa_site_round_trip_seconds{site=\"california\"} 0.0625
stoa_site_unshipped_entries{site=\"california\"} 3
stoa_site_unshipped_bytes{site=\"california\"} 700
stoa_site_unshipped_seconds{site=\"california\"} 0.031
stoa_site_imported_position{site=\"california\"} 40
stoa_site_imported_position{site=\"frankfurt\"} 0
stoa_site_lost_behind_zxid{site=\"frankfurt\"} 327683
stoa_forwarded_requests 6
stoa_held_answers 2
stoa_site_reign 1
stoa_site_lease_seconds 8.25
stoa_site_feature_level 1
stoa_site_feature_level_newest{site=\"california\"} 2
stoa_writes_local_total 100
stoa_writes_forwarded_total 7
stoa_token_grants_total 5
stoa_token_recalls_total 2
stoa_token_visits_total 1
";

    #[test]
    fn prometheus_tells_of_every_other_site() {
        let is_of_it = |line: &str| {
            let names = ["stoa_site_", "stoa_writes_", "stoa_token_", "stoa_forwarded_", "stoa_held_"];
            names.iter().any(|name| line.starts_with(name))
        };
        let text = |stats| of_ensemble(&prometheus(&Figures { stats, ..Figures::default() }), is_of_it);
        assert_eq!(text(hub()), HUB);
        let alone = |stats: &mut Stats| {
            let sites = stats.sites.as_mut().unwrap();
            (sites.is_lost, sites.lost_updates) = (true, Some(12));
        };
        let mut given_up = hub();
        alone(&mut given_up);
        assert!(text(given_up).contains("\nstoa_site_lost_updates 12\n"));
        assert_eq!(text(leader()), "");
    }

    /// The figures of the leader of the example that are about its forest.
    const FOREST: &str = "\
stoa_forest_trees 1
stoa_forest_fed_servers 2
stoa_forest_aside_servers 1
stoa_forest_late_seconds{server=\"2\"} 0
stoa_forest_late_seconds{server=\"3\"} 0.0015
stoa_forest_late_seconds{server=\"4\"} 0
stoa_forest_late_seconds{server=\"5\"} 0
stoa_forest_late_bytes{server=\"2\"} 0
stoa_forest_late_bytes{server=\"3\"} 900
stoa_forest_late_bytes{server=\"4\"} 0
stoa_forest_late_bytes{server=\"5\"} 0
stoa_forest_sent_frames_total 90
stoa_forest_sent_bytes_total 8000
stoa_forest_received_frames_total 0
stoa_forest_received_bytes_total 0
stoa_forest_pulls_sent_total 0
stoa_forest_pulls_answered_total 3
stoa_forest_complaints_sent_total 0
stoa_forest_complaints_received_total 0
stoa_forest_repairs_total 0
";

    #[test]
    fn prometheus_tells_of_the_forest_where_there_are_trees() {
        let text = |stats| {
            let is_of_it = |line: &str| line.starts_with("stoa_forest_");
            of_ensemble(&prometheus(&Figures { stats, ..Figures::default() }), is_of_it)
        };
        assert_eq!(text(feeder()), FOREST);
        let mut small = feeder();
        small.forest.as_mut().unwrap().shape = None;
        assert_eq!((text(small), text(leader())), (String::new(), String::new()));
    }

    #[test]
    fn prometheus_tells_of_readers_and_a_reader_of_its_parent() {
        let text = |stats| {
            let is_of_them = |line: &str| line.starts_with("stoa_") && line.contains("reader");
            of_ensemble(&prometheus(&Figures { stats, ..Figures::default() }), is_of_them)
        };
        let counts = "stoa_readers 1\nstoa_all_readers 5\nstoa_lagging_readers 1\nstoa_older_readers 1\nstoa_readers_refused_total 3\n";
        let parent = "stoa_reader_is_attached 1\nstoa_reader_behind_entries 4\nstoa_reader_distance 2\n\
                      stoa_reader_parents_found_total 5\n";
        assert_eq!(text(below()), format!("{counts}{parent}"));
        assert_eq!(
            text(leader()),
            "stoa_readers 0\nstoa_all_readers 0\nstoa_lagging_readers 0\nstoa_older_readers 0\nstoa_readers_refused_total 0\n"
        );
    }

    #[test]
    fn prometheus_text_is_well_formed() {
        let text = prometheus(&figures());
        for line in [
            "# TYPE readlatency summary",
            "readlatency{quantile=\"0.5\"} 0.25",
            "readlatency_count 100",
            "readlatency_sum 30",
            "# TYPE stoa_request_seconds histogram",
            "stoa_request_seconds_bucket{op=\"getData\",le=\"0.00025\"} 50",
            "stoa_request_seconds_bucket{op=\"getData\",le=\"0.001\"} 100",
            "stoa_request_seconds_bucket{op=\"getData\",le=\"+Inf\"} 100",
            "stoa_request_seconds_sum{op=\"getData\"} 0.03",
            "stoa_request_errors_total{op=\"getData\"} 4",
            "max_latency 7",
            "connection_request_count 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("stoa_snapshot_progress "), "absent while none is taken");
        let mut seen = std::collections::HashSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(seen.insert(name.to_owned()), "{name} is there twice");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
