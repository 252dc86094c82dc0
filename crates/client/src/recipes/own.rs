//! Ephemeral znodes of our own, with names that nobody else has.

use alloc::string::String;

use stoa_client_core::Reply;
use stoa_wire::{CreateMode, ErrorCode, Stat, path as znode_path};

use super::error::Error;
use super::service::Service;
use super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};

/// An ephemeral znode of ours. It is deleted when this is dropped.
///
/// Nobody else has its name, so whatever is found there is ours, and a delete that is sent later than the
/// create leaves nothing.
#[derive(Debug)]
pub(super) struct Own<S: Service> {
    pub(super) znodes: Znodes<S>,
    pub(super) path: String,
    pub(super) session: i64,
    is_over: bool,
}

impl<S: Service> Own<S> {
    /// Before it is created, by [`Own::create`] or otherwise.
    pub(super) fn new(znodes: &Znodes<S>, path: String) -> Self {
        Self { znodes: znodes.clone(), path, session: 0, is_over: false }
    }

    pub(super) async fn create(&mut self, data: &[u8]) -> Result<(), Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let create = self.znodes.create_call(&self.path, data, CreateMode::Ephemeral);
            match self.znodes.service.call(create).await {
                Ok(Reply::Created { stat, .. }) => {
                    self.session = stat.ephemeral_owner;
                    return Ok(());
                }
                Err(ErrorCode::NoNode) => {
                    let parent = znode_path::split(&self.path).map_or("/", |(parent, _)| parent);
                    self.znodes.make(parent, b"", CreateMode::Container).await?;
                }
                Err(ErrorCode::NodeExists) => {
                    if self.find().await?.is_some() {
                        return Ok(());
                    }
                }
                Err(code) if is_lost(code) => self.znodes.pause(&mut pause).await,
                other => return Err(unexpected(&self.path, other)),
            }
        }
    }

    /// Looks whether it is there, after a request to create it whose answer is lost.
    pub(super) async fn find(&mut self) -> Result<Option<Stat>, Error> {
        let found = self.znodes.settled_stat(&self.path).await?;
        Ok(self.stands(found))
    }

    /// The same, after it was created.
    pub(super) async fn look(&mut self) -> Result<Option<Stat>, Error> {
        let found = self.znodes.stat(&self.path).await?;
        Ok(self.stands(found))
    }

    fn stands(&mut self, found: Option<Stat>) -> Option<Stat> {
        self.session = found.map_or(0, |stat| stat.ephemeral_owner);
        found
    }

    /// It was not created, and will not be.
    pub(super) fn never_was(mut self) {
        self.is_over = true;
    }

    /// Whether its session has not ended.
    pub(super) fn may_be_there(&self) -> bool {
        self.znodes.service.situation().session == Some(self.session)
    }

    /// Why it is not there any more.
    pub(super) fn gone(&self) -> Error {
        if self.may_be_there() { Error::Removed { path: self.path.clone() } } else { Error::SessionLost }
    }

    /// Waits until its session has ended, and it with that.
    pub(super) async fn lost(&self) {
        loop {
            let situation = self.znodes.service.situation();
            if situation.session != Some(self.session) {
                return;
            }
            self.znodes.service.changed(situation).await;
        }
    }

    /// Deletes it.
    pub(super) async fn leave(mut self) -> Result<(), Error> {
        let was_there = self.znodes.delete(&self.path).await?;
        self.is_over = true;
        // If it is gone when it is deleted again, its session may have taken it away.
        let is_over = self.znodes.service.situation().session != Some(self.session);
        if was_there && !is_over { Ok(()) } else { Err(self.gone()) }
    }
}

impl<S: Service> Drop for Own<S> {
    fn drop(&mut self) {
        if !self.is_over {
            let (znodes, path) = (self.znodes.clone(), core::mem::take(&mut self.path));
            self.znodes.service.spawn(async move { znodes.delete_for_sure(&path).await });
        }
    }
}
