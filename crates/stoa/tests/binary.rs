//! The binary as its users meet it: a server, the shell's words, the generator, the readers of files.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_client::recipes::Primitive;
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");

/// A server on a port of the system's choice; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        Self::start_at(folder, "0")
    }

    fn start_at(folder: &Path, port: &str) -> Self {
        let mut process = Command::new(STOA)
            .args(["serve", "--port", port, "--admin-port", "0", "--data-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().to_owned();
        Self { process, address: format!("127.0.0.1:{port}") }
    }

    /// Runs a command line against the server.
    fn run(&self, line: &str) -> Output {
        let command = Command::new(STOA).args(line.split(' ')).env("STOA_SERVER", &self.address).output();
        command.unwrap()
    }

    /// Standard output of a command that succeeds.
    fn text(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and standard error of a command that fails.
    fn failure(&self, line: &str) -> (i32, String) {
        let output = self.run(line);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap().trim().to_owned())
    }

    /// Feeds lines to the shell; returns what it prints.
    fn shell(&self, lines: &str) -> Output {
        let mut shell = Command::new(STOA)
            .args(["shell", "--server", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        shell.wait_with_output().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn words_are_commands_with_text_json_and_exit_codes() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    assert_eq!(server.text("create /a hello"), "Created /a\n");
    assert_eq!(server.text("get /a"), "hello\n");
    assert_eq!(server.text("--json get /a"), "{\"data\":\"hello\"}\n");
    let stat: Value = serde_json::from_str(&server.text("stat /a --json")).unwrap();
    assert_eq!(stat["stat"]["dataLength"], 5);
    assert_eq!(server.text("create -s /a/n- x"), "Created /a/n-0000000000\n");
    assert_eq!(server.text("create -s /a/n- x"), "Created /a/n-0000000001\n");
    assert_eq!(server.text("ls /a"), "[n-0000000000, n-0000000001]\n");
    assert_eq!(server.text("ls -R /a"), "/a\n/a/n-0000000000\n/a/n-0000000001\n");
    assert_eq!(server.text("getAcl /a"), "'world,'anyone\n: cdrwa\n");
    assert!(server.text("set -s -v 0 /a new").contains("dataVersion = 1"));
    assert_eq!(server.failure("set -v 0 /a old"), (1, "stoa: version No is not valid : /a".to_owned()));
    assert_eq!(server.failure("get /none"), (1, "stoa: Node does not exist: /none".to_owned()));
    assert_eq!(server.failure("delete /a"), (1, "stoa: Node not empty: /a".to_owned()));
    let (code, message) = server.failure("gte /a");
    assert!(code == 2 && message.contains("did you mean `get`?"), "{message}");
    assert_eq!(server.failure("get").0, 2);
    assert_eq!(server.text("deleteall /a"), "");
    assert_eq!(server.text("ls /"), "[zookeeper]\n");
}

#[test]
fn status_tells_of_every_server_and_fails_when_none_serves() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    // Nobody listens on a port that was given back.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let text = server.text(&format!("status --server {},{gone}", server.address));
    let (first, second) = text.trim().split_once('\n').unwrap();
    assert!(first.starts_with(&format!("{}: standalone, zxid 0x", server.address)), "{text}");
    assert!(second.starts_with(&format!("{gone}: Connection refused")), "{text}");
    let all: Value = serde_json::from_str(&server.text("--json status")).unwrap();
    assert_eq!(all["servers"][0]["mode"], "standalone");
    let (code, why) = server.failure(&format!("status --server {gone}"));
    assert!(code == 1 && why.contains("Connection refused"), "{why}");
}

#[test]
fn quotas_are_set_listed_and_lifted() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    server.text("create /q abc");
    server.text("create /q/below x");
    server.text("setquota -n 5 -B 1000 /q");
    let listed = server.text("listquota /q");
    assert!(listed.contains("Output quota for /q count=5,bytes=-1=;byteHardLimit=1000;countHardLimit=-1"));
    assert!(listed.contains("Output stat for /q count=2,bytes=4"), "{listed}");
    let (code, message) = server.failure("setquota -n 1 /q/below");
    assert!(code == 1 && message.contains("has a parent /q which has a quota"), "{message}");
    server.text("delquota /q");
    assert_eq!(server.failure("listquota /q").0, 1);
    assert_eq!(server.text("ls /zookeeper/quota"), "[]\n");
}

#[test]
fn a_fed_shell_keeps_one_session_and_ends_as_its_last_line_did() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let output = server.shell("create -e /mine x\ngetEphemerals\nfrobnicate\nls /\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Created /mine\n[/mine]\n[mine, zookeeper]\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown word frobnicate"));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(server.text("ls /"), "[zookeeper]\n", "the ephemeral goes with the shell's session");
    assert_eq!(server.shell("ls /\nget /none\n").status.code(), Some(1));
    assert_eq!(server.shell("get\n").status.code(), Some(2));
}

