//! The async client.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stoa_client_core::{
    Acl, Call, Identity, Operation, OperationResult, ReadOperation, ReadResult, Reply, State, WatchId,
};
use stoa_wire::{AddWatchMode, CreateMode, ErrorCode, Stat, WatcherKind};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::driver::{Command, Driver, Status};
use crate::fast::Fast;
use crate::options::Options;
use crate::reads::Reads;
use crate::recipes::{Service, Situation};
use crate::watch::Watch;

/// Calls on their way to the task that talks to the server.
const COMMANDS_MAX: usize = 4096;

type Result<T> = std::result::Result<T, ErrorCode>;

/// What a create makes, besides the data. Made from a [`CreateMode`] it is open to everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// The kind of znode.
    pub mode: CreateMode,
    /// Its ACL.
    pub acl: Vec<Acl>,
    /// Its time to live; for the TTL modes, and only for them.
    pub ttl: Option<Duration>,
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> Self {
        Self { mode, acl: Acl::open(), ttl: None }
    }
}

/// No session could be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// What went wrong with the server tried last.
    pub failure: String,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open a session: {}", self.failure)
    }
}

impl std::error::Error for ConnectError {}

/// A multi that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiError {
    /// Why.
    pub code: ErrorCode,
    /// Which operation failed, counted from 0; `None` when the multi failed as a whole.
    pub failed: Option<usize>,
    /// What became of each operation.
    pub results: Vec<OperationResult>,
}

impl fmt::Display for MultiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failed {
            Some(failed) => write!(f, "operation {failed} of the multi failed: {}", self.code),
            None => self.code.fmt(f),
        }
    }
}

impl std::error::Error for MultiError {}

impl From<ErrorCode> for MultiError {
    fn from(code: ErrorCode) -> Self {
        Self { code, failed: None, results: Vec::new() }
    }
}

