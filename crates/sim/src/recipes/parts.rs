//! What processes do with recipes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stoa_client::ErrorCode;
use stoa_client::recipes::{
    Barrier, Cache, Counter, DoubleBarrier, Election, Error, Group, Held, Lock, Primitive, Queue, RwLock,
    Semaphore, Service as _, Token,
};
use stoa_client::{Acl, CreateMode};
use stoa_client_core::Call;

use super::book::{
    self, BARRIER, Book, COUNTER, DATA, ELECTION, GROUP, Holding, LOCK, MEETING, QUEUE, SEMAPHORE, element,
    read_element,
};
use super::plan::Play;
use super::service::Simulated;
use crate::rng::Rng;

/// How many may have a lease of the semaphore.
const LEASES: usize = 2;
/// How many meet at the barrier.
const SIZE: usize = 3;

/// A process, as its program sees it.
pub(super) struct Part {
    index: usize,
    client: Simulated,
    book: Arc<Mutex<Book>>,
    rng: Rng,
}

impl Part {
    pub(super) fn new(index: usize, client: &Simulated, book: &Arc<Mutex<Book>>, rng: Rng) -> Self {
        Self { index, client: client.clone(), book: Arc::clone(book), rng }
    }

    /// Plays until the end comes.
    pub(super) async fn play(mut self, play: Play) {
        match play {
            Play::Lock => self.locks().await,
            Play::ReadWrite => self.reads_and_writes().await,
            Play::Semaphore => self.leases().await,
            Play::Election if self.index == 0 => self.observes().await,
            Play::Election => self.campaigns().await,
            Play::Counter => self.counts().await,
            Play::Queue => self.queues().await,
            Play::Meeting => self.meets().await,
            Play::Barrier if self.index == 0 => self.sets_barrier().await,
            Play::Barrier => self.waits_at_barrier().await,
            Play::Group => self.joins().await,
            Play::Cache if self.index == 0 => self.copies().await,
            Play::Cache => self.writes().await,
        }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        book::lock(&self.book)
    }

    fn goes_on(&self) -> bool {
        !self.book().is_finishing
    }

    async fn pause(&mut self, around_us: u64) {
        let us = self.rng.around(around_us);
        self.client.sleep(Duration::from_micros(us)).await;
    }

    /// Waits for something, unless it takes too long; it always does at the end.
    async fn patiently<T>(&mut self, wait: impl Future<Output = T> + Send) -> Option<T> {
        let patience_us = self.rng.around(300_000);
        let result = self.client.within(patience_us, wait).await;
        if result.is_none() {
            self.book().counts.given_up += 1;
        }
        result
    }

    /// Somebody has what it waited for: works with it for a while and gives it back.
    async fn holds(&mut self, what: &'static str, held: Held<Simulated>, is_exclusive: bool, limit: usize) {
        self.works(what, &held, is_exclusive, limit).await;
        self.gives_back(held).await;
    }

    /// Somebody has what it waited for, and works with it for a while.
    async fn works(&mut self, what: &'static str, held: &Held<Simulated>, is_exclusive: bool, limit: usize) {
        let token = held.token().0;
        self.book().hold(what, Holding { session: held.session(), token, is_exclusive }, limit);
        let mean_us = match self.rng.below(20) {
            0 => 1_000_000,
            1 | 2 => 100_000,
            _ => 10_000,
        };
        let works_us = self.rng.around(mean_us);
        let lost = self.client.within(works_us, held.lost()).await.is_some();
        if lost {
            self.book().counts.lost += 1;
        } else if is_exclusive && limit == 1 {
            self.book().write(what, token);
        }
        self.book().let_go(what, token);
    }

    async fn gives_back(&mut self, held: Held<Simulated>) {
        if self.rng.one_in(3) {
            drop(held);
        } else {
            let _ = held.release().await;
        }
    }

    /// Takes the lock in one way or another, and others do so otherwise.
    async fn locks(&mut self) {
        let ways = Primitive::ALL.len();
        let lock = match self.rng.index(ways + 2) {
            way if way < ways => Lock::with(&self.client, LOCK, Primitive::ALL[way]),
            _ => Lock::new(&self.client, LOCK),
        };
        while self.goes_on() {
            let held = match self.rng.below(6) {
                0 => self.patiently(lock.try_acquire()).await.and_then(Result::transpose),
                // However long it takes.
                1 => Some(lock.acquire().await),
                _ => self.patiently(lock.acquire()).await,
            };
            if let Some(Ok(held)) = held {
                self.holds(LOCK, held, true, 1).await;
            }
            self.pause(10_000).await;
        }
    }

