//! A counter.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use stoa_client_core::{Acl, Operation};
use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::program::{ATTEMPTS, Program};
use super::service::Service;
use super::witness::{Outcome, Witness};
use super::znodes::Znodes;

/// A counter that many clients share: the data of its znode is a number, as text. It begins with 0.
///
/// Who adds reads the number and writes the sum if nobody else has written meanwhile (section 6.1.1 of
/// *Extensible Distributed Coordination*). So that nothing is added twice when an answer is lost, the same
/// request leaves a mark in a znode of its own below the counter. Only when the session ends at that moment is
/// the error [`Error::Uncertain`]. One value does one thing at a time; make another one to do more.
#[derive(Debug)]
pub struct Counter<S: Service> {
    znodes: Znodes<S>,
    path: String,
    witness: Option<Witness<S>>,
    program: Option<Program<S>>,
}

const PROGRAM: &str = include_str!("programs/counter.rhai");

impl<S: Service> Counter<S> {
    /// The counter at a path. It is made when it is first added to.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self { znodes: Znodes::new(service), path: path.to_owned(), witness: None, program: None }
    }

    /// The same counter, with a program inside the service that adds: one request, however many clients add
    /// at the same time (section 6.1.1). Only Stoa runs it; it is registered when it is first used. Both forms
    /// may be used at once, and guarantee the same.
    #[must_use]
    pub fn extended(service: &S, path: &str) -> Self {
        let this = Self::new(service, path);
        let program = Program::new(&this.znodes, "counter", path, PROGRAM);
        Self { program: Some(program), ..this }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.znodes.acl = acl;
        self
    }

    /// The number now. It may be that of a moment ago, but not from before what this client has been told.
    ///
    /// # Errors
    /// When the znode holds no number, or the service refuses.
    pub async fn get(&self) -> Result<i64, Error> {
        self.read().await.map(|read| read.map_or(0, |(number, _)| number))
    }

    /// Adds to the number, and returns the sum.
    ///
    /// When the future is dropped, it may have been added or not.
    ///
    /// # Errors
    /// [`Error::Uncertain`] when nobody can say whether it was added; otherwise it was not: the sum is too large,
    /// the znode holds no number, or the service refuses.
    pub async fn add(&mut self, number: i64) -> Result<i64, Error> {
        if self.program.is_some() {
            return self.have_added(number).await;
        }
        loop {
            let Some((current, version)) = self.read().await? else {
                self.znodes.make(&self.path, b"0", CreateMode::Persistent).await?;
                continue;
            };
            let sum = current.checked_add(number).ok_or_else(|| self.foreign("the sum is too large"))?;
            if self.write(sum, version).await? {
                return Ok(sum);
            }
        }
    }

    /// Has the program add.
    async fn have_added(&mut self, number: i64) -> Result<i64, Error> {
        for _ in 0..ATTEMPTS {
            let Some(program) = &self.program else { break };
            program.be_acknowledged().await?;
            if self.witness.is_none() {
                // The witness stands below it.
                self.znodes.make(&self.path, b"0", CreateMode::Persistent).await?;
            }
            let mut witness = self.witness.take().unwrap_or_else(|| Witness::new(&self.znodes, &self.path));
            let path = &self.path;
            let request = |name: &str, version: i32| format!("{path}/add/{number}.{name}.{version}");
            let done = witness.have_done(request).await?;
            match done {
                Ok(data) => {
                    self.witness = Some(witness);
                    return self.parse(&data.unwrap_or_default());
                }
                // The program is missing, or the counter, or the witness, with its session.
                Err(ErrorCode::NoNode) => program.is_missing(),
                Err(code) => return Err(Error::of(&self.path, code)),
            }
        }
        Err(self.foreign("the service does not run the program that adds to it"))
    }

    /// Writes the number if nobody else has. Returns whether it has.
    async fn write(&mut self, number: i64, version: i32) -> Result<bool, Error> {
        let (path, data) = (self.path.clone(), number.to_string().into_bytes());
        // While it works it is not ours: if this future is dropped, so is a witness whose version is not known.
        let mut witness = self.witness.take().unwrap_or_else(|| Witness::new(&self.znodes, &self.path));
        let set = Operation::SetData { path, data, version: Some(version) };
        let outcome = witness.commit(&[set]).await?;
        self.witness = Some(witness);
        match outcome {
            Outcome::Done => Ok(true),
            Outcome::Refused(_, ErrorCode::BadVersion | ErrorCode::NoNode) => Ok(false),
            Outcome::Refused(_, code) => Err(Error::of(&self.path, code)),
        }
    }

    async fn read(&self) -> Result<Option<(i64, i32)>, Error> {
        let Some((data, stat)) = self.znodes.data(&self.path).await? else { return Ok(None) };
        Ok(Some((self.parse(&data)?, stat.version)))
    }

    fn parse(&self, data: &[u8]) -> Result<i64, Error> {
        let number = core::str::from_utf8(data).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| self.foreign("its data is no number of 64 bits"))
    }

    fn foreign(&self, problem: &'static str) -> Error {
        Error::Foreign { path: self.path.clone(), problem }
    }
}