/// A session with an ensemble, kept over reconnects. Clones share it; it is closed with
/// [`Client::close`], or when the last clone is dropped.
///
/// Calls may be made at the same time; they are sent in the order made and answered in that order.
/// While there is no connection they wait for one. A call that was sent when its connection broke
/// fails with [`ErrorCode::ConnectionLoss`]: nobody knows whether it was carried out.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
    next_watch: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    call_timeout: Option<Duration>,
    began: Instant,
    /// Where its tasks run: handles of recipes may be dropped elsewhere.
    runtime: Handle,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// When no server opens one within the connect timeout, or an identity is refused.
    pub async fn connect(options: Options) -> std::result::Result<Self, ConnectError> {
        let connect_timeout = options.connect_timeout;
        let call_timeout = options.call_timeout;
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (driver, mut status) = Driver::new(options, receiver);
        let sent = driver.sent();
        tokio::spawn(driver.run());
        let settled = status.wait_for(|status| status.state.is_connected() || status.state.is_final());
        let connected = match timeout(connect_timeout, settled).await {
            Ok(Ok(status)) => status.state.is_connected(),
            Ok(Err(_)) | Err(_) => false,
        };
        if connected {
            let (next_watch, runtime) = (Arc::default(), Handle::current());
            let began = Instant::now();
            return Ok(Self { commands, status, next_watch, sent, call_timeout, began, runtime });
        }
        let status = status.borrow();
        let failure = match (&status.failure, status.state) {
            (_, State::AuthFailed) => "the server refused an identity".to_owned(),
            (Some(failure), _) => failure.clone(),
            (None, _) => format!("no server answered within {connect_timeout:?}"),
        };
        Err(ConnectError { failure })
    }

    /// How the client stands with its servers. The receiver always has the latest status; one that
    /// is read slowly misses what came between, so a new session shows by its id.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// How many bytes it has sent so far, over all of its connections: requests, and whatever keeps the session.
    /// Those of a call are counted when it is answered.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Makes a call and waits for what it answers.
    ///
    /// # Errors
    /// When the server answers with an error, the connection is lost, or the call timeout passes.
    pub async fn call(&self, call: Call) -> Result<Reply> {
        self.send(call, None).await
    }

    async fn send(&self, call: Call, watch: Option<(WatchId, crate::watch::Sink)>) -> Result<Reply> {
        let (done, result) = oneshot::channel();
        let exchange = async {
            // The task ends only when the client has.
            let ended = ErrorCode::SessionExpired;
            self.commands.send(Command { call, done, watch }).await.map_err(|_| ended)?;
            result.await.unwrap_or(Err(ended))
        };
        match self.call_timeout {
            None => exchange.await,
            Some(limit) => timeout(limit, exchange).await.unwrap_or(Err(ErrorCode::OperationTimeout)),
        }
    }

    /// Makes calls one right after the other, without waiting for replies in between, and waits for
    /// what they answer. They take effect in their order.
    pub async fn call_all(&self, calls: impl IntoIterator<Item = Call>) -> Vec<Result<Reply>> {
        let mut results = Vec::new();
        for call in calls {
            let (done, result) = oneshot::channel();
            // When the task has ended, so has the sender that the result would come from.
            let _ = self.commands.send(Command { call, done, watch: None }).await;
            results.push(result);
        }
        let ended = Err(ErrorCode::SessionExpired);
        let mut replies = Vec::with_capacity(results.len());
        for result in results {
            let reply = match self.call_timeout {
                None => Ok(result.await),
                Some(limit) => timeout(limit, result).await,
            };
            replies.push(match reply {
                Ok(reply) => reply.unwrap_or_else(|_| ended.clone()),
                Err(_) => Err(ErrorCode::OperationTimeout),
            });
        }
        replies
    }

    /// Reads and watches that wait for nothing; see [`Fast`].
    #[must_use]
    pub fn fast(&self) -> Fast<'_> {
        Fast::new(self)
    }

    fn reads(&self) -> Reads<'_> {
        Reads { client: self, fast: false }
    }

    /// Makes a call that sets a watch.
    pub(crate) async fn call_and_watch(&self, call: impl FnOnce(WatchId) -> Call) -> (Result<Reply>, Watch) {
        let id = WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed));
        let (sink, watch) = Watch::channel();
        (self.send(call(id), Some((id, sink))).await, watch)
    }

    /// Creates a znode; returns its path, with the number if it is sequential.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn create(&self, path: &str, data: &[u8], options: impl Into<CreateOptions>) -> Result<String> {
        match self.call(create_call(path, data, options.into(), false)).await? {
            Reply::Path(path) | Reply::Created { path, .. } => Ok(path),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Creates a znode; returns its path and Stat.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn create2(
        &self,
        path: &str,
        data: &[u8],
        options: impl Into<CreateOptions>,
    ) -> Result<(String, Stat)> {
        match self.call(create_call(path, data, options.into(), true)).await? {
            Reply::Created { path, stat } => Ok((path, stat)),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Deletes a znode, if `version` is its version.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        nothing(self.call(Call::Delete { path: path.to_owned(), version }).await?)
    }

    /// Reads the Stat of a znode; `None` when it does not exist.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        self.reads().exists(path).await
    }

    /// The same, with a watch for its creation, change or deletion.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists_and_watch(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        self.reads().exists_and_watch(path).await
    }

    /// Reads a znode's data and Stat.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        self.reads().data(path).await
    }

    /// The same, with a watch for its change or deletion.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data_and_watch(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch)> {
        self.reads().data_and_watch(path).await
    }

    /// Sets a znode's data, if `version` is its version.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Result<Stat> {
        stat(self.call(Call::SetData { path: path.to_owned(), data: data.to_owned(), version }).await?)
    }

    /// Reads a znode's ACL and Stat.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        self.reads().acl(path).await
    }

    /// Sets a znode's ACL, if `version` is the version of its ACL.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn set_acl(&self, path: &str, acl: &[Acl], version: Option<i32>) -> Result<Stat> {
        stat(self.call(Call::SetAcl { path: path.to_owned(), acl: acl.to_owned(), version }).await?)
    }

    /// Lists the names of a znode's children, in the order of their creation. (ZooKeeper lists them in none.)
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children(&self, path: &str) -> Result<Vec<String>> {
        let call = Call::GetChildren { path: path.to_owned(), watch: None, with_stat: false };
        Ok(children(self.call(call).await?)?.0)
    }

    /// The same, with the znode's Stat.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children2(&self, path: &str) -> Result<(Vec<String>, Stat)> {
        self.reads().children(path).await
    }

    /// The same, with a watch for a change of the list.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children_and_watch(&self, path: &str) -> Result<(Vec<String>, Stat, Watch)> {
        self.reads().children_and_watch(path).await
    }

    /// Waits until the server has applied everything ordered before this call.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn sync(&self, path: &str) -> Result<()> {
        self.call(Call::Sync { path: path.to_owned() }).await.map(|_| ())
    }

    /// Carries out all operations or none.
    ///
    /// # Errors
    /// As [`Client::call`]; with the operation that failed, if it was one.
    pub async fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> std::result::Result<Vec<OperationResult>, MultiError> {
        let Reply::Results(results) = self.call(Call::Multi(operations)).await? else {
            return Err(ErrorCode::MarshallingError.into());
        };
        let error = |result: &OperationResult| match result {
            OperationResult::Failed(ErrorCode::Ok | ErrorCode::RuntimeInconsistency) => None,
            OperationResult::Failed(code) => Some(*code),
            _ => None,
        };
        let failed = results.iter().enumerate().find_map(|(index, result)| Some((index, error(result)?)));
        match failed {
            Some((index, code)) => Err(MultiError { code, failed: Some(index), results }),
            None => Ok(results),
        }
    }

    /// Carries out several reads, each for itself.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn multi_read(&self, operations: Vec<ReadOperation>) -> Result<Vec<ReadResult>> {
        match self.call(Call::MultiRead(operations)).await? {
            Reply::Reads(results) => Ok(results),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Adds an identity to the session, on this connection and all later ones.
    ///
    /// # Errors
    /// As [`Client::call`]. A refused identity ends the client: servers close the connection.
    pub async fn auth(&self, scheme: &str, auth: &[u8]) -> Result<()> {
        nothing(self.call(Call::Auth { scheme: scheme.to_owned(), auth: auth.to_owned() }).await?)
    }

    /// Sets a watch that goes on after an event.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<Watch> {
        let (result, watch) =
            self.call_and_watch(|watch| Call::AddWatch { path: path.to_owned(), mode, watch }).await;
        nothing(result?)?;
        Ok(watch)
    }

    /// Removes all watches of a kind from a znode.
    ///
    /// # Errors
    /// As [`Client::call`]; [`ErrorCode::NoWatcher`] when there is none.
    pub async fn remove_watches(&self, path: &str, kind: WatcherKind) -> Result<()> {
        nothing(self.call(Call::RemoveWatches { path: path.to_owned(), kind }).await?)
    }

    /// Asks whether the session has a watch of a kind on a znode.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn check_watches(&self, path: &str, kind: WatcherKind) -> Result<bool> {
        match self.call(Call::CheckWatches { path: path.to_owned(), kind }).await {
            Ok(_) => Ok(true),
            Err(ErrorCode::NoWatcher) => Ok(false),
            Err(code) => Err(code),
        }
    }

    /// Lists the session's ephemeral znodes whose paths begin with `prefix`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_ephemerals(&self, prefix: &str) -> Result<Vec<String>> {
        match self.call(Call::GetEphemerals { prefix: prefix.to_owned() }).await? {
            Reply::Paths(paths) => Ok(paths),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Counts the znodes below a znode.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_all_children_number(&self, path: &str) -> Result<i32> {
        match self.call(Call::GetAllChildrenNumber { path: path.to_owned() }).await? {
            Reply::Count(count) => Ok(count),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Lists the identities of the connection.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn who_am_i(&self) -> Result<Vec<Identity>> {
        match self.call(Call::WhoAmI).await? {
            Reply::Identities(identities) => Ok(identities),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// Closes the session: its ephemerals go, and every clone of the client ends.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn close(&self) -> Result<()> {
        nothing(self.call(Call::Close).await?)
    }
}

impl Service for Client {
    type Watch = Watch;

    async fn call(&self, call: Call) -> Result<Reply> {
        self.send(call, None).await
    }

    async fn call_and_watch(&self, call: impl FnOnce(WatchId) -> Call + Send) -> (Result<Reply>, Watch) {
        Self::call_and_watch(self, call).await
    }

    fn situation(&self) -> Situation {
        // The task ends only when the client has, or its runtime.
        if self.commands.is_closed() {
            let connections = self.status.borrow().reconnects;
            return Situation { state: State::Closed, session: None, connections };
        }
        situation_of(&self.status.borrow())
    }

    async fn changed(&self, from: Situation) {
        let mut status = self.status.clone();
        if status.wait_for(|status| situation_of(status) != from).await.is_err() && self.situation() == from {
            std::future::pending::<()>().await;
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    fn unique(&self) -> u64 {
        // Each has keys of its own, drawn from what the system has of chance.
        RandomState::new().hash_one(0_u8)
    }
}

fn situation_of(status: &Status) -> Situation {
    Situation { state: status.state, session: status.session_id, connections: status.reconnects }
}

fn create_call(path: &str, data: &[u8], options: CreateOptions, with_stat: bool) -> Call {
    let CreateOptions { mode, acl, ttl } = options;
    Call::Create {
        path: path.to_owned(),
        data: data.to_owned(),
        acl,
        mode,
        ttl_ms: ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
        with_stat,
    }
}

fn nothing(reply: Reply) -> Result<()> {
    match reply {
        Reply::Nothing => Ok(()),
        _ => Err(ErrorCode::MarshallingError),
    }
}

fn stat(reply: Reply) -> Result<Stat> {
    match reply {
        Reply::Stat(stat) => Ok(stat),
        _ => Err(ErrorCode::MarshallingError),
    }
}

pub(crate) fn found(result: Result<Reply>) -> Result<Option<Stat>> {
    match result {
        Err(ErrorCode::NoNode) => Ok(None),
        Err(code) => Err(code),
        Ok(reply) => stat(reply).map(Some),
    }
}

pub(crate) fn data(reply: Reply) -> Result<(Vec<u8>, Stat)> {
    match reply {
        Reply::Data { data, stat } => Ok((data, stat)),
        _ => Err(ErrorCode::MarshallingError),
    }
}

pub(crate) fn children(reply: Reply) -> Result<(Vec<String>, Option<Stat>)> {
    match reply {
        Reply::Children { names, stat } => Ok((names, stat)),
        _ => Err(ErrorCode::MarshallingError),
    }
}
