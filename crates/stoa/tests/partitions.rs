//! Servers with several partitions, alone and together: everything is there for every client, also after a
//! crash.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{PATIENCE, eventually, free_port, insist};
use stoa_client::blocking::Client;
use stoa_client::{Acl, CreateMode, ErrorCode, Operation, Options};
use stoa_core::Placement;
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");
const TOPS: usize = 12;
const BELOW: usize = 30;

/// Every second client has a connection to each partition.
fn options(servers: &str) -> Options {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_direct = NEXT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    Options::new(servers).unwrap().direct(is_direct)
}

/// A server on a port of the system's choice; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(STOA);
    command.args(["serve", "--admin-port=0", "--words=*", "--snapshot-updates=60"]);
    command.args(flags).arg("--data-dir").arg(folder);
    command
}

impl Server {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut server = Self::launch(command(folder, flags).arg("--port=0"));
        server.await_ready();
        server
    }

    fn launch(command: &mut Command) -> Self {
        let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Self { process, address: String::new() }
    }

    fn await_ready(&mut self) {
        let (said, ready) = channel();
        let out = BufReader::new(self.process.stdout.take().unwrap());
        std::thread::spawn(move || said.send(out.lines().next()));
        let ready = ready.recv_timeout(PATIENCE).unwrap().unwrap().unwrap();
        self.address = format!("127.0.0.1:{}", ready.trim().rsplit(':').next().unwrap());
    }

    fn stop(mut self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    fn connect(&self) -> Client {
        Client::connect(options(&self.address)).unwrap()
    }

    fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A metric by its name.
    fn metric(&self, name: &str) -> u64 {
        self.metric_if_it_serves(name).unwrap()
    }

    fn metric_if_it_serves(&self, name: &str) -> Option<u64> {
        let lines = self.word("mntr");
        if lines.contains("not currently serving") {
            return None;
        }
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        Some(value.unwrap_or_else(|| panic!("{name} in {lines}")).parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn top(number: usize) -> String {
    format!("/top-{number}")
}

fn below(number: usize, child: usize) -> String {
    format!("/top-{number}/of-{child}")
}

/// Several clients, connected to different threads, write into all directories.
fn fill(clients: &[Client]) {
    for number in 0..TOPS {
        clients[number % clients.len()].create(&top(number), b"top", CreateMode::Persistent).unwrap();
        for child in 0..BELOW {
            let client = &clients[(number + child) % clients.len()];
            client.create(&below(number, child), b"", CreateMode::Persistent).unwrap();
            let other = &clients[(number + child + 1) % clients.len()];
            other.set_data(&below(number, child), format!("{number} {child}").as_bytes(), Some(0)).unwrap();
        }
    }
}

fn check(client: &Client) {
    let mut names = client.get_children("/").unwrap();
    names.sort_unstable();
    let mut expected: Vec<_> = (0..TOPS).map(|number| top(number)[1..].to_owned()).collect();
    expected.extend(["moved".to_owned(), "zookeeper".to_owned()]);
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(client.get_data("/moved").unwrap().0, b"both");
    for number in 0..TOPS {
        assert_eq!(client.get_children(&top(number)).unwrap().len(), BELOW);
        for child in 0..BELOW {
            let (data, stat) = client.get_data(&below(number, child)).unwrap();
            assert_eq!((data, stat.version), (format!("{number} {child}").into_bytes(), 1));
        }
    }
}

/// What concerns several partitions, or clients of several.
fn move_and_watch(clients: &[Client]) {
    // All or nothing, wherever they live.
    let create = |path: &str| Operation::Create {
        path: path.to_owned(),
        data: b"both".to_vec(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        ttl_ms: None,
    };
    let failed = clients[1].multi(vec![create("/moved"), create("/top-3"), create("/top-4/x")]);
    assert!(failed.is_err());
    clients[2].multi(vec![create("/moved"), create("/top-5/moved")]).unwrap();
    clients[3].delete("/top-5/moved", None).unwrap();
    for number in 0..TOPS {
        let path = format!("/top-{number}/watched");
        let (_, mut watch) = clients[0].exists_and_watch(&path).unwrap();
        clients[4].create(&path, b"", CreateMode::Persistent).unwrap();
        assert_eq!(clients[0].wait(watch.next()).unwrap().path, path);
        clients[4].delete(&path, None).unwrap();
    }
}

fn everything(partitions: u8) {
    let folder = TempDir::new().unwrap();
    let flag = format!("--partitions={partitions}");
    let server = Server::start(folder.path(), &[&flag]);
    let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    fill(&clients);
    for (number, client) in clients.iter().enumerate() {
        let path = format!("{}/ephemeral-{number}", top(number));
        client.create(&path, b"", CreateMode::Ephemeral).unwrap();
        client.delete(&path, None).unwrap();
        client.create(&path, b"", CreateMode::Ephemeral).unwrap();
    }
    assert_eq!(server.metric("ephemerals_count"), 5);
    assert_eq!(server.metric("global_sessions"), 5);
    move_and_watch(&clients);
    assert_eq!(server.metric("stoa_partitions"), u64::from(partitions));
    assert_eq!(server.metric("znode_count"), 3 + 1 + (TOPS + TOPS * BELOW) as u64 + 1 + 5);
    assert!(server.metric("stoa_requests_handed_over_total") > 0);
    assert!(server.word("conf").contains(&format!("\npartitions={partitions}\n")));
    let lines = server.word("cons");
    let session = |line: &str| Some(line.split_once("sid=0x")?.1.split(',').next()?.to_owned());
    assert_eq!(lines.lines().filter_map(session).collect::<BTreeSet<_>>().len(), 5);
    let dump = server.word("dump");
    assert!((0..5).all(|number| dump.contains(&format!("/top-{number}/ephemeral-{number}"))), "{dump}");
    drop(clients);
    check(&server.connect());
    assert_eq!(server.metric("ephemerals_count"), 0, "they go with their sessions");
    let digest = server.word("hash");
    let snapshots = std::fs::read_dir(folder.path()).unwrap();
    let is_snapshot = |name: &str| name.starts_with("snapshot-") && !name.contains('.');
    let snapshots =
        snapshots.filter(|entry| is_snapshot(entry.as_ref().unwrap().file_name().to_str().unwrap()));
    assert!(snapshots.count() >= 1, "of all partitions");
    drop(server);

    // Without the number, and what a session of the crash left behind does not count.
    let server = Server::start(folder.path(), &["--partitions=auto"]);
    let digest_before = digest.split(": ").nth(1).unwrap();
    assert!(server.word("hash").ends_with(digest_before), "{digest} {}", server.word("hash"));
    check(&server.connect());
    offline(folder.path());
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(4), "nothing is under way");
    check(&Server::start(folder.path(), &[&flag]).connect());
}

/// The snapshots can be looked into beside the server.
fn offline(folder: &Path) {
    let run = |what: &str, path: &Path| {
        let output = Command::new(STOA).args(["snapshot", what]).arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let whole = run("verify", folder);
    for line in whole.lines() {
        let (file, _) = line.split_once(": whole, ").unwrap();
        let dump = run("dump", &folder.join(file));
        let znodes = dump.lines().filter(|line| line.starts_with('/')).count();
        assert!(line.contains(&format!(" znodes={znodes} ")), "{line} {dump}");
    }
    assert!(whole.contains("covers=[(2"), "{whole}");
}

#[test]
fn two_partitions_are_one_tree() {
    everything(2);
}

#[test]
fn four_partitions_are_one_tree() {
    everything(4);
}

/// The generator finds out where its connections are, and what it asks stays there, or does not.
#[test]
fn the_generator_works_where_its_connections_are() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=3"]);
    let bench = |options: &str| {
        let line = format!(
            "bench --server {} --sessions 7 --tops 6 --partitions 3 --operations 5000 --op {options}",
            server.address
        );
        let output = Command::new(STOA).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let requests = || ["kept", "handed_over"].map(|how| server.metric(&format!("stoa_requests_{how}_total")));
    bench("set --stay 1");
    // Besides, only the ends of the sessions are asked of the first partition.
    let [kept_before, handed_over_before] = requests();
    // Each time another thread has the first connection.
    (0..3).for_each(|_| bench("set --prepared --local"));
    let [kept, handed_over] = requests();
    assert!(kept - kept_before >= 15_000 && handed_over - handed_over_before <= 21);
    bench("set --prepared --remote");
    let [kept_then, handed_over_then] = requests();
    assert!(kept_then - kept <= 7 && handed_over_then - handed_over >= 5000);
    bench("set --prepared --stay 1");
    let [kept_last, handed_over_last] = requests();
    // Whoever has a connection to each partition asks it there.
    bench("set --prepared --stay 1 --direct");
    bench("mixed --prepared --stay 1 --direct --fast");
    let [_, handed_over_direct] = requests();
    assert!(handed_over_direct - handed_over_last <= 14);
    let (kept, handed_over) = (kept_last - kept_then, handed_over_last - handed_over_then);
    assert!(handed_over > kept && kept > 1000, "a third is kept: {kept} of {}", kept + handed_over);
}

#[test]
fn a_folder_with_another_number_is_refused() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=3"]);
    let client = server.connect();
    (0..6).for_each(|number| drop(client.create(&top(number), b"", CreateMode::Persistent).unwrap()));
    drop((client, server));
    let output = command(folder.path(), &["--port=0", "--partitions=2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("has 3 partitions, not 2") && why.contains("auto"), "{why}");
    std::fs::remove_file(folder.path().join("PARTITIONS")).unwrap();
    let output = command(folder.path(), &["--port=0"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && why.contains("was its file PARTITIONS lost?"), "{why}");
}

#[test]
fn limits_on_connections_hold_for_all_threads_together() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=3", "--max-connections-per-address=4"]);
    let options = Options::new(&server.address).unwrap();
    let _clients: Vec<_> = (0..4).map(|_| Client::connect(options.clone()).unwrap()).collect();
    let mut refused = TcpStream::connect(&server.address).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // It is closed, or reset because of what was not read.
    let answer = refused.write_all(b"ruok").and_then(|()| refused.read(&mut [0; 8]));
    assert!(!matches!(answer, Ok(1..)), "{answer:?}");
}

#[test]
fn a_session_outlives_its_threads() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=4", "--tick-time=200"]);
    let options = Options::new(&server.address).unwrap().session_timeout(Duration::from_millis(600));
    let clients: Vec<_> = (0..4).map(|_| Client::connect(options.clone()).unwrap()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.create(&format!("/mine-{number}"), b"", CreateMode::Ephemeral).unwrap();
    }
    // Their heartbeats are answered on four threads, and one judges them.
    std::thread::sleep(Duration::from_secs(3));
    for (number, client) in clients.iter().enumerate() {
        let again = client.create(&format!("/mine-{number}"), b"", CreateMode::Ephemeral);
        assert_eq!(again, Err(ErrorCode::NodeExists));
    }
}

#[test]
fn an_idle_partition_does_not_keep_the_log_for_ever() {
    const MIB: usize = 1 << 20;
    let folder = TempDir::new().unwrap();
    let flags = ["--partitions=2", "--snapshots-kept=1", "--segment-bytes=4MiB", "--snapshot-log-bytes=8MiB"];
    let server = Server::start(folder.path(), &flags);
    let client = server.connect();
    client.create("/busy", b"", CreateMode::Persistent).unwrap();
    let mut data = vec![0; MIB - (16 << 10)];
    for number in 0..100 {
        data[0] = number;
        client.set_data("/busy", &data, None).unwrap();
    }
    // The other one has nothing that would be due for a snapshot.
    let deadline = Instant::now() + Duration::from_secs(20);
    let kept = || server.metric("stoa_log_bytes");
    while kept() > 60 * MIB as u64 {
        assert!(Instant::now() < deadline, "the log still has {} bytes", kept());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.get_data("/busy").unwrap().0, data);
}

const PARTITIONS: u64 = 4;

/// Three servers with several partitions; killed when dropped.
struct Ensemble {
    folder: TempDir,
    ids: [u8; 3],
    partitions: u64,
    ports: [u16; 3],
    list: String,
    servers: [Option<Server>; 3],
}

impl Ensemble {
    fn start() -> Self {
        Self::with([1, 2, 3], PARTITIONS)
    }

    fn with(ids: [u8; 3], partitions: u64) -> Self {
        let ports: [u16; 3] = std::array::from_fn(|_| free_port());
        let line = |(id, port): (u8, &u16)| format!("{id}=127.0.0.1:{};127.0.0.1:{port}", free_port());
        let list = ids.into_iter().zip(&ports).map(line).collect::<Vec<_>>().join(",");
        let servers = [None, None, None];
        let folder = TempDir::new().unwrap();
        let mut ensemble = Self { folder, ids, partitions, ports, list, servers };
        (0..3).for_each(|at| ensemble.launch(at));
        (0..3).for_each(|at| ensemble.await_ready(at));
        ensemble.leader();
        ensemble
    }

    fn launch(&mut self, at: usize) {
        let (id, list) = (format!("--server-id={}", self.ids[at]), format!("--servers={}", self.list));
        let partitions = format!("--partitions={}", self.partitions);
        // One with the last id that there can be has no TTL znodes beside it.
        let types = format!("--extended-types={}", !self.ids.contains(&u8::MAX));
        let flags = [&id, &list, &types, &partitions, "--peer-secret=of a test", "--peer-bind=127.0.0.1"];
        let folder = self.folder.path().join(format!("{}", at + 1));
        let times = ["--heartbeat=50ms", "--election-timeout=1s"];
        self.servers[at] = Some(Server::launch(command(&folder, &flags).args(times)));
    }

    fn await_ready(&mut self, at: usize) {
        self.servers[at].as_mut().unwrap().await_ready();
    }

    fn stop(&mut self, at: usize) {
        self.servers[at].take().unwrap().stop();
    }

    fn kill(&mut self, at: usize) {
        self.servers[at] = None;
    }

    fn server(&self, at: usize) -> &Server {
        self.servers[at].as_ref().unwrap()
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.servers.iter().enumerate().filter_map(|(at, server)| Some((at, server.as_ref()?)))
    }

    /// How many partitions a server leads, if it serves.
    fn led(&self, server: &Server) -> Option<u64> {
        if self.partitions > 1 {
            return server.metric_if_it_serves("stoa_partitions_led");
        }
        let standing = server.word("srvr");
        let is = |mode: &str| standing.contains(&format!("\nMode: {mode}\n"));
        if is("leader") { Some(1) } else { is("follower").then_some(0) }
    }

    /// Who leads all partitions, once somebody does and all servers follow.
    fn leader(&self) -> usize {
        let mut found = None;
        eventually("one server leads all partitions", || {
            let led: Vec<_> = self.up().map(|(at, server)| (at, self.led(server))).collect();
            let (leaders, others): (Vec<_>, Vec<_>) =
                led.into_iter().partition(|(_, led)| *led == Some(self.partitions));
            found = leaders.first().map(|(at, _)| *at);
            leaders.len() == 1 && others.iter().all(|(_, led)| *led == Some(0))
        });
        found.unwrap()
    }

    /// A client of one server.
    fn connect(&self, at: usize) -> Client {
        Client::connect(options(&self.server(at).address)).unwrap()
    }

    /// A client of all of them, one first.
    fn connect_to_all(&self, first: usize) -> Client {
        let address = |at: usize| format!("127.0.0.1:{}", self.ports[(first + at) % 3]);
        let list = (0..3).map(address).collect::<Vec<_>>().join(",");
        Client::connect(options(&list).connect_timeout(PATIENCE)).unwrap()
    }

    /// Waits until all servers have the same, and shows what that is to a client of each.
    fn settle(&self) -> Vec<Client> {
        eventually("all servers have the same", || {
            let hashes: Vec<_> = self.up().map(|(_, server)| server.word("hash")).collect();
            hashes.iter().all(|hash| hash.contains(':') && *hash == hashes[0])
        });
        self.up().map(|(at, _)| self.connect(at)).collect()
    }

    /// Which snapshots a server has.
    fn snapshots(&self, at: usize) -> String {
        let folder = self.folder.path().join(format!("{}", at + 1));
        let output = Command::new(STOA).args(["snapshot", "verify"]).arg(folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn three_servers_with_four_partitions_are_one_tree() {
    let ensemble = Ensemble::start();
    let clients: Vec<_> = (0..6).map(|number| ensemble.connect(number % 3)).collect();
    fill(&clients);
    move_and_watch(&clients);
    for client in ensemble.settle() {
        check(&client);
    }
    for (_, server) in ensemble.up() {
        assert_eq!(server.metric("stoa_partitions"), PARTITIONS);
        assert_eq!((server.metric("global_sessions"), server.metric("quorum_size")), (6, 3));
        assert!(server.word("conf").contains("\npartitions=4\n"));
    }
}

/// With the ids that nobody has who counts from 1, and whatever the number of partitions.
fn any_byte_is_an_id(ids: [u8; 3], partitions: u64) {
    let mut ensemble = Ensemble::with(ids, partitions);
    let mut sessions = BTreeSet::new();
    let mut made = BTreeSet::new();
    let mut use_all = |ensemble: &Ensemble| {
        for (at, _) in ensemble.up() {
            let client = ensemble.connect(at);
            client.create("/own", b"", CreateMode::Ephemeral).unwrap();
            let session = client.get_data("/own").unwrap().1.ephemeral_owner;
            assert!(
                (session >> 56) as u8 == ids[at] && sessions.insert(session),
                "{session:#x} at {}",
                ids[at]
            );
            client.delete("/own", None).unwrap();
            for number in 0..8 {
                let path = format!("/of-{number}-{session}");
                client.create(&path, b"", CreateMode::Persistent).unwrap();
                made.insert(path[1..].to_owned());
            }
        }
    };
    use_all(&ensemble);
    // The first leader is lost, and what was acknowledged there is not; then it follows.
    let first = ensemble.leader();
    ensemble.kill(first);
    ensemble.leader();
    use_all(&ensemble);
    ensemble.launch(first);
    ensemble.await_ready(first);
    let leader = ensemble.leader();
    use_all(&ensemble);
    for (at, server) in ensemble.up() {
        assert_eq!(server.metric("stoa_leader_id"), ids[leader].into());
        assert_eq!(server.metric("stoa_server_id"), ids[at].into());
        assert!(server.word("conf").contains(&format!("\nserverId={}\n", ids[at])));
    }
    for client in ensemble.settle() {
        let names: BTreeSet<_> = client.get_children("/").unwrap().into_iter().collect();
        assert!(names.is_superset(&made));
    }
}

#[test]
fn servers_may_count_from_0() {
    any_byte_is_an_id([0, 1, 2], 1);
}

#[test]
fn servers_with_several_partitions_may_count_from_0() {
    any_byte_is_an_id([0, 1, 2], PARTITIONS);
}

#[test]
fn a_server_may_have_the_last_id_where_there_are_no_ttl_znodes() {
    any_byte_is_an_id([255, 0, 1], 1);
}

/// Creates znodes until told to stop; returns those that were acknowledged.
fn write_until(stop: &AtomicBool, client: &Client, writer: usize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let path = format!("{}/by-{writer}-{number}", top((writer + number) % TOPS));
        if client.create(&path, b"", CreateMode::Persistent).is_ok() {
            acknowledged.push(path);
        }
    }
    acknowledged
}

#[test]
fn a_killed_leader_takes_nothing_with_it() {
    let mut ensemble = Ensemble::start();
    let first = ensemble.connect(0);
    (0..TOPS).for_each(|number| drop(first.create(&top(number), b"", CreateMode::Persistent).unwrap()));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..6)
        .map(|writer| {
            let (client, stop) = (ensemble.connect_to_all(writer), Arc::clone(&stop));
            std::thread::spawn(move || write_until(&stop, &client, writer))
        })
        .collect();
    for _ in 0..2 {
        let leader = ensemble.leader();
        std::thread::sleep(Duration::from_millis(300));
        ensemble.kill(leader);
        assert_ne!(ensemble.leader(), leader);
        std::thread::sleep(Duration::from_millis(300));
        ensemble.launch(leader);
        ensemble.await_ready(leader);
    }
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    ensemble.leader();
    for client in ensemble.settle() {
        let found: Vec<_> = (0..TOPS)
            .flat_map(|number| {
                let names = client.get_children(&top(number)).unwrap();
                names.into_iter().map(move |name| format!("{}/{name}", top(number)))
            })
            .collect();
        let found: std::collections::HashSet<_> = found.into_iter().collect();
        let lost: Vec<_> = acknowledged.iter().filter(|path| !found.contains(*path)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

#[test]
fn a_server_that_was_away_is_given_a_snapshot_of_all_partitions() {
    let mut ensemble = Ensemble::start();
    let away = (ensemble.leader() + 1) % 3;
    ensemble.stop(away);
    let clients: Vec<_> = ensemble.up().map(|(at, _)| ensemble.connect(at)).collect();
    // Each of them takes snapshots, of every partition.
    fill(&clients);
    let create = |path: &str| clients[0].create(path, b"both", CreateMode::Persistent).unwrap();
    create("/moved");
    for busy in (0..8).map(|number| format!("/busy-{number}")) {
        clients[1].create(&busy, b"", CreateMode::Persistent).unwrap();
        (0..60).for_each(|_| assert!(clients[1].set_data(&busy, b"", None).is_ok()));
        clients[1].delete(&busy, None).unwrap();
    }
    drop(clients);
    let up: Vec<_> = ensemble.up().map(|(at, _)| at).collect();
    for at in &up {
        eventually("there is a snapshot", || ensemble.snapshots(*at).contains("covers=[("));
    }
    // What is before their snapshots nobody has in memory then.
    up.iter().for_each(|at| ensemble.stop(*at));
    up.iter().for_each(|at| ensemble.launch(*at));
    up.iter().for_each(|at| ensemble.await_ready(*at));
    ensemble.leader();
    ensemble.launch(away);
    ensemble.await_ready(away);
    // One may be sent twice.
    let received = ensemble.server(away).metric("stoa_snapshots_received_total");
    assert!(received >= 1, "{received}");
    for client in ensemble.settle() {
        check(&client);
    }
    // They are its own now.
    ensemble.kill(away);
    ensemble.launch(away);
    ensemble.await_ready(away);
    for client in ensemble.settle() {
        check(&client);
    }
}

#[test]
fn a_rolling_restart_loses_no_session() {
    let mut ensemble = Ensemble::start();
    let clients: Vec<_> = (0..6).map(|first| ensemble.connect_to_all(first)).collect();
    for (number, client) in clients.iter().enumerate() {
        client.create(&format!("/mine-{number}"), b"", CreateMode::Ephemeral).unwrap();
    }
    for at in 0..3 {
        let leader = ensemble.leader();
        let began = Instant::now();
        ensemble.stop(at);
        assert!(began.elapsed() < Duration::from_secs(4), "nothing keeps it: {:?}", began.elapsed());
        assert!(ensemble.leader() != at, "{leader} led");
        ensemble.launch(at);
        ensemble.await_ready(at);
        for (number, client) in clients.iter().enumerate() {
            let path = format!("/mine-{number}");
            assert!(insist(|| client.set_data(&path, b"still", None)).is_ok(), "{path}");
        }
    }
    drop(clients);
    let names = ensemble.settle()[0].get_children("/").unwrap();
    assert_eq!(names, ["zookeeper"], "they end with their sessions");
}

/// Runs `stoa partitions` with these words.
fn partitions(server: &Server, admin: &str, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(STOA);
    command.args(["partitions", "--server", &server.address, "--admin", admin]).args(words);
    let output = command.output().unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn an_operator_sees_and_says_where_subtrees_live() {
    let folder = TempDir::new().unwrap();
    let admin_port = free_port();
    let mut command = Command::new(STOA);
    command.args(["serve", "--port=0", "--partitions=2", "--words=*", "--data-dir"]).arg(folder.path());
    let mut server = Server::launch(command.arg(format!("--admin-port={admin_port}")));
    server.await_ready();
    let admin = format!("127.0.0.1:{admin_port}");
    let run = |words: &[&str]| partitions(&server, &admin, words);
    let client = server.connect();
    (0..4).for_each(|number| drop(client.create(&top(number), b"", CreateMode::Persistent).unwrap()));
    for _ in 0..3000 {
        client.get_data(&top(0)).unwrap();
    }
    let (shown, text) = run(&[]);
    assert!(shown && text.starts_with("partition  role"), "{text}");
    assert!(text.contains("\nbalance is on, imbalance ") && !text.contains("\nhints\n"), "{text}");
    let place = |path: &str| Placement::new(2).of(path);
    let subtree = format!("\"path\":\"{}\"", top(0));
    eventually("what was asked is told", || {
        client.get_data(&top(0)).unwrap();
        let (_, json) = run(&["--json"]);
        json.contains(&subtree) && json.lines().count() == 1
    });
    // Where it is it can be pinned at once.
    let here = place(&top(1)).to_string();
    assert_eq!(run(&["move", &top(1), &here]), (true, format!("{} lives on partition {here}\n", top(1))));
    assert!(run(&["together", &top(2), "/top-2/below"]).1.contains("lies in another one"));
    assert!(run(&["together", &top(2), &top(3)]).0 && run(&["stay", &top(0)]).0);
    assert!(run(&["balance", "off"]).0);
    let (_, text) = run(&[]);
    let hints = format!(
        "balance is off, imbalance {}\n\nhints\n  pin /top-1 {here}\n  together /top-2 /top-3\n  stay /top-0\n  balance off\n",
        text.lines().find_map(|line| line.strip_prefix("balance is off, imbalance ")).unwrap()
    );
    assert!(text.contains(&hints), "{text}");
    for path in [1, 2, 0].map(top) {
        assert!(run(&["unpin", &path]).0);
    }
    assert!(run(&["balance", "on"]).0);
    assert_eq!(client.get_data("/zookeeper/partitions").unwrap().0, b"");
    for (words, why) in [
        (["move", "/top-1", "2"], "there is no partition 2"),
        (["move", "top-1", "0"], "a path is wrong"),
        (["move", "/zookeeper", "0"], "are not moved"),
        (["move", "/a b", "0"], "it takes a path and a partition"),
    ] {
        let (done, said) = run(&words);
        assert!(!done && said.contains(why), "{words:?}: {said}");
    }
    let (done, said) = partitions(&server, "127.0.0.1:1", &[]);
    assert!(!done && said.contains("admin HTTP at 127.0.0.1:1 (--admin says where it is)"), "{said}");
}
