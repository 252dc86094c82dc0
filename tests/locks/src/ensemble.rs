//! Three servers that reach each other, and are reached by the clients, through links that can be cut.

use std::cell::RefCell;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stoa_oracle::random::Random;
use stoa_proxy::{Direction, Link, Spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::process::Process;

pub(crate) const SERVERS: usize = 3;
/// The command to which the path of a server's configuration is added.
const MEMBER_COMMAND: &str = "MEMBER_COMMAND";
/// Settings of servers under faults: short ticks, many snapshots.
const SETTINGS: &str = include_str!("../../linearizable/zoo.cfg");
const QUORUM_PATIENCE: Duration = Duration::from_secs(60);
const WORD_PATIENCE: Duration = Duration::from_secs(1);
/// Lines of a server's output that are shown.
const OUTPUT_LINES: usize = 12;
/// Below the ports that the system gives to connections and links, so that none is taken while its server is down.
const PORTS: (u16, u16) = (12_000, 30_000);

/// A server, which keeps its ports and its folder over restarts.
#[derive(Debug)]
pub(crate) struct Server {
    client_port: u16,
    config: PathBuf,
    output: PathBuf,
    process: RefCell<Option<Process>>,
    is_paused: RefCell<bool>,
}

impl Server {
    /// Starts it unless it runs.
    pub(crate) fn start(&self) -> Result<(), String> {
        let mut process = self.process.borrow_mut();
        if process.is_some() {
            return Ok(());
        }
        let command = std::env::var(MEMBER_COMMAND)
            .map_err(|_| format!("{MEMBER_COMMAND} is not set; run `cargo xtask locks`"))?;
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| format!("{MEMBER_COMMAND} is empty"))?;
        let output = File::options().create(true).append(true).open(&self.output);
        let output = output.map_err(|error| format!("{}: {error}", self.output.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(words).arg(&self.config).stdin(Stdio::null()).stdout(output).stderr(errors);
        *process = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        self.process.take();
        self.is_paused.replace(false);
    }

    pub(crate) fn pause(&self) {
        if let Some(process) = &*self.process.borrow() {
            process.pause();
            self.is_paused.replace(true);
        }
    }

    pub(crate) fn resume(&self) {
        if let (Some(process), true) = (&*self.process.borrow(), self.is_paused.replace(false)) {
            process.resume();
        }
    }

    /// Its own address, around the links.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// What it answers to a word, or nothing while it does not serve.
    async fn word(&self, word: &str) -> String {
        if self.process.borrow().is_none() || *self.is_paused.borrow() {
            return String::new();
        }
        let ask = async {
            let mut stream = TcpStream::connect(self.address()).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        timeout(WORD_PATIENCE, ask).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    async fn mode(&self) -> String {
        let answer = self.word("srvr").await;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).unwrap_or_default().to_owned()
    }

    /// The end of what it has printed.
    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
    }
}

/// The servers, and the links between them and to them.
#[derive(Debug)]
pub(crate) struct Ensemble {
    pub(crate) servers: Vec<Server>,
    /// From one server, to another one.
    between: Vec<(usize, usize, Link)>,
    /// Of each client to each server.
    pub(crate) clients: Vec<[Link; SERVERS]>,
}

impl Ensemble {
    /// Starts the servers with so many partitions, and waits until they serve.
    pub(crate) async fn start(folder: &Path, partitions: u8, clients: usize) -> Result<Self, String> {
        let ports = free_ports(3 * SERVERS)?;
        let (client_ports, ports) = ports.split_at(SERVERS);
        // Nothing listens at those for elections, but lines of ZooKeeper name them.
        let (peer_ports, election_ports) = ports.split_at(SERVERS);
        let mut this = Self { servers: Vec::new(), between: Vec::new(), clients: Vec::new() };
        for number in 0..SERVERS {
            let data = folder.join(format!("server-{}", number + 1));
            fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
            let mut config = format!("{SETTINGS}partitions={partitions}\ndataDir={}\n", data.display());
            for other in 0..SERVERS {
                let mut port = peer_ports[other];
                if other != number {
                    let link = link_to(port).await?;
                    port = link.address().port();
                    this.between.push((number, other, link));
                }
                let (id, election_port, client_port) =
                    (other + 1, election_ports[other], client_ports[other]);
                config.push_str(&format!(
                    "server.{id}=127.0.0.1:{port}:{election_port}:participant;{client_port}\n"
                ));
            }
            let server = Server {
                client_port: client_ports[number],
                config: data.with_extension("cfg"),
                output: data.with_extension("out"),
                process: RefCell::new(None),
                is_paused: RefCell::new(false),
            };
            let write = |path: &Path, text: &str| {
                fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
            };
            write(&data.join("myid"), &format!("{}\n", number + 1))?;
            write(&server.config, &config)?;
            server.start()?;
            this.servers.push(server);
        }
        for _ in 0..clients {
            let [a, b, c] = [client_ports[0], client_ports[1], client_ports[2]];
            this.clients.push([link_to(a).await?, link_to(b).await?, link_to(c).await?]);
        }
        this.wait_until_whole().await?;
        Ok(this)
    }

    /// Where a client finds the servers, one of them first.
    pub(crate) fn addresses(&self, client: usize) -> String {
        let links = &self.clients[client];
        let addresses = (0..SERVERS).map(|offset| links[(client + offset) % SERVERS].address().to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The links of all clients to a server.
    pub(crate) fn links_of(&self, server: usize) -> impl Iterator<Item = &Link> {
        self.clients.iter().map(move |links| &links[server])
    }

    /// Has a server hear nothing of the others, or them nothing of it.
    pub(crate) fn cut_between(&self, server: usize, hears: bool, is_heard: bool) {
        for (from, to, link) in &self.between {
            if (*from == server && !is_heard) || (*to == server && !hears) {
                link.cut(Direction::Up);
            }
            if (*from == server && !hears) || (*to == server && !is_heard) {
                link.cut(Direction::Down);
            }
        }
    }

    /// Heals the links of a server to and from the others.
    pub(crate) fn heal_between(&self, server: usize) {
        for (_, _, link) in self.between.iter().filter(|(from, to, _)| *from == server || *to == server) {
            link.heal();
        }
    }

    /// The server that leads.
    pub(crate) async fn leader(&self) -> Option<usize> {
        for (number, server) in self.servers.iter().enumerate() {
            if server.mode().await == "leader" {
                return Some(number);
            }
        }
        None
    }

    /// Undoes all faults, and waits until all serve.
    pub(crate) async fn heal(&self) -> Result<(), String> {
        let links = self.between.iter().map(|(_, _, link)| link).chain(self.clients.iter().flatten());
        links.for_each(Link::heal);
        for server in &self.servers {
            server.resume();
            server.start()?;
        }
        self.wait_until_whole().await
    }

    async fn wait_until_whole(&self) -> Result<(), String> {
        let whole = async {
            loop {
                let mut modes = Vec::new();
                for server in &self.servers {
                    modes.push(server.mode().await);
                }
                let count = |mode: &str| modes.iter().filter(|it| *it == mode).count();
                if count("leader") == 1 && count("follower") == SERVERS - 1 {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(QUORUM_PATIENCE, whole).await.map_err(|_| {
            let tails: Vec<_> = self.servers.iter().map(Server::tail).collect();
            format!("not all serve after {QUORUM_PATIENCE:?}:\n{}", tails.join("\n--\n"))
        })
    }

    /// How many subtrees were moved between partitions, by those servers that have led since their start.
    pub(crate) async fn moves(&self) -> u64 {
        let mut moves = 0;
        for server in &self.servers {
            let answer = server.word("mntr").await;
            let line = answer.lines().find_map(|line| line.split_once("subtree_moves_total\t"));
            moves += line.and_then(|(_, count)| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        moves
    }
}

async fn link_to(port: u16) -> Result<Link, String> {
    let spec = Spec::new("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    Link::open(&spec).await.map_err(|error| format!("cannot open a link: {error}"))
}

/// Different ports that nobody listens on.
fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let (lowest, highest) = PORTS;
    let width = usize::from(highest - lowest);
    // Not from the run's seed: two runs with the same one must find different ports.
    let mut random = Random::new(u64::from(std::process::id()));
    let mut ports = Vec::new();
    for _ in 0..width {
        let port = lowest + random.below(width) as u16;
        if !ports.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports.push(port);
        }
        if ports.len() == count {
            return Ok(ports);
        }
    }
    Err(format!("there are no {count} free ports from {lowest} to {highest}"))
}
