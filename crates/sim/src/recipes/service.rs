//! The client that recipes are given: what they ask for lies on a desk, and so do the answers.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stoa_client::ErrorCode;
use stoa_client::recipes::{Events, Service, Situation};
use stoa_client_core::{Call, Event, Reply, State, Token, WatchEnd, WatchId};

use super::executor::Task;
use crate::rng::Rng;

type Answer = Result<Reply, ErrorCode>;

/// A client, as the tasks of its process see it.
#[derive(Clone)]
pub(super) struct Simulated(Arc<Mutex<Desk>>);

/// What is on its way between the tasks of a process and its connection.
pub(super) struct Desk {
    pub(super) now_us: u64,
    rng: Rng,
    /// Calls that were made and not yet submitted.
    pub(super) made: VecDeque<(Token, Call)>,
    /// Tasks that were begun and not yet run.
    pub(super) spawned: Vec<Task>,
    pub(super) calls: u64,
    next: u64,
    answers: BTreeMap<Token, Awaited>,
    watches: BTreeMap<WatchId, Watched>,
    situation: Situation,
    observers: Vec<Waker>,
    timers: BTreeMap<(u64, u64), Waker>,
    /// The process has ended.
    is_over: bool,
}

struct Awaited {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Watched {
    events: VecDeque<Result<Event, WatchEnd>>,
    waker: Option<Waker>,
}

impl Simulated {
    pub(super) fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(Desk {
            now_us: 0,
            rng,
            made: VecDeque::new(),
            spawned: Vec::new(),
            calls: 0,
            next: 0,
            answers: BTreeMap::new(),
            watches: BTreeMap::new(),
            situation: Situation { state: State::Connecting, session: None, connections: 0 },
            observers: Vec::new(),
            timers: BTreeMap::new(),
            is_over: false,
        })))
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a future, but not for longer than that.
    pub(super) async fn within<T>(&self, us: u64, future: impl Future<Output = T> + Send) -> Option<T> {
        let (mut future, mut timeout) =
            (std::pin::pin!(future), std::pin::pin!(self.sleep(Duration::from_micros(us))));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => timeout.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

impl Desk {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The process ends: nothing is begun any more, whoever is dropped now.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    pub(super) fn answer(&mut self, token: Token, answer: Answer) {
        if let Some(awaited) = self.answers.get_mut(&token) {
            awaited.answer = Some(answer);
            awaited.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Returns whether anybody listens.
    pub(super) fn tell(&mut self, watch: WatchId, event: Result<Event, WatchEnd>) -> bool {
        let Some(watched) = self.watches.get_mut(&watch) else { return false };
        watched.events.push_back(event);
        watched.waker.take().into_iter().for_each(Waker::wake);
        true
    }

    pub(super) fn stands(&mut self, state: State, session: Option<i64>) {
        let connections = self.situation.connections + u64::from(state.is_connected());
        self.situation = Situation { state, session, connections };
        self.observers.drain(..).for_each(Waker::wake);
    }

    /// Wakes those whose time has come; returns when the next one's will have.
    pub(super) fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.now_us = now_us;
        while let Some(due) = self.timers.first_entry().filter(|due| due.key().0 <= now_us) {
            due.remove().wake();
        }
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    fn poll_answer(&mut self, token: Token, context: &Context<'_>) -> Poll<Answer> {
        let Some(awaited) = self.answers.get_mut(&token) else {
            return Poll::Ready(Err(ErrorCode::SessionExpired));
        };
        match awaited.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                awaited.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A call whose answer somebody waits for.
struct Pending<'a> {
    client: &'a Simulated,
    token: Token,
}

impl<'a> Pending<'a> {
    fn new(client: &'a Simulated, call: Call) -> Self {
        let mut desk = client.desk();
        let token = desk.number();
        desk.calls += 1;
        desk.made.push_back((token, call));
        desk.answers.insert(token, Awaited { answer: None, waker: None });
        drop(desk);
        Self { client, token }
    }

    async fn answer(self) -> Answer {
        poll_fn(|context| self.client.desk().poll_answer(self.token, context)).await
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.client.desk().answers.remove(&self.token);
    }
}

/// A watch of a task.
pub(super) struct Watch {
    client: Simulated,
    id: WatchId,
    end: Option<WatchEnd>,
}

impl Events for Watch {
    async fn next(&mut self) -> Result<Event, WatchEnd> {
        if let Some(end) = self.end {
            return Err(end);
        }
        let event = poll_fn(|context| {
            let mut desk = self.client.desk();
            let Some(watched) = desk.watches.get_mut(&self.id) else {
                return Poll::Ready(Err(WatchEnd::Lagged));
            };
            match watched.events.pop_front() {
                Some(event) => Poll::Ready(event),
                None => {
                    watched.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        self.end = event.as_ref().err().copied();
        event
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.client.desk().watches.remove(&self.id);
    }
}

impl Service for Simulated {
    type Watch = Watch;

    async fn call(&self, call: Call) -> Answer {
        Pending::new(self, call).answer().await
    }

    async fn call_and_watch(&self, call: impl FnOnce(WatchId) -> Call + Send) -> (Answer, Watch) {
        let id = {
            let mut desk = self.desk();
            let id = WatchId(desk.number());
            desk.watches.insert(id, Watched::default());
            id
        };
        let watch = Watch { client: self.clone(), id, end: None };
        (Pending::new(self, call(id)).answer().await, watch)
    }

    fn situation(&self) -> Situation {
        self.desk().situation
    }

    async fn changed(&self, from: Situation) {
        poll_fn(|context| {
            let mut desk = self.desk();
            if desk.situation != from {
                return Poll::Ready(());
            }
            desk.observers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.desk().now_us)
    }

    async fn sleep(&self, duration: Duration) {
        let (due_us, number) = {
            let mut desk = self.desk();
            (desk.now_us + duration.as_micros() as u64, desk.number())
        };
        poll_fn(|context| {
            let mut desk = self.desk();
            if desk.now_us >= due_us {
                return Poll::Ready(());
            }
            desk.timers.insert((due_us, number), context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: Task = Box::pin(task);
        let mut desk = self.desk();
        if desk.is_over {
            // What it would do on its end must not find the desk taken.
            drop(desk);
            drop(task);
        } else {
            desk.spawned.push(task);
        }
    }

    fn unique(&self) -> u64 {
        self.desk().rng.next_u64()
    }
}
