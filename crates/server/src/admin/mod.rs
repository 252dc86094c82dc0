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
//! ZooKeeper, but unless something else is said only programs on this machine do; what changes something (a
//! snapshot, a move, counts that begin anew) takes all permissions on the root ([`caller`]), and no page of
//! another site can have it done ([`page`]).

mod caller;
mod command;
mod connection;
mod forest;
mod page;
mod render;
#[cfg(test)]
mod tests;
mod tls;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use stoa_core::by_address;
use stoa_tree::Identity;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::audit::{AdminEvent, Event};
use crate::complaints::Complaints;
use crate::config::{ClientCertificates, Settings, TlsOnPort};
use crate::listen;
use crate::metrics::{Figures, prometheus};
use crate::openings::{Asks, Encryption, Opening};
use crate::process::{Phase, Process};
use crate::view::{Question, why_unready};
use crate::words::NOT_SERVING;
use command::{Command, Parameters, Reply};
use connection::{Deadline, Serving};
use page::Names;
pub(crate) use tls::AdminTls;
use tls::Shown;

/// How long the partition may take to answer a question. It answers between two turns of its work, so
/// that this is long past anything but a server in trouble.
const ANSWER_TIME: Duration = Duration::from_secs(5);
const BACKLOG: u32 = 64;

/// Whom the handlers ask.
struct Admin {
    process: Arc<Process>,
    questions: UnboundedSender<Question>,
    /// What this server is called.
    names: Names,
    /// About those who ask for what they may not.
    complaints: Complaints,
}

/// The status and the words with which a request is refused.
type Refusal = (StatusCode, String);

/// Why there is no answer from the partition.
#[derive(Debug)]
struct Unanswered;

impl Admin {
    fn new(process: Arc<Process>, questions: UnboundedSender<Question>) -> Self {
        let machine = rustix::system::uname();
        let names = Names::new(&process.settings, &machine.nodename().to_string_lossy());
        Self { process, questions, names, complaints: Complaints::new("admin HTTP has refused a request") }
    }

    /// Has the audit log say what became of a change that was asked for.
    fn tell_audit(&self, peer: SocketAddr, users: &[Identity], command: Command, response: &Response) {
        if let Some(audit) = self.process.audit() {
            audit.tell(Event::Admin(AdminEvent {
                address: peer.ip(),
                users: users.to_vec(),
                command: command.name(),
                status: response.status().as_u16(),
            }));
        }
    }

