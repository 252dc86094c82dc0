//! A lock.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::contender::{Before, Contender, Rival};
use super::error::Error;
use super::held::Held;
use super::service::Service;
use super::znodes::Znodes;
use crate::types::Acl;

/// A lock: at most one client holds it, as far as the service knows.
///
/// Whoever wants it creates an ephemeral sequential znode below its path, and has it when no other one is
/// before that. It is fair: the lock goes to those who wait in the order in which they came, and each of them
/// watches only the one before it. It is not reentrant: who holds it and asks again waits for itself.
///
/// # What is guaranteed
/// At no point of the service's history do two sessions hold it. A holder whose session has ended may not know
/// that yet, for as long as it is cut off or stands still: what the lock protects should compare
/// [tokens](Held::token).
///
/// # Connections that are lost
/// A client that is not told what became of its create finds its znode by the id in the name, instead of
/// making a second one. Acquiring ends with [`Error::SessionLost`] when the session has ended, since its place
/// is gone.
///
/// # Giving up
/// A future of `acquire` that is dropped, because of a timeout or otherwise, takes its znode away in the
/// background. Nobody has to wait for it.
#[derive(Debug, Clone)]
pub struct Lock<S> {
    znodes: Znodes<S>,
    path: String,
}

/// Only who is first is not in the way of anybody.
pub(super) fn nearest(before: Before) -> Option<Rival> {
    before.0.into_iter().next_back()
}

impl<S: Service> Lock<S> {
    /// The lock at a path. Znodes above that are made when it is acquired; that at the path is a container.
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

    /// Waits for the lock.
    ///
    /// # Errors
    /// When the session ends meanwhile, somebody deletes our place, or the service refuses.
    pub async fn acquire(&self) -> Result<Held<S>, Error> {
        let contender = Contender::enter(&self.znodes, &self.path, "lock", b"").await?;
        contender.wait(nearest).await?;
        Ok(Held::new(contender))
    }

    /// Takes the lock if nobody has it or waits for it.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Held<S>>, Error> {
        let contender = Contender::enter(&self.znodes, &self.path, "lock", b"").await?;
        if contender.look(nearest).await?.is_some() {
            contender.leave().await?;
            return Ok(None);
        }
        Ok(Some(Held::new(contender)))
    }
}
