//! What is known of the connections.

use std::net::SocketAddr;

use stoa_wire::Opcode;

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// Where there are several partitions: the one whose thread has it.
    pub partition: Option<u8>,
    /// Whether the server reads from it now; it does not while too much is under way.
    pub reading: bool,
    /// Whether replies wait for the client to read.
    pub writing: bool,
    /// Requests under way.
    pub outstanding: u64,
    /// Frames received.
    pub packets_received: u64,
    /// Frames sent.
    pub packets_sent: u64,
    /// When it was accepted, milliseconds since the epoch.
    pub established_ms: i64,
    /// Its session, once the handshake is done.
    pub session: Option<ConnectionSession>,
}

/// What a connection knows of its session and of the requests on it.
#[derive(Clone, Debug)]
pub struct ConnectionSession {
    /// The session.
    pub id: i64,
    /// Its timeout.
    pub timeout_ms: u32,
    /// The last request.
    pub last_op: Option<Opcode>,
    /// The last request's xid, if there was one.
    pub last_xid: Option<i32>,
    /// The zxid in the last reply.
    pub last_zxid: i64,
    /// When the last reply was written, milliseconds since the server started.
    pub last_reply_ms: u64,
    /// Latency of the last request.
    pub latency_last_us: u64,
    /// Least latency.
    pub latency_min_us: u64,
    /// Mean latency.
    pub latency_avg_us: u64,
    /// Largest latency.
    pub latency_max_us: u64,
}
