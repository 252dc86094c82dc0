//! Admin HTTP: ZooKeeper's commands, readiness and metrics, on a port and a thread of its own.
//!
//! | path | answer |
//! | --- | --- |
//! | `/commands` | links to every command |
//! | `/commands/<name>` | the command's answer in JSON, with ZooKeeper's field names |
//! | `/ready` | 200 when requests are served from a state that is up to date, else 503 and why |
//! | `/metrics` | the metrics in Prometheus's text format |
//!
//! Nothing here is in the way of clients: the thread asks the partition's one question at a time for
//! plain data and does the rest itself. Reading is open to whoever reaches the port, as it is in
//! ZooKeeper; what costs the server something (a snapshot, a move) takes a client on this machine, or the
//! super user's credentials.

mod command;
mod connection;
mod render;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::farewell::Farewells;
use crate::listen;
use crate::metrics::{Figures, prometheus};
use crate::process::{Phase, Process};
use crate::view::{Question, why_unready};
use crate::words::NOT_SERVING;
use command::{Command, Parameters, Reply};
use connection::Deadline;

/// How long the partition may take to answer a question. It answers between two turns of its work, so
/// that this is long past anything but a server in trouble.
const ANSWER_TIME: Duration = Duration::from_secs(5);
const BACKLOG: u32 = 64;

/// Whom the handlers ask.
struct Admin {
    process: Arc<Process>,
    questions: UnboundedSender<Question>,
}

/// Why there is no answer from the partition.
#[derive(Debug)]
struct Unanswered;

impl Admin {
    /// Asks the partition, unless requests are not served: like ZooKeeper's, most commands have no
    /// answer then.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Result<T, Unanswered> {
        self.ask_within(ANSWER_TIME, question).await
    }

    /// Asks the partition, unless it is not there: what is told of a server that looks for a leader is
    /// what helps it to find one.
    async fn ask_even_looking<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unanswered> {
        match self.process.phase() {
            Phase::Looking | Phase::Serving => self.put(ANSWER_TIME, question).await,
            Phase::Recovering | Phase::Stopping => Err(Unanswered),
        }
    }

    async fn ask_within<T>(
        &self,
        time: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unanswered> {
        if !self.process.is_serving() {
            return Err(Unanswered);
        }
        self.put(time, question).await
    }

    async fn put<T>(
        &self,
        time: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unanswered> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(question(reply)).map_err(|_| Unanswered)?;
        match tokio::time::timeout(time, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Unanswered),
        }
    }
}

/// Starts admin HTTP, and the port for metrics if there is one.
///
/// A server without them still serves clients: a port that cannot be had is warned of, no more.
pub(crate) fn start(process: &Arc<Process>, questions: UnboundedSender<Question>) {
    let admin = Arc::new(Admin { process: Arc::clone(process), questions });
    let settings = &process.settings;
    let address = settings.admin_address();
    let mut served = Vec::new();
    if let Some(listener) = open(address, settings.admin_port, "admin-port") {
        served.push((listener, router(Arc::clone(&admin))));
    }
    if let Some(listener) = open(address, settings.metrics_port, "metrics-port") {
        served.push((listener, metrics_router(admin)));
    }
    let pages = Arc::clone(&process.pages);
    if served.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || serve(served, &pages));
    if let Err(error) = thread {
        tracing::warn!("no admin HTTP: its thread cannot be started: {error}");
    }
}

fn open(address: IpAddr, port: u16, setting: &str) -> Option<TcpListener> {
    if port == 0 {
        return None;
    }
    match listen::bind(address, port, BACKLOG) {
        Ok(listener) => {
            tracing::info!("HTTP on {address} port {port} ({setting})");
            Some(listener)
        }
        Err(error) => {
            tracing::warn!("no HTTP on {address} port {port}: {error}; {setting} chooses another port");
            None
        }
    }
}