    async fn reads_and_writes(&mut self) {
        let lock = RwLock::new(&self.client, LOCK);
        while self.goes_on() {
            let writes = self.rng.one_in(3);
            let held = match (writes, self.rng.one_in(3)) {
                // However long it takes.
                (true, true) => Some(lock.write().await),
                (true, false) => self.patiently(lock.write()).await,
                (false, _) => self.patiently(lock.read()).await,
            };
            if let Some(Ok(held)) = held {
                self.holds(LOCK, held, writes, 1).await;
            }
            self.pause(10_000).await;
        }
    }

    async fn leases(&mut self) {
        let semaphore = Semaphore::new(&self.client, SEMAPHORE, LEASES);
        while self.goes_on() {
            if let Some(Ok(held)) = self.patiently(semaphore.acquire()).await {
                self.holds(SEMAPHORE, held, true, LEASES).await;
            }
            self.pause(10_000).await;
        }
    }

    async fn campaigns(&mut self) {
        // Both forms at once.
        let form = if self.rng.one_in(2) { Election::extended } else { Election::new };
        let election = form(&self.client, ELECTION);
        while self.goes_on() {
            let name = [self.index as u8];
            let mut leads = self.patiently(election.campaign(&name)).await;
            while let Some(Ok(held)) = leads.take() {
                self.works(ELECTION, &held, true, 1).await;
                if self.goes_on() && self.rng.one_in(2) {
                    leads = self.patiently(election.requeue(held, &name)).await;
                } else {
                    self.gives_back(held).await;
                }
            }
            self.pause(10_000).await;
        }
    }

    /// Follows who leads.
    async fn observes(&mut self) {
        let election = Election::new(&self.client, ELECTION);
        let mut last: Option<Token> = None;
        while self.goes_on() {
            let next = if self.rng.one_in(4) {
                self.patiently(election.leader()).await.and_then(Result::transpose)
            } else {
                self.patiently(election.next_leader(last)).await
            };
            let Some(Ok(leader)) = next else { continue };
            self.book().counts.changes += 1;
            if last.is_some_and(|last| last > leader.token) {
                self.book().wrong(format!("{leader:?} leads after {last:?}"));
            }
            last = Some(leader.token);
        }
    }

    async fn counts(&mut self) {
        // Both forms at once.
        let is_extended = self.rng.one_in(2);
        let form = if is_extended { Counter::extended } else { Counter::new };
        let mut counter = form(&self.client, COUNTER);
        while self.goes_on() {
            self.book().adds(self.index);
            match self.patiently(counter.add(1)).await {
                Some(Ok(sum)) => self.book().has_added(self.index, Some(sum)),
                Some(Err(Error::Uncertain)) | None => self.book().has_added_perhaps(self.index),
                Some(Err(_)) => self.book().has_added(self.index, None),
            }
            self.pause(5000).await;
        }
    }

    async fn queues(&mut self) {
        // Both forms at once.
        let is_extended = self.rng.one_in(2);
        let form = if is_extended { Queue::extended } else { Queue::new };
        let mut queue = form(&self.client, QUEUE);
        while self.goes_on() {
            if self.rng.one_in(2) {
                let number = self.client.unique();
                self.book().puts(number);
                let data = element(number);
                if let Some(Ok(())) = self.patiently(queue.put(&data)).await {
                    self.book().has_put(number);
                }
            } else {
                self.takes(&mut queue).await;
            }
            self.pause(5000).await;
        }
    }

    async fn takes(&mut self, queue: &mut Queue<Simulated>) {
        self.book().takes(self.index);
        // Impatient now and then, so that it gives up in the middle.
        let patience_us = *self.rng.pick(&[300, 1000, 100_000, 300_000]);
        let waits = self.rng.one_in(2);
        let taken = if waits {
            let take = async { queue.take().await.map(Some) };
            self.client.within(patience_us, take).await
        } else {
            self.client.within(patience_us, queue.try_take()).await
        };
        let mut book = self.book();
        match taken {
            None => {
                book.counts.given_up += 1;
                book.gives_up_taking(self.index);
            }
            Some(Ok(data)) => {
                let element = data.as_deref().map(|data| read_element(data).unwrap_or(0));
                book.has_taken(self.index, element);
            }
            Some(Err(Error::Uncertain)) => book.has_taken_perhaps(self.index),
            Some(Err(_)) => book.has_taken(self.index, None),
        }
    }

