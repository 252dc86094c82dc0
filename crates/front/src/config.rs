//! What the driver decides once about clients.

use crate::auth::Authentication;

/// Settings of a front.
#[derive(Debug, Clone)]
pub struct Config {
    /// The partition of its thread.
    pub partition: u8,
    /// How many partitions there are, from 1.
    pub partitions: u8,
    /// Resolution of session expiry, milliseconds.
    pub tick_ms: u32,
    /// Least session timeout that is granted, milliseconds.
    pub session_timeout_min_ms: i32,
    /// How long a client that only reads may wait for an answer before it is sent away, milliseconds.
    pub patience_ms: u64,
    /// How clients prove who they are.
    pub authentication: Authentication,
    /// Random, and the same for all threads of a server: proves of what clients claim to have seen that the
    /// server has told them.
    pub direct_secret: [u8; 32],
    /// Bounds on what clients can make the server hold.
    pub limits: Limits,
}

/// Bounds on what clients can make the server hold.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Longest frame from a client (`jute.maxbuffer`), bytes.
    pub frame_bytes: usize,
    /// A longer frame, up to this length, is skipped and answered with an error; beyond it the
    /// connection is closed. Bytes.
    pub frame_skip_bytes: usize,
    /// Connections in all; 0 is no limit.
    pub connections: usize,
    /// Connections from one address; 0 is no limit.
    pub connections_per_address: usize,
    /// Requests under way in all; above it nothing more is read.
    pub outstanding: usize,
    /// Requests under way of one connection; above it nothing more is read from it.
    pub outstanding_per_connection: usize,
    /// Bytes of requests that wait on one connection; above it nothing more is read from it.
    pub queued_bytes_per_connection: usize,
    /// Bytes of log entries under way, and of what waits for a leader; above it nothing more is read.
    pub log_queue_bytes: usize,
    /// Bytes waiting to be sent on one connection above which nothing more is read from it.
    pub output_pause_bytes: usize,
    /// Bytes waiting to be sent on one connection above which it is closed.
    pub output_close_bytes: usize,
    /// Time that a connection may take for its handshake, milliseconds.
    pub handshake_ms: u32,
    /// What is applied in one turn, between what others want: an update costs 1, a client that is answered 8.
    pub turn_cost: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 0xf_ffff,
            frame_skip_bytes: 64 << 20,
            connections: 0,
            connections_per_address: 60,
            outstanding: 16_384,
            outstanding_per_connection: 2048,
            queued_bytes_per_connection: 4 << 20,
            log_queue_bytes: 64 << 20,
            output_pause_bytes: 1 << 20,
            output_close_bytes: 128 << 20,
            handshake_ms: 10_000,
            turn_cost: 4096,
        }
    }
}
