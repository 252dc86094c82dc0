//! Places in the queue at the path of a lock.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::{Future, poll_fn, ready};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;

use stoa_client_core::Event;
use stoa_wire::{ErrorCode, EventKind, Stat};

use super::super::contender::{Contender, Rival};
use super::super::error::Error;
use super::super::flight::Flight;
use super::super::race::{First, first, with};
use super::super::service::{Events, Service};
use super::super::znodes::{PAUSE_MIN, done, is_lost};
use super::slot::{Seen, Slot};

pub(super) const KIND: &str = "lock";

/// The one directly before somebody in the queue.
pub(super) struct Nearest {
    rival: Rival,
    /// Nobody is before that one.
    is_first: bool,
}

/// Looks at who is in the queue, at an interval or one after the other.
pub(super) struct Looks<'a, S: Service> {
    flight: Flight<'a, S, Result<Vec<String>, Error>>,
    newest: Option<Result<Vec<String>, Error>>,
}

impl<'a, S: Service> Looks<'a, S> {
    pub(super) fn new(slot: &'a Slot<S>, every: Option<Duration>) -> Self {
        let look = || slot.znodes.children(&slot.path);
        Self { flight: Flight::new(&slot.znodes.service, every, look), newest: None }
    }

    /// Forgets looks that were begun before something that they have to show.
    fn restart(&mut self) {
        self.flight.restart();
        self.newest = None;
    }

    /// Waits for something, and looks meanwhile unless looks are made one after the other. What they show counts
    /// from then on.
    async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            // In this order: requests of the future come before the first look.
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            while self.flight.is_async() {
                let Poll::Ready(newest) = self.flight.poll(context) else { break };
                self.newest = Some(newest);
            }
            Poll::Pending
        })
        .await
    }

    /// The next look, or the newest one that has not been asked for yet.
    pub(super) async fn next(&mut self) -> Result<Vec<String>, Error> {
        match self.newest.take() {
            Some(newest) => newest,
            None => poll_fn(|context| self.flight.poll(context)).await,
        }
    }
}

impl<S: Service> Slot<S> {
    /// Takes a place in the queue; `false` if the leaf of a holder is in its way.
    pub(super) async fn enter(
        &self,
        contender: &mut Contender<S>,
        looks: &mut Looks<'_, S>,
    ) -> Result<bool, Error> {
        let service = &self.znodes.service;
        let mut pause = PAUSE_MIN;
        loop {
            let make = (!self.expects_directory()).then(|| service.call(self.make_call()));
            let create = service.call(contender.create_call(KIND, b""));
            looks.restart();
            let since = service.now();
            let (made, created) = looks.during(with(make, create)).await;
            if created.is_ok() {
                self.estimates.took(service.now().saturating_sub(since));
            }
            let was_lost = created.as_ref().is_err_and(|code| is_lost(*code));
            let entered = contender.take(created, &mut pause).await?;
            if was_lost {
                // Those that are under way may show what was before.
                looks.restart();
            }
            match entered {
                Ok(()) => {
                    self.sees(Seen::Directory);
                    return Ok(true);
                }
                Err(ErrorCode::NoChildrenForEphemerals) => {
                    self.sees(Seen::Leaf);
                    return Ok(false);
                }
                Err(ErrorCode::NoNode) => {
                    self.sees(Seen::Nothing);
                    let made = made.map(|made| self.is_made(done(made).map(drop))).transpose()?;
                    if made == Some(false) {
                        self.make_parents().await?;
                    }
                }
                Err(code) if is_lost(code) => {}
                Err(code) => return Err(Error::of(&self.path, code)),
            }
        }
    }

    /// The same, and waits for the leaf to go. Returns whether there was one.
    pub(super) async fn queue_up(
        &self,
        contender: &mut Contender<S>,
        looks: &mut Looks<'_, S>,
    ) -> Result<bool, Error> {
        let mut had_leaf = false;
        while !self.enter(contender, looks).await? {
            had_leaf = true;
            self.look_behind_leaf().await?;
        }
        Ok(had_leaf)
    }

    /// Waits until nobody is before the contender, by looking alone. Returns whether somebody was at first.
    pub(super) async fn look_until_first(
        &self,
        contender: &Contender<S>,
        looks: &mut Looks<'_, S>,
    ) -> Result<bool, Error> {
        let mut has_waited = false;
        while contender.nearest(&looks.next().await?)?.is_some() {
            has_waited = true;
        }
        Ok(has_waited)
    }

    /// The same, by watching the one directly before it; looks go on until the watch is set. Returns whether somebody
    /// was before it at first.
    pub(super) async fn watch_until_first(
        &self,
        contender: &Contender<S>,
        looks: &mut Looks<'_, S>,
    ) -> Result<bool, Error> {
        let own = self.znodes.within(contender.session());
        let (place, mut guard, mut has_waited) = (contender.path(), None, false);
        while let Some(nearest) = contender.nearest(&looks.next().await?)? {
            has_waited = true;
            let guarding = guard.is_none().then(|| own.watch(&place));
            let before = format!("{}/{}", self.path, nearest.rival.name);
            let watching = with(guarding, own.watch(&before));
            let (guarded, watched) = if looks.flight.is_async() {
                let looking = self.look_until_first(contender, looks);
                match first(watching, looking).await {
                    First::This(watched) => watched,
                    First::That(is_first) => return is_first.map(|_| true),
                }
            } else {
                watching.await
            };
            if let Some(guarded) = guarded {
                guard = guarded?.map(|(_, watch)| watch);
            }
            match (watched?, &mut guard) {
                (_, None) => return Err(contender.gone()),
                // In this order: who was taken out of the queue before its turn came is not in it.
                (None, Some(own)) => match first(own.next(), ready(nearest.is_first)).await {
                    First::This(_) => guard = None,
                    First::That(true) => return Ok(true),
                    First::That(false) => {}
                },
                (Some((stat, mut watch)), Some(own)) => match first(own.next(), watch.next()).await {
                    First::This(_) => guard = None,
                    First::That(Ok(event)) if self.ends_wait(&event, &stat, &nearest, contender) => {
                        return Ok(true);
                    }
                    First::That(_) => {}
                },
            }
            looks.restart();
        }
        Ok(has_waited)
    }

    /// Whether what the one directly before has done says that nobody is before us any more. If not, or if nobody
    /// knows, one has to look again.
    fn ends_wait(&self, event: &Event, stat: &Stat, nearest: &Nearest, contender: &Contender<S>) -> bool {
        // With its session, ours would have gone too.
        let is_other = stat.ephemeral_owner != contender.session();
        let is_last_before = event.kind == EventKind::Deleted && nearest.is_first && is_other;
        hands_over(event, stat) || is_last_before
    }
}

/// Whether an event says that a place was given up by somebody who held the lock: only they change its data. An event
/// that is told after a reconnect has no zxid, and may be of the znode's creation.
fn hands_over(event: &Event, stat: &Stat) -> bool {
    event.kind == EventKind::DataChanged && event.zxid > stat.mzxid
}

impl<S: Service> Contender<S> {
    /// Who is directly before it.
    pub(super) fn nearest(&self, names: &[String]) -> Result<Option<Nearest>, Error> {
        let mut before = self.before(names)?.0;
        let rival = before.pop();
        Ok(rival.map(|rival| Nearest { rival, is_first: before.is_empty() }))
    }
}