#[test]
fn a_word_with_a_watch_waits_for_its_event() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    server.text("create /w a");
    let mut watcher = Command::new(STOA)
        .args(["get", "-w", "/w", "--json"])
        .env("STOA_SERVER", &server.address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "{\"data\":\"a\"}");
    server.text("set /w b");
    let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["path"]), (&"NodeDataChanged".into(), &"/w".into()));
    assert!(watcher.wait().unwrap().success());
}

#[test]
fn the_generator_measures_without_errors() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let pid = server.process.id();
    for op in ["get", "set", "exists", "create-delete", "mixed", "idle"] {
        let line = format!(
            "bench --server {} --server-pid {pid} --op {op} --sessions 3 --pipeline 8 --timeout 4 \
             --warmup 0.1 --duration 1.5 --json",
            server.address
        );
        let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
        assert!(report["operations"].as_u64().unwrap() > 0, "{op}: {report}");
        assert_eq!(report["errors"], Value::Object(serde_json::Map::new()), "{op}");
        assert_eq!(report["unanswered"], 0, "{op}");
        assert!(report["server"]["rss_kib_after"].as_u64().unwrap() > 0, "{op}");
    }
    let line = format!(
        "bench --server {} --rate 500 --sessions 2 --probe --warmup 0 --duration 0.6 --json",
        server.address
    );
    let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
    assert_eq!(report["latency_us"]["get"]["count"], 300, "an open loop sends what it should");
    // One a millisecond, unless it was kept from that.
    assert!((100..=600).contains(&report["latency_us"]["probe"]["count"].as_u64().unwrap()), "{report}");
    let loaded = server.text(&format!("bench load --server {} --znodes 2500 --payload 10", server.address));
    assert!(loaded.starts_with("2500 operations"), "{loaded}");
    let kept = server.text("getAllChildrenNumber /bench");
    assert!(kept.trim().parse::<u64>().unwrap() >= 2503, "{kept}");
}

#[test]
fn the_generator_has_clients_coordinate_in_both_forms_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let steps = [
        ("counter", &["increment"][..]),
        ("queue", &["add", "remove"]),
        ("barrier", &["enter"]),
        ("election", &["change"]),
    ];
    for (recipe, steps) in steps {
        for form in ["traditional", "extension"] {
            let line = format!(
                "bench recipe --server {0},{0} --recipe {recipe} --form {form} --clients 3 --warmup 0 --duration 0.5 --json",
                server.address
            );
            let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
            assert!(report["operations"].as_u64().unwrap() > 0, "{report}");
            for step in steps {
                assert!(report["latency_us"][step]["count"].as_u64().unwrap() > 0, "{report}");
                assert!(report["bytes_sent"][step].as_f64().unwrap() > 0.0, "{report}");
            }
            if (recipe, form) == ("counter", "extension") {
                // One getData of /recipe/ctr/add/1.WITNESS.VERSION, however many clients there are, but for the
                // first ones and the last ones.
                let bytes = report["bytes_sent"]["increment"].as_f64().unwrap();
                let most = 66.0 + 3.0 * 1500.0 / report["operations"].as_f64().unwrap();
                assert!((61.0..=most).contains(&bytes), "{report}");
            }
        }
    }
    assert_eq!(server.text("ls /"), "[em, zookeeper]\n");
    assert_eq!(server.text("ls /em"), "[]\n");
}

