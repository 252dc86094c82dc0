//! Places in the queue of a lock, or of an election, given by a program inside the service.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use stoa_client_core::{Call, Reply};
use stoa_wire::{CreateMode, ErrorCode, WatcherKind};

use super::super::contender::Contender;
use super::super::error::Error;
use super::super::program::{ATTEMPTS, Program};
use super::super::race::with;
use super::super::service::Service;
use super::super::znodes::{PAUSE_MIN, done, is_lost, unexpected};
use super::slot::{Seen, Slot};

pub(in super::super) const PROGRAM: &str = include_str!("../programs/places.rhai");

/// What somebody asks the program for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Wish<'a> {
    pub(in super::super) kind: &'a str,
    pub(in super::super) data: &'a [u8],
    pub(in super::super) place: Wanted<'a>,
    /// If the program is not there it is registered, and otherwise not used.
    pub(in super::super) registers: bool,
}

/// Which place somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Wanted<'a> {
    /// The next one.
    Any,
    /// None unless it is the first.
    First,
    /// The next one, instead of the one with this name, in one step.
    Instead(&'a str),
}

/// What came of asking the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum LetIn {
    First,
    /// Somebody else has the lock.
    Taken,
    /// The program cannot do it.
    Unable,
}

/// What the program has answered.
enum Answer<W> {
    /// There is a place.
    Place {
        /// Nobody was before it when it was taken.
        was_first: bool,
        /// An answer before this one was lost, so the place may be older than the watch.
        is_repeated: bool,
        watch: W,
    },
    /// Somebody else has the lock, and there is no place.
    Taken,
    /// A leaf is there.
    Leaf,
    /// It could not do it.
    Failed,
}

/// Forgets the watch by which the program tells somebody, if nobody waits for that any more: nothing else would.
struct Ear<'a, S: Service> {
    slot: &'a Slot<S>,
    path: String,
    is_waiting: bool,
}

impl<S: Service> Drop for Ear<'_, S> {
    fn drop(&mut self) {
        if self.is_waiting {
            let service = self.slot.znodes.service.clone();
            let path = core::mem::take(&mut self.path);
            let call = Call::RemoveWatches { path, kind: WatcherKind::Data };
            // The server has no such watch, unless it has lost it with a connection.
            self.slot.znodes.service.spawn(async move { drop(service.call(call).await) });
        }
    }
}

impl<S: Service> Slot<S> {
    /// Takes a place in the queue and waits until it is the first, or takes none if it would not be.
    pub(in super::super) async fn be_let_in(
        &self,
        program: &Program<S>,
        contender: &mut Contender<S>,
        wish: Wish<'_>,
    ) -> Result<LetIn, Error> {
        let mut attempts = ATTEMPTS;
        let own = format!("{}-{}", contender.id(), wish.kind);
        let (word, name) = match wish.place {
            Wanted::Any => ("acquire", own.as_str()),
            Wanted::First => ("attempt", own.as_str()),
            Wanted::Instead(place) => ("requeue", place),
        };
        let path = format!("{}/{word}/{name}", self.path);
        // What the program tells.
        let told = format!("{}/acquire/{own}", self.path);
        let mut ear = Ear { slot: self, path: told, is_waiting: false };
        loop {
            if wish.registers {
                program.be_acknowledged().await?;
            } else if !program.is_at_hand() {
                return Ok(LetIn::Unable);
            }
            let (created, gone) = (contender.created(), contender.gone());
            let said = self.ask(contender, &path, &ear.path, wish.data).await?;
            // Another place than the one that it had, which is taken back.
            if created != 0 && created != contender.created() {
                return Err(gone);
            }
            match said {
                Some(Answer::Place { was_first: true, .. }) => return Ok(LetIn::First),
                Some(Answer::Place { was_first: false, is_repeated, watch }) => {
                    ear.is_waiting = true;
                    // What was told before there was this watch is not told again.
                    if (created != 0 || is_repeated) && self.is_first(contender).await? {
                        return Ok(LetIn::First);
                    }
                    if program.tells(watch, contender.created()).await {
                        ear.is_waiting = false;
                        return Ok(LetIn::First);
                    }
                }
                Some(Answer::Taken) => return Ok(LetIn::Taken),
                Some(Answer::Leaf) if wish.place == Wanted::First => return Ok(LetIn::Taken),
                Some(Answer::Leaf) => drop(self.look_behind_leaf().await?),
                Some(Answer::Failed) => return Ok(LetIn::Unable),
                // The program is missing, or the directory.
                None => {
                    program.is_missing();
                    let Some(left) = attempts.checked_sub(1) else { return Ok(LetIn::Unable) };
                    attempts = left;
                }
            }
        }
    }

    async fn is_first(&self, contender: &Contender<S>) -> Result<bool, Error> {
        Ok(contender.nearest(&self.znodes.children(&self.path).await?)?.is_none())
    }

    /// Asks the program for a place, listening where it tells; `None` if it is not there, or the directory is not. To
    /// ask twice does no harm.
    async fn ask(
        &self,
        contender: &mut Contender<S>,
        path: &str,
        told: &str,
        data: &[u8],
    ) -> Result<Option<Answer<S::Watch>>, Error> {
        let service = &self.znodes.service;
        let (mut pause, mut is_repeated) = (PAUSE_MIN, false);
        loop {
            let make = (!self.expects_directory()).then(|| service.call(self.make_call()));
            let take = self.znodes.create_call(path, data, CreateMode::Ephemeral);
            let ask = |watch| Call::Telling { path: told.to_owned(), watch, call: Box::new(take) };
            let since = service.now();
            let (made, (answer, watch)) = with(make, service.call_and_watch(ask)).await;
            match answer {
                Ok(Reply::Created { path: place, stat }) => {
                    self.estimates.took(service.now().saturating_sub(since));
                    self.sees(Seen::Directory);
                    if place == path {
                        return Ok(Some(Answer::Taken));
                    }
                    let name = place.rsplit('/').next().unwrap_or_default();
                    contender.stands(name, stat)?;
                    return Ok(Some(Answer::Place { was_first: stat.version > 0, is_repeated, watch }));
                }
                Err(ErrorCode::NoChildrenForEphemerals) => {
                    self.sees(Seen::Leaf);
                    return Ok(Some(Answer::Leaf));
                }
                Err(ErrorCode::NoNode) => {
                    self.sees(Seen::Nothing);
                    let Some(made) = made else { continue };
                    if self.is_made(done(made).map(drop))? {
                        return Ok(None);
                    }
                    self.make_parents().await?;
                }
                Err(code) if is_lost(code) => {
                    is_repeated = true;
                    self.znodes.pause(&mut pause).await;
                }
                Err(ErrorCode::SystemError) => return Ok(Some(Answer::Failed)),
                other => return Err(unexpected(&self.path, other)),
            }
        }
    }
}
