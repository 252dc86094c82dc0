//! What tests with real processes share.

#![allow(dead_code, reason = "each file has a module of its own of this, and not all use all")]

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use stoa_client::ErrorCode;

/// Longer than anything here takes on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A port that nobody listens on, and that is given once; below those that the system gives to connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 18_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never comes that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does something that may be cut off by a change of leader until it is done.
pub(crate) fn insist<T>(mut call: impl FnMut() -> Result<T, ErrorCode>) -> Result<T, ErrorCode> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(ErrorCode::ConnectionLoss) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}
