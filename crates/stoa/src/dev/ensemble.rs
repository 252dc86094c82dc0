//! The servers together, of one ensemble or of all sites: what is shown of them, what is typed about them, and their end.

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::links::{Cable, Links};
use super::plan::DevPlan;
use super::process::{Process, ProcessEvent};
use super::screen::Screen;
use super::typed::{Typed, help};
use super::{ADDRESS, asked};
use crate::failure::{Context as _, Failure, Result};

/// A server stops within five seconds by itself; longer, and it hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Of more servers not every address is shown in full.
const ADDRESSES_SHOWN_MAX: usize = 9;
/// Lines of output that may wait to be shown; servers wait then.
const EVENTS_MAX: usize = 256;

enum Event {
    Process(ProcessEvent),
    Typed(String),
    /// What there is to show once every server is ready.
    Announced(Answers),
    /// What was asked for.
    Status(Answers),
}

/// What servers answered, in the order of the plan, of those that were asked.
#[derive(Default)]
struct Answers {
    modes: Vec<Option<String>>,
    /// The site that is the hub, by its place, as those say who know of the latest one.
    hub: Option<usize>,
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
    /// A server was told to end: that all are down may be what was wanted.
    has_told: bool,
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
        has_told: false,
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

/// Where the servers are asked for more: each address, or of many one for all.
fn admin(ports: &[u16]) -> String {
    let all: Vec<String> = ports.iter().map(ToString::to_string).collect();
    if all.len() > ADDRESSES_SHOWN_MAX {
        return format!("http://{ADDRESS}:PORT/commands with PORT one of {}", all.join(" "));
    }
    all.iter().map(|port| format!("http://{ADDRESS}:{port}/commands")).collect::<Vec<_>>().join(" ")
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
                if !self.is_announced && !self.has_told {
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
            Event::Announced(answers) => self.announce(&answers),
            Event::Status(answers) => self.status(&answers),
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
            self.ask(Event::Announced);
        }
    }

    fn announce(&self, answers: &Answers) {
        let program = std::env::args().next().unwrap_or_else(|| "stoa".to_owned());
        let servers = self.plan.connection_string(0);
        let count = self.states.len();
        let ports: Vec<u16> = self.plan.servers.iter().map(|server| server.admin_port).collect();
        let admin = admin(&ports);
        let folder = self.plan.folder.display();
        let fate = if self.is_temporary { "removed at the end; --data-dir keeps it" } else { "kept" };
        let ready = match (count, self.plan.sites.len()) {
            (1, _) => "The server is ready".to_owned(),
            (_, 0 | 1) => format!("All {count} servers are ready"),
            (_, sites) => format!("All {count} servers of {sites} sites are ready"),
        };
        // Where there were no sites before, the first one is about to begin that there are.
        let connect = self.connection_strings(answers.hub.or(Some(0)));
        let readers = (0..self.plan.sites.len().max(1)).filter_map(|site| {
            let readers = self.plan.readers(site)?;
            let of = self.plan.sites.get(site).map(|site| format!("{}  ", site.name)).unwrap_or_default();
            Some(of + readers.as_str())
        });
        let readers: Vec<String> = readers.collect();
        let readers = match &readers[..] {
            [] => String::new(),
            lines => format!("\nreaders   {}", lines.join("\n          ")),
        };
        let what = match &self.plan.sites[..] {
            [_, .., last] => format!("cut {}, then status, then heal", last.name),
            _ => format!("kill {count}, then status, then start {count}"),
        };
        self.screen.block(&format!(
            "{ready}.\n\n\
             connect   {connect}{readers}\n\
             shell     {program} shell --server {servers}\n\
             admin     {admin}\n\
             data      {folder} ({fate})\n\
             try       {what} (type it here; help lists the words)\n\
             stop      Ctrl-C"
        ));
    }

    /// What clients connect to: that of each site on a line.
    fn connection_strings(&self, hub: Option<usize>) -> String {
        let sites = 0..self.plan.sites.len();
        let names: Vec<String> = sites.clone().map(|site| self.site(site, hub)).collect();
        let width = names.iter().map(String::len).max().unwrap_or_default();
        let line = |site: usize| format!("{:width$}  {}", names[site], self.plan.connection_string(site));
        let lines: Vec<String> = sites.map(line).collect();
        if lines.is_empty() { self.plan.connection_string(0) } else { lines.join("\n          ") }
    }

