//! The election of a leader.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::contender::{Contender, nearest, oldest};
use super::error::Error;
use super::held::{Held, Token};
use super::planted::{Bug, has};
use super::program::Program;
use super::service::{Events, Service};
use super::znodes::Znodes;
use crate::types::Acl;

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
    znodes: Znodes<S>,
    path: String,
    program: Option<Program<S>>,
}

const PROGRAM: &str = include_str!("programs/election.rhai");

impl<S: Service> Election<S> {
    /// The election at a path.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self { znodes: Znodes::new(service), path: path.to_owned(), program: None }
    }

    /// The same election, with a program inside the service that appoints the leader (section 6.1.4 of
    /// *Extensible Distributed Coordination*): when one ends, the next one is told that it leads, instead of
    /// having to find out. Only Stoa runs it; it is registered when somebody first campaigns. Both forms may be
    /// used at once, and guarantee the same. The service's limits of what a program may read bound how many
    /// candidates are told; more find out for themselves, after a while.
    #[must_use]
    pub fn extended(service: &S, path: &str) -> Self {
        let this = Self::new(service, path);
        let is_planted = has(service, Bug::AllAreAppointed);
        let source = if is_planted {
            PROGRAM.replace("appoint();", "local.update(event.path, 0);")
        } else {
            PROGRAM.to_owned()
        };
        let program = Program::new(&this.znodes, "election", path, &source);
        Self { program: Some(program), ..this }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.znodes.acl = acl;
        self
    }

    /// Stands as a candidate, and waits until it leads; `data` is what others are told of it. It leads until
    /// that is released, dropped or lost.
    ///
    /// # Errors
    /// As [`Lock::acquire`](super::Lock::acquire).
    pub async fn campaign(&self, data: &[u8]) -> Result<Held<S>, Error> {
        if let Some(program) = &self.program {
            program.be_registered().await?;
        }
        let contender = Contender::enter(&self.znodes, &self.path, "candidate", data).await?;
        match &self.program {
            Some(program) => contender.be_appointed(program, nearest).await?,
            None => contender.wait(nearest).await?,
        }
        Ok(Held::new(contender))
    }

    /// Who leads now; `None` without candidates. A server that lags behind may name the one before.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        loop {
            let names = self.znodes.children(&self.path).await?;
            let Some(first) = oldest(&names) else { return Ok(None) };
            // If it has gone meanwhile there is another one.
            if let Some((data, stat)) = self.znodes.data(&format!("{}/{}", self.path, first.name)).await? {
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
        loop {
            let names = self.znodes.children(&self.path).await?;
            let Some(first) = oldest(&names) else {
                self.first_comes().await?;
                continue;
            };
            let path = format!("{}/{}", self.path, first.name);
            let Some((data, stat, mut watch)) = self.znodes.data_and_watch(&path).await? else { continue };
            if after != Some(Token(stat.czxid)) {
                return Ok(Candidate { data, token: Token(stat.czxid) });
            }
            let _ = watch.next().await;
        }
    }

    /// Waits until there may be a candidate.
    async fn first_comes(&self) -> Result<(), Error> {
        match self.znodes.children_and_watch(&self.path).await? {
            Some((names, mut watch)) if oldest(&names).is_none() => drop(watch.next().await),
            Some(_) => {}
            None => {
                let (stat, mut watch) = self.znodes.stat_and_watch(&self.path).await?;
                if stat.is_none() {
                    drop(watch.next().await);
                }
            }
        }
        Ok(())
    }
}