    /// Says that somebody may not have done what he asks for, and gives that back.
    fn refuse(&self, peer: SocketAddr, command: Option<Command>, (status, why): Refusal) -> Response {
        let what = command.map_or("a request", Command::name);
        self.complaints.say(&format!("admin HTTP: {peer}: {what} is refused: {why}"));
        match command {
            Some(command) => Reply::refused(command, status, &why).into_response(),
            None => json_response(status, &json!({ "error": why })),
        }
    }

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
        self.ask_even_looking_for(ANSWER_TIME, question).await
    }

    /// The same, where the answer takes its time.
    async fn ask_even_looking_for<T>(
        &self,
        time: Duration,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unanswered> {
        match self.process.phase() {
            Phase::Looking | Phase::Serving => self.put(time, question).await,
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

/// The thread of admin HTTP. It ends, with its connections, when this is dropped.
pub(crate) struct AdminThread(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Drop for AdminThread {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Starts admin HTTP, and the port for metrics if there is one, and says where they are.
///
/// A server without them still serves clients: a port that cannot be had is warned of, no more.
pub(crate) fn start(
    process: &Arc<Process>,
    questions: UnboundedSender<Question>,
) -> (AdminThread, Vec<Opening>) {
    let admin = Arc::new(Admin::new(Arc::clone(process), questions));
    let settings = &process.settings;
    let (mut served, mut openings) = (Vec::new(), Vec::new());
    let pages = &process.pages;
    if let Some(listener) = open(settings.admin_address(), settings.admin_port, "admin-port") {
        openings.extend(listener.local_addr().map(|address| opening(settings, address)));
        let (router, pages, tls) = (router(Arc::clone(&admin)), Arc::clone(pages), process.admin_tls.clone());
        served.push((listener, Serving { router, pages, tls }));
    }
    if let Some(listener) = open(settings.metrics_address(), settings.metrics_port, "metrics-port") {
        openings.extend(listener.local_addr().map(|address| Opening::new("metrics", address, Asks::Nothing)));
        let (router, pages) = (metrics_router(admin), Arc::clone(pages));
        served.push((listener, Serving { router, pages, tls: None }));
    }
    if served.is_empty() {
        return (AdminThread(None), openings);
    }
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || serve(served, stopped));
    match thread {
        Ok(thread) => (AdminThread(Some((stop, thread))), openings),
        Err(error) => {
            tracing::warn!("no admin HTTP: its thread cannot be started: {error}");
            (AdminThread(None), Vec::new())
        }
    }
}

/// Who may ask, and whether it is encrypted.
fn opening(settings: &Settings, address: SocketAddr) -> Opening {
    let needs_certificate = settings.admin_client_certificates == ClientCertificates::Need;
    let (asks, encryption) = match settings.admin_tls {
        TlsOnPort::No => (Asks::Nothing, Encryption::None),
        TlsOnPort::Also => (Asks::Nothing, Encryption::Some),
        TlsOnPort::Only if needs_certificate => (Asks::Certificate, Encryption::All),
        TlsOnPort::Only => (Asks::Nothing, Encryption::All),
    };
    Opening::new("admin HTTP", address, asks).encrypted(encryption)
}

/// A socket for HTTP. Who is told of it is said when all ports are open.
fn open(address: IpAddr, port: u16, setting: &str) -> Option<TcpListener> {
    if port == 0 {
        return None;
    }
    let listener = listen::bind(address, port, BACKLOG);
    listener
        .inspect_err(|error| {
            tracing::warn!("no HTTP on {address} port {port}: {error}; {setting} chooses another port");
        })
        .ok()
}

/// Serves until nobody is left who could say that it is to stop.
fn serve(served: Vec<(TcpListener, Serving)>, stopped: oneshot::Receiver<()>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::warn!("no admin HTTP: {error}");
            return;
        }
    };
    runtime.block_on(async {
        let mut listeners = tokio::task::JoinSet::new();
        for (listener, serving) in served {
            listeners.spawn(connection::serve(listener, serving));
        }
        tokio::select! {
            _ = stopped => {}
            _ = listeners.join_all() => {}
        }
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
        .layer(from_fn_with_state(Arc::clone(&admin), guard))
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

/// Lets nothing through that a page of another site may have caused.
async fn guard(
    State(admin): State<Arc<Admin>>,
    Extension(peer): Extension<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    match admin.names.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let name = request.uri().path().strip_prefix("/commands/");
            admin.refuse(peer, name.and_then(Command::by_name), refusal)
        }
    }
}

async fn get_command(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
    Extension((deadline, _)): Extension<(Deadline, Shown)>,
) -> Response {
    let reply = match Command::by_name(&name) {
        Some(command) if command.changes() => command.not_allowed("POST"),
        Some(Command::SitesLost) => command::lost(Command::SitesLost, &admin, &parameters, &deadline).await,
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
    Extension((deadline, shown)): Extension<(Deadline, Shown)>,
    headers: HeaderMap,
) -> Response {
    let command = match Command::by_name(&name) {
        Some(command) if command.changes() => command,
        Some(command) => return command.not_allowed("GET, HEAD").into_response(),
        None => return Reply::unknown(&name).into_response(),
    };
    let caller = match caller::caller(&admin.process.settings, peer, &headers, &shown.0) {
        Ok(caller) => caller,
        Err(refusal) => {
            let response = admin.refuse(peer, Some(command), refusal);
            admin.tell_audit(peer, &[by_address(peer.ip())], command, &response);
            return response;
        }
    };
    let identities = caller.identities().to_vec();
    match admin.ask_even_looking(|reply| Question::MayAdminister(identities, reply)).await {
        Ok(true) => {}
        Ok(false) => {
            let response = admin.refuse(peer, Some(command), caller.refusal());
            admin.tell_audit(peer, caller.identities(), command, &response);
            return response;
        }
        Err(Unanswered) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Reply::refused(command, status, NOT_SERVING).into_response();
        }
    }
    tracing::info!("admin HTTP: {caller}: {}", command.name());
    let reply = match command {
        Command::Move => command::move_subtree(&admin, &parameters).await,
        command if command.is_of_sites() => command::order_sites(command, &admin, &parameters).await,
        Command::SitesLostData => command::lost(command, &admin, &parameters, &deadline).await,
        Command::Snapshot => command::snapshot(&admin, &deadline).await,
        command => command.run(&admin, &parameters).await,
    };
    let response = reply.into_response();
    admin.tell_audit(peer, caller.identities(), command, &response);
    response
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    let text = serde_json::to_string_pretty(body).expect("values of our own making can be written");
    (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
}