#[test]
fn a_lock_is_measured_from_any_distance_and_nothing_is_left() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let line = |more: &str| {
        let address = &server.address;
        format!(
            "bench lock --server {address},{address} --path /locks/a --json --clients 4 --warmup 5 {more}"
        )
    };
    let report = |more: &str| serde_json::from_str::<Value>(&server.text(&line(more))).unwrap();
    for primitive in Primitive::ALL.map(Primitive::name).into_iter().chain(["adaptive"]) {
        let near =
            format!("--primitive {primitive} --visits 40 --interarrival-ms 10 --service-ms 5 --poll-ms 2");
        let near = report(&near);
        assert_eq!((&near["violations"], &near["latency_us"]["acquire"]["count"]), (&json!(0), &json!(40)));
        assert!(near["latency_us"]["handover"]["count"].as_u64().unwrap() > 0, "{near}");
    }
    // More is wanted than there are clients: what waits for one has waited too.
    let far =
        report("--visits 10 --interarrival-ms 1 --arrivals fixed --service-ms 1 --service fixed --rtt-ms 20");
    let latency = &far["latency_us"]["acquire"];
    assert!(latency["p50"].as_f64().unwrap() > 100_000.0, "{far}");
    assert!(far["requests"]["until_held"].as_f64().unwrap() >= 1.0, "{far}");
    assert_eq!(server.text("ls /"), "[em, locks, zookeeper]\n");
    assert_eq!(server.text("ls /em"), "[]\n");
    assert_eq!(server.text("ls /locks"), "[]\n");
}

#[test]
fn basic_operations_are_measured_one_by_one_and_at_once() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let line = "--connections 1 --one-by-one 3 --at-once 200 --rtt-ms 20 --json";
    let line = format!("bench smoke --server {} {line}", server.address);
    let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
    for operation in ["create", "set", "get", "delete"] {
        let one_by_one = &report["latency_us"]["one_by_one"][operation];
        assert!(one_by_one["p50"].as_f64().unwrap() >= 20_000.0, "{report}");
        let at_once = report["us_each_at_once"][operation].as_f64().unwrap();
        assert!((100.0..20_000.0).contains(&at_once), "{report}");
    }
    // TCP's handshake, then the session.
    assert!(report["latency_us"]["connect"]["p50"].as_f64().unwrap() >= 40_000.0, "{report}");
    assert_eq!(server.text("ls /"), "[zookeeper]\n");
}

/// Pauses lie between operations, and are no part of what is reported.
#[test]
fn basic_operations_are_measured_after_pauses() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let line = "--connections 1 --one-by-one 3 --at-once 1 --pause-ms 300 --json";
    let began = Instant::now();
    let report = server.text(&format!("bench smoke --server {} {line}", server.address));
    assert!(began.elapsed() >= Duration::from_millis(12 * 300));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["settings"]["pause_ms"], 300);
    let read = report["latency_us"]["one_by_one"]["get"]["p50"].as_f64().unwrap();
    assert!(read < 300_000.0, "{report}");
}

#[test]
fn the_generator_drives_the_echo_server() {
    let mut echo = Command::new(STOA)
        .args(["bench", "echo-server", "--port", "0", "--reply-bytes", "100"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.trim().rsplit(' ').next().unwrap();
    let output = Command::new(STOA)
        .args(["bench", "--op", "echo", "--sessions", "2", "--payload", "40", "--server", address])
        .args(["--warmup", "0", "--duration", "0.3", "--json"])
        .output();
    echo.kill().unwrap();
    echo.wait().unwrap();
    let report: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!((&report["request_bytes"], &report["reply_bytes"]), (&44.0.into(), &104.0.into()));
}

#[test]
fn the_probe_keeps_its_sessions_over_a_crash_and_tells_how_long_it_took() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    // Nobody listens on the port after it was given back.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut probe = Command::new(STOA)
        .args(["bench", "probe", "--sessions", "2", "--servers"])
        .arg(format!("{nobody},{}", server.address))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut commands, mut answers) =
        (probe.stdin.take().unwrap(), BufReader::new(probe.stdout.take().unwrap()));
    let mut next = || {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(next()["sessions"], 2);
    commands.write_all(b"mark killed\n").unwrap();
    assert_eq!(next()["phase"], "start");
    drop(server);
    commands.write_all(b"mark restarted\n").unwrap();
    assert_eq!(next()["phase"], "killed");
    let _again = Server::start_at(folder.path(), &port);
    loop {
        commands.write_all(b"look\n").unwrap();
        let report = next();
        if report["first_write_after_ms"].is_number() {
            // Not from the beginning of the phase: a write that was sent before it may be acknowledged in it.
            let ms = |of: &str| report[of].as_f64().unwrap();
            let gap_ends_ms = ms("longest_gap_at_ms") + ms("longest_gap_ms");
            assert!(gap_ends_ms + 0.001 >= ms("first_write_after_ms"), "{report}");
            break;
        }
    }
    drop(commands);
    let all = next();
    assert!(probe.wait().unwrap().success());
    assert_eq!((&all["phase"], &all["sessions_lost"]), (&"all".into(), &0.into()), "{all}");
    assert!(all["connections_lost"].as_u64().unwrap() >= 2, "{all}");
}

#[test]
fn a_run_can_end_after_a_number_of_requests() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let address = &server.address;
    let line = format!("bench --server {address},{address} --op set --operations 700 --sessions 3 --json");
    let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
    assert_eq!((&report["operations"], &report["unanswered"]), (&700.into(), &0.into()));
}

