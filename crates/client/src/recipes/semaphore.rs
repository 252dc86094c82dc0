//! A semaphore.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::Acl;

use super::contender::Contender;
use super::error::Error;
use super::held::Held;
use super::lock::{Lock, Primitive};
use super::service::{Events, Service};
use super::znodes::Znodes;

/// A semaphore: so many clients at most hold a lease of it, as far as the service knows.
///
/// A lease is an ephemeral sequential znode below `PATH/leases`, and it holds when fewer than the limit are
/// before it. Who waits does so behind a lock at `PATH/gate`, so that one client alone watches the leases,
/// whichever of them ends. It is fair, and as safe as [`Lock`] is, and losses and dropped futures are dealt
/// with as there. All clients have to agree on the limit.
#[derive(Debug, Clone)]
pub struct Semaphore<S> {
    znodes: Znodes<S>,
    gate: Lock<S>,
    leases: String,
    limit: usize,
}

impl<S: Service> Semaphore<S> {
    /// The semaphore at a path, of which `limit` leases may be held at once.
    #[must_use]
    pub fn new(service: &S, path: &str, limit: usize) -> Self {
        Self {
            znodes: Znodes::new(service),
            gate: Lock::with(service, &format!("{path}/gate"), Primitive::AsyncQueueWatch),
            leases: format!("{path}/leases"),
            limit,
        }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.gate = self.gate.acl(acl.clone());
        self.znodes.acl = acl;
        self
    }

    /// Waits for a lease.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Held<S>, Error> {
        let gate = self.gate.acquire().await?;
        // Whoever has the gate may have lost it since: it is the place among the leases that counts.
        let lease = Contender::enter(&self.znodes, &self.leases, "lease", b"").await?;
        loop {
            let listed = self.znodes.children_and_watch(&self.leases).await?;
            let Some((names, mut watch)) = listed else { return Err(lease.gone()) };
            if lease.before(&names)?.0.len() < self.limit {
                break;
            }
            // An event or the end of the watch: look again.
            let _ = watch.next().await;
        }
        // Whoever waits behind us need not wait for the answer.
        drop(gate);
        Ok(Held::new(lease))
    }
}
