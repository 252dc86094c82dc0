//! A barrier that opens when enough have come, and is left together.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::own::Own;
use super::planted::{Bug, has};
use super::service::{Events, Service};
use super::witness::refusal;
use super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};
use crate::protocol::{Call, Reply};
use crate::types::{Acl, Operation};

/// What the barrier's znode says while a round goes on that has enough.
const FULL: &[u8] = b"full";

/// A barrier for so many clients: all wait until that many have entered, and, when they leave, until all have
/// left. Then it can be entered again.
///
/// Whoever enters has an ephemeral znode below the path, so clients whose sessions end do not count any more.
/// The znode at the path says whether the round has enough; who comes then waits for the next one. Its version
/// stands in all requests that depend on that, so nobody slips into a round that is over.
///
/// # What is guaranteed
/// When [`DoubleBarrier::enter`] returns, so many had entered at some moment of the round, and none of those
/// had left by then. When [`Entered::leave`] returns, all of the round have left, or their sessions have ended.
///
/// All who enter are told at once, as they have to be. Those who leave watch one of the others at a time.
#[derive(Debug, Clone)]
pub struct DoubleBarrier<S> {
    znodes: Znodes<S>,
    path: String,
    size: usize,
}

/// Somebody who has entered. Who drops this leaves, without waiting for others.
#[derive(Debug)]
pub struct Entered<S: Service> {
    barrier: DoubleBarrier<S>,
    own: Own<S>,
    /// The version of the barrier's znode in this round.
    round: i32,
}

impl<S: Service> DoubleBarrier<S> {
    /// The barrier at a path, for `size` clients. All of them have to agree on that.
    #[must_use]
    pub fn new(service: &S, path: &str, size: usize) -> Self {
        Self { znodes: Znodes::new(service), path: path.to_owned(), size }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.znodes.acl = acl;
        self
    }

    /// Enters, and waits until enough have. A future that is dropped leaves.
    ///
    /// # Errors
    /// When the session ends meanwhile, somebody deletes our znode, or the service refuses.
    pub async fn enter(&self) -> Result<Entered<S>, Error> {
        loop {
            let open = self.wait_for_open().await?;
            let Some(own) = self.register(open).await? else { continue };
            let round = self.wait_for_full(&own, open).await?;
            return Ok(Entered { barrier: self.clone(), own, round });
        }
    }

    /// Waits until there is no round that has enough; returns the version of the barrier's znode.
    async fn wait_for_open(&self) -> Result<i32, Error> {
        loop {
            // In this order: who is listed before the round is known to go on is of this round, or of none.
            let members = self.znodes.children(&self.path).await?;
            let Some((data, stat)) = self.znodes.data(&self.path).await? else {
                self.znodes.make(&self.path, b"", CreateMode::Persistent).await?;
                continue;
            };
            if data != FULL || has(&self.znodes.service, Bug::EntersFullBarrier) {
                return Ok(stat.version);
            }
            match members.first() {
                Some(member) => self.wait_for_end(member).await?,
                // The last of the round were lost before they could open it again.
                None => {
                    if self.znodes.children(&self.path).await?.is_empty() {
                        self.set(b"", stat.version).await?;
                    }
                }
            }
        }
    }

    async fn wait_for_end(&self, member: &str) -> Result<(), Error> {
        let (stat, mut watch) = self.znodes.stat_and_watch(&format!("{}/{member}", self.path)).await?;
        if stat.is_some() {
            let _ = watch.next().await;
        }
        Ok(())
    }

    /// Sets the barrier's znode, if nobody else has meanwhile. Whoever wants to know looks afterwards.
    async fn set(&self, data: &[u8], version: i32) -> Result<(), Error> {
        let mut pause = PAUSE_MIN;
        let (path, data) = (self.path.clone(), data.to_vec());
        match self.znodes.service.call(Call::SetData { path, data, version: Some(version) }).await {
            Ok(_) | Err(ErrorCode::BadVersion | ErrorCode::NoNode) => Ok(()),
            Err(code) if is_lost(code) => {
                self.znodes.pause(&mut pause).await;
                Ok(())
            }
            Err(code) => Err(Error::of(&self.path, code)),
        }
    }

    /// Registers a member, unless the round has got enough since.
    async fn register(&self, open: i32) -> Result<Option<Own<S>>, Error> {
        let mut own = Own::new(&self.znodes, format!("{}/{}-member", self.path, self.znodes.id()));
        let is_planted = has(&self.znodes.service, Bug::EntersFullBarrier);
        let check = Operation::Check { path: self.path.clone(), version: (!is_planted).then_some(open) };
        let create = Operation::Create {
            path: own.path.clone(),
            data: Vec::new(),
            acl: self.znodes.acl.clone(),
            mode: CreateMode::Ephemeral,
            ttl_ms: None,
        };
        match self.znodes.service.call(Call::Multi([check, create].into())).await {
            Ok(Reply::Results(results)) => match refusal(&results) {
                None => Ok(own.look().await?.map(|_| own)),
                Some((_, ErrorCode::BadVersion | ErrorCode::NoNode)) => {
                    own.never_was();
                    Ok(None)
                }
                Some((_, code)) => Err(Error::of(&self.path, code)),
            },
            Err(code) if is_lost(code) => Ok(own.find().await?.map(|_| own)),
            other => Err(unexpected(&self.path, other)),
        }
    }

    /// Waits until the round has enough, and sees to it if we are the last; returns the version then.
    async fn wait_for_full(&self, own: &Own<S>, open: i32) -> Result<i32, Error> {
        loop {
            let read = self.znodes.data_and_watch(&self.path).await?;
            let Some((data, stat, mut watch)) = read else { return Err(own.gone()) };
            let members = self.znodes.children(&self.path).await?;
            if !members.iter().any(|name| own.path.ends_with(name)) {
                return Err(own.gone());
            }
            // It becomes full once, and not open again before we have left.
            if stat.version != open || data == FULL {
                return Ok(stat.version);
            }
            if members.len() >= self.size {
                self.set(FULL, open).await?;
            } else {
                let _ = watch.next().await;
            }
        }
    }
}

impl<S: Service> Entered<S> {
    /// The session that this ends with.
    #[must_use]
    pub fn session(&self) -> i64 {
        self.own.session
    }

    /// Waits until that session has ended: then the others do not wait for us any more.
    pub async fn lost(&self) {
        self.own.lost().await;
    }

    /// Leaves, and waits until all others of the round have.
    ///
    /// # Errors
    /// [`Error::SessionLost`] or [`Error::Removed`] when we were not in it any more, and otherwise when the
    /// service refuses.
    pub async fn leave(self) -> Result<(), Error> {
        let Self { barrier, own, round } = self;
        own.leave().await?;
        loop {
            // In this order: who is listed before the round is known to go on is of this round.
            let members = barrier.znodes.children(&barrier.path).await?;
            let read = barrier.znodes.data(&barrier.path).await?;
            let goes_on = read.is_some_and(|(data, stat)| data == FULL && stat.version == round);
            match members.first() {
                _ if !goes_on => return Ok(()),
                Some(member) => barrier.wait_for_end(member).await?,
                None => barrier.set(b"", round).await?,
            }
        }
    }
}
