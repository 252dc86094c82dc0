//! A lock.

mod choice;
mod extended;
mod leaf;
mod primitive;
mod queue;
mod slot;
mod tas;

use alloc::vec::Vec;
use core::time::Duration;

use stoa_client_core::Acl;

use super::contender::Contender;
use super::error::Error;
use super::held::Held;
use super::program::Program;
use super::service::Service;
pub use choice::{Choice, Reason};
pub(super) use extended::{LetIn, PROGRAM, Wanted, Wish};
pub(super) use leaf::Leaf;
pub use primitive::{Primitive, UnknownPrimitive};
use queue::{KIND, Looks};
pub(super) use slot::Slot;

/// How often asynchronous primitives ask, unless they are told otherwise.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A lock: at most one client holds it, as far as the service knows.
///
/// There are several ways to take one, which differ in what they cost where round trips are long, or many want it:
/// see [`Primitive`]. [`Lock::new`] chooses by itself. Whichever way its users take it, they exclude one another.
///
/// It is not reentrant: who holds it and asks again waits for itself. Whoever waits in a queue gets it in the order
/// in which they came; between those who test and set there is no order.
///
/// # What is guaranteed
/// At no point of the service's history do two sessions hold it. A holder whose session has ended may not know
/// that yet, for as long as it is cut off or stands still: what the lock protects should compare
/// [tokens](Held::token).
///
/// # Connections that are lost
/// A client that is not told what became of its create finds its znode by the id in the name or the data, instead of
/// making a second one. Acquiring ends with [`Error::SessionLost`] when the session has ended, since its place
/// is gone.
///
/// # Giving up
/// A future of `acquire` that is dropped, because of a timeout or otherwise, takes its znode away in the
/// background. Nobody has to wait for it.
#[derive(Debug, Clone)]
pub struct Lock<S> {
    slot: Slot<S>,
    primitive: Option<Primitive>,
    poll_interval: Duration,
    program: Program<S>,
}

impl<S: Service> Lock<S> {
    /// The lock at a path. Znodes above that are made when it is acquired. How it is taken is chosen each time, by
    /// what was learned of round trips and contention: so keep it, or clones of it, which learn together.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self::of(service, path, None)
    }

    /// The same lock, taken in one way only.
    #[must_use]
    pub fn with(service: &S, path: &str, primitive: Primitive) -> Self {
        Self::of(service, path, Some(primitive))
    }

    fn of(service: &S, path: &str, primitive: Option<Primitive>) -> Self {
        let slot = Slot::new(service, path);
        let program = Program::new(&slot.znodes, "lock", path, PROGRAM);
        Self { slot, primitive, poll_interval: POLL_INTERVAL, program }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.slot.znodes.acl = acl;
        self
    }

    /// How often asynchronous primitives ask; every 10 ms if nothing is said.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// How it would be taken now, and why.
    #[must_use]
    pub fn choice(&self) -> Choice {
        let has_program = self.primitive.is_none() && self.program.is_at_hand();
        self.slot.estimates.choose(self.primitive, has_program)
    }

    /// How often to look or to try without waiting for answers.
    fn every(&self) -> Duration {
        match self.primitive {
            Some(_) => self.poll_interval,
            None => self.slot.estimates.looks_every(),
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// When the session ends meanwhile, somebody deletes our place, or the service refuses.
    pub async fn acquire(&self) -> Result<Held<S>, Error> {
        let every = self.every();
        match self.choice().primitive {
            Primitive::SyncQueue => self.queue(None, true, false).await,
            Primitive::AsyncQueue => self.queue(Some(every), false, false).await,
            Primitive::AsyncQueueWatch => self.queue(Some(every), true, false).await,
            Primitive::Extension => match self.let_in(Wanted::Any).await? {
                Ok(held) => Ok(held),
                Err(_) => self.queue(Some(every), true, false).await,
            },
            primitive => {
                let mut leaf = Leaf::new(&self.slot);
                let taken = match primitive {
                    Primitive::SyncTas => self.slot.take_trying(&mut leaf).await?,
                    Primitive::AsyncTas => self.slot.take_trying_ahead(&mut leaf, every).await?,
                    // Who is free to choose waits in the queue, where it is told at once and in its turn.
                    _ => self.slot.take_watching(&mut leaf, self.primitive.is_none()).await?,
                };
                if taken {
                    self.slot.estimates.found(false);
                    return Ok(Held::by_leaf(leaf));
                }
                // What it may still have under way is cleared away, or it would wait for itself.
                drop(leaf);
                self.queue(Some(every), true, true).await
            }
        }
    }

    /// Waits in the queue, of somebody who may have found the lock taken before.
    async fn queue(&self, every: Option<Duration>, watches: bool, was_taken: bool) -> Result<Held<S>, Error> {
        let mut contender = Contender::new(&self.slot.znodes, &self.slot.path);
        let mut looks = Looks::new(&self.slot, every);
        let had_leaf = self.slot.queue_up(&mut contender, &mut looks).await?;
        let has_waited = if watches {
            self.slot.watch_until_first(&contender, &mut looks).await?
        } else {
            self.slot.look_until_first(&contender, &mut looks).await?
        };
        self.slot.estimates.found(was_taken || had_leaf || has_waited);
        Ok(Held::new(contender.hands_over()))
    }

    /// Has the program let us in, or says why not: then no place is left, or one would wait for oneself.
    async fn let_in(&self, place: Wanted<'_>) -> Result<Result<Held<S>, LetIn>, Error> {
        let mut contender = Contender::new(&self.slot.znodes, &self.slot.path);
        let wish = Wish { kind: KIND, data: b"", place, registers: self.primitive.is_some() };
        let let_in = self.slot.be_let_in(&self.program, &mut contender, wish).await?;
        Ok(if let_in == LetIn::First { Ok(Held::new(contender.hands_over())) } else { Err(let_in) })
    }

    /// Takes the lock if nobody has it or waits for it.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Held<S>>, Error> {
        match self.choice().primitive {
            Primitive::SyncQueue => self.try_queue(None).await,
            Primitive::AsyncQueue | Primitive::AsyncQueueWatch => self.try_queue(Some(self.every())).await,
            Primitive::SyncTas | Primitive::TasWatch | Primitive::AsyncTas => {
                let mut leaf = Leaf::new(&self.slot);
                let is_ours = self.slot.try_leaf(&mut leaf).await?;
                self.slot.estimates.found(!is_ours);
                Ok(is_ours.then(|| Held::by_leaf(leaf)))
            }
            Primitive::Extension => match self.let_in(Wanted::First).await? {
                Ok(held) => Ok(Some(held)),
                Err(LetIn::Unable) => self.try_queue(Some(self.every())).await,
                Err(_) => Ok(None),
            },
        }
    }

    async fn try_queue(&self, every: Option<Duration>) -> Result<Option<Held<S>>, Error> {
        let mut contender = Contender::new(&self.slot.znodes, &self.slot.path);
        let mut looks = Looks::new(&self.slot, every);
        let is_first = self.slot.enter(&mut contender, &mut looks).await?
            && contender.nearest(&looks.next().await?)?.is_none();
        self.slot.estimates.found(!is_first);
        if is_first {
            return Ok(Some(Held::new(contender.hands_over())));
        }
        if contender.session() != 0 {
            contender.leave().await?;
        }
        Ok(None)
    }
}
