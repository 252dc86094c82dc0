//! The servers together, of one ensemble or of all sites: what is shown of them, what is typed about them, and their end.

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout};

use super::ADDRESS;
use super::plan::DevPlan;
use super::process::{Process, ProcessEvent};
use super::screen::Screen;
use super::sites::Links;
use super::typed::{Typed, help};
use crate::failure::{Context as _, Failure, Result};

/// A server stops within five seconds by itself; longer, and it hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to say whether it leads.
const MODE_PATIENCE: Duration = Duration::from_secs(1);
/// An answer of srvr is shorter.
const MODE_BYTES_MAX: u64 = 4096;
/// Lines of output that may wait to be shown; servers wait then.
const EVENTS_MAX: usize = 256;

enum Event {
    Process(ProcessEvent),
    Typed(String),
    /// What every server answered, for those that were asked.
    Modes(Vec<Option<String>>),
}

impl From<ProcessEvent> for Event {
    fn from(event: ProcessEvent) -> Event {
        Event::Process(event)
    }
}

/// How a server is.
enum ServerState {
    Starting(Process),
    Ready(Process),
    /// It was told to end.
    Ending(Process),
    /// What it ended with.
    Down(String),
}

impl ServerState {
    fn process(&self) -> Option<&Process> {
        match self {
            ServerState::Starting(process) | ServerState::Ready(process) | ServerState::Ending(process) => {
                Some(process)
            }
            ServerState::Down(_) => None,
        }
    }

    fn name(&self) -> &str {
        match self {
            ServerState::Starting(_) => "starting",
            ServerState::Ready(_) => "ready",
            ServerState::Ending(_) => "stopping",
            ServerState::Down(how) => how,
        }
    }
}

struct Ensemble {
    plan: DevPlan,
    is_temporary: bool,
    /// Of each site.
    secrets: Vec<String>,
    links: Links,
    /// In the order of the plan.
    states: Vec<ServerState>,
    events: Sender<Event>,
    screen: Screen,
    is_announced: bool,
    /// When to lose patience with servers that were told to end with everything else.
    deadline: Option<Instant>,
}

/// Starts all servers and looks after them until told to stop.
pub(super) async fn run(plan: DevPlan, is_temporary: bool) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let mut signals = (
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
        // The terminal was closed.
        listen(SignalKind::hangup())?,
    );
    let (events, mut receiver) = channel(EVENTS_MAX);
    read_lines(events.clone());
    let links = Links::open(&plan).await?;
    let mut ensemble = Ensemble {
        states: plan.servers.iter().map(|_| ServerState::Down("not started".to_owned())).collect(),
        secrets: (0..plan.sites.len().max(1)).map(|_| random_secret()).collect::<Result<_>>()?,
        plan,
        is_temporary,
        links,
        events,
        screen: Screen::new(),
        is_announced: false,
        deadline: None,
    };
    for index in 0..ensemble.states.len() {
        ensemble.start(index)?;
    }
    ensemble.look_after(&mut receiver, &mut signals).await
}

/// Lines that are typed, as they come. The thread ends with the process.
fn read_lines(events: Sender<Event>) {
    let stdin = std::io::stdin();
    // A process in the background that reads from the terminal is halted.
    if stdin.is_terminal() && rustix::termios::tcgetpgrp(&stdin) != Ok(rustix::process::getpgrp()) {
        return;
    }
    std::thread::spawn(move || {
        for line in stdin.lock().lines() {
            let Ok(line) = line else { return };
            if events.blocking_send(Event::Typed(line)).is_err() {
                return;
            }
        }
    });
}

