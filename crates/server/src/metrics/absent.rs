//! The metrics of ZooKeeper that are left out, and why.

/// Why, and which: a name that ends with `*` stands for all that begin like that. Every metric of ZooKeeper is
/// here or in [`METRICS`](super::METRICS).
pub const ABSENT: &[(&str, &[&str])] = &[
    (
        "A request is prepared, stored and applied by one thread in its turns: there are no such stages with queues \
         between them. See `stoa_request_seconds` and `stoa_log_*`.",
        &[
            "close_session_prep_time",
            "commit_commit_proc_req_queued",
            "commit_process_time",
            "concurrent_request_processing_in_commit_processor",
            "learner_request_processor_queue_size",
            "local_write_committed_time_ms",
            "netty_queued_buffer_capacity",
            "outstanding_changes_queued",
            "outstanding_changes_removed",
            "pending_session_queue_size",
            "prep_process_time",
            "prep_processor_queue_size",
            "prep_processor_queue_time_ms",
            "prep_processor_request_queued",
            "proposal_process_time",
            "read_commit_proc_issued",
            "read_commit_proc_req_queued",
            "read_commitproc_time_ms",
            "read_final_proc_time_ms",
            "reads_after_write_in_session_queue",
            "reads_issued_from_session_queue",
            "request_commit_queued",
            "requests_in_session_queue",
            "requests_not_forwarded_to_commit_processor",
            "server_write_committed_time_ms",
            "session_queues_drained",
            "skip_learner_request_to_next_processor_count",
            "socket_closing_time",
            "sync_process_time",
            "sync_processor_queue_and_flush_time_ms",
            "sync_processor_queue_flush_time_ms",
            "sync_processor_queue_size",
            "sync_processor_queue_time_ms",
            "sync_processor_request_queued",
            "time_waiting_empty_pool_in_commit_processor_read_ms",
            "write_batch_time_in_commit_processor",
            "write_commit_proc_issued",
            "write_commit_proc_req_queued",
            "write_commitproc_time_ms",
            "write_final_proc_time_ms",
        ],
    ),
    (
        "Servers replicate by Raft: who lacks entries is sent them as all others are, many at a time, and looks at \
         them when they are committed; a position acknowledges everything before it. See `stoa_member_lag_entries`, \
         `stoa_peer_queued_bytes` and `quorum_ack_latency`.",
        &[
            "ack_latency",
            "commit_propagation_latency",
            "diff_count",
            "inflight_diff_count",
            "inflight_snap_count",
            "learner_handler_qp_size",
            "learner_handler_qp_time_ms",
            "learner_proposal_received_count",
            "om_commit_process_time_ms",
            "om_proposal_process_time_ms",
            "proposal_ack_creation_latency",
            "proposal_latency",
            "quit_leading_due_to_disloyal_voter",
        ],
    ),
    (
        "Connections of clients are not counted by their certificates.",
        &["cnxn_closed_without_zk_server_running", "non_mtls_local_conn_count", "non_mtls_remote_conn_count"],
    ),
    (
        "Nothing is throttled: above its limits the server reads no more from its clients until there is room, and \
         what waits of a connection is gone with it.",
        &[
            "connection_token_deficit",
            "request_throttle_queue_time_ms",
            "request_throttle_wait_count",
            "stale_requests",
            "stale_requests_dropped",
            "throttled_ops",
        ],
    ),
    ("There is no JVM. Memory and processor time are in `process_*`.", &["jvm_*"]),
    (
        "Replies are not cached.",
        &[
            "response_packet_cache_hits",
            "response_packet_cache_misses",
            "response_packet_get_children_cache_hits",
            "response_packet_get_children_cache_misses",
        ],
    ),
    (
        "The watches of a connection go with it, at once.",
        &[
            "add_dead_watcher_stall_time",
            "dead_watchers_cleaner_latency",
            "dead_watchers_cleared",
            "dead_watchers_queued",
        ],
    ),
    (
        "A running server takes no files over, and takes every snapshot that it is asked for.",
        &["restore_error_count", "restore_rate_limited_count", "restore_time", "snapshot_rate_limited_count"],
    ),
    (
        "That would take a look-up for each request. See the admin command `partitions`.",
        &["read_per_namespace", "write_per_namespace"],
    ),
    (
        "Servers do not compare their trees while they run: the word `hash` tells the digest of each.",
        &["digest_mismatches_count"],
    ),
];

/// The same in Markdown, one row a reason.
pub fn absent_table() -> String {
    let mut table = String::from("| why | metrics |\n| --- | --- |\n");
    for (why, names) in ABSENT {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        table += &format!("| {why} | {} |\n", names.join(", "));
    }
    table
}
