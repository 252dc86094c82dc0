//! Moves bytes and time between the protocol core and tokio: the task behind a [`crate::Client`].

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::options::Options;
use crate::sides::{SideTurn, Sides};
use crate::tls::{Tls, TlsFailure};
use crate::transport::{self, Transport};
use crate::watch::Sink;
use stoa_client_core::{Call, Fault, Output, Protocol, Reply, SideWish, State, Token, WatchEnd, WatchId};
use stoa_wire::ErrorCode;

/// Calls that the core holds at a time; further ones wait in the channel, and then their callers do.
const PENDING_MAX: usize = 65_536;
const READ_BYTES: usize = 64 << 10;
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// How a message begins with which TLS ends (RFC 8446, section 5.1); no frame is as long.
const TLS_ALERT: [u8; 2] = [21, 3];
const WITH_TLS: &str =
    "it speaks TLS here, and this client does not: connect with TLS, or to its port without";

/// How the client stands with its servers, with details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// The session's id.
    pub session_id: Option<i64>,
    /// The negotiated session timeout.
    pub session_timeout: Duration,
    /// The server of the connection.
    pub server: Option<SocketAddr>,
    /// How many connections to it there are: more than one when the client is direct and the server has several
    /// partitions.
    pub connections: usize,
    /// How often the session was connected to a server, or a new one was opened.
    pub reconnects: u64,
    /// Why the last connection ended or could not be opened.
    pub failure: Option<String>,
}

/// A call on its way to the task.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) call: Call,
    pub(crate) done: oneshot::Sender<Result<Reply, ErrorCode>>,
    pub(crate) watch: Option<(WatchId, Sink)>,
}

/// A call that the core works on.
#[derive(Debug)]
struct Pending {
    done: Option<oneshot::Sender<Result<Reply, ErrorCode>>>,
    watch: Option<WatchId>,
    /// An exists sets its watch even when the znode is not there.
    is_exists: bool,
}

#[derive(Debug)]
pub(crate) struct Driver {
    protocol: Protocol,
    options: Options,
    next_server: usize,
    commands: mpsc::Receiver<Command>,
    /// Every handle is gone: the session is being closed.
    abandoned: bool,
    next_token: Token,
    pending: HashMap<Token, Pending>,
    watches: HashMap<WatchId, Sink>,
    sides: Sides,
    connections: usize,
    /// Bytes that sockets have taken.
    sent: Arc<AtomicU64>,
    status: watch::Sender<Status>,
    start: Instant,
}

impl Driver {
    pub(crate) fn new(
        options: Options,
        commands: mpsc::Receiver<Command>,
    ) -> (Self, watch::Receiver<Status>) {
        let protocol = Protocol::new(options.settings());
        let (status, statuses) = watch::channel(Status {
            state: State::Connecting,
            session_id: None,
            session_timeout: options.session_timeout,
            server: None,
            connections: 0,
            reconnects: 0,
            failure: None,
        });
        let start = Instant::now();
        let mut driver = Self {
            protocol,
            next_server: first_server(options.servers.len()),
            commands,
            abandoned: false,
            next_token: 0,
            pending: HashMap::new(),
            watches: HashMap::new(),
            sides: Sides::default(),
            connections: 0,
            sent: Arc::default(),
            status,
            start,
            options,
        };
        for (scheme, auth) in driver.options.identities.clone() {
            driver.submit(Call::Auth { scheme, auth }, None, None);
        }
        (driver, statuses)
    }

