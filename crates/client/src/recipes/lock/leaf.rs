//! The leaf of a holder: what test-and-set locks are made of.

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use stoa_client_core::{Call, Reply};
use stoa_wire::{CreateMode, ErrorCode, Stat};

use super::super::error::Error;
use super::super::service::Service;
use super::super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};
use super::slot::Slot;

/// An ephemeral znode at the path of the lock itself. It is deleted when this is dropped.
///
/// Others create it by the same name. Its data says whose it is, by which it is found when the answer to its create
/// is lost; and requests to delete it are for its session alone, so they never meet the leaf of the next holder.
#[derive(Debug)]
pub(in super::super) struct Leaf<S: Service> {
    znodes: Znodes<S>,
    path: String,
    id: String,
    /// What is known of it once it is known to be there.
    stat: Option<Stat>,
    /// There is a request to create it of which nobody knows what became of it.
    is_unknown: bool,
    /// There may be several at once.
    is_ahead: bool,
    is_over: bool,
}

impl<S: Service> Leaf<S> {
    /// Before anything is asked for.
    pub(super) fn new(slot: &Slot<S>) -> Self {
        let (znodes, path) = (slot.znodes.clone(), slot.path.clone());
        let id = znodes.id();
        Self { id, znodes, path, stat: None, is_unknown: false, is_ahead: false, is_over: false }
    }

    /// The request to create it. What becomes of it has to be taken in; if it is not, the znode is looked for when
    /// this is dropped.
    pub(super) fn create_call(&mut self) -> Call {
        self.is_unknown = true;
        self.znodes.create_call(&self.path, self.id.as_bytes(), CreateMode::Ephemeral)
    }

    /// The same, to be made again and again in this session, whatever became of those before.
    pub(super) fn create_call_ahead(&mut self, session: i64) -> Call {
        self.is_ahead = true;
        Call::Within { session, call: Box::new(self.create_call()) }
    }

    /// Takes in what became of a request to create it. Refused or lost, it was not carried out, and is not going to
    /// be.
    pub(super) async fn take(
        &mut self,
        answer: Result<Reply, ErrorCode>,
        pause: &mut Duration,
    ) -> Result<Result<(), ErrorCode>, Error> {
        let result = match answer {
            Ok(Reply::Created { stat, .. }) => {
                self.stat = Some(stat);
                Ok(Ok(()))
            }
            Err(code) if is_lost(code) => {
                self.znodes.pause(pause).await;
                self.stat = self.find().await?;
                Ok(if self.stat.is_some() { Ok(()) } else { Err(code) })
            }
            Err(code) if code != ErrorCode::SessionExpired => Ok(Err(code)),
            other => Err(unexpected(&self.path, other)),
        };
        self.is_unknown = self.is_ahead;
        result
    }

    /// Looks for it, after a request to create or to delete it whose answer is lost: such a request was carried out
    /// by now, or will not be.
    async fn find(&self) -> Result<Option<Stat>, Error> {
        let read = self.znodes.settled_data(&self.path).await?;
        Ok(read.and_then(|(data, stat)| (data == self.id.as_bytes()).then_some(stat)))
    }

    /// The zxid of its creation.
    pub(in super::super) fn created(&self) -> i64 {
        self.stat.map_or(0, |stat| stat.czxid)
    }

    /// The session that it lives as long as.
    pub(in super::super) fn session(&self) -> i64 {
        self.stat.map_or(0, |stat| stat.ephemeral_owner)
    }

    pub(in super::super) fn service(&self) -> &S {
        &self.znodes.service
    }

    /// Deletes it.
    pub(in super::super) async fn leave(mut self) -> Result<(), Error> {
        self.delete().await?;
        self.is_over = true;
        Ok(())
    }

    async fn delete(&self) -> Result<(), Error> {
        let mut pause = PAUSE_MIN;
        let delete = Call::Delete { path: self.path.clone(), version: None };
        let call = Call::Within { session: self.session(), call: Box::new(delete) };
        loop {
            match self.znodes.service.call(call.clone()).await {
                Ok(_) => return Ok(()),
                Err(ErrorCode::NoNode) => return Err(Error::Removed { path: self.path.clone() }),
                Err(code) if is_lost(code) => {
                    self.znodes.pause(&mut pause).await;
                    // The next holder's may be there by now.
                    if self.find().await?.is_none() {
                        let is_over = self.service().situation().session != Some(self.session());
                        return if is_over { Err(Error::SessionLost) } else { Ok(()) };
                    }
                }
                Err(code) => return Err(Error::of(&self.path, code)),
            }
        }
    }

    /// Deletes it if it is there.
    async fn withdraw(mut self) {
        let mut pause = PAUSE_MIN;
        if self.stat.is_none() {
            // Any error is the end of the session, or would be the same again.
            self.stat = self.find().await.unwrap_or_default();
        }
        if self.stat.is_some() {
            while self.delete().await.is_err_and(|error| error.is_for_now()) {
                self.znodes.pause(&mut pause).await;
            }
        }
    }
}

impl<S: Service> Drop for Leaf<S> {
    fn drop(&mut self) {
        if self.is_over || (self.stat.is_none() && !self.is_unknown) {
            return;
        }
        let service = self.znodes.service.clone();
        let rest = Self {
            znodes: self.znodes.clone(),
            path: core::mem::take(&mut self.path),
            id: core::mem::take(&mut self.id),
            stat: self.stat.take(),
            is_unknown: self.is_unknown,
            is_ahead: self.is_ahead,
            // It is over when the task is, however that ends.
            is_over: true,
        };
        service.spawn(rest.withdraw());
    }
}
