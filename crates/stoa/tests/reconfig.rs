//! The list of servers changes while they serve: who belongs to the ensemble, with a vote or without, and where each
//! listens. All of it is asked for as an operator does, with `stoa reconfig`.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use common::{free_port, insist};
use stoa_client::blocking::Client;
use stoa_client::{CreateMode, ErrorCode, Options};
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");
/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);
const SUPER: &str = "super:of a test";

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never comes that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server as the list has it.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    host: Ipv4Addr,
    peer: u16,
    client: u16,
    votes: bool,
}

impl Place {
    fn new() -> Self {
        Self::at(Ipv4Addr::LOCALHOST)
    }

    /// Where the other servers find it. What connects to them comes from `127.0.0.1` wherever that is.
    fn at(host: Ipv4Addr) -> Self {
        Self { host, peer: free_port(), client: free_port(), votes: true }
    }

    fn line(self, id: u8) -> String {
        let (role, beside) = (if self.votes { "participant" } else { "observer" }, free_port());
        let Self { host, peer, client, .. } = self;
        format!("server.{id}={host}:{peer}:{beside}:{role};127.0.0.1:{client}")
    }
}

/// Servers that belong together; killed when dropped.
struct Ensemble {
    folder: TempDir,
    partitions: u8,
    /// What they are started with.
    settings: String,
    /// The list of servers.
    list: BTreeMap<u8, Place>,
    processes: BTreeMap<u8, Child>,
    /// Paths of what was written, each with itself as data.
    written: Vec<String>,
}

impl Ensemble {
    fn start(servers: u8, partitions: u8) -> Self {
        Self::of((1..=servers).map(|id| (id, Place::new())).collect(), partitions)
    }

    fn of(list: BTreeMap<u8, Place>, partitions: u8) -> Self {
        let folder = TempDir::new().unwrap();
        let settings = settings(&list);
        let (processes, written) = (BTreeMap::new(), Vec::new());
        let mut ensemble = Self { folder, partitions, settings, list, processes, written };
        for id in ensemble.list.keys().copied().collect::<Vec<_>>() {
            ensemble.launch(id, &[]);
        }
        ensemble.check("it began");
        // Curator and kazoo take a list of version 0 for none.
        let (version, addresses) = ensemble.clients_find();
        assert!(i64::from_str_radix(&version, 16).unwrap() > 0, "{version}");
        assert_eq!(addresses, ensemble.addresses());
        ensemble
    }

