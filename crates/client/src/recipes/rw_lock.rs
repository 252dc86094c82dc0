//! A lock for readers and writers.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::Acl;

use super::contender::{Before, Contender, Rival, nearest};
use super::error::Error;
use super::held::Held;
use super::service::Service;
use super::znodes::Znodes;

const READ: &str = "read";
const WRITE: &str = "write";

/// A lock that many may hold to read, or one to write.
///
/// It is a [`Lock`](super::Lock) in all but this: who wants to read waits for the writer before it, and who
/// wants to write for whoever is before it. It is fair: readers that come after a writer that waits come after
/// it, so writers do not starve. Neither can become the other: who reads and asks to write waits for itself.
#[derive(Debug, Clone)]
pub struct RwLock<S> {
    znodes: Znodes<S>,
    path: String,
}

fn nearest_writer(before: Before) -> Option<Rival> {
    before.0.into_iter().rfind(|it| it.kind == WRITE)
}

impl<S: Service> RwLock<S> {
    /// The lock at a path.
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

    /// Waits until no writer is before us. The token is larger than those of all writers before.
    ///
    /// # Errors
    /// As [`Lock::acquire`](super::Lock::acquire).
    pub async fn read(&self) -> Result<Held<S>, Error> {
        let contender = Contender::enter(&self.znodes, &self.path, READ, b"").await?;
        contender.wait(nearest_writer).await?;
        Ok(Held::new(contender))
    }

    /// Waits until nobody is before us. The token is larger than those of all before.
    ///
    /// # Errors
    /// As [`Lock::acquire`](super::Lock::acquire).
    pub async fn write(&self) -> Result<Held<S>, Error> {
        let contender = Contender::enter(&self.znodes, &self.path, WRITE, b"").await?;
        contender.wait(nearest).await?;
        Ok(Held::new(contender))
    }
}
