//! One client of the lock.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoa_client::recipes::Lock;
use stoa_proxy::Alarm;
use tokio::sync::mpsc;

use super::counted::Counted;
use super::report::Results;
use super::visits::Visit;
use crate::bench::clock::{Clock, nanos};
use crate::failure::{Failure, Result};

/// What the clients of a run have in common.
pub(super) struct LockRun {
    pub(super) clock: Clock,
    results: Mutex<Results>,
}

impl LockRun {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, results: Mutex::new(Results::new()) }
    }

    /// The results so far.
    pub(super) fn results(&self) -> MutexGuard<'_, Results> {
        // Counts stay valid wherever a client stopped.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the lock when it is told to, and gives it back when its time is up.
pub(super) struct Locker {
    number: usize,
    client: Counted,
    lock: Lock<Counted>,
    shared: Arc<LockRun>,
}

impl Locker {
    pub(super) fn new(number: usize, client: &Counted, lock: Lock<Counted>, shared: Arc<LockRun>) -> Self {
        Self { number, client: client.clone(), lock, shared }
    }

    /// Makes visits until there are no more, and tells of each.
    pub(super) async fn work(
        self,
        mut visits: mpsc::UnboundedReceiver<Visit>,
        tell: mpsc::UnboundedSender<Result<usize>>,
    ) {
        while let Some(visit) = visits.recv().await {
            let done = self.make(visit).await.map(|()| self.number);
            let done = done.map_err(|why| Failure::failed(format!("a client cannot go on: {why}")));
            // Nobody listens any more when another one has failed.
            if tell.send(done).is_err() {
                return;
            }
        }
    }

    async fn make(&self, visit: Visit) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
        let clock = self.shared.clock;
        let chosen = self.lock.choice().primitive;
        let (wanted, sent) = (clock.now(), self.client.requests());
        let held = self.lock.acquire().await?;
        let now = clock.now();
        let sent = self.client.requests() - sent;
        self.shared.results().acquired(visit, chosen, sent, now);
        self.shared.results().resource.enter(self.number, held.token(), wanted, now);
        self.need(visit.section).await?;
        self.shared.results().resource.leave(self.number, clock.now());
        held.release().await?;
        Ok(())
    }

    /// The critical section.
    async fn need(&self, section: Duration) -> io::Result<()> {
        let now = self.shared.clock.now();
        Alarm::new()?.until(now + nanos(section), now).await
    }
}
