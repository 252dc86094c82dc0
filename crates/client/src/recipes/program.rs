//! Programs that run inside the service, for the forms of recipes that make use of them.

use alloc::format;
use alloc::string::String;

use stoa_wire::{CreateMode, ErrorCode};

use super::error::Error;
use super::service::Service;
use super::znodes::{PAUSE_MIN, Znodes, is_lost};

/// A program of a recipe, which the session has to have registered or acknowledged.
#[derive(Debug)]
pub(super) struct Program<S> {
    znodes: Znodes<S>,
    /// Its znode.
    path: String,
    source: String,
    /// The session that has acknowledged it.
    session: Option<i64>,
}

impl<S: Service> Program<S> {
    /// The program of a kind of recipe for a path, which `$PATH` stands for within texts of the source.
    pub(super) fn new(znodes: &Znodes<S>, kind: &str, path: &str, source: &str) -> Self {
        let name = path.replace('%', "%25").replace(':', "%3a").replace('/', ":");
        let source = source.replace("$PATH", &path.replace('\\', "\\\\").replace('"', "\\\""));
        Self { znodes: znodes.clone(), path: format!("/em/{kind}{name}"), source, session: None }
    }

    /// Sees to it that the session may use it. Afterwards requests are for it, until the session ends.
    pub(super) async fn be_acknowledged(&mut self) -> Result<(), Error> {
        let session = self.znodes.service.situation().session;
        if session.is_some() && session == self.session {
            return Ok(());
        }
        let mut pause = PAUSE_MIN;
        let own = format!("{}/{}-client", self.path, self.znodes.id());
        let mut steps = [
            (&self.path, self.source.as_bytes(), CreateMode::Persistent),
            (&own, b"".as_slice(), CreateMode::Ephemeral),
        ]
        .into_iter()
        .cycle();
        let mut step = steps.next();
        while let Some((path, data, mode)) = step {
            match self.znodes.service.call(self.znodes.create_call(path, data, mode)).await {
                // Who registers a program has acknowledged it.
                Ok(_) => break,
                // It was registered by somebody else, or by us with a request whose answer was lost.
                Err(ErrorCode::NodeExists) if mode == CreateMode::Persistent => step = steps.next(),
                Err(ErrorCode::NodeExists) => break,
                // Somebody has just deregistered it.
                Err(ErrorCode::NoNode) if mode == CreateMode::Ephemeral => step = steps.next(),
                Err(code) if is_lost(code) => self.znodes.pause(&mut pause).await,
                Err(code) => return Err(Error::of(path, code)),
            }
        }
        // If that has changed meanwhile, the next request finds no program, and comes back.
        self.session = session;
        Ok(())
    }

    /// A request has found no program: the session is another one, or somebody has deregistered it.
    pub(super) fn is_missing(&mut self) {
        self.session = None;
    }
}
