//! A client whose requests are counted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoa_client::protocol::{Call, Reply, WatchId};
use stoa_client::recipes::{Service, Situation};
use stoa_client::{Client, ErrorCode, Watch};

/// Counts what recipes ask of a client; a multi is one request.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) client: Client,
    requests: Arc<AtomicU64>,
}

impl Counted {
    pub(super) fn new(client: Client) -> Self {
        Self { client, requests: Arc::default() }
    }

    /// How many there have been.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Service for Counted {
    type Watch = Watch;

    async fn call(&self, call: Call) -> Result<Reply, ErrorCode> {
        self.count();
        self.client.call(call).await
    }

    async fn call_and_watch(
        &self,
        call: impl FnOnce(WatchId) -> Call + Send,
    ) -> (Result<Reply, ErrorCode>, Watch) {
        self.count();
        Service::call_and_watch(&self.client, call).await
    }

    fn situation(&self) -> Situation {
        self.client.situation()
    }

    async fn changed(&self, from: Situation) {
        self.client.changed(from).await;
    }

    fn now(&self) -> Duration {
        self.client.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.client.sleep(duration).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.client.spawn(task);
    }

    fn unique(&self) -> u64 {
        self.client.unique()
    }
}
