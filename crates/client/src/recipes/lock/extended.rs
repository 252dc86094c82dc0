//! The queue of a lock, kept by a program inside the service.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use stoa_wire::{ErrorCode, Stat, WatcherKind};

use super::super::contender::Contender;
use super::super::error::Error;
use super::super::program::{ATTEMPTS, Program};
use super::super::race::with;
use super::super::service::Service;
use super::super::znodes::{PAUSE_MIN, done, is_lost, unexpected};
use super::slot::{Seen, Slot};
use crate::protocol::{Call, Reply};

pub(super) const PROGRAM: &str = include_str!("../programs/lock.rhai");

/// What came of asking the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetIn {
    First,
    /// Somebody else has the lock.
    Taken,
    /// The program cannot do it.
    Unable,
}

/// What the program has said.
enum Said<W> {
    /// There is a place, and it is the first, or the program will tell when it is.
    Place { is_first: bool, watch: W },
    /// Somebody else has the lock, and there is no place.
    Taken,
    /// A leaf is there.
    Leaf,
    /// It could not do it.
    Failed,
}

/// Takes away the watch by which the program tells somebody, once nobody waits for that any more: nothing else would,
/// since nothing is ever created at its path.
struct Ear<'a, S: Service> {
    slot: &'a Slot<S>,
    path: String,
}

impl<S: Service> Drop for Ear<'_, S> {
    fn drop(&mut self) {
        let service = self.slot.znodes.service.clone();
        let path = core::mem::take(&mut self.path);
        let call = Call::RemoveWatches { path, kind: WatcherKind::Data };
        // If it cannot be taken away it is not there.
        self.slot.znodes.service.spawn(async move { drop(service.call(call).await) });
    }
}

impl<S: Service> Slot<S> {
    /// Takes a place in the queue and waits until it is the first, or takes none if it would not be. If the program is
    /// not there it is registered, or not used.
    pub(super) async fn be_let_in(
        &self,
        program: &Program<S>,
        contender: &mut Contender<S>,
        waits: bool,
        registers: bool,
    ) -> Result<LetIn, Error> {
        let mut attempts = ATTEMPTS;
        let word = if waits { "acquire" } else { "attempt" };
        let ear = Ear { slot: self, path: format!("{}/{word}/{}", self.path, contender.id()) };
        loop {
            if registers {
                program.be_acknowledged().await?;
            } else if !program.is_at_hand() {
                return Ok(LetIn::Unable);
            }
            let (created, gone) = (contender.created(), contender.gone());
            let said = self.ask(contender, &ear.path).await?;
            // Another place than the one that it had, which is taken back.
            if created != 0 && created != contender.created() {
                return Err(gone);
            }
            match said {
                Some(Said::Place { is_first: true, .. }) => return Ok(LetIn::First),
                Some(Said::Place { is_first: false, watch }) => {
                    if program.tells(watch, contender.created()).await {
                        return Ok(LetIn::First);
                    }
                }
                Some(Said::Taken) => return Ok(LetIn::Taken),
                Some(Said::Leaf) if !waits => return Ok(LetIn::Taken),
                Some(Said::Leaf) => drop(self.look_behind_leaf().await?),
                Some(Said::Failed) => return Ok(LetIn::Unable),
                // The program is missing, or the directory.
                None => {
                    program.is_missing();
                    let Some(left) = attempts.checked_sub(1) else { return Ok(LetIn::Unable) };
                    attempts = left;
                }
            }
        }
    }

    /// Asks the program for a place; `None` if it is not there, or the directory is not. To ask twice does no harm.
    async fn ask(&self, contender: &mut Contender<S>, path: &str) -> Result<Option<Said<S::Watch>>, Error> {
        let service = &self.znodes.service;
        let mut pause = PAUSE_MIN;
        loop {
            let is_there = self.seen() == Seen::Directory;
            let make = (!is_there).then(|| service.call(self.make_call()));
            let ask = |watch| Call::GetData { path: path.to_owned(), watch: Some(watch) };
            let (made, (answer, watch)) = with(make, service.call_and_watch(ask)).await;
            match answer {
                Ok(Reply::Data { data, .. }) => {
                    self.sees(Seen::Directory);
                    return self.said(contender, &data, watch).map(Some);
                }
                Err(ErrorCode::NoChildrenForEphemerals) => {
                    self.sees(Seen::Leaf);
                    return Ok(Some(Said::Leaf));
                }
                Err(ErrorCode::NoNode) => {
                    self.sees(Seen::Nothing);
                    let Some(made) = made else { continue };
                    if self.is_made(done(made).map(drop))? {
                        return Ok(None);
                    }
                    self.make_parents().await?;
                }
                Err(code) if is_lost(code) => self.znodes.pause(&mut pause).await,
                Err(ErrorCode::SystemError) => return Ok(Some(Said::Failed)),
                other => return Err(unexpected(&self.path, other)),
            }
        }
    }

    fn said(
        &self,
        contender: &mut Contender<S>,
        data: &[u8],
        watch: S::Watch,
    ) -> Result<Said<S::Watch>, Error> {
        let foreign =
            || Error::Foreign { path: self.path.clone(), problem: "its program says something else" };
        let mut words = core::str::from_utf8(data).unwrap_or_default().split(' ');
        let is_first = match words.next() {
            Some("first") => true,
            Some("behind") => false,
            Some("taken") => return Ok(Said::Taken),
            _ => return Err(foreign()),
        };
        let place = (words.next(), words.next().map(str::parse), words.next().map(str::parse));
        let (Some(name), Some(Ok(czxid)), Some(Ok(ephemeral_owner))) = place else { return Err(foreign()) };
        contender.stands(name, Stat { czxid, ephemeral_owner, ..Stat::default() })?;
        Ok(Said::Place { is_first, watch })
    }
}
