//! The client for programs without an async runtime: a thread runs one for them.

use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use stoa_client_core::{Acl, Call, Identity, Operation, OperationResult, ReadOperation, ReadResult, Reply};
use stoa_wire::{AddWatchMode, ErrorCode, Stat, WatcherKind};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::{self, ConnectError, CreateOptions, MultiError};
use crate::driver::Status;
use crate::options::Options;
use crate::watch::Watch;

/// How long dropping the client waits for its session to be closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// [`BlockingClient`], by the name that it shares with the async one.
pub type Client = BlockingClient;

/// A [`crate::Client`] whose calls block. Its session is closed when it is dropped.
#[derive(Debug)]
pub struct BlockingClient {
    client: Option<client::Client>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Methods that do what the method of the same name of the async client does.
macro_rules! blocking {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl BlockingClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// As the method of the same name of [`crate::Client`].
                pub fn $name(&self, $($argument: $kind),*) -> $result {
                    self.wait(self.client().$name($($argument),*))
                }
            )*
        }
    };
}

type Result<T> = std::result::Result<T, ErrorCode>;

blocking! {
    /// Creates a znode; returns its path.
    fn create(path: &str, data: &[u8], options: impl Into<CreateOptions>) -> Result<String>;
    /// Creates a znode; returns its path and Stat.
    fn create2(path: &str, data: &[u8], options: impl Into<CreateOptions>) -> Result<(String, Stat)>;
    /// Deletes a znode.
    fn delete(path: &str, version: Option<i32>) -> Result<()>;
    /// Reads the Stat of a znode; `None` when it does not exist.
    fn exists(path: &str) -> Result<Option<Stat>>;
    /// The same, with a watch.
    fn exists_and_watch(path: &str) -> Result<(Option<Stat>, Watch)>;
    /// Reads a znode's data and Stat.
    fn get_data(path: &str) -> Result<(Vec<u8>, Stat)>;
    /// The same, with a watch.
    fn get_data_and_watch(path: &str) -> Result<(Vec<u8>, Stat, Watch)>;
    /// Sets a znode's data.
    fn set_data(path: &str, data: &[u8], version: Option<i32>) -> Result<Stat>;
    /// Reads a znode's ACL and Stat.
    fn get_acl(path: &str) -> Result<(Vec<Acl>, Stat)>;
    /// Sets a znode's ACL.
    fn set_acl(path: &str, acl: &[Acl], version: Option<i32>) -> Result<Stat>;
    /// Lists the names of a znode's children.
    fn get_children(path: &str) -> Result<Vec<String>>;
    /// The same, with the znode's Stat.
    fn get_children2(path: &str) -> Result<(Vec<String>, Stat)>;
    /// The same, with a watch.
    fn get_children_and_watch(path: &str) -> Result<(Vec<String>, Stat, Watch)>;
    /// Waits until the server has applied everything ordered before this call.
    fn sync(path: &str) -> Result<()>;
    /// Carries out all operations or none.
    fn multi(operations: Vec<Operation>) -> std::result::Result<Vec<OperationResult>, MultiError>;
    /// Carries out several reads, each for itself.
    fn multi_read(operations: Vec<ReadOperation>) -> Result<Vec<ReadResult>>;
    /// Adds an identity to the session.
    fn auth(scheme: &str, auth: &[u8]) -> Result<()>;
    /// Sets a watch that goes on after an event.
    fn add_watch(path: &str, mode: AddWatchMode) -> Result<Watch>;
    /// Removes all watches of a kind from a znode.
    fn remove_watches(path: &str, kind: WatcherKind) -> Result<()>;
    /// Asks whether the session has a watch of a kind on a znode.
    fn check_watches(path: &str, kind: WatcherKind) -> Result<bool>;
    /// Lists the session's ephemeral znodes.
    fn get_ephemerals(prefix: &str) -> Result<Vec<String>>;
    /// Counts the znodes below a znode.
    fn get_all_children_number(path: &str) -> Result<i32>;
    /// Lists the identities of the connection.
    fn who_am_i() -> Result<Vec<Identity>>;
    /// Closes the session.
    fn close() -> Result<()>;
}

impl BlockingClient {
    /// Opens a session.
    ///
    /// # Errors
    /// As [`crate::Client::connect`].
    pub fn connect(options: Options) -> std::result::Result<Self, ConnectError> {
        let failed =
            |error: std::io::Error| ConnectError { failure: format!("cannot start a runtime: {error}") };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("stoa-client".to_owned())
            .spawn(move || {
                // Dropping the sender stops the thread as well as sending does.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        let mut this = Self { client: None, runtime: handle, stop: Some(stop), thread: Some(thread) };
        let (done, connected) = oneshot::channel();
        this.runtime.spawn(async move { done.send(client::Client::connect(options).await) });
        let lost = || ConnectError { failure: "the client's thread has ended".to_owned() };
        this.client = Some(connected.blocking_recv().map_err(|_| lost())??);
        Ok(this)
    }

    /// The async client behind this one.
    ///
    /// # Panics
    /// Never: it is there from `connect` to `drop`.
    #[must_use]
    pub fn client(&self) -> &client::Client {
        self.client.as_ref().expect("the async client is there from connect to drop")
    }

    /// How the client stands with its servers now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.client().status().borrow().clone()
    }

    /// Makes calls one right after the other and waits for what they answer; see
    /// [`crate::Client::call_all`].
    pub fn call_all(&self, calls: impl IntoIterator<Item = Call>) -> Vec<Result<Reply>> {
        self.wait(self.client().call_all(calls))
    }

    /// Waits for a future of the async client.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs a future beside the calls, for instance one that reads a watch.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let closed = async {
                // A server that cannot be reached ends the session by itself in time.
                let _ = tokio::time::timeout(FAREWELL, client.close()).await;
            };
            self.runtime.block_on(closed);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic after its runtime was built.
            let _ = thread.join();
        }
    }
}
