//! A queue.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::{Acl, Operation};
use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::lock::{Lock, Primitive};
use super::program::{ATTEMPTS, Program};
use super::service::{Events, Service};
use super::witness::{Outcome, Witness};
use super::znodes::{PAUSE_MIN, Znodes};

/// A queue of elements, the oldest of which is taken first.
///
/// Elements are persistent sequential znodes below `PATH/items`; who takes one deletes it (section 6.1.2 of
/// *Extensible Distributed Coordination*). What changes the queue is a request that leaves a mark in a znode of
/// the client's own, below `PATH/clients`, so that its outcome is known when the answer is lost. Takers that
/// wait for an element stand behind a lock at `PATH/gate`, so that each new one wakes one of them.
///
/// # What is guaranteed
/// - An element whose put has succeeded is in the queue once, and is taken by at most one taker.
/// - A take that fails or is dropped has taken nothing, or what it had taken is put back, in its place. So is
///   everything when connections are lost.
/// - What that cannot cover is the end of the session, or of the program, while a request is under way: then a
///   put may have been carried out or not, and an element may be gone with the taker that did not get to know
///   of it. [`Error::Uncertain`] says so.
/// - Elements are taken in the order of their puts; takers that run at the same time may overtake each other,
///   and an element that is put back may be taken behind later ones.
///
/// One value does one thing at a time; make another one to do more.
#[derive(Debug)]
pub struct Queue<S: Service> {
    znodes: Znodes<S>,
    gate: Lock<S>,
    items: String,
    clients: String,
    /// What is read of here, the program takes.
    heads: String,
    witness: Option<Witness<S>>,
    program: Option<Program<S>>,
}

const PROGRAM: &str = include_str!("programs/queue.rhai");

impl<S: Service> Queue<S> {
    /// The queue at a path. Its znodes are made when they are needed.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self {
            znodes: Znodes::new(service),
            gate: Lock::with(service, &format!("{path}/gate"), Primitive::AsyncQueueWatch),
            items: format!("{path}/items"),
            clients: format!("{path}/clients"),
            heads: String::new(),
            witness: None,
            program: None,
        }
    }

    /// The same queue, with a program inside the service that takes: one request, however many takers there
    /// are (section 6.1.2). Only Stoa runs it; it is registered when it is first used. Both forms may be used
    /// at once, and guarantee the same, but that an element which is put back comes to the end. The service's
    /// limits of what a program may read bound how many elements there may be.
    #[must_use]
    pub fn extended(service: &S, path: &str) -> Self {
        let this = Self::new(service, path);
        let program = Program::new(&this.znodes, "queue", path, PROGRAM);
        Self { program: Some(program), heads: format!("{path}/head"), ..this }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.gate = self.gate.acl(acl.clone());
        self.znodes.acl = acl;
        self
    }

    /// While it works the witness is not ours: if a future is dropped, so is a witness whose version is unknown.
    fn take_witness(&mut self) -> Witness<S> {
        self.witness.take().unwrap_or_else(|| Witness::new(&self.znodes, &self.clients))
    }

    /// Adds an element at the end. When the future is dropped, it may have been added or not.
    ///
    /// # Errors
    /// [`Error::Uncertain`] when nobody can say whether it was added; otherwise it was not.
    pub async fn put(&mut self, data: &[u8]) -> Result<(), Error> {
        let create = Operation::Create {
            path: format!("{}/item-", self.items),
            data: data.to_vec(),
            acl: self.znodes.acl.clone(),
            mode: CreateMode::PersistentSequential,
            ttl_ms: None,
        };
        loop {
            let mut witness = self.take_witness();
            let outcome = witness.commit(core::slice::from_ref(&create)).await?;
            self.witness = Some(witness);
            match outcome {
                Outcome::Done => return Ok(()),
                Outcome::Refused(_, ErrorCode::NoNode) => {
                    self.znodes.make(&self.items, b"", CreateMode::Persistent).await?;
                }
                Outcome::Refused(_, code) => return Err(Error::of(&self.items, code)),
            }
        }
    }

    /// Takes the oldest element; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Uncertain`] when an element may be gone; otherwise none is.
    pub async fn try_take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.program.is_some() {
            return self.have_taken().await;
        }
        let names = self.znodes.children(&self.items).await?;
        self.take_one_of(names).await
    }

    /// Has the program take.
    async fn have_taken(&mut self) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..ATTEMPTS {
            let Some(program) = &self.program else { break };
            program.be_acknowledged().await?;
            let (witness, znodes) = (Some(self.take_witness()), self.znodes.clone());
            let path = format!("{}/item-", self.items);
            let mut taking = Taking { witness, znodes, path, data: None };
            let heads = &self.heads;
            let taken = match &mut taking.witness {
                Some(witness) => witness.have_done(|name, version| format!("{heads}/{name}.{version}")).await,
                None => Ok(Ok(None)),
            };
            let (witness, _) = taking.done();
            self.witness = witness;
            match taken? {
                Ok(data) => return Ok(data),
                Err(ErrorCode::NoNode) => {
                    self.znodes.make(&self.items, b"", CreateMode::Persistent).await?;
                    self.program.iter().for_each(Program::is_missing);
                }
                Err(code) => return Err(Error::of(&self.items, code)),
            }
        }
        let problem = "the service does not run the program that takes from it";
        Err(Error::Foreign { path: self.items.clone(), problem })
    }

    /// Waits for an element, and takes it.
    ///
    /// # Errors
    /// As [`Queue::try_take`], and [`Lock::acquire`] for the place of who waits.
    pub async fn take(&mut self) -> Result<Vec<u8>, Error> {
        if let Some(data) = self.try_take().await? {
            return Ok(data);
        }
        let _gate = self.gate.acquire().await?;
        loop {
            let Some((names, mut watch)) = self.znodes.children_and_watch(&self.items).await? else {
                self.znodes.make(&self.items, b"", CreateMode::Persistent).await?;
                continue;
            };
            let taken = match self.program {
                Some(_) if !names.is_empty() => self.have_taken().await?,
                _ => self.take_one_of(names).await?,
            };
            if let Some(data) = taken {
                return Ok(data);
            }
            let _ = watch.next().await;
        }
    }

    /// Takes the first of these elements that is still there.
    async fn take_one_of(&mut self, mut names: Vec<String>) -> Result<Option<Vec<u8>>, Error> {
        names.sort();
        for name in names {
            let path = format!("{}/{name}", self.items);
            let Some((data, stat)) = self.znodes.data(&path).await? else { continue };
            let (witness, znodes, data) = (Some(self.take_witness()), self.znodes.clone(), Some(data));
            let mut taking = Taking { witness, znodes, path, data };
            let outcome = taking.carry_out(stat.version).await;
            let (witness, data) = taking.done();
            let outcome = outcome?;
            self.witness = witness;
            match outcome {
                Outcome::Done => return Ok(data),
                Outcome::Refused(_, ErrorCode::NoNode | ErrorCode::BadVersion) => {}
                Outcome::Refused(_, code) => return Err(Error::of(&self.items, code)),
            }
        }
        Ok(None)
    }
}

