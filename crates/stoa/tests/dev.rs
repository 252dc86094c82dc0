//! `stoa dev` as people meet it: an ensemble starts, its servers are killed and started again, and
//! nothing is left of it at the end.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");
/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// An ensemble on ports of the system's choice.
struct Dev {
    process: Child,
    keyboard: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Everything that was shown so far.
    shown: Vec<String>,
}

impl Dev {
    /// Starts it below a temporary folder of the test, with the arguments that are given besides.
    fn start(temporary: &Path, arguments: &[&str]) -> Dev {
        Dev::start_with(temporary, arguments, &[])
    }

    /// The same with settings of the servers.
    fn start_with(temporary: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Dev {
        let mut process = Command::new(STOA)
            .args(["dev", "--port", "0"])
            .args(arguments)
            .envs(settings.iter().copied())
            .env("TMPDIR", temporary)
            .env("STOA_PORT", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (lines_in, lines) = channel();
        let out = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = lines_in.send(line);
            }
        });
        Dev { keyboard: process.stdin.take(), process, lines, shown: Vec::new() }
    }

    /// Waits for a line with a text in it.
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.shown.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                    panic!("no line with {text:?} ({error}) in\n{}", self.shown.join("\n"))
                }
            }
        }
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The addresses for clients, once all servers are ready.
    fn addresses(&mut self) -> Vec<String> {
        let line = self.wait_for("  connect   ");
        line.trim().rsplit(' ').next().unwrap().split(',').map(str::to_owned).collect()
    }

    /// Asks how the servers are; the lines of the answer.
    fn status(&mut self, count: u8) -> Vec<String> {
        self.type_line("status");
        (1..=count).map(|id| self.wait_for(&format!("* | server {id}: "))).collect()
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn exit_code(mut self) -> Option<i32> {
        drop(self.keyboard.take());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // The servers of a test that failed go with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A word of the shell; standard output if it succeeds.
fn shell(address: &str, word: &[&str]) -> Option<String> {
    let output = Command::new(STOA).args(word).env("STOA_SERVER", address).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// What a server answers to a four-letter word.
fn word(address: &str, word: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The number of the process in a line of the status.
fn pid(line: &str) -> String {
    let (_, rest) = line.split_once("process ").unwrap();
    rest.split(',').next().unwrap().to_owned()
}

fn folders(within: &Path) -> Vec<PathBuf> {
    fs::read_dir(within).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn one_server_is_killed_started_and_keeps_its_data() {
    let temporary = TempDir::new().unwrap();
    let data = temporary.path().join("data");
    let arguments = ["--servers", "1", "--data-dir", data.to_str().unwrap()];
    let mut dev = Dev::start(temporary.path(), &arguments);
    let addresses = dev.addresses();
    assert_eq!(shell(&addresses[0], &["create", "/kept", "x"]).as_deref(), Some("Created /kept\n"));
    dev.type_line("kill 1");
    dev.wait_for("* | server 1 is down (signal: 9 (SIGKILL))");
    assert_eq!(dev.status(1), ["* | server 1: down (signal: 9 (SIGKILL))"]);
    dev.type_line("kill 1");
    dev.wait_for("* | server 1 is not running");
    dev.type_line("start 1");
    dev.wait_for("1 | stoa is ready for clients on");
    assert_eq!(shell(&addresses[0], &["get", "/kept"]).as_deref(), Some("x\n"));
    dev.type_line("quit");
    dev.wait_for("* | all servers have stopped");
    assert_eq!(dev.exit_code(), Some(0));

    let mut again = Dev::start(temporary.path(), &arguments);
    let addresses = again.addresses();
    assert_eq!(shell(&addresses[0], &["get", "/kept"]).as_deref(), Some("x\n"));
    again.signal("-TERM");
    again.wait_for("* | server 1 is down (exit status: 0)");
    assert_eq!(again.exit_code(), Some(0));
    assert!(data.join("1").is_dir(), "a folder that was named is kept");
}

#[test]
fn of_three_servers_one_may_die() {
    let temporary = TempDir::new().unwrap();
    let mut dev = Dev::start(temporary.path(), &["--servers", "3"]);
    let addresses = dev.addresses();
    assert_eq!(addresses.len(), 3);
    assert_eq!(folders(temporary.path()).len(), 1, "the data is in a temporary folder");
    let status = dev.status(3);
    assert!(status.iter().all(|line| line.contains(": ready, 127.0.0.1:")), "{status:?}");
    assert!(shell(&addresses[0], &["create", "/kept", "x"]).is_some());
    for address in &addresses[1..] {
        assert!(shell(address, &["sync", "/kept"]).is_some(), "{address}");
        assert_eq!(shell(address, &["get", "/kept"]).as_deref(), Some("x\n"), "{address}");
    }

    // Not by what is typed, but as if it had crashed.
    assert!(Command::new("kill").args(["-KILL", &pid(&status[1])]).status().unwrap().success());
    dev.wait_for("* | server 2 has ended by itself (signal: 9 (SIGKILL))");
    let status = dev.status(3);
    assert!(status[0].contains("ready") && status[1].contains("down") && status[2].contains("ready"));
    for (address, path) in [(&addresses[0], "/one"), (&addresses[2], "/three")] {
        assert!(shell(address, &["create", path, "y"]).is_some(), "{address}");
    }
    dev.type_line("start 2");
    dev.wait_for("2 | stoa is ready for clients on");
    assert!(shell(&addresses[1], &["sync", "/three"]).is_some());
    assert_eq!(shell(&addresses[1], &["get", "/three"]).as_deref(), Some("y\n"));

    dev.signal("-INT");
    dev.wait_for("* | all servers have stopped");
    assert_eq!(dev.exit_code(), Some(0));
    assert_eq!(folders(temporary.path()), [] as [PathBuf; 0], "nothing is left");
}

#[test]
fn sites_are_ensembles_with_links_that_can_be_cut() {
    let temporary = TempDir::new().unwrap();
    let (data, distances) = (temporary.path().join("data"), temporary.path().join("distances"));
    fs::write(&distances, "# there and back\nfrankfurt virginia 20\n").unwrap();
    let [data, distances] = [&data, &distances].map(|path| path.to_str().unwrap());
    let sites = ["--sites", "virginia,california,frankfurt", "--round-trips", distances, "--data-dir", data];
    let mut dev = Dev::start(temporary.path(), &sites);
    dev.wait_for("All 3 servers of 3 sites are ready.");
    let addresses: Vec<String> =
        ["  connect   virginia (the hub) ", "california (62 ms to", "frankfurt (20 ms to"]
            .map(|beginning| dev.wait_for(beginning).rsplit(' ').next().unwrap().to_owned())
            .into();
    let admin: Vec<String> = dev
        .wait_for("  admin ")
        .split_whitespace()
        .filter_map(|url| Some(url.strip_suffix("/commands")?.to_owned()))
        .collect();
    sites_are_seen(&admin);
    // Each keeps its own data.
    for (address, site) in addresses.iter().zip(["virginia", "california", "frankfurt"]) {
        assert!(word(address, "srvr").contains("Mode: "), "{site}");
        assert!(Path::new(data).join(site).join("peer-ports").is_file(), "{site}");
    }
    let status = shell(&addresses.join(","), &["status"]).unwrap();
    for part in ["standalone, zxid 0x", ", site virginia\n", ", site frankfurt\n", "\nvirginia (hub) *  1 "] {
        assert!(status.contains(part), "{part}: {status}");
    }
    // A machine that has much to do adds to it.
    let of_california = status.lines().find_map(|line| line.strip_prefix("california ")?.split_once(" ms"));
    let measured_ms = of_california.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(measured_ms.is_some_and(|ms| ms >= 62.0), "{status}");
    says(&mut dev, "cut frankfurt", "frankfurt is cut off from all other sites; heal frankfurt ends that");
    dev.type_line("status");
    for line in [
        "* | virginia (the hub, cut off from frankfurt)",
        "* |   server 1: ready, 127.0.0.1:",
        "* | california (62 ms to the hub and back, cut off from frankfurt)",
        "* |   server 2: ready, 127.0.0.1:",
        "* | frankfurt (cut off from all other sites)",
        "* |   server 3: ready, 127.0.0.1:",
    ] {
        dev.wait_for(line);
    }
    says(&mut dev, "heal frankfurt", "frankfurt and all other sites reach each other again");
    says(&mut dev, "heal", "there is nothing to heal");
    says(
        &mut dev,
        "cut california > frankfurt",
        "nothing gets from california to frankfurt; heal california > frankfurt ends that",
    );
    dev.type_line("status");
    dev.wait_for("* | california (62 ms to the hub and back, nothing gets to frankfurt)");
    dev.wait_for("* | frankfurt (20 ms to the hub and back, nothing comes from california)");
    let both = "california and frankfurt are cut off from each other";
    says(&mut dev, "cut california frankfurt", both);
    says(
        &mut dev,
        "cut frankfurt california",
        "frankfurt and california are cut off from each other already",
    );
    says(&mut dev, "heal", "all sites reach each other again");
    says(&mut dev, "cut nowhere", "there is no site nowhere; the sites are virginia, california, frankfurt");
    dev.type_line("quit");
    dev.wait_for("* | all servers have stopped");
    assert_eq!(dev.exit_code(), Some(0));

    let certificate = fs::read(Path::new(data).join("server.pem")).unwrap();
    let mut again = Dev::start(temporary.path(), &sites);
    again.wait_for("All 3 servers of 3 sites are ready.");
    assert_eq!(fs::read(Path::new(data).join("server.pem")).unwrap(), certificate);
    let error = Command::new(STOA).args(["dev", "--port", "0", "--data-dir", data]).output().unwrap().stderr;
    let error = String::from_utf8(error).unwrap();
    assert!(error.contains("has sites: take --sites virginia,california,frankfurt"), "{error}");
}

/// What is said when a line was typed.
fn says(dev: &mut Dev, typed: &str, said: &str) {
    dev.type_line(typed);
    dev.wait_for(&format!("* | {said}"));
}

/// What a server's admin HTTP tells of the sites.
fn sites(admin: &str) -> serde_json::Value {
    let output = Command::new(STOA).args(["sites", "--json", "--admin", admin]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Waits until it is so at a server, and what it tells then.
fn until_sites(admin: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = sites(admin);
        if is_so(&told) {
            return told;
        }
        assert!(Instant::now() < deadline, "{admin}: {told:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn links_are_there_whichever_site_is_the_hub() {
    let temporary = TempDir::new().unwrap();
    let mut dev = Dev::start(temporary.path(), &["--sites", "virginia,california,frankfurt"]);
    let connect = dev.wait_for("  connect   virginia (the hub) ");
    let virginia = connect.rsplit(' ').next().unwrap().to_owned();
    let admin = dev.wait_for("  admin ");
    let admin: Vec<&str> = admin.split_whitespace().filter_map(|url| url.strip_suffix("/commands")).collect();
    let round_trips = |told: &serde_json::Value| {
        let of = |site: &serde_json::Value| site["round_trip_ms"].as_f64();
        told["sites"].as_array().into_iter().flatten().map(of).collect::<Vec<_>>()
    };
    let is_measured = |told: &serde_json::Value, own: usize| {
        let round_trips = round_trips(told);
        round_trips.len() == 3 && (0..3).all(|site| (site == own) == round_trips[site].is_none())
    };
    until_sites(admin[0], |told| is_measured(told, 0));
    let promoted = Command::new(STOA).args(["sites", "--admin", admin[1], "promote"]).output().unwrap();
    assert!(promoted.status.success(), "{promoted:?}");
    let told = until_sites(admin[1], |told| is_measured(told, 1));
    let round_trips = round_trips(&told);
    for (site, least) in [(0, 62.0), (2, 148.0)] {
        assert!(round_trips[site].is_some_and(|ms| ms >= least), "{site}: {round_trips:?}");
    }
    dev.type_line("status");
    dev.wait_for("* | virginia (62 ms to the hub and back)");
    dev.wait_for("* | california (the hub)");
    dev.wait_for("* | frankfurt (148 ms to the hub and back)");
    says(&mut dev, "cut california virginia", "california and virginia are cut off from each other");
    let connected = |told: &serde_json::Value, site: usize| told["sites"][site]["connected"].as_bool();
    until_sites(admin[1], |told| connected(told, 0) == Some(false) && connected(told, 2) == Some(true));
    says(&mut dev, "heal california virginia", "california and virginia reach each other again");
    until_sites(admin[1], |told| connected(told, 0) == Some(true));
    assert_eq!(shell(&virginia, &["create", "/a", "x"]).as_deref(), Some("Created /a\n"));
    dev.type_line("quit");
    dev.wait_for("* | all servers have stopped");
}

/// What the leader of each site tells of the connections, until all are there.
fn sites_are_seen(admin: &[String]) {
    let stoa = |words: &[&str]| {
        let output = Command::new(STOA).arg("sites").args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let deadline = Instant::now() + PATIENCE;
    // California and Frankfurt meet at the hub alone.
    let expected = [
        ("virginia (hub) *", "-", "yes", "yes"),
        ("california *", "yes", "-", "-"),
        ("frankfurt *", "yes", "-", "-"),
    ];
    for (address, (own, of_hub, of_second, of_third)) in admin.iter().zip(expected) {
        loop {
            let text = stoa(&["--admin", address]);
            let is_connected = |line: &str| match line {
                line if line.contains("  no  ") => "no",
                line if line.contains("  for ") => "yes",
                _ => "-",
            };
            let connected: Vec<&str> = text.lines().skip(1).take(3).map(is_connected).collect();
            if connected == [of_hub, of_second, of_third] {
                assert!(text.contains(own) && text.contains(" requests wait\n"), "{text}");
                break;
            }
            assert!(Instant::now() < deadline, "{address}: {text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let holder = stoa(&["token", "/x", "--admin", &admin[2]]);
    assert!(
        holder.starts_with("virginia (site 1) holds the token of /x; there is no such znode\n"),
        "{holder}"
    );
}

#[test]
fn servers_have_the_partitions_that_were_asked_for() {
    let temporary = TempDir::new().unwrap();
    let data = temporary.path().join("data");
    let folder = ["--data-dir", data.to_str().unwrap()];
    for arguments in [&["--partitions", "3"][..], &[]] {
        let mut dev = Dev::start(temporary.path(), &[&folder, arguments].concat());
        let addresses = dev.addresses();
        for address in &addresses {
            assert!(word(address, "conf").contains("\npartitions=3\n"), "{address}");
        }
        dev.signal("-TERM");
        assert_eq!(dev.exit_code(), Some(0));
    }
}

#[test]
fn each_site_may_be_divided_in_its_own_way() {
    let temporary = TempDir::new().unwrap();
    let data = temporary.path().join("data");
    let sites = ["--sites", "east,west", "--partitions", "2,3", "--data-dir", data.to_str().unwrap()];
    let mut dev = Dev::start(temporary.path(), &sites);
    let address = |line: String| line.rsplit(' ').next().unwrap().to_owned();
    let east = address(dev.wait_for("  connect   east (the hub) "));
    let west = address(dev.wait_for(" west (50 ms to the hub and back) "));
    let admin = dev.wait_for("  admin ");
    let admin: Vec<&str> = admin.split_whitespace().filter_map(|url| url.strip_suffix("/commands")).collect();
    for (address, partitions) in [(&east, 2), (&west, 3)] {
        assert!(word(address, "conf").contains(&format!("\npartitions={partitions}\n")), "{address}");
    }
    // Wherever they live, here and there, their tokens come to who uses them, and the hub knows it.
    let names = ["/a", "/b", "/c", "/d", "/e", "/f"];
    for name in names {
        assert!(shell(&west, &["create", name, "x"]).is_some(), "{name}");
        assert!(shell(&west, &["set", name, "y"]).is_some(), "{name}");
    }
    for name in names {
        let asked = Command::new(STOA).args(["sites", "--admin", admin[0], "token", name]).output().unwrap();
        let told = String::from_utf8(asked.stdout).unwrap();
        assert!(
            told.starts_with(&format!("west (site 2) holds the token of {name}\ngiven to it: ")),
            "{told}"
        );
        assert!(told.contains("used lately by: west 100% (the last)"), "{told}");
    }
    let counted = |told: &serde_json::Value| told["writes_forwarded"].as_u64() >= Some(12);
    until_sites(admin[1], counted);
    dev.type_line("kill 2");
    dev.wait_for("* | server 2 is down (signal: 9 (SIGKILL))");
    dev.type_line("start 2");
    dev.wait_for("2 | stoa is ready for clients on");
    for name in names {
        assert!(shell(&west, &["set", name, "z"]).is_some(), "{name}");
        let deadline = Instant::now() + PATIENCE;
        while shell(&east, &["get", name]).is_none_or(|data| !data.starts_with('z')) {
            assert!(Instant::now() < deadline, "{name}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    dev.type_line("quit");
    dev.wait_for("* | all servers have stopped");
}

#[test]
fn an_election_waits_for_no_heartbeat() {
    let temporary = TempDir::new().unwrap();
    // Beyond what the test waits for.
    let settings = [("STOA_HEARTBEAT", "100s"), ("STOA_ELECTION_TIMEOUT", "1000s")];
    let mut dev = Dev::start_with(temporary.path(), &["--servers", "3"], &settings);
    let addresses = dev.addresses();
    let status = dev.status(3);
    let leader = status.iter().position(|line| line.ends_with(", leader")).unwrap();
    dev.type_line(&format!("kill {}", leader + 1));
    dev.wait_for("is down (signal: 9 (SIGKILL))");
    for (index, address) in addresses.iter().enumerate().filter(|(index, _)| *index != leader) {
        assert!(shell(address, &["create", &format!("/{index}"), "x"]).is_some(), "{address}");
    }
}

#[test]
fn a_server_that_hangs_is_killed_in_the_end() {
    let temporary = TempDir::new().unwrap();
    let mut dev = Dev::start(temporary.path(), &["--servers", "1"]);
    dev.addresses();
    let status = dev.status(1);
    assert!(Command::new("kill").args(["-STOP", &pid(&status[0])]).status().unwrap().success());
    dev.signal("-TERM");
    dev.wait_for("* | stopping all servers");
    dev.signal("-TERM");
    dev.wait_for("* | server 1 does not stop and is killed");
    assert_eq!(dev.exit_code(), Some(0));
}

#[test]
fn servers_do_not_outlive_whoever_started_them() {
    let temporary = TempDir::new().unwrap();
    let mut dev = Dev::start(temporary.path(), &["--servers", "2"]);
    let addresses = dev.addresses();
    dev.process.kill().unwrap();
    dev.process.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    for address in addresses {
        while TcpStream::connect(&address).is_ok() {
            assert!(Instant::now() < deadline, "{address} is still served");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Where others need the machine it takes long until all are ready.
#[test]
fn all_may_be_killed_before_all_were_ready() {
    let temporary = TempDir::new().unwrap();
    let mut dev = Dev::start(temporary.path(), &["--servers", "3"]);
    for id in 1..=3 {
        dev.type_line(&format!("kill {id}"));
    }
    for _ in 1..=3 {
        dev.wait_for(" is down (signal: 9 (SIGKILL))");
    }
    assert!(dev.status(3).iter().all(|line| line.contains("down (signal: 9 (SIGKILL))")));
    for id in 1..=3 {
        dev.type_line(&format!("start {id}"));
    }
    dev.addresses();
    dev.type_line("quit");
    assert_eq!(dev.exit_code(), Some(0));
}

#[test]
fn servers_that_cannot_start_are_an_error() {
    let temporary = TempDir::new().unwrap();
    let data = temporary.path().join("data");
    fs::create_dir(&data).unwrap();
    // Where a folder should be.
    fs::write(data.join("1"), "").unwrap();
    let mut dev = Dev::start(temporary.path(), &["--servers", "1", "--data-dir", data.to_str().unwrap()]);
    dev.wait_for("* | server 1 has ended by itself (exit status: 1)");
    assert_eq!(dev.exit_code(), Some(1));
    let output = Command::new(STOA).args(["dev", "--servers", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
