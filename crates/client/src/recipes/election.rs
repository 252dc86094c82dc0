//! The election of a leader.

use alloc::format;
use alloc::vec::Vec;

use stoa_client_core::Acl;

use super::contender::{Contender, nearest, oldest};
use super::error::Error;
use super::held::{Held, Token};
use super::lock::{LetIn, PROGRAM, Slot, Wanted, Wish};
use super::program::Program;
use super::service::{Events, Service};

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What the candidate said of itself, for instance its address.
    pub data: Vec<u8>,
    /// Its token, as long as it leads.
    pub token: Token,
}

/// The election of a leader: at most one candidate leads, as far as the service knows.
///
/// It is a [`Lock`](super::Lock) whose holder can be asked for, with all that is said there: the oldest candidate leads, the
/// others take over in the order in which they came, each watching the one before it, and what the leader
/// does should carry its token.
#[derive(Debug, Clone)]
pub struct Election<S> {
    slot: Slot<S>,
    program: Option<Program<S>>,
}

const KIND: &str = "candidate";

impl<S: Service> Election<S> {
    /// The election at a path.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self { slot: Slot::new(service, path), program: None }
    }

    /// The same election, with a program inside the service that appoints the leader (section 6.1.4 of
    /// *Extensible Distributed Coordination*): a candidate asks it for a place, and is told when that is the first,
    /// as with [`Primitive::Extension`](super::Primitive::Extension). Only Stoa runs it; it is registered when
    /// somebody first campaigns. Both forms may be used at once, and guarantee the same. The service's limits of what
    /// a program may read bound how many candidates it gives places; more campaign as if there was none.
    #[must_use]
    pub fn extended(service: &S, path: &str) -> Self {
        let this = Self::new(service, path);
        let program = Program::new(&this.slot.znodes, "election", path, PROGRAM);
        Self { program: Some(program), ..this }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.slot.znodes.acl = acl;
        self
    }

    /// Stands as a candidate, and waits until it leads; `data` is what others are told of it. It leads until
    /// that is released, dropped or lost.
    ///
    /// # Errors
    /// As [`Lock::acquire`](super::Lock::acquire).
    pub async fn campaign(&self, data: &[u8]) -> Result<Held<S>, Error> {
        if let Some(program) = &self.program {
            let contender = Contender::new(&self.slot.znodes, &self.slot.path);
            if let Some(held) = self.be_appointed(program, contender, Wanted::Any, data).await? {
                return Ok(held);
            }
        }
        let contender = Contender::enter(&self.slot.znodes, &self.slot.path, KIND, data).await?;
        contender.wait(nearest).await?;
        Ok(Held::new(contender))
    }

    /// Abdicates and stands again, behind all who stand now, and waits until it leads once more. With the program
    /// both are one request: the next leader is told as soon as after [`Held::release`], and the service has half
    /// the work. Somebody who did not lead any more stands again too.
    ///
    /// # Errors
    /// As [`Lock::acquire`](super::Lock::acquire). Whatever becomes of it, what was held is given back, in the
    /// background if need be.
    pub async fn requeue(&self, held: Held<S>, data: &[u8]) -> Result<Held<S>, Error> {
        // Without a program it is given back here.
        if let (Some(program), Some(mut contender)) = (&self.program, held.into_contender(&self.slot.path)) {
            let place = contender.begin_anew();
            let place = Wanted::Instead(&place);
            if let Some(held) = self.be_appointed(program, contender, place, data).await? {
                return Ok(held);
            }
        }
        self.campaign(data).await
    }

    /// Has the program give a place, and waits until that is the first; `None` if it gave none.
    async fn be_appointed(
        &self,
        program: &Program<S>,
        mut contender: Contender<S>,
        place: Wanted<'_>,
        data: &[u8],
    ) -> Result<Option<Held<S>>, Error> {
        let wish = Wish { kind: KIND, data, place, registers: true };
        if self.slot.be_let_in(program, &mut contender, wish).await? != LetIn::First {
            if contender.created() == 0 {
                return Ok(None);
            }
            // Who has a place keeps it, also when the program can do nothing more for it.
            contender.wait(nearest).await?;
        }
        Ok(Some(Held::new(contender)))
    }

    /// Who leads now; `None` without candidates. A server that lags behind may name the one before.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        let Slot { znodes, path, .. } = &self.slot;
        loop {
            let names = znodes.children(path).await?;
            let Some(first) = oldest(&names) else { return Ok(None) };
            // If it has gone meanwhile there is another one.
            if let Some((data, stat)) = znodes.data(&format!("{path}/{}", first.name)).await? {
                return Ok(Some(Candidate { data, token: Token(stat.czxid) }));
            }
        }
    }

    /// Waits until another one leads than the one with this token, and returns it; `None` waits for the first
    /// leader. Some that led in between may be missed.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn next_leader(&self, after: Option<Token>) -> Result<Candidate, Error> {
        let Slot { znodes, path, .. } = &self.slot;
        loop {
            let names = znodes.children(path).await?;
            let Some(first) = oldest(&names) else {
                self.first_comes().await?;
                continue;
            };
            let first = format!("{path}/{}", first.name);
            let Some((data, stat, mut watch)) = znodes.data_and_watch(&first).await? else { continue };
            if after != Some(Token(stat.czxid)) {
                return Ok(Candidate { data, token: Token(stat.czxid) });
            }
            let _ = watch.next().await;
        }
    }

    /// Waits until there may be a candidate.
    async fn first_comes(&self) -> Result<(), Error> {
        let Slot { znodes, path, .. } = &self.slot;
        match znodes.children_and_watch(path).await? {
            Some((names, mut watch)) if oldest(&names).is_none() => drop(watch.next().await),
            Some(_) => {}
            None => {
                let (stat, mut watch) = znodes.stat_and_watch(path).await?;
                if stat.is_none() {
                    drop(watch.next().await);
                }
            }
        }
        Ok(())
    }
}
