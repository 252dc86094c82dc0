//! What one has after waiting for it.

use core::fmt;

use stoa_client_core::State;

use super::contender::Contender;
use super::error::Error;
use super::lock::Leaf;
use super::service::Service;

/// A number that grows from one holder to the next.
///
/// It is the zxid at which the holder took its place in the queue. Places are given in the order of zxids, and
/// zxids are never given twice, also when the directory has been deleted and made anew, has moved to another
/// partition, or the numbers in the names of its znodes have begun anew. So a resource that remembers the
/// largest token that it was shown, and refuses smaller ones, is safe from a holder that has not noticed yet
/// that it is one no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How sure somebody can be of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The client is connected.
    Sure,
    /// The connection is lost: the session may have ended, and others may hold it.
    Uncertain,
    /// The session has ended.
    Lost,
}

/// Something that one holds: a lock, a lease of a semaphore, a leadership. It is given back by
/// [`Held::release`], and in the background when it is dropped.
#[derive(Debug)]
pub struct Held<S: Service> {
    by: HeldBy<S>,
}

/// The znode that it is held by.
#[derive(Debug)]
enum HeldBy<S: Service> {
    Contender(Contender<S>),
    Leaf(Leaf<S>),
}

impl<S: Service> Held<S> {
    pub(super) fn new(contender: Contender<S>) -> Self {
        Self { by: HeldBy::Contender(contender) }
    }

    pub(super) fn by_leaf(leaf: Leaf<S>) -> Self {
        Self { by: HeldBy::Leaf(leaf) }
    }

    /// The place in this directory's queue that it is held by; it is given back if it is something else.
    pub(super) fn into_contender(self, directory: &str) -> Option<Contender<S>> {
        match self.by {
            HeldBy::Contender(contender) => {
                Some(contender).filter(|contender| contender.stands_in(directory))
            }
            HeldBy::Leaf(_) => None,
        }
    }

    fn service(&self) -> &S {
        match &self.by {
            HeldBy::Contender(contender) => contender.service(),
            HeldBy::Leaf(leaf) => leaf.service(),
        }
    }

    /// Larger than those of all who held it before.
    #[must_use]
    pub fn token(&self) -> Token {
        Token(match &self.by {
            HeldBy::Contender(contender) => contender.created(),
            HeldBy::Leaf(leaf) => leaf.created(),
        })
    }

    /// The session that it ends with.
    #[must_use]
    pub fn session(&self) -> i64 {
        match &self.by {
            HeldBy::Contender(contender) => contender.session(),
            HeldBy::Leaf(leaf) => leaf.session(),
        }
    }

    /// How sure it is now that this is still held.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let situation = self.service().situation();
        if situation.session != Some(self.session()) {
            return Standing::Lost;
        }
        // A server that only reads is cut off from those that may end the session.
        if situation.state == State::Connected { Standing::Sure } else { Standing::Uncertain }
    }

    /// Waits until the session has ended, and this with it.
    ///
    /// A client that is cut off from all servers learns that only when it is connected again, and then
    /// somebody else may have held it for long: [`Held::uncertain`] comes earlier.
    pub async fn lost(&self) {
        self.wait_for(|standing| standing == Standing::Lost).await;
    }

    /// Waits until it is not sure any more that this is held: the connection is lost, or the session has
    /// ended. A doubt that is over at once may go unnoticed.
    pub async fn uncertain(&self) {
        self.wait_for(|standing| standing != Standing::Sure).await;
    }

    async fn wait_for(&self, wanted: impl Fn(Standing) -> bool + Send + Sync) {
        loop {
            let situation = self.service().situation();
            if wanted(self.standing()) {
                return;
            }
            self.service().changed(situation).await;
        }
    }

    /// Gives it back. When that fails because the service refuses it, it is tried again in the background.
    ///
    /// # Errors
    /// [`Error::SessionLost`] or [`Error::Removed`] when this was not held any more, and otherwise when the
    /// service refuses.
    pub async fn release(self) -> Result<(), Error> {
        match self.by {
            HeldBy::Contender(contender) => contender.leave().await,
            HeldBy::Leaf(leaf) => leaf.leave().await,
        }
    }
}