    /// What there is to say of a site.
    fn site(&self, index: usize, hub: Option<usize>) -> String {
        let sites = &self.plan.sites;
        let others = || (0..sites.len()).filter(|other| *other != index);
        let is_cut = |other: usize| (self.links.is_cut(index, other), self.links.is_cut(other, index));
        let mut said = Vec::new();
        match hub {
            Some(hub) if hub == index => said.push("the hub".to_owned()),
            Some(hub) if is_cut(hub) == (false, false) => {
                said.push(format!("{} ms to the hub and back", sites[index].round_trips[hub].as_millis()));
            }
            _ => {}
        }
        if sites.len() > 2 && others().all(|other| is_cut(other) == (true, true)) {
            said.push("cut off from all other sites".to_owned());
        } else {
            said.extend(others().filter_map(|other| {
                let name = &sites[other].name;
                match is_cut(other) {
                    (false, false) => None,
                    (true, true) => Some(format!("cut off from {name}")),
                    (true, false) => Some(format!("nothing gets to {name}")),
                    (false, true) => Some(format!("nothing comes from {name}")),
                }
            }));
        }
        let name = &sites[index].name;
        if said.is_empty() { name.clone() } else { format!("{name} ({})", said.join(", ")) }
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
            Ok(Typed::Cut(cable)) => self.cut(cable),
            Ok(Typed::Heal(cable)) => self.heal(cable),
            Ok(Typed::Status) => self.ask(Event::Status),
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
                self.has_told = true;
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

    fn cut(&mut self, cable: Cable) {
        let is_news = self.links.cut(&cable.ways(self.plan.sites.len()));
        let name = |site: usize| &self.plan.sites[site].name;
        let (said, again) = match cable {
            Cable::All => ("all sites are cut off from each other".to_owned(), "heal".to_owned()),
            Cable::Of(site) => {
                (format!("{} is cut off from all other sites", name(site)), format!("heal {}", name(site)))
            }
            Cable::Between(one, other) => {
                let (one, other) = (name(one), name(other));
                (format!("{one} and {other} are cut off from each other"), format!("heal {one} {other}"))
            }
            Cable::From(from, to) => {
                let (from, to) = (name(from), name(to));
                (format!("nothing gets from {from} to {to}"), format!("heal {from} > {to}"))
            }
        };
        let already = if is_news { "" } else { " already" };
        self.screen.say(&format!("{said}{already}; {again} ends that"));
    }

    fn heal(&mut self, cable: Cable) {
        let name = |site: usize| &self.plan.sites[site].name;
        if !self.links.heal(&cable.ways(self.plan.sites.len())) {
            return self.screen.say("there is nothing to heal: nothing of that is cut");
        }
        self.screen.say(&match cable {
            Cable::All => "all sites reach each other again".to_owned(),
            Cable::Of(site) => format!("{} and all other sites reach each other again", name(site)),
            Cable::Between(one, other) => format!("{} and {} reach each other again", name(one), name(other)),
            Cable::From(from, to) => format!("what {} sends gets to {} again", name(from), name(to)),
        });
    }

    /// Asks every server that is ready what it is, and who the hub is; the answers come as an event.
    fn ask(&self, event: fn(Answers) -> Event) {
        let ports: Vec<Option<(u16, u16)>> = std::iter::zip(&self.plan.servers, &self.states)
            .map(|(server, state)| {
                matches!(state, ServerState::Ready(_)).then_some((server.port, server.admin_port))
            })
            .collect();
        let sites: Vec<String> = self.plan.sites.iter().map(|site| site.name.clone()).collect();
        let events = self.events.clone();
        tokio::spawn(async move {
            let has_sites = !sites.is_empty();
            let asked: Vec<_> = ports
                .into_iter()
                .map(|ports| ports.map(|(port, admin)| tokio::spawn(asked::both(port, admin, has_sites))))
                .collect();
            let (mut modes, mut latest) = (Vec::new(), None);
            for answer in asked {
                let (mode, hub) = match answer {
                    Some(answer) => answer.await.unwrap_or_default(),
                    None => (None, None),
                };
                modes.push(mode);
                latest = latest.max(hub);
            }
            let hub = latest.and_then(|(_, hub)| sites.iter().position(|site| *site == hub));
            let _ = events.send(event(Answers { modes, hub })).await;
        });
    }

    fn status(&self, answers: &Answers) {
        let mut said_of = None;
        let mut all: Vec<_> = self.plan.servers.iter().zip(&self.states).zip(&answers.modes).collect();
        // Readers are numbered behind all servers, and stand with those of their site.
        all.sort_by_key(|((server, _), _)| server.site);
        for ((server, state), mode) in all {
            if !self.plan.sites.is_empty() && said_of.replace(server.site) != Some(server.site) {
                self.screen.say(&self.site(server.site, answers.hub));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_addresses_are_shown_as_one() {
        assert_eq!(admin(&[8080, 8081]), "http://127.0.0.1:8080/commands http://127.0.0.1:8081/commands");
        let many: Vec<u16> = (8080..8090).collect();
        assert_eq!(
            admin(&many),
            "http://127.0.0.1:PORT/commands with PORT one of 8080 8081 8082 8083 8084 8085 8086 8087 8088 8089"
        );
    }
}