#[test]
fn each_site_does_and_reports_its_own_part() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let (address, pid) = (&server.address, server.process.id());
    let sites = format!("bench sites --server {address} --site west={address} --site east={address} --json");
    let line = format!("{sites} --server-pid {pid} --overlap 50 --writes 60 --operations 100 --think-ms 5");
    let report: Value = serde_json::from_str(&server.text(&line)).unwrap();
    assert_eq!((&report["operations"], &report["unanswered"]), (&200.into(), &0.into()));
    assert_eq!(report["errors"], Value::Object(serde_json::Map::new()));
    for site in ["west", "east"] {
        let site = &report["sites"][site];
        let [reads, writes] =
            ["get", "set"].map(|op| site["latency_us"][op]["count"].as_u64().unwrap_or_default());
        assert!(reads + writes == 100 && (30..90).contains(&writes), "{site}");
        // Between a hundred requests there are 99 pauses, which are no part of a latency.
        assert!(site["elapsed_s"].as_f64().unwrap() >= 0.495, "{site}");
        let second = site["parts"]["operations"][0].as_u64().unwrap();
        assert!((1..=100).contains(&second), "{site}");
    }
    let line = format!("{sites} --prepared --apart --duration 0.1");
    assert!(server.text(&line).contains("NoNode"), "what lies apart was not prepared");
}

#[test]
fn sessions_whose_connections_break_at_once_come_back() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let line = format!("bench return --server {} --sessions 50 --after 0.1", server.address);
    let report: Value = serde_json::from_str(&server.text(&format!("{line} --json"))).unwrap();
    assert_eq!(
        (&report["returned"], &report["lost"], &report["missing"]),
        (&50.into(), &0.into(), &0.into())
    );
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(server.text(&line).starts_with("50 of 50 sessions were back after"));
    // Whoever is quiet for long would find that his session has expired.
    assert_eq!(server.failure(&format!("{line} --timeout 4 --after 2")).0, 2);
}

#[test]
fn what_is_on_disk_can_be_looked_into_and_damage_is_found() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().to_str().unwrap();
    let server = Server::start(folder.path());
    server.text("create /kept some-data");
    let log = server.text(&format!("log dump {data}"));
    assert!(log.contains("create \"/kept\" bytes=9"), "{log}");
    assert_eq!(server.failure(&format!("snapshot verify {data}")).0, 1, "there is no snapshot yet");
    let line = format!("bench --server {} --op set --payload 2000 --sessions 8 --duration 2", server.address);
    while !has_snapshot(folder.path()) {
        server.text(&line);
    }
    assert!(server.text(&format!("snapshot verify {data}")).contains(": whole, "));
    assert!(server.text(&format!("snapshot dump {data}")).contains("\n/kept bytes=9 version=0"));
    let snapshot = newest_snapshot(folder.path());
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    let output = server.run(&format!("snapshot verify {}", snapshot.display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("DAMAGED"), "{output:?}");
}

fn newest_snapshot(folder: &Path) -> std::path::PathBuf {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| is_snapshot(path)).max().unwrap()
}

fn has_snapshot(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| is_snapshot(&entry.unwrap().path()))
}

fn is_snapshot(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.starts_with("snapshot-") && path.extension().is_none()
}
