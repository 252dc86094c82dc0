//! Updates that are carried out once, whatever becomes of their answers.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::{Call, Operation, OperationResult, Reply};
use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::service::Service;
use super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};

/// An ephemeral znode of ours whose version counts the updates that we have made.
///
/// Each of them is a multi that sets the witness too, if its version is the one that we know. So when an answer is
/// lost, the version says whether the update was carried out. That ends with the session, for the witness
/// does.
#[derive(Debug)]
pub(super) struct Witness<S: Service> {
    znodes: Znodes<S>,
    directory: String,
    path: String,
    /// The version that it has; `None` while it is not known to be there.
    version: Option<i32>,
    is_over: bool,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// This operation of it was refused, and so nothing was done.
    Refused(usize, ErrorCode),
}

impl<S: Service> Witness<S> {
    /// One that is to be made in a directory.
    pub(super) fn new(znodes: &Znodes<S>, directory: &str) -> Self {
        let path = format!("{directory}/{}-witness", znodes.id());
        Self { znodes: znodes.clone(), directory: directory.to_owned(), path, version: None, is_over: false }
    }

    /// Sees to it that the witness is there.
    async fn appear(&mut self) -> Result<i32, Error> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let mut pause = PAUSE_MIN;
        loop {
            let create = self.znodes.create_call(&self.path, b"", CreateMode::Ephemeral);
            let stat = match self.znodes.service.call(create).await {
                Ok(Reply::Created { stat, .. }) => Some(stat),
                Err(ErrorCode::NoNode) => {
                    self.znodes.make(&self.directory, b"", CreateMode::Persistent).await?;
                    continue;
                }
                // It was made by a request whose answer was lost.
                Err(ErrorCode::NodeExists) => self.znodes.stat(&self.path).await?,
                Err(code) if is_lost(code) => {
                    self.znodes.pause(&mut pause).await;
                    continue;
                }
                other => return Err(unexpected(&self.path, other)),
            };
            if let Some(stat) = stat {
                self.version = Some(stat.version);
                return Ok(stat.version);
            }
        }
    }

    /// Carries out all operations, or none, and says which. It must be the last call of a witness whose future
    /// was dropped, other than [`Witness::was_done`] and [`Witness::said`].
    pub(super) async fn commit(&mut self, operations: &[Operation]) -> Result<Outcome, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let version = self.appear().await?;
            let mark = self.path.clone();
            let mut all = operations.to_vec();
            all.push(Operation::SetData { path: mark, data: Vec::new(), version: Some(version) });
            match self.znodes.service.call(Call::Multi(all)).await {
                Ok(Reply::Results(results)) => match refusal(&results) {
                    None => {
                        self.version = Some(version.wrapping_add(1));
                        return Ok(Outcome::Done);
                    }
                    // The session in which it was made has ended, and a new one has begun.
                    Some((index, ErrorCode::NoNode)) if index == operations.len() => self.version = None,
                    Some((index, code)) if index < operations.len() => {
                        return Ok(Outcome::Refused(index, code));
                    }
                    Some((_, code)) => return Err(Error::of(&self.path, code)),
                },
                // What is refused for want of room or the like has not been done; better be sure.
                Err(code) if is_lost(code) || code == ErrorCode::SystemError => {
                    self.znodes.pause(&mut pause).await;
                    if self.was_done().await? {
                        return Ok(Outcome::Done);
                    }
                    if code == ErrorCode::SystemError {
                        return Err(Error::of(&self.path, code));
                    }
                }
                // It was under way, or was not sent.
                Err(ErrorCode::SessionExpired) => return Err(Error::Uncertain),
                other => return Err(unexpected(&self.path, other)),
            }
        }
    }

    /// Has a program make an update, and returns what it says. The program sets the witness to that, if the
    /// version is the one in the request's path; if it says nothing and leaves the witness as it is, it has
    /// done nothing.
    pub(super) async fn have_done(
        &mut self,
        request: impl Fn(&str, i32) -> String,
    ) -> Result<Result<Option<Vec<u8>>, ErrorCode>, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let version = self.appear().await?;
            let name = self.path.rsplit('/').next().unwrap_or_default();
            let path = request(name, version);
            match self.znodes.service.call(Call::GetData { path: path.clone(), watch: None }).await {
                Ok(Reply::Data { data, .. }) if !data.is_empty() => {
                    self.version = Some(version.wrapping_add(1));
                    return Ok(Ok(Some(data)));
                }
                // Whether it has said nothing, or says that nothing was there.
                Ok(_) => return Ok(Ok(self.was_done().await?.then(Vec::new))),
                Err(code) if is_lost(code) || code == ErrorCode::SystemError => {
                    self.znodes.pause(&mut pause).await;
                    if let Some(said) = self.said().await? {
                        return Ok(Ok(Some(said)));
                    }
                    if code == ErrorCode::SystemError {
                        return Ok(Err(code));
                    }
                }
                Err(ErrorCode::SessionExpired) => return Err(Error::Uncertain),
                // The session may have ended, and the witness with it.
                Err(code) => {
                    self.version = None;
                    return Ok(Err(code));
                }
            }
        }
    }

    /// Whether the update that was begun last was carried out, when nobody has heard what became of it. If it
    /// was not by now, it never will be.
    pub(super) async fn was_done(&mut self) -> Result<bool, Error> {
        Ok(self.learn(false).await?.is_some())
    }

    /// The same of an update that a program makes: what it has said, if it was carried out.
    pub(super) async fn said(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.learn(true).await
    }

    /// What the witness holds, if reading it is asked for, when the update that was begun last was carried out.
    ///
    /// The version that is found is the one that we know from then on, and with that the update is forgotten: who is
    /// asked once more says that nothing was done. So all that is to be known is found out before, and nothing is
    /// awaited between that and the return, or a taker that is dropped there would lose what it has taken.
    async fn learn(&mut self, reads: bool) -> Result<Option<Vec<u8>>, Error> {
        let Some(version) = self.version else { return Ok(None) };
        let found = if reads {
            let read = self.znodes.settled_data(&self.path).await;
            read.map(|found| found.map(|(data, stat)| (stat.version, data)))
        } else {
            let stat = self.znodes.settled_stat(&self.path).await;
            stat.map(|found| found.map(|stat| (stat.version, Vec::new())))
        };
        // Whatever keeps us from looking, nobody knows.
        let Ok(Some((found, held))) = found else { return Err(Error::Uncertain) };
        self.version = Some(found);
        Ok((found != version).then_some(held))
    }

    /// Takes it away, for its work is done.
    pub(super) async fn leave(mut self) {
        self.is_over = true;
        self.znodes.delete_for_sure(&self.path).await;
    }

    pub(super) fn service(&self) -> S {
        self.znodes.service.clone()
    }
}

impl<S: Service> Drop for Witness<S> {
    fn drop(&mut self) {
        if !self.is_over {
            let (znodes, path) = (self.znodes.clone(), core::mem::take(&mut self.path));
            self.service().spawn(async move { znodes.delete_for_sure(&path).await });
        }
    }
}

/// The operation that was refused, and why.
pub(super) fn refusal(results: &[OperationResult]) -> Option<(usize, ErrorCode)> {
    results.iter().enumerate().find_map(|(index, result)| match result {
        OperationResult::Failed(ErrorCode::Ok | ErrorCode::RuntimeInconsistency) => None,
        OperationResult::Failed(code) => Some((index, *code)),
        _ => None,
    })
}
