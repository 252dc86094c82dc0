//! A barrier that somebody sets and lifts.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::Acl;
use stoa_wire::CreateMode;

use super::error::Error;
use super::service::{Events, Service};
use super::znodes::Znodes;

/// A barrier: while it is set, everybody waits. It is a znode at its path.
#[derive(Debug, Clone)]
pub struct Barrier<S> {
    znodes: Znodes<S>,
    path: String,
}

impl<S: Service> Barrier<S> {
    /// The barrier at a path.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self { znodes: Znodes::new(service), path: path.to_owned() }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.znodes.acl = acl;
        self
    }

    /// Sets it, whoever has set it before. It stays until somebody lifts it.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn set(&self) -> Result<(), Error> {
        self.znodes.make(&self.path, b"", CreateMode::Persistent).await
    }

    /// Lifts it: all who wait go on. When the answer is lost it may be lifted twice, also if somebody has set
    /// it again in between.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn lift(&self) -> Result<(), Error> {
        self.znodes.delete(&self.path).await.map(|_| ())
    }

    /// Waits until it is not set: at some moment since the call it was not.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn wait(&self) -> Result<(), Error> {
        // Whoever knows from elsewhere that it is set must find it set.
        self.znodes.sync(&self.path).await?;
        loop {
            // The end of a watch tells nothing, and somebody may have set it again.
            let Some((_, _, mut watch)) = self.znodes.data_and_watch(&self.path).await? else {
                return Ok(());
            };
            if watch.next().await.is_ok_and(|event| event.kind == stoa_wire::EventKind::Deleted) {
                return Ok(());
            }
        }
    }
}