    /// How many bytes sockets have taken, while the driver runs.
    pub(crate) fn sent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs until the client is closed, refused, or dropped.
    pub(crate) async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        while !self.is_over() {
            let server = self.options.servers[self.next_server].clone();
            self.next_server = (self.next_server + 1) % self.options.servers.len();
            let patience =
                (self.options.session_timeout / self.options.servers.len() as u32).max(CONNECT_TIMEOUT_MIN);
            let opening = open(server.clone(), self.options.tls.clone(), patience);
            let failure = match self.meanwhile(opening).await {
                None => break,
                Some(Err(error)) => error.to_string(),
                Some(Ok((mut stream, address))) => {
                    let had_session = self.protocol.session_id();
                    let tls = self.options.tls.as_ref().map(|tls| tls.to(&server));
                    self.sides.lead_to(address, tls);
                    let failure = self.serve(&mut stream, address).await;
                    if self.protocol.session_id().is_some() || had_session.is_some() {
                        backoff = BACKOFF_MIN;
                    }
                    failure.to_string()
                }
            };
            self.protocol.disconnected();
            self.sides.close_all();
            self.deliver();
            self.count_connections(0);
            let failure = format!("{server}: {failure}");
            self.status.send_modify(|status| {
                status.server = None;
                status.failure = Some(failure);
            });
            if self.is_over() || self.meanwhile(sleep(backoff)).await.is_none() {
                break;
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
        self.deliver();
    }

    fn is_over(&self) -> bool {
        self.protocol.state().is_final() || (self.abandoned && self.protocol.session_id().is_none())
    }

    /// Waits for `future` and takes commands until then. `None` when the client is over before.
    async fn meanwhile<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            self.deliver();
            if self.is_over() {
                return None;
            }
            let takes_commands = self.takes_commands();
            tokio::select! {
                output = &mut future => return Some(output),
                command = self.commands.recv(), if takes_commands => self.command(command),
            }
        }
    }

    fn takes_commands(&self) -> bool {
        !self.abandoned && self.protocol.pending() < PENDING_MAX
    }

    /// Uses a connection until it ends; returns why it did.
    async fn serve(&mut self, stream: &mut Transport, address: SocketAddr) -> Failure {
        self.protocol.connected(self.now_ms());
        self.status.send_modify(|status| status.server = Some(address));
        let mut input = vec![0; READ_BYTES];
        loop {
            if let Err(error) = self.write(stream) {
                return error.into();
            }
            if let Err(fault) = self.sides.write(&mut self.protocol, self.start, &self.sent) {
                return fault.into();
            }
            self.deliver();
            self.count_connections(1 + self.protocol.sides().count());
            if self.protocol.state().is_final() {
                return Fault::Closed.into();
            }
            let takes_commands = self.takes_commands();
            let has_output = stream.has_output() || !self.protocol.output().is_empty();
            let tick = self.start + Duration::from_millis(self.protocol.next_tick_ms().unwrap_or_default());
            let waiting = self.sides.waiting(&mut self.protocol);
            let turn = tokio::select! {
                turn = self.sides.turn(waiting), if !self.sides.is_empty() => {
                    self.side_turn(turn, &mut input).map_err(Failure::from)
                }
                ready = stream.readable() => ready.map_err(Failure::from).and_then(|()| self.read(stream, &mut input)),
                ready = stream.writable(), if has_output => ready.map_err(Failure::from),
                command = self.commands.recv(), if takes_commands => {
                    self.command(command);
                    // Everything that waits goes out in one write.
                    while self.takes_commands() && let Ok(command) = self.commands.try_recv() {
                        self.command(Some(command));
                    }
                    Ok(())
                }
                () = sleep_until(tick) => self.protocol.tick(self.now_ms()).map_err(Failure::from),
            };
            if let Err(failure) = turn {
                return failure;
            }
        }
    }

    fn read(&mut self, stream: &mut Transport, input: &mut [u8]) -> Result<(), Failure> {
        match stream.try_read(input) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection").into()),
            Ok(len) => match self.protocol.receive(&input[..len], self.now_ms()) {
                Err(Fault::Frame(_)) if self.options.tls.is_none() && input.starts_with(&TLS_ALERT) => {
                    Err(io::Error::new(ErrorKind::InvalidData, WITH_TLS).into())
                }
                received => Ok(received?),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, stream: &mut Transport) -> io::Result<()> {
        let output = self.protocol.output();
        if output.is_empty() {
            return stream.try_flush();
        }
        match stream.try_write(output) {
            Ok(len) => {
                self.sent.fetch_add(len as u64, Ordering::Relaxed);
                output.drain(..len);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn side_turn(&mut self, turn: SideTurn, input: &mut [u8]) -> Result<(), Fault> {
        let now_ms = self.now_ms();
        match turn {
            SideTurn::Opened(partition, Some(stream)) => {
                self.sides.opened(partition, stream);
                self.protocol.side_connected(partition, now_ms);
                if !self.protocol.sides().any(|side| side == partition) {
                    // It has come too late.
                    self.sides.close(partition);
                }
                Ok(())
            }
            SideTurn::Opened(partition, None) => self.protocol.side_disconnected(partition, now_ms),
            SideTurn::Ready => self.sides.read(&mut self.protocol, input, now_ms),
        }
    }

    fn count_connections(&mut self, connections: usize) {
        if std::mem::replace(&mut self.connections, connections) != connections {
            self.status.send_modify(|status| status.connections = connections);
        }
    }

    /// Takes a command; `None` says that there will be no more.
    fn command(&mut self, command: Option<Command>) {
        match command {
            Some(Command { call, done, watch }) => self.submit(call, Some(done), watch),
            None => {
                self.abandoned = true;
                self.submit(Call::Close, None, None);
            }
        }
    }

    fn submit(
        &mut self,
        call: Call,
        done: Option<oneshot::Sender<Result<Reply, ErrorCode>>>,
        watch: Option<(WatchId, Sink)>,
    ) {
        let token = self.next_token;
        self.next_token += 1;
        let is_exists = matches!(call, Call::Exists { .. });
        self.pending
            .insert(token, Pending { done, watch: watch.as_ref().map(|(watch, _)| *watch), is_exists });
        self.watches.extend(watch);
        self.protocol.submit(token, call, self.now_ms());
    }

    /// Passes on what the core has to say.
    fn deliver(&mut self) {
        while let Some(output) = self.protocol.poll() {
            match output {
                Output::Completed { token, result } => self.complete(token, result),
                Output::Event { watch, event } => {
                    if self.watches.get(&watch).is_some_and(|sink| sink.try_send(Ok(event)).is_err()) {
                        self.watches.remove(&watch);
                        self.protocol.forget(watch);
                    }
                }
                Output::WatchEnded { watch, end } => self.end_watch(watch, end),
                Output::Side(SideWish::Open { partition }) => self.sides.open(partition),
                Output::Side(SideWish::Close { partition }) => self.sides.close(partition),
                Output::State(state) => self.status.send_modify(|status| {
                    status.state = state;
                    status.reconnects += u64::from(state.is_connected());
                    status.session_id = self.protocol.session_id();
                    status.session_timeout = Duration::from_millis(self.protocol.timeout_ms());
                }),
            }
        }
    }

    fn complete(&mut self, token: Token, result: Result<Reply, ErrorCode>) {
        let Some(pending) = self.pending.remove(&token) else {
            return;
        };
        if let (Some(watch), Err(error)) = (pending.watch, &result)
            && !(pending.is_exists && *error == ErrorCode::NoNode)
        {
            self.watches.remove(&watch);
        }
        if let Some(done) = pending.done {
            // Whoever gave up waiting does not want to know.
            let _ = done.send(result);
        }
    }

    fn end_watch(&mut self, watch: WatchId, end: WatchEnd) {
        if let Some(sink) = self.watches.remove(&watch) {
            // A full or dropped channel needs no end: see `Watch::next`.
            let _ = sink.try_send(Err(end));
        }
    }
}

/// Why a connection ended.
#[derive(Debug)]
enum Failure {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

/// Connects; the name is resolved every time, because servers move.
async fn open(server: String, tls: Option<Tls>, patience: Duration) -> io::Result<(Transport, SocketAddr)> {
    let tls = tls.map(|tls| tls.to(&server));
    let deadline = Instant::now() + patience;
    let late = || io::Error::new(ErrorKind::TimedOut, "no answer in time");
    let (socket, address) = timeout_at(deadline, transport::connect(&server)).await.map_err(|_| late())??;
    let Some(tls) = tls else { return Ok((Transport::Plain(socket), address)) };
    let secured = timeout_at(deadline, Transport::secured(socket, &tls)).await;
    Ok((secured.unwrap_or_else(|_| Err(TlsFailure::late(patience).into_io()))?, address))
}

/// Clients that start together should not all go to the same server.
fn first_server(servers: usize) -> usize {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    usize::try_from(random % servers.max(1) as u64).unwrap_or(0)
}
