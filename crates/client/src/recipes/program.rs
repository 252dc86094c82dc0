//! Programs that run inside the service, for the forms of recipes that make use of them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use core::time::Duration;

use stoa_client_core::Call;
use stoa_wire::{CreateMode, ErrorCode, EventKind};

use super::error::Error;
use super::race::{First, first};
use super::service::{Events, Service};
use super::znodes::{PAUSE_MIN, Znodes, is_lost};

/// How often a program is registered anew before that is given up.
pub(super) const ATTEMPTS: usize = 5;
/// How long a program is relied on to tell of something, before one looks for oneself: somebody may have
/// deregistered it, and what it would do may be beyond the service's limits.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a program that is not there is not looked for again.
const ABSENCE: Duration = Duration::from_secs(60);
/// No session.
const NONE: i64 = 0;

/// A program of a recipe, which the session has to have registered or acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Program<S> {
    znodes: Znodes<S>,
    /// Its znode.
    path: String,
    source: String,
    /// The session that has seen to it that it may be used, which clones tell each other.
    session: Arc<AtomicI64>,
    /// When it is looked for again, in microseconds of the service's time.
    look_us: Arc<AtomicU64>,
}

impl<S: Service> Program<S> {
    /// The program of a kind of recipe for a path, which `$PATH` stands for within texts of the source.
    pub(super) fn new(znodes: &Znodes<S>, kind: &str, path: &str, source: &str) -> Self {
        let name = path.replace('%', "%25").replace(':', "%3a").replace('/', ":");
        let source = source.replace("$PATH", &path.replace('\\', "\\\\").replace('"', "\\\""));
        let session = Arc::new(AtomicI64::new(NONE));
        Self {
            znodes: znodes.clone(),
            path: format!("/em/{kind}{name}"),
            source,
            session,
            look_us: Arc::default(),
        }
    }

    /// The znode by which a session acknowledges it, however often it does.
    fn acknowledgement(&self, session: Option<i64>) -> String {
        let id = session.map_or_else(|| self.znodes.id(), |session| format!("{session:016x}"));
        format!("{}/{id}-client", self.path)
    }

    /// Whether the session has seen to it that it may be used. If not, it is looked for in the background, unless it
    /// was not long ago, and acknowledged if somebody has registered it.
    pub(super) fn is_at_hand(&self) -> bool {
        let service = &self.znodes.service;
        let Some(session) = service.situation().session else { return false };
        if session == self.session.load(Ordering::Relaxed) {
            return true;
        }
        let now_us = service.now().as_micros() as u64;
        let due_us = self.look_us.load(Ordering::Relaxed);
        if now_us >= due_us {
            self.look_us.store(now_us + ABSENCE.as_micros() as u64, Ordering::Relaxed);
            let this = self.clone();
            service.spawn(async move { this.acknowledge(session).await });
        }
        false
    }

    async fn acknowledge(&self, session: i64) {
        let own = self.acknowledgement(Some(session));
        let create = self.znodes.create_call(&own, b"", CreateMode::Ephemeral);
        let call = Call::Within { session, call: Box::new(create) };
        if let Ok(_) | Err(ErrorCode::NodeExists) = self.znodes.service.call(call).await {
            self.session.store(session, Ordering::Relaxed);
        }
    }

    /// Sees to it that the session may use it. Afterwards requests are for it, until the session ends.
    pub(super) async fn be_acknowledged(&self) -> Result<(), Error> {
        let session = self.znodes.service.situation().session;
        if session.is_some_and(|session| session == self.session.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let own = self.acknowledgement(session);
        let mut pause = PAUSE_MIN;
        let mut registers = true;
        loop {
            let call = if registers {
                self.znodes.create_call(&self.path, self.source.as_bytes(), CreateMode::Persistent)
            } else {
                self.znodes.create_call(&own, b"", CreateMode::Ephemeral)
            };
            match self.znodes.service.call(call).await {
                // Who registers a program has acknowledged it.
                Ok(_) => break,
                // It was registered by somebody else, or by us with a request whose answer was lost.
                Err(ErrorCode::NodeExists) if registers => registers = false,
                Err(ErrorCode::NodeExists) => break,
                // Somebody has just deregistered it.
                Err(ErrorCode::NoNode) if !registers => registers = true,
                Err(code) if is_lost(code) => self.znodes.pause(&mut pause).await,
                Err(code) => return Err(Error::of(&self.path, code)),
            }
        }
        // If that has changed meanwhile, the next request finds no program, and comes back.
        self.session.store(session.unwrap_or(NONE), Ordering::Relaxed);
        Ok(())
    }

    /// A request has found no program: the session is another one, or somebody has deregistered it.
    pub(super) fn is_missing(&self) {
        self.session.store(NONE, Ordering::Relaxed);
    }

    /// Waits for the program to change a znode that was read when its last change was at `mzxid`. An event that
    /// says the zxid of a later one can be believed, so nobody has to look again; one that is told after a
    /// reconnect has none, and may be of what was read. `false`: look again, the program may be missing.
    pub(super) async fn tells(&self, mut watch: S::Watch, mzxid: i64) -> bool {
        match first(watch.next(), self.znodes.service.sleep(PATIENCE)).await {
            First::This(event) => {
                event.is_ok_and(|event| event.kind == EventKind::DataChanged && event.zxid > mzxid)
            }
            First::That(()) => {
                self.is_missing();
                false
            }
        }
    }
}