    async fn meets(&mut self) {
        // Both forms at once.
        let form = if self.rng.one_in(2) { DoubleBarrier::extended } else { DoubleBarrier::new };
        let barrier = form(&self.client, MEETING, SIZE);
        while self.goes_on() {
            self.book().enters(self.index);
            let Some(Ok(entered)) = self.patiently(barrier.enter()).await else {
                self.book().vanishes(self.index, Ok(self.index));
                self.pause(20_000).await;
                continue;
            };
            self.book().has_entered(self.index, entered.session(), SIZE);
            self.pause(10_000).await;
            let others = self.book().leaves(self.index);
            match entered.leave().await {
                Ok(()) => self.book().has_left(self.index, &others),
                Err(_) => self.book().vanishes(self.index, Ok(self.index)),
            }
            self.pause(20_000).await;
        }
    }

    async fn sets_barrier(&mut self) {
        let barrier = Barrier::new(&self.client, BARRIER);
        while self.goes_on() {
            let is_set = barrier.set().await.is_ok();
            self.book().barrier_is_set(is_set);
            self.pause(100_000).await;
            self.book().barrier_is_set(false);
            // It is made again only when it is known to be gone.
            while barrier.lift().await.is_err() {
                self.pause(5000).await;
            }
            self.pause(30_000).await;
        }
    }

    async fn waits_at_barrier(&mut self) {
        let barrier = Barrier::new(&self.client, BARRIER);
        while self.goes_on() {
            let since = self.book().waits_at_barrier();
            if let Some(Ok(())) = self.patiently(barrier.wait()).await {
                self.book().passes_barrier(since);
            }
            self.pause(10_000).await;
        }
    }

    async fn joins(&mut self) {
        let group = Group::new(&self.client, GROUP);
        let mut members = group.watch();
        while self.goes_on() {
            let name = format!("member-{}", self.index);
            let Some(Ok(membership)) = self.patiently(group.join(&name, b"data")).await else { continue };
            let seen = self.patiently(members.next()).await;
            let listed = group.members().await;
            let is_in = |listed: &[stoa_client::recipes::Member]| listed.iter().any(|it| it.name == name);
            let lost = self.client.within(1, membership.lost()).await.is_some();
            if !lost && listed.is_ok_and(|listed| !is_in(&listed)) {
                self.book().wrong(format!("{name} has joined, and is not listed"));
            }
            self.book().counts.changes += u64::from(seen.is_some());
            self.pause(20_000).await;
            if self.rng.one_in(2) {
                let _ = membership.leave().await;
            }
        }
    }

    /// Changes the subtree that another one copies.
    async fn writes(&mut self) {
        while self.goes_on() {
            let above = format!("{DATA}/{}", self.rng.index(3));
            let path = if self.rng.one_in(2) { above } else { format!("{above}/{}", self.rng.index(2)) };
            let data = format!("by {} at {}", self.index, self.client.unique()).into_bytes();
            let create = |path: &str, data: &[u8]| Call::Create {
                path: path.to_owned(),
                data: data.to_vec(),
                acl: Acl::open(),
                mode: CreateMode::Persistent,
                ttl_ms: None,
                with_stat: false,
            };
            let call = match self.rng.below(4) {
                0 => Call::Delete { path, version: None },
                1 => create(&path, &data),
                _ => Call::SetData { path, data, version: None },
            };
            if self.client.call(call).await == Err(ErrorCode::NoNode) {
                for path in ["/recipes", DATA] {
                    let _ = self.client.call(create(path, b"")).await;
                }
            }
            self.pause(8000).await;
        }
    }

    async fn copies(&mut self) {
        let mut cache = Cache::new(&self.client, DATA);
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        loop {
            let at_end = self.book().busy.iter().all(|who| *who == self.index);
            if at_end {
                let _ = self.client.call(Call::Sync { path: DATA.to_owned() }).await;
            }
            match self.patiently(cache.update()).await {
                Some(Ok(changed)) => {
                    self.book().counts.changes += changed.len() as u64;
                    for (path, cached) in cache.iter() {
                        let newest = newest.entry(path.to_owned()).or_default();
                        if cached.stat.mzxid < *newest {
                            self.book().wrong(format!("the copy of {path} goes back in time"));
                        }
                        *newest = cached.stat.mzxid;
                    }
                }
                // Nothing changes any more.
                None if at_end => break,
                _ => self.pause(1000).await,
            }
        }
        let copy = cache.iter().map(|(path, cached)| (path.to_owned(), cached.clone()));
        let copy = copy.collect();
        self.book().copied(copy);
    }
}
