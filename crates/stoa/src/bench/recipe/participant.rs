//! One client: its part in each recipe (Figures 5, 7, 9 and 11 of the paper), with requests that every server of
//! the protocol takes.

use std::error::Error;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stoa_client::protocol::Call;
use stoa_client::{Client, CreateMode, ErrorCode, Watch};
use tokio::sync::Barrier;

use super::tally::Tally;
use super::{Form, ROOT, Recipe};
use crate::bench::clock::{Clock, Nanos};

type Answer<T> = Result<T, ErrorCode>;
/// Whatever is refused and not a part of the recipe ends the run.
pub(super) type Played = Result<(), Box<dyn Error + Send + Sync>>;

/// What the clients of a run have in common.
pub(super) struct RecipeRun {
    clock: Clock,
    tally: Mutex<Tally>,
    clients: usize,
    /// Where the rounds of the recipe for barriers begin and end.
    meeting: Barrier,
    /// When the last leader began to abdicate. There is one leader at a time, so one place is enough.
    pub(super) abdicated: AtomicU64,
}

impl RecipeRun {
    pub(super) fn new(clock: Clock, tally: Tally, clients: usize) -> Self {
        let (tally, meeting) = (Mutex::new(tally), Barrier::new(clients));
        Self { clock, tally, clients, meeting, abdicated: AtomicU64::new(0) }
    }

    pub(super) fn clients(&self) -> usize {
        self.clients
    }

    /// Time since the run began.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Waits for all clients; returns whether this one is to act for them.
    pub(super) async fn meet(&self) -> bool {
        self.meeting.wait().await.is_leader()
    }

    /// The results so far.
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        // Counts stay valid wherever a client stopped.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of the run.
pub(super) struct Participant {
    pub(super) number: usize,
    pub(super) client: Client,
    pub(super) form: Form,
    pub(super) shared: Arc<RecipeRun>,
}

impl Participant {
    /// Does its part again and again, until it is dropped or refused.
    pub(super) async fn run(self, recipe: Recipe) -> Played {
        if self.form == Form::Extension {
            return self.run_extended(recipe).await;
        }
        loop {
            match recipe {
                Recipe::Counter => self.timed("increment", self.increment()).await?,
                Recipe::Queue => {
                    self.timed("add", self.add(&format!("{ROOT}/queue"))).await?;
                    self.timed("remove", self.remove()).await?;
                }
                Recipe::Barrier => {
                    self.shared.meet().await;
                    self.timed("enter", self.enter()).await?;
                    if self.shared.meet().await {
                        self.end_round().await?;
                    }
                }
                Recipe::Election => self.lead().await?,
                // It is nothing without a program.
                Recipe::Greedy => return Ok(()),
            }
        }
    }

    /// Does something and counts it.
    pub(super) async fn timed<E: Error + Send + Sync + 'static>(
        &self,
        step: &'static str,
        operation: impl Future<Output = Result<(), E>>,
    ) -> Played {
        let began = self.shared.now();
        self.begin(step, Some(began));
        operation.await?;
        self.done(began, self.shared.now());
        Ok(())
    }

    pub(super) fn begin(&self, step: &'static str, began: Option<Nanos>) {
        self.shared.tally().begin(self.number, step, began, self.client.bytes_sent());
    }

    pub(super) fn done(&self, began: Nanos, now: Nanos) {
        self.shared.tally().done(self.number, began, now, self.client.bytes_sent());
    }

    async fn increment(&self) -> Answer<()> {
        let path = format!("{ROOT}/ctr");
        loop {
            let (data, stat) = self.client.get_data(&path).await?;
            let count: u64 = std::str::from_utf8(&data)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(ErrorCode::MarshallingError)?;
            let next = (count + 1).to_string();
            match self.client.set_data(&path, next.as_bytes(), Some(stat.version)).await {
                Err(ErrorCode::BadVersion) => {}
                written => return written.map(drop),
            }
        }
    }

    /// Adds an empty element.
    pub(super) async fn add(&self, items: &str) -> Answer<()> {
        let path = format!("{items}/item-");
        self.client.create(&path, b"", CreateMode::PersistentSequential).await.map(drop)
    }

    async fn remove(&self) -> Answer<()> {
        loop {
            // Sequential names are in the order of creation. Only the element that is tried is read: its data is
            // the answer.
            let mut names = self.client.get_children(&format!("{ROOT}/queue")).await?;
            names.sort_unstable();
            for name in names {
                let path = format!("{ROOT}/queue/{name}");
                match self.client.get_data(&path).await {
                    Err(ErrorCode::NoNode) => continue,
                    read => read.map(drop)?,
                }
                match self.client.delete(&path, None).await {
                    Err(ErrorCode::NoNode) => {}
                    deleted => return deleted,
                }
            }
        }
    }

    async fn enter(&self) -> Answer<()> {
        let own = format!("{ROOT}/barrier/client-{}", self.number);
        self.client.create(&own, b"", CreateMode::Persistent).await?;
        let ready = format!("{ROOT}/ready");
        if self.client.get_children(&format!("{ROOT}/barrier")).await?.len() < self.shared.clients {
            return self.block(&ready).await;
        }
        match self.client.create(&ready, b"", CreateMode::Persistent).await {
            // Another one has seen that all are there, too.
            Err(ErrorCode::NodeExists) => Ok(()),
            created => created.map(drop),
        }
    }

    /// Has the barrier as it was before the round. Who enters it next makes or asks something that comes after
    /// this, so nobody sees the old one.
    async fn end_round(&self) -> Answer<()> {
        let members = (0..self.shared.clients).map(|number| format!("{ROOT}/barrier/client-{number}"));
        let paths = members.chain([format!("{ROOT}/ready")]);
        let deletes = paths.map(|path| Call::Delete { path, version: None });
        self.client.call_all(deletes).await.into_iter().try_for_each(|deleted| deleted.map(drop))
    }

    /// Becomes the leader and abdicates. What is counted is the time from when the one before began to.
    async fn lead(&self) -> Answer<()> {
        self.begin("change", None);
        let own = self.become_leader().await?;
        let now = self.shared.now();
        let began = self.shared.abdicated.swap(now, Ordering::Relaxed);
        self.client.delete(&own, None).await?;
        self.done(began, now);
        Ok(())
    }

    /// Returns the znode that makes it the leader. As is usual, each candidate watches the one before it, so that
    /// the end of one wakes one.
    async fn become_leader(&self) -> Answer<String> {
        let candidates = format!("{ROOT}/leader");
        let path = format!("{candidates}/candidate-");
        let own = self.client.create(&path, b"", CreateMode::EphemeralSequential).await?;
        loop {
            let mut names = self.client.get_children(&candidates).await?;
            names.sort_unstable();
            let place = names.iter().position(|name| own.ends_with(name)).ok_or(ErrorCode::NoNode)?;
            let Some(before) = place.checked_sub(1) else { return Ok(own) };
            let before = format!("{candidates}/{}", names[before]);
            if let (Some(_), watch) = self.client.exists_and_watch(&before).await? {
                told(watch).await?;
            }
        }
    }

    /// Waits until there is a znode at the path.
    async fn block(&self, path: &str) -> Answer<()> {
        match self.client.exists_and_watch(path).await? {
            (Some(_), _) => Ok(()),
            (None, watch) => told(watch).await,
        }
    }
}

async fn told(mut watch: Watch) -> Answer<()> {
    watch.next().await.map(drop).map_err(|_| ErrorCode::ConnectionLoss)
}
