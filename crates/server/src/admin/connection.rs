//! Connections of admin HTTP, with bounds on what any of them can take.
//!
//! One request a connection, a few connections at a time, short and few headers, no body worth
//! mentioning, and a deadline for the whole of it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// Connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// Connections of one address at a time; more are closed. Somebody who holds on to all of his does not
/// keep others out.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 32;
/// Time for the headers to arrive.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Time for a whole request and its reply.
const REQUEST_TIME: Duration = Duration::from_secs(20);
const HEADER_BYTES_MAX: usize = 16 << 10;
/// No request here has a body that is looked at.
const BODY_BYTES_MAX: usize = 1 << 10;
/// Between two attempts when no connection can be accepted, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When a connection is closed, whatever it is doing. A handler that has work to wait for can put it
/// off.
#[derive(Clone)]
pub(super) struct Deadline(Arc<watch::Sender<Instant>>);

impl Deadline {
    fn new() -> (Deadline, watch::Receiver<Instant>) {
        let (sender, receiver) = watch::channel(Instant::now() + REQUEST_TIME);
        (Deadline(Arc::new(sender)), receiver)
    }

    /// Sets it this far from now.
    pub(super) fn put_off(&self, time: Duration) {
        // Nobody listens when the connection is gone.
        let _ = self.0.send(Instant::now() + time);
    }
}

/// Returns at the deadline, however often it is put off.
async fn reached(mut deadline: watch::Receiver<Instant>) {
    loop {
        let at = *deadline.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(at) => return,
            changed = deadline.changed() => if changed.is_err() {
                tokio::time::sleep_until(at).await;
                return;
            },
        }
    }
}

/// Accepts and serves connections, for as long as the process runs.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("no admin HTTP: {error}");
            return;
        }
    };
    let router = router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut by_address: HashMap<IpAddr, Weak<Semaphore>> = HashMap::new();
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((socket, peer)) => {
                let Some(own_slot) = slot_of_address(&mut by_address, peer.ip()) else {
                    tracing::debug!("admin HTTP: {peer}: too many connections from this address");
                    continue;
                };
                let router = router.clone();
                tokio::spawn(async move {
                    connection(socket, peer, router).await;
                    drop((slot, own_slot));
                });
            }
            Err(error) => {
                tracing::debug!("admin HTTP: a connection cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A slot of those that an address has, if one is free. What is kept of an address goes with the last
/// of its connections.
fn slot_of_address(
    by_address: &mut HashMap<IpAddr, Weak<Semaphore>>,
    address: IpAddr,
) -> Option<OwnedSemaphorePermit> {
    let slots = by_address.get(&address).and_then(Weak::upgrade).unwrap_or_else(|| {
        by_address.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_PER_ADDRESS_MAX));
        by_address.insert(address, Arc::downgrade(&slots));
        slots
    });
    slots.try_acquire_owned().ok()
}

async fn connection(socket: TcpStream, peer: SocketAddr, router: Router) {
    let (deadline, watched) = Deadline::new();
    let service = router.layer(Extension(peer)).layer(Extension(deadline));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(service));
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!("admin HTTP: {peer}: {error}");
        },
        () = reached(watched) => tracing::debug!("admin HTTP: {peer}: took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_keep_others_out() {
        let mut by_address = HashMap::new();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let held: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|_| slot_of_address(&mut by_address, address(1)).unwrap())
            .collect();
        assert!(slot_of_address(&mut by_address, address(1)).is_none());
        assert!(slot_of_address(&mut by_address, address(2)).is_some());
        drop(held);
        assert!(slot_of_address(&mut by_address, address(1)).is_some());
        assert!(slot_of_address(&mut by_address, address(3)).is_some());
        assert_eq!(by_address.len(), 1, "addresses without connections are forgotten");
    }
}
