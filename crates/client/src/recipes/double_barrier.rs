//! A barrier that opens when enough have come, and is left together.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::{Acl, Call, Operation, Reply};
use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::own::Own;
use super::program::{ATTEMPTS, Program};
use super::service::{Events, Service};
use super::witness::refusal;
use super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};

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
    program: Option<Program<S>>,
}

const PROGRAM: &str = include_str!("programs/barrier.rhai");

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
        Self { znodes: Znodes::new(service), path: path.to_owned(), size, program: None }
    }

    /// The same barrier, with a program inside the service that lets clients in and opens it again (section 6.1.3
    /// of *Extensible Distributed Coordination*): to enter takes one request and a look, to leave another one, and
    /// all are told at once when the last has come or gone. Only Stoa runs it; it is registered when somebody
    /// first enters. Both forms may be used at once, and guarantee the same.
    #[must_use]
    pub fn extended(service: &S, path: &str, size: usize) -> Self {
        let this = Self::new(service, path, size);
        let program = Program::new(&this.znodes, "barrier", path, PROGRAM);
        Self { program: Some(program), ..this }
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
        if let Some(program) = &self.program {
            return self.have_entered(program).await;
        }
        loop {
            let open = self.wait_for_open().await?;
            let Some(own) = self.register(open).await? else { continue };
            let round = self.wait_for_full(&own, open).await?;
            return Ok(Entered { barrier: self.clone(), own, round });
        }
    }

    /// Has the program enter.
    async fn have_entered(&self, program: &Program<S>) -> Result<Entered<S>, Error> {
        let mut attempts = ATTEMPTS;
        loop {
            program.be_acknowledged().await?;
            let member = format!("{}-member", self.znodes.id());
            let mut own = Own::new(&self.znodes, format!("{}/{member}", self.path));
            let request = format!("{}/enter/{}.{member}", self.path, self.size);
            let Some((said, _)) = self.znodes.data(&request).await? else {
                // The program is missing, or the barrier.
                attempts = attempts.checked_sub(1).ok_or_else(|| self.foreign("no program lets in"))?;
                program.is_missing();
                self.znodes.make(&self.path, b"", CreateMode::Persistent).await?;
                continue;
            };
            let said =
                Admission::parse(&said).ok_or_else(|| self.foreign("its program says something else"))?;
            let round = match said {
                Admission::Later => {
                    own.never_was();
                    self.wait_for_next(program, None).await?;
                    continue;
                }
                Admission::In { round, session } => {
                    own.session = session;
                    round
                }
                Admission::Wait { session } => {
                    own.session = session;
                    self.wait_to_be_let_in(program, &own).await?
                }
            };
            return Ok(Entered { barrier: self.clone(), own, round });
        }
    }

    fn foreign(&self, problem: &'static str) -> Error {
        Error::Foreign { path: self.path.clone(), problem }
    }

    /// Waits until the round has enough; returns the version of the barrier's znode then.
    async fn wait_to_be_let_in(&self, program: &Program<S>, own: &Own<S>) -> Result<i32, Error> {
        loop {
            let read = self.znodes.data_and_watch(&self.path).await?;
            let Some((data, stat, watch)) = read.filter(|_| own.may_be_there()) else {
                return Err(own.gone());
            };
            // It becomes full once, and not open again before we have left.
            if data == FULL {
                return Ok(stat.version);
            }
            if program.tells(watch, stat.mzxid).await {
                return Ok(stat.version.wrapping_add(1));
            }
            program.be_acknowledged().await?;
            if self.znodes.stat(&own.path).await?.is_none() {
                return Err(own.gone());
            }
        }
    }

    /// Waits until a round is over that has enough: the one with this version of the barrier's znode, or any.
    async fn wait_for_next(&self, program: &Program<S>, round: Option<i32>) -> Result<(), Error> {
        loop {
            let read = self.znodes.data_and_watch(&self.path).await?;
            let Some((data, stat, watch)) = read else { return Ok(()) };
            let goes_on = data == FULL && round.is_none_or(|round| stat.version == round);
            if !goes_on || program.tells(watch, stat.mzxid).await {
                return Ok(());
            }
            if self.znodes.children(&self.path).await?.is_empty() {
                self.set(b"", stat.version).await?;
            }
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
            if data != FULL {
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
        let check = Operation::Check { path: self.path.clone(), version: Some(open) };
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

/// What the program says to who enters.
enum Admission {
    In { round: i32, session: i64 },
    Wait { session: i64 },
    Later,
}

impl Admission {
    fn parse(data: &[u8]) -> Option<Self> {
        let mut words = core::str::from_utf8(data).ok()?.split(' ');
        Some(match (words.next()?, words.next(), words.next()) {
            ("in", Some(round), Some(session)) => {
                Self::In { round: round.parse().ok()?, session: session.parse().ok()? }
            }
            ("wait", Some(session), None) => Self::Wait { session: session.parse().ok()? },
            ("later", None, None) => Self::Later,
            _ => return None,
        })
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
        if let Some(program) = &barrier.program {
            return barrier.wait_for_next(program, Some(round)).await;
        }
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
