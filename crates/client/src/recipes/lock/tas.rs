//! Test and set: whoever has created the znode at the path of a lock has the lock.

use core::future::poll_fn;
use core::time::Duration;

use stoa_client_core::{Call, Reply};
use stoa_wire::ErrorCode;

use super::super::error::Error;
use super::super::flight::Flight;
use super::super::race::{both, with};
use super::super::service::Service;
use super::super::znodes::{PAUSE_MIN, is_lost};
use super::leaf::Leaf;
use super::slot::{Seen, Slot};

type Answer = Result<Reply, ErrorCode>;

/// What an attempt has met.
struct Attempt {
    created: Answer,
    /// It has tried to delete an empty directory.
    has_cleared: bool,
}

impl<S: Service> Slot<S> {
    /// Creates the leaf, having taken an empty directory out of its way if one was seen.
    async fn attempt(&self, create: Call) -> Attempt {
        let service = &self.znodes.service;
        let has_cleared = self.seen() == Seen::Directory;
        let clear = has_cleared.then(|| service.call(self.clear_call()));
        let since = service.now();
        let (_, created) = with(clear, service.call(create)).await;
        if created.is_ok() {
            self.estimates.took(service.now().saturating_sub(since));
        }
        Attempt { created, has_cleared }
    }

    /// Takes in what became of an attempt: `true` if the leaf is ours, `false` if something else is there. `None`:
    /// nobody was in the way, and it is worth another one.
    async fn settle(
        &self,
        leaf: &mut Leaf<S>,
        created: Answer,
        pause: &mut Duration,
    ) -> Result<Option<bool>, Error> {
        match leaf.take(created, pause).await? {
            Ok(()) => {
                // That is what the next one finds.
                self.sees(Seen::Nothing);
                Ok(Some(true))
            }
            Err(ErrorCode::NodeExists) => Ok(Some(false)),
            Err(ErrorCode::NoNode) => self.make_parents().await.map(|()| None),
            Err(code) if is_lost(code) => Ok(None),
            Err(code) => Err(Error::of(&self.path, code)),
        }
    }

    /// Takes the lock if nobody has it or waits for it.
    pub(super) async fn try_leaf(&self, leaf: &mut Leaf<S>) -> Result<bool, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let Attempt { created, has_cleared } = self.attempt(leaf.create_call()).await;
            match self.settle(leaf, created, &mut pause).await? {
                Some(true) => return Ok(true),
                Some(false) if has_cleared || self.look().await? == Seen::Leaf => return Ok(false),
                _ => {}
            }
        }
    }

    /// Takes the lock, watching its holder meanwhile; `false` if there is a queue, which one has to join. Who
    /// `joins` does so in any case once it has waited.
    pub(super) async fn take_watching(&self, leaf: &mut Leaf<S>, joins: bool) -> Result<bool, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let Attempt { created, has_cleared } = self.attempt(leaf.create_call()).await;
            match self.settle(leaf, created, &mut pause).await? {
                Some(true) => return Ok(true),
                Some(false) => match self.look_behind_leaf().await? {
                    Seen::Directory if has_cleared => return Ok(false),
                    Seen::Directory => {}
                    _ if joins => return Ok(false),
                    _ => {}
                },
                None => {}
            }
        }
    }

    /// Takes the lock, trying again and again; `false` if there is a queue, which one has to join.
    pub(super) async fn take_trying(&self, leaf: &mut Leaf<S>) -> Result<bool, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let attempt = self.attempt(leaf.create_call());
            // A refusal does not say what is there.
            let (Attempt { created, has_cleared }, seen) = both(attempt, self.look()).await;
            match self.settle(leaf, created, &mut pause).await? {
                Some(true) => return Ok(true),
                Some(false) if has_cleared && seen? == Seen::Directory => return Ok(false),
                _ => {}
            }
        }
    }

    /// The same, trying at an interval without waiting for answers.
    pub(super) async fn take_trying_ahead(&self, leaf: &mut Leaf<S>, every: Duration) -> Result<bool, Error> {
        let service = &self.znodes.service;
        // What is under way when the lock is had must not be carried out in a later session.
        let Some(session) = service.situation().session else { return self.take_trying(leaf).await };
        let create = leaf.create_call_ahead(session);
        let attempt = || both(self.attempt(create.clone()), self.look());
        let mut attempts = Flight::new(service, Some(every), attempt);
        let mut pause = PAUSE_MIN;
        loop {
            let (Attempt { created, has_cleared }, seen) = poll_fn(|context| attempts.poll(context)).await;
            let was_lost = created.as_ref().is_err_and(|code| is_lost(*code));
            match self.settle(leaf, created, &mut pause).await? {
                Some(true) => return Ok(true),
                Some(false) if has_cleared && seen? == Seen::Directory => return Ok(false),
                // The leaf was looked for behind all that are under way: none of them has made it, or will.
                None if was_lost => attempts.restart(),
                _ => {}
            }
        }
    }
}
