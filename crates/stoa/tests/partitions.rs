//! A server with several partitions: everything is there for every client, also after a crash.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stoa_client::blocking::Client;
use stoa_client::{Acl, CreateMode, ErrorCode, Operation, Options};
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");
const TOPS: usize = 12;
const BELOW: usize = 30;

/// A server on a port of the system's choice; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(STOA);
    command.args(["serve", "--port=0", "--admin-port=0", "--words=*", "--snapshot-updates=60"]);
    command.args(flags).arg("--data-dir").arg(folder);
    command
}

impl Server {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut process =
            command(folder, flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().to_owned();
        Self { process, address: format!("127.0.0.1:{port}") }
    }

    fn connect(&self) -> Client {
        Client::connect(Options::new(&self.address).unwrap()).unwrap()
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
        let lines = self.word("mntr");
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        value.unwrap_or_else(|| panic!("{name} in {lines}")).parse().unwrap()
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

    let (_, watch) = clients[0].exists_and_watch("/top-7/watched").unwrap();
    clients[4].create("/top-7/watched", b"", CreateMode::Persistent).unwrap();
    let mut watch = watch;
    let event = clients[0].wait(watch.next()).unwrap();
    assert_eq!(event.path, "/top-7/watched");
    clients[4].delete("/top-7/watched", None).unwrap();

    assert_eq!(server.metric("stoa_partitions"), u64::from(partitions));
    assert_eq!(server.metric("znode_count"), 3 + 1 + (TOPS + TOPS * BELOW) as u64 + 1 + 5);
    assert!(server.metric("stoa_requests_handed_over_total") > 0);
    assert!(server.word("conf").contains(&format!("\npartitions={partitions}\n")));
    let sessions = server.word("cons").lines().filter(|line| line.contains("sid=0x")).count();
    assert_eq!(sessions, 5);
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
    assert!(snapshots.count() >= 2, "of more than one partition");
    drop(server);

    // Without the number, and what a session of the crash left behind does not count.
    let server = Server::start(folder.path(), &["--partitions=auto"]);
    let digest_before = digest.split(": ").nth(1).unwrap();
    assert!(server.word("hash").ends_with(digest_before), "{digest} {}", server.word("hash"));
    check(&server.connect());
    offline(folder.path());
    let began = Instant::now();
    let mut stopping = Command::new("kill").arg(server.process.id().to_string()).spawn().unwrap();
    stopping.wait().unwrap();
    let mut server = server;
    assert!(server.process.wait().unwrap().success());
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
    assert!(whole.contains("covers=[(0, ") && whole.contains("covers=[(1, "), "{whole}");
}

#[test]
fn two_partitions_are_one_tree() {
    everything(2);
}

#[test]
fn four_partitions_are_one_tree() {
    everything(4);
}

#[test]
fn a_folder_with_another_number_is_refused() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=3"]);
    let client = server.connect();
    (0..6).for_each(|number| drop(client.create(&top(number), b"", CreateMode::Persistent).unwrap()));
    drop((client, server));
    let output = command(folder.path(), &["--partitions=2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("has 3 partitions, not 2") && why.contains("auto"), "{why}");
    std::fs::remove_file(folder.path().join("PARTITIONS")).unwrap();
    let output = command(folder.path(), &[]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && why.contains("was its file PARTITIONS lost?"), "{why}");
}

#[test]
fn a_server_of_an_ensemble_has_one_partition() {
    let folder = TempDir::new().unwrap();
    drop(Server::start(folder.path(), &["--partitions=3"]));
    let several = ["--servers=1=a:1,2=b:2,3=c:3", "--server-id=1", "--peer-secret=s"];
    let output = command(folder.path(), &several).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && why.contains("has 3 partitions: a server that is one"),
        "{why}"
    );
}

#[test]
fn limits_on_connections_hold_for_all_threads_together() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), &["--partitions=3", "--max-connections-per-address=4"]);
    let _clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
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