/// The servers take no others for members of their ensemble.
fn random_secret() -> Result<String> {
    let mut bytes = [0u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("cannot draw a secret")?;
    if filled != bytes.len() {
        return Err(Failure::failed("cannot draw a secret: the system gave too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Ensemble {
    async fn look_after(
        &mut self,
        receiver: &mut Receiver<Event>,
        (interrupt, terminate, hangup): &mut (Signal, Signal, Signal),
    ) -> Result<()> {
        loop {
            if self.states.iter().all(|state| state.process().is_none()) {
                if self.deadline.is_some() {
                    self.screen.say("all servers have stopped");
                    return Ok(());
                }
                if !self.is_announced {
                    return Err(Failure::failed("no server could start; what they wrote says why"));
                }
            }
            let patience_ends = self.deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                event = receiver.recv() => {
                    if let Some(event) = event {
                        self.handle(event);
                    }
                }
                _ = interrupt.recv() => self.end(),
                _ = terminate.recv() => self.end(),
                _ = hangup.recv() => self.end(),
                () = tokio::time::sleep_until(patience_ends), if self.deadline.is_some() => self.kill_rest(),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Process(ProcessEvent::Line(id, text)) => self.screen.line(id, &text),
            Event::Process(ProcessEvent::Ready(id)) => self.ready(index_of(id)),
            Event::Process(ProcessEvent::Ended(id, status)) => self.ended(index_of(id), status),
            Event::Typed(line) => self.typed(&line),
            Event::Modes(modes) => self.status(&modes),
        }
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let server = &self.plan.servers[index];
        let secret = &self.secrets[server.site];
        let process = Process::start(&self.plan, server, secret, self.events.clone())?;
        self.states[index] = ServerState::Starting(process);
        Ok(())
    }

    fn ready(&mut self, index: usize) {
        let state = &mut self.states[index];
        if let ServerState::Starting(process) = replace(state) {
            *state = ServerState::Ready(process);
        }
        if !self.is_announced && self.states.iter().all(|state| matches!(state, ServerState::Ready(_))) {
            self.is_announced = true;
            self.announce();
        }
    }

    fn announce(&self) {
        let program = std::env::args().next().unwrap_or_else(|| "stoa".to_owned());
        let servers = self.plan.connection_string(0);
        let count = self.states.len();
        let admin = self.plan.servers.iter();
        let admin = admin.map(|server| format!("http://{ADDRESS}:{}/commands", server.admin_port));
        let admin = admin.collect::<Vec<_>>().join(" ");
        let folder = self.plan.folder.display();
        let fate = if self.is_temporary { "removed at the end; --data-dir keeps it" } else { "kept" };
        let ready = match (count, self.plan.sites.len()) {
            (1, _) => "The server is ready".to_owned(),
            (_, 0 | 1) => format!("All {count} servers are ready"),
            (_, sites) => format!("All {count} servers of {sites} sites are ready"),
        };
        let connect = self.connection_strings();
        let what = match &self.plan.sites[..] {
            [_, .., last] => format!("cut {0}, then status, then heal {0}", last.name),
            _ => format!("kill {count}, then status, then start {count}"),
        };
        self.screen.block(&format!(
            "{ready}.\n\n\
             connect   {connect}\n\
             shell     {program} shell --server {servers}\n\
             admin     {admin}\n\
             data      {folder} ({fate})\n\
             try       {what} (type it here; help lists the words)\n\
             stop      Ctrl-C"
        ));
    }

    /// What clients connect to: that of each site on a line.
    fn connection_strings(&self) -> String {
        let sites = 0..self.plan.sites.len();
        let names: Vec<String> = sites.clone().map(|site| self.site(site)).collect();
        let width = names.iter().map(String::len).max().unwrap_or_default();
        let line = |site: usize| format!("{:width$}  {}", names[site], self.plan.connection_string(site));
        let lines: Vec<String> = sites.map(line).collect();
        if lines.is_empty() { self.plan.connection_string(0) } else { lines.join("\n          ") }
    }

    /// What there is to say of a site.
    fn site(&self, index: usize) -> String {
        let site = &self.plan.sites[index];
        let link = match index {
            0 => "the hub".to_owned(),
            _ if self.links.is_cut(index) => "cut off from the hub".to_owned(),
            _ => format!("{} ms to the hub and back", site.round_trip.as_millis()),
        };
        format!("{} ({link})", site.name)
    }

    fn ended(&mut self, index: usize, status: std::io::Result<ExitStatus>) {
        let id = self.plan.servers[index].id;
        let how = match status {
            Ok(status) => status.to_string(),
            Err(error) => format!("nobody knows how: {error}"),
        };
        let was_told = matches!(self.states[index], ServerState::Ending(_));
        if was_told {
            self.screen.say(&format!("server {id} is down ({how})"));
        } else {
            self.screen.say(&format!(
                "server {id} has ended by itself ({how}); what it wrote says why, start {id} starts it again"
            ));
        }
        self.states[index] = ServerState::Down(format!("down ({how})"));
    }

    fn typed(&mut self, line: &str) {
        let count = u8::try_from(self.states.len()).unwrap_or(u8::MAX);
        let sites: Vec<&str> = self.plan.sites.iter().map(|site| site.name.as_str()).collect();
        match Typed::parse(line, count, &sites) {
            Ok(Typed::Kill(id)) => self.tell(id, Process::kill),
            Ok(Typed::Stop(id)) => self.tell(id, Process::stop),
            Ok(Typed::Start(id)) => self.start_again(id),
            Ok(Typed::Cut(site)) => self.cut(site),
            Ok(Typed::Heal(site)) => self.heal(site),
            Ok(Typed::Status) => self.ask_modes(),
            Ok(Typed::Help) => self.screen.say(&help(!self.plan.sites.is_empty())),
            Ok(Typed::Quit) => self.end(),
            Ok(Typed::Nothing) => {}
            Err(problem) => self.screen.say(&problem),
        }
    }

    /// Tells a server to end in one way or the other.
    fn tell(&mut self, id: u8, how: fn(&Process)) {
        let state = &mut self.states[index_of(id)];
        match replace(state) {
            ServerState::Down(reason) => {
                *state = ServerState::Down(reason);
                self.screen.say(&format!("server {id} is not running; start {id} starts it"));
            }
            ServerState::Starting(process) | ServerState::Ready(process) | ServerState::Ending(process) => {
                how(&process);
                *state = ServerState::Ending(process);
            }
        }
    }

    fn start_again(&mut self, id: u8) {
        let index = index_of(id);
        if self.deadline.is_some() {
            return self.screen.say("the servers are stopping");
        }
        if let Some(process) = self.states[index].process() {
            let (name, pid) = (self.states[index].name(), process.pid);
            return self.screen.say(&format!("server {id} is {name} (process {pid})"));
        }
        if let Err(failure) = self.start(index) {
            self.screen.say(&failure.to_string());
        }
    }

    fn cut(&mut self, site: usize) {
        let name = &self.plan.sites[site].name;
        if self.links.is_cut(site) {
            return self.screen.say(&format!("{name} is cut off already; heal {name} ends that"));
        }
        self.links.cut(site);
        self.screen.say(&format!("{name} is cut off from the hub; heal {name} ends that"));
    }

    fn heal(&mut self, site: usize) {
        let name = &self.plan.sites[site].name;
        if !self.links.is_cut(site) {
            return self.screen.say(&format!("{name} is not cut off; cut {name} does that"));
        }
        self.links.heal(site);
        self.screen.say(&format!("{name} reaches the hub again"));
    }

    /// Asks every server that is ready what it is; the answers come as an event.
    fn ask_modes(&self) {
        let ports: Vec<Option<u16>> = std::iter::zip(&self.plan.servers, &self.states)
            .map(|(server, state)| matches!(state, ServerState::Ready(_)).then_some(server.port))
            .collect();
        let events = self.events.clone();
        tokio::spawn(async move {
            let asked: Vec<_> =
                ports.into_iter().map(|port| port.map(|port| tokio::spawn(mode(port)))).collect();
            let mut modes = Vec::new();
            for answer in asked {
                modes.push(match answer {
                    Some(answer) => answer.await.ok().flatten(),
                    None => None,
                });
            }
            let _ = events.send(Event::Modes(modes)).await;
        });
    }

    fn status(&self, modes: &[Option<String>]) {
        let mut said_of = None;
        for ((server, state), mode) in self.plan.servers.iter().zip(&self.states).zip(modes) {
            if !self.plan.sites.is_empty() && said_of.replace(server.site) != Some(server.site) {
                self.screen.say(&self.site(server.site));
            }
            let indent = if self.plan.sites.is_empty() { "" } else { "  " };
            let mut line = format!("{indent}server {}: {}", server.id, state.name());
            if let Some(process) = state.process() {
                line += &format!(", {ADDRESS}:{}, process {}", server.port, process.pid);
            }
            if let Some(mode) = mode {
                line += &format!(", {mode}");
            }
            self.screen.say(&line);
        }
    }

    /// Stops all servers; when told a second time, at once.
    fn end(&mut self) {
        if self.deadline.is_some() {
            return self.kill_rest();
        }
        self.deadline = Some(Instant::now() + STOP_PATIENCE);
        self.screen.say("stopping all servers");
        for state in &mut self.states {
            *state = match replace(state) {
                ServerState::Starting(process) | ServerState::Ready(process) => {
                    process.stop();
                    ServerState::Ending(process)
                }
                other => other,
            };
            // One that was told by hand may hang.
            if let ServerState::Ending(process) = state {
                process.stop();
            }
        }
    }

    fn kill_rest(&mut self) {
        self.deadline = Some(Instant::now() + STOP_PATIENCE);
        for (server, state) in self.plan.servers.iter().zip(&self.states) {
            if let Some(process) = state.process() {
                self.screen.say(&format!("server {} does not stop and is killed", server.id));
                process.kill();
            }
        }
    }
}

fn index_of(id: u8) -> usize {
    usize::from(id) - 1
}

/// Takes a state out, to be put back in another form at once.
fn replace(state: &mut ServerState) -> ServerState {
    std::mem::replace(state, ServerState::Down(String::new()))
}

/// What a server says that it is: leader, follower, observer or standalone.
async fn mode(port: u16) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect((ADDRESS, port)).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut answer = String::new();
        stream.take(MODE_BYTES_MAX).read_to_string(&mut answer).await.ok()?;
        Some(answer.lines().find_map(|line| line.strip_prefix("Mode: "))?.to_owned())
    };
    timeout(MODE_PATIENCE, ask).await.ok().flatten()
}
