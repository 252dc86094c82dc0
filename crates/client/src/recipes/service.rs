//! What recipes need of a client.

use core::future::Future;
use core::time::Duration;

use stoa_client_core::{Call, Event, Reply, State, WatchEnd, WatchId};
use stoa_wire::ErrorCode;

/// How a client stands with its servers, as far as recipes care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The state.
    pub state: State,
    /// The id of the session, if there is one.
    pub session: Option<i64>,
    /// How often a connection was made.
    pub connections: u64,
}

/// What recipes need of a client: a session with an ensemble, kept over reconnects. Clones share it.
///
/// Calls are sent in the order made, and wait while there is no connection. A call that was sent when its
/// connection broke fails with [`ErrorCode::ConnectionLoss`]. A call that is made after another one is carried
/// out after it, or the other never is, even when its future was dropped meanwhile.
pub trait Service: Clone + Send + Sync + 'static {
    /// A watch that was set.
    type Watch: Events;

    /// Makes a call and waits for what it answers.
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, ErrorCode>> + Send;

    /// Makes a call that sets a watch.
    fn call_and_watch(
        &self,
        call: impl FnOnce(WatchId) -> Call + Send,
    ) -> impl Future<Output = (Result<Reply, ErrorCode>, Self::Watch)> + Send;

    /// How the client stands with its servers now. The session is never newer than what was answered.
    fn situation(&self) -> Situation;

    /// Waits until that is something else than `from`.
    fn changed(&self, from: Situation) -> impl Future<Output = ()> + Send;

    /// The time since some moment in the past.
    fn now(&self) -> Duration;

    /// Waits for a while.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// Runs a task in the background.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// A number that nobody else draws.
    fn unique(&self) -> u64;
}

/// Events of a watch.
pub trait Events: Send {
    /// Waits for the next one. Nothing is lost when the future is dropped.
    fn next(&mut self) -> impl Future<Output = Result<Event, WatchEnd>> + Send;
}