fn serve(served: Vec<(TcpListener, Router)>, pages: &Arc<Farewells>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::warn!("no admin HTTP: {error}");
            return;
        }
    };
    runtime.block_on(async {
        let mut listeners = tokio::task::JoinSet::new();
        for (listener, router) in served {
            listeners.spawn(connection::serve(listener, router, Arc::clone(pages)));
        }
        listeners.join_all().await;
    });
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/commands", get(links))
        .route("/commands/", get(links))
        .route("/commands/{name}", get(get_command).post(post_command))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

fn metrics_router(admin: Arc<Admin>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(admin)
}

async fn index() -> Html<&'static str> {
    Html(
        "<a href=\"/commands\">/commands</a><br/>\n<a href=\"/ready\">/ready</a><br/>\n<a href=\"/metrics\">/metrics</a><br/>\n",
    )
}

async fn links() -> Html<String> {
    let mut names: Vec<&str> = command::COMMANDS.iter().map(|(names, _)| names[0]).collect();
    names.sort_unstable();
    Html(names.iter().map(|name| format!("<a href=\"/commands/{name}\">{name}</a>\n<br/>\n")).collect())
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    match admin.ask_even_looking(Question::Stats).await {
        Ok(stats) => {
            let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (format, prometheus(&Figures::now(*stats))).into_response()
        }
        Err(Unanswered) => (StatusCode::SERVICE_UNAVAILABLE, format!("{NOT_SERVING}\n")).into_response(),
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    // Asked, not only looked up: a partition that hangs is not ready.
    let stats = admin.ask_even_looking(Question::Stats).await.ok();
    let why = why_unready(admin.process.phase(), stats.as_deref());
    let mut body = json!({ "ready": why.is_none() });
    if let Some(stats) = stats {
        body["server_state"] = stats.mode.name().into();
        body["last_zxid"] = format!("0x{:x}", stats.zxid).into();
    }
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if let Some(why) = why {
        body["error"] = why.into();
    }
    json_response(status, &body)
}

async fn get_command(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Response {
    let reply = match Command::by_name(&name) {
        Some(Command::Snapshot) => Reply::refused(
            Command::Snapshot,
            StatusCode::METHOD_NOT_ALLOWED,
            "a snapshot is taken by POST, and stays in the data folder",
        ),
        Some(Command::Move) => {
            Reply::refused(Command::Move, StatusCode::METHOD_NOT_ALLOWED, "a subtree is moved by POST")
        }
        Some(command) => command.run(&admin, &parameters).await,
        None => Reply::unknown(&name),
    };
    reply.into_response()
}

async fn post_command(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
    Extension(peer): Extension<SocketAddr>,
    Extension(deadline): Extension<Deadline>,
    headers: HeaderMap,
) -> Response {
    let reply = match Command::by_name(&name) {
        Some(command @ (Command::Snapshot | Command::Move)) => {
            match may_command(&admin.process, peer, &headers) {
                Ok(()) if command == Command::Move => command::move_subtree(&admin, &parameters).await,
                Ok(()) => command::snapshot(&admin, &deadline).await,
                Err((status, why)) => Reply::refused(command, status, why),
            }
        }
        Some(command) => {
            Reply::refused(command, StatusCode::METHOD_NOT_ALLOWED, "this command is asked for by GET")
        }
        None => Reply::unknown(&name),
    };
    reply.into_response()
}

/// Whether somebody may do what costs the server something: from this machine, or as the super user
/// with `Authorization: digest user:password`, as ZooKeeper takes it. Never from another site's page in
/// a browser, which could reach a server that its own site cannot.
fn may_command(
    process: &Process,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<(), (StatusCode, &'static str)> {
    if headers.contains_key(header::ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "not from a page in a browser"));
    }
    if peer.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let Some(authorization) = headers.get(header::AUTHORIZATION) else {
        return Err((StatusCode::UNAUTHORIZED, "Auth info is missing for the command"));
    };
    let credentials = authorization.to_str().ok().and_then(|value| value.strip_prefix("digest "));
    if credentials.is_some_and(|credentials| process.is_super(credentials)) {
        return Ok(());
    }
    Err((StatusCode::FORBIDDEN, "Not authorized"))
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    let text = serde_json::to_string_pretty(body).expect("values of our own making can be written");
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}