    /// What `stoa config -c` says: the version of the list, and where clients connect. It is the same below any root.
    fn clients_find(&self) -> (String, String) {
        let said = |root: &str| {
            let servers = format!("{}{root}", self.addresses());
            let output = Command::new(STOA).args(["config", "-c", "--server", &servers]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let line = said("");
        assert_eq!(said("/some/where"), line);
        let (version, addresses) = line.trim().split_once(' ').unwrap();
        (version.to_owned(), addresses.to_owned())
    }

    fn launch(&mut self, id: u8, flags: &[&str]) {
        let settings = self.settings.clone();
        self.launch_with(id, &settings, &[&["--reconfig-enabled"], flags].concat());
    }

    fn launch_with(&mut self, id: u8, servers: &str, flags: &[&str]) {
        if let Some(mut before) = self.processes.remove(&id) {
            before.kill().unwrap();
            before.wait().unwrap();
        }
        let log = std::fs::File::options().create(true).append(true).open(self.log_file(id)).unwrap();
        let mut command = Command::new(STOA);
        command.args(["serve", "--admin-port=0", "--words=*", "--peer-secret=of a test"]);
        let host = self.list.get(&id).map_or(Ipv4Addr::LOCALHOST, |place| place.host);
        command.arg(format!("--peer-bind={host}"));
        command.args(["--heartbeat=50ms", "--election-timeout=1s", "--snapshot-updates=60"]);
        command.arg(format!("--super-digest={}", stoa_core::digest_id(SUPER)));
        command.args([format!("--partitions={}", self.partitions), format!("--server-id={id}")]);
        command.arg(format!("--servers={servers}")).args(flags);
        command.arg("--data-dir").arg(self.folder.path().join(id.to_string()));
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.processes.insert(id, process);
    }

    fn log_file(&self, id: u8) -> PathBuf {
        self.folder.path().join(format!("{id}.log"))
    }

    fn log(&self, id: u8) -> String {
        std::fs::read_to_string(self.log_file(id)).unwrap()
    }

    fn end(&mut self, id: u8) {
        let mut process = self.processes.remove(&id).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn address(&self, id: u8) -> String {
        format!("127.0.0.1:{}", self.list[&id].client)
    }

    /// All servers of the list.
    fn addresses(&self) -> String {
        self.list.keys().map(|id| self.address(*id)).collect::<Vec<_>>().join(",")
    }

    /// `stoa reconfig`, by way of one server or any: whether it was done, and what was said.
    fn ask(&self, servers: &str, words: &[&str]) -> (bool, String) {
        let auth = format!("digest:{SUPER}");
        self.ask_as(servers, &[&["--auth", &auth], words].concat())
    }

    fn ask_as(&self, servers: &str, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(STOA);
        command.args(["reconfig", "--server", servers]).args(words);
        let output = within_patience(command);
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// Changes the list, and waits until all servers follow it.
    fn reconfig(&self, words: &[&str]) {
        let words = [words, &["-w"]].concat();
        eventually("a change of the list is done", || {
            let (done, said) = self.ask(&self.addresses(), &words);
            let passes = ["another reconfiguration is under way", "connection to the server was lost"];
            assert!(done || passes.iter().any(|why| said.contains(why)), "{words:?}: {said}");
            assert!(!done || said.starts_with("Committed new configuration:\nserver."), "{said}");
            done
        });
    }

    /// A server's line is another one from now on.
    fn change(&mut self, id: u8, change: impl FnOnce(&mut Place)) {
        let mut place = self.list[&id];
        change(&mut place);
        self.reconfig(&["-add", &place.line(id)]);
        self.list.insert(id, place);
    }

    fn mode(&self, id: u8) -> Option<String> {
        let answer = word(&self.address(id), "srvr").ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        Some(mode.to_owned())
    }

    fn leader(&self) -> u8 {
        let mut found = None;
        eventually("one server leads", || {
            let leads = |id: &u8| self.mode(*id).as_deref() == Some("leader");
            found = self.list.keys().copied().find(leads);
            found.is_some()
        });
        found.unwrap()
    }

    fn follower(&self) -> u8 {
        let leader = self.leader();
        self.list.iter().find(|(id, place)| **id != leader && place.votes).map(|(id, _)| *id).unwrap()
    }

    /// All servers of the list serve, each as what the list says, and everything that was written is there.
    fn check(&mut self, after: &str) {
        for (id, place) in &self.list {
            let is_right = |mode: &str| (mode != "observer") == place.votes;
            eventually(&format!("server {id} serves after {after}"), || {
                self.mode(*id).is_some_and(|mode| is_right(&mode))
            });
        }
        for id in self.list.keys().copied().collect::<Vec<_>>() {
            let client = connect(&self.address(id));
            insist(|| client.sync("/")).unwrap();
            for path in &self.written {
                assert_eq!(
                    insist(|| client.get_data(path)).unwrap().0,
                    path.as_bytes(),
                    "server {id} after {after}"
                );
            }
            // One for each partition, or nearly.
            for number in self.written.len()..self.written.len() + 2 {
                let path = format!("/written-{number}");
                // It may have been done where the lead was lost before the answer.
                let created = insist(|| client.create(&path, path.as_bytes(), CreateMode::Persistent));
                assert!(matches!(created, Ok(_) | Err(ErrorCode::NodeExists)), "{created:?} after {after}");
                self.written.push(path);
            }
        }
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            for id in self.processes.keys() {
                eprintln!("---- server {id}\n{}", self.log(*id));
            }
        }
    }
}

/// As the setting `servers` has them.
fn settings(list: &BTreeMap<u8, Place>) -> String {
    let lines = list.iter().map(|(id, place)| place.line(*id));
    lines.map(|line| line["server.".len()..].to_owned()).collect::<Vec<_>>().join(",")
}

fn connect(servers: &str) -> Client {
    Client::connect(Options::new(servers).unwrap().connect_timeout(PATIENCE)).unwrap()
}

fn word(address: &str, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a command says that ends by itself; else it is killed.
fn within_patience(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (pid, (done, waiting)) = (child.id().to_string(), channel::<()>());
    let watching = std::thread::spawn(move || {
        let is_late = waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        is_late && Command::new("kill").arg(pid).status().unwrap().success()
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    assert!(
        !watching.join().unwrap(),
        "{command:?} does not end: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn half_are_replaced_and_roles_change(partitions: u8) {
    let mut ensemble = Ensemble::start(4, partitions);
    let leader = ensemble.leader();
    let follower = ensemble.follower();
    // The leader goes, too.
    let joining = [(5, Place::new()), (6, Place::new())];
    let lines = joining.map(|(id, place)| place.line(id)).join(",");
    for (id, place) in joining {
        let mut servers = ensemble.list.clone();
        servers.insert(id, place);
        ensemble.launch_with(id, &settings(&servers), &["--join", "--reconfig-enabled"]);
    }
    ensemble.reconfig(&["-add", &lines, "-remove", &format!("{leader},{follower}")]);
    ensemble.list.extend(joining);
    for gone in [leader, follower] {
        assert_eq!(ensemble.mode(gone), None, "it does not belong to them any more");
        ensemble.end(gone);
        ensemble.list.remove(&gone);
    }
    ensemble.check("two have come and two have gone");
    for votes in [false, true] {
        ensemble.change(5, |place| place.votes = votes);
        ensemble.check("a role has changed");
    }
    // The one that leads becomes an observer.
    let leader = ensemble.leader();
    ensemble.change(leader, |place| place.votes = false);
    ensemble.check("the leader has become an observer");
}

#[test]
fn half_of_the_servers_are_replaced_at_once_and_roles_change() {
    half_are_replaced_and_roles_change(1);
}

#[test]
fn half_of_the_servers_with_four_partitions_are_replaced_at_once_and_roles_change() {
    half_are_replaced_and_roles_change(4);
}

fn client_ports_change(partitions: u8) {
    let mut ensemble = Ensemble::start(3, partitions);
    for id in [ensemble.follower(), ensemble.leader()] {
        let before = ensemble.list[&id].client;
        let client = connect(&ensemble.address(id));
        let connections = client.status().reconnects;
        ensemble.change(id, |place| place.client = free_port());
        ensemble.check("a client port has changed");
        eventually("the port before is closed", || !listens(before));
        client.get_data("/written-0").unwrap();
        assert_eq!(client.status().reconnects, connections, "connections that exist stay");
        assert!(
            word(&ensemble.address(id), "conf")
                .unwrap()
                .starts_with(&format!("clientPort={}\n", ensemble.list[&id].client))
        );
        // The settings say the old one still.
        ensemble.launch(id, &[]);
        ensemble.check("a server whose client port has changed has started again");
        assert!(!listens(before));
    }
    let (follower, leader) = (ensemble.follower(), ensemble.leader());
    for id in [follower, leader] {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
        let port = taken.local_addr().unwrap().port();
        let place = Place { client: port, ..ensemble.list[&id] };
        let (done, said) = ensemble.ask(&ensemble.addresses(), &["-add", &place.line(id)]);
        assert!(done, "{said}");
        let why = format!(
            "cannot listen for clients on 127.0.0.1:{port}, where the list of servers has this server"
        );
        eventually("the log says that the port is taken", || {
            ensemble.log(id).lines().any(|line| line.contains("ERROR") && line.contains(&why))
        });
        ensemble.check("a client port was taken");
        drop(taken);
        ensemble.list.insert(id, place);
        ensemble.check("a client port that was taken is free");
    }
    // What is said for a server itself counts.
    let own = format!("--port={}", free_port());
    let listed = ensemble.list[&follower];
    let line: Vec<_> = ensemble.settings.split(',').map(|server| server.split(';').next().unwrap()).collect();
    let without = line.join(",");
    ensemble.launch_with(follower, &without, &[&own, "--reconfig-enabled"]);
    ensemble.list.get_mut(&follower).unwrap().client = own["--port=".len()..].parse().unwrap();
    ensemble.check("a server has started with a port of its own");
    assert!(!listens(listed.client));
    assert!(ensemble.log(follower).contains("take it out of the settings"));
}

#[test]
fn client_ports_follow_the_list() {
    client_ports_change(1);
}

#[test]
fn client_ports_of_servers_with_four_partitions_follow_the_list() {
    client_ports_change(4);
}

fn peer_ports_change(partitions: u8) {
    let mut ensemble = Ensemble::start(3, partitions);
    for id in [ensemble.follower(), ensemble.leader()] {
        let before = ensemble.list[&id].peer;
        ensemble.change(id, |place| place.peer = free_port());
        ensemble.check("a port for other servers has changed");
        eventually("the port before is closed", || !listens(before));
        for any in ensemble.list.keys() {
            let address = ensemble.address(*any);
            let own = format!("\nquorumPort={}\n", ensemble.list[any].peer);
            let theirs = format!("\nserver.{id}=127.0.0.1:{}:", ensemble.list[&id].peer);
            eventually("it says which ports are used", || {
                word(&address, "conf").is_ok_and(|conf| conf.contains(&own) && conf.contains(&theirs))
            });
        }
        ensemble.launch(id, &[]);
        ensemble.check("a server whose port for others has changed has started again");
        assert!(!listens(before));
    }
    // One that was away when the leader's changed still has the old one.
    let (away, leader) = (ensemble.follower(), ensemble.leader());
    ensemble.end(away);
    let mut place = ensemble.list[&leader];
    place.peer = free_port();
    let (done, said) = ensemble.ask(&ensemble.address(leader), &["-add", &place.line(leader)]);
    assert!(done, "{said}");
    ensemble.list.insert(leader, place);
    eventually("the leader listens there", || listens(place.peer));
    ensemble.launch(away, &[]);
    ensemble.check("a server was away when the leader's port for others changed");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
    let place = Place { peer: taken.local_addr().unwrap().port(), ..place };
    let (done, said) = ensemble.ask(&ensemble.addresses(), &["-add", &place.line(leader)]);
    assert!(done, "{said}");
    eventually("the log says that the port is taken", || {
        ensemble.log(leader).contains("cannot listen for other servers on")
    });
    ensemble.check("a port for other servers was taken");
    drop(taken);
    ensemble.list.insert(leader, place);
    eventually("it is listened on", || listens(place.peer));
    ensemble.check("a port for other servers that was taken is free");
}

#[test]
fn ports_for_other_servers_follow_the_list() {
    peer_ports_change(1);
}

#[test]
fn ports_for_other_servers_with_four_partitions_follow_the_list() {
    peer_ports_change(4);
}

#[test]
fn a_change_that_is_refused_says_why_and_what_to_do() {
    let mut ensemble = Ensemble::start(4, 1);
    let refused = |ensemble: &Ensemble, words: &[&str], why: &str| {
        let (done, said) = ensemble.ask(&ensemble.addresses(), words);
        assert!(!done && said.contains(why), "{words:?}: {said}");
    };
    refused(
        &ensemble,
        &["-add", "server.9=h:1:2"],
        "server.9=h:1:2: who joins says behind a `;` where clients",
    );
    let same = ensemble.list[&1].line(9);
    refused(&ensemble, &["-add", &same], ": server 1 has this address for other servers");
    refused(&ensemble, &["-remove", "1,2,3,4"], "no participant would be left");
    refused(&ensemble, &["-remove", "1", "-v", "ffff"], "the list has version ");
    let (version, _) = ensemble.clients_find();
    refused(&ensemble, &["-remove", "1", "-v", "ffff"], &format!("the list has version {version} by now"));
    let (done, said) = ensemble.ask_as(&ensemble.addresses(), &["-remove", "1"]);
    assert!(!done && said.contains("the permission to write /zookeeper/config: be the super user"), "{said}");
    let file = ensemble.folder.path().join("list");
    std::fs::write(&file, "tickTime=2000\n").unwrap();
    refused(&ensemble, &["-file", file.to_str().unwrap()], "has no line server.N=");
    // Two are left then, of which one is not there.
    let (leader, away) = (ensemble.leader(), ensemble.follower());
    ensemble.end(away);
    let mut others = ensemble.list.keys().filter(|id| ![leader, away].contains(id)).map(u8::to_string);
    let others = [others.next().unwrap(), others.next().unwrap()].join(",");
    eventually("it is known who is missing", || {
        let (done, said) = ensemble.ask(&ensemble.address(leader), &["-remove", &others]);
        assert!(!done, "{said}");
        said.contains(&format!("too few are connected to the leader (server {away}: Connection refused"))
    });
    // The whole list, from a file.
    let lines = ensemble.list.iter().filter(|(id, _)| **id != away).map(|(id, place)| place.line(*id) + "\n");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let words = ["-s", "-v", &version, "-file", file.to_str().unwrap()];
    let (done, said) = ensemble.ask(&ensemble.address(leader), &words);
    assert!(done && said.contains("\nversion=") && said.contains("dataVersion = "), "{said}");
    ensemble.list.remove(&away);
    let others: Vec<_> = ensemble.list.keys().copied().filter(|id| *id != leader).collect();
    // The setting is that of the leader.
    let settings = ensemble.settings.clone();
    others.iter().chain([&leader]).for_each(|id| {
        ensemble.launch_with(*id, &settings, &["--reconfig-enabled=false"]);
    });
    ensemble.check("they have started again");
    refused(&ensemble, &["-remove", "1"], "set reconfig-enabled (reconfigEnabled in a zoo.cfg) to true");
}

/// As behind services of a cluster manager, or with several interfaces: a connection does not come from where its server
/// is found. With a secret nobody goes by that.
#[test]
fn servers_behind_other_addresses_than_their_own_are_replaced() {
    let at = |id: u8| Place::at(Ipv4Addr::new(127, 0, 0, 10 + id));
    let mut ensemble = Ensemble::of((1..=3).map(|id| (id, at(id))).collect(), 1);
    let (gone, place) = (ensemble.follower(), at(4));
    ensemble.list.insert(4, place);
    let servers = settings(&ensemble.list);
    ensemble.launch_with(4, &servers, &["--join", "--reconfig-enabled"]);
    ensemble.list.remove(&4);
    ensemble.reconfig(&["-add", &place.line(4), "-remove", &gone.to_string()]);
    ensemble.list.insert(4, place);
    ensemble.end(gone);
    ensemble.list.remove(&gone);
    ensemble.check("one has come and one has gone");
    // It is elsewhere from now on.
    let moves = ensemble.follower();
    ensemble.change(moves, |place| place.peer = free_port());
    ensemble.check("one has moved");
}

/// Whoever is not in the list owes nobody anything: it is added with the folder that it has then.
#[test]
fn a_server_whose_folder_was_emptied_before_it_is_added_is_added() {
    let mut ensemble = Ensemble::start(3, 1);
    let place = Place::new();
    let servers = settings(&ensemble.list.iter().map(|(id, at)| (*id, *at)).chain([(4, place)]).collect());
    for id in 1..=3 {
        ensemble.launch_with(id, &servers, &["--reconfig-enabled"]);
        ensemble.check("it names another one");
    }
    for times in 1..=2 {
        // With `--join` it would be a reader until then, and be met by nobody.
        ensemble.launch_with(4, &servers, &["--reconfig-enabled"]);
        eventually("it is connected", || ensemble.log(1).matches("server 4 is connected").count() >= times);
        ensemble.end(4);
        std::fs::remove_dir_all(ensemble.folder.path().join("4")).unwrap();
    }
    ensemble.launch_with(4, &servers, &["--join", "--reconfig-enabled"]);
    ensemble.reconfig(&["-add", &place.line(4)]);
    ensemble.list.insert(4, place);
    ensemble.check("it is added");
}