/// An element that is being taken. If nobody waits for it any more, it is put back.
struct Taking<S: Service> {
    witness: Option<Witness<S>>,
    znodes: Znodes<S>,
    path: String,
    /// `None` if a program takes: then the witness has it.
    data: Option<Vec<u8>>,
}

impl<S: Service> Taking<S> {
    async fn carry_out(&mut self, version: i32) -> Result<Outcome, Error> {
        let delete = Operation::Delete { path: self.path.clone(), version: Some(version) };
        match &mut self.witness {
            Some(witness) => witness.commit(&[delete]).await,
            None => Ok(Outcome::Refused(0, ErrorCode::NoNode)),
        }
    }

    fn done(mut self) -> (Option<Witness<S>>, Option<Vec<u8>>) {
        (self.witness.take(), self.data.take())
    }
}

impl<S: Service> Drop for Taking<S> {
    fn drop(&mut self) {
        let Some(mut witness) = self.witness.take() else { return };
        let (path, data, acl) = (core::mem::take(&mut self.path), self.data.take(), self.znodes.acl.clone());
        let (service, znodes) = (witness.service(), self.znodes.clone());
        service.spawn(async move {
            let taken = match data {
                // The same place, by a name that was never there: names come in the order of the elements.
                Some(data) => {
                    let was_done = witness.was_done().await;
                    was_done.map(|done| done.then_some((format!("{path}~"), data, CreateMode::Persistent)))
                }
                None => {
                    let said = witness.said().await;
                    said.map(|said| said.map(|data| (path, data, CreateMode::PersistentSequential)))
                }
            };
            // Nobody is there to be told of an error; without a session there is nothing to be done.
            if let Ok(Some((path, data, mode))) = taken {
                let create = [Operation::Create { path, data, acl, mode, ttl_ms: None }];
                let mut pause = PAUSE_MIN;
                while is_full(&witness.commit(&create).await) {
                    znodes.pause(&mut pause).await;
                }
            }
            witness.leave().await;
        });
    }
}

/// Whether what is put back does not fit in for now: others may have filled its place.
fn is_full(result: &Result<Outcome, Error>) -> bool {
    match result {
        Ok(outcome) => matches!(outcome, Outcome::Refused(_, ErrorCode::QuotaExceeded)),
        Err(error) => error.is_for_now(),
    }
}
